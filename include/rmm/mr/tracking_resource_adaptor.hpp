// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/exit_action.hpp>
#include <rmm/detail/base/log_hook.hpp>
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

/// When a tracking_resource_adaptor writes to standard error what was never freed.
enum class leak_report {
  never,
  at_end  ///< when the adaptor is destroyed, or the program ends, whichever comes first
};

/// Knows which allocations are outstanding, and where they were made. Thread-safe.
///
/// Deallocations of unknown pointers and of wrong sizes are errors in the debug log, and go to upstream nevertheless.
/// Allocations of 0 bytes are not tracked: several of them may have one address.
template <class Upstream>
class tracking_resource_adaptor final : public detail::resource_adaptor<tracking_resource_adaptor<Upstream>, Upstream> {
 public:
  using read_lock_t  = std::shared_lock<std::shared_mutex>;
  using write_lock_t = std::unique_lock<std::shared_mutex>;

  struct allocation_info {
    std::unique_ptr<rmm::detail::stack_trace> strace;  ///< null if not captured
    std::size_t allocation_size;

    allocation_info() = delete;

    /// Takes the stack of the caller down, if `capture_stack`.
    allocation_info(std::size_t size, bool capture_stack)
      : strace{capture_stack ? std::make_unique<rmm::detail::stack_trace>() : nullptr}, allocation_size{size}
    {}
  };

  /// `capture_stacks`: whether to keep the call stack of each allocation; functions are named when it is printed. Throws
  /// logic_error if `upstream` is null.
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
    if (report_at_exit_) { write_leaks(); }
  }

  /// Returns the live table, by address. Must not be read while other threads use the adaptor. Once this was called, all threads
  /// share one lock; get_outstanding_allocations_str() and get_leak_report() do not have that effect.
  [[nodiscard]] std::map<void*, allocation_info> const& get_outstanding_allocations() const noexcept
  {
    return allocations_.whole_table();
  }

  /// Returns the bytes outstanding, less what was freed without having been allocated here; never below 0.
  [[nodiscard]] std::size_t get_allocated_bytes() const noexcept { return allocations_.bytes(); }

  /// One entry for each outstanding allocation: `<address>: <size> B`, and its call stack if there is one.
  [[nodiscard]] std::string get_outstanding_allocations_str() const
  {
    std::ostringstream text;
    allocations_.for_each([&](void* ptr, allocation_info const& info) {
      text << ptr << ": " << info.allocation_size << " B";
      if (info.strace != nullptr) { text << " : callstack:\n" << *info.strace; }
      text << "\n";
    });
    return text.str();
  }

  /// How much is outstanding, and from where, most bytes first: one entry for all allocations of the same call stack. Empty if
  /// nothing is.
  [[nodiscard]] RMM_COLD std::string get_leak_report() const
  {
    struct group {
      std::size_t allocations{};
      std::size_t bytes{};
      std::string stack{};
    };
    std::map<std::string, group> by_stack;
    group all;
    allocations_.for_each([&](void*, allocation_info const& info) {
      std::ostringstream stack;
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
    text << "RMM: " << all.bytes << " B in " << all.allocations << " allocations were never freed\n";
    for (auto const& each : groups) {
      if (!each.stack.empty()) {
        text << each.bytes << " B in " << each.allocations << " allocations from\n" << each.stack;
      }
    }
    return text.str();
  }

  /// Writes what get_outstanding_allocations_str() returns to the debug log, at level debug.
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

  /// Once.
  RMM_COLD void write_leaks() noexcept
  {
    if (std::exchange(has_reported_, true)) { return; }
    try {
      std::fputs(get_leak_report().c_str(), stderr);
    } catch (std::exception const&) {
      std::fputs("RMM: there is no memory to say what was never freed\n", stderr);
    }
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    void* const ptr = this->upstream().allocate(bytes, stream);
    if (bytes == 0) { return ptr; }

    rmm::detail::scope_guard give_back{[&]() noexcept { this->upstream().deallocate(ptr, bytes, stream); }};
    allocations_.add(ptr, allocation_info{bytes, capture_stacks_});
    give_back.dismiss();
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    forget(ptr, bytes);  // before upstream has the memory back and may hand the address to another thread
    this->upstream().deallocate(ptr, bytes, stream);
  }

  void forget(void* ptr, std::size_t bytes)
  {
    auto const [allocated, is_known] = allocations_.remove(ptr);
    if (is_known) {
      if (bytes != allocated) { report("allocated with another size", ptr, bytes); }
    } else if (bytes != 0) {
      allocations_.subtract(bytes);
      report("not allocated here, or freed before", ptr, bytes);
    }
  }

  RMM_COLD static void report(char const* problem, void const* ptr, std::size_t bytes) noexcept
  {
    char text[192];  // no allocation: nothing may be thrown here
    std::snprintf(text, sizeof text, "Deallocating %zu bytes at %p, which were %s.", bytes, ptr, problem);
    rmm::detail::log(rmm::detail::log_level::error, text);
  }

  bool capture_stacks_;
  detail::outstanding_allocations<allocation_info> allocations_;  // no lock of it is held while upstream is called
  bool has_reported_{false};
  std::optional<rmm::detail::exit_action> report_at_exit_;
};

tracking_resource_adaptor(device_async_resource_ref, bool = false, leak_report = leak_report::never)
  ->tracking_resource_adaptor<device_memory_resource>;

/// tracking_resource_adaptor{upstream}, for code from before class template argument deduction.
template <class Upstream>
tracking_resource_adaptor<Upstream> make_tracking_adaptor(Upstream* upstream)
{
  return {upstream};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
