"""Models of real structure come out nearly as an expert would write them, and no less accurate than as lowered.

The models and their expert counts are in bench/models; times are printed by bench/bench_6_quality.py.
"""

import pathlib
import sys

import onnx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from quality import MOST_ERROR, MOST_NODES, cases, error_ratio, errors, export, operators

# The larger ones take long; one of Keras' stands for the others in the short run.
SHORT = {"mlp", "gpt", "gpt_cached", "vit", "lstm", "gru", "resnet18", "unet_batch_norm", "unet_nearest", "MobileNetV2"}
CASES = [pytest.param(case, id=case.name, marks=[] if case.name in SHORT else [pytest.mark.full]) for case in cases()]


@pytest.mark.parametrize("case", CASES)
def test_a_graph_is_as_an_expert_would_write_it(case):
    exported = export(case)
    onnx.checker.check_model(exported.optimised, full_check=True)
    found, expert = operators(exported.optimised), case.expert()
    assert found.total() <= MOST_NODES * expert.total(), f"more than an expert: {dict(found - expert)}"
    assert error_ratio(*errors(exported)) <= MOST_ERROR
