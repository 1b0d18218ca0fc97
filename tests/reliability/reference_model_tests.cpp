// SPDX-License-Identifier: Apache-2.0
//
// Pools compared with the simplest possible allocator, which coalesces immediately and serves all streams alike.
//
// Random programs of several threads and streams. Before each request, the free memory is read from a snapshot of the
// pool and coalesced across caches and streams; if a range is large enough, the pool must serve without growth.

#include "../support/pool_contents.hpp"
#include "../support/seeds.hpp"
#include "../support/simulated.hpp"
#include "../support/worker.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::cuda_stream;
using rmm::cuda_stream_view;
using rmm::memory_snapshot;
using rmm::mr::device_memory_resource;
using rmm::test::for_each_seed;
using rmm::test::worker;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

// --- the model

/// The simplest pool of one block: free ranges in the order of their addresses, coalesced immediately, for all streams.
/// Takes the smallest range that fits; of equal ones, that with the lowest address.
class reference_pool {
 public:
  explicit reference_pool(std::size_t bytes) : free_{{0, bytes}} {}

  /// Returns the offset of the allocation, or nothing if no free range is large enough.
  [[nodiscard]] std::optional<std::size_t> allocate(std::size_t bytes)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto best = free_.end();
    for (auto each = free_.begin(); each != free_.end(); ++each) {
      if (each->second >= bytes && (best == free_.end() || each->second < best->second)) { best = each; }
    }
    if (best == free_.end()) { return std::nullopt; }
    auto const [offset, available] = *best;
    free_.erase(best);
    if (available > bytes) { free_.emplace(offset + bytes, available - bytes); }
    return offset;
  }

  void deallocate(std::size_t offset, std::size_t bytes)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + bytes) {
      bytes += next->second;
      free_.erase(next);
    }
    auto const after = free_.lower_bound(offset);
    if (after != free_.begin() && std::prev(after)->first + std::prev(after)->second == offset) {
      std::prev(after)->second += bytes;
    } else {
      free_.emplace(offset, bytes);
    }
  }

  [[nodiscard]] std::map<std::size_t, std::size_t> const& free_ranges() const noexcept { return free_; }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // bytes by offset
};

TEST(ReferencePool, TakesTheSmallestRangeThatFitsAndTheLowestOfThose)
{
  reference_pool pool{1000};
  for (std::size_t const bytes : {100U, 300U, 100U, 200U, 100U, 200U}) {
    ASSERT_TRUE(pool.allocate(bytes).has_value());
  }
  pool.deallocate(100, 300);
  pool.deallocate(500, 200);
  pool.deallocate(800, 200);
  EXPECT_EQ(pool.allocate(200), 500U);
  EXPECT_EQ(pool.allocate(150), 800U);
  EXPECT_EQ(pool.allocate(301), std::nullopt);
}

TEST(ReferencePool, JoinsFreeNeighbours)
{
  reference_pool pool{300};
  for (int i = 0; i < 3; ++i) { ASSERT_TRUE(pool.allocate(100).has_value()); }
  pool.deallocate(0, 100);
  pool.deallocate(200, 100);
  EXPECT_EQ(pool.free_ranges().size(), 2U);
  pool.deallocate(100, 100);
  EXPECT_THAT(pool.free_ranges(), ::testing::ElementsAre(std::pair<std::size_t const, std::size_t>{0, 300}));
}

// --- the programs

/// One step of a program.
struct step {
  enum class kind : std::uint8_t {
    allocate,        ///< block `block` of `bytes` bytes
    free,            ///< on `stream`, which first waits for the block's stream if that differs
    synchronize,     ///< the host waits for `stream`
    replace_stream,  ///< the stream ends, and another takes its place
    replace_thread   ///< the thread ends, and another takes its place
  };
  kind what;
  std::size_t thread;
  std::size_t stream;
  std::size_t block;
  std::size_t bytes;
};

/// The streams of a program by number: some of the library, foreign ones, the legacy stream, and the default stream of
/// the thread that uses the number.
constexpr std::size_t rmm_streams       = 3;
constexpr std::size_t foreign_streams   = 2;
constexpr std::size_t legacy_stream     = rmm_streams + foreign_streams;
constexpr std::size_t per_thread_stream = legacy_stream + 1;
constexpr std::size_t all_streams       = per_thread_stream + 1;
constexpr std::size_t all_threads       = 3;

