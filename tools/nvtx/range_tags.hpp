// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/tag_table.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

namespace RMM_NAMESPACE {
namespace tools {

/// Returns at most `length` bytes of a text in UTF-8, cut between characters.
[[nodiscard]] inline std::string_view cut_between_characters(std::string_view text, std::size_t length) noexcept
{
  if (text.size() <= length) { return text; }
  while (length != 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) { --length; }
  return text.substr(0, length);
}

/// The domains of ranges, and the tags of their names. A tag is named `domain:name`, or `name` in the default domain.
///
/// Bounded, because a program may put numbers into names: after `max_names` names, all new ones share one tag.
///
/// Invariants:
///  N1  a slot is null, or points to an entry that never changes; an entry lies between the slot of its hash and the
/// next null
///  N2  at most max_names slots are set, which is half of them
///
/// Order: an entry is released with its address in a slot, which look-ups acquire. It never changes after that, and neither does the name in
/// the table of tags, which was interned before. Slots are filled with the mutex held, so no slot is filled twice. names_ guards no data: a
/// thread that reads an old number takes the mutex and reads again. Domains are plain: a thread that has the number of a domain got it from
/// domain(), or from the thread that called it.
///
/// Thread-safe. A look-up of a known name takes no lock.
class range_tags {
 public:
  static constexpr std::uint32_t max_names          = 4096;
  static constexpr std::uint32_t max_domains        = 256;
  static constexpr std::size_t max_name_length      = 255;  // longer names are cut
  static constexpr std::size_t max_domain_length    = 63;
  static constexpr std::uint32_t default_domain     = 0;
  static constexpr std::string_view name_of_default = "default";
  static constexpr std::string_view name_of_own     = "librmm";  // of RMM's own ranges, which would hide all others
  static constexpr std::string_view name_of_others  = "(other ranges)";

  /// `wanted` names the domains whose ranges count, separated by commas. If it is null or empty, all count except RMM's own.
  ///
  /// Throws std::bad_alloc; no other function does.
  explicit range_tags(char const* wanted) : wanted_{wanted != nullptr ? wanted : ""}
  {
    domains_[default_domain].is_ignored = !is_wanted(name_of_default);
    others_                             = intern(name_of_others);
  }

  range_tags(range_tags const&)            = delete;
  range_tags& operator=(range_tags const&) = delete;
  ~range_tags()
  {
    for (auto const& slot : slots_) { delete slot.load(std::memory_order_relaxed); }
  }

  /// Returns the number of the domain with that name. When no number is free, new domains share the last one.
  [[nodiscard]] RMM_COLD std::uint32_t domain(std::string_view name) noexcept
  {
    name = cut_between_characters(name, max_domain_length);
    detail::mutex_lock const lock{mutex_};
    for (std::uint32_t i = default_domain + 1; i != domain_count_; ++i) {
      if (name == domains_[i].name) { return i; }
    }
    if (domain_count_ == max_domains) { return max_domains - 1; }
    auto& made = domains_[domain_count_];
    name.copy(made.name, name.size());
    made.is_ignored = !is_wanted(name);
    return domain_count_++;
  }

  /// Whether ranges of a domain do not count. Unknown domains are ignored.
  [[nodiscard]] bool is_ignored(std::uint32_t domain) const noexcept
  {
    return domain >= max_domains || domains_[domain].is_ignored;
  }

  /// Returns the tag of a name in a domain; 0 for an empty name.
  [[nodiscard]] std::uint32_t tag_of(std::uint32_t domain, std::string_view name) noexcept
  {
    if (name.empty()) { return 0; }
    auto const hash         = hash_of(domain, name);
    auto const* const found = find(hash, domain, name).entry;
    return found != nullptr ? found->tag : add(hash, domain, name);
  }

  /// Locks out additions of names by other threads.
  void lock() noexcept { mutex_.lock(); }
  void unlock() noexcept { mutex_.unlock(); }

 private:
  struct domain_state {
    char name[max_domain_length + 1]{};
    bool is_ignored{true};
  };

  struct name_entry {
    std::uint64_t hash;
    std::uint32_t domain;
    std::uint32_t tag;
    std::string_view name;  // in the table of tags
  };

  static constexpr std::size_t slot_count = std::size_t{2} * max_names;

