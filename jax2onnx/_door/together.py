"""One model exported by several processes of ``jax.distributed``, each of which holds a part of the weights.

All of them call ``to_onnx``. Process 0 makes the model. At its request, the others write their parts of a weight to a
place in a file of the shared folder. That is the tensor file itself or, for a weight that a pass reads, a file that is
removed once it has been read. The processes communicate through the store of JAX's own runtime. A process that fails
reports it, and a process that is silent for too long counts as dead; either ends the export in all processes before its
commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import mmap
import os
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jax2onnx._door.fetching import Fetched, Place, elsewhere, is_whole_in, own_parts
from jax2onnx._door.settings import process_timeout, sync

_BEAT = 0.5  # seconds between two signs of life
_WAIT = 0.02  # seconds between two looks at the store
_FAREWELL = 5.0  # seconds that a failed process 0 waits for the others to learn of it
_LONGER = 10  # times the timeout for a process that has not arrived yet: it may still be tracing


class ProcessError(RuntimeError):
    """Another process failed to do its part."""


@contextlib.contextmanager
def together(jaxpr: Any, bound: Any, path: str | None) -> Iterator[Company | None]:
    """Enclose the conversion; None if every process holds all the weights and exports by itself."""
    arrays = _spread_arrays(jaxpr, bound) if jax.process_count() > 1 else []
    if not arrays:
        yield None
        return
    if path is None:
        raise ValueError(
            "the weights are spread over several processes, which write one model together only to a file: give "
            "output_path, in a folder that all of them share"
        )
    company = (_Leader if jax.process_index() == 0 else _Follower)(arrays, os.path.abspath(path))
    token = elsewhere.set(company.fetched)
    try:
        with company.alive():
            yield company
    finally:
        elsewhere.reset(token)


def _spread_arrays(jaxpr: Any, bound: Any) -> list[jax.Array]:
    """The weights of which some process lacks a part, in the same order in every process."""
    found: dict[int, jax.Array] = {}
    values = [value for _, value in bound or () if isinstance(value, jax.Array)]
    for array in [*values, *_constants(jaxpr)]:
        if not array.is_fully_addressable and not all(is_whole_in(array, p) for p in range(jax.process_count())):
            found.setdefault(id(array), array)
    return list(found.values())


def _constants(jaxpr: Any) -> Iterator[jax.Array]:
    """All constants, including those of nested programs, each program once."""
    seen: set[int] = set()
    left = [jaxpr]
    while left:
        item = left.pop()
        if isinstance(item, (list, tuple)):
            left += item
            continue
        equations = getattr(getattr(item, "jaxpr", item), "eqns", None)
        if equations is None or id(item) in seen:
            continue
        seen.add(id(item))
        yield from (array for array in getattr(item, "consts", ()) if isinstance(array, jax.Array))
        for equation in equations:
            left += equation.params.values()


class Company:
    """What leader and followers share: the arrays, the store, and the signs of life."""

    leads = False

    def __init__(self, arrays: list[jax.Array], path: str) -> None:
        from jax._src import distributed

        self._arrays = arrays
        self._numbers = {id(array): number for number, array in enumerate(arrays)}
        self._folder = os.path.dirname(path)
        self._store = distributed.global_state.client
        self._others = [process for process in range(jax.process_count()) if process != jax.process_index()]
        self._base = "jax2onnx/" + hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._patience = process_timeout()
        self._id = ""
        self._seen: dict[str, tuple[str, float]] = {}  # the last sign of life of each process, and when it arrived
        self._over = threading.Event()

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Begins when all processes have arrived; any error inside is reported to the others."""
        self._begin()
        beating = threading.Thread(target=self._beat, name="jax2onnx-beat", daemon=True)
        beating.start()
        try:
            yield
            self._finish(None)
        except BaseException as error:
            with contextlib.suppress(Exception):  # the first error is the one to report
                self._finish(f"{type(error).__name__}: {error}")
            raise
        finally:
            self._over.set()
            beating.join()

    def _begin(self) -> None:
        raise NotImplementedError

    def _finish(self, trouble: str | None) -> None:
        raise NotImplementedError

    def serve(self) -> None:
        raise NotImplementedError

    def _key(self, *steps: object) -> str:
        return "/".join([self._base, self._id, *map(str, steps)])

    def _say(self, text: str, *steps: object) -> None:
        self._store.key_value_set(self._key(*steps), text, allow_overwrite=True)

    def _beat(self) -> None:
        count = 0
        while not self._over.wait(_BEAT):
            count += 1
            try:
                self._say(str(count), "alive", jax.process_index())
            except Exception:  # the store is gone, which every process that waits for it will notice
                return

    def _heard(self, *steps: object) -> dict[str, str]:
        """Everything that was stored under this key, by the last step."""
        return {key.rpartition("/")[2]: text for key, text in self._store.key_value_dir_get(self._key(*steps) + "/")}

    def _check(self) -> None:
        """Fail if another process has failed or no longer shows signs of life."""
        now = time.monotonic()
        beats = self._heard("alive")
        for process in self._others:
            beat = beats.get(str(process), "")
            last, since = self._seen.setdefault(str(process), (beat, now))
            if beat != last:
                self._seen[str(process)] = (beat, now)
            elif now - since > self._patience:
                raise ProcessError(f"process {process} has not been heard of for {self._patience:g} seconds")
        for process, trouble in sorted(self._heard("failed").items()):
            if process != str(jax.process_index()):
                raise ProcessError(f"process {process} has failed: {trouble}")

    def fetched(self, array: jax.Array) -> Fetched:
        raise NotImplementedError

    def _fingerprint(self) -> str:
        types = [(array.shape, str(array.dtype)) for array in self._arrays]
        return hashlib.sha256(repr(types).encode()).hexdigest()[:16]

    def _write(self, number: int, file: str, offset: int) -> None:
        """Write this process's parts of an array to a file of the folder, in which the array begins at the offset."""
        array = self._arrays[number]
        opened = os.open(os.path.join(self._folder, file), os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            for place, piece in own_parts(array):
                _write_box(opened, offset, array.shape, place, np.ascontiguousarray(piece))
            if sync():
                os.fsync(opened)
        finally:
            os.close(opened)


def _write_box(file: int, offset: int, shape: tuple[int, ...], place: Place, piece: np.ndarray) -> None:
    """Write a box of an array, with one write for each contiguous row."""
    axis = len(shape)
    while axis > 0 and place[axis - 1] == (0, shape[axis - 1]):
        axis -= 1
    axis = max(axis - 1, 0)  # from this axis on, of which the box may hold a part, rows are contiguous
    width = piece.dtype.itemsize
    strides = [math.prod(shape[index + 1 :]) for index in range(len(shape))]
    start = sum(low * stride for (low, _), stride in zip(place, strides, strict=True))
    rows = piece.reshape(math.prod(piece.shape[:axis]), -1).view(np.uint8)
    for row, steps in enumerate(np.ndindex(piece.shape[:axis])):
        at = start + sum(step * stride for step, stride in zip(steps, strides, strict=False))
        _write_all(file, memoryview(rows[row]), offset + at * width)


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


class _Follower(Company):
    """Does what process 0 requests until process 0 ends the export."""

    def __init__(self, arrays: list[jax.Array], path: str) -> None:
        super().__init__(arrays, path)
        self._told = False

    def _begin(self) -> None:
        end = time.monotonic() + _LONGER * self._patience
        while not self._joined():
            if time.monotonic() > end:
                raise ProcessError("process 0 does not export this model: all processes must call to_onnx")
            time.sleep(_WAIT)

    def _joined(self) -> bool:
        found = dict(self._store.key_value_dir_get(self._base + "/current/"))
        self._id = next(iter(found.values()), "")
        if not self._id or str(jax.process_index()) in self._heard("failed"):
            return False
        self._say(self._fingerprint(), "joined", jax.process_index())
        return True

    def serve(self) -> None:
        number = 0
        while True:
            self._check()
            said = self._heard("request", number).get("text")
            if said is None:
                time.sleep(_WAIT)
                continue
            request = json.loads(said)
            if "end" in request:
                self._leave(number, request["end"])
                return
            try:
                self._write(request["array"], os.fsdecode(bytes.fromhex(request["file"])), request["offset"])
            except OSError:
                self._learn_of_end(number + 1)  # if process 0 has given up, its files are gone
                raise
            self._say("", "done", number, jax.process_index())
            number += 1

    def _leave(self, number: int, trouble: str | None) -> None:
        self._told = True
        self._say("", "done", number, jax.process_index())
        if trouble is not None:
            raise ProcessError(f"process 0 has failed: {trouble}")

    def _learn_of_end(self, number: int) -> None:
        end = time.monotonic() + _BEAT
        while time.monotonic() < end:
            said = self._heard("request", number).get("text")
            if said is not None and "end" in json.loads(said):
                self._leave(number, json.loads(said)["end"])
            time.sleep(_WAIT)

    def _finish(self, trouble: str | None) -> None:
        if trouble is not None and not self._told:
            self._say(trouble, "failed", jax.process_index())


class _Leader(Company):
    """Makes the model and requests what it lacks from the others."""

    leads = True

    def __init__(self, arrays: list[jax.Array], path: str) -> None:
        super().__init__(arrays, path)
        self._name = os.path.basename(path)
        self._requests = 0

    def _begin(self) -> None:
        self._id = secrets.token_hex(8)
        self._store.key_value_set(f"{self._base}/current/id", self._id, allow_overwrite=True)
        end = time.monotonic() + _LONGER * self._patience
        try:
            while True:
                joined = self._heard("joined")
                missing = [process for process in self._others if str(process) not in joined]
                if not missing:
                    break
                if time.monotonic() > end:
                    raise ProcessError(f"process {missing[0]} does not export this model: all must call to_onnx")
                time.sleep(_WAIT)
            for process in self._others:
                if joined[str(process)] != self._fingerprint():
                    raise ProcessError(f"process {process} exports another model than process 0")
        except BaseException as error:
            with contextlib.suppress(Exception):
                self._finish(f"{error}")
            raise

    def _finish(self, trouble: str | None) -> None:
        self._store.key_value_delete(f"{self._base}/current/id")
        last = self._ask({"end": trouble})
        with contextlib.suppress(ProcessError):  # the export is over; a process that has died since does not matter
            if trouble is None:
                self.wait(last)
            else:
                self._wait_for_farewells(last)
        self._store.key_value_delete(self._key() + "/")

    def _wait_for_farewells(self, last: int) -> None:
        """This process may end soon, and the store with it. Failed and dead processes will not answer."""
        end = time.monotonic() + min(self._patience, _FAREWELL)
        while len(self._heard("done", last) | self._heard("failed")) < len(self._others) and time.monotonic() < end:
            time.sleep(_WAIT)

    def _ask(self, request: dict[str, Any]) -> int:
        number = self._requests
        self._requests += 1
        self._say(json.dumps(request), "request", number, "text")
        return number

    def wait(self, request: int) -> None:
        """Wait until all processes have done what was requested."""
        while len(self._heard("done", request)) < len(self._others):
            self._check()
            time.sleep(_WAIT)

    def put(self, array: jax.Array, file: bytes, offset: int) -> int:
        """Have every process write its parts of the array there; the caller must wait for it."""
        number = self._numbers[id(array)]
        request = self._ask({"array": number, "file": file.hex(), "offset": offset})
        self._write(number, os.fsdecode(file), offset)
        return request

    def gathered(self, array: jax.Array) -> np.ndarray:
        """The whole array, through a file that is removed as soon as it is mapped."""
        if not array.size:
            return np.empty(array.shape, array.dtype)
        # Named like the files that killed exports leave behind, so that the next export removes it.
        name = os.fsencode(f".{self._name}.{secrets.token_hex(8)}.tmp")
        path = os.path.join(self._folder, os.fsdecode(name))
        with open(path, "x+b") as file:
            try:
                _lock(file.fileno())
                file.truncate(array.nbytes)
                self.wait(self.put(array, name, 0))
                mapped = mmap.mmap(file.fileno(), array.nbytes, access=mmap.ACCESS_READ)
            finally:
                os.unlink(path)
        return np.frombuffer(mapped, array.dtype).reshape(array.shape)

    def fetched(self, array: jax.Array) -> Fetched:
        if id(array) not in self._numbers:
            raise ValueError("an array of which other processes have parts can be a weight of the model, nothing else")
        return _Spread(self, array)


def _lock(descriptor: int) -> None:
    """Show that the writer is alive (see src/base/output.h)."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


class _Spread(Fetched):
    """An array of which other processes hold parts."""

    __slots__ = ("_all", "_array", "_leader", "_request")

    def __init__(self, leader: _Leader, array: jax.Array) -> None:
        super().__init__(array.shape, array.dtype, self._gathered)
        self._leader, self._array = leader, array
        self._all: np.ndarray | None = None
        self._request: int | None = None

    def _gathered(self) -> np.ndarray:
        if self._all is None:
            self._all = self._leader.gathered(self._array)
        return self._all

    def place(self, file: bytes, offset: int) -> bool:
        if self._all is not None:
            return False  # a pass has read it, so it is here
        self._request = self._leader.put(self._array, file, offset)
        return True

    def settle(self) -> None:
        if self._request is not None:
            self._leader.wait(self._request)
            self._request = None
