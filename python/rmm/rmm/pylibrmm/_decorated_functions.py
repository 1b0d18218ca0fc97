# SPDX-License-Identifier: Apache-2.0
"""Which functions a block of code may be put around."""

from __future__ import annotations

import inspect


def expect_whole_calls(function: object, decorator: str) -> None:
    """TypeError for coroutines and generators: their call returns at once, and what they do runs later, in pieces."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(runs_in_pieces(function) for runs_in_pieces in kinds):
        raise TypeError(
            f"{function!r} runs in pieces, between which others run: use {decorator} in a with statement inside it"
        )
