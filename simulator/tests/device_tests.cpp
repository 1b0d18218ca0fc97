// SPDX-License-Identifier: Apache-2.0
//
// Devices: what the simulator adds to the behaviour that tests/cuda tests.

#include "support.hpp"

#include <cstring>
#include <stdexcept>
#include <thread>

namespace cudasim_tests {
namespace {

using cudasim::violation;

class DeviceTest : public Simulated {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.devices      = 3;
    o.memory_bytes = 12'000'000'000;
    return o;
  }
};

TEST_F(DeviceTest, ThereAreAsManyAsTheOptionsSay)
{
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3);
}

TEST_F(DeviceTest, EveryThreadHasItsOwnCurrentDevice)
{
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  std::thread{[] {
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 0);
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  }}.join();
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 2);
}

/// The devices that have a context, as bits.
[[nodiscard]] unsigned contexts()
{
  unsigned all = 0;
  for (int device = 0; device < 3; ++device) { all |= (cudasim::has_context(device) ? 1U : 0U) << device; }
  return all;
}

TEST_F(DeviceTest, GetsAContextWhenItIsMadeCurrentOrUsed)
{
  EXPECT_EQ(contexts(), 0U);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(contexts(), 2U);
  std::thread{[] {
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);  // uses device 0, which is current to a new thread
    EXPECT_EQ(contexts(), 3U);
  }}.join();
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(contexts(), 1U);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(contexts(), 3U);
  ASSERT_EQ(cudaInitDevice(2, 0, 0), cudaSuccess);
  EXPECT_EQ(contexts(), 7U);
}

TEST_F(DeviceTest, GetsAContextFromAPeerThatIsToUseIt)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(2, 0), cudaSuccess);
  EXPECT_EQ(contexts(), 6U);
}

TEST_F(DeviceTest, GetsNoContextFromQuestions)
{
  cudaDeviceProp p{};
  cudaMemPool_t pool{};
  int answer = 0;
  ASSERT_EQ(cudaGetDeviceCount(&answer), cudaSuccess);
  ASSERT_EQ(cudaGetDevice(&answer), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceProperties(&p, 1), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&answer, cudaDevAttrWarpSize, 1), cudaSuccess);
  ASSERT_EQ(cudaDeviceCanAccessPeer(&answer, 0, 1), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 1), cudaSuccess);
  EXPECT_EQ(contexts(), 0U);
  EXPECT_THROW(static_cast<void>(cudasim::has_context(3)), std::invalid_argument);
}

TEST_F(DeviceTest, UnknownDevicesAreMisuse)
{
  EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaInitDevice(-1, 0, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
}

TEST_F(DeviceTest, PropertiesAreThoseOfAnH200WithTheMachinesMemory)
{
  cudaDeviceProp p{};
  ASSERT_EQ(cudaGetDeviceProperties(&p, 1), cudaSuccess);
  EXPECT_STREQ(p.name, "NVIDIA H200 (simulated)");
  EXPECT_EQ(p.totalGlobalMem, 12'000'000'000U);
  EXPECT_EQ(p.major, 9);
  EXPECT_EQ(p.multiProcessorCount, 132);
  EXPECT_EQ(p.maxThreadsDim[2], 64);
  EXPECT_EQ(p.maxGridSize[1], 65535);
  EXPECT_EQ(p.pciBusID, 2);
  EXPECT_EQ(p.memoryPoolsSupported, 1);
}

TEST_F(DeviceTest, EveryDeviceHasItsOwnIdentity)
{
  cudaDeviceProp first{};
  cudaDeviceProp second{};
  ASSERT_EQ(cudaGetDeviceProperties(&first, 0), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceProperties(&second, 1), cudaSuccess);
  EXPECT_NE(std::memcmp(&first.uuid, &second.uuid, sizeof first.uuid), 0);
}

TEST_F(DeviceTest, ATestCanChangeAnAttributeOfOneDevice)
{
  cudasim::set_device_attribute(1, cudaDevAttrMemoryPoolsSupported, 0);
  int value = -1;
  cudaDeviceProp p{};
  ASSERT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 1), cudaSuccess);
  EXPECT_EQ(value, 0);
  ASSERT_EQ(cudaGetDeviceProperties(&p, 1), cudaSuccess);
  EXPECT_EQ(p.memoryPoolsSupported, 0);
  ASSERT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 0), cudaSuccess);
  EXPECT_EQ(value, 1);
  cudasim::reset(machine());
  ASSERT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 1), cudaSuccess);
  EXPECT_EQ(value, 1);
}

