// SPDX-License-Identifier: Apache-2.0
//
// The calls for stream-ordered allocation and its pools.

#include "pool.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

namespace cudasim {
namespace {

/// The note at the descriptor of an exported pool.
struct pool_note {
  static constexpr std::uint64_t expected = 0x6c6f6f705f6d6973ULL;
  std::uint64_t magic;
  std::uint64_t id;
  std::int64_t device;
  std::uint64_t process;
};

/// The content of an exported pointer's data.
struct pointer_note {
  static constexpr std::uint64_t expected = 0x7265746e696f7073ULL;
  std::uint64_t magic;
  std::uint64_t pool;
  std::uint64_t process;
  std::uint64_t window_offset;
  std::uint64_t window_bytes;
  std::uint64_t in_window;
  std::uint64_t bytes;
};
static_assert(sizeof(pointer_note) <= sizeof(cudaMemPoolPtrExportData) && std::is_trivially_copyable_v<pointer_note>);

[[nodiscard]] std::shared_ptr<pool> find_pool(call& c, cudaMemPool_t handle)
{
  auto const& all  = memory().pools->handles;
  auto const found = all.find(handle);
  if (found != all.end()) { return found->second; }
  c.misuse(cudaErrorInvalidValue, "handle %p names no pool", static_cast<void*>(handle));
  return nullptr;
}

/// The pool, which the call may change or take memory from: imported pools are refused.
[[nodiscard]] std::shared_ptr<pool> find_own_pool(call& c, cudaMemPool_t handle)
{
  auto found = find_pool(c, handle);
  if (found != nullptr && found->imported()) {
    c.misuse(cudaErrorInvalidValue, "the pool is imported: only the process that made it can do that");
    return nullptr;
  }
  return found;
}

cudaError_t allocate(call& c, void** out, std::size_t bytes, std::shared_ptr<pool> const& from, cudaStream_t handle)
{
  auto const s = find_stream(c, handle);
  if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer is null"); }
  if (s->capturing == nullptr) {
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
  }
  if (bytes == 0) {
    *out = nullptr;
    return cudaSuccess;
  }
  return allocate_from_pool(c, from != nullptr ? from : current_pool(place_of_device(s->device)), s, bytes, out);
}

cudaError_t malloc_async(void** out, std::size_t bytes, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMallocAsync, site, { return allocate(c, out, bytes, nullptr, s); });
}

cudaError_t malloc_from_pool(void** out, std::size_t bytes, cudaMemPool_t handle, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMallocFromPoolAsync, site, {
    auto const from = find_own_pool(c, handle);
    return from == nullptr ? cudaErrorInvalidValue : allocate(c, out, bytes, from, s);
  });
}

/// cudaFreeAsync for memory of cudaMalloc: the memory is given back when the stream gets there.
cudaError_t free_later(call& c, allocation_map::iterator which, std::shared_ptr<stream> const& s)
{
  if (s->capturing != nullptr) { return refuse_pointer(c, cudaErrorInvalidValue, pointer_to(which->first)); }
  auto const begin  = which->first;
  auto const serial = which->second.serial;
  operation work;
  work.accesses.push_back(access{begin, which->second.bytes, true});
  work.done = [begin, serial, site = c.site()](std::uint64_t) {
    auto& all        = memory().allocations;
    auto const freed = all.find(begin);
    if (freed != all.end() && freed->second.serial == serial) { release_allocation(freed, "cudaFreeAsync", site); }
  };
  which->second.freeing = true;
  auto const error      = submit(c, s, std::move(work));
  if (error != cudaSuccess) { which->second.freeing = false; }
  return error;
}

cudaError_t free_async(void* ptr, cudaStream_t handle, void const* site)
{
  CUDASIM_CALL_AT(cudaFreeAsync, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (ptr == nullptr) { return cudaSuccess; }
    auto& all        = memory().allocations;
    auto const found = all.find(address_of(ptr));
    if (found == all.end() || found->second.freeing) { return refuse_pointer(c, cudaErrorInvalidValue, ptr); }
    switch (found->second.type) {
      case allocation::kind::pooled:
      case allocation::kind::imported:
        return free_to_pool(c, found, s);
      case allocation::kind::device:
        return free_later(c, found, s);
      case allocation::kind::managed:
        return refuse_pointer(c, cudaErrorNotSupported, ptr);
      default:
        return refuse_pointer(c, cudaErrorInvalidValue, ptr);
    }
  });
}

