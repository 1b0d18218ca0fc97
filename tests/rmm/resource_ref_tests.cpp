// SPDX-License-Identifier: Apache-2.0
#include "../support/host_resources.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/host/host_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace rmm::test;
using rmm::device_async_resource_ref;
using rmm::device_resource_ref;
using rmm::host_async_resource_ref;
using rmm::host_device_async_resource_ref;
using rmm::host_device_resource_ref;
using rmm::host_resource_ref;
using rmm::detail::cccl_async_ref;
using rmm::detail::cccl_sync_ref;

constexpr std::size_t default_alignment = alignof(std::max_align_t);

cudaStream_t handle(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

// What references can be made from.

static_assert(std::is_convertible_v<recording_device_resource&, device_async_resource_ref>);
static_assert(std::is_convertible_v<recording_device_resource*, device_async_resource_ref>);
static_assert(std::is_convertible_v<rmm::mr::device_memory_resource&, device_async_resource_ref>);
static_assert(std::is_convertible_v<rmm::mr::device_memory_resource*, device_async_resource_ref>);
static_assert(std::is_convertible_v<rmm::mr::device_memory_resource*, device_resource_ref>);
static_assert(std::is_convertible_v<older_resource&, device_async_resource_ref>);
static_assert(std::is_convertible_v<later_resource&, device_async_resource_ref>);
static_assert(std::is_convertible_v<both_resource&, host_device_async_resource_ref>);
static_assert(std::is_convertible_v<static_resource&, host_resource_ref>);
static_assert(std::is_convertible_v<rmm::mr::host_memory_resource*, host_resource_ref>);

static_assert(!std::is_constructible_v<device_async_resource_ref, recording_device_resource>);
static_assert(!std::is_constructible_v<device_async_resource_ref, older_resource>);
static_assert(!std::is_constructible_v<device_async_resource_ref, std::nullptr_t>);
static_assert(!std::is_default_constructible_v<device_async_resource_ref>);
static_assert(!std::is_constructible_v<host_async_resource_ref, rmm::mr::device_memory_resource&>);
static_assert(!std::is_constructible_v<device_resource_ref, rmm::mr::host_memory_resource&>);
static_assert(!std::is_constructible_v<device_async_resource_ref, static_resource&>);  // it takes no streams
static_assert(!std::is_constructible_v<device_async_resource_ref, int&>);
static_assert(!std::is_constructible_v<device_async_resource_ref, int*>);
static_assert(!std::is_constructible_v<device_async_resource_ref, void*>);

// Types with exactly one defect, which are no resources.

template <class Defect>
struct almost_resource {
  std::conditional_t<Defect::bad_allocate, int*, void*> allocate(std::size_t, std::size_t);
  std::conditional_t<Defect::bad_deallocate, int, void> deallocate(void*, std::size_t, std::size_t);
  template <class D = Defect, std::enable_if_t<!D::no_equality, int> = 0>
  bool operator==(almost_resource const&) const;
  template <class D = Defect, std::enable_if_t<!D::no_inequality, int> = 0>
  bool operator!=(almost_resource const&) const;
  template <class P, std::enable_if_t<std::is_same_v<P, cuda::mr::host_accessible> && !Defect::no_property, int> = 0>
  friend void get_property(almost_resource const&, P) noexcept
  {}
};
struct no_defect {
  static constexpr bool bad_allocate{}, bad_deallocate{}, no_equality{}, no_inequality{}, no_property{};
};
struct wrong_pointer : no_defect {
  static constexpr bool bad_allocate{true};
};
struct wrong_result : no_defect {
  static constexpr bool bad_deallocate{true};
};
struct without_equality : no_defect {
  static constexpr bool no_equality{true};
};
struct without_property : no_defect {
  static constexpr bool no_property{true};
};

template <class Defect>
inline constexpr bool host_ref_takes = std::is_constructible_v<host_resource_ref, almost_resource<Defect>&>;
static_assert(host_ref_takes<no_defect>);
static_assert(!host_ref_takes<wrong_pointer>);
static_assert(!host_ref_takes<wrong_result>);
static_assert(!host_ref_takes<without_equality>);
static_assert(!host_ref_takes<without_property>);

namespace polyfill = rmm::detail::polyfill;
static_assert(polyfill::resource<almost_resource<no_defect>>);
static_assert(!polyfill::resource<almost_resource<wrong_pointer>>);
static_assert(polyfill::resource<almost_resource<without_property>>);
static_assert(!polyfill::async_resource<almost_resource<no_defect>>);
static_assert(polyfill::resource_with<older_resource, cuda::mr::device_accessible>);
static_assert(polyfill::async_resource<later_resource>);
static_assert(polyfill::async_resource_with<both_resource, cuda::mr::host_accessible, cuda::mr::device_accessible>);
static_assert(!polyfill::async_resource_with<older_resource, cuda::mr::host_accessible>);
static_assert(polyfill::async_resource_with<device_async_resource_ref, cuda::mr::device_accessible>);

// Conversions among references.

static_assert(std::is_convertible_v<device_async_resource_ref, device_resource_ref>);
static_assert(std::is_convertible_v<host_device_async_resource_ref, device_async_resource_ref>);
static_assert(std::is_convertible_v<host_device_async_resource_ref, host_async_resource_ref>);
static_assert(std::is_convertible_v<host_device_async_resource_ref, host_resource_ref>);
static_assert(std::is_convertible_v<host_device_resource_ref, device_resource_ref>);
static_assert(!std::is_constructible_v<device_async_resource_ref, device_resource_ref>);
static_assert(!std::is_constructible_v<host_device_resource_ref, device_resource_ref>);
static_assert(!std::is_constructible_v<host_async_resource_ref, device_async_resource_ref&>);

static_assert(std::is_copy_assignable_v<device_async_resource_ref>);
static_assert(std::is_nothrow_copy_constructible_v<device_async_resource_ref>);
static_assert(std::is_nothrow_constructible_v<device_async_resource_ref, older_resource&>);
static_assert(sizeof(device_async_resource_ref) == 2 * sizeof(void*));

// Properties.

static_assert(cuda::has_property<device_async_resource_ref, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<device_async_resource_ref, cuda::mr::host_accessible>);
static_assert(cuda::has_property<host_device_resource_ref, cuda::mr::host_accessible>);
static_assert(cuda::has_property<host_device_resource_ref, cuda::mr::device_accessible>);
static_assert(
  std::is_void_v<decltype(get_property(std::declval<host_resource_ref const&>(), cuda::mr::host_accessible{}))>);

// The references are those of the installed libcu++. The host property comes before the device property.

template <class... Properties>
constexpr std::size_t properties_after_host(cccl_async_ref<cuda::mr::host_accessible, Properties...> const&)
{
  return sizeof...(Properties);
}
static_assert(std::is_base_of_v<cccl_async_ref<cuda::mr::device_accessible>, device_async_resource_ref>);
static_assert(
  std::is_base_of_v<cccl_sync_ref<cuda::mr::host_accessible, cuda::mr::device_accessible>, host_device_resource_ref>);

TEST(ResourceRefTest, ALibcudacxxTemplateDeducesThePropertiesBehindHost)
{
  both_resource resource;
  EXPECT_EQ(properties_after_host(host_async_resource_ref{resource}), 0);
  EXPECT_EQ(properties_after_host(host_device_async_resource_ref{resource}), 1);
}

TEST(ResourceRefTest, ALibcudacxxReferenceTakenByValueOutlivesOurs)
{
  recording_device_resource resource;
  std::optional<cccl_async_ref<cuda::mr::device_accessible>> copy;
  {
    device_async_resource_ref ref{resource};
    copy.emplace(ref);
    device_async_resource_ref const constant{resource};
    copy.emplace(constant);
  }
  void* const ptr = rmm::detail::cccl_allocate(*copy, rmm::cuda_stream_view{handle(7)}, 96, default_alignment);
  rmm::detail::cccl_deallocate(*copy, rmm::cuda_stream_view{handle(7)}, ptr, 96, default_alignment);
  EXPECT_EQ(resource.calls, (std::vector<call>{{96, handle(7)}, {96, handle(7)}}));
}

TEST(ResourceRefTest, OursIsMadeFromALibcudacxxReference)
{
  both_resource resource;
  cccl_async_ref<cuda::mr::host_accessible, cuda::mr::device_accessible> const theirs =
    host_device_async_resource_ref{resource};
  device_async_resource_ref const ours{theirs};
  ours.deallocate(ours.allocate(1), 1);
  EXPECT_EQ(resource.live(), 0);
  EXPECT_EQ(resource.total(), 1);
}

// Names of functions: each kind of resource is called by the name that it has; by the later one if it has both.

template <class Resource>
struct ResourceRefCallTest : ::testing::Test {
  Resource resource;
  device_async_resource_ref const ref{resource};
};
using stream_ordered_resources = ::testing::Types<older_resource, later_resource, both_resource>;
TYPED_TEST_SUITE(ResourceRefCallTest, stream_ordered_resources);

TYPED_TEST(ResourceRefCallTest, AllocateAndDeallocatePassTheDefaultAlignment)
{
  void* const ptr = this->ref.allocate(100);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, default_alignment, {}}));
  this->ref.deallocate(ptr, 100);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, default_alignment, {}}));
  EXPECT_EQ(this->resource.live(), 0);
}

