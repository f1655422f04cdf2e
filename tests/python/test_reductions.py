"""Reductions: exact on integers, NaN where JAX has NaN, identities where there is nothing to reduce."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

BF16 = ml_dtypes.bfloat16
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, BF16, np.float32, np.float64]
RNG = np.random.default_rng(0)


def samples(dtype, *shape):
    """Integers of the whole range, floats around 1, or booleans."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    if dtype.kind == "b":
        return RNG.random(shape) > 0.5
    return (RNG.standard_normal(shape) + 1).astype(dtype)


def reduce_fn(name, *axes):
    primitive = getattr(lax, f"{name}_p")

    def fn(x):
        extra = {"out_sharding": None} if name in NEEDS_SHARDING else {}
        return tuple(primitive.bind(x, axes=each, **extra) for each in axes)

    return fn


def _needs_sharding(name):
    jaxpr = jax.make_jaxpr(getattr(lax, name), static_argnums=1)(np.ones((2,), np.float32), (0,))
    return "out_sharding" in jaxpr.eqns[0].params


NEEDS_SHARDING = {name for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min") if _needs_sharding(name)}
AXES = ((1,), (0, 2), (0, 1, 2))
NUMERIC = ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"]


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("name", NUMERIC)
def test_numeric_reduction(name, dtype):
    check_export(reduce_fn(name, *AXES), [samples(dtype, 3, 5, 4)], x64=True)


@pytest.mark.parametrize("dtype", [bool, *INTEGERS])
@pytest.mark.parametrize("name", ["reduce_and", "reduce_or", "reduce_xor"])
def test_logical_reduction(name, dtype):
    check_export(reduce_fn(name, (1,), (0, 2)), [samples(dtype, 3, 5, 4)], x64=True)


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_extremes_of_booleans(name):
    check_export(reduce_fn(name, (1,), (0, 1)), [samples(bool, 3, 5)])


def test_common_reductions_are_single_nodes():
    x = samples(np.float32, 2, 3)
    assert op_types(check_export(lambda x: jnp.sum(x, -1), [x])) == ["ReduceSum"]
    assert op_types(check_export(lambda x: jnp.prod(x, -1), [x])) == ["ReduceProd"]
    assert op_types(check_export(lambda x: jnp.max(x, 1), [x.astype(np.int32)])) == ["ReduceMax"]


def test_all_and_any_are_reductions_of_bytes():
    x = samples(np.float32, 2, 3)
    assert op_types(check_export(lambda x: jnp.all(x, -1), [x > 1])) == ["Cast", "ReduceMin", "Cast"]
    assert op_types(check_export(lambda x: jnp.any(x), [x > 1])) == ["Cast", "ReduceMax", "Cast"]


SPECIAL = [
    [1, np.nan, 2, np.inf, -np.inf], [np.nan, 1, 2, 3, 4], [1, 2, 3, 4, np.nan], [np.inf, 1, np.nan, np.nan, 2],
    [-np.inf, -np.inf, -np.inf, -np.inf, -np.inf], [np.inf, np.inf, 3e4, 1, 2], [-0.0, 0.0, -0.0, 0.0, 0.0],
    [5, 1, 5, 1, 3], [np.nan] * 5, [-np.inf, np.nan, -np.inf, np.inf, 0], [6e4, 6e4, -6e4, -6e4, 6e4],
    [np.inf, -np.inf, np.inf, -np.inf, 1],
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_of_special_values(dtype):
    def fn(x):
        found = [lax.argmax(x, 1, jnp.int32), lax.argmin(x, 1, jnp.int32), lax.argmax(x.T, 0, jnp.int32)]
        return *found, jnp.max(x, 1), jnp.min(x, 1), jnp.max(x.T, 0), jnp.max(x), jnp.min(x[4:9:4])

    check_export(fn, [np.array(SPECIAL).astype(dtype)], x64=True)


@pytest.mark.parametrize("dtype", [bool, *INTEGERS, *FLOATS])
@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint8])
def test_place_of_extreme(dtype, index):
    def fn(x):
        return lax.argmax(x, 1, index), lax.argmin(x, 1, index), lax.argmax(x, 2, index), lax.argmin(x, 0, index)

    x = samples(dtype, 3, 6, 4)
    x[:, 4] = x[:, 2]  # ties
    check_export(fn, [x], x64=True)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.int64, bool])
def test_nothing_to_reduce(dtype):
    logical = ["reduce_and", "reduce_or"] + ([] if dtype is np.float32 else ["reduce_xor"])
    names = (["reduce_max", "reduce_min"] if dtype is bool else NUMERIC) + ([] if dtype is np.float32 else logical)

    def fn(x):
        empty = x[:, :0]
        return [reduce_fn(name, (1,), (), (0, 1))(part) for name in names for part in (empty, x[:0])]

    check_export(fn, [samples(dtype, 3, 4)], x64=True)


