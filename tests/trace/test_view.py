"""Index maps against NumPy's own movements of index arrays."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumjax.trace import dim as dm
from lumjax.trace import view
from lumjax.trace.dim import same, symbol
from lumjax.trace.view import IndexMap, coordinate, reshape

B, T = symbol("B", 1), symbol("T", 1)
FILL = -7


def numbered(shape):
    return np.arange(1, math.prod(shape) + 1).reshape(shape)


def moved(index_map, x, **values):
    """What the map reads from x; FILL where it is not valid."""
    flat, mask = index_map.evaluate(x.shape, values)
    if mask.any():
        assert flat.min() >= 0
        assert flat.max() < x.size
    source = x.ravel() if x.size else np.zeros(1, x.dtype)
    return np.where(mask, source[flat], FILL)


def check(index_map, x, want, **values):
    got = moved(index_map, x, **values)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


def shapes(r: Random, most=4):
    return tuple(r.choice([0, 1, 1, 2, 3, 4, 5, 6]) for _ in range(r.randint(0, most)))


def refactored(r: Random, size: int):
    """A random shape of the given size."""
    if size == 0:
        return (0, *shapes(r, 2))
    shape = []
    while size > 1:
        d = r.choice([d for d in range(2, size + 1) if size % d == 0])
        shape.append(d)
        size //= d
    for _ in range(r.randint(0, 2)):
        shape.insert(r.randint(0, len(shape)), 1)
    return tuple(shape)


def padded(x, low, high, interior):
    """XLA's pad, axis by axis."""
    for axis, (lo, hi, between) in enumerate(zip(low, high, interior, strict=True)):
        x = np.moveaxis(x, axis, 0)
        n = x.shape[0]
        spread = np.full((n + max(n - 1, 0) * between, *x.shape[1:]), FILL)
        spread[:: between + 1] = x
        edge = lambda count: np.full((max(count, 0), *x.shape[1:]), FILL)
        x = np.concatenate([edge(lo), spread[max(-lo, 0) :], edge(hi)])
        x = np.moveaxis(x[: max(len(x) + min(hi, 0), 0)], 0, axis)
    return x


def random_move(r: Random, shape):
    """(map, NumPy function) of one random movement of an operand of this shape."""
    n = len(shape)
    kind = r.choice(["reshape", "transpose", "slice", "flip", "pad", "broadcast", "identity"])
    if kind == "reshape":
        to = refactored(r, math.prod(shape))
        return reshape(shape, to), lambda x: x.reshape(to)
    if kind == "transpose":
        perm = r.sample(range(n), n)
        return view.transpose(shape, perm), lambda x: x.transpose(perm)
    if kind == "slice":
        starts = [r.randint(0, d) for d in shape]
        limits = [r.randint(s, d) for s, d in zip(starts, shape, strict=True)]
        steps = [r.randint(1, 3) for _ in shape]
        cut = tuple(map(slice, starts, limits, steps))
        return view.slice(shape, starts, limits, steps), lambda x: x[cut]
    if kind == "flip":
        axes = [k for k in range(n) if r.random() < 0.5]
        return view.flip(shape, axes), lambda x: np.flip(x, axes)
    if kind == "pad":
        low = [r.randint(-min(d, 1), 2) for d in shape]
        high = [r.randint(-min(d, 1) if a >= 0 else 0, 2) for d, a in zip(shape, low, strict=True)]
        between = [r.randint(0, 2) for _ in shape]
        return view.pad(shape, low, high, between), lambda x: padded(x, low, high, between)
    if kind == "broadcast":
        out = [r.randint(1, 3) if d == 1 else d for d in shape]
        dims = list(range(1, n + 1))
        new = [2, *out]
        return view.broadcast(shape, new, dims), lambda x: np.broadcast_to(x, new)
    return view.identity(shape), lambda x: x


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_single_movements(r):
    shape = shapes(r)
    index_map, f = random_move(r, shape)
    x = numbered(shape)
    check(index_map, x, f(x))


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 4))
def test_composition(r, steps):
    first = shapes(r, 3)
    x = want = numbered(first)
    total = view.identity(first)
    for _ in range(steps):
        if want.size > 4000:
            break
        index_map, f = random_move(r, want.shape)
        want = f(want)
        total = index_map.compose(total)
    check(total, x, want)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_facts_agree_with_the_numbers(r):
    shape = shapes(r, 3)
    x = numbered(shape)
    index_map, f = random_move(r, shape)
    other, g = random_move(r, f(x).shape)
    index_map = other.compose(index_map)
    want = g(f(x))
    flat, mask = index_map.evaluate(shape)
    assert flat.shape == want.shape
    if index_map.is_identity(shape):
        check(index_map, x, x)
    perm = index_map.permutation(shape)
    if perm is not None:
        check(index_map, x, x.transpose(perm))
    for k, stride in enumerate(index_map.strides(shape)):
        if stride is not None and same(index_map.valid, 1) and flat.shape[k] > 1:
            assert np.all(np.diff(flat, axis=k) == stride)
    run = index_map.contiguous_run(shape)
    if run > 1 and flat.size:
        rows, masks = flat.reshape(-1, run), mask.reshape(-1, run)
        assert np.all(masks == masks[:, :1])
        assert np.all((np.diff(rows, axis=1) == 1) | ~masks[:, 1:])


