#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times how long PyTorch's tensors take to fall asleep and to wake up: rmm.sleep, or torch_memory_saver beside it.

    sleep_mode.py rmm [--chunk-size 32MiB] [--retain]
    LD_PRELOAD=.../torch_memory_saver_hook_mode_preload_cu13.abi3.so sleep_mode.py preload [--retain]
    sleep_mode.py torch

Each line is one cycle: the milliseconds of pause() and resume(), the bytes that the device got back, what it lacked while they
slept of the bytes that it had free before the tensors were made, and whether addresses and contents were right afterwards.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import torch

MB = 10**6


def saver_of(options: argparse.Namespace) -> Any:
    if options.what == "rmm":
        import rmm.sleep
        from rmm.allocators.torch_memory_saver import TorchMemorySaver

        saver: Any = TorchMemorySaver(rmm.sleep.Sleeper(chunk_size=options.chunk_size))
    else:
        import torch_memory_saver

        saver = torch_memory_saver.torch_memory_saver
        saver.hook_mode = options.what
    if options.retain:
        saver.retain_cpu_backup = True
    return saver


def timed(action: Callable[[], None]) -> float:
    """Returns the milliseconds that `action` takes, with the work of the device."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    action()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1000


def free() -> int:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


def measure(saver: Any, tag: str, cycles: int, start: int, is_right: Callable[[], bool], label: str) -> None:
    for cycle in range(cycles):
        awake = free()
        pause = timed(lambda: saver.pause(tag))
        asleep = torch.cuda.mem_get_info()[0]
        resume = timed(lambda: saver.resume(tag))
        print(
            f"{label} | {cycle} | {pause:.1f} | {resume:.1f} | {(asleep - awake) / MB:.0f} | {(start - asleep) / MB:.0f}"
            f" | {is_right()}",
            flush=True,
        )


def tensors(saver: Any, options: argparse.Namespace, name: str, count: int, kept: bool) -> None:
    start = free()
    label = f"{name} | {count} | {'pinned' if kept else 'dropped'}"
    tag = f"{count} {kept}"
    with saver.region(tag=tag, enable_cpu_backup=kept):
        size = options.gigabytes * 10**9 // count
        made = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(count)]
    for i, tensor in enumerate(made):
        tensor.fill_(i + 1)
    addresses = [tensor.data_ptr() for tensor in made]

    def is_right() -> bool:
        same = addresses == [tensor.data_ptr() for tensor in made]
        return same and (not kept or all(bool((tensor == i + 1).all()) for i, tensor in enumerate(made)))

    measure(saver, tag, 2, start, is_right, label)
    made.clear()
    del tensor
    gc.collect()
    if options.what == "rmm":
        saver._sleeper.release_unused()
    elif options.what == "preload":
        saver._impl._mem_pools.clear()  # the hook mode "torch" would end the process here
        gc.collect()


def graphs(saver: Any, name: str, kept: bool) -> None:
    x = torch.ones(256 << 20, dtype=torch.uint8, device="cuda")
    start = free()
    graph = torch.cuda.CUDAGraph()
    with saver.cuda_graph(graph, tag=f"graph {kept}", enable_cpu_backup=kept):
        y = x + 1
        y = y * 2
    graph.replay()

    def is_right() -> bool:
        before = not kept or bool((y == 4).all())
        x.fill_(2)
        graph.replay()
        after = bool((y == 6).all())
        x.fill_(1)
        graph.replay()
        return before and after

    measure(saver, f"graph {kept}", 2, start, is_right, f"{name} | graph | {'pinned' if kept else 'dropped'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rmm", "preload", "torch"))
    parser.add_argument("--gigabytes", type=int, default=20)
    parser.add_argument("--chunk-size", default="32MiB")
    parser.add_argument("--retain", action="store_true", help="keep the host's memory between two cycles")
    parser.add_argument("--dropped", action="store_true", help="only without contents")
    options = parser.parse_args()
    saver = saver_of(options)
    name = f"rmm {options.chunk_size}" if options.what == "rmm" else f"torch_memory_saver {options.what}"
    name += " retained" if options.retain else ""
    warm = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")  # loads kernels, which keep memory
    assert bool(((warm + 1) * 2 == 4).all())
    warm.fill_(3)
    del warm
    print("what | tensors | contents | cycle | pause ms | resume ms | freed MB | lacking MB | right")
    for kept in (False,) if options.dropped else (False, True):
        for count in (20, 1):
            tensors(saver, options, name, count, kept)
        if options.what != "torch":  # the hook mode "torch" cannot put graphs to sleep
            graphs(saver, name, kept)


if __name__ == "__main__":
    main()
