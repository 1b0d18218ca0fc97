// SPDX-License-Identifier: Apache-2.0
#include "symbol_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cudasim {
namespace {

/// A file that is mapped for reading while this object lives; empty if it cannot be mapped.
class mapped_file {
 public:
  explicit mapped_file(char const* path) noexcept
  {
    int const file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) { return; }
    struct stat about {};
    if (::fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
      auto const bytes = static_cast<std::size_t>(about.st_size);
      void* const at   = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
      if (at != MAP_FAILED) {
        data_  = static_cast<unsigned char const*>(at);
        bytes_ = bytes;
      }
    }
    ::close(file);
  }
  ~mapped_file()
  {
    if (data_ != nullptr) { ::munmap(const_cast<unsigned char*>(data_), bytes_); }
  }
  mapped_file(mapped_file const&)            = delete;
  mapped_file& operator=(mapped_file const&) = delete;

  [[nodiscard]] unsigned char const* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  unsigned char const* data_{nullptr};
  std::size_t bytes_{0};
};

/// Whether `count` items of `each` bytes at `offset` lie in `bytes` bytes.
[[nodiscard]] bool lies_in(std::size_t bytes, std::uint64_t offset, std::uint64_t count, std::uint64_t each) noexcept
{
  return offset <= bytes && (each == 0 || count <= (bytes - offset) / each);
}

template <class T>
[[nodiscard]] T read_at(unsigned char const* place) noexcept
{
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

}  // namespace

file_version version_of(unsigned char const* begin, std::size_t bytes) noexcept
{
  file_version version{std::min<std::size_t>(bytes, 4096), 0};
  for (std::size_t i = 0; i < version.bytes; ++i) { version.hash = version.hash * 0x100000001B3U + begin[i]; }
  return version;
}

symbol_file::symbol_file(char const* path)
{
  mapped_file const file{path};
  if (file.data() != nullptr) { read(file.data(), file.size()); }
}

symbol_file::symbol_file(char const* path, file_version const& version)
{
  mapped_file const file{path};
  if (version.bytes != 0 && file.size() >= version.bytes && version_of(file.data(), version.bytes) == version) {
    read(file.data(), file.size());
  }
}

bool symbol_file::find(std::uint64_t address, function& found) const
{
  auto const after = std::upper_bound(
    functions_.begin(), functions_.end(), address, [](std::uint64_t at, entry const& each) { return at < each.begin; });
  if (after == functions_.begin() || address >= std::prev(after)->end) { return false; }
  found = {names_.c_str() + std::prev(after)->name, std::prev(after)->begin};
  return true;
}

// The file may have been replaced since it was loaded, so everything in it is checked.
void symbol_file::read(unsigned char const* file, std::size_t bytes)
{
  if (bytes < sizeof(Elf64_Ehdr) || std::memcmp(file, ELFMAG, SELFMAG) != 0 || file[EI_CLASS] != ELFCLASS64) { return; }
  auto const header = read_at<Elf64_Ehdr>(file);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || !lies_in(bytes, header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr))) {
    return;
  }
  auto const section = [&](std::size_t number) {
    return read_at<Elf64_Shdr>(file + header.e_shoff + number * sizeof(Elf64_Shdr));
  };
  for (auto const type : {SHT_SYMTAB, SHT_DYNSYM}) {
    for (std::size_t i = 0; i < header.e_shnum && functions_.empty(); ++i) {
      auto const symbols = section(i);
      if (symbols.sh_type != static_cast<Elf64_Word>(type) || symbols.sh_link >= header.e_shnum) { continue; }
      auto const names = section(symbols.sh_link);
      if (!lies_in(bytes, symbols.sh_offset, symbols.sh_size, 1) ||
          !lies_in(bytes, names.sh_offset, names.sh_size, 1)) {
        continue;
      }
      names_.assign(reinterpret_cast<char const*>(file + names.sh_offset), names.sh_size);
      read_symbols(file + symbols.sh_offset, symbols.sh_size);
    }
  }
}

void symbol_file::read_symbols(unsigned char const* symbols, std::size_t bytes)
{
  functions_.reserve(bytes / sizeof(Elf64_Sym));
  for (std::size_t i = 0; i < bytes / sizeof(Elf64_Sym); ++i) {
    auto const symbol = read_at<Elf64_Sym>(symbols + i * sizeof(Elf64_Sym));
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF && symbol.st_size != 0 &&
        symbol.st_name < names_.size()) {
      functions_.push_back({symbol.st_value, symbol.st_value + symbol.st_size, symbol.st_name});
    }
  }
  std::sort(functions_.begin(), functions_.end(), [](entry const& a, entry const& b) { return a.begin < b.begin; });
}

}  // namespace cudasim