  [[nodiscard]] static std::uint32_t intern(std::string_view name) noexcept
  {
    return detail::tags().intern(name.data(), name.size());
  }

  /// Multiplies two words into one; all bits of the result depend on all bits of both.
  [[nodiscard]] static std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept
  {
    __extension__ using wide = unsigned __int128;
    auto const product       = static_cast<wide>(a ^ 0x9E3779B97F4A7C15U) * (b ^ 0xC2B2AE3D27D4EB4FU);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  }

  template <class Word>
  [[nodiscard]] static std::uint64_t load(char const* text) noexcept
  {
    Word word;
    std::memcpy(&word, text, sizeof word);
    return word;
  }

  [[nodiscard]] static std::uint64_t hash_of(std::uint32_t domain, std::string_view name) noexcept
  {
    auto hash          = domain + (std::uint64_t{name.size()} << 32U);
    char const* text   = name.data();
    std::size_t length = name.size();
    for (; length > 16; text += 16, length -= 16) {
      hash = mix(load<std::uint64_t>(text), load<std::uint64_t>(text + 8) ^ hash);
    }
    // Two words, which may overlap.
    if (length >= 8) { return mix(load<std::uint64_t>(text), load<std::uint64_t>(text + length - 8) ^ hash); }
    if (length >= 4) { return mix(load<std::uint32_t>(text), load<std::uint32_t>(text + length - 4) ^ hash); }
    return mix(load<std::uint8_t>(text) | load<std::uint8_t>(text + length / 2) << 8U,
               load<std::uint8_t>(text + length - 1) ^ hash);
  }

  /// A slot, and its content at one moment: another thread may have filled the slot since.
  struct found_entry {
    std::atomic<name_entry const*>& slot;
    name_entry const* entry;
  };

  /// Returns the slot with the entry of a name, or the free slot for it.
  [[nodiscard]] found_entry find(std::uint64_t hash, std::uint32_t domain, std::string_view name) noexcept
  {
    for (std::size_t i = hash % slot_count;; i = (i + 1) % slot_count) {
      auto const* const there = slots_[i].load(std::memory_order_acquire);
      if (there == nullptr || (there->hash == hash && there->domain == domain && there->name == name)) {
        return {slots_[i], there};
      }
    }
  }

  RMM_COLD std::uint32_t add(std::uint64_t hash, std::uint32_t domain, std::string_view name) noexcept
  {
    if (names_.load(std::memory_order_relaxed) == max_names) { return others_; }
    char text[max_domain_length + 1 + max_name_length];
    std::size_t prefix = 0;
    if (domain != default_domain) {
      prefix         = std::string_view{domains_[domain].name}.copy(text, max_domain_length);
      text[prefix++] = ':';
    }
    auto const length = prefix + name.copy(text + prefix, max_name_length);

    detail::mutex_lock const lock{mutex_};
    auto const found = find(hash, domain, name);
    if (found.entry != nullptr) { return found.entry->tag; }
    if (names_.load(std::memory_order_relaxed) == max_names) { return others_; }
    auto const tag              = intern({text, length});
    std::string_view const kept = detail::tags().name_of(tag);
    if (kept != std::string_view{text, length}) { return others_; }  // the table of tags is full
    auto const* const made = new (std::nothrow) name_entry{hash, domain, tag, kept.substr(prefix)};
    if (made == nullptr) { return tag; }
    names_.fetch_add(1, std::memory_order_relaxed);
    found.slot.store(made, std::memory_order_release);
    return tag;
  }

  [[nodiscard]] bool is_wanted(std::string_view name) const noexcept
  {
    if (wanted_.empty()) { return name != name_of_own; }
    for (std::string_view rest = wanted_; !rest.empty();) {
      auto const each = rest.substr(0, rest.find(','));
      if (each == name) { return true; }
      rest.remove_prefix(each.size() + (each.size() != rest.size() ? 1 : 0));
    }
    return false;
  }

  detail::mutex mutex_;
  std::string wanted_;
  std::uint32_t others_{};
  std::uint32_t domain_count_{default_domain + 1};
  domain_state domains_[max_domains];
  std::atomic<std::uint32_t> names_{0};
  std::atomic<name_entry const*> slots_[slot_count]{};
};

}  // namespace tools
}  // namespace RMM_NAMESPACE
