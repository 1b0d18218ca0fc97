// SPDX-License-Identifier: Apache-2.0
//
// Elastic pools while calls of the runtime and the driver fail: nothing is lost, nothing is handed out twice, and all memory goes
// back in the end. strong_guarantee_sim_tests.cpp tests containers on elastic pools.

#include "../../support/elastic_pool_source.hpp"
#include "../../support/random_program.hpp"
#include "../../support/seeds.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::mr::elastic_pool_memory_resource;
using rmm::mr::elastic_pool_options;
using rmm::test::elastic_pool_source;
using rmm::test::for_each_seed;
using rmm::test::memory_source;
using rmm::test::random_program;

constexpr std::size_t chunk = std::size_t{2} << 20U;

/// Makes random calls fail, except those that free something: their failures are asserted. cuMemUnmap fails with an error that the
/// library's assertions accept.
void let_calls_fail(random_program::options& how)
{
  random_program::let_the_runtime_fail(how);
  how.arm = [](std::mt19937_64& random) {
    static constexpr std::array<char const*, 9> calls{"cuMemUnmap",
                                                      "cuMemCreate",
                                                      "cuMemMap",
                                                      "cuMemSetAccess",
                                                      "cudaEventCreateWithFlags",
                                                      "cudaEventRecord",
                                                      "cudaEventQuery",
                                                      "cudaStreamWaitEvent",
                                                      "cudaDeviceSynchronize"};
    if (random() % 3 != 0) { return; }
    auto const which = random() % calls.size();
    auto const other = random() % 2 == 0 ? cudaErrorMemoryAllocation : cudaErrorUnknown;
    auto const error = which == 0 ? cudaErrorCudartUnloading : other;
    cudasim::inject({calls[which], 1 + random() % 3, error, 1 + random() % 2});
  };
}

struct ElasticPoolFaults : Stepped {};

TEST_F(ElasticPoolFaults, LoseNothingInRandomPrograms)
{
  elastic_pool_options options;
  options.maximum_bytes = 24 * chunk;
  random_program::options how;
  how.largest    = 4 * chunk;
  how.most_live  = 60;
  how.rearranges = true;
  let_calls_fail(how);
  auto const fired = cudasim::faults_fired();
  std::uint64_t faults{};
  for_each_seed(30, [&](std::uint64_t seed) {
    begin(seed);
    std::vector<std::unique_ptr<memory_source>> sources;
    sources.push_back(std::make_unique<elastic_pool_source>(options));
    auto& source = static_cast<elastic_pool_source&>(*sources[0]);
    source.expect_faults();
    random_program program{seed, how, std::move(sources)};
    program.run();
    faults += cudasim::faults_fired();
    auto& pool = source.pool();
    pool.release_unused();
    EXPECT_EQ(pool.pool_size(), 0U);
    EXPECT_EQ(cudasim::usage(0).physical, 0U);
    // Failures must not use up the pool's maximum.
    void* const all = source.allocate(24 * chunk, rmm::cuda_stream_legacy);
    EXPECT_NE(all, nullptr);
    source.deallocate(all, 24 * chunk, rmm::cuda_stream_legacy);
  });
  EXPECT_GT(faults, fired);
}

/// Makes the n-th call of one function fail, counting only calls of the pool in a random program.
class nth_fault {
 public:
  nth_fault(std::string call, std::uint64_t n, cudaError_t error) : call_{std::move(call)}, n_{n}, error_{error} {}

  void arm()
  {
    calls_before_ = cudasim::calls(call_);
    fired_before_ = cudasim::faults_fired();
    if (n_ > seen_) { cudasim::inject({call_, n_ - seen_, error_, 1}); }
  }

  /// Returns whether the call has failed since arm().
  bool disarm()
  {
    seen_ += cudasim::calls(call_) - calls_before_;
    cudasim::clear_faults();
    bool const fired = cudasim::faults_fired() != fired_before_;
    has_fired_       = has_fired_ || fired;
    return fired;
  }

  [[nodiscard]] std::uint64_t seen() const noexcept { return seen_; }
  [[nodiscard]] bool has_fired() const noexcept { return has_fired_; }

