// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace RMM_NAMESPACE {
namespace detail {

/// Reads a value that may lie at any address.
template <class Value>
[[nodiscard]] Value load_unaligned(void const* from) noexcept
{
  Value value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// The registers of a frame of x86-64 that the rules below speak of.
struct frame_registers {
  std::uintptr_t pc;  ///< the address that the frame's function returns to, or has reached
  std::uintptr_t sp;
  std::uintptr_t fp;
};

/// How the caller of a frame is found while its function is at a certain instruction. The CFA, the "canonical frame address", is the stack
/// pointer that the caller has after the call; the return address is below it.
struct unwind_rule {
  enum class kind : std::uint8_t {
    missing,  ///< nobody has looked for it yet
    unknown,  ///< it exists, but cannot be expressed here, or could not be read
    caller,
    last  ///< the frame has no caller
  };
  enum class cfa : std::uint8_t { sp_plus, fp_plus, stored_at_fp_plus };
  enum class saved_fp : std::uint8_t { kept, at_cfa_plus, at_fp_plus };

  kind is{kind::missing};
  cfa cfa_is{cfa::sp_plus};
  saved_fp fp_is{saved_fp::kept};
  std::int32_t cfa_offset{};
  std::int32_t fp_offset{};

  /// Goes to the caller. Returns false if the stack cannot be so. Requires that the rule is one of kind::caller, for the instruction before
  /// the frame's.
  [[nodiscard]] bool apply(frame_registers& frame) const noexcept
  {
    auto const from = cfa_is == cfa::sp_plus ? frame.sp : frame.fp;
    auto above      = plus(from, cfa_offset);
    if (cfa_is == cfa::stored_at_fp_plus) { above = load(above); }
    if (above <= frame.sp || above % sizeof(std::uintptr_t) != 0) { return false; }
    if (fp_is != saved_fp::kept) {
      frame.fp = load(plus(fp_is == saved_fp::at_cfa_plus ? above : frame.fp, fp_offset));
    }
    frame.pc = load(above - sizeof(std::uintptr_t));
    frame.sp = above;
    return true;
  }

 private:
  [[nodiscard]] static std::uintptr_t plus(std::uintptr_t address, std::int32_t offset) noexcept
  {
    return address + static_cast<std::uintptr_t>(std::intptr_t{offset});
  }
  [[nodiscard]] static std::uintptr_t load(std::uintptr_t address) noexcept
  {
    return load_unaligned<std::uintptr_t>(reinterpret_cast<void const*>(address));
  }
};

/// Reads numbers of a section `.eh_frame`. After a read beyond the end, all values are 0.
class byte_reader {
 public:
  byte_reader(unsigned char const* begin, unsigned char const* end) noexcept : at_{begin}, end_{end} {}

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] bool at_end() const noexcept { return at_ == end_; }
  [[nodiscard]] unsigned char const* position() const noexcept { return at_; }
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  template <class Number>
  [[nodiscard]] Number number() noexcept
  {
    auto const* const from = take(sizeof(Number));
    return from == nullptr ? Number{} : load_unaligned<Number>(from);
  }

  [[nodiscard]] std::uint64_t unsigned_leb() noexcept { return leb(false); }
  [[nodiscard]] std::int64_t signed_leb() noexcept { return static_cast<std::int64_t>(leb(true)); }

  /// Returns a reader of the next bytes, and goes behind them.
  [[nodiscard]] byte_reader part(std::uint64_t bytes) noexcept
  {
    auto const* const from = take(bytes);
    return from == nullptr ? byte_reader{end_, end_} : byte_reader{from, at_};
  }

 private:
  [[nodiscard]] unsigned char const* take(std::uint64_t bytes) noexcept
  {
    if (bytes > size()) {
      failed_ = true;
      at_     = end_;
      return nullptr;
    }
    auto const* const from = at_;
    at_ += bytes;
    return from;
  }

  [[nodiscard]] std::uint64_t leb(bool is_signed) noexcept
  {
    std::uint64_t value{};
    for (unsigned shift = 0; shift < 64; shift += 7) {
      auto const byte = number<unsigned char>();
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80U) != 0) { continue; }
      if (is_signed && (byte & 0x40U) != 0 && shift + 7 < 64) { value |= ~std::uint64_t{0} << (shift + 7); }
      return failed_ ? 0 : value;
    }
    failed_ = true;
    return 0;
  }

  unsigned char const* at_;
  unsigned char const* end_;
  bool failed_{false};
};

