// SPDX-License-Identifier: Apache-2.0
#include <tools/audit/callers.hpp>

#include <gtest/gtest.h>

namespace {

using rmm::tools::audit::name_of_library;
using rmm::tools::audit::only_passes_on;

TEST(AuditCallers, AreNamedByTheirFileOrByTheirPackage)
{
  EXPECT_EQ(name_of_library("/usr/lib/libfoo.so.1"), "libfoo.so.1");
  EXPECT_EQ(name_of_library("program"), "program");
  EXPECT_EQ(name_of_library("/opt/python/lib/python3.12/site-packages/torch/lib/libc10_cuda.so"),
            "torch/lib/libc10_cuda.so");
  EXPECT_EQ(
    name_of_library("/usr/lib/python3/dist-packages/cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so"),
    "cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so");
}

TEST(AuditCallers, AreNotLibrariesThatPassCallsOn)
{
  for (char const* const path : {"/usr/lib/libcudart.so.13",
                                 "/a/libcuda.so.1",
                                 "/lib/libc.so.6",
                                 "/lib64/ld-linux-x86-64.so.2",
                                 "/usr/lib/libstdc++.so.6",
                                 "/usr/lib/libffi.so.8",
                                 "/build/lib/libcudart_sim.so"}) {
    EXPECT_TRUE(only_passes_on(path)) << path;
  }
  for (char const* const path :
       {"/usr/lib/libcublas.so.13", "/usr/lib/libcudnn.so.9", "/libcuda.so/libfoo.so", "/usr/bin/python3"}) {
    EXPECT_FALSE(only_passes_on(path)) << path;
  }
}

}  // namespace
