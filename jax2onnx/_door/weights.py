"""The source of the weights for a model that has none: ``to_onnx(..., weights=SOURCE)``."""

from __future__ import annotations

import functools
import json
import math
import mmap
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax2onnx import _core
from jax2onnx._door.fetching import Fetched, is_worth_fetching
from jax2onnx._door.inputs import path_text

LATER = "later"
PIECE = 64 << 20  # bytes of a file that are read at a time
Rename = Mapping[str, str] | Callable[[str], str] | None
_HOLDERS = (".value", ".raw_value")  # a variable's name for its array, at the end of a path


class Missing(NamedTuple):
    """A weight that the model lacks."""

    path: str
    shape: tuple[int, ...]
    dtype: Any
    is_used: bool  # the others are not needed


class Found(NamedTuple):
    """A weight of a source: its type, and how to get it."""

    shape: tuple[int, ...]
    dtype: Any  # None: ONNX lacks the type that the source has, which `spelled` names
    spelled: str
    value: Callable[[], Any]  # an array, or Fetched
    place: tuple[str, int] | None = None  # the file that holds it in ONNX's form, and the offset


class Source:
    """Weights by key."""

    keys: list[str] | None = None  # None: unknown

    def find(self, key: str) -> Found | None:
        raise NotImplementedError


def bound_weights(
    source: Any,
    missing: Sequence[Missing],
    rename: Rename,
    allow_surplus: bool,
    reference: Reference | None,
) -> list[tuple[str, Any]]:
    """For each weight its name and its source, as the core takes them. Raises one error for all problems."""
    key_of = renaming(rename)
    if isinstance(source, str) and source == LATER:
        return [(weight.path, (None, 0, None) if weight.is_used else None) for weight in missing]
    opened = opened_source(source)
    wrong, known, result = [], set(), []
    for weight in missing:
        key = key_of(weight.path)
        known.add(key)
        found = opened.find(key) if weight.is_used else None
        trouble = _trouble(weight, key, found) if weight.is_used else None
        if trouble:
            wrong.append(trouble)
        elif found is not None:
            result.append((weight.path, reference.value(weight, found) if reference else found.value()))
        else:
            result.append((weight.path, None))
    if opened.keys is not None and not allow_surplus:
        surplus = sorted(set(opened.keys) - known)
        wrong += [f"surplus: {key!r} is not a weight of the model" for key in surplus]
        wrong += ["(pass allow_surplus_weights=True to ignore them)"] if surplus else []
    if wrong:
        raise ValueError("\n  ".join(["the weights do not match the model:", *wrong]))
    return result


def _trouble(weight: Missing, key: str, found: Found | None) -> str | None:
    name = repr(weight.path) if key == weight.path else f"{weight.path!r} ({key!r} in the source)"
    wanted = f"{_spelled(weight.dtype)}{list(weight.shape)}"
    if found is None:
        return f"missing: {name}, {wanted}"
    if found.dtype is None:
        return f"unsupported type: {name} is {found.spelled}, which ONNX does not have"
    if tuple(found.shape) != tuple(weight.shape) or np.dtype(found.dtype) != np.dtype(weight.dtype):
        return f"mismatch: {name} is {_spelled(found.dtype)}{list(found.shape)}, but the model has {wanted}"
    return None


def _spelled(dtype: Any) -> str:
    dtype = np.dtype(dtype)
    return dtype.name if dtype.isnative else dtype.str


def _known_type(dtype: Any) -> np.dtype | None:
    """None for types that are not numbers: texts, dates, records, objects."""
    dtype = np.dtype(dtype)
    return None if dtype.kind in "OSUMm" or dtype.type is np.void else dtype


