// SPDX-License-Identifier: Apache-2.0
#include "pool.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cudasim {
namespace {

constexpr std::size_t window_bytes = few_addresses ? std::size_t{1} << 30U : std::size_t{64} << 30U;
constexpr std::size_t most_on_host = std::size_t{256} << 30U;

/// Whether no work is under way that could touch memory, so that memory may be written now instead of in stream order.
[[nodiscard]] bool machine_is_idle()
{
  auto const& w = the_world();
  return w.active.empty() && w.running == 0;
}

[[nodiscard]] std::size_t room_of(pool const& p)
{
  auto const room  = p.on_device() ? free_bytes(p.device) : most_on_host - std::min(most_on_host, p.reserved);
  auto const limit = p.limit();
  if (limit == 0 || limit > room + p.reserved) { return room; }
  auto const most = round_up(limit, pool_chunk_bytes);
  return std::min(room, most - std::min<std::size_t>(most, p.reserved));
}

void charge(pool& p, std::size_t bytes)
{
  p.reserved += bytes;
  p.reserved_high = std::max(p.reserved_high, p.reserved);
  if (p.on_device()) { memory_of(p.device).pools += bytes; }
}

void refund(pool& p, std::size_t bytes)
{
  p.reserved -= bytes;
  if (p.on_device()) { memory_of(p.device).pools -= bytes; }
}

/// Whether the next operation of `s` comes after operation `sequence` of `other`, in every possible execution.
///
/// The operations queued behind an unfinished operation still list it, so the queues contain all ordering that matters.
class order_search {
 public:
  explicit order_search(stream const& other, std::uint64_t sequence) : other_{other}, sequence_{sequence} {}

  [[nodiscard]] bool next_operation_is_after(stream const& s)
  {
    if (reaches(s, s.submitted)) { return true; }
    auto const& d = the_world().devices[static_cast<std::size_t>(s.device)];  // the rules of the legacy default stream:
    if (s.type == stream::kind::legacy) {
      return std::any_of(d.streams.begin(), d.streams.end(), [&](auto const& blocking) {
        return blocking->blocking() && reaches(*blocking, blocking->submitted);
      });
    }
    return s.blocking() && reaches(*d.legacy, d.legacy->submitted);
  }

 private:
  /// Whether operation `until` of `s` is the sought operation or comes after it.
  [[nodiscard]] bool reaches(stream const& s, std::uint64_t until)
  {
    if (&s == &other_) { return until >= sequence_; }
    if (s.completed >= until) { return false; }  // else the sought operation would be complete, too
    auto& seen = seen_[s.id];
    if (seen >= until) { return false; }
    auto const from = std::exchange(seen, until);
    return std::any_of(s.queue.begin(), s.queue.end(), [&](operation const& work) {
      return work.sequence > from && work.sequence <= until &&
             std::any_of(work.after.begin(), work.after.end(), [&](point const& p) {
               return p.of != nullptr && reaches(*p.of, p.sequence);
             });
    });
  }

