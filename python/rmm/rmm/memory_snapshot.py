# SPDX-License-Identifier: Apache-2.0
"""Snapshots: all memory of a pool at one moment. `snapshot()` of a resource returns one.

>>> import rmm
>>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
>>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
>>> now = pool.snapshot()
>>> now["live_bytes"], now["reserved_bytes"]
(1024, 1048576)
>>> now["blocks"][0]["ranges"][-1]["state"]
'cached'
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

__all__ = ["MemorySnapshot"]


class MemorySnapshot(dict[str, Any]):
    """A snapshot of a pool's memory as a dictionary, which notebooks show as a picture. `snapshot()` of a resource returns it.

    `time_ns` is the time in nanoseconds since 1970. Sums in bytes are `live_bytes`, `free_bytes`, `cached_bytes` (the free
    bytes in caches of threads), `graph_bytes` (kept for CUDA graphs), `reserved_bytes` and `largest_free_bytes`.
    `upstream_blocks` and `caches` are numbers, and `fragmentation` is 0 if all free memory is one range.

    `blocks` is a list of the blocks of upstream, by address. Each has `address`, `bytes`, `paused` if its memory was given
    back for a while, and `ranges`. A range has its `offset` in the block, `bytes`, and a `state`: `live`, `free`, `cached`,
    `graph`, or `unmapped` for addresses without memory. If they are known, it also has `stream` (the owner of free memory: the
    number of `cudaStreamGetId` plus 1, or `"legacy"`), `pending` (other streams cannot use the memory yet) and `tag`.

    Parameters
    ----------
    contents : mapping or iterable of pairs, optional
        The entries, as for a dict.
    **more : object
        More entries.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
    >>> pool.snapshot()["live_bytes"]
    1024
    """

    def __init__(self, contents: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any) -> None:
        """Make a snapshot from entries, as `dict` does."""
        super().__init__(contents, **more)

    @classmethod
    def from_json(cls, text: str) -> MemorySnapshot:
        """Make a snapshot from the text of `to_json()`, in Python or C++.

        Parameters
        ----------
        text : str
            The JSON.

        Returns
        -------
        MemorySnapshot
            The snapshot.

        Examples
        --------
        >>> import rmm
        >>> from rmm.memory_snapshot import MemorySnapshot
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> now = pool.snapshot()
        >>> MemorySnapshot.from_json(now.to_json()) == now
        True
        """
        made = cls(json.loads(text))
        for block in made["blocks"]:
            block["address"] = int(block["address"], 16)
        return made

    def to_json(self) -> str:
        """Return the snapshot as JSON, in the format of C++. Addresses are hexadecimal strings.

        Returns
        -------
        str
            The JSON.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> text = pool.snapshot().to_json()
        >>> text.startswith("{")
        True
        """
        blocks = [{**block, "address": hex(block["address"])} for block in self["blocks"]]
        return json.dumps({**self, "blocks": blocks})

    def bytes_by_tag(self) -> dict[str, int]:
        """Return the allocated bytes of each tag, in descending order.

        Returns
        -------
        dict of str to int
            Empty unless the pool tracks tags.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> pool.track_tags()
        >>> with rmm.tag("loader"):
        ...     buffer = rmm.DeviceBuffer(size=1024, mr=pool)
        >>> pool.snapshot().bytes_by_tag()
        {'loader': 1024}
        """
        sums: Counter[str] = Counter()
        for block in self["blocks"]:
            for part in block["ranges"]:
                if "tag" in part:
                    sums[part["tag"]] += part["bytes"]
        return dict(sums.most_common())

    def __repr__(self) -> str:
        return (
            f"<MemorySnapshot: {_sized(self['live_bytes'])} live, {_sized(self['free_bytes'])} free, "
            f"{_sized(self['reserved_bytes'])} reserved in {self['upstream_blocks']} blocks, "
            f"fragmentation {self['fragmentation']:.0%}>"
        )

    def _repr_html_(self) -> str:
        figures = {
            "live": self["live_bytes"],
            "free": self["free_bytes"],
            "largest free piece": self["largest_free_bytes"],
            "reserved": self["reserved_bytes"],
        }
        cells = [f"{name} <b>{_sized(nbytes)}</b>" for name, nbytes in figures.items()]
        cells.append(f"fragmentation <b>{self['fragmentation']:.0%}</b>")
        lines = [" · ".join(cells), _picture(self["blocks"])]
        tags = list(self.bytes_by_tag().items())
        if tags:
            named = [f"{escape(tag)} <b>{_sized(nbytes)}</b>" for tag, nbytes in tags[:_most_tags]]
            more = [f"{len(tags) - _most_tags} more"] if len(tags) > _most_tags else []
            lines.append("tags: " + " · ".join(named + more))
        return '<div style="font-family: sans-serif; font-size: 90%">' + "<br>".join(lines) + "</div>"


_most_tags = 6
_most_blocks = 12
_width = 640  # pixels of the largest block; a cell is one pixel wide
_height = 18
_gap = 4
_colours = {  # distinct on dark and light pages, in print, and with red-green colour blindness
    "live": "#0072b2",
    "cached": "#e69f00",
    "free": "#56b4e9",
    "graph": "#cc79a7",
    "unmapped": "none",
}
_explanations = {
    "live": "allocated",
    "cached": "free, in the cache of a thread",
    "free": "free",
    "graph": "kept for CUDA graphs",
    "unmapped": "addresses without memory",
}


def _sized(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.{0 if size >= 100 else 3}{'f' if size >= 100 else 'g'}} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _picture(blocks: list[dict[str, Any]]) -> str:
    """Returns SVG with a bar for each of the largest blocks, by address."""
    shown = sorted(sorted(blocks, key=lambda block: -block["bytes"])[:_most_blocks], key=lambda block: block["address"])
    longest = max((block["bytes"] for block in shown), default=1)
    parts = []
    states: set[str] = set()
    y = 0
    for block in shown:
        cells = _cells(block, max(1, block["bytes"] * _width // longest))
        states.update(cells)
        first = 0
        for x in range(1, len(cells) + 1):
            if x == len(cells) or cells[x] != cells[first]:
                parts.append(_bar(first, y, x - first, _height, cells[first]))
                first = x
        text = f"{_sized(block['bytes'])} at {block['address']:#x}" + (", paused" if block.get("paused") else "")
        faint = ' stroke-dasharray="3"' if block.get("paused") else ""
        parts.append(
            f'<rect x="0" y="{y}" width="{len(cells)}" height="{_height}" fill="none" stroke="currentColor" '
            f'stroke-opacity="0.4"{faint} pointer-events="all"><title>{text}</title></rect>'
        )
        y += _height + _gap
    if len(blocks) > len(shown):
        parts.append(
            f'<text x="0" y="{y + 12}" fill="currentColor">and {len(blocks) - len(shown)} smaller blocks</text>'
        )
        y += _height
    x = 0
    for state in (each for each in _colours if each in states):
        parts.append(_bar(x, y + 4, 12, 12, state))
        parts.append(f'<text x="{x + 16}" y="{y + 14}" fill="currentColor">{_explanations[state]}</text>')
        x += 32 + 7 * len(_explanations[state])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_width + 2}" height="{y + 20}" '
        f'viewBox="-1 -1 {_width + 2} {y + 20}" style="max-width: 100%; height: auto" font-size="12" role="img" '
        f'aria-label="Where the memory of {len(blocks)} blocks is allocated and free">{"".join(parts)}</svg>'
    )


def _bar(x: int, y: int, width: int, height: int, state: str) -> str:
    outline = ' stroke="currentColor" stroke-opacity="0.4"' if state == "unmapped" else ""
    return (
        f'<rect class="{state}" x="{x}" y="{y}" width="{width}" height="{height}" fill="{_colours[state]}"{outline}/>'
    )


def _cells(block: dict[str, Any], count: int) -> list[str]:
    """Divides a block into `count` equal parts. Returns the most frequent state of each. Gaps between ranges count as live."""
    bytes_of: list[Counter[str]] = [Counter() for _ in range(count)]
    for part in block["ranges"]:
        at, end = part["offset"], part["offset"] + part["bytes"]
        while at < end:
            cell = min(at * count // block["bytes"], count - 1)
            border = end if cell == count - 1 else min(end, -(-(cell + 1) * block["bytes"] // count))
            bytes_of[cell][part["state"]] += border - at
            at = border
    return [max(cell, key=lambda state: cell[state]) if cell else "live" for cell in bytes_of]
