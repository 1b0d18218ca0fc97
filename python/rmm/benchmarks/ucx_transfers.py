#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends memory of each resource from one process to another over UCX: bandwidth, and whether the data arrives unchanged.

Each resource has two processes of its own, the sender on device 0 and the receiver on device 1. The needs are `ucxx-cu13`,
`libucxx-cu13` and `libucx-cu13`, installed as docs/dask.md says.

    python benchmarks/ucx_transfers.py
    python benchmarks/ucx_transfers.py cuda elastic --mib 64 --verbose
    UCX_RNDV_PIPELINE_ERROR_HANDLING=y python benchmarks/ucx_transfers.py elastic cuda_async
    UCX_TLS=tcp,cuda_copy python benchmarks/ucx_transfers.py

The steps: one block, sent again and again; eight blocks at once; blocks that were allocated after the resource gave its
unused memory back ("new memory"), where handles that UCX keeps for the old memory would be wrong.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from typing import Any

import pairs
from pairs import MIB, answer, compare, fill, pattern, release_unused

default_resources = [
    "cuda",
    "pool,initial=2GiB",
    "elastic,initial=2GiB",
    "elastic",
    "elastic,share=fd,peer_access",
    "elastic,share=fabric",
    "cuda_async",
    "cuda_async,share=fabric",
]


class Link:
    """A connection to the other process."""

    def __init__(self, rank: int, error_handling: bool) -> None:
        import ucxx._lib.libucxx as ucx

        self._ucx = ucx
        self._rank = rank
        self._error_handling = error_handling
        self._worker = ucx.UCXWorker(ucx.UCXContext(feature_flags=(ucx.Feature.TAG, ucx.Feature.WAKEUP)))
        self._worker.init_blocking_progress_mode()
        self._endpoint: Any = None
        if rank == 0:
            self._listener = ucx.UCXListener.create(worker=self._worker, port=0, cb_func=self._accept)
            pairs.say_to_others(self._listener.port)
            while self._endpoint is None:
                self._worker.progress()
        else:
            port = int(sys.stdin.readline())
            address = socket.gethostbyname("localhost")
            self._endpoint = ucx.UCXEndpoint.create(self._worker, address, port, endpoint_error_handling=error_handling)
        self.meet()

    def _accept(self, request: Any) -> None:
        self._endpoint = self._listener.create_endpoint_from_conn_request(
            request, endpoint_error_handling=self._error_handling
        )

    def _wait(self, requests: list[Any]) -> None:
        while not all(request.completed for request in requests):
            self._worker.progress()
        for request in requests:
            request.check_error()

    def transfer(self, buffers: list[Any]) -> None:
        """Process 0 sends buffers, and process 1 receives them. Buffer k has the tag k + 1."""
        from ucxx._lib.arr import Array

        method = self._endpoint.tag_send if self._rank == 0 else self._endpoint.tag_recv
        self._wait([method(Array(buffer), tag=self._ucx.UCXXTag(k + 1)) for k, buffer in enumerate(buffers)])

    def meet(self, number: int = 0) -> int:
        """Waits until the other process calls this, too. Returns its number."""
        import numpy as np
        from ucxx._lib.arr import Array

        sent, received = np.array([number], dtype=np.uint64), np.zeros(1, dtype=np.uint64)
        tags = [self._ucx.UCXXTag(1000 + self._rank), self._ucx.UCXXTag(1001 - self._rank)]
        self._wait(
            [self._endpoint.tag_send(Array(sent), tag=tags[0]), self._endpoint.tag_recv(Array(received), tag=tags[1])]
        )
        return int(received[0])


