// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/mr/memory_reservation.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

/// How a reservation_queue treats requests that wait.
struct reservation_queue_options {
  /// After this time the request whose turn it is tries again, in case that memory was freed. notify() makes it try at once.
  std::chrono::steady_clock::duration retry_after{std::chrono::milliseconds{1}};

  /// A request that has waited this much longer than another one precedes it even if its priority is one lower; with twice this time, two
  /// lower, and so on. So no request waits for ever behind others. 0 or less: only priorities count.
  std::chrono::steady_clock::duration aging{std::chrono::seconds{1}};
};

/// Reservations that wait until a pool has the memory: in the order of priority and age, as reservation_queue_options::aging says. Use one
/// queue for all tasks that share a pool.
///
/// Only the request whose turn it is tries to reserve. So a small request does not overtake a large one that comes before it, although
/// there is memory for the small one. Calls of the pool itself are not held back. A task that holds a
/// reservation while it waits for another can wait for ever for tasks that do the same: give it a timeout.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, std::size_t{1} << 20};
/// rmm::mr::reservation_queue queue{pool};
/// auto const task = queue.reserve_or_wait(4096, 0, std::chrono::seconds{5});  // other tasks call this at the same time
/// @endcode
/// Threads  thread-safe. The queue has to outlive all calls, and the pool the queue.
class reservation_queue {
  /// Nothing for classes without try_reserve(), which the constructor does not take.
  template <class Source>
  using made_by = decltype(std::optional<memory_reservation>{
    std::declval<Source&>().try_reserve(std::size_t{}, cuda_stream_view{})});

 public:
  using duration = std::chrono::steady_clock::duration;

  /// Waits for as long as it takes.
  static constexpr duration forever = duration::max();

  /// Makes a queue for a pool, or for a reservation: anything with try_reserve(bytes, stream). If it also has maximum_bytes(), as pools
  /// have, requests of more are refused at once.
  template <class Source, class = made_by<Source>>
  explicit reservation_queue(Source& source, reservation_queue_options const& options = {})
    : try_reserve_{[&source](std::size_t bytes, cuda_stream_view stream) { return source.try_reserve(bytes, stream); }},
      maximum_{[&source] { return maximum_of(source, 0); }},
      options_{options}
  {}
  reservation_queue(reservation_queue const&)            = delete;
  reservation_queue& operator=(reservation_queue const&) = delete;

  /// Reserves `bytes`, if necessary after waiting for up to `timeout` for its turn and for the memory. Tries at least once if it is its
  /// turn. A higher `priority` comes first. Throws out_of_memory after the timeout, and what try_reserve() of the pool throws. The pool
  /// does not ask the program to free memory.
  ///
  /// Throws at once, without waiting for its turn: logic_error if `bytes` is 0, and out_of_memory if `bytes` is more than the maximum of
  /// the pool, the size of the reservation, or PTRDIFF_MAX.
  [[nodiscard]] memory_reservation reserve_or_wait(std::size_t bytes,
                                                   int priority            = 0,
                                                   duration timeout        = forever,
                                                   cuda_stream_view stream = cuda_stream_view{})
  {
    expect_possible(bytes);
    auto const begin    = clock::now();
    auto const deadline = timeout < clock::time_point::max() - begin ? begin + timeout : clock::time_point::max();
    std::unique_lock<std::mutex> lock{mutex_};
    request const mine{priority, begin, next_number_++};
    waiting_.push_back(&mine);
    leaver const leave{*this, lock, mine};
    for (;;) {
      auto const now     = clock::now();
      auto const seen    = notified_;
      bool const is_next = count_before(mine) == 0;
      if (is_next) {
        lock.unlock();  // the pool may take long
        auto made = try_reserve_(bytes, stream);
        lock.lock();
        if (made) { return std::move(*made); }
      }
      if (now >= deadline) { throw_timeout(bytes, mine, now); }
      if (is_next && notified_ != seen) { continue; }
      auto const wait = is_next ? std::min(options_.retry_after, longest_wait) : longest_wait;
      wake_->wait_until(lock, std::min(deadline, now + wait));
    }
  }

