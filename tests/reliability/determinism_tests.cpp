// SPDX-License-Identifier: Apache-2.0
//
// With one thread and one stream, a program gets the same addresses in every run, as offsets in their upstream blocks.
// The addresses of the blocks do not matter, if later blocks have higher addresses. Neither does the speed of the device,
// unless the pool takes memory while the program uses it: such memory is coalesced when work has completed. The program
// has to synchronise once after it made the pool, because the first block is ordered on the default stream.
//
// The addresses are also those of a stored run: neither the compiler and its options, nor assertions, nor the processor,
// nor the size of the device's memory may change them. A change of the library may; the test prints the new ones.

#include "../support/stepped_heap.hpp"
#include "../support/worker.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::mr::device_memory_resource;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

constexpr std::uintptr_t upstream_gap = std::uintptr_t{1} << 40;

/// An upstream with made-up addresses, for resources that never touch their memory. Blocks lie far above earlier ones.
class ascending_upstream final : public device_memory_resource {
 public:
  explicit ascending_upstream(std::uintptr_t begin) : next_{begin} {}

  /// The number of the block that contains an address, and the offset in it.
  [[nodiscard]] std::pair<std::size_t, std::size_t> place_of(void const* ptr) const
  {
    auto const address = reinterpret_cast<std::uintptr_t>(ptr);
    auto const block   = std::prev(blocks_.upper_bound(address));
    return {block->second, address - block->first};
  }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override
  {
    auto const begin = std::exchange(next_, next_ + rmm::align_up(bytes, upstream_gap));
    blocks_.emplace(begin, blocks_.size());
    return reinterpret_cast<void*>(begin);  // NOLINT: never dereferenced
  }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) noexcept override {}

  std::uintptr_t next_;
  std::map<std::uintptr_t, std::size_t> blocks_;
};

/// Conditions that differ between runs. They must not change the addresses that the program gets.
struct surroundings {
  std::uintptr_t first_address;
  double done_at_once;      ///< probability that the device finishes all its work before the next call
  bool has_another_pool;    ///< an earlier pool was made, used and destroyed
  bool has_another_thread;  ///< the program runs in another thread
};

constexpr surroundings all_surroundings[] = {
  {upstream_gap, 0, false, false},
  {upstream_gap, 1, false, false},
  {upstream_gap * 77, 0.3, true, false},
  {upstream_gap * 1000 + (std::uintptr_t{1} << 21), 0.01, true, true},
};

struct pool_kind {
  std::string name;
  bool depends_on_speed;    ///< because it takes memory while the program uses it
  std::uint64_t addresses;  ///< a hash of those that the program gets
  std::function<std::unique_ptr<device_memory_resource>(device_memory_resource&)> make;

  friend std::ostream& operator<<(std::ostream& out, pool_kind const& self) { return out << self.name; }
};

template <template <class> class Pool, class... Args>
std::function<std::unique_ptr<device_memory_resource>(device_memory_resource&)> made_with(Args... args)
{
  return [=](device_memory_resource& upstream) {
    return std::make_unique<Pool<device_memory_resource>>(&upstream, args...);
  };
}

// An elastic pool reserves addresses for its maximum, or for the device's memory without one.
constexpr std::size_t most_elastic = 96 * MiB;