CUMULATIVE = {"cumsum": lax.cumsum, "cumprod": lax.cumprod, "cummax": lax.cummax, "cummin": lax.cummin}


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("name", CUMULATIVE)
def test_cumulative(name, dtype):
    run = CUMULATIVE[name]
    check_export(lambda x: (run(x, 1), run(x, 0, reverse=True)), [samples(dtype, 3, 5)], x64=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cumulative_log_sum_exp(dtype):
    x = np.array([[-np.inf, -np.inf, 1, 30, -4], [1, 2, -np.inf, np.inf, 3], [-80, 0.5, 80, np.nan, 1]]).astype(dtype)
    check_export(lambda x: (lax.cumlogsumexp(x, 1), lax.cumlogsumexp(x, 1, reverse=True)), [x], x64=True)


def test_cumulative_of_special_values():
    x = np.array(SPECIAL, np.float32)
    check_export(lambda x: [run(x, 1) for run in (lax.cummax, lax.cummin, lax.cumprod, lax.cumsum)], [x])
    check_export(lambda x: [run(x, 0) for run in (lax.cummax, lax.cummin)], [np.zeros((0, 3), np.float32)])
    check_export(lambda x: [run(x, 0) for run in (lax.cummax, lax.cumsum)], [np.ones((1, 3), np.float32)])


@pytest.mark.parametrize("opset", [17, 18, 20, 26])
def test_opset(opset):
    def fn(x):
        n = x.astype(jnp.int32)
        floats = [op(x, 1) for op in (jnp.sum, jnp.prod, jnp.max, jnp.min, jnp.argmax, jnp.mean)]
        integers = [op(n, 1) for op in (jnp.sum, jnp.prod, jnp.max, jnp.min, jnp.argmin)]
        runs = [run(x, 1, reverse=True) for run in (*CUMULATIVE.values(), lax.cumlogsumexp)] + [lax.cumprod(n, 1)]
        return floats, integers, runs, jnp.any(x > 1, 1), jnp.all(x > 1, 0), *reduce_fn("reduce_xor", (1,))(n)

    check_export(fn, [samples(np.float32, 3, 5)], opset=opset)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_symbolic_size(dtype):
    def fn(x):
        plain = [op(x, axis) for op in (jnp.sum, jnp.max, jnp.min, jnp.argmax) for axis in (0, 1)]
        product = reduce_fn("reduce_prod", (0,), (1,), (0, 1))(x)
        runs = [run(x, axis, reverse=True) for run in CUMULATIVE.values() for axis in (0, 1)]
        return plain, product, runs, jnp.sum(x)

    more = [[samples(dtype, 1, 3)], [samples(dtype, 5, 3)]]
    check_export(fn, [samples(dtype, 4, 3)], specs=[spec("B", 3, dtype=dtype)], more_args=more, x64=True)


def test_extremes_of_wide_integers():
    """Equal upper halves and lower ones of either sign, as in times in milliseconds."""
    x = RNG.integers(2**40, 2**40 + 2**32, (4, 9), np.int64)

    def fn(x):
        runs = [run(x, axis) for run in (lax.cummax, lax.cummin) for axis in (0, 1)]
        pairs = [
            jnp.maximum(x, x[:1]),
            jnp.minimum(x, x[:, :1]),
            jnp.clip(x, x[0, 0], x[1, 1]),
            jnp.clip(x, 5, 3 * 2**30),
        ]
        return [op(x, axis) for op in (jnp.max, jnp.min) for axis in (0, 1, None)], runs, pairs

    check_export(fn, [x], x64=True)
    check_export(fn, [x.astype(np.uint64)], x64=True)
    check_export(fn, [x - 2**41], x64=True)


def spec(*shape, dtype):
    return jax.ShapeDtypeStruct(jax.export.symbolic_shape(", ".join(map(str, shape))), dtype)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_places_of_extremes_among_8_bit_floats(name):
    def fn(x):
        narrow = x.astype(jnp.dtype(name))
        return jnp.argmax(narrow, 1), jnp.argmin(narrow, 1)

    check_export(fn, [np.array([[3, -1, 7, 2], [1, np.nan, 9, -4]], np.float32)])


def test_large_integer_sums_wrap():
    x = np.full((2, 1 << 12), 2**31 - 1, np.int32)
    check_export(lambda x: jnp.sum(x, 1), [x])
    check_export(lambda x: reduce_fn("reduce_sum", (0, 1))(jnp.broadcast_to(x, (1 << 11, 2, 1 << 12))[:, 0]), [x])
