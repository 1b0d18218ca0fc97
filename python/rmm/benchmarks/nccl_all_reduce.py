#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces of NCCL on memory of each resource: bandwidth, and whether the sums are right.

A process for each GPU, or one for all with --one-process. NCCL is the library of the package `nvidia-nccl-cu13`, which PyTorch
installs, or that of --library. How NCCL gets to know the buffers:

    none     not at all
    each     ncclCommRegister for each buffer
    segment  ncclCommRegister once for a large block, which then goes back to the resource; the buffers lie in its memory
    window   ncclCommWindowRegister for each buffer, for symmetric memory; only if you ask for it

    python benchmarks/nccl_all_reduce.py
    python benchmarks/nccl_all_reduce.py cuda elastic --registered none each --verbose

The resource `nccl` allocates with ncclMemAlloc. "after new memory" is the result after the buffers were deregistered and freed,
the resource gave its unused memory back, and new buffers were registered.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pairs
from pairs import MIB, answer, compare, fill, pattern, release_unused

default_resources = [
    "cuda",
    "nccl",
    "pool,initial=4GiB",
    "elastic,initial=4GiB",
    "elastic",
    "elastic,share=fd,peer_access",
    "cuda_async",
]
_uint32, _sum = 3, 0
_symmetric = 1


