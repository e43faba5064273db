"""Distributions of counts: poisson, binomial, multinomial, geometric, by JAX's algorithms.

Sources: Knuth's multiplication and Hoermann 1993, "The transformed rejection method for generating
Poisson random variables" and "The generation of binomial random variates" (BTRS).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.config import config
from lumjax.control.scan import scan, while_loop
from lumjax.debugging.keys import consumed, unchecked
from lumjax.errors import DTypeError
from lumjax.random.core import Key, drawn_shape, floating, key_data, split, uniform
from lumjax.random.gamma import common_shape
from lumjax.trace.core import aval_of

Shape = Sequence[Any]


def _repeated(go_on: Callable[[Any], Any], step: Callable[[Any], Any], start: Any) -> Any:
    """while_loop; outside of jit it is interpreted, as few rounds are not worth compiling."""
    with config.scope(interpret=True):
        return while_loop(go_on, step, start)


def _integer(operation: str, dtype: Any) -> dt.DType:
    kind = dt.canonicalize(np.int64 if dtype is None else dtype)
    if not dt.is_integer(kind):
        raise DTypeError(
            operation=operation,
            required="an integer dtype",
            got=str(kind),
            fix="cast the result instead",
        )
    return kind


# ---- poisson


def poisson(
    key: Key, lam: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Poisson with rate lam: integers.

    >>> from lumjax.random.core import key
    >>> bool((poisson(key(0), 3.0, (10,)) >= 0).all())
    True
    """
    del out_sharding
    kind = _integer("random.poisson", dtype)
    shape = common_shape("random.poisson", shape, lam)
    rate = jnp.broadcast_to(ops.cast(jnp.asarray(lam), np.float32), shape)
    words = consumed(key_data(key), "random.poisson")
    small = jnp.isnan(rate) | (rate < 10)
    limit = kind.type(np.iinfo(kind).max)
    with unchecked():
        low = _multiplied(words, jnp.where(small, rate, 0.0), kind, limit)
        high = _rejected_poisson(words, jnp.where(small, 1e5, rate), kind, limit)
    out = jnp.where(small, low, high)
    return jnp.where(rate == 0, kind.type(0), out)


def _multiplied(words: Any, rate: Any, kind: dt.DType, limit: Any) -> Any:
    """Count uniform draws until their product falls below exp(-rate)."""
    shape = tuple(aval_of(rate).shape)

    def go_on(state: Any) -> Any:
        steps, _, _, logs = state
        return jnp.any(logs > -rate) & (steps < limit)

    def step(state: Any) -> Any:
        steps, count, words, logs = state
        pair = split(words)
        count = jnp.where(logs > -rate, count + kind.type(1), count)
        draw = uniform(pair[1], shape, np.float32)
        return steps + 1, count, pair[0], logs + jnp.log(draw)

    start = (jnp.asarray(kind.type(0)), jnp.zeros(shape, kind), words, jnp.zeros(shape, np.float32))
    return _repeated(go_on, step, start)[1] - kind.type(1)


def _rejected_poisson(words: Any, rate: Any, kind: dt.DType, limit: Any) -> Any:
    shape = tuple(aval_of(rate).shape)
    log_rate = ops.log(rate)
    b = 0.931 + 2.53 * jnp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    bound = 0.9277 - 3.6224 / (b - 2)

    def go_on(state: Any) -> Any:
        steps, _, accepted, _ = state
        return jnp.any(~accepted) & (steps < limit)

    def step(state: Any) -> Any:
        steps, out, accepted, words = state
        keys = split(words, 3)
        u = uniform(keys[1], shape, np.float32) - 0.5
        v = uniform(keys[2], shape, np.float32)
        near = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / near + b) * u + rate + 0.43)
        s = ops.log(v * inverse / (a / (near * near) + b))
        t = -rate + k * log_rate - ops.lgamma(k + 1)
        fast = (near >= 0.07) & (v <= bound)
        bad = (k < 0) | ((near < 0.013) & (v > near))
        taken = fast | (~bad & (s <= t))
        return steps + 1, jnp.where(taken, k, out), accepted | taken, keys[0]

    start = (
        jnp.asarray(kind.type(0)), jnp.full(shape, -1, np.float32), jnp.zeros(shape, bool), words,
    )  # fmt: skip
    return ops.cast(_repeated(go_on, step, start)[1], kind)


# ---- binomial


def binomial(key: Key, n: Any, p: Any, shape: Shape | None = None, dtype: Any = None) -> Any:
    """Binomial: successes among n trials of probability p, as floats; NaN for bad parameters.

    >>> from lumjax.random.core import key
    >>> x = binomial(key(0), 10, 0.5, (20,))
    >>> bool(((x >= 0) & (x <= 10)).all())
    True
    """
    kind = floating("random.binomial", dtype)
    shape = common_shape("random.binomial", shape, n, p)
    (chance,) = jnp.linalg.inexact(p)
    inner = aval_of(chance).dtype
    count = jnp.broadcast_to(ops.cast(jnp.asarray(n), inner), shape)
    chance = jnp.broadcast_to(chance, shape)
    low = chance < 0.5
    q = jnp.where(low, chance, 1.0 - chance)
    bad_count = jnp.isnan(count) | (count < 0.0)
    endless = jnp.isinf(count)
    bad_chance = jnp.isnan(q) | (q < 0.0)
    undefined = jnp.isnan(q)
    q = jnp.where(bad_chance, 0.01, q)
    few = bad_count | (count * q <= 10.0)
    count = jnp.floor(count)
    words = consumed(key_data(key), "random.binomial")
    limit = np.float32(np.finfo(np.float32).max)
    with unchecked():
        waits = _inverted(words, jnp.where(few, count, 0.0), q, kind, limit)
        many = _rejected_binomial(
            words, jnp.where(few, 1e4, count), jnp.where(few, 0.5, q), kind, limit
        )
    out = jnp.where(few, waits, many)
    invalid = bad_chance | bad_count
    out = jnp.where(invalid, np.asarray(np.nan, kind), out)
    out = jnp.where(endless & ~invalid, np.asarray(np.inf, kind), out)
    kept = low | bad_count | undefined | endless
    return jnp.where(kept, out, ops.cast(count, kind) - out)


