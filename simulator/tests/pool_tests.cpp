// SPDX-License-Identifier: Apache-2.0
//
// What the simulator adds to stream-ordered pools: when things happen, which streams may reuse memory, and what is
// reported. The calls' own behaviour is tested in tests/cuda, on a real GPU as well.

#include "support.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>

// The twins for per-thread default streams. The headers declare them under other names only.
extern "C" {
cudaError_t cudaMallocAsync_ptsz(void**, std::size_t, cudaStream_t);
cudaError_t cudaFreeAsync_ptsz(void*, cudaStream_t);
cudaError_t cudaMallocFromPoolAsync_ptsz(void**, std::size_t, cudaMemPool_t, cudaStream_t);
}

namespace cudasim_tests {
namespace {

using cudasim::violation;

constexpr std::size_t MiB   = std::size_t{1} << 20U;
constexpr std::size_t chunk = 32 * MiB;
constexpr auto maximum      = std::numeric_limits<std::size_t>::max();

[[nodiscard]] cudaMemPoolProps properties_of(int device)
{
  cudaMemPoolProps wanted{};
  wanted.allocType     = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id   = device;
  return wanted;
}

/// A pool that is destroyed at the end of the scope.
class scoped_pool {
 public:
  explicit scoped_pool(cudaMemPoolProps const& wanted = properties_of(0))
  {
    EXPECT_EQ(cudaMemPoolCreate(&handle_, &wanted), cudaSuccess);
  }
  scoped_pool(scoped_pool const&)            = delete;
  scoped_pool& operator=(scoped_pool const&) = delete;
  ~scoped_pool() { EXPECT_EQ(cudaMemPoolDestroy(handle_), cudaSuccess); }
  operator cudaMemPool_t() const { return handle_; }

  void set(cudaMemPoolAttr which, std::uint64_t value) const
  {
    EXPECT_EQ(cudaMemPoolSetAttribute(handle_, which, &value), cudaSuccess);
  }
  [[nodiscard]] std::uint64_t get(cudaMemPoolAttr which) const
  {
    std::uint64_t value = 0;
    EXPECT_EQ(cudaMemPoolGetAttribute(handle_, which, &value), cudaSuccess);
    return value;
  }
  [[nodiscard]] std::uint64_t reserved() const { return get(cudaMemPoolAttrReservedMemCurrent); }
  [[nodiscard]] void* allocate(std::size_t bytes, cudaStream_t s) const
  {
    void* ptr = nullptr;
    EXPECT_EQ(cudaMallocFromPoolAsync(&ptr, bytes, handle_, s), cudaSuccess);
    return ptr;
  }

 private:
  cudaMemPool_t handle_{};
};

void free_async(void* ptr, cudaStream_t s) { EXPECT_EQ(cudaFreeAsync(ptr, s), cudaSuccess); }

void use(void* ptr, std::size_t bytes, cudaStream_t s)
{
  EXPECT_EQ(cudasim::launch(s, {}, {{ptr, bytes}}), cudaSuccess);
}

[[nodiscard]] unsigned char byte_at(void const* ptr) { return *static_cast<unsigned char const*>(ptr); }

/// Makes `later` wait for the present work of `earlier`.
void order(cudaStream_t earlier, cudaStream_t later)
{
  scoped_event const event;
  EXPECT_EQ(cudaEventRecord(event, earlier), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(later, event, 0), cudaSuccess);
}

/// Stepped execution with the checker on; a device has 64 MiB.
class StepwisePool : public Stepped {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    auto o         = Stepped::machine();
    o.memory_bytes = 64 * MiB;
    return o;
  }
};

class Pool : public Simulated {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.devices      = 2;
    o.memory_bytes = 256 * MiB;
    return o;
  }
};

// --- memory of the device -------------------------------------------------------------------------------------------

TEST_F(Pool, CountsAsReservedByPools)
{
  scoped_stream const s;
  scoped_pool const pool;
  auto* const ptr = pool.allocate(100, s);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, chunk);
  EXPECT_EQ(cudasim::usage(0).free, 256 * MiB - chunk);
  free_async(ptr, s);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
}

