"""The page of ``j2o report``: what is in it, and what it does in a browser."""

from __future__ import annotations

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from page_check import (
    data_of,
    focused,
    line_of,
    linked,
    node_row,
    operators,
    report,
    source_row,
)

import jax2onnx
from jax2onnx import _core, to_onnx

THIS_FILE = __file__


def halve(x):
    return x * 0.5


def step(carry, _):
    return halve(jnp.sin(carry)), carry.sum()


def looped(x):
    y, sums = jax.lax.scan(step, jnp.cos(x), length=3)
    return y, sums


def merging(x):
    y = jnp.sin(halve(x))
    return y * halve(x)


def export(level):
    return to_onnx(looped, [("B", 3)], stacktrace_metadata=level)


@functools.cache
def full():
    return export("full")


def operator(data, node):
    return data["texts"][node[1]]


def place(data, node):
    if node[3] < 0:
        return None
    file, line, function = data["places"][node[3]]
    return (data["texts"][data["files"][file][0]] if file >= 0 else None, line, data["texts"][function])


# ---- the data ----


@pytest.mark.parametrize("level", ["full", "compact"])
def test_every_node_has_its_line_and_the_source_is_there(level, tmp_path):
    data = data_of(report(export(level), tmp_path))
    expected = {
        "Sin": (THIS_FILE, line_of(step, "jnp.sin"), "step"),
        "Cos": (THIS_FILE, line_of(looped, "jnp.cos"), "looped"),
        "Mul": (THIS_FILE, line_of(halve, "0.5"), "halve"),
    }
    found = {operator(data, node): place(data, node) for node in data["nodes"]}
    assert {name: found[name] for name in expected} == expected
    assert all(node[3] >= 0 and node[4] >= 0 for node in data["nodes"])
    sources = {data["texts"][file[0]]: file[2] for file in data["files"] if file[2]}
    with open(THIS_FILE) as file:
        assert sources == {THIS_FILE: file.read().splitlines()}
    bodies = [graph for graph in data["graphs"] if graph[0] == "body"]
    assert bodies and operator(data, data["nodes"][bodies[0][2]]) in ("Loop", "Scan")


def test_compact_gives_the_same_page_as_full(tmp_path):
    model = tmp_path / "full.onnx"
    onnx.save(full(), model)
    assert _core.tool(["j2o", "compact", str(model), "-o", str(tmp_path / "model.onnx")]) == 0
    compact = data_of(report(tmp_path / "model.onnx", tmp_path))
    assert compact == data_of(report(full(), tmp_path))


def test_minimal_lists_functions_until_the_source_is_given(tmp_path):
    model = export("minimal")
    data = data_of(report(model, tmp_path))
    assert not data["files"] and not any(data["traces"])
    assert (None, line_of(halve, "0.5"), "halve") in [place(data, node) for node in data["nodes"]]
    data = data_of(report(model, tmp_path, "--source", THIS_FILE))
    assert (THIS_FILE, line_of(halve, "0.5"), "halve") in [place(data, node) for node in data["nodes"]]
    assert data["files"][0][2]


def test_a_given_source_stands_for_the_file_that_the_model_names(tmp_path):
    copy = tmp_path / "test_report.py"
    copy.write_text("# another text\n")
    data = data_of(report(full(), tmp_path, "--source", copy))
    assert [file[2] for file in data["files"] if not file[1]] == [["# another text"]]


