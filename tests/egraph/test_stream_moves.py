"""Sums about an average that is not known yet: what is found, that it is right, what it becomes."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import dtype as dt
from lumjax.config import config
from lumjax.egraph.axes import axis_symbol
from lumjax.egraph.rules.registry import load_rules
from lumjax.egraph.rules.witness import I, J, K, lit, op, reduction, total
from lumjax.egraph.rules.witness import load as leaf
from lumjax.egraph.terms import Reducing, warm_graph
from lumjax.kernel.evaluate import evaluate_term
from lumjax.kernel.rewrite import rebuild, rewrite
from lumjax.kernel.term import Buffer, Load, Reduction, Running, children, subterms
from lumjax.trace.form import ReduceOp
from tests.egraph import models
from tests.egraph.test_stream import Plain, found, waiting

x, y, row, cube = leaf("x", I, J), leaf("y", I, J), leaf("r", I), leaf("v", J, K)
MEAN = op("div", total((J,), x), lit(7.0))


def moved(terms):
    """The sums of a program that follow an average."""
    every = dict.fromkeys(s for t in terms for s in subterms(t))
    return [s for s in every if isinstance(s, Reduction) and s.shift is not None]


@pytest.mark.parametrize("name", models.OTHERS)
def test_some_program_reads_rows_once_for_both_moments(name):
    this = found(name)
    assert this.done.saturated
    assert this.done.fired["sum-moves"]
    best = min(this.programs, key=lambda p: len(waiting(p)))
    assert moved(best)
    assert len(waiting(best)) < len(waiting(this.terms))


@pytest.mark.parametrize("name", models.OTHERS)
def test_sums_move_by_their_polynomial(name):
    """b(s') = b(s) + slope(s) (s' - s) + bend (s' - s)^2 at any two numbers."""
    this = found(name)
    shape = {b.name: [int(n) for n in b.shape] for b in this.encoded.inputs}
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shape.items()}
    sums = dict.fromkeys(s for p in this.programs for s in moved(p))
    assert sums
    for s in sums:
        rows = [this.axes[n] for n in sorted(s.shift.statistic._free)]
        extents = tuple(a.extent for a in rows)
        given |= {n: rng.standard_normal(extents) for n in ("now", "then")}
        axes = [*rows, *sorted(s.axes, key=lambda a: a.name)]
        now, then = (at(rows, n, dt.float64) for n in ("now", "then"))
        change = value(op("sub", now, then), axes, given)
        slope, bend = (value(under(t, rows, "then"), axes, given) for t in parts(s))
        before, after = (value(under(s.body, rows, n), axes, given) for n in ("then", "now"))
        assert np.abs(slope).max() > 0
        assert not s.shift.bend._free & {a.name for a in s.axes}
        np.testing.assert_allclose(after, before + (slope + bend * change) * change, atol=1e-5)


def parts(s):
    return s.shift.slope, s.shift.bend


def at(rows, buffer, dtype):
    shape = tuple(a.extent for a in rows)
    return Load(Buffer(buffer, shape, dtype), tuple(axis_symbol(a) for a in rows))


def value(term, axes, given):
    return evaluate_term(term, axes, given, wide=True)


def under(term, rows, buffer):
    """The term with a buffer's value for what is running."""

    def leaf_(t, kids):
        return at(rows, buffer, t.dtype) if isinstance(t, Running) else rebuild(t, kids, {})

    return rewrite(term, leaf_, {})


def moves(term):
    """Whether the sum gets a member that follows an average."""
    with warm_graph(load_rules(False)).session(Plain) as session:
        session.insert([term])
        session.saturate(8, 5000, float("inf"))
        classes = session.read()
    shapes = [n.shape for n in classes.nodes[classes.roots[0]]]
    return any(isinstance(s, Reducing) and s.moved for s in shapes)


