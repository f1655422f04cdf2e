"""What the messages in this folder are about."""

import jax
import jax.numpy as jnp
import numpy as np

random = np.random.default_rng(0)
table = random.normal(size=(11, 4)).astype(np.float32)
up = random.normal(size=(4, 8)).astype(np.float32)
down = random.normal(size=(8, 4)).astype(np.float32)


def attend(x):
    scores = x @ x.T
    return jax.nn.softmax(scores) @ x


def step(state, row):
    state = jnp.tanh(state @ up)
    state = state @ down + row
    return state, jnp.sum(state)


def model(x, tokens):
    looked_up = jnp.asarray(table)[tokens]
    x = attend(x + looked_up)
    wave = jnp.sin(x)
    state, sums = jax.lax.scan(step, wave, jnp.ones((3, 4), jnp.float32))
    pairs = jnp.reshape(jnp.exp(state), (3, 8))
    return pairs, jnp.cumsum(sums) * 2.0
