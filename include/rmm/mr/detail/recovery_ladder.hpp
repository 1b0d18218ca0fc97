// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/base/failure.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/error.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/failure_reason.hpp>
#include <rmm/recovery.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// An allocation that found no free memory, and the rungs that it has tried.
struct recovery_attempt {
  std::size_t asked{};
  cuda_stream_view stream{};
  failure_reason reason{};  // the last failure
  recovery_order order{};
  std::array<std::uint32_t, recovery_rung_count> tries{};
  std::uint64_t seen_turns{never_searched};  // recovery_ladder::turns() before the search that found no free memory

  static constexpr std::uint64_t never_searched = rmm::detail::max_value<std::uint64_t>;
};

/// The rungs that each pool implements itself. The ladder calls all functions but has_rung() with its mutex held, and without locks of the
/// heap.
///
/// try_...() return allocated memory of the heap that `stream` may use, or null. With null they may set `reason`. `bytes` is a multiple of
/// the heap's granule and above 0.
class recovery_rungs {
 public:
  virtual ~recovery_rungs() = default;

  /// Throws logic_error if the pool is suspended.
  virtual void expect_not_suspended() const {}

  /// Whether the pool has the rung.
  [[nodiscard]] virtual bool has_rung(recovery_rung rung) const noexcept
  {
    return rung != recovery_rung::remap && rung != recovery_rung::trim;
  }

  [[nodiscard]] virtual void* try_grow(std::size_t, cuda_stream_view, failure_reason&) { return nullptr; }
  [[nodiscard]] virtual void* try_remap(std::size_t, cuda_stream_view, failure_reason&) { return nullptr; }
  [[nodiscard]] virtual void* try_trim(std::size_t, cuda_stream_view, failure_reason&) { return nullptr; }

  /// Whether try_remap() or try_trim() would serve the request if the device had no work.
  [[nodiscard]] virtual bool could_remap_idle(std::size_t /*bytes*/, cuda_stream_view /*stream*/) { return false; }
  [[nodiscard]] virtual bool could_trim_idle(std::size_t /*bytes*/, cuda_stream_view /*stream*/) { return false; }
};

/// Returns the free and total memory of the current device; nothing if the runtime fails.
[[nodiscard]] RMM_COLD inline std::optional<memory_report::device_memory> current_device_figures() noexcept
{
  auto const [free, total] = rmm::detail::device_memory_info_or_zero();
  if (total == 0) { return std::nullopt; }
  return memory_report::device_memory{free, total};
}

/// Returns the part of a failure's report that all suballocators have. Throws std::bad_alloc.
template <class Heap>
[[nodiscard]] RMM_COLD memory_report report_of(recovery_attempt const& failed, Heap const& heap)
{
  rmm::detail::device_scope const at_home{heap.home_device()};  // because the figures are those of the current device
  memory_report report;
  report.pool            = heap.figures();
  report.asked_bytes     = failed.asked;
  report.alignment_bytes = CUDA_ALLOCATION_ALIGNMENT;
  report.stream          = failed.stream;
  report.device          = rmm::detail::current_device_if_known();
  report.reason          = failed.reason.text;
  report.cause           = failed.reason.thrown;
  report.order           = failed.order;
  report.tries           = failed.tries;
  report.device_figures  = current_device_figures();
  return report;
}

/// The ladder of a pool: an allocation that finds no free memory tries its rungs in order, until one serves it.
///
/// One thread climbs at a time, because the memory that it gets often serves the waiting threads too. The ladders of a pool's parts share
/// the mutex, the order and the callback of the whole, and have their own counters.
///
/// Thread-safe. The ladder's mutex is taken before all locks of the heap and of its parts.
///
/// Invariants:
///  L1  the mutex is held while the order or the callback changes, and while a rung is tried
///  L2  the order has each rung at most once
///  L3  no rung served more often than it was tried
///  L4  a thread runs the callback without the mutex, and does not call it again from within
///  L5  turns() changes before a climb gives the mutex up. So if it is what it was before a search, nothing that the search has not seen
///      came from a rung
///
/// Order: the mutex guards the order and the callback. turns() says why it may read without it. An update of served_ releases the try
/// before it. figures() acquires all tries of the count that it reads, because updates continue the release sequences before them (L3).
/// The other counters guard no data.
class recovery_ladder {
 public:
  explicit recovery_ladder(recovery_order const& order) noexcept { own_.order = order; }

  /// Makes this the ladder of a part of the pool with the ladder `whole`. Requires the mutex of `whole`. Call it before any other function.
  void join(recovery_ladder& whole) noexcept { shared_ = whole.shared_; }

