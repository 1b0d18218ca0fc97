// SPDX-License-Identifier: Apache-2.0
#include <rmm/c/rmm.h>
#include <rmm/capture_scope.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

/// The C interface in a C++ program that also uses the library's headers, on the simulator.

namespace {

struct CInterfaceTest : ::testing::Test {
  CInterfaceTest() { cudasim::reset(); }

  /// Expects that nothing is left.
  ~CInterfaceTest() override
  {
    EXPECT_EQ(cudasim::leak_report(), "");
    EXPECT_TRUE(cudasim::violations().empty());
  }

  static rmm_c_resource* make(char const* configuration, int device = RMM_C_CURRENT_DEVICE)
  {
    rmm_c_resource* resource{};
    EXPECT_EQ(rmm_c_resource_create(configuration, device, &resource), RMM_C_OK) << rmm_c_last_failure_text();
    return resource;
  }

  static void* allocate(rmm_c_resource* resource, std::size_t bytes, void* stream = nullptr)
  {
    void* block{};
    EXPECT_EQ(rmm_c_resource_allocate(resource, bytes, 0, stream, &block), RMM_C_OK) << rmm_c_last_failure_text();
    return block;
  }
};

TEST_F(CInterfaceTest, EndsAResourceWithItsLastBlock)
{
  auto* const pool  = make("pool,initial=1MiB");
  auto* const block = allocate(pool, 1000);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
  EXPECT_EQ(cudasim::usage(0).allocated, std::size_t{2} << 20U);  // as the device rounds it
  rmm_c_resource_deallocate(pool, block, 1000, 0, nullptr);
  EXPECT_EQ(cudasim::usage(0).allocated, 0U);
}

TEST_F(CInterfaceTest, EndsAResourceAtOnceWithoutBlocks)
{
  auto* const pool = make("pool,initial=1MiB");
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
  EXPECT_EQ(cudasim::usage(0).allocated, 0U);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_MISUSE);
}

TEST_F(CInterfaceTest, EndsAResourceOnceHoweverThreadsRace)
{
  for (int round = 0; round < 200; ++round) {
    auto* const pool = make("pool,initial=1MiB");
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) { blocks.push_back(allocate(pool, 1000)); }
    std::atomic<int> waiting{5};
    auto const meet = [&] {
      --waiting;
      while (waiting != 0) { std::this_thread::yield(); }
    };
    std::vector<std::thread> threads;
    for (auto* const block : blocks) {
      threads.emplace_back([&, block] {
        meet();
        rmm_c_resource_deallocate(pool, block, 1000, 0, nullptr);
      });
    }
    meet();
    EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
    for (auto& thread : threads) { thread.join(); }
    ASSERT_EQ(cudasim::usage(0).allocated, 0U);
  }
}

