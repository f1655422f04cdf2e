"""``allclose``: compares the exported model in ONNX Runtime with the function in JAX."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jax2onnx._door.inputs import is_input_leaf

_NHWC_TO_NCHW = (0, 3, 1, 2)
_NCHW_TO_NHWC = (0, 2, 3, 1)


def allclose(
    fn: Callable[..., Any],
    onnx_model_path: Any,
    inputs: Sequence[Any],
    input_params: Mapping[str, Any] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    *,
    enable_double_precision: bool = False,
    inputs_as_nchw: Sequence[int] | None = None,
    outputs_as_nchw: Sequence[int] | None = None,
) -> tuple[bool, str]:
    """Run ``fn`` in JAX and the model in ONNX Runtime on the same inputs and compare every output.

    The model is a file, a ``ModelProto`` or an ``onnx_ir.Model``. ``inputs`` is whatever ``to_onnx`` accepts: arrays
    and trees of arrays in the layout that ``fn`` expects, keys, and shapes, for which random numbers are drawn (a named
    dimension is 2). Returns whether all outputs agree, and a message that names the first one that does not.
    """
    session = open_session(onnx_model_path)
    with jax.enable_x64(True) if enable_double_precision else jax.enable_x64(jax.config.jax_enable_x64):
        dtype = np.float64 if enable_double_precision else np.float32
        args = [_concrete(value, index, dtype) for index, value in enumerate(inputs)]
        kwargs = {name: _concrete(value, 0, dtype) for name, value in (input_params or {}).items()}
        given_args, given_kwargs = jax.tree.map(_as_traced, (args, kwargs))
        expected = [_as_model_has_it(leaf) for leaf in jax.tree.leaves(fn(*given_args, **given_kwargs))]
        flat = [_as_model_has_it(leaf) for leaf in jax.tree.leaves((args, kwargs))]
    for index in inputs_as_nchw or ():
        flat[index] = flat[index].transpose(_NHWC_TO_NCHW)
    names = [value.name for value in session.get_inputs()]
    if len(names) != len(flat):
        return False, f"the model has {len(names)} inputs, the function was given {len(flat)}"
    actual = run_session(session, dict(zip(names, map(complex_as_pairs, flat), strict=True)))
    if len(actual) == len(expected):
        actual = [pairs_as_complex(got, want) for got, want in zip(actual, expected, strict=True)]
    for index in outputs_as_nchw or ():
        actual[index] = actual[index].transpose(_NCHW_TO_NHWC)
    return compare_outputs(expected, actual, [value.name for value in session.get_outputs()], rtol, atol)


def _as_traced(leaf: Any) -> Any:
    """What a function is traced with is JAX's: it may ask for ``x.at``."""
    return jax.numpy.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def open_session(model: Any) -> Any:
    """An ONNX Runtime session for a file, a ``ModelProto`` or an ``onnx_ir.Model``."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("comparing with a model needs the package onnxruntime") from error
    if isinstance(model, (str, os.PathLike)):
        content: str | bytes = os.fspath(model)
    elif hasattr(model, "SerializeToString"):
        content = model.SerializeToString()
    else:
        import onnx_ir

        content = onnx_ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def run_session(session: Any, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run an ONNX Runtime session; bfloat16, which NumPy lacks, is passed in and out as OrtValue."""
    import ml_dtypes
    import onnxruntime

    values = {}
    for name, array in feeds.items():
        array = np.ascontiguousarray(array) if array.ndim else array
        if array.dtype == ml_dtypes.bfloat16:
            raw = array.view(np.uint16)
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, 16)
        else:
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
    outputs = [output.name for output in session.get_outputs()]
    results = session.run_with_ort_values(outputs, values)
    return [_to_numpy(result) for result in results]


def _to_numpy(value: Any) -> np.ndarray:
    import ml_dtypes

    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    import ctypes

    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.zeros(shape, ml_dtypes.bfloat16)
    raw = (ctypes.c_uint16 * count).from_address(value.data_ptr())
    return np.array(raw, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(shape)


def complex_as_pairs(array: np.ndarray) -> np.ndarray:
    """A complex array as models take and return it: real, with a last axis of 2. Other arrays are unchanged."""
    if array.dtype.kind != "c":
        return array
    part = np.float32 if array.dtype.itemsize == 8 else np.float64
    return np.ascontiguousarray(array).view(part).reshape(*array.shape, 2)


def pairs_as_complex(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """A model's result for an array of JAX, made complex if that array is."""
    if like.dtype.kind != "c" or array.ndim != like.ndim + 1 or array.shape[-1] != 2 or array.dtype.kind != "f":
        return array
    wide = np.complex64 if array.dtype.itemsize == 4 else np.complex128
    return np.ascontiguousarray(array).view(wide)[..., 0]


def compare_outputs(
    expected: Sequence[np.ndarray],
    actual: Sequence[np.ndarray],
    names: Sequence[str],
    rtol: float,
    atol: float,
    runners: tuple[str, str] = ("ONNX Runtime", "JAX"),
) -> tuple[bool, str]:
    """``runners`` names what computed ``actual`` and what computed ``expected``."""
    here, there = runners
    if len(expected) != len(actual):
        return False, f"the model has {len(actual)} outputs, the function {len(expected)}"
    worst = 0.0
    for name, want, got in zip(names, expected, actual, strict=True):
        if want.shape != got.shape:
            return False, f"{name}: shape {got.shape} in {here}, {want.shape} in {there}"
        if want.dtype != got.dtype:
            return False, f"{name}: type {got.dtype} in {here}, {want.dtype} in {there}"
        if want.dtype.kind in "biu":
            wrong = want != got
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            want, got = want.astype(wide), got.astype(wide)
            wrong = ~np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
            finite = np.isfinite(want) & np.isfinite(got)
            worst = max(worst, float(np.max(np.abs(want - got), where=finite, initial=0.0)))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return False, (
                f"{name}: {int(wrong.sum())} of {wrong.size} elements differ; first at {at}: "
                f"{got[at]} in {here}, {want[at]} in {there}"
            )
    agreeing = "the output agrees" if len(expected) == 1 else f"all {len(expected)} outputs agree"
    return True, f"{agreeing} (largest difference {worst:.3g})"


_SIZE_OF_NAMED_DIMENSION = 2


def _as_model_has_it(leaf: Any) -> np.ndarray:
    """An argument or result of the function as the model takes and returns it: keys as their words."""
    if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(jax.numpy.asarray(leaf))


def _concrete(value: Any, index: int, default_dtype: Any) -> Any:
    """Arrays are kept; shapes and ShapeDtypeStructs become reproducible random numbers, in trees as well."""
    return jax.tree.map(lambda leaf: _concrete_leaf(leaf, index, default_dtype), value, is_leaf=is_input_leaf)


def _concrete_leaf(value: Any, index: int, default_dtype: Any) -> Any:
    if isinstance(value, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
        return value
    shape, dtype = (value.shape, value.dtype) if hasattr(value, "shape") else (tuple(value), default_dtype)
    shape = tuple(size if isinstance(size, (int, np.integer)) else _SIZE_OF_NAMED_DIMENSION for size in shape)
    generator = np.random.default_rng(index)
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        key = jax.random.key(index)
        return jax.random.split(key, shape) if shape else key
    if jax.numpy.issubdtype(dtype, jax.numpy.complexfloating):
        return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(dtype)
    if jax.numpy.issubdtype(dtype, jax.numpy.floating):
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)
