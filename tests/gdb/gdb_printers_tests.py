# SPDX-License-Identifier: Apache-2.0

"""gdb_printers_tests.py PROGRAM PRINTERS LOADER: stops PROGRAM under gdb, where LOADER, a script of gdb, has loaded PRINTERS, and compares
what they say with what the program says.

Ends with status 77 if there is no gdb, or it cannot run programs here.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PRINTED = ("view", "default_stream", "device", "buffer", "roomy", "moved", "vector", "scalar", "pool", "arena", "elastic")


def run_gdb(gdb, program, loader, said):
    commands = ["set debuginfod enabled off", "set disable-randomization off", "set width 0", f"source {loader}"]
    commands += ["break look_at_the_caller", f"run > {said}", "up"]
    for name in PRINTED:
        commands += [f"echo \\n= {name}=", f"output {name}"]
    commands += ["echo \\n= end\\n", "kill"]
    arguments = [argument for command in commands for argument in ("-ex", command)]
    done = subprocess.run([gdb, "-nx", "-batch", *arguments, program], capture_output=True, text=True, timeout=300, check=False)
    return done.stdout, done.stderr


def size_text(printers, count):
    """The function of the printers' file, which can be loaded only inside gdb."""
    with open(printers, encoding="utf-8") as file:
        source = file.read()
    wanted = re.search(r"^def size_text.*?(?=^\S)", source, re.MULTILINE | re.DOTALL).group(0)
    scope = {}
    exec(wanted, scope)  # noqa: S102
    return scope["size_text"](count)


class PrintersTest(unittest.TestCase):
    printed = {}  # by the printers
    said = {}  # by the program

    def test_stream_view_has_the_handle(self):
        self.assertEqual(self.printed["view"], f"rmm::cuda_stream_view: stream {self.said['stream'][0]}")

    def test_default_stream_is_named(self):
        self.assertEqual(self.printed["default_stream"], "rmm::cuda_stream_view: stream default")

    def test_device(self):
        self.assertEqual(self.printed["device"], "rmm::cuda_device_id: device 3")

    def test_buffer_has_size_address_stream_and_device(self):
        address, stream = self.said["buffer"][0], self.said["stream"][0]
        self.assertEqual(self.printed["buffer"], f"rmm::device_buffer: 1000 bytes at {address}, stream {stream}, device 0")

    def test_buffer_with_more_capacity(self):
        self.assertRegex(self.printed["roomy"], r"^rmm::device_buffer: 10 bytes with room for 1000 at ")

    def test_buffer_without_memory(self):
        self.assertEqual(self.printed["moved"], "rmm::device_buffer: no memory, stream default")

    def test_vector_counts_elements(self):
        address, stream = self.said["vector"][0], self.said["stream"][0]
        self.assertEqual(
            self.printed["vector"],
            f"rmm::device_uvector<double>: 20 elements of 8 bytes at {address}, stream {stream}, device 0",
        )

    def test_scalar(self):
        address, stream = self.said["scalar"][0], self.said["stream"][0]
        self.assertEqual(
            self.printed["scalar"], f"rmm::device_scalar<int>: 4 bytes at {address}, stream {stream}, device 0"
        )

    def check_figures(self, name, kind):
        counts = [int(count) for count in self.said[name]]
        self.assertTrue(all(counts), "a figure that is 0 tests nothing")
        live, free, cached, reserved = (size_text(self.printers, count) for count in counts)
        self.assertEqual(
            self.printed[name], f"rmm::mr::{kind}: live {live}, free {free} ({cached} of it cached), reserved {reserved}"
        )

    def test_pool(self):
        self.check_figures("pool", "pool_memory_resource<rmm::mr::cuda_memory_resource>")

    def test_arena(self):
        self.check_figures("arena", "arena_memory_resource<rmm::mr::cuda_memory_resource>")

    def test_elastic_pool_with_what_can_be_paused(self):
        self.check_figures("elastic", "elastic_pool_memory_resource")


def main():
    program, printers, loader = sys.argv[1:4]
    gdb = shutil.which("gdb")
    if gdb is None:
        print("Skipped: there is no gdb")
        return 77
    with tempfile.NamedTemporaryFile("r") as said:
        output, errors = run_gdb(gdb, program, loader, said.name)
        lines = said.read().splitlines()
    if "\n= end" not in output or "look_at_the_caller" not in output:
        print(output + errors)
        if "ptrace" in errors or "Python scripting is not supported" in errors:
            print("Skipped: gdb cannot run programs, or Python, here")
            return 77
        return 1
    PrintersTest.printers = printers
    PrintersTest.printed = dict(re.findall(r"^= (\w+)=(.*)$", output, re.MULTILINE))
    PrintersTest.said = {words[0]: words[1:] for words in (line.split() for line in lines) if words}
    print(output[output.index("\n= ") : output.index("\n= end")])
    return 0 if unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
