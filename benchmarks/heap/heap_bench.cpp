// SPDX-License-Identifier: Apache-2.0

// HEAP_BENCH: the heap on the host alone, without CUDA and without streams, beside other ways to hand out addresses.
//
//   HEAP_BENCH [--row NAME] [--heap NAME] [--repetitions N] [--operations N] [--trace FILE]...
//
// First table: nanoseconds of processor time an operation, one free and one allocation, as the median of the repetitions; the
// heaps take turns. The rows are those of the comparison suite with the same names. Second table, for heaps that keep within a
// pool: host memory for their records, and how well they pack. --row and --heap take the part of a name that selects;
// with one of each and two numbers of operations, callgrind counts the instructions of one.

#include "heaps.hpp"

#include <benchmarks/compare/trace.hpp>
#include <benchmarks/compare/workload.hpp>

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace heap_bench {

using compare::gib;
using compare::kib;
using compare::lognormal;
using compare::mib;

constexpr std::size_t pool_bytes = 16 * gib;

struct options {
  std::string row;
  std::string heap;
  std::size_t repetitions = 15;
  std::size_t operations  = 0;  // 0: as many as the row has
  std::vector<std::string> traces;
};

[[nodiscard]] double processor_seconds()
{
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

[[noreturn]] void throw_full() { throw std::runtime_error{"the pool is too small for the workload"}; }

struct block {
  std::uintptr_t begin;
  std::size_t bytes;
};

// --- time ------------------------------------------------------------------------------------------------------------

/// A workload on one heap. run() makes the given number of operations, and returns the seconds that they took.
struct workload {
  virtual ~workload()                        = default;
  virtual double run(std::size_t operations) = 0;
};

template <class Heap>
class pair_workload final : public workload {
 public:
  explicit pair_workload(std::size_t bytes) : bytes_{bytes}, heap_{pool_bytes, 1} {}

  double run(std::size_t operations) override
  {
    auto const start = processor_seconds();
    for (std::size_t i = 0; i != operations; ++i) {
      auto const begin = heap_.allocate(bytes_);
      if (begin == 0) { throw_full(); }
      heap_.deallocate(begin, bytes_);
    }
    return processor_seconds() - start;
  }

 private:
  std::size_t bytes_;
  Heap heap_;
};

template <class Heap>
class steady_workload final : public workload {
 public:
  steady_workload(std::size_t live, lognormal const& sizes)
    : heap_{pool_bytes, live}, replacements_{compare::draw_replacements(sizes, live, cycle, 1)}
  {
    for (auto const bytes : compare::draw_sizes(sizes, live, 2)) { live_.push_back({allocate(bytes), bytes}); }
    run(2 * live);
  }

  ~steady_workload() override
  {
    for (auto const& each : live_) { heap_.deallocate(each.begin, each.bytes); }
  }

  double run(std::size_t operations) override
  {
    auto const start = processor_seconds();
    for (std::size_t i = 0; i != operations; ++i) {
      auto const& next = replacements_[at_++ % cycle];
      auto& replaced   = live_[next.slot];
      heap_.deallocate(replaced.begin, replaced.bytes);
      replaced = {allocate(next.bytes), next.bytes};
    }
    return processor_seconds() - start;
  }

 private:
  static constexpr std::size_t cycle = std::size_t{1} << 18U;

  [[nodiscard]] std::uintptr_t allocate(std::size_t bytes)
  {
    auto const begin = heap_.allocate(bytes);
    if (begin == 0) { throw_full(); }
    return begin;
  }

  Heap heap_;
  std::vector<compare::replacement> replacements_;
  std::vector<block> live_;
  std::size_t at_{};
};

/// A workload that runs all its steps at least once, on a new heap each time. An operation is one allocation or one free.
template <class Heap>
class mixture_workload final : public workload {
 public:
  mixture_workload(std::size_t allocations, std::size_t most_bytes)
    : blocks_(allocations), steps_{compare::draw_mixture(allocations, most_bytes, pool_bytes / 8 * 7, 1)}
  {}

  double run(std::size_t operations) override
  {
    double seconds{};
    std::size_t done{};
    for (; done < operations; done += steps_.size()) {
      Heap heap{pool_bytes, blocks_.size()};
      std::fill(blocks_.begin(), blocks_.end(), block{});
      auto const start = processor_seconds();
      for (auto const& step : steps_) {
        auto& which = blocks_[step.block];
        if (step.bytes == 0) {
          heap.deallocate(which.begin, which.bytes);
          which = {};
        } else {
          which = {heap.allocate(step.bytes), step.bytes};
          if (which.begin == 0) { throw_full(); }
        }
      }
      seconds += processor_seconds() - start;
      for (auto const& each : blocks_) {
        if (each.begin != 0) { heap.deallocate(each.begin, each.bytes); }
      }
    }
    return seconds * static_cast<double>(operations) / static_cast<double>(done);
  }

 private:
  std::vector<block> blocks_;
  std::vector<compare::step> steps_;
};

struct candidate {
  std::string heap;
  std::unique_ptr<workload> work;
};

/// Calls make(tag) for each heap that the options select; the tag has the heap's type.
template <class Heap>
struct tag {
  using type = Heap;
};

template <class Visit>
void for_each_heap(options const& chosen, Visit&& visit)
{
  auto const visit_if = [&](auto which) {
    std::string const name{decltype(which)::type::name};
    if (name.find(chosen.heap) != std::string::npos) { visit(which); }
  };
  visit_if(tag<range_set_heap>{});
  visit_if(tag<best_fit_heap>{});
#ifdef HEAP_BENCH_HAS_BOOST
  visit_if(tag<boost_heap>{});
#endif
  visit_if(tag<host_heap<malloc_functions>>{});
  if (mimalloc_functions::load()) { visit_if(tag<host_heap<mimalloc_functions>>{}); }
}

[[nodiscard]] double median(std::vector<double> values)
{
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Prints a row of the first table. `make(tag)` makes the workload on a heap.
template <class Make>
void time_row(options const& chosen, std::string const& name, std::size_t operations, Make&& make)
{
  if (name.find(chosen.row) == std::string::npos) { return; }
  if (chosen.operations != 0) { operations = chosen.operations; }
  std::vector<candidate> candidates;
  for_each_heap(chosen, [&](auto which) { candidates.push_back({decltype(which)::type::name, make(which)}); });

  std::vector<std::vector<double>> times(candidates.size());
  for (std::size_t repetition = 0; repetition != chosen.repetitions; ++repetition) {
    for (std::size_t i = 0; i != candidates.size(); ++i) {
      times[i].push_back(candidates[i].work->run(operations) / static_cast<double>(operations));
    }
  }
  std::printf("%-24s", name.c_str());
  for (auto const& each : times) { std::printf("%15.1f", 1e9 * median(each)); }
  std::printf("\n");
  std::fflush(stdout);
}

void time_rows(options const& chosen)
{
  auto const pair = [&](std::string const& name, std::size_t bytes) {
    time_row(chosen, "pair-" + name, 200'000, [&](auto which) {
      return std::make_unique<pair_workload<typename decltype(which)::type>>(bytes);
    });
  };
  auto const steady = [&](std::string const& name, std::size_t live, lognormal const& sizes) {
    time_row(chosen, "steady-" + name, 100'000, [&](auto which) {
      return std::make_unique<steady_workload<typename decltype(which)::type>>(live, sizes);
    });
  };
  auto const mixture = [&](std::string const& name, std::size_t allocations, std::size_t most_bytes) {
    time_row(chosen, "random-" + name, 1, [&](auto which) {
      return std::make_unique<mixture_workload<typename decltype(which)::type>>(allocations, most_bytes);
    });
  };
  std::printf("%-24s", "ns an operation");
  for_each_heap(chosen, [](auto which) { std::printf("%15s", decltype(which)::type::name); });
  std::printf("\n");
  pair("256B", 256);
  pair("1MiB", mib);
  steady("small-1k", 1000, {4 * kib, 1.5, mib});
  steady("small-100k", 100'000, {4 * kib, 1.5, mib});
  steady("mid-1k", 1000, {256 * kib, 2, 64 * mib});
  mixture("10k-4MiB", 10'000, 4 * mib);
  mixture("100k-1MiB", 100'000, mib);
}

// --- memory ----------------------------------------------------------------------------------------------------------

/// Returns the host memory of the records of 100,000 blocks of 4 KiB, with every second one free, in percent of the blocks'
/// memory.
template <class Heap>
[[nodiscard]] double record_share()
{
  constexpr std::size_t blocks = 100'000;
  constexpr std::size_t bytes  = 4 * kib;
  Heap heap{blocks * bytes / 16 * 17, blocks / 2};  // with room for heaps that keep their records in the pool
  std::vector<std::uintptr_t> live;
  for (std::size_t i = 0; i != blocks; ++i) {
    live.push_back(heap.allocate(bytes));
    if (live.back() == 0) { throw_full(); }
  }
  for (std::size_t i = 0; i < blocks; i += 2) { heap.deallocate(live[i], bytes); }
  return 100.0 * static_cast<double>(heap.record_bytes()) / static_cast<double>(blocks * bytes);
}

/// Returns whether a pool of `bytes` bytes can replay a trace. Streams make no difference here.
template <class Heap>
[[nodiscard]] bool fits(compare::trace const& events, std::size_t bytes)
{
  Heap heap{bytes / 256 * 256, events.blocks};
  std::vector<block> blocks(events.blocks);
  for (auto const& event : events.events) {
    auto& which = blocks[event.block];
    if (event.frees) {
      heap.deallocate(which.begin, which.bytes);
    } else {
      which = {heap.allocate(std::max<std::size_t>(event.bytes, 1)), std::max<std::size_t>(event.bytes, 1)};
      if (which.begin == 0) { return false; }
    }
  }
  return true;
}

/// Returns the smallest pool that replays a trace over the trace's peak, to within 1/2000.
template <class Heap>
[[nodiscard]] double smallest_pool(compare::trace const& events)
{
  auto const peak = static_cast<double>(events.peak_bytes);
  double too_small{0.5};
  double enough{8};
  while (enough - too_small > 0.0005) {
    auto const middle                                                                  = (too_small + enough) / 2;
    (fits<Heap>(events, static_cast<std::size_t>(middle * peak)) ? enough : too_small) = middle;
  }
  return enough;
}

struct shares {
  double mean{};
  double worst{1};
};

/// Returns the live shares of the pool at failed allocations. For five seeds: fills the pool, then frees a random half and
/// fills it again, 60 times.
template <class Heap>
[[nodiscard]] shares shares_at_failure(lognormal const& sizes)
{
  constexpr std::uint64_t seeds = 5;
  constexpr unsigned rounds     = 60;
  constexpr std::size_t most    = pool_bytes / (16 * kib);
  shares result;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    compare::random_source random{seed};
    Heap heap{pool_bytes, most};
    std::vector<block> live;
    std::size_t live_bytes{};
    for (unsigned round = 0; round != rounds; ++round) {
      for (;;) {
        auto const bytes = sizes(random);
        auto const begin = heap.allocate(bytes);
        if (begin == 0) { break; }
        if (live.size() == most) { throw_full(); }
        live.push_back({begin, bytes});
        live_bytes += bytes;
      }
      auto const share = static_cast<double>(live_bytes) / static_cast<double>(pool_bytes);
      result.mean += share / (seeds * rounds);
      result.worst = std::min(result.worst, share);
      for (auto left = live.size() / 2; left != 0; --left) {
        std::swap(live[random.below(live.size())], live.back());
        heap.deallocate(live.back().begin, live.back().bytes);
        live_bytes -= live.back().bytes;
        live.pop_back();
      }
    }
  }
  return result;
}

/// Prints a row of the second table. `measure(tag)` returns the text of a column.
template <class Measure>
void memory_row(options const& chosen, std::string const& name, Measure&& measure)
{
  if (name.find(chosen.row) == std::string::npos) { return; }
  std::printf("%-24s", name.c_str());
  for_each_heap(chosen, [&](auto which) {
    using heap = typename decltype(which)::type;
    if constexpr (heap::is_bounded) {
      std::printf("%15s", measure(which).c_str());
    } else {
      std::printf("%15s", "-");
    }
  });
  std::printf("\n");
  std::fflush(stdout);
}

template <class... Numbers>
[[nodiscard]] std::string formatted(char const* format, Numbers... numbers)
{
  char text[64];
  std::snprintf(text, sizeof text, format, numbers...);
  return text;
}

void memory_rows(options const& chosen)
{
  auto const frag = [&](std::string const& name, lognormal const& sizes) {
    memory_row(chosen, "frag-" + name, [&](auto which) {
      auto const result = shares_at_failure<typename decltype(which)::type>(sizes);
      return formatted("%.3f/%.3f", result.mean, result.worst);
    });
  };
  std::printf(
    "\nrecords: percent of the memory that 4 KiB blocks take; trace: smallest pool over the peak of live bytes;\n"
    "frag: share of the pool in live use when an allocation first fails, mean and worst\n");
  memory_row(
    chosen, "records", [](auto which) { return formatted("%.2f %%", record_share<typename decltype(which)::type>()); });
  for (auto const& path : chosen.traces) {
    auto const events = compare::read_trace(path);
    auto const file   = path.substr(path.rfind('/') + 1);
    memory_row(chosen, "trace " + file.substr(0, file.find('.')), [&](auto which) {
      return formatted("%.3f", smallest_pool<typename decltype(which)::type>(events));
    });
  }
  frag("small", {64 * kib, 2, 256 * mib});
  frag("large", {4 * mib, 2, 2 * gib});
}

[[nodiscard]] options parse(int count, char** arguments)
{
  options result;
  for (int i = 1; i < count; i += 2) {
    std::string const name{arguments[i]};
    if (i + 1 == count) { throw std::invalid_argument{name + " needs a value"}; }
    std::string const value{arguments[i + 1]};
    if (name == "--row") {
      result.row = value;
    } else if (name == "--heap") {
      result.heap = value;
    } else if (name == "--repetitions") {
      result.repetitions = std::max<std::size_t>(std::stoul(value), 1);
    } else if (name == "--operations") {
      result.operations = std::stoul(value);
    } else if (name == "--trace") {
      result.traces.push_back(value);
    } else {
      throw std::invalid_argument{"unknown option " + name};
    }
  }
  return result;
}

}  // namespace heap_bench

int main(int count, char** arguments)
{
  try {
    auto const chosen = heap_bench::parse(count, arguments);
    heap_bench::time_rows(chosen);
    heap_bench::memory_rows(chosen);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "HEAP_BENCH: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