  stream const& other_;
  std::uint64_t sequence_;
  std::map<std::uint64_t, std::uint64_t> seen_;  ///< by stream id: the operations that were searched
};

/// Whether the program ordered the next operation of the stream after the frees. Their completion alone does not count.
[[nodiscard]] bool is_ordered(stream const& s, freed_by_stream const& after, std::uint64_t sequence)
{
  return order_search{*after.by, sequence}.next_operation_is_after(s);
}

/// Free bytes that were found for a stream.
struct found_block {
  std::uintptr_t begin{0};
  range_set* home{nullptr};  ///< where the bytes go back if they cannot be used
  bool fresh_start{
    false};  ///< nothing but completion ordered the stream after their last use: the checker has to forget that use
};

void add_chunks(pool& p, std::uintptr_t begin, std::size_t bytes)
{
  p.unreserved.remove(begin, bytes);
  p.clean.insert(begin, bytes);
  charge(p, bytes);
  for (std::size_t done = 0; done < bytes; done += pool_chunk_bytes) {
    p.chunks.emplace(begin + done, std::min(pool_chunk_bytes, bytes - done));
  }
}

void remove_chunk(pool& p, std::map<std::uintptr_t, std::size_t>::iterator chunk)
{
  auto const [begin, bytes] = *chunk;
  auto const window         = std::prev(p.windows.upper_bound(begin));
  protect(begin, bytes, protection::none);
  pages_of(p).discard(window->second.offset + (begin - window->first), bytes);
  the_world().history.forget(begin, bytes);
  p.clean.remove(begin, bytes);
  p.unreserved.insert(begin, bytes);
  p.chunks.erase(chunk);
  refund(p, bytes);
}

[[nodiscard]] bool add_window(pool& p, std::size_t bytes)
{
  bytes            = std::max(window_bytes, round_up(bytes, pool_chunk_bytes));
  auto const begin = memory().addresses.claim(bytes + guard_bytes, pool_chunk_bytes);
  if (begin == 0) { return false; }
  auto const offset = pages_of(p).extend(bytes);
  if (!pages_of(p).map(begin, bytes, offset)) {
    memory().addresses.give_up(begin);
    return false;
  }
  p.windows.emplace(begin, pool::window{bytes, offset});
  p.unreserved.insert(begin, bytes);
  return true;
}

/// Reserves as few chunks as possible so that `clean` has a range of `bytes`; uses clean bytes before the chunks.
[[nodiscard]] bool grow(pool& p, std::size_t bytes)
{
  auto const room = room_of(p);
  if (bytes > room + p.clean.largest()) { return false; }
  for (auto const unit : {pool_chunk_bytes, block_bytes}) {  // a smaller chunk may still fit at the end
    std::uintptr_t best     = 0;
    std::size_t best_growth = 0;
    auto const search       = [&] {
      for (auto const& [begin, length] : p.unreserved.ranges()) {
        auto const growth = round_up(bytes - std::min(bytes, p.clean.bytes_before(begin)), unit);
        if (growth <= length && (best == 0 || growth < best_growth)) {
          best        = begin;
          best_growth = growth;
        }
      }
    };
    search();
    if (best == 0 && add_window(p, bytes)) { search(); }
    if (best != 0 && best_growth <= room && protect(best, best_growth, protection::read_write)) {
      add_chunks(p, best, best_growth);
      return true;
    }
  }
  return false;
}

/// Takes from what the pool has, in this order: the stream's own blocks, complete ones, event-ordered ones.
[[nodiscard]] found_block find_block(pool& p, stream const& s, std::size_t bytes)
{
  if (auto const mine = p.waiting.find(s.id); mine != p.waiting.end()) {
    for (auto* const set : {&mine->second.young, &mine->second.old}) {
      if (auto const begin = set->take(bytes)) { return {begin, set, false}; }
    }
  }
  if (p.allow_opportunistic != 0) { collect(p); }
  if (auto const begin = p.clean.take(bytes)) { return {begin, &p.clean, true}; }
  if (p.follow_event_dependencies != 0) {
    for (auto& [id, other] : p.waiting) {
      if (id == s.id) { continue; }
      if (other.old.largest() >= bytes && is_ordered(s, other, other.old_until)) {
        return {other.old.take(bytes), &other.old, false};
      }
      if (other.young.largest() >= bytes && is_ordered(s, other, other.young_until)) {
        return {other.young.take(bytes), &other.young, false};
      }
    }
  }
  return {};
}

/// Takes a range that spans adjacent blocks of the stream's own and complete ones.
[[nodiscard]] found_block find_block_across(pool& p, stream const& s, std::size_t bytes)
{
  auto const mine = p.waiting.find(s.id);
  if (mine == p.waiting.end() || p.clean.empty()) { return {}; }
  auto merged = mine->second.young;
  for (auto rest : {mine->second.old, p.clean}) { merged.absorb(rest); }
  if (merged.largest() < bytes) { return {}; }
  mine->second.young = std::move(merged);
  mine->second.old   = {};
  p.clean            = {};
  return {mine->second.young.take(bytes), &mine->second.young, true};
}

/// If the memory freed by all other streams suffices, makes the stream wait for them; it then owns the memory.
[[nodiscard]] cudaError_t depend_on_frees(call& c, pool& p, std::shared_ptr<stream> const& s, std::size_t bytes)
{
  auto merged = p.clean;
  operation dependency;
  for (auto const& [id, freed] : p.waiting) {
    for (auto rest : {freed.young, freed.old}) { merged.absorb(rest); }
    if (id != s->id) {
      dependency.after.push_back(point{freed.by, std::max(freed.young_until, freed.old_until), nullptr});
    }
  }
  if (merged.largest() < bytes) { return cudaErrorMemoryAllocation; }
  if (auto const error = submit(c, s, std::move(dependency)); error != cudaSuccess) { return error; }
  p.clean = {};
  p.waiting.clear();
  p.waiting.emplace(s->id, freed_by_stream{s, std::move(merged), {}, s->submitted, 0});
  return cudaSuccess;
}

/// Tries everything a pool can do to find a block for a stream.
[[nodiscard]] cudaError_t obtain(
  call& c, pool& p, std::shared_ptr<stream> const& s, std::size_t bytes, found_block& found)
{
  found = find_block(p, *s, bytes);
  if (found.begin == 0) { found = find_block_across(p, *s, bytes); }
  if (found.begin == 0 && (grow(p, bytes) || (p.on_device() && trim_pools_of(p.device) != 0 && grow(p, bytes)))) {
    found = {p.clean.take(bytes), &p.clean, true};
  }
  if (found.begin != 0) { return cudaSuccess; }
  if (p.allow_internal_dependencies == 0) { return cudaErrorMemoryAllocation; }
  if (auto const error = depend_on_frees(c, p, s, bytes); error != cudaSuccess) { return error; }
  auto& mine = p.waiting.at(s->id).young;
  found      = {mine.take(bytes), &mine, true};
  return cudaSuccess;
}

void count_in(pool& p, std::size_t bytes)
{
  ++p.live;
  p.used += bytes;
  p.used_high = std::max(p.used_high, p.used);
}

/// Ends a block. Others may use its bytes once `s` has completed operation `sequence`.
void count_out(
  pool& p, std::uintptr_t begin, std::size_t bytes, std::shared_ptr<stream> const& s, std::uint64_t sequence)
{
  --p.live;
  p.used -= bytes;
  auto& freed       = p.waiting.try_emplace(s->id, freed_by_stream{s, {}, {}, 0, 0}).first->second;
  freed.young_until = std::max(freed.young_until, sequence);
  freed.young.insert(begin, round_up(bytes, granule_bytes));
}

void drop_windows(pool& p)
{
  for (auto const& [begin, window] : p.windows) {
    the_world().history.forget(begin, window.bytes);
    memory().addresses.give_up(begin);
  }
  p.windows.clear();
}

/// Ends a destroyed pool if none of its blocks is in use and no stream may still touch one.
void dispose_if_unused(std::shared_ptr<pool> const& p)
{
  if (p->live != 0) { return; }
  collect(*p);
  if (!p->waiting.empty()) { return; }
  while (!p->chunks.empty()) { remove_chunk(*p, p->chunks.begin()); }
  drop_windows(*p);
  auto& condemned = memory().pools->condemned;
  condemned.erase(std::find(condemned.begin(), condemned.end(), p));
}

void dispose_of_unused(int device)
{
  auto const condemned = memory().pools->condemned;
  for (auto const& p : condemned) {
    if (p->device == device || !p->on_device()) { dispose_if_unused(p); }
  }
}

[[nodiscard]] std::shared_ptr<pool> new_pool(cudaMemPoolProps const& properties)
{
  auto made        = std::make_shared<pool>();
  made->properties = properties;
  made->id         = memory().pools->next_id++;
  made->device     = properties.location.type == cudaMemLocationTypeDevice ? properties.location.id : cudaCpuDeviceId;
  if (made->managed()) { made->device = cudaCpuDeviceId; }
  if (made->on_device()) { made->access[made->device] = cudaMemAccessFlagsProtReadWrite; }
  return made;
}

/// The pool for memory of graphs. Such memory keeps its address from the capture until the graph is gone.
[[nodiscard]] pool& graph_pool(int device)
{
  auto& made = memory().pools->of_graphs[device];
  if (made == nullptr) {
    cudaMemPoolProps properties{};
    properties.allocType     = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id   = device;
    made                     = new_pool(properties);
  }
  return *made;
}

[[nodiscard]] allocation_map::iterator find_exactly(std::uintptr_t begin, std::uint64_t serial)
{
  auto& all        = memory().allocations;
  auto const found = all.find(begin);
  return found != all.end() && found->second.serial == serial ? found : all.end();
}

void release_graph_memory(allocation_map::iterator which, char const* what, void const* site)
{
  auto const block = which->second.block;
  auto const begin = which->first;
  auto const bytes = which->second.bytes;
  remove_allocation(which, what, site);
  --block->from->live;
  block->from->used -= bytes;
  the_world().history.forget(begin, bytes);
  block->from->clean.insert(begin, round_up(bytes, granule_bytes));
  trim(*block->from, 0, false);
}

/// Owned by the graph: frees memory that the graph allocated when the last copy of the graph goes, whether it ever ran
/// or not, and after a failed capture, too. Memory that a launch left with the program stays allocated.
class graph_memory {
 public:
  graph_memory(std::uintptr_t begin, std::uint64_t serial) noexcept : begin_{begin}, serial_{serial} {}
  graph_memory(graph_memory const&)            = delete;
  graph_memory& operator=(graph_memory const&) = delete;
  ~graph_memory()
  {
    auto const which = find_exactly(begin_, serial_);
    if (which == memory().allocations.end() || which->second.block->live) { return; }
    release_graph_memory(which, "the end of its graph", nullptr);
  }

