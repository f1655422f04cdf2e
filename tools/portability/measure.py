"""Where the models run: exports some sixty of them, for each target, and runs them in the real runtimes.

usage: python tools/portability/measure.py [--at FOLDER] [RUNTIME…]

Each runtime has an environment of its own under the folder (build/portability), made on first use; one that does not
install is said to be missing. What was measured is written to docs/portability.md and tests/data/portability.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE)]

import cases  # noqa: E402
import numpy as np  # noqa: E402


class Runtime(NamedTuple):
    """A program that runs models, and the target that is its own."""

    title: str
    target: str
    worker: str  # of worker.py; or "web", "tract"
    packages: tuple[str, ...] = ()  # for pip; none: the Python that runs this


RUNTIMES = {
    "onnxruntime": Runtime("ONNX Runtime, newest", "onnxruntime", "onnxruntime"),
    **{
        f"onnxruntime-{version}": Runtime(
            f"ONNX Runtime {version}",
            f"onnxruntime-{version}",
            "onnxruntime",
            (f"onnxruntime=={version}.*", *(["numpy<2"] if version < "1.19" else [])),
        )
        for version in ("1.24", "1.22", "1.20", "1.18", "1.16")
    },
    "onnxruntime-web": Runtime("onnxruntime-web (WebAssembly, node)", "onnxruntime-web", "web"),
    "openvino": Runtime("OpenVINO", "openvino", "openvino", ("openvino", "numpy")),
    "reference": Runtime("onnx ReferenceEvaluator", "reference", "reference"),
    "tract": Runtime("tract", "tract", "tract"),
    "tinygrad": Runtime("tinygrad", "tinygrad", "tinygrad", ("tinygrad", "onnx", "numpy")),
    "iree": Runtime("IREE", "iree", "iree", ("iree-base-compiler[onnx]", "iree-base-runtime", "numpy")),
    "mnn": Runtime("MNN", "mnn", "mnn", ("MNN", "numpy")),
}
OF_ROWS = {"onnxruntime": "ONNX Runtime", "web": "onnxruntime-web"}  # by worker: the name in rows, where it differs
DEFAULT = "default"
SAMPLE = ROOT / "tests" / "data" / "portability.json"
PAGE = ROOT / "docs" / "portability.md"


# ---- the models ----


def record_models(folder: pathlib.Path) -> list[str]:
    """Traces each model once: its record, its inputs, and what JAX makes of them."""
    import jax
    from models import MODELS

    from jax2onnx import to_onnx

    os.environ.setdefault("KERAS_BACKEND", "jax")
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        base = folder / name
        if (folder / f"{name}.case").exists():
            continue
        with jax.enable_x64(False):
            made = MODELS[name]()
        with jax.enable_x64(made.x64):
            specs = made.specs or [jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in made.inputs]
            model = to_onnx(made.fn, specs, enable_double_precision=made.x64, model_name=name, record=f"{base}.record")
            results = jax.tree.leaves(made.fn(*map(jax.numpy.asarray, made.inputs)))
        inputs = zip([value.name for value in model.graph.input], made.inputs, strict=True)
        outputs = zip([value.name for value in model.graph.output], results, strict=True)
        arrays = [cases.Array("input", key, np.asarray(value)) for key, value in inputs]
        arrays += [cases.Array("output", key, np.asarray(value)) for key, value in outputs]
        (folder / f"{name}.tolerance").write_text(repr(made.tolerance))
        cases.write_arrays(f"{base}.case", f"{base}.bin", arrays)
    return list(MODELS)


def export(records: pathlib.Path, names: list[str], target: str, folder: pathlib.Path) -> dict[str, str]:
    """The models for a target; by name what the export reported, or why it failed."""
    from jax2onnx import _core

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    said = {}
    for name in names:
        words = ["j2o", "convert", f"{records / name}.record", "-o", f"{folder / name}.onnx"]
        code, output, errors = _core.tool_output([*words, *([] if target == DEFAULT else ["--target", target])])
        if output or errors:
            said[name] = (output + errors).decode()
        if code == 0:
            for extension in ("case", "bin"):
                os.link(f"{records / name}.{extension}", f"{folder / name}.{extension}")
    return said


# ---- the runtimes ----


def environment(runtime: Runtime, name: str, at: pathlib.Path) -> pathlib.Path | None:
    """The program that runs it: made when it is not there; None when it does not install."""
    home = at / "environments" / name
    if runtime.worker == "web":
        if not (home / "node_modules" / "onnxruntime-web").is_dir():
            home.mkdir(parents=True, exist_ok=True)
            _quietly(["npm", "install", "--silent", "--prefix", str(home), "onnxruntime-web"])
        return home if (home / "node_modules" / "onnxruntime-web").is_dir() else None
    if runtime.worker == "tract":
        program = home / "release" / "run_tract"
        words = ["cargo", "build", "--release", "--manifest-path", str(HERE / "tract" / "Cargo.toml")]
        if not program.exists():
            _quietly([*words, "--target-dir", str(home)])
        return program if program.exists() else None
    if not runtime.packages:
        return pathlib.Path(sys.executable)
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        _quietly([sys.executable, "-m", "venv", str(home)])
        if _quietly([str(python), "-m", "pip", "install", "-q", *runtime.packages]):
            (home / "ready").touch()
    return python if (home / "ready").exists() else None


def _quietly(words: list[str]) -> bool:
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def run(runtime: Runtime, program: pathlib.Path, folder: pathlib.Path) -> None:
    for name in cases.names_in(str(folder)):
        for extension in (".got", ".got.bin", ".error"):
            (folder / (name + extension)).unlink(missing_ok=True)
    if runtime.worker == "web":
        words = ["node", str(HERE / "web.mjs"), str(folder.resolve())]
    elif runtime.worker == "tract":
        words = [str(program), str(folder)]
    else:
        words = [str(program), str(HERE / "worker.py"), runtime.worker, str(folder.resolve())]
    place = program if runtime.worker == "web" else folder
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(words, cwd=place, check=False, env={**os.environ, "PIP_NO_INDEX": "1"}, **quiet)


def verdict(records: pathlib.Path, folder: pathlib.Path, name: str) -> str:
    """Empty when the numbers are JAX's, else what is wrong."""
    base = str(folder / name)
    if not os.path.exists(base + ".onnx"):
        return "not exported"
    if os.path.exists(base + ".error"):
        with open(base + ".error", encoding="utf-8", errors="replace") as file:
            return file.read().strip() or "failed"
    if not os.path.exists(base + ".got"):
        return "no result"
    tolerance = float((records / f"{name}.tolerance").read_text())
    got = [array.value for array in cases.read_arrays(base + ".got", base + ".got.bin")]
    return difference(cases.expected_of(str(folder), name), got, tolerance)


