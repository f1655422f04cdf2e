"""Fit the polynomials of src/lower/*_tables.inc: Chebyshev interpolation in high precision, printed as C.

Run with mpmath installed:
    python tools/fit_special_functions.py special > src/lower/elementwise/special_tables.inc
    python tools/fit_special_functions.py erfc > src/passes/expand/erfc_tables.inc
    python tools/fit_special_functions.py bessel > src/lower/elementwise/bessel_tables.inc
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath
from mpmath import mp, mpf

mp.dps = 60


def fit(function: Callable[[mpf], mpf], low: mpf, high: mpf, degree: int) -> list[mpf]:
    """Monomial coefficients in t = (2 x - low - high) / (high - low), which runs from -1 to 1."""
    count = degree + 1
    nodes = [mpmath.cos(mpmath.pi * (k + mpf(1) / 2) / count) for k in range(count)]
    values = [function((low + high) / 2 + (high - low) / 2 * t) for t in nodes]
    chebyshev = [
        2 / mpf(count) * sum(v * mpmath.cos(mpmath.pi * j * (k + mpf(1) / 2) / count) for k, v in enumerate(values))
        for j in range(count)
    ]
    chebyshev[0] /= 2
    previous, current = [mpf(1)], [mpf(0), mpf(1)]
    total = [mpf(0)] * count
    for j, weight in enumerate(chebyshev):
        basis = previous if j == 0 else current
        for power, value in enumerate(basis):
            total[power] += weight * value
        if j > 0:
            following = [mpf(0), *(2 * value for value in current)]
            for power, value in enumerate(previous):
                following[power] -= value
            previous, current = current, following
    return total


def show(name: str, comment: str, coefficients: list[mpf]) -> None:
    print(f"/* {comment} */")
    print(f"static const double {name}[] = {{")
    for at in range(0, len(coefficients), 4):
        print("    " + " ".join(f"{float(value)!r}," for value in coefficients[at : at + 4]))
    print("};\n")


SCALE = mpf(4)  # of the map u = SCALE / (x + SCALE) from [0, infinity) to (0, 1]


def scaled_erfc(t: mpf) -> mpf:
    """exp(x^2) erfc(x) / u as a function of t = 2 u - 1."""
    u = (t + 1) / 2
    if u < mpf(10) ** -30:
        return 1 / (mpmath.sqrt(mpmath.pi) * SCALE)
    x = SCALE / u - SCALE
    if x > 30:  # the asymptotic series is exact to working precision there
        total, term = mpf(1), mpf(1)
        for k in range(1, 40):
            term *= -(2 * k - 1) / (2 * x * x)
            total += term
            if abs(term) < mpf(10) ** -40:
                break
        return total / (x * mpmath.sqrt(mpmath.pi)) / u
    return mpmath.exp(x * x) * mpmath.erfc(x) / u


def erf_over_x(square: mpf) -> mpf:
    x = mpmath.sqrt(square)
    return mpmath.erf(x) / x if x > mpf(10) ** -25 else 2 / mpmath.sqrt(mpmath.pi)


def erf_inv_over_x(w: mpf) -> mpf:
    """erf_inv(x) / x as a function of w = -log(1 - x^2)."""
    if w < mpf(10) ** -25:
        return mpmath.sqrt(mpmath.pi) / 2
    x = mpmath.sqrt(-mpmath.expm1(-w))
    guess = mpmath.sqrt(w) * mpf("0.9")
    rest = mpmath.exp(-w) / (1 + x)  # 1 - x without cancellation
    # Newton on log(erfc(y)) = log(1 - x), which is nearly a parabola.
    for _ in range(100):
        value = mpmath.erfc(guess)
        slope = -2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-guess * guess) / value
        step = (mpmath.log(value) - mpmath.log(rest)) / slope
        guess -= step
        if abs(step) < mpf(10) ** -45:
            break
    return guess / x


def scaled_bessel(order: int, x: mpf) -> mpf:
    return mpmath.exp(-x) * mpmath.besseli(order, x)


def bessel_near(order: int, x: mpf) -> mpf:
    """exp(-x) I0(x), or exp(-x) I1(x) / x, which is even."""
    if order == 0:
        return scaled_bessel(0, x)
    return scaled_bessel(1, x) / x if x > mpf(10) ** -25 else mpf(1) / 2


def bessel_far(order: int, inverse: mpf) -> mpf:
    """sqrt(x) exp(-x) I(x) as a function of 1 / x."""
    if inverse < mpf(10) ** -20:
        return 1 / mpmath.sqrt(2 * mpmath.pi)
    return mpmath.sqrt(1 / inverse) * scaled_bessel(order, 1 / inverse)


def bessel_tables() -> None:
    for order in (0, 1):
        over = " / x" if order else ""
        text = f"exp(-x) I{order}(x){over}, 0 <= x <= 8, with t = x / 4 - 1"
        near = fit(lambda x, order=order: bessel_near(order, x), mpf(0), mpf(8), BESSEL[0])
        show(f"bessel_i{order}e_near", text, near)
        text = f"sqrt(x) exp(-x) I{order}(x), x >= 8, with t = 16 / x - 1"
        far = fit(lambda inverse, order=order: bessel_far(order, inverse), mpf(0), mpf(1) / 8, BESSEL[1])
        show(f"bessel_i{order}e_far", text, far)


def erfc_tables() -> None:
    for bits, degree in ((32, ERFC[0]), (64, ERFC[1])):
        text = "exp(x^2) erfc(x) / u, x >= 0, with u = 4 / (x + 4) and t = 2 u - 1"
        show(f"erfc_float{bits}", text, fit(scaled_erfc, mpf(-1), mpf(1), degree))


def special_tables() -> None:
    show("erf_float64", "erf(x) / x, |x| <= 1, with t = 2 x^2 - 1", fit(erf_over_x, mpf(0), mpf(1), ERF))
    for bits, center, tail, end in ((32, *ERF_INV[0]), (64, *ERF_INV[1])):
        text = "erf_inv(x) / x with w = -log(1 - x^2)"
        show(f"erf_inv_center_float{bits}", f"{text} <= 6, t = w / 3 - 1", fit(erf_inv_over_x, mpf(0), mpf(6), center))
        low = mpmath.sqrt(6)
        coefficients = fit(lambda s: erf_inv_over_x(s * s), low, mpf(end), tail)
        show(f"erf_inv_tail_float{bits}", f"{text}, s = sqrt(w) from sqrt(6) to {end}", coefficients)


# Degrees at which the error reaches the rounding of the element type; and where float arguments below 1 end.
ERFC = (11, 23)
ERF = 11
BESSEL = (29, 24)
ERF_INV = ((10, 7, 4.1), (23, 26, 6.1))

if __name__ == "__main__":
    print("/* Generated by tools/fit_special_functions.py; do not edit. Polynomials in t from -1 to 1. */\n")
    {"special": special_tables, "erfc": erfc_tables, "bessel": bessel_tables}[sys.argv[1]]()
