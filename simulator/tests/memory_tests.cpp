// SPDX-License-Identifier: Apache-2.0
//
// What the simulator adds to CUDA's memory calls: limits, reports, the ledger, faults. The calls' own behaviour is
// tested in tests/cuda, on a real GPU as well.

#include "support.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

// The twins for per-thread default streams. The headers declare them under other names only.
extern "C" {
cudaError_t cudaMallocAsync_ptsz(void**, std::size_t, cudaStream_t);
cudaError_t cudaFreeAsync_ptsz(void*, cudaStream_t);
cudaError_t cudaMallocFromPoolAsync_ptsz(void**, std::size_t, cudaMemPool_t, cudaStream_t);
}

#if CUDART_VERSION >= 13000
extern "C" {
cudaError_t cudaMemPrefetchAsync_ptsz(void const*, std::size_t, cudaMemLocation, unsigned, cudaStream_t);
cudaError_t cudaMemPrefetchBatchAsync_ptsz(
  void**, std::size_t*, std::size_t, cudaMemLocation*, std::size_t*, std::size_t, unsigned long long, cudaStream_t);
cudaError_t cudaMemDiscardBatchAsync_ptsz(void**, std::size_t*, std::size_t, unsigned long long, cudaStream_t);
cudaError_t cudaMemDiscardAndPrefetchBatchAsync_ptsz(
  void**, std::size_t*, std::size_t, cudaMemLocation*, std::size_t*, std::size_t, unsigned long long, cudaStream_t);
}
#endif

namespace cudasim_tests {
namespace {

using cudasim::violation;

constexpr std::size_t MiB   = std::size_t{1} << 20U;
constexpr std::size_t GB    = 1'000'000'000;
constexpr std::size_t block = 2 * MiB;

[[nodiscard]] void* allocate(std::size_t bytes)
{
  void* ptr = nullptr;
  EXPECT_EQ(cudaMalloc(&ptr, bytes), cudaSuccess);
  return ptr;
}

[[nodiscard]] void* allocate_managed(std::size_t bytes)
{
  void* ptr = nullptr;
  EXPECT_EQ(cudaMallocManaged(&ptr, bytes, cudaMemAttachGlobal), cudaSuccess);
  return ptr;
}

[[nodiscard]] void* allocate_pinned(std::size_t bytes)
{
  void* ptr = nullptr;
  EXPECT_EQ(cudaMallocHost(&ptr, bytes), cudaSuccess);
  return ptr;
}

[[nodiscard]] unsigned char byte_at(void const* ptr, std::size_t offset = 0)
{
  return static_cast<unsigned char const*>(ptr)[offset];
}

/// Whether the process can read the byte. Does not touch it.
[[nodiscard]] bool readable(void const* ptr)
{
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  bool const worked = ::write(ends[1], ptr, 1) == 1;
  EXPECT_TRUE(worked || errno == EFAULT);
  ::close(ends[0]);
  ::close(ends[1]);
  return worked;
}

/// A machine of two devices with 64 MiB each.
class SmallMachine : public Simulated {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.devices      = 2;
    o.memory_bytes = 64 * MiB;
    return o;
  }
};

class StepwiseMemory : public Stepped {};

// --- size -----------------------------------------------------------------------------------------------------------

class EightLargeDevices : public Simulated {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.devices      = 8;
    o.memory_bytes = 141 * GB;
    return o;
  }
};

TEST_F(EightLargeDevices, FitIntoASmallMachineWhileLittleIsTouched)
{
  std::array<void*, 8> all{};
  for (int device = 0; device < 8; ++device) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    auto& ptr = all[static_cast<std::size_t>(device)];
    ASSERT_EQ(cudaMalloc(&ptr, 140 * GB), cudaSuccess);
    static_cast<char*>(ptr)[0]            = 1;
    static_cast<char*>(ptr)[140 * GB - 1] = 1;
  }
  for (auto* const ptr : all) { EXPECT_EQ(cudaFree(ptr), cudaSuccess); }
}

