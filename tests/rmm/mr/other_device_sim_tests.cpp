// SPDX-License-Identifier: Apache-2.0
//
// Pools of device 1 that are called while device 0 is current, and pools that two devices share, under the ordering checker.
//
// The streams are always right: any thread may free a block on the stream that used it, and the current device of a new thread is
// 0.

#include "../../support/stepped_heap.hpp"
#include "../../support/worker.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/recovery.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::test::run_on_a_thread_that_ends;
using rmm::test::worker;

constexpr std::size_t KiB  = 1024;
constexpr std::size_t MiB  = 1024 * KiB;
constexpr std::size_t most = 8 * MiB;  // the maximum of the pools that have one

void use_device(int device) { ASSERT_EQ(cudaSetDevice(device), cudaSuccess); }

/// Returns the devices that have a context, as text.
[[nodiscard]] std::string contexts()
{
  std::string all;
  for (int device = 0; device < cudasim::current_options().devices; ++device) {
    if (cudasim::has_context(device)) { all += std::to_string(device); }
  }
  return all;
}

[[nodiscard]] int device_of(void const* ptr)
{
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
  return attributes.device;
}

/// Fails if there are violations, names how many of each kind there are, and clears them.
void expect_no_violations(std::string const& what)
{
  auto const found = cudasim::violations();
  auto const races = std::count_if(
    found.begin(), found.end(), [](auto const& each) { return each.what == cudasim::violation::kind::race; });
  EXPECT_TRUE(found.empty()) << what << ": " << races << " races, " << found.size() - static_cast<std::size_t>(races)
                             << " other violations; the first: " << found[0].text;
  cudasim::clear_violations();
}

/// Streams of the current device: some that the library knows, and some that it does not know.
class some_streams {
 public:
  explicit some_streams(std::size_t count)
  {
    for (std::size_t i = 0; i < count; ++i) {
      if (i % 2 == 0) {
        known_.push_back(std::make_unique<rmm::cuda_stream>(rmm::cuda_stream::flags::non_blocking));
        all_.push_back(known_.back()->view());
      } else {
        cudaStream_t made{};
        EXPECT_EQ(cudaStreamCreate(&made), cudaSuccess);
        raw_.push_back(made);
        all_.emplace_back(made);
      }
    }
  }
  some_streams(some_streams const&)            = delete;
  some_streams& operator=(some_streams const&) = delete;
  ~some_streams()
  {
    for (auto* const stream : raw_) { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }
  }

  [[nodiscard]] rmm::cuda_stream_view operator[](std::size_t i) const { return all_[i]; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }

 private:
  std::vector<std::unique_ptr<rmm::cuda_stream>> known_;
  std::vector<cudaStream_t> raw_;
  std::vector<rmm::cuda_stream_view> all_;
};

// --- the pools

// Each resource has an upstream if it needs one.

using rmm::mr::cuda_async_memory_resource;
using rmm::mr::cuda_memory_resource;

template <class Upstream>
struct pool_over {
  using mr_type                        = rmm::mr::pool_memory_resource<Upstream>;
  static constexpr std::size_t largest = 100 * KiB;
  Upstream upstream;
  std::unique_ptr<mr_type> mr{std::make_unique<mr_type>(&upstream, 0, most)};
};

struct arena {
  using mr_type                        = rmm::mr::arena_memory_resource<cuda_memory_resource>;
  static constexpr std::size_t largest = 100 * KiB;
  cuda_memory_resource upstream;
  std::unique_ptr<mr_type> mr{std::make_unique<mr_type>(&upstream, most)};
};

struct fixed_size {
  using mr_type                        = rmm::mr::fixed_size_memory_resource<cuda_memory_resource>;
  static constexpr std::size_t largest = 64 * KiB;
  cuda_memory_resource upstream;
  std::unique_ptr<mr_type> mr{std::make_unique<mr_type>(&upstream, largest, 4)};
};

