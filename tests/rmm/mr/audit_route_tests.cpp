// SPDX-License-Identifier: Apache-2.0
//
// The functions that audit_route registers with librmm_audit.so, and its behaviour without that library. tests/audit runs both
// together.

#include <rmm/cuda_device.hpp>
#include <rmm/detail/base/audit_library.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/audit_route.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <type_traits>

namespace {

using rmm::detail::audit_source;
using rmm::mr::audit_route;

static_assert(!std::is_copy_constructible_v<audit_route>);
static_assert(!std::is_copy_assignable_v<audit_route>);

struct AuditRoute : ::testing::Test {
  ~AuditRoute() override { rmm::mr::set_current_device_resource(previous); }

  [[nodiscard]] int allocate(std::size_t bytes)
  {
    return rmm::mr::detail::allocate_for_library(nullptr, device, bytes, nullptr, &block, &owner);
  }
  void deallocate(void* freed)
  {
    rmm::mr::detail::deallocate_for_library(nullptr, owner, device, freed, 1000, nullptr);
  }

  int device{rmm::detail::current_device()};
  rmm::mr::device_memory_resource* previous{rmm::mr::get_current_device_resource()};
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource> counted{&cuda};
  void* block{};
  void* owner{};
};

TEST_F(AuditRoute, DoesNothingWithoutTheLibrary)
{
  ASSERT_EQ(rmm::detail::find_audit_library(), nullptr);
  audit_route const route;
  EXPECT_FALSE(route.is_active());
  EXPECT_EQ(route.live_bytes(), 0U);
}

TEST_F(AuditRoute, LeavesCudaResourcesToTheDriver)
{
  rmm::mr::set_current_device_resource(nullptr);
  EXPECT_EQ(allocate(1000), audit_source::not_served) << "the initial one";
  rmm::mr::set_current_device_resource(&cuda);
  EXPECT_EQ(allocate(1000), audit_source::not_served);
}

TEST_F(AuditRoute, FreesToTheResourceThatAllocated)
{
  rmm::mr::set_current_device_resource(&counted);
  ASSERT_EQ(allocate(1000), audit_source::served);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(counted.get_allocations_counter().value, 1);
  rmm::mr::set_current_device_resource(nullptr);
  deallocate(block);
  EXPECT_EQ(counted.get_allocations_counter().value, 0);
}

TEST_F(AuditRoute, DoesNotCallAResourceForNull)
{
  rmm::mr::set_current_device_resource(&counted);
  ASSERT_EQ(allocate(1000), audit_source::served);
  deallocate(nullptr);
  EXPECT_EQ(counted.get_allocations_counter().value, 1);
  counted.deallocate(block, 1000);
}

TEST_F(AuditRoute, ConvertsExceptionsToErrors)
{
  bool has_memory = false;
  rmm::mr::callback_memory_resource failing{[&](std::size_t, rmm::cuda_stream_view, void*) -> void* {
                                              if (has_memory) { throw std::runtime_error{"something else"}; }
                                              throw rmm::out_of_memory{"nothing left"};
                                            },
                                            [](void*, std::size_t, rmm::cuda_stream_view, void*) {}};
  rmm::mr::set_current_device_resource(&failing);
  EXPECT_EQ(allocate(1000), audit_source::out_of_memory);
  has_memory = true;
  EXPECT_EQ(allocate(1000), audit_source::out_of_memory);
}

}  // namespace
