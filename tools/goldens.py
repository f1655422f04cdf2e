"""Golden files: small programs as ONNX text with their metadata.

usage: python tools/goldens.py            write tests/golden/*.txt anew and show what changed
       python tools/goldens.py --check    change nothing; exit 1 when something would change

The programs are exported under JAX2ONNX_ENABLE_STACKTRACE_METADATA=1. In the files

- a callsite is as exported: the lines of tests/golden/programs.py are part of what is pinned;
- a plugin has the text of the C line that it names in place of its number, so that the file proves the line to be the
  true one but survives edits above it;
- a traceback keeps the frames of programs.py only, since JAX's own differ from release to release.
"""

from __future__ import annotations

import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "golden"
sys.path[:0] = [str(ROOT), str(FOLDER)]

os.environ["JAX2ONNX_ENABLE_STACKTRACE_METADATA"] = "1"
os.environ["JAX2ONNX_STACKTRACE_DETAIL"] = "full"  # its last frame says in which C file the plugin's line is

import onnx  # noqa: E402
import programs  # noqa: E402

from jax2onnx import to_onnx  # noqa: E402

_OUR_FRAME = re.compile(r"(?P<file>.*):(?P<line>\d+) in (?P<function>.*)")


def golden_texts() -> dict[str, str]:
    """The text of every program, by name."""
    texts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (program, inputs, options) in programs.PROGRAMS.items():
            model = to_onnx(program, inputs, model_name=name, **options)
            _forget_sources(model)
            model.producer_version = ""
            for graph in _graphs(model.graph):
                for node in graph.node:
                    _rewrite_metadata(node)
                for tensor in graph.initializer:
                    del tensor.metadata_props[:]  # what the node that reads it says, once more
            path = os.path.join(folder, name + ".onnx")
            onnx.save(model, path)
            texts[name] = _as_text(path)
    return texts


def _forget_sources(model: onnx.ModelProto) -> None:
    """Digests change with every edit of the programs, and say nothing about the export."""
    kept = [entry for entry in model.metadata_props if entry.key != "pkg.jax2onnx.sources"]
    for entry in kept:
        entry.value = entry.value.replace(str(ROOT) + os.sep, "")
    del model.metadata_props[:]
    model.metadata_props.extend(kept)


def _as_text(path: str) -> str:
    command = [sys.executable, "-m", "jax2onnx", "text", path]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and the bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _rewrite_metadata(node: onnx.NodeProto) -> None:
    said = {entry.key: entry.value for entry in node.metadata_props}
    del node.metadata_props[:]
    stacktrace = said.pop("pkg.jax2onnx.stacktrace")
    said["pkg.jax2onnx.plugin"] = _with_source(said["pkg.jax2onnx.plugin"], stacktrace)
    said["pkg.jax2onnx.jax_traceback"] = _users_frames(said["pkg.jax2onnx.jax_traceback"])
    for key, value in said.items():
        node.metadata_props.add(key=key, value=value)


def _with_source(plugin: str, stacktrace: str) -> str:
    """``SinPlugin.lower:31`` as ``SinPlugin.lower: `` and the text of line 31 of the file that the last frame names."""
    frame = _OUR_FRAME.fullmatch(stacktrace.splitlines()[-1])
    name, line = plugin.rsplit(":", 1)
    if not frame or frame["line"] != line or frame["function"] != name:
        raise SystemExit(f"the plugin {plugin} is not where its stacktrace ends: {stacktrace.splitlines()[-1]}")
    text = (ROOT / frame["file"]).read_text(encoding="utf-8").splitlines()[int(line) - 1].strip()
    return f"{name}: {text}"


def _users_frames(traceback: str) -> str:
    source = str(FOLDER / "programs.py")
    kept = [line for line in traceback.splitlines() if not line or line.startswith(source)]
    return "\n".join(line.replace(str(ROOT) + os.sep, "") for line in kept)


def changes(texts: dict[str, str]) -> list[tuple[pathlib.Path, str | None, str]]:
    """For each file that differs: its path, what it shall hold (None: nothing, it goes), and the difference."""
    wanted = {FOLDER / f"{name}.txt": text for name, text in texts.items()}
    wanted.update({path: None for path in FOLDER.glob("*.txt") if path not in wanted})
    result = []
    for path, text in sorted(wanted.items()):
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old != (text or "") or text is None:
            name = str(path.relative_to(ROOT))
            lines = difflib.unified_diff(old.splitlines(), (text or "").splitlines(), name, name, lineterm="")
            result.append((path, text, "\n".join(lines)))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when something would change")
    check = parser.parse_args().check
    found = changes(golden_texts())
    for path, text, difference in found:
        print(difference)
        if check:
            continue
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8")
    total = len(programs.PROGRAMS)
    print(f"{total} golden files, {len(found)} {'would change' if check else 'changed'}")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
