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
#include <string>
#include <utility>
#include <vector>

/// @file
/// Sharing of an elastic pool's memory between processes.
///
/// The owning process exports a block, and gets a file descriptor or a fabric handle for each chunk that the block lies in. The program
/// sends descriptors to the other process over a Unix socket, and handles as bytes. The other process maps the chunks to its own
/// addresses. Sharing requires a pool that was made for it. It covers whole chunks, with all other blocks in them.
///
/// A process that has a descriptor or a handle can read and write the chunks. mr/shared_memory_socket.hpp sends descriptors to processes of
/// the same user only. A program that sends them by other means has to check who gets them, and from whom it takes them.

namespace RMM_NAMESPACE {
namespace mr {

/// The position of a block in the chunks that it lies in.
struct shared_block {
  std::size_t offset_bytes{};  ///< offset of the block in its first chunk
  std::size_t bytes{};         ///< size of the block
  std::size_t chunk_bytes{};   ///< size of a chunk

  /// Returns the number of chunks that the block lies in.
  [[nodiscard]] constexpr std::size_t chunks() const noexcept
  {
    if (bytes == 0 || offset_bytes >= chunk_bytes) { return 0; }
    auto const first = bytes < chunk_bytes - offset_bytes ? bytes : chunk_bytes - offset_bytes;
    auto const rest  = bytes - first;
    return 1 + rest / chunk_bytes + (rest % chunk_bytes != 0 ? 1 : 0);
  }
};

/// A block that elastic_pool_memory_resource::export_descriptors() exported.
struct exported_descriptors {
  shared_block block{};
  std::vector<rmm::detail::file_descriptor> chunks;  ///< this object closes them; importers have duplicates
};

/// A block that elastic_pool_memory_resource::export_fabric() exported, also for other machines.
struct exported_fabric {
  shared_block block{};
  std::vector<rmm::detail::fabric_handle> chunks;
};

/// A mapping of a block that another process exported. Use it to read and write the block without copies.
///
/// Both processes use the same memory: one reads what the other wrote, once the writing work is done. The exporting process has to keep
/// the block allocated while any process uses it. The chunks are not freed before all mappings are gone.
///
/// @code{.cpp}
/// rmm::mr::elastic_pool_options options;
/// options.share_descriptors = true;
/// rmm::mr::elastic_pool_memory_resource pool{options};
/// void* const block   = pool.allocate(1000);
/// auto const exported = pool.export_descriptors(block, 1000);
/// {  // in another process, which got the descriptor through a socket
///   rmm::mr::imported_memory const imported{pool.get_device(), exported.block, {exported.chunks[0].get()}};
/// }
/// pool.deallocate(block, 1000);
/// @endcode
class imported_memory {
 public:
  /// Maps the chunks of `descriptors`, one for each chunk, in order. The caller keeps the descriptors. `device` uses the memory, and
  /// has to be the device that it belongs to.
  ///
  /// Throws logic_error if block and descriptors do not match, cuda_error if the driver refuses them, bad_alloc if mapping fails.
  imported_memory(cuda_device_id device, shared_block const& block, std::vector<int> const& descriptors)
    : imported_memory{device, block, descriptors.size(), [&](std::size_t i) {
                        RMM_EXPECTS(descriptors[i] >= 0,
                                    "Descriptor " + std::to_string(i) + " of a shared block is " +
                                      std::to_string(descriptors[i]) + ", not an open file descriptor");
                        return rmm::detail::physical_memory::import_descriptor(
                          device.value(), block.chunk_bytes, descriptors[i]);
                      }}
  {}

  /// Maps the chunks of a list of descriptors: `imported_memory{device, block, {descriptor}}`.
  imported_memory(cuda_device_id device, shared_block const& block, std::initializer_list<int> descriptors)
    : imported_memory{device, block, std::vector<int>(descriptors)}
  {}

  /// Maps the chunks of a block that receive_descriptors() received. Throws as the constructor for descriptors.
  imported_memory(cuda_device_id device, exported_descriptors const& memory)
    : imported_memory{device, memory.block, memory.chunks.size(), [&](std::size_t i) {
                        return rmm::detail::physical_memory::import_descriptor(
                          device.value(), memory.block.chunk_bytes, memory.chunks[i].get());
                      }}
  {}

  /// Maps the chunks of fabric handles, one for each chunk, in order. Throws as the constructor for descriptors.
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

  /// Unmaps the block. No work may use the memory any more.
  ~imported_memory()
  {
    if (addresses_.bytes() != 0) { addresses_.unmap(addresses_.begin(), addresses_.bytes()); }
  }

  /// Returns the address of the block in this process.
  [[nodiscard]] void* data() const noexcept
  {
    return reinterpret_cast<void*>(addresses_.begin() + offset_bytes_);  // NOLINT: addresses are integers here
  }

  /// Returns the size of the block in bytes.
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
    bool const is_valid = block.bytes != 0 && block.chunk_bytes != 0 && block.offset_bytes < block.chunk_bytes &&
                          block.chunks() <= std::numeric_limits<std::size_t>::max() / block.chunk_bytes;
    RMM_EXPECTS(is_valid,
                "No pool exported this block: " + std::to_string(block.bytes) + " bytes at offset " +
                  std::to_string(block.offset_bytes) + " in chunks of " + std::to_string(block.chunk_bytes) + " bytes");
    RMM_EXPECTS(block.chunks() == count,
                "A shared block in " + std::to_string(block.chunks()) + " chunks came with " + std::to_string(count) +
                  " handles: pass one handle for each chunk");
    return block;
  }

  std::size_t offset_bytes_;
  std::size_t bytes_;
  rmm::detail::address_reservation addresses_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