  /// Makes the request whose turn it is try again now. Call it after memory of the pool was freed.
  void notify()
  {
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      ++notified_;  // seen also by a request that tries at this moment
    }
    wake_->notify_all();
  }

  /// Returns the number of requests that wait or try.
  [[nodiscard]] std::size_t waiting() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return waiting_.size();
  }

 private:
  using clock = std::chrono::steady_clock;

  struct request {
    int priority;
    clock::time_point since;
    std::uint64_t number;
  };

  /// Takes a request out of the queue at its end, and lets others look whether it is their turn.
  class leaver {
   public:
    leaver(reservation_queue& queue, std::unique_lock<std::mutex>& lock, request const& of) noexcept
      : queue_{queue}, lock_{lock}, of_{of}
    {}
    leaver(leaver const&)            = delete;
    leaver& operator=(leaver const&) = delete;
    ~leaver()
    {
      if (!lock_.owns_lock()) { lock_.lock(); }
      auto& all = queue_.waiting_;
      all.erase(std::find(all.begin(), all.end(), &of_));
      queue_.wake_->notify_all();
    }

   private:
    reservation_queue& queue_;
    std::unique_lock<std::mutex>& lock_;
    request const& of_;
  };

  /// wait_until() of some C++ libraries converts a time to that of another clock, which overflows if a wait has no end.
  static constexpr duration longest_wait = std::chrono::hours{1};

  template <class Source>
  [[nodiscard]] static auto maximum_of(Source const& source, int)
    -> decltype(std::optional<std::size_t>{source.maximum_bytes()})
  {
    return source.maximum_bytes();
  }
  template <class Source>
  [[nodiscard]] static std::optional<std::size_t> maximum_of(Source const&, long)
  {
    return std::nullopt;
  }

  /// Throws if no wait helps: such a request would keep all others from their turn.
  void expect_possible(std::size_t bytes) const
  {
    constexpr auto largest = std::size_t{std::numeric_limits<std::ptrdiff_t>::max()};  // what one object can have
    auto const rounded     = memory_reservation::checked(bytes);
    auto const most        = std::min(maximum_().value_or(largest), largest);
    if (rounded > most) { throw_impossible(bytes, most); }
  }

  [[noreturn]] RMM_COLD static void throw_impossible(std::size_t bytes, std::size_t most)
  {
    RMM_FAIL("No reservation of " + rmm::detail::format_bytes(bytes) + ": there can be at most " +
               rmm::detail::format_bytes(most) + ". Reserve less, or make a larger pool",
             rmm::out_of_memory);
  }

  /// Whether a request comes before another. That never changes while both wait.
  [[nodiscard]] bool is_before(request const& lhs, request const& rhs) const noexcept
  {
    if (options_.aging <= duration{}) {
      return lhs.priority != rhs.priority ? lhs.priority > rhs.priority : lhs.number < rhs.number;
    }
    auto const rank_of =
      [&](request const& each) {  // when a request of priority 0 with the same rank would have arrived
        return static_cast<double>(each.since.time_since_epoch().count()) -
               static_cast<double>(each.priority) * static_cast<double>(options_.aging.count());
      };
    auto const left  = rank_of(lhs);
    auto const right = rank_of(rhs);
    return left < right || (!(right < left) && lhs.number < rhs.number);
  }

  [[nodiscard]] std::size_t count_before(request const& mine) const noexcept
  {
    auto const before = [&](request const* other) { return other != &mine && is_before(*other, mine); };
    return static_cast<std::size_t>(std::count_if(waiting_.begin(), waiting_.end(), before));
  }

  [[noreturn]] RMM_COLD void throw_timeout(std::size_t bytes, request const& mine, clock::time_point now) const
  {
    using milliseconds = std::chrono::duration<double, std::milli>;
    auto const before  = count_before(mine);
    auto const reason  = before == 0 ? std::string{"the pool does not have as much memory in one range"}
                                     : std::to_string(before) + " other requests come first";
    RMM_FAIL("No reservation of " + rmm::detail::format_bytes(bytes) + " after " +
               std::to_string(std::int64_t(milliseconds{now - mine.since}.count())) + " ms: " + reason,
             rmm::out_of_memory);
  }

  std::function<std::optional<memory_reservation>(std::size_t, cuda_stream_view)> try_reserve_;
  std::function<std::optional<std::size_t>()> maximum_;
  reservation_queue_options options_;
  mutable std::mutex mutex_;
  // Its destructor waits for threads that wait, so a forked child must not call it.
  std::unique_ptr<std::condition_variable, rmm::detail::delete_in_own_process> wake_{new std::condition_variable};
  std::vector<request const*> waiting_;  // in no order
  std::uint64_t next_number_{0};
  std::uint64_t notified_{0};  // calls of notify()
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
