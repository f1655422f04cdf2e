"""Masks, biases and caps on the scores of attention, as people write them.

A row of scores may be masked altogether: such inputs are tried as well, where JAX's answer does not hang on rounding.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from forms import Choices

Array = Any
Named = list[tuple[str, Array]]


@dataclasses.dataclass
class Given:
    """An argument by its axes."""

    names: str
    array: np.ndarray
    nothing_kept: np.ndarray | None = None  # the same, with all scores of a row put out
    roles: str = ""  # what the axes stand for in the scores, where that is something else

    def __post_init__(self) -> None:
        self.roles = self.roles or self.names


@dataclasses.dataclass
class Rule:
    """What is done to scores before the softmax; the mask is returned where it is needed once more."""

    apply: Callable[[Array, str, Named], tuple[Array, Array | None]]
    softmax_where: bool = False
    can_put_out_again: bool = False
    fills_with_infinity: bool = False
    takes_place_by: float = 0.0  # the number that takes the place of scores; 0 for none
    adds: float = -math.inf  # the number that is added to scores
    bias_comes_after: bool = False
    apart: str | None = None


Term = Callable[[Array, str, Named], Array]  # a mask, or a bias, that broadcasts to the scores


def placed(array: Array, names: str, target: str) -> Array:
    """Its axes in the order of the target's, with 1 for those it does not have."""
    if "h" in names and "h" not in target:
        if "g" not in target:
            array, names = jnp.take(array, 0, names.index("h")), names.replace("h", "")
        else:
            at = names.index("h")
            groups = array.shape[at] // 2
            array = array.reshape(*array.shape[:at], groups, 2, *array.shape[at + 1 :])
            names = names.replace("h", "gr")
    gone = [name for name in names if name not in target]
    assert not gone, (names, target)
    array = jnp.transpose(array, [names.index(name) for name in target if name in names])
    return array.reshape(
        [array.shape[[n for n in target if n in names].index(name)] if name in names else 1 for name in target]
    )


def make_rules(choices: Choices, plan: Any) -> Rule:
    count = choices.take("masks", 0, 0, 1, 1, 1, 1, 2, 2, 3)
    kinds = [
        choices.take(f"mask {i + 1}", "causal", "causal", "padding", "padding", "window", "segments", "given", "prefix")
        for i in range(count)
    ]
    number = choices.take("put out by", "-1e9", "-1e9", "-inf", "-inf", "least", "-1e4", "-1e30", "half of the least")
    least = float(jnp.finfo(plan.dtype).min)
    fills = {
        "-1e9": -1e9,
        "-inf": -math.inf,
        "least": least,
        "-1e4": -1e4,
        "-1e30": -1e30,
        "half of the least": least / 2,
    }
    fill = fills[number]
    if plan.dtype == "float16" and fill < least:
        fill = -math.inf  # that is what becomes of it
    ways = ("where", "where", "where not", "addition", "product", "softmax where", "select", "blend", "triangle")
    how = choices.take("applied by", *ways, "logarithm")
    if how == "logarithm":
        fill = -math.inf
    joined = choices.take("masks joined by", "and", "logical_and", "product", "one after the other", "or of opposites")
    if how == "product" and (math.isinf(fill) or (plan.dtype != "float32" and number == "least")):
        how = "addition"  # 0 times infinity
    if how == "blend" and math.isinf(fill):
        how = "where"
    adds = how in ("addition", "product", "triangle", "logarithm")
    if count > 1 and joined == "one after the other" and adds and fill <= least / 2 and how != "logarithm":
        fill = -1e9 if plan.dtype != "float16" else -1e4  # their sum would be -inf
    if count > 1 and adds and plan.dtype != "float32" and not math.isinf(fill):
        # Together they may leave nothing of a row, whose scores JAX rounds to the steps of so large a half.
        kinds = [choices.take(f"mask {i + 1}", "causal") if kind in _SPARSE else kind for i, kind in enumerate(kinds)]
    # A score that -1e4 is added to is still there, up to rounding; halves may be added in float32.
    empty = math.isinf(fill) or how == "softmax where" or (plan.dtype == "float32" and not (adds and fill > -1e8))
    masks = [_MASKS[kind](choices, plan, empty) for kind in kinds]
    bias = _bias(choices, plan)
    cap = choices.take("cap", *[None] * 7, 5.0, 30.0)
    bias_first = choices.take("bias goes", "first", "first", "last") == "first"
    where = how == "softmax where" and count > 0

    def together(scores: Array, names: str, given: Named) -> Array | None:
        found = [mask(scores, names, given) for mask in masks]
        return _joined(found, joined) if found else None

    def put_out(scores: Array, mask: Array) -> Array:
        if how == "where":
            return jnp.where(mask, scores, jnp.asarray(fill, scores.dtype))
        if how == "where not":
            return jnp.where(~mask, fill, scores)
        if how == "select":
            return jax.lax.select(jnp.broadcast_to(mask, scores.shape), scores, jnp.full_like(scores, fill))
        if how == "blend":
            kept = mask.astype(scores.dtype)
            return scores * kept - (1 - kept) * -fill
        if how == "logarithm":
            return scores + jnp.log(mask.astype(scores.dtype))
        if how in ("addition", "triangle"):
            return scores + jnp.where(mask, 0.0, fill).astype(scores.dtype)
        return scores + (1.0 - mask.astype(scores.dtype)) * fill

    def put_out_above(scores: Array, names: str) -> Array:
        numbers = jnp.triu(jnp.full(_lengths(scores, names), fill, scores.dtype), 1)
        return scores + placed(numbers, "tk", names)

    def apply(scores: Array, names: str, given: Named) -> tuple[Array, Array | None]:
        if cap:
            scores = jnp.tanh(scores / cap) * cap
        if bias and bias_first:
            scores = scores + bias(scores, names, given).astype(scores.dtype)
        mask = together(scores, names, given)
        if masks and not where:
            if how == "triangle" and kinds == ["causal"]:
                scores = put_out_above(scores, names)
            elif joined == "one after the other":
                for one in masks:
                    scores = put_out(scores, one(scores, names, given))
            else:
                scores = put_out(scores, mask)
        if bias and not bias_first:
            scores = scores + bias(scores, names, given).astype(scores.dtype)
        return scores, mask

    rule = Rule(apply, where, bool(masks) and not where, math.isinf(fill))
    if masks and adds:
        rule.adds = fill
    if masks and not adds and not where:
        rule.takes_place_by = fill
        rule.bias_comes_after = bias is not None and not bias_first
    return rule


