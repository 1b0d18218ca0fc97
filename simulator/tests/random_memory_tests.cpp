// SPDX-License-Identifier: Apache-2.0
//
// A million random memory operations against a model of the live blocks, their addresses and their first bytes.

#include "../src/pool.hpp"
#include "support.hpp"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace cudasim_tests {
namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

enum class kind { device, pinned, managed, pooled };

struct block {
  kind what;
  std::size_t bytes;
  std::uint64_t tag;
  int device;
};

[[nodiscard]] std::uint64_t seed_of_this_run()
{
  auto const* const chosen = std::getenv("RMM_TEST_SEED");
  return chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : std::random_device{}();
}

/// One thread's random walk through the memory calls of two devices.
class walker {
 public:
  explicit walker(std::uint64_t seed) : random_{seed}
  {
    for (auto& s : streams_) { EXPECT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess); }
  }
  walker(walker const&)            = delete;
  walker& operator=(walker const&) = delete;
  ~walker()
  {
    while (!live_.empty()) { give_back(live_.begin()); }
    for (auto* const s : streams_) {
      EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
    }
  }

  void walk(int steps)
  {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      auto const roll = random_() % 1000;
      if (roll == 0) {
        EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
      } else if (live_.size() < 20 || (live_.size() < 400 && roll % 2 == 0)) {
        take();
      } else {
        give_back(std::next(live_.begin(), static_cast<std::ptrdiff_t>(random_() % live_.size())));
      }
    }
  }

 private:
  [[nodiscard]] cudaStream_t stream() { return streams_[random_() % streams_.size()]; }

  [[nodiscard]] std::size_t size()
  {
    auto const roll = random_() % 100;
    if (roll < 70) { return 8 + random_() % (4 * KiB); }
    if (roll < 97) { return 8 + random_() % (256 * KiB); }
    return 8 + random_() % (6 * MiB);
  }

  void take()
  {
    block made{static_cast<kind>(random_() % 4), size(), random_(), 0};
    void* ptr         = nullptr;
    cudaError_t error = cudaSuccess;
    switch (made.what) {
      case kind::device:
        error = cudaMalloc(&ptr, made.bytes);
        break;
      case kind::pinned:
        error = cudaMallocHost(&ptr, made.bytes);
        break;
      case kind::managed:
        error = cudaMallocManaged(&ptr, made.bytes, cudaMemAttachGlobal);
        break;
      case kind::pooled: {
        auto* const s = streams_[0];  // one stream, so that the host's writes need no event
        error         = cudaMallocAsync(&ptr, made.bytes, s);
        if (error == cudaSuccess) { error = cudaStreamSynchronize(s); }
        break;
      }
    }
    ASSERT_EQ(error, cudaSuccess);
    auto const begin = reinterpret_cast<std::uintptr_t>(ptr);
    auto const next  = live_.lower_bound(begin);
    ASSERT_TRUE(next == live_.end() || begin + made.bytes <= next->first) << "overlaps the next block";
    ASSERT_TRUE(next == live_.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= begin)
      << "overlaps the block before";
    ASSERT_EQ(begin % 512, 0U);
    std::memcpy(ptr, &made.tag, sizeof made.tag);
    live_.emplace_hint(next, begin, made);
  }

  void give_back(std::map<std::uintptr_t, block>::iterator which)
  {
    auto* const ptr     = reinterpret_cast<void*>(which->first);
    auto const& what    = which->second;
    std::uint64_t found = 0;
    std::memcpy(&found, ptr, sizeof found);
    EXPECT_EQ(found, what.tag) << "somebody wrote to this block";
    switch (what.what) {
      case kind::device:
        EXPECT_EQ(cudaFree(ptr), cudaSuccess);
        break;
      case kind::pinned:
        EXPECT_EQ(cudaFreeHost(ptr), cudaSuccess);
        break;
      case kind::managed:
        EXPECT_EQ(cudaFree(ptr), cudaSuccess);
        break;
      case kind::pooled:
        EXPECT_EQ(random_() % 4 == 0 ? cudaFree(ptr) : cudaFreeAsync(ptr, stream()), cudaSuccess);
        break;
    }
    live_.erase(which);
  }

  std::mt19937_64 random_;
  std::array<cudaStream_t, 3> streams_{};
  std::map<std::uintptr_t, block> live_;
};

