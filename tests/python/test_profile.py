"""``jax2onnx profile``: every microsecond of ONNX Runtime's kernels belongs to a line."""

from __future__ import annotations

import json
import pathlib
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from page_check import data_of

from jax2onnx import _core, to_onnx
from jax2onnx.__main__ import FAILED, OK, USAGE, main
from jax2onnx._commands.flame import Flame, Slice, flame_svg, trace_events
from jax2onnx._commands.profile import Kernel, _Parts, _take_inner_time, profile_model
from jax2onnx._door.origins import read_origins

UP = np.ones((16, 64), np.float32) * 0.01
DOWN = np.ones((64, 16), np.float32) * 0.01


def project(x):
    return x @ DOWN


def scaled(x):
    wide = x @ UP
    narrow = project(wide)
    return narrow * 0.5


def repeated(x):
    def step(state, row):
        state = jnp.tanh(state * 0.9)
        return state + row, jnp.max(state)

    return jax.lax.scan(step, x, jnp.ones((7, 16)))


def line_of(text):
    lines = pathlib.Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def export(fn, path, level="compact"):
    to_onnx(fn, [("B", 16)], return_mode="file", output_path=path, stacktrace_metadata=level)
    return path


@pytest.fixture
def profile(tmp_path, capsys):
    def call(path, *options, code=OK):
        assert main(["profile", str(path), "--runs", "3", *options]) == code
        output = capsys.readouterr()
        return output.out if code == OK else output.err

    return call


@pytest.mark.parametrize("level", ["minimal", "full", "compact"])
def test_time_by_line_function_and_operator(level, tmp_path, profile):
    document = json.loads(profile(export(scaled, tmp_path / "scaled.onnx", level), "--json"))
    for kind in ("lines", "functions", "operators"):
        assert sum(row["share"] for row in document[kind]) == pytest.approx(1)
        assert sum(row["us"] for row in document[kind]) == pytest.approx(document["kernels_us"])
    lines = {row["line"]["line"] for row in document["lines"]}
    assert {line_of("wide = x @ UP"), line_of("return x @ DOWN")} <= lines
    assert {row["function"] for row in document["functions"]} == {"scaled", "project"}
    assert document["runs"] == 3 and document["run_us"] > 0


def test_fused_kernels_count_for_all_their_lines(tmp_path):
    """ONNX Runtime makes one kernel of the product and the multiplication after it."""
    path = str(export(scaled, tmp_path / "scaled.onnx"))
    result = profile_model(path, read_origins(path), None, runs=2)
    fused = next(kernel for kernel in result.kernels if kernel.op == "FusedMatMul")
    assert {part.place.line for part in fused.parts} == {line_of("return x @ DOWN"), line_of("return narrow * 0.5")}
    assert all(kernel.parts for kernel in result.kernels)


def test_parts_lie_between_inputs_and_outputs(tmp_path):
    """A kernel whose name says nothing, what was added to prepare its input, and one that nobody knows."""

    def saved(name, nodes):
        values = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [2]) for value in ("x", "y")]
        onnx.save(helper.make_model(helper.make_graph(nodes, "graph", values[:1], values[1:])), tmp_path / name)
        return read_origins(tmp_path / name)

    chain = [("Sin", "x", "a"), ("Cos", "a", "b"), ("Exp", "b", "c"), ("Tanh", "c", "y")]
    model = saved("model.onnx", [helper.make_node(op, [i], [o], f"{op}_0") for op, i, o in chain])
    saved(
        "optimised.onnx",
        [
            helper.make_node("Sin", ["x"], ["a"], "Sin_0"),
            helper.make_node("Reorder", ["a"], ["a_reordered"], "invented_2"),
            helper.make_node("Wave", ["a_reordered", "a"], ["c"], "invented"),
            helper.make_node("Tanh", ["c"], ["y"], "Tanh_0"),
        ],
    )
    parts = _Parts(model, str(tmp_path / "optimised.onnx"))
    assert {node.name for node in parts.of("invented", "Wave")} == {"Cos_0", "Exp_0"}
    assert [node.name for node in parts.of("Sin_0", "Sin")] == ["Sin_0"]
    assert {node.name for node in parts.of("invented_2", "Reorder")} == {"Cos_0", "Exp_0"}
    assert parts.of("unheard_of", "Reorder") == []
    assert [node.name for node in parts.of("Cos_0/WaveFusion/", "Wave")] == ["Cos_0"]


