"""Which module was running: against the truth, which module_truth.py finds by wrapping the methods of modules."""

import json
import re

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import keras
import numpy as np
import onnx
import pytest
from export_check import all_nodes, expanded, metadata
from flax import nnx
from jax._src import source_info_util
from module_forms import FORMS, INPUT
from module_truth import BASES, Comparison, compare_all, libraries, subclasses

import jax2onnx._door.modules as modules
from jax2onnx import _core, to_onnx
from jax2onnx.__main__ import main
from jax2onnx._commands.command import OK
from jax2onnx._door.origins import asked_nodes
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


# Programs that JAX traces once and calls for several modules


class EqxBend(eqx.Module):
    """A module without weights."""

    def __call__(self, x):
        return jnp.tanh(x)


class Cell(eqx.Module):
    linear: eqx.nn.Linear
    gain: jax.Array
    bend: EqxBend

    def __init__(self, seed):
        self.linear = eqx.nn.Linear(3, 3, key=jax.random.key(seed))
        self.gain, self.bend = jnp.full(3, 1.0 + seed), EqxBend()

    def __call__(self, x):
        return self.bend(self.linear(x)) * self.gain

    @eqx.filter_jit
    def jitted(self, x):
        return self(x) + 1.0


class Cells(eqx.Module):
    run: callable = eqx.field(static=True)
    cells: list
    towers: dict

    def __init__(self, run):
        self.run = run
        self.cells = [Cell(0), Cell(1), Cell(2)]
        self.towers = {"left": [Cell(3)], "right": [Cell(4)]}

    def __call__(self, x):
        return self.run(self, x)


CALLED = jax.jit(lambda cell, x: cell(x))
CALLED_TWICE_INSIDE = jax.jit(lambda first, second, x: CALLED(second, CALLED(first, x)))


def in_turn(call):
    def run(net, x):
        for cell in (*net.cells, *net.towers["left"], *net.towers["right"]):
            x = call(cell, x)
        return x

    return run


def in_pairs(net, x):
    x = CALLED_TWICE_INSIDE(net.cells[0], net.cells[1], x)
    x = CALLED_TWICE_INSIDE(net.towers["left"][0], net.towers["right"][0], x)
    return CALLED_TWICE_INSIDE(net.cells[2], net.cells[0], x)


def with_weights_of_half_precision(cell, x):
    return CALLED(jax.tree.map(lambda leaf: leaf.astype(jnp.float16), cell), x.astype(jnp.float16))


SHARED = {
    "jit": in_turn(CALLED),
    "filter_jit of a function": in_turn(eqx.filter_jit(lambda cell, x: cell(x))),
    "filter_jit of a method": in_turn(lambda cell, x: cell.jitted(x)),
    "the last first": lambda net, x: CALLED(net.cells[0], CALLED(net.cells[1], CALLED(net.cells[2], x))),
    "jit in jit": in_turn(jax.jit(lambda cell, x: CALLED(cell, x) * 2.0)),
    "pairs": in_pairs,
    "jit of vmap": in_turn(jax.jit(lambda cell, x: jax.vmap(cell)(jnp.stack([x, x])).sum(0))),
    "jit of scan": in_turn(jax.jit(lambda cell, x: jax.lax.scan(lambda y, _: (cell(y), None), x, length=12)[0])),
    "jit of cond": in_turn(jax.jit(lambda cell, x: jax.lax.cond(x[0] > 0, lambda y: cell(y), lambda y: y, x))),
    "half precision": in_turn(with_weights_of_half_precision),
}


def nodes_of_weights(model):
    """(module of the weight, module of the node), for each node that reads a weight."""
    nodes = list(all_nodes(model))
    bodies = [
        attribute.g for node in nodes for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH
    ]
    weights = {tensor.name for graph in (model.graph, *bodies) for tensor in graph.initializer}
    for node in nodes:
        for name in node.input:
            if name in weights and re.search(r"(weight|bias|gain)", name):
                yield re.sub(r"\.(weight|bias|gain).*", "", name), metadata(node)[MODULE]


@pytest.mark.parametrize("name", SHARED)
def test_a_program_that_is_traced_once_names_the_module_of_each_call(name):
    model = to_onnx(Cells(SHARED[name]), [(3,)], stacktrace_metadata="full")
    found = list(nodes_of_weights(model))
    assert len({module for module, _ in found}) > 2
    assert [pair for pair in found if pair[0] != pair[1]] == []
    cells = {module.removesuffix(".linear") for module, _ in found}
    assert {f"{cell}.bend" for cell in cells} <= paths(model), "modules without weights too"
    classes = dict(line.split("\t") for line in metadata(model)["pkg.jax2onnx.modules"].splitlines())
    assert all(classes[cell] == "Cell" and classes[f"{cell}.linear"] == "Linear" for cell in cells)


