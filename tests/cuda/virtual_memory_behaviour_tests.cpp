// SPDX-License-Identifier: Apache-2.0
//
// What the driver's virtual memory management does, and what cudaGetDriverEntryPoint hands out. The simulator and a real GPU
// have to pass the same tests.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <thread>

namespace {

constexpr std::size_t MiB   = std::size_t{1} << 20U;
constexpr std::size_t chunk = 2 * MiB;
constexpr auto posix        = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// The driver function of that name.
template <class Function>
[[nodiscard]] Function* entry(char const* name)
{
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status), cudaSuccess) << name;
  EXPECT_EQ(status, cudaDriverEntryPointSuccess) << name;
  return reinterpret_cast<Function*>(found);
}

#define DRIVER_FUNCTION(name) \
  decltype(&::name) name##_ { entry<decltype(::name)>(#name) }

class Driver : public ::testing::Test {
 protected:
  void SetUp() override
  {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the driver's errors are none of the runtime's";
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  [[nodiscard]] static std::size_t free_memory()
  {
    std::size_t free  = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return free;
  }
};

class VirtualMemory : public Driver {
 protected:
  static constexpr std::size_t reserved = 16 * chunk;

  DRIVER_FUNCTION(cuMemGetAllocationGranularity);
  DRIVER_FUNCTION(cuMemAddressReserve);
  DRIVER_FUNCTION(cuMemAddressFree);
  DRIVER_FUNCTION(cuMemCreate);
  DRIVER_FUNCTION(cuMemRelease);
  DRIVER_FUNCTION(cuMemRetainAllocationHandle);
  DRIVER_FUNCTION(cuMemMap);
  DRIVER_FUNCTION(cuMemUnmap);
  DRIVER_FUNCTION(cuMemSetAccess);
  DRIVER_FUNCTION(cuMemGetAccess);
  DRIVER_FUNCTION(cuMemExportToShareableHandle);
  DRIVER_FUNCTION(cuMemImportFromShareableHandle);
  DRIVER_FUNCTION(cuMemGetAllocationPropertiesFromHandle);
  DRIVER_FUNCTION(cuMemGetAddressRange);
  DRIVER_FUNCTION(cuPointerGetAttribute);

  void SetUp() override
  {
    Driver::SetUp();
    properties_.type          = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties_.location.id   = 0;
    access_.location          = properties_.location;
    access_.flags             = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    free_before_              = free_memory();
    ASSERT_EQ(cuMemAddressReserve_(&begin_, reserved, 0, 0, 0), CUDA_SUCCESS);
  }
  void TearDown() override
  {
    EXPECT_EQ(cuMemAddressFree_(begin_, reserved), CUDA_SUCCESS);
    EXPECT_EQ(free_memory(), free_before_);
    Driver::TearDown();
  }
  [[nodiscard]] CUmemGenericAllocationHandle create(std::size_t bytes)
  {
    CUmemGenericAllocationHandle made{};
    EXPECT_EQ(cuMemCreate_(&made, bytes, &properties_, 0), CUDA_SUCCESS);
    return made;
  }
  [[nodiscard]] unsigned long long access_at(CUdeviceptr where)
  {
    unsigned long long flags = 77;
    EXPECT_EQ(cuMemGetAccess_(&flags, &properties_.location, where), CUDA_SUCCESS);
    return flags;
  }
  [[nodiscard]] static void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
  [[nodiscard]] static cudaPointerAttributes attributes_of(CUdeviceptr address)
  {
    cudaPointerAttributes out{};
    EXPECT_EQ(cudaPointerGetAttributes(&out, pointer(address)), cudaSuccess);
    return out;
  }

  CUmemAllocationProp properties_{};
  CUmemAccessDesc access_{};
  CUdeviceptr begin_{};
  std::size_t free_before_{};
};

// --- entry points ---------------------------------------------------------------------------------------------------

TEST_F(Driver, AnUnknownFunctionIsNotFoundWithoutAnError)
{
  for (auto const* const name : {"cuNoSuchThing", "cudaMalloc", "", "cuMemAlloc_v2"}) {
    void* found = this;
    cudaDriverEntryPointQueryResult status{};
    EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status), cudaSuccess) << name;
    EXPECT_EQ(found, nullptr) << name;
    EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound) << name;
  }
}

