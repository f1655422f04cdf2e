"""The numbers that programs are run on: ordinary ones, ties and whole numbers, and the edges of every type."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from program import SYMBOL, Program

SETS = ("ordinary", "ties", "edges")
SIZES = {"ordinary": 3, "ties": 3, "edges": 2}  # of the symbolic dimension


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def input_values(program: Program, kind: str) -> list[np.ndarray]:
    generator = np.random.default_rng([abs(program.seed), SETS.index(kind)])
    arrays = []
    for value in program.inputs:
        shape = tuple(SIZES[kind] if size == SYMBOL else size for size in value.shape)
        arrays.append(_array(generator, kind, shape, dtype_of(value.dtype)))
    return arrays


def _array(generator: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    integer = dtype.kind in "iu"
    if kind == "ties":
        low = 0 if dtype.kind == "u" else -2
        values = generator.integers(low, 4, shape) if integer else generator.integers(-5, 6, shape) / 2
        return np.asarray(values).astype(dtype)
    low = 0 if dtype.kind == "u" else -6
    values = generator.integers(low, 9, shape) if integer else generator.standard_normal(shape) * 2
    array = np.asarray(values).astype(dtype)
    if kind == "edges":
        edges = _edges(dtype)
        chosen = edges[generator.integers(0, len(edges), shape)]
        array = np.where(generator.random(shape) < 0.4, chosen, array).astype(dtype)
    return array


def _edges(dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        edges = [limits.min, limits.max, 0, 1, 2, limits.max - 1]
        return np.array(edges + ([] if dtype.kind == "u" else [-1]), dtype)
    # Large, but far from overflow: whether a sum overflows is decided by its order, and whether a half float does, by
    # the runtime, which may compute it in single precision. Infinities there are anyway. What ONNX Runtime's Sigmoid
    # is not good for, below -10, must not become large again.
    largest = 24.0 if dtype == np.float16 else 100.0
    edges = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, 2.5, 10.0, -10.0, largest, -largest]
    return np.array(edges, np.float64).astype(dtype)
