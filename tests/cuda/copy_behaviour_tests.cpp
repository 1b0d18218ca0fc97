// SPDX-License-Identifier: Apache-2.0
//
// What copies and fills do, asked through the CUDA API alone. The simulator and a real GPU have to pass the same tests.

#include "gate.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <future>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t size       = 4096;
constexpr auto unknown_direction = static_cast<cudaMemcpyKind>(7);
constexpr auto default_stream    = cudaStream_t{};
constexpr std::size_t large      = std::size_t{64} << 20U;

/// Four kinds of memory, of `size` bytes each, and a stream.
class CopyBehaviour : public ::testing::Test {
 protected:
  void SetUp() override
  {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_), size), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&other_), size), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned_), size), cudaSuccess);
    ASSERT_EQ(cudaMallocManaged(reinterpret_cast<void**>(&managed_), size, cudaMemAttachGlobal), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMemset(device_, 0, size), cudaSuccess);
    ASSERT_EQ(cudaMemset(other_, 0, size), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::iota(pageable_.begin(), pageable_.end(), char{0});
  }

  void TearDown() override
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFree(managed_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaFree(other_), cudaSuccess);
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    cudaGetLastError();
  }

  /// Bytes of the device, as they are when all work is done.
  static std::vector<char> read(char const* memory, std::size_t bytes)
  {
    std::vector<char> out(bytes);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(out.data(), memory, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }

  char* device_{};
  char* other_{};
  char* pinned_{};
  char* managed_{};
  cudaStream_t stream_{};
  std::vector<char> pageable_ = std::vector<char>(size);
};

// ---------------------------------------------------------------------------------------------------------------
// Bytes and directions