def test_loops_have_what_their_bodies_leave(tmp_path, profile):
    outer, first, second = Kernel("loop", "Loop", 0, 100), Kernel("a", "Sin", 10, 20), Kernel("b", "Cos", 40, 50)
    _take_inner_time([outer, first, second])
    assert [kernel.own for kernel in (outer, first, second)] == [30, 20, 50]
    document = json.loads(profile(export(repeated, tmp_path / "loop.onnx"), "--json"))
    calls = {row["line"]["line"]: row["calls"] for row in document["lines"]}
    assert calls[line_of("return jax.lax.scan(step")] == pytest.approx(1)
    assert calls[line_of("state = jnp.tanh(state * 0.9)")] >= 7


def test_flame_graph(tmp_path, profile):
    profile(export(repeated, tmp_path / "loop.onnx"), "--flame", str(tmp_path / "loop.svg"))
    text = (tmp_path / "loop.svg").read_text()
    titles = [item.text for item in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}title")]
    inner, outer = line_of("state = jnp.tanh(state * 0.9)"), line_of("return jax.lax.scan(step")
    assert any(title.startswith(f"repeated (test_profile.py:{outer}): ") for title in titles)
    assert any(title.startswith(f"repeated.<locals>.step (test_profile.py:{inner}): ") for title in titles)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    flame = Flame("all")
    flame.add(["<f>", "g"], 3.0)
    flame.add(["<f>", "h"], 1.0)
    assert flame.time == 4.0 and flame.height == 3 and flame.inside["<f>"].time == 4.0
    assert "&lt;f&gt;" in flame_svg(flame, "a & b")


def test_trace(tmp_path, profile):
    profile(export(repeated, tmp_path / "loop.onnx"), "--trace", str(tmp_path / "loop.json"))
    events = json.loads((tmp_path / "loop.json").read_text())["traceEvents"]
    names = {event["name"] for event in events}
    assert f"repeated (test_profile.py:{line_of('return jax.lax.scan(step')})" in names and "Tanh" in names
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    made = trace_events([Slice(["f", "g", "Sin"], 0, 5, {}), Slice(["f", "h", "Cos"], 6, 4, {})], "t")
    slices = [(event["name"], event["ts"], event["dur"]) for event in made["traceEvents"] if event["ph"] == "X"]
    assert slices == [("f", 0, 10), ("g", 0, 5), ("Sin", 0, 5), ("h", 6, 4), ("Cos", 6, 4)]


def test_text_and_errors(tmp_path, profile):
    path = export(scaled, tmp_path / "scaled.onnx", "full")
    text = profile(path, "--top", "1", "--color=never")
    assert "ms per run (3 runs)" in text and "\nlines\n" in text and "more (--top)" in text
    np.savez(tmp_path / "inputs.npz", in_0=np.ones((5, 16), np.float32))
    profile(path, "--inputs", str(tmp_path / "inputs.npz"))
    np.savez(tmp_path / "wrong.npz", in_0=np.ones((5, 17), np.float32))
    assert "cannot run" in profile(path, "--inputs", str(tmp_path / "wrong.npz"), code=FAILED)
    assert "No such file" in profile(tmp_path / "none.onnx", code=FAILED)
    assert "svg" in profile(path, "--flame", str(tmp_path / "no" / "x.svg"), code=FAILED)
    profile(path, "--runs", "0", code=USAGE)


def test_model_without_origins(tmp_path, capsys):
    path = export(scaled, tmp_path / "plain.onnx", "off")
    assert main(["profile", str(path)]) == OK
    output = capsys.readouterr()
    assert "FusedMatMul" in output.out and "JAX2ONNX_ENABLE_STACKTRACE_METADATA=1" in output.err


def test_what_profile_writes_report_reads(tmp_path, profile):
    path = export(repeated, tmp_path / "loop.onnx")
    (tmp_path / "times.json").write_text(profile(path, "--json"))
    page = tmp_path / "report.html"
    assert _core.tool(["j2o", "report", str(path), "-o", str(page), "--profile", str(tmp_path / "times.json")]) == OK
    profile(path, "--html", str(tmp_path / "profile.html"))
    for written in (page, tmp_path / "profile.html"):
        data = data_of(written)
        names = {data["texts"][data["nodes"][node][2]]: time for node, time in data["times"]}
        assert len(names) > 2 and sum(names.values()) > 0
    loop = next(node.name for node in onnx.load(path).graph.node if node.op_type in ("Loop", "Scan"))
    body = [node for node in names if node != loop and "Tanh" in node]
    assert names[loop] > sum(names[name] for name in body), "a loop's time holds its body's"
    assert "cannot write" in profile(path, "--html", str(tmp_path / "none" / "page.html"), code=FAILED)
