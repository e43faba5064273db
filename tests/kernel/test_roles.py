"""Roles of axes in loops over tiles, and the terms that keep roots from them."""

from __future__ import annotations

import pytest

from lumjax.kernel.emit import Reject
from lumjax.kernel.roles import Roles, fold_roles
from lumjax.trace import dim as dims
from tests.kernel import streams
from tests.kernel.build import MAX, SUM, axis, load, op, reduce, root, sym

B, H, I, J, D, E = (  # noqa: E741
    axis("b", 2), axis("h", 4), axis("i", 30), axis("j", 20), axis("d", 8), axis("e", 16)
)  # fmt: skip


def found(*roots):
    roles = fold_roles(roots)
    assert isinstance(roles, Roles), roles
    return roles


def names(axes):
    return "".join(a.name for a in axes)


def test_weighted_values():
    r = found(*streams.weighted(I, J, D, E, (B, H)))
    assert (names(r.grid), r.rows, r.stream, r.along) == ("bh", I, frozenset({J}), J)
    assert [c.term.op for c in r.carries] == [MAX, SUM, SUM]
    assert names(r.columns) == "e"
    assert not r.late
    (inner,) = r.inner
    assert names(sorted(inner.term.axes, key=str)) == "d"
    assert "i" in inner.left._free
    assert "j" in inner.right._free


def test_shared_streams_of_groups_of_rows():
    """Keys are read at h // 2: rows of two heads walk the same stream."""
    g = streams.weighted(I, J, D, E, (H,), key=lambda h: (dims.floor_divide(sym(h), 2),))
    r = found(*g)
    assert (names(r.grid), r.rows, r.along) == ("h", I, J)


def test_the_longest_row_axis_is_tiled():
    g, i = axis("g", 2), axis("i", 30)
    q, k = load("q", H, g, i, D), load("k", H, J, D)
    s = reduce(SUM, D, op("mul", q, k))
    r = found(root("o", (H, g, i), streams.logsumexp(s, J)))
    assert (names(r.grid), r.rows) == ("hg", i)


def test_logsumexp_of_a_contraction_with_a_picked_value():
    n, v = axis("n", 12), axis("v", 50)
    z = reduce(SUM, D, op("mul", load("x", n, D), load("w", D, v)))
    label = streams.picked(z, n, v)
    r = found(root("lse", (n,), streams.logsumexp(z, v)), root("label", (n,), label))
    assert r.rows is n
    assert r.along is v
    assert not r.columns
    assert len(r.inner) == 1
    assert len(r.carries) == 3


def test_two_roots_accumulate_over_shared_tiles():
    r = found(*streams.backward_columns(I, J, D, E, (H,)))
    assert (names(r.grid), r.rows, r.along) == ("h", J, I)
    assert len(r.inner) == 2
    assert names(r.columns) == "ed"
    assert all(c.weights is not None for c in r.carries)


def test_rows_accumulate_over_the_stream():
    r = found(*streams.backward_rows(I, J, D, E, (H,)))
    assert (r.rows, r.along, names(r.columns)) == (I, J, "d")


def test_two_layers():
    f = axis("f", 40)
    hidden = reduce(SUM, D, op("mul", load("x", I, D), load("w1", D, f)))
    relu = op("max", hidden, streams.lit(0.0))
    r = found(root("y", (I, E), reduce(SUM, f, op("mul", relu, load("w2", f, E)))))
    assert (r.rows, r.along, names(r.columns)) == (I, f, "e")
    assert r.inner[0].term is hidden


def test_both_directions_of_a_table():
    a, b = load("a", I, D), load("c", J, D)
    s = reduce(SUM, D, op("mul", a, b))
    there, back = root("p", (I,), streams.logsumexp(s, J)), root("q", (J,), streams.logsumexp(s, I))
    assert found(there).rows is I
    assert found(back).rows is J
    assert fold_roles([there, back]) is None


def test_long_rows():
    x = load("x", I, J)
    r = found(root("y", (I,), streams.logsumexp(x, J)))
    assert (r.rows, r.along, r.inner) == (I, J, ())
    m, total, weights = streams.weights(x, J)
    late = root("y", (I, J), op("div", weights(m), total))
    r = found(late)
    assert r.late == (late,)
    assert r.rows is I


def test_a_running_weight_of_stored_scores():
    x = load("x", I, J)
    _, total, weights = streams.weights(x, J)
    out = streams.scaled(x, J, op("mul", weights(None), load("v", J, E)))
    r = found(root("o", (I, E), op("div", out, total)))
    assert not r.inner
    assert names(r.columns) == "e"


