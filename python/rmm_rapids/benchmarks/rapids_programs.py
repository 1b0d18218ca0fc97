# SPDX-License-Identifier: Apache-2.0
"""Runs programs of RAPIDS on the engine and on RAPIDS' own resources, and compares results, times and memory.

    python rapids_programs.py time [--library cudf raft cuvs] [--rounds 5]
    python rapids_programs.py bound [--library cudf] [--limit 16] [--step 32] [--repeats 2]

prints lines of CSV. `time` runs each workload on each resource, made anew in each round in an order drawn at random, twice:
the first run includes what the resource needs to grow, the second does not. `bound` finds the smallest memory of each resource
in which a workload succeeds, by bisection. The driver's pool has no limit of its own, so all other memory of the device is
taken while it runs.

Results are compared with those of a first run on the first resource, and so are those of its second run: some functions of
RAPIDS do not repeat their results.

pylibcudf, pylibraft and cuvs are needed for the workloads of their names, CuPy for the last two.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import hashlib
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import rmm
from cuda.bindings import runtime
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream

from rmm_engine_rapids import EngineMemoryResource

MIB = 1 << 20
GIB = 1 << 30
MODULES = 64 * MIB  # left free for machine code that libraries load late


@dataclass(frozen=True)
class Candidate:
    """A resource, made with a limit on the bytes it may hold."""

    name: str
    make: Callable[[int], Any]
    is_bounded: bool = True


def candidates() -> list[Candidate]:
    device = rmm.mr.CudaMemoryResource
    return [
        Candidate("rapids pool", lambda most: rmm.mr.PoolMemoryResource(device(), min(GIB, most), most)),
        Candidate("rapids pool at full size", lambda most: rmm.mr.PoolMemoryResource(device(), most, most)),
        Candidate("rapids arena", lambda most: rmm.mr.ArenaMemoryResource(device(), most)),
        Candidate(
            "rapids cuda_async",
            lambda most: rmm.mr.CudaAsyncMemoryResource(min(GIB, most), release_threshold=most),
            is_bounded=False,
        ),
        Candidate("engine elastic", lambda most: EngineMemoryResource(f"elastic,max={most}")),
        Candidate("engine pool", lambda most: EngineMemoryResource(f"pool,initial={min(GIB, most)},max={most}")),
        Candidate("engine cached", lambda most: EngineMemoryResource(f"cached,max={most}")),
    ]


def synchronize() -> None:
    (error,) = runtime.cudaDeviceSynchronize()
    if error != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"cudaDeviceSynchronize: {error.name}")


def free_bytes() -> int:
    return int(rmm.mr.available_device_memory()[0])


@contextlib.contextmanager
def current(candidate: Candidate, most: int) -> Iterator[Any]:
    """Makes the candidate the current resource. If it has no limit, all other memory of the device is allocated meanwhile."""
    gc.collect()
    plain = rmm.mr.CudaMemoryResource()
    rest = 0 if candidate.is_bounded else max(0, free_bytes() - most - MODULES)
    ballast = plain.allocate(rest) if rest else 0
    try:
        resource = candidate.make(most)
        rmm.mr.set_current_device_resource(resource)
        yield resource
    finally:
        rmm.mr.set_current_device_resource(plain)
        resource = None
        gc.collect()
        synchronize()
        if rest:
            plain.deallocate(ballast, rest)


# Workloads that use RAPIDS' libraries. A workload makes its input and returns the function to measure. That function allocates
# from the current resource, and returns a function that reads its result. Equal results compare equal: the read removes any
# order that the library leaves open.
Read = Callable[[], Any]
Workload = Callable[[], Callable[[], Read]]


class Cudf:
    """libcudf through pylibcudf, on tables of random integers."""

    def __init__(self, scale: float) -> None:
        import pylibcudf

        self.plc = pylibcudf
        self.rows = int(48e6 * scale)
        self.keys = max(1, self.rows // 8)
        draw = np.random.default_rng(1)
        self.fact = [draw.integers(0, high, self.rows, dtype=np.int64) for high in (self.keys, 1000, 1 << 40)]
        self.dimension = [
            draw.permutation(self.keys).astype(np.int64),
            draw.integers(0, 1 << 20, self.keys, dtype=np.int64),
        ]
        for column in [*self.fact, *self.dimension]:
            runtime.cudaHostRegister(column.ctypes.data, column.nbytes, 0)  # makes uploads faster
        self.streams = [Stream() for _ in range(8)]

    def workloads(self) -> dict[str, Workload]:
        return {
            "cudf query of 4 threads": lambda: self.query(4),
            "cudf join": self.join,
            "cudf sort": self.sort,
            "cudf groupby": self.groupby,
            "cudf query of 8 threads": lambda: self.query(8),
            "cudf query of 1 thread": lambda: self.query(1),
        }

    def upload(self, columns: list[np.ndarray]) -> Any:
        integer = self.plc.DataType(self.plc.TypeId.INT64)
        buffers = [rmm.DeviceBuffer.to_device(column.view(np.uint8)) for column in columns]
        return self.plc.Table(
            [
                self.plc.Column.from_rmm_buffer(buffer, integer, len(column), [])
                for buffer, column in zip(buffers, columns, strict=True)
            ]
        )

    def part(self, table: Any, *columns: int) -> Any:
        return self.plc.Table([table.columns()[column] for column in columns])

    def sorted(self, table: Any, stream: Stream = DEFAULT_STREAM) -> Any:
        types, count = self.plc.types, table.num_columns()
        return self.plc.sorting.sort(table, [types.Order.ASCENDING] * count, [types.NullOrder.AFTER] * count, stream)

    def totals(self, table: Any, stream: Stream = DEFAULT_STREAM) -> Any:
        """Returns for each value of the first column the sum of the second, the maximum of the third, and the count of rows."""
        aggregation, groupby = self.plc.aggregation, self.plc.groupby
        _, second, third = table.columns()
        keys, values = groupby.GroupBy(self.part(table, 0)).aggregate(
            [
                groupby.GroupByRequest(second, [aggregation.sum()]),
                groupby.GroupByRequest(third, [aggregation.max()]),
            ],
            stream,
        )
        return self.plc.Table([*keys.columns(), *(column for each in values for column in each.columns())])

    def joined(self, fact: Any, dimension: Any, stream: Stream = DEFAULT_STREAM) -> Any:
        join, copying = self.plc.join, self.plc.copying
        left, right = join.inner_join(
            self.part(fact, 0), self.part(dimension, 0), self.plc.types.NullEquality.EQUAL, stream
        )
        anywhere = copying.OutOfBoundsPolicy.DONT_CHECK
        gathered = copying.gather(fact, left, anywhere, stream).columns()
        return self.plc.Table([*gathered, *copying.gather(self.part(dimension, 1), right, anywhere, stream).columns()])

    def content(self, table: Any) -> str:
        synchronize()
        digest = hashlib.sha256()
        for column in table.columns():
            data, size = column.data(), column.size()
            host = np.empty(size, np.int64)
            source = data.ptr + column.offset() * 8
            (error,) = runtime.cudaMemcpy(
                host.ctypes.data, source, size * 8, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
            )
            assert error == runtime.cudaError_t.cudaSuccess, error
            digest.update(host)
        return f"{table.num_rows()} rows {digest.hexdigest()[:24]}"

    def groupby(self) -> Callable[[], Read]:
        fact = self.upload(self.fact)

        def work() -> Read:
            result = self.totals(fact)
            return lambda: self.content(self.sorted(result))

        return work

    def join(self) -> Callable[[], Read]:
        fact, dimension = self.upload(self.fact), self.upload(self.dimension)

        def work() -> Read:
            result = self.joined(fact, dimension)
            return lambda: self.content(self.sorted(result))

        return work

    def sort(self) -> Callable[[], Read]:
        fact = self.upload(self.fact)

        def work() -> Read:
            result = self.sorted(fact)
            return lambda: self.content(result)

        return work

    def query(self, threads: int) -> Callable[[], Read]:
        fact, dimension = self.upload(self.fact), self.upload(self.dimension)
        return lambda: self.answer(fact, dimension, threads)

    def answer(self, fact: Any, dimension: Any, threads: int) -> Read:
        """Runs threads that filter, join, group and sort parts of a table, each on its own stream. Combines the results."""
        parts: list[list[Any]] = [[] for _ in range(threads)]
        failures: list[str] = []
        out_of_memory: list[str] = []

        def work(index: int) -> None:
            try:
                for turn in range(32 // threads):
                    self.step(fact, dimension, turn * threads + index, parts[index], self.streams[index])
                self.streams[index].synchronize()
            except MemoryError as failure:
                out_of_memory.append(str(failure))
            except Exception as failure:
                failures.append(f"{type(failure).__name__}: {failure}")

        workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        synchronize()
        if failures:
            raise RuntimeError(failures[0])
        if out_of_memory:
            raise MemoryError(out_of_memory[0])
        result = self.totals(self.plc.concatenate.concatenate([each for kept in parts for each in kept]))
        return lambda: self.content(self.sorted(result))

    def step(self, fact: Any, dimension: Any, number: int, kept: list[Any], stream: Stream) -> None:
        draw = random.Random(number)
        size = int(self.rows * 2.0 ** draw.uniform(-6, -2.5))
        begin = draw.randrange(self.rows - size)
        (part,) = self.plc.copying.slice(fact, [begin, begin + size], stream)
        boolean = self.plc.DataType(self.plc.TypeId.BOOL8)
        least = self.plc.Scalar.from_py(draw.randrange(100, 800), self.plc.DataType(self.plc.TypeId.INT64), stream)
        greater = self.plc.binaryop.BinaryOperator.GREATER
        mask = self.plc.binaryop.binary_operation(part.columns()[1], least, greater, boolean, stream)
        chosen = self.plc.stream_compaction.apply_retention_mask(part, mask, stream)
        with_weight = self.joined(chosen, dimension, stream)
        kept.append(self.sorted(self.totals(self.part(with_weight, 0, 3, 2), stream), stream))


class Raft:
    """Eigenvalues and singular values of a graph through pylibraft."""

    def __init__(self, scale: float) -> None:
        import cupy
        import cupyx.scipy.sparse
        from pylibraft.common import Handle
        from pylibraft.random import rmat
        from pylibraft.sparse.linalg import eigsh, svds
        from rmm.allocators.cupy import rmm_cupy_allocator

        cupy.cuda.set_allocator(rmm_cupy_allocator)
        self.cupy, self.sparse, self.rmat, self.eigsh, self.svds = cupy, cupyx.scipy.sparse, rmat, eigsh, svds
        self.make_handle = Handle
        self.levels = max(10, int(20 + np.log2(scale)))

    def workloads(self) -> dict[str, Workload]:
        return {
            "raft rmat": self.edges,
            "raft eigsh of a graph": self.eigenvalues,
            "raft svds of a graph": lambda: self.singular_values(k=32),
            "raft svds by Lanczos": lambda: self.singular_values(k=8, solver="lanczos", maxiter=400),
        }

    def draw_edges(self, handle: Any) -> Any:
        edges = self.cupy.empty((16 << self.levels, 2), dtype=self.cupy.int32)
        theta = self.cupy.asarray(np.tile(np.array([0.57, 0.19, 0.19, 0.05], np.float32), self.levels))
        self.rmat(edges, theta, self.levels, self.levels, seed=7, handle=handle)
        handle.sync()
        return edges

    def graph(self, handle: Any) -> Any:
        edges, nodes = self.draw_edges(handle), 1 << self.levels
        sources = self.cupy.concatenate([edges[:, 0], edges[:, 1]])
        targets = self.cupy.concatenate([edges[:, 1], edges[:, 0]])
        weights = self.cupy.ones(len(sources), dtype=self.cupy.float64)
        return self.sparse.coo_matrix((weights, (sources, targets)), shape=(nodes, nodes)).tocsr()

    def edges(self) -> Callable[[], Read]:
        handle = self.make_handle()  # keeps the resource that is current now

        def work() -> Read:
            result = self.draw_edges(handle)
            return lambda: hashlib.sha256(self.cupy.asnumpy(result)).hexdigest()

        return work

    def eigenvalues(self) -> Callable[[], Read]:
        handle = self.make_handle()
        graph = self.graph(handle)
        start = self.cupy.ones(graph.shape[0], dtype=self.cupy.float64)

        def work() -> Read:
            values, _ = self.eigsh(
                graph, k=8, which="LA", v0=start, ncv=64, maxiter=400, tol=1e-9, seed=7, handle=handle
            )
            return lambda: np.sort(self.cupy.asnumpy(values))

        return work

    def singular_values(self, **options: Any) -> Callable[[], Read]:
        handle = self.make_handle()
        graph = self.graph(handle)

        def work() -> Read:
            _, values, _ = self.svds(graph, seed=7, handle=handle, **options)
            return lambda: self.cupy.asnumpy(values)

        return work


class Cuvs:
    """Nearest neighbours and distances of random vectors through cuvs."""

    def __init__(self, scale: float) -> None:
        import cupy
        from cuvs.distance import pairwise_distance
        from cuvs.neighbors import brute_force, ivf_flat
        from rmm.allocators.cupy import rmm_cupy_allocator

        cupy.cuda.set_allocator(rmm_cupy_allocator)
        self.cupy, self.pairwise_distance = cupy, pairwise_distance
        self.brute_force, self.ivf_flat = brute_force, ivf_flat
        draw = np.random.default_rng(2)
        self.vectors = draw.standard_normal((int(1e6 * scale), 128), dtype=np.float32)
        self.queries = draw.standard_normal((int(1e4 * scale) + 16, 128), dtype=np.float32)

    def workloads(self) -> dict[str, Workload]:
        return {
            "cuvs brute-force k-NN": self.exact,
            "cuvs pairwise distances": self.distances,
            "cuvs ivf_flat k-NN": self.inverted_file,
        }

    def found(self, distances: Any, neighbours: Any) -> Read:
        cupy = self.cupy
        return lambda: (cupy.asnumpy(cupy.asarray(neighbours)), cupy.asnumpy(cupy.asarray(distances)))

    def exact(self) -> Callable[[], Read]:
        vectors, queries = self.cupy.asarray(self.vectors), self.cupy.asarray(self.queries)

        def work() -> Read:
            index = self.brute_force.build(vectors)
            return self.found(*self.brute_force.search(index, queries, 32))

        return work

    def inverted_file(self) -> Callable[[], Read]:
        vectors, queries = self.cupy.asarray(self.vectors), self.cupy.asarray(self.queries)
        made, asked = self.ivf_flat.IndexParams(n_lists=512), self.ivf_flat.SearchParams(n_probes=32)

        def work() -> Read:
            index = self.ivf_flat.build(made, vectors)
            return self.found(*self.ivf_flat.search(asked, index, queries, 32))

        return work

    def distances(self) -> Callable[[], Read]:
        queries, some = self.cupy.asarray(self.queries), self.cupy.asarray(self.vectors[:40_000])

        def work() -> Read:
            result = self.pairwise_distance(queries, some, metric="euclidean")
            return lambda: self.cupy.asnumpy(self.cupy.asarray(result))

        return work


LIBRARIES: dict[str, type[Cudf] | type[Raft] | type[Cuvs]] = {"cudf": Cudf, "raft": Raft, "cuvs": Cuvs}


def compare(first: Any, second: Any) -> str:
    """Returns "equal" if two results are equal, else a text that says how they differ."""
    if isinstance(first, str):
        return "equal" if first == second else "DIFFERENT"
    if isinstance(first, tuple):
        verdicts = [compare(*pair) for pair in zip(first, second, strict=True)]
        return next((verdict for verdict in verdicts if verdict != "equal"), "equal")
    if first.shape != second.shape:
        return "DIFFERENT"
    if np.array_equal(first, second):
        return "equal"
    if first.dtype.kind in "iu":
        return f"{np.mean(first != second):.1e} of the elements differ"
    difference = np.abs(first.astype(np.float64) - second) / np.maximum(np.abs(first), np.finfo(first.dtype).tiny)
    return f"differ by at most {difference.max():.1e} of a value"


def show(*fields: Any) -> None:
    print(",".join(f'"{field}"' if "," in str(field) else str(field) for field in fields), flush=True)


def said(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines() or [""]
    return f"{type(failure).__name__}: {lines[0]}".replace('"', "'").replace(",", ";")[:200]


def run(work: Callable[[], Read]) -> tuple[float, Read]:
    """Returns the milliseconds that `work` took, and the function that reads its result."""
    synchronize()
    begin = time.perf_counter()
    read = work()
    synchronize()
    return (time.perf_counter() - begin) * 1e3, read


@dataclass
class Outcome:
    """The results of one workload on one resource."""

    first: list[float]  # milliseconds of first runs
    again: list[float]
    peak: int | None = None  # most bytes allocated at a time
    reserved: int | None = None  # device bytes that the resource held
    text: str = ""


def measure(names: dict[str, Workload], chosen: list[Candidate], most: int, rounds: int) -> None:
    times = [f"{run}_{figure}" for run in ("first", "again") for figure in ("ms", "least", "most")]
    show("workload", "resource", *times, "peak_mib", "reserved_mib", "result")
    draw = random.Random(3)
    for name, workload in names.items():
        outcomes = {each.name: Outcome([], []) for each in chosen}
        expected: Any = None
        for each in [chosen[0], *chosen]:  # an untimed run, which loads machine code
            try:
                result, outcomes[each.name].peak = examine(workload, each, most)
                outcomes[each.name].text = "" if expected is None else compare(expected, result)
                expected = result if expected is None else expected
            except Exception as failure:
                outcomes[each.name].text = said(failure)
        for each in [other for _ in range(rounds) for other in draw.sample(chosen, len(chosen))]:
            if outcomes[each.name].peak is None:
                continue
            try:
                time_twice(workload, each, most, outcomes[each.name])
            except Exception as failure:
                outcomes[each.name].text = said(failure)
        for each in chosen:
            outcome = outcomes[each.name]
            columns: list[Any] = [name, each.name]
            for times_ms in (outcome.first, outcome.again):
                figures = [statistics.median(times_ms), min(times_ms), max(times_ms)] if times_ms else []
                columns += [f"{value:.2f}" for value in figures] or [""] * 3
            show(*columns, count(outcome.peak), count(outcome.reserved), outcome.text)


def examine(workload: Workload, candidate: Candidate, most: int) -> tuple[Any, int]:
    """Returns the result of a workload on a resource, and the most bytes allocated at a time."""
    with current(candidate, most):
        counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.get_current_device_resource())
        rmm.mr.set_current_device_resource(counted)
        _, read = run(workload())
        peak = int(counted.allocation_counts.peak_bytes)
        return read(), peak


def time_twice(workload: Workload, candidate: Candidate, most: int, outcome: Outcome) -> None:
    with current(candidate, most):
        free = free_bytes()
        work = workload()
        milliseconds, read = run(work)
        outcome.first.append(milliseconds)
        del read
        milliseconds, _read = run(work)
        outcome.again.append(milliseconds)
        outcome.reserved = held(rmm.mr.get_current_device_resource(), free)


def count(size: int | None) -> str:
    return "" if size is None else f"{size / MIB:.0f}"


def held(resource: Any, free_before: int) -> int:
    """Returns the device bytes that a resource holds."""
    if isinstance(resource, EngineMemoryResource):
        figures = resource.figures()
        if figures is not None:
            return int(figures.reserved_bytes)
    if isinstance(resource, rmm.mr.PoolMemoryResource):
        return int(resource.pool_size())
    return free_before - free_bytes()


def failure_of(workload: Workload, candidate: Candidate, repeats: int, most: int) -> str:
    """Returns why the workload ran out of memory; empty if it did not."""
    try:
        with current(candidate, most):
            work = workload()
            for _ in range(repeats):
                _, read = run(work)
                del read
    except (MemoryError, RuntimeError) as failure:
        if isinstance(failure, MemoryError) or "alloc" in str(failure).lower() or "memory" in str(failure).lower():
            return said(failure)
        raise
    return ""


def live_bytes(workload: Workload, repeats: int) -> int:
    """Returns the most bytes allocated at a time, over all repeats: with several threads it varies."""
    with current(Candidate("", lambda _: rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())), 0):
        work = workload()
        for _ in range(repeats):
            _, read = run(work)
            del read
        return int(rmm.mr.get_current_device_resource().allocation_counts.peak_bytes)


def least_enough(fails: Callable[[int], str], live: int, limit: int, step: int) -> tuple[int | None, str]:
    """Returns the smallest sufficient multiple of `step`, and the failure below it. Returns None if `limit` is too small."""
    failure = fails(limit)
    if failure:
        return None, failure
    start = least = live * 3 // 4 // step  # less than any run needs: with threads, runs differ by less than a quarter
    most = limit // step
    while most - least > 1:
        # The answer is usually a little above the live bytes, so look there first.
        middle = min((least + most) // 2, least + max(1, 2 * (least - start), live // step // 16))
        refused = fails(middle * step)
        if refused:
            least, failure = middle, refused
        else:
            most = middle
    return most * step, failure


def find_bounds(names: dict[str, Workload], chosen: list[Candidate], limit: int, step: int, repeats: int) -> None:
    show("workload", "resource", "live_mib", "least_mib", "overhead_percent", "seconds", "failure_below")
    for name, workload in names.items():
        live = live_bytes(workload, repeats)
        for each in chosen:
            begin = time.perf_counter()
            found, overhead = None, ""
            try:
                fails = functools.partial(failure_of, workload, each, repeats)
                found, failure = least_enough(fails, live, limit, step)
                overhead = "" if found is None else f"{100 * (found - live) / live:.1f}"
            except Exception as unexpected:
                failure = said(unexpected)
            show(name, each.name, count(live), count(found), overhead, f"{time.perf_counter() - begin:.1f}", failure)


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "bound"])
    parser.add_argument("--library", nargs="+", choices=sorted(LIBRARIES), default=["cudf"])
    parser.add_argument("--workload", nargs="+", default=[""], help="only workloads whose names contain one of these")
    parser.add_argument("--resource", nargs="+", default=[""], help="only resources whose names contain one of these")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the sizes of tables, graphs and vectors")
    parser.add_argument("--limit", type=float, default=24, help="GiB that each resource may hold")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each workload")
    parser.add_argument("--step", type=int, default=32, help="resolution of the bounds in MiB")
    parser.add_argument("--repeats", type=int, default=2, help="runs that must succeed within a bound")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    options = arguments(words)
    chosen = [each for each in candidates() if any(word in each.name for word in options.resource)]
    for library in options.library:
        names = {
            name: workload
            for name, workload in LIBRARIES[library](options.scale).workloads().items()
            if any(word in name for word in options.workload)
        }
        if options.what == "time":
            measure(names, chosen, int(options.limit * GIB), options.rounds)
        else:
            find_bounds(names, chosen, int(options.limit * GIB), options.step * MIB, options.repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
