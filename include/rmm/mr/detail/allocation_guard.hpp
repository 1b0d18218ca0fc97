// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/log_time.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/fill.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/cuda/stream.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stack_trace.hpp>
#include <rmm/error.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <locale>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

/// An error that a guard_resource_adaptor found.
struct guard_violation {
  enum class kind {
    double_free,       ///< memory was freed twice
    unknown_pointer,   ///< memory was freed that the adaptor did not allocate, or that was freed long ago
    wrong_size,        ///< memory was freed with another size than that of its allocation
    overrun,           ///< bytes after an allocation were written
    underrun,          ///< bytes before an allocation were written
    write_after_free,  ///< an allocation was written after it was freed
  };

  kind what;
  void const* ptr;        ///< the allocation
  std::size_t bytes;      ///< its size; for an unknown pointer, the size in the call that freed it
  std::ptrdiff_t offset;  ///< offset of the first wrong byte from the allocation; 0 if no write was found
  std::string report;     ///< a text of several lines, with the call stacks of the allocation and the first free
};

/// Options of a guard_resource_adaptor.
struct guard_options {
  /// Size of the red zones: bytes before and after each allocation that must not be written. Rounded up to CUDA_ALLOCATION_ALIGNMENT.
  std::size_t red_zone_bytes{CUDA_ALLOCATION_ALIGNMENT};

  /// Bytes of the quarantine: the memory that was freed last is not allocated again, so that later writes and frees are detected.
  std::size_t quarantine_bytes{std::size_t{16} << 20U};

  /// Whether to record the call stacks of allocations and frees for reports.
  bool capture_stacks{true};

  /// Called for each violation, on the thread that detected it, without a lock. Must not throw. Without a handler, the report is
  /// written to standard error, and the program aborts.
  std::function<void(guard_violation const&)> handler{};
};

namespace detail {

/// The records and checks of a guard_resource_adaptor. It fills red zones with `zone_byte`, and new allocations with `fresh_byte`. It
/// overwrites freed allocations and their red zones with `freed_byte`. Thread-safe.
class allocation_guard {
 public:
  static constexpr unsigned char zone_byte  = 0xFA;
  static constexpr unsigned char fresh_byte = 0xCD;
  static constexpr unsigned char freed_byte = 0xDD;

  /// Throws out_of_memory if rounding the size of the red zone overflows.
  explicit allocation_guard(guard_options options) : options_{std::move(options)}
  {
    options_.red_zone_bytes = rmm::detail::checked_align_up(rmm::detail::max<std::size_t>(options_.red_zone_bytes, 1),
                                                            CUDA_ALLOCATION_ALIGNMENT);
  }

  /// Returns the size to allocate from upstream for `bytes` bytes. Throws out_of_memory if it overflows.
  [[nodiscard]] std::size_t size_with_zones(std::size_t bytes) const
  {
    return rmm::detail::checked_add(bytes, rmm::detail::checked_multiply(2, options_.red_zone_bytes));
  }

  /// Records a new block and fills it. Returns the allocation in it. Throws cuda_error or std::bad_alloc.
  [[nodiscard]] RMM_COLD void* begin(void* base, std::size_t bytes, cudaStream_t stream)
  {
    auto* const ptr = static_cast<unsigned char*>(base) + options_.red_zone_bytes;
    record made{base, bytes, rmm::detail::query_capture(stream).is_none(), current_place(), {}};
    if (made.is_filled) {
      rmm::detail::capture_exemption const exemption;
      rmm::detail::fill_async(base, zone_byte, options_.red_zone_bytes, stream);
      rmm::detail::fill_async(ptr, fresh_byte, bytes, stream);
      rmm::detail::fill_async(ptr + bytes, zone_byte, options_.red_zone_bytes, stream);
    }
    rmm::detail::mutex_lock const lock{mutex_};
    live_.insert_or_assign(ptr, std::move(made));
    return ptr;
  }

