"""Models of images need hardly more nodes than an expert would write, and a Transpose at most at each border."""

import importlib.util
import pathlib

import numpy as np
import pytest
from export_check import check_export, op_types

_PATH = pathlib.Path(__file__).resolve().parents[2] / "bench" / "models" / "vision.py"
_SPEC = importlib.util.spec_from_file_location("vision_models", _PATH)
vision = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(vision)
SMALL = ("resnet18", "unet_batch_norm", "unet_nearest", "unet_bilinear")


def image(shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", SMALL)
def test_node_count(name):
    module, [spec] = vision.build(name)
    args = [image((batch, *spec.shape[1:])) for batch in (1, 3)]
    model = check_export(module, [args[0]], rtol=1e-4, atol=1e-5)
    assert len(op_types(model)) <= 1.2 * vision.expert(name).total()
    assert op_types(model).count("Transpose") <= 2
    specs = [("B", *spec.shape[1:])]
    any_batch = check_export(module, [args[0]], specs=specs, more_args=[[args[1]]], rtol=1e-4, atol=1e-5)
    assert len(op_types(any_batch)) <= 1.2 * vision.expert(name).total()


def test_channel_first_borders_need_no_transpose():
    module, [spec] = vision.build("unet_batch_norm")
    model = check_export(module, [image(spec.shape)], inputs_as_nchw=[0], outputs_as_nchw=[0], runs=False)
    assert "Transpose" not in op_types(model)
