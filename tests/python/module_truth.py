"""Which module was running when each equation was recorded: the truth, found by wrapping the methods of modules,
against the paths that an export records. Run as a program, it compares everything, library by library."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pathlib
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import flax.linen as linen
import jax
import keras
import numpy as np
from flax import nnx
from jax._src import core, source_info_util
from jax.experimental.xla_metadata import set_xla_metadata

import jax2onnx._door.modules as modules
from jax2onnx._door.tracing import trace

BASES = (nnx.Module, eqx.Module, linen.Module, keras.layers.Layer)
TAG = "truth_of_this_test"
_MOST_PLACES = 4  # of one module


# The truth


class Truth:
    """While this is active, methods of modules tell when they run, and equations remember what ran: of the innermost
    trace that they are in, as JAX may use a nested one again elsewhere. Exports look at frames, so none of those that
    are added here is a method's or holds an object of a class of ours."""

    # JAX keeps nested programs, so what is known of their equations is kept too.
    by_info: ClassVar[dict[int, tuple[Any, list[Any]]]] = {}
    by_traceback: ClassVar[dict[int, tuple[Any, list[Any]]]] = {}

    def __init__(self, places: Places) -> None:
        self.places = places
        found = [base for base in BASES if any(isinstance(item, base) for item in places.kept)]
        self.classes = {kind for base in found or BASES for kind in (base, *subclasses(base))} | places.classes
        self.stack: list[Any] = []
        self.begin = [0]  # the height of the stack where each trace that is under way began
        if not self.by_info:
            jax.clear_caches()

    def __enter__(self) -> Truth:
        self.saved = []
        for kind in self.classes:
            for name, method in list(vars(kind).items()):
                if inspect.isfunction(method) and (not name.startswith("__") or name == "__call__"):
                    with contextlib.suppress(AttributeError, TypeError):
                        type.__setattr__(kind, name, self.told(method))
                        self.saved.append((kind, name, method))
        self.current, self.set = source_info_util.current, source_info_util.set_name_stack
        source_info_util.current = self.remembering()
        source_info_util.set_name_stack = self.beginning()
        self.merge, nnx.merge = nnx.merge, self.merging(nnx.merge, self.places)
        return self

    def __exit__(self, *error: Any) -> None:
        source_info_util.current, source_info_util.set_name_stack = self.current, self.set
        nnx.merge = self.merge
        for kind, name, method in self.saved:
            type.__setattr__(kind, name, method)

    def told(self, method: Callable[..., Any]) -> Callable[..., Any]:
        begins, ends = self.stack.append, self.stack.pop  # the frame holds nothing that could be taken for a module

        @functools.wraps(method)
        def wrapper(*args: Any, **options: Any) -> Any:
            if not args:
                return method(*args, **options)
            begins(args[0])
            try:
                return method(*args, **options)
            finally:
                ends()

        return wrapper

    def beginning(truth) -> type:
        """JAX begins a nested trace with an empty stack of names. No frame is added: exports look at those."""

        class Beginning(source_info_util.SetNameStackContextManager):
            def __init__(self, name_stack: Any) -> None:
                super().__init__(name_stack)
                truth.begin.append(len(truth.stack) if not name_stack.stack else truth.begin[-1])

            def __exit__(self, *error: Any) -> None:
                super().__exit__(*error)
                truth.begin.pop()

        return Beginning

    @staticmethod
    def merging(merge: Callable[..., Any], places: Places) -> Callable[..., Any]:
        """A model that is put together inside the function: its parts are where they are in it."""
        ways, kept = places.ways, places.kept

        def merged(*args: Any, **options: Any) -> Any:
            model = merge(*args, **options)
            know(model, ways, kept)
            return model

        return merged

    def remembering(self) -> Callable[[], Any]:
        current, stack, begin, by_info, by_traceback = (
            source_info_util.current,
            self.stack,
            self.begin,
            self.by_info,
            self.by_traceback,
        )

        def remembered() -> Any:
            info = current()
            running = stack[begin[-1] :]
            if id(info.traceback) in by_traceback:  # a transformation records it again
                running = running + by_traceback[id(info.traceback)][1]
            else:
                by_traceback[id(info.traceback)] = (info.traceback, running)
            by_info.setdefault(id(info), (info, running))
            return info

        return remembered

    def running(self, equation: Any) -> list[Any]:
        """The modules whose methods ran, outermost first."""
        info = equation.source_info
        if id(info) in self.by_info:
            return self.by_info[id(info)][1]
        return self.by_traceback.get(id(info.traceback), (None, []))[1]


# Where modules are


class Places:
    """Every way to every module of a function, written like the path of a parameter; copies are known by a mark."""

    def __init__(self, fn: Any) -> None:
        self.ways: dict[int, list[str]] = {}
        self.kept: list[Any] = []
        self.fn = fn
        know(fn, self.ways, self.kept)
        above = {base for item in self.kept for base in type(item).__mro__[:-1]}
        self.classes = {base for base in above if is_ours(base)}

    def of(self, item: Any) -> list[str]:
        own = own_place(item)
        if item is self.fn:
            return [""]
        return [own] if own is not None else self.ways.get(id(item)) or marked(item)