class RandomMemory : public Simulated {
 protected:
  void SetUp() override
  {
    Simulated::SetUp();
    std::printf("RMM_TEST_SEED=%llu repeats this\n", static_cast<unsigned long long>(seed_));  // before a crash
    std::fflush(stdout);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    auto const after = cudasim::usage(0);
    EXPECT_EQ(after.free, after.total);
    Simulated::TearDown();
  }
  std::uint64_t seed_{seed_of_this_run()};
};

TEST_F(RandomMemory, AgreesWithAModelOverAMillionOperations)
{
  walker one{seed_};
  one.walk(1'000'000);
}

TEST_F(RandomMemory, AgreesWithAModelInFourThreads)
{
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([seed = seed_ + i] {
      walker mine{seed};
      mine.walk(25'000);
    });
  }
  for (auto& t : threads) { t.join(); }
}

/// Whether all pools keep their invariants.
[[nodiscard]] bool pools_are_sound()
{
  std::unique_lock<std::mutex> const lock{cudasim::the_world().mutex};
  auto const& pools = cudasim::memory().pools->handles;
  return std::all_of(pools.begin(), pools.end(), [](auto const& entry) { return entry.second->check_invariants(); });
}

/// Random allocations, uses and frees of a pool by streams that wait for each other as a correct program does, executed
/// in random order. The checker must find nothing wrong, and live blocks must not overlap.
class RandomPool : public Simulated, public ::testing::WithParamInterface<int> {
 protected:
  [[nodiscard]] cudasim::options machine() const override
  {
    cudasim::options o;
    o.mode           = cudasim::execution::stepped;
    o.seed           = static_cast<std::uint64_t>(GetParam()) + 1;
    o.check_ordering = true;
    o.memory_bytes   = 128 * MiB;
    return o;
  }
};

TEST_P(RandomPool, NeverSharesABlock)
{
  struct owned {
    std::size_t stream;
    std::size_t bytes;
    std::uint64_t tag;
  };
  std::mt19937_64 random{static_cast<std::uint64_t>(GetParam())};
  std::array<cudaStream_t, 3> streams{};
  for (auto& s : streams) { ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess); }
  scoped_event const event;
  std::map<std::uintptr_t, owned> live;
  std::uint64_t torn = 0;
  for (int step = 0; step < 3'000; ++step) {
    auto const i = random() % streams.size();
    if (step % 50 == 0) { ASSERT_TRUE(pools_are_sound()) << "step " << step; }
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: {
        void* ptr        = nullptr;
        auto const bytes = 8 + random() % (random() % 4 == 0 ? 6 * MiB : 4 * KiB);
        if (cudaMallocAsync(&ptr, bytes, streams[i]) != cudaSuccess) {  // memory is short on purpose
          EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
          break;
        }
        auto const tag = random();
        ASSERT_EQ(cudasim::launch(streams[i], {}, {{ptr, 8}}, [ptr, tag] { std::memcpy(ptr, &tag, 8); }), cudaSuccess);
        ASSERT_TRUE(live.emplace(reinterpret_cast<std::uintptr_t>(ptr), owned{i, bytes, tag}).second);
        break;
      }
      case 3:
      case 4:
      case 5: {
        if (live.empty()) { break; }
        auto const which = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
        auto* const ptr  = reinterpret_cast<void*>(which->first);
        auto const home  = which->second.stream;
        if (home != i) {
          ASSERT_EQ(cudaEventRecord(event, streams[home]), cudaSuccess);
          ASSERT_EQ(cudaStreamWaitEvent(streams[i], event, 0), cudaSuccess);
        }
        ASSERT_EQ(
          cudasim::launch(streams[i],
                          {{ptr, 8}},
                          {},
                          [ptr, tag = which->second.tag, &torn] { torn += std::memcmp(ptr, &tag, 8) != 0 ? 1 : 0; }),
          cudaSuccess);
        ASSERT_EQ(cudaFreeAsync(ptr, streams[i]), cudaSuccess);
        live.erase(which);
        break;
      }
      case 6:
        cudasim::step();
        break;
      default:
        if (random() % 10 == 0) { ASSERT_EQ(cudaStreamSynchronize(streams[i]), cudaSuccess); }
        break;
    }
  }
  for (auto const& [begin, block] : live) {
    ASSERT_EQ(cudaFreeAsync(reinterpret_cast<void*>(begin), streams[block.stream]), cudaSuccess);
  }
  for (auto* const s : streams) {
    ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
  }
  EXPECT_EQ(torn, 0U);
  EXPECT_EQ(cudasim::usage(0).free, cudasim::usage(0).total);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPool, ::testing::Range(0, 20));

