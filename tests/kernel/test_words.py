"""Terms as text."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.egraph.rules.witness import I, J, K, lit, load, op, reduction, total
from lumjax.kernel.term import Buffer, Load, Reduction, Root, Running, Scale
from lumjax.kernel.words import axis_words, buffer_words, root_words
from lumjax.trace.dim import symbol
from lumjax.trace.form import ReduceOp

x, y, c = load("x", I, J), load("y", I, J), load("c", J)


def words(term, *axes):
    shape = tuple(a.extent for a in axes)
    return root_words(Root(Buffer("o", shape, term.dtype), axes, term))


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (op("add", x, y), "x[i, j] + y[i, j]"),
        (op("mul", op("add", x, y), c), "(x[i, j] + y[i, j]) * c[j]"),
        (op("exp", op("neg", x)), "exp(neg(x[i, j]))"),
        (op("max", x, lit(0.5)), "max(x[i, j], 0.5)"),
        (op("cast", x, dtype=dt.float32), "f32(x[i, j])"),
    ],
)
def test_scalar_terms(term, text):
    assert words(term, I, J) == [f"o[i, j] = {text}"]


def test_reductions_and_shared_terms():
    shared = op("exp", op("mul", x, y))
    term = op("add", total((J,), shared), reduction(ReduceOp.MAX, (J,), shared))
    assert words(term, I) == [
        "o[i] = (sum j. v0) + (max j. v0)",
        "  v0 = exp(x[i, j] * y[i, j])",
    ]


def test_sums_that_follow_a_statistic():
    most = reduction(ReduceOp.MAX, (J,), x)
    axes = frozenset([J])
    body = op("exp2", op("sub", x, Running(most, axes)))
    term = Reduction(ReduceOp.SUM, axes, body, dt.float64, Scale(most, lit(-1.0)))
    assert words(term, I) == [
        "o[i] = (sum j. exp2(x[i, j] - running(v0)) scaled with v0)",
        "  v0 = (max j. x[i, j])",
    ]


def test_masks_and_indices():
    buffer = Buffer("b", (9,), np.dtype(np.float64))
    place = Load(Buffer("n", (5,), np.dtype(np.int32)), (symbol("i", 0, 4),))
    gather = Load(buffer, (symbol("s", 0, 8),), 1, None, (("s", place),))
    assert words(gather, I) == ["o[i] = b[n[i]]"]


def test_buffers_and_axes():
    assert buffer_words(Buffer("t0", (2, 3), dt.bfloat16)) == "t0:bf16[2,3]"
    assert axis_words([I, K]) == "i<5, k<3"
