// SPDX-License-Identifier: Apache-2.0
#include "virtual_memory.hpp"

#include "driver.hpp"
#include "pool.hpp"

#include <sys/stat.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace cudasim {
namespace {

/// The note at the descriptor of an exported chunk.
struct chunk_note {
  static constexpr std::uint64_t expected = 0x6b6e7568635f6d69ULL;
  std::uint64_t magic;
  std::uint64_t process;
  std::uint64_t id;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::int32_t device;
  std::uint32_t rdma_capable;
  std::uint32_t usage;
};

[[nodiscard]] std::shared_ptr<chunk_handle> find_handle(call& c, CUmemGenericAllocationHandle value)
{
  auto const& all  = memory().mappings->handles;
  auto const found = all.find(value);
  if (found != all.end() && found->second->references != 0) { return found->second; }
  c.misuse(cudaErrorInvalidValue,
           found == all.end() ? "handle %#llx names no physical memory" : "handle %#llx was released",
           value);
  return nullptr;
}

[[nodiscard]] std::shared_ptr<chunk_handle> make_handle(call& c, std::shared_ptr<chunk> of)
{
  auto& state      = *memory().mappings;
  auto made        = std::make_shared<chunk_handle>();
  made->value      = 0x7c000000 + 16 * state.next_id++;
  made->memory     = std::move(of);
  made->references = 1;
  made->made_by    = c.name();
  made->site       = c.site();
  state.handles.emplace(made->value, made);
  return made;
}

/// Ends a handle without references and mappings; with the last handle, ends its chunk.
void drop_if_unused(std::shared_ptr<chunk_handle> const& handle)
{
  if (handle->references != 0 || handle->mappings != 0) { return; }
  memory().mappings->handles.erase(handle->value);
  auto const held = std::exchange(handle->memory, nullptr);
  if (held.use_count() != 1 || held->imported != nullptr) { return; }
  auto& owner = memory_of(held->device);
  owner.physical -= held->bytes;
  if (!held->exported) { owner.pages.discard(held->offset, held->bytes); }
}

[[nodiscard]] memory_file& pages_of(chunk& of)
{
  return of.imported != nullptr ? *of.imported : memory_of(of.device).pages;
}

/// Mappings in a range of a reservation, as [first, last).
struct mapping_range {
  allocation_map::iterator first;
  allocation_map::iterator last;
  std::size_t mapped{0};  ///< mapped bytes
};

/// Finds the mappings of a range. Returns false, after a report, if no reservation holds it or it cuts a mapping.
[[nodiscard]] bool find_mappings(call& c, CUdeviceptr begin, std::size_t bytes, mapping_range& out)
{
  auto& state      = memory();
  auto const where = find_reservation(begin);
  if (bytes == 0 || where == state.mappings->reservations.end() ||
      bytes > where->second.bytes - (begin - where->first)) {
    c.misuse(cudaErrorInvalidValue, "no reservation holds %zu bytes at %#llx", bytes, begin);
    return false;
  }
  auto const cuts = [&](CUdeviceptr border) {
    auto const holder = find_allocation(border);
    return holder != state.allocations.end() && holder->first != border;
  };
  if (cuts(begin) || cuts(begin + bytes)) {
    c.misuse(cudaErrorInvalidValue, "%zu bytes at %#llx are not whole mappings", bytes, begin);
    return false;
  }
  out.first  = state.allocations.lower_bound(begin);
  out.last   = state.allocations.lower_bound(begin + bytes);
  out.mapped = 0;
  for (auto at = out.first; at != out.last; ++at) { out.mapped += at->second.bytes; }
  return true;
}

/// The union of all devices' access, because they share the addresses.
[[nodiscard]] protection protection_of(mapping const& view)
{
  auto allowed = protection::none;
  for (auto const& [device, flags] : view.access) {
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) { return protection::read_write; }
    allowed = protection::read;
  }
  return allowed;
}

