// SPDX-License-Identifier: Apache-2.0
#include "../../support/host_resources.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace rmm::test;
using namespace rmm::mr;
using rmm::cuda_device_id;
using rmm::device_async_resource_ref;

// Ids inside and outside of the registry's table. Most are no device's.
std::vector<int> const all_ids{
  0, 1, 5, 63, 64, 65, 1000, -1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()};

struct PerDeviceResourceTest : ::testing::TestWithParam<int> {
  void TearDown() override
  {
    for (int const id : all_ids) { reset_per_device_resource(cuda_device_id{id}); }
  }

  recording_device_resource first;
  recording_device_resource second;
  device_memory_resource* const initial{rmm::mr::detail::initial_resource()};
  device_async_resource_ref const initial_ref{initial};
};
struct PerDeviceResourceIdTest : PerDeviceResourceTest {
  cuda_device_id const id{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Ids, PerDeviceResourceIdTest, ::testing::ValuesIn(all_ids), [](auto const& test) {
  return std::to_string(test.index);
});

// Pointers.

TEST_P(PerDeviceResourceIdTest, InitiallyItIsACudaMemoryResource)
{
  EXPECT_EQ(get_per_device_resource(id), initial);
  EXPECT_NE(dynamic_cast<cuda_memory_resource*>(initial), nullptr);
  EXPECT_TRUE(get_per_device_resource(id)->is_equal(cuda_memory_resource{}));
}

TEST_P(PerDeviceResourceIdTest, SettingReturnsThePreviousResource)
{
  EXPECT_EQ(set_per_device_resource(id, &first), initial);
  EXPECT_EQ(get_per_device_resource(id), &first);
  EXPECT_EQ(set_per_device_resource(id, &second), &first);
  EXPECT_EQ(get_per_device_resource(id), &second);
}

TEST_F(PerDeviceResourceTest, TheFirstSetterOfADeviceGetsTheInitialResource)
{
  for (int const never_set_before : {7, 700}) {
    cuda_device_id const id{never_set_before};
    EXPECT_EQ(set_per_device_resource(id, &first), initial);
    reset_per_device_resource(id);
  }
}

TEST_P(PerDeviceResourceIdTest, NullIsTheInitialResource)
{
  set_per_device_resource(id, &first);
  EXPECT_EQ(set_per_device_resource(id, nullptr), &first);
  EXPECT_EQ(get_per_device_resource(id), initial);
  EXPECT_EQ(get_per_device_resource_ref(id), initial_ref);
}

TEST_P(PerDeviceResourceIdTest, ResettingReturnsThePreviousResource)
{
  set_per_device_resource(id, &first);
  EXPECT_EQ(reset_per_device_resource(id), &first);
  EXPECT_EQ(get_per_device_resource(id), initial);
}

TEST_P(PerDeviceResourceIdTest, OtherDevicesKeepTheirs)
{
  set_per_device_resource(id, &first);
  for (int const other : all_ids) {
    if (other != id.value()) { EXPECT_EQ(get_per_device_resource(cuda_device_id{other}), initial); }
  }
}

// References.

TEST_P(PerDeviceResourceIdTest, InitiallyTheReferenceIsToTheInitialResource)
{
  EXPECT_EQ(get_per_device_resource_ref(id), initial_ref);
}

TEST_F(PerDeviceResourceTest, TheInitialReferenceIsToTheInitialResource)
{
  for (int const untouched : {40, 4000}) {
    EXPECT_EQ(get_per_device_resource_ref(cuda_device_id{untouched}), initial_ref);
  }
  EXPECT_EQ(set_per_device_resource_ref(cuda_device_id{41}, first), initial_ref);
  reset_per_device_resource_ref(cuda_device_id{41});
}

TEST_P(PerDeviceResourceIdTest, SettingAReferenceReturnsThePreviousOne)
{
  device_async_resource_ref const to_first{first};
  device_async_resource_ref const to_second{second};
  EXPECT_EQ(set_per_device_resource_ref(id, to_first), initial_ref);
  EXPECT_EQ(get_per_device_resource_ref(id), to_first);
  EXPECT_EQ(set_per_device_resource_ref(id, to_second), to_first);
  EXPECT_EQ(get_per_device_resource_ref(id), to_second);
}

TEST_P(PerDeviceResourceIdTest, ResettingAReferenceReturnsThePreviousOne)
{
  set_per_device_resource_ref(id, first);
  EXPECT_EQ(reset_per_device_resource_ref(id), device_async_resource_ref{first});
  EXPECT_EQ(get_per_device_resource_ref(id), initial_ref);
}

TEST_P(PerDeviceResourceIdTest, ThePointerSetterSetsTheReferenceToo)
{
  set_per_device_resource(id, &first);
  device_memory_resource* const base = &first;
  EXPECT_EQ(get_per_device_resource_ref(id), device_async_resource_ref{base});
}

TEST_P(PerDeviceResourceIdTest, TheReferenceSetterLeavesThePointer)
{
  set_per_device_resource(id, &first);
  set_per_device_resource_ref(id, second);
  EXPECT_EQ(get_per_device_resource(id), &first);
  reset_per_device_resource_ref(id);
  EXPECT_EQ(get_per_device_resource(id), &first);
}

TEST_F(PerDeviceResourceTest, AReferenceSetterTakesLvaluesAndPointers)
{
  older_resource older;  // does not derive from device_memory_resource
  set_per_device_resource_ref(cuda_device_id{0}, older);
  EXPECT_EQ(get_per_device_resource_ref(cuda_device_id{0}), device_async_resource_ref{older});
  set_per_device_resource_ref(cuda_device_id{0}, &first);
  EXPECT_EQ(get_per_device_resource_ref(cuda_device_id{0}), device_async_resource_ref{first});
}

TEST_F(PerDeviceResourceTest, AllocationsThroughTheReferenceReachTheResource)
{
  set_per_device_resource_ref(cuda_device_id{1000}, first);
  auto const ref = get_per_device_resource_ref(cuda_device_id{1000});
  ref.deallocate(ref.allocate(64), 64);
  EXPECT_EQ(first.calls.size(), 2);
}

std::size_t kept_refs()
{
  auto& registry = rmm::mr::detail::process_registry();
  std::lock_guard<std::mutex> const lock{registry.refs_mutex()};
  return registry.kept_refs();
}

TEST_F(PerDeviceResourceTest, ANewRegistryKeepsNoReference)
{
  EXPECT_EQ(rmm::mr::detail::registry{initial}.kept_refs(), 0U);
}

TEST_F(PerDeviceResourceTest, MemoryOfReferencesIsUsedAgain)
{
  std::vector<small_resource> resources(100'000);
  auto const before = kept_refs();
  device_async_resource_ref last{initial_ref};
  for (auto& resource : resources) {
    device_async_resource_ref const next{resource};
    ASSERT_EQ(set_per_device_resource_ref(cuda_device_id{0}, next), last);
    ASSERT_EQ(get_per_device_resource_ref(cuda_device_id{0}), next);
    last = next;
  }
  EXPECT_LE(kept_refs(), before + 20);
}

TEST_F(PerDeviceResourceTest, MemoryOfReferencesIsUsedAgainForAnotherDevice)
{
  std::vector<small_resource> resources(1000);
  for (auto const id : all_ids) { set_per_device_resource_ref(cuda_device_id{id}, resources[0]); }
  auto const before = kept_refs();
  for (std::size_t i = 0; i < resources.size(); ++i) {
    cuda_device_id const id{all_ids[i % all_ids.size()]};
    set_per_device_resource_ref(id, resources[i]);
  }
  EXPECT_LE(kept_refs(), before + 20);
  for (std::size_t i = resources.size() - all_ids.size(); i < resources.size(); ++i) {
    cuda_device_id const id{all_ids[i % all_ids.size()]};
    EXPECT_EQ(get_per_device_resource_ref(id), device_async_resource_ref{resources[i]});
  }
}

TEST_F(PerDeviceResourceTest, APointerToAReferencesResourceIsKeptOnce)
{
  std::vector<small_resource> resources(1000);
  std::vector<device_memory_resource*> pointers;
  cuda_device_id const id{0};
  for (auto& resource : resources) {
    set_per_device_resource(id, device_async_resource_ref{resource});
    pointers.push_back(get_per_device_resource(id));
  }
  auto const before = kept_refs();
  for (std::size_t i = 0; i < resources.size(); ++i) {
    set_per_device_resource_ref(id, first);  // kept memory must not be reused, other memory must be
    set_per_device_resource(id, device_async_resource_ref{resources[i]});
    EXPECT_EQ(get_per_device_resource(id), pointers[i]);
    EXPECT_EQ(get_per_device_resource_ref(id), device_async_resource_ref{resources[i]});
    EXPECT_EQ(pointers[i]->allocate(1), &resources[i]);
  }
  EXPECT_LE(kept_refs(), before + 20);
}

TEST_F(PerDeviceResourceTest, ReadersGetWholeReferencesWhileTheirMemoryIsUsedAgain)
{
  // Two classes of resources: words mixed from two registrations would call the wrong class.
  std::vector<small_resource> small(100);
  std::vector<recording_device_resource> recording(100);
  auto const is_known = [&](device_async_resource_ref const& ref) {
    return ref == initial_ref ||
           std::any_of(
             small.begin(), small.end(), [&](auto& each) { return ref == device_async_resource_ref{each}; }) ||
           std::any_of(
             recording.begin(), recording.end(), [&](auto& each) { return ref == device_async_resource_ref{each}; });
  };
  std::atomic<bool> done{false};
  std::atomic<int> running{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      ++running;
      for (int read = 0; !done; ++read) {
        auto const ref = get_per_device_resource_ref(cuda_device_id{read % 2});
        if (read % 16 == 0 && !is_known(ref)) {
          ADD_FAILURE() << "not a reference that was registered";
          return;
        }
      }
    });
  }
  while (running < 2) { std::this_thread::yield(); }
  for (std::size_t i = 0; i < 100'000; ++i) {
    cuda_device_id const id{static_cast<int>(i % 2)};
    if (i % 3 == 0) {
      set_per_device_resource_ref(id, recording[i % recording.size()]);
    } else {
      set_per_device_resource_ref(id, small[i % small.size()]);
    }
  }
  done = true;
  for (auto& reader : readers) { reader.join(); }
}

