#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends buffers between two Dask workers, with memory of each resource: bandwidth, and whether the data arrives unchanged.

Each resource has a cluster of its own, which Dask-CUDA makes, and gets it by the plug-in of this package.

    python benchmarks/dask_transfers.py --protocol tcp
    python benchmarks/dask_transfers.py --protocol ucx cuda elastic
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np

import rmm

default_resources = ["cuda", "pool,initial=2GiB", "elastic", "cuda_async"]
MIB = 1 << 20
is_simulated = rmm.__version__.endswith("+sim")


def content(size: int, seed: int) -> Any:
    return (np.arange(size // 4, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed)).view(np.uint8)


def make(size: int, seed: int) -> rmm.DeviceBuffer:
    return rmm.DeviceBuffer.to_device(content(size, seed))


def take(buffer: rmm.DeviceBuffer) -> rmm.DeviceBuffer:
    """Runs on the other worker, to which Dask sends the buffer."""
    return buffer


def wrong_bytes(buffer: rmm.DeviceBuffer, seed: int) -> int:
    return int(np.count_nonzero(buffer.copy_to_host() != content(buffer.size, seed)))


def release_unused() -> str:
    resource = rmm.mr.get_current_device_resource()
    if hasattr(resource, "release_unused"):
        resource.release_unused()
    return repr(resource)


def send(client: Any, workers: list[str], size: int, seed: int) -> tuple[float, int]:
    """Returns the seconds of the transfer and of its two tasks, and the number of wrong bytes."""
    from distributed import wait

    made = client.submit(make, size, seed, workers=[workers[0]], pure=False)
    wait(made)
    begin = time.perf_counter()
    taken = client.submit(take, made, workers=[workers[1]], pure=False)
    wait(taken)
    seconds = time.perf_counter() - begin
    return seconds, client.submit(wrong_bytes, taken, seed, workers=[workers[1]], pure=False).result()


def run_resource(configuration: str, protocol: str, mib: int, rounds: int) -> None:
    from distributed import Client, LocalCluster

    from rmm.dask import RMMPlugin

    if is_simulated:
        cluster: Any = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, protocol=protocol)
    else:
        from dask_cuda import LocalCUDACluster

        cluster = LocalCUDACluster(n_workers=2, protocol=protocol, dashboard_address=None)
    with cluster, Client(cluster) as client:
        client.register_plugin(RMMPlugin(configuration))
        workers = list(client.scheduler_info()["workers"])
        sent = []
        for turn in range(rounds):
            sent.append(send(client, workers, mib * MIB - turn * 2 * MIB, turn))
            if turn == rounds // 2:
                client.run(release_unused)  # later buffers get new memory
        best = min(seconds for seconds, _ in sent[1:])
        wrong = [count for _, count in sent]
        data = "right" if not any(wrong) else f"WRONG: bytes of each transfer {wrong}"
        print(f"{protocol:<4} {configuration:<30} {mib * MIB / best / 1e9:8.2f} GB/s  {data}", flush=True)


def run_alone(command: list[str], seconds: float) -> tuple[str, str, str]:
    """Returns what a program and its workers write, and how it ends. Leaves no process of it behind."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        try:
            output, errors = program.communicate(timeout=seconds)
            end = f"status {program.returncode}"
        except subprocess.TimeoutExpired:
            end = f"stopped after {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)  # workers, too
        if end.startswith("stopped"):
            output, errors = program.communicate()
    return output, errors, end


def stop_with_children(*_: object) -> None:
    raise SystemExit(143)


def main() -> None:
    signal.signal(signal.SIGTERM, stop_with_children)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("resources", nargs="*", default=default_resources, help="configurations, as for RMM_RESOURCE")
    parser.add_argument("--protocol", default="ucx", choices=["tcp", "ucx"])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=45, help="the longest time for a resource")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        run_resource(options.resources[0], options.protocol, options.mib, options.rounds)
        return
    for resource in options.resources:
        command = [sys.executable, __file__, "--alone", resource, "--protocol", options.protocol]
        command += ["--mib", str(options.mib), "--rounds", str(options.rounds)]
        text, errors, end = run_alone(command, options.seconds)
        print(text, end="")
        if end != "status 0" or not text:
            print(f"{options.protocol:<4} {resource:<30} {end}")
            for line in errors.splitlines()[-25:]:
                print(f"  | {line[:240]}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
