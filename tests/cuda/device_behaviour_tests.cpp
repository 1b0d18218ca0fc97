// SPDX-License-Identifier: Apache-2.0
//
// What devices are and how one is current, asked through the CUDA API alone. The simulator and a real GPU have to pass the
// same tests.

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <thread>

namespace {

class DeviceBehaviour : public ::testing::Test {
 protected:
  void SetUp() override
  {
    ASSERT_EQ(cudaGetDeviceCount(&count_), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    cudaGetLastError();
  }
  [[nodiscard]] static int attribute(cudaDeviceAttr which)
  {
    int value = -1;
    EXPECT_EQ(cudaDeviceGetAttribute(&value, which, 0), cudaSuccess);
    return value;
  }
  int count_{};
};

TEST_F(DeviceBehaviour, EveryNumberBelowTheCountIsADevice)
{
  ASSERT_GT(count_, 0);
  for (int number = 0; number < count_; ++number) {
    int current = -1;
    ASSERT_EQ(cudaSetDevice(number), cudaSuccess);
    ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, number);
  }
}

TEST_F(DeviceBehaviour, AnUnknownDeviceStaysUnused)
{
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(count_), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaInitDevice(count_, 0, 0), cudaErrorInvalidDevice);
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
}

TEST_F(DeviceBehaviour, AThreadStartsWithDeviceZero)
{
  if (count_ < 2) { GTEST_SKIP() << "needs two devices, there is one"; }
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  int current = -1;
  std::thread{[&] { EXPECT_EQ(cudaGetDevice(&current), cudaSuccess); }}.join();
  EXPECT_EQ(current, 0);
}

TEST_F(DeviceBehaviour, HasAContextOnceItIsMadeCurrent)
{
  void* found{};
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, 12000, cudaEnableDefault, nullptr),
            cudaSuccess);
  auto* const state = reinterpret_cast<int (*)(int device, unsigned* flags, int* active)>(found);
  for (int device = 0; device < count_; ++device) {
    unsigned flags{};
    int active{};
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(state(device, &flags, &active), 0);
    EXPECT_EQ(active, 1);
  }
}

