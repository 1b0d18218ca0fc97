// SPDX-License-Identifier: Apache-2.0
//
// libcuda.so.1 of these tests: the simulated driver, which has its functions for cuGetProcAddress() only, with symbols as NVIDIA's has
// them. Functions that are not simulated give numbers in place of memory.

#include <cuda.h>

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#undef cuGetProcAddress
#undef cuMemAllocAsync
#undef cuMemFreeAsync

namespace {

using find_function = CUresult (*)(char const*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

[[nodiscard]] find_function simulated()
{
  static auto const found = [] {
    void* const library = ::dlopen(AUDIT_SIMULATED_DRIVER, RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr : reinterpret_cast<find_function>(::dlsym(library, "cuGetProcAddress_v2"));
  }();
  if (found == nullptr) { std::abort(); }
  return found;
}

template <class Function>
[[nodiscard]] Function* simulated_function(char const* name, cuuint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM)
{
  void* found = nullptr;
  if (simulated()(name, &found, 13000, flags, nullptr) != CUDA_SUCCESS) { std::abort(); }
  return reinterpret_cast<Function*>(found);
}
#define SIMULATED(symbol, name) simulated_function<decltype(symbol)>(name)

std::atomic<std::uintptr_t> next_number{0x1000};

template <class Number>
CUresult give_number(Number* out)
{
  *out = reinterpret_cast<Number>(next_number.fetch_add(16));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);

CUresult cuInit(unsigned flags) { return SIMULATED(cuInit, "cuInit")(flags); }
CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes)
{
  return SIMULATED(cuMemAlloc_v2, "cuMemAlloc")(out, bytes);
}
CUresult cuMemAllocPitch_v2(
  CUdeviceptr* out, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element_bytes)
{
  return SIMULATED(cuMemAllocPitch_v2, "cuMemAllocPitch")(out, pitch, width, height, element_bytes);
}
CUresult cuMemAllocManaged(CUdeviceptr* out, std::size_t bytes, unsigned flags)
{
  return SIMULATED(cuMemAllocManaged, "cuMemAllocManaged")(out, bytes, flags);
}
CUresult cuMemFree_v2(CUdeviceptr address) { return SIMULATED(cuMemFree_v2, "cuMemFree")(address); }
CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream)
{
  return SIMULATED(cuMemAllocAsync, "cuMemAllocAsync")(out, bytes, stream);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
  return SIMULATED(cuMemFreeAsync, "cuMemFreeAsync")(address, stream);
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* out,
                     std::size_t bytes,
                     CUmemAllocationProp const* properties,
                     unsigned long long flags)
{
  return SIMULATED(cuMemCreate, "cuMemCreate")(out, bytes, properties, flags);
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return SIMULATED(cuMemRelease, "cuMemRelease")(handle); }
CUresult cuMemMap(CUdeviceptr address,
                  std::size_t bytes,
                  std::size_t offset,
                  CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
  return SIMULATED(cuMemMap, "cuMemMap")(address, bytes, offset, handle, flags);
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes)
{
  return SIMULATED(cuMemUnmap, "cuMemUnmap")(address, bytes);
}
CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned flags)
{
  return SIMULATED(cuMemHostAlloc, "cuMemHostAlloc")(out, bytes, flags);
}
/// NVIDIA's calls one function by another, too; a thing is to be counted once.
CUresult cuMemAllocHost_v2(void** out, std::size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }
CUresult cuMemFreeHost(void* address) { return SIMULATED(cuMemFreeHost, "cuMemFreeHost")(address); }
CUresult cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags)
{
  return SIMULATED(cuMemHostRegister_v2, "cuMemHostRegister")(address, bytes, flags);
}
CUresult cuMemHostUnregister(void* address) { return SIMULATED(cuMemHostUnregister, "cuMemHostUnregister")(address); }
CUresult cuArrayCreate_v2(CUarray* out, CUDA_ARRAY_DESCRIPTOR const* /*what*/) { return give_number(out); }
CUresult cuArray3DCreate_v2(CUarray* out, CUDA_ARRAY3D_DESCRIPTOR const* /*what*/) { return give_number(out); }
CUresult cuArrayDestroy(CUarray /*array*/) { return CUDA_SUCCESS; }
CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr address)
{
  return SIMULATED(cuMemGetAddressRange_v2, "cuMemGetAddressRange")(begin, bytes, address);
}
CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address)
{
  return SIMULATED(cuIpcGetMemHandle, "cuIpcGetMemHandle")(out, address);
}
CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address)
{
  return SIMULATED(cuPointerGetAttribute, "cuPointerGetAttribute")(out, attribute, address);
}

CUresult cuGetProcAddress_v2(
  char const* name, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status);

CUresult cuGetProcAddress(char const* name, void** out, int version, cuuint64_t flags)
{
  return cuGetProcAddress_v2(name, out, version, flags, nullptr);
}

CUresult cuGetProcAddress_v2(
  char const* name, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status)
{
  if (std::strcmp(name, "cuGetProcAddress") != 0) { return simulated()(name, out, version, flags, status); }
  *out = version >= 12000 ? reinterpret_cast<void*>(&cuGetProcAddress_v2) : reinterpret_cast<void*>(&cuGetProcAddress);
  return CUDA_SUCCESS;
}

}  // extern "C"
