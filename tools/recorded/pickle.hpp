// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rmm::recorded {

/// Thrown for a file that is not a pickle of plain data. The message names the byte.
class bad_pickle : public std::runtime_error {
 public:
  bad_pickle(std::uint64_t offset, std::string const& problem)
    : std::runtime_error{"at byte " + std::to_string(offset) + ": " + problem}, offset_{offset}
  {}

  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  std::uint64_t offset_;
};

/// The contents of a Python pickle of plain data: None, booleans, integers, floats, texts, lists, tuples, dicts. Protocols 2 to 5.
///
/// No code of a pickle is executed: operations that import or call something are refused, except a mark of PyTorch on
/// its lists and dicts, which has no effect. Values refer to the text that was read, which has to outlive them.
class pickle {
 public:
  enum class type : unsigned char { none, boolean, integer, negative, real, text, list, dict, mark_of_type };

  /// A value. Integers below 0 have a type of their own. Lists, tuples and dicts are positions in the pickle, because a value may
  /// occur several times, even inside itself.
  class value {
   public:
    value() = default;
    value(type what, std::uint64_t bits) : bits_{bits}, what_{what} {}

    [[nodiscard]] type what() const noexcept { return what_; }
    [[nodiscard]] bool is(type wanted) const noexcept { return what_ == wanted; }
    [[nodiscard]] std::uint64_t bits() const noexcept { return bits_; }

   private:
    std::uint64_t bits_{};
    type what_{type::none};
  };

  using items = std::vector<value>;
  using pairs = std::vector<std::pair<value, value>>;

  /// Reads a pickle. Throws bad_pickle.
  [[nodiscard]] static pickle read(std::string_view content);

  /// Whether a file begins like such a pickle.
  [[nodiscard]] static bool is_pickle(std::string_view content) noexcept;

  [[nodiscard]] value root() const noexcept { return root_; }

  /// Require that the value has the type in question.
  [[nodiscard]] items const& list(value of) const { return lists_[of.bits()]; }
  [[nodiscard]] pairs const& dict(value of) const { return dicts_[of.bits()]; }
  [[nodiscard]] std::string_view text(value of) const { return texts_[of.bits()]; }

  /// Returns the value of a text key; None if the dict lacks the key, or the value is not a dict.
  [[nodiscard]] value find(value in, std::string_view key) const;

 private:
  friend class pickle_machine;

  value root_;
  std::vector<items> lists_;
  std::vector<pairs> dicts_;
  std::vector<std::string_view> texts_;
};

}  // namespace rmm::recorded
