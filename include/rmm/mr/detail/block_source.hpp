// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/failure_reason.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {
class physical_memory;
}

namespace mr {
namespace detail {

/// Where the memory of a heap comes from, and where it goes back to. Its destructor gives all back; after that the heap may only be
/// destroyed. What a source without virtual memory cannot do throws logic_error, or returns null.
///
/// Threads  All calls but those of chunk_bytes(), contains(), held_by_all() and describe() need the growth mutex of the pool.
class memory_source {
 public:
  memory_source()                                = default;
  memory_source(memory_source const&)            = delete;
  memory_source& operator=(memory_source const&) = delete;
  virtual ~memory_source()                       = default;

  /// Bytes that are taken and given back at a time; 0 if any number may be. Only a source with virtual memory has chunks.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }

  /// Whether the block lies in the addresses of a source with virtual memory.
  [[nodiscard]] bool contains(void const* ptr) const noexcept
  {
    return reinterpret_cast<std::uintptr_t>(ptr) - addresses_.begin < addresses_.bytes;
  }

  /// Bytes that the source holds, and that it holds together with its parts.
  [[nodiscard]] virtual std::size_t held() const noexcept = 0;
  [[nodiscard]] virtual std::size_t held_by_all() const noexcept { return held(); }

  /// Adds what only the source knows to the report of a failure.
  virtual void describe(memory_report& report) const = 0;

  /// Takes first memory that every stream may use. Returns false, and sets `reason`, if there is not so much.
  [[nodiscard]] virtual bool try_take(std::size_t bytes, failure_reason& reason) = 0;

  /// Does what recovery_rungs::try_grow() says. `may_remap`: remap() may come next.
  [[nodiscard]] virtual void* grow(std::size_t bytes,
                                   cuda_stream_view stream,
                                   bool may_remap,
                                   failure_reason& reason) = 0;

  /// Does what recovery_rungs::try_remap() and could_remap_idle() say.
  [[nodiscard]] virtual void* remap(std::size_t, cuda_stream_view, failure_reason&) { return nullptr; }
  [[nodiscard]] virtual bool could_remap_idle(std::size_t, cuda_stream_view) { return false; }

  /// Gives free memory that is fenced back until at most `bytes` stay with the heap. Returns the bytes given back.
  virtual std::size_t trim(std::size_t bytes) = 0;

  /// Bytes that trim(0) would give back, for a pool that gives memory back by itself.
  [[nodiscard]] virtual std::size_t idle_bytes() { return 0; }

  /// Gives all memory back and keeps the addresses; resume() puts memory behind them again. Throws as the pool's functions do.
  virtual void pause(bool /*keeps_contents*/, bool /*pinned*/) { refuse("Pausing"); }
  virtual void resume() {}

  /// Makes a source for a heap that can be paused by itself, within the bounds of this one.
  [[nodiscard]] virtual rmm::detail::owned_ptr<memory_source> make_part(rmm::detail::stream_ordered_heap&)
  {
    refuse("Pausing");
  }

  /// The chunks that a block touches, and how far from the begin of the first one it begins.
  struct exported_chunks {
    std::size_t offset_bytes;
    std::vector<rmm::detail::physical_memory const*> memory;
  };
  [[nodiscard]] virtual exported_chunks export_chunks(void const*, std::size_t) { refuse("Exporting"); }

 protected:
  std::size_t chunk_bytes_{};
  rmm::detail::address_range addresses_{};

 private:
  [[noreturn]] RMM_COLD static void refuse(char const* what)
  {
    RMM_FAIL(std::string{what} + " takes virtual memory, which the device does not have");
  }
};

/// The upstream blocks of a heap: takes them, and chooses those that go back. Refers to the heap and to the upstream.
template <class Upstream>
class block_source final : public memory_source {
 public:
  using leaving = rmm::detail::stream_ordered_heap::leaving;
  using ranges  = std::vector<rmm::detail::address_range>;