 private:
  std::uintptr_t begin_;
  std::uint64_t serial_;
};

cudaError_t allocate_for_graph(call& c, std::shared_ptr<stream> const& s, std::size_t bytes, void** out)
{
  auto& p           = graph_pool(s->device);
  auto const padded = round_up(bytes, granule_bytes);
  auto begin        = p.clean.take(padded);
  if (begin == 0 && (grow(p, padded) || (trim_pools_of(s->device) != 0 && grow(p, padded)))) {
    begin = p.clean.take(padded);
  }
  if (begin == 0) { return cudaErrorMemoryAllocation; }

  auto const serial = memory().next_serial;
  operation work;
  work.accesses.push_back(access{begin, bytes, true});
  work.run         = [begin, bytes] { mark_fresh(begin, bytes); };
  auto const graph = s->capturing;
  if (auto const error = submit(c, s, std::move(work)); error != cudaSuccess) {
    p.clean.insert(begin, padded);
    trim(p, 0, false);
    return error;
  }
  auto block      = std::make_shared<pool_block>();
  block->from     = memory().pools->of_graphs.at(s->device);
  block->by       = s;
  block->graph    = graph;
  block->of_graph = true;
  block->live     = false;
  allocation made{allocation::kind::pooled, bytes, s->device, c.name(), c.site()};
  made.block = std::move(block);
  add_allocation(begin, std::move(made));
  count_in(p, bytes);
  graph->on_destroy.push_back([owner = std::make_shared<graph_memory>(begin, serial)] { static_cast<void>(owner); });
  *out = pointer_to(begin);
  return cudaSuccess;
}

/// cudaFreeAsync while the stream captures: it can free only memory of the same graph.
cudaError_t free_in_graph(call& c, allocation_map::iterator which, std::shared_ptr<stream> const& s)
{
  auto const& block = which->second.block;
  if (!block->of_graph || block->graph.lock() != s->capturing || block->freed_in_graph) {
    return refuse_pointer(c, cudaErrorInvalidValue, pointer_to(which->first));
  }
  operation work;
  work.accesses.push_back(access{which->first, which->second.bytes, true});
  work.run         = [begin = which->first, bytes = which->second.bytes] { mark_freed(begin, bytes); };
  auto const error = submit(c, s, std::move(work));
  if (error == cudaSuccess) { block->freed_in_graph = true; }
  return error;
}

/// Frees memory that a launch left with the program. The graph, while it exists, keeps the address.
void free_of_graph(allocation_map::iterator which, char const* what, void const* site)
{
  which->second.block->live = false;
  if (which->second.block->graph.expired()) { release_graph_memory(which, what, site); }
}

/// cudaFreeAsync for memory that a launch left. The graph holds the address, so it is kept until the stream gets there.
cudaError_t free_of_graph_later(call& c, allocation_map::iterator which, std::shared_ptr<stream> const& s)
{
  auto const begin  = which->first;
  auto const bytes  = which->second.bytes;
  auto const serial = which->second.serial;
  auto const block  = which->second.block;
  operation work;
  work.accesses.push_back(access{begin, bytes, true});
  work.run  = [begin, bytes] { mark_freed(begin, bytes); };
  work.done = [begin, serial, graph = block->graph.lock(), what = c.name(), site = c.site()](std::uint64_t) mutable {
    graph.reset();
    auto const freed = find_exactly(begin, serial);
    if (freed == memory().allocations.end() || freed->second.block->live) { return; }
    if (freed->second.block->graph.expired()) { release_graph_memory(freed, what, site); }
  };
  block->live      = false;
  auto const error = submit(c, s, std::move(work));
  if (error != cudaSuccess) { block->live = true; }
  return error;
}

}  // namespace

