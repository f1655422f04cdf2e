"""Proves what the layout of the sources promises; `make lint` runs it.

python tools/check_house.py              prints what is broken, and how many places; fails when there are any
python tools/check_house.py --operators  prints how many string literals of src/lower and src/passes name an operator
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent

# The layers from the ground up. A file may include its own layer and those of the rows above its row, no other layer of
# its own row. A folder stands for all below it that have no row of their own.
LAYERS = [
    ["base"],
    ["types"],
    ["provenance"],
    ["program"],
    ["onnx/facts"],
    ["onnx/graph"],
    ["onnx/evaluate", "onnx/file"],
    ["target"],
    ["graft", "legalize", "lower", "passes"],
    ["convert", "include"],
    ["record"],
    ["api"],
    ["tool"],
    ["python"],
]

# Names that are one letter apart and nevertheless known to everybody as two things.
KNOWN_APART = {("dtype", "type")}

# Parts of one thing in several languages: page.c, page.css, page.js.
ONE_THING = {".c", ".h", ".inc", ".css", ".html", ".js"}

COMMANDS = "jax2onnx._commands"

# Functions of the C library that want addresses even of nothing, and the argument that says how much there is.
GUARDED = "src/base/bytes.h"
WANT_ADDRESSES = {"memcpy": 2, "memmove": 2, "memcmp": 2, "memchr": 2, "memset": 2, "qsort": 1, "bsearch": 2}
CONSTANT = re.compile(r"(\d+ \* )?(sizeof\b(?!.* \* [a-z]).*|\d+|[A-Z_]+)")

Finding = tuple[str, int, str]  # path, line, what is wrong


def tracked(*patterns: str) -> list[str]:
    """Files of the tree that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(path for path in set(listed) if (ROOT / path).exists())


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)


def guard_of(path: str) -> str:
    """include/j2o.h -> J2O_H, src/base/map.h -> J2O_BASE_MAP_H."""
    inside = path.split("/", 1)[1]
    return ("" if inside.startswith("j2o") else "J2O_") + re.sub(r"\W", "_", inside).upper()


def guards(headers: list[str]) -> Iterator[Finding]:
    for path in headers:
        lines = without_comments(read(path)).split("\n")
        found = [(at, line) for at, line in enumerate(lines, 1) if line.strip()][:2]
        guard = guard_of(path)
        if [line for _, line in found] != [f"#ifndef {guard}", f"#define {guard}"]:
            yield path, found[0][0] if found else 1, f"the include guard is not {guard}"


def one_letter_apart(a: str, b: str) -> bool:
    if len(a) == len(b):
        return sum(x != y for x, y in zip(a, b, strict=True)) == 1
    short, long = sorted((a, b), key=len)
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def confusable(paths: list[str]) -> Iterator[Finding]:
    """Files of one language with one name in two folders, or with names one letter apart."""
    things: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        things[PurePosixPath(path).stem].append(path)
    for files in things.values():
        first = PurePosixPath(files[0]).parent
        for other in files[1:]:
            if PurePosixPath(other).parent != first:
                yield other, 1, f"has the name of {files[0]}"
    names = sorted(things)
    for at, name in enumerate(names):
        for other in names[at + 1 :]:
            if one_letter_apart(name, other) and (name, other) not in KNOWN_APART:
                yield things[other][0], 1, f"is one letter from {things[name][0]}"


def layer_of(path: str) -> str | None:
    """The row of LAYERS that a path below src/ belongs to: the longest that fits."""
    inside = path.removesuffix(".c").removesuffix(".h")
    while inside not in RANKS:
        if "/" not in inside:
            return None
        inside = inside.rsplit("/", 1)[0]
    return inside


RANKS = {layer: rank for rank, row in enumerate(LAYERS) for layer in row}


