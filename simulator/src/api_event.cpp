// SPDX-License-Identifier: Apache-2.0
//
// cudaEvent*.

#include "capture.hpp"
#include "driver.hpp"
#include "streams.hpp"

#include <algorithm>

namespace cudasim {
namespace {

constexpr unsigned known_flags = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;

cudaError_t create(call& c, cudaEvent_t* out, unsigned flags)
{
  if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the event is null"); }
  if ((flags & ~known_flags) != 0) { return c.misuse(cudaErrorInvalidValue, "unknown flags %#x", flags); }
  if ((flags & cudaEventInterprocess) != 0 && (flags & cudaEventDisableTiming) == 0) {
    return c.misuse(cudaErrorInvalidValue, "an interprocess event must not record times");
  }
  auto& w = the_world();
  if (w.free_event_handles.empty()) {
    w.free_event_handles.push_back(
      reinterpret_cast<cudaEvent_t>(new std::uint64_t{0}));  // never freed, only reused, like stream handles
  }
  auto e        = std::make_shared<event>();
  e->device     = this_thread().device;
  e->flags      = flags;
  e->created_at = c.site();
  *out          = w.free_event_handles.back();
  w.event_handles.emplace(*out, std::move(e));
  w.free_event_handles.pop_back();
  return cudaSuccess;
}

cudaError_t record(call& c, cudaEvent_t event_handle, cudaStream_t handle, unsigned flags)
{
  auto const e = find_event(c, event_handle);
  if (e == nullptr) { return cudaErrorInvalidResourceHandle; }
  auto const s = find_stream(c, handle);
  if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (flags != cudaEventRecordDefault && flags != cudaEventRecordExternal) {
    return c.misuse(cudaErrorInvalidValue, "unknown flags %#x", flags);
  }
  if (e->device != s->device) {
    return c.misuse(cudaErrorInvalidResourceHandle,
                    "the event belongs to device %d and the stream to device %d",
                    e->device,
                    s->device);
  }
  if (s->capturing != nullptr) { return capture_record(*s, *e); }
  if (auto const error = submit(c, s, operation{}); error != cudaSuccess) { return error; }
  e->captured_in = nullptr;
  e->captured_nodes.clear();
  e->recorded = true;
  e->at       = end_of(s);
  e->clock    = s->clock;
  return cudaSuccess;
}

cudaError_t record_default(cudaEvent_t e, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaEventRecord, site, { return record(c, e, s, cudaEventRecordDefault); });
}

cudaError_t record_with_flags(cudaEvent_t e, cudaStream_t s, unsigned flags, void const* site)
{
  CUDASIM_CALL_AT(cudaEventRecordWithFlags, site, { return record(c, e, s, flags); });
}

/// A captured event stands for nodes of a graph. It cannot be queried or waited for, during the capture or after it.
cudaError_t refuse_captured(event const& e)
{
  if (e.captured_in == nullptr) { return cudaSuccess; }
  auto const& under_way = the_world().captures;
  if (std::find(under_way.begin(), under_way.end(), e.captured_in) == under_way.end()) { return cudaErrorInvalidValue; }
  e.captured_in->invalidated = true;
  return cudaErrorCapturedEvent;
}

cudaError_t query(call& c, cudaEvent_t handle)
{
  auto const e = find_event(c, handle);
  if (e == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (auto const error = refuse_captured(*e); error != cudaSuccess) { return error; }
  if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
  if (!e->recorded) { return cudaSuccess; }
  return e->at.reached() ? wait_for(c, e->at, e->clock) : cudaErrorNotReady;
}

}  // namespace

CUresult driver::record(CUevent event_handle, CUstream handle)
{
  CUDASIM_DRIVER_CALL(cuEventRecord, {
    if (lacks_context(handle)) { return cudaErrorDeviceUninitialized; }
    return cudasim::record(c, event_handle, handle, cudaEventRecordDefault);
  });
}

CUresult driver::record_per_thread(CUevent event_handle, CUstream handle)
{
  return record(event_handle, per_thread(handle));
}

CUresult driver::query(CUevent handle)
{
  CUDASIM_DRIVER_CALL(cuEventQuery, { return cudasim::query(c, handle); });
}

}  // namespace cudasim

using namespace cudasim;

cudaError_t cudaEventCreate(cudaEvent_t* out)
{
  CUDASIM_CALL(cudaEventCreate, { return create(c, out, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags)
{
  CUDASIM_CALL(cudaEventCreateWithFlags, { return create(c, out, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
  CUDASIM_CALL(cudaEventDestroy, {
    if (find_event(c, handle) == nullptr) { return cudaErrorInvalidResourceHandle; }
    auto& w = the_world();
    w.event_handles.erase(handle);
    w.free_event_handles.push_back(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
  CUDASIM_CALL(cudaEventQuery, { return query(c, handle); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
  CUDASIM_CALL(cudaEventSynchronize, {
    auto const e = find_event(c, handle);
    if (e == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (auto const error = refuse_captured(*e); error != cudaSuccess) { return error; }
    if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
    if (!e->recorded) { return cudaSuccess; }
    auto const at    = e->at;  // the event may be recorded again while we wait
    auto const clock = e->clock;
    auto const error = wait_for(c, at, clock);
    if (error == cudaSuccess) { pools_synchronized(at.of->device); }
    return error;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end)
{
  CUDASIM_CALL(cudaEventElapsedTime, {
    auto const from = find_event(c, start);
    auto const to   = find_event(c, end);
    if (from == nullptr || to == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (milliseconds == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the time is null"); }
    for (auto const* e : {from.get(), to.get()}) {
      if ((e->flags & cudaEventDisableTiming) != 0) {
        return c.misuse(cudaErrorInvalidResourceHandle, "an event was created with cudaEventDisableTiming");
      }
      if (!e->recorded) { return c.misuse(cudaErrorInvalidResourceHandle, "an event was never recorded"); }
      if (auto const error = refuse_captured(*e); error != cudaSuccess) { return error; }
    }
    if (from->device != to->device) {
      return c.misuse(cudaErrorInvalidResourceHandle, "the events belong to different devices");
    }
    if (!from->at.reached() || !to->at.reached()) { return cudaErrorNotReady; }
    auto const difference = static_cast<double>(to->at.time_ns()) - static_cast<double>(from->at.time_ns());
    *milliseconds         = static_cast<float>(difference / 1e6);
    return cudaSuccess;
  });
}

extern "C" {
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return record_default(e, s, __builtin_return_address(0)); }
cudaError_t cudaEventRecord_ptsz(cudaEvent_t e, cudaStream_t s)
{
  return record_default(e, per_thread(s), __builtin_return_address(0));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags)
{
  return record_with_flags(e, s, flags, __builtin_return_address(0));
}
cudaError_t cudaEventRecordWithFlags_ptsz(cudaEvent_t e, cudaStream_t s, unsigned flags)
{
  return record_with_flags(e, per_thread(s), flags, __builtin_return_address(0));
}

}  // extern "C"
