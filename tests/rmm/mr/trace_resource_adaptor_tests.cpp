// SPDX-License-Identifier: Apache-2.0
#include "../../support/host_bytes.hpp"
#include "../../support/mock_resource.hpp"
#include "../../support/recycling_upstream.hpp"
#include "../../support/sanitizers.hpp"
#include "../../support/temporary_folder.hpp"
#include "../../support/worker.hpp"

#include <tools/recorded/trace_reader.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/interpreter_frames.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/log_time.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>
#include <rmm/tag_scope.hpp>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

template class rmm::mr::trace_resource_adaptor<rmm::mr::cuda_memory_resource>;

namespace {

using namespace rmm::test;
using rmm::detail::trace::kind;
using rmm::mr::trace_options;
using rmm::mr::trace_resource_adaptor;
using rmm::recorded::no_stack;
using rmm::recorded::recorded_trace;
using rmm::recorded::trace_reader;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Return;
using ::testing::SizeIs;
using ::testing::Throw;
using ::testing::ThrowsMessage;

struct Trace : ::testing::Test {
  temporary_folder folder;
  std::string const file{folder / "trace.rmm"};
  recycling_upstream upstream;

  [[nodiscard]] recorded_trace read() const { return trace_reader::read(file); }
  [[nodiscard]] trace_options options() const { return {file}; }
};

TEST_F(Trace, RecordsAllocationsAndFrees)
{
  void* ptr{};
  {
    trace_resource_adaptor mr{&upstream, options()};
    ptr = mr.allocate(1000, rmm::cuda_stream_legacy);
    mr.deallocate(ptr, 1000, rmm::cuda_stream_per_thread);
  }
  auto const trace = read();
  ASSERT_THAT(trace.events, SizeIs(2));
  auto const& allocation = trace.events[0];
  EXPECT_EQ(allocation.what, kind::allocate);
  EXPECT_EQ(allocation.address, reinterpret_cast<std::uintptr_t>(ptr));
  EXPECT_EQ(allocation.bytes, 1000);
  EXPECT_EQ(trace.places[allocation.place].stream, 1);
  EXPECT_EQ(trace.places[allocation.place].device, 0);
  EXPECT_EQ(allocation.stack, no_stack);
  EXPECT_THAT(trace.threads, ElementsAre(static_cast<std::uint64_t>(rmm::detail::thread_number())));
  auto const& free = trace.events[1];
  EXPECT_EQ(free.what, kind::free);
  EXPECT_EQ(free.address, allocation.address);
  EXPECT_EQ(free.bytes, 1000);
  EXPECT_EQ(trace.places[free.place].stream, 2);
  EXPECT_EQ(trace.lost, 0);
}

TEST_F(Trace, RecordsAndForwardsFailures)
{
  ::testing::StrictMock<mock_resource> mock;
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::out_of_memory{"no more"}));
  {
    trace_resource_adaptor mr{&mock, options()};
    EXPECT_THROW(mr.allocate(1000), rmm::out_of_memory);
  }
  auto const trace = read();
  ASSERT_THAT(trace.events, SizeIs(1));
  EXPECT_EQ(trace.events[0].what, kind::allocate_failure);
  EXPECT_EQ(trace.events[0].bytes, 1000);
  EXPECT_EQ(trace.events[0].address, 0);
  ASSERT_THAT(trace.reports, SizeIs(1));
  EXPECT_EQ(trace.reports.begin()->first, std::make_pair(trace.events[0].thread, trace.events[0].time_ns));
  EXPECT_THAT(trace.reports.begin()->second, HasSubstr("no more"));
}

TEST_F(Trace, RecordsFailuresWithOtherExceptionsThanStandardOnes)
{
  ::testing::StrictMock<mock_resource> mock;
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(7));
  {
    trace_resource_adaptor mr{&mock, options()};
    EXPECT_THROW(mr.allocate(1000), int);
  }
  auto const trace = read();
  ASSERT_THAT(trace.events, SizeIs(1));
  EXPECT_EQ(trace.events[0].what, kind::allocate_failure);
  EXPECT_EQ(trace.events[0].bytes, 1000);
  EXPECT_THAT(trace.reports, IsEmpty());
}

