"""Runs forms: programs that say the same in another way must become the same operator, and agree with JAX.

run.py --count 2000                   of every family; the first seed comes from the date and is printed
run.py --count 20 --of-tree           the first seed comes from the sources: others for every change of them
run.py --family attention --seed 17   one program again
run.py --family attention --seed 17 --with type=float32   the same with another choice
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import importlib
import os
import pathlib
import sys
import time
import traceback
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[0]), str(FOLDER.parents[1])]
# The reference is compiled in a hurry: no folding of large masks, no optimisation.
os.environ.setdefault("XLA_FLAGS", "--xla_disable_hlo_passes=constant_folding --xla_backend_optimization_level=0")
os.environ.setdefault("JAX2ONNX_CHECK_PASSES", "1")
import jax  # noqa: E402
from forms import Choices, check  # noqa: E402
from seeds import seed_of_date, seed_of_tree  # noqa: E402

# Families: how many programs of each belong to the tests of every day, and the share that must be fused at least.
FAMILIES = {
    "attention": (24, 0.99),
    "normalization": (20, 0.99),
    "channels": (12, 0.99),
    "activations": (20, 0.99),
    "recurrent": (12, 0.99),
    "pooling": (12, 0.95),
    "convolution": (12, 0.95),
    "rotary": (10, 0.99),
    "embeddings": (8, 0.99),
    "losses": (8, 0.99),
    "resizing": (8, 0.95),
    "blocks": (8, 0.99),
    "quantised": (12, 0.99),
}
RENEW = 200  # programs after which what JAX has compiled is dropped


class Family:
    def __init__(self, name: str) -> None:
        self.name = name
        self.make = importlib.import_module(name).make
        self.count = self.fused = self.right = 0
        self.apart: collections.Counter[str] = collections.Counter()
        self.missed: list[tuple[int, Choices, str]] = []
        self.wrong: list[tuple[int, Choices, str]] = []

    def one(self, seed: int, fixed: dict[str, Any] | None = None) -> None:
        choices = Choices(seed, fixed)
        self.count += 1
        try:
            form = self.make(choices)
            outcome = check(form)
        except Exception:
            self.wrong.append((seed, choices, traceback.format_exc(limit=-3)))
            return
        self.right += outcome.right
        self.fused += outcome.fused
        if form.apart and not outcome.fused:
            self.apart[form.apart] += 1
        if not outcome.right:
            self.wrong.append((seed, choices, outcome.detail))
        elif not outcome.fused and not form.apart:
            self.missed.append((seed, choices, outcome.detail))

    def is_good(self) -> bool:
        """Few programs say little about a share: twice the root of their number is chance."""
        allowed = (1 - FAMILIES[self.name][1]) * self.count + 2 * self.count**0.5
        return not self.wrong and len(self.missed) <= allowed

    def report(self, most: int) -> None:
        apart = sum(self.apart.values())
        print(
            f"{self.name}: {self.count} programs, {self.fused} fused, {apart} kept apart, {len(self.missed)} missed, "
            f"{self.right} right",
            flush=True,
        )
        for reason, count in self.apart.most_common():
            print(f"  kept apart {count}: {reason}")
        for kind, found in (("missed", self.missed), ("WRONG", self.wrong)):
            for seed, choices, detail in found[:most]:
                print(f"  {kind} {seed}: {choices}\n    {detail}")
        if self.missed:
            self._what_they_share()

    def _what_they_share(self) -> None:
        """The choices that stand out among those missed, for whoever looks for the reason."""
        shared = collections.Counter(item for _, choices, _ in self.missed for item in choices.made.items())
        print("  shared by those missed: " + ", ".join(f"{n} {v} *{c}" for (n, v), c in shared.most_common(12)))


def _fixed(given: list[str]) -> dict[str, Any]:
    fixed = {}
    for item in given:
        name, _, value = item.partition("=")
        try:
            fixed[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            fixed[name] = value
    return fixed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, help="programs of every family; default: the small share of each")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this one")
    parser.add_argument("--first", type=int, help="the first seed; default: one made from the date and the time")
    parser.add_argument("--of-tree", action="store_true", help="the first seed comes from the sources")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--with", dest="fixed", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--show", type=int, default=20, help="failures that are printed")
    options = parser.parse_args()
    first = options.seed or options.first
    if first is None:
        first = seed_of_tree(FOLDER) if options.of_tree else seed_of_date()
    print(f"forms: from seed {first}", flush=True)
    good = True
    for name in options.family or FAMILIES:
        family, start = Family(name), time.monotonic()
        for seed in range(first, first + (1 if options.seed else options.count or FAMILIES[name][0])):
            family.one(seed, _fixed(options.fixed))
            if (seed - first + 1) % RENEW == 0:
                jax.clear_caches()
                gc.collect()
        family.report(options.show)
        print(f"  {time.monotonic() - start:.0f} s", flush=True)
        good = good and family.is_good()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
