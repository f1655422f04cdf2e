"""plugin: primitives of the user's own, lowered by a Python function."""

from __future__ import annotations

import gc
import inspect
import re
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from export_check import all_nodes, check_export, metadata, stripped
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

import jax2onnx
from jax2onnx import PluginError, UnsupportedError, onnx_function, plugin, to_onnx
from jax2onnx._door import plugins

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """Each test registers for itself."""
    monkeypatch.setattr(plugins, "_registered", dict(plugins._registered))


def primitive_of(name, function, several=False):
    """A primitive that computes what the function of other primitives does."""
    made = Primitive(name)
    made.multiple_results = several
    made.def_impl(function)

    def types(*avals, **params):
        shapes = jax.eval_shape(
            lambda *values: function(*values, **params),
            *(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals),
        )
        made_types = [jax.core.ShapedArray(kind.shape, kind.dtype) for kind in jax.tree.leaves(shapes)]
        return made_types if several else made_types[0]

    made.def_abstract_eval(types)
    mlir.register_lowering(made, mlir.lower_fun(function, multiple_results=several))
    return made


swish_p = primitive_of("my_swish", lambda x, *, beta: x * jax.nn.sigmoid(beta * x))
split_p = primitive_of("my_split", lambda x: [jnp.sin(x), jnp.cos(x)[0]], several=True)


def swish(x, beta=2.0):
    return swish_p.bind(x, beta=beta)


def lower_my_swish(ctx, equation):
    (x,) = equation.inputs
    gate = ctx.emit("Sigmoid", [ctx.emit("Mul", [x, equation.params["beta"]])])
    return ctx.emit("Mul", [x, gate])


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)


# ---- what is emitted ----


def test_nodes_and_their_provenance():
    assert plugin("my_swish")(lower_my_swish) is lower_my_swish

    def model(x):
        return swish(x) + 1

    exported = check_export(model, [X])
    assert [node.op_type for node in exported.graph.node] == ["Mul", "Sigmoid", "Mul", "Add"]
    first, last = line_of(lower_my_swish, "gate ="), line_of(lower_my_swish, "return")
    entries = [metadata(node) for node in exported.graph.node]
    assert [entry["pkg.jax2onnx.plugin"] for entry in entries[:3]] == [
        f"lower_my_swish:{first}",
        f"lower_my_swish:{first}",
        f"lower_my_swish:{last}",
    ]
    assert entries[2]["pkg.jax2onnx.stacktrace"].endswith(f"{__file__}:{last} in lower_my_swish")
    assert entries[0]["pkg.jax2onnx.callsite"] == f"swish:{line_of(swish, 'bind')}"
    assert f":{line_of(model, 'return')} ({model.__qualname__})" in entries[0]["pkg.jax2onnx.jax_traceback"]


def test_helpers_of_a_plugin_are_in_the_stack():
    def helper(ctx, x):
        return ctx.emit("Sin", [x])

    @plugin("my_swish")
    def lower(ctx, equation):
        return helper(ctx, helper(ctx, equation.inputs[0]))

    exported = to_onnx(swish, [X], stacktrace_metadata="full")
    entries = [metadata(node) for node in exported.graph.node]
    assert all(entry["pkg.jax2onnx.plugin"].startswith(f"{helper.__qualname__}:") for entry in entries)
    inside, outside = line_of(helper, "emit"), line_of(lower, "return")
    assert entries[0]["pkg.jax2onnx.stacktrace"].endswith(
        f"{__file__}:{outside} in {lower.__qualname__}\n{__file__}:{inside} in {helper.__qualname__}"
    )


def test_several_outputs_and_the_primitive_itself_as_name():
    @plugin(split_p)
    def lower_my_split(ctx, equation):
        (x,) = equation.inputs
        sine, cosine = equation.outputs
        whole = ctx.emit("Cos", [x], shape=x.shape)
        row = ctx.emit("Gather", [whole, np.array(0)], dtype=cosine.dtype, shape=cosine.shape, axis=0)
        return [ctx.emit("Sin", [x], dtype=sine.dtype, shape=sine.shape), row]

    check_export(lambda x: split_p.bind(x), [X])
    check_export(lambda x: split_p.bind(x)[1], [X])


