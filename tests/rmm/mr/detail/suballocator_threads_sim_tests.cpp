// SPDX-License-Identifier: Apache-2.0
//
// Threads that use one suballocator at the same time, while work runs in the background. Each owner fills its blocks with its own
// pattern, and checks that later. Runs under the ordering checker, and under ThreadSanitizer in its preset.

#include "../../../support/sanitizers.hpp"
#include "../../../support/seeds.hpp"
#include "../../../support/stepped_heap.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::mr::cuda_memory_resource;
using rmm::test::for_each_seed;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

struct block {
  std::byte* ptr;
  std::size_t bytes;
  rmm::cuda_stream_view stream;
  std::byte pattern;
};

/// A gate that opens once.
class gate {
 public:
  void open()
  {
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      is_open_ = true;
    }
    opened_.notify_all();
  }
  void wait()
  {
    std::unique_lock<std::mutex> lock{mutex_};
    opened_.wait(lock, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_{false};
};

/// Blocks on streams that all threads use, handed from thread to thread.
class exchange_box {
 public:
  void put(block given)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    blocks_.push_back(given);
  }
  [[nodiscard]] std::optional<block> take(std::uint64_t random)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (blocks_.empty()) { return std::nullopt; }
    std::swap(blocks_[random % blocks_.size()], blocks_.back());
    auto const taken = blocks_.back();
    blocks_.pop_back();
    return taken;
  }

 private:
  std::mutex mutex_;
  std::vector<block> blocks_;
};

/// The bytes at each end of a block that are filled.
constexpr std::size_t edge = 32;

struct SuballocatorThreads : Simulated {
  static void begin()
  {
    cudasim::options machine;
    machine.mode           = cudasim::execution::threads;
    machine.check_ordering = true;
    start(machine);
  }

  void fill(block const& b)
  {
    auto const n    = std::min(edge, b.bytes);
    auto const body = [b, n] {
      std::memset(b.ptr, static_cast<int>(b.pattern), n);
      std::memset(b.ptr + (b.bytes - n), static_cast<int>(b.pattern), n);
    };
    ASSERT_EQ(cudasim::launch(b.stream.value(), {}, {{b.ptr, b.bytes}}, body, {"fill"}), cudaSuccess);
  }

  void verify(block const& b)
  {
    auto const n    = std::min(edge, b.bytes);
    auto const body = [this, b, n] {
      for (std::size_t i = 0; i < n; ++i) {
        if (b.ptr[i] != b.pattern || b.ptr[b.bytes - 1 - i] != b.pattern) { ++foreign_; }
      }
    };
    ASSERT_EQ(cudasim::launch(b.stream.value(), {{b.ptr, b.bytes}}, {}, body, {"verify"}), cudaSuccess);
  }

  struct options {
    int threads{4};
    int steps{400};
    std::size_t largest{100 * KiB};
    std::size_t frequent{};     ///< bytes that are allocated and freed many times in a row; 0: none are
    std::size_t whole{};        ///< bytes of a block that is sometimes allocated after that
    std::size_t most_live{60};  ///< most live blocks of a thread
  };