TEST_F(DeviceBehaviour, AnswersNeedAPlace)
{
  EXPECT_EQ(cudaGetDevice(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetDeviceCount(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetDeviceProperties(nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetDeviceFlags(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetLimit(nullptr, cudaLimitStackSize), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetCacheConfig(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDriverGetVersion(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaRuntimeGetVersion(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaChooseDevice(nullptr, nullptr), cudaErrorInvalidValue);
}

TEST_F(DeviceBehaviour, PropertiesAndAttributesAgree)
{
  cudaDeviceProp p{};
  ASSERT_EQ(cudaGetDeviceProperties(&p, 0), cudaSuccess);
  EXPECT_NE(std::string{p.name}, "");
  EXPECT_GT(p.totalGlobalMem, 0U);
  EXPECT_EQ(p.warpSize, attribute(cudaDevAttrWarpSize));
  EXPECT_EQ(p.major, attribute(cudaDevAttrComputeCapabilityMajor));
  EXPECT_EQ(p.minor, attribute(cudaDevAttrComputeCapabilityMinor));
  EXPECT_EQ(p.multiProcessorCount, attribute(cudaDevAttrMultiProcessorCount));
  EXPECT_EQ(p.memoryPoolsSupported, attribute(cudaDevAttrMemoryPoolsSupported));
  EXPECT_EQ(p.unifiedAddressing, attribute(cudaDevAttrUnifiedAddressing));
  EXPECT_EQ(p.maxThreadsDim[2], attribute(cudaDevAttrMaxBlockDimZ));
  EXPECT_EQ(p.maxTexture2DLinear[2], attribute(cudaDevAttrMaxTexture2DLinearPitch));
  EXPECT_EQ(p.sharedMemPerBlock, static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlock)));
  EXPECT_EQ(p.l2CacheSize, attribute(cudaDevAttrL2CacheSize));
}

TEST_F(DeviceBehaviour, PropertiesTellDevicesApart)
{
  if (count_ < 2) { GTEST_SKIP() << "needs two devices, there is one"; }
  cudaDeviceProp first{};
  cudaDeviceProp second{};
  ASSERT_EQ(cudaGetDeviceProperties(&first, 0), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceProperties(&second, 1), cudaSuccess);
  EXPECT_NE(std::memcmp(&first.uuid, &second.uuid, sizeof first.uuid), 0);
  EXPECT_NE(std::pair(first.pciDomainID, std::pair(first.pciBusID, first.pciDeviceID)),
            std::pair(second.pciDomainID, std::pair(second.pciBusID, second.pciDeviceID)));
}

TEST_F(DeviceBehaviour, PropertiesAndAttributesNeedADeviceThatExists)
{
  cudaDeviceProp p{};
  int value = 0;
  EXPECT_EQ(cudaGetDeviceProperties(&p, count_), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDeviceProperties(&p, -1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, count_), cudaErrorInvalidDevice);
}

TEST_F(DeviceBehaviour, UnknownAttributesAreInvalid)
{
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(0), 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(250), 0), cudaErrorInvalidValue);
}

TEST_F(DeviceBehaviour, ADeviceIsFoundByItsAddress)
{
  for (int number = 0; number < count_; ++number) {
    char address[32];
    int found = -1;
    ASSERT_EQ(cudaDeviceGetPCIBusId(address, sizeof address, number), cudaSuccess);
    EXPECT_EQ(std::strlen(address), std::strlen("0000:00:00.0")) << address;
    ASSERT_EQ(cudaDeviceGetByPCIBusId(&found, address), cudaSuccess);
    EXPECT_EQ(found, number);
    found = -1;
    ASSERT_EQ(cudaDeviceGetByPCIBusId(&found, std::string(address, 10).c_str()), cudaSuccess) << "without the function";
    EXPECT_EQ(found, number);
    std::transform(std::begin(address), std::end(address), std::begin(address), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, address), cudaSuccess);
  }
}

TEST_F(DeviceBehaviour, AnAddressNeedsThirteenBytes)
{
  char address[16];
  EXPECT_EQ(cudaDeviceGetPCIBusId(address, 13, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetPCIBusId(address, 12, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetPCIBusId(address, 0, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetPCIBusId(nullptr, 13, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetPCIBusId(address, 13, count_), cudaErrorInvalidDevice);
}

TEST_F(DeviceBehaviour, AnAddressOfNoDeviceIsNotFound)
{
  int found = -1;
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, "0000:fe:1f.0"), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, "garbage"), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, ""), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, "00:06"), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetByPCIBusId(nullptr, "0000:00:00.0"), cudaErrorInvalidValue);
}

TEST_F(DeviceBehaviour, ChoosingADeviceFindsTheBestMatchEvenIfNoneIsGood)
{
  int chosen = -1;
  cudaDeviceProp wanted{};
  EXPECT_EQ(cudaChooseDevice(&chosen, &wanted), cudaSuccess);
  EXPECT_GE(chosen, 0);
  EXPECT_LT(chosen, count_);
  wanted.major = 99;
  EXPECT_EQ(cudaChooseDevice(&chosen, &wanted), cudaSuccess);
  EXPECT_EQ(cudaChooseDevice(&chosen, nullptr), cudaErrorInvalidValue);
}

TEST_F(DeviceBehaviour, VersionsAreThoseOfTheToolkitOrNewer)
{
  int driver  = 0;
  int runtime = 0;
  EXPECT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  EXPECT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_EQ(runtime, CUDART_VERSION);
  EXPECT_GE(driver / 1000, runtime / 1000);
}

TEST_F(DeviceBehaviour, PrioritiesGoDownwards)
{
  int least    = -1;
  int greatest = 1;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_EQ(least, 0);
  EXPECT_LE(greatest, least);
  EXPECT_EQ(cudaDeviceGetStreamPriorityRange(nullptr, nullptr), cudaSuccess);
}

TEST_F(DeviceBehaviour, FlagsAreKept)
{
  unsigned before = 0;
  unsigned flags  = 0;
  ASSERT_EQ(cudaGetDeviceFlags(&before), cudaSuccess);
  ASSERT_EQ(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaDeviceScheduleBlockingSync) | cudaDeviceMapHost);
  ASSERT_EQ(cudaInitDevice(0, cudaDeviceScheduleSpin, 0), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
  EXPECT_EQ(flags & cudaDeviceScheduleMask, static_cast<unsigned>(cudaDeviceScheduleBlockingSync));
  ASSERT_EQ(cudaInitDevice(0, cudaDeviceScheduleSpin, cudaInitDeviceFlagsAreValid), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
  EXPECT_EQ(flags & cudaDeviceScheduleMask, static_cast<unsigned>(cudaDeviceScheduleSpin));
  EXPECT_EQ(cudaSetDeviceFlags(before), cudaSuccess);
}

TEST_F(DeviceBehaviour, UnknownFlagsAreInvalid)
{
  EXPECT_EQ(cudaSetDeviceFlags(0xffff), cudaErrorInvalidValue);
  EXPECT_EQ(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceScheduleYield), cudaErrorInvalidValue);
  EXPECT_EQ(cudaInitDevice(0, 0xffff, cudaInitDeviceFlagsAreValid), cudaErrorInvalidValue);
}

TEST_F(DeviceBehaviour, LimitsAreKeptInStepsOfTheDevice)
{
  std::size_t before = 0;
  std::size_t after  = 0;
  ASSERT_EQ(cudaDeviceGetLimit(&before, cudaLimitStackSize), cudaSuccess);
  ASSERT_EQ(cudaDeviceSetLimit(cudaLimitStackSize, 2041), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetLimit(&after, cudaLimitStackSize), cudaSuccess);
  EXPECT_EQ(after, 2048U);
  EXPECT_EQ(cudaDeviceSetLimit(cudaLimitStackSize, before), cudaSuccess);
  for (auto const limit : {cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitMaxL2FetchGranularity}) {
    ASSERT_EQ(cudaDeviceGetLimit(&before, limit), cudaSuccess);
    ASSERT_EQ(cudaDeviceSetLimit(limit, before), cudaSuccess);
    ASSERT_EQ(cudaDeviceGetLimit(&after, limit), cudaSuccess);
    EXPECT_EQ(after, before);
  }
}

TEST_F(DeviceBehaviour, SomeLimitsCannotBeSet)
{
  std::size_t value = 0;
  EXPECT_EQ(cudaDeviceSetLimit(cudaLimitStackSize, std::size_t{1} << 40U), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceSetLimit(cudaLimitMaxL2FetchGranularity, 129), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetLimit(&value, cudaLimitDevRuntimeSyncDepth), cudaErrorUnsupportedLimit);
  EXPECT_EQ(cudaDeviceSetLimit(cudaLimitDevRuntimeSyncDepth, 2), cudaErrorUnsupportedLimit);
}

TEST_F(DeviceBehaviour, CachePreferencesAreKept)
{
  cudaFuncCache config{};
  ASSERT_EQ(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetCacheConfig(&config), cudaSuccess);
  EXPECT_EQ(config, cudaFuncCachePreferL1);
  EXPECT_EQ(cudaDeviceSetCacheConfig(cudaFuncCachePreferNone), cudaSuccess);
}

TEST_F(DeviceBehaviour, ProfilingCanBeSwitched)
{
  EXPECT_EQ(cudaProfilerStart(), cudaSuccess);
  EXPECT_EQ(cudaProfilerStop(), cudaSuccess);
}

TEST_F(DeviceBehaviour, SynchronizingWaitsForAllStreams)
{
  cudaStream_t s{};
  char* memory = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), std::size_t{64} << 20U), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 1, std::size_t{64} << 20U, s), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

TEST_F(DeviceBehaviour, SynchronizingInvalidatesCapturesOfEveryMode)
{
  cudaStream_t s{};
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  for (auto const mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    ASSERT_EQ(cudaStreamBeginCapture(s, mode), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

TEST_F(DeviceBehaviour, SettingALimitInvalidatesACaptureAndAskingDoesNot)
{
  cudaStream_t s{};
  cudaGraph_t graph{};
  std::size_t value = 0;
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetLimit(&value, cudaLimitStackSize), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetLimit(&value, cudaLimitStackSize), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaDeviceSetLimit(cudaLimitStackSize, value), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

}  // namespace
