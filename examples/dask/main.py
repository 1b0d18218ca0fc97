# SPDX-License-Identifier: Apache-2.0
"""Two Dask workers with a pool each: a buffer goes from one to the other, and unused memory goes back to the devices.

- `python main.py`: two GPUs, through Dask-CUDA, with elastic pools
- `python main.py --protocol ucx`: the same with plain pools, whose memory UCX sends from device to device
- `python main.py --simulated`: two processes with simulated devices, if rmm is built on the simulator
"""

from __future__ import annotations

import argparse
import time

from distributed import Client, LocalCluster

import rmm
from rmm.dask import RMMPlugin

MIB = 1 << 20


def make_buffer(text: bytes) -> rmm.DeviceBuffer:
    buffer = rmm.DeviceBuffer(size=64 * MIB)
    buffer.copy_from_host(text)
    return buffer


def take(buffer: rmm.DeviceBuffer) -> rmm.DeviceBuffer:
    """Runs on the other worker. Dask sends the buffer, so the copy is in that worker's pool."""
    return buffer


def begin_of(buffer: rmm.DeviceBuffer, length: int) -> bytes:
    return buffer.tobytes()[:length]


def memory_of_pool() -> tuple[int, int]:
    pool = rmm.mr.get_current_device_resource()
    return pool.get_allocated_bytes(), pool.pool_size()


def release_unused() -> int:
    return rmm.mr.get_current_device_resource().release_unused()


def print_memory(client: Client, workers: list[str], when: str) -> None:
    memory = client.run(memory_of_pool)
    for number, worker in enumerate(workers):
        used, held = memory[worker]
        print(f"{when}: worker {number} uses {used // MIB} MiB of {held // MIB} MiB in its pool")


def use(client: Client, configuration: str) -> None:
    client.register_plugin(RMMPlugin(configuration))
    first, second = workers = list(client.scheduler_info()["workers"])
    text = b"from one worker to the other"
    made = client.submit(make_buffer, text, workers=[first])
    taken = client.submit(take, made, workers=[second])
    print(client.submit(begin_of, taken, len(text), workers=[second]).result().decode())
    del made
    while client.run(memory_of_pool)[first][0] > 0:
        time.sleep(0.01)  # until the first worker knows that no future refers to its buffer any more
    print_memory(client, workers, "after the transfer")
    client.run(release_unused)
    print_memory(client, workers, "at the end")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--protocol", default="tcp")
    options = parser.parse_args()
    if options.simulated:
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    else:
        from dask_cuda import LocalCUDACluster

        cluster = LocalCUDACluster(n_workers=2, protocol=options.protocol)
    configuration = "pool,initial=50%" if options.protocol.startswith("ucx") else "elastic,max=80%"
    with cluster, Client(cluster) as client:
        use(client, configuration)


if __name__ == "__main__":
    main()
