// SPDX-License-Identifier: Apache-2.0
//
// The driver functions that a CUDA runtime gets from cuGetProcAddress and cudaGetDriverEntryPointByVersion.

#include "../../tests/support/sanitizers.hpp"
#include "support.hpp"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace cudasim_tests {
namespace {

using cudasim::violation;

constexpr std::size_t bytes = 4096;

template <class Function>
[[nodiscard]] Function* entry(char const* name, unsigned version = 13000, unsigned long long flags = cudaEnableDefault)
{
  void* found = nullptr;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, version, flags, nullptr), cudaSuccess) << name;
  EXPECT_NE(found, nullptr) << name;
  return reinterpret_cast<Function*>(found);
}

#define DRIVER(name) entry<decltype(::name)>(#name)
#define DRIVER_OF_THREAD(name) entry<decltype(::name)>(#name, 13000, cudaEnablePerThreadDefaultStream)

/// A machine whose device 0 is current through its primary context.
class Driver : public Stepped {
 protected:
  void SetUp() override
  {
    Stepped::SetUp();
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
  }

  void TearDown() override
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    Stepped::TearDown();
    EXPECT_EQ(DRIVER(cuCtxSetCurrent)(nullptr), CUDA_SUCCESS);
  }

  CUcontext context_{};
};

/// Memory that is freed at the end of the scope.
class driver_memory {
 public:
  explicit driver_memory(std::size_t size = bytes) { EXPECT_EQ(DRIVER(cuMemAlloc)(&ptr_, size), CUDA_SUCCESS); }
  driver_memory(driver_memory const&)            = delete;
  driver_memory& operator=(driver_memory const&) = delete;
  ~driver_memory() { EXPECT_EQ(DRIVER(cuMemFree)(ptr_), CUDA_SUCCESS); }
  operator CUdeviceptr() const { return ptr_; }

 private:
  CUdeviceptr ptr_{};
};

