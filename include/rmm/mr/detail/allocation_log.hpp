// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_time.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/text_sink.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
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
    try {
      rmm::detail::mutex_lock const lock{mutex_};
      auto const now = rmm::detail::wall_clock::now();
      char line[192];
      auto const length = std::snprintf(line,
                                        sizeof line,
                                        "%ld,%02d:%02d:%02d.%06ld,%s,0x%zx,%zu,0x%zx\n",
                                        rmm::detail::thread_number(),
                                        now.hour,
                                        now.minute,
                                        now.second,
                                        now.microsecond,
                                        action,
                                        reinterpret_cast<std::size_t>(ptr),
                                        bytes,
                                        reinterpret_cast<std::size_t>(stream.value()));
      write({line, static_cast<std::size_t>(length)});
    } catch (...) {  // the row is lost: see the class
    }
  }

  void flush()
  {
    for (auto const& sink : sinks_) { sink->flush(); }
  }

 private:
  void write(std::string_view line)
  {
    for (auto const& sink : sinks_) {
      sink->write(line);
      if (auto_flush_) { sink->flush(); }
    }
  }

  sink_list sinks_;
  bool auto_flush_;
  rmm::detail::mutex mutex_;  // held from reading the clock to writing, so that rows are in the order of their times
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
