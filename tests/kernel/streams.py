"""Terms for loops over tiles: what streaming rules make of naive programs, written by hand."""

from __future__ import annotations

import math

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.term import Apply, Buffer, Load, Reduction, Running, Scale, Shift, loads
from lumjax.trace.form import ScalarOp
from tests.kernel.build import MAX, OPS, SUM, cast, f32, index, lit, load, op, reduce, root, sym

OPS |= {
    "exp2": ScalarOp("exp2", 1, np.exp2, None, 20),
    "log": ScalarOp("log", 1, np.log, None, 20),
    "ge": ScalarOp("ge", 2, np.greater_equal),
    "is_finite": ScalarOp("is_finite", 1, np.isfinite),
}

LOG2E = math.log2(math.e)


def scaled(x, stream, body, guard=False, factor=LOG2E):
    """The sum of `body` over the stream, rescaled by the running maximum of x."""
    stat = statistic(x, stream, guard)
    scale = Scale(stat, lit(-factor, x.dtype))
    streams = frozenset(stream if isinstance(stream, tuple) else (stream,))
    return Reduction(SUM, streams, body, body.dtype, scale)


def statistic(x, stream, guard=False):
    m = reduce(MAX, stream, x)
    if not guard:
        return m
    finite = Apply(OPS["is_finite"], (m,), np.dtype(bool))
    return op("select", finite, m, lit(0.0, x.dtype))


def weights(x, stream, guard=False, factor=LOG2E):
    """(maximum, scaled sum of weights, weight at a given or running maximum)."""
    m = statistic(x, stream, guard)
    streams = frozenset(stream if isinstance(stream, tuple) else (stream,))

    def weight(at):
        at = Running(m, streams) if at is None else at
        return op("exp2", op("mul", op("sub", x, at), lit(factor, x.dtype)))

    return m, scaled(x, stream, weight(None), guard, factor), weight


def logsumexp(x, stream, guard=False):
    m, total, _ = weights(x, stream, guard)
    return op("add", m, op("log", total))


def scores(i, j, d, outer=(), key=None, dtype=f32, scale=0.125):
    """q[outer, i, d] . k[outer, j, d], a tile per (i, j)."""
    q = load("q", *outer, i, d, dtype=dtype)
    coords = (*(map(sym, outer) if key is None else key(*outer)), sym(j), sym(d))
    k = Load(Buffer("k", (*(a.extent for a in outer), j.extent, d.extent), np.dtype(dtype)), coords)
    return op("mul", reduce(SUM, d, op("mul", q, k)), lit(scale, dtype))


def masked(s, keep, fill=-math.inf):
    return op("select", keep, s, lit(fill, s.dtype))


def causal(i, j):
    return op("ge", index(sym(i)), index(sym(j)), dtype=np.dtype(bool))


def window(i, j, width):
    """Rows see the `width` points of the stream before them, and themselves."""
    near = op("lt", index(sym(i) - sym(j)), lit(width, dt.int32), dtype=np.dtype(bool))
    return Apply(ScalarOp("and", 2, np.bitwise_and), (causal(i, j), near), np.dtype(bool))


def equal(x, stream, guard=False):
    """1 where x equals the maximum that is known so far, else 0; and the sums of that by values."""
    streams = frozenset(stream if isinstance(stream, tuple) else (stream,))
    same = op("eq", x, Running(statistic(x, stream, guard), streams))
    here = cast(same, x.dtype)

    def total(values=None):
        body = here if values is None else op("mul", here, values)
        scale = Scale(statistic(x, stream, guard), lit(-math.inf, x.dtype))
        return Reduction(SUM, streams, body, body.dtype, scale)

    return total


def ties(x, i, j, e, outer=()):
    """How often each row's maximum occurs, and the sum of what is there; with the weights' sum."""
    total, v = equal(x, j), load("v", *outer, j, e)
    return [
        root("count", (*outer, i), total()),
        root("mean", (*outer, i, e), op("div", total(v), total())),
        root("lse", (*outer, i), logsumexp(x, j)),
    ]


def weighted(i, j, d, e, outer=(), key=None, dtype=f32, mask=None, guard=False, fill=-math.inf):
    """o[outer, i, e]: normalised weights of the scores times v[outer, j, e]."""
    s = scores(i, j, d, outer, key, dtype)
    if mask is not None and fill is None:
        s = op("add", s, op("select", mask, lit(0.0, dtype), lit(-1e9, dtype)))
    elif mask is not None:
        s = masked(s, mask, fill)
    _, total, weight = weights(s, j, guard)
    coords = (*(map(sym, outer) if key is None else key(*outer)), sym(j), sym(e))
    v = Load(Buffer("v", (*(a.extent for a in outer), j.extent, e.extent), np.dtype(dtype)), coords)
    out = scaled(s, j, op("mul", weight(None), v), guard)
    return [root("o", (*outer, i, e), op("div", out, total))]


def picked(z, row, stream):
    """The sum over the stream of z where the stream's index is the row's label."""
    label = load("label", row, dtype=dt.int32)
    here = op("eq", index(sym(stream)), label, dtype=np.dtype(bool))
    return reduce(SUM, stream, op("select", here, z, lit(0.0, z.dtype)))


def _probabilities(i, j, d, outer, mask):
    s = scores(i, j, d, outer)
    if mask is not None:
        s = masked(s, mask)
    return op("exp2", op("mul", op("sub", s, load("lse", *outer, i)), lit(LOG2E)))


def _gradient(i, j, d, e, outer, mask):
    p = _probabilities(i, j, d, outer, mask)
    dp = reduce(SUM, e, op("mul", load("do", *outer, i, e), load("v", *outer, j, e)))
    ds = op("mul", p, op("sub", dp, load("delta", *outer, i)))
    return p, op("mul", ds, lit(0.125))


def backward_columns(i, j, d, e, outer=(), mask=None):
    p, ds = _gradient(i, j, d, e, outer, mask)
    dv = reduce(SUM, i, op("mul", p, load("do", *outer, i, e)))
    dk = reduce(SUM, i, op("mul", ds, load("q", *outer, i, d)))
    return [root("dv", (*outer, j, e), dv), root("dk", (*outer, j, d), dk)]


def backward_rows(i, j, d, e, outer=(), mask=None):
    _, ds = _gradient(i, j, d, e, outer, mask)
    return [root("dq", (*outer, i, d), reduce(SUM, j, op("mul", ds, load("k", *outer, j, d))))]


def loads_of(g):
    """Every load of a group."""
    return {t for r in g.roots for t in loads(r.term)}


def average(x, stream, many):
    """The sum of x over the stream by a constant."""
    return op("div", reduce(SUM, stream, x), lit(float(many), x.dtype))


def moved(statistic, stream, x, y=None):
    """The sum over the stream of (x - s) (y - s), about a running statistic s."""
    streams = frozenset(stream if isinstance(stream, tuple) else (stream,))
    first, second = (op("sub", t, Running(statistic, streams)) for t in (x, x if y is None else y))
    minus = lit(-1.0, x.dtype)
    slope = op("mul", minus, op("add", first, second))
    shift = Shift(statistic, slope, lit(1.0, x.dtype))
    return Reduction(SUM, streams, op("mul", first, second), x.dtype, None, shift)


def moments(x, stream, many, y=None):
    """The mean of x, and the mean product of what x and y (or x) are from there."""
    mean = average(x, stream, many)
    return mean, op("div", moved(mean, stream, x, y), lit(float(many), x.dtype))
