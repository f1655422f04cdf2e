"""Programs whose work is small: factorisations of a few rows, control flow over scalars, random numbers inside loops.

Each is a function and its arguments. Those of libraries are there when the library is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Program = tuple[str, Callable[..., Any], tuple[Any, ...]]


def newton_system(x: jax.Array) -> jax.Array:
    """Newton's method for three equations: a Jacobian and a solve a step."""

    def residual(x: jax.Array) -> jax.Array:
        return jnp.array([x[0] ** 2 + x[1] - 2, x[1] ** 2 + x[2] - 2, x[2] ** 2 + x[0] - 2])

    def step(_: Any, x: jax.Array) -> jax.Array:
        return x - jnp.linalg.solve(jax.jacfwd(residual)(x), residual(x))

    return lax.fori_loop(0, 6, step, x)


def kalman_filter(observations: jax.Array) -> jax.Array:
    """Four states, two observed: a 2 x 2 solve an observation."""
    move = jnp.eye(4) + 0.1 * jnp.eye(4, k=2)
    see = jnp.eye(2, 4)

    def step(carry: tuple[jax.Array, jax.Array], z: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        x, p = carry
        x, p = move @ x, move @ p @ move.T + 0.01 * jnp.eye(4)
        gain = jnp.linalg.solve(see @ p @ see.T + 0.1 * jnp.eye(2), see @ p).T
        x, p = x + gain @ (z - see @ x), (jnp.eye(4) - gain @ see) @ p
        return (x, p), x

    return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), observations)[1]


def gaussian_densities(x: jax.Array, covariances: jax.Array) -> jax.Array:
    """Log densities of a batch of 3-dimensional Gaussians, by their Cholesky factors."""
    factors = jnp.linalg.cholesky(covariances)
    solved = lax.linalg.triangular_solve(factors, x[..., None], left_side=True, lower=True)[..., 0]
    logs = jnp.log(jnp.diagonal(factors, axis1=-2, axis2=-1)).sum(-1)
    return -0.5 * (solved**2).sum(-1) - logs - 1.5 * jnp.log(2 * jnp.pi)


def principal_axes(tensors: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues and eigenvectors of a batch of 3 x 3 tensors."""
    return jnp.linalg.eigh(tensors + jnp.swapaxes(tensors, -1, -2))


def inverses(matrices: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Inverses and determinants of 4 x 4 matrices."""
    return jnp.linalg.inv(matrices), jnp.linalg.det(matrices)


def least_squares(points: jax.Array, values: jax.Array) -> jax.Array:
    """A parabola through eight points, by QR."""
    q, r = jnp.linalg.qr(jnp.stack([jnp.ones_like(points), points, points**2], 1))
    return lax.linalg.triangular_solve(r, (q.T @ values)[:, None], left_side=True)[:, 0]


def controller(errors: jax.Array) -> jax.Array:
    """A controller whose integral is held while the output is limited."""

    def step(carry: tuple[jax.Array, jax.Array], error: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        integral, last = carry
        raw = 2.0 * error + 0.5 * integral + 0.1 * (error - last)
        output = lax.cond(jnp.abs(raw) > 1, lambda r: jnp.sign(r), lambda r: r, raw)
        integral = lax.cond(output == raw, lambda i, e: i + 0.01 * e, lambda i, e: i, integral, error)
        return (integral, error), output

    return lax.scan(step, (jnp.float32(0), jnp.float32(0)), errors)[1]


def lorenz(state: jax.Array) -> jax.Array:
    """Eight steps of Runge and Kutta's method."""

    def slope(s: jax.Array) -> jax.Array:
        x, y, z = s
        return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8 / 3 * z])

    def step(_: Any, s: jax.Array) -> jax.Array:
        k1 = slope(s)
        k2 = slope(s + 0.005 * k1)
        k3 = slope(s + 0.005 * k2)
        k4 = slope(s + 0.01 * k3)
        return s + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return lax.fori_loop(0, 8, step, state)


def random_walk(key: jax.Array) -> jax.Array:
    """A split and a draw a step, the key carried along."""

    def step(carry: tuple[jax.Array, jax.Array], _: Any) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        key, x = carry
        key, now = jax.random.split(key)
        x = x + 0.1 * jax.random.normal(now) - 0.01 * x
        return (key, x), x

    return lax.scan(step, (jax.random.wrap_key_data(key), jnp.float32(0)), length=50)[1]


