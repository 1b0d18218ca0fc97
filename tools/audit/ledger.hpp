// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

enum class memory_kind : std::uint8_t {
  device,
  async,
  managed,
  virtual_memory,
  array,
  routed,
  pinned_host,
  registered_host,
  count
};

[[nodiscard]] constexpr char const* name_of(memory_kind kind) noexcept
{
  constexpr char const* names[]{
    "device", "async", "managed", "virtual", "array", "routed", "pinned host", "registered host"};
  return names[static_cast<std::size_t>(kind)];
}

/// Whether the call itself takes memory of the kind from a device. Routed memory is part of the pool's.
[[nodiscard]] constexpr bool is_of_device(memory_kind kind) noexcept { return kind < memory_kind::routed; }

/// The kind of a number that identifies memory. Numbers of different kinds may be equal.
enum class key_space : std::uint8_t { address, physical, array, registered, routed, count };

/// The allocations of one kind by one library.
struct figures {
  std::uint64_t calls{0};
  std::uint64_t bytes{0};  // of all calls
  std::uint64_t live{0};
  std::uint64_t most{0};  // most live bytes
  std::uint64_t refused_calls{0};
  std::uint64_t refused_bytes{0};

  void add(std::uint64_t more) noexcept
  {
    ++calls;
    bytes += more;
    revive(more);
  }
  void revive(std::uint64_t more) noexcept
  {
    live += more;
    most = std::max(most, live);
  }
};

using library_id = std::uint16_t;

/// An allocation that has not ended.
struct live_memory {
  std::uint64_t bytes;
  library_id library;
  memory_kind kind;
  std::uint32_t uses;  // of physical memory: its handle, and its mappings
  library_id taker;    // the library that called the driver, if the memory counts for a resource
};

/// The allocations of libraries: their numbers and bytes, and those that are live.
///
/// Invariant: for each library and kind, `live` is the sum of the bytes of its live allocations, and at most `most` <= `bytes`.
///
/// All members are thread-safe. They take one lock, and call neither CUDA nor the dynamic linker under it. Members that
/// record throw std::bad_alloc if the process has no memory.
class ledger {
 public:
  static constexpr std::size_t most_libraries = 1024;

  struct library_figures {
    std::string name;
    std::array<figures, static_cast<std::size_t>(memory_kind::count)> by_kind{};
  };

