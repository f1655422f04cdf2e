"""Compiles every source of the core with the compilers of other platforms, without linking: clang with all warnings as
errors, and mingw-w64 for Windows. Usage: compile_elsewhere.py PAGE_PARTS_FOLDER

A compiler that is not installed is left out with a word, unless none is.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
COMPILERS = {
    "clang": ["-Wconversion"],
    # Its printf knows %zu when asked, but its warnings do not.
    "x86_64-w64-mingw32-gcc": ["-D__USE_MINGW_ANSI_STDIO=1", "-Wno-format", "-Wno-format-extra-args"],
}
# What Windows still lacks: these speak to the operating system, by POSIX's calls.
POSIX_ONLY = {
    "src/base/arena.c",
    "src/base/beneath.c",
    "src/base/entropy.c",
    "src/base/output.c",
    "src/base/output_sweep.c",
    "src/base/output_target.c",
    "src/base/platform.c",
    "src/tool/source.c",
    "src/tool/summary.c",
}


def compile_one(compiler: str, source: str, parts: str) -> str:
    command = [compiler, "-std=gnu11", "-D_GNU_SOURCE", '-DJ2O_VERSION="test"', "-Isrc", "-Iinclude", f"-I{parts}"]
    command += [*WARNINGS, *COMPILERS[compiler], "-fsyntax-only", source]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stderr


def check(compiler: str, sources: list[str], parts: str) -> bool:
    for_windows = "mingw" in compiler
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        messages = dict(
            zip(sources, pool.map(lambda source: compile_one(compiler, source, parts), sources), strict=True)
        )
    wrong = False
    for source, message in messages.items():
        waits = for_windows and source in POSIX_ONLY
        if message and not waits:
            print(message, end="")
        elif waits and not message:
            print(f"{source}: compiles with {compiler} now: take it off the list in {sys.argv[0]}")
        wrong |= bool(message) != waits
    waiting = f", {len(POSIX_ONLY)} of them wait for a port" if for_windows else ""
    if not wrong:
        print(f"{compiler}: {len(sources)} sources{waiting}")
    return not wrong


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "src/*.c"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sources = [source for source in listed.split() if not source.startswith("src/python/")]
    found = [compiler for compiler in COMPILERS if shutil.which(compiler)]
    for compiler in COMPILERS.keys() - set(found):
        print(f"{compiler}: not installed here: left out")
    return 0 if found and all([check(compiler, sources, sys.argv[1]) for compiler in found]) else 1


if __name__ == "__main__":
    sys.exit(main())
