"""A process that checks programs: JSON, a line each; requests on stdin, on stdout the stages and the outcome.

Programs run in a process of their own kind so that one that crashes takes nothing else with it.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
import time
import traceback
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[2])]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    os.environ.setdefault("JAX2ONNX_CHECK_PASSES", "1")
    import jax

    jax.config.update("jax_platforms", "cpu")
    from check import check_program
    from generate import generate

    from program import Program

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for line in sys.stdin:
            request = json.loads(line)
            start = time.perf_counter()
            try:
                program = Program.from_data(request["program"]) if "program" in request else generate(request["seed"])
                numbers = request.get("numbers", True)
                cautious = request.get("cautious", False)
                stage = lambda name: say({"stage": name})  # noqa: E731
                readers = request.get("readers", False)
                outcome = check_program(program, pathlib.Path(folder), numbers, stage, cautious, readers)
                answer = {**vars(outcome), "program": program.to_data()}
            except Exception:
                answer = {"kind": "fuzzer", "detail": traceback.format_exc()[-1500:], "nodes": 0, "excused": 0}
            answer["seconds"] = time.perf_counter() - start
            say(answer)


if __name__ == "__main__":
    main()
