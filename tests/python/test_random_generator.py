"""rng_bit_generator: the bits and the next state that XLA gives on a CPU; and the keys that are made of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import onnxruntime
import pytest
from export_check import all_nodes, check_export, metadata
from jax import lax

from jax2onnx import UnsupportedError, to_onnx

DEFAULT, THREEFRY, PHILOX = range(3)
STATE = np.array([1, 2, 3, 4], np.uint32)


@pytest.mark.parametrize("algorithm", [DEFAULT, THREEFRY, PHILOX])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (4, 6), (3, 5), (5, 3), (3, 2, 3)])
def test_bits_and_state(algorithm, shape):
    check_export(lambda state: lax.rng_bit_generator(state, shape, "uint32", algorithm), [STATE])


@pytest.mark.parametrize("algorithm", [THREEFRY, PHILOX])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint64"])
def test_other_widths(algorithm, dtype):
    for shape in [(7,), (3, 4)]:
        check_export(lambda state, s=shape: lax.rng_bit_generator(state, s, dtype, algorithm), [STATE], x64=True)


@pytest.mark.parametrize("algorithm", [THREEFRY, PHILOX])
@pytest.mark.parametrize("counter", [2**32 - 3, 2**63 - 2, 2**64 - 2])
def test_the_counter_carries(algorithm, counter):
    """From the low word to the high one; past 64 bits into the upper half of what Philox takes, not of the state."""
    state = np.array([2**64 - 5, counter], np.uint64)
    check_export(lambda state: lax.rng_bit_generator(state, (30,), "uint32", algorithm), [state], x64=True)


def test_a_size_known_at_run_time():
    def fn(state, x):
        return lax.rng_bit_generator(state, (x.shape[0], 3), "uint32", PHILOX)[1] % 8 + x.astype("uint32")

    rows = [np.ones((size, 3), np.float32) for size in (4, 1, 7)]
    check_export(fn, [STATE, rows[0]], specs=[STATE, ("B", 3)], more_args=[[STATE, row] for row in rows[1:]])


def test_pairs_of_words_need_a_constant_shape():
    with pytest.raises(UnsupportedError, match="must be constant"):
        to_onnx(lambda s, x: lax.rng_bit_generator(s, x.shape, "uint32", THREEFRY)[1], [STATE, ("B",)])


def test_opset_17_has_no_bitwise_operators():
    with pytest.raises(UnsupportedError, match="opset 18"):
        to_onnx(lambda state: lax.rng_bit_generator(state, (4,))[1], [STATE], opset=17)


def is_known(algorithm):
    """Whether this JAX has it."""
    try:
        return bool(jr.key_data(jr.key(0, impl=algorithm)).size)
    except ValueError:
        return False


def shuffled(keys):
    return jnp.concatenate([keys.reshape(2, 2).T.reshape(4)[::-1], jnp.broadcast_to(keys[1], (2,))])


KEYS = {
    "bits": lambda key, i: [jr.bits(key, (3, 2), dtype) for dtype in ("uint8", "uint16", "uint32")],
    "numbers": lambda key, i: (jr.uniform(key, (3,)), jr.normal(key, (2, 2)), jr.permutation(key, 5)),
    "split": lambda key, i: [jr.key_data(part) for part in jr.split(key, 3)],
    "fold": lambda key, i: jr.key_data(jr.fold_in(key, i)),
    "fold many": lambda key, i: jr.key_data(jax.vmap(jr.fold_in)(jr.split(key, 4), jnp.arange(4) + i)),
    "fold one into many": lambda key, i: jr.key_data(jax.vmap(jr.fold_in, (None, 0))(key, jnp.arange(4))),
    "bits of many": lambda key, i: jax.vmap(lambda one: jr.bits(one, (3,)))(jr.split(key, (4,))),
    "index": lambda key, i: jr.key_data(jr.split(key, 4)[i]),
    "index by several": lambda key, i: jr.key_data(jr.split(key, 4)[jnp.array([2, 0]) + i]),
    "move": lambda key, i: jr.key_data(shuffled(jr.split(key, 4))),
    "select": lambda key, i: jr.key_data(jnp.where(i > 0, *jr.split(key))),
    "select many": lambda key, i: jr.key_data(jnp.where(jnp.arange(2) > i, *jr.split(key, (2, 2)))),
    "carry": lambda key, i: lax.scan(lambda k, _: (jr.split(k)[0], jr.bits(k, (2,))), key, None, 3)[1],
    "scan over": lambda key, i: lax.scan(lambda c, k: (c, jr.bits(k, (2,))), 0, jr.split(key, 3))[1],
    "branch": lambda key, i: jr.key_data(lax.cond(i > 3, lambda k: jr.split(k)[0], jr.clone, key)),
}


WORDS = {"rbg": 4, "unsafe_rbg": 4, "threefry4x32": 4, "philox2x32": 1, "philox4x32": 2}  # of a key
HERE = [algorithm for algorithm in WORDS if is_known(algorithm)]


@pytest.mark.parametrize("algorithm", ["rbg", "unsafe_rbg"])
@pytest.mark.parametrize("name", KEYS)
def test_keys_of_four_words(algorithm, name):
    check_export(lambda words, i: KEYS[name](jr.wrap_key_data(words, impl=algorithm), i), [STATE, np.int32(1)])


@pytest.mark.parametrize("algorithm", [algorithm for algorithm in HERE if "rbg" not in algorithm])
def test_keys_of_other_algorithms(algorithm):
    def fn(words, i):
        key = jr.wrap_key_data(words, impl=algorithm)
        return [
            KEYS[name](key, i) for name in ("bits", "split", "fold", "fold many", "index by several", "select many")
        ]

    check_export(fn, [STATE[: WORDS[algorithm]], np.int32(1)])


@pytest.mark.parametrize("algorithm", HERE)
def test_seeds_and_constants(algorithm):
    constant = jr.split(jr.key(7, impl=algorithm), 3)

    def fn(seeds, i):
        keys = jax.vmap(lambda seed: jr.key(seed, impl=algorithm))(seeds)
        return jr.key_data(keys), jr.key_data(constant[i]), jr.bits(constant[1], (3,)), jr.key_data(constant)

    check_export(fn, [np.array([-5, 0, 7], np.int32), np.int32(2)])
    check_export(lambda seed: jr.bits(jr.key(seed, impl=algorithm), (3,), "uint64"), [np.int64(2**40 + 5)], x64=True)


def test_the_bits_are_named_by_the_users_line():
    def fn(words):
        key = jr.wrap_key_data(words, impl="rbg")
        return jr.uniform(key, (3,))

    model = check_export(fn, [STATE])
    lines = {metadata(node)["pkg.jax2onnx.callsite"].rsplit(":", 1)[1] for node in all_nodes(model)}
    assert lines <= {str(fn.__code__.co_firstlineno + line) for line in (1, 2)}


def test_keys_that_are_inputs_and_outputs_are_words():
    key = jr.key(3, impl="rbg")
    model = to_onnx(lambda key: jr.split(key, 3), [key])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (words,) = session.run(None, {"in_0": np.asarray(jr.key_data(key))})
    np.testing.assert_array_equal(words, jr.key_data(jr.split(key, 3)))
