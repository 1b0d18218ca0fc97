// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sanitizers.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/system_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

/// @file
/// Tests of what every device resource has to do when it is used through a reference:
///
///   INSTANTIATE_TYPED_TEST_SUITE_P(Mine, DeviceMrRefTest, ::testing::Types<rmm::test::by_default<my_resource>>);

namespace rmm::test {

/// A resource with a default constructor.
template <class Resource>
struct by_default {
  Resource mr;
};

struct allocation {
  void* ptr;
  std::size_t bytes;
};

/// Whether it is memory of CUDA that the current device can use, or any memory if the device can use the host's.
inline bool is_device_accessible(void const* ptr)
{
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, ptr) != cudaSuccess) { return false; }
  if (attributes.type != cudaMemoryTypeUnregistered) { return attributes.devicePointer != nullptr; }
  int uses_host_memory{};
  cudaDeviceGetAttribute(&uses_host_memory, cudaDevAttrPageableMemoryAccess, get_current_cuda_device().value());
  return uses_host_memory != 0;
}

/// `Made` has a resource `mr`, and the objects that the resource needs.
template <class Made>
struct DeviceMrRefTest : ::testing::Test {
  Made made;
  decltype(made.mr)& mr{made.mr};
  device_async_resource_ref const ref{mr};
  cuda_stream const stream;

  void expect_usable(void* ptr, std::size_t bytes)
  {
    EXPECT_NE(ptr, nullptr);
    EXPECT_TRUE(is_pointer_aligned(ptr));
    EXPECT_TRUE(is_device_accessible(ptr));
    char const last{1};
    EXPECT_EQ(cudaMemcpyAsync(static_cast<char*>(ptr) + bytes - 1, &last, 1, cudaMemcpyDefault, stream.value()),
              cudaSuccess);
    stream.synchronize();
  }
};
TYPED_TEST_SUITE_P(DeviceMrRefTest);

TYPED_TEST_P(DeviceMrRefTest, ItEqualsAnotherReferenceToTheResource)
{
  EXPECT_EQ(this->ref, device_async_resource_ref{this->mr});
  EXPECT_EQ(this->ref, device_async_resource_ref{&this->mr});
}

TYPED_TEST_P(DeviceMrRefTest, SizesFromBytesToMebibytesSucceed)
{
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{4}, std::size_t{1} << 10, std::size_t{1} << 20}) {
    void* const sync = this->ref.allocate(bytes);
    this->expect_usable(sync, bytes);
    this->ref.deallocate(sync, bytes);
    void* const async = this->ref.allocate_async(bytes, this->stream);
    this->expect_usable(async, bytes);
    this->ref.deallocate_async(async, bytes, this->stream);
  }
}

TYPED_TEST_P(DeviceMrRefTest, AGibibyteSucceedsOrIsOutOfMemory)
{
  std::size_t const bytes = std::size_t{1} << 30;
  try {
    void* const ptr = this->ref.allocate_async(bytes, this->stream);
    this->expect_usable(ptr, bytes);
    this->ref.deallocate_async(ptr, bytes, this->stream);
  } catch (out_of_memory const& error) {
    EXPECT_NE(std::string{error.what()}.find("out_of_memory"), std::string::npos);
  }
}

TYPED_TEST_P(DeviceMrRefTest, APebibyteIsOutOfMemory)
{
  if (std::is_same_v<decltype(TypeParam::mr), mr::managed_memory_resource>) {
    GTEST_SKIP()
      << "requests above the available managed memory can hang a real device; a test on the simulator makes them";
  }
  if (exhaustion_ends_program && std::is_same_v<decltype(TypeParam::mr), mr::system_memory_resource>) {
    GTEST_SKIP() << "the sanitizer ends a program that exhausts the host's memory";
  }
  std::size_t const bytes = std::size_t{1} << 50;
  EXPECT_THROW(this->ref.allocate(bytes), out_of_memory);
  EXPECT_THROW(this->ref.allocate_async(bytes, this->stream), out_of_memory);
}

