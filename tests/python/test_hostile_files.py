"""Files that somebody made to harm who reads them: what reaches the terminal, what is read, what it costs."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import sys
import time

import numpy as np
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
    assert "includes src/model.py" in tool("report", "m.onnx", "-o", "page.html")[0]
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


# ---- what reading costs ----


def field(number, payload):
    """A protobuf field of bytes."""
    size, length = len(payload), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + payload


def raw_model(*nodes, rest=b""):
    return b"\x08\x0a" + field(7, b"".join(field(1, node) for node in nodes)) + rest


def crowded_names(count):
    """Names of 16 bytes that a plain multiplicative hash, the one that this project had, puts on one place."""
    odd, other, mask = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, (1 << 64) - 1
    inverse = pow(odd, -1, 1 << 64)

    def mix(a, b):
        mixed = ((a ^ (b * odd & mask)) * other) & mask
        mixed ^= mixed >> 32
        mixed = mixed * other & mask
        return mixed ^ (mixed >> 29)

    for first in range(count):
        second = (mix(odd ^ 16, first) ^ 12345) * inverse & mask
        yield first.to_bytes(8, "little") + second.to_bytes(8, "little")


def seconds(path, command="inspect"):
    start = time.process_time()
    tool(command, path)
    return time.process_time() - start


def test_chosen_names_take_no_longer_than_others(tmp_path):
    chosen, others = tmp_path / "chosen.onnx", tmp_path / "others.onnx"
    chosen.write_bytes(raw_model(*(field(2, name) for name in crowded_names(100_000))))
    others.write_bytes(raw_model(*(field(2, f"{index:016}".encode()) for index in range(100_000))))
    assert seconds(chosen) < 3 * seconds(others) + 1


def table_of_a_chain(length, origins):
    """A table whose last origins have traces of as many lines as it has rows, and a callsite that is none of them."""
    rows = "".join(f"1 1 1 {row}\n" for row in range(1, length))
    ends = "".join(f"1 {length - index} c2\n" for index in range(origins))
    return (
        "j2o origins 1\nfiles 1\n0 model.py\nnames 2\nf\nelsewhere:7\nframes 0\ninner 0\ncalls 0\n"
        f"outer {length}\n1 1 1 0\n{rows}ways 1\n0 0\norigins {origins}\n{ends}"
    )


def compact_model(table, nodes, origins):
    entries = (field(9, field(1, b"j2o") + field(2, b"%d" % (1 + index % origins))) for index in range(nodes))
    entry = field(1, b"pkg.jax2onnx.provenance") + field(2, table.encode())
    return raw_model(*entries, rest=field(14, entry))


def test_expand_says_how_large_the_result_would_be(tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    path.write_bytes(compact_model(table_of_a_chain(8000, 1), 20_000, 1))
    assert path.stat().st_size < 500_000
    start = time.process_time()
    _, err = tool("expand", path, "-o", out, code=1)
    assert time.process_time() - start < 5
    assert "would take 2." in err and "GiB" in err and "--limit=" in err and not out.exists()
    path.write_bytes(compact_model(table_of_a_chain(800, 1), 2000, 1))
    assert "--limit" in tool("expand", path, "-o", out, "--limit", "1M", code=1)[1]
    allowed = re.search(r"--limit=\w+", tool("expand", path, "-o", out, "--limit=1M", code=1)[1])[0]
    tool("expand", path, "-o", out, allowed)
    assert out.stat().st_size > 20_000_000


def test_report_says_how_large_the_page_would_be(tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "page.html"
    path.write_bytes(compact_model(table_of_a_chain(2000, 1000), 1000, 1000))
    _, err = tool("report", path, "-o", out, "--limit=1M", code=1)
    assert ("would take" in err or "take more than" in err) and "--limit" in err and not out.exists()
    tool("report", path, "-o", out)


def test_traces_are_not_written_out_without_end(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(compact_model(table_of_a_chain(20_000, 20_000), 20_000, 20_000))
    for command in ("inspect", "blame", "report"):
        start = time.process_time()
        _, err = tool(command, path, *(["-o", tmp_path / "page.html"] if command == "report" else []), code=1)
        assert "take more than" in err and "--limit" in err
        assert time.process_time() - start < 10


def test_a_trace_that_all_nodes_share_is_read_once(tmp_path):
    def took(nodes):
        path = tmp_path / "m.onnx"
        path.write_bytes(compact_model(table_of_a_chain(20_000, 1), nodes, 1))
        return min(seconds(path, "blame") for _ in range(2))

    few, many = took(10), took(20_000)
    assert many < few + 2, f"{few} s for 10 nodes, {many} s for 20,000"


@pytest.mark.parametrize("text", ["0", "x", "-1", "5T", "99999999999G", ""])
def test_a_limit_is_a_size(tmp_path, text):
    assert tool("expand", "m.onnx", "-o", "x", "--limit", text, code=2)[1]


def test_a_number_without_a_table_never_becomes_a_row_of_one(tmp_path):
    model = hostile("")
    model.graph.node.append(helper.make_node("Sin", ["w"], ["other"], name="stray"))
    model.graph.node[1].metadata_props.add(key="j2o", value="1")
    onnx.save(model, tmp_path / "m.onnx")
    tool("compact", tmp_path / "m.onnx", "-o", tmp_path / "c.onnx")
    stray = json.loads(tool("inspect", tmp_path / "c.onnx", "--json", "--name", "stray")[0])["nodes"][0]
    assert [entry["key"] for entry in stray["metadata"]] == ["j2o"]


# ---- the same, or not, or not compared ----

INT4, UINT4 = TensorProto.INT4, TensorProto.UINT4
FIELDS = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.STRING: "string_data",
}
INTEGERS = (
    TensorProto.INT32,
    TensorProto.INT16,
    TensorProto.UINT16,
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.BOOL,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.FLOAT8E4M3FN,
    INT4,
    UINT4,
)
FIELDS |= dict.fromkeys(INTEGERS, "int32_data")
COUNT = 3000


def numbers(dtype, changed):
    """As many as the typed field of a tensor of COUNT elements holds; one of them, far behind, may be another."""
    field = FIELDS[dtype]
    count = COUNT * 2 if dtype in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else COUNT
    if dtype in (INT4, UINT4):
        count = COUNT // 2
    values = [index % 2 for index in range(count)]
    values[-3] = 1 - values[-3] if changed else values[-3]
    if field == "string_data":
        return [f"text {value}".encode() for value in values]
    return [float(value) for value in values] if field in ("float_data", "double_data") else values


def typed(dtype, changed, form):
    """The bytes of a TensorProto with its elements in a typed field."""
    tensor = TensorProto(name="w", data_type=dtype, dims=[COUNT])
    values = numbers(dtype, changed)
    name = FIELDS[dtype]
    if form == "packed" or dtype == TensorProto.STRING:
        getattr(tensor, name).extend(values)
        return tensor.SerializeToString()
    head = tensor.SerializeToString()
    if form == "chunks":
        halves = TensorProto(**{name: values[:1000]}), TensorProto(**{name: values[1000:]})
        return head + halves[0].SerializeToString() + halves[1].SerializeToString()
    number = TensorProto.DESCRIPTOR.fields_by_name[name].number
    if name in ("float_data", "double_data"):
        kind, code = (5, "<f") if name == "float_data" else (1, "<d")
        return head + b"".join(bytes([number << 3 | kind]) + struct.pack(code, value) for value in values)
    return head + b"".join(bytes([number << 3, value]) for value in values)


def raw(dtype, changed):
    values = numbers(dtype, changed)
    code = {"float_data": "<f4", "double_data": "<f8", "int64_data": "<i8", "uint64_data": "<u8"}.get(FIELDS[dtype])
    widths = {TensorProto.INT32: 4, TensorProto.UINT32: 4, TensorProto.INT16: 2, TensorProto.UINT16: 2}
    widths |= {TensorProto.FLOAT16: 2, TensorProto.BFLOAT16: 2}
    if code is None or dtype == TensorProto.UINT32:
        code = f"<u{widths.get(dtype, 1)}"
    data = np.array(values, code).tobytes()
    return TensorProto(name="w", data_type=dtype, dims=[COUNT], raw_data=data).SerializeToString()


def external(dtype, changed, folder, location="data.bin", offset=64, with_length=True):
    data = TensorProto.FromString(raw(dtype, changed)).raw_data
    (folder / "data.bin").write_bytes(b"\7" * offset + data)
    tensor = TensorProto(name="w", data_type=dtype, dims=[COUNT], data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset)} | ({"length": str(len(data))} if with_length else {})
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor.SerializeToString()


def using(path, tensor, in_attribute=False):
    """A model with one node that uses the tensor, of which only the bytes are known."""
    path.parent.mkdir(exist_ok=True)
    attribute = field(1, b"value") + field(5, tensor) + b"\xa0\x01\x04"
    node = (
        field(2, b"y") + field(4, b"Constant") + field(5, attribute)
        if in_attribute
        else (field(1, b"w") + field(2, b"y") + field(4, b"Identity"))
    )
    graph = field(1, node) + (b"" if in_attribute else field(5, tensor)) + field(12, field(1, b"y"))
    path.write_bytes(b"\x08\x0a" + field(7, graph))
    return path


FORMS = ("raw", "packed", "unpacked", "chunks", "external")


def stored_as(form, dtype, changed, folder):
    folder.mkdir(exist_ok=True)
    if form == "raw":
        return raw(dtype, changed)
    return external(dtype, changed, folder) if form == "external" else typed(dtype, changed, form)


STORED = [
    pytest.param(dtype, form, id=f"{TensorProto.DataType.Name(dtype)}-{form}")
    for dtype in FIELDS
    for form in FORMS
    if dtype != TensorProto.STRING or form == "packed"
]


@pytest.mark.parametrize(("dtype", "form"), STORED)
def test_weights_are_compared_in_every_form(tmp_path, dtype, form):
    a, b = tmp_path / "a", tmp_path / "b"
    for in_attribute in (False, True):
        plain = "packed" if dtype == TensorProto.STRING else "raw"
        first = using(a / "m.onnx", stored_as(plain, dtype, False, a), in_attribute)
        same = using(b / "m.onnx", stored_as(form, dtype, False, b), in_attribute)
        assert tool("diff", first, same, "--weights")[0].startswith("the same")
        assert json.loads(tool("diff", first, same, "--weights", "--json")[0])["same"] is True
        other = using(b / "m.onnx", stored_as(form, dtype, True, b), in_attribute)
        assert "differ" in tool("diff", first, other, "--weights", code=1)[0] or in_attribute
        assert json.loads(tool("diff", other, first, "--weights", "--json", code=1)[0])["same"] is False


def test_what_cannot_be_read_is_not_called_the_same(tmp_path):
    dtype, a, b = TensorProto.FLOAT, tmp_path / "a", tmp_path / "b"
    a.mkdir(), b.mkdir()
    (tmp_path / "secret.bin").write_bytes(external(dtype, False, a) and (a / "data.bin").read_bytes())
    good = using(a / "m.onnx", external(dtype, False, a))
    (b / "link.bin").symlink_to("../secret.bin")
    cases = [
        external(dtype, False, b, location="missing.bin"),
        external(dtype, False, b, location="../secret.bin"),
        external(dtype, False, b, location=str(tmp_path / "secret.bin")),
        external(dtype, False, b, location="link.bin"),
        external(dtype, False, b, location=""),
        external(dtype, False, b, location="data.bin\0x"),
        external(dtype, False, b, offset=64).replace(b"\x0264", b"\x0299"),
        external(dtype, False, b).replace(b"12000", b"11999"),
        raw(dtype, False) + TensorProto(float_data=[1.0]).SerializeToString(),
        raw(dtype, False) + TensorProto(int32_data=[1]).SerializeToString(),
        TensorProto(name="w", data_type=dtype, dims=[COUNT]).SerializeToString() + field(5, b"\1" * COUNT),
    ]
    for tensor in cases:
        bad = using(b / "m.onnx", tensor)
        for pair in ((good, bad), (bad, good), (bad, bad)):
            out, _ = tool("diff", *pair, "--weights", code=2)
            assert "not compared" in out and "the same" not in out, tensor[:80]
            document = json.loads(tool("diff", *pair, "--weights", "--json", code=2)[0])
            assert document["same"] is None and document["not_compared"][0]["tensor"] == "w"


def test_without_weights_the_large_ones_are_told(tmp_path):
    first = using(tmp_path / "a" / "m.onnx", raw(TensorProto.FLOAT, False))
    other = using(tmp_path / "b" / "m.onnx", raw(TensorProto.FLOAT, True))
    out, _ = tool("diff", first, other)
    assert "the same" not in out and "not compared: the contents of 1 tensor over 4 KiB" in out
    assert json.loads(tool("diff", first, other, "--json")[0])["same"] is None


def changed_models():
    """Pairs that differ in one thing that a comparison might overlook."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Sin", ["x"], ["p"]), helper.make_node("Cos", ["x"], ["q"])],
        "body",
        [],
        [value("p", 1, [2]), value("q", 1, [2])],
    )
    call = helper.make_node("f", ["x"], ["s", "t"], domain="d")
    node = helper.make_node("If", ["c"], ["y", "z"], then_branch=body, else_branch=body)
    graph = helper.make_graph(
        [call, node, helper.make_node("Add", ["y", "s"], ["u"])],
        "g",
        [value("c", 9, []), value("x", 1, [2])],
        [value("u", 1, [2]), value("z", 1, [2])],
        [helper.make_tensor("unused", 1, [1], [1.0])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("d", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    inner = [helper.make_node("Neg", ["i"], ["j"]), helper.make_node("Abs", ["i"], ["k"])]
    model.functions.append(helper.make_function("d", "f", ["i"], ["j", "k"], inner, opsets[:1], ["alpha"]))

    def but(change):
        other = onnx.ModelProto.FromString(model.SerializeToString())
        change(other)
        return pytest.param(model, other, id=change.__name__)

    def swapped_outputs_of_a_body(m):
        outputs = m.graph.node[1].attribute[0].g.output
        outputs.extend([outputs[0]])
        del outputs[0]

    def swapped_outputs_of_a_function(m):
        m.functions[0].output[:] = ["k", "j"]

    def an_attribute_of_a_function(m):
        m.functions[0].attribute[:] = ["beta"]

    def a_default_of_a_function(m):
        del m.functions[0].attribute[:]
        m.functions[0].attribute_proto.append(helper.make_attribute("alpha", 1.0))

    def a_weight_that_nothing_reads(m):
        m.graph.initializer[0].float_data[0] = 2.0

    def a_sparse_tensor(m):
        sparse = m.graph.sparse_initializer.add(dims=[4])
        sparse.values.CopyFrom(helper.make_tensor("sp", 1, [1], [1.0]))

    def a_type_that_is_no_tensor(m):
        m.graph.value_info.add(name="u").type.sequence_type.elem_type.tensor_type.elem_type = 1

    def a_list_of_tensors(m):
        m.graph.node[2].attribute.append(helper.make_attribute("ts", [helper.make_tensor("t", 1, [1], [1.0])]))

    def another_domain_s_version(m):
        m.opset_import[1].version = 2

    def the_version(m):
        m.opset_import[0].version = 19

    def an_input_of_another_graph(m):
        m.graph.node[1].attribute[0].g.node[0].input[0] = "c"

    def order_of_inputs(m):
        m.graph.node[2].input[:] = ["s", "y"]

    def order_of_outputs(m):
        outputs = list(m.graph.output)
        del m.graph.output[:]
        m.graph.output.extend(outputs[::-1])

    def training(m):
        m.training_info.add().initialization.name = "t"

    changes = [value for value in locals().values() if callable(value)]
    skipped = ("make_tensor_value_info", "but")
    return [but(change) for change in changes if change.__name__ not in skipped]


@pytest.mark.parametrize(("first", "second"), changed_models())
def test_models_that_differ_are_never_the_same(tmp_path, first, second):
    onnx.save(first, tmp_path / "a.onnx")
    onnx.save(second, tmp_path / "b.onnx")
    for pair in (("a", "b"), ("b", "a")):
        out, _ = tool("diff", *(tmp_path / f"{name}.onnx" for name in pair), "--weights", code=1)
        assert "the same" not in out
    assert "the same" in tool("diff", tmp_path / "a.onnx", tmp_path / "a.onnx", "--weights")[0]


def test_one_large_tensor_of_many_nodes_is_read_once(tmp_path):
    data = np.zeros(4 << 20, np.uint8).tobytes()
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[len(data)], raw_data=data).SerializeToString()
    nodes = b"".join(field(1, field(1, b"w") + field(2, b"v%d" % n) + field(4, b"Sin")) for n in range(20_000))
    for name in "ab":
        (tmp_path / f"{name}.onnx").write_bytes(b"\x08\x0a" + field(7, nodes + field(5, tensor)))
    start = time.process_time()
    tool("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "--weights")
    assert time.process_time() - start < 5
