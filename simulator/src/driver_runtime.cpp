// SPDX-License-Identifier: Apache-2.0
//
// The driver functions that a CUDA runtime calls. Each passes its call on to the simulated runtime function that does
// the same: faults, counters and reports name that function. Unlike runtime functions, these do not create a context:
// work on a device needs a current one, as with the real driver.

#include "driver.hpp"
#include "memory.hpp"
#include "pool.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

extern "C" {
// Twins that <cuda_runtime_api.h> declares only for per-thread-default-stream code.
cudaError_t cudaMemcpy_ptds(void*, void const*, std::size_t, cudaMemcpyKind);
cudaError_t cudaMemcpy2D_ptds(void*, std::size_t, void const*, std::size_t, std::size_t, std::size_t, cudaMemcpyKind);
cudaError_t cudaMemset_ptds(void*, int, std::size_t);
cudaError_t cudaMemset2D_ptds(void*, std::size_t, int, std::size_t, std::size_t);
// Declared in <cuda_profiler_api.h>, which only a whole toolkit has.
cudaError_t cudaProfilerStart();
cudaError_t cudaProfilerStop();
}

namespace cudasim {
namespace {

static_assert(sizeof(CUmemPoolProps) == sizeof(cudaMemPoolProps));
static_assert(sizeof(CUmemAccessDesc) == sizeof(cudaMemAccessDesc));
static_assert(sizeof(CUmemLocation) == sizeof(cudaMemLocation));
static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(cudaMemPoolPtrExportData));
static_assert(sizeof(CUipcMemHandle) == sizeof(cudaIpcMemHandle_t));
static_assert(sizeof(CUuuid) == sizeof(cudaUUID_t));

/// Calls a runtime function and keeps the runtime's last error unchanged.
template <class Call>
CUresult pass_on(Call&& call) noexcept
{
  auto const before        = this_thread().last_error;
  auto const error         = call();
  this_thread().last_error = before;
  return static_cast<CUresult>(error);
}

/// pass_on() for a function that needs a current context.
template <class Call>
CUresult pass_on_in_context(Call&& call) noexcept
{
  return this_thread().has_context ? pass_on(std::forward<Call>(call)) : CUDA_ERROR_INVALID_CONTEXT;
}

/// pass_on() for a function that names a device, whichever is current.
template <class Call>
CUresult pass_on_for_device(CUdevice number, Call&& call) noexcept
{
  if (number < 0 || number >= the_world().machine.devices) { return CUDA_ERROR_INVALID_DEVICE; }
  auto& thread              = this_thread();
  auto const before         = thread.device;
  auto const had_context    = thread.has_context;
  thread.device             = number;
  auto const error          = pass_on(std::forward<Call>(call));
  this_thread().device      = before;
  this_thread().has_context = had_context;
  return error;
}

[[nodiscard]] void** out_pointer(CUdeviceptr* out) { return reinterpret_cast<void**>(out); }

/// The stream that a handle names. In the `OfThread` variants of driver functions, stream 0 is the thread's own.
template <bool OfThread>
[[nodiscard]] CUstream named(CUstream handle)
{
  return OfThread ? per_thread(handle) : handle;
}

// --- Devices and contexts

CUresult get_name(char* out, int length, CUdevice number)
{
  return pass_on([&] {
    cudaDeviceProp properties{};
    if (out == nullptr || length <= 0) { return cudaErrorInvalidValue; }
    if (auto const error = ::cudaGetDeviceProperties(&properties, number); error != cudaSuccess) { return error; }
    std::snprintf(out, static_cast<std::size_t>(length), "%s", properties.name);
    return cudaSuccess;
  });
}

CUresult get_total_memory(std::size_t* out, CUdevice number)
{
  return pass_on([&] {
    cudaDeviceProp properties{};
    if (out == nullptr) { return cudaErrorInvalidValue; }
    if (auto const error = ::cudaGetDeviceProperties(&properties, number); error != cudaSuccess) { return error; }
    *out = properties.totalGlobalMem;
    return cudaSuccess;
  });
}

CUresult get_uuid(CUuuid* out, CUdevice number)
{
  return pass_on([&] {
    cudaDeviceProp properties{};
    if (out == nullptr) { return cudaErrorInvalidValue; }
    if (auto const error = ::cudaGetDeviceProperties(&properties, number); error != cudaSuccess) { return error; }
    std::memcpy(out, &properties.uuid, sizeof *out);
    return cudaSuccess;
  });
}

CUresult get_bus_id(char* out, int length, CUdevice number)
{
  return pass_on([&] { return ::cudaDeviceGetPCIBusId(out, length, number); });
}

CUresult get_by_bus_id(CUdevice* out, char const* text)
{
  return pass_on([&] { return ::cudaDeviceGetByPCIBusId(out, text); });
}

CUresult get_p2p_attribute(int* out, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
  return pass_on(
    [&] { return ::cudaDeviceGetP2PAttribute(out, static_cast<cudaDeviceP2PAttr>(attribute), device, peer); });
}

CUresult can_access_peer(int* out, CUdevice device, CUdevice peer)
{
  return pass_on([&] { return ::cudaDeviceCanAccessPeer(out, device, peer); });
}

CUresult enable_peer_access(CUcontext peer, unsigned flags)
{
  return pass_on_in_context([&] { return ::cudaDeviceEnablePeerAccess(device_of_context(peer), flags); });
}

CUresult disable_peer_access(CUcontext peer)
{
  return pass_on_in_context([&] { return ::cudaDeviceDisablePeerAccess(device_of_context(peer)); });
}

/// A release does not destroy the primary context; only a reset does.
CUresult release_primary_context(CUdevice number)
{
  CUDASIM_DRIVER_CALL(cuDevicePrimaryCtxRelease,
                      { return is_device(c, number) ? cudaSuccess : cudaErrorInvalidDevice; });
}

CUresult set_primary_context_flags(CUdevice number, unsigned flags)
{
  return pass_on_for_device(number, [&] { return ::cudaSetDeviceFlags(flags); });
}

CUresult reset_primary_context(CUdevice number)
{
  return pass_on_for_device(number, [&] { return ::cudaDeviceReset(); });
}

CUresult set_current_context(CUcontext context)
{
  CUDASIM_DRIVER_CALL(cuCtxSetCurrent, {
    auto& thread      = this_thread();
    auto const device = device_of_context(context);
    if (context != nullptr && device < 0) {
      return c.misuse(cudaErrorDeviceUninitialized, "%p is not a context", static_cast<void*>(context));
    }
    thread.has_context = context != nullptr;
    if (context != nullptr) { thread.device = device; }
    return cudaSuccess;
  });
}

CUresult get_context_flags(unsigned* out)
{
  return pass_on_in_context([&] { return ::cudaGetDeviceFlags(out); });
}

CUresult get_limit(std::size_t* out, CUlimit limit)
{
  return pass_on_in_context([&] { return ::cudaDeviceGetLimit(out, static_cast<cudaLimit>(limit)); });
}

CUresult set_limit(CUlimit limit, std::size_t value)
{
  return pass_on_in_context([&] { return ::cudaDeviceSetLimit(static_cast<cudaLimit>(limit), value); });
}

CUresult get_priority_range(int* least, int* greatest)
{
  return pass_on_in_context([&] { return ::cudaDeviceGetStreamPriorityRange(least, greatest); });
}

CUresult synchronize_context()
{
  return pass_on_in_context([&] { return ::cudaDeviceSynchronize(); });
}

CUresult synchronize_this_context(CUcontext context)
{
  if (context == nullptr) { return synchronize_context(); }
  auto const device = device_of_context(context);
  if (device < 0) { return CUDA_ERROR_INVALID_CONTEXT; }
  return pass_on_for_device(device, [&] { return ::cudaDeviceSynchronize(); });
}

/// The simulator has no kernels to load, so loading is always lazy.
CUresult get_loading_mode(CUmoduleLoadingMode* out)
{
  if (out == nullptr) { return CUDA_ERROR_INVALID_VALUE; }
  *out = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult start_profiler()
{
  return pass_on([&] { return ::cudaProfilerStart(); });
}

CUresult stop_profiler()
{
  return pass_on([&] { return ::cudaProfilerStop(); });
}

// --- Memory

CUresult allocate(CUdeviceptr* out, std::size_t bytes)
{
  if (bytes == 0) { return CUDA_ERROR_INVALID_VALUE; }
  return pass_on_in_context([&] { return ::cudaMalloc(out_pointer(out), bytes); });
}

CUresult allocate_pitched(
  CUdeviceptr* out, std::size_t* pitch, std::size_t width, std::size_t height, unsigned /*element_bytes*/)
{
  if (width == 0 || height == 0) { return CUDA_ERROR_INVALID_VALUE; }
  return pass_on_in_context([&] { return ::cudaMallocPitch(out_pointer(out), pitch, width, height); });
}

CUresult allocate_managed(CUdeviceptr* out, std::size_t bytes, unsigned flags)
{
  if (bytes == 0) { return CUDA_ERROR_INVALID_VALUE; }
  return pass_on_in_context([&] { return ::cudaMallocManaged(out_pointer(out), bytes, flags); });
}

CUresult free(CUdeviceptr ptr)
{
  return pass_on_in_context([&] { return ::cudaFree(pointer_to(ptr)); });
}

CUresult allocate_on_host(void** out, std::size_t bytes, unsigned flags)
{
  if (bytes == 0) { return CUDA_ERROR_INVALID_VALUE; }
  return pass_on_in_context([&] { return ::cudaHostAlloc(out, bytes, flags); });
}

CUresult free_on_host(void* ptr)
{
  return pass_on_in_context([&] { return ::cudaFreeHost(ptr); });
}

CUresult register_on_host(void* ptr, std::size_t bytes, unsigned flags)
{
  return pass_on_in_context([&] { return ::cudaHostRegister(ptr, bytes, flags); });
}

CUresult unregister_on_host(void* ptr)
{
  return pass_on_in_context([&] { return ::cudaHostUnregister(ptr); });
}

CUresult get_device_pointer(CUdeviceptr* out, void* ptr, unsigned flags)
{
  return pass_on_in_context([&] { return ::cudaHostGetDevicePointer(out_pointer(out), ptr, flags); });
}

CUresult get_host_flags(unsigned* out, void* ptr)
{
  return pass_on_in_context([&] { return ::cudaHostGetFlags(out, ptr); });
}

#if CUDART_VERSION >= 13000

/// The location of a device's memory; the host for cudaCpuDeviceId.
[[nodiscard]] cudaMemLocation location_of(int device)
{
  cudaMemLocation where{};
  where.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  where.id   = device == cudaCpuDeviceId ? 0 : device;
  return where;
}

#endif

template <bool OfThread>
CUresult prefetch_to(CUdeviceptr ptr, std::size_t bytes, int device, CUstream handle)
{
  return pass_on_in_context([&] {
#if CUDART_VERSION >= 13000
    return ::cudaMemPrefetchAsync(pointer_to(ptr), bytes, location_of(device), 0, named<OfThread>(handle));
#else
    return ::cudaMemPrefetchAsync(pointer_to(ptr), bytes, device, named<OfThread>(handle));
#endif
  });
}

/// The device number that stands for a location.
[[nodiscard]] int device_at(CUmemLocation const& where)
{
  return where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id : cudaCpuDeviceId;
}

template <bool OfThread>
CUresult prefetch_to_location(CUdeviceptr ptr, std::size_t bytes, CUmemLocation where, unsigned flags, CUstream handle)
{
  if (flags != 0) { return CUDA_ERROR_INVALID_VALUE; }
  return prefetch_to<OfThread>(ptr, bytes, device_at(where), handle);
}

CUresult advise(CUdeviceptr ptr, std::size_t bytes, CUmem_advise what, int device)
{
  return pass_on_in_context([&] {
    auto const advice = static_cast<cudaMemoryAdvise>(what);
#if CUDART_VERSION >= 13000
    return ::cudaMemAdvise(pointer_to(ptr), bytes, advice, location_of(device));
#else
    return ::cudaMemAdvise(pointer_to(ptr), bytes, advice, device);
#endif
  });
}

CUresult advise_location(CUdeviceptr ptr, std::size_t bytes, CUmem_advise what, CUmemLocation where)
{
  return advise(ptr, bytes, what, device_at(where));
}

CUresult get_range_attribute(
  void* out, std::size_t out_bytes, CUmem_range_attribute attribute, CUdeviceptr ptr, std::size_t bytes)
{
  return pass_on_in_context([&] {
    return ::cudaMemRangeGetAttribute(
      out, out_bytes, static_cast<cudaMemRangeAttribute>(attribute), pointer_to(ptr), bytes);
  });
}

CUresult get_ipc_handle(CUipcMemHandle* out, CUdeviceptr ptr)
{
  return pass_on_in_context(
    [&] { return ::cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t*>(out), pointer_to(ptr)); });
}

CUresult open_ipc_handle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags)
{
  return pass_on_in_context([&] {
    cudaIpcMemHandle_t of_runtime{};
    std::memcpy(&of_runtime, &handle, sizeof of_runtime);
    return ::cudaIpcOpenMemHandle(out_pointer(out), of_runtime, flags);
  });
}