TEST_F(CInterfaceTest, DistinguishesMissingMemoryFromOtherReasons)
{
  rmm_c_resource* resource{};
  cudasim::inject({"cudaMalloc", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_EQ(rmm_c_resource_create("pool,initial=1MiB", 0, &resource), RMM_C_OUT_OF_MEMORY);
  auto* const cuda = make("cuda");
  void* block{&block};
  cudasim::inject({"cudaMalloc", 1, cudaErrorInvalidValue, 1});
  EXPECT_EQ(rmm_c_resource_allocate(cuda, 1, 0, nullptr, &block), RMM_C_ALLOCATION_FAILED);
  EXPECT_EQ(block, nullptr);
  EXPECT_NE(std::string{rmm_c_last_failure_text()}.find("cudaErrorInvalidValue"), std::string::npos);
  EXPECT_EQ(rmm_c_resource_destroy(cuda), RMM_C_OK);
}

TEST_F(CInterfaceTest, HasOnlyTheTextOfTheLastFailure)
{
  rmm_c_resource* resource{};
  EXPECT_EQ(rmm_c_resource_create(std::string(300, 'x').c_str(), 0, &resource), RMM_C_BAD_CONFIGURATION);
  EXPECT_GT(std::string{rmm_c_last_failure_text()}.size(), 300U);
  EXPECT_EQ(rmm_c_resource_trim(nullptr, 0, nullptr), RMM_C_INVALID_ARGUMENT);
  EXPECT_STREQ(rmm_c_last_failure_text(), "the resource is a null pointer");
}

TEST_F(CInterfaceTest, NamesAnErrorOfCuda)
{
  rmm_c_resource* resource{};
  cudasim::inject({"cudaGetDevice", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(rmm_c_resource_create("pool", RMM_C_CURRENT_DEVICE, &resource), RMM_C_CUDA_ERROR);
  EXPECT_NE(std::string{rmm_c_last_failure_text()}.find("cudaErrorUnknown"), std::string::npos);
  cudasim::inject({"cudaGetDeviceCount", 1, cudaErrorNoDevice, 1});
  EXPECT_EQ(rmm_c_resource_create("pool", 0, &resource), RMM_C_CUDA_ERROR);
}

TEST_F(CInterfaceTest, ServesNoLibrariesWithoutTheLibraryThatRoutes)
{
  auto* const resource = make("pool,initial=1MiB");
  EXPECT_EQ(rmm_c_serve_libraries(0, resource), RMM_C_NOT_SUPPORTED);
  EXPECT_NE(std::string{rmm_c_last_failure_text()}.find("RMM_AUDIT=route:current"), std::string::npos);
  EXPECT_EQ(rmm_c_serve_libraries(RMM_C_CURRENT_DEVICE, nullptr), RMM_C_NOT_SUPPORTED);
  EXPECT_EQ(rmm_c_serve_libraries(-2, nullptr), RMM_C_INVALID_ARGUMENT);
  EXPECT_EQ(rmm_c_serve_libraries(1, resource), RMM_C_INVALID_ARGUMENT) << "of device 0";
  EXPECT_EQ(rmm_c_resource_destroy(resource), RMM_C_OK);
}

TEST_F(CInterfaceTest, ChecksWhatServesLibrariesAsOtherFunctionsDo)
{
  EXPECT_EQ(rmm_c_serve_libraries(500, nullptr), RMM_C_INVALID_ARGUMENT);
  EXPECT_NE(std::string{rmm_c_last_failure_text()}.find("there is no device 500"), std::string::npos);
  auto* const resource = make("pool,initial=1MiB");
  auto* const block    = allocate(resource, 1000);
  EXPECT_EQ(rmm_c_resource_destroy(resource), RMM_C_OK);
  EXPECT_EQ(rmm_c_serve_libraries(0, resource), RMM_C_MISUSE) << "has a block";
  rmm_c_resource_deallocate(resource, block, 1000, 0, nullptr);
  EXPECT_EQ(rmm_c_serve_libraries(0, resource), RMM_C_MISUSE) << "is gone";
  cudasim::inject({"cudaGetDevice", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(rmm_c_serve_libraries(RMM_C_CURRENT_DEVICE, nullptr), RMM_C_CUDA_ERROR);
}

TEST_F(CInterfaceTest, TrimsWhatAPoolHasItsMemoryFrom)
{
  auto const before    = cudasim::usage(0).physical;
  auto* const resource = make("pool,initial=64MiB,upstream=elastic");
  EXPECT_GT(cudasim::usage(0).physical, before);
  EXPECT_EQ(rmm_c_resource_trim(resource, 0, nullptr), RMM_C_OK);
  EXPECT_EQ(cudasim::usage(0).physical, before);
  EXPECT_EQ(rmm_c_resource_destroy(resource), RMM_C_OK);
}

TEST_F(CInterfaceTest, TurnsExceptionsOfWhatVisitsTagsIntoAStatus)
{
  auto* const pool  = make("pool,initial=1MiB,tags");
  auto* const block = allocate(pool, 1000);
  auto const throws = [](void* argument, char const*, std::uint64_t, std::uint64_t) {
    ++*static_cast<int*>(argument);
    throw std::runtime_error{"of the visitor"};
  };
  int calls{0};
  EXPECT_EQ(rmm_c_resource_visit_tags(pool, throws, &calls), RMM_C_FAILED);
  EXPECT_EQ(calls, 1);
  EXPECT_STREQ(rmm_c_last_failure_text(), "of the visitor");
  rmm_c_resource_deallocate(pool, block, 1000, 0, nullptr);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
}

TEST_F(CInterfaceTest, PassesTheStreamOn)
{
  cudaStream_t stream{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  auto* const pool  = make("cuda_async");
  auto* const block = allocate(pool, 1000, stream);
  cudasim::check_ordering(true);
  EXPECT_EQ(cudasim::launch(stream, {}, {{block, 1000}}), cudaSuccess);
  rmm_c_resource_deallocate(pool, block, 1000, 0, stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CInterfaceTest, RefusesACaptureThatIsNotAnnouncedAndServesAnnouncedOnes)
{
  cudaStream_t stream{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  auto* const pool = make("pool,initial=64MiB");
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  void* block{};
  EXPECT_EQ(rmm_c_resource_allocate(pool, 1 << 20, 0, stream, &block), RMM_C_MISUSE);

  rmm_c_graph_memory* memory{};
  rmm_c_capture* capture{};
  ASSERT_EQ(rmm_c_graph_memory_create(&memory), RMM_C_OK);
  ASSERT_EQ(rmm_c_capture_begin(memory, stream, &capture), RMM_C_OK);
  EXPECT_EQ(rmm_c_resource_allocate(pool, 1 << 20, 0, stream, &block), RMM_C_OK) << rmm_c_last_failure_text();
  rmm_c_resource_deallocate(pool, block, 1 << 20, 0, stream);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  rmm_c_capture_end(capture);

  rmm_c_figures figures{};
  figures.size = sizeof figures;
  EXPECT_EQ(rmm_c_resource_figures(pool, &figures), RMM_C_OK);
  EXPECT_GE(figures.graph_bytes, std::size_t{1} << 20U);
  rmm_c_graph_memory_destroy_on(memory, stream);
  EXPECT_EQ(rmm_c_resource_figures(pool, &figures), RMM_C_OK);
  EXPECT_EQ(figures.graph_bytes, 0U);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CInterfaceTest, PoolsUseTheMemoryOfAGraphAgainThatWasGivenUp)
{
  cudaStream_t stream{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  auto* const pool = make("pool,initial=4MiB,max=4MiB");
  rmm_c_graph_memory* memory{};
  rmm_c_capture* capture{};
  ASSERT_EQ(rmm_c_graph_memory_create(&memory), RMM_C_OK);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(rmm_c_capture_begin(memory, stream, &capture), RMM_C_OK);
  rmm_c_resource_deallocate(pool, allocate(pool, 3 << 20, stream), 3 << 20, 0, stream);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  rmm_c_capture_end(capture);

  void* block{};
  EXPECT_EQ(rmm_c_resource_allocate(pool, 3 << 20, 0, stream, &block), RMM_C_OUT_OF_MEMORY);
  rmm_c_graph_memory_destroy(memory);
  EXPECT_EQ(rmm_c_resource_allocate(pool, 3 << 20, 0, stream, &block), RMM_C_OK) << rmm_c_last_failure_text();
  rmm_c_resource_deallocate(pool, block, 3 << 20, 0, stream);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// --- devices

struct CInterfaceDevicesTest : CInterfaceTest {
  void SetUp() override
  {
    int devices{};
    ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    if (devices < 2) { GTEST_SKIP() << "this machine has one device; C_INTERFACE_SIM_TEST_4_DEVICES has more"; }
  }
};

TEST_F(CInterfaceDevicesTest, ServesAResourceWithAnyDeviceCurrent)
{
  for (auto const* const configuration : {"cuda", "pool", "pool,initial=1MiB", "cuda_async", "elastic", "managed"}) {
    auto* const resource = make(configuration, 1);
    EXPECT_EQ(rmm_c_resource_device(resource), 1);
    for (int current = 0; current < 3; ++current) {
      ASSERT_EQ(cudaSetDevice(current), cudaSuccess);
      auto* const block = allocate(resource, 1000);
      cudaPointerAttributes attributes{};
      EXPECT_EQ(cudaPointerGetAttributes(&attributes, block), cudaSuccess);
      EXPECT_EQ(attributes.device, 1) << configuration;
      rmm_c_resource_deallocate(resource, block, 1000, 0, nullptr);
      EXPECT_EQ(rmm::get_current_cuda_device().value(), current) << configuration;
    }
    EXPECT_EQ(rmm_c_resource_destroy(resource), RMM_C_OK);
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 2);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CInterfaceDevicesTest, VisitsTagsWithTheDeviceOfTheCaller)
{
  auto* const pool  = make("pool,initial=1MiB,tags", 1);
  auto* const block = allocate(pool, 1024);
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  auto const visit = [](void* argument, char const*, std::uint64_t bytes, std::uint64_t) {
    *static_cast<std::uint64_t*>(argument) = bytes;
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 2);
  };
  std::uint64_t live_bytes{0};
  EXPECT_EQ(rmm_c_resource_visit_tags(pool, visit, &live_bytes), RMM_C_OK);
  EXPECT_EQ(live_bytes, 1024U);
  EXPECT_EQ(rmm::get_current_cuda_device().value(), 2);
  rmm_c_resource_deallocate(pool, block, 1024, 0, nullptr);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CInterfaceDevicesTest, MakesNoContextOnTheCurrentDevice)
{
  std::thread{[] {  // a thread that has made no call yet
    auto* const resource = make("cuda", 2);
    rmm_c_resource_deallocate(resource, allocate(resource, 1000), 1000, 0, nullptr);
    EXPECT_EQ(rmm_c_resource_destroy(resource), RMM_C_OK);
  }}
    .join();
  EXPECT_TRUE(cudasim::has_context(2));
  EXPECT_FALSE(cudasim::has_context(0));
}

// --- beside other copies of the library

/// Some functions of a copy that was opened with RTLD_LOCAL.
class opened_copy {
 public:
  explicit opened_copy(char const* path) : handle_{dlopen(path, RTLD_NOW | RTLD_LOCAL)}
  {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }

  template <class Function>
  [[nodiscard]] Function* function(char const* name, Function*) const
  {
    auto* const found = reinterpret_cast<Function*>(dlsym(handle_, name));
    EXPECT_NE(found, nullptr) << name;
    return found;
  }

 private:
  void* handle_;
};

#define FUNCTION_OF(copy, name) (copy).function(#name, &name)

TEST_F(CInterfaceTest, SharesNothingWithTheHeadersOfTheProgram)
{
  rmm::mr::cuda_memory_resource upstream;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mine{&upstream, 1U << 20U};
  auto* const before = rmm::mr::set_current_device_resource(&mine);

  auto* const pool  = make("pool,initial=1MiB");
  auto* const block = allocate(pool, 1000);
  EXPECT_EQ(rmm::mr::get_current_device_resource(), &mine);
  EXPECT_EQ(mine.figures().live_bytes, 0U);
  rmm_c_resource_deallocate(pool, block, 1000, 0, nullptr);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
  rmm::mr::set_current_device_resource(before);
}

TEST_F(CInterfaceTest, SeesNoCaptureThatTheProgramAnnouncesToItsHeaders)
{
  cudaStream_t stream{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  auto* const pool = make("pool,initial=64MiB");
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  {
    rmm::capture_scope const announced{rmm::cuda_stream_view{stream}};
    void* block{};
    EXPECT_EQ(rmm_c_resource_allocate(pool, 1 << 20, 0, stream, &block), RMM_C_MISUSE);
  }
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CInterfaceTest, SharesNothingBetweenCopies)
{
  opened_copy const first{RMM_C_LIBRARY};  // the copy that is linked
  opened_copy const second{RMM_C_COPY};
  ASSERT_EQ(FUNCTION_OF(first, rmm_c_version), &rmm_c_version);
  ASSERT_NE(FUNCTION_OF(second, rmm_c_version), &rmm_c_version);
  EXPECT_EQ(FUNCTION_OF(second, rmm_c_version)(), RMM_C_VERSION);

  // Failures, announced captures and blocks of one copy mean nothing to the other.
  EXPECT_EQ(FUNCTION_OF(second, rmm_c_resource_trim)(nullptr, 0, nullptr), RMM_C_INVALID_ARGUMENT);
  rmm_c_resource* resource{};
  EXPECT_EQ(FUNCTION_OF(second, rmm_c_resource_create)("nothing", 0, &resource), RMM_C_BAD_CONFIGURATION);
  EXPECT_EQ(rmm_c_resource_trim(nullptr, 0, nullptr), RMM_C_INVALID_ARGUMENT);
  EXPECT_EQ(FUNCTION_OF(second, rmm_c_last_failure)(), RMM_C_BAD_CONFIGURATION);

  EXPECT_EQ(FUNCTION_OF(second, rmm_c_resource_create)("pool,initial=1MiB", 0, &resource), RMM_C_OK);
  auto* const pool = make("pool,initial=1MiB");
  void* block{};
  EXPECT_EQ(FUNCTION_OF(second, rmm_c_resource_allocate)(resource, 1000, 0, nullptr, &block), RMM_C_OK);
  auto* const mine = allocate(pool, 1000);
  EXPECT_NE(block, mine);
  rmm_c_resource_deallocate(pool, mine, 1000, 0, nullptr);
  FUNCTION_OF(second, rmm_c_resource_deallocate)(resource, block, 1000, 0, nullptr);
  EXPECT_EQ(FUNCTION_OF(second, rmm_c_resource_destroy)(resource), RMM_C_OK);
  EXPECT_EQ(rmm_c_resource_destroy(pool), RMM_C_OK);
}

}  // namespace
