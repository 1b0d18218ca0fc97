// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <utility>
#include <vector>

/// @file
/// A graph that allocates, replayed many times while other threads use the same memory resource. Every block is filled
/// with a pattern of its owner and checked before it is freed, so a block with two owners holds foreign bytes.
///
/// `Work` has three functions: fill(stream, ptr, bytes, pattern), verify(stream, ptr, bytes, pattern), and foreign(),
/// which returns the number of foreign words that verify() found. Synchronize the device before you call foreign().

namespace rmm::test {

struct captured_block {
  void* ptr;
  std::size_t bytes;
  std::uint32_t pattern;
};

/// Captures two branches that allocate and free, and one allocation that stays, so that its content can be read.
template <class Work>
[[nodiscard]] std::pair<graph, captured_block> capture_branches(
  mr::device_memory_resource& mr, Work& work, graph_memory const& memory, cuda_stream_view stream, std::uint32_t salt)
{
  cuda_stream const branch{cuda_stream::flags::non_blocking};
  captured_block result{nullptr, 48 * 1024, 1000 * salt};
  auto made = capture(stream, cudaStreamCaptureModeGlobal, [&] {
    capture_scope const scope{stream, memory};
    order(stream, branch);
    result.ptr = mr.allocate(result.bytes, stream);
    for (auto const& [on, first] : {std::pair{stream, 1U}, std::pair{branch.view(), 10U}}) {
      for (std::uint32_t i = 0; i < 5; ++i) {
        auto const bytes = std::size_t{4096} << i;
        auto* const a    = mr.allocate(bytes, on);
        auto* const b    = mr.allocate(2 * bytes, on);
        work.fill(on, a, bytes, result.pattern + first + i);
        work.fill(on, b, 2 * bytes, result.pattern + first + i + 100);
        work.verify(on, a, bytes, result.pattern + first + i);
        mr.deallocate(a, bytes, on);
        work.verify(on, b, 2 * bytes, result.pattern + first + i + 100);
        mr.deallocate(b, 2 * bytes, on);
      }
    }
    order(branch, stream);
    work.fill(stream, result.ptr, result.bytes, result.pattern);
  });
  return {std::move(made), result};
}

/// The code of the other threads: allocates and frees on two streams of its own until `ends` is set.
template <class Work>
void use_beside_captures(mr::device_memory_resource& mr, Work& work, std::uint32_t salt, std::atomic<bool> const& ends)
{
  std::mt19937 random{salt};
  std::array<cuda_stream, 2> const streams{cuda_stream{cuda_stream::flags::non_blocking},
                                           cuda_stream{cuda_stream::flags::sync_default}};
  struct owned {
    captured_block block;
    cuda_stream_view stream;
  };
  std::vector<owned> live;
  auto const free_one = [&](std::size_t which) {
    auto const [block, on] = live[which];
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    work.verify(on, block.ptr, block.bytes, block.pattern);
    mr.deallocate(block.ptr, block.bytes, on);
  };
  for (std::uint32_t step = 0; !ends.load(std::memory_order_relaxed) || step < 100; ++step) {
    if (live.size() < 16 && random() % 2 == 0) {
      auto const bytes = std::size_t{256} << (random() % 10);
      auto const on    = streams[random() % 2].view();
      captured_block const made{mr.allocate(bytes, on), bytes, (salt << 24U) + step};
      work.fill(on, made.ptr, bytes, made.pattern);
      live.push_back({made, on});
    } else if (!live.empty()) {
      free_one(random() % live.size());
    }
    if (step % 256 == 0) { synchronize_beside_captures(streams[step / 256 % 2]); }
  }
  while (!live.empty()) { free_one(live.size() - 1); }
  for (auto const& each : streams) { synchronize_beside_captures(each); }
}

/// Two graphs with memory of their own and one that shares, replayed `times` times each on changing streams and
/// captured again half-way, while `threads` other threads use the resource.
template <class Work>
void replay_while_others_allocate(mr::device_memory_resource& mr, Work& work, int times, unsigned threads)
{
  std::atomic<bool> ends{false};
  std::vector<std::thread> others;
  for (unsigned i = 0; i < threads; ++i) {
    others.emplace_back([&, i] { use_beside_captures(mr, work, i + 1, ends); });
  }
  {
    cuda_stream const stream{cuda_stream::flags::non_blocking};
    cuda_stream const second{cuda_stream::flags::non_blocking};
    for (int part = 0; part < 2; ++part) {
      graph_memory shared;
      graph_memory alone;
      auto a = capture_branches(mr, work, shared, stream, 1);
      auto b = capture_branches(mr, work, shared, stream, 2);
      auto c = capture_branches(mr, work, alone, second, 3);
      for (int i = 0; i < times / 2; ++i) {
        for (auto const* each : {&a, &b}) {  // they share memory, so they run one after the other
          each->first.launch(stream);
          work.verify(stream, each->second.ptr, each->second.bytes, each->second.pattern);
        }
        c.first.launch(second);
        work.verify(second, c.second.ptr, c.second.bytes, c.second.pattern);
        if (i % 64 == 0) { second.synchronize(); }
      }
      for (auto const* each : {&a, &b, &c}) {
        auto const& on = each == &c ? second : stream;
        mr.deallocate(each->second.ptr, each->second.bytes, on);
        on.synchronize();
      }
      for (auto* const each : {&a, &b, &c}) { each->first = graph{}; }
      shared.release(stream);
      alone.release(second);
    }
    stream.synchronize();
    second.synchronize();
  }
  ends = true;
  for (auto& each : others) { each.join(); }
  EXPECT_EQ(work.foreign(), 0U);
}

}  // namespace rmm::test
