// SPDX-License-Identifier: Apache-2.0
//
// Nearly full pools, as in the rows tight-* of COMPARE_BENCH: several streams keep a share of a bounded pool live, with
// sizes around 1 MiB and up to 64 MiB.
//
// Three claims. First, a request fails only if no run of free neighbours in the whole pool is large enough, even if the
// run lies in the shared lists or in caches of several threads and streams, or has no event yet. The tests know the
// live blocks, so they know all runs. Second, the pool places blocks so that it does not fail more often than a
// best-fit pool with one lock that coalesces at each free. Third, an elastic pool fails only if the chunks without a
// live block and those that its maximum still allows cannot complete any run of addresses.

#include "../support/best_fit_list.hpp"
#include "../support/sanitizers.hpp"
#include "../support/simulated.hpp"
#include "../support/worker.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/recovery.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::cuda_stream_view;
using rmm::mr::device_memory_resource;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;
constexpr std::size_t GiB = 1024 * MiB;

constexpr std::size_t all_streams = 8;

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
constexpr std::size_t shorter = 40;
#else
constexpr std::size_t shorter = RMM_TEST_UNDER_SANITIZER ? 20 : 1;
#endif

// --- programs

/// One stream of a program: frees random blocks until the next one fits into the stream's share of the pool, then
/// allocates it. A memory has `void* allocate(bytes, stream)`, null if it fails, and `void deallocate(pointer, bytes, stream)`.
template <class Memory>
class tight_stream {
 public:
  tight_stream(Memory& memory, std::size_t stream, std::size_t share, std::uint64_t seed)
    : memory_{memory}, stream_{stream}, share_{share}, random_{seed * 1000 + stream}
  {}
  tight_stream(tight_stream const&)            = delete;
  tight_stream& operator=(tight_stream const&) = delete;
  ~tight_stream()
  {
    while (!live_.empty()) { free_any(); }
  }

  /// Returns whether the request was served.
  bool step()
  {
    auto const bytes = next_size();
    while (!live_.empty() && live_bytes_ + bytes > share_) { free_any(); }
    void* const ptr = memory_.allocate(bytes, stream_);
    if (ptr == nullptr) { return false; }
    live_.push_back({ptr, bytes});
    live_bytes_ += bytes;
    return true;
  }

 private:
  struct block {
    void* ptr;
    std::size_t bytes;
  };

  void free_any()
  {
    std::swap(live_[random_() % live_.size()], live_.back());
    auto const gone = live_.back();
    live_.pop_back();
    live_bytes_ -= gone.bytes;
    memory_.deallocate(gone.ptr, gone.bytes, stream_);
  }

  /// Draws a size around a median of 1 MiB, up to 64 MiB. Does not depend on the standard library.
  [[nodiscard]] std::size_t next_size()
  {
    auto const uniform = [&] { return (static_cast<double>(random_() >> 11U) + 0.5) / 9007199254740992.0; };
    auto const radius  = std::sqrt(-2 * std::log(uniform()));
    auto const normal  = radius * std::cos(6.283185307179586 * uniform());
    auto const most    = static_cast<double>(64 * MiB);
    return static_cast<std::size_t>(std::clamp(static_cast<double>(MiB) * std::exp(1.5 * normal), 1.0, most));
  }

  Memory& memory_;
  std::size_t stream_;
  std::size_t share_;
  std::mt19937_64 random_;
  std::vector<block> live_;
  std::size_t live_bytes_{};
};

struct program {
  char const* name;
  std::size_t pool_bytes;
  std::size_t percent;         ///< share of the pool that its streams keep live together
  std::size_t steps;           ///< steps of each stream
  bool known_streams;          ///< rmm::cuda_streams; else the pool never learns of their ends
  bool device_keeps_up{true};  ///< work is done and events complete before the next request

  friend std::ostream& operator<<(std::ostream& out, program const& self) { return out << self.name; }

  [[nodiscard]] std::size_t share() const { return pool_bytes / 100 * percent / all_streams; }
};

/// Runs a program with its streams in turn. Returns how many requests failed.
template <class Memory>
std::size_t run_in_turn(Memory& memory, program const& what, std::uint64_t seed)
{
  std::vector<std::unique_ptr<tight_stream<Memory>>> streams;
  for (std::size_t i = 0; i != all_streams; ++i) {
    streams.push_back(std::make_unique<tight_stream<Memory>>(memory, i, what.share(), seed));
  }
  std::size_t failures{};
  for (std::size_t at = 0; at < what.steps / shorter; ++at) {
    for (auto const& each : streams) { failures += each->step() ? 0U : 1U; }
  }
  return failures;
}

