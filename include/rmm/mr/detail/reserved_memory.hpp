// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/failure.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/reservable.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A block set aside, as a resource that allocates parts of it, up to its size in all.
///
/// It lives as long as its reservation or any of its blocks does, whichever is longer. A block that outlives the reservation
/// keeps only itself: what is free when the reservation ends is given back then, and each block when it is freed.
///
/// Invariants:
///  M1  charged_ is the sum of the live blocks, rounded up, of what was shrunk away, and, until the reservation has ended, of
///      its highest bit. Who makes it 0 destroys the object, and nobody is in it then: charging is the first thing that an
///      allocation does, discharging the last of a deallocation
///  M2  kept_ bytes of the block were not given back to the source, which expects them in one part, or was told of each more
///
/// Thread-safe, but for shrink() and end(), which belong to the reservation's owner.
class reserved_memory final : public device_memory_resource, public reservable {
 public:
  /// Takes over `block`, which `stream` may use. Throws std::bad_alloc, and has not taken it over then.
  reserved_memory(reservable& source, void* block, std::size_t bytes, cuda_stream_view stream)
    : source_{source},
      begin_{reinterpret_cast<std::uintptr_t>(block)},
      bytes_{bytes},
      kept_{bytes},
      heap_{source.home_device()}
  {
    static_cast<void>(heap_.add_block_and_allocate(block, bytes, 0, stream));
  }
  reserved_memory(reserved_memory const&)            = delete;
  reserved_memory& operator=(reserved_memory const&) = delete;

  /// Bytes that it was made with, less what was shrunk away.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_ - shrunk_.load(std::memory_order_relaxed); }

  /// Bytes of live blocks.
  [[nodiscard]] std::size_t used() const noexcept
  {
    auto const charged = static_cast<std::size_t>(charged_.load(std::memory_order_relaxed) & ~is_reserved);
    return charged - rmm::detail::min(charged, shrunk_.load(std::memory_order_relaxed));
  }

  [[nodiscard]] heap_figures figures() const { return heap_.figures(); }

  /// Gives back what is not in use, until at most `bytes` are reserved, as far as possible; returns how much less is.
  RMM_COLD std::size_t shrink(std::size_t bytes, cuda_stream_view stream) noexcept
  {
    auto const now = size();
    if (bytes >= now) { return 0; }
    auto const less = charge_up_to(align_down(now - bytes, CUDA_ALLOCATION_ALIGNMENT));
    shrunk_.store(shrunk_.load(std::memory_order_relaxed) + less, std::memory_order_relaxed);
    give_back(less, stream);
    return less;
  }

  /// The reservation ends: no more allocations. What is free goes back when `stream` gets there, the rest when it is freed.
  RMM_COLD void end(cuda_stream_view stream) noexcept
  {
    ended_.store(true, std::memory_order_relaxed);
    give_back(std::numeric_limits<std::size_t>::max(), stream);
    discharge(is_reserved + shrunk_.load(std::memory_order_relaxed), stream);
  }

  [[nodiscard]] void* set_aside(std::size_t bytes, cuda_stream_view stream) override
  {
    return do_allocate(bytes, stream);
  }

  [[nodiscard]] void* try_set_aside(std::size_t bytes, cuda_stream_view stream) override
  {
    return try_charge(bytes) ? allocate_charged(bytes, stream, false) : nullptr;
  }

