// SPDX-License-Identifier: Apache-2.0
//
// A program that contains both the simulator and the real runtime would mix their calls. So the simulator checks, when
// it is loaded, where the program's calls go.
//
// The Python package defines CUDASIM_WITHOUT_LOAD_CHECK: the symbols of its simulator are versioned, so that the real
// runtime can be in the same process. The package checks when it is imported where its own calls go, and raises an
// exception if they go elsewhere.

#ifndef CUDASIM_WITHOUT_LOAD_CHECK

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>

namespace cudasim {
namespace {

/// The file of the object that holds an address; null if none does.
[[nodiscard]] char const* object_of(void const* address, void const*& base)
{
  Dl_info info{};
  if (dladdr(address, &info) == 0) { return nullptr; }
  base = info.dli_fbase;
  return info.dli_fname;
}

/// Whether the process opened the driver by name and got the simulator's (libcuda.cpp). The real runtime refuses to
/// work with that driver, so nothing is mixed.
[[nodiscard]] bool is_opened_as_driver()
{
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver == nullptr) { return false; }
  bool const is_ours = ::dlsym(driver, "cudasim_is_driver") != nullptr;
  ::dlclose(driver);
  return is_ours;
}

[[gnu::constructor]] void check_whose_runtime_it_is()
{
  // Null where the simulator is part of an executable that exports nothing. Then the linker has bound the calls.
  void const* const found = dlsym(RTLD_DEFAULT, "cudaMalloc");
  if (found == nullptr) { return; }
  void const* their_base       = nullptr;
  void const* our_base         = nullptr;
  auto const* const their_file = object_of(found, their_base);
  auto const* const our_file   = object_of(reinterpret_cast<void const*>(&check_whose_runtime_it_is), our_base);
  if (their_base == our_base || is_opened_as_driver()) { return; }
  std::fprintf(
    stderr,
    "cudasim: calls of the CUDA runtime go to %s and not to the simulator (%s); link one of the two, or list the "
    "simulator first\n",
    their_file != nullptr ? their_file : "an unknown object",
    our_file != nullptr ? our_file : "unknown");
  std::fflush(stderr);
  std::abort();
}

}  // namespace
}  // namespace cudasim

#endif
