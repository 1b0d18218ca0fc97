// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>

namespace rmm::test {

/// An upstream of which a test says which calls it expects.
class mock_resource : public mr::device_memory_resource {
 public:
  MOCK_METHOD(void*, do_allocate, (std::size_t, cuda_stream_view), (override));
  MOCK_METHOD(void, do_deallocate, (void*, std::size_t, cuda_stream_view), (override));
};

/// A pointer with that address, not to be followed.
inline void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }

/// A stream with that handle, not to be used.
inline cuda_stream_view stream_handle(std::uintptr_t value) { return reinterpret_cast<cudaStream_t>(value); }

}  // namespace rmm::test