@pytest.mark.parametrize(
    ("old", "new", "coords"),
    [
        ((6, 4), (2, 3, 4), "(3*d0 + d1, d2)"),
        ((4, 6), (24,), "((d0//6), (d0%6))"),
        ((2, 3, 4), (6, 4), "((d0//3), (d0%3), d1)"),
        ((B, T, 768), (B, T, 12, 64), "(d0, d1, 64*d2 + d3)"),
        ((B, T, 12, 64), (B, T, 768), "(d0, d1, (d2//64), (d2%64))"),
        ((B, T, 64), (B * T, 64), "((d0//T), (d0%T), d1)"),
        ((B * T, 64), (B, T, 64), "(T*d0 + d1, d2)"),
        ((B, T), (T * B,), "((d0//T), (d0%T))"),
        ((T * B,), (B, T), "(T*d0 + d1,)"),
        ((3, 1, 4), (1, 3, 4, 1), "(d1, 0, d2)"),
        ((1, T), (T, 1), "(0, d0)"),
        ((), (1, 1), "()"),
        ((1, 1), (), "(0, 0)"),
        ((1,), (1,), "(0,)"),
        ((0, 3), (5, 0), "(0, 0)"),
        ((T, 4, 6), (T, 6, 4), "(d0, ((4*d1 + d2)//6), ((4*d1 + d2)%6))"),
        ((B, 2 * T), (B, 2, T), "(d0, T*d1 + d2)"),
        ((2, B, 3), (2, B, 3), "(d0, d1, d2)"),
        ((4, 2, T), (8, T), "((d0//2), (d0%2), d1)"),
    ],
)
def test_reshapes_are_clean(old, new, coords):
    index_map = reshape(old, new)
    assert str(index_map.coords) == coords
    assert same(index_map.valid, 1)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_reshaping_back_is_the_identity(r):
    shape = refactored(r, r.choice([1, 4, 6, 12, 24, 36, 60, 64, 120]))
    other = refactored(r, math.prod(shape))
    there_and_back = reshape(other, shape).compose(reshape(shape, other))
    check(there_and_back, numbered(shape), numbered(shape))
    assert there_and_back.is_identity(shape), there_and_back


def test_symbolic_reshape_evaluates():
    index_map = reshape((B, T, 6), (B * T, 2, 3))
    check(index_map, numbered((4, 5, 6)), numbered((4, 5, 6)).reshape(20, 2, 3), B=4, T=5)
    back = reshape((B * T, 2, 3), (B, T, 6)).compose(index_map)
    assert back.is_identity((B, T, 6))
    fixed = index_map.substitute({"B": 1, "T": 5})
    assert fixed.domain == (5, 2, 3)
    assert str(fixed.coords) == "(0, d0, 3*d1 + d2)"
    point = view.flip((B, 3), (0,)).substitute({"B": 1})
    assert str(point.coords) == "(0, d1)"


def test_reshape_of_another_size_is_refused():
    with pytest.raises(AssertionError, match="differ"):
        reshape((2, 3), (7,))


