"""dot_general: every layout and element type becomes MatMul with as little around it as possible."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from export_check import check_export, op_types
from jax import lax

RNG = np.random.default_rng(0)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


# dimension numbers (contracting, batch), shapes, and the operators that it takes
LAYOUTS = {
    "matrix_times_matrix": ((((1,), (0,)), ((), ())), (2, 3), (3, 4), ["MatMul"]),
    "leading_axes_on_the_left": ((((2,), (0,)), ((), ())), (2, 5, 3), (3, 4), ["MatMul"]),
    "vector_times_matrix": ((((0,), (0,)), ((), ())), (3,), (3, 4), ["MatMul"]),
    "matrix_times_vector": ((((1,), (0,)), ((), ())), (2, 3), (3,), ["MatMul"]),
    "vector_times_vector": ((((0,), (0,)), ((), ())), (3,), (3,), ["MatMul"]),
    "transposed_right": ((((1,), (1,)), ((), ())), (2, 3), (4, 3), ["Transpose", "MatMul"]),
    "transposed_left": ((((0,), (0,)), ((), ())), (3, 2), (3, 4), ["Transpose", "MatMul"]),
    "both_transposed": ((((0,), (1,)), ((), ())), (3, 2), (4, 3), ["MatMul", "Transpose"]),
    "free_axes_of_size_1": (
        (((3,), (1,)), ((0,), (0,))),
        (5, 1, 2, 3),
        (5, 3, 4, 1),
        ["Squeeze", "Squeeze", "MatMul", "Reshape"],
    ),
    "batched": ((((2,), (1,)), ((0,), (0,))), (5, 2, 3), (5, 3, 4), ["MatMul"]),
    "two_batch_axes": ((((3,), (2,)), ((0, 1), (0, 1))), (2, 5, 2, 3), (2, 5, 3, 4), ["MatMul"]),
    "attention_scores": (
        (((3,), (3,)), ((0, 2), (0, 2))),
        (2, 5, 3, 4),
        (2, 6, 3, 4),
        ["Transpose", "Transpose", "MatMul"],
    ),
    "batch_axes_crossed": (
        (((0,), (2,)), ((2, 1), (0, 1))),
        (4, 3, 2),
        (2, 3, 4, 5),
        ["Transpose", "Unsqueeze", "MatMul", "Squeeze"],
    ),
    "split_heads": ((((2,), (0,)), ((), ())), (2, 5, 3), (3, 4, 2), ["Reshape", "MatMul", "Reshape"]),
    "join_heads": ((((2, 3), (0, 1)), ((), ())), (2, 5, 4, 2), (4, 2, 3), ["Reshape", "Reshape", "MatMul"]),
    "contracted_in_other_order": (
        (((3, 2), (1, 0)), ((), ())),
        (2, 5, 4, 2),
        (4, 2, 3),
        ["Reshape", "Reshape", "MatMul"],
    ),
    "several_free_axes_in_a_batch": (
        (((3,), (1,)), ((0,), (0,))),
        (2, 3, 4, 5),
        (2, 5, 3, 2),
        ["Reshape", "Reshape", "MatMul", "Reshape"],
    ),
    "batched_matrix_times_vector": (
        (((2,), (1,)), ((0,), (0,))),
        (5, 2, 3),
        (5, 3),
        ["Unsqueeze", "MatMul", "Squeeze"],
    ),
    "batched_vector_times_matrix": (
        (((1,), (1,)), ((0,), (0,))),
        (5, 3),
        (5, 3, 4),
        ["Unsqueeze", "MatMul", "Squeeze"],
    ),
    "batched_vectors": ((((1,), (1,)), ((0,), (0,))), (5, 3), (5, 3), ["Mul", "ReduceSum"]),
    "outer_product": ((((), ()), ((), ())), (2, 3), (4,), ["Unsqueeze", "Mul"]),
    "batched_outer_product": ((((), ()), ((0,), (0,))), (2, 3), (2, 4), ["Unsqueeze", "Unsqueeze", "Mul"]),
    "elementwise": ((((), ()), ((0, 1), (0, 1))), (2, 3), (2, 3), ["Mul"]),
    "scalar_times_array": ((((), ()), ((), ())), (), (2, 3), ["Mul"]),
    "array_times_scalar": ((((), ()), ((), ())), (2, 3), (), ["Mul"]),
    "everything_contracted": (
        (((0, 1, 2), (2, 0, 1)), ((), ())),
        (2, 3, 4),
        (3, 4, 2),
        ["Transpose", "Reshape", "Reshape", "MatMul"],
    ),
    "nothing_to_sum": ((((1,), (0,)), ((), ())), (2, 0), (0, 4), None),
    "no_rows": ((((1,), (0,)), ((), ())), (0, 3), (3, 4), ["Identity"]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name):
    numbers, lhs, rhs, operators = LAYOUTS[name]
    model = check_export(lambda a, b: lax.dot_general(a, b, numbers), [floats(*lhs), floats(*rhs)])
    if operators is not None:
        assert sorted(op_types(model)) == sorted(operators)


TYPES = [
    (np.float16, None), (ml_dtypes.bfloat16, None), (np.float64, None), (np.float16, np.float32),
    (ml_dtypes.bfloat16, np.float32), (np.float32, np.float64), (np.int8, np.int32), (np.int8, None),
    (np.uint8, np.int32), (np.int16, None), (np.uint16, None), (np.int32, None), (np.int64, None), (np.uint32, None),
    (np.uint64, None), (bool, None),
]  # fmt: skip


@pytest.mark.parametrize("dtype,preferred", TYPES)
def test_element_type(dtype, preferred):
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        lhs, rhs = (RNG.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in ((3, 40), (40, 2)))
    else:
        lhs, rhs = (floats(*shape).astype(dtype) for shape in ((3, 5), (5, 2)))
        if dtype is bool:
            lhs, rhs = lhs & (floats(3, 5) > 0), rhs & (floats(5, 2) > 0)

    def matrix(a, b):
        return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=preferred)

    check_export(matrix, [lhs, rhs], x64=True)
    if dtype is not bool:
        check_export(
            lambda a: lax.dot_general(a, a, (((1,), (1,)), ((0,), (0,))), preferred_element_type=preferred),
            [lhs],
            x64=True,
        )


def test_weight_is_not_transposed_when_it_need_not_be():
    w = jnp.asarray(floats(3, 4))
    model = check_export(lambda x: x @ w, [floats(2, 3)], specs=[jax.ShapeDtypeStruct((2, 3), jnp.float32)])
    assert op_types(model) == ["MatMul"]


def test_symbolic_batch():
    def attention(q, k):
        return jnp.einsum("bthd,bshd->bhts", q, k)

    more = [[floats(3, 6, 2, 4), floats(3, 5, 2, 4)]]
    model = check_export(
        attention,
        [floats(2, 5, 2, 4), floats(2, 3, 2, 4)],
        specs=[("B", "T", 2, 4), ("B", "S", 2, 4)],
        more_args=more,
    )
    assert op_types(model) == ["Transpose", "Transpose", "MatMul"]
    w = floats(4, 2, 3)
    model = check_export(
        lambda x: jnp.einsum("btd,dhk->bthk", x, w),
        [floats(2, 5, 4)],
        specs=[("B", "T", 4)],
        more_args=[[floats(1, 7, 4)]],
    )
    assert "Einsum" not in op_types(model)


@pytest.mark.parametrize("opset", [17, 20, 26])
def test_opset(opset):
    check_export(lambda a, b: jnp.einsum("bij,bj->bi", a, b), [floats(2, 3, 4), floats(2, 4)], opset=opset)
    check_export(lambda a, b: jnp.einsum("bj,bj->b", a, b), [floats(2, 4), floats(2, 4)], opset=opset)


def test_sums_over_axes_of_size_one() -> None:
    x = np.array([[[2.0]], [[3.0]]], np.float32)
    check_export(lambda x: jnp.einsum("abc,afc->c", x, x), [x])
