"""Files that somebody made to harm who reads them: what reaches the terminal, what is read, what it costs."""

from __future__ import annotations

import io
import json
import os
import re
import sys

import onnx
import pytest
from onnx import TensorProto, helper

import jax2onnx
from jax2onnx import _core
from jax2onnx.__main__ import main

ESCAPES = "\x1b[31m \x9b31m \u202e \u2066 \u200f \u061c \x7f \r \x08 \x07 \u2028 x\ny"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def tool(*arguments, code=0):
    got, out, err = _core.tool_output(["j2o", *map(str, arguments)])
    assert code is None or got == code, f"exit code {got}\n{out.decode()}\n{err.decode()}"
    return out.decode(errors="surrogateescape"), err.decode(errors="surrogateescape")


def hostile(text, level="full"):
    """A model with the text in every place that has one."""
    node = helper.make_node(f"Op{text}", [f"x{text}", "w", "s"], [f"y{text}"], name=f"n{text}", domain=f"d{text}")
    node.attribute.append(helper.make_attribute(f"a{text}", f"value{text}"))
    node.attribute.append(helper.make_attribute("list", [f"one{text}", "two"]))
    node.attribute.append(helper.make_attribute("tensor", helper.make_tensor(f"t{text}", 1, [1], [2.0])))
    trace = f"/tmp/a{text}.py:3 (f{text})\n/tmp/b.py:4 (g)"
    values = {"callsite": f"f{text}:3", "plugin": f"P{text}:1", "stacktrace": f"s{text}", "jax_traceback": trace}
    for key, value in values.items():
        node.metadata_props.add(key=f"pkg.jax2onnx.{key}", value=value)
    node.metadata_props.add(key=f"key{text}", value=f"value{text}")
    info = [helper.make_tensor_value_info(f"{name}{text}", TensorProto.FLOAT, [f"B{text}"]) for name in "xy"]
    tensors = [
        helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("s", TensorProto.STRING, [1], [f"text{text}".encode()]),
    ]
    graph = helper.make_graph([node], f"g{text}", info[:1], info[1:], tensors)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(f"d{text}", 1)]
    model = helper.make_model(graph, producer_name=f"p{text}", opset_imports=opsets)
    model.metadata_props.add(key=f"key{text}", value=f"value{text}")
    body = helper.make_node("Sin", ["p"], ["q"], name=f"inner{text}")
    model.functions.append(helper.make_function(f"d{text}", f"f{text}", ["p"], ["q"], [body], opsets[:1], ["k"]))
    return model


@pytest.fixture
def models(tmp_path):
    onnx.save(hostile(ESCAPES), tmp_path / "a.onnx")
    onnx.save(hostile(ESCAPES + "!"), tmp_path / "b.onnx")
    return tmp_path


# ---- the terminal ----

COMMANDS = [
    "inspect a",
    "inspect a --full",
    "inspect a --summary",
    "inspect a --op *",
    "blame a",
    "locate a y",
    "locate a w",
    "diff a b",
    "stats a",
    "text a",
    "inspect a --json",
    "locate a n --json",
    "diff a b --json",
    "stats a --json",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_a_terminal_obeys(models, command):
    name, *words = command.split()
    words = [models / f"{word}.onnx" if word in "ab" else word for word in words]
    words = [word + ESCAPES if word in ("y", "n") else word for word in words]
    out, err = tool(name, *words, code=None)
    assert out and not err
    assert not OBEYED.search(out), repr(OBEYED.search(out))
    if "--json" in words:
        json.loads(out)
    elif name not in ("text",):
        assert "\\x1b[31m \\u009b31m \\u202e \\u2066 \\u200f \\u061c \\x7f \\x0d" in out


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", f"missing{ESCAPES}.onnx"],
        [f"destroy{ESCAPES}"],
        ["inspect", f"--{ESCAPES}"],
        ["inspect", "a", "--line", f"{ESCAPES}"],
        ["locate", "a", f"unknown{ESCAPES}"],
        ["locate", "a", "n"],
        ["blame", "a", f"missing{ESCAPES}.py"],
        ["report", "a", "-o", f"missing{ESCAPES}/page.html"],
        ["report", "a", "-o", "-", "--profile", f"missing{ESCAPES}.json"],
    ],
)
def test_no_message_holds_what_a_terminal_obeys(models, words):
    _, err = tool(*(models / "a.onnx" if word == "a" else word for word in words), code=None)
    assert err and not OBEYED.search(err), repr(err)
    assert "x\ny" not in err, "a line end of a name would begin a line of its own"


