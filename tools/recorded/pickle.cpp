// SPDX-License-Identifier: Apache-2.0
#include <tools/recorded/pickle.hpp>

#include <rmm/detail/base/text_failure.hpp>

#include <cstdio>
#include <utility>

namespace rmm::recorded {

/// Executes the operations of a pickle, one after the other.
class pickle_machine {
 public:
  explicit pickle_machine(std::string_view content) : content_{content} {}

  pickle run()
  {
    if (!pickle::is_pickle(content_)) { throw bad_pickle{0, "this is not a pickle of protocol 2 to 5"}; }
    while (!is_done_) {
      begin_ = at_;
      step(static_cast<unsigned char>(take(1).front()));
    }
    return std::move(result_);
  }

 private:
  using type  = pickle::type;
  using value = pickle::value;

  [[noreturn]] void fail(std::string const& problem) const { throw bad_pickle{begin_, problem}; }

  [[nodiscard]] std::string_view take(std::uint64_t count)
  {
    if (count > content_.size() - at_) { throw bad_pickle{begin_, "the file ends within what begins here"}; }
    auto const taken = content_.substr(at_, count);
    at_ += count;
    return taken;
  }

  /// Takes a little-endian number of `count` bytes, at most 8.
  [[nodiscard]] std::uint64_t take_number(std::size_t count)
  {
    auto const bytes = take(count);
    std::uint64_t number{};
    for (std::size_t i = 0; i < count; ++i) {
      number |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return number;
  }

  [[nodiscard]] std::string_view take_line()
  {
    auto const end = content_.find('\n', at_);
    if (end == std::string_view::npos) { fail("the file ends within what begins here"); }
    auto const line = take(end - at_);
    ++at_;
    return line;
  }

  void push(type what, std::uint64_t bits) { stack_.emplace_back(what, bits); }

  void push_text(std::string_view text)
  {
    result_.texts_.push_back(text);
    push(type::text, result_.texts_.size() - 1);
  }

  void push_list(pickle::items items)
  {
    result_.lists_.push_back(std::move(items));
    push(type::list, result_.lists_.size() - 1);
  }

  void push_dict(pickle::pairs pairs)
  {
    result_.dicts_.push_back(std::move(pairs));
    push(type::dict, result_.dicts_.size() - 1);
  }

  [[nodiscard]] value& top()
  {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) { fail("an operation lacks its operand"); }
    return stack_.back();
  }

  [[nodiscard]] value pop()
  {
    auto const popped = top();
    stack_.pop_back();
    return popped;
  }

  [[nodiscard]] pickle::items pop(std::size_t count)
  {
    auto const floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) { fail("an operation lacks its operands"); }
    pickle::items items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }

  [[nodiscard]] pickle::items pop_to_mark()
  {
    if (marks_.empty()) { fail("an operation lacks its mark"); }
    auto items = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }

  void append(pickle::items const& items)
  {
    if (!top().is(type::list)) { fail("items are added to a value that is not a list"); }
    auto& list = result_.lists_[top().bits()];
    list.insert(list.end(), items.begin(), items.end());
  }

  void set(pickle::items const& items)
  {
    if (items.size() % 2 != 0) { fail("a key lacks its value"); }
    if (!top().is(type::dict)) { fail("keys are added to a value that is not a dict"); }
    auto& dict = result_.dicts_[top().bits()];
    for (std::size_t i = 0; i < items.size(); i += 2) { dict.emplace_back(items[i], items[i + 1]); }
  }

  void remember(std::uint64_t number)
  {
    if (number > content_.size()) { fail("the number of a value is too large"); }
    if (number >= memo_.size()) { memo_.resize(number + 1); }
    memo_[number] = {top(), true};
  }

  void recall(std::uint64_t number)
  {
    if (number >= memo_.size() || !memo_[number].second) { fail("a value is used before it has a number"); }
    stack_.push_back(memo_[number].first);
  }

