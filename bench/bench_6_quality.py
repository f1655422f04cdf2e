"""Models of real structure: nodes beside an expert's, error and ONNX Runtime's time beside the lowered graph's."""

from __future__ import annotations

import math

import exporting  # noqa: F401  (finds the package in this tree)
from quality import cases, error_ratio, errors, export, latencies, operators


def main() -> None:
    print("exported graphs: nodes (as lowered; an expert's), error against JAX, ONNX Runtime on one thread")
    gains = []
    for case in cases():
        exported = export(case)
        count, lowered = operators(exported.optimised).total(), operators(exported.lowered).total()
        expert = case.expert().total()
        found, before = errors(exported)
        fast, slow = latencies(exported)
        gains.append(slow / fast)
        print(
            f"{case.name:>16}: {count:4} nodes ({lowered:4}; {expert:4}, ratio {count / expert:.2f}), "
            f"error {found:.1e} ({before:.1e}, ratio {error_ratio(found, before):.2f}), "
            f"{fast * 1e3:.3f} ms ({slow * 1e3:.3f}), {slow / fast:.2f} times as fast",
            flush=True,
        )
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    print(f"{'geometric mean':>16}: {mean:.2f} times as fast, {min(gains):.2f} at the least")


if __name__ == "__main__":
    main()