def test_products_of_values_that_are_affine_in_one_average_move():
    about = op("sub", x, MEAN)
    assert moves(total((J,), op("mul", about, about)))
    assert moves(total((J,), op("mul", about, op("sub", y, MEAN))))
    assert moves(total((J,), op("square", op("mul", about, lit(3.0)))))
    other = op("mul", total((J,), x), lit(0.2))  # a constant times a sum, whatever it is called
    assert moves(total((J,), op("square", op("sub", op("mul", y, y), other))))


def test_other_sums_stay():
    about = op("sub", x, MEAN)
    assert not moves(total((J,), op("mul", about, y)))
    assert not moves(total((J,), op("mul", about, op("exp", about))))
    assert not moves(total((J,), op("mul", op("square", about), about)))  # of third degree
    assert not moves(total((I,), op("square", about)))  # over other axes
    most = reduction(ReduceOp.MAX, (J,), x)
    assert not moves(total((J,), op("square", op("sub", x, most))))
    by_row = op("div", total((J,), x), row)
    assert not moves(total((J,), op("square", op("sub", x, by_row))))
    inner = op("div", total((J,), op("mul", x, MEAN)), lit(7.0))  # waits for another sum itself
    assert not moves(total((J,), op("square", op("sub", x, inner))))


def test_a_shift_is_part_of_the_term():
    """Equal but for the shift: two terms; children are the body and all of the shift."""
    (s,) = moved(min(found("standardized").programs, key=lambda p: len(waiting(p))))
    plain = Reduction(s.op, s.axes, s.body, s.dtype)
    assert plain is not s
    assert children(s) == (s.body, s.shift.statistic, s.shift.slope, s.shift.bend)
    assert rebuild(s, children(s), {}, {}) is s


# ---- what becomes of programs


def standardized(x, g, b):
    mean = jnp.sum(x, -1, keepdims=True) / x.shape[-1]
    variance = jnp.sum((x - mean) ** 2, -1, keepdims=True) / x.shape[-1]
    return (x - mean) / jnp.sqrt(variance + 1e-5) * g + b


def run(f, *args):
    """The loop programs, and the result, checked against the interpreter in float64."""
    compiled = lumjax.jit(f).lower(*args).compile()
    kernels = [k for s in compiled.executable.native() for k in s.kernels]
    assert not any(k.rejected for k in kernels)
    with config.scope(interpret=True, enable_x64=True):
        want = np.asarray(lumjax.jit(f)(*(jnp.asarray(np.asarray(a, np.float64)) for a in args)))
    programs = [p for k in kernels for p in k.compiled.kernel.programs]
    return programs, np.asarray(compiled(*args)), want


def rows_of(n, length, mean=1e4):
    rng = np.random.default_rng(0)
    rows = mean + rng.standard_normal((n, length))
    rows[0, 0] = -mean  # the first value says nothing of the rest
    return jnp.asarray(rows.astype(np.float32))


def test_long_rows_are_read_twice():
    x = rows_of(8, 1 << 18)
    ones = jnp.asarray(np.ones(1 << 18, np.float32))
    programs, got, want = run(standardized, x, ones, ones)
    assert programs == ["FOLD"]
    np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want[1:]).max())


def test_rows_that_stay_in_cache_keep_their_program():
    x = rows_of(8, 1 << 12)
    ones = jnp.asarray(np.ones(1 << 12, np.float32))
    programs, _, _ = run(standardized, x, ones, ones)
    assert programs == ["ROW"]


@pytest.mark.parametrize("axes", [-1, None])
def test_variances_are_one_pass(axes):
    x = rows_of(4, 1 << 19)
    programs, got, want = run(lambda x: jnp.var(x, axes), x)
    assert set(programs) == {"FOLD"}
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_variances_of_columns_keep_their_program():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1 << 18, 8)).astype(np.float32))
    programs, got, want = run(lambda x: jnp.var(x, 0), x)
    assert "FOLD" not in programs
    np.testing.assert_allclose(got, want, rtol=1e-3)
