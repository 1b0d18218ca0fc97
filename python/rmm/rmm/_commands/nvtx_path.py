# SPDX-License-Identifier: Apache-2.0
"""The library that makes tags of NVTX ranges, which comes with the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import librmm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    library = Path(librmm.__file__).parent / "lib" / "librmm_nvtx.so"
    if not library.is_file():
        print(
            "python -m rmm: librmm_nvtx.so was not found: this package was built without it (RMM_BUILD_NVTX_LIBRARY)",
            file=sys.stderr,
        )
        return 2
    print(library)
    return 0