TEST_F(EightLargeDevices, CanBeFilledAndEmptiedAgainAndAgain)
{
  for (int round = 0; round < 20; ++round) {
    auto* const ptr = allocate(140 * GB);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  }
}

TEST_F(SmallMachine, AllocatesItsMemoryToTheLastByte)
{
  std::vector<void*> all(32);
  for (auto& ptr : all) { ASSERT_EQ(cudaMalloc(&ptr, block), cudaSuccess); }
  void* more = nullptr;
  EXPECT_EQ(cudasim::usage(0).free, 0U);
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(all.back()), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&all.back(), block), cudaSuccess);
  for (auto* const ptr : all) { EXPECT_EQ(cudaFree(ptr), cudaSuccess); }
}

TEST_F(SmallMachine, CountsEachDeviceForItself)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  auto* const ptr = allocate(60 * MiB);
  EXPECT_EQ(cudasim::usage(0).free, 64 * MiB);
  EXPECT_EQ(cudasim::usage(1).free, 4 * MiB);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_EQ(cudasim::usage(1).free, 64 * MiB);
}

TEST_F(SmallMachine, DoesNotCallExhaustionMisuse)
{
  void* ptr = nullptr;
  EXPECT_EQ(cudaMalloc(&ptr, 65 * MiB), cudaErrorMemoryAllocation);
  EXPECT_TRUE(cudasim::violations().empty());
}

TEST_F(SmallMachine, LendsMemoryToOtherPrograms)
{
  ASSERT_TRUE(cudasim::occupy(0, 60 * MiB));
  EXPECT_EQ(cudasim::usage(0).occupied, 60 * MiB);
  std::size_t free = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, nullptr), cudaSuccess);
  EXPECT_EQ(free, 4 * MiB);
  void* ptr = nullptr;
  EXPECT_EQ(cudaMalloc(&ptr, 5 * MiB), cudaErrorMemoryAllocation);
  ASSERT_TRUE(cudasim::occupy(0, 1)) << "a second call replaces the first";
  EXPECT_EQ(cudasim::usage(0).free, 64 * MiB - 1);
  EXPECT_FALSE(cudasim::occupy(0, 65 * MiB));
  EXPECT_EQ(cudasim::usage(0).occupied, 1U);
  EXPECT_THROW(cudasim::occupy(2, 1), std::invalid_argument) << "there is no such device";
}