 private:
  std::string call_;
  std::uint64_t n_;  // 0 for none
  cudaError_t error_;
  std::uint64_t seen_{};
  std::uint64_t calls_before_{};
  std::uint64_t fired_before_{};
  bool has_fired_{};
};

/// Runs a random program with a fault. Checks that the pool can then still serve its maximum, and gives all memory back. Returns
/// how often it was paused.
std::size_t run_with(nth_fault& fault)
{
  Stepped::begin(1);
  elastic_pool_options options;
  options.maximum_bytes = 24 * chunk;
  random_program::options how;
  how.steps      = 300;
  how.largest    = 4 * chunk;
  how.most_live  = 60;
  how.rearranges = true;
  how.arm        = [&](std::mt19937_64&) { fault.arm(); };
  how.disarm     = [&] { return fault.disarm(); };
  std::vector<std::unique_ptr<memory_source>> sources;
  sources.push_back(std::make_unique<elastic_pool_source>(options));
  auto& source = static_cast<elastic_pool_source&>(*sources[0]);
  source.expect_faults();
  random_program program{1, how, std::move(sources)};
  program.run();
  source.pool().release_unused();
  EXPECT_EQ(source.pool().pool_size(), 0U);
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
  void* const all = source.allocate(24 * chunk, rmm::cuda_stream_legacy);
  EXPECT_NE(all, nullptr);
  source.deallocate(all, 24 * chunk, rmm::cuda_stream_legacy);
  return source.pauses();
}

/// Each program has one fault, so that it must be the cause of later errors. With RMM_TEST_EVERY_FAULT=1 each call fails once;
/// otherwise up to six calls of each function.
TEST_F(ElasticPoolFaults, LoseNothingWhicheverCallOfARandomProgramFails)
{
  std::uint64_t const most = std::getenv("RMM_TEST_EVERY_FAULT") != nullptr ? ~std::uint64_t{0} : 6;
  for (std::string const call : {"cuMemCreate",
                                 "cuMemMap",
                                 "cuMemSetAccess",
                                 "cudaMemGetInfo",
                                 "cudaMemcpyAsync",
                                 "cudaEventCreateWithFlags",
                                 "cudaEventRecord",
                                 "cudaEventQuery",
                                 "cudaStreamIsCapturing",
                                 "cudaStreamGetId",
                                 "cudaStreamWaitEvent",
                                 "cudaDeviceSynchronize"}) {
    nth_fault warm_up{call, 0, cudaErrorUnknown};  // makes the calls that a process makes only once
    EXPECT_GT(run_with(warm_up), 0U);
    nth_fault none{call, 0, cudaErrorUnknown};
    run_with(none);
    ASSERT_GT(none.seen(), 0U) << call;
    auto const step = (none.seen() - 1) / most + 1;
    int fired{0};
    for (std::uint64_t n = 1; n <= none.seen(); n += step) {
      auto const error = (n / step) % 2 == 0 ? cudaErrorMemoryAllocation : cudaErrorUnknown;
      nth_fault fault{call, n, error};
      run_with(fault);
      fired += fault.has_fired() ? 1 : 0;  // handles of streams differ from run to run, and so do a few calls
      ASSERT_FALSE(HasFailure()) << call << " failed the " << n << "th time with " << cudaGetErrorName(error);
      EXPECT_EQ(cudasim::leak_report(), "");
    }
    EXPECT_GT(fired, 0) << call;
  }
}

