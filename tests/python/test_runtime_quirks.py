"""Each fact about a runtime that conversion relies on (src/target/quirks.inc), shown by the installed version.

A case builds the smallest model with the fault and says whether the fault is there. A row that is open must show it;
one that is closed must not, in versions after the last that did.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from jax2onnx import _core

ROOT = Path(__file__).resolve().parents[2]
CASES: dict[str, Callable[[], bool]] = {}


def shows(function: Callable[[], bool]) -> Callable[[], bool]:
    CASES[function.__name__.upper()] = function
    return function


def model_of(nodes, inputs, output, constants, opset) -> bytes:
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(output)), None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return model.SerializeToString()


def run(nodes, inputs, output=np.float32, constants=(), opset=21, threads=0):
    """The first output of the nodes, which is called y."""
    model = model_of(nodes, inputs, output, constants, opset)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(["y"], inputs)[0]


def optimised(nodes, inputs, constants=(), opset=21) -> list[str]:
    """The operators that the runtime makes of the nodes."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        model = model_of(nodes, inputs, np.float32, constants, opset)
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]


def node(op: str, *inputs: str, to: str = "y", **attributes):
    return helper.make_node(op, inputs, [to], **attributes)


def refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except Exception as error:
        return "ONNXRuntimeError" in str(error)
    return False


def alone(expression: str) -> subprocess.CompletedProcess[str]:
    """What becomes of a process of its own that computes it, which names this module's functions."""
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_runtime_quirks import *; "
    return subprocess.run([sys.executable, "-c", program + expression], cwd=ROOT, capture_output=True, text=True)


def crashes(expression: str) -> bool:
    return alone(expression).returncode < 0


def said_by(expression: str) -> str:
    return alone(expression).stderr


def with_nan(size: int, at: int) -> np.ndarray:
    values = np.arange(size, dtype=np.float32)
    values[at] = np.nan
    return values


@shows
def arg_extreme_skips_nan():
    found = [
        run([node("ArgMax", "x", axis=1, keepdims=0)], {"x": with_nan(8, at)[None]}, np.int64)[0] for at in range(8)
    ]
    return found != list(range(8))


@shows
def attention_of_masked_row_is_zero():
    q = np.ones((1, 1, 2, 4), np.float32)
    mask = np.array([[False, False], [True, True]])
    y = run([node("Attention", "q", "q", "q", "m")], {"q": q, "m": mask}, opset=23)
    return (y[0, 0, 0] == 0).all()


@shows
def average_pool_takes_in_pads():
    nodes = [node("Pad", "x", "p", to="q"), node("AveragePool", "q", kernel_shape=[2])]
    x = np.ones((1, 1, 4), np.float32)
    return refuses(lambda: run(nodes, {"x": x}, constants={"p": np.array([0, 0, 2, 0, 0, 2])}))


@shows
def batch_normalization_is_not_centred():
    constants = {"s": [1], "b": [0], "m": [1e4], "v": [1e-4]}
    constants = {name: np.array(value, np.float32) for name, value in constants.items()}
    y = run(
        [node("BatchNormalization", "x", "s", "b", "m", "v")],
        {"x": np.full((1, 1, 2), 1e4 + 0.5, np.float32)},
        constants=constants,
    )
    return not np.allclose(y, 0.5 / np.sqrt(1.1e-4), rtol=1e-4)


@shows
def cast_to_float8_misses_the_end():
    def there_and_back(kind, number):
        small = helper.make_node("Cast", ["x"], ["small"], to=kind, saturate=0)
        nodes = [small, helper.make_node("Cast", ["small"], ["y"], to=TensorProto.FLOAT)]
        return run(nodes, {"x": np.full(1, number, np.float32)})[0]

    largest = there_and_back(TensorProto.FLOAT8E4M3FN, 480)
    return bool(largest == 448 or not np.isinf(there_and_back(TensorProto.FLOAT8E5M2, 61440)))


