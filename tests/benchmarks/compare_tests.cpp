// SPDX-License-Identifier: Apache-2.0
//
// The rows and traces of the comparison, on allocators that the tests know.

#include <benchmarks/compare/measure.hpp>
#include <benchmarks/compare/plugin.hpp>
#include <benchmarks/compare/report.hpp>
#include <benchmarks/compare/row.hpp>
#include <benchmarks/compare/synchronizations.hpp>
#include <benchmarks/compare/trace.hpp>
#include <tests/support/trace_file.hpp>

#include <rmm/detail/error.hpp>

#include <cuda_runtime_api.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace compare;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// An allocator that counts, checks what it is given back, and fails as one with the given maximum would.
struct counting_allocator {
  std::mutex mutex;
  std::map<void*, std::size_t> live;
  std::size_t live_bytes{0};
  std::size_t maximum{0};
  std::size_t allocations{0};
  std::size_t next{256};
};

struct totals {
  std::size_t allocations;
  std::size_t leaked;
  std::size_t errors;
};
totals seen{};

plugin_functions counting_functions()
{
  auto functions        = plugin_functions{};
  functions.allocator   = [](int index) -> char const* { return index == 0 ? "counting" : nullptr; };
  functions.description = [](int) -> char const* { return "counts"; };
  functions.features    = [](int) -> unsigned {
    return plugin_feature_times | plugin_feature_memory | plugin_feature_bounded | plugin_feature_containers;
  };
  functions.make = [](int, std::size_t, std::size_t maximum) -> void* {
    auto* const self = new counting_allocator;
    self->maximum    = maximum;
    return self;
  };
  functions.end = [](void* allocator) {
    std::unique_ptr<counting_allocator> const self{static_cast<counting_allocator*>(allocator)};
    seen.allocations += self->allocations;
    seen.leaked += self->live.size();
  };
  functions.error       = []() -> char const* { return "an error"; };
  functions.make_stream = [](void*) {
    cudaStream_t stream{};
    RMM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  };
  functions.end_stream = [](void*, cudaStream_t stream) { RMM_ASSERT_CUDA_SUCCESS(cudaStreamDestroy(stream)); };
  functions.allocate   = [](void* allocator, std::size_t bytes, cudaStream_t) -> void* {
    auto& self = *static_cast<counting_allocator*>(allocator);
    std::lock_guard<std::mutex> const lock{self.mutex};
    if (self.maximum != 0 && self.live_bytes + bytes > self.maximum) { return nullptr; }
    auto* const ptr = reinterpret_cast<void*>(self.next += 256);
    self.live.emplace(ptr, bytes);
    self.live_bytes += bytes;
    ++self.allocations;
    return ptr;
  };
  functions.deallocate = [](void* allocator, void* ptr, std::size_t bytes, cudaStream_t) {
    auto& self = *static_cast<counting_allocator*>(allocator);
    std::lock_guard<std::mutex> const lock{self.mutex};
    auto const found = self.live.find(ptr);
    if (found == self.live.end() || found->second != bytes) {
      ++seen.errors;
      return;
    }
    self.live_bytes -= bytes;
    self.live.erase(found);
  };
  functions.reserved = [](void* allocator) { return 2 * static_cast<counting_allocator*>(allocator)->live_bytes; };
  functions.install  = [](void*) {};
  functions.uvectors = [](std::size_t, std::size_t, cudaStream_t) { return 1; };
  return functions;
}

candidate counting_candidate() { return {std::make_shared<plugin_functions const>(counting_functions()), 0}; }

candidate built_in(std::string const& name)
{
  for (auto const& c : built_in_candidates()) {
    if (c.name() == name) { return c; }
  }
  throw std::runtime_error{"no such candidate"};
}

row find_row(std::string const& name)
{
  for (auto const& r : make_rows(1, {1, 2})) {
    if (r.name == name) { return r; }
  }
  throw std::runtime_error{"no row " + name};
}

