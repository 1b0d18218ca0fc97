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

/// The device of the calling thread, asked from the runtime; -1 if it does not say.
///
/// Destructors ask, so a runtime that is already gone is no reason for an assertion.
[[nodiscard]] inline int query_current_device() noexcept
{
  int device{};
  cudaError_t const status{cudaGetDevice(&device)};
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(status);
  return status == cudaSuccess ? device : -1;
}

/// The same where it must be known. Throws cuda_error.
[[nodiscard]] inline int known_current_device()
{
  int device{};
  RMM_CUDA_TRY(cudaGetDevice(&device));
  return device;
}

/// Makes `device` the one of the calling thread.
inline void make_device_current(int device) noexcept { RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaSetDevice(device)); }

/// Number of devices that the process can use; 0 if the runtime does not say.
[[nodiscard]] inline int device_count() noexcept
{
  int count{};
  cudaError_t const status{cudaGetDeviceCount(&count)};
  RMM_ASSERT_CUDA_SUCCESS(status);
  return status == cudaSuccess ? count : 0;
}

/// What the runtime said of the number of devices; 0 before it was asked. It fixes that when the process first uses it, so it
/// is asked once. Only tests that exchange the simulated machine for one with more devices set this back.
inline std::atomic<int> known_device_count{0};

/// Asks the runtime for that number, and keeps it; 0 if the runtime does not say.
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

/// Whether the process can use one device only, which then is the current device of every thread. A failed answer is not kept.
[[nodiscard]] RMM_ALWAYS_INLINE bool sees_one_device() noexcept
{
  int const count{known_device_count.load(std::memory_order_relaxed)};
  return (count != 0 ? count : ask_device_count()) == 1;
}

/// The device of the calling thread where the process sees several.
[[nodiscard]] RMM_OUT_OF_LINE inline int ask_current_device() noexcept
{
  int device{0};
  return find_device_of_current_context(device) ? device : query_current_device();
}

/// The device of the calling thread like query_current_device(), with no call where the process sees one device, and none of the
/// runtime where the driver knows: the runtime takes about 30 ns to answer, and much longer in many threads.
[[nodiscard]] RMM_ALWAYS_INLINE int current_device() noexcept { return sees_one_device() ? 0 : ask_current_device(); }

/// (free, total) bytes of the current device.
[[nodiscard]] inline std::pair<std::size_t, std::size_t> device_memory_info()
{
  std::size_t free{};
  std::size_t total{};
  RMM_CUDA_TRY(cudaMemGetInfo(&free, &total));
  return {free, total};
}

/// The same where nothing may be thrown: on any failure zeros.
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

/// For what failed to get memory: throws bad_alloc, which says so, if the cause is that the process can use no device. Then the
/// driver is missing, is too old or finds none, or the process was forked by one that uses CUDA.
RMM_COLD inline void expect_usable_device(std::size_t bytes)
{
  int count{};
  cudaError_t const status{cudaGetDeviceCount(&count)};
  if (status == cudaSuccess) { return; }
  throw_cuda_alloc_error(status,
                         "No CUDA device can be used (failed to allocate " + std::to_string(bytes) +
                           " bytes): " + cudaGetErrorName(status) + " " + cudaGetErrorString(status));
}

/// The device of the calling thread for a report: -1, and no more, if the runtime does not say.
[[nodiscard]] inline int current_device_if_known() noexcept
{
  int device{};
  if (cudaGetDevice(&device) != cudaSuccess) {
    clear_last_cuda_error();
    return -1;
  }
  return device;
}

/// Value of an attribute of the current device; 0 if the runtime does not know the attribute.
/// Throws cuda_error on other failures.
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

/// The same where nothing may be thrown: on any failure 0, which for the yes-or-no attributes means
/// no.
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

/// CUDA version that the driver supports, as 1000 * major + 10 * minor; 0 if there is no driver.
[[nodiscard]] inline int driver_version() noexcept
{
  int version{};
  if (cudaDriverGetVersion(&version) != cudaSuccess) {
    clear_last_cuda_error();
    return 0;
  }
  return version;
}

/// The same where it must be known. Throws cuda_error.
[[nodiscard]] inline int known_driver_version()
{
  int version{};
  RMM_CUDA_TRY(cudaDriverGetVersion(&version));
  return version;
}

/// Version of the runtime that the process runs with, in the same form; 0 if it does not say.
[[nodiscard]] inline int runtime_version() noexcept
{
  int version{};
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) {
    clear_last_cuda_error();
    return 0;
  }
  return version;
}

/// The same where it must be known. Throws cuda_error.
[[nodiscard]] inline int known_runtime_version()
{
  int version{};
  RMM_CUDA_TRY(cudaRuntimeGetVersion(&version));
  return version;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
