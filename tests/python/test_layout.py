"""Operators between convolutions take their order of axes: a channel-last model keeps a Transpose at its border."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from export_check import KEYS, check_export, metadata, op_types

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 8, 4)).astype(np.float32)
KERNEL = (RNG.standard_normal((3, 3, 4, 4)) / 6).astype(np.float32)
CHANNELS = RNG.standard_normal(4).astype(np.float32)
PLANE = RNG.standard_normal((6, 8, 1)).astype(np.float32)
WHOLE = RNG.standard_normal((6, 8, 4)).astype(np.float32)


def conv(x, kernel=KERNEL, layout=("NHWC", "HWIO", "NHWC"), strides=(1, 1)):
    return jax.lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=layout)


def between(change):
    """Something between two convolutions; it may change sizes, but not the channels."""

    def fn(x):
        return conv(change(conv(x)))

    return fn


def max_pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


BETWEEN = {
    "elementwise": lambda x: jnp.tanh(jnp.exp(-jnp.abs(x)) + 1.5),
    "scalars": lambda x: jnp.clip(x, -0.5, 0.5) * 3,
    "by channel": lambda x: x * CHANNELS + CHANNELS,
    "by place": lambda x: x * PLANE,
    "everywhere": lambda x: x * WHOLE + WHOLE[None],
    "comparison": lambda x: jnp.where(x > CHANNELS, x, -x),
    "residual": lambda x: x + jnp.sin(conv(jnp.cos(x))),
    "two residuals": lambda x: (lambda y: y + conv(jnp.cos(y)))(x + conv(jnp.sin(x))),
    "reduction that keeps its axes": lambda x: x - jnp.max(x, axis=(1, 2), keepdims=True),
    "reduction of channels": lambda x: x / (1 + jnp.sum(jnp.abs(x), axis=-1, keepdims=True)),
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "slice": lambda x: x[:, 1:5, ::2],
    "reversed": lambda x: x[:, ::-1],
    "pad": lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0)), constant_values=1.0) * 2,
    "concatenation": lambda x: jnp.concatenate([x[..., :2], jnp.sin(x)[..., 2:]], axis=-1),
    "split": lambda x: (lambda a, b: jnp.concatenate([jnp.sin(a), jnp.cos(b)], axis=-1))(*jnp.split(x, 2, axis=-1)),
    "pooling": lambda x: jnp.sin(max_pool(jnp.cos(x))),
    "running sum": lambda x: jnp.cumsum(x, axis=2),
    "half precision": lambda x: jnp.sin(x.astype(jnp.float16)).astype(jnp.float32),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_one_transpose_at_each_border(name):
    wide = dict(rtol=2e-2, atol=2e-2) if name == "half precision" else dict(rtol=1e-4, atol=1e-5)
    model = check_export(between(BETWEEN[name]), [X], **wide)
    assert op_types(model).count("Transpose") == 2
    assert op_types(model)[0] == op_types(model)[-1] == "Transpose"


@pytest.mark.parametrize("name", ["by channel", "residual", "softmax", "reduction that keeps its axes"])
def test_sizes_known_at_run_time(name):
    fn = between(BETWEEN[name])
    model = check_export(fn, [X], specs=[("B", "H", "W", 4)], more_args=[[X[:1, :4]]], opset=18, rtol=1e-4, atol=1e-5)
    assert op_types(model).count("Transpose") == 2


def test_borders_given_channel_first():
    fn = between(BETWEEN["two residuals"])
    model = check_export(fn, [X], runs=False, inputs_as_nchw=[0], outputs_as_nchw=[0])
    assert "Transpose" not in op_types(model)
    assert [value.dim_value for value in model.graph.input[0].type.tensor_type.shape.dim] == [2, 4, 6, 8]


def test_one_dimension():
    kernel = (RNG.standard_normal((3, 4, 4)) / 3).astype(np.float32)

    def fn(x):
        y = conv(x, kernel, ("NHC", "HIO", "NHC"), (1,))
        return conv(jnp.sin(y * CHANNELS) + x, kernel, ("NHC", "HIO", "NHC"), (1,))

    assert op_types(check_export(fn, [X[0]])).count("Transpose") == 2


def test_three_dimensions():
    kernel = (RNG.standard_normal((3, 3, 3, 4, 4)) / 9).astype(np.float32)
    layout = ("NDHWC", "DHWIO", "NDHWC")

    def fn(x):
        return conv(jnp.sin(conv(x, kernel, layout, (1, 1, 1))) * CHANNELS, kernel, layout, (1, 1, 1))

    assert op_types(check_export(fn, [X[None]], rtol=1e-4, atol=1e-5)).count("Transpose") == 2


def test_global_pooling_and_flattening_need_none():
    def pooled(x):
        return conv(x).mean((1, 2)) @ KERNEL[0, 0]

    def flattened(x):
        return conv(x).mean((1, 2), keepdims=True).reshape(x.shape[0], -1)

    for fn in (pooled, flattened):
        assert op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5)).count("Transpose") == 1


def test_a_vector_computed_at_run_time_gets_the_axes_it_needs():
    def squeeze_and_excite(x):
        y = conv(x)
        gate = jax.nn.sigmoid(y.mean((1, 2)) @ np.eye(4, dtype=np.float32))
        return conv(y * gate[:, None, None, :])

    assert op_types(check_export(squeeze_and_excite, [X], rtol=1e-4, atol=1e-5)).count("Transpose") == 2

    def scaled(x, scale):
        return conv(jnp.sin(conv(x)) * scale)

    model = check_export(scaled, [X, CHANNELS], rtol=1e-4, atol=1e-5)
    assert op_types(model).count("Transpose") == 2


def test_a_value_that_leaves_is_transposed_back_once():
    def fn(x):
        y = jnp.sin(conv(x))
        return conv(y * 2), y, y.reshape(-1, 4)

    assert op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5)).count("Transpose") == 3


def test_what_is_no_better_stays():
    def normalised(x):
        y = conv(x)
        return conv((y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5))

    # LayerNormalization wants the channels last: the Transposes around it are the fewest.
    ops = op_types(check_export(normalised, [X], rtol=1e-4, atol=1e-5))
    assert ops == ["Transpose", "Conv", "Transpose", "LayerNormalization", "Transpose", "Conv", "Transpose"]

    def reordered(x):
        return jnp.sin(x.transpose(0, 2, 1)).transpose(0, 2, 1)[:, :, None] * jnp.cos(x.transpose(0, 2, 1))[..., None]

    small = RNG.standard_normal((3, 3, 3)).astype(np.float32)
    check_export(reordered, [small])


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_any_order_cancels(order):
    inverse = tuple(int(axis) for axis in np.argsort(order))

    def fn(x):
        y = jnp.sin(x.transpose(order))
        z = jnp.concatenate([y, jnp.cos(x.transpose(order))], axis=1) * WHOLE[0, :3, :1].reshape(1, 3, 1)[:, :1]
        return jax.nn.softmax(z, axis=2).transpose(inverse)

    cube = RNG.standard_normal((4, 5, 3)).astype(np.float32)
    assert "Transpose" not in op_types(check_export(fn, [cube]))


def test_orders_that_do_not_cancel_stay_right():
    def fn(x):
        y = jnp.sin(x.transpose(1, 2, 0)) + jnp.cos(x.transpose(1, 2, 0)[::-1])
        return y.transpose(1, 2, 0), (y * 2).transpose(2, 1, 0), y.sum(0), y.transpose(2, 0, 1).max(2)

    cube = RNG.standard_normal((4, 5, 3)).astype(np.float32)
    check_export(fn, [cube], rtol=1e-4, atol=1e-5)


def test_a_square_transposed_within_its_region():
    def fn(x):
        y = jnp.sin(x.transpose(0, 2, 1))
        return (y + y.transpose(0, 2, 1) * 2).transpose(0, 2, 1)

    check_export(fn, [RNG.standard_normal((2, 3, 3)).astype(np.float32)])


def test_inside_a_loop():
    def fn(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: between(BETWEEN["residual"])(y) * 0.5, x)

    assert op_types(check_export(fn, [X], rtol=1e-4, atol=1e-5)).count("Transpose") == 2


def test_every_node_keeps_its_lines():
    def fn(x):
        y = conv(x)
        z = jnp.sin(y)
        return conv(z)

    model = check_export(fn, [X], rtol=1e-4, atol=1e-5)
    first = fn.__code__.co_firstlineno
    sine = next(node for node in model.graph.node if node.op_type == "Sin")
    assert metadata(sine)[KEYS[0]].endswith(f"fn:{first + 2}")
    back = metadata(model.graph.node[-1])
    assert f":{first + 3} (" in back[KEYS[3]]