[[nodiscard]] cudaError_t check_properties(call& c, CUmemAllocationProp const& wanted)
{
  if (wanted.type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return c.misuse(cudaErrorInvalidValue, "allocation type %d is not supported", static_cast<int>(wanted.type));
  }
  auto const place = static_cast<int>(wanted.location.type);
  if (place == CU_MEM_LOCATION_TYPE_INVALID) { return c.misuse(cudaErrorInvalidValue, "the location has no type"); }
  if (place != CU_MEM_LOCATION_TYPE_DEVICE) { return cudaErrorNotSupported; }  // host memory
  if (!is_device(c, wanted.location.id)) { return cudaErrorInvalidDevice; }
  auto const types = static_cast<unsigned>(wanted.requestedHandleTypes);
  if ((types & fabric_handles) != 0) { return cudaErrorNotPermitted; }  // there is no fabric
  if ((types & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0) {
    return c.misuse(cudaErrorInvalidValue, "unknown handle types %#x", types);
  }
  return cudaSuccess;
}

/// The memory file behind another process's descriptor: one object per file, however many chunks come from it.
[[nodiscard]] std::shared_ptr<memory_file> open_imported(int descriptor)
{
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) { return nullptr; }
  auto& known = memory().mappings->imported_files[{info.st_dev, info.st_ino}];
  if (auto const open = known.lock()) { return open; }
  auto const own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) { return nullptr; }
  auto const made = std::make_shared<memory_file>("cudasim-imported", own);
  known           = made;
  return made;
}

/// The chunk that an exported descriptor stands for: this process's own, or a new view of another process's.
[[nodiscard]] std::shared_ptr<chunk> find_exported(chunk_note const& note, int descriptor)
{
  if (note.process == process_token()) {
    for (auto const& [value, handle] : memory().mappings->handles) {
      if (handle->memory->id == note.id) { return handle->memory; }
    }
  }
  auto made      = std::make_shared<chunk>();
  made->imported = open_imported(descriptor);
  if (made->imported == nullptr) { return nullptr; }
  made->device                                     = note.device < the_world().machine.devices ? note.device : 0;
  made->bytes                                      = note.bytes;
  made->offset                                     = note.offset;
  made->properties.type                            = CU_MEM_ALLOCATION_TYPE_PINNED;
  made->properties.requestedHandleTypes            = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  made->properties.location.type                   = CU_MEM_LOCATION_TYPE_DEVICE;
  made->properties.location.id                     = made->device;
  made->properties.allocFlags.gpuDirectRDMACapable = static_cast<unsigned char>(note.rdma_capable);
  made->properties.allocFlags.usage                = static_cast<unsigned short>(note.usage);
  made->id                                         = memory().mappings->next_id++;
  return made;
}

}  // namespace

std::map<std::uintptr_t, reservation>::iterator find_reservation(std::uintptr_t address)
{
  auto& all       = memory().mappings->reservations;
  auto const next = all.upper_bound(address);
  if (next == all.begin()) { return all.end(); }
  auto const candidate = std::prev(next);
  return address - candidate->first < candidate->second.bytes ? candidate : all.end();
}

void unmap(allocation_map::iterator which, char const* what, void const* site)
{
  auto const handle = which->second.view->of;
  unmap_pages(which->first, which->second.bytes);
  the_world().history.forget(which->first, which->second.bytes);
  remove_allocation(which, what, site);
  --handle->mappings;
  drop_if_unused(handle);
}

void drop_virtual_memory_of(int device)
{
  auto& all = memory().allocations;
  for (auto at = all.begin(); at != all.end();) {
    auto const next = std::next(at);
    if (at->second.view != nullptr && at->second.device == device) { unmap(at, "cudaDeviceReset", nullptr); }
    at = next;
  }
  auto const handles = memory().mappings->handles;
  for (auto const& [value, handle] : handles) {
    if (handle->memory->device != device) { continue; }
    handle->references = 0;
    drop_if_unused(handle);
  }
}

