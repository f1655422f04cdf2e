"""Which module of a model was running when an equation was recorded.

JAX asks its current context for the name stack of every equation it records. While a model is traced for an export,
that context is one of ours: it searches the Python frames of the traced function for the innermost method of a part of
the model, and puts a mark for that part on the name stack, beside the scopes that users name. No library is modified,
and the jaxpr is the same as without the marks.

Of a trace that is nested in another (``jit``, ``scan``, …), only its own frames are searched, as JAX does with
tracebacks: JAX caches such programs and may reuse them for another part. A part in such a trace is often a copy that
JAX or a library has rebuilt from its leaves; the surrounding frames show which part it is a copy of.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import sys
import types
import weakref
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import source_info_util
from jax._src.source_info_util import NameStack, Scope, SourceInfo

from jax2onnx import _core
from jax2onnx._door.jax_types import is_jax_file, is_users_file
from jax2onnx._door.parameters import (
    Path,
    Steps,
    array_identity,
    find_arrays,
    find_parts,
    is_variable_class,
    module_path,
    name_parameters,
    own_attribute,
    own_module_path,
    way_to_the_model,
)

_MODULE_BASES = frozenset(("Module", "Layer", "Model"))  # names that libraries give to the class of their modules
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
_MOST_FRAMES, _MOST_OBJECTS, _MOST_HELD = 200, 4000, 16  # visited to find the original of a copy


class Part:
    """A part of a model on JAX's name stack. It does not hold the part itself, because JAX caches what it traced."""

    __slots__ = ("classes", "homes", "own", "path", "reference", "text")

    def __init__(self, item: Any, path: Path) -> None:
        bases = itertools.takewhile(lambda base: base.__name__ not in _MODULE_BASES, type(item).__mro__[1:-1])
        kinds = (type(item), *bases)
        self.classes = tuple(kind.__qualname__ for kind in kinds)
        self.homes = tuple(_home(kind) for kind in kinds)
        self.path = path
        self.own = own_module_path(item)  # the path that the part itself reports
        self.text: str | None = None  # its name in the export for which it was made
        try:
            self.reference: Any = weakref.ref(item)
        except TypeError:
            self.reference = None

    def wrap(self, stack: list[str]) -> None:
        """What JAX asks of an element when it prints a name stack."""

    def described(self) -> tuple[str, str, tuple[str, ...]]:
        return (self.text or "", self.classes[0], self.homes)


class UserScope(NamedTuple):
    """A scope of the user (``jax.named_scope``) on JAX's name stack, and the part that was running when it began."""

    name: str
    part: Part | None

    def wrap(self, stack: list[str]) -> None:
        """What JAX asks of an element when it prints a name stack."""
        stack.append(self.name)


@functools.lru_cache(maxsize=4096)
def is_module_class(kind: type) -> bool:
    """Whether objects of this class are modules: the user's classes, and what libraries call modules or layers."""
    if issubclass(kind, (jax.Array, np.ndarray, type, types.FunctionType, types.MethodType, functools.partial)):
        return False
    if is_variable_class(kind):
        return False
    for base in kind.__mro__[:-1]:
        module = sys.modules.get(base.__module__)
        file = getattr(module, "__file__", None)
        if base.__module__ != "builtins" and (
            module is None or (is_users_file(file) if file else module_is_main(module))
        ):
            return True
        if base.__name__ in _MODULE_BASES:
            return not kind.__name__.startswith("_")  # a library's wrapper around a function is not a part
    return False


