// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pattern_kernels.cuh"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace rmm::test {

/// A block of memory and the pattern of its owner.
struct owned_block {
  void* ptr;
  std::size_t bytes;
  cuda_stream_view stream;
  std::uint32_t pattern;

  void fill() const { fill_kernel<<<grid(), 256, 0, stream.value()>>>(words(), count(), pattern); }
  void verify(unsigned long long* foreign) const
  {
    verify_kernel<<<grid(), 256, 0, stream.value()>>>(words(), count(), pattern, foreign);
  }

 private:
  [[nodiscard]] std::uint32_t* words() const { return static_cast<std::uint32_t*>(ptr); }
  [[nodiscard]] std::size_t count() const { return bytes / sizeof(std::uint32_t); }
  [[nodiscard]] unsigned grid() const { return static_cast<unsigned>(std::min<std::size_t>(count() / 256 + 1, 64)); }
};

/// What threads are in during each step, and one can keep all others out of.
class gate {
 public:
  class pass {
   public:
    explicit pass(gate& through) : gate_{through}
    {
      for (++gate_.inside_; gate_.closed_; ++gate_.inside_) {
        --gate_.inside_;
        while (gate_.closed_) { std::this_thread::yield(); }
      }
    }
    pass(pass const&)            = delete;
    pass& operator=(pass const&) = delete;
    ~pass() { --gate_.inside_; }

   private:
    gate& gate_;
  };

  /// Calls `what` while nobody is inside. For one thread at a time.
  template <class What>
  void alone(What what)
  {
    closed_ = true;
    while (inside_ != 0) { std::this_thread::yield(); }
    what();
    closed_ = false;
  }

 private:
  std::atomic<bool> closed_{false};
  std::atomic<int> inside_{0};
};

/// Threads that allocate, fill, verify and free blocks of one resource on many streams, for some time.
class owner_threads {
 public:
  struct counts {
    std::uint64_t steps;         ///< of all threads
    std::uint64_t allocations;   ///< that were served
    std::uint64_t failures;      ///< for want of memory
    std::uint64_t streams;       ///< that ended, most of them with work pending
    unsigned long long foreign;  ///< words that were not what their owner had written
  };

  /// Blocks of up to `largest` bytes. The streams belong to the current device.
  owner_threads(mr::device_memory_resource& mr, std::size_t largest)
    : owner_threads{mr, largest, {rmm::get_current_cuda_device().value()}}
  {}

  /// The first thread uses streams of the first device, the second those of the second, and so on in turn. If `current_elsewhere` is
  /// given, that device is current whenever a thread allocates or frees.
  owner_threads(mr::device_memory_resource& mr,
                std::size_t largest,
                std::vector<int> const& devices,
                std::optional<int> current_elsewhere = {})
    : mr_{&mr}, largest_{largest}, elsewhere_{current_elsewhere}
  {
    for (auto const device : devices) {
      cuda_set_device_raii const there{cuda_device_id{device}};
      places_.push_back({device, nullptr, std::vector<cuda_stream>(2)});
      EXPECT_EQ(cudaMalloc(&places_.back().foreign, sizeof(unsigned long long)), cudaSuccess);
      EXPECT_EQ(cudaMemset(places_.back().foreign, 0, sizeof(unsigned long long)), cudaSuccess);
    }
  }
  owner_threads(owner_threads const&)            = delete;
  owner_threads& operator=(owner_threads const&) = delete;
  ~owner_threads()
  {
    for (auto& each : places_) {
      cuda_set_device_raii const there{cuda_device_id{each.device}};
      EXPECT_EQ(cudaFree(each.foreign), cudaSuccess);
      each.shared.clear();
    }
  }

  /// Lets one in ten blocks have this size.
  void set_frequent_size(std::size_t bytes) { frequent_ = bytes; }

  /// Uses a block on a stream of the calling thread, while the threads run. Returns false if there is no memory for it.
  bool use_block(std::size_t bytes, cuda_stream_view stream)
  {
    owned_block block{nullptr, bytes, stream, static_cast<std::uint32_t>(bytes)};
    try {
      block.ptr = allocate(bytes, stream);
    } catch (std::bad_alloc const&) {
      ++failures_;
      return false;
    }
    block.fill();
    block.verify(places_.front().foreign);
    deallocate(block);
    return true;
  }

  /// What each thread is in during a step.
  [[nodiscard]] gate& steps() { return gate_; }

