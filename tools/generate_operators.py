"""Generates src/onnx/facts/operators.inc from the installed onnx package: one row an operator.

Arity and attributes come from the standard, over all versions from OLDEST on. The last column, the traits, is written
by hand in the file itself and kept when it is written anew; operators that are new get none.

    python tools/generate_operators.py           write the file
    python tools/generate_operators.py --check   write nothing; fail when the file differs from what would be written
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections import defaultdict

import onnx.defs

PATH = pathlib.Path(__file__).parent.parent / "src/onnx/facts/operators.inc"
OLDEST = 13  # opsets before it are not written
MANY = 2**31 - 1
LETTERS = {
    "INT": "i",
    "FLOAT": "f",
    "STRING": "s",
    "TENSOR": "t",
    "GRAPH": "g",
    "INTS": "I",
    "FLOATS": "F",
    "STRINGS": "S",
    "TENSORS": "T",
    "GRAPHS": "G",
    "TYPE_PROTO": "p",
    "TYPE_PROTOS": "P",
    "SPARSE_TENSOR": "x",
    "SPARSE_TENSORS": "X",
}
HEADER = """\
/* Operators of ONNX's own domain: name, inputs (least, most), outputs (least, most), attributes, traits (operators.h).
 *
 * An attribute is its name and the letter of its kind (i f s t g, in capitals a list of them, p a type), with ! when it
 * must be there, and with the versions of the operator that have it where not all do: "axes=I..17" was an attribute
 * until version 17, "num_outputs=i18.." is one since 18. Arity is over all versions from {oldest} on.
 * Written by tools/generate_operators.py from onnx {version}; the traits are written by hand and kept. */
"""
ROW = re.compile(r'^OPERATOR\((\w+), .*", ([^"]+)\)$', re.MULTILINE)


def histories() -> dict[str, list[onnx.defs.OpSchema]]:
    """The versions of each operator, oldest first; those that a later one replaced by OLDEST are left out."""
    found = defaultdict(list)
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version):
        if schema.domain == "":
            found[schema.name].append(schema)
    for name, versions in found.items():
        first = max((i for i, schema in enumerate(versions) if schema.since_version <= OLDEST), default=0)
        found[name] = versions[first:]
    return dict(sorted(found.items()))


def attributes(versions: list[onnx.defs.OpSchema]) -> str:
    names = list(dict.fromkeys(name for schema in versions for name in sorted(schema.attributes)))
    words = []
    for name in names:
        having = [schema for schema in versions if name in schema.attributes]
        attribute = having[-1].attributes[name]
        word = f"{name}={LETTERS[attribute.type.name.split('.')[-1]]}{'!' if attribute.required else ''}"
        first, last = having[0] is versions[0], having[-1] is versions[-1]
        if not first or not last:
            end = "" if last else versions[versions.index(having[-1]) + 1].since_version - 1
            word += f"{'' if first else having[0].since_version}..{end}"
        words.append(word)
    return " ".join(words)


def count(number: int) -> str:
    return "MANY" if number == MANY else str(number)


def rows(traits: dict[str, str]) -> str:
    lines = []
    for name, versions in histories().items():
        arity = [
            count(min(schema.min_input for schema in versions)),
            count(max(schema.max_input for schema in versions)),
            count(min(schema.min_output for schema in versions)),
            count(max(schema.max_output for schema in versions)),
        ]
        lines.append(f'OPERATOR({name}, {", ".join(arity)}, "{attributes(versions)}", {traits.get(name, "0")})')
    return "\n".join(lines) + "\n"


def main() -> int:
    before = PATH.read_text() if PATH.exists() else ""
    text = HEADER.format(oldest=OLDEST, version=onnx.__version__) + rows(dict(ROW.findall(before)))
    if "--check" in sys.argv[1:]:
        same = text == before
        print(f"{PATH.name} is {'current' if same else 'stale: run tools/generate_operators.py'}")
        return not same
    PATH.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