TEST_F(SmallMachine, AddsItsUsageUp)
{
  cudaMemPool_t pool{};
  void* pooled      = nullptr;
  auto* const plain = allocate(3 * MiB);
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  ASSERT_EQ(cudaMallocFromPoolAsync(&pooled, 100, pool, nullptr), cudaSuccess);
  ASSERT_TRUE(cudasim::occupy(0, 5));
  auto const u = cudasim::usage(0);
  EXPECT_EQ(u.allocated, 4 * MiB);
  EXPECT_EQ(u.reserved_by_pools, 32 * MiB);
  EXPECT_EQ(u.total, u.free + u.allocated + u.reserved_by_pools + u.physical + u.occupied);
  EXPECT_EQ(cudaFreeAsync(pooled, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFree(plain), cudaSuccess);
  EXPECT_THROW(static_cast<void>(cudasim::usage(9)), std::invalid_argument) << "there is no such device";
}

TEST_F(SmallMachine, LimitsHostAndManagedMemoryOnlyWhereItIsAbsurd)
{
  void* ptr = nullptr;
  EXPECT_EQ(cudaMallocManaged(&ptr, std::size_t{1} << 50U, cudaMemAttachGlobal), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocHost(&ptr, std::size_t{1} << 50U), cudaErrorMemoryAllocation);
  auto* const managed = allocate_managed(4 * 64 * MiB);
  auto* const pinned  = allocate_pinned(4 * 64 * MiB);
  EXPECT_EQ(cudasim::usage(0).free, 64 * MiB);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

// --- contents -------------------------------------------------------------------------------------------------------

TEST_F(SmallMachine, HandsOutMemoryThatIsNotZero)
{
  auto* const small   = allocate(1000);
  auto* const large   = allocate(5 * MiB);
  auto* const pinned  = allocate_pinned(1000);
  auto* const managed = allocate_managed(1000);
  for (auto const* ptr : {small, large, pinned, managed}) {
    EXPECT_EQ(byte_at(ptr), 0xcd);
    EXPECT_EQ(byte_at(ptr, 511), 0xcd);
  }
  EXPECT_EQ(cudaFree(small), cudaSuccess);
  EXPECT_EQ(cudaFree(large), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(SmallMachine, OverwritesSmallBlocksThatAreFreed)
{
  auto* const kept  = allocate(1000);
  auto* const freed = allocate(1000);
  EXPECT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_EQ(byte_at(freed), 0xdd);
  EXPECT_EQ(byte_at(freed, 511), 0xdd);
  EXPECT_EQ(cudaFree(kept), cudaSuccess);
}

TEST_F(SmallMachine, TakesLargeBlocksThatAreFreedAway)
{
  auto* const ptr = allocate(5 * MiB);
  EXPECT_TRUE(readable(ptr));
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_FALSE(readable(ptr));
}

TEST_F(SmallMachine, DoesNotReuseAddressesAtOnce)
{
  for (auto const bytes : {std::size_t{1000}, 5 * MiB}) {
    auto* const first = allocate(bytes);
    EXPECT_EQ(cudaFree(first), cudaSuccess);
    auto* const second = allocate(bytes);
    EXPECT_NE(first, second);
    EXPECT_EQ(cudaFree(second), cudaSuccess);
  }
}

TEST_F(SmallMachine, StartsOverWithAReset)
{
  auto* const small = allocate(1000);
  auto* const large = allocate(5 * MiB);
  cudasim::reset(machine());
  EXPECT_FALSE(readable(small));
  EXPECT_FALSE(readable(large));
  EXPECT_EQ(cudasim::usage(0).free, 64 * MiB);
  EXPECT_EQ(cudaFree(small), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

// --- reports --------------------------------------------------------------------------------------------------------

TEST_F(SmallMachine, ReportsWorkOnFreedMemory)
{
  for (auto const bytes : {std::size_t{1000}, 5 * MiB}) {
    auto* const ptr = allocate(bytes);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
    EXPECT_EQ(cudasim::launch(nullptr, {{ptr, 8}}, {}), cudaSuccess);
    auto const found = take_violations();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].what, violation::kind::use_after_free);
    EXPECT_NE(found[0].text.find("cudaFree gave back"), std::string::npos) << found[0].text;
    EXPECT_NE(found[0].text.find("from cudaMalloc"), std::string::npos) << found[0].text;
  }
}

TEST_F(SmallMachine, RefusesCopiesOfFreedMemory)
{
  int value       = 0;
  auto* const ptr = allocate(5 * MiB);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(&value, ptr, sizeof value, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::use_after_free), 1U);
}

TEST_F(SmallMachine, ReportsWorkBeyondAnAllocation)
{
  auto* const ptr = static_cast<char*>(allocate(1000));
  EXPECT_EQ(cudasim::launch(nullptr, {{ptr, 1000}}, {{ptr + 999, 1}}), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  EXPECT_EQ(cudasim::launch(nullptr, {{ptr, 1001}}, {}), cudaSuccess);
  auto const found = take_violations();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, violation::kind::out_of_bounds);
  EXPECT_NE(found[0].text.find("1 bytes past the end of 1000 bytes"), std::string::npos) << found[0].text;
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(SmallMachine, ReportsWorkOnUnallocatedMemory)
{
  auto* const ptr = static_cast<char*>(allocate(1000));
  EXPECT_EQ(cudasim::launch(nullptr, {{ptr + 4096, 1}}, {}), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::out_of_bounds), 1U);
  EXPECT_EQ(cudasim::launch(nullptr, {{nullptr, 1}}, {}), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::out_of_bounds), 1U);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(SmallMachine, LetsWorkUseOrdinaryMemory)
{
  int here = 0;
  EXPECT_EQ(cudasim::launch(nullptr, {{&here, sizeof here}}, {{nullptr, 0}}), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
}

TEST_F(SmallMachine, SaysWhichCallWouldHaveBeenRight)
{
  struct wrong_free {
    void* ptr;
    cudaError_t (*free)(void*);
    char const* expected;
  };
  auto* const device  = allocate(100);
  auto* const pinned  = allocate_pinned(100);
  auto* const managed = allocate_managed(100);
  std::array<char, 64> ordinary{};
  ASSERT_EQ(cudaHostRegister(ordinary.data(), ordinary.size(), 0), cudaSuccess);
  for (auto const& [ptr, free, expected] : {wrong_free{device, cudaFreeHost, "which cudaFree gives back"},
                                            {managed, cudaFreeHost, "which cudaFree gives back"},
                                            {pinned, cudaFree, "which cudaFreeHost gives back"},
                                            {pinned, cudaHostUnregister, "which cudaFreeHost gives back"},
                                            {ordinary.data(), cudaFreeHost, "which cudaHostUnregister gives back"}}) {
    EXPECT_EQ(free(ptr), cudaErrorInvalidValue);
    auto const found = take_violations();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].what, violation::kind::misuse);
    EXPECT_NE(found[0].text.find(expected), std::string::npos) << found[0].text;
  }
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(ordinary.data()), cudaSuccess);
}

TEST_F(SmallMachine, NamesTheFirstFreeOfAPointerThatIsFreedAgain)
{
  auto* const ptr = allocate(100);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_EQ(cudaFree(ptr), cudaErrorInvalidValue);
  auto const found = take_violations();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].text.find("was given back already"), std::string::npos) << found[0].text;
}

