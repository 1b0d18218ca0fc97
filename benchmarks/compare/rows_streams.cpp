// SPDX-License-Identifier: Apache-2.0
//
// Rows with several streams, with nearly full pools, and with adaptors. The streams come from cudaStreamCreate, as in most
// libraries, so no allocator knows when they begin and end.

#include <benchmarks/compare/measure.hpp>
#include <benchmarks/compare/threads.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace compare {

namespace {

constexpr unsigned timed = plugin_feature_times;

class foreign_stream {
 public:
  foreign_stream()
  {
    auto const status = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (status != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(status)}; }
  }
  foreign_stream(foreign_stream&& other) noexcept : stream_{std::exchange(other.stream_, nullptr)} {}
  foreign_stream(foreign_stream const&)            = delete;
  foreign_stream& operator=(foreign_stream const&) = delete;
  foreign_stream& operator=(foreign_stream&&)      = delete;
  ~foreign_stream()
  {
    if (stream_ != nullptr) { static_cast<void>(cudaStreamDestroy(stream_)); }
  }

  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_{};
};

/// Blocks of one stream. The destructor frees them.
class held_blocks {
 public:
  held_blocks(allocator const& memory, cudaStream_t order) : memory_{memory}, order_{order} {}
  held_blocks(held_blocks const&)            = delete;
  held_blocks& operator=(held_blocks const&) = delete;
  ~held_blocks()
  {
    for (std::size_t i = 0; i < blocks_.size(); ++i) { free(i); }
  }

  /// Allocates a block. Throws std::bad_alloc.
  void add(std::size_t bytes) { blocks_.push_back({checked_allocate(memory_, bytes, order_), bytes}); }

  /// Frees a block, unless it is free already.
  void free(std::size_t which)
  {
    auto& each = blocks_[which];
    if (each.ptr != nullptr) { memory_.deallocate(std::exchange(each.ptr, nullptr), each.bytes, order_); }
  }

  /// Frees a block and allocates another. Throws std::bad_alloc.
  void replace(std::size_t which, std::size_t bytes)
  {
    free(which);
    blocks_[which] = {checked_allocate(memory_, bytes, order_), bytes};
  }

 private:
  allocator const& memory_;
  cudaStream_t order_;
  std::vector<block> blocks_;
};

/// Allocates and frees `bytes` bytes a hundred times. Returns the number of operations.
std::size_t make_pairs(allocator const& memory, std::size_t bytes, cudaStream_t order)
{
  constexpr std::size_t count = 100;
  for (std::size_t i = 0; i < count; ++i) { memory.deallocate(checked_allocate(memory, bytes, order), bytes, order); }
  return count;
}

/// Live blocks on several streams, equally many on each. The streams take turns with replacements.
class dealt_blocks {
 public:
  struct shape {
    std::size_t streams;
    std::size_t live;  ///< live blocks of each stream
    lognormal sizes;
    bool crosses{};                  ///< whether every fourth block is freed on the next stream
    std::size_t least_pool_bytes{};  ///< pool size that holds the live blocks
  };

  dealt_blocks(allocator const& memory, shape const& how)
    : memory_{memory},
      crosses_{how.crosses},
      streams_(how.streams),
      blocks_(how.streams),
      sequence_{draw_replacements(how.sizes, how.live, sequence_length, 1)}
  {
    auto const sizes = draw_sizes(how.sizes, how.streams * how.live, 2);
    try {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        auto const on = i % how.streams;
        blocks_[on].push_back({checked_allocate(memory_, sizes[i], streams_[on]), sizes[i]});
      }
    } catch (...) {
      free_all();
      throw;
    }
  }
  dealt_blocks(dealt_blocks const&)            = delete;
  dealt_blocks& operator=(dealt_blocks const&) = delete;
  ~dealt_blocks() { free_all(); }

  /// Replaces `count` blocks. Throws std::bad_alloc.
  std::size_t replace(std::size_t count)
  {
    for (std::size_t i = 0; i < count; ++i, ++turn_) {
      auto const next       = sequence_[turn_ % sequence_length];
      auto const on         = turn_ % streams_.size();
      bool const is_crossed = crosses_ && turn_ / streams_.size() % 4 == 3;
      auto& slot            = blocks_[on][next.slot];
      memory_.deallocate(slot.ptr, slot.bytes, streams_[is_crossed ? (on + 1) % streams_.size() : on]);
      slot = {memory_.allocate(next.bytes, streams_[on]), next.bytes};
      if (slot.ptr == nullptr) { throw std::bad_alloc{}; }
    }
    return count;
  }

 private:
  static constexpr std::size_t sequence_length = std::size_t{1} << 17U;

  void free_all()
  {
    for (std::size_t on = 0; on < blocks_.size(); ++on) {
      for (auto const& each : blocks_[on]) {
        if (each.ptr != nullptr) { memory_.deallocate(each.ptr, each.bytes, streams_[on]); }
      }
    }
  }

  allocator const& memory_;
  bool crosses_;
  std::vector<foreign_stream> streams_;
  std::vector<std::vector<block>> blocks_;
  std::vector<replacement> sequence_;
  std::size_t turn_{0};
};

