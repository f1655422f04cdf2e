"""The commands that look into models: on exports of every level, on other producers' models, on damaged files."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from jax2onnx import _core, to_onnx

SHOWN_FILE = os.path.relpath(__file__)  # paths in the working folder are shown without it

LEVELS = ("off", "minimal", "full", "compact")


def halve(x):
    return x * 0.5


class Wave:
    def __call__(self, x):
        y = jnp.sin(x)
        return halve(y) * self.deeper(x)

    def deeper(self, x):
        return jnp.sin(jax.jit(halve)(x))


def merging(x):
    """Two equal products, which the export makes one node with two traces."""
    return jnp.sin(halve(x)) * halve(x)


def other_wave(x):
    y = jnp.sin(x)
    return halve(y) * halve(jnp.sin(y))


class Tool:
    def __init__(self, capfd):
        self.capfd = capfd

    def __call__(self, *arguments, code=0):
        self.capfd.readouterr()
        got = _core.tool(["j2o", *map(str, arguments)])
        out, err = self.capfd.readouterr()
        assert got == code, f"exit code {got}\n{out}\n{err}"
        return out if code != 1 or not err else err

    def json(self, *arguments, code=0):
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def tool(capfd):
    return Tool(capfd)


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """The same function at every level."""
    folder = tmp_path_factory.mktemp("exports")
    for level in LEVELS:
        path = folder / f"{level}.onnx"
        to_onnx(Wave(), [("B", 3)], stacktrace_metadata=level, return_mode="file", output_path=path)
    return folder


def line_of(fn, text):
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


# ---- strip, compact, expand ----


@pytest.mark.parametrize("level", LEVELS)
def test_strip_gives_the_plain_export(tool, exports, tmp_path, level):
    tool("strip", exports / f"{level}.onnx", "-o", tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (exports / "off.onnx").read_bytes()


def test_compact_is_what_a_compact_export_writes_and_expand_undoes_it(tool, exports, tmp_path):
    done = tool.json("compact", exports / "full.onnx", "-o", tmp_path / "compact.onnx")
    assert (tmp_path / "compact.onnx").read_bytes() == (exports / "compact.onnx").read_bytes()
    assert done["bytes_after"] < done["bytes_before"] and done["changes"] > 0
    tool("expand", exports / "compact.onnx", "-o", tmp_path / "full.onnx")
    assert (tmp_path / "full.onnx").read_bytes() == (exports / "full.onnx").read_bytes()


@pytest.mark.parametrize("fn", [merging, other_wave, lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y), x)])
def test_the_levels_agree(tool, tmp_path, fn):
    for level in LEVELS:
        to_onnx(fn, [(2, 3)], stacktrace_metadata=level, return_mode="file", output_path=tmp_path / level)
    tool("compact", tmp_path / "full", "-o", tmp_path / "compacted")
    tool("expand", tmp_path / "compact", "-o", tmp_path / "expanded")
    tool("strip", tmp_path / "compact", "-o", tmp_path / "stripped")
    for made, expected in (("compacted", "compact"), ("expanded", "full"), ("stripped", "off")):
        assert (tmp_path / made).read_bytes() == (tmp_path / expected).read_bytes()


def test_models_without_full_provenance_are_copied(tool, exports, tmp_path):
    for level in ("off", "minimal", "compact"):
        assert "copied unchanged" in tool("compact", exports / f"{level}.onnx", "-o", tmp_path / "out.onnx")
        assert (tmp_path / "out.onnx").read_bytes() == (exports / f"{level}.onnx").read_bytes()
    assert "not compact" in tool("expand", exports / "full.onnx", "-o", tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (exports / "full.onnx").read_bytes()


def test_models_that_would_be_read_otherwise_are_not_compacted(tool, exports, tmp_path):
    """With a table, a node that has a callsite alone is read as the row that has this callsite."""
    model = onnx.load(exports / "full.onnx")
    model.graph.node.append(onnx.helper.make_node("Identity", [model.graph.node[-1].output[0]], ["more"]))
    model.graph.node[-1].metadata_props.append(model.graph.node[0].metadata_props[0])
    onnx.save(model, tmp_path / "model.onnx")
    assert "copied unchanged" in tool("compact", tmp_path / "model.onnx", "-o", tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()


def test_compact_models_are_valid(exports):
    model = onnx.load(exports / "compact.onnx")
    onnx.checker.check_model(model, full_check=True)
    # A line that any viewer shows, and the row of the table where the line does not tell it.
    keys = [[entry.key for entry in node.metadata_props] for node in model.graph.node]
    assert all(found[0] == "pkg.jax2onnx.callsite" and found[1:] in ([], ["#"]) for found in keys)


def test_a_result_may_replace_its_source_or_go_to_standard_output(exports, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes((exports / "full.onnx").read_bytes())
    program = "import sys; from jax2onnx import _core; sys.exit(_core.tool(['j2o', *sys.argv[1:]]))"
    command = [sys.executable, "-c", program]
    done = subprocess.run([*command, "strip", path, "-o", "-"], capture_output=True, check=True)
    assert done.stdout == (exports / "off.onnx").read_bytes()
    subprocess.run([*command, "strip", path, "-o", path], capture_output=True, check=True)
    assert path.read_bytes() == (exports / "off.onnx").read_bytes()
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_strip_all_removes_every_text(tool, tmp_path):
    model = torch_model()
    model.graph.doc_string = model.doc_string = "words"
    model.graph.initializer[0].metadata_props.add(key="k", value="v")
    onnx.save(model, tmp_path / "model.onnx")
    tool("strip", tmp_path / "model.onnx", "-o", tmp_path / "same.onnx")
    assert (tmp_path / "same.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()
    tool("strip", tmp_path / "model.onnx", "-o", tmp_path / "bare.onnx", "--all")
    for node in model.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    model.ClearField("doc_string")
    model.graph.ClearField("doc_string")
    del model.graph.initializer[0].metadata_props[:]
    assert (tmp_path / "bare.onnx").read_bytes() == model.SerializeToString()


def test_the_levels_can_be_chosen_by_the_environment(exports, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX2ONNX_ENABLE_STACKTRACE_METADATA", "1")
    monkeypatch.setenv("JAX2ONNX_STACKTRACE_DETAIL", "compact")
    model = to_onnx(Wave(), [("B", 3)])
    assert model.metadata_props[-1].key == "pkg.jax2onnx.provenance"
    assert model.metadata_props[-1].value.startswith("j2o packed 3 ")


def straight_program(count):
    """A program with a source line for every equation."""
    lines = ["import jax.numpy as jnp", "def program(x):"]
    lines += [f"    x = jnp.sin(x)\n    x = x * {2.0 + i % 3}" for i in range(count // 2)]
    space: dict = {}
    exec(compile("\n".join([*lines, "    return x"]), "program.py", "exec"), space)
    return space["program"]


def test_compact_costs_less_than_the_graph_itself(tmp_path):
    program = straight_program(4000)
    sizes = {}
    for level in ("off", "compact", "full"):
        path = tmp_path / f"{level}.onnx"
        to_onnx(program, [("B", 128)], stacktrace_metadata=level, return_mode="file", output_path=path)
        sizes[level] = path.stat().st_size
    assert sizes["compact"] <= 1.6 * sizes["off"], sizes


# ---- inspect ----


@pytest.mark.parametrize("level", ("minimal", "full", "compact"))
def test_summary_counts_by_operator_function_and_file(tool, exports, level):
    summary = tool.json("inspect", exports / f"{level}.onnx", "--summary")
    operators = {row["operator"]: row["nodes"] for row in summary["operators"]}
    functions = {row["function"]: row["nodes"] for row in summary["functions"]}
    assert operators == {"Sin": 2, "Mul": 3} and summary["nodes"] == 5
    assert functions == {"halve": 2, "Wave.__call__": 2, "Wave.deeper": 1}
    assert [row["path"] for row in summary["files"]] == ([] if level == "minimal" else [__file__])
    text = tool("inspect", exports / f"{level}.onnx", "--summary")
    assert "5 nodes, 2 operators, 3 functions" in text


def test_filters(tool, exports):
    model = exports / "compact.onnx"
    line = line_of(Wave.__call__, "jnp.sin")

    def names(*options):
        return [node["op_type"] for node in tool.json("inspect", model, *options)["nodes"]]

    assert names("--op", "S*") == ["Sin", "Sin"]
    assert names("--line", f"test_tools.py:{line}") == ["Sin"]
    assert names("--line", f"test_tools.py:{line}-{line + 1}") == ["Sin", "Mul"]
    assert names(f"--line=Wave.__call__:{line}") == ["Sin"]
    assert names("--op", "Mul", "--line", f"halve:{line_of(halve, '0.5')}") == ["Mul", "Mul"]
    assert names("--name", "Sin_0") == ["Sin"]
    assert tool("inspect", model, "--op", "Conv", code=1) == "no node is a Conv\n"
    assert tool("inspect", model, "--line", "test_tools.py:1", code=1) == "no node comes from test_tools.py:1\n"
    assert (
        tool("inspect", model, "--line", "a.py:1", "--module", "b", code=1) == "no node comes from a.py:1 in module b\n"
    )
    assert "FILE:LINE" in tool("inspect", model, "--line", "nonsense", code=1)
    tool("inspect", exports / "minimal.onnx", "--line", f"{__file__}:{line}")
    tool("inspect", exports / "minimal.onnx", "--line", f"elsewhere.py:{line}", code=1)


def norm(x):
    mean = x.mean(-1, keepdims=True)
    spread = jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    return (x - mean) / spread


def outer(x):
    return norm(x)


@pytest.mark.parametrize("level", ("full", "compact"))
def test_a_fused_node_answers_for_each_of_its_lines(tool, tmp_path, level):
    path = tmp_path / "model.onnx"
    to_onnx(outer, [(2, 8)], stacktrace_metadata=level, return_mode="file", output_path=path)

    def asked(*options, code=0):
        nodes = tool.json("inspect", path, *options, code=code)["nodes"]
        return [(node["op_type"], node["relation"]) for node in nodes]

    [(op, _)] = asked("--line", f"norm:{line_of(norm, 'spread = ')}")
    assert op == "LayerNormalization"
    relations = {
        asked("--self", "--line", f"norm:{line_of(norm, text)}")[0][1] for text in ("mean =", "spread =", "/ s")
    }
    assert relations == {"own", "fused"}
    calling = f"outer:{line_of(outer, 'norm(x)')}"
    assert asked("--line", calling) == asked("--line", calling, "--inclusive") == [(op, "through")]
    assert asked("--line", calling, "--self", code=1) == []
    text = tool("locate", path, "LayerNormalization_0")
    assert text.count("return norm(x)") == 1 and text.count("mean = x.mean") == 1, "equal chains are shown once"
    assert "all called from" in text


OLD = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "models")


@pytest.mark.parametrize("name", ("full_of_0.1.0.onnx", "compact_of_0.1.0.onnx"))
def test_files_of_earlier_exports_are_read_as_before(tool, name, tmp_path):
    path = os.path.join(OLD, name)
    nodes = tool.json("inspect", path)["graph"]["nodes"]
    [place] = {(row["function"], row["line"], row["nodes"]) for row in tool.json("blame", path)["lines"]}
    assert place == ("scaled_sine", 7, len(nodes))
    found = tool.json("inspect", path, "--line", "sandbox_stacktrace_sample.py:7")
    assert [node["relation"] for node in found["nodes"]] == ["own"] * len(nodes)
    assert found["initializers"] == found["removed"] == []
    located = tool.json("locate", path, nodes[0]["name"])
    assert located["place"]["line"] == 7 and located["trace"][-1]["function"] == "scaled_sine"
    stats = tool.json("stats", path, "--provenance")
    assert stats["nodes"]["file_share"] == 1.0 and stats["initializers"]["line_share"] == 0.0
    tool("report", path, "-o", tmp_path / "page.html")
    tool("diff", path, os.path.join(OLD, "full_of_0.1.0.onnx"))


def test_compact_files_of_the_table_before_are_read_and_expanded(tool, tmp_path):
    """Every initializer by a number, nodes by their callsite alone, digests among the text."""
    path = os.path.join(OLD, "compact_of_table_4.onnx")
    full, packed, again = (tmp_path / name for name in ("full.onnx", "packed.onnx", "again.onnx"))
    tool("expand", path, "-o", full)
    model = onnx.load(full)
    assert {entry.key.removeprefix("pkg.jax2onnx.") for entry in model.metadata_props} == {"modules", "sources"}
    assert all(len(node.metadata_props) >= 6 for node in model.graph.node)
    assert {tensor.name: len(tensor.metadata_props) for tensor in model.graph.initializer if "conv" in tensor.name} == {
        f"layers.{layer}.conv.{name}": 8 for layer in (0, 1) for name in ("kernel", "bias")
    }
    tool("compact", full, "-o", packed)
    assert os.path.getsize(packed) < os.path.getsize(path)
    tool("expand", packed, "-o", again)
    assert again.read_bytes() == full.read_bytes()
    for words in (["blame"], ["inspect"], ["locate", "layers.1/Add"]):
        answers = [tool.json(words[0], file, *words[1:]) for file in (path, full, packed)]
        for answer in answers:
            answer.pop("model", None)
            answer.pop("file", None)
        assert answers[0] == answers[1] == answers[2]


def test_compact_files_from_before_they_were_packed_are_read_and_expanded(tool, tmp_path):
    """Rows by decimal numbers, the table as text, the model's other entries beside it."""
    path = os.path.join(OLD, "compact_before_packing.onnx")
    tool("expand", path, "-o", tmp_path / "full.onnx")
    model = onnx.load(tmp_path / "full.onnx")
    assert {entry.key.removeprefix("pkg.jax2onnx.") for entry in model.metadata_props} == {
        "modules",
        "removed",
        "sources",
    }
    assert all(len(node.metadata_props) >= 4 for node in model.graph.node)
    tool("compact", tmp_path / "full.onnx", "-o", tmp_path / "packed.onnx")
    assert os.path.getsize(tmp_path / "packed.onnx") < os.path.getsize(path)
    answers = [
        [tool.json(*words[:1], file, *words[1:]) for words in (["blame"], ["inspect"], ["locate", "Mul_0"])]
        for file in (path, tmp_path / "full.onnx", tmp_path / "packed.onnx")
    ]
    for found in answers:
        for answer in found:
            for name in ("model", "file", "path", "bytes"):
                answer.pop(name, None)
    assert answers[0] == answers[1] == answers[2]
    [row] = [row for row in answers[0][0]["lines"] if row["line"] == 21]
    assert (row["function"], row["nodes"]) == ("Block.__call__", 2)