TEST_F(Pool, UsesTheLastBlocksOfADevice)
{
  scoped_stream const s;
  scoped_pool const pool;
  ASSERT_TRUE(cudasim::occupy(0, 214 * MiB));
  auto* const ptr = pool.allocate(41 * MiB, s);
  EXPECT_EQ(pool.reserved(), 42 * MiB);
  EXPECT_EQ(cudasim::usage(0).free, 0U);
  free_async(ptr, s);
}

TEST_F(Pool, TakesUnusedMemoryOfOtherPools)
{
  scoped_stream const s;
  scoped_pool const rich;
  scoped_pool const poor;
  rich.set(cudaMemPoolAttrReleaseThreshold, maximum);
  free_async(rich.allocate(200 * MiB, s), s);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_GE(rich.reserved(), 200 * MiB);
  auto* const ptr = poor.allocate(200 * MiB, s);
  EXPECT_LT(rich.reserved(), 60 * MiB);
  free_async(ptr, s);
}

TEST_F(Pool, ReportsWhenNoRoomIsLeft)
{
  scoped_stream const s;
  scoped_pool const pool;
  void* ptr = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&ptr, 257 * MiB, pool, s), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocFromPoolAsync(&ptr, maximum - 1, pool, s), cudaErrorMemoryAllocation);
  EXPECT_EQ(pool.reserved(), 0U);
  EXPECT_TRUE(cudasim::violations().empty());
}

