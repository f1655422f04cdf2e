"""Texts as doors: a model's text reads back as the model, and passes run on texts as they do on models."""

from __future__ import annotations

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
        ("graph (x) => (y) {\n   y = Neg (z)\n}", "line 2, column 13: a value that is not defined before this"),
        (
            'graph () => () <float w = ["location": "../w", "length": "4"]> {}',
            "line 1, column 23: data that cannot be read: no such file here, or it is too short",
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
    assert message == "j2o: the data of 'w' are not there: only its type is known\n"
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
    assert "does not hold together" in message and "Add" in message
