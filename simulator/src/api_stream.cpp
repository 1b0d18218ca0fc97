// SPDX-License-Identifier: Apache-2.0
//
// cudaStream*, host functions, and the list of outstanding streams, events and graphs.

#include "capture.hpp"
#include "driver.hpp"
#include "streams.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace cudasim {

char const* keep_name(char const* name)
{
  static auto& kept = *new std::set<std::string>;  // leaked on purpose, like the world
  return kept.insert(name == nullptr ? "" : name).first->c_str();
}

namespace {

constexpr int lowest_priority  = 0;
constexpr int highest_priority = -5;

cudaError_t create(call& c, cudaStream_t* out, unsigned flags, int priority)
{
  if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the stream is null"); }
  if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) {
    return c.misuse(cudaErrorInvalidValue, "unknown flags %#x", flags);
  }
  auto& w = the_world();
  auto& d = current_device();
  auto s = make_stream(d.number, stream::kind::created, flags, std::clamp(priority, highest_priority, lowest_priority));
  if (w.free_stream_handles.empty()) {
    // Handles are addresses of bytes that are never freed, so that a stale handle can be told from a live one.
    w.free_stream_handles.push_back(reinterpret_cast<cudaStream_t>(new std::uint64_t{0}));
  }
  s->created_at = c.site();
  s->handle     = w.free_stream_handles.back();
  w.stream_handles.emplace(s->handle, s);
  d.streams.push_back(s);
  w.free_stream_handles.pop_back();
  *out = s->handle;
  return cudaSuccess;
}

cudaError_t query(cudaStream_t handle, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamQuery, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (s->type == stream::kind::legacy) {
      auto const& d = the_world().devices[static_cast<std::size_t>(s->device)];
      return default_stream_is_done(d) ? d.broken : cudaErrorNotReady;
    }
    if (!s->idle()) { return cudaErrorNotReady; }
    return wait_for(c, end_of(s), s->clock);  // returns immediately; the host's clock now covers the work
  });
}

cudaError_t synchronize(cudaStream_t handle, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamSynchronize, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (s->type != stream::kind::legacy) { return wait_for(c, s); }
    // The default stream is done when all blocking streams are that it waits for.
    bool const done  = default_stream_is_done(the_world().devices[static_cast<std::size_t>(s->device)]);
    auto const error = done ? cudaSuccess : submit(c, s, operation{});
    return error == cudaSuccess ? wait_for(c, s) : error;
  });
}

cudaError_t get_flags(cudaStream_t handle, unsigned* flags, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamGetFlags, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (flags == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the flags is null"); }
    if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
    *flags = s->flags;
    return cudaSuccess;
  });
}

cudaError_t get_priority(cudaStream_t handle, int* priority, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamGetPriority, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (priority == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the priority is null"); }
    if (s->capturing == nullptr) {  // a capturing stream may be asked; the legacy one may not while a capture blocks it
      if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
    }
    *priority = s->priority;
    return cudaSuccess;
  });
}

cudaError_t get_id(cudaStream_t handle, unsigned long long* id, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamGetId, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (id == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the id is null"); }
    if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
    *id = s->id;
    return cudaSuccess;
  });
}

cudaError_t get_device(cudaStream_t handle, int* number, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamGetDevice, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (number == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the device is null"); }
    if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
    *number = s->device;
    return cudaSuccess;
  });
}

cudaError_t make_wait(call& c, cudaStream_t handle, cudaEvent_t event_handle, unsigned flags)
{
  auto const s = find_stream(c, handle);
  if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
  auto const e = find_event(c, event_handle);
  if (e == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (flags != cudaEventWaitDefault && flags != cudaEventWaitExternal) {
    return c.misuse(cudaErrorInvalidValue, "unknown flags %#x", flags);
  }
  if (e->captured_in != nullptr || s->capturing != nullptr) { return capture_wait(*s, s, *e); }
  if (!e->recorded) { return cudaSuccess; }
  auto const& w = the_world();
  if (!w.checking && w.machine.mode == execution::threads && e->at.reached() && s->idle() && !s->held) {
    s->time_ns = std::max(s->time_ns, e->at.time_ns());
    return cudaSuccess;
  }
  operation work;
  work.after.push_back(e->at);
  work.clock = e->clock;
  return submit(c, s, std::move(work));
}

cudaError_t wait_event(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamWaitEvent, site, { return make_wait(c, handle, event_handle, flags); });
}

