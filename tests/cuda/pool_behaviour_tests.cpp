// SPDX-License-Identifier: Apache-2.0
//
// What stream-ordered allocation and its pools do, asked through the CUDA API alone. The simulator and a real GPU have to
// pass the same tests.

#include "gate.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <future>
#include <limits>
#include <utility>

namespace {

constexpr std::size_t MiB   = std::size_t{1} << 20U;
constexpr std::size_t chunk = 32 * MiB;  // a pool reserves memory in such steps
constexpr auto maximum      = std::numeric_limits<std::size_t>::max();
constexpr auto posix        = cudaMemHandleTypePosixFileDescriptor;
constexpr cudaMemLocation device_0{cudaMemLocationTypeDevice, 0};
constexpr cudaMemLocation unknown_device{cudaMemLocationTypeDevice, 77};

[[nodiscard]] cudaMemPoolProps plain_properties()
{
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location  = device_0;
  return wanted;
}

[[nodiscard]] cudaMemPool_t make_pool(cudaMemPoolProps const& wanted = plain_properties())
{
  cudaMemPool_t made{};
  EXPECT_EQ(cudaMemPoolCreate(&made, &wanted), cudaSuccess);
  return made;
}

[[nodiscard]] std::uint64_t get(cudaMemPool_t pool, cudaMemPoolAttr which)
{
  std::uint64_t value = 0;
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, which, &value), cudaSuccess) << which;
  return value;
}

[[nodiscard]] cudaError_t set(cudaMemPool_t pool, cudaMemPoolAttr which, std::uint64_t value)
{
  return cudaMemPoolSetAttribute(pool, which, &value);
}

[[nodiscard]] std::uint64_t reserved(cudaMemPool_t pool) { return get(pool, cudaMemPoolAttrReservedMemCurrent); }
[[nodiscard]] std::uint64_t used(cudaMemPool_t pool) { return get(pool, cudaMemPoolAttrUsedMemCurrent); }

