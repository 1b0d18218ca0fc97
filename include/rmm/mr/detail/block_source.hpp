// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/bits.hpp>
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

/// A source of memory for a heap. Memory that the heap does not need goes back to it, and its destructor gives all memory back; after
/// that the heap may only be destroyed. Functions that need virtual memory throw logic_error or return null in a source without it.
///
/// Threads  all calls need the growth mutex of the pool, except chunk_bytes(), contains(), held_by_all() and describe().
class memory_source {
 public:
  memory_source()                                = default;
  memory_source(memory_source const&)            = delete;
  memory_source& operator=(memory_source const&) = delete;
  virtual ~memory_source()                       = default;

  /// Returns the bytes that are taken and given back at a time; 0 if the source has no virtual memory, and so no chunks.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }

  /// Whether the block lies in the addresses of the source. False without virtual memory.
  [[nodiscard]] bool contains(void const* ptr) const noexcept
  {
    return reinterpret_cast<std::uintptr_t>(ptr) - addresses_.begin < addresses_.bytes;
  }

  /// Return the bytes that the source holds, alone or with its parts.
  [[nodiscard]] virtual std::size_t held() const noexcept = 0;
  [[nodiscard]] virtual std::size_t held_by_all() const noexcept { return held(); }

  /// Returns the most bytes that the source may hold together with its parts; nothing: no limit.
  [[nodiscard]] virtual std::optional<std::size_t> maximum() const noexcept = 0;

  /// Adds the source's own figures to the report of a failure.
  virtual void describe(memory_report& report) const = 0;

  /// Takes the first memory of a pool, which every stream may use. Returns false, and sets `reason`, if there is not enough.
  [[nodiscard]] virtual bool try_take(std::size_t bytes, failure_reason& reason) = 0;

  /// Serves recovery_rungs::try_grow(). `may_remap`: whether the ladder may call remap() next.
  [[nodiscard]] virtual void* grow(std::size_t bytes,
                                   cuda_stream_view stream,
                                   bool may_remap,
                                   failure_reason& reason) = 0;

  /// Serve recovery_rungs::try_remap() and could_remap_idle().
  [[nodiscard]] virtual void* remap(std::size_t, cuda_stream_view, failure_reason&) { return nullptr; }
  [[nodiscard]] virtual bool could_remap_idle(std::size_t, cuda_stream_view) { return false; }

  /// Gives free, fenced memory back until the heap has at most `bytes`. Returns the bytes given back.
  virtual std::size_t trim(std::size_t bytes) = 0;

  /// Returns the bytes of the heap that trim(bytes) would give back; `with_unfenced`: if all free memory was fenced.
  [[nodiscard]] virtual std::size_t unused_bytes(std::size_t bytes, bool with_unfenced) = 0;

  /// Returns the bytes that trim(0) would give back. For a pool that gives memory back after a time.
  [[nodiscard]] virtual std::size_t idle_bytes() { return 0; }

  /// Gives all memory back and keeps the addresses. resume() maps memory to them again. Both throw as the pool's functions do.
  virtual void pause(bool /*keeps_contents*/, bool /*pinned*/) { refuse("Pausing"); }
  virtual void resume() {}

  /// Returns the copy on the host of memory that is paused with its contents; null if there is none.
  [[nodiscard]] virtual void const* kept_contents(void const* /*ptr*/, std::size_t /*bytes*/) const noexcept
  {
    return nullptr;
  }

  /// Whether resume() keeps the memory of the host for the next pause; initially not.
  virtual void retain_host_memory(bool /*on*/) noexcept {}

  /// Makes a source for a heap that can be paused alone. It shares the maximum of this one.
  [[nodiscard]] virtual rmm::detail::owned_ptr<memory_source> make_part(rmm::detail::stream_ordered_heap&)
  {
    refuse("Pausing");
  }

  /// The chunks that a block touches, and the offset of the block in the first one.
  struct exported_chunks {
    std::size_t offset_bytes;
    std::vector<rmm::detail::physical_memory const*> memory;
  };
  [[nodiscard]] virtual exported_chunks export_chunks(void const*, std::size_t) { refuse("Exporting"); }

  /// Notes that chunks were exported, after which pause() throws.
  virtual void note_export() noexcept {}

  /// Returns the sum of the sizes.
  [[nodiscard]] static std::size_t total_of(std::vector<rmm::detail::address_range> const& ranges) noexcept
  {
    std::size_t sum{};
    for (auto const range : ranges) { sum += range.bytes; }
    return sum;
  }

 protected:
  std::size_t chunk_bytes_{};
  rmm::detail::address_range addresses_{};

 private:
  [[noreturn]] RMM_COLD static void refuse(char const* what)
  {
    RMM_FAIL(std::string{what} + " needs virtual memory, which the device does not have");
  }
};

