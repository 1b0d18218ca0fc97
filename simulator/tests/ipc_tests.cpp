// SPDX-License-Identifier: Apache-2.0
//
// Memory that two processes share. The other process is this program, running one of the tests named Child; its input
// comes through the environment and through inherited descriptors.

#include "support.hpp"

#include <cuda.h>

#include <sys/wait.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace cudasim_tests {
namespace {

using cudasim::violation;

constexpr std::size_t MiB   = std::size_t{1} << 20U;
constexpr auto posix_pool   = cudaMemHandleTypePosixFileDescriptor;
constexpr auto posix_memory = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

template <class Value>
[[nodiscard]] std::string to_hex(Value const& value)
{
  std::string text;
  auto const* const bytes = reinterpret_cast<unsigned char const*>(&value);
  for (std::size_t i = 0; i < sizeof value; ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", bytes[i]);
    text += digits.data();
  }
  return text;
}

template <class Value>
[[nodiscard]] Value from_hex(std::string const& text)
{
  Value value{};
  auto* const bytes = reinterpret_cast<unsigned char*>(&value);
  for (std::size_t i = 0; i < sizeof value; ++i) {
    bytes[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  return value;
}

[[nodiscard]] std::string environment(char const* name)
{
  auto const* const value = std::getenv(name);
  return value == nullptr ? std::string{} : std::string{value};
}

/// Runs a test of this program in another process. Returns whether it passed.
[[nodiscard]] bool passes_elsewhere(std::string const& test, std::string const& data, int descriptor = -1)
{
  if (descriptor >= 0) { EXPECT_EQ(::fcntl(descriptor, F_SETFD, 0), 0); }
  EXPECT_EQ(::setenv("IPC_TEST_DATA", data.c_str(), 1), 0);
  EXPECT_EQ(::setenv("IPC_TEST_DESCRIPTOR", std::to_string(descriptor).c_str(), 1), 0);
  std::array<char, 4096> path{};
  EXPECT_GT(::readlink("/proc/self/exe", path.data(), path.size() - 1), 0);
  auto const filter = "--gtest_filter=" + test;
  auto const child  = ::fork();
  if (child == 0) {
    ::execl(path.data(), path.data(), filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

[[nodiscard]] void* inherited_descriptor()
{
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(std::stol(environment("IPC_TEST_DESCRIPTOR"))));
}

[[nodiscard]] std::string text_at(void const* ptr) { return static_cast<char const*>(ptr); }

class Ipc : public Simulated {};

/// The tests that the other process runs. They cannot run by themselves.
class DISABLED_Child : public Simulated {};

// --- memory of cudaMalloc -------------------------------------------------------------------------------------------

TEST_F(Ipc, MemoryCanBeOpenedByAnotherProcess)
{
  for (auto const bytes : {std::size_t{1000}, 5 * MiB}) {
    void* ptr = nullptr;
    cudaIpcMemHandle_t handle{};
    ASSERT_EQ(cudaMalloc(&ptr, bytes), cudaSuccess);
    ASSERT_EQ(cudaIpcGetMemHandle(&handle, static_cast<char*>(ptr) + 500), cudaSuccess);
    std::strcpy(static_cast<char*>(ptr), "from the parent");
    EXPECT_TRUE(passes_elsewhere("DISABLED_Child.OpensMemory", to_hex(handle)));
    EXPECT_EQ(text_at(ptr), "from the child");
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  }
}

TEST_F(DISABLED_Child, OpensMemory)
{
  auto const handle = from_hex<cudaIpcMemHandle_t>(environment("IPC_TEST_DATA"));
  void* ptr         = nullptr;
  void* again       = nullptr;
  EXPECT_EQ(cudaIpcOpenMemHandle(&ptr, handle, 0), cudaErrorInvalidValue);
  ASSERT_EQ(cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
  EXPECT_EQ(text_at(ptr), "from the parent") << "the pointer is that of the whole allocation";
  std::array<char, 16> copied{};
  EXPECT_EQ(cudaMemcpy(copied.data(), ptr, copied.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_STREQ(copied.data(), "from the parent");
  std::strcpy(static_cast<char*>(ptr), "from the child");

  cudaPointerAttributes found{};
  EXPECT_EQ(cudaPointerGetAttributes(&found, ptr), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeDevice);
  EXPECT_EQ(cudasim::ledger().size(), 1U);
  EXPECT_EQ(cudasim::ledger()[0].freed_by, "cudaIpcCloseMemHandle");

  EXPECT_EQ(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
  EXPECT_EQ(again, ptr);
  EXPECT_EQ(cudaFree(ptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcCloseMemHandle(static_cast<char*>(ptr) + 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcCloseMemHandle(ptr), cudaSuccess);
  EXPECT_EQ(cudaMemset(ptr, 'f', 1), cudaSuccess) << "it was opened twice";
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaIpcCloseMemHandle(ptr), cudaSuccess);
  EXPECT_EQ(cudaIpcCloseMemHandle(ptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 4U);
  EXPECT_EQ(cudaMemset(ptr, 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::use_after_free), 1U);
}

TEST_F(Ipc, HandlesHaveToBeHandles)
{
  cudaIpcMemHandle_t handle{};
  void* ptr = nullptr;
  std::memset(&handle, 0x77, sizeof handle);
  EXPECT_EQ(cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcOpenMemHandle(nullptr, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(nullptr, &handle), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 3U);
}

TEST_F(Ipc, OnlyDeviceMemoryOfCudaMallocHasAHandle)
{
  void* pooled  = nullptr;
  void* managed = nullptr;
  cudaIpcMemHandle_t handle{};
  ASSERT_EQ(cudaMallocAsync(&pooled, 100, nullptr), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal), cudaSuccess);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, pooled), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, managed), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
  EXPECT_EQ(cudaFreeAsync(pooled, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(Ipc, AProcessThatIsGoneHasNoMemoryToOpen)
{
  // The child writes its handle to a pipe and ends.
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_TRUE(passes_elsewhere("DISABLED_Child.SendsAHandle", "", ends[1]));
  cudaIpcMemHandle_t handle{};
  ASSERT_EQ(::read(ends[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  void* ptr = nullptr;
  EXPECT_EQ(cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorMapBufferObjectFailed);
  EXPECT_EQ(::close(ends[0]), 0);
  EXPECT_EQ(::close(ends[1]), 0);
}

TEST_F(DISABLED_Child, SendsAHandle)
{
  void* ptr = nullptr;
  cudaIpcMemHandle_t handle{};
  ASSERT_EQ(cudaMalloc(&ptr, 100), cudaSuccess);
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, ptr), cudaSuccess);
  auto const descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(inherited_descriptor()));
  EXPECT_EQ(::write(descriptor, &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

// --- pools ----------------------------------------------------------------------------------------------------------

TEST_F(Ipc, PoolsCanBeImportedByAnotherProcess)
{
  cudaMemPoolProps wanted{};
  wanted.allocType     = cudaMemAllocationTypePinned;
  wanted.handleTypes   = posix_pool;
  wanted.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool{};
  void* ptr      = nullptr;
  int descriptor = -1;
  cudaMemPoolPtrExportData data{};
  ASSERT_EQ(cudaMemPoolCreate(&pool, &wanted), cudaSuccess);
  ASSERT_EQ(cudaMallocFromPoolAsync(&ptr, 1000, pool, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemPoolExportToShareableHandle(&descriptor, pool, posix_pool, 0), cudaSuccess);
  ASSERT_EQ(cudaMemPoolExportPointer(&data, ptr), cudaSuccess);
  std::strcpy(static_cast<char*>(ptr), "from the parent");
  EXPECT_TRUE(passes_elsewhere("DISABLED_Child.ImportsAPool", to_hex(data), descriptor));
  EXPECT_EQ(text_at(ptr), "from the child");
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_EQ(cudaFreeAsync(ptr, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(DISABLED_Child, ImportsAPool)
{
  auto data = from_hex<cudaMemPoolPtrExportData>(environment("IPC_TEST_DATA"));
  cudaMemPool_t pool{};
  void* ptr = nullptr;
  ASSERT_EQ(cudaMemPoolImportFromShareableHandle(&pool, inherited_descriptor(), posix_pool, 0), cudaSuccess);
  ASSERT_EQ(cudaMemPoolImportPointer(&ptr, pool, &data), cudaSuccess);
  EXPECT_EQ(text_at(ptr), "from the parent");
  std::strcpy(static_cast<char*>(ptr), "from the child");
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U) << "the memory is the other process's";
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess) << "the pointer outlives it";
  EXPECT_EQ(text_at(ptr), "from the child");
  EXPECT_EQ(cudaFreeAsync(ptr, nullptr), cudaSuccess);
}

TEST_F(Ipc, PoolDescriptorsAreOfPools)
{
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  cudaMemPool_t pool{};
  auto* const handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(ends[0]));
  EXPECT_EQ(cudaMemPoolImportFromShareableHandle(&pool, handle, posix_pool, 0), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  EXPECT_EQ(::close(ends[0]), 0);
  EXPECT_EQ(::close(ends[1]), 0);
}

// --- physical memory ------------------------------------------------------------------------------------------------

template <class Function>
[[nodiscard]] Function* entry(char const* name)
{
  void* found = nullptr;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, nullptr), cudaSuccess) << name;
  return reinterpret_cast<Function*>(found);
}

#define DRIVER(name) entry<decltype(::name)>(#name)

/// Maps memory at a new address, passes that to `use`, and unmaps the memory.
template <class Use>
void with_mapping(CUmemGenericAllocationHandle memory, std::size_t bytes, Use&& use)
{
  CUdeviceptr begin{};
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags         = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(DRIVER(cuMemAddressReserve)(&begin, bytes, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemMap)(begin, bytes, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemSetAccess)(begin, bytes, &access, 1), CUDA_SUCCESS);
  use(reinterpret_cast<char*>(begin));
  EXPECT_EQ(DRIVER(cuMemUnmap)(begin, bytes), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemAddressFree)(begin, bytes), CUDA_SUCCESS);
}

TEST_F(Ipc, PhysicalMemoryCanBeImportedByAnotherProcessAndOutlivesTheFirst)
{
  CUmemAllocationProp wanted{};
  wanted.type                            = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes            = posix_memory;
  wanted.location.type                   = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.allocFlags.gpuDirectRDMACapable = 1;
  CUmemGenericAllocationHandle memory{};
  int descriptor = -1;
  ASSERT_EQ(DRIVER(cuMemCreate)(&memory, 4 * MiB, &wanted, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemExportToShareableHandle)(&descriptor, memory, posix_memory, 0), CUDA_SUCCESS);
  with_mapping(memory, 4 * MiB, [](char* ptr) { std::strcpy(ptr, "from the parent"); });
  EXPECT_EQ(DRIVER(cuMemRelease)(memory), CUDA_SUCCESS);
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
  EXPECT_TRUE(passes_elsewhere("DISABLED_Child.ImportsPhysicalMemory", "", descriptor));
  EXPECT_EQ(::close(descriptor), 0);
}

TEST_F(DISABLED_Child, ImportsPhysicalMemory)
{
  CUmemGenericAllocationHandle memory{};
  CUmemAllocationProp found{};
  ASSERT_EQ(DRIVER(cuMemImportFromShareableHandle)(&memory, inherited_descriptor(), posix_memory), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemGetAllocationPropertiesFromHandle)(&found, memory), CUDA_SUCCESS);
  EXPECT_EQ(found.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(found.allocFlags.gpuDirectRDMACapable, 1);
  EXPECT_EQ(cudasim::usage(0).physical, 0U) << "the memory is the other process's";
  with_mapping(memory, 4 * MiB, [](char* ptr) { EXPECT_EQ(text_at(ptr), "from the parent"); });
  int again = -1;
  EXPECT_EQ(DRIVER(cuMemExportToShareableHandle)(&again, memory, posix_memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  EXPECT_EQ(DRIVER(cuMemRelease)(memory), CUDA_SUCCESS);
}

TEST_F(Ipc, MemoryDescriptorsAreOfMemory)
{
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  CUmemGenericAllocationHandle memory{};
  auto* const handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(ends[0]));
  EXPECT_EQ(DRIVER(cuMemImportFromShareableHandle)(&memory, handle, posix_memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  EXPECT_EQ(::close(ends[0]), 0);
  EXPECT_EQ(::close(ends[1]), 0);
}

}  // namespace
}  // namespace cudasim_tests
