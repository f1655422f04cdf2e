"""The check of the sources' layout finds what it promises to find."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = 'OPERATOR(Add, 2, 2, 1, 1, "", 0)\n'


@pytest.fixture
def house(tmp_path, monkeypatch):
    """The checker, and a tree of its own that is in order."""
    spec = importlib.util.spec_from_file_location("check_house", ROOT / "tools/check_house.py")
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for path, text in {
        "src/onnx/facts/operators.inc": OPERATORS,
        "src/base/map.h": "/* A map. */\n#ifndef J2O_BASE_MAP_H\n#define J2O_BASE_MAP_H\n#endif\n",
        "src/base/map.c": '#include "base/map.h"\n',
        "src/lower/lower.c": '#include "base/map.h"\nfail("Add needs two inputs");\n',
        "include/j2o.h": "#ifndef J2O_H\n#define J2O_H\n#endif\n",
        "jax2onnx/_door/export.py": "from jax2onnx._compare import observe\n",
        "jax2onnx/_commands/verify.py": "from jax2onnx._commands.command import run\n",
        "jax2onnx/__main__.py": "from jax2onnx._commands import verify\n",
    }.items():
        write(tmp_path, path, text)
    assert list(checker.findings()) == []
    return checker


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def unguarded(name: str) -> str:
    return f"{name} of a size that may be 0: src/base/bytes.h has what takes none"


HEADER = "#ifndef {0}\n#define {0}\n#endif\n"


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("src/lower/shapes.h", HEADER.format("J2O_SHAPES_H"), "the include guard is not J2O_LOWER_SHAPES_H"),
        ("src/lower/shapes.h", "void f(void);\n", "the include guard is not J2O_LOWER_SHAPES_H"),
        ("src/passes/map.c", "", "has the name of src/base/map.c"),
        ("src/lower/data/maps.c", "", "is one letter from src/base/map.c"),
        ("src/lower/data/mop.c", "", "is one letter from src/base/map.c"),
        ("src/base/strings.c", '#include "types/type.h"\n', "base may not include types"),
        ("src/onnx/file/read.c", '#include "onnx/evaluate/evaluate.h"\n', "onnx/file may not include onnx/evaluate"),
        ("src/lower/emit.c", '#include "passes/passes.h"\n', "lower may not include passes"),
        ("src/lower/emit.c", '#include "convert.h"\n', "lower may not include convert"),
        ("src/attic/emit.c", "", "belongs to no layer: add its folder to LAYERS in tools/check_house.py"),
        ("src/lower/emit.c", 'emit(l, "Add");\n', '"Add" names an operator: OP_Add'),
        ("src/passes/fuse/rows.inc", '{"Mul", "Add"},\n', '"Add" names an operator: OP_Add'),
        ("src/lower/emit.c", "memcpy(a, f(b, c), n * sizeof *a);\n", unguarded("memcpy")),
        ("src/lower/emit.c", 'memcmp(a, "),", size)\n', unguarded("memcmp")),
        ("src/lower/emit.c", "qsort(items, count, sizeof *items, by_place);\n", unguarded("qsort")),
        ("jax2onnx/_zoo/export.py", "", "has the name of jax2onnx/_door/export.py"),
        ("jax2onnx/testing.py", "import jax2onnx._commands.verify\n", "a module of the library imports a command"),
        ("jax2onnx/_door/a.py", "from .._commands import verify\n", "a module of the library imports a command"),
        (
            "jax2onnx/_door/a.py",
            "def f():\n    from jax2onnx import _commands\n",
            "a module of the library imports a command",
        ),
    ],
)
def test_each_fault_is_found(house, path, text, message):
    write(house.ROOT, path, text)
    assert [(where, what) for where, _, what in house.findings()] == [(path, message)]


def test_comments_may_name_operators(house):
    write(house.ROOT, "src/lower/emit.c", '/* "Add" */\nemit(l, OP_Add);\n')
    assert list(house.findings()) == []


def test_constant_sizes_need_no_guard(house):
    calls = "memcpy(a, b, sizeof *a); memset(a, 0, 3 * sizeof(int)); memchr(text, ',', 5); qsort(a, RUNS, 4, f);\n"
    write(house.ROOT, "src/lower/emit.c", calls)
    assert list(house.findings()) == []
