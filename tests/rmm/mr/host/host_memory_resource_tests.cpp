// SPDX-License-Identifier: Apache-2.0
#include "../../../support/host_resources.hpp"

#include <rmm/mr/host/host_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace {

using namespace rmm::test;
using rmm::mr::host_memory_resource;

static_assert(std::is_abstract_v<host_memory_resource>);
static_assert(std::has_virtual_destructor_v<host_memory_resource>);
static_assert(cuda::has_property<host_memory_resource, cuda::mr::host_accessible>);
static_assert(!cuda::has_property<host_memory_resource, cuda::mr::device_accessible>);
static_assert(rmm::detail::polyfill::resource_with<host_memory_resource, cuda::mr::host_accessible>);
static_assert(!rmm::detail::polyfill::async_resource<host_memory_resource>);
#if CCCL_VERSION < 3001000
static_assert(cuda::mr::resource_with<host_memory_resource, cuda::mr::host_accessible>);
#else
static_assert(cuda::mr::synchronous_resource_with<host_memory_resource, cuda::mr::host_accessible>);
#endif

/// Memory from aligned operator new.
class aligned_host_resource final : public host_memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override
  {
    return ::operator new (bytes, std::align_val_t{alignment});
  }
  void do_deallocate(void* ptr, std::size_t, std::size_t alignment) override
  {
    ::operator delete (ptr, std::align_val_t{alignment});
  }
  [[nodiscard]] bool do_is_equal(host_memory_resource const& other) const noexcept override
  {
    return dynamic_cast<aligned_host_resource const*>(&other) != nullptr;
  }
};
static_assert(std::is_copy_constructible_v<aligned_host_resource>);
static_assert(std::is_nothrow_move_assignable_v<aligned_host_resource>);

TEST(HostMemoryResourceTest, TheDefaultAlignmentIsThatOfAnyType)
{
  recording_host_resource mr;
  void* const ptr = mr.allocate(100);
  EXPECT_EQ(mr.last, (arguments{ptr, 100, alignof(std::max_align_t), {}}));
  mr.deallocate(ptr, 100);
  EXPECT_EQ(mr.last, (arguments{ptr, 100, alignof(std::max_align_t), {}}));
  EXPECT_EQ(mr.live(), 0);
}

TEST(HostMemoryResourceTest, SizeAndAlignmentArePassedAsTheyAre)
{
  recording_host_resource mr;
  void* const ptr = mr.allocate(100, 64);
  EXPECT_EQ(mr.last, (arguments{ptr, 100, 64, {}}));
  mr.deallocate(ptr, 100, 64);
  EXPECT_EQ(mr.last, (arguments{ptr, 100, 64, {}}));
}

TEST(HostMemoryResourceTest, TheLaterSpellingsDoTheSame)
{
  recording_host_resource mr;
  void* ptr = mr.allocate_sync(100);
  EXPECT_EQ(mr.last, (arguments{ptr, 100, alignof(std::max_align_t), {}}));
  mr.deallocate_sync(ptr, 100);
  ptr = mr.allocate_sync(100, 64);
  EXPECT_EQ(mr.last, (arguments{ptr, 100, 64, {}}));
  mr.deallocate_sync(ptr, 100, 64);
  EXPECT_EQ(mr.live(), 0);
}

TEST(HostMemoryResourceTest, EqualityIsIdentityUnlessOverridden)
{
  recording_host_resource first;
  recording_host_resource second;
  auto& base = static_cast<host_memory_resource&>(first);
  EXPECT_TRUE(base.is_equal(first));
  EXPECT_FALSE(base.is_equal(second));
  EXPECT_TRUE(base == first);
  EXPECT_TRUE(base != second);
  aligned_host_resource third;
  aligned_host_resource fourth;
  EXPECT_TRUE(third == fourth);
  EXPECT_FALSE(third != fourth);
  EXPECT_TRUE(third.is_equal(fourth));
}

struct HostResourceRefTest : ::testing::TestWithParam<std::size_t> {};

TEST_P(HostResourceRefTest, AReferenceHonoursTheAlignment)
{
  aligned_host_resource mr;
  rmm::host_resource_ref const ref{mr};
  std::size_t const alignment = GetParam();
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{4}, std::size_t{1000}, std::size_t{1} << 20}) {
    void* const ptr = ref.allocate(bytes, alignment);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % alignment, 0);
    static_cast<char*>(ptr)[bytes - 1] = 1;
    ref.deallocate(ptr, bytes, alignment);
  }
}

INSTANTIATE_TEST_SUITE_P(Alignments, HostResourceRefTest, ::testing::Values(16, 64, 256, 4096));

TEST(HostMemoryResourceTest, ABaseIsReferredTo)
{
  recording_host_resource mr;
  host_memory_resource& base = mr;
  rmm::host_resource_ref const ref{base};
  ref.deallocate(ref.allocate(8), 8);
  EXPECT_EQ(mr.total(), 1);
  EXPECT_EQ(ref, rmm::host_resource_ref{&base});
}

TEST(HostMemoryResourceTest, AFailureComesThroughAReference)
{
  recording_host_resource mr;
  rmm::host_resource_ref const ref{mr};
  mr.fail_next = true;
  EXPECT_THROW(ref.allocate(8), std::bad_alloc);
}

}  // namespace