def renaming(rename: Rename) -> Callable[[str], str]:
    """A function from the path of a weight in the model to its key in the source. In a mapping, ``*`` stands for one
    step of a path, the same on both sides: ``{"layers.*.kernel": "model.layers.*.weight"}``."""
    if rename is None:
        return lambda path: path
    if callable(rename) and not isinstance(rename, Mapping):
        return rename
    if not isinstance(rename, Mapping) or not all(isinstance(text, str) for pair in rename.items() for text in pair):
        raise TypeError(f"rename must be a mapping of paths to keys, or a function; got {rename!r}")
    rules = []
    for path, key in rename.items():
        if path.count("*") != key.count("*"):
            raise ValueError(f"rename: {path!r} and {key!r} do not have the same number of '*'")
        rules.append((re.compile(re.escape(path).replace(r"\*", "([^.]+)")), key.split("*")))

    def renamed(path: str) -> str:
        for pattern, pieces in rules:
            match = pattern.fullmatch(path)
            if match:
                steps = [*match.groups(), ""]
                return "".join(piece + step for piece, step in zip(pieces, steps, strict=True))
        return path

    return renamed


class Reference:
    """``weights_by_reference``: the model refers to the files of the source, which must be in its folder or below."""

    def __init__(self, folder: str | None, touch: bool) -> None:
        self._folder = None if folder is None else os.path.realpath(folder)
        self._touch = touch

    def value(self, weight: Missing, found: Found) -> Any:
        if found.place is None:
            raise ValueError(f"weights_by_reference=True needs safetensors; {weight.path!r} comes from something else")
        file, offset = found.place
        value = found.value() if self._touch else None
        return (self._location(file), offset, value.whole() if isinstance(value, Fetched) else value)

    @functools.cache  # noqa: B019 - as long-lived as the export
    def _location(self, file: str) -> str:
        path = os.path.realpath(file)
        folder = self._folder or os.path.dirname(path)
        location = os.path.relpath(path, folder)
        if location.startswith(os.pardir + os.sep) or os.path.isabs(location):
            raise ValueError(
                f"weights_by_reference=True: {file} is not in the folder of the model, {folder}, and ONNX "
                "readers do not follow paths out of it; write the model next to the weights"
            )
        if location.endswith(".data"):
            raise ValueError(
                f"weights_by_reference=True: {file} has a name reserved for files that exports write and remove"
            )
        return location.replace(os.sep, "/")


# ---- sources ----


def opened_source(source: Any) -> Source:
    if isinstance(source, Source):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _of_path(os.fspath(source))
    if isinstance(source, Mapping) or not jax.tree_util.all_leaves([source]):
        return _Tree(source)
    if callable(source):
        return _Function(source)
    raise TypeError(
        "weights must be the path of safetensors, of an .npz or of an Orbax checkpoint, a mapping, a function from "
        f'path to array, or "later"; got {type(source).__name__}'
    )


def _of_path(path: str) -> Source:
    if path.endswith(".npz"):
        return _Npz(path)
    if os.path.isdir(path) and _is_orbax(path):
        return _Orbax(path)
    return _Safetensors(path)


class _Tree(Source):
    """A mapping from keys to arrays, or any tree of arrays, in which the path to an array is its key."""

    def __init__(self, tree: Any) -> None:
        leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
        self._arrays = {_plain_path(path_text(path)): leaf for path, leaf in leaves}
        self.keys = list(self._arrays)

    def find(self, key: str) -> Found | None:
        if key not in self._arrays:
            return None
        array = self._arrays[key]
        dtype = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
        return Found(np.shape(array), _known_type(dtype), str(dtype), lambda: array)


def _plain_path(path: str) -> str:
    for holder in _HOLDERS:
        path = path.removesuffix(holder)
    return path.removeprefix("params.")


class _Function(Source):
    """Called once for the type of each weight, and again for the weight itself when it is written."""

    def __init__(self, function: Callable[[str], Any]) -> None:
        self._function = function

    def find(self, key: str) -> Found | None:
        try:
            array = self._function(key)
        except KeyError:
            return None
        if array is None:
            return None
        array = array if isinstance(array, jax.Array) else np.asarray(array)
        dtype = _known_type(array.dtype)
        return Found(array.shape, dtype, str(array.dtype), _lazily(array, lambda: self._function(key)))


