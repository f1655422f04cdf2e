"""What libraries of solvers are made of: Equinox's loops, with checks inside, buffers, and steps until convergence."""

from __future__ import annotations

import equinox as eqx
import equinox.internal as eqxi
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import check_export

X = np.array([0.5, 2.0, 9.0], np.float32)


@pytest.mark.parametrize("kind", ["lax", "checkpointed", "bounded"])
def test_a_loop_until_convergence(kind):
    """Newton's square root, with a check of the steps taken, as root finders have it."""

    def step(state):
        y, _, count = state
        new = 0.5 * (y + X / y)
        return new, jnp.max(jnp.abs(new - y)), count + 1

    def fn(y):
        steps = None if kind == "lax" else 64
        y, error, count = eqxi.while_loop(
            lambda state: state[1] > 1e-6, step, (y, jnp.float32(1), jnp.int32(0)), max_steps=steps, kind=kind
        )
        y = eqx.error_if(y, count >= 64, "it does not converge")
        return y, count, error

    check_export(fn, [np.ones(3, np.float32)])


@pytest.mark.parametrize("kind", ["checkpointed", "bounded"])
def test_results_that_are_collected_in_a_buffer(kind):
    """As solvers of differential equations save what they are asked for."""

    def step(state):
        index, y, saved = state
        y = y - 0.1 * y
        return index + 1, y, saved.at[index].set(y)

    def fn(y):
        saved = jnp.full((5, 3), jnp.inf)
        _, y, saved = eqxi.while_loop(
            lambda state: state[0] < 4,
            step,
            (jnp.int32(0), y, saved),
            max_steps=16,
            kind=kind,
            buffers=lambda state: state[2],
        )
        return y, saved

    check_export(fn, [X])
