"""``jax2onnx profile``: the time spent in ONNX Runtime, by the user's lines, functions and operators.

ONNX Runtime fuses nodes before it runs them. The nodes that it runs are read back from the optimised model that it
writes, and matched with the file like any processed model (``j2o graft``): the time of a kernel is divided among the
nodes it was made of.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from jax2onnx import _core
from jax2onnx._commands.command import (
    OK,
    Failure,
    Output,
    add_original,
    command_parser,
    complain,
    model_origins,
    run_command,
)
from jax2onnx._commands.flame import Flame, Slice, flame_svg, trace_events
from jax2onnx._commands.target import UsageError
from jax2onnx._core import shown, write_file
from jax2onnx._door.origins import NO_ORIGINS, Frame, ModelOrigins, NodeOrigin, asked_nodes
from jax2onnx._door.progress import progress_on, stage
from jax2onnx._door.settings import sync

RUNTIME = "runtime"  # what ONNX Runtime itself added
_KERNEL = "_kernel_time"
KINDS = ("line", "function", "module", "operator")

_EPILOG = """\
The model is run once to warm up and then --runs times. The time of a kernel that ONNX Runtime fused from several nodes,
or of a node that was fused from several lines, is divided equally among the lines. Nodes that ONNX Runtime added are
attributed to the nodes that need them, or listed as "runtime". The time of a loop excludes its body. Inclusive times
also count the code that a line called.

examples:
  jax2onnx profile model.onnx
  jax2onnx profile model.onnx --runs 100 --inputs batch.npz --flame model.svg --trace model.json
  jax2onnx profile model.onnx --html model.html
  jax2onnx profile model.onnx --json > times.json && j2o report model.onnx --profile times.json -o model.html

exit codes: 0 done, 1 the model cannot be read or run, 2 the command line is wrong
"""


@dataclass
class Kernel:
    """One execution of a kernel."""

    name: str
    op: str
    start: float  # microseconds
    time: float
    own: float = 0.0  # without the kernels inside it
    parts: list[NodeOrigin] = field(default_factory=list)

    def shares(self, kind: str) -> list[tuple[Any, float]]:
        """The shares of the kernel's time, in parts of 1: equal for its nodes, and equal for the lines of a node."""
        if kind == "operator":
            return [(self.op, 1.0)]
        keys = [_keys(part, part.own_lines, kind) for part in self.parts] or [[None]]
        return [(key, 1 / (len(keys) * len(group))) for group in keys for key in group]

    def inclusive_shares(self, kind: str) -> dict[Any, float]:
        """The same for all lines and functions that led to the kernel."""
        shares: dict[Any, float] = defaultdict(float)
        for part in self.parts:
            frames = [frame for frame, relation in part.lines if relation in ("own", "fused") or not frame.is_library]
            for key in dict.fromkeys(_keys(part, frames, kind)):
                shares[key] += 1 / len(self.parts)
        return shares


def _keys(part: NodeOrigin, frames: list[Frame], kind: str) -> list[Any]:
    if kind == "module":
        return [part.module or None]
    return [frame.function if kind == "function" else frame for frame in frames] or [None]


@dataclass
class Row:
    """The time of a line, function or operator."""

    time: float = 0.0  # its own
    inclusive: float = 0.0  # including what it called
    calls: float = 0.0
    operators: dict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass
class Profile:
    runs: int
    time: float  # of one run, in microseconds
    kernels: list[Kernel]

    def rows(self, kind: str) -> list[tuple[Any, Row]]:
        """Rows by ``"line"``, ``"function"``, ``"module"`` or ``"operator"``, slowest first; times are per run."""
        rows: dict[Any, Row] = defaultdict(Row)
        for kernel in self.kernels:
            shares = kernel.shares(kind)
            for key, share in shares:
                rows[key].time += share * kernel.own / self.runs
                rows[key].operators[kernel.op] += share * kernel.own / self.runs
            for key in {key for key, _ in shares}:
                rows[key].calls += 1 / self.runs
            for key, share in kernel.inclusive_shares(kind).items() if kind in ("line", "function") else ():
                rows[key].inclusive += share * kernel.own / self.runs
        return sorted(rows.items(), key=lambda item: (-item[1].time, -item[1].inclusive, str(item[0])))

    def only(self, names: set[str]) -> Profile:
        """The profile of only these nodes."""
        kernels = []
        for kernel in self.kernels:
            parts = [part for part in kernel.parts if part.name in names]
            if parts:
                kernels.append(replace(kernel, parts=parts, own=kernel.own * len(parts) / len(kernel.parts)))
        return replace(self, kernels=kernels)

    def node_times(self) -> dict[str, float]:
        """Times per run, by the names of the file's nodes; a node with bodies includes the time of its bodies."""
        times: dict[str, float] = defaultdict(float)
        for kernel in self.kernels:
            for part in kernel.parts:
                if part.name:
                    times[part.name] += kernel.time / (len(kernel.parts) * self.runs)
        return dict(times)

    @property
    def total(self) -> float:
        return sum(kernel.own for kernel in self.kernels) / self.runs or 1.0


