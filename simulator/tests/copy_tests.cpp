// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills: what the simulator adds to the behaviour that tests/cuda tests. When the work runs, how long it
// takes, and what the checker finds.

#include "support.hpp"

#include <array>
#include <cstring>
#include <numeric>

namespace cudasim_tests {
namespace {

using cudasim::violation;

/// Memory that is freed at the end of the scope.
class scoped_memory {
 public:
  enum class kind { device, pinned, managed };
  explicit scoped_memory(std::size_t bytes, kind which = kind::device) : kind_{which}
  {
    switch (kind_) {
      case kind::device:
        EXPECT_EQ(cudaMalloc(&ptr_, bytes), cudaSuccess);
        break;
      case kind::pinned:
        EXPECT_EQ(cudaMallocHost(&ptr_, bytes), cudaSuccess);
        break;
      case kind::managed:
        EXPECT_EQ(cudaMallocManaged(&ptr_, bytes, cudaMemAttachGlobal), cudaSuccess);
        break;
    }
  }
  scoped_memory(scoped_memory const&)            = delete;
  scoped_memory& operator=(scoped_memory const&) = delete;
  ~scoped_memory()
  {
    if (kind_ == kind::pinned) {
      EXPECT_EQ(cudaFreeHost(ptr_), cudaSuccess);
    } else {
      EXPECT_EQ(cudaFree(ptr_), cudaSuccess);
    }
  }
  operator char*() const { return static_cast<char*>(ptr_); }

