// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

/// @file
/// A checker of small programs with two to four threads, under the memory model of C++ instead of that of one processor.
///
/// explore() runs a program again and again. The threads take turns, and each run makes other choices: which thread
/// continues, which of several written values a load reads, and where a store enters the modification order. It ends
/// when all choices were tried, or at the first error: an expect() that fails, a data race of plain variables, a
/// variable that is used before its construction is visible, or a deadlock.
///
/// The machine is the view-based operational model of C++11's memory model (as in Kang et al., POPL 2017, without
/// promises). An atomic variable is the list of all messages that were written to it, in modification order. A thread
/// has a view: the oldest message of each variable that it may still read. A load may read that message or any later
/// one. A message carries a view, which an acquiring load adds to the thread's view. Fences order views through one
/// global view. For seq_cst operations, the model assumes only what [atomics.order] of C++17 says about one variable,
/// and about fences together with them.
///
/// Of executions that differ only in the order of independent operations, one is run (sleep sets).
///
/// A thread of a run is a fiber. It has its own copy of the program's thread_local variables, whose destructors run when it ends.
///
/// The explorer sees these accesses to plain variables: those of `plain`, and all accesses in sources that are compiled
/// with -fsanitize=thread and linked with plain_accesses.cpp instead of the sanitizer. In such sources, each race of
/// the library's own variables is an error, and so is freeing memory that another thread may use. The explorer does not
/// see accesses of the C++ library, the simulator and the system, nor the order in which static variables of functions
/// are constructed. A program calls such functions before its threads begin. Memory that std::malloc() returns again
/// counts as the same memory, so code that uses malloc() seems to race.
///
/// Limits: loads do not read what is written later in the run (no load buffering, as in RC11); a weak compare_exchange
/// does not fail spuriously; the order of seq_cst operations agrees with happens-before, as in C++17, and on x86-64 and
/// 64-bit Arm; a thread that loads a variable `most_idle_loads` times at one place without learning anything new waits
/// until there is something new.
namespace weak_memory {

/// Where an operation stands in the source.
struct place {
  char const* file;
  int line;

  friend bool operator<(place const& lhs, place const& rhs) noexcept
  {
    auto const order = std::strcmp(lhs.file, rhs.file);
    return order != 0 ? order < 0 : lhs.line < rhs.line;
  }
};

/// An operation, with the order that the program asked for.
struct ordered_place {
  enum kind_type { load, store, update, fence };
  place where;
  kind_type kind;
  std::memory_order order;
};

/// Replaces the memory order of the operations at a place.
struct weakening {
  place where{"", 0};
  ordered_place::kind_type kind{ordered_place::load};
  std::memory_order from{std::memory_order_relaxed};
  std::memory_order to{std::memory_order_relaxed};
};

struct limits {
  std::uint64_t most_runs{20'000'000};
  int most_idle_loads{2};         // more than code outside of loops needs at one place
  bool tries_every_order{false};  // even of independent operations
};

struct outcome {
  std::uint64_t runs{};     // that ended
  std::uint64_t cut_off{};  // because they equal others up to the order of independent operations
  bool is_complete{};       // all choices were tried
  std::string error;        // empty if there was none
  std::vector<ordered_place> places;

  [[nodiscard]] bool holds() const noexcept { return error.empty() && is_complete; }
};

/// The threads of one run.
class program {
 public:
  /// Adds a thread. `before` runs as that thread, before all threads begin: for what the thread did earlier.
  program& thread(std::function<void()> body, std::function<void()> before = {})
  {
    threads.push_back({std::move(body), std::move(before)});
    return *this;
  }
  /// Adds a thread that only loads. It runs after the writing threads have ended, without knowing that: it can still
  /// read all values that it could have read earlier. So no execution is missed, and fewer runs are needed.
  program& reader(std::function<void()> body)
  {
    readers.push_back({std::move(body), {}});
    return *this;
  }
  /// Sets the function that is called when all threads have ended.
  void finally(std::function<void()> body) { last = std::move(body); }

