// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <pthread.h>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

/// Tells whether an object was made by this process, or by one that this process was forked from.
///
/// A forked child has one thread. Locks of its parent's objects may be held by threads that do not exist in the child, and what those
/// locks guard may be half changed. A child that ends by exit() destroys the static objects of its parent all the same. So what runs in a
/// destructor, in a deallocation and at the end of a thread asks this first, and leaves the objects of the parent alone.
///
/// Asking costs two loads. After vfork() or clone(), which call no handlers, the answer is that of the parent.
class owning_process {
 public:
  /// Whether this process made the object.
  [[nodiscard]] bool is_current() const noexcept { return forks_ == forks_so_far; }

  /// Returns a number above 0 that differs from that of the processes which this one was forked from.
  [[nodiscard]] static unsigned number() noexcept { return forks_so_far + 1; }

  /// Counts the forks that led to this process. Called when a shared object is loaded.
  [[nodiscard]] static bool count_forks() noexcept
  {
    return ::pthread_atfork(nullptr, nullptr, [] { ++forks_so_far; }) == 0;
  }

 private:
  inline static unsigned forks_so_far{0};  // changes only while the process has one thread

  unsigned forks_{forks_so_far};
};

/// A deleter for std::unique_ptr that does nothing in a forked child of the process that made the pointer: a thread of the parent may
/// have been changing the object, and its destructor may wait for such threads.
class delete_in_own_process {
 public:
  template <class Object>
  void operator()(Object* object) const noexcept
  {
    if (process_.is_current()) { delete object; }
  }

 private:
  owning_process process_;
};

/// An object that each process makes at its first use. A forked child gets one of its own: a thread of its parent may have held a lock of
/// the parent's object, or been changing it.
///
/// Constant-initialized and trivially destructible: a static one can be used before and after the life of all static objects. Thread-safe.
///
/// Order: the update that publishes an object releases it, and loads acquire, also where an update fails. So each thread sees the object
/// constructed. first_user says what a child sees.
template <class Object>
class one_per_process {
 public:
  constexpr one_per_process() noexcept               = default;
  one_per_process(one_per_process const&)            = delete;
  one_per_process& operator=(one_per_process const&) = delete;

  /// Returns the object of this process; null if it has made none.
  [[nodiscard]] Object* find() const noexcept
  {
    auto* const now = newest_.load(std::memory_order_acquire);
    return now != nullptr && now->process.is_current() ? &now->object : nullptr;
  }

  /// Returns the object of this process. Throws std::bad_alloc if there is none yet.
  [[nodiscard]] Object& get()
  {
    auto* now = newest_.load(std::memory_order_acquire);
    if (now == nullptr || !now->process.is_current()) {
      auto* const made = new owned;
      if (newest_.compare_exchange_strong(now, made, std::memory_order_acq_rel)) { return made->object; }
      delete made;  // another thread was faster
    }
    return now->object;
  }

  /// Destroys the object of this process, which no thread uses any more.
  void destroy() noexcept
  {
    if (find() != nullptr) { delete newest_.exchange(nullptr, std::memory_order_acq_rel); }
  }

 private:
  struct owned {
    owning_process process;
    Object object{};
  };

  std::atomic<owned*> newest_{nullptr};  // that of this process, that of a parent, or null
};

/// The process that used the process-wide `Object` first. Static, so that the layout of the object, which releases share, stays.
///
/// Order: the number guards no data, and all threads of a process store the same one. In a child it matters that a thread of the parent
/// stored the number before it locked the object. C++ has no fork(). The system gives the child what each thread of the parent had stored
/// up to one of its instructions: it stops writes of all processors, with their earlier stores done, while it copies the mappings.
template <class Object>
class first_user {
 public:
  /// Called before the object is used.
  static void note_use() noexcept
  {
    if (number.load(std::memory_order_relaxed) != 0) { return; }
    unsigned none{0};
    number.compare_exchange_strong(none, owning_process::number(), std::memory_order_relaxed);
  }

  /// Whether a process that this one was forked from used the object first.
  [[nodiscard]] static bool is_a_parent() noexcept
  {
    auto const first = number.load(std::memory_order_relaxed);
    return first != 0 && first != owning_process::number();
  }

 private:
  inline static std::atomic<unsigned> number{0};  // 0 before the first use
};

/// In each shared object, because the C library drops the handlers of one that is unloaded.
RMM_HIDDEN inline bool const forks_are_counted{owning_process::count_forks()};

}  // namespace detail
}  // namespace RMM_NAMESPACE
