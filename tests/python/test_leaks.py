"""A thousand exports leave nothing behind: no memory, no object, no reference."""

import gc
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax2onnx import UnsupportedError, to_onnx

EXPORTS = 1_000


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(work):
    """How resident memory and the number of Python objects grow over many runs, after a warm-up.

    JAX keeps what it traced; its caches are emptied before counting.
    """
    for _ in range(EXPORTS // 4):
        work()
    jax.clear_caches()
    gc.collect()
    objects, memory = len(gc.get_objects()), resident_bytes()
    for _ in range(EXPORTS):
        work()
    jax.clear_caches()
    gc.collect()
    return resident_bytes() - memory, len(gc.get_objects()) - objects


def check_growth(work, fn, spec):
    """An export is allowed what tracing alone costs, and little more. A leak shows every time; what the allocator of a
    process with a large heap keeps does not."""
    tracing, _ = grown(lambda: jax.make_jaxpr(fn)(spec))
    # One export takes some 200 KiB: a leak of it would show as 200 MiB, one of a reference as a thousand objects.
    allowed = max(tracing, 0) + (4 << 20)
    for _ in range(3):
        memory, objects = grown(work)
        if memory < allowed and objects < 200:
            return
    pytest.fail(f"{memory} bytes and {objects} objects more; tracing alone {tracing} bytes")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_a_thousand_exports_do_not_grow(tmp_path):
    weight = jnp.asarray(np.ones((64, 64), np.float32))
    table = np.arange(4096, dtype=np.float32).reshape(64, 64)
    path = tmp_path / "model.onnx"

    def fn(x):
        return jax.nn.silu(x @ weight) + table

    spec = jax.ShapeDtypeStruct((4, 64, 64), jnp.float32)
    before = sys.getrefcount(weight), sys.getrefcount(table)
    check_growth(
        lambda: to_onnx(fn, [spec], return_mode="file", output_path=path, stacktrace_metadata="full"), fn, spec
    )
    assert sys.getrefcount(weight) <= before[0] + 2
    assert sys.getrefcount(table) <= before[1] + 2


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_a_thousand_failed_exports_do_not_grow(tmp_path):
    weight = jnp.asarray(np.ones((64, 64), np.float32))

    def fn(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda value: value, shape, x @ weight)

    spec = jax.ShapeDtypeStruct((4, 64), jnp.float32)

    def export():
        with pytest.raises(UnsupportedError):
            to_onnx(fn, [spec])

    check_growth(export, fn, spec)
