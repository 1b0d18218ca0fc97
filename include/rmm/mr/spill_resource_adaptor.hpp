// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

/// A function that frees memory. It gets the bytes that are wanted, and returns the bytes that it freed: 0 if it can free nothing.
using spill_hook_t = std::function<std::size_t(std::size_t bytes)>;

/// A level of use, and the function that is called when the bytes in use rise above it.
struct watermark {
  double above;  ///< the share of the maximum, at most 1
  double below;  ///< a share of at most `above`: the callback can be called again only after the use was at or below it
  std::function<void(std::size_t bytes_in_use)> callback;
};

/// The maximum of a spill_resource_adaptor, and shares of it.
struct spill_options {
  /// The bytes to which shares refer, such as the maximum of the upstream pool. If not set: the memory of the current device. For a larger
  /// allocation the hook is asked only if upstream is known to have as much; see spill_resource_adaptor.
  std::optional<std::size_t> maximum_bytes{};
  /// The hook is asked before the use rises above this share of the maximum.
  double spill_above{1};
  std::vector<watermark> watermarks{};
};

/// Counts of a spill_resource_adaptor.
struct spill_figures {
  std::uint64_t calls{};        ///< calls of the hook
  std::uint64_t asked_bytes{};  ///< the bytes that it was asked for
  std::uint64_t freed_bytes{};  ///< the bytes that it said to have freed
};

namespace detail {

/// The bytes in use of a spill_resource_adaptor, its hook and its watermarks. Sizes are rounded up to 256.
///
/// A request claims its bytes before upstream is asked, and uses them after upstream has served it. The hook's share limits what is
/// claimed, so that requests of several threads cannot pass it together unseen. Watermarks look only at what is used, because a request
/// that has claimed bytes can still fail.
///
/// Invariants:
///  S1  no lock is held while a function of the program runs
///  S2  a thread that runs one calls none from within
///  S3  a watermark is raised from the call of its callback until the use was at or below its lower share
///  S4  used_ <= claimed_, which has the bytes in use and those of requests that upstream has not served yet. used_ is counted only if
///      there are watermarks, because that takes two more atomic additions
///  S5  asked_now_ is the sum of the bytes that running calls of the hook have yet to free. Memory that the thread of a call frees leaves
///      claimed_ and asked_now_ together, under the mutex, so that another thread finds the bytes in both or in none
///
/// Order: claimed_ guards no data. Of two threads that pass the hook's share together, the second one to add reads the sum. asked_now_ is
/// written under the mutex. A thread that acquires a sum of spilled_ tries upstream again after the frees which are in the sum.
///
/// S3 is Dekker's argument. A thread that frees subtracts from used_ and then reads lowered_under_. A thread that raises a watermark writes
/// lowered_under_ and then reads used_. All four are seq_cst, so one of the reads comes after both writes in the single order of such
/// operations, and that thread lowers the watermark again.
/// A thread that allocates while another one lowers a watermark may not see that. Then the next allocation calls the callback.
/// tests/models/spill_model.cpp tries all executions.
class spill_policy {
 public:
  spill_policy(spill_hook_t hook, spill_options options)
    : hook_{std::move(hook)}, maximum_{known_maximum(options)}, spill_at_{bytes_of(options.spill_above)}
  {
    marks_.reserve(options.watermarks.size());
    for (auto& each : options.watermarks) {
      RMM_EXPECTS(static_cast<bool>(each.callback), "A watermark has no callback: set its function");
      RMM_EXPECTS(each.below >= 0 && each.below <= each.above,
                  "The lower share of a watermark is " + std::to_string(each.below) +
                    ", but must be between 0 and the upper share, " + std::to_string(each.above));
      marks_.push_back({bytes_of(each.above), bytes_of(each.below), std::move(each.callback), false});
    }
    note_levels();
  }

  [[nodiscard]] std::size_t used() const noexcept
  {
    return (has_marks() ? used_ : claimed_).load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t maximum() const noexcept { return maximum_; }

  [[nodiscard]] spill_figures figures() const noexcept
  {
    auto const locked = rmm::detail::mutex_lock{mutex_};
    return figures_;
  }

  /// Claims `bytes` bytes, and asks the hook first if that brings the claims above its share. Throws what the hook throws.
  void claim(std::size_t bytes)
  {
    auto const now = claimed_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (now <= spill_at_) { return; }
    rmm::detail::scope_guard undo{[&]() noexcept { unclaim(bytes); }};
    spill_excess();
    undo.dismiss();
  }

  /// Claims `bytes` bytes without calling the hook.
  void claim_silently(std::size_t bytes) noexcept { claimed_.fetch_add(bytes, std::memory_order_relaxed); }

  /// Claims `bytes` bytes. Returns false, and changes nothing, if the hook or a watermark may have to be called.
  [[nodiscard]] bool try_claim(std::size_t bytes) noexcept
  {
    // Adding and undoing would not do, because a hook or another thread would count the claim meanwhile.
    for (auto now = claimed_.load(std::memory_order_relaxed);
         now <= spill_at_ && bytes <= spill_at_ - now && now + bytes <= raised_above_.load();) {
      if (claimed_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed)) { return true; }
    }
    return false;
  }