  struct thread_code {
    std::function<void()> body;
    std::function<void()> before;
  };
  std::vector<thread_code> threads;
  std::vector<thread_code> readers;
  std::function<void()> last;
};

/// Runs all executions of a program. `make` sets it up, and makes all variables; it is called once for each run.
[[nodiscard]] outcome explore(std::function<void(program&)> const& make,
                              limits const& given     = {},
                              weakening const& weaker = {});

/// The orders weaker than `order` that an operation can have, the strongest first.
[[nodiscard]] std::vector<std::memory_order> weaker_orders(ordered_place::kind_type kind, std::memory_order order);

[[nodiscard]] char const* name_of(std::memory_order order) noexcept;

/// Fails the run if the condition does not hold.
void expect(bool condition, char const* what);

/// Runs a thread to its end before the threads of the program begin. Such a thread may call this, too; it then ends later.
void run_before(std::function<void()> body);

/// Keeps the calling thread's thread_local objects at its end, as if the thread lived on.
void keep_thread_local_objects();

/// A barrier in all threads: the system's membarrier. Each thread executes a seq_cst fence at some moment of the call.
void barrier_in_all_threads();

namespace detail {

struct location;

using bits = std::uint64_t;

/// The state of a variable in the runs of a program.
struct variable {
  location* in_run{};
  std::uint64_t run{};
  int creator{};
  unsigned created{};  // the clock of the creator
};

void construct(variable& made) noexcept;
[[nodiscard]] bits load(variable& from, bits& initial, std::memory_order order, place where);
void store(variable& to, bits& initial, bits value, std::memory_order order, place where);
/// Calls `change(old, context)`, which returns the new value, or false to leave the variable unchanged.
bits update(variable& of,
            bits& initial,
            bool (*change)(bits old, bits& now, void* context),
            void* context,
            std::memory_order order,
            std::memory_order failure,
            place where);
void fence(std::memory_order order, place where);

struct plain_state {
  int writer{-1};
  unsigned written{};
  std::array<unsigned, 8> read{};
};
void read_plain(plain_state& state, char const* name);
void write_plain(plain_state& state, char const* name);

/// For plain_accesses.cpp: `code` accesses memory; memory was allocated again.
void access_memory(void const* at, std::size_t bytes, bool writes, void const* code) noexcept;
void take_memory(void const* at, std::size_t bytes) noexcept;

}  // namespace detail

/// A plain variable. An access that races with another one is an error.
template <class T>
class plain {
 public:
  plain(T value = {}, char const* name = "a plain variable") : value_{value}, name_{name} {}  // NOLINT: as a T

  operator T() const  // NOLINT: as a T
  {
    detail::read_plain(state_, name_);
    return value_;
  }
  plain& operator=(T value)
  {
    detail::write_plain(state_, name_);
    value_ = value;
    return *this;
  }

 private:
  mutable detail::plain_state state_;
  T value_;
  char const* name_;
};

/// Like std::mutex.
class mutex {
 public:
  void lock();
  void unlock();
  [[nodiscard]] bool try_lock();