#if defined(__ELF__)
TEST_F(PerDeviceResourceTest, OtherSharedObjectsFindTheRegistryByItsElfNote)
{
  constexpr std::uint32_t number = 6;  // the number for the current layout
  rmm::detail::anchor_search search{number, &rmm_registry_v2};
  dl_iterate_phdr(rmm::detail::visit_loaded_object, &search);
  EXPECT_EQ(search.maker.anchor, &rmm_registry_v2);
  EXPECT_EQ(search.published, &rmm::mr::detail::process_registry());
}

/// The layout that other modules read and write. They find the registry by its note with the number 6.
struct registry_of_number_6 {
  struct entry {
    void* pointer;
    std::uintptr_t ref;  // or the address of a `registered` plus 1
  };
  struct registered {
    void* next;
    bool is_found;
    alignas(16) unsigned char resource[5 * sizeof(void*)];
    std::uintptr_t state;
    int libcudacxx;
    std::uintptr_t words[4];
  };
  void* initial;
  std::mutex mutexes[2];
  entry table[64];
  void* list;
  void* first_buckets[16];
  void* buckets;
  std::size_t counts_of_buckets[2];
  void* free[2];
  std::size_t counts[2];
};

TEST_F(PerDeviceResourceTest, TheLayoutOfTheRegistryMatchesItsNumber)
{
  EXPECT_EQ(sizeof(rmm::mr::detail::registry), sizeof(registry_of_number_6));
  EXPECT_EQ(sizeof(rmm::mr::detail::registered_ref), sizeof(registry_of_number_6::registered));
  auto const entry_of = [](std::size_t device) {
    registry_of_number_6::entry found{};
    auto const* const bytes = reinterpret_cast<char const*>(&rmm::mr::detail::process_registry());
    std::memcpy(&found, bytes + offsetof(registry_of_number_6, table) + device * sizeof found, sizeof found);
    return found;
  };
  for (auto const device : std::initializer_list<std::size_t>{0, 63}) {
    cuda_device_id const id{static_cast<int>(device)};
    set_per_device_resource(id, &first);
    EXPECT_EQ(entry_of(device).pointer, &first);
    EXPECT_EQ(entry_of(device).ref, reinterpret_cast<std::uintptr_t>(&first));
    device_async_resource_ref const ref{second};
    set_per_device_resource_ref(id, ref);
    auto const word = entry_of(device).ref;
    ASSERT_EQ(word % 2, 1U);
    registry_of_number_6::registered registered{};
    std::memcpy(&registered, reinterpret_cast<void const*>(word - 1), sizeof registered);
    EXPECT_EQ(registered.state % 4, 0U);  // neither being written nor kept
    EXPECT_EQ(registered.libcudacxx, CCCL_VERSION);
    EXPECT_EQ(std::memcmp(registered.words, &ref, sizeof ref), 0);
    auto* const in_place =
      reinterpret_cast<unsigned char*>(word - 1) + offsetof(registry_of_number_6::registered, resource);
    auto* const resource = reinterpret_cast<device_memory_resource*>(in_place);
    second.calls.clear();
    resource->deallocate(resource->allocate(100), 100);
    EXPECT_EQ(second.calls.size(), 2U);
  }
}

