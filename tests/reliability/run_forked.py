# SPDX-License-Identifier: Apache-2.0
"""Runs a Python program once for each fault, in a forked child: `run_forked.py PROGRAM FOLDER SECONDS FAULT...`

This process first imports the modules that the program imports, because that takes most of the time. A fault is the text for CUDASIM_FAULT,
or "none". Prints the status (negative for a signal) and the id of each child. The child's output is in FOLDER/output.ID.
"""

import ast
import os
import runpy
import signal
import sys
import warnings
from importlib import import_module
from pathlib import Path

program, folder, seconds, *faults = sys.argv[1:]
warnings.simplefilter("ignore")
for statement in ast.parse(Path(program).read_text()).body:
    if isinstance(statement, ast.Import):
        for name in statement.names:
            import_module(name.name)
    elif isinstance(statement, ast.ImportFrom) and statement.module:
        import_module(statement.module)

for fault in faults:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        output = os.open(f"{folder}/output.{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.alarm(int(seconds))
        if fault != "none":
            os.environ["CUDASIM_FAULT"] = fault
        sys.argv = [program]
        runpy.run_path(program, run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), child)
