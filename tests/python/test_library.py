"""The C library as others use it: installed, found by pkg-config, linked to the example, and run."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import jax.numpy as jnp
import pytest

from jax2onnx import to_onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """examples/convert_record.c, built against the installed library alone."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    prefix = tmp_path_factory.mktemp("prefix")
    command = [ROOT / "tools" / "install_library.sh", sys.executable, "build/library", prefix]
    subprocess.run(command, cwd=ROOT, check=True)
    text = (prefix / "lib" / "pkgconfig" / "j2o.pc").read_text()
    assert f"prefix={prefix}" in text and "-lj2o" in text
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lj2o", "-lm"]
    if shutil.which("pkg-config"):
        found = subprocess.run(
            ["pkg-config", "--static", "--cflags", "--libs", "j2o"],
            env={"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"), "PATH": "/usr/bin:/bin"},
            check=True,
            capture_output=True,
            text=True,
        )
        flags = found.stdout.split()
    path = prefix / "convert_record"
    source = ROOT / "examples" / "convert_record.c"
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", source, *flags, "-o", path], check=True)
    return path


def double_sine(x):
    return jnp.sin(x) * 2


def test_the_example_makes_the_same_model_of_a_record(program, tmp_path):
    record, model, again = tmp_path / "record.txt", tmp_path / "model.onnx", tmp_path / "again.onnx"
    to_onnx(double_sine, [(2,)], stacktrace_metadata="full", return_mode="file", output_path=model, record=record)
    done = subprocess.run([program, record, again], check=True, capture_output=True, text=True)
    line = double_sine.__code__.co_firstlineno + 1
    assert done.stdout == f"Sin at double_sine:{line}\nMul at double_sine:{line}\n"
    assert again.read_bytes() == model.read_bytes()


def test_what_is_wrong_with_a_file_is_said_with_its_place(program, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_text("program -\njaxpr j () { return %x }")
    done = subprocess.run([program, bad, tmp_path / "out.onnx"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"{bad}: line 2, column 21: a variable that is not defined\n"
    missing = subprocess.run([program, tmp_path / "none", tmp_path / "out.onnx"], capture_output=True, text=True)
    assert missing.returncode == 1 and "No such file" in missing.stderr
    assert not (tmp_path / "out.onnx").exists()