def _lazily(array: Any, again: Callable[[], Any]) -> Callable[[], Any]:
    """Large arrays are requested again instead of kept."""
    shape, dtype, nbytes = array.shape, array.dtype, array.nbytes
    if not is_worth_fetching(dtype, nbytes):
        return lambda: array
    return lambda: Fetched(shape, dtype, lambda: np.asarray(again(), order="C"))


class _Npz(Source):
    def __init__(self, path: str) -> None:
        self._path = path
        self._types = {}
        try:
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    if member.endswith(".npy"):
                        with archive.open(member) as file:
                            self._types[member.removesuffix(".npy")] = _npy_type(file)
        except _DAMAGED as error:
            raise ValueError(f"{path}: not an .npz file: {error}") from error
        self.keys = list(self._types)

    def find(self, key: str) -> Found | None:
        if key not in self._types:
            return None
        shape, stored = self._types[key]
        dtype = _known_type(stored.newbyteorder("="))

        def read() -> np.ndarray:
            try:
                with np.load(self._path, allow_pickle=False) as archive:
                    array = archive[key]
            except _DAMAGED as error:
                raise ValueError(f"{self._path}: cannot read {key!r}: {error}") from error
            return array.astype(dtype, copy=False)

        large = dtype is not None and is_worth_fetching(dtype, math.prod(shape) * dtype.itemsize)
        return Found(shape, dtype, str(stored), (lambda: Fetched(shape, dtype, read)) if large else read)


# The errors that reading an untrusted file may raise.
_DAMAGED = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, KeyError)


