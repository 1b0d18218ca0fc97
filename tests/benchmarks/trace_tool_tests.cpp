// SPDX-License-Identifier: Apache-2.0
#include <tools/recorded/pickle.hpp>
#include <tools/recorded/recorded_file.hpp>
#include <tools/recorded/terminal_text.hpp>
#include <tools/recorded/trace_events.hpp>
#include <tools/recorded/trace_reader.hpp>
#include <tools/trace/exports.hpp>
#include <tools/trace/json_writer.hpp>
#include <tools/trace/lifetimes.hpp>
#include <tools/trace/replays.hpp>
#include <tools/trace/report.hpp>

#include <rmm/error.hpp>

#include <tests/support/seeds.hpp>
#include <tests/support/temporary_folder.hpp>
#include <tests/support/trace_file.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using rmm::recorded::bad_pickle;
using rmm::recorded::bad_trace;
using rmm::recorded::kind;
using rmm::recorded::no_stack;
using rmm::recorded::pickle;
using rmm::recorded::read_recorded_file;
using rmm::recorded::read_torch_snapshot;
using rmm::recorded::recorded_file;
using rmm::recorded::trace_reader;
using rmm::test::contents_of;
using rmm::test::temporary_folder;
using rmm::tools::json_writer;
using rmm::tools::lifetimes;
using rmm::tools::report;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

auto const snapshot_path = rmm::test::trace_file("torch-snapshot.pickle");
auto const trace_path    = rmm::test::trace_file("two-threads.rmmtrace");

// --- pickles ---------------------------------------------------------------------------------------------------------

std::string operator""_bytes(char const* text, std::size_t length) { return {text, length}; }

TEST(Pickle, HasDictsListsTextsAndNumbers)
{
  // {'a': [1, 300, -2, 2**40, 'text', True, None], 'b': (5,)}
  auto const content =
    "\x80\x04}\x94(\x8C\x01"
    "a\x94]\x94(K\x01M\x2C\x01J\xFE\xFF\xFF\xFF\x8A\x06\x00\x00\x00\x00\x00\x01\x8C\x04text\x94\x88Ne\x8C\x01"
    "bK\x05\x85u."_bytes;
  auto const data = pickle::read(content);
  auto const list = data.list(data.find(data.root(), "a"));
  ASSERT_THAT(list, SizeIs(7));
  EXPECT_EQ(list[0].bits(), 1);
  EXPECT_EQ(list[1].bits(), 300);
  EXPECT_EQ(static_cast<std::int64_t>(list[2].bits()), -2);
  EXPECT_EQ(list[3].bits(), std::uint64_t{1} << 40U);
  EXPECT_EQ(data.text(list[4]), "text");
  EXPECT_TRUE(list[5].is(pickle::type::boolean));
  EXPECT_TRUE(list[6].is(pickle::type::none));
  EXPECT_THAT(data.list(data.find(data.root(), "b")), SizeIs(1));
  EXPECT_TRUE(data.find(data.root(), "c").is(pickle::type::none));
}

TEST(Pickle, RefersToWhatItHasNumbered)
{
  auto const content =
    "\x80\x02]q\x00(X\x03\x00\x00\x00oneq\x01h\x01j\x01\x00\x00\x00"
    "e."_bytes;
  auto const data  = pickle::read(content);
  auto const& list = data.list(data.root());
  ASSERT_THAT(list, SizeIs(3));
  EXPECT_EQ(data.text(list[2]), "one");
}

TEST(Pickle, KnowsTheMarkOfPyTorchsOwnPickler)
{
  auto const data = pickle::read(
    "\x80\x02"
    "ctorch.jit._pickle\nrestore_type_tag\n]K\x07"
    "aX\x01\x00\x00\x00x\x86R."_bytes);
  ASSERT_TRUE(data.root().is(pickle::type::list));
  EXPECT_THAT(data.list(data.root()), SizeIs(1));
}

TEST(Pickle, ExecutesNothing)
{
  EXPECT_THAT(
    [] {
      static_cast<void>(
        pickle::read("\x80\x02"
                     "cos\nsystem\nX\x02\x00\x00\x00ls\x85R."_bytes));
    },
    ThrowsMessage<bad_pickle>(HasSubstr("at byte 2: the pickle asks for 'os.system'")));
  EXPECT_THAT([] { static_cast<void>(pickle::read("\x80\x04\x8C\x02os\x8C\x06system\x93."_bytes)); },
              ThrowsMessage<bad_pickle>(HasSubstr("'os.system'")));
  EXPECT_THAT(
    [] {
      static_cast<void>(
        pickle::read("\x80\x02"
                     "c\x1B]0;os\x07\n\x1B[31m\n."_bytes));
    },
    ThrowsMessage<bad_pickle>(HasSubstr("asks for '?]0;os?.?[31m'")));
  EXPECT_THAT([] { static_cast<void>(pickle::read("\x80\x02]b."_bytes)); },
              ThrowsMessage<bad_pickle>(HasSubstr("at byte 3: operation 0x62")));
}