  /// Returns the number of a library. All libraries beyond the first `most_libraries` share the last number.
  [[nodiscard]] library_id id_of(std::string const& name)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    for (std::size_t i = 0; i < libraries_.size(); ++i) {
      if (libraries_[i].name == name) { return static_cast<library_id>(i); }
    }
    if (libraries_.size() == most_libraries) { return static_cast<library_id>(most_libraries - 1); }
    libraries_.push_back({libraries_.size() + 1 == most_libraries ? "(other libraries)" : name, {}});
    return static_cast<library_id>(libraries_.size() - 1);
  }

  [[nodiscard]] std::string name_of_library(library_id id) const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return libraries_.at(id).name;
  }

  /// Records an allocation. If one with the same key is live, its free was missed, and it counts as freed.
  void add(key_space space, std::uint64_t key, std::uint64_t bytes, library_id library, memory_kind kind)
  {
    add(space, key, bytes, library, kind, library);
  }
  void add(
    key_space space, std::uint64_t key, std::uint64_t bytes, library_id library, memory_kind kind, library_id taker)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto& known = live_of(space);
    if (auto const old = known.find(key); old != known.end()) {
      subtract(old->second);
      known.erase(old);
    }
    of(library, kind).add(bytes);
    if (is_of_device(kind)) { on_devices_.add(bytes); }
    known.emplace(key, live_memory{bytes, library, kind, 1, taker});
  }

  /// Ends an allocation. Call it before the driver frees: afterwards another thread may get the same key. Returns
  /// nothing for an unknown key.
  std::optional<live_memory> remove(key_space space, std::uint64_t key)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto& known      = live_of(space);
    auto const found = known.find(key);
    if (found == known.end()) { return std::nullopt; }
    auto const ended = found->second;
    subtract(ended);
    known.erase(found);
    return ended;
  }

  /// Whether an allocation with this key is live.
  [[nodiscard]] bool has(key_space space, std::uint64_t key)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return live_of(space).count(key) != 0;
  }

  /// Undoes a remove() after the driver refused to free.
  void restore(key_space space, std::uint64_t key, live_memory const& memory)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (!live_of(space).emplace(key, memory).second) { return; }
    of(memory.library, memory.kind).revive(memory.bytes);
    if (is_of_device(memory.kind)) { on_devices_.revive(memory.bytes); }
  }

  /// Records the memory of a handle. It is live while the handle has owners or the memory is mapped.
  void add_handle(std::uint64_t handle, std::uint64_t bytes, library_id library)
  {
    std::uint64_t serial{};
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      serial           = ++last_serial_;
      handles_[handle] = {serial, 1};
    }
    add(key_space::physical, serial, bytes, library, memory_kind::virtual_memory);
  }

  /// Adds an owner to a handle. Does nothing for an unknown handle, such as an imported one.
  void own_handle(std::uint64_t handle)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (auto const found = handles_.find(handle); found != handles_.end()) { ++found->second.owners; }
  }

  /// Removes an owner of a handle. After the last one, the driver may reuse the number.
  void disown_handle(std::uint64_t handle)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const found = handles_.find(handle);
    if (found == handles_.end() || --found->second.owners != 0) { return; }
    auto const serial = found->second.serial;
    handles_.erase(found);
    drop_use(serial);
  }

  /// Records that the memory of a handle is mapped at an address.
  void map(std::uint64_t address, std::uint64_t handle)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const found = handles_.find(handle);
    if (found == handles_.end()) { return; }
    mappings_[address] = found->second.serial;
    ++live_of(key_space::physical).at(found->second.serial).uses;
  }

  /// Records that `bytes` bytes at an address are no longer mapped.
  void unmap(std::uint64_t address, std::uint64_t bytes)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const first = mappings_.lower_bound(address);
    auto last        = first;
    for (; last != mappings_.end() && last->first - address < bytes; ++last) { drop_use(last->second); }
    mappings_.erase(first, last);
  }

  /// Counts a refused allocation. Returns the number of earlier refusals of this kind and library.
  std::uint64_t refuse(library_id library, memory_kind kind, std::uint64_t bytes)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto& counted = of(library, kind);
    counted.refused_bytes += bytes;
    return counted.refused_calls++;
  }

  [[nodiscard]] std::vector<library_figures> libraries() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return libraries_;
  }

  /// Whether no call was counted.
  [[nodiscard]] bool is_empty() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return std::all_of(libraries_.begin(), libraries_.end(), [](auto const& each) {
      return std::all_of(each.by_kind.begin(), each.by_kind.end(), [](figures const& counted) {
        return counted.calls + counted.refused_calls == 0;
      });
    });
  }

  /// Returns the device allocations of all libraries.
  [[nodiscard]] figures on_devices() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return on_devices_;
  }

  /// Forgets all figures and live allocations in a forked child, because they are the parent's. Libraries keep their numbers.
  void forget()
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    for (auto& library : libraries_) { library.by_kind = {}; }
    for (auto& known : live_) { known.clear(); }
    handles_.clear();
    mappings_.clear();
    on_devices_ = {};
  }

  /// Locks and unlocks around fork(), so that the lock is free in the child.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  using memories = std::unordered_map<std::uint64_t, live_memory>;

  [[nodiscard]] memories& live_of(key_space space) { return live_[static_cast<std::size_t>(space)]; }

  [[nodiscard]] figures& of(library_id library, memory_kind kind)
  {
    return libraries_.at(library).by_kind[static_cast<std::size_t>(kind)];
  }

  void subtract(live_memory const& memory)
  {
    of(memory.library, memory.kind).live -= memory.bytes;
    if (is_of_device(memory.kind)) { on_devices_.live -= memory.bytes; }
  }

  /// Removes an owner or a mapping of memory, which is freed with the last one.
  void drop_use(std::uint64_t serial)
  {
    auto& known      = live_of(key_space::physical);
    auto const found = known.find(serial);
    if (found == known.end() || --found->second.uses != 0) { return; }
    subtract(found->second);
    known.erase(found);
  }

  struct owned_handle {
    std::uint64_t
      serial;  // of the memory: the driver may reuse the number of a released handle while the memory is mapped
    std::uint64_t owners;
  };

  mutable std::mutex mutex_;
  std::vector<library_figures> libraries_;
  std::array<memories, static_cast<std::size_t>(key_space::count)> live_;
  std::unordered_map<std::uint64_t, owned_handle> handles_;
  std::map<std::uint64_t, std::uint64_t> mappings_;  // address: serial of the memory
  std::uint64_t last_serial_{0};
  figures on_devices_;
};

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
