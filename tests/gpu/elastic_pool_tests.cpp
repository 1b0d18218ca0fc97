// SPDX-License-Identifier: Apache-2.0
//
// On a real device: what the elastic pool promises to programs that share a device and to those that are short of memory. The
// tests print what they measure. Takes RMM_ELASTIC_REPETITIONS repetitions of the workload that repeats, 1,000 if that is not set.

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/driver.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/shared_memory.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <benchmarks/compare/workload.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::mr::elastic_pool_memory_resource;
using rmm::mr::elastic_pool_options;
using steady_clock = std::chrono::steady_clock;

constexpr std::size_t KiB = std::size_t{1} << 10U;
constexpr std::size_t MiB = std::size_t{1} << 20U;
constexpr std::size_t GiB = std::size_t{1} << 30U;

double ms_since(steady_clock::time_point begin)
{
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}

std::size_t free_memory()
{
  std::size_t free{};
  std::size_t all{};
  EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
  return free;
}

/// Bytes, a whole number of chunks, that the device surely has: at most `wanted`.
std::size_t affordable(std::size_t wanted) { return std::min(wanted, free_memory() / 8 / (32 * MiB) * (32 * MiB)); }

struct ElasticPoolOnDevice : ::testing::Test {
  void SetUp() override
  {
    if (!rmm::detail::has_virtual_memory(0)) { GTEST_SKIP() << "the device has no virtual memory"; }
  }
};

// --- a workload that repeats

struct live_block {
  void* ptr;
  std::size_t bytes;
  rmm::cuda_stream_view stream;
};

/// Sizes of four kinds of blocks, so long as less than `limit` is live; random ones go for the next to fit. The same sequence in
/// each call; what is live at the end stays, and goes in the next.
class varied_workload {
 public:
  explicit varied_workload(std::size_t limit) : limit_{limit} {}

  /// Allocate is called with bytes and a stream's number, deallocate with what that returned.
  template <class Allocate, class Deallocate>
  void run(Allocate&& allocate, Deallocate&& deallocate)
  {
    struct phase {
      int blocks;
      compare::lognormal sizes;
    };
    compare::random_source random{7};
    for (auto const& [blocks, sizes] : {phase{300, {64 * KiB, 2, limit_ / 64}},
                                        phase{60, {limit_ / 1024, 1.5, limit_ / 8}},
                                        phase{20, {limit_ / 64, 0.5, limit_ / 4}},
                                        phase{300, {4 * KiB, 1.5, limit_ / 64}}}) {
      for (int i = 0; i < blocks; ++i) {
        auto const bytes = rmm::align_up(sizes(random), std::size_t{rmm::CUDA_ALLOCATION_ALIGNMENT});
        while (live_bytes_ + bytes > limit_) { free_one(random.below(live_.size()), deallocate); }
        auto const stream = random.below(2);
        live_.push_back({allocate(bytes, stream), bytes});
        live_bytes_ += bytes;
        peak_bytes_ = std::max(peak_bytes_, live_bytes_);
      }
    }
  }

  template <class Deallocate>
  void free_all(Deallocate&& deallocate)
  {
    while (!live_.empty()) { free_one(live_.size() - 1, deallocate); }
  }

  [[nodiscard]] std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  template <class Deallocate>
  void free_one(std::size_t which, Deallocate&& deallocate)
  {
    auto const [block, bytes] = live_[which];
    live_[which]              = live_.back();
    live_.pop_back();
    live_bytes_ -= bytes;
    deallocate(block);
  }

  std::size_t limit_;
  std::size_t live_bytes_{};
  std::size_t peak_bytes_{};
  std::vector<std::pair<live_block, std::size_t>> live_;
};

std::size_t peak_of(varied_workload workload, int times)
{
  auto const nothing = [](live_block const&) {};
  for (int i = 0; i < times; ++i) {
    workload.run([](std::size_t bytes, std::size_t) { return live_block{nullptr, bytes, {}}; }, nothing);
  }
  return workload.peak_bytes();
}

int repetitions()
{
  auto const* const given = std::getenv("RMM_ELASTIC_REPETITIONS");
  return given != nullptr ? std::atoi(given) : 1000;
}

