"""j2o graft: provenance comes back to what a tool made of a model, and never to a wrong place."""

import json
import pathlib
import subprocess
import warnings
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import TensorProto, helper, numpy_helper

import jax2onnx
from jax2onnx import _core, keep_provenance, to_onnx

OURS = "pkg.jax2onnx."


def entries(node):
    return {entry.key: entry.value for entry in node.metadata_props}


def mark(node, line, function="fn"):
    """As an export with full provenance writes it."""
    texts = {
        "callsite": f"{function}:{line}",
        "plugin": "Plugin.lower:1",
        "stacktrace": f"/p/main.py:1 in <module>\nsrc/lower/x.c:{line} in Plugin.lower",
        "jax_traceback": f"/p/model.py:{line} ({function})\n/p/main.py:1 (<module>)",
    }
    for key, value in texts.items():
        node.metadata_props.add(key=OURS + key, value=value)
    return node


def weight(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def model(nodes, inputs=("x",), outputs=("y",), tensors=(), shape=(4, 4), functions=(), opset=21, domains=()):
    values = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in names] for names in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *values, [numpy_helper.from_array(array, name) for name, array in tensors])
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def chain(*steps):
    """Nodes from "OP in,in out" texts, each on a line of its own from 10 on."""
    nodes = []
    for line, step in enumerate(steps, 10):
        op, inputs, outputs = step.split()
        nodes.append(helper.make_node(op, inputs.split(","), outputs.split(","), name=f"{op}_{line}"))
    return nodes


STEPS = ("MatMul x,w a", "Add a,b s", "Relu s r", "MatMul r,v m", "Tanh m t", "Mul t,x y")
TENSORS = [("w", weight(4, 4)), ("v", weight(4, 4, seed=1)), ("b", weight(4))]


def original(steps=STEPS, tensors=TENSORS, **options):
    return model([mark(node, line) for line, node in enumerate(chain(*steps), 10)], tensors=tensors, **options)


def graft(tmp_path, first, second, *options):
    """The exit code, the grafted model or None, and what was printed."""
    onnx.save(first, tmp_path / "first.onnx")
    onnx.save(second, tmp_path / "second.onnx")
    out = tmp_path / "out.onnx"
    words = ["j2o", "graft", str(tmp_path / "first.onnx"), str(tmp_path / "second.onnx"), "-o", str(out), *options]
    code, output, errors = _core.tool_output(words)
    return code, onnx.load(out, load_external_data=False) if out.exists() else None, (output + errors).decode()


def lines(result, graph=None):
    """Of each node, by the name of its first output: its line and how it was found."""
    found = {}
    for node in (graph or result.graph).node:
        told = entries(node)
        found[node.output[0]] = (told.get(OURS + "callsite"), told.get(OURS + "grafted"))
    return found


def test_names_are_enough(tmp_path):
    processed = model(chain(*STEPS), tensors=TENSORS)
    code, result, said = graft(tmp_path, original(), processed)
    assert code == 0 and "6 of 6 nodes grafted (6 by name" in said
    assert lines(result)["r"] == ("fn:12", "name")
    before = entries(original().graph.node[2])
    assert {k: v for k, v in entries(result.graph.node[2]).items() if k != OURS + "grafted"} == before


def test_everything_but_the_provenance_is_copied(tmp_path):
    processed = model(chain(*STEPS), tensors=TENSORS)
    processed.graph.node[1].doc_string = "kept"
    processed.graph.node[1].metadata_props.add(key="somebody.else", value="kept")
    graft(tmp_path, original(), processed)
    code, _, _ = _core.tool_output(["j2o", "strip", str(tmp_path / "out.onnx"), "-o", str(tmp_path / "plain.onnx")])
    assert code == 0
    assert (tmp_path / "plain.onnx").read_bytes() == (tmp_path / "second.onnx").read_bytes()


def test_structure_is_enough(tmp_path):
    steps = ("MatMul x,q1 q2", "Add q2,q3 q4", "Relu q4 q5", "MatMul q5,q6 q7", "Tanh q7 q8", "Mul q8,x y")
    nodes = chain(*steps)
    for node in nodes:
        node.name = ""
    tensors = [("q1", TENSORS[0][1]), ("q6", TENSORS[1][1]), ("q3", TENSORS[2][1])]
    _, result, _ = graft(tmp_path, original(), model(nodes, tensors=tensors))
    assert [line for line, _ in lines(result).values()] == [f"fn:{n}" for n in range(10, 16)]
    assert {how for _, how in list(lines(result).values())[:-1]} == {"structure"}


