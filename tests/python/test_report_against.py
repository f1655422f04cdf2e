"""``j2o report --against`` and ``--model-explorer``: two models in one page, and data for another viewer."""

from __future__ import annotations

import functools
import json

import jax
import jax.numpy as jnp
import onnx
import pytest
from onnx import TensorProto, helper
from page_check import data_of, node_row, report

from jax2onnx import _core, to_onnx


def old(x):
    y = jnp.sin(x) * 2
    return jnp.exp(y) + y


def new(x):
    y = jnp.tanh(x) * 3
    return jnp.exp(y) + y


@functools.cache
def exported(fn):
    model = to_onnx(fn, [("B", 4)], stacktrace_metadata="full")
    for node in model.graph.node:  # as if one function had been edited
        for entry in node.metadata_props:
            if entry.key.endswith("callsite"):
                entry.value = entry.value.replace("new", "old")
    return model


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "other.onnx"
    onnx.save(exported(old), path)
    return path


def changes_of(data):
    names = {"new": [], "gone": [], "changed": []}
    for node, kind, _ in data["changes"]:
        names[kind].append(data["texts"][data["nodes"][node][1]])
    return {kind: sorted(found) for kind, found in names.items()}


def test_both_models_are_there_with_what_changed(tmp_path, other):
    data = data_of(report(exported(new), tmp_path, "--against", other))
    assert (data["model"], data["against"]) == ("model.onnx", "other.onnx")
    assert data["first"] == len(exported(new).graph.node)
    assert len(data["nodes"]) == data["first"] + len(exported(old).graph.node) == len(data["matches"])
    found = changes_of(data)
    assert found["new"] == ["Tanh"] and found["gone"] == ["Sin"] and found["changed"] == ["Mul", "Mul"]
    for node, match in enumerate(data["matches"]):
        assert match < 0 or (data["matches"][match] == node and (node < data["first"]) != (match < data["first"]))
    assert [level[0] for level in data["levels"]] == ["model", "graph", "graph"]
    details = [data["texts"][fact] for _, kind, facts in data["changes"] if kind == "changed" for fact in facts]
    assert any("contents" in detail for detail in details)


def test_the_changes_are_those_of_diff(tmp_path, other, capfd):
    data = data_of(report(exported(new), tmp_path, "--against", other))
    capfd.readouterr()
    assert _core.tool(["j2o", "diff", str(other), str(tmp_path / "model.onnx"), "--json"]) == 1
    said = json.loads(capfd.readouterr().out)
    found = changes_of(data)
    assert (len(found["gone"]), len(found["new"]), len(found["changed"]) / 2) == (
        said["removed"],
        said["added"],
        said["changed"],
    )


def test_the_same_model_has_no_changes(tmp_path, other):
    data = data_of(report(exported(old), tmp_path, "--against", other))
    assert not data["changes"] and -1 not in data["matches"]


def test_a_profile_is_of_the_first_model(tmp_path, other):
    names = {node.name for node in exported(new).graph.node}
    profile = tmp_path / "times.json"
    profile.write_text(json.dumps({name: 1.0 for name in names}))
    data = data_of(report(exported(new), tmp_path, "--against", other, "--profile", profile))
    assert [node for node, _ in data["times"]] == list(range(data["first"]))


def test_another_model_that_cannot_be_read_is_told(tmp_path, capfd):
    report(exported(new), tmp_path, "--against", tmp_path / "none.onnx", code=1)
    assert "none.onnx" in capfd.readouterr().err


