// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/host_memory.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/pinned_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#endif

/// @file
/// Page-locked host memory that is allocated faster than with cudaHostAlloc(): several threads create the pages, and then
/// cudaHostRegister() locks them.
///
/// A page before the memory says how it was allocated. So if the system or the runtime refuses, cudaHostAlloc() can take over.

namespace RMM_NAMESPACE {
namespace detail {

/// Options for the allocation of page-locked memory.
struct registered_memory_plan {
  int numa_node{-1};    ///< preferred NUMA node of the pages; -1: the system chooses
  unsigned threads{0};  ///< maximum number of threads that create pages; 0: the library chooses
};

/// The alignment of the memory, and the size of a huge page.
inline constexpr std::size_t registered_memory_alignment = std::size_t{1} << 21U;

/// Returns the NUMA node that is nearest to the current device; -1 if it is not known.
[[nodiscard]] RMM_COLD inline int nearest_numa_node() noexcept
{
#if CUDART_VERSION >= 12020
  int const node{device_attribute_or_zero(cudaDevAttrHostNumaId)};
  if (node > 0) { return node; }
#endif
  int device{};
  char bus_id[32]{};
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetPCIBusId(bus_id, static_cast<int>(sizeof bus_id), device) != cudaSuccess) {
    clear_last_cuda_error();
    return -1;
  }
  for (auto& c : bus_id) { c = static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
  constexpr std::size_t unknown = 1024;
  char path[96];
  std::snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus_id);
  auto const found = number_in_file(path, "", unknown);
  return found < unknown ? static_cast<int>(found) : -1;
}

/// Returns the number of threads that create the pages of `bytes` bytes. `wanted` is the maximum; 0: the library chooses.
[[nodiscard]] inline unsigned threads_for_pages(std::size_t bytes, unsigned wanted) noexcept
{
  constexpr std::size_t bytes_per_thread = std::size_t{32} << 20U;
  constexpr unsigned max_threads         = 16;  // more threads are not faster

  auto const limit = wanted != 0 ? wanted : detail::clamp(std::thread::hardware_concurrency(), 1U, max_threads);
  return static_cast<unsigned>(detail::clamp<std::size_t>(bytes / bytes_per_thread, 1, limit));
}

/// Calls make(begin, bytes) in `threads` threads, for parts that together cover `bytes` bytes at `begin`. Uses fewer threads if the
/// system has no more. Returns whether all calls returned true.
template <class Make>
[[nodiscard]] bool make_in_parallel(char* begin, std::size_t bytes, unsigned threads, Make make)
{
  struct part {
    char* begin;
    std::size_t bytes;
    bool made;
  };
  auto const share = align_up(detail::max<std::size_t>(bytes / threads, 1), registered_memory_alignment);
  std::vector<part> parts;
  for (std::size_t at = 0; at < bytes; at += share) {
    parts.push_back({begin + at, detail::min(share, bytes - at), false});
  }

  auto const run = [&make](part& each) noexcept { each.made = make(each.begin, each.bytes); };
  std::vector<std::thread> workers;
  workers.reserve(parts.size());
  std::size_t started = 1;  // this thread makes the first part
  try {
    for (; started < parts.size(); ++started) {
      workers.emplace_back([&run, &each = parts[started]]() noexcept { run(each); });
    }
  } catch (std::exception const&) {  // the system has no more threads: this one makes the remaining parts
  }
  run(parts.front());
  for (; started < parts.size(); ++started) { run(parts[started]); }
  for (auto& worker : workers) { worker.join(); }
  return detail::all_of(parts.begin(), parts.end(), [](part const& each) { return each.made; });
}

#if defined(__linux__)

/// An owner of pages that are not locked yet.
class mapped_pages {
 public:
  /// Maps `bytes` bytes at a multiple of registered_memory_alignment, and a page before them. begin() is null if that fails.
  explicit mapped_pages(std::size_t bytes) noexcept
  {
    auto const page     = page_bytes();
    auto const room     = bytes + page + registered_memory_alignment;
    void* const mapping = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) { return; }
    auto const first = reinterpret_cast<std::uintptr_t>(mapping);
    auto const begin = align_up(first + page, registered_memory_alignment);
    auto const end   = align_up(begin + bytes, page);
    if (auto const before = begin - page - first; before != 0) { ::munmap(mapping, before); }
    begin_ = static_cast<char*>(mapping) + (begin - first);
    if (auto const after = first + align_up(room, page) - end; after != 0) { ::munmap(begin_ + (end - begin), after); }
    bytes_ = bytes;
    // After a fork the processes share pages until one of them writes. The parent could then get new pages, unknown to the device.
    ::madvise(begin_ - page, page + bytes, MADV_DONTFORK);
  }
  mapped_pages(mapped_pages const&)            = delete;
  mapped_pages& operator=(mapped_pages const&) = delete;
  ~mapped_pages()
  {
    if (begin_ != nullptr) { unmap(begin_, bytes_); }
  }

  [[nodiscard]] static std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  static void unmap(char* begin, std::size_t bytes) noexcept
  {
    auto const page = page_bytes();
    ::munmap(begin - page, page + align_up(bytes, page));
  }

  [[nodiscard]] char* begin() const noexcept { return begin_; }
  [[nodiscard]] char* release() noexcept { return std::exchange(begin_, nullptr); }

  /// Requests pages on a NUMA node; the system uses other nodes if it is full. Failure, as on systems without NUMA, is ignored.
  void prefer_node(int node) noexcept
  {
    constexpr std::size_t max_nodes = 1024;
    constexpr std::size_t word_bits = 8 * sizeof(unsigned long);
    constexpr int mode_preferred    = 1;  // MPOL_PREFERRED
    auto const number               = static_cast<std::size_t>(node);
    unsigned long nodes[max_nodes / word_bits]{};
    if (node < 0 || number >= max_nodes) { return; }
    nodes[number / word_bits] = 1UL << number % word_bits;
    ::syscall(SYS_mbind, begin_, align_up(bytes_, page_bytes()), mode_preferred, nodes, max_nodes + 1, 0U);
  }

