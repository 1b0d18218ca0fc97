// SPDX-License-Identifier: Apache-2.0
//
// The scheduler: how operations get onto streams, when they run, and how threads wait for them.
//
// An operation is ordered after (a) the one before it on its stream, (b) the work that the default stream's rules name,
// (c) the events its stream waits for, and (d) everything the host had waited for when it was submitted. (a) to (c)
// decide when it may run; (a) to (d) make up its vector clock, which the ordering checker compares.
//
// All host threads count as one: the simulator cannot see how they synchronise, so it assumes that each knows what any
// of them waited for. That can hide a race between threads; it never reports a race that does not exist.

#include "streams.hpp"

#include "capture.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace cudasim {
namespace {

constexpr unsigned most_workers = 64;  // as many host functions can block at once; further ones wait

[[nodiscard]] device& device_of(stream const& s) { return the_world().devices[static_cast<std::size_t>(s.device)]; }

[[nodiscard]] bool runnable(stream const& s)
{
  if (s.running || s.held || s.queue.empty()) { return false; }
  if (s.queue.front().host_function && device_of(s).runs_host_function) { return false; }
  auto const& after = s.queue.front().after;
  return std::all_of(after.begin(), after.end(), [](point const& p) { return p.reached(); });
}

[[nodiscard]] std::uint64_t start_time(stream const& s, operation const& work)
{
  auto start = std::max(s.time_ns, work.not_before_ns);
  for (auto const& p : work.after) { start = std::max(start, p.time_ns()); }
  return start;
}

/// Keeps the end time of a destroyed stream, which leaves the list of its device.
void retire_time(stream const& s)
{
  auto& d      = device_of(s);
  d.retired_ns = std::max(d.retired_ns, s.time_ns);
  if (s.blocking()) { d.retired_blocking_ns = std::max(d.retired_blocking_ns, s.time_ns); }
}

/// Does everything that follows the completion of an operation.
void complete(stream& s, operation& work, std::uint64_t end_ns)
{
  auto& w     = the_world();
  s.completed = work.sequence;
  s.time_ns   = end_ns;
  if (work.end_ns != nullptr) { *work.end_ns = end_ns; }
  if (work.done) { work.done(end_ns); }
  if (work.host_function) { w.host_clock.join(work.clock); }
  if (s.destroyed && s.idle()) {
    retire_time(s);
    auto& streams = w.devices[static_cast<std::size_t>(s.device)].streams;
    streams.erase(std::remove_if(streams.begin(), streams.end(), [&](auto const& other) { return other.get() == &s; }),
                  streams.end());
  }
}

/// Runs the operation at the head of a runnable stream. Releases the lock while it runs.
void run_head(std::unique_lock<std::mutex>& lock, std::shared_ptr<stream> const& s)
{
  auto& w           = the_world();
  operation work    = std::move(s->queue.front());
  auto const end_ns = start_time(*s, work) + work.duration_ns;
  bool threw        = false;
  s->queue.pop_front();
  if (s->queue.empty()) { w.active.erase(std::find(w.active.begin(), w.active.end(), s)); }
  s->running      = true;
  s->running_work = &work;
  ++w.running;
  if (work.host_function) { device_of(*s).runs_host_function = true; }
  lock.unlock();
  bool const inside = std::exchange(runs_work, true);
  try {
    if (work.run) { work.run(); }
  } catch (...) {
    threw = true;
  }
  runs_work = inside;
  lock.lock();
  s->running      = false;
  s->running_work = nullptr;
  --w.running;
  if (work.host_function) { device_of(*s).runs_host_function = false; }
  complete(*s, work, end_ns);
  if (threw) {
    break_device(s->device, cudaErrorLaunchFailure);
    report(violation::kind::misuse,
           {work.what, work.call_site},
           std::string{work.what} + " (called from " + describe_address(work.call_site) +
             ") ended with an exception: the device is broken now");
  }
  if (w.waiters != 0) { w.progress.notify_all(); }
  if (std::count_if(w.active.begin(), w.active.end(), [](auto const& other) { return runnable(*other); }) > 1) {
    call_worker();  // the present thread takes one of them itself
  }
  lock.unlock();
  work = {};  // destructors of captured objects may call CUDA
  lock.lock();
}

[[nodiscard]] std::shared_ptr<stream> next_runnable()
{
  auto& active     = the_world().active;
  auto const found = std::find_if(active.begin(), active.end(), [](auto const& s) { return runnable(*s); });
  if (found == active.end()) { return nullptr; }
  std::rotate(found, found + 1, active.end());  // take turns: the others come first next time
  return active.back();
}

[[noreturn]] void work_in_background()
{
  auto& w = the_world();
  std::unique_lock<std::mutex> lock{w.mutex};
  for (;;) {
    if (auto const s = w.machine.mode == execution::threads ? next_runnable() : nullptr) {
      run_head(lock, s);
    } else {
      ++w.idle_workers;
      w.work.wait(lock, [&] { return w.called_workers != 0; });
      --w.called_workers;
      --w.idle_workers;
    }
  }
}

/// Runs the first operation that the head of `s` waits for, or the head itself. False if that is held or runs.
bool run_toward(std::unique_lock<std::mutex>& lock, std::shared_ptr<stream> const& s)
{
  if (s->running || s->held || s->queue.empty()) { return false; }
  for (auto const& p : s->queue.front().after) {
    if (!p.reached()) { return run_toward(lock, std::shared_ptr<stream>{p.of}); }
  }
  if (!runnable(*s)) { return false; }
  run_head(lock, s);
  return true;
}

/// Picks the stream whose head step() runs.
[[nodiscard]] std::shared_ptr<stream> pick_for_step()
{
  auto& w = the_world();
  std::vector<std::shared_ptr<stream>> ready;
  std::copy_if(w.active.begin(), w.active.end(), std::back_inserter(ready), [](auto const& s) { return runnable(*s); });
  if (ready.empty()) { return nullptr; }
  // Sorted by submission, so that a seed does not depend on how the active streams are listed.
  std::sort(ready.begin(), ready.end(), [](auto const& a, auto const& b) {
    return a->queue.front().order < b->queue.front().order;
  });
  if (w.machine.seed == 0) { return ready.front(); }
  w.random_state += 0x9e3779b97f4a7c15ULL;  // splitmix64
  auto mixed = w.random_state;
  mixed      = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  mixed      = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebULL;
  return ready[(mixed ^ (mixed >> 31U)) % ready.size()];
}

/// Blocks until the point is reached. Returns false if the time limit passes first.
bool block_until(std::unique_lock<std::mutex>& lock, point const& where)
{
  if (where.reached()) { return true; }  // a look at the clock costs as much as the rest of an idle call
  auto& w             = the_world();
  auto const deadline = std::chrono::steady_clock::now() + w.timeout;
  tell_usage();  // other processes see this process's use before it blocks
  while (!where.reached()) {
    if (w.machine.mode == execution::stepped && run_toward(lock, where.of)) { continue; }
    ++w.waiters;
    auto const status = w.progress.wait_until(lock, deadline);
    --w.waiters;
    if (status == std::cv_status::timeout && !where.reached()) { return false; }
  }
  return true;
}

/// Orders `work` after all work that `other` has now.
void order_after(operation& work, std::shared_ptr<stream> const& other)
{
  if (other->idle()) {
    work.not_before_ns = std::max(work.not_before_ns, other->time_ns);
  } else {
    work.after.push_back(end_of(other));
  }
  if (the_world().checking) { work.clock.join(other->clock); }
}

/// The rules of the legacy default stream: it waits for all blocking streams of its device, and they wait for it.
void apply_default_stream_rules(stream const& s, operation& work)
{
  auto& d = the_world().devices[static_cast<std::size_t>(s.device)];
  if (s.type == stream::kind::legacy) {
    for (auto const& other : d.streams) {
      if (other->blocking()) { order_after(work, other); }
    }
    work.not_before_ns = std::max(work.not_before_ns, d.retired_blocking_ns);
    if (the_world().checking) { work.clock.join(d.retired_blocking); }
  } else if (s.blocking()) {
    order_after(work, d.legacy);
  }
}

void show_to_checker(stream const& s, operation const& work)
{
  auto& w = the_world();
  place const where{work.what, s.id, work.sequence, work.call_site};
  for (auto const& a : work.accesses) {
    access_history::conflict found{};
    if (w.history.access(a.begin, a.bytes, a.write, where, work.clock, found)) { report_race(where, a, found); }
  }
}

/// Fails if a blocking stream captures: work on the legacy stream, or a wait for it, would depend on the capture.
[[nodiscard]] cudaError_t check_implicit_capture(stream const& s)
{
  if (s.type != stream::kind::legacy) { return cudaSuccess; }
  for (auto const& c : the_world().captures) {
    for (auto const& member : c->members) {
      auto const other = member.lock();
      if (other != nullptr && other->device == s.device && other->blocking() && !c->invalidated) {
        c->invalidated = true;
        return cudaErrorStreamCaptureImplicit;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t add_node(stream& s, operation&& work)
{
  auto& c = *s.capturing;
  if (c.invalidated) { return cudaErrorStreamCaptureInvalidated; }
  auto& frontier = c.frontier[s.id];
  c.nodes.push_back(graph_node{std::move(work), std::move(frontier)});
  frontier = {c.nodes.size() - 1};
  return cudaSuccess;
}

}  // namespace

void call_worker()
{
  auto& w = the_world();
  if (w.machine.mode != execution::threads || w.active.empty()) { return; }
  if (w.called_workers < w.idle_workers) {
    ++w.called_workers;
    w.work.notify_one();
  } else if (w.workers < most_workers) {
    ++w.workers;
    std::thread{work_in_background}.detach();  // runs as long as the process
  }
}

void report_race(place const& later, access const& range, access_history::conflict const& found)
{
  char bytes[64];
  std::snprintf(bytes, sizeof bytes, "[%#tx, +%zu)", static_cast<std::ptrdiff_t>(range.begin), range.bytes);
  report(violation::kind::race,
         {std::string{later.what} + " after " + found.earlier.what, later.call_site, found.earlier.call_site},
         std::string{range.write ? "write" : "read"} + " of " + bytes + " by " + describe(later) +
           " is not ordered after the " + (found.earlier_writes ? "write" : "read") + " by " + describe(found.earlier) +
           "; an event or a synchronisation between them is missing");
}

std::shared_ptr<stream> make_stream(int device, stream::kind type, unsigned flags, int priority)
{
  auto& w        = the_world();
  auto made      = std::make_shared<stream>();
  made->id       = w.next_stream_id++;
  made->device   = device;
  made->type     = type;
  made->flags    = flags;
  made->priority = priority;
  made->time_ns  = w.host_ns;
  return made;
}

void make_context_current()
{
  this_thread().has_context    = true;
  current_device().has_context = true;
}

device& current_device() { return the_world().devices[static_cast<std::size_t>(this_thread().device)]; }

device& device_of_test(char const* function, int number)
{
  auto& all = the_world().devices;
  if (number < 0 || static_cast<std::size_t>(number) >= all.size()) {
    throw std::invalid_argument{std::string{function} + ": there is no device " + std::to_string(number) +
                                "; there are " + std::to_string(all.size())};
  }
  return all[static_cast<std::size_t>(number)];
}

std::shared_ptr<stream> try_find_stream(cudaStream_t handle)
{
  auto& w = the_world();
  if (handle == nullptr || handle == cudaStreamLegacy) { return current_device().legacy; }
  if (handle == cudaStreamPerThread) {
    auto& d    = current_device();
    auto& mine = w.per_thread_streams[{thread_number(), d.number}];
    if (mine == nullptr) {
      mine = make_stream(d.number, stream::kind::per_thread, cudaStreamDefault, 0);
      d.streams.push_back(mine);
    }
    return mine;
  }
  auto const found = w.stream_handles.find(handle);
  return found == w.stream_handles.end() ? nullptr : found->second;
}

std::shared_ptr<stream> find_stream(call& c, cudaStream_t handle)
{
  auto found = try_find_stream(handle);
  if (found == nullptr) {
    c.misuse(cudaErrorInvalidResourceHandle,
             "stream handle %p names no stream: it was destroyed, or never created",
             static_cast<void*>(handle));
  }
  return found;
}

std::shared_ptr<event> find_event(call& c, cudaEvent_t handle)
{
  auto const& handles = the_world().event_handles;
  auto const found    = handles.find(handle);
  if (found != handles.end()) { return found->second; }
  c.misuse(cudaErrorInvalidResourceHandle,
           "event handle %p names no event: it was destroyed, or never created",
           static_cast<void*>(handle));
  return nullptr;
}

cudaError_t submit(call& c, std::shared_ptr<stream> const& s, operation&& work)
{
  auto& w = the_world();
  if (*work.what == '\0') { work.what = c.name(); }
  if (work.call_site == nullptr) { work.call_site = c.site(); }
  if (s->capturing != nullptr) { return add_node(*s, std::move(work)); }
  if (auto const error = check_implicit_capture(*s); error != cudaSuccess) { return error; }

  apply_default_stream_rules(*s, work);
  work.sequence      = ++s->submitted;
  work.order         = w.next_order++;
  work.not_before_ns = std::max(work.not_before_ns, w.host_ns);
  if (w.checking) {
    work.clock.join(s->clock);
    work.clock.join(w.host_clock);
    work.clock.raise(s->id, work.sequence);
    show_to_checker(*s, work);
    s->clock = work.clock;
    s->clock.forget(w.host_clock);
  }

  bool const nothing_to_do =
    !work.run && !s->running && !s->held && s->queue.empty() &&
    std::all_of(work.after.begin(), work.after.end(), [](point const& p) { return p.reached(); });
  if (nothing_to_do && w.machine.mode == execution::threads) {
    complete(*s, work, start_time(*s, work) + work.duration_ns);
    return cudaSuccess;
  }
  if (s->queue.empty()) { w.active.push_back(s); }
  s->queue.push_back(std::move(work));
  call_worker();
  return cudaSuccess;
}

point end_of(std::shared_ptr<stream> const& s)
{
  if (s->idle()) { return {s, s->submitted, nullptr, s->time_ns}; }
  auto& last = s->queue.empty() ? *s->running_work : s->queue.back();
  if (last.end_ns == nullptr) { last.end_ns = std::make_shared<std::uint64_t>(0); }
  return {s, s->submitted, last.end_ns};
}

bool default_stream_is_done(device const& d)
{
  auto const is_done = [](auto const& s) { return !s->blocking() || s->idle(); };
  if (!d.legacy->idle() || !std::all_of(d.streams.begin(), d.streams.end(), is_done)) { return false; }
  auto& w         = the_world();
  auto const know = [&](stream const& s) {
    w.host_ns = std::max(w.host_ns, s.time_ns);
    w.host_clock.join(s.clock);
  };
  know(*d.legacy);
  for (auto const& s : d.streams) {
    if (s->blocking()) { know(*s); }
  }
  w.host_ns = std::max(w.host_ns, d.retired_blocking_ns);
  w.host_clock.join(d.retired_blocking);
  return true;
}

cudaError_t wait_for(call& c, point const& where, vector_clock const& clock)
{
  auto& w = the_world();
  if (!block_until(c.lock(), where)) {
    report(violation::kind::deadlock,
           {c.name(), c.site()},
           std::string{c.name()} + " (called from " + describe_address(c.site()) + ") waited " +
             std::to_string(w.timeout.count()) + " s for stream " + std::to_string(where.of->id) + ", operation " +
             std::to_string(where.sequence) + " of " + std::to_string(where.of->submitted) +
             " (completed: " + std::to_string(where.of->completed) + (where.of->held ? "; the stream is held)" : ")"));
    return cudaErrorLaunchTimeout;
  }
  w.host_ns = std::max(w.host_ns, where.time_ns());
  w.host_clock.join(clock);
  return w.devices[static_cast<std::size_t>(where.of == nullptr ? this_thread().device : where.of->device)].broken;
}

cudaError_t wait_for(call& c, std::shared_ptr<stream> const& s)
{
  auto const clock = s->clock;  // more work may be added during the wait
  auto const error = wait_for(c, end_of(s), clock);
  if (error == cudaSuccess) { pools_synchronized(s->device); }
  return error;
}

cudaError_t wait_for_device(call& c, int device)
{
  auto& w               = the_world();
  auto& d               = w.devices[static_cast<std::size_t>(device)];
  auto const retired    = d.retired;
  auto const retired_ns = d.retired_ns;
  std::vector<std::pair<point, vector_clock>> points;
  auto const add = [&](std::shared_ptr<stream> const& s) {
    if (s->idle()) {
      w.host_ns = std::max(w.host_ns, s->time_ns);
      w.host_clock.join(s->clock);
    } else {
      points.emplace_back(end_of(s), s->clock);
    }
  };
  for (auto const& s : d.streams) { add(s); }
  add(d.legacy);
  for (auto const& [where, clock] : points) {
    auto const error = wait_for(c, where, clock);
    if (error != cudaSuccess) { return error; }
  }
  if (d.broken != cudaSuccess) { return d.broken; }
  w.host_ns = std::max(w.host_ns, retired_ns);
  w.host_clock.join(retired);
  d.retired.forget(w.host_clock);
  d.retired_blocking.forget(w.host_clock);
  pools_synchronized(device);
  return cudaSuccess;
}

cudaError_t check_unsafe_call(call& c)
{
  static_cast<void>(c);
  auto& w = the_world();
  if (w.captures.empty()) { return cudaSuccess; }
  auto const mode = this_thread().capture_mode;
  auto const me   = thread_number();
  for (auto const& under_way : w.captures) {
    bool const own       = under_way->owner_thread == me && under_way->mode != cudaStreamCaptureModeRelaxed;
    bool const elsewhere = mode == cudaStreamCaptureModeGlobal && under_way->mode == cudaStreamCaptureModeGlobal;
    if (mode != cudaStreamCaptureModeRelaxed && (own || elsewhere)) {
      under_way->invalidated = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  return cudaSuccess;
}

void check_host_access(char const* what, void const* site, std::uintptr_t begin, std::size_t bytes, bool write)
{
  auto& w = the_world();
  if (!w.checking) { return; }
  place const where{what, 0, ++w.host_sequence, site};
  w.host_clock.raise(0, where.sequence);
  access_history::conflict found{};
  if (w.history.access(begin, bytes, write, where, w.host_clock, found)) {
    report_race(where, access{begin, bytes, write}, found);
  }
}

void retire_stream(std::shared_ptr<stream> const& s)
{
  auto& d      = the_world().devices[static_cast<std::size_t>(s->device)];
  s->destroyed = true;
  d.retired.join(s->clock);
  if (s->blocking()) { d.retired_blocking.join(s->clock); }
  if (s->idle()) {
    retire_time(*s);
    d.streams.erase(std::find(d.streams.begin(), d.streams.end(), s));
  }
}

void retire_thread(std::uint64_t number)
{
  auto& mine = the_world().per_thread_streams;
  for (auto at = mine.lower_bound({number, 0}); at != mine.end() && at->first.first == number; at = mine.erase(at)) {
    retire_stream(at->second);
  }
}

void break_device(int device, cudaError_t error)
{
  the_world().devices[static_cast<std::size_t>(device)].broken = error;
  attention.store(true, std::memory_order_relaxed);
}

namespace {

/// Removes the queued work of the streams and waits for their running work. The result is destroyed without the lock.
template <class Concerned>
std::vector<operation> take_work(std::unique_lock<std::mutex>& lock, Concerned&& concerned)
{
  auto& w = the_world();
  std::vector<operation> taken;
  for (auto const& s : w.active) {
    if (concerned(*s)) { std::move(s->queue.begin(), s->queue.end(), std::back_inserter(taken)); }
  }
  w.active.erase(std::remove_if(w.active.begin(),
                                w.active.end(),
                                [&](auto const& s) {
                                  if (!concerned(*s)) { return false; }
                                  s->queue.clear();
                                  return true;
                                }),
                 w.active.end());
  while (w.running != 0) {
    ++w.waiters;
    w.progress.wait(lock);
    --w.waiters;
  }
  return taken;
}

}  // namespace

void drop_all_work(std::unique_lock<std::mutex>& lock)
{
  auto& w          = the_world();
  auto dropped     = take_work(lock, [](stream const&) { return true; });
  auto graphs      = std::exchange(w.graphs, {});
  auto graph_execs = std::exchange(w.graph_execs, {});
  auto captures    = std::exchange(w.captures, {});
  lock.unlock();
  dropped.clear();  // destructors of captured objects may call CUDA
  graphs.clear();
  graph_execs.clear();
  captures.clear();
  lock.lock();
}

void drop_device_work(std::unique_lock<std::mutex>& lock, int device)
{
  auto& w      = the_world();
  auto& d      = w.devices[static_cast<std::size_t>(device)];
  auto dropped = take_work(lock, [device](stream const& s) { return s.device == device; });
  auto streams = std::exchange(d.streams, {});
  streams.push_back(std::exchange(d.legacy, make_stream(device, stream::kind::legacy, cudaStreamDefault, 0)));
  for (auto const& s : streams) {
    if (s->capturing != nullptr) {
      s->capturing->invalidated = true;
      leave_capture(*s);
    }
    s->completed = s->submitted;  // waits for dropped work end
    if (s->handle != nullptr && w.stream_handles.erase(s->handle) != 0) { w.free_stream_handles.push_back(s->handle); }
  }
  for (auto at = w.per_thread_streams.begin(); at != w.per_thread_streams.end();) {
    at = at->second->device == device ? w.per_thread_streams.erase(at) : std::next(at);
  }
  for (auto at = w.event_handles.begin(); at != w.event_handles.end();) {
    if (at->second->device == device) {
      w.free_event_handles.push_back(at->first);
      at = w.event_handles.erase(at);
    } else {
      ++at;
    }
  }
  d.retired             = {};
  d.retired_blocking    = {};
  d.retired_ns          = 0;
  d.retired_blocking_ns = 0;
  w.progress.notify_all();
  lock.unlock();
  dropped.clear();
  lock.lock();
}

void reset_streams()
{
  auto& w = the_world();
  for (auto const& [handle, s] : w.stream_handles) { w.free_stream_handles.push_back(handle); }
  for (auto const& [handle, e] : w.event_handles) { w.free_event_handles.push_back(handle); }
  w.stream_handles.clear();
  w.event_handles.clear();
  w.per_thread_streams.clear();
  w.devices.clear();
  w.devices.resize(static_cast<std::size_t>(w.machine.devices));
  for (std::size_t i = 0; i < w.devices.size(); ++i) {
    w.devices[i].number = static_cast<int>(i);
    w.devices[i].legacy = make_stream(static_cast<int>(i), stream::kind::legacy, cudaStreamDefault, 0);
  }
}

// --- Functions that let a test control time

namespace {

[[nodiscard]] std::shared_ptr<stream> stream_of_test(char const* what, cudaStream_t handle)
{
  static_cast<void>(device_of_test(what, this_thread().device));  // a default stream needs it
  auto found = try_find_stream(handle);
  if (found == nullptr) { report(violation::kind::misuse, {what}, std::string{what} + ": the handle names no stream"); }
  return found;
}

}  // namespace

std::uint64_t now_ns()
{
  auto& w = the_world();
  std::unique_lock<std::mutex> const lock{w.mutex};
  return w.host_ns;
}

void advance(std::uint64_t nanoseconds)
{
  auto& w = the_world();
  std::unique_lock<std::mutex> const lock{w.mutex};
  w.host_ns += nanoseconds;
}

bool step()
{
  std::unique_lock<std::mutex> lock{the_world().mutex};
  auto const s = pick_for_step();
  if (s == nullptr) { return false; }
  run_head(lock, s);
  return true;
}

bool step(cudaStream_t handle)
{
  std::unique_lock<std::mutex> lock{the_world().mutex};
  auto const s = stream_of_test("cudasim::step", handle);
  if (s == nullptr || !runnable(*s)) { return false; }
  run_head(lock, s);
  return true;
}

std::size_t run_until_idle()
{
  auto& w = the_world();
  std::unique_lock<std::mutex> lock{w.mutex};
  for (;;) {
    if (auto const s = pick_for_step()) {
      run_head(lock, s);
    } else if (w.running != 0) {
      ++w.waiters;
      w.progress.wait(lock);
      --w.waiters;
    } else {
      break;
    }
  }
  std::size_t left = 0;
  for (auto const& s : w.active) { left += s->queue.size(); }
  return left;
}

void hold(cudaStream_t handle)
{
  std::unique_lock<std::mutex> const lock{the_world().mutex};
  if (auto const s = stream_of_test("cudasim::hold", handle)) { s->held = true; }
}

void let_go(cudaStream_t handle)
{
  auto& w = the_world();
  std::unique_lock<std::mutex> const lock{w.mutex};
  if (auto const s = stream_of_test("cudasim::let_go", handle)) {
    s->held = false;
    call_worker();
    w.progress.notify_all();
  }
}

std::size_t pending(cudaStream_t handle)
{
  std::unique_lock<std::mutex> const lock{the_world().mutex};
  auto const s = stream_of_test("cudasim::pending", handle);
  return s == nullptr ? 0 : static_cast<std::size_t>(s->submitted - s->completed);
}

void check_ordering(bool on)
{
  auto& w = the_world();
  std::unique_lock<std::mutex> const lock{w.mutex};
  if (on && !w.checking) { w.history.clear(); }  // accesses in between are unknown
  w.checking = on;
}

void touch(void const* ptr, std::size_t bytes, bool write)
{
  auto const* const site = program_caller(__builtin_return_address(0));
  std::unique_lock<std::mutex> const lock{the_world().mutex};
  check_host_access("cudasim::touch", site, reinterpret_cast<std::uintptr_t>(ptr), bytes, write);
}

cudaError_t detail::launch(cudaStream_t handle,
                           std::vector<range> reads,
                           std::vector<range> writes,
                           std::function<void()> body,
                           kernel const& traits,
                           void const* call_site)
{
  CUDASIM_CALL_AT(cudasim::launch, call_site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (s->device != this_thread().device) {
      return c.misuse(cudaErrorInvalidResourceHandle,
                      "the stream belongs to device %d, device %d is current",
                      s->device,
                      this_thread().device);
    }
    operation work;
    work.what        = keep_name(traits.name);
    work.run         = std::move(body);
    work.duration_ns = traits.duration_ns;
    for (auto const* ranges : {&reads, &writes}) {
      for (auto const& r : *ranges) {
        auto const begin = reinterpret_cast<std::uintptr_t>(r.ptr);
        check_bytes(work.what, c.site(), begin, r.bytes);
        check_peer(work.what, c.site(), begin, s->device);
        work.accesses.push_back(access{begin, r.bytes, ranges == &writes});
      }
    }
    return submit(c, s, std::move(work));
  });
}

}  // namespace cudasim