TEST_F(PerDeviceResourceTest, AReferenceOfAnotherLibcuxxIsKeptOnceItWasRead)
{
  // Registers `second` like a module with another release of libcu++.
  cuda_device_id const id{0};
  auto const register_foreign_ref = [&] {
    set_per_device_resource_ref(id, second);
    std::uintptr_t word{};
    auto* const entries =
      reinterpret_cast<char const*>(&rmm::mr::detail::process_registry()) + offsetof(registry_of_number_6, table);
    std::memcpy(&word, entries + offsetof(registry_of_number_6::entry, ref), sizeof word);
    int const other_release = CCCL_VERSION + 1;
    auto* const registered  = reinterpret_cast<char*>(word - 1);
    std::memcpy(
      registered + offsetof(registry_of_number_6::registered, libcudacxx), &other_release, sizeof other_release);
  };
  std::vector<small_resource> resources(100);
  auto const set_others = [&] {
    for (auto& resource : resources) { set_per_device_resource_ref(id, resource); }
  };

  register_foreign_ref();
  auto const ref = get_per_device_resource_ref(id);
  EXPECT_NE(ref, device_async_resource_ref{second});  // refers to a resource that forwards to `second`
  EXPECT_EQ(get_per_device_resource_ref(id), ref);
  EXPECT_EQ(set_per_device_resource_ref(id, first), ref);
  set_others();
  second.calls.clear();
  ref.deallocate(ref.allocate(100), 100);
  EXPECT_EQ(second.calls.size(), 2U);

  auto const before = kept_refs();
  for (int i = 0; i < 20; ++i) {
    register_foreign_ref();  // the setter returns it, so it must be kept
    set_per_device_resource(id, nullptr);
    set_others();
  }
  EXPECT_LE(kept_refs(), before + 40);
}
#endif

