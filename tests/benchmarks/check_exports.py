# SPDX-License-Identifier: Apache-2.0
"""Checks what `rmm-trace export` wrote against what the programs that open it need.

    check_exports.py torch FILE     a snapshot, for PyTorch's viewer (torch/cuda/_memory_viz.py and MemoryViz.js)
    check_exports.py perfetto FILE  JSON of the trace event format, for ui.perfetto.dev and chrome://tracing

Ends with status 1 and the first mistake.
"""

import json
import pickle
import pickletools
import sys
from pathlib import Path

# What the viewer's own reader of pickles knows, of those that are likely.
KNOWN_OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE",
    "BINUNICODE", "NEWTRUE", "NEWFALSE", "NONE", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
}  # fmt: skip


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(each) for each in what))


def expect_members(entry, **types):
    for name, kind in types.items():
        expect(type(entry.get(name)) is kind, f"'{name}' is no {kind.__name__} in", entry)
    for frame in entry.get("frames", []):
        expect(set(frame) == {"filename", "line", "name"}, "a frame has", frame)


def check_segment(segment):
    expect_members(
        segment, device=int, address=int, total_size=int, allocated_size=int, active_size=int, requested_size=int, stream=int,
        segment_type=str, segment_pool_id=tuple, is_expandable=bool, frames=list, blocks=list,
    )  # fmt: skip
    at = segment["address"]
    for block in segment["blocks"]:
        expect_members(block, address=int, size=int, requested_size=int, state=str, frames=list)
        expect(block["address"] == at and block["size"] > 0, "blocks do not follow each other at", hex(at))
        expect(block["requested_size"] <= block["size"], "more was asked for than there is in", block)
        at += block["size"]
    expect(at == segment["address"] + segment["total_size"], "blocks do not fill the segment", segment["address"])


def check_history(history):
    """Returns what is live at the end."""
    segments, live, freeing, time = {}, {}, {}, 0
    for entry in history:
        action = entry["action"]
        expect_members(entry, action=str, size=int, stream=int, time_us=int, frames=list)
        expect(entry["time_us"] >= time, "time goes back at", entry)
        time = entry["time_us"]
        if action == "oom":
            expect_members(entry, device_free=int)
            continue
        expect_members(entry, addr=int)
        at, size = entry["addr"], entry["size"]
        if action == "segment_alloc":
            expect(at not in segments, "a segment is there already:", entry)
            segments[at] = size
        elif action == "segment_free":
            expect(segments.pop(at, None) == size, "there is no such segment:", entry)
        elif action == "alloc":
            expect(size > 0 and at not in live, "is allocated twice:", entry)
            expect(any(begin <= at < begin + bytes for begin, bytes in segments.items()), "lies in no segment:", entry)
            live[at] = size
        elif action == "free_requested":
            expect(live.pop(at, None) == size, "frees what is not live:", entry)
            freeing[at] = size
        elif action == "free_completed":
            expect(freeing.pop(at, None) == size, "completes no free:", entry)
        else:
            raise AssertionError(f"unknown action '{action}'")
    expect(not freeing, "frees that are not completed:", freeing)
    return live


def check_torch(path):
    content = path.read_bytes()
    unknown = {opcode.name for opcode, _, _ in pickletools.genops(content)} - KNOWN_OPCODES
    expect(not unknown, "the viewer does not read", unknown)
    snapshot = pickle.loads(content)
    expect_members(snapshot, segments=list, device_traces=list, allocator_settings=dict, external_annotations=list)
    for segment in snapshot["segments"]:
        check_segment(segment)
    for device, history in enumerate(snapshot["device_traces"]):
        live = sum(check_history(history).values())
        allocated = sum(each["allocated_size"] for each in snapshot["segments"] if each["device"] == device)
        expect(live == allocated, "history leaves", live, "bytes, segments have", allocated)


def check_perfetto(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    expect(document["displayTimeUnit"] in {"ms", "ns"}, "displayTimeUnit")
    time, slices, live, named = 0, {}, {}, set()
    for event in document["traceEvents"]:
        expect_members(event, name=str, ph=str, pid=int, tid=int)
        phase, process = event["ph"], event["pid"]
        if phase == "M":
            expect(event["name"] == "process_name" and type(event["args"]["name"]) is str, "metadata", event)
            named.add(process)
            continue
        expect(process in named, "a process without a name:", event)
        expect_members(event, ts=float)
        expect(event["ts"] >= time, "time goes back at", event)
        time = event["ts"]
        if phase == "b":
            expect_members(event, cat=str, id=int, args=dict)
            expect((event["cat"], event["id"]) not in slices, "begins twice:", event)
            slices[event["cat"], event["id"]] = event
            live[process] = live.get(process, 0) + event["args"]["bytes"]
        elif phase == "e":
            begin = slices.pop((event.get("cat"), event.get("id")), None)
            expect(begin is not None, "ends what has not begun:", event)
            expect(all(begin[each] == event[each] for each in ("name", "pid", "tid")), "is another slice:", event)
            live[process] -= begin["args"]["bytes"]
        elif phase == "C":
            expect(event["args"] == {"bytes": live[process]}, "live are", live[process], "not", event)
        elif phase == "i":
            expect(event["s"] in {"g", "p", "t"}, "scope of", event)
        else:
            raise AssertionError(f"unknown phase '{phase}'")


if __name__ == "__main__":
    try:
        {"torch": check_torch, "perfetto": check_perfetto}[sys.argv[1]](Path(sys.argv[2]))
    except AssertionError as mistake:
        sys.exit(f"{sys.argv[2]}: {mistake}")
