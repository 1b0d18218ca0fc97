// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Where simulated memory comes from: addresses of this process, pages of memory files, and a heap that hands blocks out as
/// the CUDA driver does. Nothing here knows CUDA or the world; the caller serialises.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

// ThreadSanitizer leaves a program about 1.5 TiB of addresses and ends it when they run out.
#if defined(__SANITIZE_THREAD__)
#define CUDASIM_FEW_ADDRESSES true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUDASIM_FEW_ADDRESSES true
#endif
#endif
#ifndef CUDASIM_FEW_ADDRESSES
#define CUDASIM_FEW_ADDRESSES false
#endif

namespace cudasim {

constexpr bool few_addresses = CUDASIM_FEW_ADDRESSES;

constexpr std::size_t block_bytes   = std::size_t{2} << 20U;  ///< a device hands out memory in blocks of this size
constexpr std::size_t granule_bytes = 512;                    ///< small allocations share a block in steps of this size
constexpr std::size_t guard_bytes   = 4096;                   ///< unused bytes between ranges that must not touch

/// Smallest multiple of `unit`, a power of two, that is not below `bytes`. Requires that there is one.
[[nodiscard]] constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept
{
  return (bytes + unit - 1) & ~(unit - 1);
}

/// Writes a pattern over the first bytes of memory that was handed out or taken back, so that code that relies on zeros
/// or on old contents fails early. Only over the first 512 bytes: large blocks have to stay untouched, and calls fast.
void mark_fresh(std::uintptr_t begin, std::size_t bytes) noexcept;
void mark_freed(std::uintptr_t begin, std::size_t bytes) noexcept;
constexpr unsigned char fresh_byte = 0xcd;
constexpr unsigned char freed_byte = 0xdd;

/// A set of bytes, as ranges that neither overlap nor touch.
///
/// Invariant: both indices hold the same ranges, none empty.
class range_set {
 public:
  /// Adds bytes that are not in the set.
  void insert(std::uintptr_t begin, std::size_t bytes);

  /// Adds all of `other`, none of which is in this set, and empties it.
  void absorb(range_set& other);

  /// Removes bytes that are in the set.
  void remove(std::uintptr_t begin, std::size_t bytes);

  /// Removes `bytes` at the front of the smallest range that has them. Returns where, or 0 if there is no such range.
  [[nodiscard]] std::uintptr_t take(std::size_t bytes);

  [[nodiscard]] bool contains(std::uintptr_t begin, std::size_t bytes) const;

  /// Size of the largest range; 0 if the set is empty.
  [[nodiscard]] std::size_t largest() const noexcept { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

  /// Bytes in the set directly before `address`.
  [[nodiscard]] std::size_t bytes_before(std::uintptr_t address) const;

  [[nodiscard]] bool empty() const noexcept { return by_address_.empty(); }
  [[nodiscard]] std::map<std::uintptr_t, std::size_t> const& ranges() const noexcept { return by_address_; }
  [[nodiscard]] bool check_invariants() const;

 private:
  using by_address = std::map<std::uintptr_t, std::size_t>;

  void add(by_address::const_iterator hint, std::uintptr_t begin, std::size_t bytes);
  by_address::const_iterator drop(by_address::const_iterator range);

  by_address by_address_;
  std::set<std::pair<std::size_t, std::uintptr_t>> by_size_;
};

/// The addresses that the simulator has claimed from the process. Without pages they cannot be read or written.
///
/// Addresses that were given up stay claimed for a while, so that stale pointers into them are still recognised.
class territory {
 public:
  territory()                            = default;
  territory(territory const&)            = delete;
  territory& operator=(territory const&) = delete;
  ~territory();

  /// Claims addresses, at `hint` if that is free. Returns 0 if the process has no room for them. `alignment` is a power of two.
  [[nodiscard]] std::uintptr_t claim(std::size_t bytes, std::size_t alignment, std::uintptr_t hint = 0);

  /// Gives up what an earlier claim() returned.
  void give_up(std::uintptr_t begin);

  /// Whether the address is still claimed, so that the process cannot have handed it out otherwise.
  [[nodiscard]] bool owns(std::uintptr_t address) const;

 private:
  void unmap(std::uintptr_t begin);

  std::map<std::uintptr_t, std::size_t> claims_;
  std::deque<std::uintptr_t> given_up_;
  std::size_t given_up_bytes_{0};
  std::size_t claimed_bytes_{0};
};

/// The pages of simulated memory: an anonymous file, so that processes can map them. Untouched pages cost nothing.
///
/// The first part of the file holds notes (one for each time something was exported), the rest holds memory.
class memory_file {
 public:
  explicit memory_file(char const* name) noexcept : name_{name} {}
  /// Takes over an open descriptor of an existing memory file, which may be another process's.
  memory_file(char const* name, int descriptor) noexcept : name_{name}, descriptor_{descriptor} {}
  memory_file(memory_file const&)            = delete;
  memory_file& operator=(memory_file const&) = delete;
  ~memory_file();

  /// Adds pages; returns their offset. Offsets are never used twice. Throws std::bad_alloc if the system has no such files.
  [[nodiscard]] std::uint64_t extend(std::size_t bytes);

  /// Gives pages back to the system. They read as zeros from now on.
  void discard(std::uint64_t offset, std::size_t bytes) noexcept;

