# SPDX-License-Identifier: Apache-2.0
"""`python -m rmm`, and the script `rmm`"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest

import rmm
from rmm.__main__ import main
from rmm._build_facts import cuda_backend


def test_info_names_devices_memory_and_resources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"rmm {rmm.__version__}, ")
    for device in range(rmm._cuda.gpu.getDeviceCount()):
        assert f"device {device}: {rmm._cuda.gpu.deviceGetName(device)}" in text
    assert "async pool         yes" in text
    assert f"of {rmm.mr.available_device_memory()[1] / (1 << 20):,.0f} MiB" in text


def test_demo_shows_a_line_for_each_resource(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--steps", "300"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "300 buffers" in lines[0]
    rows = {line.split()[0]: line for line in lines[3:]}
    assert set(rows) >= {"cuda", "pool", "arena"}
    taken = {name: float(rows[name].split()[-2]) for name in ("cuda", "pool", "arena")}
    if cuda_backend == "sim":  # on a device others may take and give back memory too
        assert taken["arena"] == 256.0
        assert 0.0 < taken["cuda"] <= taken["pool"] < taken["arena"]


@pytest.mark.parametrize("command", ["info", "demo"])
def test_what_the_runtime_objects_to_is_said_in_a_line(command: str) -> None:
    """With a device hidden by its variable, for instance."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "CUDASIM_DEVICES": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "rmm", command], env=environment, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "cudaErrorNoDevice" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [[], ["no-such-command"], ["demo", "--steps", "0"], ["demo", "--steps", "-5"], ["demo", "--steps", "x"]],
)
def test_other_commands_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m rmm" in capsys.readouterr().err


@pytest.fixture
def script() -> str:
    """The file of the script `rmm` that the installation of the package has made."""
    files = importlib.metadata.files("rmm-engine") or []
    (script,) = [file for file in files if file.name == "rmm" and file.parent.name == "bin"]
    return str(script.locate())


def execute(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_the_script_does_what_the_module_does(script: str) -> None:
    of_script, of_module = execute(script, "info"), execute(sys.executable, "-m", "rmm", "info")
    assert of_script.returncode == of_module.returncode == 0
    assert of_script.stdout.splitlines()[0] == of_module.stdout.splitlines()[0]
    assert of_script.stdout.startswith(f"rmm {rmm.__version__}, ")


def test_the_script_names_itself_and_returns_the_status(script: str) -> None:
    done = execute(script, "no-such-command")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: rmm ")
    assert execute(script, "report", "/no/such/trace").returncode != 0


def test_who_stops_to_read_the_output_of_the_script_is_no_error(script: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        done = subprocess.run([script, "info"], check=False, stdout=output, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