CUresult close_ipc_handle(CUdeviceptr ptr)
{
  return pass_on_in_context([&] { return ::cudaIpcCloseMemHandle(pointer_to(ptr)); });
}

// --- Pools

template <bool OfThread>
CUresult allocate_in_order(CUdeviceptr* out, std::size_t bytes, CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaMallocAsync(out_pointer(out), bytes, named<OfThread>(handle)); });
}

template <bool OfThread>
CUresult allocate_from_pool(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream handle)
{
  return pass_on_in_context(
    [&] { return ::cudaMallocFromPoolAsync(out_pointer(out), bytes, pool, named<OfThread>(handle)); });
}

template <bool OfThread>
CUresult free_in_order(CUdeviceptr ptr, CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaFreeAsync(pointer_to(ptr), named<OfThread>(handle)); });
}

CUresult get_default_pool(CUmemoryPool* out, CUdevice number)
{
  return pass_on([&] { return ::cudaDeviceGetDefaultMemPool(out, number); });
}

CUresult get_pool(CUmemoryPool* out, CUdevice number)
{
  return pass_on([&] { return ::cudaDeviceGetMemPool(out, number); });
}

CUresult set_pool(CUdevice number, CUmemoryPool pool)
{
  return pass_on([&] { return ::cudaDeviceSetMemPool(number, pool); });
}