def _joined(masks: list[Array], by: str) -> Array:
    if by == "product" and len(masks) > 1:
        return functools.reduce(lambda a, b: a * b, [mask.astype(jnp.float32) for mask in masks]) > 0
    if by == "logical_and":
        return functools.reduce(jnp.logical_and, masks)
    if by == "or of opposites":
        return ~functools.reduce(jnp.logical_or, [~mask for mask in masks])
    return functools.reduce(lambda a, b: a & b, masks)


def _add(plan: Any, given: Given) -> int:
    plan.given.append(given)
    return len(plan.given) - 1


def _lengths(scores: Array, names: str) -> tuple[int, int]:
    return scores.shape[names.index("t")], scores.shape[names.index("k")]


# ---- masks ----


def _causal(choices: Choices, plan: Any, empty: bool) -> Term:
    by = choices.take("causal by", "tril", "tri", "positions", "constant", "iota", "triu", "part of a larger one")

    def mask(scores: Array, names: str, given: Named) -> Array:
        return placed(_lower(by, *_lengths(scores, names)), "tk", names)

    return mask


def _lower(by: str, queries: int, keys: int) -> Array:
    if by == "tril":
        return jnp.tril(jnp.ones((queries, keys), bool))
    if by == "tri":
        return jnp.tri(queries, keys) > 0
    if by == "triu":
        return ~jnp.triu(jnp.ones((queries, keys), bool), 1)
    if by == "part of a larger one" and isinstance(queries, int) and isinstance(keys, int):
        return jnp.tril(jnp.ones((2 * max(queries, keys),) * 2))[:queries, :keys] != 0
    if by == "positions":
        return jnp.arange(queries)[:, None] >= jnp.arange(keys)[None, :]
    if by == "constant" and isinstance(queries, int) and isinstance(keys, int):
        return jnp.asarray(np.tril(np.ones((queries, keys), bool)))
    rows = jax.lax.broadcasted_iota(jnp.int32, (queries, keys), 0)
    return jax.lax.broadcasted_iota(jnp.int32, (queries, keys), 1) <= rows


def _window(choices: Choices, plan: Any, empty: bool) -> Term:
    both = choices.take("window", "behind", "around")

    def mask(scores: Array, names: str, given: Named) -> Array:
        queries, keys = _lengths(scores, names)
        away = jnp.arange(queries)[:, None] - jnp.arange(keys)[None, :]
        # cross attention may leave rows without a key: near the last one is near enough
        away = jnp.minimum(away, 3) if plan.crossed else away
        return placed(jnp.abs(away) < 4 if both == "around" else away < 4, "tk", names)

    return mask


def _prefix(choices: Choices, plan: Any, empty: bool) -> Term:
    """Causal, but for what all may see."""

    def mask(scores: Array, names: str, given: Named) -> Array:
        queries, keys = _lengths(scores, names)
        columns = jnp.arange(keys)[None, :]
        return placed((columns <= jnp.arange(queries)[:, None]) | (columns < 3), "tk", names)

    return mask


