// SPDX-License-Identifier: Apache-2.0
#include "../../support/host_resources.hpp"

#include <rmm/mr/is_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace rmm::test;
using rmm::mr::is_resource_adaptor;

struct adaptor : recording_device_resource {
  [[nodiscard]] rmm::device_async_resource_ref get_upstream_resource() const noexcept;
};

// Has get_upstream(), but is not a resource.
struct not_a_resource {
  [[nodiscard]] int get_upstream_resource() const;
};

static_assert(is_resource_adaptor<adaptor>);
static_assert(is_resource_adaptor<adaptor&>);
static_assert(is_resource_adaptor<adaptor const&>);
static_assert(is_resource_adaptor<decltype(*std::declval<adaptor*>())>);
static_assert(!is_resource_adaptor<recording_device_resource>);
static_assert(!is_resource_adaptor<recording_device_resource const&>);
static_assert(!is_resource_adaptor<rmm::mr::device_memory_resource&>);
static_assert(!is_resource_adaptor<not_a_resource>);
static_assert(!is_resource_adaptor<int>);

// A typical use: walks down a stack of resources.
template <class Resource>
std::string kind_of(Resource const&)
{
  if constexpr (is_resource_adaptor<Resource const&>) {
    return "adaptor";
  } else {
    return "resource";
  }
}

TEST(IsResourceAdaptorTest, ItChoosesAtCompileTime) { EXPECT_EQ(kind_of(recording_device_resource{}), "resource"); }

}  // namespace
