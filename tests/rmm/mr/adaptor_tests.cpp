// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/host_resources.hpp"
#include "../../support/mock_resource.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_memory_resource.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device/aligned_resource_adaptor.hpp>
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/owning_wrapper.hpp>
#include <rmm/mr/device/prefetch_resource_adaptor.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/is_resource_adaptor.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <sstream>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace rmm::mr {
template class aligned_resource_adaptor<cuda_memory_resource>;
template class failure_callback_resource_adaptor<cuda_memory_resource>;
template class limiting_resource_adaptor<cuda_memory_resource>;
template class logging_resource_adaptor<cuda_memory_resource>;
template class prefetch_resource_adaptor<cuda_memory_resource>;
template class statistics_resource_adaptor<cuda_memory_resource>;
template class thread_safe_resource_adaptor<cuda_memory_resource>;
template class tracking_resource_adaptor<cuda_memory_resource>;
template class aligned_resource_adaptor<device_memory_resource>;
template class statistics_resource_adaptor<device_memory_resource>;
template class owning_wrapper<limiting_resource_adaptor<cuda_memory_resource>, cuda_memory_resource>;
template class owning_wrapper<cuda_memory_resource>;
}  // namespace rmm::mr

namespace {

using namespace rmm::test;
using rmm::cuda_stream_view;
using rmm::device_async_resource_ref;
using rmm::mr::cuda_memory_resource;
using rmm::mr::device_memory_resource;
using ::testing::Return;
using ::testing::Throw;

// --- the adaptors, and the constructor arguments after upstream ---

std::ostringstream ignored_log;
bool give_up(std::size_t, void*) { return false; }

template <template <class> class Adaptor>
struct plain {
  template <class Upstream>
  using type = Adaptor<Upstream>;
  template <class Upstream, class Argument>
  static auto make(Argument&& upstream)
  {
    return std::make_unique<Adaptor<Upstream>>(upstream);
  }
};

struct limiting {
  template <class Upstream>
  using type = rmm::mr::limiting_resource_adaptor<Upstream>;
  template <class Upstream, class Argument>
  static auto make(Argument&& upstream)
  {
    return std::make_unique<type<Upstream>>(upstream, std::size_t{1} << 30);
  }
};

struct logging {
  template <class Upstream>
  using type = rmm::mr::logging_resource_adaptor<Upstream>;
  template <class Upstream, class Argument>
  static auto make(Argument&& upstream)
  {
    return std::make_unique<type<Upstream>>(upstream, ignored_log);
  }
};

struct failure_callback {
  template <class Upstream>
  using type = rmm::mr::failure_callback_resource_adaptor<Upstream>;
  template <class Upstream, class Argument>
  static auto make(Argument&& upstream)
  {
    return std::make_unique<type<Upstream>>(upstream, give_up, nullptr);
  }
};

struct spill {
  template <class Upstream>
  using type = rmm::mr::spill_resource_adaptor<Upstream>;
  template <class Upstream, class Argument>
  static auto make(Argument&& upstream)
  {
    return std::make_unique<type<Upstream>>(upstream, [](std::size_t) { return std::size_t{0}; });
  }
};

using aligned     = plain<rmm::mr::aligned_resource_adaptor>;
using prefetch    = plain<rmm::mr::prefetch_resource_adaptor>;
using statistics  = plain<rmm::mr::statistics_resource_adaptor>;
using thread_safe = plain<rmm::mr::thread_safe_resource_adaptor>;
using tracking    = plain<rmm::mr::tracking_resource_adaptor>;

// --- guarantees of the types ---

namespace polyfill = rmm::detail::polyfill;

template <class Kind>
constexpr bool type_is_as_promised()
{
  using adaptor = typename Kind::template type<cuda_memory_resource>;
  using pinned  = typename Kind::template type<rmm::mr::pinned_host_memory_resource>;
  static_assert(std::is_final_v<adaptor>);
  static_assert(std::is_base_of_v<device_memory_resource, adaptor>);
  static_assert(!std::is_copy_constructible_v<adaptor> && !std::is_copy_assignable_v<adaptor>);
  static_assert(polyfill::resource_with<adaptor, cuda::mr::device_accessible>);
  static_assert(polyfill::async_resource_with<adaptor, cuda::mr::device_accessible>);
  static_assert(!polyfill::resource_with<adaptor, cuda::mr::host_accessible>);
  static_assert(polyfill::async_resource_with<pinned, cuda::mr::host_accessible, cuda::mr::device_accessible>);
  static_assert(rmm::mr::is_resource_adaptor<adaptor>);
  static_assert(rmm::mr::is_resource_adaptor<adaptor const&>);
  return true;
}
static_assert(type_is_as_promised<aligned>() && type_is_as_promised<failure_callback>());
static_assert(type_is_as_promised<limiting>() && type_is_as_promised<logging>());
static_assert(type_is_as_promised<prefetch>() && type_is_as_promised<spill>() && type_is_as_promised<statistics>());
static_assert(type_is_as_promised<thread_safe>() && type_is_as_promised<tracking>());

template <template <class...> class Adaptor>
constexpr bool moves_without_throwing = std::is_nothrow_move_constructible_v<Adaptor<cuda_memory_resource>>&&
  std::is_nothrow_move_assignable_v<Adaptor<cuda_memory_resource>>;
template <class U>
using failure_callback_adaptor = rmm::mr::failure_callback_resource_adaptor<U>;
static_assert(moves_without_throwing<rmm::mr::logging_resource_adaptor>);
static_assert(moves_without_throwing<failure_callback_adaptor>);
static_assert(moves_without_throwing<rmm::mr::prefetch_resource_adaptor>);
static_assert(!std::is_move_constructible_v<rmm::mr::aligned_resource_adaptor<cuda_memory_resource>>);
static_assert(!std::is_move_constructible_v<rmm::mr::thread_safe_resource_adaptor<cuda_memory_resource>>);

template <class Adaptor>
void take(Adaptor const&)
{}

TEST(Adaptors, AreMadeImplicitlyFromAPointerWhereTheyTakeNothingElse)
{
  cuda_memory_resource cuda;
  take<rmm::mr::statistics_resource_adaptor<cuda_memory_resource>>(&cuda);
  take<rmm::mr::tracking_resource_adaptor<cuda_memory_resource>>(&cuda);
  take<rmm::mr::thread_safe_resource_adaptor<cuda_memory_resource>>(&cuda);
  take<rmm::mr::prefetch_resource_adaptor<cuda_memory_resource>>(&cuda);
  take<rmm::mr::limiting_resource_adaptor<cuda_memory_resource>>({&cuda, 5});
  take<rmm::mr::logging_resource_adaptor<cuda_memory_resource>>({&cuda, ignored_log});
  static_assert(!std::is_convertible_v<cuda_memory_resource*, rmm::mr::aligned_resource_adaptor<cuda_memory_resource>>);
}

TEST(Adaptors, DeduceUpstreamFromAPointer)
{
  cuda_memory_resource cuda;
  rmm::mr::aligned_resource_adaptor a{&cuda, 4096};
  rmm::mr::failure_callback_resource_adaptor f{&cuda, give_up, nullptr};
  rmm::mr::limiting_resource_adaptor l{&cuda, 5};
  rmm::mr::logging_resource_adaptor o{&cuda, ignored_log};
  rmm::mr::prefetch_resource_adaptor p{&cuda};
  rmm::mr::statistics_resource_adaptor s{&cuda};
  rmm::mr::thread_safe_resource_adaptor h{&cuda};
  rmm::mr::tracking_resource_adaptor t{&cuda, true};
  static_assert(std::is_same_v<decltype(a), rmm::mr::aligned_resource_adaptor<cuda_memory_resource>>);
  static_assert(std::is_same_v<decltype(f), rmm::mr::failure_callback_resource_adaptor<cuda_memory_resource>>);
  static_assert(std::is_same_v<decltype(l), rmm::mr::limiting_resource_adaptor<cuda_memory_resource>>);
  static_assert(std::is_same_v<decltype(o), rmm::mr::logging_resource_adaptor<cuda_memory_resource>>);
  static_assert(std::is_same_v<decltype(p), rmm::mr::prefetch_resource_adaptor<cuda_memory_resource>>);
  static_assert(std::is_same_v<decltype(s), rmm::mr::statistics_resource_adaptor<cuda_memory_resource>>);
  static_assert(std::is_same_v<decltype(h), rmm::mr::thread_safe_resource_adaptor<cuda_memory_resource>>);
  static_assert(std::is_same_v<decltype(t), rmm::mr::tracking_resource_adaptor<cuda_memory_resource>>);
  EXPECT_EQ(s.get_upstream(), &cuda);
}

TEST(Adaptors, DeduceTheBaseAsUpstreamOfAReference)
{
  cuda_memory_resource cuda;
  device_async_resource_ref ref{cuda};
  rmm::mr::aligned_resource_adaptor a{ref, 4096};
  rmm::mr::failure_callback_resource_adaptor f{ref, give_up, nullptr};
  rmm::mr::limiting_resource_adaptor l{ref, 5};
  rmm::mr::logging_resource_adaptor o{ref, ignored_log};
  rmm::mr::prefetch_resource_adaptor p{ref};
  rmm::mr::statistics_resource_adaptor s{cuda};
  rmm::mr::thread_safe_resource_adaptor h{ref};
  rmm::mr::tracking_resource_adaptor t{ref, true};
  static_assert(std::is_same_v<decltype(a), rmm::mr::aligned_resource_adaptor<device_memory_resource>>);
  static_assert(std::is_same_v<decltype(f), rmm::mr::failure_callback_resource_adaptor<device_memory_resource>>);
  static_assert(std::is_same_v<decltype(l), rmm::mr::limiting_resource_adaptor<device_memory_resource>>);
  static_assert(std::is_same_v<decltype(o), rmm::mr::logging_resource_adaptor<device_memory_resource>>);
  static_assert(std::is_same_v<decltype(p), rmm::mr::prefetch_resource_adaptor<device_memory_resource>>);
  static_assert(std::is_same_v<decltype(s), rmm::mr::statistics_resource_adaptor<device_memory_resource>>);
  static_assert(std::is_same_v<decltype(h), rmm::mr::thread_safe_resource_adaptor<device_memory_resource>>);
  static_assert(std::is_same_v<decltype(t), rmm::mr::tracking_resource_adaptor<device_memory_resource>>);
  EXPECT_EQ(s.get_upstream(), nullptr);
  EXPECT_EQ(s.get_upstream_resource(), ref);
}

// --- behaviour that all adaptors share ---

template <class Kind>
struct EachAdaptor : ::testing::Test {
  template <class Upstream>
  using adaptor = typename Kind::template type<Upstream>;
  ::testing::StrictMock<mock_resource> mock;
  recording_device_resource recording;
  counting_upstream upstream;
};
using kinds =
  ::testing::Types<aligned, failure_callback, limiting, logging, prefetch, spill, statistics, thread_safe, tracking>;
TYPED_TEST_SUITE(EachAdaptor, kinds);

TYPED_TEST(EachAdaptor, RefusesANullUpstream)
{
  EXPECT_THROW(TypeParam::template make<cuda_memory_resource>(static_cast<cuda_memory_resource*>(nullptr)),
               rmm::logic_error);
}

TYPED_TEST(EachAdaptor, SaysThatTheUpstreamIsNull)
{
  try {
    TypeParam::template make<device_memory_resource>(static_cast<device_memory_resource*>(nullptr));
    FAIL();
  } catch (rmm::logic_error const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("Unexpected null upstream resource pointer."));
  }
}

