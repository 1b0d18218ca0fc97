// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/memory_report.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
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
  [[nodiscard]] virtual bool try_take(std::size_t bytes, std::string& reason) = 0;

  /// Does what recovery_rungs::try_grow() says. `may_remap`: remap() may come next.
  [[nodiscard]] virtual void* grow(std::size_t bytes, cuda_stream_view stream, bool may_remap, std::string& reason) = 0;

  /// Does what recovery_rungs::try_remap() and could_remap_idle() say.
  [[nodiscard]] virtual void* remap(std::size_t, cuda_stream_view, std::string&) { return nullptr; }
  [[nodiscard]] virtual bool could_remap_idle(std::size_t, cuda_stream_view) { return false; }

  /// Gives free memory that is fenced back until at most `bytes` stay with the heap. Returns the bytes given back.
  virtual std::size_t trim(std::size_t bytes) = 0;

  /// Bytes that trim(0) would give back, for a pool that gives memory back by itself.
  [[nodiscard]] virtual std::size_t idle_bytes() { return 0; }

  /// Gives all memory back and keeps the addresses; resume() puts memory behind them again. Throws as the pool's functions do.
  virtual void pause(bool /*keeps_contents*/, bool /*pinned*/) { refuse("Pausing"); }
  virtual void resume() {}

  /// Makes a source for a heap that can be paused by itself, within the bounds of this one.
  [[nodiscard]] virtual std::unique_ptr<memory_source> make_part(rmm::detail::stream_ordered_heap&)
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

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
