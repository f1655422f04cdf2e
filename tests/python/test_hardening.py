"""What the compiler and linker were told to do against attackers, read from the files they made."""

import os
import pathlib
import re
import struct
import subprocess
import sys
import sysconfig

import pytest

from jax2onnx import _core

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
DT_FLAGS, DT_FLAGS_1, DF_BIND_NOW, DF_1_NOW = 30, 0x6FFFFFFB, 8, 1
EXECUTABLE = 1


class Elf:
    """As much of a 64-bit little-endian ELF file as is asked for here."""

    def __init__(self, path):
        self.content = pathlib.Path(path).read_bytes()
        assert self.content[:6] == b"\x7fELF\x02\x01"
        (start,) = struct.unpack_from("<Q", self.content, 32)
        size, count = struct.unpack_from("<HH", self.content, 54)
        rows = [struct.unpack_from("<IIQQQQQQ", self.content, start + i * size) for i in range(count)]
        self.segments = {row[0]: row for row in rows}

    def dynamic(self):
        _, _, offset, _, _, size, *_ = self.segments[PT_DYNAMIC]
        return dict(struct.iter_unpack("<qQ", self.content[offset : offset + size]))


def programs():
    found = [pathlib.Path(_core.__file__)]
    beside = ROOT / "build" / pathlib.Path(sys.prefix).name / "j2o"
    return found + [beside] * beside.exists()


pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or struct.calcsize("P") != 8 or "asan" in os.environ.get("LD_PRELOAD", ""),
    reason="reads ELF files that were built without sanitizers",
)


@pytest.mark.parametrize("path", programs(), ids=lambda path: path.name.partition(".")[0])
def test_the_built_files_are_hardened(path):
    elf = Elf(path)
    dynamic = elf.dynamic()
    assert dynamic.get(DT_FLAGS, 0) & DF_BIND_NOW or dynamic.get(DT_FLAGS_1, 0) & DF_1_NOW, "BIND_NOW"
    assert PT_GNU_RELRO in elf.segments, "RELRO"
    assert not elf.segments[PT_GNU_STACK][1] & EXECUTABLE, "an executable stack"
    assert b"__stack_chk_fail\0" in elf.content, "no stack protector"
    assert re.search(rb"\0__\w+_chk\0", elf.content.replace(b"__stack_chk_fail", b"")), "no FORTIFY_SOURCE"


@pytest.mark.skipif(sysconfig.get_platform() != "linux-x86_64", reason="of one kind of processor")
def test_functions_begin_where_jumps_may_land():
    listing = subprocess.run(["nm", "-D", _core.__file__], capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("nm is needed")
    (place,) = re.findall(r"(\w+) T PyInit__core", listing.stdout)
    assert Elf(_core.__file__).content[int(place, 16) :][:4] == b"\xf3\x0f\x1e\xfa"  # ENDBR64


def test_the_module_exports_nothing_but_its_entry():
    listing = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("nm is needed")
    assert re.findall(r" [A-Z] (\w+)", listing.stdout) == ["PyInit__core"]