def euler_maruyama(key: jax.Array, x: jax.Array) -> jax.Array:
    """A stochastic equation of three variables, the noise of each step from a key of its own."""
    keys = jax.random.split(jax.random.wrap_key_data(key), 40)

    def step(x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = x + 0.05 * jnp.sin(x) + 0.2 * jax.random.normal(key, (3,))
        return x, x

    return lax.scan(step, x, keys)[1]


def metropolis(key: jax.Array) -> jax.Array:
    """A Markov chain: proposals by fold_in, accepted by cond."""
    key = jax.random.wrap_key_data(key)

    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        a, b = jax.random.split(jax.random.fold_in(key, i))
        proposal = x + 0.5 * jax.random.normal(a, (2,))
        better = jnp.log(jax.random.uniform(b)) < 0.5 * (jnp.sum(x**2) - jnp.sum(proposal**2))
        return lax.cond(better, lambda: proposal, lambda: x)

    return lax.fori_loop(0, 30, step, jnp.zeros(2))


def bouncing_ball(height: jax.Array) -> jax.Array:
    """A switch of three states in a loop that stops by itself."""

    def fly(h: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        return h + 0.02 * v, v - 0.2

    def bounce(h: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        return -h, -0.8 * v

    def rest(h: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros_like(h), jnp.zeros_like(v)

    def step(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        i, h, v = state
        which = jnp.where(h < 0, jnp.where(jnp.abs(v) < 0.05, 2, 1), 0)
        return (i + 1, *lax.switch(which, [fly, bounce, rest], h, v))

    return lax.while_loop(lambda s: s[0] < 100, step, (0, height, jnp.float32(0)))[1]


def bisection(target: jax.Array) -> jax.Array:
    """Thirty halvings of an interval."""

    def step(_: Any, interval: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = interval
        middle = 0.5 * (low + high)
        return lax.cond(jnp.sin(middle) < target, lambda: (middle, high), lambda: (low, middle))

    return lax.fori_loop(0, 30, step, (jnp.float32(0), jnp.float32(1.5)))[0]


def attitude(orientation: jax.Array, turns: jax.Array) -> jax.Array:
    """Quaternions that are turned step by step, written number by number."""

    def step(q: jax.Array, turn: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, b, c, d = q
        x, y, z = turn
        change = [-b * x - c * y - d * z, a * x + c * z - d * y, a * y - b * z + d * x, a * z + b * y - c * x]
        q = q + 0.005 * jnp.array(change)
        q = q / jnp.linalg.norm(q)
        return q, q

    return lax.scan(step, orientation, turns)[1]


def cart_and_pole(state: jax.Array, pushes: jax.Array) -> jax.Array:
    """A pole on a cart, set up anew when it has fallen."""

    def step(state: jax.Array, push: jax.Array) -> tuple[jax.Array, jax.Array]:
        _, speed, angle, turning = state
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        push = (jnp.where(push > 0, 10.0, -10.0) + 0.05 * turning**2 * sine) / 1.1
        pull = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        slope = jnp.array([speed, push - 0.05 * pull * cosine / 1.1, turning, pull])
        state = state + 0.02 * slope
        fallen = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 0.2)
        return jnp.where(fallen, 0.0, state), state

    return lax.scan(step, state, pushes)[1]


def hamiltonian(key: jax.Array, x: jax.Array) -> jax.Array:
    """A Markov chain whose proposals are five steps of a trajectory."""

    def density(x: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(x**2)

    def leap(_: Any, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, v = at
        x = x + 0.1 * v
        return x, v + 0.1 * jax.grad(density)(x)

    def step(x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, b = jax.random.split(key)
        v = jax.random.normal(a, (2,))
        to, end = lax.fori_loop(0, 5, leap, (x, v + 0.05 * jax.grad(density)(x)))
        gain = density(to) - 0.5 * end @ end - density(x) + 0.5 * v @ v
        x = jnp.where(jnp.log(jax.random.uniform(b)) < gain, to, x)
        return x, x

    return lax.scan(step, x, jax.random.split(jax.random.wrap_key_data(key), 20))[1]


def moving_average(values: jax.Array) -> jax.Array:
    """A linear recurrence: what is known of each step is known before."""

    def step(mean: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = mean + 0.1 * (value - mean)
        return mean, mean

    return lax.scan(step, jnp.float32(0), values)[1]


def collatz(number: jax.Array) -> jax.Array:
    """Integers that are halved or tripled until they are one."""

    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        number, count = state
        return lax.cond(number % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, number), count + 1

    return lax.while_loop(lambda state: state[0] != 1, step, (number, 0))[1]


def knapsack(weights: jax.Array, values: jax.Array) -> jax.Array:
    """Dynamic programming: the best of every capacity, one thing after the other."""
    capacity = jnp.arange(21)

    def step(best: jax.Array, thing: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        weight, value = thing
        with_it = best[jnp.maximum(capacity - weight, 0)] + value
        return jnp.where(capacity >= weight, jnp.maximum(best, with_it), best), None

    return lax.scan(step, jnp.zeros(21), (weights, values))[0][-1]


def conjugate_gradient(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """Six equations, solved as far as a tolerance asks."""

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        x, rest, way, size, count = state
        along = matrix @ way
        far = size / (way @ along)
        x, rest = x + far * way, rest - far * along
        left = rest @ rest
        return x, rest, rest + left / size * way, left, count + 1

    start = (jnp.zeros(6), right, right, right @ right, 0)
    return lax.while_loop(lambda state: (state[3] > 1e-10) & (state[4] < 20), step, start)[0]


def likeliest_path(emissions: jax.Array, moves: jax.Array) -> jax.Array:
    """Viterbi's algorithm: forwards for the scores, backwards along the best."""

    def forwards(scores: jax.Array, emission: jax.Array) -> tuple[jax.Array, jax.Array]:
        each = scores[:, None] + moves
        return jnp.max(each, 0) + emission, jnp.argmax(each, 0)

    def backwards(state: jax.Array, best: jax.Array) -> tuple[jax.Array, jax.Array]:
        return best[state], best[state]

    scores, best = lax.scan(forwards, emissions[0], emissions[1:])
    return lax.scan(backwards, jnp.argmax(scores), best, reverse=True)[1]


def pseudo_inverse(matrix: jax.Array) -> jax.Array:
    """By singular values."""
    return jnp.linalg.pinv(matrix)


def written_here() -> Iterator[Program]:
    rng = np.random.default_rng(0)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    key = jax.random.key_data(jax.random.key(3))
    spread = array(16, 3, 3)
    yield "newton_system", newton_system, (jnp.array([1.5, 0.5, 1.2]),)
    yield "kalman_filter", kalman_filter, (array(30, 2),)
    yield "gaussian_densities", gaussian_densities, (array(16, 3), spread @ jnp.swapaxes(spread, 1, 2) + jnp.eye(3))
    yield "principal_axes", principal_axes, (array(4, 3, 3),)
    yield "inverses", inverses, (array(5, 4, 4),)
    yield "least_squares", least_squares, (jnp.linspace(-1, 1, 8), array(8))
    yield "controller", controller, (array(50),)
    yield "lorenz", lorenz, (jnp.array([1.0, 2.0, 20.0]),)
    yield "random_walk", random_walk, (key,)
    yield "euler_maruyama", euler_maruyama, (key, array(3))
    yield "metropolis", metropolis, (key,)
    yield "bouncing_ball", bouncing_ball, (jnp.float32(1),)
    yield "bisection", bisection, (jnp.float32(0.6),)
    yield "attitude", attitude, (jnp.array([1.0, 0, 0, 0]), array(30, 3))
    yield "cart_and_pole", cart_and_pole, (jnp.full(4, 0.01), array(30))
    yield "hamiltonian", hamiltonian, (key, array(2))
    yield "moving_average", moving_average, (array(100),)
    yield "collatz", collatz, (jnp.int32(27),)
    yield "knapsack", knapsack, (jnp.arange(10) % 7 + 1, jnp.abs(array(10)))
    square = array(6, 6)
    yield "conjugate_gradient", conjugate_gradient, (square @ square.T + 6 * jnp.eye(6), array(6))
    yield "likeliest_path", likeliest_path, (array(20, 4), array(4, 4))
    yield "pseudo_inverse", pseudo_inverse, (array(6, 3),)


def of_diffrax() -> Iterator[Program]:
    import diffrax  # type: ignore[import-not-found]

    def robertson(start: jax.Array) -> jax.Array:
        def slope(t: Any, y: jax.Array, args: Any) -> jax.Array:
            a, b, c = 0.04 * y[0], 3e7 * y[1] ** 2, 1e4 * y[1] * y[2]
            return jnp.stack([c - a, a - b - c, b])

        controller = diffrax.PIDController(rtol=1e-3, atol=1e-6)
        solver = diffrax.Kvaerno3()
        terms = diffrax.ODETerm(slope)
        return diffrax.diffeqsolve(
            terms, solver, 0.0, 10.0, 1e-3, start, stepsize_controller=controller, max_steps=None, throw=False
        ).ys

    def sde(key: jax.Array) -> jax.Array:
        motion = diffrax.UnsafeBrownianPath(shape=(), key=jax.random.wrap_key_data(key))
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(lambda t, y, args: 0.1 * t, motion)
        )
        return diffrax.diffeqsolve(
            terms, diffrax.Euler(), 0.0, 1.0, 0.0625, jnp.float32(1), adjoint=diffrax.DirectAdjoint(), throw=False
        ).ys

    def oscillator(start: jax.Array) -> jax.Array:
        def slope(t: Any, y: jax.Array, args: Any) -> jax.Array:
            return jnp.stack([y[1], (1 - y[0] ** 2) * y[1] - y[0]])

        controller = diffrax.PIDController(rtol=1e-3, atol=1e-4)
        return diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            diffrax.Tsit5(),
            0.0,
            3.0,
            0.05,
            start,
            stepsize_controller=controller,
            max_steps=None,
            throw=False,
        ).ys

    def saved(start: jax.Array) -> jax.Array:
        term = diffrax.ODETerm(lambda t, y, args: -y * jnp.sin(t))
        times = diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, 5))
        return diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 2.0, 0.05, start, saveat=times, throw=False).ys

    yield "diffrax stiff", robertson, (jnp.array([1.0, 0.0, 0.0]),)
    yield "diffrax adaptive", oscillator, (jnp.array([2.0, 0.0]),)
    yield "diffrax saved", saved, (jnp.float32(1),)
    yield "diffrax sde", sde, (jax.random.key_data(jax.random.key(0)),)


def of_brax() -> Iterator[Program]:
    from brax import envs  # type: ignore[import-not-found]

    environment = envs.get_environment("inverted_pendulum", backend="generalized")
    state = environment.reset(jax.random.key(0))
    leaves, tree = jax.tree.flatten(state)

    def step(action: jax.Array, *leaves: jax.Array) -> Any:
        after = environment.step(jax.tree.unflatten(tree, leaves), action)
        return after.obs, after.reward

    yield "brax step", step, (jnp.zeros(environment.action_size), *leaves)


def of_mctx() -> Iterator[Program]:
    import mctx  # type: ignore[import-not-found]

    def search(key: jax.Array, logits: jax.Array) -> jax.Array:
        root = mctx.RootFnOutput(prior_logits=logits, value=jnp.zeros(2), embedding=jnp.zeros((2, 3)))

        def simulate(params: Any, key: Any, action: jax.Array, embedding: jax.Array) -> Any:
            after = embedding + action[:, None] * 0.1
            out = mctx.RecurrentFnOutput(
                reward=jnp.sin(after[:, 0]), discount=jnp.full(2, 0.9), prior_logits=logits, value=jnp.cos(after[:, 1])
            )
            return out, after

        key = jax.random.wrap_key_data(key)
        return mctx.muzero_policy((), key, root, simulate, num_simulations=16, max_depth=5).action_weights

    yield "mctx search", search, (jax.random.key_data(jax.random.key(1)), jnp.zeros((2, 4)))


def of_optimistix() -> Iterator[Program]:
    import optimistix  # type: ignore[import-not-found]

    def root(numbers: jax.Array) -> jax.Array:
        def residual(y: jax.Array, args: jax.Array) -> jax.Array:
            return jnp.stack([y[0] ** 2 + y[1] - args[0], y[1] ** 2 - y[0] - args[1]])

        solver = optimistix.Newton(rtol=1e-5, atol=1e-5)
        return optimistix.root_find(residual, solver, jnp.ones(2), args=numbers, throw=False, max_steps=16).value

    yield "optimistix root", root, (jnp.array([2.0, 1.0]),)


def of_libraries() -> Iterator[Program]:
    for programs in (of_diffrax, of_optimistix, of_brax, of_mctx):
        try:
            yield from programs()
        except ModuleNotFoundError as missing:
            print(f"{programs.__name__[3:]:>20}: not measured, {missing.name} is not installed")
