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
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

/// @file
/// The process-wide table of the resources that are registered for devices; mr/per_device_resource.hpp is its interface.
///
/// Shared objects with different compilers and releases of libcu++ share the table, so its layout depends on neither. A change of the
/// layout needs a new name and number of the anchor. Releases of this library with different layouts then have separate tables, if
/// their modules are opened with RTLD_LOCAL. Objects that are linked together have to use one release, because the linker merges inline
/// functions by name. See docs/reliability.md.

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A resource that allocates through a reference.
///
/// The class of references depends on the release of libcu++. A shared object that cannot read a reference, because another release of
/// libcu++ registered it, uses this resource instead. A template, so that two releases of libcu++ do not define one class differently.
template <int Libcudacxx>
class resource_of_ref final : public device_memory_resource {
 public:
  explicit resource_of_ref(device_async_resource_ref const& ref) noexcept : ref_{ref} {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return ref_.allocate_async(bytes, stream); }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    ref_.deallocate_async(ptr, bytes, stream);
  }

  device_async_resource_ref ref_;
};

/// The bytes of a reference, as words, and the release of libcu++ that defines its class.
struct ref_words {
  static constexpr std::size_t max_count = 4;

  template <class Ref>
  static constexpr std::size_t count_of = (sizeof(Ref) + sizeof(std::uintptr_t) - 1) / sizeof(std::uintptr_t);

  template <int Libcudacxx, class Ref>
  [[nodiscard]] static ref_words copy_of(Ref const& ref) noexcept
  {
    static_assert(count_of<Ref> <= max_count);
    ref_words made;
    made.libcudacxx = Libcudacxx;
    std::memcpy(made.values, &ref, sizeof ref);
    return made;
  }

  /// Copies the words to `ref`. Requires that `Ref` is their class. Copies word by word, because processors are slow to read in one
  /// piece what was written in several.
  template <class Ref>
  void copy_to(Ref& ref) const noexcept
  {
    static_assert(sizeof ref == count_of<Ref> * sizeof(std::uintptr_t));
    auto* const bytes = reinterpret_cast<unsigned char*>(&ref);
    for (std::size_t i = 0; i < count_of<Ref>; ++i) {
      std::memcpy(bytes + i * sizeof values[i], &values[i], sizeof values[i]);
    }
  }

  /// Whether both references have equal bytes and are of one class.
  [[nodiscard]] bool operator==(ref_words const& other) const noexcept
  {
    return libcudacxx == other.libcudacxx && std::memcmp(values, other.values, sizeof values) == 0;
  }

  [[nodiscard]] std::size_t hash() const noexcept
  {
    auto mixed = static_cast<std::uint64_t>(libcudacxx);
    for (auto const value : values) {
      mixed = (mixed ^ value) * 0x9E3779B97F4A7C15U;
      mixed ^= mixed >> 32U;
    }
    return std::size_t{mixed};
  }

  int libcudacxx{0};
  std::uintptr_t values[max_count]{};
};

/// Memory for a registered reference, and for a resource that allocates through it. Reused for other references, unless it is kept.
///
/// Invariants:
///  F1  the state is odd during a write, and each write changes it
///  F2  a kept object never changes
///  F3  no entry points to an object during a write
class registered_ref {
 public:
  registered_ref() noexcept                        = default;
  registered_ref(registered_ref const&)            = delete;
  registered_ref& operator=(registered_ref const&) = delete;

