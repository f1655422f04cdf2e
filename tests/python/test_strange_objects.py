"""Objects of other packages that a model or a function holds: they are searched for weights and modules, and whatever
their classes do when they are looked at, the export goes on and the names are right."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import pytest
from export_check import all_initializers, all_nodes, check_export, metadata

from jax2onnx import to_onnx

INPUT = jax.ShapeDtypeStruct((2, 3), np.float32)
MODULE = "pkg.jax2onnx.module"
ERRORS = [ImportError, AttributeError, RuntimeError, KeyError, NotImplementedError]


class Scale:
    """A module with a weight."""

    def __init__(self):
        self.factor = np.arange(6, dtype=np.float32).reshape(2, 3) + 1

    def __call__(self, x):
        return x * self.factor


class Fails:
    """Every way of looking at an object that its class can decide on, except its type."""

    error: type[Exception] = RuntimeError

    def fail(self, *_):
        raise self.error("not now")


class LazyModule(Fails):
    """As libraries put in the place of a package that is imported when it is used."""

    __getattr__ = Fails.fail


class EmptyLazyModule(Fails):
    __slots__ = ()
    __getattr__ = Fails.fail


class Properties(Fails):
    path = name = __wrapped__ = shape = property(Fails.fail)


class LazyDict(Fails, dict):
    __getitem__ = items = values = keys = Fails.fail


class LazyMapping(Fails, Mapping):
    __getitem__ = __iter__ = __len__ = Fails.fail


class LazyList(Fails, list):
    __getitem__ = __iter__ = Fails.fail


class Slots(Fails):
    __slots__ = ("never_set",)
    __getattr__ = Fails.fail


class Unequal(Fails):
    __eq__ = __bool__ = __repr__ = __len__ = Fails.fail
    __hash__ = None


STRANGE = [LazyModule, EmptyLazyModule, Properties, LazyDict, LazyMapping, LazyList, Slots, Unequal]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("kind", STRANGE, ids=lambda kind: kind.__name__)
def test_objects_that_fail_when_looked_at(kind: type[Fails], error: type[Exception]) -> None:
    class Strange(kind):
        pass

    Strange.error = error
    strange = Strange()
    model = Scale()
    model.before = model.others = [strange, {"one": strange}]

    def fn(x):
        _ = strange
        return model(x) + 1

    exported = check_export(fn, [np.ones((2, 3), np.float32)])
    assert "factor" in {tensor.name for tensor in all_initializers(exported)}
    assert [metadata(node).get(MODULE) for node in all_nodes(exported)] == ["", None], "the model itself; the function"


def test_a_callable_object_that_fails_when_looked_at() -> None:
    class Model(LazyModule):
        def __call__(self, x):
            return x + 1

    check_export(Model(), [np.ones((2, 3), np.float32)])


def test_a_mapping_of_fields_may_have_a_field_called_items():
    """Dataclasses that are mappings of their fields are common as the state of an environment."""

    class State(Mapping):
        def __init__(self):
            self.keys = self.values = self.items = Scale()

        def __getitem__(self, name):
            return vars(self)[name]

        def __iter__(self):
            return iter(vars(self))

        def __len__(self):
            return len(vars(self))

    class Scale:
        factor = 2.0

        def __call__(self, x):
            return x * self.factor

    state = State()
    model = to_onnx(lambda x: state.items(x), [INPUT], stacktrace_metadata="full")
    assert {metadata(node)[MODULE] for node in all_nodes(model)} == {"keys"}
