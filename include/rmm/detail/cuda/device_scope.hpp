// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/stream_calls.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

/// Pushes the primary context of `device` onto the calling thread's stack of contexts. Returns whether the driver could.
///
/// The context stays retained: the runtime keeps it for the life of the process as well.
[[nodiscard]] RMM_COLD RMM_HIDDEN inline bool try_push_context(int device) noexcept
{
  static std::atomic<int (*)(void**, int)> retain{nullptr};
  static std::atomic<int (*)(void*)> push{nullptr};
  void* context{};
  return ask_driver(retain, "cuDevicePrimaryCtxRetain", &context, device) == cudaSuccess &&
         ask_driver(push, "cuCtxPushCurrent", context) == cudaSuccess;
}

/// Undoes try_push_context().
RMM_COLD RMM_HIDDEN inline void pop_context() noexcept
{
  static std::atomic<int (*)(void**)> pop{nullptr};
  void* context{};
  static_cast<void>(ask_driver(pop, "cuCtxPopCurrent", &context));
}

/// Whether the process may have a primary context on `device`, so that work can run there. True also if the driver does not say.
[[nodiscard]] RMM_COLD RMM_HIDDEN inline bool may_have_context(int device) noexcept
{
  static std::atomic<int (*)(int, unsigned*, int*)> state{nullptr};
  unsigned flags{};
  int active{1};
  return ask_driver(state, "cuDevicePrimaryCtxGetState", device, &flags, &active) != cudaSuccess || active != 0;
}

/// Makes `device` current for the calling thread while the object lives. A negative number changes nothing.
///
/// For the library's own calls on streams and memory of a device that the caller has not made current. Unlike
/// cuda_set_device_raii it leaves no trace: a thread that had no context has none afterwards, and no context is created on the
/// device that was current. Makes no call where the process sees one device.
class device_scope {
 public:
  explicit device_scope(int device) noexcept
  {
    if (device >= 0 && !sees_one_device()) { begin(device); }
  }
  ~device_scope()
  {
    if (is_changed_) { end(); }
  }
  device_scope(device_scope const&)            = delete;
  device_scope& operator=(device_scope const&) = delete;

 private:
  RMM_OUT_OF_LINE void begin(int device) noexcept
  {
    int current{-1};
    if (find_device_of_current_context(current) && current == device) { return; }
    is_changed_ = try_push_context(device);
    if (is_changed_) { return; }
    current = current_device_if_known();
    if (current < 0 || current == device) { return; }
    previous_   = current;
    is_changed_ = true;
    make_device_current(device);
  }

  RMM_OUT_OF_LINE void end() const noexcept
  {
    if (previous_ >= 0) { return make_device_current(previous_); }
    pop_context();
  }

  bool is_changed_{false};
  int previous_{-1};  // where the driver cannot push contexts
};

/// Gives the calling thread a context of `device` while the object lives, if it has none at all and the process sees several
/// devices. A negative number changes nothing.
///
/// A thread that has made no call of CUDA yet has no context, and the runtime creates one on the first device when it is asked
/// about anything, also about a stream of another device. Not for calls with the handle of a default stream, which names one
/// of the current device.
class context_scope {
 public:
  explicit context_scope(int device) noexcept
  {
    int current{-1};
    if (device < 0 || sees_one_device() || find_device_of_current_context(current)) { return; }
    pushed_ = try_push_context(device);
  }
  ~context_scope()
  {
    if (pushed_) { pop_context(); }
  }
  context_scope(context_scope const&)            = delete;
  context_scope& operator=(context_scope const&) = delete;

 private:
  bool pushed_{false};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