  /// Takes the mutex: no other thread climbs while the lock is held.
  [[nodiscard]] rmm::detail::mutex_lock lock() const { return rmm::detail::mutex_lock{shared_->mutex}; }

  [[nodiscard]] recovery_order order() const
  {
    auto const locked = lock();
    return shared_->order;
  }

  /// Sets the order for climbs that begin later. Throws logic_error if a rung occurs twice, or the pool does not have it.
  void set_order(recovery_order const& order, recovery_rungs const& rungs)
  {
    RMM_EXPECTS(order.is_valid(), "The recovery order contains a rung twice: name each rung at most once");
    for (auto const rung : order) {
      RMM_EXPECTS(rungs.has_rung(rung), std::string{"This pool has no rung "} + name_of(rung));
    }
    auto const locked = lock();
    shared_->order    = order;
  }

  /// Whether the order contains a rung. Requires the mutex.
  [[nodiscard]] bool tries(recovery_rung rung) const noexcept { return shared_->order.contains(rung); }

  /// Sets the function of recovery_rung::callback, which calls `function(bytes, argument)`. An empty function removes it.
  template <class Function>
  void set_callback(Function function, void* argument)
  {
    callback
      made;  // after the swap, the old callback; destroyed without the mutex, because its destructor may call the pool
    bool empty = false;
    if constexpr (can_be_empty<Function>::value) { empty = !static_cast<bool>(function); }
    if (!empty) {
      made.call = [](void* object, std::size_t bytes, void* with) -> bool {
        return (*static_cast<Function*>(object))(bytes, with);
      };
      made.argument = argument;
      made.function = rmm::detail::make_counted<Function>(std::move(function));
    }
    auto const locked = lock();
    std::swap(shared_->on_failure, made);
  }

  /// How often climbs have given the mutex up. Read it before a search of free memory, for recovery_attempt::seen_turns. Relaxed: a search
  /// misses what a rung did only if it held the heap's lock before the rung. Then this read happens before that climb ends, and cannot
  /// return the changed number. So the climb that follows the search sees the change, and searches again (L5).
  [[nodiscard]] std::uint64_t turns() const noexcept { return shared_->turns.load(std::memory_order_relaxed); }

  /// Climbs until a rung serves `bytes` bytes, and returns them; null if none does. Searches free memory first, unless the caller did and
  /// nobody has climbed since. Skips the callback unless `may_call_back` is true.
  template <class Heap>
  [[nodiscard]] RMM_COLD void* climb(
    Heap& heap, recovery_rungs& rungs, recovery_attempt& attempt, std::size_t bytes, bool may_call_back = true)
  {
    auto locked = lock();
    rmm::detail::scope_guard const end_turn{[&]() noexcept { shared_->end_turn(); }};
    rungs.expect_not_suspended();
    if (attempt.seen_turns != turns()) {
      if (void* const ptr = heap.try_allocate(bytes, attempt.stream)) { return ptr; }
    }
    attempt.order = shared_->order;
    RMM_ASSERT(attempt.order.is_valid());
    for (std::size_t at = 0; at < attempt.order.size();) {
      auto const rung = attempt.order[at++];
      if (rung == recovery_rung::callback && (!may_call_back || !shared_->on_failure.function || is_in_callback())) {
        continue;
      }
      auto const index = static_cast<std::size_t>(rung);
      tried_[index].fetch_add(1, std::memory_order_relaxed);
      ++attempt.tries[index];
      void* ptr{};
      if (rung != recovery_rung::callback) {
        ptr = try_rung(rung, heap, rungs, attempt, bytes);
      } else if (call_back(locked, rungs, attempt.asked)) {
        at  = 0;
        ptr = heap.try_allocate(bytes, attempt.stream);
      }
      if (ptr != nullptr) {
        served_[index].fetch_add(1, std::memory_order_release);
        return ptr;
      }
    }
    if (attempt.reason.text.empty()) { attempt.reason = "no free part of the pool is large enough"; }
    return nullptr;
  }

  /// Counts a failure, logs it, and throws out_of_memory with the report of `make_report()`; without one if host memory runs out. The text
  /// begins with `what`.
  template <class MakeReport>
  [[noreturn]] RMM_COLD void throw_exhausted(recovery_attempt const& failed,
                                             char const* what,
                                             MakeReport const& make_report)
  {
    failures_.fetch_add(1, std::memory_order_relaxed);
    auto const text =
      std::string{what} + " (failed to allocate " + rmm::detail::format_bytes(failed.asked) + "): " +
      failed.reason.text.substr(0, failed.reason.text.find('\n'));  // the first line, without an upstream pool's report
    rmm::detail::log(rmm::detail::log_level::error, text.c_str());
    auto const message = "RMM failure at: " + rmm::detail::position_text(__FILE__, __LINE__) + ": " + text;
    std::optional<memory_report> report;
    try {
      report.emplace(make_report());
    } catch (std::exception const&) {
      throw out_of_memory{message};
    }
    rmm::detail::throw_out_of_memory(message, *report);
  }