TEST(Pickle, RefusesAFrameThatIsLongerThanTheFile)
{
  EXPECT_TRUE(pickle::read("\x80\x04\x95\x02\0\0\0\0\0\0\0N."_bytes).root().is(pickle::type::none));
  EXPECT_THAT([] { static_cast<void>(pickle::read("\x80\x04\x95\x03\0\0\0\0\0\0\0N."_bytes)); },
              ThrowsMessage<bad_pickle>(HasSubstr("the file ends within the frame")));
}

TEST(Pickle, RefusesOperationsWithoutOperands)
{
  for (auto const& each : {"\x80\x02."_bytes,
                           "\x80\x02"
                           "a."_bytes,
                           "\x80\x02u."_bytes,
                           "\x80\x02}(Ku."_bytes,
                           "\x80\x02}(K\x01u."_bytes,
                           "\x80\x02h\x00."_bytes,
                           "\x80\x02Nr\xFF\xFF\xFF\xFF."_bytes,
                           "\x80\x02N(\x85."_bytes,
                           "\x80\x02\x8A\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."_bytes,
                           "\x80\x04\x95\xFF\x00\x00\x00\x00\x00\x00\x00N."_bytes,
                           "\x80\x02K\x01K\x02\x61."_bytes}) {
    EXPECT_THROW(static_cast<void>(pickle::read(each)), bad_pickle);
  }
}

// --- snapshots of PyTorch ---------------------------------------------------------------------------------------------

/// Live bytes after each event that changes them, and of each device.
std::map<int, std::vector<std::uint64_t>> live_curves(recorded_file const& file)
{
  auto const& trace = file.trace;
  std::map<int, std::vector<std::uint64_t>> result;
  lifetimes const all{trace};
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    if (all.of_event(i) == rmm::tools::none) { continue; }
    auto& curve      = result[trace.places[trace.events[i].place].device];
    auto const bytes = all.all()[all.of_event(i)].bytes;
    auto live        = curve.empty() ? 0 : curve.back();
    if (all.replaced_by(i) != rmm::tools::none) {
      live -= all.all()[all.replaced_by(i)].bytes;
      curve.push_back(live);
    }
    curve.push_back(trace.events[i].what == kind::allocate ? live + bytes : live - bytes);
  }
  return result;
}

TEST(TorchSnapshot, HasTheEventsOfAllDevicesInTheirOrder)
{
  auto const file = read_recorded_file(snapshot_path);
  EXPECT_EQ(file.format, "pytorch snapshot");
  ASSERT_THAT(file.trace.events, SizeIs(9));
  // On device 0 two blocks are older than the history: one that is freed there, one that is there at the end.
  EXPECT_THAT(
    live_curves(file),
    ElementsAre(
      std::make_pair(0, std::vector<std::uint64_t>{1000, 2'001'000, 2'000'000, 5'000'000, 10'000'000, 7'000'000}),
      std::make_pair(1, std::vector<std::uint64_t>{512, 0})));
  EXPECT_EQ(file.trace.header.wall_time_ns, 1'795'261'888'000'000'000U);
  EXPECT_EQ(file.trace.events[3].time_ns, 2000);
  EXPECT_EQ(file.trace.places[file.trace.events[5].place].stream, 0x55aa);
  EXPECT_EQ(file.trace.events[6].what, kind::allocate_failure);
}

TEST(TorchSnapshot, HasStacks)
{
  auto const file   = read_recorded_file(snapshot_path);
  auto const& stack = file.trace.stacks.at(file.trace.events[3].stack);
  ASSERT_THAT(stack, SizeIs(2));
  EXPECT_EQ(file.trace.frame_names.at(stack[0]), "forward at model.py:12");
  EXPECT_EQ(file.trace.events[0].stack, no_stack);
}

