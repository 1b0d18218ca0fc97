// SPDX-License-Identifier: Apache-2.0
//
// INTERLEAVE_BENCH: allocators, usually several versions of one, take turns of microseconds on the same thread. So they get the same
// processor at nearly the same time, and differences of one percent show on hosts where runs of COMPARE_BENCH differ by thirty.

#include <benchmarks/compare/measure.hpp>
#include <benchmarks/compare/plugin.hpp>
#include <benchmarks/compare/threads.hpp>
#include <benchmarks/compare/workload.hpp>
#include <benchmarks/utilities/options.hpp>

#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using compare::allocator;
using compare::candidate;
using compare::gib;
using compare::kib;
using compare::lognormal;
using compare::mib;

/// Does a few operations, and returns how many.
using work = std::function<std::size_t()>;

/// A workload. make(memory, index) returns the work of thread number `index`, and is called in that thread.
struct workload {
  std::string name;
  unsigned threads;
  std::function<work(allocator const&, unsigned)> make;
};

workload make_pairs(char const* name, std::size_t bytes)
{
  return {name, 1, [bytes](allocator const& memory, unsigned) -> work {
            auto const order = std::make_shared<compare::stream>(memory);
            return [&memory, order, bytes] {
              constexpr std::size_t count = 100;
              for (std::size_t i = 0; i != count; ++i) {
                memory.deallocate(compare::checked_allocate(memory, bytes, *order), bytes, *order);
              }
              return count;
            };
          }};
}

workload make_replacements(std::string const& name, unsigned threads, std::size_t live, lognormal const& sizes)
{
  return {name, threads, [=](allocator const& memory, unsigned index) -> work {
            auto const order  = std::make_shared<compare::stream>(memory);
            auto const blocks = std::make_shared<compare::live_blocks>(memory, *order, sizes, live, 100 + index);
            return [order, blocks] { return blocks->replace(100); };
          }};
}

workload make_vectors()
{
  return {"uvector-1", 1, [](allocator const& memory, unsigned) -> work {
            auto const order = std::make_shared<compare::stream>(memory);
            return [&memory, order] {
              constexpr std::size_t count = 512;
              memory.install();
              memory.make_uvectors(1000, count, *order);
              memory.uninstall();
              return count;
            };
          }};
}

