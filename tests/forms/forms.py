"""What a form is: one program of a family, made by free choice of every part, and what it must become.

``check`` exports it, counts operators and runs it against JAX. A form that cannot become the expected operator without
changing what it computes says why in ``apart``; then only its numbers are checked.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from widened import NotWidened, widened

from jax2onnx import to_onnx
from jax2onnx._compare.sessions import run_session

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# What results may differ by, as a share of the largest one: the type's own steps, and those of a few sums.
TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "float16": 6e-3, "bfloat16": 5e-2}


class Choices:
    """Free choices by a seed; each is written down under its name."""

    def __init__(self, seed: int, fixed: dict[str, Any] | None = None) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.fixed = fixed or {}
        self.made: dict[str, Any] = {}

    def take(self, name: str, *options: Any) -> Any:
        taken = self.random.choice(options)
        taken = self.fixed.get(name, taken)
        self.made[name] = taken
        return taken

    def normal(self, shape: Sequence[int], dtype: str = "float32", scale: float = 1.0) -> np.ndarray:
        return (self.numbers.standard_normal(shape) * scale).astype(TYPES[dtype])

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.made.items())


@dataclasses.dataclass
class Form:
    fn: Callable[..., Any]
    args: list[np.ndarray]
    expected: dict[str, int]  # operators, each exactly so often; "One|Other" for either
    specs: list[Any] | None = None  # what to_onnx is given; default: the arguments
    absent: tuple[str, ...] = ()  # operators that must not be left
    most: int | None = None  # nodes
    apart: str | None = None  # why it stays as it is
    dtype: str = "float32"
    opset: int = 23
    tolerance: float | None = None
    more_args: list[list[np.ndarray]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Outcome:
    fused: bool
    right: bool
    detail: str


def check(form: Form) -> Outcome:
    inputs = form.args if form.specs is None else form.specs
    model = to_onnx(form.fn, inputs, opset=form.opset, stacktrace_metadata="off")
    found = collections.Counter(node.op_type for node in all_nodes(model.graph.node))
    detail = _difference(form, found)
    wrong = _compare(form, model)
    return Outcome(not detail, not wrong, "; ".join(filter(None, (wrong, detail))))


def _difference(form: Form, found: collections.Counter[str]) -> str:
    counts = {name: sum(found[one] for one in name.split("|")) for name in form.expected}
    missing = [f"{name} {counts[name]} of {count}" for name, count in form.expected.items() if counts[name] != count]
    left = [name for name in form.absent if found[name]]
    if not missing and not left and (form.most is None or found.total() <= form.most):
        return ""
    return f"{', '.join(missing + left) or 'too many'}: " + " ".join(f"{n}*{c}" for n, c in sorted(found.items()))


def _compare(form: Form, model: onnx.ModelProto) -> str:
    try:
        session = _session(model)
    except Exception as error:
        return f"does not load: {str(error)[:300]}"
    fn = jax.jit(form.fn)
    names = [value.name for value in session.get_inputs()]
    for args in (form.args, *form.more_args):
        got = run_session(session, dict(zip(names, args, strict=True)))
        wrong = _first_unlike(form, fn(*args), got)
        # XLA takes sums and products of the largest numbers in another order, so that JAX has two answers.
        if wrong and _first_unlike(form, form.fn(*args), got) and not _is_nearer(form, args, got):
            return wrong
    return ""


def _is_nearer(form: Form, args: list[np.ndarray], got: list[np.ndarray]) -> bool:
    """Does a graph of halves agree with what JAX computes in float32, and better than JAX's own halves?"""
    if form.dtype not in ("float16", "bfloat16"):
        return False
    try:
        exact = [np.asarray(one) for one in widened(form.fn, args)]
    except NotWidened:
        return False
    own = [np.asarray(one) for one in jax.tree.leaves(jax.jit(form.fn)(*args))]
    # What is infinite or NaN in halves is so by their range, and must be so here.
    if not all(np.array_equal(np.isfinite(a), np.isfinite(b)) for a, b in zip(own, got, strict=True)):
        return False
    errors = [[_largest_error(a, b) for a, b in zip(exact, made, strict=True)] for made in (own, got)]
    exact = [one.astype(other.dtype) for one, other in zip(exact, own, strict=True)]
    return all(b <= a for a, b in zip(*errors, strict=True)) and not _first_unlike(form, exact, got)


def _largest_error(exact: np.ndarray, made: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):
        errors = np.abs(exact.astype(np.float64) - made.astype(np.float64))
    return float(np.max(errors, initial=0, where=np.isfinite(errors)))


def _first_unlike(form: Form, results: Any, got: list[np.ndarray]) -> str:
    tolerance = form.tolerance or TOLERANCE.get(form.dtype, 0)
    pairs = zip(jax.tree.leaves(results), got, strict=True)
    return next(filter(None, (_unlike(np.asarray(want), other, tolerance) for want, other in pairs)), "")


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _unlike(want: np.ndarray, got: np.ndarray, tolerance: float) -> str:
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype}{got.shape} where JAX has {want.dtype}{want.shape}"
    if want.dtype.kind in "biu":
        return "" if np.array_equal(want, got) else "integers differ"
    want, got = want.astype(np.float64), got.astype(np.float64)
    if not np.array_equal(np.isnan(want), np.isnan(got)):
        return f"NaN: {np.isnan(got).sum()} where JAX has {np.isnan(want).sum()}"
    with np.errstate(invalid="ignore"):
        close = (want == got) | np.isnan(want) | (np.abs(want - got) <= tolerance * (1 + np.abs(want)))
    if close.all():
        return ""
    place = tuple(int(index) for index in np.argwhere(~close)[0])
    return f"{np.sum(~close)} of {close.size} differ, first at {list(place)}: {got[place]!r}, JAX has {want[place]!r}"


def all_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g.node)