TYPED_TEST(ResourceRefCallTest, AllocateAndDeallocatePassAnAlignment)
{
  void* const ptr = this->ref.allocate(100, 64);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, 64, {}}));
  this->ref.deallocate(ptr, 100, 64);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, 64, {}}));
  EXPECT_EQ(this->resource.live(), 0);
}

TYPED_TEST(ResourceRefCallTest, AllocateSyncAndDeallocateSyncPassThemToo)
{
  void* ptr = this->ref.allocate_sync(100);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, default_alignment, {}}));
  this->ref.deallocate_sync(ptr, 100);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, default_alignment, {}}));
  ptr = this->ref.allocate_sync(100, 32);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, 32, {}}));
  this->ref.deallocate_sync(ptr, 100, 32);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, 32, {}}));
  EXPECT_EQ(this->resource.live(), 0);
}

TYPED_TEST(ResourceRefCallTest, AllocateAsyncAndDeallocateAsyncPassTheStream)
{
  rmm::cuda_stream_view const stream{handle(5)};
  void* ptr = this->ref.allocate_async(100, stream);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, default_alignment, handle(5)}));
  this->ref.deallocate_async(ptr, 100, stream);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, default_alignment, handle(5)}));
  ptr = this->ref.allocate_async(100, 32, stream);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, 32, handle(5)}));
  this->ref.deallocate_async(ptr, 100, 32, stream);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, 32, handle(5)}));
  EXPECT_EQ(this->resource.live(), 0);
}

