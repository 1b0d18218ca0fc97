// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>

#if defined(RMM_NVTX) && defined(__has_include)
#if __has_include(<nvtx3/nvToolsExtMem.h>)
#define RMM_DETAIL_MARKS_MEMORY
#endif
#endif

#if defined(RMM_DETAIL_MARKS_MEMORY)
#include <rmm/detail/nvtx/func_range.hpp>

#include <nvtx3/nvToolsExtMem.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <iterator>
#include <map>
#endif

/// @file
/// Tells tools which parts of a pool's memory are allocated, so that compute-sanitizer finds a kernel that writes beyond an allocation.
/// Does nothing if RMM_NVTX is not defined, and costs one test if no tool listens.

namespace RMM_NAMESPACE {
namespace detail {

#if defined(RMM_DETAIL_MARKS_MEMORY)

/// The memory of pools that was registered with tools.
///
/// In NVTX, heaps never change and each region lies in one heap. But pools coalesce blocks, and cut parts out of them. So this class keeps
/// what it has registered, and registers it again if a heap changes. An allocation in two heaps is two regions.
///
/// A forked child registers only what it takes itself. Thread-safe. Does not throw: if host memory runs out, tools do not learn of an
/// allocation.
class memory_marks {
 public:
  [[nodiscard]] static memory_marks& instance()
  {
    return all.get();  // never destroyed: pools may end after static objects
  }

  /// Registers memory that a pool has taken. If it is an allocation of another pool, that allocation is no longer registered.
  void begin_memory(std::uintptr_t begin, std::size_t bytes) noexcept
  {
    try {
      detail::mutex_lock const lock{mutex_};
      auto const outer = first_touching(begin);
      if (outer != heaps_.end() && outer->first < begin + bytes) {
        inner_.insert_or_assign(begin, bytes);
        remove_allocations(begin, begin + bytes);
      } else {
        add_heap(begin, bytes);
      }
    } catch (std::exception const&) {
      return;
    }
  }

  /// Unregisters memory that leaves a pool. It may be a part of what the pool has taken, or of several such pieces.
  void end_memory(std::uintptr_t begin, std::size_t bytes) noexcept
  {
    if (!is_listening()) { return; }
    try {
      detail::mutex_lock const lock{mutex_};
      auto const end = begin + bytes;
      remove_allocations(begin, end);
      if (auto const inner = inner_.lower_bound(begin); inner != inner_.end() && inner->first < end) {
        inner_.erase(inner, inner_.lower_bound(end));
        return;
      }
      for (auto at = first_touching(begin); at != heaps_.end() && at->first < end;) {
        auto const from = at->first;
        auto const to   = from + at->second.bytes;
        nvtxMemHeapUnregister(domain_, at->second.handle);
        at = heaps_.erase(at);
        if (from < begin) { add_heap(from, begin - from); }
        if (end < to) {
          add_heap(end, to - end);
          break;
        }
      }
    } catch (std::exception const&) {
      return;
    }
  }

  void allocate(std::uintptr_t begin, std::size_t bytes) noexcept
  {
    if (!is_listening() || begin == 0) { return; }
    try {
      detail::mutex_lock const lock{mutex_};
      add_allocation(begin, bytes);
    } catch (std::exception const&) {
      return;
    }
  }

  /// Unregisters an allocation, or a part of it. Call it before another thread can get the memory.
  void free(std::uintptr_t begin, std::size_t bytes) noexcept
  {
    if (!is_listening() || begin == 0) { return; }
    try {
      detail::mutex_lock const lock{mutex_};
      auto const above = allocations_.upper_bound(begin);
      if (above == allocations_.begin()) { return; }
      auto const [from, size] = *std::prev(above);
      if (begin - from >= size) { return; }
      remove_allocations(from, from + size);
      if (from < begin) { add_allocation(from, begin - from); }
      if (begin + bytes < from + size) { add_allocation(begin + bytes, from + size - begin - bytes); }
    } catch (std::exception const&) {
      return;
    }
  }

 private:
  struct heap {
    std::size_t bytes;
    nvtxMemHeapHandle_t handle;
  };
  using heap_map = std::map<std::uintptr_t, heap>;
  friend class one_per_process<memory_marks>;

  memory_marks() : domain_{nvtxDomainCreateA(librmm_domain::name)} {}

  /// Whether a tool accepts heaps.
  ///
  /// Order: relaxed, because it guards no data: the mutex guards the maps. An allocation in a heap, and the end of a heap, happen after the
  /// heap was accepted, so they read true.
  [[nodiscard]] bool is_listening() const noexcept { return listening_.load(std::memory_order_relaxed); }

  [[nodiscard]] heap_map::iterator first_touching(std::uintptr_t address)
  {
    auto const above = heaps_.upper_bound(address);
    if (above == heaps_.begin()) { return above; }
    auto const below = std::prev(above);
    return address - below->first < below->second.bytes ? below : above;
  }

  void add_allocation(std::uintptr_t begin, std::size_t bytes)
  {
    allocations_.insert_or_assign(begin, bytes);
    for (auto at = first_touching(begin); at != heaps_.end() && at->first < begin + bytes; ++at) {
      add_region(*at, begin, bytes);
    }
  }

