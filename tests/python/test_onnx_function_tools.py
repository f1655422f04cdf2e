"""The commands over models that hold functions, and what reads such models back."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import pytest
from export_check import check_export, stripped
from flax import nnx

from jax2onnx import _core, onnx_function, to_onnx
from jax2onnx.__main__ import main

WEIGHT = jax.random.normal(jax.random.key(0), (16, 16))
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)


@onnx_function(unique=True)
def layer(x):
    return jnp.tanh(x @ WEIGHT) * 2.5


@onnx_function(namespace="net")
def stack(x):
    return layer(layer(x)) - 1.0


def model(x):
    return jnp.sum(stack(x), axis=-1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functions")
    paths = {level: folder / f"{level}.onnx" for level in ("off", "minimal", "full", "compact")}
    for level, path in paths.items():  # one line, so that all have the same stack
        to_onnx(model, [("B", 16)], return_mode="file", output_path=path, stacktrace_metadata=level)
    return paths


def tool(*arguments: object) -> str:
    code, out, errors = _core.tool_output(["j2o", *map(str, arguments)])
    assert code == 0, errors.decode()
    return out.decode()


def test_strip_compact_and_expand(files, tmp_path):
    tool("strip", files["full"], "-o", tmp_path / "stripped.onnx")
    assert (tmp_path / "stripped.onnx").read_bytes() == files["off"].read_bytes()
    tool("strip", files["compact"], "-o", tmp_path / "stripped.onnx")
    assert (tmp_path / "stripped.onnx").read_bytes() == files["off"].read_bytes()
    tool("compact", files["full"], "-o", tmp_path / "compact.onnx")
    assert (tmp_path / "compact.onnx").read_bytes() == files["compact"].read_bytes()
    tool("expand", files["compact"], "-o", tmp_path / "expanded.onnx")
    assert onnx.load(tmp_path / "expanded.onnx") == onnx.load(files["full"])


def test_inspect_shows_functions_with_their_types(files):
    out = tool("inspect", files["full"])
    assert "WEIGHT) -> stack_0 f32[B,16]" in out
    assert "function custom.layer (x f32[B,16]" in out
    assert "at layer:" in out
    document = json.loads(tool("inspect", "--json", files["full"]))
    assert [function["name"] for function in document["functions"]] == ["layer", "stack"]
    assert document["functions"][0]["body"]["inputs"][0]["type"] == {"dtype": "float32", "shape": ["B", 16]}


def test_blame_locate_stats_diff_and_report(files, tmp_path):
    assert "Tanh" in tool("blame", files["full"], __file__)
    assert "at layer:" in tool("locate", files["full"], "Tanh_0")
    assert "net.stack" in tool("stats", files["full"])
    assert "the same" in tool("diff", files["full"], files["off"])
    tool("report", files["full"], "-o", tmp_path / "report.html")
    assert "custom" in (tmp_path / "report.html").read_text()


def test_text_is_read_back_as_the_same_functions(files):
    parsed = onnx.parser.parse_model(tool("text", files["off"]).replace('WEIGHT" = ,', 'WEIGHT" = {0},'))
    original = onnx.load(files["off"])
    assert [[node.op_type for node in function.node] for function in parsed.functions] == [
        [node.op_type for node in function.node] for function in original.functions
    ]


def test_verify_finds_the_call_that_parts(files, tmp_path, capsys):
    assert main(["verify", f"{__file__}:model", str(files["full"])]) == 0
    damaged = onnx.load(files["full"])
    for node in damaged.functions[0].node:
        if node.op_type == "Tanh":
            node.op_type = "Sigmoid"
    onnx.save(damaged, tmp_path / "damaged.onnx")
    capsys.readouterr()
    assert main(["verify", f"{__file__}:model", str(tmp_path / "damaged.onnx")]) == 1
    assert "stack" in capsys.readouterr().out


def test_explain_and_profile_see_through_the_inlining_of_the_runtime(tmp_path, capsys):
    @onnx_function(unique=True)
    def joined(x, y):
        return jnp.sin(x) + y

    def twice(x, y):
        return joined(joined(x * 2, y), y)

    path = to_onnx(
        twice, [("A", 3), ("A", 3)], return_mode="file", output_path=tmp_path / "m.onnx", stacktrace_metadata="full"
    )
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    with pytest.raises(Exception, match="_inlfunc_") as error:
        session.run(None, {"in_0": np.ones((2, 3), np.float32), "in_1": np.ones((5, 3), np.float32)})
    (tmp_path / "message.txt").write_text(str(error.value))
    assert main(["explain", path, str(tmp_path / "message.txt"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["found"]
    assert (found[0]["node"], found[0]["place"]["source"]) == ("Add_0", "return jnp.sin(x) + y")
    assert main(["profile", path, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assert {line["line"]["source"] for line in lines} == {"return jnp.sin(x) + y", "return joined(joined(x * 2, y), y)"}


def test_a_function_of_the_model_inlined_by_the_standard_computes_the_same(files):
    inlined = onnx.inliner.inline_local_functions(onnx.load(files["full"]))
    assert not inlined.functions
    onnx.checker.check_model(inlined, full_check=True)
    results = [
        onnxruntime.InferenceSession(content.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"in_0": X}
        )
        for content in (onnx.load(files["full"]), inlined)
    ]
    np.testing.assert_array_equal(*(result[0] for result in results))


def test_weights_in_a_second_file(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "64")
    path = to_onnx(model, [X], return_mode="file", output_path=tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size >= 16 * 16 * 4
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"in_0": X})[0], model(X), rtol=1e-4, atol=1e-5)


def test_the_record_holds_the_marks(tmp_path):
    record = tmp_path / "program.txt"
    to_onnx(model, [X], record_primitive_calls_file=record)
    assert record.read_text().count("onnx_function_begin") == 3


@pytest.mark.parametrize("name", list(_core.passes()))
def test_without_a_pass(name, monkeypatch):
    monkeypatch.setenv("JAX2ONNX_DISABLE_PASSES", name)
    exported = to_onnx(model, [X], stacktrace_metadata="full")
    plain = to_onnx(model, [X])
    onnx.checker.check_model(exported, full_check=True)
    assert stripped(exported) == plain
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"in_0": X})[0], model(X), rtol=1e-4, atol=1e-5)


def test_convolutions_and_recurrence_inside():
    @onnx_function(unique=True)
    class Convolved(nnx.Module):
        def __init__(self, rngs):
            self.convolution = nnx.Conv(3, 3, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(3, use_running_average=True, rngs=rngs)

        def __call__(self, x):
            return nnx.relu(self.norm(self.convolution(x)))

    @onnx_function
    class Recurrent(nnx.Module):
        def __init__(self, rngs):
            self.cell = nnx.GRUCell(3, 4, rngs=rngs)

        def __call__(self, x):
            carry = jnp.zeros((x.shape[0], 4))
            return jax.lax.scan(lambda state, row: self.cell(state, row), carry, jnp.swapaxes(x, 0, 1))[1]

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([Convolved(rngs) for _ in range(2)])
            self.recurrent = Recurrent(rngs)

        def __call__(self, x):
            for convolved in self.layers:
                x = convolved(x)
            return self.recurrent(x.reshape(x.shape[0], -1, 3))

    images = np.random.default_rng(0).normal(size=(2, 4, 4, 3)).astype(np.float32)
    exported = check_export(Net(nnx.Rngs(0)), [images], specs=[("B", 4, 4, 3)], rtol=1e-4, atol=1e-5)
    assert [function.name for function in exported.functions] == ["Convolved", "Recurrent"]
    assert [node.op_type for node in exported.graph.node if node.domain] == ["Convolved", "Convolved", "Recurrent"]