TEST(TorchSnapshot, HasTheSegments)
{
  auto const file = read_recorded_file(snapshot_path);
  ASSERT_THAT(file.regions, SizeIs(3));
  EXPECT_EQ(file.regions[0].bytes, 0x200000);
  EXPECT_EQ(file.regions[0].begin, 0);  // it is older than the history
  EXPECT_EQ(file.regions[1].bytes, 0x1400000);
  EXPECT_EQ(file.regions[1].begin, 3);
  EXPECT_EQ(file.regions[2].device, 1);
}

TEST(TorchSnapshot, IsReplayedLikeOtherTraces)
{
  EXPECT_THAT(rmm::recorded::read_events(snapshot_path).events, SizeIs(9));
}

TEST(TorchSnapshot, IsRefusedWithThePlaceIfItIsSomethingElse)
{
  EXPECT_THAT([] { static_cast<void>(read_torch_snapshot("\x80\x02]b."_bytes, "the file")); },
              ThrowsMessage<bad_trace>(StartsWith("the file: at byte 3: operation 0x62")));
  EXPECT_THAT([] { static_cast<void>(read_torch_snapshot("\x80\x02}."_bytes, "the file")); },
              ThrowsMessage<bad_trace>(HasSubstr("no list 'segments'")));
}

// --- what is broken ---------------------------------------------------------------------------------------------------

/// Calls `read` and, if that succeeds, makes all that can be made of what was read.
template <class Read>
void use(Read const& read)
{
  try {
    recorded_file const file = read();
    for (auto const& place : file.trace.places) {
      if (place.device < 0 || place.device >= rmm::tools::replays::most_devices) { return; }
    }
    std::ostringstream out;
    rmm::tools::export_torch(file, out);
    rmm::tools::export_perfetto(file, out);
    rmm::tools::export_csv(file, out);
    out << report{file, "the file", 1}.document();
    EXPECT_GT(out.str().size(), 0);
  } catch (std::exception const& error) {
    EXPECT_THAT(std::string{error.what()}, ::testing::AnyOf(HasSubstr("at byte"), HasSubstr("line")));
  }
}

TEST(BrokenFile, IsReadOrRefusedWhereverASnapshotEnds)
{
  auto const whole = contents_of(snapshot_path);
  ASSERT_FALSE(whole.empty());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    auto const part = whole.substr(0, length);
    EXPECT_THROW(static_cast<void>(read_torch_snapshot(part, "the file")), bad_trace) << length;
  }
}

TEST(BrokenFile, IsReadOrRefusedWhereverATraceEnds)
{
  auto const whole = contents_of(trace_path);
  ASSERT_FALSE(whole.empty());
  for (std::size_t length = 0; length < 1000; ++length) {
    use([&] { return recorded_file{trace_reader::read(whole.substr(0, length), "the file"), "", {}}; });
  }
}

TEST(BrokenFile, IsReadOrRefusedWhereverALogEnds)
{
  std::string const whole{
    "Thread,Time,Action,Pointer,Size,Stream\n11,10:00:00.000001,allocate,0x7f0000001000,1000,0x0\r\n"
    "11,10:00:00:000003,free,7f0000001000,1000,(nil)\n12,x,allocate failure,(nil),5,0x2\n"};
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    use([&] {
      std::istringstream in{whole.substr(0, length)};
      return recorded_file{rmm::recorded::trace_of_log(rmm::detail::parse_csv(in)), "csv", {}};
    });
  }
}

TEST(BrokenFile, IsReadOrRefusedWhateverASnapshotHas)
{
  auto const whole = contents_of(snapshot_path);
  ASSERT_FALSE(whole.empty());
  rmm::test::for_each_seed(500, [&](std::uint64_t seed) {
    std::mt19937_64 random{seed};
    auto changed = whole;
    for (int i = 0; i < 3; ++i) { changed[2 + random() % (changed.size() - 2)] = static_cast<char>(random()); }
    use([&] { return read_torch_snapshot(changed, "the file"); });
  });
}

// --- logs -------------------------------------------------------------------------------------------------------------