def test_what_was_removed_is_found_with_the_reason(tool, exports, tmp_path):
    model = onnx.load(exports / "compact.onnx")
    rows = [
        ("dead", "unused", "/project/model.py:7 (f) < /project/main.py:3 (<module>)"),
        ("cancelled", "cancel_transposes", "/x/site-packages/lib.py:1 (g) < /project/model.py:9 (f)"),
        ("no-op", "no_ops", f"{__file__}:{line_of(Wave.__call__, 'jnp.sin')} (Wave.__call__)"),
    ]
    text = "\n".join("\t".join(row) for row in [*rows, ("without frames",)])
    model.metadata_props.add(key="pkg.jax2onnx.removed", value=text)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)

    def removed(*options, code=0):
        found = tool.json("inspect", path, *options, code=code)["removed"]
        return [(item["reason"], item["pass"], item["relation"]) for item in found]

    assert removed("--line", "model.py:7") == [("dead", "unused", "own")]
    assert removed("--line", "main.py:3") == [("dead", "unused", "through")]
    assert removed("--line", "model.py:9") == [("cancelled", "cancel_transposes", "own")]
    assert removed("--line", "model.py:8", code=1) == []
    assert "removed: dead, by unused\n      at f:7" in tool("inspect", path, "--line", "model.py:7")
    rows = {(row["function"], row["line"]): row for row in tool.json("blame", path)["lines"]}
    assert rows["f", 7]["removed"] == 1 and rows["f", 7]["nodes"] == 0
    assert "removed: cancelled" in tool("blame", path)
    sine = rows["Wave.__call__", line_of(Wave.__call__, "jnp.sin")]
    assert (sine["nodes"], sine["removed"]) == (1, 1)
    stats = tool.json("stats", path, "--provenance")
    assert (stats["removed_operations"], stats["vanished_lines"]) == (3, 2)
    [found] = tool.json("locate", path, "--line", "model.py:9")["found"]
    assert found["removed"]["reason"] == "cancelled" and found["place"]["line"] == 9
    assert len(tool.json("inspect", path)["removed"]) == 3
    assert "removed: dead" in tool("report", path, "-o", "-")