def test_a_node_with_several_outputs_and_attributes_of_every_kind():
    top_p = primitive_of("my_top", lambda x: list(jax.lax.top_k(x, 2)), several=True)

    @plugin("my_top")
    def lower_my_top(ctx, equation):
        (x,) = equation.inputs
        values, places = equation.outputs
        found, indices = ctx.emit(
            "TopK",
            [x, np.array([2], np.int64)],
            outputs=[values, plugins.Type(np.int64, places.shape)],
            axis=-1,
            largest=True,
            sorted=1,
        )
        return found, ctx.emit("Cast", [indices], dtype=np.int32, shape=places.shape, to=onnx.TensorProto.INT32)

    check_export(lambda x: top_p.bind(x), [X])

    @plugin("my_swish", replace=True)
    def lower_attributes(ctx, equation):
        return ctx.emit(
            "Everything",
            equation.inputs,
            domain="test",
            attributes={"dtype": 1, "shape": [2, 3]},
            real=0.5,
            reals=[1, 2.5],
            text="text",
            texts=["a", "b"],
            tensor=np.arange(3),
            empty=[],
            flag=True,
        )

    (node,) = to_onnx(swish, [X]).graph.node
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(attributes.pop("tensor")), np.arange(3))
    assert attributes == {
        "dtype": 1,
        "shape": [2, 3],
        "real": 0.5,
        "reals": [1.0, 2.5],
        "text": b"text",
        "texts": [b"a", b"b"],
        "empty": [],
        "flag": 1,
    }


def test_operators_of_another_domain():
    @plugin("my_swish")
    def lower_quick_gelu(ctx, equation):
        return ctx.emit("QuickGelu", equation.inputs, domain="com.microsoft", alpha=equation.params["beta"])

    exported = to_onnx(lambda x: swish(swish(x)), [X], opset=23, stacktrace_metadata="full")
    assert {(entry.domain, entry.version) for entry in exported.opset_import} == {("", 23), ("com.microsoft", 1)}
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"in_0": X})[0], swish(swish(X)), rtol=1e-5, atol=1e-6)

    @plugin("my_swish", replace=True)
    def lower_two_versions(ctx, equation):
        first = ctx.emit("QuickGelu", equation.inputs, domain="com.microsoft")
        return ctx.emit("QuickGelu", [first], domain="com.microsoft", version=2)

    with pytest.raises(ValueError, match="versions 1 and 2"):
        to_onnx(swish, [X])


def test_symbolic_sizes():
    tiled_p = primitive_of("my_tiled", lambda x: jnp.broadcast_to(x[:, None], (x.shape[0], 4, *x.shape[1:])))

    @plugin("my_tiled")
    def lower_my_tiled(ctx, equation):
        (x,) = equation.inputs
        (kind,) = equation.outputs
        middle = ctx.emit("Unsqueeze", [x, np.array([1])], shape=(x.shape[0], 1, *x.shape[1:]))
        return ctx.emit("Expand", [middle, ctx.shape(kind.shape)])

    check_export(tiled_p.bind, [X], specs=[("B", 3)], more_args=[[np.ones((5, 3), np.float32)]])
    check_export(
        onnx_function(lambda x: tiled_p.bind(x)), [X], specs=[("B", 3)], more_args=[[np.ones((5, 3), np.float32)]]
    )


def test_constants_are_known_and_optional_inputs_left_out():
    seen = []
    clip_p = primitive_of("my_clip", lambda x, high, table: jnp.minimum(x, high) + table[0])
    table = jnp.arange(3.0)

    @plugin("my_clip")
    def lower_my_clip(ctx, equation):
        x, high, values = equation.inputs
        seen.append((x.constant, high.constant, values.constant))
        return ctx.emit("Add", [ctx.emit("Clip", [x, None, high]), values.constant[0]])

    check_export(lambda x: clip_p.bind(x, np.float32(0.5), table), [X])
    assert seen[0][0] is None
    assert float(seen[0][1]) == 0.5
    np.testing.assert_array_equal(seen[0][2], table)
    assert not seen[0][2].flags.writeable


def test_an_output_may_be_an_input_or_a_constant():
    pair_p = primitive_of("my_pair", lambda x: [x, jnp.zeros(2)], several=True)

    @plugin("my_pair")
    def lower_my_pair(ctx, equation):
        return equation.inputs[0], np.zeros(2, np.float32)

    check_export(lambda x: pair_p.bind(x), [X])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "uint8"])
