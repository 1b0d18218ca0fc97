// SPDX-License-Identifier: Apache-2.0
//
// Long runs: the cost of a request after many that begin and end streams and threads, hand blocks to other threads, or
// run while another device is current. Time, host memory and the size of the pool must not grow.
//
// RMM_TEST_REQUESTS=n sets the requests of each run. RMM_TEST_CSV=FILE adds a line for each run to a file.

#include "../support/sanitizers.hpp"
#include "../support/worker.hpp"
#include "long_run.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::cuda_stream;
using rmm::cuda_stream_view;
using rmm::mr::device_memory_resource;
using rmm::test::round_length;
using rmm::test::run_block;
using rmm::test::run_plan;
using rmm::test::run_program;
using rmm::test::run_requests;
using rmm::test::run_result;
using rmm::test::size_of_request;
using rmm::test::tells_costs;
using rmm::test::worker;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;
constexpr std::size_t GiB = 1024 * MiB;

// --- the resources

struct tested_resource {
  char const* name;
  char const* configuration;          ///< has all its memory from the beginning
  char const* growing_configuration;  ///< begins without memory
  std::size_t largest;                ///< bytes of the largest block
  bool serves_all_at_once;            ///< one request may take all memory
};

std::vector<tested_resource> const& resources()
{
  static std::vector<tested_resource> const all{
    {"PoolOverCuda", "pool,initial=1GiB", "pool", GiB, true},
    {"PoolOverPinned", "pool,initial=1GiB,upstream=pinned_host", "pool,upstream=pinned_host", GiB, true},
    {"PoolOverCudaAsync", "pool,initial=1GiB,upstream=cuda_async", "pool,upstream=cuda_async", GiB, true},
    {"Arena", "arena,size=1GiB", "arena,size=256MiB", GiB, true},
    {"FixedSize", "fixed_size,block=1MiB,preallocate=512", "fixed_size,block=1MiB,preallocate=1", MiB, false},
    {"Binning",
     "binning,smallest=1KiB,largest=1MiB,upstream=(pool,initial=1GiB)",
     "binning,smallest=1KiB,largest=1MiB",
     GiB,
     false},
    {"Elastic", "elastic,initial=1GiB", "elastic", GiB, true},
    {"CachedOverCudaAsync", "cached,initial=1GiB,block=1GiB", "cached,block=8MiB", GiB, true},
  };
  return all;
}

// --- the programs

/// A stream that the library did not make.
class foreign_stream {
 public:
  explicit foreign_stream(int device = 0)
  {
    rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{device}};
    EXPECT_EQ(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), cudaSuccess);
  }
  foreign_stream(foreign_stream const&)            = delete;
  foreign_stream& operator=(foreign_stream const&) = delete;
  ~foreign_stream() { EXPECT_EQ(cudaStreamDestroy(handle_), cudaSuccess); }
  operator cuda_stream_view() const noexcept { return handle_; }

 private:
  cudaStream_t handle_{};
};

struct size_range {
  std::size_t smallest;
  std::size_t largest;

  [[nodiscard]] std::size_t operator()(std::size_t number) const { return size_of_request(number, smallest, largest); }
};

/// Makes each request on a new stream.
template <class Stream>
class stream_per_request final : public run_program {
 public:
  stream_per_request(run_requests& requests, size_range sizes) : requests_{requests}, sizes_{sizes} {}

  void request(std::size_t number) override
  {
    Stream const stream;
    requests_.free(requests_.allocate(sizes_(number), stream));
  }

 private:
  run_requests& requests_;
  size_range sizes_;
};

/// Threads that make five requests each and end.
template <class Body>
class short_threads final : public run_program {
 public:
  short_threads(run_requests& requests, size_range sizes, Body body)
    : requests_{requests}, sizes_{sizes}, body_{std::move(body)}
  {}

  void request(std::size_t number) override
  {
    constexpr std::size_t per_thread = 5;
    if (number % per_thread != 0) { return; }
    requests_.run_on_a_thread_that_ends([&] {
      for (auto each = number; each < number + per_thread; ++each) { body_(requests_, sizes_(each), each); }
    });
  }

