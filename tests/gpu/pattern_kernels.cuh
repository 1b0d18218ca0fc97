// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace rmm::test {

/// Writes the pattern: another word at each place, so that memory of the wrong place is seen too.
static __global__ void fill_kernel(std::uint32_t* words, std::size_t count, std::uint32_t pattern)
{
  auto const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (auto i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = pattern ^ static_cast<std::uint32_t>(i);
  }
}

/// Adds to `*foreign` the words that are not those of the pattern.
static __global__ void verify_kernel(std::uint32_t const* words,
                                     std::size_t count,
                                     std::uint32_t pattern,
                                     unsigned long long* foreign)
{
  auto const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (auto i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    if (words[i] != (pattern ^ static_cast<std::uint32_t>(i))) { atomicAdd(foreign, 1ULL); }
  }
}

/// Takes this time.
static __global__ void delay_kernel(std::uint64_t nanoseconds)
{
  auto const now = [] {
    std::uint64_t time{};
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  for (auto const begin = now(); now() - begin < nanoseconds;) {}
}

}  // namespace rmm::test
