// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/exit_action.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stack_trace.hpp>
#include <rmm/logger_macros.hpp>
#include <rmm/mr/detail/outstanding_allocations.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

/// When a tracking_resource_adaptor writes its leak report to standard error.
enum class leak_report {
  never,
  at_end  ///< when the adaptor is destroyed or the program ends, whichever comes first
};

/// An adaptor that records all live allocations, and on request their call stacks. Use it to find leaks.
///
/// It logs deallocations of unknown pointers and of wrong sizes as errors, and passes them on to upstream. It does not track allocations
/// of 0 bytes, because several of them can have one address. A forked child writes no leak report of its parent's adaptors, and they track
/// nothing there.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::tracking_resource_adaptor tracked{&cuda, true};  // records call stacks
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, tracked};
/// std::puts(tracked.get_leak_report().c_str());
/// @endcode
/// Threads  thread-safe if upstream is.
template <class Upstream>
class tracking_resource_adaptor final : public detail::resource_adaptor<tracking_resource_adaptor<Upstream>, Upstream> {
 public:
  using read_lock_t  = std::shared_lock<std::shared_mutex>;
  using write_lock_t = std::unique_lock<std::shared_mutex>;

  struct allocation_info {
    std::unique_ptr<rmm::detail::stack_trace> strace;  ///< null if not captured
    std::size_t allocation_size;

    allocation_info() = delete;

    /// Records the call stack if `capture_stack` is true.
    allocation_info(std::size_t size, bool capture_stack)
      : strace{capture_stack ? std::make_unique<rmm::detail::stack_trace>() : nullptr}, allocation_size{size}
    {}
  };

  /// `capture_stacks`  whether to record the call stack of each allocation. Functions are looked up when a stack is printed.
  /// Throws logic_error if `upstream` is null.
  tracking_resource_adaptor(Upstream* upstream, bool capture_stacks = false, leak_report leaks = leak_report::never)
    : tracking_resource_adaptor::resource_adaptor{upstream}, capture_stacks_{capture_stacks}
  {
    promise(leaks);
  }

  tracking_resource_adaptor(device_async_resource_ref upstream,
                            bool capture_stacks = false,
                            leak_report leaks   = leak_report::never)
    : tracking_resource_adaptor::resource_adaptor{upstream}, capture_stacks_{capture_stacks}
  {
    promise(leaks);
  }

  tracking_resource_adaptor(tracking_resource_adaptor const&)            = delete;
  tracking_resource_adaptor(tracking_resource_adaptor&&)                 = delete;
  tracking_resource_adaptor& operator=(tracking_resource_adaptor const&) = delete;
  tracking_resource_adaptor& operator=(tracking_resource_adaptor&&)      = delete;

  ~tracking_resource_adaptor() override
  {
    if (report_at_exit_ && this->is_of_this_process()) { write_leaks(); }
  }

  /// Returns the live table, keyed by address. It must not be read while other threads use the adaptor. The first call slows all later
  /// calls, because all threads then share one lock. get_outstanding_allocations_str() and get_leak_report() do not have that effect.
  [[nodiscard]] std::map<void*, allocation_info> const& get_outstanding_allocations() const noexcept
  {
    return allocations_->whole_table();
  }

  /// Returns the bytes of live allocations, less the bytes of frees whose memory was not allocated here. Never below 0.
  [[nodiscard]] std::size_t get_allocated_bytes() const noexcept { return allocations_->bytes(); }

  /// Returns a text with one entry for each live allocation: `<address>: <size> B`, and its call stack if it was recorded. Empty in a
  /// forked child.
  [[nodiscard]] std::string get_outstanding_allocations_str() const
  {
    if (!this->is_of_this_process()) { return {}; }  // a thread of the parent may have held a lock
    std::ostringstream text;
    text.imbue(std::locale::classic());
    allocations_->for_each([&](void* ptr, allocation_info const& info) {
      text << ptr << ": " << info.allocation_size << " B";
      if (info.strace != nullptr) { text << " : callstack:\n" << *info.strace; }
      text << "\n";
    });
    return text.str();
  }

