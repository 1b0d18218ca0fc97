# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the resource that RMM_RESOURCE chooses, without the Python package of RMM.

    RMM_RESOURCE=pool,max=80% RMM_C_LIBRARY=/where/it/is/librmm_c.so.1 python from_pytorch.py

The package rmm does more: torch.OutOfMemoryError, CUDA graphs, statistics (docs/frameworks.md).
"""

from __future__ import annotations

import os

import torch

library = os.environ.get("RMM_C_LIBRARY", "librmm_c.so.1")
allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "rmm_c_torch_allocate", "rmm_c_torch_deallocate")
torch.cuda.memory.change_current_allocator(allocator)  # before PyTorch first uses the device

x = torch.ones(1 << 20, device="cuda")
y = (2 * x).sum()
assert y.item() == 2 << 20, y
print("the sum is", y.item())