CUresult create_pool(CUmemoryPool* out, CUmemPoolProps const* properties)
{
  return pass_on([&] { return ::cudaMemPoolCreate(out, reinterpret_cast<cudaMemPoolProps const*>(properties)); });
}

CUresult destroy_pool(CUmemoryPool pool)
{
  return pass_on([&] { return ::cudaMemPoolDestroy(pool); });
}

CUresult trim_pool(CUmemoryPool pool, std::size_t bytes)
{
  return pass_on([&] { return ::cudaMemPoolTrimTo(pool, bytes); });
}

CUresult set_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value)
{
  return pass_on([&] { return ::cudaMemPoolSetAttribute(pool, static_cast<cudaMemPoolAttr>(attribute), value); });
}

CUresult get_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* out)
{
  return pass_on([&] { return ::cudaMemPoolGetAttribute(pool, static_cast<cudaMemPoolAttr>(attribute), out); });
}

CUresult set_pool_access(CUmemoryPool pool, CUmemAccessDesc const* accesses, std::size_t count)
{
  return pass_on(
    [&] { return ::cudaMemPoolSetAccess(pool, reinterpret_cast<cudaMemAccessDesc const*>(accesses), count); });
}

CUresult get_pool_access(CUmemAccess_flags* out, CUmemoryPool pool, CUmemLocation* where)
{
  return pass_on([&] {
    return ::cudaMemPoolGetAccess(
      reinterpret_cast<cudaMemAccessFlags*>(out), pool, reinterpret_cast<cudaMemLocation*>(where));
  });
}

CUresult export_pool(void* out, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags)
{
  return pass_on([&] {
    return ::cudaMemPoolExportToShareableHandle(
      out, pool, static_cast<cudaMemAllocationHandleType>(type), static_cast<unsigned>(flags));
  });
}

CUresult import_pool(CUmemoryPool* out, void* handle, CUmemAllocationHandleType type, unsigned long long flags)
{
  return pass_on([&] {
    return ::cudaMemPoolImportFromShareableHandle(
      out, handle, static_cast<cudaMemAllocationHandleType>(type), static_cast<unsigned>(flags));
  });
}

