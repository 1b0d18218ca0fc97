// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <dlfcn.h>

#include <cstddef>

/// @file
/// What RMM and librmm_audit.so, which a program may be preloaded with, know of each other. Releases of both may differ, so these structs
/// never change. An addition gets a function of another name.

namespace RMM_NAMESPACE {
namespace detail {

/// Functions that allocate memory in place of the driver, for libraries that know nothing of RMM. They must not throw. Any thread calls
/// them, also several at once.
struct audit_source {
  enum answer : int {
    served,
    out_of_memory,  ///< the library gets that error
    not_served      ///< another source or the driver allocates
  };

  /// Allocates memory of `device`, whose primary context is current, for work on `stream`. Sets `owner` to what deallocate() gets.
  int (*allocate)(void* context, int device, std::size_t bytes, void* stream, void** block, void** owner);

  /// Frees a block. If `block` is null, its memory is gone already, and only the owner has to end. Any device may be current.
  void (*deallocate)(void* context, void* owner, int device, void* block, std::size_t bytes, void* stream);

  void* context;
};

/// The functions of librmm_audit.so.
struct audit_library {
  /// Adds a source, which is asked before earlier ones. Returns its number, or 0 if RMM_AUDIT is not `route:current`.
  int (*add_source)(audit_source const*);

  /// Ends the use of a source. Waits for calls in progress, so none of its own functions may call this. Blocks that are not freed belong
  /// to nobody afterwards: freeing them does nothing.
  void (*withdraw_source)(int number);

  /// Returns the bytes of a source that are allocated.
  std::size_t (*bytes_of_source)(int number);

  /// Begins a scope, in this thread, in which the driver serves all libraries.
  void (*begin_unrouted)();
  void (*end_unrouted)();
};

/// Returns the functions of librmm_audit.so; null if the program is not preloaded with it.
[[nodiscard]] RMM_HIDDEN inline audit_library const* find_audit_library() noexcept
{
  static auto const* const found = []() noexcept -> audit_library const* {
    void* const get = ::dlsym(RTLD_DEFAULT, "rmm_audit_library_v1");
    return get != nullptr ? reinterpret_cast<audit_library const* (*)()>(get)() : nullptr;
  }();
  return found;
}

/// A scope in which a resource calls code that is not RMM's, such as an upstream of the program. What that takes from the driver is the
/// resource's own memory, so librmm_audit.so must not have the resource serve it.
class unrouted_scope {
 public:
  unrouted_scope() noexcept : library_{find_audit_library()}
  {
    if (library_ != nullptr) { library_->begin_unrouted(); }
  }
  ~unrouted_scope()
  {
    if (library_ != nullptr) { library_->end_unrouted(); }
  }
  unrouted_scope(unrouted_scope const&)            = delete;
  unrouted_scope& operator=(unrouted_scope const&) = delete;

 private:
  audit_library const* library_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
