// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/export.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Host memory, zero at first, for an array that grows.
///
/// A small array is best in memory from calloc(). A large one is best in pages of its own, which the system moves to another
/// address without a copy. A page takes memory of the machine only when something is first written to it. So a large array can
/// have room in advance: that costs addresses, no memory.
class growing_memory {
 public:
  growing_memory() noexcept = default;
  growing_memory(growing_memory&& other) noexcept
    : begin_{std::exchange(other.begin_, nullptr)}, mapped_bytes_{std::exchange(other.mapped_bytes_, 0)}
  {}
  growing_memory& operator=(growing_memory&& other) noexcept
  {
    std::swap(begin_, other.begin_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
  }
  ~growing_memory()
  {
    if (mapped_bytes_ == 0) {
      std::free(begin_);
    } else {
      ::munmap(begin_, mapped_bytes_);
    }
  }

  /// Returns memory from calloc(); null if the host has none.
  [[nodiscard]] static growing_memory allocate(std::size_t bytes) noexcept
  {
    RMM_ASSERT(bytes != 0);
    return {std::calloc(bytes, 1), 0};
  }

  /// Returns pages of their own; null if the host has none.
  [[nodiscard]] static growing_memory map(std::size_t bytes) noexcept
  {
    RMM_ASSERT(bytes != 0);
    constexpr int untouched_pages_are_free = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, untouched_pages_are_free, -1, 0);
    if (begin == MAP_FAILED) { return {}; }
    return {begin, bytes};
  }

  /// Changes the size of memory from map(), which may move. Returns false, and changes nothing, if the host has none.
  [[nodiscard]] bool try_resize(std::size_t bytes) noexcept
  {
    RMM_ASSERT(mapped_bytes_ != 0 && bytes != 0);
    void* const begin = ::mremap(begin_, mapped_bytes_, bytes, MREMAP_MAYMOVE);
    if (begin == MAP_FAILED) { return false; }
    begin_        = begin;
    mapped_bytes_ = bytes;
    return true;
  }

  [[nodiscard]] explicit operator bool() const noexcept { return begin_ != nullptr; }
  [[nodiscard]] void* begin() const noexcept { return begin_; }

 private:
  growing_memory(void* begin, std::size_t mapped_bytes) noexcept : begin_{begin}, mapped_bytes_{mapped_bytes}
  {
    RMM_ASSERT(begin_ != nullptr || mapped_bytes_ == 0);
  }

  void* begin_{};
  std::size_t mapped_bytes_{};  // 0: from calloc()
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
