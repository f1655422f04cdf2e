"""Texts as doors: a model's text reads back as the model, and passes run on texts as they do on models."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax2onnx import _core, onnx_function, to_onnx

LEVELS = ("off", "minimal", "full", "compact")


def run(*arguments, code=0):
    got, out, err = _core.tool_output(["j2o", *map(str, arguments)])
    assert got == code, f"exit code {got}\n{out.decode()}\n{err.decode()}"
    return (err if code else out).decode()


@onnx_function
class Block:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x):
        return jnp.tanh(x @ self.weight)


blocks = [Block(np.random.default_rng(i).normal(size=(3, 3)).astype(np.float32)) for i in range(2)]
WEIGHT = np.linspace(-1, 1, 300, dtype=np.float32).reshape(3, 100)


def with_functions(x):
    return blocks[1](blocks[0](x))


def with_bodies(x):
    y = jax.lax.fori_loop(0, 3, lambda i, y: y * 2 + i, jnp.sin(x) @ WEIGHT)
    return jax.lax.cond(y.sum() > 0, lambda y: jnp.sort(y), lambda y: y - 1, y)


def with_types(x):
    halves = x.astype(jnp.float16) + jnp.asarray([1, 2, 3], jnp.float16)
    return halves, (x > 0) & jnp.asarray([True, False, True]), x.astype(jnp.int8), jnp.where(x > 0, jnp.nan, -jnp.inf)


PROGRAMS = [with_functions, with_bodies, with_types]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_text_with_its_data_is_the_whole_model(tmp_path, fn, level):
    model, text, again = tmp_path / "model.onnx", tmp_path / "model.txt", tmp_path / "again.onnx"
    to_onnx(fn, [("B", 3)], stacktrace_metadata=level, return_mode="file", output_path=model)
    text.write_text(run("text", model, "--data", tmp_path / "model.weights"))
    run("passes", text, "--pass", "remove_dead_code", "-o", again)
    assert again.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("fn", PROGRAMS)
def test_printing_what_was_read_is_a_fixed_point(tmp_path, fn):
    model, text = tmp_path / "model.onnx", tmp_path / "model.txt"
    to_onnx(fn, [("B", 3)], stacktrace_metadata="full", return_mode="file", output_path=model)
    text.write_text(run("text", model))
    assert run("passes", text, "--pass", "remove_dead_code") == text.read_text()


GRAPH = """graph (float[2] x) => (float[2] y) {
   a = Identity (x)
   b = Neg (a)
   y = Neg (b)
}
"""


def test_passes_of_a_text(tmp_path):
    (tmp_path / "graph.txt").write_text(GRAPH)
    assert run("passes", tmp_path / "graph.txt").splitlines()[1:] == ["   y = Identity (x)", "}"]
    assert "Identity" in run("passes", tmp_path / "graph.txt", "--pass", "merge_common_nodes")
    timed = run("passes", tmp_path / "graph.txt", "--time-passes")
    assert timed.startswith("#") and "remove_no_ops" in timed and "milliseconds" in timed
    (tmp_path / "timed.txt").write_text(timed)
    run("passes", tmp_path / "timed.txt")


def test_passes_of_a_model(tmp_path):
    path = tmp_path / "model.onnx"
    to_onnx(jax.nn.softmax, [(2, 3)], return_mode="file", output_path=path)
    assert "Softmax" in run("passes", path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("graph (x) => (y) {\n   y = Neg (z)\n}", "line 2, column 13: a value that is not defined yet"),
        (
            'graph () => () <float w = ["location": "../w", "length": "4"]> {}',
            "line 1, column 23: data that cannot be read: the file is missing or too short",
        ),
    ],
)
def test_bad_text(tmp_path, text, message):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    assert run("passes", path, "-o", tmp_path / "out.onnx", code=1) == f"j2o: {path}: {message}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["graph.txt"]


def test_what_is_not_there_is_not_written(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text("graph (float[2] x) => (float[2] y) <float[2] w = > {\n   y = Add (x, w)\n}")
    assert "Add (x, w)" in run("passes", path)
    message = run("passes", path, "-o", tmp_path / "out.onnx", code=1)
    assert message == "j2o: the data of 'w' is missing: only its type is known\n"
    assert "no pass 'fuse_everything'" in run("passes", path, "--pass", "fuse_everything", code=1)
    assert not (tmp_path / "out.onnx").exists()


def test_a_comparison_that_fails_shows_the_graph_the_element_and_its_line():
    from export_check import check_export

    with pytest.raises(AssertionError) as caught:
        check_export(scaled, [np.float32([0, 1, 2])], reference=lambda x: x * np.float32([3, 3, 4]))
    assert (
        str(caught.value) == "output 0: 1 of 3 elements differ, first at [2]: np.float32(6.0), JAX has np.float32(8.0)"
    )
    (note,) = caught.value.__notes__
    line = scaled.__code__.co_firstlineno + 1
    assert note.startswith(f"the first output that differs is out_0, made by scaled:{line}\n")
    assert "Mul (in_0, const_f32)" in note


def scaled(x):
    return x * 3


def test_passes_refuse_a_graph_that_does_not_hold_together(tmp_path):
    """Passes take arity and types for granted: what somebody else wrote is verified first."""
    path = tmp_path / "graph.txt"
    path.write_text("graph (float[2] x) => (float[2] y) {\n   y = Add (x)\n}\n")
    message = run("passes", path, code=1)
    assert "is not valid" in message and "Add" in message


def interrupted_tool(*arguments):
    script = "import sys; from jax2onnx import _core; print('ready', flush=True); _core.tool(['j2o', *sys.argv[1:]])"
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_ctrl_c_while_a_model_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.onnx")
    process = interrupted_tool("inspect", tmp_path / "model.onnx")
    with open(tmp_path / "model.onnx", "wb"):  # waits for the reader, and gives it nothing
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors and process.returncode not in (0, None)


def test_ctrl_c_leaves_no_temporary_file(tmp_path):
    weight = np.ones((8, 8), np.float32)
    to_onnx(lambda x: x @ weight, [(8, 8)], record=tmp_path / "record")
    before = sorted(path.name for path in tmp_path.iterdir())
    with open(tmp_path / ".out.onnx.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = interrupted_tool(
            "convert", tmp_path / "record", "-o", tmp_path / "out.onnx", "--external-threshold=1", "--no-sync"
        )
        while not list(tmp_path.glob(".out.onnx.*.tmp")):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, ".out.onnx.lock"])


def test_what_jax_cannot_have_traced_is_refused(tmp_path):
    source = "program -\njaxpr j0 (%0:f32[2,3]) {{\n  %1:f32[{shape}] = {equation}\n  return %1\n}}\n"
    for shape, equation, why in [
        ("3,2", "transpose(%0) {permutation=[1, 2]}", "out of range"),
        ("3,2", "transpose(%0) {permutation=[1, 1]}", "repeated"),
        ("2", "reduce_sum(%0) {axes=[-8]}", "out of range"),
        ("2,3", "cumsum(%0) {axis=2, reverse=False}", "out of range"),
        ("2", "cumsum(%0) {axis=0, reverse=False}", "ranks differ"),
        ("2,3", "dynamic_slice(%0, 0:i32[], 0:i32[]) {slice_sizes=[2, 4]}", "exceeds the shape"),
        ("2,3", "slice(%0) {start_indices=[0], limit_indices=[2], strides=None}", "not have one entry per dimension"),
    ]:
        (tmp_path / "program.txt").write_text(source.format(shape=shape, equation=equation))
        assert why in run("convert", tmp_path / "program.txt", "-o", tmp_path / "out.onnx", code=1)
    calls = "".join(
        f"jaxpr j{i} (%0:f32[3]) {{\n  %1:f32[3] = jit(%0) {{jaxpr=jaxpr j{i - 1}}}\n"
        f"  %2:f32[3] = jit(%1) {{jaxpr=jaxpr j{i - 1}}}\n  return %2\n}}\n"
        for i in range(1, 64)
    )
    (tmp_path / "program.txt").write_text(f"program -\njaxpr j0 (%0:f32[3]) {{\n  return %0\n}}\n{calls}")
    assert "more than" in run("convert", tmp_path / "program.txt", "-o", tmp_path / "out.onnx", code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["program.txt"]


def test_equations_whose_operands_do_not_fit_are_refused(tmp_path):
    numbers = (
        "dimension_numbers=record ScatterDimensionNumbers{update_window_dims=[0, 1], inserted_window_dims=[], "
        "scatter_dims_to_operand_dims=[0], operand_batching_dims=[], scatter_indices_batching_dims=[]}, "
        "indices_are_sorted=True, unique_indices=True, mode=enum GatherScatterMode.FILL_OR_DROP(2)"
    )
    conv = (
        "conv_general_dilated(%0, %0) {window_strides=[], padding=[], lhs_dilation=[], rhs_dilation=[], "
        "dimension_numbers=record ConvDimensionNumbers{lhs_spec=[0, 1], rhs_spec=[0, 1], out_spec=[0, 1]}, "
        "feature_group_count=0, batch_group_count=1, precision=None, preferred_element_type=None, out_sharding=None}"
    )
    for equation, why in [
        (conv, "JAX traces no such conv_general_dilated"),
        (f"scatter(%0, %1, %0) {{update_jaxpr=None, update_consts=[], {numbers}}}", "JAX traces no such scatter"),
        ("expm1(%1) {accuracy=None}", "does not hold together"),
        ("complex(%0, %0)", "the numbers are not complex"),
        ("imag(%0)", "the numbers are not complex"),
        ("neg(%0)\n  %3:f32[2,-1] = neg(%0)", "column 12: a size below zero"),
    ]:
        source = f"program -\njaxpr j0 (%0:f32[5,3], %1:i32[4,1]) {{\n  %2:f32[5,3] = {equation}\n  return %2\n}}\n"
        (tmp_path / "program.txt").write_text(source)
        assert why in run("convert", tmp_path / "program.txt", "-o", tmp_path / "out.onnx", code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["program.txt"]


def test_factors_of_another_shape_are_refused(tmp_path):
    results = "%1:f32[2,2], %2:i32[2], %3:i32[2]"
    source = f"program -\njaxpr j0 (%0:f32[2,0]) {{\n  {results} = lu(%0)\n  return %1, %2, %3\n}}\n"
    (tmp_path / "program.txt").write_text(source)
    printed = run("convert", tmp_path / "program.txt", "-o", tmp_path / "out.onnx", code=1)
    assert "JAX traces no such lu" in printed


def test_a_limit_of_memory(tmp_path):
    fft = "fft(%0) {fft_type=enum FftType.RFFT(2), fft_lengths=[1000003]}"
    body = f"  %1:c64[500002] = {fft}\n  %2:f32[500002] = abs(%1)\n  return %2\n"
    text = f"program -\njaxpr j0 (%0:f32[1000003]) {{\n{body}}}\n"
    (tmp_path / "program.txt").write_text(text)
    words = ("convert", tmp_path / "program.txt", "-o", tmp_path / "out.onnx", "--no-sync")
    assert "--limit" in run(*words, "--limit=8M", code=1)
    assert not (tmp_path / "out.onnx").exists()