TYPED_TEST(EachAdaptor, ReturnsItsUpstream)
{
  cuda_memory_resource cuda;
  auto const made = TypeParam::template make<cuda_memory_resource>(&cuda);
  EXPECT_EQ(made->get_upstream(), &cuda);
  EXPECT_EQ(made->get_upstream_resource(), device_async_resource_ref{&cuda});
  auto const over_base = TypeParam::template make<device_memory_resource>(static_cast<device_memory_resource*>(&cuda));
  EXPECT_EQ(over_base->get_upstream_resource(), device_async_resource_ref{static_cast<device_memory_resource*>(&cuda)});
}

TYPED_TEST(EachAdaptor, TellsTheReferenceItWasMadeFrom)
{
  cuda_memory_resource cuda;
  auto const made = TypeParam::template make<cuda_memory_resource>(device_async_resource_ref{cuda});
  EXPECT_EQ(made->get_upstream(), nullptr);
  EXPECT_EQ(made->get_upstream_resource(), device_async_resource_ref{cuda});
}

TYPED_TEST(EachAdaptor, ForwardsSizeAndStreamUnchanged)
{
  rmm::cuda_stream const stream;  // a real stream, because the prefetch adaptor uses it
  auto const made = TypeParam::template make<recording_device_resource>(&this->recording);
  made->deallocate(made->allocate(5, stream), 5, stream);
  EXPECT_EQ(this->recording.calls, (std::vector<call>{{5, stream.value()}, {5, stream.value()}}));
}