 private:
  run_requests& requests_;
  size_range sizes_;
  Body body_;
};

/// One thread allocates on the legacy stream. Each block is freed on that stream by a new thread, which then ends.
class threads_that_only_free final : public run_program {
 public:
  threads_that_only_free(run_requests& requests, size_range sizes) : requests_{requests}, sizes_{sizes} {}

  void request(std::size_t number) override
  {
    auto const block = requests_.allocate(sizes_(number), rmm::cuda_stream_legacy);
    requests_.run_on_a_thread_that_ends([&] { requests_.free(block); });
  }

 private:
  run_requests& requests_;
  size_range sizes_;
};

/// The thread that frees the blocks of another one.
enum class receiver {
  next_thread,  ///< the next of four threads that all allocate
  consumer,     ///< one thread, which frees all blocks of another one
};

/// Threads with a stream each hand their blocks to another thread, which frees them on its own stream after 16 more
/// allocations. Device 0 is current in all threads.
class hand_over final : public run_program {
 public:
  hand_over(run_requests& requests, size_range sizes, receiver to) : requests_{requests}, sizes_{sizes}, to_{to}
  {
    rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{requests.device()}};
    for (auto& member : members_) { member = std::make_unique<thread_and_stream>(); }
  }

  ~hand_over() override
  {
    rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{requests_.device()}};
    for (auto& member : members_) { member.reset(); }
  }

  void request(std::size_t number) override
  {
    auto& allocating = member(to_ == receiver::consumer ? 0 : number);
    allocating.thread.run([&] { live_.push_back(requests_.allocate(sizes_(number), allocating.stream)); });
    if (live_.size() > in_flight) { free_oldest(number + 1); }
  }

  void finish() override
  {
    while (!live_.empty()) { free_oldest(1); }
  }

 private:
  static constexpr std::size_t in_flight = 16;

  struct thread_and_stream {
    cuda_stream stream{cuda_stream::flags::non_blocking};
    worker thread;
  };

  [[nodiscard]] thread_and_stream& member(std::size_t number) { return *members_[number % members_.size()]; }

  void free_oldest(std::size_t number)
  {
    auto& freeing = member(to_ == receiver::consumer ? 1 : number);
    freeing.thread.run([&] {
      requests_.hand_over(live_.front(), freeing.stream);
      requests_.free(live_.front());
      live_.pop_front();
    });
  }

  run_requests& requests_;
  size_range sizes_;
  receiver to_;
  std::array<std::unique_ptr<thread_and_stream>, 4> members_;
  std::deque<run_block> live_;
};

/// Two devices; the one that does not own the resource is current in all threads. The resource is trimmed now and then,
/// and some requests have a new foreign stream.
class wrong_device final : public run_program {
 public:
  wrong_device(run_requests& requests, size_range sizes)
    : requests_{requests}, blocks_{requests, sizes, receiver::next_thread}, sizes_{sizes}
  {}

  void request(std::size_t number) override
  {
    blocks_.request(number);
    if (number % 10 == 0) {
      foreign_stream const stream{requests_.device()};
      requests_.free(requests_.allocate(sizes_(number + 1), stream));
    }
    if (number % 500 == 0) {
      if (auto* const trimmable = dynamic_cast<rmm::mr::trimmable_resource*>(&requests_.resource())) {
        trimmable->trim_to(64 * MiB);
      }
    }
  }

  void finish() override { blocks_.finish(); }

 private:
  run_requests& requests_;
  hand_over blocks_;
  size_range sizes_;
};

/// Expects that the resource can serve part of its memory in one piece without growth when all of it is free and the device is idle.
class whole_request {
 public:
  explicit whole_request(run_requests& requests) : requests_{requests} {}