row make_streams_row(char const* name, dealt_blocks::shape shape)
{
  auto const run = [=](candidate const& c, settings const& s) {
    auto const pool_bytes = std::max(s.pool_bytes, shape.least_pool_bytes);
    auto const memory     = c.make(pool_bytes, pool_bytes);
    dealt_blocks blocks{memory, shape};
    auto const some = [&] { return blocks.replace(256); };
    measure(s.seconds / 3, some);
    return measure(s.seconds, some).as_figures();
  };
  auto const crossing = shape.crosses ? ", every fourth freed on the next stream" : "";
  return {name,
          "one thread deals to " + std::to_string(shape.streams) + " streams, " + std::to_string(shape.live) +
            " live each" + crossing,
          timed,
          false,
          run};
}

row make_large_threads_row()
{
  constexpr unsigned threads = 16;
  auto const run             = [](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    timings seen(threads);
    std::vector<double> tails(threads);
    auto const before = synchronizations();
    run_threads(threads, [&](unsigned index, start_gate& gate) {
      foreign_stream const order;
      live_blocks blocks{memory, order, {8 * mib, 1.5, 128 * mib}, 8, 100 + index};
      auto const some = [&] { return blocks.replace(100); };
      measure(s.seconds / 10, some);
      gate.arrive_and_wait();
      std::vector<double> latencies;
      seen[index]  = measure(s.seconds, [&] { return replace_timed(blocks, latencies); });
      tails[index] = percentile(std::move(latencies), 0.99);
    });
    auto sum             = together(seen);
    sum.synchronizations = synchronizations() - before;
    auto result          = sum.as_figures();
    result.push_back({"p99_ns", *std::max_element(tails.begin(), tails.end())});
    return result;
  };
  return {"threads-16-large", "16 threads, own streams, 8 large blocks live each", timed, false, run};
}

/// Eight threads at a time, each of which ends after 200 replacements. Thread creation counts.
row make_short_threads_row()
{
  constexpr unsigned threads  = 8;
  constexpr std::size_t live  = 16;
  constexpr std::size_t count = 200;
  auto const run              = [](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    lognormal const sizes{16 * kib, 1.5, 4 * mib};
    auto const first = draw_sizes(sizes, live, 1);
    auto const next  = draw_replacements(sizes, live, count, 2);
    std::vector<foreign_stream> const streams(threads);
    auto const round = [&] {
      run_threads(threads, [&](unsigned index, start_gate& gate) {
        gate.arrive();
        held_blocks blocks{memory, streams[index]};
        for (auto const bytes : first) { blocks.add(bytes); }
        for (auto const& each : next) { blocks.replace(each.slot, each.bytes); }
      });
      return threads * count;
    };
    measure(s.seconds / 10, round);
    return measure(s.seconds, round).as_figures();
  };
  return {"short-threads-8", "8 threads at a time, each makes 200 replacements and ends", timed, false, run};
}

/// One thread's share of a pool that is nearly full.
class tight_blocks {
 public:
  tight_blocks(allocator const& memory, cudaStream_t order, std::size_t share, std::uint64_t seed)
    : memory_{memory}, order_{order}, share_{share}, random_{seed}, sizes_{draw_sizes(sizes, sequence_length, seed)}
  {}
  tight_blocks(tight_blocks const&)            = delete;
  tight_blocks& operator=(tight_blocks const&) = delete;
  ~tight_blocks()
  {
    while (!live_.empty()) { free_any(); }
  }

  /// Frees random blocks until the next one fits into the share, and allocates it. Counts failed allocations.
  std::size_t step()
  {
    auto const bytes = sizes_[turn_++ % sequence_length];
    while (!live_.empty() && live_bytes_ + bytes > share_) { free_any(); }
    if (void* const ptr = memory_.allocate(bytes, order_)) {
      live_.push_back({ptr, bytes});
      live_bytes_ += bytes;
    } else {
      ++failures_;
    }
    return 1;
  }

  void fill()
  {
    for (std::size_t i = 0; i < sequence_length && live_bytes_ < share_ / 100 * 95; ++i) { step(); }
    failures_ = 0;
  }

  [[nodiscard]] std::size_t failures() const { return failures_; }

 private:
  static constexpr std::size_t sequence_length = std::size_t{1} << 16U;
  static constexpr lognormal sizes{mib, 1.5, 64 * mib};

  void free_any()
  {
    std::swap(live_[random_.below(live_.size())], live_.back());
    memory_.deallocate(live_.back().ptr, live_.back().bytes, order_);
    live_bytes_ -= live_.back().bytes;
    live_.pop_back();
  }

  allocator const& memory_;
  cudaStream_t order_;
  std::size_t share_;
  random_source random_;
  std::vector<std::size_t> sizes_;
  std::vector<block> live_;
  std::size_t live_bytes_{0};
  std::size_t turn_{0};
  std::size_t failures_{0};
};