TYPED_TEST(EachAdaptor, ForwardsSizesThroughAReferenceAsTheReferenceDoes)
{
  auto const made = TypeParam::template make<device_memory_resource>(device_async_resource_ref{this->upstream});
  std::vector<std::size_t> sizes{1, 5, 10, 24, 256, 1000, 1040, 4096};
  for (auto const bytes : sizes) {
    made->deallocate(made->allocate(bytes, cuda_stream_view{}), bytes, cuda_stream_view{});
  }
  for (auto& each : sizes) { each = rmm::align_up(each, alignof(std::max_align_t)); }
  EXPECT_EQ(this->upstream.asked(), sizes);
  EXPECT_EQ(this->upstream.live_count(), 0U);
}

TYPED_TEST(EachAdaptor, AsksForAnAlignmentThatAllocatorsKnowThroughAReference)
{
  older_resource older;
  auto const made = TypeParam::template make<device_memory_resource>(device_async_resource_ref{older});
  for (std::size_t const bytes : {1U, 10U, 1001U, 4096U}) {
    void* const ptr = made->allocate(bytes);
    EXPECT_EQ(older.last.bytes, bytes);
    EXPECT_GE(older.last.alignment, alignof(std::max_align_t));
    made->deallocate(ptr, bytes);
  }
  EXPECT_EQ(older.live(), 0U);
}

