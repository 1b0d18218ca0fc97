// SPDX-License-Identifier: Apache-2.0
#include "failure.hpp"
#include "process.hpp"
#include "to_stream.hpp"

#include <rmm/c/rmm.h>
#include <rmm/capture_scope.hpp>

#include <cstdint>

struct rmm_c_graph_memory {
  rmm::graph_memory memory{};
  std::uint32_t generation{rmm_c::fork_generation()};
};

struct rmm_c_capture {
  rmm::capture_scope scope;
  std::uint32_t generation{rmm_c::fork_generation()};
};

namespace {

using rmm_c::fail;
using rmm_c::guarded;
using rmm_c::to_stream;

}  // namespace

rmm_c_status rmm_c_graph_memory_create(rmm_c_graph_memory** memory) noexcept
{
  if (memory == nullptr) { return fail(RMM_C_INVALID_ARGUMENT, "the pointer to the graph memory is a null pointer"); }
  *memory = nullptr;
  if (auto const status = rmm_c::check_may_begin_to_use_cuda()) { return status; }
  return guarded([&] {
    *memory = new rmm_c_graph_memory;
    return RMM_C_OK;
  });
}

void rmm_c_graph_memory_destroy(rmm_c_graph_memory* memory) noexcept
{
  if (memory != nullptr && rmm_c::may_use_cuda(memory->generation)) { delete memory; }
}

void rmm_c_graph_memory_destroy_on(rmm_c_graph_memory* memory, void* stream) noexcept
{
  if (memory != nullptr && rmm_c::may_use_cuda(memory->generation)) { memory->memory.release(to_stream(stream)); }
  rmm_c_graph_memory_destroy(memory);
}

rmm_c_status rmm_c_capture_begin(rmm_c_graph_memory* memory, void* stream, rmm_c_capture** capture) noexcept
{
  if (capture == nullptr) { return fail(RMM_C_INVALID_ARGUMENT, "the pointer to the capture is a null pointer"); }
  *capture = nullptr;
  if (memory == nullptr) { return fail(RMM_C_INVALID_ARGUMENT, "the graph memory is a null pointer"); }
  if (auto const status = rmm_c::check_may_use_cuda(memory->generation)) { return status; }
  return guarded([&] {
    *capture = new rmm_c_capture{rmm::capture_scope{to_stream(stream), memory->memory}};
    rmm_c::note_that_cuda_is_used();
    return RMM_C_OK;
  });
}

void rmm_c_capture_end(rmm_c_capture* capture) noexcept
{
  if (capture != nullptr && rmm_c::may_use_cuda(capture->generation)) { delete capture; }
}