def _inverted(words: Any, count: Any, q: Any, kind: dt.DType, limit: Any) -> Any:
    """How many geometric waiting times fit into `count` trials."""
    shape, inner = tuple(aval_of(q).shape), aval_of(q).dtype
    slope = jnp.log1p(-q)

    def go_on(state: Any) -> Any:
        steps, _, total, _ = state
        return jnp.any(total <= count) & (steps < limit)

    def step(state: Any) -> Any:
        steps, number, total, words = state
        pair = split(words)
        number = jnp.where(total <= count, number + 1, number)
        wait = jnp.ceil(jnp.log(uniform(pair[0], shape, inner)) / slope)
        return steps + 1, number, total + wait, pair[1]

    zero = jnp.zeros(shape, inner)
    number = _repeated(go_on, step, (jnp.asarray(0), zero, zero, words))[1]
    return ops.cast(number - 1, kind)


_STIRLING = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.010411265261972,
    0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_tail(k: Any) -> Any:
    """The error of Stirling's formula for log(k!)."""
    table = jnp.array(_STIRLING, dtype=aval_of(k).dtype)
    exact = k <= 9
    k = jnp.clip(k, 0.0, 9.0)
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return jnp.where(exact, table[ops.cast(jnp.floor(k), np.int32)], series)


def _rejected_binomial(words: Any, count: Any, p: Any, kind: dt.DType, limit: Any) -> Any:
    shape, inner = tuple(aval_of(p).shape), aval_of(p).dtype
    deviation = jnp.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = count * p + 0.5
    bound = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = jnp.floor((count + 1) * p)

    def go_on(state: Any) -> Any:
        return jnp.any(~state[2]) & (state[0] < limit)

    def step(state: Any) -> Any:
        steps, out, accepted, words = state
        keys = split(words, 3)
        u = uniform(keys[1], shape, inner) - 0.5
        v = uniform(keys[2], shape, inner)
        near = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / near + b) * u + centre)
        s = jnp.log(v * alpha / (a / (near * near) + b))
        rest = count - m + 1
        t = (
            (m + 0.5) * jnp.log((m + 1) / (r * rest))
            + (count + 1) * jnp.log(rest / (count - k + 1))
            + (k + 0.5) * jnp.log(r * (count - k + 1) / (k + 1))
            + _stirling_tail(m) + _stirling_tail(count - m)
            - _stirling_tail(k) - _stirling_tail(count - k)
        )  # fmt: skip
        taken = ((near >= 0.07) & (v <= bound)) | (~((k < 0) | (k > count)) & (s <= t))
        return steps + 1, jnp.where(taken, k, out), accepted | taken, keys[0]

    start = (jnp.asarray(0), jnp.full(shape, -1, inner), jnp.zeros(shape, bool), words)
    return ops.cast(_repeated(go_on, step, start)[1], kind)


def multinomial(
    key: Key,
    n: Any,
    p: Any,
    *,
    shape: Shape | None = None,
    dtype: Any = None,
    unroll: int | bool = 1,
) -> Any:
    """Counts of n draws among categories with probabilities p (..., k): (..., k), as floats.

    >>> from lumjax.random.core import key
    >>> float(multinomial(key(0), 10, jnp.array([0.2, 0.3, 0.5])).sum())
    10.0
    """
    kind = floating("random.multinomial", dtype)
    trials, chances = jnp.linalg.inexact(n, p)
    full = tuple(aval_of(chances).shape) if shape is None else drawn_shape("random", shape)
    trials = jnp.broadcast_to(trials, full[:-1])
    chances = jnp.moveaxis(jnp.broadcast_to(chances, full), -1, 0)
    left = ops.cumsum(chances, 0, True)
    ratios = chances / jnp.where(left == 0, 1, left)

    def draw(remaining: Any, ratio_and_key: Any) -> tuple[Any, Any]:
        ratio, words = ratio_and_key
        count = binomial(words, remaining, jnp.clip(ratio, 0, 1), None, aval_of(remaining).dtype)
        return remaining - count, count

    keys = split(key_data(key), int(aval_of(ratios).shape[0]))
    with config.scope(interpret=True):
        _, counts = scan(draw, trials, (ratios, keys), unroll=int(unroll))
    return ops.cast(jnp.moveaxis(counts, 0, -1), kind)


def geometric(
    key: Key, p: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """The number of trials of probability p up to the first success, 1 or more: integers."""
    del out_sharding
    kind = _integer("random.geometric", dtype)
    shape = common_shape("random.geometric", shape, p)
    (chance,) = jnp.linalg.inexact(p)
    draw = uniform(key, shape, aval_of(chance).dtype)
    logs = ops.log(jnp.where(draw == 0, 1, draw))
    slope = jnp.broadcast_to(ops.log1p(-chance), shape)
    return ops.cast(jnp.floor(logs / slope) + 1, kind)
