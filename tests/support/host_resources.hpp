// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/host/host_memory_resource.hpp>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <ostream>
#include <unordered_map>
#include <vector>

/// @file
/// Resources over plain host memory that record their calls. They need no device.

namespace rmm::test {

/// The arguments of the last call of a resource.
struct arguments {
  void* ptr{};
  std::size_t bytes{};
  std::size_t alignment{};
  cudaStream_t stream{};

  friend bool operator==(arguments const& lhs, arguments const& rhs)
  {
    return lhs.ptr == rhs.ptr && lhs.bytes == rhs.bytes && lhs.alignment == rhs.alignment && lhs.stream == rhs.stream;
  }

  friend std::ostream& operator<<(std::ostream& out, arguments const& self)
  {
    return out << self.ptr << ", " << self.bytes << " bytes, alignment " << self.alignment << ", stream "
               << static_cast<void*>(self.stream);
  }
};

/// Allocates from the C library and records live allocations.
class recording_heap {
 public:
  arguments last;
  bool fail_next{false};

  [[nodiscard]] std::size_t live() const { return live_.size(); }
  [[nodiscard]] std::size_t total() const { return total_; }

 protected:
  void* take(std::size_t bytes, std::size_t alignment, cudaStream_t stream)
  {
    if (fail_next) {
      fail_next = false;
      throw std::bad_alloc{};
    }
    void* const ptr = std::malloc(bytes + 1);
    live_.emplace(ptr, bytes);
    ++total_;
    last = {ptr, bytes, alignment, stream};
    return ptr;
  }

  // Not inlined, because a compiler that sees free() warns about tests that compare the pointer later.
  [[gnu::noinline]] void give(void* ptr, std::size_t bytes, std::size_t alignment, cudaStream_t stream)
  {
    auto const found = live_.find(ptr);
    if (found == live_.end() || found->second != bytes) { std::abort(); }
    live_.erase(found);
    last = {ptr, bytes, alignment, stream};
    std::free(ptr);
  }

 private:
  std::unordered_map<void*, std::size_t> live_;
  std::size_t total_{0};
};

/// A resource with the names of 24.08 only, for device memory. It can be neither copied nor moved.
class older_resource : public recording_heap {
 public:
  older_resource()                      = default;
  older_resource(older_resource const&) = delete;

  void* allocate(std::size_t bytes, std::size_t alignment) { return take(bytes, alignment, {}); }
  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment) { give(ptr, bytes, alignment, {}); }
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream)
  {
    return take(bytes, alignment, stream.get());
  }
  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda::stream_ref stream)
  {
    give(ptr, bytes, alignment, stream.get());
  }
  bool operator==(older_resource const& other) const { return this == &other; }
  bool operator!=(older_resource const& other) const { return this != &other; }
  friend void get_property(older_resource const&, cuda::mr::device_accessible) noexcept {}
};

/// A resource with the names of 25.10 only, for device memory.
class later_resource : public recording_heap {
 public:
  void* allocate_sync(std::size_t bytes, std::size_t alignment) { return take(bytes, alignment, {}); }
  void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    give(ptr, bytes, alignment, {});
  }
  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment)
  {
    return take(bytes, alignment, stream.get());
  }
  void deallocate(cuda::stream_ref stream, void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    give(ptr, bytes, alignment, stream.get());
  }
  bool operator==(later_resource const& other) const { return this == &other; }
  bool operator!=(later_resource const& other) const { return this != &other; }
  friend void get_property(later_resource const&, cuda::mr::device_accessible) noexcept {}
};

/// A resource with both kinds of names, for memory of host and device. Counts the calls of each kind.
class both_resource : public recording_heap {
 public:
  int older_calls{0};
  int later_calls{0};

