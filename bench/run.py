"""Measures what an export costs, as ratios in one run: against JAX's own tracing, and against the weights' size."""

from __future__ import annotations

import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def main() -> int:
    for script in sorted(FOLDER.glob("bench_*.py")):
        if subprocess.run([sys.executable, str(script)], cwd=FOLDER.parent).returncode != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