/// What the entries of several functions have in common: a "common information entry" (CIE) of `.eh_frame`.
struct common_frame_information {
  bool is_known{false};
  std::uint64_t code_unit{};
  std::int64_t data_unit{};
  byte_reader program{nullptr, nullptr};

  /// Reads the entry at `at`. Only what compilers write for x86-64 is known: for instance no entries of signal handlers.
  [[nodiscard]] static common_frame_information read(unsigned char const* at) noexcept
  {
    common_frame_information result;
    byte_reader entry{at + 4, at + 4 + load_unaligned<std::uint32_t>(at)};
    auto const id           = entry.number<std::uint32_t>();
    auto const version      = entry.number<std::uint8_t>();
    auto const* const names = reinterpret_cast<char const*>(entry.position());
    while (!entry.failed() && entry.number<char>() != '\0') {}
    if (entry.failed() || id != 0 || (version != 1 && version != 3) || names[0] != 'z') { return result; }
    result.code_unit          = entry.unsigned_leb();
    result.data_unit          = entry.signed_leb();
    auto const return_address = version == 1 ? entry.number<std::uint8_t>() : entry.unsigned_leb();
    auto details              = entry.part(entry.unsigned_leb());
    result.program            = entry;
    result.is_known           = return_address == 16 && knows_augmentation(names + 1, details) && !entry.failed();
    return result;
  }

 private:
  [[nodiscard]] static bool knows_augmentation(char const* names, byte_reader details) noexcept
  {
    constexpr std::uint8_t four_bytes_relative = 0x1B;  // the encoding of the addresses of functions
    bool has_addresses{false};
    for (; *names != '\0'; ++names) {
      auto const encoding = details.number<std::uint8_t>();
      if (*names == 'R' && encoding == four_bytes_relative) {
        has_addresses = true;
      } else if (*names == 'P') {  // the handler of exceptions
        auto const size = encoding & 0x07U;
        static_cast<void>(details.part(size == 0 || size == 4 ? 8 : size == 3 ? 4 : 2));
      } else if (*names != 'L') {
        return false;
      }
    }
    return has_addresses && !details.failed();
  }
};

/// Runs the instructions that say where a function saves registers, up to a certain instruction of that function.
class frame_program {
 public:
  /// `location` is the start of the function, and `target` the address that the rule is wanted for.
  frame_program(common_frame_information const& common, std::uintptr_t location, std::uintptr_t target) noexcept
    : code_unit_{common.code_unit}, data_unit_{common.data_unit}, location_{location}, target_{target}
  {}

  /// Runs the instructions of the CIE, which come first.
  [[nodiscard]] bool run_first(byte_reader code) noexcept
  {
    bool const is_known = run(code);
    initial_            = now_;
    return is_known;
  }

  /// Runs `code` until its end or the target. Returns false if an instruction is not known.
  [[nodiscard]] bool run(byte_reader& code) noexcept
  {
    while (!code.at_end() && location_ <= target_) {
      auto const byte = code.number<std::uint8_t>();
      auto const low  = byte & 0x3FU;
      switch (byte >> 6U) {
        case 0:
          run_extended(low, code);
          break;
        case 1:
          advance(low);
          break;
        case 2:
          save(low, where::at_cfa, in_data_units(code.unsigned_leb()));
          break;
        default:
          restore(low);
          break;
      }
      if (!is_known_ || code.failed()) { return false; }
    }
    return true;
  }

  [[nodiscard]] unwind_rule rule() const noexcept
  {
    unwind_rule result;
    result.is = unwind_rule::kind::unknown;
    if (now_.ra.is == where::undefined) {
      result.is = unwind_rule::kind::last;
      return result;
    }
    if (now_.ra.is != where::at_cfa || now_.ra.offset != -8 || now_.sp.is != where::kept) { return result; }
    if (now_.fp.is != where::kept && now_.fp.is != where::at_cfa && now_.fp.is != where::at_fp) { return result; }
    if (!fits(now_.cfa.offset) || !fits(now_.fp.offset)) { return result; }
    if (now_.cfa.is != cfa_place::of_register) {
      result.cfa_is = unwind_rule::cfa::stored_at_fp_plus;
    } else if (now_.cfa.number == fp_number || now_.cfa.number == sp_number) {
      result.cfa_is = now_.cfa.number == fp_number ? unwind_rule::cfa::fp_plus : unwind_rule::cfa::sp_plus;
    } else {
      return result;
    }
    if (now_.fp.is == where::at_cfa) { result.fp_is = unwind_rule::saved_fp::at_cfa_plus; }
    if (now_.fp.is == where::at_fp) { result.fp_is = unwind_rule::saved_fp::at_fp_plus; }
    result.cfa_offset = static_cast<std::int32_t>(now_.cfa.offset);
    result.fp_offset  = static_cast<std::int32_t>(now_.fp.offset);
    result.is         = unwind_rule::kind::caller;
    return result;
  }