TEST_F(Trace, RecordsWhatIsAllocatedThroughAReference)
{
  {
    trace_resource_adaptor mr{rmm::device_async_resource_ref{upstream}, options()};
    static_assert(std::is_same_v<decltype(mr), trace_resource_adaptor<rmm::mr::device_memory_resource>>);
    EXPECT_EQ(mr.get_upstream(), nullptr);
    mr.deallocate(mr.allocate(1000), 1000);
  }
  EXPECT_THAT(read().events, SizeIs(2));
}

TEST_F(Trace, TruncatesLongReports)
{
  ::testing::StrictMock<mock_resource> mock;
  EXPECT_CALL(mock, do_allocate)
    .WillOnce(Throw(rmm::out_of_memory{std::string(10'000, 'x')}))
    .WillOnce(Return(address(0x1000)));
  {
    trace_resource_adaptor mr{&mock, options()};
    EXPECT_THROW(mr.allocate(1000), rmm::out_of_memory);
    static_cast<void>(mr.allocate(2000));
  }
  auto const trace = read();
  EXPECT_THAT(trace.events, SizeIs(2));
  ASSERT_THAT(trace.reports, SizeIs(1));  // the other one is not a failure
  EXPECT_THAT(trace.reports.begin()->second, SizeIs(4096));
}

TEST_F(Trace, RecordsAFreeBeforeUpstreamGetsTheMemoryBack)
{
  ::testing::StrictMock<mock_resource> mock;
  trace_resource_adaptor mr{&mock, options()};
  EXPECT_CALL(mock, do_allocate).WillOnce(Return(address(0x1000)));
  EXPECT_CALL(mock, do_deallocate).WillOnce([&](auto&&...) {
    mr.flush();
    EXPECT_THAT(read().events, SizeIs(2));
  });
  mr.deallocate(mr.allocate(100), 100);
}

TEST_F(Trace, TellsTheTime)
{
  auto const before = std::chrono::steady_clock::now();
  trace_resource_adaptor mr{&upstream, options()};
  static_cast<void>(mr.allocate(1));
  static_cast<void>(mr.allocate(1));
  auto const elapsed = std::chrono::steady_clock::now() - before;
  mr.flush();
  auto const trace = read();
  EXPECT_LE(trace.events[0].time_ns, trace.events[1].time_ns);
  EXPECT_LE(trace.events[1].time_ns, static_cast<std::uint64_t>(std::chrono::nanoseconds{elapsed}.count()));
  EXPECT_GE(trace.header.clock_ns,
            static_cast<std::uint64_t>(std::chrono::nanoseconds{before.time_since_epoch()}.count()));
}

TEST_F(Trace, DistinguishesStreamsWithTheSameHandle)
{
  trace_resource_adaptor mr{&upstream, options()};
  std::vector<std::uintptr_t> handles;
  for (int i = 0; i < 2; ++i) {
    rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
    handles.push_back(reinterpret_cast<std::uintptr_t>(stream.value()));
    mr.deallocate(mr.allocate(10, stream), 10, stream);
  }
  if (handles[0] != handles[1]) { GTEST_SKIP() << "the runtime gave each stream a handle of its own"; }
  mr.flush();
  auto const trace = read();
  ASSERT_THAT(trace.events, SizeIs(4));
  auto const id = [&](std::size_t i) { return trace.places[trace.events[i].place].stream_id; };
  EXPECT_NE(id(0), 0);
  EXPECT_EQ(id(1), id(0));
  EXPECT_NE(id(2), id(0));
  EXPECT_EQ(id(3), id(2));
}

TEST_F(Trace, MakesNoQueriesAboutAStreamThatOnlyFrees)
{
  trace_resource_adaptor mr{&upstream, options()};
  void* const ptr = mr.allocate(10);
  mr.deallocate(ptr, 10, rmm::cuda_stream_view{reinterpret_cast<cudaStream_t>(std::uintptr_t{0xdead0})});
  mr.flush();
  auto const trace = read();
  EXPECT_EQ(trace.places[trace.events[1].place].stream, 0xdead0);
  EXPECT_EQ(trace.places[trace.events[1].place].stream_id, 0);
}

TEST_F(Trace, RecordsTags)
{
  trace_resource_adaptor mr{&upstream, options()};
  {
    rmm::tag_scope const outer{"loader"};
    static_cast<void>(mr.allocate(1));
    rmm::tag_scope const inner{"parser"};
    static_cast<void>(mr.allocate(2));
  }
  static_cast<void>(mr.allocate(3));
  mr.flush();
  auto const trace = read();
  std::vector<std::string> tags;
  for (auto const& event : trace.events) { tags.push_back(trace.tags[trace.places[event.place].tag]); }
  EXPECT_THAT(tags, ElementsAre("loader", "parser", ""));
}

TEST_F(Trace, KeepsMorePlacesThanABlockHolds)
{
  trace_resource_adaptor mr{&upstream, options()};
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 700; ++i) {
      rmm::tag_scope const tag{"tag " + std::to_string(i)};
      static_cast<void>(mr.allocate(static_cast<std::size_t>(i)));
    }
  }
  mr.flush();
  auto const trace = read();
  ASSERT_THAT(trace.events, SizeIs(1400));
  for (auto const& event : trace.events) {
    EXPECT_EQ(trace.tags[trace.places[event.place].tag], "tag " + std::to_string(event.bytes));
  }
  EXPECT_THAT(trace.places, SizeIs(700));
}

TEST_F(Trace, RecordsTheStackOfEveryNthAllocation)
{
  auto how        = options();
  how.stack_every = 3;
  trace_resource_adaptor mr{&upstream, how};
  for (int i = 0; i < 7; ++i) { mr.deallocate(mr.allocate(1), 1); }
  mr.flush();
  auto const trace = read();
  std::vector<std::size_t> with_stack;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    if (trace.events[i].stack != no_stack) { with_stack.push_back(i); }
  }
  EXPECT_THAT(with_stack, ElementsAre(4, 10));  // the third and the sixth allocation have stacks
  ASSERT_FALSE(trace.stacks.empty());
  for (auto const address : trace.stacks[0]) { EXPECT_FALSE(trace.frame_names.at(address).empty()); }
}

std::size_t names_of_many_frames(char* text, std::size_t capacity) noexcept
{
  std::string names;
  std::size_t count{};
  for (; names.size() + 250 < capacity; ++count) {
    names += (count == 0 ? std::string{"step at train.py:12"} : std::string(200, 'f') + std::to_string(count)) + '\0';
  }
  std::memcpy(text, names.data(), names.size());
  return count;
}

TEST_F(Trace, HasFramesOfTheLanguageInsteadOfItsInterpreter)
{
  static rmm::detail::interpreter_frames const language{names_of_many_frames,
                                                        reinterpret_cast<void const*>(names_of_many_frames)};
  rmm::detail::interpreter().store(&language);
  auto how        = options();
  how.stack_every = 1;
  trace_resource_adaptor mr{&upstream, how};
  mr.deallocate(mr.allocate(1), 1);
  mr.flush();
  rmm::detail::interpreter().store(nullptr);
  auto const trace = read();
  ASSERT_THAT(trace.events, SizeIs(2));
  ASSERT_NE(trace.events[0].stack, no_stack);
  auto const& stack = trace.stacks[trace.events[0].stack];
  // The whole program is in one object, with the code that plays the interpreter.
  ASSERT_GE(stack.size(), 10U);
  EXPECT_EQ(trace.frame_names.at(stack[0]), "step at train.py:12");
  for (auto const frame : stack) {
    EXPECT_NE(frame >> 63U, 0U);
    EXPECT_LE(trace.frame_names.at(frame).size(), 200U);
  }
}

TEST_F(Trace, ReadsBackWhatManyThreadsDid)
{
  constexpr int threads{16};
  constexpr int rounds{20'000};
  {
    auto how         = options();
    how.buffer_bytes = 16U << 10U;  // makes many blocks
    trace_resource_adaptor mr{&upstream, how};
    run_on_threads(threads, [&](int number) {
      auto const bytes = static_cast<std::size_t>(number + 1);
      for (int i = 0; i < rounds; ++i) { mr.deallocate(mr.allocate(bytes), bytes); }
    });
    EXPECT_EQ(mr.get_lost_events(), 0);
  }
  auto const trace = read();
  EXPECT_EQ(trace.lost, 0);
  ASSERT_EQ(trace.events.size(), std::size_t{2} * threads * rounds);
  std::map<std::uint64_t, int> allocations;
  std::map<std::uint64_t, std::uint64_t> live;  // an address is reused only after it was freed
  for (auto const& event : trace.events) {
    if (event.what == kind::allocate) {
      ++allocations[event.bytes];
      ASSERT_TRUE(live.emplace(event.address, event.bytes).second);
    } else {
      ASSERT_EQ(live.at(event.address), event.bytes);
      live.erase(event.address);
    }
  }
  EXPECT_TRUE(live.empty());
  for (std::uint64_t bytes = 1; bytes <= threads; ++bytes) { EXPECT_EQ(allocations[bytes], rounds); }
}

TEST_F(Trace, OrdersThreadsByTimeFromTheSecondThreadsFirstEvent)
{
  rmm::detail::trace::trace_context context{options(), file, 0};
  std::array<rmm::detail::trace::thread_trace, 3> threads;
  for (auto& each : threads) { each.adopt(); }
  auto const trace = [&](std::size_t number) {
    threads.at(number).add(context, kind::free, &context, 1, cudaStreamLegacy);
    return context.has_threads.load();
  };
  EXPECT_FALSE(trace(0));
  EXPECT_FALSE(trace(0));
  EXPECT_TRUE(trace(1));
  EXPECT_TRUE(trace(0));
  EXPECT_TRUE(trace(2));
  for (auto& each : threads) { each.write(); }
}

TEST_F(Trace, LosesNothingWhenItIsFlushedWhileThreadsTrace)
{
  constexpr int rounds{5000};
  std::atomic<int> working{4};
  trace_resource_adaptor mr{&upstream, options()};
  std::thread flusher{[&] {
    while (working.load() != 0) { mr.flush(); }
  }};
  run_on_threads(4, [&](int) {
    for (int i = 0; i < rounds; ++i) { mr.deallocate(mr.allocate(1), 1); }
    --working;
  });
  flusher.join();
  mr.flush();
  EXPECT_THAT(read().events, SizeIs(std::size_t{8} * rounds));
}

TEST_F(Trace, WritesWhatAThreadTracedWhenItEnds)
{
  trace_resource_adaptor mr{&upstream, options()};
  run_on_a_thread_that_ends([&] { static_cast<void>(mr.allocate(5)); });
  EXPECT_THAT(read().events, SizeIs(1));
}

TEST_F(Trace, DistinguishesThreadsThatStartedAfterOthersEnded)
{
  trace_resource_adaptor mr{&upstream, options()};
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < 3; ++i) {
    run_on_a_thread_that_ends([&] {
      numbers.push_back(static_cast<std::uint64_t>(rmm::detail::thread_number()));
      static_cast<void>(mr.allocate(5));
    });
  }
  auto const trace = read();
  ASSERT_THAT(trace.events, SizeIs(3));
  for (std::size_t i = 0; i < 3; ++i) { EXPECT_EQ(trace.threads[trace.events[i].thread], numbers[i]); }
}

/// Runs threads that trace at the same time and end.
template <class Adaptor>
void trace_on_threads_that_end(Adaptor& mr, int threads)
{
  std::atomic<int> waiting{threads};
  run_on_threads(threads, [&](int) {
    mr.deallocate(mr.allocate(5), 5);
    --waiting;
    while (waiting.load() != 0) { std::this_thread::yield(); }
  });
}

TEST_F(Trace, FreesTheBuffersOfThreadsThatHaveEnded)
{
  if (allocated_host_bytes() == 0) { GTEST_SKIP() << "the C library does not tell how much memory is allocated"; }
  trace_resource_adaptor mr{&upstream, options()};
  trace_on_threads_that_end(mr, 64);  // the C library keeps an arena for each of many threads
  auto const before = allocated_host_bytes();
  trace_on_threads_that_end(mr, 64);
  EXPECT_LE(allocated_host_bytes(), before + 64 * 2048);
}

TEST_F(Trace, LosesNothingOfThreadsThatEndDuringAFlush)
{
  trace_resource_adaptor mr{&upstream, options()};
  std::atomic<bool> is_flushing{true};
  std::thread flusher{[&] {
    while (is_flushing.load()) { mr.flush(); }
  }};
  for (int round = 0; round < 10; ++round) { trace_on_threads_that_end(mr, 64); }
  is_flushing = false;
  flusher.join();
  EXPECT_THAT(read().events, SizeIs(10 * 64 * 2));
}

TEST_F(Trace, NeedsNoMoreMemoryWithMoreThreads)
{
  if (allocated_host_bytes() == 0) { GTEST_SKIP() << "the C library does not tell how much memory is allocated"; }
  constexpr int at_a_time{50};
  constexpr int rounds{600};
  trace_resource_adaptor mr{&upstream, options()};
  trace_on_threads_that_end(mr, at_a_time);
  auto const before = allocated_host_bytes();
  for (int i = 1; i < rounds; ++i) { trace_on_threads_that_end(mr, at_a_time); }
  EXPECT_LE(allocated_host_bytes(), before + at_a_time * 1024);
  EXPECT_THAT(read().events, SizeIs(std::size_t{2} * at_a_time * rounds));
}

TEST_F(Trace, FlushesWhatOtherThreadsTraced)
{
  trace_resource_adaptor mr{&upstream, options()};
  worker other;
  other.run([&] { static_cast<void>(mr.allocate(5)); });
  EXPECT_THAT(read().events, IsEmpty());
  mr.flush();
  EXPECT_THAT(read().events, SizeIs(1));
}

TEST_F(Trace, WritesEachEventImmediatelyIfConfigured)
{
  auto how           = options();
  how.flush_interval = std::chrono::milliseconds{0};
  trace_resource_adaptor mr{&upstream, how};
  void* const ptr = mr.allocate(5);
  EXPECT_THAT(read().events, SizeIs(1));
  mr.deallocate(ptr, 5);
  EXPECT_THAT(read().events, SizeIs(2));
}

struct at_the_end {
  trace_resource_adaptor<recycling_upstream>* mr;
  ~at_the_end() { static_cast<void>(mr->allocate(77)); }
};

TEST_F(Trace, RecordsWhatAThreadDoesWhileItEnds)
{
  trace_resource_adaptor mr{&upstream, options()};
  run_on_a_thread_that_ends([&] {
    thread_local at_the_end const last{&mr};
    static_cast<void>(last);
    static_cast<void>(mr.allocate(5));
  });
  auto const trace = read();
  ASSERT_THAT(trace.events, SizeIs(2));
  EXPECT_EQ(trace.events[1].bytes, 77);
  EXPECT_EQ(trace.events[1].thread, trace.events[0].thread);
}

TEST_F(Trace, ContinuesInAnotherFileWhenOneIsFull)
{
  constexpr std::size_t most{40'000};
  constexpr int rounds{20'000};
  auto how           = options();
  how.buffer_bytes   = 16U << 10U;
  how.max_file_bytes = most;
  {
    trace_resource_adaptor mr{&upstream, how};
    for (int i = 0; i < rounds; ++i) { mr.deallocate(mr.allocate(1), 1); }
  }
  EXPECT_THAT(read().events, SizeIs(std::size_t{2} * rounds));
  std::size_t files = 0;
  for (auto const& each : std::filesystem::directory_iterator{std::filesystem::path{file}.parent_path()}) {
    EXPECT_LE(each.file_size(), most);
    ++files;
  }
  EXPECT_GT(files, 3);

  EXPECT_EQ(read().missing_files, 0);
  std::filesystem::remove(file + ".1");
  std::filesystem::remove(file + ".3");
  auto const rest = read();
  EXPECT_EQ(rest.missing_files, 2);
  EXPECT_LT(rest.events.size(), std::size_t{2} * rounds);
  EXPECT_GT(rest.events.size(), 0);
}

TEST_F(Trace, KeepsTheNewestFiles)
{
  constexpr int rounds{20'000};
  auto how           = options();
  how.buffer_bytes   = 16U << 10U;
  how.max_file_bytes = 40'000;
  how.max_files      = 2;
  {
    trace_resource_adaptor mr{&upstream, how};
    for (int i = 0; i < rounds; ++i) { mr.deallocate(mr.allocate(static_cast<std::size_t>(i)), 1); }
  }
  std::size_t files = 0;
  for ([[maybe_unused]] auto const& each :
       std::filesystem::directory_iterator{std::filesystem::path{file}.parent_path()}) {
    ++files;
  }
  EXPECT_EQ(files, 2);
  auto const trace = read();  // although the first file is gone
  EXPECT_LT(trace.events.size(), std::size_t{2} * rounds);
  EXPECT_EQ(trace.events[trace.events.size() - 2].bytes, rounds - 1);
  EXPECT_EQ(trace.missing_files, 0);  // files before the first one are not missing
}

TEST_F(Trace, IsReadableByItsOwnerOnly)
{
  std::ofstream{file} << "an old file, which anyone may read";
  ::chmod(file.c_str(), 0666);
  trace_resource_adaptor mr{&upstream, options()};
  struct stat is {};
  ASSERT_EQ(::stat(file.c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 07777U, 0600U);
  EXPECT_THAT(read().events, IsEmpty());
}

TEST_F(Trace, MakesFoldersReadableByTheirOwnerOnly)
{
  trace_resource_adaptor mr{&upstream, trace_options{folder / "a/b/trace"}};
  EXPECT_TRUE(std::filesystem::exists(folder / "a/b/trace"));
  struct stat is {};
  ASSERT_EQ(::stat((folder / "a").c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 0777U, 0700U);
}

struct RefusedFile : Trace {
  void expect_refusal(std::string const& why)
  {
    EXPECT_THAT([&] { trace_resource_adaptor<recycling_upstream> const mr(&upstream, options()); },
                ThrowsMessage<std::runtime_error>(HasSubstr("cannot write the trace '" + file + "': " + why)));
  }
};

TEST_F(RefusedFile, IsASymbolicLink)
{
  std::ofstream{folder / "precious"} << "data";
  std::filesystem::create_symlink(folder / "precious", file);
  expect_refusal("it is a symbolic link");
  EXPECT_EQ(contents_of(folder / "precious"), "data");
}

TEST_F(RefusedFile, HasAnotherName)
{
  std::ofstream{folder / "precious"} << "data";
  std::filesystem::create_hard_link(folder / "precious", file);
  expect_refusal("it has other hard links");
  EXPECT_EQ(contents_of(folder / "precious"), "data");
}

TEST_F(RefusedFile, IsNotARegularFile)
{
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THROW((trace_resource_adaptor<recycling_upstream>{&upstream, options()}), std::runtime_error);
}

TEST_F(RefusedFile, IsBeingWritten)
{
  trace_resource_adaptor mr{&upstream, options()};
  static_cast<void>(mr.allocate(5));
  expect_refusal("another trace is written to it");
  mr.flush();
  EXPECT_THAT(read().events, SizeIs(1));
}

TEST_F(RefusedFile, IsInAFolderThatCannotBe)
{
  std::ofstream{folder / "file"} << "data";
  EXPECT_THROW((trace_resource_adaptor<recycling_upstream>{&upstream, trace_options{folder / "file/trace"}}),
               std::runtime_error);
}

struct TraceEnvironment : Trace {
  environment_variable name{"RMM_TRACE_FILE"};
  environment_variable size{"RMM_TRACE_MAX_FILE_SIZE"};
  environment_variable files{"RMM_TRACE_MAX_FILES"};
  environment_variable flush{"RMM_TRACE_FLUSH_MS"};
  environment_variable stacks{"RMM_TRACE_STACKS"};
  void SetUp() override
  {
    for (auto* const each : {&name, &size, &files, &flush, &stacks}) { each->unset(); }
  }
};

TEST_F(TraceEnvironment, SaysHowToTrace)
{
  name.set("some.rmm");
  size.set("512MB");
  files.set("4");
  flush.set("20");
  stacks.set("1000");
  auto const how = trace_options::from_environment();
  EXPECT_EQ(how.file, "some.rmm");
  EXPECT_EQ(how.max_file_bytes, 512'000'000);
  EXPECT_EQ(how.max_files, 4);
  EXPECT_EQ(how.flush_interval, std::chrono::milliseconds{20});
  EXPECT_EQ(how.stack_every, 1000);
}

TEST_F(TraceEnvironment, NeedNotSayAnything)
{
  auto const how = trace_options::from_environment();
  trace_options const usual;
  EXPECT_EQ(how.file, "");
  EXPECT_EQ(how.max_file_bytes, usual.max_file_bytes);
  EXPECT_EQ(how.max_files, usual.max_files);
  EXPECT_EQ(how.flush_interval, usual.flush_interval);
  EXPECT_EQ(how.stack_every, usual.stack_every);
}

TEST_F(TraceEnvironment, IsToMakeSense)
{
  size.set("80%");
  EXPECT_THAT([] { static_cast<void>(trace_options::from_environment()); },
              ThrowsMessage<std::invalid_argument>("RMM_TRACE_MAX_FILE_SIZE: must be a number of bytes, but is '80%'"));
  size.set("many");
  EXPECT_THAT(
    [] { static_cast<void>(trace_options::from_environment()); },
    ThrowsMessage<std::invalid_argument>(HasSubstr("RMM_TRACE_MAX_FILE_SIZE: Could not parse the size 'many'")));
  size.unset();
  files.set("-1");
  EXPECT_THAT([] { static_cast<void>(trace_options::from_environment()); },
              ThrowsMessage<std::invalid_argument>("RMM_TRACE_MAX_FILES must be a number, but is '-1'"));
  files.set("99999999999999999999");
  EXPECT_THROW(static_cast<void>(trace_options::from_environment()), std::invalid_argument);
}

TEST_F(TraceEnvironment, IsQuotedInMessagesAsPrintableTextOnly)
{
  files.set(("1\x1B\n" + std::string(10'000, 'x')).c_str());
  EXPECT_THAT(
    [] { static_cast<void>(trace_options::from_environment()); },
    ThrowsMessage<std::invalid_argument>(::testing::AllOf(
      HasSubstr("'1??xxx"), ::testing::ResultOf([](auto const& what) { return what.size(); }, ::testing::Lt(200)))));
}

TEST_F(TraceEnvironment, NamesTheFileWhereTheProgramDoesNot)
{
  name.set(file.c_str());
  trace_resource_adaptor const from_all{&upstream};
  EXPECT_EQ(from_all.get_file_name(), file);
}

TEST_F(TraceEnvironment, HasToNameTheFileWhereTheProgramDoesNot)
{
  EXPECT_THAT([&] { trace_resource_adaptor<recycling_upstream> const mr{&upstream}; },
              ThrowsMessage<rmm::logic_error>(HasSubstr("RMM_TRACE_FILE")));
}

TEST_F(Trace, HasProcessAndDeviceInItsNameIfConfigured)
{
  trace_resource_adaptor const mr{&upstream, trace_options{folder / "a%%b.%d.%p.%x%"}};
  EXPECT_EQ(mr.get_file_name(), folder / ("a%b.0." + std::to_string(::getpid()) + ".%x%"));
  EXPECT_TRUE(std::filesystem::exists(mr.get_file_name()));
}

int failures_logged{0};

TEST_F(Trace, CountsEventsThatCannotBeWritten)
{
  failures_logged             = 0;
  auto const previous_hook    = rmm::detail::log_hook.exchange([](rmm::detail::log_level level, char const*) noexcept {
    failures_logged += level == rmm::detail::log_level::error;
  });
  auto const previous_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  {
    auto how         = options();
    how.buffer_bytes = 16U << 10U;
    trace_resource_adaptor mr{&upstream, how};
    auto limited     = before;
    limited.rlim_cur = 100'000;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
    for (int i = 0; i < 20'000; ++i) { mr.deallocate(mr.allocate(1), 1); }
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_GT(mr.get_lost_events(), 0);
    EXPECT_LT(mr.get_lost_events(), 40'000);
    for (int i = 0; i < 20'000; ++i) { mr.deallocate(mr.allocate(1), 1); }  // the disk has room again
    mr.flush();
    auto const trace = read();
    EXPECT_EQ(trace.lost, mr.get_lost_events());
    EXPECT_EQ(trace.events.size() + trace.lost, 80'000);
    EXPECT_FALSE(trace.cut_off_at.has_value());
  }
  std::signal(SIGXFSZ, previous_handler);
  rmm::detail::log_hook.store(previous_hook);
  EXPECT_EQ(failures_logged, 1);
}

/// Tests of a program that ends. Another process runs the test again as that program, and must find the file.
struct EndOfTheProgram : Trace {
  environment_variable name{"RMM_TRACE_TEST_FILE"};
  void SetUp() override
  {
    if (std::getenv("RMM_TRACE_TEST_FILE") == nullptr) { name.set(file.c_str()); }
  }
  [[nodiscard]] static trace_options options() { return {std::getenv("RMM_TRACE_TEST_FILE")}; }
};
constexpr int rounds_before_crash{20'000};

TEST_F(EndOfTheProgram, ByACrashKeepsTheTraceUpToTheLastBlock)
{
  auto const crash = [&] {
    auto how         = options();
    how.buffer_bytes = 16U << 10U;
    trace_resource_adaptor mr{&upstream, how};
    for (int i = 0; i < rounds_before_crash; ++i) { mr.deallocate(mr.allocate(static_cast<std::size_t>(i)), 1); }
    ::kill(::getpid(), SIGKILL);
  };
  EXPECT_EXIT(crash(), ::testing::KilledBySignal(SIGKILL), "");
  auto const trace = read();
  EXPECT_FALSE(trace.cut_off_at.has_value());
  EXPECT_GT(trace.events.size(), 2 * rounds_before_crash - 8000);  // fewer events than a buffer holds are missing
  for (std::size_t i = 0; i < trace.events.size(); i += 2) { ASSERT_EQ(trace.events[i].bytes, i / 2); }
}

TEST_F(EndOfTheProgram, WithoutDestroyingTheAdaptorLosesNothing)
{
  auto const end = [&] {
    auto& mr = *new trace_resource_adaptor{&upstream, options()};
    for (int i = 0; i < 10; ++i) { static_cast<void>(mr.allocate(1)); }
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
  EXPECT_THAT(read().events, SizeIs(10));
}

TEST_F(Trace, HasNoEventsOfAForkedChild)
{
  trace_resource_adaptor mr{&upstream, options()};
  static_cast<void>(mr.allocate(1));
  auto const child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 100'000; ++i) { mr.deallocate(mr.allocate(2), 2); }
    mr.flush();
    ::_exit(0);
  }
  int status{};
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  static_cast<void>(mr.allocate(3));
  mr.flush();
  std::vector<std::uint64_t> sizes;
  for (auto const& event : read().events) { sizes.push_back(event.bytes); }
  EXPECT_THAT(sizes, ElementsAre(1, 3));
}

TEST_F(Trace, AForkedChildEndsAlthoughAThreadOfItsParentTraces)
{
  if (RMM_TEST_UNDER_SANITIZER) {
    GTEST_SKIP() << "a forked child waits for locks of the sanitizer that threads of its parent held";
  }
  struct slow_upstream final : rmm::mr::device_memory_resource {
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override
    {
      return reinterpret_cast<void*>(bytes << 8U);
    }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
  } slow;
  auto& mr = *new trace_resource_adaptor<rmm::mr::device_memory_resource>{&slow, options()};
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!ends) { mr.deallocate(mr.allocate(1), 1); }
    });
  }
  for (int i = 0; i < 20; ++i) {
    auto const child = ::fork();
    if (child == 0) {
      ::alarm(100);  // ends the child if it hangs
      mr.flush();
      ::_exit(0);
    }
    int status{};
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ends = true;
  for (auto& each : threads) { each.join(); }
  delete &mr;
}

TEST_F(Trace, AForkedChildDoesNotKeepTheFileLocked)
{
  auto mr          = std::make_unique<trace_resource_adaptor<recycling_upstream>>(&upstream, options());
  auto const child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  mr.reset();
  EXPECT_NO_THROW((trace_resource_adaptor<recycling_upstream>{&upstream, options()}));
  ::kill(child, SIGKILL);
  int status{};
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

TEST_F(Trace, CanBeMoved)
{
  trace_resource_adaptor first{&upstream, options()};
  static_cast<void>(first.allocate(1));
  auto second = std::move(first);
  static_cast<void>(second.allocate(2));
  second.flush();
  EXPECT_THAT(read().events, SizeIs(2));
}

TEST_F(Trace, NeedsAnUpstream)
{
  EXPECT_THROW((trace_resource_adaptor<recycling_upstream>{nullptr, options()}), rmm::logic_error);
}

}  // namespace
