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
def _jax_files() -> tuple[str, ...]:
    return tuple(folder + os.sep for folder in jax_folders())


def is_jax_file(path: str) -> bool:
    """Whether a file belongs to JAX or to this package."""
    return path.startswith(_jax_files())


def library_folders() -> tuple[str, ...]:
    """Frames under these folders belong to the standard library or to an installed package."""
    return _library_folders(tuple(sys.path))


@cache
def _library_folders(search: tuple[Any, ...]) -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    folders.add(site.getusersitepackages())
    # A virtual environment uses the standard library of the interpreter it was made from.
    folders.add(os.path.dirname(os.path.abspath(os.__file__)))
    places = {os.path.abspath(folder) for folder in search if isinstance(folder, str) and folder}
    folders.update(folder for folder in places - _program_folders() if _has_packages(folder))
    return tuple(sorted(os.path.abspath(folder) for folder in folders))


def _program_folders() -> set[str]:
    """The folders of the program that runs: packages may have been installed beside it."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return {os.getcwd(), os.path.dirname(os.path.abspath(script or "__main__"))}
    except OSError:  # the working directory is gone
        return set()


def _has_packages(folder: str) -> bool:
    """Whether packages were installed into a folder of the search path, as ``pip install --target`` does."""
    if os.path.basename(folder) in ("site-packages", "dist-packages"):
        return True
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:  # it is an archive, or not there
        return False


@cache
def _hidden(folders: tuple[str, ...]) -> tuple[str, ...]:
    # Programs that packages install (a test runner, our own command) start from the scripts' folder.
    return ("<frozen", *(folder + os.sep for folder in (*jax_folders(), *folders, sysconfig.get_path("scripts"))))


def is_users_file(path: str) -> bool:
    """Whether a frame of this file belongs to the program that calls us."""
    return not path.startswith(_hidden(library_folders()))
