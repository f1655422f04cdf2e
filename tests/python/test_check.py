"""j2o check: silent about every sound model, of whatever producer, and clear about faulty ones."""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import onnx
import pytest
from onnx import TensorProto, helper

from jax2onnx import _core, to_onnx
from jax2onnx._door import plugins

SHIPPED = Path(onnx.__file__).parent / "backend/test/data"


def check(path: Path, capfd, *options: str) -> tuple[int, str]:
    capfd.readouterr()
    code = _core.tool(["j2o", "check", str(path), *options])
    return code, capfd.readouterr().out


def sound_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Sin", ["x"], ["s"], name="sine"),
        helper.make_node("Softmax", ["s"], ["y"], name="soft", axis=1),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    s = helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(nodes, "g", [x], [y], value_info=[s])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def set_attribute(model, name, value):
    model.graph.node[1].attribute.append(helper.make_attribute(name, value))


def retype(model, index, elem_type):
    model.graph.value_info[index].type.tensor_type.elem_type = elem_type


FAULTS = {
    "unknown operator": (
        lambda m: setattr(m.graph.node[0], "op_type", "Sine"),
        "there is no operator Sine at opset 21",
    ),
    "unknown attribute": (lambda m: set_attribute(m, "axes", 1), "there is no attribute axes"),
    "attribute of another kind": (
        lambda m: m.graph.node[1].attribute[0].CopyFrom(helper.make_attribute("axis", [1])),
        "the attribute axis is a list of integers but must be an integer",
    ),
    "axis that is not there": (
        lambda m: setattr(m.graph.node[1].attribute[0], "i", 2),
        "axis 2 is out of range for rank 2",
    ),
    "too many inputs": (lambda m: m.graph.node[0].input.append("x"), "has 2 inputs but needs 1"),
    "value that nobody makes": (
        lambda m: m.graph.node[0].input.__setitem__(0, "z"),
        "input 0, 'z', is not defined here",
    ),
    "another order": (lambda m: m.graph.node.insert(0, m.graph.node.pop(1)), "is used before it is defined"),
    "one name twice": (lambda m: m.graph.node[0].output.__setitem__(0, "y"), "duplicate name 'y'"),
    "wrong type": (lambda m: retype(m, 0, TensorProto.DOUBLE), "output 0 is float64 but must be float32 like input 0"),
    "type that is not taken": (lambda m: retype(m, 0, TensorProto.INT32), "is int32, which Sin does not accept"),
    "wrong shape": (
        lambda m: setattr(m.graph.value_info[0].type.tensor_type.shape.dim[1], "dim_value", 4),
        "output 0 has shape [2,4] but must have [2,3]",
    ),
    "domain": (lambda m: setattr(m.graph.node[0], "domain", "com.example"), "the domain 'com.example' is not imported"),
    "output that nobody makes": (
        lambda m: setattr(m.graph.output[0], "name", "w"),
        "output 0, 'w', is not defined here",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_told_with_their_node(fault, tmp_path, capfd):
    model = sound_model()
    onnx.save(model, tmp_path / "model.onnx")
    assert check(tmp_path / "model.onnx", capfd) == (0, f"{tmp_path / 'model.onnx'}: no errors found\n")
    edit, message = FAULTS[fault]
    edit(model)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    code, text = check(tmp_path / "model.onnx", capfd)
    assert code == 1
    assert message in text
    code, document = check(tmp_path / "model.onnx", capfd, "--json")
    assert code == 1
    assert [found for found in json.loads(document)["faults"] if message in found["fault"]]


def test_the_line_of_the_program_is_told(tmp_path, capfd):
    def program(x):
        return x + 1.0

    model = to_onnx(program, [(2, 3)], stacktrace_metadata="minimal")
    model.graph.node[0].input.append(model.graph.node[0].input[0])
    onnx.save(model, tmp_path / "model.onnx")
    line = program.__code__.co_firstlineno + 1
    code, text = check(tmp_path / "model.onnx", capfd)
    assert code == 1
    assert f"program:{line})" in text.splitlines()[0]


def test_a_function_has_its_own_opset(tmp_path, capfd):
    """A function may be of an older opset than the model: its nodes are held to its own."""
    body = [helper.make_node("ReduceMax", ["a"], ["b"], axes=[0])]
    function = helper.make_function("custom", "largest", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("largest", ["x"], ["y"], domain="custom")], "g", [x], [y])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("custom", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=imports)
    onnx.save(model, tmp_path / "model.onnx")
    assert check(tmp_path / "model.onnx", capfd)[0] == 0
    model.functions[0].opset_import[0].version = 21
    onnx.save(model, tmp_path / "model.onnx")
    assert "there is no attribute axes at opset 21" in check(tmp_path / "model.onnx", capfd)[1]


def test_models_that_onnx_ships_are_sound(capfd):
    models = sorted(SHIPPED.rglob("*.onnx"))
    assert len(models) > 100
    assert [text for code, text in (check(path, capfd) for path in models) if code] == []


@pytest.mark.full
def test_the_standards_own_examples_are_sound(tmp_path, capfd):
    """Every example of every operator at every opset: nothing is called a fault that is none."""
    from onnx.backend.test.case.node import collect_testcases

    found = []
    for case in collect_testcases(None):
        (tmp_path / "model.onnx").write_bytes(case.model.SerializeToString())
        code, text = check(tmp_path / "model.onnx", capfd)
        found += [(case.name, text)] if code else []
    assert found == []


@pytest.mark.parametrize("checked", ["0", "1"])
def test_what_a_plugin_emits_is_checked_before_it_is_written(monkeypatch, checked):
    monkeypatch.setenv("JAX2ONNX_CHECK_PASSES", checked)
    monkeypatch.setattr(
        plugins, "_registered", {"sinh": lambda ctx, equation: ctx.emit("Softmax", equation.inputs, axes=1)}
    )

    def program(x):
        return jnp.sinh(x) + 1

    line = program.__code__.co_firstlineno + 1
    with pytest.raises(Exception, match=rf"Softmax.*test_check.py:{line} .*there is no attribute axes"):
        to_onnx(program, [(2, 3)])
