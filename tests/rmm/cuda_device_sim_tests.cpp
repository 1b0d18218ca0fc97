// SPDX-License-Identifier: Apache-2.0
#include "../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/cuda/context_device.hpp>
#include <rmm/detail/cuda/driver.hpp>
#include <rmm/detail/cuda/stream_calls.hpp>
#include <rmm/detail/cuda/stream_device.hpp>
#include <rmm/detail/runtime_capabilities.hpp>
#include <rmm/error.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

void fail_next(std::string const& function, cudaError_t error) { cudasim::inject({function, 1, error, 1}); }

// --- failures

#if RMM_ASSERTIONS_ENABLED

struct CudaDeviceDeathTest : Simulated {};

TEST_F(CudaDeviceDeathTest, AFailedQueryIsAsserted)
{
  EXPECT_DEATH(
    {
      fail_next("cudaGetDevice", cudaErrorDevicesUnavailable);
      static_cast<void>(rmm::get_current_cuda_device());
    },
    "cudaErrorDevicesUnavailable(.|\n)*Assertion");
  EXPECT_DEATH(
    {
      fail_next("cudaGetDeviceCount", cudaErrorNoDevice);
      static_cast<void>(rmm::get_num_cuda_devices());
    },
    "cudaErrorNoDevice(.|\n)*Assertion");
}

#endif

struct CudaDeviceFaults : Simulated {};

#if !RMM_ASSERTIONS_ENABLED

TEST_F(CudaDeviceFaults, TheCurrentDeviceIsMinusOneIfTheRuntimeDoesNotSay)
{
  fail_next("cudaGetDevice", cudaErrorInitializationError);
  EXPECT_EQ(rmm::get_current_cuda_device().value(), -1);
  fail_next("cudaGetDevice", cudaErrorInitializationError);
  EXPECT_EQ(rmm::cuda_device_id{}.value(), -1);
  EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
  static_cast<void>(cudaGetLastError());
}

TEST_F(CudaDeviceFaults, TheNumberOfDevicesIsZeroIfTheRuntimeDoesNotSay)
{
  fail_next("cudaGetDeviceCount", cudaErrorNoDevice);
  EXPECT_EQ(rmm::get_num_cuda_devices(), 0);
  static_cast<void>(cudaGetLastError());
}

#endif

TEST_F(CudaDeviceFaults, TheCurrentDeviceIsMinusOneOnceTheRuntimeIsGone)
{
  cudasim::begin_unloading();
  EXPECT_EQ(rmm::get_current_cuda_device().value(), -1);
  {
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{0}};
  }
  cudasim::reset();
}