@functools.lru_cache(maxsize=4096)
def _home(kind: type) -> str:
    """``Class@package.module``, by which the methods of a class are told from those of another with its name: Keras has
    a layer and an operation called ReLU. Without the module if the methods are in another file than its own."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    codes = (getattr(inspect.unwrap(method), "__code__", None) for method in vars(kind).values() if callable(method))
    own = file is not None and any(code is not None and code.co_filename == file for code in codes)
    return f"{kind.__qualname__}@{kind.__module__}" if own else kind.__qualname__


def module_is_main(module: types.ModuleType) -> bool:
    return module.__name__ == "__main__" or not hasattr(module, "__spec__") or module.__spec__ is None


def _is_method(code: types.CodeType) -> bool:
    """Whether this may be a method, with its object as the first argument."""
    if not code.co_argcount or is_jax_file(code.co_filename):
        return False
    if code.co_filename.startswith(_STANDARD_LIBRARY + os.sep) and "site-packages" not in code.co_filename:
        return False
    holder, _, _ = code.co_qualname.rpartition(".")
    return bool(holder) and not holder.endswith("<locals>")  # it is defined in a class


class _Context(SourceInfo):
    """JAX's context while a model is traced."""

    __slots__ = ("boundary", "recording")

    def __init__(
        self, traceback: Any, name_stack: NameStack, recording: Recording, boundary: types.FrameType | None
    ) -> None:
        super().__init__(traceback, name_stack)
        self.recording = recording
        self.boundary = boundary

    def replace(self, *, traceback: Any = None, name_stack: NameStack | None = None) -> SourceInfo:
        recording, boundary = self.recording, self.boundary
        if name_stack is None:  # an equation is recorded
            part = recording.running(boundary)
            return SourceInfo(traceback or self.traceback, recording.extended(self.name_stack, part))
        if traceback is not None:  # an equation is recorded again, by a transformation
            if not any(type(element) is Part for element in name_stack.stack):
                part = recording.running(boundary)
                name_stack = name_stack if part is None else NameStack((part, *name_stack.stack))
        elif not name_stack.stack:  # a nested trace begins
            boundary = _tracing_frame(sys._getframe(1))
        elif type(name_stack.stack[-1]) is Scope:
            opener, outer = _opener(sys._getframe(1)), name_stack.stack[:-1]
            if opener is not None and is_users_file(opener):
                scope = UserScope(name_stack.stack[-1].name, recording.running(boundary))
                name_stack = NameStack((*outer, scope))
            elif opener is not None and opener.startswith(_array_functions()):
                name_stack = NameStack(outer)  # not a part of a model: jnp.einsum names its computations
        return _Context(self.traceback if traceback is None else traceback, name_stack, recording, boundary)


def _tracing_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """The function that begins a trace, outside the context managers that it enters."""
    hidden = (source_info_util.__file__, contextlib.__file__)
    while frame is not None and frame.f_code.co_filename in hidden:
        frame = frame.f_back
    return frame


def _opener(frame: types.FrameType | None) -> str | None:
    """The file whose code opened a scope."""
    hidden = (source_info_util.__file__, contextlib.__file__, _scope_file())
    while frame is not None and frame.f_code.co_filename in hidden:
        frame = frame.f_back
    return None if frame is None else frame.f_code.co_filename


@functools.cache
def _array_functions() -> str:
    """The folder of the functions of ``jax.numpy``. Other code of JAX calls what a user has given a scope."""
    return os.path.dirname(inspect.getfile(inspect.unwrap(jax.numpy.einsum))) + os.sep


@functools.cache
def _scope_file() -> str:
    return inspect.getfile(inspect.unwrap(jax.named_scope))


