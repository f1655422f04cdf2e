"""Records: everything an export was given, replayed by j2o convert to the same bytes without Python."""

from __future__ import annotations

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax2onnx import _core, plugin, to_onnx
from jax2onnx.__main__ import main

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from quality import cases

LEVELS = ("off", "minimal", "full", "compact")
WEIGHT = np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32)


def convert(*arguments, code=0):
    got, out, err = _core.tool_output(["j2o", "convert", *map(str, arguments)])
    assert got == code, f"exit code {got}\n{out.decode()}\n{err.decode()}"
    return (err if code else out).decode()


def program(x, scale):
    y = jax.lax.fori_loop(0, 3, lambda i, y: y * scale + i, jnp.sin(x) @ WEIGHT)
    return jnp.where(y > 0, y, jnp.nan), y.astype(jnp.bfloat16)


@pytest.mark.parametrize("level", LEVELS)
def test_a_record_gives_the_same_bytes(tmp_path, level):
    options = {"opset": 21, "model_name": "m", "input_names": ["a", "b"], "normalization_mode": "prefer_native"}
    path, record, again = tmp_path / "model.onnx", tmp_path / "record.txt", tmp_path / "again.onnx"
    inputs = [("B", 3), jax.ShapeDtypeStruct((), "float32")]
    to_onnx(program, inputs, stacktrace_metadata=level, return_mode="file", output_path=path, record=record, **options)
    assert convert(record, "-o", again) == ""
    assert again.read_bytes() == path.read_bytes()
    assert "entry @" in record.read_text()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases()])
def test_every_model_of_the_benchmarks(tmp_path, case):
    fn, inputs = case.build()
    path, record, again = tmp_path / "model.onnx", tmp_path / "record.txt", tmp_path / "again.onnx"
    to_onnx(fn, inputs, stacktrace_metadata="full", return_mode="file", output_path=path, record=record)
    convert(record, "-o", again)
    assert again.read_bytes() == path.read_bytes()


def test_channels_first_and_passes_that_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX2ONNX_DISABLE_PASSES", "fuse_activations, fuse_split")
    record = tmp_path / "record.txt"
    model = to_onnx(jax.nn.relu, [(1, 4, 4, 3)], inputs_as_nchw=[0], outputs_as_nchw=[0], record=record)
    text = record.read_text()
    assert 'disabled "fuse_activations", "fuse_split"\ninput_nchw 0\noutput_nchw 0\n' in text
    convert(record, "-o", tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == model.SerializeToString()


def test_shapes_alone(tmp_path):
    record = tmp_path / "record.txt"
    to_onnx(lambda x: x @ WEIGHT, [(2, 3)], record=record, record_shapes_only=True)
    assert not (tmp_path / "record.txt.data").exists()
    said = convert(record, "-o", tmp_path / "model.onnx")
    assert said == "the record has only the type of 1 tensor, whose values in the model are placeholders\n"


def test_the_environment_and_the_command_line_ask_for_a_record(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX2ONNX_RECORD", str(tmp_path / "environment.txt"))
    to_onnx(jnp.sin, [(2,)])
    assert (tmp_path / "environment.txt").read_text().startswith("record 1\n")
    monkeypatch.delenv("JAX2ONNX_RECORD")
    output, record = tmp_path / "sin.onnx", tmp_path / "line.txt"
    assert main(["export", "jax.numpy:sin", "-i", "f32[2]", "-o", str(output), "-q", "--record", str(record)]) == 0
    convert(record, "-o", tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == output.read_bytes()


def test_options_of_the_command_line_go_before_those_of_the_record(tmp_path):
    text = tmp_path / "program.txt"
    text.write_text("program -\njaxpr j (%x:f32[2]) {\n  %y:f32[2] = sin(%x) {accuracy=None}\n  return %y\n}\n")
    path = tmp_path / "model.onnx"
    convert(text, "-o", path, "--opset", 18, "--input-names", "a", "--output-names=b", "--name", "g")
    code, out, _ = _core.tool_output(["j2o", "text", str(path)])
    assert code == 0 and '"": 18' in out.decode() and "g (float[2] a) => (float[2] b)" in out.decode()
    assert "expected 1 name but got 2" in convert(text, "-o", path, "--input-names", "a,b", code=1)
    assert "there is no pass" in convert(text, "-o", path, "--disable-pass", "fuse_all", code=1)


BAD = {
    "record 2\nprogram -": "line 1, column 7: unknown version",
    "record 1\nopset x": "line 2, column 7: not an integer with 64 bits",
    "record 1\nspeed 3": "line 2, column 1: unknown option",
    "record 1\nmetadata all": "line 2, column 10: 'metadata' cannot be all",
    "program -\njaxpr j () {\n  return data(0, 4):f32[] }": (
        "line 3, column 10: data in a missing file, which must be next to this one"
    ),
    "program -\njaxpr j () {\n  return data(0, 8):f32[] }": "line 3, column 10: data that does not match "
    "the tensor's type",
    "hello": "line 1, column 1: expected a record, a program, or a graph in text form",
}


@pytest.mark.parametrize("text", list(BAD))
def test_bad_records(tmp_path, text):
    path = tmp_path / "record.txt"
    path.write_text(text)
    assert convert(path, "-o", tmp_path / "model.onnx", code=1) == f"j2o: {path}: {BAD[text]}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["record.txt"]


def test_a_plugin_of_the_users_cannot_be_recorded(tmp_path):
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    twice_p = Primitive("twice_for_records")
    twice_p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: x + x, multiple_results=False))

    @plugin("twice_for_records")
    def lower(context, equation):
        (x,) = equation.inputs
        return context.emit("Add", [x, x])

    with pytest.raises(ValueError, match="cannot be recorded: 'twice_for_records' is lowered by a custom plugin"):
        to_onnx(lambda x: twice_p.bind(x), [(2,)], record=tmp_path / "record.txt")
    assert list(tmp_path.iterdir()) == []