TEST_F(Pool, MayHaveAMaximumThatNoDeviceHas)
{
  scoped_stream const s;
  auto wanted    = properties_of(0);
  wanted.maxSize = maximum;
  scoped_pool const pool{wanted};
  free_async(pool.allocate(100 * MiB, s), s);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

TEST_F(Pool, IsOfTheStreamsDevice)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    scoped_stream const s;
    void* ptr = nullptr;
    EXPECT_EQ(cudaMallocAsync(&ptr, 100, s), cudaSuccess);
    EXPECT_EQ(cudasim::usage(1).reserved_by_pools, chunk);
    free_async(ptr, s);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(Pool, CanHoldHostMemory)
{
  scoped_stream const s;
  auto wanted          = properties_of(0);
  wanted.location.type = cudaMemLocationTypeHost;
  scoped_pool const pool{wanted};
  auto* const ptr = pool.allocate(100, s);
  cudaPointerAttributes found{};
  EXPECT_EQ(cudaPointerGetAttributes(&found, ptr), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeHost);
  EXPECT_EQ(found.hostPointer, ptr);
  EXPECT_EQ(found.devicePointer, nullptr);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
  free_async(ptr, s);
}

#if CUDART_VERSION >= 13000

TEST_F(Pool, CanHoldManagedMemory)
{
  scoped_stream const s;
  auto wanted      = properties_of(0);
  wanted.allocType = cudaMemAllocationTypeManaged;
  scoped_pool const pool{wanted};
  auto* const ptr = pool.allocate(100, s);
  cudaPointerAttributes found{};
  EXPECT_EQ(cudaPointerGetAttributes(&found, ptr), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeManaged);
  EXPECT_EQ(found.devicePointer, ptr);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
  EXPECT_EQ(cudasim::launch(s, {}, {{ptr, 100}}), cudaSuccess) << "every device may use it";
  free_async(ptr, s);
}

TEST_F(Pool, OfAPlaceHasToBeOfThatPlace)
{
  scoped_pool const of_device_0;
  cudaMemLocation where{cudaMemLocationTypeHost, 0};
  EXPECT_EQ(cudaMemSetMemPool(&where, cudaMemAllocationTypePinned, of_device_0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceSetMemPool(1, of_device_0), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
}

#endif

// --- contents -------------------------------------------------------------------------------------------------------

TEST_F(Pool, HandsOutMemoryThatIsNotZero)
{
  scoped_stream const s;
  scoped_pool const pool;
  auto* const ptr = pool.allocate(100, s);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(byte_at(ptr), 0xcd);
  free_async(ptr, s);
}

TEST_F(StepwisePool, OverwritesABlockWhenTheStreamGetsToTheFree)
{
  scoped_stream const s;
  scoped_pool const pool;
  auto* const ptr   = pool.allocate(100, s);
  auto* const other = pool.allocate(100, s);
  EXPECT_EQ(cudasim::launch(s, {}, {{ptr, 1}}, [ptr] { std::memset(ptr, 42, 1); }), cudaSuccess);
  free_async(ptr, s);
  cudasim::step(s);
  cudasim::step(s);
  cudasim::step(s);
  EXPECT_EQ(byte_at(ptr), 42);
  cudasim::step(s);
  EXPECT_EQ(byte_at(ptr), 0xdd);
  free_async(other, s);
}

TEST_F(StepwisePool, DoesNotLetAFormerOwnerOverwriteItsSuccessor)
{
  scoped_stream const s;
  scoped_pool const pool;
  auto* const first = pool.allocate(100, s);
  free_async(first, s);
  auto* const second = pool.allocate(100, s);
  ASSERT_EQ(first, second);
  EXPECT_EQ(cudasim::launch(s, {}, {{second, 1}}, [second] { std::memset(second, 42, 1); }), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(byte_at(second), 42);
  free_async(second, s);
}

// --- reuse ----------------------------------------------------------------------------------------------------------

TEST_F(StepwisePool, FollowsEventsThroughOtherStreams)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_stream const three;
  scoped_pool const pool;
  auto* const first = pool.allocate(20 * MiB, one);
  free_async(first, one);
  order(one, two);
  order(two, three);
  auto* const second = pool.allocate(20 * MiB, three);
  EXPECT_EQ(first, second);
  use(second, 100, three);
  free_async(second, three);
}

TEST_F(StepwisePool, DoesNotFollowEventsRecordedBeforeTheFree)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  auto* const first = pool.allocate(20 * MiB, one);
  order(one, two);
  free_async(first, one);
  auto* const second = pool.allocate(20 * MiB, two);
  EXPECT_NE(first, second);
  free_async(second, two);
}

TEST_F(StepwisePool, FollowsTheRulesOfTheDefaultStream)
{
  scoped_stream const blocking{cudaStreamDefault};
  scoped_pool const pool;
  auto* const first = pool.allocate(20 * MiB, blocking);
  free_async(first, blocking);
  auto* const second = pool.allocate(20 * MiB, cudaStreamLegacy);
  EXPECT_EQ(first, second);
  use(second, 100, cudaStreamLegacy);
  free_async(second, cudaStreamLegacy);
  auto* const third = pool.allocate(20 * MiB, blocking);
  EXPECT_EQ(first, third);
  free_async(third, blocking);
}

TEST_F(StepwisePool, DoesNotFollowEventsIfToldNotTo)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  pool.set(cudaMemPoolReuseFollowEventDependencies, 0);
  auto* const first = pool.allocate(20 * MiB, one);
  free_async(first, one);
  order(one, two);
  auto* const second = pool.allocate(20 * MiB, two);
  EXPECT_NE(first, second);
  free_async(second, two);
}

TEST_F(StepwisePool, ReusesWhatIsCompleteUnlessToldNotTo)
{
  for (bool const allowed : {true, false}) {
    scoped_stream const one;
    scoped_stream const two;
    scoped_pool const pool;
    pool.set(cudaMemPoolReuseAllowOpportunistic, allowed ? 1 : 0);
    auto* const first = pool.allocate(20 * MiB, one);
    use(first, 100, one);
    free_async(first, one);
    cudasim::run_until_idle();  // complete, but the host does not know
    auto* const second = pool.allocate(20 * MiB, two);
    EXPECT_EQ(first == second, allowed);
    use(second, 100, two);
    free_async(second, two);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

TEST_F(StepwisePool, WaitsForAnotherStreamWhenMemoryIsShort)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  auto* const first = pool.allocate(60 * MiB, one);
  use(first, 100, one);
  free_async(first, one);
  auto* const second = pool.allocate(60 * MiB, two);
  EXPECT_EQ(first, second);
  use(second, 100, two);
  EXPECT_FALSE(cudasim::step(two)) << "the stream has to wait for the other";
  EXPECT_EQ(cudaStreamSynchronize(two), cudaSuccess);
  EXPECT_EQ(cudasim::pending(one), 0U);
  free_async(second, two);
}

TEST_F(StepwisePool, JoinsWhatSeveralStreamsFreedWhenMemoryIsShort)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_stream const three;
  scoped_pool const pool;
  auto* const left  = pool.allocate(30 * MiB, one);
  auto* const right = pool.allocate(30 * MiB, two);
  free_async(left, one);
  free_async(right, two);
  auto* const all = pool.allocate(60 * MiB, three);
  EXPECT_EQ(cudaStreamSynchronize(three), cudaSuccess);
  EXPECT_EQ(cudasim::pending(one) + cudasim::pending(two), 0U);
  free_async(all, three);
}

TEST_F(StepwisePool, RunsOutOfMemoryRatherThanWaitIfToldSo)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  pool.set(cudaMemPoolReuseAllowInternalDependencies, 0);
  void* second = nullptr;
  free_async(pool.allocate(60 * MiB, one), one);
  EXPECT_EQ(cudaMallocFromPoolAsync(&second, 60 * MiB, pool, two), cudaErrorMemoryAllocation);
}

