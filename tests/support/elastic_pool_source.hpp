// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "random_program.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/driver.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>

#include <cuda.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <random>
#include <set>

namespace rmm::test {

/// An elastic pool that a random program uses, and now and then asks to give memory back, or pauses.
class elastic_pool_source final : public memory_source {
 public:
  explicit elastic_pool_source(mr::elastic_pool_options const& options)
    : pool_{options}, chunk_{pool_.chunk_bytes()}, most_{options.maximum_bytes.value_or(SIZE_MAX / 2)}
  {}

  [[nodiscard]] void* allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    try {
      void* const ptr = pool_.allocate(bytes, stream);
      live_.emplace(reinterpret_cast<std::uintptr_t>(ptr), bytes);
      find_chunks(ptr);
      return ptr;
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override
  {
    live_.erase(reinterpret_cast<std::uintptr_t>(ptr));
    pool_.deallocate(ptr, bytes, stream);
  }

  void check(std::size_t live, bool) override
  {
    auto const now = pool_.figures();
    EXPECT_EQ(now.live_bytes, live);
    EXPECT_EQ(now.live_bytes + now.free_bytes, now.reserved_bytes);
    EXPECT_EQ(now.reserved_bytes, pool_.pool_size());
    auto const physical = cudasim::usage(pool_.get_device().value()).physical;
    EXPECT_LE(physical, most_);
    if (!may_fail_) { EXPECT_EQ(physical, pool_.pool_size()) << "of the device's memory the pool holds what it says"; }
  }

  /// Chunks that hold no allocation, and those that can still be had, are together too few.
  void check_refusal(std::size_t bytes) override
  {
    EXPECT_LT(pool_.figures().largest_free_bytes, bytes);
    EXPECT_LT(unused_chunks() + chunks_to_be_had(), (bytes + chunk_ - 1) / chunk_) << "for " << bytes << " bytes";
  }

  void rearrange(std::mt19937_64& random) override
  {
    if (!may_fail_ && random() % 4 == 0) { return pause_and_resume(); }
    auto const size   = pool_.pool_size();
    auto const unused = unused_chunks() * chunk_;
    auto const target = random() % 2 == 0 ? 0 : random() % (size + 1);
    auto const given  = pool_.trim_to(target);
    given_back_ += given;
    if (may_fail_) { return; }
    EXPECT_EQ(pool_.pool_size(), size - given);
    EXPECT_EQ(given, std::min(unused, align_up(size - target, chunk_))) << "to " << target << " of " << size;
  }

  /// The bytes that were given back so far.
  [[nodiscard]] std::size_t given_back() const noexcept { return given_back_; }

  [[nodiscard]] mr::elastic_pool_memory_resource& pool() noexcept { return pool_; }

  /// Allows requests to fail although memory is free, because calls of the runtime fail at times from now on.
  void expect_faults() noexcept { may_fail_ = true; }

 private:
  /// Chunks are adjacent, so the address of one gives the addresses of all.
  void find_chunks(void const* ptr)
  {
    static auto const get_range = [] {
      decltype(&::cuMemGetAddressRange) function{};
      EXPECT_TRUE(rmm::detail::find_driver_function(function, "cuMemGetAddressRange"));
      return function;
    }();
    CUdeviceptr begin{};
    EXPECT_EQ(get_range(&begin, nullptr, reinterpret_cast<CUdeviceptr>(ptr)), CUDA_SUCCESS);
    chunks_begin_ = begin % chunk_;
  }

  void pause_and_resume()
  {
    auto const size = pool_.pool_size();
    bool const keep = pool_.figures().live_bytes <= std::size_t{8} << 20U;  // to copy more takes long
    pool_.pause(keep ? mr::paused_contents::kept_pageable : mr::paused_contents::dropped);
    EXPECT_EQ(cudasim::usage(pool_.get_device().value()).physical, 0U);
    pool_.resume();
    EXPECT_EQ(pool_.pool_size(), size);
  }

  [[nodiscard]] std::size_t unused_chunks() const
  {
    std::set<std::uintptr_t> used;
    for (auto const& [begin, bytes] : live_) {
      auto const first = begin - chunks_begin_;
      for (auto at = first / chunk_; at <= (first + bytes - 1) / chunk_; ++at) { used.insert(at); }
    }
    return pool_.pool_size() / chunk_ - used.size();
  }

  [[nodiscard]] std::size_t chunks_to_be_had() const
  {
    auto const free = cudasim::usage(pool_.get_device().value()).free;
    return std::min(most_ - pool_.pool_size(), free) / chunk_;
  }

  mr::elastic_pool_memory_resource pool_;
  std::size_t chunk_;
  std::uintptr_t chunks_begin_{};  // modulo the chunk
  std::size_t most_;
  std::map<std::uintptr_t, std::size_t> live_;
  std::size_t given_back_{};
  bool may_fail_{};
};

}  // namespace rmm::test
