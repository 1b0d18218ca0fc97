# SPDX-License-Identifier: Apache-2.0

"""try.py FILE: loads the extension and compares its operator with PyTorch's own."""

import sys

import torch

torch.ops.load_library(sys.argv[1])

torch.manual_seed(1)
for size in (0, 1, 1000, 1_000_000):
    mask = torch.rand(size, device="cuda") < 0.3
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = torch.ops.rmm_example.positions(mask)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(found, mask.nonzero().flatten()), size
    print(f"{size} elements, {found.numel()} of them set: the same as torch.nonzero()")