 private:
  static constexpr std::uint64_t fp_number{6};  // of rbp, in DWARF's numbers
  static constexpr std::uint64_t sp_number{7};
  static constexpr std::uint64_t ra_number{16};

  enum class where : std::uint8_t { kept, at_cfa, at_fp, undefined, elsewhere };
  struct saved {
    where is{where::kept};
    std::int64_t offset{};
  };
  struct cfa_place {
    enum how : std::uint8_t { of_register, stored_at_fp } is{of_register};
    std::uint64_t number{};
    std::int64_t offset{};
  };
  struct row {
    cfa_place cfa{};
    saved fp{};
    saved sp{};
    saved ra{};
  };

  struct operands {
    std::uint64_t first{};
    std::uint64_t second{};
    byte_reader block{nullptr, nullptr};
  };

  [[nodiscard]] static bool fits(std::int64_t offset) noexcept
  {
    return offset >= std::numeric_limits<std::int32_t>::min() && offset <= std::numeric_limits<std::int32_t>::max();
  }
  [[nodiscard]] std::int64_t in_data_units(std::uint64_t count) const noexcept
  {
    return static_cast<std::int64_t>(count * static_cast<std::uint64_t>(data_unit_));
  }

  void advance(std::uint64_t units) noexcept { location_ += units * code_unit_; }

  [[nodiscard]] static saved* find(row& in, std::uint64_t number) noexcept
  {
    return number == fp_number ? &in.fp : number == sp_number ? &in.sp : number == ra_number ? &in.ra : nullptr;
  }
  void save(std::uint64_t number, where place, std::int64_t offset = 0) noexcept
  {
    if (auto* const found = find(now_, number)) { *found = {place, offset}; }
  }
  void restore(std::uint64_t number) noexcept
  {
    if (auto* const found = find(now_, number)) { *found = *find(initial_, number); }
  }

  /// Reads the operands of an instruction: u and s are numbers of variable length, b is a block of bytes.
  [[nodiscard]] bool read(unsigned instruction, byte_reader& code, operands& into) noexcept
  {
    // clang-format off
    constexpr char const* kinds[] = {
      "", nullptr, "1", "2", "4", "uu", "u", "u", "u", "uu", "", "", "uu", "u", "u", "b",
      "ub", "us", "us", "s", "uu", "us", "ub"};
    // clang-format on
    constexpr unsigned arguments_size    = 0x2E;
    constexpr unsigned negative_extended = 0x2F;
    char const* kind{nullptr};
    if (instruction < sizeof kinds / sizeof *kinds) { kind = kinds[instruction]; }
    if (instruction == arguments_size) { kind = "u"; }
    if (instruction == negative_extended) { kind = "uu"; }
    if (kind == nullptr) { return false; }
    for (auto* to = &into.first; *kind != '\0'; ++kind, to = &into.second) {
      switch (*kind) {
        case '1':
          *to = code.number<std::uint8_t>();
          break;
        case '2':
          *to = code.number<std::uint16_t>();
          break;
        case '4':
          *to = code.number<std::uint32_t>();
          break;
        case 'u':
          *to = code.unsigned_leb();
          break;
        case 's':
          *to = static_cast<std::uint64_t>(code.signed_leb());
          break;
        default:
          into.block = code.part(code.unsigned_leb());
          break;
      }
    }
    return true;
  }

  void run_extended(unsigned instruction, byte_reader& code) noexcept
  {
    operands given;
    is_known_ = read(instruction, code, given);
    switch (is_known_ ? instruction : 0) {
      case 0x02:
      case 0x03:
      case 0x04:
        advance(given.first);
        break;
      case 0x05:
      case 0x11:
        save(given.first, where::at_cfa, in_data_units(given.second));
        break;
      case 0x2F:
        save(given.first, where::at_cfa, -in_data_units(given.second));
        break;
      case 0x06:
        restore(given.first);
        break;
      case 0x07:
        save(given.first, where::undefined);
        break;
      case 0x08:
        save(given.first, where::kept);
        break;
      case 0x09:
      case 0x14:
      case 0x15:
      case 0x16:
        save(given.first, where::elsewhere);
        break;
      case 0x10:
        save_by_expression(given.first, given.block);
        break;
      case 0x0A:
        remember();
        break;
      case 0x0B:
        recall();
        break;
      default:
        define_cfa(instruction, given);
        break;
    }
  }