@shows
def clip_of_int64_by_halves():
    x = np.array([2**31 + 5, 1] * 8)
    clipped = run([node("Clip", "x", "low", "high")], {"x": x}, np.int64, {"low": np.int64(0), "high": np.int64(2**40)})
    rows = np.full((16, 5), 7)
    rows[:, 0] = 2**31 + 5
    largest = run([node("ReduceMax", "x", "a", keepdims=0)], {"x": rows}, np.int64, {"a": np.array([1])})
    least = run([node("Max", "x", "z")], {"x": x, "z": np.full(16, 7)}, np.int64)
    return (clipped != x).any() and (largest != 2**31 + 5).any() and (least != np.maximum(x, 7)).any()


@shows
def clip_takes_in_relu():
    def clipped(dtype):
        limits = {"low": np.array(0, dtype), "high": np.array(5, dtype)}
        nodes = [node("Relu", "x", to="r"), node("Clip", "r", "low", "high")]
        return run(nodes, {"x": np.arange(-3, 9).astype(dtype)}, dtype, limits)

    return refuses(lambda: clipped(np.int32)) and refuses(lambda: clipped(np.float64))


@shows
def cubic_resize_takes_last_axes_alone():
    resize = node("Resize", "x", "", "", "sizes", mode="cubic", exclude_outside=1)
    constants = {"sizes": np.array([1, 6, 6, 2])}
    return refuses(lambda: run([resize], {"x": np.ones((1, 3, 3, 2), np.float32)}, constants=constants, opset=18))


@shows
def dft_loses_digits():
    def error(length):
        x = np.random.default_rng(0).standard_normal((1, length, 1)).astype(np.float32)
        y = run([node("DFT", "x", axis=1)], {"x": x}, opset=17)
        exact = np.fft.fft(x[0, :, 0].astype(np.float64))
        return np.abs(y[0, :, 0] + 1j * y[0, :, 1] - exact).max() / np.abs(exact).max()

    return error(1000) > 50 * error(1024)


@shows
def factor_of_inverse_is_lost():
    ones, zero = np.ones(4, np.float32), np.float32(0)
    nodes = [node("Sin", "x", to="s"), node("Add", "s", "zero", to="a"), node("Div", "one", "b", to="inverse")]
    nodes.append(node("Mul", "a", "inverse"))
    return refuses(lambda: run(nodes, {"x": ones, "b": ones}, constants={"zero": zero, "one": zero + 1}))


@shows
def fmod_of_int64_in_double():
    return run([node("Mod", "x", "d", fmod=1)], {"x": np.array([2**60 + 1]), "d": np.array([2])}, np.int64)[0] != 1


