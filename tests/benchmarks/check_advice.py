# SPDX-License-Identifier: Apache-2.0
"""Checks what `rmm-trace advise` says of a trace of two devices.

Usage: check_advice.py RMM_TRACE two_devices.csv
"""

from __future__ import annotations

import json
import subprocess
import sys

MIB = 1 << 20


def advise(*arguments: str) -> tuple[int, dict]:
    done = subprocess.run(
        [*sys.argv[1:2], "advise", sys.argv[2], *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout) if "--json" in arguments else {"text": done.stdout}


def check_that_each_device_has_its_own() -> None:
    status, advice = advise("--json")
    assert status == 0
    assert [each["device"] for each in advice["devices"]] == [0, 1]
    for each, peak in zip(advice["devices"], (100 * MIB, 40 * MIB), strict=True):
        assert all(tried["peak_live"] == peak for tried in each["tried"]), each
        best = each["recommendation"]
        assert best in each["tried"]
        assert best["completed"]
        assert peak <= best["peak_reserved"] <= peak + peak // 10, "sized for the device, not for all"
        assert f"for {peak // MIB}.00 MiB in use" in each["why"]


def check_that_one_serves_all() -> None:
    _, advice = advise("--json")
    together = advice["recommendation"]
    largest = advice["devices"][0]["recommendation"]
    assert together["configuration"] == largest["configuration"]
    assert together["completed"]
    assert together["peak_live"] == 140 * MIB, "replayed on both"
    assert advice["why"].startswith("On each device, the configuration recommended for device 0:")


def check_that_failures_name_events_of_the_whole_trace() -> None:
    status, advice = advise("--json", "--memory", "30MiB", "--what-if", "pool")
    assert status == 1
    assert advice["recommendation"] is None
    assert [each["tried"][0]["failed_event"] for each in advice["devices"]] == [0, 2]


def check_that_one_device_is_enough_to_have_none_for_all() -> None:
    status, advice = advise("--json", "--memory", "64MiB", "--what-if", "pool")
    assert status == 1
    assert advice["devices"][0]["recommendation"] is None
    assert advice["devices"][1]["recommendation"]["completed"]
    assert advice["recommendation"] is None
    assert not advice["tried"][0]["completed"]


def check_the_text() -> None:
    _, advice = advise()
    text = advice["text"]
    assert text.count("RMM_RESOURCE=") == 1, "a program has one"
    assert text.index("device 0\n") < text.index('device 0: "') < text.index("device 1\n") < text.index("all devices\n")


if __name__ == "__main__":
    check_that_each_device_has_its_own()
    check_that_one_serves_all()
    check_that_failures_name_events_of_the_whole_trace()
    check_that_one_device_is_enough_to_have_none_for_all()
    check_the_text()
