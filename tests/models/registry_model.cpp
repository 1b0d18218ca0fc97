// SPDX-License-Identifier: Apache-2.0

// The registry of the devices' resources, in all executions of the C++ memory model: setters lock, getters do not.

#include "modelled_std.hpp"

#include "check_orders.hpp"

#include <rmm/mr/detail/registry.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace foreign {

constexpr int release = CCCL_VERSION + 1;  // of libcu++, in another shared object
weak_memory::plain<int>* was_made;         // whether the resource of a foreign reference has been made

}  // namespace foreign

namespace rmm::mr::detail {

template <>
class resource_of_ref<foreign::release> final : public device_memory_resource {
 public:
  explicit resource_of_ref(device_async_resource_ref const&) noexcept { *foreign::was_made = 1; }

 private:
  void* do_allocate(std::size_t, cuda_stream_view) override { return nullptr; }
  void do_deallocate(void*, std::size_t, cuda_stream_view) override {}
};

}  // namespace rmm::mr::detail

namespace {

// Gives access to a private member of an entry, to do what the registry does.
template <class Name, typename Name::type Member>
struct open_member {
  friend typename Name::type member(Name) { return Member; }
};
struct name_of_read {
  using type = rmm::device_async_resource_ref (rmm::mr::detail::registry::*)(
    weak_memory::atomic<std::uintptr_t> const&) const noexcept;
  friend type member(name_of_read);
};
struct name_of_exchange {
  using type = rmm::device_async_resource_ref (rmm::mr::detail::registry::*)(weak_memory::atomic<std::uintptr_t>&,
                                                                             std::uintptr_t) noexcept;
  friend type member(name_of_exchange);
};
template struct open_member<name_of_read, &rmm::mr::detail::registry::read>;
template struct open_member<name_of_exchange, &rmm::mr::detail::registry::exchange_word>;

using rmm::device_async_resource_ref;
using rmm::mr::device_memory_resource;
using rmm::mr::detail::registry;
using weak_memory::expect;
using weak_memory::program;
using unnoticed = std::set<std::string>;

/// A resource that is made by the thread that registers it. References to different numbers differ in all words.
template <int Number>
class numbered_resource final : public device_memory_resource {
 public:
  numbered_resource() { made_ = Number; }
  void expect_made() const { expect(made_ == Number, "the resource is made"); }

 private:
  void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}

  weak_memory::plain<int> made_{0, "a registered resource"};
};
using even_resource = numbered_resource<2>;
using odd_resource  = numbered_resource<1>;

constexpr int setters_until_reuse = 17;

even_resource first_resource;

struct shared_state {
  registry all{&first_resource};
  std::deque<even_resource> even;
  std::deque<odd_resource> odd;

  void set_pointer(int device, device_memory_resource* resource)
  {
    std::lock_guard<weak_memory::mutex> const pointers{all.pointers_mutex()};
    std::lock_guard<weak_memory::mutex> const refs{all.refs_mutex()};
    static_cast<void>(all.exchange_pointer(device, resource));
  }
  device_async_resource_ref set_ref(int device, device_async_resource_ref ref)
  {
    std::lock_guard<weak_memory::mutex> const refs{all.refs_mutex()};
    return all.exchange_ref(device, ref);
  }

  /// Whether the reference is whole and refers to this resource, which has been made.
  template <class Resource>
  [[nodiscard]] static bool is_ref_to(device_async_resource_ref const& found, Resource const& resource)
  {
    device_async_resource_ref const expected{const_cast<Resource*>(&resource)};
    if (std::memcmp(&found, &expected, sizeof found) != 0) { return false; }
    resource.expect_made();
    return true;
  }

  void check(device_memory_resource* found)
  {
    for (auto const& each : even) {
      if (found == &each) { return each.expect_made(); }
    }
    expect(found == &first_resource, "a resource that was registered");
  }
};

