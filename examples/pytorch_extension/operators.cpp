// SPDX-License-Identifier: Apache-2.0
//
// An operator for PyTorch that takes its temporary memory from RMM's current resource. With rmm.allocators.enable("torch"), tensors
// come from that resource too; otherwise PyTorch's allocator and RMM work side by side.

#include "positions.hpp"

#include <rmm/cuda_stream_view.hpp>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

namespace {

at::Tensor positions(at::Tensor const& mask)
{
  TORCH_CHECK(mask.is_cuda() && mask.dim() == 1 && mask.scalar_type() == at::kBool,
              "mask has to be a vector of bools on a GPU");
  c10::cuda::CUDAGuard const on_device{mask.device()};  // RMM, like PyTorch, allocates on the current device

  // Allocate and work on PyTorch's current stream, which orders the operator with PyTorch's earlier and later work.
  rmm::cuda_stream_view const stream{c10::cuda::getCurrentCUDAStream(mask.device().index()).stream()};

  auto const input = mask.contiguous();
  auto const found = at::empty({input.numel()}, input.options().dtype(at::kLong));
  auto const count =
    find_positions(input.const_data_ptr<bool>(), input.numel(), found.mutable_data_ptr<std::int64_t>(), stream);
  return found.narrow(0, 0, count);
}

}  // namespace

TORCH_LIBRARY(rmm_example, library) { library.def("positions(Tensor mask) -> Tensor"); }
TORCH_LIBRARY_IMPL(rmm_example, CUDA, library) { library.impl("positions", &positions); }
