// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda_stream.hpp>
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

struct memory_snapshot;

namespace mr {

class reservation_queue;

/// A part of a pool's memory that is kept for one user and also limits that user: `auto task = pool.reserve(bytes);`. Use it to start a
/// task only when its memory is certain.
///
/// The reserved memory is one range. A request through resource() succeeds if all live blocks together, each rounded up to 256 bytes,
/// do not exceed the reservation, and a free range in it is large enough. If frees have left no such range, the pool is asked for memory,
/// but not after shrink_to() gave memory back. A request that exceeds the reservation, or finds no memory, throws out_of_memory.
///
/// The reservation ends with the object or with release(), and its free memory goes back to the pool. Live blocks stay valid, and go
/// back when they are freed. The pool has to outlive all blocks.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, std::size_t{1} << 20};
/// auto const task = pool.reserve(4096);
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, task};  // cannot fail
/// @endcode
/// Stream   when the reservation ends, its free memory goes back in the order of the stream that it was made with, which has to exist
///          until then. A block that is freed later goes back in the order of the stream on which it is freed.
/// Threads  one thread at a time uses the object; resource() is thread-safe.
class memory_reservation {
 public:
  memory_reservation(memory_reservation&& other) noexcept
    : memory_{std::exchange(other.memory_, nullptr)}, stream_{other.stream_}
  {}
  /// Swaps the reservations, so that the old one ends with `other`.
  memory_reservation& operator=(memory_reservation&& other) noexcept
  {
    std::swap(memory_, other.memory_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  memory_reservation(memory_reservation const&)            = delete;
  memory_reservation& operator=(memory_reservation const&) = delete;
  ~memory_reservation() { release(); }

  /// Returns the resource that allocates from the reservation. It is valid as long as the reservation or a block from it exists. Throws
  /// logic_error if the reservation has ended.
  [[nodiscard]] device_memory_resource& resource() const { return memory(); }

  /// Converts to a reference to resource(), for containers.
  operator device_async_resource_ref() const { return resource(); }

  /// Returns the reserved bytes; 0 if the reservation has ended.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_ != nullptr ? memory_->size() : 0; }

  /// Returns the most bytes that can be reserved within this reservation: its size. Throws logic_error if the reservation has ended.
  [[nodiscard]] std::size_t maximum_bytes() const { return memory().size(); }

  /// Returns the bytes in use: live blocks, rounded up, and reservations within this one.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return memory_ != nullptr ? memory_->used() : 0; }

  /// Returns the figures of the reserved memory. Throws logic_error if the reservation has ended.
  [[nodiscard]] heap_figures figures() const { return memory().figures(); }

  /// Returns the reserved memory at one moment, range by range, without tags. Needs rmm/memory_snapshot.hpp. Throws logic_error if the
  /// reservation has ended.
  template <class Snapshot = memory_snapshot>
  [[nodiscard]] Snapshot snapshot() const
  {
    return memory().template snapshot<Snapshot>();
  }

  /// Reserves a part of this reservation. Throws out_of_memory if less is left, and logic_error if `bytes` is 0 or the reservation has
  /// ended.
  [[nodiscard]] memory_reservation reserve(std::size_t bytes, cuda_stream_view stream = cuda_stream_view{})
  {
    return from(memory(), bytes, stream);
  }

  /// Reserves a part of this reservation, or returns nothing if less is left. Throws logic_error as reserve() does.
  [[nodiscard]] std::optional<memory_reservation> try_reserve(std::size_t bytes,
                                                              cuda_stream_view stream = cuda_stream_view{})
  {
    return try_from(memory(), bytes, stream);
  }

  /// Gives unused memory back, until `bytes`, rounded up to 256, are reserved, or nothing is unused. Returns the bytes given back.
  std::size_t shrink_to(std::size_t bytes) noexcept
  {
    return memory_ != nullptr
             ? with_running_stream([&](cuda_stream_view on) noexcept { return memory_->shrink(bytes, on); })
             : 0;
  }

  /// Ends the reservation.
  void release() noexcept
  {
    if (memory_ == nullptr || !memory_->is_of_this_process()) { return; }
    with_running_stream([&](cuda_stream_view on) noexcept { std::exchange(memory_, nullptr)->end(on); });
  }

 private:
  template <class Unused>
  friend class detail::basic_growing_pool;
  friend class reservation_queue;

  memory_reservation(detail::reserved_memory* memory, cuda_stream_view stream) noexcept
    : memory_{memory}, stream_{stream}
  {}

  static constexpr auto largest = std::numeric_limits<std::size_t>::max() - (CUDA_ALLOCATION_ALIGNMENT - 1);

  [[nodiscard]] static std::size_t checked(std::size_t bytes)
  {
    RMM_EXPECTS(bytes != 0, "Cannot reserve 0 bytes: the size of a reservation has to be at least 1");
    return rmm::detail::checked_align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);
  }

  /// A stream for calls of the pool: `stream`, or a new one if that captures or is blocked by a capture. For such a stream the pool could
  /// return memory of a graph, or memory whose last work no other stream can wait for; and what it frees would stay with the graph.
  class running_stream {
   public:
    /// Throws cuda_error.
    running_stream(cuda_stream_view stream, int home) : view_{stream}
    {
      if (rmm::detail::is_known_to_run(stream.value())) { return; }
      rmm::detail::device_scope const at_home{home};
      exemption_.emplace();
      own_.emplace(cuda_stream::flags::non_blocking);
      view_ = own_->view();
    }

    [[nodiscard]] cuda_stream_view view() const noexcept { return view_; }

    /// Waits for the stream if it is a new one. Throws cuda_error.
    void synchronize_new() const
    {
      if (own_) { own_->synchronize(); }
    }

   private:
    std::optional<rmm::detail::capture_exemption> exemption_;
    std::optional<cuda_stream> own_;
    cuda_stream_view view_;
  };

  /// Calls `use` with a running_stream for stream_, or with stream_ itself if CUDA cannot make a stream. Requires a memory_.
  template <class Use>
  auto with_running_stream(Use&& use) noexcept -> decltype(use(cuda_stream_view{}))
  {
    std::optional<running_stream> running;
    try {
      running.emplace(stream_, memory_->home_device());
    } catch (cuda_error const&) {}
    return use(running ? running->view() : stream_);
  }

  /// Makes a reservation of the block that set_aside(stream) returns; nothing if that is null. The reservation serves all streams, so the
  /// host waits for the block if it is one for a new stream.
  template <class SetAside>
  [[nodiscard]] static std::optional<memory_reservation> make(detail::reservable& source,
                                                              std::size_t bytes,
                                                              cuda_stream_view stream,
                                                              SetAside&& set_aside)
  {
    running_stream const running{stream, source.home_device()};
    auto const on     = running.view();
    void* const block = set_aside(on);
    if (block == nullptr) { return std::nullopt; }
    rmm::detail::scope_guard give_back{[&]() noexcept { source.take_back(block, bytes, on); }};
    running.synchronize_new();
    memory_reservation made{new detail::reserved_memory{source, block, bytes, on}, stream};
    give_back.dismiss();
    return made;
  }

  [[nodiscard]] static memory_reservation from(detail::reservable& source, std::size_t bytes, cuda_stream_view stream)
  {
    auto const rounded   = checked(bytes);
    auto const set_aside = [&](cuda_stream_view on) { return source.set_aside(rounded, on); };
    return std::move(*make(source, rounded, stream, set_aside));
  }

  [[nodiscard]] static std::optional<memory_reservation> try_from(detail::reservable& source,
                                                                  std::size_t bytes,
                                                                  cuda_stream_view stream)
  {
    if (bytes > largest) { return std::nullopt; }
    auto const rounded   = checked(bytes);
    auto const set_aside = [&](cuda_stream_view on) { return source.try_set_aside(rounded, on); };
    return make(source, rounded, stream, set_aside);
  }

  [[nodiscard]] detail::reserved_memory& memory() const
  {
    RMM_EXPECTS(memory_ != nullptr, "The reservation has ended: it was released or moved from");
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
