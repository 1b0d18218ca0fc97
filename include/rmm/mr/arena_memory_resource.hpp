// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/text_sink.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/logger_frontend.hpp>  // IWYU pragma: export
#include <rmm/detail/nvtx/memory_marks.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/recovery_ladder.hpp>
#include <rmm/mr/detail/suballocator.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>
#include <rmm/recovery.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

namespace RMM_NAMESPACE {
namespace mr {

/// A pool of fixed size: it takes one block from upstream when it is made, and never asks for more. Use it to give a program a fixed
/// share of the device. A pool_memory_resource grows.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::arena_memory_resource arena{&cuda, std::size_t{1} << 20};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, arena};
/// @endcode
template <class Upstream>
class arena_memory_resource final : public detail::suballocator {
 public:
  /// Takes `arena_size` bytes, rounded down to 256, from upstream. Without a size, takes half of the device's free memory.
  ///
  /// With `dump_log_on_failure`, empties rmm_arena_memory_dump.log in the working directory; a request that fails writes a report to it.
  /// Throws logic_error if `upstream` is null or the size is below 1 MiB, and std::runtime_error if that file cannot be opened. Exceptions
  /// of upstream propagate.
  explicit arena_memory_resource(Upstream* upstream,
                                 std::optional<std::size_t> arena_size = std::nullopt,
                                 bool dump_log_on_failure              = false)
    : arena_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, arena_size, dump_log_on_failure}
  {}

  /// Makes an arena over the resource that `upstream` refers to.
  explicit arena_memory_resource(device_async_resource_ref upstream,
                                 std::optional<std::size_t> arena_size = std::nullopt,
                                 bool dump_log_on_failure              = false)
    : arena_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, arena_size, dump_log_on_failure}
  {}

 private:
  static constexpr std::size_t minimum_size   = std::size_t{1} << 20;
  static constexpr char const* dump_file_name = "rmm_arena_memory_dump.log";

  arena_memory_resource(detail::suballocator_upstream<Upstream> upstream,
                        std::optional<std::size_t> arena_size,
                        bool dump_log_on_failure)
    : suballocator{recovery_rung::synchronize},
      upstream_{upstream},
      arena_size_{align_down(arena_size ? *arena_size : available_device_memory().first / 2, CUDA_ALLOCATION_ALIGNMENT)}
  {
    RMM_EXPECTS(arena_size_ >= minimum_size,
                "The arena size is " + rmm::detail::format_bytes(arena_size_) + ", below the minimum of 1 MiB");
    if (dump_log_on_failure) { dump_file_.emplace(dump_file_name, rmm::detail::file_sink::mode::truncate); }
    source_.add(arena_size_, 0, cuda_stream_legacy);
    arena_ = heap_.blocks().front().begin;
    heap_.settle();
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes == 0) { return nullptr; }
    auto const rounded = rmm::detail::checked_align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);
    void* const ptr    = heap_.try_allocate_local(rounded, stream);
    return rmm::detail::mark_allocated(ptr != nullptr ? ptr : allocate_slow(bytes, rounded, stream), bytes);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override
  {
    if (ptr == nullptr) { return; }
    auto const offset = reinterpret_cast<std::uintptr_t>(ptr) - arena_;
    if (offset >= arena_size_) {
      report_unknown(ptr, bytes);
      RMM_ASSERT(offset < arena_size_);
      return;
    }
    rmm::detail::mark_freed(ptr, bytes);
    heap_.deallocate(ptr, align_up(bytes, CUDA_ALLOCATION_ALIGNMENT), stream);
  }

  RMM_COLD static void report_unknown(void const* ptr, std::size_t bytes) noexcept
  {
    char text[160];  // on the stack, so that nothing can throw
    std::snprintf(
      text,
      sizeof text,
      "arena_memory_resource: allocation not found: %zu bytes at %p were freed, which this resource did not "
      "allocate",
      bytes,
      ptr);
    rmm::detail::log(rmm::detail::log_level::error, text);
  }

  [[nodiscard]] RMM_OUT_OF_LINE void* allocate_slow(std::size_t bytes, std::size_t rounded, cuda_stream_view stream)
  {
    auto const turns = ladder_.turns();
    void* const ptr  = heap_.try_allocate_after_local(rounded, stream);
    return ptr != nullptr ? ptr : climb_or_throw(bytes, rounded, stream, turns);
  }

  [[nodiscard]] RMM_COLD void* climb_or_throw(std::size_t bytes,
                                              std::size_t rounded,
                                              cuda_stream_view stream,
                                              std::uint64_t turns)
  {
    detail::recovery_rungs none;  // the arena has no rungs of its own
    detail::recovery_attempt climbing{bytes, stream, "No room in arena."};
    climbing.seen_turns = turns;
    if (void* const ptr = climb(none, climbing, rounded)) { return ptr; }
    throw_exhausted(climbing);
  }

  void describe(memory_report& report) const override
  {
    source_.describe(report);
    if (!dump_file_) { return; }
    try {
      dump(report.asked_bytes, report.pool);
    } catch (std::exception const& e) {
      rmm::detail::log(rmm::detail::log_level::error,
                       e.what());  // the exception with the report matters more than the file
    }
  }

  void dump(std::size_t bytes, heap_figures const& now) const
  {
    auto const per_cent = [](std::size_t part, std::size_t whole) { return whole == 0 ? 0 : 100 - part * 100 / whole; };
    rmm::detail::mutex_lock const lock{dump_mutex_};
    dump_file_->write("requested: " + rmm::detail::format_bytes(bytes) +
                      "\narena size: " + rmm::detail::format_bytes(arena_size_) +
                      "\nin use: " + rmm::detail::format_bytes(now.live_bytes) +
                      "\nfree: " + rmm::detail::format_bytes(now.free_bytes) +
                      "\nlargest free block: " + rmm::detail::format_bytes(now.largest_free_bytes) +
                      "\nfragmentation: " + std::to_string(per_cent(now.largest_free_bytes, now.free_bytes)) + " %\n");
    dump_file_->flush();
  }

  detail::suballocator_upstream<Upstream> upstream_;
  std::size_t arena_size_;
  std::uintptr_t arena_{};
  mutable rmm::detail::mutex dump_mutex_;
  mutable std::optional<rmm::detail::file_sink> dump_file_;
  detail::block_source<Upstream> source_{heap_, upstream_, arena_size_};
};

arena_memory_resource(device_async_resource_ref, std::optional<std::size_t> = std::nullopt, bool = false)
  ->arena_memory_resource<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
