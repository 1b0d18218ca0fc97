// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <pthread.h>

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

/// In each shared object, because the C library drops the handlers of one that is unloaded.
RMM_HIDDEN inline bool const forks_are_counted{owning_process::count_forks()};

}  // namespace detail
}  // namespace RMM_NAMESPACE