def test_metadata_of_initializers_are_shown(tool, exports, tmp_path):
    model = onnx.load(exports / "compact.onnx")
    del model.graph.initializer[0].metadata_props[:]
    model.graph.initializer[0].metadata_props.add(key="j2o", value="1")
    onnx.save(model, tmp_path / "model.onnx")
    shown = tool.json("inspect", tmp_path / "model.onnx")["graph"]
    assert shown["initializers"][0]["metadata"] == shown["nodes"][0]["metadata"]


def test_inspect_shows_a_compact_model_as_a_full_one(tool, exports):
    full = tool("inspect", exports / "full.onnx", "--full").splitlines()[1:]
    assert tool("inspect", exports / "compact.onnx", "--full").splitlines()[1:] == full


# ---- blame ----


@pytest.mark.parametrize("level", ("minimal", "full", "compact"))
def test_blame_annotates_the_source(tool, exports, level):
    listing = tool("blame", exports / f"{level}.onnx", __file__).splitlines()
    with open(__file__) as file:
        source = file.read().splitlines()
    assert listing.pop(0).split() == ["self", "incl."] and len(listing) == len(source)
    line = line_of(Wave.__call__, "jnp.sin")
    assert listing[line - 1].split()[:3] == ["1", "1", "Sin"] and listing[line - 1].endswith(source[line - 1])
    constant = [] if level == "minimal" else ["1", "constant"]
    expected = ["2", "2", "Mul", "2", *constant]
    assert listing[line_of(halve, "0.5") - 1].replace(",", "").split()[: len(expected)] == expected
    assert listing[line - 2].split()[0] == str(line - 1)
    if level != "minimal":
        assert listing[line].split()[:3] == ["1", "4", "Mul"], "its own product, and what it called"


