// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

/// @file
/// Who called the simulator, and what a person calls that place. Needs no lock.

namespace cudasim {

/// The addresses between which all code of the C and C++ libraries and of the simulator lies, with that of others. Set before the first
/// call of CUDA.
struct address_hull {
  std::uintptr_t begin;
  std::uintptr_t end;
};
extern address_hull library_code_hull;

/// program_caller() for code in the hull.
[[nodiscard]] void const* search_program_caller(void const* site) noexcept;

/// The place that a call is reported at: `site`, where the call returns to; or, where that is code of the C or C++ library, of a sanitizer or of the
/// simulator, the first caller outside of them. They call the program's functions, and where one of these ends in a call of CUDA,
/// that returns to them. `site` again where no caller is outside.
[[nodiscard]] inline void const* program_caller(void const* site) noexcept
{
  auto const address             = reinterpret_cast<std::uintptr_t>(site);
  bool const may_be_library_code = address - library_code_hull.begin < library_code_hull.end - library_code_hull.begin;
  return may_be_library_code ? search_program_caller(site) : site;
}

/// "average(float const*)+0x2a in app": the function, as far as the dynamic symbols or those of the file tell, else "app+0x1234".
[[nodiscard]] std::string describe_address(void const* code);

}  // namespace cudasim