TEST_F(StepwisePool, JoinsOwnAndCompleteMemoryBeforeItGrows)
{
  scoped_stream const s;
  scoped_pool const pool;
  auto* const left  = pool.allocate(10 * MiB, s);
  auto* const right = pool.allocate(10 * MiB, s);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  free_async(left, s);
  free_async(right, s);
  auto* const all = pool.allocate(30 * MiB, s);
  EXPECT_EQ(left, all);
  EXPECT_EQ(pool.reserved(), chunk);
  free_async(all, s);
}

TEST_F(StepwisePool, KeepsFreedMemoryBackWhileAStreamMayUseIt)
{
  scoped_stream const s;
  scoped_pool const pool;
  free_async(pool.allocate(100, s), s);
  EXPECT_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
  EXPECT_EQ(pool.reserved(), chunk);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(pool.reserved(), 0U);
}

TEST_F(StepwisePool, GetsMemoryBackFromAStreamThatNeverRests)
{
  scoped_stream const restless;
  scoped_stream const other;
  scoped_pool const pool;
  auto* const first = pool.allocate(20 * MiB, restless);
  free_async(first, restless);
  cudasim::run_until_idle();
  auto* const busy = pool.allocate(1 * MiB, restless);  // takes some of the freed memory
  free_async(busy, restless);
  auto* const second = pool.allocate(30 * MiB, other);
  EXPECT_EQ(pool.reserved(), 2 * chunk) << "1 MiB of the first chunk is not complete";
  free_async(second, other);
}

TEST_F(StepwisePool, KeepsADestroyedPoolUntilItsStreamsAreThrough)
{
  scoped_stream const s;
  {
    scoped_pool const pool;
    free_async(pool.allocate(100, s), s);
  }
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, chunk);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
}

TEST_F(Pool, GoesWithItsLastBlockOnceItIsDestroyed)
{
  scoped_stream const s;
  for (bool const in_stream_order : {true, false}) {
    void* ptr = nullptr;
    {
      scoped_pool const pool;
      ptr = pool.allocate(100, s);
      EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    }
    EXPECT_EQ(cudasim::usage(0).reserved_by_pools, chunk);
    EXPECT_EQ(in_stream_order ? cudaFreeAsync(ptr, s) : cudaFree(ptr), cudaSuccess);
    EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
  }
}

TEST_F(StepwisePool, LetsFreedMemoryOutliveTheStream)
{
  scoped_pool const pool;
  {
    scoped_stream const s;
    free_async(pool.allocate(100, s), s);
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(pool.reserved(), 0U);
}

TEST_F(StepwisePool, CudaFreeKeepsABlockFromOthersUntilItsAllocationIsThrough)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  auto* const first = pool.allocate(20 * MiB, one);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::race), 1U) << "nothing orders the allocation before cudaFree";
  auto* const second = pool.allocate(20 * MiB, two);
  EXPECT_NE(first, second);
  free_async(second, two);
}

// --- the ordering checker -------------------------------------------------------------------------------------------

TEST_F(StepwisePool, ReportsUseOnAStreamThatIsNotOrderedAfterTheAllocation)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  auto* const ptr = pool.allocate(100, one);
  use(ptr, 100, two);
  EXPECT_EQ(take_count(violation::kind::race), 1U);
  order(two, one);
  free_async(ptr, one);
}

TEST_F(StepwisePool, ReportsAFreeThatIsNotOrderedAfterTheUse)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  auto* const ptr = pool.allocate(100, one);
  order(one, two);
  use(ptr, 100, two);
  free_async(ptr, one);
  EXPECT_EQ(take_count(violation::kind::race), 1U);
}

