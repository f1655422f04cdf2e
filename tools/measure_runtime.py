"""Measures which element types ONNX Runtime's CPU provider runs each operator with.

A recipe is one node with inputs that are valid for every element type, so that a failure means the type and nothing
else. All inputs are inputs of the graph and no optimisation is on: what runs is the operator's own kernel, or what the
runtime always puts in its place (a function body, casts around a float32 kernel).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper

# Element types tried: onnx number -> NumPy type. Strings cannot be made into the runtime's values.
CANDIDATES: dict[int, Any] = {
    TensorProto.BOOL: np.bool_,
    TensorProto.INT8: np.int8,
    TensorProto.INT16: np.int16,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
    TensorProto.UINT8: np.uint8,
    TensorProto.UINT16: np.uint16,
    TensorProto.UINT32: np.uint32,
    TensorProto.UINT64: np.uint64,
    TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}
FLOATS = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)
OLDEST_OPSET = 17


@dataclass(frozen=True)
class Input:
    """An input: its values, and its onnx type, which is the type under test when None."""

    values: np.ndarray
    type: int | None = None


def subject(*shape: int) -> Input:
    """Ones of the type under test: a value that every operator's domain holds."""
    return Input(np.ones(shape))


def integers(*values: int) -> Input:
    return Input(np.array(values, np.int64), TensorProto.INT64)


def integer(value: int) -> Input:
    return Input(np.array(value, np.int64), TensorProto.INT64)


def reals(*values: float) -> Input:
    return Input(np.array(values, np.float32), TensorProto.FLOAT)


def booleans(*values: bool) -> Input:
    return Input(np.array(values), TensorProto.BOOL)


OMITTED = None


@dataclass(frozen=True)
class Recipe:
    """One node: an operator, or an operator and variant ("Pad:edge"), from one of its versions on."""

    name: str
    inputs: list[Input | None]
    attributes: dict[str, Any] = field(default_factory=dict)  # a callable takes the onnx number of the type under test
    since: int = 1
    outputs: int = 1


UNARY = [
    "Abs",
    "Neg",
    "Sign",
    "Ceil",
    "Floor",
    "Round",
    "Sqrt",
    "Exp",
    "Log",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Erf",
    "Tanh",
    "Sigmoid",
    "Reciprocal",
    "Not",
    "BitwiseNot",
    "IsNaN",
    "IsInf",
    "Identity",
    "Relu",
    "Softplus",
    "Softsign",
    "Gelu",
    "Elu",
    "Selu",
    "LeakyRelu",
    "Celu",
    "Mish",
    "ThresholdedRelu",
    "HardSigmoid",
    "HardSwish",
    "Swish",
    "Shrink",
    "NonZero",
    "Unique",
    "Shape",
    "Size",
    "Dropout",
    "Flatten",
    "Softmax",
    "LogSoftmax",
    "Hardmax",
    "LpNormalization",
]
BINARY = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Max",
    "Min",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "And",
    "Or",
    "Xor",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "PRelu",
    "Sum",
    "Mean",
]
SQUARE = ["Det", "Trilu"]
REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]
IMAGE = ["GlobalAveragePool", "GlobalMaxPool", "MeanVarianceNormalization"]
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}  # with their gates


def recipes_of_families() -> list[Recipe]:
    recipes = [Recipe(name, [subject(2, 3)]) for name in UNARY]
    recipes += [Recipe(name, [subject(2, 3), subject(2, 3)]) for name in BINARY]
    recipes += [Recipe(name, [subject(1, 2, 2)]) for name in SQUARE]
    recipes += [Recipe(name, [subject(1, 2, 4, 4)]) for name in IMAGE]
    for name, gates in RECURRENT.items():
        inputs = [subject(3, 1, 2), subject(1, 2 * gates, 2), subject(1, 2 * gates, 2)]
        recipes.append(Recipe(name, inputs, {"hidden_size": 2}))
    for name in REDUCTIONS:
        if name != "ReduceSum":  # whose axes became an input before the others'
            recipes.append(Recipe(name, [subject(2, 3)], {"axes": [1]}))
        recipes.append(Recipe(name, [subject(2, 3), integers(1)], since=13 if name == "ReduceSum" else 18))
    for reduction, since in (("none", 1), ("add", 16), ("mul", 16), ("min", 18), ("max", 18)):
        suffix, attributes = ("", {}) if reduction == "none" else (f":{reduction}", {"reduction": reduction})
        indices = Input(np.zeros((1, 3)), TensorProto.INT64)
        inputs = [subject(2, 3), Input(np.zeros((1, 1)), TensorProto.INT64), subject(1, 3)]
        recipes.append(Recipe(f"ScatterND{suffix}", inputs, attributes, since))
        recipes.append(Recipe(f"ScatterElements{suffix}", [subject(2, 3), indices, subject(1, 3)], attributes, since))
    for mode, since in (("constant", 1), ("edge", 1), ("reflect", 1), ("wrap", 19)):
        suffix, attributes = ("", {}) if mode == "constant" else (f":{mode}", {"mode": mode})
        recipes.append(Recipe(f"Pad{suffix}", [subject(2, 3), integers(0, 1, 0, 1)], attributes, since))
    for mode in ("nearest", "linear", "cubic"):
        suffix = "" if mode == "nearest" else f":{mode}"
        inputs = [subject(1, 1, 4, 4), OMITTED, reals(1, 1, 2, 2)]
        recipes.append(Recipe(f"Resize{suffix}", inputs, {"mode": mode}))
    return recipes


