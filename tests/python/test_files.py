"""Files: whole or not at all, the same each time, large tensors beside them."""

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

import jax2onnx
from jax2onnx import to_onnx

X = np.array([0.5, -1.0, 2.0], np.float32)
WEIGHTS = {name: np.arange(size, dtype=np.float32) for name, size in (("small", 3), ("odd", 333), ("large", 1000))}


def weighted(x):
    return jnp.sin(x) * WEIGHTS["small"], WEIGHTS["odd"] * x[0], WEIGHTS["large"] * x[1]


def sine(x):
    return jnp.sin(x)


def with_weights(x):
    return jnp.sin(x) * WEIGHTS["large"]


def unsupported(x):
    return jax.pure_callback(lambda x: x, x, x)


def export(fn, path, inputs=((1000,),), **options):
    return to_onnx(fn, inputs, return_mode="file", output_path=path, **options)


def digest(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture
def threshold(monkeypatch):
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "1000")


def test_a_file_is_what_the_proto_is(tmp_path):
    assert export(sine, tmp_path / "m.onnx") == str(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == to_onnx(sine, [(1000,)]).SerializeToString()
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert export(sine, "m.onnx") == "m.onnx"
    onnx.checker.check_model("m.onnx")


def test_new_files_have_the_usual_permissions(tmp_path):
    export(sine, tmp_path / "m.onnx")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "m.onnx").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_failed_export_leaves_the_old_file(tmp_path):
    export(sine, tmp_path / "m.onnx")
    before = digest(tmp_path)
    with pytest.raises(jax2onnx.UnsupportedError):
        export(unsupported, tmp_path / "m.onnx", [(2, 2)])
    with pytest.raises(ZeroDivisionError):
        export(lambda x: 1 / 0, tmp_path / "m.onnx")
    assert digest(tmp_path) == before


def test_a_folder_that_is_not_there_is_made(tmp_path):
    export(sine, tmp_path / "nowhere" / "near" / "m.onnx")
    assert [path.name for path in (tmp_path / "nowhere" / "near").iterdir()] == ["m.onnx"]


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(OSError, match="folder"):
        export(sine, tmp_path / "folder" / "m.onnx")


def test_a_folder_in_place_of_the_file(tmp_path):
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(OSError, match=r"m\.onnx"):
        export(sine, tmp_path / "m.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_read_only_folder(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write everywhere")
    with pytest.raises(OSError, match="Permission denied"):
        export(sine, folder / "m.onnx")


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """RLIMIT_FSIZE makes the write fail half-way, as a full disk does."""
    script = f"""
        import resource, signal
        import numpy as np, jax.numpy as jnp
        from jax2onnx import to_onnx
        weights = np.ones(100_000, np.float32)
        def fn(x):
            return jnp.sin(x) * weights
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            to_onnx(fn, [(100_000,)], return_mode="file", output_path={str(tmp_path / "m.onnx")!r})
        except OSError as error:
            print(error)
        """
    done = run_script(script)
    assert "cannot write" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []


def run_script(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(jax2onnx.__file__)), **environment},
    )


# Tensors in a second file


def test_large_tensors_go_to_a_second_file(tmp_path, threshold):
    export(with_weights, tmp_path / "m.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx").stat().st_size < 1000
    model = onnx.load(tmp_path / "m.onnx")
    (tensor,) = model.graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), WEIGHTS["large"])
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    np.testing.assert_allclose(session.run(None, {"in_0": x})[0], np.sin(x) * WEIGHTS["large"], rtol=1e-5)


def external_entries(path):
    model = onnx.load(path, load_external_data=False)
    tensors = [tensor for tensor in model.graph.initializer if tensor.external_data]
    return {tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in tensors}


def test_external_tensors_are_aligned_and_small_ones_stay(tmp_path, threshold):
    export(weighted, tmp_path / "m.onnx", [(3,)])
    entries = external_entries(tmp_path / "m.onnx")
    assert set(entries) == {"odd", "large"}
    assert {entry["location"] for entry in entries.values()} == {"m.onnx.data"}
    for entry in entries.values():
        assert int(entry["offset"]) % 64 == 0
    content = (tmp_path / "m.onnx.data").read_bytes()
    for name, entry in entries.items():
        start = int(entry["offset"])
        assert content[start : start + int(entry["length"])] == WEIGHTS[name].tobytes()
    assert len(content) == max(int(entry["offset"]) + int(entry["length"]) for entry in entries.values())


def test_exporting_twice_gives_the_same_files(tmp_path, threshold):
    export(with_weights, tmp_path / "m.onnx")
    first = digest(tmp_path)
    export(with_weights, tmp_path / "m.onnx")
    assert digest(tmp_path) == first


