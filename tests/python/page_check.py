"""The page of ``j2o report`` in tests: written, read back, opened in a browser."""

from __future__ import annotations

import inspect
import json
import re

import onnx

from jax2onnx import _core


def line_of(fn, text):
    lines, first = inspect.getsourcelines(fn)
    return first + next(index for index, line in enumerate(lines) if text in line)


def report(model, folder, *options, code=0):
    path = folder / "model.onnx"
    if isinstance(model, onnx.ModelProto):
        onnx.save(model, path)
    else:
        path = model
    page = folder / "report.html"
    assert _core.tool(["j2o", "report", str(path), "-o", str(page), *map(str, options)]) == code
    return page


def data_of(page):
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found[1])


def row_with(pane, part, text):
    rows = f"[...document.querySelectorAll('#{pane} .row')]"
    return f"{rows}.find(row => row.querySelector('{part}')?.textContent === '{text}')"


def node_row(name):
    return row_with("nodes", ".op", name)


def source_row(line):
    return row_with("lines", ".number", line)


def linked(page, pane):
    return page.js(f"[...document.querySelectorAll('#{pane} .row.linked')].map(row => row.textContent)")


def operators(page):
    return page.js("[...document.querySelectorAll('#nodes .op')].map(op => op.textContent)")


def focused(page):
    return page.js("document.activeElement.id")