/// Setters for two devices that are not in the table, and a getter.
void set_pointers_in_list(program& made)
{
  auto const state = std::make_shared<shared_state>();
  for (int const device : {70, 71}) {
    made.thread([=] { state->set_pointer(device, &state->even.emplace_back()); });
  }
  made.reader([=] { state->check(state->all.pointer(70)); });
  made.finally([=] {
    expect(state->all.pointer(70) != &first_resource, "the first is registered");
    expect(state->all.pointer(71) != &first_resource, "the second is registered");
    expect(state->all.pointer(72) == &first_resource, "no other is");
  });
}

/// A setter for a device of the table. Getters of both kinds see the last resource, or an earlier one.
void set_pointers_in_table(program& made)
{
  auto const state = std::make_shared<shared_state>();
  made.thread([=] {
    for (int i = 0; i != 2; ++i) { state->set_pointer(0, &state->even.emplace_back()); }
  });
  for (int i = 0; i != 2; ++i) {
    made.reader([=] { state->check(state->all.pointer(0)); });
  }
}

/// A setter that registers a resource of the library as a reference, and a getter.
void set_ref_to_pointer(program& made)
{
  auto const state = std::make_shared<shared_state>();
  made.thread([=] {
    std::lock_guard<weak_memory::mutex> const refs{state->all.refs_mutex()};
    device_memory_resource* const resource = &state->even.emplace_back();
    static_cast<void>(state->all.exchange_ref(0, resource));
  });
  made.reader([=] {
    auto const found = state->all.ref(0);
    device_async_resource_ref const first{state->all.initial()};
    if (std::memcmp(&found, &first, sizeof found) != 0) { state->even[0].expect_made(); }
  });
}

/// The memory of a reference to `odd[0]`, registered for device 0, is reused: for another device, or for a reference to
/// `even` for device 0. A getter for device 0 must get a reference that was registered for it.
void set_refs(program& made, bool for_same_device)
{
  auto const state    = std::make_shared<shared_state>();
  auto const for_one  = [=] { static_cast<void>(state->set_ref(1, &state->even.emplace_back())); };
  auto const for_zero = [=](auto& resources) { return state->set_ref(0, &resources.emplace_back()); };
  static_cast<void>(for_zero(state->odd));
  for (int i = 0; i != setters_until_reuse; ++i) { for_one(); }
  auto const last = std::make_shared<std::size_t>(0);
  made.thread([=] {
    auto const before = for_zero(state->odd);
    expect(state->is_ref_to(before, state->odd[0]), "the setter gets the reference from before");
    for (int i = 1; i != setters_until_reuse; ++i) { for_one(); }
    if (for_same_device) {
      *last = state->even.size();
      static_cast<void>(for_zero(state->even));
    } else {
      for_one();
    }
  });
  made.reader([=] {
    auto const found = state->all.ref(0);
    bool is_right    = false;
    for (auto const& each : state->odd) { is_right = is_right || state->is_ref_to(found, each); }
    if (for_same_device && !is_right) { is_right = state->is_ref_to(found, state->even[*last]); }
    expect(is_right, "the reference was registered for the device");
  });
  made.finally([=] { expect(state->all.kept_refs() == setters_until_reuse + 2, "memory was used again"); });
}

