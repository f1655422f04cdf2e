"""Quantised products: weights of 8 and 4 bits with their scales, and factors rounded to bytes, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import TYPES, Choices, Form
from jax import lax

Array = Any
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}
SHAPES = {(5,): (5,), (2, 5): (2, 5), ("B",): (3,), ("B", 5): (2, 5), ("B", "T"): (2, 3), (): ()}


def make(choices: Choices) -> Form:
    ways = {
        "weights alone": _weights_alone,
        "weights rounded": _weights_rounded,
        "both": _both,
        "both of a convolution": _convolution,
        "rounded again": _rounded_again,
    }
    return ways[choices.take("factors", "weights alone", *ways)](choices)


def _form(choices: Choices, fn: Callable[..., Array], length: int, dtype: str, **parts: Any) -> Form:
    shape = choices.take("shape", *SHAPES)
    args = [choices.normal((*SHAPES[shape], length), dtype)]
    specs = None
    if any(isinstance(n, str) for n in shape):
        specs = [jax.ShapeDtypeStruct((*shape, length), TYPES[dtype])]
    return Form(fn, args, specs=specs, dtype=dtype, opset=21, **parts)


# ---- products ----

_PRODUCTS: dict[str, Callable[..., Array]] = {
    "matmul": lambda x, w, **options: jnp.matmul(x, w, **options),
    "dot": lambda x, w, **options: jnp.dot(x, w, **options),
    "einsum": lambda x, w, **options: jnp.einsum("...k,kn->...n", x, w, **options),
    "dot_general": lambda x, w, **options: lax.dot_general(x, w, (((x.ndim - 1,), (0,)), ((), ())), **options),
    "right transposed": lambda x, w, **options: lax.dot_general(x, w.T, (((x.ndim - 1,), (1,)), ((), ())), **options),
    "einsum transposed": lambda x, w, **options: jnp.einsum("...k,nk->...n", x, w.T, **options),
    "vmap": lambda x, w, **options: jax.vmap(lambda v: jnp.dot(x, v, **options), 1, -1)(w),
}


# ---- weights alone ----


class Weights:
    """Integers, their scales and their zero points, and the ways to make floats of them."""

    def __init__(self, choices: Choices, dtype: str, kinds: tuple[str, ...] = tuple(RANGES)) -> None:
        self.choices, self.dtype = choices, dtype
        self.kind = choices.take("weights", *kinds)
        self.rows, self.columns = choices.take("sizes", (64, 48), (96, 64), (256, 32))
        self.grain = choices.take("scale by", "tensor", "column", "row", "block")
        self.after = (
            self.grain in ("tensor", "column") and choices.take("scaled", "before", "before", "after") == "after"
        )
        self.block = choices.take("block", 16, 32) if self.grain == "block" else 0
        self.repeats = self.grain == "block" and choices.take("blocks by", "an axis", "repetition") == "repetition"
        points = ("none", "none", "number") if self.repeats else ("none", "none", "number", "as the scale")
        self.zero = "none" if self.after else choices.take("zero point", *points)
        self.early = self.zero != "none" and choices.take("subtracted", "in floats", "in int32") == "in int32"
        self.packed = self.kind.endswith("4") and choices.take("packed", None, "in turn", "halves", "words", "bitcast")
        self.transposed = not self.block and choices.take("stored", "as used", "transposed") == "transposed"
        self.integers = self._stored(self._integers((self.rows, self.columns)))
        self.scales = jnp.asarray(choices.numbers.uniform(5e-4, 1.5e-3, self._shape()), TYPES[dtype])
        self.points = self._stored(self._integers(() if self.zero == "number" else self._shape()))
        if self.grain == "tensor" and choices.take("scale is", "an array", "a number") == "a number":
            self.scales = self.scales.reshape(())
        if self.transposed:
            self.integers = self.integers.T.copy()

    def _integers(self, shape: tuple[int, ...]) -> np.ndarray:
        least, most = RANGES[self.kind]
        return self.choices.numbers.integers(least, most + 1, shape)

    def _stored(self, integers: np.ndarray) -> Array:
        return jnp.asarray(integers.astype(np.int32)).astype(self.kind)

    def _shape(self) -> tuple[int, ...]:
        if self.block:
            return self.rows // self.block, 1, self.columns
        return {"tensor": (1, 1), "column": (1, self.columns), "row": (self.rows, 1)}[self.grain]

    def _taken_out(self) -> Array:
        """The integers, of 4 bits or in bytes that the program has packed them in."""
        if not self.packed:
            return self.integers
        numbers = np.asarray(self.integers).astype(np.int32)
        halves, shape = (numbers & 15).astype(np.uint32), numbers.shape
        if self.packed == "words":
            shifts = np.arange(0, 32, 4, dtype=np.uint32)[:, None]
            words = np.bitwise_or.reduce(halves.reshape(-1, 8, shape[1]) << shifts, axis=1)
            q = (jnp.asarray(words)[:, None] >> shifts & 15).reshape(shape).astype(jnp.uint8)
        elif self.packed == "bitcast":
            joined = jnp.asarray(halves[:, 0::2] | halves[:, 1::2] << 4, jnp.uint8)
            return lax.bitcast_convert_type(joined, self.kind).reshape(shape)
        elif self.packed == "halves":
            joined = jnp.asarray(halves[: shape[0] // 2] | halves[shape[0] // 2 :] << 4, jnp.uint8)
            q = jnp.concatenate([joined & 15, joined >> 4])
        else:
            joined = jnp.asarray(halves[0::2] | halves[1::2] << 4, jnp.uint8)
            q = jnp.stack([joined & 15, joined >> 4], axis=1).reshape(shape)
        return q if self.kind == "uint4" else (q ^ 8).astype(jnp.int8) - 8

    def floats(self) -> Array:
        weights = self._taken_out()
        weights = weights.T if self.transposed else weights
        if self.block and not self.repeats:
            weights = weights.reshape(self.rows // self.block, self.block, self.columns)
        points, scales = self._along(self.points), self._along(self.scales)
        if self.early:
            weights = weights.astype(jnp.int32) - points.astype(jnp.int32)
        weights = weights.astype(self.dtype)
        if self.zero != "none" and not self.early:
            weights = weights - points.astype(self.dtype)
        return weights if self.after else (weights * scales).reshape(self.rows, self.columns)

    def _along(self, numbers: Array) -> Array:
        """One for each row where blocks have no axis of their own."""
        if not self.repeats or numbers.ndim == 0:
            return numbers
        return jnp.repeat(numbers[:, 0], self.block, axis=0)

    def finish(self, y: Array) -> Array:
        return y * self.scales.reshape(-1 if self.grain == "column" else ()) if self.after else y


def _weights_alone(choices: Choices) -> Form:
    dtype = choices.take("type", "float32", "float32", "float16", "bfloat16")
    weights = Weights(choices, dtype)
    multiply = _PRODUCTS[choices.take("product", *_PRODUCTS)]
    bias = choices.take("bias", False, True)

    def fn(x: Array) -> Array:
        y = weights.finish(multiply(x, weights.floats()))
        return y + jnp.arange(weights.columns, dtype=dtype) / 8 if bias else y

    return _form(choices, fn, weights.rows, dtype, expected={"DequantizeLinear": 1}, absent=("Mul", "Sub", "Einsum"))


# ---- both factors ----


def _weights_rounded(choices: Choices) -> Form:
    """Weights that are floats to begin with, rounded by the program as training with quantisation does."""
    rows, columns = choices.take("sizes", (64, 48), (96, 64), (256, 32))
    weights = jnp.asarray(choices.normal((rows, columns), scale=0.1))
    kind = choices.take("rounded to", "int8", "int8", "int4")
    axis = choices.take("scale by", None, 0, 1)
    most = choices.take("steps", RANGES[kind][1], RANGES[kind][1] + 0.5)
    divided = choices.take("divided", "by quotient", "by product")
    stays = choices.take("in", "integers", "floats", "floats, straight through")
    multiply = _PRODUCTS[choices.take("product", *_PRODUCTS)]

    def fn(x: Array) -> Array:
        scale = jnp.maximum(jnp.max(jnp.abs(weights), axis=axis, keepdims=True) / most, 1e-7)
        q = weights / scale if divided == "by quotient" else weights * (1 / scale)
        q = jnp.clip(jnp.round(q), *RANGES[kind])
        w = (q.astype(kind).astype(jnp.float32) if stays == "integers" else q) * scale
        return multiply(x, weights + lax.stop_gradient(w - weights) if stays.endswith("through") else w)

    absent = ("Round", "Abs", "ReduceMax", "Einsum")
    return _form(choices, fn, rows, "float32", expected={"DequantizeLinear": 1}, absent=absent)


def _scale_of(x: Array, way: str, most: int) -> Array:
    if way == "known":
        return jnp.float32(2.0**-5)
    return jnp.maximum(jnp.max(jnp.abs(x), axis=-1 if way == "by row" else None, keepdims=way == "by row") / most, 1e-6)


def _rounded(choices: Choices) -> tuple[Callable[[Array], tuple[Array, Array]], str]:
    """x as whole numbers, still in floats, and what they are to be multiplied by."""
    kind = choices.take("rounded to", "int8", "uint8", "int4")
    way = choices.take("its scale", "known", "by array", "by row")
    narrow = choices.take("range", "whole", "narrow") == "narrow"
    order = choices.take("order", "round, clip", "clip, round")
    divided = choices.take("divided", "by quotient", "by product")
    shift = choices.take("zero point of x", None, "before rounding", "after rounding")
    least, most = RANGES[kind]
    least += narrow and least < 0

    def rounded(x: Array) -> tuple[Array, Array]:
        scale = _scale_of(x, way, most)
        q = x / scale if divided == "by quotient" else x * (1 / scale)
        if shift == "before rounding":
            q = q + 3
        if order == "clip, round":
            q = jnp.clip(q, least, most)
        q = jnp.round(q)
        if shift == "after rounding" and order == "round, clip":
            q = q + 3
        return jnp.clip(q, least, most) if order == "round, clip" else q, scale

    return rounded, kind


def _both(choices: Choices) -> Form:
    rounded, kind = _rounded(choices)
    weights = Weights(choices, "float32", ("int8", "uint8", "int4"))
    weights.grain = weights.grain if weights.grain == "column" else "tensor"
    multiply = _PRODUCTS[choices.take("product", *_PRODUCTS)]
    scale = jnp.asarray(choices.numbers.uniform(0.01, 0.03, (weights.columns,)), np.float32)
    before = choices.take("scales", "one after the other", "together")
    points = choices.take("points", None, (3, 2), (7, 0), (0, 5))

    def fn(x: Array) -> Array:
        q, step = rounded(x)
        matrix = weights.integers.T if weights.transposed else weights.integers
        left, right = q.astype(kind).astype(_byte(kind)), matrix.astype(_byte(weights.kind))
        if points:
            left, right = left.astype(jnp.int32) - points[0], right.astype(jnp.int32) - points[1]
        y = multiply(left, right, preferred_element_type=jnp.int32)
        y = y.astype(jnp.float32)
        return y * step * scale if before == "one after the other" else y * (step * scale)

    expected = {"MatMulInteger": 1, "QuantizeLinear": 1}
    form = _form(choices, fn, weights.rows, "float32", expected=expected, absent=("MatMul", "Einsum", "Round"))
    form.apart = "products of a vector stay in int32" if form.args[0].ndim == 1 else None
    return form


def _byte(kind: str) -> str:
    return {"int4": "int8", "uint4": "uint8"}.get(kind, kind)


def _convolution(choices: Choices) -> Form:
    rounded, kind = _rounded(choices)
    space = choices.take("space", 1, 2)
    groups = choices.take("groups", 1, 1, 4)
    strides = (choices.take("stride", 1, 2),) * space
    padding = choices.take("padding", "SAME", "VALID")
    last = choices.take("channels", "first", "last") == "last"
    image, features, window = ((2, 8, 11), (12,), (3,)) if space == 1 else ((2, 8, 9, 7), (12,), (3, 2))
    letters = "HW"[:space]
    names = (
        (f"N{letters}C", f"{letters}IO", f"N{letters}C") if last else (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    )
    shape = (*window, 8 // groups, *features) if last else (*features, 8 // groups, *window)
    least, most = RANGES[_byte(kind)]
    kernel = jnp.asarray(choices.numbers.integers(least, most + 1, shape), _byte(kind))
    x = choices.normal(image)
    x = np.moveaxis(x, 1, -1).copy() if last else x

    def fn(x: Array) -> Array:
        q, step = rounded(x)
        y = lax.conv_general_dilated(
            q.astype(kind).astype(_byte(kind)),
            kernel,
            strides,
            padding,
            dimension_numbers=names,
            feature_group_count=groups,
            preferred_element_type=jnp.int32,
        )
        return y.astype(jnp.float32) * (jnp.max(step) * 0.01)

    absent = ("MatMul", "MatMulInteger", "Round", "Gather")
    return Form(fn, [x], expected={"ConvInteger": 1, "QuantizeLinear": 1}, absent=absent, opset=21)


def _rounded_again(choices: Choices) -> Form:
    """A product of bytes that is scaled and rounded to bytes, which are multiplied again."""
    kind = choices.take("bytes", "int8", "uint8")
    least, most = RANGES[kind]
    rows, between, columns = choices.take("sizes", (32, 24, 16), (64, 48, 8))
    first, second = (
        jnp.asarray(choices.numbers.integers(least, most + 1, shape), kind)
        for shape in ((rows, between), (between, columns))
    )
    by_column = choices.take("scale by", "tensor", "column") == "column"
    scale = jnp.asarray(choices.numbers.uniform(1e-4, 1e-2, (between,) if by_column else ()), np.float32)
    zero = choices.take("zero point", 0, 3)
    shape = choices.take("shape", (5,), (2, 5), (1,))
    relu = choices.take("relu", False, False, True)

    def fn(x: Array) -> Array:
        y = jnp.matmul(x, first, preferred_element_type=jnp.int32).astype(jnp.float32) * scale
        y = jnp.maximum(y, 0) if relu else y
        q = jnp.clip(jnp.round(y) + zero, least, most).astype(kind)
        return jnp.matmul(q.astype(jnp.int32) - zero, second.astype(jnp.int32))

    args = [choices.numbers.integers(least, most + 1, (*shape, rows)).astype(kind)]
    expected = {"MatMulInteger": 2, "QuantizeLinear": 1} if relu else {"MatMulInteger": 1, "QLinearMatMul": 1}
    return Form(fn, args, expected=expected, absent=("MatMul", "IsNaN", "Round"), opset=21)
