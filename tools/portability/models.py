"""Some sixty models of many kinds and styles, small, for running in every runtime: plain functions, Flax NNX, Linen,
Equinox, Keras.

A model is a function without arguments that gives what to export and the inputs to run it on, or its name as an axis's
size. Inputs and outputs have types that every runtime can be fed from the outside: halves and bfloat16 are inside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Model(NamedTuple):
    """What is exported and run."""

    fn: Callable[..., Any]
    inputs: list[np.ndarray]
    specs: list[Any] | None = None  # shapes with names for sizes; the inputs' own where None
    x64: bool = False
    tolerance: float = 1e-4


MODELS: dict[str, Callable[[], Model]] = {}


def model(build: Callable[[], Model]) -> Callable[[], Model]:
    MODELS[build.__name__] = build
    return build


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def whole(*shape: int, most: int = 10, least: int = 0, dtype: Any = np.int32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(least, most, shape).astype(dtype)


def weight(*shape: int) -> jax.Array:
    return jnp.asarray(normal(*shape, seed=7) / np.sqrt(shape[0]))


# ---- elementwise ----


@model
def elementwise() -> Model:
    return Model(lambda x, y: jnp.tanh(x) * jnp.exp(-(y**2)) + jnp.where(x > y, x, jnp.sin(y)), [normal(3, 4)] * 2)


@model
def activations() -> Model:
    functions = [jax.nn.relu, jax.nn.elu, jax.nn.softplus, jax.nn.silu, jax.nn.hard_swish, jax.nn.leaky_relu]
    return Model(lambda x: sum(fn(x) for fn in functions), [normal(4, 8)])


@model
def gelu_both_ways() -> Model:
    return Model(lambda x: jax.nn.gelu(x) + jax.nn.gelu(x, approximate=False), [normal(4, 8)])


@model
def special_functions() -> Model:
    scipy = jax.scipy.special
    return Model(lambda x: scipy.erf(x) + jnp.log1p(jnp.abs(x)) + jnp.expm1(x) + scipy.expit(x), [normal(5, 6)])


@model
def integer_arithmetic() -> Model:
    return Model(lambda a, b: (a // b, a % b, a * b - 3), [whole(4, 5, most=50, least=-50), whole(4, 5, least=1)])


@model
def bit_tricks() -> Model:
    return Model(lambda a, b: ((a & b) | (a ^ 5), ~a, a << 2, a >> 1), [whole(6, most=99), whole(6, most=99)])


@model
def unsigned_hash() -> Model:
    def mix(x):
        x = (x ^ (x >> 16)) * jnp.uint32(0x45D9F3B)
        return ((x ^ (x >> 16)) >> 8).astype(jnp.int32)

    return Model(lambda x: mix(x.astype(jnp.uint32)), [whole(8, most=2**20)])


@model
def comparisons_and_masks() -> Model:
    return Model(lambda x: (jnp.isnan(x), jnp.any(x > 1, 1), jnp.all(x > -9, 0), jnp.sign(x)), [normal(4, 7)])


# ---- dense layers ----


@model
def mlp_of_functions() -> Model:
    layers = [(weight(8, 16), weight(16)), (weight(16, 16), weight(16)), (weight(16, 4), weight(4))]

    def run(x):
        for w, b in layers[:-1]:
            x = jax.nn.relu(x @ w + b)
        return jax.nn.softmax(x @ layers[-1][0] + layers[-1][1])

    return Model(run, [normal(5, 8)])


@model
def mlp_of_nnx() -> Model:
    from flax import nnx

    rngs = nnx.Rngs(0)
    net = nnx.Sequential(
        nnx.Linear(8, 32, rngs=rngs), nnx.gelu, nnx.LayerNorm(32, rngs=rngs), nnx.Linear(32, 4, rngs=rngs)
    )
    return Model(net, [normal(3, 8)], [("B", 8)])


@model
def mlp_of_linen() -> Model:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for width in (16, 16):
                x = nn.silu(nn.Dense(width)(x))
            return nn.log_softmax(nn.Dense(5)(x))

    x = normal(4, 8)
    return Model(Net().bind(Net().init(jax.random.key(0), x)), [x])


@model
def mlp_of_equinox() -> Model:
    import equinox as eqx

    return Model(jax.vmap(eqx.nn.MLP(6, 3, 16, 2, key=jax.random.key(0))), [normal(4, 6)])


@model
def mixture_of_experts() -> Model:
    gate, experts = weight(8, 4), weight(4, 8, 8)

    def run(x):
        scores, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
        every = jnp.einsum("bi,eij->bej", x, experts)
        return jnp.einsum("bk,bkj->bj", scores, jnp.take_along_axis(every, chosen[..., None], 1))

    return Model(run, [normal(5, 8)])


# ---- images ----


@model
def cnn_of_nnx() -> Model:
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Conv(3, 8, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
            self.second = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
            self.head = nnx.Linear(16, 5, rngs=rngs)

        def __call__(self, x):
            x = nnx.max_pool(nnx.relu(self.norm(self.first(x))), (2, 2), (2, 2))
            return self.head(jnp.mean(nnx.relu(self.second(x)), (1, 2)))

    return Model(Net(nnx.Rngs(0)), [normal(2, 16, 16, 3)])


@model
def cnn_of_linen() -> Model:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Conv(8, (5, 5), strides=2)(x))
            x = nn.GroupNorm(4)(nn.Conv(16, (3, 3), feature_group_count=8)(x))
            return nn.Dense(4)(nn.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1))

    x = normal(2, 16, 16, 3)
    return Model(Net().bind(Net().init(jax.random.key(0), x)), [x])


@model
def residual_block() -> Model:
    kernels = [weight(3, 3, 8, 8) for _ in range(2)]
    conv = functools.partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME")
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    return Model(
        lambda x: jax.nn.relu(x + conv(jax.nn.relu(conv(x, kernels[0], **layout)), kernels[1], **layout)),
        [normal(1, 8, 8, 8)],
    )


@model
def unet() -> Model:
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.down = nnx.Conv(3, 8, (3, 3), rngs=rngs)
            self.deep = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
            self.up = nnx.ConvTranspose(16, 8, (2, 2), strides=(2, 2), rngs=rngs)
            self.last = nnx.Conv(16, 1, (1, 1), rngs=rngs)

        def __call__(self, x):
            skip = nnx.relu(self.down(x))
            return self.last(jnp.concatenate([skip, self.up(nnx.relu(self.deep(skip)))], -1))

    return Model(Net(nnx.Rngs(0)), [normal(1, 16, 16, 3)])


@model
def resize_nearest() -> Model:
    return Model(lambda x: jax.image.resize(x, (1, 12, 12, 3), "nearest"), [normal(1, 6, 6, 3)])


@model
def resize_linear() -> Model:
    return Model(lambda x: jax.image.resize(x, (1, 12, 10, 3), "linear"), [normal(1, 6, 5, 3)])


@model
def resize_cubic() -> Model:
    return Model(lambda x: jax.image.resize(x, (2, 12, 12, 3), "cubic"), [normal(2, 6, 6, 3)])


@model
def pooling_with_padding() -> Model:
    def run(x):
        most = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return most + lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9

    return Model(run, [normal(1, 9, 9, 4)])


@model
def signal_filter() -> Model:
    kernel = weight(5, 1, 1)
    return Model(
        lambda x: lax.conv_general_dilated(x, kernel, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")),
        [normal(2, 20, 1)],
    )


# ---- sequences ----


@model
def lstm_of_nnx() -> Model:
    from flax import nnx

    net = nnx.RNN(nnx.LSTMCell(6, 8, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))
    return Model(net, [normal(2, 7, 6)])


@model
def lstm_backwards() -> Model:
    from flax import nnx

    net = nnx.RNN(nnx.LSTMCell(6, 8, rngs=nnx.Rngs(0)), reverse=True, keep_order=True, rngs=nnx.Rngs(0))
    return Model(net, [normal(2, 7, 6)])


@model
def lstm_of_equinox() -> Model:
    import equinox as eqx

    cell = eqx.nn.LSTMCell(6, 8, key=jax.random.key(0))

    def run(xs):
        state, _ = lax.scan(lambda state, x: (cell(x, state), None), (jnp.zeros(8), jnp.zeros(8)), xs)
        return state

    return Model(run, [normal(7, 6)])


@model
def gru_of_linen() -> Model:
    from flax import linen as nn

    x = normal(2, 7, 6)
    net = nn.RNN(nn.GRUCell(8))
    return Model(net.bind(net.init(jax.random.key(0), x)), [x])


@model
def recurrence_by_hand() -> Model:
    w, u = weight(6, 8), weight(8, 8)

    def run(xs):
        def step(h, x):
            h = jnp.tanh(x @ w + h @ u) * 0.9 + h * 0.1
            return h, h.sum()

        return lax.scan(step, jnp.zeros(8), xs)

    return Model(run, [normal(9, 6)])


@model
def state_space() -> Model:
    a = jnp.asarray(np.linspace(0.5, 0.9, 8, dtype=np.float32))
    return Model(
        lambda x: lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a + 0 * x, x))[1],
        [normal(10, 8)],
    )


# ---- loops and conditions ----


@model
def counted_loop() -> Model:
    return Model(lambda x: lax.fori_loop(0, 5, lambda i, x: x * 0.5 + i, x), [normal(4)])


@model
def newton_until() -> Model:
    def run(a):
        far = lambda state: jnp.max(jnp.abs(state[0] ** 2 - a)) > 1e-4  # noqa: E731
        return lax.while_loop(far, lambda state: ((state[0] + a / state[0]) / 2, state[1] + 1), (a, 0))

    return Model(run, [np.abs(normal(5)) + 1])


@model
def condition() -> Model:
    return Model(lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda x: x * 2, x), [normal(4)])


@model
def switch_of_three() -> Model:
    return Model(lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.abs], x), [np.int32(1), normal(4)])


@model
def running_sums() -> Model:
    return Model(lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0)), [normal(4, 6)])


@model
def running_extremes() -> Model:
    return Model(lambda x: (lax.cummax(x, 1), lax.cummin(x), lax.cumlogsumexp(x)), [normal(4, 6)])


# ---- transformers ----


def _heads(x: jax.Array, heads: int) -> jax.Array:
    return x.reshape(*x.shape[:-1], heads, -1)


@model
def attention_by_einsum() -> Model:
    w = [weight(16, 16) for _ in range(4)]

    def run(x):
        q, k, v = (_heads(x @ part, 4) for part in w[:3])
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2
        scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), scores, -1e9)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ w[3]

    return Model(run, [normal(2, 6, 16)])


@model
def attention_of_jax_nn() -> Model:
    return Model(functools.partial(jax.nn.dot_product_attention, is_causal=True), [normal(2, 6, 4, 8)] * 3)


@model
def grouped_queries() -> Model:
    return Model(jax.nn.dot_product_attention, [normal(2, 6, 4, 8), normal(2, 6, 2, 8), normal(2, 6, 2, 8, seed=3)])


@model
def attention_of_nnx() -> Model:
    from flax import nnx

    layer = nnx.MultiHeadAttention(4, 16, decode=False, rngs=nnx.Rngs(0))
    return Model(lambda x, mask: layer(x, mask=mask), [normal(2, 5, 16), np.tril(np.ones((2, 1, 5, 5), bool))])


@model
def attention_of_equinox() -> Model:
    import equinox as eqx

    layer = eqx.nn.MultiheadAttention(4, 16, key=jax.random.key(0))
    return Model(lambda x: layer(x, x, x), [normal(5, 16)])


@model
def cached_step() -> Model:
    w = [weight(16, 16) for _ in range(3)]

    def run(x, keys, values, at):
        q, k, v = (x @ part for part in w)
        keys = lax.dynamic_update_slice(keys, k, (at, 0))
        values = lax.dynamic_update_slice(values, v, (at, 0))
        scores = jnp.where(jnp.arange(8) <= at, q @ keys.T, -jnp.inf)
        return jax.nn.softmax(scores) @ values, keys, values

    return Model(run, [normal(1, 16), normal(8, 16), normal(8, 16, seed=2), np.int32(3)])


def _rotated(x: jax.Array) -> jax.Array:
    size = x.shape[-1]
    angles = jnp.arange(x.shape[1])[:, None] / 100.0 ** (jnp.arange(0, size, 2) / size)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


@model
def llama_block() -> Model:
    from flax import nnx

    rngs = nnx.Rngs(0)
    norm = nnx.RMSNorm(16, rngs=rngs)
    parts = [nnx.Linear(16, width, use_bias=False, rngs=rngs) for width in (16, 8, 8, 16, 32, 32)]
    down = nnx.Linear(32, 16, use_bias=False, rngs=rngs)

    def run(x):
        y = norm(x)
        q, k, v = (part(y).reshape(*x.shape[:2], -1, 4) for part in parts[:3])
        mixed = jax.nn.dot_product_attention(_rotated(q), _rotated(k), v, is_causal=True)
        x = x + parts[3](mixed.reshape(x.shape))
        return x + down(jax.nn.silu(parts[4](norm(x))) * parts[5](x))

    return Model(run, [normal(2, 6, 16)])


@model
def gpt_of_linen() -> Model:
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, mask):
            x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x), mask=mask)
            return x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            x = nn.Embed(20, 16)(tokens) + nn.Embed(8, 16)(jnp.arange(tokens.shape[1]))
            for _ in range(2):
                x = Block()(x, nn.make_causal_mask(tokens))
            return nn.Dense(20)(nn.LayerNorm()(x))

    tokens = whole(2, 6, most=20)
    return Model(Net().bind(Net().init(jax.random.key(0), tokens)), [tokens])


@model
def bert_with_padding() -> Model:
    table, w = weight(20, 16), [weight(16, 16) for _ in range(3)]

    def run(tokens):
        x = table[tokens]
        scores = jnp.einsum("bqd,bkd->bqk", x @ w[0], x @ w[1]) / 4 + jnp.where(tokens > 0, 0.0, -1e9)[:, None]
        return jax.nn.standardize(x + jax.nn.softmax(scores) @ (x @ w[2]))

    return Model(run, [whole(2, 6, most=20)], [jax.ShapeDtypeStruct((2, 6), jnp.int32)])


@model
def vit_of_equinox() -> Model:
    import equinox as eqx

    keys = jax.random.split(jax.random.key(0), 4)
    patch = eqx.nn.Conv2d(3, 16, 4, 4, key=keys[0])
    attention = eqx.nn.MultiheadAttention(4, 16, key=keys[1])
    norm, head = eqx.nn.LayerNorm(16), eqx.nn.Linear(16, 5, key=keys[2])

    def run(image):
        x = patch(image).reshape(16, -1).T
        y = jax.vmap(norm)(x)
        x = x + attention(y, y, y)
        return head(x.mean(0))

    return Model(run, [normal(3, 16, 16)])


# ---- moving data ----


@model
def gather_rows() -> Model:
    return Model(lambda x, i: (x[i], jnp.take(x, i, 1, mode="clip")), [normal(8, 8), whole(5, most=8)])


@model
def gather_points() -> Model:
    return Model(lambda x, i, j: x[i, j] + x[j, i].sum(), [normal(8, 8), whole(5, most=8), whole(5, most=8)])


@model
def scatter_set() -> Model:
    return Model(lambda x, i, y: x.at[i].set(y), [normal(8, 3), np.array([1, 4, 6], np.int32), normal(3, 3)])


@model
def scatter_add() -> Model:
    return Model(lambda x, i, y: x.at[i].add(y), [normal(8, 3), np.array([1, 1, 6], np.int32), normal(3, 3)])


@model
def segment_sum() -> Model:
    return Model(lambda x, i: jax.ops.segment_sum(x, i, 4), [normal(9, 2), whole(9, most=4)])


@model
def slices_and_pads() -> Model:
    def run(x, at):
        return jnp.pad(lax.dynamic_slice(x, (at, 0), (3, 4)), ((1, 2), (0, 1))), x[::-1, 1::2], jnp.roll(x, 2, 0)

    return Model(run, [normal(6, 5), np.int32(2)])


@model
def sorting() -> Model:
    return Model(lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1), jnp.median(x, 1)), [normal(4, 7)])


@model
def best_of() -> Model:
    return Model(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), *lax.top_k(x, 3)), [normal(4, 7)])


@model
def one_hot_loss() -> Model:
    def run(logits, labels):
        return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, 7) * jax.nn.log_softmax(logits), -1))

    return Model(run, [normal(5, 7), whole(5, most=7)])


@model
def einsum_and_outer() -> Model:
    return Model(lambda a, b: (jnp.einsum("ij,jk->ki", a, b), jnp.outer(a[0], b[0])), [normal(3, 4), normal(4, 5)])


# ---- mathematics ----


@model
def spectrum() -> Model:
    return Model(lambda x: jnp.abs(jnp.fft.rfft(x)), [normal(3, 16)])


@model
def filtered_spectrum() -> Model:
    return Model(lambda x: jnp.fft.ifft(jnp.fft.fft(x) * jnp.exp(-jnp.arange(12.0))).real, [normal(3, 12)])


@model
def cholesky_solve() -> Model:
    def run(a, b):
        positive = a @ a.T + 4 * jnp.eye(4)
        return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(positive), True), b)

    return Model(run, [normal(4, 4), normal(4, 2)], tolerance=1e-3)


@model
def linear_solve() -> Model:
    return Model(lambda a, b: jnp.linalg.solve(a + 5 * jnp.eye(4), b), [normal(4, 4), normal(4)], tolerance=1e-3)


@model
def least_squares_qr() -> Model:
    return Model(lambda a: jnp.abs(jnp.linalg.qr(a)[1]), [normal(5, 3)], tolerance=1e-3)


@model
def determinant_and_inverse() -> Model:
    return Model(lambda a: (jnp.linalg.det(a), jnp.linalg.inv(a + 4 * jnp.eye(3))), [normal(3, 3)], tolerance=1e-3)


@model
def random_numbers() -> Model:
    return Model(lambda seed: jax.random.uniform(jax.random.key(seed), (4, 3)), [np.int32(7)])


@model
def dropout() -> Model:
    def run(x):
        kept = jax.random.bernoulli(jax.random.key(1), 0.8, x.shape)
        return jnp.where(kept, x / 0.8, 0)

    return Model(run, [normal(4, 6)])


@model
def training_step() -> Model:
    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2)

    def step(a, b, x, y):
        value, grads = jax.value_and_grad(loss)({"a": a, "b": b}, x, y)
        return value, a - 0.1 * grads["a"], b - 0.1 * grads["b"]

    return Model(step, [normal(4, 8), normal(8, 1), normal(6, 4), normal(6, 1)])


# ---- sizes and types ----


@model
def symbolic_batch() -> Model:
    w = weight(6, 6)
    return Model(lambda x: jax.nn.softmax(x @ w) / x.shape[0], [normal(3, 6)], [("B", 6)])


@model
def symbolic_length() -> Model:
    return Model(
        lambda x: jnp.concatenate([x, x[:, ::-1]], 1).reshape(x.shape[0], -1) + jnp.arange(x.shape[1] * 2 * 4),
        [normal(2, 5, 4)],
        [("B", "T", 4)],
    )


@model
def half_precision() -> Model:
    w, b = weight(8, 8).astype(jnp.float16), weight(8).astype(jnp.float16)
    return Model(
        lambda x: jax.nn.relu(x.astype(jnp.float16) @ w + b).astype(jnp.float32), [normal(4, 8)], tolerance=1e-2
    )


@model
def bfloat16_layer() -> Model:
    w = weight(8, 8).astype(jnp.bfloat16)
    return Model(lambda x: jnp.tanh(x.astype(jnp.bfloat16) @ w).astype(jnp.float32), [normal(4, 8)], tolerance=5e-2)


@model
def double_precision() -> Model:
    w, b = normal(6, 6, dtype=np.float64), normal(6, dtype=np.float64)
    return Model(lambda x: jnp.log(jnp.exp(x @ w + b) + 1), [normal(4, 6, dtype=np.float64)], x64=True)


@model
def int8_product() -> Model:
    w = whole(8, 4, most=50, least=-50, dtype=np.int8)

    def run(x):
        scaled = jnp.clip(jnp.round(x * 20), -127, 127).astype(jnp.int8)
        return lax.dot(scaled, w, preferred_element_type=jnp.int32).astype(jnp.float32) / 400

    return Model(run, [normal(5, 8)])


# ---- Keras applications ----


def _application(name: str, size: int, **options: Any) -> Model:
    import keras

    keras.utils.set_random_seed(0)
    made = getattr(keras.applications, name)(
        weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None, **options
    )
    return Model(lambda x: made(x, training=False), [normal(1, size, size, 3)], tolerance=1e-3)


for _name, _size, _options in (
    ("MobileNetV2", 32, {"alpha": 0.35}),
    ("MobileNetV3Small", 32, {"include_preprocessing": False}),
    ("EfficientNetB0", 32, {}),
    ("DenseNet121", 32, {}),
    ("ResNet50", 32, {}),
):
    MODELS[f"keras_{_name}"] = functools.partial(_application, _name, _size, **_options)