bool allocate_for_launch(capture const& graph, bool frees_first)
{
  std::vector<pool_block*> left_behind;
  for (auto const& [begin, what] : memory().allocations) {
    auto const& block = what.block;
    if (block == nullptr || !block->of_graph || block->freed_in_graph || block->graph.lock().get() != &graph) {
      continue;
    }
    if (block->live && !frees_first) { return false; }
    left_behind.push_back(block.get());
  }
  for (auto* const block : left_behind) { block->live = true; }
  return true;
}

memory_file& pages_of(pool& p) { return p.on_device() ? memory_of(p.device).pages : memory().host_pages; }

bool pool::check_invariants() const
{
  std::size_t free_there     = 0;
  std::size_t reserved_there = 0;
  auto const add             = [&](range_set const& set) {
    for (auto const& [begin, bytes] : set.ranges()) { free_there += bytes; }
    return set.check_invariants();
  };
  bool sound = add(clean);
  for (auto const& [by, freed] : waiting) { sound = add(freed.young) && add(freed.old) && sound; }
  for (auto const& [begin, bytes] : chunks) { reserved_there += bytes; }
  return sound && unreserved.check_invariants() && reserved_there == reserved && free_there <= reserved &&
         used <= reserved - free_there && used_high >= used && reserved_high >= reserved;
}