  void make(std::size_t per_cent, cuda_stream_view stream)
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    auto const before = reserved_bytes();
    auto const bytes  = before / 100 * per_cent + (per_cent == 100 ? before % 100 : 0);
    try {
      requests_.free(requests_.allocate(bytes, stream));
    } catch (std::bad_alloc const& error) {
      has_failed_ = true;
      ADD_FAILURE() << "Of " << before << " free bytes, " << per_cent << " % are refused: " << error.what();
      return;
    }
    has_failed_ = reserved_bytes() > before;
    EXPECT_EQ(reserved_bytes(), before) << "All memory is free, and a request for " << per_cent
                                        << " % of it takes more";
  }

  [[nodiscard]] std::size_t reserved_bytes() const
  {
    return rmm::test::figures_of(requests_.resource()).value().reserved_bytes;
  }

  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }

 private:
  run_requests& requests_;
  bool has_failed_{false};
};

/// In each round, blocks on several streams fill nine tenths of the memory and are freed in another order. Then one
/// request takes 30 %, or in every other round all of it.
template <class Stream>
class freed_entirely final : public run_program {
 public:
  freed_entirely(run_requests& requests, size_range sizes, std::size_t streams)
    : requests_{requests}, sizes_{sizes}, streams_(streams), whole_{requests}, full_{whole_.reserved_bytes() / 10 * 9}
  {}

  void request(std::size_t number) override
  {
    if (whole_.has_failed()) { return; }  // one report is enough
    auto const in_round = number % round_length;
    if (in_round != round_length - 1) {
      while (live_bytes_ < full_ / (round_length - 1) * (in_round + 1)) {
        auto const bytes = sizes_(live_.size());
        live_.push_back(requests_.allocate(bytes, streams_[live_.size() % streams_.size()]));
        live_bytes_ += bytes;
      }
      return;
    }
    finish();
    auto const round = number / round_length;
    whole_.make(round % 2 == 0 ? 30 : 100, streams_[round % streams_.size()]);
  }

  void finish() override
  {
    std::mt19937_64 random{1};  // all rounds use the same order
    std::shuffle(live_.begin(), live_.end(), random);
    for (auto const& each : live_) { requests_.free(each); }
    live_.clear();
    live_bytes_ = 0;
  }

 private:
  run_requests& requests_;
  size_range sizes_;
  std::vector<Stream> streams_;
  whole_request whole_;
  std::size_t full_;
  std::size_t live_bytes_{};
  std::vector<run_block> live_;
};

/// One small block on a second stream, then all memory on the first.
class small_block_elsewhere final : public run_program {
 public:
  small_block_elsewhere(run_requests& requests, size_range sizes) : requests_{requests}, sizes_{sizes}, whole_{requests}
  {}

  void request(std::size_t number) override
  {
    if (whole_.has_failed()) { return; }  // one report is enough
    if (number % 2 == 0) {
      requests_.free(requests_.allocate(sizes_(number), second_));
    } else {
      whole_.make(100, first_);
    }
  }

 private:
  run_requests& requests_;
  size_range sizes_;
  whole_request whole_;
  cuda_stream first_;
  cuda_stream second_;
};

// --- the runs

/// The sizes of a program's requests, for a resource whose blocks may be limited.
struct named_sizes {
  size_range range;

  [[nodiscard]] size_range on(tested_resource const& resource) const
  {
    return {std::min(range.smallest, resource.largest), std::min(range.largest, resource.largest)};
  }
};

constexpr named_sizes small{{256, 64 * KiB}};
constexpr named_sizes large{{64 * KiB + 256, 6 * MiB}};
constexpr named_sizes small_and_large{{256, 6 * MiB}};
constexpr named_sizes six_MiB_and_more{{6 * MiB + 200 * KiB, 6 * MiB + 200 * KiB}};

using program_maker = std::function<std::unique_ptr<run_program>(run_requests&, tested_resource const&)>;

template <class Program, class... Args>
program_maker program(named_sizes sizes, Args... args)
{
  return [=](run_requests& requests, tested_resource const& resource) {
    return std::make_unique<Program>(requests, sizes.on(resource), args...);
  };
}

/// Threads that make each request with `body(requests, bytes, number)`.
template <class Body>
program_maker short_threads_that(named_sizes sizes, Body body)
{
  return program<short_threads<Body>>(sizes, body);
}

