#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small training with PyTorch whose memory is recorded: on RMM as a trace, or on PyTorch's own allocator as a snapshot.

    python torch_training.py --trace torch-training.rmmtrace
    python torch_training.py --snapshot torch-training.pickle

Two layers of a transformer learn to tell a sequence backwards. The sequences differ in length from step to step, batches
are copied on a stream of their own, and every tenth step the model is tried without gradients. Writes the losses and the
figures of memory as JSON; the losses do not depend on the allocator.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # one result for one computation

import torch
from torch import Tensor, nn

Scope = Callable[[str], AbstractContextManager[object]]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(-1, -2) / (width / self.heads) ** 0.5).softmax(-1)
        x = x + self.mix((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(nn.functional.gelu(self.widen(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self, words: int = 512, width: int = 256, longest: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(2)))
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(x) + self.places.weight[: x.shape[1]]))


def train(steps: int, scope: Scope) -> list[float]:
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    lengths = random.Random(3)
    words = torch.Generator().manual_seed(1)
    with scope("model"):
        model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    copies = torch.cuda.Stream()

    def next_batch() -> Tensor:
        batch = torch.randint(0, 512, (32, lengths.randrange(16, 129)), generator=words).pin_memory()
        with torch.cuda.stream(copies), scope("batch"):
            return batch.to("cuda", non_blocking=True)

    def loss_of(batch: Tensor) -> Tensor:
        torch.cuda.current_stream().wait_stream(copies)
        batch.record_stream(torch.cuda.current_stream())
        return nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flip(1).flatten())

    losses = []
    batch = next_batch()
    for step in range(steps):
        following = next_batch()
        with scope("forward"):
            loss = loss_of(batch)
        optimizer.zero_grad()
        with scope("backward"):
            loss.backward()
        with scope("optimizer"):
            optimizer.step()
        losses.append(loss.item())
        batch = following
        if step % 10 == 9:
            with scope("trial"), torch.no_grad():
                losses.append(loss_of(next_batch()).item())
    return losses


def figures(losses: list[float]) -> dict[str, Any]:
    stats = torch.cuda.memory_stats()
    return {
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
        "allocations": stats["allocation.all.allocated"],
        "losses": losses,
    }


def record_trace(steps: int, path: Path | None) -> dict[str, Any]:
    """Trains on a pool of RMM's."""
    import rmm
    import rmm.allocators
    import rmm.mr
    from rmm.pylibrmm.scopes import tag

    resource: rmm.mr.DeviceMemoryResource = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "2MiB")
    if path is not None:
        resource = rmm.mr.TraceResourceAdaptor(resource, path)
    rmm.mr.set_current_device_resource(resource)
    rmm.allocators.enable("torch")
    result = figures(train(steps, tag))
    if isinstance(resource, rmm.mr.TraceResourceAdaptor):
        resource.flush()
    return result


def without_places(snapshot: dict[str, Any]) -> dict[str, Any]:
    """The same with file names that do not tell where PyTorch, Python and this file are installed."""
    short: dict[str, str] = {}
    shortened: set[int] = set()

    def visit(frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            if id(frame) in shortened:
                continue
            shortened.add(id(frame))
            name = frame["filename"]
            is_ours = Path(name).resolve() == Path(__file__).resolve()
            behind = Path(__file__).name if is_ours else "/".join(Path(name.rpartition("-packages/")[2]).parts[-4:])
            frame["filename"] = short.setdefault(name, behind)

    for events in snapshot["device_traces"]:
        for event in events:
            visit(event.get("frames", []))
    for segment in snapshot["segments"]:
        visit(segment.get("frames", []))
        for block in segment["blocks"]:
            visit(block.get("frames", []))
    return snapshot


def record_snapshot(steps: int, path: Path | None, events: int) -> dict[str, Any]:
    """Trains on PyTorch's own allocator. The history holds the last events only."""
    if path is not None:
        torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=events)
    losses = train(steps, lambda _: contextlib.nullcontext())
    result = figures(losses)
    if path is not None:
        path.write_bytes(pickle.dumps(without_places(torch.cuda.memory._snapshot())))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rmm", action="store_true", help="on RMM, without a trace")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="on RMM, to this trace")
    parser.add_argument("--snapshot", type=Path, metavar="FILE", help="on PyTorch's allocator, to this snapshot")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--events", type=int, default=2500, help="how many events the history of a snapshot holds")
    options = parser.parse_args()
    if options.rmm or options.trace is not None:
        result = record_trace(options.steps, options.trace)
    else:
        result = record_snapshot(options.steps, options.snapshot, options.events)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
