// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/nvtx/memory_marks.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/detail/live_by_tag.hpp>
#include <rmm/mr/detail/recovery_ladder.hpp>
#include <rmm/mr/detail/reservable.hpp>
#include <rmm/mr/detail/suballocator.hpp>
#include <rmm/recovery.hpp>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {

struct memory_snapshot;

namespace mr {

class memory_reservation;

namespace detail {

/// The base class of pools: a suballocator that grows, with tags, reservations, a failure callback, and parts for some of the tags. A
/// derived class decides how it grows.
///
/// Thread-safe. The growth mutex is the ladder's. It is taken before all locks of the heap and of its parts.
///
/// Order: tags_, has_parts_ and suspended_ are written with the growth mutex held, before the heap's slow path is set. A call that happens
/// after both reads the new values, and one that overlaps may read either. tags_ and has_parts_ release what they lead to, which loads
/// acquire. The null in tags_ leads to nothing, so it is stored relaxed.
template <class Unused>
class basic_growing_pool : public suballocator, public immediate_resource, private reservable, private recovery_rungs {
 public:
  /// Returns the bytes of all blocks that the pool has from upstream.
  [[nodiscard]] std::size_t pool_size() const noexcept { return heap_.block_bytes(); }

  /// Returns the most bytes that the pool may have from upstream; nothing if it has no limit of its own.
  [[nodiscard]] virtual std::optional<std::size_t> maximum_bytes() const noexcept { return std::nullopt; }

  /// Returns all memory of the pool at one moment, range by range. Needs rmm/memory_snapshot.hpp.
  template <class Snapshot = memory_snapshot>
  [[nodiscard]] RMM_COLD Snapshot snapshot() const
  {
    return make_snapshot<Snapshot>([this](auto& made) { this->add_to(made, {}); });
  }

  /// Makes the pool record the tag (tag_scope.hpp) of each later allocation, or stop. Initially off, which costs nothing.
  ///
  /// Earlier allocations have no tag. Turning it off erases all records.
  void track_tags(bool on = true);

  /// Returns the live bytes of each tag, in descending order; empty if the pool does not track tags. O(live allocations).
  [[nodiscard]] RMM_COLD std::vector<memory_report::holder> live_by_tag_name() const;

  /// Reserves memory. Needs mr/memory_reservation.hpp. Throws logic_error if `bytes` is 0, and as allocate() does.
  [[nodiscard]] memory_reservation reserve(std::size_t bytes, cuda_stream_view stream = cuda_stream_view{});

  /// Reserves memory, without calling the failure callback. Returns nothing if there is not enough.
  [[nodiscard]] std::optional<memory_reservation> try_reserve(std::size_t bytes,
                                                              cuda_stream_view stream = cuda_stream_view{});

  /// Returns the rungs that the pool tries when no free memory fits, in order.
  [[nodiscard]] recovery_order get_recovery_order() const { return ladder_.order(); }

  /// Sets the rungs and their order, for later allocations. Throws logic_error if a rung occurs twice, or the pool does not have it.
  void set_recovery_order(recovery_order const& order);

  /// Sets the function of recovery_rung::callback, which calls `callback(bytes, argument)` with the requested bytes. If it returns true,
  /// the pool tries again from the first rung on. The type is any that a failure_callback_t can hold; an empty function removes it.
  ///
  /// The function may free memory of this pool, allocate, and use any stream, because no lock is held. Its own allocations from this pool
  /// do not call it again. The caller of the failing allocation gets its exceptions.
  template <class Callback>
  void set_failure_callback(Callback callback, void* argument = nullptr)
  {
    ladder_.set_callback(std::move(callback), argument);
  }
  void set_failure_callback(std::nullptr_t) { set_failure_callback<bool (*)(std::size_t, void*)>(nullptr); }

  /// Makes each call ask the driver whether its stream captures a CUDA graph, to detect captures without a capture_scope. Costs about
  /// 20 ns a call. If it is off, only calls that the thread's own cache cannot serve ask. Initially on in files compiled without NDEBUG.
  /// A reservation has the setting that the pool has when it is made.
  void set_check_capture(bool on) noexcept;

  /// Whether each call asks the driver for captures; see set_check_capture().
  [[nodiscard]] bool check_capture() const noexcept final { return heap_.checks_captures(); }

  /// Allocates from the thread's own cache of `stream`; see immediate_resource. Returns null if RMM_NVTX is defined, because tools have to
  /// see each call.
  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes, rmm::detail::identified_stream stream) noexcept final;

  /// Frees to the thread's own cache of `stream`. Returns false if RMM_NVTX is defined.
  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                std::size_t bytes,
                                                rmm::detail::identified_stream stream) noexcept final;

