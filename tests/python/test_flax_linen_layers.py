"""Every public layer of Flax Linen that computes at inference: exported, run, compared with JAX."""

import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from layer_check import case, check_case, check_coverage, numbers, sampled, varied

KEY = jax.random.key(0)


def layer(module, *inputs, call=None, atol=1e-5, **keywords):
    """A case for the module: its variables made by ``init``, then moved away from their initial values."""
    call = call or (lambda bound, *values: bound(*values, **keywords))

    def build():
        values = [numbers(text, 2) for text in inputs]
        variables = nn.init(lambda bound: call(bound, *values), module)(KEY)
        variables = varied(variables)
        return lambda *args: call(module.bind(variables), *args)

    return case(build, *inputs, atol=atol)


def with_memory(cell, memory, hidden, x):
    return cell((memory, hidden), x)


def causal(attention, x):
    return attention(x, mask=nn.make_causal_mask(x[..., 0]))


def attend(embed, x):
    return embed(jnp.zeros((1,), jnp.int32)).sum() * 0 + embed.attend(x)


def lengths(rnn, x, counts):
    return rnn(x, seq_lengths=counts)


def fp8_dot(quantized, x, y):
    return quantized(x, y, (((1,), (0,)), ((), ())))


LSTM = ("f32[B,4]", "f32[B,4]", "f32[B,3]")
IMAGES = ("f32[B,4,5,3]", "f32[B,4,5,3]", "f32[B,4,5,2]")