TEST_F(CudaDeviceFaults, MemoryQueriesThrowCudaError)
{
  fail_next("cudaMemGetInfo", cudaErrorInitializationError);
  EXPECT_THROW(static_cast<void>(rmm::available_device_memory()), rmm::cuda_error);
  fail_next("cudaMemGetInfo", cudaErrorInitializationError);
  EXPECT_THROW(static_cast<void>(rmm::percent_of_free_device_memory(50)), rmm::cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaDeviceFaults, UnknownAttributesAreZero)
{
  fail_next("cudaDeviceGetAttribute", cudaErrorInvalidValue);
  EXPECT_EQ(rmm::detail::device_attribute(cudaDevAttrComputeCapabilityMajor), 0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaDeviceFaults, OtherFailuresOfAttributesThrowOrAreZero)
{
  fail_next("cudaDeviceGetAttribute", cudaErrorInitializationError);
  EXPECT_THROW(static_cast<void>(rmm::detail::device_attribute(cudaDevAttrComputeCapabilityMajor)), rmm::cuda_error);
  fail_next("cudaDeviceGetAttribute", cudaErrorInitializationError);
  EXPECT_EQ(rmm::detail::device_attribute_or_zero(cudaDevAttrComputeCapabilityMajor), 0);
  fail_next("cudaGetDevice", cudaErrorInitializationError);
  EXPECT_EQ(rmm::detail::device_attribute_or_zero(cudaDevAttrComputeCapabilityMajor), 0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaDeviceFaults, UnknownVersionsAreZero)
{
  fail_next("cudaDriverGetVersion", cudaErrorInitializationError);
  EXPECT_EQ(rmm::detail::driver_version(), 0);
  fail_next("cudaRuntimeGetVersion", cudaErrorInitializationError);
  EXPECT_EQ(rmm::detail::runtime_version(), 0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// --- sizes

struct CudaDeviceMemory : Simulated {};

TEST_F(CudaDeviceMemory, PercentagesOfOddSizesAreExactBeforeTheyAreRoundedDown)
{
  ASSERT_TRUE(cudasim::occupy(0, cudasim::usage(0).free - 599));
  ASSERT_EQ(rmm::available_device_memory().first, 599U);
  EXPECT_EQ(rmm::percent_of_free_device_memory(100), 512U);
  EXPECT_EQ(rmm::percent_of_free_device_memory(50), 256U);  // 299.5 bytes
  EXPECT_EQ(rmm::percent_of_free_device_memory(42), 0U);    // 251.58 bytes
}

// --- cost

struct CudaDeviceCost : Simulated {};

TEST_F(CudaDeviceCost, TheCurrentDeviceNeedsNoCallIfThereIsOnlyOne)
{
  if (cudasim::current_options().devices != 1) { GTEST_SKIP() << "needs a machine of one device"; }
  static_cast<void>(rmm::detail::current_device());  // asks for the number of devices, once
  auto const before = cudasim::calls();
  EXPECT_EQ(rmm::detail::current_device(), 0);
  {
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{0}};
  }
  EXPECT_EQ(cudasim::calls(), before);
}

TEST_F(CudaDeviceCost, ANewNumberOfDevicesIsSeenWhenTheOldOneIsForgotten)
{
  cudasim::options machine;
  machine.devices = 1;
  start(machine);
  EXPECT_TRUE(rmm::detail::sees_one_device());
  machine.devices = 2;
  start(machine);
  EXPECT_FALSE(rmm::detail::sees_one_device());
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{0}};
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
  }
  EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
  start(cudasim::environment_options());
}

TEST_F(CudaDeviceCost, AGuardOfTheCurrentDeviceSetsNothing)
{
  auto const before = cudasim::calls("cudaSetDevice");
  {
    rmm::cuda_set_device_raii const same{rmm::cuda_device_id{0}};
    rmm::cuda_set_device_raii const none{rmm::cuda_device_id{-1}};
  }
  EXPECT_EQ(cudasim::calls("cudaSetDevice"), before);
}

TEST_F(CudaDeviceFaults, AGuardThatFoundNoPreviousDeviceRestoresNone)
{
  if (cudasim::current_options().devices < 2) { GTEST_SKIP() << "needs a machine of two devices"; }
  std::thread{[] {  // without a context, which would have the device
    fail_next("cudaGetDevice", cudaErrorInitializationError);
    {
      rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{1}};
      EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
    }
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
  }}
    .join();
}

TEST_F(CudaDeviceCost, AGuardOfAnotherDeviceSetsTwice)
{
  if (cudasim::current_options().devices < 2) { GTEST_SKIP() << "needs a machine of two devices"; }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  auto const sets = cudasim::calls("cudaSetDevice");
  auto const gets = cudasim::calls("cudaGetDevice");
  {
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{1}};
  }
  EXPECT_EQ(cudasim::calls("cudaSetDevice"), sets + 2);
  EXPECT_EQ(cudasim::calls("cudaGetDevice"), gets);
}

// --- what streams and events are asked

struct StreamCalls : Simulated {
  void SetUp() override
  {
    Simulated::SetUp();
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    Simulated::TearDown();
  }

