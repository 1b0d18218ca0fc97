// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "symbol_file.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

/// @file
/// The program and the shared objects that calls came from. They are remembered after they were unloaded, when another
/// object may have their addresses. find_object() and note_loading() take the dynamic linker's lock, which a thread has in
/// a callback of dl_iterate_phdr(); so they must not be called with the lock of the world.

namespace cudasim {

/// Whose code is at a place.
enum class code_kind : unsigned {
  program,  ///< also code that no file holds
  headers,  ///< a function of the C++ library's headers, without a lambda of the program
  library   ///< the C or C++ library, a sanitizer, the simulator, and the start of the program
};

/// Whether the name of a file is that of the C or C++ library, the compiler's runtime or a sanitizer.
[[nodiscard]] bool is_library_name(std::string_view file) noexcept;

/// A loaded file as the dynamic linker describes it.
struct loaded_object {
  std::uintptr_t code;  ///< the address that is looked up
  std::uintptr_t bias{0};
  std::uintptr_t begin{0};
  std::uintptr_t end{0};
  file_version version{};
  bool stays{false};         ///< loaded with the program: it is never unloaded
  bool is_simulator{false};  ///< contains this code
  char path[4096]{};         ///< for opening; empty if no file holds the code
};

/// A file that is loaded, or was. Only `is_loaded` ever changes.
struct code_object {
  code_object(loaded_object const& found, std::shared_ptr<symbol_file const> read_before);

  /// Whose code a return address is in.
  [[nodiscard]] code_kind kind_of(std::uintptr_t code) const;

  std::string const path;
  std::string const name;  ///< for people
  std::uintptr_t const bias;
  std::uintptr_t const begin;
  std::uintptr_t const end;
  file_version const version;
  bool const stays;
  bool const is_library;
  std::shared_ptr<symbol_file const> const symbols;  ///< all loads of one version of a file share them
  std::atomic<bool> is_loaded{true};
};

/// Numbers of objects have so many bits. 0 is no number.
constexpr unsigned number_bits = 14;
/// Addresses of code have so many bits: the kernel hands out higher ones only if asked.
constexpr unsigned address_bits = 48;

/// A place that stays apart from others at its address: the upper bits of the pointer hold the number of its object.
[[nodiscard]] inline void const* numbered(void const* code, unsigned number) noexcept
{
  return reinterpret_cast<void const*>(reinterpret_cast<std::uintptr_t>(code) | std::uintptr_t{number} << address_bits);
}
[[nodiscard]] inline std::size_t number_in(void const* place) noexcept
{
  return reinterpret_cast<std::uintptr_t>(place) >> address_bits;
}
[[nodiscard]] inline std::uintptr_t address_in(void const* place) noexcept
{
  return reinterpret_cast<std::uintptr_t>(place) & ((std::uintptr_t{1} << address_bits) - 1);
}

/// Finds and remembers the object that holds the code now. Returns its number, or 0 if it is never unloaded.
[[nodiscard]] unsigned find_object(void const* code, code_kind& kind);

/// Notices which objects were unloaded since the last look; then the known sites forget those with numbers.
/// Cost  a call of dl_iterate_phdr() that stops at the first object; more if objects were loaded or unloaded
void note_loading() noexcept;

/// The object of a place; null if it is unknown. Takes no lock of the dynamic linker.
[[nodiscard]] code_object const* object_of(void const* place);

}  // namespace cudasim