TYPED_TEST(EachAdaptor, ForwardsZeroBytes)
{
  auto const made = TypeParam::template make<counting_upstream>(&this->upstream);
  made->deallocate(made->allocate(0), 0);
  EXPECT_EQ(this->upstream.asked(), std::vector<std::size_t>{0});
}

TYPED_TEST(EachAdaptor, AllocatesAndDeallocatesThroughAReferenceToIt)
{
  auto const made = TypeParam::template make<counting_upstream>(&this->upstream);
  device_async_resource_ref ref{*made};
  void* const ptr = ref.allocate_async(1 << 20, cuda_stream_view{});
  EXPECT_NE(ptr, nullptr);
  EXPECT_EQ(this->upstream.live_count(), 1U);
  ref.deallocate_async(ptr, 1 << 20, cuda_stream_view{});
  EXPECT_EQ(this->upstream.live_count(), 0U);
}

TYPED_TEST(EachAdaptor, LetsExceptionsOfUpstreamThroughUnchanged)
{
  struct strange {
    int value;
  };
  auto const made = TypeParam::template make<mock_resource>(&this->mock);
  EXPECT_CALL(this->mock, do_allocate).WillOnce(Throw(strange{7}));
  try {
    made->allocate(100);
    FAIL();
  } catch (strange const& e) {
    EXPECT_EQ(e.value, 7);
  }
}

TYPED_TEST(EachAdaptor, EqualsItself)
{
  auto const made = TypeParam::template make<mock_resource>(&this->mock);
  EXPECT_TRUE(made->is_equal(*made));
  EXPECT_TRUE(*made == *made);
}

