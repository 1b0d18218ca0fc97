// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>

namespace rmm::test {

/// An upstream whose calls a test expects one by one.
class mock_resource : public mr::device_memory_resource {
 public:
  MOCK_METHOD(void*, do_allocate, (std::size_t, cuda_stream_view), (override));
  MOCK_METHOD(void, do_deallocate, (void*, std::size_t, cuda_stream_view), (override));
};

/// Returns a pointer with this address, which must not be dereferenced.
inline void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }

/// Returns a stream with this handle, which must not be used.
inline cuda_stream_view stream_handle(std::uintptr_t value) { return reinterpret_cast<cudaStream_t>(value); }

}  // namespace rmm::test