struct cached_over_async {
  using mr_type                        = rmm::mr::cached_memory_resource<cuda_async_memory_resource>;
  static constexpr std::size_t largest = 100 * KiB;
  cuda_async_memory_resource upstream;
  std::unique_ptr<mr_type> mr{std::make_unique<mr_type>(&upstream, 0, most, 256 * KiB)};
};

template <bool peer_access>
struct elastic {
  using mr_type                        = rmm::mr::elastic_pool_memory_resource;
  static constexpr std::size_t largest = 100 * KiB;
  [[nodiscard]] static rmm::mr::elastic_pool_options options()
  {
    rmm::mr::elastic_pool_options wanted;
    wanted.maximum_bytes = most;
    wanted.peer_access   = peer_access;
    return wanted;
  }
  std::unique_ptr<mr_type> mr{std::make_unique<mr_type>(options())};
};

template <class Pool>
inline constexpr bool is_trimmable = std::is_base_of_v<rmm::mr::trimmable_resource, typename Pool::mr_type>;

/// Gives unused memory back. Returns the bytes; 0 if the pool never gives memory back.
template <class Pool>
std::size_t trim(Pool& pool)
{
  if constexpr (is_trimmable<Pool>) {
    return pool.mr->trim_to(0);
  } else {
    return 0;
  }
}

/// Allocates until the pool is full or has served twice its maximum. Returns the blocks.
template <class Pool>
std::vector<void*> fill(Pool& pool, rmm::cuda_stream_view stream)
{
  std::vector<void*> blocks;
  try {
    while (blocks.size() * Pool::largest < 2 * most) { blocks.push_back(pool.mr->allocate(Pool::largest, stream)); }
  } catch (std::bad_alloc const&) {}
  return blocks;
}

template <class Pool>
void give_back(Pool& pool, std::vector<void*> const& blocks, rmm::cuda_stream_view stream)
{
  for (void* const block : blocks) { pool.mr->deallocate(block, Pool::largest, stream); }
}

template <class Pool>
void write_all(std::vector<void*> const& blocks, rmm::cuda_stream_view stream, char const* name)
{
  for (void* const block : blocks) { write(block, Pool::largest, stream, name); }
}

// --- pools of device 1

template <class Pool>
struct PoolOfOtherDevice : Stepped {
  /// A machine on which device 1 was the only current device so far.
  static void start_machine(std::uint64_t seed, int devices = 2)
  {
    begin(seed, devices);
    use_device(1);
  }

  void TearDown() override
  {
    Stepped::TearDown();
    begin(0);
  }
};

using pools = ::testing::Types<pool_over<cuda_memory_resource>,
                               pool_over<cuda_async_memory_resource>,
                               arena,
                               fixed_size,
                               cached_over_async,
                               elastic<false>,
                               elastic<true>>;

struct pool_names {
  template <class Pool>
  static std::string GetName(int number)
  {
    static constexpr char const* names[]{
      "PoolOverCuda", "PoolOverAsync", "Arena", "FixedSize", "CachedOverAsync", "Elastic", "ElasticWithPeers"};
    return names[number];
  }
};
TYPED_TEST_SUITE(PoolOfOtherDevice, pools, pool_names);

/// Runs task() in a thread with device 0 current, or on this thread with device 1 current.
template <class Task>
void call(bool elsewhere, Task&& task)
{
  if (elsewhere) {
    run_on_a_thread_that_ends(std::forward<Task>(task));
  } else {
    task();
  }
}