TEST_F(ElasticPoolOnDevice, RepeatsAVariedWorkloadWithATenthMoreThanItsPeak)
{
  auto const times   = repetitions();
  auto const limit   = affordable(4 * GiB);
  auto const peak    = peak_of(varied_workload{limit}, times);
  auto const maximum = rmm::align_up(peak / 10 * 11, std::size_t{rmm::CUDA_ALLOCATION_ALIGNMENT});
  elastic_pool_memory_resource pool{0, maximum};
  std::array<rmm::cuda_stream, 2> const streams;
  auto const deallocate = [&](live_block const& block) { pool.deallocate(block.ptr, block.bytes, block.stream); };

  auto const begin = steady_clock::now();
  varied_workload workload{limit};
  int done = 0;
  try {
    for (; done < times; ++done) {
      workload.run(
        [&](std::size_t bytes, std::size_t stream) {
          live_block const block{pool.allocate(bytes, streams[stream]), bytes, streams[stream]};
          EXPECT_EQ(cudaMemsetAsync(block.ptr, done, std::min(bytes, 4 * KiB), block.stream.value()), cudaSuccess);
          return block;
        },
        deallocate);
    }
  } catch (rmm::out_of_memory const& e) {
    ADD_FAILURE() << "in repetition " << done << ": " << e.what();
  }
  auto const now = pool.figures();
  std::printf("%d repetitions, peak %.3f GiB, maximum %.3f GiB, pool %.3f GiB, %.0f ms each; remapped %llu times\n",
              done,
              static_cast<double>(peak) / static_cast<double>(GiB),
              static_cast<double>(maximum) / static_cast<double>(GiB),
              static_cast<double>(pool.pool_size()) / static_cast<double>(GiB),
              ms_since(begin) / std::max(done, 1),
              static_cast<unsigned long long>(now.recovery[rmm::recovery_rung::remap].served));
  EXPECT_EQ(workload.peak_bytes(), peak);
  EXPECT_LE(pool.mapped_bytes(), rmm::align_up(maximum, pool.chunk_bytes()));
  workload.free_all(deallocate);
  for (auto const& stream : streams) { stream.synchronize(); }
}

// --- growing

/// Milliseconds that the driver takes to put `bytes` of chunks behind addresses.
double driver_growth_ms(std::size_t bytes, std::size_t chunk_bytes)
{
  auto const& driver    = rmm::detail::driver();
  auto const properties = rmm::detail::physical_memory_properties(0, {});
  rmm::detail::device_access const access{{0}};
  rmm::detail::address_reservation const addresses{0, bytes};
  std::vector<CUmemGenericAllocationHandle> chunks(bytes / chunk_bytes);
  auto const begin = steady_clock::now();
  for (auto& chunk : chunks) { EXPECT_EQ(driver.create(&chunk, chunk_bytes, &properties, 0), CUDA_SUCCESS); }
  auto at = addresses.begin();
  for (auto const chunk : chunks) {
    EXPECT_EQ(driver.map(at, chunk_bytes, 0, chunk, 0), CUDA_SUCCESS);
    at += chunk_bytes;
  }
  EXPECT_EQ(driver.set_access(addresses.begin(), bytes, access.descriptions().data(), access.descriptions().size()),
            CUDA_SUCCESS);
  auto const ms = ms_since(begin);
  EXPECT_EQ(driver.unmap(addresses.begin(), bytes), CUDA_SUCCESS);
  for (auto const chunk : chunks) { EXPECT_EQ(driver.release(chunk), CUDA_SUCCESS); }
  return ms;
}

/// What a pool takes to grow by as much, for one allocation.
double pool_growth_ms(std::size_t bytes, std::size_t chunk_bytes)
{
  elastic_pool_options options;
  options.chunk_bytes = chunk_bytes;
  elastic_pool_memory_resource pool{options};
  rmm::cuda_stream const stream;
  auto const begin = steady_clock::now();
  void* const ptr  = pool.allocate(bytes, stream);
  auto const ms    = ms_since(begin);
  EXPECT_GE(pool.mapped_bytes(), bytes);
  pool.deallocate(ptr, bytes, stream);
  stream.synchronize();
  return ms;
}

struct ElasticPoolGrowth : ElasticPoolOnDevice, ::testing::WithParamInterface<std::size_t> {};