void list_virtual_memory(std::vector<outstanding>& out)
{
  auto const& state = *memory().mappings;
  for (auto const& [begin, reserved] : state.reservations) {
    out.push_back(outstanding{"cuMemAddressReserve",
                              "cuMemAddressFree",
                              pointer_to(begin),
                              reserved.bytes,
                              cudaCpuDeviceId,
                              describe_address(reserved.site)});
  }
  for (auto const& [value, handle] : state.handles) {
    if (handle->references == 0) { continue; }  // its mapping is listed
    out.push_back(outstanding{handle->made_by,
                              "cuMemRelease",
                              pointer_to(static_cast<std::uintptr_t>(value)),
                              handle->memory->bytes,
                              handle->memory->device,
                              describe_address(handle->site)});
  }
}

namespace driver {

CUresult get_allocation_granularity(std::size_t* out,
                                    CUmemAllocationProp const* wanted,
                                    CUmemAllocationGranularity_flags which)
{
  CUDASIM_DRIVER_CALL(cuMemGetAllocationGranularity, {
    if (out == nullptr || wanted == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the properties or the output pointer is null");
    }
    if (which != CU_MEM_ALLOC_GRANULARITY_MINIMUM && which != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return c.misuse(cudaErrorInvalidValue, "unknown granularity %d", static_cast<int>(which));
    }
    *out = block_bytes;
    return cudaSuccess;
  });
}

CUresult reserve_addresses(
  CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
  CUDASIM_DRIVER_CALL(cuMemAddressReserve, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the address is null"); }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#llx", flags); }
    if (bytes == 0 || bytes % block_bytes != 0 || hint % block_bytes != 0 || (alignment & (alignment - 1)) != 0) {
      return c.misuse(
        cudaErrorInvalidValue,
        "%zu bytes, aligned to %zu, at %#llx: size and address have to be multiples of %zu, the alignment a "
        "power of two",
        bytes,
        alignment,
        hint,
        block_bytes);
    }
    auto const begin =
      memory().addresses.claim(bytes, std::max(alignment, block_bytes), static_cast<std::uintptr_t>(hint));
    if (begin == 0) { return cudaErrorMemoryAllocation; }
    memory().mappings->reservations.emplace(begin, reservation{bytes, c.site()});
    *out = begin;
    return cudaSuccess;
  });
}

CUresult free_addresses(CUdeviceptr begin, std::size_t bytes)
{
  CUDASIM_DRIVER_CALL(cuMemAddressFree, {
    auto& reservations = memory().mappings->reservations;
    auto const found   = reservations.find(begin);
    if (found == reservations.end() || found->second.bytes != bytes) {
      return c.misuse(cudaErrorInvalidValue, "%zu bytes at %#llx are not a reservation", bytes, begin);
    }
    auto const& all = memory().allocations;
    auto const next = all.lower_bound(begin);
    if (next != all.end() && next->first < begin + bytes) {
      return c.misuse(cudaErrorInvalidValue, "memory is still mapped at %p", pointer_to(next->first));
    }
    reservations.erase(found);
    memory().addresses.give_up(begin);
    return cudaSuccess;
  });
}

CUresult create(CUmemGenericAllocationHandle* out,
                std::size_t bytes,
                CUmemAllocationProp const* wanted,
                unsigned long long flags)
{
  CUDASIM_DRIVER_CALL(cuMemCreate, {
    if (out == nullptr || wanted == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the properties or the output pointer is null");
    }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#llx", flags); }
    if (auto const error = check_properties(c, *wanted); error != cudaSuccess) { return error; }
    if (bytes == 0 || bytes % block_bytes != 0) {
      return c.misuse(
        cudaErrorInvalidValue, "%zu bytes are not a multiple of the granularity, %zu", bytes, block_bytes);
    }
    auto const device = wanted->location.id;
    if (bytes > free_bytes(device) && (trim_pools_of(device) == 0 || bytes > free_bytes(device))) {
      return cudaErrorMemoryAllocation;
    }
    auto& owner      = memory_of(device);
    auto made        = std::make_shared<chunk>();
    made->device     = device;
    made->bytes      = bytes;
    made->offset     = owner.pages.extend(bytes);
    made->properties = *wanted;
    made->id         = memory().mappings->next_id++;
    owner.physical += bytes;
    *out = make_handle(c, std::move(made))->value;
    return cudaSuccess;
  });
}