/// Makes a pool, and makes it grow, remap and give back.
void use_a_pool()
{
  elastic_pool_options options;
  options.initial_bytes     = 2 * chunk;
  options.maximum_bytes     = 8 * chunk;
  options.share_descriptors = true;
  options.peer_access       = true;
  elastic_pool_memory_resource pool{options};
  rmm::cuda_stream const stream;
  struct block {
    void* ptr;
    std::size_t bytes;
  };
  std::vector<block> blocks;
  rmm::detail::scope_guard const free_all{[&]() noexcept {
    for (auto const& each : blocks) { pool.deallocate(each.ptr, each.bytes, stream); }
  }};
  auto const allocate = [&](std::size_t bytes) { blocks.push_back({pool.allocate(bytes, stream), bytes}); };
  auto const free     = [&](std::size_t which) {
    pool.deallocate(blocks[which].ptr, blocks[which].bytes, stream);
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (int i = 0; i < 8; ++i) { allocate(chunk); }
  free(6);
  free(4);
  free(2);
  free(0);
  allocate(4 * chunk);  // served in pieces until now
  free(1);
  pool.release_unused();
  allocate(chunk / 2);
}

TEST_F(ElasticPoolFaults, LeaveNothingBehindWhicheverCallFails)
{
  for (std::string const call : {"cuMemAddressReserve",
                                 "cuMemGetAllocationGranularity",
                                 "cuMemCreate",
                                 "cuMemMap",
                                 "cuMemSetAccess",
                                 "cudaDeviceCanAccessPeer",
                                 "cudaMemGetInfo",
                                 "cudaStreamCreateWithFlags",
                                 "cudaEventCreateWithFlags",
                                 "cudaEventRecord",
                                 "cudaEventQuery",
                                 "cudaStreamWaitEvent",
                                 "cudaDeviceSynchronize"}) {
    for (auto const error : {cudaErrorMemoryAllocation, cudaErrorUnknown}) {
      begin(0, 2);
      EXPECT_NO_THROW(use_a_pool());
      cudasim::for_each_fault(
        [] {
          try {
            use_a_pool();
          } catch (std::bad_alloc const&) {
          } catch (rmm::cuda_error const&) {}
        },
        [&](auto n) {
          EXPECT_EQ(cudasim::leak_report(), "") << call << " failed the " << n << "th time";
          EXPECT_EQ(cudasim::usage(0).physical, 0U) << call << " failed the " << n << "th time";
          EXPECT_EQ(cudaGetLastError(), cudaSuccess) << call << " failed the " << n << "th time";
        },
        error,
        call);
    }
  }
}

TEST_F(ElasticPoolFaults, AnAllocationThatFailedSucceedsLater)
{
  elastic_pool_memory_resource pool{0, 8 * chunk};
  rmm::cuda_stream const stream;
  std::vector<std::pair<char const*, std::uint64_t>> const failures{
    {"cuMemCreate", 1}, {"cuMemCreate", 4}, {"cuMemMap", 1}, {"cuMemMap", 4}, {"cuMemSetAccess", 1}};
  for (auto const& [call, n] : failures) {
    cudasim::inject({call, n, cudaErrorMemoryAllocation, 1000});
    EXPECT_THROW(static_cast<void>(pool.allocate(4 * chunk, stream)), rmm::out_of_memory) << call << " " << n;
    cudasim::clear_faults();
    EXPECT_EQ(pool.pool_size(), 0U);
    void* const ptr = pool.allocate(8 * chunk, stream);
    pool.deallocate(ptr, 8 * chunk, stream);
    EXPECT_EQ(pool.release_unused(), 8 * chunk);
    EXPECT_EQ(cudasim::usage(0).physical, 0U) << call << " " << n;
  }
}

/// Fills a block with bytes that depend on `value`.
void fill(void* ptr, std::size_t bytes, int value) { ASSERT_EQ(cudaMemset(ptr, value, bytes), cudaSuccess); }

bool is_filled(void const* ptr, std::size_t bytes, unsigned char value)
{
  std::vector<unsigned char> content(bytes);
  EXPECT_EQ(cudaMemcpy(content.data(), ptr, bytes, cudaMemcpyDefault), cudaSuccess);
  return content == std::vector<unsigned char>(bytes, value);
}

/// A pool with two blocks and their contents.
struct filled_pool {
  explicit filled_pool(rmm::cuda_stream_view on) : stream{on}
  {
    fill(first, small, 1);
    fill(second, large, 2);
  }
  ~filled_pool()
  {
    pool.deallocate(first, small, stream);
    pool.deallocate(second, large, stream);
  }
  filled_pool(filled_pool const&)            = delete;
  filled_pool& operator=(filled_pool const&) = delete;

  [[nodiscard]] bool has_its_contents() const { return is_filled(first, small, 1) && is_filled(second, large, 2); }

  static constexpr std::size_t small = 1000;
  static constexpr std::size_t large = chunk + chunk / 2;
  rmm::cuda_stream_view stream;
  elastic_pool_memory_resource pool{};
  void* first{pool.allocate(small, stream)};
  void* second{pool.allocate(large, stream)};
};

/// Returns whether the call throws. Fails for exceptions other than lack of memory and CUDA errors.
template <class Call>
bool throws(Call const& call)
{
  try {
    call();
    return false;
  } catch (std::bad_alloc const&) {
    return true;
  } catch (rmm::cuda_error const&) {
    return true;
  }
}

TEST_F(ElasticPoolFaults, APauseThatFailsChangesNothing)
{
  rmm::cuda_stream const stream;
  int failures = 0;
  for (auto const kept : {rmm::mr::paused_contents::kept_pageable, rmm::mr::paused_contents::kept_pinned}) {
    for (std::string const call :
         {"cudaDeviceSynchronize", "cudaHostAlloc", "cudaMallocHost", "cudaMemcpyAsync", "cudaStreamSynchronize"}) {
      for (std::uint64_t n = 1;; ++n) {
        filled_pool filled{stream};
        auto const fired = cudasim::faults_fired();
        cudasim::inject({call, n, cudaErrorMemoryAllocation, 1});
        bool const threw = throws([&] { filled.pool.pause(kept); });
        cudasim::clear_faults();
        if (cudasim::faults_fired() == fired) {
          filled.pool.resume();
          break;
        }
        if (threw) {
          ++failures;
          EXPECT_FALSE(filled.pool.is_paused()) << call << " " << n;
          EXPECT_EQ(cudasim::usage(0).physical, filled.pool.pool_size()) << call << " " << n;
        } else {
          filled.pool.resume();
        }
        EXPECT_TRUE(filled.has_its_contents()) << call << " " << n;
        EXPECT_EQ(cudaGetLastError(), cudaSuccess) << call << " " << n;
      }
    }
  }
  EXPECT_GT(failures, 0);
}

TEST_F(ElasticPoolFaults, APauseThatCannotWaitForTheDeviceNamesTheError)
{
  elastic_pool_memory_resource pool{chunk};
  cudasim::inject({"cudaDeviceSynchronize", 1, cudaErrorLaunchFailure, 100});
  try {
    pool.pause();
    ADD_FAILURE() << "paused";
  } catch (rmm::cuda_error const& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cudaErrorLaunchFailure"));
  }
  cudasim::clear_faults();
  EXPECT_FALSE(pool.is_paused());
}

TEST_F(ElasticPoolFaults, ASharedPoolOfADriverThatDoesNotAnswerNamesTheError)
{
  elastic_pool_options options;
  options.share_descriptors = true;
  for (std::uint64_t n = 1; n <= 2; ++n) {  // the queries for virtual memory and for its export
    cudasim::inject({"cuDeviceGetAttribute", n, cudaErrorUnknown, 1});
    try {
      elastic_pool_memory_resource const pool{options};
      ADD_FAILURE() << "made, though call " << n << " failed";
    } catch (rmm::cuda_error const& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("CUDA_ERROR_UNKNOWN")) << n;
    }
    cudasim::clear_faults();
  }
}

