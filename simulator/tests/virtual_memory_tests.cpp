// SPDX-License-Identifier: Apache-2.0
//
// What the simulator adds to the driver's virtual memory management. The functions' own behaviour is tested in
// tests/cuda, on a real GPU as well.

#include "support.hpp"

#include <cuda.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

namespace cudasim_tests {
namespace {

using cudasim::violation;

constexpr std::size_t MiB   = std::size_t{1} << 20U;
constexpr std::size_t chunk = 2 * MiB;

template <class Function>
[[nodiscard]] Function* entry(char const* name)
{
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status), cudaSuccess) << name;
  return reinterpret_cast<Function*>(found);
}

#define DRIVER_FUNCTION(name) \
  decltype(&::name) name##_ { entry<decltype(::name)>(#name) }

[[nodiscard]] char* pointer(CUdeviceptr address) { return reinterpret_cast<char*>(address); }

/// Two devices of 64 MiB, and a reservation of 64 MiB.
class SimulatedVirtualMemory : public Stepped {
 protected:
  static constexpr std::size_t reserved = 32 * chunk;

  DRIVER_FUNCTION(cuMemAddressReserve);
  DRIVER_FUNCTION(cuMemAddressFree);
  DRIVER_FUNCTION(cuMemCreate);
  DRIVER_FUNCTION(cuMemRelease);
  DRIVER_FUNCTION(cuMemMap);
  DRIVER_FUNCTION(cuMemUnmap);
  DRIVER_FUNCTION(cuMemSetAccess);
  DRIVER_FUNCTION(cuMemGetAccess);
  DRIVER_FUNCTION(cuMemExportToShareableHandle);

