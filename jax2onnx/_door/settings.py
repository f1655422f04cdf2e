"""Settings of an export besides its arguments: ``config``, the context manager, the command line, the environment."""

from __future__ import annotations

import os
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from jax2onnx import _core

LEVELS = {"off": 0, "minimal": 1, "full": 2, "compact": 3}
_OFF = {"", "0", "false", "no", "off"}

# The levels set by the innermost `with stacktrace_metadata(...)` and by the command line; None: not set.
_block: ContextVar[int | None] = ContextVar("jax2onnx_stacktrace_metadata", default=None)
_command_line: ContextVar[int | None] = ContextVar("jax2onnx_command_line", default=None)
# Pass settings of the command line: names to leave out, and a folder for dumps. They add to the environment's.
_passes: ContextVar[tuple[tuple[str, ...], str | None]] = ContextVar("jax2onnx_passes", default=((), None))
_no_sync: ContextVar[bool] = ContextVar("jax2onnx_no_sync", default=False)


class Config:
    """Defaults for every export of this process."""

    __slots__ = ("_fixed_data_name", "_stacktrace_metadata", "_sync")

    def __init__(self) -> None:
        self._stacktrace_metadata: bool | str | None = None
        self._sync: bool | None = None
        self._fixed_data_name: bool | None = None

    @property
    def stacktrace_metadata(self) -> bool | str | None:
        """How much provenance each node carries; None uses the environment."""
        return self._stacktrace_metadata

    @stacktrace_metadata.setter
    def stacktrace_metadata(self, value: bool | str | None) -> None:
        if value is not None:
            level_number(value)
        self._stacktrace_metadata = value

    @property
    def sync(self) -> bool | None:
        """Whether an export waits until its files are on the disk; None uses the environment (JAX2ONNX_SYNC)."""
        return self._sync

    @sync.setter
    def sync(self, value: bool | None) -> None:
        self._sync = _checked_bool("sync", value)

    @property
    def fixed_data_name(self) -> bool | None:
        """Whether a model's second file is always named ``model.onnx.data``; None uses the environment
        (JAX2ONNX_FIXED_DATA_NAME). The two files are then no longer replaced in one step: an export that is killed
        between the two renames leaves the old model with new tensors, and another file of that name is lost."""
        return self._fixed_data_name

    @fixed_data_name.setter
    def fixed_data_name(self, value: bool | None) -> None:
        self._fixed_data_name = _checked_bool("fixed_data_name", value)

    def __repr__(self) -> str:
        said = {name: getattr(self, name) for name in ("stacktrace_metadata", "sync", "fixed_data_name")}
        shown = (
            f"{name}={value!r}" for name, value in said.items() if value is not None or name == "stacktrace_metadata"
        )
        return f"jax2onnx.config({', '.join(shown)})"


def _checked_bool(name: str, value: bool | None) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{name} must be None or a bool; got {value!r}")
    return value


config = Config()


@contextmanager
def stacktrace_metadata(level: bool | str) -> Iterator[None]:
    """Set the provenance of exports in this block: ``False``, ``True`` or ``"minimal"``, ``"full"``, ``"compact"``."""
    token = _block.set(level_number(level))
    try:
        yield
    finally:
        _block.reset(token)


@contextmanager
def command_line_level(level: str | None) -> Iterator[None]:
    """Apply the command line's flag: it overrides ``config`` and is overridden by the program itself."""
    token = _command_line.set(None if level is None else level_number(level))
    try:
        yield
    finally:
        _command_line.reset(token)


@contextmanager
def command_line_passes(disabled: Sequence[str], dump_folder: str | None) -> Iterator[None]:
    """Apply the command line's flags: passes to leave out, and the folder for the graph after each of the others."""
    token = _passes.set((tuple(disabled), dump_folder))
    try:
        yield
    finally:
        _passes.reset(token)


