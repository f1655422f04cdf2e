"""Tests run against the package in this tree."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# Every export of every test proves that its passes lost no provenance.
os.environ.setdefault("JAX2ONNX_CHECK_PASSES", "1")
# What JAX gives is compared once: the time that XLA would take to optimise it is longer.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Keras chooses when it is imported.
os.environ["KERAS_BACKEND"] = "jax"

if os.environ.get("COUNT_PRIMITIVES"):
    from primitive_counter import count_primitives  # noqa: F401