// The current device.

TEST_F(PerDeviceResourceTest, TheFunctionsForTheCurrentDeviceActOnIt)
{
  for (int device = 0; device < rmm::get_num_cuda_devices(); ++device) {
    cuda_device_id const id{device};
    rmm::cuda_set_device_raii const guard{id};

    EXPECT_EQ(get_current_device_resource(), initial);
    EXPECT_EQ(set_current_device_resource(&first), initial);
    EXPECT_EQ(get_current_device_resource(), &first);
    EXPECT_EQ(get_per_device_resource(id), &first);
    EXPECT_EQ(reset_current_device_resource(), &first);
    EXPECT_EQ(get_current_device_resource(), initial);

    EXPECT_EQ(get_current_device_resource_ref(), initial_ref);
    EXPECT_EQ(set_current_device_resource_ref(second), initial_ref);
    EXPECT_EQ(get_current_device_resource_ref(), device_async_resource_ref{second});
    EXPECT_EQ(get_per_device_resource_ref(id), device_async_resource_ref{second});
    EXPECT_EQ(reset_current_device_resource_ref(), device_async_resource_ref{second});
    EXPECT_EQ(get_current_device_resource_ref(), initial_ref);
  }
}

TEST_F(PerDeviceResourceTest, AllThreadsSeeWhatOneRegistered)
{
  set_current_device_resource(&first);
  std::thread{[&] { EXPECT_EQ(get_current_device_resource(), &first); }}.join();
}