  /// Creates all pages, in `threads` threads. Returns false if the system has too little memory.
  [[nodiscard]] bool try_make_all(unsigned threads)
  {
    ::madvise(begin_, bytes_, MADV_HUGEPAGE);  // fewer pages to create and lock; ignored if the system has none
    return make_in_parallel(begin_, bytes_, threads, try_make);
  }

 private:
  [[nodiscard]] static bool try_make(char* begin, std::size_t bytes) noexcept
  {
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, in Linux since 5.14
    auto const page              = page_bytes();
    int status{};
    do {
      status = ::madvise(begin, align_up(bytes, page), populate_write);
    } while (status != 0 && (errno == EINTR || errno == EAGAIN));
    if (status == 0 || errno != EINVAL) { return status == 0; }
    for (std::size_t at = 0; at < bytes; at += page) { const_cast<char volatile*>(begin)[at] = 0; }
    return true;
  }

  char* begin_{};
  std::size_t bytes_{};
};

/// Whether the current device can use registered host memory at its host address.
[[nodiscard]] inline bool can_register_memory() noexcept
{
  return device_attribute_or_zero(cudaDevAttrHostRegisterSupported) != 0 &&
         device_attribute_or_zero(cudaDevAttrCanUseHostPointerForRegisteredMem) != 0;
}

/// Returns registered memory, or null if that fails.
[[nodiscard]] RMM_COLD inline char* try_map_and_register(std::size_t bytes, registered_memory_plan const& plan)
{
  // Creating more pages than there is memory would end the program. The runtime fails instead, so the caller asks the runtime.
  if (bytes > host_memory_info().first || !can_register_memory()) { return nullptr; }
  mapped_pages pages{bytes};
  if (pages.begin() == nullptr) { return nullptr; }
  pages.prefer_node(plan.numa_node);
  if (!pages.try_make_all(threads_for_pages(bytes, plan.threads))) { return nullptr; }
  if (cudaHostRegister(pages.begin(), bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) != cudaSuccess) {
    clear_last_cuda_error();
    return nullptr;
  }
  return pages.release();
}

/// The content of the page before the memory: how it was allocated.
enum class memory_source : std::uint64_t {
  registered = 0x7265676973746572,
  runtime    = 0x72756e74696d6521,
  pageable   = 0x7061676561626c65
};

/// Returns the process that called this first: the one that allocates. A forked child of it has none of the pages.
[[nodiscard]] inline pid_t registering_process() noexcept
{
  static pid_t const first = ::getpid();
  return first;
}

/// Allocates page-locked memory that devices can use, aligned to a page. Throws as allocate_pinned_memory().
[[nodiscard]] RMM_COLD inline void* allocate_registered_memory(std::size_t bytes, registered_memory_plan const& plan)
{
  static_cast<void>(registering_process());
  auto const page  = mapped_pages::page_bytes();
  auto const total = checked_add(checked_align_up(bytes, page), page + registered_memory_alignment);
  auto source      = memory_source::registered;
  char* begin      = try_map_and_register(bytes, plan);
  if (begin == nullptr) {
    source = memory_source::runtime;
    begin  = static_cast<char*>(allocate_pinned_memory(total - registered_memory_alignment)) + page;
  }
  *reinterpret_cast<memory_source*>(begin - page) = source;
  return begin;
}

/// Returns memory that is not locked, of the same alignment; null if the host does not have it.
[[nodiscard]] RMM_COLD inline void* try_allocate_pageable_memory(std::size_t bytes,
                                                                 registered_memory_plan const& plan) noexcept
{
  // The system would map more than there is, and end the program that uses it.
  if (bytes > host_memory_info().first) { return nullptr; }
  static_cast<void>(registering_process());
  mapped_pages pages{bytes};
  if (pages.begin() == nullptr) { return nullptr; }
  pages.prefer_node(plan.numa_node);
  *reinterpret_cast<memory_source*>(pages.begin() - mapped_pages::page_bytes()) = memory_source::pageable;
  return pages.release();
}

/// Frees memory from both functions. No work may use it any more. Does nothing in a forked child. Returns whether it was pageable.
RMM_COLD inline bool free_registered_memory(void* ptr, std::size_t bytes) noexcept
{
  if (::getpid() != registering_process()) { return false; }
  auto* const begin = static_cast<char*>(ptr);
  auto* const head  = begin - mapped_pages::page_bytes();
  auto const source = *reinterpret_cast<memory_source const*>(head);
  if (source == memory_source::runtime) {
    free_pinned_memory(head);
    return false;
  }
  auto const status = source == memory_source::registered ? cudaHostUnregister(begin) : cudaSuccess;
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(status);
  if (status == cudaSuccess) { mapped_pages::unmap(begin, bytes); }  // on failure the device may still use the pages
  return source == memory_source::pageable;
}

#else

[[nodiscard]] inline void* allocate_registered_memory(std::size_t bytes, registered_memory_plan const&)
{
  return allocate_pinned_memory(bytes);
}

[[nodiscard]] inline void* try_allocate_pageable_memory(std::size_t, registered_memory_plan const&) noexcept
{
  return nullptr;
}

inline bool free_registered_memory(void* ptr, std::size_t) noexcept
{
  free_pinned_memory(ptr);
  return false;
}

#endif

}  // namespace detail
}  // namespace RMM_NAMESPACE
