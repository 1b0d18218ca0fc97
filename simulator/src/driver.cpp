// SPDX-License-Identifier: Apache-2.0
//
// The table of driver functions, and the functions that do not concern virtual memory.

#include "driver.hpp"

#include "attributes.hpp"
#include "capture.hpp"
#include "pool.hpp"
#include "reports.hpp"
#include "virtual_memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

namespace cudasim {
namespace {

/// Names of the driver's errors, sorted by number.
struct driver_error {
  int number;
  char const* name;
};
constexpr driver_error driver_errors[]{
  {0, "CUDA_SUCCESS"},
  {1, "CUDA_ERROR_INVALID_VALUE"},
  {2, "CUDA_ERROR_OUT_OF_MEMORY"},
  {3, "CUDA_ERROR_NOT_INITIALIZED"},
  {4, "CUDA_ERROR_DEINITIALIZED"},
  {5, "CUDA_ERROR_PROFILER_DISABLED"},
  {6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED"},
  {7, "CUDA_ERROR_PROFILER_ALREADY_STARTED"},
  {8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED"},
  {34, "CUDA_ERROR_STUB_LIBRARY"},
  {36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"},
  {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
  {100, "CUDA_ERROR_NO_DEVICE"},
  {101, "CUDA_ERROR_INVALID_DEVICE"},
  {102, "CUDA_ERROR_DEVICE_NOT_LICENSED"},
  {200, "CUDA_ERROR_INVALID_IMAGE"},
  {201, "CUDA_ERROR_INVALID_CONTEXT"},
  {202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT"},
  {205, "CUDA_ERROR_MAP_FAILED"},
  {206, "CUDA_ERROR_UNMAP_FAILED"},
  {207, "CUDA_ERROR_ARRAY_IS_MAPPED"},
  {208, "CUDA_ERROR_ALREADY_MAPPED"},
  {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
  {210, "CUDA_ERROR_ALREADY_ACQUIRED"},
  {211, "CUDA_ERROR_NOT_MAPPED"},
  {212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY"},
  {213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER"},
  {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
  {215, "CUDA_ERROR_UNSUPPORTED_LIMIT"},
  {216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE"},
  {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
  {218, "CUDA_ERROR_INVALID_PTX"},
  {219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT"},
  {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
  {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"},
  {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
  {223, "CUDA_ERROR_JIT_COMPILATION_DISABLED"},
  {224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY"},
  {225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC"},
  {226, "CUDA_ERROR_CONTAINED"},
  {300, "CUDA_ERROR_INVALID_SOURCE"},
  {301, "CUDA_ERROR_FILE_NOT_FOUND"},
  {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND"},
  {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"},
  {304, "CUDA_ERROR_OPERATING_SYSTEM"},
  {400, "CUDA_ERROR_INVALID_HANDLE"},
  {401, "CUDA_ERROR_ILLEGAL_STATE"},
  {402, "CUDA_ERROR_LOSSY_QUERY"},
  {500, "CUDA_ERROR_NOT_FOUND"},
  {600, "CUDA_ERROR_NOT_READY"},
  {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
  {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
  {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
  {703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING"},
  {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
  {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"},
  {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"},
  {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
  {710, "CUDA_ERROR_ASSERT"},
  {711, "CUDA_ERROR_TOO_MANY_PEERS"},
  {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
  {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
  {714, "CUDA_ERROR_HARDWARE_STACK_ERROR"},
  {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"},
  {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
  {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"},
  {718, "CUDA_ERROR_INVALID_PC"},
  {719, "CUDA_ERROR_LAUNCH_FAILED"},
  {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
  {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK"},
  {800, "CUDA_ERROR_NOT_PERMITTED"},
  {801, "CUDA_ERROR_NOT_SUPPORTED"},
  {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
  {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
  {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
  {805, "CUDA_ERROR_MPS_CONNECTION_FAILED"},
  {806, "CUDA_ERROR_MPS_RPC_FAILURE"},
  {807, "CUDA_ERROR_MPS_SERVER_NOT_READY"},
  {808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"},
  {809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"},
  {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED"},
  {811, "CUDA_ERROR_CDP_NOT_SUPPORTED"},
  {812, "CUDA_ERROR_CDP_VERSION_MISMATCH"},
  {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
  {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
  {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
  {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
  {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
  {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
  {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
  {907, "CUDA_ERROR_CAPTURED_EVENT"},
  {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
  {909, "CUDA_ERROR_TIMEOUT"},
  {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"},
  {911, "CUDA_ERROR_EXTERNAL_DEVICE"},
  {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE"},
  {913, "CUDA_ERROR_FUNCTION_NOT_LOADED"},
  {914, "CUDA_ERROR_INVALID_RESOURCE_TYPE"},
  {915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"},
  {916, "CUDA_ERROR_KEY_ROTATION"},
  {999, "CUDA_ERROR_UNKNOWN"},
};

/// Name of an error; null for a number that is not an error.
[[nodiscard]] char const* driver_error_name(CUresult error)
{
  auto const* const found =
    std::find_if(std::begin(driver_errors), std::end(driver_errors), [&](auto const& e) { return e.number == error; });
  return found == std::end(driver_errors) ? nullptr : found->name;
}

/// The handle of a device's primary context. It is only a number to compare.
[[nodiscard]] CUcontext context_of(int device)
{
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(0x6c000000 + 64 * device));
}

[[nodiscard]] int driver_version()
{
  auto const overridden = the_world().driver_version;
  return overridden != 0 ? overridden : CUDART_VERSION;
}

// --- Driver, devices, contexts, streams

CUresult init(unsigned flags)
{
  CUDASIM_DRIVER_CALL(cuInit, {
    return flags == 0 ? cudaSuccess : c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#x", flags);
  });
}

CUresult get_driver_version(int* out)
{
  CUDASIM_DRIVER_CALL(cuDriverGetVersion, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the version is null"); }
    *out = driver_version();
    return cudaSuccess;
  });
}

CUresult get_error_name(CUresult error, char const** out)
{
  CUDASIM_DRIVER_CALL(cuGetErrorName, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the name is null"); }
    *out = driver_error_name(error);
    return *out == nullptr ? cudaErrorInvalidValue : cudaSuccess;
  });
}

CUresult get_error_string(CUresult error, char const** out)
{
  CUDASIM_DRIVER_CALL(cuGetErrorString, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the text is null"); }
    *out = driver_error_name(error) == nullptr ? nullptr : ::cudaGetErrorString(static_cast<cudaError_t>(error));
    return *out == nullptr ? cudaErrorInvalidValue : cudaSuccess;
  });
}

CUresult get_device_count(int* out)
{
  CUDASIM_DRIVER_CALL(cuDeviceGetCount, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the number is null"); }
    *out = the_world().machine.devices;
    return cudaSuccess;
  });
}

CUresult get_device(CUdevice* out, int ordinal)
{
  CUDASIM_DRIVER_CALL(cuDeviceGet, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the device is null"); }
    if (!is_device(c, ordinal)) { return cudaErrorInvalidDevice; }
    *out = ordinal;
    return cudaSuccess;
  });
}

CUresult get_device_attribute(int* out, CUdevice_attribute attribute, CUdevice number)
{
  CUDASIM_DRIVER_CALL(cuDeviceGetAttribute, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the attribute is null"); }
    auto const* const found = find_device(c, number);
    if (found == nullptr) { return cudaErrorInvalidDevice; }
    if (!find_attribute(*found, static_cast<int>(attribute), *out)) {
      return c.misuse(cudaErrorInvalidValue, "there is no attribute %d", static_cast<int>(attribute));
    }
    return cudaSuccess;
  });
}

CUresult get_current_context(CUcontext* out)
{
  CUDASIM_DRIVER_CALL(cuCtxGetCurrent, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the context is null"); }
    *out = this_thread().has_context ? context_of(this_thread().device) : nullptr;
    return cudaSuccess;
  });
}

/// Without the lock, like cudaGetDevice, because it is on hot paths.
CUresult get_current_device(CUdevice* out)
{
  if (is_forked()) { return static_cast<CUresult>(report_fork("cuCtxGetDevice")); }
  static entry_point entry{"cuCtxGetDevice"};
  return enter_driver_unlocked(entry, [&] {
    if (out == nullptr) { return cudaErrorInvalidValue; }
    if (!this_thread().has_context) { return cudaErrorDeviceUninitialized; }
    *out = this_thread().device;
    return cudaSuccess;
  });
}

CUresult get_device_of_context(CUdevice* out, CUcontext context)
{
  CUDASIM_DRIVER_CALL(cuCtxGetDevice, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the device is null"); }
    if (context == nullptr && !this_thread().has_context) { return cudaErrorDeviceUninitialized; }
    auto const device = context == nullptr ? this_thread().device : device_of_context(context);
    if (device < 0) {
      return c.misuse(cudaErrorDeviceUninitialized, "%p is not a context", static_cast<void*>(context));
    }
    *out = device;
    return cudaSuccess;
  });
}

/// The context of a device stays until cudaDeviceReset(), so retains are not counted.
CUresult retain_primary_context(CUcontext* out, CUdevice number)
{
  CUDASIM_DRIVER_CALL(cuDevicePrimaryCtxRetain, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the context is null"); }
    if (!is_device(c, number)) { return cudaErrorInvalidDevice; }
    find_device(c, number)->has_context = true;
    *out                                = context_of(number);
    return cudaSuccess;
  });
}

CUresult primary_context_state(CUdevice number, unsigned* flags, int* active)
{
  CUDASIM_DRIVER_CALL(cuDevicePrimaryCtxGetState, {
    if (flags == nullptr || active == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the output pointer for the state is null");
    }
    auto const* const found = find_device(c, number);
    if (found == nullptr) { return cudaErrorInvalidDevice; }
    *flags  = 0;
    *active = found->has_context ? 1 : 0;
    return cudaSuccess;
  });
}

CUresult push_context(CUcontext context)
{
  CUDASIM_DRIVER_CALL(cuCtxPushCurrent, {
    auto const device = device_of_context(context);
    if (device < 0) {
      return c.misuse(cudaErrorDeviceUninitialized, "%p is not a context", static_cast<void*>(context));
    }
    auto& thread = this_thread();
    if (thread.pushed == thread.covered.size()) {
      return c.misuse(cudaErrorNotSupported, "more than %zu contexts on a thread", thread.covered.size());
    }
    thread.covered[thread.pushed++] = {std::exchange(thread.device, device), std::exchange(thread.has_context, true)};
    return cudaSuccess;
  });
}

CUresult pop_context(CUcontext* out)
{
  CUDASIM_DRIVER_CALL(cuCtxPopCurrent, {
    auto& thread = this_thread();
    if (!thread.has_context && thread.pushed == 0) {
      return c.misuse(cudaErrorDeviceUninitialized, "no context was pushed on this thread");
    }
    if (out != nullptr) { *out = thread.has_context ? context_of(thread.device) : nullptr; }
    if (thread.pushed == 0) {  // cuCtxSetCurrent made it current
      thread.has_context = false;
      return cudaSuccess;
    }
    auto const& below  = thread.covered[--thread.pushed];
    thread.device      = below.device;
    thread.has_context = below.is_there;
    return cudaSuccess;
  });
}

CUresult stream_id(CUstream handle, unsigned long long* out)
{
  CUDASIM_DRIVER_CALL(cuStreamGetId, {
    if (lacks_context(handle)) { return cudaErrorDeviceUninitialized; }
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the id is null"); }
    if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
    *out = s->id;
    return cudaSuccess;
  });
}

CUresult stream_id_per_thread(CUstream handle, unsigned long long* out) { return stream_id(per_thread(handle), out); }

/// The stream that a handle names, if the program may ask about it; else null, and `error` says why. A capturing stream
/// may not be asked, as for its id.
[[nodiscard]] std::shared_ptr<stream> stream_to_ask(call& c, CUstream handle, cudaError_t& error)
{
  error = cudaErrorDeviceUninitialized;
  if (lacks_context(handle)) { return nullptr; }
  error  = cudaErrorInvalidResourceHandle;
  auto s = find_stream(c, handle);
  if (s != nullptr) { error = refuse_while_capturing(*s); }
  return error == cudaSuccess ? s : nullptr;
}

CUresult stream_device(CUstream handle, CUdevice* out)
{
  CUDASIM_DRIVER_CALL(cuStreamGetDevice, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the device is null"); }
    cudaError_t error{};
    auto const s = stream_to_ask(c, handle, error);
    if (s != nullptr) { *out = s->device; }
    return error;
  });
}

CUresult stream_device_per_thread(CUstream handle, CUdevice* out) { return stream_device(per_thread(handle), out); }

CUresult stream_context(CUstream handle, CUcontext* out)
{
  CUDASIM_DRIVER_CALL(cuStreamGetCtx, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the context is null"); }
    cudaError_t error{};
    auto const s = stream_to_ask(c, handle, error);
    if (s != nullptr) { *out = context_of(s->device); }
    return error;
  });
}

CUresult stream_context_per_thread(CUstream handle, CUcontext* out) { return stream_context(per_thread(handle), out); }

/// Green contexts are not simulated.
CUresult stream_contexts(CUstream handle, CUcontext* out, void** green)
{
  if (green != nullptr) { *green = nullptr; }
  return stream_context(handle, out);
}

CUresult stream_contexts_per_thread(CUstream handle, CUcontext* out, void** green)
{
  return stream_contexts(per_thread(handle), out, green);
}

// --- Pointers

CUresult get_memory_info(std::size_t* free, std::size_t* total)
{
  CUDASIM_DRIVER_CALL(cuMemGetInfo, {
    if (!this_thread().has_context) { return cudaErrorDeviceUninitialized; }
    if (free != nullptr) { *free = free_bytes(this_thread().device); }
    if (total != nullptr) { *total = the_world().machine.memory_bytes; }
    return cudaSuccess;
  });
}

CUresult get_address_range(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr ptr)
{
  CUDASIM_DRIVER_CALL(cuMemGetAddressRange, {
    auto const found = find_allocation(ptr);
    if (found == memory().allocations.end()) { return cudaErrorSymbolNotFound; }
    if (begin != nullptr) { *begin = found->first; }
    if (bytes != nullptr) { *bytes = found->second.bytes; }
    return cudaSuccess;
  });
}

/// The physical memory around an allocation: whole blocks, or chunks of a pool.
struct physical_range {
  std::uintptr_t begin;
  std::size_t bytes;
};

[[nodiscard]] physical_range physical_range_of(allocation_map::value_type const& entry)
{
  auto const& [begin, what] = entry;
  if (what.type == allocation::kind::registered || what.view != nullptr) { return {begin, what.bytes}; }
  auto const first = begin & ~(block_bytes - 1);
  return {first, round_up(begin + what.bytes - first, block_bytes)};
}

[[nodiscard]] bool decompresses(allocation const& what)
{
  if (what.block != nullptr) { return what.block->from->decompresses(); }
  if (what.view != nullptr) { return (what.view->of->memory->properties.allocFlags.usage & decompression_use) != 0; }
  return what.type == allocation::kind::device;
}

[[nodiscard]] unsigned handle_types(allocation const& what)
{
  if (what.block != nullptr) { return static_cast<unsigned>(what.block->from->properties.handleTypes); }
  return what.view != nullptr ? static_cast<unsigned>(what.view->of->memory->properties.requestedHandleTypes) : 0;
}

template <class Value>
void put(void* out, Value value)
{
  std::memcpy(out, &value, sizeof value);
}

/// Writes an attribute of a known pointer. Returns false if the pointer has no such attribute.
[[nodiscard]] bool write_attribute(void* out, int attribute, CUdeviceptr ptr, allocation_map::value_type const& entry)
{
  auto const& [begin, what] = entry;
  auto const type           = type_of(what);
  auto const device         = this_thread().device;
  auto const range          = physical_range_of(entry);
  bool const by_stream      = what.block != nullptr || what.view != nullptr;
  bool const is_device      = type == cudaMemoryTypeDevice;
  auto const reserved       = what.view != nullptr ? find_reservation(begin) : memory().mappings->reservations.end();
  bool const in_reservation = reserved != memory().mappings->reservations.end();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      put(out, by_stream ? nullptr : context_of(what.device));
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put(out, type == cudaMemoryTypeHost ? unsigned{CU_MEMORYTYPE_HOST} : unsigned{CU_MEMORYTYPE_DEVICE});
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (by_stream && !accessible(what, device)) { return false; }
      put(out, ptr);
      return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (is_device) { return false; }
      put(out, pointer_to(ptr));
      return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      put(out, type == cudaMemoryTypeManaged ? 1U : 0U);
      return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      put(out, static_cast<unsigned long long>(what.serial));
      return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      put(out, type == cudaMemoryTypeManaged ? 1U : 0U);
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(out, what.device);
      return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      put(out, what.type == allocation::kind::device ? 1U : 0U);
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      put(out, CUdeviceptr{in_reservation ? reserved->first : begin});
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put(out, in_reservation ? reserved->second.bytes : what.bytes);
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      put(out, 1U);
      return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      put(out, static_cast<unsigned long long>(handle_types(what)));
      return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: {
      bool const capable = what.view != nullptr ? what.view->of->memory->properties.allocFlags.gpuDirectRDMACapable != 0
                                                : what.type == allocation::kind::device;
      put(out, capable ? 1U : 0U);
      return true;
    }
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
      auto const allowed = what.view != nullptr       ? what.view->allowed(device)
                           : accessible(what, device) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
      put(out, static_cast<unsigned>(allowed));
      return true;
    }
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put(out, what.block != nullptr ? what.block->from->handle : nullptr);
      return true;
    case 18:
      put(out, range.bytes);
      return true;  // CU_POINTER_ATTRIBUTE_MAPPING_SIZE
    case 19:
      put(out, CUdeviceptr{range.begin});
      return true;  // CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
    case 20:        // CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
      put(out, static_cast<unsigned long long>(what.view != nullptr ? what.view->of->memory->id : what.serial));
      return true;
    case 21:
      put(out, decompresses(what) ? 1U : 0U);
      return true;  // CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE
    default:
      return false;
  }
}

[[nodiscard]] bool is_attribute(int attribute) { return attribute >= 1 && attribute <= 21; }

/// Programs call this to find out whether CUDA knows a pointer, so an unknown pointer is not misuse.
CUresult get_pointer_attribute(void* out, CUpointer_attribute attribute, CUdeviceptr ptr)
{
  CUDASIM_DRIVER_CALL(cuPointerGetAttribute, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the attribute is null"); }
    if (!is_attribute(attribute)) {
      return c.misuse(cudaErrorInvalidValue, "unknown attribute %d", static_cast<int>(attribute));
    }
    auto const found = find_allocation(ptr);
    bool const known = found != memory().allocations.end() && write_attribute(out, attribute, ptr, *found);
    return known ? cudaSuccess : cudaErrorInvalidValue;
  });
}

/// Unlike the call for one attribute, this one succeeds for a pointer that CUDA does not know: it has no memory type.
CUresult get_pointer_attributes(unsigned count, CUpointer_attribute* attributes, void** out, CUdeviceptr ptr)
{
  CUDASIM_DRIVER_CALL(cuPointerGetAttributes, {
    if (count == 0 || attributes == nullptr || out == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "no attributes");
    }
    if (!std::all_of(attributes, attributes + count, is_attribute) || std::count(out, out + count, nullptr) != 0) {
      return c.misuse(cudaErrorInvalidValue, "an attribute is unknown or its output pointer is null");
    }
    auto const found = find_allocation(ptr);
    bool const known = found != memory().allocations.end();
    for (unsigned i = 0; i < count; ++i) {
      bool const written = known && write_attribute(out[i], attributes[i], ptr, *found);
      if (!written && attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) { put(out[i], 0U); }
      if (!written && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) { put(out[i], CUdeviceptr{0}); }
      if (!written && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) { put(out[i], static_cast<void*>(nullptr)); }
    }
    return cudaSuccess;
  });
}

// --- The table

#define CUDASIM_DRIVER_ENTRY(name, since, ...) entry_for<decltype(name)>(#name, since, __VA_ARGS__)

[[nodiscard]] auto const& entries()
{
  static std::array const all{
    CUDASIM_DRIVER_ENTRY(cuInit, 2000, init),
    CUDASIM_DRIVER_ENTRY(cuDriverGetVersion, 2020, get_driver_version),
    CUDASIM_DRIVER_ENTRY(cuGetErrorName, 6000, get_error_name),
    CUDASIM_DRIVER_ENTRY(cuGetErrorString, 6000, get_error_string),
    CUDASIM_DRIVER_ENTRY(cuDeviceGetCount, 2000, get_device_count),
    CUDASIM_DRIVER_ENTRY(cuDeviceGet, 2000, get_device),
    CUDASIM_DRIVER_ENTRY(cuDeviceGetAttribute, 2000, get_device_attribute),
    CUDASIM_DRIVER_ENTRY(cuCtxGetCurrent, 4000, get_current_context),
    CUDASIM_DRIVER_ENTRY(cuCtxGetDevice, 2000, get_current_device),
    entry_for<CUresult(CUdevice*, CUcontext)>("cuCtxGetDevice", 13000, get_device_of_context),
    CUDASIM_DRIVER_ENTRY(cuDevicePrimaryCtxRetain, 7000, retain_primary_context),
    CUDASIM_DRIVER_ENTRY(cuDevicePrimaryCtxGetState, 7000, primary_context_state),
    entry_for<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent", 4000, push_context),
    entry_for<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent", 4000, pop_context),
    CUDASIM_DRIVER_ENTRY(cuThreadExchangeStreamCaptureMode, 10010, driver::exchange_capture_mode),
    CUDASIM_DRIVER_ENTRY(cuStreamIsCapturing, 10000, driver::is_capturing, driver::is_capturing_per_thread),
    CUDASIM_DRIVER_ENTRY(cuStreamGetId, 12000, stream_id, stream_id_per_thread),
    entry_for<CUresult(CUstream, CUdevice*)>("cuStreamGetDevice", 12080, stream_device, stream_device_per_thread),
    entry_for<CUresult(CUstream, CUcontext*)>("cuStreamGetCtx", 9020, stream_context, stream_context_per_thread),
    entry_for<CUresult(CUstream, CUcontext*, void**)>(
      "cuStreamGetCtx", 12050, stream_contexts, stream_contexts_per_thread),
    CUDASIM_DRIVER_ENTRY(cuStreamWaitEvent, 3020, driver::wait_event, driver::wait_event_per_thread),
    CUDASIM_DRIVER_ENTRY(cuEventRecord, 2000, driver::record, driver::record_per_thread),
    CUDASIM_DRIVER_ENTRY(cuEventQuery, 2000, driver::query),
    entry_for<decltype(cuMemGetInfo)>("cuMemGetInfo", 3020, get_memory_info),
    entry_for<decltype(cuMemGetAddressRange)>("cuMemGetAddressRange", 3020, get_address_range),
    CUDASIM_DRIVER_ENTRY(cuPointerGetAttribute, 4000, get_pointer_attribute),
    CUDASIM_DRIVER_ENTRY(cuPointerGetAttributes, 7000, get_pointer_attributes),
    CUDASIM_DRIVER_ENTRY(cuMemGetAllocationGranularity, 10020, driver::get_allocation_granularity),
    CUDASIM_DRIVER_ENTRY(cuMemAddressReserve, 10020, driver::reserve_addresses),
    CUDASIM_DRIVER_ENTRY(cuMemAddressFree, 10020, driver::free_addresses),
    CUDASIM_DRIVER_ENTRY(cuMemCreate, 10020, driver::create),
    CUDASIM_DRIVER_ENTRY(cuMemRelease, 10020, driver::release),
    CUDASIM_DRIVER_ENTRY(cuMemRetainAllocationHandle, 11000, driver::retain),
    CUDASIM_DRIVER_ENTRY(cuMemMap, 10020, driver::map),
    CUDASIM_DRIVER_ENTRY(cuMemUnmap, 10020, driver::unmap),
    CUDASIM_DRIVER_ENTRY(cuMemSetAccess, 10020, driver::set_access),
    CUDASIM_DRIVER_ENTRY(cuMemGetAccess, 10020, driver::get_access),
    CUDASIM_DRIVER_ENTRY(cuMemExportToShareableHandle, 10020, driver::export_handle),
    CUDASIM_DRIVER_ENTRY(cuMemImportFromShareableHandle, 10020, driver::import_handle),
    CUDASIM_DRIVER_ENTRY(cuMemGetAllocationPropertiesFromHandle, 10020, driver::get_properties),
  };
  return all;
}

/// The newest form of a function that `version` has. Sets `found` to whether any version has it.
[[nodiscard]] driver_entry const* find_entry(std::string_view name, int version, bool& found)
{
  driver_entry const* best = nullptr;
  found                    = false;
  auto const look_at       = [&](driver_entry const& entry) {
    if (entry.name != name) { return; }
    found = true;
    if (entry.since <= version && (best == nullptr || entry.since > best->since)) { best = &entry; }
  };
  auto const more = runtime_entries();
  std::for_each(entries().begin(), entries().end(), look_at);
  std::for_each(more.first, more.first + more.count, look_at);
  return best;
}

cudaError_t get_entry_point(
  call& c, char const* name, void** out, int version, unsigned long long flags, cudaDriverEntryPointQueryResult* status)
{
  constexpr unsigned long long known = cudaEnableLegacyStream | cudaEnablePerThreadDefaultStream;
  if (name == nullptr || out == nullptr) {
    return c.misuse(cudaErrorInvalidValue, "the name or the output pointer is null");
  }
  if ((flags & ~known) != 0) { return c.misuse(cudaErrorInvalidValue, "flags %#llx are unknown", flags); }
  *out = nullptr;
  if (version > driver_version()) {
    return c.misuse(cudaErrorInvalidValue, "version %d is newer than the driver, %d", version, driver_version());
  }
  bool exists = false;
  *out        = find_driver_function(name, version, (flags & cudaEnablePerThreadDefaultStream) != 0, exists);
  if (status != nullptr) {
    *status = *out != nullptr ? cudaDriverEntryPointSuccess
              : exists        ? cudaDriverEntryPointVersionNotSufficent
                              : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

cudaError_t entry_point_at(
  char const* name, void** out, unsigned long long flags, cudaDriverEntryPointQueryResult* status, void const* site)
{
  CUDASIM_CALL_AT(cudaGetDriverEntryPoint, site, {
    return get_entry_point(c, name, out, std::min<int>(CUDART_VERSION, driver_version()), flags, status);
  });
}

cudaError_t entry_point_by_version_at(char const* name,
                                      void** out,
                                      unsigned version,
                                      unsigned long long flags,
                                      cudaDriverEntryPointQueryResult* status,
                                      void const* site)
{
  CUDASIM_CALL_AT(cudaGetDriverEntryPointByVersion, site, {
    auto const wanted = static_cast<int>(std::min(version, 1'000'000U));
    return get_entry_point(c, name, out, wanted, flags, status);
  });
}

/// The flags that per-thread-default-stream code means when it names no stream.
[[nodiscard]] unsigned long long per_thread_flags(unsigned long long flags)
{
  return flags == cudaEnableDefault ? static_cast<unsigned long long>(cudaEnablePerThreadDefaultStream) : flags;
}

}  // namespace

int device_of_context(CUcontext context)
{
  int device = the_world().machine.devices - 1;
  while (device >= 0 && context != context_of(device)) { --device; }
  return device;
}

void* find_driver_function(char const* name, int version, bool own_stream, bool& exists)
{
  auto const* const found = find_entry(name, version, exists);
  if (found == nullptr) { return nullptr; }
  return own_stream && found->per_thread != nullptr ? found->per_thread : found->function;
}

CUresult refuse_driver_call(entry_point& entry, void const* site)
{
  return enter_driver(entry, site, [](call& c) { return report_unsimulated(c, " is not simulated"); });
}

void* driver_function(char const* name)
{
  bool exists = false;
  return find_driver_function(name, CUDART_VERSION, false, exists);
}

}  // namespace cudasim

using namespace cudasim;

cudaError_t cudaGetDriverEntryPoint(char const* name,
                                    void** out,
                                    unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status)
{
  return entry_point_at(name, out, flags, status, __builtin_return_address(0));
}

extern "C" cudaError_t cudaGetDriverEntryPoint_ptsz(char const* name,
                                                    void** out,
                                                    unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* status)
{
  return entry_point_at(name, out, per_thread_flags(flags), status, __builtin_return_address(0));
}

cudaError_t cudaGetDriverEntryPointByVersion(
  char const* name, void** out, unsigned version, unsigned long long flags, cudaDriverEntryPointQueryResult* status)
{
  return entry_point_by_version_at(name, out, version, flags, status, __builtin_return_address(0));
}

extern "C" cudaError_t cudaGetDriverEntryPointByVersion_ptsz(
  char const* name, void** out, unsigned version, unsigned long long flags, cudaDriverEntryPointQueryResult* status)
{
  return entry_point_by_version_at(name, out, version, per_thread_flags(flags), status, __builtin_return_address(0));
}
