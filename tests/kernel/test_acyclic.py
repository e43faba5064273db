"""Parts in a circle are cut at equations that run alone, and joined where there are none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lumjax.kernel.acyclic import acyclic, circles


def depends(parts, below):
    where = {k: n for n, part in enumerate(parts) for k in part}
    return {(n, where[m]) for n, part in enumerate(parts) for k in part for m in below[k]}


def has_circle(parts, below):
    edges = {(a, b) for a, b in depends(parts, below) if a != b}
    left = set(range(len(parts)))
    while left:
        free = {n for n in left if not any(a == n and b in left for a, b in edges)}
        if not free:
            return True
        left -= free
    return False


def test_parts_without_a_circle_stay():
    assert acyclic([[0, 1], [2]], [(), (0,), (1,)], [False] * 3) == [[0, 1], [2]]


def test_a_circle_is_joined():
    below = [(), (), (0,), (1, 2)]  # 0 and 3 together, 2 between them
    assert acyclic([[0, 3], [1], [2]], below, [False] * 4) == [[0, 2, 3], [1]]


def test_a_circle_through_an_equation_alone_is_cut():
    below = [(), (0,), (1,), (0, 2)]
    alone = [False, True, False, False]
    parts = acyclic([[0, 2, 3], [1]], below, alone)
    assert sorted(map(sorted, parts)) == [[0], [1], [2, 3]]


@st.composite
def partitions(draw):
    n = draw(st.integers(1, 14))
    below = [
        tuple(sorted(draw(st.sets(st.integers(0, k - 1), max_size=3)))) if k else ()
        for k in range(n)
    ]
    alone = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    colour = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    parts = [[k for k in range(n) if colour[k] == c and not alone[k]] for c in range(4)]
    return [p for p in parts if p] + [[k] for k in range(n) if alone[k]], below, alone


@given(partitions())
def test_no_circle_is_left_and_nothing_is_lost(drawn):
    parts, below, alone = drawn
    found = acyclic(parts, below, alone)
    assert not has_circle(found, below)
    assert sorted(k for p in found for k in p) == list(range(len(below)))
    assert all(len(p) == 1 for p in found for k in p if alone[k])
    assert all(p == sorted(p) for p in found)
    if not has_circle(parts, below):
        assert sorted(found) == sorted(parts)
    assert all(len(c) == 1 for c in circles(found, below))
