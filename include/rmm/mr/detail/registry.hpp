// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

/// @file
/// The process-wide table of the resources that are registered for devices; mr/per_device_resource.hpp is its
/// interface.
///
/// Shared objects that share it may have been built by different compilers and with different releases of libcu++. So
/// the layout of what they share depends on neither; whoever changes it takes another name and number for its anchor. Releases
/// that differ in it then have a table each, in modules opened with RTLD_LOCAL; objects that are linked together have to
/// be of one release, for the linker merges their inline functions by name. See docs/reliability.md.

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A reference that was registered, as a resource that allocates through it.
///
/// The class of references depends on the release of libcu++. Shared objects built with another one than that which
/// registered it use this resource instead.
class registered_ref_base : public device_memory_resource {
 public:
  registered_ref_base(int libcudacxx, registered_ref_base* next) noexcept : libcudacxx_{libcudacxx}, next_{next} {}
  registered_ref_base(registered_ref_base const&)            = delete;
  registered_ref_base& operator=(registered_ref_base const&) = delete;

  /// Release of the libcu++ whose reference it holds.
  [[nodiscard]] int libcudacxx() const noexcept { return libcudacxx_; }
  [[nodiscard]] registered_ref_base* next() const noexcept { return next_; }

 private:
  int libcudacxx_;
  registered_ref_base* next_;
};

// A template, so that two releases of libcu++ do not give the same name to two classes.
template <int Libcudacxx>
class registered_ref final : public registered_ref_base {
 public:
  registered_ref(device_async_resource_ref const& ref, registered_ref_base* next) noexcept
    : registered_ref_base{Libcudacxx, next}, ref_{ref}
  {}

  [[nodiscard]] device_async_resource_ref const& get() const noexcept { return ref_; }

  /// Whether this is for the same resource, called in the same way.
  [[nodiscard]] bool holds(device_async_resource_ref const& other) const noexcept
  {
    return std::memcmp(&ref_, &other, sizeof ref_) == 0;
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return ref_.allocate_async(bytes, stream); }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    ref_.deallocate_async(ptr, bytes, stream);
  }

  device_async_resource_ref ref_;
};

/// The resources of all devices.
///
/// Invariants:
///  R1  a pointer is null until one is registered; null means the initial resource
///  R2  a ref word is 0 for the initial resource, the address of a device_memory_resource, or that of a
///      registered_ref_base plus 1
///  R3  entries and registered_refs are made once for each device id and each reference, and never freed: readers take
///      no lock and may use what they read at any time
///  R4  pointers are written with pointers_mutex and refs_mutex held, taken in this order; words are written, and
///      entries and registered_refs are made, with refs_mutex held
/// Writers release and readers acquire, so a registered resource is seen constructed.
class registry {
 public:
  explicit registry(device_memory_resource* initial) noexcept : initial_{initial} {}
  registry(registry const&)            = delete;
  registry& operator=(registry const&) = delete;

  [[nodiscard]] device_memory_resource* initial() const noexcept { return initial_; }
  [[nodiscard]] std::mutex& pointers_mutex() noexcept { return pointers_mutex_; }
  [[nodiscard]] std::mutex& refs_mutex() noexcept { return refs_mutex_; }

  [[nodiscard]] device_memory_resource* pointer(int device) const noexcept
  {
    auto const* const found = find_entry(device);
    auto* const pointer     = found != nullptr ? found->pointer.load(std::memory_order_acquire) : nullptr;
    return pointer != nullptr ? pointer : initial_;
  }

  [[nodiscard]] device_async_resource_ref ref(int device) const noexcept
  {
    auto const* const found = find_entry(device);
    return from_word(found != nullptr ? found->ref.load(std::memory_order_acquire) : 0);
  }

  /// Registers a pointer. Requires both mutexes. Returns the one before.
  device_memory_resource* exchange_pointer(int device, device_memory_resource* resource)
  {
    auto* const old = make_entry(device).pointer.exchange(resource, std::memory_order_acq_rel);
    return old != nullptr ? old : initial_;
  }

  /// Registers a reference to `*resource`. Requires refs_mutex. Returns the reference before.
  device_async_resource_ref exchange_ref(int device, device_memory_resource* resource)
  {
    return exchange_word(device, reinterpret_cast<std::uintptr_t>(resource));
  }

  /// Registers a reference. Requires refs_mutex. Returns the one before.
  device_async_resource_ref exchange_ref(int device, device_async_resource_ref const& ref)
  {
    return exchange_word(device, reinterpret_cast<std::uintptr_t>(registered(ref)) | is_ref);
  }