class Recording:
    """The parts of one model, and those of them that were seen running."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.shared: Steps | None = None  # the steps from the function to the model
        self.parts: dict[int, Part | None] = {}
        self.kept: list[Any] = []  # so that their addresses are not reused
        self.by_class: dict[type, list[tuple[Any, Part]]] = {}
        self.owners: dict[type, dict[Hashable, Part]] = {}  # of the arrays held by parts of a class, found on demand
        for item, path in find_parts(fn, is_module_class, None):
            part = self.parts[id(item)] = Part(item, path)
            self.by_class.setdefault(type(item), []).append((item, part))
        self.structure = _structure(self.parts.values())
        self._recorder = _core.Recorder(self.parts, _is_method, is_module_class, self._find)
        self.running = self._recorder.running
        self._last: tuple[Any, Any, Any] = (None, None, None)
        self._outside: types.FrameType | None = None  # the frame of the tracing

    def extended(self, name_stack: NameStack, part: Part | None) -> NameStack:
        before, running, result = self._last
        if part is None:
            return name_stack
        if before is not name_stack or running is not part:
            result = NameStack((*name_stack.stack, part))
            self._last = (name_stack, part, result)
        return result

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Inside this block, equations record the part that was running."""
        from jax.experimental.xla_metadata import set_xla_metadata

        local = source_info_util._source_info_context
        before = local.context
        self._outside = sys._getframe(2)
        local.context = _Context(before.traceback, before.name_stack, self, self._outside)
        try:
            # Part of the key of JAX's trace cache: no program of a model that is built otherwise is mistaken for this.
            with set_xla_metadata(jax2onnx_modules=self.structure):
                yield
        finally:
            local.context = before
            self._outside = None
            self._recorder.forget()

    def originals(self) -> Iterator[Any]:
        """The parts of the model before it is traced."""
        return (item for known in self.by_class.values() for item, _ in known)

    def again(self) -> Recording:
        """For another trace of the same model. JAX may have cached programs of this one, with copies of parts."""
        other = Recording(self.fn)
        other.kept = self.kept
        for address, part in self.parts.items():
            other.parts.setdefault(address, part)
        return other

    # Parts that are made during the trace

    def _find(self, item: Any) -> None:
        if id(item) in self.parts:
            return
        self.kept.append(item)
        self.parts[id(item)] = None
        if own_module_path(item) is not None:
            self.parts[id(item)] = Part(item, None)
            return
        known = self.by_class.get(type(item), [])
        if len(known) == 1:
            self._adopt(item, known[0][1].path)
        else:
            self._find_in_frames(item)

    def _adopt(self, root: Any, path: Path) -> list[tuple[Any, Part]]:
        """The parts of a copy get the names that they have in the original."""
        adopted = []
        for item, inner in find_parts(root, is_module_class, path):
            if self.parts.get(id(item)) is None:
                self.kept.append(item)
                part = self.parts[id(item)] = Part(item, inner)
                adopted.append((item, part))
        return adopted

    def _find_in_frames(self, item: Any) -> None:
        """The nearest frame that holds the original, or its arrays, or a copy that the item is a piece of, decides. A
        model that was built inside the function is a separate model."""
        holder, model_runs = item, False
        held: dict[int, bool] = {}  # whether a value holds the item: a method's object is in many frames
        frames = list(_frames_around(self._outside))
        self._find_single_copies(frames)
        if self.parts.get(id(item)) is not None:
            return
        for frame in frames:
            values = list(self._modules_of(frame))
            unknown = (value for value in values if value is not item and id(value) not in self.parts)
            holder = next((value for value in unknown if _holds(value, item, held)), holder)
            if type(holder) in self.by_class and holder is not item:
                self._find(holder)
                if self.parts.get(id(item)) is not None:
                    return
            parts = [part for value in values if (part := self.parts.get(id(value)))]
            model_runs = model_runs or bool(parts)
            original = next((part for part in parts if part.classes[0] == type(item).__qualname__), None)
            original = original or self._owner(frame, type(item))
            if original is not None:
                self._adopt(item, original.path)
                return
        if not model_runs and type(item) not in self.by_class:
            for part in self._adopt(holder, None):  # these are copied too
                self.by_class.setdefault(type(part[0]), []).append(part)

    def _find_single_copies(self, frames: list[types.FrameType]) -> None:
        """A copy of the whole model holds the copies that inner frames have taken from it."""
        for frame in frames:
            for value in list(frame.f_locals.values()):
                if len(self.by_class.get(type(value), ())) == 1:
                    self._find(value)

    def _modules_of(self, frame: types.FrameType) -> Iterator[Any]:
        """The modules among a frame's variables and just inside them, except those of a known part."""
        values = list(frame.f_locals.values())
        yield from (value for value in values if is_module_class(type(value)))
        for value in values:
            if self.parts.get(id(value)) is None:
                yield from self._modules_in(value, 2)

    def _modules_in(self, value: Any, depth: int) -> Iterator[Any]:
        for child in _held(value):
            if is_module_class(type(child)):
                yield child
            if depth > 1 and self.parts.get(id(child)) is None:
                yield from self._modules_in(child, depth - 1)

    def _owner(self, frame: types.FrameType, kind: type) -> Part | None:
        """The only part of this class whose arrays are among a frame's variables."""
        if kind not in self.by_class:
            return None
        if kind not in self.owners:
            owners = self.owners[kind] = {}
            for item, part in self.by_class[kind]:
                for array in find_arrays(item):
                    owners.setdefault(array, part)
        known, found = self.owners[kind], None
        for value in list(frame.f_locals.values()):
            for leaf in _leaves(value):
                part = known.get(array_identity(leaf)) if isinstance(leaf, (jax.Array, np.ndarray)) else None
                if part is not None and found not in (None, part):
                    return None
                found = part or found
        return found

    # Names

    def name_parameters(self, arrays: list[Any]) -> list[str | None]:
        """For each array its path in the model; None if it is not part of it."""
        names, shared = name_parameters(self.fn, arrays)
        if any(names):
            self.shared = shared
        return names

    def name_modules(self, parts: list[Part]) -> list[tuple[str, str, tuple[str, ...]] | None]:
        """For each part that was running, its path in the model, its class and the bases of that class; None if it
        belongs to another model. Then the same for the parts that contain these."""
        own = [part for part in self.parts.values() if part is not None]
        present = [self._present(part) for part in parts]
        if self.shared is None:
            self.shared = way_to_the_model(part.path for part in present if part is not None and part.own is None)
        for part in own:
            part.text = self._text(part)
        places = {part.text: part for part in reversed(own)}
        named = [now or _at_its_place(part, places) for part, now in zip(parts, present, strict=True)]
        running = {part.text for part in named if part is not None}
        holders = {holder for text in running for holder in _holders(text or "")} - running
        found = sorted(holders & places.keys())
        return [part and part.described() for part in (*named, *(places[text] for text in found))]

    def _text(self, part: Part) -> str:
        if part.path is None and part.reference is not None and part.reference() is self.fn:
            return ""  # the model itself
        return part.own if part.own is not None else module_path(part.path, self.shared or ())

    def _present(self, part: Part) -> Part | None:
        """The corresponding part of this export: JAX may have cached the program of an earlier one."""
        item = part.reference() if part.reference is not None else None
        return self.parts.get(id(item)) if item is not None else None


