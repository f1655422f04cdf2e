"""Arrays whose bytes are fetched one piece at a time when the model is written, and not kept.

JAX keeps a copy of an array that was fetched to the host for as long as the array lives. Arrays on other devices are
therefore fetched as new arrays, which are freed once they are written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

SMALLEST = 1 << 20  # bytes: anything smaller is fetched at once
# Bytes of an array that are in the host's memory at a time; as many are in transit. Memory of this size is reused for
# the next piece; larger pieces are requested from the system each time, which takes longer than the copy.
PIECE = 16 << 20


class Fetched:
    """What the core calls: for the whole array, for consecutive pieces, or to have it fetched ahead of time."""

    __slots__ = ("_pieces", "_start", "_whole", "dtype", "nbytes", "shape")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        whole: Callable[[], Any],
        pieces: Callable[[], Iterator[Any]] | None = None,
        start: Callable[[int], None] | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self._whole, self._pieces, self._start = whole, pieces, start

    def whole(self) -> np.ndarray:
        return np.asarray(self._whole(), order="C")

    def pieces(self) -> Iterator[np.ndarray]:
        if self._pieces is None:
            yield self.whole()
            return
        for piece in self._pieces():
            yield np.asarray(piece, order="C")

    def start(self, distance: int) -> None:
        """It is wanted next (1), or after the next one (2)."""
        if self._start is not None:
            self._start(distance)

    def place(self, file: bytes, offset: int) -> bool:
        """Whether other processes write it to the file of that name."""
        return False

    def settle(self) -> None:
        """Wait until everything that was placed is written."""


def is_worth_fetching(dtype: Any, nbytes: int) -> bool:
    """Small arrays are not; arrays with several elements per byte are packed in memory."""
    return nbytes >= SMALLEST and np.dtype(dtype).name not in ("int4", "uint4", "int2", "uint2")


def from_devices(array: jax.Array) -> Fetched | None:
    """For an array that is not in the host's memory; None for one that is, which is read in place."""
    if not array.is_fully_addressable:
        return _in_several_processes(array)
    if array.nbytes < SMALLEST or not is_worth_fetching(array.dtype, array.nbytes):
        return None
    devices = array.sharding.device_set
    if len(devices) == 1 and next(iter(devices)) == _host():
        return None
    source = _Devices(array)
    return Fetched(array.shape, array.dtype, source.whole, source.pieces, source.start)


# How to get the parts of an array that other processes hold, while all of them export one model.
elsewhere: ContextVar[Callable[[jax.Array], Fetched] | None] = ContextVar("jax2onnx_elsewhere", default=None)


def _in_several_processes(array: jax.Array) -> Fetched:
    if is_whole_in(array, jax.process_index()):
        source = _Devices(array)
        return Fetched(array.shape, array.dtype, source.whole, source.pieces, source.start)
    get = elsewhere.get()
    if get is None:
        raise ValueError("an array of which other processes have parts can be a weight of the model, and nothing else")
    return get(array)


Place = tuple[tuple[int, int], ...]


def _place(index: tuple[slice, ...], shape: tuple[int, ...]) -> Place:
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def is_whole_in(array: jax.Array, process: int) -> bool:
    """Whether the devices of a process hold all of an array. Every process gets the same answer."""
    places = array.sharding.devices_indices_map(array.shape)
    every = {_place(index, array.shape) for index in places.values()}
    there = {_place(index, array.shape) for device, index in places.items() if device.process_index == process}
    return every == there


def own_parts(array: jax.Array) -> Iterator[tuple[Place, np.ndarray]]:
    """The parts of an array that this process holds and no other one writes, one piece at a time: the place and the
    numbers."""
    for shard in array.addressable_shards:
        if shard.replica_id != 0:
            continue
        place = _place(shard.index, array.shape)
        first = 0
        for piece in _Devices(shard.data).pieces():
            if not place:
                yield place, piece
                continue
            rows = (place[0][0] + first, place[0][0] + first + piece.shape[0])
            yield (rows, *place[1:]), piece
            first += piece.shape[0]


def _host() -> Any:
    return jax.local_devices(backend="cpu")[0]


def _is_in_host_memory(shard: jax.Array) -> bool:
    """The processor may be several devices that share one memory."""
    return all(device.platform == "cpu" for device in shard.devices())


def _on_its_way(data: jax.Array) -> jax.Array:
    """A new array that is in transit to the host. Memory that the device itself can write to is by far the fastest: 26
    GB/s from an H200, compared with 0.7 to 7 for other memory."""
    (device,) = data.devices()
    if any(memory.kind == _PINNED for memory in device.addressable_memories()):
        return jax.device_put(data, jax.sharding.SingleDeviceSharding(device, memory_kind=_PINNED))
    return jax.device_put(data, _host())


_PINNED = "pinned_host"


class _Devices:
    """Pieces of an array on its devices: blocks of rows, each assembled from the shards that hold it."""

    def __init__(self, array: jax.Array) -> None:
        self._shape, self._dtype = array.shape, array.dtype
        found: dict[tuple[tuple[int, int], ...], Any] = {}
        for shard in array.addressable_shards:
            found.setdefault(_place(shard.index, array.shape), shard.data)
        self._shards = list(found.items())
        self._blocks = self._divide(array.nbytes)
        self._first: list[Any] | None = None

    def _divide(self, nbytes: int) -> list[tuple[int, int]]:
        """The rows of each piece: no more than fit, and never across the border of two shards."""
        if not self._shape:
            return [(0, 1)]
        rows = self._shape[0]
        step = max(1, PIECE * rows // nbytes)
        borders = {0, rows} | {border for place, _ in self._shards for border in place[0]}
        blocks = []
        for low, high in itertools.pairwise(sorted(borders)):
            blocks += [(first, min(first + step, high)) for first in range(low, high, step)]
        return blocks

    def start(self, distance: int) -> None:
        if distance == 1 and self._first is None and self._blocks:
            self._first = self._bring(self._blocks[0])

    def pieces(self) -> Iterator[np.ndarray]:
        self.start(1)
        coming, self._first = self._first, None
        for index, block in enumerate(self._blocks):
            assert coming is not None
            here = coming
            coming = self._bring(self._blocks[index + 1]) if index + 1 < len(self._blocks) else None
            yield self._joined(block, here)
            del here

    def whole(self) -> np.ndarray:
        result = np.empty(self._shape, self._dtype)
        flat, at = result.reshape(-1), 0
        for piece in self.pieces():
            flat[at : at + piece.size] = piece.reshape(-1)
            at += piece.size
        return result

    def _bring(self, block: tuple[int, int]) -> list[tuple[tuple[tuple[int, int], ...], Any]]:
        """Start fetching what the shards hold of a block to the host, without waiting."""
        parts = []
        for place, data in self._shards:
            if self._shape:
                low, high = place[0]
                if high <= block[0] or low >= block[1]:
                    continue
                if _is_in_host_memory(data):
                    parts.append((place, np.asarray(data)[block[0] - low : block[1] - low]))
                    continue
                if (low, high) != block:
                    data = jax.lax.dynamic_slice_in_dim(data, block[0] - low, block[1] - block[0])
            parts.append((place, _on_its_way(data)))
        return parts

    def _joined(self, block: tuple[int, int], parts: list[Any]) -> np.ndarray:
        if len(parts) == 1:
            return np.asarray(parts[0][1])
        piece = np.empty((block[1] - block[0], *self._shape[1:]), self._dtype)
        for place, data in parts:
            piece[(slice(None), *(slice(*part) for part in place[1:]))] = np.asarray(data)
        return piece