  /// Takes back the claim of a request that has failed.
  void unclaim(std::size_t bytes) noexcept { claimed_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// Counts claimed bytes as used, after upstream has served them. Returns whether notify() has to be called.
  [[nodiscard]] bool note_served(std::size_t bytes) noexcept
  {
    return has_marks() && used_.fetch_add(bytes) + bytes > raised_above_.load();
  }

  /// Counts used bytes as free, after upstream has taken them. May take the mutex, which no thread holds while it waits for anything.
  void note_freed(std::size_t bytes) noexcept
  {
    bool const is_low = has_marks() && used_.fetch_sub(bytes) - bytes < lowered_under_.load();
    // A thread that runs the hook sees what it has added to asked_now_. For other threads a stale value does no harm.
    if (asked_now_.load(std::memory_order_relaxed) == 0) {
      unclaim(bytes);
    } else {
      unclaim_during_spill(bytes);
    }
    if (is_low) { lower(); }
  }

  /// Calls the callbacks of all watermarks below the current use. If one throws, throws that, and leaves the remaining ones to the next
  /// allocation.
  RMM_COLD void notify()
  {
    if (is_in_call()) { return; }
    for (auto& each : marks_) {
      if (!try_raise(each)) { continue; }
      call_frame const frame{this};
      each.callback(used());
    }
  }

  /// A request that is tried again while upstream has too little memory, and what was freed for it.
  struct attempts {
    std::size_t bytes;               // as the program asked
    std::size_t charge;              // rounded up; 0 if that overflows
    std::uint64_t spilled_before{};  // spilled() before upstream was asked
    std::size_t limit{};             // the most that can be free for it; 0 until upstream has failed
    std::size_t freed{};             // what was freed since the first failure, at most the limit
  };

  /// Returns a count that rises by the bytes that calls of the hook free.
  [[nodiscard]] std::uint64_t spilled() const noexcept { return spilled_.load(std::memory_order_acquire); }

  /// Asks the hook for the bytes of a request after upstream had too little. Does not ask if calls in other threads have freed as much
  /// since `request.spilled_before`. Returns whether to try again.
  [[nodiscard]] RMM_COLD bool try_spill(attempts& request, out_of_memory const& failure)
  {
    if (!hook_ || request.charge == 0 || is_in_call()) { return false; }
    if (request.limit == 0) { request.limit = most_bytes(failure); }
    auto const room = request.limit - request.freed;
    if (request.bytes > request.limit || room == 0) { return false; }

    std::uint64_t progress = spilled() - request.spilled_before;
    if (progress < request.charge) {
      auto const call   = call_hook(request.charge, rmm::detail::mutex_lock{mutex_});
      auto const others = spilled() - request.spilled_before - call.counted;
      progress          = call.freed < room ? call.freed + others : room;
    }
    request.freed += progress < room ? std::size_t{progress} : room;
    return progress != 0;
  }

 private:
  struct mark {
    std::size_t high;
    std::size_t low;
    std::function<void(std::size_t)> callback;
    bool raised;
  };

  struct hook_result {
    std::size_t freed;      // what the hook returned
    std::uint64_t counted;  // by how much the call has raised spilled_
  };

  /// A function of the program that this thread runs. A list, because a function can use another adaptor.
  class call_frame {
   public:
    explicit call_frame(spill_policy const* policy, std::size_t asked = 0) noexcept
      : to_free{asked}, policy_{policy}, outer_{innermost_}
    {
      innermost_ = this;
    }
    call_frame(call_frame const&)            = delete;
    call_frame& operator=(call_frame const&) = delete;
    ~call_frame() { innermost_ = outer_; }

    /// Returns the frame of this thread for `policy`, or null. There is one at most (S2).
    [[nodiscard]] static call_frame* find(spill_policy const* policy) noexcept
    {
      auto* frame = innermost_;
      while (frame != nullptr && frame->policy_ != policy) { frame = frame->outer_; }
      return frame;
    }

    std::size_t to_free;  // the part of asked_now_ that is this call's
    std::size_t freed{};  // the part of spilled_ that this call has freed so far

   private:
    inline static thread_local call_frame* innermost_{nullptr};

    spill_policy const* policy_;
    call_frame* outer_;
  };

  [[nodiscard]] bool has_marks() const noexcept { return !marks_.empty(); }

  [[nodiscard]] bool is_in_call() const noexcept { return call_frame::find(this) != nullptr; }

  [[nodiscard]] static std::size_t known_maximum(spill_options const& options)
  {
    RMM_EXPECTS(options.maximum_bytes.value_or(1) != 0,
                "The maximum of a spill_resource_adaptor is 0, but must be above 0");
    auto const device = options.maximum_bytes ? std::size_t{} : rmm::detail::device_memory_info_or_zero().second;
    return options.maximum_bytes.value_or(device != 0 ? device : std::numeric_limits<std::size_t>::max());
  }

  [[nodiscard]] std::size_t bytes_of(double share) const
  {
    RMM_EXPECTS(share >= 0 && share <= 1,
                "A share of the maximum is " + std::to_string(share) + ", but must be between 0 and 1");
    return share == 1 ? maximum_ : static_cast<std::size_t>(share * static_cast<double>(maximum_));
  }

  /// Returns the most bytes that one allocation can have: the maximum, or more if the use or the report of upstream's failure shows that
  /// there is more.
  [[nodiscard]] std::size_t most_bytes(out_of_memory const& failure) const noexcept
  {
    auto const use      = used();
    auto const* report  = failure.report();
    auto const reported = report != nullptr ? capacity_of(*report) : 0;
    auto const known    = use < reported ? reported : use;
    return known < maximum_ ? maximum_ : known;
  }

  /// Returns the bytes that a pool has, and those that it can still take as far as its report tells.
  [[nodiscard]] static std::size_t capacity_of(memory_report const& report) noexcept
  {
    auto const reserved   = report.pool.reserved_bytes;
    bool const has_device = report.is_of_device && report.device_figures.has_value();
    auto growth           = has_device ? report.device_figures->free_bytes : std::size_t{};
    if (report.maximum_bytes) {
      auto const allowed = *report.maximum_bytes > reserved ? *report.maximum_bytes - reserved : std::size_t{};
      if (!has_device || allowed < growth) { growth = allowed; }
    }
    return reserved + growth;
  }

  /// Takes back the claim of freed bytes. If this thread runs the hook, these are bytes that it was asked for.
  RMM_COLD void unclaim_during_spill(std::size_t bytes) noexcept
  {
    auto* const frame = call_frame::find(this);
    if (frame == nullptr) { return unclaim(bytes); }
    auto const locked  = rmm::detail::mutex_lock{mutex_};
    auto const counted = bytes < frame->to_free ? bytes : frame->to_free;
    unclaim(bytes);
    asked_now_.fetch_sub(counted, std::memory_order_relaxed);
    frame->to_free -= counted;
    frame->freed += bytes;
    spilled_.fetch_add(bytes, std::memory_order_release);
  }

  /// Asks for the bytes above the share, less those that running calls of the hook are still to free.
  RMM_COLD void spill_excess()
  {
    if (!hook_ || is_in_call()) { return; }
    auto locked       = rmm::detail::mutex_lock{mutex_};
    auto const wanted = claimed_.load(std::memory_order_relaxed);
    auto const known  = spill_at_ + asked_now_.load(std::memory_order_relaxed);
    if (wanted > known) { static_cast<void>(call_hook(wanted - known, std::move(locked))); }
  }

  /// Takes the locked mutex, and unlocks it.
  hook_result call_hook(std::size_t bytes, rmm::detail::mutex_lock locked)
  {
    ++figures_.calls;
    figures_.asked_bytes += bytes;
    asked_now_.fetch_add(bytes, std::memory_order_relaxed);
    locked = {};

    call_frame frame{this, bytes};
    rmm::detail::scope_guard const leave{[&]() noexcept {
      auto const locked_again = rmm::detail::mutex_lock{mutex_};
      asked_now_.fetch_sub(frame.to_free, std::memory_order_relaxed);
    }};
    auto const freed        = hook_(bytes);
    auto const locked_again = rmm::detail::mutex_lock{mutex_};
    figures_.freed_bytes += freed;
    auto const said = freed < maximum_ ? freed : maximum_;
    auto const rest = said > frame.freed ? said - frame.freed : 0;  // freed by other threads, or past the adaptor
    spilled_.fetch_add(rest, std::memory_order_release);
    return {freed, frame.freed + rest};
  }

  /// Raises a watermark if the use is above it. Returns whether its callback has to be called.
  [[nodiscard]] bool try_raise(mark& each) noexcept
  {
    auto const locked = rmm::detail::mutex_lock{mutex_};
    if (each.raised || used_.load() <= each.high) { return false; }
    each.raised = true;
    note_levels();
    lower_locked();  // a thread that freed memory before note_levels() did not see that it has to
    return true;
  }

  RMM_COLD void lower() noexcept
  {
    auto const locked = rmm::detail::mutex_lock{mutex_};
    lower_locked();
  }

  void lower_locked() noexcept
  {
    auto const now = used_.load();
    for (auto& each : marks_) { each.raised = each.raised && now > each.low; }
    note_levels();
  }

  void note_levels() noexcept
  {
    auto above = std::numeric_limits<std::size_t>::max();
    std::size_t under{};
    for (auto const& each : marks_) {
      if (each.raised && each.low >= under) { under = each.low + 1; }
      if (!each.raised && each.high < above) { above = each.high; }
    }
    raised_above_.store(above);
    lowered_under_.store(under);
  }

  spill_hook_t hook_;
  std::size_t maximum_;
  std::size_t spill_at_;
  std::atomic<std::size_t> claimed_{0};
  std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> raised_above_{};   // the lowest share that is not raised: above it, notify() is needed
  std::atomic<std::size_t> lowered_under_{};  // one more than the highest lower share that is raised; 0: none is
  std::atomic<std::size_t> asked_now_{0};     // S5
  std::atomic<std::uint64_t> spilled_{0};     // see spilled()
  mutable rmm::detail::mutex mutex_;          // guards the members below, and writes of the levels and of the two above
  std::vector<mark> marks_;                   // their number never changes, and may be read without the mutex
  spill_figures figures_;
};

}  // namespace detail

/// An adaptor that asks the program to free memory before upstream fails, or before the use rises above a share of a maximum. It also
/// tells the program when the use rises above watermarks. Use it over a pool, to move data to memory of the host in time.
///
/// The hook is called with
///  - the bytes by which the allocation would raise the use above the share `spill_above`. The allocation is made in any case.
///  - the bytes of the allocation, if upstream throws out_of_memory. Upstream is tried again until it has the memory, the hook returns 0,
///    or what was freed adds up to the maximum. The caller gets the last exception of upstream then.
///
/// Bytes that the hook's thread frees through the adaptor count as freed at once: another thread that passes `spill_above` meanwhile asks
/// only for the rest. Other bytes that the hook reports count when it returns. After a failed allocation, a thread tries again without
/// calling the hook if hooks in other threads have freed enough meanwhile. It also tries again if its own hook returns 0, but those of
/// others have freed something.
///
/// For an allocation above the maximum, freeing memory up to the maximum is not enough. So the hook is called only if upstream has failed
/// and is known to have that much memory: if as much is in use, or if the report of the pool that failed shows as much.
///
/// A watermark's callback is called after the allocation. Exceptions of the hook and of callbacks reach the caller of allocate(), which
/// then fails. Both may allocate and free, on any stream; their own allocations from this adaptor call none of them.
///
/// @code{.cpp}
/// std::vector<rmm::device_buffer> cached;
/// auto const spill = [&](std::size_t) {
///   auto const freed = cached.empty() ? 0 : cached.back().size();
///   if (freed != 0) { cached.pop_back(); }  // copy it to the host before
///   return freed;
/// };
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, 1 << 20, 1 << 20};
/// rmm::mr::spill_options options;
/// options.maximum_bytes = 1 << 20;
/// rmm::mr::spill_resource_adaptor spilling{&pool, spill, options};
/// cached.emplace_back(800'000, rmm::cuda_stream_default, spilling);
/// rmm::device_buffer const next{800'000, rmm::cuda_stream_default, spilling};  // `cached` is empty now
/// cached.clear();  // in general: its buffers must not outlive `spilling` and `pool`, which are destroyed before it
/// @endcode
/// Threads  thread-safe if upstream and the functions are. Several threads may call the hook at a time; those that pass `spill_above`
///          together ask for the sum once. No thread waits for a call in another one. If several threads rise above a watermark together,
///          one of them calls its callback.
template <class Upstream>
class spill_resource_adaptor final : public detail::resource_adaptor<spill_resource_adaptor<Upstream>, Upstream> {
 public:
  /// An empty hook is never asked. Throws logic_error if `upstream` is null, the maximum is 0, a share is not between 0 and 1, or a
  /// watermark has no callback or its share `below` is larger than `above`.
  spill_resource_adaptor(Upstream* upstream, spill_hook_t hook, spill_options options = {})
    : spill_resource_adaptor::resource_adaptor{upstream}, policy_{std::move(hook), std::move(options)}
  {}

