// SPDX-License-Identifier: Apache-2.0
//
// Stream capture. A capture is a list of nodes and, for each stream in it, its frontier: the nodes that the stream's next
// operation follows. An event recorded in a capture carries a frontier to the stream that waits for it.

#include "capture.hpp"

#include "driver.hpp"
#include "streams.hpp"

#include <algorithm>
#include <set>

struct cudaGraphEdgeData_st;  // older headers do not declare it

namespace cudasim {
namespace {

void add_nodes(std::vector<std::size_t>& frontier, std::vector<std::size_t> const& nodes)
{
  for (auto const node : nodes) {
    if (std::find(frontier.begin(), frontier.end(), node) == frontier.end()) { frontier.push_back(node); }
  }
}

/// Ends a capture: takes it off the list, and its streams out of it.
void close(std::shared_ptr<capture> const& under_way)
{
  auto& all = the_world().captures;
  all.erase(std::find(all.begin(), all.end(), under_way));
  for (auto const& member : under_way->members) {
    if (auto const s = member.lock()) { s->capturing = nullptr; }
  }
}

/// Whether every node comes before the frontier of the stream that the capture began on.
[[nodiscard]] bool all_joined(capture const& c, stream const& origin)
{
  std::set<std::size_t> reached;
  auto open = c.frontier.at(origin.id);
  while (!open.empty()) {
    auto const node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) { continue; }
    auto const& before = c.nodes[node].after;
    open.insert(open.end(), before.begin(), before.end());
  }
  return reached.size() == c.nodes.size();
}

/// The captures that use of the default stream would break: those of blocking streams of its device.
[[nodiscard]] std::vector<std::shared_ptr<capture>> captures_that_block(stream const& legacy)
{
  auto const& captures = the_world().captures;
  std::vector<std::shared_ptr<capture>> blocking;
  std::copy_if(captures.begin(), captures.end(), std::back_inserter(blocking), [&](auto const& c) {
    return std::any_of(c->members.begin(), c->members.end(), [&](auto const& member) {
      auto const other = member.lock();
      return other != nullptr && other->device == legacy.device && other->blocking();
    });
  });
  return blocking;
}

/// Whether a capture makes the stream unusable. Asking does not break the capture.
[[nodiscard]] bool blocked_by_capture(stream const& s)
{
  return s.type == stream::kind::legacy && !captures_that_block(s).empty();
}

[[nodiscard]] cudaStreamCaptureStatus status_of(stream const& s)
{
  if (s.capturing == nullptr) { return cudaStreamCaptureStatusNone; }
  return s.capturing->invalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamBeginCapture, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) {
      return c.misuse(cudaErrorInvalidValue, "unknown mode %d", static_cast<int>(mode));
    }
    if (s->type == stream::kind::legacy) {
      return c.misuse(cudaErrorStreamCaptureUnsupported, "the legacy default stream cannot be captured");
    }
    if (s->capturing != nullptr) {
      return c.misuse(
        cudaErrorIllegalState, "stream %llu is capturing already", static_cast<unsigned long long>(s->id));
    }
    auto& w               = the_world();
    auto made             = std::make_shared<capture>();
    made->id              = w.next_capture++;
    made->mode            = mode;
    made->owner_thread    = thread_number();
    made->origin          = s;
    made->frontier[s->id] = {};
    made->members         = {s};
    s->capturing          = made;
    w.captures.push_back(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamEndCapture, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (graph != nullptr) { *graph = nullptr; }
    auto const made = s->capturing;
    if (made == nullptr) {
      return c.misuse(cudaErrorIllegalState, "stream %llu is not capturing", static_cast<unsigned long long>(s->id));
    }
    if (made->origin.lock() != s) {
      made->invalidated = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    if (made->mode != cudaStreamCaptureModeRelaxed && made->owner_thread != thread_number()) {
      close(made);  // the runtime also ends the capture
      return cudaErrorStreamCaptureWrongThread;
    }
    bool const joined = all_joined(*made, *s);
    close(made);
    if (made->invalidated) { return cudaErrorStreamCaptureInvalidated; }
    if (!joined) { return cudaErrorStreamCaptureUnjoined; }
    if (graph == nullptr) { return cudaSuccess; }  // a caller that passes no graph gets none
    *graph = reinterpret_cast<cudaGraph_t>(made.get());
    the_world().graphs.emplace(*graph, made);
    return cudaSuccess;
  });
}