/// A random program that needs about as much memory as the pool has: at most `wanted` live bytes.
[[nodiscard]] std::vector<step> random_program(std::uint64_t seed, std::size_t steps, std::size_t wanted)
{
  struct live_block {
    std::size_t thread;
    std::size_t stream;
    std::size_t block;
    std::size_t bytes;
  };
  using kind = step::kind;
  std::mt19937_64 random{seed};
  auto const pick          = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  auto const largest_ratio = static_cast<double>(wanted) / 4 / 256;
  std::vector<step> made;
  std::vector<live_block> live;
  std::size_t blocks{};
  std::size_t live_bytes{};
  auto const free_at = [&](std::size_t which, bool elsewhere) {
    auto const gone = live[which];
    live[which]     = live.back();
    live.pop_back();
    live_bytes -= gone.bytes;
    // A per-thread default stream can only be named by its thread. Blocks of other streams may be freed by any thread.
    auto const thread = gone.stream == per_thread_stream ? gone.thread : pick(all_threads);
    made.push_back({kind::free, thread, elsewhere ? pick(legacy_stream + 1) : gone.stream, gone.block, gone.bytes});
  };
  auto const free_all = [&](auto concerned) {
    for (auto i = live.size(); i-- > 0;) {
      if (concerned(live[i])) { free_at(i, false); }
    }
  };
  while (made.size() < steps) {
    auto const what = pick(100);
    if (what < 92) {
      auto const share = static_cast<double>(pick(10'001)) / 10'000;
      auto const bytes = rmm::align_up(static_cast<std::size_t>(256 * std::pow(largest_ratio, share)), 256);
      if (live_bytes + bytes <= wanted && pick(8) != 0) {
        live.push_back({pick(all_threads), pick(all_streams), blocks, bytes});
        made.push_back({kind::allocate, live.back().thread, live.back().stream, blocks, bytes});
        live_bytes += bytes;
        ++blocks;
      } else if (!live.empty()) {
        free_at(pick(live.size()), pick(4) == 0);
      }
    } else if (what < 96) {
      made.push_back({kind::synchronize, pick(all_threads), pick(all_streams), 0, 0});
    } else if (what < 98) {
      auto const which = pick(legacy_stream);
      free_all([&](live_block const& each) { return each.stream == which; });
      made.push_back({kind::replace_stream, pick(all_threads), which, 0, 0});
    } else if (what < 99) {
      auto const which = pick(all_threads);
      free_all([&](live_block const& each) { return each.thread == which && each.stream == per_thread_stream; });
      made.push_back({kind::replace_thread, which, 0, 0, 0});
    } else if (pick(4) == 0) {
      free_all([](live_block const&) { return true; });
    }
  }
  free_all([](live_block const&) { return true; });
  return made;
}

/// The bytes of the largest free range, coalesced across caches, threads and streams, within one upstream block.
[[nodiscard]] std::size_t largest_free_piece(memory_snapshot const& now)
{
  using state = memory_snapshot::state;
  std::size_t largest{};
  for (auto const& block : now.blocks) {
    std::size_t run{};
    for (auto const& range : block.ranges) {
      bool const is_free = range.what == state::free || range.what == state::cached;
      run                = is_free ? run + range.bytes : 0;
      largest            = std::max(largest, run);
    }
  }
  return largest;
}

struct program_result {
  std::size_t requests{};
  std::size_t failures{};
  std::size_t failures_of_the_model{};
  std::string broken{};  ///< the first request that did not get the free memory; empty if none
};

struct program_options {
  bool has_work{};  ///< each block is written by its stream
  bool looks_at_snapshots{};
  std::size_t model_bytes{};
};

/// Runs a program on a new machine. The steps of all threads happen in the order of the program.
class program_run {
 public:
  static program_result of(std::vector<step> const& program,
                           std::uint64_t seed,
                           std::string const& configuration,
                           program_options const& options)
  {
    cudasim::options machine;
    machine.mode           = cudasim::execution::stepped;
    machine.seed           = seed;
    machine.check_ordering = options.has_work;
    Simulated::start(machine);
    program_result result;
    {
      program_run run{seed, configuration, options, result};
      for (auto const& each : program) {
        run.threads_[each.thread]->run([&] { run.make(each); });
        if (each.what == step::kind::replace_thread) { run.threads_[each.thread] = std::make_unique<worker>(); }
        if (!result.broken.empty()) { break; }
      }
      run.free_all();
    }
    for (auto const& violation : cudasim::violations()) { ADD_FAILURE() << violation.text; }
    cudasim::clear_violations();
    EXPECT_EQ(cudasim::leak_report(), "");
    return result;
  }

 private:
  struct live_block {
    void* ptr;
    std::size_t bytes;
    std::size_t thread;
    std::size_t stream;
  };

  program_run(std::uint64_t seed,
              std::string const& configuration,
              program_options const& options,
              program_result& result)
    : options_{options},
      result_{result},
      random_{seed},
      streams_(rmm_streams),
      foreign_(foreign_streams),
      mr_{rmm::mr::configured_resource{configuration}.share()},
      model_{options.model_bytes}
  {
    for (auto& each : foreign_) { EXPECT_EQ(cudaStreamCreate(&each), cudaSuccess); }
    for (std::size_t i = 0; i < all_threads; ++i) { threads_.push_back(std::make_unique<worker>()); }
  }

  ~program_run()
  {
    threads_.clear();
    mr_.reset();
    for (auto const each : foreign_) { EXPECT_EQ(cudaStreamDestroy(each), cudaSuccess); }
  }

  [[nodiscard]] cuda_stream_view stream(std::size_t number) const
  {
    if (number < rmm_streams) { return streams_[number]; }
    if (number < legacy_stream) { return foreign_[number - rmm_streams]; }
    return number == legacy_stream ? rmm::cuda_stream_legacy : rmm::cuda_stream_per_thread;
  }

  void make(step const& what)
  {
    switch (what.what) {
      case step::kind::allocate:
        allocate(what);
        break;
      case step::kind::free:
        free(what.block, what.stream);
        break;
      case step::kind::synchronize:
        stream(what.stream).synchronize();
        break;
      case step::kind::replace_stream:
        replace(what.stream);
        break;
      case step::kind::replace_thread:
        break;
    }
    if (options_.has_work) {
      for (auto steps = random_() % 4; steps > 0 && cudasim::step(); --steps) {}
    }
  }

  void allocate(step const& what)
  {
    ++result_.requests;
    if (options_.model_bytes != 0) {
      if (auto const offset = model_.allocate(what.bytes)) {
        in_model_[what.block] = {*offset, what.bytes};
      } else {
        ++result_.failures_of_the_model;
      }
    }
    std::size_t piece{};
    std::size_t reserved{};
    if (options_.looks_at_snapshots) {
      auto const now = rmm::test::snapshot_of(*mr_).value();
      piece          = largest_free_piece(now);
      reserved       = now.figures.reserved_bytes;
      EXPECT_EQ(piece, now.figures.largest_free_bytes);
    }
    bool is_served = true;
    try {
      void* const ptr   = mr_->allocate(what.bytes, stream(what.stream));
      live_[what.block] = {ptr, what.bytes, what.thread, what.stream};
      write(live_[what.block]);
    } catch (std::bad_alloc const&) {
      is_served = false;
      ++result_.failures;
    }
    if (!options_.looks_at_snapshots || piece < what.bytes) { return; }
    auto const now = rmm::test::figures_of(*mr_).value().reserved_bytes;
    if (is_served && now == reserved) { return; }
    result_.broken =
      "request " + std::to_string(result_.requests) + ", for " + std::to_string(what.bytes) + " bytes on stream " +
      std::to_string(what.stream) + ", while " + std::to_string(piece) + " bytes are free in one piece: " +
      (is_served ? "the pool changes from " + std::to_string(reserved) + " to " + std::to_string(now) + " bytes"
                 : std::string{"refused"});
  }

  void write(live_block const& block) const
  {
    if (!options_.has_work) { return; }
    EXPECT_EQ(cudasim::launch(stream(block.stream).value(), {}, {{block.ptr, block.bytes}}), cudaSuccess);
  }

  void free(std::size_t number, std::size_t on)
  {
    if (auto const found = in_model_.find(number); found != in_model_.end()) {
      model_.deallocate(found->second.first, found->second.second);
      in_model_.erase(found);
    }
    auto const found = live_.find(number);
    if (found == live_.end()) { return; }  // the request was refused
    auto block = found->second;
    live_.erase(found);
    if (on != block.stream) {
      cudaEvent_t event{};
      EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
      EXPECT_EQ(cudaEventRecord(event, stream(block.stream).value()), cudaSuccess);
      EXPECT_EQ(cudaStreamWaitEvent(stream(on).value(), event, 0), cudaSuccess);
      EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
      block.stream = on;
    }
    write(block);
    mr_->deallocate(block.ptr, block.bytes, stream(on));
  }

  void replace(std::size_t number)
  {
    if (number < rmm_streams) {
      streams_[number] = cuda_stream{};
      return;
    }
    auto& handle = foreign_[number - rmm_streams];
    EXPECT_EQ(cudaStreamDestroy(handle), cudaSuccess);
    EXPECT_EQ(cudaStreamCreate(&handle), cudaSuccess);
  }

  /// Frees the blocks that are left when a program ends early.
  void free_all()
  {
    while (!live_.empty()) {
      auto const& [number, block] = *live_.begin();
      threads_[block.thread]->run([&, which = number, on = block.stream] { free(which, on); });
    }
  }

  program_options options_;
  program_result& result_;
  std::mt19937_64 random_;
  std::vector<cuda_stream> streams_;
  std::vector<cudaStream_t> foreign_;
  std::shared_ptr<device_memory_resource> mr_;
  reference_pool model_;
  std::map<std::size_t, std::pair<std::size_t, std::size_t>> in_model_;  // offset and bytes
  std::map<std::size_t, live_block> live_;
  std::vector<std::unique_ptr<worker>> threads_;
};

// --- the tests

struct tested_pool {
  char const* name;
  char const* configuration;

  friend std::ostream& operator<<(std::ostream& out, tested_pool const& self) { return out << self.configuration; }
};

constexpr std::size_t pool_bytes = 64 * MiB;

struct ReferenceModel : ::testing::TestWithParam<tested_pool> {
  static constexpr std::size_t steps = 1000;

  void TearDown() override { Simulated::start(cudasim::environment_options()); }

  static void expect_that_free_pieces_are_used(bool has_work)
  {
    for_each_seed(40, [&](std::uint64_t seed) {
      auto const program = random_program(seed, steps, pool_bytes);
      auto const result  = program_run::of(program, seed, GetParam().configuration, {has_work, true, 0});
      EXPECT_EQ(result.broken, "");
      if (result.broken.empty()) { EXPECT_GT(result.requests, steps / 4); }
    });
  }
};

TEST_P(ReferenceModel, LeavesNoFreePieceUnusedWhileTheDeviceIsIdle) { expect_that_free_pieces_are_used(false); }

TEST_P(ReferenceModel, LeavesNoFreePieceUnusedWhileWorkIsPending) { expect_that_free_pieces_are_used(true); }

/// Only pools with a maximum: a growing pool does not fail.
struct BoundedReferenceModel : ReferenceModel {};

/// Prints the numbers without an expectation: a pool places a block depending on its thread and stream, so in the end
/// its free ranges differ from the model's.
TEST_P(BoundedReferenceModel, CountsWhatThePoolAndTheModelRefuse)
{
  std::size_t requests{};
  std::size_t failures{};
  std::size_t failures_of_the_model{};
  for_each_seed(40, [&](std::uint64_t seed) {
    auto const program = random_program(seed, steps, pool_bytes);
    auto const result  = program_run::of(program, seed, GetParam().configuration, {false, false, pool_bytes});
    requests += result.requests;
    failures += result.failures;
    failures_of_the_model += result.failures_of_the_model;
  });
  std::printf("Of %zu requests the pool refuses %zu, the model %zu\n", requests, failures, failures_of_the_model);
  RecordProperty("requests", std::to_string(requests));
  RecordProperty("failures", std::to_string(failures));
  RecordProperty("failures_of_the_model", std::to_string(failures_of_the_model));
  EXPECT_GT(failures_of_the_model, 0U);
}

std::vector<tested_pool> const& bounded_pools()
{
  static std::vector<tested_pool> const all{{"BoundedPool", "pool,initial=64MiB,max=64MiB"},
                                            {"Arena", "arena,size=64MiB"},
                                            {"BoundedCache", "cached,initial=64MiB,max=64MiB"},
                                            {"BoundedElasticPool", "elastic,initial=64MiB,max=64MiB"}};
  return all;
}

std::vector<tested_pool> all_pools()
{
  auto all = bounded_pools();
  all.push_back({"GrowingPool", "pool,initial=16MiB"});
  all.push_back({"GrowingCache", "cached,block=4MiB"});
  all.push_back({"GrowingElasticPool", "elastic"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(, ReferenceModel, ::testing::ValuesIn(all_pools()), [](auto const& each) {
  return std::string{each.param.name};
});

INSTANTIATE_TEST_SUITE_P(, BoundedReferenceModel, ::testing::ValuesIn(bounded_pools()), [](auto const& each) {
  return std::string{each.param.name};
});

}  // namespace
