// SPDX-License-Identifier: Apache-2.0
//
// Devices: their number, their properties, and the current one.

#include "attributes.hpp"
#include "reports.hpp"
#include "streams.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

// Declared in <cuda_profiler_api.h>, which only a whole toolkit has.
extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();

namespace cudasim {
namespace {

// --- Properties of a device

/// Attributes 1, 2, 3, ... as an H200 (driver 580) reports them. Some have names in the driver only.
// clang-format off
constexpr std::array<int, 147> h200_attributes{
  1024, 1024, 1024, 64, 2147483647, 65535, 65535,     // 1
  49152, 65536, 32, 2147483647, 65536, 1980000, 512,  // 8
  1, 132, 0, 0, 1, 0, 131072,                         // 15
  131072, 65536, 16384, 16384, 16384, 32768, 32768,   // 22
  2048, 512, 1, 1, 0, 0, 0,                           // 29; PCI bus and device: see find_attribute()
  3201000, 6016, 62914560, 2048, 3, 1, 32768,         // 36
  2048, 1, 32768, 32768, 8192, 8192, 32768,           // 43
  0, 32, 32768, 32768, 2046, 32768, 131072,           // 50
  65536, 16384, 16384, 16384, 32768, 2048, 32768,     // 57
  32768, 2048, 32768, 32768, 2046, 268435456, 131072, // 64
  65000, 2097120, 32768, 32768, 9, 0, 32768,          // 71
  1, 1, 1, 233472, 65536, 1, 0,                       // 78
  0, 0, 2, 0, 1, 1, 1,                                // 85
  0, 0, 0, 1, 1, 232448, 0,                           // 92
  1, 0, 0, 1, 1, 0, 0,                                // 99
  32, 1, 39321600, 134217728, 1, 1024, 1,             // 106
  1, 1, 1, 1, 1, 100, 9,                              // 113
  1, 1, 1, 1, 1, 1, 4,                                // 120
  1, 1, 1, 0, -1, 0, 0,                               // 127
  0, 0, 0, 0, 0, 590680286, 415174878,                // 134
  1, 1, 0, 1, 1, 0, 0,                                // 141
};
// clang-format on

constexpr int buses_per_domain = 255;

template <class Field>
struct property {
  Field cudaDeviceProp::*field;
  int attribute;
};

// Numbers for attributes that older toolkits do not name.
constexpr property<int> int_properties[]
{
  {&cudaDeviceProp::regsPerBlock, cudaDevAttrMaxRegistersPerBlock}, {&cudaDeviceProp::warpSize, cudaDevAttrWarpSize},
    {&cudaDeviceProp::maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock},
    {&cudaDeviceProp::major, cudaDevAttrComputeCapabilityMajor},
    {&cudaDeviceProp::minor, cudaDevAttrComputeCapabilityMinor},
    {&cudaDeviceProp::multiProcessorCount, cudaDevAttrMultiProcessorCount},
    {&cudaDeviceProp::integrated, cudaDevAttrIntegrated},
    {&cudaDeviceProp::canMapHostMemory, cudaDevAttrCanMapHostMemory},
    {&cudaDeviceProp::maxTexture1D, cudaDevAttrMaxTexture1DWidth},
    {&cudaDeviceProp::maxTexture1DMipmap, cudaDevAttrMaxTexture1DMipmappedWidth},
    {&cudaDeviceProp::maxTextureCubemap, cudaDevAttrMaxTextureCubemapWidth},
    {&cudaDeviceProp::maxSurface1D, cudaDevAttrMaxSurface1DWidth},
    {&cudaDeviceProp::maxSurfaceCubemap, cudaDevAttrMaxSurfaceCubemapWidth},
    {&cudaDeviceProp::concurrentKernels, cudaDevAttrConcurrentKernels},
    {&cudaDeviceProp::ECCEnabled, cudaDevAttrEccEnabled}, {&cudaDeviceProp::pciBusID, cudaDevAttrPciBusId},
    {&cudaDeviceProp::pciDeviceID, cudaDevAttrPciDeviceId}, {&cudaDeviceProp::pciDomainID, cudaDevAttrPciDomainId},
    {&cudaDeviceProp::tccDriver, cudaDevAttrTccDriver},
    {&cudaDeviceProp::asyncEngineCount, cudaDevAttrAsyncEngineCount},
    {&cudaDeviceProp::unifiedAddressing, cudaDevAttrUnifiedAddressing},
    {&cudaDeviceProp::memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth},
    {&cudaDeviceProp::l2CacheSize, cudaDevAttrL2CacheSize},
    {&cudaDeviceProp::persistingL2CacheMaxSize, cudaDevAttrMaxPersistingL2CacheSize},
    {&cudaDeviceProp::maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor},
    {&cudaDeviceProp::streamPrioritiesSupported, cudaDevAttrStreamPrioritiesSupported},
    {&cudaDeviceProp::globalL1CacheSupported, cudaDevAttrGlobalL1CacheSupported},
    {&cudaDeviceProp::localL1CacheSupported, cudaDevAttrLocalL1CacheSupported},
    {&cudaDeviceProp::regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor},
    {&cudaDeviceProp::managedMemory, cudaDevAttrManagedMemory},
    {&cudaDeviceProp::isMultiGpuBoard, cudaDevAttrIsMultiGpuBoard},
    {&cudaDeviceProp::multiGpuBoardGroupID, cudaDevAttrMultiGpuBoardGroupID},
    {&cudaDeviceProp::hostNativeAtomicSupported, cudaDevAttrHostNativeAtomicSupported},
    {&cudaDeviceProp::pageableMemoryAccess, cudaDevAttrPageableMemoryAccess},
    {&cudaDeviceProp::concurrentManagedAccess, cudaDevAttrConcurrentManagedAccess},
    {&cudaDeviceProp::computePreemptionSupported, cudaDevAttrComputePreemptionSupported},
    {&cudaDeviceProp::canUseHostPointerForRegisteredMem, cudaDevAttrCanUseHostPointerForRegisteredMem},
    {&cudaDeviceProp::cooperativeLaunch, cudaDevAttrCooperativeLaunch},
    {&cudaDeviceProp::pageableMemoryAccessUsesHostPageTables, cudaDevAttrPageableMemoryAccessUsesHostPageTables},
    {&cudaDeviceProp::directManagedMemAccessFromHost, cudaDevAttrDirectManagedMemAccessFromHost},
    {&cudaDeviceProp::maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor},
    {&cudaDeviceProp::accessPolicyMaxWindowSize, cudaDevAttrMaxAccessPolicyWindowSize},
    {&cudaDeviceProp::hostRegisterSupported, cudaDevAttrHostRegisterSupported},
    {&cudaDeviceProp::sparseCudaArraySupported, cudaDevAttrSparseCudaArraySupported},
    {&cudaDeviceProp::hostRegisterReadOnlySupported, cudaDevAttrHostRegisterReadOnlySupported},
    {&cudaDeviceProp::timelineSemaphoreInteropSupported, cudaDevAttrTimelineSemaphoreInteropSupported},
    {&cudaDeviceProp::memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported},
    {&cudaDeviceProp::gpuDirectRDMASupported, cudaDevAttrGPUDirectRDMASupported},
    {&cudaDeviceProp::gpuDirectRDMAWritesOrdering, cudaDevAttrGPUDirectRDMAWritesOrdering},
    {&cudaDeviceProp::deferredMappingCudaArraySupported, cudaDevAttrDeferredMappingCudaArraySupported},
    {&cudaDeviceProp::ipcEventSupported, cudaDevAttrIpcEventSupport},
    {&cudaDeviceProp::clusterLaunch, cudaDevAttrClusterLaunch}, {&cudaDeviceProp::unifiedFunctionPointers, 129},
#if CUDART_VERSION >= 13000
    {&cudaDeviceProp::deviceNumaConfig, cudaDevAttrNumaConfig}, {&cudaDeviceProp::deviceNumaId, cudaDevAttrNumaId},
    {&cudaDeviceProp::mpsEnabled, cudaDevAttrMpsEnabled}, {&cudaDeviceProp::hostNumaId, cudaDevAttrHostNumaId},
    {&cudaDeviceProp::hostNumaMultinodeIpcSupported, cudaDevAttrHostNumaMultinodeIpcSupported},
#else
    {&cudaDeviceProp::clockRate, cudaDevAttrClockRate}, {&cudaDeviceProp::deviceOverlap, cudaDevAttrGpuOverlap},
    {&cudaDeviceProp::kernelExecTimeoutEnabled, cudaDevAttrKernelExecTimeout},
    {&cudaDeviceProp::computeMode, cudaDevAttrComputeMode},
    {&cudaDeviceProp::maxTexture1DLinear, cudaDevAttrMaxTexture1DLinearWidth},
    {&cudaDeviceProp::memoryClockRate, cudaDevAttrMemoryClockRate},
    {&cudaDeviceProp::singleToDoublePrecisionPerfRatio, cudaDevAttrSingleToDoublePrecisionPerfRatio},
    {&cudaDeviceProp::cooperativeMultiDeviceLaunch, 96},
#endif
};

constexpr property<unsigned> unsigned_properties[]
{
  {&cudaDeviceProp::gpuDirectRDMAFlushWritesOptions, cudaDevAttrGPUDirectRDMAFlushWritesOptions},
    {&cudaDeviceProp::memoryPoolSupportedHandleTypes, cudaDevAttrMemoryPoolSupportedHandleTypes},
#if CUDART_VERSION >= 13000
    {&cudaDeviceProp::gpuPciDeviceID, cudaDevAttrGpuPciDeviceId},
    {&cudaDeviceProp::gpuPciSubsystemID, cudaDevAttrGpuPciSubsystemId},
#endif
};

constexpr property<std::size_t> size_properties[]{
  {&cudaDeviceProp::sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock},
  {&cudaDeviceProp::memPitch, cudaDevAttrMaxPitch},
  {&cudaDeviceProp::totalConstMem, cudaDevAttrTotalConstantMemory},
  {&cudaDeviceProp::textureAlignment, cudaDevAttrTextureAlignment},
  {&cudaDeviceProp::texturePitchAlignment, cudaDevAttrTexturePitchAlignment},
  {&cudaDeviceProp::surfaceAlignment, cudaDevAttrSurfaceAlignment},
  {&cudaDeviceProp::sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor},
  {&cudaDeviceProp::sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin},
  {&cudaDeviceProp::reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock},
};

constexpr property<int[2]> pair_properties[]{
  {&cudaDeviceProp::maxTexture2D, cudaDevAttrMaxTexture2DWidth},
  {&cudaDeviceProp::maxTexture2DMipmap, cudaDevAttrMaxTexture2DMipmappedWidth},
  {&cudaDeviceProp::maxTexture2DGather, cudaDevAttrMaxTexture2DGatherWidth},
  {&cudaDeviceProp::maxTexture1DLayered, cudaDevAttrMaxTexture1DLayeredWidth},
  {&cudaDeviceProp::maxTextureCubemapLayered, cudaDevAttrMaxTextureCubemapLayeredWidth},
  {&cudaDeviceProp::maxSurface2D, cudaDevAttrMaxSurface2DWidth},
  {&cudaDeviceProp::maxSurface1DLayered, cudaDevAttrMaxSurface1DLayeredWidth},
  {&cudaDeviceProp::maxSurfaceCubemapLayered, cudaDevAttrMaxSurfaceCubemapLayeredWidth},
};

constexpr property<int[3]> triple_properties[]{
  {&cudaDeviceProp::maxThreadsDim, cudaDevAttrMaxBlockDimX},
  {&cudaDeviceProp::maxGridSize, cudaDevAttrMaxGridDimX},
  {&cudaDeviceProp::maxTexture2DLinear, cudaDevAttrMaxTexture2DLinearWidth},
  {&cudaDeviceProp::maxTexture3D, cudaDevAttrMaxTexture3DWidth},
  {&cudaDeviceProp::maxTexture3DAlt, cudaDevAttrMaxTexture3DWidthAlt},
  {&cudaDeviceProp::maxTexture2DLayered, cudaDevAttrMaxTexture2DLayeredWidth},
  {&cudaDeviceProp::maxSurface3D, cudaDevAttrMaxSurface3DWidth},
  {&cudaDeviceProp::maxSurface2DLayered, cudaDevAttrMaxSurface2DLayeredWidth},
};

/// Value of an attribute that is known to exist.
[[nodiscard]] int attribute_of(device const& d, int attribute)
{
  int value = 0;
  static_cast<void>(find_attribute(d, attribute, value));
  return value;
}

[[nodiscard]] cudaDeviceProp properties_of(device const& d)
{
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "NVIDIA H200 (simulated)");
  std::snprintf(p.uuid.bytes, sizeof p.uuid.bytes, "cudasim-%07d", d.number);
  p.totalGlobalMem = the_world().machine.memory_bytes;
  for (auto const& [field, attribute] : int_properties) { p.*field = attribute_of(d, attribute); }
  for (auto const& [field, attribute] : unsigned_properties) {
    p.*field = static_cast<unsigned>(attribute_of(d, attribute));
  }
  for (auto const& [field, attribute] : size_properties) {
    p.*field = static_cast<std::size_t>(attribute_of(d, attribute));
  }
  for (auto const& [field, attribute] : pair_properties) {
    for (int i = 0; i < 2; ++i) { (p.*field)[i] = attribute_of(d, attribute + i); }
  }
  for (auto const& [field, attribute] : triple_properties) {
    for (int i = 0; i < 3; ++i) { (p.*field)[i] = attribute_of(d, attribute + i); }
  }
  return p;
}

/// How many of the properties that programs choose a device by match.
[[nodiscard]] int score(cudaDeviceProp const& has, cudaDeviceProp const& wanted)
{
  return (wanted.name[0] == '\0' || std::strncmp(has.name, wanted.name, sizeof has.name) == 0 ? 1 : 0) +
         (has.totalGlobalMem >= wanted.totalGlobalMem ? 1 : 0) +
         (std::make_pair(has.major, has.minor) >= std::make_pair(wanted.major, wanted.minor) ? 1 : 0) +
         (has.multiProcessorCount >= wanted.multiProcessorCount ? 1 : 0);
}

// --- Settings of a device that are remembered and have no effect

struct limit_rule {
  std::size_t initial;
  std::size_t step;   ///< values are rounded up to a multiple of it
  std::size_t least;  ///< smaller values are raised to it
  std::size_t most;   ///< larger values are an error, or are lowered to it
  bool lowers;
};

/// By number of the limit, as on an H200. A step of 0 means that the limit is not supported.
constexpr limit_rule limit_rules[]{
  {1024, 16, 0, 262144, false},                            // cudaLimitStackSize
  {8650752, 256, 524288, 2147483648, true},                // cudaLimitPrintfFifoSize
  {8388608, 65536, 4194304, std::size_t{1} << 40U, true},  // cudaLimitMallocHeapSize
  {0, 0, 0, 0, false},                                     // cudaLimitDevRuntimeSyncDepth
  {2048, 1, 32, 599186, true},                             // cudaLimitDevRuntimePendingLaunchCount
  {64, 1, 0, 128, false},                                  // cudaLimitMaxL2FetchGranularity
  {11796480, 3932160, 0, 39321600, false},                 // cudaLimitPersistingL2CacheSize
};
constexpr std::size_t limit_count = std::size(limit_rules);

struct settings {
  unsigned flags{0};
  cudaFuncCache cache{cudaFuncCachePreferNone};
  std::array<std::size_t, limit_count> limits{};
  settings()
  {
    std::transform(
      std::begin(limit_rules), std::end(limit_rules), limits.begin(), [](auto const& r) { return r.initial; });
  }
};

[[nodiscard]] settings& settings_of(int number)
{
  static auto& all           = *new std::map<int, settings>;  // leaked on purpose, like the world
  static std::uint64_t epoch = 0;
  if (epoch != this_thread().epoch) {
    all.clear();
    epoch = this_thread().epoch;
  }
  return all[number];
}

[[nodiscard]] bool valid_device_flags(unsigned flags)
{
  auto const schedule = flags & cudaDeviceScheduleMask;
  return (flags & ~0xffU) == 0 && (schedule & (schedule - 1)) == 0;  // at most one way to wait
}

/// The rule of a limit, or null after a misuse report.
[[nodiscard]] limit_rule const* find_limit(call& c, cudaLimit limit, cudaError_t& error)
{
  if (static_cast<int>(limit) < 0) {
    error = c.misuse(cudaErrorInvalidValue, "there is no limit %d", static_cast<int>(limit));
    return nullptr;
  }
  auto const index = static_cast<std::size_t>(limit);
  if (index >= limit_count || limit_rules[index].step == 0) {
    error = cudaErrorUnsupportedLimit;
    return nullptr;
  }
  return &limit_rules[index];
}

/// Reads "DOMAIN:BUS:DEVICE.FUNCTION", "DOMAIN:BUS:DEVICE" or "BUS:DEVICE.FUNCTION", all hexadecimal.
[[nodiscard]] bool parse_bus_id(char const* text, unsigned& domain, unsigned& bus, unsigned& slot)
{
  unsigned function = 0;
  int end           = 0;
  auto const whole  = [&](int fields, int expected) { return fields == expected && end != 0 && text[end] == '\0'; };
  if (whole(std::sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end), 4)) { return true; }
  end = 0;
  if (whole(std::sscanf(text, "%x:%x:%x%n", &domain, &bus, &slot, &end), 3)) { return true; }
  end    = 0;
  domain = 0;
  return whole(std::sscanf(text, "%x:%x.%x%n", &bus, &slot, &function, &end), 3);
}

