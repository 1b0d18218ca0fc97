// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/runtime_capabilities.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// The functions of the runtime's asynchronous pools, under the names that code for release 24.08 uses.
struct async_alloc : runtime_async_alloc {
  static cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, cudaMemPoolProps const* properties)
  {
    return ::cudaMemPoolCreate(pool, properties);
  }

  static cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value)
  {
    return ::cudaMemPoolSetAttribute(pool, attribute, value);
  }

  static cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return ::cudaMemPoolDestroy(pool); }

  static cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device)
  {
    return ::cudaDeviceGetDefaultMemPool(pool, device);
  }

  // With per-thread default streams the runtime's header defines these two names as macros, which rename the members too.
  static cudaError_t cudaMallocFromPoolAsync(void** ptr, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
  {
    return ::cudaMallocFromPoolAsync(ptr, bytes, pool, stream);
  }

  static cudaError_t cudaFreeAsync(void* ptr, cudaStream_t stream) { return ::cudaFreeAsync(ptr, stream); }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
