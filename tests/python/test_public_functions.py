"""Every public function of jax.numpy, jax.nn, jax.random and their kin is exported, run and compared with JAX once."""

from __future__ import annotations

import jax
import pytest
from export_check import check_export
from public_functions import EXCEPTIONS, MODULES, cases, public_names, traceable

from jax2onnx import UnsupportedError, to_onnx

NAMES = public_names()
# The reference need not be fast: compiling takes most of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def first_case(name):
    return next(filter(traceable, cases(name)), None)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in EXCEPTIONS])
def test_public_function(name):
    case = first_case(name)
    assert case, "it cannot be called with any arguments tried; say in public_functions.ARGUMENTS how to call it"
    reference = jax.jit(lambda *arrays: case.call(*arrays), compiler_options=QUICK)
    check_export(case.call, case.arrays, reference=reference)


@pytest.mark.parametrize("name", [name for name in NAMES if name in EXCEPTIONS])
def test_exception_is_still_needed(name):
    case = first_case(name)
    if case:
        with pytest.raises(UnsupportedError):  # else: take it from public_functions.EXCEPTIONS
            to_onnx(case.call, case.arrays)


def test_the_walk_finds_the_functions():
    """A new JAX that hides its functions elsewhere would empty the sweep."""
    assert len(NAMES) > 500
    assert {module for module in MODULES if any(name.startswith(module + ".") for name in NAMES)} == set(MODULES)
