"""``expect_graph`` accepts what is there, and says readably what is not."""

import re

import jax.numpy as jnp
import numpy as np
import onnx
import pytest

from jax2onnx import to_onnx
from jax2onnx.testing import expect_graph, graph_text


def scaled_sine(x):
    return jnp.sin(x) * 2.0


LINE = scaled_sine.__code__.co_firstlineno + 1


@pytest.fixture(scope="module")
def model():
    return to_onnx(scaled_sine, [("B", 3)], stacktrace_metadata="full")


def test_accepts_what_is_there(model):
    expect_graph(model)
    expect_graph(
        model,
        "Sin -> Mul",
        "Sin:Bx3 -> Mul:Bx3",
        "Sin:?x3 -> Mul:[B,3] -> output:Bx3",
        "input:Bx3 -> Sin",
        "input -> ... -> output",
        "input -> ... -> Mul",
        counts={"Sin": 1, "Mul": 1, "Add": 0},
        absent=["Transpose"],
        metadata={
            "Sin": {"callsite": f"scaled_sine:{LINE}", "plugin": re.compile(r"^SinPlugin\.lower:\d+$")},
            "*": {"jax_traceback": re.compile(r"test_testing\.py")},
        },
    )


@pytest.mark.parametrize(
    ("paths", "options", "message"),
    [
        (["Sin:3 -> Mul"], {}, r"no path Sin:3 -> Mul \(not even its first step\)"),
        (["Sin -> Mul:Bx4"], {}, r"no path Sin -> Mul:Bx4 \(found up to Sin, step 1 of 2\)"),
        (["Mul -> Sin"], {}, r"no path Mul -> Sin"),
        (["input -> Mul"], {}, r"no path input -> Mul"),
        (["Sin -> output"], {}, r"no path Sin -> output"),
        (["Sin:[] -> Mul"], {}, r"no path"),
        ([], {"counts": {"Mul": 2}}, r"1 Mul found, expected 2"),
        ([], {"absent": ["Sin"]}, r"1 Sin found, expected none"),
        ([], {"absent": "Sin"}, r"1 Sin found, expected none"),
        ([], {"metadata": {"Add": {"callsite": "f:1"}}}, r"no Add with metadata"),
        ([], {"metadata": {"Sin": {"callsite": "f:1"}}}, r"Sin_0: callsite is 'scaled_sine:\d+', expected 'f:1'"),
        ([], {"metadata": {"Sin": {"plugin": re.compile("^Cos")}}}, r"expected a match of '\^Cos'"),
        ([], {"metadata": {"Sin": {"other": "x"}}}, r"Sin_0 has no other"),
    ],
)
def test_says_what_is_not(model, paths, options, message):
    with pytest.raises(AssertionError, match=message) as caught:
        expect_graph(model, *paths, **options)
    assert "Sin(in_0) -> sin_0 [B,3]" in str(caught.value), "the graph is part of the message"


def test_lists_every_problem(model):
    with pytest.raises(AssertionError) as caught:
        expect_graph(model, "Cos", counts={"Sin": 7}, absent=["Mul"])
    assert [word in str(caught.value) for word in ("no path Cos", "expected 7", "expected none")] == [True] * 3


@pytest.mark.parametrize("path", ["", "Sin -> ", "... -> Sin", "Sin -> ...", "Sin: -> Mul", "a b -> Mul"])
def test_a_malformed_path_is_an_error_of_the_caller(model, path):
    with pytest.raises(ValueError, match="path"):
        expect_graph(model, path)


def test_takes_files_and_refuses_other_things(model, tmp_path):
    onnx.save(model, tmp_path / "model.onnx")
    expect_graph(tmp_path / "model.onnx", "Sin -> Mul")
    expect_graph(str(tmp_path / "model.onnx"), "Sin -> Mul")
    with pytest.raises(TypeError, match="ModelProto"):
        expect_graph(model.graph, "Sin")


def test_looks_into_bodies_and_scalars():
    text = """
      <ir_version: 10, opset_import: ["" : 21]>
      branches (bool flag, float x) => (float y) {
        y = If (flag) <
          then_branch = then_graph () => (float a) { s = Sin (x)  a = Neg (s) },
          else_branch = else_graph () => (float b) { b = Cos (x) }
        >
      }"""
    expect_graph(onnx.parser.parse_model(text), "Sin -> Neg:[]", "input -> Cos", counts={"Neg": 1}, absent=["Mul"])


def test_graph_text_shows_origins(model):
    text = graph_text(model)
    assert text.splitlines()[0] == "graph jax_model(in_0 [B,3])"
    assert f"# scaled_sine:{LINE}, SinPlugin.lower:" in text
    assert "#" not in graph_text(to_onnx(scaled_sine, [np.zeros(2, np.float32)], stacktrace_metadata=False))