TEST_F(StepwisePool, AcceptsUseThatEventsOrder)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  auto* const ptr = pool.allocate(100, one);
  order(one, two);
  use(ptr, 100, two);
  order(two, one);
  free_async(ptr, one);
  EXPECT_TRUE(cudasim::violations().empty());
}

TEST_F(StepwisePool, ReportsUseAfterTheFreeEvenOnTheSameStream)
{
  scoped_stream const s;
  scoped_pool const pool;
  auto* const ptr = pool.allocate(100, s);
  free_async(ptr, s);
  use(ptr, 100, s);
  auto const found = take_violations();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, violation::kind::use_after_free);
  EXPECT_NE(found[0].text.find("cudaFreeAsync gave back"), std::string::npos) << found[0].text;
}

TEST_F(StepwisePool, ReportsUseOfMemoryThatCudaFreeAsyncIsAboutToGiveBack)
{
  scoped_stream const s;
  void* ptr = nullptr;
  ASSERT_EQ(cudaMalloc(&ptr, 100), cudaSuccess);
  free_async(ptr, s);
  use(ptr, 100, s);
  EXPECT_EQ(take_count(violation::kind::use_after_free), 1U);
  EXPECT_EQ(cudaFreeAsync(ptr, s), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  EXPECT_TRUE(cudasim::leak_report().find("cudaMalloc") == std::string::npos);
}

TEST_F(StepwisePool, ForgetsWhoFreedMemoryThatCudaMallocHandsOutAgain)
{
  scoped_stream const one;
  scoped_stream const two;
  std::set<void*> seen;
  for (int round = 0; round < 100; ++round) {
    void* ptr = nullptr;
    ASSERT_EQ(cudaMalloc(&ptr, 2 * MiB), cudaSuccess);
    seen.insert(ptr);
    auto* const s = round % 3 == 0 ? static_cast<cudaStream_t>(one) : static_cast<cudaStream_t>(two);
    use(ptr, 100, s);
    free_async(ptr, s);
    cudasim::run_until_idle();  // complete, but the host does not know
  }
  EXPECT_LT(seen.size(), 100U) << "addresses have to come back for this test to mean something";
  EXPECT_TRUE(cudasim::violations().empty());
}

TEST_F(StepwisePool, ReportsAFormerOwnerThatGoesOn)
{
  scoped_stream const one;
  scoped_stream const two;
  scoped_pool const pool;
  auto* const first = pool.allocate(20 * MiB, one);
  free_async(first, one);
  cudasim::run_until_idle();
  auto* const second = pool.allocate(20 * MiB, two);
  ASSERT_EQ(first, second);
  use(first, 100, one);  // the memory is the other stream's now
  EXPECT_EQ(take_count(violation::kind::race), 1U);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  free_async(second, two);
}

TEST_F(Pool, AsksForAccessOfPeers)
{
  scoped_pool const pool;
  cudaMemAccessDesc wanted{};
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id   = 1;
  scoped_stream const here;
  auto* const ptr = pool.allocate(100, here);
  EXPECT_EQ(cudaStreamSynchronize(here), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    scoped_stream const there;
    use(ptr, 100, there);
    EXPECT_EQ(take_count(violation::kind::misuse), 1U);
    wanted.flags = cudaMemAccessFlagsProtReadWrite;
    EXPECT_EQ(cudaMemPoolSetAccess(pool, &wanted, 1), cudaSuccess);
    cudaMemAccessFlags found{};
    EXPECT_EQ(cudaMemPoolGetAccess(&found, pool, &wanted.location), cudaSuccess);
    EXPECT_EQ(found, cudaMemAccessFlagsProtReadWrite);
    use(ptr, 100, there);
    EXPECT_TRUE(cudasim::violations().empty());
    wanted.flags = cudaMemAccessFlagsProtNone;
    EXPECT_EQ(cudaMemPoolSetAccess(pool, &wanted, 1), cudaSuccess);
    use(ptr, 100, there);
    EXPECT_EQ(take_count(violation::kind::misuse), 1U);
    EXPECT_EQ(cudaStreamSynchronize(there), cudaSuccess);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  free_async(ptr, here);
}

// --- ledger ---------------------------------------------------------------------------------------------------------

TEST_F(Pool, IsListedUntilItIsDestroyed)
{
  auto const wanted = properties_of(1);
  cudaMemPool_t pool{};
  ASSERT_EQ(cudaMemPoolCreate(&pool, &wanted), cudaSuccess);
  auto const all = cudasim::ledger();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].made_by, "cudaMemPoolCreate");
  EXPECT_EQ(all[0].freed_by, "cudaMemPoolDestroy");
  EXPECT_EQ(all[0].handle, pool);
  EXPECT_EQ(all[0].device, 1);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

// --- graphs ---------------------------------------------------------------------------------------------------------

/// A pool, and a stream that captures.
class GraphMemory : public Pool {
 protected:
  void begin() const { ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), cudaSuccess); }
  [[nodiscard]] cudaGraph_t end() const
  {
    cudaGraph_t graph{};
    EXPECT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
    return graph;
  }
  [[nodiscard]] void* allocate() const
  {
    void* ptr = nullptr;
    EXPECT_EQ(cudaMallocAsync(&ptr, 1000, stream()), cudaSuccess);
    return ptr;
  }
  void run(cudaGraph_t graph) const
  {
    cudaGraphExec_t exec{};
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(exec, stream()), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  }
  [[nodiscard]] cudaStream_t stream() const { return *stream_; }

  void SetUp() override
  {
    Pool::SetUp();
    stream_.emplace();
  }
  void TearDown() override
  {
    stream_.reset();
    EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
    Pool::TearDown();
  }

 private:
  std::optional<scoped_stream> stream_;
};

