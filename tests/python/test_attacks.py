"""Attacks as classes: each way to name a file, each thing an output can be, each table, each command that prints."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from safetensors_files import write_safetensors
from test_hostile_files import OBEYED, crowded_names, field, hostile, naming, raw_model, tool

SECRET = b"hidden bytes " * 100
ESCAPES = "\x1b]8;;https://example.org\x07 \x1b[31m \x9d0;title\x9c \x85 \u202e \u2067 \u200e \x7f \r \x08 x\ny"


@pytest.fixture(autouse=True)
def in_time():
    """A pipe that is opened would be waited for without end."""

    def too_long(*_):
        raise TimeoutError("a command waits for something")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# ---- files that a model names ----

# How somebody else's file can be spelled; {0} is the folder around. A second name (hard link) of a file is the file.
WAYS_OUT = {
    "absolute": "{0}/private/key.bin",
    "double slashes": "//{0}//private//key.bin",
    "upwards": "../private/key.bin",
    "upwards from a folder": "inner/../../private/key.bin",
    "a link": "link.bin",
    "a link in a folder": "inner/link.bin",
    "a linked folder": "folder/key.bin",
    "a linked folder inside one": "inner/folder/key.bin",
    "a link to a link": "twice.bin",
    "a circle of links": "circle.bin",
    "the process's folder": "/proc/self/cwd/../private/key.bin",
    "the process's root": "/proc/self/root{0}/private/key.bin",
    "an open file": "/proc/self/fd/{1}",
    "the environment": "/proc/self/environ",
    "a pipe": "pipe.bin",
    "a folder": "inner",
    "a folder, with a slash": "inner/",
    "a device": "/dev/zero",
    "a linked device": "zero.bin",
    "nothing": "",
    "dots": "././.",
    "a NUL": "key.bin\0.txt",
    "no UTF-8": "key\udcff.bin",
    "longer than a path may be": "a/" * 5000 + "key.bin",
}


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with every way out of it."""
    folder, private = tmp_path / "work", tmp_path / "private"
    for made in (folder / "inner", private):
        made.mkdir(parents=True)
    (private / "key.bin").write_bytes(SECRET)
    for here, up in ((folder, ".."), (folder / "inner", "../..")):
        (here / "link.bin").symlink_to(f"{up}/private/key.bin")
        (here / "folder").symlink_to(f"{up}/private")
    (folder / "twice.bin").symlink_to("link.bin")
    (folder / "circle.bin").symlink_to("circle.bin")
    (folder / "zero.bin").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.bin")
    monkeypatch.setenv("SECRET", SECRET.decode())
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    return tmp_path


def spelled(way, work, opened):
    return WAYS_OUT[way].format(work, opened.fileno())


def external_model(location, path="m.onnx"):
    size = len(SECRET) // 4
    entries = {"location": location, "offset": "0", "length": str(size * 4)}
    external = b"".join(
        field(13, field(1, key.encode()) + field(2, value.encode(errors="surrogateescape")))
        for key, value in entries.items()
    )
    head = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size]).SerializeToString()
    node = field(1, b"w") + field(2, b"y") + field(4, b"Identity")
    graph = field(1, node) + field(5, head + b"\x70\x01" + external) + field(12, field(1, b"y"))
    with open(path, "wb") as stream:
        stream.write(b"\x08\x0a" + field(7, graph) + field(8, b"\x10\x14"))


READERS = [
    "inspect m --full",
    "inspect m --json",
    "blame m",
    "locate m y --full",
    "diff m o --json",
    "stats m",
    "stats m --json",
    "text m",
    "check m",
    "passes m",
    "passes m -o out",
    "strip m -o out",
    "strip m -o out --all",
    "compact m -o out",
    "expand m -o out",
    "split m -o out --sidecar side",
    "graft m o -o out",
    "fill m --from weights.safetensors -o out",
    "report m -o out",
    "report m -o -",
]


