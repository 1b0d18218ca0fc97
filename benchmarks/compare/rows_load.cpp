// SPDX-License-Identifier: Apache-2.0
//
// Rows in which the streams have work to do.

#include <benchmarks/compare/measure.hpp>
#include <benchmarks/utilities/device_work.hpp>

#include <stdexcept>
#include <string>

namespace compare {

namespace {

constexpr unsigned with_memory  = plugin_feature_times | plugin_feature_memory;
constexpr std::size_t ring_size = 4;  // the number of streams that take turns

std::vector<stream> make_streams(allocator const& memory)
{
  std::vector<stream> streams;
  streams.reserve(ring_size);
  for (std::size_t i = 0; i < ring_size; ++i) { streams.emplace_back(memory); }
  return streams;
}

void work(cudaStream_t stream, void* ptr, unsigned ns)
{
  if (!rmm::benchmarks::run_on_device(stream, ptr, ns)) { throw std::runtime_error{"a kernel could not be launched"}; }
}

void wait_for(std::vector<stream> const& streams)
{
  for (auto const& s : streams) { static_cast<void>(cudaStreamSynchronize(s)); }
}

/// Four streams in turn allocate, launch a kernel of 40 us, and free. Kernels of different streams can overlap. The figure is
/// the time that is added compared with the same kernels on blocks that exist already: streams that wait for each other lose
/// overlap.
row make_overlap_row()
{
  auto const run = [](candidate const& c, settings const& s) {
    constexpr std::size_t kernels  = 2000;
    constexpr unsigned kernel_ns   = 40'000;
    constexpr std::size_t smallest = 256;

    auto const memory  = c.make(s.pool_bytes, s.pool_bytes);
    auto const streams = make_streams(memory);
    auto sizes         = draw_sizes(lognormal{mib, 1.5, 64 * mib}, kernels, 1);
    for (auto& bytes : sizes) { bytes = std::max(bytes, smallest); }

    auto const pass = [&](auto&& launch) {
      stopwatch const clock;
      for (std::size_t i = 0; i < kernels; ++i) { launch(streams[i % ring_size], sizes[i]); }
      wait_for(streams);
      return clock.ns();
    };
    std::vector<void*> standing;
    for (auto const& stream : streams) { standing.push_back(checked_allocate(memory, smallest, stream)); }
    std::size_t turn   = 0;
    auto const without = [&](cudaStream_t stream, std::size_t) {
      work(stream, standing[turn++ % ring_size], kernel_ns);
    };
    auto const with = [&](cudaStream_t stream, std::size_t bytes) {
      auto* const ptr = checked_allocate(memory, bytes, stream);
      work(stream, ptr, kernel_ns);
      memory.deallocate(ptr, bytes, stream);
    };
    pass(without);
    auto const ideal  = pass(without);
    auto const before = synchronizations();
    auto const first  = pass(with);  // the first pass makes the allocator grow
    auto const second = pass(with);
    auto const waits  = synchronizations() - before - 2 * ring_size;
    for (std::size_t i = 0; i < ring_size; ++i) { memory.deallocate(standing[i], smallest, streams[i]); }

    figures result{{"overlap_lost", std::max(0.0, second / ideal - 1)},
                   {"overlap_lost_first", std::max(0.0, first / ideal - 1)}};
    if (counts_synchronizations()) { result.push_back({"syncs", static_cast<double>(waits)}); }
    return result;
  };
  return {"overlap-4", "time added to kernels on 4 streams that allocate and free", with_memory, true, run};
}

/// Four streams in turn take 3/4 of a pool, launch a kernel, and free everything. Each stream gets the memory that the previous
/// stream has just freed, while the previous kernel still runs. The time is that of the host.
row make_reuse_row()
{
  auto const run = [](candidate const& c, settings const& s) {
    constexpr std::size_t pool_bytes  = 256 * mib;
    constexpr std::size_t block_bytes = 24 * mib;
    constexpr std::size_t blocks      = 8;
    constexpr unsigned kernel_ns      = 10'000;

    auto const memory  = c.make(pool_bytes, pool_bytes);
    auto const streams = make_streams(memory);
    void* held[blocks]{};
    timing time;
    auto const turn = [&](cudaStream_t stream) {
      auto const before = synchronizations();
      stopwatch const taking;
      for (auto& ptr : held) { ptr = checked_allocate(memory, block_bytes, stream); }
      time.ns += taking.ns();
      work(stream, held[0], kernel_ns);
      stopwatch const giving;
      for (auto* const ptr : held) { memory.deallocate(ptr, block_bytes, stream); }
      time.ns += giving.ns();
      time.operations += blocks;
      time.synchronizations += synchronizations() - before;
    };
    auto const turns = [&](double seconds) {
      stopwatch const clock;
      time = {};
      do {
        for (int i = 0; i < 10; ++i) {
          for (auto const& stream : streams) { turn(stream); }
        }
        wait_for(streams);  // otherwise the launch queue fills up, and launches wait
      } while (clock.seconds() < seconds);
    };
    turns(s.seconds / 10);
    turns(s.seconds);
    return time.as_figures();
  };
  return {"reuse-under-load",
          "4 streams in turn use the same memory while kernels run",
          with_memory | plugin_feature_bounded,
          rmm::benchmarks::device_work_kind() == rmm::benchmarks::device_work::none,
          run};
}

}  // namespace

std::vector<row> make_load_rows() { return {make_overlap_row(), make_reuse_row()}; }

std::vector<row> make_rows(int devices, std::vector<unsigned> const& threads)
{
  auto rows = make_one_thread_rows();
  for (auto const& more :
       {make_thread_rows(devices, threads), make_stream_rows(), make_memory_rows(), make_load_rows()}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

}  // namespace compare