  /// A resource that allocates through `ref`, for as long as the process lives. Requires refs_mutex.
  [[nodiscard]] device_memory_resource* resource_for(device_async_resource_ref const& ref) { return registered(ref); }

  /// Number of different references that were ever registered; that many are kept. Requires refs_mutex.
  [[nodiscard]] std::size_t kept_refs() const noexcept
  {
    std::size_t count = 0;
    for (auto const* kept = refs_; kept != nullptr; kept = kept->next()) { ++count; }
    return count;
  }

  /// Calls `function(device, pointer)` for each device that a pointer was registered for. Requires pointers_mutex.
  template <class Function>
  void for_each_pointer(Function function) const
  {
    for_each_entry([&](int device, entry const& found) {
      auto* const pointer = found.pointer.load(std::memory_order_acquire);
      if (pointer != nullptr) { function(device, pointer); }
    });
  }

  /// The same for references. Requires refs_mutex.
  template <class Function>
  void for_each_ref(Function function) const
  {
    for_each_entry([&](int device, entry const& found) {
      auto const word = found.ref.load(std::memory_order_acquire);
      if (word != 0) { function(device, from_word(word)); }
    });
  }

 private:
  struct entry {
    std::atomic<device_memory_resource*> pointer{nullptr};
    std::atomic<std::uintptr_t> ref{0};
  };

  /// Entry of a device outside of the table.
  struct listed_entry : entry {
    listed_entry(int device_id, listed_entry* next_entry) noexcept : device{device_id}, next{next_entry} {}
    int device;
    listed_entry* next;
  };

  static constexpr std::uintptr_t is_ref{1};  // in a ref word
  static_assert(alignof(device_memory_resource) > is_ref);
  static constexpr int table_size{64};

  [[nodiscard]] static bool is_in_table(int device) noexcept
  {
    return static_cast<unsigned>(device) < static_cast<unsigned>(table_size);
  }

  [[nodiscard]] entry const* find_entry(int device) const noexcept
  {
    return is_in_table(device) ? &table_[device] : find_listed(device);
  }

  [[nodiscard]] listed_entry* find_listed(int device) const noexcept
  {
    auto* listed = list_.load(std::memory_order_acquire);
    while (listed != nullptr && listed->device != device) { listed = listed->next; }
    return listed;
  }

  /// Finds or makes the entry. Requires refs_mutex.
  [[nodiscard]] entry& make_entry(int device)
  {
    if (is_in_table(device)) { return table_[device]; }
    if (auto* const found = find_listed(device)) { return *found; }
    auto* const added = new listed_entry{device, list_.load(std::memory_order_relaxed)};
    list_.store(added, std::memory_order_release);
    return *added;
  }

  template <class Function>
  void for_each_entry(Function function) const
  {
    for (int device = 0; device < table_size; ++device) { function(device, table_[device]); }
    for (auto* listed = list_.load(std::memory_order_acquire); listed; listed = listed->next) {
      function(listed->device, *listed);
    }
  }

  device_async_resource_ref exchange_word(int device, std::uintptr_t word)
  {
    return from_word(make_entry(device).ref.exchange(word, std::memory_order_acq_rel));
  }

  [[nodiscard]] device_async_resource_ref from_word(std::uintptr_t word) const noexcept
  {
    if (word == 0) { return device_async_resource_ref{initial_}; }
    if ((word & is_ref) == 0) { return {reinterpret_cast<device_memory_resource*>(word)}; }
    auto* const registered = reinterpret_cast<registered_ref_base*>(word & ~is_ref);
    if (registered->libcudacxx() == CCCL_VERSION) {
      return static_cast<registered_ref<CCCL_VERSION> const*>(registered)->get();
    }
    return device_async_resource_ref{static_cast<device_memory_resource*>(registered)};
  }

  /// The one registered_ref for what `ref` refers to. Requires refs_mutex.
  [[nodiscard]] registered_ref_base* registered(device_async_resource_ref const& ref)
  {
    for (auto* known = refs_; known != nullptr; known = known->next()) {
      if (known->libcudacxx() == CCCL_VERSION && static_cast<registered_ref<CCCL_VERSION> const*>(known)->holds(ref)) {
        return known;
      }
    }
    refs_ = new registered_ref<CCCL_VERSION>{ref, refs_};
    return refs_;
  }

  device_memory_resource* initial_;
  std::mutex pointers_mutex_;
  std::mutex refs_mutex_;
  entry table_[table_size];
  std::atomic<listed_entry*> list_{nullptr};
  registered_ref_base* refs_{nullptr};
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