@pytest.mark.parametrize("way", WAYS_OUT)
def test_no_command_reads_the_data_that_a_model_names(work, way):
    write_safetensors(work / "work" / "weights.safetensors", {"w": np.zeros(len(SECRET) // 4, np.float32)})
    with open(work / "private" / "key.bin", "rb") as opened:
        external_model(spelled(way, work, opened))
        external_model("weights.safetensors", "o.onnx")
        files = {"m": "m.onnx", "o": "o.onnx", "out": "out.bin", "side": "side.j2o"}
        for command in READERS:
            shown = "".join(tool(*(files.get(word, word) for word in command.split()), code=None))
            assert "hidden bytes" not in shown, command
            for written in ("out.bin", "side.j2o"):
                if os.path.exists(written):
                    with open(written, "rb") as stream:
                        assert b"hidden bytes" not in stream.read(), command
                    os.remove(written)
        for pair in (("m.onnx", "o.onnx"), ("o.onnx", "m.onnx"), ("m.onnx", "m.onnx")):
            shown, _ = tool("diff", *pair, "--weights", "--json", code=2)
            assert json.loads(shown)["same"] is None, "what was not read is not called the same"
    assert (work / "private" / "key.bin").read_bytes() == SECRET


@pytest.mark.parametrize("way", WAYS_OUT)
def test_no_command_shows_the_source_that_a_model_names(work, way):
    with open(work / "private" / "key.bin", "rb") as opened:
        name = spelled(way, work, opened).replace("\udcff", "ÿ")
        onnx.save(naming(name), "m.onnx")
        for words in (["blame", "m.onnx"], ["locate", "m.onnx", "n0"], ["report", "m.onnx", "-o", "-"]):
            for more in ([], ["--json"]):
                assert "hidden bytes" not in "".join(tool(*words, *more, code=None)), words


@pytest.mark.parametrize("way", WAYS_OUT)
def test_an_index_of_weights_is_no_way_out(work, way):
    names = {"w": np.frombuffer(SECRET, np.float32)}
    write_safetensors(work / "private" / "key.bin", names)
    hidden = (work / "private" / "key.bin").read_bytes()
    with open(work / "private" / "key.bin", "rb") as opened:
        location = spelled(way, work, opened).replace("\udcff", "ÿ")
        (work / "work" / "inner" / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": {"w": location}})
        )
        external_model("weights-to-come")
        _, err = tool("fill", "m.onnx", "--from", "inner", "-o", "out.onnx", code=1)
        assert err and not os.path.exists("out.onnx")
    assert (work / "private" / "key.bin").read_bytes() == hidden


# ---- outputs ----

WRITERS = ["strip", "compact", "expand", "report", "passes", "split", "graft"]


def write(command, model, out):
    operands = [model, model] if command == "graft" else [model]
    more = ["--sidecar", "side.j2o"] if command == "split" else []
    return tool(command, *operands, *more, "-o", out, code=None)


@pytest.fixture
def traced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(naming("a.py", "b.py"), "m.onnx")
    return tmp_path


@pytest.mark.parametrize("command", WRITERS)
def test_outputs_that_cannot_be_are_told_and_leave_nothing(traced, command):
    os.mkdir("folder")
    os.symlink("one", "two"), os.symlink("two", "one")
    (traced / "locked").write_text("old")
    (traced / "locked").chmod(0o400)
    (traced / "file").write_text("old")
    before = sorted(os.listdir())
    for out in ("folder", "one", "missing/m.onnx", "locked", "file/m.onnx", "/dev/full", "m\udcff" * 200):
        _, err = write(command, "m.onnx", out)
        assert err.startswith("j2o: ") and err.count("\n") == 1, (out, err)
        assert [name for name in sorted(os.listdir()) if name != "side.j2o"] == before, out
        assert (traced / "locked").read_text() == (traced / "file").read_text() == "old"
    assert not os.listdir("folder")


@pytest.mark.parametrize("command", [name for name in WRITERS if name != "report"])
def test_the_output_may_be_the_input(traced, command):
    assert write(command, "m.onnx", "/dev/null")[1] == "" and os.path.exists("/dev/null")
    write(command, "m.onnx", "other.onnx")
    write(command, "m.onnx", "m.onnx")
    assert (traced / "m.onnx").read_bytes() == (traced / "other.onnx").read_bytes()


# ---- the terminal ----

PRINTERS = [
    "check a",
    "check a --json",
    "passes a",
    "graft a b --map",
    "graft a b --map --json",
    "stats a --provenance",
    "stats a --provenance --json",
    "inspect a --original b --full",
    "inspect a --line {0}:3",
    "inspect a --module {0}",
    "inspect a --op {0}",
    "blame a {0}.py",
    "blame a --module {0} --inclusive",
    "locate a {0}",
    "locate a --line f{0}:3",
    "diff a b --weights",
    "diff a b --line {0}:3",
    "diff a {0}",
    "text a",
    "convert a -o {0}/x",
    "convert {0} -o x",
    "passes a -o {0}/x",
    "passes a --pass {0}",
    "strip a -o {0}/x",
    "compact a -o {0}/x",
    "expand a -o {0}/x --limit {0}",
    "split a -o {0}/x",
    "join a --sidecar {0}",
    "fill a --from {0} -o x",
    "fill a --from b -o x",
    "report a -o {0}/x",
    "report a -o - --profile b --json",
    "help {0}",
    "completion {0}",
    "targets {0}",
    "targets --{0}",
    "{0}",
]


@pytest.mark.parametrize("command", PRINTERS)
def test_nothing_that_a_terminal_obeys_is_printed(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    onnx.save(hostile(ESCAPES), "a.onnx")
    onnx.save(hostile(ESCAPES + "!"), "b.onnx")
    files = {"a": "a.onnx", "b": "b.onnx"}
    words = [files.get(word, word).replace("{0}", f"name{ESCAPES}") for word in command.split()]
    out, err = tool(*words, code=None)
    assert out or err
    assert not OBEYED.search(out + err), repr(OBEYED.search(out + err))
    if "--json" in words and out:
        json.loads(out)


# ---- tables ----

COUNT = 20_000
TABLES = {
    "outputs": lambda name: field(1, field(2, name)),
    "inputs of nodes": lambda name: field(1, field(1, name)),
    "names of nodes": lambda name: field(1, field(3, name)),
    "operators": lambda name: field(1, field(4, name)),
    "domains": lambda name: field(1, field(7, name)),
    "attributes": lambda name: field(1, field(5, field(1, name))),
    "metadata": lambda name: field(1, field(9, field(1, name))),
    "initializers": lambda name: field(5, field(8, name)),
    "inputs of the graph": lambda name: field(11, field(1, name)),
    "outputs of the graph": lambda name: field(12, field(1, name)),
    "types": lambda name: field(13, field(1, name)),
    "callsites": lambda name: field(1, field(9, field(1, b"pkg.jax2onnx.callsite") + field(2, name.hex().encode()))),
}


@pytest.mark.parametrize("table", TABLES)
def test_chosen_names_cost_no_more_in_any_table(tmp_path, table):
    def took(names):
        path = tmp_path / "m.onnx"
        path.write_bytes(b"\x08\x0a" + field(7, b"".join(map(TABLES[table], names))))
        start = time.process_time()
        for words in (["stats", path], ["diff", path, path], ["check", path]):
            tool(*words, code=None)
        return time.process_time() - start

    others = took(f"{index:016}".encode() for index in range(COUNT))
    assert took(crowded_names(COUNT)) < 3 * others + 1


def test_chosen_names_of_functions_and_operator_sets(tmp_path):
    for head in (25, 8):
        path = tmp_path / "m.onnx"

        def named(name, head=head):
            payload = field(1, name)
            return (b"\xca\x01" + field(25, payload)[1:]) if head == 25 else field(head, payload)

        for names in (crowded_names(5000), (f"{index:016}".encode() for index in range(5000))):
            path.write_bytes(raw_model() + b"".join(map(named, names)))
            start = time.process_time()
            tool("inspect", path, code=None)
            assert time.process_time() - start < 5


def test_the_helpers_are_what_they_say(tmp_path):
    """The models above are read as models: an attack that no reader gets to shows nothing."""
    external_model("data.bin", tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert model.graph.initializer[0].external_data[0].value == "data.bin"
    assert model.graph.node[0].op_type == "Identity"
