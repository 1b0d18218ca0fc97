// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

/// @file
/// The format of binary traces, which tools/recorded/README.md describes: the structures that writers and readers share, and the encoder of
/// blocks.

namespace RMM_NAMESPACE {
namespace detail {
namespace trace {

#if defined(__BYTE_ORDER__) && defined(__ORDER_LITTLE_ENDIAN__)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "traces contain numbers in little-endian order, and this machine has another one");
#endif

/// The kind of an event. The numbers are those of the format.
enum class kind : unsigned char { allocate = 0, free = 1, allocate_failure = 2 };

/// The beginning of a file.
struct file_header {
  static constexpr std::array<char, 8> expected_magic{'R', 'M', 'M', 'T', 'R', 'A', 'C', 'E'};
  static constexpr std::uint32_t current_version = 1;

  std::array<char, 8> magic{expected_magic};
  std::uint32_t version{current_version};
  std::uint32_t header_bytes{64};
  std::uint64_t run{};           ///< the number of the run, which all its files have
  std::uint32_t part{};          ///< the number of the file in the run, from 0
  std::uint32_t process{};       ///< the id of the process
  std::uint64_t wall_time_ns{};  ///< time 0 of the trace, in nanoseconds since 1970 UTC
  std::uint64_t clock_ns{};      ///< time 0 of the trace, as a time of CLOCK_MONOTONIC
  std::array<std::uint64_t, 2> reserved{};
};
static_assert(sizeof(file_header) == 64);

/// The beginning of a block, which has events of one thread.
struct block_header {
  static constexpr std::uint32_t expected_magic = 0x4B'4C'42'54;  // "TBLK"

  std::uint32_t magic{expected_magic};
  std::uint32_t payload_bytes{};  ///< without the zeros that fill it up to a multiple of 8
  std::uint32_t events{};
  std::uint32_t lost{};  ///< events of the thread before this block that could not be written
  std::uint64_t thread{};
  std::uint64_t time_ns{};  ///< the time that the first event's time is relative to
  std::uint64_t sum{};      ///< see checksum
  std::uint64_t sum_of_sums{};
};
static_assert(sizeof(block_header) == 48);

inline constexpr std::size_t largest_payload = std::size_t{1} << 24U;

/// Kinds of records that are not events. They have a length, so that readers can skip unknown kinds.
enum class extra : unsigned char { place = 1, tag_name = 2, stack = 3, frame_name = 4, report = 5 };

/// The place of events: a device, a stream, and the tag of the thread.
struct place {
  std::int32_t device{};
  std::uint32_t tag{};        ///< 0: no tag
  std::uint64_t stream{};     ///< the handle
  std::uint64_t stream_id{};  ///< the runtime's id of the stream, plus 1; 0: not known

  friend bool operator==(place const& lhs, place const& rhs) noexcept
  {
    return lhs.device == rhs.device && lhs.tag == rhs.tag && lhs.stream == rhs.stream && lhs.stream_id == rhs.stream_id;
  }
};
static_assert(sizeof(place) == 24);

inline constexpr std::size_t most_places   = 256;   // in a block
inline constexpr std::int32_t most_devices = 1024;  // in a trace; readers may rely on it

/// Two sums over 64-bit words: the sum of the words, and the sum of all its intermediate values.
class checksum {
 public:
  /// Adds words to the sums. Requires that `bytes` is a multiple of 8.
  void add(void const* data, std::size_t bytes) noexcept
  {
    auto const* at = static_cast<unsigned char const*>(data);
    for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
      std::uint64_t word{};
      std::memcpy(&word, at + i, sizeof word);
      sum_ += word;
      sum_of_sums_ += sum_;
    }
  }

  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_; }
  [[nodiscard]] std::uint64_t sum_of_sums() const noexcept { return sum_of_sums_; }

