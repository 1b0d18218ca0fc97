// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the files of the memory side share. All functions expect the lock.
///
/// Device memory is memory of this process: each device has a memory file, whose pages are mapped at the addresses that the
/// program sees; what nobody touches costs nothing, so that eight devices of 141 GB fit into a small machine. What a device
/// has is a number: usage of it is counted in the steps of the real one, and nothing is taken that does not fit.
///
/// Every address that a call hands out is in `allocations` until it is given back; then the ring of freed ranges remembers
/// who gave it back.
///
/// Invariants:
///  I1  allocations do not overlap; all but registered host memory lie in the territory
///  I2  for each device: heap footprint + pools + physical + occupied <= total
///  I3  where other processes share the devices, they see what this one uses of them when a call returns, or waits
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
    registered,  ///< the program's own memory, by cudaHostRegister
    managed,     ///< cudaMallocManaged
    pooled,      ///< cudaMallocAsync and the like; `block` says more
    imported,    ///< cudaMemPoolImportPointer; `block` says more
    opened,      ///< cudaIpcOpenMemHandle
    mapped,      ///< cuMemMap; `view` says more
  };
  kind type;
  std::size_t bytes;
  int device;  ///< that owns it; that was current, for pinned and registered memory
  char const* made_by;
  void const* site;
  unsigned flags{0};
  std::uint64_t serial{0};  ///< never used twice
  bool freeing{false};      ///< cudaFreeAsync of memory from cudaMalloc is under way
  std::shared_ptr<pool_block> block{};
  std::shared_ptr<mapping> view{};
};

using allocation_map = std::map<std::uintptr_t, allocation>;

/// What is known of memory that was given back.
struct freed_range {
  std::uintptr_t begin;
  std::size_t bytes;
  char const* made_by;
  char const* freed_by;
  void const* site;  ///< of the call that gave it back
};

// Types of location that headers before CUDA 12.2 have no name for, nor room in the enumeration.
constexpr int host_location              = 2;  ///< cudaMemLocationTypeHost
constexpr int host_numa_location         = 3;  ///< cudaMemLocationTypeHostNuma
constexpr int host_numa_current_location = 4;  ///< cudaMemLocationTypeHostNumaCurrent

[[nodiscard]] inline cudaMemLocationType as_location_type(int type) noexcept
{
  return static_cast<cudaMemLocationType>(type);
}

/// What advice and prefetches say about a page of managed memory.
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
  std::size_t occupied{0};  ///< by cudasim::occupy()

  [[nodiscard]] std::size_t used() const noexcept { return blocks.footprint() + pools + physical + occupied; }
};

/// Memory of another process, open in this one.
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
  std::deque<freed_range> freed;                                        ///< the latest last
  std::map<std::uintptr_t, std::pair<std::uintptr_t, advice>> advised;  ///< pages [key, first) of managed memory
  std::map<std::string, opened_memory> opened;                          ///< by IPC handle
  std::unique_ptr<pool_state> pools;
  std::unique_ptr<virtual_memory> mappings;
  std::unique_ptr<shared_devices> others;  ///< null: the devices are this process's alone
};

[[nodiscard]] memory_state& memory();
[[nodiscard]] device_memory& memory_of(int device);

[[nodiscard]] inline std::uintptr_t address_of(void const* ptr) noexcept
{
  return reinterpret_cast<std::uintptr_t>(ptr);
}
[[nodiscard]] inline void* pointer_to(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

/// Bytes of the device that nothing takes, also no other process.
[[nodiscard]] std::size_t free_bytes(int device);

/// The allocation that holds the address, or end().
[[nodiscard]] allocation_map::iterator find_allocation(std::uintptr_t address);

/// Adds an allocation.
allocation& add_allocation(std::uintptr_t begin, allocation&& what);

/// Removes an allocation and remembers that it was there. `what` says which call gives it back.
void remove_allocation(allocation_map::iterator which, char const* what, void const* site);

/// The same for an allocation that goes to its kind's heap: gives its bytes back, too.
void release_allocation(allocation_map::iterator which, char const* what, void const* site);

/// Reports that a call was given a pointer that it cannot take, and says what the pointer is.
cudaError_t refuse_pointer(call& c, cudaError_t error, void const* ptr);

/// Whether work of `device` may touch the allocation.
[[nodiscard]] bool accessible(allocation const& what, int device);

/// The device is one of the machine; else a misuse report, and the call answers cudaErrorInvalidDevice.
[[nodiscard]] bool is_device(call& c, int device);

/// Blocks until all devices are idle: what a call does that ends memory that all of them may use.
cudaError_t wait_for_all_devices(call& c);

/// Before memory goes away in a call that does not wait: reports work that still uses it, and waits for that, so that it
/// does not run into nothing. The host's own use is shown to the checker otherwise.
cudaError_t end_use(call& c, std::uintptr_t begin, std::size_t bytes);

/// cudaMalloc for whoever needs it: takes pages of unused pool memory back before it gives up. Returns 0 if there is no room.
[[nodiscard]] std::uintptr_t allocate_on_device(int device, std::size_t bytes);

/// Drops what is remembered about pages of managed memory.
void forget_advice(std::uintptr_t begin, std::size_t bytes);

/// A number that tells this process from others: process ids repeat, in containers above all.
[[nodiscard]] std::uint64_t process_token();

/// What the kind of memory is called by CUDA.
[[nodiscard]] cudaMemoryType type_of(allocation const& what);

/// Name of the call that gives such memory back.
[[nodiscard]] char const* freed_by(allocation const& what);

}  // namespace cudasim
