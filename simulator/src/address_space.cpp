// SPDX-License-Identifier: Apache-2.0
#include "address_space.hpp"

#include <sys/mman.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <new>

namespace cudasim {
namespace {

constexpr std::size_t most_claimed  = few_addresses ? std::size_t{1280} << 30U : std::size_t{64} << 40U;
constexpr std::size_t most_given_up = few_addresses ? std::size_t{4} << 30U : std::size_t{2} << 40U;
constexpr std::size_t region_bytes  = few_addresses ? std::size_t{256} << 20U : std::size_t{16} << 30U;

constexpr std::size_t most_given_up_count = 64;
constexpr std::size_t most_resting        = 64;
constexpr std::size_t most_spares         = 4;
constexpr std::size_t most_marked         = 512;

constexpr std::uint64_t file_end = std::uint64_t{1} << 60U;

[[nodiscard]] void* at(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

[[nodiscard]] constexpr std::uintptr_t segment_base(std::uintptr_t address) noexcept
{
  return address & ~(block_bytes - 1);
}

}  // namespace

void mark_fresh(std::uintptr_t begin, std::size_t bytes) noexcept
{
  std::memset(at(begin), fresh_byte, std::min(bytes, most_marked));
}

void mark_freed(std::uintptr_t begin, std::size_t bytes) noexcept
{
  std::memset(at(begin), freed_byte, std::min(bytes, most_marked));
}

// --- range_set

void range_set::add(by_address::const_iterator hint, std::uintptr_t begin, std::size_t bytes)
{
  by_address_.emplace_hint(hint, begin, bytes);
  by_size_.emplace(bytes, begin);
}

range_set::by_address::const_iterator range_set::drop(by_address::const_iterator range)
{
  by_size_.erase({range->second, range->first});
  return by_address_.erase(range);
}

void range_set::insert(std::uintptr_t begin, std::size_t bytes)
{
  auto next = by_address::const_iterator{by_address_.lower_bound(begin)};
  if (next != by_address_.begin()) {
    auto const before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      next = drop(before);
    }
  }
  if (next != by_address_.end() && begin + bytes == next->first) {
    bytes += next->second;
    next = drop(next);
  }
  add(next, begin, bytes);
}

void range_set::absorb(range_set& other)
{
  for (auto const& [begin, bytes] : other.by_address_) { insert(begin, bytes); }
  other = {};
}

void range_set::remove(std::uintptr_t begin, std::size_t bytes)
{
  auto const range       = by_address::const_iterator{std::prev(by_address_.upper_bound(begin))};
  auto const range_begin = range->first;
  auto const range_end   = range->first + range->second;
  auto const end         = begin + bytes;
  auto const next        = drop(range);
  if (end < range_end) { add(next, end, range_end - end); }
  if (range_begin < begin) { add(by_address_.lower_bound(begin), range_begin, begin - range_begin); }
}

std::uintptr_t range_set::take(std::size_t bytes)
{
  auto const found = by_size_.lower_bound({bytes, 0});
  if (found == by_size_.end()) { return 0; }
  auto const begin = found->second;
  remove(begin, bytes);
  return begin;
}

bool range_set::contains(std::uintptr_t begin, std::size_t bytes) const
{
  auto const next = by_address_.upper_bound(begin);
  if (next == by_address_.begin()) { return false; }
  auto const range = std::prev(next);
  return begin + bytes <= range->first + range->second;
}

std::size_t range_set::bytes_before(std::uintptr_t address) const
{
  auto const next = by_address_.lower_bound(address);
  if (next == by_address_.begin()) { return 0; }
  auto const range = std::prev(next);
  return range->first + range->second == address ? range->second : 0;
}

bool range_set::check_invariants() const
{
  std::uintptr_t free_from = 0;
  for (auto const& [begin, bytes] : by_address_) {
    bool const touches = free_from != 0 && begin <= free_from;
    if (touches || bytes == 0 || by_size_.count({bytes, begin}) == 0) { return false; }
    free_from = begin + bytes;
  }
  return by_size_.size() == by_address_.size();
}

// --- territory

territory::~territory()
{
  for (auto const& [begin, bytes] : claims_) { ::munmap(at(begin), bytes); }
}

std::uintptr_t territory::claim(std::size_t bytes, std::size_t alignment, std::uintptr_t hint)
{
  auto const slack = alignment > 4096 ? alignment : 0;
  if (bytes > most_claimed || slack > most_claimed - bytes) { return 0; }
  while (claimed_bytes_ > most_claimed - bytes - slack) {
    if (given_up_.empty()) { return 0; }
    unmap(given_up_.front());
  }

  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (hint != 0 && hint % alignment == 0) {
    auto* const placed = ::mmap(at(hint), bytes, PROT_NONE, flags, -1, 0);
    if (placed == at(hint)) {
      claims_.emplace(hint, bytes);
      claimed_bytes_ += bytes;
      return hint;
    }
    if (placed != MAP_FAILED) { ::munmap(placed, bytes); }
  }
  auto* const raw = ::mmap(nullptr, bytes + slack, PROT_NONE, flags, -1, 0);
  if (raw == MAP_FAILED) { return 0; }
  auto const start = reinterpret_cast<std::uintptr_t>(raw);
  auto const begin = (start + alignment - 1) & ~(alignment - 1);
  if (begin > start) { ::munmap(raw, begin - start); }
  if (auto const end = start + bytes + slack; end > begin + bytes) { ::munmap(at(begin + bytes), end - begin - bytes); }
  claims_.emplace(begin, bytes);
  claimed_bytes_ += bytes;
  return begin;
}

void territory::give_up(std::uintptr_t begin)
{
  auto const bytes = claims_.at(begin);
  unmap_pages(begin, bytes);
  given_up_.push_back(begin);
  given_up_bytes_ += bytes;
  while (given_up_.size() > most_given_up_count || given_up_bytes_ > most_given_up) { unmap(given_up_.front()); }
}

/// Requires that `begin` was given up before all others that are still claimed.
void territory::unmap(std::uintptr_t begin)
{
  auto const claim = claims_.find(begin);
  ::munmap(at(begin), claim->second);
  given_up_bytes_ -= claim->second;
  claimed_bytes_ -= claim->second;
  claims_.erase(claim);
  given_up_.pop_front();
}

bool territory::owns(std::uintptr_t address) const
{
  auto const next = claims_.upper_bound(address);
  if (next == claims_.begin()) { return false; }
  auto const claim = std::prev(next);
  return address - claim->first < claim->second;
}

// --- memory_file

memory_file::~memory_file()
{
  if (descriptor_ >= 0) { ::close(descriptor_); }
}

void memory_file::open()
{
  if (descriptor_ >= 0) { return; }
  auto const made = ::memfd_create(name_, MFD_CLOEXEC);
  if (made < 0) { throw std::bad_alloc{}; }
  if (::ftruncate(made, static_cast<off_t>(file_end)) != 0) {
    ::close(made);
    throw std::bad_alloc{};
  }
  descriptor_ = made;
}

std::uint64_t memory_file::extend(std::size_t bytes)
{
  open();
  auto const offset = next_;
  next_ += round_up(bytes, block_bytes);
  return offset;
}

void memory_file::discard(std::uint64_t offset, std::size_t bytes) noexcept
{
  ::fallocate(
    descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

bool memory_file::map(std::uintptr_t address, std::size_t bytes, std::uint64_t offset) noexcept
{
  constexpr int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
  return ::mmap(at(address), bytes, PROT_NONE, flags, descriptor_, static_cast<off_t>(offset)) != MAP_FAILED;
}

int memory_file::export_note(void const* note, std::size_t bytes)
{
  open();
  char path[48];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor_);
  auto const fresh = ::open(path, O_RDWR | O_CLOEXEC);  // unlike a duplicate, this one has its own position
  if (fresh < 0) { return -1; }
  auto const position = static_cast<off_t>(next_note_);
  if (next_note_ + bytes > notes_end || ::pwrite(fresh, note, bytes, position) != static_cast<ssize_t>(bytes) ||
      ::lseek(fresh, position, SEEK_SET) != position) {
    ::close(fresh);
    return -1;
  }
  next_note_ += round_up(bytes, note_bytes);
  return fresh;
}

bool memory_file::read_note(int descriptor, void* note, std::size_t bytes) noexcept
{
  auto const position = ::lseek(descriptor, 0, SEEK_CUR);
  return position > 0 && static_cast<std::uint64_t>(position) < notes_end &&
         ::pread(descriptor, note, bytes, position) == static_cast<ssize_t>(bytes);
}

bool protect(std::uintptr_t begin, std::size_t bytes, protection allowed) noexcept
{
  int const flags = allowed == protection::none   ? PROT_NONE
                    : allowed == protection::read ? PROT_READ
                                                  : PROT_READ | PROT_WRITE;
  return ::mprotect(at(begin), bytes, flags) == 0;
}

void unmap_pages(std::uintptr_t begin, std::size_t bytes) noexcept
{
  ::mmap(at(begin), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// --- heap

unsigned heap::segment::next_used(unsigned from) const noexcept
{
  while (from < granules) {
    auto const word = used[from / 64] >> (from % 64);
    if (word != 0) { return from + static_cast<unsigned>(__builtin_ctzll(word)); }
    from = (from / 64 + 1) * 64;
  }
  return granules;
}

unsigned heap::segment::next_free(unsigned from) const noexcept
{
  while (from < granules) {
    auto const word = ~used[from / 64] >> (from % 64);
    if (word != 0) { return from + static_cast<unsigned>(__builtin_ctzll(word)); }
    from = (from / 64 + 1) * 64;
  }
  return granules;
}

/// Where the used granules before `from` end; 0 if there are none.
unsigned heap::segment::end_of_used_before(unsigned from) const noexcept
{
  while (from != 0) {
    auto const bit  = (from - 1) % 64;
    auto const word = used[(from - 1) / 64] << (63 - bit);
    if (word != 0) { return from - static_cast<unsigned>(__builtin_clzll(word)); }
    from -= bit + 1;
  }
  return 0;
}

/// First of `count` free granules that start in [from, to); `granules` if there are none.
unsigned heap::segment::find(unsigned from, unsigned to, unsigned count) const noexcept
{
  for (auto first = next_free(from); first < to && first + count <= granules; first = next_free(first)) {
    auto const end = next_used(first);
    if (end - first >= count) { return first; }
    first = end;
  }
  return granules;
}

unsigned heap::segment::find(unsigned count) const noexcept
{
  auto const ahead = find(cursor, granules, count);
  return ahead < granules ? ahead : find(0, cursor, count);
}

void heap::segment::mark(unsigned first, unsigned count, bool in_use_now) noexcept
{
  auto const end = first + count;
  while (first < end) {
    auto const bit  = first % 64;
    auto const bits = std::min(64 - bit, end - first);
    auto const mask = (bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1) << bit;
    auto& word      = used[first / 64];
    word            = in_use_now ? word | mask : word & ~mask;
    first += bits;
  }
  in_use = in_use_now ? in_use + count : in_use - count;
}

void heap::set_room(std::uintptr_t base, segment& s, unsigned room)
{
  if (s.room == room) { return; }
  by_room_.erase({s.room, base});
  s.room = room;
  by_room_.emplace(room, base);
}

std::uintptr_t heap::allocate(std::size_t bytes, std::size_t room)
{
  auto const begin = bytes <= block_bytes
                       ? allocate_small(static_cast<unsigned>(round_up(bytes, granule_bytes) / granule_bytes), room)
                       : allocate_large(bytes, room);
  if (begin != 0) { mark_fresh(begin, bytes); }
  return begin;
}

std::uintptr_t heap::take_from(std::uintptr_t base, unsigned count)
{
  auto& s          = segments_.at(base);
  auto const first = s.find(count);
  if (first == granules) {
    set_room(base, s, count - 1);  // a tighter bound: no run of `count` is free
    return 0;
  }
  s.mark(first, count, true);
  s.cursor = (first + count) % granules;
  if (s.room > granules - s.in_use) { set_room(base, s, granules - s.in_use); }
  return base + std::size_t{first} * granule_bytes;
}

std::uintptr_t heap::allocate_small(unsigned count, std::size_t room)
{
  for (;;) {
    auto const candidate = by_room_.lower_bound({count, 0});
    if (candidate == by_room_.end()) {
      if (!add_segment(room)) { return 0; }
    } else if (auto const begin = take_from(candidate->second, count)) {
      return begin;
    }
  }
}

bool heap::add_segment(std::size_t room)
{
  if (room < block_bytes) { return false; }
  std::uintptr_t base = 0;
  if (spares_.size() == most_spares) {
    base = spares_.front();
    spares_.pop_front();
  } else {
    base = take_addresses(block_bytes);
    if (base == 0) { return false; }
    if (!protect(base, block_bytes, protection::read_write)) {
      free_.insert(base, block_bytes);
      return false;
    }
  }
  segments_.emplace(base, segment{});
  by_room_.emplace(granules, base);
  footprint_ += block_bytes;
  return true;
}

std::uintptr_t heap::allocate_large(std::size_t bytes, std::size_t room)
{
  if (bytes > room || round_up(bytes, block_bytes) > room) { return 0; }
  bytes            = round_up(bytes, block_bytes);
  auto const begin = take_addresses(bytes);
  if (begin == 0) { return 0; }
  if (!protect(begin, bytes, protection::read_write)) {
    free_.insert(begin, bytes);
    return 0;
  }
  footprint_ += bytes;
  return begin;
}

std::uintptr_t heap::take_addresses(std::size_t bytes)
{
  for (;;) {
    if (auto const begin = free_.take(bytes)) { return begin; }
    if (add_region(bytes)) { continue; }
    if (resting_.empty()) { return 0; }
    wake_oldest();
  }
}

bool heap::add_region(std::size_t bytes)
{
  bytes            = std::max(bytes, region_bytes);
  auto const begin = addresses_.claim(bytes + guard_bytes, block_bytes);
  if (begin == 0) { return false; }
  auto const offset = pages_.extend(bytes);
  if (!pages_.map(begin, bytes, offset)) {
    addresses_.give_up(begin);
    return false;
  }
  regions_.emplace(begin, region{bytes, offset});
  free_.insert(begin, bytes);
  return true;
}

void heap::deallocate(std::uintptr_t begin, std::size_t bytes)
{
  if (bytes > block_bytes) {
    bytes = round_up(bytes, block_bytes);
    footprint_ -= bytes;
    rest(begin, bytes);
    return;
  }
  mark_freed(begin, bytes);
  auto const base  = segment_base(begin);
  auto const count = static_cast<unsigned>(round_up(bytes, granule_bytes) / granule_bytes);
  auto const found = segments_.find(base);
  auto& s          = found->second;
  auto const first = static_cast<unsigned>((begin - base) / granule_bytes);
  s.mark(first, count, false);
  if (s.in_use != 0) {
    auto const run = s.next_used(first + count) - s.end_of_used_before(first);
    set_room(base, s, std::max(s.room, run));
    return;
  }
  by_room_.erase({s.room, base});
  segments_.erase(found);
  footprint_ -= block_bytes;
  spares_.push_back(base);
  if (spares_.size() > most_spares) {
    rest(spares_.front(), block_bytes);
    spares_.pop_front();
  }
}

/// Takes the pages away and keeps the addresses out of use for a while.
void heap::rest(std::uintptr_t begin, std::size_t bytes)
{
  protect(begin, bytes, protection::none);
  pages_.discard(offset_of(begin), bytes);
  resting_.emplace_back(begin, bytes);
  if (resting_.size() > most_resting) { wake_oldest(); }
}

/// Makes the addresses that have rested longest usable again. Gives up the region of a huge block that is free.
void heap::wake_oldest()
{
  auto const [begin, bytes] = resting_.front();
  resting_.pop_front();
  free_.insert(begin, bytes);
  auto const home = std::prev(regions_.upper_bound(begin));
  if (home->second.bytes > region_bytes && free_.contains(home->first, home->second.bytes)) {
    free_.remove(home->first, home->second.bytes);
    addresses_.give_up(home->first);
    regions_.erase(home);
  }
}

std::uint64_t heap::offset_of(std::uintptr_t address) const
{
  auto const home = std::prev(regions_.upper_bound(address));
  return home->second.offset + (address - home->first);
}

bool heap::check_invariants() const
{
  std::size_t blocks = segments_.size() + spares_.size();
  for (auto const& [begin, bytes] : free_.ranges()) { blocks += bytes / block_bytes; }
  for (auto const& [begin, bytes] : resting_) { blocks += bytes / block_bytes; }
  std::size_t all = 0;
  for (auto const& [begin, r] : regions_) { all += r.bytes / block_bytes; }
  auto const large = footprint_ / block_bytes - segments_.size();
  if (blocks + large != all || by_room_.size() != segments_.size()) { return false; }  // I1, I2
  return free_.check_invariants() && std::all_of(segments_.begin(), segments_.end(), [&](auto const& entry) {
           auto const& [base, s] = entry;
           unsigned counted      = 0;
           unsigned longest      = 0;
           for (unsigned g = s.next_free(0); g < granules; g = s.next_free(g)) {
             auto const end = s.next_used(g);
             longest        = std::max(longest, end - g);
             counted += end - g;
             g = end;
           }
           return counted + s.in_use == granules && s.in_use != 0 && longest <= s.room &&
                  by_room_.count({s.room, base}) == 1;  // I3
         });
}

}  // namespace cudasim
