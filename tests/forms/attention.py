"""Attention as people write it.

Axes are named by letters: b and c are the batch, t the queries' positions, s the keys', h heads, g heads of keys, r
heads within a group, d features of queries and keys, e features of values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attention_layers import decoding_layer, function_of_jax, joined_cache, library_layer, step_with_cache
from attention_masks import Given, Rule, make_rules, placed
from attention_wrapped import wrapped
from forms import Choices, Form

Array = Any
SYMBOLS = {"b": "B", "t": "T", "s": "S"}
FEATURES = 8


def make(choices: Choices) -> Form:
    kind = choices.take(
        "written",
        *["by hand"] * 14,
        "library layer",
        "library layer",
        "jax.nn",
        "jax.nn",
        "cache",
        "cache",
        "joined",
        "decoding",
    )
    if kind == "library layer":
        return library_layer(choices)
    if kind == "jax.nn":
        return function_of_jax(choices)
    if kind == "cache":
        return step_with_cache(choices)
    if kind == "joined":
        return joined_cache(choices)
    if kind == "decoding":
        return decoding_layer(choices)
    return _by_hand(choices)


# ---- by hand ----


@dataclasses.dataclass
class Plan:
    """What was chosen, and the sizes of the axes."""

    dtype: str
    sizes: dict[str, int]
    symbols: set[str]
    lead: str  # the batch axes
    heads: Any
    order: str  # "td", "thd" or "htd"
    crossed: bool  # keys of other positions than the queries
    tolerance: float | None = None  # of float32, where it is not the usual one
    shared: bool = False  # all of a batch have the same queries
    given: list[Given] = dataclasses.field(default_factory=list)

    @property
    def queries(self) -> str:
        return self.lead + self.order

    @property
    def own(self) -> str:
        """The axes of the queries as they are given."""
        return self.queries.replace("b", "") if self.shared else self.queries

    @property
    def keys(self) -> str:
        names = self.queries.replace("t", "s") if self.crossed else self.queries
        if self.heads == "multi-query":
            return names.replace("h", "")
        return names.replace("h", "g") if self.heads == "grouped" else names

    @property
    def key(self) -> str:
        return "s" if self.crossed else "t"

    def shape(self, names: str) -> tuple[int, ...]:
        return tuple(self.sizes[name] for name in names)


def _plan(choices: Choices) -> Plan:
    dtype = choices.take("type", "float32", "float32", "float32", "float16", "bfloat16")
    batch = choices.take("batch", None, 1, 2, 2, "symbol", "two axes")
    length = choices.take("length", *[10, 10, 10, 128, "symbol", "symbol", 1] * 3, 2048)
    crossed = choices.take("keys from", "the queries' positions", "the queries' positions", "others") == "others"
    crossed = crossed or length == 1  # a single query looks at several keys
    heads = choices.take("heads", "no axis", 1, 2, 4, 4, "grouped", "multi-query")
    order = "td" if heads == "no axis" else choices.take("order", "thd", "htd")
    lead = {None: "", "two axes": "bc"}.get(batch, "b")
    sizes = {"b": batch if isinstance(batch, int) else 2, "c": 3, "t": length if isinstance(length, int) else 6}
    sizes |= {"s": 7, "h": heads if isinstance(heads, int) else 4, "g": 2, "r": 2, "d": FEATURES, "f": 12}
    sizes["e"] = choices.take("features of values", FEATURES, FEATURES, 6) if crossed else FEATURES
    if length == 2048:
        sizes |= {"b": 1, "c": 1, "h": min(sizes["h"], 4)}
    symbols = {"b"} if batch == "symbol" else set()
    if length == "symbol":
        symbols |= {"t", "s"} if crossed else {"t"}
    plan = Plan(dtype, sizes, symbols, lead, heads, order, crossed)
    shares = choices.take("queries of a batch", *["its own"] * 11, "the same") == "the same"
    plan.shared = shares and crossed and lead == "b" and heads != "grouped"
    return plan


def _by_hand(choices: Choices) -> Form:
    plan = _plan(choices)
    inputs, split = _projected(choices, plan)
    rules = make_rules(choices, plan)
    attend, count = _attend(choices, plan, rules)
    attend = wrapped(choices, plan, attend)
    rules.apart = rules.apart or _too_near(choices, plan, rules) or _BESIDES.get(choices.made["besides"])
    finish = "as it is"
    if "h" in plan.order:
        finish = choices.take("result", "as it is", "merged", "merged and projected", "an image")
    weight = choices.normal((plan.sizes["h"] * plan.sizes["e"], 5), plan.dtype, 0.3)
    row = (
        choices.normal((plan.sizes["e"],), plan.dtype)
        if choices.take("then", *["nothing"] * 7, "a row") != "nothing"
        else None
    )

    def fn(*args: Array) -> Array:
        q, k, v = split(*args[: len(inputs)])
        mixed = attend(q, k, v, *args[len(inputs) :])
        if row is not None:
            mixed = mixed + jnp.asarray(row)
        if finish == "as it is":
            return mixed
        if plan.order == "htd":
            mixed = jnp.swapaxes(mixed, -2, -3)
        if finish == "an image" and "t" not in plan.symbols and plan.sizes["t"] % 2 == 0:
            return mixed.reshape(*mixed.shape[:-3], 2, plan.sizes["t"] // 2, -1)
        mixed = mixed.reshape(*mixed.shape[:-2], -1)
        return mixed @ jnp.asarray(weight) if finish == "merged and projected" else mixed

    everything = inputs + plan.given
    args = [one.array for one in everything]
    specs = [_spec(one, plan) for one in everything] if plan.symbols else None
    form = Form(fn, args, {"Attention": count}, specs, absent=("Softmax",), dtype=plan.dtype, apart=rules.apart)
    form.tolerance = {"float16": 2e-2, "bfloat16": 1e-1}.get(plan.dtype, plan.tolerance)
    if plan.tolerance and plan.dtype != "float32":  # JAX rounds scores as large as the length to halves
        form.tolerance += float(jnp.finfo(plan.dtype).eps) * max(plan.sizes["t"], plan.sizes["s"])
    if any(one.nothing_kept is not None for one in plan.given):
        form.more_args = [[one.array if one.nothing_kept is None else one.nothing_kept for one in everything]]
    return form


def _too_near(choices: Choices, plan: Plan, rules: Rule) -> str | None:
    """What takes the place of scores must be far below them, and leave nothing of what is added to it."""
    scaled = choices.made["scale on"] == "scores" and choices.made["scale goes"] == "last"
    again = choices.made.get("weights", "as they are") != "as they are"
    if rules.adds > -2e4 and scaled and again:
        return "so small a number is divided as the scores are, and what weight it leaves is put out"
    if not rules.takes_place_by:
        return None
    wide = choices.made["products in"] == "float32"
    number = rules.takes_place_by / FEATURES**0.5 if scaled else rules.takes_place_by
    if rules.bias_comes_after and number > (-3e4 if plan.dtype == "float16" and not wide else -9e8):
        return "what is added to so small a number is seen in a row of nothing else"
    if scaled and rules.takes_place_by > -2e4:
        return "so small a number in place of scores is divided as they are, and no longer far below all of them"
    return None


def _spec(given: Given, plan: Plan) -> Any:
    shape = tuple(SYMBOLS[name] if name in plan.symbols else plan.sizes[name] for name in given.names)
    return jax.ShapeDtypeStruct(shape, given.array.dtype)


# ---- queries, keys and values ----


def _projected(choices: Choices, plan: Plan) -> tuple[list[Given], Callable[..., tuple[Array, Array, Array]]]:
    """The arguments, and what makes queries, keys and values of them."""
    same = plan.keys == plan.queries and plan.sizes["e"] == FEATURES
    way = choices.take("projections", "given", "given", "apart", "joined 3hd", "joined h3d", "joined hd3")
    if way == "given" or not same:
        names = (plan.own, plan.keys, plan.keys.replace("d", "e"))
        stored = [_stored(choices, one) for one in names]
        back = [[kept.index(name) for name in one] for kept, one in zip(stored, names, strict=True)]
        given = [Given(one, choices.normal(plan.shape(one), plan.dtype)) for one in stored]
        return given, lambda *all: tuple(jnp.transpose(a, order) for a, order in zip(all, back, strict=True))
    lead, axes = plan.lead, plan.queries
    count = plan.sizes["h"] if "h" in axes else 1
    turned = (lambda a: jnp.swapaxes(a, -2, -3)) if plan.order == "htd" else (lambda a: a)
    apart = (lambda a: a.reshape(*a.shape[:-1], count, FEATURES)) if "h" in axes else (lambda a: a)
    given = [Given(lead + "tf", choices.normal(plan.shape(lead + "tf"), plan.dtype))]
    if way == "apart":
        by = choices.take("projected by", "matmul", "einsum")
        weights = [jnp.asarray(choices.normal((12, count * FEATURES), plan.dtype, 0.3)) for _ in range(3)]
        if by == "einsum" and "h" in axes:
            return given, lambda x: tuple(
                jnp.einsum(f"{lead}tf,fhd->{axes}", x, weight.reshape(12, count, FEATURES)) for weight in weights
            )
        return given, lambda x: tuple(turned(apart(x @ weight)) for weight in weights)
    weight = jnp.asarray(choices.normal((12, 3 * count * FEATURES), plan.dtype, 0.3))
    bias = jnp.asarray(choices.normal((3 * count * FEATURES,), plan.dtype, 0.3))
    order = {"joined 3hd": (3, count, FEATURES), "joined h3d": (count, 3, FEATURES), "joined hd3": (count, FEATURES, 3)}
    at = {"joined 3hd": -3, "joined h3d": -2, "joined hd3": -1}[way]
    by = choices.take("taken apart by", "split", "index", "moveaxis", "heads first")
    heads_first = [*range(len(lead)), len(lead) + 2, len(lead), len(lead) + 3]

    def split(x: Array) -> tuple[Array, Array, Array]:
        joined = x @ weight + bias
        if by == "split" and way == "joined 3hd":
            return tuple(turned(apart(part)) for part in jnp.split(joined, 3, axis=-1))
        joined = joined.reshape(*joined.shape[:-1], *order[way])
        if by == "heads first" and way == "joined 3hd" and plan.order == "htd":
            parts = jnp.transpose(joined, [len(lead) + 1, *heads_first])
            return parts[0], parts[1], parts[2]
        if by in ("moveaxis", "heads first"):
            parts = jnp.moveaxis(joined, at, 0)
            parts = [parts[0], parts[1], parts[2]]
        elif by == "index":
            parts = [jnp.take(joined, i, axis=at) for i in range(3)]
        else:
            parts = [part.reshape(*x.shape[:-1], count, FEATURES) for part in jnp.split(joined, 3, axis=at)]
        return tuple(turned(part) if "h" in axes else part[..., 0, :] for part in parts)

    return given, split


def _stored(choices: Choices, names: str) -> str:
    """The order of axes in which an argument is given: mostly as it is used, else any."""
    letters = list(names)
    if choices.take(f"{names[-1]} stored", *["as used"] * 7, "any") == "any":
        choices.random.shuffle(letters)
    return "".join(letters)


# ---- scales and weights ----


def _scaled(choices: Choices) -> tuple[Callable[..., tuple[Array, Array]], Callable[[Array], Array]]:
    """What scales queries and keys, and what scales scores."""
    place = choices.take("scale on", "queries", "keys", "scores", "scores", "both", "nothing")
    form = choices.take("scale as", "product", "quotient", "root of array", "power", "parameter")
    root = FEATURES**0.5
    learned = choices.numbers.random(1).astype(np.float32) + 0.5

    def scale(array: Array, number: float) -> Array:
        if form == "product":
            return array * (1 / number)
        if form == "quotient":
            return array / number
        if form == "power":
            return array * FEATURES**-0.5 if number == root else array * FEATURES**-0.25
        if form == "parameter":
            return array * jnp.asarray(learned).astype(array.dtype)
        rooted = jnp.sqrt(jnp.asarray(FEATURES, array.dtype))
        return array / (rooted if number == root else jnp.sqrt(rooted))

    def on_inputs(q: Array, k: Array) -> tuple[Array, Array]:
        if place == "queries":
            return scale(q, root), k
        if place == "keys":
            return q, scale(k, root)
        return (scale(q, root**0.5), scale(k, root**0.5)) if place == "both" else (q, k)

    return on_inputs, (lambda scores: scale(scores, root)) if place == "scores" else (lambda scores: scores)


def _softmax(
    choices: Choices, plan: Plan, rules: Rule
) -> Callable[[Array, int, Array | None], tuple[Array, Array | None]]:
    """Weights of scores along an axis and, where they are still to be divided by it, their sum."""
    ways = ["library", "library", "hand", "hand, shift held", "hand, no axis kept", "logsumexp", "divided after"]
    ways += ["log_softmax", "hand, reciprocal", "library, shifted before"]
    if rules.softmax_where:
        ways = ["library where"]
    by = choices.take("softmax by", *ways)
    wide = choices.take("softmax in", "the type", "float32") == "float32"
    after = "as they are"
    if rules.can_put_out_again:
        after = choices.take("weights", *["as they are"] * 12, "put out again", "put out again", "times the mask")

    def softmax(scores: Array, axis: int, mask: Array | None) -> tuple[Array, Array | None]:
        if wide:
            scores = scores.astype(jnp.float32)
        total = None
        if by == "library, shifted before":
            scores = scores - scores.max(axis, keepdims=True)
        if by in ("library", "library, shifted before"):
            weights = jax.nn.softmax(scores, axis=axis)
        elif by == "library where":
            weights = jax.nn.softmax(scores, axis=axis, where=mask)
        elif by == "log_softmax":
            weights = jnp.exp(jax.nn.log_softmax(scores, axis=axis))
        elif by == "hand, reciprocal":
            weights = jnp.exp(scores - scores.max(axis, keepdims=True))
            weights = weights * (1 / weights.sum(axis, keepdims=True))
        elif by == "logsumexp":
            weights = jnp.exp(scores - jax.nn.logsumexp(scores, axis=axis, keepdims=True))
        elif by == "hand, no axis kept":
            weights = jnp.exp(scores - jnp.expand_dims(scores.max(axis), axis))
            weights = weights / jnp.expand_dims(weights.sum(axis), axis)
        else:
            largest = scores.max(axis=axis, keepdims=True)
            if by == "hand, shift held":
                largest = jax.lax.stop_gradient(largest)
            weights = jnp.exp(scores - largest)
            total = weights.sum(axis=axis, keepdims=True)
            if by != "divided after":
                weights, total = weights / total, None
        if after == "put out again" and mask is not None:
            weights = jnp.where(mask, weights, 0)
        if after == "times the mask" and mask is not None:
            weights = weights * mask.astype(weights.dtype)
        return weights.astype(plan.dtype), total

    return softmax


# ---- products ----


def _attend(choices: Choices, plan: Plan, rules: Rule) -> tuple[Callable[..., Array], int]:
    """Attention of queries, keys, values and what is given for masks; and how many operators it becomes."""
    on_inputs, on_scores = _scaled(choices)
    softmax = _softmax(choices, plan, rules)
    wide = choices.take("products in", "the type", "the type", "float32") == "float32" and plan.dtype != "float32"
    prepare = _prepared(choices, plan)
    later = choices.take("scale goes", *["first"] * 7, "last") == "last"
    later = later and choices.made["scale as"] != "parameter"  # what was masked is scaled by what is not known

    besides = choices.take("besides", *["nothing"] * 600, *_BESIDES)

    def weights(scores: Array, names: str, *given: Array) -> tuple[Array, Array | None]:
        named = [(one.names, array) for one, array in zip(plan.given, given, strict=True)]
        scores = scores if later else on_scores(scores)
        if besides == "scores clipped":
            scores = jnp.clip(scores, -2, 2)
        scores, mask = rules.apply(scores, names, named)
        scores = on_scores(scores) if later else scores
        at = names.index("k")
        if besides == "a sink":
            sink = jnp.zeros_like(jax.lax.slice_in_dim(scores, 0, 1, axis=at))
            shares = jax.nn.softmax(jnp.concatenate([scores, sink], at).astype(jnp.float32), axis=at)
            return jax.lax.slice_in_dim(shares, 0, scores.shape[at], axis=at).astype(plan.dtype), None
        shares, total = softmax(scores, at, mask)
        return (jnp.nan_to_num(shares), total) if besides == "NaN put out" else (shares, total)

    product, count = _product(choices, plan, weights)

    def fn(q: Array, k: Array, v: Array, *given: Array) -> Array:
        if wide:
            q, k, v = (array.astype(jnp.float32) for array in (q, k, v))
        return product(*on_inputs(*prepare(q, k)), v, *given).astype(plan.dtype)

    return fn, count


_BESIDES = {
    "scores clipped": "Attention cannot clip scores",
    "a sink": "Attention has no key without a value",
    "NaN put out": "a NaN of a query or a key would be seen",
}


def _prepared(choices: Choices, plan: Plan) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Queries and keys as they are, of one length, or turned by their positions."""
    ways = [*["as they are"] * 6, "normalised", "of length one", "turned", "of more features"]
    way = choices.take("queries and keys", *ways)
    weights = [jnp.asarray(choices.normal((FEATURES,), plan.dtype, 0.3) + 1) for _ in range(2)]

    def normalised(array: Array, weight: Array) -> Array:
        wide = array.astype(jnp.float32)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
        return wide.astype(array.dtype) * weight.astype(array.dtype)

    def turned(array: Array, names: str) -> Array:
        at = names.index("s" if "s" in names else "t")
        angles = jnp.arange(array.shape[at], dtype=jnp.float32)[:, None] * jnp.asarray([1.0, 0.3, 0.1, 0.03])
        after = len(names) - at - 2
        angles = angles.reshape(angles.shape[0], *[1] * after, angles.shape[1])
        a, b = jnp.split(array, 2, axis=-1)
        cosine, sine = jnp.cos(angles).astype(array.dtype), jnp.sin(angles).astype(array.dtype)
        return jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)

    def prepare(q: Array, k: Array) -> tuple[Array, Array]:
        if way == "normalised":
            return normalised(q, weights[0]), normalised(k, weights[1])
        if way == "of length one":
            return tuple(
                a / jnp.linalg.norm(a.astype(jnp.float32), axis=-1, keepdims=True).astype(a.dtype) for a in (q, k)
            )
        if way == "turned":
            return turned(q, plan.own), turned(k, plan.keys)
        if way == "of more features":
            return jnp.concatenate([q, jnp.sin(q[..., :3])], -1), jnp.concatenate([jnp.cos(k[..., :3]), k], -1)
        return q, k

    return prepare