TEST_P(ElasticPoolGrowth, CostsAtMostTwiceTheCallsOfTheDriver)
{
  constexpr int rounds = 7;
  auto const chunk     = GetParam() != 0 ? GetParam() : rmm::detail::virtual_memory_granularity(0);
  auto const bytes     = affordable(GiB);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // the driver's calls need a context
  std::vector<double> driver;
  std::vector<double> pool;
  for (int i = 0; i < rounds; ++i) {
    driver.push_back(driver_growth_ms(bytes, chunk));
    pool.push_back(pool_growth_ms(bytes, chunk));
  }
  std::sort(driver.begin(), driver.end());
  std::sort(pool.begin(), pool.end());
  auto const pool_ms   = pool[rounds / 2];
  auto const driver_ms = driver[rounds / 2];
  std::printf("%zu MiB in chunks of %zu MiB: driver %.2f ms, pool %.2f ms, %.2f times\n",
              bytes / MiB,
              chunk / MiB,
              driver_ms,
              pool_ms,
              pool_ms / driver_ms);
  EXPECT_LE(pool_ms, 2 * driver_ms);
}

INSTANTIATE_TEST_SUITE_P(Chunks, ElasticPoolGrowth, ::testing::Values(0, 32 * MiB));

// --- other processes

// They run this program again, and talk over a socket that they inherit.

constexpr char const* socket_variable     = "RMM_TEST_SOCKET";
constexpr char const* descriptor_variable = "RMM_TEST_DESCRIPTORS";

