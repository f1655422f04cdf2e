"""One program through everything: export, validity, provenance down to the line, ONNX Runtime against JAX."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
from conditioning import Perturbed, base_tolerance, differs, excused, stepwise_results, wide_results
from lines import required_lines
from values import SETS, input_values

from program import Printer, Program, load

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from export_check import KEYS, all_nodes, check_provenance, metadata, stripped
from reader_answers import Model

from jax2onnx import UnsupportedError, to_onnx
from jax2onnx._compare.sessions import run_session

# The reference is compiled for speed of compilation, and rounds where the program says so.
COMPILER = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_allow_excess_precision": False,
}
SYMBOL_SPEC = "B"
_FRAME = re.compile(r"^(?P<path>.*):(?P<line>\d+) \((?P<function>.*)\)$", re.M)


@dataclasses.dataclass
class Outcome:
    """``kind`` is "passed", "refused", or what failed; ``detail`` tells one failure of a kind from another."""

    kind: str
    detail: str = ""
    nodes: int = 0
    excused: int = 0  # elements that were only within what the program's conditioning allows

    def failed(self) -> bool:
        return self.kind not in ("passed", "refused", "no reference")


class Failure(Exception):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


def check_program(
    program: Program,
    folder: pathlib.Path,
    numbers: bool = True,
    stage: Callable[[str], None] = lambda name: None,
    cautious: bool = False,
    readers: bool = False,
) -> Outcome:
    """Never raises for what the program does; ``numbers=False`` leaves out the runs, ``readers=True`` asks all readers
    for every line.

    ``stage`` is told what is about to be done: the last thing it heard is what a crash is to be blamed on. ``cautious``
    keeps ONNX Runtime from changing the model for the processor.
    """
    try:
        with jax.enable_x64(program.x64):
            return _check(program, folder, numbers, stage, cautious, readers)
    except Failure as failure:
        return Outcome(failure.kind, failure.detail)


def _check(
    program: Program, folder: pathlib.Path, numbers: bool, stage: Callable[[str], None], cautious: bool, readers: bool
) -> Outcome:
    stage("export")
    printer = Printer()
    path = folder / "fuzzed_program.py"
    fn = load(printer.program(program), path)
    specs = [jax.ShapeDtypeStruct(_spec_shape(program, value.shape), value.dtype) for value in program.inputs]
    try:
        model = to_onnx(fn, specs, enable_double_precision=program.x64, stacktrace_metadata="full")
        plain = to_onnx(fn, specs, enable_double_precision=program.x64, stacktrace_metadata="off")
    except UnsupportedError as error:
        return Outcome("refused", _reason(str(error)))
    except Exception as error:
        raise Failure("export", f"{type(error).__name__}: {_first_line(error)}") from error
    _check_model(model, plain)
    required = required_lines(fn, specs, path)
    _check_lines(model, printer, path, required)
    if readers:
        stage("readers")
        _check_readers(model, path, required, printer)
    count = sum(1 for _ in all_nodes(model))
    if not numbers:
        return Outcome("passed", nodes=count)
    stage("session")
    session = _session(model, cautious)
    return Outcome("passed", nodes=count, excused=_check_numbers(program, fn, session, folder, stage))


def _spec_shape(program: Program, shape: list[int | str]) -> tuple[Any, ...]:
    if SYMBOL_SPEC not in shape:
        return tuple(shape)
    return jax.export.symbolic_shape(", ".join(map(str, shape)), scope=_scope(program))


def _scope(program: Program) -> Any:
    if getattr(program, "_scope", None) is None:
        program._scope = jax.export.SymbolicScope()
    return program._scope


def _check_model(model: onnx.ModelProto, plain: onnx.ModelProto) -> None:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise Failure("checker", _first_line(error)) from error
    if stripped(model).SerializeToString() != plain.SerializeToString():
        raise Failure("stripped", "the graph differs with and without provenance")
    try:
        check_provenance(model)
    except AssertionError as error:
        raise Failure("provenance", _first_line(error)) from error


def _check_lines(model: onnx.ModelProto, printer: Printer, path: pathlib.Path, required: set[int]) -> None:
    """Every callsite is a statement's line in its function; every statement that computes is named by a node."""
    named: set[int] = set()
    for node in all_nodes(model):
        found = metadata(node)
        function, line = found[KEYS[0]].rsplit(":", 1)
        if not printer.holds(int(line), function, node.op_type == "Identity"):
            raise Failure("callsite", f"{node.op_type}: {found[KEYS[0]]} is no statement of the program")
        for frame in _FRAME.finditer(found[KEYS[3]]):
            if frame["path"] != str(path):
                continue
            if not printer.holds(int(frame["line"]), frame["function"], node.op_type == "Identity"):
                raise Failure("traceback", f"{node.op_type}: {frame[0]} is no statement of the program")
            named.add(int(frame["line"]))
    missing = sorted(required - named)
    if missing:
        line = missing[0]
        raise Failure("lost line", f"no node names {printer.lines[line - 1].strip()!r}")