 private:
  std::uint64_t sum_{};
  std::uint64_t sum_of_sums_{};
};

/// Returns the checksum of a block: of its header up to the sums, and of its payload with the zeros after it.
[[nodiscard]] inline checksum checksum_of(block_header const& header, void const* payload) noexcept
{
  checksum result;
  result.add(&header, offsetof(block_header, sum));
  result.add(payload, (std::size_t{header.payload_bytes} + 7) / 8 * 8);
  return result;
}

/// Returns a difference as a number without sign. It is small if the difference is small, in either direction.
[[nodiscard]] constexpr std::uint64_t fold_sign(std::uint64_t difference) noexcept
{
  return (difference << 1U) ^ (0 - (difference >> 63U));
}
[[nodiscard]] constexpr std::uint64_t unfold_sign(std::uint64_t folded) noexcept
{
  return (folded >> 1U) ^ (0 - (folded & 1U));
}

/// The encodings of a number in an event, by the position of the number's highest bit. A number has one of four lengths, and two bits of
/// the event's first byte say which. An element is these two bits, plus 256 times the length in bytes. The sum of the three elements of
/// an event has the event's first byte and its length.
using number_forms = std::array<std::uint16_t, 64>;

/// `bits_at`: the position of the two bits. `lengths`: the four lengths in bytes, ascending; the last is 8.
[[nodiscard]] constexpr number_forms forms_of_number(unsigned bits_at, std::array<unsigned, 4> lengths) noexcept
{
  number_forms result{};
  unsigned which = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    which += bit == 8 * lengths[which] ? 1U : 0U;
    result[bit] = static_cast<std::uint16_t>(which << bits_at | lengths[which] << 8U);
  }
  return result;
}

inline constexpr number_forms forms_of_elapsed = forms_of_number(2, {1, 2, 4, 8});
inline constexpr number_forms forms_of_bytes   = forms_of_number(4, {1, 2, 4, 8});
inline constexpr number_forms forms_of_moved   = forms_of_number(6, {2, 4, 6, 8});

/// An encoder that writes one block at a time to its own memory.
///
/// Invariant: between begin() and finish() there is room for the header, the payload and the zeros.
class block_encoder {
 public:
  /// Requires `capacity` of at least `smallest_capacity`. Throws std::bad_alloc.
  explicit block_encoder(std::size_t capacity)
    : capacity_{capacity}, memory_{new unsigned char[capacity + largest_event]}
  {}

  static constexpr std::size_t largest_event     = 2 + 3 * sizeof(std::uint64_t);
  static constexpr std::size_t longest_text      = 1024;  // longer texts are cut off
  static constexpr std::size_t longest_report    = 4096;  // longer reports are cut off
  static constexpr std::size_t smallest_capacity = std::size_t{16} << 10U;

  void begin(std::uint64_t thread, std::uint64_t time_ns, std::uint32_t lost) noexcept
  {
    header_         = {};
    header_.thread  = thread;
    header_.time_ns = time_ns;
    header_.lost    = lost;
    at_             = memory_.get() + sizeof(block_header);
    end_            = memory_.get() + capacity_ - sizeof(std::uint64_t);
    time_           = time_ns;
    address_        = 0;
  }

  /// Whether a block has begun and is not finished.
  [[nodiscard]] bool is_open() const noexcept { return at_ != nullptr; }
  [[nodiscard]] std::uint32_t events() const noexcept { return header_.events; }
  [[nodiscard]] std::uint64_t thread() const noexcept { return header_.thread; }

  /// Whether an event fits, together with an extra record of `extra_bytes` bytes before it.
  [[nodiscard]] bool has_room(std::size_t extra_bytes = 0) const noexcept
  {
    return static_cast<std::size_t>(end_ - at_) >= largest_event + 4 + extra_bytes;
  }