TEST_F(CopyBehaviour, BytesGoToTheDeviceAndBack)
{
  ASSERT_EQ(cudaMemcpy(device_, pageable_.data(), size, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(other_, device_, size, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(read(other_, size), pageable_);
}

TEST_F(CopyBehaviour, TheDefaultDirectionFollowsFromThePointers)
{
  ASSERT_EQ(cudaMemcpy(device_, pageable_.data(), size, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(managed_, device_, size, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(pinned_, managed_, size, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(std::vector<char>(pinned_, pinned_ + size), pageable_);
}

TEST_F(CopyBehaviour, ADirectionAsksForMemoryOfCudaOnItsDeviceSidesAndForbidsNothingElse)
{
  struct memory {
    char const* name;
    char* ptr;
    bool of_cuda;
  };
  std::vector<char> more_pageable(size);
  std::array<memory, 5> const all{{{"pageable", pageable_.data(), false},
                                   {"pinned", pinned_, true},
                                   {"managed", managed_, true},
                                   {"device", device_, true},
                                   {"more pageable", more_pageable.data(), false}}};
  for (auto const kind : {cudaMemcpyHostToHost,
                          cudaMemcpyHostToDevice,
                          cudaMemcpyDeviceToHost,
                          cudaMemcpyDeviceToDevice,
                          cudaMemcpyDefault}) {
    bool const to_device   = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool const from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    for (auto const& to : all) {
      for (auto const& from : all) {
        SCOPED_TRACE(std::string{"kind "} + std::to_string(kind) + ", " + from.name + " to " + to.name);
        bool const fits     = (to.of_cuda || !to_device) && (from.of_cuda || !from_device);
        auto const expected = fits ? cudaSuccess : cudaErrorInvalidValue;
        EXPECT_EQ(cudaMemcpy(to.ptr + 64, from.ptr, 16, kind), expected);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // a copy inside the device may still run
        EXPECT_EQ(cudaMemcpyAsync(to.ptr + 64, from.ptr, 16, kind, stream_), expected);
        EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      }
    }
  }
}

TEST_F(CopyBehaviour, AnUnknownDirectionHasItsOwnError)
{
  EXPECT_EQ(cudaMemcpy(device_, other_, 16, unknown_direction), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 16, unknown_direction), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpyAsync(device_, other_, 16, unknown_direction, stream_), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy2D(device_, 16, other_, 16, 16, 2, unknown_direction), cudaErrorInvalidMemcpyDirection);
}

TEST_F(CopyBehaviour, NullIsRefusedAsMemory)
{
  for (auto const kind : {cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDefault}) {
    EXPECT_EQ(cudaMemcpy(nullptr, device_, 16, kind), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(device_, nullptr, 16, kind), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpyAsync(device_, nullptr, 16, kind, stream_), cudaErrorInvalidValue);
  }
}

TEST_F(CopyBehaviour, ZeroBytesCopyNothingWhateverTheArguments)
{
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 0, unknown_direction), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device_, pageable_.data(), 0, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemset(nullptr, 0, 0), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeer(nullptr, 0, nullptr, 0, 0), cudaSuccess);
}

TEST_F(CopyBehaviour, ACopyBeyondTheEndOfAnAllocationCopiesNothing)
{
  char* odd = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&odd), 1000), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(pageable_.data(), odd, 1000, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(pageable_.data(), odd, 1001, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(odd + 992, pageable_.data(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(odd + 992, device_, 16, cudaMemcpyDeviceToDevice, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(odd, 0, 1001), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(odd + 999, 0, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(odd), cudaSuccess);
}

TEST_F(CopyBehaviour, FreedMemoryIsUnknownToCuda)
{
  char* freed = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&freed), large), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device_, freed, 16, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(freed, pageable_.data(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(freed, 0, 16), cudaErrorInvalidValue);
}

TEST_F(CopyBehaviour, RangesMayBeTheSame)
{
  ASSERT_EQ(cudaMemcpy(device_, pageable_.data(), size, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device_, device_, size, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(read(device_, size), pageable_);
}

// ---------------------------------------------------------------------------------------------------------------
// Fills

TEST_F(CopyBehaviour, AFillTakesTheLowByteOfTheValue)
{
  ASSERT_EQ(cudaMemset(device_, 0x1234, size), cudaSuccess);
  EXPECT_EQ(read(device_, size), std::vector<char>(size, 0x34));
  ASSERT_EQ(cudaMemsetAsync(device_, -1, 16, stream_), cudaSuccess);
  EXPECT_EQ(read(device_, 17)[15], static_cast<char>(-1));
  EXPECT_EQ(read(device_, 17)[16], 0x34);
}

TEST_F(CopyBehaviour, AFillNeedsMemoryOfCuda)
{
  EXPECT_EQ(cudaMemset(nullptr, 0, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(pageable_.data(), 0, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(pageable_.data(), 0, 16, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(managed_, 3, 16, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemset(pinned_, 3, 16), cudaSuccess);
  EXPECT_EQ(pinned_[15], 3);
}

// ---------------------------------------------------------------------------------------------------------------
// What the host waits for

TEST_F(CopyBehaviour, AnAsynchronousCopyOfFewPageableBytesTakesThemAtOnce)
{
  auto const original = pageable_;
  gate busy{stream_};
  ASSERT_EQ(cudaMemcpyAsync(device_, pageable_.data(), size, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  std::fill(pageable_.begin(), pageable_.end(), 'x');
  busy.open();
  EXPECT_EQ(read(device_, size), original);
}

TEST_F(CopyBehaviour, AnAsynchronousCopyFromPinnedMemoryReadsItWhenItRuns)
{
  std::fill(pinned_, pinned_ + size, 'a');
  gate busy{stream_};
  ASSERT_EQ(cudaMemcpyAsync(device_, pinned_, size, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  std::fill(pinned_, pinned_ + size, 'b');
  busy.open();
  EXPECT_EQ(read(device_, size), std::vector<char>(size, 'b'));
}

TEST_F(CopyBehaviour, AnAsynchronousCopyToPinnedMemoryDoesNotWait)
{
  ASSERT_EQ(cudaMemset(device_, 'n', size), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  pinned_[0] = 'o';
  gate busy{stream_};
  ASSERT_EQ(cudaMemcpyAsync(pinned_, device_, size, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(pinned_[0], 'o');
  busy.open();
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[0], 'n');
}

TEST_F(CopyBehaviour, AnAsynchronousCopyToPageableMemoryIsDoneWhenTheCallReturns)
{
  char* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), large), cudaSuccess);
  for (char value = 1; value < 4; ++value) {
    ASSERT_EQ(cudaMemsetAsync(memory, value, large, stream_), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(pageable_.data(), memory + large - size, size, cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    EXPECT_EQ(pageable_[size - 1], value);
  }
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(CopyBehaviour, AnAsynchronousCopyOnTheHostIsDoneWhenTheCallReturns)
{
  char* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), large), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 1, large, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned_, pageable_.data(), size, cudaMemcpyHostToHost, stream_), cudaSuccess);
  EXPECT_EQ(pinned_[size - 1], pageable_[size - 1]);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(CopyBehaviour, AsynchronousFillsAndCopiesOnTheDeviceDoNotWait)
{
  gate const busy{stream_};
  EXPECT_EQ(cudaMemsetAsync(device_, 1, size, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(pinned_, 1, size, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemset2DAsync(device_, 64, 1, 32, 4, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(other_, device_, size, cudaMemcpyDeviceToDevice, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2DAsync(other_, 64, device_, 64, 32, 4, cudaMemcpyDeviceToDevice, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeerAsync(other_, 0, device_, 0, size, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
}

TEST_F(CopyBehaviour, SynchronousFillsAndCopiesOnTheDeviceDoNotWait)
{
  gate const busy{default_stream};
  EXPECT_EQ(cudaMemset(device_, 1, size), cudaSuccess);
  EXPECT_EQ(cudaMemset2D(device_, 64, 1, 32, 4), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(other_, device_, size, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2D(other_, 64, device_, 64, 32, 4, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(default_stream), cudaErrorNotReady);
}

TEST_F(CopyBehaviour, SynchronousCopiesWithTheHostComeAfterTheDefaultStreamsWork)
{
  char* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), large), cudaSuccess);
  for (char value = 1; value < 4; ++value) {
    ASSERT_EQ(cudaMemsetAsync(memory, value, large, default_stream), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(pinned_, memory + large - size, size, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(pinned_[size - 1], value);
  }
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(CopyBehaviour, SynchronousCopiesDoNotWaitForNonBlockingStreams)
{
  gate const busy{stream_};
  EXPECT_EQ(cudaMemcpy(device_, pageable_.data(), size, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemset(pinned_, 0, size), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
}

// ---------------------------------------------------------------------------------------------------------------
// Rows

TEST_F(CopyBehaviour, RowsAreCopiedAtTheirPitches)
{
  ASSERT_EQ(cudaMemcpy2D(device_, 100, pageable_.data(), 8, 8, 4, cudaMemcpyHostToDevice), cudaSuccess);
  auto const memory = read(device_, 400);
  EXPECT_EQ(memory[0], 0);
  EXPECT_EQ(memory[7], 7);
  EXPECT_EQ(memory[8], 0);
  EXPECT_EQ(memory[100], 8);
  EXPECT_EQ(memory[307], 31);
  std::array<char, 32> back{};
  ASSERT_EQ(cudaMemcpy2DAsync(back.data(), 8, device_, 100, 8, 4, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(back[31], 31);
}

TEST_F(CopyBehaviour, RowsHaveToFitInTheirPitchesAndTheirMemory)
{
  EXPECT_EQ(cudaMemcpy2D(device_, 8, pageable_.data(), 16, 16, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2D(device_, 16, pageable_.data(), 8, 16, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2DAsync(device_, 8, pageable_.data(), 16, 16, 1, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2D(device_, 64, other_, 16, 16, size / 64 + 1, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2D(nullptr, 16, other_, 16, 16, 2, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2D(pageable_.data(), 16, other_, 16, 16, 2, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2D(device_, 8, other_, 8, 16, 0, cudaMemcpyDefault), cudaSuccess);
}

TEST_F(CopyBehaviour, RowsAreFilled)
{
  ASSERT_EQ(cudaMemset2D(device_, 100, 5, 8, 3), cudaSuccess);
  auto const memory = read(device_, 300);
  EXPECT_EQ(memory[7], 5);
  EXPECT_EQ(memory[8], 0);
  EXPECT_EQ(memory[207], 5);
}

TEST_F(CopyBehaviour, FilledRowsHaveToFitUnlessThereIsOne)
{
  EXPECT_EQ(cudaMemset2D(device_, 8, 0, 16, 2), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset2DAsync(device_, 8, 0, 16, 2, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset2D(device_, 0, 0, 16, 1), cudaSuccess);
  EXPECT_EQ(cudaMemset2D(device_, 64, 0, 16, size / 64 + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset2D(pageable_.data(), 64, 0, 16, 2), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset2D(nullptr, 64, 0, 16, 2), cudaErrorInvalidValue);
}

// ---------------------------------------------------------------------------------------------------------------
// Boxes

/// A copy of 2 slices of 4 rows of 16 bytes to the device.
class BoxBehaviour : public CopyBehaviour {
 protected:
  void SetUp() override
  {
    CopyBehaviour::SetUp();
    p_.srcPtr = cudaPitchedPtr{pageable_.data(), 16, 16, 4};
    p_.dstPtr = cudaPitchedPtr{device_, 16, 16, 4};
    p_.extent = cudaExtent{16, 4, 2};
    p_.kind   = cudaMemcpyHostToDevice;
  }
  cudaMemcpy3DParms p_{};
};

TEST_F(BoxBehaviour, BoxesAreCopied)
{
  p_.extent   = cudaExtent{4, 2, 2};
  p_.srcPos.x = 1;
  p_.srcPos.y = 1;
  p_.dstPos.z = 1;
  ASSERT_EQ(cudaMemcpy3D(&p_), cudaSuccess);
  auto const memory = read(device_, 200);
  EXPECT_EQ(memory[64], 17);
  EXPECT_EQ(memory[64 + 16 + 3], 36);
  EXPECT_EQ(memory[64 + 4], 0);
  EXPECT_EQ(memory[128], 81);
  ASSERT_EQ(cudaMemset(device_, 0, size), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemcpy3DAsync(&p_, stream_), cudaSuccess);
  EXPECT_EQ(read(device_, 200), memory);
}

TEST_F(BoxBehaviour, AnEmptyBoxCopiesNothing)
{
  p_.dstPtr.ptr   = nullptr;
  p_.extent.depth = 0;
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaSuccess);
}

TEST_F(BoxBehaviour, ParametersAreNeeded)
{
  EXPECT_EQ(cudaMemcpy3D(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy3DAsync(nullptr, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy3DPeer(nullptr), cudaErrorInvalidValue);
}

TEST_F(BoxBehaviour, ASliceHasToHoldTheRowsOfTheBox)
{
  p_.extent = cudaExtent{17, 4, 2};
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidPitchValue);
  p_.extent = cudaExtent{16, 5, 2};
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidPitchValue);
  p_.extent = cudaExtent{16, 5, 1};
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidValue);
}

TEST_F(BoxBehaviour, ThePositionHasToLeaveRoomForTheBox)
{
  p_.srcPos = cudaPos{1, 0, 0};
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidValue);
  p_.srcPos = cudaPos{0, 1, 0};
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidValue);
  p_.srcPos = cudaPos{0, 0, 1};
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaSuccess);
  p_.dstPos = cudaPos{0, 0, 100};
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidValue);
}

TEST_F(BoxBehaviour, BoxesHaveDirectionsToo)
{
  p_.kind = cudaMemcpyDeviceToHost;
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidValue);
  p_.kind = unknown_direction;
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidMemcpyDirection);
  p_.kind       = cudaMemcpyDefault;
  p_.dstPtr.ptr = nullptr;
  EXPECT_EQ(cudaMemcpy3D(&p_), cudaErrorInvalidValue);
}

TEST_F(BoxBehaviour, BoxesAreFilled)
{
  ASSERT_EQ(cudaMemset3D(cudaPitchedPtr{device_, 16, 16, 4}, 5, cudaExtent{8, 2, 2}), cudaSuccess);
  auto const memory = read(device_, 128);
  EXPECT_EQ(memory[64 + 16 + 7], 5);
  EXPECT_EQ(memory[8], 0);
  EXPECT_EQ(memory[32], 0);
  ASSERT_EQ(cudaMemset3DAsync(cudaPitchedPtr{device_, 16, 16, 4}, 6, cudaExtent{16, 4, 2}, stream_), cudaSuccess);
  EXPECT_EQ(read(device_, 128), std::vector<char>(128, 6));
}

TEST_F(BoxBehaviour, FilledBoxesHaveToFit)
{
  auto const memory = cudaPitchedPtr{device_, 32, 16, 4};
  EXPECT_EQ(cudaMemset3D(memory, 0, cudaExtent{64, 4, 2}), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset3D(memory, 0, cudaExtent{16, 8, 2}), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset3D(memory, 0, cudaExtent{16, 4, 100}), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset3D(memory, 0, cudaExtent{0, 8, 2}), cudaSuccess);
  EXPECT_EQ(cudaMemset3D(cudaPitchedPtr{nullptr, 32, 16, 4}, 0, cudaExtent{16, 4, 2}), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset3D(cudaPitchedPtr{pageable_.data(), 32, 16, 4}, 0, cudaExtent{16, 4, 2}), cudaErrorInvalidValue);
}

// ---------------------------------------------------------------------------------------------------------------
// Devices

TEST_F(CopyBehaviour, APeerCopyWorksOnOneDeviceAsWell)
{
  ASSERT_EQ(cudaMemset(device_, 9, size), cudaSuccess);
  ASSERT_EQ(cudaMemcpyPeer(other_, 0, device_, 0, size), cudaSuccess);
  EXPECT_EQ(read(other_, size), std::vector<char>(size, 9));
  ASSERT_EQ(cudaMemcpyPeerAsync(pinned_, 0, device_, 0, size, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[size - 1], 9);
}

TEST_F(CopyBehaviour, APeerCopyNeedsDevicesThatExistAndMemoryOfCuda)
{
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeer(other_, count, device_, 0, 16), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMemcpyPeer(other_, 0, device_, -1, 16), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMemcpyPeerAsync(other_, 0, device_, count, 16, stream_), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMemcpyPeer(other_, 0, pageable_.data(), 0, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyPeer(nullptr, 0, device_, 0, 16), cudaErrorInvalidValue);
}

TEST_F(CopyBehaviour, PeerBoxesAreCopied)
{
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_EQ(cudaMemset(device_, 9, size), cudaSuccess);
  cudaMemcpy3DPeerParms p{};
  p.srcPtr = cudaPitchedPtr{device_, 16, 16, 4};
  p.dstPtr = cudaPitchedPtr{other_, 16, 16, 4};
  p.extent = cudaExtent{8, 4, 2};
  ASSERT_EQ(cudaMemcpy3DPeer(&p), cudaSuccess);
  EXPECT_EQ(read(other_, 128)[64 + 48 + 7], 9);
  EXPECT_EQ(read(other_, 128)[8], 0);
  ASSERT_EQ(cudaMemcpy3DPeerAsync(&p, stream_), cudaSuccess);
  p.srcDevice = count;
  EXPECT_EQ(cudaMemcpy3DPeer(&p), cudaErrorInvalidDevice);
}

TEST_F(CopyBehaviour, BytesGoFromOneDeviceToAnother)
{
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2) { GTEST_SKIP() << "needs two devices, there is one"; }
  char* remote = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&remote), size), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device_, pageable_.data(), size, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(remote, device_, size, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpyPeer(other_, 0, remote, 1, size), cudaSuccess);
  EXPECT_EQ(read(other_, size), pageable_);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMemset(remote, 8, size), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMemcpyPeerAsync(other_, 0, remote, 1, size, stream_), cudaSuccess);
  EXPECT_EQ(read(other_, size), std::vector<char>(size, 8));
  EXPECT_EQ(cudaFree(remote), cudaSuccess);
}

TEST_F(CopyBehaviour, AFillNeedsMemoryThatTheDeviceCanAccess)
{
  int count = 0;
  int can   = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2) { GTEST_SKIP() << "needs two devices, there is one"; }
  ASSERT_EQ(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
  char* remote = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&remote), size), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaMemset(remote, 1, size), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(remote, 1, size, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset2D(remote, 64, 1, 32, 2), cudaErrorInvalidValue);
  if (can != 0) {
    ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
    EXPECT_EQ(cudaMemset(remote, 1, size), cudaSuccess);
    EXPECT_EQ(read(remote, size), std::vector<char>(size, 1));
    ASSERT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
  }
  EXPECT_EQ(cudaFree(remote), cudaSuccess);
}

TEST_F(CopyBehaviour, CopiesReachTheMemoryOfAnyDevice)
{
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2) { GTEST_SKIP() << "needs two devices, there is one"; }
  char* remote = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&remote), size), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(remote, pageable_.data(), size, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(remote + 64, remote, 64, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // that copy returned before it was done
  EXPECT_EQ(cudaMemcpyAsync(device_, remote, size, cudaMemcpyDeviceToDevice, stream_), cudaSuccess);
  auto const memory = read(device_, size);
  EXPECT_EQ(memory[63], 63);
  EXPECT_EQ(memory[64 + 63], 63);
  EXPECT_EQ(memory[128], pageable_[128]);
  EXPECT_EQ(cudaFree(remote), cudaSuccess);
}

// ---------------------------------------------------------------------------------------------------------------
// Captures

class CopyCaptureBehaviour : public CopyBehaviour {
 protected:
  /// Ends the capture of `stream_` and returns the number of its nodes.
  std::size_t end_capture()
  {
    cudaGraph_t graph{};
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    std::size_t count = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return count;
  }
};

TEST_F(CopyCaptureBehaviour, CopiesAndFillsBecomeNodes)
{
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(device_, pageable_.data(), 16, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pageable_.data(), device_, 16, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device_, 0, 16, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2DAsync(device_, 64, other_, 64, 16, 2, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(end_capture(), 4U);
}

TEST_F(CopyCaptureBehaviour, ZeroBytesMakeNoNode)
{
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(device_, other_, 0, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device_, 0, 0, stream_), cudaSuccess);
  EXPECT_EQ(end_capture(), 0U);
}

TEST_F(CopyCaptureBehaviour, CopiesBesideTheCaptureOfANonBlockingStreamAreAllowed)
{
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device_, other_, 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device_, pageable_.data(), 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemset(device_, 0, 16), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeer(device_, 0, other_, 0, 16), cudaSuccess);
  EXPECT_EQ(end_capture(), 0U);
}

TEST_F(CopyCaptureBehaviour, WorkOnTheLegacyStreamInvalidatesTheCaptureOfABlockingStream)
{
  cudaStream_t blocking{};
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  for (auto const mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed}) {
    ASSERT_EQ(cudaStreamBeginCapture(blocking, mode), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(device_, other_, 16, cudaMemcpyDefault, cudaStreamLegacy),
              cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
    ASSERT_EQ(cudaStreamBeginCapture(blocking, mode), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(device_, 0, 16, cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(CopyCaptureBehaviour, PeerCopiesCannotBeCaptured)
{
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeerAsync(device_, 0, other_, 0, 16, stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
}

// ---------------------------------------------------------------------------------------------------------------
// Batches

#if CUDART_VERSION >= 13000
/// Two copies to the device with one set of attributes.
class BatchBehaviour : public CopyBehaviour {
 protected:
  cudaError_t copy(cudaStream_t s)
  {
    return cudaMemcpyBatchAsync(
      to_.data(), from_.data(), sizes_.data(), count_, attributes_, &first_copy_, attribute_count_, s);
  }
  void SetUp() override
  {
    CopyBehaviour::SetUp();
    to_                           = {device_, device_ + 32};
    from_                         = {pageable_.data(), pageable_.data() + 16};
    attributes_[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  }
  std::array<void*, 2> to_{};
  std::array<void const*, 2> from_{};
  std::array<std::size_t, 2> sizes_{16, 32};
  std::size_t count_{2};
  cudaMemcpyAttributes attributes_[1]{};
  std::size_t first_copy_{0};
  std::size_t attribute_count_{1};
};

TEST_F(BatchBehaviour, ABatchIsItsCopies)
{
  for (auto const order :
       {cudaMemcpySrcAccessOrderStream, cudaMemcpySrcAccessOrderDuringApiCall, cudaMemcpySrcAccessOrderAny}) {
    attributes_[0].srcAccessOrder = order;
    ASSERT_EQ(cudaMemset(device_, 0, size), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(copy(stream_), cudaSuccess);
    auto const memory = read(device_, 64);
    EXPECT_EQ(memory[15], 15);
    EXPECT_EQ(memory[16], 0);
    EXPECT_EQ(memory[32], 16);
    EXPECT_EQ(memory[63], 47);
  }
}

TEST_F(BatchBehaviour, ABatchNeedsAStreamOfItsOwn) { EXPECT_EQ(copy(cudaStreamLegacy), cudaErrorInvalidValue); }

TEST_F(BatchBehaviour, ABatchNeedsCopiesWithBytes)
{
  count_ = 0;
  EXPECT_EQ(copy(stream_), cudaErrorInvalidValue);
  count_    = 2;
  sizes_[1] = 0;
  EXPECT_EQ(copy(stream_), cudaErrorInvalidValue);
  sizes_[1] = 16;
  to_[1]    = nullptr;
  EXPECT_EQ(copy(stream_), cudaErrorInvalidValue);
}

TEST_F(BatchBehaviour, EveryCopyNeedsAttributes)
{
  first_copy_ = 1;
  EXPECT_EQ(copy(stream_), cudaErrorInvalidValue);
  first_copy_      = 0;
  attribute_count_ = 0;
  EXPECT_EQ(copy(stream_), cudaErrorInvalidValue);
  attribute_count_              = 1;
  attributes_[0].srcAccessOrder = cudaMemcpySrcAccessOrderInvalid;
  EXPECT_EQ(copy(stream_), cudaErrorInvalidValue);
}
#endif

}  // namespace