row make_tight_row(unsigned percent)
{
  constexpr unsigned threads = 8;
  auto const run             = [=](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    timings seen(threads);
    std::vector<std::size_t> failures(threads);
    std::vector<foreign_stream> const streams(threads);
    start_gate finished{threads};
    auto const before = synchronizations();
    run_threads(threads, [&](unsigned index, start_gate& gate) {
      tight_blocks blocks{memory, streams[index], s.pool_bytes / 100 * percent / threads, 100 + index};
      auto const one = [&] { return blocks.step(); };
      blocks.fill();
      gate.arrive_and_wait();
      seen[index]     = measure(s.seconds, one);
      failures[index] = blocks.failures();
      finished.arrive_and_wait();  // keeps the pool full until every thread has measured
    });
    auto sum             = together(seen);
    sum.synchronizations = synchronizations() - before;
    std::size_t refused{};
    for (auto const each : failures) { refused += each; }
    auto result = sum.as_figures();
    result.push_back(
      {"failures_in_a_million", static_cast<double>(refused) * 1e6 / static_cast<double>(sum.operations)});
    return result;
  };
  return {"tight-8-" + std::to_string(percent),
          "8 threads keep " + std::to_string(percent) + " % of a bounded pool live",
          timed | plugin_feature_bounded,
          false,
          run};
}

/// The pool has many free ranges, each too small for the requests.
row make_holes_row(std::size_t wanted)
{
  auto const run = [=](candidate const& c, settings const& s) {
    constexpr std::size_t hole = 68 * kib;
    constexpr std::size_t next = 72 * kib;
    auto const holes           = std::min(wanted, s.pool_bytes / 4 * 3 / (2 * hole));

    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    foreign_stream const order;
    held_blocks blocks{memory, order};
    for (std::size_t i = 0; i < 2 * holes; ++i) { blocks.add(hole); }
    for (std::size_t i = 0; i < 2 * holes; i += 2) { blocks.free(i); }
    auto const pairs = [&] { return make_pairs(memory, next, order); };
    measure(s.seconds / 10, pairs);
    auto const result = measure(s.seconds, pairs);
    return result.as_figures();
  };
  return {"holes-" + std::to_string(wanted), "allocate and free what no hole has room for", timed, false, run};
}

/// Allocates and frees `bytes` bytes in a loop. If `shared`, another stream holds a block of the pool.
row make_pair_row(char const* name, std::size_t bytes, bool shared)
{
  auto const run = [=](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    foreign_stream const order;
    foreign_stream const other;
    held_blocks kept{memory, other};
    if (shared) { kept.add(kib); }
    auto const pairs = [&] { return make_pairs(memory, bytes, order); };
    measure(s.seconds / 10, pairs);
    auto const result = measure(s.seconds, pairs);
    return result.as_figures();
  };
  return {name,
          shared ? "allocate and free, while another stream has a block" : "allocate and free",
          bytes <= mib ? unsigned{plugin_feature_small_times} : timed,
          false,
          run};
}

/// Pairs of 256 bytes through an adaptor, in 16 threads with 100 live blocks each.
row make_adaptor_row()
{
  constexpr unsigned threads = 16;
  auto const run             = [](candidate const& c, settings const& s) {
    constexpr std::size_t bytes = 256;
    auto const memory           = c.make(gib, gib);
    timings seen(threads);
    auto const before = synchronizations();
    run_threads(threads, [&](unsigned index, start_gate& gate) {
      foreign_stream const order;
      held_blocks live{memory, order};
      for (int i = 0; i < 100; ++i) { live.add(bytes); }
      auto const pairs = [&] { return make_pairs(memory, bytes, order); };
      measure(s.seconds / 10, pairs);
      gate.arrive_and_wait();
      seen[index] = measure(s.seconds, pairs);
    });
    auto sum             = together(seen);
    sum.synchronizations = synchronizations() - before;
    return sum.as_figures();
  };
  return {"adaptor-16", "256 B through an adaptor in 16 threads, 100 live each", plugin_feature_adaptor, false, run};
}

}  // namespace

std::vector<row> make_stream_rows()
{
  return {
    make_pair_row("pair-256-foreign", 256, false),
    make_pair_row("pair-64M-shared", 64 * mib, true),
    make_streams_row("streams-8", {8, 100, {64 * kib, 2, 64 * mib}, false}),
    make_streams_row("streams-8-cross", {8, 100, {64 * kib, 2, 64 * mib}, true}),
    make_streams_row("streams-32-large", {32, 4, {16 * mib, 1.5, 256 * mib}, false, 16 * gib}),
    make_large_threads_row(),
    make_short_threads_row(),
    make_tight_row(80),
    make_tight_row(95),
    make_holes_row(4096),
    make_holes_row(65536),
    make_adaptor_row(),
  };
}

}  // namespace compare
