"""Runs random programs: in worker processes that may crash, with every failure made small and written down.

run.py --count 200              new programs; the first seed comes from the date and is printed
run.py --count 200 --of-tree    the first seed comes from the sources: new programs for every change of them, and the
                                same again for the same tree
run.py --seed 17                one program again
run.py --file FAILURE.json      a program that was written down
run.py --count 2000 --checker-only    export and provenance only, no numbers
run.py --count 2000 --readers   the same, and every line is asked of all readers, which must give one answer
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1]), str(FOLDER.parents[2])]
from seeds import seed_of_date, seed_of_tree  # noqa: E402
from shrink import shrink  # noqa: E402

from program import Printer, Program  # noqa: E402

TIME_LIMIT = 60  # seconds for one program
RENEW = 400  # programs after which a worker is renewed: JAX keeps what it has compiled


# "no reference": JAX itself cannot run the program, or crashes on it. "runtime crashed": ONNX Runtime crashes while it
# optimises the model for the processor, and runs it rightly when told not to.
# "stale frames": in a process that has traced nothing else all is well. JAX keeps derivatives of its own inlined
# functions with the frames of the first call, and a later program is given those.
NO_FAILURE = ("passed", "refused", "no reference", "runtime crashed", "stale frames")
ABOUT_LINES = ("callsite", "traceback", "lost line")


class Worker:
    """A worker process; ``ask`` gives its answer, or says how it died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.asked = 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.process is None or self.asked >= RENEW:
            self._start()
        self.asked += 1
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        stage = "start"
        while True:
            try:
                line = self.lines.get(timeout=TIME_LIMIT)
            except queue.Empty:
                return self._dead("hang", f"no answer in {TIME_LIMIT} s: {stage}")
            if not line:
                return self._dead("crash", f"{stage}: the process ended with {self.process.wait()}")
            answer = json.loads(line)
            if "stage" not in answer:
                return answer
            stage = answer["stage"]

    def _start(self) -> None:
        self.close()
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX2ONNX_CHECK_PASSES": "1"}
        environment.setdefault("OMP_NUM_THREADS", "1")
        command = [sys.executable, str(FOLDER / "worker.py")]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_forward, args=(self.process.stdout, self.lines), daemon=True).start()
        self.asked = 0

    def _dead(self, kind: str, detail: str) -> dict[str, Any]:
        self.close()
        if "reference" in detail:  # XLA's evaluator ends the process when it folds 0 / 0
            kind = "no reference"
        return {"kind": kind, "detail": detail, "nodes": 0, "excused": 0, "seconds": 0.0}

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _forward(stream: Any, lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


class Run:
    def __init__(self, folder: pathlib.Path, numbers: bool, shrinks: bool, readers: bool = False) -> None:
        self.worker = Worker()
        self.folder, self.shrinks = folder, shrinks
        self.asked = {"numbers": numbers, "readers": readers}
        self.kinds: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[str] = collections.Counter()
        self.excused = self.nodes = 0
        self.failures: list[int] = []

    def one(self, request: dict[str, Any], name: str) -> None:
        answer = self.worker.ask({**request, **self.asked})
        if answer["kind"] == "crash" and answer["detail"].startswith("session"):
            again = self.worker.ask({**request, **self.asked, "cautious": True})
            answer = again if again["kind"] != "passed" else {**again, "kind": "runtime crashed"}
        if answer["kind"] in ABOUT_LINES and "program" in answer:
            self.worker.close()
            again = self.worker.ask({"program": answer["program"], **self.asked})
            answer = again if again["kind"] != "passed" else {**again, "kind": "stale frames"}
        self.kinds[answer["kind"]] += 1
        self.nodes += answer["nodes"]
        self.excused += answer["excused"] > 0
        if answer["kind"] == "refused":
            self.reasons[answer["detail"]] += 1
        if answer["kind"] in NO_FAILURE:
            if answer["kind"] not in ("passed", "refused"):
                print(f"{name}: {answer['kind']}", flush=True)
            return
        self.failures.append(name)
        program = self._program(answer, request)
        print(f"\n{name}: {answer['kind']}: {answer['detail']}", flush=True)
        if program is not None:
            small, last = self._shrunk(program, answer)
            self._write(name, small, last)

    def _program(self, answer: dict[str, Any], request: dict[str, Any]) -> Program | None:
        data = answer.get("program") or request.get("program")
        if data is None and answer["kind"] in ("crash", "hang"):
            from generate import generate

            return generate(request["seed"])
        return Program.from_data(data) if data else None

    def _shrunk(self, program: Program, first: dict[str, Any]) -> tuple[Program, dict[str, Any]]:
        last = first
        if not self.shrinks or first["kind"] == "fuzzer":
            return program, last

        def still_fails(candidate: Program) -> bool:
            nonlocal last
            answer = self.worker.ask({"program": candidate.to_data(), **self.asked})
            same = answer["kind"] == first["kind"] and _sort_of(answer) == _sort_of(first)
            last = answer if same else last
            return same

        return shrink(program, still_fails), last

    def _write(self, name: str, program: Program, answer: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        source = Printer().program(program)
        (self.folder / f"{name}.json").write_text(json.dumps(program.to_data(), indent=1))
        inputs = "".join(f"# {value.name}: {value.dtype}{value.shape}\n" for value in program.inputs)
        head = f"# {answer['kind']}: {answer['detail']}\n# x64={program.x64}\n{inputs}"
        (self.folder / f"{name}.py").write_text(head + source)
        print("\n".join((head + source).splitlines()), flush=True)
        print(f"again: {_this()} --file {_shown(self.folder / name)}.json   or --seed {program.seed}", flush=True)


def _sort_of(answer: dict[str, Any]) -> str:
    """What two failures of the same cause have in common: the beginning of the message, without numbers."""
    if answer["kind"] == "numbers":
        return ""
    return "".join(letter for letter in answer["detail"][:60] if not letter.isdigit())


def _shown(path: pathlib.Path) -> str:
    path = path.absolute()
    return str(path.relative_to(pathlib.Path.cwd())) if path.is_relative_to(pathlib.Path.cwd()) else str(path)


def _this() -> str:
    return f"{_shown(pathlib.Path(sys.executable))} {_shown(pathlib.Path(__file__))}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, help="the first seed; default: one made from the date and the time")
    parser.add_argument("--of-tree", action="store_true", help="the first seed comes from the sources")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--file", type=pathlib.Path, help="only this stored program")
    parser.add_argument("--checker-only", action="store_true")
    parser.add_argument("--readers", action="store_true", help="ask all readers for every line; no numbers")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--most-failures", type=int, default=50, help="stop after so many")
    parser.add_argument("--failures", type=pathlib.Path, default=pathlib.Path("build/fuzz-programs"))
    options = parser.parse_args()
    numbers = not (options.checker_only or options.readers)
    run = Run(options.failures, numbers, not options.no_shrink, options.readers)
    start = time.monotonic()
    if options.file:
        run.one({"program": json.loads(options.file.read_text())}, options.file.stem)
    elif options.seed is not None:
        run.one({"seed": options.seed}, str(options.seed))
    else:
        first = options.first
        if first is None:
            first = seed_of_tree(FOLDER) if options.of_tree else seed_of_date()
        print(f"random programs: {options.count} from seed {first}", flush=True)
        for seed in range(first, first + options.count):
            run.one({"seed": seed}, str(seed))
            if (seed - first + 1) % 100 == 0:
                print(f"{seed - first + 1} programs, {time.monotonic() - start:.0f} s, {dict(run.kinds)}", flush=True)
            if len(run.failures) >= options.most_failures:
                print(f"stopped after {options.most_failures} failures")
                break
    _summary(run, time.monotonic() - start)
    run.worker.close()
    return 1 if run.failures else 0


def _summary(run: Run, seconds: float) -> None:
    total = sum(run.kinds.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in run.kinds.most_common())
    print(f"random programs: {total} in {seconds:.0f} s: {kinds}; {run.nodes} nodes; {run.excused} ill-conditioned")
    for reason, count in run.reasons.most_common(20):
        print(f"  refused {count}: {reason}")
    if run.failures:
        print(f"failed seeds: {' '.join(map(str, run.failures))}")


if __name__ == "__main__":
    sys.exit(main())
