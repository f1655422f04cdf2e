"""Normalisations by groups of channels and by single channels become operators, as normalization_mode says."""

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from export_check import KEYS, check_export, metadata, op_types
from flax import nnx

from jax2onnx import to_onnx

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 5, 8)).astype(np.float32)
SCALE, BIAS = (RNG.standard_normal(8).astype(np.float32) for _ in range(2))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
# ONNX Runtime takes GroupNormalization apart: slower and less accurate than an InstanceNormalization of the groups.
BY_INSTANCE = ["Transpose", "Reshape", "InstanceNormalization", "Reshape", "Mul", "Add", "Transpose"]
ONE_OPERATOR = ["Transpose", "GroupNormalization", "Transpose"]


def moved(module):
    module.scale[...] = jnp.asarray(SCALE)
    module.bias[...] = jnp.asarray(BIAS)
    return module


def group(**options):
    return moved(nnx.GroupNorm(8, num_groups=4, rngs=nnx.Rngs(0), **options))


def over_groups_of_their_own(x):
    """As Keras writes it: scale and shift are applied to the groups, which are merged last."""
    grouped = x.reshape(*x.shape[:-1], 4, 2)
    mean, variance = grouped.mean((1, 2, 4), keepdims=True), grouped.var((1, 2, 4), keepdims=True)
    scale = jax.lax.rsqrt(variance + 1e-3) * SCALE.reshape(1, 1, 1, 4, 2)
    return (grouped * scale + (-mean * scale + BIAS.reshape(1, 1, 1, 4, 2))).reshape(x.shape)


def linen_group(x):
    module = linen.GroupNorm(2)
    return module.apply({"params": {"scale": SCALE, "bias": BIAS}}, x)


@pytest.mark.parametrize("fn", [group(), linen_group], ids=["NNX", "Linen"])
@pytest.mark.parametrize("batch", [1, 2])
def test_group_normalization(fn, batch):
    assert op_types(check_export(fn, [X[:batch]], **CLOSE)) == BY_INSTANCE
    assert op_types(check_export(fn, [X[:batch]], normalization_mode="prefer_native", **CLOSE)) == ONE_OPERATOR


def test_scale_and_bias_at_run_time():
    def fn(x, scale, bias):
        mean, variance = statistics(x, (1, 2, 4), (1, 2, 4))
        return (x - spread(mean, x)) * (jax.lax.rsqrt(spread(variance, x) + 1e-5) * scale) + bias

    assert op_types(check_export(fn, [X, SCALE, BIAS], **CLOSE)) == ONE_OPERATOR


@pytest.mark.parametrize("mode", ["auto", "prefer_native"])
def test_symbolic_batch(mode):
    options = {"specs": [("B", 6, 5, 8)], "more_args": [[X[:1]]], "normalization_mode": mode}
    expected = BY_INSTANCE if mode == "auto" else ONE_OPERATOR
    for fn in (group(), group(use_fast_variance=False)):
        assert op_types(check_export(fn, [X], **options, **CLOSE)) == expected


TWO_STEPS = {"NNX": group(use_fast_variance=False), "groups of their own": over_groups_of_their_own}


@pytest.mark.parametrize("name", TWO_STEPS)
def test_a_variance_in_two_steps_stays_one(name):
    assert op_types(check_export(TWO_STEPS[name], [X], **CLOSE)) == BY_INSTANCE
    native = check_export(TWO_STEPS[name], [X], normalization_mode="prefer_native", **CLOSE)
    assert op_types(native) == ONE_OPERATOR


def test_older_opsets_have_instances_only():
    assert "InstanceNormalization" in op_types(check_export(group(), [X], opset=20, **CLOSE))


def test_channels_first():
    layer = eqx.nn.GroupNorm(4, 8)
    images = X.transpose(0, 3, 1, 2)
    native = check_export(jax.vmap(layer), [images], normalization_mode="prefer_native", **CLOSE)
    assert op_types(native) == ["GroupNormalization"]
    assert "GroupNormalization" not in op_types(check_export(jax.vmap(layer), [images], **CLOSE))


@pytest.mark.parametrize("use_scale", [False, True])
@pytest.mark.parametrize("use_bias", [False, True])
def test_without_scale_or_bias(use_scale, use_bias):
    expected = [op for op in BY_INSTANCE if (op != "Mul" or use_scale) and (op != "Add" or use_bias)]
    for fast in (False, True):
        layer = nnx.GroupNorm(
            8, num_groups=4, use_scale=use_scale, use_bias=use_bias, use_fast_variance=fast, rngs=nnx.Rngs(0)
        )
        assert op_types(check_export(layer, [X], **CLOSE)) == expected
        assert op_types(check_export(layer, [X], normalization_mode="prefer_native", **CLOSE)) == ONE_OPERATOR


def test_instance_normalization():
    layer = moved(nnx.InstanceNorm(8, rngs=nnx.Rngs(0)))
    assert op_types(check_export(layer, [X], **CLOSE)) == ["Transpose", "InstanceNormalization", "Transpose"]

    def channels_first(x):
        mean = x.mean((2, 3), keepdims=True)
        variance = (x * x).mean((2, 3), keepdims=True) - mean * mean
        scale = SCALE.reshape(8, 1, 1)
        return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + BIAS.reshape(8, 1, 1)

    assert op_types(check_export(channels_first, [X.transpose(0, 3, 1, 2)], **CLOSE)) == ["InstanceNormalization"]


