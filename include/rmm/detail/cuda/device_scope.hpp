// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/stream_calls.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

/// Pushes the primary context of `device` onto the calling thread's stack of contexts. Returns whether that succeeded.
///
/// The context is never released, because the runtime also keeps it until the process ends.
///
/// Order: the addresses of the driver's functions are relaxed here and below, as stream_calls.hpp explains.
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

/// Whether the process has a primary context on `device`, so that work may run there. True if the driver fails to answer.
[[nodiscard]] RMM_COLD RMM_HIDDEN inline bool may_have_context(int device) noexcept
{
  static std::atomic<int (*)(int, unsigned*, int*)> state{nullptr};
  unsigned flags{};
  int active{1};
  return ask_driver(state, "cuDevicePrimaryCtxGetState", device, &flags, &active) != cudaSuccess || active != 0;
}

/// A scope in which `device` is current for the calling thread. A negative number changes nothing.
///
/// Use it inside the library for calls that concern another device than the caller's. Unlike cuda_set_device_raii it restores the
/// thread completely: a thread without a context has none afterwards, and no context is created on the device that was current.
/// Cost  no call if the process sees one device.
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
  int previous_{-1};  // the device to restore, if the driver cannot push contexts
};

/// A scope in which a thread without a context has a context of `device`. Does nothing for other threads, for negative numbers, and if
/// the process sees one device.
///
/// Without it, the first call of CUDA in a thread makes the runtime create a context on the first device, even if the call concerns a
/// stream of another device. Do not use it for calls with the handle of a default stream, which depends on the current device.
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