def test_nothing_in_the_data_can_end_their_script(tmp_path):
    evil = "</script><script>alert(1)</script><!--\u2028'\"\\"
    node = helper.make_node("Sin", ["x"], ["y"], name=evil)
    node.metadata_props.add(key="pkg.jax2onnx.callsite", value=f"{evil}:3")
    graph = helper.make_graph([node], evil, [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    page = report(helper.make_model(graph), tmp_path)
    assert page.read_text().count("</script>") == 2
    data = data_of(page)
    assert data["texts"][data["nodes"][0][2]] == evil and place(data, data["nodes"][0]) == (None, 3, evil)


def torch_model():
    nodes = []
    for index, line in enumerate((8, 9)):
        node = helper.make_node("Relu", [f"v{index}"], [f"v{index + 1}"], name=f"relu_{index}")
        trace = (
            f'File "/project/net.py", line {line}, in forward\n    return self.act(x)\n'
            'File "/lib/site-packages/torch/nn.py", line 5, in relu'
        )
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
        nodes.append(node)
    call = helper.make_node("Twice", ["v2"], ["v3"], name="call", domain="local")
    body = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", "v3")]
    graph = helper.make_graph([*nodes, call], "net", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, functions=[body], opset_imports=opsets)


def test_models_of_other_producers(tmp_path):
    data = data_of(report(torch_model(), tmp_path))
    places = [place(data, node) for node in data["nodes"]]
    assert places == [("/project/net.py", 8, "forward"), ("/project/net.py", 9, "forward"), None, None]
    first = data["frames"][data["traces"][data["nodes"][0][4]][0]]
    assert data["texts"][first[2]] == "relu", "innermost first"
    assert [graph[0] for graph in data["graphs"]] == ["graph", "function"]


def test_a_profile_gives_times(tmp_path):
    names = [node.name for node in full().graph.node]
    profile = tmp_path / "times.json"
    profile.write_text(json.dumps({names[0]: 12.5, "nobody": 1, "\u00e9\U0001f600": 2e3}))
    assert data_of(report(full(), tmp_path, "--profile", profile))["times"] == [[0, 12.5]]
    events = [
        {"cat": "Session", "name": "model_loading", "dur": 9, "args": {"a": [1, {"b": None}], "c": True}},
        {"cat": "Node", "name": f"{names[0]}_kernel_time", "dur": 3, "args": {}},
        {"cat": "Node", "name": f"{names[0]}_kernel_time", "dur": 4, "args": {}},
        {"cat": "Node", "name": f"{names[0]}_fence_before", "dur": 100},
    ]
    profile.write_text(json.dumps(events, indent=1))
    assert data_of(report(full(), tmp_path, "--profile", profile))["times"] == [[0, 7]]


def test_the_profile_of_a_run_gives_times(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "run")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(full().SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, {session.get_inputs()[0].name: np.ones((2, 3), np.float32)})
    data = data_of(report(full(), tmp_path, "--profile", session.end_profiling()))
    assert len(data["times"]) == len(data["nodes"])


@pytest.mark.parametrize("text", ["", "3", "{", '{"a" 1}', '{"a": "b"}', '{"a": 1} x', "[1]", '{"\\q": 1}', "[" * 99])
def test_a_bad_profile_is_told(text, tmp_path, capfd):
    profile = tmp_path / "times.json"
    profile.write_text(text)
    report(full(), tmp_path, "--profile", profile, code=1)
    assert "times.json" in capfd.readouterr().err


def test_bad_files_are_told(tmp_path, capfd):
    report(tmp_path / "none.onnx", tmp_path, code=1)
    damaged = tmp_path / "cut.onnx"
    damaged.write_bytes(full().SerializeToString()[:500])
    report(damaged, tmp_path, code=1)
    report(full(), tmp_path, "--source", tmp_path / "none.py", code=1)
    assert "none.py: cannot be read" in capfd.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_what_was_done_is_said(tmp_path, capfd):
    report(full(), tmp_path, "--json")
    said = json.loads(capfd.readouterr().out)
    assert said["nodes"] == said["nodes_with_origin"] > 4 and said["source_files"] == 1
    report(export("off"), tmp_path)
    assert "JAX2ONNX_ENABLE_STACKTRACE_METADATA=1" in capfd.readouterr().out


# ---- in a browser ----


def test_pointing_links_both_ways(opened):
    page = opened(full())
    page.hover(node_row("Sin"))
    assert [text for text in linked(page, "lines") if "jnp.sin(carry)" in text] and len(linked(page, "lines")) == 1
    assert page.js(f"({source_row(line_of(step, 'jnp.sin'))}).classList.contains('hued')")
    page.hover(source_row(line_of(halve, "0.5")))
    assert [text for text in linked(page, "nodes") if "Mul" in text] and not linked(page, "lines")[1:]
    page.hover("document.getElementById('title')")
    assert not linked(page, "nodes") and not linked(page, "lines")


def test_the_two_sides_have_one_colour(opened):
    page = opened(full())
    colour = "getComputedStyle({}).borderLeftColor"
    node, line = node_row("Cos"), source_row(line_of(looped, "jnp.cos"))
    assert page.js(colour.format(node)) == page.js(colour.format(line))
    assert page.js(colour.format(node)) != page.js(colour.format(node_row("Sin")))


def test_clicking_a_node_shows_its_trace(opened):
    page = opened(full())
    page.click(node_row("Mul"))
    details = page.js("document.getElementById('details').innerText")
    for words in ("at halve:", "return x * 0.5", "in step", "in looped", "inside", "mul_"):
        assert words in details, details
    assert len(linked(page, "lines")) == 1
    frames = page.js("document.querySelectorAll('#details ol li').length")
    page.click("document.querySelector('#details button.more')")
    assert page.js("document.querySelectorAll('#details ol li').length") > frames
    page.click("[...document.querySelectorAll('#details button.link')].find(link => link.textContent.includes('Sin'))")
    assert "Sin" in page.js("document.querySelector('#details h2').textContent")


def test_a_merged_node_is_linked_with_all_its_lines(opened):
    def apart(x):
        y = x.mean(axis=-1, keepdims=True)
        z = x.var(axis=-1, keepdims=True)
        return (x - y) * jax.lax.rsqrt(z + 1e-6)

    page = opened(to_onnx(apart, [("B", 4)], stacktrace_metadata="full"))
    assert operators(page) == ["LayerNormalization"]
    page.hover(node_row("LayerNormalization"))
    assert len(linked(page, "lines")) == 3
    page.hover(source_row(line_of(apart, "x.var")))
    assert len(linked(page, "nodes")) == 1 and len(linked(page, "lines")) == 1


def test_lines_that_called_are_marked(opened):
    page = opened(to_onnx(merging, [("B", 4)], stacktrace_metadata="full"))
    page.click(node_row("Mul"))
    through = page.js("[...document.querySelectorAll('#lines .through .number')].map(one => one.textContent)")
    assert str(line_of(merging, "jnp.sin(halve")) in through
    page.hover(source_row(line_of(merging, "jnp.sin(halve")))
    assert "Sin" in "".join(linked(page, "nodes"))


def test_clicking_a_line_chooses_its_first_node(opened):
    page = opened(full())
    page.click(source_row(line_of(looped, "jnp.cos")))
    assert "Cos" in page.js("document.querySelector('#details h2').textContent")
    page.click("document.getElementById('only')")
    assert set(operators(page)) >= {"Cos"} and "Sin" not in operators(page)


def test_search_and_filters(opened):
    page = opened(full())
    everything = operators(page)
    page.key("/")
    assert focused(page) == "search"
    page.type("sin")
    assert "Sin" in operators(page) and len(operators(page)) < len(everything)
    assert " of " in page.js("document.getElementById('count').textContent")
    page.key("Enter")
    assert focused(page) == "nodes" and page.js("document.querySelector('#details h2') !== null")
    page.key("Escape")
    assert operators(page) == everything
    choose = (
        "(() => {{ const select = document.getElementById('{}'); select.value = [...select.querySelectorAll('option')]"
    )
    choose += ".find(one => one.textContent.startsWith('{}')).value; select.dispatchEvent(new Event('input')); }})()"
    page.js(choose.format("operator", "Cos"))
    assert operators(page) == ["Cos"]
    page.js(choose.format("operator", "All"))
    page.js(choose.format("where", "halve"))
    assert set(operators(page)) == {"Mul"}


def test_a_search_for_a_line_is_answered_as_by_inspect(opened, tmp_path):
    def apart(x):
        y = x.mean(axis=-1, keepdims=True)
        z = x.var(axis=-1, keepdims=True)
        return (x - y) * jax.lax.rsqrt(z + 1e-6)

    def calling(x):
        return jnp.sin(apart(x))

    model = to_onnx(calling, [("B", 4)], stacktrace_metadata="compact")
    onnx.save(model, tmp_path / "asked.onnx")
    page = opened(model)
    calls = line_of(calling, "apart(x)")
    for line in (line_of(apart, "x.mean"), line_of(apart, "x.var"), line_of(apart, "rsqrt"), calls):
        words = ["j2o", "inspect", str(tmp_path / "asked.onnx"), "--json", "--line", f"test_report.py:{line}"]
        expected = [node["op_type"] for node in json.loads(_core.tool_output(words)[1])["nodes"]]
        for word in (f"test_report.py:{line}", f"python/test_report.py:{line}"):
            page.key("Escape")
            page.key("/")
            page.type(word)
            assert operators(page) == expected != [], (line, expected)
            page.key("Escape")


def test_the_keyboard_is_enough(opened):
    page = opened(full())
    order = []
    for _ in range(20):
        page.key("Tab")
        order.append(focused(page))
    wanted = ["search", "operator", "where", "heat", "theme", "help", "file", "lines", "divider", "nodes", "details"]
    assert [name for name in order if name in wanted][: len(wanted)] == wanted
    page.js("document.getElementById('nodes').focus()")
    assert page.js("getComputedStyle(document.getElementById('nodes')).outlineStyle") == "solid"
    page.key("Home", "ArrowDown")
    assert page.js("document.querySelector('#nodes .active').getAttribute('aria-selected')") == "true"
    active = page.js("document.getElementById('nodes').getAttribute('aria-activedescendant')")
    assert page.js(f"document.getElementById('{active}').classList.contains('active')")
    title = page.js("document.querySelector('#details h2').textContent")
    page.key("Enter")
    assert focused(page) == "lines"
    page.key("Enter")
    assert focused(page) == "nodes" and page.js("document.querySelector('#details h2').textContent") == title
    page.key("Escape")
    assert page.js("document.querySelector('#details h2')") is None
    page.key("?")
    assert not page.js("document.getElementById('keys').hidden")
    controls = "[...document.querySelectorAll('input, select, button, [tabindex]')]"
    assert page.js(f"{controls}.every(one => one.ariaLabel || one.textContent)")


def test_bodies_and_functions_unfold(opened):
    page = opened(full())
    loop = node_row("Scan")
    assert "Sin" in operators(page)
    page.click(loop)
    page.key("ArrowLeft")
    assert "Sin" not in operators(page) and page.js(f"({loop}).getAttribute('aria-expanded')") == "false"
    page.key("ArrowRight")
    assert "Sin" in operators(page)
    page.click(f"({loop}).querySelector('.fold')")
    assert "Sin" not in operators(page)
    page = opened(torch_model())
    assert operators(page) == ["Relu", "Relu", "local.Twice", "Add"]
    page.click(node_row("local.Twice"))
    page.click(
        "[...document.querySelectorAll('#details button.link')].find(link => link.textContent.includes('function'))"
    )
    assert "Add" in page.js("document.querySelector('#details h2').textContent")


def test_heat_by_time(opened, tmp_path):
    profile = tmp_path / "times.json"
    profile.write_text(json.dumps({next(node.name for node in full().graph.node if node.op_type == "Cos"): 12.5}))
    page = opened(full(), "--profile", profile)
    assert page.js("document.getElementById('heat').value") == "time"
    assert page.js(f"({node_row('Cos')}).querySelector('.heat').textContent") == "12.5 µs"
    assert page.js(f"({source_row(line_of(looped, 'jnp.cos'))}).querySelector('.heat').textContent") == "12.5 µs"


def test_a_model_without_origins_says_how_to_get_them(opened):
    page = opened(export("off"))
    assert "JAX2ONNX_ENABLE_STACKTRACE_METADATA=1" in page.js("document.getElementById('notice').innerText")
    assert "Sin" in operators(page)


def brightness(page, of):
    red, green, blue = map(int, re.findall(r"\d+", page.js(f"getComputedStyle(document.body).{of}"))[:3])
    return red + green + blue


def test_dark_and_light(opened):
    light, dark = opened(full(), theme="light"), opened(full(), theme="dark")
    assert brightness(light, "backgroundColor") > 600 > 200 > brightness(light, "color")
    assert brightness(dark, "backgroundColor") < 200 < 600 < brightness(dark, "color")
    dark.click("document.getElementById('theme')")
    assert brightness(dark, "backgroundColor") > 600
    dark.js("localStorage.clear()")


def test_twenty_thousand_nodes(opened):
    nodes = []
    for index in range(20_000):
        node = helper.make_node(
            "Sin" if index % 3 else "Mul", [f"v{index}"] * (1 if index % 3 else 2), [f"v{index + 1}"]
        )
        node.name = f"node_{index}"
        trace = f"{THIS_FILE}:{index % 300 + 1} (layer_{index % 50})\n/project/main.py:{index % 7 + 1} (main)"
        node.metadata_props.add(key="pkg.jax2onnx.callsite", value=f"layer_{index % 50}:{index % 300 + 1}")
        node.metadata_props.add(key="pkg.jax2onnx.jax_traceback", value=trace)
        nodes.append(node)
    graph = helper.make_graph(nodes, "many", [], [helper.make_tensor_value_info("v20000", TensorProto.FLOAT, [2])])
    page = opened(helper.make_model(graph))
    page.wait("performance.getEntriesByName('first-contentful-paint').length > 0")
    first = page.js("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"first paint of 20,000 nodes after {first:.0f} ms")
    assert first < 3000, "1 s on a machine that does nothing else"
    assert page.js("document.querySelectorAll('.row').length") < 200
    assert page.js("document.getElementById('count').textContent") == "20,000 nodes"
    page.js("document.getElementById('nodes').focus()")
    page.key("End")
    assert "node_19999" in page.js("document.querySelector('#details h2').textContent")
    page.key("/")
    page.type("node_12345")
    assert page.js("document.getElementById('count').textContent") == "1 of 20,000 nodes"


# ---- in a notebook ----


def test_explore_shows_the_page_in_a_frame(browser, tmp_path):
    html = jax2onnx.explore(full())._repr_html_()
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><meta charset=utf-8><body>{html}</body>")
    page = browser.open(notebook.as_uri())
    frame = page.frame()
    frame.wait("document.querySelectorAll('#nodes .op').length > 0")
    assert {"Sin", "Cos", "Mul"} <= set(operators(frame))
    frame.js("document.getElementById('theme').click()")
    assert page.complaints() == [] and frame.complaints() == []
    path = tmp_path / "model.onnx"
    onnx.save(full(), path)
    assert jax2onnx.explore(path).html == jax2onnx.explore(str(path)).html


def test_explore_compares_two_models(tmp_path):
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    for path in (before, after):
        onnx.save(full(), path)
    compared = jax2onnx.explore(after, against=before)
    assert "before.onnx" in compared.html and compared.html != jax2onnx.explore(after).html
    with pytest.raises(ValueError, match=r"none\.onnx"):
        jax2onnx.explore(after, against=tmp_path / "none.onnx")


def test_explore_tells_what_cannot_be_shown(tmp_path):
    with pytest.raises(ValueError, match="not an ONNX model"):
        jax2onnx.explore(b"not a model at all")
    with pytest.raises(FileNotFoundError):
        jax2onnx.explore(tmp_path / "none.onnx")
    with pytest.raises(TypeError, match="expected a model or the path of one"):
        jax2onnx.explore(3)


# ---- what the page can do besides ----


def test_python_has_its_colours(opened):
    page = opened(full())
    words = page.js("[...document.querySelectorAll('#lines .py-keyword')].map((one) => one.textContent)")
    assert {"def", "return"} <= set(words)
    assert "halve" in page.js("[...document.querySelectorAll('#lines .py-defined')].map((one) => one.textContent)")


PYTHON = '''\
"""A text
over lines with def in it""" + f(1)
x = "# no comment" + 'it\\'s' # a comment
@jax.jit
def größe(a: int = 0x1F) -> None: return r"\\d" if a else 1.5e3
'''


def test_pieces_of_python(opened, tmp_path):
    source = tmp_path / "net.py"
    source.write_text(PYTHON)
    node = helper.make_node("Sin", ["x"], ["y"], name="sin")
    node.metadata_props.add(key="pkg.jax2onnx.callsite", value="f:3")
    node.metadata_props.add(key="pkg.jax2onnx.jax_traceback", value=f"{source}:3 (f)")
    graph = helper.make_graph([node], "net", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    page = opened(helper.make_model(graph), "--source", source)
    rows = page.js(
        "[...document.querySelectorAll('#lines .row .code')].map((row) => [...row.querySelectorAll('span')]"
        ".map((piece) => [piece.className.slice(3), piece.textContent]))"
    )
    assert rows[0] == [["string", '"""A text']]
    assert rows[1] == [["string", 'over lines with def in it"""'], ["number", "1"]]
    assert rows[2] == [["string", '"# no comment"'], ["string", r"'it\'s'"], ["comment", "# a comment"]]
    assert rows[3] == [["decorator", "@jax.jit"]]
    assert ["defined", "größe"] in rows[4] and ["number", "0x1F"] in rows[4] and ["string", 'r"\\d"'] in rows[4]
    assert [piece for kind, piece in rows[4] if kind == "keyword"] == ["def", "None", "return", "if", "else"]


def test_the_expression_of_a_node_is_marked(opened, tmp_path):
    source = tmp_path / "net.py"
    source.write_text("größe = 1; y = jnp.sin(größe)\n")
    node = helper.make_node("Sin", ["x"], ["y"], name="sin")
    start = len("größe = 1; y = ".encode())
    span = f"1:{start}-1:{start + len('jnp.sin(größe)'.encode())}"
    for key, value in (("callsite", "f:1"), ("jax_traceback", f"{source}:1 (f)"), ("span", span)):
        node.metadata_props.add(key=f"pkg.jax2onnx.{key}", value=value)
    graph = helper.make_graph([node], "net", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    page = opened(helper.make_model(graph), "--source", source)
    page.click(node_row("Sin"))
    mark = page.js("(({ left, width }) => ({ left, width }))(document.querySelector('#lines .span').style)")
    assert mark == {"left": "calc(16ch)", "width": "14ch"}
    graph.node[0].metadata_props[-1].value = "1:2-3"
    page = opened(helper.make_model(graph), "--source", source)
    page.click(node_row("Sin"))
    assert page.js("document.querySelector('#lines .span')") is None, "what cannot be understood is not shown"


def test_search_finds_source_too(opened):
    page = opened(full())
    page.key("/")
    page.type("carry.sum")
    rows = page.js("[...document.querySelectorAll('#nodes .in-source')].map((row) => row.textContent)")
    assert any("carry.sum()" in row for row in rows)
    assert page.js("document.querySelectorAll('#lines .found').length") >= 1
    page.click("[...document.querySelectorAll('#nodes .in-source')].find(row => row.textContent.includes('halve'))")
    active = page.js("document.querySelector('#lines .active .number').textContent")
    assert active == str(line_of(step, "carry.sum"))


def test_library_source_on_demand(opened, tmp_path):
    library = tmp_path / "site-packages" / "lib" / "ops.py"
    library.parent.mkdir(parents=True)
    library.write_text("def wave(x):\n    return sin(x)\n")
    node = helper.make_node("Sin", ["x"], ["y"], name="sin")
    node.metadata_props.add(key="pkg.jax2onnx.callsite", value="f:1")
    node.metadata_props.add(key="pkg.jax2onnx.jax_traceback", value=f"{library}:2 (wave)\n/project/net.py:1 (f)")
    model = helper.make_model(helper.make_graph([node], "net", [], []))
    root = ("--source-root", tmp_path)
    assert all(not file[2] for file in data_of(report(model, tmp_path, *root))["files"]), "not by itself"
    page = opened(model, "--libraries", *root)
    page.click(node_row("Sin"))
    page.click("document.querySelector('#details button.more')")
    page.click("[...document.querySelectorAll('#details button.link')].find(one => one.textContent.includes('ops.py'))")
    assert page.js("document.querySelector('#lines .active .code').textContent") == "    return sin(x)"
    assert "library lib" in page.js("[...document.querySelectorAll('#file optgroup')].map((one) => one.label)")


def test_an_empty_search_says_so(opened):
    page = opened(full())
    everything = operators(page)
    page.key("/")
    page.type("nowhere" + "q" * 3)
    shown = "!document.getElementById('none').hidden"
    assert page.js(shown) and "Nothing matches" in page.js("document.getElementById('none').innerText")
    page.click("document.getElementById('everything')")
    assert operators(page) == everything and not page.js(shown)


def test_the_address_says_what_is_chosen(opened, browser, tmp_path):
    page = opened(full())
    page.click(node_row("Cos"))
    name = next(node.name for node in full().graph.node if node.op_type == "Cos")
    assert page.js("location.hash") == f"#node={name}"
    page = browser.open((tmp_path / "report.html").as_uri() + f"#node={name}")
    assert page.js("document.querySelector('#details h2').textContent") == f"{name}: Cos"
    line = line_of(halve, "0.5")
    page.js(f"location.hash = 'line=test_report.py:{line}'")
    page.wait(f"document.querySelector('#lines .active .number')?.textContent === '{line}'")
    page.js("location.hash = 'node=%E0%A4%A'")
    page.settle()
    assert page.complaints() == []


def test_escape_closes_the_help(opened):
    page = opened(full())
    page.click(node_row("Cos"))
    page.key("?")
    assert not page.js("document.getElementById('keys').hidden")
    page.key("Escape")
    assert page.js("document.getElementById('keys').hidden"), "first the help"
    assert page.js("document.querySelector('#details h2') !== null"), "what was chosen stays"


def test_heat_by_memory(opened):
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    node.metadata_props.add(key="pkg.jax2onnx.callsite", value="f:1")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 4]) for name in "xy"]
    page = opened(helper.make_model(helper.make_graph([node], "net", values[:1], values[1:])))
    page.js(
        "(() => { const heat = document.getElementById('heat'); heat.value = 'memory';"
        " heat.dispatchEvent(new Event('change')); })()"
    )
    assert page.js("document.querySelector('#nodes .heat').textContent || ''") == ""
    assert page.js(f"({node_row('Relu')}).querySelector('.heat').textContent") == "4.0 KiB"


def test_a_narrow_screen_shows_one_view_at_a_time(opened):
    page = opened(full(), width=390, height=800)
    seen = "['source', 'drawing', 'graph'].filter((id) => document.getElementById(id).offsetWidth > 0)"
    assert page.js(seen) == ["drawing"]
    assert page.js("document.documentElement.scrollWidth") <= 390
    for name in ("source", "graph"):
        page.click(f"document.querySelector('#panes [data-pane={name}]')")
        assert page.js(seen) == [name]
    assert page.js("document.querySelector('#panes [data-pane=graph]').getAttribute('aria-selected')") == "true"


def test_files_stand_in_their_folders(opened):
    nodes = []
    for index, file in enumerate(["/srv/project/net/a.py", "/srv/project/net/b.py", "/srv/project/train.py"]):
        node = helper.make_node("Sin", [f"v{index}"], [f"v{index + 1}"])
        node.metadata_props.add(key="pkg.jax2onnx.callsite", value="f:1")
        node.metadata_props.add(key="pkg.jax2onnx.jax_traceback", value=f"{file}:1 (f)")
        nodes.append(node)
    page = opened(helper.make_model(helper.make_graph(nodes, "net", [], [])))
    groups = page.js(
        "[...document.querySelectorAll('#file optgroup')].map((one) => [one.label, one.children.length]).sort()"
    )
    assert groups == [["…/project", 1], ["…/project/net", 2]]


def folded(x):
    table = jnp.exp(jnp.arange(3.0))
    unused = x * 2
    del unused
    return jnp.sin(x) + table


def test_lines_that_became_no_node_say_why(opened, browser, tmp_path):
    page = opened(to_onnx(folded, [("B", 3)], stacktrace_metadata="full"))
    table = source_row(line_of(folded, "jnp.exp"))
    assert page.js(f"({table}).classList.contains('left-out')")
    assert "computed at export" in page.js(f"({table}).querySelector('.note').textContent")
    data = data_of(tmp_path / "report.html")
    wanted = next(line for line in data["lines"] if line[1] == line_of(folded, "jnp.exp"))
    wanted[7], wanted[8] = [], [len(data["texts"])]
    data["texts"].append("removed: dead")
    text = (tmp_path / "report.html").read_text()
    start = text.index('type="application/json">') + len('type="application/json">')
    end = text.index("</script>", start)
    (tmp_path / "removed.html").write_text(text[:start] + json.dumps(data).replace("<", "\\u003c") + text[end:])
    page = browser.open((tmp_path / "removed.html").as_uri())
    assert page.js(f"({table}).querySelector('.note').textContent") == "removed: dead"
