// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/compare/measure.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace compare {

/// A gate at which threads wait for each other, so that they start together. A thread that fails opens it for the others.
class start_gate {
 public:
  explicit start_gate(unsigned threads) : missing_{static_cast<int>(threads)} {}

  void arrive() { missing_.fetch_sub(1); }
  void arrive_and_wait()
  {
    arrive();
    while (missing_.load() > 0) { std::this_thread::yield(); }
  }

 private:
  std::atomic<int> missing_;
};

/// Runs body(index, gate) in `count` threads and joins them. Each body must call gate.arrive_and_wait() once. Throws the
/// exception of the first thread that failed.
inline void run_threads(unsigned count, std::function<void(unsigned, start_gate&)> const& body)
{
  int device{};
  static_cast<void>(cudaGetDevice(&device));
  start_gate gate{count};
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        static_cast<void>(cudaSetDevice(device));
        body(i, gate);
      } catch (...) {
        gate.arrive();
        std::lock_guard<std::mutex> const lock{mutex};
        if (!failure) { failure = std::current_exception(); }
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  if (failure) { std::rethrow_exception(failure); }
}

/// The timing of each thread.
using timings = std::vector<timing>;

/// Returns the longest time of a thread with the operations of all threads.
inline timing together(timings const& all)
{
  timing sum;
  for (auto const& one : all) {
    sum.ns = std::max(sum.ns, one.ns);
    sum.synchronizations += one.synchronizations;
    sum.operations += one.operations;
  }
  return sum;
}

/// Replaces a block, and adds the nanoseconds that it took.
inline std::size_t replace_timed(live_blocks& blocks, std::vector<double>& latencies)
{
  stopwatch const clock;
  blocks.replace_one();
  latencies.push_back(clock.ns());
  return 1;
}

}  // namespace compare