TYPED_TEST_P(DeviceMrRefTest, ZeroBytesAreGivenBack)
{
  void* const ptr = this->ref.allocate(0);
  EXPECT_NO_THROW(this->ref.deallocate(ptr, 0));
  EXPECT_NO_THROW(this->ref.deallocate_async(nullptr, 0, this->stream));
}

TYPED_TEST_P(DeviceMrRefTest, LiveAllocationsDiffer)
{
  void* const first  = this->ref.allocate_async(8, this->stream);
  void* const second = this->ref.allocate_async(8, this->stream);
  EXPECT_NE(first, second);
  this->ref.deallocate_async(first, 8, this->stream);
  this->ref.deallocate_async(second, 8, this->stream);
}

TYPED_TEST_P(DeviceMrRefTest, DefaultStreamsOfAllKindsWork)
{
  for (auto const kind : {cuda_stream_default, cuda_stream_legacy, cuda_stream_per_thread}) {
    void* const ptr = this->ref.allocate_async(100, kind);
    EXPECT_TRUE(is_device_accessible(ptr));
    this->ref.deallocate_async(ptr, 100, kind);
  }
}

// A hundred random sizes of up to 5 MiB, with frees in between.
inline void allocate_at_random(device_async_resource_ref ref, cuda_stream_view stream, std::uint32_t seed)
{
  std::default_random_engine engine{seed};
  std::uniform_int_distribution<std::size_t> size{1, std::size_t{5} << 20};
  std::vector<allocation> live;
  auto const free_last = [&] {
    ref.deallocate_async(live.back().ptr, live.back().bytes, stream);
    live.pop_back();
  };
  for (int i = 0; i < 100; ++i) {
    if (!live.empty() && engine() % 4 == 0) {
      free_last();
    } else {
      auto const bytes = size(engine);
      live.push_back({ref.allocate_async(bytes, stream), bytes});
      EXPECT_TRUE(is_pointer_aligned(live.back().ptr));
    }
  }
  while (!live.empty()) { free_last(); }
}

TYPED_TEST_P(DeviceMrRefTest, RandomSizesSucceed)
{
  SCOPED_TRACE("seed 1");
  allocate_at_random(this->ref, this->stream, 1);
}

TYPED_TEST_P(DeviceMrRefTest, FourThreadsAllocateAtOnce)
{
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([this, seed] { allocate_at_random(this->ref, cuda_stream_per_thread, seed); });
  }
  for (auto& thread : threads) { thread.join(); }
}

TYPED_TEST_P(DeviceMrRefTest, OneThreadGivesBackWhatAnotherAllocated)
{
  std::mutex mutex;
  std::condition_variable has_changed;
  std::deque<allocation> handed_over;
  constexpr int count = 100;

  std::thread consumer{[&] {
    for (int i = 0; i < count; ++i) {
      std::unique_lock<std::mutex> lock{mutex};
      has_changed.wait(lock, [&] { return !handed_over.empty(); });
      auto const next = handed_over.front();
      handed_over.pop_front();
      lock.unlock();
      this->ref.deallocate_async(next.ptr, next.bytes, cuda_stream_per_thread);
    }
  }};
  for (std::size_t i = 1; i <= count; ++i) {
    void* const ptr = this->ref.allocate_async(i * 100, this->stream);
    this->stream.synchronize();
    std::lock_guard<std::mutex> const lock{mutex};
    handed_over.push_back({ptr, i * 100});
    has_changed.notify_one();
  }
  consumer.join();
  EXPECT_TRUE(handed_over.empty());
}

REGISTER_TYPED_TEST_SUITE_P(DeviceMrRefTest,
                            ItEqualsAnotherReferenceToTheResource,
                            SizesFromBytesToMebibytesSucceed,
                            AGibibyteSucceedsOrIsOutOfMemory,
                            APebibyteIsOutOfMemory,
                            ZeroBytesAreGivenBack,
                            LiveAllocationsDiffer,
                            DefaultStreamsOfAllKindsWork,
                            RandomSizesSucceed,
                            FourThreadsAllocateAtOnce,
                            OneThreadGivesBackWhatAnotherAllocated);

}  // namespace rmm::test