/// Allocates and writes with the pool's device current, and frees in a thread with another one. Each block is written on its stream
/// after its allocation and before its free. Returns how many blocks were freed.
template <class Pool>
std::size_t free_elsewhere(std::uint64_t seed, int steps)
{
  struct block {
    void* ptr;
    std::size_t bytes;
    std::size_t stream;
  };
  std::mt19937_64 random{seed};
  auto const pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Pool pool;
  some_streams const streams{4};
  worker elsewhere;
  std::vector<block> live;
  std::size_t freed{0};
  auto const free_one = [&](std::size_t which) {
    auto const gone = std::exchange(live[which], live.back());
    live.pop_back();
    write(gone.ptr, gone.bytes, streams[gone.stream], "owner, before it frees");
    elsewhere.run([&] { pool.mr->deallocate(gone.ptr, gone.bytes, streams[gone.stream]); });
    ++freed;
  };
  for (int step = 0; step < steps; ++step) {
    auto const what = pick(100);
    if (what < 50) {
      block made{nullptr, 1 + pick(pick(4) == 0 ? Pool::largest : 4 * KiB), pick(streams.size())};
      try {
        made.ptr = pool.mr->allocate(made.bytes, streams[made.stream]);
      } catch (std::bad_alloc const&) {
        continue;
      }
      write(made.ptr, made.bytes, streams[made.stream], "new owner");
      live.push_back(made);
    } else if (what < 95) {
      if (!live.empty()) { free_one(pick(live.size())); }
    } else if (what < 99) {
      cudasim::step();
    } else {
      streams[pick(streams.size())].synchronize();
    }
  }
  while (!live.empty()) { free_one(live.size() - 1); }
  return freed;
}

TYPED_TEST(PoolOfOtherDevice, TakesBlocksBackInAThreadOfAnotherDevice)
{
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    this->start_machine(seed);
    auto const frees = free_elsewhere<TypeParam>(seed, 3000);
    expect_no_violations("seed " + std::to_string(seed) + ", " + std::to_string(frees) + " frees");
  }
}

TYPED_TEST(PoolOfOtherDevice, ABlockFreedOnAnotherDeviceGoesToAnotherStreamBehindItsWork)
{
  this->start_machine(0);
  {
    TypeParam pool;
    some_streams const streams{2};
    auto const first = fill(pool, streams[0]);
    write_all<TypeParam>(first, streams[0], "first owner");
    call(true, [&] { give_back(pool, first, streams[0]); });
    auto const second = fill(pool, streams[1]);
    write_all<TypeParam>(second, streams[1], "second owner");
    EXPECT_EQ(first.size(), second.size());
    expect_no_violations(std::to_string(first.size()) + " blocks");
    give_back(pool, second, streams[1]);
  }
  expect_no_violations("the end");
}

TYPED_TEST(PoolOfOtherDevice, GivesMemoryOfItsOwnDevice)
{
  this->start_machine(0);
  {
    TypeParam pool;
    some_streams const streams{2};
    std::vector<std::pair<void*, rmm::cuda_stream_view>> blocks;
    worker elsewhere;
    std::size_t on_other{0};
    for (std::size_t i = 0; i < 60; ++i) {  // more than the first block of the pools that grow
      auto const stream = streams[i % 2];
      elsewhere.run([&] { blocks.emplace_back(pool.mr->allocate(TypeParam::largest, stream), stream); });
      if (device_of(blocks.back().first) != 1) { ++on_other; }
    }
    EXPECT_EQ(on_other, 0U) << "of 60 blocks are memory of another device";
    EXPECT_EQ(cudasim::usage(0).total, cudasim::usage(0).free) << "memory of device 0 was taken";
    for (auto const& [ptr, stream] : blocks) { write(ptr, TypeParam::largest, stream, "owner"); }
    for (auto const& [ptr, stream] : blocks) { pool.mr->deallocate(ptr, TypeParam::largest, stream); }
  }
  expect_no_violations("60 blocks");
}

