"""The picture of the graph in the page of ``j2o report``: levels and places from C, clicks and keys in a browser."""

from __future__ import annotations

import functools
import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from page_check import data_of, focused, line_of, node_row, report, source_row

from jax2onnx import to_onnx

NODE, LEVEL, PORT, BORDER = range(4)


def boxes(level):
    numbers = level[6]
    return [tuple(numbers[at : at + 4]) for at in range(0, len(numbers), 4)]


def edges(level):
    numbers = level[7]
    return [tuple(numbers[at : at + 4]) for at in range(0, len(numbers), 4)]


def kinds(level):
    return [what % 4 for what, *_ in boxes(level) if what >= 0]


def titles(data, kind):
    return [data["texts"][level[1]] for level in data["levels"] if level[0] == kind]


def modular(paths, *, key="pkg.jax2onnx.module", by_name=False):
    """A chain of nodes, each in the module of its path."""
    nodes = []
    for index, path in enumerate(paths):
        node = helper.make_node("Sin", [f"v{index}"], [f"v{index + 1}"], name=f"sin_{index}")
        if by_name and path:
            node.name = f"{path}/{node.name}"
        elif path:
            node.metadata_props.add(key=key, value=path)
        nodes.append(node)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", f"v{len(paths)}")]
    return helper.make_model(helper.make_graph(nodes, "net", values[:1], values[1:]))


