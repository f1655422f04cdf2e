"""What the documentation of the Python jax2onnx lists as examples, by the descriptions there."""

from pathlib import Path

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from flax import nnx
from jax import lax

from jax2onnx import allclose, onnx_function, to_onnx

ROW = np.linspace(-2, 3, 6, dtype=np.float32)
GRID = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6)
IMAGE = np.linspace(0, 1, 2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
KEY = jax.random.key(0)


def chosen(number):
    def fn(x):
        tests = [jnp.asarray(number == 0), jnp.asarray(number == 1), jnp.asarray(number == 2)]
        return jnp.select(tests, [x, x * 2, x * 3], default=-x)

    return fn


def grown(x, at):
    def add(x):
        return x.at[at].add(2.0).at[0].multiply(3.0)

    return lax.cond(jnp.sum(x) > 0, add, lambda x: x.at[at].multiply(0.5), x)


def reconstructed(u):
    """Weights of neighbouring differences, as in shock-capturing schemes."""
    left, middle, right = u[:-2], u[1:-1], u[2:]
    smooth = (middle - left) ** 2, (right - middle) ** 2
    weights = [share / (1e-6 + size) ** 2 for share, size in zip((1 / 3, 2 / 3), smooth, strict=True)]
    return (weights[0] * (1.5 * middle - 0.5 * left) + weights[1] * 0.5 * (middle + right)) / sum(weights)


FUNCTIONS = {
    "the absolute value": (jnp.abs, [ROW]),
    "the sign": (jnp.sign, [ROW]),
    "a choice by elements": (lambda x: jnp.where(x > 0, x, x * 0.1), [ROW]),
    "numbers in a row": (lambda x: x + jnp.arange(6), [ROW]),
    "numbers evenly spaced": (lambda x: x * jnp.linspace(0, 1, 6), [ROW]),
    "a counted loop": (lambda x: lax.fori_loop(0, 5, lambda i, c: c + 0.1 * i, x), [ROW]),
    "a loop with a condition": (lambda x: lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: c * 2 + 1, x), [ROW]),
    "a scan over nothing": (lambda x: lax.scan(lambda c, _: (c * 0.5 + 1, c.sum()), x, None, length=4), [ROW]),
    "sorted slices": (lambda x: (jnp.sort(x[:3])[::-1], jnp.sort(x[3:])), [ROW]),
    "a scalar choice, the first": (chosen(0), [ROW]),
    "a scalar choice, the last": (chosen(2), [ROW]),
    "a scalar choice, none": (chosen(7), [ROW]),
    "choices by elements": (lambda x: jnp.select([x < -1, x < 1], [x * 2, x * 3], x), [ROW]),
    "writes in branches": (lambda x: grown(x, np.array([1, 3])), [ROW]),
    "a written window": (lambda x, y: x.at[1:3, 2:5].set(y), [GRID, GRID[:2, :3]]),
    "what is recomputed": (jax.checkpoint(lambda x: jnp.sin(x) * jnp.cos(x)), [ROW]),
    "one activation twice": (lambda x: jax.nn.silu(jax.nn.silu(x)), [ROW]),
    "a reconstruction": (reconstructed, [ROW**2]),
    "a time step": (lambda u, c: 0.5 / jnp.max(jnp.abs(u) + jnp.sqrt(1.4 * c)), [ROW, np.abs(ROW)]),
    "a sum that broadcasts": (lambda x, y: x[:, None] + y, [ROW, GRID[:1]]),
}


@pytest.mark.parametrize("wide", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name, wide, tmp_path):
    fn, inputs = FUNCTIONS[name]
    with jax.enable_x64(wide):
        inputs = [np.asarray(x, np.float64 if wide else np.float32) for x in inputs]
        options = {"enable_double_precision": wide}
        path = to_onnx(fn, inputs, return_mode="file", output_path=tmp_path / "model.onnx", **options)
        passed, message = allclose(fn, path, inputs, rtol=1e-5, atol=1e-5, **options)
    assert passed, message


class Coder(nnx.Module):
    def __init__(self, rngs):
        self.down, self.up = nnx.Linear(6, 2, rngs=rngs), nnx.Linear(2, 6, rngs=rngs)

    def __call__(self, x):
        return self.up(nnx.relu(self.down(x)))


