// SPDX-License-Identifier: Apache-2.0
#include "caller.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#undef cuGetProcAddress
#undef cuMemAllocAsync
#undef cuMemFreeAsync

#ifdef AUDIT_LINKED
extern "C" {
CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
}
#endif

namespace {

[[nodiscard]] void* driver()
{
  static void* const opened = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) { std::printf("no driver: %s\n", ::dlerror()); }
  return opened;
}

void* find(way how, char const* symbol, char const* name, int version)
{
#ifdef AUDIT_LINKED
#define LINKED(function) \
  if (std::string_view{symbol} == #function) { return reinterpret_cast<void*>(&function); }
  if (how == way::linked) {
    LINKED(cuMemAlloc_v2)
    LINKED(cuMemAllocAsync)
    LINKED(cuMemFreeAsync)
    LINKED(cuMemFree_v2)
    LINKED(cuMemHostAlloc)
    LINKED(cuMemAllocHost_v2)
    LINKED(cuMemFreeHost)
  }
#endif
  if (how == way::by_symbol) { return ::dlsym(driver(), symbol); }
  using function   = CUresult(char const*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  auto* const find = reinterpret_cast<function*>(::dlsym(driver(), "cuGetProcAddress_v2"));
  void* found      = nullptr;
  // Runtimes ask for this function by itself.
  if (find("cuGetProcAddress", &found, 12000, 0, nullptr) != CUDA_SUCCESS) { return nullptr; }
  return reinterpret_cast<function*>(found)(name, &found, version, 0, nullptr) == CUDA_SUCCESS ? found : nullptr;
}

template <class Function>
[[nodiscard]] Function* get(way how, char const* symbol, char const* name)
{
  auto* const found = reinterpret_cast<Function*>(find(how, symbol, name, 12000));
  if (found == nullptr) {
    std::printf("%s was not found\n", symbol);
    std::exit(3);
  }
  return found;
}
#define GET(symbol, name) get<decltype(symbol)>(how, #symbol, name)
using allocate_async = CUresult(CUdeviceptr*, std::size_t, CUstream);
using free_async     = CUresult(CUdeviceptr, CUstream);

[[nodiscard]] CUresult map(way how, std::size_t bytes, memory& out)
{
  CUmemAllocationProp properties{};
  properties.type          = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle{};
  CUdeviceptr address{};
  auto const result = GET(cuMemCreate, "cuMemCreate")(&handle, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) { return result; }
  get<decltype(cuMemAddressReserve)>(way::by_name, "cuMemAddressReserve", "cuMemAddressReserve")(
    &address, bytes, 0, 0, 0);
  GET(cuMemMap, "cuMemMap")(address, bytes, 0, handle, 0);
  GET(cuMemRelease, "cuMemRelease")(handle);
  out = {address, bytes};
  return result;
}

[[nodiscard]] CUresult make_array(way how, std::size_t bytes, memory& out)
{
  CUDA_ARRAY_DESCRIPTOR what{};
  what.Width        = bytes / 8;
  what.NumChannels  = 2;
  what.Format       = CU_AD_FORMAT_FLOAT;
  CUarray array     = nullptr;
  auto const result = GET(cuArrayCreate_v2, "cuArrayCreate")(&array, &what);
  out.number        = reinterpret_cast<std::uintptr_t>(array);
  return result;
}

std::atomic<decltype(&cuMemAlloc_v2)> last_function{nullptr};

CUresult allocate_again(std::size_t bytes, memory& out)
{
  CUdeviceptr address{};
  auto const result = last_function.load()(&address, bytes);
  out               = {address, 0};
  return result;
}

CUresult allocate(way how, char const* kind_text, std::size_t bytes, CUstream stream, memory& out)
{
  std::string_view const kind{kind_text};
  out = {};
  CUdeviceptr address{};
  void* host{};
  std::size_t pitch{};
  auto result = CUDA_ERROR_UNKNOWN;
  if (kind == "device") {
    last_function = GET(cuMemAlloc_v2, "cuMemAlloc");
    result        = last_function.load()(&address, bytes);
  }
  if (kind == "async") {
    result = get<allocate_async>(how, "cuMemAllocAsync", "cuMemAllocAsync")(&address, bytes, stream);
  }
  if (kind == "pitch") { result = GET(cuMemAllocPitch_v2, "cuMemAllocPitch")(&address, &pitch, bytes, 1, 4); }
  if (kind == "managed") {
    result = GET(cuMemAllocManaged, "cuMemAllocManaged")(&address, bytes, CU_MEM_ATTACH_GLOBAL);
  }
  if (kind == "virtual") { return map(how, bytes, out); }
  if (kind == "array") { return make_array(way::by_symbol, bytes, out); }
  if (kind == "host") { result = GET(cuMemHostAlloc, "cuMemHostAlloc")(&host, bytes, 0); }
  if (kind == "host twice") {
    result = get<decltype(cuMemAllocHost_v2)>(way::by_symbol, "cuMemAllocHost_v2", "")(&host, bytes);
  }
  if (kind == "registered") {
    host   = std::malloc(bytes);
    result = GET(cuMemHostRegister_v2, "cuMemHostRegister")(host, bytes, 0);
  }
  out.number = host != nullptr ? reinterpret_cast<std::uintptr_t>(host) : address;
  return result;
}

CUresult release(way how, char const* kind_text, memory const& given, CUstream stream)
{
  std::string_view const kind{kind_text};
  auto* const host = reinterpret_cast<void*>(given.number);
  auto result      = CUDA_ERROR_UNKNOWN;
  if (kind == "async") { result = get<free_async>(how, "cuMemFreeAsync", "cuMemFreeAsync")(given.number, stream); }
  if (kind == "virtual") { result = GET(cuMemUnmap, "cuMemUnmap")(given.number, given.mapped_bytes); }
  if (kind == "array") {
    result = get<decltype(cuArrayDestroy)>(way::by_symbol, "cuArrayDestroy", "")(reinterpret_cast<CUarray>(host));
  }
  if (kind == "host" || kind == "host twice") { result = GET(cuMemFreeHost, "cuMemFreeHost")(host); }
  if (kind == "registered") {
    result = GET(cuMemHostUnregister, "cuMemHostUnregister")(host);
    std::free(host);
  }
  if (kind == "device" || kind == "pitch" || kind == "managed") {
    result = GET(cuMemFree_v2, "cuMemFree")(given.number);
  }
  return result;
}

}  // namespace

extern "C" {

extern caller const AUDIT_CALLER;
caller const AUDIT_CALLER{allocate, release, allocate_again, find};

/// Defined by several libraries, each of which calls the next one: what an interposer does.
int number_of_callers();
int number_of_callers()
{
  auto* const other = reinterpret_cast<int (*)()>(::dlsym(RTLD_NEXT, "number_of_callers"));
  return 1 + (other != nullptr ? other() : 0);
}

}  // extern "C"
