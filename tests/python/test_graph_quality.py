"""Models of real structure come out nearly as an expert would write them, and no less accurate than as lowered.

The models and their expert counts are in bench/models; times are printed by bench/bench_6_quality.py.
"""

import pathlib
import sys

import jax.numpy as jnp
import onnx
import pytest

from jax2onnx import to_onnx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from quality import (
    MOST_ERROR,
    MOST_NODES,
    OPSET,
    cases,
    error,
    error_ratio,
    errors,
    expected_of,
    export,
    feeds,
    most_nodes,
    operators,
    run,
    session,
)

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


# In halves, and in other styles: a few of each stand for the others in the short run.
SHORT_HALVES = {("gpt", "bfloat16"), ("gpt_cached", "float16"), ("llama", "float16"), ("lstm", "float16")}
SHORT_STYLES = {
    ("gpt_einsum", "float32"),
    ("llama_linen", "float32"),
    ("vit_einsum", "float16"),
    ("unet_bilinear_lax", "float16"),
}
RESTATED = [
    pytest.param(
        case, dtype, id=f"{case.name}-{dtype}", marks=[] if (case.name, dtype) in short else [pytest.mark.full]
    )
    for folder, short, dtypes in (
        ("models", SHORT_HALVES, ("float16", "bfloat16")),
        ("styles", SHORT_STYLES, ("float32", "float16", "bfloat16")),
    )
    for case in cases(folder)
    for dtype in dtypes
]
# In units of the last place of a type.
MOST_LOST = 64


@pytest.mark.parametrize(("case", "dtype"), RESTATED)
def test_a_graph_in_another_precision_or_style_is_as_an_expert_would_write_it(case, dtype):
    fn, inputs = case.build(jnp.dtype(dtype))
    model = to_onnx(fn, inputs, opset=OPSET, return_mode="proto")
    found, expert = operators(model), case.expert()
    assert found.total() <= most_nodes(model, expert.total()), f"more than an expert: {dict(found - expert)}"
    arrays = feeds(inputs)
    assert error(run(session(model), arrays), expected_of(case, fn, arrays)) <= MOST_LOST * float(jnp.finfo(dtype).eps)
