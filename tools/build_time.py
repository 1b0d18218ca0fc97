#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the build of a project of many files that use pools, header-only and with rmm::rmm_compiled.

    build_time.py [--files N] [--jobs N] [--compiler C++] [--isystem FOLDER]... [--flags "-O2"]

Each file makes and uses a pool, a container and a stream. Prints the user time of all compilations and the elapsed time of both builds,
and what the second one saves.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

SOURCE = """#include <rmm/cuda_stream.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

std::size_t use_{number}(std::size_t count)
{{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{{&cuda, count * 256}};
  rmm::cuda_stream stream;
  rmm::device_uvector<int> values{{count, stream, pool}};
  values.resize(2 * count, stream);
  return values.size() + pool.pool_size();
}}
"""


def build(sources: list[Path], options: list[str], compiler: str, jobs: int) -> tuple[float, float]:
    """Compiles the sources. Returns the user time of all compilations, and the elapsed time, in seconds."""
    def compile_one(source: Path) -> None:
        subprocess.run([compiler, *options, "-c", str(source), "-o", "/dev/null"], check=True)

    user, begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(compile_one, sources))
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - user, time.monotonic() - begin


def main() -> None:
    arguments = argparse.ArgumentParser(description="Times the build of a project that uses pools.")
    arguments.add_argument("--files", type=int, default=40)
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--compiler", default="g++")
    arguments.add_argument("--isystem", action="append", default=[], help="folder of foreign headers")
    arguments.add_argument("--flags", default="-O2")
    given = arguments.parse_args()

    options = ["-std=c++17", *given.flags.split(), "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", f"-I{REPOSITORY / 'include'}"]
    for folder in given.isystem:
        options += ["-isystem", folder]
    with tempfile.TemporaryDirectory() as scratch:
        sources = []
        for number in range(given.files):
            sources.append(Path(scratch) / f"file_{number}.cpp")
            sources[-1].write_text(SOURCE.format(number=number))
        alone = build(sources, options, given.compiler, given.jobs)
        once = build([REPOSITORY / "cmake/rmm_compiled.cpp", *sources], [*options, "-DRMM_COMPILED"], given.compiler, given.jobs)
    for name, (user, elapsed) in (("header-only", alone), ("rmm::rmm_compiled", once)):
        print(f"{name:<20}{user:8.1f} s user{elapsed:8.1f} s elapsed")
    print(f"{'saved':<20}{1 - once[0] / alone[0]:8.0%}       {1 - once[1] / alone[1]:8.0%}")


if __name__ == "__main__":
    main()