RECIPES = [
    *recipes_of_families(),
    Recipe("BitShift", [subject(2, 3), subject(2, 3)], {"direction": "LEFT"}),
    Recipe("Mod", [subject(2, 3), subject(2, 3)], {"fmod": lambda tested: int(tested in FLOATS)}),
    Recipe("Mod:fmod", [subject(2, 3), subject(2, 3)], {"fmod": 1}),
    Recipe("Where", [booleans(True, False), subject(2), subject(2)]),
    Recipe("Clip", [subject(2, 3), subject(), subject()]),
    Recipe("Cast", [subject(2, 3)], {"to": TensorProto.FLOAT}),
    Recipe("Cast:to", [reals(0, 1)], {"to": lambda tested: tested}),
    Recipe("CastLike", [subject(2, 3), reals(1)]),
    Recipe("CastLike:to", [reals(0, 1), subject(1)]),
    Recipe("Reshape", [subject(2, 3), integers(3, 2)]),
    Recipe("Transpose", [subject(2, 3)], {"perm": [1, 0]}),
    Recipe("Expand", [subject(1, 3), integers(2, 3)]),
    Recipe("Concat", [subject(2, 3), subject(2, 3)], {"axis": 0}),
    Recipe("Slice", [subject(2, 3), integers(0), integers(1), integers(1), integers(1)]),
    Recipe("Gather", [subject(2, 3), integers(0)]),
    Recipe("GatherND", [subject(2, 3), Input(np.zeros((1, 1)), TensorProto.INT64)]),
    Recipe("GatherElements", [subject(2, 3), Input(np.zeros((1, 3)), TensorProto.INT64)]),
    Recipe("TensorScatter", [subject(1, 4, 3), subject(1, 1, 3), integers(0)]),
    Recipe("Compress", [subject(3), booleans(True, False, True)], {"axis": 0}),
    Recipe("Tile", [subject(2, 3), integers(1, 2)]),
    Recipe("Squeeze", [subject(1, 3), integers(0)]),
    Recipe("Unsqueeze", [subject(2, 3), integers(0)]),
    Recipe("Split", [subject(4), integers(2, 2)], {"axis": 0}, outputs=2),
    Recipe("CumSum", [subject(2, 3), integer(1)]),
    Recipe("CumProd", [subject(2, 3), integer(1)]),
    Recipe("TopK", [subject(2, 3), integers(1)], outputs=2),
    Recipe("ArgMax", [subject(2, 3)], {"axis": 1}),
    Recipe("ArgMin", [subject(2, 3)], {"axis": 1}),
    Recipe("MatMul", [subject(2, 3), subject(3, 2)]),
    Recipe("MatMulInteger", [subject(2, 3), subject(3, 2)]),
    Recipe("Gemm", [subject(2, 3), subject(3, 2), subject(2, 2)]),
    Recipe("Einsum", [subject(2, 3), subject(3, 2)], {"equation": "ij,jk->ik"}),
    Recipe("Conv", [subject(1, 1, 4, 4), subject(1, 1, 2, 2)]),
    Recipe("ConvInteger", [subject(1, 1, 4, 4), subject(1, 1, 2, 2)]),
    Recipe("ConvTranspose", [subject(1, 1, 4, 4), subject(1, 1, 2, 2)]),
    Recipe("MaxPool", [subject(1, 1, 4, 4)], {"kernel_shape": [2, 2]}),
    Recipe("AveragePool", [subject(1, 1, 4, 4)], {"kernel_shape": [2, 2]}),
    Recipe("LpPool", [subject(1, 1, 4, 4)], {"kernel_shape": [2, 2]}),
    Recipe("LRN", [subject(1, 2, 4, 4)], {"size": 1}),
    Recipe("GridSample", [subject(1, 1, 4, 4), Input(np.zeros((1, 2, 2, 2)), TensorProto.FLOAT)]),
    Recipe("Range", [subject(), subject(), subject()]),
    Recipe("OneHot", [integers(0, 1), integer(2), subject(2)]),
    Recipe("LayerNormalization", [subject(2, 3), subject(3)]),
    Recipe("RMSNormalization", [subject(2, 3), subject(3)]),
    Recipe("GroupNormalization", [subject(1, 2, 4), subject(2), subject(2)], {"num_groups": 2}),
    Recipe("InstanceNormalization", [subject(1, 2, 4), subject(2), subject(2)]),
    Recipe("BatchNormalization", [subject(1, 2, 4), subject(2), subject(2), subject(2), subject(2)]),
    Recipe("EyeLike", [subject(2, 3)]),
    Recipe("DepthToSpace", [subject(1, 4, 2, 2)], {"blocksize": 2}),
    Recipe("SpaceToDepth", [subject(1, 1, 4, 4)], {"blocksize": 2}),
    Recipe("ReverseSequence", [subject(2, 3), integers(1, 2, 2)]),
    Recipe("Attention", [subject(1, 1, 2, 4), subject(1, 1, 2, 4), subject(1, 1, 2, 4)]),
    Recipe(
        "RotaryEmbedding",
        [subject(1, 1, 2, 4), subject(3, 2), subject(3, 2), Input(np.zeros((1, 2)), TensorProto.INT64)],
    ),
    Recipe("DFT", [subject(1, 4, 1)]),
    Recipe("ConstantOfShape", [integers(2)], {"value": lambda tested: helper.make_tensor("value", tested, [1], [1])}),
]


