"""Runs the shell blocks of README.md in order, as a reader would, in an empty folder with an empty HOME.

Usage: run_documents.py [--fresh]. With --fresh a new environment is made, and the tree installed into it as the README
says; without it the commands are those of this interpreter and this tree. A block after <!-- clone --> is for a clone
of the repository: it is run with --fresh alone, in a clone of this one.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^(<!-- clone -->\n)?```sh\n(.*?)^```$", re.M | re.S)


def blocks(text: str) -> list[tuple[bool, str]]:
    """Whether it needs a clone, and the commands, of each block."""
    return [(bool(clone), commands) for clone, commands in BLOCK.findall(text)]


def shims(folder: pathlib.Path) -> None:
    """The commands of an installation, from this tree."""
    folder.mkdir()
    for name, words in (("python", ""), ("jax2onnx", "-m jax2onnx"), ("j2o", "-m jax2onnx")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)


def clone(folder: pathlib.Path) -> pathlib.Path:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


def run(commands: str, cwd: pathlib.Path, scripts: pathlib.Path, home: pathlib.Path) -> None:
    environment = {"PATH": f"{scripts}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_TRUSTED_HOST", "SSL_CERT_FILE", "JOBS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    done = subprocess.run(["bash", "-euc", commands], cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"this block of README.md fails with {done.returncode}:\n{commands}{done.stdout}{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true")
    fresh = parser.parse_args().fresh
    found = blocks((ROOT / "README.md").read_text())
    count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        work, home, scripts = folder / "work", folder / "home", folder / "bin"
        work.mkdir()
        home.mkdir()
        tree = clone(folder / "clone") if fresh else ROOT
        if fresh:
            venv.create(folder / "venv", with_pip=True)
            scripts = folder / "venv" / "bin"
        else:
            shims(scripts)
        for needs_clone, commands in found:
            if needs_clone and not fresh:
                continue
            run(commands, tree if needs_clone else work, scripts, home)
            count += 1
    print(f"README.md: {count} of {len(found)} blocks ran")


if __name__ == "__main__":
    main()