/// Makes a source give memory back until its heap has at most `bytes`. If more would go back with events, records them on the streams
/// that are alive. If that is not enough, waits for the devices. All allocations wait meanwhile, so a kernel that waits for a host thread
/// that allocates would never end. Returns the bytes given back, also if host memory runs out in between.
RMM_COLD inline std::size_t trim_as_far_as_possible(memory_source& source,
                                                    rmm::detail::stream_ordered_heap& heap,
                                                    std::size_t bytes) noexcept
{
  auto const needs_fences = [&] {
    auto const all = source.unused_bytes(bytes, true);
    return all != 0 && all > source.unused_bytes(bytes, false);
  };
  std::size_t given{};
  try {
    given += source.trim(bytes);
    if (!needs_fences()) { return given; }
    heap.fence_live_streams();
    given += source.trim(bytes);
    if (needs_fences() && heap.wait_for_all()) { given += source.trim(bytes); }
  } catch (std::exception const&) {}  // a stream cannot be made, or host memory ran out
  return given;
}

/// A source that takes blocks from an upstream resource, and chooses the blocks that go back. Refers to the heap and the upstream.
template <class Upstream>
class block_source final : public memory_source {
 public:
  using leaving = rmm::detail::leaving;
  using ranges  = std::vector<rmm::detail::address_range>;

  /// `maximum`  the most bytes to hold; without one, there is no limit.
  /// `owner`    the word for the owner of the heap in texts of failures.
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

  [[nodiscard]] std::optional<std::size_t> maximum() const noexcept override { return maximum_; }

  [[nodiscard]] std::size_t held() const noexcept override { return heap_.block_bytes(); }

  void describe(memory_report& report) const override
  {
    report.maximum_bytes = maximum_;
    report.is_of_device  = !::cuda::has_property<Upstream, ::cuda::mr::host_accessible>;
    if (!is_device_accessible<Upstream>) { report.device_figures.reset(); }
  }

  /// Returns the bytes that may still be taken from upstream, a multiple of the heap's granule.
  [[nodiscard]] std::size_t room() const noexcept
  {
    auto const most = align_down(maximum_.value_or(rmm::detail::max_value<std::size_t>), CUDA_ALLOCATION_ALIGNMENT);
    return maximum_ ? most - rmm::detail::min(most, held()) : most;
  }

  /// Takes a block from upstream on `stream` and allocates its first `bytes` bytes, possibly 0. Exceptions of upstream propagate. Throws
  /// std::bad_alloc, and gives the block back, if host memory runs out.
  void* add(std::size_t block_bytes, std::size_t bytes, cuda_stream_view stream)
  {
    return note(upstream_.allocate(block_bytes, stream), block_bytes, bytes, stream);
  }

  /// The kind of memory to ask upstream for: its usual one, or the substitute; see suballocator_upstream.
  enum class choice : bool { first, second };

  /// As add(), but returns nothing, and sets `reason`, instead of throwing. Only throws bad_alloc if upstream failed because the process
  /// can use no device, and logic_error if upstream does, or if the stream is found to be in an unannounced capture.
  [[nodiscard]] std::optional<void*> try_add(std::size_t block_bytes,
                                             std::size_t bytes,
                                             cuda_stream_view stream,
                                             failure_reason& reason,
                                             choice kind = choice::first)
  {
    void* block{};
    try {
      block =
        kind == choice::first ? upstream_.allocate(block_bytes, stream) : upstream_.allocate_second_choice(block_bytes);
    } catch (logic_error const&) {
      throw;  // a mistake of the program, which no memory would mend
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
      reason = "the pool could not record a block, because host memory ran out or a wait for the device failed";
      return std::nullopt;
    }
  }

  [[nodiscard]] RMM_COLD bool try_take(std::size_t bytes, failure_reason& reason) override
  {
    auto const try_choice = [&](choice kind) {
      return try_add(bytes, 0, cuda_stream_legacy, reason, kind).has_value();
    };
    if (!try_choice(choice::first) && !(upstream_.has_second_choice() && try_choice(choice::second))) { return false; }
    heap_.settle();
    return true;
  }

  /// The sizes to ask upstream for. The first is `wanted`, and each following one is half as large, down to `needed`.
  struct growth {
    std::size_t wanted;
    std::size_t needed;
    std::size_t left;  ///< the largest size to ask for
    std::size_t unit{
      CUDA_ALLOCATION_ALIGNMENT};  ///< `wanted` is rounded to multiples of this; `needed` and `left` are not
  };

  /// Takes a block and allocates its first `how.needed` bytes. Returns null, and sets `reason`, if upstream does not have as much, or if
  /// less is left. Asks for the substitute only after upstream has refused all sizes of its own kind of memory. Throws as try_add().
  [[nodiscard]] RMM_COLD void* grow(growth const& how, cuda_stream_view stream, failure_reason& reason)
  {
    if (how.needed > how.left) {
      reason = std::string{"the "} + owner_ + " holds " + rmm::detail::format_bytes(held()) + " of at most " +
               rmm::detail::format_bytes(*maximum_) + " and no free part of it is large enough";
      return nullptr;
    }
    auto found = try_sizes(how, stream, reason, choice::first);
    if (!found && upstream_.has_second_choice()) { found = try_sizes(how, stream, reason, choice::second); }
    return found.value_or(nullptr);
  }

