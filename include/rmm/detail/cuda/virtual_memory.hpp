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
/// The driver's virtual memory: addresses without memory, memory without addresses, and mappings of the one at the other.
///
/// Devices are named by the runtime's number. Nothing here depends on the current device, or changes it.

namespace RMM_NAMESPACE {
namespace detail {

/// What physical memory can do besides being used by devices of this process.
struct physical_memory_options {
  bool descriptors{false};      ///< be exported to other processes as a file descriptor
  bool fabric{false};           ///< be exported to processes of other machines too, as a fabric handle
  bool gpu_direct_rdma{false};  ///< be read and written by network adapters
};

/// Bytes that name exported memory to processes on the same fabric.
using fabric_handle = std::array<unsigned char, 64>;

// By number, for headers before 12.3 have no names for them.
inline constexpr auto fabric_handle_type = static_cast<CUmemAllocationHandleType>(8);  // CU_MEM_HANDLE_TYPE_FABRIC
inline constexpr auto fabric_attribute   = static_cast<CUdevice_attribute>(128);  // ..._HANDLE_TYPE_FABRIC_SUPPORTED

/// Whether `device` has a yes-or-no attribute. False if the driver does not say.
[[nodiscard]] inline bool has_driver_attribute(int device, CUdevice_attribute attribute) noexcept
{
  auto const* const driver = find_driver();
  CUdevice asked{};
  int value{};
  return driver != nullptr && driver->device(&asked, device) == CUDA_SUCCESS &&
         driver->device_attribute(&value, attribute, asked) == CUDA_SUCCESS && value != 0;
}

/// The same where it must be known. Throws cuda_error; a driver that does not know the attribute, or the question, says no.
[[nodiscard]] inline bool known_driver_attribute(int device, CUdevice_attribute attribute)
{
  auto const* const driver = find_driver();
  if (driver == nullptr) { return false; }
  CUdevice asked{};
  check_driver(driver->device(&asked, device), "cuDeviceGet");
  int value{};
  auto const status = driver->device_attribute(&value, attribute, asked);
  if (status == CUDA_ERROR_INVALID_VALUE || status == CUDA_ERROR_NOT_SUPPORTED) { return false; }
  check_driver(status, "cuDeviceGetAttribute");
  return value != 0;
}

/// Whether driver and device have virtual memory.
[[nodiscard]] inline bool has_virtual_memory(int device) noexcept
{
  return has_driver_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

/// The same where it must be known. Throws cuda_error.
[[nodiscard]] inline bool is_known_to_have_virtual_memory(int device)
{
  return known_driver_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

/// The options that physical memory of `device` can have. One that is true may still be refused for want of rights: fabric
/// handles take a channel that the system's administrator gives. Throws cuda_error.
[[nodiscard]] inline physical_memory_options supported_physical_memory_options(int device)
{
  physical_memory_options options{};
  options.descriptors = known_driver_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  options.fabric      = known_driver_attribute(device, fabric_attribute);
  options.gpu_direct_rdma = known_driver_attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  return options;
}

/// `device`, and the other devices that can use its memory. Throws cuda_error.
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

/// Which unit of physical memory: that of which sizes and addresses have to be multiples, or the one that the driver advises.
enum class granularity { minimum, recommended };

/// The unit, a power of two, of physical memory of `device` with these options. Throws cuda_error.
[[nodiscard]] inline std::size_t virtual_memory_granularity(int device,
                                                            physical_memory_options const& options = {},
                                                            granularity which = granularity::minimum)
{
  auto const properties = physical_memory_properties(device, options);
  auto const flag =
    which == granularity::minimum ? CU_MEM_ALLOC_GRANULARITY_MINIMUM : CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
  std::size_t bytes{};
  check_driver(driver().granularity(&bytes, &properties, flag), "cuMemGetAllocationGranularity");
  return bytes;
}

/// Memory of a device, at no address. It goes when this object and all mappings of it have gone, here and in the processes that
/// imported it.
class physical_memory {
 public:
  /// `bytes`, a multiple of the minimum granularity. Throws out_of_memory; bad_alloc if memory is not what is missing;
  /// cuda_error if the driver has no virtual memory.
  physical_memory(int device, std::size_t bytes, physical_memory_options const& options = {})
    : device_{device}, bytes_{bytes}
  {
    auto const& driver    = detail::driver();
    auto const properties = physical_memory_properties(device, options);
    device_context_scope const scope{driver, device};
    check_driver_alloc(driver.create(&handle_, bytes, &properties, 0), "cuMemCreate", bytes);
  }

  /// The memory that another process, or this one, exported. `device` is where this process is going to use it, and `bytes` its
  /// size, which a descriptor does not tell. The descriptor stays the caller's. Throws cuda_error.
  [[nodiscard]] static physical_memory import_descriptor(int device, std::size_t bytes, int descriptor)
  {
    auto* const number =
      reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));  // the driver's way to pass it
    return physical_memory{device, bytes, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  }

  /// The same for a fabric handle.
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

  [[nodiscard]] int device() const noexcept { return device_; }

  /// 0 if the memory was moved from here.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  [[nodiscard]] CUmemGenericAllocationHandle handle() const noexcept { return handle_; }

  /// A descriptor for a process that may import the memory; the caller closes it. The memory stays while it is open. Throws
  /// cuda_error, for instance if the memory was made without this option.
  [[nodiscard]] int export_descriptor() const
  {
    int descriptor{-1};
    export_to(&descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return descriptor;
  }

  /// A handle for processes on the same fabric. It keeps nothing alive. Throws cuda_error.
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
  CUmemGenericAllocationHandle handle_{};  // 0: none
};

/// Devices that may read and write what is mapped.
class device_access {
 public:
  /// At least one device. Peers need not be enabled by cudaDeviceEnablePeerAccess.
  explicit device_access(std::vector<int> const& devices)
  {
    RMM_EXPECTS(!devices.empty(), "Access is given to at least one device");
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

/// A range of addresses that the process gives to nothing else, and where physical memory can be put.
///
/// Map, set_access() and unmap() of ranges that do not overlap may run at the same time.
class address_reservation {
 public:
  /// `bytes`, a multiple of the granularity, for memory used by `device`; far more than the device has is fine. `alignment` is a
  /// power of two, 0 for the driver's choice; the range begins at `hint` if that is free. Throws bad_alloc if there are no such
  /// addresses, cuda_error if the driver has no virtual memory.
  address_reservation(int device, std::size_t bytes, std::size_t alignment = 0, std::uintptr_t hint = 0)
    : device_{device}, bytes_{bytes}
  {
    auto const& driver = detail::driver();
    device_context_scope const scope{driver, device};
    CUdeviceptr begin{};
    auto const status = driver.reserve_addresses(&begin, bytes, alignment, hint, 0);
    if (status != CUDA_SUCCESS) { throw bad_alloc{driver_error_text("cuMemAddressReserve", status)}; }
    begin_ = begin;
  }

  address_reservation(address_reservation&& other) noexcept
    : device_{other.device_}, bytes_{std::exchange(other.bytes_, 0)}, begin_{std::exchange(other.begin_, 0)}
  {}
  address_reservation& operator=(address_reservation&& other) noexcept
  {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(begin_, other.begin_);
    return *this;
  }
  address_reservation(address_reservation const&)            = delete;
  address_reservation& operator=(address_reservation const&) = delete;

  /// Nothing may be mapped any more.
  ~address_reservation()
  {
    if (bytes_ == 0) { return; }
    auto const& driver = *find_driver();
    device_context_scope const scope{driver, device_};
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

  /// Puts all of `memory` at `at`, a multiple of the granularity, where nothing may be mapped. No device has access yet. The
  /// mapping keeps the memory alive. Throws out_of_memory if the driver has no memory for the mapping itself, else bad_alloc.
  void map(std::uintptr_t at, physical_memory const& memory)
  {
    RMM_ASSERT(contains(at, memory.bytes()));
    auto const& driver = detail::driver();
    device_context_scope const scope{driver, device_};
    check_driver_alloc(driver.map(at, memory.bytes(), 0, memory.handle(), 0), "cuMemMap", memory.bytes());
  }

  /// Lets devices use a range of whole mappings without a hole. Throws the same; then some devices may have got access.
  void set_access(std::uintptr_t at, std::size_t bytes, device_access const& access)
  {
    RMM_ASSERT(contains(at, bytes));
    auto const& driver       = detail::driver();
    auto const& descriptions = access.descriptions();
    device_context_scope const scope{driver, device_};
    check_driver_alloc(driver.set_access(at, bytes, descriptions.data(), descriptions.size()), "cuMemSetAccess", bytes);
  }

  /// Removes the mappings in a range, which are whole; holes are skipped. All work that uses the memory has to be done: the
  /// driver may or may not wait for it. Failure is asserted.
  void unmap(std::uintptr_t at, std::size_t bytes) noexcept
  {
    RMM_ASSERT(contains(at, bytes));
    auto const& driver = *find_driver();
    device_context_scope const scope{driver, device_};
    expect_driver_success(driver.unmap(at, bytes));
  }

 private:
  int device_;
  std::size_t bytes_;
  std::uintptr_t begin_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
