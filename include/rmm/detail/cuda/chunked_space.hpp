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

/// A reservation of addresses, into which physical memory of a device is mapped chunk by chunk.
///
/// Invariants:
///  S1  each chunk of the reservation is mapped, or part of exactly one range of empty_ranges(), or lost: host memory ran out when it
///      became empty. Chunks and empty ranges lie in the reservation, at multiples of the chunk size
///  S2  the size of an empty range is not 0; two empty ranges do not overlap or touch
///  S3  mapped memory can be used by all devices that have access
///
/// A spare chunk is physical memory that is not mapped, but kept. Not thread-safe.
class chunked_space {
 public:
  /// `address_bytes` and `chunk_bytes` are multiples of the device's granularity. Throws what address_reservation throws.
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

  /// Maps memory to a range of whole empty chunks: spare chunks first, then new ones. Throws out_of_memory if the device has too little
  /// memory, bad_alloc on other failures; then nothing is mapped, and new chunks are spare.
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
      for (auto& each : mapped) { spare_.push_back(std::move(each.second)); }  // does not throw: it was there before
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

  /// Unmaps a range of whole mapped chunks, which become spare. No work may use the memory any more. If host memory runs out, the
  /// chunks go back to the device instead.
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

  /// Gives the memory of all mapped chunks back to the device, and keeps their addresses reserved. No work may use the memory any more.
  /// Only restore() and the destructor may be called afterwards.
  void drop() noexcept
  {
    RMM_ASSERT(!dropped_);
    for_each_run([&](run_of_chunks run) { addresses_.unmap(run.begin, run.bytes); });
    for (auto& [at, memory] : chunks_) { physical_memory const released{std::move(memory)}; }
    dropped_ = true;
    RMM_ASSERT_EXPENSIVE(!is_check_due<chunked_space>(chunks_.size() + empty_.size()) || check_invariants());
  }

  /// Maps new memory to the addresses that drop() kept. Throws what map() throws, and maps nothing then.
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

  /// Returns the memory that is mapped at an address; null if none is.
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

  /// Calls visit(run) for each maximal range of mapped chunks.
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
      auto node  = empty_.extract(next);
      node.key() = begin;
      node.mapped() += bytes;
      empty_.insert(std::move(node));
      return;
    }
    try {
      empty_.emplace_hint(next, begin, bytes);
    } catch (std::bad_alloc const&) {
      return;  // the addresses are lost; there are many more addresses than memory
    }
  }

  std::size_t chunk_bytes_;
  physical_memory_options options_;
  device_access access_;
  address_reservation addresses_;
  std::map<std::uintptr_t, physical_memory> chunks_;  // mapped chunks, by address
  std::map<std::uintptr_t, std::size_t> empty_;
  std::vector<physical_memory> spare_;
  bool dropped_{false};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
