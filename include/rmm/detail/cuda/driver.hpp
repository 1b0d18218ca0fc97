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

/// The functions of the CUDA driver that the library calls. The runtime finds them by name, so that programs link the runtime
/// alone.
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

/// Finds a function as CUDA 12.0 has it. Returns whether there is one.
template <class Function>
[[nodiscard]] bool find_driver_function(Function& out, char const* name) noexcept
{
  cudaError_t status{};
  out = find_driver_entry<Function>(name, status);
  return out != nullptr;
}

/// Finds all functions and initialises the driver. Returns whether it could.
[[nodiscard]] RMM_COLD inline bool find_driver_functions(driver_functions& out) noexcept
{
  bool all        = true;
  auto const find = [&](auto& function, char const* name) { all = all && find_driver_function(function, name); };
  find(out.initialize, "cuInit");
  find(out.error_name, "cuGetErrorName");
  find(out.error_text, "cuGetErrorString");
  find(out.device, "cuDeviceGet");
  find(out.device_attribute, "cuDeviceGetAttribute");
  find(out.device_of_context, "cuCtxGetDevice");
  find(out.retain_primary_context, "cuDevicePrimaryCtxRetain");
  find(out.push_context, "cuCtxPushCurrent");
  find(out.pop_context, "cuCtxPopCurrent");
  find(out.granularity, "cuMemGetAllocationGranularity");
  find(out.reserve_addresses, "cuMemAddressReserve");
  find(out.free_addresses, "cuMemAddressFree");
  find(out.create, "cuMemCreate");
  find(out.release, "cuMemRelease");
  find(out.map, "cuMemMap");
  find(out.unmap, "cuMemUnmap");
  find(out.set_access, "cuMemSetAccess");
  find(out.export_handle, "cuMemExportToShareableHandle");
  find(out.import_handle, "cuMemImportFromShareableHandle");
  return all && out.initialize(0) == CUDA_SUCCESS;
}

/// The driver; null if there is none, or it is too old for virtual memory. A failed answer is not kept.
///
/// Hidden: shared objects with other releases of the library may have another set of functions.
[[nodiscard]] RMM_HIDDEN inline driver_functions const* find_driver() noexcept
{
  static std::atomic<driver_functions const*> known{nullptr};
  auto const* driver = known.load(std::memory_order_acquire);
  if (driver != nullptr) { return driver; }
  detail::owned_ptr<driver_functions> found{new (std::nothrow) driver_functions};
  if (found == nullptr || !find_driver_functions(*found)) { return nullptr; }
  if (!known.compare_exchange_strong(driver, found.get(), std::memory_order_acq_rel)) { return driver; }
  return found.release();  // lives as long as the process
}

/// The same where it must be there. Throws cuda_error.
[[nodiscard]] RMM_HIDDEN inline driver_functions const& driver()
{
  auto const* const found = find_driver();
  if (found == nullptr) { RMM_FAIL("The CUDA driver has no virtual memory management", cuda_error); }
  return *found;
}

/// `CUDA error in <call>: <name of the error> <its description>`.
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

/// Throws a cuda_error unless `status`, which the function called `call` returned, is CUDA_SUCCESS.
inline void check_driver(CUresult status, char const* call)
{
  if (status != CUDA_SUCCESS) { throw_driver_error(status, call); }
}

/// The same for functions that make `bytes` usable. Throws out_of_memory if memory is what is missing, else bad_alloc.
inline void check_driver_alloc(CUresult status, char const* call, std::size_t bytes)
{
  if (status != CUDA_SUCCESS) { throw_driver_alloc_error(status, call, bytes); }
}

/// For what ends something and cannot throw: failure is asserted, but for a driver that is gone because the process ends.
inline void expect_driver_success(CUresult status) noexcept
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(static_cast<cudaError_t>(status));  // the runtime has the driver's numbers
}

/// Makes a context of `device` current for a scope, if the thread's current one is of another device or there is none.
///
/// A switch of the runtime's current device and back would create a context on the device that it goes back to, also where the
/// program never used that one. Where no context can be had, what the scope calls will say so.
class device_context_scope {
 public:
  device_context_scope(driver_functions const& driver, int device) noexcept : driver_{driver}
  {
    CUdevice wanted{};
    CUdevice current{};
    if (driver.device(&wanted, device) != CUDA_SUCCESS) { return; }
    if (driver.device_of_context(&current) == CUDA_SUCCESS && current == wanted) { return; }
    // Never released: the primary context would end with the last reference, and take along what was made in it.
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
