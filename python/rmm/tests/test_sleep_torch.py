# SPDX-License-Identifier: Apache-2.0
"""rmm.sleep with PyTorch. Covers the cases of torch_memory_saver's own tests, through its interface and through RMM's.

Programs without kernels also run on the simulator. The programs have the device alone, because they compare what the device has
free. They share an interpreter, because PyTorch takes seconds to import.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

from rmm._build_facts import cuda_backend

begin = """
    import gc, sys, warnings
    import torch
    if "rmm.sleep" in sys.modules:  # by an earlier program in this interpreter: give back its memory, and import it anew
        torch._C._cuda_clearCublasWorkspaces()
        sys.modules.pop("rmm.sleep")._sleeper.release_unused()
        del sys.modules["rmm.allocators.torch_memory_saver"]
    import rmm.sleep
    from rmm._build_facts import cuda_backend
    from rmm.allocators.torch_memory_saver import torch_memory_saver

    MiB = 1 << 20
    big = (64 if cuda_backend == "sim" else 512) * MiB
    slack = 16 * MiB  # memory that the driver takes for graphs and page tables

    def free():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # frees memory that comparisons took
        return torch.cuda.mem_get_info()[0]

    def fill(tensor, value):
        if cuda_backend == "cuda":
            tensor.fill_(value)
        else:  # without a kernel
            tensor.copy_(torch.full(tensor.shape, value, dtype=tensor.dtype))

    def filled(value, nbytes=big):
        tensor = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        fill(tensor, value)
        return tensor

    def holds(tensor, value):
        if cuda_backend == "cuda":
            return int(tensor.min()) == int(tensor.max()) == value
        return bool((tensor.cpu() == value).all())

    def captured(tensor, **options):
        graph = torch.cuda.CUDAGraph()
        warm = tensor + 1  # loads the kernels
        del warm
        torch.cuda.synchronize()
        with torch_memory_saver.cuda_graph(graph, **options):
            out = tensor + 1
            out = out * 2
        return graph, out

    def load_kernels():
        x = filled(1, 64 * MiB)
        assert holds(x, 1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x + 1
            y = y * 2
            z = x[:MiB] * 2
        graph.replay()
        assert holds(y, 4)

    if cuda_backend == "cuda":
        import torch._dynamo  # as optimizers do, which takes seconds
        load_kernels()  # kernels take device memory, and keep it
    gc.collect()
    torch.cuda.empty_cache()
"""

programs = {
    "simple": """
        with torch_memory_saver.region():
            x = filled(100)
        address, before = x.data_ptr(), free()
        torch_memory_saver.pause()
        assert free() - before >= big, free() - before
        torch_memory_saver.resume()
        assert free() - before <= 2 * MiB
        assert x.data_ptr() == address
        fill(x, 3)
        assert holds(x, 3)
    """,
    "tags": """
        start = free()
        tensors = {}
        for i, tag in enumerate(("weights", "kv_cache")):
            with torch_memory_saver.region(tag=tag, enable_cpu_backup=tag == "weights"):
                tensors[tag] = filled(i + 1)
        awake = free()
        torch_memory_saver.pause("kv_cache")
        half = free()
        assert half - awake >= big
        assert holds(tensors["weights"], 1)
        torch_memory_saver.pause("weights")
        assert rmm.sleep._sleeper.pool().mapped_bytes == 0
        assert start - free() <= slack, start - free()  # all memory is usable
        torch_memory_saver.pause()
        torch_memory_saver.resume("weights")
        assert holds(tensors["weights"], 1)
        torch_memory_saver.resume("kv_cache")
        torch_memory_saver.resume("kv_cache")
        assert free() >= awake - 2 * MiB
        fill(tensors["kv_cache"], 2)
        assert holds(tensors["kv_cache"], 2)
    """,
    "cpu_backup": """
        for backend in (None, "pinned", "mmap"):
            with torch_memory_saver.region(tag=str(backend), enable_cpu_backup=True, cpu_backup_backend=backend):
                kept = torch.arange(10_000_000, dtype=torch.int32).view(1000, 10_000).cuda()
            with torch_memory_saver.region(tag=str(backend)):
                dropped = filled(7)
            expected = kept.cpu()
            assert torch_memory_saver.get_cpu_backup(kept) is None
            before = free()
            torch_memory_saver.pause()
            assert free() - before >= big + 40_000_000
            assert torch_memory_saver.get_cpu_backup(dropped) is None
            for zero_copy in (False, True):
                backup = torch_memory_saver.get_cpu_backup(kept, zero_copy=zero_copy)
                assert backup.dtype == torch.int32 and backup.shape == (1000, 10_000)
                assert torch.equal(backup, expected)
                assert torch.equal(torch_memory_saver.get_cpu_backup(kept[1:2], zero_copy=zero_copy), expected[1:2])
            backup[0, 0] = 42  # the copy that resume() uses
            torch_memory_saver.resume()
            assert kept.cpu()[0, 0] == 42
            assert torch.equal(kept[1:].cpu(), expected[1:])
            assert torch_memory_saver.get_cpu_backup(kept) is None
            del kept, dropped
    """,
    "cuda_graph": """
        x = filled(1, 256 * MiB)
        for keep in (False, True):
            start = free()
            graph, out = captured(x, tag="graph", enable_cpu_backup=keep)
            graph.replay()
            assert holds(out, 4)
            awake = free()
            torch_memory_saver.pause("graph")
            assert start - free() <= slack, start - free()  # graphs need other memory, too
            torch_memory_saver.resume("graph")
            assert free() >= awake - 2 * MiB
            if keep:
                assert holds(out, 4)
            x.fill_(2)
            graph.replay()
            assert holds(out, 6)
            x.fill_(1)
            graph.reset()
            del graph, out
            gc.collect()
            rmm.sleep._sleeper.release_unused()
            torch.cuda.empty_cache()
            assert start - free() <= slack, start - free()
    """,
    "graph_over_memory_that_sleeps": """
        with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
            weights = torch.eye(1024, device="cuda") * 3
        with torch_memory_saver.region(tag="cache"):
            cache = torch.zeros(1024, 1024, device="cuda")
        x = torch.ones(1024, 1024, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            cache.copy_(x @ weights)
        torch.cuda.synchronize()
        handle = torch.cuda.graph_pool_handle()
        graphs = []
        for _ in range(2):  # both graphs share memory
            graph = torch.cuda.CUDAGraph()
            with torch_memory_saver.cuda_graph(graph, pool=handle, tag="graph"):
                cache.copy_(x @ weights)
                out = cache.sum()
            graphs.append((graph, out))
        before = free()
        for turn in range(3):
            torch_memory_saver.pause("cache")
            torch_memory_saver.pause("weights")
            torch_memory_saver.pause("graph")
            assert free() > before
            for tag in ("weights", "graph", "cache"):
                torch_memory_saver.resume(tag)
            x.fill_(turn + 1)
            for graph, out in graphs:
                graph.replay()
                assert out.item() == 1024 * 1024 * 3 * (turn + 1)
    """,
    "rl_loop": """
        import torch.nn as nn

        def make():
            return nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4))).cuda().requires_grad_(False)

        with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
            model = make()
        with torch_memory_saver.region(tag="kv_cache"):
            cache = torch.zeros(64, 1024 * 1024, device="cuda")
        x = torch.ones(64, 2048, device="cuda")
        for _ in range(3):
            model(x)
        graph = torch.cuda.CUDAGraph()
        with torch_memory_saver.cuda_graph(graph, tag="graph", enable_cpu_backup=True):
            y = model(x)
            cache[:, :2048].copy_(y)
        graph.replay()
        expected = y.clone()
        addresses = [p.data_ptr() for p in model.parameters()]
        for step in range(2):
            awake = free()
            torch_memory_saver.pause()
            assert free() - awake >= 256 * MiB + 4 * 2048 * 2048 * 4
            others = filled(step)  # the device is free for training
            del others
            torch.cuda.empty_cache()
            torch_memory_saver.resume("weights")
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1)
            torch_memory_saver.resume()
            assert [p.data_ptr() for p in model.parameters()] == addresses
            y.zero_()
            graph.replay()
            assert torch.allclose(y, expected)
            assert torch.allclose(cache[:, :2048], expected)
    """,
    "training_in_a_region": """
        start = free()
        with torch_memory_saver.region(tag="train", enable_cpu_backup=True):
            w = torch.nn.Linear(1024, 1024).cuda()
            optimizer = torch.optim.Adam(w.parameters())
            for _ in range(3):
                optimizer.zero_grad()
                w(torch.ones(8, 1024, device="cuda")).sum().backward()
                optimizer.step()
            with torch_memory_saver.disable():
                outside = filled(9, 64 * MiB)
        expected = w.weight.detach().cpu()
        moments = optimizer.state[w.weight]["exp_avg"].cpu()
        torch_memory_saver.pause("train")
        assert holds(outside, 9)
        torch_memory_saver.resume("train")
        assert torch.equal(w.weight.detach().cpu(), expected)
        assert torch.equal(optimizer.state[w.weight]["exp_avg"].cpu(), moments)
    """,
    "nested_regions": """
        with torch_memory_saver.region(tag="outer", enable_cpu_backup=True):
            a = filled(1, 64 * MiB)
            with torch_memory_saver.region(tag="inner"):
                b = filled(2, 64 * MiB)
                with torch_memory_saver.disable():
                    c = filled(3, 64 * MiB)
                    with torch_memory_saver.region(tag="outer", enable_cpu_backup=True):
                        d = filled(4, 64 * MiB)
            e = filled(5, 64 * MiB)
        for tag, least in (("inner", 64), ("outer", 192)):
            before = free()
            torch_memory_saver.pause(tag)
            freed = (free() - before) / MiB
            assert least <= freed <= least + 96, (tag, freed)
        assert holds(c, 3)
        torch_memory_saver.resume()
        assert holds(a, 1) and holds(d, 4) and holds(e, 5)
    """,
    "odd_sizes_and_frees_while_asleep": """
        start = free()
        with torch_memory_saver.region(tag="odd", enable_cpu_backup=True):
            tensors = [filled(i, n)
                       for i, n in enumerate((1, 511, 513, MiB - 1, 2 * MiB + 1, 33 * MiB + 7, 100_000_001))]
        torch_memory_saver.pause("odd")
        assert start - free() <= slack, start - free()
        del tensors[1::2]
        torch_memory_saver.resume("odd")
        for i, tensor in zip((0, 2, 4, 6), tensors):
            assert holds(tensor, i)
        tensors.clear()
        del tensor
        gc.collect()
        rmm.sleep._sleeper.release_unused()
        assert start - free() <= slack, start - free()
    """,
    "own_interface": """
        start = free()
        with rmm.sleep.region("weights", keep=True) as pool:
            tensor = filled(5)
            buffer = rmm.DeviceBuffer(size=64 * MiB, mr=pool)
            fleeting = filled(6)
            del fleeting
        freed = rmm.sleep.pause("weights")
        assert freed >= big + 64 * MiB
        assert start - free() <= slack
        try:
            with rmm.sleep.region("weights", keep=True):
                pass
        except RuntimeError:
            pass
        else:
            raise AssertionError("a region of memory that sleeps")
        rmm.sleep.resume("weights")
        assert holds(tensor, 5)
        assert start - free() < big + 88 * MiB + 64 * MiB  # freed memory is not mapped again
        with rmm.sleep.region("weights", keep=True):
            again = filled(7)
        assert holds(tensor, 5) and holds(again, 7)
        del tensor, again, buffer
        gc.collect()
        rmm.sleep._sleeper.release_unused()
        assert start - free() <= slack, start - free()
    """,
    "another_thread_is_in_a_region": """
        import threading

        with rmm.sleep.region("weights", keep=True):
            tensor = filled(5)
        entered, end = threading.Event(), threading.Event()

        def work():
            with rmm.sleep.region("cache"):
                entered.set()
                end.wait()

        thread = threading.Thread(target=work)
        thread.start()
        entered.wait()
        assert rmm.sleep.pause("weights") >= big
        with rmm.sleep.region("other"):
            other = filled(6)
        end.set()
        thread.join()
        rmm.sleep.resume("weights")
        assert holds(tensor, 5) and holds(other, 6)
    """,
    "resume_takes_what_the_cache_of_pytorch_holds": """
        start = free()  # less than the device has, because other programs wait for their turns
        with rmm.sleep.region("weights"):
            tensor = filled(1, start // 3 // MiB * MiB)
        rmm.sleep.pause()
        others = filled(2, int(start * 0.8) // MiB * MiB)
        del others  # PyTorch's cache keeps the memory
        rmm.sleep.resume()
        fill(tensor, 4)
        assert holds(tensor[:MiB], 4)
    """,
    "vllm": """
        from rmm.allocators.vllm import CuMemAllocator

        allocator = CuMemAllocator.get_instance()
        assert allocator.get_current_usage() == 0
        start = free()
        with allocator.use_memory_pool("weights"):
            weights = filled(1)
            quantized = filled(0)
            del quantized
        with allocator.use_memory_pool("kv_cache"):
            cache = filled(2)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with allocator.cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool):
            out = weights[:MiB] * 2
        graph.replay()
        usage = allocator.get_current_usage()
        assert 1024 * MiB <= usage <= 1100 * MiB, usage
        allocator.sleep(("weights", "cudagraph"))
        assert start - free() <= slack, start - free()
        allocator.wake_up(["weights"])
        assert holds(weights, 1) and holds(out, 2)
        allocator.wake_up(["kv_cache"])
        cache.fill_(3)
        weights.fill_(5)
        graph.replay()
        assert holds(out, 10) and holds(cache, 3)
        allocator.release_pools()
    """,
}


with_kernels = ("cuda_graph", "graph_over_memory_that_sleeps", "rl_loop", "training_in_a_region", "vllm")

simulate = ["-m", "rmm", "simulate"] if cuda_backend == "sim" else []


@cache
def reason_to_skip() -> str:
    """Returns why PyTorch cannot be tested here; empty if it can."""
    if find_spec("torch") is None:
        return "PyTorch is not installed"
    probe = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 77)"
    found = subprocess.run([sys.executable, "-P", *simulate, "-c", probe], check=False, capture_output=True)
    return "" if found.returncode == 0 else "PyTorch finds no GPU"


def case(name: str) -> Any:
    """A program that has the device alone once it has loaded kernels."""
    options = [*simulate, "-W", "ignore"]
    program = pytest.mark.program(programs[name], options=options, environment={"CUDASIM_MEMORY": "1GiB"}, shares=True)
    needs_kernels = pytest.mark.skipif(
        cuda_backend == "sim" and name in with_kernels and find_spec("torch") is not None,
        reason="needs a GPU: the simulator runs no kernels",
    )
    return pytest.param(name, marks=[program, needs_kernels])


@pytest.mark.usefixtures("device_alone")
@pytest.mark.parametrize("name", [case(name) for name in programs])
def test_memory_of_pytorch_sleeps(name: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