settings const quick{0.001, 4 * gib, 1};

/// The rows that run on memory which does not exist: all that let no device touch it.
std::vector<row> host_rows()
{
  auto rows = make_rows(1, {1, 2});
  rows.erase(std::remove_if(
               rows.begin(), rows.end(), [](row const& r) { return r.needs_kernels || r.name == "reuse-under-load"; }),
             rows.end());
  return rows;
}

class EveryRow : public ::testing::TestWithParam<row> {};

TEST_P(EveryRow, GivesBackWhatItTakes)
{
  auto const& r     = GetParam();
  seen              = {};
  auto const result = r.run(counting_candidate(), quick);
  EXPECT_EQ(seen.leaked, 0);
  EXPECT_EQ(seen.errors, 0);
  EXPECT_FALSE(result.empty());
  if (r.name.rfind("uvector", 0) != 0) { EXPECT_GT(seen.allocations, 0); }
  if (counts_synchronizations()) { EXPECT_EQ(find_figure(result, "syncs").value_or(0), 0); }
}

std::string name_of(::testing::TestParamInfo<row> const& info)
{
  auto name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Compare, EveryRow, ::testing::ValuesIn(host_rows()), name_of);

TEST(Rows, GiveBackWhatTheyTookWhenMemoryRunsOut)
{
  settings const small{0.001, mib, 1};
  for (auto const* name : {"steady-mid-1k", "threads-2", "handoff"}) {
    seen = {};
    EXPECT_THROW(find_row(name).run(counting_candidate(), small), std::bad_alloc) << name;
    EXPECT_EQ(seen.leaked, 0) << name;
    EXPECT_EQ(seen.errors, 0) << name;
  }
}

TEST(Rows, TellNearlyAllOfThePoolForPerfectPacking)
{
  auto const result = find_row("frag-large").run(built_in("perfect packing"), {0.001, 16 * gib, 1});
  EXPECT_NEAR(find_figure(result, "mean_share").value(), 0.984, 0.01);
}

TEST(Rows, NameUvectorsAfterTheNumberOfDevices)
{
  auto const rows = make_rows(2, {1});
  EXPECT_TRUE(
    std::any_of(rows.begin(), rows.end(), [](row const& r) { return r.name == "uvector-16-several-devices"; }));
}

TEST(Percentile, IsTheNearestRank)
{
  std::vector<double> const values{5, 1, 4, 2, 3};
  EXPECT_EQ(percentile(values, 0.5), 3);
  EXPECT_EQ(percentile(values, 0.2), 1);
  EXPECT_EQ(percentile(values, 0.21), 2);
  EXPECT_EQ(percentile(values, 1), 5);
}

