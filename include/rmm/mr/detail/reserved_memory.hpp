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
#include <rmm/detail/heap/heap_contents.hpp>
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
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A reserved block of a pool, as a resource that allocates parts of it. The sum of the parts is limited to its size.
///
/// It lives as long as its reservation or any block from it. When the reservation ends, free memory goes back to the source; live
/// blocks go back when they are freed.
///
/// Invariants:
///  M1  charged_ is the sum of the live blocks, rounded up, of the bytes removed by shrink(), and of the bit is_reserved until the
///      reservation has ended. The thread that makes it 0 destroys the object. No other thread is in it then: an allocation first
///      charges, and a deallocation discharges last. Discharges release, and the last one acquires, so that thread sees what all
///      others did; charges may be relaxed, because an update of charged_ continues the release sequences before it
///  M2  kept_ has the parts of the block that have not been given back to the source, which expects each of them by itself
///
/// Order: M1 says what charged_ hands over. The other three are relaxed. A thread that reads an old shrunk_ or ended_ acts as if it had come
/// earlier: it may put a block into the heap of an ended reservation, whose last discharge gives all back, or ask the source for memory
/// after shrink(). returned_ is never more than the heap counts as live: who reads a sum of it cannot be before an addition in that sum, so
/// the locks of figures() come after those of the allocation that the addition followed.
///
/// Thread-safe, except for shrink() and end(), which only the reservation's owner calls.
class reserved_memory final : public device_memory_resource, public reservable {
 public:
  /// Takes over `block`, which `stream` may use. Throws std::bad_alloc, and does not take the block over then.
  reserved_memory(reservable& source, void* block, std::size_t bytes, cuda_stream_view stream)
    : source_{source},
      begin_{reinterpret_cast<std::uintptr_t>(block)},
      bytes_{bytes},
      kept_{{begin_, bytes}},
      heap_{source.home_device()}
  {
    heap_.set_checks_captures(source.check_capture());
    static_cast<void>(heap_.add_block_and_allocate(block, bytes, 0, stream));
  }
  reserved_memory(reserved_memory const&)            = delete;
  reserved_memory& operator=(reserved_memory const&) = delete;

  /// Returns the reserved bytes, without the bytes removed by shrink().
  [[nodiscard]] std::size_t size() const noexcept { return bytes_ - shrunk_.load(std::memory_order_relaxed); }

  /// Returns the bytes of live blocks.
  [[nodiscard]] std::size_t used() const noexcept
  {
    auto const charged = std::size_t{charged_.load(std::memory_order_relaxed) & ~is_reserved};
    return charged - rmm::detail::min(charged, shrunk_.load(std::memory_order_relaxed));
  }

  /// Returns the figures of the reservation, without the memory that went back to the source.
  [[nodiscard]] heap_figures figures() const
  {
    auto const returned =
      returned_.load(std::memory_order_relaxed);  // before the heap's, which count that memory as live
    auto now = heap_.figures();
    now.live_bytes -= returned;
    now.reserved_bytes -= returned;
    return now;
  }

  template <class Snapshot>
  [[nodiscard]] RMM_COLD Snapshot snapshot() const
  {
    typename Snapshot::maker made;
    rmm::detail::heap_contents contents;
    auto const now = heap_.figures(&contents);
    made.add(contents, now);
    return made.finish();
  }

  /// Whether this process made the reservation. A forked child leaves reservations of its parent alone.
  [[nodiscard]] bool is_of_this_process() const noexcept { return heap_.is_of_this_process(); }

  /// Gives back memory that is not in use, until at most `bytes` are reserved, if possible. Returns the bytes given back.
  RMM_COLD std::size_t shrink(std::size_t bytes, cuda_stream_view stream) noexcept
  {
    auto const old_size = size();
    if (bytes >= old_size) { return 0; }
    auto const removed = charge_up_to(align_down(old_size - bytes, CUDA_ALLOCATION_ALIGNMENT));
    shrunk_.store(shrunk_.load(std::memory_order_relaxed) + removed, std::memory_order_relaxed);
    give_back(removed, stream);
    return removed;
  }