CUresult export_pool_pointer(CUmemPoolPtrExportData* out, CUdeviceptr ptr)
{
  return pass_on(
    [&] { return ::cudaMemPoolExportPointer(reinterpret_cast<cudaMemPoolPtrExportData*>(out), pointer_to(ptr)); });
}

CUresult import_pool_pointer(CUdeviceptr* out, CUmemoryPool pool, CUmemPoolPtrExportData* data)
{
  return pass_on([&] {
    return ::cudaMemPoolImportPointer(out_pointer(out), pool, reinterpret_cast<cudaMemPoolPtrExportData*>(data));
  });
}

#if CUDART_VERSION >= 13000

CUresult get_default_pool_at(CUmemoryPool* out, CUmemLocation* where, CUmemAllocationType type)
{
  return pass_on([&] {
    return ::cudaMemGetDefaultMemPool(
      out, reinterpret_cast<cudaMemLocation*>(where), static_cast<cudaMemAllocationType>(type));
  });
}

CUresult get_pool_at(CUmemoryPool* out, CUmemLocation* where, CUmemAllocationType type)
{
  return pass_on([&] {
    return ::cudaMemGetMemPool(
      out, reinterpret_cast<cudaMemLocation*>(where), static_cast<cudaMemAllocationType>(type));
  });
}

CUresult set_pool_at(CUmemLocation* where, CUmemAllocationType type, CUmemoryPool pool)
{
  return pass_on([&] {
    return ::cudaMemSetMemPool(
      reinterpret_cast<cudaMemLocation*>(where), static_cast<cudaMemAllocationType>(type), pool);
  });
}

#endif

// --- Copies and fills

template <bool OfThread>
CUresult copy_bytes(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind)
{
  return pass_on_in_context(
    [&] { return OfThread ? ::cudaMemcpy_ptds(to, from, bytes, kind) : ::cudaMemcpy(to, from, bytes, kind); });
}

template <bool OfThread>
CUresult copy_bytes_in_order(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaMemcpyAsync(to, from, bytes, kind, named<OfThread>(handle)); });
}

template <bool OfThread>
CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes)
{
  return copy_bytes<OfThread>(pointer_to(to), pointer_to(from), bytes, cudaMemcpyDefault);
}

template <bool OfThread>
CUresult copy_to_device(CUdeviceptr to, void const* from, std::size_t bytes)
{
  return copy_bytes<OfThread>(pointer_to(to), from, bytes, cudaMemcpyHostToDevice);
}

template <bool OfThread>
CUresult copy_to_host(void* to, CUdeviceptr from, std::size_t bytes)
{
  return copy_bytes<OfThread>(to, pointer_to(from), bytes, cudaMemcpyDeviceToHost);
}

template <bool OfThread>
CUresult copy_on_device(CUdeviceptr to, CUdeviceptr from, std::size_t bytes)
{
  return copy_bytes<OfThread>(pointer_to(to), pointer_to(from), bytes, cudaMemcpyDeviceToDevice);
}

template <bool OfThread>
CUresult copy_in_order(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream handle)
{
  return copy_bytes_in_order<OfThread>(pointer_to(to), pointer_to(from), bytes, cudaMemcpyDefault, handle);
}

template <bool OfThread>
CUresult copy_to_device_in_order(CUdeviceptr to, void const* from, std::size_t bytes, CUstream handle)
{
  return copy_bytes_in_order<OfThread>(pointer_to(to), from, bytes, cudaMemcpyHostToDevice, handle);
}

template <bool OfThread>
CUresult copy_to_host_in_order(void* to, CUdeviceptr from, std::size_t bytes, CUstream handle)
{
  return copy_bytes_in_order<OfThread>(to, pointer_to(from), bytes, cudaMemcpyDeviceToHost, handle);
}

template <bool OfThread>
CUresult copy_on_device_in_order(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream handle)
{
  return copy_bytes_in_order<OfThread>(pointer_to(to), pointer_to(from), bytes, cudaMemcpyDeviceToDevice, handle);
}

CUresult copy_between_devices(
  CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t bytes)
{
  return pass_on_in_context([&] {
    return ::cudaMemcpyPeer(
      pointer_to(to), device_of_context(to_context), pointer_to(from), device_of_context(from_context), bytes);
  });
}

template <bool OfThread>
CUresult copy_between_devices_in_order(
  CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t bytes, CUstream handle)
{
  return pass_on_in_context([&] {
    return ::cudaMemcpyPeerAsync(pointer_to(to),
                                 device_of_context(to_context),
                                 pointer_to(from),
                                 device_of_context(from_context),
                                 bytes,
                                 named<OfThread>(handle));
  });
}

/// The first row of one side of a copy of rows.
[[nodiscard]] char* first_row(
  CUmemorytype type, void const* host, CUdeviceptr device, std::size_t x, std::size_t y, std::size_t pitch)
{
  auto* const begin = type == CU_MEMORYTYPE_HOST ? const_cast<void*>(host) : pointer_to(device);
  return static_cast<char*>(begin) + y * pitch + x;
}

