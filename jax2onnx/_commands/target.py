"""What the command line names: targets such as ``pkg.module:fn`` and inputs such as ``x:f32[B,3]``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_STEP = r"[^\W\d]\w*(?:\(\))?"
_TARGET = re.compile(rf"(?P<module>.+?):(?P<steps>{_STEP}(?:\.{_STEP})*)")
_INPUT = re.compile(r"(?:(?P<name>[^:\[\]]+):)?(?P<dtype>[a-z]+[0-9]*)(?:\[(?P<dims>.*)\])?")
_SHORT = {"f": "float", "i": "int", "u": "uint", "bf": "bfloat", "c": "complex"}
_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


class UsageError(Exception):
    """The command line is wrong; the message says what was expected."""


@dataclass(frozen=True)
class Target:
    module: str  # a dotted name, or the path of a .py file
    steps: tuple[str, ...]  # attribute names from the module on; "()" after one calls it

    @property
    def name(self) -> str:
        return self.steps[-1].removesuffix("()")

    def load(self) -> Any:
        """Import the module and follow the steps. Exceptions of the user's own code propagate."""
        value: Any = _load_file(self.module) if self.module.endswith(".py") else _load_module(self.module)
        path = self.module
        for step in self.steps:
            name = step.removesuffix("()")
            if not hasattr(value, name):
                raise UsageError(f"{path} has no attribute {name!r}{_similar(name, value)}")
            value = getattr(value, name)
            path = f"{path}:{name}" if path == self.module else f"{path}.{name}"
            if step.endswith("()"):
                value = value()
        if not callable(value):
            raise UsageError(f"{path} is not callable; its type is {type(value).__name__}")
        return value


def parse_target(text: str) -> Target:
    match = _TARGET.fullmatch(text)
    if not match:
        raise UsageError(
            f"{text!r} does not name a function; expected pkg.module:fn, path/to/file.py:fn, module:object.method or "
            "module:factory()"
        )
    return Target(match["module"], tuple(match["steps"].split(".")))


def _load_module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that the user's module fails to import is the user's error, and is reported as such.
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"there is no module {name!r} (searched from {os.getcwd()})") from None
        raise


def _load_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise UsageError(f"file not found: {path!r}")
    path = os.path.abspath(path)
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _similar(name: str, value: Any) -> str:
    import difflib

    close = difflib.get_close_matches(name, [known for known in dir(value) if not known.startswith("_")], n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def parse_input(text: str) -> tuple[str | None, tuple[int | str, ...], str]:
    """``x:i32[B,128]`` as (name or None, shape, NumPy's name for the type)."""
    match = _INPUT.fullmatch(text.strip())
    dtype = match and _dtype_name(match["dtype"])
    if not match or not dtype:
        raise UsageError(
            f"{text!r} is not an input; expected [NAME:]TYPE[DIMENSIONS] such as f32[2], x:i32[B,128] or bool[], "
            "with TYPE one of bool, i8…i64, u8…u64, f16, bf16, f32, f64, c64, c128"
        )
    dims = [size.strip() for size in (match["dims"] or "").split(",")]
    if dims == [""]:
        dims = []
    if "" in dims:
        raise UsageError(f"{text!r}: a dimension is empty")
    return match["name"], tuple(int(size) if size.isdecimal() else size for size in dims), dtype


def _dtype_name(text: str) -> str | None:
    letters = text.rstrip("0123456789")
    full = _SHORT.get(letters, letters) + text[len(letters) :]
    return full if full in _DTYPES else None
