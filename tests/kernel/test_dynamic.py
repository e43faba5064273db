"""Sizes known only at run time: one kernel for every length."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.kernel.emulate import emulate
from lumjax.kernel.evaluate import evaluate_group
from lumjax.kernel.lower import lower
from lumjax.kernel.scalar import lower_scalar
from lumjax.kernel.term import Load, loads
from lumjax.kernel.verify import check_kernel, traced_sizes
from lumjax.trace import dim as dims
from tests.kernel.build import (
    SUM,
    TARGET,
    axis,
    buf,
    group,
    index,
    lit,
    load,
    native,
    op,
    reduce,
    root,
    sym,
)
from tests.kernel.test_row import softmax_terms

T = dims.symbol("T", 1)


def programs():
    t, s, k = axis("t", T), axis("s", T), axis("k", 6)
    x, y = load("x", t, k), load("y", k, s)
    causal = op("lt", index(sym(s)), index(sym(t)))
    scores = op("select", causal, load("z", t, s), lit(-1.0))
    last = Load(buf("x", T, 6), (T - 1 - sym(t), sym(k)))
    return {
        "map": root("o", (t, k), op("tanh", op("mul", x, x))),
        "softmax": root("o", (t, s), softmax_terms(t, s, scores)),
        "matmul": root("o", (t, s), reduce(SUM, k, op("mul", x, y))),
        "matmul over T": root("o", (k, s), reduce(SUM, t, op("mul", x, load("z", t, s)))),
        "a term over T": root(
            "o", (k, s), reduce(SUM, t, op("mul", op("exp", x), load("z", t, s)))
        ),
        "sum over T": root("o", (k,), reduce(SUM, t, x)),
        "reversed": root("o", (t, k), last),
        "size as a value": root("o", (), op("mul", index(T, dt.float32), reduce(SUM, (t, k), x))),
    }


@pytest.mark.parametrize("name", programs())
@pytest.mark.parametrize("make", [lambda r: lower(group(r), TARGET), lower_scalar])
def test_one_kernel_serves_every_length(name, make):
    r = programs()[name]
    kernel = make(r)
    for length in (1, 2, 7, 19):
        given = {"T": length}
        sizes = traced_sizes(kernel, given)
        rng = np.random.default_rng(length)
        memory = {
            b.name: rng.standard_normal([int(dims.evaluate(n, sizes)) for n in b.shape]).astype(
                b.dtype
            )
            for b in kernel.buffers
        }
        assert {t.buffer.name for t in loads(r.term)} <= memory.keys()
        want = evaluate_group(group(r), memory, given, wide=True)
        for execute in (emulate, native(kernel)):
            execute(kernel, memory, sizes)
            np.testing.assert_allclose(memory["o"], want["o"], rtol=1e-4, atol=1e-4)
        assert check_kernel(kernel, group(r), native(kernel), given).ok
