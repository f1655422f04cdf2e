"""The random programs themselves (tests/fuzz/programs): what is wrong is seen, and made small."""

import pathlib
import sys

import jax
import numpy as np
import pytest
from export_check import KEYS, all_nodes, metadata

from jax2onnx import to_onnx

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "fuzz" / "programs"
sys.path.insert(0, str(FOLDER))
import check  # noqa: E402
from conditioning import base_tolerance, differs, excused  # noqa: E402
from generate import generate  # noqa: E402
from shrink import shrink  # noqa: E402

from program import Body, Input, Printer, Program, Statement  # noqa: E402


def sine_of_sum() -> Program:
    body = Body(["p1"], [Statement(["v2"], "jnp.exp(-jnp.abs({0}))", ["p1"])], "v2")
    statements = [
        Statement(["v3"], "jax.jit({f0})({0})", ["x0"], [body]),
        Statement(["v4"], "{0} + {1}", ["v3", "x1"]),
        Statement(["v5"], "jnp.sin({0})", ["v4"]),
        Statement(["v6"], "jnp.floor({0})", ["x1"], exact=True),
    ]
    return Program(5, False, [Input("x0", [2, 3], "float32"), Input("x1", [3], "float32")], statements, ["v5", "v6"])


def exported(change):
    """to_onnx with a fault in what it gives, the same with and without metadata."""

    def faulty(*args, **options):
        model = to_onnx(*args, **options)
        change(model)
        return model

    return faulty


def test_a_program_passes(tmp_path):
    outcome = check.check_program(sine_of_sum(), tmp_path)
    assert (outcome.kind, outcome.detail) == ("passed", "")
    assert outcome.nodes > 4


def test_wrong_numbers_are_seen(tmp_path, monkeypatch):
    def change(model):
        for node in all_nodes(model):
            node.op_type = "Cos" if node.op_type == "Sin" else node.op_type

    monkeypatch.setattr(check, "to_onnx", exported(change))
    assert check.check_program(sine_of_sum(), tmp_path).kind == "numbers"


def test_a_lost_line_is_seen(tmp_path, monkeypatch):
    def change(model):
        nodes = {node.op_type: node for node in all_nodes(model)}
        floor, sine = nodes["Floor"], nodes["Sin"]
        del sine.metadata_props[:]
        sine.metadata_props.extend(floor.metadata_props)

    monkeypatch.setattr(check, "to_onnx", exported(change))
    outcome = check.check_program(sine_of_sum(), tmp_path)
    assert outcome.kind == "lost line" and "jnp.sin" in outcome.detail


def test_a_line_that_is_no_statement_is_seen(tmp_path, monkeypatch):
    """The statement in the nested function, blamed on its def."""

    def change(model):
        for node in all_nodes(model):
            if node.op_type == "Exp" and node.metadata_props:
                line = int(metadata(node)[KEYS[0]].rsplit(":", 1)[1])
                for entry in node.metadata_props:
                    if entry.key in (KEYS[0], KEYS[3]):
                        entry.value = entry.value.replace(f":{line}", f":{line - 1}")

    monkeypatch.setattr(check, "to_onnx", exported(change))
    assert check.check_program(sine_of_sum(), tmp_path).kind == "callsite"


def test_a_program_shrinks_to_what_fails():
    small = shrink(sine_of_sum(), lambda program: "jnp.sin" in Printer().program(program))
    assert [statement.text for statement in small.statements] == ["jnp.sin({0})"]
    assert [(value.name, value.shape) for value in small.inputs] == [("v4", [1, 1])]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_is_a_program(seed):
    program = generate(seed)
    assert Printer().program(program) == Printer().program(generate(seed))
    assert Printer().program(Program.from_data(program.to_data())) == Printer().program(program)


def test_only_what_perturbation_moves_is_excused():
    want, got = np.array([1.0, 5.0], np.float32), np.array([1.5, 5.5], np.float32)
    tolerance = base_tolerance(want, 1)
    assert differs(want, got, tolerance).tolist() == [True, True]
    runs = [np.array([1.2, 5.0], np.float32), np.array([0.9, 5.0], np.float32)]
    assert excused(want, got, runs, tolerance).tolist() == [True, False]


def test_beside_a_pole_a_large_number_is_as_good_as_another():
    want, got = np.array([2e6, 2e6, 0.5, 2e6], np.float32), np.array([-5e14, -5e14, -5e14, 1.0], np.float32)
    runs = [want, np.array([4e11, 3e6, 4e3, 3e6], np.float32)]
    assert excused(want, got, runs, base_tolerance(want, 1)).tolist() == [True, False, False, True]


def test_references_are_compiled_with_the_options_that_are_named():
    jax.jit(lambda x: x + 1).lower(1.0).compile(check.COMPILER)
