// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/context_device.hpp>
#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <string>

namespace RMM_NAMESPACE {
namespace detail {

/// The functions of the CUDA driver that the library calls. The runtime finds them by name, so that programs need not link the driver.
struct driver_functions {
  decltype(&::cuInit) initialize{};
  decltype(&::cuGetErrorName) error_name{};
  decltype(&::cuGetErrorString) error_text{};
  decltype(&::cuDeviceGet) device{};
  decltype(&::cuDeviceGetAttribute) device_attribute{};
  CUresult (*device_of_context)(CUdevice*){};  ///< cuCtxGetDevice before version 13
  decltype(&::cuDevicePrimaryCtxRetain) retain_primary_context{};
  decltype(&::cuCtxPushCurrent) push_context{};
  decltype(&::cuCtxPopCurrent) pop_context{};
  decltype(&::cuMemGetAllocationGranularity) granularity{};
  decltype(&::cuMemAddressReserve) reserve_addresses{};
  decltype(&::cuMemAddressFree) free_addresses{};
  decltype(&::cuMemCreate) create{};
  decltype(&::cuMemRelease) release{};
  decltype(&::cuMemMap) map{};
  decltype(&::cuMemUnmap) unmap{};
  decltype(&::cuMemSetAccess) set_access{};
  decltype(&::cuMemExportToShareableHandle) export_handle{};
  decltype(&::cuMemImportFromShareableHandle) import_handle{};
};

/// Finds the CUDA 12.0 version of a function. Returns whether it exists.
template <class Function>
[[nodiscard]] bool find_driver_function(Function& function, char const* name) noexcept
{
  cudaError_t status{};
  function = find_driver_entry<Function>(name, status);
  return function != nullptr;
}

/// Finds all functions and initialises the driver. Returns whether that succeeded.
[[nodiscard]] RMM_COLD inline bool find_driver_functions(driver_functions& functions) noexcept
{
  bool all        = true;
  auto const find = [&](auto& function, char const* name) { all = all && find_driver_function(function, name); };
  find(functions.initialize, "cuInit");
  find(functions.error_name, "cuGetErrorName");
  find(functions.error_text, "cuGetErrorString");
  find(functions.device, "cuDeviceGet");
  find(functions.device_attribute, "cuDeviceGetAttribute");
  find(functions.device_of_context, "cuCtxGetDevice");
  find(functions.retain_primary_context, "cuDevicePrimaryCtxRetain");
  find(functions.push_context, "cuCtxPushCurrent");
  find(functions.pop_context, "cuCtxPopCurrent");
  find(functions.granularity, "cuMemGetAllocationGranularity");
  find(functions.reserve_addresses, "cuMemAddressReserve");
  find(functions.free_addresses, "cuMemAddressFree");
  find(functions.create, "cuMemCreate");
  find(functions.release, "cuMemRelease");
  find(functions.map, "cuMemMap");
  find(functions.unmap, "cuMemUnmap");
  find(functions.set_access, "cuMemSetAccess");
  find(functions.export_handle, "cuMemExportToShareableHandle");
  find(functions.import_handle, "cuMemImportFromShareableHandle");
  return all && functions.initialize(0) == CUDA_SUCCESS;
}

/// Returns the driver's functions; null if there is no driver, or it is too old for virtual memory. Searches again after a failure.
///
/// Hidden, because releases of the library in other shared objects may have a different set of functions.
///
/// Order: the first thread that has found all functions releases the table with its address. Readers acquire the address, also where their
/// own update fails, so they see the whole table, which never changes again.
[[nodiscard]] RMM_HIDDEN inline driver_functions const* find_driver() noexcept
{
  static std::atomic<driver_functions const*> known{nullptr};
  auto const* driver = known.load(std::memory_order_acquire);
  if (driver != nullptr) { return driver; }
  detail::owned_ptr<driver_functions> found{new (std::nothrow) driver_functions};
  if (found == nullptr || !find_driver_functions(*found)) { return nullptr; }
  if (!known.compare_exchange_strong(driver, found.get(), std::memory_order_acq_rel)) { return driver; }
  return found.release();  // never destroyed
}

/// Returns the driver's functions. Throws cuda_error if find_driver() finds none.
[[nodiscard]] RMM_HIDDEN inline driver_functions const& driver()
{
  auto const* const found = find_driver();
  if (found == nullptr) { RMM_FAIL("The CUDA driver is missing or has no virtual memory management", cuda_error); }
  return *found;
}

/// Returns `CUDA error in <call>: <name of the error> <its description>`.
[[nodiscard]] RMM_COLD inline std::string driver_error_text(std::string const& call, CUresult status)
{
  char const* name{};
  char const* description{};
  if (auto const* const found = find_driver()) {
    static_cast<void>(found->error_name(status, &name));
    static_cast<void>(found->error_text(status, &description));
  }
  auto const number = "CUDA driver error " + std::to_string(static_cast<int>(status));
  return "CUDA error in " + call + ": " + (name != nullptr ? name : number) + " " +
         (description != nullptr ? description : "unrecognized error code");
}

[[noreturn]] RMM_COLD inline void throw_driver_error(CUresult status, char const* call)
{
  throw cuda_error{driver_error_text(call, status)};
}

[[noreturn]] RMM_COLD inline void throw_driver_alloc_error(CUresult status, char const* call, std::size_t bytes)
{
  auto const text = driver_error_text(std::string{call} + " (" + std::to_string(bytes) + " bytes)", status);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) { throw out_of_memory{text}; }
  throw bad_alloc{text};
}

/// Throws a cuda_error unless `status`, the result of the function `call`, is CUDA_SUCCESS.
inline void check_driver(CUresult status, char const* call)
{
  if (status != CUDA_SUCCESS) { throw_driver_error(status, call); }
}

/// Checks the result of a function that allocates or maps. Throws out_of_memory if memory is missing, bad_alloc on other failures.
inline void check_driver_alloc(CUresult status, char const* call, std::size_t bytes)
{
  if (status != CUDA_SUCCESS) { throw_driver_alloc_error(status, call, bytes); }
}

/// Asserts that `status` is CUDA_SUCCESS, for destructors. Accepts the errors of a driver that is shut down.
inline void expect_driver_success(CUresult status) noexcept
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(static_cast<cudaError_t>(status));  // runtime and driver use the same numbers
}

/// A scope in which a context of `device` is current for the calling thread.
///
/// cudaSetDevice() could not replace it: setting the previous device again would create a context there, even if the program never used
/// that device. If no context of `device` can be made current, the calls inside the scope fail and report that.
class device_context_scope {
 public:
  device_context_scope(driver_functions const& driver, int device) noexcept : driver_{driver}
  {
    CUdevice wanted{};
    CUdevice current{};
    if (driver.device(&wanted, device) != CUDA_SUCCESS) { return; }
    if (driver.device_of_context(&current) == CUDA_SUCCESS && current == wanted) { return; }
    // Never released: releasing the last reference would destroy the primary context, and everything that was made in it.
    CUcontext context{};
    pushed_ =
      driver.retain_primary_context(&context, wanted) == CUDA_SUCCESS && driver.push_context(context) == CUDA_SUCCESS;
  }

  device_context_scope(device_context_scope const&)            = delete;
  device_context_scope& operator=(device_context_scope const&) = delete;

  ~device_context_scope()
  {
    CUcontext ignored{};
    if (pushed_) { expect_driver_success(driver_.pop_context(&ignored)); }
  }

 private:
  driver_functions const& driver_;
  bool pushed_{false};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