// --- the model

/// A model with one lock and one best-fit list, coalesced at each free; every stream can use all of it.
class model_pool {
 public:
  explicit model_pool(program const& what) { free_.add(granule, what.pool_bytes); }

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t)
  {
    auto const offset = free_.take(rmm::align_up(bytes, granule));
    return offset ? reinterpret_cast<void*>(*offset) : nullptr;
  }
  void deallocate(void* ptr, std::size_t bytes, std::size_t)
  {
    free_.add(reinterpret_cast<std::size_t>(ptr), rmm::align_up(bytes, granule));
  }

 private:
  static constexpr std::size_t granule = 256;

  rmm::test::best_fit_list free_;
};

// --- the pool

struct address_space {
  std::uintptr_t begin;
  std::size_t bytes;
};

/// The streams of a program: rmm::cuda_streams or foreign ones.
class streams_of_program {
 public:
  explicit streams_of_program(program const& what)
    : known_(what.known_streams ? all_streams : 0), foreign_(what.known_streams ? 0 : all_streams)
  {
    for (auto& each : foreign_) { EXPECT_EQ(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), cudaSuccess); }
  }
  streams_of_program(streams_of_program const&)            = delete;
  streams_of_program& operator=(streams_of_program const&) = delete;
  ~streams_of_program()
  {
    for (auto const each : foreign_) { EXPECT_EQ(cudaStreamDestroy(each), cudaSuccess); }
  }

  [[nodiscard]] cuda_stream_view operator[](std::size_t number) const
  {
    return foreign_.empty() ? known_[number].view() : cuda_stream_view{foreign_[number]};
  }

 private:
  std::vector<rmm::cuda_stream> known_;
  std::vector<cudaStream_t> foreign_;
};

/// Live blocks: bytes by address.
using blocks_by_address = std::map<std::uintptr_t, std::size_t>;

/// A pool that serves the streams of a program.
template <class Pool>
class serving {
 public:
  template <class... Args>
  explicit serving(program const& what, Args... args) : pool_{args...}, streams_{what}
  {}

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t on)
  {
    try {
      return pool_.allocate(bytes, streams_[on]);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }
  void deallocate(void* ptr, std::size_t bytes, std::size_t on) { pool_.deallocate(ptr, bytes, streams_[on]); }

 protected:
  [[nodiscard]] Pool const& pool() const { return pool_; }

 private:
  Pool pool_;
  streams_of_program streams_;
};

using bounded_pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

rmm::mr::cuda_memory_resource& cuda()
{
  static rmm::mr::cuda_memory_resource resource;
  return resource;
}

class tested_pool : public serving<bounded_pool> {
 public:
  explicit tested_pool(program const& what) : serving{what, &cuda(), what.pool_bytes, what.pool_bytes}
  {
    void* const all = allocate(what.pool_bytes, 0);
    space_          = {reinterpret_cast<std::uintptr_t>(all), what.pool_bytes};
    deallocate(all, what.pool_bytes, 0);
  }

  [[nodiscard]] address_space space() const { return space_; }

  /// Expects that no run of free neighbours has `bytes` bytes.
  void check_failure(std::size_t bytes, blocks_by_address const& live) const
  {
    auto const largest = largest_free_run(live);
    EXPECT_LT(largest, bytes) << "were free in a row when a request was refused";
  }

 private:
  [[nodiscard]] std::size_t largest_free_run(blocks_by_address const& live) const
  {
    std::size_t largest{};
    auto end = space_.begin;
    for (auto const& [begin, bytes] : live) {
      largest = std::max<std::size_t>(largest, begin - end);
      end     = begin + bytes;
    }
    return std::max<std::size_t>(largest, space_.begin + space_.bytes - end);
  }

  address_space space_{};
};

/// An elastic pool whose chunks have one size: no request of a program is large enough for larger ones.
class tested_elastic_pool : public serving<rmm::mr::elastic_pool_memory_resource> {
 public:
  explicit tested_elastic_pool(program const& what) : serving{what, std::size_t{0}, what.pool_bytes}
  {
    EXPECT_TRUE(pool().has_virtual_memory());
  }

  /// Expects that chunks without a live block do not suffice for `bytes` bytes at any addresses.
  void check_failure(std::size_t bytes, blocks_by_address const& live) const
  {
    auto const all  = *pool().maximum_bytes() / pool().chunk_bytes();
    auto const kept = chunks_with(live);
    EXPECT_GT(chunks_needed(bytes, live), all - kept)
      << "chunks had no live block when " << bytes << " bytes were refused";
  }

