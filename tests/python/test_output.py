"""What an output leaves of what was there: modes, links, devices, other people's files, left-overs of the dead."""

import errno
import os
import pathlib
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

import jax2onnx
from jax2onnx import _core, to_onnx

ROOT = pathlib.Path(jax2onnx.__file__).parent.parent
SIZE = 1000


def weighted_by(number):
    """A model whose weights are all the same number, and whose bytes differ in the graph as well: its name tells it."""
    weights = np.full(SIZE, number, np.float32)

    def fn(x):
        return x * weights

    return fn


def export(number, path, two_files=False, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "1000" if two_files else "0")
        name = f"model_{number}"
        return to_onnx(weighted_by(number), [(SIZE,)], model_name=name, return_mode="file", output_path=path, **options)


def number_of(path):
    """The one number that the model at this path multiplies by, seen to be the one that its name says."""
    model = onnx.load(path)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"in_0": np.ones(SIZE, np.float32)})
    (number,) = set(result.tolist())
    assert model.graph.name == f"model_{int(number)}"
    return int(number)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def data_name(path):
    model = onnx.load(path, load_external_data=False)
    return {
        entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"
    }


# What was there


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755])
@pytest.mark.parametrize("two_files", [False, True])
def test_the_mode_is_kept(tmp_path, mode, two_files):
    export(1, tmp_path / "m.onnx", two_files)
    (tmp_path / "m.onnx").chmod(mode)
    export(2, tmp_path / "m.onnx", two_files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {mode}
    assert number_of(tmp_path / "m.onnx") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_is_kept(tmp_path):
    export(1, tmp_path / "m.onnx")
    os.chown(tmp_path / "m.onnx", 1234, 2345)
    export(2, tmp_path / "m.onnx")
    status = (tmp_path / "m.onnx").stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)


@pytest.mark.parametrize("two_files", [False, True])
def test_a_read_only_file_is_refused(tmp_path, two_files):
    export(1, tmp_path / "m.onnx")
    (tmp_path / "m.onnx").chmod(0o444)
    with pytest.raises(OSError, match=r"read-only file '.*m\.onnx': Permission denied"):
        export(2, tmp_path / "m.onnx", two_files)
    assert names(tmp_path) == ["m.onnx"] and number_of(tmp_path / "m.onnx") == 1


