"""Models in the tools of onnx and ONNX Runtime: renaming, cutting out, shapes, other versions. The numbers stay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import lax
from onnx import TensorProto, compose, helper, utils, version_converter
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

from jax2onnx import to_onnx

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
WEIGHTS = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
TABLE = jnp.arange(9.0)
PAIRS = jnp.array([[0, 1], [1, 1], [1, 0]])


def nested(x):
    def step(carry, row):
        return lax.fori_loop(0, 3, lambda i, c: c * 0.5 + TABLE[i] * row, carry), jnp.where(row > 0.5, row, 7.0)

    return lax.scan(step, jnp.zeros(4), x)


PROGRAMS = {
    "branches": lambda x: lax.cond(jnp.sum(x) > 1, lambda x: x * 3 + 1, lambda x: x - 2.5, x),
    "a choice of three": lambda x: lax.switch((x[0, 0] * 3).astype(int), [jnp.sin, lambda x: x * 2, jnp.exp], x),
    "a counted loop": lambda x: lax.fori_loop(0, 20, lambda i, c: c * 0.9 + i, x),
    "a loop that ends": lambda x: lax.while_loop(lambda c: jnp.sum(c) < 99, lambda c: c * 1.5 + 0.5, x + 2),
    "a scan with weights": lambda x: lax.scan(lambda c, r: (jnp.tanh(c @ WEIGHTS + r), c), jnp.zeros(4), x),
    "bodies in bodies": nested,
    "a factorisation": lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(3) * 20),
    "rows by number": lambda x: jax.vmap(lambda row, i: row[i])(x, jnp.argsort(x[:, :2], 1)) * 2,
    "points by number": lambda x: jax.vmap(lambda a, i, j: a[i, j])(x.reshape(3, 2, 2), PAIRS[:, 0], PAIRS[:, 1]) * 2,
    "extremes and any": lambda x: jnp.where(jnp.any(x > 1, 1, keepdims=True), x, -x) - jnp.max(x, 0),
    "random numbers": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
}


def results(model: onnx.ModelProto) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})


def extracted(model: onnx.ModelProto) -> onnx.ModelProto:
    names = [[value.name for value in values] for values in (model.graph.input, model.graph.output)]
    return utils.Extractor(model).extract_model(*names)


TOOLS = {
    "add_prefix": lambda model: compose.add_prefix(model, "some/"),
    "extract_model": extracted,
    "symbolic_shape_infer": lambda model: SymbolicShapeInference.infer_shapes(model, auto_merge=True),
    "version_converter": lambda model: version_converter.convert_version(model, 21),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_tool_makes_of_a_model_computes_the_same(name, tool):
    model = to_onnx(PROGRAMS[name], [X])
    expected = jax.tree.leaves(jax.jit(PROGRAMS[name])(X))
    for got, want in zip(results(TOOLS[tool](model)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_large_weight_of_a_loop_stays_outside():
    weights = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)

    def fn(x):
        return lax.fori_loop(0, 200, lambda _, c: jnp.tanh(c @ weights) * 0.5, x)

    model = to_onnx(fn, [np.ones(32, np.float32)])
    (body,) = [attribute.g for node in model.graph.node for attribute in node.attribute if attribute.HasField("g")]
    assert [tuple(tensor.dims) for tensor in model.graph.initializer if len(tensor.dims) == 2] == [(32, 32)]
    assert [value.name for value in body.initializer] and all(not tensor.dims for tensor in body.initializer)


# What tools do not take, whoever made the model. A case fails when a newer version does; docs/portability.md has them.


def by_hand(nodes, inputs, output, constants, opset) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
    result = helper.make_tensor_value_info("y", output, None)
    tensors = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "by_hand", values, [result], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def shape_by_tool(model: onnx.ModelProto) -> list[int]:
    made = SymbolicShapeInference.infer_shapes(model, auto_merge=True)
    return [dim.dim_value for dim in made.graph.output[0].type.tensor_type.shape.dim]


@pytest.mark.parametrize("batch_dims, right", [(0, True), (1, False)])
def test_symbolic_shape_infer_knows_no_batch_dims(batch_dims, right):
    node = helper.make_node("GatherND", ["x", "at"], ["y"], batch_dims=batch_dims)
    inputs = [("x", TensorProto.FLOAT, [3, 4, 5]), ("at", TensorProto.INT64, [3, 2, 1])]
    model = by_hand([node], inputs, TensorProto.FLOAT, {}, 17)
    result = [3, 2, 5] if batch_dims else [3, 2, 4, 5]
    assert (shape_by_tool(model) == result) == right


@pytest.mark.parametrize("opset, right", [(17, True), (18, False)])
def test_symbolic_shape_infer_knows_no_axes_that_are_inputs(opset, right):
    axes = {"axes": [1]} if opset < 18 else {}
    node = helper.make_node("ReduceMax", ["x", "axes"] if opset >= 18 else ["x"], ["y"], keepdims=0, **axes)
    inputs = [("x", TensorProto.FLOAT, [3, 4])]
    model = by_hand([node], inputs, TensorProto.FLOAT, {"axes": np.array([1])} if opset >= 18 else {}, opset)
    assert (shape_by_tool(model) == [3]) == right


@pytest.mark.parametrize("dtype, right", [(np.float32, True), (np.float16, False)])
def test_quantize_dynamic_gives_half_products_operands_of_single_precision(dtype, right, tmp_path):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = by_hand([node], [("x", kind, [3, 4])], kind, {"w": WEIGHTS.astype(dtype)}, 17)
    onnx.save(model, tmp_path / "model.onnx")
    quantize_dynamic(tmp_path / "model.onnx", tmp_path / "quantized.onnx")
    try:
        onnxruntime.InferenceSession(tmp_path / "quantized.onnx", providers=["CPUExecutionProvider"])
    except Exception as error:
        assert not right and "float16" in str(error)
    else:
        assert right