TEST_F(GraphMemory, BelongsToTheGraphUntilThatIsGone)
{
  begin();
  free_async(allocate(), stream());
  auto* const graph = end();
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, chunk);
  EXPECT_EQ(cudasim::ledger().size(), 2U) << "the stream and the graph: " << cudasim::leak_report();
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
}

TEST_F(GraphMemory, GoesWithACaptureThatFails)
{
  begin();
  free_async(allocate(), stream());
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(stream(), &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
}

TEST_F(GraphMemory, StaysWithTheProgramIfTheGraphDoesNotFreeIt)
{
  begin();
  auto* const ptr   = allocate();
  auto* const graph = end();
  run(graph);
  EXPECT_NE(cudasim::leak_report().find("cudaFreeAsync"), std::string::npos);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  use(ptr, 1000, stream());
  EXPECT_TRUE(cudasim::violations().empty());
  free_async(ptr, stream());
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(ptr, stream()), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

TEST_F(GraphMemory, CanBeFreedByCudaFreeBetweenLaunches)
{
  begin();
  auto* const ptr   = allocate();
  auto* const graph = end();
  EXPECT_EQ(cudaFree(ptr), cudaErrorInvalidValue) << "no launch has allocated it";
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  run(graph);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_EQ(cudaFree(ptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  run(graph);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphMemory, IsFreedOnceInItsOwnGraph)
{
  begin();
  auto* const ptr = allocate();
  free_async(ptr, stream());
  EXPECT_EQ(cudaFreeAsync(ptr, stream()), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  auto* const graph = end();
  scoped_stream const other;
  ASSERT_EQ(cudaStreamBeginCapture(other, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(ptr, other), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  cudaGraph_t empty{};
  EXPECT_EQ(cudaStreamEndCapture(other, &empty), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(empty), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GraphMemory, RunsOutLikeAnyOther)
{
  void* ptr = nullptr;
  begin();
  EXPECT_EQ(cudaMallocAsync(&ptr, 300 * MiB, stream()), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGraphDestroy(end()), cudaSuccess);
}

// --- twins ----------------------------------------------------------------------------------------------------------

TEST_F(StepwisePool, TheTwinsUseThePerThreadStream)
{
  scoped_pool const pool;
  void* one = nullptr;
  void* two = nullptr;
  EXPECT_EQ(cudaMallocAsync_ptsz(&one, 100, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMallocFromPoolAsync_ptsz(&two, 100, pool, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync_ptsz(one, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync_ptsz(two, nullptr), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamPerThread), 4U);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 0U);
}

}  // namespace
}  // namespace cudasim_tests