 private:
  kind kind_;
  void* ptr_{};
};

/// 0, 1, 2, ...
template <std::size_t n>
std::array<char, n> counting()
{
  std::array<char, n> bytes{};
  std::iota(bytes.begin(), bytes.end(), char{0});
  return bytes;
}

/// Copies on stepped streams: nothing runs until a call waits for it.
class CopyTest : public Stepped {};

TEST_F(CopyTest, AnAsynchronousCopyFromPageableMemoryTakesTheSourceAtOnce)
{
  scoped_stream const s;
  scoped_memory const memory{16};
  auto bytes = counting<16>();
  ASSERT_EQ(cudaMemcpyAsync(memory, bytes.data(), 16, cudaMemcpyHostToDevice, s), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 1U);
  bytes.fill(99);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(std::memcmp(memory, counting<16>().data(), 16), 0);
}

TEST_F(CopyTest, ALargeAsynchronousCopyFromPageableMemoryMakesTheCallWait)
{
  scoped_stream const s;
  std::size_t const bytes = (std::size_t{1} << 20U) + 1;
  scoped_memory const memory{bytes};
  std::vector<char> const source(bytes, 'x');
  ASSERT_EQ(cudaMemcpyAsync(memory, source.data(), bytes, cudaMemcpyHostToDevice, s), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 0U);
  EXPECT_EQ(memory[bytes - 1], 'x');
}

TEST_F(CopyTest, AnAsynchronousCopyFromPinnedMemoryReadsTheSourceWhenItRuns)
{
  scoped_stream const s;
  scoped_memory const memory{16};
  scoped_memory const pinned{16, scoped_memory::kind::pinned};
  std::memset(pinned, 1, 16);
  ASSERT_EQ(cudaMemcpyAsync(memory, pinned, 16, cudaMemcpyHostToDevice, s), cudaSuccess);
  std::memset(pinned, 2, 16);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(memory[0], 2);
}

TEST_F(CopyTest, AnAsynchronousCopyToPageableMemoryMakesTheCallWait)
{
  scoped_stream const s;
  scoped_memory const memory{16};
  ASSERT_EQ(cudaMemsetAsync(memory, 7, 16, s), cudaSuccess);
  std::array<char, 16> bytes{};
  ASSERT_EQ(cudaMemcpyAsync(bytes.data(), memory, 16, cudaMemcpyDeviceToHost, s), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 0U);
  EXPECT_EQ(bytes[15], 7);
}

TEST_F(CopyTest, AnAsynchronousCopyToPinnedMemoryDoesNotWait)
{
  scoped_stream const s;
  scoped_memory const memory{16};
  scoped_memory const pinned{16, scoped_memory::kind::pinned};
  ASSERT_EQ(cudaMemcpyAsync(pinned, memory, 16, cudaMemcpyDeviceToHost, s), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 1U);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

TEST_F(CopyTest, AnAsynchronousCopyOnTheHostWaits)
{
  scoped_stream const s;
  scoped_memory const from{16, scoped_memory::kind::pinned};
  scoped_memory const to{16, scoped_memory::kind::pinned};
  ASSERT_EQ(cudaMemcpyAsync(to, from, 16, cudaMemcpyHostToHost, s), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 0U);
}

TEST_F(CopyTest, ASynchronousCopyOnTheDeviceDoesNotWait)
{
  scoped_memory const from{16};
  scoped_memory const to{16};
  ASSERT_EQ(cudaMemcpy(to, from, 16, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 1U);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CopyTest, ASynchronousCopyWithTheHostOrManagedMemoryWaits)
{
  scoped_memory const device{16};
  scoped_memory const pinned{16, scoped_memory::kind::pinned};
  scoped_memory const managed{16, scoped_memory::kind::managed};
  ASSERT_EQ(cudaMemcpy(device, pinned, 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 0U);
  ASSERT_EQ(cudaMemcpy(managed, device, 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 0U);
  ASSERT_EQ(cudaMemcpy(pinned, managed, 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 0U);
}

TEST_F(CopyTest, ASynchronousFillWaitsExceptOnTheDevice)
{
  scoped_memory const device{16};
  scoped_memory const pinned{16, scoped_memory::kind::pinned};
  ASSERT_EQ(cudaMemset(device, 1, 16), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 1U);
  ASSERT_EQ(cudaMemset(pinned, 1, 16), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 0U);
  EXPECT_EQ(pinned[15], 1);
}

TEST_F(CopyTest, AnAsynchronousFillOfPinnedMemoryDoesNotWait)
{
  scoped_stream const s;
  scoped_memory const pinned{16, scoped_memory::kind::pinned};
  pinned[0] = 5;
  ASSERT_EQ(cudaMemsetAsync(pinned, 1, 16, s), cudaSuccess);
  EXPECT_EQ(pinned[0], 5);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(pinned[0], 1);
}

TEST_F(CopyTest, ACopyOfNothingLooksAtNothing)
{
  auto const no_stream = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x1230});
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 0, static_cast<cudaMemcpyKind>(7)), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyDefault, no_stream), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(nullptr, 0, 0, no_stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2D(nullptr, 0, nullptr, 0, 16, 0, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemset2D(nullptr, 0, 0, 0, 16), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeerAsync(nullptr, 99, nullptr, 99, 0, no_stream), cudaSuccess);
}

TEST_F(CopyTest, TheStreamHasToExist)
{
  scoped_memory const memory{16};
  auto const no_stream = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x1230});
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 16, no_stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemcpyAsync(memory, memory + 8, 8, cudaMemcpyDefault, no_stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemcpyPeerAsync(memory, 0, memory + 8, 0, 8, no_stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(take_count(violation::kind::misuse), 3U);
}

TEST_F(CopyTest, AMistakeIsReportedWithTheNameOfTheCallAndItsError)
{
  scoped_memory const memory{16};
  EXPECT_EQ(cudaMemcpy(memory, nullptr, 16, cudaMemcpyDefault), cudaErrorInvalidValue);
  auto const all = take_violations();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].what, violation::kind::misuse);
  EXPECT_EQ(all[0].text.find("cudaMemcpy: the source is null (cudaErrorInvalidValue, called from "), 0U) << all[0].text;
}

TEST_F(CopyTest, BytesBeyondAnAllocationAreReportedAndRefused)
{
  scoped_memory const memory{100};
  std::array<char, 200> bytes{};
  EXPECT_EQ(cudaMemcpy(bytes.data(), memory, 101, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(memory + 99, 0, 2), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(memory + 99, 0, 1), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::out_of_bounds), 2U);
}

TEST_F(CopyTest, UseOfFreedMemoryIsReportedAndRefused)
{
  char* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 4096), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  std::array<char, 16> bytes{};
  EXPECT_EQ(cudaMemcpy(bytes.data(), memory, 16, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::use_after_free), 1U);
}

// --- Virtual time

TEST_F(CopyTest, CopiesWithTheHostTakeTimeByTheirBytes)
{
  std::size_t const bytes = 25'000'000;
  scoped_memory const memory{bytes};
  scoped_memory const pinned{bytes, scoped_memory::kind::pinned};
  auto const before = cudasim::now_ns();
  ASSERT_EQ(cudaMemcpy(memory, pinned, bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudasim::now_ns() - before, 1'001'000U);
}

TEST_F(CopyTest, CopiesOnOneDeviceAreFasterThanBetweenTwo)
{
  std::size_t const bytes = 20'000'000;
  scoped_memory const here{bytes};
  scoped_memory const there{bytes};
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  scoped_memory const other_device{bytes};
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  auto const time_of_copy = [&](char* to, char* from) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    auto const before = cudasim::now_ns();
    EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return cudasim::now_ns() - before;
  };
  EXPECT_EQ(time_of_copy(there, here), 11'000U);
  EXPECT_EQ(time_of_copy(other_device, here), 101'000U);
}

// --- The checker

TEST_F(CopyTest, TheCheckerSeesWhatCopiesReadAndWrite)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_memory const memory{64};
  scoped_memory const other{64};
  ASSERT_EQ(cudaMemsetAsync(memory, 1, 64, a), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(other, memory, 64, cudaMemcpyDefault, b), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::race), 1U);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CopyTest, TheCheckerAcceptsTwoReaders)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_memory const memory{64};
  scoped_memory const one{64};
  scoped_memory const two{64};
  ASSERT_EQ(cudaMemcpyAsync(one, memory, 64, cudaMemcpyDefault, a), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(two, memory, 64, cudaMemcpyDefault, b), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CopyTest, TheCheckerKnowsTheGapsBetweenRows)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_memory const memory{64};
  ASSERT_EQ(cudaMemset2DAsync(memory, 16, 1, 8, 4, a), cudaSuccess);
  ASSERT_EQ(cudaMemset2DAsync(memory + 8, 16, 2, 8, 4, b), cudaSuccess);
  EXPECT_TRUE(cudasim::violations().empty());
  ASSERT_EQ(cudaMemset2DAsync(memory + 7, 16, 3, 2, 1, b), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::race), 1U);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CopyTest, PageableMemoryIsTheProgramsOwnAffair)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_memory const memory{64};
  std::array<char, 32> bytes{};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cudaMemcpyAsync(memory, bytes.data(), 32, cudaMemcpyDefault, a), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(bytes.data(), memory + 32, 32, cudaMemcpyDefault, b), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// --- Between devices