  /// The calling thread calls `beside` over and over meanwhile.
  counts run(std::uint64_t thread_count, std::chrono::duration<double> time, std::function<void()> const& beside = {})
  {
    using std::chrono::steady_clock;
    auto const end = steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(time);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < thread_count; ++t) {
      threads.emplace_back([&, t] {
        auto const& where = places_[t % places_.size()];
        if (t % 4 != 0) { return use(t, where, end); }
        for (std::uint64_t part = 0; steady_clock::now() < end; ++part) {  // threads that come and go
          auto const soon = std::min(end, steady_clock::now() + std::chrono::milliseconds{50});
          std::thread{[&] { use(100 * (t + 1) + part, where, soon); }}.join();
        }
      });
    }
    while (beside && steady_clock::now() < end) { beside(); }
    for (auto& thread : threads) { thread.join(); }
    unsigned long long foreign{};
    for (auto const& each : places_) { foreign += count_foreign(each); }
    return {steps_, allocations_, failures_, streams_, foreign};
  }

 private:
  struct place {
    int device;
    unsigned long long* foreign;      // in memory of that device
    std::vector<cuda_stream> shared;  // by all threads that use the device
  };

  /// Words that kernels of this device found changed, once all of them have ended.
  [[nodiscard]] static unsigned long long count_foreign(place const& where)
  {
    cuda_set_device_raii const there{cuda_device_id{where.device}};
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    unsigned long long foreign{};
    EXPECT_EQ(cudaMemcpy(&foreign, where.foreign, sizeof foreign, cudaMemcpyDefault), cudaSuccess);
    return foreign;
  }

  /// Makes another device current for a call of the resource, if the test asks for that.
  [[nodiscard]] std::optional<cuda_set_device_raii> be_elsewhere() const
  {
    if (!elsewhere_) { return std::nullopt; }
    return std::optional<cuda_set_device_raii>{std::in_place, cuda_device_id{*elsewhere_}};
  }

  [[nodiscard]] void* allocate(std::size_t bytes, cuda_stream_view stream)
  {
    auto const elsewhere = be_elsewhere();
    return mr_->allocate(bytes, stream);
  }

  void deallocate(owned_block const& block)
  {
    auto const elsewhere = be_elsewhere();
    mr_->deallocate(block.ptr, block.bytes, block.stream);
  }

  /// A thread: streams of its own, some of which end with work pending, and streams that all threads use.
  void use(std::uint64_t seed, place const& where, std::chrono::steady_clock::time_point end)
  {
    ASSERT_EQ(cudaSetDevice(where.device), cudaSuccess);
    auto const& shared = where.shared;
    std::mt19937_64 random{seed};
    auto const pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<cuda_stream> mine(3);
    cudaStream_t raw{};
    ASSERT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess);
    std::vector<owned_block> live;
    auto const free_block = [&](std::size_t which) {
      auto const b = live[which];
      live[which]  = live.back();
      live.pop_back();
      b.verify(where.foreign);
      deallocate(b);
    };
    auto const free_all_of = [&](cuda_stream_view stream) {
      for (auto i = live.size(); i-- > 0;) {
        if (live[i].stream == stream) { free_block(i); }
      }
    };
    auto const any_stream = [&]() -> cuda_stream_view {
      switch (pick(8)) {
        case 0:  // names a stream of the device that is current
          return elsewhere_ ? mine.front().view() : cuda_stream_per_thread;
        case 1:
          return cuda_stream_view{raw};
        case 2:
        case 3:
          return shared[pick(shared.size())].view();
        default:
          return mine[pick(mine.size())].view();
      }
    };
    for (std::uint64_t step = 0; step % 64 != 0 || std::chrono::steady_clock::now() < end; ++step) {
      gate::pass const inside{gate_};
      auto const what = pick(100);
      if (what < 50 && live.size() < 100) {
        auto const kind  = pick(10);
        auto const most  = kind < 9 ? std::min(largest_, std::size_t{1} << 17U) : largest_;
        auto const other = kind < 6 ? 256 * (1 + pick(16)) : 4 + pick(most - 3);
        auto const bytes = kind == 8 && frequent_ != 0 ? frequent_ : other;
        auto const s     = any_stream();
        try {
          live.push_back({nullptr, bytes, s, static_cast<std::uint32_t>(random())});
          live.back().ptr = allocate(bytes, s);
          live.back().fill();
          ++allocations_;
        } catch (std::bad_alloc const&) {
          live.pop_back();
          ++failures_;
          while (live.size() > 20) { free_block(pick(live.size())); }
        }
      } else if (what < 96) {
        if (!live.empty()) { free_block(pick(live.size())); }
      } else if (what < 98) {
        auto& ends = mine[pick(mine.size())];
        free_all_of(ends);
        ends = cuda_stream{cuda_stream::flags::non_blocking};
        ++streams_;
      } else if (what == 98) {
        free_all_of(cuda_stream_view{raw});
        ASSERT_EQ(cudaStreamDestroy(raw), cudaSuccess);
        ASSERT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess);
        ++streams_;
      } else {
        mine[pick(mine.size())].synchronize();
      }
      ++steps_;
    }
    gate::pass const inside{gate_};
    while (!live.empty()) { free_block(live.size() - 1); }
    ASSERT_EQ(cudaStreamDestroy(raw), cudaSuccess);
  }

  mr::device_memory_resource* mr_;
  std::size_t largest_;
  std::size_t frequent_{};
  std::optional<int> elsewhere_;
  std::vector<place> places_;
  gate gate_;
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> allocations_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> streams_{0};
};

}  // namespace rmm::test