  /// Returns the entries that begin in `[begin, end)`.
  void remove_allocations(std::uintptr_t begin, std::uintptr_t end)
  {
    auto const first = allocations_.lower_bound(begin);
    auto const last  = allocations_.lower_bound(end);
    for (auto each = first; each != last; ++each) {
      auto const its_end = each->first + each->second;
      for (auto at = first_touching(each->first); at != heaps_.end() && at->first < its_end; ++at) {
        remove_region(detail::max(each->first, at->first));
      }
    }
    allocations_.erase(first, last);
  }

  void add_heap(std::uintptr_t begin, std::size_t bytes)
  {
    nvtxMemVirtualRangeDesc_t const range{bytes, reinterpret_cast<void const*>(begin)};
    nvtxMemHeapDesc_t what{};
    what.extCompatID          = NVTX_EXT_COMPATID_MEM;
    what.structSize           = sizeof what;
    what.usage                = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    what.type                 = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    what.typeSpecificDescSize = sizeof range;
    what.typeSpecificDesc     = &range;
    auto* const handle        = nvtxMemHeapRegister(domain_, &what);
    // NVTX_MEM_HEAP_HANDLE_NO_TOOL, which is no C++
    if (handle == nullptr || reinterpret_cast<std::intptr_t>(handle) == -1) { return; }
    auto const added = heaps_.insert_or_assign(begin, heap{bytes, handle}).first;
    listening_.store(true, std::memory_order_relaxed);
    auto const end = begin + bytes;
    auto at        = allocations_.lower_bound(begin);
    if (at != allocations_.begin() && std::prev(at)->first + std::prev(at)->second > begin) { --at; }
    for (; at != allocations_.end() && at->first < end; ++at) { add_region(*added, at->first, at->second); }
  }

  /// Returns the part of an allocation that lies in a heap.
  void add_region(heap_map::value_type const& in, std::uintptr_t begin, std::size_t bytes) const noexcept
  {
    auto const from = detail::max(begin, in.first);
    auto const to   = detail::min(begin + bytes, in.first + in.second.bytes);
    nvtxMemVirtualRangeDesc_t const range{to - from, reinterpret_cast<void const*>(from)};
    nvtxMemRegionsRegisterBatch_t what{};
    what.extCompatID           = NVTX_EXT_COMPATID_MEM;
    what.structSize            = sizeof what;
    what.regionType            = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    what.heap                  = in.second.handle;
    what.regionCount           = 1;
    what.regionDescElementSize = sizeof range;
    what.regionDescElements    = &range;
    nvtxMemRegionsRegister(domain_, &what);
  }

  void remove_region(std::uintptr_t begin) const noexcept
  {
    nvtxMemRegionRef_t region{};
    region.pointer = reinterpret_cast<void const*>(begin);
    nvtxMemRegionsUnregisterBatch_t what{};
    what.extCompatID    = NVTX_EXT_COMPATID_MEM;
    what.structSize     = sizeof what;
    what.refType        = NVTX_MEM_REGION_REF_TYPE_POINTER;
    what.refCount       = 1;
    what.refElementSize = sizeof region;
    what.refElements    = &region;
    nvtxMemRegionsUnregister(domain_, &what);
  }

  inline static one_per_process<memory_marks> all{};

  nvtxDomainHandle_t domain_;
  std::atomic<bool> listening_{false};
  detail::mutex mutex_;  // guards what follows, and the order of what tools are told
  heap_map heaps_;
  std::map<std::uintptr_t, std::size_t> allocations_;
  std::map<std::uintptr_t, std::size_t> inner_;  // memory of pools that is other pools' allocations
};

inline void mark_memory_begins(void const* ptr, std::size_t bytes) noexcept
{
  memory_marks::instance().begin_memory(reinterpret_cast<std::uintptr_t>(ptr), bytes);
}
inline void mark_memory_ends(void const* ptr, std::size_t bytes) noexcept
{
  memory_marks::instance().end_memory(reinterpret_cast<std::uintptr_t>(ptr), bytes);
}

/// Returns `ptr`.
inline void* mark_allocated(void* ptr, std::size_t bytes) noexcept
{
  memory_marks::instance().allocate(reinterpret_cast<std::uintptr_t>(ptr), bytes);
  return ptr;
}
inline void mark_freed(void const* ptr, std::size_t bytes) noexcept
{
  memory_marks::instance().free(reinterpret_cast<std::uintptr_t>(ptr), bytes);
}

#else

RMM_ALWAYS_INLINE constexpr void mark_memory_begins(void const*, std::size_t) noexcept {}
RMM_ALWAYS_INLINE constexpr void mark_memory_ends(void const*, std::size_t) noexcept {}
RMM_ALWAYS_INLINE constexpr void* mark_allocated(void* ptr, std::size_t) noexcept { return ptr; }
RMM_ALWAYS_INLINE constexpr void mark_freed(void const*, std::size_t) noexcept {}

#endif

}  // namespace detail
}  // namespace RMM_NAMESPACE
