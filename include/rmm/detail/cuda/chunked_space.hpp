// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/nvtx/memory_marks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// A reservation of addresses, into which physical memory of a device is mapped chunk by chunk.
///
/// One call of the driver maps one chunk, or unmaps neighbouring chunks, each of them whole. The time to map a chunk does not depend on
/// its size. So memory in few large chunks is mapped faster, and memory in small chunks can be moved in smaller parts. All sizes are
/// multiples of the unit.
///
/// Invariants:
///  S1  each address of the reservation is in one mapped chunk, or in one range of empty_ranges(), or lost: when it became empty, host
///      memory ran out. Chunks and empty ranges lie in the reservation, at multiples of the unit, and do not overlap
///  S2  the size of an empty range is not 0; two empty ranges do not overlap or touch
///  S3  mapped memory can be used by all devices that have access, except what map() or restore() could not undo
///  S4  mapped_bytes() is the sum of the sizes of the mapped chunks, spare_bytes() that of the spare ones, and dropped_bytes() that of the
///      mapped ones whose memory was given back
///
/// A spare chunk is physical memory that is not mapped, but kept. From drop() to restore(), the chunks whose memory was given back still
/// count as mapped in S1 and S4. Chunks that the driver does not unmap keep their memory. Not thread-safe.
class chunked_space {
 public:
  /// `address_bytes` and `unit` are multiples of the device's granularity. Throws what address_reservation throws.
  chunked_space(int device,
                std::size_t address_bytes,
                std::size_t unit,
                physical_memory_options const& options,
                std::vector<int> const& devices_with_access)
    : unit_{unit}, options_{options}, access_{devices_with_access}, addresses_{device, address_bytes / unit * unit}
  {
    empty_.emplace(addresses_.begin(), addresses_.bytes());
  }
  chunked_space(chunked_space const&)            = delete;
  chunked_space& operator=(chunked_space const&) = delete;

  ~chunked_space()
  {
    if (!chunks_.empty() && !dropped_) { addresses_.unmap(addresses_.begin(), addresses_.bytes()); }
  }