TEST_F(Driver, DescribesDevices)
{
  std::array<char, 64> name{};
  std::array<char, 64> bus{};
  std::size_t total = 0;
  int ordinal       = -1;
  CUuuid uuid{};
  EXPECT_EQ(DRIVER(cuDeviceGetName)(name.data(), 64, 1), CUDA_SUCCESS);
  EXPECT_NE(std::string{name.data()}.find("H200"), std::string::npos);
  EXPECT_EQ(DRIVER(cuDeviceTotalMem)(&total, 1), CUDA_SUCCESS);
  EXPECT_EQ(total, cudasim::current_options().memory_bytes);
  EXPECT_EQ(DRIVER(cuDeviceGetUuid)(&uuid, 1), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuDeviceGetPCIBusId)(bus.data(), 64, 1), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuDeviceGetByPCIBusId)(&ordinal, bus.data()), CUDA_SUCCESS);
  EXPECT_EQ(ordinal, 1);
  EXPECT_EQ(DRIVER(cuDeviceGetName)(name.data(), 64, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(DRIVER(cuDeviceTotalMem)(&total, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(DRIVER(cuDeviceGetUuid)(&uuid, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(take_count(violation::kind::misuse), 3U);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "the last error is the runtime's own";
}

TEST_F(Driver, WorksOnMemoryInACurrentContextOnly)
{
  std::thread{[] {
    CUdeviceptr ptr = 0;
    CUcontext one{};
    EXPECT_EQ(DRIVER(cuMemAlloc)(&ptr, bytes), CUDA_ERROR_INVALID_CONTEXT);
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&one, 1), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuMemAlloc)(&ptr, bytes), CUDA_ERROR_INVALID_CONTEXT);
    ASSERT_EQ(DRIVER(cuCtxSetCurrent)(one), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuMemAlloc)(&ptr, bytes), CUDA_SUCCESS);
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, reinterpret_cast<void*>(ptr)), cudaSuccess);
    EXPECT_EQ(attributes.device, 1);
    EXPECT_EQ(DRIVER(cuMemFree)(ptr), CUDA_SUCCESS);
    CUcontext popped{};
    EXPECT_EQ(entry<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent")(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, one);
    EXPECT_EQ(DRIVER(cuMemAlloc)(&ptr, bytes), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(DRIVER(cuDevicePrimaryCtxRelease)(1), CUDA_SUCCESS);
  }}.join();
  EXPECT_EQ(DRIVER(cuCtxSetCurrent)(reinterpret_cast<CUcontext>(this)), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

TEST_F(Driver, RefusesEmptyAllocations)
{
  CUdeviceptr ptr   = 0;
  std::size_t pitch = 0;
  void* host        = nullptr;
  EXPECT_EQ(DRIVER(cuMemAlloc)(&ptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemAllocManaged)(&ptr, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemAllocPitch)(&ptr, &pitch, 0, 4, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemHostAlloc)(&host, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Driver, CopiesAndFillsMemory)
{
  driver_memory const a;
  driver_memory const b;
  std::vector<unsigned char> in(bytes, 3);
  std::vector<unsigned char> out(bytes);
  EXPECT_EQ(DRIVER(cuMemcpyHtoD)(a, in.data(), bytes), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemcpyDtoD)(b, a, bytes), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemsetD8)(b, 7, bytes / 2), CUDA_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(DRIVER(cuMemcpyDtoH)(out.data(), b, bytes), CUDA_SUCCESS);
  EXPECT_EQ(std::count(out.begin(), out.end(), 7), bytes / 2);
  EXPECT_EQ(std::count(out.begin(), out.end(), 3), bytes / 2);
  EXPECT_EQ(DRIVER(cuMemcpy)(a, b, bytes), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemsetD2D8)(a, 64, 9, 2, 10), CUDA_SUCCESS);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice     = a;
  rows.srcPitch      = 64;
  rows.srcY          = 1;
  rows.dstMemoryType = CU_MEMORYTYPE_HOST;
  rows.dstHost       = out.data();
  rows.dstPitch      = 2;
  rows.WidthInBytes  = 2;
  rows.Height        = 9;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(entry<decltype(cuMemcpy2D)>("cuMemcpy2D")(&rows), CUDA_SUCCESS);
  EXPECT_EQ(std::count(out.begin(), out.begin() + 18, 9), 18);
  rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(entry<decltype(cuMemcpy2D)>("cuMemcpy2D")(&rows), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(Driver, QueuesWorkOnTheStreamThatStreamZeroNames)
{
  driver_memory const a;
  void* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, bytes), cudaSuccess);
  auto const queued = [](cudaStream_t stream, auto&& call) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(call(), CUDA_SUCCESS);
    return cudasim::pending(stream);
  };
  EXPECT_EQ(queued(cudaStreamLegacy, [&] { return DRIVER(cuMemsetD8Async)(a, 1, bytes, nullptr); }), 1U);
  EXPECT_EQ(queued(cudaStreamPerThread, [&] { return DRIVER_OF_THREAD(cuMemsetD8Async)(a, 1, bytes, nullptr); }), 1U);
  EXPECT_EQ(queued(cudaStreamPerThread, [&] { return DRIVER_OF_THREAD(cuMemsetD2D8Async)(a, 64, 1, 2, 3, nullptr); }),
            1U);
  EXPECT_EQ(queued(cudaStreamPerThread, [&] { return DRIVER_OF_THREAD(cuMemcpyHtoDAsync)(a, host, bytes, nullptr); }),
            1U);
  EXPECT_EQ(queued(cudaStreamPerThread, [&] { return DRIVER_OF_THREAD(cuMemcpyDtoHAsync)(host, a, bytes, nullptr); }),
            1U);
  EXPECT_EQ(queued(cudaStreamPerThread,
                   [&] { return DRIVER_OF_THREAD(cuMemcpyDtoDAsync)(a, a + bytes / 2, bytes / 2, nullptr); }),
            1U);
  EXPECT_EQ(
    queued(cudaStreamPerThread, [&] { return DRIVER_OF_THREAD(cuMemcpyAsync)(a, a + bytes / 2, bytes / 2, nullptr); }),
    1U);
  EXPECT_EQ(queued(cudaStreamPerThread,
                   [&] {
                     return DRIVER_OF_THREAD(cuLaunchHostFunc)(
                       nullptr, [](void*) {}, nullptr);
                   }),
            1U);
  EXPECT_EQ(DRIVER_OF_THREAD(cuStreamQuery)(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(DRIVER_OF_THREAD(cuStreamSynchronize)(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER_OF_THREAD(cuStreamQuery)(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(Driver, WaitsForTheCurrentContextOrAnother)
{
  CUcontext other{};
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  driver_memory const a;
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(a, 1, bytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(entry<CUresult(CUcontext)>("cuCtxSynchronize")(other), CUDA_SUCCESS);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 1U);
  EXPECT_EQ(entry<CUresult()>("cuCtxSynchronize", 12000)(), CUDA_SUCCESS);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 0U);
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(a, 1, bytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(entry<CUresult(CUcontext)>("cuCtxSynchronize")(context_), CUDA_SUCCESS);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 0U);
  EXPECT_EQ(entry<CUresult(CUcontext)>("cuCtxSynchronize")(reinterpret_cast<CUcontext>(this)),
            CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Driver, ShowsItsWorkToTheChecker)
{
  driver_memory const a;
  std::array<CUstream, 2> streams{};
  for (auto& stream : streams) { ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS); }
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(a, 1, bytes, streams[0]), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(a, 2, bytes, streams[1]), CUDA_SUCCESS);
  auto const found = take_violations();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, violation::kind::race);
  EXPECT_NE(found[0].text.find("by cudaMemsetAsync"), std::string::npos) << found[0].text;
  EXPECT_NE(found[0].text.find("ShowsItsWorkToTheChecker"), std::string::npos) << found[0].text;

  CUevent event{};
  ASSERT_EQ(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuEventRecordWithFlags)(event, streams[1], CU_EVENT_RECORD_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamWaitEvent)(streams[0], event, 0), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(a, 3, bytes, streams[0]), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuEventSynchronize)(event), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuEventDestroy)(event), CUDA_SUCCESS);
  for (auto const stream : streams) {
    EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuStreamDestroy)(stream), CUDA_SUCCESS);
  }
}