/// Finds the key of pools at a location and of a type. Returns false, after a report, if such pools cannot exist.
[[nodiscard]] bool find_place(call& c, cudaMemLocation const& where, cudaMemAllocationType type, pool_place& out)
{
  bool const known_type = type == cudaMemAllocationTypePinned || type == managed_allocation;
  bool known_place      = false;
  int id                = where.id;
  switch (static_cast<int>(where.type)) {
    case cudaMemLocationTypeDevice:
      known_place = id >= 0 && id < the_world().machine.devices;
      break;
    case host_location:
      known_place = true;
      id          = 0;
      break;
    case host_numa_location:
      known_place = id == 0;
      break;
    default:
      known_place = where.type == cudaMemLocationTypeInvalid && type == managed_allocation;
      break;
  }
  if (!known_type || !known_place) {
    c.misuse(cudaErrorInvalidValue,
             "there are no pools of allocation type %d at location type %d, id %d",
             static_cast<int>(type),
             static_cast<int>(where.type),
             where.id);
    return false;
  }
  out = {static_cast<int>(where.type), id, static_cast<int>(type)};
  return true;
}

[[nodiscard]] pool_place place_of(pool const& p)
{
  auto const& where = p.properties.location;
  return {
    static_cast<int>(where.type), where.type == host_location ? 0 : where.id, static_cast<int>(p.properties.allocType)};
}

cudaError_t set_current(call& c, pool_place const& place, cudaMemPool_t handle)
{
  auto const p = find_own_pool(c, handle);
  if (p == nullptr) { return cudaErrorInvalidValue; }
  if (place_of(*p) != place) { return c.misuse(cudaErrorInvalidValue, "the pool is of another location or type"); }
  memory().pools->current[place] = p;
  return cudaSuccess;
}

[[nodiscard]] cudaError_t check_properties(call& c, cudaMemPoolProps const& wanted)
{
  pool_place place;
  if (!find_place(c, wanted.location, wanted.allocType, place)) { return cudaErrorInvalidValue; }
  constexpr unsigned known = cudaMemHandleTypePosixFileDescriptor | fabric_handles;
  if ((static_cast<unsigned>(wanted.handleTypes) & ~known) != 0) {
    return c.misuse(cudaErrorInvalidValue, "unknown handle types %#x", static_cast<unsigned>(wanted.handleTypes));
  }
  for (auto const byte : wanted.reserved) {
    if (byte != 0) { return c.misuse(cudaErrorInvalidValue, "reserved bytes of the properties are not 0"); }
  }
  return cudaSuccess;
}

/// The counter behind an attribute; null if the attribute is not a counter.
[[nodiscard]] std::uint64_t* counter_of(pool& p, cudaMemPoolAttr attribute)
{
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      return &p.release_threshold;
    case cudaMemPoolAttrReservedMemCurrent:
      return &p.reserved;
    case cudaMemPoolAttrReservedMemHigh:
      return &p.reserved_high;
    case cudaMemPoolAttrUsedMemCurrent:
      return &p.used;
    case cudaMemPoolAttrUsedMemHigh:
      return &p.used_high;
    default:
      return nullptr;
  }
}

/// The switch behind an attribute; null if the attribute is not a switch.
[[nodiscard]] int* switch_of(pool& p, cudaMemPoolAttr attribute)
{
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
      return &p.follow_event_dependencies;
    case cudaMemPoolReuseAllowOpportunistic:
      return &p.allow_opportunistic;
    case cudaMemPoolReuseAllowInternalDependencies:
      return &p.allow_internal_dependencies;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t s)
{
  return malloc_async(out, bytes, s, __builtin_return_address(0));
}

extern "C" cudaError_t cudaMallocAsync_ptsz(void** out, std::size_t bytes, cudaStream_t s)
{
  return malloc_async(out, bytes, per_thread(s), __builtin_return_address(0));
}

