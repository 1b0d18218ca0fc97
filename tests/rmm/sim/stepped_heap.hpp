// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulated.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/stream/heap_validation.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/mr/detail/recovery_ladder.hpp>
#include <rmm/recovery.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

/// A machine whose work runs only when it has to, under the ordering checker.
struct Stepped : Simulated {
  Stepped() { begin(0); }  // before members of tests
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

/// A heap on device memory that grows like a pool with a maximum, and shows what a pool hides.
class device_heap : private rmm::mr::detail::recovery_rungs {
 public:
  explicit device_heap(std::size_t first_block, std::size_t most = 0) : most_{std::max(first_block, most)}
  {
    if (first_block != 0) {
      static_cast<void>(add_block(first_block, 0, rmm::cuda_stream_legacy));
      rmm::cuda_stream_legacy.synchronize();
      heap_.settle();
    }
  }

  ~device_heap()
  {
    heap_.release_blocks([](void* block, std::size_t) { EXPECT_EQ(cudaFree(block), cudaSuccess); });
  }

  device_heap(device_heap const&)            = delete;
  device_heap& operator=(device_heap const&) = delete;

  /// The whole ladder; null if there is no room for `bytes` anywhere.
  [[nodiscard]] void* allocate(std::size_t bytes, rmm::cuda_stream_view stream)
  {
    if (void* const ptr = heap_.try_allocate(bytes, stream)) { return ptr; }
    rmm::mr::detail::recovery_attempt climbing{bytes, stream};
    return ladder_.climb(heap_, *this, climbing, rmm::align_up(bytes, rmm::CUDA_ALLOCATION_ALIGNMENT));
  }

  /// Only what needs no growth and no waiting.
  [[nodiscard]] void* try_allocate(std::size_t bytes, rmm::cuda_stream_view stream)
  {
    return heap_.try_allocate(bytes, stream);
  }

  void deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) { heap_.deallocate(ptr, bytes, stream); }

  [[nodiscard]] rmm::detail::stream_ordered_heap& heap() noexcept { return heap_; }
  [[nodiscard]] rmm::heap_figures figures() const { return heap_.figures(); }
  [[nodiscard]] bool good() const { return heap_.check_invariants(); }

 private:
  [[nodiscard]] void* try_grow(std::size_t bytes, rmm::cuda_stream_view stream, std::string& /*reason*/) override
  {
    auto const left = most_ - heap_.block_bytes();
    return bytes <= left ? add_block(std::max(bytes, left / 2), bytes, stream) : nullptr;
  }

  [[nodiscard]] void* add_block(std::size_t block_bytes, std::size_t bytes, rmm::cuda_stream_view stream)
  {
    block_bytes = rmm::align_up(block_bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
    rmm::detail::capture_exemption const exemption;  // as upstreams of resources have
    void* block{};
    if (cudaMalloc(&block, block_bytes) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    try {
      return heap_.add_block_and_allocate(block, block_bytes, bytes, stream);
    } catch (std::bad_alloc const&) {
      static_cast<void>(cudaFree(block));
      throw;
    }
  }

  std::size_t most_;
  rmm::detail::stream_ordered_heap heap_;
  rmm::mr::detail::recovery_ladder ladder_{{rmm::recovery_rung::grow, rmm::recovery_rung::synchronize}};
};

/// Work of `stream` that writes to the block.
inline void write(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream, char const* name = "owner")
{
  ASSERT_EQ(cudasim::launch(stream.value(), {}, {{ptr, bytes}}, {}, {name}), cudaSuccess);
}