  [[nodiscard]] cudasim::options machine() const override
  {
    auto o         = Stepped::machine();
    o.memory_bytes = 64 * MiB;
    return o;
  }
  void SetUp() override
  {
    Stepped::SetUp();
    ASSERT_EQ(cuMemAddressReserve_(&begin_, reserved, 0, 0, 0), CUDA_SUCCESS);
  }
  void TearDown() override
  {
    EXPECT_EQ(cuMemAddressFree_(begin_, reserved), CUDA_SUCCESS);
    EXPECT_EQ(cudasim::usage(0).physical, 0U);
    Stepped::TearDown();
  }
  [[nodiscard]] static CUmemAllocationProp properties(int device = 0)
  {
    CUmemAllocationProp wanted{};
    wanted.type          = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id   = device;
    return wanted;
  }
  [[nodiscard]] CUmemGenericAllocationHandle create(std::size_t bytes, CUmemAllocationProp const& wanted = properties())
  {
    CUmemGenericAllocationHandle made{};
    EXPECT_EQ(cuMemCreate_(&made, bytes, &wanted, 0), CUDA_SUCCESS);
    return made;
  }
  void give_access(CUdeviceptr where, std::size_t bytes, int device = 0)
  {
    CUmemAccessDesc wanted{};
    wanted.location = properties(device).location;
    wanted.flags    = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(cuMemSetAccess_(where, bytes, &wanted, 1), CUDA_SUCCESS);
  }
  /// Maps a new chunk, which lives as long as the mapping.
  void map(CUdeviceptr where, std::size_t bytes)
  {
    auto const made = create(bytes);
    EXPECT_EQ(cuMemMap_(where, bytes, 0, made, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
    give_access(where, bytes);
  }
  CUdeviceptr begin_{};
};

// --- memory of the device -------------------------------------------------------------------------------------------

TEST_F(SimulatedVirtualMemory, CountsAsPhysicalMemory)
{
  map(begin_, 8 * chunk);
  auto const u = cudasim::usage(0);
  EXPECT_EQ(u.physical, 8 * chunk);
  EXPECT_EQ(u.total, u.free + u.physical);
  EXPECT_EQ(cuMemUnmap_(begin_, 8 * chunk), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, IsLimitedByTheDevice)
{
  map(begin_, 31 * chunk);
  CUmemGenericAllocationHandle made{};
  auto const wanted = properties();
  EXPECT_EQ(cuMemCreate_(&made, 2 * chunk, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  map(begin_ + 31 * chunk, chunk);
  EXPECT_EQ(cudasim::usage(0).free, 0U);
  EXPECT_TRUE(cudasim::violations().empty());
  EXPECT_EQ(cuMemUnmap_(begin_, reserved), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, TakesUnusedMemoryOfPools)
{
  cudaMemPool_t pool{};
  void* ptr           = nullptr;
  std::uint64_t value = 1U << 30U;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  ASSERT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&ptr, 100, nullptr), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(ptr, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_GT(cudasim::usage(0).reserved_by_pools, 0U);
  map(begin_, reserved);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
  EXPECT_EQ(cuMemUnmap_(begin_, reserved), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, GrowsInPlaceBehindAHint)
{
  CUdeviceptr wide{};
  CUdeviceptr high{};
  ASSERT_EQ(cuMemAddressReserve_(&wide, 4 * chunk, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressReserve_(&high, chunk, 0, wide + 4 * chunk, 0), CUDA_SUCCESS);
  EXPECT_EQ(high, wide + 4 * chunk);
  EXPECT_EQ(cuMemAddressFree_(wide, 4 * chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree_(high, chunk), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, MapsThousandsOfChunks)
{
  constexpr std::size_t count = 5'000;
  auto const options          = [&] {
    auto o         = machine();
    o.memory_bytes = count * chunk;
    return o;
  }();
  cudasim::reset(options);
  CUdeviceptr wide{};
  ASSERT_EQ(cuMemAddressReserve_(&wide, count * chunk, 0, 0, 0), CUDA_SUCCESS);
  for (std::size_t i = 0; i < count; ++i) {
    auto const made = create(chunk);
    ASSERT_EQ(cuMemMap_(wide + (count - 1 - i) * chunk, chunk, 0, made, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  }
  give_access(wide, count * chunk);
  pointer(wide)[count * chunk - 1] = 1;
  EXPECT_EQ(cudasim::usage(0).free, 0U);
  EXPECT_EQ(cuMemUnmap_(wide, count * chunk), CUDA_SUCCESS);
  EXPECT_EQ(cudasim::usage(0).free, count * chunk);
  EXPECT_EQ(cuMemAddressFree_(wide, count * chunk), CUDA_SUCCESS);
  cudasim::reset(machine());
  ASSERT_EQ(cuMemAddressReserve_(&begin_, reserved, 0, 0, 0), CUDA_SUCCESS);
}

// --- reports --------------------------------------------------------------------------------------------------------

TEST_F(SimulatedVirtualMemory, AcceptsWorkThatCrossesChunks)
{
  map(begin_, chunk);
  map(begin_ + chunk, chunk);
  EXPECT_EQ(cudasim::launch(nullptr, {}, {{pointer(begin_), 2 * chunk}}), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuMemUnmap_(begin_, 2 * chunk), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, ReportsWorkThatRunsIntoAHole)
{
  map(begin_, chunk);
  map(begin_ + 2 * chunk, chunk);
  EXPECT_EQ(cudasim::launch(nullptr, {{pointer(begin_), 3 * chunk}}, {}), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::out_of_bounds), 1U);
  EXPECT_EQ(cudasim::launch(nullptr, {{pointer(begin_ + chunk), 1}}, {}), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::out_of_bounds), 1U);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuMemUnmap_(begin_, 3 * chunk), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, ReportsWorkWithoutAccess)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(cudaMemset(pointer(begin_), 0, 1), cudaErrorInvalidValue);
  auto const found = take_violations();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].text.find("cuMemSetAccess"), std::string::npos) << found[0].text;
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, ReportsWorkOfADeviceWithoutAccess)
{
  map(begin_, chunk);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudasim::launch(nullptr, {{pointer(begin_), 1}}, {}), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  give_access(begin_, chunk, 1);
  EXPECT_EQ(cudasim::launch(nullptr, {{pointer(begin_), 1}}, {}), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, ReportsWorkOnUnmappedMemory)
{
  map(begin_, chunk);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cudasim::launch(nullptr, {{pointer(begin_), 1}}, {}), cudaSuccess);
  auto const found = take_violations();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, violation::kind::use_after_free);
  EXPECT_NE(found[0].text.find("cuMemUnmap"), std::string::npos) << found[0].text;
}

TEST_F(SimulatedVirtualMemory, ReportsWorkOnAddressesThatWereFreed)
{
  CUdeviceptr other{};
  ASSERT_EQ(cuMemAddressReserve_(&other, chunk, 0, 0, 0), CUDA_SUCCESS);
  map(other, chunk);
  EXPECT_EQ(cuMemUnmap_(other, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree_(other, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cudaMemset(pointer(other), 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::use_after_free), 1U);
}

TEST_F(SimulatedVirtualMemory, ReportsUnmappingUnderRunningWorkAndWaits)
{
  map(begin_, chunk);
  scoped_stream const s;
  scoped_stream const other;
  EXPECT_EQ(cudasim::launch(s, {}, {{pointer(begin_), 8}}, [this] { std::memset(pointer(begin_), 1, 8); }),
            cudaSuccess);
  EXPECT_EQ(cudasim::launch(other, {}, {}), cudaSuccess);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  EXPECT_EQ(cudasim::pending(s), 0U);
  EXPECT_EQ(cudasim::pending(other), 1U) << "work that does not use the memory is left alone";
}

TEST_F(SimulatedVirtualMemory, ReportsUnmappingThatNothingOrders)
{
  map(begin_, chunk);
  scoped_stream const s;
  EXPECT_EQ(cudasim::launch(s, {}, {{pointer(begin_), 8}}), cudaSuccess);
  cudasim::run_until_idle();  // complete, but the host does not know
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(take_count(violation::kind::race), 1U);
}

TEST_F(SimulatedVirtualMemory, ForgetsTheWorkOfFormerMappings)
{
  scoped_stream const one;
  scoped_stream const two;
  map(begin_, chunk);
  EXPECT_EQ(cudasim::launch(one, {}, {{pointer(begin_), 8}}), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(one), cudaSuccess);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  map(begin_, chunk);
  EXPECT_EQ(cudasim::launch(two, {}, {{pointer(begin_), 8}}), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  EXPECT_EQ(cudaStreamSynchronize(two), cudaSuccess);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, RefusesReleasedHandles)
{
  auto const made = create(chunk);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
}

TEST_F(SimulatedVirtualMemory, RefusesHandlesThatOnlyAMappingKeepsAlive)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap_(begin_ + chunk, chunk, 0, made, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, RefusesMappingsThatLeaveTheReservation)
{
  auto const made = create(4 * chunk);
  EXPECT_EQ(cuMemMap_(begin_ + 30 * chunk, 4 * chunk, 0, made, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap_(begin_ + 4096, 4 * chunk, 0, made, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, HasNoFabric)
{
  auto wanted                 = properties();
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  CUmemGenericAllocationHandle made{};
  EXPECT_EQ(cuMemCreate_(&made, chunk, &wanted, 0), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_TRUE(cudasim::violations().empty()) << "programs ask to find out";
}

// --- ledger ---------------------------------------------------------------------------------------------------------

TEST_F(SimulatedVirtualMemory, ListsReservationsHandlesAndMappings)
{
  auto const made = create(chunk);
  ASSERT_EQ(cuMemMap_(begin_, chunk, 0, made, 0), CUDA_SUCCESS);
  std::vector<std::string> found;
  for (auto const& o : cudasim::ledger()) {
    found.push_back(o.made_by + " " + o.freed_by + " " + std::to_string(o.bytes));
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found,
            (std::vector<std::string>{"cuMemAddressReserve cuMemAddressFree 67108864",
                                      "cuMemCreate cuMemRelease 2097152",
                                      "cuMemMap cuMemUnmap 2097152"}));
  EXPECT_EQ(cuMemUnmap_(begin_, chunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease_(made), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, GoesWithTheDeviceThatIsReset)
{
  map(begin_, chunk);
  auto const made = create(chunk);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
  EXPECT_EQ(cuMemRelease_(made), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

// --- faults and the runtime's last error ----------------------------------------------------------------------------

TEST_F(SimulatedVirtualMemory, DriverFunctionsLeaveTheRuntimesLastErrorAlone)
{
  EXPECT_EQ(cuMemRelease_(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(&begin_), cudaErrorInvalidValue);
  EXPECT_EQ(cuMemRelease_(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 3U);
}

TEST_F(SimulatedVirtualMemory, DriverFunctionsCanBeMadeToFail)
{
  CUmemGenericAllocationHandle made{};
  auto const wanted = properties();
  cudasim::inject({"cuMemCreate", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_EQ(cuMemCreate_(&made, chunk, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cudasim::calls("cuMemCreate"), 1U);
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
  cudasim::clear_faults();
}

struct driver_call {
  char const* function;
  CUresult (*make)();
};

void PrintTo(driver_call const& call, std::ostream* out) { *out << call.function; }

class DriverFaults : public Simulated, public ::testing::WithParamInterface<driver_call> {};

TEST_P(DriverFaults, AreCountedAndInjectedByName)
{
  cudasim::inject({GetParam().function, 1, cudaErrorUnknown, 1});
  EXPECT_EQ(GetParam().make(), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(cudasim::calls(GetParam().function), 1U);
  cudasim::clear_faults();
}

#define DRIVER_CALL(name, ...)                                        \
  driver_call                                                         \
  {                                                                   \
#name, [] { return entry<decltype(::name)>(#name)(__VA_ARGS__); } \
  }

INSTANTIATE_TEST_SUITE_P(
  Calls,
  DriverFaults,
  ::testing::Values(
    DRIVER_CALL(cuInit, 0),
    DRIVER_CALL(cuDriverGetVersion, nullptr),
    DRIVER_CALL(cuGetErrorName, CUDA_SUCCESS, nullptr),
    DRIVER_CALL(cuGetErrorString, CUDA_SUCCESS, nullptr),
    DRIVER_CALL(cuDeviceGetCount, nullptr),
    DRIVER_CALL(cuDeviceGet, nullptr, 0),
    DRIVER_CALL(cuDeviceGetAttribute, nullptr, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
    DRIVER_CALL(cuCtxGetCurrent, nullptr),
    DRIVER_CALL(cuCtxGetDevice, nullptr),
    DRIVER_CALL(cuDevicePrimaryCtxRetain, nullptr, 0),
    DRIVER_CALL(cuDevicePrimaryCtxGetState, 0, nullptr, nullptr),
    driver_call{"cuCtxPushCurrent", [] { return entry<decltype(::cuCtxPushCurrent)>("cuCtxPushCurrent")(nullptr); }},
    driver_call{"cuCtxPopCurrent", [] { return entry<decltype(::cuCtxPopCurrent)>("cuCtxPopCurrent")(nullptr); }},
    DRIVER_CALL(cuThreadExchangeStreamCaptureMode, nullptr),
    DRIVER_CALL(cuStreamIsCapturing, nullptr, nullptr),
    DRIVER_CALL(cuStreamGetId, nullptr, nullptr),
    driver_call{"cuStreamGetCtx",
                [] { return entry<CUresult(CUstream, CUcontext*)>("cuStreamGetCtx")(nullptr, nullptr); }},
    DRIVER_CALL(cuStreamWaitEvent, nullptr, nullptr, 0),
    DRIVER_CALL(cuEventRecord, nullptr, nullptr),
    DRIVER_CALL(cuEventQuery, nullptr),
    driver_call{"cuMemGetInfo", [] { return entry<decltype(::cuMemGetInfo)>("cuMemGetInfo")(nullptr, nullptr); }},
    driver_call{"cuMemGetAddressRange",
                [] { return entry<decltype(::cuMemGetAddressRange)>("cuMemGetAddressRange")(nullptr, nullptr, 0); }},
    DRIVER_CALL(cuPointerGetAttribute, nullptr, CU_POINTER_ATTRIBUTE_CONTEXT, 0),
    DRIVER_CALL(cuPointerGetAttributes, 0, nullptr, nullptr, 0),
    DRIVER_CALL(cuMemGetAllocationGranularity, nullptr, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
    DRIVER_CALL(cuMemAddressReserve, nullptr, 0, 0, 0, 0),
    DRIVER_CALL(cuMemAddressFree, 0, 0),
    DRIVER_CALL(cuMemCreate, nullptr, 0, nullptr, 0),
    DRIVER_CALL(cuMemRelease, 0),
    DRIVER_CALL(cuMemRetainAllocationHandle, nullptr, nullptr),
    DRIVER_CALL(cuMemMap, 0, 0, 0, 0, 0),
    DRIVER_CALL(cuMemUnmap, 0, 0),
    DRIVER_CALL(cuMemSetAccess, 0, 0, nullptr, 0),
    DRIVER_CALL(cuMemGetAccess, nullptr, nullptr, 0),
    DRIVER_CALL(cuMemExportToShareableHandle, nullptr, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
    DRIVER_CALL(cuMemImportFromShareableHandle, nullptr, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
    DRIVER_CALL(cuMemGetAllocationPropertiesFromHandle, nullptr, 0)));

TEST_F(SimulatedVirtualMemory, StreamIdsFollowTheDefaultStreamThatIsAskedFor)
{
  void* found                = nullptr;
  unsigned long long id      = 0;
  unsigned long long mine    = 0;
  unsigned long long legacys = 0;
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuStreamGetId", &found, 12000, cudaEnablePerThreadDefaultStream, nullptr),
            cudaSuccess);
  ASSERT_EQ(cudaStreamGetId(cudaStreamPerThread, &mine), cudaSuccess);
  ASSERT_EQ(cudaStreamGetId(cudaStreamLegacy, &legacys), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<decltype(&cuStreamGetId)>(found)(nullptr, &id), CUDA_SUCCESS);
  EXPECT_EQ(id, mine);
  EXPECT_EQ(entry<decltype(cuStreamGetId)>("cuStreamGetId")(nullptr, &id), CUDA_SUCCESS);
  EXPECT_EQ(id, legacys);
}

TEST_F(SimulatedVirtualMemory, ADriverFunctionCountsAsThatOfTheRuntimeToo)
{
  auto* const record = entry<decltype(cuEventRecord)>("cuEventRecord");
  scoped_event const event;
  EXPECT_EQ(record(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), 2U);
  EXPECT_EQ(cudasim::calls("cuEventRecord"), 1U);

  cudasim::inject({"cudaEventRecord", 2, cudaErrorUnknown, 1});
  EXPECT_EQ(record(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(record(event, nullptr), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cudasim::inject({"cuEventRecord", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  EXPECT_EQ(record(event, nullptr), CUDA_ERROR_UNKNOWN);
}

TEST_F(SimulatedVirtualMemory, DriverFunctionsFollowTheDefaultStreamThatIsAskedFor)
{
  auto const of_threads = [](char const* name) {
    void* found = nullptr;
    EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnablePerThreadDefaultStream, nullptr),
              cudaSuccess);
    return found;
  };
  cudasim::hold(cudaStreamPerThread);
  cudasim::launch(cudaStreamPerThread, {}, {}, [] {});
  scoped_event const mine;
  scoped_event const legacys;
  auto* const query = entry<decltype(cuEventQuery)>("cuEventQuery");
  EXPECT_EQ(entry<decltype(cuEventRecord)>("cuEventRecord")(legacys, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<decltype(&cuEventRecord)>(of_threads("cuEventRecord"))(mine, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(query(mine), CUDA_ERROR_NOT_READY);

  scoped_stream const behind;
  ASSERT_EQ(reinterpret_cast<decltype(&cuStreamWaitEvent)>(of_threads("cuStreamWaitEvent"))(nullptr, mine, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cudaStreamBeginCapture(behind, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  auto status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  EXPECT_EQ(reinterpret_cast<decltype(&cuStreamIsCapturing)>(of_threads("cuStreamIsCapturing"))(nullptr, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(entry<decltype(cuStreamIsCapturing)>("cuStreamIsCapturing")(behind, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(behind, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  cudasim::let_go(cudaStreamPerThread);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(query(mine), CUDA_SUCCESS);
  EXPECT_EQ(query(legacys), CUDA_SUCCESS);
}

TEST_F(SimulatedVirtualMemory, TheContextOfVersion13KnowsItsDevice)
{
  void* found = nullptr;
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuCtxGetDevice", &found, 13000, cudaEnableDefault, nullptr), cudaSuccess);
  auto* const get = reinterpret_cast<CUresult (*)(CUdevice*, CUcontext)>(found);
  CUcontext context{};
  CUdevice device = -1;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(entry<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent")(&context), CUDA_SUCCESS);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(get(&device, context), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(get(&device, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  std::thread{[&] {
    CUdevice ignored = -1;
    EXPECT_EQ(get(&ignored, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  }}.join();
  EXPECT_EQ(get(nullptr, context), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&device, reinterpret_cast<CUcontext>(&device)), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
}

/// The functions that change a thread's current context.
class SimulatedContexts : public SimulatedVirtualMemory {
 protected:
  decltype(&::cuCtxPushCurrent) push_{entry<decltype(::cuCtxPushCurrent)>("cuCtxPushCurrent")};
  decltype(&::cuCtxPopCurrent) pop_{entry<decltype(::cuCtxPopCurrent)>("cuCtxPopCurrent")};

  [[nodiscard]] static CUcontext context_of(int device)
  {
    CUcontext context{};
    EXPECT_EQ(entry<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, device), CUDA_SUCCESS);
    return context;
  }
  [[nodiscard]] static int current_device()
  {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
  }
};

TEST_F(SimulatedContexts, BelongToTheirThread)
{
  ASSERT_EQ(push_(context_of(1)), CUDA_SUCCESS);
  std::thread{[] { EXPECT_EQ(current_device(), 0); }}.join();
  EXPECT_EQ(current_device(), 1);
  EXPECT_EQ(pop_(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(SimulatedContexts, OfStreamsAreThoseOfTheirDevices)
{
  auto const at = [](char const* name, unsigned version, unsigned long long flags) {
    void* found = nullptr;
    EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, version, flags, nullptr), cudaSuccess);
    return found;
  };
  auto* const device_of =
    reinterpret_cast<CUresult (*)(CUstream, CUdevice*)>(at("cuStreamGetDevice", 12080, cudaEnableDefault));
  auto* const context_of_stream = entry<CUresult(CUstream, CUcontext*)>("cuStreamGetCtx");
  auto* const contexts_of_stream =
    reinterpret_cast<CUresult (*)(CUstream, CUcontext*, void**)>(at("cuStreamGetCtx", 12050, cudaEnableDefault));
  EXPECT_EQ(at("cuStreamGetDevice", 12070, cudaEnableDefault), nullptr);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  scoped_stream const stream;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  for (auto const& [handle, expected] : {std::pair<cudaStream_t, int>{stream, 1}, {nullptr, 0}}) {
    CUdevice device{-1};
    CUcontext context{};
    void* green{&device};
    EXPECT_EQ(device_of(handle, &device), CUDA_SUCCESS);
    EXPECT_EQ(device, expected);
    EXPECT_EQ(context_of_stream(handle, &context), CUDA_SUCCESS);
    EXPECT_EQ(context, context_of(expected));
    EXPECT_EQ(contexts_of_stream(handle, &context, &green), CUDA_SUCCESS);
    EXPECT_EQ(context, context_of(expected));
    EXPECT_EQ(green, nullptr);
  }
  std::thread{[&] {
    CUdevice device{-1};
    CUcontext context{};
    EXPECT_EQ(device_of(stream, &device), CUDA_SUCCESS);
    EXPECT_EQ(device, 1);
    for (cudaStream_t const handle : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
      EXPECT_EQ(device_of(handle, &device), CUDA_ERROR_INVALID_CONTEXT);
      EXPECT_EQ(context_of_stream(handle, &context), CUDA_ERROR_INVALID_CONTEXT);
    }
  }}.join();
}

TEST_F(SimulatedContexts, ReportInvalidContexts)
{
  CUcontext context{};
  EXPECT_EQ(push_(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(push_(reinterpret_cast<CUcontext>(&context)), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(entry<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 2),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(take_count(violation::kind::misuse), 3U);
}

TEST_F(SimulatedContexts, ReportAPopWithoutAPush)
{
  EXPECT_EQ(pop_(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

}  // namespace
}  // namespace cudasim_tests
