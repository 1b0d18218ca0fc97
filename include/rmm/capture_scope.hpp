// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cstdint>
#include <memory>
#include <utility>

/// @file
/// Allocating from a pool while a stream captures a CUDA graph:
///
///   rmm::graph_memory memory;  // as long as the graph may run
///   cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
///   {
///     rmm::capture_scope const scope{stream, memory};
///     work(stream);  // allocates, launches, frees
///   }
///   cudaStreamEndCapture(stream, &graph);
///
/// docs/cuda-graphs.md has the rules.

namespace RMM_NAMESPACE {

/// Memory that CUDA graphs have for themselves: a handle, whose copies share the memory.
///
/// A graph holds the addresses that were allocated in its capture, and uses them whenever it runs. As long as there is a handle,
/// pools hand that memory out to later captures with the same graph memory, and to nobody else. Graphs that share it must not
/// run at the same time, and none finds again what it left there before another ran.
///
/// The memory comes from whatever pools are used in the captures. When the last handle goes they take back what is not
/// allocated, the rest when it is freed; a pool may be destroyed before. A default-constructed object has memory of its own,
/// a moved-from one none.
///
/// Handles may be used from several threads as std::shared_ptr may.
class graph_memory {
 public:
  /// Throws std::bad_alloc.
  graph_memory() : owner_{std::make_shared<owner>()} {}

  /// Gives this handle up. If it is the last, the memory may be used again in the order of `stream`, which must be ordered
  /// after the last launch of each graph: nothing has to wait for the device then. Without that, or where the stream captures,
  /// the memory is used again after the pool next waits for the device.
  void release(cuda_stream_view stream) noexcept
  {
    auto const last = std::move(owner_);
    if (last == nullptr || last.use_count() != 1) { return; }
    last->end.has_stream = true;
    last->end.stream     = stream.value();
  }

  /// Names the memory in this process; 0 if there is none. Never used again.
  [[nodiscard]] std::uint64_t id() const noexcept { return owner_ != nullptr ? owner_->end.memory : 0; }

  friend bool operator==(graph_memory const& lhs, graph_memory const& rhs) noexcept { return lhs.id() == rhs.id(); }
  friend bool operator!=(graph_memory const& lhs, graph_memory const& rhs) noexcept { return lhs.id() != rhs.id(); }

 private:
  struct owner {
    owner() { end.memory = captures.new_memory(); }
    ~owner() { captures.end_memory(end); }
    owner(owner const&)            = delete;
    owner& operator=(owner const&) = delete;

    detail::capture_announcements& captures{detail::announced_captures()};
    detail::graph_memory_end end;
  };

  std::shared_ptr<owner> owner_;
};

/// Announces, as long as it lives, that a stream captures a CUDA graph: what the capture allocates from pools comes from a
/// graph_memory, and what it frees stays there.
///
/// Begin it where the capture begins, before or after. It holds for whatever stream is in the capture, in any thread: streams
/// join by waiting for an event of it. Streams that are not go on as always. It holds for one capture after another on the same
/// stream, and there may be several scopes.
///
/// While there is a scope, all threads' calls of pools ask the driver what their stream does, which costs about 20 ns each.
class capture_scope {
 public:
  /// Throws logic_error if the memory is that of a moved-from handle, std::bad_alloc.
  explicit capture_scope(cuda_stream_view stream, graph_memory memory = {}) : memory_{std::move(memory)}
  {
    RMM_EXPECTS(memory_.id() != 0, "A capture needs a graph memory that was not moved from");
    announcement_.stream = stream.value();
    announcement_.memory = memory_.id();
    captures_.add(announcement_);
  }
  ~capture_scope() { captures_.remove(announcement_); }

  capture_scope(capture_scope const&)            = delete;
  capture_scope& operator=(capture_scope const&) = delete;

  /// What the graph needs as long as it may run.
  [[nodiscard]] graph_memory const& memory() const noexcept { return memory_; }

 private:
  graph_memory memory_;
  detail::capture_announcements& captures_{detail::announced_captures()};
  detail::capture_announcement announcement_;
};

}  // namespace RMM_NAMESPACE
