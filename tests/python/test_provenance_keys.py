"""What nodes and initializers say besides the four first keys: columns, modules, and where constants came from."""

import ast
import inspect
import pathlib
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from export_check import all_initializers, all_nodes, metadata, stripped

from jax2onnx import _core, to_onnx

CALLSITE, SPAN, MODULE, TRACEBACK = (f"pkg.jax2onnx.{key}" for key in ("callsite", "span", "module", "jax_traceback"))
OLD_MODELS = pathlib.Path(__file__).resolve().parents[1] / "data" / "models"


def source_at(function, span):
    """The text between two places, lines counted as in the file and columns in bytes."""
    (first, start), (last, stop) = ([int(number) for number in end.split(":")] for end in span.split("-"))
    lines = pathlib.Path(inspect.getsourcefile(function)).read_bytes().splitlines()[first - 1 : last]
    lines[-1] = lines[-1][:stop]
    lines[0] = lines[0][start:]
    return b"\n".join(lines).decode()


def spans_of(model):
    return {metadata(node)[SPAN] for node in all_nodes(model)}


# Columns


def one_line(x):
    return jnp.sin(x) * jnp.cos(x) + jnp.exp(x - 1.0)


def several_lines(x):
    return jnp.tanh(
        x
        @ jnp.asarray(
            np.eye(3, dtype=np.float32) * 2.0,
        )
    ) + (
        jnp.abs(x)
        - x
    )  # fmt: skip


def beyond_ascii(x):
    größe = x * 2.0; weite = jnp.sin(größe)  # fmt: skip # noqa: E702
    return größe + weite


def inside_a_library(x):
    return jax.nn.softmax(x, axis=-1) + jax.vmap(lambda row: jnp.cumsum(row * 2.0))(x)


EXPRESSIONS = {
    one_line: {"jnp.sin(x)", "jnp.cos(x)", "jnp.exp(x - 1.0)", "x - 1.0", "jnp.sin(x) * jnp.cos(x)"},
    several_lines: {"jnp.abs(x)", "jnp.abs(x)\n        - x"},
    beyond_ascii: {"x * 2.0", "jnp.sin(größe)", "größe + weite"},
    inside_a_library: {"jax.nn.softmax(x, axis=-1)", "row * 2.0", "jnp.cumsum(row * 2.0)"},
}


@pytest.mark.parametrize("level", ["full", "compact"])
@pytest.mark.parametrize("function", EXPRESSIONS, ids=lambda function: function.__name__)
def test_columns_are_those_of_the_expression(function, level, tmp_path):
    path = tmp_path / "model.onnx"
    to_onnx(function, [(2, 3)], stacktrace_metadata=level, return_mode="file", output_path=path)
    assert _core.tool_output(["j2o", "expand", str(path), "-o", str(path)])[0] == 0
    found = {source_at(function, span) for span in spans_of(onnx.load(path))}
    assert EXPRESSIONS[function] <= found
    for text in found:
        ast.parse(textwrap.dedent(text).strip() if "\n" not in text else f"({text})")


def positions_of(code):
    """Every place that the code object and those inside it hold."""
    yield from (tuple(position) for position in code.co_positions())
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from positions_of(constant)


@pytest.mark.parametrize("function", EXPRESSIONS, ids=lambda function: function.__name__)
def test_columns_are_places_of_the_code_object(function):
    known = {
        f"{line}:{column}-{end_line}:{end_column}"
        for line, end_line, column, end_column in positions_of(function.__code__)
    }
    assert spans_of(to_onnx(function, [(2, 3)], stacktrace_metadata="full")) <= known


def test_columns_are_written_at_full_and_compact_only():
    assert not spans_of_any(to_onnx(one_line, [(2, 3)], stacktrace_metadata="minimal"))
    assert spans_of_any(to_onnx(one_line, [(2, 3)], stacktrace_metadata="full"))


def spans_of_any(model):
    return [key for node in all_nodes(model) for key in metadata(node) if key == SPAN]


# Constants