  [[nodiscard]] std::uintptr_t state() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] static bool is_being_written(std::uintptr_t state) noexcept { return (state & being_written) != 0; }
  [[nodiscard]] static bool is_kept(std::uintptr_t state) noexcept { return (state & kept) != 0; }

  /// Returns the release of libcu++ that defines the class of the reference.
  [[nodiscard]] int libcudacxx() const noexcept { return libcudacxx_.load(std::memory_order_acquire); }

  /// Returns the first `Count` words of the reference. Later reads of the caller are not older than these words.
  template <std::size_t Count = ref_words::max_count>
  [[nodiscard]] ref_words words() const noexcept
  {
    ref_words read;
    read.libcudacxx = libcudacxx();
    for (std::size_t i = 0; i < Count; ++i) { read.values[i] = words_[i].load(std::memory_order_acquire); }
    return read;
  }

  /// Returns the resource that allocates through the reference. Requires that the object is kept.
  [[nodiscard]] device_memory_resource* resource() noexcept
  {
    return std::launder(reinterpret_cast<device_memory_resource*>(resource_));
  }

  /// Keeps the object and its reference until the process ends. Returns false if the state is no longer `state`.
  [[nodiscard]] bool try_keep(std::uintptr_t state) noexcept
  {
    return is_kept(state) || state_.compare_exchange_strong(state, state | kept, std::memory_order_acq_rel);
  }

  /// Begins a write. Returns false if the object is kept. Requires the registry's refs_mutex, and that no entry points to the object.
  [[nodiscard]] bool try_begin_writing() noexcept
  {
    auto state = state_.load(std::memory_order_relaxed);
    return !is_kept(state) && state_.compare_exchange_strong(state, state | being_written, std::memory_order_acq_rel);
  }

  /// Writes a reference. Requires that try_begin_writing() returned true. A thread that reads one of the new words also sees the odd
  /// state, or a later one.
  template <int Libcudacxx, class Ref>
  void write(Ref const& ref) noexcept
  {
    using resource_type = resource_of_ref<Libcudacxx>;
    static_assert(sizeof(resource_type) <= sizeof resource_ && alignof(resource_type) <= alignof(std::max_align_t));
    static_assert(std::is_trivially_destructible_v<Ref>, "the previous reference is not destroyed");
    auto const written = ref_words::copy_of<Libcudacxx>(ref);
    libcudacxx_.store(written.libcudacxx, std::memory_order_release);
    for (std::size_t i = 0; i < ref_words::max_count; ++i) {
      words_[i].store(written.values[i], std::memory_order_release);
    }
    new (resource_) resource_type{ref};
    auto const state = state_.load(std::memory_order_relaxed);
    state_.store((state & ~being_written) + next_state, std::memory_order_release);
  }

  registered_ref* next{nullptr};  // the next object of a list; the registry's refs_mutex guards it
  bool is_listed{false};          // whether it is in the kept_ref_table; the registry's refs_mutex guards it

 private:
  static constexpr std::uintptr_t being_written{1};
  static constexpr std::uintptr_t kept{2};
  static constexpr std::uintptr_t next_state{4};

  alignas(std::max_align_t) unsigned char resource_[(1 + ref_words::max_count) * sizeof(void*)]{};
  std::atomic<std::uintptr_t> state_{0};
  std::atomic<int> libcudacxx_{0};
  std::atomic<std::uintptr_t> words_[ref_words::max_count]{};
};

/// A hash table of the kept registered_refs, searched by their words. The registry's refs_mutex guards it.
class kept_ref_table {
 public:
  kept_ref_table() noexcept                        = default;
  kept_ref_table(kept_ref_table const&)            = delete;
  kept_ref_table& operator=(kept_ref_table const&) = delete;

  /// Returns the object with these words; null if there is none. O(1), unless host memory ran out when the table had to grow.
  [[nodiscard]] registered_ref* find(ref_words const& words) const noexcept
  {
    auto* found = buckets_[words.hash() & (bucket_count_ - 1)];
    while (found != nullptr && !(found->words() == words)) { found = found->next; }
    return found;
  }

  void add(registered_ref& ref) noexcept
  {
    if (count_ >= bucket_count_) { try_grow(); }
    push(ref);
    ref.is_listed = true;
    ++count_;
  }

 private:
  void push(registered_ref& ref) noexcept
  {
    auto*& first = buckets_[ref.words().hash() & (bucket_count_ - 1)];
    ref.next     = first;
    first        = &ref;
  }

  void try_grow() noexcept
  {
    auto* const bigger = static_cast<registered_ref**>(std::calloc(2 * bucket_count_, sizeof(registered_ref*)));
    if (bigger == nullptr) { return; }
    auto* const smaller      = std::exchange(buckets_, bigger);
    auto const smaller_count = std::exchange(bucket_count_, 2 * bucket_count_);
    for (std::size_t i = 0; i < smaller_count; ++i) {
      while (auto* const moved = smaller[i]) {
        smaller[i] = moved->next;
        push(*moved);
      }
    }
    if (smaller != first_buckets_) { std::free(smaller); }
  }

  registered_ref* first_buckets_[16]{};
  registered_ref** buckets_{first_buckets_};
  std::size_t bucket_count_{16};  // a power of two
  std::size_t count_{0};
};

/// The registered resources of all devices.
///
/// Invariants:
///  R1  a pointer is null until one is registered; null means the initial resource
///  R2  a ref word is 0 for the initial resource, or the address of a device_memory_resource, or that of a registered_ref plus 1
///  R3  entries and registered_refs are never freed, because readers take no lock
///  R4  a registered_ref that is not kept is in at most one entry; when it has left that entry, it is reused for other references
///  R5  pointers are written with pointers_mutex and refs_mutex held, taken in this order; ref words and registered_refs are
///      written, and entries and registered_refs are made, with refs_mutex held
///
/// Order: writers release and readers acquire, so that readers see a registered resource, entry or registered_ref completely constructed.
/// A reader of a registered_ref reads its state, its words, then the entry again, and the state again. If neither has changed, these
/// words were registered for the device at the second read of the entry. Otherwise a setter has changed the entry meanwhile, and the
/// reader starts over; it never waits for a setter. A registered_ref is kept as soon as a pointer to its resource exists outside:
/// because resource_for() returned it, or because a shared object with another release of libcu++ read it.
/// tests/models/registry_model.cpp tries all executions of the C++ memory model.
class registry {
 public:
  explicit registry(device_memory_resource* initial) noexcept : initial_{initial} {}
  registry(registry const&)            = delete;
  registry& operator=(registry const&) = delete;