def check_places(data):
    """Every node is a box of one level, boxes do not overlap, edges lead down."""
    seen = []
    for level in data["levels"]:
        own = boxes(level)
        seen += [what // 4 for what, *_ in own if what >= 0 and what % 4 == NODE]
        ranks = {}
        for _, rank, middle, width in own:
            ranks.setdefault(rank, []).append((middle - width / 2, middle + width / 2))
        for rank in ranks.values():
            rank.sort()
            assert all(right <= left for (_, right), (left, _) in itertools.pairwise(rank))
        for _, start, end, point in edges(level):
            assert own[start][1] < own[end][1]
            if point >= 0:
                assert all(own[point + step][0] == -1 for step in range(own[end][1] - own[start][1] - 1))
    assert len(seen) == len(set(seen))
    return set(seen)


# ---- levels ----


@pytest.mark.parametrize("by_name", [False, True])
def test_modules_are_levels(by_name, tmp_path):
    separator = "/" if by_name else "."
    paths = ["", "blocks.0.attn.qkv", "blocks.0.attn.qkv", "blocks.0.attn.out", "blocks.0.mlp", "blocks.0.mlp"]
    paths += ["blocks.1.attn", "blocks.1.attn", "blocks.1.mlp", ""]
    if by_name:
        paths = [path.replace(".attn", "/attn").replace(".mlp", "/mlp").replace(".qkv", "/qkv") for path in paths]
        paths = [path.replace(".out", "/out") for path in paths]
    data = data_of(report(modular(paths, by_name=by_name), tmp_path))
    assert check_places(data) == set(range(10)), separator
    assert titles(data, "module") == ["blocks.0", "attn", "qkv", "mlp", "blocks.1", "attn"]
    assert [level[5] for level in data["levels"]] == [10, 5, 3, 2, 2, 3, 2], "how many nodes are in each"
    main = data["levels"][0]
    assert kinds(main).count(NODE) == 2 and kinds(main).count(LEVEL) == 2 and kinds(main).count(PORT) == 2


def test_the_class_of_a_module_is_told(tmp_path):
    model = modular(["a.b", "a.b", "a", "c", "c"])
    model.metadata_props.add(key="pkg.jax2onnx.modules", value="a\tOuter\na.b\tInner\n")
    data = data_of(report(model, tmp_path))
    assert {data["texts"][one[1]]: one[2] >= 0 and data["texts"][one[2]] for one in data["levels"][1:]} == {
        "a": "Outer",
        "b": "Inner",
        "c": False,
    }


def test_a_module_that_is_called_again_is_a_box_for_each_call(tmp_path):
    data = data_of(report(modular(["norm", "norm", "mlp", "mlp", "norm", "norm", "head"]), tmp_path))
    check_places(data)
    assert titles(data, "module") == ["norm", "mlp", "norm"]


def test_modules_that_interleave_without_a_cycle_stay_whole(tmp_path):
    nodes = []
    for index in range(8):
        path = "left" if index % 2 else "right"
        node = helper.make_node("Sin", [f"{path}{index - 2}" if index > 1 else "x"], [f"{path}{index}"])
        node.metadata_props.add(key="pkg.jax2onnx.module", value=path)
        nodes.append(node)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    data = data_of(report(helper.make_model(helper.make_graph(nodes, "net", [x], [])), tmp_path))
    assert sorted(titles(data, "module")) == ["left", "right"]


def test_an_edge_between_modules_passes_the_borders(tmp_path):
    data = data_of(report(modular(["a.b", "a.b", "c", "c"]), tmp_path))
    main, a, c = data["levels"]
    value = next(row for row, (name, *_) in enumerate(data["values"]) if data["texts"][name] == "v2")
    assert [edge for edge in edges(main) if edge[0] == value]
    assert boxes(a)[next(edge[2] for edge in edges(a) if edge[0] == value)][0] == value * 4 + BORDER
    assert boxes(c)[next(edge[1] for edge in edges(c) if edge[0] == value)][0] == value * 4 + BORDER


def halve(x):
    return x * 0.5


def looped(x):
    def step(carry, _):
        return halve(jnp.sin(carry)), carry.sum()

    y, sums = jax.lax.scan(step, jnp.cos(x), length=3)
    return jax.lax.cond(sums.sum() > 0, lambda: jnp.exp(y), lambda: y - 1)


@functools.cache
def full():
    return to_onnx(looped, [("B", 3)], stacktrace_metadata="full")


def test_bodies_and_functions_are_levels(tmp_path):
    data = data_of(report(full(), tmp_path))
    check_places(data)
    assert {"body"} <= {level[0] for level in data["levels"]}
    body = next(level for level in data["levels"] if level[0] == "body")
    assert kinds(body).count(PORT) >= 2, "a body has inputs and outputs of its own"
    call = helper.make_node("Twice", ["x"], ["y"], domain="local")
    inner = [helper.make_node("Add", ["a", "a"], ["c"]), helper.make_node("Neg", ["c"], ["b"])]
    function = helper.make_function("local", "Twice", ["a"], ["b"], inner, [helper.make_opsetid("", 20)])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([call], "net", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    data = data_of(report(helper.make_model(graph, functions=[function], opset_imports=opsets), tmp_path))
    assert [level[0] for level in data["levels"]] == ["model", "graph", "function"]


def test_constants_are_shown_with_what_reads_them(tmp_path):
    constant = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("t", TensorProto.FLOAT, [1], [2.0]))
    graph = helper.make_graph(
        [constant, helper.make_node("Add", ["x", "c"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    data = data_of(report(helper.make_model(graph), tmp_path))
    assert kinds(data["levels"][0]) == [NODE, PORT, PORT]


def flat(count, traces=False):
    """Very many nodes without modules, with edges of all lengths."""
    random = np.random.default_rng(0)
    nodes = []
    for index in range(count):
        near = max(0, index - int(random.integers(1, 4)))
        far = int(random.integers(0, index + 1)) if index % 10 == 0 else index
        node = helper.make_node("Add", [f"v{near}", f"v{far}"], [f"v{index + 1}"], name=f"node_{index}")
        if traces:
            trace = (
                f"/project/net.py:{index % 9 + 20} (layer_{index // 400})\n/project/net.py:{index // 400 + 1} (main)"
            )
            node.metadata_props.add(key="pkg.jax2onnx.callsite", value=f"layer_{index // 400}:{index % 9 + 20}")
            node.metadata_props.add(key="pkg.jax2onnx.jax_traceback", value=trace)
        nodes.append(node)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", f"v{count}")]
    return helper.make_model(helper.make_graph(nodes, "many", values[:1], values[1:]))


@pytest.mark.parametrize("traces", [False, True])
def test_very_many_nodes_are_divided(traces, tmp_path):
    start = time.monotonic()
    data = data_of(report(flat(20_000, traces), tmp_path))
    print(f"written and read in {time.monotonic() - start:.2f} s")
    assert check_places(data) == set(range(20_000))
    assert max(len([one for one in kinds(level) if one < PORT]) for level in data["levels"]) <= 160
    if traces:
        assert titles(data, "call")[:2] == ["layer_0, line 1", "layer_1, line 2"]


def test_the_same_model_gives_the_same_page(tmp_path):
    first = report(flat(500), tmp_path).read_bytes()
    assert report(flat(500), tmp_path).read_bytes() == first


def test_a_model_that_is_no_order_of_computation_is_drawn_too(tmp_path):
    nodes = [helper.make_node("Sin", [f"v{(index + 1) % 4}"], [f"v{index}"]) for index in range(4)]
    for node in nodes[::2]:
        node.metadata_props.add(key="pkg.jax2onnx.module", value="m")
    data = data_of(report(helper.make_model(helper.make_graph(nodes, "circle", [], [])), tmp_path))
    assert sum(kinds(level).count(NODE) for level in data["levels"]) == 4


# ---- in a browser ----


def picture(page, expression):
    return page.js(f"(() => {{ const picture = document.getElementById('picture').picture; return {expression}; }})()")


def settle(page):
    page.settle()
    page.wait("document.getElementById('picture').picture.moving === null")


def at_node(page, name):
    """Where the box of a node is on the screen, or the closed box around it."""
    place = (
        "(() => { const data = JSON.parse(document.getElementById('data').textContent);"
        f" const index = data.nodes.findIndex((node) => data.texts[node[2]] === '{name}');"
        " const box = picture.drawing.boxPlace(picture.drawing.seenAs(index));"
        " const canvas = document.getElementById('picture').getBoundingClientRect();"
        " return { x: canvas.x + (box.x + Math.min(box.width / 2, 30) - picture.x) * picture.scale,"
        " y: canvas.y + (box.y + 10 - picture.y) * picture.scale }; })()"
    )
    return picture(page, place)


def click_at(page, at):
    page.send("Input.dispatchMouseEvent", type="mouseMoved", **at)
    for kind in ("mousePressed", "mouseReleased"):
        page.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
    settle(page)


def heading(page):
    return page.js("document.querySelector('#details h2')?.textContent ?? ''")


def name_of(op):
    return next(node.name for node in full().graph.node if node.op_type == op)


def seen_at(page):
    return picture(page, "picture.look.chosen()")


def test_source_graph_and_list_follow_each_other(opened):
    page = opened(full())
    page.click(source_row(line_of(looped, "jnp.cos")))
    assert "Cos" in heading(page) and seen_at(page), "from the source to the graph"
    settle(page)
    click_at(page, at_node(page, name_of("Scan")))
    assert "Scan" in heading(page), "from the graph to the list"
    assert "Scan" in page.js("document.querySelector('#nodes .active').textContent")
    page.click(node_row("Cos"))
    assert "Cos" in heading(page) and seen_at(page)["box"] >= 0, "from the list to the graph"
    assert str(line_of(looped, "jnp.cos")) in page.js("document.querySelector('#lines .linked .number').textContent")
    settle(page)
    click_at(page, at_node(page, name_of("Cos")))
    assert str(line_of(looped, "jnp.cos")) == page.js("document.querySelector('#lines .active .number').textContent")


def test_boxes_open_and_close(opened):
    page = opened(modular(["a.b", "a.b", "a", "c", "c"] * 30 + ["d", "d"]))
    picture(page, "(picture.fit(), 0)")
    settle(page)
    before = picture(page, "picture.drawing.open.size")
    click_at(page, at_node(page, "sin_151"))
    assert picture(page, "picture.drawing.open.size") == before + 1
    assert "d" in heading(page) and "2 nodes" in page.js("document.getElementById('details').innerText")
    click_at(page, at_node(page, "sin_151"))
    assert heading(page).startswith("sin_151")
    page.click("document.getElementById('close-all')")
    assert picture(page, "picture.drawing.open.size") == before


def test_a_node_chosen_in_the_list_is_opened_in_the_graph(opened):
    page = opened(modular(["a.b", "a.b", "a", "c", "c"] * 30))
    page.js("document.getElementById('nodes').focus()")
    page.key("End")
    settle(page)
    place = seen_at(page)
    assert picture(page, f"picture.drawing.levels[{place['level']}].boxes[{place['box']} * 4]") == 149 * 4
    box = picture(page, f"picture.drawing.boxPlace({{level: {place['level']}, box: {place['box']}}})")
    view = picture(page, "picture.seen")
    assert view["left"] <= box["x"] <= view["right"] and view["top"] <= box["y"] <= view["bottom"]


def test_the_keyboard_moves_in_the_graph(opened):
    page = opened(modular(["a", "a", "", "", ""]))
    page.js("document.getElementById('picture').focus()")
    page.key("ArrowDown")
    assert heading(page) and seen_at(page)
    for _ in range(3):
        page.key("ArrowDown")
    assert heading(page).startswith("sin_")
    chosen = page.js("document.getElementById('chosen').textContent")
    assert "Sin" in chosen
    scale = picture(page, "picture.scale")
    page.key("+")
    assert picture(page, "picture.scale") > scale
    page.key("0")
    settle(page)
    assert focused(page) == "picture"


def test_pointing_at_a_line_lights_its_boxes(opened):
    page = opened(full())
    page.hover(source_row(line_of(looped, "jnp.cos")))
    lit = picture(page, "[...picture.drawing.home.keys()].filter(picture.look.isLinked).map(picture.look.node)")
    listed = page.js("[...document.querySelectorAll('#nodes .linked .op')].map((op) => op.textContent)")
    assert sorted(node["title"] for node in lit) == sorted(listed) and "Cos" in listed


def test_the_wheel_zooms_and_dragging_moves(opened):
    page = opened(full())
    box = page.js("document.getElementById('picture').getBoundingClientRect().toJSON()")
    at = {"x": box["x"] + 5, "y": box["y"] + box["height"] - 40}
    scale, left = picture(page, "picture.scale"), picture(page, "picture.x")
    page.send("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=-240, **at)
    page.settle()
    assert picture(page, "picture.scale") > scale
    left = picture(page, "picture.x")
    page.send("Input.dispatchMouseEvent", type="mousePressed", button="left", clickCount=1, **at)
    page.send("Input.dispatchMouseEvent", type="mouseMoved", button="left", x=at["x"] + 60, y=at["y"])
    page.send("Input.dispatchMouseEvent", type="mouseReleased", button="left", clickCount=1, x=at["x"] + 60, y=at["y"])
    page.settle()
    assert picture(page, "picture.x") < left


def test_twenty_thousand_nodes_are_drawn_at_once(opened):
    page = opened(flat(20_000, traces=True))
    page.wait("performance.getEntriesByName('first-contentful-paint').length > 0")
    first = page.js("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    frame = (
        "(() => { const start = performance.now(); for (let i = 0; i < 20; i++) { picture.pan(3, 7); picture.draw(); }"
        " return (performance.now() - start) / 20; })()"
    )
    closed = picture(page, frame)
    picture(page, "(picture.drawing.setAll(true), picture.draw(), 0)")
    opened_up = picture(page, frame)
    picture(page, "(picture.fit(), 0)")
    settle(page)
    whole = picture(page, frame)
    print(
        f"first paint after {first:.0f} ms; a frame takes {closed:.1f} ms closed, {opened_up:.1f} ms with all boxes"
        f" open, {whole:.1f} ms with all of them in view"
    )
    assert first < 3000, "1 s on a machine that does nothing else"
    assert max(closed, opened_up) < 50, "16 ms on a machine that does nothing else"


def test_a_model_of_nothing_is_drawn(opened):
    page = opened(onnx.helper.make_model(helper.make_graph([], "empty", [], [])))
    assert picture(page, "picture.drawing.levels.length") == 1


def test_a_wall_of_one_line_is_coloured_by_operator(opened):
    nodes = []
    for index in range(30):
        node = helper.make_node(["Sin", "Relu", "Exp"][index % 3], [f"v{index}"], [f"v{index + 1}"], name=f"n{index}")
        node.metadata_props.add(key="pkg.jax2onnx.callsite", value="model:7")
        nodes.append(node)
    page = opened(helper.make_model(helper.make_graph(nodes, "net", [], [])))
    assert page.js("document.getElementById('colour').value") == "operator"
    assert len({picture(page, f"picture.look.node({index}).hue") for index in range(30)}) == 3
    page.js(
        "(() => { const colour = document.getElementById('colour'); colour.value = 'line';"
        " colour.dispatchEvent(new Event('change')); })()"
    )
    assert len({picture(page, f"picture.look.node({index}).hue") for index in range(30)}) == 1
    assert opened(full()).js("document.getElementById('colour').value") == "line"


def test_flat_names_are_taken_apart(tmp_path):
    stages = [f"net.conv{stage}_block{block}_{part}" for stage in (2, 3) for block in (1, 2, 3) for part in "123456789"]
    data = data_of(report(modular(["net.conv1_bn", "net.conv1_relu", *stages, "net.head"]), tmp_path))
    check_places(data)
    assert titles(data, "module") == [
        "conv1",
        *["conv2", "block1", "block2", "block3"],
        *["conv3", "block1", "block2", "block3"],
    ]
    few = data_of(report(modular(["net.conv1_bn", "net.conv1_relu", "net.head"]), tmp_path))
    assert titles(few, "module") == [], "few enough are left as they are"


def test_what_a_search_leaves_out_fades(opened):
    page = opened(modular(["a", "a", "b", "b", ""]))
    page.key("/")
    page.type("sin_3")
    assert [picture(page, f"picture.look.node({index}).faded") for index in range(5)] == [True, True, True, False, True]
    assert [picture(page, f"picture.look.level({number}).faded") for number in (1, 2)] == [True, False]
    page.key("Escape")
    assert not picture(page, "picture.look.node(0).faded")


def random_graph(random, depth, outer):
    """Nodes that read what is there, in modules and with bodies; names of other graphs' values may be read too."""
    nodes, values = [], [*outer, f"x{random.integers(1 << 40)}"]
    given = values[-1]
    for _ in range(int(random.integers(1, 30))):
        reads = [values[int(random.integers(len(values)))] for _ in range(int(random.integers(1, 4)))]
        made = f"v{random.integers(1 << 40)}"
        node = helper.make_node("Sum", reads, [made], name=f"n{random.integers(1 << 40)}")
        if random.random() < 0.15 and depth:
            body = random_graph(random, depth - 1, values)
            node = helper.make_node("If", [reads[0]], [made], name=node.name, then_branch=body, else_branch=body)
        if random.random() < 0.7:
            path = ".".join(
                str(random.choice(["a", "b", "c", "layers.0", "layers.1"])) for _ in range(random.integers(1, 4))
            )
            node.metadata_props.add(key="pkg.jax2onnx.module", value=path)
        nodes.append(node)
        values.append(made)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in (given, values[-1])]
    return helper.make_graph(nodes, "g", info[:1], info[1:])


def test_random_models_are_drawn(tmp_path):
    for seed in range(40):
        random = np.random.default_rng(seed)
        data = data_of(report(helper.make_model(random_graph(random, 2, [])), tmp_path))
        assert check_places(data) == set(range(len(data["nodes"]))), seed
        for level in data["levels"]:
            own = boxes(level)
            assert all(own[start][0] >= 0 and own[end][0] >= 0 for _, start, end, _ in edges(level)), seed
            assert level[3] < 0 or data["levels"][level[3]][5] >= level[5], (
                "no level has more nodes than that around it"
            )


def test_what_leaves_a_module_is_one_bundle(tmp_path):
    nodes = [helper.make_node("Sin", ["x"], [f"a{index}"], name=f"a{index}") for index in range(9)]
    nodes += [helper.make_node("Sin", [f"a{index}"], [f"b{index}"], name=f"b{index}") for index in range(9)]
    nodes.append(helper.make_node("Sum", [f"{kind}{index}" for kind in "ab" for index in range(9)], ["y"], name="sum"))
    for node in nodes[:-1]:
        node.metadata_props.add(key="pkg.jax2onnx.module", value=node.name[0])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    data = data_of(report(helper.make_model(helper.make_graph(nodes, "net", values[:1], values[1:])), tmp_path))
    main = data["levels"][0]
    points = {point for _, _, _, point in edges(main) if point >= 0}
    assert len(edges(main)) == 1 + 9 + 9 + 9 + 1 and len(points) == 1, "nine values pass the other box by one way"


def test_on_a_phone_the_graph_shows_what_was_chosen_in_the_list(opened):
    page = opened(modular(["a", "a", "b", "b"] * 20), width=390, height=800)
    page.click("document.querySelector('#panes [data-pane=graph]')")
    page.js("document.getElementById('nodes').focus()")
    page.key("End")
    page.click("document.querySelector('#panes [data-pane=drawing]')")
    settle(page)
    place = seen_at(page)
    box = picture(page, f"picture.drawing.boxPlace({{level: {place['level']}, box: {place['box']}}})")
    view = picture(page, "picture.seen")
    assert view["left"] <= box["x"] <= view["right"] and view["top"] <= box["y"] <= view["bottom"]
