"""Runs the suite on the oldest and the newest supported pair of Python and JAX that can be had here.

Usage: test_matrix.py [--short]. Each pair gets a virtual environment of its own under .matrix/. With --short a sample
of the suite runs, and a pair whose Python is not installed is left out with a word.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAIRS = (
    # name, Python versions in order of preference, what to install for JAX
    ("oldest", ("3.11", "3.12"), ["jax==0.9.2"]),
    ("newest", ("3.13", "3.12"), ["jax"]),
)
COMMON = ["numpy", "ml_dtypes", "onnx", "onnx-ir", "onnxruntime", "pytest", "pytest-xdist", "meson", "ninja"]
FRAMEWORKS = ["flax", "equinox"]
SAMPLE = [
    "test_thin_slice.py",
    "test_to_onnx.py",
    "test_provenance.py",
    "test_elementwise.py",
    "test_dot_general.py",
    "test_control_flow.py",
    "test_calls.py",
]


def find_python(versions: tuple[str, ...]) -> str | None:
    """An interpreter of one of these versions: on the path, or among pyenv's."""
    for version in versions:
        candidates = [f"python{version}"]
        pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
        candidates += sorted(str(path) for path in pyenv.glob(f"{version}.*/bin/python{version}"))
        for candidate in candidates:
            probe = (
                f"import sys, venv, sysconfig, os; assert sys.version_info[:2] == {tuple(map(int, version.split('.')))}"
            )
            header = "; assert os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h'))"
            try:
                found = subprocess.run([candidate, "-c", probe + header], capture_output=True)
            except OSError:
                continue
            if found.returncode == 0:
                return candidate
    return None


def prepare(name: str, python: str, jax: list[str]) -> pathlib.Path:
    folder = ROOT / ".matrix" / name
    interpreter = folder / "bin" / "python"
    wanted = " ".join([python, *jax, *COMMON, *FRAMEWORKS])
    stamp = folder / "ready"
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    subprocess.run([interpreter, "-m", "pip", "install", "-q", "--upgrade", "pip"], check=True)
    subprocess.run([interpreter, "-m", "pip", "install", "-q", *jax, *COMMON, *FRAMEWORKS], check=True)
    stamp.write_text(wanted)
    return interpreter


def run_suite(name: str, interpreter: pathlib.Path, short: bool) -> bool:
    environment = {**os.environ, "PATH": f"{interpreter.parent}:{os.environ['PATH']}"}
    build = ["tools/build_in_place.sh", str(interpreter), f"build/matrix-{name}"]
    subprocess.run(build, cwd=ROOT, check=True, env=environment)
    tests = [f"tests/python/{test}" for test in SAMPLE if (ROOT / "tests/python" / test).exists()]
    jobs = os.environ.get("JOBS", "2")
    command = [str(interpreter), "-m", "pytest", "-q", "-n", jobs, *(tests if short else ["tests/python"])]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a sample of the suite; missing interpreters are left out")
    options = parser.parse_args()
    passed = True
    for name, versions, jax in PAIRS:
        python = find_python(versions)
        if python is None:
            print(f"matrix: {name}: no Python {' or '.join(versions)} with headers here", flush=True)
            passed = passed and options.short
            continue
        print(f"matrix: {name}: {python} with {' '.join(jax)}", flush=True)
        passed = run_suite(name, prepare(name, python, jax), options.short) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
