// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/driver.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

/// @file
/// The driver's virtual memory management: reserved addresses, physical memory, and mappings of memory to addresses.
///
/// Device numbers are those of the runtime. No function depends on the current device, or changes it.

namespace RMM_NAMESPACE {
namespace detail {

/// Options of physical memory.
struct physical_memory_options {
  bool descriptors{false};      ///< it can be exported to other processes as a file descriptor
  bool fabric{false};           ///< it can be exported to processes on this and other machines as a fabric handle
  bool gpu_direct_rdma{false};  ///< network adapters can read and write it
};

/// A name of exported memory for processes on one fabric.
using fabric_handle = std::array<unsigned char, 64>;

// Numbers, because headers before CUDA 12.3 have no names for them.
inline constexpr auto fabric_handle_type = static_cast<CUmemAllocationHandleType>(8);  // CU_MEM_HANDLE_TYPE_FABRIC
inline constexpr auto fabric_attribute   = static_cast<CUdevice_attribute>(128);  // ..._HANDLE_TYPE_FABRIC_SUPPORTED

/// Whether a yes-or-no attribute of `device` is set. False if the driver does not know the attribute or cannot be asked. Throws
/// cuda_error on other failures.
[[nodiscard]] inline bool known_driver_attribute(int device, CUdevice_attribute attribute)
{
  auto const* const driver = find_driver();
  if (driver == nullptr) { return false; }
  CUdevice driver_device{};
  check_driver(driver->device(&driver_device, device), "cuDeviceGet");
  int value{};
  auto const status = driver->device_attribute(&value, attribute, driver_device);
  if (status == CUDA_ERROR_INVALID_VALUE || status == CUDA_ERROR_NOT_SUPPORTED) { return false; }
  check_driver(status, "cuDeviceGetAttribute");
  return value != 0;
}

/// Whether driver and device have virtual memory management. False if the driver fails.
[[nodiscard]] inline bool has_virtual_memory(int device) noexcept
{
  auto const* const driver = find_driver();
  constexpr auto attribute = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
  CUdevice driver_device{};
  int value{};
  return driver != nullptr && driver->device(&driver_device, device) == CUDA_SUCCESS &&
         driver->device_attribute(&value, attribute, driver_device) == CUDA_SUCCESS && value != 0;
}

/// Whether driver and device have virtual memory management. Throws cuda_error if the driver fails.
[[nodiscard]] inline bool is_known_to_have_virtual_memory(int device)
{
  return known_driver_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

/// Returns the options that physical memory of `device` supports. The process may still lack the rights for one: fabric handles need a
/// channel that the system's administrator grants. Throws cuda_error.
[[nodiscard]] inline physical_memory_options supported_physical_memory_options(int device)
{
  physical_memory_options options{};
  options.descriptors = known_driver_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  options.fabric      = known_driver_attribute(device, fabric_attribute);
  options.gpu_direct_rdma = known_driver_attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  return options;
}

/// Returns `device` and the other devices that can use its memory. Throws cuda_error.
[[nodiscard]] inline std::vector<int> devices_with_access_to(int device)
{
  int count{};
  RMM_CUDA_TRY(cudaGetDeviceCount(&count));
  std::vector<int> devices{device};
  for (int peer = 0; peer < count; ++peer) {
    int can_access{};
    if (peer != device) { RMM_CUDA_TRY(cudaDeviceCanAccessPeer(&can_access, peer, device)); }
    if (can_access != 0) { devices.push_back(peer); }
  }
  return devices;
}

[[nodiscard]] inline CUmemLocation driver_location(int device) noexcept
{
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id   = device;
  return location;
}

[[nodiscard]] inline CUmemAllocationProp physical_memory_properties(int device,
                                                                    physical_memory_options const& options) noexcept
{
  auto const types = (options.descriptors ? unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR} : 0U) |
                     (options.fabric ? unsigned{fabric_handle_type} : 0U);
  CUmemAllocationProp properties{};
  properties.type                            = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location                        = driver_location(device);
  properties.requestedHandleTypes            = static_cast<CUmemAllocationHandleType>(types);
  properties.allocFlags.gpuDirectRDMACapable = options.gpu_direct_rdma ? 1 : 0;
  return properties;
}

/// Returns the unit, a power of two, of sizes and addresses of physical memory of `device` with these options. Throws cuda_error.
[[nodiscard]] inline std::size_t virtual_memory_granularity(int device, physical_memory_options const& options = {})
{
  auto const properties = physical_memory_properties(device, options);
  std::size_t bytes{};
  check_driver(driver().granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               "cuMemGetAllocationGranularity");
  return bytes;
}

/// Thrown if the driver creates no memory that other processes can import, although memory is not missing.
class shareable_memory_refused final : public bad_alloc {
 public:
  RMM_COLD shareable_memory_refused(CUresult status, std::size_t bytes, physical_memory_options const& options)
    : bad_alloc{std::string{"The driver refused to create shareable memory ("} +
                (!options.fabric        ? "file descriptors"
                 : !options.descriptors ? "fabric handles"
                                        : "file descriptors and fabric handles") +
                "): " + driver_error_text("cuMemCreate (" + std::to_string(bytes) + " bytes)", status) +
                ". Make the pool without " + (options.fabric ? "share_fabric" : "share_descriptors") +
                ", or configure another `share=` or none"}
  {}
};

/// An owner of physical memory of a device. The memory has addresses only while it is mapped; see address_reservation. It is freed when
/// all owners and mappings are gone, in this process and in the processes that imported it.
class physical_memory {
 public:
  /// Allocates `bytes`, a multiple of the minimum granularity. Throws out_of_memory if memory is missing, cuda_error if the driver has
  /// no virtual memory, bad_alloc on other failures: shareable_memory_refused if the memory was to be exported.
  physical_memory(int device, std::size_t bytes, physical_memory_options const& options = {})
    : device_{device}, bytes_{bytes}
  {
    auto const& driver    = detail::driver();
    auto const properties = physical_memory_properties(device, options);
    device_context_scope const scope{driver, device};
    auto const status = driver.create(&handle_, bytes, &properties, 0);
    bool const failed = status != CUDA_SUCCESS && status != CUDA_ERROR_OUT_OF_MEMORY;
    if (failed && (options.descriptors || options.fabric)) { throw shareable_memory_refused{status, bytes, options}; }
    check_driver_alloc(status, "cuMemCreate", bytes);
  }

