"""Random groups, lowered as the planner does it: what `lower` refuses is stored in a buffer."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lumjax import dtype as dt
from lumjax.kernel.emulate import emulate
from lumjax.kernel.evaluate import evaluate_group
from lumjax.kernel.lower import Reject, lower
from lumjax.kernel.rewrite import rebuild, rewrite
from lumjax.kernel.scalar import lower_scalar
from lumjax.kernel.term import Buffer, Load, Root, free_names, subterms
from lumjax.kernel.verify import check_kernel
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.kernel.build import (
    TARGET,
    axis,
    buf,
    group,
    index,
    inputs,
    lit,
    load,
    native,
    op,
    reduce,
    root,
    sym,
)

SIZES = (1, 2, 3, 5, 9, 17)


class Author:
    """Writes random terms over a handful of axes."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.axes = [axis(f"x{k}", self.rng.choice(SIZES)) for k in range(4)]

    def group(self):
        roots = []
        for k in range(self.rng.randint(1, 3)):
            axes = self.rng.sample(self.axes, self.rng.randint(0, 3))
            roots.append(root(f"o{k}", axes, self.term(axes, 4)))
        return group(*roots)

    def term(self, axes, depth):
        kind = self.rng.random()
        if depth == 0 or kind < 0.15:
            return self.leaf(axes)
        if kind < 0.35:
            return self.reduction(axes, depth)
        if kind < 0.55:
            return op(self.rng.choice(["neg", "tanh"]), self.term(axes, depth - 1))
        if kind < 0.65:
            mask = op("lt", self.term(axes, depth - 1), self.term(axes, 0))
            return op("select", mask, self.term(axes, depth - 1), self.term(axes, 0))
        name = self.rng.choice(["add", "sub", "mul", "max"])
        return op(name, self.term(axes, depth - 1), self.term(axes, depth - 1))

    def reduction(self, axes, depth):
        others = [a for a in self.axes if a not in axes]
        if not others:
            return self.leaf(axes)
        over = self.rng.sample(others, self.rng.randint(1, min(2, len(others))))
        kind = self.rng.choice(
            [ReduceOp.SUM, ReduceOp.SUM, ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN]
        )
        if self.rng.random() < 0.4:
            x, y = self.term([*axes, *over], 1), self.term([*axes, *over], 1)
            return reduce(ReduceOp.SUM, over, op("mul", x, y))
        return reduce(kind, over, self.term([*axes, *over], depth - 1))

    def leaf(self, axes):
        kind = self.rng.random()
        some = self.rng.sample(axes, self.rng.randint(0, len(axes)))
        if kind < 0.1:
            return lit(self.rng.choice([0.0, 1.0, -0.5]))
        if kind < 0.2 and axes:
            return index(sym(self.rng.choice(axes)), dt.float32)
        if kind < 0.3 and some:
            return self.window(some)
        return load("_".join(["b", *(a.name for a in some)]), *some)

    def window(self, axes):
        """A load with an offset coordinate, masked where it leaves the buffer."""
        first, *rest = axes
        at = sym(first) * self.rng.choice([1, 2, -1]) + self.rng.choice(
            [-1, 0, 1, first.extent - 1]
        )
        inside = dims.logical_and(dims.less_equal(0, at), dims.less(at, first.extent))
        shape = (first.extent, *(a.extent for a in rest))
        name = "_".join(["b", *(a.name for a in axes)])
        return Load(buf(name, *shape), (at, *map(sym, rest)), inside, lit(7.0))


def store(g, term, name):
    """The group that computes `term` into a buffer, and the given group reading it from there."""
    axes = {a.name: a for r in g.roots for a in r.axes}
    for r in g.roots:
        for t in subterms(r.term):
            axes |= {a.name: a for a in getattr(t, "axes", ())}
    kept = [axes[n] for n in sorted(free_names(term))]
    first = Root(Buffer(name, tuple(a.extent for a in kept), term.dtype), tuple(kept), term)
    read = Load(first.buffer, tuple(map(sym, kept)))

    def leaf(t, kids):
        return read if t is term else rebuild(t, kids, {})

    rest = [Root(r.buffer, r.axes, rewrite(r.term, leaf, {})) for r in g.roots]
    return group(first), group(*rest)


def plan(g, count=0):
    """Groups in order that `lower` accepts, with their kernels."""
    kernel = lower(g, TARGET)
    if not isinstance(kernel, Reject):
        return [(g, kernel)]
    assert count < 40, "every refusal names a term whose storing makes progress"
    if any(r.term is kernel.term for r in g.roots) and len(g.roots) == 1:
        return [(g, lower_scalar(g.roots[0]))]
    assert any(kernel.term in subterms(r.term) for r in g.roots)
    first, rest = store(g, kernel.term, f"t{count}")
    return plan(first, count + 10) + plan(rest, count + 1)


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
def test_random_groups_in_small(seed):
    g = Author(seed).group()
    memory = inputs(g, np.random.default_rng(seed))
    want = evaluate_group(g, memory, wide=True)
    for step, kernel in plan(g):
        values = dict(zip(kernel.sizes, kernel.extents, strict=True))
        for b in kernel.outputs + kernel.workspace:
            memory[b.name] = np.full([int(dims.evaluate(n, values)) for n in b.shape], 5, b.dtype)
        emulate(kernel, memory, values)
        del step
    compare(memory, want)


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
def test_random_groups_natively(seed):
    g = Author(seed).group()
    for step, kernel in plan(g):
        verdict = check_kernel(kernel, step, native(kernel), seed=seed % 1000)
        assert verdict.ok, verdict


@pytest.fixture(scope="module")
def small_jobs():
    """Every threshold so low that tiny arrays are split, blocked, staged and kept."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("share", "split", "row"):
            patch.setattr(f"lumjax.kernel.{module}.WORK_PER_JOB", 40)
        for name, value in {
            "row.LONGEST_ROW": 80,
            "row.KEEP_WORK": 4,
            "split.COLUMNS": 3,
            "map.BLOCK": 3,
            "contract.TILE_WORK": 60,
            "contract.SHALLOW": 2,
            "contract.DEEP": 8,
            "contract.WIDE": 4,
            "contract.TINY": 30,
            "fold.JOB_WORK": 60,
            "fold.FEW_JOBS": 100,
            "fold.WHOLE_ROWS": 0,
            "fold_shape.HEIGHT": 4,
            "fold_shape.WIDTH": 8,
        }.items():
            patch.setattr(f"lumjax.kernel.{name}", value)
        yield


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_random_groups_in_many_small_jobs(small_jobs, seed):
    g = Author(seed).group()
    for step, kernel in plan(g):
        verdict = check_kernel(kernel, step, native(kernel), seed=seed % 1000)
        assert verdict.ok, verdict


def compare(memory, want):
    for name, w in want.items():
        scale = 1 + np.abs(w).max(initial=0.0)
        np.testing.assert_allclose(memory[name], w, rtol=1e-3, atol=1e-4 * scale)