TYPED_TEST(PoolOfOtherDevice, EndsInAThreadOfAnotherDevice)
{
  for (bool const freed_elsewhere : {false, true}) {
    SCOPED_TRACE(freed_elsewhere ? "freed with device 0 current" : "freed with device 1 current");
    this->start_machine(0);
    {
      some_streams const streams{2};
      TypeParam pool;
      auto const blocks = fill(pool, streams[0]);
      write_all<TypeParam>(blocks, streams[0], "last owner");
      call(freed_elsewhere, [&] { give_back(pool, blocks, streams[0]); });
      call(true, [&] { pool.mr.reset(); });
      expect_no_violations("the end of a pool");
      // The next owner writes to the memory immediately.
      auto const write_to = [&](void* ptr) { write(ptr, 4 * MiB, streams[1], "owner after the pool"); };
      if constexpr (!std::is_same_v<typename TypeParam::mr_type, rmm::mr::elastic_pool_memory_resource>) {
        void* const ptr = pool.upstream.allocate(4 * MiB, streams[1]);
        write_to(ptr);
        pool.upstream.deallocate(ptr, 4 * MiB, streams[1]);
      }
      void* plain{};
      ASSERT_EQ(cudaMalloc(&plain, 4 * MiB), cudaSuccess);
      write_to(plain);
      streams[1].synchronize();
      ASSERT_EQ(cudaFree(plain), cudaSuccess);
      expect_no_violations("the owner after the pool");
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    EXPECT_EQ(cudasim::usage(1).free, cudasim::usage(1).total);
  }
}

TYPED_TEST(PoolOfOtherDevice, TrimsInAThreadOfAnotherDevice)
{
  for (bool const freed_elsewhere : {false, true}) {
    SCOPED_TRACE(freed_elsewhere ? "freed with device 0 current" : "freed with device 1 current");
    this->start_machine(0);
    {
      TypeParam pool;
      some_streams const streams{2};
      auto const blocks = fill(pool, streams[0]);
      write_all<TypeParam>(blocks, streams[0], "last owner");
      call(freed_elsewhere, [&] { give_back(pool, blocks, streams[0]); });
      std::size_t given{};
      call(true, [&] { given = trim(pool); });
      if (is_trimmable<TypeParam>) {
        EXPECT_GE(given, most / 2);
        EXPECT_EQ(pool.mr->figures().reserved_bytes, 0U);
        EXPECT_EQ(cudasim::usage(1).free, cudasim::usage(1).total) << "memory did not go back to the device";
      }
      auto const again = fill(pool, streams[1]);
      EXPECT_EQ(again.size(), blocks.size());
      write_all<TypeParam>(again, streams[1], "next owner");
      expect_no_violations("a trim");
      give_back(pool, again, streams[1]);
    }
    expect_no_violations("the end");
  }
}

// --- contexts

/// A call of a pool of device 1. `block` was allocated and used on streams[0].
template <class Pool>
struct request {
  char const* name;
  std::function<void(Pool& pool, void*& block, some_streams const& streams)> make;
};

template <class Pool>
std::vector<request<Pool>> requests()
{
  auto const free_it = [](Pool& pool, void*& block, some_streams const& streams) {
    pool.mr->deallocate(std::exchange(block, nullptr), Pool::largest, streams[0]);
  };
  auto const fill_on = [](Pool& pool, rmm::cuda_stream_view stream) { give_back(pool, fill(pool, stream), stream); };
  return {{"allocate",
           [](Pool& pool, void*&, some_streams const& streams) {
             pool.mr->deallocate(pool.mr->allocate(1000, streams[0]), 1000, streams[0]);
           }},
          {"allocate on another stream",
           [](Pool& pool, void*&, some_streams const& streams) {
             pool.mr->deallocate(pool.mr->allocate(1000, streams[1]), 1000, streams[1]);
           }},
          {"deallocate", free_it},
          {"growth and pressure", [=](Pool& pool, void*&, some_streams const& streams) { fill_on(pool, streams[0]); }},
          {"pressure after a free of another stream",
           [=](Pool& pool, void*& block, some_streams const& streams) {
             free_it(pool, block, streams);
             fill_on(pool, streams[1]);
             fill_on(pool, streams[0]);
           }},
          {"figures", [](Pool& pool, void*&, some_streams const&) { static_cast<void>(pool.mr->figures()); }},
          {"snapshot", [](Pool& pool, void*&, some_streams const&) { static_cast<void>(pool.mr->snapshot()); }},
          {"trim", [](Pool& pool, void*&, some_streams const&) { trim(pool); }},
          {"trim after a free",
           [=](Pool& pool, void*& block, some_streams const& streams) {
             free_it(pool, block, streams);
             trim(pool);
           }},
          {"the end", [=](Pool& pool, void*& block, some_streams const& streams) {
             free_it(pool, block, streams);
             pool.mr.reset();
           }}};
}

/// Makes each request on a new machine with four devices, in a thread that has not used CUDA, or in one with device 1 current.
/// Returns the requests that created contexts, and the devices that have one then.
template <class Pool>
std::string context_makers(bool elsewhere)
{
  std::string found;
  for (auto const& each : requests<Pool>()) {
    Stepped::begin(0, 4);
    use_device(1);
    {
      some_streams const streams{2};
      Pool pool;
      void* block = pool.mr->allocate(Pool::largest, streams[0]);
      write(block, Pool::largest, streams[0]);
      EXPECT_EQ(contexts(), "1") << "before '" << each.name << "'";
      call(elsewhere, [&] { each.make(pool, block, streams); });
      if (contexts() != "1") { found += std::string{each.name} + " (" + contexts() + "); "; }
      if (block != nullptr) { pool.mr->deallocate(block, Pool::largest, streams[0]); }
    }
    cudasim::clear_violations();  // other tests check violations
  }
  return found;
}

TYPED_TEST(PoolOfOtherDevice, MakesNoContextsWhereItsDeviceIsCurrent)
{
  EXPECT_EQ(context_makers<TypeParam>(false), "");
}

TYPED_TEST(PoolOfOtherDevice, MakesNoContextsInAThreadThatHasNotUsedCuda)
{
  EXPECT_EQ(context_makers<TypeParam>(true), "");
}

// --- containers

struct ContainersOfOtherDevice : Stepped {
  void SetUp() override
  {
    begin(0, 4);
    use_device(1);
  }
  void TearDown() override
  {
    Stepped::TearDown();
    begin(0);
  }

  /// Makes containers of device 1, writes to them, ends each with `end`, and gives their memory to another stream.
  template <class Container, class End>
  static void run(End&& end)
  {
    pool_over<cuda_memory_resource> pool;
    some_streams const streams{4};
    for (std::size_t i = 0; i < 400; ++i) {
      auto const bytes = 1 + (i * 7919) % (64 * KiB);
      auto container   = std::make_unique<Container>(bytes, streams[i % 3], pool.mr.get());
      write(container->data(), bytes, streams[i % 3], "container");
      end([&] { container.reset(); });
      if (i % 8 == 0) {
        void* const ptr = pool.mr->allocate(bytes, streams[3]);
        write(ptr, bytes, streams[3], "next owner");
        pool.mr->deallocate(ptr, bytes, streams[3]);
      }
    }
  }
};

TEST_F(ContainersOfOtherDevice, BuffersEndInAThreadOfAnotherDevice)
{
  worker elsewhere;
  run<rmm::device_buffer>([&](auto&& task) { elsewhere.run(task); });
  expect_no_violations("400 buffers");
}

TEST_F(ContainersOfOtherDevice, VectorsEndInAThreadOfAnotherDevice)
{
  worker elsewhere;
  run<rmm::device_uvector<char>>([&](auto&& task) { elsewhere.run(task); });
  expect_no_violations("400 vectors");
}

TEST_F(ContainersOfOtherDevice, MakeNoContextsWhereTheyEnd)
{
  worker elsewhere;
  run<rmm::device_buffer>([&](auto&& task) { elsewhere.run(task); });
  EXPECT_EQ(contexts(), "1");
  run<rmm::device_uvector<char>>([&](auto&& task) { elsewhere.run(task); });
  EXPECT_EQ(contexts(), "1");
  cudasim::clear_violations();  // other tests check violations
}

// --- pools that two devices share

/// A random program of two devices on one pool of host memory. Each call is made with the device of its stream current: in one
/// thread for each device, or in one thread for both. Blocks go from one device to the other behind an event.
template <class Pool>
void share(Pool& mr, std::uint64_t seed, bool one_thread, bool only_default_streams)
{
  struct block {
    void* ptr;
    std::size_t bytes;
    int device;
    std::size_t stream;
  };
  std::mt19937_64 random{seed};
  auto const pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  worker threads[2];
  auto const in = [&](int device, auto&& task) {
    threads[one_thread ? 0 : device].run([&] {
      use_device(device);
      task();
    });
  };
  std::unique_ptr<some_streams> explicit_streams[2];
  for (int device : {0, 1}) {
    in(device, [&] { explicit_streams[device] = std::make_unique<some_streams>(2); });
  }
  auto const view = [&](int device, std::size_t stream) -> rmm::cuda_stream_view {
    if (stream == 0) { return rmm::cuda_stream_legacy; }
    return stream == 1 ? rmm::cuda_stream_per_thread : (*explicit_streams[device])[stream - 2];
  };
  auto const stream_count = std::size_t{only_default_streams ? 2U : 4U};
  std::vector<block> live;
  auto const free_one = [&](std::size_t which) {
    auto const gone = std::exchange(live[which], live.back());
    live.pop_back();
    in(gone.device, [&] {
      write(gone.ptr, gone.bytes, view(gone.device, gone.stream), "owner, before it frees");
      mr.deallocate(gone.ptr, gone.bytes, view(gone.device, gone.stream));
    });
  };
  for (int step = 0; step < 1500; ++step) {
    auto const what = pick(100);
    if (what < 45) {
      block made{nullptr, 1 + pick(pick(4) == 0 ? 100 * KiB : 4 * KiB), static_cast<int>(pick(2)), pick(stream_count)};
      in(made.device, [&] {
        try {
          made.ptr = mr.allocate(made.bytes, view(made.device, made.stream));
        } catch (std::bad_alloc const&) {
          return;
        }
        write(made.ptr, made.bytes, view(made.device, made.stream), "new owner");
      });
      if (made.ptr != nullptr) { live.push_back(made); }
    } else if (what < 85) {
      if (!live.empty()) { free_one(pick(live.size())); }
    } else if (what < 95) {
      if (live.empty()) { continue; }
      auto& moves      = live[pick(live.size())];
      auto const other = 1 - moves.device;
      auto const next  = pick(stream_count);
      cudaEvent_t done{};
      in(moves.device, [&] {
        EXPECT_EQ(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), cudaSuccess);
        EXPECT_EQ(cudaEventRecord(done, view(moves.device, moves.stream).value()), cudaSuccess);
      });
      in(other, [&] {
        EXPECT_EQ(cudaStreamWaitEvent(view(other, next).value(), done, 0), cudaSuccess);
        EXPECT_EQ(cudaEventDestroy(done), cudaSuccess);
        write(moves.ptr, moves.bytes, view(other, next), "owner on the other device");
      });
      moves.device = other;
      moves.stream = next;
    } else {
      cudasim::step();
    }
  }
  while (!live.empty()) { free_one(live.size() - 1); }
  for (int device : {0, 1}) {
    in(device, [&] { explicit_streams[device].reset(); });
  }
}

