// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#if defined(__ELF__)
#include <dlfcn.h>
#endif

/// @file
/// Access to the call stacks of an interpreted language, such as Python. A process has at most one such interpreter.

RMM_PROCESS_WIDE_ANCHOR(rmm_interpreter_frames_v1, 5);

namespace RMM_NAMESPACE {
namespace detail {

/// An interpreter that runs in this process. Its layout is shared by all objects of the process.
struct interpreter_frames {
  /// Writes the names of the calling thread's frames, innermost first, as many as fit, each followed by '\0'. Returns their number.
  /// Never blocks for long, whatever locks the caller holds.
  std::size_t (*names)(char* text, std::size_t capacity) noexcept {};
  void const* code{};  ///< any address inside the shared object that has the interpreter's code
};

/// Returns the slot for the interpreter; null in it if there is none. A registered interpreter stays valid until the process ends.
///
/// Order: stores release, and loads acquire, what the pointer points to.
[[nodiscard]] RMM_HIDDEN inline std::atomic<interpreter_frames const*>& interpreter()
{
  using slot = std::atomic<interpreter_frames const*>;
  return process_wide_object<slot>(rmm_interpreter_frames_v1, 5, [] { return new slot{nullptr}; });
}

/// Whether a return address lies in the interpreter's code.
[[nodiscard]] RMM_COLD inline bool is_code_of(interpreter_frames const& language, void const* address) noexcept
{
#if defined(__ELF__)
  Dl_info expected{};
  Dl_info found{};
  return ::dladdr(language.code, &expected) != 0 && ::dladdr(address, &found) != 0 &&
         expected.dli_fbase == found.dli_fbase;
#else
  return language.code == address;
#endif
}

/// Returns a number that represents a frame of the interpreter. Its highest bit is set, unlike that of a return address.
[[nodiscard]] constexpr std::uint64_t number_of_frame(std::string_view name) noexcept
{
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325U;
  for (char const each : name) { hash = (hash ^ static_cast<unsigned char>(each)) * 0x0000'0100'0000'01B3U; }
  return hash | std::uint64_t{1} << 63U;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