class UniqueId(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


class Nccl:
    """The functions of the library. They raise an error instead of returning it."""

    def __init__(self, path: str | None) -> None:
        self._library = ctypes.CDLL(path or _library_of_package())
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        version = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(version))
        self.version = version.value

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {self._library.ncclGetErrorString(status).decode()}")

    def allocate(self, size: int, stream: Any) -> int:
        pointer = ctypes.c_void_p()
        self.call("ncclMemAlloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value or 0

    def deallocate(self, pointer: int, size: int, stream: Any) -> None:
        self.call("ncclMemFree", ctypes.c_void_p(pointer))


def _library_of_package() -> str:
    package = find_spec("nvidia")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        path = Path(place) / "nccl" / "lib" / "libnccl.so.2"
        if path.exists():
            return str(path)
    return "libnccl.so.2"


class Rank:
    """A device's communicator, stream and buffers. The device has to be current in all calls."""

    def __init__(self, nccl: Nccl, device: int, number: int, resource: Any) -> None:
        from rmm.pylibrmm.stream import Stream

        self.nccl, self.device, self.number, self.resource = nccl, device, number, resource
        self.communicator = ctypes.c_void_p()
        self.stream = Stream()
        self.buffers: list[Any] = []
        self.handles: list[tuple[str, ctypes.c_void_p]] = []

    def make_buffers(self, size: int, registered: str) -> None:
        import rmm

        if registered == "segment":
            segment = rmm.DeviceBuffer(size=4 * size, mr=self.resource)
            self._register("ncclCommRegister", segment)
            del segment
        self.buffers = [rmm.DeviceBuffer(size=size, mr=self.resource) for _ in range(2)]
        if registered in ("each", "window"):
            for buffer in self.buffers:
                self._register("ncclCommRegister" if registered == "each" else "ncclCommWindowRegister", buffer)

    def _register(self, function: str, buffer: Any) -> None:
        handle = ctypes.c_void_p()
        flags = (ctypes.c_int(_symmetric),) if function == "ncclCommWindowRegister" else ()
        pointer, size = ctypes.c_void_p(buffer.ptr), ctypes.c_size_t(buffer.size)
        self.nccl.call(function, self.communicator, pointer, size, ctypes.byref(handle), *flags)
        self.handles.append((function.replace("Register", "Deregister"), handle))

    def drop_buffers(self) -> None:
        for function, handle in self.handles:
            self.nccl.call(function, self.communicator, handle)
        self.handles.clear()
        self.buffers.clear()
        release_unused(self.resource)

    def all_reduce(self, size: int) -> None:
        sent, received = (ctypes.c_void_p(buffer.ptr) for buffer in self.buffers)
        stream = ctypes.c_void_p(self.stream.__cuda_stream__()[1])
        count = ctypes.c_size_t(size // 4)
        self.nccl.call("ncclAllReduce", sent, received, count, _uint32, _sum, self.communicator, stream)


class Run:
    """The ranks of this process, which call NCCL as a group."""

    def __init__(self, nccl: Nccl, ranks: list[Rank], of: int) -> None:
        self._nccl, self._ranks, self._of = nccl, ranks, of

    def each(self, method: str, *arguments: Any, grouped: bool = False) -> None:
        from rmm._cuda import gpu

        if grouped:
            self._nccl.call("ncclGroupStart")
        for rank in self._ranks:
            gpu.setDevice(rank.device)
            getattr(rank, method)(*arguments)
        if grouped:
            self._nccl.call("ncclGroupEnd")

    def synchronize(self) -> None:
        for rank in self._ranks:
            rank.stream.synchronize()

    def measure(self, size: int, rounds: int) -> float:
        """Returns the bandwidth of each link's direction as NCCL's tests count it, in GB/s."""
        for times in (3, rounds):
            begin = time.perf_counter()
            for _ in range(times):
                self.each("all_reduce", size, grouped=True)
            self.synchronize()
            seconds = time.perf_counter() - begin
        return rounds * size / seconds / 1e9 * 2 * (self._of - 1) / max(1, self._of)

    def check(self, size: int, seed: int) -> str:
        """Returns "right" if all sums are, or what is wrong in one of them."""
        import numpy as np

        from rmm._cuda import gpu

        contents = [pattern(size, seed + 7 * number) for number in range(self._of)]
        for rank in self._ranks:
            gpu.setDevice(rank.device)
            fill(rank.buffers[0], contents[rank.number])
            fill(rank.buffers[1], contents[0] * 0)
        self.each("all_reduce", size, grouped=True)
        self.synchronize()
        expected = np.asarray(np.sum(contents, axis=0, dtype=np.uint32))
        found = set()
        for rank in self._ranks:
            gpu.setDevice(rank.device)
            found.add(compare(rank.buffers[1], expected))
        return "right" if found == {"right"} else sorted(found - {"right"})[0]


def make_ranks(nccl: Nccl, options: argparse.Namespace) -> list[Rank]:
    import rmm.mr
    from rmm._cuda import gpu

    ranks = []
    for number in range(options.gpus) if options.one_process else [options.rank]:
        device = number % gpu.getDeviceCount()
        gpu.setDevice(device)
        if options.resources[0] == "nccl":
            resource: Any = rmm.mr.CallbackMemoryResource(nccl.allocate, nccl.deallocate)
        else:
            resource = rmm.mr.ConfiguredMemoryResource(options.resources[0])
        ranks.append(Rank(nccl, device, number, resource))
    return ranks


def connect(nccl: Nccl, ranks: list[Rank], options: argparse.Namespace) -> None:
    if options.one_process:
        made = (ctypes.c_void_p * len(ranks))()
        devices = (ctypes.c_int * len(ranks))(*(rank.device for rank in ranks))
        nccl.call("ncclCommInitAll", made, len(ranks), devices)
        for rank, communicator in zip(ranks, made, strict=True):
            rank.communicator = ctypes.c_void_p(communicator)
        return
    (rank,) = ranks
    identity = UniqueId()
    if options.rank == 0:
        nccl.call("ncclGetUniqueId", ctypes.byref(identity))
        pairs.say_to_others(bytes(identity).hex())
    else:
        identity = UniqueId.from_buffer_copy(bytes.fromhex(sys.stdin.readline()))
    nccl.call("ncclCommInitRank", ctypes.byref(rank.communicator), options.gpus, identity, options.rank)


def run_rank(options: argparse.Namespace) -> None:
    nccl = Nccl(options.library)
    ranks = make_ranks(nccl, options)
    connect(nccl, ranks, options)
    run = Run(nccl, ranks, options.gpus)
    (registered,) = options.registered
    largest = options.mib * MIB
    is_window = registered == "window"  # all ranks make a window together
    run.each("make_buffers", largest, registered, grouped=is_window)
    speeds = [run.measure(size, rounds) for size, rounds in ((MIB, 200), (16 * MIB, 100), (largest, options.rounds))]
    first = run.check(largest, 1)
    if options.rank == 0:
        answer(speeds=speeds, data=first, version=nccl.version)
    run.each("drop_buffers")
    run.each("make_buffers", largest // 2, registered, grouped=is_window)
    again = run.check(largest // 2, 5)
    answer(rank=options.rank, again=again, data=first)
    run.each("drop_buffers")


def show(resource: str, registered: str, results: list[Any], end: str) -> None:
    speeds = [f"{speed:8.1f}" for result in results for speed in result.get("speeds", ())]
    data = {result["data"] for result in results} or {"not reached"}
    again = {result["again"] for result in results if "again" in result} or {"not reached"}
    words = [sorted(found)[0] for found in (data, again)]  # "WRONG" is before "right"
    print(f"{resource:<30} {registered:<8} {' '.join(speeds or ['       -'] * 3)}  {words[0]:<12} {words[1]:<12} {end}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("resources", nargs="*", default=default_resources, help="configurations, as for RMM_RESOURCE")
    kinds = ["none", "each", "segment", "window"]
    parser.add_argument("--registered", nargs="+", default=kinds[:2], choices=kinds)
    parser.add_argument("--mib", type=int, default=256, help="size of the largest buffers")
    parser.add_argument("--rounds", type=int, default=50, help="all-reduces of the largest size")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--one-process", action="store_true", help="one process calls NCCL for all GPUs")
    parser.add_argument("--seconds", type=float, default=30, help="the longest time for a line of the table")
    parser.add_argument("--library", help="the path of libnccl.so.2")
    parser.add_argument("--verbose", action="store_true", help="show what NCCL writes")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options)
        return
    sizes = " ".join(f"{f'{size} MiB':>8}" for size in (1, 16, options.mib))
    print(f"{'resource':<30} {'known':<8} {sizes}  {'sums':<12} after new memory")
    same = ["--mib", str(options.mib), "--rounds", str(options.rounds), "--gpus", str(options.gpus)]
    same += ["--one-process"] if options.one_process else []
    same += ["--library", options.library] if options.library else []
    for resource in options.resources:
        for registered in options.registered:
            if registered == "segment" and resource in ("cuda", "nccl"):
                continue  # they keep no memory, so the buffers would not lie in it
            command = [__file__, resource, *same, "--registered", registered]
            processes = 1 if options.one_process else options.gpus
            results, end, rest = pairs.run_pair(command, [{} for _ in range(processes)], options.seconds)
            show(resource, registered, results, end)
            for line in rest if options.verbose else rest[-6:] if end != "ended" else ():
                print(f"  | {line[:240]}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
