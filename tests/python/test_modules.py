"""Which module was running: against the truth, which module_truth.py finds by wrapping the methods of modules."""

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from export_check import all_nodes, metadata
from flax import nnx
from jax._src import source_info_util
from module_forms import FORMS, INPUT
from module_truth import Comparison, compare_all, libraries

import jax2onnx._door.modules as modules
from jax2onnx import to_onnx
from jax2onnx._door.tracing import _hashable

MODULE, CALLSITE = "pkg.jax2onnx.module", "pkg.jax2onnx.callsite"


# Against the truth


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.qkv, self.proj = nnx.Linear(8, 24, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)

    def split(self, x):
        return jnp.split(self.qkv(x), 3, axis=-1)

    def __call__(self, x):
        q, k, v = self.split(x)
        return self.proj(jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v)


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm, self.attn = nnx.LayerNorm(8, rngs=rngs), Attention(rngs)
        self.mlp = nnx.Sequential(nnx.Linear(8, 16, rngs=rngs), jax.nn.gelu, nnx.Linear(16, 8, rngs=rngs))

    def __call__(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Transformer(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.embed = nnx.Embed(11, 8, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(3)])
        self.heads = nnx.Dict(first=nnx.Linear(8, 2, rngs=rngs))

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.embed.attend(x), self.heads["first"](x)


class Plain:
    """A class of the user's own that belongs to no library."""

    def __init__(self, scale):
        self.scale = np.full(3, scale, np.float32)

    def __call__(self, x):
        return self.shifted(x) * self.scale

    def shifted(self, x):
        return x + 1.0


class Pair:
    def __init__(self):
        self.parts = {"first": Plain(2.0), "second": [Plain(3.0)]}

    def __call__(self, x):
        return jnp.sin(self.parts["second"][0](self.parts["first"](x)))


def keras_network():
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, activation="relu")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def in_a_function(model):
    return lambda tokens: model(tokens)[0] * 2.0


