// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/context_device.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Asks the runtime for the current device of the calling thread. Returns -1 if that fails.
///
/// If assertions are enabled, a failure ends the program, unless the runtime is shut down or there is no driver or no device at all:
/// destructors call this when the runtime is already shut down.
[[nodiscard]] inline int query_current_device() noexcept
{
  int device{};
  cudaError_t const status{cudaGetDevice(&device)};
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(status);
  return status == cudaSuccess ? device : -1;
}

/// Returns the current device of the calling thread. Throws cuda_error.
[[nodiscard]] inline int known_current_device()
{
  int device{};
  RMM_CUDA_TRY(cudaGetDevice(&device));
  return device;
}

/// Makes `device` the current device of the calling thread. If assertions are enabled, a failure ends the program, also if `device` does
/// not exist. Ignores failures if the runtime is shut down, or if there is no driver or no device at all.
inline void make_device_current(int device) noexcept { RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaSetDevice(device)); }

/// Returns the number of devices that the process can use. Asserts and returns 0 if the runtime fails.
[[nodiscard]] inline int device_count() noexcept
{
  int count{};
  cudaError_t const status{cudaGetDeviceCount(&count)};
  RMM_ASSERT_CUDA_SUCCESS(status);
  return status == cudaSuccess ? count : 0;
}

/// The number of devices according to the runtime; 0 before the first question. The number never changes in a process, so the runtime
/// is asked once. Tests that change the number of simulated devices reset this.
///
/// Order: relaxed, because it guards no data. All threads store the same number, and a thread that reads 0 asks itself.
inline std::atomic<int> known_device_count{0};

/// Asks the runtime for the number of devices, and stores it. Returns 0 if the runtime fails.
[[nodiscard]] RMM_COLD inline int ask_device_count() noexcept
{
  int count{};
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    clear_last_cuda_error();
    return 0;
  }
  known_device_count.store(count, std::memory_order_relaxed);
  return count;
}

/// Whether the process can use only one device, which is then the current device of every thread. Asks again after a failure.
[[nodiscard]] RMM_ALWAYS_INLINE bool sees_one_device() noexcept
{
  int const count{known_device_count.load(std::memory_order_relaxed)};
  return (count != 0 ? count : ask_device_count()) == 1;
}

/// Returns the current device of the calling thread: from the driver if it answers, else from query_current_device(). For processes that
/// see several devices, or if the number of devices is unknown.
[[nodiscard]] RMM_OUT_OF_LINE inline int ask_current_device() noexcept
{
  int device{0};
  return find_device_of_current_context(device) ? device : query_current_device();
}

/// Returns the current device of the calling thread, faster than query_current_device(). If the process sees one device, returns 0 without
/// a call, even while the runtime fails. Otherwise asks the driver, and the runtime only if the driver does not answer. A call of the
/// runtime takes about 30 ns, and much longer if many threads call it at the same time.
[[nodiscard]] RMM_ALWAYS_INLINE int current_device() noexcept { return sees_one_device() ? 0 : ask_current_device(); }

/// Returns the free and the total bytes of the current device. Throws cuda_error.
[[nodiscard]] inline std::pair<std::size_t, std::size_t> device_memory_info()
{
  std::size_t free{};
  std::size_t total{};
  RMM_CUDA_TRY(cudaMemGetInfo(&free, &total));
  return {free, total};
}

/// Returns the free and the total bytes of the current device; zeros on failure.
[[nodiscard]] inline std::pair<std::size_t, std::size_t> device_memory_info_or_zero() noexcept
{
  std::size_t free{};
  std::size_t total{};
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    clear_last_cuda_error();
    return {0, 0};
  }
  return {free, total};
}

/// Call it after a failed allocation. If the process can use no device, throws a bad_alloc that names this as the cause. Possible reasons:
/// the driver is missing or too old, it finds no device, or the process is the forked child of one that uses CUDA.
RMM_COLD inline void expect_usable_device(std::size_t bytes)
{
  int count{};
  cudaError_t const status{cudaGetDeviceCount(&count)};
  if (status == cudaSuccess) { return; }
  throw_cuda_alloc_error(status,
                         "No CUDA device can be used (failed to allocate " + std::to_string(bytes) +
                           " bytes): " + cudaGetErrorName(status) + " " + cudaGetErrorString(status));
}

/// Returns the current device of the calling thread, for a report; -1 if the runtime fails.
[[nodiscard]] inline int current_device_if_known() noexcept
{
  int device{};
  if (cudaGetDevice(&device) != cudaSuccess) {
    clear_last_cuda_error();
    return -1;
  }
  return device;
}

/// Returns an attribute of the current device; 0 if the runtime does not know the attribute. Throws cuda_error on other failures.
[[nodiscard]] inline int device_attribute(cudaDeviceAttr attribute)
{
  int value{};
  cudaError_t const status{cudaDeviceGetAttribute(&value, attribute, known_current_device())};
  if (status == cudaErrorInvalidValue) {
    clear_last_cuda_error();
    return 0;
  }
  RMM_CUDA_TRY(status);
  return value;
}

/// Returns the value of an attribute of the current device; 0 on failure, which means no for yes-or-no attributes.
[[nodiscard]] inline int device_attribute_or_zero(cudaDeviceAttr attribute) noexcept
{
  int device{};
  int value{};
  if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    clear_last_cuda_error();
    return 0;
  }
  return value;
}

/// Returns the CUDA version that the driver supports, as 1000 * major + 10 * minor; 0 without a driver.
[[nodiscard]] inline int driver_version() noexcept
{
  int version{};
  if (cudaDriverGetVersion(&version) != cudaSuccess) {
    clear_last_cuda_error();
    return 0;
  }
  return version;
}

/// Returns the CUDA version that the driver supports. Throws cuda_error.
[[nodiscard]] inline int known_driver_version()
{
  int version{};
  RMM_CUDA_TRY(cudaDriverGetVersion(&version));
  return version;
}

/// Returns the version of the CUDA runtime in the process, as 1000 * major + 10 * minor; 0 on failure.
[[nodiscard]] inline int runtime_version() noexcept
{
  int version{};
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) {
    clear_last_cuda_error();
    return 0;
  }
  return version;
}

/// Returns the version of the CUDA runtime in the process. Throws cuda_error.
[[nodiscard]] inline int known_runtime_version()
{
  int version{};
  RMM_CUDA_TRY(cudaRuntimeGetVersion(&version));
  return version;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