TEST_F(DeviceTest, AnAttributeThatDoesNotExistIsMisuse)
{
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(148), 0), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

TEST_F(DeviceTest, AChangedAddressIsTheAddress)
{
  cudasim::set_device_attribute(2, cudaDevAttrPciDomainId, 1);
  cudasim::set_device_attribute(2, cudaDevAttrPciBusId, 0xab);
  cudasim::set_device_attribute(2, cudaDevAttrPciDeviceId, 6);
  char address[16];
  int found = -1;
  ASSERT_EQ(cudaDeviceGetPCIBusId(address, sizeof address, 2), cudaSuccess);
  EXPECT_STREQ(address, "0001:ab:06.0");
  ASSERT_EQ(cudaDeviceGetByPCIBusId(&found, "0001:AB:06"), cudaSuccess);
  EXPECT_EQ(found, 2);
}

TEST_F(DeviceTest, AnAddressWithoutADomainIsInDomainZero)
{
  int found = -1;
  ASSERT_EQ(cudaDeviceGetByPCIBusId(&found, "03:00.0"), cudaSuccess);
  EXPECT_EQ(found, 2);
}

TEST_F(DeviceTest, AnAddressOfNoDeviceIsNotReportedAsMisuse)
{
  int found = -1;
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, "03:01.0"), cudaErrorInvalidDevice);
}

TEST_F(DeviceTest, ChoosingTakesTheDeviceThatHasMost)
{
  cudasim::set_device_attribute(0, cudaDevAttrComputeCapabilityMajor, 7);
  cudasim::set_device_attribute(1, cudaDevAttrComputeCapabilityMajor, 7);
  cudaDeviceProp wanted{};
  wanted.major = 8;
  int chosen   = -1;
  ASSERT_EQ(cudaChooseDevice(&chosen, &wanted), cudaSuccess);
  EXPECT_EQ(chosen, 2);
}

TEST_F(DeviceTest, VersionsAreTheToolkitsUnlessATestChangesThem)
{
  int driver  = 0;
  int runtime = 0;
  ASSERT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  EXPECT_EQ(driver, CUDART_VERSION);
  cudasim::set_versions(11020, 0);
  ASSERT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  ASSERT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_EQ(driver, 11020);
  EXPECT_EQ(runtime, CUDART_VERSION);
  cudasim::set_versions(0, 12090);
  ASSERT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  ASSERT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_EQ(driver, 11020);
  EXPECT_EQ(runtime, 12090);
  cudasim::reset(machine());
  ASSERT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  EXPECT_EQ(driver, CUDART_VERSION);
}

TEST_F(DeviceTest, SettingsBelongToADevice)
{
  std::size_t limit = 0;
  unsigned flags    = 0;
  ASSERT_EQ(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 10'000'000), cudaSuccess);
  ASSERT_EQ(cudaSetDeviceFlags(cudaDeviceScheduleYield), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize), cudaSuccess);
  EXPECT_EQ(limit, 10'027'008U);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize), cudaSuccess);
  EXPECT_EQ(limit, 8'388'608U);
  ASSERT_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaDeviceMapHost));
}

TEST_F(DeviceTest, LimitsHaveALeastAndAMost)
{
  std::size_t limit = 0;
  ASSERT_EQ(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 0), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize), cudaSuccess);
  EXPECT_EQ(limit, 524'288U);
  ASSERT_EQ(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, std::size_t{1} << 40U), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize), cudaSuccess);
  EXPECT_EQ(limit, std::size_t{1} << 31U);
  EXPECT_EQ(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, std::size_t{1} << 40U), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

TEST_F(DeviceTest, UnsupportedLimitsAreNotReportedAsMisuse)
{
  std::size_t limit = 0;
  EXPECT_EQ(cudaDeviceGetLimit(&limit, cudaLimitDevRuntimeSyncDepth), cudaErrorUnsupportedLimit);
  EXPECT_EQ(cudaDeviceSetLimit(static_cast<cudaLimit>(7), 1), cudaErrorUnsupportedLimit);
}