 private:
  [[nodiscard]] std::size_t chunks_with(blocks_by_address const& live) const
  {
    std::size_t count{};
    std::uintptr_t next{};  // the first chunk that is not counted
    for (auto const& [begin, bytes] : live) {
      auto const first = std::max(begin / pool().chunk_bytes(), next);
      next             = (begin + bytes - 1) / pool().chunk_bytes() + 1;
      count += next - std::min(first, next);
    }
    return count;
  }

  /// The fewest chunks without a live block that a place for `bytes` bytes touches: at an end of a gap between two blocks, or far from
  /// live blocks.
  [[nodiscard]] std::size_t chunks_needed(std::size_t bytes, blocks_by_address const& live) const
  {
    auto const chunk = pool().chunk_bytes();
    auto fewest      = rmm::align_up(bytes, chunk) / chunk;
    std::uintptr_t gap{};
    for (auto const& [next, size] : live) {
      if (gap != 0 && next - gap >= bytes) {
        auto const first  = rmm::align_up(gap, chunk);  // the chunks from here to `last` have no live block
        auto const last   = std::max(first, next / chunk * chunk);
        auto const at_low = std::clamp(gap + bytes, first, last) - first;
        auto const at_top = last - std::clamp(next - bytes, first, last);
        fewest            = std::min(fewest, rmm::align_up(std::min(at_low, at_top), chunk) / chunk);
      }
      gap = next + size;
    }
    return fewest;
  }
};

/// A pool that records the live blocks and checks each failure.
template <class Pool>
class checked {
 public:
  explicit checked(program const& what) : pool_{what}, device_keeps_up_{what.device_keeps_up} {}

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t stream)
  {
    if (device_keeps_up_) { cudasim::run_until_idle(); }
    void* const ptr = pool_.allocate(bytes, stream);
    auto const size = rmm::align_up(bytes, 256);
    if (ptr != nullptr) {
      live_[reinterpret_cast<std::uintptr_t>(ptr)] = size;
    } else {
      pool_.check_failure(size, live_);
    }
    return ptr;
  }
  void deallocate(void* ptr, std::size_t bytes, std::size_t stream)
  {
    live_.erase(reinterpret_cast<std::uintptr_t>(ptr));
    pool_.deallocate(ptr, bytes, stream);
  }

 private:
  Pool pool_;
  bool device_keeps_up_;
  blocks_by_address live_;
};

// --- streams in turn

struct stepped_device {
  explicit stepped_device(std::size_t memory_bytes = 20 * GiB)
  {
    cudasim::options machine;
    machine.mode           = cudasim::execution::stepped;
    machine.check_ordering = false;
    machine.memory_bytes   = memory_bytes;
    Simulated::start(machine);
  }
  stepped_device(stepped_device const&)            = delete;
  stepped_device& operator=(stepped_device const&) = delete;
  ~stepped_device() { Simulated::start(cudasim::environment_options()); }
};

/// Runs a program several times, each time with other numbers and a new pool. Returns how many requests failed.
template <class Pool>
std::size_t run_several(program const& what)
{
  constexpr std::uint64_t seeds = 4;
  std::size_t failures{};
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    Pool pool{what};
    failures += run_in_turn(pool, what, seed);
  }
  std::printf(
    "%s: of %zu requests, %zu are refused\n", what.name, seeds * all_streams * (what.steps / shorter), failures);
  return failures;
}

struct TightPool : ::testing::TestWithParam<program> {
  stepped_device device;
};