TEST(LogClock, CountsFromTheFirstTimeAndOverMidnight)
{
  rmm::detail::log_clock clock;
  EXPECT_EQ(clock.elapsed_ns("23:59:59.999999"), 0);
  EXPECT_EQ(clock.elapsed_ns("0:00:00:000001"), 2000);
  EXPECT_EQ(clock.elapsed_ns("no time"), 2000);
  EXPECT_EQ(clock.elapsed_ns("00:00:01"), 1'000'001'000);
  EXPECT_EQ(clock.elapsed_ns("00:00:00.5"), 1'000'001'000);  // it does not go back
}

// --- round trips ------------------------------------------------------------------------------------------------------

/// Any trace: several devices, streams, tags, stacks, failures, lost frees and frees of what was never allocated.
recorded_file random_file(std::uint64_t seed, std::size_t events, bool is_plain = false)
{
  std::mt19937_64 random{seed};
  recorded_file file;
  file.format                    = "rmm trace 1";
  file.trace.header.wall_time_ns = 1'795'261'888'000'000'000U;
  file.trace.threads             = {11, 12};
  file.trace.tags                = {"", "<model>", "data \"loader\""};
  file.trace.stacks              = {{1, 2}, {3}};
  file.trace.frame_names         = {{1, "run() at a.cpp:7"}, {2, "main"}};
  for (int device = 0; device < 2; ++device) {
    for (std::uint32_t tag = 0; tag < 3; ++tag) { file.trace.places.push_back({device, tag, tag * 0x55U, tag * 9U}); }
  }
  std::vector<std::map<std::uint64_t, std::uint64_t>> live(2);
  std::uint64_t time = 0;
  for (std::size_t i = 0; i < events; ++i) {
    time += random() % 5 * 1000;
    auto const place  = static_cast<std::uint32_t>(random() % file.trace.places.size());
    auto& of_device   = live[place / 3];
    auto const thread = static_cast<std::uint32_t>(random() % 2);
    auto const stack  = random() % 3 == 0 ? static_cast<std::uint32_t>(random() % 2) : no_stack;
    auto const dice   = random() % 100;
    if (!is_plain && dice == 0) {
      file.trace.events.push_back({time, 0, 1 + random() % 100, thread, place, stack, kind::allocate_failure});
    } else if (dice < 52 || of_device.empty()) {
      std::uint64_t address = 0;
      do {
        address = 0x7f00'0000'0000U + random() % 5000 * 0x10000;
      } while (is_plain && of_device.count(address) != 0);
      of_device[address] = 1 + random() % 0x10000;
      file.trace.events.push_back({time, address, of_device[address], thread, place, stack, kind::allocate});
    } else {
      auto found = of_device.lower_bound(0x7f00'0000'0000U + random() % 5000 * 0x10000);
      if (found == of_device.end()) { found = of_device.begin(); }
      auto const wrong = !is_plain && dice == 99 ? 8U : 0U;
      file.trace.events.push_back({time, found->first + wrong, found->second, thread, place, no_stack, kind::free});
      if (wrong == 0) { of_device.erase(found); }
    }
  }
  return file;
}

TEST(Export, ToPyTorchAndBackGivesTheSameCurve)
{
  rmm::test::for_each_seed(20, [](std::uint64_t seed) {
    auto const file = random_file(seed, 400);
    std::ostringstream out;
    rmm::tools::export_torch(file, out);
    auto const again = read_torch_snapshot(out.str(), "again");
    EXPECT_EQ(live_curves(again), live_curves(file));
    lifetimes const all{again.trace};
    for (std::size_t i = 0; i < again.trace.events.size(); ++i) {  // its viewer knows no block that is allocated twice
      EXPECT_EQ(all.replaced_by(i), rmm::tools::none);
    }
    EXPECT_EQ(again.trace.header.wall_time_ns + again.trace.events.back().time_ns,
              file.trace.header.wall_time_ns + file.trace.events.back().time_ns);
    std::size_t failures = 0;
    for (auto const& each : file.trace.events) { failures += each.what == kind::allocate_failure ? 1 : 0; }
    for (auto const& each : again.trace.events) { failures -= each.what == kind::allocate_failure ? 1 : 0; }
    EXPECT_EQ(failures, 0);
  });
}

TEST(Export, ToPyTorchKeepsStacks)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({0, 0x1000, 5, 0, 0, 0, kind::allocate});
  std::ostringstream out;
  rmm::tools::export_torch(file, out);
  auto const again = read_torch_snapshot(out.str(), "again").trace;
  ASSERT_THAT(again.events, SizeIs(1));
  auto const& stack = again.stacks.at(again.events[0].stack);
  ASSERT_THAT(stack, SizeIs(2));
  EXPECT_EQ(again.frame_names.at(stack[0]), "run() at a.cpp:7");
  EXPECT_EQ(again.frame_names.at(stack[1]), "main");
}

TEST(Export, ToPyTorchHasNoTextThatIsNotUtf8)
{
  auto file                 = random_file(1, 0);
  file.trace.frame_names[1] = "caf\xC3 at \xFF.cpp:7";
  file.trace.events.push_back({0, 0x1000, 5, 0, 0, 0, kind::allocate});
  std::ostringstream out;
  rmm::tools::export_torch(file, out);
  auto const again = read_torch_snapshot(out.str(), "again").trace;
  ASSERT_THAT(again.events, SizeIs(1));
  EXPECT_EQ(again.frame_names.at(again.stacks.at(again.events[0].stack).at(0)),
            "caf\xEF\xBF\xBD at \xEF\xBF\xBD.cpp:7");
}

TEST(Export, ToPyTorchPutsWhatIsLiveIntoSegments)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({0, 0x100000, 0x100, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({0, 0x100400, 0x200, 0, 0, no_stack, kind::allocate});
  std::ostringstream out;
  rmm::tools::export_torch(file, out);
  auto const content   = out.str();
  auto const data      = pickle::read(content);
  auto const& segments = data.list(data.find(data.root(), "segments"));
  ASSERT_THAT(segments, SizeIs(1));
  auto const& blocks = data.list(data.find(segments[0], "blocks"));
  ASSERT_THAT(blocks, SizeIs(3));
  EXPECT_EQ(data.find(blocks[1], "size").bits(), 0x300);
  EXPECT_EQ(data.text(data.find(blocks[1], "state")), "inactive");
  EXPECT_EQ(data.find(blocks[2], "address").bits(), 0x100400);
  EXPECT_EQ(data.text(data.find(blocks[2], "state")), "active_allocated");
}

TEST(Export, ToPyTorchFillsASegmentWithBlocksAlsoWhereAllocationsOverlap)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({0, 0x100000, 0x1000, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({1, 0x100800, 0x1000, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({2, 0x100900, 0x10, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({3, 0x103000, 0x1000, 0, 0, no_stack, kind::allocate});
  file.regions.push_back({0, 0x100000, 0x3800, 0, 100});  // ends before the last of them does
  std::ostringstream out;
  rmm::tools::export_torch(file, out);
  auto const content   = out.str();
  auto const data      = pickle::read(content);
  auto const& segments = data.list(data.find(data.root(), "segments"));
  ASSERT_THAT(segments, SizeIs(1));
  EXPECT_EQ(data.find(segments[0], "allocated_size").bits(), 0x2000);
  std::vector<std::uint64_t> sizes;
  std::uint64_t end = 0x100000;
  for (auto const& each : data.list(data.find(segments[0], "blocks"))) {
    EXPECT_EQ(data.find(each, "address").bits(), end);
    sizes.push_back(data.find(each, "size").bits());
    end += sizes.back();
  }
  EXPECT_THAT(sizes, ElementsAre(0x1000, 0x800, 0x1800, 0x800));
  EXPECT_EQ(end, 0x103800);
}

TEST(Export, ToCsvAndBackGivesTheSameCurve)
{
  temporary_folder const folder;
  auto const path = folder / "log.csv";
  rmm::test::for_each_seed(10, [&](std::uint64_t seed) {
    auto const file = random_file(seed, 400);
    {
      std::ofstream out{path};
      rmm::tools::export_csv(file, out);
    }
    auto const again = read_recorded_file(path);
    EXPECT_EQ(live_curves(again), live_curves(file));
    EXPECT_EQ(again.trace.events.size(), file.trace.events.size());
    EXPECT_EQ(again.trace.events.back().time_ns, file.trace.events.back().time_ns - file.trace.events.front().time_ns);
  });
}

TEST(Export, ToPerfettoHasACounterAndSlices)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({1500, 0x1000, 5, 0, 1, 0, kind::allocate});
  file.trace.events.push_back({2500, 0x1000, 5, 0, 1, no_stack, kind::free});
  std::ostringstream out;
  rmm::tools::export_perfetto(file, out);
  auto const text = out.str();
  EXPECT_THAT(text, HasSubstr(R"("name":"live bytes","ph":"C","pid":0,"tid":0,"ts":1.500,"args":{"bytes":5}})"));
  EXPECT_THAT(text, HasSubstr(R"("name":"\u003cmodel\u003e","ph":"b","pid":0,"tid":11,"ts":1.500)"));
  EXPECT_THAT(text, HasSubstr(R"("stack":["run() at a.cpp:7","main"])"));
  EXPECT_THAT(text, HasSubstr(R"("ph":"e","pid":0,"tid":11,"ts":2.500)"));
}

// --- one training with PyTorch, twice: tests/traces/torch_training.py recorded it on a GPU ----------------------------

auto const training_trace    = rmm::test::trace_file("torch-training.rmmtrace");
auto const training_snapshot = rmm::test::trace_file("torch-training.pickle");

// What PyTorch said of it.
constexpr std::size_t training_allocations           = 5278;
constexpr std::uint64_t training_peak_on_rmm         = 274'475'288;
constexpr std::uint64_t training_reserved_by_pytorch = 373'293'056;

std::uint64_t peak_of(recorded_file const& file)
{
  auto const curve = live_curves(file).at(0);
  return *std::max_element(curve.begin(), curve.end());
}

TEST(RecordedTraining, HasEveryAllocationAndThePeakThatPyTorchCounted)
{
  auto const file = read_recorded_file(training_trace);
  std::map<kind, std::size_t> events;
  for (auto const& each : file.trace.events) { events[each.what] += each.bytes != 0 ? 1 : 0; }
  EXPECT_EQ(events[kind::allocate], training_allocations);
  EXPECT_EQ(events[kind::allocate_failure], 0);
  EXPECT_EQ(lifetimes{file.trace}.unknown_frees(), 0);
  EXPECT_EQ(peak_of(file), training_peak_on_rmm);
  EXPECT_THAT(file.trace.tags,
              ::testing::UnorderedElementsAre("", "model", "batch", "forward", "backward", "optimizer", "trial"));
}

TEST(RecordedTraining, OfPyTorchsAllocatorHasItsSegmentsAndTheEndOfTheSameCurve)
{
  auto const file        = read_recorded_file(training_snapshot);
  std::uint64_t reserved = 0;
  for (auto const& each : file.regions) { reserved += each.bytes; }
  EXPECT_EQ(reserved, training_reserved_by_pytorch);
  EXPECT_EQ(lifetimes{file.trace}.unknown_frees(), 0);
  // Its history has the last 2,500 events, and the lengths of the batches make steps differ; the peak is of the same program.
  EXPECT_NEAR(static_cast<double>(peak_of(file)), static_cast<double>(training_peak_on_rmm), 1e6);
  EXPECT_THAT(file.trace.frame_names,
              ::testing::Contains(::testing::Pair(::testing::_, StartsWith("train at torch_training.py:"))));
}

TEST(RecordedTraining, GivesTheSameCurveAfterEachExport)
{
  temporary_folder const folder;
  for (auto const& path : {training_trace, training_snapshot}) {
    auto const file = read_recorded_file(path);
    std::ostringstream pytorch;
    rmm::tools::export_torch(file, pytorch);
    EXPECT_EQ(live_curves(read_torch_snapshot(pytorch.str(), "again")), live_curves(file));
    {
      std::ofstream log{folder / "log.csv"};
      rmm::tools::export_csv(file, log);
    }
    EXPECT_EQ(live_curves(read_recorded_file(folder / "log.csv")), live_curves(file));
    std::ostringstream perfetto;
    rmm::tools::export_perfetto(file, perfetto);
    EXPECT_THAT(perfetto.str(), HasSubstr("\"args\":{\"bytes\":" + std::to_string(peak_of(file)) + "}"));
  }
}

// --- the report -------------------------------------------------------------------------------------------------------

TEST(JsonWriter, KeepsTextFromEndingTheScriptItStandsIn)
{
  json_writer out;
  out.value("</script> & \"\\\n\xE2\x80\xA8 \xC3\xA4 \xFF\xC3");
  EXPECT_EQ(out.text(), "\"\\u003c/script\\u003e \\u0026 \\\"\\\\\\u000a\\u2028 \xC3\xA4 \xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonWriter, HasNoControlCharacters)
{
  json_writer out;
  out.value("\x1B[31m\x7F\xC2\x9B\xC2\xA0");
  EXPECT_EQ(out.text(), "\"\\u001b[31m\\u007f\\u009b\xC2\xA0\"");
}

TEST(TerminalText, HasNoControlCharacters)
{
  EXPECT_EQ(rmm::recorded::terminal_text("a\x1B]0;b\x07\r\x7F\xC2\x9B\xFF\n\xC2\xA0\xC3\xA4\xE2\x82\xAC"),
            "a?]0;b??????\xC2\xA0\xC3\xA4\xE2\x82\xAC");
}

TEST(JsonWriter, HasNoNumberThatJsonHasNot)
{
  json_writer out;
  out.begin_array()
    .value(std::numeric_limits<double>::infinity())
    .value(0.5)
    .value(std::uint64_t{1} << 63U)
    .end_array();
  EXPECT_EQ(out.text(), "[null,0.5,9223372036854775808]");
}

TEST(Lifetimes, EndWhereTheirAddressIsAllocatedAgain)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({0, 0x1000, 5, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({1, 0x1000, 7, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({2, 0x2000, 7, 0, 0, no_stack, kind::free});
  file.trace.events.push_back({3, 0x1000, 7, 0, 3, no_stack, kind::free});  // on the other device
  lifetimes const all{file.trace};
  ASSERT_THAT(all.all(), SizeIs(2));
  EXPECT_EQ(all.all()[0].end, 1);
  EXPECT_EQ(all.replaced_by(1), 0);
  EXPECT_EQ(all.all()[1].end, rmm::tools::none);
  EXPECT_EQ(all.unknown_frees(), 2);
}

TEST(Lifetimes, LeaveOutWhatHasNoBytes)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({0, 0x1000, 0, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({1, 0x1000, 0, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({2, 0x1000, 0, 0, 0, no_stack, kind::free});
  file.trace.events.push_back({3, 0, 0, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({4, 0, 0, 0, 0, no_stack, kind::free});
  file.trace.events.push_back({5, 0x1000, 9, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({6, 0x1000, 0, 0, 0, no_stack, kind::free});  // a log that has no size here
  lifetimes const all{file.trace};
  ASSERT_THAT(all.all(), SizeIs(1));
  EXPECT_EQ(all.all()[0].begin, 5);
  EXPECT_EQ(all.all()[0].end, 6);
  EXPECT_EQ(all.unknown_frees(), 0);
  std::vector<bool> left_out;
  for (std::size_t i = 0; i < file.trace.events.size(); ++i) {
    left_out.push_back(all.is_left_out(i, file.trace.events[i]));
  }
  EXPECT_THAT(left_out, ElementsAre(true, true, true, true, true, false, false));
}

TEST(Lifetimes, AreThoseOfASimpleModel)
{
  rmm::test::for_each_seed(5, [](std::uint64_t seed) {
    auto const file = random_file(seed, 20'000, true);
    lifetimes const all{file.trace};
    std::map<std::pair<int, std::uint64_t>, std::uint32_t> live;
    for (std::uint32_t i = 0; i < file.trace.events.size(); ++i) {
      auto const& event = file.trace.events[i];
      std::pair<int, std::uint64_t> const key{file.trace.places[event.place].device, event.address};
      if (event.what == kind::allocate) {
        live[key] = all.of_event(i);
      } else {
        ASSERT_EQ(all.of_event(i), live.at(key));
        ASSERT_EQ(all.all()[live.at(key)].end, i);
        live.erase(key);
      }
    }
  });
}

/// The numbers of the first array of that name.
std::vector<std::uint64_t> numbers_of(std::string const& document, std::string const& name)
{
  std::vector<std::uint64_t> result;
  auto const place = document.find("\"" + name + "\":[");
  if (place == std::string::npos) { return result; }
  std::istringstream in{document.substr(document.find('[', place) + 1)};
  std::uint64_t number{};
  for (char comma = ','; comma == ',' && in >> number; in >> comma) { result.push_back(number); }
  return result;
}

TEST(Report, HasThePeaksOfALongTraceAndABoundedSize)
{
  rmm::test::for_each_seed(2, [](std::uint64_t seed) {
    auto const file   = random_file(seed, 200'000, true);
    auto const curves = live_curves(file);
    report const reduced{file, "trace", 1};
    auto const document = reduced.document();
    auto const live     = numbers_of(document, "live");
    auto const& all     = curves.at(0);
    EXPECT_LE(live.size(), report::most_points);
    EXPECT_GT(live.size(), report::most_points / 4);
    EXPECT_EQ(*std::max_element(live.begin(), live.end()), *std::max_element(all.begin(), all.end()));
    EXPECT_EQ(live.back(), all.back());
    EXPECT_LT(document.size(), std::size_t{12} << 20U);
  });
}

TEST(Report, HasColumnsThatSumUpToWhatIsLive)
{
  auto const file     = random_file(3, 3000);
  auto const document = report{file, "trace", 1}.document();
  auto const live     = numbers_of(document, "live");
  for (auto const* const name : {"\"tag\":{", "\"class\":{", "\"stream\":{"}) {
    auto at   = document.find("\"bytes\":[[", document.find(name)) + 9;
    auto sums = std::vector<std::uint64_t>(live.size());
    while (document[at] == '[') {
      auto const column = numbers_of("\"c\":" + document.substr(at, document.find(']', at) - at + 1), "c");
      ASSERT_EQ(column.size(), live.size());
      for (std::size_t i = 0; i < sums.size(); ++i) { sums[i] += column[i]; }
      at = document.find(']', at) + 1;
      if (document[at] == ',') { ++at; }
    }
    EXPECT_EQ(sums, live) << name;
  }
}

TEST(Report, NamesLeaksAndFailures)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({10, 0x1000, 500, 0, 1, 0, kind::allocate});
  file.trace.events.push_back({20, 0x2000, 300, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({30, 0, 9999, 1, 0, no_stack, kind::allocate_failure});
  file.trace.events.push_back({40, 0x2000, 300, 0, 0, no_stack, kind::free});
  file.trace.reports[{1, 30}] = "no more\nfor <you>";
  auto const document         = report{file, "</script>", 1}.document();
  EXPECT_THAT(document,
              HasSubstr(R"("leaks":{"bytes":500,"count":1,"groups":{"bytes":[500],"count":[1],"tag":[1],"stack":[0])"));
  EXPECT_THAT(document,
              HasSubstr(R"({"t":20,"event":2,"bytes":9999,"tag":0,"stream":0,"thread":1,"stack":-1,"live":800)"));
  EXPECT_THAT(document, HasSubstr(R"("holders":[[1,500,1],[0,300,1]],"report":"no more\u000afor \u003cyou\u003e")"));
  EXPECT_THAT(document, HasSubstr(R"("tags":["","\u003cmodel\u003e","data \"loader\""])"));
  EXPECT_THAT(document, HasSubstr(R"("peak_live":800,"peak_live_time":10,"peak_live_count":2)"));
  EXPECT_THAT(document, ::testing::Not(HasSubstr("</script>")));
}

TEST(Report, CountsTheTimeOfAFailedReplayFromTheFirstEvent)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({5000, 0x1000, 500, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({5020, 0x2000, 300, 0, 0, no_stack, kind::allocate});
  report made{file, "trace", 1};
  rmm::tools::replay_figures replay;
  replay.first_failure = rmm::tools::replay_figures::failure{1, 5020, 300, "no more"};
  made.add(replay);
  EXPECT_THAT(made.document(), HasSubstr(R"("first_failure":{"event":1,"t":20,"bytes":300,"text":"no more"})"));
}

TEST(Report, CountsNothingThatHasNoBytes)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({10, 0x1000, 500, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({20, 0x2000, 0, 0, 0, no_stack, kind::allocate});  // no leaks
  file.trace.events.push_back({30, 0, 0, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({40, 0x1000, 500, 0, 0, no_stack, kind::free});
  file.trace.events.push_back({50, 0, 0, 0, 0, no_stack, kind::free});
  auto const document = report{file, "trace", 1}.document();
  EXPECT_THAT(document, HasSubstr(R"("events":5,"allocations":1,"frees":1,)"));
  EXPECT_THAT(document, HasSubstr(R"("live_at_end":0,"live_at_end_count":0,)"));
  EXPECT_THAT(document, HasSubstr(R"("sizes":{"bound":[512],"count":[1],"bytes":[500],)"));
}

TEST(Report, TellsOfFreesWhoseAllocationsItLacks)
{
  auto file = random_file(1, 0);
  file.trace.events.push_back({10, 0x1000, 500, 0, 0, no_stack, kind::allocate});
  file.trace.events.push_back({20, 0x2000, 300, 0, 0, no_stack, kind::free});
  file.trace.events.push_back({30, 0x3000, 0, 0, 0, no_stack, kind::free});  // of no bytes
  EXPECT_THAT((report{file, "trace", 1}.document()), HasSubstr(R"("unknown_frees":1,)"));
}

TEST(Report, OfATraceWithoutEventsHasNoDevices)
{
  recorded_file const file;
  EXPECT_THAT((report{file, "trace", 0}.document()), HasSubstr(R"("devices":[])"));
}

TEST(Report, StandsInThePageWhereTheTemplateSays)
{
  EXPECT_EQ(rmm::tools::page_of("<p>\nRMM_REPORT_DOCUMENT\n</p>", "{}"), "<p>\n{}\n</p>");
  EXPECT_THROW(static_cast<void>(rmm::tools::page_of("<p></p>", "{}")), std::logic_error);
}

}  // namespace