def _padding(choices: Choices, plan: Any, empty: bool) -> Term:
    by = choices.take("padding by", "mask", "whole numbers", "floats", "lengths", "both sides")
    lead = plan.lead[:1]
    both = by == "both sides" and empty and not plan.crossed  # a position that is padding sees nothing
    by = "mask" if by == "both sides" else by
    if by == "lengths":
        count = np.asarray(choices.numbers.integers(1, plan.sizes[plan.key] + 1, plan.shape(lead)), np.int32)
        at = _add(plan, Given(lead, count, np.zeros_like(count) if empty else None))
    else:
        kept = choices.numbers.random(plan.shape(lead + plan.key)) > 0.3
        kept[..., 0] = True
        kept = kept.astype({"mask": bool, "whole numbers": np.int32, "floats": np.float32}[by])
        at = _add(plan, Given(lead + plan.key, kept, np.zeros_like(kept) if empty else None, lead + "k"))

    def mask(scores: Array, names: str, given: Named) -> Array:
        array, roles = given[at][1], _here(lead if by == "lengths" else lead + "k", names)
        if by == "lengths":
            array, roles = jnp.arange(_lengths(scores, names)[1]) < array[..., None], roles + "k"
        if both:
            numbers = array.astype(jnp.float32)
            return placed(numbers[..., :, None] * numbers[..., None, :], roles[:-1] + "tk", names) > 0.5
        return placed(array if array.dtype == bool else array > 0, roles, names)

    return mask


def _segments(choices: Choices, plan: Any, empty: bool) -> Term:
    """Positions see those of the same document."""
    lead = plan.lead[:1]
    ids = np.sort(choices.numbers.integers(0, 3, plan.shape(lead + "t")).astype(np.int32), axis=-1)
    rows = _add(plan, Given(lead + "t", ids))
    columns = rows
    if plan.crossed:
        keys = np.zeros(plan.shape(lead + "s"), np.int32)
        keys[..., :3] = [0, 1, 2]
        columns = _add(plan, Given(lead + "s", keys, keys + 7 if empty else None, lead + "k"))

    def mask(scores: Array, names: str, given: Named) -> Array:
        own, others = given[rows][1], given[columns][1]
        return placed(own[..., :, None] == others[..., None, :], _here(lead + "tk", names), names)

    return mask


def _given_mask(choices: Choices, plan: Any, empty: bool) -> Term:
    """The whole mask as an argument."""
    axes = choices.take("mask has", "tk", "lead", "heads")
    lead = plan.lead[:1] if axes != "tk" else ""
    lead += "h" if axes == "heads" and "h" in plan.order else ""
    kept = choices.numbers.random(plan.shape(lead + "t" + plan.key)) > 0.3
    kept[..., 0] = True
    at = _add(plan, Given(lead + "t" + plan.key, kept, np.zeros_like(kept) if empty else None, lead + "tk"))
    return lambda scores, names, given: placed(given[at][1], _here(lead + "tk", names), names)


def _here(roles: str, names: str) -> str:
    """Without the axes that are mapped over; heads may be in two axes."""
    return "".join(role for role in roles if role in names or (role == "h" and "g" in names))


_SPARSE = ("window", "segments")  # those that may keep other keys than the first
_MASKS = {
    "causal": _causal,
    "window": _window,
    "prefix": _prefix,
    "padding": _padding,
    "segments": _segments,
    "given": _given_mask,
}


# ---- biases ----


def _bias(choices: Choices, plan: Any) -> Term | None:
    kind = choices.take("bias", *["none"] * 7, "given", "slopes", "table")
    heads = "h" if "h" in plan.order else ""
    if kind == "none":
        return None
    if kind == "given":
        axes = choices.take("bias has", "tk", "heads", "lead and heads")
        lead = {"tk": "", "heads": heads, "lead and heads": plan.lead[:1] + heads}[axes]
        array = choices.normal(plan.shape(lead + "t" + plan.key), "float32")
        at = _add(plan, Given(lead + "t" + plan.key, array, None, lead + "tk"))
        return lambda scores, names, given: placed(given[at][1], _here(lead + "tk", names), names)
    plan.tolerance = 3e-4 if kind == "slopes" else None  # of numbers as large as the length
    slopes = np.asarray([2.0 ** -(i + 1) for i in range(plan.sizes["h"])], np.float32)
    table = choices.normal((15, plan.sizes["h"]), "float32")

    def bias(scores: Array, names: str, given: Named) -> Array:
        queries, keys = _lengths(scores, names)
        away = jnp.arange(keys)[None, :] - jnp.arange(queries)[:, None]
        head = plan.sizes.get("head")
        if kind == "slopes":
            own = jnp.asarray(slopes if head is None else slopes[head : head + 1])
            found = own[:, None, None] * away.astype(jnp.float32)
        else:
            own = jnp.asarray(table if head is None else table[:, head : head + 1])
            found = jnp.moveaxis(own[jnp.clip(away, -7, 7) + 7], -1, 0)
        return placed(found, "htk", names) if heads else placed(found[0], "tk", names)

    return bias