TEST_P(TightPool, FailsOnlyIfNoFreeRunFits) { run_several<checked<tested_pool>>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(,
                         TightPool,
                         ::testing::Values(program{"Load80DeviceStandsStill", 16 * GiB, 80, 3000, false, false},
                                           program{"Load95", 16 * GiB, 95, 4000, false},
                                           program{"Load95KnownStreams", 16 * GiB, 95, 4000, true}),
                         [](auto const& each) { return std::string{each.param.name}; });

struct TightElasticPool : ::testing::TestWithParam<program> {
  stepped_device device{6 * GiB};  // little, because the pool reserves many times the addresses
};

TEST_P(TightElasticPool, FailsOnlyIfChunksWithoutBlocksAreTooFew)
{
  run_several<checked<tested_elastic_pool>>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(,
                         TightElasticPool,
                         ::testing::Values(program{"Load80DeviceStandsStill", 4 * GiB, 80, 1000, false, false},
                                           program{"Load95", 4 * GiB, 95, 1500, false},
                                           program{"Load95KnownStreams", 4 * GiB, 95, 1500, true},
                                           program{"Load95DeviceStandsStill", 4 * GiB, 95, 1000, false, false},
                                           program{
                                             "Load95KnownStreamsDeviceStandsStill", 4 * GiB, 95, 1000, true, false}),
                         [](auto const& each) { return std::string{each.param.name}; });

/// Both coalesce all free memory. But over time, their free ranges lie at different places, so single loads may differ.
TEST(TightPools, FailNoMoreOftenThanTheModelTogether)
{
  stepped_device const device;
  for (bool const known : {false, true}) {
    SCOPED_TRACE(known ? "known streams" : "foreign streams");
    std::size_t failures{};
    std::size_t failures_of_the_model{};
    for (auto const& what : {program{"Load80", 16 * GiB, 80, 6000, known},
                             program{"Load90", 16 * GiB, 90, 6000, known},
                             program{"Load95", 16 * GiB, 95, 4000, known}}) {
      auto const refused          = run_several<checked<tested_pool>>(what);
      auto const refused_by_model = run_several<model_pool>(what);
      EXPECT_LE(refused, refused_by_model + refused_by_model / 10) << what.name;
      failures += refused;
      failures_of_the_model += refused_by_model;
    }
    EXPECT_LE(failures, failures_of_the_model);
  }
}

// --- threads

/// A pool that records when each call begins and ends.
class timed_pool {
 public:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  /// Memory that may have been in use from the call that allocated it to the end of the call that freed it.
  struct use {
    std::uintptr_t begin;
    std::size_t bytes;
    std::uint64_t first;
    std::uint64_t last{never};
  };
  struct failure {
    std::size_t bytes;
    std::uint64_t first;
    std::uint64_t last;
  };

  explicit timed_pool(program const& what) : pool_{what}, notes_(all_streams) {}

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t stream)
  {
    auto& notes      = notes_[stream];
    auto const first = clock_.fetch_add(1);
    void* const ptr  = pool_.allocate(bytes, stream);
    auto const size  = rmm::align_up(bytes, 256);
    if (ptr == nullptr) {
      notes.failures.push_back({size, first, clock_.fetch_add(1)});
    } else {
      notes.live[ptr] = notes.uses.size();
      notes.uses.push_back({reinterpret_cast<std::uintptr_t>(ptr), size, first});
    }
    return ptr;
  }
  void deallocate(void* ptr, std::size_t bytes, std::size_t stream)
  {
    auto& notes     = notes_[stream];
    auto const used = notes.live.extract(ptr).mapped();
    pool_.deallocate(ptr, bytes, stream);
    notes.uses[used].last = clock_.fetch_add(1);
  }

  /// Expects for up to `most` failures that no free run was large enough during the whole call. Returns how many there were.
  std::size_t check_failures(std::size_t most) const
  {
    std::vector<use> uses;
    std::vector<failure> failures;
    for (auto const& each : notes_) {
      uses.insert(uses.end(), each.uses.begin(), each.uses.end());
      failures.insert(failures.end(), each.failures.begin(), each.failures.end());
    }
    std::sort(uses.begin(), uses.end(), [](auto const& a, auto const& b) { return a.begin < b.begin; });
    auto const apart = std::max<std::size_t>(failures.size() / most, 1);
    for (std::size_t i = 0; i < failures.size(); i += apart) {
      auto const largest = largest_run_during(failures[i], uses);
      EXPECT_LT(largest, failures[i].bytes) << "were free in a row during the whole call that was refused";
    }
    return failures.size();
  }

 private:
  struct thread_notes {
    std::vector<use> uses;
    std::vector<failure> failures;
    std::map<void*, std::size_t> live;  // the number of its use
  };

  [[nodiscard]] std::size_t largest_run_during(failure const& call, std::vector<use> const& uses) const
  {
    std::size_t largest{};
    auto end = pool_.space().begin;
    for (auto const& each : uses) {
      if (each.first > call.last || each.last < call.first) { continue; }
      if (each.begin > end) { largest = std::max<std::size_t>(largest, each.begin - end); }
      end = std::max(end, each.begin + each.bytes);
    }
    return std::max<std::size_t>(largest, pool_.space().begin + pool_.space().bytes - end);
  }

  tested_pool pool_;
  std::atomic<std::uint64_t> clock_{1};
  std::vector<thread_notes> notes_;  // one for each stream, by its thread
};

struct TightPoolThreads : ::testing::TestWithParam<program> {
  void SetUp() override { cudasim::reset(); }
};

TEST_P(TightPoolThreads, FailOnlyIfNoRunFitsThatWasFreeDuringTheWholeCall)
{
  timed_pool pool{GetParam()};
  std::atomic<std::size_t> running{all_streams};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i != all_streams; ++i) {
    threads.emplace_back([&, i] {
      tight_stream<timed_pool> stream{pool, i, GetParam().share(), 1};
      for (auto left = GetParam().steps / shorter; left != 0; --left) { stream.step(); }
      running.fetch_sub(1);
      while (running.load() != 0) { std::this_thread::yield(); }  // keeps the pool full until all are done
    });
  }
  for (auto& each : threads) { each.join(); }
  auto const failures = pool.check_failures(1000 / shorter);
  std::printf("%s: of %zu requests the pool refuses %zu\n",
              GetParam().name,
              all_streams * (GetParam().steps / shorter),
              failures);
  if (shorter == 1) { EXPECT_NE(failures, 0U); }
}