// Members that programs access directly.

TEST_F(PerDeviceResourceTest, TheMapMirrorsTheRegisteredPointers)
{
  set_per_device_resource(cuda_device_id{0}, &first);
  set_per_device_resource(cuda_device_id{1000}, &second);
  std::lock_guard<std::mutex> const lock{rmm::mr::detail::map_lock()};
  std::map<int, device_memory_resource*>& map = rmm::mr::detail::get_map();
  EXPECT_EQ(map.at(0), &first);
  EXPECT_EQ(map.at(1000), &second);
}

TEST_F(PerDeviceResourceTest, TheMapFollowsAReset)
{
  set_per_device_resource(cuda_device_id{5}, &first);
  set_per_device_resource(cuda_device_id{5}, nullptr);
  std::lock_guard<std::mutex> const lock{rmm::mr::detail::map_lock()};
  EXPECT_EQ(rmm::mr::detail::get_map().at(5), initial);
}

TEST_F(PerDeviceResourceTest, TheReferenceMapMirrorsTheRegisteredReferences)
{
  set_per_device_resource_ref(cuda_device_id{0}, first);
  set_per_device_resource(cuda_device_id{1000}, &second);
  device_memory_resource* const base = &second;
  std::lock_guard<std::mutex> const lock{rmm::mr::detail::ref_map_lock()};
  std::map<int, device_async_resource_ref>& map = rmm::mr::detail::get_ref_map();
  EXPECT_EQ(map.at(0), device_async_resource_ref{first});
  EXPECT_EQ(map.at(1000), device_async_resource_ref{base});
}

TEST_F(PerDeviceResourceTest, TheMapsHaveNoEntriesForOtherDevices)
{
  std::scoped_lock const lock{rmm::mr::detail::map_lock(), rmm::mr::detail::ref_map_lock()};
  EXPECT_EQ(rmm::mr::detail::get_map().count(42), 0U);
  EXPECT_EQ(rmm::mr::detail::get_ref_map().count(42), 0U);
}

TEST_F(PerDeviceResourceTest, ACallerWithTheLockSetsAReference)
{
  std::lock_guard<std::mutex> const lock{rmm::mr::detail::ref_map_lock()};
  EXPECT_EQ(rmm::mr::detail::set_per_device_resource_ref_unsafe(cuda_device_id{0}, first), initial_ref);
  EXPECT_EQ(get_per_device_resource_ref(cuda_device_id{0}), device_async_resource_ref{first});
}

