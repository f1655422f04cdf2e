"""Inputs for running a model: the user's, from an .npz file, or random numbers that are the same every time."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from jax2onnx._compare.sessions import complex_as_pairs
from jax2onnx._door.failure import Failure

_UNKNOWN_SIZE = 3  # for a dimension without a number, if the user gives no inputs
_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(bool)": "bool",
}


def runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise Failure("this needs the package onnxruntime (pip install onnxruntime)") from error
    return onnxruntime


def element_type(session_type: str) -> np.dtype:
    """The NumPy type for an ONNX Runtime type such as ``tensor(int64)``."""
    name = _TYPES.get(session_type) or re.sub(r"tensor\((.*)\)", r"\1", session_type)
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    try:
        return np.dtype(name)
    except TypeError:
        raise Failure(
            f"an input is a {session_type}; random values can be generated only for numeric tensors"
        ) from None


def model_feeds(
    inputs: list[Any], path: str | os.PathLike[str] | None, keep_complex: bool = False
) -> dict[str, np.ndarray]:
    """A value for each input of a session (``session.get_inputs()``).

    The user's complex arrays become real ones with a last axis of 2, as models take them, or are kept.
    """
    given = load_arrays(path) if path else {}
    if given:
        return _assigned(inputs, given, keep_complex)
    return {item.name: _random(item, index) for index, item in enumerate(inputs)}


def load_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError) as error:
        raise Failure(f"{os.fspath(path)}: not an .npz file of arrays ({error})") from error


def _assigned(inputs: list[Any], given: Mapping[str, np.ndarray], keep_complex: bool) -> dict[str, np.ndarray]:
    """By name, or in order if the file was written without names (``np.savez(path, a, b)``)."""
    feeds = {}
    for index, item in enumerate(inputs):
        array = given.get(item.name, given.get(f"arr_{index}"))
        if array is None:
            names = ", ".join(given)
            raise Failure(f"the inputs hold no array {item.name!r} (nor arr_{index}); they hold {names}")
        want = element_type(item.type)
        if array.dtype.kind == "c" and want.kind == "f":
            array = array.astype(np.result_type(want, np.complex64), copy=False)
            feeds[item.name] = array if keep_complex else complex_as_pairs(array)
            continue
        # NumPy saves bfloat16 as two raw bytes.
        feeds[item.name] = array.view(want) if array.dtype.kind == "V" else array.astype(want, copy=False)
    return feeds


def _random(item: Any, index: int) -> np.ndarray:
    dtype = element_type(item.type)
    shape = [size if isinstance(size, int) and size >= 0 else _UNKNOWN_SIZE for size in item.shape]
    generator = np.random.default_rng(index)
    if dtype.kind in "fV" or dtype.name == "bfloat16":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)