/// Another process, that runs one of the tests below.
class other_process {
 public:
  explicit other_process(char const* test, std::string const& descriptors = {})
  {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    socket_           = ends[0];
    auto const socket = std::to_string(ends[1]);
    auto const filter = std::string{"--gtest_filter="} + test;
    EXPECT_NE(::fcntl(socket_, F_SETFD, FD_CLOEXEC), -1);
    ::setenv(socket_variable, socket.c_str(), 1);
    ::setenv(descriptor_variable, descriptors.c_str(), 1);
    child_ = ::fork();
    if (child_ == 0) {
      ::execl("/proc/self/exe", "tests", filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
      ::_exit(127);
    }
    ::unsetenv(socket_variable);
    ::unsetenv(descriptor_variable);
    ::close(ends[1]);
  }
  other_process(other_process const&)            = delete;
  other_process& operator=(other_process const&) = delete;

  ~other_process()
  {
    ::close(socket_);
    int status{-1};
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the other process failed";
  }

  [[nodiscard]] int socket() const { return socket_; }

 private:
  int socket_;
  ::pid_t child_;
};

/// 0 when the other end was closed.
std::int64_t receive(int socket)
{
  std::int64_t value{};
  return ::recv(socket, &value, sizeof value, MSG_WAITALL) == static_cast<::ssize_t>(sizeof value) ? value : 0;
}

void send(int socket, std::int64_t value)
{
  EXPECT_EQ(::send(socket, &value, sizeof value, MSG_NOSIGNAL), static_cast<::ssize_t>(sizeof value));
}

/// The clock that all processes share.
std::int64_t now_ns()
{
  return std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

/// Tells how much is free; is told how much more it will be; asks until it is, and tells when.
TEST(ElasticPoolElsewhere, DISABLED_WatchesTheFreeMemory)
{
  auto const* const text = std::getenv(socket_variable);
  ASSERT_NE(text, nullptr) << "TrimmedMemoryIsFreeForOtherProcessesImmediately runs this";
  int const socket = std::atoi(text);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  send(socket, static_cast<std::int64_t>(free_memory()));
  for (auto more = receive(socket); more != 0; more = receive(socket)) {
    auto const expected = free_memory() + static_cast<std::size_t>(more);
    send(socket, 1);
    auto const end = steady_clock::now() + std::chrono::seconds{10};
    while (free_memory() < expected && steady_clock::now() < end) {}
    send(socket, now_ns());
  }
}

TEST_F(ElasticPoolOnDevice, TrimmedMemoryIsFreeForOtherProcessesImmediately)
{
  constexpr int rounds = 10;
  auto const bytes     = affordable(8 * GiB);
  elastic_pool_memory_resource pool;
  rmm::cuda_stream const stream;
  other_process const watcher{"ElasticPoolElsewhere.DISABLED_WatchesTheFreeMemory"};
  ASSERT_NE(receive(watcher.socket()), 0);
  double latest_ms = -std::numeric_limits<double>::infinity();
  double trim_ms   = 0;
  for (int round = 0; round < rounds; ++round) {
    void* const ptr = pool.allocate(bytes, stream);
    ASSERT_EQ(cudaMemsetAsync(ptr, round, bytes, stream.value()), cudaSuccess);
    pool.deallocate(ptr, bytes, stream);
    send(watcher.socket(), static_cast<std::int64_t>(bytes / 16 * 15));
    ASSERT_EQ(receive(watcher.socket()), 1);  // it watches
    auto const begin    = steady_clock::now();
    auto const released = pool.release_unused();
    auto const after    = now_ns();
    trim_ms             = std::max(trim_ms, ms_since(begin));
    EXPECT_GE(released, bytes);
    auto const seen = receive(watcher.socket());
    latest_ms       = std::max(latest_ms, static_cast<double>(seen - after) * 1e-6);
  }
  std::printf("%zu MiB given back in at most %.1f ms, seen by the other process at most %.2f ms after that\n",
              bytes / MiB,
              trim_ms,
              latest_ms);
  EXPECT_LE(latest_ms, 10);
}

/// The words of a pattern that each place has another of.
std::vector<std::uint32_t> make_words(std::size_t bytes, std::uint32_t salt)
{
  std::vector<std::uint32_t> words(bytes / sizeof(std::uint32_t));
  for (std::size_t i = 0; i < words.size(); ++i) { words[i] = salt ^ (static_cast<std::uint32_t>(i) * 2654435761U); }
  return words;
}

void write(void* to, std::vector<std::uint32_t> const& words)
{
  ASSERT_EQ(cudaMemcpy(to, words.data(), words.size() * sizeof(std::uint32_t), cudaMemcpyDefault), cudaSuccess);
}

std::vector<std::uint32_t> read(void const* from, std::size_t bytes)
{
  std::vector<std::uint32_t> words(bytes / sizeof(std::uint32_t));
  EXPECT_EQ(cudaMemcpy(words.data(), from, bytes, cudaMemcpyDefault), cudaSuccess);
  return words;
}

/// Maps the block, looks for what was written, and writes something else.
TEST(ElasticPoolElsewhere, DISABLED_AnswersInSharedMemory)
{
  auto const* const text = std::getenv(socket_variable);
  ASSERT_NE(text, nullptr) << "SharesABlockWithAnotherProcess runs this";
  int const socket = std::atoi(text);
  rmm::mr::shared_block block;
  block.offset_bytes = static_cast<std::size_t>(receive(socket));
  block.bytes        = static_cast<std::size_t>(receive(socket));
  block.chunk_bytes  = static_cast<std::size_t>(receive(socket));
  std::vector<int> descriptors;
  for (std::string rest{std::getenv(descriptor_variable)}; !rest.empty(); rest.erase(0, rest.find(' ') + 1)) {
    descriptors.push_back(std::atoi(rest.c_str()));
  }
  {
    rmm::mr::imported_memory const memory{rmm::get_current_cuda_device(), block, descriptors};
    EXPECT_EQ(memory.size(), block.bytes);
    EXPECT_EQ(read(memory.data(), block.bytes), make_words(block.bytes, 1));
    write(memory.data(), make_words(block.bytes, 2));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  send(socket, 1);
}

TEST_F(ElasticPoolOnDevice, SharesABlockWithAnotherProcess)
{
  elastic_pool_options options;
  options.share_descriptors = true;
  elastic_pool_memory_resource pool{options};
  rmm::cuda_stream const stream;
  auto const bytes  = 2 * pool.chunk_bytes() + 4096;
  void* const first = pool.allocate(4096, stream);  // so that the block does not begin with a chunk
  void* const block = pool.allocate(bytes, stream);
  write(block, make_words(bytes, 1));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  auto const exported = pool.export_descriptors(block, bytes);
  std::vector<rmm::detail::file_descriptor> inherited;
  std::string names;
  for (auto const& each : exported.chunks) {
    inherited.emplace_back(
      ::fcntl(each.get(), F_DUPFD, 100));  // unlike the driver's own, it stays open in a new program
    names += std::to_string(inherited.back().get()) + " ";
  }
  {
    other_process const reader{"ElasticPoolElsewhere.DISABLED_AnswersInSharedMemory", names};
    send(reader.socket(), static_cast<std::int64_t>(exported.block.offset_bytes));
    send(reader.socket(), static_cast<std::int64_t>(exported.block.bytes));
    send(reader.socket(), static_cast<std::int64_t>(exported.block.chunk_bytes));
    EXPECT_EQ(receive(reader.socket()), 1);
  }
  EXPECT_EQ(read(block, bytes), make_words(bytes, 2));
  pool.deallocate(block, bytes, stream);
  pool.deallocate(first, 4096, stream);
}

// --- pausing

struct ElasticPoolPause : ElasticPoolOnDevice, ::testing::WithParamInterface<rmm::mr::paused_contents> {};

TEST_P(ElasticPoolPause, KeepsAddressesAndContents)
{
  auto const bytes = affordable(GiB);
  elastic_pool_memory_resource pool;
  rmm::tag const weights{"weights"};
  pool.set_pausable(weights);
  rmm::cuda_stream const stream;
  void* model{};
  {
    rmm::tag_scope const scope{weights};
    model = pool.allocate(bytes, stream);
  }
  void* const other = pool.allocate(64 * MiB, stream);
  auto const words  = make_words(bytes, 3);
  auto const others = make_words(64 * MiB, 4);
  write(model, words);
  write(other, others);

  auto const before = free_memory();
  auto const begin  = steady_clock::now();
  pool.pause(weights, GetParam());
  auto const pause_ms = ms_since(begin);
  auto const paused   = free_memory();
  EXPECT_GE(paused, before + bytes / 16 * 15) << "the device has the memory again";
  void* taken{};  // what was there is overwritten
  ASSERT_EQ(cudaMalloc(&taken, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemset(taken, 0x5a, bytes), cudaSuccess);
  ASSERT_EQ(cudaFree(taken), cudaSuccess);

  auto const middle = steady_clock::now();
  pool.resume(weights);
  auto const resume_ms = ms_since(middle);
  std::printf("%zu MiB paused in %.1f ms, resumed in %.1f ms\n", bytes / MiB, pause_ms, resume_ms);
  if (GetParam() != rmm::mr::paused_contents::dropped) { EXPECT_EQ(read(model, bytes), words); }
  EXPECT_EQ(read(other, 64 * MiB), others);
  write(model, words);
  EXPECT_EQ(read(model, bytes), words) << "the memory is of use again";
  pool.deallocate(model, bytes, stream);
  pool.deallocate(other, 64 * MiB, stream);
}

INSTANTIATE_TEST_SUITE_P(Contents,
                         ElasticPoolPause,
                         ::testing::Values(rmm::mr::paused_contents::dropped,
                                           rmm::mr::paused_contents::kept_pageable,
                                           rmm::mr::paused_contents::kept_pinned));

// --- page-locked memory

TEST(PinnedPoolOnDevice, StartsSoonerThanTheRuntimesMemory)
{
  constexpr int rounds        = 3;
  constexpr std::size_t bytes = 4 * GiB;
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  std::array<double, 3> best{};
  best.fill(std::numeric_limits<double>::infinity());
  auto& [pool_ms, malloc_ms, register_ms] = best;
  for (int i = 0; i < rounds; ++i) {
    {
      auto const begin = steady_clock::now();
      rmm::mr::pinned_pool_memory_resource const pool{bytes};
      pool_ms = std::min(pool_ms, ms_since(begin));
    }
    {
      auto const begin = steady_clock::now();
      void* block{};
      ASSERT_EQ(cudaMallocHost(&block, bytes), cudaSuccess);
      malloc_ms = std::min(malloc_ms, ms_since(begin));
      ASSERT_EQ(cudaFreeHost(block), cudaSuccess);
    }
    {
      auto const begin  = steady_clock::now();
      void* const block = std::aligned_alloc(2 * MiB, bytes);
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(cudaHostRegister(block, bytes, cudaHostRegisterDefault), cudaSuccess);
      register_ms = std::min(register_ms, ms_since(begin));
      ASSERT_EQ(cudaHostUnregister(block), cudaSuccess);
      std::free(block);
    }
  }
  std::printf("%zu MiB page-locked: pool %.0f ms, cudaMallocHost %.0f ms, cudaHostRegister of fresh memory %.0f ms\n",
              bytes / MiB,
              pool_ms,
              malloc_ms,
              register_ms);
  EXPECT_LT(pool_ms, malloc_ms);
}

}  // namespace
