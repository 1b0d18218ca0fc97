// SPDX-License-Identifier: Apache-2.0
//
// Prefetches, discards and advice for managed memory. They move nothing; requests are recorded for queries.

#include "attributes.hpp"
#include "capture.hpp"
#include "memory.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace cudasim {
namespace {

constexpr cudaMemLocation nowhere{cudaMemLocationTypeInvalid, cudaInvalidDeviceId};

[[nodiscard]] bool operator==(cudaMemLocation const& a, cudaMemLocation const& b)
{
  return a.type == b.type && a.id == b.id;
}

/// The pages that hold a range of bytes.
struct pages {
  pages(std::uintptr_t address, std::size_t bytes)
    : begin{address & ~(page_bytes - 1)}, end{(address + bytes + page_bytes - 1) & ~(page_bytes - 1)}
  {}
  std::uintptr_t begin;
  std::uintptr_t end;
};

/// Makes `address` the border of two entries if it lies inside one.
void split(std::uintptr_t address)
{
  auto& advised   = memory().advised;
  auto const next = advised.upper_bound(address);
  if (next == advised.begin()) { return; }
  auto const holder = std::prev(next);
  if (holder->first == address || holder->second.first <= address) { return; }
  advised.emplace_hint(next, address, holder->second);
  holder->second.first = address;
}

template <class Change>
void change_advice(std::uintptr_t address, std::size_t bytes, Change&& change)
{
  auto& advised = memory().advised;
  pages const range{address, bytes};
  split(range.begin);
  split(range.end);
  auto at = advised.lower_bound(range.begin);
  for (auto from = range.begin; from < range.end; from = at->second.first, ++at) {
    if (at == advised.end() || at->first > from) {
      auto const to = at == advised.end() ? range.end : std::min(range.end, at->first);
      at            = advised.emplace_hint(at, from, std::pair{to, advice{}});
    }
    change(at->second.second);
  }
}

/// Calls `look` with the advice of all pages of the range; with the default for pages that have none.
template <class Look>
void look_at_advice(std::uintptr_t address, std::size_t bytes, Look&& look)
{
  auto const& advised = memory().advised;
  pages const range{address, bytes};
  auto at = advised.upper_bound(range.begin);
  if (at != advised.begin() && std::prev(at)->second.first > range.begin) { --at; }
  auto from = range.begin;
  for (; at != advised.end() && at->first < range.end; ++at) {
    if (at->first > from) { look(advice{}); }
    look(at->second.second);
    from = at->second.first;
  }
  if (from < range.end) { look(advice{}); }
}

/// Whether the bytes can be placed: managed memory, or ordinary host memory if the current device can use it.
[[nodiscard]] bool can_be_placed(void const* ptr, std::size_t bytes)
{
  if (ptr == nullptr || bytes == 0) { return false; }
  auto const address = address_of(ptr);
  auto const found   = find_allocation(address);
  if (found == memory().allocations.end()) {
    int uses_host_memory{};
    return find_attribute(current_device(), cudaDevAttrPageableMemoryAccess, uses_host_memory) && uses_host_memory != 0;
  }
  return found->second.type == allocation::kind::managed && bytes <= found->second.bytes - (address - found->first);
}

/// Checks that a location exists. `error` is CUDA's answer for a device that does not exist.
[[nodiscard]] cudaError_t check_location(call& c, cudaMemLocation const& where, cudaError_t error)
{
  switch (static_cast<int>(where.type)) {
    case cudaMemLocationTypeDevice:
      if (where.id >= 0 && where.id < the_world().machine.devices) { return cudaSuccess; }
      return c.misuse(error, "there is no device %d", where.id);
    case host_location:
    case host_numa_current_location:
      return cudaSuccess;
    case host_numa_location:
      if (where.id == 0) { return cudaSuccess; }
      return c.misuse(cudaErrorInvalidValue, "there is no NUMA node %d", where.id);
    default:
      return c.misuse(cudaErrorInvalidValue, "unknown type of location %d", static_cast<int>(where.type));
  }
}

/// The location as it is recorded: the host's has the number cudaCpuDeviceId.
[[nodiscard]] cudaMemLocation recorded(cudaMemLocation where)
{
  if (where.type == host_location) { where.id = cudaCpuDeviceId; }
  if (where.type == host_numa_current_location) { where.id = 0; }
  return where;
}

/// A location as the older attributes report it: a device, the host, or neither.
[[nodiscard]] int plain(cudaMemLocation const& where)
{
  if (where.type == cudaMemLocationTypeDevice) { return where.id; }
  return where.type == cudaMemLocationTypeInvalid ? cudaInvalidDeviceId : cudaCpuDeviceId;
}

/// Fails for memory that is not managed, without a misuse report: programs prefetch to find out.
cudaError_t prefetch(
  call& c, void const* ptr, std::size_t bytes, cudaMemLocation const& where, unsigned flags, cudaStream_t handle)
{
  auto const s = find_stream(c, handle);
  if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#x", flags); }
  if (auto const error = check_location(c, where, cudaErrorInvalidDevice); error != cudaSuccess) { return error; }
  if (!can_be_placed(ptr, bytes)) { return cudaErrorInvalidValue; }
  if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
  operation work;
  work.duration_ns = 1'000 + bytes / 50;
  if (auto const error = submit(c, s, std::move(work)); error != cudaSuccess) { return error; }
  change_advice(address_of(ptr), bytes, [&](advice& a) { a.prefetched = recorded(where); });
  return cudaSuccess;
}

cudaError_t advise(call& c, void const* ptr, std::size_t bytes, cudaMemoryAdvise what, cudaMemLocation const& where)
{
  if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
  if (what < cudaMemAdviseSetReadMostly || what > cudaMemAdviseUnsetAccessedBy) {
    return c.misuse(cudaErrorInvalidValue, "unknown advice %d", static_cast<int>(what));
  }
  bool const needs_place = what == cudaMemAdviseSetPreferredLocation || what == cudaMemAdviseSetAccessedBy ||
                           what == cudaMemAdviseUnsetAccessedBy;
  if (where.type == cudaMemLocationTypeInvalid) { return c.misuse(cudaErrorInvalidValue, "the location has no type"); }
  if (needs_place) {
    if (auto const error = check_location(c, where, cudaErrorInvalidValue); error != cudaSuccess) { return error; }
  }
  if (!can_be_placed(ptr, bytes)) {
    return c.misuse(cudaErrorInvalidValue, "%zu bytes at %p are not managed memory", bytes, ptr);
  }
  change_advice(address_of(ptr), bytes, [&](advice& a) {
    switch (what) {
      case cudaMemAdviseSetReadMostly:
        a.read_mostly = true;
        break;
      case cudaMemAdviseUnsetReadMostly:
        a.read_mostly = false;
        break;
      case cudaMemAdviseSetPreferredLocation:
        a.preferred = recorded(where);
        break;
      case cudaMemAdviseUnsetPreferredLocation:
        a.preferred = nowhere;
        break;
      case cudaMemAdviseSetAccessedBy:
        a.accessed_by.insert(plain(where));
        break;
      case cudaMemAdviseUnsetAccessedBy:
        a.accessed_by.erase(plain(where));
        break;
    }
  });
  return cudaSuccess;
}

/// The advice that all pages of a range have in common.
[[nodiscard]] advice common_advice(void const* ptr, std::size_t bytes)
{
  advice all;
  bool first = true;
  look_at_advice(address_of(ptr), bytes, [&](advice const& page) {
    if (std::exchange(first, false)) {
      all = page;
      return;
    }
    all.read_mostly = all.read_mostly && page.read_mostly;
    if (!(all.preferred == page.preferred)) { all.preferred = nowhere; }
    if (!(all.prefetched == page.prefetched)) { all.prefetched = nowhere; }
    std::set<int> both;
    std::set_intersection(all.accessed_by.begin(),
                          all.accessed_by.end(),
                          page.accessed_by.begin(),
                          page.accessed_by.end(),
                          std::inserter(both, both.end()));
    all.accessed_by = std::move(both);
  });
  return all;
}

// Range attributes that headers before CUDA 12.2 do not name: cudaMemRangeAttributePreferredLocationType and so on.
constexpr int preferred_location_type     = 5;
constexpr int preferred_location_id       = 6;
constexpr int last_prefetch_location_type = 7;
constexpr int last_prefetch_location_id   = 8;

cudaError_t get_attribute(
  call& c, void* data, std::size_t data_bytes, cudaMemRangeAttribute attribute, void const* ptr, std::size_t bytes)
{
  if (data == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the attribute is null"); }
  if (attribute < cudaMemRangeAttributeReadMostly || static_cast<int>(attribute) > last_prefetch_location_id) {
    return c.misuse(cudaErrorInvalidValue, "unknown attribute %d", static_cast<int>(attribute));
  }
  bool const is_list = attribute == cudaMemRangeAttributeAccessedBy;
  if (is_list ? data_bytes == 0 || data_bytes % sizeof(int) != 0 : data_bytes != sizeof(int)) {
    return c.misuse(
      cudaErrorInvalidValue, "%zu bytes do not hold attribute %d", data_bytes, static_cast<int>(attribute));
  }
  if (!can_be_placed(ptr, bytes)) { return cudaErrorInvalidValue; }
  auto const all  = common_advice(ptr, bytes);
  auto* const out = static_cast<int*>(data);
  switch (static_cast<int>(attribute)) {
    case cudaMemRangeAttributeReadMostly:
      *out = all.read_mostly ? 1 : 0;
      break;
    case cudaMemRangeAttributePreferredLocation:
      *out = plain(all.preferred);
      break;
    case cudaMemRangeAttributeLastPrefetchLocation:
      *out = plain(all.prefetched);
      break;
    case preferred_location_type:
      *out = static_cast<int>(all.preferred.type);
      break;
    case preferred_location_id:
      *out = all.preferred.id;
      break;
    case last_prefetch_location_type:
      *out = static_cast<int>(all.prefetched.type);
      break;
    case last_prefetch_location_id:
      *out = all.prefetched.id;
      break;
    case cudaMemRangeAttributeAccessedBy: {
      std::vector<int> by(all.accessed_by.begin(), all.accessed_by.end());
      std::rotate(by.begin(), std::lower_bound(by.begin(), by.end(), 0), by.end());  // the host, -1, comes last
      by.resize(data_bytes / sizeof(int), cudaInvalidDeviceId);
      std::copy(by.begin(), by.end(), out);
      break;
    }
  }
  return cudaSuccess;
}

}  // namespace

void forget_advice(std::uintptr_t begin, std::size_t bytes)
{
  auto& advised = memory().advised;
  if (advised.empty()) { return; }
  pages const range{begin, bytes};
  split(range.begin);
  split(range.end);
  advised.erase(advised.lower_bound(range.begin), advised.lower_bound(range.end));
}

namespace {

#if CUDART_VERSION >= 13000

/// Arguments that the calls for many ranges share.
struct many_ranges {
  void** pointers;
  std::size_t* sizes;
  std::size_t count;
  unsigned long long flags;
  std::shared_ptr<stream> on;
};

[[nodiscard]] cudaError_t check_batch(call& c, many_ranges& b, cudaStream_t handle)
{
  if (b.pointers == nullptr || b.sizes == nullptr || b.count == 0) {
    return c.misuse(cudaErrorInvalidValue, "the list of ranges is null or empty");
  }
  if (b.flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#llx", b.flags); }
  b.on = find_stream(c, handle);
  if (b.on == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (b.on->type == stream::kind::legacy) {
    return c.misuse(cudaErrorInvalidValue, "the legacy default stream is not allowed here");
  }
  if (auto const error = refuse_while_capturing(*b.on); error != cudaSuccess) { return error; }
  for (std::size_t i = 0; i < b.count; ++i) {
    if (!can_be_placed(b.pointers[i], b.sizes[i])) { return cudaErrorInvalidValue; }
  }
  return cudaSuccess;
}

/// Checks the locations of the ranges: range `indices[k]` is the first that goes to location k.
[[nodiscard]] cudaError_t check_locations(
  call& c, many_ranges const& b, cudaMemLocation const* where, std::size_t const* indices, std::size_t count)
{
  if (where == nullptr || indices == nullptr || count == 0 || count > b.count) {
    return c.misuse(cudaErrorInvalidValue, "%zu locations do not fit %zu ranges", count, b.count);
  }
  if (indices[0] != 0) {
    return c.misuse(cudaErrorInvalidValue, "the first location begins at range %zu, not 0", indices[0]);
  }
  for (std::size_t k = 0; k < count; ++k) {
    if (auto const error = check_location(c, where[k], cudaErrorInvalidDevice); error != cudaSuccess) { return error; }
    if (indices[k] >= b.count || (k != 0 && indices[k] <= indices[k - 1])) {
      return c.misuse(cudaErrorInvalidValue,
                      "location %zu begins at range %zu: out of order, or beyond the last range",
                      k,
                      indices[k]);
    }
  }
  return cudaSuccess;
}

void record_prefetches(many_ranges const& b,
                       cudaMemLocation const* where,
                       std::size_t const* indices,
                       std::size_t count)
{
  for (std::size_t i = 0; i < b.count; ++i) {
    auto const k = static_cast<std::size_t>(std::upper_bound(indices, indices + count, i) - indices - 1);
    change_advice(address_of(b.pointers[i]), b.sizes[i], [&](advice& a) { a.prefetched = recorded(where[k]); });
  }
}

/// The contents after a discard are undefined; the checker takes it as a write.
[[nodiscard]] operation discard_operation(many_ranges const& b)
{
  operation work;
  for (std::size_t i = 0; i < b.count; ++i) {
    work.accesses.push_back(access{address_of(b.pointers[i]), b.sizes[i], true});
  }
  work.run = [ranges = work.accesses] {
    for (auto const& r : ranges) { mark_freed(r.begin, r.bytes); }
  };
  return work;
}

cudaError_t prefetch_batch(many_ranges b,
                           cudaMemLocation const* where,
                           std::size_t const* indices,
                           std::size_t count,
                           cudaStream_t handle,
                           void const* site)
{
  CUDASIM_CALL_AT(cudaMemPrefetchBatchAsync, site, {
    if (auto const error = check_batch(c, b, handle); error != cudaSuccess) { return error; }
    if (auto const error = check_locations(c, b, where, indices, count); error != cudaSuccess) { return error; }
    if (auto const error = submit(c, b.on, operation{}); error != cudaSuccess) { return error; }
    record_prefetches(b, where, indices, count);
    return cudaSuccess;
  });
}

cudaError_t discard_batch(many_ranges b, cudaStream_t handle, void const* site)
{
  CUDASIM_CALL_AT(cudaMemDiscardBatchAsync, site, {
    if (auto const error = check_batch(c, b, handle); error != cudaSuccess) { return error; }
    return submit(c, b.on, discard_operation(b));
  });
}

cudaError_t discard_and_prefetch_batch(many_ranges b,
                                       cudaMemLocation const* where,
                                       std::size_t const* indices,
                                       std::size_t count,
                                       cudaStream_t handle,
                                       void const* site)
{
  CUDASIM_CALL_AT(cudaMemDiscardAndPrefetchBatchAsync, site, {
    if (auto const error = check_batch(c, b, handle); error != cudaSuccess) { return error; }
    if (auto const error = check_locations(c, b, where, indices, count); error != cudaSuccess) { return error; }
    if (auto const error = submit(c, b.on, discard_operation(b)); error != cudaSuccess) { return error; }
    record_prefetches(b, where, indices, count);
    return cudaSuccess;
  });
}

#else

/// A device number, as the older calls have it, as a location.
[[nodiscard]] cudaMemLocation location_of(int device)
{
  return device == cudaCpuDeviceId ? cudaMemLocation{as_location_type(host_location), 0}
                                   : cudaMemLocation{cudaMemLocationTypeDevice, device};
}

#endif

cudaError_t prefetch_async(
  void const* ptr, std::size_t bytes, cudaMemLocation where, unsigned flags, cudaStream_t handle, void const* site)
{
  CUDASIM_CALL_AT(cudaMemPrefetchAsync, site, { return prefetch(c, ptr, bytes, where, flags, handle); });
}

cudaError_t advise_at(
  void const* ptr, std::size_t bytes, cudaMemoryAdvise what, cudaMemLocation where, void const* site)
{
  CUDASIM_CALL_AT(cudaMemAdvise, site, { return advise(c, ptr, bytes, what, where); });
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

#define HERE __builtin_return_address(0)

#if CUDART_VERSION >= 13000

cudaError_t cudaMemPrefetchAsync(
  void const* ptr, std::size_t bytes, cudaMemLocation where, unsigned flags, cudaStream_t s)
{
  return prefetch_async(ptr, bytes, where, flags, s, HERE);
}

cudaError_t cudaMemAdvise(void const* ptr, std::size_t bytes, cudaMemoryAdvise what, cudaMemLocation where)
{
  return advise_at(ptr, bytes, what, where, HERE);
}

cudaError_t cudaMemPrefetchBatchAsync(void** pointers,
                                      std::size_t* sizes,
                                      std::size_t count,
                                      cudaMemLocation* where,
                                      std::size_t* indices,
                                      std::size_t places,
                                      unsigned long long flags,
                                      cudaStream_t s)
{
  return prefetch_batch({pointers, sizes, count, flags, nullptr}, where, indices, places, s, HERE);
}

cudaError_t cudaMemDiscardBatchAsync(
  void** pointers, std::size_t* sizes, std::size_t count, unsigned long long flags, cudaStream_t s)
{
  return discard_batch({pointers, sizes, count, flags, nullptr}, s, HERE);
}

cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void** pointers,
                                                std::size_t* sizes,
                                                std::size_t count,
                                                cudaMemLocation* where,
                                                std::size_t* indices,
                                                std::size_t places,
                                                unsigned long long flags,
                                                cudaStream_t s)
{
  return discard_and_prefetch_batch({pointers, sizes, count, flags, nullptr}, where, indices, places, s, HERE);
}

extern "C" cudaError_t cudaMemPrefetchAsync_ptsz(
  void const* ptr, std::size_t bytes, cudaMemLocation where, unsigned flags, cudaStream_t s)
{
  return prefetch_async(ptr, bytes, where, flags, per_thread(s), HERE);
}

extern "C" cudaError_t cudaMemPrefetchBatchAsync_ptsz(void** pointers,
                                                      std::size_t* sizes,
                                                      std::size_t count,
                                                      cudaMemLocation* where,
                                                      std::size_t* indices,
                                                      std::size_t places,
                                                      unsigned long long flags,
                                                      cudaStream_t s)
{
  return prefetch_batch({pointers, sizes, count, flags, nullptr}, where, indices, places, per_thread(s), HERE);
}

extern "C" cudaError_t cudaMemDiscardBatchAsync_ptsz(
  void** pointers, std::size_t* sizes, std::size_t count, unsigned long long flags, cudaStream_t s)
{
  return discard_batch({pointers, sizes, count, flags, nullptr}, per_thread(s), HERE);
}

extern "C" cudaError_t cudaMemDiscardAndPrefetchBatchAsync_ptsz(void** pointers,
                                                                std::size_t* sizes,
                                                                std::size_t count,
                                                                cudaMemLocation* where,
                                                                std::size_t* indices,
                                                                std::size_t places,
                                                                unsigned long long flags,
                                                                cudaStream_t s)
{
  return discard_and_prefetch_batch(
    {pointers, sizes, count, flags, nullptr}, where, indices, places, per_thread(s), HERE);
}

#else

cudaError_t cudaMemPrefetchAsync(void const* ptr, std::size_t bytes, int device, cudaStream_t s)
{
  return prefetch_async(ptr, bytes, location_of(device), 0, s, HERE);
}

extern "C" cudaError_t cudaMemPrefetchAsync_ptsz(void const* ptr, std::size_t bytes, int device, cudaStream_t s)
{
  return prefetch_async(ptr, bytes, location_of(device), 0, per_thread(s), HERE);
}

cudaError_t cudaMemAdvise(void const* ptr, std::size_t bytes, cudaMemoryAdvise what, int device)
{
  return advise_at(ptr, bytes, what, location_of(device), HERE);
}

#if CUDART_VERSION >= 12020

cudaError_t cudaMemPrefetchAsync_v2(
  void const* ptr, std::size_t bytes, cudaMemLocation where, unsigned flags, cudaStream_t s)
{
  return prefetch_async(ptr, bytes, where, flags, s, HERE);
}

extern "C" cudaError_t cudaMemPrefetchAsync_v2_ptsz(
  void const* ptr, std::size_t bytes, cudaMemLocation where, unsigned flags, cudaStream_t s)
{
  return prefetch_async(ptr, bytes, where, flags, per_thread(s), HERE);
}

cudaError_t cudaMemAdvise_v2(void const* ptr, std::size_t bytes, cudaMemoryAdvise what, cudaMemLocation where)
{
  return advise_at(ptr, bytes, what, where, HERE);
}

#endif
#endif

cudaError_t cudaMemRangeGetAttribute(
  void* data, std::size_t data_bytes, cudaMemRangeAttribute attribute, void const* ptr, std::size_t bytes)
{
  CUDASIM_CALL(cudaMemRangeGetAttribute, { return get_attribute(c, data, data_bytes, attribute, ptr, bytes); });
}

cudaError_t cudaMemRangeGetAttributes(void** data,
                                      std::size_t* data_bytes,
                                      cudaMemRangeAttribute* attributes,
                                      std::size_t count,
                                      void const* ptr,
                                      std::size_t bytes)
{
  CUDASIM_CALL(cudaMemRangeGetAttributes, {
    if (data == nullptr || data_bytes == nullptr || attributes == nullptr || count == 0) {
      return c.misuse(cudaErrorInvalidValue, "no attributes");
    }
    for (std::size_t i = 0; i < count; ++i) {
      auto const error = get_attribute(c, data[i], data_bytes[i], attributes[i], ptr, bytes);
      if (error != cudaSuccess) { return error; }
    }
    return cudaSuccess;
  });
}
