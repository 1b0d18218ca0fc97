// SPDX-License-Identifier: Apache-2.0
#include "../../support/recycling_upstream.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <thread>

namespace {

using rmm::test::recycling_upstream;
using rmm::test::run_on_threads;

/// Detects calls of a thread during another thread's call.
class exclusive_upstream final : public rmm::mr::device_memory_resource {
 public:
  std::atomic<int> overlaps{0};

 private:
  class visit {
   public:
    explicit visit(exclusive_upstream& place) : place_{place}
    {
      if (place_.visitors_.fetch_add(1) != 0) { ++place_.overlaps; }
      std::this_thread::yield();  // gives other threads a chance to enter
    }
    ~visit() { place_.visitors_.fetch_sub(1); }
    visit(visit const&)            = delete;
    visit& operator=(visit const&) = delete;

   private:
    exclusive_upstream& place_;
  };

  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    visit const here{*this};
    return upstream_.allocate(bytes, stream);
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    visit const here{*this};
    upstream_.deallocate(ptr, bytes, stream);
  }

  recycling_upstream upstream_;
  std::atomic<int> visitors_{0};
};

TEST(ThreadSafeAdaptor, LetsOneThreadInAtATime)
{
  exclusive_upstream upstream;
  rmm::mr::thread_safe_resource_adaptor<exclusive_upstream> mr{&upstream};
  run_on_threads(4, [&](int) {
    for (int i = 0; i < 2000; ++i) { mr.deallocate(mr.allocate(100), 100); }
  });
  EXPECT_EQ(upstream.overlaps, 0);
}

// Checks that the upstream of this test detects concurrent calls.
TEST(ThreadSafeAdaptor, IsNeededByAnUnsafeUpstream)
{
  exclusive_upstream upstream;
  std::atomic<bool> noticed{false};
  run_on_threads(4, [&](int) {
    while (!noticed) {
      upstream.deallocate(upstream.allocate(100), 100);
      if (upstream.overlaps != 0) { noticed = true; }
    }
  });
  EXPECT_GT(upstream.overlaps, 0);
}

}  // namespace
