"""What becomes of every primitive that the installed JAX can lower.

Usage: coverage.py [--count RECORD] [--write]. RECORD is what test runs with COUNT_PRIMITIVES=RECORD wrote: each
primitive is shown with the number of tests that export it; the numbers are kept in tests/primitive_counts.json. With
--write docs/primitives.md is written.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import pkgutil
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

from jax2onnx import _core  # noqa: E402
from jax2onnx._door.expansions import defining_function  # noqa: E402

COUNTS = ROOT / "tests" / "primitive_counts.json"
PAGE = ROOT / "docs" / "primitives.md"

# What can be expressed in ONNX and is missing here; a lowering that is added makes its entry void.
NOT_YET: dict[str, str] = {}
KINDS = ("lowered", "lowered by JAX's definition", "passed through", "dropped", "refused", "not yet", "unknown")


class Row(NamedTuple):
    primitive: str
    kind: str
    reason: str


def import_all_of_jax() -> None:
    """Primitives register themselves when their module is imported."""
    for module in pkgutil.iter_modules(jax.__path__, "jax."):
        if module.name.startswith(("jax._", "jax.tools")):
            continue
        with contextlib.suppress(Exception):  # parts for other platforms
            importlib.import_module(module.name)
    for name in ("jax.scipy.special", "jax.scipy.linalg", "jax.experimental.sparse", "jax.lax.linalg"):
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def registered_primitives() -> dict[str, Any]:
    """Every primitive with a lowering rule for some platform, by name."""
    from jax._src.interpreters import mlir

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that JAX deprecates
        import_all_of_jax()
    primitives = set(mlir._lowerings)
    for rules in mlir._platform_specific_lowerings.values():
        primitives.update(rules)
    return {primitive.name: primitive for primitive in primitives}


def table() -> list[Row]:
    known = _core.plugins()
    rows = []
    for name, primitive in sorted(registered_primitives().items()):
        if name in known:
            rows.append(Row(name, *known[name]))
        elif name in NOT_YET:
            rows.append(Row(name, "not yet", NOT_YET[name]))
        elif defining_function(primitive) is not None:
            rows.append(Row(name, "lowered by JAX's definition", ""))
        else:
            rows.append(Row(name, "unknown", ""))
    return rows


def count_by_tests(record: Path) -> dict[str, int]:
    """How many tests export each primitive: a test run wrote lines "test primitive…"."""
    lines = [line.split("\t") for line in record.read_text().splitlines()]
    counts = Counter(name for _, name in {(test, name) for test, *names in lines for name in names})
    COUNTS.write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n")
    return counts


def stored_counts() -> dict[str, int]:
    return json.loads(COUNTS.read_text()) if COUNTS.exists() else {}


def page(rows: list[Row], counts: dict[str, int]) -> str:
    numbers = Counter(row.kind for row in rows)
    summary = ", ".join(f"{numbers[kind]} {kind}" for kind in KINDS if numbers[kind])
    lines = [
        "# Primitives",
        "",
        f"What becomes of the {len(rows)} primitives that JAX {jax.__version__} can lower: {summary}.",
        "Written by `make coverage`. *Lowered by JAX's definition* means that JAX itself defines the primitive by a",
        "function of others, which is exported in its place. *Passed through* means that on one device the result is",
        "the operand. The number of tests is how many export the primitive (`make coverage-count`).",
        "",
        "| primitive | what becomes of it | tests | reason |",
        "|---|---|---|---|",
    ]
    shown = {row.primitive: counts.get(row.primitive, 0 if counts else "") for row in rows}
    lines += [f"| `{row.primitive}` | {row.kind} | {shown[row.primitive]} | {row.reason} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=Path, metavar="RECORD", help="count anew, from what test runs wrote")
    parser.add_argument("--write", action="store_true", help="write docs/primitives.md")
    options = parser.parse_args()
    counts = count_by_tests(options.count) if options.count else stored_counts()
    rows = table()
    for row in rows:
        print(f"{row.primitive:40} {row.kind:30} {counts.get(row.primitive, ''):>5}  {row.reason}")
    numbers = Counter(row.kind for row in rows)
    print(f"\nJAX {jax.__version__}: " + ", ".join(f"{numbers[kind]} {kind}" for kind in KINDS if numbers[kind]))
    if options.write:
        PAGE.write_text(page(rows, counts))
    if numbers["unknown"]:
        sys.exit("some primitives are unknown")


if __name__ == "__main__":
    main()