cudaError_t put_status(call& c, cudaStream_t handle, cudaStreamCaptureStatus* status)
{
  auto const s = find_stream(c, handle);
  if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (status == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the status is null"); }
  if (blocked_by_capture(*s)) { return cudaErrorStreamCaptureImplicit; }
  *status = status_of(*s);
  return cudaSuccess;
}

cudaError_t is_capturing(cudaStream_t handle, cudaStreamCaptureStatus* status, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamIsCapturing, site, { return put_status(c, handle, status); });
}

cudaError_t exchange_mode(call& c, cudaStreamCaptureMode* mode)
{
  if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed) {
    return c.misuse(cudaErrorInvalidValue, "the mode is null or unknown");
  }
  std::swap(*mode, this_thread().capture_mode);
  return cudaSuccess;
}

struct capture_info {
  cudaStreamCaptureStatus* status;
  unsigned long long* id;
  cudaGraph_t* graph;
  cudaGraphNode_t const** dependencies;
  cudaGraphEdgeData_st const** edges;
  std::size_t* count;
};

cudaError_t get_info(cudaStream_t handle, capture_info const& out, void const* site)
{
  CUDASIM_CALL_AT(cudaStreamGetCaptureInfo, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (out.status == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the status is null"); }
    if (out.edges != nullptr && out.dependencies == nullptr) {
      return c.misuse(cudaErrorInvalidValue, "edge data without dependencies");
    }
    if (blocked_by_capture(*s)) { return cudaErrorStreamCaptureImplicit; }
    *out.status = status_of(*s);
    if (*out.status != cudaStreamCaptureStatusActive) { return cudaSuccess; }
    auto& under_way     = *s->capturing;
    under_way.asked_for = {};
    for (auto const node : under_way.frontier[s->id]) {
      under_way.asked_for.push_back(reinterpret_cast<cudaGraphNode_t>(&under_way.nodes[node]));
    }
    if (out.id != nullptr) { *out.id = under_way.id; }
    if (out.graph != nullptr) { *out.graph = reinterpret_cast<cudaGraph_t>(&under_way); }
    if (out.dependencies != nullptr) { *out.dependencies = under_way.asked_for.data(); }
    if (out.edges != nullptr) { *out.edges = nullptr; }
    if (out.count != nullptr) { *out.count = under_way.asked_for.size(); }
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t refuse_while_capturing(stream const& s)
{
  if (s.capturing == nullptr) {
    if (s.type != stream::kind::legacy) { return cudaSuccess; }
    auto const blocking = captures_that_block(s);
    for (auto const& under_way : blocking) { under_way->invalidated = true; }
    return blocking.empty() ? cudaSuccess : cudaErrorStreamCaptureImplicit;
  }
  s.capturing->invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t capture_record(stream const& s, event& e)
{
  if (s.capturing->invalidated) { return cudaErrorStreamCaptureInvalidated; }
  e.recorded       = true;
  e.captured_in    = s.capturing;
  e.captured_nodes = s.capturing->frontier[s.id];
  return cudaSuccess;
}

cudaError_t capture_wait(stream& s, std::shared_ptr<stream> const& shared, event const& e)
{
  auto const& under_way = the_world().captures;
  if (e.captured_in != nullptr && std::find(under_way.begin(), under_way.end(), e.captured_in) == under_way.end()) {
    if (s.capturing != nullptr) { s.capturing->invalidated = true; }
    return cudaErrorInvalidValue;  // the capture is over: the event has no nodes
  }
  if (e.captured_in == nullptr) {  // work outside of the graph cannot come before a node of it
    if (!e.recorded) { return cudaSuccess; }
    s.capturing->invalidated = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (s.capturing != nullptr && s.capturing != e.captured_in) {
    s.capturing->invalidated   = true;
    e.captured_in->invalidated = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (e.captured_in->invalidated) { return cudaErrorStreamCaptureInvalidated; }
  if (s.type == stream::kind::legacy) {
    e.captured_in->invalidated = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (s.capturing == nullptr) {
    s.capturing = e.captured_in;
    s.capturing->members.push_back(shared);
  }
  add_nodes(s.capturing->frontier[s.id], e.captured_nodes);
  return cudaSuccess;
}

void leave_capture(stream& s)
{
  auto const under_way = s.capturing;
  s.capturing          = nullptr;
  if (under_way->origin.lock().get() != &s) { return; }
  under_way->invalidated = true;
  close(under_way);
}

CUresult driver::is_capturing(CUstream handle, CUstreamCaptureStatus* status)
{
  CUDASIM_DRIVER_CALL(cuStreamIsCapturing, {
    if (lacks_context(handle)) { return cudaErrorDeviceUninitialized; }
    auto found       = cudaStreamCaptureStatusNone;
    auto const error = put_status(c, handle, status != nullptr ? &found : nullptr);
    if (error == cudaSuccess) { *status = static_cast<CUstreamCaptureStatus>(found); }
    return error;
  });
}

CUresult driver::is_capturing_per_thread(CUstream handle, CUstreamCaptureStatus* status)
{
  return is_capturing(per_thread(handle), status);
}

CUresult driver::exchange_capture_mode(CUstreamCaptureMode* mode)
{
  CUDASIM_DRIVER_CALL(cuThreadExchangeStreamCaptureMode, {
    auto exchanged   = mode != nullptr ? static_cast<cudaStreamCaptureMode>(*mode) : cudaStreamCaptureModeGlobal;
    auto const error = exchange_mode(c, mode != nullptr ? &exchanged : nullptr);
    if (error == cudaSuccess) { *mode = static_cast<CUstreamCaptureMode>(exchanged); }
    return error;
  });
}

}  // namespace cudasim

using namespace cudasim;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode)
{
  CUDASIM_CALL(cudaThreadExchangeStreamCaptureMode, { return exchange_mode(c, mode); });
}

extern "C" {
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
  return begin(s, mode, __builtin_return_address(0));
}
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t s, cudaStreamCaptureMode mode)
{
  return begin(per_thread(s), mode, __builtin_return_address(0));
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph)
{
  return end(s, graph, __builtin_return_address(0));
}
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t s, cudaGraph_t* graph)
{
  return end(per_thread(s), graph, __builtin_return_address(0));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status)
{
  return is_capturing(s, status, __builtin_return_address(0));
}
cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t s, cudaStreamCaptureStatus* status)
{
  return is_capturing(per_thread(s), status, __builtin_return_address(0));
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s,
                                     cudaStreamCaptureStatus* status,
                                     unsigned long long* id,
                                     cudaGraph_t* graph,
                                     cudaGraphNode_t const** dependencies,
                                     cudaGraphEdgeData const** edges,
                                     std::size_t* count)
{
  return get_info(s, {status, id, graph, dependencies, edges, count}, __builtin_return_address(0));
}
cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t s,
                                          cudaStreamCaptureStatus* status,
                                          unsigned long long* id,
                                          cudaGraph_t* graph,
                                          cudaGraphNode_t const** dependencies,
                                          cudaGraphEdgeData const** edges,
                                          std::size_t* count)
{
  return get_info(per_thread(s), {status, id, graph, dependencies, edges, count}, __builtin_return_address(0));
}
#else  // 12.x: the header renames cudaStreamGetCaptureInfo to _v2
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t s,
                                        cudaStreamCaptureStatus* status,
                                        unsigned long long* id,
                                        cudaGraph_t* graph,
                                        cudaGraphNode_t const** dependencies,
                                        std::size_t* count)
{
  return get_info(s, {status, id, graph, dependencies, nullptr, count}, __builtin_return_address(0));
}
cudaError_t cudaStreamGetCaptureInfo_v2_ptsz(cudaStream_t s,
                                             cudaStreamCaptureStatus* status,
                                             unsigned long long* id,
                                             cudaGraph_t* graph,
                                             cudaGraphNode_t const** dependencies,
                                             std::size_t* count)
{
  return get_info(per_thread(s), {status, id, graph, dependencies, nullptr, count}, __builtin_return_address(0));
}
#endif

}  // extern "C"
