"""Every public layer and function of Flax NNX that computes at inference: exported, run, compared with JAX."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from export_check import all_nodes, check_export, metadata, op_types
from flax import nnx
from layer_check import case, check_case, check_coverage, sampled, varied

from jax2onnx import stacktrace_metadata, to_onnx


def rngs():
    return nnx.Rngs(0)


def applied(module):
    """A layer that changes its own state when called, as a function that does not: NNX's way through any transform."""
    structure, state = nnx.split(module)
    return lambda *inputs, **keywords: nnx.merge(structure, state, copy=True)(*inputs, **keywords)


def layer(kind, *args, **options):
    """Builds the layer with every parameter and statistic moved away from its initial value."""

    def build():
        module = kind(*args, rngs=rngs(), **options)
        nnx.update(module, varied(nnx.state(module)))
        return module

    return build


def called(build, call):
    """What ``call`` makes of the built layer and the inputs."""

    def prepare():
        module = build()
        return lambda *inputs: call(module, *inputs)

    return prepare


def function(fn):
    return lambda: fn


def recurrent_call(cell, carry, x):
    return cell(carry, x)


def lstm_call(cell, memory, hidden, x):
    return cell((memory, hidden), x)


def recurrent(cell, **options):
    return lambda: applied(nnx.RNN(layer(cell, 3, 4)(), **options))


def with_keywords(**keywords):
    return lambda module, *inputs: module(*inputs, **keywords)


def spectral():
    return applied(nnx.SpectralNorm(layer(nnx.Linear, 4, 6)(), rngs=rngs()))


def weight():
    module = nnx.WeightNorm(layer(nnx.Linear, 4, 6)(), rngs=rngs())
    nnx.update(module, varied(nnx.state(module)))
    return applied(module)


def bidirectional():
    forward, backward = (nnx.RNN(layer(cell, 3, 4)()) for cell in (nnx.GRUCell, nnx.SimpleCell))
    return applied(nnx.Bidirectional(forward, backward))


def sequential():
    return nnx.Sequential(layer(nnx.Linear, 4, 8)(), nnx.gelu, layer(nnx.LayerNorm, 8)(), layer(nnx.Linear, 8, 3)())


def attention(**options):
    return layer(nnx.MultiHeadAttention, num_heads=2, in_features=8, qkv_features=8, decode=False, **options)


def masked_attention(module, x):
    return module(x, mask=nnx.make_causal_mask(x[..., 0]))


