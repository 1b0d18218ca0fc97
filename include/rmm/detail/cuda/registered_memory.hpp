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
#include <functional>
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
/// Page-locked host memory that is ready sooner than the runtime's: the pages are made by several threads, and then given to
/// the runtime to lock.
///
/// A block is a page, whose first word says where it came from, followed by the memory. So whatever the runtime or the system
/// refuses, the runtime's own page-locked memory can take its place.

namespace RMM_NAMESPACE {
namespace detail {

/// How page-locked memory is made.
struct registered_memory_plan {
  int numa_node{-1};    ///< where its pages are to lie, if there is room; -1: where the system puts them
  unsigned threads{0};  ///< how many make the pages; 0: as many as is worth it
};

/// The memory's alignment, and the size of the pages that the system is asked for.
inline constexpr std::size_t registered_memory_alignment = std::size_t{1} << 21U;

/// The node of host memory that is nearest to the current device; -1 if it is not known.
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

/// How many threads are worth making the pages of `bytes` bytes.
[[nodiscard]] inline unsigned threads_for_pages(std::size_t bytes, unsigned wanted) noexcept
{
  constexpr std::size_t worth_a_thread = std::size_t{32} << 20U;
  constexpr unsigned most              = 16;  // more do not make the system faster

  auto const limit = wanted != 0 ? wanted : detail::clamp(std::thread::hardware_concurrency(), 1U, most);
  return static_cast<unsigned>(detail::clamp<std::size_t>(bytes / worth_a_thread, 1, limit));
}

/// Calls make(begin, bytes) for parts that cover `bytes` bytes at `begin`, each in a thread of its own as far as the system
/// has threads. Returns whether all calls returned true.
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
  std::size_t started = 1;  // the first is this thread's
  try {
    for (; started < parts.size(); ++started) { workers.emplace_back(run, std::ref(parts[started])); }
  } catch (std::exception const&) {  // no more threads: this one does the rest
  }
  run(parts.front());
  for (; started < parts.size(); ++started) { run(parts[started]); }
  for (auto& worker : workers) { worker.join(); }
  return detail::all_of(parts.begin(), parts.end(), [](part const& each) { return each.made; });
}

#if defined(__linux__)

/// Pages of the process, which nobody has locked.
class mapped_pages {
 public:
  /// Maps `bytes` bytes at a multiple of registered_memory_alignment, with a page before them. begin() is null if that fails.
  explicit mapped_pages(std::size_t bytes) noexcept
  {
    auto const page = page_bytes();
    auto const room = bytes + page + registered_memory_alignment;
    void* const all = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) { return; }
    auto const first = reinterpret_cast<std::uintptr_t>(all);
    auto const begin = align_up(first + page, registered_memory_alignment);
    auto const end   = align_up(begin + bytes, page);
    if (auto const before = begin - page - first; before != 0) { ::munmap(all, before); }
    begin_ = static_cast<char*>(all) + (begin - first);
    if (auto const after = first + align_up(room, page) - end; after != 0) { ::munmap(begin_ + (end - begin), after); }
    bytes_ = bytes;
    // A child would share the pages until one of the two writes, and that might get other pages than the device uses.
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

  /// Asks for pages on a node, and on others where that has none left. The system may not let us, or not know nodes.
  void prefer_node(int node) noexcept
  {
    constexpr std::size_t most_nodes = 1024;
    constexpr std::size_t word_bits  = 8 * sizeof(unsigned long);
    constexpr int mode_preferred     = 1;  // MPOL_PREFERRED
    auto const number                = static_cast<std::size_t>(node);
    unsigned long nodes[most_nodes / word_bits]{};
    if (node < 0 || number >= most_nodes) { return; }
    nodes[number / word_bits] = 1UL << number % word_bits;
    ::syscall(SYS_mbind, begin_, align_up(bytes_, page_bytes()), mode_preferred, nodes, most_nodes + 1, 0U);
  }

  /// Makes all pages, by `threads` threads. False if the system has no memory for them.
  [[nodiscard]] bool try_make_all(unsigned threads)
  {
    ::madvise(begin_, bytes_, MADV_HUGEPAGE);  // fewer pages to make and to lock; not all systems have them
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

/// Whether the current device uses memory of the program's at its own address.
[[nodiscard]] inline bool can_register_memory() noexcept
{
  return device_attribute_or_zero(cudaDevAttrHostRegisterSupported) != 0 &&
         device_attribute_or_zero(cudaDevAttrCanUseHostPointerForRegisteredMem) != 0;
}

/// The memory, or null if it cannot be had this way.
[[nodiscard]] RMM_COLD inline char* try_map_and_register(std::size_t bytes, registered_memory_plan const& plan)
{
  // The system ends programs that touch more than there is; the runtime refuses.
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

/// What is in the page before the memory.
enum class memory_source : std::uint64_t { registered = 0x7265676973746572, runtime = 0x72756e74696d6521 };

/// Page-locked memory that devices can use, at a multiple of the size of a page. Throws out_of_memory or bad_alloc.
[[nodiscard]] RMM_COLD inline void* allocate_registered_memory(std::size_t bytes, registered_memory_plan const& plan)
{
  auto const page = mapped_pages::page_bytes();
  auto const all  = checked_add(checked_align_up(bytes, page), page + registered_memory_alignment);
  auto source     = memory_source::registered;
  char* begin     = try_map_and_register(bytes, plan);
  if (begin == nullptr) {
    source = memory_source::runtime;
    begin  = static_cast<char*>(allocate_pinned_memory(all - registered_memory_alignment)) + page;
  }
  *reinterpret_cast<memory_source*>(begin - page) = source;
  return begin;
}

/// Gives it back. No work may use it any more.
RMM_COLD inline void free_registered_memory(void* ptr, std::size_t bytes) noexcept
{
  auto* const begin = static_cast<char*>(ptr);
  auto* const head  = begin - mapped_pages::page_bytes();
  if (*reinterpret_cast<memory_source const*>(head) == memory_source::runtime) { return free_pinned_memory(head); }
  cudaError_t const status{cudaHostUnregister(begin)};
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(status);
  if (status == cudaSuccess) { mapped_pages::unmap(begin, bytes); }  // else the device may still use the pages
}

#else

[[nodiscard]] inline void* allocate_registered_memory(std::size_t bytes, registered_memory_plan const&)
{
  return allocate_pinned_memory(bytes);
}

inline void free_registered_memory(void* ptr, std::size_t) noexcept { free_pinned_memory(ptr); }

#endif

}  // namespace detail
}  // namespace RMM_NAMESPACE