TEST_F(SmallMachine, DoesNotReportCorrectPrograms)
{
  auto* const ptr = allocate(100);
  std::array<char, 64> ordinary{};
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(ordinary.data(), 64, 0), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(ordinary.data(), 64, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostUnregister(ordinary.data()), cudaSuccess);
  cudaPointerAttributes found{};
  EXPECT_EQ(cudaPointerGetAttributes(&found, &found), cudaSuccess);
#if CUDART_VERSION >= 13000
  EXPECT_EQ(cudaMemPrefetchAsync(ptr, 100, {cudaMemLocationTypeDevice, 0}, 0, nullptr), cudaErrorInvalidValue);
#endif
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
}

// --- ledger ---------------------------------------------------------------------------------------------------------

TEST_F(SmallMachine, ListsWhatHasNotBeenFreed)
{
  std::array<char, 64> ordinary{};
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  auto* const device  = allocate(100);
  auto* const pinned  = allocate_pinned(200);
  auto* const managed = allocate_managed(300);
  void* pooled        = nullptr;
  ASSERT_EQ(cudaMallocAsync(&pooled, 400, nullptr), cudaSuccess);
  ASSERT_EQ(cudaHostRegister(ordinary.data(), 64, 0), cudaSuccess);

  struct expected_entry {
    void* handle;
    std::size_t bytes;
    char const* made_by;
    char const* freed_by;
  };
  auto const all = cudasim::ledger();
  EXPECT_EQ(all.size(), 5U);
  for (auto const& e : {expected_entry{device, 100, "cudaMalloc", "cudaFree"},
                        {pinned, 200, "cudaMallocHost", "cudaFreeHost"},
                        {managed, 300, "cudaMallocManaged", "cudaFree"},
                        {pooled, 400, "cudaMallocAsync", "cudaFreeAsync"},
                        {ordinary.data(), 64, "cudaHostRegister", "cudaHostUnregister"}}) {
    auto const found = std::find_if(all.begin(), all.end(), [&](auto const& o) { return o.handle == e.handle; });
    ASSERT_NE(found, all.end()) << e.made_by;
    EXPECT_EQ(found->bytes, e.bytes);
    EXPECT_EQ(found->made_by, e.made_by);
    EXPECT_EQ(found->freed_by, e.freed_by);
    EXPECT_EQ(found->device, 1);
    EXPECT_FALSE(found->where.empty());
  }
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(pooled, nullptr), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(ordinary.data()), cudaSuccess);
  EXPECT_TRUE(cudasim::ledger().empty());
}