class NnxCells(nnx.Module):
    def __init__(self):
        self.cells = nnx.List([nnx.Linear(3, 3, rngs=nnx.Rngs(seed)) for seed in range(3)])

    def __call__(self, x):
        for cell in self.cells:
            x = jax.nn.relu(called_by_nnx(cell, x))
        return x


@nnx.jit
def called_by_nnx(cell, x):
    return cell(x)


def test_nnx_jit_names_the_module_of_each_call():
    model = to_onnx(NnxCells(), [(2, 3)], stacktrace_metadata="full")
    assert [metadata(node)[MODULE] for node in model.graph.node if node.op_type == "Gemm"] == [
        "cells.0",
        "cells.1",
        "cells.2",
    ]


def test_programs_of_a_model_that_is_built_otherwise_are_not_used_again():
    to_onnx(Cells(in_turn(CALLED)), [(3,)])
    net = [Cell(7)]
    other = to_onnx(lambda x: CALLED(net[0], x), [(3,)], stacktrace_metadata="full")
    assert not any("cells" in path for path in paths(other))


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


class Einsum(nnx.Module):
    def __call__(self, x):
        with jax.named_scope("own"):
            return jnp.einsum("ab,cb->ac", x, jnp.sin(x)) + jax.named_call(jnp.cos, name="called")(x @ x.T)


def test_scopes_that_jax_opens_itself_are_no_part_of_the_path():
    assert paths(to_onnx(Einsum(), [(3, 3)], stacktrace_metadata="full")) == {"own", "own.called"}


def test_nor_in_a_function_that_has_no_parts():
    def fn(x):
        with jax.named_scope("own"):
            y = jnp.einsum("ab,bc->ac", x, x)
        return jnp.sin(y), jnp.einsum("ab,cb->ac", y, x)

    model = to_onnx(fn, [(3, 3)], stacktrace_metadata="full")
    assert paths(model) == {"own"}
    assert not any(">" in node.name for node in model.graph.node)


# The line in models of libraries


def test_the_callsite_in_a_library_is_that_of_the_layer():
    model = to_onnx(keras_network(), [(1, 8, 8, 3)], stacktrace_metadata="full")
    found = {metadata(node)[CALLSITE].rpartition(":")[0] for node in all_nodes(model)}
    assert {"BaseConv.call", "Dense.call", "GlobalAveragePooling2D.call"} <= found


def linen_bound(module, shape):
    return module.bind(module.init(jax.random.key(0), np.zeros(shape, np.float32)))


def keras_layer(layer, shape):
    inputs = keras.Input(shape[1:])
    return keras.Model(inputs, layer(inputs))


def nnx_layers(rngs):
    return nnx.Sequential(
        nnx.Conv(4, 4, (3, 3), rngs=rngs),
        nnx.BatchNorm(4, use_running_average=True, rngs=rngs),
        nnx.GroupNorm(4, num_groups=2, rngs=rngs),
        nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs),
        nnx.LinearGeneral(4, (2, 3), rngs=rngs),
    )


IMAGE, SEQUENCE = (2, 6, 7, 4), (2, 6, 4)
KERAS_LAYERS = {
    IMAGE: (
        lambda: keras.layers.Dense(3, activation="gelu"),
        lambda: keras.layers.Conv2D(3, 3, padding="same", activation="relu"),
        lambda: keras.layers.SeparableConv2D(3, 3),
        lambda: keras.layers.Conv2DTranspose(3, 3),
        lambda: keras.layers.BatchNormalization(),
        lambda: keras.layers.LayerNormalization(),
        lambda: keras.layers.GroupNormalization(2),
        lambda: keras.layers.AveragePooling2D(2),
        lambda: keras.layers.UpSampling2D(),
        lambda: keras.layers.Softmax(),
    ),
    SEQUENCE: (
        lambda: keras.layers.LSTM(3),
        lambda: keras.layers.Bidirectional(keras.layers.GRU(3)),
        lambda: keras.layers.TimeDistributed(keras.layers.Dense(3)),
        lambda: keras.layers.EinsumDense("abc,cd->abd", output_shape=(None, 3)),
    ),
}
LIBRARY_MODELS = {
    "Flax NNX": [(lambda: nnx_layers(nnx.Rngs(0)), IMAGE)],
    "Flax Linen": [
        (
            lambda: linen_bound(linen.Sequential([linen.Conv(3, (3, 3)), linen.LayerNorm(), linen.Dense(2)]), IMAGE),
            IMAGE,
        ),
        (lambda: linen_bound(linen.RNN(linen.GRUCell(3)), SEQUENCE), SEQUENCE),
    ],
    "Equinox": [
        (lambda: jax.vmap(eqx.nn.MLP(4, 3, 5, 2, key=jax.random.key(0))), (2, 4)),
        (lambda: jax.vmap(jax.vmap(eqx.nn.LayerNorm(4))), SEQUENCE),
        (lambda: jax.vmap(eqx.nn.Conv2d(6, 3, 3, key=jax.random.key(0))), IMAGE),
        (lambda: jax.vmap(eqx.nn.GRUCell(4, 3, key=jax.random.key(0)), in_axes=(0, None)), (2, 4), (3,)),
    ],
    "Keras": [
        (lambda make=make, shape=shape: keras_layer(make(), shape), shape)
        for shape, kinds in KERAS_LAYERS.items()
        for make in kinds
    ],
}


