// SPDX-License-Identifier: Apache-2.0

#include <rmm/detail/stream/device_waits.hpp>

#include "../../../support/stepped_heap.hpp"

#include <rmm/cuda_stream.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace {

using rmm::detail::device_waits;

constexpr auto allowed = device_waits::permission::allowed;

/// Two devices, each with a stream that has work.
struct DeviceWaits : Stepped {
  std::optional<rmm::cuda_stream> far;
  std::optional<rmm::cuda_stream> near;

  DeviceWaits() { begin(0, 2); }

  void SetUp() override
  {
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    far.emplace();
    ASSERT_EQ(cudasim::launch(far->value(), {}, {}), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    near.emplace();
    ASSERT_EQ(cudasim::launch(near->value(), {}, {}), cudaSuccess);
  }

  void TearDown() override
  {
    far.reset();
    near.reset();
    Stepped::TearDown();
  }

  [[nodiscard]] bool near_is_done() const { return cudasim::pending(near->value()) == 0; }
  [[nodiscard]] bool far_is_done() const { return cudasim::pending(far->value()) == 0; }
};

TEST_F(DeviceWaits, WaitsForTheDevicesOfTheSet)
{
  device_waits const waits{0};
  EXPECT_TRUE(waits.try_wait_for(device_waits::set_of(1), allowed));
  EXPECT_TRUE(far_is_done());
  EXPECT_FALSE(near_is_done());
  EXPECT_TRUE(waits.try_wait_for(device_waits::set_of(0), allowed));
  EXPECT_TRUE(near_is_done());
}

TEST_F(DeviceWaits, WaitsForTheHomeDeviceIfTheSetIsEmpty)
{
  EXPECT_TRUE(device_waits{1}.try_wait_for(0, allowed));
  EXPECT_TRUE(far_is_done());
  EXPECT_FALSE(near_is_done());
}

TEST_F(DeviceWaits, WaitsForAllDevicesIfOneIsUnknown)
{
  EXPECT_TRUE(device_waits{0}.try_wait_for(device_waits::set_of(-1), allowed));
  EXPECT_TRUE(near_is_done());
  EXPECT_TRUE(far_is_done());
}

struct DeviceWaitsOfManyDevices : Stepped {
  DeviceWaitsOfManyDevices() { begin(0, 66); }
};

TEST_F(DeviceWaitsOfManyDevices, WaitForDevicesThatHaveNoBit)
{
  std::vector<rmm::cuda_stream> streams;
  for (int device : {0, 64, 65}) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudasim::launch(streams.emplace_back().value(), {}, {}), cudaSuccess);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  device_waits const waits{0};
  auto const pending = [&](std::size_t which) { return cudasim::pending(streams[which].value()); };
  EXPECT_TRUE(waits.try_wait_for(device_waits::set_of(0), allowed));
  EXPECT_EQ(pending(0), 0U);
  EXPECT_NE(pending(1), 0U);
  EXPECT_TRUE(waits.try_wait_for(device_waits::set_of(64), allowed));
  EXPECT_EQ(pending(1), 0U);
  EXPECT_EQ(pending(2), 0U);
}

TEST_F(DeviceWaits, RefusesIfTheHostMayNotWait)
{
  EXPECT_FALSE(device_waits{0}.try_wait_for(device_waits::every_device, device_waits::permission::forbidden));
  EXPECT_FALSE(near_is_done());
  EXPECT_FALSE(far_is_done());
}

TEST_F(DeviceWaits, RefusesWhileABlockingStreamCaptures)
{
  rmm::cuda_stream const blocking;
  ASSERT_EQ(cudaStreamBeginCapture(blocking.value(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_FALSE(device_waits{0}.try_wait_for(device_waits::set_of(0), allowed));
  cudaGraph_t made{};
  EXPECT_EQ(cudaStreamEndCapture(blocking.value(), &made), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(made), cudaSuccess);
}

}  // namespace