  /// Ends the reservation: later allocations fail. Free memory goes back in the order of `stream`, live blocks when they are freed.
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

  [[nodiscard]] bool check_capture() const noexcept override { return heap_.checks_captures(); }

  [[nodiscard]] int home_device() const noexcept override { return heap_.home_device(); }

  void expect_usable(void const* /*block*/) const override
  {
    source_.expect_usable(reinterpret_cast<void const*>(begin_));  // NOLINT: the heap works on addresses
  }

  [[nodiscard]] bool try_divide(rmm::detail::address_range piece, std::uintptr_t at) noexcept override
  {
    bool const own = is_own(rmm::detail::to_pointer(piece.begin), piece.bytes);
    return own ? heap_.try_divide() : source_.try_divide(piece, at);
  }

 private:
  static constexpr std::uint64_t is_reserved = std::uint64_t{1} << 63U;

  ~reserved_memory() override
  {
    if (heap_.is_of_this_process()) { heap_.~basic_stream_ordered_heap(); }
  }

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

  /// Allocates from the block. If its free ranges are too small, and shrink() removed nothing, allocates from the source. Returns null
  /// on failure; throws instead if `throws`.
  [[nodiscard]] void* allocate_charged(std::size_t bytes, cuda_stream_view stream, bool throws)
  {
    rmm::detail::scope_guard refund{[&]() noexcept { discharge(bytes, stream); }};
    source_.expect_usable(reinterpret_cast<void const*>(begin_));  // NOLINT: the heap works on addresses
    void* ptr = heap_.try_allocate(bytes, stream);
    if (ptr == nullptr) {
      ptr = heap_.allocate_reclaimed(bytes, stream, rmm::detail::stream_ordered_heap::reclaiming::before_growth);
    }
    if (ptr == nullptr && shrunk_.load(std::memory_order_relaxed) == 0) {
      ptr = throws ? source_.set_aside(bytes, stream) : source_.try_set_aside(bytes, stream);
      if (ptr != nullptr && overlaps(ptr, bytes)) {  // the failure callback has ended or shrunk this reservation: M2
        source_.take_back(ptr, bytes, stream);
        ptr = nullptr;
      }
    }
    if (ptr == nullptr && throws) { throw_exceeded(bytes, stream); }
    if (ptr != nullptr) { refund.dismiss(); }
    return ptr;
  }

  [[nodiscard]] bool is_own(void const* ptr, std::size_t bytes) const noexcept
  {
    auto const offset = reinterpret_cast<std::uintptr_t>(ptr) - begin_;
    return offset < bytes_ && bytes <= bytes_ - offset;
  }