  void take_back(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override
  {
    do_deallocate(ptr, bytes, stream);
  }

  [[nodiscard]] int home_device() const noexcept override { return heap_.home_device(); }

  void expect_usable(void const* /*block*/) const override
  {
    source_.expect_usable(reinterpret_cast<void const*>(begin_));  // NOLINT: the heap works on addresses
  }

  [[nodiscard]] bool try_divide(void const* ptr, std::size_t bytes) noexcept override
  {
    return is_own(ptr, bytes) ? heap_.try_divide() : source_.try_divide(ptr, bytes);
  }

 private:
  static constexpr std::uint64_t is_reserved = std::uint64_t{1} << 63U;

  ~reserved_memory() override = default;

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes == 0) { return nullptr; }
    auto const rounded = rmm::detail::checked_align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);
    if (!try_charge(rounded)) { throw_exceeded(bytes, stream); }
    return allocate_charged(rounded, stream, true);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override
  {
    if (ptr == nullptr) { return; }
    auto const rounded = align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);
    if (!is_own(ptr, rounded)) {
      source_.take_back(ptr, rounded, stream);
    } else if (!ended_.load(std::memory_order_relaxed) || !try_give_back(ptr, rounded, stream)) {
      heap_.deallocate(ptr, rounded, stream);
    }
    discharge(rounded, stream);
  }

  /// From the block; if what is free of it is too scattered, and nothing was shrunk away, from the source.
  [[nodiscard]] void* allocate_charged(std::size_t bytes, cuda_stream_view stream, bool must)
  {
    rmm::detail::scope_guard refund{[&]() noexcept { discharge(bytes, stream); }};
    source_.expect_usable(reinterpret_cast<void const*>(begin_));  // NOLINT: the heap works on addresses
    void* ptr = heap_.try_allocate(bytes, stream);
    if (ptr == nullptr) {
      ptr = heap_.allocate_reclaimed(bytes, stream, rmm::detail::stream_ordered_heap::reclaiming::before_growth);
    }
    if (ptr == nullptr && shrunk_.load(std::memory_order_relaxed) == 0) {
      ptr = must ? source_.set_aside(bytes, stream) : source_.try_set_aside(bytes, stream);
    }
    if (ptr == nullptr && must) { throw_exceeded(bytes, stream); }
    if (ptr != nullptr) { refund.dismiss(); }
    return ptr;
  }

  [[nodiscard]] bool is_own(void const* ptr, std::size_t bytes) const noexcept
  {
    auto const offset = reinterpret_cast<std::uintptr_t>(ptr) - begin_;
    return offset < bytes_ && bytes <= bytes_ - offset;
  }

  [[nodiscard]] bool try_charge(std::size_t bytes) noexcept
  {
    if (ended_.load(std::memory_order_relaxed)) { return false; }
    auto charged = charged_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ - (charged & ~is_reserved)) { return false; }
    } while (!charged_.compare_exchange_weak(charged, charged + bytes, std::memory_order_relaxed));
    return true;
  }

  /// As much as is not in use; returns how much.
  [[nodiscard]] std::size_t charge_up_to(std::size_t bytes) noexcept
  {
    auto charged = charged_.load(std::memory_order_relaxed);
    std::size_t taken{};
    do {
      taken = rmm::detail::min(bytes, static_cast<std::size_t>(bytes_ - (charged & ~is_reserved)));
    } while (!charged_.compare_exchange_weak(charged, charged + taken, std::memory_order_relaxed));
    return taken;
  }

  /// The last access to the object, unless it was the last charge.
  void discharge(std::uint64_t charge, cuda_stream_view stream) noexcept
  {
    if (charged_.fetch_sub(charge, std::memory_order_acq_rel) != charge) { return; }
    give_back(std::numeric_limits<std::size_t>::max(), stream);
    if (kept_ != 0) { give_back_after_all_work(stream); }
    delete this;
  }

  /// Takes free memory out of the heap, in pieces as large as they are, each ordered on `stream`, and returns it to the source.
  RMM_COLD void give_back(std::size_t most, cuda_stream_view stream) noexcept
  {
    try {
      while (most != 0) {
        auto const bytes = rmm::detail::min(heap_.figures().largest_free_bytes, most);
        if (bytes == 0) { return; }
        void* ptr = heap_.try_allocate(bytes, stream);
        if (ptr == nullptr) { ptr = heap_.allocate_reclaimed(bytes, stream); }
        if (ptr == nullptr) { return; }
        if (!try_give_back(ptr, bytes, stream)) { return heap_.deallocate(ptr, bytes, stream); }
        most -= bytes;
      }
    } catch (std::exception const&) {  // no host memory, or the stream captures: it goes back later
    }
  }

  /// Returns a part of the block to the source. False if the host has no memory for that.
  [[nodiscard]] bool try_give_back(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    rmm::detail::mutex_lock const lock{giving_mutex_};
    if (bytes != kept_ && !source_.try_divide(ptr, bytes)) { return false; }
    kept_ -= bytes;
    source_.take_back(ptr, bytes, stream);
    return true;
  }

  /// The last resort, where the heap cannot say what its memory waits for: waits for the device. What is left when parts were
  /// given back before stays allocated until the source is gone.
  RMM_COLD void give_back_after_all_work(cuda_stream_view stream) noexcept
  {
    if (kept_ == bytes_ && heap_.wait_for_all()) {
      source_.take_back(reinterpret_cast<void*>(begin_), bytes_, stream);  // NOLINT: the heap works on addresses
    } else {
      rmm::detail::log(rmm::detail::log_level::error, "memory_reservation: memory could not be given back to its pool");
    }
  }

  [[noreturn]] RMM_COLD void throw_exceeded(std::size_t bytes, cuda_stream_view stream) const
  {
    auto const text = "Reservation exceeded (failed to allocate " + rmm::detail::format_bytes(bytes) +
                      "): " + rmm::detail::format_bytes(used()) + " of " + rmm::detail::format_bytes(size()) +
                      " are in use";
    memory_report report;
    report.asked_bytes     = bytes;
    report.alignment_bytes = CUDA_ALLOCATION_ALIGNMENT;
    report.stream          = stream;
    report.device          = rmm::detail::current_device_if_known();
    report.reason          = text;
    report.pool            = figures();
    report.maximum_bytes   = size();
    rmm::detail::throw_out_of_memory("RMM failure at: " + rmm::detail::position_text(__FILE__, __LINE__) + ": " + text,
                                     report);
  }

  reservable& source_;
  std::uintptr_t begin_;
  std::size_t bytes_;
  rmm::detail::mutex giving_mutex_;  // taken before those of the source; guards kept_
  std::size_t kept_;
  std::atomic<std::size_t> shrunk_{0};
  std::atomic<bool> ended_{false};
  std::atomic<std::uint64_t> charged_{is_reserved};
  rmm::detail::stream_ordered_heap heap_;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
