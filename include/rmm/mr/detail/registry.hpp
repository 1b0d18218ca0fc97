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

/// A resource that allocates through a reference.
///
/// The class of references depends on the release of libcu++. Shared objects built with another one than that which
/// registered a reference use this resource instead. A template, so that two releases of libcu++ do not give the same name to
/// two classes.
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

/// The words of a reference, with the release of the libcu++ that its class is of.
struct ref_words {
  static constexpr std::size_t most = 4;

  template <class Ref>
  static constexpr std::size_t count_of = (sizeof(Ref) + sizeof(std::uintptr_t) - 1) / sizeof(std::uintptr_t);

  template <int Libcudacxx, class Ref>
  [[nodiscard]] static ref_words of(Ref const& ref) noexcept
  {
    static_assert(count_of<Ref> <= most);
    ref_words made;
    made.libcudacxx = Libcudacxx;
    std::memcpy(made.values, &ref, sizeof ref);
    return made;
  }

  /// Makes `ref` the reference. Requires that `Ref` is the class whose words these are. Word by word: processors are slow to read
  /// at once what was written in parts.
  template <class Ref>
  void copy_to(Ref& ref) const noexcept
  {
    static_assert(sizeof ref == count_of<Ref> * sizeof(std::uintptr_t));
    auto* const bytes = reinterpret_cast<unsigned char*>(&ref);
    for (std::size_t i = 0; i < count_of<Ref>; ++i) {
      std::memcpy(bytes + i * sizeof values[i], &values[i], sizeof values[i]);
    }
  }

  /// Whether both refer to the same resource, called in the same way.
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
    return static_cast<std::size_t>(mixed);
  }

  int libcudacxx{0};
  std::uintptr_t values[most]{};
};

/// Memory for a registered reference, and for a resource that allocates through it. It is used again for other references,
/// unless it is kept.
///
/// Invariants:
///  F1  the state is odd while it is written, and different after each time
///  F2  a kept one never changes
///  F3  one that is being written is in no entry
class registered_ref {
 public:
  registered_ref() noexcept                        = default;
  registered_ref(registered_ref const&)            = delete;
  registered_ref& operator=(registered_ref const&) = delete;

  [[nodiscard]] std::uintptr_t state() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] static bool is_being_written(std::uintptr_t state) noexcept { return (state & being_written) != 0; }
  [[nodiscard]] static bool is_kept(std::uintptr_t state) noexcept { return (state & kept) != 0; }

  /// Release of the libcu++ whose reference it holds.
  [[nodiscard]] int libcudacxx() const noexcept { return libcudacxx_.load(std::memory_order_acquire); }

  /// The first `Count` words of what it holds. What the caller reads next is not older than they are.
  template <std::size_t Count = ref_words::most>
  [[nodiscard]] ref_words words() const noexcept
  {
    ref_words read;
    read.libcudacxx = libcudacxx();
    for (std::size_t i = 0; i < Count; ++i) { read.values[i] = words_[i].load(std::memory_order_acquire); }
    return read;
  }

  /// The resource that allocates through the reference. Requires that it is kept.
  [[nodiscard]] device_memory_resource* resource() noexcept
  {
    return std::launder(reinterpret_cast<device_memory_resource*>(resource_));
  }

  /// Keeps it, with what it holds, for as long as the process lives. Returns false if the state is not `state` any more.
  [[nodiscard]] bool try_keep(std::uintptr_t state) noexcept
  {
    return is_kept(state) || state_.compare_exchange_strong(state, state | kept, std::memory_order_acq_rel);
  }

  /// Begins to write it; returns false if it is kept. Requires the registry's refs_mutex, and that it is in no entry.
  [[nodiscard]] bool try_begin_writing() noexcept
  {
    auto state = state_.load(std::memory_order_relaxed);
    return !is_kept(state) && state_.compare_exchange_strong(state, state | being_written, std::memory_order_acq_rel);
  }

  /// Writes it. Requires that try_begin_writing() returned true. Who sees one of the words sees that they are being written,
  /// or a later state.
  template <int Libcudacxx, class Ref>
  void write(Ref const& ref) noexcept
  {
    using resource_type = resource_of_ref<Libcudacxx>;
    static_assert(sizeof(resource_type) <= sizeof resource_ && alignof(resource_type) <= alignof(std::max_align_t));
    static_assert(std::is_trivially_destructible_v<Ref>, "what it held before is not destroyed");
    auto const written = ref_words::of<Libcudacxx>(ref);
    libcudacxx_.store(written.libcudacxx, std::memory_order_release);
    for (std::size_t i = 0; i < ref_words::most; ++i) { words_[i].store(written.values[i], std::memory_order_release); }
    new (resource_) resource_type{ref};
    auto const state = state_.load(std::memory_order_relaxed);
    state_.store((state & ~being_written) + next_state, std::memory_order_release);
  }

  registered_ref* next{nullptr};  // in the list that it is in; guarded by the registry's refs_mutex
  bool is_found{false};           // whether it is in the kept_ref_table; guarded likewise

 private:
  static constexpr std::uintptr_t being_written{1};
  static constexpr std::uintptr_t kept{2};
  static constexpr std::uintptr_t next_state{4};

  alignas(std::max_align_t) unsigned char resource_[(1 + ref_words::most) * sizeof(void*)]{};
  std::atomic<std::uintptr_t> state_{0};
  std::atomic<int> libcudacxx_{0};
  std::atomic<std::uintptr_t> words_[ref_words::most]{};
};