cudaError_t cudaMallocFromPoolAsync(void** out, std::size_t bytes, cudaMemPool_t from, cudaStream_t s)
{
  return malloc_from_pool(out, bytes, from, s, __builtin_return_address(0));
}

extern "C" cudaError_t cudaMallocFromPoolAsync_ptsz(void** out, std::size_t bytes, cudaMemPool_t from, cudaStream_t s)
{
  return malloc_from_pool(out, bytes, from, per_thread(s), __builtin_return_address(0));
}

cudaError_t cudaFreeAsync(void* ptr, cudaStream_t s) { return free_async(ptr, s, __builtin_return_address(0)); }

extern "C" cudaError_t cudaFreeAsync_ptsz(void* ptr, cudaStream_t s)
{
  return free_async(ptr, per_thread(s), __builtin_return_address(0));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* out, int device)
{
  CUDASIM_CALL(cudaDeviceGetDefaultMemPool, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the pool is null"); }
    if (!is_device(c, device)) { return cudaErrorInvalidDevice; }
    *out = default_pool(place_of_device(device))->handle;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* out, int device)
{
  CUDASIM_CALL(cudaDeviceGetMemPool, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the pool is null"); }
    if (!is_device(c, device)) { return cudaErrorInvalidValue; }
    *out = current_pool(place_of_device(device))->handle;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle)
{
  CUDASIM_CALL(cudaDeviceSetMemPool, {
    if (!is_device(c, device)) { return cudaErrorInvalidValue; }
    return set_current(c, place_of_device(device), handle);
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, cudaMemPoolProps const* wanted)
{
  CUDASIM_CALL(cudaMemPoolCreate, {
    if (out == nullptr || wanted == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the properties or the output pointer is null");
    }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (auto const error = check_properties(c, *wanted); error != cudaSuccess) { return error; }
    auto const made = make_pool(*wanted);
    made->made_by   = c.name();
    made->site      = c.site();
    *out            = made->handle;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle)
{
  CUDASIM_CALL(cudaMemPoolDestroy, {
    auto const p = find_pool(c, handle);
    if (p == nullptr) { return cudaErrorInvalidValue; }
    if (p->is_default) { return c.misuse(cudaErrorInvalidValue, "a default pool cannot be destroyed"); }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    condemn(p);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, std::size_t bytes)
{
  CUDASIM_CALL(cudaMemPoolTrimTo, {
    auto const p = find_own_pool(c, handle);
    if (p == nullptr) { return cudaErrorInvalidValue; }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    trim(*p, bytes, true);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value)
{
  CUDASIM_CALL(cudaMemPoolGetAttribute, {
    auto const p = find_own_pool(c, handle);
    if (p == nullptr) { return cudaErrorInvalidValue; }
    if (value == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the attribute is null"); }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (auto const* const number = counter_of(*p, attribute)) {
      std::memcpy(value, number, sizeof *number);
    } else if (auto const* const flag = switch_of(*p, attribute)) {
      std::memcpy(value, flag, sizeof *flag);
    } else {
      return c.misuse(cudaErrorInvalidValue, "unknown attribute %d", static_cast<int>(attribute));
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value)
{
  CUDASIM_CALL(cudaMemPoolSetAttribute, {
    auto const p = find_own_pool(c, handle);
    if (p == nullptr) { return cudaErrorInvalidValue; }
    if (value == nullptr) { return c.misuse(cudaErrorInvalidValue, "no value"); }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (auto* const flag = switch_of(*p, attribute)) {
      int wanted = 0;
      std::memcpy(&wanted, value, sizeof wanted);
      *flag = wanted != 0 ? 1 : 0;
      return cudaSuccess;
    }
    std::uint64_t wanted = 0;
    std::memcpy(&wanted, value, sizeof wanted);
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold:
        p->release_threshold = wanted;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
      case cudaMemPoolAttrUsedMemHigh:
        if (wanted != 0) { return c.misuse(cudaErrorInvalidValue, "a high mark can only be set to 0"); }
        if (attribute == cudaMemPoolAttrUsedMemHigh) {
          p->used_high = p->used;
        } else {
          p->reserved_high = p->reserved;
        }
        return cudaSuccess;
      default:
        return c.misuse(cudaErrorInvalidValue, "attribute %d cannot be set", static_cast<int>(attribute));
    }
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, cudaMemAccessDesc const* wanted, std::size_t count)
{
  CUDASIM_CALL(cudaMemPoolSetAccess, {
    auto const p = find_pool(c, handle);
    if (p == nullptr) { return cudaErrorInvalidValue; }
    if (wanted == nullptr && count != 0) {
      return c.misuse(cudaErrorInvalidValue, "no access descriptions were given");
    }
    for (std::size_t i = 0; i < count; ++i) {
      auto const& [where, flags] = wanted[i];
      if (where.type != cudaMemLocationTypeDevice) {
        return c.misuse(cudaErrorNotSupported, "access can be set for devices only");
      }
      if (!is_device(c, where.id)) { return cudaErrorInvalidDevice; }
      if (flags == cudaMemAccessFlagsProtRead) {
        return c.misuse(cudaErrorNotSupported, "read-only access is not supported");
      }
      if (flags != cudaMemAccessFlagsProtNone && flags != cudaMemAccessFlagsProtReadWrite) {
        return c.misuse(cudaErrorInvalidValue, "unknown access flags %d", static_cast<int>(flags));
      }
      if (flags == cudaMemAccessFlagsProtNone && where.id == p->device) {
        return c.misuse(cudaErrorInvalidDevice, "a device cannot lose access to its own pool");
      }
    }
    for (std::size_t i = 0; i < count; ++i) { p->access[wanted[i].location.id] = wanted[i].flags; }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t handle, cudaMemLocation* where)
{
  CUDASIM_CALL(cudaMemPoolGetAccess, {
    if (flags == nullptr || where == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the location or the output pointer is null");
    }
    auto const p = find_pool(c, handle);
    if (p == nullptr) { return cudaErrorInvalidValue; }
    *flags = cudaMemAccessFlagsProtNone;
    if (where->type == host_location) {
      if (!p->on_device()) { *flags = cudaMemAccessFlagsProtReadWrite; }
      return cudaSuccess;
    }
    if (where->type != cudaMemLocationTypeDevice || !is_device(c, where->id)) { return cudaErrorInvalidValue; }
    auto const found = p->access.find(where->id);
    if (found != p->access.end()) { *flags = found->second; }
    return cudaSuccess;
  });
}

#if CUDART_VERSION >= 13000

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* out, cudaMemLocation* where, cudaMemAllocationType type)
{
  CUDASIM_CALL(cudaMemGetDefaultMemPool, {
    if (out == nullptr || where == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the location or the output pointer is null");
    }
    pool_place place;
    if (!find_place(c, *where, type, place)) { return cudaErrorInvalidValue; }
    *out = default_pool(place)->handle;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t* out, cudaMemLocation* where, cudaMemAllocationType type)
{
  CUDASIM_CALL(cudaMemGetMemPool, {
    if (out == nullptr || where == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the location or the output pointer is null");
    }
    pool_place place;
    if (!find_place(c, *where, type, place)) { return cudaErrorInvalidValue; }
    *out = current_pool(place)->handle;
    return cudaSuccess;
  });
}

cudaError_t cudaMemSetMemPool(cudaMemLocation* where, cudaMemAllocationType type, cudaMemPool_t handle)
{
  CUDASIM_CALL(cudaMemSetMemPool, {
    if (where == nullptr) { return c.misuse(cudaErrorInvalidValue, "no location"); }
    pool_place place;
    if (!find_place(c, *where, type, place)) { return cudaErrorInvalidValue; }
    return set_current(c, place, handle);
  });
}

#endif

cudaError_t cudaMemPoolExportToShareableHandle(void* out,
                                               cudaMemPool_t handle,
                                               cudaMemAllocationHandleType type,
                                               unsigned flags)
{
  CUDASIM_CALL(cudaMemPoolExportToShareableHandle, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the handle is null"); }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#x", flags); }
    auto const p = find_own_pool(c, handle);
    if (p == nullptr) { return cudaErrorInvalidValue; }
    if ((static_cast<unsigned>(p->properties.handleTypes) & static_cast<unsigned>(type)) == 0) {
      return c.misuse(cudaErrorInvalidValue, "the pool was made without handle type %d", static_cast<int>(type));
    }
    if (type != cudaMemHandleTypePosixFileDescriptor) { return cudaErrorNotSupported; }
    pool_note const note{pool_note::expected, p->id, p->device, process_token()};
    auto const descriptor = pages_of(*p).export_note(&note, sizeof note);
    if (descriptor < 0) { return cudaErrorOperatingSystem; }
    std::memcpy(out, &descriptor, sizeof descriptor);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* out,
                                                 void* handle,
                                                 cudaMemAllocationHandleType type,
                                                 unsigned flags)
{
  CUDASIM_CALL(cudaMemPoolImportFromShareableHandle, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the pool is null"); }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#x", flags); }
    if (type != cudaMemHandleTypePosixFileDescriptor) { return cudaErrorNotSupported; }
    auto const descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(handle));
    if (::fcntl(descriptor, F_GETFD) < 0) {
      return c.misuse(cudaErrorUnknown, "%d is not an open descriptor", descriptor);
    }
    pool_note note{};
    if (!memory_file::read_note(descriptor, &note, sizeof note) || note.magic != pool_note::expected) {
      return c.misuse(cudaErrorInvalidValue, "descriptor %d is not that of a pool", descriptor);
    }
    auto const device =
      note.device < the_world().machine.devices ? static_cast<int>(note.device) : this_thread().device;
    auto const own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) { return cudaErrorOperatingSystem; }
    auto pages = std::make_shared<memory_file>("cudasim-imported", own);
    cudaMemPoolProps properties{};
    properties.allocType     = cudaMemAllocationTypePinned;
    properties.location.type = device == cudaCpuDeviceId ? as_location_type(host_location) : cudaMemLocationTypeDevice;
    properties.location.id   = device == cudaCpuDeviceId ? 0 : device;
    auto const made          = make_pool(properties);
    made->made_by            = c.name();
    made->site               = c.site();
    made->imported_pages     = std::move(pages);
    made->imported_id        = note.id;
    made->imported_process   = note.process;
    *out                     = made->handle;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolExportPointer(cudaMemPoolPtrExportData* out, void* ptr)
{
  CUDASIM_CALL(cudaMemPoolExportPointer, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the data is null"); }
    auto& all        = memory().allocations;
    auto const found = all.find(address_of(ptr));
    if (found == all.end() || found->second.type != allocation::kind::pooled) {
      return refuse_pointer(c, cudaErrorInvalidValue, ptr);
    }
    auto const& p = *found->second.block->from;
    if (p.properties.handleTypes == cudaMemHandleTypeNone) {
      return c.misuse(cudaErrorInvalidValue, "the pool was made without handle types");
    }
    auto const window = std::prev(p.windows.upper_bound(found->first));
    pointer_note const note{pointer_note::expected,
                            p.id,
                            process_token(),
                            window->second.offset,
                            window->second.bytes,
                            found->first - window->first,
                            found->second.bytes};
    *out = {};
    std::memcpy(out->reserved, &note, sizeof note);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolImportPointer(void** out, cudaMemPool_t handle, cudaMemPoolPtrExportData* data)
{
  CUDASIM_CALL(cudaMemPoolImportPointer, {
    if (out == nullptr || data == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "the data or the output pointer is null");
    }
    auto const p = find_pool(c, handle);
    if (p == nullptr) { return cudaErrorInvalidValue; }
    pointer_note note{};
    std::memcpy(&note, data->reserved, sizeof note);
    if (!p->imported() || note.magic != pointer_note::expected || note.pool != p->imported_id ||
        note.process != p->imported_process) {
      return c.misuse(cudaErrorInvalidValue, "the data is not that of a pointer of the imported pool");
    }
    auto const window = open_window(*p, note.window_offset, note.window_bytes);
    if (window == 0) { return cudaErrorMemoryAllocation; }
    auto const begin = window + note.in_window;
    if (memory().allocations.count(begin) == 0) {
      allocation made{allocation::kind::imported, note.bytes, p->on_device() ? p->device : 0, c.name(), c.site()};
      made.block       = std::make_shared<pool_block>();
      made.block->from = p;
      add_allocation(begin, std::move(made));
      ++p->live;
    }
    *out = pointer_to(begin);
    return cudaSuccess;
  });
}