def test_blame_without_a_source(tool, exports):
    assert "Wave.__call__:" in tool("blame", exports / "minimal.onnx")
    text = tool("blame", exports / "full.onnx")
    assert text.splitlines()[0] == SHOWN_FILE and "return x * 0.5" in text
    lines = tool.json("blame", exports / "compact.onnx")["lines"]
    assert {row["function"] for row in lines} == {"halve", "Wave.__call__", "Wave.deeper"}
    assert sum(row["nodes"] for row in lines) == 5 and all(row["source"] for row in lines)
    assert {row["function"]: row["inclusive_nodes"] for row in lines}["Wave.__call__"] == 4


def test_blame_tells_what_is_missing(tool, exports, tmp_path):
    assert "JAX2ONNX_ENABLE_STACKTRACE_METADATA=1" in tool("blame", exports / "off.onnx", code=1)
    assert "cannot be read" in tool("blame", exports / "full.onnx", tmp_path / "none.py", code=1)
    (tmp_path / "other.py").write_text("x = 1\n")
    assert "comes from this file" in tool("blame", exports / "full.onnx", tmp_path / "other.py", code=1)


def test_blame_knows_functions_by_their_indentation(tool, tmp_path):
    (tmp_path / "shapes.py").write_text(
        'def f(x):\n    """text\nnot code\n"""\n    @decorated\n    def inner(y):\n        return (\n y\n)\n\n'
        "    return inner(x)\n"
        "class A:\n    class B:\n        async def go(self):\n            return [q for q in self]\n"
    )
    rows = [("f", 11), ("f.<locals>.inner", 7), ("A.B.go.<locals>.<listcomp>", 15), ("gone", 3), ("A.B.go", 2)]
    nodes = []
    for index, (function, line) in enumerate(rows):
        node = helper.make_node("Neg", [f"v{index}"], [f"v{index + 1}"])
        node.metadata_props.add(key="pkg.jax2onnx.callsite", value=f"{function}:{line}")
        nodes.append(node)
    save_graph(nodes, tmp_path / "model.onnx", "v0", f"v{len(rows)}")
    found = tool.json("blame", tmp_path / "model.onnx", tmp_path / "shapes.py")["lines"]
    assert sorted((row["function"], row["line"]) for row in found) == sorted(rows[:3])


