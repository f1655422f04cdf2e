"""Models without weights, and where these come from."""

from __future__ import annotations

import functools
import json
import pathlib
import shutil
import struct
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from flax import linen, nnx
from safetensors_files import header_of, packed, write_safetensors, write_shards

from jax2onnx import _core, to_onnx

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.inner = nnx.Linear(4, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.outer = nnx.List([nnx.Linear(8, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)])

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.dropout(nnx.relu(self.inner(x)), deterministic=True)
        for layer in self.outer:
            x = layer(x)
        return x


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return linen.Dense(5)(linen.relu(linen.Dense(8)(x)))


class Plain:
    """A class of the user's own."""

    def __init__(self, w: object, b: object) -> None:
        self.parts = {"w": w, "b": b}

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.parts["w"] + self.parts["b"]


GLOBAL = Plain(jax.ShapeDtypeStruct((4, 2), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.float32))
GLOBAL_NUMBERS = {"w": np.arange(8, dtype=np.float32).reshape(4, 2), "b": np.float32([1, 2])}


def of_global(x: jax.Array) -> jax.Array:
    return GLOBAL(x)


@pytest.fixture(scope="module")
def model() -> Block:
    return Block(nnx.Rngs(0))


@pytest.fixture(scope="module")
def abstract() -> Block:
    return nnx.eval_shape(lambda: Block(nnx.Rngs(0)))


@pytest.fixture(scope="module")
def arrays(model: Block) -> dict[str, np.ndarray]:
    """By path, as the exported model names them."""
    proto = to_onnx(model, [(3, 4)])
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def bytes_of(fn: object, **options: object) -> bytes:
    return to_onnx(fn, [(3, 4)], **options).SerializeToString()


# ---- models ----


def test_an_abstract_nnx_model_gives_the_bytes_of_the_concrete_one(model, abstract) -> None:
    assert bytes_of(abstract, weights=nnx.state(model, nnx.Param)) == bytes_of(model)
    lines = {"stacktrace_metadata": "minimal"}
    assert bytes_of(abstract.__call__, weights=nnx.state(model, nnx.Param), **lines) == bytes_of(
        model.__call__, **lines
    )


def test_equinox() -> None:
    concrete = eqx.nn.MLP(4, 2, 8, 2, key=jax.random.key(0))
    shapes = eqx.filter_eval_shape(eqx.nn.MLP, 4, 2, 8, 2, key=jax.random.key(0))
    numbers = eqx.filter(concrete, eqx.is_array)
    assert bytes_of(jax.vmap(shapes), weights=numbers) == bytes_of(jax.vmap(concrete))


def test_linen_bound_and_applied() -> None:
    dense = Dense()
    variables = dense.init(jax.random.key(0), X)
    shapes = jax.eval_shape(dense.init, jax.random.key(0), X)
    assert bytes_of(dense.bind(shapes), weights=variables) == bytes_of(dense.bind(variables))
    applied = functools.partial(dense.apply, shapes)
    assert bytes_of(applied, weights=variables) == bytes_of(functools.partial(dense.apply, variables))
    assert bytes_of(lambda x: dense.apply(shapes, x), weights=variables) == bytes_of(
        lambda x: dense.apply(variables, x)
    )


def test_the_users_own_classes_functions_and_globals() -> None:
    got = to_onnx(of_global, [(3, 4)], weights=GLOBAL_NUMBERS, rename=lambda path: path.rpartition(".")[2])
    session = onnxruntime.InferenceSession(got.SerializeToString())
    expected = X @ GLOBAL_NUMBERS["w"] + GLOBAL_NUMBERS["b"]
    np.testing.assert_allclose(session.run(None, {"in_0": X})[0], expected, rtol=1e-5)
    assert isinstance(GLOBAL.parts["w"], jax.ShapeDtypeStruct), "the model itself is not changed"


def test_a_jitted_function_over_an_abstract_model(model, abstract) -> None:
    jitted = jax.jit(lambda x: abstract(x) * 2)
    got = to_onnx(jitted, [(3, 4)], weights=nnx.state(model, nnx.Param))
    session = onnxruntime.InferenceSession(got.SerializeToString())
    np.testing.assert_allclose(session.run(None, {"in_0": X})[0], 2 * np.asarray(model(X)), rtol=1e-4, atol=1e-5)


def test_tied_weights_are_one() -> None:
    class Tied(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first = nnx.Linear(4, 4, rngs=rngs)
            self.second = nnx.Linear(4, 4, rngs=rngs)
            self.second.kernel = self.first.kernel

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.second(self.first(x))

    concrete = Tied(nnx.Rngs(0))
    shapes = nnx.eval_shape(lambda: Tied(nnx.Rngs(0)))
    assert bytes_of(shapes, weights=nnx.state(concrete, nnx.Param)) == bytes_of(concrete)


def test_a_model_without_weights_says_what_is_missing(abstract) -> None:
    with pytest.raises(TypeError) as raised:
        to_onnx(abstract, [(3, 4)])
    assert any("weights=SOURCE" in note for note in raised.value.__notes__)


def test_weights_for_a_model_that_has_them_are_refused(model) -> None:
    with pytest.raises(ValueError, match="already has all its weights"):
        to_onnx(model, [(3, 4)], weights={})


# ---- sources ----


def sources(folder, arrays):
    write_safetensors(folder / "one.safetensors", arrays)
    (folder / "several").mkdir()
    write_shards(folder / "several", arrays, 3)
    np.savez(folder / "all.npz", **arrays)
    return {
        "file": folder / "one.safetensors",
        "folder": folder / "several",
        "index": folder / "several" / "model.safetensors.index.json",
        "npz": folder / "all.npz",
        "mapping": arrays,
        "function": arrays.__getitem__,
    }


@pytest.mark.parametrize("kind", ["file", "folder", "index", "npz", "mapping", "function"])
def test_every_source_gives_the_same_model(tmp_path, model, abstract, arrays, kind) -> None:
    assert bytes_of(abstract, weights=sources(tmp_path, arrays)[kind]) == bytes_of(model)


def test_large_weights_are_streamed_from_every_source(tmp_path) -> None:
    rng = np.random.default_rng(0)
    big = {
        "w": rng.normal(size=(700, 700)).astype(np.float32),
        "v": rng.normal(size=(700, 4)).astype(ml_dtypes.bfloat16),
    }
    shapes = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in big.items()}

    def apply(weights, x):
        return (x @ weights["w"]) @ weights["v"].astype(jnp.float32)

    concrete = {name: jnp.asarray(array) for name, array in big.items()}
    expected = to_onnx(functools.partial(apply, concrete), [(2, 700)]).SerializeToString()
    for kind, source in sources(tmp_path, big).items():
        if kind == "npz":  # NumPy's own files know no bfloat16
            continue
        path = tmp_path / f"{kind}.onnx"
        options = {"return_mode": "file", "output_path": path}
        to_onnx(functools.partial(apply, shapes), [(2, 700)], weights=source, **options)
        assert path.read_bytes() == expected, kind


def test_orbax(tmp_path, model, abstract) -> None:
    orbax = pytest.importorskip("orbax.checkpoint")
    saver = orbax.StandardCheckpointer()
    saver.save(tmp_path / "saved", nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    saver.wait_until_finished()
    assert bytes_of(abstract, weights=tmp_path / "saved") == bytes_of(model)


def test_orbax_in_pieces(tmp_path, monkeypatch) -> None:
    orbax = pytest.importorskip("orbax.checkpoint")
    from jax2onnx._door import weights as door

    monkeypatch.setattr(door, "PIECE", 1 << 19)
    big = {"w": np.random.default_rng(0).normal(size=(700, 700)).astype(np.float32)}
    saver = orbax.StandardCheckpointer()
    saver.save(tmp_path / "saved", big)
    saver.wait_until_finished()
    shapes = {"w": jax.ShapeDtypeStruct((700, 700), jnp.float32)}
    got = to_onnx(lambda x: x @ shapes["w"], [(2, 700)], weights=tmp_path / "saved")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(got.graph.initializer[0]), big["w"])


@pytest.mark.parametrize("chunk", [None, 1 << 18])
@pytest.mark.parametrize("together", [True, False])
def test_a_model_from_an_orbax_checkpoint_computes_what_jax_computes(tmp_path, monkeypatch, together, chunk) -> None:
    """Arrays of one chunk are read two at a time, those of many in pieces; their sizes differ."""
    orbax = pytest.importorskip("orbax.checkpoint")
    from jax2onnx._door import weights as door

    monkeypatch.setattr(door, "PIECE", 1 << 19)
    rng = np.random.default_rng(0)
    sizes = (600, 700, 600, 800, 600, 700)
    arrays = {
        f"w{index}": (rng.normal(size=size) / 30).astype(np.float32) for index, size in enumerate(pairwise(sizes))
    }
    arrays["bias"] = rng.normal(size=sizes[-1]).astype(np.float32)
    args = jax.tree.map(lambda _: orbax.SaveArgs(chunk_byte_size=chunk), arrays)
    orbax.PyTreeCheckpointer(use_ocdbt=together).save(tmp_path / "saved", arrays, save_args=args)

    def apply(weights, x):
        for name in sorted(weights.keys() - {"bias"}):
            x = jnp.tanh(x @ weights[name])
        return x + weights["bias"]

    shapes = jax.eval_shape(lambda: arrays)
    path = tmp_path / "model.onnx"
    options = {"return_mode": "file", "output_path": path, "max_shard_size": "4MB"}
    to_onnx(functools.partial(apply, shapes), [(2, 600)], weights=tmp_path / "saved", **options)
    x = rng.normal(size=(2, 600)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(got, apply(arrays, x), rtol=1e-5, atol=1e-5)


def test_what_reads_ahead_keeps_to_its_memory(tmp_path, monkeypatch) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    from jax2onnx._door import weights as door

    size = 600 * 600 * 4
    reading = door._Reading(tensorstore)
    monkeypatch.setattr(door._Reading, "MEMORY", (2 * reading._each + 1) * size)
    array = tensorstore.array(np.ones((600, 600), np.float32))
    rows = [door._RowsOfStore(lambda: array, lambda future: future.result(), size, reading) for _ in range(3)]
    for each, begun in zip(rows, [True, True, False], strict=True):
        each.start(1)
        assert (each._coming is not None) == begun
    for each in rows:
        for piece in each.pieces():
            assert piece.shape == (600, 600) and piece.min() == piece.max() == 1
    assert reading._taken == 0 and len(reading._free) <= 2


def test_rename_by_rules_and_by_function(model, abstract, arrays) -> None:
    def other(path: str) -> str:
        return "model." + path.replace("kernel", "weight")

    renamed = {other(path): array for path, array in arrays.items()}
    rules = {"inner.kernel": "model.inner.weight", "outer.*.kernel": "model.outer.*.weight"}
    rules |= {"inner.bias": "model.inner.bias", "outer.*.bias": "model.outer.*.bias"}
    assert bytes_of(abstract, weights=renamed, rename=other) == bytes_of(model)
    assert bytes_of(abstract, weights=renamed, rename=rules) == bytes_of(model)
    with pytest.raises(ValueError, match="the same number of"):
        to_onnx(abstract, [(3, 4)], weights=renamed, rename={"outer.*.kernel": "weight"})


def test_all_that_is_wrong_is_said_at_once(abstract, arrays) -> None:
    wrong = {**arrays, "inner.kernel": arrays["inner.kernel"].T, "extra.kernel": arrays["inner.bias"]}
    del wrong["outer.0.bias"], wrong["outer.1.bias"]
    with pytest.raises(ValueError) as raised:
        to_onnx(abstract, [(3, 4)], weights=wrong)
    text = str(raised.value)
    for part in (
        "missing: 'outer.0.bias', float32[8]",
        "missing: 'outer.1.bias', float32[4]",
        "mismatch: 'inner.kernel' is float32[8, 4], but the model has float32[4, 8]",
        "surplus: 'extra.kernel'",
    ):
        assert part in text


def test_surplus_weights_can_be_allowed(model, abstract, arrays) -> None:
    more = {**arrays, "extra": np.ones(3, np.float32)}
    assert bytes_of(abstract, weights=more, allow_surplus_weights=True) == bytes_of(model)


def test_weights_that_come_later_are_not_read_by_any_pass(abstract) -> None:
    later = to_onnx(abstract, [(3, 4)], weights="later")
    assert {tensor.name for tensor in later.graph.initializer} >= {"inner.kernel", "outer.1.bias"}
    for tensor in later.graph.initializer:
        if tensor.name.partition(".")[0] in ("inner", "outer"):
            assert {entry.key: entry.value for entry in tensor.external_data}["location"] == "weights-to-come"


# ---- bad files ----

GOOD = {"w": np.arange(4, dtype=np.float32), "b": np.arange(2, dtype=np.int64)}
DATA = b"".join(array.tobytes() for array in GOOD.values())


def changed(name: str, **entry: object) -> dict[str, object]:
    header = header_of(GOOD)
    return {**header, name: {**header[name], **entry}}


BAD = {
    "too short": (b"abc", "too short"),
    "a header behind the end": (struct.pack("<Q", 1000) + b"{}", "extends past the end"),
    "a header without end": (struct.pack("<Q", 1 << 62) + b"{}", "longer than 100 MB"),
    "no JSON": (packed("not JSON", b""), "at byte"),
    "JSON of another kind": (packed("[1, 2]", b""), "expected '{'"),
    "a truncated file": (packed(header_of(GOOD), DATA)[:-1], "past the end of the file"),
    "bytes of no tensor": (packed(header_of(GOOD), DATA + b"x"), "belong to no tensor"),
    "overlapping offsets": (packed(changed("b", data_offsets=[8, 24]), DATA), "overlaps another"),
    "a gap": (packed(changed("b", data_offsets=[24, 40]), DATA + b"12345678"), "belong to no tensor"),
    "an end before the start": (packed(changed("b", data_offsets=[32, 16]), DATA), "ends before it begins"),
    "offsets beyond counting": (packed(changed("b", data_offsets=[16, 1 << 63]), DATA), "does not match its shape"),
    "numbers beyond counting": (
        packed(json.dumps(header_of(GOOD)).replace("[16,", f"[{10**30},"), DATA),
        "smaller number",
    ),
    "a negative dimension": (packed(changed("w", shape=[-4]), DATA), "expected a whole number"),
    "a shape of another size": (packed(changed("w", shape=[5]), DATA), "does not match its shape"),
    "a shape beyond counting": (packed(changed("w", shape=[1 << 62, 1 << 62]), DATA), "does not match its shape"),
    "too many dimensions": (packed(changed("w", shape=[1] * 100), DATA), "too many dimensions"),
    "no shape": (packed({"w": {"dtype": "F32", "data_offsets": [0, 16]}}, DATA[:16]), "has no dtype"),
    "a name twice": (packed(json.dumps(header_of(GOOD)).replace('"b"', '"w"'), DATA), "appears twice"),
    "deep nesting": (packed('{"__metadata__": ' + "[" * 5000, b""), "less nesting"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_safetensors_are_refused(tmp_path, what) -> None:
    content, message = BAD[what]
    (tmp_path / "bad.safetensors").write_bytes(content)
    shapes = {"w": jax.ShapeDtypeStruct((4,), jnp.float32)}
    output = tmp_path / "model.onnx"
    with pytest.raises(ValueError, match=r"bad\.safetensors") as raised:
        to_onnx(
            lambda x: x * shapes["w"],
            [(4,)],
            weights=tmp_path / "bad.safetensors",
            return_mode="file",
            output_path=output,
        )
    assert message in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.safetensors"], "nothing is written"


def test_a_type_that_onnx_lacks_is_listed(tmp_path) -> None:
    header = {"w": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}
    (tmp_path / "odd.safetensors").write_bytes(packed(header, b"12"))
    shapes = {"w": jax.ShapeDtypeStruct((4,), jnp.float32)}
    with pytest.raises(ValueError, match="'w' is F4, which ONNX does not have"):
        to_onnx(lambda x: x * shapes["w"], [(4,)], weights=tmp_path / "odd.safetensors")


@pytest.mark.parametrize("name", ["missing.safetensors", "../outside.safetensors", "/etc/passwd", "link.safetensors"])
def test_an_index_leads_to_no_file_that_is_missing_or_outside(tmp_path, name) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write_safetensors(tmp_path / "outside.safetensors", GOOD)
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    shapes = {"w": jax.ShapeDtypeStruct((4,), jnp.float32)}
    with pytest.raises(ValueError, match="no such file in the folder"):
        to_onnx(lambda x: x * shapes["w"], [(4,)], weights=folder)


def refused(tmp_path, source, shapes=None) -> str:
    """What an export from a bad source says; it writes nothing."""
    shapes = shapes or {"w": jax.ShapeDtypeStruct((600, 600), jnp.float32)}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError) as raised:
        options = {"return_mode": "file", "output_path": tmp_path / "new" / "model.onnx"}
        to_onnx(lambda x: x @ shapes["w"], [(2, 600)], weights=source, **options)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"
    return str(raised.value)


LARGE = np.random.default_rng(0).normal(size=(600, 600)).astype(np.float32)


@pytest.mark.parametrize("kept", [10, 1000, 0.5, -1])
def test_a_truncated_npz_is_refused(tmp_path, kept) -> None:
    np.savez(tmp_path / "w.npz", w=LARGE)
    content = (tmp_path / "w.npz").read_bytes()
    (tmp_path / "w.npz").write_bytes(content[: int(len(content) * kept) if isinstance(kept, float) else kept])
    assert "w.npz: not an .npz file" in refused(tmp_path, tmp_path / "w.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_array_of_an_npz_is_named(tmp_path, save) -> None:
    save(tmp_path / "w.npz", w=LARGE)
    content = bytearray((tmp_path / "w.npz").read_bytes())
    content[len(content) // 2 : len(content) // 2 + 64] = bytes(64)
    (tmp_path / "w.npz").write_bytes(content)
    assert "w.npz: cannot read 'w'" in refused(tmp_path, tmp_path / "w.npz")


@pytest.mark.parametrize("array", [np.array([{}]), np.array(["text"]), np.zeros(3, "M8[s]"), np.zeros(2, "V2")])
def test_an_npz_of_what_is_no_number_is_refused(tmp_path, array) -> None:
    np.savez(tmp_path / "w.npz", w=array)
    assert "unsupported type: 'w'" in refused(tmp_path, tmp_path / "w.npz")


def test_an_npz_of_the_other_byte_order_or_of_columns_is_read(tmp_path) -> None:
    shapes = {"w": jax.ShapeDtypeStruct((600, 600), jnp.float32)}
    for array in (LARGE.astype(">f4"), np.asfortranarray(LARGE)):
        np.savez(tmp_path / "w.npz", w=array)
        got = to_onnx(lambda x: x @ shapes["w"], [(2, 600)], weights=tmp_path / "w.npz")
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(got.graph.initializer[0]), LARGE)
    assert "mismatch: 'w' is >f4[600, 600]" in refused(tmp_path, {"w": LARGE.astype(">f4")})


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[bool, pathlib.Path]:
    """Orbax checkpoints: all arrays in one store, or each in files of its own."""
    orbax = pytest.importorskip("orbax.checkpoint")
    folder = tmp_path_factory.mktemp("orbax")
    for together in (True, False):
        orbax.PyTreeCheckpointer(use_ocdbt=together).save(folder / str(together), {"w": LARGE})
    return {together: folder / str(together) for together in (True, False)}


def damaged(path: pathlib.Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("how", ["missing", "truncated"])
@pytest.mark.parametrize("together", [True, False])
def test_an_orbax_checkpoint_without_some_of_its_data_is_refused(tmp_path, checkpoints, together, how) -> None:
    source = shutil.copytree(checkpoints[together], tmp_path / "saved")
    largest = max((path for path in source.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    damaged(largest, how)
    message = refused(tmp_path, source)
    assert "cannot read 'w'" in message and "saved" in message


@pytest.mark.parametrize("how", ["missing", "truncated"])
@pytest.mark.parametrize("together", [True, False])
def test_an_orbax_checkpoint_without_its_metadata_is_refused(tmp_path, checkpoints, together, how) -> None:
    source = shutil.copytree(checkpoints[together], tmp_path / "saved")
    damaged(source / "_METADATA", how)
    assert "saved: cannot read the metadata of this Orbax checkpoint" in refused(tmp_path, source)


def test_an_array_of_an_orbax_checkpoint_lies_in_it(tmp_path, checkpoints) -> None:
    source = shutil.copytree(checkpoints[False], tmp_path / "inner" / "saved")
    (source / "w").rename(tmp_path / "inner" / "outside")
    text = (source / "_METADATA").read_text()
    (source / "_METADATA").write_text(text.replace('"w"', '"../outside"').replace("('w',)", "('../outside',)"))
    shapes = {"../outside": jax.ShapeDtypeStruct((600, 600), jnp.float32)}
    with pytest.raises(ValueError, match=r"saved: cannot read the metadata|leads out of the checkpoint"):
        to_onnx(lambda x: x @ shapes["../outside"], [(2, 600)], weights=source)


def test_an_index_that_contradicts_its_files_is_refused(tmp_path) -> None:
    write_shards(tmp_path, GOOD, 2)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"w"', '"other"'))
    shapes = {"w": jax.ShapeDtypeStruct((4,), jnp.float32)}
    with pytest.raises(ValueError, match="where the index says it is"):
        to_onnx(lambda x: x * shapes["w"], [(4,)], weights=tmp_path)


# ---- j2o fill ----


def fill(*words: object) -> tuple[int, str, str]:
    code, output, errors = _core.tool_output(["j2o", "fill", *map(str, words), "--no-sync"])
    return code, output.decode(), errors.decode()


def later(folder, abstract):
    path = folder / "model.onnx"
    to_onnx(abstract, [(3, 4)], weights="later", return_mode="file", output_path=path)
    return path


def result_of(path) -> np.ndarray:
    return onnxruntime.InferenceSession(path).run(None, {"in_0": X})[0]


@pytest.mark.parametrize("kind", ["file", "folder", "index"])
def test_fill_gives_a_model_its_weights(tmp_path, model, abstract, arrays, kind) -> None:
    path = later(tmp_path, abstract)
    code, output, errors = fill(path, "--from", sources(tmp_path, arrays)[kind])
    assert code == 0, errors
    assert "6 weights" in output
    onnx.checker.check_model(path)
    np.testing.assert_allclose(result_of(path), np.asarray(model(X)), rtol=1e-4, atol=1e-5)


def test_fill_by_reference_copies_nothing(tmp_path, model, abstract, arrays) -> None:
    source = sources(tmp_path, arrays)["folder"]
    path = later(tmp_path, abstract)
    before = sorted(tmp_path.rglob("*"))
    code, _, errors = fill(path, "--from", source, "--by-reference")
    assert code == 0, errors
    assert sorted(tmp_path.rglob("*")) == before
    onnx.checker.check_model(path)
    np.testing.assert_allclose(result_of(path), np.asarray(model(X)), rtol=1e-4, atol=1e-5)


def test_fill_elsewhere_renames_and_leaves_the_model(tmp_path, model, abstract, arrays) -> None:
    renamed = {"model." + name.replace("kernel", "weight"): array for name, array in arrays.items()}
    write_safetensors(tmp_path / "w.safetensors", {**renamed, "extra": np.ones(2, np.float32)})
    path = later(tmp_path, abstract)
    before = path.read_bytes()
    rules = ["*.kernel=model.*.weight", "*.bias=model.*.bias"]
    rules += ["*.*.kernel=model.*.*.weight", "*.*.bias=model.*.*.bias"]
    options = [word for rule in rules for word in ("--rename", rule)]
    code, _, errors = fill(path, "--from", tmp_path / "w.safetensors", "-o", tmp_path / "full.onnx", *options)
    assert code == 1 and "surplus: 'extra'" in errors
    assert not (tmp_path / "full.onnx").exists()
    code, _, errors = fill(
        path, "--from", tmp_path / "w.safetensors", "-o", tmp_path / "full.onnx", "--allow-surplus", *options
    )
    assert code == 0, errors
    assert path.read_bytes() == before
    np.testing.assert_allclose(result_of(tmp_path / "full.onnx"), np.asarray(model(X)), rtol=1e-4, atol=1e-5)


def test_fill_lists_all_that_is_wrong_and_writes_nothing(tmp_path, abstract, arrays) -> None:
    wrong = {**arrays, "inner.kernel": arrays["inner.kernel"].T, "extra": arrays["inner.bias"]}
    del wrong["outer.0.bias"]
    write_safetensors(tmp_path / "w.safetensors", wrong)
    path = later(tmp_path, abstract)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    code, _, errors = fill(path, "--from", tmp_path / "w.safetensors")
    assert code == 1
    for part in (
        "missing: 'outer.0.bias', float32[8]",
        "mismatch: 'inner.kernel' is float32[8, 4]",
        "surplus: 'extra'",
    ):
        assert part in errors
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_filled_model_is_replaced_with_its_file(tmp_path, model, abstract, arrays) -> None:
    """What a fill wrote belongs to the model; what it refers to does not, and stays."""
    write_safetensors(tmp_path / "w.safetensors", arrays)
    path = later(tmp_path, abstract)
    assert fill(path, "--from", tmp_path / "w.safetensors")[0] == 0
    assert len(list(tmp_path.glob("model.onnx*"))) == 2
    later(tmp_path, abstract)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "w.safetensors"]
    assert fill(path, "--from", tmp_path / "w.safetensors", "--by-reference")[0] == 0
    to_onnx(model, [(3, 4)], return_mode="file", output_path=path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "w.safetensors"]


def test_fill_says_when_nothing_is_missing(tmp_path, model, arrays) -> None:
    write_safetensors(tmp_path / "w.safetensors", arrays)
    to_onnx(model, [(3, 4)], return_mode="file", output_path=tmp_path / "model.onnx")
    code, _, errors = fill(tmp_path / "model.onnx", "--from", tmp_path / "w.safetensors")
    assert code == 1 and "already has all its weights" in errors