  /// Whether `ptr` is a live allocation.
  [[nodiscard]] bool has(void* ptr)
  {
    rmm::detail::mutex_lock const lock{mutex_};
    return live_.count(ptr) != 0;
  }

  /// Checks a freed allocation, and overwrites it. Calls `give_back(base, bytes)` for each block that goes back to upstream now: this
  /// block, or older ones from the quarantine. `stream` is the stream of the free. Waits for the stream, unless it captures. Checks only
  /// the size if the block was allocated or is freed in a capture, if host memory runs out, or if the runtime fails.
  template <class GiveBack>
  RMM_COLD void end(void* ptr, std::size_t bytes, cudaStream_t stream, GiveBack&& give_back) noexcept
  {
    auto taken = take(ptr);
    if (!taken) { return report_unknown(ptr, bytes); }
    auto& block = *taken;
    if (block.bytes != bytes) { report(guard_violation::kind::wrong_size, ptr, block, 0, bytes); }
    bool const is_checked = block.is_filled && rmm::detail::query_capture(stream).is_none();
    bool const is_idle    = is_checked && check_and_overwrite(ptr, block, stream);
    block.freed           = try_current_place();
    auto* const base      = block.base;
    auto const total      = block.bytes + 2 * options_.red_zone_bytes;
    bool const is_kept    = retire(ptr, std::move(block), is_idle);
    if (is_idle) { shrink_quarantine(options_.quarantine_bytes, stream, give_back); }
    if (!is_kept) { give_back(base, total); }
  }

  /// Checks all blocks in quarantine, and calls `give_back(base, bytes)` for each. Returns whether there were any.
  template <class GiveBack>
  RMM_COLD bool give_up_quarantine(cudaStream_t stream, GiveBack&& give_back) noexcept
  {
    return shrink_quarantine(0, stream, give_back);
  }

 private:
  struct place {
    long thread{};
    std::shared_ptr<rmm::detail::stack_trace> stack{};
  };

  struct record {
    void* base;
    std::size_t bytes;
    bool is_filled;  // whether the red zones were filled: not in a capture
    place allocated;
    place freed;
  };

  struct freed_record {
    void* ptr;
    record block;
  };

  [[nodiscard]] place current_place() const
  {
    return {rmm::detail::thread_number(),
            options_.capture_stacks ? std::make_shared<rmm::detail::stack_trace>() : nullptr};
  }

  [[nodiscard]] place try_current_place() const noexcept
  {
    try {
      return current_place();
    } catch (std::bad_alloc const&) {
      return {rmm::detail::thread_number(), nullptr};
    }
  }

  [[nodiscard]] std::optional<record> take(void* ptr)
  {
    rmm::detail::mutex_lock const lock{mutex_};
    auto const found = live_.find(ptr);
    if (found == live_.end()) { return {}; }
    std::optional<record> taken{std::move(found->second)};
    live_.erase(found);
    return taken;
  }

  /// Checks the red zones, and overwrites the block. Returns false if host memory runs out, or the runtime fails, for example at exit.
  bool check_and_overwrite(void* ptr, record const& block, cudaStream_t stream) noexcept
  {
    auto* const begin = static_cast<unsigned char*>(ptr);
    auto const zone   = options_.red_zone_bytes;
    std::vector<unsigned char> before;
    std::vector<unsigned char> after;
    try {
      rmm::detail::capture_exemption const exemption;  // a copy to pageable memory invalidates captures of others
      before.resize(zone);
      after.resize(zone);
      rmm::detail::copy_async(before.data(), begin - zone, zone, stream);
      rmm::detail::copy_async(after.data(), begin + block.bytes, zone, stream);
      rmm::detail::fill_async(block.base, freed_byte, block.bytes + 2 * zone, stream);
      rmm::detail::synchronize_stream(stream);
    } catch (std::exception const& e) {
      rmm::detail::log(rmm::detail::log_level::warn, e.what());
      return false;
    }
    using kind       = guard_violation::kind;
    auto const wrong = [](unsigned char byte) { return byte != zone_byte; };
    auto const under = rmm::detail::find_if(before.begin(), before.end(), wrong);
    if (under != before.end()) {
      report(kind::underrun, ptr, block, (under - before.begin()) - static_cast<std::ptrdiff_t>(zone));
    }
    auto const over = rmm::detail::find_if(after.begin(), after.end(), wrong);
    if (over != after.end()) {
      report(kind::overrun, ptr, block, static_cast<std::ptrdiff_t>(block.bytes) + (over - after.begin()));
    }
    return true;
  }