def recipe_of(name: str, version: int) -> Recipe | None:
    """The recipe for a version of an operator: of those that are old enough, the newest."""
    fitting = [recipe for recipe in RECIPES if recipe.name == name and recipe.since <= version]
    return max(fitting, key=lambda recipe: recipe.since, default=None)


def tensor_value(given: Input, onnx_type: int) -> onnxruntime.OrtValue:
    array = given.values.astype(CANDIDATES[onnx_type])
    if onnx_type < TensorProto.BFLOAT16:  # NumPy has these itself
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx_type)


def one_node_model(recipe: Recipe, tested: int, opset: int) -> ModelProto:
    attributes = {key: value(tested) if callable(value) else value for key, value in recipe.attributes.items()}
    names = [f"input_{i}" if given else "" for i, given in enumerate(recipe.inputs)]
    outputs = [f"output_{i}" for i in range(recipe.outputs)]
    node = helper.make_node(recipe.name.split(":")[0], names, outputs, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, given.type or tested, given.values.shape)
        for name, given in zip(names, recipe.inputs, strict=True)
        if given
    ]
    unknown = [helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [helper.make_opsetid("", opset)]
    graph = helper.make_graph([node], "recipe", inputs, unknown)
    return helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))


def failure(recipe: Recipe, tested: int, opset: int) -> str | None:
    """Why the runtime does not run a recipe, or None when it does."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        model = one_node_model(recipe, tested, opset).SerializeToString()
        running = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        feeds = {f"input_{i}": tensor_value(g, g.type or tested) for i, g in enumerate(recipe.inputs) if g}
        running.run_with_ort_values(None, feeds)
    except Exception as error:  # the runtime's errors share no narrower base
        return f"{type(error).__name__}: {error}"
    return None


def newest_runtime_opset(newest: int) -> int:
    """The newest opset of which the runtime loads a model at all."""
    identity = recipe_of("Identity", newest)
    assert identity
    return max(opset for opset in range(OLDEST_OPSET, newest + 1) if not failure(identity, TensorProto.FLOAT, opset))


def types_that_run(recipe: Recipe, opsets: range) -> set[int]:
    """The onnx types with which a recipe runs at every one of the opsets."""
    return {tested for tested in CANDIDATES if not any(failure(recipe, tested, opset) for opset in opsets)}
