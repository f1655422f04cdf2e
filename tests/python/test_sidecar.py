"""j2o split and join: provenance in a file of its own."""

import json
import os
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax import lax

from jax2onnx import _core, to_onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIGHT = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)


def fn(x):
    def body(state, row):
        state = jnp.tanh(state * 0.5 + row)
        return state, state

    return lax.scan(body, x[0], x)[1] @ WEIGHT


def exported(path, level="full", function=fn):
    to_onnx(function, [(4, 64)], return_mode="file", output_path=str(path), stacktrace_metadata=level)
    return path


def j2o(*words):
    code, output, errors = _core.tool_output(["j2o", *map(str, words)])
    return code, output.decode(), errors.decode()


@pytest.fixture
def folder(tmp_path):
    exported(tmp_path / "model.onnx")
    code, output, errors = j2o("split", tmp_path / "model.onnx", "-o", tmp_path / "small.onnx")
    assert code == 0 and "small.j2o" in output, errors
    return tmp_path


@pytest.mark.parametrize("level", ["minimal", "full", "compact"])
def test_join_gives_the_bytes_back(tmp_path, level):
    exported(tmp_path / "model.onnx", level)
    sidecar = tmp_path / "lines.j2o"
    assert j2o("split", tmp_path / "model.onnx", "-o", tmp_path / "small.onnx", "--sidecar", sidecar)[0] == 0
    assert j2o("join", tmp_path / "small.onnx", "--sidecar", sidecar, "-o", tmp_path / "again.onnx")[0] == 0
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()


def test_other_peoples_entries_stay_in_their_places(tmp_path):
    model = onnx.load(exported(tmp_path / "model.onnx"))
    node = model.graph.node[0]
    kept = [(entry.key, entry.value) for entry in node.metadata_props]
    del node.metadata_props[:]
    for number, (key, value) in enumerate(kept):
        node.metadata_props.add(key=f"somebody.{number}", value="kept")
        node.metadata_props.add(key=key, value=value)
    node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="theirs")
    model.graph.initializer[0].metadata_props.add(key="pkg.jax2onnx.module", value="layer.kernel")
    onnx.save(model, tmp_path / "model.onnx")
    assert j2o("split", tmp_path / "model.onnx", "-o", tmp_path / "small.onnx")[0] == 0
    small = onnx.load(tmp_path / "small.onnx")
    expected = [f"somebody.{number}" for number in range(len(kept))] + ["pkg.torch.onnx.stack_trace"]
    assert [entry.key for entry in small.graph.node[0].metadata_props] == expected
    assert j2o("join", tmp_path / "small.onnx", "-o", tmp_path / "again.onnx")[0] == 0
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()


def test_the_small_model_is_the_plain_export(folder):
    exported(folder / "plain.onnx", False)
    small = onnx.load(folder / "small.onnx")
    assert [entry.key for entry in small.metadata_props] == ["pkg.jax2onnx.identity"]
    assert j2o("strip", folder / "small.onnx", "-o", folder / "bare.onnx")[0] == 0
    assert (folder / "bare.onnx").read_bytes() == (folder / "plain.onnx").read_bytes()


def test_readers_take_it_as_if_it_were_inside(folder):
    for words in (["inspect", "--json"], ["blame", "--json"], ["inspect", "--summary", "--json"]):
        whole = json.loads(j2o(*words, folder / "model.onnx")[1])
        beside = json.loads(j2o(*words, folder / "small.onnx")[1])
        named = json.loads(j2o(*words, folder / "small.onnx", "--sidecar", folder / "small.j2o")[1])
        for document in (whole, beside, named):
            for key in ("file", "model", "metadata"):
                document.pop(key, None)
        assert whole == beside == named


def test_without_it_nothing_is_known(folder):
    (folder / "small.j2o").unlink()
    assert j2o("blame", folder / "small.onnx")[0] == 1
    code, _, errors = j2o("join", folder / "small.onnx", "-o", folder / "again.onnx")
    assert code == 1 and "small.j2o" in errors


def test_the_sidecar_of_another_model_is_refused(folder):
    exported(folder / "other.onnx", function=lambda x: jnp.sin(x))
    j2o("split", folder / "other.onnx", "-o", folder / "other_small.onnx")
    for words in (["inspect"], ["join", "-o", folder / "again.onnx"]):
        code, _, errors = j2o(*words, folder / "small.onnx", "--sidecar", folder / "other_small.j2o")
        assert code == 1 and "does not belong to" in errors
    assert not (folder / "again.onnx").exists()


def test_a_changed_model_is_refused(folder):
    small = onnx.load(folder / "small.onnx")
    small.graph.node[-1].op_type = "Mul"
    onnx.save(small, folder / "small.onnx")
    code, _, errors = j2o("inspect", folder / "small.onnx")
    assert code == 1 and "has changed" in errors


def test_metadata_of_others_changes_no_identity(folder):
    small = onnx.load(folder / "small.onnx")
    small.metadata_props.add(key="author", value="somebody")
    small.doc_string = "text"
    onnx.save(small, folder / "small.onnx")
    assert "fn" in j2o("inspect", folder / "small.onnx", "--summary")[1]


def test_what_is_no_sidecar_is_told(folder):
    code, _, errors = j2o("inspect", folder / "small.onnx", "--sidecar", folder / "model.onnx")
    assert code == 1 and "not a sidecar" in errors
    (folder / "small.j2o").write_bytes((folder / "small.j2o").read_bytes()[:200])
    assert j2o("inspect", folder / "small.onnx")[0] == 1


def test_a_model_without_provenance_is_not_split(tmp_path):
    exported(tmp_path / "plain.onnx", False)
    code, _, errors = j2o("split", tmp_path / "plain.onnx", "-o", tmp_path / "small.onnx")
    assert code == 1 and "no node has provenance" in errors
    assert not (tmp_path / "small.onnx").exists() and not (tmp_path / "small.j2o").exists()


def test_sources_travel_with_it(tmp_path):
    source = pathlib.Path(__file__)
    exported(tmp_path / "model.onnx")
    words = ["--sources", "--source-root", source.parent, "--json"]
    code, output, _ = j2o("split", tmp_path / "model.onnx", "-o", tmp_path / "small.onnx", *words)
    assert code == 0 and json.loads(output)["sources"] >= 1
    text = "state = jnp.tanh(state * 0.5 + row)"
    command = [sys.executable, "-c", "from jax2onnx.__main__ import main; main()", "blame", tmp_path / "small.onnx"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert text in shown.stdout, shown.stderr
    j2o("split", tmp_path / "model.onnx", "-o", tmp_path / "small.onnx")
    assert text.encode() not in (tmp_path / "small.j2o").read_bytes()
