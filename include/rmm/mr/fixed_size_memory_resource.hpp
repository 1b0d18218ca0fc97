// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/logger_frontend.hpp>  // IWYU pragma: export
#include <rmm/detail/nvtx/memory_marks.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/recovery_ladder.hpp>
#include <rmm/mr/detail/suballocator.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/recovery.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>  // IWYU pragma: export
#include <new>
#include <string>

namespace RMM_NAMESPACE {

namespace mr {

/// A resource with blocks of one size. Use it for many requests of about one size: it has no fragmentation, and only a call that takes a
/// chunk from upstream costs more than the others.
///
/// Each request gets a whole block; a larger request throws out_of_memory. The resource takes chunks of many blocks from upstream, and
/// gives them back when it is destroyed.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::fixed_size_memory_resource fixed{&cuda, 4096, 16};  // chunks of 16 blocks
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, fixed};
/// @endcode
template <class Upstream>
class fixed_size_memory_resource : public detail::suballocator, public detail::upstream_getters<Upstream> {
 public:
  static constexpr std::size_t default_block_size            = std::size_t{1} << 20;
  static constexpr std::size_t default_blocks_to_preallocate = 128;

  /// Takes the first chunk: `blocks_to_preallocate` blocks, each of `block_size` bytes rounded up to 256.
  ///
  /// Throws logic_error if `upstream` is null or one of the numbers is 0. Exceptions of upstream propagate.
  explicit fixed_size_memory_resource(Upstream* upstream,
                                      std::size_t block_size            = default_block_size,
                                      std::size_t blocks_to_preallocate = default_blocks_to_preallocate)
    : fixed_size_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, block_size, blocks_to_preallocate}
  {}

  /// Makes the resource over the one that `upstream` refers to.
  explicit fixed_size_memory_resource(typename detail::suballocator_upstream<Upstream>::ref_type upstream,
                                      std::size_t block_size            = default_block_size,
                                      std::size_t blocks_to_preallocate = default_blocks_to_preallocate)
    : fixed_size_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, block_size, blocks_to_preallocate}
  {}

  /// Returns the bytes of a block, which is the largest request that can be served.
  [[nodiscard]] std::size_t get_block_size() const noexcept { return block_size_; }

 private:
  fixed_size_memory_resource(detail::suballocator_upstream<Upstream> upstream,
                             std::size_t block_size,
                             std::size_t blocks_to_preallocate)
    : suballocator{{recovery_rung::reclaim, recovery_rung::grow, recovery_rung::synchronize}},
      fixed_size_memory_resource::upstream_getters{upstream},
      block_size_{rmm::detail::checked_align_up(block_size, CUDA_ALLOCATION_ALIGNMENT)},
      chunk_size_{rmm::detail::checked_multiply(block_size_, blocks_to_preallocate)}
  {
    RMM_EXPECTS(chunk_size_ != 0,
                "The block size is " + std::to_string(block_size) + " bytes and the number of blocks to preallocate " +
                  std::to_string(blocks_to_preallocate) + ", but both must be above 0");
    source_.add(chunk_size_, 0, cuda_stream_legacy);
    heap_.settle();
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes == 0) { return nullptr; }
    if (bytes > block_size_) { throw_too_large(bytes, stream); }
    void* const block = heap_.try_allocate_local(block_size_, stream);
    return rmm::detail::mark_allocated(block != nullptr ? block : allocate_slow(bytes, stream), bytes);
  }

  [[nodiscard]] RMM_OUT_OF_LINE void* allocate_slow(std::size_t bytes, cuda_stream_view stream)
  {
    auto const turns  = ladder_.turns();
    void* const block = heap_.try_allocate_after_local(block_size_, stream);
    return block != nullptr ? block : climb_or_throw(bytes, stream, turns);
  }

  [[nodiscard]] RMM_COLD void* climb_or_throw(std::size_t bytes, cuda_stream_view stream, std::uint64_t turns)
  {
    struct chunk_rungs final : detail::recovery_rungs {
      explicit chunk_rungs(fixed_size_memory_resource& resource) : resource_{resource} {}
      void* try_grow(std::size_t block_size, cuda_stream_view on, detail::failure_reason& /*reason*/) override
      {
        try {
          return resource_.source_.add(resource_.chunk_size_, block_size, on);
        } catch (std::bad_alloc const&) {
          failure = std::current_exception();
          return nullptr;
        }
      }
      fixed_size_memory_resource& resource_;
      std::exception_ptr failure{};  // the exception of upstream; null if there was none
    } chunks{*this};
    detail::recovery_attempt climbing{bytes, stream};
    climbing.seen_turns = turns;
    if (void* const block = climb(chunks, climbing, block_size_)) { return block; }
    if (!chunks.failure) { throw std::bad_alloc{}; }  // host memory ran out in a capture, when the block was recorded
    try {
      std::rethrow_exception(chunks.failure);
    } catch (rmm::out_of_memory const& e) {
      if (e.report() != nullptr) { throw; }  // the report of upstream says more than ours
      climbing.reason = detail::failure_reason::from_current(e);
      throw_exhausted(climbing, "no block is free, and upstream gives no more");
    }
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override
  {
    rmm::detail::mark_freed(ptr, bytes);
    if (ptr != nullptr) { heap_.deallocate(ptr, block_size_, stream); }
  }

  [[noreturn]] RMM_COLD void throw_too_large(std::size_t bytes, cuda_stream_view stream)
  {
    throw_exhausted({bytes, stream, "blocks have " + rmm::detail::format_bytes(block_size_)},
                    "Maximum allocation size exceeded");
  }

  void describe(memory_report& report) const override { source_.describe(report); }

  std::size_t block_size_;
  std::size_t chunk_size_;
  detail::block_source<Upstream> source_{heap_, this->upstream_};
};

fixed_size_memory_resource(device_async_resource_ref, std::size_t = 0, std::size_t = 0)
  ->fixed_size_memory_resource<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