  /// Returns how often each rung was tried, how often it served, and how often all rungs failed.
  [[nodiscard]] recovery_figures figures() const noexcept
  {
    recovery_figures now;
    for (std::size_t i = 0; i < recovery_rung_count; ++i) {
      now.rungs[i].served =
        served_[i].load(std::memory_order_acquire);  // read before the tries, so that L3 holds in the result
      now.rungs[i].tried = tried_[i].load(std::memory_order_relaxed);
    }
    now.failures = failures_.load(std::memory_order_relaxed);
    return now;
  }

 private:
  /// Whether a function object can be empty, as pointers and std::function can. Lambdas cannot.
  template <class Function, class = void>
  struct can_be_empty : std::is_pointer<Function> {};
  template <class Function>
  struct can_be_empty<Function, std::void_t<decltype(std::declval<Function const&>().operator bool())>>
    : std::true_type {};

  /// A function of the program, of any type. Replaces std::function, whose header is too expensive here.
  struct callback {
    rmm::detail::counted_ptr<void> function;  // null without a function
    bool (*call)(void* function, std::size_t bytes, void* argument){};
    void* argument{};
  };

  struct shared_state {
    rmm::detail::mutex mutex;  // guards the members below
    recovery_order order;
    callback on_failure;
    std::atomic<std::uint64_t> turns{0};  // read without the mutex too

    void end_turn() noexcept { turns.fetch_add(1, std::memory_order_relaxed); }
  };

  /// A callback that this thread runs. A list, because a callback can allocate from another pool, which calls its own callback.
  struct callback_frame {
    shared_state const* ladder;
    callback_frame const* outer;
  };

  template <class Heap>
  [[nodiscard]] static void* try_rung(
    recovery_rung rung, Heap& heap, recovery_rungs& rungs, recovery_attempt& attempt, std::size_t bytes)
  {
    auto const on = attempt.stream;
    if (rung == recovery_rung::grow) { return rungs.try_grow(bytes, on, attempt.reason); }
    if (rung == recovery_rung::remap) { return rungs.try_remap(bytes, on, attempt.reason); }
    if (rung == recovery_rung::trim) { return rungs.try_trim(bytes, on, attempt.reason); }
    if (rung == recovery_rung::reclaim) { return heap.allocate_reclaimed(bytes, on, Heap::reclaiming::before_growth); }
    if (void* const ptr = heap.allocate_reclaimed(bytes, on)) { return ptr; }
    if (attempt.order.contains(recovery_rung::trim) && rungs.could_trim_idle(bytes, on) && heap.wait_for_all()) {
      if (void* const ptr = rungs.try_trim(bytes, on, attempt.reason)) { return ptr; }
    }
    if (!attempt.order.contains(recovery_rung::remap)) { return nullptr; }
    // Unfenced memory may consist of chunks in several places, so it is fenced before the remap.
    heap.fence_live_streams();
    if (void* const ptr = rungs.try_remap(bytes, on, attempt.reason)) { return ptr; }
    if (!rungs.could_remap_idle(bytes, on) || !heap.wait_for_all()) { return nullptr; }
    return rungs.try_remap(bytes, on, attempt.reason);
  }

  [[nodiscard]] bool call_back(rmm::detail::mutex_lock& locked, recovery_rungs const& rungs, std::size_t asked)
  {
    auto now = shared_->on_failure;  // a copy, because another thread may set a callback while this one runs
    shared_->end_turn();
    locked = {};
    callback_frame const frame{shared_, callbacks_};
    callbacks_ = &frame;
    rmm::detail::scope_guard const leave{[&]() noexcept { callbacks_ = frame.outer; }};
    bool const again = now.call(now.function.get(), asked, now.argument);
    now              = {};  // without the mutex, because the destructor of a callback may call the pool
    locked           = lock();
    rungs.expect_not_suspended();
    return again;
  }

  [[nodiscard]] bool is_in_callback() const noexcept
  {
    auto const* frame = callbacks_;
    while (frame != nullptr && frame->ladder != shared_) { frame = frame->outer; }
    return frame != nullptr;
  }

  inline static thread_local callback_frame const* callbacks_{nullptr};

  std::array<std::atomic<std::uint64_t>, recovery_rung_count> tried_{};
  std::array<std::atomic<std::uint64_t>, recovery_rung_count> served_{};
  std::atomic<std::uint64_t> failures_{0};
  shared_state own_;
  shared_state* shared_{&own_};  // points to the whole's state if this is the ladder of a part
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
