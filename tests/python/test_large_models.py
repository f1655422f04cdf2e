"""Weights by reference, files of tensors, and arrays that are not in the host's memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors_files import write_safetensors, write_shards

from jax2onnx import _core, to_onnx
from jax2onnx._door import weights as door

RNG = np.random.default_rng(0)
ARRAYS = {
    "conv": RNG.normal(size=(3, 3, 2, 4)).astype(np.float32),
    "w": RNG.normal(size=(4, 600)).astype(np.float32),
    "big": RNG.normal(size=(600, 600)).astype(np.float32),
}
SHAPES = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in ARRAYS.items()}
X = RNG.normal(size=(1, 8, 8, 2)).astype(np.float32)


def apply(weights, x):
    numbers = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, weights["conv"], (1, 1), "SAME", dimension_numbers=numbers)
    return x.mean((1, 2)) @ weights["w"] @ weights["big"]


def abstract(x):
    return apply(SHAPES, x)


def exported(path, **options):
    to_onnx(abstract, [X.shape], return_mode="file", output_path=path, **options)
    return onnx.load(path, load_external_data=False)


def locations(model) -> dict[str, str]:
    return {
        tensor.name: next(entry.value for entry in tensor.external_data if entry.key == "location")
        for tensor in model.graph.initializer
        if tensor.external_data
    }


def check_result(path) -> None:
    result = onnxruntime.InferenceSession(path).run(None, {"in_0": X})[0]
    np.testing.assert_allclose(result, np.asarray(apply(ARRAYS, X)), rtol=1e-3, atol=1e-3)


# ---- by reference ----


def test_by_reference_reads_and_writes_no_weight(tmp_path, monkeypatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a weight is read")

    monkeypatch.setattr(door._Safetensors, "_mapped", never)
    (tmp_path / "weights").mkdir()
    write_shards(tmp_path / "weights", ARRAYS, 2)
    model = exported(tmp_path / "model.onnx", weights=tmp_path / "weights", weights_by_reference=True)
    assert set(locations(model)) == set(ARRAYS)
    assert all(place.startswith("weights/model-0000") for place in locations(model).values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "weights"]
    onnx.checker.check_model(tmp_path / "model.onnx")
    check_result(tmp_path / "model.onnx")


def test_what_passes_touch_is_written_and_the_rest_stays_where_it_is(tmp_path) -> None:
    write_safetensors(tmp_path / "w.safetensors", ARRAYS)
    options = {"weights": tmp_path / "w.safetensors", "weights_by_reference": True, "touch_referenced_weights": True}
    model = exported(tmp_path / "model.onnx", **options)
    assert {name: place for name, place in locations(model).items() if place == "w.safetensors"}.keys() >= {"w", "big"}
    turned = [tensor for tensor in model.graph.initializer if tensor.name.startswith("conv")]
    assert [list(tensor.dims) for tensor in turned] == [[4, 2, 3, 3]]
    assert not turned[0].external_data
    check_result(tmp_path / "model.onnx")


def test_a_model_beside_other_weights_is_refused(tmp_path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_safetensors(tmp_path / "w.safetensors", ARRAYS)
    options = {"weights": tmp_path / "w.safetensors", "weights_by_reference": True}
    with pytest.raises(ValueError, match="write the model next to the weights"):
        exported(tmp_path / "elsewhere" / "model.onnx", **options)
    with pytest.raises(ValueError, match="needs safetensors"):
        exported(tmp_path / "model.onnx", weights=ARRAYS, weights_by_reference=True)
    assert not list(tmp_path.rglob("*.onnx"))


def test_the_tool_knows_models_that_refer(tmp_path) -> None:
    write_safetensors(tmp_path / "w.safetensors", ARRAYS)
    path = tmp_path / "model.onnx"
    exported(path, weights=tmp_path / "w.safetensors", weights_by_reference=True, stacktrace_metadata="full")
    other = {**ARRAYS, "big": ARRAYS["big"] + 1}
    write_safetensors(tmp_path / "other.safetensors", other)
    exported(tmp_path / "other.onnx", weights=tmp_path / "other.safetensors", weights_by_reference=True)

    def j2o(*words: object) -> tuple[int, str]:
        code, output, errors = _core.tool_output(["j2o", *map(str, words)])
        return code, (output + errors).decode()

    code, text = j2o("stats", path)
    assert code == 0 and "other files" in text
    code, text = j2o("diff", path, tmp_path / "other.onnx", "--weights")
    assert code == 1 and "big" in text
    code, text = j2o("diff", path, path, "--weights")
    assert code == 0, text
    code, text = j2o("strip", path, "-o", path)
    assert code == 0, text
    plain = tmp_path / "plain.onnx"
    exported(plain, weights=tmp_path / "w.safetensors", weights_by_reference=True)
    assert path.read_bytes() == plain.read_bytes()
    check_result(path)


def test_an_export_over_a_model_that_refers_leaves_the_weights(tmp_path) -> None:
    write_safetensors(tmp_path / "model.onnx.safetensors", ARRAYS)
    options = {"weights": tmp_path / "model.onnx.safetensors", "weights_by_reference": True}
    exported(tmp_path / "model.onnx", **options)
    exported(tmp_path / "model.onnx", weights=ARRAYS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.onnx.safetensors"]


# ---- files of tensors ----


def test_shards_hold_no_more_than_they_may(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "256")
    model = exported(tmp_path / "model.onnx", weights=ARRAYS, max_shard_size="12KB")
    files = sorted(path.name for path in tmp_path.glob("*.data"))
    assert files == [f"model.onnx.0000{number}-of-00003.data" for number in (1, 2, 3)]
    assert set(locations(model).values()) == set(files)
    check_result(tmp_path / "model.onnx")
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "0")
    exported(tmp_path / "model.onnx", weights=ARRAYS)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"], "the files go with the model"


@pytest.mark.parametrize("size", ["5 elephants", "", 0, -1, True, 1.5])
def test_a_size_that_is_none_is_refused(size) -> None:
    with pytest.raises(ValueError, match="max_shard_size must be"):
        to_onnx(lambda x: x, [(2,)], max_shard_size=size)


def test_large_tensors_are_aligned_for_mapping(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "256")
    for alignment, expected in ((None, 4096), (65536, 65536)):
        model = exported(tmp_path / "model.onnx", weights=ARRAYS, data_alignment=alignment)
        big = next(tensor for tensor in model.graph.initializer if tensor.name == "big")
        offset = int(next(entry.value for entry in big.external_data if entry.key == "offset"))
        assert offset and offset % expected == 0
        check_result(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="power of two"):
        exported(tmp_path / "model.onnx", weights=ARRAYS, data_alignment=1000)


class Cancelled(Exception):
    pass


def slow(array):
    """A source that takes its time, so that there is something to tell."""
    import time

    def get(key: str):
        time.sleep(0.06)
        return array[key]

    return get


def test_progress_is_told_and_a_cancelled_export_leaves_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "256")
    told: list[tuple[int, int]] = []
    total = sum(array.nbytes for array in ARRAYS.values())
    arrays = {name: jnp.asarray(array) for name, array in ARRAYS.items()}
    exported(tmp_path / "model.onnx", weights=slow(arrays), progress=lambda *numbers: told.append(numbers))
    assert told and told[-1] == (total, total) and all(0 <= done <= total for done, _ in told)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def cancel(done: int, all_of_it: int) -> None:
        raise Cancelled

    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "257")
    with pytest.raises(Cancelled):
        changed = {name: array + 1 for name, array in arrays.items()}
        exported(tmp_path / "model.onnx", weights=slow(changed), progress=cancel)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_source_that_fails_while_it_is_written_leaves_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "256")
    asked: list[str] = []

    def failing(key: str):
        asked.append(key)
        if asked.count(key) > 1:
            raise OSError("the disk is gone")
        return ARRAYS[key]

    with pytest.raises(OSError, match="the disk is gone"):
        exported(tmp_path / "model.onnx", weights=failing)
    assert not list(tmp_path.iterdir())


# ---- scans over stacked weights ----

STACKED = {
    "kernel": (0.2 * RNG.normal(size=(5, 16, 16))).astype(np.float32),
    "bias": RNG.normal(size=(5, 16)).astype(np.float32),
}


def scanned(weights, reverse):
    def model(x, extra):
        def step(carry, layer):
            weight, more = layer
            carry = jnp.tanh(carry @ weight["kernel"] + weight["bias"]) + more
            return carry, carry.sum()

        return jax.lax.scan(step, x, (weights, extra), reverse=reverse)

    return model


@pytest.mark.parametrize("source", ["memory", "reference", "touched", "mapping", "device", "later"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_over_stacked_weights_is_unrolled_where_asked_for(tmp_path, reverse, source) -> None:
    x = RNG.normal(size=(2, 16)).astype(np.float32)
    extra = RNG.normal(size=5).astype(np.float32)
    write_safetensors(tmp_path / "w.safetensors", STACKED)
    stand_ins = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in STACKED.items()}
    options = {
        "memory": {},
        "reference": {"weights": tmp_path / "w.safetensors", "weights_by_reference": True},
        "touched": {
            "weights": tmp_path / "w.safetensors",
            "weights_by_reference": True,
            "touch_referenced_weights": True,
        },
        "mapping": {"weights": STACKED},
        "device": {"weights": lambda key: jnp.asarray(STACKED[key])},
        "later": {"weights": "later"},
    }[source]
    model = scanned(STACKED if source == "memory" else stand_ins, reverse)
    path = tmp_path / "model.onnx"
    to_onnx(model, [x.shape, extra.shape], return_mode="file", output_path=path, unroll_scans=True, **options)
    got = onnx.load(path, load_external_data=False)
    assert not [node for node in got.graph.node if node.op_type in ("Scan", "Loop")]
    names = {tensor.name for tensor in got.graph.initializer}
    if source == "later":
        assert set(STACKED) <= names
        code, _, errors = _core.tool_output(["j2o", "fill", str(path), "--from", str(tmp_path / "w.safetensors")])
        assert code == 0, errors
    else:
        parts = {f"{name}.{index}" for name in STACKED for index in range(5)}
        assert parts <= names and not names & set(STACKED)
    if source == "reference":
        assert {place for name, place in locations(got).items() if name in parts} == {"w.safetensors"}
        assert set(locations(got)) == parts
    onnx.checker.check_model(path)
    expected = scanned(STACKED, reverse)(x, extra)
    results = onnxruntime.InferenceSession(path).run(None, {"in_0": x, "in_1": extra})
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_scans_over_what_the_model_computes_stay(tmp_path) -> None:
    def cumulative(x):
        return jax.lax.scan(lambda carry, row: (carry * 0.5 + row, carry.sum()), x[0], x)

    got = to_onnx(cumulative, [(7, 3)], unroll_scans=True)
    assert [node.op_type for node in got.graph.node if node.op_type == "Scan"] == ["Scan"]
    kept = to_onnx(scanned(STACKED, False), [(2, 16), (5,)])
    assert [node.op_type for node in kept.graph.node] == ["Scan"]


# ---- other devices ----

ON_DEVICES = """
    import numpy as np, jax, jax.numpy as jnp, onnx, pathlib, sys
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from jax2onnx import to_onnx
    from jax2onnx._door import fetching
    fetching.PIECE = 1 << 19
    folder = pathlib.Path(sys.argv[1])
    numbers = np.random.default_rng(0).normal(size=(512, 1024)).astype(np.float32)
    x = [(2, 512)]
    array = jnp.asarray(numbers)
    expected = to_onnx(lambda x: x @ array, x).SerializeToString()
    turned = to_onnx(lambda x: x @ array.T, [(2, 1024)]).SerializeToString()
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    places = [jax.devices()[1]] + [NamedSharding(mesh, spec) for spec in (P("a"), P(None, "b"), P("a", "b"), P())]
    where_it_lies = fetching._is_in_host_memory
    for place, in_host in [(place, in_host) for place in places for in_host in (True, False)]:
        fetching._is_in_host_memory = where_it_lies if in_host else lambda shard: False  # as on an accelerator
        array = jax.device_put(numbers, place)
        assert to_onnx(lambda x: x @ array, x).SerializeToString() == expected, place
        assert to_onnx(lambda x: x @ array.T, [(2, 1024)]).SerializeToString() == turned, place
    fetching._Devices.whole = None  # a weight that stays as it is goes piece by piece
    for place in places:
        array = jax.device_put(numbers, place)
        to_onnx(lambda x: x @ array, x, return_mode="file", output_path=folder / "model.onnx")
        assert (folder / "model.onnx").read_bytes() == expected, place
        assert array._npy_value is None, "JAX keeps no copy in the host's memory"
    print("good")
