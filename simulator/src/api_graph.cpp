// SPDX-License-Identifier: Apache-2.0
//
// Graphs: the nodes that a capture recorded, and their launch.
//
// A launch puts the nodes on the launching stream one after another, in the order of their capture. Branches that a GPU
// could run concurrently run in turn here, and the ordering checker takes them as ordered.

#include "capture.hpp"
#include "pool.hpp"

#include <algorithm>
#include <utility>

namespace cudasim {
namespace {

/// An executable graph. The table of executable graphs holds it by its base class, of which it uses only the address.
///
/// Invariant: the graph lives as long as it can be run, or runs.
struct executable : capture {
  std::shared_ptr<capture> graph;
  unsigned long long flags{0};
  point last;  ///< end of the last launch; launches of an executable graph are ordered
  vector_clock last_clock;
};

/// Gives up one owner of a graph; the last one frees what the graph owns.
void release(std::shared_ptr<capture>& graph)
{
  if (graph.use_count() == 1) {
    for (auto const& free : std::exchange(graph->on_destroy, {})) { free(); }
  }
  graph.reset();
}

[[nodiscard]] std::shared_ptr<capture> find_graph(call& c, cudaGraph_t handle)
{
  auto const& graphs = the_world().graphs;
  auto const found   = graphs.find(handle);
  if (found != graphs.end()) { return found->second; }
  c.misuse(cudaErrorInvalidValue, "graph handle %p names no graph", static_cast<void*>(handle));
  return nullptr;
}

[[nodiscard]] std::shared_ptr<executable> find_executable(call& c, cudaGraphExec_t handle)
{
  auto const& execs = the_world().graph_execs;
  auto const found  = execs.find(handle);
  if (found != execs.end()) { return std::static_pointer_cast<executable>(found->second); }
  c.misuse(cudaErrorInvalidValue, "handle %p names no executable graph", static_cast<void*>(handle));
  return nullptr;
}

[[nodiscard]] bool is_instantiated(capture const& graph)
{
  auto const& execs = the_world().graph_execs;
  return std::any_of(execs.begin(), execs.end(), [&](auto const& entry) {
    return static_cast<executable const&>(*entry.second).graph.get() == &graph;
  });
}

cudaError_t instantiate(
  call& c, cudaGraphExec_t* out, cudaGraph_t handle, unsigned long long flags, unsigned long long allowed)
{
  if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the executable graph is null"); }
  auto graph = find_graph(c, handle);
  if (graph == nullptr) { return cudaErrorInvalidValue; }
  if ((flags & ~allowed) != 0) { return c.misuse(cudaErrorInvalidValue, "flags %#llx are unknown here", flags); }
  if (auto const error = check_unsafe_call(c); error != cudaSuccess) { return error; }
  if (!graph->on_destroy.empty() && is_instantiated(*graph)) {
    return c.misuse(cudaErrorNotSupported, "a graph that allocates memory has one executable graph at a time");
  }
  auto made   = std::make_shared<executable>();
  made->graph = std::move(graph);
  made->flags = flags & cudaGraphInstantiateFlagAutoFreeOnLaunch;  // the only flag that is reported later
  *out        = reinterpret_cast<cudaGraphExec_t>(made.get());
  the_world().graph_execs.emplace(*out, std::move(made));
  return cudaSuccess;
}

constexpr unsigned long long plain_flags =
  cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority;
constexpr unsigned long long param_flags = plain_flags | cudaGraphInstantiateFlagUpload;

/// Finds the stream of a launch or an upload, or returns an error. Neither can be captured.
cudaError_t find_target(call& c, cudaStream_t handle, std::shared_ptr<stream>& out)
{
  out = find_stream(c, handle);
  if (out == nullptr) { return cudaErrorInvalidResourceHandle; }
  return out->capturing != nullptr ? refuse_while_capturing(*out) : cudaSuccess;
}

cudaError_t instantiate_with_parameters(
  cudaGraphExec_t* out, cudaGraph_t graph, cudaGraphInstantiateParams* parameters, bool own_stream, void const* site)
{
  CUDASIM_CALL_AT(cudaGraphInstantiateWithParams, site, {
    if (parameters == nullptr) { return c.misuse(cudaErrorInvalidValue, "no parameters"); }
    parameters->errNode_out = nullptr;
    parameters->result_out  = cudaGraphInstantiateError;
    if ((parameters->flags & cudaGraphInstantiateFlagUpload) != 0) {
      auto const handle = own_stream ? per_thread(parameters->uploadStream) : parameters->uploadStream;
      std::shared_ptr<stream> target;
      if (auto const error = find_target(c, handle, target); error != cudaSuccess) { return error; }
    }
    if (auto const error = instantiate(c, out, graph, parameters->flags, param_flags); error != cudaSuccess) {
      return error;
    }
    parameters->result_out = cudaGraphInstantiateSuccess;
    return cudaSuccess;
  });
}

cudaError_t upload(cudaGraphExec_t handle, cudaStream_t stream_handle, void const* site)
{
  CUDASIM_CALL_AT(cudaGraphUpload, site, {
    auto const graph = find_executable(c, handle);
    if (graph == nullptr) { return cudaErrorInvalidValue; }
    std::shared_ptr<stream> target;
    if (auto const error = find_target(c, stream_handle, target); error != cudaSuccess) { return error; }
    return submit(c, target, operation{});
  });
}

cudaError_t launch(cudaGraphExec_t handle, cudaStream_t stream_handle, void const* site)
{
  CUDASIM_CALL_AT(cudaGraphLaunch, site, {
    auto const exec = find_executable(c, handle);
    if (exec == nullptr) { return cudaErrorInvalidValue; }
    std::shared_ptr<stream> s;
    if (auto const error = find_target(c, stream_handle, s); error != cudaSuccess) { return error; }

    bool const frees_first = (exec->flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0;
    if (!exec->graph->on_destroy.empty() && !allocate_for_launch(*exec->graph, frees_first)) {
      return c.misuse(cudaErrorInvalidValue, "memory that the last launch allocated has not been freed");
    }

    std::vector<operation> works;
    for (auto const& node : exec->graph->nodes) {
      works.push_back(node.work);
      works.back().after.clear();
      works.back().clock = {};
    }
    if (works.empty()) { works.emplace_back(); }
    works.front().after.push_back(exec->last);
    works.front().clock = exec->last_clock;
    works.back().done   = [graph = exec->graph, done = std::move(works.back().done)](std::uint64_t end_ns) mutable {
      if (done) { done(end_ns); }
      release(graph);
    };
    for (auto& work : works) {
      if (auto const error = submit(c, s, std::move(work)); error != cudaSuccess) { return error; }
    }
    exec->last       = end_of(s);
    exec->last_clock = s->clock;
    return cudaSuccess;
  });
}

/// Hands out handles as CUDA does: their number if `nodes` is null; else as many as fit, then null.
cudaError_t hand_out(call& c, std::vector<cudaGraphNode_t> const& all, cudaGraphNode_t* nodes, std::size_t* count)
{
  if (count == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the number is null"); }
  if (nodes == nullptr) {
    *count = all.size();
    return cudaSuccess;
  }
  auto const given = std::min(*count, all.size());
  std::fill(std::copy_n(all.begin(), given, nodes), nodes + *count, nullptr);
  *count = given;
  return cudaSuccess;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

cudaError_t cudaGraphCreate(cudaGraph_t* out, unsigned flags)
{
  CUDASIM_CALL(cudaGraphCreate, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the graph is null"); }
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#x", flags); }
    auto made = std::make_shared<capture>();
    *out      = reinterpret_cast<cudaGraph_t>(made.get());
    the_world().graphs.emplace(*out, std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
  CUDASIM_CALL(cudaGraphDestroy, {
    auto graph = find_graph(c, handle);
    if (graph == nullptr) { return cudaErrorInvalidValue; }
    the_world().graphs.erase(handle);
    release(graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count)
{
  CUDASIM_CALL(cudaGraphGetNodes, {
    auto const graph = find_graph(c, handle);
    if (graph == nullptr) { return cudaErrorInvalidValue; }
    std::vector<cudaGraphNode_t> all;
    for (auto& node : graph->nodes) { all.push_back(reinterpret_cast<cudaGraphNode_t>(&node)); }
    return hand_out(c, all, nodes, count);
  });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count)
{
  CUDASIM_CALL(cudaGraphGetRootNodes, {
    auto const graph = find_graph(c, handle);
    if (graph == nullptr) { return cudaErrorInvalidValue; }
    std::vector<cudaGraphNode_t> roots;
    for (auto& node : graph->nodes) {
      if (node.after.empty()) { roots.push_back(reinterpret_cast<cudaGraphNode_t>(&node)); }
    }
    return hand_out(c, roots, nodes, count);
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags)
{
  CUDASIM_CALL(cudaGraphInstantiate, { return instantiate(c, out, graph, flags, plain_flags); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags)
{
  CUDASIM_CALL(cudaGraphInstantiateWithFlags, { return instantiate(c, out, graph, flags, plain_flags); });
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t handle, unsigned long long* flags)
{
  CUDASIM_CALL(cudaGraphExecGetFlags, {
    auto const exec = find_executable(c, handle);
    if (exec == nullptr) { return cudaErrorInvalidValue; }
    if (flags == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the flags is null"); }
    *flags = exec->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
  CUDASIM_CALL(cudaGraphExecDestroy, {
    auto const exec = find_executable(c, handle);
    if (exec == nullptr) { return cudaErrorInvalidValue; }
    the_world().graph_execs.erase(handle);
    release(exec->graph);
    return cudaSuccess;
  });
}

extern "C" {
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* out,
                                           cudaGraph_t graph,
                                           cudaGraphInstantiateParams* parameters)
{
  return instantiate_with_parameters(out, graph, parameters, false, __builtin_return_address(0));
}
cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t* out,
                                                cudaGraph_t graph,
                                                cudaGraphInstantiateParams* parameters)
{
  return instantiate_with_parameters(out, graph, parameters, true, __builtin_return_address(0));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t s)
{
  return upload(graph, s, __builtin_return_address(0));
}
cudaError_t cudaGraphUpload_ptsz(cudaGraphExec_t graph, cudaStream_t s)
{
  return upload(graph, per_thread(s), __builtin_return_address(0));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t s)
{
  return launch(graph, s, __builtin_return_address(0));
}
cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t graph, cudaStream_t s)
{
  return launch(graph, per_thread(s), __builtin_return_address(0));
}

}  // extern "C"
