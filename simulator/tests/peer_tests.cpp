// SPDX-License-Identifier: Apache-2.0

#include "support.hpp"

#include <array>
#include <cstring>

namespace cudasim_tests {
namespace {

using cudasim::violation;

/// Two devices; one block on each.
class Peers : public Simulated {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.devices = 2;
    return o;
  }
  void SetUp() override
  {
    Simulated::SetUp();
    for (int device : {1, 0}) {
      ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
      ASSERT_EQ(cudaMalloc(&of_[static_cast<std::size_t>(device)], 100), cudaSuccess);
    }
  }
  void TearDown() override
  {
    for (auto* const ptr : of_) { EXPECT_EQ(cudaFree(ptr), cudaSuccess); }
    Simulated::TearDown();
  }
  std::array<void*, 2> of_{};
};

TEST_F(Peers, CanAlwaysHaveAccess)
{
  int answer = 0;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&answer, 0, 1), cudaSuccess);
  EXPECT_EQ(answer, 1);
  EXPECT_EQ(cudaDeviceCanAccessPeer(&answer, 1, 0), cudaSuccess);
  EXPECT_EQ(answer, 1);
}

TEST_F(Peers, AreEnabledAndDisabledOnce)
{
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  EXPECT_TRUE(cudasim::violations().empty()) << "libraries that share a process meet these errors";
}

TEST_F(Peers, ReportUseWithoutAccess)
{
  EXPECT_EQ(cudasim::launch(nullptr, {{of_[0], 100}}, {}), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  EXPECT_EQ(cudasim::launch(nullptr, {{of_[1], 100}}, {}), cudaSuccess);
  auto const found = take_violations();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, violation::kind::misuse);
  EXPECT_NE(found[0].text.find("work of device 0 has no access to memory of device 1"), std::string::npos)
    << found[0].text;
}

TEST_F(Peers, HaveAccessInOneDirection)
{
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(cudasim::launch(nullptr, {}, {{of_[1], 100}}), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudasim::launch(nullptr, {}, {{of_[0], 100}}), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
  EXPECT_EQ(cudasim::launch(nullptr, {}, {{of_[1], 100}}), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

TEST_F(Peers, CopyWithoutAccess)
{
  EXPECT_EQ(cudaMemcpy(of_[0], of_[1], 100, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(of_[1], of_[0], 100, cudaMemcpyDefault), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
}

TEST_F(Peers, ShareHostAndManagedMemory)
{
  void* pinned  = nullptr;
  void* managed = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudasim::launch(nullptr, {{pinned, 100}}, {{managed, 100}}), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(Peers, DescribeTheirLink)
{
  for (auto const& [which, expected] : {std::pair{cudaDevP2PAttrPerformanceRank, 0},
                                        {cudaDevP2PAttrAccessSupported, 1},
                                        {cudaDevP2PAttrNativeAtomicSupported, 1},
                                        {cudaDevP2PAttrCudaArrayAccessSupported, 1}}) {
    int value = -1;
    EXPECT_EQ(cudaDeviceGetP2PAttribute(&value, which, 0, 1), cudaSuccess);
    EXPECT_EQ(value, expected) << which;
  }
  int value = -1;
  EXPECT_EQ(cudaDeviceGetP2PAttribute(&value, static_cast<cudaDeviceP2PAttr>(7), 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

TEST_F(Peers, FreeEachOthersMemory)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaFree(of_[0]), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&of_[0], 100), cudaSuccess);
}

}  // namespace
}  // namespace cudasim_tests
