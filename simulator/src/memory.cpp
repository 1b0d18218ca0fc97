// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include "pool.hpp"
#include "reports.hpp"
#include "virtual_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <utility>

namespace cudasim {

std::atomic<bool> shares_devices{false};
namespace {

constexpr std::size_t most_freed = 4096;

/// The latest freed range that holds the address, or null.
[[nodiscard]] freed_range const* find_freed(std::uintptr_t address)
{
  auto const& ring = memory().freed;
  auto const found =
    std::find_if(ring.rbegin(), ring.rend(), [&](freed_range const& r) { return address - r.begin < r.bytes; });
  return found == ring.rend() ? nullptr : &*found;
}

[[nodiscard]] std::string hex(std::uintptr_t address)
{
  char text[24];
  std::snprintf(text, sizeof text, "%p", pointer_to(address));
  return text;
}

[[nodiscard]] std::string describe(allocation_map::value_type const& entry)
{
  return std::to_string(entry.second.bytes) + " bytes at " + hex(entry.first) + " from " + entry.second.made_by +
         " (called from " + describe_address(entry.second.site) + ")";
}

[[nodiscard]] std::string describe(freed_range const& range)
{
  return std::to_string(range.bytes) + " bytes from " + range.made_by + " that " + range.freed_by +
         " gave back (called from " + describe_address(range.site) + ")";
}

[[nodiscard]] bool touches(std::vector<access> const& accesses, std::uintptr_t begin, std::size_t bytes)
{
  return std::any_of(accesses.begin(), accesses.end(), [&](access const& a) {
    return a.begin < begin + bytes && begin < a.begin + a.bytes;
  });
}

/// Whether an unfinished operation of the stream touches the bytes.
[[nodiscard]] bool uses(stream const& s, std::uintptr_t begin, std::size_t bytes)
{
  if (s.running_work != nullptr && touches(s.running_work->accesses, begin, bytes)) { return true; }
  return std::any_of(
    s.queue.begin(), s.queue.end(), [&](operation const& work) { return touches(work.accesses, begin, bytes); });
}

void report_bad_access(violation::kind kind,
                       char const* what,
                       void const* site,
                       std::uintptr_t begin,
                       std::string const& why,
                       void const* freed_at = nullptr)
{
  report(kind,
         {what, site, freed_at},
         std::string{what} + " (called from " + describe_address(site) + ") uses " + hex(begin) + ": " + why);
}

/// Reports work on an address that no allocation holds, and returns false; returns true for ordinary host memory.
[[nodiscard]] bool check_unknown(char const* what, void const* site, std::uintptr_t begin)
{
  if (begin < 4096) {
    report_bad_access(violation::kind::out_of_bounds, what, site, begin, "a null pointer");
    return false;
  }
  if (!memory().addresses.owns(begin)) { return true; }
  if (auto const* const range = find_freed(begin)) {
    report_bad_access(
      violation::kind::use_after_free, what, site, begin, "it lies in " + describe(*range), range->site);
  } else {
    report_bad_access(violation::kind::out_of_bounds, what, site, begin, "no allocation holds it");
  }
  return false;
}

}  // namespace

memory_state::memory_state() : pools{std::make_unique<pool_state>()}, mappings{std::make_unique<virtual_memory>()}
{
  auto const count = static_cast<std::size_t>(the_world().machine.devices);
  devices.reserve(count);
  while (devices.size() < count) { devices.push_back(std::make_unique<device_memory>(addresses)); }
  others = open_shared_devices();
  shares_devices.store(others != nullptr, std::memory_order_relaxed);
}

memory_state::~memory_state() = default;

memory_state& memory() { return *the_world().memory; }

device_memory& memory_of(int device) { return *memory().devices[static_cast<std::size_t>(device)]; }

std::size_t free_bytes(int device)
{
  auto const total = the_world().machine.memory_bytes;
  auto const& all  = memory().others;
  auto const used =
    memory_of(device).used() + (all == nullptr ? 0 : all->used_by_others(static_cast<std::size_t>(device)));
  return total - std::min(total, used);  // other processes may assume another total
}

void tell_usage() noexcept
{
  auto const& others = memory().others;
  if (others == nullptr) { return; }
  auto const& devices = memory().devices;
  for (std::size_t i = 0; i < devices.size(); ++i) { others->tell(i, devices[i]->used()); }
  others->end_turn();
}

allocation_map::iterator find_allocation(std::uintptr_t address)
{
  auto& all       = memory().allocations;
  auto const next = all.upper_bound(address);
  if (next == all.begin()) { return all.end(); }
  auto const candidate = std::prev(next);
  return address - candidate->first < candidate->second.bytes ? candidate : all.end();
}

allocation& add_allocation(std::uintptr_t begin, allocation&& what)
{
  auto& m     = memory();
  what.serial = m.next_serial++;
  auto& added = m.allocations.emplace(begin, std::move(what)).first->second;
  return added;
}

void remove_allocation(allocation_map::iterator which, char const* what, void const* site)
{
  auto& m = memory();
  m.freed.push_back(freed_range{which->first, which->second.bytes, which->second.made_by, what, site});
  if (m.freed.size() > most_freed) { m.freed.pop_front(); }
  m.allocations.erase(which);
}

void release_allocation(allocation_map::iterator which, char const* what, void const* site)
{
  auto& m          = memory();
  auto const begin = which->first;
  auto const bytes = which->second.bytes;
  switch (which->second.type) {
    case allocation::kind::device:
      memory_of(which->second.device).blocks.deallocate(begin, bytes);
      break;
    case allocation::kind::pinned:
      m.pinned.deallocate(begin, bytes);
      break;
    case allocation::kind::managed:
      m.managed.deallocate(begin, round_up(bytes, page_bytes));
      forget_advice(begin, bytes);
      break;
    default:
      break;
  }
  the_world().history.forget(begin, bytes);
  remove_allocation(which, what, site);
}

cudaError_t refuse_pointer(call& c, cudaError_t error, void const* ptr)
{
  auto const address = address_of(ptr);
  if (auto const found = find_allocation(address); found != memory().allocations.end()) {
    auto const text = describe(*found);
    if (found->second.freeing) { return c.misuse(error, "cudaFreeAsync gives %p back already: %s", ptr, text.c_str()); }
    if (found->first == address) {
      return c.misuse(error,
                      "%p cannot be passed to this call: it is %s, which %s gives back",
                      ptr,
                      text.c_str(),
                      freed_by(found->second));
    }
    return c.misuse(
      error, "%p lies %zu bytes inside %s", ptr, static_cast<std::size_t>(address - found->first), text.c_str());
  }
  if (auto const* const range = find_freed(address)) {
    return c.misuse(error, "%p was given back already: %s", ptr, describe(*range).c_str());
  }
  return c.misuse(error, "%p is not memory of CUDA", ptr);
}

bool accessible(allocation const& what, int device)
{
  switch (what.type) {
    case allocation::kind::pooled:
    case allocation::kind::imported: {
      auto const& from = *what.block->from;
      auto const found = from.access.find(device);
      return found == from.access.end() ? from.managed() : found->second != cudaMemAccessFlagsProtNone;
    }
    case allocation::kind::mapped:
      return what.view->allowed(device) != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    case allocation::kind::device:
    case allocation::kind::opened:
      return what.device == device ||
             the_world().devices[static_cast<std::size_t>(device)].peers.count(what.device) != 0;
    default:
      return true;
  }
}

bool is_device(call& c, int device)
{
  if (device >= 0 && device < the_world().machine.devices) { return true; }
  c.misuse(cudaErrorInvalidDevice, "there is no device %d", device);
  return false;
}

cudaError_t wait_for_all_devices(call& c)
{
  for (int device = 0; device < the_world().machine.devices; ++device) {
    if (auto const error = wait_for_device(c, device); error != cudaSuccess) { return error; }
  }
  return cudaSuccess;
}

cudaError_t end_use(call& c, std::uintptr_t begin, std::size_t bytes)
{
  std::vector<std::shared_ptr<stream>> users;
  for (auto const& d : the_world().devices) {
    auto const add = [&](std::shared_ptr<stream> const& s) {
      if (uses(*s, begin, bytes)) { users.push_back(s); }
    };
    std::for_each(d.streams.begin(), d.streams.end(), add);
    add(d.legacy);
  }
  if (users.empty()) {
    check_host_access(c.name(), c.site(), begin, bytes, true);
    return cudaSuccess;
  }
  for (auto const& s : users) {
    report(violation::kind::misuse,
           {c.name(), c.site()},
           std::string{c.name()} + " (called from " + describe_address(c.site()) + ") takes " + std::to_string(bytes) +
             " bytes at " + hex(begin) + " away while work of stream " + std::to_string(s->id) +
             " uses them: the program has to wait first");
  }
  for (auto const& s : users) {
    if (auto const error = wait_for(c, s); error != cudaSuccess) { return error; }
  }
  return cudaSuccess;
}

std::uintptr_t allocate_on_device(int device, std::size_t bytes)
{
  auto& blocks = memory_of(device).blocks;
  if (auto const begin = blocks.allocate(bytes, free_bytes(device))) { return begin; }
  return trim_pools_of(device) == 0 ? 0 : blocks.allocate(bytes, free_bytes(device));
}

std::uint64_t process_token()
{
  static auto const number = [] {
    std::uint64_t drawn = 0;
    if (::getentropy(&drawn, sizeof drawn) != 0) { drawn = address_of(&drawn); }
    return drawn;
  }();
  return number + static_cast<std::uint64_t>(::getpid());  // a forked child is another process
}

cudaMemoryType type_of(allocation const& what)
{
  switch (what.type) {
    case allocation::kind::pinned:
    case allocation::kind::registered:
      return cudaMemoryTypeHost;
    case allocation::kind::managed:
      return cudaMemoryTypeManaged;
    case allocation::kind::pooled:
      return what.block->from->managed()     ? cudaMemoryTypeManaged
             : what.block->from->on_device() ? cudaMemoryTypeDevice
                                             : cudaMemoryTypeHost;
    default:
      return cudaMemoryTypeDevice;
  }
}

char const* freed_by(allocation const& what)
{
  switch (what.type) {
    case allocation::kind::pinned:
      return "cudaFreeHost";
    case allocation::kind::registered:
      return "cudaHostUnregister";
    case allocation::kind::pooled:
    case allocation::kind::imported:
      return "cudaFreeAsync";
    case allocation::kind::opened:
      return "cudaIpcCloseMemHandle";
    case allocation::kind::mapped:
      return "cuMemUnmap";
    default:
      return "cudaFree";
  }
}

memory_info lookup(void const* address)
{
  auto const found = find_allocation(address_of(address));
  if (found == memory().allocations.end()) { return {0, 0, cudaCpuDeviceId, cudaMemoryTypeUnregistered}; }
  auto const& what = found->second;
  auto const type  = type_of(what);
  return {found->first, what.bytes, type == cudaMemoryTypeHost ? cudaCpuDeviceId : what.device, type};
}

bool check_bytes(char const* what, void const* site, std::uintptr_t begin, std::size_t bytes)
{
  if (bytes == 0) { return true; }
  auto const& all = memory().allocations;
  auto found      = allocation_map::const_iterator{find_allocation(begin)};
  if (found == all.end()) { return check_unknown(what, site, begin); }

  auto const* const first = &*found;
  for (auto at = begin, left = bytes;;) {  // a range may span several adjacent chunks
    auto const& holder = found->second;
    if (holder.freeing) {
      report_bad_access(
        violation::kind::use_after_free, what, site, at, "cudaFreeAsync gives it back, " + describe(*first));
      return false;
    }
    if (holder.type == allocation::kind::mapped && holder.view->access.empty()) {
      report_bad_access(
        violation::kind::misuse, what, site, at, "it is mapped, but cuMemSetAccess has not made it accessible");
      return false;
    }
    auto const here = holder.bytes - (at - found->first);
    if (left <= here) { return true; }
    at += here;
    left -= here;
    ++found;
    if (holder.type != allocation::kind::mapped || found == all.end() || found->first != at ||
        found->second.type != allocation::kind::mapped) {
      report_bad_access(violation::kind::out_of_bounds,
                        what,
                        site,
                        begin,
                        std::to_string(bytes) + " bytes from there run " + std::to_string(left) +
                          " bytes past the end of " + describe(*first));
      return false;
    }
  }
}

bool check_peer(char const* what, void const* site, std::uintptr_t begin, int device)
{
  auto const found = find_allocation(begin);
  if (found == memory().allocations.end() || accessible(found->second, device)) { return true; }
  report_bad_access(violation::kind::misuse,
                    what,
                    site,
                    begin,
                    "work of device " + std::to_string(device) + " has no access to memory of device " +
                      std::to_string(found->second.device) + ", " + describe(*found));
  return false;
}

void reset_memory()
{
  auto& w  = the_world();
  w.memory = nullptr;  // the old addresses have to be free before new ones are claimed
  w.memory = std::make_shared<memory_state>();
}

void drop_device_memory(int device)
{
  auto& all = memory().allocations;
  drop_pools_of(device);
  drop_virtual_memory_of(device);
  for (auto at = all.begin(); at != all.end();) {
    auto const next = std::next(at);
    if (at->second.device == device) { release_allocation(at, "cudaDeviceReset", nullptr); }
    at = next;
  }
  auto& opened = memory().opened;
  for (auto at = opened.begin(); at != opened.end();) {
    if (all.count(at->second.begin) != 0) {
      ++at;
      continue;
    }
    memory().addresses.give_up(at->second.window);
    at = opened.erase(at);
  }
}

void list_memory(std::vector<outstanding>& out)
{
  for (auto const& [begin, what] : memory().allocations) {
    bool const of_graph =
      what.block != nullptr && what.block->of_graph && !what.block->live;  // the graph gives it back
    if (of_graph || what.freeing) { continue; }
    out.push_back(outstanding{
      what.made_by, freed_by(what), pointer_to(begin), what.bytes, what.device, describe_address(what.site)});
  }
  list_pools(out);
  list_virtual_memory(out);
}

// --- What a test asks for

bool occupy(int device, std::size_t bytes)
{
  std::unique_lock<std::mutex> const lock{the_world().mutex};
  auto& m         = memory_of(device_of_test("cudasim::occupy", device).number);
  bool const fits = bytes <= free_bytes(device) + m.occupied;
  if (fits) { m.occupied = bytes; }
  tell_usage();
  return fits;
}

memory_usage usage(int device)
{
  std::unique_lock<std::mutex> const lock{the_world().mutex};
  auto const& m   = memory_of(device_of_test("cudasim::usage", device).number);
  auto const free = free_bytes(device);
  tell_usage();
  return {the_world().machine.memory_bytes, free, m.blocks.footprint(), m.pools, m.physical, m.occupied};
}

}  // namespace cudasim