  /// `maximum`  bytes that are taken from upstream at most; without one, as much as upstream gives.
  /// `owner`    what texts of failures call the owner of the heap.
  block_source(rmm::detail::stream_ordered_heap& heap,
               suballocator_upstream<Upstream>& upstream,
               std::optional<std::size_t> maximum = std::nullopt,
               char const* owner                  = "pool") noexcept
    : heap_{heap}, upstream_{upstream}, maximum_{maximum}, owner_{owner}
  {}
  ~block_source() override
  {
    heap_.release_blocks([this](void* block, std::size_t bytes) { upstream_.deallocate(block, bytes); });
  }

  [[nodiscard]] std::optional<std::size_t> maximum() const noexcept { return maximum_; }

  [[nodiscard]] std::size_t held() const noexcept override { return heap_.block_bytes(); }

  void describe(memory_report& report) const override
  {
    report.maximum_bytes = maximum_;
    report.is_of_device  = !::cuda::has_property<Upstream, ::cuda::mr::host_accessible>;
    if (!is_device_accessible<Upstream>) { report.device_figures.reset(); }
  }

  /// What may still be taken from upstream, a multiple of the heap's granule.
  [[nodiscard]] std::size_t room() const noexcept
  {
    auto const most = align_down(maximum_.value_or(std::numeric_limits<std::size_t>::max()), CUDA_ALLOCATION_ALIGNMENT);
    return maximum_ ? most - rmm::detail::min(most, held()) : most;
  }

  /// Takes a block from upstream on `stream` and allocates its first `bytes` bytes, possibly none. Throws what upstream throws,
  /// and std::bad_alloc if the host has no memory to note the block; nothing has changed then.
  void* add(std::size_t block_bytes, std::size_t bytes, cuda_stream_view stream)
  {
    return note(upstream_.allocate(block_bytes, stream), block_bytes, bytes, stream);
  }

  /// Does what add() does. Returns nothing, and sets `reason`, where that throws. Throws bad_alloc if upstream failed because the
  /// process can use no device.
  [[nodiscard]] std::optional<void*> try_add(std::size_t block_bytes,
                                             std::size_t bytes,
                                             cuda_stream_view stream,
                                             failure_reason& reason)
  {
    void* block{};
    try {
      block = upstream_.allocate(block_bytes, stream);
    } catch (std::exception const& e) {
      bool const is_shortage = dynamic_cast<out_of_memory const*>(&e) != nullptr;
      bool const is_of_cuda =
        dynamic_cast<cuda_error const*>(&e) != nullptr || dynamic_cast<rmm::bad_alloc const*>(&e) != nullptr;
      if (is_of_cuda && !is_shortage) { rmm::detail::expect_usable_device(block_bytes); }
      reason = failure_reason::from_current(e);
      return std::nullopt;
    }
    try {
      return note(block, block_bytes, bytes, stream);
    } catch (std::bad_alloc const&) {
      reason = "the host has no memory to note a block";
      return std::nullopt;
    }
  }

  [[nodiscard]] RMM_COLD bool try_take(std::size_t bytes, failure_reason& reason) override
  {
    if (!try_add(bytes, 0, cuda_stream_legacy, reason)) { return false; }
    heap_.settle();
    return true;
  }

  /// How much to ask upstream for.
  struct growth {
    std::size_t wanted;                           ///< at first, and then half as much each time ...
    std::size_t needed;                           ///< ... down to this
    std::size_t left;                             ///< at most
    std::size_t unit{CUDA_ALLOCATION_ALIGNMENT};  ///< what is asked for is a multiple of this
  };

  /// Takes a block and allocates its first `how.needed` bytes. Returns null, and sets `reason`, if upstream does not give even
  /// that, or less is left.
  [[nodiscard]] RMM_COLD void* grow(growth const& how, cuda_stream_view stream, failure_reason& reason)
  {
    if (how.needed > how.left) {
      reason = std::string{"the "} + owner_ + " holds " + rmm::detail::format_bytes(held()) + " of at most " +
               rmm::detail::format_bytes(*maximum_) + " and no free part of it is large enough";
      return nullptr;
    }
    for (auto wanted = rmm::detail::clamp(align_up(how.wanted, how.unit), how.needed, how.left);;
         wanted      = rmm::detail::max(how.needed, align_down(wanted / 2, how.unit))) {
      if (auto const ptr = try_add(wanted, how.needed, stream, reason)) { return *ptr; }
      if (wanted == how.needed) { return nullptr; }
    }
  }

