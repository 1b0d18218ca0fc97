// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <string>

namespace RMM_NAMESPACE {
namespace detail {

/// Clears the runtime's last error of this thread.
inline void clear_last_cuda_error() noexcept { static_cast<void>(cudaGetLastError()); }

/// Returns `<what> at: <file>:<line>: <name> <description>`.
[[nodiscard]] RMM_COLD inline std::string cuda_error_text(std::string const& what,
                                                          cudaError_t status,
                                                          char const* file,
                                                          unsigned line)
{
  return what + " at: " + position_text(file, line) + ": " + cudaGetErrorName(status) + " " +
         cudaGetErrorString(status);
}

template <class Exception>
[[noreturn]] RMM_COLD void throw_cuda_error(cudaError_t status, char const* file, unsigned line)
{
  clear_last_cuda_error();
  throw_as<Exception>(cuda_error_text("CUDA error", status, file, line));
}

[[noreturn]] RMM_COLD inline void throw_cuda_alloc_error(cudaError_t status, std::string const& text)
{
  clear_last_cuda_error();
  if (status == cudaErrorMemoryAllocation) { throw out_of_memory{text}; }
  throw bad_alloc{text};
}

[[noreturn]] RMM_COLD inline void throw_cuda_alloc_error(char const* file, unsigned line, cudaError_t status)
{
  throw_cuda_alloc_error(status, cuda_error_text("CUDA error", status, file, line));
}

[[noreturn]] RMM_COLD inline void throw_cuda_alloc_error(char const* file,
                                                         unsigned line,
                                                         cudaError_t status,
                                                         std::size_t bytes)
{
  auto const what = "CUDA error (failed to allocate " + std::to_string(bytes) + " bytes)";
  throw_cuda_alloc_error(status, cuda_error_text(what, status, file, line));
}

/// Throws an `Exception` unless `status` is cudaSuccess. See RMM_CUDA_TRY.
template <class Exception>
inline void check_cuda(cudaError_t status, char const* file, unsigned line)
{
  if (status != cudaSuccess) { throw_cuda_error<Exception>(status, file, line); }
}

/// Throws out_of_memory or another bad_alloc unless `status` is cudaSuccess. See RMM_CUDA_TRY_ALLOC.
inline void check_cuda_alloc(char const* file, unsigned line, cudaError_t status)
{
  if (status != cudaSuccess) { throw_cuda_alloc_error(file, line, status); }
}

inline void check_cuda_alloc(char const* file, unsigned line, cudaError_t status, std::size_t bytes)
{
  if (status != cudaSuccess) { throw_cuda_alloc_error(file, line, status, bytes); }
}

[[noreturn]] RMM_COLD inline void cuda_assertion_failed(cudaError_t status,
                                                        char const* call,
                                                        char const* file,
                                                        unsigned line) noexcept
{
  std::fprintf(stderr, "CUDA Error detected. %s %s\n", cudaGetErrorName(status), cudaGetErrorString(status));
  assertion_failed(call, file, line);
}

/// Ends the program unless `status` is cudaSuccess. With `may_be_gone`, also accepts the errors of a runtime that is shut down, and of
/// one without a driver or device. See RMM_ASSERT_CUDA_SUCCESS.
inline void assert_cuda(
  cudaError_t status, bool may_be_gone, char const* call, char const* file, unsigned line) noexcept
{
  bool const is_gone    = status == cudaErrorCudartUnloading || status == cudaErrorInitializationError;
  bool const is_missing = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver;
  if (status != cudaSuccess && !(may_be_gone && (is_gone || is_missing))) {
    cuda_assertion_failed(status, call, file, line);
  }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
