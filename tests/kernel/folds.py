"""Programs that one loop over tiles of a stream computes, by name."""

from __future__ import annotations

import numpy as np

from lumjax import dtype as dt
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.kernel import streams
from tests.kernel.build import (
    SUM,
    axis,
    load,
    op,
    reduce,
    root,
    sym,
)

B, H, I, J, D, E = (  # noqa: E741
    axis("b", 3), axis("h", 2), axis("i", 67), axis("j", 101), axis("d", 11), axis("e", 17)
)  # fmt: skip
N, V, F, L = axis("n", 29), axis("v", 71), axis("f", 83), axis("l", 701)


def grouped(g):
    """Keys and values of stream j, summed over the heads of a group too."""
    two, i = axis("g", 2), axis("i", 43)
    p = reduce(SUM, D, op("mul", load("q", H, two, i, D), load("k", H, J, D)))
    dv = reduce(SUM, (two, i), op("mul", op("tanh", p), load("do", H, two, i, E)))
    return [root("dv", (H, J, E), dv)] if g else []


def classifier(mask=None):
    z = reduce(SUM, D, op("mul", load("x", N, D), load("w", D, V)))
    return [
        root("lse", (N,), streams.logsumexp(z, V)),
        root("picked", (N,), streams.picked(z, N, V)),
        root("top", (N,), reduce(streams.MAX, V, z)),
    ]


def layers():
    hidden = reduce(SUM, D, op("mul", load("x", I, D), load("w1", D, F)))
    relu = op("max", hidden, streams.lit(0.0))
    return [root("y", (I, E), reduce(SUM, F, op("mul", relu, load("w2", F, E))))]


def table():
    """The weights themselves: a second loop over the stream."""
    m, total, weight = streams.weights(streams.scores(I, J, D, (H,)), J)
    return [root("p", (H, I, J), op("div", weight(m), total))]


def long_rows(late):
    x = load("x", N, V)
    m, total, weight = streams.weights(x, V)
    if late:
        return [root("y", (N, V), op("div", weight(m), total))]
    return [root("y", (N,), streams.logsumexp(x, V))]


def stored_scores():
    x = load("x", I, J)
    _, total, weight = streams.weights(x, J)
    out = streams.scaled(x, J, op("mul", weight(None), load("v", J, E)))
    return [root("o", (I, E), op("div", out, total))]


def products():
    s = streams.scores(I, J, D)
    return [
        root("least", (I,), reduce(ReduceOp.MIN, J, s)),
        root("all", (I,), reduce(ReduceOp.PROD, J, op("add", op("mul", s, s), streams.lit(0.5)))),
    ]


def moments(rows, dtype=dt.float32, other=None):
    """Averages and mean squares (or products) about them, of rows or of everything."""
    x, y = load("x", N, L, dtype=dtype), load("y", N, L) if other else None
    axes, many = (L if rows else (N, L)), L.extent * (1 if rows else N.extent)
    kept = (N,) if rows else ()
    mean, spread = streams.moments(x, axes, many, y)
    return [root("mean", kept, mean), root("spread", kept, spread)]


def standardized():
    x = load("x", N, L)
    mean, spread = streams.moments(x, L, L.extent)
    y = op("div", op("sub", x, mean), op("sqrt", op("add", spread, streams.lit(0.1))))
    return [root("y", (N, L), y)]


def weights_too():
    """Averages, and weights that follow a maximum, in one loop."""
    mean, spread = streams.moments(load("x", N, V), V, V.extent)
    return [root("mean", (N,), mean), root("spread", (N,), spread), *long_rows(False)]


def lone(rows=1, across=False, dtype=dt.float32, cast=False, position=False, outer=(H,)):
    """Few rows, each point of the stream read once: operands that lie this way or that, or are
    computed from narrower ones.
    """
    i = axis("i", rows)
    kept = "int8" if cast else dtype

    def read(name, kind, *axes):
        first = load(name, *outer, *(axes[::-1] if across else axes), dtype=kind)
        return op("mul", streams.cast(first, dtype), load("unit", J)) if cast else first

    products = op("mul", load("q", *outer, i, D, dtype=dtype), read("k", kept, J, D))
    s = op("mul", reduce(SUM, D, products), streams.lit(0.125, dtype))
    if position:
        known = op("ge", load("last", dtype=dt.int32), streams.index(sym(J)), dtype=np.dtype(bool))
        s = streams.masked(s, known)
    _, total, weight = streams.weights(s, J)
    out = streams.scaled(s, J, op("mul", weight(None), read("v", kept, J, E)))
    return [root("o", (*outer, i, E), op("div", out, total))]


