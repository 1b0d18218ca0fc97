// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream_view.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <sstream>
#include <string>
#include <type_traits>

namespace {

using rmm::cuda_stream_view;

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
constexpr bool null_is_per_thread{true};
#else
constexpr bool null_is_per_thread{false};
#endif

// A stream of the runtime, not of the library.
class CudaStreamView : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess); }
  void TearDown() override { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }

  cudaStream_t stream{};
};

cudaStream_t as_handle(cudaStream_t stream) { return stream; }
cudaStream_t as_view(cuda_stream_view stream) { return stream.value(); }
cudaStream_t as_ref(cuda::stream_ref stream) { return stream.get(); }

TEST_F(CudaStreamView, IsTheDefaultStreamByDefault)
{
  static_assert(cuda_stream_view{}.value() == nullptr);
  EXPECT_EQ(cuda_stream_view{}, rmm::cuda_stream_default);
}

TEST_F(CudaStreamView, IsAnOrdinaryConstexprValue)
{
  constexpr cuda_stream_view original{};
  constexpr cuda_stream_view copy{original};
  static_assert(copy == original && !(copy != original));
  static_assert(std::is_trivially_copyable_v<cuda_stream_view>);
  static_assert(std::is_nothrow_copy_constructible_v<cuda_stream_view>);
  static_assert(sizeof(cuda_stream_view) == sizeof(cudaStream_t));

  cuda_stream_view assigned{stream};
  assigned = original;
  EXPECT_EQ(assigned.value(), nullptr);
}

TEST_F(CudaStreamView, IsNotMadeFromZeroOrNullptr)
{
  static_assert(!std::is_constructible_v<cuda_stream_view, int>);
  static_assert(!std::is_constructible_v<cuda_stream_view, std::nullptr_t>);
}

TEST_F(CudaStreamView, ConvertsFromAndToHandles)
{
  static_assert(std::is_nothrow_constructible_v<cuda_stream_view, cudaStream_t>);
  cuda_stream_view const view = stream;
  cudaStream_t const handle   = view;
  EXPECT_EQ(view.value(), stream);
  EXPECT_EQ(handle, stream);
  EXPECT_EQ(as_view(stream), stream);
  EXPECT_EQ(as_handle(view), stream);
}

TEST_F(CudaStreamView, ConvertsFromAndToLibcuxxReferences)
{
  static_assert(std::is_nothrow_constructible_v<cuda_stream_view, cuda::stream_ref>);
  cuda::stream_ref const ref{stream};
  cuda_stream_view const view = ref;
  cuda::stream_ref const back = view;
  EXPECT_EQ(view.value(), stream);
  EXPECT_EQ(back, ref);
  EXPECT_EQ(as_view(ref), stream);
  EXPECT_EQ(as_ref(view), stream);
}

TEST_F(CudaStreamView, ConvertsToLibcuxxReferencesInConstantExpressions)
{
  constexpr cuda::stream_ref ref = rmm::cuda_stream_default;
  constexpr cuda_stream_view view{ref};
  static_assert(view == rmm::cuda_stream_default);
}

TEST_F(CudaStreamView, IsComparedByHandle)
{
  EXPECT_TRUE(cuda_stream_view{stream} == cuda_stream_view{stream});
  EXPECT_FALSE(cuda_stream_view{stream} != cuda_stream_view{stream});
  EXPECT_TRUE(cuda_stream_view{stream} != cuda_stream_view{});
  EXPECT_FALSE(cuda_stream_view{stream} == cuda_stream_view{});
}

TEST_F(CudaStreamView, IsComparedWithHandlesAndReferencesOnBothSides)
{
  cuda_stream_view const view{stream};
  cuda::stream_ref const ref{stream};
  EXPECT_TRUE(view == stream && stream == view && view == ref && ref == view);
  EXPECT_FALSE(view != stream || stream != view || view != ref || ref != view);
  cuda_stream_view const other{};
  EXPECT_TRUE(other != stream && stream != other && other != ref && ref != other);
  EXPECT_FALSE(other == stream || stream == other || other == ref || ref == other);
}