TEST_F(SmallMachine, NamesTheCallThatMadePitchedMemory)
{
  void* ptr         = nullptr;
  std::size_t pitch = 0;
  ASSERT_EQ(cudaMallocPitch(&ptr, &pitch, 10, 10), cudaSuccess);
  ASSERT_EQ(cudasim::ledger().size(), 1U);
  EXPECT_EQ(cudasim::ledger()[0].made_by, "cudaMallocPitch");
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(SmallMachine, LosesTheMemoryOfADeviceThatIsReset)
{
  void* pooled     = nullptr;
  auto* const kept = allocate(100);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  auto* const lost = allocate(100);
  ASSERT_EQ(cudaMallocAsync(&pooled, 100, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudasim::usage(1).free, 64 * MiB);
  EXPECT_EQ(cudaFree(lost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pooled), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
  ASSERT_EQ(cudaMallocAsync(&pooled, 100, nullptr), cudaSuccess) << "it has a default pool again";
  EXPECT_EQ(cudaFreeAsync(pooled, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFree(kept), cudaSuccess);
}

// --- order ----------------------------------------------------------------------------------------------------------

TEST_F(StepwiseMemory, FreeingWaitsForTheDeviceThatOwnsTheMemory)
{
  scoped_stream const here;
  auto* const ptr = allocate(100);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    scoped_stream const there;
    ASSERT_EQ(cudasim::launch(there, {}, {}), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudasim::launch(here, {}, {}), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
    EXPECT_EQ(cudasim::pending(here), 0U);
    EXPECT_EQ(cudasim::pending(there), 1U);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(StepwiseMemory, FreeingSharedMemoryWaitsForAllDevices)
{
  std::array<char, 64> ordinary{};
  ASSERT_EQ(cudaHostRegister(ordinary.data(), 64, 0), cudaSuccess);
  auto* const pinned  = allocate_pinned(100);
  auto* const managed = allocate_managed(100);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  scoped_stream const there;
  for (auto const& free : {std::function<cudaError_t()>{[&] { return cudaFreeHost(pinned); }},
                           std::function<cudaError_t()>{[&] { return cudaFree(managed); }},
                           std::function<cudaError_t()>{[&] { return cudaHostUnregister(ordinary.data()); }}}) {
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ASSERT_EQ(cudasim::launch(there, {}, {}), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(free(), cudaSuccess);
    EXPECT_EQ(cudasim::pending(there), 0U);
  }
}

TEST_F(StepwiseMemory, ReportsAFreeThatAnotherDeviceIsNotOrderedBefore)
{
  auto* const ptr = allocate(100);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  scoped_stream const there;
  ASSERT_EQ(cudasim::launch(there, {{ptr, 100}}, {}), cudaSuccess);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);  // waits for device 0, which owns the memory, not for device 1
  EXPECT_EQ(take_count(violation::kind::race), 1U);
  ASSERT_EQ(cudaDeviceDisablePeerAccess(0), cudaSuccess);
}

TEST_F(StepwiseMemory, ForgetsTheWorkOfFormerOwners)
{
  scoped_stream const one;
  scoped_stream const two;
  std::set<void*> seen;
  for (int round = 0; round < 200; ++round) {
    auto* const ptr = allocate(block);
    seen.insert(ptr);
    ASSERT_EQ(cudasim::launch(round % 3 == 0 ? one : two, {}, {{ptr, block}}), cudaSuccess);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  }
  EXPECT_LT(seen.size(), 200U) << "addresses have to come back for this test to mean something";
}

TEST_F(StepwiseMemory, DiscardsAreWritesForTheChecker)
{
#if CUDART_VERSION >= 13000
  scoped_stream const one;
  scoped_stream const two;
  auto* ptr        = allocate_managed(4096);
  std::size_t size = 4096;
  ASSERT_EQ(cudasim::launch(one, {{ptr, 4096}}, {}), cudaSuccess);
  ASSERT_EQ(cudaMemDiscardBatchAsync(&ptr, &size, 1, 0, two), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::race), 1U);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
#endif
}

// --- threads --------------------------------------------------------------------------------------------------------

TEST_F(Simulated, ServesManyThreads)
{
  auto const free_before = cudasim::usage(0).free;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([seed] {
      std::vector<void*> mine;
      for (unsigned i = 0; i < 500; ++i) {
        auto* const ptr = allocate(1 + (i * 7919U + seed) % 10'000U);
        std::memset(ptr, static_cast<int>(seed), 1);
        mine.push_back(ptr);
        if (mine.size() > 20) {
          EXPECT_EQ(byte_at(mine.front()), seed);
          EXPECT_EQ(cudaFree(mine.front()), cudaSuccess);
          mine.erase(mine.begin());
        }
      }
      for (auto* const ptr : mine) { EXPECT_EQ(cudaFree(ptr), cudaSuccess); }
    });
  }
  for (auto& t : threads) { t.join(); }
  EXPECT_EQ(cudasim::usage(0).free, free_before);
}

TEST_F(Simulated, FreesAPointerOnceWhenManyThreadsTry)
{
  auto* const ptr = allocate(100);
  std::atomic<int> freed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { freed += cudaFree(ptr) == cudaSuccess ? 1 : 0; });
  }
  for (auto& t : threads) { t.join(); }
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(take_count(violation::kind::misuse), 3U);
}

// --- faults ---------------------------------------------------------------------------------------------------------

struct faulty_call {
  char const* function;
  cudaError_t (*make)();
};

void PrintTo(faulty_call const& call, std::ostream* out) { *out << call.function; }

class MemoryFaults : public Simulated, public ::testing::WithParamInterface<faulty_call> {};

TEST_P(MemoryFaults, AreCountedAndInjectedByName)
{
  auto const before = cudasim::calls(GetParam().function);
  cudasim::inject({GetParam().function, 1, cudaErrorUnknown, 1});
  EXPECT_EQ(GetParam().make(), cudaErrorUnknown);
  EXPECT_EQ(cudasim::calls(GetParam().function), before + 1);
  EXPECT_EQ(cudaGetLastError(), cudaErrorUnknown);
  cudasim::clear_faults();
}

void* place          = nullptr;
std::size_t number   = 0;
int answer           = 0;
unsigned flags       = 0;
cudaMemPool_t a_pool = nullptr;
cudaPitchedPtr pitched{};
cudaPointerAttributes attributes{};
cudaMemPoolProps properties{};
cudaMemAccessFlags access_flags{};
cudaMemLocation location{cudaMemLocationTypeDevice, 0};
cudaMemPoolPtrExportData exported{};
cudaIpcMemHandle_t ipc_handle{};
cudaMemRangeAttribute range_attribute{cudaMemRangeAttributeReadMostly};
cudaDriverEntryPointQueryResult query_result{};

INSTANTIATE_TEST_SUITE_P(
  Calls,
  MemoryFaults,
  ::testing::Values(
    faulty_call{"cudaMalloc", [] { return cudaMalloc(&place, 1); }},
    faulty_call{"cudaMallocPitch", [] { return cudaMallocPitch(&place, &number, 1, 1); }},
    faulty_call{"cudaMalloc3D",
                [] {
                  return cudaMalloc3D(&pitched, {1, 1, 1});
                }},
    faulty_call{"cudaFree", [] { return cudaFree(nullptr); }},
    faulty_call{"cudaMallocHost", [] { return cudaMallocHost(&place, 1); }},
    faulty_call{"cudaHostAlloc", [] { return cudaHostAlloc(&place, 1, 0); }},
    faulty_call{"cudaFreeHost", [] { return cudaFreeHost(nullptr); }},
    faulty_call{"cudaHostRegister", [] { return cudaHostRegister(&place, 1, 0); }},
    faulty_call{"cudaHostUnregister", [] { return cudaHostUnregister(&place); }},
    faulty_call{"cudaHostGetDevicePointer", [] { return cudaHostGetDevicePointer(&place, &place, 0); }},
    faulty_call{"cudaHostGetFlags", [] { return cudaHostGetFlags(&flags, &place); }},
    faulty_call{"cudaMallocManaged", [] { return cudaMallocManaged(&place, 1, cudaMemAttachGlobal); }},
    faulty_call{"cudaMemGetInfo", [] { return cudaMemGetInfo(&number, nullptr); }},
    faulty_call{"cudaPointerGetAttributes", [] { return cudaPointerGetAttributes(&attributes, nullptr); }},
    faulty_call{"cudaMemRangeGetAttribute",
                [] { return cudaMemRangeGetAttribute(&answer, 4, cudaMemRangeAttributeReadMostly, &place, 1); }},
    faulty_call{"cudaMemRangeGetAttributes",
                [] { return cudaMemRangeGetAttributes(&place, &number, &range_attribute, 1, &place, 1); }},
    faulty_call{"cudaMallocAsync", [] { return cudaMallocAsync(&place, 1, nullptr); }},
    faulty_call{"cudaMallocAsync", [] { return cudaMallocAsync_ptsz(&place, 1, nullptr); }},
    faulty_call{"cudaMallocFromPoolAsync", [] { return cudaMallocFromPoolAsync(&place, 1, nullptr, nullptr); }},
    faulty_call{"cudaMallocFromPoolAsync", [] { return cudaMallocFromPoolAsync_ptsz(&place, 1, nullptr, nullptr); }},
    faulty_call{"cudaFreeAsync", [] { return cudaFreeAsync(nullptr, nullptr); }},
    faulty_call{"cudaFreeAsync", [] { return cudaFreeAsync_ptsz(nullptr, nullptr); }},
    faulty_call{"cudaDeviceGetDefaultMemPool", [] { return cudaDeviceGetDefaultMemPool(&a_pool, 0); }},
    faulty_call{"cudaDeviceGetMemPool", [] { return cudaDeviceGetMemPool(&a_pool, 0); }},
    faulty_call{"cudaDeviceSetMemPool", [] { return cudaDeviceSetMemPool(0, nullptr); }},
    faulty_call{"cudaMemPoolCreate", [] { return cudaMemPoolCreate(&a_pool, &properties); }},
    faulty_call{"cudaMemPoolDestroy", [] { return cudaMemPoolDestroy(nullptr); }},
    faulty_call{"cudaMemPoolTrimTo", [] { return cudaMemPoolTrimTo(nullptr, 0); }},
    faulty_call{"cudaMemPoolGetAttribute",
                [] { return cudaMemPoolGetAttribute(nullptr, cudaMemPoolAttrUsedMemHigh, &number); }},
    faulty_call{"cudaMemPoolSetAttribute",
                [] { return cudaMemPoolSetAttribute(nullptr, cudaMemPoolAttrUsedMemHigh, &number); }},
    faulty_call{"cudaMemPoolSetAccess", [] { return cudaMemPoolSetAccess(nullptr, nullptr, 0); }},
    faulty_call{"cudaMemPoolGetAccess", [] { return cudaMemPoolGetAccess(&access_flags, nullptr, &location); }},
    faulty_call{"cudaMemPoolExportToShareableHandle",
                [] { return cudaMemPoolExportToShareableHandle(&answer, nullptr, cudaMemHandleTypeNone, 0); }},
    faulty_call{"cudaMemPoolImportFromShareableHandle",
                [] { return cudaMemPoolImportFromShareableHandle(&a_pool, nullptr, cudaMemHandleTypeNone, 0); }},
    faulty_call{"cudaMemPoolExportPointer", [] { return cudaMemPoolExportPointer(&exported, nullptr); }},
    faulty_call{"cudaMemPoolImportPointer", [] { return cudaMemPoolImportPointer(&place, nullptr, &exported); }},
    faulty_call{"cudaIpcGetMemHandle", [] { return cudaIpcGetMemHandle(&ipc_handle, nullptr); }},
    faulty_call{"cudaIpcOpenMemHandle", [] { return cudaIpcOpenMemHandle(&place, ipc_handle, 0); }},
    faulty_call{"cudaIpcCloseMemHandle", [] { return cudaIpcCloseMemHandle(nullptr); }},
    faulty_call{"cudaDeviceCanAccessPeer", [] { return cudaDeviceCanAccessPeer(&answer, 0, 0); }},
    faulty_call{"cudaDeviceEnablePeerAccess", [] { return cudaDeviceEnablePeerAccess(0, 0); }},
    faulty_call{"cudaDeviceDisablePeerAccess", [] { return cudaDeviceDisablePeerAccess(0); }},
    faulty_call{"cudaDeviceGetP2PAttribute",
                [] { return cudaDeviceGetP2PAttribute(&answer, cudaDevP2PAttrAccessSupported, 0, 0); }},
    faulty_call{"cudaGetDriverEntryPointByVersion",
                [] { return cudaGetDriverEntryPointByVersion("cuInit", &place, 12000, 0, &query_result); }}));

#if CUDART_VERSION >= 13000

INSTANTIATE_TEST_SUITE_P(
  CallsOfVersion13,
  MemoryFaults,
  ::testing::Values(
    faulty_call{"cudaMemAdvise", [] { return cudaMemAdvise(&place, 1, cudaMemAdviseSetReadMostly, location); }},
    faulty_call{"cudaMemPrefetchAsync", [] { return cudaMemPrefetchAsync(&place, 1, location, 0, nullptr); }},
    faulty_call{"cudaMemPrefetchAsync", [] { return cudaMemPrefetchAsync_ptsz(&place, 1, location, 0, nullptr); }},
    faulty_call{"cudaMemPrefetchBatchAsync",
                [] { return cudaMemPrefetchBatchAsync(&place, &number, 1, &location, &number, 1, 0, nullptr); }},
    faulty_call{"cudaMemPrefetchBatchAsync",
                [] { return cudaMemPrefetchBatchAsync_ptsz(&place, &number, 1, &location, &number, 1, 0, nullptr); }},
    faulty_call{"cudaMemDiscardBatchAsync", [] { return cudaMemDiscardBatchAsync(&place, &number, 1, 0, nullptr); }},
    faulty_call{"cudaMemDiscardBatchAsync",
                [] { return cudaMemDiscardBatchAsync_ptsz(&place, &number, 1, 0, nullptr); }},
    faulty_call{
      "cudaMemDiscardAndPrefetchBatchAsync",
      [] { return cudaMemDiscardAndPrefetchBatchAsync(&place, &number, 1, &location, &number, 1, 0, nullptr); }},
    faulty_call{
      "cudaMemDiscardAndPrefetchBatchAsync",
      [] { return cudaMemDiscardAndPrefetchBatchAsync_ptsz(&place, &number, 1, &location, &number, 1, 0, nullptr); }},
    faulty_call{"cudaMemGetDefaultMemPool",
                [] { return cudaMemGetDefaultMemPool(&a_pool, &location, cudaMemAllocationTypePinned); }},
    faulty_call{"cudaMemGetMemPool", [] { return cudaMemGetMemPool(&a_pool, &location, cudaMemAllocationTypePinned); }},
    faulty_call{"cudaMemSetMemPool",
                [] { return cudaMemSetMemPool(&location, cudaMemAllocationTypePinned, nullptr); }}));

#endif

TEST_F(SmallMachine, AnInjectedFaultLeavesNoTrace)
{
  void* ptr = &ptr;
  cudasim::inject({"cudaMalloc", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_EQ(cudaMalloc(&ptr, 1000), cudaErrorMemoryAllocation);
  EXPECT_EQ(ptr, &ptr);
  EXPECT_EQ(cudasim::usage(0).free, 64 * MiB);
  EXPECT_TRUE(cudasim::ledger().empty());
}

}  // namespace
}  // namespace cudasim_tests