 private:
  detail::variable state_;
};

/// The mutex that stands for the system's object at that address.
[[nodiscard]] mutex& mutex_of(void const* object);

/// Like std::atomic. Outside of explore() it is a plain variable.
template <class T>
class atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(detail::bits));

 public:
  using value_type                          = T;
  static constexpr bool is_always_lock_free = true;

  atomic() noexcept : atomic(T{}) {}
  atomic(T value) noexcept : initial_{to_bits(value)} { detail::construct(state_); }  // NOLINT: as std::atomic
  atomic(atomic const&)            = delete;
  atomic& operator=(atomic const&) = delete;

  [[nodiscard]] T load(std::memory_order order = std::memory_order_seq_cst,
                       int line                = __builtin_LINE(),
                       char const* file        = __builtin_FILE()) const noexcept
  {
    return from_bits(detail::load(state_, initial_, order, {file, line}));
  }
  operator T() const noexcept { return load(); }  // NOLINT: as std::atomic

  void store(T value,
             std::memory_order order = std::memory_order_seq_cst,
             int line                = __builtin_LINE(),
             char const* file        = __builtin_FILE()) noexcept
  {
    detail::store(state_, initial_, to_bits(value), order, {file, line});
  }
  T operator=(T value) noexcept  // NOLINT: as std::atomic
  {
    store(value);
    return value;
  }

  T exchange(T value,
             std::memory_order order = std::memory_order_seq_cst,
             int line                = __builtin_LINE(),
             char const* file        = __builtin_FILE()) noexcept
  {
    return changed([&](T) { return value; }, order, {file, line});
  }
  T fetch_add(T value,
              std::memory_order order = std::memory_order_seq_cst,
              int line                = __builtin_LINE(),
              char const* file        = __builtin_FILE()) noexcept
  {
    return changed([&](T old) { return static_cast<T>(old + value); }, order, {file, line});
  }
  T fetch_sub(T value,
              std::memory_order order = std::memory_order_seq_cst,
              int line                = __builtin_LINE(),
              char const* file        = __builtin_FILE()) noexcept
  {
    return changed([&](T old) { return static_cast<T>(old - value); }, order, {file, line});
  }
  T fetch_or(T value,
             std::memory_order order = std::memory_order_seq_cst,
             int line                = __builtin_LINE(),
             char const* file        = __builtin_FILE()) noexcept
  {
    return changed([&](T old) { return static_cast<T>(old | value); }, order, {file, line});
  }
  T fetch_and(T value,
              std::memory_order order = std::memory_order_seq_cst,
              int line                = __builtin_LINE(),
              char const* file        = __builtin_FILE()) noexcept
  {
    return changed([&](T old) { return static_cast<T>(old & value); }, order, {file, line});
  }

  bool compare_exchange_strong(T& expected,
                               T desired,
                               std::memory_order order = std::memory_order_seq_cst,
                               int line                = __builtin_LINE(),
                               char const* file        = __builtin_FILE()) noexcept
  {
    return compared(expected, desired, order, failure_of(order), {file, line});
  }
  bool compare_exchange_weak(T& expected,
                             T desired,
                             std::memory_order order = std::memory_order_seq_cst,
                             int line                = __builtin_LINE(),
                             char const* file        = __builtin_FILE()) noexcept
  {
    return compared(expected, desired, order, failure_of(order), {file, line});
  }

 private:
  [[nodiscard]] static detail::bits to_bits(T value) noexcept
  {
    detail::bits made{};
    std::memcpy(&made, &value, sizeof value);
    return made;
  }
  [[nodiscard]] static T from_bits(detail::bits value) noexcept
  {
    T made;
    std::memcpy(&made, &value, sizeof made);
    return made;
  }
  [[nodiscard]] static std::memory_order failure_of(std::memory_order order) noexcept
  {
    if (order == std::memory_order_acq_rel) { return std::memory_order_acquire; }
    return order == std::memory_order_release ? std::memory_order_relaxed : order;
  }

  template <class Change>
  T changed(Change change, std::memory_order order, place where) noexcept
  {
    auto const call = [](detail::bits old, detail::bits& now, void* context) {
      now = to_bits((*static_cast<Change*>(context))(from_bits(old)));
      return true;
    };
    return from_bits(detail::update(state_, initial_, call, &change, order, failure_of(order), where));
  }

  bool compared(T& expected, T desired, std::memory_order order, std::memory_order failure, place where) noexcept
  {
    struct exchanged {
      T from;
      T to;
      bool was_changed;
    } values{expected, desired, false};
    auto const call = [](detail::bits old, detail::bits& now, void* context) {
      auto& change       = *static_cast<exchanged*>(context);
      change.was_changed = old == to_bits(change.from);
      now                = to_bits(change.to);
      return change.was_changed;
    };
    expected = from_bits(detail::update(state_, initial_, call, &values, order, failure, where));
    return values.was_changed;
  }

  mutable detail::variable state_;
  mutable detail::bits initial_;
};

/// The system's futex of one variable: threads sleep in it while the variable has a certain value. Like the kernel's, it holds a lock while
/// it looks at the variable, and wakes the thread that sleeps longest.
struct futex {
  mutex lock;
  atomic<int> asleep{0};  // threads that went to sleep
  atomic<int> woken{0};   // of these
};
[[nodiscard]] futex& futex_of(void const* object);

/// Sleeps until futex_wake(), unless the variable has another value.
template <class T>
void futex_wait(atomic<T>& watched, T value)
{
  auto& sleepers = futex_of(&watched);
  sleepers.lock.lock();
  bool const sleeps = watched.fetch_add(0, std::memory_order_relaxed) == value;  // reads the newest value
  int const place   = sleeps ? sleepers.asleep.fetch_add(1, std::memory_order_relaxed) : 0;
  sleepers.lock.unlock();
  while (sleeps && sleepers.woken.load(std::memory_order_relaxed) <= place) {}
}

/// Wakes one thread, if any sleeps.
template <class T>
void futex_wake(atomic<T>& watched)
{
  auto& sleepers = futex_of(&watched);
  sleepers.lock.lock();
  if (sleepers.woken.load(std::memory_order_relaxed) < sleepers.asleep.load(std::memory_order_relaxed)) {
    sleepers.woken.fetch_add(1, std::memory_order_relaxed);
  }
  sleepers.lock.unlock();
}

inline void atomic_thread_fence(std::memory_order order,
                                int line         = __builtin_LINE(),
                                char const* file = __builtin_FILE())
{
  detail::fence(order, {file, line});
}

/// Orders nothing between threads. The compiler has to keep the order of the operations around it, as explore() does.
inline void atomic_signal_fence(std::memory_order /*order*/) noexcept {}

}  // namespace weak_memory