  /// `mr` needs allocate() and deallocate(). allocate() throws or returns null if there is no memory.
  template <class Resource>
  void use(Resource& mr,
           std::uint64_t seed,
           options const& how,
           std::vector<rmm::cuda_stream> const& shared,
           exchange_box& box)
  {
    std::mt19937_64 random{seed};
    auto const pick    = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    auto const pattern = static_cast<std::byte>(seed % 251 + 1);
    std::vector<rmm::cuda_stream> mine(2);
    std::vector<block> live;
    auto const allocate = [&](std::size_t bytes, rmm::cuda_stream_view stream) -> std::optional<block> {
      void* ptr{};
      try {
        ptr = mr.allocate(bytes, stream);
      } catch (std::bad_alloc const&) {}
      if (ptr == nullptr) { return std::nullopt; }
      block const made{static_cast<std::byte*>(ptr), bytes, stream, pattern};
      fill(made);
      return made;
    };
    auto const give_back = [&](block const& b) {
      verify(b);
      mr.deallocate(b.ptr, b.bytes, b.stream);
    };
    auto const use_often = [&](std::size_t bytes, rmm::cuda_stream_view stream, std::size_t times) {
      for (; times != 0; --times) {
        if (auto const made = allocate(bytes, stream)) { give_back(*made); }
      }
    };
    for (int step = 0; step < how.steps; ++step) {
      auto const what = pick(100);
      if (what < 50 && live.size() < how.most_live) {
        auto const kind = pick(10);
        auto const bytes =
          kind < 6 ? 256 * (1 + pick(8)) : 1 + pick(kind < 9 ? std::min(8 * KiB, how.largest) : how.largest);
        auto const stream = kind % 3 == 0   ? shared[pick(shared.size())].view()
                            : pick(16) == 0 ? rmm::cuda_stream_legacy
                                            : mine[pick(mine.size())].view();
        if (auto const made = allocate(bytes, stream)) { live.push_back(*made); }
      } else if (what < 90) {
        if (live.empty()) { continue; }
        std::swap(live[pick(live.size())], live.back());
        auto const b       = live.back();
        bool const is_mine = b.stream == mine[0].view() || b.stream == mine[1].view();
        live.pop_back();
        if (is_mine || pick(2) == 0) {
          give_back(b);
        } else {
          box.put(b);
        }
      } else if (what < 95) {
        if (auto const other = box.take(random())) { give_back(*other); }
      } else if (what < 97) {  // a stream ends with work pending
        auto const which = pick(mine.size());
        for (auto i = live.size(); i-- > 0;) {
          if (live[i].stream != mine[which].view()) { continue; }
          give_back(live[i]);
          live[i] = live.back();
          live.pop_back();
        }
        mine[which] = rmm::cuda_stream{rmm::cuda_stream::flags::non_blocking};
      } else if (what == 97 && how.frequent != 0) {
        use_often(how.frequent, pick(2) == 0 ? rmm::cuda_stream_per_thread : mine[0].view(), pick(40));
        use_often(how.whole, mine[1].view(), pick(2));
      } else {
        mine[pick(mine.size())].synchronize();
      }
    }
    for (auto const& b : live) { give_back(b); }
  }

  /// Runs threads on what `make()` returns. Depending on the seed, they end before it or after it.
  template <class Make>
  void run(std::uint64_t seed, options const& how, Make make)
  {
    begin();
    std::vector<rmm::cuda_stream> shared(2);
    auto mr = make();
    exchange_box box;
    gate all_done;
    gate may_end;
    std::atomic<int> busy{how.threads};
    std::vector<std::thread> threads;
    for (int t = 0; t < how.threads; ++t) {
      threads.emplace_back([&, t] {
        auto const mine = 1000 * seed + static_cast<std::uint64_t>(t);
        if (t == 0) {  // starts threads that free their last blocks when they end
          for (int part = 0; part < 4; ++part) {
            auto fewer  = how;
            fewer.steps = how.steps / 4;
            std::thread{[&] { use(*mr, mine + 100 * static_cast<std::uint64_t>(part), fewer, shared, box); }}.join();
          }
        } else {
          use(*mr, mine, how, shared, box);
        }
        if (--busy == 0) { all_done.open(); }
        if (seed % 2 == 0) { may_end.wait(); }
      });
    }
    all_done.wait();
    while (auto const b = box.take(0)) {
      verify(*b);
      mr->deallocate(b->ptr, b->bytes, b->stream);
    }
    check(*mr);
    if (seed % 2 == 0) {
      mr.reset();
      may_end.open();
    }
    for (auto& thread : threads) { thread.join(); }
    mr.reset();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(foreign_, 0U);
    for (auto const& violation : cudasim::violations()) { ADD_FAILURE() << violation.text; }
    cudasim::clear_violations();
  }

  static void check(device_heap& heap)
  {
    EXPECT_TRUE(heap.good());
    EXPECT_EQ(heap.figures().live_bytes, 0U);
  }
  template <class Resource>
  static void check(Resource& mr)
  {
    auto const now = mr.figures();
    EXPECT_EQ(now.live_bytes, 0U);
    // A pool grows to the byte, and does not use the rest of a granule at the end of a block.
    EXPECT_LT(now.reserved_bytes - now.free_bytes, 256 * now.upstream_blocks);
  }

  cuda_memory_resource cuda_;
  std::atomic<std::size_t> foreign_{0};
};

