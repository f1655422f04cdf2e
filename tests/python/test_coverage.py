"""The coverage table is complete: every primitive of the installed JAX is accounted for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from jax2onnx import _core

Row = namedtuple("Row", "primitive kind reason")
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def rows():
    """The table, made in a process of its own: other libraries register primitives, too."""
    code = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['table']()))"
    command = [sys.executable, "-c", code, str(ROOT / "tools" / "coverage.py")]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {name: Row(name, kind, reason) for name, kind, reason in found}


def test_nothing_is_unknown(rows):
    assert [name for name, row in rows.items() if row.kind == "unknown"] == []
    assert len(rows) > 250


def test_what_is_not_done_has_a_reason(rows):
    for row in rows.values():
        assert bool(row.reason) == (row.kind in ("dropped", "refused", "not yet")), row


def test_each_kind_holds_what_it_should(rows):
    expected = {
        "add": "lowered",
        "random_bits": "lowered",
        "igamma": "lowered by JAX's definition",
        "run_state": "lowered by JAX's definition",
        "sharding_constraint": "passed through",
        "debug_callback": "dropped",
        "pure_callback": "refused",
    }
    assert {name: rows[name].kind for name in expected} == expected


def test_the_core_names_its_own_rows():
    plugins = _core.plugins()
    assert plugins["add"] == ("lowered", "")
    assert {kind for kind, _ in plugins.values()} == {"lowered", "passed through", "dropped", "refused"}