def profile_model(path: str, origins: ModelOrigins, inputs: str | None, runs: int) -> Profile:
    from jax2onnx._compare.feeds import model_feeds, runtime
    from jax2onnx._compare.sessions import run_session

    onnxruntime = runtime()
    with tempfile.TemporaryDirectory() as folder:
        settings = onnxruntime.SessionOptions()
        settings.enable_profiling = True
        settings.profile_file_prefix = os.path.join(folder, "profile")
        settings.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
        settings.log_severity_level = 4
        # Weights go beside the optimised model, which might exceed the size limit of a model file.
        settings.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        settings.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        stage("loading the model")
        try:
            session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
            feeds = model_feeds(session.get_inputs(), inputs)
            for number in range(runs + 1):
                stage(f"run {number} of {runs}")
                run_session(session, feeds)
        except Failure:
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no common class
            raise Failure(f"ONNX Runtime cannot run the model (see jax2onnx explain): {error}") from error
        stage("reading the profile")
        with open(session.end_profiling()) as stream:
            events = json.load(stream)
        return _profile(events, _Parts(origins, settings.optimized_model_filepath), runs)


def _profile(events: list[dict[str, Any]], parts: _Parts, runs: int) -> Profile:
    whole = sorted((event for event in events if event.get("name") == "model_run"), key=lambda event: event["ts"])
    if len(whole) <= runs:
        raise Failure("the profile of ONNX Runtime does not contain all runs; try fewer --runs")
    measured = whole[-runs:]
    start = measured[0]["ts"]
    kernels = []
    for event in sorted(events, key=lambda event: event.get("ts", 0)):
        name = event.get("name", "")
        if event.get("cat") != "Node" or not name.endswith(_KERNEL) or event["ts"] < start:
            continue
        name = name.removesuffix(_KERNEL)
        kernel = Kernel(name, event["args"].get("op_name", "?"), event["ts"] - start, event["dur"])
        kernel.parts = parts.of(name, kernel.op)
        kernels.append(kernel)
    _take_inner_time(kernels)
    return Profile(runs, sum(event["dur"] for event in measured) / runs, kernels)


def _take_inner_time(kernels: list[Kernel]) -> None:
    kernels.sort(key=lambda kernel: (kernel.start, -kernel.time))
    around: list[Kernel] = []
    for kernel in kernels:
        kernel.own = kernel.time
        while around and kernel.start >= around[-1].start + around[-1].time:
            around.pop()
        if around:
            around[-1].own = max(0.0, around[-1].own - kernel.time)
        around.append(kernel)


class _Parts:
    """The nodes of the file that a kernel stands for, as ``j2o graft --map`` finds them."""

    def __init__(self, model: ModelOrigins, optimised: str) -> None:
        self._model = model
        code, output, _ = _core.tool_output(["j2o", "graft", "--map", "--json", "--", model.path, optimised])
        self._known: dict[tuple[str, str], list[NodeOrigin]] = {}
        self._nameless: dict[str, list[list[NodeOrigin]]] = defaultdict(list)
        for kernel in json.loads(output.decode(errors="replace")) if code == 0 else ():
            parts = [model.by_name[part["name"]] for part in kernel["sources"] if part["name"] in model.by_name]
            if kernel["node"]:
                self._known.setdefault((kernel["node"], kernel["op_type"]), parts)
            else:
                self._nameless[kernel["op_type"]].append(parts)

    def of(self, name: str, op: str) -> list[NodeOrigin]:
        """Kernels of nodes without a name must be looked up in the order in which they first ran."""
        if (name, op) not in self._known:
            waiting = self._nameless[op]
            self._known[name, op] = waiting.pop(0) if waiting else self._named(name)
        return self._known[name, op]

    def _named(self, kernel: str) -> list[NodeOrigin]:
        """For a kernel that is not in the saved model: the nodes in its name."""
        from jax2onnx._compare.messages import find_nodes

        return [found.node for found in find_nodes(kernel, self._model) if found.kind == "node"]


def _stack(node: NodeOrigin | None, op: str) -> list[str]:
    """The user's frames, outermost first, then the operator."""
    if node is None or not node.users_trace:
        return [RUNTIME, op]
    return [*map(_frame_name, reversed(node.users_trace)), op]


def _frame_name(frame: Frame) -> str:
    return f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})" if frame.file else str(frame)


def flame_of(profile: Profile) -> Flame:
    root = Flame("one run")
    for kernel in profile.kernels:
        nodes = kernel.parts or [None]
        for node in nodes:
            root.add(_stack(node, kernel.op), kernel.own / (len(nodes) * profile.runs))
    return root


def slices_of(profile: Profile) -> list[Slice]:
    """Every kernel without other kernels inside; loops appear as the callers of what they run."""
    slices = []
    for kernel in profile.kernels:
        if kernel.own < kernel.time:
            continue
        main = kernel.parts[-1] if kernel.parts else None
        details = {"kernel": kernel.name, "parts": [f"{part.op} {part.name}" for part in kernel.parts]}
        slices.append(Slice(_stack(main, kernel.op), kernel.start, kernel.time, details))
    return slices