def includes(sources: list[str]) -> Iterator[Finding]:
    for path in sources:
        layer = layer_of(path.removeprefix("src/"))
        if layer is None:
            yield path, 1, "belongs to no layer: add its folder to LAYERS in tools/check_house.py"
            continue
        for at, line in enumerate(read(path).split("\n"), 1):
            found = re.match(r'#include "([^"]+)"', line)
            if not found or "/" not in found[1]:
                target = "convert" if found and found[1] in ("convert.h", "j2o.h") else layer
            else:
                target = layer_of(found[1]) or found[1]
            if target not in RANKS:
                yield path, at, f"{found[1]} belongs to no layer"
            elif target != layer and RANKS[target] >= RANKS[layer]:
                yield path, at, f"{layer} may not include {target}"


def operators() -> set[str]:
    return set(re.findall(r"^OPERATOR\((\w+),", read("src/onnx/facts/operators.inc"), re.MULTILINE))


def operator_names(sources: list[str]) -> Iterator[Finding]:
    """String literals that are an operator's name. What a message or a summary says about operators is text."""
    known = operators()
    for path in sources:
        for at, line in enumerate(without_comments(read(path)).split("\n"), 1):
            for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
                if text in known:
                    yield path, at, f'"{text}" names an operator: OP_{text}'


def arguments(text: str, at: int) -> list[str]:
    """Those of the call whose bracket opens before ``at``."""
    found, depth = [""], 0
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|.', text[at:], re.DOTALL):
        depth += (token in "([{") - (token in ")]}")
        if depth < 0:
            break
        if token == "," and not depth:
            found.append("")
        else:
            found[-1] += token
    return [" ".join(argument.split()) for argument in found]


def unguarded_sizes(sources: list[str]) -> Iterator[Finding]:
    """Calls that may be given no bytes at no address, which the C library does not allow."""
    call = re.compile(rf"\b({'|'.join(WANT_ADDRESSES)})\(")
    for path in sources:
        text = without_comments(read(path))
        for found in call.finditer(text) if path != GUARDED else ():
            given = arguments(text, found.end())
            if not CONSTANT.fullmatch(given[WANT_ADDRESSES[found[1]]]):
                line = text.count("\n", 0, found.start()) + 1
                yield path, line, f"{found[1]} of a size that may be 0: {GUARDED} has what takes none"


def imported(path: str, node: ast.AST) -> list[str]:
    """Modules that a statement imports, relative ones with their full names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = path.split("/")[: -node.level]
        base = ".".join([*package, *([base] if base else [])])
    return [base, *(f"{base}.{alias.name}" for alias in node.names)]


def library_imports(modules: list[str]) -> Iterator[Finding]:
    for path in modules:
        if path.startswith(f"{COMMANDS.replace('.', '/')}/") or path == "jax2onnx/__main__.py":
            continue
        for node in ast.walk(ast.parse(read(path))):
            if any(name == COMMANDS or name.startswith(f"{COMMANDS}.") for name in imported(path, node)):
                yield path, node.lineno, "a module of the library imports a command"


def findings() -> Iterator[Finding]:
    sources = tracked("src/*.c", "src/*.h", "src/*.inc")
    modules = tracked("jax2onnx/*.py")
    yield from guards([*tracked("src/*.h", "include/*.h")])
    yield from confusable([path for path in tracked("src/*") if PurePosixPath(path).suffix in ONE_THING])
    yield from confusable([path for path in modules if not path.endswith("__init__.py")])
    yield from includes(sources)
    yield from operator_names(tracked("src/lower/*", "src/passes/*"))
    yield from unguarded_sizes(sources)
    yield from library_imports(modules)


def main() -> int:
    if "--operators" in sys.argv[1:]:
        print(len(list(operator_names(tracked("src/lower/*", "src/passes/*")))))
        return 0
    found = list(findings())
    for path, line, what in found:
        print(f"{path}:{line}: {what}")
    if found:
        print(f"{len(found)} place{'s' if len(found) > 1 else ''} where the layout of the sources is broken")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