  void define_cfa(unsigned instruction, operands const& given) noexcept
  {
    auto const number = static_cast<std::int64_t>(given.second);
    switch (instruction) {
      case 0x0C:
        now_.cfa = {cfa_place::of_register, given.first, number};
        break;
      case 0x12:
        now_.cfa = {cfa_place::of_register, given.first, in_data_units(given.second)};
        break;
      case 0x0D:
        is_known_       = now_.cfa.is == cfa_place::of_register;
        now_.cfa.number = given.first;
        break;
      case 0x0E:
        is_known_       = now_.cfa.is == cfa_place::of_register;
        now_.cfa.offset = static_cast<std::int64_t>(given.first);
        break;
      case 0x13:
        is_known_       = now_.cfa.is == cfa_place::of_register;
        now_.cfa.offset = in_data_units(given.first);
        break;
      case 0x0F: {
        auto expression = given.block;
        auto const from = fp_plus(expression);
        bool const load = expression.number<std::uint8_t>() == 0x06;
        now_.cfa        = {cfa_place::stored_at_fp, fp_number, from};
        is_known_       = is_known_ && load && expression.at_end() && !expression.failed();
        break;
      }
      default:
        break;  // no instruction, or the size of arguments
    }
  }

  /// Reads the operation "frame pointer plus a number".
  [[nodiscard]] std::int64_t fp_plus(byte_reader& expression) noexcept
  {
    is_known_ = expression.number<std::uint8_t>() == 0x76;
    return expression.signed_leb();
  }

  void save_by_expression(std::uint64_t number, byte_reader expression) noexcept
  {
    auto const offset = fp_plus(expression);
    bool const plain  = is_known_ && expression.at_end() && !expression.failed();
    save(number, plain ? where::at_fp : where::elsewhere, offset);
    is_known_ = true;
  }

  void remember() noexcept
  {
    is_known_ = depth_ != remembered_.size();
    if (is_known_) { remembered_[depth_++] = now_; }
  }
  void recall() noexcept
  {
    is_known_ = depth_ != 0;
    if (is_known_) { now_ = remembered_[--depth_]; }
  }

  std::uint64_t code_unit_;
  std::int64_t data_unit_;
  std::uintptr_t location_;
  std::uintptr_t target_;
  row now_{};
  row initial_{};
  std::array<row, 4> remembered_{};
  std::size_t depth_{};
  bool is_known_{true};
};