  /// Adds a freed allocation to the quarantine if it fits and is idle, else to the history. Returns whether it is in quarantine.
  bool retire(void* ptr, record block, bool is_idle) noexcept
  {
    auto const total = block.bytes + 2 * options_.red_zone_bytes;
    bool const kept  = is_idle && total <= options_.quarantine_bytes;
    try {
      rmm::detail::mutex_lock const lock{mutex_};
      if (kept) {
        quarantine_.push_back({ptr, std::move(block)});
        quarantined_bytes_ += total;
      } else {
        remember({ptr, std::move(block)});
      }
      return kept;
    } catch (std::bad_alloc const&) {
      return false;
    }
  }

  /// Ends the quarantine of the oldest blocks until at most `bytes` are left. Returns whether it ended any.
  template <class GiveBack>
  bool shrink_quarantine(std::size_t bytes, cudaStream_t stream, GiveBack& give_back) noexcept
  {
    bool any = false;
    for (auto ended = end_oldest(bytes); ended; ended = end_oldest(bytes)) {
      auto const& [ptr, block] = *ended;
      any                      = true;
      if (rmm::detail::query_capture(stream).is_none()) { check_freed(ptr, block, stream); }
      give_back(block.base, block.bytes + 2 * options_.red_zone_bytes);
    }
    return any;
  }

  /// Removes the oldest block from the quarantine, and returns it. Returns nothing if the quarantine has at most `bytes`.
  [[nodiscard]] std::optional<freed_record> end_oldest(std::size_t bytes) noexcept
  {
    rmm::detail::mutex_lock const lock{mutex_};
    if (quarantined_bytes_ <= bytes) { return {}; }
    std::optional<freed_record> oldest{std::move(quarantine_.front())};
    quarantine_.pop_front();
    quarantined_bytes_ -= oldest->block.bytes + 2 * options_.red_zone_bytes;
    try {
      remember(*oldest);
    } catch (std::bad_alloc const&) {}  // a later free of the same pointer is reported without where the first one was
    return oldest;
  }

  /// Adds a freed allocation that is not in quarantine to the history. Requires the mutex. Throws std::bad_alloc.
  void remember(freed_record freed)
  {
    history_.push_back(std::move(freed));
    if (history_.size() > longest_history) { history_.pop_front(); }
  }

  void check_freed(void* ptr, record const& block, cudaStream_t stream) noexcept
  {
    constexpr std::size_t at_once = std::size_t{1} << 20U;
    auto const total              = block.bytes + 2 * options_.red_zone_bytes;
    std::vector<unsigned char> seen;
    for (std::size_t begin = 0; begin < total; begin += seen.size()) {
      auto const count = rmm::detail::min(total - begin, at_once);
      try {
        rmm::detail::capture_exemption const exemption;
        seen.resize(count);
        rmm::detail::copy_async(seen.data(), static_cast<unsigned char*>(block.base) + begin, count, stream);
        rmm::detail::synchronize_stream(stream);
      } catch (std::exception const& e) {
        rmm::detail::log(rmm::detail::log_level::warn, e.what());
        return;
      }
      auto const wrong =
        rmm::detail::find_if(seen.begin(), seen.end(), [](unsigned char byte) { return byte != freed_byte; });
      if (wrong != seen.end()) {
        auto const offset = static_cast<std::ptrdiff_t>(begin) + (wrong - seen.begin());
        report(guard_violation::kind::write_after_free,
               ptr,
               block,
               offset - static_cast<std::ptrdiff_t>(options_.red_zone_bytes));
        return;
      }
    }
  }

