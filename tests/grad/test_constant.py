"""Staged constants are found without running anything; harmless masks cost nothing."""

from itertools import combinations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.grad import constant
from lumjax.grad.constant import distinct, holds_along, known_value
from lumjax.grad.reverse import grad
from lumjax.ops import (
    add,
    and_,
    broadcast_in_dim,
    broadcasted_iota,
    concatenate,
    dot_general,
    eq,
    ge,
    gt,
    lt,
    mul,
    ne,
    pad,
    reduce_sum,
    reshape,
    rev,
    select,
    sin,
    slice,
    sub,
    transpose,
)
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Effect, Primitive
from lumjax.trace.dim import symbol
from lumjax.trace.stage import stage

F32 = ShapedArray((4, 4), dt.float32)


def inside(f, *avals):
    """What `f` returns when it is called while staging."""
    found = []

    def run(*args):
        found.append(f(*args))
        return []

    stage(run, avals)
    return found[0]


def causal(n):
    return ge(broadcasted_iota(dt.int32, (n, n), 0), broadcasted_iota(dt.int32, (n, n), 1))


def test_values():
    assert known_value(Array(np.ones(2))).tolist() == [1.0, 1.0]
    assert known_value(2.0) == 2.0
    found = inside(lambda x: known_value(causal(3)), F32)
    np.testing.assert_array_equal(found, np.tri(3, dtype=bool))
    assert inside(known_value, F32) is None
    assert inside(lambda x: known_value(add(x, 1.0)), F32) is None


def test_hoisted_arrays_and_growth():
    table = Array(np.arange(4, dtype=np.float32))

    def f(x):
        first = known_value(mul(table, 2.0))  # staged, though no input reaches it
        second = known_value(add(table, 1.0))
        return first, second

    first, second = inside(f, F32)
    assert first.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert second.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_tracers_of_other_kinds_are_unknown():
    found = []
    grad(lambda x: found.append(known_value(x)) or x)(1.0)
    assert found == [None]


def test_a_hoisted_tracer_is_unknown():
    assert inside(lambda x: inside(lambda y: known_value(add(x, 1.0)), F32), F32) is None


def test_limits(monkeypatch):
    monkeypatch.setattr(constant, "_LIMIT", 40)
    assert inside(lambda: known_value(causal(3))) is not None
    assert inside(lambda: known_value(causal(4))) is None
    # A repeated element does not count.
    assert inside(lambda: known_value(broadcast_in_dim(np.float32(1), (9, 9), ()))) is not None
    monkeypatch.setattr(constant, "_DEPTH", 2)
    assert inside(lambda: known_value(sin(sin(sin(broadcast_in_dim(1.0, (3,), ())))))) is None


def test_large_values_are_computed_again(monkeypatch):
    monkeypatch.setattr(constant, "_KEPT", 4)
    first, second = inside(lambda: [known_value(x) for x in [causal(4)] * 2])
    np.testing.assert_array_equal(first, np.tri(4, dtype=bool))
    np.testing.assert_array_equal(first, second)
    assert first is not second


def test_symbolic_sizes_and_effects_are_left_alone():
    size = symbol("n", 1)
    assert inside(lambda: known_value(broadcast_in_dim(np.float32(1), (size,), ()))) is None
    noisy = Primitive("noisy", aval=lambda x: (x,), eval=None, form=None, effect=Effect.UNORDERED)
    assert inside(lambda: known_value(noisy.bind(np.float32(1.0))[0])) is None


def rows_and_columns(n, m):
    return broadcasted_iota(dt.int32, (n, m), 0), broadcasted_iota(dt.int32, (n, m), 1)


MASKS = {
    "causal": lambda i, j: ge(i, j),
    "strictly": lambda i, j: gt(i, j),
    "window": lambda i, j: and_(ge(i, j), lt(sub(i, j), 2)),
    "one row": lambda i, j: eq(i, 3),
    "one column": lambda i, j: eq(j, 4),
    "all but one": lambda i, j: ne(i, 2),
    "chosen": lambda i, j: select(ge(i, 3), lt(j, 2), gt(j, 2)),
    "turned": lambda i, j: transpose(ge(i, j), (1, 0)),
    "backwards": lambda i, j: rev(gt(i, j), (0,)),
    "cut": lambda i, j: slice(ge(i, j), (1, 2), (5, 5)),
    "joined": lambda i, j: concatenate([ge(i, j), gt(i, j)], 1),
    "in blocks": lambda i, j: reshape(ge(i, j), (2, 3, 5)),
    "of heads": lambda i, j: broadcast_in_dim(ge(i, j), (2, 6, 5), (1, 2)),
    "of a table": lambda i, j: and_(ge(i, j), hoisted()),
    "padded": lambda i, j: pad(gt(i, j), np.bool_(False), ((1, 0, 0), (0, 2, 0))),
}


