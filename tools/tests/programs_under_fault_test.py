# SPDX-License-Identifier: Apache-2.0
"""Tests of tests/reliability/programs_under_fault.py on reports in the form of the simulator's."""

from __future__ import annotations

import sys
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "reliability"))

from programs_under_fault import End, Fault, problem_of  # noqa: E402

UNKNOWN_DEVICE = "misuse: cudaGetDeviceProperties: there is no device -1; there are 2 (cudaErrorInvalidDevice)"
OTHER_DEVICE = "misuse: cudaMemsetAsync (called from main+0x1) uses 0x10: work of device 1 has no access to memory of device 0, 8 bytes"
UNORDERED = "race: cudaMemsetAsync on stream 0x20 and cudaMemcpyAsync on stream 0x30 are not ordered"


def problem(function: str, *violations: str) -> str | None:
    """What is wrong with a run that ended with an error after a failure of `function`, and in which the simulator found `violations`."""
    found = "\n".join(["cudasim: violations", *(f"  {line}" for line in violations)]) if violations else "cudasim: violations: none"
    end = End(1, "CUDA error: cudaErrorUnknown", f"cudasim: leaks: none\n{found}\n")
    return problem_of(end, Fault(function, 1), Counter())


class ProgramsUnderFault(unittest.TestCase):
    def test_calls_for_a_wrong_device_are_excused(self) -> None:
        self.assertIsNone(problem("cudaGetDevice", UNKNOWN_DEVICE))
        self.assertIsNone(problem("cudaSetDevice", OTHER_DEVICE, OTHER_DEVICE))
        self.assertIsNone(problem("cudaSetDevice"))

    def test_no_other_violation_is_excused(self) -> None:
        for function, violations in [
            ("cudaGetDevice", [UNORDERED]),
            ("cudaSetDevice", [UNORDERED]),
            ("cudaSetDevice", [OTHER_DEVICE, UNORDERED]),
            ("cudaGetDevice", [OTHER_DEVICE]),
            ("cudaSetDevice", [UNKNOWN_DEVICE]),
            ("cudaMalloc", [OTHER_DEVICE]),
        ]:
            with self.subTest(function=function, violations=violations):
                self.assertIsNotNone(problem(function, *violations))


if __name__ == "__main__":
    unittest.main()