TEST_F(PerDeviceResourceTest, GettersTakeNoLock)
{
  std::lock_guard<std::mutex> const pointers{rmm::mr::detail::map_lock()};
  std::lock_guard<std::mutex> const refs{rmm::mr::detail::ref_map_lock()};
  EXPECT_EQ(get_current_device_resource(), initial);
  EXPECT_EQ(get_current_device_resource_ref(), initial_ref);
  EXPECT_EQ(get_per_device_resource(cuda_device_id{1000}), initial);
}

// Objects.

// A program's resource with value semantics: copies are equal.
class shared_resource final : public device_memory_resource {
 public:
  explicit shared_resource(recording_device_resource* target) : target_{target} {}

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    return target_->allocate(bytes, stream);
  }
  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    target_->deallocate(ptr, bytes, stream);
  }
  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    auto const* const cast = dynamic_cast<shared_resource const*>(&other);
    return cast != nullptr && cast->target_ == target_;
  }

  recording_device_resource* target_;
};

TEST_P(PerDeviceResourceIdTest, AnObjectOutlivesItsOriginal)
{
  {
    shared_resource const object{&first};
    EXPECT_EQ(set_per_device_resource(id, object), initial);
    EXPECT_NE(get_per_device_resource(id), &object);
  }
  auto* const kept = get_per_device_resource(id);
  kept->deallocate(kept->allocate(10), 10);
  EXPECT_EQ(first.calls.size(), 2U);
  EXPECT_EQ(set_per_device_resource(id, nullptr), kept);
}

TEST_F(PerDeviceResourceTest, AnObjectIsRegisteredAsAReferenceToo)
{
  set_current_device_resource(shared_resource{&first});
  EXPECT_NE(get_current_device_resource(), initial);
  EXPECT_EQ(get_current_device_resource_ref(), device_async_resource_ref{get_current_device_resource()});
}

TEST_F(PerDeviceResourceTest, ObjectsWithoutStateAreKeptOnce)
{
  set_current_device_resource(rmm::mr::managed_memory_resource{});
  auto* const kept = get_current_device_resource();
  set_current_device_resource(shared_resource{&first});
  EXPECT_NE(get_current_device_resource(), kept);
  set_current_device_resource(rmm::mr::managed_memory_resource{});
  EXPECT_EQ(get_current_device_resource(), kept);
}