 protected:
  using growing_pool = basic_growing_pool;  // the name of the base class in derived classes

  /// Returns a snapshot with the recorded tags. `add(maker)` has to call add_to() of the pool and of its parts.
  template <class Snapshot, class Add>
  [[nodiscard]] Snapshot make_snapshot(Add add) const
  {
    typename Snapshot::maker made;
    if (auto const* const tags = tags_.load(std::memory_order_acquire)) {
      auto const locks =
        tags->lock_all();  // before the heap's locks, so that each recorded allocation is live in the heap
      made.note_tags(*tags);
      add(made);
    } else {
      add(made);
    }
    return made.finish();
  }

  explicit basic_growing_pool(recovery_order const& order, int home = -1);
  ~basic_growing_pool() override = default;

  /// Takes the growth mutex: no allocation grows the pool while the lock is held. Taken before the heap's lock.
  [[nodiscard]] rmm::detail::mutex_lock lock_growth() const { return ladder_.lock(); }

  /// Makes this a part of `whole`, whose ladder it climbs. Requires the growth mutex of `whole`. Call it before any other function.
  void become_part_of(basic_growing_pool& whole) noexcept
  {
    ladder_.join(whole.ladder_);
    heap_.set_checks_captures(whole.check_capture());
  }

  /// Whether the ladder tries a rung. Requires the growth mutex.
  [[nodiscard]] bool tries(recovery_rung rung) const noexcept { return ladder_.tries(rung); }

  /// Makes each later call look for its part with find_part().
  void set_has_parts() noexcept
  {
    has_parts_.store(true, std::memory_order_release);
    update_slow_path();
  }

  /// Makes allocations throw logic_error, or ends that. Calls that have begun before are not affected.
  void suspend(bool on) noexcept
  {
    suspended_.store(on, std::memory_order_release);
    update_slow_path();
  }
  [[nodiscard]] bool is_suspended() const noexcept { return suspended_.load(std::memory_order_acquire); }

  /// Throws logic_error unless both sizes are multiples of 256, and the initial one is not above the maximum.
  static void check_sizes(std::size_t initial, std::optional<std::size_t> maximum);

  /// Takes the first `bytes` bytes, possibly 0, from a block_source or a memory_source. Throws out_of_memory with refusal_text().
  template <class Source>
  void take_first(Source& source, std::size_t bytes)
  {
    recovery_attempt first{bytes, cuda_stream_legacy};
    if (bytes == 0 || source.try_take(bytes, first.reason)) { return; }
    memory_report known;
    known.device_figures = current_device_figures();
    source.describe(known);
    throw_first_refused(first, known);
  }

  /// Adds the live bytes of each tag.
  void describe(memory_report& report) const override;

 private:
#if defined(RMM_NVTX)
  static constexpr bool tools_look_on = true;
#else
  static constexpr bool tools_look_on = false;
#endif

  /// Returns the part that a block lies in, or with null, the part for allocations under the current tag. Returns null for the pool
  /// itself. Called only after set_has_parts(), without locks.
  [[nodiscard]] virtual basic_growing_pool* find_part(void const* /*ptr*/) const noexcept { return nullptr; }

  /// Passes set_check_capture() on to the heaps of the parts. Requires the growth mutex.
  virtual void set_check_capture_of_parts(bool /*on*/) noexcept {}

  [[nodiscard]] void* set_aside(std::size_t bytes, cuda_stream_view stream) final;

  [[nodiscard]] void* try_set_aside(std::size_t bytes, cuda_stream_view stream) final;