cudaError_t launch_host_function(cudaStream_t handle, cudaHostFn_t function, void* data, void const* site)
{
  CUDASIM_CALL_AT(cudaLaunchHostFunc, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (function == nullptr) { return c.misuse(cudaErrorInvalidValue, "the callback is null"); }
    operation work;
    work.run           = [function, data] { function(data); };
    work.host_function = true;
    work.duration_ns   = 1'000;
    return submit(c, s, std::move(work));
  });
}

cudaError_t add_callback(
  cudaStream_t handle, cudaStreamCallback_t callback, void* data, unsigned flags, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamAddCallback, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (callback == nullptr) { return c.misuse(cudaErrorInvalidValue, "the callback is null"); }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#x", flags); }
    if (auto const error = refuse_while_capturing(*s); error != cudaSuccess) { return error; }
    operation work;
    work.run           = [callback, handle, data] { callback(handle, cudaSuccess, data); };
    work.host_function = true;
    work.duration_ns   = 1'000;
    return submit(c, s, std::move(work));
  });
}

cudaError_t attach(cudaStream_t handle, void* ptr, std::size_t bytes, unsigned flags, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamAttachMemAsync, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    auto const info = lookup(ptr);
    if (info.type != cudaMemoryTypeManaged) { return c.misuse(cudaErrorInvalidValue, "%p is not managed memory", ptr); }
    if (bytes != 0 && (reinterpret_cast<std::uintptr_t>(ptr) != info.begin || bytes != info.bytes)) {
      return c.misuse(cudaErrorInvalidValue, "only whole allocations can be attached");
    }
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost && flags != cudaMemAttachSingle) {
      return c.misuse(cudaErrorInvalidValue, "unknown flags %#x", flags);
    }
    return submit(c, s, operation{});
  });
}

}  // namespace

void list_streams(std::vector<outstanding>& out)
{
  auto const& w = the_world();
  for (auto const& [handle, s] : w.stream_handles) {
    out.push_back({"cudaStreamCreate", "cudaStreamDestroy", handle, 0, s->device, describe_address(s->created_at)});
  }
  for (auto const& [handle, e] : w.event_handles) {
    out.push_back({"cudaEventCreate", "cudaEventDestroy", handle, 0, e->device, describe_address(e->created_at)});
  }
  for (auto const& [handle, graph] : w.graphs) {
    out.push_back({"cudaStreamEndCapture", "cudaGraphDestroy", handle, 0, 0, describe_address(nullptr)});
  }
  for (auto const& [handle, exec] : w.graph_execs) {
    out.push_back({"cudaGraphInstantiate", "cudaGraphExecDestroy", handle, 0, 0, describe_address(nullptr)});
  }
}

CUresult driver::wait_event(CUstream handle, CUevent event_handle, unsigned flags)
{
  CUDASIM_DRIVER_CALL(cuStreamWaitEvent, {
    if (lacks_context(handle)) { return cudaErrorDeviceUninitialized; }
    return make_wait(c, handle, event_handle, flags);
  });
}

CUresult driver::wait_event_per_thread(CUstream handle, CUevent event_handle, unsigned flags)
{
  return wait_event(per_thread(handle), event_handle, flags);
}

}  // namespace cudasim

using namespace cudasim;

