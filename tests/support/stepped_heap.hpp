// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulated.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/detail/stream/stream_ordered_heap_validation.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/recovery_ladder.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>
#include <rmm/recovery.hpp>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// A machine in stepped mode, under the ordering checker.
struct Stepped : Simulated {
  Stepped() { begin(0); }  // before members of derived tests
  void SetUp() override {}

  static void begin(std::uint64_t seed, int devices = 1)
  {
    cudasim::options machine;
    machine.devices        = devices;
    machine.mode           = cudasim::execution::stepped;
    machine.seed           = seed;
    machine.check_ordering = true;
    start(machine);
  }
};

/// A heap on device memory that grows like a pool with a maximum, with access to what a pool hides.
class device_heap : private rmm::mr::detail::recovery_rungs {
 public:
  explicit device_heap(std::size_t first_block, std::size_t most = 0) : most_{std::max(first_block, most)}
  {
    if (first_block != 0) {
      blocks_.add(rmm::align_up(first_block, rmm::CUDA_ALLOCATION_ALIGNMENT), 0, rmm::cuda_stream_legacy);
      rmm::cuda_stream_legacy.synchronize();
      heap_.settle();
    }
  }

  device_heap(device_heap const&)            = delete;
  device_heap& operator=(device_heap const&) = delete;

  /// Climbs the whole recovery ladder; returns null if there is no room for `bytes` anywhere.
  [[nodiscard]] void* allocate(std::size_t bytes, rmm::cuda_stream_view stream)
  {
    if (void* const ptr = heap_.try_allocate(bytes, stream)) { return ptr; }
    rmm::mr::detail::recovery_attempt climbing{bytes, stream};
    return ladder_.climb(heap_, *this, climbing, rmm::align_up(bytes, rmm::CUDA_ALLOCATION_ALIGNMENT));
  }

  /// Allocates only what needs neither growth nor waiting.
  [[nodiscard]] void* try_allocate(std::size_t bytes, rmm::cuda_stream_view stream)
  {
    return heap_.try_allocate(bytes, stream);
  }

  void deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) { heap_.deallocate(ptr, bytes, stream); }

  /// Uses blocks of many sizes from 1 to 8 MiB until memory is ample, so that caches serve such blocks (cache_set::note_scarcity()). Requires
  /// a heap of at least 512 MiB that is mostly free.
  void make_ample()
  {
    std::vector<rmm::cuda_stream> const streams(2);
    for (std::size_t i = 0; i != 1500; ++i) {
      auto const bytes  = (std::size_t{1} << 20) + 256 * (1 + i * 7919 % 28000);
      auto const& where = streams[i % 2];
      deallocate(try_allocate(bytes, where), bytes, where);
    }
  }

  [[nodiscard]] rmm::detail::stream_ordered_heap& heap() noexcept { return heap_; }
  /// Leaves `bytes` bytes live for the life of the heap. figures() do not count them.
  void take_out(std::size_t bytes)
  {
    EXPECT_NE(try_allocate(bytes, rmm::cuda_stream_legacy), nullptr);
    taken_out_ += bytes;
  }

  [[nodiscard]] rmm::heap_figures figures() const
  {
    auto now = heap_.figures();
    now.live_bytes -= taken_out_;
    return now;
  }
  [[nodiscard]] bool good() const { return heap_.check_invariants(); }

 private:
  [[nodiscard]] void* try_grow(std::size_t bytes,
                               rmm::cuda_stream_view stream,
                               rmm::mr::detail::failure_reason& reason) override
  {
    return blocks_.grow({blocks_.room() / 2, bytes, blocks_.room()}, stream, reason);
  }

  std::size_t most_;
  std::size_t taken_out_{};
  rmm::mr::cuda_memory_resource cuda_;
  rmm::mr::detail::suballocator_upstream<rmm::mr::cuda_memory_resource> upstream_{&cuda_};
  rmm::detail::stream_ordered_heap heap_;
  rmm::mr::detail::block_source<rmm::mr::cuda_memory_resource> blocks_{heap_, upstream_, most_};
  rmm::mr::detail::recovery_ladder ladder_{{rmm::recovery_rung::grow, rmm::recovery_rung::synchronize}};
};

/// Queues work of `stream` that writes to the block.
inline void write(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream, char const* name = "owner")
{
  ASSERT_EQ(cudasim::launch(stream.value(), {}, {{ptr, bytes}}, {}, {name}), cudaSuccess);
}
