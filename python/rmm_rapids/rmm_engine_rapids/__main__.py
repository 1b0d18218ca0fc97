# SPDX-License-Identifier: Apache-2.0
"""Runs a program on the engine: ``python -m rmm_engine_rapids [--configuration TEXT] program.py ...``, or ``-m module ...``."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from rmm_engine_rapids._start import start


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m rmm_engine_rapids", description="Runs a Python program with the engine enabled."
    )
    parser.add_argument(
        "--configuration", help="such as elastic,max=80%%; by default what RMM_ENGINE_RAPIDS or RMM_RESOURCE says"
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args(arguments)
    start(chosen.configuration)
    sys.argv = [chosen.program, *chosen.arguments]
    if chosen.is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(chosen.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(chosen.program))
        runpy.run_path(chosen.program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