  /// Puts pages at claimed addresses, with no access yet. Returns false if the system refuses.
  [[nodiscard]] bool map(std::uintptr_t at, std::size_t bytes, std::uint64_t offset) noexcept;

  /// Writes a note and returns a new descriptor of the file, positioned at the note; its receiver reads the note with
  /// read_note(). Returns -1 if the system has no more descriptors.
  [[nodiscard]] int export_note(void const* note, std::size_t bytes);

  /// Reads the note that a descriptor is positioned at. Returns false if there is none of that size.
  [[nodiscard]] static bool read_note(int descriptor, void* note, std::size_t bytes) noexcept;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  void open();

  static constexpr std::uint64_t note_bytes = 64;
  static constexpr std::uint64_t notes_end  = std::uint64_t{1} << 30U;

  char const* name_;
  int descriptor_{-1};
  std::uint64_t next_{notes_end};
  std::uint64_t next_note_{note_bytes};  ///< never 0, the position of descriptors from other sources
};

/// The access that memory at an address allows.
enum class protection { none, read, read_write };

/// Changes the access to memory. Returns false if the system refuses (it has no more mappings).
bool protect(std::uintptr_t begin, std::size_t bytes, protection allowed) noexcept;

/// Takes pages away from claimed addresses; nothing can be read or written there again.
void unmap_pages(std::uintptr_t begin, std::size_t bytes) noexcept;

/// Hands out blocks the way the driver does: requests of up to 2 MiB share 2 MiB blocks, in steps of 512 bytes; larger
/// requests get multiples of 2 MiB to themselves.
///
/// Reuses addresses late: small ones only when the search has gone once round their block, large ones and emptied
/// blocks after several others, unless memory would run out otherwise.
///
/// Invariants:
///  I1  footprint() == 2 MiB * (segments in use) + sum(large blocks in use)
///  I2  every 2 MiB of a region are in exactly one of: a segment in use, a spare segment, a large block, free_, resting_
///  I3  by_room_ holds the segments in use, each with an upper bound of its longest free run
///  I4  only segments, in use or spare, and large blocks in use can be accessed
class heap {
 public:
  heap(territory& addresses, memory_file& pages) noexcept : addresses_{addresses}, pages_{pages} {}
  heap(heap const&)            = delete;
  heap& operator=(heap const&) = delete;

  /// Returns a block, or 0 if it needs more than `room` bytes beyond footprint(). Requires `bytes > 0`.
  [[nodiscard]] std::uintptr_t allocate(std::size_t bytes, std::size_t room);

  /// Takes a block back. Requires that allocate(bytes, ...) returned it.
  void deallocate(std::uintptr_t begin, std::size_t bytes);

  /// Bytes of the device that the blocks in use take.
  [[nodiscard]] std::size_t footprint() const noexcept { return footprint_; }

  /// The offset, in the memory file, of the byte at an address of this heap.
  [[nodiscard]] std::uint64_t offset_of(std::uintptr_t address) const;

  [[nodiscard]] bool check_invariants() const;

 private:
  static constexpr unsigned granules = block_bytes / granule_bytes;

  struct segment {
    std::array<std::uint64_t, granules / 64> used{};
    unsigned cursor{0};       ///< where the next search starts
    unsigned in_use{0};       ///< number of granules in use
    unsigned room{granules};  ///< upper bound of the longest free run

    [[nodiscard]] unsigned next_used(unsigned from) const noexcept;
    [[nodiscard]] unsigned next_free(unsigned from) const noexcept;
    [[nodiscard]] unsigned end_of_used_before(unsigned from) const noexcept;
    [[nodiscard]] unsigned find(unsigned from, unsigned to, unsigned count) const noexcept;
    [[nodiscard]] unsigned find(unsigned count) const noexcept;
    void mark(unsigned first, unsigned count, bool in_use_now) noexcept;
  };

  struct region {
    std::size_t bytes;
    std::uint64_t offset;
  };

  [[nodiscard]] std::uintptr_t allocate_small(unsigned count, std::size_t room);
  [[nodiscard]] std::uintptr_t take_from(std::uintptr_t base, unsigned count);
  [[nodiscard]] bool add_segment(std::size_t room);
  [[nodiscard]] std::uintptr_t allocate_large(std::size_t bytes, std::size_t room);
  [[nodiscard]] std::uintptr_t take_addresses(std::size_t bytes);
  [[nodiscard]] bool add_region(std::size_t bytes);
  void rest(std::uintptr_t begin, std::size_t bytes);
  void wake_oldest();
  void set_room(std::uintptr_t base, segment& s, unsigned room);

  territory& addresses_;
  memory_file& pages_;
  std::size_t footprint_{0};
  std::map<std::uintptr_t, region> regions_;
  range_set free_;                                              ///< unused addresses, without pages
  std::deque<std::pair<std::uintptr_t, std::size_t>> resting_;  ///< recently freed, without pages; oldest first
  std::unordered_map<std::uintptr_t, segment> segments_;        ///< segments in use
  std::set<std::pair<unsigned, std::uintptr_t>> by_room_;
  std::deque<std::uintptr_t> spares_;  ///< emptied segments, oldest first; they keep their pages
};

}  // namespace cudasim