  /// The driver's and the runtime's name of a function, and a call of it.
  struct call {
    char const* driver;
    char const* runtime;
    std::function<cudaError_t(cudaStream_t)> make;
  };
  [[nodiscard]] std::vector<call> calls()
  {
    return
    {
      {"cuStreamIsCapturing",
       "cudaStreamIsCapturing",
       [](cudaStream_t on) {
         auto status = cudaStreamCaptureStatusActive;
         auto answer = rmm::detail::ask_if_capturing(on, &status);
         return answer == cudaSuccess && status != cudaStreamCaptureStatusNone ? cudaErrorUnknown : answer;
       }},
#if CUDART_VERSION >= 12000
        {"cuStreamGetId",
         "cudaStreamGetId",
         [](cudaStream_t on) {
           unsigned long long id{};
           unsigned long long expected{};
           auto const answer = rmm::detail::ask_stream_id(on, &id);
           if (answer != cudaSuccess) { return answer; }
           EXPECT_EQ(cudaStreamGetId(on, &expected), cudaSuccess);
           return id == expected ? answer : cudaErrorUnknown;
         }},
#endif
        {"cuEventRecord", "cudaEventRecord", [this](cudaStream_t on) { return rmm::detail::record_event(event, on); }},
        {"cuStreamWaitEvent",
         "cudaStreamWaitEvent",
         [this](cudaStream_t on) { return rmm::detail::wait_for_event(on, event); }},
        {"cuEventQuery", "cudaEventQuery", [this](cudaStream_t) { return rmm::detail::ask_event(event); }},
      {
        "cuThreadExchangeStreamCaptureMode", "cudaThreadExchangeStreamCaptureMode", [](cudaStream_t) {
          auto mode = cudaStreamCaptureModeGlobal;
          return rmm::detail::exchange_capture_mode(&mode);
        }
      }
    };
  }

  cudaStream_t stream{};
  cudaEvent_t event{};
};

TEST_F(StreamCalls, AskTheDriver)
{
  for (auto const& each : calls()) {
    auto const before = cudasim::calls(each.driver);
    EXPECT_EQ(each.make(stream), cudaSuccess) << each.driver;
    EXPECT_EQ(each.make(nullptr), cudaSuccess) << each.driver;
    EXPECT_EQ(cudasim::calls(each.driver), before + 2) << each.driver;
  }
}

TEST_F(StreamCalls, FailAsTheDriverDoesAndLeaveNoLastError)
{
  for (auto const& each : calls()) {
    cudasim::inject({each.runtime, 1, cudaErrorIllegalAddress, 1});
    EXPECT_EQ(each.make(stream), cudaErrorIllegalAddress) << each.driver;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << each.driver;
  }
}

TEST_F(StreamCalls, AskTheRuntimeWhereTheDriverHasNoContextYet)
{
  for (auto const& each : calls()) {
    for (cudaStream_t const on : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
      std::thread{[&] {
        EXPECT_EQ(each.make(on), cudaSuccess) << each.driver;
        EXPECT_EQ(cudaGetLastError(), cudaSuccess) << each.driver;
      }}.join();
    }
    cudasim::inject({each.driver, 1, cudaErrorDeviceUninitialized, 1});
    EXPECT_EQ(each.make(stream), cudaSuccess) << each.driver;
    cudasim::inject({each.driver, 1, cudaErrorDeviceUninitialized, 1});
    cudasim::inject({each.runtime, 2, cudaErrorIllegalAddress, 1});
    EXPECT_EQ(each.make(stream), cudaErrorIllegalAddress) << each.driver;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << each.driver;
  }
}

TEST_F(StreamCalls, AreLookedForUntilTheRuntimeKnows)
{
  using function = int (*)(cudaEvent_t);
  std::atomic<function> known{nullptr};
  function const otherwise = &rmm::detail::no_stream_call<cudaEvent_t>;
  auto const* const search = CUDART_VERSION >= 12050 ? "cudaGetDriverEntryPointByVersion" : "cudaGetDriverEntryPoint";
  cudasim::inject({search, 1, cudaErrorInitializationError, 1});
  EXPECT_EQ(rmm::detail::find_stream_call(known, "cuEventQuery", otherwise), otherwise);
  EXPECT_EQ(known.load(), nullptr);
  EXPECT_NE(rmm::detail::find_stream_call(known, "cuEventQuery", otherwise), otherwise);
  EXPECT_NE(known.load(), nullptr);
  EXPECT_NE(known.load(), otherwise);

  known = nullptr;
  EXPECT_EQ(rmm::detail::find_stream_call(known, "cuNoSuchFunction", otherwise), otherwise);
  EXPECT_EQ(known.load(), otherwise);
  EXPECT_EQ(rmm::detail::ask_driver(known, "cuNoSuchFunction", event), cudaErrorDeviceUninitialized);
}

