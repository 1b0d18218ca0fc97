// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

/// @file
/// Finds the place of the program that called the simulator, and describes it for people. Needs no lock.

namespace cudasim {

/// A set of return addresses, each known as code of the program or code of a library. It may forget entries. All
/// members are thread-safe and lock-free; none allocates.
class known_sites {
 public:
  /// Whether the set has `site` as code of the program. False may also mean unknown. Looks at one entry only.
  [[nodiscard]] bool is_surely_of_program(void const* site) const noexcept
  {
    return entries_[home_of(site)].load(std::memory_order_relaxed) == entry_of(site, true);
  }

  /// Looks a place up and sets `of_program`. Returns false if the place is unknown.
  [[nodiscard]] bool find(void const* site, bool& of_program) const noexcept;

  /// Adds a place. Replaces another one if there is no room near it.
  void add(void const* site, bool of_program) noexcept;

 private:
  static constexpr unsigned bits           = 12;
  static constexpr std::size_t most_probes = 8;

  [[nodiscard]] static std::size_t home_of(void const* site) noexcept
  {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(site) * 0x9E3779B97F4A7C15U) >> (64U - bits));
  }
  /// Addresses of a program have at most 57 bits. An entry of 0 is empty.
  [[nodiscard]] static std::uint64_t entry_of(void const* site, bool of_program) noexcept
  {
    return (static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(site)) << 1U) | (of_program ? 1U : 0U);
  }

  std::array<std::atomic<std::uint64_t>, std::size_t{1} << bits> entries_{};
};
[[gnu::visibility("hidden")]] extern known_sites sites;

/// program_caller() for a place that may be code of a library.
[[nodiscard]] void const* search_program_caller(void const* site) noexcept;

/// The place that a call is reported at: usually `site`, the return address. Where `site` is code of the C or C++
/// library, its headers, a sanitizer or the simulator, the first caller outside of them: they call functions of the
/// program, and a function that ends with a call of CUDA (a jump) makes that call return to them. If no caller is
/// outside, the first one in the C++ library's headers; else `site`.
///
/// Cost  a comparison if the place is known as code of the program; a binary search in the symbols of its file the first time; a walk
///       up the stack if it is code of a library. The symbols of a file are read at its first call.
[[nodiscard]] inline void const* program_caller(void const* site) noexcept
{
  return sites.is_surely_of_program(site) ? site : search_program_caller(site);
}

/// "average(float const*)+0x2a in app": the function, if the dynamic symbols or those of the file name it, else
/// "app+0x1234". "average(float const*)::{lambda()#1} in app+0x1234" if its code is in a function of the C++ library.
[[nodiscard]] std::string describe_address(void const* code);

}  // namespace cudasim