TEST_F(Driver, AFunctionCanBeTooYoungForAVersion)
{
  void* found = this;
  cudaDriverEntryPointQueryResult status{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuMemCreate", &found, 10000, cudaEnableDefault, &status), cudaSuccess);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, cudaDriverEntryPointVersionNotSufficent);
}

TEST_F(Driver, AVersionCannotBeNewerThanTheDriver)
{
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuMemCreate", &found, 99000, cudaEnableDefault, &status),
            cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_F(Driver, EntryPointsTakeTheFlagsThatTheyKnow)
{
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuInit", &found, 12000, 99, &status), cudaErrorInvalidValue);
  cudaGetLastError();
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuInit", &found, 12000, cudaEnablePerThreadDefaultStream, &status),
            cudaSuccess);
  EXPECT_NE(found, nullptr);
}

TEST_F(Driver, EntryPointsNeedNoPlaceForTheStatus)
{
  void* found = nullptr;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuInit", &found, 12000, cudaEnableDefault, nullptr), cudaSuccess);
  EXPECT_NE(found, nullptr);
}

TEST_F(Driver, TheOlderCallFindsTheSameFunctions)
{
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  EXPECT_EQ(cudaGetDriverEntryPoint("cuMemCreate", &found, cudaEnableDefault, &status), cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  EXPECT_NE(found, nullptr);
  EXPECT_EQ(cudaGetDriverEntryPoint("cuNoSuchThing", &found, cudaEnableDefault, &status), cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(found, nullptr);
#pragma GCC diagnostic pop
}

// --- driver, devices, errors ----------------------------------------------------------------------------------------

TEST_F(Driver, InitialisesAgainAndAgain)
{
  auto* const init = entry<decltype(cuInit)>("cuInit");
  EXPECT_EQ(init(0), CUDA_SUCCESS);
  EXPECT_EQ(init(0), CUDA_SUCCESS);
  EXPECT_EQ(init(1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Driver, HasTheVersionThatTheRuntimeReports)
{
  auto* const get  = entry<decltype(cuDriverGetVersion)>("cuDriverGetVersion");
  int from_driver  = 0;
  int from_runtime = 0;
  EXPECT_EQ(get(&from_driver), CUDA_SUCCESS);
  EXPECT_EQ(cudaDriverGetVersion(&from_runtime), cudaSuccess);
  EXPECT_EQ(from_driver, from_runtime);
  EXPECT_EQ(get(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Driver, NumbersItsDevices)
{
  auto* const count_devices = entry<decltype(cuDeviceGetCount)>("cuDeviceGetCount");
  auto* const get           = entry<decltype(cuDeviceGet)>("cuDeviceGet");
  int count                 = 0;
  int expected              = 0;
  CUdevice device           = -1;
  EXPECT_EQ(count_devices(&count), CUDA_SUCCESS);
  EXPECT_EQ(cudaGetDeviceCount(&expected), cudaSuccess);
  EXPECT_EQ(count, expected);
  EXPECT_EQ(get(&device, 0), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(get(&device, count), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(get(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(get(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(count_devices(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Driver, SaysThatVirtualMemoryIsSupported)
{
  auto* const get = entry<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  for (auto const which : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                           CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                           CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED}) {
    int value = -1;
    EXPECT_EQ(get(&value, which, 0), CUDA_SUCCESS);
    EXPECT_EQ(value, 1) << which;
  }
}

TEST_F(Driver, KnowsAttributesOfDevices)
{
  auto* const get = entry<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  int value       = 0;
  int expected    = -1;
  EXPECT_EQ(get(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), CUDA_SUCCESS);
  EXPECT_EQ(cudaDeviceGetAttribute(&expected, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(value, expected);
  EXPECT_EQ(get(&value, static_cast<CUdevice_attribute>(250), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&value, static_cast<CUdevice_attribute>(0), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 77), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(get(nullptr, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Driver, NamesItsErrors)
{
  auto* const name_of = entry<decltype(cuGetErrorName)>("cuGetErrorName");
  auto* const text_of = entry<decltype(cuGetErrorString)>("cuGetErrorString");
  char const* text    = nullptr;
  EXPECT_EQ(name_of(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(name_of(CUDA_SUCCESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_SUCCESS");
  EXPECT_EQ(text_of(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(name_of(static_cast<CUresult>(990), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(text_of(static_cast<CUresult>(990), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST_F(Driver, HasACurrentContext)
{
  auto* const get = entry<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
  CUcontext one{};
  CUcontext same{};
  EXPECT_EQ(get(&one), CUDA_SUCCESS);
  EXPECT_NE(one, nullptr);
  EXPECT_EQ(get(&same), CUDA_SUCCESS);
  EXPECT_EQ(one, same);
  EXPECT_EQ(get(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Driver, KnowsTheDeviceOfTheCurrentContext)
{
  auto* const get = entry<CUresult(CUdevice*)>("cuCtxGetDevice");  // as version 12 has it
  CUdevice device = -1;
  EXPECT_EQ(get(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(get(nullptr), CUDA_ERROR_INVALID_VALUE);
}

class Contexts : public Driver {
 protected:
  DRIVER_FUNCTION(cuDevicePrimaryCtxRetain);
  DRIVER_FUNCTION(cuCtxGetCurrent);
  decltype(&::cuCtxPushCurrent) push_{entry<decltype(::cuCtxPushCurrent)>("cuCtxPushCurrent")};
  decltype(&::cuCtxPopCurrent) pop_{entry<decltype(::cuCtxPopCurrent)>("cuCtxPopCurrent")};

  [[nodiscard]] CUcontext current()
  {
    CUcontext context{};
    EXPECT_EQ(cuCtxGetCurrent_(&context), CUDA_SUCCESS);
    return context;
  }
  [[nodiscard]] static int current_device()
  {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
  }

  /// The device of the current context, as the driver has it; -1 if there is none.
  [[nodiscard]] int device_of_context()
  {
    CUdevice device   = -1;
    auto const status = cuCtxGetDevice_(&device);
    EXPECT_EQ(status, device < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
    return status == CUDA_SUCCESS ? device : -1;
  }

  CUresult (*cuCtxGetDevice_)(CUdevice*){entry<CUresult(CUdevice*)>("cuCtxGetDevice")};  // as version 12 has it
};

TEST_F(Contexts, HaveTheDeviceThatTheRuntimeMadeCurrent)
{
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  for (int number = devices; number-- > 0;) {
    ASSERT_EQ(cudaSetDevice(number), cudaSuccess);
    EXPECT_EQ(device_of_context(), number) << "at once, before anything needs a context";
    EXPECT_EQ(current_device(), number);
  }
}

TEST_F(Contexts, AreNotThereBeforeAThreadNeedsOne)
{
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(devices - 1), cudaSuccess);
  std::thread{[&] {
    std::size_t free  = 0;
    std::size_t total = 0;
    EXPECT_EQ(current(), nullptr);
    EXPECT_EQ(device_of_context(), -1);
    EXPECT_EQ(entry<decltype(cuMemGetInfo)>("cuMemGetInfo")(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(current_device(), 0);
    EXPECT_EQ(device_of_context(), -1) << "asking the runtime for the device makes none current";
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
    EXPECT_EQ(device_of_context(), 0);
    EXPECT_EQ(current_device(), 0);
  }}.join();
  EXPECT_EQ(device_of_context(), devices - 1);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(Contexts, ThatArePushedHaveTheDeviceThatTheRuntimeAnswers)
{
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  CUcontext other{};
  ASSERT_EQ(cuDevicePrimaryCtxRetain_(&other, devices - 1), CUDA_SUCCESS);
  EXPECT_EQ(push_(other), CUDA_SUCCESS);
  EXPECT_EQ(device_of_context(), devices - 1);
  EXPECT_EQ(current_device(), devices - 1);
  EXPECT_EQ(pop_(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(device_of_context(), 0);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(Contexts, ThatArePushedInANewThreadLeaveNoneBehind)
{
  CUcontext context{};
  ASSERT_EQ(cuDevicePrimaryCtxRetain_(&context, 0), CUDA_SUCCESS);
  std::thread{[&] {
    EXPECT_EQ(push_(context), CUDA_SUCCESS);
    EXPECT_EQ(device_of_context(), 0);
    EXPECT_EQ(pop_(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(device_of_context(), -1);
    EXPECT_EQ(current_device(), 0);
  }}.join();
}

TEST_F(Contexts, ThatAProgramMadeHaveTheDeviceThatTheRuntimeAnswers)
{
  int devices  = 0;
  void* create = nullptr;  // as version 3.2 has it
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuCtxCreate", &create, 3020, cudaEnableDefault, nullptr), cudaSuccess);
  if (create == nullptr) { GTEST_SKIP() << "this driver makes no contexts"; }
  CUcontext made{};
  ASSERT_EQ(reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(create)(&made, 0, devices - 1),
            CUDA_SUCCESS);
  EXPECT_EQ(current(), made);
  EXPECT_EQ(device_of_context(), devices - 1);
  EXPECT_EQ(current_device(), devices - 1);
  EXPECT_EQ(entry<decltype(::cuCtxDestroy)>("cuCtxDestroy")(made), CUDA_SUCCESS);
  EXPECT_EQ(device_of_context(), 0);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(Contexts, OfTheRuntimeArePrimary)
{
  CUcontext primary{};
  EXPECT_EQ(cuDevicePrimaryCtxRetain_(&primary, 0), CUDA_SUCCESS);
  EXPECT_EQ(primary, current());
  EXPECT_EQ(cuDevicePrimaryCtxRetain_(&primary, 77), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDevicePrimaryCtxRetain_(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Contexts, ComeBackWhenWhatWasPushedIsPopped)
{
  auto const before = current();
  CUcontext popped{};
  EXPECT_EQ(push_(before), CUDA_SUCCESS);
  EXPECT_EQ(current(), before);
  EXPECT_EQ(pop_(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, before);
  EXPECT_EQ(current(), before);
}

TEST_F(Contexts, ThatArePushedDecideWhichDeviceIsCurrent)
{
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) { GTEST_SKIP() << "needs two devices"; }
  CUcontext other{};
  CUcontext popped{};
  ASSERT_EQ(cuDevicePrimaryCtxRetain_(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(push_(other), CUDA_SUCCESS);
  EXPECT_EQ(current_device(), 1);
  EXPECT_EQ(pop_(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, other);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(Contexts, ThatArePushedAreReplacedByTheRuntime)
{
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) { GTEST_SKIP() << "needs two devices"; }
  CUcontext popped{};
  CUcontext other{};
  ASSERT_EQ(cuDevicePrimaryCtxRetain_(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(push_(current()), CUDA_SUCCESS);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(pop_(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, other);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(Driver, GivesStreamsTheSameIdAsTheRuntime)
{
  auto* const get = entry<decltype(cuStreamGetId)>("cuStreamGetId");
  cudaStream_t s{};
  unsigned long long id       = 0;
  unsigned long long expected = 1;
  ASSERT_EQ(cudaStreamCreate(&s), cudaSuccess);
  EXPECT_EQ(get(s, &id), CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamGetId(s, &expected), cudaSuccess);
  EXPECT_EQ(id, expected);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

/// A stream and an event of the runtime, for functions of the driver.
class DriverStreams : public Driver {
 protected:
  void SetUp() override
  {
    Driver::SetUp();
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    Driver::TearDown();
  }

  DRIVER_FUNCTION(cuThreadExchangeStreamCaptureMode);
  DRIVER_FUNCTION(cuStreamIsCapturing);
  DRIVER_FUNCTION(cuStreamGetId);
  DRIVER_FUNCTION(cuStreamWaitEvent);
  DRIVER_FUNCTION(cuEventRecord);
  DRIVER_FUNCTION(cuEventQuery);
  cudaStream_t stream{};
  cudaEvent_t event{};
};

TEST_F(DriverStreams, EventsAreThoseOfTheRuntime)
{
  EXPECT_EQ(cuEventQuery_(event), CUDA_SUCCESS);  // never recorded
  EXPECT_EQ(cuEventRecord_(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent_(cudaStreamPerThread, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cuEventQuery_(event), CUDA_SUCCESS);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST_F(DriverStreams, AThreadWithoutAContextIsAnsweredForStreamsAndEventsButNotForDefaultStreams)
{
  std::thread{[&] {
    unsigned long long id{};
    auto status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    auto mode   = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_EQ(cuStreamIsCapturing_(stream, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(cuStreamGetId_(stream, &id), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord_(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent_(stream, event, 0), CUDA_SUCCESS);
    auto const reached = cuEventQuery_(event);
    EXPECT_TRUE(reached == CUDA_SUCCESS || reached == CUDA_ERROR_NOT_READY) << reached;
    EXPECT_EQ(cuThreadExchangeStreamCaptureMode_(&mode), CUDA_SUCCESS);
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);

    for (cudaStream_t const each : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
      EXPECT_EQ(cuStreamIsCapturing_(each, &status), CUDA_ERROR_INVALID_CONTEXT);
      EXPECT_EQ(cuStreamGetId_(each, &id), CUDA_ERROR_INVALID_CONTEXT);
      EXPECT_EQ(cuEventRecord_(event, each), CUDA_ERROR_INVALID_CONTEXT);
      EXPECT_EQ(cuStreamWaitEvent_(each, event, 0), CUDA_ERROR_INVALID_CONTEXT);
    }
    auto of_runtime = cudaStreamCaptureStatusActive;
    EXPECT_EQ(cudaStreamIsCapturing(cudaStreamLegacy, &of_runtime), cudaSuccess);  // makes a context
    EXPECT_EQ(of_runtime, cudaStreamCaptureStatusNone);
    EXPECT_EQ(cuStreamIsCapturing_(cudaStreamLegacy, &status), CUDA_SUCCESS);
  }}.join();
}

TEST_F(DriverStreams, CapturesAreSeenAsTheRuntimeSeesThem)
{
  auto status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(cuStreamIsCapturing_(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cuStreamIsCapturing_(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  auto of_runtime = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(cudaStreamLegacy, &of_runtime), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cuStreamIsCapturing_(cudaStreamLegacy, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  unsigned long long id{};
  EXPECT_EQ(cuStreamGetId_(stream, &id), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);  // and breaks it
  EXPECT_EQ(cuStreamIsCapturing_(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(DriverStreams, TheModeOfAThreadIsThatOfTheRuntime)
{
  auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode_(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  auto of_runtime = cudaStreamCaptureModeThreadLocal;
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&of_runtime), cudaSuccess);
  EXPECT_EQ(of_runtime, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode_(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

TEST_F(Driver, KnowsHowMuchMemoryThereIs)
{
  auto* const get   = entry<decltype(cuMemGetInfo)>("cuMemGetInfo");
  std::size_t free  = 0;
  std::size_t total = 0;
  EXPECT_EQ(get(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, free_memory());
  EXPECT_GE(total, free);
}

// --- addresses ------------------------------------------------------------------------------------------------------

TEST_F(VirtualMemory, HasAGranularityOf2MiB)
{
  for (auto const which : {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
    std::size_t bytes = 0;
    EXPECT_EQ(cuMemGetAllocationGranularity_(&bytes, &properties_, which), CUDA_SUCCESS);
    EXPECT_EQ(bytes, chunk);
  }
}

TEST_F(VirtualMemory, NeedsArgumentsToTellTheGranularity)
{
  std::size_t bytes = 0;
  auto const least  = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
  EXPECT_EQ(cuMemGetAllocationGranularity_(nullptr, &properties_, least), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetAllocationGranularity_(&bytes, nullptr, least), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, ReservesAddressesWithoutMemory)
{
  EXPECT_EQ(begin_ % chunk, 0U);
  EXPECT_EQ(free_memory(), free_before_);
  EXPECT_EQ(attributes_of(begin_).type, cudaMemoryTypeUnregistered);
  CUdeviceptr found{};
  std::size_t bytes{};
  EXPECT_EQ(cuMemGetAddressRange_(&found, &bytes, begin_), CUDA_ERROR_NOT_FOUND);
}

TEST_F(VirtualMemory, ReservesWhatIsAligned)
{
  CUdeviceptr other{};
  EXPECT_EQ(cuMemAddressReserve_(&other, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve_(&other, 65536, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve_(&other, chunk + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve_(&other, chunk, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve_(&other, chunk, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve_(&other, chunk, 0, 0x1234567, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve_(nullptr, chunk, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve_(&other, std::size_t{1} << 62U, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(VirtualMemory, AlignsAddressesAsAsked)
{
  CUdeviceptr other{};
  constexpr std::size_t alignment = 1024 * MiB;
  ASSERT_EQ(cuMemAddressReserve_(&other, chunk, alignment, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(other % alignment, 0U);
  EXPECT_EQ(cuMemAddressFree_(other, chunk), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, TakesAddressesOnlyAsAHint)
{
  CUdeviceptr other{};
  ASSERT_EQ(cuMemAddressReserve_(&other, chunk, 0, begin_, 0), CUDA_SUCCESS);
  EXPECT_NE(other, begin_);
  EXPECT_EQ(cuMemAddressFree_(other, chunk), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, FreesAddressesAsTheyWereReserved)
{
  EXPECT_EQ(cuMemAddressFree_(begin_, 8 * chunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree_(begin_ + chunk, 8 * chunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree_(0, chunk), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr other{};
  ASSERT_EQ(cuMemAddressReserve_(&other, chunk, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree_(other, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree_(other, chunk), CUDA_ERROR_INVALID_VALUE);
}

// --- physical memory ------------------------------------------------------------------------------------------------

TEST_F(VirtualMemory, TakesMemoryWhenItIsCreated)
{
  auto const made = create(4 * chunk);
  EXPECT_EQ(free_before_ - free_memory(), 4 * chunk);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), free_before_);
}

TEST_F(VirtualMemory, CreatesWholeChunksOnADevice)
{
  CUmemGenericAllocationHandle made{};
  for (auto const bytes : {std::size_t{0}, std::size_t{1}, chunk + 4096}) {
    EXPECT_EQ(cuMemCreate_(&made, bytes, &properties_, 0), CUDA_ERROR_INVALID_VALUE) << bytes;
  }
  EXPECT_EQ(cuMemCreate_(nullptr, chunk, &properties_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate_(&made, chunk, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate_(&made, chunk, &properties_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate_(&made, chunk << 20U, &properties_, 0), CUDA_ERROR_OUT_OF_MEMORY);
  free_before_ = free_memory();  // a driver that runs out gives back what it kept for itself
}

TEST_F(VirtualMemory, CreatesNoMemoryOfUnknownProperties)
{
  CUmemGenericAllocationHandle made{};
  auto wrong        = properties_;
  wrong.location.id = 77;
  EXPECT_EQ(cuMemCreate_(&made, chunk, &wrong, 0), CUDA_ERROR_INVALID_DEVICE);
  wrong      = properties_;
  wrong.type = static_cast<CUmemAllocationType>(7);
  EXPECT_EQ(cuMemCreate_(&made, chunk, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
  wrong               = properties_;
  wrong.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  EXPECT_EQ(cuMemCreate_(&made, chunk, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
  wrong                      = properties_;
  wrong.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32;
  EXPECT_EQ(cuMemCreate_(&made, chunk, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, RemembersItsProperties)
{
  properties_.requestedHandleTypes            = posix;
  properties_.allocFlags.gpuDirectRDMACapable = 1;
  auto const made                             = create(chunk);
  CUmemAllocationProp found{};
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle_(&found, made), CUDA_SUCCESS);
  EXPECT_EQ(found.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(found.location.id, 0);
  EXPECT_EQ(found.requestedHandleTypes, posix);
  EXPECT_EQ(found.allocFlags.gpuDirectRDMACapable, 1);
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle_(nullptr, made), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, NoHandleIsZero) { EXPECT_EQ(cuMemRelease_(0), CUDA_ERROR_INVALID_VALUE); }

// --- mappings -------------------------------------------------------------------------------------------------------

TEST_F(VirtualMemory, MapsMemoryAsAWhole)
{
  auto const made = create(4 * chunk);
  EXPECT_EQ(cuMemMap_(begin_, 2 * chunk, 0, made, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemMap_(begin_, 2 * chunk, 2 * chunk, made, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemMap_(begin_, 5 * chunk, 0, made, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemMap_(begin_, 0, 0, made, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap_(begin_, 4 * chunk, 0, made, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap_(begin_, 4 * chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap_(begin_, 4 * chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, MapsWhereAddressesAreReservedAndFree)
{
  auto const made  = create(4 * chunk);
  auto const other = create(2 * chunk);
  EXPECT_EQ(cuMemMap_(0x100000000000, 4 * chunk, 0, made, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemMap_(begin_, 4 * chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap_(begin_, 4 * chunk, 0, made, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap_(begin_ + chunk, 2 * chunk, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap_(begin_ + 4 * chunk, 2 * chunk, 0, other, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap_(begin_, 6 * chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(other), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, LivesAsLongAsItIsMapped)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  EXPECT_EQ(free_before_ - free_memory(), chunk);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), free_before_);
}

TEST_F(VirtualMemory, GivesTheHandleOfAMappingBack)
{
  auto const made = create(4 * chunk);
  ASSERT_EQ(cuMemMap_(begin_, 4 * chunk, 0, made, 0), CUDA_SUCCESS);
  CUmemGenericAllocationHandle retained{};
  EXPECT_EQ(cuMemRetainAllocationHandle_(&retained, pointer(begin_ + 3 * chunk + 7)), CUDA_SUCCESS);
  EXPECT_EQ(retained, made);
  EXPECT_EQ(cuMemRetainAllocationHandle_(nullptr, pointer(begin_)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap_(begin_, 4 * chunk), CUDA_SUCCESS);
  EXPECT_EQ(free_before_ - free_memory(), 4 * chunk);
  EXPECT_EQ(cuMemRelease_(retained), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, OnlyMappedMemoryHasAHandle)
{
  void* plain = nullptr;
  CUmemGenericAllocationHandle retained{};
  ASSERT_EQ(cudaMalloc(&plain, 1000), cudaSuccess);
  EXPECT_EQ(cuMemRetainAllocationHandle_(&retained, plain), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaFree(plain), cudaSuccess);
}

TEST_F(VirtualMemory, HasNoAccessUntilItIsGiven)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(access_at(begin_), 0U);
  EXPECT_EQ(attributes_of(begin_).type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes_of(begin_).devicePointer, nullptr);
  EXPECT_EQ(cudaMemset(pointer(begin_), 1, 16), cudaErrorInvalidValue);
  cudaGetLastError();
  EXPECT_EQ(cuMemSetAccess_(begin_, chunk, &access_, 1), CUDA_SUCCESS);
  EXPECT_EQ(access_at(begin_ + 5), 3U);
  EXPECT_EQ(attributes_of(begin_ + 5).devicePointer, pointer(begin_ + 5));
  EXPECT_EQ(cudaMemset(pointer(begin_), 1, chunk), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, CanBeReadOnly)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  EXPECT_EQ(cuMemSetAccess_(begin_, chunk, &access_, 1), CUDA_SUCCESS);
  EXPECT_EQ(access_at(begin_), 1U);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, GivesAccessToWholeMappings)
{
  auto const made  = create(4 * chunk);
  auto const other = create(2 * chunk);
  ASSERT_EQ(cuMemMap_(begin_, 4 * chunk, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap_(begin_ + 4 * chunk, 2 * chunk, 0, other, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemSetAccess_(begin_, chunk, &access_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess_(begin_ + 4096, 4 * chunk - 4096, &access_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess_(begin_, reserved, &access_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess_(begin_, 0, &access_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(access_at(begin_), 0U);
  EXPECT_EQ(cuMemSetAccess_(begin_, 6 * chunk, &access_, 1), CUDA_SUCCESS);
  EXPECT_EQ(access_at(begin_), 3U);
  EXPECT_EQ(access_at(begin_ + 5 * chunk), 3U);
  EXPECT_EQ(cudaMemset(pointer(begin_), 1, 6 * chunk), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuMemUnmap_(begin_, 6 * chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(other), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, GivesAccessToKnownDevicesOnly)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemSetAccess_(begin_, chunk, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess_(begin_, chunk, &access_, 0), CUDA_ERROR_INVALID_VALUE);
  auto wrong        = access_;
  wrong.location.id = 77;
  EXPECT_EQ(cuMemSetAccess_(begin_, chunk, &wrong, 1), CUDA_ERROR_INVALID_VALUE);
  wrong       = access_;
  wrong.flags = static_cast<CUmemAccess_flags>(7);
  EXPECT_EQ(cuMemSetAccess_(begin_, chunk, &wrong, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, TellsAccessOfWhatIsMapped)
{
  unsigned long long flags = 0;
  EXPECT_EQ(cuMemGetAccess_(&flags, &properties_.location, begin_), CUDA_ERROR_INVALID_VALUE);
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAccess_(nullptr, &properties_.location, begin_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetAccess_(&flags, nullptr, begin_), CUDA_ERROR_INVALID_VALUE);
  auto wrong = properties_.location;
  wrong.id   = 77;
  EXPECT_EQ(cuMemGetAccess_(&flags, &wrong, begin_), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, UnmapsWholeMappingsAndSkipsHoles)
{
  auto const one = create(2 * chunk);
  auto const two = create(chunk);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS) << "nothing is mapped there";
  ASSERT_EQ(cuMemMap_(begin_, 2 * chunk, 0, one, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap_(begin_ + 4 * chunk, chunk, 0, two, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap_(begin_ + chunk, chunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap_(begin_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap_(begin_, 5 * chunk), CUDA_SUCCESS);
  EXPECT_EQ(attributes_of(begin_).type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cuMemRelease_(one), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(two), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, KeepsItsAddressesWhileSomethingIsMapped)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree_(begin_, reserved), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, CannotBeFreedByTheRuntime)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemSetAccess_(begin_, chunk, &access_, 1), CUDA_SUCCESS);
  EXPECT_EQ(cudaFree(pointer(begin_)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(pointer(begin_), cudaStreamPerThread), cudaErrorInvalidValue);
  cudaGetLastError();
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, ShowsTheSameBytesAtTwoAddresses)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap_(begin_ + 8 * chunk, chunk, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemSetAccess_(begin_, chunk, &access_, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemSetAccess_(begin_ + 8 * chunk, chunk, &access_, 1), CUDA_SUCCESS);
  int value = 0;
  ASSERT_EQ(cudaMemset(pointer(begin_), 7, 64), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(&value, pointer(begin_ + 8 * chunk), sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 0x07070707);
  EXPECT_EQ(cuMemUnmap_(begin_, reserved), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, KeepsItsBytesWhileItIsNotMapped)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemSetAccess_(begin_, chunk, &access_, 1), CUDA_SUCCESS);
  ASSERT_EQ(cudaMemset(pointer(begin_), 7, 64), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap_(begin_ + chunk, chunk, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemSetAccess_(begin_ + chunk, chunk, &access_, 1), CUDA_SUCCESS);
  int value = 0;
  ASSERT_EQ(cudaMemcpy(&value, pointer(begin_ + chunk), sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 0x07070707);
  EXPECT_EQ(cuMemUnmap_(begin_ + chunk, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, EndsWhereTheMappingEnds)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemSetAccess_(begin_, chunk, &access_, 1), CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(cudaMemset(pointer(begin_), 1, chunk + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(&value, pointer(begin_ + chunk - 2), sizeof value, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  cudaGetLastError();
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

// --- sharing --------------------------------------------------------------------------------------------------------

TEST_F(VirtualMemory, CanBeExportedIfItWasMadeForIt)
{
  auto const plain = create(chunk);
  int descriptor   = -1;
  EXPECT_EQ(cuMemExportToShareableHandle_(&descriptor, plain, posix, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease_(plain), CUDA_SUCCESS);

  properties_.requestedHandleTypes = posix;
  auto const made                  = create(chunk);
  EXPECT_EQ(cuMemExportToShareableHandle_(&descriptor, made, posix, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemExportToShareableHandle_(nullptr, made, posix, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemExportToShareableHandle_(&descriptor, made, CU_MEM_HANDLE_TYPE_WIN32, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemExportToShareableHandle_(&descriptor, made, posix, 0), CUDA_SUCCESS);
  EXPECT_GE(descriptor, 0);
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, ImportedAgainLivesAsLongAsEitherHandle)
{
  properties_.requestedHandleTypes = posix;
  auto const made                  = create(chunk);
  int descriptor                   = -1;
  CUmemGenericAllocationHandle imported{};
  ASSERT_EQ(cuMemExportToShareableHandle_(&descriptor, made, posix, 0), CUDA_SUCCESS);
  auto* const as_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
  ASSERT_EQ(cuMemImportFromShareableHandle_(&imported, as_handle, posix), CUDA_SUCCESS);
  EXPECT_NE(imported, made);
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  EXPECT_EQ(free_before_ - free_memory(), chunk);
  EXPECT_EQ(cuMemMap_(begin_, chunk, 0, imported, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(imported), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, ImportsNothingButExportedMemory)
{
  CUmemGenericAllocationHandle imported{};
  auto const as_handle = [](std::intptr_t descriptor) { return reinterpret_cast<void*>(descriptor); };
  EXPECT_EQ(cuMemImportFromShareableHandle_(&imported, as_handle(9999), posix), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(cuMemImportFromShareableHandle_(&imported, as_handle(1), CU_MEM_HANDLE_TYPE_WIN32),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemImportFromShareableHandle_(nullptr, as_handle(1), posix), CUDA_ERROR_INVALID_VALUE);
}

// --- pointers -------------------------------------------------------------------------------------------------------

class PointerAttributes : public Driver {
 protected:
  DRIVER_FUNCTION(cuPointerGetAttribute);
  DRIVER_FUNCTION(cuPointerGetAttributes);
  DRIVER_FUNCTION(cuMemGetAddressRange);

  template <class Value>
  [[nodiscard]] Value get(CUpointer_attribute which, void const* ptr)
  {
    Value value{};
    EXPECT_EQ(cuPointerGetAttribute_(&value, which, reinterpret_cast<CUdeviceptr>(ptr)), CUDA_SUCCESS) << which;
    return value;
  }
};

TEST_F(PointerAttributes, TellWhatDeviceMemoryIs)
{
  char* ptr = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&ptr), 1000), cudaSuccess);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr + 100), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(get<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr + 100), reinterpret_cast<CUdeviceptr>(ptr + 100));
  EXPECT_EQ(get<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr + 100), reinterpret_cast<CUdeviceptr>(ptr));
  EXPECT_EQ(get<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr + 100), 1000U);
  EXPECT_EQ(get<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr), 0);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr), 0U);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, ptr), 1U);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr), 1U);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, ptr), 1U);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, ptr), 3U);
  EXPECT_EQ(get<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, ptr), 0U);
  EXPECT_EQ(get<void*>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr), nullptr);
  EXPECT_NE(get<void*>(CU_POINTER_ATTRIBUTE_CONTEXT, ptr), nullptr);
  EXPECT_EQ(get<std::size_t>(static_cast<CUpointer_attribute>(18), ptr), chunk) << "size of the mapping";
  EXPECT_EQ(get<unsigned>(static_cast<CUpointer_attribute>(21), ptr), 1U) << "hardware decompression";
  void* host = nullptr;
  EXPECT_EQ(cuPointerGetAttribute_(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, reinterpret_cast<CUdeviceptr>(ptr)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(PointerAttributes, TellWhatPinnedMemoryIs)
{
  char* ptr = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&ptr), 1000), cudaSuccess);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr), unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(get<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr + 5), ptr + 5);
  EXPECT_EQ(get<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr + 5), reinterpret_cast<CUdeviceptr>(ptr + 5));
  EXPECT_EQ(get<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr), 1000U);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr), 0U);
  EXPECT_EQ(get<unsigned>(static_cast<CUpointer_attribute>(21), ptr), 0U);
  EXPECT_EQ(cudaFreeHost(ptr), cudaSuccess);
}

TEST_F(PointerAttributes, TellWhatManagedMemoryIs)
{
  char* ptr = nullptr;
  ASSERT_EQ(cudaMallocManaged(reinterpret_cast<void**>(&ptr), 100'000, cudaMemAttachGlobal), cudaSuccess);
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(get<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr), 1U);
  EXPECT_EQ(get<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr), ptr);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(PointerAttributes, NumberBuffersForever)
{
  void* ptr = nullptr;
  ASSERT_EQ(cudaMalloc(&ptr, 1000), cudaSuccess);
  auto const first = get<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr);
  EXPECT_EQ(get<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr), first);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&ptr, 1000), cudaSuccess);
  EXPECT_NE(get<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr), first);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(PointerAttributes, AreNoneForOrdinaryMemory)
{
  int here                = 0;
  unsigned type           = 77;
  auto const this_address = reinterpret_cast<CUdeviceptr>(&here);
  EXPECT_EQ(cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, this_address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PointerAttributes, CanBeAskedTogether)
{
  void* ptr = nullptr;
  int here  = 0;
  ASSERT_EQ(cudaMalloc(&ptr, 1000), cudaSuccess);
  std::array which{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned type     = 77;
  std::size_t bytes = 77;
  std::array<void*, 2> places{&type, &bytes};
  auto const ask = [&](unsigned count, void const* about) {
    return cuPointerGetAttributes_(count, which.data(), places.data(), reinterpret_cast<CUdeviceptr>(about));
  };
  EXPECT_EQ(ask(2, ptr), CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(bytes, 1000U);
  EXPECT_EQ(ask(2, &here), CUDA_SUCCESS);
  EXPECT_EQ(type, 0U) << "no memory of CUDA";
  EXPECT_EQ(ask(0, ptr), CUDA_ERROR_INVALID_VALUE);
  which[0] = static_cast<CUpointer_attribute>(31);
  EXPECT_EQ(ask(2, ptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerGetAttribute_(&type, which[0], reinterpret_cast<CUdeviceptr>(ptr)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerGetAttribute_(nullptr, which[1], reinterpret_cast<CUdeviceptr>(ptr)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(PointerAttributes, AddressRangesAreAllocations)
{
  void* ptr = nullptr;
  int here  = 0;
  ASSERT_EQ(cudaMalloc(&ptr, 1000), cudaSuccess);
  auto const address = reinterpret_cast<CUdeviceptr>(ptr);
  CUdeviceptr begin{};
  std::size_t bytes{};
  EXPECT_EQ(cuMemGetAddressRange_(&begin, &bytes, address + 3), CUDA_SUCCESS);
  EXPECT_EQ(begin, address);
  EXPECT_EQ(bytes, 1000U);
  EXPECT_EQ(cuMemGetAddressRange_(&begin, nullptr, address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAddressRange_(&begin, &bytes, reinterpret_cast<CUdeviceptr>(&here)), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(VirtualMemory, HasARangeThatIsTheReservation)
{
  auto const made = create(2 * chunk);
  auto const at   = begin_ + 4 * chunk;
  ASSERT_EQ(cuMemMap_(at, 2 * chunk, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemSetAccess_(at, 2 * chunk, &access_, 1), CUDA_SUCCESS);
  auto const get = [&](int which) {
    unsigned long long value = 0;
    EXPECT_EQ(cuPointerGetAttribute_(&value, static_cast<CUpointer_attribute>(which), at + 4096), CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(get(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), begin_);
  EXPECT_EQ(get(CU_POINTER_ATTRIBUTE_RANGE_SIZE), reserved);
  EXPECT_EQ(get(19), at) << "start of the mapping";
  EXPECT_EQ(get(18), 2 * chunk) << "size of the mapping";
  CUdeviceptr found{};
  std::size_t bytes{};
  EXPECT_EQ(cuMemGetAddressRange_(&found, &bytes, at + 5), CUDA_SUCCESS);
  EXPECT_EQ(found, at);
  EXPECT_EQ(bytes, 2 * chunk);
  EXPECT_EQ(cuMemUnmap_(at, 2 * chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

}  // namespace
