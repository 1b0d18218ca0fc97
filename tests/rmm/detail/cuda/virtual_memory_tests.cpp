// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/cuda/virtual_memory.hpp>

#include <rmm/detail/cuda/driver.hpp>
#include <rmm/error.hpp>

#include "../../../support/sanitizers.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::detail::address_reservation;
using rmm::detail::device_access;
using rmm::detail::driver_functions;
using rmm::detail::has_virtual_memory;
using rmm::detail::physical_memory;
using rmm::detail::physical_memory_options;
using rmm::detail::supported_physical_memory_options;
using rmm::detail::virtual_memory_granularity;

static_assert(std::is_nothrow_move_constructible_v<physical_memory> && !std::is_copy_constructible_v<physical_memory>);
static_assert(std::is_nothrow_move_constructible_v<address_reservation> &&
              !std::is_copy_constructible_v<address_reservation>);
static_assert(noexcept(has_virtual_memory(0)));

template <class Exception, class Function>
std::string message_of(Function const& function)
{
  try {
    function();
  } catch (Exception const& thrown) {
    return thrown.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

// --- the driver

TEST(Driver, IsFoundAndKept)
{
  auto const* const driver = rmm::detail::find_driver();
  ASSERT_NE(driver, nullptr);
  EXPECT_EQ(rmm::detail::find_driver(), driver);
  EXPECT_EQ(&rmm::detail::driver(), driver);
}

TEST(Driver, ReturnsNullForMissingFunctions)
{
  void (*function)() = [] {};
  EXPECT_FALSE(rmm::detail::find_driver_function(function, "cuNoSuchFunction"));
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(DriverErrors, AreNamedAndExplained)
{
  EXPECT_EQ(rmm::detail::driver_error_text("cuMemMap", CUDA_ERROR_INVALID_VALUE),
            "CUDA error in cuMemMap: CUDA_ERROR_INVALID_VALUE invalid argument");
  EXPECT_EQ(rmm::detail::driver_error_text("cuMemMap", static_cast<CUresult>(990)),
            "CUDA error in cuMemMap: CUDA driver error 990 unrecognized error code");
}

TEST(DriverErrors, AreCudaErrorsIfNoMemoryWasRequested)
{
  EXPECT_NO_THROW(rmm::detail::check_driver(CUDA_SUCCESS, "cuMemMap"));
  EXPECT_THROW(rmm::detail::check_driver(CUDA_ERROR_OUT_OF_MEMORY, "cuMemMap"), rmm::cuda_error);
}

TEST(DriverErrors, DistinguishMissingMemoryFromOtherFailures)
{
  auto const fail_with = [](CUresult status) {
    return [=] { rmm::detail::check_driver_alloc(status, "cuMemCreate", 12345); };
  };
  EXPECT_NO_THROW(fail_with(CUDA_SUCCESS)());
  auto const missing = message_of<rmm::out_of_memory>(fail_with(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_TRUE(contains(missing, "cuMemCreate (12345 bytes): CUDA_ERROR_OUT_OF_MEMORY out of memory")) << missing;
  try {
    fail_with(CUDA_ERROR_NOT_SUPPORTED)();
    ADD_FAILURE() << "nothing was thrown";
  } catch (rmm::out_of_memory const&) {
    ADD_FAILURE() << "memory is not what is missing";
  } catch (rmm::bad_alloc const& thrown) {
    EXPECT_TRUE(contains(thrown.what(), "CUDA_ERROR_NOT_SUPPORTED")) << thrown.what();
  }
}

// --- devices

TEST(VirtualMemorySupport, FollowsTheDevice)
{
  auto const attribute = [](CUdevice_attribute which) {
    int value{};
    EXPECT_EQ(rmm::detail::driver().device_attribute(&value, which, 0), CUDA_SUCCESS);
    return value != 0;
  };
  EXPECT_EQ(has_virtual_memory(0), attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
  auto const options = supported_physical_memory_options(0);
  EXPECT_EQ(options.descriptors, attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
  EXPECT_EQ(options.gpu_direct_rdma, attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED));
#if CUDA_VERSION >= 12030
  EXPECT_EQ(options.fabric, attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED));
  static_assert(rmm::detail::fabric_handle_type == CU_MEM_HANDLE_TYPE_FABRIC);
  static_assert(sizeof(rmm::detail::fabric_handle) == sizeof(CUmemFabricHandle));
#endif
}

TEST(VirtualMemorySupport, IsAbsentForAnUnknownDevice)
{
  EXPECT_FALSE(has_virtual_memory(77));
  EXPECT_THROW(static_cast<void>(rmm::detail::is_known_to_have_virtual_memory(77)), rmm::cuda_error);
  EXPECT_THROW(static_cast<void>(supported_physical_memory_options(77)), rmm::cuda_error);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(VirtualMemorySupport, ADeviceHasAccessToItsOwnMemory)
{
  auto const devices = rmm::detail::devices_with_access_to(0);
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices.front(), 0);
}

TEST(DeviceAccess, IsOfAtLeastOneDevice) { EXPECT_THROW(device_access{{}}, rmm::logic_error); }

// --- addresses and memory

/// Virtual memory of device 0, which need not be current. Compares free memory before and after.
struct VirtualMemory : ::testing::Test {
  void SetUp() override
  {
    if (!has_virtual_memory(0)) { GTEST_SKIP() << "the device has no virtual memory"; }
    copy_once();
    unit        = virtual_memory_granularity(0);
    free_before = free_memory();
  }

  void TearDown() override
  {
    if (IsSkipped()) { return; }
    EXPECT_EQ(free_memory(), free_before);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  /// Makes the context take the memory that it needs for copies, so that tests do not count it.
  static void copy_once()
  {
    void* ptr{};
    std::uint32_t word{};
    ASSERT_EQ(cudaMalloc(&ptr, sizeof word), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(ptr, &word, sizeof word, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&word, ptr, sizeof word, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  }

  static std::size_t free_memory() { return rmm::detail::device_memory_info().first; }

  std::size_t taken() const { return free_before - free_memory(); }

  static void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

  /// Writes `value` to the first bytes at an address. Waits: a copy from pageable memory may return while the device still writes.
  static void write(std::uintptr_t at, unsigned value)
  {
    EXPECT_EQ(cudaMemcpy(pointer(at), &value, sizeof value, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  static unsigned read(std::uintptr_t at)
  {
    unsigned value{};
    EXPECT_EQ(cudaMemcpy(&value, pointer(at), sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }

  std::size_t unit{};
  std::size_t free_before{};
  device_access const own_access{{0}};
};

TEST_F(VirtualMemory, HasUnitsThatArePowersOfTwo)
{
  EXPECT_GT(unit, 0U);
  EXPECT_EQ(unit & (unit - 1), 0U);
}

TEST_F(VirtualMemory, ReservesManyTimesWhatTheDeviceHas)
{
  auto const bytes = rmm::test::exhaustion_ends_program ? std::size_t{1} << 38U : std::size_t{1} << 44U;
  address_reservation const range{0, bytes};
  EXPECT_EQ(range.bytes(), bytes);
  EXPECT_EQ(range.device(), 0);
  EXPECT_EQ(range.begin() % unit, 0U);
  EXPECT_EQ(taken(), 0U);
}

TEST_F(VirtualMemory, HasNoRoomForEndlessAddresses)
{
  auto const text = message_of<rmm::bad_alloc>([] { address_reservation const range{0, std::size_t{1} << 62U}; });
  EXPECT_TRUE(contains(text, "cuMemAddressReserve: CUDA_ERROR_")) << text;
  EXPECT_THROW((address_reservation{0, unit + 1}), rmm::bad_alloc);
}

TEST_F(VirtualMemory, KnowsWhichAddressesItContains)
{
  address_reservation const range{0, 4 * unit};
  auto const begin = range.begin();
  EXPECT_TRUE(range.contains(begin, 4 * unit));
  EXPECT_TRUE(range.contains(begin + 3 * unit, unit));
  EXPECT_TRUE(range.contains(begin + 4 * unit, 0));
  EXPECT_FALSE(range.contains(begin + 3 * unit, 2 * unit));
  EXPECT_FALSE(range.contains(begin - unit, unit));
  EXPECT_FALSE(range.contains(begin + 5 * unit, 0));
  EXPECT_FALSE(range.contains(begin + unit, SIZE_MAX));
}

TEST_F(VirtualMemory, TakesMemoryFromTheDeviceWhileItLives)
{
  {
    physical_memory const memory{0, 4 * unit};
    EXPECT_EQ(memory.bytes(), 4 * unit);
    EXPECT_EQ(taken(), 4 * unit);
  }
  EXPECT_EQ(taken(), 0U);
}

TEST_F(VirtualMemory, ReleasesMemoryOnceWhenItMoves)
{
  physical_memory first{0, unit};
  physical_memory second{std::move(first)};
  EXPECT_EQ(first.bytes(), 0U);
  EXPECT_EQ(taken(), unit);
  second = physical_memory{0, 2 * unit};
  EXPECT_EQ(taken(), 2 * unit);
}

TEST_F(VirtualMemory, SaysThatTheDeviceHasNotEnough)
{
  auto const too_much = free_before / unit * unit + (unit << 10U);
  auto const text     = message_of<rmm::out_of_memory>([&] { physical_memory const memory{0, too_much}; });
  EXPECT_TRUE(contains(text, "cuMemCreate (" + std::to_string(too_much) + " bytes): CUDA_ERROR_OUT_OF_MEMORY")) << text;
  free_before = free_memory();  // when the driver runs out of memory, it frees its own
}

TEST_F(VirtualMemory, SaysThatASizeIsWrong)
{
  EXPECT_THROW((physical_memory{0, unit + 1}), rmm::bad_alloc);
  try {
    physical_memory const memory{0, 0};
    ADD_FAILURE() << "nothing was thrown";
  } catch (rmm::out_of_memory const&) {
    ADD_FAILURE() << "memory is not what is missing";
  } catch (rmm::bad_alloc const&) {}
}

// --- mappings

TEST_F(VirtualMemory, IsUsableWhereItIsMapped)
{
  address_reservation range{0, 4 * unit};
  physical_memory const memory{0, unit};
  auto const at = range.begin() + 2 * unit;
  range.map(at, memory);
  range.set_access(at, unit, own_access);
  write(at + unit - sizeof(unsigned), 7);
  EXPECT_EQ(read(at + unit - sizeof(unsigned)), 7U);
  range.unmap(at, unit);
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, pointer(at)), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(VirtualMemory, LivesAsLongAsItIsMapped)
{
  address_reservation range{0, unit};
  range.map(range.begin(), physical_memory{0, unit});
  range.set_access(range.begin(), unit, own_access);
  EXPECT_EQ(taken(), unit);
  write(range.begin(), 7);
  EXPECT_EQ(read(range.begin()), 7U);
  range.unmap(range.begin(), unit);
  EXPECT_EQ(taken(), 0U);
}

TEST_F(VirtualMemory, KeepsItsBytesFromOneMappingToTheNext)
{
  address_reservation range{0, 2 * unit};
  physical_memory const memory{0, unit};
  auto const first  = range.begin();
  auto const second = first + unit;
  range.map(first, memory);
  range.set_access(first, unit, own_access);
  write(first, 7);
  range.unmap(first, unit);
  range.map(second, memory);
  range.set_access(second, unit, own_access);
  EXPECT_EQ(read(second), 7U);
  range.unmap(second, unit);
}

TEST_F(VirtualMemory, ShowsTheSameBytesAtTwoAddresses)
{
  address_reservation range{0, 2 * unit};
  physical_memory const memory{0, unit};
  range.map(range.begin(), memory);
  range.map(range.begin() + unit, memory);
  range.set_access(range.begin(), 2 * unit, own_access);
  write(range.begin(), 7);
  EXPECT_EQ(read(range.begin() + unit), 7U);
  EXPECT_EQ(taken(), unit);
  range.unmap(range.begin(), 2 * unit);
}

TEST_F(VirtualMemory, IsMappedChunkByChunkAndUnmappedTogether)
{
  constexpr std::size_t count = 16;
  address_reservation range{0, count * unit};
  for (std::size_t i = 0; i < count; i += 2) {  // every second chunk
    range.map(range.begin() + i * unit, physical_memory{0, unit});
  }
  range.unmap(range.begin(), 3 * unit);
  EXPECT_EQ(taken(), (count / 2 - 2) * unit);
  range.unmap(range.begin(), count * unit);
  EXPECT_EQ(taken(), 0U);
}

TEST_F(VirtualMemory, IsNotMappedOverOtherMemory)
{
  address_reservation range{0, unit};
  physical_memory const first{0, unit};
  physical_memory const second{0, unit};
  range.map(range.begin(), first);
  range.set_access(range.begin(), unit, own_access);
  write(range.begin(), 7);
  auto const text = message_of<rmm::bad_alloc>([&] { range.map(range.begin(), second); });
  EXPECT_TRUE(contains(text, "cuMemMap (" + std::to_string(unit) + " bytes)")) << text;
  EXPECT_EQ(read(range.begin()), 7U);
  range.unmap(range.begin(), unit);
}

TEST_F(VirtualMemory, HasNoAccessToHoles)
{
  address_reservation range{0, 2 * unit};
  range.map(range.begin(), physical_memory{0, unit});
  auto const text = message_of<rmm::bad_alloc>([&] { range.set_access(range.begin(), 2 * unit, own_access); });
  EXPECT_TRUE(contains(text, "cuMemSetAccess")) << text;
  range.unmap(range.begin(), unit);
}

// --- current devices

TEST_F(VirtualMemory, WorksOnAThreadThatNeverUsedADevice)
{
  std::thread{[&] {
    address_reservation range{0, unit};
    range.map(range.begin(), physical_memory{0, unit});
    range.set_access(range.begin(), unit, own_access);
    range.unmap(range.begin(), unit);
  }}.join();
  EXPECT_EQ(taken(), 0U);
}

TEST_F(VirtualMemory, NeedsNoDeviceToBeCurrentAndChangesNone)
{
  int count{};
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2 || !has_virtual_memory(1)) { GTEST_SKIP() << "needs two devices"; }
  auto const current = [] {
    int device{-1};
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
  };
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    address_reservation range{1, unit};
    physical_memory const memory{1, unit};
    range.map(range.begin(), memory);
    range.set_access(range.begin(), unit, device_access{{1}});
    EXPECT_EQ(current(), 0);
    EXPECT_EQ(taken(), 0U) << "the memory is the other device's";
    range.unmap(range.begin(), unit);
  }
  EXPECT_EQ(current(), 0);
}

TEST_F(VirtualMemory, CanBeUsedByPeersThatGetAccess)
{
  auto const devices = rmm::detail::devices_with_access_to(0);
  if (devices.size() < 2) { GTEST_SKIP() << "needs two devices, one of which can use the other's memory"; }
  address_reservation range{0, unit};
  range.map(range.begin(), physical_memory{0, unit});
  range.set_access(range.begin(), unit, device_access{devices});
  ASSERT_EQ(cudaSetDevice(devices[1]), cudaSuccess);
  EXPECT_EQ(cudaMemset(pointer(range.begin()), 1, sizeof(unsigned)), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(read(range.begin()), 0x01010101U);
  range.unmap(range.begin(), unit);
}

// --- sharing

/// Memory that can be exported.
struct SharedVirtualMemory : VirtualMemory {
  void SetUp() override
  {
    VirtualMemory::SetUp();
    if (IsSkipped()) { return; }
    if (!supported_physical_memory_options(0).descriptors) { GTEST_SKIP() << "the device exports no descriptors"; }
    options.descriptors = true;
  }

  physical_memory_options options{};
};

TEST_F(SharedVirtualMemory, IsTheSameMemoryWhenItIsImported)
{
  std::optional<physical_memory> memory{std::in_place, 0, unit, options};
  int const descriptor = memory->export_descriptor();
  ASSERT_GE(descriptor, 0);
  auto const imported = physical_memory::import_descriptor(0, unit, descriptor);
  EXPECT_EQ(::close(descriptor), 0) << "it is the caller's";
  EXPECT_EQ(imported.bytes(), unit);

  address_reservation range{0, 2 * unit};
  range.map(range.begin(), *memory);
  range.map(range.begin() + unit, imported);
  range.set_access(range.begin(), 2 * unit, own_access);
  write(range.begin(), 7);
  EXPECT_EQ(read(range.begin() + unit), 7U);
  range.unmap(range.begin(), unit);
  memory.reset();
  EXPECT_EQ(read(range.begin() + unit), 7U);
  EXPECT_EQ(taken(), unit);
  range.unmap(range.begin() + unit, unit);
}

TEST_F(SharedVirtualMemory, IsExportedOnlyIfItWasMadeForIt)
{
  physical_memory const memory{0, unit};
  auto const text = message_of<rmm::cuda_error>([&] { static_cast<void>(memory.export_descriptor()); });
  EXPECT_TRUE(contains(text, "CUDA error in cuMemExportToShareableHandle: CUDA_ERROR_INVALID_VALUE")) << text;
}

TEST_F(SharedVirtualMemory, IsNotImportedFromAnyDescriptor)
{
  auto const text =
    message_of<rmm::cuda_error>([&] { static_cast<void>(physical_memory::import_descriptor(0, unit, 9999)); });
  EXPECT_TRUE(contains(text, "CUDA error in cuMemImportFromShareableHandle: CUDA_ERROR_")) << text;
}

TEST_F(SharedVirtualMemory, CanBeUsedByNetworkAdapters)
{
  if (!supported_physical_memory_options(0).gpu_direct_rdma) { GTEST_SKIP() << "the device has no such memory"; }
  options.gpu_direct_rdma = true;
  physical_memory const memory{0, unit, options};
  decltype(&::cuMemGetAllocationPropertiesFromHandle) get_properties{};
  ASSERT_TRUE(rmm::detail::find_driver_function(get_properties, "cuMemGetAllocationPropertiesFromHandle"));
  CUmemAllocationProp properties{};
  ASSERT_EQ(get_properties(&properties, memory.handle()), CUDA_SUCCESS);
  EXPECT_EQ(properties.allocFlags.gpuDirectRDMACapable, 1);
  EXPECT_EQ(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_F(SharedVirtualMemory, IsExportedToTheFabricOrReportsWhyNot)
{
  if (!supported_physical_memory_options(0).fabric) { GTEST_SKIP() << "the device has no fabric handles"; }
  options.descriptors = false;
  options.fabric      = true;
  try {
    physical_memory const memory{0, unit, options};
    auto const imported = physical_memory::import_fabric(0, unit, memory.export_fabric());
    EXPECT_EQ(imported.bytes(), unit);
  } catch (rmm::bad_alloc const& refused) {  // this process has no fabric channel
    EXPECT_TRUE(contains(refused.what(), "CUDA_ERROR_NOT_PERMITTED")) << refused.what();
  }
}

// The other process runs this program again, and inherits the memory's descriptor.

constexpr char const* descriptor_variable = "RMM_TEST_DESCRIPTOR";

bool passes_elsewhere(char const* test, int descriptor)
{
  int const inherited = ::fcntl(descriptor, F_DUPFD, 100);  // unlike the driver's descriptor, it stays open after exec
  auto const child    = ::fork();
  auto const description = std::to_string(inherited);
  auto const filter      = std::string{"--gtest_filter="} + test;
  if (child == 0) {
    ::setenv(descriptor_variable, description.c_str(), 1);
    ::execl("/proc/self/exe", "tests", filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  int status{-1};
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(::close(inherited), 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(SharedVirtualMemory, IsSharedWithAnotherProcess)
{
  physical_memory const memory{0, unit, options};
  int const descriptor = memory.export_descriptor();
  address_reservation range{0, unit};
  range.map(range.begin(), memory);
  range.set_access(range.begin(), unit, own_access);
  write(range.begin(), 7);
  EXPECT_TRUE(passes_elsewhere("SharedVirtualMemory.DISABLED_AddsOneInAnotherProcess", descriptor));
  EXPECT_EQ(read(range.begin()), 8U);
  range.unmap(range.begin(), unit);
  EXPECT_EQ(::close(descriptor), 0);
}

TEST_F(SharedVirtualMemory, DISABLED_AddsOneInAnotherProcess)
{
  auto const* const text = std::getenv(descriptor_variable);
  ASSERT_NE(text, nullptr) << "IsSharedWithAnotherProcess runs this";
  auto const memory = physical_memory::import_descriptor(0, unit, std::atoi(text));
  address_reservation range{0, unit};
  range.map(range.begin(), memory);
  range.set_access(range.begin(), unit, own_access);
  auto const value = read(range.begin());
  EXPECT_EQ(value, 7U);
  write(range.begin(), value + 1);
  range.unmap(range.begin(), unit);
}

}  // namespace