void use_default_stream(run_requests& requests, std::size_t bytes, std::size_t)
{
  requests.free(requests.allocate(bytes, rmm::cuda_stream_per_thread));
}

void use_legacy_stream(run_requests& requests, std::size_t bytes, std::size_t)
{
  requests.free(requests.allocate(bytes, rmm::cuda_stream_legacy));
}

void use_foreign_stream(run_requests& requests, std::size_t bytes, std::size_t)
{
  foreign_stream const stream;
  requests.free(requests.allocate(bytes, stream));
}

void use_any_stream(run_requests& requests, std::size_t bytes, std::size_t number)
{
  auto* const use = number % 3 == 0 ? use_default_stream : number % 3 == 1 ? use_legacy_stream : use_foreign_stream;
  use(requests, bytes, number);
}

struct tested_program {
  char const* name;
  program_maker make;
  bool takes_all{};  ///< needs a resource that can serve all its memory in one request
  int devices{1};    ///< the resource belongs to the last one
  bool must_grow{};  ///< the resource begins without memory
};

std::vector<tested_program> const& programs()
{
  using foreign = stream_per_request<foreign_stream>;
  using of_rmm  = stream_per_request<cuda_stream>;
  static std::vector<tested_program> const all{
    {"AForeignStreamForEachSmallBlock", program<foreign>(small)},
    {"AForeignStreamForEachBlockOfAnySize", program<foreign>(small_and_large)},
    {"AForeignStreamForEachBlockOf6MiB", program<foreign>(six_MiB_and_more)},
    {"AnRmmStreamForEachSmallBlock", program<of_rmm>(small)},
    {"AnRmmStreamForEachBlockOfAnySize", program<of_rmm>(small_and_large)},
    {"ShortThreadsOnTheirDefaultStreams", short_threads_that(small, use_default_stream)},
    {"ShortThreadsOnTheLegacyStream", short_threads_that(small, use_legacy_stream)},
    {"ShortThreadsOnForeignStreams", short_threads_that(small, use_foreign_stream)},
    {"ShortThreadsWithBlocksOfAnySize", short_threads_that(small_and_large, use_any_stream)},
    {"ShortThreadsThatOnlyFreeSmallBlocks", program<threads_that_only_free>(small)},
    {"ShortThreadsThatOnlyFree", program<threads_that_only_free>(small_and_large)},
    {"BlocksHandedRoundFourThreads", program<hand_over>(small_and_large, receiver::next_thread)},
    {"LargeBlocksHandedRoundFourThreads", program<hand_over>(large, receiver::next_thread)},
    {"BlocksHandedToAConsumer", program<hand_over>(small_and_large, receiver::consumer)},
    {"LargeBlocksHandedToAConsumer", program<hand_over>(large, receiver::consumer)},
    {"AnotherDeviceIsCurrent", program<wrong_device>(small_and_large), false, 2},
    {"AnotherDeviceIsCurrentWhileItGrows", program<wrong_device>(small_and_large), false, 2, true},
    {"AllIsFreedOn2Streams", program<freed_entirely<cuda_stream>>({{KiB, 2 * MiB}}, 2), true},
    {"AllIsFreedOn16Streams", program<freed_entirely<cuda_stream>>({{KiB, 2 * MiB}}, 16), true},
    {"AllIsFreedOn16ForeignStreams", program<freed_entirely<foreign_stream>>({{KiB, 2 * MiB}}, 16), true},
    {"ASmallBlockIsFreedOnAnotherStream", program<small_block_elsewhere>({{256, 256}}), true},
  };
  return all;
}

/// The requests of a run: RMM_TEST_REQUESTS, in whole twentieths of whole rounds.
[[nodiscard]] std::size_t requests_of_a_run(std::size_t usual)
{
  auto const* const given = std::getenv("RMM_TEST_REQUESTS");
  auto const wanted       = given != nullptr ? std::strtoull(given, nullptr, 10) : usual;
  auto const unit         = 20 * round_length;
  return std::max<std::size_t>((wanted + unit - 1) / unit, 1) * unit;
}

struct run_parameter {
  tested_program const* program;
  tested_resource const* resource;