  /// Takes as much again as there is, if upstream gives it.
  [[nodiscard]] void* grow(std::size_t bytes, cuda_stream_view stream, bool, failure_reason& reason) override
  {
    return grow({held(), bytes, room()}, stream, reason);
  }

  /// Blocks of more than `larger_than` bytes that hold no allocation, ascending: the largest, as many as leave `keep` bytes with
  /// the heap. With `with_unfenced` also those that work without an event may use. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD ranges unused_blocks(std::size_t keep, std::size_t larger_than = 0, bool with_unfenced = false)
  {
    ranges blocks;
    auto least = std::numeric_limits<std::size_t>::max();
    for (auto const block : heap_.blocks()) {
      if (block.bytes <= larger_than) { continue; }
      blocks.push_back(block);
      least = rmm::detail::min(least, block.bytes);
    }
    auto const runs = heap_.free_runs({align_down(least, rmm::detail::heap_granule), nullptr, with_unfenced});
    auto run        = runs.begin();
    auto const used = [&](rmm::detail::address_range block) {
      while (run != runs.end() && run->end() < block.end()) { ++run; }
      return run == runs.end() || run->begin > block.begin;
    };
    blocks.erase(rmm::detail::remove_if(blocks.begin(), blocks.end(), used), blocks.end());
    rmm::detail::sort(
      blocks.begin(), blocks.end(), [](auto const& lhs, auto const& rhs) { return lhs.bytes > rhs.bytes; });
    auto rest = held();
    auto last = blocks.begin();
    for (; last != blocks.end() && rest > keep; ++last) { rest -= last->bytes; }
    blocks.erase(last, blocks.end());
    rmm::detail::sort(
      blocks.begin(), blocks.end(), [](auto const& lhs, auto const& rhs) { return lhs.begin < rhs.begin; });
    return blocks;
  }

  /// Gives those of the blocks that are still free, by `when`, back to upstream in the order of `stream`, which waits for the work
  /// that used them. With `waits_first` the host waits for that before. Returns their bytes. Throws std::bad_alloc, and has given
  /// nothing back then.
  RMM_COLD std::size_t give_back(ranges const& blocks, cuda_stream_view stream, leaving when, bool waits_first = false)
  {
    auto const taken = heap_.withdraw_blocks(blocks, stream, when);
    if (waits_first && !taken.empty()) { stream.synchronize_no_throw(); }
    std::size_t sum{};
    for (auto const block : taken) {
      upstream_.deallocate_async(
        reinterpret_cast<void*>(block.begin), block.bytes, stream);  // NOLINT: an address again
      sum += block.bytes;
    }
    return sum;
  }

  /// Waits on the host before it gives blocks back, for upstream may ignore streams, and after.
  RMM_COLD std::size_t trim(std::size_t bytes) override
  {
    cuda_stream const stream{cuda_stream::flags::non_blocking};
    auto const given = give_back(unused_blocks(bytes), stream, leaving::after_a_wait, true);
    if (given != 0) { stream.synchronize_no_throw(); }
    return given;
  }

 private:
  [[nodiscard]] void* note(void* block, std::size_t block_bytes, std::size_t bytes, cuda_stream_view stream)
  {
    rmm::detail::scope_guard give_back{[&]() noexcept { upstream_.undo_allocate(block, block_bytes, stream); }};
    void* const ptr = heap_.add_block_and_allocate(block, block_bytes, bytes, stream);
    give_back.dismiss();
    return ptr;
  }

  rmm::detail::stream_ordered_heap& heap_;
  suballocator_upstream<Upstream>& upstream_;
  std::optional<std::size_t> maximum_;
  char const* owner_;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
