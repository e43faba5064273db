"""Offsets in one block for buffers with known lifetimes: first fit, largest first."""

from __future__ import annotations

from collections.abc import Sequence

from lumjax.record import record

ALIGNMENT = 64


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
    order = sorted(range(len(intervals)), key=lambda k: (-intervals[k].size, intervals[k].first))
    offsets = [0] * len(intervals)
    placed: list[tuple[int, int, int, int]] = []  # first, last, begin, end
    total = 0
    for k in order:
        new = intervals[k]
        first, last = new.first, new.last
        size = -(-new.size // ALIGNMENT) * ALIGNMENT
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
    return offsets, total


def peak(intervals: Sequence[Interval]) -> int:
    """The most bytes alive at one step: a lower bound of any assignment."""
    steps = {i.first for i in intervals}
    return max((sum(i.size for i in intervals if i.first <= s <= i.last) for s in steps), default=0)