TEST_F(CopyTest, APeerCopyComesAfterTheDefaultStreamsOfBothDevicesAndBeforeTheirLaterWork)
{
  scoped_memory const here{16};
  scoped_stream const blocking_here{cudaStreamDefault};
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  scoped_memory const there{16};
  scoped_stream const blocking_there{cudaStreamDefault};
  ASSERT_EQ(cudaMemsetAsync(there, 4, 16, blocking_there), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(here, 3, 16, blocking_here), cudaSuccess);

  ASSERT_EQ(cudaMemcpyPeer(there, 1, here, 0, 16), cudaSuccess);
  EXPECT_EQ(cudasim::pending(cudaStreamLegacy), 1U);
  ASSERT_EQ(cudaMemsetAsync(here, 5, 16, blocking_here), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  std::array<char, 16> bytes{};
  ASSERT_EQ(cudaMemcpy(bytes.data(), there, 16, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(bytes[0], 3);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CopyTest, AnAsynchronousPeerCopyIsInTheOrderOfItsStream)
{
  scoped_stream const s;
  scoped_memory const here{16};
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  scoped_memory const there{16};
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(here, 3, 16, s), cudaSuccess);
  ASSERT_EQ(cudaMemcpyPeerAsync(there, 1, here, 0, 16, s), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 2U);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(there[15], 3);
}

TEST_F(CopyTest, APeerCopyNeedsDevicesThatExistAndMemoryOfCuda)
{
  scoped_memory const memory{16};
  std::array<char, 16> bytes{};
  EXPECT_EQ(cudaMemcpyPeer(memory, 2, memory, 0, 16), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMemcpyPeer(memory, 0, memory, -1, 16), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMemcpyPeer(memory, 0, bytes.data(), 0, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyPeerAsync(bytes.data(), 0, memory, 0, 16, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 4U);
}

TEST_F(CopyTest, AFillNeedsMemoryThatTheDeviceOfTheStreamCanAccess)
{
  scoped_stream const s;
  scoped_memory const memory{16};
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory, 0, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 16, s), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory, 0, 16), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaDeviceDisablePeerAccess(0), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CopyTest, PeerCopiesCannotBeCaptured)
{
  scoped_stream const s;
  scoped_memory const memory{32};
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeerAsync(memory, 0, memory + 16, 0, 16, s), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CopyTest, BoxesGoBetweenDevices)
{
  scoped_memory const here{64};
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  scoped_memory const there{64};
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMemset(here, 6, 64), cudaSuccess);
  cudaMemcpy3DPeerParms p{};
  p.srcPtr    = cudaPitchedPtr{here, 16, 16, 2};
  p.dstPtr    = cudaPitchedPtr{there, 16, 16, 2};
  p.dstDevice = 1;
  p.extent    = cudaExtent{8, 2, 2};
  ASSERT_EQ(cudaMemcpy3DPeer(&p), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(there[0], 6);
  EXPECT_EQ(there[55], 6);
  scoped_stream const s;
  ASSERT_EQ(cudaMemset(here, 7, 64), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemcpy3DPeerAsync(&p, s), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(there[55], 7);
}

// --- Captures

TEST_F(CopyTest, APageableSourceIsReadWhenTheGraphRuns)
{
  scoped_stream const s;
  scoped_memory const memory{16};
  auto bytes = counting<16>();
  cudaGraph_t graph{};
  cudaGraphExec_t exec{};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(memory, bytes.data(), 16, cudaMemcpyHostToDevice, s), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  bytes.fill(42);
  ASSERT_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(memory[3], 42);
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CopyTest, ASynchronousCopyInvalidatesTheCaptureOfABlockingStream)
{
  scoped_stream const s{cudaStreamDefault};
  scoped_memory const memory{32};
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(memory, memory + 16, 16, cudaMemcpyDefault), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
}

// --- Rows and boxes

TEST_F(CopyTest, RowsArePackedAndUnpacked)
{
  scoped_memory const memory{64};
  auto const packed = counting<32>();
  ASSERT_EQ(cudaMemset(memory, 99, 64), cudaSuccess);
  ASSERT_EQ(cudaMemcpy2D(memory, 16, packed.data(), 8, 8, 4, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(memory[16], 8);
  EXPECT_EQ(memory[8], 99);
  std::array<char, 32> unpacked{};
  scoped_stream const s;
  ASSERT_EQ(cudaMemcpy2DAsync(unpacked.data(), 8, memory, 16, 8, 4, cudaMemcpyDeviceToHost, s), cudaSuccess);
  EXPECT_EQ(unpacked, packed);
}

TEST_F(CopyTest, StagedRowsAreTakenAtOnce)
{
  scoped_stream const s;
  scoped_memory const memory{16};
  auto bytes = counting<32>();
  ASSERT_EQ(cudaMemcpy2DAsync(memory, 4, bytes.data() + 4, 8, 4, 4, cudaMemcpyHostToDevice, s), cudaSuccess);
  bytes.fill(99);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(memory[0], 4);
  EXPECT_EQ(memory[4], 12);
  EXPECT_EQ(memory[15], 31);
}

TEST_F(CopyTest, BoxesAreCopiedFromAndToPositions)
{
  scoped_memory const memory{2 * 4 * 8};
  auto const source = counting<2 * 4 * 8>();
  ASSERT_EQ(cudaMemset(memory, 99, 64), cudaSuccess);
  cudaMemcpy3DParms p{};
  p.srcPtr = cudaPitchedPtr{const_cast<char*>(source.data()), 8, 8, 4};
  p.dstPtr = cudaPitchedPtr{memory, 8, 8, 4};
  p.srcPos = cudaPos{1, 1, 0};
  p.dstPos = cudaPos{2, 0, 1};
  p.extent = cudaExtent{3, 2, 1};
  p.kind   = cudaMemcpyHostToDevice;
  ASSERT_EQ(cudaMemcpy3D(&p), cudaSuccess);
  EXPECT_EQ(memory[32 + 2], 9);
  EXPECT_EQ(memory[32 + 2 + 8 + 2], 19);
  EXPECT_EQ(memory[32 + 1], 99);
  EXPECT_EQ(memory[32 + 5], 99);
  scoped_stream const s;
  p.dstPos = cudaPos{0, 0, 0};
  ASSERT_EQ(cudaMemcpy3DAsync(&p, s), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(memory[0], 9);
}

TEST_F(CopyTest, BoxesAreFilled)
{
  scoped_memory const memory{2 * 4 * 8};
  ASSERT_EQ(cudaMemset(memory, 0, 64), cudaSuccess);
  scoped_stream const s;
  ASSERT_EQ(cudaMemset3D(cudaPitchedPtr{memory, 8, 8, 4}, 5, cudaExtent{4, 2, 2}), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(memory[32 + 8 + 3], 5);
  EXPECT_EQ(memory[4], 0);
  EXPECT_EQ(memory[16], 0);
  ASSERT_EQ(cudaMemset3DAsync(cudaPitchedPtr{memory, 8, 8, 4}, 6, cudaExtent{8, 4, 2}, s), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(memory[63], 6);
}

TEST_F(CopyTest, ArraysAreNotSimulated)
{
  cudaMemcpy3DParms p{};
  p.srcArray = reinterpret_cast<cudaArray_t>(std::uintptr_t{16});
  p.extent   = cudaExtent{1, 1, 1};
  p.kind     = cudaMemcpyDefault;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cudaMemcpy3D(&p), cudaErrorNotSupported);
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("cudasim: cudaMemcpy3D with a cudaArray is not simulated"),
            0U);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
}

// --- Batches

#if CUDART_VERSION >= 13000
class CopyBatchTest : public Stepped {
 protected:
  /// A batch of two copies into `memory_`, with one set of attributes.
  cudaError_t copy(void const* a, void const* b, cudaMemcpySrcAccessOrder order, cudaStream_t s)
  {
    void* const to[]{memory_, memory_ + 32};
    void const* const from[]{a, b};
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = order;
    std::size_t first         = 0;
    return cudaMemcpyBatchAsync(to, from, sizes_.data(), 2, &attributes, &first, 1, s);
  }
  void SetUp() override
  {
    Stepped::SetUp();
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), 64), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    Stepped::TearDown();
  }
  char* memory_{};
  std::array<std::size_t, 2> sizes_{16, 32};
};

TEST_F(CopyBatchTest, ABatchIsItsCopies)
{
  scoped_stream const s;
  auto bytes = counting<48>();
  ASSERT_EQ(copy(bytes.data(), bytes.data() + 16, cudaMemcpySrcAccessOrderDuringApiCall, s), cudaSuccess);
  bytes.fill(99);
  EXPECT_EQ(cudasim::pending(s), 2U);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(memory_[15], 15);
  EXPECT_EQ(memory_[63], 47);
}

TEST_F(CopyBatchTest, APageableSourceThatIsReadInStreamOrderMakesTheCallWait)
{
  scoped_stream const s;
  auto const bytes = counting<48>();
  ASSERT_EQ(copy(bytes.data(), bytes.data() + 16, cudaMemcpySrcAccessOrderStream, s), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 0U);
}

TEST_F(CopyBatchTest, NothingIsCopiedIfOneCopyIsWrong)
{
  scoped_stream const s;
  auto const bytes = counting<48>();
  EXPECT_EQ(copy(bytes.data(), nullptr, cudaMemcpySrcAccessOrderStream, s), cudaErrorInvalidValue);
  sizes_[1] = 0;
  EXPECT_EQ(copy(bytes.data(), bytes.data(), cudaMemcpySrcAccessOrderStream, s), cudaErrorInvalidValue);
  EXPECT_EQ(cudasim::pending(s), 0U);
  EXPECT_EQ(take_count(violation::kind::misuse), 2U);
}

TEST_F(CopyBatchTest, ABatchNeedsAStreamOfItsOwnThatDoesNotCapture)
{
  auto const bytes = counting<48>();
  EXPECT_EQ(copy(bytes.data(), bytes.data() + 16, cudaMemcpySrcAccessOrderStream, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  scoped_stream const s;
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(copy(bytes.data(), bytes.data() + 16, cudaMemcpySrcAccessOrderStream, s),
            cudaErrorStreamCaptureUnsupported);
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}
#endif

// --- Threads

class CopyThreadsTest : public Simulated {};

TEST_F(CopyThreadsTest, CopiesRunInTheBackgroundInTheOrderOfTheirStream)
{
  scoped_stream const s;
  scoped_memory const a{4096};
  scoped_memory const b{4096};
  std::vector<char> bytes(4096);
  for (char i = 0; i < 100; ++i) {
    ASSERT_EQ(cudaMemsetAsync(a, i, 4096, s), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(b, a, 4096, cudaMemcpyDeviceToDevice, s), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(bytes.data(), b, 4096, cudaMemcpyDeviceToHost, s), cudaSuccess);
    ASSERT_EQ(bytes[4095], i);
  }
}

}  // namespace
}  // namespace cudasim_tests
