"""Generates src/onnx/facts/operators.inc and signature.inc from the installed onnx package: one row an operator, and
one row a version of it.

Arity and attributes come from the standard, over all versions from OLDEST on. The last column, the traits, is written
by hand in the file itself and kept when it is written anew; operators that are new get none.

    python tools/generate_operators.py           write the files
    python tools/generate_operators.py --check   write nothing; fail when a file differs from what would be written
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections import defaultdict

import onnx.defs
from generate_schema import onnx_names

FACTS = pathlib.Path(__file__).parent.parent / "src/onnx/facts"
PATH = FACTS / "operators.inc"
SIGNATURES = FACTS / "signature.inc"
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
SIGNATURE_HEADER = """\
/* Signatures of operators (signature.h): operator, version, inputs (least, most), outputs (least, most), parameters,
 * element types of each letter. Versions in force from opset {oldest} on; one without parameters withdrew the operator.
 * Written by tools/generate_operators.py from onnx {version}; do not edit. */
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


def type_mask(types: set[str], bits: dict[str, int]) -> int:
    """A bit per DType; that of DTYPE_NONE for what is no tensor, or one of elements that DType lacks."""
    elements = [re.fullmatch(r"tensor\((\w+)\)", spelling) for spelling in types]
    return sum({1 << bits.get(found[1].upper(), 0) if found else 1 for found in elements})


def signature(schema: onnx.defs.OpSchema, bits: dict[str, int]) -> str:
    letters: dict[str, str] = {}
    masks: dict[str, int] = {}

    def word(parameter: onnx.defs.OpSchema.FormalParameter) -> str:
        letter = letters.setdefault(parameter.type_str, chr(ord("a") + len(letters)))
        masks[letter] = type_mask(parameter.types, bits)
        option = parameter.option.name
        mark = {"Single": "", "Optional": "?"}.get(option) if option != "Variadic" else "+*"[parameter.is_homogeneous]
        return letter + mark

    parameters = "".join(map(word, schema.inputs)) + ">" + "".join(map(word, schema.outputs))
    arity = map(count, (schema.min_input, schema.max_input, schema.min_output, schema.max_output))
    types = ", ".join(f"0x{masks[letter]:08X}" for letter in sorted(masks))
    text = "" if schema.deprecated else parameters
    return f'{{OP_{schema.name}, {schema.since_version}, {", ".join(arity)}, "{text}", {{{types}}}}},'


def signatures() -> str:
    bits = onnx_names()
    return "".join(signature(schema, bits) + "\n" for versions in histories().values() for schema in versions)


def main() -> int:
    before = PATH.read_text() if PATH.exists() else ""
    said = {"oldest": OLDEST, "version": onnx.__version__}
    texts = {
        PATH: HEADER.format(**said) + rows(dict(ROW.findall(before))),
        SIGNATURES: SIGNATURE_HEADER.format(**said) + signatures(),
    }
    status = 0
    for path, text in texts.items():
        if "--check" in sys.argv[1:]:
            same = path.exists() and path.read_text() == text
            print(f"{path.name} is {'current' if same else 'stale: run tools/generate_operators.py'}")
            status |= not same
        else:
            path.write_text(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
