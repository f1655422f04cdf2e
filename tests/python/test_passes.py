"""Passes over whole exports: fewer nodes, the same numbers, all provenance."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import all_nodes, check_export, metadata, op_types
from jax import lax

from jax2onnx import _core, to_onnx

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def exported(fn, *args, **options):
    return sorted(op_types(check_export(fn, args or [X], **options)))


def test_transposes_and_reshapes_cancel():
    assert exported(lambda x: jnp.sin(x.T).T) == ["Sin"]
    assert exported(lambda x: jnp.sin(x.T.T)) == ["Sin"]
    assert exported(lambda x: jnp.sin(x.reshape(3, 2).reshape(6).reshape(2, 3))) == ["Sin"]
    assert exported(lambda x: jnp.sin(jnp.squeeze(x[None], 0))) == ["Sin"]
    assert exported(lambda x: jnp.sin(x.reshape(6).reshape(3, 2))) == ["Reshape", "Sin"]


def test_a_transpose_that_others_keep_is_named_by_all_who_do_its_work():
    def fn(x):
        turned = jnp.sin(x).reshape(1, 2, 3).transpose(2, 0, 1)
        return jnp.cos(turned.transpose(1, 0, 2)), jnp.tan((turned * 1).transpose(2, 1, 0))

    model = check_export(fn, [X])
    transposes = [metadata(node)["pkg.jax2onnx.jax_traceback"] for node in all_nodes(model) if "Trans" in node.op_type]
    line = fn.__code__.co_firstlineno + 1
    assert len(transposes) == 2 and all(f"{__file__}:{line} " in trace for trace in transposes)


def test_a_constant_that_was_spread_and_shrunk_is_named_by_both_lines():
    def fn(x):
        row = lax.stop_gradient(jnp.full((3,), 0.5))
        spread = jnp.broadcast_to(row, (2, 3))
        return jnp.where(x > 0, spread, x)

    model = check_export(fn, [X])
    (where,) = (node for node in all_nodes(model) if node.op_type == "Where")
    trace = metadata(where)["pkg.jax2onnx.jax_traceback"]
    first = fn.__code__.co_firstlineno
    assert f"{__file__}:{first + 2} " in trace and f"{__file__}:{first + 3} " in trace


def test_what_gives_back_its_input_is_an_identity():
    assert exported(lambda x: x.T.T) == ["Identity"]
    assert exported(lambda x: (x, x)) == ["Identity", "Identity"]
    assert exported(lambda x: x.astype(np.float32).reshape(2, 3)) == ["Identity"]


def test_two_outputs_of_one_value_are_two():
    model = check_export(lambda x: (jnp.sin(x), jnp.sin(x)), [X])
    assert sorted(op_types(model)) == ["Identity", "Sin"]
    assert [value.name for value in model.graph.output] == ["out_0", "out_1"]


def test_neutral_elements():
    assert exported(lambda x: jnp.sin(x) * 1.0 - 0.0) == ["Sin"]
    signed = np.array([-0.0, 0.0, 1.0], np.float32)
    model = check_export(lambda x: 1 / (x + 0.0), [signed])
    assert "Add" in op_types(model)


def test_neutral_elements_that_are_larger_than_what_they_leave_alone():
    row = np.array([True, False, True])
    everything, nothing = (lambda: jnp.ones((2, 3), bool)), (lambda: jnp.zeros((2, 3), bool))
    assert exported(lambda m, x: jnp.where(m & everything(), x, 0.5), row, X) == ["Where"]
    assert exported(lambda m, x: jnp.where((m & nothing()) | m, x, 0.5), row, X) == ["Where"]
    assert exported(lambda m: m & everything(), row) == ["And"]
    spread = exported(lambda x: x - jnp.zeros((x.shape[0], 3))[:, ::1], specs=[("B", 3)])
    assert spread == ["Identity"]
    uneven = np.array([[True, True, True], [True, False, True]])
    assert exported(lambda m, x: jnp.where(m & uneven, x, 0.5), row, X) == ["And", "Where"]


def test_a_constant_of_equal_elements_is_one_element():
    model = check_export(lambda x: jnp.where(x > 0, x, np.full((2, 3), 0.5, np.float32)), [X])
    assert all(not tensor.dims for tensor in model.graph.initializer)
    model = check_export(lambda x: x[0] + np.full((2, 3), 0.5, np.float32), [X])
    assert any(list(tensor.dims) == [2, 3] for tensor in model.graph.initializer)


def test_a_bias_is_added_without_being_expanded():
    bias = np.arange(3, dtype=np.float32)
    assert exported(lambda x: x + bias) == ["Add"]
    more = [[np.ones((5, 3), np.float32)]]
    assert exported(lambda x: x + bias, X, specs=[("B", 3)], more_args=more) == ["Add"]
    assert exported(lambda x: x - jnp.sum(x, axis=1, keepdims=True), X, specs=[("B", 3)], more_args=more) == [
        "ReduceSum",
        "Sub",
    ]


def test_the_same_line_twice_is_computed_once_and_both_are_named():
    def fn(x):
        a = jnp.exp(x)
        b = jnp.exp(x)
        return a * b

    model = check_export(fn, [X])
    assert sorted(op_types(model)) == ["Exp", "Mul"]
    first = fn.__code__.co_firstlineno + 1
    (exp,) = (node for node in model.graph.node if node.op_type == "Exp")
    trace = metadata(exp)["pkg.jax2onnx.jax_traceback"]
    assert f":{first} (" in trace and f":{first + 1} (" in trace
    assert metadata(exp)["pkg.jax2onnx.callsite"].endswith(f":{first}")


EDGES = np.array([np.nan, -np.inf, np.inf, -0.0, 0.0, 1e-30, 3.4e38, -1.5, 2.5], np.float32)
INTEGERS = np.array([-(2**31), 2**31 - 1, -7, -1, 0, 1, 7, 100], np.int32)

FOLDED = {
    "float arithmetic": lambda: (v := jnp.asarray(EDGES)) * 2 + v / 3 - v,
    "float unary": lambda: jnp.stack([jnp.abs(v := jnp.asarray(EDGES)), -v, jnp.floor(v), jnp.ceil(v), jnp.round(v)]),
    "float order": lambda: jnp.stack([jnp.maximum(v := jnp.asarray(EDGES), 0.5), jnp.minimum(v, 0.5)]),
    "float comparison": lambda: jnp.stack([(v := jnp.asarray(EDGES)) < 0, v <= 0, v == 0, v != 0, v > 0, v >= 0]),
    "transcendental": lambda: jnp.stack([jnp.exp(v := jnp.linspace(-3.0, 3.0, 7)), jnp.sin(v), jnp.tanh(v)]),
    "integer arithmetic": lambda: (v := jnp.asarray(INTEGERS)) * v + v - 3 * v,
    "integer division": lambda: jnp.stack([(v := jnp.asarray(INTEGERS)) // 3, v % 3, lax.div(v, 7), lax.rem(v, 7)]),
    "bits": lambda: ((v := jnp.asarray(INTEGERS)) & 12) | (v ^ 5),
    "casts": lambda: jnp.asarray(INTEGERS).astype(jnp.int8).astype(jnp.float16).astype(jnp.bfloat16).astype(float),
    "where": lambda: jnp.where(jnp.arange(6).reshape(2, 3) % 2 == 0, jnp.arange(3.0), -1.0),
    "movement": lambda: jnp.tile(jnp.pad(jnp.arange(6).reshape(2, 3).T, ((1, 0), (0, 2)))[::-1, 1:], (2, 1)),
    "pieces": lambda: jnp.concatenate([jnp.arange(3), jnp.arange(4)[np.array([3, -1, 0])]])[None],
    "reductions": lambda: jnp.stack([jnp.sum(v := jnp.arange(6).reshape(2, 3), 0), jnp.max(v, 0), jnp.min(v, 0)]),
    "running sum": lambda: jnp.cumsum(jnp.arange(6.0).reshape(2, 3), axis=1),
    "triangle": lambda: jnp.tril(jnp.ones((4, 4), bool), 1),
    "empty": lambda: jnp.sum(jnp.zeros((0, 3)), axis=0) + jnp.arange(3.0),
}


@pytest.mark.parametrize("name", FOLDED)
def test_constants_are_computed_at_export(name):
    model = check_export(lambda x: (x, FOLDED[name]()), [X])
    assert set(op_types(model)) == {"Identity"}, op_types(model)


def test_integer_division_by_a_constant_zero_gives_what_jax_gives():
    check_export(lambda x: (x, lax.div(jnp.arange(3), jnp.zeros(3, jnp.int32))), [X])


def test_large_constants_are_not_stored_in_place_of_small_ones():
    model = to_onnx(lambda x: x + jnp.arange(100_000.0) * 2, [(100_000,)])
    assert len(model.SerializeToString()) < 10_000


def test_stacked_weights_are_stored_apart():
    stacked = jnp.asarray(np.random.default_rng(0).standard_normal((2, 40, 40)), jnp.float32)
    x = np.ones((3, 40), np.float32)
    assert exported(lambda x: jnp.sin(x @ stacked[0]) @ stacked[1], x) == ["MatMul", "MatMul", "Sin"]
    kept = exported(lambda x: (jnp.sin(x @ stacked[0]) @ stacked[1], stacked * x[0]), x)
    assert kept.count("Gather") >= 2


def test_a_transposed_weight_is_stored_transposed():
    weight = np.arange(50_000, dtype=np.float32).reshape(250, 200)
    model = check_export(lambda x: x @ jnp.transpose(weight), [np.ones((2, 200), np.float32)])
    assert op_types(model) == ["MatMul"]
    twice = check_export(lambda x: (x @ jnp.transpose(weight)) @ weight, [np.ones((2, 200), np.float32)], rtol=1e-3)
    assert len(twice.SerializeToString()) < 1.5 * weight.nbytes


def test_symbolic_sizes_are_not_taken_for_constants():
    def fn(x):
        return x.reshape(x.shape[0] * 3).reshape(x.shape[0], 3) * x.shape[1] + jnp.arange(x.shape[0])[:, None]

    check_export(fn, [X], specs=[("B", 3)], more_args=[[np.ones((1, 3), np.float32)], [np.ones((4, 3), np.float32)]])


def test_passes_are_listed_and_can_be_disabled(monkeypatch):
    names = list(_core.passes())
    assert {"remove_dead_code", "remove_no_ops", "fold_constants", "merge_common_nodes"} <= set(names)
    monkeypatch.setenv("JAX2ONNX_DISABLE_PASSES", "merge_common_nodes, remove_no_ops")
    assert op_types(check_export(lambda x: jnp.exp(x) * jnp.exp(x), [X])) == ["Exp", "Exp", "Mul"]
    monkeypatch.setenv("JAX2ONNX_DISABLE_PASSES", "remove_everything")
    with pytest.raises(ValueError, match="remove_everything"):
        to_onnx(jnp.sin, [X])


@pytest.mark.parametrize("disabled", list(_core.passes()))
def test_an_export_is_right_without_any_one_pass(monkeypatch, disabled):
    monkeypatch.setenv("JAX2ONNX_DISABLE_PASSES", disabled)
    check_export(lambda x: jax.nn.softmax(x.T.reshape(2, 3)) + jnp.exp(jnp.arange(3.0)) * jnp.exp(x), [X])


def test_steps_are_dumped_as_text(monkeypatch, tmp_path):
    monkeypatch.setenv("JAX2ONNX_DUMP_PASSES", str(tmp_path / "steps"))
    dumped = to_onnx(lambda x: jnp.exp(x.T.T) * jnp.exp(x), [X])
    monkeypatch.delenv("JAX2ONNX_DUMP_PASSES")
    assert dumped == to_onnx(lambda x: jnp.exp(x.T.T) * jnp.exp(x), [X])
    texts = {path.name: path.read_text() for path in (tmp_path / "steps").iterdir()}
    assert "Transpose" in texts["00_lowered.onnx.txt"]
    assert any(name.endswith("_remove_no_ops.onnx.txt") for name in texts)
    assert "Transpose" not in texts[max(texts)]


def test_every_node_is_named_by_a_line_of_the_function():
    def fn(x):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-6)

    batch = {"specs": [("B", 3)], "more_args": [[np.ones((4, 3), np.float32)]]}
    model = check_export(fn, [X], **batch, normalization_mode="force_decomposed")
    first = fn.__code__.co_firstlineno
    lines = {int(metadata(node)["pkg.jax2onnx.callsite"].rsplit(":", 1)[1]) for node in all_nodes(model)}
    assert lines == {first + 1, first + 2, first + 3}
    assert isinstance(model, onnx.ModelProto)