def _product(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> tuple[Callable[..., Array], int]:
    if plan.heads == "grouped":
        way = choices.take(
            "products by", "repeat", "broadcast", "tile", "five axes", "five axes", "five axes by matmul"
        )
        return _of_groups(choices, plan, weights, way), 1
    if plan.shared:
        choices.made["products by"] = "einsum"
        return _by_einsum(choices, plan, weights, plan.queries, plan.keys), 1
    if plan.heads == "multi-query":
        way = choices.take("products by", "einsum", "matmul", "vmap", "broadcast")
    else:
        loops = ["loop"] if "h" in plan.order else []
        ways = ["einsum", "einsum", "matmul", "dot_general", "vmap", "turned", "batch_matmul", "query by query", *loops]
        if plan.queries == "td":
            ways.append("tensordot")
        if plan.sizes["t"] < 2048:
            ways.append("sums")
        way = choices.take("products by", *ways)
    if way == "loop":
        return _by_loop(choices, plan, weights), plan.sizes["h"]
    if way == "einsum":
        return _by_einsum(choices, plan, weights, plan.queries, plan.keys), 1
    if way == "broadcast":
        return _spread_over_heads(choices, plan, weights), 1
    ways = {
        "matmul": _by_matmul,
        "dot_general": _by_dot_general,
        "vmap": _by_vmap,
        "turned": _turned,
        "batch_matmul": _by_matmul,
        "tensordot": _by_tensordot,
        "query by query": _query_by_query,
        "sums": _by_sums,
    }
    return ways[way](choices, plan, weights), 1


def _keyed(names: str) -> str:
    """The keys' position is k, whatever it is called."""
    return names.replace("s", "k").replace("t", "k")


def _divided(mixed: Array, names: str, total: Array | None, total_names: str) -> Array:
    """By the sum of the weights, if it is left, whose axes are those of the scores."""
    if total is None:
        return mixed
    return (mixed / placed(total, total_names.replace("k", "e"), names)).astype(mixed.dtype)


def _by_einsum(
    choices: Choices, plan: Plan, weights: Callable[..., Any], queries: str, keys: str
) -> Callable[..., Array]:
    lead = queries.replace("t", "").replace("d", "")
    turned = choices.take("axes of scores", *["heads, queries, keys"] * 4, "any")
    scores_names = list(lead + "tk")
    if turned == "any":
        choices.random.shuffle(scores_names)
        choices.made["axes of scores"] = "".join(scores_names)
    names = "".join(scores_names)
    order = choices.take("operands", "in order", "in order", "weights last")
    result = queries.replace("d", "e")
    own = plan.own if plan.shared else queries

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        columns, values = _keyed(keys), _keyed(keys).replace("d", "e")
        if order == "in order":
            scores = jnp.einsum(f"{own},{columns}->{names}", q, k)
        else:
            scores = jnp.einsum(f"{columns},{own}->{names}", k, q)
        shares, total = weights(scores, names, *given)
        if order == "in order":
            mixed = jnp.einsum(f"{names},{values}->{result}", shares, v)
        else:
            mixed = jnp.einsum(f"{values},{names}->{result}", v, shares)
        return _divided(mixed, result, total, names)

    return product


def _heads_first(plan: Plan) -> Callable[[Array], Array]:
    return (lambda array: jnp.swapaxes(array, -2, -3)) if plan.order == "thd" else (lambda array: array)


def _by_matmul(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    first = _heads_first(plan)
    single = plan.heads == "multi-query"
    by_lax = choices.made["products by"] == "batch_matmul" and plan.queries != "td"
    matmul = jax.lax.batch_matmul if by_lax else jnp.matmul
    names = plan.lead + ("htk" if "h" in plan.order else "tk")
    result = names.replace("k", "e")

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        q, k, v = (first(q), *(jnp.expand_dims(a, -3) if single else first(a) for a in (k, v)))
        shares, total = weights(matmul(q, jnp.swapaxes(k, -1, -2)), names, *given)
        return first(_divided(matmul(shares, v), result, total, names))

    return product


def _by_tensordot(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        shares, total = weights(jnp.tensordot(q, k, axes=((1,), (1,))), "tk", *given)
        return _divided(jnp.tensordot(shares, v, axes=1), "te", total, "tk")

    return product


def _by_sums(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    """Products of numbers, added up."""
    first = _heads_first(plan)
    names = plan.lead + ("htk" if "h" in plan.order else "tk")
    result = names.replace("k", "e")

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        q, k, v = map(first, (q, k, v))
        scores = jnp.sum(q[..., :, None, :] * k[..., None, :, :], axis=-1)
        shares, total = weights(scores, names, *given)
        mixed = jnp.sum(shares[..., None] * v[..., None, :, :], axis=-2)
        return first(_divided(mixed, result, total, names))

    return product


def _query_by_query(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    """Keys times one query, mapped over the queries; the weights of all of them at once, and again one by one."""
    first = _heads_first(plan)
    names = plan.lead + ("htk" if "h" in plan.order else "tk")
    result = names.replace("k", "e")

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        q, k, v = map(first, (q, k, v))
        scores = jax.vmap(lambda one: jnp.matvec(k, one), -2, -2)(q)
        shares, total = weights(scores, names, *given)
        mixed = jax.vmap(lambda one: jnp.vecmat(one, v), -2, -2)(shares)
        return first(_divided(mixed, result, total, names))

    return product


def _by_dot_general(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    """Contracted where the axes stand: batch axes come out first, whatever their order was."""
    swapped = choices.take("operands", "in order", "keys first")
    lead = [name for name in plan.queries if name in "bch"]
    at = lambda names: tuple(names.index(name) for name in lead)  # noqa: E731
    keys, queries = _keyed(plan.keys), plan.queries
    values = keys.replace("d", "e")

    def contract(a: Array, of_a: str, b: Array, of_b: str, over: str) -> tuple[Array, str]:
        dims = (((of_a.index(over),), (of_b.index(over),)), (at(of_a), at(of_b)))
        rest = [name for name in of_a + of_b if name not in lead and name != over]
        return jax.lax.dot_general(a, b, dims), "".join(lead + rest)

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        pair = (q, queries, k, keys) if swapped == "in order" else (k, keys, q, queries)
        scores, names = contract(*pair, "d")
        shares, total = weights(scores, names, *given)
        mixed, made = contract(shares, names, v, values, "k")
        mixed = _divided(mixed, made, total, names)
        return jnp.transpose(mixed, [made.index(name) for name in queries.replace("d", "e")])

    return product


def _turned(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    """Keys times queries, the softmax over the rows: everything the other way round."""
    first = _heads_first(plan)
    names = plan.lead + ("hkt" if "h" in plan.order else "kt")
    result = plan.lead + ("hte" if "h" in plan.order else "te")

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        q, k, v = map(first, (q, k, v))
        shares, total = weights(k @ jnp.swapaxes(q, -1, -2), names, *given)
        mixed = jnp.swapaxes(jnp.swapaxes(v, -1, -2) @ shares, -1, -2)
        return first(_divided(mixed, result, total, names))

    return product


def _by_vmap(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    outer = choices.take("mapped", "batch outside", "heads outside") if plan.lead and "h" in plan.order else ""
    letters = [*plan.lead, *(["h"] if "h" in plan.order else [])]
    if outer == "heads outside":
        letters.insert(0, letters.pop())
    given_names = [one.names for one in plan.given]

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        def one(q: Array, k: Array, v: Array, *given: Array) -> Array:
            shares, total = weights(q @ k.T, "tk", *given)
            return _divided(shares @ v, "te", total, "tk")

        mapped, names = one, ["td", "kd", "ke", *(strip(n, letters) for n in given_names)]
        full = [plan.queries, _keyed(plan.keys), _keyed(plan.keys).replace("d", "e"), *given_names]
        result = "te"
        for letter in reversed(letters):
            outside = letters[: letters.index(letter)]
            here = [strip(n, outside) for n in full]
            result_here = strip(plan.queries.replace("d", "e"), outside)
            at = [n.index(letter) if letter in n else None for n in here]
            mapped, result = jax.vmap(mapped, tuple(at), result_here.index(letter)), result_here
            names = here
        del names, result
        return mapped(q, k, v, *given)

    def strip(names: str, letters: list[str]) -> str:
        return "".join(name for name in names if name not in letters)

    return product


def _by_loop(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    """One head after the other."""
    joined = choices.take("heads joined by", "stack", "concatenate")
    axis = plan.queries.index("h")

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        heads = []
        for head in range(plan.sizes["h"]):
            one, other, third = (jnp.take(a, head, axis=axis) for a in (q, k, v))
            # what differs from head to head has its head apart
            own = [
                jnp.take(a, jnp.asarray([head]), axis=g.names.index("h")) if "h" in g.names else a
                for g, a in zip(plan.given, given, strict=True)
            ]
            scores = jnp.expand_dims(one @ jnp.swapaxes(other, -1, -2), len(plan.lead))
            plan.sizes["head"] = head
            shares, total = weights(scores, plan.lead + "htk", *own)
            del plan.sizes["head"]
            mixed = _divided(
                shares @ jnp.expand_dims(third, len(plan.lead)), plan.lead + "hte", total, plan.lead + "htk"
            )
            heads.append(jnp.squeeze(mixed, len(plan.lead)))
        if joined == "stack":
            return jnp.stack(heads, axis)
        return jnp.concatenate([jnp.expand_dims(head, axis) for head in heads], axis)

    return product


def _spread_over_heads(choices: Choices, plan: Plan, weights: Callable[..., Any]) -> Callable[..., Array]:
    """One head of keys and values, spread over all."""
    at = plan.queries.index("h")
    keys = plan.queries.replace("t", plan.key)
    plain = _by_einsum(choices, plan, weights, plan.queries, keys)

    def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
        def spread(a: Array) -> Array:
            a = jnp.expand_dims(a, at)
            return jnp.broadcast_to(a, (*a.shape[:at], plan.sizes["h"], *a.shape[at + 1 :]))

        return plain(q, spread(k), spread(v), *given)

    return product


def _of_groups(choices: Choices, plan: Plan, weights: Callable[..., Any], way: str) -> Callable[..., Array]:
    at = plan.queries.index("h") - len(plan.queries)
    times = plan.sizes["r"]
    if way in ("repeat", "broadcast", "tile"):
        spread = {"repeat": _repeated, "broadcast": _spread, "tile": _tiled}[way]
        plain = _by_einsum(choices, plan, weights, plan.queries, plan.queries.replace("t", plan.key))
        return lambda q, k, v, *given: plain(q, spread(k, at, times), spread(v, at, times), *given)
    apart = plan.queries.replace("h", "gr")

    def five(inner: Callable[..., Array]) -> Callable[..., Array]:
        def product(q: Array, k: Array, v: Array, *given: Array) -> Array:
            where = q.ndim + at
            q = q.reshape(*q.shape[:where], plan.sizes["g"], times, *q.shape[where + 1 :])
            mixed = inner(q, k, v, *given)
            return mixed.reshape(*mixed.shape[:where], -1, *mixed.shape[where + 2 :])

        return product

    if way == "five axes":
        return five(_by_einsum(choices, plan, weights, apart, plan.keys))
    names = plan.lead + "grtk"

    def by_matmul(q: Array, k: Array, v: Array, *given: Array) -> Array:
        if plan.order == "thd":
            q, k, v = jnp.moveaxis(q, -4, -2), jnp.swapaxes(k, -2, -3), jnp.swapaxes(v, -2, -3)
        k, v = jnp.expand_dims(k, -3), jnp.expand_dims(v, -3)
        shares, total = weights(q @ jnp.swapaxes(k, -1, -2), names, *given)
        mixed = _divided(shares @ v, plan.lead + "grte", total, names)
        return jnp.moveaxis(mixed, -2, -4) if plan.order == "thd" else mixed

    return five(by_matmul)


def _repeated(array: Array, at: int, times: int) -> Array:
    return jnp.repeat(array, times, at)


def _tiled(array: Array, at: int, times: int) -> Array:
    return jnp.concatenate([array] * times, at)


def _spread(array: Array, at: int, times: int) -> Array:
    at += array.ndim
    spread = jnp.broadcast_to(jnp.expand_dims(array, at + 1), (*array.shape[: at + 1], times, *array.shape[at + 1 :]))
    return spread.reshape(*array.shape[:at], array.shape[at] * times, *array.shape[at + 1 :])