LAYERS = {
    "BatchNorm": case(layer(nnx.BatchNorm, 4, use_running_average=True), "f32[B,5,4]"),
    "BatchNorm axis": case(layer(nnx.BatchNorm, 4, axis=1, use_running_average=True, epsilon=1e-3), "f32[B,4,3,3]"),
    "Bidirectional": case(bidirectional, "f32[B,5,3]"),
    "Conv": case(layer(nnx.Conv, 3, 4, (3, 3)), "f32[B,6,5,3]"),
    "Conv 1d": case(layer(nnx.Conv, 3, 4, 3, padding="CAUSAL"), "f32[B,6,3]"),
    "Conv 3d": case(layer(nnx.Conv, 3, 4, (2, 3, 2), strides=2), "f32[B,5,5,6,3]"),
    "Conv groups": case(layer(nnx.Conv, 4, 8, (3, 3), feature_group_count=4), "f32[B,6,5,4]"),
    "Conv circular": case(layer(nnx.Conv, 3, 4, (3, 3), padding="CIRCULAR"), "f32[B,6,5,3]"),
    "Conv reflect": case(layer(nnx.Conv, 3, 4, (3, 3), padding="REFLECT"), "f32[B,6,5,3]"),
    "Conv symbolic": case(layer(nnx.Conv, 3, 4, (3, 3), strides=2), "f32[2,B,5,3]"),
    "ConvTranspose": case(layer(nnx.ConvTranspose, 3, 4, (3, 3), strides=2), "f32[B,4,5,3]"),
    "ConvTranspose circular": case(layer(nnx.ConvTranspose, 3, 4, (3,), strides=2, padding="CIRCULAR"), "f32[B,4,3]"),
    "Dropout": case(layer(nnx.Dropout, 0.5, deterministic=True), "f32[B,4]"),
    "Einsum": case(layer(nnx.Einsum, "bti,ioh->btoh", (3, 4, 2), (4, 2)), "f32[B,5,3]"),
    "Embed": case(layer(nnx.Embed, 5, 4), "i32[B,6]"),
    "Embed attend": case(called(layer(nnx.Embed, 5, 4), lambda module, x: module.attend(x)), "f32[B,4]"),
    "GRUCell": case(called(layer(nnx.GRUCell, 3, 4), recurrent_call), "f32[B,4]", "f32[B,3]"),
    "GroupNorm": case(layer(nnx.GroupNorm, 6, num_groups=3), "f32[B,5,6]"),
    "GroupNorm size": case(layer(nnx.GroupNorm, 6, num_groups=None, group_size=2), "f32[B,3,5,6]"),
    "InstanceNorm": case(layer(nnx.InstanceNorm, 4), "f32[B,5,6,4]"),
    "LSTMCell": case(called(layer(nnx.LSTMCell, 3, 4), lstm_call), "f32[B,4]", "f32[B,4]", "f32[B,3]"),
    "LayerNorm": case(layer(nnx.LayerNorm, 6), "f32[B,5,6]"),
    "LayerNorm slow": case(layer(nnx.LayerNorm, 6, use_fast_variance=False, use_bias=False), "f32[B,5,6]"),
    "LayerNorm masked": case(
        called(layer(nnx.LayerNorm, 6), lambda module, x: module(x, mask=x > -1)), "f32[B,5,6]", atol=2e-5
    ),
    "Linear": case(layer(nnx.Linear, 4, 3), "f32[B,4]"),
    "Linear half": case(layer(nnx.Linear, 4, 3, dtype=jnp.bfloat16, use_bias=False), "f32[B,4]"),
    "LinearGeneral": case(layer(nnx.LinearGeneral, (3, 4), (5, 2), axis=(-2, -1)), "f32[B,3,4]"),
    "LinearGeneral batch": case(layer(nnx.LinearGeneral, 4, 5, axis=-1, batch_axis={0: 3}), "f32[3,B,4]"),
    "LoRA": case(layer(nnx.LoRA, 4, 2, 3), "f32[B,4]"),
    "LoRALinear": case(layer(nnx.LoRALinear, 4, 3, lora_rank=2), "f32[B,4]"),
    "MultiHeadAttention": case(attention(), "f32[B,5,8]"),
    "MultiHeadAttention cross": case(attention(), "f32[B,5,8]", "f32[B,3,8]"),
    "MultiHeadAttention causal": case(called(attention(normalize_qk=True), masked_attention), "f32[B,5,8]", atol=1e-5),
    "OptimizedLSTMCell": case(
        called(layer(nnx.OptimizedLSTMCell, 3, 4), lstm_call), "f32[B,4]", "f32[B,4]", "f32[B,3]"
    ),
    "PReLU": case(lambda: nnx.PReLU(0.2), "f32[B,4]"),
    "RMSNorm": case(layer(nnx.RMSNorm, 6), "f32[B,5,6]"),
    "RNN": case(recurrent(nnx.LSTMCell), "f32[B,5,3]"),
    "RNN gru": case(recurrent(nnx.GRUCell, reverse=True, keep_order=True), "f32[B,5,3]"),
    "RNN optimized": case(recurrent(nnx.OptimizedLSTMCell, return_carry=True, unroll=2), "f32[B,4,3]"),
    "RNN lengths": case(
        called(recurrent(nnx.SimpleCell, return_carry=True), lambda module, x, n: module(x, seq_lengths=n)),
        *("f32[B,5,3]", "i32[B]"),
    ),
    "RNN time": case(recurrent(nnx.SimpleCell, time_major=True), "f32[5,B,3]"),
    "RNN symbolic": case(recurrent(nnx.SimpleCell), "f32[2,B,3]"),
    "Sequential": case(sequential, "f32[B,4]"),
    "SimpleCell": case(called(layer(nnx.SimpleCell, 3, 4), recurrent_call), "f32[B,4]", "f32[B,3]"),
    "SpectralNorm": case(called(spectral, with_keywords(update_stats=False)), "f32[B,4]"),
    "WeightNorm": case(weight, "f32[B,4]"),
}
if hasattr(nnx, "RoPE"):  # Flax 0.12.10 and newer
    LAYERS["RoPE"] = case(lambda: nnx.RoPE(embedding_size=8, max_seq_len=16), "f32[B,5,8]")