std::shared_ptr<pool> make_pool(cudaMemPoolProps const& properties)
{
  auto made    = new_pool(properties);
  made->handle = reinterpret_cast<cudaMemPool_t>(static_cast<std::uintptr_t>(0x6d000000 + made->id * 64));
  memory().pools->handles.emplace(made->handle, made);
  return made;
}

std::shared_ptr<pool> default_pool(pool_place const& place)
{
  auto& made = memory().pools->defaults[place];
  if (made == nullptr) {
    cudaMemPoolProps properties{};
    properties.location.type = static_cast<cudaMemLocationType>(std::get<0>(place));
    properties.location.id   = std::get<1>(place);
    properties.allocType     = static_cast<cudaMemAllocationType>(std::get<2>(place));
    made                     = make_pool(properties);
    made->is_default         = true;
  }
  return made;
}

std::shared_ptr<pool> current_pool(pool_place const& place)
{
  auto const& current = memory().pools->current;
  auto const found    = current.find(place);
  return found == current.end() ? default_pool(place) : found->second;
}

cudaError_t allocate_from_pool(
  call& c, std::shared_ptr<pool> const& from, std::shared_ptr<stream> const& s, std::size_t bytes, void** out)
{
  if (bytes > most_on_host && bytes > the_world().machine.memory_bytes) { return cudaErrorMemoryAllocation; }
  if (s->capturing != nullptr) { return allocate_for_graph(c, s, bytes, out); }

  auto& p           = *from;
  auto const padded = round_up(bytes, granule_bytes);
  found_block found;
  if (auto const error = obtain(c, p, s, padded, found); error != cudaSuccess) { return error; }
  auto const begin = found.begin;
  if (found.fresh_start) { the_world().history.forget(begin, padded); }

  bool const at_once = machine_is_idle();
  operation work;
  work.accesses.push_back(access{begin, bytes, true});
  if (!at_once) {
    work.run = [begin, bytes] { mark_fresh(begin, bytes); };
  }
  if (auto const error = submit(c, s, std::move(work)); error != cudaSuccess) {
    found.home->insert(begin, padded);
    return error;
  }
  if (at_once) { mark_fresh(begin, bytes); }
  auto block      = std::make_shared<pool_block>();
  block->from     = from;
  block->by       = s;
  block->sequence = s->submitted;
  allocation made{allocation::kind::pooled, bytes, p.on_device() ? p.device : s->device, c.name(), c.site()};
  made.block = std::move(block);
  add_allocation(begin, std::move(made));
  count_in(p, bytes);
  *out = pointer_to(begin);
  return cudaSuccess;
}