struct SharedByTwoDevices : Stepped {
  template <class Make>
  static void run(Make&& make)
  {
    for (bool const one_thread : {false, true}) {
      for (bool const only_default_streams : {false, true}) {
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
          begin(seed, 2);
          make([&](auto& mr) { share(mr, seed, one_thread, only_default_streams); });
          expect_no_violations(std::string{one_thread ? "one thread" : "a thread for each device"} +
                               (only_default_streams ? ", default streams" : ", all streams") + ", seed " +
                               std::to_string(seed));
        }
      }
    }
  }

  void TearDown() override
  {
    Stepped::TearDown();
    begin(0);
  }
};

TEST_F(SharedByTwoDevices, APoolOfPinnedMemoryKeepsTheirStreamsApart)
{
  run([](auto&& test) {
    rmm::mr::pinned_host_memory_resource upstream;
    rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource> mr{&upstream, 0, 2 * MiB};
    test(mr);
  });
}

TEST_F(SharedByTwoDevices, ThePinnedPoolKeepsTheirStreamsApart)
{
  run([](auto&& test) {
    rmm::mr::pinned_pool_memory_resource mr{0, 2 * MiB};
    test(mr);
  });
}

TEST_F(SharedByTwoDevices, AnArenaOfPinnedMemoryKeepsTheirStreamsApart)
{
  run([](auto&& test) {
    rmm::mr::pinned_host_memory_resource upstream;
    rmm::mr::arena_memory_resource<rmm::mr::pinned_host_memory_resource> mr{&upstream, 2 * MiB};
    test(mr);
  });
}

