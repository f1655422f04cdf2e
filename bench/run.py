"""Measures what an export costs, as ratios in one run: against JAX's own tracing, and against the weights' size."""

from __future__ import annotations

import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def number(script: pathlib.Path) -> tuple[int, str]:
    return int(script.stem.split("_")[1]), script.stem


def main() -> int:
    """A measurement that misses its target, or has no device to run on, does not keep the others from running."""
    ended = {}
    for script in sorted(FOLDER.glob("bench_*.py"), key=number):
        print(f"\n== {script.name}", flush=True)
        ended[script.name] = subprocess.run([sys.executable, str(script)], cwd=FOLDER.parent).returncode
    missed = [name for name, code in ended.items() if code != 0]
    if missed:
        print(f"\nmissed a target or could not run: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
