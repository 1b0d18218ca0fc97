// SPDX-License-Identifier: Apache-2.0
#include <tools/audit/mode.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using rmm::tools::audit::is_refused;
using rmm::tools::audit::is_routed;
using rmm::tools::audit::mode;
using rmm::tools::audit::read_mode;

TEST(AuditMode, IsAReportWithoutAVariable)
{
  for (char const* const value : {static_cast<char const*>(nullptr), "", "report"}) {
    auto const read = read_mode(value);
    EXPECT_EQ(read.does, mode::action::report);
    EXPECT_EQ(read.text, "report");
    EXPECT_EQ(read.complaint, "");
    EXPECT_FALSE(is_refused(read, "libfoo.so"));
    EXPECT_FALSE(is_routed(read, "libfoo.so"));
  }
}

TEST(AuditMode, ComplainsOfWhatItDoesNotKnow)
{
  for (char const* const value :
       {"denny", "deny:", "deny:,", "allow", "allow:", "route:", "report:x", ":", "Route", "deny libfoo.so"}) {
    auto const read = read_mode(value);
    EXPECT_EQ(read.does, mode::action::report) << value;
    EXPECT_THAT(read.complaint, ::testing::HasSubstr("'" + std::string{value} + "'"));
  }
}

TEST(AuditMode, RefusesListedLibrariesOrAllOthers)
{
  auto const deny = read_mode("deny:libfoo.so,libbar*,torch/*");
  EXPECT_TRUE(is_refused(deny, "libfoo.so"));
  EXPECT_FALSE(is_refused(deny, "libfoo.so.1"));
  EXPECT_TRUE(is_refused(deny, "nvidia/lib/libbar.so.13")) << "the file's name";
  EXPECT_TRUE(is_refused(deny, "torch/lib/libc10_cuda.so"));
  EXPECT_FALSE(is_refused(deny, "rmm/torch.so"));
  auto const allow = read_mode("allow:libfoo.so,rmm/*");
  EXPECT_FALSE(is_refused(allow, "libfoo.so"));
  EXPECT_FALSE(is_refused(allow, "rmm/pylibrmm/memory_resource/_pools.so"));
  EXPECT_TRUE(is_refused(allow, "libbar.so"));
  EXPECT_TRUE(is_refused(read_mode("deny"), "libfoo.so"));
}

TEST(AuditMode, KeepsTheConfigurationOfARoute)
{
  auto const plain = read_mode("route");
  EXPECT_EQ(plain.does, mode::action::route);
  EXPECT_EQ(plain.configuration, "");
  auto const configured = read_mode("route:pool,max=80%,upstream=cuda");
  EXPECT_EQ(configured.configuration, "pool,max=80%,upstream=cuda");
  EXPECT_EQ(configured.libraries, std::vector<std::string>{});
  EXPECT_EQ(configured.text, "route:pool,max=80%,upstream=cuda");
}

TEST(AuditMode, RoutesToTheCurrentResourcesIfItSaysSo)
{
  EXPECT_TRUE(read_mode("route:current").routes_to_current());
  for (char const* const value : {"route", "route:pool", "report", "deny:current"}) {
    EXPECT_FALSE(read_mode(value).routes_to_current()) << value;
  }
}

TEST(AuditMode, RoutesNeitherPoolsNorLibrariesThatShareMemory)
{
  auto const route = read_mode("route");
  for (char const* const library : {"libcublas.so.13", "torch/lib/libc10_cuda.so", "libucky.so"}) {
    EXPECT_TRUE(is_routed(route, library)) << library;
  }
  for (char const* const library : {"rmm/pylibrmm/memory_resource/_base.so",
                                    "librmm_c.so.1",
                                    "nvidia/nccl/lib/libnccl.so.2",
                                    "libnvshmem_host.so.3",
                                    "libucp.so.0"}) {
    EXPECT_FALSE(is_routed(route, library)) << library;
  }
}

}  // namespace