def folded(x):
    mask = jnp.tril(jnp.ones((3, 3)))
    table = jnp.exp(mask) * 3
    return x @ table


@pytest.mark.parametrize("level", ["minimal", "full"])
def test_a_constant_computed_at_export_says_where(level):
    model = to_onnx(folded, [(2, 3)], stacktrace_metadata=level)
    (table,) = [tensor for tensor in all_initializers(model) if list(tensor.dims) == [3, 3]]
    _, first = inspect.getsourcelines(folded)
    assert metadata(table)[CALLSITE] == f"folded:{first + 2}"
    assert (SPAN in metadata(table)) == (level == "full")
    if level == "full":
        trace = metadata(table)[TRACEBACK]
        assert all(f"test_provenance_keys.py:{first + line} (folded)" in trace for line in (1, 2))


def test_a_literal_says_which_line_holds_it():
    model = to_onnx(lambda x: jnp.sin(x) * 7.5, [(2, 3)], stacktrace_metadata="full")
    (literal,) = all_initializers(model)
    assert metadata(literal)[CALLSITE].startswith("test_a_literal_says_which_line_holds_it.<locals>.<lambda>:")


def test_weights_are_from_no_line():
    weight = np.ones((3, 4), np.float32)
    (found,) = all_initializers(to_onnx(lambda x: x @ weight, [(2, 3)], stacktrace_metadata="full"))
    assert not metadata(found)


# Scopes


def scoped(x):
    with jax.named_scope("encoder"):
        y = jnp.sin(x)
        with jax.named_scope("layer_0"):
            y = jax.jit(lambda v: jnp.where(v > 0, v, jnp.tanh(v)))(y)
    return jax.vmap(jax.named_scope("decoder")(lambda row: row * 3.0))(y) - 1.0


def test_scopes_are_the_modules_of_plain_functions():
    model = to_onnx(scoped, [(2, 3)], stacktrace_metadata="full")
    found = {node.op_type: metadata(node).get(MODULE) for node in all_nodes(model)}
    assert found["Sin"] == "encoder"
    assert found["Tanh"] == found["Where"] == "encoder.layer_0"
    assert found["Mul"] == "decoder"
    assert found["Sub"] is None
    namespaces = {metadata(node).get("namespace") for node in all_nodes(model)}
    assert namespaces == {"encoder", "encoder/layer_0", "decoder", None}


# Levels and files


@pytest.mark.parametrize("function", [*EXPRESSIONS, folded, scoped], ids=lambda function: function.__name__)
def test_the_levels_hold_the_same(function, tmp_path):
    for level in ("off", "full", "compact"):
        path = tmp_path / level
        to_onnx(function, [(2, 3)], stacktrace_metadata=level, return_mode="file", output_path=path)
    for command, source, expected in (
        ("compact", "full", "compact"),
        ("expand", "compact", "full"),
        ("strip", "full", "off"),
        ("strip", "compact", "off"),
    ):
        made = tmp_path / "made"
        assert _core.tool_output(["j2o", command, str(tmp_path / source), "-o", str(made)])[0] == 0
        assert made.read_bytes() == (tmp_path / expected).read_bytes(), f"{command} of {source}"
    assert stripped(onnx.load(tmp_path / "full")) == onnx.load(tmp_path / "off")


def test_files_of_earlier_exports_are_read_as_before(tmp_path):
    full, compact = OLD_MODELS / "full_of_0.1.0.onnx", OLD_MODELS / "compact_of_0.1.0.onnx"
    expanded = tmp_path / "expanded.onnx"
    assert _core.tool_output(["j2o", "expand", str(compact), "-o", str(expanded)])[0] == 0
    assert expanded.read_bytes() == full.read_bytes()
    shown = [_core.tool_output(["j2o", "inspect", "--json", str(path)]) for path in (full, compact)]
    assert shown[0][0] == shown[1][0] == 0
    for node in onnx.load(full).graph.node:
        assert all(metadata(node)[CALLSITE].encode() in output for _, output, _ in shown)
