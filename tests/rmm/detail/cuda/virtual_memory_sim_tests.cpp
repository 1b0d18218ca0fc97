// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory, where the test needs the simulator: leaks after failed driver calls, which calls are made, and the end of the
// process. virtual_memory_tests.cpp has the tests that run on any device.

#include "../../../support/simulated.hpp"

#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/context_device.hpp>
#include <rmm/detail/cuda/driver.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/error.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::detail::address_reservation;
using rmm::detail::device_access;
using rmm::detail::driver_functions;
using rmm::detail::has_virtual_memory;
using rmm::detail::physical_memory;

constexpr std::size_t unit = std::size_t{2} << 20U;

/// Two devices.
struct SimulatedVirtualMemory : Simulated {
  void SetUp() override
  {
    auto options    = cudasim::environment_options();
    options.devices = 2;
    cudasim::reset(options);
  }

  /// Restores the default machine, because other tests also run on real devices.
  void TearDown() override
  {
    Simulated::TearDown();
    cudasim::reset();
  }

  static int current_device()
  {
    int device{-1};
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
  }
};

// --- finding the driver

TEST_F(SimulatedVirtualMemory, IsNotThereWhereTheDeviceHasNone)
{
  EXPECT_TRUE(has_virtual_memory(0));
  cudasim::set_device_attribute(
    0, static_cast<cudaDeviceAttr>(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 0);
  EXPECT_FALSE(has_virtual_memory(0));
  EXPECT_TRUE(has_virtual_memory(1));
}

TEST_F(SimulatedVirtualMemory, NeedsEveryFunctionOfTheDriver)
{
#if CUDART_VERSION >= 12050
  std::string const search{"cudaGetDriverEntryPointByVersion"};
#else
  std::string const search{"cudaGetDriverEntryPoint"};
#endif
  auto const before = cudasim::calls(search);
  driver_functions all{};
  EXPECT_TRUE(rmm::detail::find_driver_functions(all));
  auto const functions = cudasim::calls(search) - before;
  for (std::uint64_t n = 1; n <= functions; ++n) {
    cudasim::inject({search, n, cudaErrorInvalidValue, 1});
    driver_functions some{};
    EXPECT_FALSE(rmm::detail::find_driver_functions(some)) << n;
  }
  cudasim::inject({"cuInit", 1, cudaErrorNoDevice, 1});
  EXPECT_FALSE(rmm::detail::find_driver_functions(all));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(SimulatedVirtualMemory, IsLookedForAgainAfterAFailure)
{
  EXPECT_EXIT(
    {
      cudasim::inject({"cuInit", 1, cudaErrorInitializationError, 1});
      bool const found_at_first = has_virtual_memory(0);
      std::_Exit(!found_at_first && has_virtual_memory(0) ? 0 : 1);
    },
    ::testing::ExitedWithCode(0),
    "");
}

/// Ends the process with 0 if making memory reports that there is no virtual memory.
[[noreturn]] void exit_without_virtual_memory()
{
  cudasim::inject({"cuInit", 1, cudaErrorInitializationError, 1'000'000});
  try {
    physical_memory const memory{0, unit};
  } catch (rmm::cuda_error const& thrown) {
    std::_Exit(std::string{thrown.what()}.find("no virtual memory") != std::string::npos ? 0 : 1);
  }
  std::_Exit(2);
}

TEST_F(SimulatedVirtualMemory, SaysThatThereIsNone)
{
  EXPECT_EXIT(exit_without_virtual_memory(), ::testing::ExitedWithCode(0), "");
}

// --- addresses

TEST_F(SimulatedVirtualMemory, FreesAddressesOnceWhenTheyMove)
{
  std::optional<address_reservation> first{std::in_place, 0, unit};
  auto const begin = first->begin();
  std::optional<address_reservation> second{std::move(*first)};
  EXPECT_EQ(first->bytes(), 0U);
  EXPECT_EQ(second->begin(), begin);
  first.reset();
  EXPECT_EQ(cudasim::calls("cuMemAddressFree"), 0U);
  second.reset();
  EXPECT_EQ(cudasim::calls("cuMemAddressFree"), 1U);
}

// --- current devices

TEST_F(SimulatedVirtualMemory, ChangesContextsOnlyForAnotherDevice)
{
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // creates a current context
  {
    address_reservation range{0, unit};
    physical_memory const memory{0, unit};
    range.map(range.begin(), memory);
    range.set_access(range.begin(), unit, device_access{{0}});
    range.unmap(range.begin(), unit);
  }
  EXPECT_EQ(cudasim::calls("cuCtxPushCurrent"), 0U);
  {
    physical_memory const memory{1, unit};
    EXPECT_EQ(cudasim::calls("cuCtxPushCurrent"), 1U);
    EXPECT_EQ(cudasim::usage(1).physical, unit);
    EXPECT_EQ(current_device(), 0);
  }
  EXPECT_EQ(cudasim::calls("cuCtxPushCurrent"), 2U);
  EXPECT_EQ(cudasim::calls("cuCtxPopCurrent"), 2U);
  EXPECT_EQ(cudasim::calls("cudaSetDevice"), 0U);
}

TEST_F(SimulatedVirtualMemory, LeavesAThreadWithoutAContextAsItWas)
{
  std::thread{[] {
    {
      physical_memory const memory{1, unit};
      EXPECT_EQ(cudasim::calls("cuCtxPushCurrent"), 1U);
    }
    int device{};
    EXPECT_FALSE(rmm::detail::find_device_of_current_context(device));
  }}.join();
}

TEST_F(SimulatedVirtualMemory, GivesUpOnTheContextIfThereIsNone)
{
  for (auto const* const call : {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"}) {
    cudasim::inject({call, 1, cudaErrorMemoryAllocation, 1});
    physical_memory const memory{1, unit};
    EXPECT_EQ(current_device(), 0) << call;
  }
}

TEST_F(SimulatedVirtualMemory, IsNotForDevicesWithoutAccess)
{
  address_reservation range{0, unit};
  range.map(range.begin(), physical_memory{0, unit});
  range.set_access(range.begin(), unit, device_access{{0}});
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaMemset(reinterpret_cast<void*>(range.begin()), 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudasim::violations().size(), 1U);
  cudasim::clear_violations();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  range.unmap(range.begin(), unit);
}

// --- faults

/// Maps two chunks, exports and imports one, and unmaps all. Any of these calls may fail.
void use_virtual_memory()
{
  rmm::detail::physical_memory_options options{};
  options.descriptors = true;
  address_reservation range{1, 4 * unit};
  physical_memory const first{1, unit, options};
  physical_memory const second{1, unit};
  device_access const access{rmm::detail::devices_with_access_to(1)};
  range.map(range.begin(), first);
  rmm::detail::scope_guard const undo{[&]() noexcept { range.unmap(range.begin(), range.bytes()); }};
  range.map(range.begin() + unit, second);
  range.set_access(range.begin(), 2 * unit, access);
  int const descriptor = first.export_descriptor();
  rmm::detail::scope_guard const close{[&]() noexcept { ::close(descriptor); }};
  range.map(range.begin() + 2 * unit, physical_memory::import_descriptor(1, unit, descriptor));
}

TEST_F(SimulatedVirtualMemory, LeavesNothingBehindWhenACallFails)
{
  // Without the calls that free something, because their failures are asserted.
  std::vector<std::pair<std::string, std::uint64_t>> const calls{{"cuMemAddressReserve", 1},
                                                                 {"cuMemCreate", 2},
                                                                 {"cudaGetDeviceCount", 1},
                                                                 {"cudaDeviceCanAccessPeer", 1},
                                                                 {"cuMemMap", 3},
                                                                 {"cuMemSetAccess", 1},
                                                                 {"cuMemExportToShareableHandle", 1},
                                                                 {"cuMemImportFromShareableHandle", 1}};
  for (auto const& [call, count] : calls) {
    bool has_thrown{};
    auto const failures = cudasim::for_each_fault(
      [&has_thrown] {
        has_thrown = false;
        try {
          use_virtual_memory();
        } catch (std::exception const&) {
          has_thrown = true;
        }
      },
      [&, name = call](auto n) {
        EXPECT_TRUE(has_thrown) << name << " failed the " << n << "th time";
        EXPECT_EQ(cudasim::leak_report(), "") << name << " failed the " << n << "th time";
        EXPECT_EQ(cudasim::usage(1).physical, 0U) << name << " failed the " << n << "th time";
        EXPECT_EQ(current_device(), 0);
        EXPECT_EQ(cudaGetLastError(), cudaSuccess);
      },
      cudaErrorMemoryAllocation,
      call);
    EXPECT_EQ(failures, count) << call;
  }
}

TEST_F(SimulatedVirtualMemory, DistinguishesMissingMemoryFromOtherFailures)
{
  address_reservation range{0, unit};
  physical_memory const memory{0, unit};
  cudasim::inject({"cuMemMap", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_THROW(range.map(range.begin(), memory), rmm::out_of_memory);
  cudasim::inject({"cuMemMap", 1, cudaErrorIllegalState, 1});
  try {
    range.map(range.begin(), memory);
    ADD_FAILURE() << "nothing was thrown";
  } catch (rmm::out_of_memory const&) {
    ADD_FAILURE() << "memory is not what is missing";
  } catch (rmm::bad_alloc const& thrown) {
    EXPECT_NE(std::string{thrown.what()}.find("CUDA_ERROR_ILLEGAL_STATE"), std::string::npos) << thrown.what();
  }
}

TEST_F(SimulatedVirtualMemory, DiesQuietlyAfterTheRuntime)
{
  {
    address_reservation range{1, unit};
    physical_memory const memory{1, unit};
    range.map(range.begin(), memory);
    cudasim::begin_unloading();
    range.unmap(range.begin(), unit);
  }
  cudasim::reset();
}

}  // namespace
