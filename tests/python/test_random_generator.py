"""rng_bit_generator: the bits and the next state that XLA gives on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
from export_check import check_export
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