template <class Copy>
CUresult copy_rows(CUDA_MEMCPY2D const* what, Copy&& copy)
{
  if (what == nullptr) { return CUDA_ERROR_INVALID_VALUE; }
  if (what->srcMemoryType == CU_MEMORYTYPE_ARRAY || what->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return pass_on_in_context([&] {
    return copy(
      first_row(what->dstMemoryType, what->dstHost, what->dstDevice, what->dstXInBytes, what->dstY, what->dstPitch),
      first_row(what->srcMemoryType, what->srcHost, what->srcDevice, what->srcXInBytes, what->srcY, what->srcPitch));
  });
}

template <bool OfThread>
CUresult copy_2d(CUDA_MEMCPY2D const* what)
{
  return copy_rows(what, [&](void* to, void const* from) {
    auto* const function = OfThread ? &::cudaMemcpy2D_ptds : &::cudaMemcpy2D;
    return function(to, what->dstPitch, from, what->srcPitch, what->WidthInBytes, what->Height, cudaMemcpyDefault);
  });
}

template <bool OfThread>
CUresult copy_2d_in_order(CUDA_MEMCPY2D const* what, CUstream handle)
{
  return copy_rows(what, [&](void* to, void const* from) {
    return ::cudaMemcpy2DAsync(to,
                               what->dstPitch,
                               from,
                               what->srcPitch,
                               what->WidthInBytes,
                               what->Height,
                               cudaMemcpyDefault,
                               named<OfThread>(handle));
  });
}

template <bool OfThread>
CUresult fill(CUdeviceptr ptr, unsigned char value, std::size_t bytes)
{
  return pass_on_in_context([&] {
    return OfThread ? ::cudaMemset_ptds(pointer_to(ptr), value, bytes) : ::cudaMemset(pointer_to(ptr), value, bytes);
  });
}

template <bool OfThread>
CUresult fill_in_order(CUdeviceptr ptr, unsigned char value, std::size_t bytes, CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaMemsetAsync(pointer_to(ptr), value, bytes, named<OfThread>(handle)); });
}

template <bool OfThread>
CUresult fill_2d(CUdeviceptr ptr, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height)
{
  return pass_on_in_context([&] {
    auto* const function = OfThread ? &::cudaMemset2D_ptds : &::cudaMemset2D;
    return function(pointer_to(ptr), pitch, value, width, height);
  });
}

template <bool OfThread>
CUresult fill_2d_in_order(
  CUdeviceptr ptr, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height, CUstream handle)
{
  return pass_on_in_context(
    [&] { return ::cudaMemset2DAsync(pointer_to(ptr), pitch, value, width, height, named<OfThread>(handle)); });
}

// --- Streams and events

CUresult create_stream(CUstream* out, unsigned flags)
{
  return pass_on_in_context([&] { return ::cudaStreamCreateWithFlags(out, flags); });
}

CUresult create_stream_with_priority(CUstream* out, unsigned flags, int priority)
{
  return pass_on_in_context([&] { return ::cudaStreamCreateWithPriority(out, flags, priority); });
}

CUresult destroy_stream(CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaStreamDestroy(handle); });
}

template <bool OfThread>
CUresult get_stream_priority(CUstream handle, int* out)
{
  return pass_on_in_context([&] { return ::cudaStreamGetPriority(named<OfThread>(handle), out); });
}

template <bool OfThread>
CUresult get_stream_flags(CUstream handle, unsigned* out)
{
  return pass_on_in_context([&] { return ::cudaStreamGetFlags(named<OfThread>(handle), out); });
}

template <bool OfThread>
CUresult synchronize_stream(CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaStreamSynchronize(named<OfThread>(handle)); });
}

template <bool OfThread>
CUresult query_stream(CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaStreamQuery(named<OfThread>(handle)); });
}

template <bool OfThread>
CUresult launch_host_function(CUstream handle, CUhostFn function, void* data)
{
  return pass_on_in_context([&] { return ::cudaLaunchHostFunc(named<OfThread>(handle), function, data); });
}

template <bool OfThread>
CUresult add_callback(CUstream handle, CUstreamCallback callback, void* data, unsigned flags)
{
  return pass_on_in_context([&] {
    return ::cudaStreamAddCallback(
      named<OfThread>(handle), reinterpret_cast<cudaStreamCallback_t>(callback), data, flags);
  });
}

template <bool OfThread>
CUresult attach_memory(CUstream handle, CUdeviceptr ptr, std::size_t bytes, unsigned flags)
{
  return pass_on_in_context(
    [&] { return ::cudaStreamAttachMemAsync(named<OfThread>(handle), pointer_to(ptr), bytes, flags); });
}

template <bool OfThread>
CUresult copy_stream_attributes(CUstream to, CUstream from)
{
  return pass_on_in_context([&] { return ::cudaStreamCopyAttributes(named<OfThread>(to), named<OfThread>(from)); });
}

CUresult create_event(CUevent* out, unsigned flags)
{
  return pass_on_in_context([&] { return ::cudaEventCreateWithFlags(out, flags); });
}

CUresult destroy_event(CUevent handle)
{
  return pass_on_in_context([&] { return ::cudaEventDestroy(handle); });
}

template <bool OfThread>
CUresult record_with_flags(CUevent event, CUstream handle, unsigned flags)
{
  return pass_on_in_context([&] { return ::cudaEventRecordWithFlags(event, named<OfThread>(handle), flags); });
}

CUresult synchronize_event(CUevent handle)
{
  return pass_on_in_context([&] { return ::cudaEventSynchronize(handle); });
}

CUresult get_elapsed_time(float* out, CUevent begin, CUevent end)
{
  return pass_on_in_context([&] { return ::cudaEventElapsedTime(out, begin, end); });
}

// --- Captures and graphs

template <bool OfThread>
CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode)
{
  return pass_on_in_context(
    [&] { return ::cudaStreamBeginCapture(named<OfThread>(handle), static_cast<cudaStreamCaptureMode>(mode)); });
}

