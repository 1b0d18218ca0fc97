// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/base/unwind_rule.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

// Not for MemorySanitizer, which does not see what glibc and the functions of a stack write.
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define RMM_DETAIL_HAS_MEMORY_SANITIZER
#endif
#endif

#if defined(__x86_64__) && defined(__LP64__) && defined(__linux__) && defined(__GNUC__) && \
  !defined(RMM_DETAIL_HAS_MEMORY_SANITIZER)
#define RMM_DETAIL_HAS_FRAME_WALK
#include <dlfcn.h>
#endif

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace RMM_NAMESPACE {
namespace detail {

#if defined(RMM_DETAIL_HAS_FRAME_WALK)

/// Finds the return addresses of a stack, as backtrace() does, by rules that it keeps.
///
/// A rule says where a function has its return address while it is at a certain call. It is read from the unwind tables of the loaded
/// object, and kept only after backtrace() found the same frames as the walk that used it first. If a rule is unknown, the caller asks
/// backtrace(): frames of signal handlers, code without tables, objects that were compiled in unusual ways.
///
/// An object may be unloaded, and another be loaded at its place. So each use of a rule asks the dynamic linker which object the
/// address belongs to (without a lock), and compares a hash of all that the rule was read from with what is there now. Code that a stack
/// returns to cannot be unloaded meanwhile.
///
/// Order: the places of the cache are shared by all threads, without a lock. The hash of a place also contains its other words. So a place
/// that another thread is writing looks like one whose object has changed, and all orders may be relaxed.
class frame_walk {
 public:
  /// What the dynamic linker says of an address: the layout of glibc's dl_find_object, which is part of its interface.
  struct loaded_object {
    unsigned long long flags;
    void* begin;
    void* end;
    void* link_map;
    void* unwind_table;
    unsigned long long reserved[7];
  };
  using find_object_function = int (*)(void*, loaded_object*);

  struct result {
    std::size_t frames;
    unwind_rule::kind end;  ///< last: all frames, or as many as fit; else what is wrong with the rule of the last one
  };

  /// `find_object` is for tests. glibc has the function since 2.35; without it, all rules are unknown.
  explicit frame_walk(find_object_function find_object = find_function()) noexcept : find_object_{find_object} {}

  /// Writes up to `capacity` addresses to `frames`, from `start.pc` on. Requires that the frame of `start` still exists.
  [[nodiscard]] result walk(frame_registers const& start, void** frames, std::size_t capacity) const noexcept
  {
    return walk_by(
      [&](std::uintptr_t address, walked_object& object) { return find(address, object); }, start, frames, capacity);
  }

  /// Reads the rules that walk() missed. `theirs` are the frames that backtrace() found in the same function; they stay, or become the same
  /// as walk() returns from now on. Returns their number.
  [[nodiscard]] RMM_COLD std::size_t learn(frame_registers const& start,
                                           void** theirs,
                                           std::size_t count,
                                           std::size_t capacity) noexcept
  {
    std::array<void*, most_frames> frames;
    std::array<found_rule, most_frames> found;
    std::size_t found_count{};
    auto const search = [&](std::uintptr_t address, walked_object& object) {
      auto rule = find(address, object);
      if (rule.is != unwind_rule::kind::missing) { return rule; }
      rule.is           = unwind_rule::kind::unknown;
      auto const number = object.table.find(address);
      if (number == object.table.size()) { return rule; }
      auto const read = object.table.rule(number, address);
      if (read.bytes > packed_rule::most_bytes) { return rule; }
      found[found_count++] = {address, object, number, read};
      return read.rule;
    };
    auto const limit  = detail::min(capacity, most_frames);
    auto const ours   = walk_by(search, start, frames.data(), limit);
    auto const agreed = is_same(ours, frames.data(), theirs, detail::min(count, limit), limit);
    for (std::size_t i = 0; i != found_count; ++i) {
      if (!agreed) { found[i].read.rule.is = unwind_rule::kind::unknown; }
      keep(found[i]);
    }
    if (!agreed || ours.end != unwind_rule::kind::last || capacity > most_frames) { return count; }
    for (std::size_t i = 0; i != ours.frames; ++i) { theirs[i] = frames[i]; }
    return ours.frames;
  }

 private:
  static constexpr std::size_t most_frames{128};
  static constexpr std::size_t set_count{512};
  static constexpr std::size_t set_size{4};

  /// Places of rules for addresses of one hash.
  struct alignas(32) rule_set {
    struct place {
      std::atomic<std::uint64_t> offsets{};
      std::atomic<std::uint64_t> rest{};
      std::atomic<std::uint64_t> hash{};
    };
    std::array<std::atomic<std::uintptr_t>, set_size> addresses{};
    std::array<place, set_size> places{};
  };

  /// The loaded object that a walk is in.
  struct walked_object {
    std::uintptr_t begin{};
    std::uintptr_t end{};
    unwind_table table{nullptr};
    unsigned char const* common{};  // the CIE that was looked at last
    std::uint64_t hash_of_common{};

    /// Returns a number that goes with `seed` and with all that the rule of a function depends on. Requires number < table.size().
    [[nodiscard]] std::uint64_t fingerprint(std::uint32_t number, std::uint32_t bytes, std::uint64_t seed) noexcept
    {
      auto const* const now = table.common_of(number);
      if (now != common) {
        common         = now;
        hash_of_common = unwind_table::fingerprint_of_common(now);
      }
      return table.fingerprint(number, bytes, unwind_table::mix(hash_of_common, seed));
    }
  };

  /// What a place of the cache contains, besides the address.
  struct packed_rule {
    static constexpr std::uint32_t most_bytes{0xFFFFF};
    std::uint64_t offsets;
    std::uint64_t
      rest;  // from the lowest bit: number in the table 32, kind 4, CFA 4, frame pointer 4, bytes of the entry 20

    [[nodiscard]] static packed_rule pack(unwind_table::read_rule const& read, std::uint32_t number) noexcept
    {
      auto const& rule = read.rule;
      return {std::uint64_t{static_cast<std::uint32_t>(rule.cfa_offset)} |
                (std::uint64_t{static_cast<std::uint32_t>(rule.fp_offset)} << 32U),
              std::uint64_t{number} | (static_cast<std::uint64_t>(rule.is) << 32U) |
                (static_cast<std::uint64_t>(rule.cfa_is) << 36U) | (static_cast<std::uint64_t>(rule.fp_is) << 40U) |
                (std::uint64_t{read.bytes} << 44U)};
    }

    [[nodiscard]] std::uint32_t number() const noexcept { return static_cast<std::uint32_t>(rest); }

    /// Returns the hash that a place with this rule has. Requires number() < object.table.size().
    [[nodiscard]] std::uint64_t hash(std::uintptr_t address, walked_object& object) const noexcept
    {
      auto const seed = unwind_table::mix(unwind_table::mix(address, offsets), rest);
      return object.fingerprint(number(), static_cast<std::uint32_t>(rest >> 44U), seed);
    }

    [[nodiscard]] unwind_rule rule() const noexcept
    {
      unwind_rule rule;
      rule.is         = static_cast<unwind_rule::kind>((rest >> 32U) & 0xFU);
      rule.cfa_is     = static_cast<unwind_rule::cfa>((rest >> 36U) & 0xFU);
      rule.fp_is      = static_cast<unwind_rule::saved_fp>((rest >> 40U) & 0xFU);
      rule.cfa_offset = static_cast<std::int32_t>(static_cast<std::uint32_t>(offsets));
      rule.fp_offset  = static_cast<std::int32_t>(static_cast<std::uint32_t>(offsets >> 32U));
      return rule;
    }
  };

  /// A rule that learn() has read, and how it goes into the cache.
  struct found_rule {
    std::uintptr_t address{};
    walked_object object{};
    std::uint32_t number{};
    unwind_table::read_rule read{};
  };

  [[nodiscard]] static find_object_function find_function() noexcept
  {
    return reinterpret_cast<find_object_function>(::dlsym(RTLD_DEFAULT, "_dl_find_object"));
  }

  template <class Find>
  [[nodiscard]] result walk_by(Find const& find_rule,
                               frame_registers const& start,
                               void** frames,
                               std::size_t capacity) const noexcept
  {
    if (capacity == 0 || find_object_ == nullptr) { return {0, unwind_rule::kind::unknown}; }
    auto now = start;
    walked_object object;
    for (std::size_t count = 0;;) {
      frames[count++] = reinterpret_cast<void*>(now.pc);
      if (count == capacity) { return {count, unwind_rule::kind::last}; }
      auto const address = now.pc - 1;  // in the call, because a call may be the last instruction of its function
      if (address < object.begin || address >= object.end) {
        loaded_object loaded;
        if (find_object_(reinterpret_cast<void*>(address), &loaded) != 0) {
          return {count, unwind_rule::kind::unknown};
        }
        object       = {};
        object.begin = reinterpret_cast<std::uintptr_t>(loaded.begin);
        object.end   = reinterpret_cast<std::uintptr_t>(loaded.end);
        object.table = unwind_table{static_cast<unsigned char const*>(loaded.unwind_table)};
        if (object.table.size() == 0) { return {count, unwind_rule::kind::unknown}; }
      }
      auto const rule = find_rule(address, object);
      if (rule.is != unwind_rule::kind::caller) { return {count, rule.is}; }
      if (!rule.apply(now)) { return {count, unwind_rule::kind::unknown}; }
      if (now.pc == 0) { return {count, unwind_rule::kind::last}; }
    }
  }

  [[nodiscard]] static std::size_t set_of(std::uintptr_t address) noexcept
  {
    static_assert(set_count == std::size_t{1} << (64U - 55U));
    return (address * 0x9E3779B97F4A7C15U) >> 55U;
  }

  [[nodiscard]] RMM_ALWAYS_INLINE unwind_rule find(std::uintptr_t address, walked_object& object) const noexcept
  {
    auto const& set = sets_[set_of(address)];
    for (std::size_t i = 0; i != set_size; ++i) {
      if (set.addresses[i].load(std::memory_order_relaxed) != address) { continue; }
      packed_rule const packed{set.places[i].offsets.load(std::memory_order_relaxed),
                               set.places[i].rest.load(std::memory_order_relaxed)};
      if (packed.number() >= object.table.size()) { break; }
      if (packed.hash(address, object) != set.places[i].hash.load(std::memory_order_relaxed)) { break; }
      return packed.rule();
    }
    return {};
  }

  void keep(found_rule& found) noexcept
  {
    auto const packed = packed_rule::pack(found.read, found.number);
    auto const hash   = packed.hash(found.address, found.object);
    auto& set         = sets_[set_of(found.address)];
    std::size_t which = hash % set_size;
    for (auto const wanted :
         {std::uintptr_t{0}, found.address}) {  // an old rule of this address, else an empty place, else any
      for (std::size_t i = 0; i != set_size; ++i) {
        if (set.addresses[i].load(std::memory_order_relaxed) == wanted) { which = i; }
      }
    }
    set.places[which].offsets.store(packed.offsets, std::memory_order_relaxed);
    set.places[which].rest.store(packed.rest, std::memory_order_relaxed);
    set.places[which].hash.store(hash, std::memory_order_relaxed);
    set.addresses[which].store(found.address, std::memory_order_relaxed);
  }

  /// Whether backtrace() found the same frames as a walk. A sanitizer may add a frame of its own in front.
  [[nodiscard]] static bool is_same(
    result const& ours, void* const* frames, void* const* theirs, std::size_t count, std::size_t capacity) noexcept
  {
    for (std::size_t skipped = 0; skipped != 2 && skipped < count; ++skipped) {
      auto const compared = detail::min(ours.frames, count - skipped);
      bool same           = compared > 1 || ours.frames == 1;
      for (std::size_t i = 1; i < compared; ++i) { same = same && frames[i] == theirs[i + skipped]; }
      bool const is_whole = count == capacity || ours.frames == count - skipped;
      bool const is_part  = ours.frames <= count - skipped;
      if (same && (ours.end == unwind_rule::kind::last ? is_whole : is_part)) { return true; }
    }
    return false;
  }

  find_object_function find_object_;
  std::array<rule_set, set_count> sets_{};
};

/// Returns the walk of this process and shared object; null if there is no memory for it.
[[nodiscard]] RMM_HIDDEN inline frame_walk* shared_frame_walk() noexcept
{
  static one_per_process<frame_walk> walk;  // never destroyed: threads may need it while the process exits
  auto* const known = walk.find();
  if (known != nullptr) { return known; }
  try {
    return &walk.get();
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}

/// Returns the registers at this place in the calling function.
[[nodiscard]] RMM_ALWAYS_INLINE frame_registers registers_here() noexcept
{
  frame_registers here;
  asm volatile(  // in either syntax of the assembler
    "lea {0f(%%rip), %0|%0, [rip+0f]}\n0:\n\tmov {%%rsp, %1|%1, rsp}\n\tmov {%%rbp, %2|%2, rbp}"
    : "=a"(here.pc), "=c"(here.sp), "=d"(here.fp));
  return here;
}

#endif

}  // namespace detail
}  // namespace RMM_NAMESPACE