# ---- locate ----


def test_locate_shows_trace_source_and_neighbours(tool, exports):
    for level in ("full", "compact"):
        text = tool("locate", exports / f"{level}.onnx", "Sin_0")
        line = line_of(Wave.__call__, "jnp.sin")
        assert f"{SHOWN_FILE}:{line} in Wave.__call__\n      y = jnp.sin(x)" in text
        assert "graph input" in text and "to Mul" in text and "f32[B,3]" in text
    found = tool.json("locate", exports / "compact.onnx", "Sin_0")
    assert found["place"] == {"function": "Wave.__call__", "source_file": __file__, "line": line}
    assert found["inputs"][0]["kind"] == "input"
    assert {reader["op_type"] for reader in found["outputs"][0]["consumers"]} == {"Mul"}


def test_locate_by_value(tool, exports):
    model = onnx.load(exports / "full.onnx")
    assert tool.json("locate", exports / "full.onnx", model.graph.output[0].name)["node"]["op_type"] == "Mul"
    lone = tool.json("locate", exports / "full.onnx", model.graph.input[0].name)["value"]
    assert lone["kind"] == "input" and lone["consumers"][0]["op_type"] == "Sin"
    weight = tool("locate", exports / "full.onnx", model.graph.initializer[0].name)
    assert "initializer of 4 B" in weight
    assert "there are Sin_0, Sin_1" in tool("locate", exports / "full.onnx", "Sin_", code=1)