// --- the device of the current context

struct CurrentContext : Simulated {
  void SetUp() override
  {
    cudasim::options machine;
    machine.devices = 3;
    start(machine);
  }
  void TearDown() override
  {
    Simulated::TearDown();
    cudasim::reset();
  }

  /// Returns the current context's device; -1 if the driver does not say.
  [[nodiscard]] static int device()
  {
    int device{-1};
    bool const known = rmm::detail::find_device_of_current_context(device);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    return known ? device : -1;
  }
};

TEST_F(CurrentContext, HasTheDeviceThatWasMadeCurrent)
{
  for (int number : {2, 0, 1}) {
    ASSERT_EQ(cudaSetDevice(number), cudaSuccess);
    EXPECT_EQ(device(), number);
  }
}

TEST_F(CurrentContext, IsUnknownInAThreadThatHasNotUsedCuda)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  std::thread{[] {
    EXPECT_EQ(device(), -1);
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
    EXPECT_EQ(device(), 0);
  }}.join();
  EXPECT_EQ(device(), 1);
}

TEST_F(CurrentContext, MayBeOneThatWasPushed)
{
  auto const& driver = rmm::detail::driver();
  CUcontext context{};
  ASSERT_EQ(driver.retain_primary_context(&context, 2), CUDA_SUCCESS);
  ASSERT_EQ(driver.push_context(context), CUDA_SUCCESS);
  EXPECT_EQ(device(), 2);
  ASSERT_EQ(driver.pop_context(&context), CUDA_SUCCESS);
  EXPECT_EQ(device(), -1);
}

TEST_F(CurrentContext, CostsOneCallOfTheDriver)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(device(), 1);  // the first call looks up the function
  auto const calls  = cudasim::calls();
  auto const before = cudasim::calls("cuCtxGetDevice");
  EXPECT_EQ(device(), 1);
  EXPECT_EQ(cudasim::calls("cuCtxGetDevice"), before + 1);
  EXPECT_EQ(cudasim::calls(), calls + 1);
}

/// Tools that list failing CUDA calls then have nothing to report.
TEST_F(CurrentContext, IsNotAskedForItsDeviceWithoutAContext)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(device(), 1);
  std::thread{[] {
    auto const before = cudasim::calls("cuCtxGetDevice");
    EXPECT_EQ(device(), -1);
    EXPECT_EQ(device(), -1);
    EXPECT_EQ(cudasim::calls("cuCtxGetDevice"), before);
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);  // makes a context
    EXPECT_EQ(device(), 0);
    EXPECT_EQ(cudasim::calls("cuCtxGetDevice"), before + 1);
  }}.join();
}

TEST_F(CurrentContext, IsUnknownWhereTheDriverFails)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(device(), 1);
  fail_next("cuCtxGetDevice", cudaErrorUnknown);
  EXPECT_EQ(device(), -1);
  EXPECT_EQ(device(), 1);
}

TEST_F(CurrentContext, IsUnknownWhereTheRuntimeFindsNoDriver)
{
  auto const* const search = CUDART_VERSION >= 12050 ? "cudaGetDriverEntryPointByVersion" : "cudaGetDriverEntryPoint";
  for (auto const* const call : {search, "cuDeviceGet", "cudaGetDeviceCount"}) {
    fail_next(call, cudaErrorInitializationError);
    EXPECT_EQ(rmm::detail::find_device_of_context(), nullptr) << call;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << call;
  }
  cudasim::inject({search, 2, cudaErrorInitializationError, 1});
  EXPECT_EQ(rmm::detail::find_device_of_context(), nullptr);
  EXPECT_NE(rmm::detail::find_device_of_context(), nullptr);
}

// --- capabilities of machines that are unlike this one

struct RuntimeCapabilitiesOf : Simulated {
  void TearDown() override
  {
    cudasim::reset();  // the attributes and versions of the machine
    Simulated::TearDown();
  }
};