  void take_back(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept final;

  [[nodiscard]] int home_device() const noexcept final { return heap_.home_device(); }

  void expect_usable(void const* block) const final;

  [[nodiscard]] bool try_divide(rmm::detail::address_range piece, std::uintptr_t at) noexcept final;

  /// Returns the result of find_part(), or the pool itself if that is null.
  [[nodiscard]] basic_growing_pool& part_with(void const* ptr) noexcept
  {
    auto* const part = has_parts_.load(std::memory_order_acquire) ? find_part(ptr) : nullptr;
    return part != nullptr ? *part : *this;
  }

  void expect_not_suspended() const final;

  /// Sends all calls to the slow path if a part, a pause or tags have to be looked at in each call.
  void update_slow_path() noexcept
  {
    heap_.set_slow_path(has_parts_.load(std::memory_order_acquire) || suspended_.load(std::memory_order_acquire) ||
                        tags_.load(std::memory_order_acquire) != nullptr);
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) final
  {
    void* const ptr = heap_.try_allocate_local(bytes, stream);
    return rmm::detail::mark_allocated(ptr != nullptr ? ptr : allocate_slow(bytes, stream), bytes);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept final
  {
    rmm::detail::mark_freed(ptr, bytes);
    if (ptr != nullptr && !heap_.try_deallocate_local(ptr, bytes, stream)) { deallocate_slow(ptr, bytes, stream); }
  }

  [[nodiscard]] RMM_OUT_OF_LINE void* allocate_slow(std::size_t bytes, cuda_stream_view stream);

  [[nodiscard]] RMM_OUT_OF_LINE void* allocate_blocking(std::size_t bytes, cuda_stream_view stream)
  {
    if (bytes - 1 >= rmm::detail::stream_ordered_heap::largest_request) { return nothing_or_too_much(bytes); }
    auto& part = part_with(nullptr);
    part.expect_not_suspended();
    auto const turns = part.ladder_.turns();
    void* ptr        = part.heap_.try_allocate_slow(bytes, stream);
    if (ptr == nullptr) {
      recovery_attempt climbing{bytes, stream};
      climbing.seen_turns = turns;
      ptr                 = part.climb(climbing, true);
      if (ptr == nullptr) { throw_exhausted(climbing); }  // of the whole pool: a part knows only itself
    }
    if (auto* const tags = tags_.load(std::memory_order_acquire)) { tags->add(ptr, bytes); }
    return ptr;
  }

  RMM_OUT_OF_LINE void deallocate_slow(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;

  RMM_OUT_OF_LINE void deallocate_blocking(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (!heap_.is_of_this_process()) { return; }
    if (auto* const tags = tags_.load(std::memory_order_acquire)) { tags->remove(ptr); }
    part_with(ptr).heap_.deallocate_slow(ptr, bytes, stream);
  }

  /// Throws out_of_memory for the first block. The report says whether the device's figures are about that memory.
  [[noreturn]] RMM_COLD void throw_first_refused(recovery_attempt const& first, memory_report const& known);

  /// Returns a text that says who refused the first block: the device if its free memory is too small; else upstream if it threw, because
  /// it may have a limit of its own; else the pool.
  [[nodiscard]] RMM_COLD static std::string refusal_text(std::size_t bytes,
                                                         std::optional<memory_report::device_memory> const& device,
                                                         bool was_thrown)
  {
    bool const lacks_memory = device && device->free_bytes < bytes;
    return std::string{lacks_memory ? "The device refused"
                       : was_thrown ? "Upstream refused"
                                    : "The pool could not take"} +
           " the first block of " + std::to_string(bytes) + " bytes" +
           (device ? ", with " + rmm::detail::format_bytes(device->free_bytes) + " of " +
                       rmm::detail::format_bytes(device->total_bytes) + " free on the device"
                   : std::string{});
  }

  [[nodiscard]] RMM_COLD static void* nothing_or_too_much(std::size_t bytes)
  {
    static_cast<void>(rmm::detail::checked_align_up(bytes, CUDA_ALLOCATION_ALIGNMENT));  // throws unless `bytes` is 0
    return nullptr;
  }

  [[nodiscard]] void* climb(recovery_attempt& climbing, bool ask)
  {
    return suballocator::climb(*this, climbing, align_up(climbing.asked, CUDA_ALLOCATION_ALIGNMENT), ask);
  }

  std::atomic<live_by_tag*> tags_{nullptr};  // null while tags are not tracked
  std::atomic<bool> has_parts_{false};
  std::atomic<bool> suspended_{false};
  rmm::detail::owned_ptr<live_by_tag> tags_made_;  // kept until the end, because other threads may use it
};

template <class Unused>
void basic_growing_pool<Unused>::track_tags(bool on)
{
  auto const growing = lock_growth();
  if (on == (tags_.load(std::memory_order_relaxed) != nullptr)) { return; }
  if (on) {
    if (!tags_made_) { tags_made_ = rmm::detail::make_owned<live_by_tag>(); }
    tags_made_->clear();  // of what a call recorded that overlapped with turning it off
    tags_.store(tags_made_.get(), std::memory_order_release);
  } else {
    tags_.store(nullptr, std::memory_order_relaxed);
    tags_made_->clear();
  }
  update_slow_path();
}

template <class Unused>
std::vector<memory_report::holder> basic_growing_pool<Unused>::live_by_tag_name() const
{
  auto const* const tags = tags_.load(std::memory_order_acquire);
  return tags != nullptr ? tags->holders() : std::vector<memory_report::holder>{};
}

template <class Unused>
void basic_growing_pool<Unused>::set_recovery_order(recovery_order const& order)
{
  ladder_.set_order(order, *this);
}

template <class Unused>
void basic_growing_pool<Unused>::set_check_capture(bool on) noexcept
{
  auto const growing = lock_growth();
  heap_.set_checks_captures(on);
  set_check_capture_of_parts(on);
}

template <class Unused>
void* basic_growing_pool<Unused>::try_allocate_nonblocking(std::size_t bytes,
                                                           rmm::detail::identified_stream stream) noexcept
{
  return tools_look_on ? nullptr : heap_.try_allocate_nonblocking(bytes, stream);
}

template <class Unused>
bool basic_growing_pool<Unused>::try_deallocate_nonblocking(void* ptr,
                                                            std::size_t bytes,
                                                            rmm::detail::identified_stream stream) noexcept
{
  return !tools_look_on && heap_.try_deallocate_nonblocking(ptr, bytes, stream);
}

template <class Unused>
basic_growing_pool<Unused>::basic_growing_pool(recovery_order const& order, int home) : suballocator{order, home}
{}

template <class Unused>
void basic_growing_pool<Unused>::check_sizes(std::size_t initial, std::optional<std::size_t> maximum)
{
  RMM_EXPECTS(is_aligned(initial, CUDA_ALLOCATION_ALIGNMENT),
              "Initial pool size required to be a multiple of 256 bytes, but is " + std::to_string(initial));
  RMM_EXPECTS(
    is_aligned(maximum.value_or(0), CUDA_ALLOCATION_ALIGNMENT),
    "Maximum pool size required to be a multiple of 256 bytes, but is " + std::to_string(maximum.value_or(0)));
  RMM_EXPECTS(initial <= maximum.value_or(initial),
              "Initial pool size exceeds the maximum pool size: " + std::to_string(initial) +
                " bytes instead of at most " + std::to_string(maximum.value_or(0)));
}

template <class Unused>
void basic_growing_pool<Unused>::describe(memory_report& report) const
{
  report.tags_tracked = tags_.load(std::memory_order_acquire) != nullptr;
  report.holders      = live_by_tag_name();
}

template <class Unused>
void* basic_growing_pool<Unused>::set_aside(std::size_t bytes, cuda_stream_view stream)
{
  return rmm::detail::mark_allocated(allocate_slow(bytes, stream), bytes);
}

template <class Unused>
void* basic_growing_pool<Unused>::try_set_aside(std::size_t bytes, cuda_stream_view stream)
{
  if (bytes - 1 >= rmm::detail::stream_ordered_heap::largest_request) { return nullptr; }
  auto& part = part_with(nullptr);
  part.expect_not_suspended();
  recovery_attempt climbing{bytes, stream};
  void* const ptr = part.climb(climbing, false);
  if (auto* const tags = tags_.load(std::memory_order_acquire); tags != nullptr && ptr != nullptr) {
    tags->add(ptr, bytes);
  }
  return rmm::detail::mark_allocated(ptr, bytes);
}

template <class Unused>
void basic_growing_pool<Unused>::take_back(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
{
  rmm::detail::mark_freed(ptr, bytes);
  deallocate_slow(ptr, bytes, stream);
}

template <class Unused>
void basic_growing_pool<Unused>::expect_usable(void const* block) const
{
  auto const* const part = has_parts_.load(std::memory_order_acquire) ? find_part(block) : nullptr;
  (part != nullptr ? part : this)->expect_not_suspended();
}

template <class Unused>
bool basic_growing_pool<Unused>::try_divide(rmm::detail::address_range piece, std::uintptr_t at) noexcept
{
  if (!part_with(rmm::detail::to_pointer(piece.begin)).heap_.try_divide()) { return false; }
  if (auto* const tags = tags_.load(std::memory_order_acquire)) { tags->divide(piece, at); }
  return true;
}

template <class Unused>
void basic_growing_pool<Unused>::expect_not_suspended() const
{
  RMM_EXPECTS(!suspended_.load(std::memory_order_acquire),
              "The pool, or its part for this tag, is paused: call resume() first");
}

template <class Unused>
void* basic_growing_pool<Unused>::allocate_slow(std::size_t bytes, cuda_stream_view stream)
{
  void* const ptr = heap_.try_allocate_nonblocking(bytes, stream, true);  // allocate_blocking() asks for the id, too
  return ptr != nullptr ? ptr : allocate_blocking(bytes, stream);
}

template <class Unused>
void basic_growing_pool<Unused>::deallocate_slow(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
{
  if (!heap_.try_deallocate_nonblocking(ptr, bytes, stream)) { deallocate_blocking(ptr, bytes, stream); }
}

template <class Unused>
void basic_growing_pool<Unused>::throw_first_refused(recovery_attempt const& first, memory_report const& known)
{
  auto const device = known.is_of_device ? known.device_figures : std::nullopt;
  this->throw_exhausted(first, refusal_text(first.asked, device, first.reason.thrown != nullptr).c_str());
}

using growing_pool = basic_growing_pool<void>;
RMM_COMPILED_ONCE(basic_growing_pool<void>);

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
