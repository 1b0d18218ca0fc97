# SPDX-License-Identifier: Apache-2.0
"""`python -m rmm COMMAND`"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

commands = {
    "info": "devices, their memory, and which resources they have",
    "demo": "time and memory that resources need for the same work",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rmm", description="Memory resources for CUDA.")
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in commands.items():
        command_parser = parsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        import_module(f"rmm._commands.{name}").add_arguments(command_parser)
    options = parser.parse_args(arguments)
    status: int = import_module(f"rmm._commands.{options.command}").run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
