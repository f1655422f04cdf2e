"""How two sets of values differ: tolerance, statistics, and changes between a file's nodes and fresh ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MOST_TEXT = 60


@dataclass(frozen=True)
class Tolerance:
    rtol: float
    atol: float

    def agrees(self, left: np.ndarray, right: np.ndarray) -> bool:
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        return not self.wrong(left, right).any()

    def wrong(self, actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
        """Which elements differ; a NaN agrees only with a NaN, an infinity only with the same infinity."""
        if expected.dtype.kind in "biu":
            return actual != expected
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        left, right = actual.astype(wide), expected.astype(wide)
        return ~np.isclose(left, right, rtol=self.rtol, atol=self.atol, equal_nan=True)


EXACT = Tolerance(0.0, 0.0)


def statistics(array: np.ndarray) -> dict[str, Any]:
    result: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if array.size == 0 or array.dtype.kind == "b":
        return result | ({"true": int(array.sum())} if array.size else {})
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    finite = wide[np.isfinite(wide)]
    result |= {"nan": int(np.isnan(wide).sum()), "inf": int(np.isinf(wide).sum())}
    if finite.size and array.dtype.kind != "c":
        result |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
    return result


def describe(array: np.ndarray) -> str:
    """Statistics on one line: ``float32[2,4]  min -1.2  mean 0.1  max 3``."""
    facts = statistics(array)
    text = f"{facts.pop('dtype')}[{','.join(map(str, facts.pop('shape')))}]"
    for name in ("min", "mean", "max", "true", "nan", "inf"):
        if name in facts and (facts[name] or name not in ("nan", "inf")):
            text += f"  {name} {facts[name]:.6g}"
    return text


def first_wrong(actual: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> str:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return "shapes or types differ"
    wrong = tolerance.wrong(actual, expected)
    if not wrong.any():
        wrong = EXACT.wrong(actual, expected)
    if not wrong.any():
        return "no elements differ"
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements differ; first at {at}: {actual[at]} instead of {expected[at]}"


def node_changes(
    actual: onnx.NodeProto,
    expected: onnx.NodeProto,
    constants: dict[str, onnx.TensorProto],
    expected_constants: dict[str, onnx.TensorProto],
) -> list[str]:
    """How a node of the file differs from that of a fresh export, not counting bodies."""
    if actual.op_type != expected.op_type:
        return [f"the operator is {actual.op_type} in the file, {expected.op_type} in a fresh export"]
    changes = []
    ours = {item.name: item for item in actual.attribute if item.type != onnx.AttributeProto.GRAPH}
    theirs = {item.name: item for item in expected.attribute if item.type != onnx.AttributeProto.GRAPH}
    for name in sorted({*ours, *theirs}):
        left, right = (_attribute_text(side.get(name)) for side in (ours, theirs))
        if left != right:
            changes.append(f"attribute {name} is {left[:MOST_TEXT]} in the file, {right[:MOST_TEXT]} in a fresh export")
    if len(actual.input) != len(expected.input):
        return [*changes, f"{len(actual.input)} inputs in the file, {len(expected.input)} in a fresh export"]
    for index, (left, right) in enumerate(zip(actual.input, expected.input, strict=True)):
        tensors = constants.get(left), expected_constants.get(right)
        if None in tensors and left != right:
            changes.append(f"input {index} is {left or 'nothing'} in the file, {right or 'nothing'} in a fresh export")
        elif None not in tensors and not _same_tensor(*tensors):
            changes.append(f"input {index}: the contents of {left} differ from a fresh export")
    return changes


def _attribute_text(attribute: onnx.AttributeProto | None) -> str:
    if attribute is None:
        return "not there"
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return np.array2string(numpy_helper.to_array(value), threshold=8)
    return str(list(value) if not isinstance(value, (int, float, bytes)) else value)


def _same_tensor(left: onnx.TensorProto, right: onnx.TensorProto) -> bool:
    if left.data_type != right.data_type or list(left.dims) != list(right.dims):
        return False
    if left.raw_data and right.raw_data:
        return left.raw_data == right.raw_data
    return numpy_helper.to_array(left).tobytes() == numpy_helper.to_array(right).tobytes()