TYPED_TEST(ResourceRefCallTest, TheStreamMayComeFirst)
{
  rmm::cuda_stream_view const stream{handle(5)};
  void* ptr = this->ref.allocate(stream, 100);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, default_alignment, handle(5)}));
  this->ref.deallocate(stream, ptr, 100);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, default_alignment, handle(5)}));
  ptr = this->ref.allocate(stream, 100, 32);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, 32, handle(5)}));
  this->ref.deallocate(stream, ptr, 100, 32);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 100, 32, handle(5)}));
  EXPECT_EQ(this->resource.live(), 0);
}

TYPED_TEST(ResourceRefCallTest, AnyKindOfStreamIsTaken)
{
  cudaStream_t const raw = handle(6);
  cuda::stream_ref const libcudacxx{raw};
  for (void* const ptr : {this->ref.allocate_async(8, raw),
                          this->ref.allocate_async(8, libcudacxx),
                          this->ref.allocate(raw, 8),
                          this->ref.allocate(libcudacxx, 8)}) {
    EXPECT_EQ(this->resource.last.stream, raw);
    this->ref.deallocate_async(ptr, 8, raw);
  }
  this->ref.deallocate(raw, this->ref.allocate(8), 8);
  this->ref.deallocate(libcudacxx, this->ref.allocate(8), 8);
  EXPECT_EQ(this->resource.last.stream, raw);
}