def _npy_type(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


class _Safetensors(Source):
    """The core reads the headers; the data are mapped, and released once they are written."""

    def __init__(self, path: str) -> None:
        folder, files, weights = _core.checkpoint(os.fsencode(path))
        self._files = [os.path.join(folder, file) for file in files]
        self._weights = {weight[0]: weight[1:] for weight in weights}
        self._maps: dict[int, mmap.mmap] = {}
        self.keys = list(self._weights)

    def find(self, key: str) -> Found | None:
        if key not in self._weights:
            return None
        name, spelled, shape, file, offset, size = self._weights[key]
        dtype = None if name is None else jnp.dtype(name)
        return Found(
            shape, dtype, spelled, lambda: self._value(shape, dtype, file, offset, size), (self._files[file], offset)
        )

    def _value(self, shape: tuple[int, ...], dtype: Any, file: int, offset: int, size: int) -> Any:
        if not size:
            return np.empty(shape, dtype)
        mapped = self._mapped(file)

        def part(first: int, last: int) -> np.ndarray:
            return np.frombuffer(mapped, np.uint8, last - first, offset + first)

        def whole() -> np.ndarray:
            return part(0, size).view(dtype).reshape(shape)

        def pieces() -> Iterator[np.ndarray]:
            for first in range(0, size, PIECE):
                last = min(first + PIECE, size)
                yield part(first, last)
                _let_go(mapped, offset + first, offset + last)

        return Fetched(shape, dtype, whole, pieces) if is_worth_fetching(dtype, size) else whole()

    def _mapped(self, file: int) -> mmap.mmap:
        if file not in self._maps:
            with open(self._files[file], "rb") as opened:
                self._maps[file] = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[file]


def _let_go(mapped: mmap.mmap, first: int, last: int) -> None:
    """Release the pages of the file, so that they no longer count as this process's memory."""
    if hasattr(mmap, "MADV_DONTNEED"):
        low = first // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, low, last - low)


def _is_orbax(path: str) -> bool:
    names = ("_METADATA", "manifest.ocdbt", "_CHECKPOINT_METADATA")
    return any(os.path.exists(os.path.join(path, name)) for name in names)


class _Orbax(Source):
    """Types come from the checkpoint's metadata; arrays are read through TensorStore, some rows at a time."""

    def __init__(self, path: str) -> None:
        try:
            import orbax.checkpoint
            import tensorstore
        except ImportError as error:
            raise ImportError("an Orbax checkpoint needs the packages orbax-checkpoint and tensorstore") from error
        inner = os.path.join(path, "default")  # a CheckpointManager's name for the only item
        self._path = os.path.abspath(inner if _is_orbax(inner) else path)
        self._reading = _Reading(tensorstore)
        try:
            metadata = orbax.checkpoint.PyTreeCheckpointer().metadata(self._path)
            with open(os.path.join(self._path, "_METADATA"), "rb") as file:
                # If this is off, data equal to the fill value are not stored and look like missing data.
                self._holds_all = bool(json.load(file).get("store_array_data_equal_to_fill_value"))
        except Exception as error:  # a damaged file may raise anything
            raise ValueError(f"{path}: cannot read the metadata of this Orbax checkpoint: {error}") from error
        tree = getattr(metadata, "item_metadata", metadata)
        if tree is None:
            raise ValueError(f"{path}: cannot read the metadata of this Orbax checkpoint")
        self._driver = "zarr3" if getattr(tree, "use_zarr3", False) else "zarr"
        leaves = jax.tree_util.tree_leaves_with_path(getattr(tree, "tree", tree), is_leaf=_is_array_metadata)
        self._arrays = {_plain_path(path_text(way)): leaf for way, leaf in leaves if _is_array_metadata(leaf)}
        self.keys = list(self._arrays)

    def find(self, key: str) -> Found | None:
        if key not in self._arrays:
            return None
        metadata = self._arrays[key]
        shape, dtype = tuple(metadata.shape), _known_type(metadata.dtype)
        return Found(shape, dtype, str(metadata.dtype), lambda: self._value(metadata.name, shape, dtype))

    def _value(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        kvstore: dict[str, Any] = {"driver": "file", "path": os.path.join(self._path, name) + "/"}
        if os.path.exists(os.path.join(self._path, "manifest.ocdbt")):
            kvstore = {"driver": "ocdbt", "base": f"file://{self._path}/", "path": name + "/"}
        elif ".." in name.split("/") or os.path.isabs(name):
            raise ValueError(f"{self._path}: {name!r} leads out of the checkpoint")
        nbytes = math.prod(shape) * dtype.itemsize

        def arrived(future: Any) -> Any:
            try:
                return future.result()
            except Exception as error:  # TensorStore's exceptions
                raise ValueError(f"{self._path}: cannot read {name!r}: {error}") from error

        @functools.cache
        def opened() -> Any:
            spec = {"driver": self._driver, "kvstore": kvstore, "fill_missing_data_reads": not self._holds_all}
            array = arrived(self._reading.opened(spec))
            if tuple(array.shape) != shape or array.dtype.numpy_dtype != dtype:
                raise ValueError(f"{self._path}: {name!r} is not of the type that the checkpoint says it is of")
            return array

        def whole() -> np.ndarray:
            return arrived(opened().read())

        rows = _RowsOfStore(opened, arrived, nbytes, self._reading)
        if not is_worth_fetching(dtype, nbytes):
            return whole()
        return Fetched(shape, dtype, whole, rows.pieces, rows.start) if shape else Fetched(shape, dtype, whole)


class _Reading:
    """How TensorStore reads a checkpoint, and the memory that this takes.

    Chunks are decoded in its threads, and whole chunks only: where an array is one chunk, as Orbax saves it, several
    arrays are read at a time to keep all processors busy. Pieces are read into memory that is used again, since memory
    that the system gives for the first time costs as much as decoding.
    """

    MEMORY = 800 << 20  # bytes of the piece that is written and of those that are being read

    def __init__(self, tensorstore: Any) -> None:
        self._tensorstore = tensorstore
        context = {"cache_pool": {"total_bytes_limit": 0}}
        try:  # without a copy of the encoded data; older versions of TensorStore do not have it
            self._context = tensorstore.Context({**context, "file_io_mode": {"mode": "memmap"}})
            self._each = 2  # times its size while a piece is read: decoded, and where it goes
        except ValueError:
            self._context = tensorstore.Context(context)
            self._each = 3  # encoded as well
        self._taken = 0  # bytes of what is being read
        self._free: list[np.ndarray] = []  # memory of pieces that were written, the last one last

    def opened(self, spec: dict[str, Any]) -> Any:
        return self._tensorstore.open(spec, read=True, open=True, context=self._context)

    def has_room(self, nbytes: int) -> bool:
        free = sum(memory.nbytes for memory in self._free) - (nbytes if self._fitting(nbytes) else 0)
        return self._taken + free + self._each * nbytes + nbytes <= self.MEMORY

    def _fitting(self, nbytes: int) -> list[int]:
        return [index for index, memory in enumerate(self._free) if memory.nbytes == nbytes]

    def begun(self, array: Any) -> tuple[np.ndarray, Any]:
        """Where the numbers will be, and when."""
        dtype = array.dtype.numpy_dtype
        nbytes = math.prod(array.shape) * dtype.itemsize
        self._taken += self._each * nbytes
        fitting = self._fitting(nbytes)
        memory = self._free.pop(fitting[0]) if fitting else _pages(nbytes)
        target = memory.view(dtype).reshape(array.shape)
        return target, self._tensorstore.array(target).write(array)

    def ended(self, target: np.ndarray) -> None:
        self._taken -= self._each * target.nbytes

    def free(self, target: np.ndarray) -> None:
        """Its numbers are written."""
        self._free = [*self._free[-1:], target.reshape(-1).view(np.uint8)]


def _pages(nbytes: int) -> np.ndarray:
    """Memory from the start of a page on, which the core hands to the disk as it is."""
    memory = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
    first = -memory.ctypes.data % mmap.PAGESIZE
    return memory[first : first + nbytes]


class _RowsOfStore:
    """Pieces of a TensorStore array; the next ones are read while one is written."""

    def __init__(
        self, opened: Callable[[], Any], arrived: Callable[[Any], np.ndarray], nbytes: int, reading: _Reading
    ) -> None:
        self._opened, self._arrived, self._nbytes, self._reading = opened, arrived, nbytes, reading
        self._coming: tuple[int, np.ndarray, Any] | None = None  # the first row, where they go, and the pending read

    @functools.cached_property
    def _step(self) -> int:
        """A chunk is always read as a whole, so pieces end where chunks end."""
        array = self._opened()
        rows = array.shape[0]
        chunk = min(array.chunk_layout.read_chunk.shape[0] or 1, rows)
        return min(max(PIECE * rows // self._nbytes // chunk, 1) * chunk, rows)

    def _begin(self, first: int) -> None:
        array = self._opened()
        part = array[first : min(first + self._step, array.shape[0])].translate_to[0]
        self._coming = (first, *self._reading.begun(part))

    def _begin_if_room(self, first: int) -> None:
        rows = self._opened().shape[0]
        if first < rows and self._coming is None and self._reading.has_room(self._nbytes * self._step // rows):
            self._begin(first)

    def _give_up(self) -> None:
        """What was read ahead when somebody stopped before the last piece."""
        if self._coming is not None:
            self._reading.ended(self._coming[1])
            self._coming = None

    def start(self, distance: int) -> None:
        """TensorStore decodes several chunks at a time by itself."""
        if distance == 1 or self._step >= self._opened().shape[0]:
            self._begin_if_room(0)

    def pieces(self) -> Iterator[np.ndarray]:
        for first in range(0, self._opened().shape[0], self._step):
            if self._coming is None or self._coming[0] != first:
                self._give_up()
                self._begin(first)
            assert self._coming is not None
            _, here, pending = self._coming
            self._coming = None
            try:
                self._arrived(pending)
            finally:
                self._reading.ended(here)
            self._begin_if_room(first + self._step)
            yield here
            self._reading.free(here)


def _is_array_metadata(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and hasattr(leaf, "name")


# ---- which weights are needed ----


def used_inputs(jaxpr: Any, count: int) -> list[bool]:
    """Which of the first inputs a program needs to compute its results."""
    live = {variable for variable in jaxpr.outvars if not hasattr(variable, "val")}
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(variable in live for variable in equation.outvars):
            live.update(variable for variable in equation.invars if not hasattr(variable, "val"))
    return [variable in live for variable in jaxpr.invars[:count]]