BASE_OF = dict(zip(("Flax NNX", "Equinox", "Flax Linen", "Keras"), BASES, strict=True))


@pytest.mark.parametrize("library", LIBRARY_MODELS)
def test_the_callsite_in_a_library_is_a_method_of_the_module_that_was_running(library):
    kinds = {kind.__name__: kind for kind in subclasses(BASE_OF[library])}
    for make, *shapes in LIBRARY_MODELS[library]:
        model = to_onnx(make(), shapes, stacktrace_metadata="full")
        classes = dict(line.split("\t") for line in metadata(model)["pkg.jax2onnx.modules"].splitlines())
        for node in all_nodes(model):
            said = metadata(node)
            holder, _, _ = said[CALLSITE].partition(".")
            names = {base.__name__ for base in kinds[classes[said[MODULE]]].__mro__}
            assert holder in names, (said[CALLSITE], said[MODULE], classes[said[MODULE]])


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


# Every reader answers for a module as it does for a line


def nodes_by_inspect(path, module, *options):
    return {item["name"] for item in told("inspect", path, "--module", module, *options)["nodes"]}


def nodes_by_locate(path, module, *options):
    found = told("locate", path, "--module", module, *options)["found"]
    return {item["node"]["name"] for item in found if "node" in item}


def nodes_by_diff(path, module, *options):
    """Against a model that has nothing in common with it: every node was added."""
    value = onnx.helper.make_tensor_value_info("nothing", onnx.TensorProto.FLOAT, [1])
    other = onnx.helper.make_tensor_value_info("still_nothing", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Nothing", ["nothing"], ["still_nothing"], domain="of.no.model")
    empty = path.with_suffix(".empty.onnx")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [value], [other])), empty)
    changes = told("diff", empty, path, "--module", module, *options)["changes"]
    return {change["b"]["name"] for change in changes if change["kind"] == "added"}


def nodes_by_origins(path, module, *options):
    """What explain, verify and profile work on."""
    return asked_nodes(path, "--module", module, *options)


def nodes_by_page(path, module, *options):
    text = _core.tool_output(["j2o", "report", str(path), "-o", "-"])[1].decode()
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])

    def of(column):
        rows = [(data["texts"][node[2]], node[column]) for node in data["nodes"]]
        named = {(name, path) for name, row in rows if row >= 0 for path in data["texts"][row].split("\n")}
        inside = () if "--self" in options or not module else (f"{module}.",)
        return {name for name, path in named if path == module or path.startswith(inside)}

    return of(10) | of(12)


def told(*words):
    code, output, errors = _core.tool_output(["j2o", *map(str, words), "--json"])
    assert code in (0, 1), errors.decode()
    return json.loads(output)


def equinox_network():
    return jax.vmap(eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0)))


NETWORKS = {
    "Flax NNX": (Transformer, [np.zeros((2, 5), np.int32)]),
    "Equinox": (equinox_network, [(2, 3)]),
    "Keras": (keras_network, [(1, 8, 8, 3)]),
    "no library": (Pair, [(2, 3)]),
}


@pytest.mark.parametrize("level", ["full", "compact"])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_readers_give_the_same_nodes_for_a_module(name, level, tmp_path):
    make, inputs = NETWORKS[name]
    path = tmp_path / "m.onnx"
    to_onnx(make(), inputs, stacktrace_metadata=level, return_mode="file", output_path=path)
    classes = metadata(expanded(onnx.load(path)))["pkg.jax2onnx.modules"].splitlines()
    found = set()
    for module in (line.partition("\t")[0] for line in classes):
        for options in ((), ("--self",), ("--inclusive",)):
            expected = nodes_by_inspect(path, module, *options)
            if not expected:
                continue
            for reader in (nodes_by_locate, nodes_by_diff, nodes_by_origins, nodes_by_page):
                assert reader(path, module, *options) == expected, (reader.__name__, module, options)
            rows = told("blame", path, "--module", module, *options)["lines"]
            assert sum(row["nodes"] - row["fused_nodes"] for row in rows) == len(expected), (module, options)
            relations = {item["relation"] for item in told("inspect", path, "--module", module, *options)["nodes"]}
            assert relations <= {"own", "fused"}
            found |= expected if module else set()
    assert len(found) >= 0.5 * len(onnx.load(path).graph.node), "the rest is the model's own"


