// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "code_objects.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

/// @file
/// Finds the place of the program that called the simulator, and describes it for people. Needs no lock. A place is an
/// address, or numbered() where its code can be unloaded.

namespace cudasim {

/// A set of return addresses, each known with whose code it is and the number of its object. It may forget entries. All
/// members are thread-safe and lock-free; none allocates.
class known_sites {
 public:
  /// Whether the set has `site` as code of the program that is never unloaded. False may also mean unknown. Looks at one
  /// entry only.
  [[nodiscard]] bool is_surely_of_program(void const* site) const noexcept
  {
    return entries_[home_of(site)].load(std::memory_order_relaxed) == entry_of(site, 0, code_kind::program);
  }

  /// Looks a place up and sets `number` and `kind`. Returns false if the place is unknown.
  [[nodiscard]] bool find(void const* site, unsigned& number, code_kind& kind) const noexcept;

  /// Adds a place. Replaces another one if there is no room near it.
  void add(void const* site, unsigned number, code_kind kind) noexcept;

  /// Forgets the places in objects with numbers.
  void forget_numbered() noexcept;

 private:
  static constexpr unsigned bits           = 12;
  static constexpr unsigned kind_bits      = 2;
  static constexpr std::size_t most_probes = 8;
  static_assert(address_bits + number_bits + kind_bits == 64);

  [[nodiscard]] static std::size_t home_of(void const* site) noexcept
  {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(site) * 0x9E3779B97F4A7C15U) >> (64U - bits));
  }
  /// An entry of 0 is empty.
  [[nodiscard]] static std::uint64_t entry_of(void const* site, unsigned number, code_kind kind) noexcept
  {
    return (static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(site)) << (number_bits + kind_bits)) |
           (std::uint64_t{number} << kind_bits) | static_cast<std::uint64_t>(kind);
  }

  std::array<std::atomic<std::uint64_t>, std::size_t{1} << bits> entries_{};
};
[[gnu::visibility("hidden")]] extern known_sites sites;

/// program_caller() for a place that may be code of a library.
[[nodiscard]] void const* search_program_caller(void const* site) noexcept;

/// The place that a call is reported at: usually `site`, the return address. Where `site` is code of the C or C++
/// library, its headers, a sanitizer or the simulator, the first caller outside of them: they call functions of the
/// program, and a function that ends with a call of CUDA (a jump) makes that call return to them. If no caller is
/// outside, the first one in the C++ library's headers; else `site`. Must not be called with the lock of the world.
///
/// Cost  a comparison if the place is known as code of the program; a look at the dynamic linker's counters if it can be
///       unloaded; a binary search in the symbols of its file the first time; a walk up the stack if it is code of a
///       library. The symbols of a file are read at its first call.
[[nodiscard]] inline void const* program_caller(void const* site) noexcept
{
  return sites.is_surely_of_program(site) ? site : search_program_caller(site);
}

/// "average(float const*)+0x2a in app": the function, if the symbols of the file name it, else "app+0x1234". The place in
/// the file is also there for names that are cut, for functions of the C++ library and for
/// "average(float const*)::{lambda()#1} in app+0x1234", whose code is in such a function. May be called with the lock of
/// the world.
[[nodiscard]] std::string describe_address(void const* code);

}  // namespace cudasim
