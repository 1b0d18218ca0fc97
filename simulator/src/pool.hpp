// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Stream-ordered memory pools. All functions expect the lock.
///
/// A pool claims windows of addresses, puts pages behind them in chunks of 32 MiB, and cuts blocks out of those. The
/// stream that freed a block may reuse it immediately; others once they are ordered after the free or it is complete.

#include "memory.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace cudasim {

// Numbers for what older toolkits do not name.
constexpr auto managed_allocation = static_cast<cudaMemAllocationType>(2);  ///< cudaMemAllocationTypeManaged
constexpr unsigned fabric_handles = 8;  ///< cudaMemHandleTypeFabric, CU_MEM_HANDLE_TYPE_FABRIC
constexpr unsigned decompression_use =
  2;  ///< CU_MEM_CREATE_USAGE_HW_DECOMPRESS, CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS

constexpr std::size_t pool_chunk_bytes = std::size_t{32} << 20U;

/// Memory that one stream freed, and the operation after which the stream does not use it. Two generations, so that a
/// stream which never stops freeing still gives memory back: when the old one is empty, the young one takes its place.
struct freed_by_stream {
  std::shared_ptr<stream> by;
  range_set young;
  range_set old;
  std::uint64_t young_until{0};
  std::uint64_t old_until{0};

  [[nodiscard]] bool reached(std::uint64_t sequence) const noexcept { return by->completed >= sequence; }
};

/// A stream-ordered pool.
///
/// Invariants:
///  I1  the bytes of each chunk are in exactly one of: a live block, `clean`, one generation of one stream in `waiting`
///  I2  each byte of a window is in a chunk or in `unreserved`
///  I3  reserved == sum(chunks); used == sum(bytes asked for, of live blocks); both marks are at least as high
///  I4  an imported pool has windows and no chunks: its memory is another pool's
struct pool {
  struct window {
    std::size_t bytes;
    std::uint64_t offset;  ///< offset in the memory file
  };

  cudaMemPool_t handle{nullptr};
  cudaMemPoolProps properties{};
  std::uint64_t id{0};
  int device{0};  ///< cudaCpuDeviceId for a pool of host memory
  bool is_default{false};
  bool destroyed{false};
  char const* made_by{""};
  void const* site{nullptr};
  std::shared_ptr<memory_file> imported_pages{};
  std::uint64_t imported_id{0};  ///< id of the exported pool
  std::uint64_t imported_process{0};

  int follow_event_dependencies{1};
  int allow_opportunistic{1};
  int allow_internal_dependencies{1};
  std::uint64_t release_threshold{0};
  std::uint64_t used{0};
  std::uint64_t used_high{0};
  std::uint64_t reserved{0};
  std::uint64_t reserved_high{0};
  std::size_t live{0};  ///< number of live blocks
  std::map<int, cudaMemAccessFlags> access{};

  std::map<std::uintptr_t, window> windows{};
  std::map<std::uintptr_t, std::size_t> chunks{};
  range_set unreserved{};
  range_set clean{};
  std::map<std::uint64_t, freed_by_stream> waiting{};  ///< by stream id

  [[nodiscard]] bool imported() const noexcept { return imported_pages != nullptr; }
  [[nodiscard]] bool on_device() const noexcept { return device != cudaCpuDeviceId; }
  [[nodiscard]] bool managed() const noexcept { return properties.allocType == managed_allocation; }
  /// The most bytes that it may reserve; 0 is no limit.
  [[nodiscard]] std::size_t limit() const noexcept
  {
#if CUDART_VERSION >= 12020
    return properties.maxSize;
#else
    return 0;
#endif
  }
  /// Whether its memory can be used for decompression by hardware.
  [[nodiscard]] bool decompresses() const noexcept
  {
#if CUDART_VERSION >= 12080
    return (properties.usage & decompression_use) != 0;
#else
    return false;
#endif
  }
  [[nodiscard]] bool check_invariants() const;
};

/// A pool's block, beside its address and size.
struct pool_block {
  std::shared_ptr<pool> from;
  std::shared_ptr<stream> by;  ///< stream of the allocation
  std::uint64_t sequence{0};   ///< number of the allocation on that stream
  std::weak_ptr<capture> graph{};
  bool of_graph{false};
  bool live{true};  ///< false while memory of a graph is not the program's to free: see allocate_for_launch()
  bool freed_in_graph{false};  ///< the graph has a node that frees it
};

/// Kind of memory that has a default and a current pool: location type, location id, allocation type.
using pool_place = std::tuple<int, int, int>;

struct pool_state {
  std::map<cudaMemPool_t, std::shared_ptr<pool>> handles;
  std::map<pool_place, std::shared_ptr<pool>> defaults;
  std::map<pool_place, std::shared_ptr<pool>> current;
  std::map<int, std::shared_ptr<pool>> of_graphs;  ///< by device
  std::vector<std::shared_ptr<pool>> condemned;    ///< destroyed pools with blocks in use
  std::uint64_t next_id{1};
};

/// A new pool, with a handle of its own.
[[nodiscard]] std::shared_ptr<pool> make_pool(cudaMemPoolProps const& properties);

/// The default pool of a place, and its current one.
[[nodiscard]] std::shared_ptr<pool> default_pool(pool_place const& place);
[[nodiscard]] std::shared_ptr<pool> current_pool(pool_place const& place);
[[nodiscard]] inline pool_place place_of_device(int device)
{
  return {cudaMemLocationTypeDevice, device, cudaMemAllocationTypePinned};
}

/// Gives a stream a block of the pool, and records it. Fails with cudaErrorMemoryAllocation if there is no room.
cudaError_t allocate_from_pool(
  call& c, std::shared_ptr<pool> const& from, std::shared_ptr<stream> const& s, std::size_t bytes, void** out);

/// Takes a block back at the stream's current point.
cudaError_t free_to_pool(call& c, allocation_map::iterator which, std::shared_ptr<stream> const& s);

/// Makes the memory that a launch of the graph allocates and does not free the program's. Returns false, and changes
/// nothing, if memory of an earlier launch is not freed and the graph does not free it first.
[[nodiscard]] bool allocate_for_launch(capture const& graph, bool frees_first);

/// cudaFree() of a pool's block: takes it back now. The program has already waited for all uses of it.
void free_to_pool_at_once(allocation_map::iterator which, char const* what, void const* site);

/// The file that holds the pool's memory.
[[nodiscard]] memory_file& pages_of(pool& p);

/// Moves memory that no stream uses any more to `clean`.
void collect(pool& p);

/// Gives unused chunks back while more than `bytes` are reserved. With `keep`, never goes below `bytes`.
void trim(pool& p, std::size_t bytes, bool keep);

/// Gives unused chunks of all pools of a device back, regardless of their thresholds. Returns the bytes gained.
std::size_t trim_pools_of(int device);

/// Destroys a pool: immediately if none of its blocks is in use, else when the last one is freed.
void condemn(std::shared_ptr<pool> const& p);

/// Drops all pools of a device, with their memory.
void drop_pools_of(int device);

/// Maps memory of an exported pool at addresses of this process. Returns 0 if the system refuses.
[[nodiscard]] std::uintptr_t open_window(pool& p, std::uint64_t offset, std::size_t bytes);

void list_pools(std::vector<outstanding>& out);

}  // namespace cudasim