"""


PEAK = """
    import os, pathlib, sys
    import numpy as np, jax, jax.numpy as jnp
    from jax2onnx import to_onnx
    from jax2onnx._door import fetching
    device, copies = sys.argv[2], sys.argv[3] == "copies"
    fetching.PIECE = 8 << 20
    if copies:
        fetching._is_in_host_memory = lambda shard: False
    path = pathlib.Path(sys.argv[1]) / "model.onnx"
    def peak_of(sizes):
        place = jax.devices()[int(device)]
        weights = [jax.device_put(np.full((size << 8, 1024), 1.5, np.float32), place) for size in sizes]
        jax.block_until_ready(weights)
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")
        to_onnx(lambda row: sum(jnp.take(weight, row, axis=0) for weight in weights),
                [jax.ShapeDtypeStruct((1,), jnp.int32)], return_mode="file", output_path=path)
        assert path.stat().st_size >= sum(sizes) << 20
        assert all(weight._npy_value is None for weight in weights) or device == "0"
        return memory("VmHWM") - before
    def memory(field):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024
    peak_of([16])
    print(peak_of([64, 96, 32]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
@pytest.mark.parametrize(
    "device, how, most",
    [
        (0, "in place", 64),  # MiB beyond the weights; with any copy of them it would be 96 at least
        (1, "in place", 16),  # twice the largest piece
        (1, "copies", 32),  # as on an accelerator, whose slices of two pieces lie in the same memory here
    ],
)
def test_peak_memory_of_an_export_beyond_its_weights(tmp_path, device, how, most) -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(PEAK), str(tmp_path), str(device), how]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) <= most


def test_arrays_of_other_devices_and_of_several(tmp_path) -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(ON_DEVICES), str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stdout == "good\n", run.stderr