CUresult release(CUmemGenericAllocationHandle value)
{
  CUDASIM_DRIVER_CALL(cuMemRelease, {
    auto const handle = find_handle(c, value);
    if (handle == nullptr) { return cudaErrorInvalidValue; }
    --handle->references;
    drop_if_unused(handle);
    return cudaSuccess;
  });
}

CUresult retain(CUmemGenericAllocationHandle* out, void* ptr)
{
  CUDASIM_DRIVER_CALL(cuMemRetainAllocationHandle, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the handle is null"); }
    auto const found = find_allocation(address_of(ptr));
    if (found == memory().allocations.end() || found->second.type != allocation::kind::mapped) {
      return refuse_pointer(c, cudaErrorInvalidValue, ptr);
    }
    auto const& handle = found->second.view->of;
    ++handle->references;
    *out = handle->value;
    return cudaSuccess;
  });
}

CUresult map(CUdeviceptr begin,
             std::size_t bytes,
             std::size_t offset,
             CUmemGenericAllocationHandle value,
             unsigned long long flags)
{
  CUDASIM_DRIVER_CALL(cuMemMap, {
    auto const handle = find_handle(c, value);
    if (handle == nullptr) { return cudaErrorInvalidValue; }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#llx", flags); }
    if (bytes == 0) { return c.misuse(cudaErrorInvalidValue, "the size is 0"); }
    if (offset != 0 || bytes != handle->memory->bytes) {
      return c.misuse(cudaErrorNotSupported,
                      "%zu bytes at offset %zu of memory of %zu bytes: it can be mapped as a whole only",
                      bytes,
                      offset,
                      handle->memory->bytes);
    }
    mapping_range there{};
    if (begin % block_bytes != 0) {
      return c.misuse(cudaErrorInvalidValue, "address %#llx is not a multiple of %zu", begin, block_bytes);
    }
    if (!find_mappings(c, begin, bytes, there)) { return cudaErrorInvalidValue; }
    if (there.mapped != 0) {
      return c.misuse(cudaErrorInvalidValue, "memory is mapped at %p already", pointer_to(there.first->first));
    }
    auto& of = *handle->memory;
    if (!pages_of(of).map(begin, bytes, of.offset)) { return cudaErrorMemoryAllocation; }
    allocation made{allocation::kind::mapped, bytes, of.device, c.name(), c.site()};
    made.view     = std::make_shared<mapping>();
    made.view->of = handle;
    ++handle->mappings;
    add_allocation(begin, std::move(made));
    return cudaSuccess;
  });
}

CUresult unmap(CUdeviceptr begin, std::size_t bytes)
{
  CUDASIM_DRIVER_CALL(cuMemUnmap, {
    mapping_range there{};
    if (!find_mappings(c, begin, bytes, there)) { return cudaErrorInvalidValue; }
    if (auto const error = end_use(c, begin, bytes); error != cudaSuccess) { return error; }
    if (!find_mappings(c, begin, bytes, there)) { return cudaErrorInvalidValue; }  // after a wait
    while (there.first != there.last) { cudasim::unmap(there.first++, c.name(), c.site()); }
    return cudaSuccess;
  });
}

CUresult set_access(CUdeviceptr begin, std::size_t bytes, CUmemAccessDesc const* wanted, std::size_t count)
{
  CUDASIM_DRIVER_CALL(cuMemSetAccess, {
    if (wanted == nullptr || count == 0) {
      return c.misuse(cudaErrorInvalidValue, "no access descriptions were given");
    }
    for (std::size_t i = 0; i < count; ++i) {
      auto const& [where, flags] = wanted[i];
      if (where.type != CU_MEM_LOCATION_TYPE_DEVICE) { return cudaErrorNotSupported; }
      if (!is_device(c, where.id)) { return cudaErrorInvalidValue; }
      if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
          flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return c.misuse(cudaErrorInvalidValue, "unknown access flags %d", static_cast<int>(flags));
      }
    }
    mapping_range there{};
    if (!find_mappings(c, begin, bytes, there)) { return cudaErrorInvalidValue; }
    if (there.mapped != bytes) {
      return c.misuse(cudaErrorInvalidValue, "of %zu bytes at %#llx only %zu are mapped", bytes, begin, there.mapped);
    }
    for (auto at = there.first; at != there.last; ++at) {
      auto& view = *at->second.view;
      for (std::size_t i = 0; i < count; ++i) {
        if (wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
          view.access.erase(wanted[i].location.id);
        } else {
          view.access[wanted[i].location.id] = wanted[i].flags;
        }
      }
      if (!protect(at->first, at->second.bytes, protection_of(view))) { return cudaErrorMemoryAllocation; }
    }
    return cudaSuccess;
  });
}