def test_names_that_lie_are_not_believed(tmp_path):
    steps = ("MatMul x,w r", "Add r,b t", "Relu t a", "MatMul a,v s", "Tanh s m", "Mul m,x y")
    _, result, _ = graft(tmp_path, original(), model(chain(*steps), tensors=TENSORS))
    assert [line for line, _ in lines(result).values()] == [f"fn:{n}" for n in range(10, 16)]


def test_a_prefix_is_seen_through(tmp_path):
    processed = onnx.compose.add_prefix(model(chain(*STEPS), tensors=TENSORS), "left/")
    _, result, _ = graft(tmp_path, original(), processed)
    assert lines(result)["left/t"] == ("fn:14", "name")


def test_a_merged_model_keeps_both(tmp_path):
    processed = onnx.compose.add_prefix(model(chain(*STEPS), tensors=TENSORS), "one/")
    for step in ("Neg one/y z", "Exp z z2"):
        op, source, target = step.split()
        processed.graph.node.append(helper.make_node(op, [source], [target]))
    processed.graph.output[0].name = "z2"
    code, result, _ = graft(tmp_path, original(), processed)
    assert code == 0 and lines(result)["one/m"][0] == "fn:13"
    assert lines(result)["z"] == (None, None) == lines(result)["z2"], "of these nothing is known"


def test_inserted_casts_are_of_what_they_cast(tmp_path):
    steps = (
        "Cast x x16",
        "MatMul x16,w a",
        "Add a,b s",
        "Relu s r",
        "MatMul r,v m16",
        "Cast m16 m",
        "Tanh m t",
        "Mul t,x y",
    )
    nodes = chain(*steps)
    for node in nodes:
        if node.op_type == "Cast":
            node.attribute.append(helper.make_attribute("to", 10 if node.output[0] == "x16" else 1))
    tensors = [(name, array.astype(np.float16)) for name, array in TENSORS]
    _, result, _ = graft(tmp_path, original(), model(nodes, tensors=tensors))
    assert lines(result)["m16"][0] == lines(result)["m"][0] == "fn:13"
    assert lines(result)["x16"] == ("fn:10", "region"), "what prepares the input of a node is that node's"
    assert lines(result)["t"][0] == "fn:14"


def test_quantised_products_are_the_products(tmp_path):
    steps = (
        "MatMul x,w a", "Add a,b s", "Relu s r", "DynamicQuantizeLinear r rq,rs,rz", "MatMulInteger rq,vq,rz,vz mi",
        "Cast mi mc", "Mul rs,vs ms", "Mul mc,ms m", "Tanh m t", "Mul t,x y",
    )  # fmt: skip
    nodes = chain(*steps)
    next(node for node in nodes if node.op_type == "Cast").attribute.append(helper.make_attribute("to", 1))
    tensors = [*TENSORS[::2], ("vq", np.ones((4, 4), np.int8)), ("vz", np.int8(0)), ("vs", np.float32(0.1))]
    _, result, _ = graft(tmp_path, original(), model(nodes, tensors=tensors))
    found = lines(result)
    assert {found[name] for name in ("mi", "mc", "ms", "m")} == {("fn:13", "region")}
    assert found["r"][0] == "fn:12" and found["t"][0] == "fn:14"


def test_a_fused_kernel_has_the_traces_of_its_parts(tmp_path):
    fused = helper.make_node("FusedGemm", ["x", "w", "b"], ["r"], domain="com.microsoft", activation="Relu")
    processed = model([fused, *chain(*STEPS)[3:]], tensors=TENSORS, domains=("com.microsoft",))
    _, result, _ = graft(tmp_path, original(), processed)
    told = entries(result.graph.node[0])
    assert told[OURS + "callsite"] == "fn:12" and told[OURS + "grafted"] == "region"
    blocks = told[OURS + "jax_traceback"].split("\n\n")
    assert [block.split("\n")[0] for block in blocks] == [f"/p/model.py:{n} (fn)" for n in (12, 10, 11)]
    assert lines(result)["m"] == ("fn:13", "name")


