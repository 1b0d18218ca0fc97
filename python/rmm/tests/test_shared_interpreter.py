# SPDX-License-Identifier: Apache-2.0
"""Programs that share an interpreter: each ends as if it had one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Each program says which one of its interpreter it is.
begin = "import os, sys; sys.number = getattr(sys, 'number', 0) + 1; print(sys.number, flush=True)\n"
texts = {
    "changes much": """
import rmm, warnings
os.environ["CHANGED"] = "yes"
os.chdir("/")
sys.argv.append("changed")
sys.path.clear()
warnings.simplefilter("error")
rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB")
kept = rmm.DeviceBuffer(size=1000)
changed = None
""",
    "finds nothing changed": """
import rmm, warnings
assert "CHANGED" not in os.environ and "changed" not in globals() and __name__ == "__main__"
assert os.path.basename(os.getcwd()) == "1" and sys.argv == ["-c"] and sys.path[0] == ""
warnings.warn("nothing")
assert repr(rmm.mr.get_current_device_resource()) == "CudaMemoryResource()"
""",
    "raises": "raise ValueError('on purpose')",
    "writes by processes": "os.system('echo output; echo errors >&2')",
    "leaves a thread": "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "exits": "os._exit(3)",
    "aborts": "os.abort()",
    "ends early": "sys.exit()",
    "is after them": "pass",
    "fails at exit": "import atexit; atexit.register(os._exit, 5)",
}


def test_programs_end_as_if_they_were_alone(programs: Any, tmp_path: Path) -> None:
    arguments = {name: ["-W", "ignore", "-c", begin + text] for name, text in texts.items()}
    results = programs.start_together(arguments, tmp_path, {})()
    ends = {name: (done.returncode, *done.stdout.split()) for name, done in results.items()}
    assert ends == {
        "changes much": (0, "1"),
        "finds nothing changed": (0, "2"),
        "raises": (1, "3"),
        "writes by processes": (0, "1", "output"),
        "leaves a thread": (0, "2", "late"),
        "exits": (3, "3"),
        "aborts": (-6, "1"),
        "ends early": (0, "1"),
        "is after them": (0, "1"),
        "fails at exit": (5, "2"),
    }, results
    assert results["raises"].stderr.endswith("ValueError: on purpose\n")
    assert results["writes by processes"].stderr == "errors\n"