CUresult get_access(unsigned long long* flags, CUmemLocation const* where, CUdeviceptr ptr)
{
  CUDASIM_DRIVER_CALL(cuMemGetAccess, {
    if (flags == nullptr || where == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the location or the output pointer is null");
    }
    if (where->type != CU_MEM_LOCATION_TYPE_DEVICE) { return cudaErrorNotSupported; }
    if (!is_device(c, where->id)) { return cudaErrorInvalidDevice; }
    auto const found = find_allocation(ptr);
    if (found == memory().allocations.end() || found->second.type != allocation::kind::mapped) {
      return c.misuse(cudaErrorInvalidValue, "nothing is mapped at %#llx", ptr);
    }
    *flags = found->second.view->allowed(where->id);
    return cudaSuccess;
  });
}

CUresult export_handle(void* out,
                       CUmemGenericAllocationHandle value,
                       CUmemAllocationHandleType type,
                       unsigned long long flags)
{
  CUDASIM_DRIVER_CALL(cuMemExportToShareableHandle, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the handle is null"); }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#llx", flags); }
    auto const handle = find_handle(c, value);
    if (handle == nullptr) { return cudaErrorInvalidValue; }
    auto& of = *handle->memory;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        of.properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || of.imported != nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the memory was made without handle type %d", static_cast<int>(type));
    }
    chunk_note const note{chunk_note::expected,
                          process_token(),
                          of.id,
                          of.offset,
                          of.bytes,
                          of.device,
                          of.properties.allocFlags.gpuDirectRDMACapable,
                          of.properties.allocFlags.usage};
    auto const descriptor = pages_of(of).export_note(&note, sizeof note);
    if (descriptor < 0) { return cudaErrorOperatingSystem; }
    of.exported = true;
    std::memcpy(out, &descriptor, sizeof descriptor);
    return cudaSuccess;
  });
}

CUresult import_handle(CUmemGenericAllocationHandle* out, void* handle, CUmemAllocationHandleType type)
{
  CUDASIM_DRIVER_CALL(cuMemImportFromShareableHandle, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the handle is null"); }
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) { return cudaErrorNotSupported; }
    auto const descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(handle));
    if (::fcntl(descriptor, F_GETFD) < 0) {
      return c.misuse(cudaErrorUnknown, "%d is not an open descriptor", descriptor);
    }
    chunk_note note{};
    if (!memory_file::read_note(descriptor, &note, sizeof note) || note.magic != chunk_note::expected) {
      return c.misuse(cudaErrorInvalidValue, "descriptor %d is not that of physical memory", descriptor);
    }
    auto of = find_exported(note, descriptor);
    if (of == nullptr) { return cudaErrorOperatingSystem; }
    *out = make_handle(c, std::move(of))->value;
    return cudaSuccess;
  });
}

CUresult get_properties(CUmemAllocationProp* out, CUmemGenericAllocationHandle value)
{
  CUDASIM_DRIVER_CALL(cuMemGetAllocationPropertiesFromHandle, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the properties is null"); }
    auto const handle = find_handle(c, value);
    if (handle == nullptr) { return cudaErrorInvalidValue; }
    *out = handle->memory->properties;
    return cudaSuccess;
  });
}

}  // namespace driver
}  // namespace cudasim