def test_between_convolutions():
    class Block(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Conv(3, 8, (3, 3), rngs=rngs)
            self.norm = group()
            self.second = nnx.Conv(8, 4, (3, 3), rngs=rngs)

        def __call__(self, x):
            return self.second(nnx.relu(self.norm(self.first(x))))

    images = RNG.standard_normal((2, 6, 5, 3)).astype(np.float32)
    ops = ["Transpose", "Conv", *BY_INSTANCE[1:-1], "Relu", "Conv", "Transpose"]
    assert op_types(check_export(Block(nnx.Rngs(0)), [images], **CLOSE)) == ops


@pytest.mark.parametrize("fn", [group(), *TWO_STEPS.values()])
def test_decomposed_when_asked_for(fn):
    found = op_types(check_export(fn, [X], normalization_mode="force_decomposed", **CLOSE))
    assert not any(op.endswith("Normalization") for op in found)


def test_double_precision_stays():
    with jax.enable_x64(True):
        layer = nnx.GroupNorm(8, num_groups=4, dtype=jnp.float64, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    found = op_types(check_export(layer, [X.astype(np.float64)], x64=True))
    assert not any(op.endswith("Normalization") for op in found)


def statistics(x, mean_axes, variance_axes, groups=4):
    grouped = x.reshape(*x.shape[:-1], groups, -1)
    mean = grouped.mean(mean_axes)
    variance = (grouped * grouped).mean(variance_axes) - mean * mean
    return mean, variance


def spread(values, x):
    return jnp.repeat(values, x.shape[-1] // values.shape[-1], axis=-1)[:, None, None]


def other_axes(x):
    mean, variance = statistics(x, (1, 2, 4), (1, 2, 4))
    return (x - spread(mean, x)) * jax.lax.rsqrt(spread(variance, x)[..., ::-1] + 1e-5)


def one_row_only(x):
    mean = x.mean(1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt((x * x).mean(1, keepdims=True) - mean * mean + 1e-5)


def interleaved(x):
    mean, variance = statistics(x, (1, 2, 4), (1, 2, 4))
    mean, variance = (jnp.tile(value, (1, 2))[:, None, None] for value in (mean, variance))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


def scale_of_another_axis(x):
    mean = x.mean((1, 2), keepdims=True)
    variance = (x * x).mean((1, 2), keepdims=True) - mean * mean
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * X[0, 0, :, :1])


@pytest.mark.parametrize("fn", [other_axes, one_row_only, interleaved, scale_of_another_axis])
def test_near_misses_stay(fn):
    found = op_types(check_export(fn, [X], rtol=1e-3, atol=1e-4))
    assert "GroupNormalization" not in found
    if fn is not scale_of_another_axis:
        assert "InstanceNormalization" not in found


@pytest.mark.parametrize("fn", [group(), *TWO_STEPS.values(), moved(nnx.InstanceNorm(8, rngs=nnx.Rngs(0)))])
@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_operators_are_no_less_accurate(fn, offset):
    x = (X + offset).astype(np.float32)
    exact = np.asarray(check_reference(fn, x))

    def error(mode):
        model = to_onnx(fn, [x], normalization_mode=mode)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return np.abs(session.run(None, {session.get_inputs()[0].name: x})[0] - exact).max()

    assert error("auto") <= max(2 * error("force_decomposed"), 1e-6)


def check_reference(fn, x):
    """The normalisation in double precision."""
    x = x.astype(np.float64)
    groups = 8 if isinstance(fn, nnx.InstanceNorm) else 4
    grouped = x.reshape(*x.shape[:-1], groups, -1)
    epsilon = 1e-3 if fn is over_groups_of_their_own else 1e-6
    axes = (1, 2, 4)
    normal = (grouped - grouped.mean(axes, keepdims=True)) / np.sqrt(grouped.var(axes, keepdims=True) + epsilon)
    return normal.reshape(x.shape) * SCALE.astype(np.float64) + BIAS


def test_it_names_all_its_lines():
    def fn(x):
        grouped = x.reshape(*x.shape[:-1], 4, 2)
        mean = grouped.mean((1, 2, 4))
        variance = (grouped * grouped).mean((1, 2, 4)) - mean * mean
        centred = x - jnp.repeat(mean, 2, axis=-1)[:, None, None]
        return centred * (jax.lax.rsqrt(jnp.repeat(variance, 2, axis=-1)[:, None, None] + 1e-5) * SCALE) + BIAS

    for mode, op, emitter in (
        ("auto", "InstanceNormalization", "fuse_group_normalization:"),
        ("prefer_native", "GroupNormalization", "prefer_native_group_normalization:"),
    ):
        model = check_export(fn, [X], normalization_mode=mode, **CLOSE)
        said = metadata(next(node for node in model.graph.node if node.op_type == op))
        first = fn.__code__.co_firstlineno
        assert said[KEYS[1]].startswith(emitter)
        for line in range(first + 1, first + 6):
            assert f":{line} (" in said[KEYS[3]]