TYPED_TEST(ResourceRefCallTest, ALiteralIsASizeAndNotAStream)
{
  void* const ptr = this->ref.allocate(64, 256);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 64, 256, {}}));
  this->ref.deallocate(ptr, 64, 256);
  EXPECT_EQ(this->resource.live(), 0);
}

TYPED_TEST(ResourceRefCallTest, ASynchronousReferenceConvertedFromItReachesTheResource)
{
  device_resource_ref const sync{this->ref};
  void* const ptr = sync.allocate(48, 16);
  EXPECT_EQ(this->resource.last, (arguments{ptr, 48, 16, {}}));
  sync.deallocate(ptr, 48, 16);
  EXPECT_EQ(this->resource.live(), 0);
}

TYPED_TEST(ResourceRefCallTest, EqualityIsThatOfTheResource)
{
  TypeParam other;
  EXPECT_EQ(this->ref, device_async_resource_ref{this->resource});
  EXPECT_NE(this->ref, device_async_resource_ref{other});
  EXPECT_FALSE(this->ref != device_async_resource_ref{this->resource});
  EXPECT_FALSE(this->ref == device_async_resource_ref{other});
}

TYPED_TEST(ResourceRefCallTest, AnExceptionOfTheResourceComesThrough)
{
  this->resource.fail_next = true;
  EXPECT_THROW(this->ref.allocate(8), std::bad_alloc);
  this->resource.fail_next = true;
  EXPECT_THROW(this->ref.allocate_async(8, rmm::cuda_stream_view{}), std::bad_alloc);
}

TEST(ResourceRefTest, OfAResourceWithBothKindsOfNamesTheLaterAreCalled)
{
  both_resource resource;
  device_async_resource_ref const ref{resource};
  ref.deallocate(ref.allocate(1), 1);
  ref.deallocate_async(ref.allocate_async(1, rmm::cuda_stream_view{}), 1, rmm::cuda_stream_view{});
  EXPECT_EQ(resource.older_calls, 0);
  EXPECT_EQ(resource.later_calls, 4);
}

TEST(ResourceRefTest, AcceptsStaticAndNoexceptFunctions)
{
  static_resource resource;
  host_resource_ref const ref{resource};
  void* const ptr = ref.allocate(16);
  EXPECT_NE(ptr, nullptr);
  ref.deallocate(ptr, 16);
}

TEST(ResourceRefTest, AHostResourceIsReached)
{
  recording_host_resource resource;
  host_resource_ref const ref{resource};
  void* const ptr = ref.allocate(100, 128);
  EXPECT_EQ(resource.last, (arguments{ptr, 100, 128, {}}));
  ref.deallocate_sync(ptr, 100, 128);
  EXPECT_EQ(resource.live(), 0);
}

// Copying.

TEST(ResourceRefTest, ACopyOfANonConstReferenceRefersToTheResource)
{
  recording_device_resource resource;
  device_async_resource_ref ref{resource};
  device_async_resource_ref* const ptr = &ref;
  auto copy                            = *ptr;
  device_async_resource_ref braced{ref};
  EXPECT_EQ(copy, ref);
  EXPECT_EQ(braced, ref);
}

TEST(ResourceRefTest, ACopyOfANonConstSynchronousReferenceRefersToTheResource)
{
  recording_device_resource resource;
  device_resource_ref ref{resource};
  auto copy = ref;
  device_resource_ref braced{ref};
  device_async_resource_ref async{resource};
  device_resource_ref narrowed{async};
  EXPECT_EQ(copy, ref);
  EXPECT_EQ(braced, ref);
  EXPECT_EQ(narrowed, ref);
}