class Pictures(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Conv(3, 4, (3, 3), rngs=rngs), nnx.Conv(4, 8, (3, 3), rngs=rngs)
        self.head = nnx.Linear(2 * 2 * 8, 5, rngs=rngs)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.relu(self.first(x)), (2, 2), strides=(2, 2))
        x = nnx.avg_pool(nnx.relu(self.second(x)), (2, 2), strides=(2, 2))
        return self.head(x.reshape(x.shape[0], -1))


class LinenPerceptron(nn.Module):
    @nn.compact
    def __call__(self, x, *, deterministic=True):
        x = nn.BatchNorm(use_running_average=True)(nn.Dense(8)(x))
        return nn.Dense(3)(nn.gelu(nn.Dropout(0.1)(x, deterministic=deterministic)))


def bound(module, x):
    return module.bind(module.init(KEY, x))


def headed(x):
    return nnx.MultiHeadAttention(2, 6, decode=False, rngs=nnx.Rngs(0))(x)


EQUINOX = eqx.nn.MLP(6, 3, 8, 2, key=KEY)
MODELS = {
    "an autoencoder of NNX": (lambda: Coder(nnx.Rngs(0)), GRID),
    "a convolutional network of NNX": (lambda: Pictures(nnx.Rngs(0)), IMAGE),
    "two activations of NNX in a row": (lambda: nnx.Sequential(nnx.relu, nnx.relu), GRID),
    "attention of NNX": (lambda: headed, GRID[None]),
    "a recurrent cell of NNX": (lambda: lambda x: nnx.GRUCell(6, 4, rngs=nnx.Rngs(0))(x[:, :4], x)[1], GRID),
    "a perceptron of Linen": (lambda: bound(LinenPerceptron(), GRID), GRID),
    "a sequence of Linen": (lambda: bound(nn.Sequential([nn.Dense(8), nn.relu, nn.Dense(3)]), GRID), GRID),
    "a perceptron of Equinox": (lambda: jax.vmap(EQUINOX), GRID),
    "a perceptron of Equinox for inference": (lambda: jax.vmap(eqx.nn.inference_mode(EQUINOX)), GRID),
    "a layer of Equinox": (lambda: jax.vmap(eqx.nn.Linear(6, 3, key=KEY)), GRID),
}


@pytest.mark.parametrize("batch", ["open", "fixed"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model(name, batch, tmp_path):
    model, x = MODELS[name][0](), MODELS[name][1]
    shape = x.shape if batch == "fixed" else ("B", *x.shape[1:])
    path = to_onnx(model, [shape], return_mode="file", output_path=tmp_path / "model.onnx")
    passed, message = allclose(model, path, [x], rtol=1e-4, atol=1e-5)
    assert passed, message


# The pages on functions and on validation


@pytest.mark.parametrize("options, domains", [({}, 2), ({"unique": True}, 1)])
def test_a_function_of_the_model(options, domains):
    @onnx_function(**options)
    def block(x):
        return jnp.tanh(x) + 1.0

    model = to_onnx(lambda x: block(block(x)), [jax.ShapeDtypeStruct((2, 4), jnp.float32)])
    assert len({(function.domain, function.name) for function in model.functions}) == domains
    assert len(model.graph.node) == 2
    assert allclose(lambda x: block(block(x)), model, [(2, 4)])[0]


def test_the_checklist_before_a_model_is_shared(tmp_path):
    def fn(x):
        return jnp.sin(x) + 0.5 * x

    path = Path(tmp_path) / "model.onnx"
    to_onnx(fn, inputs=[("B", 16)], return_mode="file", output_path=str(path))
    model = onnx.load(path)
    onnx.checker.check_model(model)
    onnx.shape_inference.infer_shapes(model)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    session.run(None, {session.get_inputs()[0].name: np.zeros((2, 16), np.float32)})
    for batch in (2, 4):
        matches, message = allclose(fn, str(path), inputs=[np.zeros((batch, 16), np.float32)], rtol=1e-5, atol=1e-5)
        assert matches, message