def own_place(item: Any) -> str | None:
    """What the libraries say themselves whose modules know where they are."""
    if isinstance(item, linen.Module):
        return ".".join(item.path) if item.scope is not None else None
    if isinstance(item, keras.layers.Layer):
        return (item.path or item.name).replace("/", ".")
    return None


def know(root: Any, ways: dict[int, list[str]], kept: list[Any]) -> None:
    before = len(kept)
    walk(root, "", ways, kept, ())
    for item in kept[before:]:
        mark = "|".join([TAG, type(item).__name__, *ways[id(item)]])
        if isinstance(item, nnx.Module):
            setattr(item, TAG, mark)
        elif isinstance(item, eqx.Module):
            object.__setattr__(item, "__doc__", mark)  # one of the few that copies keep


def marked(item: Any) -> list[str]:
    mark = getattr(item, TAG, None) or (vars(item).get("__doc__") if hasattr(item, "__dict__") else None)
    words = mark.split("|") if isinstance(mark, str) else []
    return words[2:] if words[:2] == [TAG, type(item).__name__] else []  # wrappers take it from what they wrap


def walk(item: Any, way: str, ways: dict[int, list[str]], kept: list[Any], above: tuple[int, ...]) -> None:
    if id(item) in above or len(above) > 12:
        return
    if isinstance(item, (type, types.ModuleType, jax.Array, np.ndarray, str)):
        return
    if is_module(item) and not marked(item):  # else a copy
        known = ways.setdefault(id(item), [])
        if len(known) >= _MOST_PLACES:
            return
        if not known:
            kept.append(item)
        known.append(way)
    for name, child in inside(item):
        walk(child, f"{way}.{name}" if way and name else way or name, ways, kept, (*above, id(item)))