  [[nodiscard]] device_memory_resource* initial() const noexcept { return initial_; }
  [[nodiscard]] std::mutex& pointers_mutex() noexcept { return pointers_mutex_; }
  [[nodiscard]] std::mutex& refs_mutex() noexcept { return refs_mutex_; }

  /// Called in a forked child before anything else: threads of its parent may have held the mutexes, and been changing the lists. Entries
  /// hold whole words at every time, so they stay as they are. What the lists had is not reused.
  void begin_in_child() noexcept
  {
    new (&pointers_mutex_) std::mutex;
    new (&refs_mutex_) std::mutex;
    new (&kept_) kept_ref_table;
    first_free_ = last_free_ = nullptr;
    free_count_              = 0;
  }

  [[nodiscard]] device_memory_resource* pointer(int device) const noexcept
  {
    auto const* const found = find_entry(device);
    auto* const pointer     = found != nullptr ? found->pointer.load(std::memory_order_acquire) : nullptr;
    return pointer != nullptr ? pointer : initial_;
  }

  [[nodiscard]] device_async_resource_ref ref(int device) const noexcept
  {
    auto const* const found = find_entry(device);
    return found != nullptr ? read(found->ref) : device_async_resource_ref{initial_};
  }

  /// Registers a pointer. Returns the previous one. Requires both mutexes.
  device_memory_resource* exchange_pointer(int device, device_memory_resource* resource)
  {
    auto* const old = make_entry(device).pointer.exchange(resource, std::memory_order_acq_rel);
    return old != nullptr ? old : initial_;
  }

  /// Registers a reference to `*resource`. Returns the previous reference. Requires refs_mutex.
  device_async_resource_ref exchange_ref(int device, device_memory_resource* resource)
  {
    return exchange_word(make_entry(device).ref, reinterpret_cast<std::uintptr_t>(resource));
  }

  /// Registers a reference. Returns the previous one. Requires refs_mutex.
  device_async_resource_ref exchange_ref(int device, device_async_resource_ref const& ref)
  {
    auto& changed    = make_entry(device).ref;
    auto* registered = kept_.find(ref_words::copy_of<CCCL_VERSION>(ref));
    if (registered == nullptr) { registered = &make_registered(ref); }
    return exchange_word(changed, reinterpret_cast<std::uintptr_t>(registered) | is_ref);
  }

  /// Returns the resource that allocates through `ref` or equal references. It is never destroyed. Requires refs_mutex.
  [[nodiscard]] device_memory_resource* resource_for(device_async_resource_ref const& ref)
  {
    auto* registered = kept_.find(ref_words::copy_of<CCCL_VERSION>(ref));
    if (registered == nullptr) {
      registered = &make_registered(ref);
      static_cast<void>(registered->try_keep(registered->state()));
      kept_.add(*registered);
    }
    return registered->resource();
  }

  /// Returns the number of registered_refs, kept or not: besides the kept ones, at most one for each device and a few free ones. Requires
  /// refs_mutex.
  [[nodiscard]] std::size_t kept_refs() const noexcept { return registered_count_; }

  /// Calls `function(device, pointer)` for each device with a registered pointer. Requires pointers_mutex.
  template <class Function>
  void for_each_pointer(Function function) const
  {
    for_each_entry([&](int device, entry const& found) {
      auto* const pointer = found.pointer.load(std::memory_order_acquire);
      if (pointer != nullptr) { function(device, pointer); }
    });
  }

  /// Calls `function(device, reference)` for each device with a registered reference. Requires refs_mutex.
  template <class Function>
  void for_each_ref(Function function) const
  {
    for_each_entry([&](int device, entry const& found) {
      if (found.ref.load(std::memory_order_acquire) != 0) { function(device, read(found.ref)); }
    });
  }

 private:
  struct entry {
    std::atomic<device_memory_resource*> pointer{nullptr};
    std::atomic<std::uintptr_t> ref{0};
  };

  /// The entry of a device whose number is outside of the table.
  struct listed_entry : entry {
    listed_entry(int device_id, listed_entry* next_entry) noexcept : device{device_id}, next{next_entry} {}
    int device;
    listed_entry* next;
  };