def test_a_damaged_text_is_shown_byte_by_byte(tmp_path):
    model = hostile("?!?").SerializeToString().replace(b"?!?", b"\xff\xe9\x80")
    (tmp_path / "m.onnx").write_bytes(model)
    for name in ("inspect", "blame", "stats"):
        out, _ = tool(name, tmp_path / "m.onnx")
        assert "\\xff\\xe9\\x80" in out
    assert "\udcff" not in tool("text", tmp_path / "m.onnx")[0]


def test_a_nul_is_part_of_a_name(tmp_path):
    onnx.save(hostile("\0tail"), tmp_path / "m.onnx")
    out, _ = tool("inspect", tmp_path / "m.onnx", "--full")
    for name in ("Op", "x", "y", "n", "d", "B", "key", "g", "p", "inner", "f"):
        assert f"{name}\\x00tail" in out, name
    document = json.loads(tool("inspect", tmp_path / "m.onnx", "--json")[0])
    node = document["graph"]["nodes"][0]
    assert (node["op_type"], node["domain"], node["name"]) == ("Op\0tail", "d\0tail", "n\0tail")
    assert document["graph"]["inputs"][0]["type"]["shape"] == ["B\0tail"]
    text, _ = tool("text", tmp_path / "m.onnx")
    for name in ("x", "y", "n", "B", "a", "key", "value", "text"):
        assert f"{name}\\\\x00tail" in text or f"{name}\\x00tail" in text, name
    other = hostile("\0other")
    onnx.save(other, tmp_path / "o.onnx")
    assert "the same" not in tool("diff", tmp_path / "m.onnx", tmp_path / "o.onnx", code=1)[0]


def run_main(capsys, *words):
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def named_sin(text):
    node = helper.make_node("Sin", [f"x{text}"], [f"y{text}"], name=f"n{text}")
    trace = f"/tmp/a{text}.py:3 (f{text})"
    for key, value in {"callsite": f"f{text}:3", "jax_traceback": trace}.items():
        node.metadata_props.add(key=f"pkg.jax2onnx.{key}", value=value)
    info = [helper.make_tensor_value_info(f"{name}{text}", TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("as_json", [False, True])
def test_explain_prints_nothing_that_a_terminal_obeys(tmp_path, capsys, monkeypatch, as_json):
    onnx.save(named_sin(ESCAPES), tmp_path / "m.onnx")
    message = f"Non-zero status code while running Sin node. Name:'n{ESCAPES}' \x1b]0;title\x07"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(message.encode())))
    code, out, err = run_main(capsys, "explain", tmp_path / "m.onnx", *(["--json"] if as_json else []))
    assert code == 0 and not OBEYED.search(out + err), (out, err)
    if as_json:
        assert json.loads(out)["message"] == message
    else:
        assert "\\x1b[31m" in out and "\\u202e" in out


