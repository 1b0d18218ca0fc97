// SPDX-License-Identifier: Apache-2.0
#pragma once

// For one file of a program: replaces operator new by one that can fail, and helps to choose the allocations that fail.

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

extern "C" char const __executable_start;
extern "C" char const etext;

namespace rmm::test {

/// Whether an allocation of host memory by `caller` fails. The including file defines it.
[[nodiscard]] bool host_allocation_fails(void const* caller) noexcept;

/// Whether code belongs to the program, which includes the headers of the library. The simulated runtime is another object.
[[nodiscard]] inline bool is_of_this_program(void const* code) noexcept
{
  return code >= &__executable_start && code < &etext;
}

/// Returns the first address of the object that contains the code; null if none does.
[[nodiscard]] inline void const* object_of(void const* code) noexcept
{
  Dl_info info{};
  return dladdr(code, &info) != 0 ? info.dli_fbase : nullptr;
}

/// Whether the simulated runtime is among the callers. Its allocations must not fail here, because cudasim::inject()
/// makes its calls fail. Functions of the C++ library that it instantiates may lie in the program. May allocate.
[[nodiscard]] inline bool is_called_by_the_runtime() noexcept
{
  static void const* const runtime = object_of(dlsym(RTLD_DEFAULT, "cudaMalloc"));
  void* callers[64];
  auto const count = backtrace(callers, 64);
  return std::any_of(
    callers, callers + count, [](void const* code) { return !is_of_this_program(code) && object_of(code) == runtime; });
}

}  // namespace rmm::test

// Not inlined, because compilers warn about pairs of new and free that they see.
[[gnu::noinline]] void* operator new(std::size_t bytes)
{
  bool const fails = rmm::test::host_allocation_fails(__builtin_return_address(0));
  void* const ptr  = fails ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (ptr == nullptr) { throw std::bad_alloc{}; }
  return ptr;
}
// Calls the one above, as the C++ library's does. That of AddressSanitizer does not, and operator delete must not free its memory.
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept
{
  try {
    return ::operator new(bytes);
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* ptr) noexcept { std::free(ptr); }
[[gnu::noinline]] void operator delete(void* ptr, std::size_t) noexcept { std::free(ptr); }