  static constexpr std::uintptr_t is_ref{1};  // the bit of a ref word that means a registered_ref
  static_assert(alignof(device_memory_resource) > is_ref);
  static constexpr int table_size{64};
  static constexpr std::size_t max_free{16};  // a registered_ref is reused only after this many setters

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

  /// Returns the entry of a device; makes it if there is none. Requires refs_mutex.
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

  [[nodiscard]] RMM_ALWAYS_INLINE device_async_resource_ref read(std::atomic<std::uintptr_t> const& ref) const noexcept
  {
    auto const word = ref.load(std::memory_order_acquire);
    if ((word & is_ref) != 0) { return read_registered(ref, word); }
    return device_async_resource_ref{word == 0 ? initial_ : reinterpret_cast<device_memory_resource*>(word)};
  }

  [[nodiscard]] RMM_OUT_OF_LINE device_async_resource_ref read_registered(std::atomic<std::uintptr_t> const& ref,
                                                                          std::uintptr_t word) const noexcept
  {
    auto const* const registered = to_registered(word);
    auto const state             = registered->state();
    auto const words             = registered->words<ref_words::count_of<device_async_resource_ref>>();
    // F1 and F3 make this check sufficient: an object that is written between the two reads of its state is in no entry then.
    if (words.libcudacxx != CCCL_VERSION || ref.load(std::memory_order_acquire) != word ||
        registered->state() != state) {
      return read_slowly(ref);
    }
    device_async_resource_ref found{initial_};
    words.copy_to(found);
    return found;
  }

  [[nodiscard]] static registered_ref* to_registered(std::uintptr_t word) noexcept
  {
    return reinterpret_cast<registered_ref*>(word & ~is_ref);
  }

  /// As read(), for references of another release of libcu++, and if a setter has changed the entry meanwhile.
  [[nodiscard]] RMM_COLD device_async_resource_ref read_slowly(std::atomic<std::uintptr_t> const& ref) const noexcept
  {
    auto const word = ref.load(std::memory_order_acquire);
    if ((word & is_ref) != 0) {
      auto* const registered = to_registered(word);
      auto const state       = registered->state();
      bool const is_foreign  = registered->libcudacxx() != CCCL_VERSION;
      if (is_foreign && !registered_ref::is_being_written(state) && ref.load(std::memory_order_acquire) == word &&
          registered->try_keep(state)) {
        return device_async_resource_ref{registered->resource()};
      }
    }
    return read(ref);
  }

  /// Writes a ref word. Returns the previous reference. Its registered_ref becomes free, unless it is kept.
  device_async_resource_ref exchange_word(std::atomic<std::uintptr_t>& ref, std::uintptr_t word) noexcept
  {
    auto const before = read(ref);
    auto const old    = ref.exchange(word, std::memory_order_acq_rel);
    if ((old & is_ref) != 0 && old != word) { retire(*to_registered(old)); }
    return before;
  }

  /// Makes a registered_ref that has left its entry free, or adds it to the table of kept ones.
  void retire(registered_ref& ref) noexcept
  {
    if (registered_ref::is_kept(ref.state())) {
      if (!ref.is_listed) { kept_.add(ref); }
      return;
    }
    ref.next                                                 = nullptr;
    (last_free_ != nullptr ? last_free_->next : first_free_) = &ref;
    last_free_                                               = &ref;
    ++free_count_;
  }

  [[nodiscard]] registered_ref& take_free() noexcept
  {
    auto& taken = *first_free_;
    first_free_ = taken.next;
    if (first_free_ == nullptr) { last_free_ = nullptr; }
    --free_count_;
    return taken;
  }

  /// Returns a registered_ref for `ref` that is in no entry: a free one, or a new one.
  [[nodiscard]] registered_ref& make_registered(device_async_resource_ref const& ref)
  {
    while (free_count_ > max_free) {
      auto& taken = take_free();
      if (taken.try_begin_writing()) {
        taken.write<CCCL_VERSION>(ref);
        return taken;
      }
      kept_.add(taken);  // a reader with another release of libcu++ has kept it after it left its entry
    }
    auto* const made = new registered_ref;
    ++registered_count_;
    static_cast<void>(made->try_begin_writing());
    made->write<CCCL_VERSION>(ref);
    return *made;
  }

  device_memory_resource* initial_;
  std::mutex pointers_mutex_;
  std::mutex refs_mutex_;
  entry table_[table_size];
  std::atomic<listed_entry*> list_{nullptr};
  kept_ref_table kept_;
  registered_ref* first_free_{nullptr};  // the one that has been free longest
  registered_ref* last_free_{nullptr};
  std::size_t free_count_{0};
  std::size_t registered_count_{0};
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