@pytest.mark.parametrize("link", ["other.onnx", "sub/other.onnx", "ABSOLUTE/other.onnx", "second"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_link_stays_and_what_it_names_is_replaced(tmp_path, link, exists):
    (tmp_path / "sub").mkdir()
    (tmp_path / "second").symlink_to("sub/other.onnx")
    (tmp_path / "m.onnx").symlink_to(link.replace("ABSOLUTE", str(tmp_path)))
    if exists:
        export(1, tmp_path / "m.onnx")
    export(2, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").is_symlink() and (tmp_path / "second").is_symlink()
    assert not (tmp_path / "m.onnx").resolve().is_symlink()
    assert number_of(tmp_path / "m.onnx") == 2
    assert not [path for path in tmp_path.rglob(".*")]


def test_two_files_beside_a_link_within_the_folder(tmp_path):
    (tmp_path / "latest.onnx").symlink_to("v3.onnx")
    export(3, tmp_path / "latest.onnx", two_files=True)
    assert names(tmp_path) == ["latest.onnx", "v3.onnx", "v3.onnx.data"]
    assert number_of(tmp_path / "latest.onnx") == number_of(tmp_path / "v3.onnx") == 3


def test_two_files_through_a_link_into_another_folder_are_refused(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "m.onnx").symlink_to("sub/m.onnx")
    with pytest.raises(ValueError, match="a link into another folder, and this model needs a second file"):
        export(1, tmp_path / "m.onnx", two_files=True)
    assert names(tmp_path) == ["m.onnx", "sub"] and names(tmp_path / "sub") == []


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        export(1, tmp_path / "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of somebody else's")
def test_a_link_planted_in_a_shared_folder_is_not_followed(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (tmp_path / "private").write_text("mine")
    (shared / "m.onnx").symlink_to(tmp_path / "private")
    os.lchown(shared / "m.onnx", 1234, 1234)
    with pytest.raises(OSError, match="cannot follow the link"):
        export(1, shared / "m.onnx")
    assert (tmp_path / "private").read_text() == "mine"


@pytest.mark.parametrize("two_files", [False, True])
def test_a_device_is_written_to(tmp_path, two_files):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_text("")
    except PermissionError:
        device = pathlib.Path(os.devnull)
    export(1, device, two_files)
    assert stat.S_ISCHR(device.stat().st_mode)
    assert names(tmp_path) in (["null"], [])


def test_a_full_device_is_an_error():
    with pytest.raises(OSError, match="No space left"):
        export(1, "/dev/full")


@pytest.mark.parametrize("two_files", [False, True])
def test_a_pipe_is_written_to(tmp_path, two_files):
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    export(1, tmp_path / "pipe", two_files)
    reader.join()
    assert onnx.ModelProto.FromString(received[0]).graph.name == "model_1"
    assert names(tmp_path) == ["pipe"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_an_open_descriptor_is_written_to(tmp_path):
    with open(tmp_path / "gone", "w+b") as stream:
        os.unlink(tmp_path / "gone")
        export(1, f"/dev/fd/{stream.fileno()}")
        stream.seek(0)
        assert onnx.ModelProto.FromString(stream.read()).graph.name == "model_1"
    assert names(tmp_path) == []


@pytest.mark.parametrize("command", ["strip", "compact", "expand", "report"])
def test_commands_write_as_exports_do(tmp_path, command):
    export(1, tmp_path / "m.onnx")
    (tmp_path / "private").write_text("")
    (tmp_path / "private").chmod(0o600)
    (tmp_path / "link").symlink_to("private")
    (tmp_path / "locked").write_text("old")
    (tmp_path / "locked").chmod(0o400)
    for number in range(2):
        assert _core.tool_output(["j2o", command, "-o", str(tmp_path / "link"), str(tmp_path / "m.onnx")])[0] == 0, (
            number
        )
    code, _, error = _core.tool_output(["j2o", command, "-o", str(tmp_path / "locked"), str(tmp_path / "m.onnx")])
    assert code == 1 and b"read-only" in error and (tmp_path / "locked").read_text() == "old"
    assert (tmp_path / "link").is_symlink() and stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    assert (tmp_path / "private").stat().st_size > 0
    assert names(tmp_path) == ["link", "locked", "m.onnx", "private"]


def test_records_and_dumps_are_written_the_same_way(tmp_path, monkeypatch):
    (tmp_path / "other").write_text("")
    (tmp_path / "record.txt").symlink_to("other")
    monkeypatch.setenv("JAX2ONNX_DUMP_PASSES", str(tmp_path / "passes"))
    to_onnx(jnp.sin, [(3,)], record_primitive_calls_file=tmp_path / "record.txt")
    assert (tmp_path / "record.txt").is_symlink() and "sin" in (tmp_path / "other").read_text()
    assert "Sin" in (tmp_path / "passes" / "00_lowered.onnx.txt").read_text()
    assert not list(tmp_path.rglob(".*"))


# The second file


def test_an_unrelated_file_of_that_name_stays(tmp_path):
    (tmp_path / "m.onnx.data").write_text("somebody else's")
    for number in (1, 2, 3):
        export(number, tmp_path / "m.onnx", two_files=True)
        assert number_of(tmp_path / "m.onnx") == number
    assert (tmp_path / "m.onnx.data").read_text() == "somebody else's"
    assert len(names(tmp_path)) == 3


def test_the_old_second_file_goes(tmp_path):
    for number in (1, 2, 3):
        export(number, tmp_path / "m.onnx", two_files=True)
        assert names(tmp_path) == sorted({"m.onnx", *data_name(tmp_path / "m.onnx")})
        assert number_of(tmp_path / "m.onnx") == number
    export(4, tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx"]


def test_a_second_file_that_the_old_model_only_seems_to_own_stays(tmp_path):
    export(1, tmp_path / "m.onnx", two_files=True)
    (tmp_path / "m.onnx.data").write_bytes(b"longer than what the model says" * SIZE)
    export(2, tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]


def test_the_data_of_another_producers_model_stay(tmp_path):
    export(1, tmp_path / "m.onnx", two_files=True)
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    model.producer_name = "another"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    export(2, tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]


def test_a_model_that_names_files_elsewhere_does_not_lose_them(tmp_path):
    (tmp_path / "sub").mkdir()
    export(1, tmp_path / "sub" / "m.onnx", two_files=True)
    (tmp_path / "victim").write_bytes((tmp_path / "sub" / "m.onnx.data").read_bytes())
    model = onnx.load(tmp_path / "sub" / "m.onnx", load_external_data=False)
    for location in ("../victim", str(tmp_path / "victim"), "m.onnx.x/../../victim"):
        for entry in model.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = location
        (tmp_path / "sub" / "m.onnx").write_bytes(model.SerializeToString())
        export(2, tmp_path / "sub" / "m.onnx")
        assert (tmp_path / "victim").exists()


def test_weights_that_did_not_change_are_not_written_again(tmp_path):
    export(1, tmp_path / "m.onnx", two_files=True)
    before = (tmp_path / "m.onnx.data").stat()
    export(1, tmp_path / "m.onnx", two_files=True)
    after = (tmp_path / "m.onnx.data").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"] and number_of(tmp_path / "m.onnx") == 1


@pytest.mark.parametrize("place", [0, 1, SIZE // 2, SIZE - 1])
def test_weights_that_changed_anywhere_are_written(tmp_path, monkeypatch, place):
    monkeypatch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "1000")
    for number in (1, 2):
        weights = np.ones(SIZE, np.float32)
        weights[place] = number
        to_onnx(lambda x, w=weights: x * w, [(SIZE,)], return_mode="file", output_path=tmp_path / "m.onnx")
        stored = onnx.numpy_helper.to_array(onnx.load(tmp_path / "m.onnx").graph.initializer[0])
        np.testing.assert_array_equal(stored, weights)
    assert len(names(tmp_path)) == 2


def test_who_has_the_old_pair_open_keeps_it(tmp_path):
    export(1, tmp_path / "m.onnx", two_files=True)
    with open(tmp_path / "m.onnx.data", "rb") as stream:
        export(2, tmp_path / "m.onnx", two_files=True)
        assert np.frombuffer(stream.read(), np.float32).tolist() == [1.0] * SIZE


@pytest.mark.parametrize("way", ["config", "environment"])
def test_the_fixed_name(tmp_path, monkeypatch, way):
    if way == "config":
        monkeypatch.setattr(jax2onnx.config, "fixed_data_name", True)
    else:
        monkeypatch.setenv("JAX2ONNX_FIXED_DATA_NAME", "1")
    for number in (1, 2, 3):
        export(number, tmp_path / "m.onnx", two_files=True)
        assert names(tmp_path) == ["m.onnx", "m.onnx.data"] and number_of(tmp_path / "m.onnx") == number


def test_settings_that_are_no_bool():
    with pytest.raises(TypeError, match="sync must be None or a bool"):
        jax2onnx.config.sync = "no"
    with pytest.raises(TypeError, match="fixed_data_name must be None or a bool"):
        jax2onnx.config.fixed_data_name = 1


# Names


@pytest.mark.parametrize("two_files", [False, True])
def test_a_path_that_is_no_utf8(tmp_path, two_files):
    path = os.fsencode(tmp_path) + b"/m\xff.onnx"
    assert export(1, os.fsdecode(path), two_files) == os.fsdecode(path)
    assert os.path.exists(path)
    code, output, _ = _core.tool_output(["j2o", "inspect", os.fsdecode(path)])
    assert code == 0 and b"m\\xff.onnx" in output
    model = onnx.ModelProto.FromString(pathlib.Path(os.fsdecode(path)).read_bytes())
    if two_files:
        assert sorted(os.listdir(os.fsencode(tmp_path))) == [b"m_.onnx.data", b"m\xff.onnx"]
        onnx.load_external_data_for_model(model, str(tmp_path))


def test_an_error_that_names_such_a_path(tmp_path):
    path = os.fsencode(tmp_path) + b"/n\xff.onnx"
    os.mkdir(path)
    with pytest.raises(OSError, match=r"cannot write '.*\.onnx': Is a directory"):
        export(1, os.fsdecode(path))


def test_a_long_name(tmp_path):
    for name in ("n" * 250 + ".onnx", "ä" * 122 + ".onnx"):
        export(1, tmp_path / name)
        export(2, tmp_path / name)
        assert number_of(tmp_path / name) == 2
        (tmp_path / name).unlink()
    assert names(tmp_path) == []


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b"])
def test_names_that_no_model_can_have_are_refused(tmp_path, bad):
    for options in ({"input_names": [bad]}, {"output_names": [bad]}, {"model_name": bad}):
        with pytest.raises(ValueError, match="contains a character that is not allowed in names"):
            to_onnx(jnp.sin, [(3,)], **options)
    with pytest.raises(ValueError, match="contains a character that is not allowed"):
        to_onnx(lambda x, **rest: x + rest[bad], [(3,)], {bad: (3,)})


@pytest.mark.parametrize("argument", ["output_path", "record_primitive_calls_file"])
@pytest.mark.parametrize("path", ["", "a\0b"])
def test_paths_that_cannot_be(argument, path):
    options = {"return_mode": "file", "output_path": "m.onnx"} if argument != "output_path" else {"return_mode": "file"}
    with pytest.raises(ValueError, match=f"{argument} must be the path of a file"):
        to_onnx(jnp.sin, [(3,)], **{**options, argument: path})


def test_names_of_parameters_with_a_nul_stay_two():
    parameters = {"a\0b": np.full(3, 2, np.float32), "a\0c": np.full(3, 3, np.float32)}

    class Model:
        def __init__(self):
            self.parameters = parameters

        def __call__(self, x):
            return x * self.parameters["a\0b"] + self.parameters["a\0c"]

    model = to_onnx(Model(), [(3,)])
    onnx.checker.check_model(model)
    assert len({tensor.name for tensor in model.graph.initializer}) == 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"in_0": np.ones(3, np.float32)})[0], [5, 5, 5])


# Left-overs


@pytest.mark.parametrize("two_files", [False, True])
def test_left_overs_of_the_dead_are_removed_and_nothing_else(tmp_path, two_files):
    dead = ".m.onnx.0123456789abcdef.tmp"
    others = [
        ".m.onnx.tmp",
        ".m.onnx.0123.tmp",
        ".n.onnx.0123456789abcdef.tmp",
        "m.onnx.0123456789abcdef.tmp",
        ".m.onnx",
    ]
    for name in (dead, *others):
        (tmp_path / name).write_text("left")
    (tmp_path / ".m.onnx.ffffffffffffffff.tmp").symlink_to("elsewhere")
    export(1, tmp_path / "m.onnx", two_files)
    kept = sorted([*others, ".m.onnx.ffffffffffffffff.tmp", "m.onnx", *data_name(tmp_path / "m.onnx")])
    assert names(tmp_path) == kept


def test_the_temporary_file_of_a_living_export_stays(tmp_path):
    import fcntl

    living = tmp_path / ".m.onnx.0123456789abcdef.tmp"
    with open(living, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        export(1, tmp_path / "m.onnx")
        assert living.exists()
    export(2, tmp_path / "m.onnx")
    assert not living.exists()


def test_a_lock_that_a_dead_export_left_is_taken(tmp_path):
    (tmp_path / ".m.onnx.lock").write_text("")
    export(1, tmp_path / "m.onnx", two_files=True)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]


def test_a_planted_lock_that_is_a_link(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / ".m.onnx.lock").symlink_to("victim")
    export(1, tmp_path / "m.onnx", two_files=True)
    assert (tmp_path / "victim").read_text() == "mine" and number_of(tmp_path / "m.onnx") == 1


def test_a_failed_export_leaves_nothing(tmp_path):
    export(1, tmp_path / "m.onnx", two_files=True)
    with pytest.raises(OSError):
        export(2, tmp_path / "m.onnx" / "n.onnx", two_files=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=os.strerror(errno.EISDIR)):
        export(2, tmp_path / "folder", two_files=True)
    with pytest.raises(OSError, match=os.strerror(errno.EISDIR)):
        export(2, f"{tmp_path}/new/", two_files=True)
    assert number_of(tmp_path / "m.onnx") == 1
    assert names(tmp_path) == ["folder", "m.onnx", "m.onnx.data"]


# Several at once


def run_script(script, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'python'}", **environment},
    )


EXPORTS = int(os.environ.get("JAX2ONNX_EXPORTS_AT_ONCE", "12"))


def watch(path, done):
    """What a reader sees meanwhile: the numbers of all models, each found to be whole."""
    seen = set()
    while not done():
        try:
            seen.add(number_of(path))
        except Exception as error:  # between the opening of the two files of a model, the second may go
            if not missing_data(error):
                raise
    return seen


def missing_data(error):
    text = str(error)
    return "data" in text and (
        "No such file" in text
        or "not accessible" in text
        or "doesn't exist" in text
        or "not regular file" in text
        or "kernel rejected path" in text
    )


@pytest.mark.parametrize("two_files", [False, True])
def test_threads_that_export_to_one_path(tmp_path, two_files):
    path = tmp_path / "m.onnx"
    export(0, path, two_files)
    errors = []

    def work(first):
        try:
            for number in range(first, first + EXPORTS):
                weights = weighted_by(number)
                to_onnx(weights, [(SIZE,)], model_name=f"model_{number}", return_mode="file", output_path=path)
        except Exception as error:
            errors.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX2ONNX_EXTERNAL_DATA_THRESHOLD", "1000" if two_files else "0")
        threads = [threading.Thread(target=work, args=(1000 * (index + 1),)) for index in range(8)]
        for thread in threads:
            thread.start()
        watch(path, lambda: not any(thread.is_alive() for thread in threads))
    assert errors == []
    assert number_of(path) >= 1000
    assert names(tmp_path) == sorted({"m.onnx", *data_name(path)})


PROCESS = """
    import sys
    from test_output import export
    first, count, path, two_files = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "True"
    for number in range(first, first + count):
        export(number, path, two_files)
"""


@pytest.mark.parametrize("two_files", [False, True])
def test_processes_that_export_to_one_path(tmp_path, two_files):
    path = tmp_path / "m.onnx"
    export(0, path, two_files)
    processes = [run_script(PROCESS, 1000 * (index + 1), EXPORTS, path, two_files) for index in range(4)]
    watch(path, lambda: all(process.poll() is not None for process in processes))
    for process in processes:
        assert process.wait() == 0, process.stderr.read()
    assert number_of(path) >= 1000
    assert names(tmp_path) == sorted({"m.onnx", *data_name(path)})


REPLACING = """
    import os, sys
    print("ready", flush=True)
    while True:
        for original in sys.argv[2:]:
            os.link(original, "new")
            os.replace("new", sys.argv[1])
            if os.path.lexists("new"):  # it was this file already
                os.unlink("new")
"""


@pytest.mark.parametrize("path", ["m.onnx", "link"])
def test_a_file_that_is_replaced_meanwhile_is_never_written_to(tmp_path, monkeypatch, path):
    """What is replaced may have other names, or readers: only a device is written to as it is."""
    monkeypatch.chdir(tmp_path)
    to_onnx(jnp.sin, [(3,)], return_mode="file", output_path="original.onnx")
    for name in ("m.onnx", "a", "b"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "link").symlink_to("m.onnx")
    process = run_script(REPLACING, "m.onnx", "a", "b")
    try:
        assert process.stdout.readline() == "ready\n"
        for _ in range(300):
            code, _, errors = _core.tool_output(["j2o", "strip", "original.onnx", "-o", path])
            assert code == 0, errors
            assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["mine", "mine"]
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


# Stopping


INTERRUPTED = """
    import signal, sys
    import numpy as np
    import jax2onnx._door.export as door
    weights = [np.full(8 << 20, i, np.float32) for i in range(24)]
    def fn(x):
        return [x * w for w in weights]
    def raise_as_ctrl_c_does(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, raise_as_ctrl_c_does)
    convert = door._core.convert
    class Core:
        def __getattr__(self, name):
            return getattr(convert.__self__, name)
        def convert(self, **arguments):
            signal.setitimer(signal.ITIMER_REAL, 0.05)  # 800 MB take longer
            return convert(**arguments)
    door._core = Core()
    try:
        door.to_onnx(fn, [()], return_mode="file", output_path=sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("two_files", [False, True])
def test_ctrl_c_is_seen_while_c_writes(tmp_path, two_files):
    export(1, tmp_path / "m.onnx")
    threshold = "1000" if two_files else "0"
    script = run_script(INTERRUPTED, tmp_path / "m.onnx", JAX2ONNX_EXTERNAL_DATA_THRESHOLD=threshold, JAX2ONNX_SYNC="0")
    output, errors = script.communicate()
    assert output.startswith("interrupted"), errors
    assert names(tmp_path) == ["m.onnx"] and number_of(tmp_path / "m.onnx") == 1


WAITING = """
    import signal, sys
    from test_output import export
    def raise_as_ctrl_c_does(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, raise_as_ctrl_c_does)
    print("ready", flush=True)
    try:
        export(2, sys.argv[1], two_files=True)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_while_an_export_waits_leaves_the_lock_to_its_holder(tmp_path):
    import fcntl

    lock = tmp_path / ".m.onnx.lock"
    with open(lock, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        process = run_script(WAITING, tmp_path / "m.onnx")
        assert process.stdout.readline() == "ready\n"
        while not list(tmp_path.glob(".m.onnx.*.tmp")):  # the second file is written, and next the lock is waited for
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
        assert output.startswith("interrupted"), errors
        assert names(tmp_path) == [lock.name]


def test_a_handler_of_the_users_runs_and_the_export_goes_on(tmp_path):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        timer.start()
        export(1, tmp_path / "m.onnx")
        timer.join()
        time.sleep(0.01)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1] and number_of(tmp_path / "m.onnx") == 1


# Files that change under a reader


TRUNCATED = """
    import os, sys, threading
    from jax2onnx import _core
    path, command = sys.argv[1:]
    stop = threading.Event()
    size = os.path.getsize(path)
    content = open(path, "rb").read()
    def cut():
        with open(path, "r+b") as stream:
            while not stop.is_set():
                stream.truncate(4096)
                stream.seek(0)
                stream.write(content)
                stream.flush()
    thread = threading.Thread(target=cut)
    thread.start()
    out = ["-o", path + ".out"] if command in ("strip", "compact", "expand", "report") else []
    second = [path] if command == "diff" else ["x"] if command == "locate" else []
    codes, told = set(), 0
    for _ in range(150):
        code, _, errors = _core.tool_output(["j2o", command, *out, path, *second])
        codes.add(code)
        told += b"truncated while it was read" in errors
    stop.set()
    thread.join()
    print("alive", sorted(codes), told)
"""


@pytest.mark.parametrize("command", ["inspect", "stats", "blame", "diff", "strip", "compact", "text"])
def test_a_file_cut_short_under_the_reader_ends_no_process(tmp_path, command):
    def fn(x):
        for _ in range(300):
            x = jnp.sin(x)
        return x

    path = tmp_path / "m.onnx"
    to_onnx(fn, [(3,)], return_mode="file", output_path=path, stacktrace_metadata="full")
    script = run_script(TRUNCATED, path, command)
    output, errors = script.communicate()
    assert script.returncode == 0 and output.startswith("alive"), (script.returncode, errors)


# Depth


def nested_loops(depth, kind):
    def body(level, x):
        if level == 0:
            return jnp.sin(x)
        if kind == "scan":
            return jax.lax.scan(lambda c, y: (body(level - 1, c) + y, None), x, jnp.arange(3.0))[0]
        if kind == "while":
            return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, body(level - 1, c[1])), (0, x))[1]
        return jax.lax.cond(x[0] > 0, lambda x: body(level - 1, x), jnp.cos, x)

    return lambda x: body(depth, x)


@pytest.mark.parametrize("kind", ["scan", "while", "cond"])
def test_the_deepest_loops_that_can_be_read(tmp_path, kind):
    path = to_onnx(nested_loops(31, kind), [(2,)], return_mode="file", output_path=tmp_path / "m.onnx")
    onnx.load(path)
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("kind", ["scan", "while", "cond"])
@pytest.mark.parametrize("depth", [32, 33, 60])
def test_loops_that_are_too_deep_to_be_read_are_refused(tmp_path, kind, depth):
    export(1, tmp_path / "m.onnx")
    with pytest.raises(jax2onnx.UnsupportedError, match=rf"nested {depth} levels deep") as raised:
        to_onnx(nested_loops(depth, kind), [(2,)], return_mode="file", output_path=tmp_path / "m.onnx")
    ((_, _, file, line, _),) = raised.value.items
    assert file == __file__ and kind in pathlib.Path(file).read_text().splitlines()[line - 1]
    assert number_of(tmp_path / "m.onnx") == 1 and names(tmp_path) == ["m.onnx"]