# ---- diff ----


def test_diff_of_the_same_graph_at_other_levels(tool, exports):
    for level in LEVELS:
        assert "the same" in tool("diff", exports / f"{level}.onnx", exports / "full.onnx")
    assert tool.json("diff", exports / "off.onnx", exports / "compact.onnx")["same"] is True


def export(fn, path, specs=(("B", 3),), **options):
    to_onnx(fn, list(specs), stacktrace_metadata="full", return_mode="file", output_path=path, **options)
    return path


def test_diff_names_the_lines_that_changed(tool, tmp_path):
    space: dict = {}
    source = "import jax.numpy as jnp\ndef f(x):\n    a = jnp.sin(x)\n    b = a * {0}\n{1}    return b * b\n"
    paths = []
    for name, number, extra in (("a", 2.0, ""), ("b", 3.0, ""), ("c", 2.0, "    b = jnp.sin(b)\n")):
        exec(compile(source.format(number, extra), f"/project/{name}/f.py", "exec"), space)
        paths.append(export(space["f"], tmp_path / f"{name}.onnx"))
    changed = tool.json("diff", paths[0], paths[1], code=1)
    assert [(row["kind"], row["function"], row["line"]) for row in changed["changes"]] == [("changed", "f", 4)]
    assert "contents" in changed["changes"][0]["details"][0]
    added = tool.json("diff", paths[0], paths[2], code=1)
    assert added["added"] == 1 and added["removed"] == 0
    assert ("added", 5) in [(row["kind"], row["line"]) for row in added["changes"]]
    text = tool("diff", paths[0], paths[2], code=1)
    assert "f:5" in text and "+ Sin" in text


def test_diff_sees_types_attributes_and_the_interface(tool, tmp_path):
    a = export(other_wave, tmp_path / "a.onnx")
    b = export(other_wave, tmp_path / "b.onnx", specs=[("B", 4)])
    assert any("f32[B,3] -> " in text for text in tool.json("diff", a, b, code=1)["model"])
    first = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    second = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    save_graph([first], a, "x", "y")
    save_graph([second], b, "x", "y")
    assert tool.json("diff", a, b, code=1)["changes"][0]["details"] == ["axis: 0 -> 1"]


def test_diff_compares_large_weights_when_asked(tool, tmp_path):
    for name, value in (("a", 1.0), ("b", 2.0)):
        node = helper.make_node("Add", ["x", "w"], ["y"])
        weight = onnx.numpy_helper.from_array(np.full(4096, value, np.float32), "w")
        save_graph([node], tmp_path / f"{name}.onnx", "x", "y", [weight])
    tool("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    tool("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "--weights", code=1)


def test_diff_answers_trouble_by_its_own_code(tool, exports, tmp_path):
    tool("diff", exports / "full.onnx", tmp_path / "none.onnx", code=2)
    (tmp_path / "bad.onnx").write_bytes(b"hello")
    tool("diff", tmp_path / "bad.onnx", exports / "full.onnx", code=2)
    tool("diff", exports / "full.onnx", code=2)


# ---- stats ----


@pytest.mark.parametrize("level", LEVELS)
def test_stats_count_every_byte_once(tool, exports, level):
    path = exports / f"{level}.onnx"
    stats = tool.json("stats", path)
    assert stats["bytes"] == path.stat().st_size == stats["graph"] + stats["tensors"] + stats["metadata"]
    assert {row["operator"]: row["count"] for row in stats["operators"]} == {"Sin": 2, "Mul": 3}
    assert (stats["metadata"] == 0) == (level == "off")
    assert "largest tensors" in tool("stats", path)


