// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace rmm::test {

/// Instructions of unwind tables, for tests.
namespace cfi {
using bytes = std::vector<unsigned char>;
constexpr unsigned char def_cfa{0x0C};
constexpr unsigned char def_cfa_register{0x0D};
constexpr unsigned char def_cfa_offset{0x0E};
constexpr unsigned char undefined{0x07};
constexpr unsigned char remember{0x0A};
constexpr unsigned char restore_state{0x0B};
constexpr unsigned char rbp{6};
constexpr unsigned char rsp{7};
constexpr unsigned char r10{10};
constexpr unsigned char ra{16};

inline unsigned char advance(unsigned units) { return static_cast<unsigned char>(0x40U | units); }
inline unsigned char offset(unsigned number) { return static_cast<unsigned char>(0x80U | number); }
inline unsigned char restore(unsigned number) { return static_cast<unsigned char>(0xC0U | number); }

/// What the CIE of most objects says at the entry of a function: the CFA is 8 above the stack pointer, and the return address below it.
inline bytes at_entry() { return {def_cfa, rsp, 8, offset(ra), 1}; }
}  // namespace cfi

/// A loaded object with functions of 64 bytes, which have no code but unwind tables. It is laid out like one that a linker made.
class made_object {
 public:
  explicit made_object(std::vector<cfi::bytes> const& functions,
                       cfi::bytes const& first      = cfi::at_entry(),
                       char const* augmentation     = "zR",
                       cfi::bytes const& details    = {0x1B},
                       unsigned char return_address = cfi::ra)
  {
    put<std::uint32_t>(0x3B031B01);
    put<std::uint32_t>(0);
    put(static_cast<std::uint32_t>(functions.size()));
    auto const rows = size_;
    size_ += 8 * functions.size();

    cfi::bytes body{0, 0, 0, 0, 1};
    for (auto const* at = augmentation; *at != '\0'; ++at) { body.push_back(static_cast<unsigned char>(*at)); }
    add(body, {0, 1, 0x78, return_address});
    if (*augmentation == 'z') { body.push_back(static_cast<unsigned char>(details.size())); }
    add(body, details);
    add(body, first);

    for (std::size_t i = 0; i != functions.size(); ++i) {
      commons_.push_back(size_);
      put_entry(body);
      entries_.push_back(size_);
      write(rows + 8 * i, distance(code(i)));
      write(rows + 8 * i + 4, static_cast<std::int32_t>(size_));
      cfi::bytes entry(13);
      put_at(entry, 0, static_cast<std::uint32_t>(size_ + 4 - commons_[i]));
      put_at(entry, 4, static_cast<std::int32_t>(code_begin + code_size * i - (size_ + 8)));
      put_at(entry, 8, std::uint32_t{code_size});
      add(entry, functions[i]);
      put_entry(entry);
    }
    put<std::uint32_t>(0);
  }

  [[nodiscard]] unsigned char const* table() const { return memory_.data(); }

  /// Returns the address of a byte of a function.
  [[nodiscard]] std::uintptr_t code(std::size_t function, std::size_t byte = 0) const
  {
    return reinterpret_cast<std::uintptr_t>(memory_.data()) + code_begin + code_size * function + byte;
  }
  [[nodiscard]] void* begin() { return memory_.data(); }
  [[nodiscard]] void* end() { return memory_.data() + memory_.size(); }

  /// Returns where the CIE and the entry of a function begin. Each function has a CIE of its own.
  [[nodiscard]] std::size_t common(std::size_t function) const { return commons_[function]; }
  [[nodiscard]] std::size_t entry(std::size_t function) const { return entries_[function]; }
  [[nodiscard]] unsigned char& at(std::size_t where) { return memory_[where]; }

 private:
  static constexpr std::size_t code_begin{8192};
  static constexpr std::size_t code_size{64};

  template <class Value>
  void write(std::size_t where, Value value)
  {
    std::memcpy(&memory_[where], &value, sizeof value);
  }
  template <class Value>
  void put(Value value)
  {
    write(size_, value);
    size_ += sizeof value;
  }
  template <class Value>
  static void put_at(cfi::bytes& to, std::size_t where, Value value)
  {
    std::memcpy(&to[where], &value, sizeof value);
  }
  static void add(cfi::bytes& to, cfi::bytes const& more) { to.insert(to.end(), more.begin(), more.end()); }

  [[nodiscard]] std::int32_t distance(std::uintptr_t address) const
  {
    return static_cast<std::int32_t>(address - reinterpret_cast<std::uintptr_t>(memory_.data()));
  }

  /// Puts an entry, filled up to a multiple of 8 bytes.
  void put_entry(cfi::bytes body)
  {
    while ((body.size() + 4) % 8 != 0) { body.push_back(0); }
    put(static_cast<std::uint32_t>(body.size()));
    std::memcpy(&memory_[size_], body.data(), body.size());
    size_ += body.size();
  }

  alignas(8) std::array<unsigned char, 16384> memory_{};
  std::size_t size_{};
  std::vector<std::size_t> commons_;
  std::vector<std::size_t> entries_{};
};

}  // namespace rmm::test
