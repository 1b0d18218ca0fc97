// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "caller.hpp"

#include <cudasim/cudasim.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/// @file
/// What the programs that librmm_audit.so is preloaded into have in common.

/// Ends the program if something is not as it should be.
inline void require(bool condition, char const* what, int line)
{
  if (condition) { return; }
  std::printf("line %d, not true: %s\n", line, what);
  std::fflush(stdout);
  std::_Exit(1);
}
#define REQUIRE(condition) require(condition, #condition, __LINE__)

[[nodiscard]] inline memory allocated(
  caller const& by, way how, char const* kind, std::size_t bytes, CUstream stream = nullptr)
{
  memory got{};
  auto const result = by.allocate(how, kind, bytes, stream, got);
  if (result != CUDA_SUCCESS) { std::printf("%s: error %d\n", kind, static_cast<int>(result)); }
  REQUIRE(result == CUDA_SUCCESS);
  return got;
}

inline void release(caller const& by, way how, char const* kind, memory const& given, CUstream stream = nullptr)
{
  REQUIRE(by.release(how, kind, given, stream) == CUDA_SUCCESS);
}

[[nodiscard]] inline void* pointer_to(memory const& given) { return reinterpret_cast<void*>(given.number); }

inline void use(CUstream stream, memory const& given, std::size_t bytes)
{
  cudasim::launch(
    stream, {}, {{pointer_to(given), bytes}}, [p = pointer_to(given), bytes] { std::memset(p, 7, bytes); });
}

struct streams {
  streams() { REQUIRE(::cudaStreamCreateWithFlags(&one, 1) == 0 && ::cudaStreamCreateWithFlags(&two, 1) == 0); }
  cudaStream_t one{};
  cudaStream_t two{};
};