@pytest.mark.parametrize("level", LEVELS)
def test_stats_of_provenance(tool, exports, level):
    path = exports / f"{level}.onnx"
    stats = tool.json("stats", path, "--provenance")
    nodes, constants = stats["nodes"], stats["initializers"]
    assert nodes["count"] == 5 and constants["count"] == 1
    assert nodes["line_share"] == (level != "off")
    whole = level in ("full", "compact")
    assert nodes["file_share"] == constants["file_share"] == whole
    assert stats["distinct_lines"] == (4 if level != "off" else 0)
    assert stats["distinct_files"] == whole and (stats["depth"]["most"] == 3) == whole
    metadata = tool.json("stats", path)["metadata"]
    assert stats["bytes"] == metadata and stats["bytes_per_node"] == metadata / 5
    text = tool("stats", path, "--provenance")
    assert "with a line            5  100.0 %" in text if level != "off" else "0    0.0 %" in text


def test_stats_of_provenance_of_other_producers(tool, tmp_path):
    onnx.save(torch_model(), tmp_path / "torch.onnx")
    stats = tool.json("stats", tmp_path / "torch.onnx", "--provenance")
    assert stats["producer"] == "pytorch" and stats["bytes"] > 0
    assert stats["nodes"]["line_share"] == stats["nodes"]["module_share"] == 1.0
    assert stats["initializers"]["line_share"] == 0.0 and stats["distinct_lines"] == 1
    assert stats["depth"] == {"mean": 1.0, "most": 1, "mean_with_libraries": 2.0}


def test_stats_know_external_data(tool, tmp_path):
    model = torch_model()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((64, 64), np.float32), "big"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=1000)
    stats = tool.json("stats", tmp_path / "m.onnx", "--top=1")
    assert stats["external"] == 16384
    assert [(row["name"], row["location"]) for row in stats["largest_tensors"]] == [("big", "m.data")]


# ---- other producers, damaged files, large files ----


def save_graph(nodes, path, first, last, initializers=()):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in (first, last)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)


def torch_model():
    trace = (
        'File "/project/net.py", line 8, in forward\n    return self.act(x)\n'
        'File "/x/site-packages/torch/nn/functional.py", line 1500, in relu\n    return torch.relu(input)\n'
    )
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    for node in nodes:
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'act', 'relu']")
        node.doc_string = "text"
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "main", values[:1], values[1:], [helper.make_tensor("w", 1, [2], [1.0, 2.0])])
    return helper.make_model(graph, producer_name="pytorch")


def test_traces_of_torch_are_understood(tool, tmp_path):
    path = tmp_path / "torch.onnx"
    onnx.save(torch_model(), path)
    text = tool("inspect", path)
    assert "at forward:8, in act" in text and "STACKTRACE" not in text
    assert tool.json("inspect", path, "--summary")["files"][0]["path"] == "/project/net.py"
    assert len(tool.json("inspect", path, "--line", "net.py:8")["nodes"]) == 2
    found = tool.json("locate", path, "relu")
    assert [frame["function"] for frame in found["trace"]] == ["relu", "forward"], "innermost first"
    assert len(tool.json("inspect", path, "--module", "act")["nodes"]) == 2
    tool("inspect", path, "--module", "ac", code=1)
    assert tool.json("blame", path)["lines"][0]["line"] == 8
    assert "/project/net.py:8 in forward" in tool("locate", path, "relu")


def test_models_without_provenance_say_how_to_get_it(tool, exports):
    assert "JAX2ONNX_ENABLE_STACKTRACE_METADATA=1" in tool("inspect", exports / "off.onnx")
    assert "JAX2ONNX_STACKTRACE_DETAIL=full" in tool("locate", exports / "off.onnx", "Sin_0")
    assert "JAX2ONNX_ENABLE_STACKTRACE_METADATA=1" in tool("inspect", exports / "off.onnx", "--line", "a.py:1", code=1)