def _structure(parts: Iterable[Part | None]) -> str:
    """The same for models with equal parts at equal places."""
    return str(hash(tuple((part.path, part.classes[0]) for part in parts if part is not None)))


def _at_its_place(part: Part, places: dict[str | None, Part]) -> Part | None:
    """A part that no longer exists, in a cached program: it is this model's unless another class has its place."""
    now = places.get(part.text)
    return part if now is None else now if now.classes == part.classes else None


def _holders(path: str) -> Iterator[str]:
    """The paths of everything that contains a part, including the model itself."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def _frames_around(outside: types.FrameType | None) -> Iterator[types.FrameType]:
    """The frames of the traced function and what it calls, innermost first."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    for _ in range(_MOST_FRAMES):
        if frame is None or frame is outside:
            return
        yield frame
        frame = frame.f_back


def _held(value: Any) -> Iterable[Any]:
    """What a container, a function or the wrapper of a function holds, if it is short."""
    if isinstance(value, (jax.Array, np.ndarray, jax.core.Tracer, str, type, types.ModuleType)):
        return ()
    if isinstance(value, tuple):
        return value[:_MOST_HELD]
    if type(value) is dict:
        return list(value.values())[:_MOST_HELD]
    if isinstance(value, functools.partial):
        return (value.func, *value.args[:_MOST_HELD])
    if isinstance(value, types.MethodType):
        return (value.__self__,)
    if isinstance(value, types.FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
    state = own_attribute(value, "__dict__")
    return list(state.values())[:_MOST_HELD] if isinstance(state, dict) else ()


def _leaves(value: Any) -> list[Any]:
    if not isinstance(value, (tuple, list, dict)):
        return []
    try:
        return jax.tree.leaves(value)[:_MOST_OBJECTS]
    except Exception:  # JAX cannot flatten it, or a class fails to
        return []


def _holds(value: Any, item: Any, known: dict[int, bool]) -> bool:
    if id(value) not in known:
        parts = find_parts(value, is_module_class, None, _MOST_OBJECTS)
        known[id(value)] = any(part is item for part, _ in parts)
    return known[id(value)]