def _check_readers(model: onnx.ModelProto, path: pathlib.Path, required: set[int], printer: Printer) -> None:
    """Every line that computes is found by all readers, and they give one answer for every line."""
    onnx.save(model, path.with_suffix(".onnx"))
    asked = Model(path.with_suffix(".onnx"), path.name)
    for line in sorted(required):
        if not asked.inspect(line):
            raise Failure("lost line", f"no reader finds {printer.lines[line - 1].strip()!r}")
    for disagreement in asked.disagreements():
        raise Failure("readers", disagreement[:300])


def _session(model: onnx.ModelProto, cautious: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.set_denormal_as_zero", "1")  # as XLA does
    if cautious:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Failure("session", _first_line(error)) from error


def _check_numbers(
    program: Program,
    fn: Any,
    session: onnxruntime.InferenceSession,
    folder: pathlib.Path,
    stage: Callable[[str], None],
) -> int:
    names = [value.name for value in session.get_inputs()]
    compiled: dict[Any, Any] = {}
    perturbed = None
    lost = 0
    for kind in SETS:
        args = input_values(program, kind)
        key = tuple(arg.shape for arg in args)
        stage("reference")
        if key not in compiled:
            try:
                compiled[key] = jax.jit(fn).lower(*args).compile(COMPILER)
            except Exception as error:  # a type that the CPU does not multiply
                raise Failure("no reference", _first_line(error)) from error
        wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled[key](*args))]
        stage("run")
        try:
            got = run_session(session, dict(zip(names, args, strict=True)))
        except Exception as error:
            raise Failure("run", _first_line(error)) from error
        wrong = _wrong(program, wanted, got)
        if any(mask.any() for mask in wrong):
            perturbed = perturbed or Perturbed(program, folder / "perturbed_program.py", COMPILER)
            stage("perturbed reference")
            wrong, forgiven = _forgive(program, wanted, got, wrong, perturbed.runs(args))
            lost += forgiven
            if any(mask.any() for mask in wrong):
                stage("widened reference")
                wide = wide_results(program, args, folder / "widened_program.py", COMPILER)
                stage("stepwise reference")
                lost += _judge(program, kind, wanted, got, wrong, [wide, stepwise_results(fn, args)])
    return lost


def _depth(program: Program) -> int:
    return sum(not statement.exact for statement in program.statements)


def _tolerance(program: Program, want: np.ndarray) -> np.ndarray | None:
    return base_tolerance(want, _depth(program)) if want.dtype.kind not in "biu" else None


def _wrong(program: Program, wanted: list[np.ndarray], got: list[np.ndarray]) -> list[np.ndarray]:
    if len(wanted) != len(got):
        raise Failure("outputs", f"{len(got)} outputs, JAX has {len(wanted)}")
    masks = []
    for index, (want, have) in enumerate(zip(wanted, got, strict=True)):
        if want.shape != have.shape or want.dtype != have.dtype:
            raise Failure("outputs", f"output {index}: {have.dtype}{have.shape}, JAX has {want.dtype}{want.shape}")
        masks.append(differs(want, have, _tolerance(program, want)))
    return masks


def _forgive(program: Program, wanted: list, got: list, wrong: list, runs: list) -> tuple[list[np.ndarray], int]:
    """What is wrong beyond the program's conditioning, and how many elements were within it."""
    left, lost = [], 0
    for index, (want, have, mask) in enumerate(zip(wanted, got, wrong, strict=True)):
        forgiven = mask & excused(want, have, [run[index] for run in runs], _tolerance(program, want))
        left.append(mask & ~forgiven)
        lost += int(forgiven.sum())
    return left, lost


def _judge(program: Program, kind: str, wanted: list, got: list, wrong: list, others: list[list | None]) -> int:
    """Fails where no other reference is near either; else how many elements were only near one of those."""
    lost = 0
    for index, (want, have, bad) in enumerate(zip(wanted, got, wrong, strict=True)):
        for other in others:
            if other is None or other[index].shape != want.shape:
                continue
            with np.errstate(all="ignore"):
                exact = other[index].astype(want.dtype)
            nearer = bad & ~differs(exact, have, _tolerance(program, exact))
            lost += int(nearer.sum())
            bad = bad & ~nearer
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise Failure(
                "numbers",
                f"{kind} inputs: output {program.results[index]} differs at {at}: "
                f"{have[at]!r} in ONNX Runtime, {want[at]!r} in JAX ({int(bad.sum())} of {bad.size})",
            )
    return lost


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " | ".join(lines[:3])[:400]


def _reason(message: str) -> str:
    return " | ".join(line.strip() for line in message.splitlines()[:3])[:300]
