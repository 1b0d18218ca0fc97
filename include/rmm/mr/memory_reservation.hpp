// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/detail/reserved_memory.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {

/// Memory of a pool that is kept for who reserved it, and a bound on what that one uses: `auto task = pool.reserve(bytes);`.
///
/// Its bytes lie in one piece. They are there when they are allocated through resource(): none of those requests fails as long
/// as the live blocks together, each rounded up to 256 bytes, are not more than was reserved and one piece that is free is
/// large enough; where frees have left no such piece, the pool is asked for one. More than was reserved is refused.
///
/// Ends with the object or by release(): what is free goes back to the pool then. Blocks that are still live stay valid, also
/// for resource(), and go back when they are freed. All memory goes back in the order of streams: of that which the reservation
/// was made with, which has to exist as long, or of that which a block is freed on last. The pool has to outlive all blocks.
///
/// The object itself belongs to one thread at a time; resource() is thread-safe.
class memory_reservation {
 public:
  memory_reservation(memory_reservation&& other) noexcept
    : memory_{std::exchange(other.memory_, nullptr)}, stream_{other.stream_}
  {}
  memory_reservation& operator=(memory_reservation&& other) noexcept
  {
    std::swap(memory_, other.memory_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  memory_reservation(memory_reservation const&)            = delete;
  memory_reservation& operator=(memory_reservation const&) = delete;
  ~memory_reservation() { release(); }

  /// Allocates from what is reserved. Valid as long as the reservation or a block from it. Throws logic_error if the
  /// reservation has ended.
  [[nodiscard]] device_memory_resource& resource() const { return memory(); }

  /// The same for containers.
  operator device_async_resource_ref() const { return resource(); }

  /// What is reserved; 0 if the reservation has ended.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_ != nullptr ? memory_->size() : 0; }

  /// The part of that which is in use: live blocks, rounded up, and reservations within this one.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return memory_ != nullptr ? memory_->used() : 0; }

  /// What is live and free in it.
  [[nodiscard]] heap_figures figures() const { return memory().figures(); }

  /// Sets a part of this reservation aside, with the same rules. Throws out_of_memory if there is not so much left.
  [[nodiscard]] memory_reservation reserve(std::size_t bytes, cuda_stream_view stream = cuda_stream_view{})
  {
    return from(memory(), bytes, stream);
  }

  /// The same, or nothing if there is not so much left.
  [[nodiscard]] std::optional<memory_reservation> try_reserve(std::size_t bytes,
                                                              cuda_stream_view stream = cuda_stream_view{})
  {
    return try_from(memory(), bytes, stream);
  }

  /// Gives back what is not in use, until at most `bytes` are reserved, or what is in use. Returns how much went back.
  std::size_t shrink_to(std::size_t bytes) noexcept { return memory_ != nullptr ? memory_->shrink(bytes, stream_) : 0; }

  /// Ends the reservation.
  void release() noexcept
  {
    if (auto* const memory = std::exchange(memory_, nullptr)) { memory->end(stream_); }
  }

 private:
  template <class Unused>
  friend class detail::basic_growing_pool;

  memory_reservation(detail::reserved_memory* memory, cuda_stream_view stream) noexcept
    : memory_{memory}, stream_{stream}
  {}

  static constexpr auto largest = std::numeric_limits<std::size_t>::max() - (CUDA_ALLOCATION_ALIGNMENT - 1);

  [[nodiscard]] static std::size_t checked(std::size_t bytes)
  {
    RMM_EXPECTS(bytes != 0, "A reservation needs a size above 0");
    return rmm::detail::checked_align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);
  }

  [[nodiscard]] static memory_reservation over(detail::reservable& source,
                                               void* block,
                                               std::size_t bytes,
                                               cuda_stream_view stream)
  {
    rmm::detail::scope_guard give_back{[&]() noexcept { source.take_back(block, bytes, stream); }};
    memory_reservation made{new detail::reserved_memory{source, block, bytes, stream}, stream};
    give_back.dismiss();
    return made;
  }

  [[nodiscard]] static memory_reservation from(detail::reservable& source, std::size_t bytes, cuda_stream_view stream)
  {
    auto const rounded = checked(bytes);
    return over(source, source.set_aside(rounded, stream), rounded, stream);
  }

  [[nodiscard]] static std::optional<memory_reservation> try_from(detail::reservable& source,
                                                                  std::size_t bytes,
                                                                  cuda_stream_view stream)
  {
    if (bytes > largest) { return std::nullopt; }
    auto const rounded = checked(bytes);
    void* const block  = source.try_set_aside(rounded, stream);
    if (block == nullptr) { return std::nullopt; }
    return over(source, block, rounded, stream);
  }

  [[nodiscard]] detail::reserved_memory& memory() const
  {
    RMM_EXPECTS(memory_ != nullptr, "The reservation has ended");
    return *memory_;
  }

  detail::reserved_memory* memory_;
  cuda_stream_view stream_;
};

namespace detail {

template <class Unused>
memory_reservation basic_growing_pool<Unused>::reserve(std::size_t bytes, cuda_stream_view stream)
{
  return memory_reservation::from(*this, bytes, stream);
}

template <class Unused>
std::optional<memory_reservation> basic_growing_pool<Unused>::try_reserve(std::size_t bytes, cuda_stream_view stream)
{
  return memory_reservation::try_from(*this, bytes, stream);
}

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