  void* allocate(std::size_t bytes, std::size_t alignment)
  {
    ++older_calls;
    return take(bytes, alignment, {});
  }
  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment)
  {
    ++older_calls;
    give(ptr, bytes, alignment, {});
  }
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    ++older_calls;
    return take(bytes, alignment, stream.value());
  }
  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    ++older_calls;
    give(ptr, bytes, alignment, stream.value());
  }
  void* allocate_sync(std::size_t bytes, std::size_t alignment)
  {
    ++later_calls;
    return take(bytes, alignment, {});
  }
  void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    ++later_calls;
    give(ptr, bytes, alignment, {});
  }
  void* allocate(cuda_stream_view stream, std::size_t bytes, std::size_t alignment)
  {
    ++later_calls;
    return take(bytes, alignment, stream.value());
  }
  void deallocate(cuda_stream_view stream, void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    ++later_calls;
    give(ptr, bytes, alignment, stream.value());
  }
  bool operator==(both_resource const& other) const { return this == &other; }
  bool operator!=(both_resource const& other) const { return this != &other; }
  friend void get_property(both_resource const&, cuda::mr::device_accessible) noexcept {}
  friend void get_property(both_resource const&, cuda::mr::host_accessible) noexcept {}
};

/// A synchronous resource with static noexcept functions, for host memory.
struct static_resource {
  static void* allocate(std::size_t bytes, std::size_t) noexcept { return std::malloc(bytes); }
  static void deallocate(void* ptr, std::size_t, std::size_t) noexcept { std::free(ptr); }
  bool operator==(static_resource const&) const { return true; }
  bool operator!=(static_resource const&) const { return false; }
  friend void get_property(static_resource const&, cuda::mr::host_accessible) noexcept {}
};

/// A resource of one byte that is only registered by reference.
struct small_resource {
  void* allocate(std::size_t, std::size_t) { return this; }
  void deallocate(void*, std::size_t, std::size_t) {}
  void* allocate_async(std::size_t, std::size_t, cuda_stream_view) { return this; }
  void deallocate_async(void*, std::size_t, std::size_t, cuda_stream_view) {}
  bool operator==(small_resource const& other) const { return this == &other; }
  bool operator!=(small_resource const& other) const { return this != &other; }
  friend void get_property(small_resource const&, cuda::mr::device_accessible) noexcept {}
};

/// A call that reached a device_memory_resource.
struct call {
  std::size_t bytes{};
  cudaStream_t stream{};

  friend bool operator==(call const& lhs, call const& rhs)
  {
    return lhs.bytes == rhs.bytes && lhs.stream == rhs.stream;
  }

  friend std::ostream& operator<<(std::ostream& out, call const& self)
  {
    return out << self.bytes << " bytes on stream " << static_cast<void*>(self.stream);
  }
};

/// A device_memory_resource that records each call.
class recording_device_resource : public mr::device_memory_resource {
 public:
  std::vector<call> calls;

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    calls.push_back({bytes, stream.value()});
    return std::malloc(bytes + 1);
  }
  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    calls.push_back({bytes, stream.value()});
    std::free(ptr);
  }
};

/// A recording resource whose objects are all equal, with a noexcept override.
class always_equal_resource final : public mr::device_memory_resource {
  void* do_allocate(std::size_t bytes, cuda_stream_view) override { return std::malloc(bytes + 1); }
  void do_deallocate(void* ptr, std::size_t, cuda_stream_view) noexcept override { std::free(ptr); }
  [[nodiscard]] bool do_is_equal(mr::device_memory_resource const& other) const noexcept override
  {
    return dynamic_cast<always_equal_resource const*>(&other) != nullptr;
  }
};

/// A device_memory_resource with synchronous calls of its own.
class hiding_resource : public recording_device_resource {
 public:
  int hidden_calls{0};

  void* allocate(std::size_t bytes, std::size_t)
  {
    ++hidden_calls;
    return std::malloc(bytes);
  }
  void deallocate(void* ptr, std::size_t, std::size_t)
  {
    ++hidden_calls;
    std::free(ptr);
  }
};

/// A host_memory_resource that records each call.
class recording_host_resource : public mr::host_memory_resource, public recording_heap {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override { return take(bytes, alignment, {}); }
  void do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment) override { give(ptr, bytes, alignment, {}); }
};

}  // namespace rmm::test