TEST_F(RuntimeCapabilitiesOf, ADeviceWithoutPools)
{
  cudasim::set_device_attribute(0, cudaDevAttrMemoryPoolsSupported, 0);
  EXPECT_FALSE(rmm::detail::runtime_async_alloc::is_supported());
  cudasim::set_device_attribute(0, cudaDevAttrMemoryPoolsSupported, 1);
  EXPECT_TRUE(rmm::detail::runtime_async_alloc::is_supported());
}

TEST_F(RuntimeCapabilitiesOf, ADeviceThatExportsDescriptorsOnly)
{
  cudasim::set_device_attribute(0, cudaDevAttrMemoryPoolSupportedHandleTypes, cudaMemHandleTypePosixFileDescriptor);
  EXPECT_TRUE(rmm::detail::export_handle_type::is_supported(cudaMemHandleTypePosixFileDescriptor));
  EXPECT_FALSE(rmm::detail::export_handle_type::is_supported(cudaMemHandleTypeWin32));
  auto const both =
    static_cast<cudaMemAllocationHandleType>(cudaMemHandleTypePosixFileDescriptor | cudaMemHandleTypeWin32);
  EXPECT_FALSE(rmm::detail::export_handle_type::is_supported(both));
}

TEST_F(RuntimeCapabilitiesOf, ARuntimeThatDoesNotKnowHandleTypes)
{
  fail_next("cudaDeviceGetAttribute", cudaErrorInvalidValue);
  EXPECT_FALSE(rmm::detail::export_handle_type::is_supported(cudaMemHandleTypePosixFileDescriptor));
}

TEST_F(RuntimeCapabilitiesOf, NotExportingNeedsNoQuery)
{
  auto const before = cudasim::calls();
  EXPECT_TRUE(rmm::detail::export_handle_type::is_supported(cudaMemHandleTypeNone));
  EXPECT_EQ(cudasim::calls(), before);
}

TEST_F(RuntimeCapabilitiesOf, AFailedQueryOfHandleTypesThrows)
{
  fail_next("cudaDeviceGetAttribute", cudaErrorInitializationError);
  EXPECT_THROW(static_cast<void>(rmm::detail::export_handle_type::is_supported(cudaMemHandleTypePosixFileDescriptor)),
               rmm::cuda_error);
}

TEST_F(RuntimeCapabilitiesOf, ADriverBefore128HasNoHardwareDecompression)
{
  cudasim::set_versions(12070, 0);
  EXPECT_FALSE(rmm::detail::hwdecompress::is_supported());
  cudasim::set_versions(12080, 0);
  EXPECT_EQ(rmm::detail::hwdecompress::is_supported(), CUDART_VERSION >= 12080);
}

TEST_F(RuntimeCapabilitiesOf, ARuntimeBefore112HasNoPools)
{
  cudasim::set_versions(0, 11010);
  EXPECT_FALSE(rmm::detail::runtime_async_alloc::is_supported());
}

TEST_F(RuntimeCapabilitiesOf, ADeviceWithConcurrentManagedAccess)
{
  cudasim::set_device_attribute(0, cudaDevAttrConcurrentManagedAccess, 1);
  EXPECT_TRUE(rmm::detail::concurrent_managed_access::is_supported());
  EXPECT_EQ(rmm::detail::runtime_async_managed_alloc::is_supported(), CUDART_VERSION >= 13000);
  cudasim::set_versions(12090, 0);
  EXPECT_FALSE(rmm::detail::runtime_async_managed_alloc::is_supported());
}

TEST_F(RuntimeCapabilitiesOf, ADeviceWithoutConcurrentManagedAccess)
{
  cudasim::set_device_attribute(0, cudaDevAttrConcurrentManagedAccess, 0);
  EXPECT_FALSE(rmm::detail::concurrent_managed_access::is_supported());
  EXPECT_FALSE(rmm::detail::runtime_async_managed_alloc::is_supported());
}

