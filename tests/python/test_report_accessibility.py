"""The page of ``j2o report`` under axe-core, which ``make accessibility`` fetches; else these tests are skipped."""

from __future__ import annotations

import json
import pathlib

import jax
import jax.numpy as jnp
import pytest
from page_check import node_row

from jax2onnx import to_onnx

AXE = pathlib.Path(__file__).resolve().parents[2] / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: run make accessibility")


def step(carry, _):
    return jnp.sin(carry) * 0.5, carry.sum()


def looped(x):
    return jax.lax.scan(step, jnp.cos(x), length=3)


def violations(page):
    page.js(AXE.read_text() + "; 0")
    found = json.loads(page.js("axe.run(document).then((results) => JSON.stringify(results.violations))"))
    return [(one["id"], one["impact"], [node["html"][:160] for node in one["nodes"]][:3]) for one in found]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing(theme, width, opened):
    model = to_onnx(looped, [("B", 3)], stacktrace_metadata="full")
    page = opened(model, theme=theme, width=width, height=900)
    assert violations(page) == [], "when it is opened"
    if width == 1400:
        page.click(node_row("Sin"))
        assert violations(page) == [], "with a node chosen"
    page.key("?")
    assert violations(page) == [], "with the help"
    page.key("Escape", "/")
    page.type("nothingofthekind")
    assert violations(page) == [], "with nothing found"
    for name in ("source", "graph") if width == 390 else ():
        page.click(f"document.querySelector('#panes [data-pane={name}]')")
        assert violations(page) == [], name