[[nodiscard]] std::size_t free_memory()
{
  std::size_t free  = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

[[nodiscard]] cudaMemoryType type_of(void const* ptr)
{
  cudaPointerAttributes found{};
  EXPECT_EQ(cudaPointerGetAttributes(&found, ptr), cudaSuccess);
  return found.type;
}

[[nodiscard]] void* offset(void* ptr, std::size_t bytes) { return static_cast<char*>(ptr) + bytes; }

/// Two streams and a pool of their own.
class PoolBehaviour : public ::testing::Test {
 protected:
  void SetUp() override
  {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    pool_ = make_pool();
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemPoolDestroy(pool_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaGetLastError();
  }
  [[nodiscard]] void* allocate(std::size_t bytes, cudaStream_t s)
  {
    void* ptr = nullptr;
    EXPECT_EQ(cudaMallocFromPoolAsync(&ptr, bytes, pool_, s), cudaSuccess) << bytes;
    return ptr;
  }
  [[nodiscard]] void* allocate(std::size_t bytes) { return allocate(bytes, stream_); }
  void synchronize() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

  cudaStream_t stream_{};
  cudaStream_t other_{};
  cudaMemPool_t pool_{};
};

// --- allocating and freeing -----------------------------------------------------------------------------------------

TEST_F(PoolBehaviour, AllocatingNothingGivesNull)
{
  void* ptr = this;
  EXPECT_EQ(cudaMallocAsync(&ptr, 0, stream_), cudaSuccess);
  EXPECT_EQ(ptr, nullptr);
}

TEST_F(PoolBehaviour, AllocatingNeedsAPlaceAndASensibleSize)
{
  void* ptr = nullptr;
  EXPECT_EQ(cudaMallocAsync(static_cast<void**>(nullptr), 8, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMallocAsync(&ptr, maximum, stream_), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocAsync(&ptr, std::size_t{1} << 45U, stream_), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocFromPoolAsync(&ptr, 8, nullptr, stream_), cudaErrorInvalidValue);
}

TEST_F(PoolBehaviour, BlocksAreAlignedTo512Bytes)
{
  auto* const one = allocate(513);
  auto* const two = allocate(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one) % 512, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(two) % 512, 0U);
  EXPECT_EQ(cudaFreeAsync(one, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(two, stream_), cudaSuccess);
}

TEST_F(PoolBehaviour, BlocksAreDeviceMemoryAsFarAsTheyGo)
{
  auto* const ptr = allocate(1000);
  EXPECT_EQ(type_of(ptr), cudaMemoryTypeDevice);
  EXPECT_EQ(type_of(offset(ptr, 999)), cudaMemoryTypeDevice);
  EXPECT_EQ(type_of(offset(ptr, 1000)), cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  synchronize();
  EXPECT_EQ(type_of(ptr), cudaMemoryTypeUnregistered);
}

TEST_F(PoolBehaviour, BlocksCanBeUsedInStreamOrder)
{
  auto* const ptr = allocate(4096);
  int value       = 0;
  ASSERT_EQ(cudaMemsetAsync(ptr, 7, 4096, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(&value, ptr, sizeof value, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  synchronize();
  EXPECT_EQ(value, 0x07070707);
}

TEST_F(PoolBehaviour, OnlyWhatWasAllocatedCanBeFreed)
{
  int on_stack    = 0;
  void* pinned    = nullptr;
  void* managed   = nullptr;
  auto* const ptr = allocate(1000);
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(offset(ptr, 256), stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(&on_stack, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(pinned, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(managed, stream_), cudaErrorNotSupported);
  EXPECT_EQ(cudaFreeAsync(nullptr, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(PoolBehaviour, CudaFreeTakesABlockWithoutWaiting)
{
  auto* const ptr = allocate(1000);
  synchronize();
  gate busy{other_};
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(other_), cudaErrorNotReady);
  busy.open();
  EXPECT_EQ(cudaFree(ptr), cudaErrorInvalidValue);
}

TEST_F(PoolBehaviour, MemoryOfCudaMallocCanBeFreedInStreamOrder)
{
  auto const before = free_memory();
  void* ptr         = nullptr;
  ASSERT_EQ(cudaMalloc(&ptr, 5000), cudaSuccess);
  {
    gate busy{stream_};
    EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
    EXPECT_EQ(type_of(ptr), cudaMemoryTypeDevice);
  }
  synchronize();
  EXPECT_EQ(type_of(ptr), cudaMemoryTypeUnregistered);
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(cudaFree(ptr), cudaErrorInvalidValue);
}

// --- what a pool holds ----------------------------------------------------------------------------------------------

TEST_F(PoolBehaviour, ANewPoolHoldsNothing)
{
  EXPECT_EQ(reserved(pool_), 0U);
  EXPECT_EQ(used(pool_), 0U);
  EXPECT_EQ(get(pool_, cudaMemPoolAttrReservedMemHigh), 0U);
  EXPECT_EQ(get(pool_, cudaMemPoolAttrUsedMemHigh), 0U);
  EXPECT_EQ(get(pool_, cudaMemPoolAttrReleaseThreshold), 0U);
}

TEST_F(PoolBehaviour, AllReuseIsAllowedAtFirst)
{
  for (auto const which : {cudaMemPoolReuseFollowEventDependencies,
                           cudaMemPoolReuseAllowOpportunistic,
                           cudaMemPoolReuseAllowInternalDependencies}) {
    int value = -1;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool_, which, &value), cudaSuccess);
    EXPECT_EQ(value, 1);
    value = 0;
    EXPECT_EQ(cudaMemPoolSetAttribute(pool_, which, &value), cudaSuccess);
    value = 7;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool_, which, &value), cudaSuccess);
    EXPECT_EQ(value, 0);
    value = 7;
    EXPECT_EQ(cudaMemPoolSetAttribute(pool_, which, &value), cudaSuccess);
    EXPECT_EQ(cudaMemPoolGetAttribute(pool_, which, &value), cudaSuccess);
    EXPECT_EQ(value, 1);
  }
}

TEST_F(PoolBehaviour, MemoryIsReservedInChunksAndUsedToTheByte)
{
  auto const before = free_memory();
  auto* const small = allocate(100);
  EXPECT_EQ(used(pool_), 100U);
  EXPECT_EQ(reserved(pool_), chunk);
  EXPECT_EQ(before - free_memory(), chunk);
  auto* const large = allocate(40 * MiB);
  EXPECT_EQ(used(pool_), 100 + 40 * MiB);
  EXPECT_EQ(reserved(pool_), 2 * chunk);
  EXPECT_EQ(cudaFreeAsync(small, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(large, stream_), cudaSuccess);
  EXPECT_EQ(used(pool_), 0U);
  synchronize();
  EXPECT_EQ(reserved(pool_), 0U);
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(get(pool_, cudaMemPoolAttrUsedMemHigh), 100 + 40 * MiB);
  EXPECT_EQ(get(pool_, cudaMemPoolAttrReservedMemHigh), 2 * chunk);
}

TEST_F(PoolBehaviour, ChunksAreAsManyAsNeeded)
{
  for (auto const& [bytes, expected] : {std::pair{chunk, chunk}, {chunk + 1, 2 * chunk}, {100 * MiB, 4 * chunk}}) {
    auto* const ptr = allocate(bytes);
    EXPECT_EQ(reserved(pool_), expected) << bytes;
    EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
    synchronize();
  }
}

TEST_F(PoolBehaviour, MemoryUpToTheThresholdIsKept)
{
  ASSERT_EQ(set(pool_, cudaMemPoolAttrReleaseThreshold, maximum), cudaSuccess);
  EXPECT_EQ(get(pool_, cudaMemPoolAttrReleaseThreshold), maximum);
  EXPECT_EQ(cudaFreeAsync(allocate(100), stream_), cudaSuccess);
  synchronize();
  EXPECT_EQ(reserved(pool_), chunk);
}

TEST_F(PoolBehaviour, MemoryAboveTheThresholdGoesWhenTheHostWaits)
{
  ASSERT_EQ(set(pool_, cudaMemPoolAttrReleaseThreshold, 40 * MiB), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(allocate(90 * MiB), stream_), cudaSuccess);
  EXPECT_EQ(reserved(pool_), 3 * chunk);
  synchronize();
  EXPECT_EQ(reserved(pool_), chunk);
}

TEST_F(PoolBehaviour, WaitingForAnEventGivesMemoryBackToo)
{
  cudaEvent_t event{};
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(allocate(100), stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(reserved(pool_), 0U);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(PoolBehaviour, TrimmingGivesUnusedChunksBack)
{
  ASSERT_EQ(set(pool_, cudaMemPoolAttrReleaseThreshold, maximum), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(allocate(60 * MiB), stream_), cudaSuccess);
  synchronize();
  auto* const ptr = allocate(1000);
  EXPECT_EQ(reserved(pool_), 2 * chunk);
  EXPECT_EQ(cudaMemPoolTrimTo(pool_, 33 * MiB), cudaSuccess);
  EXPECT_EQ(reserved(pool_), 2 * chunk) << "less than asked for would be left";
  EXPECT_EQ(cudaMemPoolTrimTo(pool_, chunk), cudaSuccess);
  EXPECT_EQ(reserved(pool_), chunk);
  EXPECT_EQ(cudaMemPoolTrimTo(pool_, 0), cudaSuccess);
  EXPECT_EQ(reserved(pool_), chunk) << "it is in use";
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  synchronize();
  EXPECT_EQ(cudaMemPoolTrimTo(pool_, 0), cudaSuccess);
  EXPECT_EQ(reserved(pool_), 0U);
  EXPECT_EQ(cudaMemPoolTrimTo(nullptr, 0), cudaErrorInvalidValue);
}

TEST_F(PoolBehaviour, CudaMallocTakesUnusedMemoryOfPools)
{
  ASSERT_EQ(set(pool_, cudaMemPoolAttrReleaseThreshold, maximum), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(allocate(900 * MiB), stream_), cudaSuccess);
  synchronize();
  EXPECT_GE(reserved(pool_), 900 * MiB);
  void* ptr = nullptr;
  EXPECT_EQ(cudaMalloc(&ptr, free_memory() + 800 * MiB), cudaSuccess);
  EXPECT_LT(reserved(pool_), 900 * MiB);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

TEST_F(PoolBehaviour, HighMarksCanBeSetBackToWhatIsHeld)
{
  auto* const kept = allocate(1000);
  EXPECT_EQ(cudaFreeAsync(allocate(40 * MiB), stream_), cudaSuccess);
  synchronize();
  EXPECT_EQ(set(pool_, cudaMemPoolAttrUsedMemHigh, 0), cudaSuccess);
  EXPECT_EQ(set(pool_, cudaMemPoolAttrReservedMemHigh, 0), cudaSuccess);
  EXPECT_EQ(get(pool_, cudaMemPoolAttrUsedMemHigh), 1000U);
  EXPECT_EQ(get(pool_, cudaMemPoolAttrReservedMemHigh), chunk);
  EXPECT_EQ(cudaFreeAsync(kept, stream_), cudaSuccess);
}

TEST_F(PoolBehaviour, OtherAttributesCannotBeSet)
{
  for (auto const which : {cudaMemPoolAttrUsedMemHigh,
                           cudaMemPoolAttrReservedMemHigh,
                           cudaMemPoolAttrUsedMemCurrent,
                           cudaMemPoolAttrReservedMemCurrent,
                           static_cast<cudaMemPoolAttr>(15)}) {
    EXPECT_EQ(set(pool_, which, 5), cudaErrorInvalidValue) << which;
  }
}

TEST_F(PoolBehaviour, AttributesAreThoseOfPools)
{
  std::uint64_t value = 0;
  EXPECT_EQ(cudaMemPoolGetAttribute(pool_, static_cast<cudaMemPoolAttr>(15), &value), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolGetAttribute(nullptr, cudaMemPoolAttrUsedMemHigh, &value), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolSetAttribute(nullptr, cudaMemPoolAttrReleaseThreshold, &value), cudaErrorInvalidValue);
}

// --- reuse ----------------------------------------------------------------------------------------------------------

TEST_F(PoolBehaviour, AStreamGetsItsOwnMemoryBackAtOnce)
{
  gate busy{stream_};
  auto* const first = allocate(3 * MiB);
  ASSERT_EQ(cudaFreeAsync(first, stream_), cudaSuccess);
  auto* const second = allocate(3 * MiB);
  EXPECT_EQ(first, second);
  ASSERT_EQ(cudaFreeAsync(second, stream_), cudaSuccess);
}

TEST_F(PoolBehaviour, AnotherStreamDoesNotGetMemoryInUse)
{
  auto* const first = allocate(20 * MiB);
  gate busy{stream_};
  ASSERT_EQ(cudaFreeAsync(first, stream_), cudaSuccess);
  auto* const second = allocate(20 * MiB, other_);
  EXPECT_NE(first, second);
  EXPECT_EQ(reserved(pool_), 2 * chunk);
  ASSERT_EQ(cudaFreeAsync(second, other_), cudaSuccess);
}

TEST_F(PoolBehaviour, AnotherStreamGetsMemoryThatNobodyUses)
{
  ASSERT_EQ(set(pool_, cudaMemPoolAttrReleaseThreshold, maximum), cudaSuccess);
  auto* const first = allocate(3 * MiB);
  ASSERT_EQ(cudaFreeAsync(first, stream_), cudaSuccess);
  synchronize();
  auto* const second = allocate(3 * MiB, other_);
  EXPECT_EQ(first, second);
  ASSERT_EQ(cudaFreeAsync(second, other_), cudaSuccess);
}

TEST_F(PoolBehaviour, AnotherStreamGetsMemoryThatAnEventOrdersBeforeIt)
{
  cudaEvent_t event{};
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  auto* const first = allocate(20 * MiB);
  gate busy{stream_};
  ASSERT_EQ(cudaFreeAsync(first, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event, 0), cudaSuccess);
  auto* const second = allocate(20 * MiB, other_);
  EXPECT_EQ(first, second);
  ASSERT_EQ(cudaFreeAsync(second, other_), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

// --- pools ----------------------------------------------------------------------------------------------------------

TEST_F(PoolBehaviour, EveryDeviceHasADefaultPoolThatIsCurrent)
{
  cudaMemPool_t default_pool{};
  cudaMemPool_t current{};
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&default_pool, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetMemPool(&current, 0), cudaSuccess);
  EXPECT_EQ(default_pool, current);
  EXPECT_NE(default_pool, nullptr);
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&default_pool, 77), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetMemPool(&current, 77), cudaErrorInvalidValue);
}

TEST_F(PoolBehaviour, TheDefaultPoolCannotBeDestroyed)
{
  cudaMemPool_t default_pool{};
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&default_pool, 0), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(default_pool), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolDestroy(nullptr), cudaErrorInvalidValue);
}

TEST_F(PoolBehaviour, PoolsNeedSensibleProperties)
{
  cudaMemPool_t made{};
  auto const make = [&](auto&& change) {
    auto wanted = plain_properties();
    change(wanted);
    return cudaMemPoolCreate(&made, &wanted);
  };
  EXPECT_EQ(cudaMemPoolCreate(&made, nullptr), cudaErrorInvalidValue);
  auto const wanted = plain_properties();
  EXPECT_EQ(cudaMemPoolCreate(nullptr, &wanted), cudaErrorInvalidValue);
  EXPECT_EQ(make([](auto& p) { p = {}; }), cudaErrorInvalidValue);
  EXPECT_EQ(make([](auto& p) { p.location = unknown_device; }), cudaErrorInvalidValue);
  EXPECT_EQ(make([](auto& p) { p.location.type = cudaMemLocationTypeInvalid; }), cudaErrorInvalidValue);
  EXPECT_EQ(make([](auto& p) { p.allocType = static_cast<cudaMemAllocationType>(9); }), cudaErrorInvalidValue);
  EXPECT_EQ(make([](auto& p) { p.handleTypes = cudaMemHandleTypeWin32Kmt; }), cudaErrorInvalidValue);
  EXPECT_EQ(make([](auto& p) { p.handleTypes = cudaMemHandleTypeWin32; }), cudaErrorInvalidValue);
  EXPECT_EQ(make([](auto& p) { p.reserved[0] = 1; }), cudaErrorInvalidValue);
}

TEST_F(PoolBehaviour, ThePoolOfADeviceCanBeChanged)
{
  cudaMemPool_t before{};
  cudaMemPool_t now{};
  void* ptr = nullptr;
  ASSERT_EQ(cudaDeviceGetMemPool(&before, 0), cudaSuccess);
  ASSERT_EQ(cudaDeviceSetMemPool(0, pool_), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetMemPool(&now, 0), cudaSuccess);
  EXPECT_EQ(now, pool_);
  EXPECT_EQ(cudaMallocAsync(&ptr, 100, stream_), cudaSuccess);
  EXPECT_EQ(used(pool_), 100U);
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  EXPECT_EQ(cudaDeviceSetMemPool(0, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceSetMemPool(77, pool_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceSetMemPool(0, before), cudaSuccess);
}

TEST_F(PoolBehaviour, DestroyingTheCurrentPoolMakesTheDefaultOneCurrent)
{
  auto* const made = make_pool();
  cudaMemPool_t default_pool{};
  cudaMemPool_t now{};
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&default_pool, 0), cudaSuccess);
  ASSERT_EQ(cudaDeviceSetMemPool(0, made), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(made), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetMemPool(&now, 0), cudaSuccess);
  EXPECT_EQ(now, default_pool);
}

TEST_F(PoolBehaviour, ADestroyedPoolLivesOnInItsBlocks)
{
  auto const before = free_memory();
  auto* const made  = make_pool();
  void* ptr         = nullptr;
  ASSERT_EQ(cudaMallocFromPoolAsync(&ptr, 1000, made, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(made), cudaSuccess);
  std::uint64_t value = 0;
  EXPECT_EQ(cudaMemPoolGetAttribute(made, cudaMemPoolAttrUsedMemCurrent, &value), cudaErrorInvalidValue);
  EXPECT_EQ(type_of(ptr), cudaMemoryTypeDevice);
  EXPECT_EQ(cudaMemsetAsync(ptr, 0, 1000, stream_), cudaSuccess);
  EXPECT_EQ(before - free_memory(), chunk);
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  synchronize();
  EXPECT_EQ(free_memory(), before);
}

TEST_F(PoolBehaviour, AMaximumIsRoundedUpToChunks)
{
  auto wanted      = plain_properties();
  wanted.maxSize   = 33 * MiB;
  auto* const made = make_pool(wanted);
  void* ptr        = nullptr;
  void* too_much   = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&ptr, 40 * MiB, made, stream_), cudaSuccess);
  EXPECT_EQ(cudaMallocFromPoolAsync(&too_much, 30 * MiB, made, stream_), cudaErrorMemoryAllocation);
  EXPECT_EQ(reserved(made), 2 * chunk);
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  synchronize();
  EXPECT_EQ(cudaMemPoolDestroy(made), cudaSuccess);
}

TEST_F(PoolBehaviour, DestroyingAPoolDoesNotWait)
{
  auto* const made = make_pool();
  gate busy{stream_};
  void* ptr = nullptr;
  ASSERT_EQ(cudaMallocFromPoolAsync(&ptr, 100, made, stream_), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(made), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
}

#if CUDART_VERSION >= 13000

TEST_F(PoolBehaviour, PlacesHavePoolsToo)
{
  auto where = device_0;
  cudaMemPool_t expected{};
  cudaMemPool_t found{};
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&expected, 0), cudaSuccess);
  EXPECT_EQ(cudaMemGetDefaultMemPool(&found, &where, cudaMemAllocationTypePinned), cudaSuccess);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(cudaMemSetMemPool(&where, cudaMemAllocationTypePinned, pool_), cudaSuccess);
  EXPECT_EQ(cudaMemGetMemPool(&found, &where, cudaMemAllocationTypePinned), cudaSuccess);
  EXPECT_EQ(found, pool_);
  EXPECT_EQ(cudaMemSetMemPool(&where, cudaMemAllocationTypePinned, expected), cudaSuccess);
}

TEST_F(PoolBehaviour, PlacesAreKnownOnes)
{
  auto where   = device_0;
  auto unknown = unknown_device;
  cudaMemPool_t found{};
  constexpr auto pinned = cudaMemAllocationTypePinned;
  EXPECT_EQ(cudaMemGetDefaultMemPool(&found, &unknown, pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemGetDefaultMemPool(nullptr, &where, pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemGetDefaultMemPool(&found, nullptr, pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemGetDefaultMemPool(&found, &where, cudaMemAllocationTypeInvalid), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemGetMemPool(&found, &where, static_cast<cudaMemAllocationType>(9)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemSetMemPool(&where, pinned, nullptr), cudaErrorInvalidValue);
}

#endif

// --- access ---------------------------------------------------------------------------------------------------------

TEST_F(PoolBehaviour, ADeviceHasAccessToItsOwnPool)
{
  auto where = device_0;
  cudaMemAccessFlags flags{};
  EXPECT_EQ(cudaMemPoolGetAccess(&flags, pool_, &where), cudaSuccess);
  EXPECT_EQ(flags, cudaMemAccessFlagsProtReadWrite);
}

TEST_F(PoolBehaviour, AccessIsForKnownDevices)
{
  cudaMemAccessDesc wanted{};
  wanted.location = device_0;
  wanted.flags    = cudaMemAccessFlagsProtReadWrite;
  EXPECT_EQ(cudaMemPoolSetAccess(pool_, &wanted, 1), cudaSuccess);
  EXPECT_EQ(cudaMemPoolSetAccess(pool_, &wanted, 0), cudaSuccess);
  EXPECT_EQ(cudaMemPoolSetAccess(nullptr, &wanted, 1), cudaErrorInvalidValue);
  wanted.flags = cudaMemAccessFlagsProtNone;
  EXPECT_EQ(cudaMemPoolSetAccess(pool_, &wanted, 1), cudaErrorInvalidDevice);
  wanted.flags = cudaMemAccessFlagsProtRead;
  EXPECT_EQ(cudaMemPoolSetAccess(pool_, &wanted, 1), cudaErrorNotSupported);
  wanted.flags    = cudaMemAccessFlagsProtReadWrite;
  wanted.location = unknown_device;
  EXPECT_EQ(cudaMemPoolSetAccess(pool_, &wanted, 1), cudaErrorInvalidDevice);
}

TEST_F(PoolBehaviour, AccessCanBeAskedOfKnownDevices)
{
  auto where   = device_0;
  auto unknown = unknown_device;
  cudaMemAccessFlags flags{};
  EXPECT_EQ(cudaMemPoolGetAccess(&flags, pool_, &unknown), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolGetAccess(&flags, pool_, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolGetAccess(&flags, nullptr, &where), cudaErrorInvalidValue);
}

// --- sharing --------------------------------------------------------------------------------------------------------

/// A pool that can be exported, and what it looks like imported again.
class SharedPool : public PoolBehaviour {
 protected:
  void SetUp() override
  {
    PoolBehaviour::SetUp();
    auto wanted        = plain_properties();
    wanted.handleTypes = posix;
    shared_            = make_pool(wanted);
    ASSERT_EQ(cudaMemPoolExportToShareableHandle(&descriptor_, shared_, posix, 0), cudaSuccess);
    ASSERT_EQ(cudaMemPoolImportFromShareableHandle(&imported_, handle(), posix, 0), cudaSuccess);
    ASSERT_EQ(cudaMallocFromPoolAsync(&ptr_, 100, shared_, stream_), cudaSuccess);
    synchronize();
    ASSERT_EQ(cudaMemPoolExportPointer(&data_, ptr_), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(::close(descriptor_), 0);
    EXPECT_EQ(cudaFreeAsync(ptr_, stream_), cudaSuccess);
    synchronize();
    EXPECT_EQ(cudaMemPoolDestroy(imported_), cudaSuccess);
    EXPECT_EQ(cudaMemPoolDestroy(shared_), cudaSuccess);
    PoolBehaviour::TearDown();
  }
  [[nodiscard]] void* handle() const { return reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor_)); }

  int descriptor_{-1};
  cudaMemPool_t shared_{};
  cudaMemPool_t imported_{};
  cudaMemPoolPtrExportData data_{};
  void* ptr_{};
};

TEST_F(SharedPool, ShowsTheSameBytes)
{
  void* view = nullptr;
  int value  = 0;
  ASSERT_EQ(cudaMemPoolImportPointer(&view, imported_, &data_), cudaSuccess);
  EXPECT_NE(view, ptr_);
  EXPECT_EQ(type_of(view), cudaMemoryTypeDevice);
  EXPECT_EQ(type_of(offset(view, 100)), cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaMemset(ptr_, 7, 100), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(&value, view, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 0x07070707);
  EXPECT_EQ(cudaFreeAsync(view, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(view, stream_), cudaErrorInvalidValue);
}

TEST_F(SharedPool, GivesAPointerTheSameAddressTwice)
{
  void* one = nullptr;
  void* two = nullptr;
  ASSERT_EQ(cudaMemPoolImportPointer(&one, imported_, &data_), cudaSuccess);
  ASSERT_EQ(cudaMemPoolImportPointer(&two, imported_, &data_), cudaSuccess);
  EXPECT_EQ(one, two);
  EXPECT_EQ(cudaFreeAsync(one, stream_), cudaSuccess);
}

TEST_F(SharedPool, CannotBeUsedAsAPoolWhereItIsImported)
{
  void* ptr           = nullptr;
  int other           = -1;
  std::uint64_t value = 0;
  EXPECT_EQ(cudaMallocFromPoolAsync(&ptr, 100, imported_, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolGetAttribute(imported_, cudaMemPoolAttrUsedMemCurrent, &value), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolTrimTo(imported_, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolExportToShareableHandle(&other, imported_, posix, 0), cudaErrorInvalidValue);
}

TEST_F(SharedPool, ImportsOnlyPointersOfItsOwn)
{
  void* view = nullptr;
  EXPECT_EQ(cudaMemPoolImportPointer(&view, shared_, &data_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolImportPointer(nullptr, imported_, &data_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolImportPointer(&view, imported_, nullptr), cudaErrorInvalidValue);
}

TEST_F(SharedPool, ExportsOnlyWholeBlocks)
{
  int on_stack         = 0;
  auto* const unshared = allocate(100);
  EXPECT_EQ(cudaMemPoolExportPointer(&data_, offset(ptr_, 4)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolExportPointer(&data_, &on_stack), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolExportPointer(&data_, unshared), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolExportPointer(nullptr, ptr_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(unshared, stream_), cudaSuccess);
}

TEST_F(SharedPool, IsExportedAsItWasMade)
{
  int other = -1;
  EXPECT_EQ(cudaMemPoolExportToShareableHandle(&other, pool_, posix, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolExportToShareableHandle(&other, shared_, posix, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolExportToShareableHandle(&other, shared_, cudaMemHandleTypeWin32, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolExportToShareableHandle(nullptr, shared_, posix, 0), cudaErrorInvalidValue);
}

TEST_F(SharedPool, ImportsNothingButPools)
{
  cudaMemPool_t other{};
  auto* const no_descriptor = reinterpret_cast<void*>(std::intptr_t{9999});
  EXPECT_EQ(cudaMemPoolImportFromShareableHandle(&other, no_descriptor, posix, 0), cudaErrorUnknown);
  EXPECT_EQ(cudaMemPoolImportFromShareableHandle(nullptr, handle(), posix, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolImportFromShareableHandle(&other, handle(), posix, 3), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolImportFromShareableHandle(&other, handle(), cudaMemHandleTypeWin32, 0), cudaErrorNotSupported);
}

// --- capture --------------------------------------------------------------------------------------------------------

class PoolInCapture : public PoolBehaviour {
 protected:
  void begin() const { ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess); }
  [[nodiscard]] cudaError_t end()
  {
    auto const error = cudaStreamEndCapture(stream_, &graph_);
    if (graph_ != nullptr) { EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess); }
    return error;
  }
  cudaGraph_t graph_{};
};

TEST_F(PoolInCapture, MemoryCanBeAllocatedAndFreed)
{
  void* ptr = nullptr;
  begin();
  EXPECT_EQ(cudaMallocAsync(&ptr, 100, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(ptr, 0, 100, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(PoolInCapture, TheGraphCanBeRunAgainAndAgain)
{
  void* ptr   = nullptr;
  void* place = nullptr;
  ASSERT_EQ(cudaMallocHost(&place, sizeof(int)), cudaSuccess);
  begin();
  ASSERT_EQ(cudaMallocAsync(&ptr, 100, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(ptr, 7, 100, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(place, ptr, sizeof(int), cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph_), cudaSuccess);
  cudaGraphExec_t exec{};
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph_, 0), cudaSuccess);
  for (int round = 0; round < 3; ++round) {
    std::memset(place, 0, sizeof(int));
    ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    synchronize();
    EXPECT_EQ(*static_cast<int*>(place), 0x07070707);
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(place), cudaSuccess);
}

TEST_F(PoolInCapture, MemoryFromOutsideCannotBeFreed)
{
  auto* const ptr = allocate(100);
  synchronize();
  begin();
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(ptr, stream_), cudaSuccess);
}

TEST_F(PoolInCapture, OtherStreamsMustNotAllocate)
{
  void* ptr = nullptr;
  begin();
  EXPECT_EQ(cudaMallocFromPoolAsync(&ptr, 100, pool_, other_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(PoolInCapture, PoolsMustNotBeMadeTrimmedOrAsked)
{
  cudaMemPool_t made{};
  std::uint64_t value = 0;
  auto const wanted   = plain_properties();
  begin();
  EXPECT_EQ(cudaMemPoolCreate(&made, &wanted), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_EQ(cudaMemPoolTrimTo(pool_, 0), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_EQ(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &value), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(PoolInCapture, TheDefaultPoolCanBeAskedFor)
{
  cudaMemPool_t found{};
  begin();
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&found, 0), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
}

}  // namespace