EXCEPTIONS = {
    "Module": "the base of all layers",
    "RNNCellBase": "the base of recurrent cells",
    "List": "holds modules, computes nothing",
    "Dict": "holds modules, computes nothing",
}

# Every function of one array in jax.nn that Flax passes on is an activation.
ACTIVATIONS = {
    name: fn
    for name, fn in sorted(vars(nnx).items())
    if getattr(jax.nn, name, None) is fn and callable(fn) and name not in ("one_hot", "dot_product_attention")
}
FUNCTIONS = {
    "avg_pool": case(function(lambda x: nnx.avg_pool(x, (2, 2), strides=(2, 2))), "f32[B,6,5,3]"),
    "max_pool": case(function(lambda x: nnx.max_pool(x, (3, 2), padding="SAME")), "f32[B,6,5,3]"),
    "min_pool": case(function(lambda x: nnx.min_pool(x, (3, 2), strides=(2, 1))), "f32[B,6,5,3]"),
    "pool": case(function(lambda x: nnx.pool(x, 0.0, jax.lax.add, (2, 2), (1, 1), "VALID")), "f32[B,6,5,3]"),
    "dot_product_attention": case(
        function(nnx.dot_product_attention), *("f32[B,5,2,4]", "f32[B,3,2,4]", "f32[B,3,2,4]")
    ),
    "dot_product_attention causal": case(
        function(lambda q, k, v: nnx.dot_product_attention(q, k, v, is_causal=True)), *(["f32[B,5,2,4]"] * 3)
    ),
    "make_attention_mask": case(function(nnx.make_attention_mask), "i32[B,5]", "i32[B,4]"),
    "make_causal_mask": case(function(nnx.make_causal_mask), "f32[B,5]"),
    "combine_masks": case(function(nnx.combine_masks), "bool[B,5]", "bool[B,5]"),
    "one_hot": case(function(lambda x: nnx.one_hot(x, 5)), "i32[B,3]"),
    **{
        name: case(called(function(fn), lambda fn, x: fn(x)), "f32[B,6]", atol=1e-5) for name, fn in ACTIVATIONS.items()
    },
}


def test_every_layer_is_accounted_for():
    public = [name for name, value in vars(nnx).items() if inspect.isclass(value) and issubclass(value, nnx.Module)]
    check_coverage(public, LAYERS, EXCEPTIONS)


@pytest.mark.parametrize("name", sampled(LAYERS))
def test_layer(name):
    check_case(LAYERS[name])


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    check_case(FUNCTIONS[name])


def test_parameters_are_named_by_their_path():
    model = check_case(LAYERS["Sequential"])
    names = {tensor.name for tensor in model.graph.initializer}
    assert {"layers.0.kernel", "layers.2.scale", "layers.3.bias"} <= names


def test_a_function_of_jax_itself_stands_for_the_users_line():
    with stacktrace_metadata("full"):
        model = to_onnx(jax.nn.softmax, [("B", 4)])
    sites = {metadata(node)["pkg.jax2onnx.callsite"].rsplit(":", 1)[0] for node in all_nodes(model)}
    assert sites == {"softmax"}


def test_what_nobody_reads_needs_no_lowering():
    key = jax.random.key(0)

    def fn(x):
        unused = jax.random.normal(key, x.shape) @ jnp.linalg.inv(jnp.ones((4, 4)))
        return jnp.sin(x) if unused.shape == x.shape else x

    assert op_types(check_export(fn, [jnp.ones((2, 4))])) == ["Sin"]


def test_a_model_in_half_precision():
    module = nnx.Linear(4, 3, rngs=rngs(), dtype=jnp.float16, param_dtype=jnp.float16)
    check_export(module, [jnp.ones((2, 4), jnp.float16)])
