"""Makes src/provenance/pack_dictionary.inc: what the packer of provenance has learnt before it reads a text.

The files and functions of libraries and of the converter that several models name, and some rows of numbers, in the
form in which a compact model has them (src/provenance/table.h, src/onnx/file/packed_entries.h). Frames of the models'
own code are left out, and so are line numbers, which belong to a version of a library.

    python tools/make_pack_dictionary.py FULL.onnx... > src/provenance/pack_dictionary.inc

A packed model is unpacked with the dictionary that it was packed with: this is run for a new PACK_VERSION only
(src/provenance/pack.h), and the file of the version before stays.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator

import onnx

INSTALLED = "site-packages/"
FRAME = re.compile(r"(.+):\d+ (?:\((.*)\)|in (.*))")
LEAST = 2  # models that name it
ENTRIES = """\
modules 99
\tModel
blocks.0.norm\tLayerNorm
blocks.0\tBlock
layers.1.attn\tAttention
layers.1\tSequential
conv1\tConv
head\tLinear
removed 99
no-op\tlowering\t/home/user/project/model.py:20 (Model.__call__)
dead\tremove_dead_code\t/home/user/project/model.py:21 (Block.__call__) < \
/home/user/project/model.py:40 (Model.__call__)
sources 99
/home/user/project/model.py\t0123456789abcdef
/home/user/project/export.py\t0123456789abcdef
provenance 9999
"""
ROWS = """\
frames 12
1 213 1
2 1922 2
3 713 3
3 705 4
4 142 5
4 259 6
5 195 7
6 182 8
7 732 9
7 1532 10
8 180 11
8 575 12
inner 6
1 2 3 4 5 6 7 8 9 10 11 12
1 2 3 4 15 16 17 12
1 2 3 4 5 6 7 8 18 10 19 12
1 2 3 4 5 6 7 8 20 10 21 12
1 2 3 4 15 16 22 23 12
1 2 3 4 5 6 7 24 25 22 26 27 28 29
calls 4
13 0
14 1
39 1
45 2
outer 6
9 20 13 0
+1*2
9 31 14 2
+1
9 50 13 0
-3
ways 8
1 2
1 3
2 4
2 5
3 6
4 7
4 8
5 7
origins 14
1 m16 s12-31
2 1 s12-31
3 1 s12-31
4 1 s12-31
6 1 m25 s12-67
7 3 m30 s35-49 +4,3 +5,3 +6,3 +7,3
8 3 m48 s26-50
9 3 s26-50 +20,3
10 3 m52 s16-63
=9 m96
=9 m97
=9
=9 m98
=9
"""


def frames(path: str) -> Iterator[tuple[str, str]]:
    """File and function of every frame that is not the model's own."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        texts = [entry.value for entry in node.metadata_props if entry.key.endswith(("traceback", "stacktrace"))]
        for line in itertools.chain.from_iterable(text.split("\n") for text in texts):
            found = FRAME.fullmatch(line)
            if not found:
                continue
            file, function = found[1], found[2] or found[3]
            if INSTALLED in file:
                yield file.split(INSTALLED, 1)[1], function
            elif not os.path.isabs(file):
                yield file, function


def common(counts: Counter[str]) -> list[str]:
    """Those that several models name, the most usual last: what was learnt last is known best."""
    return sorted((text for text, count in counts.items() if count >= LEAST), key=lambda text: (counts[text], text))


def file_rows(files: list[str]) -> Iterator[str]:
    before = ""
    for file in files:
        path = file if file.startswith("src/") else f"/usr/lib/python3.12/{INSTALLED}{file}"
        pairs = zip(before, path, strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        yield f"{shared} {path[shared:]}"
        before = path


def dictionary(paths: list[str]) -> str:
    files: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for path in paths:
        found = set(frames(path))
        files.update({file for file, _ in found})
        functions.update({function for _, function in found})
    rows, names = list(file_rows(common(files))), common(functions)
    sections = [f"files {len(rows)}", *rows, f"names {len(names)}", *names]
    return ENTRIES + "j2o origins 4\n" + "\n".join(sections) + "\n" + ROWS


def main() -> None:
    text = dictionary(sys.argv[1:])
    if not text.isascii():
        sys.exit("the dictionary is not plain text")
    print("/* Made by tools/make_pack_dictionary.py; never changed (see there). */")
    for line in text.splitlines():
        escaped = line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        print(f'"{escaped}\\n"')


if __name__ == "__main__":
    main()