TYPED_TEST(EachAdaptor, EqualsAnotherOverAnEqualUpstream)
{
  cuda_memory_resource cuda;
  cuda_memory_resource other_cuda;
  auto const one   = TypeParam::template make<cuda_memory_resource>(&cuda);
  auto const other = TypeParam::template make<cuda_memory_resource>(&other_cuda);
  EXPECT_TRUE(one->is_equal(*other));
}

TYPED_TEST(EachAdaptor, DiffersFromAnotherOverADifferentUpstream)
{
  ::testing::StrictMock<mock_resource> other_mock;
  auto const one   = TypeParam::template make<mock_resource>(&this->mock);
  auto const other = TypeParam::template make<mock_resource>(&other_mock);
  EXPECT_FALSE(one->is_equal(*other));
  EXPECT_TRUE(*one != *other);
}

TYPED_TEST(EachAdaptor, DiffersFromItsUpstreamAndFromOtherAdaptors)
{
  cuda_memory_resource cuda;
  auto const made = TypeParam::template make<cuda_memory_resource>(&cuda);
  rmm::mr::aligned_resource_adaptor<device_memory_resource> other{&cuda};
  EXPECT_FALSE(made->is_equal(cuda));
  EXPECT_FALSE(made->is_equal(other));
  EXPECT_FALSE(other.is_equal(*made));
}

TYPED_TEST(EachAdaptor, AcceptsUpstreamsThatAreNotDerivedFromTheBase)
{
  older_resource older;
  auto const made = TypeParam::template make<older_resource>(&older);
  void* const ptr = made->allocate(5);
  EXPECT_EQ(older.last.bytes, 5U);
  EXPECT_EQ(older.last.alignment, rmm::CUDA_ALLOCATION_ALIGNMENT);
  made->deallocate(ptr, 5);
  EXPECT_EQ(older.live(), 0U);
}

TYPED_TEST(EachAdaptor, CallsTheBaseOfAnUpstreamThatHidesIt)
{
  hiding_resource hiding;
  auto const made = TypeParam::template make<hiding_resource>(&hiding);
  made->deallocate(made->allocate(5), 5);
  EXPECT_EQ(hiding.hidden_calls, 0);
  EXPECT_EQ(hiding.calls, (std::vector<call>{{5, nullptr}, {5, nullptr}}));
}

// --- owning_wrapper ---

using rmm::mr::limiting_resource_adaptor;
using rmm::mr::make_owning_wrapper;
using rmm::mr::owning_wrapper;
using rmm::mr::statistics_resource_adaptor;

static_assert(polyfill::async_resource_with<owning_wrapper<cuda_memory_resource>, cuda::mr::device_accessible>);
static_assert(polyfill::resource_with<owning_wrapper<cuda_memory_resource>, cuda::mr::device_accessible>);
static_assert(!std::is_final_v<owning_wrapper<cuda_memory_resource>>);

TEST(OwningWrapper, BuildsTheResourceOverItsUpstream)
{
  auto const upstream = std::make_shared<counting_upstream>();
  auto const wrapper  = make_owning_wrapper<limiting_resource_adaptor>(upstream, 1000, 1);
  static_assert(
    std::is_same_v<
      decltype(wrapper),
      std::shared_ptr<owning_wrapper<limiting_resource_adaptor<counting_upstream>, counting_upstream>> const>);
  EXPECT_EQ(wrapper->wrapped().get_upstream(), upstream.get());
  EXPECT_EQ(wrapper->wrapped().get_allocation_limit(), 1000U);
  EXPECT_EQ(upstream.use_count(), 2);
}

TEST(OwningWrapper, ForwardsSizesAndStreams)
{
  auto const upstream = std::make_shared<::testing::StrictMock<mock_resource>>();
  auto const wrapper  = make_owning_wrapper<statistics_resource_adaptor>(upstream);
  EXPECT_CALL(*upstream, do_allocate(5, stream_handle(0x10))).WillOnce(Return(address(0x100)));
  EXPECT_CALL(*upstream, do_deallocate(address(0x100), 5, stream_handle(0x20)));
  EXPECT_EQ(wrapper->allocate(5, stream_handle(0x10)), address(0x100));
  EXPECT_EQ(wrapper->wrapped().get_bytes_counter().value, 5);
  wrapper->deallocate(address(0x100), 5, stream_handle(0x20));
}

