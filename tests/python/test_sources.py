"""Is this still the source? Digests and texts that a model holds, in every reader; notebooks."""

from __future__ import annotations

import hashlib
import json
import linecache

import jax.numpy as jnp
import onnx
import pytest

import jax2onnx
from jax2onnx import _core, to_onnx
from jax2onnx.__main__ import main
from jax2onnx._commands.command import OK

PROGRAM = "import jax.numpy as jnp\n\n\ndef wave(x):\n    y = jnp.sin(x)\n    return y * 3.0\n"
CHANGED = "has changed since the export"


def compiled(text, name):
    space: dict = {}
    exec(compile(text, name, "exec"), space)
    return space["wave"]


def entry(model, key):
    found = [entry for entry in model.metadata_props if entry.key == f"pkg.jax2onnx.{key}"]
    return found[0] if found else model.metadata_props.add(key=f"pkg.jax2onnx.{key}")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model whose file is in the working folder, and its digest in the model."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "wave.py"
    source.write_text(PROGRAM)
    made = to_onnx(compiled(PROGRAM, str(source)), [(2, 3)], stacktrace_metadata="full")
    entry(made, "sources").value = f"{source}\t{hashlib.sha256(PROGRAM.encode()).hexdigest()}"
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def tool(*words):
    code, output, errors = _core.tool_output(["j2o", *map(str, words)])
    assert code == 0, errors.decode()
    return output.decode()


READERS = [("blame",), ("locate", "Sin_0"), ("blame", "--json"), ("locate", "Sin_0", "--json"), ("inspect", "--json")]


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_readers_say_when_the_source_is_another_one(model, command):
    def answer():
        text = tool(command[0], model, *command[1:])
        if "--json" in command:
            return [name.rpartition("/")[2] for name in json.loads(text)["sources_changed"]]
        return ["wave.py"] if f"wave.py {CHANGED}" in text else []

    assert answer() == []
    model.with_name("wave.py").write_text("# a new line\n" + PROGRAM)
    assert answer() == ["wave.py"]


def test_the_page_and_explain_say_it_too(model, tmp_path, capsys):
    (tmp_path / "message.txt").write_text("node 'Sin_0' failed")
    assert main(["explain", str(model), "message.txt"]) == OK
    assert CHANGED not in capsys.readouterr().err
    assert files_of(tool("report", model, "-o", "-"))["wave.py"][4] == 0
    model.with_name("wave.py").write_text("# a new line\n" + PROGRAM)
    assert main(["explain", str(model), "message.txt"]) == OK
    assert CHANGED in capsys.readouterr().err
    assert files_of(tool("report", model, "-o", "-"))["wave.py"][4] == 1


def files_of(page):
    data = json.loads(page.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    return {data["texts"][row[0]].rpartition("/")[2]: row for row in data["files"]}


def test_the_text_that_the_model_holds_is_shown(model, tmp_path, capsys):
    path = str(tmp_path / "wave.py")
    made = onnx.load(model)
    entry(made, f"source:{path}").value = PROGRAM
    onnx.save(made, model)
    (tmp_path / "wave.py").unlink()
    assert "y = jnp.sin(x)" in tool("locate", model, "Sin_0")
    assert "return y * 3.0" in tool("blame", model)
    assert json.loads(tool("blame", model, "--json"))["sources_changed"] == []
    assert files_of(tool("report", model, "-o", "-"))["wave.py"][2] == PROGRAM.splitlines()
    (tmp_path / "message.txt").write_text("node 'Sin_0' failed")
    assert main(["explain", str(model), "message.txt"]) == OK
    assert "y = jnp.sin(x)" in capsys.readouterr().out
    assert PROGRAM not in tool("inspect", model), "a text is no line of a summary"


def test_a_digest_is_sha_256(model, tmp_path):
    """Of texts on both sides of every border of a block."""
    made, source = onnx.load(model), tmp_path / "wave.py"
    for size in (1, 54, 55, 56, 63, 64, 65, 119, 120, 1000):
        text = ("#" * (size - 1) + "\n").encode()
        source.write_bytes(text)
        entry(made, "sources").value = f"{source}\t{hashlib.sha256(text).hexdigest()}"
        onnx.save(made, model)
        assert json.loads(tool("inspect", model, "--json"))["sources_changed"] == [], size


def test_explore_shows_the_code_of_a_notebook(tmp_path, monkeypatch):
    """A cell is in no file; Python's linecache has it."""
    name = "/tmp/ipykernel_17/2718281828.py"
    monkeypatch.setitem(linecache.cache, name, (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), name))
    made = to_onnx(compiled(PROGRAM, name), [(2, 3)], stacktrace_metadata="compact")
    onnx.save(made, tmp_path / "cell.onnx")
    for model in (made, tmp_path / "cell.onnx", made.SerializeToString()):
        assert files_of(jax2onnx.explore(model).html)["2718281828.py"][2] == PROGRAM.splitlines()
    assert "cell.onnx" in repr(jax2onnx.explore(tmp_path / "cell.onnx"))


def test_explore_reads_no_file_that_is_not_allowed(tmp_path, monkeypatch):
    """Of linecache only what is in no file counts: a model may name any module of this process."""
    linecache.getlines(jnp.__file__)
    made = to_onnx(
        compiled(PROGRAM, jnp.__file__.replace("site-packages", "packages")), [(2, 3)], stacktrace_metadata="full"
    )
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    linecache.getlines(str(secret))
    named = to_onnx(compiled(PROGRAM, str(secret)), [(2, 3)], stacktrace_metadata="full")
    for model in (made, named):
        assert "password" not in jax2onnx.explore(model).html
