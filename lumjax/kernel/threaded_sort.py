"""SORT for blocks of threads: pieces of rows in shared memory by a bitonic network, then merged.

Keys are compared with the places that elements had, so that the order is total and stable: it is
the one order, however it is found. A piece has its keys and places in scratch. Rows longer than a
piece are merged in pairs, phase by phase: each element finds by bisection how many of the other
run's come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.builder import Builder, apply, between, cast, const, read, store
from lumjax.kernel.emit import Scope
from lumjax.kernel.ir import IndexValue, LoopKind, Value
from lumjax.kernel.term import Buffer
from lumjax.kernel.threaded import U32, before, count_before, most, named, pieces, truth
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, bounds, estimate

MOST, LEAST = 2048, 64  # elements of a piece
ROOM = 32 << 10  # bytes of scratch that it may take
LONGEST = 1 << 31  # elements of a row
_PLACE = np.dtype(np.uint32)

# The keys of an element: the scope, its row, its position in that.
Keys: TypeAlias = Callable[[Scope, Dim, Dim], Sequence[Value]]
# What becomes of an element: the scope, its row, its place in the order, that before, its keys.
Finish: TypeAlias = Callable[[Scope, Dim, Dim, Dim, Sequence[Value]], None]


def sort_rows(
    b: Builder, rows: Dim, length: Dim, take: Dim, kinds: Sequence[dt.DType], keys: Keys,
    finish: Finish,
) -> None:  # fmt: skip
    """Append the phases that sort rows of `length` elements by unsigned keys of these dtypes;
    `finish` sees the first `take` of each, in order.
    """
    made = _Rows(b, rows, length, kinds)
    if made.levels == 0:
        made.pieces(keys, take, finish)
        return
    made.pieces(keys, None, finish)
    for level in range(made.levels):
        made.merge(made.piece << level)
    made.finish(take, finish)


class _Rows:
    def __init__(self, b: Builder, rows: Dim, length: Dim, kinds: Sequence[dt.DType]) -> None:
        self.b, self.rows, self.kinds = b, rows, list(kinds)
        self.n, self.extent = length, dims.substitute(length, b.sizes)
        extent = self.extent
        width = sum(k.itemsize for k in kinds) + _PLACE.itemsize
        piece = MOST
        while piece > LEAST and piece * width > ROOM:
            piece //= 2
        while isinstance(extent, int) and extent <= piece // 2:
            piece //= 2
        self.piece = b.choices.choose(piece)
        longest = bounds(extent)[1]
        tiles = -(-min(LONGEST, LONGEST if longest is None else longest) // piece)
        self.levels = b.choices.choose(max(0, tiles - 1).bit_length())
        if self.levels:
            self.keys = [[b.workspace((rows, self.n), k) for k in kinds] for _ in range(2)]
            self.places = [b.workspace((rows, self.n), _PLACE) for _ in range(2)]

    # ---- pieces

    def pieces(self, keys: Keys, take: Dim | None, finish: Finish) -> None:
        """Sort each piece; where it is all of a row (`take` is given), that is all."""
        b, size = self.b, self.piece
        held = [b.scratch(size, k) for k in self.kinds]
        places = b.scratch(size, _PLACE)
        count = dims.ceiling_divide(self.n, size) if take is None else 1
        with b.job(self.rows * count) as (scope, job):
            b.decode(scope, job, [("row", self.rows), ("piece", count)])
            row, i = dims.symbol("row", 0), dims.symbol("i", 0)
            begin = b.index(scope, dims.symbol("piece", 0) * size, "begin")
            left = b.index(scope, dims.minimum(self.n - begin, size), "left")
            with scope.loop("i", size, LoopKind.VECTOR) as each:
                inside = truth(dims.less(i, left))
                at = b.index(each, dims.minimum(begin + i, self.n - 1), "at")
                for buffer, key in zip(held, keys(each, row, at), strict=True):
                    store(each, buffer, i, apply("select", inside, key, most(key.dtype)))
                store(each, places, i, IndexValue(begin + i, _PLACE))
            self._network(scope, held, places)
            if take is None:
                with scope.loop("i", left, LoopKind.VECTOR) as each:
                    to = row * self.n + between(begin + i, 0, self.n - 1)
                    for buffer, target in zip(held, self.keys[0], strict=True):
                        store(each, target, to, read(buffer, i))
                    store(each, self.places[0], to, read(places, i))
                return
            with scope.loop("i", dims.minimum(take, size), LoopKind.VECTOR) as each:
                at = dims.minimum(i, left - 1)
                place = b.let(each, read(places, at), "place")
                values = [read(buffer, at) for buffer in held]
                finish(each, row, i, between(place, 0, self.n - 1), values)

    def _network(self, scope: Scope, held: Sequence[Buffer], places: Buffer) -> None:
        """Batcher's bitonic network: runs of twice the length, every other one backwards."""
        b, size = self.b, self.piece
        half, stages = size // 2, size.bit_length() - 1
        s, t, i = (dims.symbol(n, 0) for n in ("stage", "turn", "i"))
        if not stages:
            return
        with (
            scope.loop("stage", stages) as outer,
            outer.loop("turn", s + 1) as turn,
        ):
            shift = cast(IndexValue(stages - 1 - s + t, dt.int64), U32)
            apart = b.let(turn, apply("shift_right_logical", const(U32, half), shift), "apart")
            with turn.loop("i", half, LoopKind.VECTOR) as each:
                self._exchange(each, held, places, apart, i, s)

    def _exchange(
        self, each: Scope, held: Sequence[Buffer], places: Buffer, apart: Dim, i: Dim, stage: Dim
    ) -> None:
        """Compare two elements `apart` from each other, and put them in order."""
        b = self.b
        number = cast(IndexValue(i, dt.int64), U32)
        mask = cast(IndexValue(apart - 1, dt.int64), U32)
        low = b.let(each, apply("and", number, mask), "low")
        one = b.index(each, between(2 * i - low, 0, self.piece - 1), b.fresh("one"))
        two = b.index(each, between(one + apart, 0, self.piece - 1), b.fresh("two"))
        shifted = apply("shift_right_logical", number, cast(IndexValue(stage, dt.int64), U32))
        back = apply("ne", apply("and", shifted, const(U32, 1)), const(U32, 0))
        arrays = (*held, places)
        mine = [named(b, each, read(x, one)) for x in arrays]
        other = [named(b, each, read(x, two)) for x in arrays]
        wrong = before(other, mine, const(np.dtype(bool), False))
        swap = named(b, each, apply("ne", wrong, back), "swap")
        for array, x, y in zip(arrays, mine, other, strict=True):
            store(each, array, one, apply("select", swap, y, x))
            store(each, array, two, apply("select", swap, x, y))

    # ---- longer rows

    def merge(self, run: int) -> None:
        """Merge runs in pairs; a last one without another stays as it is."""
        b, n = self.b, self.n
        keys, to = self.keys
        places, placed = self.places
        with pieces(b, self.rows, n, estimate(self.extent)) as (each, row, i):
            number = b.index(each, dims.floor_divide(i, run), "number")
            odd = b.index(each, dims.remainder(number, 2), "odd")
            start = b.index(each, (number - odd) * run, "start")  # of the pair
            others = b.index(each, dims.select(odd, start, start + run), "others")
            end = b.index(each, dims.select(odd, run, between(n - others, 0, run)), "many")
            mine = [named(b, each, read(k, row * n + i)) for k in keys]
            place = named(b, each, read(places, row * n + i))
            fewer = self._smaller(each, mine, keys, row * n, others, end, odd, run)
            left = i - start - odd * run
            at = row * n + between(start + left + fewer, 0, n - 1)
            for key, target in zip(mine, to, strict=True):
                store(each, target, at, key)
            store(each, placed, at, place)
        self.keys.reverse()
        self.places.reverse()

    def _smaller(
        self, each: Scope, mine: Sequence[Value], keys: Sequence[Buffer], row: Dim, others: Dim,
        end: Dim, odd: Dim, run: int,
    ) -> Dim:  # fmt: skip
        """How many of the other run come before one; of equal ones, those of an earlier run do."""
        b, n = self.b, self.n

        def earlier(turn: Scope, wanted: Dim) -> Value:
            at = row + between(others + wanted - 1, 0, n - 1)
            theirs = [named(b, turn, read(k, at)) for k in keys]
            return before(theirs, mine, truth(odd))

        return count_before(b, each, run, end, earlier)

    def finish(self, take: Dim, finish: Finish) -> None:
        """What becomes of the first ones."""
        b, n = self.b, self.n
        with pieces(b, self.rows, take, estimate(self.extent)) as (each, row, i):
            at = row * n + dims.minimum(i, n - 1)
            place = b.let(each, read(self.places[0], at), "place")
            values = [read(k, at) for k in self.keys[0]]
            finish(each, row, i, between(place, 0, n - 1), values)