@shows
def group_normalization_has_no_kernel():
    x = (1000 + np.random.default_rng(0).standard_normal((1, 2, 512))).astype(np.float32)
    ones = {"s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
    y = run([node("GroupNormalization", "x", "s", "b", num_groups=1, epsilon=0.0)], {"x": x}, constants=ones)
    wide = x.astype(np.float64)
    return np.abs(y - (wide - wide.mean()) / wide.std()).max() > 1e-3


@shows
def integer_sum_in_double():
    x = np.array([2**31 - 1, 1, 2], np.int32)
    total = run([node("ReduceSum", "x", keepdims=0)], {"x": x}, np.int32)
    product = run([node("ReduceProd", "x", keepdims=0)], {"x": np.array([65537, 65537], np.int32)}, np.int32)
    return total != x.sum(dtype=np.int32) and product != np.int32(131073)


@shows
def log_softmax_of_double_hides_nan():
    return not np.isnan(run([node("LogSoftmax", "x", axis=-1)], {"x": np.array([[1, np.nan]])}, np.float64)).all()


@shows
def matmul_merges_transpose():
    matrix, vector = np.arange(9, dtype=np.float32).reshape(3, 3), np.arange(3, dtype=np.float32)
    nodes = [node("Transpose", "m", to="t", perm=[1, 0]), node("MatMul", "t", "v")]
    return not np.allclose(run(nodes, {"m": matrix, "v": vector}), matrix.T @ vector)


def product_behind_cast():
    nodes = [
        node("Transpose", "x", to="t", perm=[1, 2, 0]),
        helper.make_node("Cast", ["t"], ["c"], to=TensorProto.FLOAT),
        node("MatMul", "c", "m"),
    ]
    return run(nodes, {"x": np.ones((2, 3, 4), np.float64), "m": np.ones((2, 5), np.float32)})


@shows
def matmul_merges_transpose_through_cast():
    return crashes("product_behind_cast()")


@shows
def max_pool_skips_nan():
    y = run([node("MaxPool", "x", kernel_shape=[2])], {"x": np.array([[[np.nan, 1, 2]]], np.float32)})
    infinite = run([node("MaxPool", "x", kernel_shape=[2])], {"x": np.full((1, 1, 3), -np.inf, np.float32)})
    return not np.isnan(y[0, 0, 0]) and np.isfinite(infinite).all()


@shows
def max_pool_takes_in_pads():
    nodes = [node("Pad", "x", "p", to="q"), node("MaxPool", "q", kernel_shape=[2])]
    y = run(nodes, {"x": np.array([[[-3, -2]]], np.float32)}, constants={"p": np.array([0, 0, 1, 0, 0, 1])})
    return (y[0, 0, ::2] != 0).any()


@shows
def pools_over_three_axes():
    return refuses(
        lambda: run([node("MaxPool", "x", kernel_shape=[1, 1, 1, 2])], {"x": np.zeros((1, 1, 2, 2, 2, 2), np.float32)})
    )


@shows
def pow_takes_few_exponents():
    def takes(dtype):
        return not refuses(lambda: run([node("Pow", "x", "n")], {"x": np.ones(3, np.float32), "n": np.ones(3, dtype)}))

    few = takes(np.int32) and takes(np.int64)
    return few and not any(takes(dtype) for dtype in (np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.uint64))


@shows
def product_rounds_its_left_factor():
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    w = (np.arange(64 * 16) % 255 - 127).astype(np.int8).reshape(64, 16)
    nodes = [node("DequantizeLinear", "w", "s", to="f"), node("MatMul", "x", "f")]
    got = run(nodes, {"x": x}, constants={"w": w, "s": np.float32(1)})
    want = x @ w.astype(np.float32)
    return float(np.abs(got - want).max() / np.abs(want).max()) > 1e-4


@shows
def reduce_extreme_skips_nan():
    found = [run([node("ReduceMax", "x", keepdims=0)], {"x": with_nan(8, at)}) for at in range(8)]
    return not np.isnan(found).all()


@shows
def resize_along_some_axes():
    x = np.arange(2.0**5, dtype=np.float32).reshape(2, 2, 2, 2, 2)
    sizes = np.array([2, 4, 2, 2, 2])
    return refuses(lambda: run([node("Resize", "x", "", "", "s", mode="linear")], {"x": x}, constants={"s": sizes}))


@shows
def root_mean_square_is_fused_as_quotient():
    x, w = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    constants = {"w": w, "two": np.float32(2), "epsilon": np.float32(1e-6)}

    def is_fused(square, *quotient):
        mean = node("ReduceMean", "s", to="m", axes=[-1])
        root = [node("Add", "m", "epsilon", to="v"), node("Sqrt", "v", to="r")]
        nodes = [square, mean, *root, *quotient, node("Mul", "q", "w")]
        return "SimplifiedLayerNormalization" in optimised(nodes, {"x": x}, constants, opset=17)

    power, product = node("Pow", "x", "two", to="s"), node("Mul", "x", "x", to="s")
    div = node("Div", "x", "r", to="q")
    inverse = [node("Reciprocal", "r", to="i"), node("Mul", "x", "i", to="q")]
    return is_fused(power, div) and not is_fused(product, div) and not is_fused(power, *inverse)


@shows
def same_max_pool_fails_on_gaps():
    pool = node("MaxPool", "x", kernel_shape=[2], strides=[4], auto_pad="SAME_UPPER")
    return refuses(lambda: run([pool], {"x": np.ones((1, 1, 4), np.float32)}))


def scan(x: np.ndarray, axis: int) -> np.ndarray:
    row = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ro"]
    body = helper.make_graph([node("Identity", "r", to="o")], "body", row[:1], row[1:])
    axes = {"scan_input_axes": [axis], "scan_output_axes": [axis]}
    return run([node("Scan", "x", body=body, num_scan_inputs=1, **axes)], {"x": x})


@shows
def scale_beside_product_is_single():
    a, b = np.linspace(-1, 1, 20).reshape(4, 5), np.linspace(1, 2, 30).reshape(5, 6)
    nodes = [node("MatMul", "a", "b", to="p"), node("Mul", "p", "s")]
    got = run(nodes, {"a": a, "b": b}, output=np.float64, constants={"s": np.float64(1 / 3)})
    return float(np.abs(got - a @ b / 3).max()) > 1e-12


@shows
def scan_crashes_on_nothing():
    return crashes("scan(np.zeros((0, 3), np.float32), 1)")


@shows
def scan_needs_a_step():
    return refuses(lambda: scan(np.zeros((0, 2), np.float32), 0))


@shows
def scatter_combines_in_threads():
    many = 1 << 18
    inputs = {"x": np.zeros(1, np.float32), "i": np.zeros((many, 1), np.int64), "u": np.ones(many, np.float32)}
    scatter = node("ScatterND", "x", "i", "u", reduction="add")
    return any(run([scatter], inputs, threads=4)[0] != many for _ in range(400))


@shows
def scatter_forgets_nan():
    inputs = {"x": np.zeros(2, np.float32), "i": np.array([0, 0]), "u": np.array([np.nan, 1], np.float32)}
    return not np.isnan(run([node("ScatterElements", "x", "i", "u", reduction="max")], inputs)[0])


@shows
def sign_of_half_nan_is_zero():
    return run([node("Sign", "x")], {"x": np.array([np.nan], np.float16)}, np.float16)[0] == 0


@shows
def swish_has_no_kernel():
    x = {"x": np.ones((2, 3), np.float32)}
    apart = optimised([node("Sigmoid", "x", to="s"), node("Mul", "x", "s")], x, opset=24)
    return optimised([node("Swish", "x")], x, opset=24) == ["Cast", "Mul", "Sigmoid", "Mul"] and apart == ["QuickGelu"]


@shows
def swish_is_refused_after_24():
    return refuses(lambda: run([node("Swish", "x")], {"x": np.ones(3, np.float32)}, opset=25))


def cache_that_is_copied():
    inputs = {"x": np.zeros((1, 4, 2), np.float32), "u": np.ones((1, 1, 2), np.float32), "at": np.array([1])}
    model = model_of([node("TensorScatter", "x", "u", "at")], inputs, np.float32, (), 24)
    onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)