def test_a_fused_kernel_is_found_without_names(tmp_path):
    fused = helper.make_node("FusedGemm", ["x", "w1", "b1"], ["q"], domain="com.microsoft", activation="Relu")
    nodes = [fused, *chain("MatMul q,v1 q7", "Tanh q7 q8", "Mul q8,x y")]
    tensors = [("w1", TENSORS[0][1]), ("v1", TENSORS[1][1]), ("b1", TENSORS[2][1])]
    for node in nodes:
        node.name = ""
    _, result, _ = graft(tmp_path, original(), model(nodes, tensors=tensors, domains=("com.microsoft",)))
    assert lines(result)["q"] == ("fn:12", "region")
    assert lines(result)["q7"] == ("fn:13", "structure")


def test_bodies_are_matched_inside(tmp_path):
    def branch(name, op, line, marked):
        node = helper.make_node(op, ["a"], [f"{name}_out"], name=f"{op}_{name}")
        value = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, (4, 4))
        return helper.make_graph([mark(node, line) if marked else node], name, [], [value])

    def make(marked, prefix=""):
        nodes = chain("Exp x a")
        choice = helper.make_node("If", ["c"], ["y"], name="If_1")
        for key, op, line in (("then_branch", "Sin", 30), ("else_branch", "Cos", 31)):
            choice.attribute.append(helper.make_attribute(key, branch(prefix + key[:4], op, line, marked)))
        if marked:
            mark(nodes[0], 10)
            mark(choice, 20)
        return model([*nodes, choice], tensors=[("c", np.array(True))])

    _, result, _ = graft(tmp_path, make(True), make(False, "other_"))
    bodies = [attribute.g for attribute in result.graph.node[1].attribute]
    assert [next(iter(lines(result, body).values()))[0] for body in bodies] == ["fn:30", "fn:31"]


def function(nodes):
    imports = [helper.make_opsetid("", 21)]
    return helper.make_function("own", "block", ["p", "k"], ["q"], nodes, imports)


def test_functions_are_seen_through(tmp_path):
    body = [mark(node, line) for line, node in enumerate(chain("MatMul p,k i", "Relu i q"), 50)]
    calls = [
        helper.make_node("block", ["x", "w"], ["h"], domain="own"),
        helper.make_node("block", ["h", "v"], ["y"], domain="own"),
    ]
    first = model(
        [mark(call, 60 + i) for i, call in enumerate(calls)],
        tensors=TENSORS,
        functions=[function(body)],
        domains=("own",),
    )
    inlined = onnx.inliner.inline_local_functions(first)
    for node in inlined.graph.node:
        del node.metadata_props[:]
    _, result, _ = graft(tmp_path, first, inlined)
    assert [line for line, _ in lines(result).values()] == ["fn:50", "fn:51"] * 2
    plain = onnx.ModelProto.FromString(first.SerializeToString())
    for node in (*plain.graph.node, *plain.functions[0].node):
        del node.metadata_props[:]
    _, result, _ = graft(tmp_path, first, plain)
    assert [line for line, _ in lines(result).values()] == ["fn:60", "fn:61"]
    assert [line for line, _ in lines(result, result.functions[0]).values()] == ["fn:50", "fn:51"]


def test_constants_become_nodes_and_back(tmp_path):
    nodes = [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)) for name, array in TENSORS]
    _, result, _ = graft(tmp_path, original(), model([*nodes, *chain(*STEPS)]))
    assert lines(result)["y"][0] == "fn:15"
    marked = model([*nodes, *(mark(node, line) for line, node in enumerate(chain(*STEPS), 10))])
    _, result, _ = graft(tmp_path, marked, model(chain(*STEPS), tensors=TENSORS))
    assert lines(result)["y"][0] == "fn:15"


def test_initializers_and_the_model_carry_theirs(tmp_path):
    first = original()
    first.graph.initializer[1].metadata_props.add(key=OURS + "module", value="layers[1].kernel")
    first.metadata_props.add(key=OURS + "modules", value="tree")
    processed = model(chain(*STEPS), tensors=TENSORS)
    processed.metadata_props.add(key="somebody.else", value="kept")
    _, result, _ = graft(tmp_path, first, processed)
    assert entries(result.graph.initializer[1]) == {OURS + "module": "layers[1].kernel"}
    assert entries(result) == {"somebody.else": "kept", OURS + "modules": "tree"}


