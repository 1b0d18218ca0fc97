// SPDX-License-Identifier: Apache-2.0
#include "tests/support/failing_host_memory.hpp"

#include <rmm/c/rmm.h>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// Makes each call of CUDA, and each allocation on the host, fail once, in every function of the interface: the
/// function returns a status, throws nothing, and leaves nothing behind.

namespace {

/// The thread's allocation that fails, counted from here on; 0: none.
thread_local std::uint64_t fails_at{0};
bool has_failed{false};

}  // namespace

// Also called for the library: the dynamic linker finds the program's operator new before that of the C++ library.
bool rmm::test::host_allocation_fails(void const* /*caller*/) noexcept
{
  if (fails_at == 0) { return false; }
  auto const count             = std::exchange(fails_at, 0);  // is_called_by_the_runtime() may allocate
  bool const is_of_the_runtime = is_called_by_the_runtime();
  bool const fails             = count == 1 && !is_of_the_runtime;
  has_failed                   = has_failed || fails;
  fails_at                     = fails ? 0 : count - (is_of_the_runtime ? 0 : 1);
  return fails;
}

namespace {

void ignore_holder(void* /*argument*/, char const* /*tag*/, std::uint64_t /*bytes*/, std::uint64_t /*blocks*/) {}

/// Calls all functions with one configuration. Returns the statuses.
std::set<rmm_c_status> use_all(char const* configuration, void* stream)
{
  std::set<rmm_c_status> seen;
  rmm_c_resource* resource{};
  seen.insert(rmm_c_resource_create(configuration, 0, &resource));
  if (resource == nullptr) { return seen; }
  constexpr std::size_t sizes[] = {1, 1000, 100'000, 3'000'000};
  std::vector<std::pair<void*, std::size_t>> blocks;
  blocks.reserve(std::size(sizes));
  for (auto const bytes : sizes) {
    void* block{};
    auto const status = rmm_c_resource_allocate(resource, bytes, 0, stream, &block);
    EXPECT_EQ(block != nullptr, status == RMM_C_OK);
    seen.insert(status);
    if (block != nullptr) { blocks.emplace_back(block, bytes); }
  }
  rmm_c_figures figures{};
  figures.size = sizeof figures;
  seen.insert(rmm_c_resource_figures(resource, &figures));
  seen.insert(rmm_c_resource_visit_tags(resource, ignore_holder, nullptr));
  for (auto const& [block, bytes] : blocks) { rmm_c_resource_deallocate(resource, block, bytes, 0, stream); }
  seen.insert(rmm_c_resource_trim(resource, 0, nullptr));
  seen.insert(rmm_c_resource_destroy(resource));
  return seen;
}

struct CInterfaceFaultTest : ::testing::TestWithParam<char const*> {
  CInterfaceFaultTest()
  {
    cudasim::reset();
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    use_all(GetParam(), stream);  // caches what is only found out once
    left = cudasim::ledger().size();
  }
  ~CInterfaceFaultTest() override { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }

  cudaStream_t stream{};
  std::size_t left{};
};

TEST_P(CInterfaceFaultTest, AnswersEachFailingCallOfCuda)
{
  // Functions that begin something. A function that ends something reports no failure, and may leave something.
  for (auto const* const function : {"cuMemAddressReserve",
                                     "cuMemCreate",
                                     "cuMemMap",
                                     "cuMemSetAccess",
                                     "cudaDeviceGetAttribute",
                                     "cudaEventCreateWithFlags",
                                     "cudaEventQuery",
                                     "cudaEventRecord",
                                     "cudaGetDeviceCount",
                                     "cudaHostAlloc",
                                     "cudaMalloc",
                                     "cudaMallocFromPoolAsync",
                                     "cudaMallocManaged",
                                     "cudaMemGetInfo",
                                     "cudaMemPoolCreate",
                                     "cudaMemPoolSetAttribute",
                                     "cudaMemPoolTrimTo",
                                     "cudaStreamGetCaptureInfo",
                                     "cudaStreamWaitEvent"}) {
    for (auto const error : {cudaErrorMemoryAllocation, cudaErrorInvalidValue}) {
      std::set<rmm_c_status> seen;
      cudasim::for_each_fault(
        [&] { seen = use_all(GetParam(), stream); },
        [&](std::uint64_t nth) {
          EXPECT_EQ(seen.count(RMM_C_FAILED) + seen.count(RMM_C_UNAVAILABLE) + seen.count(RMM_C_INVALID_ARGUMENT), 0U)
            << function << " " << nth << ": " << rmm_c_last_failure_text();
          EXPECT_EQ(cudasim::ledger().size(), left) << function << " " << nth << "\n" << cudasim::leak_report();
          EXPECT_EQ(cudaGetLastError(), cudaSuccess) << function << " " << nth;
        },
        error,
        function);
    }
  }
}

// Includes calls that end something, after which something may stay.
TEST_P(CInterfaceFaultTest, GoesOnWhicheverCallOfCudaFails)
{
  std::uint64_t calls{0};
  for (auto const error : {cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorUnknown}) {
    std::set<rmm_c_status> seen;
    calls += cudasim::for_each_fault(
      [&] { seen = use_all(GetParam(), stream); },
      [&](std::uint64_t nth) {
        EXPECT_EQ(seen.count(RMM_C_FAILED) + seen.count(RMM_C_UNAVAILABLE) + seen.count(RMM_C_INVALID_ARGUMENT), 0U)
          << nth << ": " << rmm_c_last_failure_text();
      },
      error);
  }
  EXPECT_GT(calls, 10U);
}

TEST_P(CInterfaceFaultTest, AnswersEachFailingAllocationOnTheHost)
{
  std::set<rmm_c_status> seen;
  std::uint64_t n{0};
  do {
    ++n;
    has_failed = false;
    fails_at   = n;
    {
      rmm_c_resource* resource{};
      void* block{};
      auto const made    = rmm_c_resource_create(GetParam(), 0, &resource);
      auto const got     = made == RMM_C_OK ? rmm_c_resource_allocate(resource, 1000, 0, stream, &block) : RMM_C_OK;
      auto const visited = made == RMM_C_OK ? rmm_c_resource_visit_tags(resource, ignore_holder, nullptr) : RMM_C_OK;
      rmm_c_resource_deallocate(resource, block, 1000, 0, stream);
      auto const ended = rmm_c_resource_destroy(resource);
      fails_at         = 0;
      seen.insert({made, got, visited, ended});
    }
    ASSERT_EQ(cudasim::ledger().size(), left) << n << "\n" << cudasim::leak_report();
    ASSERT_LT(n, 10'000U);
  } while (has_failed);
  EXPECT_GT(n, 1U);
  EXPECT_EQ(seen.count(RMM_C_HOST_OUT_OF_MEMORY), 1U);
  EXPECT_EQ(seen.count(RMM_C_FAILED) + seen.count(RMM_C_MISUSE) + seen.count(RMM_C_BAD_CONFIGURATION), 0U);
}

TEST_P(CInterfaceFaultTest, DoesNothingOnceTheRuntimeIsGone)
{
  rmm_c_resource* resource{};
  ASSERT_EQ(rmm_c_resource_create(GetParam(), 0, &resource), RMM_C_OK);
  void* block{};
  ASSERT_EQ(rmm_c_resource_allocate(resource, 1000, 0, stream, &block), RMM_C_OK);
  cudasim::begin_unloading();
  rmm_c_resource* other{};
  EXPECT_EQ(rmm_c_resource_create(GetParam(), 0, &other), RMM_C_CUDA_ERROR);
  rmm_c_resource_deallocate(resource, block, 1000, 0, stream);
  EXPECT_EQ(rmm_c_resource_destroy(resource), RMM_C_OK);
  cudasim::reset();
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(Configurations,
                         CInterfaceFaultTest,
                         ::testing::Values("cuda",
                                           "pool,initial=1MiB",
                                           "pool,tags",
                                           "arena",
                                           "elastic",
                                           "cached",
                                           "cuda_async",
                                           "binning",
                                           "pinned_pool",
                                           "managed,limit=1GiB,statistics"));

}  // namespace