class Steps:
    """What both processes do, in the same order."""

    def __init__(self, link: Link, rank: int, resource: Any) -> None:
        self._link = link
        self._rank = rank
        self._resource = resource
        self._seed = 0

    def blocks(self, count: int, size: int) -> list[Any]:
        import rmm

        return [rmm.DeviceBuffer(size=size, mr=self._resource) for _ in range(count)]

    def transfer(self, name: str, buffers: list[Any], seconds: float = 0.0) -> None:
        """Sends buffers for `seconds` to find the bandwidth, then once with a new content that the receiver compares."""
        size = buffers[0].size
        self._seed += 1
        speed = self._measure(buffers, seconds) if seconds else None
        contents = [pattern(size, 1000 * self._seed + k) for k in range(len(buffers))]
        for buffer, content in zip(buffers, contents, strict=True):
            fill(buffer, content if self._rank == 0 else content * 0)
        self._link.meet()
        self._link.transfer(buffers)
        self._link.meet()
        if self._rank == 1:
            found = {compare(buffer, content) for buffer, content in zip(buffers, contents, strict=True)}
            answer(step=name, data="right" if found == {"right"} else sorted(found - {"right"})[0], speed=speed)

    def _measure(self, buffers: list[Any], seconds: float) -> float:
        """Returns the bandwidth in GB/s."""
        self._link.transfer(buffers)  # UCX exchanges its handles
        self._link.meet()
        once = self._time(buffers, 1)
        own = max(1, min(1000, int(seconds / once)))
        given = self._link.meet(own)
        rounds = own if self._rank == 0 else given
        sent: int = rounds * len(buffers) * buffers[0].size
        return sent / self._time(buffers, rounds) / 1e9

    def _time(self, buffers: list[Any], rounds: int) -> float:
        begin = time.perf_counter()
        for _ in range(rounds):
            self._link.transfer(buffers)
        self._link.meet()
        return time.perf_counter() - begin


def run_rank(rank: int, configuration: str, options: argparse.Namespace) -> None:
    import rmm
    import rmm.mr

    rmm.DeviceBuffer(size=1)  # UCX takes transports for devices only if there is a context
    resource = rmm.mr.ConfiguredMemoryResource(configuration)
    link = Link(rank, not options.without_error_handling)
    mib, seconds = options.mib, options.measure
    steps = Steps(link, rank, resource)
    for size in (1, 16, mib):
        buffers = steps.blocks(1, size * MIB)
        steps.transfer(f"{size} MiB", buffers, seconds)
        del buffers
    odd = steps.blocks(1, 3 * MIB + 1024)
    buffers = steps.blocks(8, mib // 8 * MIB)
    steps.transfer(f"8 x {mib // 8} MiB", buffers, seconds)
    for turn, share in enumerate((1, 2, 3)):
        del buffers, odd
        release_unused(resource)
        odd = steps.blocks(1, (5 + 2 * turn) * MIB)
        buffers = steps.blocks(share, mib // share // 2 * 2 * MIB)
        steps.transfer(f"new memory, {share} x {mib // share // 2 * 2} MiB", buffers)
    del buffers, odd
    link.meet()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("resources", nargs="*", default=default_resources, help="configurations, as for RMM_RESOURCE")
    parser.add_argument("--mib", type=int, default=256, help="size of the largest block")
    parser.add_argument("--measure", type=float, default=0.5, help="seconds for each bandwidth")
    parser.add_argument("--seconds", type=float, default=40, help="the longest time for a resource")
    parser.add_argument(
        "--without-error-handling",
        action="store_true",
        help="lets UCX send mapped memory in pieces, which it does not do for Dask",
    )
    parser.add_argument("--one-device", action="store_true", help="both processes on device 0")
    parser.add_argument(
        "--verbose", action="store_true", help="show the transports that UCX chooses, and all it writes"
    )
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options.rank, options.resources[0], options)
        return
    one_device = options.one_device or pairs.is_simulated
    environments = [{"CUDA_VISIBLE_DEVICES": text} for text in (("0", "0") if one_device else ("0,1", "1,0"))]
    if options.verbose:
        environments = [{**environment, "UCX_PROTO_INFO": "y"} for environment in environments]
    for resource in options.resources:
        command = [__file__, resource, "--mib", str(options.mib), "--measure", str(options.measure)]
        command += ["--without-error-handling"] if options.without_error_handling else []
        results, end, rest = pairs.run_pair(command, environments, options.seconds)
        print(f"\n{resource}: {end}")
        for result in results:
            speed = f"{result['speed']:8.2f} GB/s" if result["speed"] else " " * 13
            print(f"  {result['step']:<26} {speed}  {result['data']}")
        for line in rest if options.verbose else rest[-12:]:
            print(f"  | {line[:600]}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