TEST(ResourceRefTest, AssignmentMakesItReferToAnotherResource)
{
  recording_device_resource first;
  recording_device_resource second;
  recording_device_resource third;
  device_async_resource_ref ref{first};
  ref = second;
  EXPECT_EQ(ref, device_async_resource_ref{second});
  ref = &third;
  EXPECT_EQ(ref, device_async_resource_ref{third});
  device_async_resource_ref const other{first};
  ref = other;
  EXPECT_EQ(ref, other);
}

TEST(ResourceRefTest, ItLivesInAnOptional)
{
  recording_device_resource resource;
  std::optional<device_async_resource_ref> ref{std::nullopt};
  EXPECT_FALSE(ref.has_value());
  ref = resource;
  EXPECT_EQ(*ref, device_async_resource_ref{resource});
  ref = &resource;
  EXPECT_EQ(*ref, device_async_resource_ref{resource});
}

TEST(ResourceRefTest, ItIsCopiedIntoLambdasAndThreads)
{
  recording_device_resource resource;
  device_async_resource_ref const ref{resource};
  auto const use = [ref] { ref.deallocate(ref.allocate(16), 16); };
  use();
  std::thread{[](device_async_resource_ref copy) { copy.deallocate(copy.allocate(16), 16); }, ref}.join();
  EXPECT_EQ(resource.calls.size(), 4);
}

TEST(ResourceRefTest, AFunctionReturnsOneFromAPointer)
{
  recording_device_resource resource;
  auto const get = [&]() -> device_async_resource_ref { return &resource; };
  EXPECT_EQ(get(), device_async_resource_ref{resource});
}

TEST(ResourceRefTest, MakingOneFromANullPointerTouchesNothing)
{
  rmm::mr::device_memory_resource* const base = nullptr;
  older_resource* const older                 = nullptr;
  later_resource* const later                 = nullptr;
  [[maybe_unused]] device_async_resource_ref ref{base};
  ref = device_async_resource_ref{older};
  ref = device_async_resource_ref{later};
}

// Equality.

TEST(ResourceRefTest, ReferencesOfTheSameStaticTypeCompareTheResources)
{
  always_equal_resource first;
  always_equal_resource second;
  EXPECT_EQ(device_async_resource_ref{first}, device_async_resource_ref{second});
}

TEST(ResourceRefTest, ReferencesOfDifferentStaticTypesDiffer)
{
  recording_device_resource resource;
  rmm::mr::device_memory_resource* const base = &resource;
  EXPECT_NE(device_async_resource_ref{resource}, device_async_resource_ref{base});
  EXPECT_EQ(device_async_resource_ref{*base}, device_async_resource_ref{base});
}

TEST(ResourceRefTest, NarrowedReferencesStayEqual)
{
  both_resource resource;
  both_resource other;
  host_device_async_resource_ref const wide{resource};
  EXPECT_EQ(device_async_resource_ref{wide}, device_async_resource_ref{resource});
  EXPECT_EQ(device_resource_ref{wide}, device_resource_ref{resource});
  EXPECT_NE(device_resource_ref{wide}, device_resource_ref{other});
}

TEST(ResourceRefTest, OursCompareWithReferencesOfLibcudacxx)
{
  both_resource resource;
  both_resource other;
  using theirs_type = cccl_async_ref<cuda::mr::device_accessible>;
  device_async_resource_ref const ours{resource};
  theirs_type const theirs{ours};
  theirs_type const different{device_async_resource_ref{other}};
  EXPECT_TRUE(ours == theirs);
  EXPECT_TRUE(theirs == ours);
  EXPECT_TRUE(ours != different);
  EXPECT_TRUE(different != ours);
  EXPECT_FALSE(ours != theirs);
  EXPECT_FALSE(different == ours);
}

