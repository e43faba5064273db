"""Programs whose contractions of contractions stay in the scratch of one job, by name."""

from __future__ import annotations

from lumjax import dtype as dt
from lumjax.kernel.term import Buffer, Load
from tests.kernel import streams
from tests.kernel.build import MAX, SUM, axis, load, op, reduce, root, sym
from tests.kernel.streams import causal, lit, masked, window

B, H, G, I, J, D, E = (  # noqa: E741
    axis("b", 3), axis("h", 2), axis("g", 3), axis("i", 67), axis("j", 53), axis("d", 19),
    axis("e", 37),
)  # fmt: skip


def gradients(outer=(H,), shared=(), i=I, j=J, d=D, e=E, mask=None, fill=None, dtype=dt.float32):
    """Rows weighed by exponentials, and what a change of the result asks of all operands. Points of
    `shared` have keys and values in common.
    """
    rows, common = (*outer, *shared, i), (*outer, j)
    q, do = (load(n, *rows, a, dtype=dtype) for n, a in (("q", d), ("do", e)))
    k, v = (load(n, *common, a, dtype=dtype) for n, a in (("k", d), ("v", e)))
    s = op("mul", reduce(SUM, d, op("mul", q, k)), lit(0.25, dtype))
    if mask is not None:
        s = masked(s, mask, -float("inf") if fill is None else fill)
    m = streams.statistic(s, j, True)
    weight = op("exp", op("sub", s, m))
    total = reduce(SUM, j, weight)
    p = op("div", weight, op("select", op("eq", total, lit(0.0, dtype)), lit(1.0, dtype), total))
    dp = reduce(SUM, e, op("mul", do, v))
    mean = reduce(SUM, j, op("mul", p, dp))
    ds = op("mul", op("mul", p, op("sub", dp, mean)), lit(0.25, dtype))
    across = (*shared, i)
    return [
        root("o", (*rows, e), reduce(SUM, j, op("mul", p, v))),
        root("dq", (*rows, d), reduce(SUM, j, op("mul", ds, k))),
        root("dk", (*common, d), reduce(SUM, across, op("mul", ds, q))),
        root("dv", (*common, e), reduce(SUM, across, op("mul", p, do))),
    ]


def across():
    """What lies the other way in memory, and a bias whose gradient sums over rows alone."""
    q = load("q", H, D, I)
    k = Load(Buffer("k", (J.extent, H.extent, D.extent), dt.float32), (sym(J), sym(H), sym(D)))
    bias = load("bias", H, J)
    s = op("add", reduce(SUM, D, op("mul", q, k)), bias)
    top = reduce(MAX, J, s)
    weight = op("exp", op("sub", s, top))
    p = op("div", weight, reduce(SUM, J, weight))
    dp = reduce(SUM, E, op("mul", load("do", H, I, E), op("tanh", load("v", H, E, J))))
    ds = op("mul", p, op("sub", dp, reduce(SUM, J, op("mul", p, dp))))
    return [
        root("dbias", (H, J), op("mul", reduce(SUM, I, ds), lit(2.0))),
        root("dall", (H,), reduce(SUM, (I, J), ds)),
        root("dq", (H, D, I), reduce(SUM, J, op("mul", ds, k))),
        root("dk", (H, J, D), reduce(SUM, I, op("mul", ds, op("add", q, lit(1.0))))),
        root("p", (H, I, J), p),
        root("top", (H, I), top),
    ]


PROGRAMS = {
    "rows": gradients,
    "batches": lambda: gradients((B, H)),
    "groups": lambda: gradients(shared=(G,)),
    "long sums": lambda: gradients(d=axis("d", 64), e=axis("e", 48)),
    "causal": lambda: gradients(mask=causal(I, J)),
    "anticausal": lambda: gradients(mask=causal(J, I)),
    "causal, low": lambda: gradients(mask=causal(I, J), fill=-1e30),
    "window": lambda: gradients(mask=window(I, J, 5)),
    "window of groups": lambda: gradients(shared=(G,), mask=window(I, J, 5)),
    "doubles": lambda: gradients(dtype=dt.float64),
    "halves": lambda: gradients(dtype=dt.bfloat16),
    "a row": lambda: gradients(i=axis("i", 1)),
    "a column": lambda: gradients(j=axis("j", 1)),
    "many rows": lambda: gradients(i=axis("i", 150), j=axis("j", 130)),
    "across": across,
}
