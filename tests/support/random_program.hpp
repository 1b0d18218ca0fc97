// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stepped_heap.hpp"
#include "worker.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace rmm::test {

/// Calls of the runtime that a heap makes, and that may fail.
inline constexpr std::array<char const*, 7> fallible_calls{"cudaMalloc",
                                                           "cudaEventCreateWithFlags",
                                                           "cudaEventRecord",
                                                           "cudaEventQuery",
                                                           "cudaStreamWaitEvent",
                                                           "cudaStreamGetId",
                                                           "cudaDeviceSynchronize"};

/// The source of memory of a random program.
class memory_source {
 public:
  memory_source()                                = default;
  memory_source(memory_source const&)            = delete;
  memory_source& operator=(memory_source const&) = delete;
  virtual ~memory_source()                       = default;

  /// Allocates; returns null if there is no room.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, cuda_stream_view stream)        = 0;
  virtual void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept = 0;

  /// Checks the visible state. `live` is the sum of allocated bytes, each allocation rounded up to 256.
  virtual void check(std::size_t live, bool thoroughly) = 0;

  /// Called after a request was refused without a fault.
  virtual void check_refusal(std::size_t bytes) = 0;

  /// Makes another call that a program may make at any time, for example to give memory back.
  virtual void rearrange(std::mt19937_64& /*random*/) {}
};

/// A heap that shows its whole state.
class bare_heap final : public memory_source {
 public:
  explicit bare_heap(std::size_t first_block, std::size_t most = 0) : heap_{first_block, most} {}

  [[nodiscard]] void* allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    try {
      return heap_.allocate(bytes, stream);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }
  void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override
  {
    heap_.deallocate(ptr, bytes, stream);
  }
  void check(std::size_t live, bool thoroughly) override
  {
    if (thoroughly) { EXPECT_TRUE(heap_.good()); }
    EXPECT_EQ(heap_.figures().live_bytes, live);
  }
  void check_refusal(std::size_t bytes) override { EXPECT_LT(heap_.figures().largest_free_bytes, bytes); }

  [[nodiscard]] device_heap& heap() noexcept { return heap_; }

 private:
  device_heap heap_;
};

/// A resource with figures, over device memory. It is `exact` if blocks are not larger than requests.
template <class Resource>
class resource_source final : public memory_source {
 public:
  template <class Make>
  explicit resource_source(Make make, bool exact = true) : resource_{make(&upstream_)}, exact_{exact}
  {}

  [[nodiscard]] void* allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    try {
      return resource_->allocate(bytes, stream);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }
  void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override
  {
    resource_->deallocate(ptr, bytes, stream);
  }
  void check(std::size_t live, bool) override
  {
    auto const now   = resource_->figures();
    auto const whole = now.live_bytes + now.free_bytes;
    EXPECT_LE(whole, now.reserved_bytes);
    EXPECT_LE(now.reserved_bytes - whole, 255 * now.upstream_blocks);
    if (exact_) { EXPECT_EQ(now.live_bytes, live); }
  }
  void check_refusal(std::size_t bytes) override { EXPECT_LT(resource_->figures().largest_free_bytes, bytes); }

 private:
  mr::cuda_memory_resource upstream_;
  std::unique_ptr<Resource> resource_;
  bool exact_;
};

/// A random program of several threads, streams and devices, whose steps happen in one order. Work of the owning stream
/// writes every block when it is allocated, and again before it is freed.
class random_program {
 public:
  struct options {
    std::size_t threads{2};
    std::size_t streams{3};  ///< streams of each device, besides the default ones
    int steps{1000};
    int between_checks{8};            ///< steps between checks of the whole heap's invariants
    std::size_t largest{100 * 1024};  ///< bytes of the largest block
    std::size_t frequent{};           ///< bytes that are allocated and freed many times in a row; 0: none are
    std::size_t whole{};              ///< bytes of a block that is sometimes allocated after that
    std::size_t most_live{300};       ///< live blocks
    bool threads_end{true};
    bool rearranges{false};  ///< sometimes calls memory_source::rearrange()

    /// Called before each allocation and deallocation, to inject a fault.
    std::function<void(std::mt19937_64&)> arm;
    /// Called after each, to end the fault. Returns whether something failed.
    std::function<bool()> disarm;
  };

  /// Makes some calls of the runtime fail.
  static void let_the_runtime_fail(options& how)
  {
    how.arm = [](std::mt19937_64& random) {
      if (random() % 4 != 0) { return; }
      cudasim::inject(
        {fallible_calls[random() % fallible_calls.size()], 1 + random() % 3, cudaErrorUnknown, 1 + random() % 2});
    };
    how.disarm = [before = std::uint64_t{0}]() mutable {
      cudasim::clear_faults();
      return std::exchange(before, cudasim::faults_fired()) != cudasim::faults_fired();
    };
  }