TEST_F(CudaStreamView, LegacyAndNullHandlesAreUnequal)
{
  EXPECT_NE(rmm::cuda_stream_legacy, rmm::cuda_stream_default);
  EXPECT_NE(rmm::cuda_stream_per_thread, rmm::cuda_stream_default);
  EXPECT_NE(rmm::cuda_stream_per_thread, rmm::cuda_stream_legacy);
}

TEST_F(CudaStreamView, ConstantsHaveTheRuntimesHandles)
{
  static_assert(rmm::cuda_stream_default.value() == nullptr);
  EXPECT_EQ(rmm::cuda_stream_legacy.value(), cudaStreamLegacy);
  EXPECT_EQ(rmm::cuda_stream_per_thread.value(), cudaStreamPerThread);
}

TEST_F(CudaStreamView, TheNullHandleIsTheDefaultStreamOfTheCompilationMode)
{
  EXPECT_EQ(rmm::cuda_stream_default.is_per_thread_default(), null_is_per_thread);
  EXPECT_EQ(rmm::cuda_stream_default.is_default(), !null_is_per_thread);
}

TEST_F(CudaStreamView, TheLegacyHandleIsTheDefaultStreamInEveryMode)
{
  EXPECT_TRUE(rmm::cuda_stream_legacy.is_default());
  EXPECT_FALSE(rmm::cuda_stream_legacy.is_per_thread_default());
}

TEST_F(CudaStreamView, ThePerThreadHandleIsThePerThreadStreamInEveryMode)
{
  EXPECT_TRUE(rmm::cuda_stream_per_thread.is_per_thread_default());
  EXPECT_FALSE(rmm::cuda_stream_per_thread.is_default());
}

TEST_F(CudaStreamView, OtherHandlesDoNotNameDefaultStreams)
{
  EXPECT_FALSE(cuda_stream_view{stream}.is_default());
  EXPECT_FALSE(cuda_stream_view{stream}.is_per_thread_default());
}

// Work that keeps a stream busy.
struct unfinished_work {
  static constexpr std::size_t bytes{std::size_t{32} << 20U};

  explicit unfinished_work(cudaStream_t stream)
  {
    EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    for (int i = 0; i < 8; ++i) { EXPECT_EQ(cudaMemsetAsync(memory, i, bytes, stream), cudaSuccess); }
  }
  ~unfinished_work() { EXPECT_EQ(cudaFree(memory), cudaSuccess); }
  unfinished_work(unfinished_work const&)            = delete;
  unfinished_work& operator=(unfinished_work const&) = delete;

  void* memory{};
};

TEST_F(CudaStreamView, SynchronizeWaitsForTheWorkOfTheStream)
{
  unfinished_work const work{stream};
  cuda_stream_view{stream}.synchronize();
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

TEST_F(CudaStreamView, SynchronizeNoThrowWaitsForTheWorkOfTheStream)
{
  static_assert(noexcept(cuda_stream_view{}.synchronize_no_throw()));
  unfinished_work const work{stream};
  cuda_stream_view{stream}.synchronize_no_throw();
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

TEST_F(CudaStreamView, HasTheNamesOfLibcuxx)
{
  unfinished_work const work{stream};
  EXPECT_EQ(cuda_stream_view{stream}.get(), stream);
  cuda_stream_view{stream}.sync();
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

TEST_F(CudaStreamView, DefaultStreamsAreSynchronized)
{
  for (auto const view : {rmm::cuda_stream_default, rmm::cuda_stream_legacy, rmm::cuda_stream_per_thread}) {
    unfinished_work const work{view};
    view.synchronize();
    EXPECT_EQ(cudaStreamQuery(view), cudaSuccess);
  }
}

TEST_F(CudaStreamView, IsPrintedAsAPointer)
{
  for (auto const view : {cuda_stream_view{stream}, rmm::cuda_stream_default, rmm::cuda_stream_legacy}) {
    std::ostringstream expected;
    expected << static_cast<void const*>(view.value());
    std::ostringstream printed;
    printed << view;
    EXPECT_EQ(printed.str(), expected.str());
  }
}

TEST_F(CudaStreamView, IsPrintedToWideStreams)
{
  std::wostringstream printed;
  printed << cuda_stream_view{cudaStreamLegacy};
  EXPECT_EQ(printed.str(), L"0x1");
}

}  // namespace