/// Whether the device has that PCI address.
[[nodiscard]] bool has_address(device const& d, unsigned domain, unsigned bus, unsigned slot)
{
  return attribute_of(d, cudaDevAttrPciDomainId) == static_cast<int>(domain) &&
         attribute_of(d, cudaDevAttrPciBusId) == static_cast<int>(bus) &&
         attribute_of(d, cudaDevAttrPciDeviceId) == static_cast<int>(slot);
}

}  // namespace

bool find_attribute(device const& d, int attribute, int& value)
{
  if (attribute < 1 || static_cast<std::size_t>(attribute) > h200_attributes.size()) { return false; }
  auto const overridden = d.attribute_overrides.find(attribute);
  if (overridden != d.attribute_overrides.end()) {
    value = overridden->second;
  } else if (attribute == cudaDevAttrPciBusId) {
    value = 1 + d.number % buses_per_domain;
  } else if (attribute == cudaDevAttrPciDomainId) {
    value = d.number / buses_per_domain;
  } else {
    value = h200_attributes[static_cast<std::size_t>(attribute) - 1];
  }
  return true;
}

device* find_device(call& c, int number)
{
  auto& devices = the_world().devices;
  if (number >= 0 && static_cast<std::size_t>(number) < devices.size()) {
    return &devices[static_cast<std::size_t>(number)];
  }
  c.misuse(cudaErrorInvalidDevice, "there is no device %d; there are %zu", number, devices.size());
  return nullptr;
}

