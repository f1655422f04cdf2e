"""Makes src/provenance/known_frames.inc: frames of libraries that models have, and those of the converter,
which a table of origins names by number (src/provenance/known_frames.h).

    python tools/make_known_frames.py FULL.onnx... > src/provenance/known_frames.inc

Frames that usually follow one another have numbers that do, and the most usual ones come first. Lines of a library are
those of the version that the models were exported with: frames of another version are still known by file and function.
Lines of the converter change with every version of it and are left out.

A table is read with the list that it was written with: this is run for a new TABLE_VERSION only
(src/provenance/table.h), and the file of the version before stays.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

INSTALLED = "site-packages/"
SOURCES = pathlib.Path(__file__).resolve().parents[1] / "src"
FRAME = re.compile(r"(.+):(\d+) (?:\((.*)\)|in (.*))")

Frame = tuple[str, str, int]  # file, function, line


def nodes(graph: Any) -> Iterator[Any]:
    """Its nodes and initializers, those of nested graphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes(attribute.g)
    yield from graph.initializer


def known_form(line: str) -> Frame | None:
    """None for a frame of the model's own code."""
    found = FRAME.fullmatch(line)
    if not found:
        return None
    file, number, function = found[1], int(found[2]), found[3] or found[4]
    if INSTALLED in file:
        return "@" + file.split(INSTALLED, 1)[1], function, number
    return None if os.path.isabs(file) or not file.startswith("src/") else (file, function, 0)


def own_frames() -> Iterator[Frame]:
    """Of the rows of lowerings and of the passes, each."""
    for path in sorted((SOURCES / "lower").rglob("*.c")):
        for primitive in re.findall(r'\bPLUGIN\w*\("(\w+)"', path.read_text()):
            function = "".join(part.capitalize() for part in primitive.split("_"))
            yield path.relative_to(SOURCES.parent).as_posix(), f"{function}Plugin.lower", 0
    names = re.findall(r'^ +\{"(\w+)", "', (SOURCES / "passes/passes.c").read_text(), re.M)
    for path in sorted((SOURCES / "passes").rglob("*/*.c")):
        for function in re.findall(r"^(?!static)\w.*?(\w+)\([^;]*\{$", path.read_text(), re.M):
            if function in names:
                yield path.relative_to(SOURCES.parent).as_posix(), function, 0


def frames(path: str) -> list[Frame]:
    """Those of a model, in the order of their first use."""
    found: dict[Frame, None] = {}
    for node in nodes(onnx.load(path, load_external_data=False).graph):
        entries = {entry.key.rpartition(".")[2]: entry.value for entry in node.metadata_props}
        for key in ("jax_traceback", "stacktrace"):
            known = map(known_form, entries.get(key, "").split("\n"))
            found.update(dict.fromkeys(frame for frame in known if frame))
    return list(found)


def in_order(models: Iterable[list[Frame]]) -> list[Frame]:
    models = list(models)
    counts = Counter(itertools.chain.from_iterable(models))
    after: dict[Frame, Counter[Frame]] = defaultdict(Counter)
    before: dict[Frame, Counter[Frame]] = defaultdict(Counter)
    for first, second in itertools.chain.from_iterable(map(itertools.pairwise, models)):
        after[first][second] += 1
        before[second][first] += 1
    done: set[Frame] = set()

    def neighbour(frame: Frame, neighbours: dict[Frame, Counter[Frame]]) -> Frame | None:
        usual = [
            (times, other)
            for other, times in neighbours[frame].items()
            if other not in done and times * 2 >= counts[frame] and times * 3 >= counts[other]
        ]
        return max(usual, default=(0, None))[1]

    order: list[Frame] = []
    for start in sorted(counts, key=lambda frame: (-counts[frame], frame)):
        if start in done:
            continue
        chain = [start]
        done.add(start)
        while other := neighbour(chain[0], before):
            chain.insert(0, other)
            done.add(other)
        while other := neighbour(chain[-1], after):
            chain.append(other)
            done.add(other)
        order += chain
    return order


def text(order: list[Frame]) -> str:
    """A row for each file and, below it, rows of function, line and number, all in the order of their bytes."""
    numbers = {frame: number for number, frame in enumerate(order, 1)}
    rows = []
    for file, found in itertools.groupby(sorted(order), key=lambda frame: frame[0]):
        rows.append(file)
        rows += [f"\t{function} {line} {numbers[file, function, line]}" for _, function, line in found]
    return "\n".join(rows) + "\n"


def print_known(models: Iterable[list[Frame]]) -> None:
    known = text(in_order([*models, *([frame] for frame in own_frames())]))
    if not known.isascii() or '"' in known or "\\" in known:
        sys.exit("the frames are not plain text")
    print("/* Made by tools/make_known_frames.py; never changed (see there). */")
    for line in known.splitlines():
        print('"' + line.replace("\t", "\\t") + '\\n"')


if __name__ == "__main__":
    print_known(map(frames, sys.argv[1:]))
