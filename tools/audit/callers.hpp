// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ledger.hpp"

#include <rmm/detail/export.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

[[nodiscard]] inline std::string_view file_of(std::string_view path)
{
  auto const slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

/// Returns the name of a library in reports: its path in the folder of Python's packages, else its file name.
[[nodiscard]] inline std::string_view name_of_library(std::string_view path)
{
  for (std::string_view const folder : {"/site-packages/", "/dist-packages/"}) {
    auto const at = path.rfind(folder);
    if (at != std::string_view::npos) { return path.substr(at + folder.size()); }
  }
  return file_of(path);
}

/// Whether a library only passes calls on: the CUDA runtime and driver, the C and C++ libraries, and the library
/// through which Python's ctypes calls functions.
[[nodiscard]] inline bool only_passes_on(std::string_view path)
{
  static constexpr std::string_view beginnings[]{"libcudart",
                                                 "libcuda.so",
                                                 "libc.so",
                                                 "libc-",
                                                 "libpthread",
                                                 "libdl.so",
                                                 "ld-linux",
                                                 "libstdc++.so",
                                                 "libc++.so",
                                                 "libc++abi.so",
                                                 "libgcc_s",
                                                 "libffi.so",
                                                 "libffi-",
                                                 "linux-vdso"};
  auto const file = file_of(path);
  return std::any_of(std::begin(beginnings), std::end(beginnings), [&](std::string_view beginning) {
    return file.substr(0, beginning.size()) == beginning;
  });
}

/// Returns the number of the library that called the driver: the first one up the stack that does more than pass calls
/// on. `code` is the return address of the call.
///
///  Threads  takes no lock under which constructors of libraries run, so it never waits for one.
/// Cost     a walk up the stack to that library if `code` only passes calls on.
[[nodiscard]] library_id calling_library(ledger& known, void const* code) noexcept;

/// Whether code of RMM is compiled into a library that calling_library() returned. RMM's headers leave notes (process_wide.hpp).
[[nodiscard]] bool has_rmm_inside(library_id library) noexcept;

/// Whether code belongs to a library named libcuda.so.
[[nodiscard]] bool is_code_of_driver(void const* code) noexcept;

/// Returns the path of this library; empty if unknown.
[[nodiscard]] std::string path_of_this_library();

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