  /// Adds an event. Requires has_room(). An earlier time than that of the event before counts as that time. A failure has no address.
  RMM_ALWAYS_INLINE void add(
    kind what, unsigned place, std::uint64_t time_ns, std::uint64_t bytes, std::uint64_t address) noexcept
  {
    auto const elapsed = time_ns > time_ ? time_ns - time_ : 0;
    auto const to      = what == kind::allocate_failure ? address_ : address;
    auto const moved   = fold_sign(to - address_);
    time_ += elapsed;
    address_ = to;
    ++header_.events;

    unsigned const elapsed_form = forms_of_elapsed[highest_bit(elapsed | 1U)];
    unsigned const bytes_form   = forms_of_bytes[highest_bit(bytes | 1U)];
    unsigned const form         = elapsed_form + bytes_form + forms_of_moved[highest_bit(moved | 1U)];
    auto* const at              = at_;  // a local copy, because a store of bytes may alias any member
    // Stores eight bytes of each number, of which the next store overwrites the rest: no branch on the length.
    at[0] = static_cast<unsigned char>(form | static_cast<unsigned>(what));
    at[1] = static_cast<unsigned char>(place);
    std::memcpy(at + 2, &elapsed, sizeof elapsed);
    std::memcpy(at + 2 + (elapsed_form >> 8U), &bytes, sizeof bytes);
    std::memcpy(at + 2 + ((elapsed_form + bytes_form) >> 8U), &moved, sizeof moved);
    at_ = at + 2 + (form >> 8U);
  }

  /// Define a place, a tag and a frame. Require has_room(). The caller numbers the places of a block.
  void define_place(unsigned number, place const& where) noexcept
  {
    std::array<unsigned char, 1 + sizeof where> content{static_cast<unsigned char>(number)};
    std::memcpy(content.data() + 1, &where, sizeof where);
    add_extra(extra::place, content.data(), content.size());
  }
  void define_tag(std::uint32_t tag, std::string_view name) noexcept
  {
    add_text(extra::tag_name, &tag, sizeof tag, name);
  }
  void define_frame(std::uint64_t address, std::string_view name) noexcept
  {
    add_text(extra::frame_name, &address, sizeof address, name);
  }

  /// Adds the call stack of the next event, the innermost frame first.
  void add_stack(std::uint64_t const* frames, std::size_t count) noexcept
  {
    add_extra(extra::stack, frames, count * sizeof *frames);
  }

  /// Adds the reason of the next event, which is a failure.
  void add_report(std::string_view text) noexcept
  {
    add_extra(extra::report, text.data(), text.size() < longest_report ? text.size() : longest_report);
  }

  /// Ends the block. Returns its address and its bytes, which are valid until the next begin().
  std::pair<unsigned char const*, std::size_t> finish() noexcept
  {
    auto* const payload   = memory_.get() + sizeof(block_header);
    header_.payload_bytes = static_cast<std::uint32_t>(at_ - payload);
    while ((at_ - payload) % 8 != 0) { *at_++ = 0; }
    auto const sums     = checksum_of(header_, payload);
    header_.sum         = sums.sum();
    header_.sum_of_sums = sums.sum_of_sums();
    std::memcpy(memory_.get(), &header_, sizeof header_);
    return {memory_.get(), static_cast<std::size_t>(std::exchange(at_, nullptr) - memory_.get())};
  }

 private:
  void add_extra(extra what, void const* content, std::size_t bytes) noexcept
  {
    auto const length = static_cast<std::uint16_t>(bytes);
    at_[0]            = 3;
    at_[1]            = static_cast<unsigned char>(what);
    std::memcpy(at_ + 2, &length, sizeof length);
    std::memcpy(at_ + 4, content, bytes);
    at_ += 4 + bytes;
  }

  void add_text(extra what, void const* key, std::size_t key_bytes, std::string_view text) noexcept
  {
    std::array<unsigned char, sizeof(std::uint64_t) + longest_text> content;
    text = text.substr(0, longest_text);
    std::memcpy(content.data(), key, key_bytes);
    std::memcpy(content.data() + key_bytes, text.data(), text.size());
    add_extra(what, content.data(), key_bytes + text.size());
  }

  std::size_t capacity_;
  std::unique_ptr<unsigned char[]> memory_;
  block_header header_{};
  unsigned char* at_{};
  unsigned char* end_{};
  std::uint64_t time_{};     // the time of the previous event
  std::uint64_t address_{};  // the address of the previous event
};

}  // namespace trace
}  // namespace detail
}  // namespace RMM_NAMESPACE