  [[nodiscard]] std::uintptr_t begin() const noexcept { return addresses_.begin(); }
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return mapped_bytes_; }
  [[nodiscard]] std::size_t spare_bytes() const noexcept { return spare_bytes_; }
  [[nodiscard]] std::size_t dropped_bytes() const noexcept { return dropped_bytes_; }

  /// Returns the bytes of memory that the space has of the device.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return mapped_bytes_ - dropped_bytes_ + spare_bytes_; }

  /// Ranges of addresses without memory, ascending.
  [[nodiscard]] std::vector<address_range> empty_ranges() const
  {
    std::vector<address_range> all;
    all.reserve(empty_.size());
    for (auto const& [begin, bytes] : empty_) { all.push_back({begin, bytes}); }
    return all;
  }

  /// Maps memory to a range of empty addresses: spare chunks first, then new ones of at most `largest_chunk` bytes, a power of two and a
  /// multiple of the unit. If all spare chunks left are too large for what is left of the range, one of them goes back to the device,
  /// and new ones take its place. Throws out_of_memory if the device has too little memory, bad_alloc on other failures; new chunks are
  /// spare then. Nothing is mapped then, unless the driver fails to undo it: that part stays mapped, from `begin` on.
  void map(std::uintptr_t begin, std::size_t bytes, std::size_t largest_chunk)
  {
    RMM_ASSERT(bytes != 0 && bytes % unit_ == 0 && (begin - addresses_.begin()) % unit_ == 0);
    auto const count = make_spare(bytes, largest_chunk);
    std::map<std::uintptr_t, std::size_t> rest{{begin, bytes}};  // makes the node for what is left of the empty range
    std::map<std::uintptr_t, mapped_chunk> mapped;
    auto end        = begin;
    auto const keep = [&]() noexcept {
      take_empty(begin, end - begin, rest.extract(begin));
      chunks_.merge(mapped);
      mapped_bytes_ += end - begin;
      mark_memory_begins(reinterpret_cast<void const*>(begin), end - begin);
    };
    scope_guard undo{[&]() noexcept {
      if (end == begin) { return; }
      if (!addresses_.unmap(begin, end - begin)) { return keep(); }
      for (auto& each : mapped) { add_spare(std::move(each.second.memory)); }  // does not throw: it was there before
    }};
    for (std::size_t i = 0; i != count; ++i) {
      auto const size = spare_.back().bytes();
      auto const node = mapped.emplace_hint(mapped.end(), end, std::move(spare_.back()));
      spare_.pop_back();
      spare_bytes_ -= size;
      try {
        addresses_.map(end, node->second.memory);
      } catch (...) {
        add_spare(std::move(node->second.memory));
        mapped.erase(node);
        throw;
      }
      end += size;
    }
    RMM_ASSERT(end == begin + bytes);
    addresses_.set_access(begin, bytes, access_);
    undo.dismiss();
    keep();
    RMM_ASSERT(mapped.empty() && find(begin) != nullptr && find(begin + bytes - 1) != nullptr);
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
  }

  /// Unmaps a range of whole mapped chunks, which become spare. No work may use the memory any more. If host memory runs out, the
  /// chunks go back to the device instead. Returns false, and changes nothing, if the driver does not unmap the range.
  bool unmap(std::uintptr_t begin, std::size_t bytes) noexcept
  {
    RMM_ASSERT(bytes != 0 && chunks_.count(begin) != 0);
    auto const first = chunks_.lower_bound(begin);
    auto const last  = chunks_.lower_bound(begin + bytes);
    RMM_ASSERT(std::prev(last)->first + std::prev(last)->second.bytes == begin + bytes);
    bool const keeps_memory = std::any_of(first, last, [](auto const& each) { return each.second.has_memory(); });
    if (keeps_memory && !addresses_.unmap(begin, bytes)) { return false; }
    mark_memory_ends(reinterpret_cast<void const*>(begin), bytes);
    for (auto at = first; at != last; ++at) {
      if (!at->second.has_memory()) { dropped_bytes_ -= at->second.bytes; }
      if (dropped_) { continue; }
      try {
        add_spare(std::move(at->second.memory));
      } catch (std::bad_alloc const&) {}
    }
    chunks_.erase(first, last);
    mapped_bytes_ -= bytes;
    give_empty(begin, bytes);
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
    return true;
  }

  /// Calls visit(address_range) for each chunk that lies wholly in `range`, which is mapped memory, from the highest chunk down, until a
  /// call of visit() returns false.
  template <class Visit>
  void visit_chunks_down(address_range range, Visit&& visit) const
  {
    auto const first = chunks_.lower_bound(range.begin);
    for (auto at = chunks_.lower_bound(range.end()); at != first;) {
      --at;
      address_range const chunk{at->first, at->second.bytes};
      if (chunk.end() <= range.end() && !visit(chunk)) { return; }
    }
  }

  /// Gives all spare chunks back to the device. Returns their bytes.
  std::size_t release_spare() noexcept
  {
    spare_.clear();
    return std::exchange(spare_bytes_, 0);
  }

  /// Gives the memory of all mapped chunks back to the device, and keeps their addresses reserved. No work may use the memory any more.
  /// Until restore(), map() and drop() must not be called, and find() returns null.
  void drop() noexcept
  {
    RMM_ASSERT(!dropped_);
    for_each_run([&](address_range run) {
      if (!addresses_.unmap(run.begin, run.bytes)) { return; }
      auto const last = chunks_.lower_bound(run.end());
      for (auto at = chunks_.lower_bound(run.begin); at != last; ++at) {
        physical_memory const released{std::move(at->second.memory)};
        dropped_bytes_ += released.bytes();
      }
    });
    dropped_ = true;
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
  }

  /// Maps new memory to the addresses that drop() kept. Throws what map() throws. Nothing is mapped then, unless the driver fails to undo
  /// it: those chunks keep their memory.
  void restore()
  {
    std::vector<std::pair<std::uintptr_t, physical_memory>> fresh;
    fresh.reserve(chunks_.size());
    for (auto const& [begin, chunk] : chunks_) {
      if (!chunk.has_memory()) {
        fresh.emplace_back(begin, physical_memory{addresses_.device(), chunk.bytes, options_});
      }
    }
    auto const keep = [this](std::pair<std::uintptr_t, physical_memory>& mapped) noexcept {
      dropped_bytes_ -= mapped.second.bytes();
      chunks_.find(mapped.first)->second.memory = std::move(mapped.second);
    };
    auto next = fresh.begin();
    scope_guard undo{[&]() noexcept {
      for (auto at = fresh.begin(); at != next; ++at) {
        if (!addresses_.unmap(at->first, at->second.bytes())) { keep(*at); }
      }
    }};
    for (; next != fresh.end(); ++next) { addresses_.map(next->first, next->second); }
    for_each_run([&](address_range run) { addresses_.set_access(run.begin, run.bytes, access_); });
    undo.dismiss();
    for (auto& each : fresh) { keep(each); }
    dropped_ = false;
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
  }

  /// Returns the memory that is mapped at an address; null if none is.
  [[nodiscard]] physical_memory const* find(std::uintptr_t address) const noexcept
  {
    auto at = chunks_.upper_bound(address);
    if (at == chunks_.begin()) { return nullptr; }
    --at;
    return address - at->first < at->second.bytes && !dropped_ ? &at->second.memory : nullptr;
  }

  /// Whether S1, S2 and S4 hold; O((chunks + empty ranges) * log chunks).
  [[nodiscard]] bool check_invariants() const noexcept
  {
    auto const end      = addresses_.begin() + addresses_.bytes();
    auto const is_units = [&](std::uintptr_t begin, std::size_t bytes) {
      return bytes != 0 && begin >= addresses_.begin() && begin + bytes <= end &&
             (begin - addresses_.begin()) % unit_ == 0 && bytes % unit_ == 0;
    };
    std::uintptr_t last{};
    for (auto const& [begin, bytes] : empty_) {
      if (begin <= last) { return false; }  // S2
      last             = begin + bytes;
      auto const above = chunks_.lower_bound(begin);
      if (!is_units(begin, bytes) || (above != chunks_.end() && above->first < last)) { return false; }  // S1
    }
    std::size_t mapped{};
    std::size_t dropped{};
    for (auto at = chunks_.begin(); at != chunks_.end(); ++at) {
      auto const size  = at->second.bytes;
      auto const above = empty_.upper_bound(at->first);
      if (!is_units(at->first, size) || (above != empty_.end() && above->first < at->first + size)) {
        return false;
      }  // S1
      if (std::next(at) != chunks_.end() && std::next(at)->first < at->first + size) { return false; }
      mapped += size;
      dropped += at->second.has_memory() ? 0 : size;
    }
    std::size_t spare{};
    for (auto const& each : spare_) { spare += each.bytes(); }
    return mapped == mapped_bytes_ && spare == spare_bytes_ && dropped == dropped_bytes_;  // S4
  }

 private:
  struct mapped_chunk {
    explicit mapped_chunk(physical_memory&& chunk) noexcept : bytes{chunk.bytes()}, memory{std::move(chunk)} {}
    [[nodiscard]] bool has_memory() const noexcept { return memory.bytes() != 0; }
    std::size_t bytes;  // also while the memory is dropped
    physical_memory memory;
  };

  /// Throws std::bad_alloc; not if there were as many spare chunks before.
  void add_spare(physical_memory memory)
  {
    auto const bytes = memory.bytes();
    spare_.push_back(std::move(memory));
    spare_bytes_ += bytes;
  }

  /// Puts spare chunks of `bytes` bytes together to the end of spare_, from where map() takes them: new chunks, and behind them chunks
  /// that were spare before. Returns their number. Throws as map() does; new chunks are spare then.
  [[nodiscard]] std::size_t make_spare(std::size_t bytes, std::size_t largest_chunk)
  {
    auto const is_larger = [](physical_memory const& a, physical_memory const& b) { return a.bytes() > b.bytes(); };
    std::sort(spare_.begin(), spare_.end(), is_larger);
    auto missing = bytes;
    auto taken   = spare_.begin();  // those before are taken
    for (auto at = taken; at != spare_.end() && missing != 0; ++at) {
      if (at->bytes() > missing) { continue; }
      missing -= at->bytes();
      std::iter_swap(taken++, at);
    }
    auto count = static_cast<std::size_t>(taken - spare_.begin());
    if (missing != 0 && taken != spare_.end()) {
      auto const too_large = std::max_element(taken, spare_.end(), is_larger);
      RMM_ASSERT(too_large->bytes() > missing);
      spare_bytes_ -= too_large->bytes();
      spare_.erase(too_large);
    }
    auto const before = spare_.size();
    while (missing != 0) {
      auto size = largest_chunk;
      while (size > missing) { size /= 2; }
      add_spare({addresses_.device(), size, options_});
      missing -= size;
    }
    auto const first_new = spare_.begin() + static_cast<std::ptrdiff_t>(before);
    std::rotate(spare_.begin() + static_cast<std::ptrdiff_t>(count), first_new, spare_.end());
    count += spare_.size() - before;
    std::reverse(spare_.begin(), spare_.end());
    return count;
  }

  /// Calls visit(run) for each maximal range of mapped chunks.
  template <class Visit>
  void for_each_run(Visit&& visit) const
  {
    address_range run;
    for (auto const& each : chunks_) {
      if (run.bytes != 0 && run.end() == each.first) {
        run.bytes += each.second.bytes;
        continue;
      }
      if (run.bytes != 0) { visit(run); }
      run = {each.first, each.second.bytes};
    }
    if (run.bytes != 0) { visit(run); }
  }

  /// `rest` is for what is left above.
  void take_empty(std::uintptr_t begin,
                  std::size_t bytes,
                  std::map<std::uintptr_t, std::size_t>::node_type rest) noexcept
  {
    auto at = empty_.upper_bound(begin);
    RMM_ASSERT(at != empty_.begin());
    --at;
    auto const range = *at;
    RMM_ASSERT(range.first <= begin && begin + bytes <= range.first + range.second);
    auto const end = range.first + range.second;
    if (end != begin + bytes) {
      rest.key()    = begin + bytes;
      rest.mapped() = end - begin - bytes;
      empty_.insert(std::move(rest));
    }
    if (range.first == begin) {
      empty_.erase(at);
    } else {
      at->second = begin - range.first;
    }
  }

  void give_empty(std::uintptr_t begin, std::size_t bytes) noexcept
  {
    auto const next       = empty_.lower_bound(begin);
    bool const joins_next = next != empty_.end() && next->first == begin + bytes;
    if (next != empty_.begin()) {
      auto last = next;
      --last;
      if (last->first + last->second == begin) {
        last->second += bytes + (joins_next ? next->second : 0);
        if (joins_next) { empty_.erase(next); }
        return;
      }
    }
    if (joins_next) {
      if (auto node = empty_.extract(next)) {
        node.key() = begin;
        node.mapped() += bytes;
        empty_.insert(std::move(node));
      }
      return;
    }
    try {
      empty_.emplace_hint(next, begin, bytes);
    } catch (std::bad_alloc const&) {
      return;  // the addresses are lost; there are many more addresses than memory
    }
  }

  std::size_t unit_;
  physical_memory_options options_;
  device_access access_;
  address_reservation addresses_;
  std::map<std::uintptr_t, mapped_chunk> chunks_;  // mapped chunks, by address
  std::map<std::uintptr_t, std::size_t> empty_;
  std::vector<physical_memory> spare_;
  std::size_t mapped_bytes_{};
  std::size_t spare_bytes_{};
  std::size_t dropped_bytes_{};
  bool dropped_{false};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