TEST_F(RuntimeCapabilitiesOf, AnIntegratedDevice)
{
  cudasim::set_device_attribute(0, cudaDevAttrIntegrated, 1);
  EXPECT_TRUE(rmm::detail::device_integrated_memory::is_supported());
  cudasim::set_device_attribute(0, cudaDevAttrIntegrated, 0);
  EXPECT_FALSE(rmm::detail::device_integrated_memory::is_supported());
}

// --- the device of a stream

struct DeviceOfStream : CurrentContext {
  void SetUp() override
  {
    CurrentContext::SetUp();
    ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(rmm::detail::device_of_stream(stream), 2);  // the first call looks up the functions
  }
  void TearDown() override
  {
    if (stream != nullptr) { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }
    CurrentContext::TearDown();
  }

  cudaStream_t stream{};
};

#if CUDART_VERSION >= 12080

TEST_F(DeviceOfStream, NeedsTwoCallsOfTheDriver)
{
  auto const before = cudasim::calls();
  EXPECT_EQ(rmm::detail::device_of_stream(stream), 2);
  EXPECT_EQ(cudasim::calls(), before + 2);
  EXPECT_EQ(rmm::detail::device_of_running_stream(stream), 2);
  EXPECT_EQ(cudasim::calls(), before + 3);
  EXPECT_EQ(rmm::detail::device_of_stream(cudaStreamLegacy), 0);
  EXPECT_EQ(cudasim::calls(), before + 4);
}

TEST_F(DeviceOfStream, IsFoundByItsContextWhereTheDriverAsksForOne)
{
  cudasim::inject({"cuStreamGetDevice", 1, cudaErrorDeviceUninitialized, 1});
  EXPECT_EQ(rmm::detail::device_of_stream(stream), 2);
  EXPECT_EQ(device(), 0);
}

TEST_F(DeviceOfStream, AsksNoStreamThatCaptures)
{
  cudaGraph_t graph{};
  auto const before = cudasim::calls("cuStreamGetDevice");
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(rmm::detail::device_of_stream(stream), -1);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudasim::calls("cuStreamGetDevice"), before);
}

#endif

TEST_F(DeviceOfStream, NeedsNoCallWithOneDevice)
{
  rmm::detail::known_device_count = 1;
  auto const before               = cudasim::calls();
  EXPECT_EQ(rmm::detail::device_of_stream(stream), 0);
  EXPECT_EQ(rmm::detail::device_of_stream(nullptr), 0);
  EXPECT_EQ(cudasim::calls(), before);
  rmm::detail::known_device_count = 0;
}

TEST_F(DeviceOfStream, IsMinusOneWhereTheDriverDoesNotSay)
{
  auto const ended = stream;
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  stream = nullptr;
  EXPECT_EQ(rmm::detail::device_of_stream(ended), -1);
  EXPECT_EQ(rmm::detail::device_of_running_stream(ended), -1);
  int device{-1};
  EXPECT_EQ(rmm::detail::ask_context_of_stream(ended, &device), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  cudasim::clear_violations();
}

TEST_F(DeviceOfStream, LeavesTheContextAsItWasWhereACallFails)
{
  for (auto const* const name : {"cuStreamGetCtx", "cuCtxPushCurrent", "cuCtxGetDevice"}) {
    int found{-1};
    cudasim::inject({name, 1, cudaErrorIllegalAddress, 1});
    EXPECT_NE(rmm::detail::ask_context_of_stream(stream, &found), cudaSuccess) << name;
    EXPECT_EQ(device(), 0) << name;
  }
}

TEST_F(DeviceOfStream, MakesNoContextCurrent)
{
  std::thread{[this] {
    EXPECT_EQ(rmm::detail::device_of_stream(stream), 2);
    EXPECT_EQ(device(), -1);
    EXPECT_EQ(rmm::detail::device_of_stream(cudaStreamPerThread), 0);
    EXPECT_EQ(device(), -1);
  }}.join();
}

TEST_F(DeviceOfStream, OfDriversBefore12_8IsFoundByContexts)
{
  cudasim::set_versions(12000, 0);
  EXPECT_EQ(rmm::detail::find_device_of_stream(), &rmm::detail::ask_context_of_stream);
}

}  // namespace