  friend std::ostream& operator<<(std::ostream& out, run_parameter const& self) { return out << name_of(self); }
  [[nodiscard]] static std::string name_of(run_parameter const& self)
  {
    return std::string{self.program->name} + "On" + self.resource->name;
  }

  [[nodiscard]] run_plan plan() const
  {
    auto const* const text = program->must_grow ? resource->growing_configuration : resource->configuration;
    run_plan made;
    made.make_resource = [text] { return rmm::mr::configured_resource{text}.share(); };
    made.make_program  = [*this](run_requests& requests) { return program->make(requests, *resource); };
    made.devices       = program->devices;
    return made;
  }
};

std::vector<run_parameter> all_runs()
{
  std::vector<run_parameter> made;
  for (auto const& program : programs()) {
    for (auto const& resource : resources()) {
      if (!program.takes_all || resource.serves_all_at_once) { made.push_back({&program, &resource}); }
    }
  }
  return made;
}

/// Each run has a new machine.
struct LongRun : ::testing::TestWithParam<run_parameter> {
  // A faulty run often repeats its fault in each request: a few lines are enough.
  static void SetUpTestSuite() { setenv("CUDASIM_QUIET", "1", 0); }

  void TearDown() override { Simulated::start(cudasim::environment_options()); }

  static void expect_nothing_is_left(run_result const& result)
  {
    EXPECT_EQ(result.live_at_end, 0U);
    EXPECT_EQ(result.leaks, "");
    for (std::size_t i = 0; i < std::min<std::size_t>(result.violations.size(), 3); ++i) {
      ADD_FAILURE() << result.violations[i] << " (" << i + 1 << " of " << result.violations.size() << ')';
    }
  }
};

constexpr std::size_t usual_requests = 10'000;

/// Whether the last requests took much longer than the first. Clocks are not exact to 100 ns, and few rounds are too few.
[[nodiscard]] bool is_slower_at_the_end(run_plan const& plan, run_result const& result)
{
  bool const is_told = plan.requests >= usual_requests || result.requests < plan.requests;
  return is_told && result.last_ns > 1.5 * result.first_ns + 100;
}

/// Makes a run, and repeats it up to four times if its last requests took longer than its first. Other programs can slow the machine
/// down for a while, but not by a factor of five.
[[nodiscard]] run_result make_run_at_a_steady_speed(run_plan const& plan)
{
  auto result = make_run(plan);
  for (int i = 0; i < 4 && !::testing::Test::HasFailure() && is_slower_at_the_end(plan, result) &&
                  result.last_ns < 5 * result.first_ns;
       ++i) {
    result = make_run(plan);
  }
  return result;
}

/// Bytes of host memory by which a run may grow: 1 MiB in 100,000 requests, less in fewer. Memory that four threads
/// leave free for each other varies by up to 180 KB, even within 1,000 requests, and does not grow after that.
[[nodiscard]] std::int64_t allowed_host_growth(std::size_t requests)
{
  return static_cast<std::int64_t>(std::min(MiB, 192 * KiB + 10 * requests));
}

/// Adds a run to the file that RMM_TEST_CSV names. Several processes may do so concurrently.
void note(std::string const& name, run_result const& result)
{
  auto const* const path = std::getenv("RMM_TEST_CSV");
  if (path == nullptr) { return; }
  auto* const file = std::fopen(path, "a");
  ASSERT_NE(file, nullptr) << path;
  std::fprintf(file,
               "%s,%zu,%.1f,%.1f,%lld,%lld,%zu,%zu\n",
               name.c_str(),
               result.requests,
               result.first_ns,
               result.last_ns,
               static_cast<long long>(result.host_growth),
               static_cast<long long>(result.objects_growth),
               result.reserved_first,
               result.reserved_later);
  EXPECT_EQ(std::fclose(file), 0);
}

