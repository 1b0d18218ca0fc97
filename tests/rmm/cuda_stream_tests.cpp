// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::cuda_stream;
using rmm::cuda_stream_view;

unsigned flags_of(cudaStream_t stream)
{
  unsigned flags{};
  EXPECT_EQ(cudaStreamGetFlags(stream, &flags), cudaSuccess);
  return flags;
}

TEST(CudaStream, IsAStreamOfItsOwn)
{
  cuda_stream const stream{};
  EXPECT_TRUE(stream.is_valid());
  EXPECT_NE(stream.value(), nullptr);
  EXPECT_FALSE(stream.view().is_default());
  EXPECT_FALSE(stream.view().is_per_thread_default());
  cuda_stream const other{};
  EXPECT_NE(stream, other);
}

TEST(CudaStream, SynchronisesWithTheLegacyStreamByDefault)
{
  EXPECT_EQ(flags_of(cuda_stream{}.value()), cudaStreamDefault);
  EXPECT_EQ(flags_of(cuda_stream{cuda_stream::flags::sync_default}.value()), cudaStreamDefault);
}

TEST(CudaStream, DoesNotSynchroniseWithTheLegacyStreamOnRequest)
{
  EXPECT_EQ(flags_of(cuda_stream{cuda_stream::flags::non_blocking}.value()), cudaStreamNonBlocking);
}

TEST(CudaStream, FlagsAreThoseOfTheRuntime)
{
  static_assert(std::is_same_v<std::underlying_type_t<cuda_stream::flags>, unsigned>);
  static_assert(static_cast<unsigned>(cuda_stream::flags::sync_default) == cudaStreamDefault);
  static_assert(static_cast<unsigned>(cuda_stream::flags::non_blocking) == cudaStreamNonBlocking);
  static_assert(!std::is_convertible_v<cuda_stream::flags, cuda_stream>);
}

TEST(CudaStream, IsMovedButNotCopied)
{
  static_assert(std::is_nothrow_move_constructible_v<cuda_stream>);
  static_assert(std::is_nothrow_move_assignable_v<cuda_stream>);
  static_assert(!std::is_copy_constructible_v<cuda_stream>);
  static_assert(!std::is_assignable_v<cuda_stream&, cuda_stream&>);
  static_assert(!std::is_assignable_v<cuda_stream&, cuda_stream const&>);
}

TEST(CudaStream, MoveConstructionTakesTheStream)
{
  cuda_stream source{};
  auto const handle = source.value();
  cuda_stream const target{std::move(source)};
  EXPECT_EQ(target.value(), handle);
  EXPECT_FALSE(source.is_valid());  // NOLINT(bugprone-use-after-move): the state after a move is the test
}

TEST(CudaStream, MoveAssignmentTakesTheStream)
{
  cuda_stream source{};
  cuda_stream target{};
  auto const handle = source.value();
  target            = std::move(source);
  EXPECT_EQ(target.value(), handle);
  EXPECT_FALSE(source.is_valid());  // NOLINT(bugprone-use-after-move)
  target.synchronize();
}

TEST(CudaStream, MoveAssignmentRevivesAMovedFromObject)
{
  cuda_stream stream{};
  auto const handle = stream.value();
  cuda_stream elsewhere{std::move(stream)};
  stream = std::move(elsewhere);
  EXPECT_TRUE(stream.is_valid());
  EXPECT_EQ(stream.value(), handle);
}

TEST(CudaStream, SelfMoveKeepsTheStream)
{
  cuda_stream stream{};
  auto const handle = stream.value();
  auto& alias       = stream;
  stream            = std::move(alias);
  EXPECT_TRUE(stream.is_valid());
  EXPECT_EQ(stream.value(), handle);
}

TEST(CudaStream, MovesInsideAVector)
{
  std::vector<cuda_stream> streams(3);
  auto const first = streams[0].value();
  streams.reserve(streams.capacity() + 1);
  EXPECT_EQ(streams[0].value(), first);
  EXPECT_NE(streams[0], streams[1]);
  EXPECT_NE(streams[1], streams[2]);
}

TEST(CudaStream, ConvertsToViewsImplicitly)
{
  cuda_stream const stream{};
  cuda_stream_view const copied = stream;
  cuda_stream_view const direct(stream);
  cuda_stream_view const braced{stream};
  auto const parameter = [](cuda_stream_view view) { return view.value(); };
  EXPECT_EQ(copied.value(), stream.value());
  EXPECT_EQ(direct.value(), stream.value());
  EXPECT_EQ(braced.value(), stream.value());
  EXPECT_EQ(parameter(stream), stream.value());
  EXPECT_EQ(stream.view().value(), stream.value());
}

TEST(CudaStream, ConvertsToHandlesExplicitly)
{
  cuda_stream const stream{};
  EXPECT_EQ(static_cast<cudaStream_t>(stream), stream.value());
  static_assert(!std::is_convertible_v<cuda_stream, cudaStream_t>);
  static_assert(noexcept(static_cast<cudaStream_t>(stream)));
}

TEST(CudaStream, ConvertsToLibcuxxReferencesImplicitly)
{
  cuda_stream const stream{};
  cuda::stream_ref const ref = stream;
  EXPECT_EQ(ref.get(), stream.value());
}

TEST(CudaStream, IsComparedInAnyMixture)
{
  cuda_stream const stream{};
  cuda_stream const other{};
  cuda_stream_view const view{stream};
  EXPECT_EQ(stream, stream);
  EXPECT_EQ(stream, view);
  EXPECT_EQ(view, stream);
  EXPECT_EQ(stream, stream.value());
  EXPECT_EQ(stream.value(), stream);
  EXPECT_NE(stream, other);
  EXPECT_NE(other, view);
  EXPECT_NE(view, other.value());
  EXPECT_FALSE(cuda_stream_view{} == cuda_stream());
}

TEST(CudaStream, IsPrintedAsItsView)
{
  cuda_stream const stream{};
  std::ostringstream printed;
  printed << stream;
  std::ostringstream expected;
  expected << stream.view();
  EXPECT_EQ(printed.str(), expected.str());
}

TEST(CudaStream, SynchronizeWaitsForTheWork)
{
  cuda_stream const stream{};
  constexpr std::size_t bytes{std::size_t{64} << 20U};
  void* memory{};
  ASSERT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 1, bytes, stream.value()), cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(cudaStreamQuery(stream.value()), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 2, bytes, stream.value()), cudaSuccess);
  stream.synchronize_no_throw();
  EXPECT_EQ(cudaStreamQuery(stream.value()), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST(CudaStream, MayEndWithWorkPending)
{
  constexpr std::size_t bytes{1024};
  void* memory{};
  ASSERT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
  {
    cuda_stream const stream{};
    ASSERT_EQ(cudaMemsetAsync(memory, 0x5a, bytes, stream.value()), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  unsigned char byte{};
  ASSERT_EQ(cudaMemcpy(&byte, static_cast<char*>(memory) + bytes - 1, 1, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(byte, 0x5a);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

#if RMM_ASSERTIONS_ENABLED
TEST(CudaStreamDeathTest, UseAfterAMoveIsAsserted)
{
  cuda_stream source{};
  cuda_stream const target{std::move(source)};
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_DEATH(static_cast<void>(source.value()), "Assertion");
  EXPECT_DEATH(source.synchronize_no_throw(), "Assertion");
  // NOLINTEND(bugprone-use-after-move)
}
#endif

}  // namespace