std::vector<workload> make_workloads(unsigned threads)
{
  return {make_pairs("pair-256", 256),
          make_pairs("pair-1M", mib),
          make_pairs("pair-64M", 64 * mib),
          make_replacements("steady-small-1k", 1, 1'000, {4 * kib, 1.5, mib}),
          make_replacements("steady-small-100k", 1, 100'000, {4 * kib, 1.5, mib}),
          make_replacements("steady-mid-1k", 1, 1'000, {256 * kib, 2, 64 * mib}),
          make_vectors(),
          make_replacements("threads-" + std::to_string(threads), threads, 1'000, {16 * kib, 1.5, 4 * mib})};
}

/// A barrier at which threads spin.
class barrier {
 public:
  explicit barrier(unsigned threads) : threads_{threads} {}

  /// Waits for all threads. Returns false if one has failed.
  [[nodiscard]] bool wait()
  {
    auto const round = round_.load();
    if (arrived_.fetch_add(1) + 1 == threads_) {
      arrived_ = 0;
      ++round_;
    }
    while (round_.load() == round && !failed_) { std::this_thread::yield(); }
    return !failed_;
  }

  void fail() { failed_ = true; }

 private:
  unsigned const threads_;
  std::atomic<unsigned> arrived_{0};
  std::atomic<unsigned> round_{0};
  std::atomic<bool> failed_{false};
};

/// The turns of all allocators with one workload.
class turns_of {
 public:
  turns_of(workload what, std::vector<std::unique_ptr<allocator>> const& memories)
    : what_{std::move(what)},
      memories_{memories},
      times_(memories.size()),
      order_(memories.size()),
      rates_(what_.threads)
  {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  /// Returns the nanoseconds of an operation in each turn of each allocator.
  std::vector<std::vector<double>> const& take(int turns, double seconds)
  {
    compare::run_threads(what_.threads, [&](unsigned index, compare::start_gate& gate) {
      try {
        std::vector<work> works;
        for (auto const& memory : memories_) { works.push_back(what_.make(*memory, index)); }
        gate.arrive_and_wait();
        for (int turn = -std::max(turns / 10, 3); turn < turns; ++turn) {  // those below 0 warm up
          if (!take_one(works, index, seconds, turn >= 0)) { return; }
        }
      } catch (...) {
        together_.fail();
        throw;
      }
    });
    return times_;
  }

 private:
  /// Gives each allocator a turn, in random order. Returns false if another thread has failed.
  bool take_one(std::vector<work> const& works, unsigned index, double seconds, bool counts)
  {
    for (auto const which : order_) {
      if (!together_.wait()) { return false; }
      auto const seen = compare::measure(seconds, works[which]);
      rates_[index]   = static_cast<double>(seen.operations) / seen.ns;
      if (!together_.wait()) { return false; }
      if (index == 0 && counts) { times_[which].push_back(1 / std::accumulate(rates_.begin(), rates_.end(), 0.0)); }
    }
    if (!together_.wait()) { return false; }
    if (index == 0) { std::shuffle(order_.begin(), order_.end(), random_); }
    return together_.wait();
  }

  workload what_;
  std::vector<std::unique_ptr<allocator>> const& memories_;
  std::vector<std::vector<double>> times_;
  std::vector<std::size_t> order_;
  std::vector<double> rates_;  // operations of each thread in a nanosecond, in this turn
  std::mt19937 random_{1};
  barrier together_{what_.threads};
};

void print(std::string const& name, std::vector<std::vector<double>> const& times)
{
  std::printf("%-18s", name.c_str());
  for (auto const& each : times) {
    std::vector<double> ratios(each.size());
    std::transform(each.begin(), each.end(), times.front().begin(), ratios.begin(), std::divides<>{});
    std::printf("  %10.1f %6.3f (%.3f to %.3f)",
                compare::percentile(each, 0.5),
                compare::percentile(ratios, 0.5),
                compare::percentile(ratios, 0.25),
                compare::percentile(ratios, 0.75));
  }
  std::printf("\n");
  std::fflush(stdout);
}

rmm::benchmarks::options make_options()
{
  rmm::benchmarks::options options{
    "INTERLEAVE_BENCH",
    "Lets allocators take short turns in the same threads. Prints for each the nanoseconds of an "
    "operation, and the ratio to the first allocator in the same turn: medians and quartiles."};
  options.value('p', "plugin", "an allocator; give at least one. The first is what the others are compared with")
    .value('r', "row", "only rows whose name matches this pattern (*)")
    .value('n', "turns", "turns of each allocator (3000; of threads-T a 25th)")
    .value('t', "threads", "threads of the row threads-T (16)")
    .value(0, "pool", "size of the pools in GiB (16)")
    .value(0, "plugins", "folder of the plug-ins (the program's folder)")
    .flag('h', "help", "print this text");
  return options;
}

int run(rmm::benchmarks::options const& options)
{
  constexpr double short_turn = 40e-6;
  constexpr double long_turn  = 1e-3;
  auto const folder =
    options.get<std::string>("plugins", std::filesystem::read_symlink("/proc/self/exe").parent_path());
  auto const pattern    = options.get<std::string>("row", "*");
  auto const turns      = options.get("turns", 3000);
  auto const threads    = options.get("threads", 16U);
  auto const pool_bytes = options.get<std::size_t>("pool", 16) * gib;
  if (turns < 25 || threads < 1) { throw std::invalid_argument{"it takes at least 25 turns and one thread"}; }

  auto const candidates = compare::load_plugins(folder);
  std::vector<candidate> chosen;
  for (auto const& name : options.all("plugin")) {
    auto const has_name = [&](auto const& each) { return each.name() == name; };
    auto const found    = std::find_if(candidates.begin(), candidates.end(), has_name);
    if (found == candidates.end()) { throw std::runtime_error{"no plug-in has an allocator with this name: " + name}; }
    if (std::count_if(candidates.begin(), candidates.end(), has_name) != 1) {
      throw std::runtime_error{"several plug-ins have an allocator with this name: " + name};
    }
    chosen.push_back(*found);
  }
  if (chosen.empty()) { throw std::invalid_argument{"name at least one allocator with --plugin"}; }

  std::printf("%-18s", "row");
  for (auto const& each : chosen) { std::printf("  %34s", each.name().c_str()); }
  std::printf("\n");
  bool any = false;
  for (auto const& each : make_workloads(threads)) {
    if (fnmatch(pattern.c_str(), each.name.c_str(), 0) != 0) { continue; }
    any = true;
    std::vector<std::unique_ptr<allocator>> memories;
    for (auto const& one : chosen) { memories.emplace_back(new allocator(one.make(pool_bytes, pool_bytes))); }
    bool const alone = each.threads == 1;
    print(each.name, turns_of{each, memories}.take(alone ? turns : turns / 25, alone ? short_turn : long_turn));
  }
  if (!any) { throw std::invalid_argument{"no row matches " + pattern}; }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return rmm::benchmarks::run_with(make_options(), argc, argv, 1, run); }