TEST_P(LongRun, EndsAsFastAndAsSmallAsItBegins)
{
  if (!tells_costs) { GTEST_SKIP() << "This build does not tell what requests cost"; }
  auto plan     = GetParam().plan();
  plan.requests = requests_of_a_run(usual_requests);
  // A pool that doubles reaches its final size after 2,000 to 4,000 requests: within the first fifth of this run.
  if (GetParam().program->must_grow) { plan.requests = std::max(plan.requests, 3 * usual_requests); }
  auto const result = make_run_at_a_steady_speed(plan);
  if (!result.violations.empty()) { return expect_nothing_is_left(result); }
  std::printf(
    "%zu requests; one at first %.0f ns, at last %.0f ns; host memory %+lld bytes; objects %+lld; reserved %zu, %zu\n",
    result.requests,
    result.first_ns,
    result.last_ns,
    static_cast<long long>(result.host_growth),
    static_cast<long long>(result.objects_growth),
    result.reserved_first,
    result.reserved_later);
  note(run_parameter::name_of(GetParam()), result);
  EXPECT_FALSE(is_slower_at_the_end(plan, result))
    << "a request takes " << result.first_ns << " ns at first, " << result.last_ns << " ns after " << result.requests;
  EXPECT_LE(result.host_growth, allowed_host_growth(plan.requests)) << "bytes of host memory";
  EXPECT_LE(result.objects_growth, 256) << "more events and other objects of CUDA";
  // A resource that grows keeps as much as was live at once, and a later peak may exceed the first by one of the
  // largest blocks; in a short run, whose first fifth saw little, by two. It stops growing before 30,000 requests.
  std::size_t const largest_blocks = plan.requests < 100'000 ? 2 : 1;
  auto const chance                = GetParam().program->must_grow ? largest_blocks * 8 * MiB : 0;
  EXPECT_LE(result.reserved_later, result.reserved_first + chance) << "bytes from upstream";
  expect_nothing_is_left(result);
}

TEST_P(LongRun, NeverHandsMemoryOutTooEarly)
{
  auto plan         = GetParam().plan();
  plan.requests     = std::max(requests_of_a_run(usual_requests) / 10, 20 * round_length);
  plan.checks_order = true;
  expect_nothing_is_left(make_run(plan));
}

INSTANTIATE_TEST_SUITE_P(, LongRun, ::testing::ValuesIn(all_runs()), [](auto const& each) {
  return run_parameter::name_of(each.param);
});

// --- parts of an elastic pool

/// An elastic pool that serves from three parts and from itself in turn, with statistics, which give each thread a share.
class elastic_parts final : public device_memory_resource {
 public:
  elastic_parts()
  {
    for (auto const& each : tags_) {
      if (each) { pool_.set_pausable(each); }
    }
  }
  elastic_parts(elastic_parts const&)            = delete;
  elastic_parts& operator=(elastic_parts const&) = delete;
  ~elastic_parts() override
  {
    EXPECT_EQ(counted_.get_bytes_counter().value, 0);
    EXPECT_EQ(pool_.figures().live_bytes, 0U);
    pool_.release_unused();
    EXPECT_EQ(pool_.mapped_bytes(), 0U);
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    rmm::tag_scope const scope{tags_[next_++ % tags_.size()]};
    return counted_.allocate(bytes, stream);
  }
  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    counted_.deallocate(ptr, bytes, stream);
  }

  /// A maximum, so that all parts together reserve fewer addresses than ThreadSanitizer leaves.
  [[nodiscard]] static rmm::mr::elastic_pool_options options()
  {
    rmm::mr::elastic_pool_options made;
    made.maximum_bytes = 4 * GiB;
    return made;
  }

  std::array<rmm::tag, 4> tags_{rmm::tag{"weights"}, rmm::tag{"cache"}, rmm::tag{"scratch"}, rmm::tag{}};
  std::size_t next_{0};  // safe, because threads of a run take turns
  rmm::mr::elastic_pool_memory_resource pool_{options()};
  rmm::mr::statistics_resource_adaptor<rmm::mr::elastic_pool_memory_resource> counted_{&pool_};
};

struct parts_parameter {
  tested_program const* program;
  std::size_t requests_per_thread;

  friend std::ostream& operator<<(std::ostream& out, parts_parameter const& self) { return out << self.program->name; }

