// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "random_program.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/driver.hpp>
#include <rmm/error.hpp>
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

namespace rmm::test {

/// An elastic pool for a random program, which sometimes asks it to give memory back, or pauses it.
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

  /// Checks that unused chunks and the chunks that can still be made are together too few.
  void check_refusal(std::size_t bytes) override
  {
    EXPECT_LT(pool_.figures().largest_free_bytes, bytes);
    EXPECT_LT(unused_chunk_bytes() + bytes_to_be_had(), align_up(bytes, chunk_)) << "for " << bytes << " bytes";
  }

  void rearrange(std::mt19937_64& random) override
  {
    if (random() % 4 == 0) { return pause_and_resume(); }
    auto const size   = pool_.pool_size();
    auto const unused = unused_chunk_bytes();
    auto const target = random() % 2 == 0 ? 0 : random() % (size + 1);
    auto const given  = pool_.trim_to(target);
    given_back_ += given;
    if (may_fail_) { return; }
    EXPECT_EQ(pool_.pool_size(), size - given);
    auto const wanted = std::min(unused, align_up(size - target, chunk_));
    EXPECT_GE(given, wanted) << "to " << target << " of " << size;
    EXPECT_LT(given, wanted + largest_chunk_) << "to " << target << " of " << size;
  }

  /// The bytes that were given back so far.
  [[nodiscard]] std::size_t given_back() const noexcept { return given_back_; }

  /// How often the pool was paused and resumed so far.
  [[nodiscard]] std::size_t pauses() const noexcept { return pauses_; }

  [[nodiscard]] mr::elastic_pool_memory_resource& pool() noexcept { return pool_; }

  /// Allows requests to fail although memory is free, because calls of the runtime fail at times from now on.
  void expect_faults() noexcept { may_fail_ = true; }

 private:
  void pause_and_resume()
  {
    auto const size  = pool_.pool_size();
    bool const keep  = pool_.figures().live_bytes <= std::size_t{8} << 20U;  // copying more takes long
    auto const fired = cudasim::faults_fired();
    bool const paused =
      succeeds([&] { pool_.pause(keep ? mr::paused_contents::kept_pageable : mr::paused_contents::dropped); });
    EXPECT_EQ(pool_.is_paused(), paused);
    if (!paused) { return; }
    EXPECT_EQ(cudasim::usage(pool_.get_device().value()).physical, pool_.mapped_bytes());
    if (cudasim::faults_fired() == fired) { EXPECT_EQ(pool_.mapped_bytes(), 0U); }
    for (int tries = 0; tries < 10 && !succeeds([&] { pool_.resume(); }); ++tries) { EXPECT_TRUE(pool_.is_paused()); }
    EXPECT_FALSE(pool_.is_paused());
    EXPECT_EQ(pool_.pool_size(), size);
    ++pauses_;
  }

  /// Whether the call throws nothing. It may throw only if calls of the runtime fail, and only an exception that says
  /// so.
  template <class Call>
  [[nodiscard]] bool succeeds(Call const& call)
  {
    try {
      call();
      return true;
    } catch (std::bad_alloc const& error) {
      EXPECT_TRUE(may_fail_) << error.what();
    } catch (cuda_error const& error) {
      EXPECT_TRUE(may_fail_) << error.what();
    }
    return false;
  }

  /// The bytes of the chunks that hold no allocation.
  [[nodiscard]] std::size_t unused_chunk_bytes()
  {
    static auto const get_range = [] {
      decltype(&::cuMemGetAddressRange) function{};
      EXPECT_TRUE(rmm::detail::find_driver_function(function, "cuMemGetAddressRange"));
      return function;
    }();
    std::map<CUdeviceptr, std::size_t> used;
    for (auto const& [begin, bytes] : live_) {
      for (CUdeviceptr at = begin; at < begin + bytes;) {
        CUdeviceptr first{};
        std::size_t size{};
        EXPECT_EQ(get_range(&first, &size, at), CUDA_SUCCESS);
        used[first]    = size;
        largest_chunk_ = std::max(largest_chunk_, size);
        at             = first + size;
      }
    }
    auto unused = pool_.pool_size();
    for (auto const& each : used) { unused -= each.second; }
    return unused;
  }

  [[nodiscard]] std::size_t bytes_to_be_had() const
  {
    auto const free = cudasim::usage(pool_.get_device().value()).free;
    return align_down(std::min(most_ - pool_.pool_size(), free), chunk_);
  }

  mr::elastic_pool_memory_resource pool_;
  std::size_t chunk_;
  std::size_t most_;
  std::map<std::uintptr_t, std::size_t> live_;
  std::size_t given_back_{};
  std::size_t pauses_{};
  std::size_t largest_chunk_{chunk_};
  bool may_fail_{};
};

}  // namespace rmm::test
