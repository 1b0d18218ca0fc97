// SPDX-License-Identifier: Apache-2.0

// The functions that a compiler calls in a source compiled with -fsanitize=thread. Here they tell the explorer of each
// access to plain memory, and of allocated and freed memory. A program links this file instead of the sanitizer.

#include "weak_memory.hpp"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

using weak_memory::detail::access_memory;
using weak_memory::detail::take_memory;

namespace {

/// Counts the free as a write to all of the memory, because no other thread may use the memory afterwards.
void free_memory(void* memory, void const* code) noexcept
{
  if (memory != nullptr) { access_memory(memory, ::malloc_usable_size(memory), true, code); }
  std::free(memory);
}

void* new_memory(std::size_t bytes, std::size_t alignment)
{
  void* const made = alignment == 0 ? std::malloc(bytes == 0 ? 1 : bytes)
                                    : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (made == nullptr) { throw std::bad_alloc{}; }
  take_memory(made, ::malloc_usable_size(made));
  return made;
}

}  // namespace

#define CODE __builtin_return_address(0)

void* operator new(std::size_t bytes) { return new_memory(bytes, 0); }
void* operator new[](std::size_t bytes) { return new_memory(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t to) { return new_memory(bytes, static_cast<std::size_t>(to)); }
void* operator new[](std::size_t bytes, std::align_val_t to) { return new_memory(bytes, static_cast<std::size_t>(to)); }
void operator delete(void* memory) noexcept { free_memory(memory, CODE); }
void operator delete[](void* memory) noexcept { free_memory(memory, CODE); }
void operator delete(void* memory, std::size_t) noexcept { free_memory(memory, CODE); }
void operator delete[](void* memory, std::size_t) noexcept { free_memory(memory, CODE); }
void operator delete(void* memory, std::align_val_t) noexcept { free_memory(memory, CODE); }
void operator delete[](void* memory, std::align_val_t) noexcept { free_memory(memory, CODE); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { free_memory(memory, CODE); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { free_memory(memory, CODE); }

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define ACCESSES(bytes)                                                                  \
  void __tsan_read##bytes(void* at) { access_memory(at, bytes, false, CODE); }           \
  void __tsan_write##bytes(void* at) { access_memory(at, bytes, true, CODE); }           \
  void __tsan_unaligned_read##bytes(void* at) { access_memory(at, bytes, false, CODE); } \
  void __tsan_unaligned_write##bytes(void* at) { access_memory(at, bytes, true, CODE); } \
  void __tsan_read_write##bytes(void* at) { access_memory(at, bytes, true, CODE); }      \
  void __tsan_unaligned_read_write##bytes(void* at) { access_memory(at, bytes, true, CODE); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void* at, std::size_t bytes) { access_memory(at, bytes, false, CODE); }
void __tsan_write_range(void* at, std::size_t bytes) { access_memory(at, bytes, true, CODE); }
void __tsan_vptr_read(void** at) { access_memory(at, sizeof *at, false, CODE); }
void __tsan_vptr_update(void** at, void* to)
{
  if (*at != to) { access_memory(at, sizeof *at, true, CODE); }
}

void* __tsan_memcpy(void* to, void const* from, std::size_t bytes)
{
  access_memory(from, bytes, false, CODE);
  access_memory(to, bytes, true, CODE);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, void const* from, std::size_t bytes)
{
  access_memory(from, bytes, false, CODE);
  access_memory(to, bytes, true, CODE);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes)
{
  access_memory(to, bytes, true, CODE);
  return std::memset(to, value, bytes);
}

// Atomic variables outside the explorer: of the tests and of the C++ library. They need only the order of a run.
#define UPDATE(bits, type, name)                                        \
  type __tsan_atomic##bits##_##name(type volatile* at, type value, int) \
  {                                                                     \
    return __atomic_##name(at, value, __ATOMIC_SEQ_CST);                \
  }
#define ATOMICS(bits, type)                                                                                       \
  type __tsan_atomic##bits##_load(type const volatile* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); } \
  void __tsan_atomic##bits##_store(type volatile* at, type value, int)                                            \
  {                                                                                                               \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                \
  }                                                                                                               \
  type __tsan_atomic##bits##_exchange(type volatile* at, type value, int)                                         \
  {                                                                                                               \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                               \
  UPDATE(bits, type, fetch_add)                                                                                   \
  UPDATE(bits, type, fetch_sub)                                                                                   \
  UPDATE(bits, type, fetch_and)                                                                                   \
  UPDATE(bits, type, fetch_or)                                                                                    \
  UPDATE(bits, type, fetch_xor)                                                                                   \
  int __tsan_atomic##bits##_compare_exchange_strong(type volatile* at, type* expected, type value, int, int)      \
  {                                                                                                               \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);           \
  }                                                                                                               \
  int __tsan_atomic##bits##_compare_exchange_weak(type volatile* at, type* expected, type value, int, int)        \
  {                                                                                                               \
    return __atomic_compare_exchange_n(at, expected, value, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
  }                                                                                                               \
  type __tsan_atomic##bits##_compare_exchange_val(type volatile* at, type expected, type value, int, int)         \
  {                                                                                                               \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                 \
    return expected;                                                                                              \
  }
ATOMICS(8, std::uint8_t)
ATOMICS(16, std::uint16_t)
ATOMICS(32, std::uint32_t)
ATOMICS(64, std::uint64_t)

void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic_signal_fence(int) { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // extern "C"
