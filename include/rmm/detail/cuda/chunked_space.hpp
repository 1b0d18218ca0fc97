// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/nvtx/memory_marks.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// A reservation of addresses, and physical memory of a device mapped into it chunk by chunk.
///
/// Invariants:
///  S1  each chunk of the reservation is mapped, or part of exactly one range of empty_ranges(), or was lost: the host had no
///      memory to note that it is empty. Chunks and empty ranges lie in the reservation, at multiples of the chunk
///  S2  empty ranges are not empty, do not overlap, and two of them do not touch
///  S3  mapped memory can be used by all devices that have access
///
/// A spare chunk is memory at no address: unmapped, and not given back to the device yet. Not thread-safe.
class chunked_space {
 public:
  /// `address_bytes` and `chunk_bytes` are multiples of the device's granularity. Throws as address_reservation does.
  chunked_space(int device,
                std::size_t address_bytes,
                std::size_t chunk_bytes,
                physical_memory_options const& options,
                std::vector<int> const& devices_with_access)
    : chunk_bytes_{chunk_bytes},
      options_{options},
      access_{devices_with_access},
      addresses_{device, address_bytes / chunk_bytes * chunk_bytes}
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
  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept { return addresses_.contains(address, 1); }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return chunks_.size() * chunk_bytes_; }
  [[nodiscard]] std::size_t spare_bytes() const noexcept { return spare_.size() * chunk_bytes_; }

  /// Ranges of addresses without memory, ascending.
  [[nodiscard]] std::vector<std::pair<std::uintptr_t, std::size_t>> empty_ranges() const
  {
    return {empty_.begin(), empty_.end()};
  }

  /// Puts memory behind whole chunks that are empty: spare chunks first, new ones then. Throws out_of_memory if the device has
  /// too little, bad_alloc if something else is missing; nothing is mapped then, and what is new is spare.
  void map(std::uintptr_t begin, std::size_t bytes)
  {
    auto const count = bytes / chunk_bytes_;
    RMM_ASSERT(count != 0 && bytes % chunk_bytes_ == 0 && (begin - addresses_.begin()) % chunk_bytes_ == 0);
    spare_.reserve(count);
    while (spare_.size() < count) { spare_.emplace_back(addresses_.device(), chunk_bytes_, options_); }
    std::map<std::uintptr_t, physical_memory> mapped;
    scope_guard undo{[&]() noexcept {
      if (mapped.empty()) { return; }
      addresses_.unmap(begin, mapped.size() * chunk_bytes_);
      for (auto& each : mapped) { spare_.push_back(std::move(each.second)); }  // where it came from, so there is room
    }};
    for (auto at = begin; at != begin + bytes; at += chunk_bytes_) {
      auto const node = mapped.emplace_hint(mapped.end(), at, std::move(spare_.back()));
      spare_.pop_back();
      try {
        addresses_.map(at, node->second);
      } catch (...) {
        spare_.push_back(std::move(node->second));
        mapped.erase(node);
        throw;
      }
    }
    addresses_.set_access(begin, bytes, access_);
    take_empty(begin, bytes);
    undo.dismiss();
    chunks_.merge(mapped);
    RMM_ASSERT(mapped.empty() && find(begin) != nullptr && find(begin + bytes - 1) != nullptr);
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
    mark_memory_begins(reinterpret_cast<void const*>(begin), bytes);
  }

  /// Takes the memory away from behind whole chunks that are mapped; it becomes spare. No work may use it any more. Where the
  /// host has no memory to keep it, it goes back to the device.
  void unmap(std::uintptr_t begin, std::size_t bytes) noexcept
  {
    RMM_ASSERT(bytes != 0 && bytes % chunk_bytes_ == 0 && (begin - addresses_.begin()) % chunk_bytes_ == 0);
    RMM_ASSERT(chunks_.count(begin) != 0 && chunks_.count(begin + bytes - chunk_bytes_) != 0);
    mark_memory_ends(reinterpret_cast<void const*>(begin), bytes);
    if (!dropped_) { addresses_.unmap(begin, bytes); }
    auto const first = chunks_.lower_bound(begin);
    auto last        = first;
    for (; last != chunks_.end() && last->first < begin + bytes; ++last) {
      if (dropped_) { continue; }
      try {
        spare_.push_back(std::move(last->second));
      } catch (std::bad_alloc const&) {
        continue;
      }
    }
    chunks_.erase(first, last);
    give_empty(begin, bytes);
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
  }

  /// Gives all spare chunks back to the device. Returns their bytes.
  std::size_t release_spare() noexcept
  {
    auto const bytes = spare_bytes();
    spare_.clear();
    return bytes;
  }

  /// Gives the memory behind all mapped chunks back to the device; their addresses stay taken. No work may use it any more. Only
  /// restore() and the destructor may follow.
  void drop() noexcept
  {
    RMM_ASSERT(!dropped_);
    for_each_run([&](run_of_chunks run) { addresses_.unmap(run.begin, run.bytes); });
    for (auto& [at, memory] : chunks_) { physical_memory const gone{std::move(memory)}; }
    dropped_ = true;
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
  }

  /// Puts new memory behind those addresses. Throws as map() does, and nothing is mapped then.
  void restore()
  {
    std::vector<physical_memory> fresh;
    fresh.reserve(chunks_.size());
    while (fresh.size() < chunks_.size()) { fresh.emplace_back(addresses_.device(), chunk_bytes_, options_); }
    auto next = chunks_.begin();
    scope_guard undo{[&]() noexcept {
      for (auto at = chunks_.begin(); at != next; ++at) { addresses_.unmap(at->first, chunk_bytes_); }
    }};
    for (auto const& memory : fresh) {
      addresses_.map(next->first, memory);
      ++next;
    }
    for_each_run([&](run_of_chunks run) { addresses_.set_access(run.begin, run.bytes, access_); });
    undo.dismiss();
    next = chunks_.begin();
    for (auto& memory : fresh) { (next++)->second = std::move(memory); }
    dropped_ = false;
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
  }

  /// The memory at an address; null if there is none.
  [[nodiscard]] physical_memory const* find(std::uintptr_t address) const noexcept
  {
    auto at = chunks_.upper_bound(address);
    if (at == chunks_.begin()) { return nullptr; }
    --at;
    return address - at->first < chunk_bytes_ && !dropped_ ? &at->second : nullptr;
  }

  /// Whether S1 and S2 hold; O((chunks + empty ranges) * log chunks).
  [[nodiscard]] bool check_invariants() const noexcept
  {
    auto const end       = addresses_.begin() + addresses_.bytes();
    auto const is_chunks = [&](std::uintptr_t begin, std::size_t bytes) {
      return begin >= addresses_.begin() && begin + bytes <= end && (begin - addresses_.begin()) % chunk_bytes_ == 0 &&
             bytes % chunk_bytes_ == 0;
    };
    std::uintptr_t last{};
    for (auto const& [begin, bytes] : empty_) {
      if (bytes == 0 || begin <= last) { return false; }  // S2
      last             = begin + bytes;
      auto const above = chunks_.lower_bound(begin);
      if (!is_chunks(begin, bytes) || (above != chunks_.end() && above->first < last)) { return false; }  // S1
    }
    for (auto const& each : chunks_) {
      if (!is_chunks(each.first, chunk_bytes_)) { return false; }  // S1
    }
    return true;
  }

 private:
  struct run_of_chunks {
    std::uintptr_t begin;
    std::size_t bytes;
  };

  /// What is mapped, in as few ranges as possible.
  template <class Visit>
  void for_each_run(Visit&& visit) const
  {
    run_of_chunks run{};
    for (auto const& each : chunks_) {
      if (run.bytes != 0 && run.begin + run.bytes == each.first) {
        run.bytes += chunk_bytes_;
        continue;
      }
      if (run.bytes != 0) { visit(run); }
      run = {each.first, chunk_bytes_};
    }
    if (run.bytes != 0) { visit(run); }
  }

  void take_empty(std::uintptr_t begin, std::size_t bytes)
  {
    auto at = empty_.upper_bound(begin);
    RMM_ASSERT(at != empty_.begin());
    --at;
    auto const range = *at;
    RMM_ASSERT(range.first <= begin && begin + bytes <= range.first + range.second);
    auto const end = range.first + range.second;
    if (end != begin + bytes) { empty_.emplace(begin + bytes, end - begin - bytes); }
    if (range.first == begin) {
      empty_.erase(at);
    } else {
      at->second = begin - range.first;
    }
  }

  void give_empty(std::uintptr_t begin, std::size_t bytes) noexcept
  {
    auto const next = empty_.lower_bound(begin);
    bool const up   = next != empty_.end() && next->first == begin + bytes;
    if (next != empty_.begin()) {
      auto last = next;
      --last;
      if (last->first + last->second == begin) {
        last->second += bytes + (up ? next->second : 0);
        if (up) { empty_.erase(next); }
        return;
      }
    }
    if (up) {
      auto node  = empty_.extract(next);
      node.key() = begin;
      node.mapped() += bytes;
      empty_.insert(std::move(node));
      return;
    }
    try {
      empty_.emplace_hint(next, begin, bytes);
    } catch (std::bad_alloc const&) {
      return;  // these addresses are not used again; there are many more than memory
    }
  }

  std::size_t chunk_bytes_;
  physical_memory_options options_;
  device_access access_;
  address_reservation addresses_;
  std::map<std::uintptr_t, physical_memory> chunks_;  // what is mapped, by address
  std::map<std::uintptr_t, std::size_t> empty_;
  std::vector<physical_memory> spare_;
  bool dropped_{false};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