@contextmanager
def command_line_sync(on: bool) -> Iterator[None]:
    """Apply the command line's ``--no-sync``; without it, ``config`` and the environment decide."""
    token = _no_sync.set(not on)
    try:
        yield
    finally:
        _no_sync.reset(token)


def metadata_level(argument: bool | str | None, environment: Mapping[str, str] = os.environ) -> int:
    """The number of the level to write, one of LEVELS. The first of the five places that sets it decides."""
    if argument is not None:
        return level_number(argument)
    for said in (_block.get(), _command_line.get()):
        if said is not None:
            return said
    if config.stacktrace_metadata is not None:
        return level_number(config.stacktrace_metadata)
    return _level_from_environment(environment)


def level_number(level: bool | str) -> int:
    if isinstance(level, bool):
        return LEVELS["minimal" if level else "off"]
    if isinstance(level, str) and level in LEVELS:
        return LEVELS[level]
    expected = ", ".join(repr(name) for name in LEVELS)
    raise ValueError(f"stacktrace_metadata must be None, a bool, or one of {expected}; got {level!r}")


def _level_from_environment(environment: Mapping[str, str]) -> int:
    if environment.get("JAX2ONNX_ENABLE_STACKTRACE_METADATA", "").strip().lower() in _OFF:
        return LEVELS["off"]
    detail = environment.get("JAX2ONNX_STACKTRACE_DETAIL", "").strip().lower() or "minimal"
    if detail not in ("minimal", "full", "compact"):
        warnings.warn(
            f"JAX2ONNX_STACKTRACE_DETAIL must be 'minimal', 'full' or 'compact', not {detail!r}; using 'minimal'",
            stacklevel=4,
        )
        detail = "minimal"
    return LEVELS[detail]


def path_rules(text: str) -> list[tuple[str, str]]:
    """``OLD=NEW``, or several separated by colons, as pairs."""
    rules = []
    for rule in filter(None, text.split(":")):
        old, equals, new = rule.partition("=")
        if not equals or not old:
            raise ValueError(f"a path rule must be OLD=NEW, such as /home/me/project=project; got {rule!r}")
        rules.append((os.path.abspath(old), new))
    return rules


def path_prefix_rules(
    argument: str | Mapping[str, str] | None, environment: Mapping[str, str] = os.environ
) -> list[tuple[str, str]]:
    """The path prefixes and what is written in the model instead of them."""
    if isinstance(argument, str):
        return path_rules(argument)
    if argument is not None:
        return [(os.path.abspath(os.fspath(old)), os.fspath(new)) for old, new in argument.items()]
    return path_rules(environment.get("JAX2ONNX_PATH_PREFIX_MAP", ""))


def _says(
    argument: str | None, name: str, variable: str, choices: tuple[str, str], environment: Mapping[str, str]
) -> str:
    """The argument, or else what the environment variable says, or else the first of the two choices."""
    said = argument
    if said is None:
        name, said = variable, environment.get(variable, "").strip().lower() or choices[0]
    if said not in choices:
        raise ValueError(f"{name} must be {choices[0]!r} or {choices[1]!r}; got {said!r}")
    return said