  [[nodiscard]] run_plan plan(std::size_t threads) const
  {
    run_plan made;
    made.make_resource = [] { return std::make_shared<elastic_parts>(); };
    made.make_program  = [program = program](run_requests& requests) {
      static tested_resource const parts{"Parts", "", "", GiB, true};
      return program->make(requests, parts);
    };
    made.requests = threads * requests_per_thread;
    return made;
  }
};

struct LongRunOfParts : ::testing::TestWithParam<parts_parameter> {
  void TearDown() override { Simulated::start(cudasim::environment_options()); }
};

std::vector<parts_parameter> programs_of_threads()
{
  std::vector<parts_parameter> made;
  for (auto const& each : programs()) {
    std::string const name{each.name};
    if (name == "ShortThreadsWithBlocksOfAnySize") { made.push_back({&each, 5}); }
    if (name == "ShortThreadsThatOnlyFree") { made.push_back({&each, 1}); }
  }
  return made;
}

/// Later threads reuse what the parts keep for ended ones, so host memory and time do not grow.
TEST_P(LongRunOfParts, EndsAsFastAndAsSmallAsItBeginsAfter30000Threads)
{
  if (!tells_costs) { GTEST_SKIP() << "This build does not tell what requests cost"; }
  auto const plan   = GetParam().plan(30'000);
  auto const result = make_run_at_a_steady_speed(plan);
  std::printf("%zu requests; one at first %.0f ns, at last %.0f ns; host memory %+lld bytes; objects %+lld\n",
              result.requests,
              result.first_ns,
              result.last_ns,
              static_cast<long long>(result.host_growth),
              static_cast<long long>(result.objects_growth));
  EXPECT_EQ(result.requests, plan.requests);
  EXPECT_FALSE(is_slower_at_the_end(plan, result)) << result.first_ns << " ns, then " << result.last_ns;
  EXPECT_LE(result.host_growth, allowed_host_growth(0)) << "bytes of host memory";
  EXPECT_LE(result.objects_growth, 256) << "more events and other objects of CUDA";
  LongRun::expect_nothing_is_left(result);
}

TEST_P(LongRunOfParts, NeverHandsMemoryOutTooEarly)
{
  auto plan         = GetParam().plan(1'000);
  plan.checks_order = true;
  LongRun::expect_nothing_is_left(make_run(plan));
}

INSTANTIATE_TEST_SUITE_P(, LongRunOfParts, ::testing::ValuesIn(programs_of_threads()), [](auto const& each) {
  return std::string{each.param.program->name};
});

// --- the same programs without a resource, to show that only the resource can grow

/// Returns the same address for every request.
class no_resource final : public device_memory_resource {
 private:
  void* do_allocate(std::size_t, cuda_stream_view) override { return &byte_; }
  void do_deallocate(void*, std::size_t, cuda_stream_view) override {}

  std::byte byte_{};
};

struct LongRunOfNothing : ::testing::TestWithParam<std::size_t> {
  void TearDown() override { Simulated::start(cudasim::environment_options()); }
};

std::vector<std::size_t> programs_for_all()
{
  std::vector<std::size_t> made;
  for (std::size_t i = 0; i < programs().size(); ++i) {
    if (!programs()[i].takes_all) { made.push_back(i); }
  }
  return made;
}

TEST_P(LongRunOfNothing, TakesNoHostMemory)
{
  if (!tells_costs) { GTEST_SKIP() << "This build does not tell what requests cost"; }
  auto const& program = programs()[GetParam()];
  auto plan           = run_parameter{&program, resources().data()}.plan();
  plan.make_resource  = [] { return std::make_shared<no_resource>(); };
  plan.requests       = requests_of_a_run(usual_requests);
  auto const result   = make_run(plan);
  EXPECT_LE(result.host_growth, allowed_host_growth(plan.requests));
  EXPECT_LE(result.objects_growth, 0);
  EXPECT_EQ(result.leaks, "");
}

INSTANTIATE_TEST_SUITE_P(, LongRunOfNothing, ::testing::ValuesIn(programs_for_all()), [](auto const& each) {
  return std::string{programs()[each.param].name};
});

}  // namespace