/// The registered_refs that are kept, to be found by what they hold. Guarded by the registry's refs_mutex.
class kept_ref_table {
 public:
  kept_ref_table() noexcept                        = default;
  kept_ref_table(kept_ref_table const&)            = delete;
  kept_ref_table& operator=(kept_ref_table const&) = delete;

  /// Null if there is none. O(1), unless the host lacked memory for more buckets.
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
    ref.is_found = true;
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

/// The resources of all devices.
///
/// Invariants:
///  R1  a pointer is null until one is registered; null means the initial resource
///  R2  a ref word is 0 for the initial resource, the address of a device_memory_resource, or that of a
///      registered_ref plus 1
///  R3  entries and registered_refs are never freed: readers take no lock and may look into them at any time
///  R4  a registered_ref that is not kept is in one entry at most; when it has left that, it is used for other references
///  R5  pointers are written with pointers_mutex and refs_mutex held, taken in this order; ref words and registered_refs are
///      written, and entries and registered_refs are made, with refs_mutex held
/// Writers release and readers acquire, so a registered resource is seen constructed.
///
/// A reader of a registered_ref reads its state, its words, the entry again and the state again. If neither has changed, the
/// words were registered for the device when the entry was read again. Otherwise a setter has changed the entry meanwhile, and the
/// reader starts over; it never waits for a setter. A registered_ref is kept from when somebody has a pointer to it: because
/// resource_for() returned one, or because a shared object with another libcu++ read it.
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
    return found != nullptr ? read(found->ref) : device_async_resource_ref{initial_};
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
    return exchange_word(make_entry(device).ref, reinterpret_cast<std::uintptr_t>(resource));
  }

  /// Registers a reference. Requires refs_mutex. Returns the one before.
  device_async_resource_ref exchange_ref(int device, device_async_resource_ref const& ref)
  {
    auto& changed    = make_entry(device).ref;
    auto* registered = kept_.find(ref_words::of<CCCL_VERSION>(ref));
    if (registered == nullptr) { registered = &make_registered(ref); }
    return exchange_word(changed, reinterpret_cast<std::uintptr_t>(registered) | is_ref);
  }

  /// A resource that allocates through `ref`, for as long as the process lives: one for equal references. Requires refs_mutex.
  [[nodiscard]] device_memory_resource* resource_for(device_async_resource_ref const& ref)
  {
    auto* registered = kept_.find(ref_words::of<CCCL_VERSION>(ref));
    if (registered == nullptr) {
      registered = &make_registered(ref);
      static_cast<void>(registered->try_keep(registered->state()));
      kept_.add(*registered);
    }
    return registered->resource();
  }

  /// Number of registered_refs there are: the kept ones, one for each device at most, and a few free ones. Requires refs_mutex.
  [[nodiscard]] std::size_t kept_refs() const noexcept { return registered_count_; }

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
      if (found.ref.load(std::memory_order_acquire) != 0) { function(device, read(found.ref)); }
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
  static constexpr std::size_t most_free{16};  // so many setters pass before a reader has to start over

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

  /// The reference that an entry has.
  [[nodiscard]] device_async_resource_ref read(std::atomic<std::uintptr_t> const& ref) const noexcept
  {
    auto const word = ref.load(std::memory_order_acquire);
    if (word == 0) { return device_async_resource_ref{initial_}; }
    if ((word & is_ref) == 0) { return device_async_resource_ref{reinterpret_cast<device_memory_resource*>(word)}; }
    auto const* const registered = to_registered(word);
    auto const state             = registered->state();
    auto const words             = registered->words<ref_words::count_of<device_async_resource_ref>>();
    // By F1 and F3 that is enough: what is being written between the two looks at its state is not in the entry meanwhile.
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

  /// As read(), for references of another libcu++, and where a setter has changed the entry meanwhile.
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

  /// Writes a ref word. Returns the reference before, whose registered_ref is free then unless it is kept.
  device_async_resource_ref exchange_word(std::atomic<std::uintptr_t>& ref, std::uintptr_t word) noexcept
  {
    auto const before = read(ref);
    auto const old    = ref.exchange(word, std::memory_order_acq_rel);
    if ((old & is_ref) != 0 && old != word) { retire(*to_registered(old)); }
    return before;
  }

  /// Takes one that has left its entry. By then nobody new finds it.
  void retire(registered_ref& left) noexcept
  {
    if (registered_ref::is_kept(left.state())) {
      if (!left.is_found) { kept_.add(left); }
      return;
    }
    left.next                                                = nullptr;
    (last_free_ != nullptr ? last_free_->next : first_free_) = &left;
    last_free_                                               = &left;
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

  /// A registered_ref for `ref` that is in no entry.
  [[nodiscard]] registered_ref& make_registered(device_async_resource_ref const& ref)
  {
    while (free_count_ > most_free) {
      auto& taken = take_free();
      if (taken.try_begin_writing()) {
        taken.write<CCCL_VERSION>(ref);
        return taken;
      }
      kept_.add(taken);  // a reader with another libcu++ has kept it since it left its entry
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
  registered_ref* first_free_{nullptr};  // the one that is free for longest
  registered_ref* last_free_{nullptr};
  std::size_t free_count_{0};
  std::size_t registered_count_{0};
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
