"""Every line of a program that computes something is found, and every reader gives the same answer."""

from __future__ import annotations

import json

import onnx
import pytest
from line_programs import PROGRAMS
from reader_answers import READERS, Model, exported

from jax2onnx.__main__ import main
from jax2onnx._commands.command import OK


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("level", ["full", "compact"])
def test_every_line_is_found_by_all_readers(program, level, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = exported(program, tmp_path, level)
    lost = [line for line in program.marked("!") if not model.inspect(line)]
    lost += [line for line in program.marked(">") if not model.inspect(line, "--inclusive")]
    assert not lost, "\n".join(program.source.splitlines()[line - 1] for line in lost)
    disagreeing = model.disagreements()
    assert not disagreeing, "\n".join(disagreeing)


def test_the_readers_are_compared():
    """A reader that knew only primary lines would be found out."""
    assert {reader.__name__ for reader in READERS} == {"blame", "locate", "diff", "page", "origins"}


@pytest.mark.parametrize("program", PROGRAMS[::6], ids=lambda program: program.name)
def test_explain_and_profile_answer_with_the_same_lines(program, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = exported(program, tmp_path, "full")
    names = [node.name for node in onnx.load(model.path).graph.node]
    (tmp_path / "message.txt").write_text(" ".join(f"node '{name}'" for name in names))
    assert main(["explain", str(model.path), str(tmp_path / "message.txt"), "--json"]) == OK
    found = {item["node"]: item for item in json.loads(capsys.readouterr().out)["found"]}
    for name in names:
        assert {(row["line"], row["relation"]) for row in model.rows_of(found[name]["lines"])} == model.lines_of(name)
    assert main(["profile", str(model.path), "--runs", "1", "--json"]) == OK
    profile = json.loads(capsys.readouterr().out)
    timed = {row["line"]["line"] for row in profile["lines"] if isinstance(row["line"], dict) and row["us"] > 0}
    assert timed, "the time is somewhere"
    assert timed <= {line for line in range(1, 200) if model.inspect(line, "--self")}
    shares = sum(row["share"] for row in profile["lines"])
    assert abs(shares - 1) < 1e-6, "each microsecond once"
    line = max(timed)
    assert main(["profile", str(model.path), "--runs", "1", "--line", f"{model.file}:{line}", "--json"]) == OK
    chosen = json.loads(capsys.readouterr().out)
    assert line in {row["line"]["line"] for row in chosen["lines"] if isinstance(row["line"], dict)}


def test_models_are_compared_by_every_item(tmp_path, monkeypatch):
    """The comparison itself: an answer that lacks an item is a disagreement."""
    monkeypatch.chdir(tmp_path)
    model = exported(PROGRAMS[3], tmp_path, "full")
    line = PROGRAMS[3].marked("!")[0]
    answer = model.inspect(line, "--inclusive")
    assert answer and isinstance(model, Model)
    model._inspected[line, ("--inclusive",)] = set()
    assert model.disagreements()
