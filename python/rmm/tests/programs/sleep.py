# SPDX-License-Identifier: Apache-2.0
"""Pauses and resumes memory: with contents in pinned memory, in pageable memory, and without contents."""

from __future__ import annotations

import rmm
import rmm.sleep


def use() -> None:
    sleeper = rmm.sleep.Sleeper(chunk_size="2MiB")
    kept = []
    kinds: tuple[tuple[str, rmm.sleep.Keep], ...] = (("weights", "pinned"), ("optimizer", "pageable"), ("cache", False))
    for tag, keep in kinds:
        with sleeper.region(tag, keep=keep) as pool:
            kept.append(rmm.DeviceBuffer(size=3 << 20, mr=pool))
        kept[-1].copy_from_host(tag.encode())
    for _ in range(2):
        sleeper.pause()
        sleeper.resume("cache")
        sleeper.resume()
    assert kept[0].tobytes()[:7] == b"weights"
    assert kept[1].tobytes()[:9] == b"optimizer"
    kept.clear()
    sleeper.release_unused()


try:
    use()
finally:
    rmm.reinitialize()