LONE = {
    "a row": lone,
    "a row, no grid": lambda: lone(outer=()),
    "a row across": lambda: lone(across=True),
    "a row of doubles": lambda: lone(dtype=dt.float64),
    "a row of halves": lambda: lone(dtype=dt.bfloat16),
    "a row of computed operands": lambda: lone(cast=True),
    "a row of computed operands across": lambda: lone(cast=True, across=True),
    "a row up to a place": lambda: lone(position=True),
    "three rows": lambda: lone(3),
    "three rows of computed operands": lambda: lone(3, cast=True),
}
TURNED = {
    "values along the stream": lambda: lone(67, across=True),
    "doubles along the stream": lambda: lone(67, across=True, dtype=dt.float64),
    "values along the stream up to a place": lambda: lone(67, across=True, position=True),
}
PROGRAMS = LONE | TURNED | {
    "weighted": lambda: streams.weighted(I, J, D, E, (B, H)),
    "causal": lambda: streams.weighted(I, J, D, E, (H,), mask=streams.causal(I, J)),
    "anticausal": lambda: streams.weighted(I, J, D, E, (H,), mask=streams.causal(J, I)),
    "guarded": lambda: streams.weighted(
        I, J, D, E, (H,), mask=streams.causal(J, I), guard=True
    ),
    "low": lambda: streams.weighted(I, J, D, E, (H,), mask=streams.causal(I, J), fill=-1e30),
    "added": lambda: streams.weighted(I, J, D, E, (H,), mask=streams.causal(I, J), fill=None),
    "window": lambda: streams.weighted(I, J, D, E, (H,), mask=streams.window(I, J, 9)),
    "skipped columns": lambda: streams.backward_columns(
        I, J, D, E, (H,), mask=streams.causal(I, J)
    ),
    "double": lambda: streams.weighted(I, J, D, E, (H,), dtype=dt.float64),
    "half": lambda: streams.weighted(I, J, D, E, (H,), dtype=dt.bfloat16),
    "shared": lambda: streams.weighted(
        I, J, D, E, (B,), key=lambda b: (dims.floor_divide(sym(b), 2),)
    ),
    "columns": lambda: streams.backward_columns(I, J, D, E, (H,)),
    "rows": lambda: streams.backward_rows(I, J, D, E, (H,), mask=streams.causal(I, J)),
    "grouped": lambda: grouped(True),
    "classifier": classifier,
    "layers": layers,
    "table": table,
    "long": lambda: long_rows(False),
    "late": lambda: long_rows(True),
    "stored": stored_scores,
    "products": products,
    "ties": lambda: streams.ties(load("x", I, J), I, J, E),
    "masked ties": lambda: streams.ties(
        streams.masked(streams.scores(I, J, D, (H,)), streams.causal(I, J)), I, J, E, (H,)
    ),
    "window's ties": lambda: streams.ties(
        streams.masked(streams.scores(I, J, D, (H,)), streams.window(I, J, 9)), I, J, E, (H,)
    ),
    "moments": lambda: moments(True),
    "half moments": lambda: moments(True, dt.bfloat16),
    "double moments": lambda: moments(True, dt.float64),
    "products about an average": lambda: moments(True, other=True),
    "moments of everything": lambda: moments(False),
    "weights of everything": lambda: [
        root("y", (), streams.logsumexp(load("x", N, V), (N, V), guard=True))
    ],
    "standardized": standardized,
    "moments and weights": lambda: weights_too(),
    "low ties": lambda: streams.ties(
        streams.masked(streams.scores(I, J, D, (H,)), streams.causal(I, J), -1e30), I, J, E, (H,)
    ),
}  # fmt: skip
COARSE = {n: 0.03 for n in PROGRAMS if "half" in n or "halves" in n}