// --- virtual memory -------------------------------------------------------------------------------------------------

template <class Function>
[[nodiscard]] Function* entry(char const* name)
{
  void* found = nullptr;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, nullptr), cudaSuccess) << name;
  return reinterpret_cast<Function*>(found);
}

TEST_F(RandomMemory, MapsChunksAnywhereAndKeepsTheirBytes)
{
  constexpr std::size_t chunk = 2 * MiB;
  constexpr std::size_t slots = 64;
  auto* const create          = entry<decltype(cuMemCreate)>("cuMemCreate");
  auto* const release         = entry<decltype(cuMemRelease)>("cuMemRelease");
  auto* const map             = entry<decltype(cuMemMap)>("cuMemMap");
  auto* const unmap           = entry<decltype(cuMemUnmap)>("cuMemUnmap");
  auto* const set_access      = entry<decltype(cuMemSetAccess)>("cuMemSetAccess");
  CUmemAllocationProp wanted{};
  wanted.type          = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr begin{};
  ASSERT_EQ(entry<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&begin, slots * chunk, 0, 0, 0), CUDA_SUCCESS);

  struct made_chunk {
    CUmemGenericAllocationHandle handle;
    std::uint64_t tag;
    std::size_t slot;  // the number of slots means not mapped
  };
  std::mt19937_64 random{seed_};
  std::vector<made_chunk> chunks;
  std::array<bool, slots> taken{};
  auto const address = [&](std::size_t slot) { return reinterpret_cast<void*>(begin + slot * chunk); };
  for (int step = 0; step < 5'000; ++step) {
    auto const slot = random() % slots;
    auto const roll = random() % 10;
    if (chunks.size() < 8 || (roll == 0 && chunks.size() < 32)) {
      CUmemGenericAllocationHandle made{};
      ASSERT_EQ(create(&made, chunk, &wanted, 0), CUDA_SUCCESS);
      chunks.push_back({made, 0, slots});
      continue;
    }
    auto& c = chunks[random() % chunks.size()];
    if (c.slot != slots) {
      std::uint64_t found = 0;
      std::memcpy(&found, address(c.slot), sizeof found);
      ASSERT_EQ(found, c.tag);
      ASSERT_EQ(unmap(begin + c.slot * chunk, chunk), CUDA_SUCCESS);
      taken[c.slot] = false;
      c.slot        = slots;
      if (roll < 2) {
        ASSERT_EQ(release(c.handle), CUDA_SUCCESS);
        c = chunks.back();
        chunks.pop_back();
      }
    } else if (!taken[slot]) {
      ASSERT_EQ(map(begin + slot * chunk, chunk, 0, c.handle, 0), CUDA_SUCCESS);
      ASSERT_EQ(set_access(begin + slot * chunk, chunk, &access, 1), CUDA_SUCCESS);
      std::uint64_t found = 0;
      std::memcpy(&found, address(slot), sizeof found);
      ASSERT_EQ(found, c.tag) << "a chunk keeps its bytes while it is not mapped; a new one reads as zeros";
      c.tag = random();
      std::memcpy(address(slot), &c.tag, sizeof c.tag);
      c.slot      = slot;
      taken[slot] = true;
    }
    ASSERT_EQ(cudasim::usage(0).physical, chunks.size() * chunk);
  }
  ASSERT_EQ(unmap(begin, slots * chunk), CUDA_SUCCESS);
  for (auto const& c : chunks) { ASSERT_EQ(release(c.handle), CUDA_SUCCESS); }
  ASSERT_EQ(entry<decltype(cuMemAddressFree)>("cuMemAddressFree")(begin, slots * chunk), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cudasim_tests