TEST_F(SuballocatorThreads, KeepTheirBlocksOnATightHeap)
{
  for_each_seed(12, [&](std::uint64_t seed) { run(seed, {}, [] { return std::make_unique<device_heap>(2 * MiB); }); });
}

TEST_F(SuballocatorThreads, KeepTheirBlocksOnAHeapWithRoom)
{
  for_each_seed(8, [&](std::uint64_t seed) { run(seed, {}, [] { return std::make_unique<device_heap>(64 * MiB); }); });
}

TEST_F(SuballocatorThreads, KeepTheirBlocksOnAVeryTightHeap)
{
  options how;
  how.largest = 2 * KiB;
  for_each_seed(12,
                [&](std::uint64_t seed) { run(seed, how, [] { return std::make_unique<device_heap>(16 * KiB); }); });
}

TEST_F(SuballocatorThreads, KeepTheirLargeBlocks)
{
  options how;
  how.largest   = 4 * MiB;
  how.most_live = 20;
  for_each_seed(8, [&](std::uint64_t seed) { run(seed, how, [] { return std::make_unique<device_heap>(48 * MiB); }); });
}

TEST_F(SuballocatorThreads, KeepTheirBlocksWhileCachesKeepLargeOnes)
{
  options how;
  how.frequent = 3 * MiB;
  how.whole    = 1000 * MiB;
  for_each_seed(8,
                [&](std::uint64_t seed) { run(seed, how, [] { return std::make_unique<device_heap>(1024 * MiB); }); });
}

TEST_F(SuballocatorThreads, KeepTheirLargeBlocksWhileMemoryIsAmple)
{
  options how;
  how.largest   = 6 * MiB;
  how.frequent  = 3 * MiB;
  how.whole     = 1000 * MiB;
  how.most_live = 20;
  for_each_seed(8, [&](std::uint64_t seed) {
    run(seed, how, [] {
      auto made = std::make_unique<device_heap>(1024 * MiB);
      made->make_ample();
      return made;
    });
  });
}

TEST_F(SuballocatorThreads, KeepTheirLargeBlocksWhileMemoryIsScarce)
{
  options how;
  how.largest   = MiB;
  how.frequent  = 300 * KiB;
  how.whole     = 80 * MiB;
  how.most_live = 20;
  for_each_seed(8, [&](std::uint64_t seed) {
    run(seed, how, [] {
      auto made = std::make_unique<device_heap>(1024 * MiB);
      made->take_out(900 * MiB);
      return made;
    });
  });
}

TEST_F(SuballocatorThreads, KeepTheirBlocksOnAPool)
{
  for_each_seed(8, [&](std::uint64_t seed) {
    run(seed, {}, [&] {
      return std::make_unique<rmm::mr::pool_memory_resource<cuda_memory_resource>>(&cuda_, 256 * KiB, 2 * MiB);
    });
  });
}

/// A pool that is called through its nonblocking functions first.
class impatient_pool {
 public:
  explicit impatient_pool(cuda_memory_resource& upstream) : pool_{&upstream, 256 * KiB, 2 * MiB} {}

  [[nodiscard]] void* allocate(std::size_t bytes, rmm::cuda_stream_view stream)
  {
    void* const ptr = pool_.try_allocate_nonblocking(bytes, stream);
    return ptr != nullptr ? ptr : pool_.allocate(bytes, stream);
  }
  void deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream)
  {
    if (!pool_.try_deallocate_nonblocking(ptr, bytes, stream)) { pool_.deallocate(ptr, bytes, stream); }
  }
  [[nodiscard]] rmm::heap_figures figures() const { return pool_.figures(); }

 private:
  rmm::mr::pool_memory_resource<cuda_memory_resource> pool_;
};

TEST_F(SuballocatorThreads, KeepTheirBlocksOnAPoolWithNonblockingCalls)
{
  for_each_seed(8, [&](std::uint64_t seed) { run(seed, {}, [&] { return std::make_unique<impatient_pool>(cuda_); }); });
}

TEST_F(SuballocatorThreads, KeepTheirBlocksOnAnArena)
{
  for_each_seed(6, [&](std::uint64_t seed) {
    run(seed, {}, [&] {
      return std::make_unique<rmm::mr::arena_memory_resource<cuda_memory_resource>>(&cuda_, 2 * MiB);
    });
  });
}

