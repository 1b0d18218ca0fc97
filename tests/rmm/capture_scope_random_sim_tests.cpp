// SPDX-License-Identifier: Apache-2.0
//
// Random programs that capture, replay and release graphs beside other work on a heap or an elastic pool, under the ordering
// checker. A model knows which addresses graphs may use, and no other allocation may get those. The invariants are checked after
// each step.

#include "../support/graph.hpp"
#include "../support/random_program.hpp"
#include "../support/seeds.hpp"
#include "../support/stepped_heap.hpp"

#include <rmm/aligned.hpp>
#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::test::order;
using rmm::test::synchronize_beside_captures;

constexpr std::size_t KiB = 1024;

/// A heap whose whole state can be checked.
class bare_heap {
 public:
  static constexpr std::size_t largest        = 100 * KiB;
  static constexpr auto const& fallible_calls = rmm::test::fallible_calls;

  bare_heap(std::size_t first_block, std::size_t most) : heap_{first_block, most} {}

  [[nodiscard]] void* allocate(std::size_t bytes, rmm::cuda_stream_view stream, std::size_t /*random*/)
  {
    return heap_.allocate(bytes, stream);
  }
  void deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) { heap_.deallocate(ptr, bytes, stream); }
  [[nodiscard]] rmm::heap_figures figures() const { return heap_.figures(); }
  [[nodiscard]] bool good() const { return heap_.good(); }
  void expect_empty() const { EXPECT_TRUE(good()); }

 private:
  device_heap heap_;
};

/// An elastic pool. One part of it can be paused alone. It gives memory back, pauses and resumes at random.
class elastic_pool {
 public:
  static constexpr std::size_t chunk   = 2048 * KiB;
  static constexpr std::size_t largest = 3 * chunk;
  static constexpr std::array<char const*, 9> fallible_calls{"cuMemCreate",
                                                             "cuMemMap",
                                                             "cuMemSetAccess",
                                                             "cudaEventCreateWithFlags",
                                                             "cudaEventRecord",
                                                             "cudaEventQuery",
                                                             "cudaStreamWaitEvent",
                                                             "cudaStreamGetId",
                                                             "cudaDeviceSynchronize"};

  elastic_pool(std::size_t first_bytes, std::size_t most) : pool_{first_bytes, most}, most_{most}
  {
    pool_.set_pausable(part_);
  }

  [[nodiscard]] void* allocate(std::size_t bytes, rmm::cuda_stream_view stream, std::size_t random)
  {
    rmm::tag_scope const scope{random % 3 == 0 ? part_ : rmm::tag{}};
    return pool_.allocate(bytes, stream);
  }
  void deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) { pool_.deallocate(ptr, bytes, stream); }
  [[nodiscard]] rmm::heap_figures figures() const { return pool_.figures(); }

  [[nodiscard]] bool good() const
  {
    auto const now = pool_.figures();
    return now.live_bytes + now.free_bytes + now.graph_bytes == now.reserved_bytes &&
           pool_.mapped_bytes() == now.reserved_bytes && now.reserved_bytes <= most_ &&
           cudasim::usage(0).physical >= now.reserved_bytes;
  }

  /// Gives memory back, or pauses and resumes the pool or its part. A capture forbids pauses.
  void rearrange(std::mt19937_64& random, bool captures)
  {
    if (random() % 3 != 0) {
      given_back_ += pool_.trim_to(random() % 2 == 0 ? 0 : random() % (pool_.mapped_bytes() + 1));
    } else if (captures) {
      EXPECT_THROW(pool_.pause(), rmm::logic_error);
      EXPECT_FALSE(pool_.is_paused());
    } else {
      bool const keep = pool_.figures().live_bytes < 4 * chunk;  // copying more takes too long
      auto const how  = keep ? rmm::mr::paused_contents::kept_pageable : rmm::mr::paused_contents::dropped;
      if (random() % 2 == 0) {
        pool_.pause(how);
        pool_.resume();
      } else {
        pool_.pause(part_, how);
        pool_.resume(part_);
      }
      ++pauses_;
    }
  }

  void expect_empty()
  {
    EXPECT_TRUE(good());
    pool_.release_unused();
    EXPECT_EQ(pool_.mapped_bytes(), 0U);
    EXPECT_EQ(cudasim::usage(0).physical, 0U);
  }

  [[nodiscard]] std::size_t given_back() const noexcept { return given_back_; }
  [[nodiscard]] std::size_t pauses() const noexcept { return pauses_; }

 private:
  rmm::mr::elastic_pool_memory_resource pool_;
  rmm::tag part_{"part"};
  std::size_t most_;
  std::size_t given_back_{};
  std::size_t pauses_{};
};