template <bool OfThread>
CUresult begin_global_capture(CUstream handle)
{
  return begin_capture<OfThread>(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

template <bool OfThread>
CUresult end_capture(CUstream handle, CUgraph* out)
{
  return pass_on_in_context([&] { return ::cudaStreamEndCapture(named<OfThread>(handle), out); });
}

template <bool OfThread>
CUresult get_capture_info_with_edges(CUstream handle,
                                     CUstreamCaptureStatus* status,
                                     cuuint64_t* id,
                                     CUgraph* graph,
                                     CUgraphNode const** dependencies,
                                     void const** edges,
                                     std::size_t* count)
{
  return pass_on_in_context([&] {
    auto* const runtime_status = reinterpret_cast<cudaStreamCaptureStatus*>(status);
    auto* const runtime_id     = reinterpret_cast<unsigned long long*>(id);
#if CUDART_VERSION >= 13000
    return ::cudaStreamGetCaptureInfo(named<OfThread>(handle),
                                      runtime_status,
                                      runtime_id,
                                      graph,
                                      dependencies,
                                      reinterpret_cast<cudaGraphEdgeData const**>(edges),
                                      count);
#else
    if (edges != nullptr) { *edges = nullptr; }
    return ::cudaStreamGetCaptureInfo(named<OfThread>(handle), runtime_status, runtime_id, graph, dependencies, count);
#endif
  });
}

template <bool OfThread>
CUresult get_capture_info(CUstream handle,
                          CUstreamCaptureStatus* status,
                          cuuint64_t* id,
                          CUgraph* graph,
                          CUgraphNode const** dependencies,
                          std::size_t* count)
{
  return get_capture_info_with_edges<OfThread>(handle, status, id, graph, dependencies, nullptr, count);
}

template <bool OfThread>
CUresult get_capture_id(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id)
{
  return get_capture_info<OfThread>(handle, status, id, nullptr, nullptr, nullptr);
}

CUresult instantiate_graph(CUgraphExec* out, CUgraph graph, unsigned long long flags)
{
  return pass_on_in_context([&] { return ::cudaGraphInstantiateWithFlags(out, graph, flags); });
}

template <bool OfThread>
CUresult upload_graph(CUgraphExec graph, CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaGraphUpload(graph, named<OfThread>(handle)); });
}

template <bool OfThread>
CUresult launch_graph(CUgraphExec graph, CUstream handle)
{
  return pass_on_in_context([&] { return ::cudaGraphLaunch(graph, named<OfThread>(handle)); });
}

CUresult create_graph(CUgraph* out, unsigned flags)
{
  return pass_on([&] { return ::cudaGraphCreate(out, flags); });
}

CUresult destroy_graph(CUgraph graph)
{
  return pass_on([&] { return ::cudaGraphDestroy(graph); });
}

CUresult destroy_executable_graph(CUgraphExec graph)
{
  return pass_on([&] { return ::cudaGraphExecDestroy(graph); });
}

CUresult get_graph_nodes(CUgraph graph, CUgraphNode* out, std::size_t* count)
{
  return pass_on([&] { return ::cudaGraphGetNodes(graph, out, count); });
}

CUresult get_root_nodes(CUgraph graph, CUgraphNode* out, std::size_t* count)
{
  return pass_on([&] { return ::cudaGraphGetRootNodes(graph, out, count); });
}

/// An entry for a function that passes its calls on to `twin`.
template <class Signature>
[[nodiscard]] driver_entry entry(
  char const* name, int since, char const* twin, Signature* function, Signature* per_thread = nullptr)
{
  auto made = entry_for(name, since, function, per_thread);
  made.twin = twin;
  return made;
}

/// Both variants of a function template: stream 0 is the legacy stream, or the thread's own.
#define CUDASIM_BOTH(function) function<false>, function<true>

/// An entry that headers before CUDA 13 lack.
#if CUDART_VERSION >= 13000
#define CUDASIM_FROM_13(...) __VA_ARGS__,
#else
#define CUDASIM_FROM_13(...)
#endif

}  // namespace