def test_the_page_shows_both(opened, other):
    page = opened(exported(new), "--against", other)
    assert page.js("document.getElementById('title').textContent") == "model.onnx against other.onnx"
    assert page.js("document.getElementById('summary').textContent").startswith("+1 \u22121 ~1")
    signs = page.js("[...document.querySelectorAll('#nodes .sign.new, #nodes .sign.gone')].map(one => one.textContent)")
    assert sorted(signs) == ["+", "\u2212"]
    assert page.js("[...document.querySelectorAll('#lines .heat .sign')].length") > 0
    page.click("document.getElementById('changed')")
    shown = page.js("[...document.querySelectorAll('#nodes .op')].map(op => op.textContent)")
    assert sorted(shown) == ["Mul", "Mul", "Sin", "Tanh"]
    page.click(node_row("Mul"))
    details = page.js("document.getElementById('details').innerText")
    assert "changed" in details and "contents" in details and "other.onnx" in details
    page.click("[...document.querySelectorAll('#details button.link')].find(one => one.textContent === 'other.onnx')")
    assert "model.onnx" in page.js("document.getElementById('details').innerText")
    page.key("Escape")
    assert len(page.js("[...document.querySelectorAll('#nodes .op')].map(op => op.textContent)")) > 4


# ---- Model Explorer ----


def looped(x):
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y) + 1, x)


def node_data(model, folder, *options):
    path, out = folder / "model.onnx", folder / "nodes.json"
    onnx.save(model, path)
    assert _core.tool(["j2o", "report", str(path), "--model-explorer", str(out), *map(str, options)]) == 0
    return json.loads(out.read_text())


def check_node_data(data):
    """What Model Explorer's loader takes: graphs by name; in each, values and colours by node."""
    for graph in data.values():
        assert set(graph) <= {"name", "results", "gradient"}
        for result in graph["results"].values():
            assert set(result) <= {"value", "bgColor", "textColor"} and isinstance(result["value"], (str, float, int))


def test_lines_for_model_explorer(tmp_path):
    model = to_onnx(looped, [("B", 3)], stacktrace_metadata="full")
    data = node_data(model, tmp_path)
    check_node_data(data)
    (loop,) = [node for node in model.graph.node if node.op_type in ("Loop", "Scan")]
    (body,) = [attribute for attribute in loop.attribute if attribute.HasField("g")]
    assert set(data) == {model.graph.name, f"{loop.name}/{body.name}"}
    assert set(data[model.graph.name]["results"]) == {node.name for node in model.graph.node}
    inner = data[f"{loop.name}/{body.name}"]["results"]
    assert set(inner) == {node.name for node in body.g.node}
    line = looped.__code__.co_firstlineno + 1
    assert {result["value"] for result in inner.values()} == {f"test_report_against.py:{line}"}
    assert len({result["bgColor"] for result in inner.values()}) == 1


def test_times_for_model_explorer(tmp_path):
    model = exported(new)
    profile = tmp_path / "times.json"
    profile.write_text(json.dumps({model.graph.node[0].name: 12.5}))
    data = node_data(model, tmp_path, "--profile", profile, "-o", tmp_path / "report.html")
    check_node_data(data)
    graph = data[model.graph.name]
    assert graph["results"] == {model.graph.node[0].name: {"value": 12.5}}
    assert [stop["stop"] for stop in graph["gradient"]] == [0, 1]
    assert (tmp_path / "report.html").exists()


def test_names_for_model_explorer(tmp_path):
    inner = [helper.make_node("Neg", ["a"], ["b"], name='<">')]
    inner[0].metadata_props.add(key="pkg.jax2onnx.callsite", value="f:3")
    function = helper.make_function("local", "Twice", ["a"], ["b"], inner, [helper.make_opsetid("", 20)])
    unnamed = helper.make_node("Sin", ["x"], ["y"])
    unnamed.metadata_props.add(key="pkg.jax2onnx.callsite", value="f:4")
    graph = helper.make_graph(
        [unnamed, helper.make_node("Twice", ["y"], ["z"], domain="local")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2])],
    )
    data = node_data(helper.make_model(graph, functions=[function]), tmp_path)
    assert set(data["net"]["results"]) == {"y"}, "a node without a name is known by what it makes"
    assert data["[function]local::Twice"]["results"]['<">']["value"] == "f:3"
    report(tmp_path / "model.onnx", tmp_path, "--model-explorer", tmp_path / "none" / "nodes.json", code=1)
