// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#ifdef HEAP_BENCH_HAS_BOOST
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>

#include <sys/mman.h>
#endif

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>

/// @file
/// What HEAP_BENCH compares. A heap is made for a pool of so many bytes and at most so many blocks at a time. Its allocate()
/// returns an address, or 0 if there is no room, and its deallocate() is given the size back. Heaps with `is_bounded` keep
/// within the pool, and count the host memory that their records take.

namespace heap_bench {

using rmm::detail::address_range;

constexpr std::uintptr_t pool_address = std::uintptr_t{1} << 32U;

/// The size of the block that holds `bytes`.
[[nodiscard]] inline std::size_t block_bytes(std::size_t bytes)
{
  using namespace rmm::detail;
  return (bytes + heap_granule - 1) / heap_granule * heap_granule;
}

/// The library's range_set, without the stacks of small blocks that a pool has in front of it.
class range_set_heap {
 public:
  static constexpr char const* name = "range_set";
  static constexpr bool is_bounded  = true;

  range_set_heap(std::size_t pool_bytes, std::size_t blocks)
  {
    if (!free_.try_reserve(blocks + 1)) { throw std::bad_alloc{}; }
    free_.insert({pool_address, pool_bytes}, 0);
  }

  [[nodiscard]] std::uintptr_t allocate(std::size_t bytes)
  {
    auto const needed = block_bytes(bytes);
    auto const taken  = free_.take(needed);
    return taken ? taken.begin : free_.take_good(needed).begin;
  }

  void deallocate(std::uintptr_t begin, std::size_t bytes) { free_.insert({begin, block_bytes(bytes)}, 0); }

  [[nodiscard]] std::size_t record_bytes() const { return free_.metadata_bytes(); }

 private:
  rmm::detail::range_set free_;
};

/// An allocator for containers that counts the bytes they have allocated.
template <class T>
struct counting_allocator {
  using value_type = T;

  explicit counting_allocator(std::size_t& counter) : bytes{&counter} {}
  template <class U>
  counting_allocator(counting_allocator<U> const& other) : bytes{other.bytes}
  {}

  [[nodiscard]] T* allocate(std::size_t count)
  {
    *bytes += count * sizeof(T);
    return static_cast<T*>(::operator new(count * sizeof(T)));
  }
  void deallocate(T* ptr, std::size_t count) noexcept
  {
    *bytes -= count * sizeof(T);
    ::operator delete(ptr);
  }

  template <class U>
  [[nodiscard]] bool operator==(counting_allocator<U> const& other) const
  {
    return bytes == other.bytes;
  }
  template <class U>
  [[nodiscard]] bool operator!=(counting_allocator<U> const& other) const
  {
    return bytes != other.bytes;
  }

  std::size_t* bytes;
};

/// The straightforward solution: a mutex, a map by address, a set by size, and best fit.
class best_fit_heap {
 public:
  static constexpr char const* name = "mutex and map";
  static constexpr bool is_bounded  = true;

  best_fit_heap(std::size_t pool_bytes, std::size_t /*blocks*/) { add({pool_address, pool_bytes}); }

  [[nodiscard]] std::uintptr_t allocate(std::size_t bytes)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const needed = block_bytes(bytes);
    auto const fit    = by_size_.lower_bound({needed, 0});
    if (fit == by_size_.end()) { return 0; }
    auto const [available, begin] = *fit;
    remove(by_address_.find(begin));
    if (available != needed) { add({begin + needed, available - needed}); }
    return begin;
  }

  void deallocate(std::uintptr_t begin, std::size_t bytes)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    address_range freed{begin, block_bytes(bytes)};
    auto const next = by_address_.lower_bound(begin);
    if (next != by_address_.begin()) {
      auto const previous = std::prev(next);
      if (previous->first + previous->second == begin) {
        freed = {previous->first, previous->second + freed.bytes};
        remove(previous);
      }
    }
    if (next != by_address_.end() && next->first == freed.end()) {
      freed.bytes += next->second;
      remove(next);
    }
    add(freed);
  }

  [[nodiscard]] std::size_t record_bytes() const { return record_bytes_; }

 private:
  using address_map = std::
    map<std::uintptr_t, std::size_t, std::less<>, counting_allocator<std::pair<std::uintptr_t const, std::size_t>>>;
  using size_set = std::set<std::pair<std::size_t, std::uintptr_t>,
                            std::less<>,
                            counting_allocator<std::pair<std::size_t, std::uintptr_t>>>;

  void add(address_range range)
  {
    by_address_.emplace(range.begin, range.bytes);
    by_size_.emplace(range.bytes, range.begin);
  }

  void remove(address_map::iterator which)
  {
    by_size_.erase({which->second, which->first});
    by_address_.erase(which);
  }

  std::mutex mutex_;
  std::size_t record_bytes_{};
  address_map by_address_{address_map::allocator_type{record_bytes_}};
  size_set by_size_{size_set::allocator_type{record_bytes_}};
};

