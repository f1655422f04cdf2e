"""``make demo``: it says what it does, leaves a model and a page, and the commands that it prints work as printed."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import onnx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's folder and what it said; j2o is what is on the path, as after an installation."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "j2o").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m jax2onnx "$@"\n')
    (folder / "j2o").chmod(0o755)
    shutil.copytree(ROOT / "examples", folder / "examples")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "examples/demo.py", "--j2o", "./j2o"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_steps_come_with_the_time_that_has_passed(demo):
    steps = re.findall(r"^\[ *([\d.]+) s\] (.+)$", demo[1], re.M)
    times = [float(time) for time, _ in steps]
    assert times == sorted(times) and len(steps) >= 5 and steps[-1][1] == "done"


def test_it_leaves_a_model_and_a_page(demo):
    folder, said = demo
    onnx.checker.check_model(onnx.load(folder / "demo" / "model.onnx"), full_check=True)
    page = (folder / "demo" / "report.html").read_text()
    assert "def normalise" in page, "the page holds the source"
    assert (folder / "demo" / "report.html").as_uri() in said


def test_the_commands_it_prints_work_as_printed(demo):
    folder, said = demo
    commands = [line.strip() for line in said.split("Now try:\n")[1].splitlines()]
    assert len(commands) == 3
    for command in commands:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stdout