  void report_unknown(void* ptr, std::size_t bytes) const noexcept
  {
    std::optional<record> first;
    {
      rmm::detail::mutex_lock const lock{mutex_};
      auto const is_it = [&](freed_record const& each) { return each.ptr == ptr; };
      auto const kept  = rmm::detail::find_if(quarantine_.rbegin(), quarantine_.rend(), is_it);
      auto const found = rmm::detail::find_if(history_.rbegin(), history_.rend(), is_it);
      if (kept != quarantine_.rend()) {
        first = kept->block;
      } else if (found != history_.rend()) {
        first = found->block;
      }
    }
    if (first) { return report(guard_violation::kind::double_free, ptr, *first, 0); }
    report(guard_violation::kind::unknown_pointer, ptr, {nullptr, bytes, false, {}, {}}, 0);
  }

  /// Reports a violation. The text stays empty if host memory runs out.
  void report(guard_violation::kind what,
              void const* ptr,
              record const& block,
              std::ptrdiff_t offset,
              std::optional<std::size_t> freed_as = {}) const noexcept
  {
    guard_violation violation{what, ptr, block.bytes, offset, {}};
    try {
      violation.report = text_of(violation, block, freed_as);
    } catch (std::bad_alloc const&) {
      std::fprintf(stderr, "RMM guard: %s; host memory ran out before the report was written\n", describe(what));
    }
    rmm::detail::log(rmm::detail::log_level::critical, violation.report.c_str());
    if (options_.handler) { return options_.handler(violation); }
    std::fputs(violation.report.c_str(), stderr);
    std::abort();
  }

  [[nodiscard]] std::string text_of(guard_violation const& violation,
                                    record const& block,
                                    std::optional<std::size_t> freed_as) const
  {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << "RMM guard: " << describe(violation.what) << ": " << violation.ptr << ", " << block.bytes << " bytes";
    if (freed_as) { text << ", freed as " << *freed_as << " bytes"; }
    if (violation.offset != 0 || is_write(violation.what)) { text << ", first at offset " << violation.offset; }
    text << '\n';
    print_place(text, "detected", current_place());
    if (block.freed.thread != 0) { print_place(text, "freed", block.freed); }
    if (block.allocated.thread != 0) { print_place(text, "allocated", block.allocated); }
    return text.str();
  }

  static void print_place(std::ostream& out, char const* what, place const& where)
  {
    out << "  " << what << " by thread " << where.thread << '\n';
    if (where.stack != nullptr) { out << *where.stack; }
  }

  [[nodiscard]] static bool is_write(guard_violation::kind what) noexcept
  {
    using kind = guard_violation::kind;
    return what == kind::overrun || what == kind::underrun || what == kind::write_after_free;
  }

  [[nodiscard]] static char const* describe(guard_violation::kind what) noexcept
  {
    using kind = guard_violation::kind;
    switch (what) {
      case kind::double_free:
        return "memory was freed twice";
      case kind::unknown_pointer:
        return "memory was freed that this guard did not allocate";
      case kind::wrong_size:
        return "memory was freed with another size than that of its allocation";
      case kind::overrun:
        return "memory was written after its end";
      case kind::underrun:
        return "memory was written before its beginning";
      case kind::write_after_free:
        return "memory was written after it was freed";
    }
    return "";
  }

  static constexpr std::size_t longest_history = 4096;

  guard_options options_;
  mutable rmm::detail::mutex
    mutex_;  // guards the members below; not held during a wait for the device or a call of the handler
  std::unordered_map<void*, record> live_;
  std::deque<freed_record> quarantine_;  // oldest first
  std::deque<freed_record> history_;     // what was freed and is not in quarantine, oldest first
  std::size_t quarantined_bytes_{0};
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
