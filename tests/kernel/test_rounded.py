"""Sides of contractions that may be rounded: as terms, in lowering, and to the verifier."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax.dtype as dt
from lumjax.egraph.scalar import OPS
from lumjax.kernel.evaluate import evaluate
from lumjax.kernel.lower import lower, lower_scalar
from lumjax.kernel.prepare import prepare
from lumjax.kernel.rounded import MAY, epsilon, may_round, rounding_of
from lumjax.kernel.term import Apply, Axis, Buffer, Group, Load, Reduction, Root
from lumjax.kernel.verify import compare, precision, tolerances
from lumjax.target import Backend, Target
from lumjax.trace.dim import symbol
from lumjax.trace.form import ReduceOp, Rounding

TARGET = Target(Backend.CPU, "cpu", "", 32, 16, 2)
ROW, COLUMN, TERM = Axis("i", 24), Axis("j", 18), Axis("k", 40)


def product(left=None, right=None):
    """C[i, j] = sum of A[i, k] B[k, j], sides as they are or rounded."""
    at = {a: symbol(a.name, 0, a.extent - 1) for a in (ROW, COLUMN, TERM)}
    a = Load(Buffer("A", (24, 40), dt.float32), (at[ROW], at[TERM]))
    b = Load(Buffer("B", (40, 18), dt.float32), (at[TERM], at[COLUMN]))
    sides = tuple(
        side if rounding is None else Apply(MAY[rounding], (side,), dt.float32)
        for side, rounding in ((a, left), (b, right))
    )
    body = Apply(OPS["mul"], sides, dt.float32)
    total = Reduction(ReduceOp.SUM, frozenset({TERM}), body, dt.float32)
    return Root(Buffer("C", (24, 18), dt.float32), (ROW, COLUMN), total)


def both(rounding):
    return product(rounding, rounding)


def thin(x, bits):
    """float32 values of which so many bits behind the point are kept, to the nearest."""
    low = np.uint32(1 << 23 - bits)
    return ((x.view(np.uint32) + low // 2) & ~(low - 1)).view(np.float32)


def test_products_of_different_precision_are_different_terms():
    terms = [both(r).term for r in (None, *Rounding)]
    assert len(set(terms)) == 3
    assert product(Rounding.TF32).term not in terms
    assert both(Rounding.TF32).term is terms[1]


@pytest.mark.parametrize("rounding", Rounding)
def test_loop_programs_of_a_cpu_are_those_of_exact_sides(rounding):
    group, exact = Group((both(rounding),)), Group((both(None),))
    assert may_round(group)
    assert not may_round(exact)
    assert lower(group, TARGET) == lower(exact, TARGET)
    assert lower_scalar(group.roots[0]) == lower_scalar(exact.roots[0])
    assert may_round(prepare(group, rounded=True).group)
    found = prepare(group)
    assert not may_round(found.group)
    assert {t for t in found.origin.values() if rounding_of(t)} == set()


def arrays(rng):
    return {"A": rng.normal(size=(24, 40)).astype("f"), "B": rng.normal(size=(40, 18)).astype("f")}


@pytest.mark.parametrize(("rounding", "bits"), [(Rounding.TF32, 10), (Rounding.BF16, 7)])
def test_the_verifier_allows_what_was_asked_for_and_no_more(rounding, bits):
    given = arrays(np.random.default_rng(0))
    got = thin(given["A"], bits) @ thin(given["B"], bits)

    def verdict(root, got):
        wide = evaluate(root, given, wide=True)
        return compare(root, got, wide, lambda w, s: evaluate(root, given, None, w, s), "").ok

    assert verdict(both(rounding), got)
    assert not verdict(both(None), got)
    short = got - np.outer(given["A"][:, 7], given["B"][7])
    assert not verdict(both(rounding), short)
    wrong = got.copy()
    wrong[3, 4] += 0.5 * np.abs(got).max()
    assert not verdict(both(rounding), wrong)


def test_tolerances_are_those_of_the_precision():
    units = [precision(both(r)) for r in (None, *Rounding)]
    assert units[1:] == [2**-10 * np.sqrt(2), 2**-7 * np.sqrt(2)]
    assert units[0] == precision(product()) == float(dt.finfo(dt.float32).eps) * np.sqrt(2)
    wide = np.ones((24, 18))
    assert (tolerances(both(Rounding.TF32), wide) > 1000 * tolerances(both(None), wide)).all()
    (side, _) = both(Rounding.BF16).term.body.args
    assert epsilon(side) == 2**-7
    assert rounding_of(side) is Rounding.BF16
