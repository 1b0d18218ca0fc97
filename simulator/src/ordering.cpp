// SPDX-License-Identifier: Apache-2.0
#include "ordering.hpp"

#include "callers.hpp"

#include <algorithm>

namespace cudasim {
namespace {

auto lower_entry(std::vector<std::pair<std::uint64_t, std::uint64_t>> const& entries, std::uint64_t stream)
{
  return std::lower_bound(
    entries.begin(), entries.end(), stream, [](auto const& entry, std::uint64_t id) { return entry.first < id; });
}

}  // namespace

bool vector_clock::covers(std::uint64_t stream, std::uint64_t sequence) const noexcept
{
  auto const found = lower_entry(entries_, stream);
  return found != entries_.end() && found->first == stream && found->second >= sequence;
}

void vector_clock::join(vector_clock const& other)
{
  if (other.entries_.empty()) { return; }
  if (entries_.empty()) {
    entries_ = other.entries_;
    return;
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> merged;
  merged.reserve(entries_.size() + other.entries_.size());
  auto mine   = entries_.begin();
  auto theirs = other.entries_.begin();
  while (mine != entries_.end() || theirs != other.entries_.end()) {
    if (theirs == other.entries_.end() || (mine != entries_.end() && mine->first < theirs->first)) {
      merged.push_back(*mine++);
    } else if (mine == entries_.end() || theirs->first < mine->first) {
      merged.push_back(*theirs++);
    } else {
      merged.emplace_back(mine->first, std::max(mine->second, theirs->second));
      ++mine;
      ++theirs;
    }
  }
  entries_ = std::move(merged);
}

void vector_clock::raise(std::uint64_t stream, std::uint64_t sequence)
{
  auto const found = entries_.begin() + (lower_entry(entries_, stream) - entries_.cbegin());
  if (found != entries_.end() && found->first == stream) {
    found->second = std::max(found->second, sequence);
  } else {
    entries_.emplace(found, stream, sequence);
  }
}

void vector_clock::forget(vector_clock const& known)
{
  entries_.erase(
    std::remove_if(
      entries_.begin(), entries_.end(), [&](auto const& entry) { return known.covers(entry.first, entry.second); }),
    entries_.end());
}

std::string describe(place const& where)
{
  std::string text{where.what};
  text += where.stream == 0
            ? " (on the host"
            : " (operation " + std::to_string(where.sequence) + " of stream " + std::to_string(where.stream);
  return text + ", called from " + describe_address(where.call_site) + ")";
}

void access_history::split(std::uintptr_t address)
{
  auto next = cells_.upper_bound(address);
  if (next == cells_.begin()) { return; }
  auto const containing = std::prev(next);
  if (containing->first == address || containing->second.end <= address) { return; }
  cell tail              = containing->second;
  containing->second.end = address;
  cells_.emplace_hint(next, address, std::move(tail));
}

bool access_history::access(
  std::uintptr_t begin, std::size_t bytes, bool write, place const& where, vector_clock const& clock, conflict& found)
{
  if (bytes == 0) { return false; }
  auto const end = begin + bytes;
  split(begin);
  split(end);

  bool conflicting   = false;
  auto const compare = [&](place const& earlier, bool writes, std::uintptr_t address) {
    if (conflicting || clock.covers(earlier.stream, earlier.sequence)) { return; }
    found       = conflict{earlier, writes, address};
    conflicting = true;
  };

  auto at = cells_.lower_bound(begin);
  if (write) {
    for (; at != cells_.end() && at->first < end; at = cells_.erase(at)) {
      if (at->second.written) { compare(at->second.write, true, at->first); }
      for (auto const& read : at->second.reads) { compare(read, false, at->first); }
    }
    cells_.emplace_hint(at, begin, cell{end, true, where, {}});
    return conflicting;
  }

  auto covered = begin;  // all bytes before this have a cell
  while (covered < end) {
    if (at == cells_.end() || at->first > covered) {
      auto const hole_end = at == cells_.end() ? end : std::min(end, at->first);
      at                  = cells_.emplace_hint(at, covered, cell{hole_end, false, {}, {}});
    }
    auto& reads = at->second.reads;
    if (at->second.written) { compare(at->second.write, true, at->first); }
    // An earlier read that is ordered before this one is redundant: all work after this read is also after that one.
    reads.erase(
      std::remove_if(
        reads.begin(), reads.end(), [&](place const& read) { return clock.covers(read.stream, read.sequence); }),
      reads.end());
    reads.push_back(where);
    covered = at->second.end;
    ++at;
  }
  return conflicting;
}

void access_history::forget(std::uintptr_t begin, std::size_t bytes)
{
  if (bytes == 0 || cells_.empty()) { return; }
  split(begin);
  split(begin + bytes);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(begin + bytes));
}

bool access_history::check_invariants() const
{
  std::uintptr_t free_from = 0;
  for (auto const& [begin, content] : cells_) {
    if (begin < free_from || content.end <= begin) { return false; }
    free_from = content.end;
  }
  return true;
}

}  // namespace cudasim
