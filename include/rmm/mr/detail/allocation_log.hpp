// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/log_time.hpp>
#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/base/text_sink.hpp>
#include <rmm/detail/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A log of allocations and deallocations in CSV format, in the order of their times. Thread-safe.
///
/// A row that cannot be written is dropped without an exception: an exception right after an allocation would leak the memory.
class allocation_log {
 public:
  using sink_list = std::vector<std::shared_ptr<rmm::detail::text_sink>>;

  static constexpr char const* header = "Thread,Time,Action,Pointer,Size,Stream";

  /// Writes the header. With `auto_flush`, each line is flushed at once; otherwise flush() and the destructor flush.
  allocation_log(sink_list sinks, bool auto_flush) : sinks_{std::move(sinks)}, auto_flush_{auto_flush}
  {
    write(std::string{header} + "\n");
  }

  allocation_log(allocation_log const&)            = delete;
  allocation_log& operator=(allocation_log const&) = delete;

  ~allocation_log()
  {
    try {
      flush();
    } catch (...) {  // rows are lost: see the class
    }
  }

  void add(char const* action, void const* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    row text;
    text.add(static_cast<std::size_t>(rmm::detail::thread_number()), 10);
    text.add(",");
    auto* const time = text.leave(row::time_length);
    text.add(",");
    text.add(action);
    text.add(",0x");
    text.add(reinterpret_cast<std::size_t>(ptr), 16);
    text.add(",");
    text.add(bytes, 10);
    text.add(",0x");
    text.add(reinterpret_cast<std::size_t>(stream.value()), 16);
    text.add("\n");
    mutex_.run([&]() noexcept {
      row::put_time(time, rmm::detail::wall_clock::now());
      try {
        write(text.view());
      } catch (...) {  // the row is lost: see the class
      }
    });
  }

  void flush()
  {
    for (auto const& sink : sinks_) { sink->flush(); }
  }

 private:
  /// The text of a row. Much faster than snprintf(), and all but the time is there before the log is locked.
  class row {
   public:
    static constexpr std::size_t time_length = 15;  // 12:34:56.123456

    /// Leaves a place of so many characters. Returns its beginning.
    [[nodiscard]] char* leave(std::size_t length) noexcept
    {
      length_ += length;
      RMM_ASSERT(length_ <= text_.size());
      return text_.data() + length_ - length;
    }

    void add(std::string_view text) noexcept
    {
      text = text.substr(0, longest_text);
      text.copy(leave(text.size()), text.size());
    }

    /// Adds a number in decimal or hexadecimal digits.
    void add(std::size_t number, std::size_t base) noexcept
    {
      std::size_t digits = 1;
      for (auto rest = number / base; rest != 0; rest /= base) { ++digits; }
      put(leave(digits), digits, number, base);
    }

    /// Puts a time into a place of `time_length` characters.
    static void put_time(char* place, rmm::detail::time_of_day const& time) noexcept
    {
      put(place, 2, static_cast<std::size_t>(time.hour), 10);
      put(place + 3, 2, static_cast<std::size_t>(time.minute), 10);
      put(place + 6, 2, static_cast<std::size_t>(time.second), 10);
      put(place + 9, 6, static_cast<std::size_t>(time.microsecond), 10);
      place[2] = place[5] = ':';
      place[8]            = '.';
    }

    [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), length_}; }

   private:
    static constexpr std::size_t longest_text = 32;

    /// Puts the last `digits` digits of a number.
    static void put(char* place, std::size_t digits, std::size_t number, std::size_t base) noexcept
    {
      for (; digits-- != 0; number /= base) { place[digits] = "0123456789abcdef"[number % base]; }
    }

    std::array<char, 192> text_;
    std::size_t length_{0};
  };

  void write(std::string_view line)
  {
    for (auto const& sink : sinks_) {
      sink->write(line);
      if (auto_flush_) { sink->flush(); }
    }
  }

  sink_list sinks_;
  bool auto_flush_;
  // Held from reading the clock to writing, so that rows are in the order of their times.
  rmm::detail::spinning_mutex mutex_;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
