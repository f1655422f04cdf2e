"""``jax2onnx explain``: real messages lead to the lines they are about."""

from __future__ import annotations

import io
import json
import linecache
import pathlib
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from jax2onnx import _core
from jax2onnx.__main__ import FAILED, OK, USAGE, main

MESSAGES = pathlib.Path(__file__).resolve().parents[1] / "data" / "messages"
sys.path.insert(0, str(MESSAGES))
import make  # noqa: E402

sys.path.remove(str(MESSAGES))
del sys.modules["program"]  # the random programs have a module of that name, too

SOURCE = MESSAGES / "program.py"

# The message, and the text of the line that it shall lead to first.
LINES = {
    "axis_that_is_not_there.check": "scores = x @ x.T",
    "axis_that_is_not_there.load": "scores = x @ x.T",
    "body_reads_wrong_size.run": "state = state @ down + row",
    "declared_size_is_wrong.check": "return jax.nn.softmax(scores) @ x",
    "declared_type_is_wrong.check": "wave = jnp.sin(x)",
    "declared_type_is_wrong.load": "wave = jnp.sin(x)",
    "index_out_of_bounds.run": "looked_up = jnp.asarray(table)[tokens]",
    "input_of_wrong_size.run": "looked_up = jnp.asarray(table)[tokens]",
    "no_kernel.load": "wave = jnp.sin(x)",
    "one_name_twice.check": "return jax.nn.softmax(scores) @ x",
    "one_name_twice.load": "return jax.nn.softmax(scores) @ x",
    "reshape_to_other_size.run": "pairs = jnp.reshape(jnp.exp(state), (3, 8))",
    "unknown_attribute.check": "return jax.nn.softmax(scores) @ x",
    "unknown_attribute.load": "return jax.nn.softmax(scores) @ x",
    "unknown_operator.check": "wave = jnp.sin(x)",
    "unknown_operator.load": "wave = jnp.sin(x)",
    "value_that_nobody_makes.check": "wave = jnp.sin(x)",
    "weight_of_wrong_shape.check": "state = state @ down + row",
    "weight_of_wrong_shape.load": "state = state @ down + row",
    "wrong_type.load": "wave = jnp.sin(x)",
}
# These name nothing that the model holds.
SILENT = ("input_of_wrong_type.run", "value_that_nobody_makes.load")

# Runtimes that are not here, in the forms they use.
OTHER_RUNTIMES = {
    '[E] ModelImporter.cpp:771: While parsing node number 7 [Sin -> "sin_0"]:': "wave = jnp.sin(x)",
    "[TRT] While parsing node number 7 [Sin]:": "wave = jnp.sin(x)",
    "Error Code 10: Could not find implementation for node {ForeignNode[Transpose_0...Softmax_0]}": "scores = x @ x.T",
    "While validating node 'opset1::MatMul MatMul_2 (Softmax_0[0]:f32[6,6]) -> ()' with friendly_name 'MatMul_2':\n": (
        "return jax.nn.softmax(scores) @ x"
    ),
    "failed to call OrtRun(). ERROR_CODE: 2, ERROR_MESSAGE: Non-zero status code returned while running Sin node. "
    "Name:'Sin_0' Status Message: out of memory": "wave = jnp.sin(x)",
    "[ShapeInferenceError] (op_type:CumSum): axis out of range": "return pairs, jnp.cumsum(sums) * 2.0",
}


@pytest.fixture(autouse=True)
def beside_the_source(monkeypatch):
    """The model names the source file without a folder."""
    monkeypatch.chdir(MESSAGES)
    linecache.checkcache()


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """The model that the messages are about, at every level of detail."""
    folder = tmp_path_factory.mktemp("explain")
    onnx.save(make.frozen(), folder / "full.onnx")
    minimal = make.frozen()
    for graph in make.graphs(minimal.graph):
        for node in graph.node:
            kept = [entry for entry in node.metadata_props if entry.key.endswith((".callsite", ".plugin"))]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
    onnx.save(minimal, folder / "minimal.onnx")
    for command, name in (("compact", "compact"), ("strip", "off")):
        assert (
            _core.tool_output(["j2o", command, str(folder / "full.onnx"), "-o", str(folder / f"{name}.onnx")])[0] == 0
        )
    return folder


@pytest.fixture
def explain(monkeypatch, capsys):
    def call(path, message, *options, code=OK):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(message.encode())))
        assert main(["explain", str(path), *options]) == code
        output = capsys.readouterr()
        return output.out if code == OK else output.err

    return call


def line_of(text):
    return next(number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)


def first(document):
    return json.loads(document)["found"][0]


def message_of(name):
    return (MESSAGES / f"{name}.txt").read_text()


def test_every_message_has_a_line():
    assert {path.stem for path in MESSAGES.glob("*.txt")} == {*LINES, *SILENT}
    assert len(LINES) >= 10


