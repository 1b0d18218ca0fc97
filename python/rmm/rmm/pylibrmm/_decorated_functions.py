# SPDX-License-Identifier: Apache-2.0
"""Checks for decorators that run a function inside a block."""

from __future__ import annotations

import inspect


def expect_whole_calls(function: object, decorator: str) -> None:
    """Raises TypeError for coroutines and generators: a call returns immediately, and their code runs later, in pieces."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(runs_in_pieces(function) for runs_in_pieces in kinds):
        raise TypeError(
            f"{function!r} is a coroutine or a generator, and other code runs between its parts: "
            f"use {decorator} in a with statement without await or yield"
        )