std::vector<pool_kind> pool_kinds()
{
  using namespace rmm::mr;
  using bytes        = std::optional<std::size_t>;
  auto const elastic = [](std::size_t initial) {
    return
      [=](device_memory_resource&) { return std::make_unique<elastic_pool_memory_resource>(initial, most_elastic); };
  };
  return {
    {"pool", false, 0x2BA8'2E32'4392'93B0U, made_with<pool_memory_resource>(256 * MiB, bytes{})},
    {"pool_that_is_full", false, 0xD7EF'7D4E'4B32'AFC0U, made_with<pool_memory_resource>(64 * MiB, bytes{64 * MiB})},
    {"pool_that_grows", true, 0x8E81'8A69'8500'7B3DU, made_with<pool_memory_resource>(64 * MiB, bytes{})},
    {"arena", false, 0x2BA8'2E32'4392'93B0U, made_with<arena_memory_resource>(bytes{256 * MiB})},
    {"fixed_size",
     false,
     0x198D'EF7C'3C57'ABFFU,
     made_with<fixed_size_memory_resource>(std::size_t{MiB}, std::size_t{16})},
    {"cached", true, 0x8E81'8A69'8500'7B3DU, made_with<cached_memory_resource>()},
    {"elastic", false, 0x53F0'E055'4490'ABC2U, elastic(most_elastic)},
    {"elastic_that_grows", true, 0x1B89'D2F8'1003'41A5U, elastic(0)},
  };
}

/// Returns the hash FNV-1a of a text.
std::uint64_t hash_of(std::string const& text)
{
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325U;
  for (char const each : text) { hash = (hash ^ static_cast<unsigned char>(each)) * 0x0000'0100'0000'01B3U; }
  return hash;
}

/// A program on one stream: blocks of 1 byte to 8 MiB, mostly small, freed in a random order. Each size of less than 2^`bits` bytes is as
/// likely as its double. Computes with whole numbers only, because logarithms can differ between machines.
template <class Place>
std::string run_program(device_memory_resource& mr,
                        rmm::cuda_stream_view stream,
                        std::uint64_t seed,
                        double done_at_once,
                        std::uint64_t bits,
                        Place place_of)
{
  struct block {
    void* ptr;
    std::size_t bytes;
  };
  constexpr std::size_t operations = 6000;
  constexpr std::size_t most_live  = 56 * MiB;
  std::mt19937_64 random{seed};
  std::mt19937_64 machine{seed + 1};
  std::vector<block> live;
  std::size_t live_bytes{};
  std::string addresses;
  for (std::size_t i = 0; i != operations; ++i) {
    auto const least = std::uint64_t{1} << random() % bits;
    auto const bytes = static_cast<std::size_t>(least + random() % least);
    auto const which = random();
    if (!live.empty() && (live_bytes + bytes > most_live || which % 2 == 0)) {
      std::swap(live[which / 2 % live.size()], live.back());
      live_bytes -= live.back().bytes;
      mr.deallocate(live.back().ptr, live.back().bytes, stream);
      live.pop_back();
    } else {
      try {
        live.push_back({mr.allocate(bytes, stream), bytes});
        live_bytes += bytes;
        auto const [number, offset] = place_of(live.back().ptr);
        addresses += std::to_string(number) + "+" + std::to_string(offset) + " ";
      } catch (std::bad_alloc const&) {
        addresses += "none ";
      }
      EXPECT_EQ(cudasim::launch(stream, {}, {}), cudaSuccess);
    }
    if (static_cast<double>(machine() >> 11U) / 9007199254740992.0 < done_at_once) { stream.synchronize(); }
  }
  for (auto const& each : live) { mr.deallocate(each.ptr, each.bytes, stream); }
  stream.synchronize();
  return addresses;
}

struct Determinism : Stepped, ::testing::WithParamInterface<pool_kind> {
  static std::string run(pool_kind const& kind,
                         std::uint64_t seed,
                         surroundings const& in,
                         rmm::cuda_stream_view stream)
  {
    bool const is_elastic =
      kind.name.find("elastic") == 0;  // one block, in which the pool chooses the addresses itself
    if (in.has_another_pool) { static_cast<void>(run(kind, seed, {upstream_gap, 0.5, false, false}, stream)); }
    ascending_upstream upstream{in.first_address};
    auto const mr = kind.make(upstream);
    rmm::cuda_stream_legacy.synchronize();
    void* first{};
    auto const place_of = [&](void* ptr) {
      if (first == nullptr) { first = ptr; }
      auto const from_first = reinterpret_cast<std::uintptr_t>(ptr) - reinterpret_cast<std::uintptr_t>(first);
      return is_elastic ? std::pair<std::size_t, std::size_t>{0, from_first} : upstream.place_of(ptr);
    };
    auto const bits = kind.name == "fixed_size" ? std::uint64_t{20} : std::uint64_t{23};
    auto const go   = [&] { return run_program(*mr, stream, seed, in.done_at_once, bits, place_of); };
    if (!in.has_another_thread) { return go(); }
    std::string got;
    rmm::test::run_on_a_thread_that_ends([&] { got = go(); });
    return got;
  }
};

TEST_P(Determinism, OneThreadAndOneStreamGetTheSameAddressesInEveryRun)
{
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  for (std::uint64_t seed = 1; seed != 4; ++seed) {
    for (auto const on : {stream.view(), rmm::cuda_stream_legacy}) {
      for (auto const& in : all_surroundings) {
        auto const speed = GetParam().depends_on_speed ? in.done_at_once : 0;
        auto const plain = run(GetParam(), seed, {upstream_gap, speed, false, false}, on);
        EXPECT_GT(plain.size(), 6000U);
        EXPECT_TRUE(run(GetParam(), seed, in, on) == plain)
          << "work is done at once with probability " << in.done_at_once << ", seed " << seed;
      }
    }
  }
}

TEST_P(Determinism, EveryMachineGivesTheStoredAddresses)
{
  constexpr std::size_t GiB = 1024 * MiB;
  for (auto const memory_bytes : {GiB, 16 * GiB, std::size_t{141'000'000'000}}) {
    cudasim::options machine = cudasim::current_options();
    machine.memory_bytes     = memory_bytes;
    start(machine);
    rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
    auto const addresses = hash_of(run(GetParam(), 1, {upstream_gap, 0.3, false, false}, stream));
    EXPECT_EQ(addresses, GetParam().addresses)
      << std::hex << "0x" << addresses << " with " << std::dec << memory_bytes << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(AllPools, Determinism, ::testing::ValuesIn(pool_kinds()), [](auto const& each) {
  return each.param.name;
});

}  // namespace
