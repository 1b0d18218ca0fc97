// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cudasim {

/// The beginning of a file, by which versions are told apart: it says where the tables are, and mostly has a build id.
struct file_version {
  std::size_t bytes;
  std::uint64_t hash;
  [[nodiscard]] bool operator==(file_version const& other) const noexcept
  {
    return bytes == other.bytes && hash == other.hash;
  }
};

/// The version of a file that begins with these bytes. Looks at a page of them.
[[nodiscard]] file_version version_of(unsigned char const* begin, std::size_t bytes) noexcept;

/// The named functions in the file of a loaded object, static ones included. Empty if the file is stripped, cannot be
/// read or is not a 64-bit ELF file.
class symbol_file {
 public:
  explicit symbol_file(char const* path);
  /// Reads a file only if it is of this version.
  symbol_file(char const* path, file_version const& version);

  struct function {
    char const* name;  ///< the linker's name; lives as long as the file's symbols
    std::uint64_t begin;
  };

  /// Whether no names were found.
  [[nodiscard]] bool is_empty() const noexcept { return functions_.empty(); }

  /// Finds the function at an address, counted from where the object is loaded. Returns whether one was found.
  [[nodiscard]] bool find(std::uint64_t address, function& found) const;

 private:
  struct entry {
    std::uint64_t begin;
    std::uint64_t end;
    std::size_t name;  // where it begins in names_
  };

  void read(unsigned char const* file, std::size_t bytes);
  void read_symbols(unsigned char const* symbols, std::size_t bytes);

  std::vector<entry> functions_;  // by their begin
  std::string names_;             // the string table; ends with a zero
};

}  // namespace cudasim
