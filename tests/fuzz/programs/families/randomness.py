"""Statements that draw random numbers: from a fixed key, or from one that an input decides."""

from __future__ import annotations

from scope import Scope, draft

DRAWS = [
    # what is drawn, and whether it is exact
    ("jax.random.normal(%s, (2, 3))", False),
    ("jax.random.uniform(%s, (4,))", False),
    ("jax.random.bits(%s, (3,))", True),
    ("jax.random.randint(%s, (3,), 0, 5)", True),
    ("jax.random.permutation(%s, 5)", True),
    ("jax.random.bernoulli(%s, 0.3, (2, 2))", True),
    ("jax.random.gumbel(%s, (3,))", False),
    ("jax.random.truncated_normal(%s, -1.0, 1.0, (3,))", False),
    ("jax.random.choice(%s, 7, (2,))", True),
    ("jax.random.exponential(%s, (2,))", False),
]


def fixed(s: Scope):
    text, exact = s.choice(DRAWS)
    return draft(text % f"jax.random.key({s.rng.randint(0, 99)})", exact=exact)


def from_data(s: Scope):
    text, exact = s.choice(DRAWS)
    i = s.pick("iu", high=0)
    return draft(
        text % s.choice(["jax.random.fold_in(jax.random.key(1), {0})", "jax.random.split(jax.random.key({0}))[1]"]),
        i,
        exact=exact,
    )


FAMILY = (fixed, from_data)