  /// Imports memory that another process, or this one, exported as a descriptor. `device` is the device on which this process uses it.
  /// `bytes` is its size, which the descriptor does not contain. The caller keeps the descriptor. Throws cuda_error.
  [[nodiscard]] static physical_memory import_descriptor(int device, std::size_t bytes, int descriptor)
  {
    auto* const number =
      reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));  // the driver expects a descriptor as a pointer
    return physical_memory{device, bytes, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  }

  /// Imports memory that was exported as a fabric handle. Throws cuda_error.
  [[nodiscard]] static physical_memory import_fabric(int device, std::size_t bytes, fabric_handle handle)
  {
    return physical_memory{device, bytes, &handle, fabric_handle_type};
  }

  physical_memory(physical_memory&& other) noexcept
    : device_{other.device_}, bytes_{std::exchange(other.bytes_, 0)}, handle_{std::exchange(other.handle_, 0)}
  {}
  physical_memory& operator=(physical_memory&& other) noexcept
  {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  physical_memory(physical_memory const&)            = delete;
  physical_memory& operator=(physical_memory const&) = delete;

  ~physical_memory()
  {
    if (handle_ == 0) { return; }
    auto const& driver = *find_driver();
    device_context_scope const scope{driver, device_};
    expect_driver_success(driver.release(handle_));
  }

  /// Returns the size; 0 for a moved-from object.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  [[nodiscard]] CUmemGenericAllocationHandle handle() const noexcept { return handle_; }

  /// Returns a descriptor with which a process can import the memory. The caller closes it; while it is open, the memory is not freed.
  /// Throws cuda_error, for example if the memory was allocated without this option.
  [[nodiscard]] int export_descriptor() const
  {
    int descriptor{-1};
    export_to(&descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return descriptor;
  }

  /// Returns a handle with which processes on the fabric can import the memory. It does not keep the memory alive. Throws cuda_error.
  [[nodiscard]] fabric_handle export_fabric() const
  {
    fabric_handle handle{};
    export_to(&handle, fabric_handle_type);
    return handle;
  }

 private:
  physical_memory(int device, std::size_t bytes, void* exported, CUmemAllocationHandleType type)
    : device_{device}, bytes_{bytes}
  {
    auto const& driver = detail::driver();
    device_context_scope const scope{driver, device};
    check_driver(driver.import_handle(&handle_, exported, type), "cuMemImportFromShareableHandle");
  }

  void export_to(void* out, CUmemAllocationHandleType type) const
  {
    auto const& driver = detail::driver();
    device_context_scope const scope{driver, device_};
    check_driver(driver.export_handle(out, handle_, type, 0), "cuMemExportToShareableHandle");
  }

  int device_;
  std::size_t bytes_;
  CUmemGenericAllocationHandle handle_{};  // 0 for a moved-from object
};

/// The devices that may read and write mapped memory.
class device_access {
 public:
  /// `devices` are one or more. cudaDeviceEnablePeerAccess() is not needed. Throws logic_error if there are none.
  explicit device_access(std::vector<int> const& devices)
  {
    RMM_EXPECTS(!devices.empty(),
                "The list of devices with access to the memory is empty: it needs at least one device");
    descriptions_.reserve(devices.size());
    for (int const device : devices) {
      CUmemAccessDesc description{};
      description.location = driver_location(device);
      description.flags    = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      descriptions_.push_back(description);
    }
  }

  [[nodiscard]] std::vector<CUmemAccessDesc> const& descriptions() const noexcept { return descriptions_; }

 private:
  std::vector<CUmemAccessDesc> descriptions_;
};

/// An owner of a reserved range of addresses, to which physical memory can be mapped.
///
/// Threads  map() and set_access() may run at the same time for ranges that do not overlap.
class address_reservation {
 public:
  /// Reserves `bytes` bytes, a multiple of the granularity, for memory of `device`. The size may exceed the device's memory.
  /// Throws bad_alloc if there is no such range, cuda_error if the driver has no virtual memory.
  address_reservation(int device, std::size_t bytes) : device_{device}, bytes_{bytes}
  {
    auto const& driver = detail::driver();
    device_context_scope const scope{driver, device};
    CUdeviceptr begin{};
    auto const status = driver.reserve_addresses(&begin, bytes, 0, 0, 0);
    if (status != CUDA_SUCCESS) { throw bad_alloc{driver_error_text("cuMemAddressReserve", status)}; }
    begin_ = begin;
  }

  address_reservation(address_reservation&& other) noexcept
    : device_{other.device_},
      bytes_{std::exchange(other.bytes_, 0)},
      begin_{std::exchange(other.begin_, 0)},
      unmap_failed_{other.unmap_failed_}
  {}
  address_reservation(address_reservation const&)            = delete;
  address_reservation& operator=(address_reservation const&) = delete;

  /// Frees the addresses. Requires that unmap() was called for all memory. If a call failed, unmaps the whole range again; if that fails
  /// too, the addresses stay reserved.
  ~address_reservation()
  {
    if (bytes_ == 0) { return; }
    auto const& driver = *find_driver();
    device_context_scope const scope{driver, device_};
    if (unmap_failed_ && driver.unmap(begin_, bytes_) != CUDA_SUCCESS) { return; }
    expect_driver_success(driver.free_addresses(begin_, bytes_));
  }

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] std::uintptr_t begin() const noexcept { return begin_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// Whether the range `[at, at + bytes)` lies in this one.
  [[nodiscard]] bool contains(std::uintptr_t at, std::size_t bytes) const noexcept
  {
    return at >= begin_ && bytes <= bytes_ && at - begin_ <= bytes_ - bytes;
  }

  /// Maps all of `memory` to `at`, a multiple of the granularity. Requires that nothing is mapped there. No device has access yet. The
  /// mapping keeps the memory alive. Throws out_of_memory if the driver lacks memory for the mapping, bad_alloc on other failures.
  void map(std::uintptr_t at, physical_memory const& memory)
  {
    RMM_ASSERT(contains(at, memory.bytes()));
    auto const& driver = detail::driver();
    device_context_scope const scope{driver, device_};
    check_driver_alloc(driver.map(at, memory.bytes(), 0, memory.handle(), 0), "cuMemMap", memory.bytes());
  }

  /// Gives devices access to a range of whole mappings without holes. Throws as map() does; some devices may have access then.
  void set_access(std::uintptr_t at, std::size_t bytes, device_access const& access)
  {
    RMM_ASSERT(contains(at, bytes));
    auto const& driver       = detail::driver();
    auto const& descriptions = access.descriptions();
    device_context_scope const scope{driver, device_};
    check_driver_alloc(driver.set_access(at, bytes, descriptions.data(), descriptions.size()), "cuMemSetAccess", bytes);
  }

  /// Removes all mappings in a range that cuts none of them; the range may have holes. All work that uses the memory has to be done:
  /// the driver may or may not wait for it. Failure is asserted. Returns false after a failure: the memory is still mapped then.
  bool unmap(std::uintptr_t at, std::size_t bytes) noexcept
  {
    RMM_ASSERT(contains(at, bytes));
    auto const& driver = *find_driver();
    device_context_scope const scope{driver, device_};
    auto const status = driver.unmap(at, bytes);
    expect_driver_success(status);
    if (status != CUDA_SUCCESS) { unmap_failed_ = true; }
    return status == CUDA_SUCCESS;
  }

 private:
  int device_;
  std::size_t bytes_;
  std::uintptr_t begin_{};
  bool unmap_failed_{false};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
