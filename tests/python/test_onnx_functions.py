"""onnx_function: calls become nodes of functions of the model, and nothing else changes."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import threading
from dataclasses import fields

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import all_nodes, check_export, metadata
from flax import nnx

import jax2onnx
from jax2onnx import onnx_function, to_onnx

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
WEIGHT = jnp.linspace(-1.0, 1.0, 9).reshape(3, 3)


def functions(model: onnx.ModelProto) -> dict[str, onnx.FunctionProto]:
    assert len({(function.domain, function.name) for function in model.functions}) == len(model.functions)
    return {function.name: function for function in model.functions}


def calls(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.domain]


@onnx_function
def scaled(x, factor=2.0):
    """Doc."""
    return jnp.tanh(x @ WEIGHT) * factor


class Layer:
    def __init__(self, seed: int):
        self.kernel = jax.random.normal(jax.random.key(seed), (3, 3))
        self.bias = jnp.full(3, 0.5 * seed)

    def __call__(self, x):
        return jnp.tanh(x @ self.kernel + self.bias)


@onnx_function
class Block(Layer):
    pass


@onnx_function(unique=True, namespace="my.layers", name="Dense")
class SharedBlock(Layer):
    pass


class Stack:
    def __init__(self, kind, count: int = 3):
        self.layers = [kind(seed) for seed in range(1, count + 1)]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


# ---- what the model holds ----


def test_a_call_is_one_node_whose_weights_are_inputs():
    def model(x):
        return scaled(x) + 1.0

    exported = check_export(model, [X])
    (call,) = [node for node in exported.graph.node if node.op_type == "scaled"]
    assert call.domain == "custom"
    assert list(call.input) == ["in_0", "WEIGHT"]
    assert exported.graph.initializer[0].name == "WEIGHT"
    (function,) = exported.functions
    assert (function.name, function.domain) == ("scaled", "custom")
    assert function.input[1] == "WEIGHT"
    assert {(opset.domain, opset.version) for opset in exported.opset_import} == {("", 23), ("custom", 1)}
    assert ("", 23) in {(opset.domain, opset.version) for opset in function.opset_import}
    assert not [node for node in exported.graph.node if node.op_type in ("Tanh", "MatMul")]
    # The factor is a constant of its own.
    assert any(node.op_type == "Constant" for node in function.node)


def test_each_call_has_its_own_definition():
    exported = check_export(Stack(Block), [X])
    assert calls(exported) == ["Block", "Block_2", "Block_3"]
    assert list(functions(exported)) == ["Block", "Block_2", "Block_3"]
    assert list(functions(exported)["Block_2"].input)[1:] == ["layers.1.kernel", "layers.1.bias"]


def test_unique_calls_share_a_definition_whatever_their_weights():
    exported = check_export(Stack(SharedBlock), [X])
    assert calls(exported) == ["Dense", "Dense", "Dense"]
    (function,) = exported.functions
    assert (function.name, function.domain) == ("Dense", "my.layers")
    assert list(function.input)[1:] == ["kernel", "bias"]
    assert [list(node.input)[1:] for node in exported.graph.node] == [
        [f"layers.{index}.kernel", f"layers.{index}.bias"] for index in range(3)
    ]


def test_unique_calls_that_compute_something_else_do_not_share():
    @onnx_function(unique=True)
    def power(x, exponent):
        return x**exponent

    exported = check_export(lambda x: power(x, 2) + power(x, 3) + power(x, 2), [X])
    assert calls(exported) == ["power", "power_2", "power"]
    exported = check_export(lambda x: (power(x, 2), power(x[0], 2)), [X])
    assert calls(exported) == ["power", "power_2"]


def test_a_name_with_a_number_that_is_taken():
    @onnx_function(name="f_2")
    def first(x):
        return jnp.sin(x)

    @onnx_function(name="f")
    def second(x):
        return jnp.cos(x)

    exported = check_export(lambda x: first(x) + second(x) * second(x + 1) * second(x + 2), [X])
    assert calls(exported) == ["f_2", "f", "f_3", "f_4"]


def test_the_same_name_in_two_namespaces():
    @onnx_function(name="f", namespace="a")
    def first(x):
        return jnp.sin(x)

    @onnx_function(type="f", name="ignored", namespace="b")
    def second(x):
        return jnp.cos(x)

    exported = check_export(lambda x: first(x) + second(x), [X])
    assert {(function.domain, function.name) for function in exported.functions} == {("a", "f"), ("b", "f")}


def test_nested_functions():
    @onnx_function(unique=True)
    def outer(x, layer):
        return scaled(layer(x)) - jnp.abs(layer(x))

    layers = [Block(1), Block(2)]
    exported = check_export(lambda x: outer(outer(x, layers[0]), layers[1]), [X])
    # The definitions that came with the second call are not needed, and leave no gap.
    assert list(functions(exported)) == ["Block", "scaled", "Block_2", "outer"]
    assert calls(exported) == ["outer", "outer"]
    assert [node.op_type for node in functions(exported)["outer"].node if node.domain] == ["Block", "scaled", "Block_2"]
    weights = [list(node.input)[1:] for node in exported.graph.node]
    assert sorted(weights[0]) == ["layers.0.bias", "layers.0.kernel", "outer.scaled.WEIGHT"]
    assert sorted(functions(exported)["outer"].input)[:2] == ["bias", "kernel"]


def test_several_results_of_every_kind():
    @onnx_function
    def several(x, y):
        return {"sum": x + y, "list": [x, x, 3, None], "pair": (x * y, np.ones(2, np.float32), y)}

    def model(x, y):
        got = several(x, y)
        assert got["list"][2:] == [3, None]
        assert isinstance(got["pair"][1], np.ndarray)
        return got["sum"], got["list"][0], got["list"][1], got["pair"]

    exported = check_export(model, [X, X + 1])
    assert calls(exported) == ["several"]
    assert len(functions(exported)["several"].input) == 2


def test_results_that_jax_cannot_take_apart_and_functions_without_a_name():
    exported = check_export(lambda x: onnx_function(lambda y: {1: jnp.sin(y), "a": y + 1})(x)[1], [X])
    assert calls(exported) == ["lambda"]
    scaling = onnx_function(Stack(Layer))
    assert calls(check_export(lambda x: scaling(x), [X])) == ["Stack"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(scaling))(X), scaling(X))


def test_arguments_are_inputs_in_their_order_and_unused_ones_are_none():
    @onnx_function
    def picky(a, unused, b, *, c):
        return c - b * a

    exported = check_export(lambda c, b, a: picky(a, c, b, c=c), [X, X + 1, X + 2])
    (call,) = [node for node in exported.graph.node if node.domain]
    # c is an argument twice; it comes where it comes first among those that are looked at.
    assert sorted(call.input) == ["in_0", "in_1", "in_2"]
    assert call.input[0] == "in_2"
    exported = check_export(lambda a, b: picky(a, b, 2.0, c=1.0), [X, X + 1])
    (call,) = [node for node in exported.graph.node if node.domain]
    assert list(call.input) == ["in_0"]


def test_inputs_are_called_as_the_function_calls_them():
    @onnx_function
    def several(x, pair, *more, scale, **others):
        return x * pair[0]["a"] + pair[1] + more[0] * scale + others["other"]

    def model(a, b, c, d, e, f):
        return several(a, ({"a": b}, c), d, scale=e, other=f)

    (function,) = check_export(model, [X] * 6).functions
    assert list(function.input) == ["x", "pair.0.a", "pair.1", "more.0", "scale", "others.other"]
    layer = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    graph, state = nnx.split(layer)

    @onnx_function
    class Held(nnx.Module):
        def __init__(self, held):
            self.held = held

        def __call__(this, x):
            return this.held(x)

    exported = to_onnx(lambda x, state: Held(nnx.merge(graph, state))(x), [X, jax.tree.map(np.asarray, state)])
    assert list(exported.functions[0].input) == ["x", "held.bias", "held.kernel"]


def test_a_function_without_traced_arguments():
    @onnx_function
    def table():
        return jnp.arange(3.0) * 2 + WEIGHT

    exported = check_export(lambda x: x + table()[0], [X])
    assert calls(exported) == ["table"]


def test_dead_weights_and_results_are_dropped():
    unused = jnp.ones((50, 50))

    @onnx_function
    def wasteful(x):
        return x + 1, unused @ unused + x[0, 0]

    exported = check_export(lambda x: wasteful(x)[0] * 2, [X])
    assert not any(list(tensor.dims) == [50, 50] for tensor in exported.graph.initializer)
    (function,) = exported.functions
    assert len(function.input) == 1
    assert len(function.output) == 1


def test_a_call_whose_results_nobody_reads_is_not_there():
    def model(x):
        scaled(x)
        return x + 1

    assert not check_export(model, [X]).functions


# ---- symbolic sizes ----


def test_sizes_are_found_in_the_function():
    @onnx_function
    def flattened(x):
        return jnp.reshape(x, (x.shape[0] * 2, -1)) + jnp.arange(x.shape[0] * 2)[:, None]

    more = np.ones((5, 4, 3), np.float32)
    exported = check_export(
        lambda x: flattened(x) * 2, [np.ones((2, 4, 3), np.float32)], specs=[("B", 4, 3)], more_args=[[more]]
    )
    assert len(functions(exported)["flattened"].input) == 1


def test_sizes_that_no_argument_tells_are_handed_in():
    @onnx_function
    def outer(x, size):
        @onnx_function
        def inner(y):
            return y[None] + jnp.arange(size * 2, dtype=jnp.float32)[:, None]

        return inner(x[0]) * 2

    exported = check_export(
        lambda x, z: outer(x, z.shape[0]) + outer(x, z.shape[0]),
        [X, np.ones(2, np.float32)],
        specs=[(2, 3), ("N",)],
        more_args=[[X, np.ones(4, np.float32)]],
    )
    assert list(functions(exported)["outer"].input)[1:] == ["size_N"]


# ---- libraries ----


@onnx_function(unique=True)
class NnxBlock(nnx.Module):
    """A block."""

    def __init__(self, width: int, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(width, width, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)

    def __call__(self, x):
        return nnx.gelu(self.linear(self.norm(x)))


class NnxNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.blocks = nnx.List([NnxBlock(3, rngs=rngs) for _ in range(3)])

    def __call__(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


def test_nnx_modules():
    net = NnxNet(nnx.Rngs(0))
    exported = check_export(net, [X], specs=[("B", 3)], more_args=[[np.ones((5, 3), np.float32)]])
    assert calls(exported) == ["NnxBlock"] * 3
    assert sorted(functions(exported)["NnxBlock"].input) == [
        "linear.bias",
        "linear.kernel",
        "norm.bias",
        "norm.scale",
        "x",
    ]
    assert "blocks.1.linear.kernel" in {tensor.name for tensor in exported.graph.initializer}


@onnx_function
class LinenBlock(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.relu(nn.Dense(self.width)(x))


class LinenSetup(nn.Module):
    def setup(self):
        self.first = LinenBlock(4)
        self.second = LinenBlock(3)

    def __call__(self, x):
        return self.second(self.first(x))


def test_linen_modules():
    net = LinenSetup()
    variables = net.init(jax.random.key(0), X)
    exported = check_export(lambda x: net.apply(variables, x), [X])
    assert calls(exported) == ["LinenBlock", "LinenBlock_2"]
    assert "first.Dense_0.kernel" in {tensor.name for tensor in exported.graph.initializer}
    exported = check_export(net.bind(variables), [X])
    assert calls(exported) == ["LinenBlock", "LinenBlock_2"]


def test_linen_module_whose_parameters_are_inputs():
    net = LinenSetup()
    variables = net.init(jax.random.key(0), X)
    exported = to_onnx(lambda x, variables: net.apply(variables, x), [X, variables])
    assert calls(exported) == ["LinenBlock", "LinenBlock_2"]
    assert not exported.graph.initializer


@onnx_function
class EqxBlock(eqx.Module):
    linear: eqx.nn.Linear
    scale: float = eqx.field(static=True, default=2.0)

    def __call__(self, x):
        return jax.nn.silu(self.linear(x)) * self.scale


def test_equinox_modules_and_vmap():
    block = EqxBlock(eqx.nn.Linear(3, 3, key=jax.random.key(0)))
    assert [field.name for field in fields(EqxBlock)] == ["linear", "scale"]
    assert len(jax.tree.leaves(eqx.filter(block, eqx.is_array))) == 2
    exported = check_export(
        lambda x: jax.vmap(block)(x), [X], specs=[("B", 3)], more_args=[[np.ones((4, 3), np.float32)]]
    )
    assert calls(exported) == ["EqxBlock"]
    assert set(functions(exported)["EqxBlock"].input[1:]) == {"linear.weight", "linear.bias"}
    exported = check_export(lambda x: eqx.filter_vmap(eqx.filter_jit(block))(x), [X])
    assert calls(exported) == ["EqxBlock"]


def test_state_that_a_module_changes_leaves_the_function():
    @onnx_function
    class Counter(nnx.Module):
        def __init__(self):
            self.count = nnx.Variable(jnp.zeros(()))

        def __call__(self, x):
            self.count[...] = self.count[...] + x.sum()
            return x * self.count[...]

    class Net(nnx.Module):
        def __init__(self):
            self.counter = Counter()

        def __call__(self, x):
            y = self.counter(self.counter(x))
            return y, self.counter.count[...]

    def model(x):
        return Net()(x)

    exported = check_export(model, [X])
    assert calls(exported) == ["Counter", "Counter_2"]
    assert all(len(function.output) == 2 for function in exported.functions)


def test_batch_norm_and_dropout_inside():
    @onnx_function
    class Regular(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.norm = nnx.BatchNorm(3, use_running_average=True, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, deterministic=True, rngs=rngs)

        def __call__(self, x):
            return self.dropout(self.norm(x))

    exported = check_export(Regular(nnx.Rngs(0)), [X])
    assert calls(exported) == ["Regular"]


def test_methods_and_other_callables():
    class Model:
        weight = WEIGHT

        @onnx_function
        def encode(self, x):
            return x @ self.weight

        @onnx_function(name="Decoder")
        @staticmethod
        def decode(x):
            return jnp.tanh(x)

        @staticmethod
        @onnx_function
        def last(x):
            return x + 1

        @onnx_function
        @classmethod
        def of_class(cls, x):
            return x * cls.weight[0]

        def __call__(self, x):
            return self.last(self.decode(self.of_class(self.encode(x))))

    class Called:
        @onnx_function
        def __call__(self, x):
            return jnp.exp(x)

    @onnx_function
    @jax.jit
    def jitted(x):
        return jnp.cos(x)

    model = Model()
    exported = check_export(lambda x: Called()(jitted(model(x))), [X])
    assert sorted(calls(exported)) == ["Called", "Decoder", "encode", "jitted", "last", "of_class"]
    assert jitted.lower(X) is not None
    np.testing.assert_allclose(jitted(X), np.cos(X), rtol=1e-6)


def test_a_subclass_inherits_the_function():
    class Doubled(Block):
        def __call__(self, x):
            return super().__call__(x) * 2

    exported = check_export(Doubled(1), [X])
    assert calls(exported) == ["Block"]

    @onnx_function
    class Renamed(Block):
        pass

    exported = check_export(Renamed(1), [X])
    assert calls(exported) == ["Renamed"]
    assert list(functions(exported)) == ["Renamed"]


# ---- transformations and control flow ----


def test_inside_loops_and_branches():
    layer = SharedBlock(1)

    def model(x):
        y, rows = jax.lax.scan(lambda carry, row: (layer(carry), layer(row)), x, jnp.stack([x, x + 1]))
        z = jax.lax.cond(x[0, 0] > 0, lambda v: scaled(v), lambda v: scaled(v, 3.0), y)
        w = jax.lax.while_loop(lambda v: jnp.sum(v) < 10, lambda v: scaled(jnp.abs(v)) + 1, z)
        return jax.lax.fori_loop(0, 3, lambda i, v: layer(v) + i, w), rows

    exported = check_export(model, [X])
    names = [node.op_type for node in all_nodes(exported) if node.domain]
    assert names.count("Dense") == 3
    assert sorted(functions(exported)) == ["Dense", "scaled", "scaled_2", "scaled_3"]


def test_derivatives():
    def loss(x):
        return jnp.sum(scaled(scaled(x)) ** 2)

    exported = check_export(jax.grad(loss), [X], rtol=1e-4, atol=1e-5)
    # What the derivative needs of the function's inside is one more result.
    assert calls(exported) == ["scaled", "scaled_2"]
    assert any(len(function.output) > 1 for function in exported.functions)
    exported = check_export(lambda x: jax.jvp(loss, (x,), (x,)), [X], rtol=1e-4, atol=1e-5)
    assert "scaled" in calls(exported)
    exported = check_export(jax.grad(jax.checkpoint(loss)), [X], rtol=1e-4, atol=1e-5)
    assert "scaled" in calls(exported)
    exported = check_export(jax.jacfwd(scaled), [X[0]], rtol=1e-4, atol=1e-5)
    assert "scaled" in calls(exported)
    check_export(jax.hessian(loss), [X[:1]], rtol=1e-3, atol=1e-4)

    def looped(x):
        return jnp.sum(jax.lax.scan(lambda carry, _: (scaled(carry), None), x, None, length=3)[0])

    exported = check_export(jax.grad(looped), [X], rtol=1e-4, atol=1e-5)
    assert "scaled" in functions(exported)


def test_batches():
    @onnx_function
    def normalized(row, shift):
        return row / jnp.linalg.norm(row) + shift

    exported = check_export(jax.vmap(normalized, in_axes=(0, None)), [X, np.float32(2)])
    assert calls(exported) == ["normalized"]
    exported = check_export(
        jax.vmap(jax.vmap(normalized), in_axes=1, out_axes=1), [np.stack([X, X]), np.stack([X, X])[..., 0]]
    )
    assert calls(exported) == ["normalized"]
    # Nothing of it is batched.
    exported = check_export(lambda x: jax.vmap(lambda row: row + normalized(X[0], 1.0))(x), [X])
    assert calls(exported) == ["normalized"]


def test_a_program_traced_before_the_export_is_traced_again_for_it():
    @jax.jit
    def jitted(x):
        return scaled(x) * 2

    before = jitted(X)
    assert calls(check_export(lambda x: jitted(jitted(x)), [X])) == ["scaled", "scaled_2"]
    assert "onnx_function" not in str(jax.make_jaxpr(jitted)(X))
    np.testing.assert_array_equal(jitted(X), before)


def test_a_call_that_raises_is_left():
    @onnx_function
    def failing(x):
        y = jnp.sin(x)
        if x.ndim == 2:
            raise ValueError("two")
        return y

    @onnx_function
    def outer(x):
        try:
            return failing(x)
        except ValueError:
            return failing(x[0]) + jnp.cos(x)

    exported = check_export(outer, [X])
    assert sorted(functions(exported)) == ["failing", "outer"]
    with pytest.raises(ValueError, match="two"):
        to_onnx(failing, [X])
    assert not jax2onnx._door.functions._exporting.get()


def test_random_keys_and_64_bits():
    @onnx_function
    def noisy(key, x):
        return x + jax.random.uniform(key, x.shape, dtype=x.dtype)

    exported = check_export(lambda x: noisy(jax.random.key(3), x), [X])
    assert calls(exported) == ["noisy"]

    def model(seed, x):
        first, second = jax.random.split(jax.random.key(seed))
        return noisy(first, x) + noisy(second, x)

    check_export(model, [np.int32(5), X])
    check_export(lambda x: scaled(x.astype(jnp.float64)), [X.astype(np.float64)], x64=True)


def test_complex_numbers():
    weight = jnp.asarray(np.exp(1j * np.arange(48)).astype(np.complex64).reshape(8, 6))
    vector = jnp.asarray(np.exp(1j * np.arange(3)).astype(np.complex64))

    @onnx_function(unique=True)
    def rotated(z, factor):
        return jnp.fft.fft(z * factor) @ weight

    def model(x):
        z = x * vector[0] + 1j
        return jnp.abs(rotated(z, vector[1])) + rotated(z, 2.0).real

    exported = check_export(model, [np.ones((2, 8), np.float32)], rtol=1e-4, atol=1e-4)
    assert calls(exported) == ["rotated", "rotated_2"]
    assert "weight" in [tensor.name.split(".")[-1] for tensor in exported.graph.initializer]


@pytest.mark.parametrize("opset", [17, 19, 21, 26])
def test_operator_sets(opset):
    exported = check_export(NnxNet(nnx.Rngs(0)), [X], opset=opset)
    assert {(entry.domain, entry.version) for entry in exported.functions[0].opset_import} == {
        ("", opset),
        ("custom", 1),
    }


@pytest.mark.parametrize("mode", ["prefer_native", "force_decomposed"])
def test_normalization_mode(mode):
    exported = check_export(NnxNet(nnx.Rngs(0)), [X], normalization_mode=mode)
    native = any(node.op_type == "LayerNormalization" for node in functions(exported)["NnxBlock"].node)
    assert native == (mode == "prefer_native")


# ---- provenance ----


def line_of(function, text):
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    return first + next(index for index, line in enumerate(lines) if text in line)


def test_the_call_has_the_callers_line_and_the_inside_its_own():
    layer = Block(1)

    def model(x):
        y = scaled(x)
        return layer(y) + scaled(y)

    exported = check_export(model, [X])
    name = model.__qualname__
    lines = [metadata(node)["pkg.jax2onnx.callsite"] for node in exported.graph.node if node.domain]
    first, second = line_of(model, "y = scaled"), line_of(model, "return layer")
    assert lines == [f"{name}:{first}", f"{name}:{second}", f"{name}:{second}"]
    inside = line_of(scaled, "return jnp.tanh")
    for node in functions(exported)["scaled"].node:
        entries = metadata(node)
        assert entries["pkg.jax2onnx.callsite"] == f"scaled:{inside}"
        assert "OnnxFunctionPlugin.lower" in entries["pkg.jax2onnx.stacktrace"]
        assert f":{first} ({name})" in entries["pkg.jax2onnx.jax_traceback"]
        assert f":{second} ({name})" not in entries["pkg.jax2onnx.jax_traceback"]
    call = next(node for node in exported.graph.node if node.domain)
    assert metadata(call)["pkg.jax2onnx.plugin"].startswith("OnnxFunctionPlugin.lower:")


def test_a_shared_definition_names_all_its_callers():
    @onnx_function(unique=True)
    def shared(x):
        return jnp.sin(x)

    def model(x):
        y = shared(x)
        return shared(y)

    exported = check_export(model, [X])
    (function,) = exported.functions
    trace = metadata(function.node[0])["pkg.jax2onnx.jax_traceback"]
    for text in ("y = shared", "return shared"):
        assert f":{line_of(model, text)} ({model.__qualname__})" in trace


def test_an_error_inside_names_the_line_inside():
    @onnx_function
    def refused(x):
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(jax2onnx.UnsupportedError) as error:
        to_onnx(lambda x: refused(x), [np.ones((3, 3), np.float32)])
    assert f"line {line_of(refused, 'callback')}, in {refused.__qualname__}" in str(error.value)


def test_the_same_bytes_every_time_and_in_threads():
    net = NnxNet(nnx.Rngs(0))
    model = Stack(Block)
    expected = [to_onnx(fn, [X]).SerializeToString() for fn in (net, model)]
    assert expected == [to_onnx(fn, [X]).SerializeToString() for fn in (net, model)]
    results: list[bool] = []

    def work(fn, bytes_expected):
        for _ in range(5):
            # Outside an export in this thread, whatever the others do.
            assert "onnx_function" not in str(jax.make_jaxpr(fn)(X))
            results.append(to_onnx(fn, [X]).SerializeToString() == bytes_expected)

    threads = [threading.Thread(target=work, args=pair) for pair in zip((net, model), expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 10


# ---- outside an export nothing is different ----


def test_functions_stay_what_they_were():
    assert scaled.__name__ == "scaled"
    assert scaled.__doc__ == "Doc."
    assert list(inspect.signature(scaled).parameters) == ["x", "factor"]
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    np.testing.assert_allclose(scaled(X), np.tanh(X @ np.asarray(WEIGHT)) * 2, rtol=1e-5)
    plain = scaled.__wrapped__
    for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum()), jax.make_jaxpr):
        assert str(transform(scaled)(X)) == str(transform(plain)(X))


def test_classes_stay_what_they_were():
    class Plain(Layer):
        """Said."""

        def __call__(self, x: jax.Array, *, twice: bool = False) -> jax.Array:
            return super().__call__(x)

    call = Plain.__call__
    assert onnx_function(Plain) is Plain
    assert (Plain.__name__, Plain.__doc__, Plain.__module__) == ("Plain", "Said.", __name__)
    assert inspect.signature(Plain.__call__) == inspect.signature(call)
    assert issubclass(Plain, Layer)
    assert isinstance(Plain(1), Plain)
    restored = pickle.loads(pickle.dumps(SharedBlock(2)))
    assert type(restored) is SharedBlock
    np.testing.assert_array_equal(restored(X), SharedBlock(2)(X))


def test_module_machinery_stays():
    block = EqxBlock(eqx.nn.Linear(3, 3, key=jax.random.key(0)))
    assert pickle.loads(pickle.dumps(block)).scale == 2.0
    gradient = eqx.filter_grad(lambda b, x: b(x).sum())(block, X[0])
    assert gradient.linear.weight.shape == (3, 3)
    assert eqx.tree_equal(block, jax.tree.map(lambda leaf: leaf, block))
    net = NnxNet(nnx.Rngs(0))
    graph, state = nnx.split(net)
    np.testing.assert_array_equal(nnx.merge(graph, state)(X), net(X))
    assert nnx.jit(lambda m, x: m(x))(net, X).shape == X.shape
    assert NnxBlock.__doc__ == "A block."
    linen = LinenSetup()
    variables = linen.init(jax.random.key(0), X)
    assert set(variables["params"]) == {"first", "second"}
    assert fields(LinenBlock)[0].name == "width"
    assert LinenBlock(4) == LinenBlock(4)
    assert jax.jit(linen.apply)(variables, X).shape == X.shape
    assert nn.tabulate(linen, jax.random.key(0))(X)


def test_decorating_again():
    @onnx_function(name="Twice", namespace="once")
    def twice(x):
        return x

    assert onnx_function(twice) is twice
    assert onnx_function(name="Twice", namespace="once")(twice) is twice
    assert onnx_function(SharedBlock, unique=True) is SharedBlock
    with pytest.raises(ValueError, match="name 'Twice'"):
        onnx_function(twice, name="Other")
    with pytest.raises(ValueError, match="name 'Twice'"):
        onnx_function(twice, type="Other")
    with pytest.raises(ValueError, match="namespace 'once'"):
        onnx_function(twice, namespace="other")
    with pytest.raises(ValueError, match=r"namespace 'my\.layers'"):
        onnx_function(SharedBlock, namespace="other")


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"target": 3}, TypeError, "function or a class"),
        ({"target": object}, TypeError, "no __call__"),
        ({"target": scaled, "name": 3}, TypeError, "name must be a string"),
        ({"target": scaled, "name": ""}, ValueError, "name must be"),
        ({"target": scaled, "namespace": ""}, ValueError, "namespace"),
        ({"target": scaled, "namespace": "ai.onnx"}, ValueError, "is reserved for ONNX"),
        ({"target": scaled, "type": "a\nb"}, ValueError, "type must be"),
    ],
)
def test_settings_that_cannot_be(arguments, kind, message):
    with pytest.raises(kind, match=message):
        onnx_function(**arguments)


def test_a_function_that_is_first_decorated_while_it_is_traced():
    """In a process of its own: no other function was decorated before."""
    code = """if True:
        import jax.numpy as jnp
        from jax2onnx import onnx_function, to_onnx
        fn = lambda x: onnx_function(jnp.sin, name="Wave")(x) + 1
        print([[function.name for function in to_onnx(fn, [(2,)]).functions] for _ in range(2)])
    """
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[['Wave'], ['Wave']]"
