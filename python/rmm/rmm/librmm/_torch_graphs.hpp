// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream_view.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace rmm_python {

/// Memory of the CUDA graphs that PyTorch captures.
///
/// PyTorch tells when a capture begins and ends, but not on which stream: it passes a function that answers whether a stream is part of
/// the capture. So the first allocation or deallocation on such a stream announces the capture to the library. Thread-safe.
///
/// Order: the mutex guards the containers. underway_ says whether to take it. A call on a stream of a capture happens after begin(), so it
/// does not read 0. Another thread may read an old number, and takes the mutex once too often, or has nothing to announce.
class torch_graphs {
 public:
  /// c10::cuda::MempoolId_t
  using pool_id = std::pair<unsigned long long, unsigned long long>;
  using filter  = std::function<bool(cudaStream_t)>;

  /// Call it when a capture begins. `is_in_it(stream)` answers whether a stream is part of it. Throws std::bad_alloc.
  void begin(int device, pool_id pool, filter is_in_it)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto& memory = memories_[{device, pool}];
    captures_.emplace_back(device, pool, std::move(is_in_it), memory.graphs);
    ++memory.users;
    underway_.fetch_add(1, std::memory_order_release);
  }

  /// Call it when a capture is over. Its graph keeps the memory.
  void end(int device, pool_id pool) noexcept
  {
    std::list<capture> ended;  // outlives the lock
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const it = std::find_if(captures_.begin(), captures_.end(), [&](capture const& each) {
      return each.device == device && each.pool == pool;
    });
    if (it == captures_.end()) { return; }
    ended.splice(ended.begin(), captures_, it);
    underway_.fetch_sub(1, std::memory_order_release);
  }

  /// Call it when a graph is destroyed. The last graph of a pool gives the pool's memory back.
  void release(int device, pool_id pool) noexcept
  {
    decltype(memories_)::node_type ended;  // outlives the lock
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const found = memories_.find({device, pool});
    if (found != memories_.end() && --found->second.users == 0) { ended = memories_.extract(found); }
  }

  /// Announces the capture that `stream` is part of, if there is one. Throws as PyTorch's function does, and std::bad_alloc.
  void announce(int device, cudaStream_t stream)
  {
    if (underway_.load(std::memory_order_acquire) == 0) { return; }
    std::lock_guard<std::mutex> const lock{mutex_};
    for (auto& each : captures_) {
      if (each.device == device && !each.announced && each.is_in_it(stream)) {
        each.announced.emplace(rmm::cuda_stream_view{stream}, each.memory);
      }
    }
  }

 private:
  struct shared_memory {
    rmm::graph_memory graphs{};
    std::size_t users{};  // captures that have begun and whose graphs were not destroyed
  };

  struct capture {
    capture(int number, pool_id id, filter in_it, rmm::graph_memory graphs)
      : device{number}, pool{id}, is_in_it{std::move(in_it)}, memory{std::move(graphs)}
    {}

    int device;
    pool_id pool;
    filter is_in_it;
    rmm::graph_memory memory;
    std::optional<rmm::capture_scope> announced;
  };

  std::mutex mutex_;  // guards the containers
  std::list<capture> captures_;
  std::map<std::pair<int, pool_id>, shared_memory> memories_;
  std::atomic<int> underway_{0};  // the size of captures_
};

}  // namespace rmm_python