  /// Whether a block has addresses of the reservation, all or some.
  [[nodiscard]] bool overlaps(void const* ptr, std::size_t bytes) const noexcept
  {
    auto const begin = reinterpret_cast<std::uintptr_t>(ptr);
    return begin < begin_ + bytes_ && begin_ < begin + bytes;
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

  /// Charges up to `bytes`, as far as they are not in use. Returns the bytes charged.
  [[nodiscard]] std::size_t charge_up_to(std::size_t bytes) noexcept
  {
    auto charged = charged_.load(std::memory_order_relaxed);
    std::size_t taken{};
    do {
      taken = rmm::detail::min(bytes, std::size_t{bytes_ - (charged & ~is_reserved)});
    } while (!charged_.compare_exchange_weak(charged, charged + taken, std::memory_order_relaxed));
    return taken;
  }

  /// Reduces the charge. The caller must not access the object afterwards: the last discharge destroys it.
  void discharge(std::uint64_t charge, cuda_stream_view stream) noexcept
  {
    if (charged_.fetch_sub(charge, std::memory_order_acq_rel) != charge || !is_of_this_process()) { return; }
    give_back(std::numeric_limits<std::size_t>::max(), stream);
    if (!kept_.empty()) { give_back_after_all_work(stream); }
    delete this;
  }

  /// Returns up to `limit` bytes of free memory to the source: the largest free range first, each ordered on `stream`.
  RMM_COLD void give_back(std::size_t limit, cuda_stream_view stream) noexcept
  {
    try {
      while (limit != 0) {
        auto const bytes = rmm::detail::min(heap_.figures().largest_free_bytes, limit);
        if (bytes == 0) { return; }
        void* ptr = heap_.try_allocate(bytes, stream);
        if (ptr == nullptr) { ptr = heap_.allocate_reclaimed(bytes, stream); }
        if (ptr == nullptr) { return; }
        if (!try_give_back(ptr, bytes, stream)) { return heap_.deallocate(ptr, bytes, stream); }
        limit -= bytes;
      }
    } catch (std::exception const&) {  // host memory runs out, or the stream captures: the memory goes back later
    }
  }

  /// Gives a part of the block back to the source. Returns false, and gives nothing back, if host memory runs out, or in a forked child.
  [[nodiscard]] bool try_give_back(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    rmm::detail::address_range const part{reinterpret_cast<std::uintptr_t>(ptr), bytes};
    if (!is_of_this_process()) { return false; }
    rmm::detail::mutex_lock const lock{giving_mutex_};
    if (!try_divide_kept(part.begin) || !try_divide_kept(part.end())) { return false; }
    for (std::size_t i = 0; i != kept_.size();) {
      auto const piece = kept_[i];
      if (piece.begin < part.begin || part.end() < piece.end()) {
        ++i;
        continue;
      }
      kept_[i] = kept_.back();
      kept_.pop_back();
      source_.take_back(rmm::detail::to_pointer(piece.begin), piece.bytes, stream);
    }
    returned_.fetch_add(bytes, std::memory_order_relaxed);
    return true;
  }

  /// Divides the kept piece that has `at` inside, if there is one. Returns false if host memory runs out.
  [[nodiscard]] bool try_divide_kept(std::uintptr_t at) noexcept
  {
    try {
      kept_.reserve(kept_.size() + 1);
    } catch (std::exception const&) {
      return false;
    }
    auto const piece = rmm::detail::find_if(
      kept_.begin(), kept_.end(), [&](auto const& each) { return each.begin < at && at < each.end(); });
    if (piece == kept_.end()) { return true; }
    if (!source_.try_divide(*piece, at)) { return false; }
    kept_.push_back({at, piece->end() - at});
    piece->bytes = at - piece->begin;
    return true;
  }

  /// Waits for the device, and gives all that is left back. For memory that give_back() could not return. What does not go back because
  /// host memory runs out stays allocated until the source is destroyed.
  RMM_COLD void give_back_after_all_work(cuda_stream_view stream) noexcept
  {
    bool gives = heap_.wait_for_all();
    while (gives && !kept_.empty()) {
      auto const piece = kept_.back();
      gives            = try_give_back(rmm::detail::to_pointer(piece.begin), piece.bytes, stream);
    }
    if (!kept_.empty()) {
      rmm::detail::log(rmm::detail::log_level::error,
                       "memory_reservation: memory could not be given back to its pool, because host memory ran out or "
                       "the device could not be waited for. It stays allocated until the pool is destroyed");
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
  rmm::detail::mutex giving_mutex_;  // guards kept_; taken before the locks of the source
  std::vector<rmm::detail::address_range> kept_;
  std::atomic<std::size_t> shrunk_{0};
  std::atomic<std::size_t> returned_{0};  // went back to the source; still live in heap_
  std::atomic<bool> ended_{false};
  std::atomic<std::uint64_t> charged_{is_reserved};
  union {  // as in basic_suballocator
    rmm::detail::stream_ordered_heap heap_;
  };
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