def test_a_folded_value_says_who_computed_it(tmp_path):
    steps = ("Exp w e", "MatMul x,e y")
    _, result, _ = graft(
        tmp_path, original(steps), model(chain("MatMul x,e y"), tensors=[("e", np.exp(TENSORS[0][1]))])
    )
    assert entries(result.graph.initializer[0])[OURS + "callsite"] == "fn:10"


def test_other_producers(tmp_path):
    first = model(chain(*STEPS), tensors=TENSORS)
    for line, node in enumerate(first.graph.node, 3):
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=f'File "/p/net.py", line {line}, in forward')
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'layer']")
    _, result, _ = graft(tmp_path, first, model(chain(*STEPS), tensors=TENSORS))
    told = entries(result.graph.node[2])
    assert told["pkg.torch.onnx.stack_trace"].endswith("line 5, in forward")
    assert told["pkg.torch.onnx.name_scopes"] == "['', 'layer']" and told[OURS + "grafted"] == "name"


def test_a_compact_original_gives_a_compact_result(tmp_path):
    onnx.save(original(), tmp_path / "full.onnx")
    _core.tool_output(["j2o", "compact", str(tmp_path / "full.onnx"), "-o", str(tmp_path / "compact.onnx")])
    compact = onnx.load(tmp_path / "compact.onnx")
    _, result, _ = graft(tmp_path, compact, model(chain(*STEPS), tensors=TENSORS))
    assert entries(result.graph.node[0]).keys() == {OURS + "callsite", OURS + "grafted"}
    assert OURS + "provenance" in entries(result)
    code, output, _ = _core.tool_output(
        ["j2o", "inspect", str(tmp_path / "out.onnx"), "--line", "model.py:12", "--json"]
    )
    assert code == 0 and b"Relu" in output


@pytest.mark.parametrize("shape", [(4, 4), (5, 5)])
def test_an_unrelated_model_is_refused(tmp_path, shape):
    other = model(chain("Sub x,x a", "Sigmoid a s", "Neg s r", "Exp r m", "Log m t", "Sqrt t y"), shape=shape)
    code, result, said = graft(tmp_path, original(), other)
    assert code == 1 and result is None
    assert "was not made from" in said and "Nothing was grafted" in said


def test_an_original_without_provenance_is_told(tmp_path):
    code, result, said = graft(tmp_path, model(chain(*STEPS), tensors=TENSORS), model(chain(*STEPS), tensors=TENSORS))
    assert code == 1 and result is None and "no node has provenance" in said


def test_weights_elsewhere_stay_there(tmp_path):
    processed = model(chain(*STEPS), tensors=TENSORS)
    for tensor in processed.graph.initializer:
        onnx.external_data_helper.set_external_data(tensor, "weights.bin", offset=0, length=64)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.ClearField("raw_data")
    code, result, _ = graft(tmp_path, original(), processed)
    assert code == 0 and lines(result)["y"][0] == "fn:15"
    assert result.graph.initializer[0].external_data[0].value == "weights.bin"


def test_time_is_linear(tmp_path):
    import resource

    def long_chain(count, marked, tag):
        nodes = []
        for i in range(count):
            node = helper.make_node(("Sin", "Cos", "Tanh")[i % 3], [f"{tag}{i}" if i else "x"], [f"{tag}{i + 1}"])
            nodes.append(mark(node, i) if marked else node)
        nodes[-1].output[0] = "y"
        return model(nodes)

    def seconds(count):
        first, second = tmp_path / f"a{count}.onnx", tmp_path / f"b{count}.onnx"
        onnx.save(long_chain(count, True, "v"), first)
        onnx.save(long_chain(count, False, "t"), second)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        code, output, _ = _core.tool_output(
            ["j2o", "graft", str(first), str(second), "-o", str(tmp_path / "o"), "--json"]
        )
        assert code == 0 and json.loads(output)["structure"] >= count - 1
        return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before

    seconds(1000)
    assert seconds(32000) < 12 * max(seconds(8000), 0.02)


# ---- reading the processed file with the original ----