MODELS = {
    "transformer": (Transformer, [np.zeros((2, 5), np.int32)]),
    "transformer in a function": (lambda: in_a_function(Transformer()), [np.zeros((2, 5), np.int32)]),
    "a user's own classes": (Pair, [np.zeros((2, 3), np.float32)]),
    "Equinox MLP": (lambda: jax.vmap(eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0))), [np.zeros((2, 3), np.float32)]),
    "Keras": (keras_network, [np.zeros((1, 8, 8, 3), np.float32)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_module_is_the_one_that_was_running(name):
    make, inputs = MODELS[name]
    found = Comparison(make(), inputs)
    assert found.in_modules and not found.wrong, (found.right, found.wrong[:10])


@pytest.mark.parametrize("name", FORMS)
def test_modules_are_known_however_they_are_held_and_called(name):
    found = Comparison(FORMS[name](), [INPUT])
    assert found.in_modules > 1 and not found.wrong, (found.right, found.wrong[:10])


@pytest.mark.parametrize("library", ["Flax NNX", "Flax Linen", "Equinox", "Keras"])
def test_modules_of_the_layers_of(library):
    right, in_modules, wrong = compare_all(libraries(whole=False)[library])
    assert in_modules > 0.9 * right, "nearly all equations are a layer's"
    assert len(wrong) <= 0.001 * (right + len(wrong)), (right, wrong[:20])


def test_the_comparison_finds_what_is_wrong(monkeypatch):
    """Parts that are called by another's name are not right."""
    monkeypatch.setattr(modules, "module_path", lambda path, shared: "blocks.0")
    found = Comparison(Transformer(), [np.zeros((2, 5), np.int32)])
    assert len(found.wrong) > 0.5 * (found.right + len(found.wrong))


# Paths


def paths(model):
    return {metadata(node)[MODULE] for node in all_nodes(model) if MODULE in metadata(node)}


def test_paths_are_those_of_the_parameters():
    model = to_onnx(Transformer(), [np.zeros((2, 5), np.int32)], stacktrace_metadata="full")
    assert {"blocks.0.attn", "blocks.2.attn.proj", "blocks.1.norm", "blocks.1.mlp.layers.2", "embed"} <= paths(model)
    holders = {tensor.name.rpartition(".")[0] for tensor in model.graph.initializer if "kernel" in tensor.name}
    assert holders <= paths(model)


def test_node_names_carry_the_path_at_every_level():
    names = {}
    for level in ("off", "minimal", "full", "compact"):
        model = to_onnx(Transformer(), [np.zeros((2, 5), np.int32)], stacktrace_metadata=level)
        names[level] = [node.name for node in all_nodes(model)]
        assert len(set(names[level])) == len(names[level])
    assert names["off"] == names["minimal"] == names["full"] == names["compact"]
    assert any(name.startswith("blocks.1/attn/proj/") for name in names["off"])


def test_classes_are_told():
    model = to_onnx(Transformer(), [np.zeros((2, 5), np.int32)], stacktrace_metadata="full")
    classes = dict(line.split("\t") for line in metadata(model)["pkg.jax2onnx.modules"].splitlines())
    assert classes[""] == "Transformer"
    assert classes["blocks.0"] == "Block"
    assert classes["blocks.2.attn.proj"] == "Linear"


def test_other_objects_have_paths_too():
    found = paths(to_onnx(Pair(), [(2, 3)], stacktrace_metadata="full"))
    assert found == {"", "parts.first", "parts.second.0"}


# Copies that JAX and libraries make of modules


class EqxBlock(eqx.Module):
    linear: eqx.nn.Linear

    def __init__(self, seed):
        self.linear = eqx.nn.Linear(3, 3, key=jax.random.key(seed))

    def __call__(self, x):
        return jnp.tanh(self.linear(x))


class EqxNet(eqx.Module):
    blocks: list
    stacked: EqxBlock

    def __init__(self):
        self.blocks = [EqxBlock(0), EqxBlock(1)]
        self.stacked = eqx.filter_vmap(EqxBlock)(jnp.arange(2))


NET = EqxNet()


def through_filter_jit(x):
    return eqx.filter_jit(NET.blocks[1])(eqx.filter_jit(NET.blocks[0])(x) @ jnp.ones((3, 3)))


def through_checkpoint(x):
    for block in NET.blocks:
        x = eqx.filter_checkpoint(block)(x)
    return x


def through_the_arguments_of_jit(x):
    return eqx.filter_jit(lambda net, y: net.blocks[1](net.blocks[0](y)))(NET, x)


def through_scan(x):
    arrays, rest = eqx.partition(NET.stacked, eqx.is_array)
    return jax.lax.scan(lambda y, layer: (eqx.combine(layer, rest)(y), None), x, arrays)[0]


def through_grad(x):
    return jax.grad(lambda y: jnp.sum(NET.blocks[1](y)))(x)


COPIES = {
    through_checkpoint: {"blocks.0", "blocks.1"},
    through_the_arguments_of_jit: {"blocks.0", "blocks.1"},
    through_scan: {"stacked"},
    through_grad: {"blocks.1"},
}


@pytest.mark.parametrize("function", COPIES, ids=lambda function: function.__name__)
def test_copies_are_known_by_their_original(function):
    found = paths(to_onnx(function, [(3,)], stacktrace_metadata="full"))
    assert {path.removeprefix("NET.") for path in found if "linear" not in path} - {""} == COPIES[function]


def test_models_put_together_inside_the_function():
    graph, state = nnx.split(Block(nnx.Rngs(0)))
    found = paths(to_onnx(lambda x: nnx.merge(graph, state)(x), [(2, 5, 8)], stacktrace_metadata="full"))
    assert {"attn.proj", "attn", "mlp.layers.0", ""} <= found


def test_linen_modules_are_called_by_the_names_linen_gives_them():
    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return jnp.sin(linen.Dense(2)(linen.LayerNorm()(x)))

    variables = Net().init(jax.random.key(0), np.zeros((1, 3), np.float32))
    for fn in (Net().bind(variables), lambda x: Net().apply(variables, x)):
        assert paths(to_onnx(fn, [(2, 3)], stacktrace_metadata="full")) == {"", "Dense_0", "LayerNorm_0"}


class Words(linen.Module):
    @linen.compact
    def __call__(self, tokens):
        scale = self.param("scale", linen.initializers.ones, (4,))
        return linen.Dense(2, name="head")(linen.Embed(7, 4, name="words")(tokens) * scale)


def test_weights_of_linen_are_called_by_their_place_among_the_variables():
    tokens = np.zeros((2, 3), np.int32)
    variables = Words().init(jax.random.key(0), tokens)
    model = to_onnx(Words().bind(variables), [tokens])
    names = {tensor.name for tensor in model.graph.initializer if not tensor.name.startswith("const_")}
    assert names == {"words.embedding", "scale", "head.kernel", "head.bias"}


# Scopes that users name


class Scoped(nnx.Module):
    def __init__(self):
        self.inner = nnx.Linear(3, 3, rngs=nnx.Rngs(0))

    def __call__(self, x):
        with jax.named_scope("before"):
            x = jnp.sin(x)
            with jax.named_scope("deep"):
                x = jnp.cos(x)
            x = self.inner(x)  # has a path of its own
            x = jax.jit(self.nested)(x)
        return jnp.tanh(x)

    def nested(self, x):
        with jax.named_scope("nested"):
            return jnp.exp(x) + nothing_named(x)


@jax.jit
def nothing_named(x):
    with jax.named_scope("helper"):
        return jnp.abs(x)


class Two(nnx.Module):
    def __init__(self):
        self.parts = nnx.List([Scoped(), Scoped()])

    def __call__(self, x):
        with jax.named_scope("whole"):
            return jnp.floor(self.parts[1](self.parts[0](x)))


def paths_by_operator(model):
    return {(node.op_type, metadata(node).get(MODULE)) for node in all_nodes(model)}


def test_scopes_of_the_user_stand_in_the_module_that_opened_them():
    found = paths_by_operator(to_onnx(Two(), [(2, 3)], stacktrace_metadata="full"))
    for part in ("parts.0", "parts.1"):
        assert {
            ("Sin", f"{part}.before"),
            ("Cos", f"{part}.before.deep"),
            ("Gemm", f"{part}.inner"),
            ("Exp", f"{part}.nested"),
            ("Abs", f"{part}.nested.helper"),
            ("Tanh", part),
        } <= found
    assert ("Floor", "whole") in found


def test_scopes_of_libraries_are_no_part_of_the_path():
    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            with jax.named_scope("own"):
                x = jnp.sin(x)
            return linen.Dense(2)(x)

    variables = Net().init(jax.random.key(0), np.zeros((1, 3), np.float32))
    found = paths(to_onnx(Net().bind(variables), [(2, 3)], stacktrace_metadata="full"))
    assert found == {"own", "Dense_0"}


# The line in models of libraries


def test_the_callsite_in_a_library_is_that_of_the_layer():
    model = to_onnx(keras_network(), [(1, 8, 8, 3)], stacktrace_metadata="full")
    found = {metadata(node)[CALLSITE].rpartition(":")[0] for node in all_nodes(model)}
    assert {"BaseConv.call", "Dense.call", "GlobalAveragePooling2D.call"} <= found


def test_an_export_leaves_jaxs_context_as_it_was():
    before = source_info_util._source_info_context.context
    to_onnx(Pair(), [(2, 3)])
    assert source_info_util._source_info_context.context is before


def test_the_program_is_the_same_with_and_without():
    fn, inputs = Transformer(), [np.zeros((2, 5), np.int32)]
    plain = str(jax.make_jaxpr(_hashable(fn))(*inputs))
    jax.clear_caches()
    with modules.Recording(fn).around():
        assert str(jax.make_jaxpr(_hashable(fn))(*inputs)) == plain