cudaError_t cudaStreamCreate(cudaStream_t* out)
{
  CUDASIM_CALL(cudaStreamCreate, { return create(c, out, cudaStreamDefault, lowest_priority); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags)
{
  CUDASIM_CALL(cudaStreamCreateWithFlags, { return create(c, out, flags, lowest_priority); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority)
{
  CUDASIM_CALL(cudaStreamCreateWithPriority, { return create(c, out, flags, priority); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest)
{
  CUDASIM_CALL(cudaDeviceGetStreamPriorityRange, {
    if (least != nullptr) { *least = lowest_priority; }
    if (greatest != nullptr) { *greatest = highest_priority; }
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
  CUDASIM_CALL(cudaStreamDestroy, {
    auto& w = the_world();
    if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
      return c.misuse(cudaErrorInvalidResourceHandle, "a default stream cannot be destroyed");
    }
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (s->capturing != nullptr) { leave_capture(*s); }
    w.stream_handles.erase(handle);
    w.free_stream_handles.push_back(handle);
    s->held = false;  // its work goes on, as on a real device
    retire_stream(s);
    call_worker();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from)
{
  CUDASIM_CALL(cudaStreamCopyAttributes, {
    return find_stream(c, to) == nullptr || find_stream(c, from) == nullptr ? cudaErrorInvalidResourceHandle
                                                                            : cudaSuccess;
  });
}

extern "C" {
cudaError_t cudaStreamQuery(cudaStream_t s) { return query(s, __builtin_return_address(0)); }
cudaError_t cudaStreamQuery_ptsz(cudaStream_t s) { return query(per_thread(s), __builtin_return_address(0)); }

cudaError_t cudaStreamSynchronize(cudaStream_t s) { return synchronize(s, __builtin_return_address(0)); }
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t s)
{
  return synchronize(per_thread(s), __builtin_return_address(0));
}

cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* flags)
{
  return get_flags(s, flags, __builtin_return_address(0));
}
cudaError_t cudaStreamGetFlags_ptsz(cudaStream_t s, unsigned* flags)
{
  return get_flags(per_thread(s), flags, __builtin_return_address(0));
}

cudaError_t cudaStreamGetPriority(cudaStream_t s, int* priority)
{
  return get_priority(s, priority, __builtin_return_address(0));
}
cudaError_t cudaStreamGetPriority_ptsz(cudaStream_t s, int* priority)
{
  return get_priority(per_thread(s), priority, __builtin_return_address(0));
}

cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long* id)
{
  return get_id(s, id, __builtin_return_address(0));
}
cudaError_t cudaStreamGetId_ptsz(cudaStream_t s, unsigned long long* id)
{
  return get_id(per_thread(s), id, __builtin_return_address(0));
}

cudaError_t cudaStreamGetDevice(cudaStream_t s, int* number)
{
  return get_device(s, number, __builtin_return_address(0));
}
cudaError_t cudaStreamGetDevice_ptsz(cudaStream_t s, int* number)
{
  return get_device(per_thread(s), number, __builtin_return_address(0));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
  return wait_event(s, e, flags, __builtin_return_address(0));
}
cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
  return wait_event(per_thread(s), e, flags, __builtin_return_address(0));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void* data)
{
  return launch_host_function(s, function, data, __builtin_return_address(0));
}
cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t s, cudaHostFn_t function, void* data)
{
  return launch_host_function(per_thread(s), function, data, __builtin_return_address(0));
}

cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t callback, void* data, unsigned flags)
{
  return add_callback(s, callback, data, flags, __builtin_return_address(0));
}
cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t s, cudaStreamCallback_t callback, void* data, unsigned flags)
{
  return add_callback(per_thread(s), callback, data, flags, __builtin_return_address(0));
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t s, void* ptr, std::size_t bytes, unsigned flags)
{
  return attach(s, ptr, bytes, flags, __builtin_return_address(0));
}
cudaError_t cudaStreamAttachMemAsync_ptsz(cudaStream_t s, void* ptr, std::size_t bytes, unsigned flags)
{
  return attach(per_thread(s), ptr, bytes, flags, __builtin_return_address(0));
}

cudaError_t cudaStreamCopyAttributes_ptsz(cudaStream_t to, cudaStream_t from)
{
  return cudaStreamCopyAttributes(per_thread(to), per_thread(from));
}

}  // extern "C"