def exported(tmp_path, name="first.onnx", level="full"):
    up, down = weight(8, 16), weight(16, 8)

    def fn(x):
        h = jax.nn.relu(x @ up)
        return jnp.sin(h @ down) + x

    to_onnx(fn, [(3, 8)], return_mode="file", output_path=str(tmp_path / name), stacktrace_metadata=level)
    return tmp_path / name


def anonymous(path, target):
    processed = onnx.load(path)
    names = {}
    for node in processed.graph.node:
        del node.metadata_props[:]
        node.name = ""
        node.input[:] = [names.get(name, name) for name in node.input]
        for i, name in enumerate(node.output):
            if name != processed.graph.output[0].name:
                node.output[i] = names.setdefault(name, f"t{len(names)}")
    del processed.graph.value_info[:]
    onnx.save(processed, target)
    return target


def test_commands_answer_for_the_processed_file(tmp_path):
    first = exported(tmp_path)
    second = anonymous(first, tmp_path / "second.onnx")
    for words in (["inspect", "--summary"], ["blame"], ["inspect", "--json"]):
        plain = _core.tool_output(["j2o", *words, str(second)])[1]
        told = _core.tool_output(["j2o", *words, str(second), "--original", str(first)])
        assert told[0] == 0 and b"test_graft.py" in told[1] and told[1] != plain
    page = tmp_path / "page.html"
    assert _core.tool_output(["j2o", "report", str(second), "--original", str(first), "-o", str(page)])[0] == 0
    assert "test_graft.py" in page.read_text()


def command(*words, **options):
    import sys

    return subprocess.run(
        [sys.executable, "-m", "jax2onnx", *map(str, words)], capture_output=True, text=True, **options
    )


def test_explain_and_profile_take_the_original(tmp_path):
    first = exported(tmp_path)
    second = anonymous(first, tmp_path / "second.onnx")
    name = onnx.load(second).graph.node[0].output[0]
    told = command("explain", second, "--original", first, input=f"Node output '{name}' is wrong")
    assert told.returncode == 0 and "jax.nn.relu(x @ up)" in told.stdout, told.stderr
    told = command("profile", second, "--original", first, "--runs", 1, "--json")
    assert told.returncode == 0, told.stderr
    places = {row["line"]["source"] for row in json.loads(told.stdout)["lines"] if isinstance(row["line"], dict)}
    assert "h = jax.nn.relu(x @ up)" in places


def test_explain_knows_kernels_that_the_runtime_makes(tmp_path, monkeypatch, capsys):
    """Of a name that stands in no file: it is in what ONNX Runtime makes of the model when it loads it."""
    from jax2onnx._commands import explain

    first = exported(tmp_path)

    def optimised(path, folder):
        kernel = onnx.load(path)
        for node in kernel.graph.node:
            node.name = ""
            del node.metadata_props[:]
        kernel.graph.node[0].name = "invented_kernel_7"
        kernel.graph.node[0].op_type, kernel.graph.node[0].domain = "FusedThing", "com.microsoft"
        onnx.save(kernel, pathlib.Path(folder, "optimised.onnx"))
        return str(pathlib.Path(folder, "optimised.onnx"))

    monkeypatch.setattr(explain, "optimised_model", optimised)
    (tmp_path / "message.txt").write_text("Non-zero status code returned while running Node 'invented_kernel_7'")
    code = explain.run([str(first), str(tmp_path / "message.txt")])
    assert code == 0 and "jax.nn.relu(x @ up)" in capsys.readouterr().out


# ---- keep_provenance ----


def simplified(model_proto):
    """A tool that gives a new model, without metadata."""
    result = onnx.ModelProto.FromString(model_proto.SerializeToString())
    for node in result.graph.node:
        del node.metadata_props[:]
    return result


def all_labelled(model_proto):
    return all(OURS + "callsite" in entries(node) for node in model_proto.graph.node)


def test_a_wrapped_tool_keeps_lines(tmp_path):
    path = exported(tmp_path)
    before = onnx.load(path)
    assert all_labelled(keep_provenance(simplified)(before))
    result, flag = keep_provenance(lambda m: (simplified(m), True))(before)
    assert all_labelled(result) and flag is True

    def in_place(model_proto):
        for node in model_proto.graph.node:
            del node.metadata_props[:]

    assert keep_provenance(in_place)(before) is None and all_labelled(before)


