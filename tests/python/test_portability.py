"""Where the models run: the stored runs (make portability) against what src/target says today."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
_path = list(sys.path)
sys.path.insert(0, str(ROOT / "tools" / "portability"))

import measure  # noqa: E402

sys.path[:] = _path  # the benchmarks have models of their own

SAMPLE = json.loads(measure.SAMPLE.read_text())


def test_the_sample_is_of_these_rows_and_models():
    stale = [key for key, found in SAMPLE["runtimes"].items() if found["digest"] != measure.facts_digest(key)]
    assert not stale, f"the stored runs of {', '.join(stale)} are stale: make portability"


def test_the_page_is_what_the_sample_says():
    assert measure.PAGE.read_text() == measure.page(SAMPLE)


def test_every_runtime_was_measured_with_a_version():
    assert SAMPLE["runtimes"].keys() == measure.RUNTIMES.keys()
    assert all(found["version"] for found in SAMPLE["runtimes"].values())


def test_the_newest_onnx_runtime_runs_them_all():
    assert SAMPLE["runtimes"]["onnxruntime"]["default"]["wrong"] == {}


def test_what_still_fails_for_a_target_is_told_at_export():
    for key, found in SAMPLE["runtimes"].items():
        assert set(found["own"]["wrong"]) == set(found["own"]["said"]), key


def test_no_target_makes_it_worse():
    for key, found in SAMPLE["runtimes"].items():
        assert set(found["own"]["wrong"]) <= set(found["default"]["wrong"]), key


def test_a_target_is_a_name_that_the_core_knows():
    from jax2onnx import _core

    assert {runtime.target for runtime in measure.RUNTIMES.values()} <= set(_core.TARGETS)
