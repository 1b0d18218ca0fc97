// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <future>
#include <utility>

/// Work that does not end before open() is called: keeps streams busy for as long as a test needs it. The runtime runs one host
/// function at a time, so no other one may be waited for meanwhile.
class gate {
 public:
  gate() = default;
  explicit gate(cudaStream_t s) { enqueue(s); }
  gate(gate const&)            = delete;
  gate& operator=(gate const&) = delete;
  ~gate() { open(); }

  void enqueue(cudaStream_t s) const
  {
    auto const wait = [](void* p) {  // owns what it waits for: the gate may be gone before it wakes up
      auto const* const opened = static_cast<std::shared_future<void>*>(p);
      opened->wait();
      delete opened;
    };
    EXPECT_EQ(cudaLaunchHostFunc(s, wait, new std::shared_future<void>{opened_}), cudaSuccess);
  }

  void open()
  {
    if (!std::exchange(open_, true)) { open_it_.set_value(); }
  }

 private:
  std::promise<void> open_it_;
  std::shared_future<void> opened_{open_it_.get_future().share()};
  bool open_{false};
};