TEST_F(SharedByTwoDevices, AFixedSizePoolOfPinnedMemoryKeepsTheirStreamsApart)
{
  run([](auto&& test) {
    rmm::mr::pinned_host_memory_resource upstream;
    rmm::mr::fixed_size_memory_resource<rmm::mr::pinned_host_memory_resource> mr{&upstream, 100 * KiB, 8};
    test(mr);
  });
}

/// One block: freed on a default stream with device 1 current, and allocated on the same handle with device 0 current.
void take_over_on_default_streams(rmm::cuda_stream_view stream, bool one_thread)
{
  Stepped::begin(0, 2);
  {
    rmm::mr::pinned_host_memory_resource upstream;
    rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource> mr{&upstream, 0, MiB};
    worker threads[2];
    for (int device : {1, 0}) {
      threads[one_thread ? 0 : device].run([&] {
        use_device(device);
        void* const ptr = mr.allocate(MiB, stream);
        write(ptr, MiB, stream, device == 1 ? "owner on device 1" : "owner on device 0");
        mr.deallocate(ptr, MiB, stream);
      });
    }
  }
  expect_no_violations(one_thread ? "one thread" : "two threads");
  Stepped::begin(0);
}

// Uses the nonblocking calls, as the Python package does.
TEST(OneBlockOnTwoDevices, OfABufferIsNotFreedOnTheDefaultStreamOfAnotherDevice)
{
  Stepped::begin(0, 2);
  for (auto const stream : {rmm::cuda_stream_view{}, rmm::cuda_stream_legacy, rmm::cuda_stream_per_thread}) {
    rmm::mr::pinned_host_memory_resource upstream;
    rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource> mr{&upstream, 0, MiB};
    use_device(0);
    static_cast<void>(
      rmm::device_buffer{4 * KiB, stream, mr});  // makes a cache of this thread for the stream of device 0
    use_device(1);
    rmm::device_buffer buffer{4 * KiB, stream, mr};
    write(buffer.data(), 4 * KiB, stream, "owner on device 1");
    use_device(0);
    EXPECT_FALSE(buffer.try_deallocate_nonblocking(mr, mr));
    EXPECT_EQ(buffer.size(), 4 * KiB);
    buffer = rmm::device_buffer{4 * KiB, stream, mr};
    write(buffer.data(), 4 * KiB, stream, "owner on device 0");
    EXPECT_TRUE(buffer.try_deallocate_nonblocking(mr, mr));
  }
  expect_no_violations("freed with device 0 current");
  Stepped::begin(0);
}

