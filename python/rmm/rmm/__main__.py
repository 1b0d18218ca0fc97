# SPDX-License-Identifier: Apache-2.0
"""Implements `python -m rmm COMMAND` and the script `rmm`."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from types import ModuleType

from rmm._commands.simulate import run_simulated
from rmm._commands.trace_program import run_trace_program
from rmm._cuda.gpu import CUDARuntimeError

commands = {
    "info": "devices, their memory, and which resources work there",
    "doctor": "what the machine and the process have, what calls cost here, and what to do",
    "demo": "time and memory that resources need for the same work",
    "nvtx-path": "the library for NVTX_INJECTION64_PATH, which makes tags of NVTX ranges",
    "audit-path": "the library for LD_PRELOAD, which lists what libraries allocate past the pool",
    "c-path": "the library with the C interface, for ctypes, Rust and other languages",
}
commands_with_any_arguments = {
    "simulate": "Python with the simulator in the place of CUDA: simulate FILE, or simulate -m MODULE",
}
commands_of_the_trace_program = {
    "report": "what a trace shows, as a page for browsers",
    "advise": "which resource would have served a trace best",
    "export": "a trace for other programs",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in commands_of_the_trace_program:  # it parses its own options and prints its own help
        return run_trace_program(arguments)
    if arguments and arguments[0] in commands_with_any_arguments:  # the other arguments are for Python
        return run_simulated(arguments[1:])
    name = "rmm" if os.path.basename(sys.argv[0]) == "rmm" else "python -m rmm"
    parser = argparse.ArgumentParser(prog=name, description="Memory resources for CUDA.")
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in commands.items():
        command_parser = parsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        _module_of(name).add_arguments(command_parser)
    for name, text in (commands_with_any_arguments | commands_of_the_trace_program).items():
        parsers.add_parser(name, help=text)
    options = parser.parse_args(arguments)
    try:
        status: int = _module_of(options.command).run(options)
    except CUDARuntimeError as error:
        print(f"rmm: the CUDA runtime says: {error}", file=sys.stderr)
        return 1
    return status


def _module_of(command: str) -> ModuleType:
    return import_module(f"rmm._commands.{command.replace('-', '_')}")


def run_as_program() -> int:
    """Runs the command that the command line names; returns the exit status."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        status = 0
    return status


if __name__ == "__main__":
    sys.exit(run_as_program())