  /// Pushes an integer of any length.
  void push_long(std::uint64_t length)
  {
    auto const bytes = take(length);
    std::uint64_t bits{};
    auto const fill = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U) != 0 ? '\xFF' : '\0';
    for (std::size_t i = 0; i < bytes.size() || i < sizeof bits; ++i) {
      auto const byte = i < bytes.size() ? bytes[i] : fill;
      if (i < sizeof bits) {
        bits |= std::uint64_t{static_cast<unsigned char>(byte)} << (8 * i);
      } else if (byte != fill) {
        fail("an integer is too large");
      }
    }
    push(fill == '\0' ? type::integer : type::negative, bits);
  }

  void push_real()
  {
    std::uint64_t bits{};
    for (char const each : take(sizeof bits)) { bits = bits << 8U | static_cast<unsigned char>(each); }
    push(type::real, bits);
  }

  void push_global(std::string_view module, std::string_view name)
  {
    if (module != "torch.jit._pickle" || name != "restore_type_tag") {
      auto const asked = rmm::detail::quoted(std::string{module}.append(".").append(name));
      fail("the pickle asks for " + asked + ", so it is not plain data");
    }
    push(type::mark_of_type, 0);
  }

  /// Executes the only allowed call, which returns its first argument.
  void reduce()
  {
    auto const arguments = pop();
    if (!pop().is(type::mark_of_type) || !arguments.is(type::list) || result_.list(arguments).empty()) {
      fail("the pickle calls a function, so it is not plain data");
    }
    stack_.push_back(result_.list(arguments).front());
  }

  void step(unsigned char operation)
  {
    switch (operation) {
      case 0x80:  // PROTO
        static_cast<void>(take(1));
        return;
      case 0x95:  // FRAME
        if (take_number(8) > content_.size() - at_) { fail("the file ends within the frame that begins here"); }
        return;
      case '(':
        marks_.push_back(stack_.size());
        return;
      case '.':
        if (!marks_.empty()) { fail("the file ends within a list"); }
        result_.root_ = pop();
        is_done_      = true;
        return;
      case 'N':
        return push(type::none, 0);
      case 0x88:  // NEWTRUE
        return push(type::boolean, 1);
      case 0x89:  // NEWFALSE
        return push(type::boolean, 0);
      case 'J': {
        auto const number      = take_number(4);
        bool const is_negative = number >> 31U != 0;
        return push(is_negative ? type::negative : type::integer,
                    number | (is_negative ? ~std::uint64_t{0} << 32U : 0));
      }
      case 'K':
        return push(type::integer, take_number(1));
      case 'M':
        return push(type::integer, take_number(2));
      case 0x8A:  // LONG1
        return push_long(take_number(1));
      case 0x8B:  // LONG4
        return push_long(take_number(4));
      case 'G':
        return push_real();
      case 0x8C:  // SHORT_BINUNICODE
      case 'U':
      case 'C':
        return push_text(take(take_number(1)));
      case 'X':
      case 'T':
      case 'B':
        return push_text(take(take_number(4)));
      case 0x8D:  // BINUNICODE8
      case 0x8E:  // BINBYTES8
        return push_text(take(take_number(8)));
      case ']':
      case ')':
        return push_list({});
      case '}':
        return push_dict({});
      case 'a':
        return append(pop(1));
      case 'e':
        return append(pop_to_mark());
      case 's':
        return set(pop(2));
      case 'u':
        return set(pop_to_mark());
      case 'l':
      case 't':
        return push_list(pop_to_mark());
      case 'd': {
        auto const items = pop_to_mark();
        push_dict({});
        return set(items);
      }
      case 0x85:
      case 0x86:
      case 0x87:  // TUPLE1, 2, 3
        return push_list(pop(operation - 0x84U));
      case 0x94:  // MEMOIZE
        return remember(memo_.size());
      case 'q':
        return remember(take_number(1));
      case 'r':
        return remember(take_number(4));
      case 'h':
        return recall(take_number(1));
      case 'j':
        return recall(take_number(4));
      case '0':
        static_cast<void>(pop());
        return;
      case 'c': {
        auto const module = take_line();
        return push_global(module, take_line());
      }
      case 0x93: {  // STACK_GLOBAL
        auto const name   = pop();
        auto const module = pop();
        if (!name.is(type::text) || !module.is(type::text)) { fail("an operation has operands of wrong types"); }
        return push_global(result_.text(module), result_.text(name));
      }
      case 'R':
        return reduce();
      default: {
        char text[5];
        std::snprintf(text, sizeof text, "0x%02x", unsigned{operation});
        fail(std::string{"operation "} + text + " is not one of plain data");
      }
    }
  }

  std::string_view content_;
  std::uint64_t at_{0};
  std::uint64_t begin_{0};  // of the present operation
  bool is_done_{false};
  pickle result_;
  std::vector<value> stack_;
  std::vector<std::size_t> marks_;            // heights of the stack
  std::vector<std::pair<value, bool>> memo_;  // values, and whether they were set
};

pickle pickle::read(std::string_view content) { return pickle_machine{content}.run(); }

bool pickle::is_pickle(std::string_view content) noexcept
{
  return content.size() >= 2 && content[0] == '\x80' && content[1] >= 2 && content[1] <= 5;
}

pickle::value pickle::find(value in, std::string_view key) const
{
  if (!in.is(type::dict)) { return {}; }
  auto const& entries = dict(in);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {  // the last entry with a key counts
    if (entry->first.is(type::text) && text(entry->first) == key) { return entry->second; }
  }
  return {};
}

}  // namespace rmm::recorded
