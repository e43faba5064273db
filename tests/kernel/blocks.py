"""Programs whose contractions of contractions are stored for a block of rows at a time, by name."""

from __future__ import annotations

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.term import Index
from lumjax.trace import dim as dims
from tests.kernel.build import MAX, SUM, axis, load, op, reduce, root, sym
from tests.kernel.residents import gradients
from tests.kernel.streams import lit

B, I, V, D = axis("b", 3), axis("i", 67), axis("v", 53), axis("d", 19)  # noqa: E741


def classes(rows=(I,), v=V, d=D, dtype=dt.float32, step=None):
    """The mean over rows of how unlikely a class is, and what it asks of rows and weights."""
    x, w = load("x", *rows, d, dtype=dtype), load("w", d, v, dtype=dtype)
    label = load("y", *rows, dtype=np.dtype(np.int32))
    z = reduce(SUM, d, op("mul", x, w))
    top = reduce(MAX, v, z)
    weight = op("exp", op("sub", z, top))
    total = reduce(SUM, v, weight)
    here = Index(dims.equal(sym(v), dims.symbol("at", None)), dt.bool_, (("at", label),))
    picked = reduce(SUM, v, op("select", here, z, lit(0.0, dtype)))
    one = op("select", here, lit(1.0, dtype), lit(0.0, dtype))
    scale = lit(1 / 64, dtype)
    ds = op("mul", op("sub", op("div", weight, total), one), scale)
    dw = reduce(SUM, rows, op("mul", ds, x))
    if step is not None:
        dw = op("sub", load("w", d, v, dtype=dtype), op("mul", dw, lit(step, dtype)))
    lost = op("sub", op("add", op("log", total), top), picked)
    return [
        root("loss", (), op("mul", reduce(SUM, rows, lost), scale)),
        root("dx", (*rows, d), reduce(SUM, v, op("mul", ds, w))),
        root("dw", (d, v), dw),
        root("db", (v,), reduce(SUM, rows, ds)),
        root("top", rows, top),
    ]


def tiles():
    """A contraction's result is itself a side of others, beside what is made of it."""
    x, w, u = load("x", I, D), load("w", D, V), load("u", V, axis("e", 24))
    z = reduce(SUM, D, op("mul", x, w))
    mean = reduce(SUM, V, z)
    return [
        root("o", (I, axis("e", 24)), reduce(SUM, V, op("mul", z, u))),
        root("dw", (D, V), reduce(SUM, I, op("mul", op("sub", z, mean), x))),
        root("dz", (D, V), reduce(SUM, I, op("mul", z, x))),
    ]


PROGRAMS = {
    "classes": classes,
    "a step": lambda: classes(step=0.5),
    "doubles": lambda: classes(dtype=dt.float64),
    "batches": lambda: classes((B, I)),
    "many": lambda: classes(i_of(301), axis("v", 1100), axis("d", 70)),
    "pairs": lambda: gradients(()),
    "tiles": tiles,
}


def i_of(rows):
    """One axis of rows."""
    return (axis("i", rows),)
