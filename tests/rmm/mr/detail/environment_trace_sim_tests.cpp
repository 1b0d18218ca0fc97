// SPDX-License-Identifier: Apache-2.0
//
// A program that does not use the environment library itself. It runs once with the library preloaded and
// RMM_RESOURCE=pool,initial=2MiB and RMM_TRACE_FILE set, and once without all that.

#include "../../../support/simulated.hpp"

#include <tools/environment/environment_trace.hpp>
#include <tools/recorded/trace_reader.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <tests/support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string>

namespace {

using rmm::detail::trace::kind;
using rmm::tools::environment_trace;

[[nodiscard]] char const* file_of_trace() { return std::getenv("RMM_TRACE_FILE"); }

TEST(Environment, IsObeyedByAnUnmodifiedProgram)
{
  auto const* const file = file_of_trace();
  auto const before      = rmm::available_device_memory().first;
  {
    rmm::cuda_stream const stream;
    rmm::device_uvector<char> const small{4096, stream};
    rmm::device_uvector<char> const large{8192, stream};
    stream.synchronize();
  }
  auto* const initial = rmm::mr::get_current_device_resource();
  if (file == nullptr) {
    EXPECT_NE(dynamic_cast<rmm::mr::cuda_memory_resource*>(initial), nullptr);
    return;
  }
  EXPECT_EQ(before - rmm::available_device_memory().first, std::size_t{2} << 20U);  // taken by the pool
  auto const trace = rmm::recorded::trace_reader::read(file);
  ASSERT_EQ(trace.events.size(), 4U);
  EXPECT_EQ(trace.events[0].what, kind::allocate);
  EXPECT_EQ(trace.events[0].bytes, 4096U);
  EXPECT_EQ(trace.events[1].bytes, 8192U);
  EXPECT_EQ(trace.events[3].what, kind::free);
}

TEST(Environment, DoesNotChangeResourcesThatAProgramSets)
{
  rmm::mr::cuda_memory_resource own;
  auto* const before = rmm::mr::set_current_device_resource(&own);
  EXPECT_EQ(rmm::mr::get_current_device_resource(), &own);
  EXPECT_EQ(rmm::mr::set_current_device_resource(nullptr), &own);
  EXPECT_EQ(rmm::mr::get_current_device_resource(), before);
}

TEST(EnvironmentTrace, HasOneFileForEachDevice)
{
  EXPECT_EQ(environment_trace::file_for("run.rmmtrace", 0), "run.rmmtrace");
  EXPECT_EQ(environment_trace::file_for("a.b/run.rmmtrace", 1), "a.b/run.dev1.rmmtrace");
  EXPECT_EQ(environment_trace::file_for("a.b/run", 12), "a.b/run.dev12");
  EXPECT_EQ(environment_trace::file_for("a/.run", 1), "a/.run.dev1");
  EXPECT_EQ(environment_trace::file_for("run.%d.rmmtrace", 1), "run.%d.rmmtrace");
  EXPECT_EQ(environment_trace::file_for("%%d.x", 1), "%%d.dev1.x");
}

/// Ends the process, because a process has one trace per device. Fails an allocation, and prints what the trace says about it.
[[noreturn]] void trace_a_failure(char const* file)
{
  ::setenv("RMM_TRACE_FILE", file, 1);
  rmm::mr::cuda_memory_resource cuda;
  environment_trace mr{&cuda, 0};
  try {
    static_cast<void>(mr.allocate(std::size_t{1} << 50U));
  } catch (rmm::bad_alloc const& error) {
    if (mr.file_name().empty()) { std::_Exit(2); }
    mr.flush();
    auto const trace = rmm::recorded::trace_reader::read(mr.file_name());
    bool const same  = trace.reports.size() == 1 && trace.reports.begin()->second == error.what();
    std::_Exit(same ? 0 : 1);
  }
  std::_Exit(3);
}

TEST(EnvironmentTrace, HasTheReportsOfFailures)
{
  rmm::test::temporary_folder const folder;
  auto const file = folder / "trace";
  EXPECT_EXIT(trace_a_failure(file.c_str()), ::testing::ExitedWithCode(0), "");
}

TEST(EnvironmentTrace, PrintsThatNothingIsTraced)
{
  EXPECT_EXIT(trace_a_failure("/"),
              ::testing::ExitedWithCode(2),
              "RMM_TRACE_FILE: nothing is traced: cannot write the trace '/': ");
}

}  // namespace
