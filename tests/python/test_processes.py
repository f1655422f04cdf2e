"""Several processes of jax.distributed that have parts of the weights write one model together."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("processes.py")
ROOT = PROGRAM.parent.parent.parent


def outcomes(folder: pathlib.Path, count: int, case: str = "plain", threshold: int = 1024) -> list[tuple[int, str]]:
    """Of each process its exit code and what it printed last."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX2ONNX_PROCESS_TIMEOUT": "4",
        "JAX2ONNX_EXTERNAL_DATA_THRESHOLD": str(threshold),
    }
    folder.mkdir(exist_ok=True)
    started = []
    for process in range(count):
        command = [sys.executable, str(PROGRAM), str(process), str(count), str(port), str(folder), case]
        run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(run)
    results = []
    for run in started:
        try:
            output, errors = run.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            for other in started:
                other.kill()
            raise
        results.append((run.returncode, (output.splitlines() or errors.splitlines() or [""])[-1]))
    return results


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("alone")
    assert outcomes(folder, 1) == [(0, "good")]
    assert set(contents(folder)) == {"model.onnx", "model.onnx.data"}
    return folder


def test_two_processes_write_the_bytes_of_one(tmp_path, alone) -> None:
    assert outcomes(tmp_path, 2) == [(0, "good")] * 2
    assert contents(tmp_path) == contents(alone)


@pytest.mark.full
@pytest.mark.parametrize("case", ["plain", "twice"])
@pytest.mark.parametrize("threshold", [0, 1024])
@pytest.mark.parametrize("count", [2, 4])
def test_any_number_of_processes_any_files_again_and_again(tmp_path, count, threshold, case) -> None:
    assert outcomes(tmp_path / "one", 1, case, threshold) == [(0, "good")]
    assert outcomes(tmp_path / "several", count, case, threshold) == [(0, "good")] * count
    assert contents(tmp_path / "several") == contents(tmp_path / "one")


def check_failure(folder: pathlib.Path, alone: pathlib.Path, count: int, case: str) -> list[tuple[int, str]]:
    """The old model stays as it is; who lives ends with an error."""
    shutil.copytree(alone, folder, dirs_exist_ok=True)
    results = outcomes(folder, count, case)
    assert all(code != 0 for code, _ in results)
    left = contents(folder)
    if case != "killed 0":  # what it leaves, the next export removes
        assert set(left) == {"model.onnx", "model.onnx.data"}
    assert {name: left[name] for name in contents(alone)} == contents(alone)
    return results


def test_a_process_that_dies_ends_the_export_of_the_others(tmp_path, alone) -> None:
    results = check_failure(tmp_path, alone, 2, "killed 1")
    assert results[0] == (3, "ProcessError: process 1 has not been heard of for 4 seconds")


@pytest.mark.full
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("case", ["killed 0", "killed 1", "full 0", "full 1"])
def test_whatever_happens_to_one_the_old_model_stays(tmp_path, alone, count, case) -> None:
    results = check_failure(tmp_path, alone, count, case)
    who = int(case[-1])
    if case.startswith("full"):
        assert results[who] == (3, "OSError: the disk is full")
        others = [result for process, result in enumerate(results) if process != who]
        said = [f"ProcessError: process {process} has failed: " for process in (0, who)]
        assert all(code == 3 and any(text.startswith(part) for part in said) for code, text in others)
        assert all("the disk is full" in text for _, text in others)