def test_numbers_take_the_type_of_what_they_meet(dtype):
    double_p = primitive_of("my_double", lambda x: x * 2)

    @plugin("my_double")
    def lower_my_double(ctx, equation):
        return ctx.emit("Mul", [*equation.inputs, 2])

    x = np.arange(4).astype(jnp.dtype(dtype))
    check_export(double_p.bind, [x], x64=dtype == "float64", runs=dtype not in ("bfloat16", "uint8"))


# ---- where it is emitted ----


def test_inside_calls_loops_functions_and_batches():
    plugin("my_swish")(lower_my_swish)
    batching.primitive_batchers[swish_p] = lambda values, axes, **params: (swish_p.bind(*values, **params), axes[0])

    @onnx_function
    def block(x):
        return swish(x, 0.5) * 2

    def model(x):
        y = jax.jit(lambda v: swish(v))(x)
        y = jax.lax.scan(lambda carry, _: (block(swish(carry)), None), y, None, length=2)[0]
        y = jax.lax.cond(y[0, 0] > 0, swish, lambda v: v - 1, y)
        return jax.vmap(swish)(y)

    exported = check_export(model, [X])
    by_us = [node for node in all_nodes(exported) if metadata(node)["pkg.jax2onnx.plugin"].startswith("lower_my_swish")]
    assert len(by_us) == 15
    (function,) = exported.functions
    assert [node.op_type for node in function.node][-1] == "Mul"


@pytest.mark.parametrize("level", ["minimal", "full", "compact"])
def test_levels_of_provenance(level):
    plugin("my_swish")(lower_my_swish)
    exported = to_onnx(swish, [X], stacktrace_metadata=level)
    assert all(node.metadata_props for node in exported.graph.node)
    for entry in list(exported.metadata_props):
        exported.metadata_props.remove(entry)
    assert stripped(exported).SerializeToString() == to_onnx(swish, [X]).SerializeToString()