def test_explain_run_and_profile_print_nothing_that_a_terminal_obeys(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    onnx.save(named_sin(ESCAPES), tmp_path / "m.onnx")
    code, out, err = run_main(capsys, "profile", tmp_path / "m.onnx", "--runs", "1", "--color=never")
    assert code == 0 and "\\x1b[31m" in out and not OBEYED.search(out + err), (out, err)
    broken = named_sin(ESCAPES)
    broken.graph.node[0].op_type = "Missing"
    broken.graph.node[0].name += "\x1b]0;title\x07"
    onnx.save(broken, tmp_path / "b.onnx")
    for words in (["explain", tmp_path / "b.onnx", "--run"], ["profile", tmp_path / "b.onnx"]):
        _, out, err = run_main(capsys, *words)
        assert not OBEYED.search(out + err), (out, err)


def test_verify_prints_nothing_that_a_terminal_obeys(tmp_path, capsys, monkeypatch):
    pytest.importorskip("onnxruntime")
    (tmp_path / "program.py").write_text("import jax.numpy as jnp\n\n\ndef fn(x):\n    return jnp.cos(x)\n")
    onnx.save(named_sin(ESCAPES), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    code, out, err = run_main(capsys, "verify", "program.py:fn", "m.onnx", "--color=never")
    assert code == 1 and out and not OBEYED.search(out + err), (out, err)


@pytest.mark.parametrize("command", ["explain", "profile", "verify", "export"])
def test_errors_of_the_command_line_are_escaped(capsys, command):
    code, out, err = run_main(capsys, command, f"--{ESCAPES}", "m:f", "-o", "x", f"more{ESCAPES}", f"more{ESCAPES}")
    assert code == 2 and err and not OBEYED.search(out + err), err


def test_paths_that_are_not_utf8_are_shown(capsys):
    code, out, err = run_main(capsys, "explain", "missing\udcff\x1b.onnx")
    assert code == 1 and "missing\\xff\\x1b.onnx" in err, (out, err)


# ---- source files ----


def naming(*files):
    """A model whose nodes claim to come from line 1 of these files."""
    nodes = []
    for index, file in enumerate(files):
        node = helper.make_node("Sin", [f"v{index}"], [f"v{index + 1}"], name=f"n{index}")
        node.metadata_props.add(key="pkg.jax2onnx.callsite", value="f:1")
        node.metadata_props.add(key="pkg.jax2onnx.jax_traceback", value=f"{file}:1 (f)")
        nodes.append(node)
    info = [helper.make_tensor_value_info(f"v{index}", TensorProto.FLOAT, [2]) for index in (0, len(files))]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working folder with a program, and beside it something that is nobody's business."""
    work, private = tmp_path / "work", tmp_path / "private"
    for folder in (work / "src", private):
        folder.mkdir(parents=True)
    (work / "src" / "model.py").write_text("y = allowed_text(x)\n")
    (private / "settings.py").write_text("password = 'hidden_text'\n")
    (private / "key").write_text("hidden_text\n")
    (work / "key.txt").write_text("hidden_text\n")
    (work / "src" / "link.py").symlink_to(private / "settings.py")
    (work / "src" / "near.py").symlink_to("../../private/key")
    (work / "src" / "inner.py").symlink_to("../key.txt")
    (work / "src" / "folder").symlink_to(private)
    (work / "again").symlink_to("src")
    monkeypatch.chdir(work)
    monkeypatch.setenv("PWD", str(work))
    return tmp_path


def read_by_all(tmp_path, capsys, *options):
    """What every command that shows source shows of the model's."""
    shown = {}
    for name in ("blame", "blame --json", "locate", "locate --json", "report"):
        command, *words = name.split()
        operands = ["m.onnx", "n0"] if command == "locate" else ["m.onnx"]
        words += ["-o", "-"] if command == "report" else []
        shown[name] = tool(command, *operands, *words, *options)[0]
    other = named_sin("x")
    other.graph.node[0].op_type = "Cos"
    onnx.save(other, "other.onnx")
    shown["diff"] = tool("diff", "other.onnx", "m.onnx", *options, code=None)[0]
    message = tmp_path / "message.txt"
    message.write_text("Name:'n0' failed: node n0")
    shown["explain"] = run_main(capsys, "explain", "m.onnx", message, *options)[1]
    shown["explain --json"] = run_main(capsys, "explain", "m.onnx", message, "--json", *options)[1]
    return shown


OUTSIDE = [
    "{0}/private/settings.py",
    "../private/settings.py",
    "src/../../private/settings.py",
    "{0}/work/../private/settings.py",
    "{0}/work/src/../../private/settings.py",
    "src/link.py",
    "{0}/work/src/link.py",
    "src/near.py",
    "src/inner.py",
    "src/folder/settings.py",
    "again/folder/settings.py",
    "/proc/self/root{0}/private/settings.py",
    "/proc/self/cwd/../private/settings.py",
    "key.txt",
    "{0}/private/key",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_file_outside_the_working_folder_is_read(project, capsys, name):
    onnx.save(naming(name.format(project)), "m.onnx")
    for command, text in read_by_all(project, capsys).items():
        assert text and "hidden_text" not in text, command


@pytest.mark.parametrize("name", ["src/model.py", "./src//model.py", "{0}/work/src/model.py", "again/model.py"])
def test_files_of_the_working_folder_are_read(project, capsys, name):
    onnx.save(naming(name.format(project)), "m.onnx")
    for command, text in read_by_all(project, capsys).items():
        assert "allowed_text" in text, command


def test_the_working_folder_may_be_known_by_a_link(project, capsys, monkeypatch):
    (project / "alias").symlink_to("work")
    monkeypatch.setenv("PWD", str(project / "alias"))
    onnx.save(naming(f"{project}/alias/src/model.py"), "m.onnx")
    for command, text in read_by_all(project, capsys).items():
        assert "allowed_text" in text, command


@pytest.mark.parametrize(
    "options",
    [["--source", "{0}/private/settings.py"], ["--source-root", "{0}/private"], ["--source-root", "/"]],
)
def test_other_files_are_read_when_the_reader_says_so(project, capsys, options):
    onnx.save(naming(f"{project}/private/settings.py"), "m.onnx")
    options = [word.format(project) for word in options]
    for command, text in read_by_all(project, capsys, *options).items():
        assert "hidden_text" in text, command


def test_a_root_is_no_way_out_of_it(project, capsys):
    onnx.save(naming(f"{project}/work/src/folder/settings.py"), "m.onnx")
    for command, text in read_by_all(project, capsys, "--source-root", f"{project}/work/src").items():
        assert "hidden_text" not in text, command


def test_what_is_not_a_plain_file_is_not_opened(project, capsys):
    os.mkfifo("pipe.py")
    os.mkdir("folder.py")
    os.symlink("/dev/zero", "zero.py")
    for name in ("pipe.py", "folder.py", "zero.py", "/dev/zero", "a\0.py"):
        onnx.save(naming(name), "m.onnx")
        assert all(read_by_all(project, capsys).values())
    with open("huge.py", "wb") as stream:
        stream.truncate(1 << 40)
    onnx.save(naming("huge.py"), "m.onnx")
    assert all(read_by_all(project, capsys).values())


def test_what_was_read_and_left_out_is_listed(project):
    onnx.save(naming("src/model.py", "./src/model.py", f"{project}/private/settings.py"), "m.onnx")
    for words in (["blame", "m.onnx"], ["report", "m.onnx", "-o", "page.html"]):
        document = json.loads(tool(*words, "--json")[0])
        assert [os.path.normpath(name) for name in document["sources"]] == ["src/model.py"]
        assert document["sources_left_out"] == [f"{project}/private/settings.py"]
        out = tool(*words)[0]
        assert "--source-root" in out and "settings.py" in out
    assert "holds src/model.py" in tool("report", "m.onnx", "-o", "page.html")[0]
    document = json.loads(tool("locate", "m.onnx", "n1", "--json")[0])
    assert document["sources"] == ["./src/model.py"] and document["sources_left_out"] == []


def test_a_file_spelled_in_many_ways_is_in_the_page_once(project):
    names = [f"{'./' * count}src/model.py" for count in range(50)]
    onnx.save(naming(*names), "m.onnx")
    page = tool("report", "m.onnx", "-o", "-")[0]
    assert page.count("allowed_text") == 1


def test_explore_reads_where_it_may(project):
    onnx.save(naming(f"{project}/private/settings.py"), "m.onnx")
    assert "hidden_text" not in jax2onnx.explore("m.onnx").html
    assert "hidden_text" in jax2onnx.explore("m.onnx", source_roots=[project / "private"]).html
