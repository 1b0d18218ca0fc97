// SPDX-License-Identifier: Apache-2.0

// Invalid arguments to every resource: each gives a clear error, leaks nothing, and leaves the resource usable.

#include "../../support/every_resource.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/host/new_delete_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/mr/shared_memory.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

using rmm::mr::cuda_memory_resource;
using rmm::test::named_resource;

constexpr auto largest = std::numeric_limits<std::size_t>::max();

/// Returns the message of the `Exception` that `call` throws. Fails if it throws another exception or none.
template <class Exception, class Call>
std::string message_of(Call call)
{
  try {
    call();
  } catch (Exception const& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// Returns whether a message contains the size of a request: in the largest unit, or in bytes, with up to 8 KiB more for alignment
/// and red zones.
bool names_size(std::string const& message, std::size_t bytes)
{
  if (message.find("failed to allocate " + rmm::detail::format_bytes(bytes)) != std::string::npos) { return true; }
  for (std::size_t at = 0; at < message.size();) {
    auto const begin = message.find_first_of("0123456789", at);
    if (begin == std::string::npos) { break; }
    at = std::min(message.find_first_not_of("0123456789", begin), message.size());
    if (at - begin > 18) {
      auto const number = std::stoull(message.substr(begin, at - begin));
      if (number >= bytes && number - bytes <= 8192) { return true; }
    }
  }
  return false;
}

// --- requests

struct BadInput : ::testing::TestWithParam<named_resource> {
  BadInput() : resource{GetParam().make()}, counted{resource != nullptr ? resource.get() : &unused} {}

  void SetUp() override
  {
    if (resource == nullptr) { GTEST_SKIP() << "this device or build has no such resource"; }
  }

  void TearDown() override
  {
    if (resource == nullptr) { return; }
    EXPECT_EQ(counted.get_bytes_counter().value, 0) << "something was lost";
    rmm::device_buffer const usable{1000, rmm::cuda_stream_default, resource.get()};
    EXPECT_NE(usable.data(), nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  cuda_memory_resource unused;
  std::shared_ptr<rmm::mr::device_memory_resource> resource;
  rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource> counted;
};

TEST_P(BadInput, SizesNearTheLargestAreOutOfMemoryAndTheMessageNamesThem)
{
  for (auto const bytes : {largest, largest - 1, largest - 255, largest - 256, largest / 2 + 1}) {
    auto const expect_refused = [&](auto const& call) {
      auto const message = message_of<rmm::out_of_memory>(call);
      EXPECT_TRUE(names_size(message, bytes)) << bytes << ": " << message;
    };
    expect_refused([&] { static_cast<void>(counted.allocate(bytes)); });
    expect_refused([&] { static_cast<void>(counted.allocate(bytes, 256)); });
    expect_refused([&] { static_cast<void>(counted.allocate(rmm::cuda_stream_default, bytes)); });
    expect_refused([&] { rmm::device_buffer const made(bytes, rmm::cuda_stream_default, &counted); });
    expect_refused([&] { rmm::device_uvector<char> const made(bytes, rmm::cuda_stream_default, &counted); });
  }
}

TEST_P(BadInput, RefusesAlignmentsOtherThanPowersOfTwo)
{
  rmm::device_async_resource_ref const ref{counted};
  for (std::size_t const alignment : {std::size_t{0}, std::size_t{3}, std::size_t{255}, std::size_t{768}, largest}) {
    EXPECT_THROW(static_cast<void>(counted.allocate(100, alignment)), rmm::bad_alloc) << alignment;
    EXPECT_THROW(static_cast<void>(counted.allocate_sync(100, alignment)), rmm::bad_alloc) << alignment;
    EXPECT_THROW(static_cast<void>(counted.allocate_async(100, alignment, rmm::cuda_stream_default)), rmm::bad_alloc)
      << alignment;
    EXPECT_THROW(static_cast<void>(counted.allocate(rmm::cuda_stream_default, 100, alignment)), rmm::bad_alloc)
      << alignment;
    EXPECT_THROW(static_cast<void>(ref.allocate(100, alignment)), rmm::bad_alloc) << alignment;
    EXPECT_THROW(static_cast<void>(ref.allocate_async(100, alignment, rmm::cuda_stream_default)), rmm::bad_alloc)
      << alignment;
  }
}

TEST_P(BadInput, ZeroBytesAreFreedLikeOtherBlocks)
{
  void* const ptr = counted.allocate(0);
  counted.deallocate(ptr, 0);
  counted.deallocate(nullptr, 0);
}

TEST_P(BadInput, AContainerThatCannotGrowStaysUnchanged)
{
  rmm::device_buffer buffer{1000, rmm::cuda_stream_default, &counted};
  rmm::device_uvector<double> vector(100, rmm::cuda_stream_default, &counted);
  EXPECT_THROW(buffer.resize(largest, rmm::cuda_stream_default), rmm::out_of_memory);
  EXPECT_THROW(buffer.reserve(largest - 15, rmm::cuda_stream_default), rmm::out_of_memory);
  EXPECT_THROW(vector.resize(largest, rmm::cuda_stream_default), rmm::out_of_memory);
  EXPECT_THROW(vector.reserve(largest / sizeof(double), rmm::cuda_stream_default), rmm::out_of_memory);
  EXPECT_EQ(buffer.size(), 1000U);
  EXPECT_EQ(buffer.capacity(), 1000U);
  EXPECT_EQ(vector.size(), 100U);
  EXPECT_EQ(vector.capacity(), 100U);
}

INSTANTIATE_TEST_SUITE_P(Resources, BadInput, ::testing::ValuesIn(rmm::test::every_resource()), [](auto const& test) {
  return std::string{test.param.name};
});
INSTANTIATE_TEST_SUITE_P(ResourcesOfSomeDevices,
                         BadInput,
                         ::testing::ValuesIn(rmm::test::resources_of_some_devices()),
                         [](auto const& test) { return std::string{test.param.name}; });

// --- construction

TEST(BadUpstream, SuballocatorsSayThatTheUpstreamIsNull)
{
  cuda_memory_resource* const none = nullptr;
  std::vector<std::string> const messages{
    message_of<rmm::logic_error>([&] { rmm::mr::pool_memory_resource const made(none, 0); }),
    message_of<rmm::logic_error>([&] { rmm::mr::arena_memory_resource const made(none); }),
    message_of<rmm::logic_error>([&] { rmm::mr::fixed_size_memory_resource const made(none); }),
    message_of<rmm::logic_error>([&] { rmm::mr::binning_memory_resource const made(none); }),
    message_of<rmm::logic_error>([&] { rmm::mr::binning_memory_resource const made(none, 18, 22); }),
  };
  for (auto const& message : messages) {
    EXPECT_EQ(message.rfind("RMM failure at: ", 0), 0U) << message;
    EXPECT_NE(message.find("Unexpected null upstream pointer."), std::string::npos) << message;
  }
}

TEST(BadUpstream, AViewSaysThatThePoolIsNull)
{
  auto const message =
    message_of<rmm::logic_error>([] { rmm::mr::cuda_async_view_memory_resource const made{cudaMemPool_t{nullptr}}; });
  EXPECT_NE(message.find("null pool handle"), std::string::npos) << message;
}

TEST(BadValues, AreNamedInTheMessage)
{
  using rmm::mr::imported_memory;
  using rmm::mr::registered_host_memory_resource;
  cuda_memory_resource cuda;
  rmm::cuda_device_id const device{0};
  rmm::device_uvector<int> const vector{3, rmm::cuda_stream_view{}};
  rmm::device_uvector<int> const empty{0, rmm::cuda_stream_view{}};
  rmm::mr::new_delete_resource host;
  rmm::mr::pinned_host_memory_resource pinned;
  struct expected {
    std::string message;
    char const* part;
  };
  std::vector<expected> const table{
    {message_of<rmm::bad_alloc>([&] { cuda.allocate(100, std::size_t{48}); }), "the alignment is 48, but has to be"},
    {message_of<rmm::bad_alloc>([&] { cuda.allocate_sync(100, 512); }), "is 512, but the resource guarantees only 256"},
    {message_of<rmm::bad_alloc>([&] { host.allocate_sync(100, 48); }), "the alignment is 48, but has to be"},
    {message_of<rmm::bad_alloc>([&] { pinned.allocate(100, std::size_t{48}); }), "the alignment is 48, but has to be"},
    {message_of<rmm::out_of_range>([&] { static_cast<void>(vector.element(7, vector.stream())); }),
     "index 7 is out of range: the device_uvector has 3 elements"},
    {message_of<rmm::out_of_range>([&] { static_cast<void>(empty.front_element(empty.stream())); }),
     "the device_uvector is empty: it has no first element"},
    {message_of<rmm::out_of_range>([&] { static_cast<void>(empty.back_element(empty.stream())); }),
     "the device_uvector is empty: it has no last element"},
    {message_of<rmm::logic_error>([&] { rmm::mr::binning_memory_resource const made(&cuda, 10, 64); }),
     "The exponents of bin sizes are 10 to 64, but have to be in 0 to 63"},
    {message_of<rmm::logic_error>([&] {
       registered_host_memory_resource const made{{false, -3, 0}};
     }),
     "numa_node is -3, but must not be negative"},
    {message_of<rmm::logic_error>([&] {
       imported_memory const made{device, {1, 0, 2}, std::vector<int>{}};
     }),
     "No pool exported this block: 0 bytes at offset 1 in chunks of 2 bytes"},
    {message_of<rmm::logic_error>([&] {
       imported_memory const made{device, {0, 3, 2}, std::vector<int>{5}};
     }),
     "A shared block in 2 chunks came with 1 handles"},
  };
  for (auto const& [message, part] : table) { EXPECT_NE(message.find(part), std::string::npos) << message; }
}

TEST(BadValues, OfAdaptorsAndPoolsAreNamedInTheMessage)
{
  using rmm::mr::cached_memory_resource;
  cuda_memory_resource cuda;
  rmm::mr::spill_options shares;
  shares.maximum_bytes = 1000;
  shares.spill_above   = 1.5;
  struct expected {
    std::string message;
    char const* part;
  };
  std::vector<expected> const table{
    {message_of<rmm::bad_alloc>(
       [&] { rmm::device_buffer const made(std::size_t{100}, std::size_t{48}, rmm::cuda_stream_view{}); }),
     "The alignment of a buffer is 48, but has to be"},
    {message_of<rmm::logic_error>([&] { rmm::mr::aligned_resource_adaptor const made(&cuda, 48); }),
     "alignment is not a power of 2, but 48"},
    {message_of<rmm::logic_error>([&] { rmm::mr::limiting_resource_adaptor const made(&cuda, 1000, 48); }),
     "The alignment is 48, but has to be"},
    {message_of<rmm::logic_error>([&] { rmm::mr::fixed_size_memory_resource const made(&cuda, 256, 0); }),
     "The block size is 256 bytes and the number of blocks to preallocate 0, but both"},
    {message_of<rmm::logic_error>([&] { cached_memory_resource const made(&cuda, 2048, 1024); }),
     "The initial size of the cache, 2.000000 KiB, exceeds its maximum of 1.000000 KiB"},
    {message_of<rmm::logic_error>([&] { rmm::mr::spill_resource_adaptor const made(&cuda, nullptr, shares); }),
     "A share of the maximum is 1.500000, but must be between 0 and 1"},
  };
  for (auto const& [message, part] : table) { EXPECT_NE(message.find(part), std::string::npos) << message; }
}

TEST(BadSizes, AnArenaSaysHowSmallItMayBe)
{
  cuda_memory_resource cuda;
  auto const message = message_of<rmm::logic_error>([&] {
    rmm::mr::arena_memory_resource<cuda_memory_resource> const made{&cuda, (1 << 20) - 1};
  });
  EXPECT_NE(message.find("1 MiB"), std::string::npos) << message;
}

TEST(BadSizes, APoolChecksTheInitialSizeBeforeTheMaximum)
{
  cuda_memory_resource cuda;
  auto const message = message_of<rmm::logic_error>([&] {
    rmm::mr::pool_memory_resource<cuda_memory_resource> const made{&cuda, 1000, 100};
  });
  EXPECT_NE(message.find("Initial pool size required to be a multiple of 256 bytes"), std::string::npos) << message;
}

TEST(BadSizes, BlocksLargerThanAnyAddressSpaceAreOutOfMemory)
{
  cuda_memory_resource cuda;
  EXPECT_THROW((rmm::mr::fixed_size_memory_resource<cuda_memory_resource>{&cuda, largest}), rmm::out_of_memory);
  EXPECT_THROW((rmm::mr::fixed_size_memory_resource<cuda_memory_resource>{&cuda, largest / 2, 4}), rmm::out_of_memory);
  rmm::mr::binning_memory_resource<cuda_memory_resource> binning{&cuda};
  EXPECT_THROW(binning.add_bin(largest), rmm::out_of_memory);
}

TEST(BadSizes, RedZonesLargerThanAnyAddressSpaceAreOutOfMemory)
{
  cuda_memory_resource cuda;
  rmm::mr::guard_options options;
  for (auto const zone : {largest / 4 + 1, largest / 2 + 1, largest - 255}) {
    options.red_zone_bytes = zone;
    rmm::mr::guard_resource_adaptor<cuda_memory_resource> guard{&cuda, options};
    EXPECT_THROW(static_cast<void>(guard.allocate(1000)), rmm::out_of_memory) << zone;
  }
  options.red_zone_bytes = largest - 254;
  EXPECT_THROW((rmm::mr::guard_resource_adaptor<cuda_memory_resource>{&cuda, options}), rmm::out_of_memory);
}

TEST(BadSizes, ReservationsOfSizesNearTheLargestAreOutOfMemory)
{
  cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<cuda_memory_resource> pool{&cuda, 0};
  auto reservation = pool.reserve(1000);
  for (auto const bytes : {largest, largest - 1, largest - 255, largest - 256, largest / 2 + 1}) {
    EXPECT_TRUE(names_size(message_of<rmm::out_of_memory>([&] { static_cast<void>(pool.reserve(bytes)); }), bytes));
    EXPECT_TRUE(names_size(
      message_of<rmm::out_of_memory>([&] { static_cast<void>(reservation.resource().allocate(bytes)); }), bytes));
  }
}

// --- the registry and devices

TEST(BadRegistration, SettingTheSameTwiceReturnsIt)
{
  cuda_memory_resource cuda;
  auto* const before = rmm::mr::set_current_device_resource(&cuda);
  EXPECT_EQ(rmm::mr::set_current_device_resource(&cuda), &cuda);
  EXPECT_EQ(rmm::mr::get_current_device_resource(), &cuda);
  EXPECT_EQ(rmm::mr::set_current_device_resource(before), &cuda);
}

TEST(BadRegistration, AMissingDeviceHasAResource)
{
  rmm::cuda_device_id const nowhere{rmm::get_num_cuda_devices() + 100};
  EXPECT_EQ(rmm::mr::get_per_device_resource(nowhere), rmm::mr::detail::initial_resource());
}

TEST(BadStream, AStreamThatMovedAwayIsNotValid)
{
  rmm::cuda_stream stream;
  rmm::cuda_stream const other{std::move(stream)};
  EXPECT_FALSE(stream.is_valid());  // NOLINT(bugprone-use-after-move): tests the moved-from state
  EXPECT_TRUE(other.is_valid());
}

}  // namespace