def difference(expected: list[np.ndarray], got: list[np.ndarray], tolerance: float) -> str:
    if len(got) != len(expected):
        return f"{len(got)} outputs, not {len(expected)}"
    for index, (want, have) in enumerate(zip(expected, got, strict=True)):
        if want.shape != have.shape:
            return f"output {index}: shape {have.shape}, not {want.shape}"
        wide = np.asarray(have, np.float64), np.asarray(want, np.float64)
        if not np.allclose(*wide, rtol=tolerance, atol=tolerance * max(1.0, float(np.max(np.abs(wide[1]), initial=0)))):
            return f"output {index}: wrong numbers"
    return ""


def version_of(runtime: Runtime, program: pathlib.Path) -> str:
    """What the environment installed."""
    if runtime.worker == "web":
        return json.loads((program / "node_modules/onnxruntime-web/package.json").read_text())["version"]
    if runtime.worker == "tract":
        lines = (HERE / "tract" / "Cargo.toml").read_text().splitlines()
        return next(line.split('"')[1] for line in lines if line.startswith("tract-onnx"))
    package = {"reference": "onnx", "iree": "iree-base-compiler"}.get(runtime.worker, runtime.worker)
    words = [str(program), "-c", f"import importlib.metadata as m; print(m.version({package!r}))"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def kind_of(text: str) -> str:
    """A verdict in a word or two, which a new run gives again."""
    return text if text.startswith("output ") or text in ("not exported", "no result") else "fails"


def facts_digest(key: str) -> str:
    """Of what the stored runs of a runtime are about: the models, and the rows that concern it.

    Open rows of ONNX Runtime have tests of their own.
    """
    from jax2onnx import _core

    document = json.loads(_core.tool_output(["j2o", "targets", "--json"])[1])
    title = OF_ROWS.get(RUNTIMES[key].worker, RUNTIMES[key].title)
    rows = [row for row in document["quirks"] + document["lacks"] if title in row["runtime"].split(", ")]
    rows = [row for row in rows if row["runtime"] != "ONNX Runtime" or row["last"] not in (None, "")]
    targets = [target for target in document["targets"] if target["name"] == RUNTIMES[key].target]
    content = json.dumps([rows, targets]) + (HERE / "models.py").read_text()
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def page(sample: dict) -> str:
    """docs/portability.md."""
    lines = [
        "# Where the models run",
        "",
        f"`make portability` exports {sample['models']} models (`tools/portability/models.py`: plain functions, Flax",
        'NNX and Linen, Equinox, Keras), runs each file in the runtimes below and compares with JAX. "Default" is the',
        'file that `to_onnx` writes unless told otherwise, "own target" the file with `target=` of that runtime. A',
        'model that still fails is marked with "said" where the export for the target warns of it, with the line.',
        "",
        "| runtime | version | default | own target | still wrong with its own target |",
        "|---|---|---|---|---|",
    ]
    for key, runtime in RUNTIMES.items():
        found = sample["runtimes"].get(key)
        if not found:
            lines.append(f"| {runtime.title} | not measured | | | |")
            continue
        shares = [f"{sample['models'] - len(found[way]['wrong'])} / {sample['models']}" for way in ("default", "own")]
        own = found["own"]
        wrong = ", ".join(f"{name}{' (said)' if name in own['said'] else ''}" for name in own["wrong"])
        lines.append(f"| {runtime.title} | {found['version']} | {shares[0]} | {shares[1]} | {wrong} |")
    return "\n".join([*lines, *tools_section(sample), ""])


def tools_section(sample: dict) -> list[str]:
    if not sample.get("tools"):
        return []
    lines = [
        "",
        "## Tools that people run on models",
        "",
        "`make portability-tools` runs these on the default files, and what they give in the newest ONNX Runtime.",
        "",
        "| tool | accepted and right | not |",
        "|---|---|---|",
    ]
    first = ["symbolic_shape_infer", "quant_pre_process", "quantize_dynamic"]
    for title in [*first, *(title for title in sample["tools"] if title not in first)]:
        wrong = sample["tools"].get(title, [])
        lines.append(f"| {title} | {sample['models'] - len(wrong)} / {sample['models']} | {', '.join(wrong)} |")
    return [
        *lines,
        "",
        "What the first three do not take has its reason in them, whoever made the model (the smallest models that",
        "show it are in `tests/python/test_other_tools.py`): `quantize_dynamic` gives a product in half precision",
        "operands that only single precision has; `symbolic_shape_infer`, and with it `quant_pre_process`, knows no",
        "`batch_dims` of GatherND, so none are written, and of reductions only sums and means from opset 18 on,",
        'which `opset="auto"` avoids where it can.',
    ]


def write_down(sample: dict) -> None:
    SAMPLE.write_text(json.dumps(sample, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(sample))


def stored_sample() -> dict:
    return json.loads(SAMPLE.read_text()) if SAMPLE.exists() else {"models": 0, "runtimes": {}}


def measured(key: str, at: pathlib.Path, names: list[str]) -> dict | None:
    runtime, records = RUNTIMES[key], at / "records"
    program = environment(runtime, key, at)
    if program is None:
        print(f"{runtime.title}: does not install here")
        return None
    found: dict = {"version": version_of(runtime, program), "digest": facts_digest(key)}
    for way, target in (("default", DEFAULT), ("own", runtime.target)):
        folder = at / "models" / f"{key}-{way}"
        said = export(records, names, target, folder)
        run(runtime, program, folder)
        verdicts = {name: verdict(records, folder, name) for name in names}
        wrong = {name: text for name, text in verdicts.items() if text}
        print(f"{runtime.title}, {way}: {len(names) - len(wrong)} of {len(names)} right", flush=True)
        for name, text in wrong.items():
            print(f"  {name}: {' '.join(text.split())[:300]}{' (said)' if name in said else ''}")
        kept = {name: kind_of(text) for name, text in sorted(wrong.items())}
        found[way] = {"wrong": kept, "said": sorted(name for name in said if name in wrong)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runtimes", nargs="*", metavar="RUNTIME", help="all of them unless some are named")
    parser.add_argument("--at", type=pathlib.Path, default=ROOT / "build" / "portability")
    options = parser.parse_args()
    names = record_models(options.at / "records")
    sample = {**stored_sample(), "models": len(names)}
    for key in options.runtimes or RUNTIMES:
        found = measured(key, options.at, names)
        if found is not None:
            sample["runtimes"][key] = found
        write_down(sample)


if __name__ == "__main__":
    main()