driver_entries runtime_entries()
{
  static std::array const all{
    entry("cuDeviceGetName", 2000, "cudaGetDeviceProperties", get_name),
    entry("cuDeviceTotalMem", 3020, "cudaGetDeviceProperties", get_total_memory),
    entry("cuDeviceGetUuid", 9020, "cudaGetDeviceProperties", get_uuid),
    entry("cuDeviceGetPCIBusId", 4010, "cudaDeviceGetPCIBusId", get_bus_id),
    entry("cuDeviceGetByPCIBusId", 4010, "cudaDeviceGetByPCIBusId", get_by_bus_id),
    entry("cuDeviceGetP2PAttribute", 8000, "cudaDeviceGetP2PAttribute", get_p2p_attribute),
    entry("cuDeviceCanAccessPeer", 4000, "cudaDeviceCanAccessPeer", can_access_peer),
    entry("cuCtxEnablePeerAccess", 4000, "cudaDeviceEnablePeerAccess", enable_peer_access),
    entry("cuCtxDisablePeerAccess", 4000, "cudaDeviceDisablePeerAccess", disable_peer_access),
    entry_for("cuDevicePrimaryCtxRelease", 7000, release_primary_context),
    entry("cuDevicePrimaryCtxSetFlags", 7000, "cudaSetDeviceFlags", set_primary_context_flags),
    entry("cuDevicePrimaryCtxReset", 7000, "cudaDeviceReset", reset_primary_context),
    entry_for("cuCtxSetCurrent", 4000, set_current_context),
    entry("cuCtxGetFlags", 7000, "cudaGetDeviceFlags", get_context_flags),
    entry("cuCtxGetLimit", 3010, "cudaDeviceGetLimit", get_limit),
    entry("cuCtxSetLimit", 3010, "cudaDeviceSetLimit", set_limit),
    entry("cuCtxGetStreamPriorityRange", 5050, "cudaDeviceGetStreamPriorityRange", get_priority_range),
    entry("cuCtxSynchronize", 2000, "cudaDeviceSynchronize", synchronize_context),
    entry("cuCtxSynchronize", 13000, "cudaDeviceSynchronize", synchronize_this_context),
    entry_for("cuModuleGetLoadingMode", 11070, get_loading_mode),
    entry("cuProfilerStart", 4000, "cudaProfilerStart", start_profiler),
    entry("cuProfilerStop", 4000, "cudaProfilerStop", stop_profiler),
    entry("cuMemAlloc", 3020, "cudaMalloc", allocate),
    entry("cuMemAllocPitch", 3020, "cudaMallocPitch", allocate_pitched),
    entry("cuMemAllocManaged", 6000, "cudaMallocManaged", allocate_managed),
    entry("cuMemFree", 3020, "cudaFree", free),
    entry("cuMemHostAlloc", 2020, "cudaHostAlloc", allocate_on_host),
    entry("cuMemFreeHost", 2000, "cudaFreeHost", free_on_host),
    entry("cuMemHostRegister", 4000, "cudaHostRegister", register_on_host),
    entry("cuMemHostUnregister", 4000, "cudaHostUnregister", unregister_on_host),
    entry("cuMemHostGetDevicePointer", 3020, "cudaHostGetDevicePointer", get_device_pointer),
    entry("cuMemHostGetFlags", 2030, "cudaHostGetFlags", get_host_flags),
    entry("cuMemPrefetchAsync", 8000, "cudaMemPrefetchAsync", CUDASIM_BOTH(prefetch_to)),
    entry("cuMemPrefetchAsync", 12020, "cudaMemPrefetchAsync", CUDASIM_BOTH(prefetch_to_location)),
    entry("cuMemAdvise", 8000, "cudaMemAdvise", advise),
    entry("cuMemAdvise", 12020, "cudaMemAdvise", advise_location),
    entry("cuMemRangeGetAttribute", 8000, "cudaMemRangeGetAttribute", get_range_attribute),
    entry("cuIpcGetMemHandle", 4010, "cudaIpcGetMemHandle", get_ipc_handle),
    entry("cuIpcOpenMemHandle", 4010, "cudaIpcOpenMemHandle", open_ipc_handle),
    entry("cuIpcCloseMemHandle", 4010, "cudaIpcCloseMemHandle", close_ipc_handle),
    entry("cuMemAllocAsync", 11020, "cudaMallocAsync", CUDASIM_BOTH(allocate_in_order)),
    entry("cuMemAllocFromPoolAsync", 11020, "cudaMallocFromPoolAsync", CUDASIM_BOTH(allocate_from_pool)),
    entry("cuMemFreeAsync", 11020, "cudaFreeAsync", CUDASIM_BOTH(free_in_order)),
    entry("cuDeviceGetDefaultMemPool", 11020, "cudaDeviceGetDefaultMemPool", get_default_pool),
    entry("cuDeviceGetMemPool", 11020, "cudaDeviceGetMemPool", get_pool),
    entry("cuDeviceSetMemPool", 11020, "cudaDeviceSetMemPool", set_pool),
    entry("cuMemPoolCreate", 11020, "cudaMemPoolCreate", create_pool),
    entry("cuMemPoolDestroy", 11020, "cudaMemPoolDestroy", destroy_pool),
    entry("cuMemPoolTrimTo", 11020, "cudaMemPoolTrimTo", trim_pool),
    entry("cuMemPoolSetAttribute", 11020, "cudaMemPoolSetAttribute", set_pool_attribute),
    entry("cuMemPoolGetAttribute", 11020, "cudaMemPoolGetAttribute", get_pool_attribute),
    entry("cuMemPoolSetAccess", 11020, "cudaMemPoolSetAccess", set_pool_access),
    entry("cuMemPoolGetAccess", 11020, "cudaMemPoolGetAccess", get_pool_access),
    entry("cuMemPoolExportToShareableHandle", 11020, "cudaMemPoolExportToShareableHandle", export_pool),
    entry("cuMemPoolImportFromShareableHandle", 11020, "cudaMemPoolImportFromShareableHandle", import_pool),
    entry("cuMemPoolExportPointer", 11020, "cudaMemPoolExportPointer", export_pool_pointer),
    entry("cuMemPoolImportPointer", 11020, "cudaMemPoolImportPointer", import_pool_pointer),
    CUDASIM_FROM_13(entry("cuMemGetDefaultMemPool", 13000, "cudaMemGetDefaultMemPool", get_default_pool_at))
      CUDASIM_FROM_13(entry("cuMemGetMemPool", 13000, "cudaMemGetMemPool", get_pool_at))
        CUDASIM_FROM_13(entry("cuMemSetMemPool", 13000, "cudaMemSetMemPool", set_pool_at))
          entry("cuMemcpy", 4000, "cudaMemcpy", CUDASIM_BOTH(copy)),
    entry("cuMemcpyAsync", 4000, "cudaMemcpyAsync", CUDASIM_BOTH(copy_in_order)),
    entry("cuMemcpyHtoD", 3020, "cudaMemcpy", CUDASIM_BOTH(copy_to_device)),
    entry("cuMemcpyHtoDAsync", 3020, "cudaMemcpyAsync", CUDASIM_BOTH(copy_to_device_in_order)),
    entry("cuMemcpyDtoH", 3020, "cudaMemcpy", CUDASIM_BOTH(copy_to_host)),
    entry("cuMemcpyDtoHAsync", 3020, "cudaMemcpyAsync", CUDASIM_BOTH(copy_to_host_in_order)),
    entry("cuMemcpyDtoD", 3020, "cudaMemcpy", CUDASIM_BOTH(copy_on_device)),
    entry("cuMemcpyDtoDAsync", 3020, "cudaMemcpyAsync", CUDASIM_BOTH(copy_on_device_in_order)),
    entry("cuMemcpyPeer", 4000, "cudaMemcpyPeer", copy_between_devices),
    entry("cuMemcpyPeerAsync", 4000, "cudaMemcpyPeerAsync", CUDASIM_BOTH(copy_between_devices_in_order)),
    entry("cuMemcpy2D", 3020, "cudaMemcpy2D", CUDASIM_BOTH(copy_2d)),
    entry("cuMemcpy2DUnaligned", 3020, "cudaMemcpy2D", CUDASIM_BOTH(copy_2d)),
    entry("cuMemcpy2DAsync", 3020, "cudaMemcpy2DAsync", CUDASIM_BOTH(copy_2d_in_order)),
    entry("cuMemsetD8", 3020, "cudaMemset", CUDASIM_BOTH(fill)),
    entry("cuMemsetD8Async", 3020, "cudaMemsetAsync", CUDASIM_BOTH(fill_in_order)),
    entry("cuMemsetD2D8", 3020, "cudaMemset2D", CUDASIM_BOTH(fill_2d)),
    entry("cuMemsetD2D8Async", 3020, "cudaMemset2DAsync", CUDASIM_BOTH(fill_2d_in_order)),
    entry("cuStreamCreate", 2000, "cudaStreamCreateWithFlags", create_stream),
    entry("cuStreamCreateWithPriority", 5050, "cudaStreamCreateWithPriority", create_stream_with_priority),
    entry("cuStreamDestroy", 4000, "cudaStreamDestroy", destroy_stream),
    entry("cuStreamGetPriority", 5050, "cudaStreamGetPriority", CUDASIM_BOTH(get_stream_priority)),
    entry("cuStreamGetFlags", 5050, "cudaStreamGetFlags", CUDASIM_BOTH(get_stream_flags)),
    entry("cuStreamSynchronize", 2000, "cudaStreamSynchronize", CUDASIM_BOTH(synchronize_stream)),
    entry("cuStreamQuery", 2000, "cudaStreamQuery", CUDASIM_BOTH(query_stream)),
    entry("cuLaunchHostFunc", 10000, "cudaLaunchHostFunc", CUDASIM_BOTH(launch_host_function)),
    entry("cuStreamAddCallback", 5000, "cudaStreamAddCallback", CUDASIM_BOTH(add_callback)),
    entry("cuStreamAttachMemAsync", 6000, "cudaStreamAttachMemAsync", CUDASIM_BOTH(attach_memory)),
    entry("cuStreamCopyAttributes", 11000, "cudaStreamCopyAttributes", CUDASIM_BOTH(copy_stream_attributes)),
    entry("cuEventCreate", 2000, "cudaEventCreateWithFlags", create_event),
    entry("cuEventDestroy", 4000, "cudaEventDestroy", destroy_event),
    entry("cuEventRecordWithFlags", 11010, "cudaEventRecordWithFlags", CUDASIM_BOTH(record_with_flags)),
    entry("cuEventSynchronize", 2000, "cudaEventSynchronize", synchronize_event),
    entry("cuEventElapsedTime", 2000, "cudaEventElapsedTime", get_elapsed_time),
    entry("cuStreamBeginCapture", 10000, "cudaStreamBeginCapture", CUDASIM_BOTH(begin_global_capture)),
    entry("cuStreamBeginCapture", 10010, "cudaStreamBeginCapture", CUDASIM_BOTH(begin_capture)),
    entry("cuStreamEndCapture", 10000, "cudaStreamEndCapture", CUDASIM_BOTH(end_capture)),
    entry("cuStreamGetCaptureInfo", 10010, "cudaStreamGetCaptureInfo", CUDASIM_BOTH(get_capture_id)),
    entry("cuStreamGetCaptureInfo", 11030, "cudaStreamGetCaptureInfo", CUDASIM_BOTH(get_capture_info)),
    entry("cuStreamGetCaptureInfo", 12030, "cudaStreamGetCaptureInfo", CUDASIM_BOTH(get_capture_info_with_edges)),
    entry("cuGraphInstantiateWithFlags", 11040, "cudaGraphInstantiateWithFlags", instantiate_graph),
    entry("cuGraphUpload", 11010, "cudaGraphUpload", CUDASIM_BOTH(upload_graph)),
    entry("cuGraphLaunch", 10000, "cudaGraphLaunch", CUDASIM_BOTH(launch_graph)),
    entry("cuGraphCreate", 10000, "cudaGraphCreate", create_graph),
    entry("cuGraphDestroy", 10000, "cudaGraphDestroy", destroy_graph),
    entry("cuGraphExecDestroy", 10000, "cudaGraphExecDestroy", destroy_executable_graph),
    entry("cuGraphGetNodes", 10000, "cudaGraphGetNodes", get_graph_nodes),
    entry("cuGraphGetRootNodes", 10000, "cudaGraphGetRootNodes", get_root_nodes),
  };
  return {all.data(), all.size()};
}

std::string_view runtime_twin(std::string_view name)
{
  auto const all          = runtime_entries();
  auto const* const last  = all.first + all.count;
  auto const* const found = std::find_if(all.first, last, [&](driver_entry const& e) { return e.name == name; });
  return found != last ? found->twin : std::string_view{};
}

}  // namespace cudasim