INSTANTIATE_TEST_SUITE_P(,
                         TightPoolThreads,
                         ::testing::Values(program{"Load97", 2 * GiB, 97, 8000, false},
                                           program{"Load97KnownStreams", 2 * GiB, 97, 8000, true}),
                         [](auto const& each) { return std::string{each.param.name}; });

// --- actions of other threads while a pool looks for memory

/// Refuses to grow, and calls a function of the test then.
class refusing_upstream final : public device_memory_resource {
 public:
  std::function<void()> on_growth;

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (on_growth) {
      on_growth();
      throw rmm::out_of_memory{"refused"};
    }
    return memory_.allocate(bytes, stream);
  }
  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    memory_.deallocate(ptr, bytes, stream);
  }

  rmm::mr::cuda_memory_resource memory_;
};

struct TightPoolRace : Simulated {};

/// The search before growth finds frees without an event. Then their thread records one. So the last search has to look
/// again, although all free memory has an event now.
TEST_F(TightPoolRace, MemoryIsFoundThatGetsItsEventDuringTheCall)
{
  // A cache of this pool may leave 1/128 of it without an event. The last of the frees below exceeds that.
  constexpr std::size_t block       = 48 * KiB;
  constexpr std::size_t other_block = 60 * KiB;
  refusing_upstream upstream;
  rmm::mr::pool_memory_resource<refusing_upstream> pool{&upstream, 64 * MiB, 128 * MiB};
  pool.set_recovery_order(rmm::recovery_order{rmm::recovery_rung::grow, rmm::recovery_rung::synchronize});
  rmm::cuda_stream const here;
  rmm::cuda_stream const there;
  rmm::test::worker other;
  std::vector<void*> blocks;
  std::vector<void*> others;
  other.run([&] {
    for (int i = 0; i != 4; ++i) { blocks.push_back(pool.allocate(block, there)); }
    for (int i = 0; i != 6; ++i) { others.push_back(pool.allocate(other_block, there)); }
  });
  std::sort(blocks.begin(), blocks.end());
  auto const is_next = [&](std::size_t i) {
    return static_cast<char*>(blocks[i]) + block == static_cast<char*>(blocks[i + 1]);
  };
  ASSERT_TRUE(is_next(0) && is_next(1) && is_next(2));
  std::map<void*, std::size_t> rest;
  upstream.on_growth = [] {};
  for (std::size_t bytes = 64 * MiB; bytes >= block; bytes /= 2) {
    try {
      for (;;) {
        void* const ptr = pool.allocate(bytes, here);
        rest[ptr]       = bytes;
      }
    } catch (std::bad_alloc const&) {}
  }

  other.run([&] {
    for (auto* const each : blocks) { pool.deallocate(each, block, there); }
  });
  int calls          = 0;
  upstream.on_growth = [&] {
    ++calls;
    other.run([&] {
      for (auto* const each : others) { pool.deallocate(each, other_block, there); }
      others.clear();
    });
  };
  void* found{};
  EXPECT_NO_THROW(found = pool.allocate(4 * block, here));
  EXPECT_GE(calls, 1);

  upstream.on_growth = nullptr;
  if (found != nullptr) { pool.deallocate(found, 4 * block, here); }
  for (auto const& [ptr, bytes] : rest) { pool.deallocate(ptr, bytes, here); }
}

}  // namespace
