// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The driver's virtual memory management: addresses, physical chunks, and mappings of chunks at addresses. All functions
/// expect the lock.

#include "memory.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cudasim {

/// Physical memory: pages of a memory file.
struct chunk {
  int device{0};
  std::size_t bytes{0};
  std::uint64_t offset{0};
  CUmemAllocationProp properties{};
  std::shared_ptr<memory_file> imported{};  ///< the file, if another process made the chunk; then not counted here
  bool exported{false};                     ///< another process may have it, so its pages are never given back
  std::uint64_t id{0};
};

/// What a handle stands for. An import makes a new handle for the chunk.
///
/// Invariant: references + mappings > 0; the chunk lives as long as one of its handles.
struct chunk_handle {
  CUmemGenericAllocationHandle value{0};
  std::shared_ptr<chunk> memory;
  std::uint64_t references{0};  ///< creations, imports and retains that were not released
  std::uint64_t mappings{0};
  char const* made_by{""};
  void const* site{nullptr};
};

/// A chunk at an address.
struct mapping {
  std::shared_ptr<chunk_handle> of;
  std::map<int, CUmemAccess_flags> access{};  ///< by device

  [[nodiscard]] CUmemAccess_flags allowed(int device) const
  {
    auto const found = access.find(device);
    return found == access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
  }
};

struct reservation {
  std::size_t bytes;
  void const* site;
};

struct virtual_memory {
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<chunk_handle>> handles;
  std::map<std::uintptr_t, reservation> reservations;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<memory_file>> imported_files;
  std::uint64_t next_id{1};
};

/// The reservation that holds the address, or end().
[[nodiscard]] std::map<std::uintptr_t, reservation>::iterator find_reservation(std::uintptr_t address);

/// Removes a mapping, and its hold on the chunk.
void unmap(allocation_map::iterator which, char const* what, void const* site);

/// Drops chunks and mappings of a device.
void drop_virtual_memory_of(int device);

void list_virtual_memory(std::vector<outstanding>& out);

}  // namespace cudasim
