// SPDX-License-Identifier: Apache-2.0
#include "../../../support/sanitizers.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/host/new_delete_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <random>
#include <type_traits>
#include <vector>

namespace {

using rmm::mr::host_memory_resource;
using rmm::mr::new_delete_resource;
using rmm::mr::pinned_memory_resource;

template <class Resource, class... Properties>
constexpr bool is_sync = rmm::detail::polyfill::resource_with<Resource, Properties...>;
template <class Resource, class... Properties>
constexpr bool is_async = rmm::detail::polyfill::async_resource_with<Resource, Properties...>;

static_assert(std::is_final_v<new_delete_resource> && std::is_final_v<pinned_memory_resource>);
static_assert(is_sync<new_delete_resource, cuda::mr::host_accessible>);
static_assert(!is_sync<new_delete_resource, cuda::mr::device_accessible>);
static_assert(!is_async<new_delete_resource>);
static_assert(is_async<pinned_memory_resource, cuda::mr::host_accessible, cuda::mr::device_accessible>);
static_assert(std::is_convertible_v<pinned_memory_resource&, rmm::device_async_resource_ref>);
static_assert(std::is_convertible_v<pinned_memory_resource*, rmm::host_device_async_resource_ref>);

// Behaviour that both resources share, called directly and through a reference.
template <class Resource>
struct HostResource : ::testing::Test {
  Resource resource;
  rmm::host_resource_ref ref{resource};
};

using Resources = ::testing::Types<new_delete_resource, pinned_memory_resource>;
TYPED_TEST_SUITE(HostResource, Resources);

constexpr std::size_t kibibyte = 1024;

TYPED_TEST(HostResource, GivesMemoryThatTheHostCanUse)
{
  for (std::size_t const bytes : {std::size_t{4}, kibibyte, kibibyte * kibibyte}) {
    void* const ptr = this->ref.allocate(bytes);
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::RMM_DEFAULT_HOST_ALIGNMENT));
    std::memset(ptr, 1, bytes);
    this->ref.deallocate(ptr, bytes);
  }
}

TYPED_TEST(HostResource, HonoursAlignments)
{
  for (std::size_t alignment = 16; alignment <= 4096; alignment *= 2) {
    void* const ptr = this->ref.allocate(kibibyte, alignment);
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, alignment));
    this->ref.deallocate(ptr, kibibyte, alignment);
  }
}

TYPED_TEST(HostResource, AlignsNoLessThanByDefault)
{
  for (auto const alignment : std::initializer_list<std::size_t>{1, 2, 4, 8}) {
    void* const ptr = this->resource.allocate(3, alignment);
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::RMM_DEFAULT_HOST_ALIGNMENT));
    this->resource.deallocate(ptr, 3, alignment);
  }
}

TYPED_TEST(HostResource, UsesTheDefaultForAlignmentsOtherThanPowersOfTwo)
{
  for (std::size_t const alignment : {0U, 17U, 33U, 65U, 257U, 4097U}) {
    void* ptr = this->resource.allocate(kibibyte, alignment);
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::RMM_DEFAULT_HOST_ALIGNMENT));
    this->resource.deallocate(ptr, kibibyte, alignment);
    ptr = this->ref.allocate(kibibyte, alignment);
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::RMM_DEFAULT_HOST_ALIGNMENT));
    this->ref.deallocate(ptr, kibibyte, alignment);
  }
}

TYPED_TEST(HostResource, RefusesAlignmentsOtherThanPowersOfTwoInCallsOfLaterReleases)
{
  EXPECT_THROW(this->resource.allocate_sync(kibibyte, 0), rmm::bad_alloc);
  EXPECT_THROW(this->resource.allocate_sync(kibibyte, 48), std::bad_alloc);
  void* const ptr = this->resource.allocate_sync(kibibyte, 64);
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, 64));
  this->resource.deallocate_sync(ptr, kibibyte, 64);
}

TYPED_TEST(HostResource, SaysThatMemoryIsMissing)
{
  if (rmm::test::exhaustion_ends_program) {
    GTEST_SKIP() << "the sanitizer ends a program that exhausts the host's memory";
  }
  EXPECT_THROW(this->ref.allocate(std::size_t{1} << 50), std::bad_alloc);
  EXPECT_THROW(this->ref.allocate(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
}

TYPED_TEST(HostResource, TakesNoBytesBack)
{
  void* const ptr = this->ref.allocate(0);
  EXPECT_NO_THROW(this->ref.deallocate(ptr, 0));
  EXPECT_NO_THROW(this->ref.deallocate(nullptr, 0));
}

TYPED_TEST(HostResource, GivesMemoryThatDoesNotOverlap)
{
  constexpr std::uint32_t seed = 20240801;
  std::mt19937 random{seed};
  std::uniform_int_distribution<std::size_t> sizes{1, 64 * kibibyte};
  struct block {
    unsigned char* ptr;
    std::size_t bytes;
  };
  std::vector<block> blocks;
  for (unsigned i = 0; i < 100; ++i) {
    auto const bytes = sizes(random);
    blocks.push_back({static_cast<unsigned char*>(this->ref.allocate(bytes)), bytes});
    std::memset(blocks.back().ptr, static_cast<int>(i), bytes);
  }
  for (unsigned i = 0; i < 100; ++i) {
    EXPECT_EQ(blocks[i].ptr[0], i) << "seed " << seed;
    EXPECT_EQ(blocks[i].ptr[blocks[i].bytes - 1], i) << "seed " << seed;
    this->ref.deallocate(blocks[i].ptr, blocks[i].bytes);
  }
}

TYPED_TEST(HostResource, IsEqualToItself)
{
  TypeParam const other;
  EXPECT_TRUE(this->resource == this->resource);
  EXPECT_TRUE(this->resource != other);  // host_memory_resource compares identities
}

TEST(NewDeleteResource, GivesAPointerForNoBytes)
{
  new_delete_resource resource;
  void* const ptr = resource.allocate(0);
  EXPECT_NE(ptr, nullptr);
  resource.deallocate(ptr, 0);
}

struct PinnedMemoryResource : ::testing::Test {
  pinned_memory_resource resource;
  rmm::cuda_stream stream;
};

TEST_F(PinnedMemoryResource, GivesMemoryThatCudaKnows)
{
  void* const ptr = resource.allocate(1000);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  resource.deallocate(ptr, 1000);
}

TEST_F(PinnedMemoryResource, GivesNullForNoBytes)
{
  EXPECT_EQ(resource.allocate(0), nullptr);
  EXPECT_EQ(resource.allocate_async(0, stream), nullptr);
  EXPECT_NO_THROW(resource.deallocate_async(nullptr, 0, stream));
}

TEST_F(PinnedMemoryResource, AnswersInEverySpelling)
{
  void* ptr = resource.allocate_async(8, stream);
  resource.deallocate_async(ptr, 8, stream);
  ptr = resource.allocate_async(8, 64, stream);
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, 64));
  resource.deallocate_async(ptr, 8, 64, stream);
  ptr = resource.allocate_sync(8);
  resource.deallocate_sync(ptr, 8);
  ptr = resource.allocate(stream, 8);
  resource.deallocate(stream, ptr, 8);
  ptr = resource.allocate(stream, 8, 64);
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, 64));
  resource.deallocate(stream, ptr, 8, 64);
}

TEST_F(PinnedMemoryResource, ServesContainers)
{
  char const text[] = "pinned";
  rmm::device_buffer const buffer(text, sizeof text, stream, resource);
  stream.synchronize();
  EXPECT_STREQ(static_cast<char const*>(buffer.data()), text);
}

}  // namespace