class Normed(nnx.Module):
    """A convolution whose nodes all become part of the normalisation behind it."""

    def __init__(self, rngs):
        self.conv1 = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.bn1 = nnx.BatchNorm(4, use_running_average=True, rngs=rngs)

    def __call__(self, x):
        y = self.conv1(x)
        y = self.bn1(y)
        return nnx.relu(y)


@pytest.mark.parametrize("level", ["full", "compact"])
def test_a_module_that_was_fused_into_another_is_found(level, tmp_path):
    path = tmp_path / "m.onnx"
    options = {"stacktrace_metadata": level, "return_mode": "file", "output_path": path}
    to_onnx(Normed(nnx.Rngs(0)), [(1, 8, 8, 3)], inputs_as_nchw=[0], **options)
    assert "bn1/Conv" in {node.name for node in onnx.load(path).graph.node}
    for reader in (nodes_by_inspect, nodes_by_locate, nodes_by_diff, nodes_by_origins, nodes_by_page):
        assert reader(path, "conv1") == {"bn1/Conv"}, reader.__name__
        assert "bn1/Conv" in reader(path, "bn1"), reader.__name__
        root = reader(path, "")
        assert "Relu_0" in root and not any("/" in name for name in root), "the model itself, outside all modules"
    for options in ((), ("--self",), ("--inclusive",)):
        assert nodes_by_inspect(path, "conv1", *options) == {"bn1/Conv"}, "as with a line that was fused into another"
    [node] = told("inspect", path, "--module", "conv1")["nodes"]
    assert (node["module"], node["fused_modules"], node["relation"]) == ("bn1", ["conv1"], "fused")
    assert told("locate", path, "bn1/Conv")["fused_modules"] == ["conv1"]
    assert _core.tool_output(["j2o", "inspect", str(path), "--module", "bn"])[0] == 1
    code, _, errors = _core.tool_output(["j2o", "diff", str(path), str(path), "--module", "bn"])
    assert (code, b"is in module bn" in errors) == (2, True)


class NormedTwice(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = Normed(rngs), Normed(rngs)
        self.second.conv1 = nnx.Conv(4, 4, (3, 3), rngs=rngs)

    def __call__(self, x):
        return self.second(self.first(x))


def test_a_weight_whose_axes_move_is_not_said_to_come_from_the_first_node():
    network = NormedTwice(nnx.Rngs(0))
    norms = (network.first.bn1, network.second.bn1)
    weights = [weight for norm in norms for weight in (norm.scale, norm.bias, norm.mean, norm.var)]
    for seed, weight in enumerate(weights):  # equal ones would become one
        weight[...] = jax.random.uniform(jax.random.key(seed), (4,))
    model = to_onnx(network, [(1, 8, 8, 3)], stacktrace_metadata="full")
    found = {node.name: metadata(node).get("pkg.jax2onnx.fused_modules") for node in model.graph.node}
    assert found["first/bn1/Conv"] == "first.conv1"
    assert found["second/bn1/Conv"] == "second.conv1"


class BentConv(nnx.Module):
    """Has a node of its own, and one that becomes part of the normalisation behind it."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)

    def __call__(self, x):
        return self.conv(jnp.sin(x))


class BentNormed(Normed):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.conv1 = BentConv(rngs)


def test_a_module_with_nodes_of_its_own_is_also_answered_with_what_was_fused(tmp_path):
    path = tmp_path / "m.onnx"
    options = {"stacktrace_metadata": "full", "return_mode": "file", "output_path": path}
    to_onnx(BentNormed(nnx.Rngs(0)), [(1, 8, 8, 3)], inputs_as_nchw=[0], **options)
    for reader in (nodes_by_inspect, nodes_by_locate, nodes_by_diff, nodes_by_origins, nodes_by_page):
        assert reader(path, "conv1") == reader(path, "conv1", "--inclusive") == {"conv1/Sin", "bn1/Conv"}
        assert reader(path, "conv1", "--self") == {"conv1/Sin"}, "what was fused is of a submodule"


def test_profile_lists_the_nodes_of_a_module_alone(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    to_onnx(Transformer(), NETWORKS["Flax NNX"][1], stacktrace_metadata="full", return_mode="file", output_path=path)
    assert main(["profile", str(path), "--runs", "1", "--module", "blocks.1", "--json"]) == OK
    modules_timed = {row["module"] for row in json.loads(capsys.readouterr().out)["modules"]}
    assert modules_timed and all(module.split(".")[:2] == ["blocks", "1"] for module in modules_timed)