@pytest.mark.parametrize("unscaled", [True, False])
def test_a_final_value_inside_the_loop_is_refused(unscaled):
    s = reduce(SUM, D, op("mul", load("q", I, D), load("k", J, D)))
    m = reduce(MAX, J, s)
    total = reduce(SUM, J, op("exp", op("sub", s, m)))
    o = reduce(SUM, J, op("mul", op("div", s, total), load("v", J, E)))
    refused = fold_roles([root("o", (I, E), o) if unscaled else root("o", (I,), total)])
    assert isinstance(refused, Reject)
    assert refused.term is (total if unscaled else m)


def test_a_row_may_share_nothing():
    """Without an axis of rows each point of the grid walks its stream alone."""
    r = found(*streams.weighted(axis("i", 1), J, D, E, (B, H)))
    assert (names(r.grid), r.rows, r.along, names(r.columns)) == ("bh", None, J, "e")
    assert len(r.inner) == 1


def test_rows_that_share_one_side_only_are_no_lone_rows():
    """Keys of each row, but values of all: what rows do not share is stored."""
    q, k = load("q", I, D), load("k", I, J, D)
    s = reduce(SUM, D, op("mul", q, k))
    _, total, weight = streams.weights(s, J)
    o = streams.scaled(s, J, op("mul", weight(None), load("v", J, E)))
    found = fold_roles([root("o", (I, E), op("div", o, total))])
    assert isinstance(found, Reject)
    assert found.term is s


def test_numbers_per_row_are_stored():
    s = reduce(SUM, D, op("mul", load("q", I, D), load("k", J, D)))
    norm = reduce(SUM, D, op("mul", load("q", I, D), load("q", I, D)))
    o = reduce(SUM, J, op("mul", op("mul", s, norm), load("v", J, E)))
    refused = fold_roles([root("o", (I, E), o)])
    assert isinstance(refused, Reject)
    assert refused.term is norm
    o = reduce(SUM, J, op("mul", s, load("v", J, E)))
    refused = fold_roles([root("o", (I, E), op("mul", o, norm))])
    assert isinstance(refused, Reject)
    assert refused.term is norm


def test_a_contraction_of_contractions_is_stored():
    c = axis("c", 6)
    q = reduce(SUM, c, op("mul", load("x", I, c), load("w", c, D)))
    s = reduce(SUM, D, op("mul", q, load("k", J, D)))
    refused = fold_roles([root("o", (I, E), reduce(SUM, J, op("mul", s, load("v", J, E))))])
    assert isinstance(refused, Reject)
    assert refused.term is s


def test_what_is_no_loop_over_tiles():
    x, y = load("x", I, D), load("w", D, E)
    matmul = reduce(SUM, D, op("mul", x, y))
    assert fold_roles([root("o", (I, E), matmul)]) is None
    assert fold_roles([root("o", (I, D), op("neg", x))]) is None
    mean = reduce(SUM, D, x)
    deviation = op("sub", x, mean)
    assert fold_roles([root("o", (I,), reduce(SUM, D, op("mul", deviation, deviation)))]) is None
    vector = reduce(SUM, D, op("mul", load("q", H, D), load("k", H, J, D)))
    assert fold_roles([root("o", (H,), reduce(MAX, J, vector))]) is None
    one = axis("one", 1)
    s = reduce(SUM, D, op("mul", load("q", one, D), load("k", J, D)))
    assert fold_roles([root("o", (one,), reduce(MAX, J, s))]) is None


def test_a_sum_inside_over_the_loops_own_axis_is_refused():
    """One name cannot be walked by two loops at once: the sum inside is stored."""
    gram = reduce(SUM, D, op("mul", load("x", I, D), load("x", J, D)))
    body = op("mul", op("mul", gram, load("x", J, D)), load("x", E, D))
    roots = [root("o", (I, E), reduce(SUM, (J, D), body))]
    refused = fold_roles(roots)
    assert isinstance(refused, Reject)
    assert refused.term is gram
    other = axis("c", 8)
    gram = reduce(SUM, other, op("mul", load("x", I, other), load("x", J, other)))
    body = op("mul", op("mul", gram, load("x", J, D)), load("x", E, D))
    assert isinstance(fold_roles([root("o", (I, E), reduce(SUM, (J, D), body))]), Roles)