/// A getter keeps a reference of another release of libcu++ while its memory is due for reuse. The second write is that
/// of make_registered(), without the setters that would come before it.
void keep_foreign_ref(program& made)
{
  struct foreign_state : shared_state {
    weak_memory::atomic<std::uintptr_t> entry{0};
    rmm::mr::detail::registered_ref* registered{};
    weak_memory::plain<int> was_made{0, "the resource of a foreign reference"};
    device_memory_resource* kept{};

    void exchange(std::uintptr_t word)
    {
      std::lock_guard<weak_memory::mutex> const refs{all.refs_mutex()};
      static_cast<void>((all.*member(name_of_exchange{}))(entry, word));
    }
  };
  auto const state  = std::make_shared<foreign_state>();
  foreign::was_made = &state->was_made;
  made.thread([=] {
    state->registered = new rmm::mr::detail::registered_ref;
    static_cast<void>(state->registered->try_begin_writing());
    state->registered->write<foreign::release>(device_async_resource_ref{&first_resource});
    state->exchange(reinterpret_cast<std::uintptr_t>(state->registered) | 1U);
    state->exchange(reinterpret_cast<std::uintptr_t>(static_cast<device_memory_resource*>(&first_resource)));
    std::lock_guard<weak_memory::mutex> const refs{state->all.refs_mutex()};
    if (state->registered->try_begin_writing()) {
      state->registered->write<CCCL_VERSION>(device_async_resource_ref{&first_resource});
    }
  });
  made.thread([=] {
    auto const found = (state->all.*member(name_of_read{}))(state->entry);
    device_async_resource_ref const first{static_cast<device_memory_resource*>(&first_resource)};
    if (std::memcmp(&found, &first, sizeof found) == 0) { return; }
    std::memcpy(&state->kept, &found, sizeof state->kept);
    expect(state->was_made == 1, "the resource of the reference has been made");
  });
  made.finally([=] {
    if (state->kept == nullptr) { return; }
    expect(state->kept == state->registered->resource(), "the reference is that of the entry");
    expect(state->registered->libcudacxx() == foreign::release, "what is kept never changes");
  });
}

weak_memory::checked_part registry_part()
{
  weak_memory::checked_part part;
  part.file                  = "include/rmm/mr/detail/registry.hpp";
  part.programs              = {keep_foreign_ref,
                                set_pointers_in_list,
                                set_pointers_in_table,
                                set_ref_to_pointer,
                                [](program& made) { set_refs(made, false); },
                                [](program& made) { set_refs(made, true); }};
  part.given.most_idle_loads = 20;  // of a getter
  return part;
}

TEST(RegistryModel, GettersSeeWholeResourcesOfTheirDevice) { weak_memory::expect_right(registry_part()); }

TEST(RegistryModel, NeedsItsOrdersExceptWhereAnotherOneDoes)
{
  unnoticed expected{
    // Setters hold refs_mutex, which orders what they read after the writes of the setter before them.
    "auto* const old = make_entry(device).pointer.exchange(resource, std::memory_order_acq_rel);: acq_rel -> release",
    "auto const old    = ref.exchange(word, std::memory_order_acq_rel);: acq_rel -> release",
    // The release of libcu++ is read between two reads of the state. The first acquires, the second compares.
    "[[nodiscard]] int libcudacxx() const noexcept { return libcudacxx_.load(std::memory_order_acquire); }: acquire -> "
    "relaxed",
    "libcudacxx_.store(written.libcudacxx, std::memory_order_release);: release -> relaxed",
    // read_slowly(): the state that is read next acquires, and try_keep() compares it.
    "auto const word = ref.load(std::memory_order_acquire);: acquire -> relaxed",
    "if (is_foreign && !registered_ref::is_being_written(state) && ref.load(std::memory_order_acquire) == word &&: "
    "acquire -> relaxed"};
  // The outcome of these two depends on the value alone. The words and the last state publish the rest.
  std::string const begin_writing =
    "return !is_kept(state) && state_.compare_exchange_strong(state, state | being_written, "
    "std::memory_order_acq_rel);: ";
  std::string const keep =
    "return is_kept(state) || state_.compare_exchange_strong(state, state | kept, std::memory_order_acq_rel);: ";
  for (std::string const to : {"acquire", "release", "relaxed"}) {
    expected.insert(begin_writing + "acq_rel -> " + to);
    expected.insert(keep + "acq_rel -> " + to);
  }
  EXPECT_EQ(weak_memory::unnoticed_weakenings(registry_part()), expected);
}

}  // namespace
