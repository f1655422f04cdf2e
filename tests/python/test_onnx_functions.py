"""onnx_function: calls become nodes of functions of the model, and nothing else changes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from export_check import check_export

from jax2onnx import onnx_function

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
    assert list(call.input) == ["in_0", "scaled.WEIGHT"]
    assert exported.graph.initializer[0].name == "scaled.WEIGHT"
    (function,) = exported.functions
    assert (function.name, function.domain) == ("scaled", "custom")
    assert function.input[1] == "scaled.WEIGHT"
    assert {(opset.domain, opset.version) for opset in exported.opset_import} == {("", 23), ("custom", 1)}
    assert ("", 23) in {(opset.domain, opset.version) for opset in function.opset_import}
    assert not [node for node in exported.graph.node if node.op_type in ("Tanh", "MatMul")]
    # The factor is a constant of its own.
    assert any(node.op_type == "Constant" for node in function.node)


def test_each_call_has_its_own_definition():
    exported = check_export(Stack(Block), [X])
    assert calls(exported) == ["Block", "Block_2", "Block_3"]
    assert list(functions(exported)) == ["Block", "Block_2", "Block_3"]
    assert list(functions(exported)["Block_2"].input)[1:] == ["1.kernel", "1.bias"]


def test_unique_calls_share_a_definition_whatever_their_weights():
    exported = check_export(Stack(SharedBlock), [X])
    assert calls(exported) == ["Dense", "Dense", "Dense"]
    (function,) = exported.functions
    assert (function.name, function.domain) == ("Dense", "my.layers")
    assert list(function.input)[1:] == ["kernel", "bias"]
    assert [list(node.input)[1:] for node in exported.graph.node] == [
        [f"{index}.kernel", f"{index}.bias"] for index in range(3)
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
    assert sorted(functions(exported)["outer"].input)[:2] == ["bias", "in"]


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