TEST(OwningWrapper, NestsAndKeepsTheWholeChainAlive)
{
  std::weak_ptr<counting_upstream> watched;
  std::shared_ptr<device_memory_resource> outer;
  {
    auto const upstream = std::make_shared<counting_upstream>();
    watched             = upstream;
    auto const inner    = make_owning_wrapper<limiting_resource_adaptor>(upstream, 1 << 20);
    outer               = make_owning_wrapper<statistics_resource_adaptor>(inner);
  }
  ASSERT_FALSE(watched.expired());
  outer->deallocate(outer->allocate(512), 512);
  EXPECT_EQ(watched.lock()->asked(), std::vector<std::size_t>{512});
  outer.reset();
  EXPECT_TRUE(watched.expired());
}

// Records in its destructor whether the upstream still existed.
template <class Upstream>
class late_resource final : public device_memory_resource {
 public:
  late_resource(Upstream* upstream, bool& upstream_was_alive)
    : upstream_{upstream}, upstream_was_alive_{upstream_was_alive}
  {}
  ~late_resource() override { upstream_was_alive_ = upstream_->alive; }

 private:
  void* do_allocate(std::size_t, cuda_stream_view) override { return nullptr; }
  void do_deallocate(void*, std::size_t, cuda_stream_view) override {}

  Upstream* upstream_;
  bool& upstream_was_alive_;
};

struct mortal_resource : recording_device_resource {
  bool alive{true};
};

std::shared_ptr<mortal_resource> make_mortal_resource()
{
  return {new mortal_resource, [](auto* it) {
            it->alive = false;
            delete it;
          }};
}

TEST(OwningWrapper, AssignmentDestroysTheResourceBeforeItsUpstream)
{
  using wrapper = owning_wrapper<late_resource<mortal_resource>, mortal_resource>;
  bool upstream_was_alive{false};
  bool unused{false};
  wrapper assigned{std::make_tuple(make_mortal_resource()), upstream_was_alive};
  wrapper other{std::make_tuple(make_mortal_resource()), unused};
  assigned = std::move(other);
  EXPECT_TRUE(upstream_was_alive);
  EXPECT_FALSE(unused);
}

TEST(OwningWrapper, DestroysTheResourceBeforeItsUpstream)
{
  bool upstream_was_alive{false};
  auto upstream   = make_mortal_resource();
  auto* const raw = upstream.get();
  auto wrapper    = make_owning_wrapper<late_resource>(std::move(upstream), upstream_was_alive);
  EXPECT_TRUE(raw->alive);
  wrapper.reset();
  EXPECT_TRUE(upstream_was_alive);
}

TEST(OwningWrapper, TakesATupleOfUpstreams)
{
  auto const upstream = std::make_shared<counting_upstream>();
  auto const wrapper  = make_owning_wrapper<limiting_resource_adaptor>(std::make_tuple(upstream), 1000);
  EXPECT_EQ(wrapper->wrapped().get_upstream(), upstream.get());
}

TEST(OwningWrapper, ComparesWrappedResources)
{
  auto const cuda  = std::make_shared<cuda_memory_resource>();
  auto const one   = make_owning_wrapper<limiting_resource_adaptor>(cuda, 1000);
  auto const other = make_owning_wrapper<limiting_resource_adaptor>(cuda, 2000);
  auto const alone = std::make_shared<limiting_resource_adaptor<cuda_memory_resource>>(cuda.get(), 5);
  EXPECT_TRUE(one->is_equal(*one));
  EXPECT_TRUE(one->is_equal(*other));
  EXPECT_TRUE(one->is_equal(*alone));
  EXPECT_FALSE(one->is_equal(*cuda));
}

}  // namespace