  /// Takes a source for each device.
  random_program(std::uint64_t seed, options const& how, std::vector<std::unique_ptr<memory_source>> sources)
    : random_{seed}, how_{how}, sources_{std::move(sources)}, live_bytes_(sources_.size()), addresses_(sources_.size())
  {
    for (std::size_t i = 0; i < how_.threads; ++i) { threads_.push_back(std::make_unique<worker>()); }
    for (std::size_t device = 0; device < sources_.size(); ++device) {
      for (std::size_t i = 0; i < how_.streams; ++i) {
        streams_.push_back({});
        streams_.back().device = device;
        begin_stream(streams_.back());
      }
      for (auto const kind : {handle::legacy, handle::per_thread, handle::unnamed}) {
        streams_.push_back({});
        streams_.back().device = device;
        streams_.back().kind   = kind;
      }
    }
    for (auto& size : favourites_) { size = 1 + pick(how_.largest / (1 + pick(40))); }
  }

  random_program(random_program const&)            = delete;
  random_program& operator=(random_program const&) = delete;

  ~random_program()
  {
    if (pick(2) == 0) { threads_.clear(); }  // else the sources end before their threads
    for (std::size_t device = 0; device < sources_.size(); ++device) {
      set_device(device);
      sources_[device].reset();
    }
    threads_.clear();
    for (auto& each : streams_) { end_stream(each); }
    set_device(0);
  }

  /// Runs all steps, then frees all that is live. Ends early on a failure.
  void run()
  {
    for (step_ = 0; step_ < how_.steps && good(); ++step_) { do_something(); }
    while (!live_.empty() && good()) { free_one(pick(live_.size())); }
    if (!good()) { return; }
    step_ = 0;  // makes check() thorough
    check();
  }

  [[nodiscard]] memory_source& source(std::size_t device = 0) { return *sources_[device]; }

  /// For each device, calls visit(memory_source&, device) in one of the threads.
  template <class Visit>
  void for_each_source(Visit visit)
  {
    for (std::size_t device = 0; device < sources_.size(); ++device) {
      in(pick(threads_.size()), device, [&] { visit(*sources_[device], device); });
    }
  }

 private:
  enum class handle { known, raw, legacy, per_thread, unnamed };

  struct stream_slot {
    std::size_t device{};
    handle kind{handle::known};
    std::optional<cuda_stream> known;
    cudaStream_t raw{};
  };

  struct block {
    void* ptr;
    std::size_t bytes;
    std::size_t stream;  // its slot
    std::size_t thread;  // the last one that used it
  };

  [[nodiscard]] std::size_t pick(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }

  [[nodiscard]] static cuda_stream_view view(stream_slot const& slot)
  {
    switch (slot.kind) {
      case handle::known:
        return slot.known->view();
      case handle::raw:
        return cuda_stream_view{slot.raw};
      case handle::legacy:
        return cuda_stream_legacy;
      case handle::per_thread:
        return cuda_stream_per_thread;
      default:
        return cuda_stream_view{};
    }
  }

  /// Whether the handle names a different stream in each thread.
  [[nodiscard]] static bool is_threads(stream_slot const& slot)
  {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    return slot.kind == handle::per_thread || slot.kind == handle::unnamed;
#else
    return slot.kind == handle::per_thread;
#endif
  }

  static void set_device(std::size_t device) { EXPECT_EQ(cudaSetDevice(static_cast<int>(device)), cudaSuccess); }

  void begin_stream(stream_slot& slot)
  {
    set_device(slot.device);
    bool const non_blocking = pick(2) == 0;
    if (pick(2) == 0) {
      slot.kind = handle::known;
      slot.known.emplace(non_blocking ? cuda_stream::flags::non_blocking : cuda_stream::flags::sync_default);
    } else {
      slot.kind = handle::raw;
      EXPECT_EQ(cudaStreamCreateWithFlags(&slot.raw, non_blocking ? cudaStreamNonBlocking : cudaStreamDefault),
                cudaSuccess);
    }
  }

  static void end_stream(stream_slot& slot)
  {
    if (slot.kind == handle::known) { slot.known.reset(); }
    if (slot.kind == handle::raw) { EXPECT_EQ(cudaStreamDestroy(slot.raw), cudaSuccess); }
  }

  template <class Task>
  void in(std::size_t thread, std::size_t device, Task task)
  {
    threads_[thread]->run([&] {
      set_device(device);
      task();
    });
  }

