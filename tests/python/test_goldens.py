"""The stored exports are what an export gives today."""

import pathlib
import subprocess
import sys

import onnx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "examples" / "sandbox_stacktrace_sample.onnx"


@pytest.mark.parametrize("tool", ["goldens", "make_sample"])
def test_stored_exports_are_current(tool):
    command = [sys.executable, str(ROOT / "tools" / f"{tool}.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, (
        f"run `make {'goldens' if tool == 'goldens' else 'sample'}`\n{done.stdout}{done.stderr}"
    )


def test_stored_exports_hold_no_machine_path():
    for entry in (entry for node in onnx.load(SAMPLE).graph.node for entry in node.metadata_props):
        for line in entry.value.splitlines():
            assert not line.startswith("/"), line
    for path in (ROOT / "tests" / "golden").glob("*.txt"):
        assert str(ROOT) not in path.read_text(), path
        assert "site-packages" not in path.read_text(), path


def test_golden_texts_are_onnx_syntax():
    paths = sorted((ROOT / "tests" / "golden").glob("*.txt"))
    assert len(paths) >= 12
    for path in paths:
        text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
        onnx.checker.check_model(onnx.parser.parse_model(text))


def test_the_stored_sample_runs_and_names_its_lines():
    import numpy as np
    import onnxruntime

    model = onnx.load(SAMPLE)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(str(SAMPLE), providers=["CPUExecutionProvider"])
    x = np.array([0.5, -1.0], np.float32)
    np.testing.assert_allclose(session.run(None, {"in_0": x})[0], np.sin(x) * 2.0, rtol=1e-6)
    source = (SAMPLE.with_suffix(".py")).read_text().splitlines()
    line = source.index("    return jnp.sin(x) * 2.0") + 1
    for node in model.graph.node:
        said = {entry.key: entry.value for entry in node.metadata_props}
        assert said["pkg.jax2onnx.callsite"] == f"scaled_sine:{line}"
        assert said["pkg.jax2onnx.plugin"].startswith(f"{node.op_type}Plugin.lower:")
        assert said["pkg.jax2onnx.jax_traceback"].endswith(f"{SAMPLE.stem}.py:{line} (scaled_sine)")