TEST(OneBlockOnTwoDevices, OfABufferIsNotAllocatedOnAnotherDevice)
{
  Stepped::begin(0, 2);
  {
    rmm::mr::pinned_host_memory_resource upstream;
    rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource> mr{&upstream, 0, MiB};
    auto const stream = rmm::cuda_stream_legacy;
    use_device(0);
    static_cast<void>(rmm::device_buffer{4 * KiB, stream, mr});
    rmm::device_buffer moved{0, stream, mr};
    rmm::device_buffer buffer{std::move(moved)};
    EXPECT_FALSE(moved.try_allocate_nonblocking(4 * KiB, stream, mr))
      << "a buffer without a device";  // NOLINT: tests the moved-from state
    use_device(1);
    EXPECT_FALSE(buffer.try_allocate_nonblocking(4 * KiB, stream, mr));
    use_device(0);
    EXPECT_TRUE(buffer.try_allocate_nonblocking(4 * KiB, stream, mr));
    EXPECT_EQ(buffer.device().value(), 0);
  }
  Stepped::begin(0);
}

TEST(OneBlockOnTwoDevices, WithoutAnEventIsWaitedForOnTheDeviceOfItsStream)
{
  Stepped::begin(0, 2);
  {
    rmm::mr::pinned_host_memory_resource upstream;
    rmm::mr::pool_memory_resource<rmm::mr::pinned_host_memory_resource> mr{&upstream, MiB, MiB};
    rmm::cuda_stream const stream;
    void* const rest = mr.allocate(MiB - 4 * KiB, stream);
    use_device(1);
    cudaStream_t foreign{};
    ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
    for (int i = 0; i < 2; ++i) {  // an event follows the first free, and then each second one
      void* const ptr = mr.allocate(4 * KiB, foreign);
      write(ptr, 4 * KiB, foreign, "owner on device 1");
      mr.deallocate(ptr, 4 * KiB, foreign);
    }
    use_device(0);
    void* const ptr = mr.allocate(4 * KiB, stream);
    write(ptr, 4 * KiB, stream, "owner on device 0");
    mr.deallocate(ptr, 4 * KiB, stream);
    mr.deallocate(rest, MiB - 4 * KiB, stream);
    EXPECT_EQ(mr.figures().device_synchronizations, 1U);
    EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
  }
  expect_no_violations("taken by device 0");
  Stepped::begin(0);
}