cudaError_t free_to_pool(call& c, allocation_map::iterator which, std::shared_ptr<stream> const& s)
{
  if (s->capturing != nullptr) { return free_in_graph(c, which, s); }
  auto const begin   = which->first;
  auto const bytes   = which->second.bytes;
  auto const block   = which->second.block;
  bool const foreign = which->second.type == allocation::kind::imported;
  if (block->of_graph && !block->live) { return refuse_pointer(c, cudaErrorInvalidValue, pointer_to(begin)); }
  if (block->of_graph) { return free_of_graph_later(c, which, s); }

  bool const at_once = machine_is_idle();
  operation work;
  work.accesses.push_back(access{begin, bytes, true});
  if (!foreign && !at_once) {
    work.run = [begin, bytes] { mark_freed(begin, bytes); };
  }
  if (auto const error = submit(c, s, std::move(work)); error != cudaSuccess) { return error; }
  if (!foreign && at_once) { mark_freed(begin, bytes); }
  if (foreign) {
    --block->from->live;
    remove_allocation(which, c.name(), c.site());
  } else {
    remove_allocation(which, c.name(), c.site());
    count_out(*block->from, begin, bytes, s, s->submitted);
  }
  if (block->from->destroyed) { dispose_if_unused(block->from); }
  return cudaSuccess;
}

void free_to_pool_at_once(allocation_map::iterator which, char const* what, void const* site)
{
  auto const begin = which->first;
  auto const bytes = which->second.bytes;
  auto const block = which->second.block;
  if (which->second.type == allocation::kind::imported) {
    --block->from->live;
    remove_allocation(which, what, site);
  } else if (block->of_graph) {
    free_of_graph(which, what, site);
  } else {
    remove_allocation(which, what, site);
    count_out(*block->from, begin, bytes, block->by, block->sequence);  // its first write may still run
  }
  if (block->from->destroyed) { dispose_if_unused(block->from); }
}

void collect(pool& p)
{
  for (auto at = p.waiting.begin(); at != p.waiting.end();) {
    auto& freed = at->second;
    if (freed.reached(freed.old_until)) { p.clean.absorb(freed.old); }
    if (freed.reached(freed.young_until)) { p.clean.absorb(freed.young); }
    if (freed.old.empty() && !freed.young.empty()) {
      std::swap(freed.old, freed.young);
      freed.old_until = freed.young_until;
    }
    at = freed.old.empty() ? p.waiting.erase(at) : std::next(at);
  }
}

