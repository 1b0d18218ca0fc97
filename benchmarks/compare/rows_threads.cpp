// SPDX-License-Identifier: Apache-2.0
//
// Rows with several threads, and rows on containers.

#include <benchmarks/compare/measure.hpp>
#include <benchmarks/compare/threads.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace compare {

namespace {

row make_threads_row(std::string const& name, unsigned threads, std::size_t live)
{
  auto const run = [=](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    timings seen(threads);
    std::vector<double> tails(threads);
    auto const before = synchronizations();
    run_threads(threads, [&](unsigned index, start_gate& gate) {
      stream const order{memory};
      live_blocks blocks{memory, order, {16 * kib, 1.5, 4 * mib}, live, 100 + index};
      auto const some = [&] { return blocks.replace(100); };
      measure(s.seconds / 10, some);
      gate.arrive_and_wait();
      seen[index] = measure(s.seconds, some);
      std::vector<double> latencies;
      measure(s.seconds / 2, [&] { return replace_timed(blocks, latencies); });
      tails[index] = percentile(std::move(latencies), 0.999);
    });
    auto sum             = together(seen);
    sum.synchronizations = synchronizations() - before - threads;  // not counted: the wait at the end of each stream
    auto result          = sum.as_figures();
    result.push_back({"p999_ns", *std::max_element(tails.begin(), tails.end())});
    return result;
  };
  return {name,
          std::to_string(threads) + " threads, own streams, " + std::to_string(live) + " live each",
          plugin_feature_times,
          false,
          run};
}

/// A ring buffer that hands blocks from one thread to another.
class handoff_ring {
 public:
  void put(block b)
  {
    auto const at = written_.load(std::memory_order_relaxed);
    wait_while([&] { return at - read_.load(std::memory_order_acquire) == slots_.size(); });
    slots_[at % slots_.size()] = b;
    written_.store(at + 1, std::memory_order_release);
  }

  [[nodiscard]] block take()
  {
    auto const at = read_.load(std::memory_order_relaxed);
    wait_while([&] { return at == written_.load(std::memory_order_acquire); });
    auto const b = slots_[at % slots_.size()];
    read_.store(at + 1, std::memory_order_release);
    return b;
  }

 private:
  template <class Condition>
  static void wait_while(Condition&& condition)
  {
    for (int turns = 0; condition(); ++turns) {
      if (turns > 200) { std::this_thread::yield(); }  // the other thread may need this core
    }
  }

  std::array<block, 1024> slots_{};
  alignas(64) std::atomic<std::size_t> written_{0};
  alignas(64) std::atomic<std::size_t> read_{0};
};

row make_handoff_row()
{
  auto const run = [](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    auto const sizes  = draw_sizes(lognormal{64 * kib, 2, 16 * mib}, std::size_t{1} << 17U, 1);
    handoff_ring ring;
    timing result;
    run_threads(2, [&](unsigned index, start_gate& gate) {
      stream const order{memory};
      gate.arrive_and_wait();
      if (index == 1) {
        for (auto b = ring.take(); b.ptr != nullptr; b = ring.take()) { memory.deallocate(b.ptr, b.bytes, order); }
        return;
      }
      std::size_t position = 0;
      auto const some      = [&] {
        constexpr std::size_t count = 100;
        for (std::size_t i = 0; i < count; ++i) {
          auto const bytes = sizes[position++ % sizes.size()];
          ring.put({checked_allocate(memory, bytes, order), bytes});
        }
        return count;
      };
      try {
        measure(s.seconds / 10, some);
        result = measure(s.seconds, some);
      } catch (...) {
        ring.put({nullptr, 0});
        throw;
      }
      ring.put({nullptr, 0});
    });
    return result.as_figures();
  };
  return {"handoff", "allocated by thread and stream A, freed by B", plugin_feature_times, false, run};
}

/// Constructs and destroys device_uvector<int>(1000) in each thread. The figure is the mean over the threads.
row make_uvector_row(unsigned threads, int devices)
{
  auto const run = [=](candidate const& c, settings const& s) {
    constexpr std::size_t elements = 1000;

    auto const memory = c.make(gib, gib);
    memory.install();
    timings seen(threads);
    auto const before = synchronizations();
    try {
      run_threads(threads, [&](unsigned index, start_gate& gate) {
        stream const order{memory};
        auto const some = [&] {
          constexpr std::size_t count = 100;
          memory.make_uvectors(elements, count, order);
          return count;
        };
        measure(s.seconds / 10, some);
        gate.arrive_and_wait();
        seen[index] = measure(s.seconds, some);
      });
    } catch (...) {
      memory.uninstall();
      throw;
    }
    memory.uninstall();

    double sum = 0;
    for (auto const& one : seen) { sum += one.ns / static_cast<double>(one.operations); }
    timing const mean{sum / threads, synchronizations() - before - threads, 1};
    return mean.as_figures();
  };
  auto const suffix = devices > 1 ? "-several-devices" : "";
  return {"uvector-" + std::to_string(threads) + suffix,
          "device_uvector<int>(1000) in " + std::to_string(threads) + " threads, each thread's time",
          plugin_feature_containers,
          false,
          run};
}

}  // namespace

std::vector<row> make_thread_rows(int devices, std::vector<unsigned> const& threads)
{
  std::vector<row> rows{make_handoff_row()};
  for (auto const count : threads) {
    rows.push_back(make_threads_row("threads-" + std::to_string(count), count, 1000));
  }
  rows.push_back(make_threads_row("threads-64-200", 64, 200));
  for (auto const count : {1U, 16U}) { rows.push_back(make_uvector_row(count, devices)); }
  return rows;
}

}  // namespace compare
