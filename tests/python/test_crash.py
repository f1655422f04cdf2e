"""Exports through the extension: every system call fails once, and before every one the process is killed once.

``make test-c`` does the same for every kind of files that are there before, many times faster; here the models are read
by those who will read them.
"""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

import jax2onnx

ROOT = pathlib.Path(jax2onnx.__file__).parent.parent
TESTS = pathlib.Path(__file__).parent
SOURCE = TESTS.parent / "crash" / "failing_calls.c"

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or "asan" in os.environ.get("LD_PRELOAD", ""),
    reason="preloads a library of its own",
)

DRIVER = """
    import ctypes, os, pathlib, shutil, sys
    import onnx
    import jax2onnx._door.export as door
    from test_output import data_name, export, names, number_of
    shim = ctypes.CDLL(None)
    shim.failing_calls_name.restype = ctypes.c_char_p
    OFF, FAIL, KILL = 0, 1, 4
    folder, two_files = pathlib.Path(sys.argv[1]), sys.argv[2] == "True"
    folder.mkdir()
    path = folder / "m.onnx"
    calls = []
    convert = door._core.convert
    class Core:
        def __getattr__(self, name):
            return getattr(convert.__self__, name)
        def convert(self, **arguments):
            calls.append(arguments)
            return convert(**arguments)
    door._core = Core()
    for number in (2, 3, 4):
        export(number, path, two_files)
    old, new, following = calls
    def prepare():
        for entry in folder.iterdir():
            entry.unlink()
        convert(**old)
    prepare()
    shim.failing_calls_arm(FAIL, ctypes.c_long(0))
    convert(**new)
    count = shim.failing_calls_disarm()
    for mode in (FAIL, KILL):
        for number in range(1, count + 1):
            prepare()
            child = os.fork()
            if child == 0:
                shim.failing_calls_arm(mode, ctypes.c_long(number))
                try:
                    convert(**new)
                    code = 0
                except OSError:
                    code = 1
                finally:
                    shim.failing_calls_disarm()
                os._exit(code)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found = number_of(path)
            where = (mode, number, shim.failing_calls_name(ctypes.c_long(number)), status, found)
            assert found in ((3,) if status == 0 else (2, 3)), where
            assert status in ((0, 1) if mode == FAIL else (-9,)), where
            convert(**following)
            assert number_of(path) == 4, where
            assert names(folder) == sorted({"m.onnx", *data_name(path)}), (where, names(folder))
    print(count, "calls")
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "failing_calls.so"
    command = ["cc", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("a C compiler is needed")
    return library


@pytest.mark.parametrize("two_files", [False, True])
def test_every_call_fails_and_is_the_last(tmp_path, shim, two_files):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{TESTS}", "LD_PRELOAD": str(shim)}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(DRIVER), str(tmp_path / "folder"), str(two_files)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > 20


# Functions that ask the system for something about files.
CALLS = re.compile(
    r"\b(open|openat|creat|close|p?readv?|p?writev?|fsync|fdatasync|sync_file_range|rename(?:at2?)?|(?:sym)?link(?:at)?|"
    r"unlink(?:at)?|remove|f?truncate|(?:posix_)?fallocate|[lf]?stat|fstatat|statx|m?mmap|munmap|msync|flock|lockf|fcntl|"
    r"f?ch(?:mod|own)(?:at)?|f?access(?:at)?|readlink(?:at)?|mkdir(?:at)?|rmdir|f?d?opendir|readdir|closedir|f(?:d?open|close|"
    r"write|read|flush)|mko?stemp|getentropy|getrandom|sendfile|copy_file_range|utimensat|futimens)\("
)


def test_every_call_that_output_makes_can_fail():
    sources = [*(ROOT / "src" / "base").glob("output*.c"), ROOT / "src" / "base" / "platform.c"]
    made = {name for path in sources for name in CALLS.findall(path.read_text())}
    failing = SOURCE.read_text()
    assert made and not [name for name in made if not re.search(rf"\b{name}\b", failing)]