def is_ours(kind: type) -> bool:
    """Written in the tests or the benchmarks: what a user would write."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None) or ""
    return "site-packages" not in file and kind.__module__ not in sys.stdlib_module_names


def is_module(item: Any) -> bool:
    kind = type(item)
    if isinstance(item, (types.FunctionType, types.MethodType, functools.partial, nnx.Variable)):
        return False
    if isinstance(item, BASES):
        return is_ours(kind) or not kind.__name__.startswith("_")  # no wrapper of a library
    return is_ours(kind) and kind.__module__ != "builtins" and (hasattr(item, "__dict__") or hasattr(kind, "__slots__"))


def inside(item: Any) -> list[tuple[str, Any]]:
    if isinstance(item, dict):
        return [(str(key), child) for key, child in item.items()]
    if isinstance(item, (list, tuple)):
        return [(str(at), child) for at, child in enumerate(item)]
    if isinstance(item, functools.partial):
        return [("", item.func), ("", item.args), ("", item.keywords)]
    if isinstance(item, types.MethodType):
        return [("", item.__self__)]
    if isinstance(item, types.FunctionType):
        free = zip(item.__code__.co_freevars, (cell.cell_contents for cell in item.__closure__ or ()), strict=True)
        named = [(name, item.__globals__[name]) for name in item.__code__.co_names if name in item.__globals__]
        held = [(name, child) for name, child in named if is_module(child) or isinstance(child, (list, tuple, dict))]
        wrapped = [("", item.__wrapped__)] if hasattr(item, "__wrapped__") else []
        return [*free, *held, *wrapped]
    if is_module(item):
        slots = [(name, getattr(item, name)) for name in getattr(item, "__slots__", ()) if hasattr(item, name)]
        return [*getattr(item, "__dict__", {}).items(), *slots]
    if isinstance(item, eqx.Module):  # a wrapper
        return [*vars(item).items()]
    if hasattr(item, "__wrapped__"):
        return [("", item.__wrapped__)]
    return []


# What is recorded


def recorded_part(equation: Any) -> modules.Part | None:
    found = [element for element in equation.source_info.name_stack.stack if type(element) is modules.Part]
    return found[-1] if found else None


class Comparison:
    """Equations of a program and of all programs in it, by whether they know the module that was running."""

    def __init__(self, fn: Any, inputs: list[Any]) -> None:
        self.fn = fn
        places = Places(fn)
        # Part of the key under which JAX keeps what it traced: no export takes these programs, whose frames are ours.
        with Truth(places) as truth, set_xla_metadata(module_truth="1"):
            if isinstance(fn, types.MethodType):  # as it is now
                fn = getattr(fn.__self__, fn.__name__)
            closed, _, recording = trace(fn, inputs, {}, None)
        self.right, self.in_modules, self.pairs = 0, 0, []
        self._collect(closed.jaxpr, truth, places, None, None)
        recording.name_parameters(list(closed.consts))
        parts = list(dict.fromkeys(part for _, _, part in self.pairs if part is not None))
        named = recording.name_modules(parts)[: len(parts)]
        paths = {part: name and name[0] for part, name in zip(parts, named, strict=True)}
        shared = self._shared(places, paths)
        self.wrong = []
        for primitive, item, part in self.pairs:
            ways = [] if item is None else [way.removeprefix(shared).removeprefix(".") for way in places.of(item)]
            got = paths.get(part)
            self.in_modules += bool(ways)
            if got in ways or (got is None and not ways):
                self.right += 1
            else:
                self.wrong.append((primitive, type(item).__name__, ways[:2], got))

    def _collect(self, jaxpr: Any, truth: Truth, places: Places, item: Any, part: Any) -> None:
        for equation in jaxpr.eqns:
            known = [other for other in truth.running(equation) if places.of(other)]
            inner_item, inner_part = known[-1] if known else item, recorded_part(equation) or part
            self.pairs.append((equation.primitive.name, inner_item, inner_part))
            for inner in core.jaxprs_in_params(equation.params):
                self._collect(inner, truth, places, inner_item, inner_part)

    def _shared(self, places: Places, paths: dict[Any, str | None]) -> str:
        """The way from the function to the model, which is no part of a path: one for the whole model."""
        found: Counter[str] = Counter()
        for _, item, part in self.pairs:
            got = paths.get(part)
            for way in places.of(item) if item is not None and got is not None else ():
                if way == got or way.endswith(f".{got}") or got == "":
                    found[way[: len(way) - len(got)].rstrip(".")] += 1
        return found.most_common(1)[0][0] if found else ""


def subclasses(kind: type) -> Iterator[type]:
    for inner in type.__subclasses__(kind):
        yield inner
        yield from subclasses(inner)


# Everything there is to compare


def layers_of(library: Any, whole: bool) -> Iterator[tuple[str, Callable[[], tuple[Any, list[Any]]]]]:
    from layer_check import numbers

    for name, case in library.LAYERS.items():
        if whole or " " not in name:
            yield name, lambda case=case: (case.build(), [numbers(text, 2) for text in case.inputs])


def keras_layers(whole: bool) -> Iterator[tuple[str, Callable[[], tuple[Any, list[Any]]]]]:
    import test_keras_export as cases
    from layer_check import numbers

    def build(make: Any, *shapes: Any) -> tuple[Any, list[Any]]:
        dtype = shapes[-1] if isinstance(shapes[-1], str) else "float32"
        model = cases.model_of(make, *(shape for shape in shapes if not isinstance(shape, str)), dtype=dtype)
        inputs = [numbers(cases.input_text(tensor), 2) for tensor in model.inputs]
        return lambda *args: model(list(args) if len(args) > 1 else args[0], training=False), inputs

    for name, (make, *shapes) in cases.LAYERS.items():
        if whole or name in cases.SAMPLE:
            yield name, functools.partial(build, make, *shapes)


def bench_models() -> Iterator[tuple[str, Callable[[], tuple[Any, list[Any]]]]]:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
    from models import gpt, gpt_cached, gru, llama, lstm, mlp, vision, vit

    for module in (gpt, gpt_cached, gru, llama, lstm, mlp, vit):
        yield module.__name__, module.build
    for name in vision.MODELS if hasattr(vision, "MODELS") else ():
        yield name, functools.partial(vision.build, name)


def applications() -> Iterator[tuple[str, Callable[[], tuple[Any, list[Any]]]]]:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
    from models import keras_applications

    for name in keras_applications.NAMES:
        yield name, functools.partial(keras_applications.build, name)


def libraries(whole: bool = True) -> dict[str, Any]:
    import test_equinox_layers
    import test_flax_linen_layers
    import test_flax_nnx_layers
    from module_forms import FORMS, INPUT

    return {
        "ways to hold and call modules": [(name, lambda make=make: (make(), [INPUT])) for name, make in FORMS.items()],
        "Flax NNX": layers_of(test_flax_nnx_layers, whole),
        "Flax Linen": layers_of(test_flax_linen_layers, whole),
        "Equinox": layers_of(test_equinox_layers, whole),
        "Keras": keras_layers(whole),
        "the models of bench/": bench_models(),
        "Keras applications": applications(),
    }


def compare_all(cases: Any, told: Callable[[str], None] = lambda text: None) -> tuple[int, int, list[Any]]:
    """Equations that are right, equations that were recorded in a module, and those that are wrong."""
    right, in_modules, wrong = 0, 0, []
    for name, build in cases:
        fn, inputs = build()
        found = Comparison(fn, inputs)
        right, in_modules = right + found.right, in_modules + found.in_modules
        wrong += [(name, *other) for other in found.wrong]
        for (primitive, kind, ways, got), count in Counter(map(repr_all, found.wrong)).items():
            told(f"  {name}: {count} {primitive} in {kind} {ways}, recorded as {got}")
    return right, in_modules, wrong


def repr_all(wrong: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(str, wrong))


def main() -> int:
    wanted = sys.argv[1:]
    failed = False
    for library, cases in libraries().items():
        if wanted and library not in wanted:
            continue
        right, in_modules, wrong = compare_all(cases, print)
        total = right + len(wrong)
        share = f"{right} of {total} equations are right ({100 * right / total:.2f} %)"
        print(f"{library}: {share}; {in_modules} were recorded in a module", flush=True)
        failed = failed or len(wrong) > 0.001 * total
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