COMMANDS = (
    ("inspect",),
    ("inspect", "--summary"),
    ("blame",),
    ("locate", "Sin_0"),
    ("stats",),
    ("check",),
    ("text",),
    ("strip", "-o", "OUT"),
    ("compact", "-o", "OUT"),
    ("expand", "-o", "OUT"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_truncated_files_are_told_and_nothing_is_written(tool, exports, tmp_path, command):
    content = (exports / "compact.onnx").read_bytes()
    path, out = tmp_path / "cut.onnx", tmp_path / "out.onnx"
    words = [out if word == "OUT" else word for word in command]
    for length in {0, 1, 2, 5, *range(10, len(content) - 1, 97)}:
        path.write_bytes(content[:length])
        code = _core.tool(["j2o", words[0], str(path), *map(str, words[1:])])
        err = tool.capfd.readouterr().err
        # A cut between the fields of the model can leave a whole model.
        assert code == 1 or (code == 0 and length > len(content) // 2), (length, err)
        if code:
            assert str(path) in err
            assert not out.exists()
        else:
            out.unlink(missing_ok=True)


def test_files_that_are_no_models_are_told(tool, tmp_path):
    for content in (b"", b"hello world", b"\x00" * 100, b"PK\x03\x04zip", b"\x08\x0a"):
        (tmp_path / "file.onnx").write_bytes(content)
        assert "not an ONNX model" in tool("inspect", tmp_path / "file.onnx", code=1)
    assert "No such file" in tool("stats", tmp_path / "none.onnx", code=1)


def test_a_damaged_table_is_told(tool, exports, tmp_path):
    model = onnx.load(exports / "compact.onnx")
    value = model.metadata_props[-1].value
    model.metadata_props[-1].value = value[: len(value) // 2]
    onnx.save(model, tmp_path / "bad.onnx")
    assert "packed provenance is damaged" in tool("inspect", tmp_path / "bad.onnx", code=1)
    assert "packed provenance is damaged" in tool("expand", tmp_path / "bad.onnx", "-o", tmp_path / "o", code=1)
    model = onnx.load(os.path.join(OLD, "compact_before_packing.onnx"))
    model.metadata_props[-1].value = model.metadata_props[-1].value.replace("names", "namen")
    onnx.save(model, tmp_path / "bad.onnx")
    assert "provenance table is damaged" in tool("inspect", tmp_path / "bad.onnx", code=1)
    assert "provenance table is damaged" in tool("expand", tmp_path / "bad.onnx", "-o", tmp_path / "o", code=1)


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A model of 3 GiB: a hole in the file stands for the weights."""
    folder = tmp_path_factory.mktemp("huge")
    size = 3 << 30
    model = torch_model()
    for node in model.graph.node:
        node.metadata_props.add(key="pkg.jax2onnx.callsite", value="f:1")
    plain = model.graph.SerializeToString()
    tensor = b"\x08" + varint(size // 4) + b"\x10\x01" + b"\x42\x03big" + b"\x4a" + varint(size)
    initializer = b"\x2a" + varint(len(tensor) + size) + tensor
    head = b"\x08\x0a\x42\x04\x0a\x00\x10\x14\x3a" + varint(len(plain) + len(initializer) + size) + plain + initializer
    path = folder / "huge.onnx"
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return path


@pytest.mark.parametrize(
    "command", [("inspect",), ("blame",), ("locate", "relu"), ("stats",), ("inspect", "--summary")]
)
def test_a_model_of_3_gib_takes_no_time_and_no_memory(huge, command):
    code = (
        "import resource, subprocess, sys, time\n"
        "start = time.perf_counter()\n"
        "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
        "print(code, time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    program = os.environ.get("J2O_PROGRAM") or built_program()
    if program is None:
        pytest.skip("the stand-alone program is not built")
    started = time.perf_counter()
    while True:  # the quickest of several runs: other work on the machine is no fault of the tool
        arguments = [program, command[0], str(huge), *command[1:]]
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        result, seconds, kilobytes = done.stdout.split()
        assert result == "0" and int(kilobytes) < 50 * 1024
        if float(seconds) < 0.1:
            return
        assert time.perf_counter() - started < 20, f"{seconds} s"


def built_program():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folder = os.path.join(root, "build")
    found = [os.path.join(folder, name, "j2o") for name in sorted(os.listdir(folder))] if os.path.isdir(folder) else []
    return next((path for path in found if os.path.isfile(path)), None)


def test_colours_and_help(tool, exports):
    assert "\x1b" not in tool("inspect", exports / "full.onnx")
    assert "\x1b[36m" in tool("blame", exports / "full.onnx", "--color=always")
    for command in ("inspect", "blame", "locate", "diff", "stats", "check", "text", "strip", "compact", "expand"):
        assert tool(command, "--help").startswith(f"usage: j2o {command} ")
        assert command in tool("--help")
