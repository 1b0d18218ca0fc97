// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/recorded_file.hpp>
#include <tools/recorded/trace_reader.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

namespace rmm::tools {

inline constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

/// An allocation, from its event to that of its free. Events are numbers.
struct lifetime {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint32_t begin;
  std::uint32_t end;  ///< none if it was live at the end of the trace
};

/// The allocations of a trace, with their frees.
///
/// An allocation at an address in use ends the earlier one, whose free is missing in the trace. A free of an unknown
/// address is ignored, because the trace began after its allocation. Allocations of zero bytes are left out: they need
/// no memory, several may share an address, and programs need not free them.
class lifetimes {
 public:
  /// Throws std::runtime_error if there are 2^32 events or more.
  explicit lifetimes(rmm::recorded::recorded_trace const& trace);

  [[nodiscard]] std::vector<lifetime> const& all() const noexcept { return all_; }

  /// Returns the allocation that an event begins or, if it is a free, ends; `none` otherwise.
  [[nodiscard]] std::uint32_t of_event(std::size_t event) const { return of_event_[event]; }

  /// Returns the earlier allocation that an allocation at the same address ended; mostly `none`.
  [[nodiscard]] std::uint32_t replaced_by(std::size_t event) const
  {
    if (replaced_.empty()) { return none; }
    auto const found = replaced_.find(static_cast<std::uint32_t>(event));
    return found == replaced_.end() ? none : found->second;
  }

  /// Whether an event is an allocation of zero bytes, or the free of one.
  [[nodiscard]] bool is_left_out(std::size_t event, rmm::recorded::event const& what) const
  {
    return what.what != rmm::recorded::kind::allocate_failure && of_event_[event] == none &&
           (what.bytes == 0 || what.address == 0);
  }

  [[nodiscard]] std::size_t unknown_frees() const noexcept { return unknown_frees_; }

 private:
  std::vector<lifetime> all_;
  std::vector<std::uint32_t> of_event_;
  std::unordered_map<std::uint32_t, std::uint32_t> replaced_;
  std::size_t unknown_frees_{0};
};

/// A range of memory that an allocator held on a device. Events are numbers.
struct region {
  std::uint64_t begin;  ///< addresses
  std::uint64_t end;
  std::uint32_t begin_event;
  std::uint32_t end_event;  ///< none if it remained at the end of the trace
};

/// Returns at most `most` regions of a device, by address. If the file has none, or more, derives them from the
/// addresses of allocations.
[[nodiscard]] std::vector<region> regions_of(rmm::recorded::recorded_file const& file,
                                             lifetimes const& of_file,
                                             int device,
                                             std::size_t most);

}  // namespace rmm::tools
