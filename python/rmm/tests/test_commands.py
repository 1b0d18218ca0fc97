# SPDX-License-Identifier: Apache-2.0
"""`python -m rmm`, and the script `rmm`"""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import rmm
from rmm import _ucx
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


@pytest.mark.parametrize("arguments", [["info"], ["doctor", "--seconds", "0"]])
@pytest.mark.parametrize("has_it", [True, False])
def test_managed_memory_is_an_attribute_of_the_device(
    arguments: list[str], has_it: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = rmm._cuda.gpu
    properties = gpu.getDeviceProperties
    monkeypatch.setattr(
        gpu,
        "getDeviceProperties",
        lambda device: SimpleNamespace(**{**vars(properties(device)), "managedMemory": has_it}),
    )
    main(arguments)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  managed"))
    assert line.split()[-1] == ("yes" if has_it else "no")


@pytest.mark.parametrize("arguments", [["info"], ["doctor", "--seconds", "0"]])
def test_a_missing_driver_is_none(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rmm._cuda.gpu, "driverGetVersion", lambda: 0)
    main(arguments)
    assert "driver for CUDA none\n" in capsys.readouterr().out


def program_of(test: pytest.Function) -> list[str]:
    """`python -m rmm` with a test's parameter."""
    (arguments,) = test.callspec.params.values()
    return ["-m", "rmm", *([arguments] if isinstance(arguments, str) else arguments)]  # type: ignore[misc]


without_devices = {"CUDA_VISIBLE_DEVICES": "", "CUDASIM_DEVICES": "0"}


@pytest.mark.parametrize("arguments", [["info"], ["doctor", "--seconds", "0.01"]])
@pytest.mark.program(
    environment={
        "CUDASIM_FAULT": "cudaMemPoolCreate:1:cudaErrorNotSupported:1000,cudaMalloc:1:cudaErrorMemoryAllocation:1000"
    }
)
def test_reasons_have_no_place_in_the_source(arguments: list[str], done: subprocess.CompletedProcess[str]) -> None:
    """The faults make each call for the driver's pools fail, and each allocation that is measured."""
    assert done.returncode == 0, done.stderr
    assert ".hpp" not in done.stdout
    if cuda_backend == "sim":
        assert "    shared by fabric no: cudaErrorNotSupported operation not supported\n" in done.stdout
        if arguments[0] == "doctor":
            assert "    for adapters     yes\n" in done.stdout


def test_demo_shows_a_line_for_each_resource(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--steps", "300"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "300 buffers" in lines[0]
    rows = {line.split()[0]: line for line in lines[3:]}
    assert set(rows) >= {"cuda", "pool", "arena"}
    taken = {name: float(rows[name].split()[-2]) for name in ("cuda", "pool", "arena")}
    if cuda_backend == "sim":  # on a GPU, other processes allocate and free, too
        assert taken["arena"] == 256.0
        assert 0.0 < taken["cuda"] <= taken["pool"] < taken["arena"]


@pytest.mark.parametrize("command", ["info", "demo"])
@pytest.mark.program(environment=without_devices)
def test_an_error_of_the_runtime_is_printed_in_one_line(command: str, done: subprocess.CompletedProcess[str]) -> None:
    """For example, the variable CUDA_VISIBLE_DEVICES hides a device."""
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


# The path of the script `rmm` that installing the package has made, as a list of one.
scripts = [
    str(file.locate())
    for file in importlib.metadata.files("rmm-engine") or []
    if file.name == "rmm" and file.parent.name == "bin"
]
begin = f"""
    import os, subprocess, sys
    (script,) = {scripts!r}

    def execute(*command):
        return subprocess.run(command, capture_output=True, text=True)
"""


@pytest.mark.program("""
    of_script, of_module = execute(script, "info"), execute(sys.executable, "-m", "rmm", "info")
    assert of_script.returncode == of_module.returncode == 0
    assert of_script.stdout.splitlines()[0] == of_module.stdout.splitlines()[0]
    print(of_script.stdout)
""")
def test_the_script_does_what_the_module_does(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"rmm {rmm.__version__}, ")


@pytest.mark.program("""
    done = execute(script, "no-such-command")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: rmm ")
    assert execute(script, "report", "/no/such/trace").returncode != 0
""")
def test_the_script_names_itself_and_returns_the_status(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program("""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        done = subprocess.run([script, "info"], stdout=output, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b""), done
""")
def test_a_closed_output_pipe_is_no_error(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


@pytest.mark.program(
    """
    import rmm
    from rmm.__main__ import main

    device = rmm._cuda.gpu.getDevice()
    assert main(["doctor", "--seconds", "0.02"]) == 0
    assert rmm._cuda.gpu.getDevice() == device
    """,
    begin="",
    environment={
        "RMM_TRACE_FLUSH_MS": "7",
        "CUDA_LAUNCH_BLOCKING": "1",
        "CUDASIM_REPORT": "-",  # the simulator makes a leak a failure
    },
    takes_long=True,
)
def test_the_doctor_describes_measures_and_advises(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    text = done.stdout
    for number in range(rmm._cuda.gpu.getDeviceCount()):
        assert f"device {number}: {rmm._cuda.gpu.deviceGetName(number)}" in text
    assert "  driver's pools     yes\n" in text
    assert "  RMM_TRACE_FLUSH_MS=7\n" in text
    rows = text[text.index("ns a buffer") : text.index("\nadvice")].splitlines()[1:]
    assert [row.split()[0] for row in rows if row] == [
        "cuda",
        "cuda_async",
        "cached,upstream=cuda_async",
        "pool",
        "elastic",
    ]
    assert all(float(number.replace(",", "")) > 0 for row in rows if row for number in row.split()[-2:])
    advice = text[text.index("\nadvice") :]
    assert "unset CUDA_LAUNCH_BLOCKING" in advice
    assert 'export RMM_RESOURCE="recommended"' in advice


def test_the_doctor_has_no_advice_where_a_pool_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB")
    assert main(["doctor", "--seconds", "0"]) == 0
    text = capsys.readouterr().out
    assert "PoolMemoryResource" in text
    assert "ns a buffer" not in text
    assert "RMM_RESOURCE" not in text[text.index("\nadvice") :]


def advice_of_the_doctor(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["doctor", "--seconds", "0"]) == 0
    return capsys.readouterr().out.partition("\nadvice")[2]


@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("elastic", "elastic"),
        ("elastic,max=50%,statistics", "elastic"),
        ("recommended", "elastic"),
        ("cuda_async", "cuda_async"),
        ("cuda_async_view", "cuda_async_view"),
        ("cached,initial=1MiB", "cuda_async"),
        ('binning,upstream=(pool,initial=1MiB,upstream="cuda_async")', "cuda_async"),
        ("cached,upstream=cuda", ""),
        ("pool,upstream=(cuda)", ""),
        ("managed", ""),
    ],
)
def test_the_doctor_names_memory_that_ucx_sends_through_the_host(
    text: str, named: str, is_installed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(_ucx.OPTION, raising=False)
    monkeypatch.setattr(_ucx, "is_installed", lambda: is_installed)
    rmm.mr.set_current_device_resource(rmm.mr.ConfiguredMemoryResource(text))
    advice = advice_of_the_doctor(capsys)
    if named and is_installed:
        assert f"UCX sends memory of {named} through the host" in advice
        assert "\n    export UCX_RNDV_PIPELINE_ERROR_HANDLING=y\n" in advice
        assert "may corrupt data. Memory of 'pool' needs no option" in advice
    else:
        assert "UCX" not in advice


@pytest.mark.parametrize(
    ("value", "is_set"),
    [("y", True), ("Yes", True), ("ON", True), ("1", True), ("n", False), ("0", False), ("true", False), ("", False)],
)
def test_the_doctor_says_nothing_of_ucx_if_its_option_is_set(
    value: str, is_set: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """UCX 1.21 takes these four words for yes, in any case, and refuses "true"."""
    monkeypatch.setenv("UCX_RNDV_PIPELINE_ERROR_HANDLING", value)
    monkeypatch.setattr(_ucx, "is_installed", lambda: True)
    rmm.mr.set_current_device_resource(rmm.mr.ElasticPoolMemoryResource())
    assert ("UCX" in advice_of_the_doctor(capsys)) == (not is_set)


def test_ucx_is_found_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ucxx").mkdir()
    (tmp_path / "ucxx" / "__init__.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    assert _ucx.is_installed()


def test_the_doctor_looks_below_adaptors_and_pools(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(_ucx.OPTION, raising=False)
    monkeypatch.setattr(_ucx, "is_installed", lambda: True)
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaAsyncMemoryResource())
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(pool))
    assert "UCX sends memory of cuda_async" in advice_of_the_doctor(capsys)


def test_the_doctor_does_not_recommend_a_pool_alone_that_ucx_sends_through_the_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(_ucx.OPTION, raising=False)
    monkeypatch.setattr(_ucx, "is_installed", lambda: True)
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    advice = advice_of_the_doctor(capsys)
    assert advice.index('export RMM_RESOURCE="recommended"') < advice.index("UCX sends memory of elastic")


@pytest.mark.program(
    "import rmm; print(rmm.mr.get_current_device_resource()); rmm.DeviceBuffer(size=1)",
    begin="",
    environment={"RMM_RESOURCE": "recommended"},
)
def test_the_advice_of_the_doctor_can_be_pasted(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ConfiguredMemoryResource('recommended')\n"


@pytest.mark.skipif(cuda_backend != "sim", reason="needs a driver that refuses calls when told to")
@pytest.mark.parametrize("arguments", [["doctor", "--seconds", "0"], ["info"]], ids=lambda arguments: arguments[0])
@pytest.mark.program(
    environment={
        "CUDASIM_FAULT": "cuMemCreate:1:cudaErrorNotPermitted:100000,cudaMallocFromPoolAsync:1:cudaErrorNotPermitted:100000"
    }
)
def test_kinds_of_memory_that_the_driver_refuses_are_reported(
    arguments: list[str], done: subprocess.CompletedProcess[str]
) -> None:
    command = arguments[0]
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines() if line.startswith("    shared by")]
    assert len(lines) == rmm._cuda.gpu.getDeviceCount() * (4 if command == "doctor" else 2)
    assert all(reason.startswith("no: ") for *_, reason in lines), done.stdout
    assert "cudaErrorNotPermitted" in lines[-2][3]
    if command == "doctor":
        assert lines[0][2] == "fd"
        assert lines[0][3].startswith(
            "no: The driver refused to create shareable memory (file descriptors): CUDA error"
        )


@pytest.mark.program(arguments=["-m", "rmm", "doctor"], environment=without_devices)
def test_the_doctor_names_a_missing_device(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, done.stderr
    assert "No CUDA device can be used" in done.stdout


@pytest.mark.parametrize("seconds", ["-1", "x", "inf", "nan"])
def test_the_doctor_refuses_invalid_times(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--seconds", seconds])
    assert "seconds" in capsys.readouterr().err
