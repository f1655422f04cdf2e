"""Nothing is lost: every line that computes is on a node, on an initializer, or in the ledger of what was removed.

Every export of the tests at full and compact proves it on the bytes that were written (JAX2ONNX_CHECK_PASSES); these
tests look at what is said."""

import hashlib
import inspect
import linecache
import re

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import all_initializers, all_nodes, expanded, metadata
from flax import nnx

from jax2onnx import _core, to_onnx

REMOVED, SOURCES, TRACEBACK = (f"pkg.jax2onnx.{key}" for key in ("removed", "sources", "jax_traceback"))


def lines_of(function, text):
    """The lines of ``function`` that a text of traces names, counted from its ``def``."""
    _, first = inspect.getsourcelines(function)
    return {int(line) - first for line in re.findall(rf":(\d+) \({function.__qualname__}\)", text)}


def places(function, level="full", shape=(2, 3)):
    """Lines on nodes, on initializers, and removed with their reasons."""
    model = to_onnx(function, [shape], stacktrace_metadata=level)
    nodes = [lines_of(function, metadata(node)[TRACEBACK]) for node in all_nodes(model)]
    constants = [lines_of(function, metadata(tensor).get(TRACEBACK, "")) for tensor in all_initializers(model)]
    gone = {}
    for line in metadata(model).get(REMOVED, "").splitlines():
        reason, name, trace = line.split("\t")
        for number in lines_of(function, trace):
            gone.setdefault(number, set()).add((reason, name))
    return set().union(*nodes), set().union(*constants), gone


def of_every_kind(x):
    unused = jnp.cos(x)
    mask = jnp.tril(jnp.ones((3, 3)))
    table = jnp.exp(mask) * 3
    back = jnp.transpose(jnp.transpose(x))
    same = back.astype(jnp.float32)
    numbers = jnp.arange(3) * 2
    del unused
    return same @ table + numbers


def test_every_line_is_somewhere():
    nodes, constants, gone = places(of_every_kind)
    assert {8} <= nodes
    assert {2, 3, 6} <= constants
    assert gone[1] == {("dead", "unused")}
    assert {reason for reason, _ in gone[4]} <= {"no-op", "cancelled"}
    assert nodes | constants | gone.keys() >= {1, 2, 3, 4, 6, 8}


def branch_of_a_known_step(x):
    def step(i, y):
        chosen = jax.lax.cond(
            i > 0,
            lambda n: n + 1,
            lambda n: jnp.where(n != n, n, n) - n,
            i,
        )
        return jnp.where(y == y, y, chosen.astype(y.dtype))

    return jax.lax.fori_loop(1, 4, step, x)


def part_of_what_was_joined(x):
    wide = jnp.pad(x[0, :1], 1, mode="symmetric")
    return jax.lax.clamp(wide, wide, wide)


def same_truth(x):
    known = x > 0
    both = jnp.bitwise_and(known, known)
    return both | both


def rounded_and_moved(x):
    turned = x.astype(jnp.bfloat16).T
    same = jax.lax.integer_pow(turned, 1)
    return jnp.repeat(same, 3, axis=1)


@pytest.mark.parametrize("function", [branch_of_a_known_step, part_of_what_was_joined, same_truth, rounded_and_moved])
def test_no_equation_is_lost(function):
    to_onnx(function, [(2, 3)], stacktrace_metadata="full")  # the checker of the tests would say so


def causal(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / 2.0
    mask = jnp.tril(jnp.ones((8, 8), bool))
    scores = jnp.where(mask, scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1) @ v


def test_a_mask_that_became_an_attribute_is_on_the_node():
    model = to_onnx(causal, [(2, 3, 8, 4)] * 3, opset=23, stacktrace_metadata="full")
    (node,) = [node for node in all_nodes(model) if node.op_type == "Attention"]
    assert lines_of(causal, metadata(node)[TRACEBACK]) == {1, 2, 3, 4}


def causal_layers(q, k, v):
    mask = jnp.tril(jnp.ones((8, 8), bool))
    for _ in range(3):
        scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / 2.0, -jnp.inf)
        q = jax.nn.softmax(scores, axis=-1) @ v
    return q


def gated_layers(x):
    shift = jnp.exp(jnp.zeros((3,))) * 2.0
    for _ in range(3):
        x = jax.nn.relu(x * 0.5 + shift)
    return x + jnp.float32(1) * x


def test_what_several_fused_nodes_used_is_on_each_of_them():
    model = to_onnx(causal_layers, [(2, 3, 8, 4)] * 3, opset=23, stacktrace_metadata="full")
    nodes = [node for node in all_nodes(model) if node.op_type == "Attention"]
    assert len(nodes) == 3
    for node in nodes:
        assert lines_of(causal_layers, metadata(node)[TRACEBACK]) == {1, 3, 4}


def test_what_stays_is_not_on_those_that_use_it():
    model = to_onnx(gated_layers, [(2, 3)], opset=23, stacktrace_metadata="full")
    for node in all_nodes(model):
        assert 1 not in lines_of(gated_layers, metadata(node)[TRACEBACK])


