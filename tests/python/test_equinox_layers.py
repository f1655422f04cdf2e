"""Every public layer of Equinox that computes at inference: exported alone, and over a batch of any size."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from equinox import nn
from layer_check import case, check_case, check_coverage, sampled, varied

KEY = jax.random.key(0)


def layer(build, *inputs, call=None):
    """A case: the layer, its arrays moved away from their initial values, over a batch of the inputs."""

    def prepare():
        module = varied(nn.inference_mode(build()))
        return jax.vmap(lambda *values: (call or type(module).__call__)(module, *values))

    return case(prepare, *(text.replace("[", "[B,").replace(",]", "]") for text in inputs), atol=1e-5)


def stateful(build, text):
    """A case for a layer with running statistics: they are constants at inference."""

    def prepare():
        module, state = nn.make_with_state(build)()
        module, state = varied(nn.inference_mode(module)), varied(state)
        return jax.vmap(lambda x: module(x, state)[0], axis_name="batch")

    return case(prepare, text.replace("[", "[B,"), atol=1e-5)


def made(kind, *args, **options):
    return lambda: kind(*args, key=KEY, **options)


def plain(kind, *args, **options):
    return lambda: kind(*args, **options)


def with_memory(cell, x, hidden, memory):
    return cell(x, (hidden, memory))


def attention_over_itself(attention, x):
    return attention(x, x, x, mask=jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool)))


def sequential():
    first, second = jax.random.split(KEY)
    return nn.Sequential(
        [nn.Linear(4, 8, key=first), nn.Lambda(jax.nn.gelu), nn.LayerNorm(8), nn.Linear(8, 3, key=second)]
    )


def shared():
    embedding = nn.Embedding(5, 4, key=KEY)
    linear = nn.Linear(4, 5, use_bias=False, key=KEY)
    return nn.Shared((embedding, linear), lambda pair: pair[1].weight, lambda pair: pair[0].weight)


def tied(layer, tokens):
    embedding, linear = layer()
    return jax.vmap(linear)(jax.vmap(embedding)(tokens))


LAYERS = {
    "AdaptiveAvgPool1d": layer(plain(nn.AdaptiveAvgPool1d, 3), "f32[2,8]"),
    "AdaptiveAvgPool2d": layer(plain(nn.AdaptiveAvgPool2d, (2, 3)), "f32[2,6,7]"),
    "AdaptiveAvgPool3d": layer(plain(nn.AdaptiveAvgPool3d, 2), "f32[2,4,5,6]"),
    "AdaptiveMaxPool1d": layer(plain(nn.AdaptiveMaxPool1d, 3), "f32[2,8]"),
    "AdaptiveMaxPool2d": layer(plain(nn.AdaptiveMaxPool2d, 2), "f32[2,6,7]"),
    "AdaptiveMaxPool3d": layer(plain(nn.AdaptiveMaxPool3d, 2), "f32[2,4,5,6]"),
    "AdaptivePool": layer(plain(nn.AdaptivePool, 2, 2, jnp.mean), "f32[2,6,4]"),
    "AvgPool1d": layer(plain(nn.AvgPool1d, 3, 2, padding=1), "f32[2,9]"),
    "AvgPool2d": layer(plain(nn.AvgPool2d, 2, 2), "f32[2,6,7]"),
    "AvgPool2d ceil": layer(plain(nn.AvgPool2d, 3, 2, use_ceil=True), "f32[2,6,7]"),
    "AvgPool3d": layer(plain(nn.AvgPool3d, 2, 2), "f32[2,4,5,6]"),
    "BatchNorm": stateful(plain(nn.BatchNorm, 3, "batch", mode="batch"), "f32[3,5]"),
    "BatchNorm ema": stateful(plain(nn.BatchNorm, 3, "batch", mode="ema"), "f32[3,5,4]"),
    "Conv": layer(made(nn.Conv, 2, 3, 4, 3), "f32[3,6,5]"),
    "Conv1d": layer(made(nn.Conv1d, 3, 4, 3), "f32[3,6]"),
    "Conv2d": layer(made(nn.Conv2d, 3, 4, 3, stride=2, padding=1), "f32[3,6,5]"),
    "Conv2d circular": layer(made(nn.Conv2d, 3, 4, 3, padding="SAME", padding_mode="CIRCULAR"), "f32[3,6,5]"),
    "Conv2d reflect": layer(made(nn.Conv2d, 4, 8, 3, padding=1, padding_mode="REFLECT", groups=4), "f32[4,6,5]"),
    "Conv3d": layer(made(nn.Conv3d, 3, 4, 2, dilation=2), "f32[3,5,4,6]"),
    "ConvTranspose": layer(made(nn.ConvTranspose, 1, 3, 4, 3), "f32[3,6]"),
    "ConvTranspose1d": layer(made(nn.ConvTranspose1d, 3, 4, 3, stride=2), "f32[3,6]"),
    "ConvTranspose2d": layer(made(nn.ConvTranspose2d, 3, 4, 3, 2, output_padding=1, padding=1), "f32[3,4,5]"),
    "ConvTranspose2d groups": layer(made(nn.ConvTranspose2d, 4, 8, 3, 2, dilation=2, groups=2), "f32[4,4,5]"),
    "ConvTranspose3d": layer(made(nn.ConvTranspose3d, 2, 3, 2, stride=2), "f32[2,3,4,3]"),
    "Dropout": layer(plain(nn.Dropout, 0.5), "f32[4]"),
    "Embedding": layer(made(nn.Embedding, 5, 4), "i32[]"),
    "GRUCell": layer(made(nn.GRUCell, 3, 4), "f32[3]", "f32[4]"),
    "GroupNorm": layer(plain(nn.GroupNorm, 3, 6), "f32[6,5]"),
    "GroupNorm plain": layer(plain(nn.GroupNorm, 2, channelwise_affine=False), "f32[4,5,3]"),
    "Identity": layer(plain(nn.Identity), "f32[4]", call=lambda module, x: module(x)),
    "LSTMCell": layer(made(nn.LSTMCell, 3, 4), "f32[3]", "f32[4]", "f32[4]", call=with_memory),
    "Lambda": layer(plain(nn.Lambda, jax.nn.silu), "f32[4]"),
    "LayerNorm": layer(plain(nn.LayerNorm, 6), "f32[6]"),
    "LayerNorm axes": layer(plain(nn.LayerNorm, (5, 6), use_bias=False), "f32[5,6]"),
    "Linear": layer(made(nn.Linear, 4, 3), "f32[4]"),
    "Linear scalar": layer(made(nn.Linear, "scalar", 3), "f32[]"),
    "MLP": layer(made(nn.MLP, 4, 3, width_size=8, depth=2), "f32[4]"),
    "MaxPool1d": layer(plain(nn.MaxPool1d, 3, 2, padding=1), "f32[2,9]"),
    "MaxPool2d": layer(plain(nn.MaxPool2d, 2, 2), "f32[2,6,7]"),
    "MaxPool2d ceil": layer(plain(nn.MaxPool2d, 3, 2, padding=1, use_ceil=True), "f32[2,6,7]"),
    "MaxPool3d": layer(plain(nn.MaxPool3d, 2, 2), "f32[2,4,5,6]"),
    "MultiheadAttention": layer(made(nn.MultiheadAttention, 2, 8), "f32[5,8]", call=attention_over_itself),
    "MultiheadAttention cross": layer(
        made(nn.MultiheadAttention, 2, 8, key_size=6, value_size=4, use_output_bias=True),
        *("f32[5,8]", "f32[3,6]", "f32[3,4]"),
    ),
    "PReLU": layer(plain(nn.PReLU), "f32[4]"),
    "Pool": layer(plain(nn.Pool, 0, jax.lax.add, 2, 3, 2), "f32[2,6,7]"),
    "RMSNorm": layer(plain(nn.RMSNorm, 6), "f32[6]"),
    "RotaryPositionalEmbedding": layer(plain(nn.RotaryPositionalEmbedding, 8), "f32[5,8]"),
    "Sequential": layer(sequential, "f32[4]"),
    "Shared": layer(shared, "i32[6]", call=tied),
    "SpectralNorm": stateful(
        lambda: nn.SpectralNorm(nn.Linear(4, 3, key=KEY), weight_name="weight", key=KEY), "f32[4]"
    ),
    "WeightNorm": layer(lambda: nn.WeightNorm(nn.Linear(4, 3, key=KEY)), "f32[4]"),
}
EXCEPTIONS = {
    "StateIndex": "a key into a state, computes nothing",
    "StatefulLayer": "the base of layers with a state",
}


def test_every_layer_is_accounted_for():
    public = [name for name, value in vars(nn).items() if inspect.isclass(value) and issubclass(value, eqx.Module)]
    check_coverage(public, LAYERS, EXCEPTIONS)


# Convolutions and pools have tests of their own in every run (test_convolution_layers.py).
@pytest.mark.parametrize("name", sampled(LAYERS, ("Conv", "Adaptive", "AvgPool", "MaxPool")))
def test_layer(name):
    check_case(LAYERS[name])


def test_parameters_are_named_by_their_path():
    model = check_case(LAYERS["Sequential"])
    names = {tensor.name for tensor in model.graph.initializer}
    assert {"layers.0.weight", "layers.2.weight", "layers.3.bias"} <= names