  [[nodiscard]] bool good()
  {
    auto const found = cudasim::violations();
    if (!found.empty()) {
      ADD_FAILURE() << "step " << step_ << ": " << found[0].text;
      cudasim::clear_violations();
    }
    return !::testing::Test::HasFailure();
  }

  void do_something()
  {
    auto const what = pick(100);
    if (what < 30) {
      allocate(1, some_size(), pick(streams_.size()), pick(threads_.size()));
    } else if (what < 56) {
      if (!live_.empty()) { free_one(pick(live_.size())); }
    } else if (what < 61) {  // many blocks of one size, on one stream
      allocate(pick(90), some_size(), pick(streams_.size()), pick(threads_.size()));
    } else if (what < 65) {  // the newest blocks, each on its stream
      auto const least = live_.size() - std::min(pick(90), live_.size());
      free_if(pick(threads_.size()), [&](std::size_t which) { return which >= least; });
    } else if (what < 68) {  // all blocks of one stream
      auto const stream = pick(streams_.size());
      free_if(pick(threads_.size()), [&](std::size_t which) { return live_[which].stream == stream; });
    } else if (what < 80) {
      for (auto n = pick(20); n-- > 0 && cudasim::step();) {}
    } else if (what < 84) {
      auto const stream = pick(streams_.size());
      in(pick(threads_.size()), streams_[stream].device, [&] { view(streams_[stream]).synchronize(); });
    } else if (what == 84) {
      in(pick(threads_.size()), pick(sources_.size()), [] { EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess); });
    } else if (what < 89) {
      replace_stream();
    } else if (what < 91 && how_.threads_end) {
      replace_thread(pick(threads_.size()));
    } else if (what < 96 && how_.rearranges) {
      auto const device = pick(sources_.size());
      in(pick(threads_.size()), device, [&] {
        arm();
        sources_[device]->rearrange(random_);
        static_cast<void>(disarm());
      });
    } else if (what >= 96 && how_.frequent != 0) {
      auto const thread = pick(threads_.size());
      auto const stream = pick(streams_.size());
      for (auto n = pick(40); n-- > 0 && use_block(how_.frequent, stream, thread);) {}
      if (pick(2) == 0) { static_cast<void>(use_block(how_.whole, pick(streams_.size()), pick(threads_.size()))); }
    }
    check();
  }

  /// Allocates and frees a block. Returns false if the request is refused.
  [[nodiscard]] bool use_block(std::size_t bytes, std::size_t stream, std::size_t thread)
  {
    auto const before = live_.size();
    allocate(1, bytes, stream, thread);
    if (live_.size() == before) { return false; }
    in(thread, streams_[stream].device, [&] { free_here(before); });
    return true;
  }

  [[nodiscard]] std::size_t some_size()
  {
    switch (pick(8)) {
      case 0:
        return 1 + pick(how_.largest);
      case 1:
        return 1 + pick(2048);
      case 2:
        return 1 + pick(64 * 1024 < how_.largest ? 64 * 1024 : how_.largest);
      default:
        return favourites_[pick(favourites_.size())];
    }
  }

  void arm()
  {
    if (how_.arm) { how_.arm(random_); }
  }
  [[nodiscard]] bool disarm() { return how_.disarm && how_.disarm(); }

  void allocate(std::size_t count, std::size_t bytes, std::size_t stream, std::size_t thread)
  {
    auto const device = streams_[stream].device;
    in(thread, device, [&] {
      auto const s = view(streams_[stream]);
      for (; count > 0 && live_.size() < how_.most_live; --count) {
        arm();
        void* const ptr   = sources_[device]->allocate(bytes, s);
        bool const failed = disarm();
        if (ptr == nullptr) {
          if (!failed) { sources_[device]->check_refusal(align_up(bytes, 256)); }
          return;
        }
        note(device, ptr, bytes);
        live_.push_back({ptr, bytes, stream, thread});
        write(ptr, bytes, s, "new owner");
      }
    });
  }

  void note(std::size_t device, void* ptr, std::size_t bytes)
  {
    auto const begin = reinterpret_cast<std::uintptr_t>(ptr);
    EXPECT_EQ(begin % 256, 0U);
    live_bytes_[device] += align_up(bytes, 256);
    auto const [at, added] = addresses_[device].emplace(begin, align_up(bytes, 256));
    ASSERT_TRUE(added) << "handed out twice, step " << step_;
    auto const next = std::next(at);
    if (next != addresses_[device].end()) { EXPECT_LE(begin + at->second, next->first) << "overlap, step " << step_; }
    if (at != addresses_[device].begin()) {
      auto const before = std::prev(at);
      EXPECT_LE(before->first + before->second, begin) << "overlap, step " << step_;
    }
  }

  /// Frees a block on its stream, from any thread, or on another stream that waits for it.
  void free_one(std::size_t which)
  {
    auto const device = streams_[live_[which].stream].device;
    auto const thread = pick(threads_.size());
    auto const stream = pick(4) == 0 ? pick(streams_.size()) : live_[which].stream;
    hand_over(live_[which], streams_[stream].device == device ? stream : live_[which].stream, thread);
    in(thread, device, [&] { free_here(which); });
  }

  /// Frees, in one thread, all blocks for which `chosen(index)` is true, newest first.
  template <class Chosen>
  void free_if(std::size_t thread, Chosen chosen)
  {
    for (std::size_t device = 0; device < sources_.size(); ++device) {
      auto const is_meant = [&](std::size_t i) { return streams_[live_[i].stream].device == device && chosen(i); };
      for (std::size_t i = 0; i < live_.size(); ++i) {
        if (is_meant(i)) { hand_over(live_[i], live_[i].stream, thread); }
      }
      in(thread, device, [&] {
        for (auto i = live_.size(); i-- > 0;) {
          if (is_meant(i)) { free_here(i); }
        }
      });
    }
  }

  /// Frees a block in the calling thread.
  void free_here(std::size_t which)
  {
    auto const freed  = live_[which];
    auto const device = streams_[freed.stream].device;
    auto const s      = view(streams_[freed.stream]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(which));
    live_bytes_[device] -= align_up(freed.bytes, 256);
    addresses_[device].erase(reinterpret_cast<std::uintptr_t>(freed.ptr));
    write(freed.ptr, freed.bytes, s, "old owner");
    arm();
    sources_[device]->deallocate(freed.ptr, freed.bytes, s);
    static_cast<void>(disarm());
  }

  /// Makes later work of `stream`, as `thread` names it, come after the work on the block.
  void hand_over(block& given, std::size_t stream, std::size_t thread)
  {
    bool const same = given.stream == stream && (given.thread == thread || !is_threads(streams_[stream]));
    if (!same) {
      auto const device = streams_[stream].device;
      cudaEvent_t event{};
      in(given.thread, device, [&] {
        EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
        EXPECT_EQ(cudaEventRecord(event, view(streams_[given.stream]).value()), cudaSuccess);
      });
      in(thread, device, [&] {
        EXPECT_EQ(cudaStreamWaitEvent(view(streams_[stream]).value(), event, 0), cudaSuccess);
        EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
      });
    }
    given.stream = stream;
    given.thread = thread;
  }

  /// Destroys a stream with pending work and makes another, mostly with the same handle. Frees or moves its blocks.
  void replace_stream()
  {
    auto const which = pick(streams_.size());
    if (streams_[which].kind != handle::known && streams_[which].kind != handle::raw) { return; }
    if (pick(2) == 0) {
      free_if(pick(threads_.size()), [&](std::size_t i) { return live_[i].stream == which; });
    }
    for (auto& each : live_) {
      if (each.stream != which) { continue; }
      auto to = pick(streams_.size());
      while (to == which || streams_[to].device != streams_[which].device) { to = (to + 1) % streams_.size(); }
      hand_over(each, to, each.thread);
    }
    in(pick(threads_.size()), streams_[which].device, [&] {
      end_stream(streams_[which]);
      begin_stream(streams_[which]);
    });
  }

  void replace_thread(std::size_t which)
  {
    for (auto& each : live_) {  // the thread's own streams end with it
      if (each.thread != which) { continue; }
      if (is_threads(streams_[each.stream])) {
        auto to = each.stream;
        while (is_threads(streams_[to]) || streams_[to].device != streams_[each.stream].device) {
          to = (to + 1) % streams_.size();
        }
        hand_over(each, to, which);
      }
    }
    threads_[which] = std::make_unique<worker>();
  }

  void check()
  {
    for (std::size_t device = 0; device < sources_.size(); ++device) {
      sources_[device]->check(live_bytes_[device], step_ % how_.between_checks == 0);
      if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "step " << step_;
        return;
      }
    }
  }

  std::mt19937_64 random_;
  options how_;
  std::vector<std::unique_ptr<memory_source>> sources_;
  std::vector<std::size_t> live_bytes_;
  std::vector<std::map<std::uintptr_t, std::size_t>> addresses_;
  std::vector<std::unique_ptr<worker>> threads_;
  std::vector<stream_slot> streams_;
  std::array<std::size_t, 6> favourites_{};
  std::vector<block> live_;
  int step_{};
};

}  // namespace rmm::test
