// SPDX-License-Identifier: Apache-2.0
#include "../../support/graph.hpp"
#include "../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::mr::pinned_pool_memory_resource;
using rmm::mr::registered_host_memory_resource;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

struct RegisteredHostMemory : Simulated {
  registered_host_memory_resource resource;
};

TEST_F(RegisteredHostMemory, LargeBlocksAreRegisteredAndSmallOnesAreNot)
{
  void* const large = resource.allocate(mebibyte);
  EXPECT_EQ(cudasim::calls("cudaHostRegister"), 1);
  EXPECT_EQ(cudasim::calls("cudaHostAlloc"), 0);
  void* const small = resource.allocate(mebibyte - 1);
  EXPECT_EQ(cudasim::calls("cudaHostRegister"), 1);
  EXPECT_EQ(cudasim::calls("cudaHostAlloc"), 1);
  resource.deallocate(large, mebibyte);
  resource.deallocate(small, mebibyte - 1);
}

/// Allocates, uses and frees a block that cannot be registered.
void use_memory_of_the_runtime(registered_host_memory_resource& resource)
{
  auto const before = cudasim::calls("cudaHostAlloc");
  void* const ptr   = resource.allocate(3 * mebibyte);
  EXPECT_EQ(cudasim::calls("cudaHostAlloc"), before + 1);
  std::memset(ptr, 1, 3 * mebibyte);
  resource.deallocate(ptr, 3 * mebibyte);
}

TEST_F(RegisteredHostMemory, FallsBackToTheRuntimeIfRegistrationFails)
{
  cudasim::inject({"cudaHostRegister", 1, cudaErrorMemoryAllocation, 1});
  use_memory_of_the_runtime(resource);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(RegisteredHostMemory, UsesTheRuntimesMemoryOnDevicesThatCannotUseTheProgramsMemory)
{
  for (auto const attribute : {cudaDevAttrHostRegisterSupported, cudaDevAttrCanUseHostPointerForRegisteredMem}) {
    cudasim::set_device_attribute(0, attribute, 0);
    use_memory_of_the_runtime(resource);
    cudasim::set_device_attribute(0, attribute, 1);
  }
  EXPECT_EQ(cudasim::calls("cudaHostRegister"), 0);
}

TEST_F(RegisteredHostMemory, ARequestBeyondTheHostsMemoryTouchesNothing)
{
  EXPECT_THROW(resource.allocate(std::size_t{1} << 45U), rmm::out_of_memory);
  EXPECT_EQ(cudasim::calls("cudaHostRegister"), 0);
}

TEST_F(RegisteredHostMemory, ABlockIsKeptUntilTheStreamHasReachedItsEnd)
{
  rmm::cuda_stream const stream;
  auto* const ptr = static_cast<char*>(resource.allocate(mebibyte, stream));
  char seen{};
  std::uint64_t unregistered{1};
  ASSERT_EQ(cudasim::launch(stream.value(),
                            {},
                            {{ptr, mebibyte}},
                            [=, &seen, &unregistered] {
                              seen = ptr[5] = 7;
                              unregistered  = cudasim::calls("cudaHostUnregister");
                            }),
            cudaSuccess);
  resource.deallocate(ptr, mebibyte, stream);
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(unregistered, 0U);
  EXPECT_EQ(cudasim::calls("cudaStreamSynchronize"), 1);  // CUDA does not document that unregistering memory waits
}

TEST_F(RegisteredHostMemory, ACallThatFailsLeavesNothingBehind)
{
  auto const failures = cudasim::for_each_fault(
    [&] {
      try {
        void* const ptr = resource.allocate(2 * mebibyte);
        cudasim::clear_faults();  // calls that free something must not fail
        std::memset(ptr, 1, 2 * mebibyte);
        resource.deallocate(ptr, 2 * mebibyte);
      } catch (std::bad_alloc const&) {}
    },
    [](auto call) {
      EXPECT_EQ(cudasim::leak_report(), "") << call;
      EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << call;
    });
  EXPECT_GE(failures, 3);
}

TEST_F(RegisteredHostMemory, FailsIfNeitherWayHasMemory)
{
  cudasim::inject({"cudaHostRegister", 1, cudaErrorMemoryAllocation, 1});
  cudasim::inject({"cudaHostAlloc", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_THROW(resource.allocate(mebibyte), rmm::out_of_memory);
}

TEST_F(RegisteredHostMemory, ServesManyThreads)
{
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      rmm::cuda_stream const stream;
      for (std::size_t round = 0; round < 8; ++round) {
        auto const bytes = (round % 3 + 1) * mebibyte / 2;
        void* const ptr  = resource.allocate(bytes, stream);
        EXPECT_EQ(cudaMemsetAsync(ptr, 1, bytes, stream.value()), cudaSuccess);
        resource.deallocate(ptr, bytes, stream);
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
}

TEST_F(RegisteredHostMemory, APoolOfItIsDestroyedWithoutBreakingACapture)
{
  rmm::cuda_stream const blocking;
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  std::optional<pinned_pool_memory_resource> pool{std::in_place, 2 * mebibyte};
  pool->deallocate(pool->allocate(1000, stream), 1000, stream);
  static_cast<void>(rmm::test::capture(blocking, [&] { pool.reset(); }));  // fails if the capture is broken
}

TEST_F(RegisteredHostMemory, APoolOfItLocksOnceAndGivesAllBack)
{
  {
    pinned_pool_memory_resource pool{16 * mebibyte};
    rmm::cuda_stream const stream;
    for (int i = 0; i < 100; ++i) {
      void* const ptr = pool.allocate(mebibyte, stream);
      ASSERT_EQ(cudaMemsetAsync(ptr, i, mebibyte, stream.value()), cudaSuccess);
      pool.deallocate(ptr, mebibyte, stream);
    }
    EXPECT_EQ(cudasim::calls("cudaHostRegister"), 1);
    EXPECT_EQ(cudasim::calls("cudaHostUnregister"), 0);
  }
  EXPECT_EQ(cudasim::calls("cudaHostUnregister"), 1);
}

}  // namespace