def test_a_wrapped_tool_may_work_on_files(tmp_path):
    path, out = exported(tmp_path), tmp_path / "out.onnx"

    def quantise(source, target, *, strength=1):
        onnx.save(simplified(onnx.load(source)), target)

    keep_provenance(quantise)(path, str(out), strength=2)
    assert all_labelled(onnx.load(out))
    keep_provenance(quantise)(str(path), target=str(path))
    assert all_labelled(onnx.load(path))


def test_a_block_of_steps(tmp_path):
    path = exported(tmp_path)
    with keep_provenance(path) as step:
        assert all_labelled(step(simplified(onnx.load(path))))
        onnx.save(simplified(onnx.load(path)), tmp_path / "other.onnx")
        step(tmp_path / "other.onnx")
        onnx.save(simplified(onnx.load(path)), path)
    assert all_labelled(onnx.load(tmp_path / "other.onnx")) and all_labelled(onnx.load(path))


def test_what_cannot_be_kept_is_told(tmp_path):
    path = exported(tmp_path)
    other = model(chain("Sub x,x a", "Sigmoid a y"))
    with keep_provenance(path) as step, pytest.warns(jax2onnx.ProvenanceWarning, match="was not made from"):
        assert step(other) is other
    with pytest.raises(TypeError, match="was called without a model"):
        keep_provenance(simplified)(3)


def test_onnx_ir_models_too(tmp_path):
    onnx_ir = pytest.importorskip("onnx_ir")
    path = exported(tmp_path)
    before = onnx_ir.load(path)

    def clear(ir_model):
        for node in ir_model.graph:
            node.metadata_props.clear()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keep_provenance(clear)(before)
    assert all(OURS + "callsite" in node.metadata_props for node in before.graph)


# ---- by line ----


def test_diff_tells_what_became_of_each_line(tmp_path):
    fused = helper.make_node(
        "FusedGemm", ["x", "w", "b"], ["r"], name="Fused", domain="com.microsoft", activation="Relu"
    )
    processed = model([fused, *chain(*STEPS)[3:]], tensors=TENSORS, domains=("com.microsoft",))
    onnx.save(original(), tmp_path / "first.onnx")
    onnx.save(processed, tmp_path / "second.onnx")
    words = ["j2o", "diff", "--processed", str(tmp_path / "first.onnx"), str(tmp_path / "second.onnx")]
    code, output, _ = _core.tool_output([*words, "--json"])
    document = json.loads(output)
    fates = {item["line"]: (item["fate"], [node["op_type"] for node in item["became"]]) for item in document["nodes"]}
    assert code == 1 and document["fused"] == 3 and document["kept"] == 3
    assert fates[10] == fates[11] == fates[12] == ("fused", ["FusedGemm"])
    text = _core.tool_output(words)[1].decode()
    assert "3 kept, 3 fused" in text and "fn:11" in text and "fn:14" not in text
    words[-1] = words[-2]
    assert _core.tool_output(words)[0] == 0
    other = model(chain("Sub x,x a", "Sigmoid a s", "Neg s r", "Exp r m", "Log m t", "Sqrt t y"))
    onnx.save(other, tmp_path / "second.onnx")
    words[-1] = str(tmp_path / "second.onnx")
    assert _core.tool_output(words)[0] == 2


# ---- what other people's tools left of real exports ----

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / "data" / "graft_sample.zip"


def test_a_sample_of_tools(tmp_path):
    """`make graft-sample` made it; `make test-graft` measures all of them."""
    with zipfile.ZipFile(SAMPLE) as sample:
        sample.extractall(tmp_path)
    known = right = said = 0
    for path in sorted(tmp_path.glob("*/*.onnx")):
        out = tmp_path / "out.onnx"
        code, _, errors = _core.tool_output(["j2o", "graft", str(tmp_path / path.name), str(path), "-o", str(out)])
        assert code == 0, f"{path}: {errors}"
        truth = json.loads(path.with_suffix(".truth.json").read_text())
        for node, expected in zip(onnx.load(out).graph.node, truth, strict=False):
            if expected is None:
                continue
            line = entries(node).get(OURS + "callsite")
            known += 1
            said += line is not None
            right += line == expected
    assert known > 400
    assert right >= 0.95 * known and right >= 0.99 * said
