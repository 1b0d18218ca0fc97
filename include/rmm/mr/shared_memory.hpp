// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/detail/base/file_descriptor.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

/// @file
/// Memory of an elastic pool that processes share.
///
/// The process that has the memory exports a block; the chunks that it lies in become file descriptors, or fabric handles, which
/// it sends to the other process by its own means: descriptors over a Unix socket, handles as bytes. There they are mapped
/// to addresses of their own. Nothing is shared unless a pool was made for it and a block was exported, but then whole chunks
/// are, with what else lies in them.

namespace RMM_NAMESPACE {
namespace mr {

/// Where a block lies in the chunks that it touches.
struct shared_block {
  std::size_t offset_bytes{};  ///< of the block in its first chunk
  std::size_t bytes{};
  std::size_t chunk_bytes{};

  /// How many chunks it touches.
  [[nodiscard]] constexpr std::size_t chunks() const noexcept
  {
    if (bytes == 0 || offset_bytes >= chunk_bytes) { return 0; }
    auto const first = bytes < chunk_bytes - offset_bytes ? bytes : chunk_bytes - offset_bytes;
    auto const rest  = bytes - first;
    return 1 + rest / chunk_bytes + (rest % chunk_bytes != 0 ? 1 : 0);
  }
};

/// A block as its pool exported it: elastic_pool_memory_resource::export_descriptors().
struct exported_descriptors {
  shared_block block{};
  std::vector<rmm::detail::file_descriptor> chunks;  ///< closed with this object; importers have duplicates
};

/// The same for other machines: elastic_pool_memory_resource::export_fabric().
struct exported_fabric {
  shared_block block{};
  std::vector<rmm::detail::fabric_handle> chunks;
};

/// A block of another process, mapped in this one as long as this object lives.
///
/// It is the same memory: what one process writes, the other reads, once the work that writes it is done. The other process has
/// to keep the block allocated as long as anybody uses it; its chunks stay in any case until all mappings have gone.
class imported_memory {
 public:
  /// `descriptors`: one for each chunk, in order; they stay the caller's. `device` is the one that is to use the memory, and
  /// that it belongs to. Throws logic_error if block and descriptors do not fit each other, cuda_error if the driver refuses
  /// them, bad_alloc if mapping fails.
  imported_memory(cuda_device_id device, shared_block const& block, std::vector<int> const& descriptors)
    : imported_memory{device, block, descriptors.size(), [&](std::size_t i) {
                        RMM_EXPECTS(descriptors[i] >= 0, "This is no descriptor of a chunk");
                        return rmm::detail::physical_memory::import_descriptor(
                          device.value(), block.chunk_bytes, descriptors[i]);
                      }}
  {}

  /// The same for descriptors that are written out: `imported_memory{device, block, {descriptor}}`.
  imported_memory(cuda_device_id device, shared_block const& block, std::initializer_list<int> descriptors)
    : imported_memory{device, block, std::vector<int>(descriptors)}
  {}

  /// The same for fabric handles.
  imported_memory(cuda_device_id device,
                  shared_block const& block,
                  std::vector<rmm::detail::fabric_handle> const& handles)
    : imported_memory{device, block, handles.size(), [&](std::size_t i) {
                        return rmm::detail::physical_memory::import_fabric(
                          device.value(), block.chunk_bytes, handles[i]);
                      }}
  {}

  imported_memory(imported_memory&&) noexcept        = default;
  imported_memory& operator=(imported_memory&&)      = delete;
  imported_memory(imported_memory const&)            = delete;
  imported_memory& operator=(imported_memory const&) = delete;

  /// No work may use the memory any more.
  ~imported_memory()
  {
    if (addresses_.bytes() != 0) { addresses_.unmap(addresses_.begin(), addresses_.bytes()); }
  }

  /// Address of the block in this process.
  [[nodiscard]] void* data() const noexcept
  {
    return reinterpret_cast<void*>(addresses_.begin() + offset_bytes_);  // NOLINT: addresses are integers here
  }

  /// Bytes of the block.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  template <class Import>
  imported_memory(cuda_device_id device, shared_block const& block, std::size_t count, Import&& import)
    : offset_bytes_{block.offset_bytes},
      bytes_{block.bytes},
      addresses_{device.value(), checked(block, count).chunk_bytes * count}
  {
    std::size_t mapped{};
    rmm::detail::scope_guard undo{[&]() noexcept {
      if (mapped != 0) { addresses_.unmap(addresses_.begin(), mapped); }
    }};
    for (std::size_t i = 0; i != count; ++i) {
      auto const chunk = import(i);
      addresses_.map(addresses_.begin() + i * block.chunk_bytes, chunk);
      mapped += block.chunk_bytes;
    }
    addresses_.set_access(addresses_.begin(), mapped, rmm::detail::device_access{{device.value()}});
    undo.dismiss();
  }

  [[nodiscard]] static shared_block const& checked(shared_block const& block, std::size_t count)
  {
    RMM_EXPECTS(block.bytes != 0 && block.chunk_bytes != 0 && block.offset_bytes < block.chunk_bytes,
                "This is not what a pool exported");
    RMM_EXPECTS(block.chunks() == count, "There has to be one handle for each chunk of the block");
    RMM_EXPECTS(count <= std::numeric_limits<std::size_t>::max() / block.chunk_bytes,
                "This is not what a pool exported");
    return block;
  }

  std::size_t offset_bytes_;
  std::size_t bytes_;
  rmm::detail::address_reservation addresses_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
