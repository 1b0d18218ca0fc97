// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the files about memory share. All functions expect the lock.
///
/// Device memory is memory of this process: each device has a memory file, whose pages are mapped at the addresses that
/// the program sees. Untouched pages cost nothing, so eight devices of 141 GB fit into a small machine. The capacity of
/// a device is only a number: its use is counted in the steps of the real device, and an allocation beyond it fails.
///
/// Every address that a call hands out is in `allocations` until it is given back; then the ring of freed ranges
/// remembers the call that gave it back.
///
/// Invariants:
///  I1  allocations do not overlap; all but registered host memory lie in the territory
///  I2  for each device: heap footprint + pools + physical + occupied <= total
///  I3  other processes that share the devices see this process's use as soon as a call returns or waits
///  I4  pinned and managed memory have heaps of their own; they are limited by the host, not by a device

#include "address_space.hpp"
#include "shared_devices.hpp"
#include "world.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cudasim {

constexpr std::size_t page_bytes =
  4096;  ///< managed memory is advised, and prefetched, in pages; no two blocks share one

struct pool;
struct pool_block;      // pool.hpp
struct pool_state;      // pool.hpp
struct mapping;         // virtual_memory.hpp
struct virtual_memory;  // virtual_memory.hpp

/// Memory that the program was given and has not given back.
struct allocation {
  enum class kind {
    device,      ///< cudaMalloc
    pinned,      ///< cudaMallocHost, cudaHostAlloc
    registered,  ///< the program's own memory, from cudaHostRegister
    managed,     ///< cudaMallocManaged
    pooled,      ///< cudaMallocAsync and its relatives; see `block`
    imported,    ///< cudaMemPoolImportPointer; see `block`
    opened,      ///< cudaIpcOpenMemHandle
    mapped,      ///< cuMemMap; see `view`
  };
  kind type;
  std::size_t bytes;
  int device;  ///< owner; for pinned and registered memory, the device that was current
  char const* made_by;
  void const* site;
  unsigned flags{0};
  std::uint64_t serial{0};  ///< never reused
  bool freeing{false};      ///< cudaFreeAsync of memory from cudaMalloc is under way
  std::shared_ptr<pool_block> block{};
  std::shared_ptr<mapping> view{};
};

using allocation_map = std::map<std::uintptr_t, allocation>;

/// A range that was given back.
struct freed_range {
  std::uintptr_t begin;
  std::size_t bytes;
  char const* made_by;
  char const* freed_by;
  void const* site;  ///< of the call that gave it back
};

// Location types that headers before CUDA 12.2 neither name nor hold in the enumeration.
constexpr int host_location              = 2;  ///< cudaMemLocationTypeHost
constexpr int host_numa_location         = 3;  ///< cudaMemLocationTypeHostNuma
constexpr int host_numa_current_location = 4;  ///< cudaMemLocationTypeHostNumaCurrent

[[nodiscard]] inline cudaMemLocationType as_location_type(int type) noexcept
{
  return static_cast<cudaMemLocationType>(type);
}

/// Advice and prefetches for a page of managed memory.
struct advice {
  bool read_mostly{false};
  cudaMemLocation preferred{cudaMemLocationTypeInvalid, cudaInvalidDeviceId};
  cudaMemLocation prefetched{cudaMemLocationTypeInvalid, cudaInvalidDeviceId};
  std::set<int> accessed_by{};
};

/// Memory of one device.
struct device_memory {
  explicit device_memory(territory& addresses) : blocks{addresses, pages} {}
  memory_file pages{"cudasim-device"};
  heap blocks;
  std::size_t pools{0};     ///< bytes that pools hold
  std::size_t physical{0};  ///< bytes of chunks made by cuMemCreate
  std::size_t occupied{0};  ///< bytes taken by cudasim::occupy()

  [[nodiscard]] std::size_t used() const noexcept { return blocks.footprint() + pools + physical + occupied; }
};

/// Memory of another process that is open in this one.
struct opened_memory {
  std::uintptr_t begin;
  std::uintptr_t window;  ///< the addresses claimed for it
  std::uint64_t uses;
};

struct memory_state {
  memory_state();
  ~memory_state();

  territory addresses;
  memory_file host_pages{"cudasim-host"};
  heap pinned{addresses, host_pages};
  heap managed{addresses, host_pages};
  std::vector<std::unique_ptr<device_memory>> devices;
  allocation_map allocations;
  std::uint64_t next_serial{1};
  std::deque<freed_range> freed;                                        ///< latest last
  std::map<std::uintptr_t, std::pair<std::uintptr_t, advice>> advised;  ///< pages [key, first) of managed memory
  std::map<std::string, opened_memory> opened;                          ///< by IPC handle
  std::unique_ptr<pool_state> pools;
  std::unique_ptr<virtual_memory> mappings;
  std::unique_ptr<shared_devices> others;  ///< null: only this process uses the devices
};

[[nodiscard]] memory_state& memory();
[[nodiscard]] device_memory& memory_of(int device);

[[nodiscard]] inline std::uintptr_t address_of(void const* ptr) noexcept
{
  return reinterpret_cast<std::uintptr_t>(ptr);
}
[[nodiscard]] inline void* pointer_to(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

/// Bytes of the device that neither this nor another process uses.
[[nodiscard]] std::size_t free_bytes(int device);

/// The allocation that holds the address, or end().
[[nodiscard]] allocation_map::iterator find_allocation(std::uintptr_t address);

/// Adds an allocation.
allocation& add_allocation(std::uintptr_t begin, allocation&& what);

/// Removes an allocation and remembers it as freed. `what` names the call that gives it back.
void remove_allocation(allocation_map::iterator which, char const* what, void const* site);

/// remove_allocation() that also gives the bytes back to the heap of the allocation's kind.
void release_allocation(allocation_map::iterator which, char const* what, void const* site);

/// Reports that a call cannot take `ptr`, and says what the pointer is.
cudaError_t refuse_pointer(call& c, cudaError_t error, void const* ptr);

/// Whether work of `device` may touch the allocation.
[[nodiscard]] bool accessible(allocation const& what, int device);

/// Whether the device exists. If not, reports misuse; the call then answers cudaErrorInvalidDevice.
[[nodiscard]] bool is_device(call& c, int device);

/// Blocks until all devices are idle. For calls that end memory which every device may use.
cudaError_t wait_for_all_devices(call& c);

/// Called before memory goes away in a call that does not wait: reports work that still uses the memory, then waits for
/// it, so that the work does not touch unmapped pages. Without such work, shows the host's use to the checker.
cudaError_t end_use(call& c, std::uintptr_t begin, std::size_t bytes);

/// Allocates device memory. Takes pages of unused pool memory back before it gives up; returns 0 if there is no room.
[[nodiscard]] std::uintptr_t allocate_on_device(int device, std::size_t bytes);

/// Forgets advice and prefetches for pages of managed memory.
void forget_advice(std::uintptr_t begin, std::size_t bytes);

/// A number that tells this process from others. Process ids do not suffice: they repeat, in containers above all.
[[nodiscard]] std::uint64_t process_token();

/// CUDA's name for the kind of memory.
[[nodiscard]] cudaMemoryType type_of(allocation const& what);

/// Name of the call that gives such memory back.
[[nodiscard]] char const* freed_by(allocation const& what);

}  // namespace cudasim