  spill_resource_adaptor(device_async_resource_ref upstream, spill_hook_t hook, spill_options options = {})
    : spill_resource_adaptor::resource_adaptor{upstream}, policy_{std::move(hook), std::move(options)}
  {}

  /// Returns the bytes in use, each allocation rounded up to 256. Without watermarks, that includes requests of other threads that
  /// upstream has not served yet.
  [[nodiscard]] std::size_t get_allocated_bytes() const noexcept { return policy_.used(); }

  /// Returns the maximum to which the shares refer.
  [[nodiscard]] std::size_t get_maximum() const noexcept { return policy_.maximum(); }

  /// Returns the number of calls of the hook, and the bytes asked for and freed.
  [[nodiscard]] spill_figures figures() const noexcept { return policy_.figures(); }

  /// Allocates as allocate() does, but from `from`, which is the upstream as an immediate_resource. Returns null, and changes nothing,
  /// if a function of the program has to be called, or `from` does not serve the request.
  [[nodiscard]] void* try_allocate_nonblocking(std::size_t bytes,
                                               rmm::detail::identified_stream stream,
                                               detail::immediate_resource& from) noexcept
  {
    auto const charge = align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);
    if (!policy_.try_claim(charge)) { return nullptr; }
    void* const ptr = from.try_allocate_nonblocking(bytes, stream);
    if (ptr == nullptr) {
      policy_.unclaim(charge);
    } else if (policy_.note_served(charge) && try_deallocate_nonblocking(ptr, bytes, stream.view(), from)) {
      return nullptr;  // another thread's allocation came between, so that this one has to call a watermark
    }
    return ptr;
  }

  /// Frees as deallocate() does, but to `to`, which is the upstream as an immediate_resource. Returns false, and changes nothing, if
  /// `to` does not take the block.
  [[nodiscard]] bool try_deallocate_nonblocking(void* ptr,
                                                std::size_t bytes,
                                                rmm::detail::identified_stream stream,
                                                detail::immediate_resource& to) noexcept
  {
    if (!to.try_deallocate_nonblocking(ptr, bytes, stream)) { return false; }
    policy_.note_freed(align_up(bytes, CUDA_ALLOCATION_ALIGNMENT));
    return true;
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    auto const charge    = align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);  // 0 if it overflows, which upstream refuses
    bool const could_fit = charge != 0 && bytes <= policy_.maximum();
    void* const ptr = could_fit ? allocate_claimed(bytes, charge, stream) : allocate_unclaimed(bytes, charge, stream);
    if (policy_.note_served(charge)) { notify(ptr, bytes, stream); }
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!this->is_of_this_process()) { return; }
    this->upstream().deallocate(ptr, bytes, stream);
    policy_.note_freed(
      align_up(bytes, CUDA_ALLOCATION_ALIGNMENT));  // last: the bytes are in use until upstream has them
  }

  /// Claims `charge` bytes, and allocates.
  [[nodiscard]] void* allocate_claimed(std::size_t bytes, std::size_t charge, cuda_stream_view stream)
  {
    policy_.claim(charge);
    rmm::detail::scope_guard undo{[&]() noexcept { policy_.unclaim(charge); }};
    void* const ptr = allocate_or_spill(bytes, charge, stream);
    undo.dismiss();
    return ptr;
  }

  /// Allocates, and claims `charge` bytes afterwards. If so many bytes were claimed before, requests of other threads would spill all that
  /// the program has.
  [[nodiscard]] RMM_COLD void* allocate_unclaimed(std::size_t bytes, std::size_t charge, cuda_stream_view stream)
  {
    void* const ptr = allocate_or_spill(bytes, charge, stream);
    policy_.claim_silently(charge);
    return ptr;
  }

  [[nodiscard]] void* allocate_or_spill(std::size_t bytes, std::size_t charge, cuda_stream_view stream)
  {
    for (detail::spill_policy::attempts request{bytes, charge};;) {
      request.spilled_before = policy_.spilled();
      try {
        return this->upstream().allocate(bytes, stream);
      } catch (out_of_memory const& failure) {
        if (!policy_.try_spill(request, failure)) { throw; }
      }
    }
  }

  RMM_COLD void notify(void* ptr, std::size_t bytes, cuda_stream_view stream)
  {
    rmm::detail::scope_guard undo{[&]() noexcept { do_deallocate(ptr, bytes, stream); }};
    policy_.notify();
    undo.dismiss();
  }

  detail::spill_policy policy_;
};

spill_resource_adaptor(device_async_resource_ref, spill_hook_t, spill_options = {})
  ->spill_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