// Sizes that a device_memory_resource receives.

#ifndef RMM_UNROUNDED_SIZES
TEST(ResourceRefTest, SizesReachADeviceMemoryResourceRoundedToTheAlignment)
{
  recording_device_resource resource;
  device_async_resource_ref const ref{resource};
  rmm::cuda_stream_view const stream{handle(3)};

  ref.deallocate(ref.allocate(10), 10);
  ref.deallocate_sync(ref.allocate_sync(10), 10);
  ref.deallocate_async(ref.allocate_async(10, stream), 10, stream);
  ref.deallocate(stream, ref.allocate(stream, 10), 10);
  ref.deallocate_async(ref.allocate_async(10, 64, stream), 10, 64, stream);

  std::vector<call> expected(4, call{16, nullptr});
  expected.resize(8, call{16, handle(3)});
  expected.resize(10, call{64, handle(3)});
  EXPECT_EQ(resource.calls, expected);
}

TEST(ResourceRefTest, SizesAreRoundedThroughAReferenceOfLibcudacxxMadeOfOurs)
{
  recording_device_resource resource;
  device_async_resource_ref const ours{resource};
  cccl_async_ref<cuda::mr::device_accessible> theirs{ours};
  void* const ptr = rmm::detail::cccl_allocate(theirs, handle(3), 10, default_alignment);
  rmm::detail::cccl_deallocate(theirs, handle(3), ptr, 10, default_alignment);
  EXPECT_EQ(device_async_resource_ref{theirs}, ours);
  EXPECT_EQ(resource.calls, std::vector<call>(2, call{16, handle(3)}));
}

TEST(ResourceRefTest, ASizeThatCannotBeRoundedIsOutOfMemory)
{
  recording_device_resource resource;
  device_async_resource_ref const ref{resource};
  auto const huge = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(ref.allocate(huge), rmm::out_of_memory);
  EXPECT_THROW(ref.allocate_async(huge - 14, rmm::cuda_stream_view{}), rmm::out_of_memory);
  EXPECT_TRUE(resource.calls.empty());
}
#else
TEST(ResourceRefTest, SizesReachADeviceMemoryResourceAsTheyAre)
{
  recording_device_resource resource;
  device_async_resource_ref const ref{resource};
  ref.deallocate(ref.allocate(10), 10);
  ref.deallocate(ref.allocate(10, 64), 10, 64);
  EXPECT_EQ(resource.calls, std::vector<call>(4, call{10, nullptr}));
}
#endif

TEST(ResourceRefTest, CallsFunctionsThatHideThoseOfTheBase)
{
  hiding_resource resource;
  device_async_resource_ref const ref{resource};
  ref.deallocate(ref.allocate(100), 100);
  EXPECT_EQ(resource.hidden_calls, 2);
  EXPECT_TRUE(resource.calls.empty());
}

#if CCCL_VERSION >= 3002000
TEST(ResourceRefTest, ALibcudacxxOwnerOfTheResourceBehindAReferenceIsRefused)
{
  recording_device_resource resource;
  device_async_resource_ref const ref{resource};
  EXPECT_THROW(cuda::mr::any_resource<cuda::mr::device_accessible>{ref}, rmm::logic_error);
}
#endif

TEST(ResourceRefTest, TheCheckedConversionRefersToTheResource)
{
  recording_device_resource resource;
  EXPECT_EQ(rmm::to_device_async_resource_ref_checked(&resource), device_async_resource_ref{resource});
}

TEST(ResourceRefTest, TheCheckedConversionRefusesNull)
{
  recording_device_resource* const null = nullptr;
  try {
    std::ignore = rmm::to_device_async_resource_ref_checked(null);
    FAIL() << "nothing was thrown";
  } catch (rmm::logic_error const& error) {
    EXPECT_NE(std::string{error.what()}.find("Unexpected null resource pointer."), std::string::npos);
  }
}

}  // namespace