template <class Heap>
class random_captures {
 public:
  random_captures(std::uint64_t seed, std::size_t first_block, std::size_t most, bool faults)
    : random_{seed}, faults_{faults}, heap_{first_block, most}
  {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      streams_[i] =
        rmm::cuda_stream{i % 2 == 0 ? rmm::cuda_stream::flags::non_blocking : rmm::cuda_stream::flags::sync_default};
    }
  }

  void run(int steps)
  {
    for (step_ = 0; step_ < steps && !::testing::Test::HasFailure(); ++step_) {
      do_something();
      ASSERT_TRUE(heap_.good()) << "step " << step_;
      ASSERT_EQ(heap_.figures().live_bytes, live_bytes_) << "step " << step_;
    }
    if (capture_) { end_capture(); }
    while (!live_.empty() && !::testing::Test::HasFailure()) { free_one(pick(live_.size())); }
    for (auto& each : memories_) { release(each); }
    EXPECT_EQ(heap_.figures().live_bytes, 0U);
    EXPECT_EQ(heap_.figures().graph_bytes, 0U);
    heap_.expect_empty();
  }

  [[nodiscard]] Heap const& heap() const noexcept { return heap_; }

  /// Returns how often memory that a capture freed was reused in that capture or a later one.
  [[nodiscard]] std::uint64_t reused() const noexcept { return reused_; }
  [[nodiscard]] std::uint64_t launches() const noexcept { return launches_; }

 private:
  struct memory;

  struct block {
    char* ptr;
    std::size_t bytes;
    std::size_t stream;       // the stream whose work used it last
    memory* of{};             // null if it belongs to no graph
    std::uint64_t capture{};  // the capture that allocated it
  };
  struct range {
    char* begin;
    std::size_t bytes;
    [[nodiscard]] bool overlaps(char* ptr, std::size_t size) const { return ptr < begin + bytes && begin < ptr + size; }
  };
  struct memory {
    std::optional<rmm::graph_memory> handle{std::in_place};
    std::vector<rmm::test::graph> graphs;
    std::vector<range> used;             // addresses that graphs use in each launch
    std::size_t last_stream{no_stream};  // the stream of the last launch
  };
  struct open_capture {
    memory* into;
    std::size_t origin;
    std::vector<std::size_t> streams;
    std::unique_ptr<rmm::capture_scope> scope;
    std::uint64_t number;
  };
  static constexpr std::size_t no_stream = 99;

  [[nodiscard]] std::size_t pick(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  [[nodiscard]] bool captures(std::size_t stream) const
  {
    return capture_ && std::count(capture_->streams.begin(), capture_->streams.end(), stream) != 0;
  }

  void do_something()
  {
    if constexpr (std::is_same_v<Heap, elastic_pool>) {
      if (pick(12) == 0) { return heap_.rearrange(random_, capture_.has_value()); }
    }
    auto const what = pick(100);
    if (what < 45) { return allocate(pick(streams_.size())); }
    if (what < 75) {
      if (!live_.empty()) { free_one(pick(live_.size())); }
      return;
    }
    if (what < 82) { return capture_ ? end_capture() : begin_capture(); }
    if (what < 85) { return join(); }
    if (what < 95) { return launch(); }
    if (what < 98) { return synchronize(pick(streams_.size())); }
    if (!capture_) { release(memories_[pick(memories_.size())]); }
  }

  void allocate(std::size_t stream)
  {
    if (live_.size() > 60) { return; }
    auto const bytes = rmm::align_up(1 + pick(pick(4) == 0 ? Heap::largest : Heap::largest / 25), 256);
    bool const in    = captures(stream);
    if (faults_ && pick(8) == 0) {
      auto const& calls = Heap::fallible_calls;
      cudasim::inject({calls[pick(calls.size())], 1 + pick(2), cudaErrorUnknown, 1});
    }
    auto* const ptr = static_cast<char*>(try_allocate(bytes, streams_[stream]));
    cudasim::clear_faults();
    if (ptr == nullptr) { return; }
    auto* const into = in ? capture_->into : nullptr;
    for (auto const& each : live_) { ASSERT_FALSE((range{each.ptr, each.bytes}.overlaps(ptr, bytes))) << step_; }
    for (auto& each : memories_) {
      for (auto const& used : each.used) {
        if (&each != into) { ASSERT_FALSE(used.overlaps(ptr, bytes)) << "memory of a graph, step " << step_; }
        reused_ += used.overlaps(ptr, bytes) ? 1U : 0U;
      }
    }
    live_bytes_ += bytes;
    live_.push_back({ptr, bytes, stream, into, in ? capture_->number : 0});
    if (in) { into->used.push_back({ptr, bytes}); }
    write(ptr, bytes, streams_[stream]);
  }

  void* try_allocate(std::size_t bytes, rmm::cuda_stream_view stream)
  {
    try {
      return heap_.allocate(bytes, stream, pick(3));
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  void free_one(std::size_t which)
  {
    auto one                  = live_[which];
    bool const in_its_capture = capture_ && one.of == capture_->into && one.capture == capture_->number;
    if (one.of != nullptr && !in_its_capture) {
      if (captures(one.stream) || captures(one.of->last_stream)) { return; }  // otherwise it would be read in a capture
      follow_launches(*one.of, one.stream);
    } else if (captures(one.stream) && one.of == nullptr) {
      capture_->into->used.push_back({one.ptr, one.bytes});  // the graph frees it, and so uses it
    }
    write(one.ptr, one.bytes, streams_[one.stream]);
    live_[which] = live_.back();
    live_.pop_back();
    live_bytes_ -= one.bytes;
    heap_.deallocate(one.ptr, one.bytes, streams_[one.stream]);
    if (one.of != nullptr && !in_its_capture) { one.of->last_stream = one.stream; }  // orders the next launch after it
  }

  void begin_capture()
  {
    auto const stream = pick(streams_.size());
    synchronize_beside_captures(streams_[stream]);  // the graph can run on any stream, so earlier work must be done
    auto& into = memories_[pick(memories_.size())];
    if (!into.handle) { into.handle.emplace(); }
    ASSERT_EQ(cudaStreamBeginCapture(streams_[stream].value(), cudaStreamCaptureModeGlobal), cudaSuccess);
    capture_.emplace(open_capture{
      &into, stream, {stream}, std::make_unique<rmm::capture_scope>(streams_[stream], *into.handle), ++captures_});
  }

  void join()
  {
    if (!capture_) { return; }
    auto const stream = pick(streams_.size());
    if (captures(stream)) { return; }
    synchronize_beside_captures(streams_[stream]);  // earlier work must be done
    order(streams_[capture_->origin], streams_[stream]);
    capture_->streams.push_back(stream);
  }

  void end_capture()
  {
    for (auto const stream : capture_->streams) {
      if (stream != capture_->origin) { order(streams_[stream], streams_[capture_->origin]); }
    }
    cudaGraph_t made{};
    auto const ended = std::exchange(capture_, std::nullopt);
    ASSERT_EQ(cudaStreamEndCapture(streams_[ended->origin].value(), &made), cudaSuccess) << "step " << step_;
    ended->into->graphs.emplace_back(made);
  }

  /// Orders a stream after the last launch, because graphs that share memory must not run at the same time.
  void follow_launches(memory& of, std::size_t stream)
  {
    if (of.last_stream != no_stream && of.last_stream != stream) { order(streams_[of.last_stream], streams_[stream]); }
    of.last_stream = stream;
  }

  void launch()
  {
    auto& of          = memories_[pick(memories_.size())];
    auto const stream = pick(streams_.size());
    if (capture_ || of.graphs.empty()) { return; }
    follow_launches(of, stream);
    of.graphs[pick(of.graphs.size())].launch(streams_[stream]);
    ++launches_;
  }

  void synchronize(std::size_t stream)
  {
    if (!captures(stream)) { synchronize_beside_captures(streams_[stream]); }
  }

  void release(memory& which)
  {
    if (!which.handle) { return; }
    for (auto& each : live_) {  // memory that graphs left belongs to its owner again, in the order of its stream
      if (each.of == &which) {
        follow_launches(which, each.stream);
        each.of = nullptr;
      }
    }
    which.graphs.clear();
    which.used.clear();
    if (which.last_stream != no_stream && pick(2) == 0) { which.handle->release(streams_[which.last_stream]); }
    which.handle.reset();
    which.last_stream = no_stream;
  }

  std::mt19937_64 random_;
  bool faults_;
  std::array<rmm::cuda_stream, 4> streams_;
  Heap heap_;
  std::vector<block> live_;
  std::size_t live_bytes_{};
  std::array<memory, 2> memories_;
  std::optional<open_capture> capture_;
  std::uint64_t captures_{};
  std::uint64_t launches_{};
  std::uint64_t reused_{};
  int step_{};
};

struct CaptureRandomSim : Stepped {
  template <class Heap = bare_heap>
  static void run(std::uint64_t programs, std::size_t first_block, std::size_t most, bool faults = false)
  {
    std::uint64_t reused{};
    std::uint64_t launches{};
    std::uint64_t given_back{};
    std::uint64_t pauses{};
    rmm::test::for_each_seed(programs, [&](std::uint64_t seed) {
      begin(seed);
      random_captures<Heap> program{seed, first_block, most, faults};
      program.run(1500);
      reused += program.reused();
      launches += program.launches();
      if constexpr (std::is_same_v<Heap, elastic_pool>) {
        given_back += program.heap().given_back();
        pauses += program.heap().pauses();
      }
      for (auto const& violation : cudasim::violations()) { ADD_FAILURE() << violation.text; }
      cudasim::clear_violations();
    });
    EXPECT_GT(reused, 0U);
    EXPECT_GT(launches, 0U);
    EXPECT_EQ(given_back != 0 && pauses != 0, (std::is_same_v<Heap, elastic_pool>));
  }
};

TEST_F(CaptureRandomSim, HoldsOnAHeapWithRoom) { run(12, 16 * 1024 * KiB, 16 * 1024 * KiB); }

TEST_F(CaptureRandomSim, HoldsOnATightHeap) { run(16, 512 * KiB, 1536 * KiB); }

TEST_F(CaptureRandomSim, HoldsOnAHeapOfManyBlocks) { run(12, 0, 4 * 1024 * KiB); }

TEST_F(CaptureRandomSim, HoldsWhenCallsOfTheRuntimeFail) { run(16, 256 * KiB, 2 * 1024 * KiB, true); }

TEST_F(CaptureRandomSim, HoldsOnAnElasticPoolWithRoom)
{
  run<elastic_pool>(12, 16 * elastic_pool::chunk, 200 * elastic_pool::chunk);
}

TEST_F(CaptureRandomSim, HoldsOnATightElasticPool) { run<elastic_pool>(16, 0, 24 * elastic_pool::chunk); }

TEST_F(CaptureRandomSim, HoldsOnAnElasticPoolWhenCallsOfTheDriverFail)
{
  run<elastic_pool>(16, 0, 40 * elastic_pool::chunk, true);
}

}  // namespace
