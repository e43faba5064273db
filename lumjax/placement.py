"""Offsets in one block for buffers with known lifetimes.

First fit in several orders, the largest first, until no block could be smaller; for few buffers in
every order, which finds the smallest block: a best placement, read from low offsets to high, is
what first fit makes of that order, or better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from lumjax.record import record

ALIGNMENT = 64
FEW = 6  # buffers of which every order is tried


@record
class Interval:
    """A buffer of `size` bytes that is written at step `first` and last read at step `last`."""

    size: int
    first: int
    last: int


def assign(intervals: Sequence[Interval]) -> tuple[list[int], int]:
    """An offset for each buffer such that no two alive at once overlap, and the block's size.

    >>> assign([Interval(64, 0, 1), Interval(64, 1, 2), Interval(64, 2, 3)])
    ([0, 64, 0], 128)
    """
    sizes = [_aligned(i.size) for i in intervals]
    least = peak([Interval(n, i.first, i.last) for n, i in zip(sizes, intervals, strict=True)])
    best: tuple[list[int], int] | None = None
    for order in _orders(intervals):
        found = _first_fit(intervals, sizes, order, None if best is None else best[1])
        if found is not None and (best is None or found[1] < best[1]):
            best = found
        if best is not None and best[1] <= least:
            break
    assert best is not None, "there is an order"
    return best


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _orders(intervals: Sequence[Interval]) -> Iterator[Sequence[int]]:
    """Orders in which buffers are placed."""
    every = range(len(intervals))

    def span(k: int) -> int:
        return intervals[k].last - intervals[k].first

    yield sorted(every, key=lambda k: (-intervals[k].size, intervals[k].first))
    yield sorted(every, key=lambda k: (-intervals[k].size * (1 + span(k)), intervals[k].first))
    yield sorted(every, key=lambda k: (-span(k), -intervals[k].size))
    yield sorted(every, key=lambda k: (intervals[k].first, -intervals[k].size))
    yield sorted(every, key=lambda k: (-intervals[k].last, -intervals[k].size))
    if len(intervals) <= FEW:
        yield from permutations(every)


def _first_fit(
    intervals: Sequence[Interval], sizes: Sequence[int], order: Sequence[int], bound: int | None
) -> tuple[list[int], int] | None:
    """Each buffer in turn at the lowest offset where it fits; None if that is no better than
    `bound`.
    """
    offsets = [0] * len(intervals)
    placed: list[tuple[int, int, int, int]] = []  # first, last, begin, end
    total = 0
    for k in order:
        first, last, size = intervals[k].first, intervals[k].last, sizes[k]
        taken = [(b, e) for f, until, b, e in placed if f <= last and first <= until]
        taken.sort()
        at = 0
        for begin, end in taken:
            if begin - at >= size:
                break
            at = max(at, end)
        offsets[k] = at
        placed.append((first, last, at, at + size))
        total = max(total, at + size)
        if bound is not None and total >= bound:
            return None
    return offsets, total


def peak(intervals: Sequence[Interval]) -> int:
    """The most bytes alive at one step: a lower bound of any assignment."""
    steps = {i.first for i in intervals}
    return max((sum(i.size for i in intervals if i.first <= s <= i.last) for s in steps), default=0)