LAYERS = {
    "BatchNorm": layer(nn.BatchNorm(use_running_average=True), "f32[B,5,4]"),
    "BatchNorm axis": layer(nn.BatchNorm(use_running_average=True, axis=1), "f32[B,4,3,3]"),
    "Bidirectional": layer(nn.Bidirectional(nn.RNN(nn.GRUCell(4)), nn.RNN(nn.SimpleCell(4))), "f32[B,5,3]"),
    "Conv": layer(nn.Conv(4, (3, 3), strides=(1, 2)), "f32[B,6,5,3]"),
    "Conv 1d": layer(nn.Conv(4, 3, padding="CAUSAL"), "f32[B,6,3]"),
    "Conv 3d": layer(nn.Conv(4, (2, 3, 2), kernel_dilation=2), "f32[B,5,5,6,3]"),
    "Conv groups": layer(nn.Conv(8, (3, 3), feature_group_count=4), "f32[B,6,5,4]"),
    "Conv circular": layer(nn.Conv(4, (3, 3), padding="CIRCULAR"), "f32[B,6,5,3]"),
    "Conv masked": layer(nn.Conv(4, (3,), mask=jnp.ones((3, 3, 4)).at[0].set(0)), "f32[B,6,3]"),
    "ConvLSTMCell": layer(nn.ConvLSTMCell(3, (3, 3)), *IMAGES, call=with_memory),
    "ConvLocal": layer(nn.ConvLocal(4, (3, 2)), "f32[B,5,4,3]"),
    "ConvTranspose": layer(nn.ConvTranspose(4, (3, 3), strides=(2, 2)), "f32[B,4,5,3]"),
    "ConvTranspose kernel": layer(nn.ConvTranspose(4, (3,), strides=(2,), transpose_kernel=True), "f32[B,4,3]"),
    "Dense": layer(nn.Dense(3), "f32[B,4]"),
    "Dense half": layer(nn.Dense(3, dtype=jnp.float16), "f32[B,2,4]", atol=4e-3),
    "DenseGeneral": layer(nn.DenseGeneral((5, 2), axis=(-2, -1)), "f32[B,3,4]"),
    "DenseGeneral batch": layer(nn.DenseGeneral(5, axis=-1, batch_dims=(0,)), "f32[3,B,4]"),
    "Dropout": layer(nn.Dropout(0.5, deterministic=True), "f32[B,4]"),
    "Einsum": layer(nn.Einsum((3, 4, 2), "bti,ioh->btoh"), "f32[B,5,3]"),
    "Embed": layer(nn.Embed(5, 4), "i32[B,6]"),
    "Embed attend": layer(nn.Embed(5, 4), "f32[B,4]", call=attend),
    "GRUCell": layer(nn.GRUCell(4), "f32[B,4]", "f32[B,3]"),
    "GroupNorm": layer(nn.GroupNorm(num_groups=3), "f32[B,5,6]"),
    "GroupNorm size": layer(nn.GroupNorm(num_groups=None, group_size=2), "f32[B,3,5,6]"),
    "InstanceNorm": layer(nn.InstanceNorm(), "f32[B,5,6,4]"),
    "LSTMCell": layer(nn.LSTMCell(4), *LSTM, call=with_memory),
    "LayerNorm": layer(nn.LayerNorm(), "f32[B,5,6]"),
    "LayerNorm axes": layer(nn.LayerNorm(reduction_axes=(1, 2), feature_axes=(1, 2)), "f32[B,5,6]"),
    "MGUCell": layer(nn.MGUCell(4), "f32[B,4]", "f32[B,3]"),
    "MultiHeadAttention": layer(nn.MultiHeadAttention(2, qkv_features=8), "f32[B,5,8]", "f32[B,3,8]"),
    "MultiHeadAttention causal": layer(
        nn.MultiHeadAttention(2, qkv_features=8, normalize_qk=True), "f32[B,5,8]", call=causal
    ),
    "MultiHeadDotProductAttention": layer(nn.MultiHeadDotProductAttention(2), "f32[B,5,8]"),
    "OptimizedLSTMCell": layer(nn.OptimizedLSTMCell(4), *LSTM, call=with_memory),
    "PReLU": layer(nn.PReLU(), "f32[B,4]"),
    "RMSNorm": layer(nn.RMSNorm(), "f32[B,5,6]"),
    "RNN": layer(nn.RNN(nn.OptimizedLSTMCell(4)), "f32[B,5,3]"),
    "RNN reverse": layer(nn.RNN(nn.MGUCell(4), reverse=True, keep_order=True, return_carry=True), "f32[B,5,3]"),
    "RNN lengths": layer(nn.RNN(nn.GRUCell(4), return_carry=True), "f32[B,5,3]", "i32[B]", call=lengths),
    "RNN images": layer(nn.RNN(nn.ConvLSTMCell(3, (3, 3))), "f32[B,3,4,5,2]"),
    "RNN symbolic": layer(nn.RNN(nn.LSTMCell(4)), "f32[2,B,3]"),
    "SelfAttention": layer(nn.SelfAttention(2), "f32[B,5,8]", deterministic=True),
    "Sequential": layer(nn.Sequential([nn.Dense(8), nn.gelu, nn.LayerNorm(), nn.Dense(3)]), "f32[B,4]"),
    "SimpleCell": layer(nn.SimpleCell(4), "f32[B,4]", "f32[B,3]"),
    "SpectralNorm": layer(nn.SpectralNorm(nn.Dense(6)), "f32[B,4]", update_stats=False),
    "WeightNorm": layer(nn.WeightNorm(nn.Dense(6)), "f32[B,4]"),
    "Fp8DotGeneral": layer(nn.Fp8DotGeneral(), "f32[B,4]", "f32[4,3]", call=fp8_dot),
    "Fp8DotGeneralOp": layer(nn.Fp8DotGeneralOp(), "f32[B,4]", "f32[4,3]", call=fp8_dot),
    "Fp8DirectDotGeneralOp": layer(nn.Fp8DirectDotGeneralOp(), "f32[B,4]", "f32[4,3]", call=fp8_dot),
    "Fp8Einsum": layer(nn.Fp8Einsum(), "f32[B,4]", "f32[4,3]", call=lambda op, x, y: op("ij,jk->ik", x, y)),
    "NANOOFp8DotGeneralOp": layer(nn.NANOOFp8DotGeneralOp(), "f32[B,4]", "f32[4,3]", call=fp8_dot),
}
EXCEPTIONS = {
    "Module": "the base of all layers",
    "RNNCellBase": "the base of recurrent cells",
}


def test_every_layer_is_accounted_for():
    public = [name for name, value in vars(nn).items() if inspect.isclass(value) and issubclass(value, nn.Module)]
    check_coverage(public, LAYERS, EXCEPTIONS)


@pytest.mark.parametrize(
    "name", sampled(LAYERS, ("ConvLocal", "Fp8Di", "Fp8E", "NANOO", "SelfAttention", "MultiHeadD"))
)
def test_layer(name):
    check_case(LAYERS[name])


def test_parameters_are_named_by_their_path():
    model = check_case(LAYERS["Sequential"])
    names = {tensor.name for tensor in model.graph.initializer}
    assert {"layers_0.kernel", "layers_2.scale", "layers_3.bias"} <= names