def test_the_second_file_shrinks_with_the_model(tmp_path, threshold):
    export(weighted, tmp_path / "m.onnx", [(3,)])
    export(with_weights, tmp_path / "m.onnx")
    (entry,) = external_entries(tmp_path / "m.onnx").values()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["m.onnx", entry["location"]])
    assert (tmp_path / entry["location"]).stat().st_size == WEIGHTS["large"].nbytes


def test_one_array_used_twice_is_stored_once(tmp_path, threshold):
    weights = np.arange(1000, dtype=np.float32)
    export(lambda x: jnp.sin(x * weights) * weights, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").stat().st_size == weights.nbytes


def test_web_mode_keeps_one_file(tmp_path, threshold):
    export(with_weights, tmp_path / "m.onnx", export_mode="web")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert not external_entries(tmp_path / "m.onnx")


@pytest.mark.parametrize("value", ["many", "-1", "1.5"])
def test_a_threshold_that_is_no_number(tmp_path, monkeypatch, value):
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", value)
    with pytest.raises(ValueError, match="JAX2ONNX_EXTERNAL_DATA_THRESHOLD must be a number of bytes"):
        export(sine, tmp_path / "m.onnx")


def test_what_must_be_in_one_piece_and_cannot(tmp_path):
    weights = np.zeros((600, 1 << 20), np.float32)  # 2.3 GiB that nobody ever touches

    def fn(x):
        return weights * x

    with pytest.raises(ValueError, match=r'more than the 2 GiB that ONNX allows; with return_mode="file"'):
        to_onnx(fn, [()])
    with pytest.raises(ValueError, match=r'more than the 2 GiB that ONNX allows; with export_mode="standard" its'):
        export(fn, tmp_path / "m.onnx", [()], export_mode="web")
    assert list(tmp_path.iterdir()) == []


KILLED = """
    import sys
    import numpy as np, jax.numpy as jnp
    from jax2onnx import to_onnx
    weights = np.ones(64 << 20, np.float32)
    def fn(x):
        return jnp.sin(x) * weights
    print("ready", flush=True)
    while True:
        to_onnx(fn, [weights.shape], return_mode="file", output_path=sys.argv[1])
"""


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3])
def test_a_killed_export_leaves_the_previous_file_readable(tmp_path, delay):
    path = tmp_path / "m.onnx"
    export(sine, path)
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(jax2onnx.__file__))}
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    onnx.checker.check_model(onnx.load(path))


@pytest.mark.skipif(not os.environ.get("JAX2ONNX_LARGE_TESTS"), reason="writes 3 GB; set JAX2ONNX_LARGE_TESTS=1")
def test_more_than_two_gibibytes(tmp_path):
    weights = [np.full((1 << 29,), index, np.float32) for index in range(1, 3)]

    def fn(x):
        return x * weights[0][:4] * 1.0, weights[0] * x, weights[1] * x

    path = tmp_path / "m.onnx"
    first = None
    for _ in range(2):
        export(fn, path, [()])
        sizes = {entry.name: entry.stat().st_size for entry in tmp_path.iterdir()}
        assert sizes["m.onnx.data"] >= 4 << 30
        assert sizes["m.onnx"] < 1 << 20
        content = path.read_bytes()
        assert first in (None, content)
        first = content
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    results = session.run(None, {"in_0": np.array(3.0, np.float32)})
    assert results[2][-1] == 6.0


@pytest.mark.parametrize("bytes_beside", ["0", "4096"])
def test_weights_that_are_moved_while_they_are_written(tmp_path, monkeypatch, bytes_beside):
    """A kernel of several pieces, transposed and scaled: in one file, beside it, and in memory."""
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", bytes_beside)
    generator = np.random.default_rng(0)
    kernel = (generator.standard_normal((3, 3, 96, 1100)) / 30).astype(np.float32)
    scale = generator.standard_normal(1100).astype(np.float32)

    def convolve(x):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers) * scale

    x = generator.standard_normal((1, 4, 5, 96)).astype(np.float32)
    path = to_onnx(convolve, [x], return_mode="file", output_path=str(tmp_path / "m.onnx"))
    assert bool(external_entries(path)) == (bytes_beside != "0")
    model = onnx.load(path)
    weight = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 4)
    expected = (kernel.transpose(3, 2, 0, 1).astype(np.float64) * scale[:, None, None, None]).astype(np.float32)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), expected)
    in_memory = to_onnx(convolve, [x])
    kept = next(tensor for tensor in in_memory.graph.initializer if len(tensor.dims) == 4)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(kept), expected)
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(found, convolve(x), rtol=1e-4, atol=1e-4)