bool has_context(int device)
{
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  return device_of_test("cudasim::has_context", device).has_context;
}

void set_device_attribute(int device, cudaDeviceAttr attribute, int value)
{
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  device_of_test("cudasim::set_device_attribute", device).attribute_overrides[attribute] = value;
}

}  // namespace cudasim

using namespace cudasim;

// --- The current device

cudaError_t cudaGetDevice(int* number)
{
  if (is_forked()) { return remember(report_fork("cudaGetDevice")); }
  static entry_point entry{"cudaGetDevice"};
  return enter_unlocked(entry, [&] {
    if (number == nullptr) { return cudaErrorInvalidValue; }
    *number = this_thread().device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int number)
{
  CUDASIM_CALL(cudaSetDevice, {
    if (find_device(c, number) == nullptr) { return cudaErrorInvalidDevice; }
    this_thread().device = number;
    make_context_current();
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int number, unsigned device_flags, unsigned flags)
{
  CUDASIM_CALL(cudaInitDevice, {
    auto* const d = find_device(c, number);
    if (d == nullptr) { return cudaErrorInvalidDevice; }
    if ((flags & cudaInitDeviceFlagsAreValid) != 0) {
      if (!valid_device_flags(device_flags)) {
        return c.misuse(cudaErrorInvalidValue, "unknown flags %#x", device_flags);
      }
      settings_of(number).flags = device_flags;
    }
    d->has_context = true;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceCount(int* count)
{
  CUDASIM_CALL(cudaGetDeviceCount, {
    if (count == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the number is null"); }
    *count = static_cast<int>(the_world().devices.size());
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize()
{
  CUDASIM_CALL(cudaDeviceSynchronize, {
    auto const number = this_thread().device;
    for (auto const& under_way : the_world().captures) {  // captures of any mode and any thread
      bool const concerned = std::any_of(under_way->members.begin(), under_way->members.end(), [&](auto const& member) {
        auto const s = member.lock();
        return s != nullptr && s->device == number;
      });
      if (concerned) {
        under_way->invalidated = true;
        return cudaErrorStreamCaptureUnsupported;
      }
    }
    return wait_for_device(c, number);
  });
}

cudaError_t cudaDeviceReset()
{
  CUDASIM_CALL(cudaDeviceReset, {
    auto const number = this_thread().device;
    drop_device_work(c.lock(), number);
    drop_device_memory(number);
    auto& d       = the_world().devices[static_cast<std::size_t>(number)];
    d.broken      = cudaSuccess;
    d.has_context = false;
    d.peers.clear();
    settings_of(number) = {};
    update_attention();
    return cudaSuccess;
  });
}

// --- Properties of a device

// The header of 12.x renames this to cudaGetDeviceProperties_v2.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int number)
{
  CUDASIM_CALL_AT(cudaGetDeviceProperties, __builtin_return_address(0), {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the properties is null"); }
    auto const* const d = find_device(c, number);
    if (d == nullptr) { return cudaErrorInvalidDevice; }
    *out = properties_of(*d);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number)
{
  CUDASIM_CALL(cudaDeviceGetAttribute, {
    if (value == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the value is null"); }
    auto const* const d = find_device(c, number);
    if (d == nullptr) { return cudaErrorInvalidDevice; }
    if (!find_attribute(*d, attribute, *value)) {
      return c.misuse(cudaErrorInvalidValue, "there is no attribute %d", static_cast<int>(attribute));
    }
    return cudaSuccess;
  });
}

cudaError_t cudaChooseDevice(int* number, cudaDeviceProp const* wanted)
{
  CUDASIM_CALL(cudaChooseDevice, {
    if (number == nullptr || wanted == nullptr) { return c.misuse(cudaErrorInvalidValue, "a pointer is null"); }
    auto const& devices = the_world().devices;
    auto const best     = std::max_element(devices.begin(), devices.end(), [&](device const& a, device const& b) {
      return score(properties_of(a), *wanted) < score(properties_of(b), *wanted);
    });
    *number             = best->number;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int number)
{
  CUDASIM_CALL(cudaDeviceGetPCIBusId, {
    if (text == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the address is null"); }
    auto const* const d = find_device(c, number);
    if (d == nullptr) { return cudaErrorInvalidDevice; }
    char address[32];
    auto const needed = 1 + std::snprintf(address,
                                          sizeof address,
                                          "%04x:%02x:%02x.0",
                                          static_cast<unsigned>(attribute_of(*d, cudaDevAttrPciDomainId)),
                                          static_cast<unsigned>(attribute_of(*d, cudaDevAttrPciBusId)),
                                          static_cast<unsigned>(attribute_of(*d, cudaDevAttrPciDeviceId)));
    if (length < needed) { return c.misuse(cudaErrorInvalidValue, "%d bytes hold no address; %d do", length, needed); }
    std::memcpy(text, address, static_cast<std::size_t>(needed));
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* number, char const* text)
{
  CUDASIM_CALL(cudaDeviceGetByPCIBusId, {
    unsigned domain = 0;
    unsigned bus    = 0;
    unsigned slot   = 0;
    if (number == nullptr || text == nullptr || !parse_bus_id(text, domain, bus, slot)) {
      return c.misuse(cudaErrorInvalidValue, "'%s' is not a PCI address", text == nullptr ? "(null)" : text);
    }
    for (auto const& d : the_world().devices) {
      if (has_address(d, domain, bus, slot)) {
        *number = d.number;
        return cudaSuccess;
      }
    }
    return cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDriverGetVersion(int* version)
{
  CUDASIM_CALL(cudaDriverGetVersion, {
    if (version == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the version is null"); }
    auto const overridden = the_world().driver_version;
    *version              = overridden != 0 ? overridden : CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version)
{
  CUDASIM_CALL(cudaRuntimeGetVersion, {
    if (version == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the version is null"); }
    auto const overridden = the_world().runtime_version;
    *version              = overridden != 0 ? overridden : CUDART_VERSION;
    return cudaSuccess;
  });
}

// --- Settings of the current device

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
  CUDASIM_CALL(cudaSetDeviceFlags, {
    if (!valid_device_flags(flags)) { return c.misuse(cudaErrorInvalidValue, "unknown flags %#x", flags); }
    settings_of(this_thread().device).flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags)
{
  CUDASIM_CALL(cudaGetDeviceFlags, {
    if (flags == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the flags is null"); }
    *flags = settings_of(this_thread().device).flags | cudaDeviceMapHost;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit)
{
  CUDASIM_CALL(cudaDeviceGetLimit, {
    if (value == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the value is null"); }
    auto error = cudaSuccess;
    if (find_limit(c, limit, error) == nullptr) { return error; }
    *value = settings_of(this_thread().device).limits[static_cast<std::size_t>(limit)];
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value)
{
  CUDASIM_CALL(cudaDeviceSetLimit, {
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    auto error             = cudaSuccess;
    auto const* const rule = find_limit(c, limit, error);
    if (rule == nullptr) { return error; }
    if (value > rule->most) {
      if (!rule->lowers) { return c.misuse(cudaErrorInvalidValue, "%zu is more than %zu", value, rule->most); }
      value = rule->most;
    }
    value = std::max(value, rule->least);
    settings_of(this_thread().device).limits[static_cast<std::size_t>(limit)] =
      (value + rule->step - 1) / rule->step * rule->step;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config)
{
  CUDASIM_CALL(cudaDeviceSetCacheConfig, {
    if (config < cudaFuncCachePreferNone || config > cudaFuncCachePreferEqual) {
      return c.misuse(cudaErrorInvalidValue, "unknown preference %d", static_cast<int>(config));
    }
    settings_of(this_thread().device).cache = config;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config)
{
  CUDASIM_CALL(cudaDeviceGetCacheConfig, {
    if (config == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the preference is null"); }
    *config = settings_of(this_thread().device).cache;
    return cudaSuccess;
  });
}

// Devices of the last ten years have a fixed width of shared memory banks: a call that sets it succeeds without effect.

cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig config)
{
  CUDASIM_CALL(cudaDeviceSetSharedMemConfig, {
    if (config < cudaSharedMemBankSizeDefault || config > cudaSharedMemBankSizeEightByte) {
      return c.misuse(cudaErrorInvalidValue, "unknown size %d", static_cast<int>(config));
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config)
{
  CUDASIM_CALL(cudaDeviceGetSharedMemConfig, {
    if (config == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the size is null"); }
    *config = cudaSharedMemBankSizeFourByte;
    return cudaSuccess;
  });
}

// The simulator profiles nothing: both calls only succeed.

cudaError_t cudaProfilerStart()
{
  CUDASIM_CALL(cudaProfilerStart, { return cudaSuccess; });
}

cudaError_t cudaProfilerStop()
{
  CUDASIM_CALL(cudaProfilerStop, { return cudaSuccess; });
}