def relative_paths(argument: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether files are named relative to the root of their project."""
    return _says(argument, "paths", "JAX2ONNX_PATHS", ("absolute", "relative"), environment) == "relative"


def drop_checks(argument: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether runtime checks are left out of the model; otherwise they give NaN."""
    return _says(argument, "runtime_checks", "JAX2ONNX_RUNTIME_CHECKS", ("nan", "drop"), environment) == "drop"


def drop_nan_guards(argument: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether nodes that only make a NaN come out as in JAX are left out of the model."""
    return _says(argument, "nan_guards", "JAX2ONNX_NAN_GUARDS", ("keep", "drop"), environment) == "drop"


def round_products(argument: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the runtime may round what quantised weights are multiplied by."""
    said = _says(argument, "quantized_products", "JAX2ONNX_QUANTIZED_PRODUCTS", ("exact", "rounded"), environment)
    return said == "rounded"


def target_name(argument: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The runtime that a model is made for."""
    name, said = "target", argument
    if said is None:
        name, said = "JAX2ONNX_TARGET", environment.get("JAX2ONNX_TARGET", "").strip() or _core.TARGETS[0]
    if said not in _core.TARGETS:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, _core.TARGETS))}; got {said!r}")
    return said


def external_threshold(environment: Mapping[str, str] = os.environ) -> int:
    """Tensors of at least this many bytes go to a second file; 0: only if the model would exceed 2 GiB."""
    text = environment.get("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "").strip() or "0"
    if not text.isdigit():
        raise ValueError(f"JAX2ONNX_EXTERNAL_DATA_THRESHOLD must be a number of bytes; got {text!r}")
    return int(text)


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def bytes_of(size: int | str | None) -> int:
    """``"5GB"`` as a number of bytes; 0 for None."""
    if size is None:
        return 0
    text = str(size).strip().upper() if isinstance(size, (int, str)) and not isinstance(size, bool) else ""
    number = text.rstrip("KMGTIB ")
    unit = text[len(number) :].strip()
    if not number.isdecimal() or unit not in _UNITS or not int(number):
        raise ValueError(f"max_shard_size must be a number of bytes or a string such as '5GB'; got {size!r}")
    return int(number) * _UNITS[unit]


def alignment_of_data(alignment: int | None) -> int:
    """The alignment of large tensors in a data file, in bytes."""
    if alignment is None:
        return 65536 if os.name == "nt" else 4096
    known = isinstance(alignment, int) and not isinstance(alignment, bool)
    if not known or not 64 <= alignment <= 65536 or alignment & (alignment - 1):
        raise ValueError(f"data_alignment must be a power of two from 64 to 65536; got {alignment!r}")
    return alignment


def sync(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an export waits until its files are on the disk, so that they survive a crash of the machine."""
    if _no_sync.get():
        return False
    if config.sync is not None:
        return config.sync
    return environment.get("JAX2ONNX_SYNC", "").strip().lower() not in _OFF - {""}


def fixed_data_name(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the second file is always named ``model.onnx.data``, even if another file has that name."""
    if config.fixed_data_name is not None:
        return config.fixed_data_name
    return environment.get("JAX2ONNX_FIXED_DATA_NAME", "").strip().lower() not in _OFF


def process_timeout(environment: Mapping[str, str] = os.environ) -> float:
    """Seconds without a sign of life after which another process counts as dead (JAX2ONNX_PROCESS_TIMEOUT)."""
    text = environment.get("JAX2ONNX_PROCESS_TIMEOUT", "").strip() or "30"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"JAX2ONNX_PROCESS_TIMEOUT must be a number of seconds; got {text!r}")
    return seconds


def disabled_passes(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Passes to leave out, to find out which one is at fault."""
    names = environment.get("JAX2ONNX_DISABLE_PASSES", "").split(",")
    return [name.strip() for name in (*names, *_passes.get()[0]) if name.strip()]


def check_passes(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to check after every pass that all provenance was kept and that the graph is sound."""
    return environment.get("JAX2ONNX_CHECK_PASSES", "").strip().lower() not in _OFF


def dump_passes(environment: Mapping[str, str] = os.environ) -> str | None:
    """The folder that receives the model's text as lowered and after every pass that changed it."""
    folder = _passes.get()[1] or environment.get("JAX2ONNX_DUMP_PASSES", "").strip()
    if folder:
        os.makedirs(folder, exist_ok=True)
        for earlier in pathlib.Path(folder).glob("[0-9][0-9]_*.onnx.txt"):
            earlier.unlink()  # the steps of another export would be mistaken for this one's
    return folder or None


def record_file(environment: Mapping[str, str] = os.environ) -> str | None:
    """The file that receives everything an export was given."""
    return environment.get("JAX2ONNX_RECORD", "").strip() or None
