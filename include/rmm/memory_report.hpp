// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/recovery.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {

/// A report why a pool could not serve an allocation, with the memory of the pool and the device at that time. Use it to decide what to
/// free, or to log the state. See docs/out-of-memory.md.
///
/// Other threads may allocate while the report is made, so its figures are not from exactly one moment.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::arena_memory_resource arena{&cuda, std::size_t{1} << 20};
/// try {
///   rmm::device_buffer const buffer{2 << 20, rmm::cuda_stream_default, arena};
/// } catch (rmm::out_of_memory const& e) {
///   if (e.report() != nullptr) { std::printf("%zu bytes were free\n", e.report()->pool.free_bytes); }
/// }
/// @endcode
struct memory_report {
  /// The live allocations of one tag.
  struct holder {
    std::string tag;  ///< empty: allocated under no tag
    std::size_t bytes{};
    std::size_t allocations{};
  };

  /// The memory of a device.
  struct device_memory {
    std::size_t free_bytes{};
    std::size_t total_bytes{};
  };

  std::size_t asked_bytes{};                    ///< the requested bytes
  std::size_t alignment_bytes{};                ///< the alignment that the memory would have had
  cuda_stream_view stream;                      ///< the stream of the request; it may be destroyed by now
  int device{-1};                               ///< the pool's device; of a reservation, the caller's; -1 if unknown
  std::string reason;                           ///< the last failure, in words
  heap_figures pool{};                          ///< the figures of the pool
  std::optional<std::size_t> maximum_bytes;     ///< the most bytes that the pool may reserve; nothing: no limit
  std::optional<device_memory> device_figures;  ///< the device's memory; nothing for host memory or if unknown
  bool is_of_device{true};                      ///< whether all memory of the pool is device memory

  recovery_order order{};                                  ///< the rungs that the pool tries, in order
  std::array<std::uint32_t, recovery_rung_count> tries{};  ///< how often each rung was tried for this allocation

  bool tags_tracked{};          ///< whether the pool tracks tags; false for reservations, whose blocks have none
  std::vector<holder> holders;  ///< the live allocations by tag, in descending order of bytes

  std::exception_ptr cause;  ///< the exception whose text is `reason`; null if there was none

  /// Returns how often `rung` was tried for this allocation.
  [[nodiscard]] std::uint32_t tries_of(recovery_rung rung) const noexcept
  {
    return tries[static_cast<std::size_t>(rung)];
  }

  /// Returns the bytes of the device that are neither free nor the pool's: those of other pools and allocations of this process, of other
  /// processes, and of the runtime. Nothing without device_figures, if the pool has memory of the host (pinned or managed), or if the
  /// figures contradict each other, because they are not from one moment.
  [[nodiscard]] std::optional<std::size_t> held_by_others() const noexcept
  {
    if (!is_of_device || !device_figures || device_figures->free_bytes > device_figures->total_bytes) {
      return std::nullopt;
    }
    auto const used = device_figures->total_bytes - device_figures->free_bytes;
    return used < pool.reserved_bytes ? std::nullopt : std::optional<std::size_t>{used - pool.reserved_bytes};
  }

  /// Returns the report as several lines, without an end of line after the last.
  [[nodiscard]] RMM_COLD std::string text() const
  {
    return "  asked: " + request_text() + "\n  pool: " + pool_text() + "\n  device: " + device_text() +
           "\n  tried: " + tries_text() + "\n  holders: " + holders_text();
  }

 private:
  static constexpr std::size_t most_holders_in_text = 8;

  [[nodiscard]] static std::string sized(std::size_t bytes) { return detail::format_bytes(bytes); }

  [[nodiscard]] std::string request_text() const
  {
    return sized(asked_bytes) + " (" + std::to_string(asked_bytes) + " bytes), aligned to " +
           std::to_string(alignment_bytes) + ", on stream " + detail::format_stream(stream) +
           (device < 0 ? std::string{", device unknown"} : ", device " + std::to_string(device));
  }

  [[nodiscard]] std::string pool_text() const
  {
    auto const per_cent = static_cast<int>(100 * pool.fragmentation() + 0.5);
    return sized(pool.reserved_bytes) + " reserved in " + std::to_string(pool.upstream_blocks) + " blocks, " +
           (maximum_bytes ? "at most " + sized(*maximum_bytes) : std::string{"no maximum"}) + "; " +
           sized(pool.live_bytes) + " live, " + sized(pool.free_bytes) + " free (" + sized(pool.cached_bytes) +
           " of it in caches), the largest range " + sized(pool.largest_free_bytes) + ", fragmentation " +
           std::to_string(per_cent) + " %";
  }

  [[nodiscard]] std::string device_text() const
  {
    if (!device_figures) { return "unknown"; }
    auto const others = held_by_others();
    return sized(device_figures->free_bytes) + " free of " + sized(device_figures->total_bytes) +
           (others ? "; " + sized(*others) + " held by others" : std::string{});
  }

  [[nodiscard]] std::string tries_text() const
  {
    std::string text;
    for (auto const rung : order) {
      if (tries_of(rung) == 0) { continue; }
      text += (text.empty() ? "" : ", ") + std::string{name_of(rung)};
      if (tries_of(rung) != 1) { text += " " + std::to_string(tries_of(rung)) + " times"; }
    }
    if (text.empty()) { text = "nothing"; }
    auto const failures = pool.recovery.failures;
    if (failures == 0) { return text; }  // reservations do not count their failures
    return text + "; " + std::to_string(failures) + (failures == 1 ? " failure" : " failures") + " of this pool so far";
  }

  [[nodiscard]] std::string holders_text() const
  {
    if (!tags_tracked) { return "unknown, because no tags are tracked here: pools track them after track_tags()"; }
    if (holders.empty()) { return "none"; }
    std::string text;
    for (std::size_t i = 0; i < holders.size() && i < most_holders_in_text; ++i) {
      auto const& each = holders[i];
      text += (text.empty() ? "" : ", ") + (each.tag.empty() ? std::string{"(no tag)"} : each.tag) + " " +
              sized(each.bytes) + " in " + std::to_string(each.allocations);
    }
    if (holders.size() > most_holders_in_text) {
      text += ", and " + std::to_string(holders.size() - most_holders_in_text) + " more";
    }
    return text;
  }
};

namespace detail {

/// A reference-counted report, which the copies of an exception share.
///
/// Order: as in detail::counted_ptr. The last owner sees all uses of the others.
class counted_report final : public shared_report {
 public:
  explicit counted_report(memory_report report) : report_{std::move(report)} {}

  void acquire() const noexcept override { owners_.fetch_add(1, std::memory_order_relaxed); }
  void release() const noexcept override
  {
    if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) { delete this; }
  }
  [[nodiscard]] memory_report const& get() const noexcept override { return report_; }

 private:
  ~counted_report() = default;

  memory_report report_;
  mutable std::atomic<std::size_t> owners_{1};
};

/// Throws out_of_memory with `message` and the report in further lines; with the message alone if host memory runs out.
[[noreturn]] RMM_COLD inline void throw_out_of_memory(std::string const& message, memory_report const& report)
{
  std::optional<out_of_memory> with_report;
  try {
    auto const* const shared = new counted_report{report};
    scope_guard const drop{[&]() noexcept { shared->release(); }};
    with_report.emplace(message + "\n" + report.text(), *shared);
  } catch (std::exception const&) {
    throw out_of_memory{message};
  }
  throw *with_report;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
