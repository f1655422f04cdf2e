"""The reference artifact: examples/sandbox_stacktrace_sample.py exported with full provenance.

usage: python tools/make_sample.py            write examples/sandbox_stacktrace_sample.onnx anew
       python tools/make_sample.py --check    change nothing; exit 1 and show why when a new export differs

Paths in the stored file hold no folder of the machine that made it: those of this tree are relative to it, those of
installed packages begin with `site-packages/`. The JAX release is recorded in the model's metadata; under another one
JAX's own frames differ and the check leaves them out. It also leaves out the numbers of lines in our C files, which
move with every edit; the golden files pin those by their text.
"""

from __future__ import annotations

import argparse
import difflib
import pathlib
import re
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "examples" / "sandbox_stacktrace_sample.onnx"
sys.path[:0] = [str(ROOT), str(SAMPLE.parent)]

import jax  # noqa: E402
import onnx  # noqa: E402
import sandbox_stacktrace_sample  # noqa: E402

from jax2onnx import to_onnx  # noqa: E402

_PACKAGES = sorted({sysconfig.get_paths()[key] for key in ("purelib", "platlib")})
_C_LINE = re.compile(r"(src/\S+\.c):\d+|(?<=\.lower):\d+")


def export_sample() -> onnx.ModelProto:
    model = to_onnx(
        sandbox_stacktrace_sample.scaled_sine,
        [jax.ShapeDtypeStruct((2,), "float32")],
        model_name="sandbox_stacktrace_sample",
        stacktrace_metadata="full",
    )
    model.metadata_props.add(key="jax_version", value=jax.__version__)
    for item in (model, *model.graph.node, *model.graph.initializer):
        for entry in item.metadata_props:
            entry.value = _without_folders(entry.value)
    return model


def _without_folders(text: str) -> str:
    for folder in _PACKAGES:
        text = text.replace(folder + "/", "site-packages/")
    return text.replace(f"{ROOT}/", "")


def comparable_text(model: onnx.ModelProto, with_jax_frames: bool) -> str:
    """The model as text, without what may differ between two right ones."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.producer_version = ""
    del copy.metadata_props[:]
    for item in (*copy.graph.node, *copy.graph.initializer):
        for entry in item.metadata_props:
            entry.value = _C_LINE.sub(r"\1", entry.value)
            lines = entry.value.splitlines()
            entry.value = "\n".join(
                line for line in lines if with_jax_frames or not line.startswith("site-packages/jax/")
            )
    return str(copy)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a new export differs")
    model = export_sample()
    if not parser.parse_args().check:
        SAMPLE.write_bytes(model.SerializeToString())
        print(f"{SAMPLE.relative_to(ROOT)}: made with JAX {jax.__version__}")
        return 0
    stored = onnx.load(SAMPLE)
    made_with = {entry.key: entry.value for entry in stored.metadata_props}["jax_version"]
    same_jax = made_with == jax.__version__
    old, new = comparable_text(stored, same_jax), comparable_text(model, same_jax)
    print("\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), "stored", "new", lineterm="")), end="")
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
