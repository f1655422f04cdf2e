"""Normalisations become ONNX's own operators, as normalization_mode says, and are as accurate as before."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from export_check import KEYS, check_export, metadata, op_types

from jax2onnx import to_onnx

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5, 8)).astype(np.float32)
SCALE, BIAS = (RNG.standard_normal(8).astype(np.float32) for _ in range(2))


def variance_at_once(x):
    mean = jnp.mean(x, -1)
    variance = jnp.maximum(0.0, jnp.mean(x * x, -1) - mean * mean)
    return (x - mean[..., None]) * (jax.lax.rsqrt(variance[..., None] + 1e-6) * SCALE) + BIAS


def variance_in_two_steps(x):
    mean = jnp.mean(x, -1, keepdims=True)
    centred = x - mean
    variance = jnp.mean(centred * centred, -1, keepdims=True)
    return centred / jnp.sqrt(variance + 1e-5) * SCALE + BIAS


def library_variance(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * SCALE + BIAS


def spread_out(x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    scale = jax.lax.rsqrt(variance + 1e-3) * SCALE
    return x * scale + (-mean * scale + BIAS)


def root_mean_square(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * SCALE


LAYERS = [variance_at_once, variance_in_two_steps, library_variance, spread_out, lambda x: jax.nn.standardize(x)]


@pytest.mark.parametrize("opset", [17, 18, 23])
@pytest.mark.parametrize("fn", LAYERS)
def test_layer_normalization(fn, opset):
    assert op_types(check_export(fn, [X], opset=opset, rtol=1e-4, atol=1e-5)) == ["LayerNormalization"]


@pytest.mark.parametrize("fn", [variance_at_once, library_variance, root_mean_square])
def test_symbolic_batch(fn):
    model = check_export(fn, [X], specs=[("B", "T", 8)], more_args=[[X[:1, :2]]], rtol=1e-4, atol=1e-5)
    assert len(op_types(model)) == 1


def test_several_axes_without_scale():
    def fn(x):
        return (x - x.mean((1, 2), keepdims=True)) * jax.lax.rsqrt(x.var((1, 2), keepdims=True) + 1e-5)

    assert op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5)) == ["LayerNormalization"]


def test_scale_and_bias_may_be_inputs():
    def fn(x, scale, bias):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias

    assert op_types(check_export(fn, [X, SCALE, BIAS], rtol=1e-4, atol=1e-5)) == ["LayerNormalization"]


def test_root_mean_square_normalization():
    assert op_types(check_export(root_mean_square, [X])) == ["RMSNormalization"]
    assert "RMSNormalization" not in op_types(check_export(root_mean_square, [X], opset=22))

    def divided(x):
        return x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-5)

    assert op_types(check_export(divided, [X])) == ["RMSNormalization"]


def scaled_on_the_way(x):
    return x * (jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * SCALE)


def of_sums(x):
    wide = x.astype(jnp.float32)
    return SCALE * (wide / jnp.sqrt(jnp.sum(wide**2, -1, keepdims=True) / 8 + 1e-6))


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("fn", [root_mean_square, scaled_on_the_way, of_sums])
def test_older_opsets_have_the_form_that_the_runtime_fuses(fn, dtype, opset, tmp_path):
    edges = np.array([[[0.0] * 8, [np.nan] + [1.0] * 7, [np.inf] * 8, [0.25] * 8]], dtype)
    if dtype == np.float16 and fn is root_mean_square:
        pytest.skip("its product is rounded to float16 before the scale")
    more = [[edges], [X[:1, :2].astype(dtype)]]
    model = check_export(
        fn,
        [X.astype(dtype)],
        specs=[jax.ShapeDtypeStruct(("B", "T", 8), dtype)],
        more_args=more,
        opset=opset,
        rtol=2e-3 if dtype == np.float16 else 1e-5,
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert "SimplifiedLayerNormalization" in op_types(onnx.load(tmp_path / "optimised.onnx"))


def test_instance_normalization():
    images = RNG.standard_normal((2, 3, 4, 4)).astype(np.float32)
    scale, bias = (RNG.standard_normal((3, 1, 1)).astype(np.float32) for _ in range(2))

    def fn(x):
        normal = (x - x.mean((2, 3), keepdims=True)) * jax.lax.rsqrt(x.var((2, 3), keepdims=True) + 1e-5)
        return normal * scale + bias

    assert op_types(check_export(fn, [images], rtol=1e-4, atol=1e-5)) == ["InstanceNormalization"]


def batch_normalization(mean):
    variance = np.array([0.5, 2.0, 1.0], np.float32).reshape(3, 1, 1)
    scale, bias = (RNG.standard_normal((3, 1, 1)).astype(np.float32) for _ in range(2))
    mean = np.asarray(mean, np.float32).reshape(3, 1, 1)
    return lambda x: (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + bias


def test_batch_normalization():
    images = RNG.standard_normal((2, 3, 4, 4)).astype(np.float32)
    assert op_types(check_export(batch_normalization([0.1, -0.2, 0.3]), [images])) == ["BatchNormalization"]
    # A mean far from 0 would cost places: only when asked for.
    far = batch_normalization([1000, -0.2, 0.3])
    assert "BatchNormalization" not in op_types(check_export(far, [images + 1000]))
    native = check_export(far, [images], normalization_mode="prefer_native", rtol=1e-2, atol=1e-2)
    assert op_types(native) == ["BatchNormalization"]


def test_batch_normalization_without_a_mean():
    images = RNG.standard_normal((2, 3, 4, 4)).astype(np.float32)
    scale, bias = (RNG.standard_normal((3, 1, 1)).astype(np.float32) for _ in range(2))
    assert op_types(check_export(lambda x: x * scale + bias, [images])) == ["BatchNormalization"]
    for near_miss in (
        lambda x: x * scale + bias[0],
        lambda x: x * scale[:1] + bias,
        lambda x: x * scale + bias.reshape(3, 1),
        lambda x: x[0] * scale + bias,
    ):
        images = RNG.standard_normal((2, 3, 3, 4)).astype(np.float32)
        assert "BatchNormalization" not in op_types(check_export(near_miss, [images]))


@pytest.mark.parametrize("fn", [*LAYERS, root_mean_square, batch_normalization([0.1, -0.2, 0.3])])
def test_decomposed_when_asked_for(fn):
    x = RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)
    found = op_types(check_export(fn, [x], normalization_mode="force_decomposed", rtol=1e-4, atol=1e-5))
    assert not any(op.endswith("Normalization") for op in found)


def test_double_precision_only_when_asked_for():
    x = X.astype(np.float64)

    def fn(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    assert "LayerNormalization" not in op_types(check_export(fn, [x], x64=True))
    native = check_export(fn, [x], x64=True, normalization_mode="prefer_native", rtol=1e-5, atol=1e-5)
    assert op_types(native) == ["LayerNormalization"]


@pytest.mark.parametrize("epsilon", [0, 1e-2])
@pytest.mark.parametrize("scale", [1.0, np.linspace(1, 2, X.shape[-1], dtype=np.float32)])
def test_the_variance_of_a_sample(epsilon, scale):
    def fn(x):
        deviation = (
            jnp.sqrt(x.var(-1, keepdims=True, ddof=1) + epsilon) if epsilon else x.std(-1, keepdims=True, ddof=1)
        )
        return (x - x.mean(-1, keepdims=True)) / deviation * scale

    assert op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5)) == ["LayerNormalization"]


def test_one_axis_inside_is_moved_to_the_end_and_back():
    def fn(x):
        return x * jax.lax.rsqrt(jnp.mean(x * x, 1, keepdims=True) + 1e-6)

    found = op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5))
    assert found == ["Transpose", "RMSNormalization", "Transpose"]


NEAR_MISSES = [
    lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5),
    lambda x: (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5),
    lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5),
    lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + jnp.arange(1.0, 9.0)),
    lambda x: jnp.flip(x) * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6),
]


@pytest.mark.parametrize("fn", NEAR_MISSES)
def test_near_misses_stay_as_they_are(fn):
    found = op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5))
    assert not {"LayerNormalization", "RMSNormalization"} & set(found)


def test_axes_of_one_size_are_told_apart():
    square = RNG.standard_normal((4, 4)).astype(np.float32)

    def crosswise(x):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1) + 1e-6)

    assert "RMSNormalization" not in op_types(check_export(crosswise, [square]))


def test_a_scale_of_another_axis_stays_outside():
    scale = SCALE[:5, None]

    def fn(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale

    assert "LayerNormalization" not in op_types(check_export(fn, [X[0]], rtol=1e-4, atol=1e-5))[1:]


def test_what_something_else_reads_stays():
    def fn(x):
        deviation = jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return (x - x.mean(-1, keepdims=True)) / deviation, deviation

    assert "LayerNormalization" not in op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5))


@pytest.mark.parametrize("fn", [variance_at_once, variance_in_two_steps, root_mean_square])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_native_is_no_less_accurate(fn, offset):
    x = (RNG.standard_normal((64, 8)) + offset).astype(np.float32)
    with jax.enable_x64(True):
        exact = np.asarray(fn(jnp.asarray(x.astype(np.float64))))

    def error(mode):
        model = to_onnx(fn, [x], normalization_mode=mode)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return np.abs(session.run(None, {session.get_inputs()[0].name: x})[0] - exact).max()

    assert error("auto") <= 2 * error("force_decomposed")


def test_it_names_all_its_lines():
    said = metadata(check_export(variance_in_two_steps, [X], rtol=1e-4, atol=1e-5).graph.node[0])
    first = variance_in_two_steps.__code__.co_firstlineno
    assert said[KEYS[0]] == f"variance_in_two_steps:{first + 4}"
    assert said[KEYS[1]].startswith("fuse_normalization:")
    for line in range(first + 1, first + 5):
        assert f":{line} (variance_in_two_steps)" in said[KEYS[3]]
