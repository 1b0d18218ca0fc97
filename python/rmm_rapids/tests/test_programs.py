# SPDX-License-Identifier: Apache-2.0
"""Tests the comparison on RAPIDS' programs without RAPIDS' libraries and without a GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def programs() -> ModuleType:
    path = Path(__file__).parent.parent / "benchmarks" / "rapids_programs.py"
    spec = importlib.util.spec_from_file_location("rapids_programs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rapids_programs"] = module
    spec.loader.exec_module(module)
    return module


def test_reads_its_arguments(programs: ModuleType) -> None:
    options = programs.arguments(["bound", "--library", "raft", "cudf", "--limit", "0.5"])
    assert (options.what, options.library, options.limit) == ("bound", ["raft", "cudf"], 0.5)
    with pytest.raises(SystemExit):
        programs.arguments(["bound", "--library", "another"])


def refuses_below(bound: int, asked: list[int]) -> Callable[[int], str]:
    def failure_of(most: int) -> str:
        asked.append(most)
        return "" if most >= bound else f"no {bound} in {most}"

    return failure_of


@pytest.mark.parametrize("bound", [760, 1001, 1010, 1024, 5000, 9999])
def test_finds_the_smallest_sufficient_memory(programs: ModuleType, bound: int) -> None:
    asked: list[int] = []
    found, failure = programs.least_enough(refuses_below(bound, asked), 1000, 10_000, 10)
    assert found == -(-bound // 10) * 10
    assert failure in ("", f"no {bound} in {found - 10}")
    assert len(asked) < 20


def test_says_when_the_limit_is_not_enough(programs: ModuleType) -> None:
    assert programs.least_enough(refuses_below(501, []), 400, 500, 10) == (None, "no 501 in 500")


def test_compares_results(programs: ModuleType) -> None:
    ones = np.ones(4)
    assert programs.compare("5 rows", "5 rows") == "equal"
    assert programs.compare("5 rows", "6 rows") == "DIFFERENT"
    assert programs.compare((ones, ones), (ones, ones.copy())) == "equal"
    assert programs.compare((ones, ones), (ones, ones * (1 + 1e-9))) == "differ by at most 1.0e-09 of a value"
    assert programs.compare(np.arange(4), np.array([0, 1, 2, 4])) == "2.5e-01 of the elements differ"
    assert programs.compare(ones, np.ones(5)) == "DIFFERENT"