  /// Doubles the memory, or takes less if upstream has less.
  [[nodiscard]] void* grow(std::size_t bytes, cuda_stream_view stream, bool, failure_reason& reason) override
  {
    return grow({held(), bytes, room()}, stream, reason);
  }

  /// Returns blocks without an allocation, by address: the largest ones of more than `larger_than` bytes, until `keep` bytes are left.
  /// With `with_unfenced`, also blocks of memory without a fence. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD ranges unused_blocks(std::size_t keep, std::size_t larger_than = 0, bool with_unfenced = false)
  {
    ranges blocks;
    auto least = rmm::detail::max_value<std::size_t>;
    for (auto const block : heap_.blocks()) {
      if (block.bytes <= larger_than) { continue; }
      blocks.push_back(block);
      least = rmm::detail::min(least, block.bytes);
    }
    auto const runs = heap_.free_runs({align_down(least, rmm::detail::heap_granule), nullptr, with_unfenced});
    auto run        = runs.begin();
    auto const used = [&](rmm::detail::address_range block) {
      block.bytes = align_down(block.bytes, rmm::detail::heap_granule);  // the heap hands out no less
      while (run != runs.end() && run->end() < block.end()) { ++run; }
      return run == runs.end() || run->begin > block.begin;
    };
    blocks.erase(rmm::detail::remove_if(blocks.begin(), blocks.end(), used), blocks.end());
    rmm::detail::sort(
      blocks.begin(), blocks.end(), [](auto const& lhs, auto const& rhs) { return lhs.bytes > rhs.bytes; });
    auto rest = held();
    auto last = blocks.begin();
    for (; last != blocks.end() && rest > keep; ++last) {
      rest -= rmm::detail::min(rest, last->bytes);
    }  // fewer may be held by now
    blocks.erase(last, blocks.end());
    rmm::detail::sort(
      blocks.begin(), blocks.end(), [](auto const& lhs, auto const& rhs) { return lhs.begin < rhs.begin; });
    return blocks;
  }

  /// Whether blocks can go back in the order of `stream`: it does not capture, because it could not wait for work outside of its graph.
  [[nodiscard]] bool can_give_back(cuda_stream_view stream) const
  {
    return !upstream_.names_another(stream) && rmm::detail::is_known_to_run(stream.value());
  }

  /// Gives blocks back to upstream in the order of `stream`, which waits for the work that used them. Skips blocks that are allocated by
  /// now, and those whose memory may not leave the heap according to `when`. With `waits_first`, the host waits for the stream before
  /// upstream gets the blocks. Returns the bytes given back. Throws std::bad_alloc, and gives nothing back then.
  RMM_COLD std::size_t give_back(ranges const& blocks, cuda_stream_view stream, leaving when, bool waits_first = false)
  {
    auto const taken = heap_.withdraw(blocks, when, stream, true);
    if (waits_first && !taken.empty()) { stream.synchronize_no_throw(); }
    std::size_t sum{};
    for (auto const block : taken) {
      upstream_.deallocate_async(
        reinterpret_cast<void*>(block.begin), block.bytes, stream);  // NOLINT: the heap works on addresses
      sum += block.bytes;
    }
    return sum;
  }

  /// The host waits twice: before blocks go back, because upstream may ignore streams; and afterwards, because upstream may free them
  /// later, in the order of the stream.
  RMM_COLD std::size_t trim(std::size_t bytes) override
  {
    if (held() <= bytes) { return 0; }
    cuda_stream const stream{cuda_stream::flags::non_blocking};
    auto const given = give_back(unused_blocks(bytes), stream, leaving::after_a_wait, true);
    if (given != 0) { stream.synchronize_no_throw(); }
    return given;
  }

  [[nodiscard]] RMM_COLD std::size_t unused_bytes(std::size_t bytes, bool with_unfenced) override
  {
    return held() <= bytes ? 0 : total_of(unused_blocks(bytes, 0, with_unfenced));
  }

 private:
  [[nodiscard]] std::optional<void*> try_sizes(growth const& how,
                                               cuda_stream_view stream,
                                               failure_reason& reason,
                                               choice kind)
  {
    for (auto wanted = rmm::detail::clamp(align_up(how.wanted, how.unit), how.needed, how.left);;
         wanted      = rmm::detail::max(how.needed, align_down(wanted / 2, how.unit))) {
      auto const ptr = try_add(wanted, how.needed, stream, reason, kind);
      if (ptr || wanted == how.needed) { return ptr; }
    }
  }

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
