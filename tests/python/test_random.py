"""Random numbers: the same bits as JAX's, keys moved about as JAX moves them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import onnx
import onnxruntime
import pytest
from export_check import check_export
from jax import lax
from jax.extend.random import define_prng_impl

from jax2onnx import UnsupportedError, to_onnx

SEED = np.int32(7)


@pytest.mark.parametrize("seed", [0, 1, -5, 2**31 - 1])
def test_bits_of_every_width_are_identical(seed):
    def fn(seed):
        key = jr.key(seed)
        return [jr.bits(key, (3, 5), dtype) for dtype in ("uint8", "uint16", "uint32")]

    check_export(fn, [np.int32(seed)])


@pytest.mark.parametrize("seed", [3, -1, 2**40 + 5])
def test_seeds_and_bits_of_64(seed):
    check_export(
        lambda seed: (jr.bits(jr.key(seed), (4,), "uint64"), jr.normal(jr.key(seed), (3,))), [np.int64(seed)], x64=True
    )


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (70000,)])
def test_shapes(shape):
    check_export(lambda seed: jr.bits(jr.key(seed), shape), [SEED])


def test_keys_split_fold_index_and_select():
    def fn(seed):
        first, second, third = jr.split(jr.key(seed), 3)
        grid = jr.split(third, (2, 3))
        folded = jr.fold_in(grid[1, 2], 7)
        chosen = jnp.where(seed > 3, first, second)
        moved = jnp.concatenate([grid.T.reshape(6)[::-1], jnp.broadcast_to(folded, (2,))])
        return jr.key_data(folded), jr.key_data(chosen), jr.key_data(moved), jr.key_data(jr.clone(grid))

    check_export(fn, [SEED])


def test_many_keys_at_once():
    def fn(seeds):
        keys = jax.vmap(jr.key)(seeds)
        folded = jax.vmap(jr.fold_in)(keys, jnp.arange(4))
        return jax.vmap(lambda key: jr.bits(key, (3,)))(keys), jr.key_data(folded)

    check_export(fn, [np.arange(4, dtype=np.int32)])


def test_keys_in_control_flow():
    def fn(seed):
        total, bits = lax.scan(lambda sum_, key: (sum_ + jr.normal(key), jr.bits(key)), 0.0, jr.split(jr.key(seed), 4))
        key = lax.fori_loop(0, 3, lambda i, key: jr.fold_in(key, i), jr.key(seed))
        return total, bits, jr.key_data(lax.cond(seed > 0, lambda: key, lambda: jr.key(0)))

    check_export(fn, [SEED])


def test_keys_of_the_old_kind_and_closed_over():
    key, old = jr.key(3), jr.PRNGKey(4)
    check_export(lambda x: x + jr.normal(key, (3,)) + jr.normal(jr.split(old)[1], (3,)), [np.float32(1)])


def test_a_key_as_input_and_output():
    def fn(key):
        return jr.split(key), jr.normal(key, (3,))

    model = to_onnx(fn, [jr.key(1)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for seed in (1, 99):
        key = jr.key(seed)
        keys, numbers = session.run(None, {"in_0": np.asarray(jr.key_data(key))})
        np.testing.assert_array_equal(keys, jr.key_data(jr.split(key)))
        np.testing.assert_allclose(numbers, fn(key)[1], rtol=2e-6)


def test_a_symbolic_batch():
    x = np.zeros((3, 4), np.float32)
    check_export(lambda x: x + jr.normal(jr.key(0), x.shape), [x], specs=[("B", 4)], more_args=[[x[:1]]])


@pytest.mark.parametrize(
    "sample",
    [
        lambda key: jr.uniform(key, (5,), minval=-1, maxval=3),
        lambda key: (jr.uniform(key, (5,), "float16"), jr.uniform(key, (5,), "bfloat16")),
        lambda key: jr.truncated_normal(key, -1, 2, (6,)),
        lambda key: jr.bernoulli(key, 0.3, (20,)),
        lambda key: jr.categorical(key, jnp.arange(4.0), shape=(9,)),
        lambda key: (jr.randint(key, (9,), -5, 100), jr.randint(key, (9,), 0, 200, "uint8")),
        lambda key: (jr.permutation(key, 10), jr.choice(key, 10, (4,), replace=False)),
        lambda key: (jr.gumbel(key, (6,)), jr.exponential(key, (6,)), jr.laplace(key, (4,))),
        lambda key: (jr.gamma(key, jnp.array([0.3, 2.0, 10.0])), jr.poisson(key, jnp.array([0.3, 4.0, 50.0]))),
        lambda key: (jr.rademacher(key, (4,)), jr.cauchy(key, (4,)), jr.geometric(key, 0.3, (4,))),
        lambda key: jr.multinomial(key, 10, jnp.array([0.2, 0.3, 0.5])),
    ],
    ids=[f"sample_{number}" for number in range(11)],
)
def test_distributions(sample):
    check_export(lambda seed: sample(jr.key(seed)), [SEED])


def test_the_hash_itself():
    words = np.array([0, 1, 2**32 - 1, 12345], np.uint32)
    from jax.extend.random import threefry2x32_p

    check_export(lambda a, b: threefry2x32_p.bind(a, b, b, a), [words, words[::-1].copy()])


def test_numbers_without_a_key_are_within_their_bounds():
    def fn(low, high):
        return lax.rng_uniform(low, high, (1000,))

    onnx.checker.check_model(to_onnx(fn, [np.float32(0), np.float32(0)]), full_check=True)
    model = to_onnx(fn, [np.float32(0), np.float32(0)], opset=21)  # ONNX Runtime lacks the operator of opset 22
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (numbers,) = session.run(None, {"in_0": np.array(2, np.float32), "in_1": np.array(5, np.float32)})
    assert numbers.shape == (1000,) and numbers.min() >= 2 and numbers.max() < 5 and numbers.std() > 0.5


def generator_of(*key_shape):
    """A generator of the user's own: words that count up from a key."""
    return define_prng_impl(
        key_shape=key_shape,
        seed=lambda seed: jnp.zeros(key_shape, "uint32") + seed.astype("uint32"),
        split=lambda key, shape: key + jnp.arange(np.prod(shape), dtype="uint32").reshape(*shape, 1),
        random_bits=lambda key, width, shape: (
            jnp.arange(np.prod(shape)).reshape(shape).astype(f"uint{width}") * key[0].astype(f"uint{width}")
        ),
        fold_in=lambda key, data: key ^ data.astype("uint32"),
        name=f"counting {key_shape}",
        tag=f"count{key_shape}",
    )


@pytest.mark.parametrize("words", [1, 2, 3, 5])
def test_a_generator_of_the_users_own(words):
    def fn(seed):
        first, second = jr.split(jr.key(seed, impl=generator_of(words)))
        return jr.bits(jr.fold_in(first, 3), (3, 2)), jr.key_data(second)

    check_export(fn, [SEED])


def test_what_cannot_be_done_is_said():
    with pytest.raises(UnsupportedError, match="more than one axis of words"):
        to_onnx(lambda seed: jr.bits(jr.key(seed, impl=generator_of(2, 2)), (3,)), [SEED])
    with pytest.raises(UnsupportedError, match="opset 18"):
        to_onnx(lambda seed: jr.bits(jr.key(seed), (3,)), [SEED], opset=17)
    with jax.threefry_partitionable(False), pytest.raises(UnsupportedError, match="jax_threefry_partitionable"):
        to_onnx(lambda seed: jr.bits(jr.key(seed), (3,)), [SEED])
