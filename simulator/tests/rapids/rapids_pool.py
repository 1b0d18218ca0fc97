# SPDX-License-Identifier: Apache-2.0
"""Runs the pools of released librmm wheels on the simulator, under its ordering checker, and compares the result with EXPECTED.

    python3 simulator/tests/rapids/rapids_pool.py --simulator build/sim/lib/libcudart_sim.so --folder build/rapids_pools

Downloads the wheels with pip into the folder, once. Needs g++ with C++20, and the CUDA headers. Exits with 0 if the violations of each
release are as expected, 1 if not, and 77 if pip cannot get a wheel.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
RUNS = 100

# Whether the checker finds violations in the scenarios `merge`, `grow`, `random` and `random-in-order` of
# rapids_pool.cpp. 26.06 merges free lists without an event for the merged memory. All three releases hand memory from
# an upstream that allocates in the order of a stream to another stream, without a wait for the allocation.
EXPECTED = {
    "26.6": {"merge": True, "grow": True, "random": True, "random-in-order": True},
    "26.8": {"merge": False, "grow": True, "random": False, "random-in-order": True},
    "26.10": {"merge": False, "grow": True, "random": False, "random-in-order": True},
}
LOGGERS = {"26.6": "0.2.*", "26.8": "0.3.*", "26.10": "0.3.*"}


def fetch(release, folder):
    """Puts the files of the wheels of a release into a folder. Returns whether they are there."""
    if (folder / "complete").exists():
        return True
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", str(wheels)]
    if subprocess.run([*command, f"librmm-cu13=={release}.*", f"rapids-logger=={LOGGERS[release]}"]).returncode != 0:
        return False
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    (folder / "complete").touch()
    return True


def build(folder, simulator, cuda):
    """Compiles the program with the headers of a release, and links the simulator before librmm.so."""
    program = folder / "rapids_pool"
    libraries = [folder / "librmm/lib64/librmm.so", folder / "rapids_logger/lib64/librapids_logger.so"]
    includes = [folder / "librmm/include", folder / "librmm/include/rapids", folder / "rapids_logger/include", cuda]
    run_paths = ":".join(str(library.parent) for library in [simulator, *libraries])
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", str(HERE / "rapids_pool.cpp"), "-o", str(program)]
    command += ["-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", f"-I{HERE.parent.parent / 'include'}"]
    command += [argument for include in includes for argument in ("-isystem", str(include))]
    command += [str(simulator), *map(str, libraries), f"-Wl,-rpath,{run_paths}"]
    subprocess.run(command, check=True)
    return program


def run(program, what, log):
    """Runs one scenario. Returns the runs with violations, all runs, and the first line about missing order."""
    result = subprocess.run([program, what, str(RUNS)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log.write_text(result.stdout)
    counts = re.search(r"violations in (\d+) of (\d+) runs", result.stdout)
    if result.returncode != 0 or counts is None:
        raise SystemExit(f"{program} {what} ended with status {result.returncode}: {log}")
    return int(counts[1]), int(counts[2]), next((line for line in result.stdout.splitlines() if " is not ordered after " in line), "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulator", type=pathlib.Path, required=True, help="libcudart_sim.so")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for wheels, programs and output")
    parser.add_argument("--cuda", type=pathlib.Path, default="/usr/local/cuda/include", help="the CUDA headers")
    parser.add_argument("releases", nargs="*", help="26.6, 26.8, 26.10; all by default")
    arguments = parser.parse_args()
    failed = 0
    passed = 0
    for release in arguments.releases or EXPECTED:
        folder = arguments.folder.resolve() / release
        if not fetch(release, folder):
            print(f"pip cannot get librmm-cu13 {release}", file=sys.stderr)
            return 77
        program = build(folder, arguments.simulator.resolve(), arguments.cuda)
        for what, expected in EXPECTED[release].items():
            found, runs, line = run(program, what, folder / f"{what}.txt")
            print(f"librmm {release} {what}: violations in {found} of {runs} runs")
            if line:
                print(f"  {line}")
            if (found != 0) == expected:
                passed += 1
            else:
                failed += 1
                print(f"  failed: expected {'some' if expected else 'none'}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