TEST(TrimOfOtherDevice, MakesRoomOnTheDeviceOfThePool)
{
  Stepped::begin(0, 2);
  use_device(1);
  {
    rmm::mr::cuda_memory_resource upstream;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&upstream, MiB, 4 * MiB};
    rmm::cuda_stream const stream;
    void* const first = mr.allocate(MiB, stream);
    write(first, MiB, stream, "first owner");
    mr.deallocate(first, MiB, stream);
    void* all{};
    run_on_a_thread_that_ends([&] {  // device 0 is current there
      all = mr.allocate(4 * MiB, stream);
      EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
    });
    EXPECT_EQ(contexts(), "1");
    EXPECT_EQ(device_of(all), 1);
    EXPECT_EQ(mr.figures().recovery[rmm::recovery_rung::trim].served, 1U);
    write(all, 4 * MiB, stream, "second owner");
    run_on_a_thread_that_ends([&] { mr.deallocate(all, 4 * MiB, stream); });
  }
  expect_no_violations("a trim from device 0");
  Stepped::begin(0);
}

TEST(OneBlockOnTwoDevices, IsNotTakenForMemoryOfTheSameLegacyStream)
{
  for (bool const one_thread : {false, true}) { take_over_on_default_streams(rmm::cuda_stream_legacy, one_thread); }
}

TEST(OneBlockOnTwoDevices, IsNotTakenForMemoryOfTheSamePerThreadStream)
{
  for (bool const one_thread : {false, true}) { take_over_on_default_streams(rmm::cuda_stream_per_thread, one_thread); }
}

TEST(OneBlockOnTwoDevices, IsNotTakenForMemoryOfTheSameDefaultStream)
{
  for (bool const one_thread : {false, true}) { take_over_on_default_streams(rmm::cuda_stream_view{}, one_thread); }
}

}  // namespace
