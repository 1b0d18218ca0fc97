// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cudasim_tests {

/// A new machine for each test. A test fails if it leaves something outstanding, or a violation that it did not take.
class Simulated : public ::testing::Test {
 protected:
  void SetUp() override { cudasim::reset(machine()); }

  void TearDown() override
  {
    EXPECT_EQ(cudasim::leak_report(), "");
    for (auto const& v : cudasim::violations()) { ADD_FAILURE() << "violation that the test did not take: " << v.text; }
    cudasim::reset(machine());
  }

  /// The machine of the fixture; a derived fixture changes it.
  [[nodiscard]] virtual cudasim::options machine() const { return cudasim::options{}; }

  /// Removes and returns the violations so far.
  static std::vector<cudasim::violation> take_violations()
  {
    auto all = cudasim::violations();
    cudasim::clear_violations();
    return all;
  }

  /// The number of violations of one kind so far. Removes violations of every kind.
  static std::size_t take_count(cudasim::violation::kind kind)
  {
    auto const all = take_violations();
    return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [kind](auto const& v) { return v.what == kind; }));
  }
};

/// Stepped execution with the checker on.
class Stepped : public Simulated {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.devices        = 2;
    o.mode           = cudasim::execution::stepped;
    o.check_ordering = true;
    return o;
  }
};

/// A stream that is destroyed at the end of the scope.
class scoped_stream {
 public:
  explicit scoped_stream(unsigned flags = cudaStreamNonBlocking)
  {
    EXPECT_EQ(cudaStreamCreateWithFlags(&handle_, flags), cudaSuccess);
  }
  scoped_stream(scoped_stream const&)            = delete;
  scoped_stream& operator=(scoped_stream const&) = delete;
  ~scoped_stream() { EXPECT_EQ(cudaStreamDestroy(handle_), cudaSuccess); }
  operator cudaStream_t() const { return handle_; }

 private:
  cudaStream_t handle_{};
};

/// An event that is destroyed at the end of the scope.
class scoped_event {
 public:
  explicit scoped_event(unsigned flags = cudaEventDefault)
  {
    EXPECT_EQ(cudaEventCreateWithFlags(&handle_, flags), cudaSuccess);
  }
  scoped_event(scoped_event const&)            = delete;
  scoped_event& operator=(scoped_event const&) = delete;
  ~scoped_event() { EXPECT_EQ(cudaEventDestroy(handle_), cudaSuccess); }
  operator cudaEvent_t() const { return handle_; }

 private:
  cudaEvent_t handle_{};
};

}  // namespace cudasim_tests
