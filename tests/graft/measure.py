"""How much of the provenance comes back after each tool, against what the numbers say (truth.py).

usage: measure.py J2O MODELS PROCESSED [TOOL ...] [--verbose]; prints a table in Markdown.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter
from typing import Any

import onnx
from truth import metadata, trace_of

OURS = "pkg.jax2onnx."


def grafted(j2o: str, original: pathlib.Path, processed: pathlib.Path) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out.onnx"
        subprocess.run([j2o, "graft", original, processed, "-o", out, "--json"], check=True, stdout=subprocess.DEVNULL)
        return onnx.load(out)


def labelled(model: onnx.ModelProto) -> tuple[int, int]:
    """Nodes of the main graph but for constants: those with a line, and all."""
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    return sum(f"{OURS}callsite" in metadata(node) for node in nodes), len(nodes)


def compare(model: onnx.ModelProto, truth: list[Any], verbose: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node, expected in zip(model.graph.node, truth, strict=True):
        entries = metadata(node)
        how = entries.get(f"{OURS}grafted", "kept")
        callsite = entries.get(f"{OURS}callsite")
        if not expected:
            continue
        counts["known"] += 1
        right = callsite == expected["callsite"]
        counts["right"] += right
        counts["said"] += callsite is not None
        counts["right trace"] += right and trace_of(entries) == expected["trace"]
        if verbose and not right:
            shape = f"{node.op_type} {node.name} -> {node.output[0]}"
            print(f"  {verbose} {shape}: {callsite} ({how}), should be {expected['callsite']}")
    return counts


def share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def row(name: str, counts: Counter[str]) -> str:
    before, after = (share(counts[key], counts["nodes"]) for key in ("before", "after"))
    recall, precision = share(counts["right"], counts["known"]), share(counts["right"], counts["said"])
    return f"| {name} | {counts['models']} | {before} | {after} | {counts['known']} | {recall} | {precision} |"


def main(j2o: str, models: str, processed: str, *rest: str) -> int:
    verbose = "--verbose" in rest
    tools = [word for word in rest if word != "--verbose"] or sorted(p.name for p in pathlib.Path(processed).iterdir())
    print("| tool | models | labelled by itself | after graft | nodes with truth | recall | precision |")
    print("|---|---|---|---|---|---|---|")
    everything: Counter[str] = Counter()
    for tool in tools:
        total: Counter[str] = Counter()
        for path in sorted(pathlib.Path(processed, tool).glob("*.onnx")):
            try:
                result = grafted(j2o, pathlib.Path(models, path.name), path)
            except subprocess.CalledProcessError:
                print(f"| {tool} | {path.name} was not grafted |", flush=True)
                total["failed"] += 1
                continue
            truth = json.loads(path.with_suffix(".truth.json").read_text())
            total["models"] += 1
            total["before"] += labelled(onnx.load(path))[0]
            after, nodes = labelled(result)
            total["after"] += after
            total["nodes"] += nodes
            if truth:
                total += compare(result, truth, f"{tool}/{path.stem}" if verbose else "")
        print(row(tool, total), flush=True)
        everything += total
    print(row("all", everything))
    good = everything["right"] >= 0.95 * everything["known"] and everything["right"] >= 0.99 * everything["said"]
    return 0 if good and not everything["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