@pytest.mark.parametrize("start", [-100, -1, 0, 2, 3, 99])
def test_dynamic_slice_clamps(start):
    index_map = view.dynamic_slice((7, 5), ["s", 1], [4, 3])
    s = min(max(start, 0), 3)
    check(index_map, numbered((7, 5)), numbered((7, 5))[s : s + 4, 1:4], s=start)
    assert index_map.symbols() == {"s"}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("sizes", [(2,), (2, 3), (0, 2), (1, 0, 1)])
def test_concatenate(axis, sizes):
    parts = []
    for k, n in enumerate(sizes):
        shape = [3, 3]
        shape[axis] = n
        parts.append(numbered(shape) + 100 * k)
    maps = view.concatenate([p.shape for p in parts], axis)
    want = np.concatenate(parts, axis)
    covered = np.zeros(want.shape, int)
    for index_map, part in zip(maps, parts, strict=True):
        _, mask = index_map.evaluate(part.shape)
        np.testing.assert_array_equal(moved(index_map, part)[mask], want[mask])
        covered += mask
    assert np.all(covered == 1)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_window_is_a_convolution(r):
    n, k = r.randint(1, 8), r.randint(1, 4)
    stride, low, dilation, base = (
        r.randint(1, 3),
        r.randint(-1, 3),
        r.randint(1, 2),
        r.randint(1, 3),
    )
    spread = (n - 1) * base + 1
    out = max((spread + low + 2 - (k - 1) * dilation - 1) // stride + 1, 0)
    shape = (out, k)
    place, tap = view.coordinates(shape)
    coord, valid = view.window(
        place, tap, n, stride=stride, low=low, dilation=dilation, base_dilation=base
    )
    got = moved(IndexMap(shape, (coord,), valid), numbered((n,)))
    line = padded(numbered((n,)), [0], [0], [base - 1])
    for o in range(out):
        for t in range(k):
            p = o * stride + t * dilation - low
            assert got[o, t] == (line[p] if 0 <= p < len(line) else FILL)


def test_masks_are_minimal():
    index_map = view.pad((3, 4), (1, 0), (2, 0))
    assert str(index_map.valid) == "(((d0 - 1) >= 0) and ((-d0 + 3) >= 0))"
    assert same(view.pad((3,), (0,), (0,), (1,)).coords[0], coordinate(0, 5) // 2)
    assert same(view.pad((3,), (-1,), (-1,)).valid, 1)
    assert same(view.pad((0,), (1,), (1,)).valid, 0)
    back = view.slice((6,), (1,), (4,)).compose(view.pad((3,), (1,), (2,)))
    assert back.is_identity((3,))


def test_facts():
    x = (2, 3, 4)
    swap = view.transpose(x, (0, 2, 1))
    assert swap.permutation(x) == (0, 2, 1)
    assert swap.is_permutation(x)
    assert not swap.is_identity(x)
    assert swap.strides(x) == (12, 1, 4)
    assert swap.contiguous_run(x) == 1
    assert view.identity(x).contiguous_run(x) == 24
    assert view.transpose(x, (1, 0, 2)).contiguous_run(x) == 4
    assert view.slice(x, (0, 1, 0), (2, 3, 4)).contiguous_run(x) == 8
    assert view.pad((4, 4), (1, 0), (1, 0)).contiguous_run((4, 4)) == 4
    assert reshape((3, 4), (12,)).strides((3, 4)) == (1,)
    assert view.flip((4,), (0,)).strides((4,)) == (-1,)
    assert not view.flip((4,), (0,)).is_permutation((4,))
    assert not view.pad((4,), (1,), (1,)).is_permutation((4,))
    assert not view.slice((4,), (0,), (3,)).is_identity((4,))
    assert not reshape((4,), (2, 2)).is_permutation((4,))
    assert view.broadcast((3,), (2, 3), (1,)).strides((3,)) == (0, 1)
    assert view.reshape((2, 3), (3, 2)).compose(view.transpose((3, 2), (1, 0))).strides((3, 2)) == (
        None,
        None,
    )
    assert view.identity((T, 1, 4)).contiguous_run((T, 1, 4)) is 4 * T
    assert view.row_major((B, T, 4))[0] is 4 * T
    assert view.in_bounds((coordinate(0, T),), (T,))
    assert not view.in_bounds((coordinate(0, T) + 1,), (T,))
    assert view.identity((T, 3)).symbols() == frozenset()
    assert dm.symbols(*reshape((B, T), (B * T,)).coords) == {"d0", "T"}