TEST_F(DeviceTest, CacheAndBankSettingsAreChecked)
{
  cudaFuncCache cache{};
  cudaSharedMemConfig banks{};
  ASSERT_EQ(cudaDeviceSetCacheConfig(cudaFuncCachePreferEqual), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetCacheConfig(&cache), cudaSuccess);
  EXPECT_EQ(cache, cudaFuncCachePreferEqual);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ASSERT_EQ(cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetSharedMemConfig(&banks), cudaSuccess);
  EXPECT_EQ(cudaDeviceSetSharedMemConfig(static_cast<cudaSharedMemConfig>(3)), cudaErrorInvalidValue);
#pragma GCC diagnostic pop
  EXPECT_EQ(banks, cudaSharedMemBankSizeFourByte);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

// --- Reset, and devices that are broken or missing

TEST_F(DeviceTest, ResettingADeviceFreesWhatItHas)
{
  void* memory = nullptr;
  void* other  = nullptr;
  cudaStream_t s{};
  cudaEvent_t e{};
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&other, 64), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&s), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&e), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 0, 64, s), cudaSuccess);
  ASSERT_EQ(cudaDeviceSetLimit(cudaLimitStackSize, 4096), cudaSuccess);

  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  std::size_t limit = 0;
  EXPECT_EQ(cudaDeviceGetLimit(&limit, cudaLimitStackSize), cudaSuccess);
  EXPECT_EQ(limit, 1024U);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemset(memory, 0, 64), cudaErrorInvalidValue);
  EXPECT_EQ(take_violations().size(), 3U);
  ASSERT_EQ(cudasim::ledger().size(), 1U);
  EXPECT_EQ(cudasim::ledger()[0].handle, other);
  EXPECT_EQ(cudaFree(other), cudaSuccess);
}

TEST_F(DeviceTest, ABrokenDeviceAnswersItsErrorUntilItIsReset)
{
  cudasim::fail_device(0, cudaErrorIllegalAddress);
  void* memory = nullptr;
  cudaStream_t s{};
  EXPECT_EQ(cudaMalloc(&memory, 64), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaStreamCreate(&s), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(DeviceTest, CallsThatNeedNoContextWorkOnABrokenDevice)
{
  cudasim::fail_device(0, cudaErrorIllegalAddress);
  int value = 0;
  cudaDeviceProp p{};
  EXPECT_EQ(cudaGetDevice(&value), cudaSuccess);
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaSuccess);
  EXPECT_EQ(cudaGetDeviceProperties(&p, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0), cudaSuccess);
  EXPECT_EQ(cudaDriverGetVersion(&value), cudaSuccess);
  auto mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
}

TEST_F(DeviceTest, OtherDevicesGoOnWorkingBesideABrokenOne)
{
  cudasim::fail_device(0, cudaErrorIllegalAddress);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  cudasim::fail_device(0, cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(DeviceTest, OnesThatThereAreNotAreRefusedByName)
{
  EXPECT_THROW(cudasim::fail_device(3, cudaErrorUnknown), std::invalid_argument);
  EXPECT_THROW(cudasim::fail_device(-1, cudaErrorUnknown), std::invalid_argument);
  EXPECT_THROW(cudasim::set_device_attribute(3, cudaDevAttrWarpSize, 1), std::invalid_argument);
  try {
    static_cast<void>(cudasim::usage(3));
    ADD_FAILURE();
  } catch (std::invalid_argument const& e) {
    EXPECT_STREQ(e.what(), "cudasim::usage: there is no device 3; there are 3");
  }
}

TEST_F(DeviceTest, TheirNumberAndMemoryHaveLimits)
{
  cudasim::options wanted;
  for (int const devices : {-1, 257}) {
    wanted.devices = devices;
    EXPECT_THROW(cudasim::reset(wanted), std::invalid_argument) << devices;
  }
  wanted              = cudasim::options{};
  wanted.memory_bytes = (std::size_t{64} << 40U) + 1;
  EXPECT_THROW(cudasim::reset(wanted), std::invalid_argument);
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3) << "the machine is the one that it was";
}

TEST_F(DeviceTest, AMachineWithoutDevicesSaysSo)
{
  cudasim::options none;
  none.devices = 0;
  cudasim::reset(none);
  int count    = -1;
  int value    = 0;
  void* memory = nullptr;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaGetDevice(&value), cudaErrorNoDevice);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorNoDevice);
  EXPECT_EQ(cudaDriverGetVersion(&value), cudaSuccess);
  EXPECT_THROW(cudasim::hold(nullptr), std::invalid_argument) << "there is no default stream either";
  cudasim::reset(machine());
}

}  // namespace
}  // namespace cudasim_tests