  /// Returns a text with the sum of all live allocations, and then the sums for each recorded call stack, in descending order of bytes.
  /// Empty if there are no live allocations, and in a forked child.
  [[nodiscard]] RMM_COLD std::string get_leak_report() const
  {
    if (!this->is_of_this_process()) { return {}; }
    struct group {
      std::size_t allocations{};
      std::size_t bytes{};
      std::string stack{};
    };
    std::map<std::string, group> by_stack;
    group all;
    allocations_->for_each([&](void*, allocation_info const& info) {
      std::ostringstream stack;
      stack.imbue(std::locale::classic());
      if (info.strace != nullptr) { stack << *info.strace; }
      auto& same = by_stack[stack.str()];
      for (auto* const each : {&same, &all}) {
        each->allocations += 1;
        each->bytes += info.allocation_size;
      }
    });
    if (all.allocations == 0) { return {}; }
    std::vector<group> groups;
    for (auto& [stack, each] : by_stack) { groups.push_back({each.allocations, each.bytes, stack}); }
    std::sort(groups.begin(), groups.end(), [](group const& lhs, group const& rhs) {
      return lhs.bytes != rhs.bytes ? lhs.bytes > rhs.bytes : lhs.stack < rhs.stack;
    });
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << "RMM: " << all.bytes << " B in " << all.allocations << " allocations have not been freed\n";
    for (auto const& each : groups) {
      if (!each.stack.empty()) {
        text << each.bytes << " B in " << each.allocations << " allocations from\n" << each.stack;
      }
    }
    return text.str();
  }

  /// Logs get_outstanding_allocations_str() at level debug, which is compiled out by default.
  void log_outstanding_allocations() const
  {
    RMM_LOG_DEBUG("Outstanding Allocations: %s", get_outstanding_allocations_str());
  }

 private:
  void promise(leak_report leaks)
  {
    if (leaks == leak_report::never) { return; }
    report_at_exit_.emplace([](void* self) noexcept { static_cast<tracking_resource_adaptor*>(self)->write_leaks(); },
                            this);
  }

  /// Writes the leak report. Does nothing in a second call.
  RMM_COLD void write_leaks() noexcept
  {
    if (std::exchange(has_reported_, true)) { return; }
    try {
      std::fputs(get_leak_report().c_str(), stderr);
    } catch (std::exception const&) {
      std::fputs("RMM: host memory ran out before the leak report was written\n", stderr);
    }
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    void* const ptr = this->upstream().allocate(bytes, stream);
    if (bytes == 0 || !this->is_of_this_process()) { return ptr; }

    rmm::detail::scope_guard give_back{[&]() noexcept { this->upstream().deallocate(ptr, bytes, stream); }};
    allocations_->add(ptr, allocation_info{bytes, capture_stacks_});
    give_back.dismiss();
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!this->is_of_this_process()) { return; }
    forget(ptr, bytes);  // first: as soon as upstream has the memory, another thread can get the same address
    this->upstream().deallocate(ptr, bytes, stream);
  }

  void forget(void* ptr, std::size_t bytes)
  {
    auto const [allocated, is_known] = allocations_->remove(ptr);
    if (is_known) {
      if (bytes != allocated) { report("were allocated with another size", ptr, bytes); }
    } else if (bytes != 0) {
      allocations_->subtract(bytes);
      report("were not allocated by this adaptor, or were freed before", ptr, bytes);
    }
  }

  RMM_COLD static void report(char const* problem, void const* ptr, std::size_t bytes) noexcept
  {
    char text[192];  // on the stack, so that nothing can throw
    std::snprintf(text, sizeof text, "Deallocating %zu bytes at %p, which %s.", bytes, ptr, problem);
    rmm::detail::log(rmm::detail::log_level::error, text);
  }

  bool capture_stacks_;
  // Its locks are not held during calls of upstream.
  std::unique_ptr<detail::outstanding_allocations<allocation_info>, rmm::detail::delete_in_own_process> allocations_{
    new detail::outstanding_allocations<allocation_info>};
  bool has_reported_{false};
  std::optional<rmm::detail::exit_action> report_at_exit_;
};

tracking_resource_adaptor(device_async_resource_ref, bool = false, leak_report = leak_report::never)
  ->tracking_resource_adaptor<device_memory_resource>;

/// Returns tracking_resource_adaptor{upstream}. For code that does not deduce class template arguments.
template <class Upstream>
tracking_resource_adaptor<Upstream> make_tracking_adaptor(Upstream* upstream)
{
  return {upstream};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