void trim(pool& p, std::size_t bytes, bool keep)
{
  collect(p);
  for (auto at = p.chunks.end(); at != p.chunks.begin() && p.reserved > bytes;) {
    auto const chunk  = std::prev(at);
    bool const enough = !keep || p.reserved - chunk->second >= bytes;
    if (enough && p.clean.contains(chunk->first, chunk->second)) {
      remove_chunk(p, chunk);
    } else {
      at = chunk;
    }
  }
}

std::size_t trim_pools_of(int device)
{
  auto const before = memory_of(device).pools;
  dispose_of_unused(device);
  for (auto const& [handle, p] : memory().pools->handles) {
    if (p->device == device) { trim(*p, 0, false); }
  }
  return before - memory_of(device).pools;
}

void pools_synchronized(int device)
{
  dispose_of_unused(device);
  for (auto const& [handle, p] : memory().pools->handles) {
    if (p->device != device && p->on_device()) { continue; }
    collect(*p);
    if (p->reserved > p->release_threshold) { trim(*p, p->release_threshold, false); }
  }
}

void condemn(std::shared_ptr<pool> const& p)
{
  auto& state  = *memory().pools;
  p->destroyed = true;
  state.handles.erase(p->handle);
  for (auto at = state.current.begin(); at != state.current.end();) {
    at = at->second == p ? state.current.erase(at) : std::next(at);
  }
  state.condemned.push_back(p);
  dispose_if_unused(p);
}

void drop_pools_of(int device)
{
  auto& state     = *memory().pools;
  auto& all       = memory().allocations;
  auto const goes = [device](pool const& p) { return p.device == device; };
  for (auto at = all.begin(); at != all.end();) {
    auto const next = std::next(at);
    if (at->second.block != nullptr && goes(*at->second.block->from)) {
      remove_allocation(at, "cudaDeviceReset", nullptr);
    }
    at = next;
  }
  std::vector<std::shared_ptr<pool>> dropped;
  auto const take = [&](auto& pools) {
    for (auto at = pools.begin(); at != pools.end();) {
      if (goes(*at->second)) {
        dropped.push_back(at->second);
        at = pools.erase(at);
      } else {
        ++at;
      }
    }
  };
  take(state.handles);
  take(state.defaults);
  take(state.current);
  take(state.of_graphs);
  for (auto const& p : state.condemned) {
    if (goes(*p)) { dropped.push_back(p); }
  }
  state.condemned.erase(
    std::remove_if(state.condemned.begin(), state.condemned.end(), [&](auto const& p) { return goes(*p); }),
    state.condemned.end());
  for (auto const& p : dropped) {
    for (auto const& [begin, bytes] : std::exchange(p->chunks, {})) {
      auto const window = std::prev(p->windows.upper_bound(begin));
      pages_of(*p).discard(window->second.offset + (begin - window->first), bytes);
      refund(*p, bytes);
    }
    drop_windows(*p);
  }
}

std::uintptr_t open_window(pool& p, std::uint64_t offset, std::size_t bytes)
{
  auto const found =
    std::find_if(p.windows.begin(), p.windows.end(), [&](auto const& entry) { return entry.second.offset == offset; });
  if (found != p.windows.end()) { return found->first; }
  auto const begin = memory().addresses.claim(bytes + guard_bytes, pool_chunk_bytes);
  if (begin == 0) { return 0; }
  if (!p.imported_pages->map(begin, bytes, offset) || !protect(begin, bytes, protection::read_write)) {
    memory().addresses.give_up(begin);
    return 0;
  }
  p.windows.emplace(begin, pool::window{bytes, offset});
  return begin;
}

void list_pools(std::vector<outstanding>& out)
{
  for (auto const& [handle, p] : memory().pools->handles) {
    if (p->is_default) { continue; }
    out.push_back(outstanding{p->made_by, "cudaMemPoolDestroy", handle, 0, p->device, describe_address(p->site)});
  }
}

}  // namespace cudasim