TEST_F(SuballocatorThreads, KeepTheirBlocksOnAFixedSizeResource)
{
  options how;
  how.largest = 8 * KiB;
  for_each_seed(6, [&](std::uint64_t seed) {
    run(seed, how, [&] {
      return std::make_unique<rmm::mr::fixed_size_memory_resource<cuda_memory_resource>>(&cuda_, 8 * KiB, 16);
    });
  });
}

TEST_F(SuballocatorThreads, StayOutWhileOthersSearchTheirCaches)
{
  // The owner frees and allocates without a lock. Before each call it writes to memory that is in no cache. That delays its later
  // writes on the way to the other thread. The other thread requests the whole heap, and gets it if it is free.
  begin();
  constexpr std::size_t size = 64 * KiB;
  device_heap heap{size};
  rmm::cuda_stream const stream;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> rounds{0};
  std::thread owner{[&] {
    std::vector<unsigned char> scratch(std::size_t{16} << 20);
    std::size_t at          = 0;
    auto const write_around = [&] {
      auto* const bytes = static_cast<unsigned char volatile*>(scratch.data());
      for (int i = 0; i < 24; ++i) {
        at        = (at + 64 * 4099) % scratch.size();
        bytes[at] = 1;
      }
    };
    while (!stop.load(std::memory_order_relaxed)) {
      write_around();
      void* const ptr = heap.try_allocate(256, stream);
      write_around();
      if (ptr != nullptr) { heap.deallocate(ptr, 256, stream); }
      rounds.store(rounds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }};
  constexpr int times = RMM_TEST_UNDER_SANITIZER ? 300 : 3'000;  // sanitizers change the racing instructions
  auto const latest   = std::chrono::steady_clock::now() + std::chrono::seconds{5};  // for machines without a free core
  for (int i = 0; i < times && std::chrono::steady_clock::now() < latest; ++i) {
    auto const before = rounds.load(std::memory_order_relaxed);
    while (rounds.load(std::memory_order_relaxed) < before + 2) { std::this_thread::yield(); }
    if (void* const ptr = heap.try_allocate(size, stream)) { heap.deallocate(ptr, size, stream); }
  }
  stop = true;
  owner.join();
  EXPECT_TRUE(heap.good());
  EXPECT_EQ(heap.figures().live_bytes, 0U);
}

TEST_F(SuballocatorThreads, GetAllOfATightHeapInTurn)
{
  // Each thread in its turn gets the whole heap, in 16 parts and in one piece.
  begin();
  constexpr std::size_t size = 256 * KiB;
  device_heap heap{size};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  std::mutex whole;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      rmm::cuda_stream const stream;
      for (int i = 0; i < 200; ++i) {
        std::lock_guard<std::mutex> const turn{whole};
        std::vector<void*> parts;
        for (int k = 0; k < 16; ++k) { parts.push_back(heap.allocate(size / 16, stream)); }
        for (void* const part : parts) {
          if (part == nullptr) {
            ++refused;
            continue;
          }
          heap.deallocate(part, size / 16, stream);
        }
        if (void* const ptr = heap.allocate(size, stream)) {
          heap.deallocate(ptr, size, stream);
        } else {
          ++refused;
        }
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(refused, 0);
  EXPECT_TRUE(heap.good());
}

// The test fails if ThreadSanitizer reports locks that are taken in two orders.
TEST_F(SuballocatorThreads, MayEndBeforeAPoolOverAnotherPool)
{
  using lower_pool = rmm::mr::pool_memory_resource<cuda_memory_resource>;
  cuda_memory_resource upstream;
  for (int i = 0; i < 40; ++i) {  // more pools than a thread remembers
    lower_pool lower{&upstream, std::size_t{4} << 20U};
    rmm::mr::pool_memory_resource<lower_pool> upper{&lower, std::size_t{1} << 20U};
    rmm::cuda_stream const stream;
    upper.deallocate(upper.allocate(1000, stream), 1000, stream);
    std::thread{[&] { upper.deallocate(upper.allocate(1000, stream), 1000, stream); }}.join();
  }
}

}  // namespace
