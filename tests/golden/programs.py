"""The programs behind the golden files. The files name lines of this one: after an edit here, run `make goldens`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

PROGRAMS = {}


def golden(*inputs, **options):
    """Marks a program; ``inputs`` and ``options`` are what ``to_onnx`` is given."""

    def register(program):
        PROGRAMS[program.__name__] = (program, inputs, options)
        return program

    return register


def ramp(*shape):
    size = int(np.prod(shape))
    return np.linspace(-1.0, 1.0, size, dtype=np.float32).reshape(shape)


@golden((2,))
def scaled_sine(x):
    return jnp.sin(x) * 2.0


@golden(("B", 3))
def symbolic_batch(x):
    return jnp.tanh(x) + x


WEIGHTS = {"hidden": {"kernel": ramp(3, 4), "bias": ramp(4)}, "last": {"kernel": ramp(4, 2), "bias": ramp(2)}}


def dense(x, layer):
    return x @ layer["kernel"] + layer["bias"]


@golden(("B", 3))
def mlp(x):
    hidden = jax.nn.relu(dense(x, WEIGHTS["hidden"]))
    return dense(hidden, WEIGHTS["last"])


@jax.jit
def doubled(x):
    return jnp.exp(x) + jnp.exp(x) * 0.5


@golden((2,))
def helper_on_two_lines(x):
    first = doubled(x)
    second = doubled(first)
    return second


@golden((2, 4))
def softmax(x):
    return jax.nn.softmax(x, axis=-1)


class LayerNorm:
    def __init__(self, size):
        self.scale = ramp(size)

    def __call__(self, x):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.var(x, axis=-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-6) * self.scale


@golden((2, 4))
def layer_norm(x):
    return LayerNorm(4)(x)


@golden((2, 3, 4), (2, 5, 4))
def attention_scores(query, key):
    scores = jnp.einsum("bqd,bkd->bqk", query, key)
    return scores / jnp.sqrt(4.0)


@golden((3, 2))
def library_functions(x):
    clean = jnp.nan_to_num(x)
    length = jnp.linalg.norm(x)
    return jnp.where(clean > 0.0, clean, length)


@golden(np.zeros((4,), np.int32), np.ones((4,), np.int32))
def integers(a, b):
    return jnp.where(a > b, a * b - 1, jnp.maximum(a, b))


@golden((2, 3, 4))
def data_movement(x):
    return jnp.transpose(x, (2, 0, 1)).reshape(4, 6), jnp.concatenate([x[:, :1], x[:, 1:]], axis=1), x[::-1]


@golden((2,), (2,), input_names=["left", "right"], output_names=["same", "fixed", "sum"])
def outputs_of_every_kind(left, right):
    return left, jnp.float32(3.0), left + left


@golden((2, 4))
def reductions(x):
    return jnp.sum(x, axis=0), jnp.max(x), jnp.argmax(x, axis=1), jnp.cumsum(x, axis=1)


def scale_by(x, factor):
    return x * factor


@golden((1, 2, 2, 3), inputs_as_nchw=[0], outputs_as_nchw=[0])
def channels_first(x):
    return functools.partial(scale_by, factor=0.5)(x)


@golden(("B", 3, 3), (3, 2))
def triangular_system(a, b):
    factor = jax.lax.linalg.cholesky(a, symmetrize_input=False)
    return jax.scipy.linalg.solve_triangular(factor[0], b, lower=True)


@golden(("B", 3, 3))
def eigenvalues(x):
    return jnp.linalg.eigvalsh(x)


@golden(np.zeros((2, 8), np.complex64), np.zeros((2,), np.float32))
def rotated_spectrum(z, angle):
    turned = z * jnp.exp(1j * angle)[:, None]
    return jnp.fft.fft(turned), jnp.abs(turned)