/// The sorted table of a loaded object, `.eh_frame_hdr`, which leads from an instruction to the entry of its function (its FDE).
class unwind_table {
 public:
  /// `header` is null or the address of a section `.eh_frame_hdr`. A table of another form counts as empty.
  explicit unwind_table(unsigned char const* header) noexcept : header_{header}
  {
    constexpr std::uint32_t usual_form{0x3B031B01};  // version 1; 4 bytes each, relative to the section
    if (header != nullptr && load_unaligned<std::uint32_t>(header) == usual_form) {
      size_ = load_unaligned<std::uint32_t>(header + 8);
    }
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  /// Returns the number of the last function that begins at `address` or before; size() if there is none.
  [[nodiscard]] std::uint32_t find(std::uintptr_t address) const noexcept
  {
    std::uint32_t first{0};
    std::uint32_t last{size_};
    while (first != last) {
      auto const middle = first + (last - first) / 2;
      if (start(middle) <= address) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first == 0 ? size_ : first - 1;
  }

  /// Returns the address of the CIE of a function. Requires number < size().
  [[nodiscard]] unsigned char const* common_of(std::uint32_t number) const noexcept
  {
    return common_of_entry(entry_of(number));
  }

  /// Returns a number that goes with `seed`, the place of the table, and all that rule() reads for this function except the CIE, if that is
  /// in the first `bytes` bytes of its entry. Requires number < size().
  [[nodiscard]] std::uint64_t fingerprint(std::uint32_t number, std::uint32_t bytes, std::uint64_t seed) const noexcept
  {
    auto const* const entry = entry_of(number);
    auto const place        = mix(seed, address_of(header_));  // the table itself has only relative addresses
    return fingerprint(
      entry, detail::min(bytes, size_of_entry(entry)), place, load_unaligned<std::uint64_t>(row(number)));
  }

  /// Returns the same for the whole CIE at `common`.
  [[nodiscard]] static std::uint64_t fingerprint_of_common(unsigned char const* common) noexcept
  {
    return fingerprint(common, size_of_entry(common), 0, 0);
  }

  struct read_rule {
    unwind_rule rule;
    std::uint32_t bytes;  ///< of the function's entry, which the rule depends on
  };

  /// Returns the rule for an instruction of this function. Requires number < size().
  [[nodiscard]] read_rule rule(std::uint32_t number, std::uintptr_t address) const noexcept
  {
    auto const* const at = entry_of(number);
    read_rule unknown{{}, size_of_entry(at)};
    unknown.rule.is        = unwind_rule::kind::unknown;
    auto const common_size = size_of_entry(common_of_entry(at));
    if (unknown.bytes < 16 || common_size < 16) { return unknown; }
    auto const common = common_frame_information::read(common_of_entry(at));
    if (!common.is_known) { return unknown; }
    byte_reader entry{at + 8, at + unknown.bytes};
    auto const base  = address_of(entry.position());
    auto const start = base + relative(entry.number<std::int32_t>());
    auto const size  = entry.number<std::uint32_t>();
    static_cast<void>(entry.part(entry.unsigned_leb()));
    if (entry.failed() || address < start || address - start >= size) { return unknown; }
    frame_program program{common, start, address};
    if (!program.run_first(common.program) || !program.run(entry)) { return unknown; }
    auto const bytes = static_cast<std::uint32_t>(entry.position() - at);
    return {program.rule(), bytes < 16 ? 16 : bytes};
  }

  /// Mixes `more` into a hash. Each bit of both counts.
  [[nodiscard]] static std::uint64_t mix(std::uint64_t hash, std::uint64_t more) noexcept
  {
    return (((hash << 23U) | (hash >> 41U)) ^ more) * 0x9E3779B97F4A7C15U;
  }

 private:
  static constexpr std::uint32_t longest_entry{0xFFFFFFF0U};  // larger numbers mean something else

  [[nodiscard]] static std::uintptr_t address_of(unsigned char const* at) noexcept
  {
    return reinterpret_cast<std::uintptr_t>(at);
  }
  [[nodiscard]] static std::uintptr_t relative(std::int32_t offset) noexcept
  {
    return static_cast<std::uintptr_t>(std::intptr_t{offset});
  }
  [[nodiscard]] unsigned char const* row(std::uint32_t number) const noexcept
  {
    return header_ + 12 + std::size_t{number} * 8;
  }
  [[nodiscard]] std::uintptr_t start(std::uint32_t number) const noexcept
  {
    return address_of(header_) + relative(load_unaligned<std::int32_t>(row(number)));
  }
  [[nodiscard]] unsigned char const* entry_of(std::uint32_t number) const noexcept
  {
    return header_ + load_unaligned<std::int32_t>(row(number) + 4);
  }
  [[nodiscard]] static unsigned char const* common_of_entry(unsigned char const* entry) noexcept
  {
    return entry + 4 - load_unaligned<std::uint32_t>(entry + 4);
  }

  /// Returns the bytes of a CIE or FDE; 4 if it has a form that is not known here.
  [[nodiscard]] static std::uint32_t size_of_entry(unsigned char const* entry) noexcept
  {
    auto const length = load_unaligned<std::uint32_t>(entry);
    return length < longest_entry ? 4 + length : 4;
  }

  /// Mixes in two chains, which a processor computes side by side.
  [[nodiscard]] static std::uint64_t fingerprint(unsigned char const* at,
                                                 std::uint32_t bytes,
                                                 std::uint64_t one,
                                                 std::uint64_t other) noexcept
  {
    one = mix(one, bytes);
    if (bytes < 16) { return mix(one, other); }
    auto const* const last = at + bytes - 16;
    for (; at < last; at += 16) {
      one   = mix(one, load_unaligned<std::uint64_t>(at));
      other = mix(other, load_unaligned<std::uint64_t>(at + 8));
    }
    one   = mix(one, load_unaligned<std::uint64_t>(last));
    other = mix(other, load_unaligned<std::uint64_t>(last + 8));
    return mix(one, other);
  }

  unsigned char const* header_;
  std::uint32_t size_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