def hoisted():
    return Array(np.arange(30).reshape(6, 5) % 3 == 0)


@pytest.mark.parametrize("name", MASKS)
def test_what_holds_is_found_without_the_whole(name, monkeypatch):
    """By elements, few at a time."""

    def ask(axes=None):
        mask = MASKS[name](*rows_and_columns(6, 5))
        return known_value(mask) if axes is None else holds_along(mask, axes)

    whole = inside(ask)
    monkeypatch.setattr(constant, "_LIMIT", 0)
    monkeypatch.setattr(constant, "_PIECE", 7)
    assert inside(ask) is None
    ranks = range(whole.ndim)
    for axes in (a for n in range(1, whole.ndim + 1) for a in combinations(ranks, n)):
        found = inside(lambda axes=axes: ask(axes))
        assert found <= whole.any(axis=axes).all()
        if len(axes) >= whole.ndim - 1:  # with one other axis at most, none is missed
            assert found == whole.any(axis=axes).all(), axes


def band(n, width):
    i, j = rows_and_columns(n, n)
    return and_(ge(i, j), lt(sub(i, j), width))


def test_a_large_mask_is_hardly_looked_at(monkeypatch):
    n, sizes, at = 1 << 15, [], constant._Constants._at

    def counted(*args):
        value = at(*args)
        sizes.append(value.size)
        return value

    monkeypatch.setattr(constant._Constants, "_at", counted)
    for make in (lambda: causal(n), lambda: band(n, 256)):
        for axis in (0, 1):
            assert inside(lambda make=make, axis=axis: holds_along(make(), (axis,)))
    assert sum(sizes) < n * n // 8
    assert max(sizes) <= 2 * constant._PIECE


def test_there_is_an_end_to_looking(monkeypatch):
    monkeypatch.setattr(constant, "_LIMIT", 0)
    assert inside(lambda: holds_along(band(64, 2), (0,)))
    monkeypatch.setattr(constant, "_LOOKED", 64 * 8)
    assert not inside(lambda: holds_along(band(64, 2), (0,)))


def test_distinct():
    assert distinct(np.broadcast_to(np.arange(3), (5, 3))).shape == (1, 3)
    assert distinct(np.broadcast_to(np.float32(1), (2, 2))).shape == (1, 1)
    assert distinct(np.zeros((0, 2))).shape == (0, 2)


def scores_loss(mask):
    def loss(q, k):
        scores = dot_general(q, k, (((1,), (1,)), ((), ())))
        return reduce_sum(sin(select(mask(), mul(scores, 0.5), -1e9)), None)

    return loss


def test_a_causal_mask_leaves_the_operands_of_its_product_alone():
    staged = stage(
        lambda q, k: list(grad(scores_loss(lambda: causal(4)), (0, 1))(q, k)), [F32, F32]
    )
    names = [e.prim.name for e in staged.jaxpr.eqns]
    assert "reduce_or" not in names
    assert names.count("select") <= 3  # forward, backward, and the product with the cosine at most


def test_a_mask_with_dead_rows_does_not():
    dead = np.array([[True] * 4, [True] * 4, [False] * 4, [True] * 4])
    loss = scores_loss(lambda: Array(dead))
    staged = stage(lambda q, k: list(grad(loss, (0, 1))(q, k)), [F32, F32])
    assert "reduce_or" in [e.prim.name for e in staged.jaxpr.eqns]
    q = np.ones((4, 4), np.float32)
    q[2] = np.inf
    to_k = grad(loss, 1)(q, np.ones((4, 4), np.float32))
    assert np.isfinite(to_k.data).all()


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_constants_that_are_not_harmless(value):
    x = np.zeros(2, np.float32)
    keep = np.array([True, False])
    f = lambda x: reduce_sum(select(keep, mul(x, np.array([1.0, value], np.float32)), 0.0), None)
    np.testing.assert_array_equal(grad(f)(x).data, [1.0, 0.0])