@shows
def tensor_scatter_warns_of_copies():
    return "in-place" in said_by("cache_that_is_copied()")


@shows
def uint32_has_no_kernels():
    return refuses(lambda: run([node("Add", "x", "x")], {"x": np.array([1], np.uint32)}, np.uint32))


def rows(capfd) -> list[dict]:
    capfd.readouterr()
    assert _core.tool(["j2o", "targets", "--json"]) == 0
    return json.loads(capfd.readouterr().out)["quirks"]


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_installed_runtime_still_has_it(name, capfd):
    (row,) = [row for row in rows(capfd) if row["name"] == name]
    installed = onnxruntime.__version__
    expected = row["last"] is None or version(installed) <= version(row["last"])
    assert bool(CASES[name]()) == expected, (
        f"ONNX Runtime {installed} no longer shows {name}: write the last version that did into src/target/quirks.inc"
        if expected
        else f"ONNX Runtime {installed} shows {name} again: open its row in src/target/quirks.inc"
    )


def test_every_row_has_a_case_and_every_case_a_row(capfd):
    """Those of other runtimes are measured by make portability."""
    assert sorted(row["name"] for row in rows(capfd) if row["runtime"] == "ONNX Runtime") == sorted(CASES)


def test_the_documentation_has_the_table(capfd):
    capfd.readouterr()
    assert _core.tool(["j2o", "targets"]) == 0
    assert capfd.readouterr().out in (ROOT / "docs/targets.md").read_text()