#ifdef HEAP_BENCH_HAS_BOOST
/// Boost.Interprocess' tree of free ranges, with best fit and without its mutex. It writes its records into the pool, before
/// each block, so it cannot manage device memory. It aligns blocks to 16 bytes, not to 256.
class boost_heap {
 public:
  static constexpr char const* name = "boost best fit";
  static constexpr bool is_bounded  = true;

  boost_heap(std::size_t pool_bytes, std::size_t /*blocks*/)
    : bytes_{pool_bytes},
      pool_{mmap(nullptr, pool_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)}
  {
    if (pool_ == MAP_FAILED) { throw std::bad_alloc{}; }
    free_ = new (pool_) best_fit{pool_bytes, 0};
  }
  boost_heap(boost_heap const&)            = delete;
  boost_heap& operator=(boost_heap const&) = delete;
  ~boost_heap() { munmap(pool_, bytes_); }

  [[nodiscard]] std::uintptr_t allocate(std::size_t bytes)
  {
    void* const ptr = free_->allocate(bytes);
    live_ += ptr != nullptr ? bytes : 0;
    return reinterpret_cast<std::uintptr_t>(ptr);
  }

  void deallocate(std::uintptr_t begin, std::size_t bytes)
  {
    free_->deallocate(reinterpret_cast<void*>(begin));  // NOLINT: heaps work on addresses
    live_ -= bytes;
  }

  [[nodiscard]] std::size_t record_bytes() const { return bytes_ - free_->get_free_memory() - live_; }

 private:
  using best_fit = boost::interprocess::rbtree_best_fit<boost::interprocess::null_mutex_family>;

  std::size_t bytes_;
  void* pool_;
  best_fit* free_;
  std::size_t live_{};
};
#endif

/// An allocator of host memory, for comparison. It may write into the memory, and has no bound.
template <class Functions>
class host_heap {
 public:
  static constexpr char const* name = Functions::name;
  static constexpr bool is_bounded  = false;

  host_heap(std::size_t /*pool_bytes*/, std::size_t /*blocks*/) {}

  [[nodiscard]] std::uintptr_t allocate(std::size_t bytes)
  {
    return reinterpret_cast<std::uintptr_t>(Functions::allocate(bytes));
  }

  void deallocate(std::uintptr_t begin, std::size_t /*bytes*/)
  {
    Functions::deallocate(reinterpret_cast<void*>(begin));  // NOLINT: heaps work on addresses
  }

  [[nodiscard]] std::size_t record_bytes() const { return 0; }
};

struct malloc_functions {
  static constexpr char const* name = "malloc";
  [[nodiscard]] static void* allocate(std::size_t bytes) { return std::malloc(bytes); }
  static void deallocate(void* ptr) { std::free(ptr); }
};

/// mimalloc, loaded at run time: linking with it would replace the program's malloc().
struct mimalloc_functions {
  static constexpr char const* name = "mimalloc";
  [[nodiscard]] static void* allocate(std::size_t bytes) { return allocate_(bytes); }
  static void deallocate(void* ptr) { deallocate_(ptr); }

  /// Returns whether mimalloc is installed. Call it before the other functions.
  [[nodiscard]] static bool load()
  {
    static void* const library = dlopen(RMM_MIMALLOC_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) { return false; }
    allocate_   = reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "mi_malloc"));
    deallocate_ = reinterpret_cast<void (*)(void*)>(dlsym(library, "mi_free"));
    return allocate_ != nullptr && deallocate_ != nullptr;
  }

 private:
  inline static void* (*allocate_)(std::size_t){};
  inline static void (*deallocate_)(void*){};
};

}  // namespace heap_bench
