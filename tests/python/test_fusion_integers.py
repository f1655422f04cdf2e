"""Remainders with the sign of the divisor are one operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

NUMBERS = np.array([-17, -8, -1, 0, 1, 7, 8, 2147483647, -2147483648], np.int32)


def shifted(remainder):
    return jnp.where((remainder < 0) & (remainder != 0), remainder + 7, remainder)


@pytest.mark.parametrize("dtype", [np.int32, np.int8])
def test_a_remainder_by_a_positive_constant(dtype):
    numbers = NUMBERS.astype(dtype)
    for divisor in (8, 5, 1):
        found = op_types(check_export(lambda i, divisor=divisor: i % divisor, [numbers]))
        assert [op for op in found if op != "Cast"] == ["Mod"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda i: i % -8,
        lambda i: jax.lax.rem(i, jnp.int32(8)),
        lambda i: i.astype(jnp.float32) % 8.0,
        lambda i: shifted(jax.lax.rem(i, 8)),
    ],
)
def test_near_misses_give_what_jax_gives(fn):
    model = check_export(fn, [NUMBERS])
    assert all(any(a.name == "fmod" for a in node.attribute) for node in model.graph.node if node.op_type == "Mod")


def test_what_something_else_reads_is_computed_beside_it():
    def fn(i):
        remainder = jax.lax.rem(i, jnp.int32(8))
        return jnp.where((remainder < 0) & (remainder != 0), remainder + 8, remainder), remainder

    assert op_types(check_export(fn, [NUMBERS])) == ["Mod", "Mod"]


def test_it_names_its_line():
    def fn(i):
        return jnp.sin(i % 8)

    said = metadata(check_export(fn, [NUMBERS]).graph.node[0])
    assert said[KEYS[0]].endswith(f"fn:{fn.__code__.co_firstlineno + 1}")
    assert said[KEYS[1]].startswith("fuse_integers:")