TEST_F(PerDeviceResourceTest, AnObjectIsUsedAlthoughAnEqualOneWasRegisteredBefore)
{
  using adaptor = rmm::mr::failure_callback_resource_adaptor<device_memory_resource>;
  class full_resource final : public device_memory_resource {
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { throw rmm::out_of_memory{"full"}; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
  } full;
  std::array<int, 2> calls{};
  auto const count = [](std::size_t, void* counter) {
    ++*static_cast<int*>(counter);
    return false;
  };
  for (auto& each : calls) {
    set_current_device_resource(adaptor{&full, count, &each});
    EXPECT_THROW(static_cast<void>(get_current_device_resource()->allocate(10)), rmm::out_of_memory);
  }
  EXPECT_EQ(calls, (std::array<int, 2>{1, 1}));
}

TEST_F(PerDeviceResourceTest, AnObjectIsNotComparedWithEarlierOnes)
{
  using adaptor = rmm::mr::failure_callback_resource_adaptor<device_memory_resource>;
  class never_compared final : public device_memory_resource {
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
    [[nodiscard]] bool do_is_equal(device_memory_resource const& /*other*/) const noexcept override
    {
      ADD_FAILURE() << "this resource may be gone already";
      return false;
    }
  };
  auto const never = [](std::size_t, void*) { return false; };
  std::array<never_compared, 2> upstreams;
  for (auto& each : upstreams) { set_current_device_resource(adaptor{&each, never, nullptr}); }
}

TEST_F(PerDeviceResourceTest, ThePreviousResourceOfAnObjectSetterCanBeSetAgain)
{
  auto const before = set_current_device_resource(shared_resource{&first});
  set_current_device_resource(before);
  EXPECT_EQ(get_current_device_resource(), initial);
  EXPECT_EQ(get_current_device_resource_ref(), initial_ref);
}

TEST_F(PerDeviceResourceTest, AReferenceGivenAsAnObjectIsTheOneRegistered)
{
  older_resource object;
  rmm::device_async_resource_ref const ref{object};
  set_current_device_resource(ref);
  EXPECT_EQ(get_current_device_resource_ref(), ref);
  auto* const registered = get_current_device_resource();
  registered->deallocate(registered->allocate(10), 10);
  EXPECT_EQ(object.total(), 1U);
  set_current_device_resource(rmm::device_async_resource_ref{initial_ref});
  EXPECT_EQ(get_current_device_resource_ref(), initial_ref);
}

TEST_F(PerDeviceResourceTest, AnObjectThatCannotBeCopiedIsReferredTo)
{
  static_assert(!std::is_copy_constructible_v<older_resource>);
  older_resource object;
  set_current_device_resource(object);
  auto* const registered = get_current_device_resource();
  registered->deallocate(registered->allocate(10), 10);
  EXPECT_EQ(object.total(), 1U);
}

TEST_F(PerDeviceResourceTest, AnObjectOfTheBaseIsReferredTo)
{
  device_memory_resource& object = first;
  set_current_device_resource(object);
  EXPECT_EQ(get_current_device_resource(), &first);
}

TEST_F(PerDeviceResourceTest, AReferenceGivenAsAnObjectReachesItsResource)
{
  set_per_device_resource(cuda_device_id{1}, device_async_resource_ref{first});
  auto* const registered = get_per_device_resource(cuda_device_id{1});
  registered->deallocate(registered->allocate(10), 10);
  EXPECT_EQ(first.calls.size(), 2U);
}

template <class Argument, class = void>
inline constexpr bool can_be_registered = false;
template <class Argument>
inline constexpr bool
  can_be_registered<Argument, std::void_t<decltype(set_current_device_resource(std::declval<Argument>()))>> = true;

static_assert(can_be_registered<cuda_memory_resource> && can_be_registered<cuda_memory_resource const&>);
static_assert(can_be_registered<older_resource&>);
static_assert(!can_be_registered<older_resource>, "neither kept nor referred to: it would be gone");
static_assert(!can_be_registered<older_resource const&>);
static_assert(!can_be_registered<rmm::host_async_resource_ref>);
static_assert(!can_be_registered<int*> && !can_be_registered<int>);

// Threads.

TEST_F(PerDeviceResourceTest, ConcurrentSettersAndGettersSeeRegisteredResources)
{
  constexpr int rounds = 2000;
  std::atomic<bool> done{false};
  std::atomic<int> running{0};
  auto const is_known = [&](device_memory_resource* mr) { return mr == initial || mr == &first || mr == &second; };
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      ++running;
      while (!done) {
        for (int const id : all_ids) {
          auto const ref = get_per_device_resource_ref(cuda_device_id{id});
          if (!is_known(get_per_device_resource(cuda_device_id{id})) ||
              !(ref == initial_ref || ref == device_async_resource_ref{&first} ||
                ref == device_async_resource_ref{static_cast<device_memory_resource*>(&second)})) {
            ADD_FAILURE() << "not a resource that was registered";
            return;
          }
        }
      }
    });
  }
  while (running < 2) { std::this_thread::yield(); }
  std::thread pointer_writer{[&] {
    for (int i = 0; i < rounds; ++i) {
      set_per_device_resource(cuda_device_id{all_ids[static_cast<std::size_t>(i) % all_ids.size()]},
                              i % 3 == 0 ? nullptr : &second);
    }
  }};
  for (int i = 0; i < rounds; ++i) {
    cuda_device_id const id{all_ids[static_cast<std::size_t>(i) % all_ids.size()]};
    if (i % 3 == 0) {
      reset_per_device_resource_ref(id);
    } else {
      set_per_device_resource_ref(id, first);
    }
  }
  pointer_writer.join();
  done = true;
  for (auto& reader : readers) { reader.join(); }
}

}  // namespace
