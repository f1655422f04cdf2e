"""The types of JAX and NumPy that the C core must recognise, and the folders of their source files."""

from __future__ import annotations

import enum
import os
import site
import sys
import sysconfig
from functools import cache
from typing import Any

import jax
import jax.extend.core as jax_core
import jaxlib
import numpy as np
from jax._src.source_info_util import Scope
from jax.export import symbolic_shape

from jax2onnx._door.fetching import Fetched, from_devices, is_worth_fetching

# What JAX raises when a symbolic size is needed as a number; before 0.10 it was in jax.core.
_ERRORS = jax.errors if hasattr(jax.errors, "InconclusiveDimensionOperation") else jax.core
InconclusiveDimension: type[Exception] = _ERRORS.InconclusiveDimensionOperation


def _contiguous(array: Any) -> np.ndarray | Fetched:
    if not isinstance(getattr(array, "dtype", None), np.dtype) and jax.dtypes.issubdtype(
        array.dtype, jax.dtypes.prng_key
    ):
        # A threefry2x32 key is one uint64 in the core.
        words = np.asarray(jax.random.key_data(array), order="C")
        return words.view(np.uint64)[..., 0] if array.dtype.name == "key<fry>" else words
    if isinstance(array, Fetched):
        return array
    if isinstance(array, reference_class()):
        return _contiguous(array[...])
    if isinstance(array, jax.Array) and (fetched := from_devices(array)) is not None:
        return fetched if is_worth_fetching(array.dtype, array.nbytes) else fetched.whole()
    return np.asarray(array, order="C")


def _as_dtype(value: Any, name: str) -> np.ndarray:
    return np.asarray(value, dtype=jax.numpy.dtype(name))


def _typed_array_class() -> type:
    """The class in which JAX wraps literal values; if it has none, a class without instances."""
    literals = sys.modules.get("jax._src.literals")
    return getattr(literals, "TypedNdArray", type("NoSuchClass", (), {}))


@cache
def reference_class() -> type:
    """The class of what jax.new_ref makes; if JAX has none, a class without instances."""
    return getattr(sys.modules["jax._src.core"], "Ref", type("NoSuchClass", (), {}))


@cache
def core_types() -> dict[str, Any]:
    """The classes and conversions that the importer needs, by the importer's names for them."""
    return {
        "Literal": jax_core.Literal,
        "Jaxpr": jax_core.Jaxpr,
        "ClosedJaxpr": jax_core.ClosedJaxpr,
        "DimExpr": type(symbolic_shape("a")[0]),
        "Enum": enum.Enum,
        "dtype": np.dtype,
        "Array": (jax.Array, np.ndarray, np.generic),
        "integer": np.integer,
        "TypedNdArray": _typed_array_class(),
        "contiguous": _contiguous,
        "asarray": _as_dtype,
        "Scope": Scope,
        "Fetched": Fetched,
    }


def _folder(module: Any) -> str:
    return os.path.dirname(os.path.abspath(module.__file__))


@cache
def jax_folders() -> tuple[str, ...]:
    """Frames under these folders belong to JAX or to this package, never to the user."""
    return (_folder(jax), _folder(jaxlib), os.path.dirname(_folder(sys.modules[__name__])))


@cache
def library_folders() -> tuple[str, ...]:
    """Frames under these folders belong to the standard library or to an installed package."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    folders.add(site.getusersitepackages())
    # A virtual environment uses the standard library of the interpreter it was made from.
    folders.add(os.path.dirname(os.path.abspath(os.__file__)))
    return tuple(sorted(os.path.abspath(folder) for folder in folders))


@cache
def _hidden() -> tuple[str, ...]:
    # Programs that packages install (a test runner, our own command) start from the scripts' folder.
    folders = (*jax_folders(), *library_folders(), sysconfig.get_path("scripts"))
    return ("<frozen", *(folder + os.sep for folder in folders))


def is_users_file(path: str) -> bool:
    """Whether a frame of this file belongs to the program that calls us."""
    return not path.startswith(_hidden())