TEST(Synchronizations, AreCounted)
{
  if (!counts_synchronizations()) { GTEST_SKIP() << "static CUDA runtime"; }
  auto const before = synchronizations();
  RMM_CUDA_TRY(cudaDeviceSynchronize());
  RMM_CUDA_TRY(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(synchronizations(), before + 2);
}

TEST(Plugin, IsRefusedIfItIsNone) { EXPECT_THROW(load_plugin("no such file"), std::runtime_error); }

TEST(Allocator, ThatCannotBeMadeThrowsWhatThePluginSays)
{
  auto functions = counting_functions();
  functions.make = [](int, std::size_t, std::size_t) -> void* { return nullptr; };
  EXPECT_THAT(([&] { allocator const memory{functions, 0, 0, 0}; }), ThrowsMessage<std::runtime_error>("an error"));
}

trace parsed(std::string const& rows)
{
  std::istringstream in{"op,block,bytes,stream\n" + rows};
  return parse_trace(in);
}

TEST(Trace, TellsItsPeakBlocksAndStreams)
{
  auto const t = parsed("a,0,100,0\na,1,50,2\nf,0,100,0\na,2,20,0\n");
  EXPECT_EQ(t.events.size(), 4);
  EXPECT_EQ(t.blocks, 3);
  EXPECT_EQ(t.streams, 3);
  EXPECT_EQ(t.peak_bytes, 150);
}

TEST(Trace, IsRefusedWithTheNumberOfTheLine)
{
  EXPECT_THAT([] { parsed("a,0,100,0\nx,1,50,2\n"); }, ThrowsMessage<std::runtime_error>(HasSubstr("line 3")));
  EXPECT_THROW(parsed("f,0,100,0\n"), std::runtime_error);
  EXPECT_THROW(parsed("a,0,100,0\nf,0,99,0\n"), std::runtime_error);
  EXPECT_THROW(parsed("a,0,100,0\nf,0,100,0\nf,0,100,0\n"), std::runtime_error);
  EXPECT_THROW(parsed("a,0,100,0\na,0,100,0\n"), std::runtime_error);
  EXPECT_THROW(parsed("a,0,100\n"), std::runtime_error);
  EXPECT_THROW(parsed("a,7,100,0\n"), std::runtime_error);
  EXPECT_THROW(parsed("a,0,0,0\n"), std::runtime_error);
  EXPECT_THROW(read_trace("no such file.csv"), std::runtime_error);
  EXPECT_THROW(read_trace("no such file.csv.gz"), std::runtime_error);
}

std::size_t replayed(trace const& t, std::size_t maximum)
{
  auto const c      = counting_candidate();
  auto const memory = c.make(0, maximum);
  std::vector<stream> streams;
  for (std::size_t i = 0; i < t.streams; ++i) { streams.emplace_back(memory); }
  return replay(t, memory, streams);
}

TEST(Trace, IsReplayedToTheFirstEventThatFails)
{
  auto const t = parsed("a,0,100,0\na,1,50,1\nf,0,100,0\nf,1,50,1\n");
  seen         = {};
  EXPECT_EQ(replayed(t, 150), 4);
  EXPECT_EQ(replayed(t, 149), 1);
  EXPECT_EQ(seen.leaked, 0);
  EXPECT_EQ(seen.errors, 0);
}

TEST(Trace, FreesWhatIsLeftOfIt)
{
  seen = {};
  EXPECT_EQ(replayed(parsed("a,0,100,0\n"), 0), 1);
  EXPECT_EQ(seen.leaked, 0);
}

TEST(SmallestPool, IsThePeakForAnAllocatorThatPacksPerfectly)
{
  auto const t = parsed("a,0,1000000,0\na,1,500000,1\nf,0,1000000,0\nf,1,500000,1\n");
  EXPECT_EQ(smallest_pool(t, counting_candidate()), (t.peak_bytes + 255) / 256 * 256);
}

TEST(SmallestPool, IsFoundForOneThatNeedsMore)
{
  auto functions = counting_functions();
  functions.make = [](int, std::size_t, std::size_t maximum) -> void* {
    auto* const self = new counting_allocator;
    self->maximum    = maximum * 2 / 3;  // wastes a third
    return self;
  };
  auto const t        = parsed("a,0,1000000,0\na,1,500000,1\nf,0,1000000,0\nf,1,500000,1\n");
  auto const smallest = smallest_pool(t, {std::make_shared<plugin_functions const>(functions), 0});
  EXPECT_NEAR(static_cast<double>(smallest) / static_cast<double>(t.peak_bytes), 1.5, 0.001);
}

TEST(RecordedTraces, AreWhatTheirPageSays)
{
  auto const training = read_trace(rmm::test::trace_file("gpt2-train-varlen.csv.gz"));
  EXPECT_EQ(training.events.size(), 171'297);
  EXPECT_EQ(training.peak_bytes, 23'216'124'760);
  EXPECT_EQ(training.streams, 1);
  auto const sort = read_trace(rmm::test::trace_file("six-streams-sort.csv.gz"));
  EXPECT_EQ(sort.events.size(), 6'235);
  EXPECT_EQ(sort.peak_bytes, 878'951'283);
  EXPECT_EQ(sort.streams, 6);
}

}  // namespace