def _work(options: argparse.Namespace, output: Output) -> int:
    if options.runs < 1:
        raise UsageError("--runs must be at least 1")
    origins = model_origins(options)
    with progress_on(sys.stderr):
        profile = profile_model(options.model, origins, options.inputs, options.runs)
    question = _question(options)
    if question:
        profile = profile.only(asked_nodes(options.model, *question))
        if not profile.kernels:
            raise Failure(f"ONNX Runtime runs nothing that comes from {options.line or f'module {options.module}'}")
    title = os.path.basename(options.model)
    if options.flame:
        _write(options.flame, flame_svg(flame_of(profile), f"{title}: {profile.time / 1000:.3f} ms a run"))
    if options.trace:
        _write(options.trace, json.dumps(trace_events(slices_of(profile), title)))
    if options.html:
        _write_page(options, profile)
    if output.as_json:
        output.document(_document(options.model, profile))
    else:
        _print(options, output, profile)
    if not origins.has_places:
        complain(f"{options.model}: {NO_ORIGINS}", OK)
    return OK


def _question(options: argparse.Namespace) -> list[str]:
    words = []
    for name in ("line", "module", "original"):
        value = getattr(options, name)
        words += [f"--{name}", value] if value is not None and (name != "original" or words) else []
    return words


def _write(path: str, text: str) -> None:
    try:
        write_file(os.fsencode(path), text.encode(), not sync())
    except OSError as error:
        raise Failure(str(error)) from error


def _write_page(options: argparse.Namespace, profile: Profile) -> None:
    """Write the page of ``j2o report`` with the times."""
    sources = [word for file in options.source for word in ("--source", file)]
    sources += [word for folder in options.source_root for word in ("--source-root", folder)]
    if options.original:
        sources += ["--original", options.original]
    with tempfile.TemporaryDirectory() as folder:
        times = os.path.join(folder, "times.json")
        _write(times, json.dumps({"nodes": profile.node_times()}))
        command = ["j2o", "report", "--profile", times, "-o", options.html, *sources, "--", options.model]
        code, _, errors = _core.tool_output(command)
    if code:
        raise Failure(errors.decode().removeprefix("j2o: ").rstrip())


def _document(path: str, profile: Profile) -> dict[str, Any]:
    document: dict[str, Any] = {"file": path, "runs": profile.runs, "run_us": profile.time, "kernels_us": profile.total}
    document["nodes"] = profile.node_times()
    for kind in KINDS:
        document[f"{kind}s"] = [
            {
                kind: key.as_json() if isinstance(key, Frame) else key or RUNTIME,
                "us": row.time,
                **({"inclusive_us": row.inclusive} if kind in ("line", "function") else {}),
                "share": row.time / profile.total,
                "calls": row.calls,
                "operators": dict(row.operators),
            }
            for key, row in profile.rows(kind)
        ]
    return document


def _print(options: argparse.Namespace, output: Output, profile: Profile) -> None:
    whole, kernels = profile.time / 1000, profile.total / 1000
    print(f"{shown(options.model)}: {whole:.3f} ms per run ({profile.runs} runs), kernels {kernels:.3f} ms")
    for kind in KINDS:
        rows = [(key, row) for key, row in profile.rows(kind) if row.time]
        if kind == "module" and all(key is None for key, _ in rows):
            continue
        with_calls = kind in ("line", "function")
        print(f"\n{output.paint('name', f'{kind}s')}\n   share         µs{' incl. µs' if with_calls else ''}   calls")
        for key, row in rows[: options.top]:
            text = output.paint("place", str(key)) if key is not None else RUNTIME
            inclusive = f"{row.inclusive:9.1f}" if with_calls else ""
            share = 100 * row.time / profile.total
            print(f"  {share:5.1f}%  {row.time:9.1f}{inclusive}  {row.calls:6.4g}  {text}")
            source = key.source if isinstance(key, Frame) else None
            if source:
                print(f"{'':40}{shown(source)}")
        if len(rows) > options.top:
            print(f"  and {len(rows) - options.top} more (--top)")


def run(arguments: list[str]) -> int:
    parser = command_parser("profile", "Runs a model in ONNX Runtime and shows which lines take the time.", _EPILOG)
    parser.add_argument("model", metavar="MODEL.onnx")
    add_original(parser)
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="number of runs (default: 10)")
    parser.add_argument("--inputs", metavar="FILE.npz", help="the inputs (default: random numbers)")
    parser.add_argument("--flame", metavar="FILE.svg", help="write a flame graph")
    parser.add_argument("--html", metavar="FILE.html", help="write the j2o report page with the times")
    parser.add_argument("--trace", metavar="FILE.json", help="write a trace for Chrome's tracing page or Perfetto")
    parser.add_argument("--line", metavar="PLACE", help="only what this line became (see j2o inspect --help)")
    parser.add_argument("--module", metavar="PATH", help="only what this module and its submodules became")
    parser.add_argument("--top", type=int, default=12, metavar="N", help="number of lines to list (default: 12)")
    return run_command(parser, arguments, _work)