@pytest.mark.parametrize("level", ["minimal", "full", "compact"])
@pytest.mark.parametrize("name", LINES)
def test_message_leads_to_its_line(name, level, exports, explain):
    place = first(explain(exports / f"{level}.onnx", message_of(name), "--json"))["place"]
    assert place["line"] == line_of(LINES[name])
    if level != "minimal":
        assert place["file"] == "program.py"
        assert place["source"] == LINES[name]


@pytest.mark.parametrize("message", OTHER_RUNTIMES)
def test_other_runtimes(message, exports, explain):
    place = first(explain(exports / "compact.onnx", message, "--json"))["place"]
    assert place["source"] == OTHER_RUNTIMES[message]


@pytest.mark.parametrize("name", SILENT)
def test_message_without_names(name, exports, explain):
    assert "mentions no node or value" in explain(exports / "full.onnx", message_of(name), code=FAILED)


def test_text_shows_the_lines_and_their_callers(exports, explain):
    text = explain(exports / "full.onnx", message_of("weight_of_wrong_shape.load"), "--color=never")
    inner, outer = line_of("state = state @ down + row"), line_of("state, sums = jax.lax.scan")
    assert text.startswith("Gemm_0: Gemm\n")
    assert f"  at program.py:{inner} in step\n      state = state @ down + row\n" in text
    assert f"  called from program.py:{outer} in model\n" in text
    assert "\x1b[" in explain(exports / "full.onnx", message_of("no_kernel.load"), "--color=always")


def test_model_without_origins_says_how_to_have_them(exports, explain):
    error = explain(exports / "off.onnx", message_of("no_kernel.load"), code=FAILED)
    assert "Sin_0 (Sin)" in error and "JAX2ONNX_ENABLE_STACKTRACE_METADATA=1" in error


def test_long_names_win_over_short_ones(tmp_path, explain):
    """And a name that is an ordinary word counts only as a name."""
    nodes = [
        helper.make_node("Sin", ["x"], ["a"], "Sin_1"),
        helper.make_node("Cos", ["a"], ["b"], "Sin_12"),
        helper.make_node("Exp", ["b"], ["y"], "status"),
    ]
    for node, line in zip(nodes, (1, 2, 3), strict=True):
        trace = f'File "wave.py", line {line}, in forward\n    x = f(x)'
        node.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.stack_trace", value=trace))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    path = tmp_path / "other.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "other", values[:1], values[1:])), path)
    document = json.loads(explain(path, "Non-zero status code returned while running Cos. Name:'Sin_12'", "--json"))
    assert [(item["node"], item["place"]["line"]) for item in document["found"]] == [("Sin_12", 2)]
    document = json.loads(explain(path, "bad status of node 'status' in a run", "--json"))
    assert [item["node"] for item in document["found"]] == ["status"]


def test_run_finds_the_message_itself(exports, tmp_path, explain):
    assert "report no errors" in explain(exports / "full.onnx", "", "--run")
    model = make.frozen()
    make.no_kernel(model, {})
    onnx.save(model, tmp_path / "broken.onnx")
    text = explain(tmp_path / "broken.onnx", "", "--run")
    assert "NOT_IMPLEMENTED" in text and "wave = jnp.sin(x)" in text
    np.savez(tmp_path / "inputs.npz", x=np.ones((6, 4), np.float32), tokens=np.arange(9, dtype=np.int32))
    text = explain(exports / "full.onnx", "", "--run", "--inputs", str(tmp_path / "inputs.npz"))
    assert "Got invalid dimensions" in text and "looked_up = jnp.asarray(table)[tokens]" in text


def test_errors(exports, tmp_path, explain):
    assert "No such file" in explain(tmp_path / "none.onnx", "x", code=FAILED)
    assert "program.py: " in explain(SOURCE, "x", code=FAILED)
    (tmp_path / "cut.onnx").write_bytes((exports / "full.onnx").read_bytes()[:300])
    assert "cut.onnx" in explain(tmp_path / "cut.onnx", "x", code=FAILED)
    assert "empty" in explain(exports / "full.onnx", " \n", code=FAILED)
    explain(exports / "full.onnx", "x", "--nonsense", code=USAGE)


def test_paths_in_the_working_folder_are_shown_without_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "wave.py"
    source.write_text("import jax.numpy as jnp\n\n\ndef wave(x):\n    return jnp.sin(x)\n")
    export = ["export", f"{source}:wave", "--input", "f32[2]", "--stacktrace=full", "-q", "-o", "model.onnx"]
    assert main(export) == OK
    (tmp_path / "message.txt").write_text("node 'Sin_0' failed")
    capsys.readouterr()
    assert main(["explain", "model.onnx", "message.txt"]) == OK
    assert "at wave.py:5 in wave" in capsys.readouterr().out
    assert main(["explain", "model.onnx", "message.txt", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["found"][0]["place"]["file"] == str(source)