TEST_F(ElasticPoolFaults, AResumeThatFailsCanBeTriedAgain)
{
  rmm::cuda_stream const stream;
  int failures = 0;
  for (std::string const call :
       {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cudaMemcpyAsync", "cudaStreamSynchronize"}) {
    for (std::uint64_t n = 1;; ++n) {
      filled_pool filled{stream};
      filled.pool.pause(rmm::mr::paused_contents::kept_pinned);  // from where the host does not wait for copies
      auto const fired = cudasim::faults_fired();
      cudasim::inject({call, n, cudaErrorMemoryAllocation, 1});
      bool const threw = throws([&] { filled.pool.resume(); });
      cudasim::clear_faults();
      bool const failed = cudasim::faults_fired() != fired;
      EXPECT_EQ(threw, failed) << call << " " << n;
      if (threw) {
        ++failures;
        EXPECT_TRUE(filled.pool.is_paused()) << call << " " << n;
        EXPECT_EQ(cudasim::usage(0).physical, 0U) << call << " " << n;
        EXPECT_EQ(filled.pool.mapped_bytes(), 0U) << call << " " << n;
        filled.pool.resume();
      }
      EXPECT_TRUE(filled.has_its_contents()) << call << " " << n;
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << call << " " << n;
      if (!failed) { break; }
    }
  }
  EXPECT_GE(failures, 5);
}

// The error is one that the library's assertions accept.
TEST_F(ElasticPoolFaults, APauseKeepsWhatTheDriverDoesNotUnmap)
{
  rmm::cuda_stream const stream;
  std::uint64_t n = 0;
  for (bool failed = true; failed;) {
    filled_pool filled{stream};
    auto const fired = cudasim::faults_fired();
    cudasim::inject({"cuMemUnmap", ++n, cudaErrorCudartUnloading, 1});
    filled.pool.pause();
    cudasim::clear_faults();
    failed = cudasim::faults_fired() != fired;
    EXPECT_EQ(cudasim::usage(0).physical != 0, failed) << n;
    EXPECT_EQ(cudasim::usage(0).physical, filled.pool.mapped_bytes()) << n;
    filled.pool.resume();
    EXPECT_EQ(cudasim::usage(0).physical, filled.pool.mapped_bytes()) << n;
    EXPECT_EQ(cudasim::usage(0).physical, filled.pool.pool_size()) << n;
    EXPECT_TRUE(filled.has_its_contents()) << n;
  }
  EXPECT_GT(n, 1U);
}

TEST_F(ElasticPoolFaults, APoolGrowsBesideAddressesThatTheDriverDoesNotUnmap)
{
  rmm::cuda_stream const stream;
  {
    elastic_pool_memory_resource pool{chunk};
    pool.deallocate(pool.allocate(2 * chunk, stream), 2 * chunk, stream);
    stream.synchronize();
    cudasim::inject({"cuMemUnmap", 1, cudaErrorCudartUnloading, 1000});
    pool.release_unused();
    for (auto const count : {1, 2, 3}) {
      auto const bytes = static_cast<std::size_t>(count) * chunk;
      void* const ptr  = pool.allocate(bytes, stream);
      EXPECT_EQ(cudaMemsetAsync(ptr, 1, bytes, stream.value()), cudaSuccess);
      pool.deallocate(ptr, bytes, stream);
    }
    EXPECT_GT(cudasim::usage(0).physical, pool.pool_size());
    cudasim::clear_faults();
  }
  EXPECT_EQ(cudasim::usage(0).physical, 0U);  // the end of the pool unmaps them
}

// Until the driver unmaps it, the memory counts as the pool's, which else would take more than its maximum.
TEST_F(ElasticPoolFaults, APoolHoldsWhatATrimCannotUnmap)
{
  rmm::cuda_stream const stream;
  elastic_pool_memory_resource pool{0, 8 * chunk};
  void* const freed = pool.allocate(4 * chunk, stream);
  void* const kept  = pool.allocate(4 * chunk, stream);
  pool.deallocate(freed, 4 * chunk, stream);
  stream.synchronize();
  cudasim::inject({"cuMemUnmap", 1, cudaErrorCudartUnloading, 1});
  EXPECT_EQ(pool.release_unused(), 0U);
  EXPECT_EQ(cudasim::faults_fired(), 1U);
  EXPECT_EQ(pool.mapped_bytes(), 8 * chunk);
  EXPECT_EQ(cudasim::usage(0).physical, 8 * chunk);
  EXPECT_EQ(pool.release_unused(), 4 * chunk);
  EXPECT_EQ(pool.mapped_bytes(), 4 * chunk);
  EXPECT_EQ(cudasim::usage(0).physical, 4 * chunk);
  pool.deallocate(kept, 4 * chunk, stream);
}

TEST_F(ElasticPoolFaults, AnAllocationMovesChunksThatTheDriverFirstDoesNotUnmap)
{
  rmm::cuda_stream const stream;
  for (auto const times : {1U, 2U, 1000U}) {
    elastic_pool_memory_resource pool{0, 8 * chunk};
    std::array<void*, 8> blocks{};
    for (auto& block : blocks) { block = pool.allocate(chunk, stream); }
    for (std::size_t i = 0; i != blocks.size(); i += 2) { pool.deallocate(blocks[i], chunk, stream); }
    stream.synchronize();
    cudasim::inject({"cuMemUnmap", 1, cudaErrorCudartUnloading, times});
    if (times == 1000) {
      EXPECT_THROW(static_cast<void>(pool.allocate(4 * chunk, stream)), rmm::out_of_memory);
      cudasim::clear_faults();
    }
    void* const moved = pool.allocate(4 * chunk, stream);
    EXPECT_EQ(cudasim::usage(0).physical, 8 * chunk) << times;
    EXPECT_EQ(pool.mapped_bytes(), 8 * chunk) << times;
    pool.deallocate(moved, 4 * chunk, stream);
    for (std::size_t i = 1; i < blocks.size(); i += 2) { pool.deallocate(blocks[i], chunk, stream); }
    EXPECT_EQ(pool.release_unused(), 8 * chunk) << times;
    EXPECT_EQ(cudasim::usage(0).physical, 0U) << times;
  }
}

/// A pool that has freed 4 of its 8 chunks, and could not give them back. The next call of cuMemUnmap fails, too.
struct pool_with_mapped_rest {
  pool_with_mapped_rest()
  {
    void* const freed = pool.allocate(4 * chunk, stream);
    kept              = pool.allocate(4 * chunk, stream);
    pool.deallocate(freed, 4 * chunk, stream);
    stream.synchronize();
    cudasim::inject({"cuMemUnmap", 1, cudaErrorCudartUnloading, 2});
    EXPECT_EQ(pool.release_unused(), 0U);
  }

  [[nodiscard]] static elastic_pool_options options()
  {
    elastic_pool_options made;
    made.maximum_bytes = 8 * chunk;
    made.decay         = std::chrono::milliseconds{0};
    return made;
  }

  rmm::cuda_stream stream;
  elastic_pool_memory_resource pool{options()};
  void* kept{};
};

TEST_F(ElasticPoolFaults, APauseGivesBackWhatCouldNotBeUnmapped)
{
  pool_with_mapped_rest made;
  made.pool.pause();  // the second fault, then the driver unmaps everything
  EXPECT_EQ(cudasim::faults_fired(), 2U);
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
  EXPECT_EQ(made.pool.mapped_bytes(), 0U);
  made.pool.resume();
  EXPECT_EQ(cudasim::usage(0).physical, 4 * chunk);
  EXPECT_EQ(made.pool.mapped_bytes(), 4 * chunk);
  made.pool.deallocate(made.kept, 4 * chunk, made.stream);
  void* const all = made.pool.allocate(8 * chunk, made.stream);
  EXPECT_EQ(made.pool.mapped_bytes(), 8 * chunk);
  made.pool.deallocate(all, 8 * chunk, made.stream);
}

TEST_F(ElasticPoolFaults, ATickGivesBackWhatCouldNotBeUnmapped)
{
  pool_with_mapped_rest made;
  static_cast<void>(made.pool.tick());
  EXPECT_EQ(cudasim::faults_fired(), 2U);
  EXPECT_EQ(made.pool.mapped_bytes(), 8 * chunk);
  made.pool.deallocate(made.kept, 4 * chunk, made.stream);
  made.stream.synchronize();
  EXPECT_EQ(made.pool.tick(), 4 * chunk);  // the other 4 have been idle for less than a period
  EXPECT_EQ(made.pool.mapped_bytes(), 4 * chunk);
  EXPECT_EQ(cudasim::usage(0).physical, 4 * chunk);
  EXPECT_EQ(made.pool.tick(), 4 * chunk);
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
}

TEST_F(ElasticPoolFaults, AFailureNamesMemoryThatCannotBeUnmappedOnlyIfThatWouldBeEnough)
{
  pool_with_mapped_rest made;
  cudasim::inject({"cuMemUnmap", 1, cudaErrorCudartUnloading, 1000});
  auto const reason_of = [&](std::size_t chunks) -> std::string {
    try {
      static_cast<void>(made.pool.allocate(chunks * chunk, made.stream));
    } catch (rmm::out_of_memory const& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(reason_of(4), ::testing::HasSubstr("free memory cannot be unmapped"));
  EXPECT_THAT(reason_of(5), ::testing::HasSubstr("of at most"));
  cudasim::clear_faults();
  made.pool.deallocate(made.kept, 4 * chunk, made.stream);
}

/// Makes the n-th call of a function that maps fail, and the next `times` calls that undo it.
void let_mapping_stay(char const* function, std::uint64_t n, std::uint64_t times)
{
  cudasim::inject({function, n, cudaErrorMemoryAllocation, 1});
  cudasim::inject({"cuMemUnmap", 1, cudaErrorCudartUnloading, times});
}

TEST_F(ElasticPoolFaults, AnAllocationWorksAfterAMappingThatCannotBeUndone)
{
  rmm::cuda_stream const stream;
  for (auto const& [function, n] : {std::pair{"cuMemMap", 3U}, std::pair{"cuMemSetAccess", 1U}}) {
    for (auto const times : {1U, 2U, 1000U}) {
      elastic_pool_memory_resource pool{0, 4 * chunk};
      let_mapping_stay(function, n, times);
      void* ptr = times == 1000 ? nullptr : pool.allocate(4 * chunk, stream);
      if (ptr == nullptr) {
        EXPECT_THROW(static_cast<void>(pool.allocate(4 * chunk, stream)), rmm::out_of_memory) << function;
        EXPECT_GT(cudasim::usage(0).physical, 0U) << function;
        EXPECT_EQ(cudasim::usage(0).physical, pool.mapped_bytes()) << function;
        cudasim::clear_faults();
        ptr = pool.allocate(4 * chunk, stream);
      }
      cudasim::clear_faults();
      EXPECT_EQ(cudaMemsetAsync(ptr, 1, 4 * chunk, stream.value()), cudaSuccess) << function << times;
      EXPECT_EQ(cudasim::usage(0).physical, 4 * chunk) << function << times;
      EXPECT_EQ(pool.mapped_bytes(), 4 * chunk) << function << times;
      pool.deallocate(ptr, 4 * chunk, stream);
      EXPECT_EQ(pool.release_unused(), 4 * chunk) << function << times;
      EXPECT_EQ(cudasim::usage(0).physical, 0U) << function << times;
    }
  }
}

// What the failed attempt leaves mapped is not missing any more: one free chunk of the pool is enough for the rest.
TEST_F(ElasticPoolFaults, AResumeThatCannotBeUndoneTakesWhatThePoolHasFree)
{
  rmm::cuda_stream const stream;
  elastic_pool_memory_resource pool{0, 9 * chunk};
  rmm::tag const paused{"paused"};
  pool.set_pausable(paused);
  auto const allocate_paused = [&] {
    rmm::tag_scope const under{paused};
    return pool.allocate(4 * chunk, stream);
  };
  void* const part = allocate_paused();
  pool.pause(paused);
  void* const kept = pool.allocate(4 * chunk, stream);
  pool.deallocate(pool.allocate(chunk, stream), chunk, stream);
  stream.synchronize();
  let_mapping_stay("cuMemMap", 4, 3);
  pool.resume(paused);
  EXPECT_EQ(cudasim::faults_fired(), 4U);
  EXPECT_EQ(cudasim::usage(0).physical, pool.mapped_bytes());
  pool.deallocate(part, 4 * chunk, stream);
  pool.deallocate(kept, 4 * chunk, stream);
}

TEST_F(ElasticPoolFaults, AResumeThatCannotBeUndoneCanBeTriedAgain)
{
  rmm::cuda_stream const stream;
  for (auto const& [function, n] : {std::pair{"cuMemMap", 2U}, std::pair{"cuMemSetAccess", 1U}}) {
    for (auto const times : {1U, 1000U}) {
      filled_pool filled{stream};
      filled.pool.pause();
      let_mapping_stay(function, n, times);
      EXPECT_THROW(filled.pool.resume(), rmm::bad_alloc) << function;
      cudasim::clear_faults();
      EXPECT_TRUE(filled.pool.is_paused()) << function;
      EXPECT_GT(cudasim::usage(0).physical, 0U) << function;
      EXPECT_EQ(cudasim::usage(0).physical, filled.pool.mapped_bytes()) << function;
      filled.pool.resume();
      EXPECT_EQ(cudasim::usage(0).physical, filled.pool.pool_size()) << function;
      EXPECT_EQ(filled.pool.mapped_bytes(), filled.pool.pool_size()) << function;
      EXPECT_TRUE(filled.has_its_contents()) << function;
    }
  }
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
}

/// A pool whose free memory is still being written.
struct written_pool {
  [[nodiscard]] void* allocate(std::size_t bytes) { return pool.allocate(bytes, stream); }

  void write_and_free(void* ptr, std::size_t bytes)
  {
    ASSERT_EQ(cudaMemsetAsync(ptr, 1, bytes, stream.value()), cudaSuccess);
    pool.deallocate(ptr, bytes, stream);
  }

  rmm::cuda_stream stream;
  rmm::cuda_stream other;
  elastic_pool_memory_resource pool{0, 8 * chunk};
};

/// Waits for that work fail.
struct ElasticPoolThatCannotWait : Stepped {
  static void let_waits_fail(std::uint64_t times)
  {
    cudasim::inject({"cudaStreamSynchronize", 1, cudaErrorUnknown, times});
  }

  static constexpr std::uint64_t all = 1000;
};

TEST_F(ElasticPoolThatCannotWait, KeepsMemoryUntilItCanWaitForItsWork)
{
  written_pool it;
  void* const kept = it.allocate(4 * chunk);
  it.write_and_free(it.allocate(4 * chunk), 4 * chunk);
  let_waits_fail(1);
  EXPECT_EQ(it.pool.trim_to(6 * chunk), 0U);
  EXPECT_EQ(cudasim::faults_fired(), 1U);
  EXPECT_EQ(cudasim::usage(0).physical, 8 * chunk);
  EXPECT_EQ(it.pool.mapped_bytes(), 8 * chunk);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  it.stream.synchronize();  // completes the writes
  EXPECT_EQ(it.pool.trim_to(6 * chunk), 2 * chunk);
  EXPECT_EQ(it.pool.mapped_bytes(), 6 * chunk);
  it.pool.deallocate(kept, 4 * chunk, it.stream);
  EXPECT_EQ(it.pool.release_unused(), 6 * chunk);
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
}

TEST_F(ElasticPoolThatCannotWait, UsesItForTheNextAllocationThatMustGrow)
{
  written_pool it;
  it.write_and_free(it.allocate(8 * chunk), 8 * chunk);
  let_waits_fail(1);
  EXPECT_EQ(it.pool.release_unused(), 0U);
  it.write_and_free(it.pool.allocate(8 * chunk, it.other), 8 * chunk);
  EXPECT_EQ(cudasim::usage(0).physical, 8 * chunk);
}

TEST_F(ElasticPoolThatCannotWait, ReportsItWhenMemoryRunsOut)
{
  written_pool it;
  std::array<void*, 8> blocks{};
  for (auto& each : blocks) { each = it.allocate(chunk); }
  for (std::size_t i = 0; i < blocks.size(); i += 2) { it.write_and_free(blocks[i], chunk); }
  let_waits_fail(all);
  try {
    static_cast<void>(it.pool.allocate(4 * chunk, it.other));
    ADD_FAILURE() << "there was memory";
  } catch (rmm::out_of_memory const& e) {
    EXPECT_NE(std::string{e.what()}.find("cannot be waited for"), std::string::npos) << e.what();
  }
  EXPECT_EQ(cudasim::usage(0).physical, 8 * chunk);
  cudasim::clear_faults();
  it.write_and_free(it.pool.allocate(4 * chunk, it.other), 4 * chunk);  // needs chunks that are not adjacent
  for (std::size_t i = 1; i < blocks.size(); i += 2) { it.write_and_free(blocks[i], chunk); }
}

TEST_F(ElasticPoolThatCannotWait, GivesItBackWhenItIsPaused)
{
  written_pool it;
  void* const kept = it.allocate(chunk);
  it.write_and_free(it.allocate(2 * chunk), 2 * chunk);
  let_waits_fail(all);
  EXPECT_EQ(it.pool.release_unused(), 0U);
  it.pool.pause(rmm::mr::paused_contents::dropped);  // waits for the device instead
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
  it.pool.resume();
  EXPECT_EQ(it.pool.mapped_bytes(), chunk);
  it.write_and_free(kept, chunk);
}

TEST_F(ElasticPoolThatCannotWait, GivesItBackAtItsEnd)
{
  {
    written_pool it;
    it.write_and_free(it.allocate(2 * chunk), 2 * chunk);
    let_waits_fail(1);
    EXPECT_EQ(it.pool.release_unused(), 0U);
    EXPECT_EQ(cudasim::usage(0).physical, 2 * chunk);
  }
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
}

}  // namespace
