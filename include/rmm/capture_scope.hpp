// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cstdint>
#include <memory>
#include <utility>

/// @file
/// Allocation from a pool while a stream captures a CUDA graph:
///
///   rmm::graph_memory memory;  // keep it as long as the graph may run
///   cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
///   {
///     rmm::capture_scope const scope{stream, memory};
///     work(stream);  // allocates, launches, frees
///   }
///   cudaStreamEndCapture(stream, &graph);
///
/// docs/cuda-graphs.md has the rules.

namespace RMM_NAMESPACE {

/// A handle to memory that pools keep for CUDA graphs. Hold one as long as a graph may run. Copies share the memory.
///
/// A graph holds the addresses that its capture allocated, and uses them in every launch. As long as a handle exists, pools give that
/// memory only to captures with the same graph memory. Graphs that share it must not run at the same time, and each launch may
/// overwrite what another graph left there.
///
/// The memory comes from the pools that the captures use. When the last handle is destroyed, the pools take back what is not allocated,
/// and later the rest, as it is freed. A pool may be destroyed before the handle. A default-constructed object has new memory; a
/// moved-from object has none.
///
/// Threads  as std::shared_ptr.
class graph_memory {
 public:
  /// Throws std::bad_alloc.
  graph_memory() : owner_{std::make_shared<owner>()} {}

  /// Gives this handle up. If it is the last one, pools reuse the memory in the order of `stream`, without a wait for the device.
  /// `stream` must be ordered after the last launch of each graph.
  ///
  /// Memory whose last handle ends without this call, or while `stream` captures, is reused after the pool next waits for the device.
  void release(cuda_stream_view stream) noexcept
  {
    auto const last = std::move(owner_);
    if (last == nullptr || last.use_count() != 1) { return; }
    last->end.has_stream = true;
    last->end.stream     = stream.value();
  }

  /// Returns a number that names the memory in this process and is never reused; 0 for a moved-from handle.
  [[nodiscard]] std::uint64_t id() const noexcept { return owner_ != nullptr ? owner_->end.memory : 0; }

  friend bool operator==(graph_memory const& lhs, graph_memory const& rhs) noexcept { return lhs.id() == rhs.id(); }
  friend bool operator!=(graph_memory const& lhs, graph_memory const& rhs) noexcept { return lhs.id() != rhs.id(); }

 private:
  struct owner {
    owner() { end.memory = captures.new_memory(); }
    ~owner()
    {
      if (process.is_current()) { captures.end_memory(end); }
    }
    owner(owner const&)            = delete;
    owner& operator=(owner const&) = delete;

    detail::capture_announcements& captures{detail::announced_captures()};
    detail::graph_memory_end end;
    detail::owning_process process;
  };

  std::shared_ptr<owner> owner_;
};

/// A scope that tells pools that a stream captures a CUDA graph. Use it around code that allocates during a capture: that memory comes
/// from a graph_memory, and freed memory stays there.
///
/// Construct it right before or right after the capture begins. It covers every stream of the capture, in any thread, also streams that
/// join the capture by waiting for an event. Other streams allocate as usual. It covers several captures in turn on one stream, and
/// several scopes may exist.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, std::size_t{1} << 20};
/// rmm::cuda_stream const stream;
/// rmm::graph_memory memory;  // lives as long as the graph may run
/// cudaGraph_t graph{};
/// cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeThreadLocal);
/// {
///   rmm::capture_scope const scope{stream.view(), memory};
///   rmm::device_buffer scratch{1000, stream.view(), pool};
///   cudaMemsetAsync(scratch.data(), 0, scratch.size(), stream.value());
/// }
/// cudaStreamEndCapture(stream.value(), &graph);
/// cudaGraphDestroy(graph);
/// memory.release(stream.view());
/// @endcode
/// Cost  while a scope exists, each call of a pool, in all threads, asks the driver whether its stream captures: about 20 ns.
class capture_scope {
 public:
  /// Throws logic_error if `memory` is a moved-from handle, std::bad_alloc.
  explicit capture_scope(cuda_stream_view stream, graph_memory memory = {}) : memory_{std::move(memory)}
  {
    RMM_EXPECTS(memory_.id() != 0,
                "The graph_memory of a capture_scope was moved from: pass one that still has memory");
    announcement_.stream = stream.value();
    announcement_.memory = memory_.id();
    captures_.add(announcement_);
  }
  ~capture_scope()
  {
    if (process_.is_current()) { captures_.remove(announcement_); }
  }

  capture_scope(capture_scope const&)            = delete;
  capture_scope& operator=(capture_scope const&) = delete;

  /// Returns the memory of the graph. Keep a copy as long as the graph may run.
  [[nodiscard]] graph_memory const& memory() const noexcept { return memory_; }

 private:
  graph_memory memory_;
  detail::capture_announcements& captures_{detail::announced_captures()};
  detail::capture_announcement announcement_;
  detail::owning_process process_;
};

}  // namespace RMM_NAMESPACE