TEST_F(Driver, CountsAndFailsAsTheFunctionOfTheRuntime)
{
  CUdeviceptr ptr = 0;
  cudasim::inject({"cuMemAlloc", 2, cudaErrorMemoryAllocation, 1});
  {
    driver_memory const first;
    EXPECT_EQ(DRIVER(cuMemAlloc)(&ptr, bytes), CUDA_ERROR_OUT_OF_MEMORY);
  }
  cudasim::inject({"cudaMemsetAsync", 1, cudaErrorUnknown, 1});
  driver_memory const second;
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(second, 1, bytes, nullptr), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(cudasim::faults_fired(), 2U);
  EXPECT_EQ(cudasim::calls("cuMemAlloc"), 3U);
  EXPECT_EQ(cudasim::calls("cudaMalloc"), 3U);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(Driver, AllocatesInTheOrderOfStreams)
{
  CUmemPoolProps properties{};
  properties.allocType     = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool{};
  CUmemoryPool standard{};
  CUmemoryPool current{};
  CUdeviceptr ptr = 0;
  ASSERT_EQ(DRIVER(cuMemPoolCreate)(&pool, &properties), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemAllocFromPoolAsync)(&ptr, bytes, pool, nullptr), CUDA_SUCCESS);
  cuuint64_t used = 0;
  EXPECT_EQ(DRIVER(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), CUDA_SUCCESS);
  EXPECT_EQ(used, bytes);
  EXPECT_EQ(DRIVER(cuMemFreeAsync)(ptr, nullptr), CUDA_SUCCESS);
  cuuint64_t threshold = 1;
  EXPECT_EQ(DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuDeviceGetDefaultMemPool)(&standard, 0), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuDeviceGetMemPool)(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, standard);
  EXPECT_EQ(DRIVER(cuDeviceSetMemPool)(0, pool), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuDeviceGetMemPool)(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, pool);
  EXPECT_EQ(DRIVER(cuDeviceSetMemPool)(0, standard), CUDA_SUCCESS);
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id   = 1;
  access.flags         = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemAccess_flags allowed{};
  EXPECT_EQ(DRIVER(cuMemPoolSetAccess)(pool, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemPoolGetAccess)(&allowed, pool, &access.location), CUDA_SUCCESS);
  EXPECT_EQ(allowed, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(DRIVER_OF_THREAD(cuMemAllocAsync)(&ptr, bytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cudasim::pending(cudaStreamPerThread), 1U);
  EXPECT_EQ(DRIVER_OF_THREAD(cuMemFreeAsync)(ptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(DRIVER(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
}

TEST_F(Driver, HasHostAndManagedMemory)
{
  void* pinned        = nullptr;
  CUdeviceptr managed = 0;
  CUdeviceptr mapped  = 0;
  unsigned flags      = 0;
  std::size_t pitch   = 0;
  CUdeviceptr rows    = 0;
  ASSERT_EQ(DRIVER(cuMemHostAlloc)(&pinned, bytes, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemHostGetFlags)(&flags, pinned), CUDA_SUCCESS);
  EXPECT_NE(flags & CU_MEMHOSTALLOC_PORTABLE, 0U);
  EXPECT_EQ(DRIVER(cuMemHostGetDevicePointer)(&mapped, pinned, 0), CUDA_SUCCESS);
  EXPECT_EQ(mapped, reinterpret_cast<CUdeviceptr>(pinned));
  EXPECT_EQ(DRIVER(cuMemFreeHost)(pinned), CUDA_SUCCESS);
  std::vector<char> own(1 << 16);
  ASSERT_EQ(DRIVER(cuMemHostRegister)(own.data(), own.size(), 0), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemHostUnregister)(own.data()), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&managed, bytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  using by_device   = CUresult(CUdeviceptr, std::size_t, CUdevice, CUstream);
  using by_location = CUresult(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream);
  CUmemLocation device{};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  int last    = -5;
  EXPECT_EQ(entry<by_device>("cuMemPrefetchAsync", 12010)(managed, bytes, cudaCpuDeviceId, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(
    DRIVER(cuMemRangeGetAttribute)(&last, sizeof last, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, managed, bytes),
    CUDA_SUCCESS);
  EXPECT_EQ(last, cudaCpuDeviceId);
  EXPECT_EQ(entry<by_location>("cuMemPrefetchAsync")(managed, bytes, device, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(
    DRIVER(cuMemRangeGetAttribute)(&last, sizeof last, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, managed, bytes),
    CUDA_SUCCESS);
  EXPECT_EQ(last, 0);
  EXPECT_EQ(entry<by_location>("cuMemPrefetchAsync")(managed, bytes, device, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemFree)(managed), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemAllocPitch)(&rows, &pitch, 10, 4, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 512U);
  EXPECT_EQ(DRIVER(cuMemFree)(rows), CUDA_SUCCESS);
}

TEST_F(Driver, CapturesGraphs)
{
  driver_memory const a;
  CUstream stream{};
  CUgraph graph{};
  CUgraphExec executable{};
  ASSERT_EQ(DRIVER(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, -1), CUDA_SUCCESS);
  int priority   = 0;
  unsigned flags = 0;
  EXPECT_EQ(DRIVER(cuStreamGetPriority)(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamGetFlags)(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(priority, -1);
  EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemsetD8Async)(a, 5, bytes, stream), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  using three   = CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*);
  EXPECT_EQ(entry<three>("cuStreamGetCaptureInfo", 11000)(stream, &status, &id), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(id, 0U);
  ASSERT_EQ(DRIVER(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
  std::size_t nodes = 0;
  EXPECT_EQ(DRIVER(cuGraphGetNodes)(graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 1U);
  ASSERT_EQ(DRIVER(cuGraphInstantiateWithFlags)(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuGraphLaunch)(executable, stream), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  unsigned char first = 0;
  EXPECT_EQ(DRIVER(cuMemcpyDtoH)(&first, a, 1), CUDA_SUCCESS);
  EXPECT_EQ(first, 5);
  EXPECT_EQ(DRIVER(cuGraphExecDestroy)(executable), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamDestroy)(stream), CUDA_SUCCESS);
}

TEST_F(Driver, GivesDevicesAccessToEachOther)
{
  CUcontext other{};
  int can = 0;
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuDeviceCanAccessPeer)(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(DRIVER(cuCtxEnablePeerAccess)(other, 0), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuCtxEnablePeerAccess)(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(DRIVER(cuCtxDisablePeerAccess)(other), CUDA_SUCCESS);
  driver_memory const here;
  ASSERT_EQ(DRIVER(cuCtxSetCurrent)(other), CUDA_SUCCESS);
  {
    driver_memory const there;
    EXPECT_EQ(DRIVER(cuMemcpyPeer)(there, other, here, context_, bytes), CUDA_SUCCESS);
  }
  EXPECT_EQ(DRIVER(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
}

TEST_F(Driver, ResetsAPrimaryContextWithoutMakingItCurrent)
{
  CUcontext other{};
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  EXPECT_TRUE(cudasim::has_context(1));
  EXPECT_EQ(DRIVER(cuDevicePrimaryCtxReset)(1), CUDA_SUCCESS);
  EXPECT_FALSE(cudasim::has_context(1));
  CUcontext current{};
  EXPECT_EQ(DRIVER(cuCtxGetCurrent)(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context_);
  EXPECT_EQ(DRIVER(cuDevicePrimaryCtxReset)(2), CUDA_ERROR_INVALID_DEVICE);
}

// --- libcuda.so.1 -----------------------------------------------------------------------------------------------------

/// The simulated driver, opened by name.
class DriverLibrary : public Driver {
 protected:
  void SetUp() override
  {
    Driver::SetUp();
    library_ = ::dlopen(CUDASIM_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
  }

  template <class Function>
  [[nodiscard]] Function* symbol(char const* name)
  {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }

  void* library_{};
};

TEST_F(DriverLibrary, FindsFunctionsByNameAndVersion)
{
  auto* const find = symbol<decltype(cuGetProcAddress_v2)>("cuGetProcAddress_v2");
  ASSERT_NE(find, nullptr);
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(find("cuMemAlloc", &found, 12000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(found, reinterpret_cast<void*>(DRIVER(cuMemAlloc))) << "one machine for the runtime and the driver";
  EXPECT_EQ(find("cuMemAllocAsync", &found, 11010, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(find("cuNoSuchFunction", &found, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(find("cuMemAlloc", &found, 12000, 64, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(find(nullptr, &found, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(find("cuMemsetD8Async", &found, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(found, reinterpret_cast<void*>(DRIVER_OF_THREAD(cuMemsetD8Async)));
  using without_status = CUresult(char const*, void**, int, cuuint64_t);
  ASSERT_EQ(find("cuGetProcAddress", &found, 11030, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(found, ::dlsym(library_, "cuGetProcAddress"));
  EXPECT_EQ(reinterpret_cast<without_status*>(found)("cuGetProcAddress", &found, 12000, 0), CUDA_SUCCESS);
  EXPECT_EQ(found, reinterpret_cast<void*>(find));
  int version = 0;
  EXPECT_EQ(symbol<decltype(cuInit)>("cuInit")(0), CUDA_SUCCESS);
  EXPECT_EQ(symbol<decltype(cuDriverGetVersion)>("cuDriverGetVersion")(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, CUDA_VERSION);
}

/// A row of the list of symbols.
struct driver_symbol {
  char const* symbol;
  char const* name;
  int version;
  cuuint64_t flags;
};

constexpr driver_symbol driver_symbols[]{
#define DRIVER_SYMBOL(symbol, name, version) {#symbol, #name, version, 0},
#define DRIVER_SYMBOL_WITH_TWIN(symbol, suffix, name, version) \
  {#symbol, #name, version, 0}, {#symbol #suffix, #name, version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
#include "../symbols/driver.inc"
#undef DRIVER_SYMBOL
#undef DRIVER_SYMBOL_WITH_TWIN
};

TEST_F(DriverLibrary, HasASymbolForEachVersionOfAFunction)
{
  auto* const find = symbol<decltype(cuGetProcAddress_v2)>("cuGetProcAddress_v2");
  for (auto const& row : driver_symbols) {
    EXPECT_NE(::dlsym(library_, row.symbol), nullptr) << row.symbol;
    void* found  = nullptr;
    void* before = nullptr;
    EXPECT_EQ(find(row.name, &found, row.version, row.flags, nullptr), CUDA_SUCCESS) << row.symbol;
    static_cast<void>(find(row.name, &before, row.version - 10, row.flags, nullptr));
    EXPECT_NE(found, before) << row.symbol << " has the signature of an older version";
  }
}

TEST_F(DriverLibrary, CallsTheSimulatorByItsSymbols)
{
  auto* const allocate   = symbol<decltype(cuMemAlloc_v2)>("cuMemAlloc_v2");
  auto* const free       = symbol<decltype(cuMemFree_v2)>("cuMemFree_v2");
  auto* const get_handle = symbol<decltype(cuIpcGetMemHandle)>("cuIpcGetMemHandle");
  auto* const fill       = symbol<CUresult(CUdeviceptr, unsigned char, std::size_t, CUstream)>("cuMemsetD8Async_ptsz");
  auto* const copy       = symbol<decltype(cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2");
  auto* const capture    = symbol<decltype(cuStreamBeginCapture_v2)>("cuStreamBeginCapture_v2");
  CUdeviceptr memory{};
  ASSERT_EQ(allocate(&memory, bytes), CUDA_SUCCESS);
  CUipcMemHandle handle{};  // symbols also pass large arguments by value
  EXPECT_EQ(get_handle(&handle, memory), CUDA_SUCCESS);
  CUdeviceptr opened{};
  EXPECT_EQ(symbol<decltype(cuIpcOpenMemHandle_v2)>("cuIpcOpenMemHandle_v2")(&opened, handle, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(fill(memory, 7, bytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  std::array<unsigned char, bytes> contents{};
  EXPECT_EQ(copy(contents.data(), memory, bytes), CUDA_SUCCESS);
  EXPECT_EQ(std::count(contents.begin(), contents.end(), 7), static_cast<std::ptrdiff_t>(bytes));
  EXPECT_EQ(capture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
  EXPECT_EQ(free(memory), CUDA_SUCCESS);
}

TEST_F(DriverLibrary, RefusesWhatIsNotSimulatedByName)
{
  auto* const load = symbol<decltype(cuModuleLoadData)>("cuModuleLoadData");
  ASSERT_NE(load, nullptr);
  CUmodule module{};
  EXPECT_EQ(load(&module, "code"), CUDA_ERROR_NOT_SUPPORTED);
  auto const violations = take_violations();
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_NE(violations[0].text.find("cuModuleLoadData is not simulated"), std::string::npos) << violations[0].text;
}

#ifdef CUDASIM_STATIC_RUNTIME

/// The output of a program, and its exit status.
[[nodiscard]] std::string output_of(std::string const& command)
{
  std::string output;
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) { return "popen failed"; }
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) { output += static_cast<char>(c); }
  return output + "status " + std::to_string(::pclose(pipe));
}

TEST(StaticRuntime, GivesWayToTheSimulatorThatIsLinkedFirst)
{
  if (RMM_TEST_UNDER_SANITIZER) { GTEST_SKIP() << "a sanitizer has to be loaded before all else"; }
  EXPECT_EQ(output_of(CUDASIM_STATIC_RUNTIME "_relinked"), "no error\nstatus 0");
}

TEST(StaticRuntime, IsToldWhatToDoIfItAsksTheSimulatedDriver)
{
  if (RMM_TEST_UNDER_SANITIZER) { GTEST_SKIP() << "a sanitizer has to be loaded before all else"; }
  std::string const folder{CUDASIM_LIBCUDA, std::strlen(CUDASIM_LIBCUDA) - std::strlen("/libcuda.so.1")};
  auto const output = output_of("LD_LIBRARY_PATH=" + folder + " " + CUDASIM_STATIC_RUNTIME);
  EXPECT_NE(output.find("cudasim: NVIDIA's CUDA runtime is in this program"), std::string::npos) << output;
  EXPECT_EQ(output.find("status 0"), std::string::npos) << output;
}

#endif

}  // namespace
}  // namespace cudasim_tests
