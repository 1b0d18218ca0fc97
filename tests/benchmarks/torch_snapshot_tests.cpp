// SPDX-License-Identifier: Apache-2.0
#include <tools/recorded/recorded_file.hpp>
#include <tools/recorded/trace_reader.hpp>

#include <rmm/error.hpp>

#include <tests/support/temporary_folder.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

/// Snapshots of PyTorch that no program of ours has written: what a test wants to be in them.

namespace {

using rmm::recorded::read_torch_snapshot;
using rmm::recorded::recorded_file;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

std::string pickled(std::string const& text) { return std::string{"\x8C"} + static_cast<char>(text.size()) + text; }

std::string pickled(std::uint64_t number)
{
  std::string result{"\x8A\x09"};  // an integer of nine bytes, so that the highest bit is no sign
  for (unsigned byte = 0; byte < 9; ++byte) {
    result += byte < 8 ? static_cast<char>(number >> (8 * byte) & 0xFFU) : '\0';
  }
  return result;
}

std::string pickled_list(std::vector<std::string> const& items)
{
  std::string result{"]("};
  for (auto const& each : items) { result += each; }
  return result + "e";
}

struct member {
  std::string name;
  std::string value;
};

std::string pickled_dict(std::vector<member> const& members)
{
  std::string result{"}("};
  for (auto const& each : members) { result += pickled(each.name) + each.value; }
  return result + "u";
}

/// An event of the history.
std::string event(std::string const& action, std::uint64_t address, std::uint64_t bytes, std::uint64_t time_us)
{
  return pickled_dict(
    {{"action", pickled(action)}, {"addr", pickled(address)}, {"size", pickled(bytes)}, {"time_us", pickled(time_us)}});
}

/// A snapshot with a history of each device.
std::string snapshot(std::vector<std::vector<std::string>> const& histories)
{
  std::vector<std::string> lists;
  for (auto const& each : histories) { lists.push_back(pickled_list(each)); }
  return "\x80\x04" + pickled_dict({{"segments", pickled_list({})}, {"device_traces", pickled_list(lists)}}) + ".";
}

struct TorchSnapshotFile : ::testing::Test {
  rmm::test::temporary_folder folder;
  std::string const file{folder / "snapshot"};

  recorded_file read(std::vector<std::string> const& history)
  {
    std::ofstream{file, std::ios::binary} << snapshot({history});
    return rmm::recorded::read_recorded_file(file);
  }
};

using shown_region = std::tuple<int, std::uint64_t, std::uint64_t, std::size_t, std::size_t>;

/// Device, address, bytes, and the first and the last event of each region.
std::vector<shown_region> regions_of(recorded_file const& file)
{
  std::vector<shown_region> result;
  for (auto const& each : file.regions) {
    result.emplace_back(each.device, each.address, each.bytes, each.begin, each.end);
  }
  return result;
}

TEST(TorchSnapshotRegions, EndInTheRangeThatIsUnmapped)
{
  auto const file = read_torch_snapshot(snapshot({{event("segment_alloc", 0x1000, 0x1000, 2),
                                                   event("segment_alloc", 0x3000, 0x1000, 2),
                                                   event("segment_alloc", 0x5000, 0x1000, 2),
                                                   event("alloc", 0x1000, 8, 3),
                                                   event("segment_unmap", 0x3400, 0x800, 4),
                                                   event("free_requested", 0x1000, 8, 5)},
                                                  {event("segment_alloc", 0x3000, 0x1000, 1)}}),
                                        "the file");
  ASSERT_THAT(file.trace.events, SizeIs(2));
  EXPECT_THAT(regions_of(file),
              UnorderedElementsAre(shown_region{0, 0x1000, 0x1000, 0, 2},
                                   shown_region{0, 0x3000, 0x1000, 0, 1},
                                   shown_region{0, 0x3000, 0x400, 1, 2},
                                   shown_region{0, 0x3C00, 0x400, 1, 2},
                                   shown_region{0, 0x5000, 0x1000, 0, 2},
                                   shown_region{1, 0x3000, 0x1000, 0, 2}));
}

TEST_F(TorchSnapshotFile, MayHaveSegmentsOfAsManyBytesAsANumberHolds)
{
  auto const most = std::uint64_t{1} << 63U;
  EXPECT_THAT(read({event("segment_alloc", 0x1000, most - 1, 1), event("alloc", 0x1000, 8, 1)}).regions, SizeIs(1));
  EXPECT_THAT(
    [&] {
      read({event("segment_alloc", 0x1000, most - 1, 1), event("segment_alloc", most, 1, 1)});
    },
    ThrowsMessage<rmm::logic_error>(file + ": the segments until event 0 come to more than 2^63-1 bytes"));
  EXPECT_THROW(read({event("segment_alloc", 0x1000, most, 1)}), rmm::logic_error);
}

TEST(TorchSnapshotNumbers, AreNotNegative)
{
  auto const minus_one = std::vector<std::string>{"J\xFF\xFF\xFF\xFF", "\x8A\x01\xFF"};
  for (auto const& number : minus_one) {
    for (std::string const name : {"addr", "size", "time_us"}) {
      std::vector<member> members{{"action", pickled("alloc")}, {"addr", pickled(4096)}, {"size", pickled(8)}};
      members.push_back({name, number});  // the last value of a key counts
      EXPECT_THAT([&] { static_cast<void>(read_torch_snapshot(snapshot({{pickled_dict(members)}}), "the file")); },
                  ThrowsMessage<rmm::recorded::bad_trace>("the file: at byte 0: " + name + " is negative"));
    }
  }
}

}  // namespace