def test_threads():
    plugin("my_swish")(lower_my_swish)
    fn = lambda x: swish(jax.lax.fori_loop(0, 2, lambda _, v: swish(v), x))  # noqa: E731
    expected = to_onnx(fn, [X]).SerializeToString()
    results = []

    def work():
        for _ in range(10):
            results.append(to_onnx(fn, [X]).SerializeToString() == expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 40


def test_an_export_inside_a_plugin():
    plugin("my_swish")(lower_my_swish)

    @plugin("my_split")
    def lower_by_another_export(ctx, equation):
        assert to_onnx(swish, [X]).graph.node[1].op_type == "Sigmoid"
        (x,) = equation.inputs
        row = ctx.emit("Gather", [ctx.emit("Cos", [x]), np.array(0)], shape=equation.outputs[1].shape)
        return ctx.emit("Sin", [x]), row

    check_export(lambda x: split_p.bind(x), [X])


def test_complex_numbers_are_not_for_plugins():
    plugin("my_swish")(lower_my_swish)
    with pytest.raises(UnsupportedError, match="my_swish"):
        to_onnx(lambda x: jnp.abs(swish(x * 1j)), [X])
    check_export(lambda x: jnp.abs(x * 1j) - swish(-x), [X])


# ---- registration ----


def test_a_primitive_that_jax_defines_by_others_needs_no_plugin_but_may_have_one():
    assert "Sigmoid" in [node.op_type for node in check_export(swish, [X]).graph.node]
    plugin("my_swish")(lambda ctx, equation: ctx.emit("Sin", equation.inputs))
    assert [node.op_type for node in to_onnx(swish, [X]).graph.node] == ["Sin"]


def test_a_primitive_that_is_known_needs_replace():
    with pytest.raises(ValueError, match="replace=True"):
        plugin("sin")(lower_my_swish)

    @plugin("sin", replace=True)
    def lower_sin(ctx, equation):
        return ctx.emit("Cos", [ctx.emit("Sub", [*equation.inputs, np.float32(np.pi / 2)])])

    exported = check_export(jnp.sin, [X], rtol=1e-4, atol=1e-5)
    assert [node.op_type for node in exported.graph.node] == ["Sub", "Cos"]


def test_registering_twice():
    plugin("my_swish")(lower_my_swish)
    plugin("my_swish")(lower_my_swish)

    def other(ctx, equation):
        return equation.inputs[0]

    with pytest.raises(ValueError, match="lower_my_swish"):
        plugin("my_swish")(other)
    plugin("my_swish", replace=True)(other)
    assert [node.op_type for node in to_onnx(swish, [X]).graph.node] == ["Identity"]
    with pytest.raises(TypeError, match="name of a primitive"):
        plugin(3)
    with pytest.raises(TypeError, match="function"):
        plugin("my_other")(3)


# ---- errors ----


def failing(lower, kind=PluginError):
    plugin("my_swish", replace=True)(lower)

    def model(x):
        return jnp.sin(swish(x))

    with pytest.raises(kind) as error:
        to_onnx(model, [X])
    message = str(error.value)
    assert f'"{__file__}", line {line_of(swish, "bind")}, in swish' in message
    assert "my_swish" in message
    return message


def test_a_plugin_that_raises():
    def lower(ctx, equation):
        raise KeyError("nothing here")

    message = failing(lower)
    assert "KeyError" in message
    assert f"line {line_of(lower, 'raise')}, in {lower.__qualname__}" in message
    try:
        to_onnx(swish, [X])
    except PluginError as error:
        assert isinstance(error.__cause__, KeyError)


def test_a_plugin_that_refuses():
    def lower(ctx, equation):
        raise NotImplementedError("beta is too large")

    assert "beta is too large" in failing(lower, UnsupportedError)


@pytest.mark.parametrize(
    ("lower", "message"),
    [
        (lambda ctx, equation: [], "returned 0 values; the primitive has 1 outputs"),
        (lambda ctx, equation: None, "returned 0 values"),
        (lambda ctx, equation: equation.inputs * 2, "returned 2 values"),
        (lambda ctx, equation: "text", "output 0 must be a value"),
        (lambda ctx, equation: ctx.emit("Sine", equation.inputs), "no operator 'Sine'"),
        (lambda ctx, equation: ctx.emit("Swish", equation.inputs), "opset 23 of ONNX has no operator 'Swish'"),
        (lambda ctx, equation: ctx.emit("Sin", ["x"]), "an input must be a value"),
        (lambda ctx, equation: ctx.emit("Sin", equation.inputs, shape=(3,)), r"float32\[3\]; the primitive returns"),
        (lambda ctx, equation: ctx.emit("Sin", equation.inputs, dtype="int8"), r"output 0 is int8\[2,3\]"),
        (lambda ctx, equation: ctx.emit("Sin", equation.inputs, alpha=object()), "attribute 'alpha' must be"),
        (lambda ctx, equation: ctx.emit("Sin", equation.inputs, alpha=[1, "a"]), "attribute 'alpha' must be"),
        (lambda ctx, equation: ctx.emit("Sin", equation.inputs, shape=(2,), outputs=[]), "either dtype and shape"),
        (lambda ctx: None, "takes 1 positional argument"),
    ],
)
def test_what_a_plugin_may_do_wrong(lower, message):
    assert re.search(message, failing(lower))


def test_a_value_of_another_equation():
    kept = []

    def lower(ctx, equation):
        kept.append(equation.inputs[0])
        return ctx.emit("Sin", [kept[0]])

    plugin("my_swish")(lower)
    with pytest.raises(PluginError, match="another equation"):
        to_onnx(lambda x: swish(swish(x)), [X])


def test_the_next_export_is_right_after_one_that_failed():
    failing(lambda ctx, equation: 1 / 0)
    plugin("my_swish", replace=True)(lower_my_swish)
    check_export(swish, [X])
    assert isinstance(jax2onnx.PluginError("x"), RuntimeError)


def test_an_interrupt_passes_through():
    def lower(ctx, equation):
        raise KeyboardInterrupt

    plugin("my_swish")(lower)
    with pytest.raises(KeyboardInterrupt):
        to_onnx(swish, [X])


def test_nothing_is_kept_behind_an_export():
    arrays = []

    @plugin("my_swish")
    def lower(ctx, equation):
        array = np.ones((40, 40), np.float32)
        arrays.append(weakref.ref(array))
        total = ctx.emit("ReduceSum", [array], shape=(), keepdims=0)
        return ctx.emit("Mul", [*equation.inputs, total])

    to_onnx(swish, [X])
    gc.collect()
    assert arrays[0]() is None