def test_a_constant_of_many_operations_remembers_them_all():
    source = "def program(x):\n    t = jnp.ones((3,))\n" + "    t = t * 1.5 - 1.0\n" * 40 + "    return x + t\n"
    space = {"jnp": jnp}
    exec(compile(source, "long_program.py", "exec"), space)
    model = to_onnx(space["program"], [(2, 3)], stacktrace_metadata="full")
    (table,) = all_initializers(model)
    found = {int(line) for line in re.findall(r"long_program.py:(\d+)", metadata(table)[TRACEBACK])}
    assert found >= set(range(3, 43))


@pytest.mark.parametrize("level", ["off", "minimal"])
def test_there_is_no_ledger_without_traces(level):
    assert not metadata(to_onnx(of_every_kind, [(2, 3)], stacktrace_metadata=level))


def test_the_levels_agree_on_what_was_removed(tmp_path):
    said = []
    for level in ("full", "compact"):
        said.append(metadata(expanded(to_onnx(of_every_kind, [(2, 3)], stacktrace_metadata=level)))[REMOVED])
    assert said[0] == said[1]


# Sources


def test_digests_of_source_files():
    model = to_onnx(of_every_kind, [(2, 3)], stacktrace_metadata="full")
    digests = dict(line.split("\t") for line in metadata(model)[SOURCES].splitlines())
    with open(__file__, "rb") as file:
        assert digests[__file__] == hashlib.sha256(file.read()).hexdigest()
    assert not any(key.startswith("pkg.jax2onnx.source:") for key in metadata(model))


def test_sources_that_are_in_no_file_can_be_kept():
    source = "def cell(x):\n    return jnp.sin(x)\n"
    name = "<ipython-input-7-test>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"jnp": jnp}
    exec(compile(source, name, "exec"), space)
    model = to_onnx(space["cell"], [(2, 3)], stacktrace_metadata="compact", embed_source=True)
    assert metadata(model)[f"pkg.jax2onnx.source:{name}"] == source
    assert hashlib.sha256(source.encode()).hexdigest() in metadata(expanded(model))[SOURCES]


def test_stripping_leaves_nothing(tmp_path):
    plain, full = tmp_path / "plain.onnx", tmp_path / "full.onnx"
    to_onnx(of_every_kind, [(2, 3)], return_mode="file", output_path=plain)
    to_onnx(
        of_every_kind,
        [(2, 3)],
        stacktrace_metadata="full",
        embed_source=True,
        return_mode="file",
        output_path=full,
    )
    assert _core.tool_output(["j2o", "strip", str(full), "-o", str(full)])[0] == 0
    assert full.read_bytes() == plain.read_bytes()
    onnx.checker.check_model(onnx.load(plain))


# Weights that passes made out of others


class Stem(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, use_running_average=True, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.conv(x))


class Net(nnx.Module):
    def __init__(self):
        self.stem = Stem(nnx.Rngs(0))

    def __call__(self, x):
        return nnx.relu(self.stem(x))


def test_a_weight_made_of_others_is_called_after_what_it_is():
    model = to_onnx(Net(), [(1, 8, 8, 3)], stacktrace_metadata="full")
    found = {
        tensor.name: metadata(tensor).get("pkg.jax2onnx.made_of", "").split(",") for tensor in model.graph.initializer
    }
    assert {"stem.conv.kernel", "stem.conv.bias"} <= found.keys()
    assert {"stem.conv.kernel", "stem.norm.scale"} <= set(found["stem.conv.kernel"])
    assert {"stem.norm.mean", "stem.norm.bias"} <= set(found["stem.conv.bias"])


class Recurrent(nnx.Module):
    def __init__(self):
        self.cell = nnx.GRUCell(3, 4, rngs=nnx.Rngs(0))

    def __call__(self, x):
        start = jnp.zeros((x.shape[0], 4))
        return jax.lax.scan(lambda state, step: self.cell(state, step), start, x.swapaxes(0, 1))[1]


class Grouped(nnx.Module):
    """Weights that are only given another shape."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.norm = nnx.GroupNorm(4, num_groups=2, rngs=rngs)
        self.heads = nnx.LinearGeneral(4, (2, 3), rngs=rngs)
        for variable in (self.norm.scale, self.norm.bias, self.heads.bias):
            variable[...] = jnp.arange(variable.size, dtype=jnp.float32).reshape(variable.shape) + 0.5

    def __call__(self, x):
        return self.heads(self.norm(x))


@pytest.mark.parametrize("level", ["full", "compact"])
@pytest.mark.parametrize("make, shape", [(Net, (1, 8, 8, 3)), (Recurrent, (2, 5, 3)), (Grouped, (2, 6, 4))])
def test_every_weight_is_as_it_was_or_says_what_it_was_made_of(make, shape, level, tmp_path):
    module = make()
    weights = {".".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(nnx.state(module))}
    path = tmp_path / "m.onnx"
    to_onnx(module, [shape], stacktrace_metadata=level, return_mode="file", output_path=path)
    expanded = tmp_path / "full.onnx"
    assert _core.tool_output(["j2o", "expand", str(path), "-o", str(expanded)])[0] == 0
    made = 0
    for tensor in onnx.load(expanded).graph.initializer:
        if tensor.name.startswith("const_"):
            continue
        sources = metadata(tensor).get("pkg.jax2onnx.made_of")
        if sources is None:
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weights[tensor.name][...])
        else:
            made += 1
            assert set(sources.split(",")) <= weights.keys()
    assert made
