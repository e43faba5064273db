"""INDEXED: updates of an array's elements in the order of the updates, without atomics.

Axes of the updates that are axes of the array are independent of each other: jobs share them out.
Along the others ("walked") each update finds its place among the array's remaining axes. Where rows
are short each job walks all updates and applies them one after the other. Where they are long, the
updates are first sorted by destination (by counting); then rows of the array are computed in
parallel, each from its own updates, in order. Either way the order of every element's updates is
theirs, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.builder import (
    Builder,
    Operand,
    apply,
    between,
    cast,
    const,
    read,
    store,
    volume,
    when,
)
from lumjax.kernel.emit import Scope
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    IndexValue,
    Let,
    LoopKind,
    Ref,
    StoreStmt,
    Value,
)
from lumjax.kernel.share import WORK_PER_JOB
from lumjax.kernel.term import Buffer
from lumjax.kernel.threaded import count_before, pieces
from lumjax.kernel.threaded_sort import sort_rows
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, bounds, estimate
from lumjax.trace.form import ReduceOp, Update
from lumjax.trace.view import coordinate, row_major

FEW = 16  # updates that every element looks at
LONG = 8  # elements of a row that is worth sorting updates for
PIECE = 32  # columns at least that a job has of a row
_MONOIDS = {
    "add": ReduceOp.SUM,
    "mul": ReduceOp.PROD,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
}
_COUNT = np.dtype(np.int64)
# The updates of a row of a part: the scope of one, and its number.
Updates: TypeAlias = Callable[[Scope, Dim, Dim], AbstractContextManager[tuple[Scope, Dim]]]


def emit_update(
    b: Builder,
    form: Update,
    operands: Sequence[Operand],
    results: Sequence[Buffer],
    blocks: bool = False,
) -> None:
    """Append the phases; `blocks`: for blocks of threads."""
    made = _Updates(b, form, operands, results[0])
    if blocks:
        _Elements(made).emit()
        return
    known = form.op is None or form.op.name in _MONOIDS
    if known and estimate(made.width_value) >= LONG and made.walked:
        made.by_destination()
    else:
        made.in_order()


class _Updates:
    def __init__(self, b: Builder, form: Update, operands: Sequence[Operand], out: Buffer) -> None:
        self.b, self.form = b, form
        shape, domain = out.shape, form.target.domain
        self.pairs = _independent(form, shape)
        row = _row(form, shape, self.pairs)
        self.width_value = volume(shape[len(shape) - row :])
        self.x, self.indices, self.updates = map(b.sized, operands)
        self.out = Buffer(out.name, b.shape(shape), out.dtype)
        b.outputs = (self.out,)
        given = (self.x, self.indices, self.updates)
        b.inputs = tuple(dict.fromkeys(o for o in given if isinstance(o, Buffer)))
        self.width = b.size(self.width_value)
        self.total = volume(b.shape(shape))
        self.count = volume(b.shape(domain))  # of elements of the updates
        lead, first = len(domain) - row, len(shape) - row
        side = [k for k in self.pairs if k < lead]
        self.side = [(f"d{k}", b.size(domain[k])) for k in side]
        self.walked = [(f"d{k}", b.size(domain[k])) for k in range(lead) if k not in side]
        self.walks = volume(domain[k] for k in range(lead) if k not in side)
        placed = [a for a in range(first) if a not in {self.pairs[k] for k in side}]
        self.placed = [(f"p{a}", b.size(shape[a])) for a in placed]
        strides = self._strides(shape, first)
        self.where = sum((c * s for c, s in zip(form.target.coords, strides, strict=False)), 0)
        inside = row_major([n for _, n in self.placed])
        self.place = sum(
            (form.target.coords[a] * s for a, s in zip(placed, inside, strict=True)), 0
        )
        names: dict[int, Dim] = {a: dims.symbol(f"p{a}", 0) for a in placed}
        names |= {self.pairs[k]: coordinate(k, domain[k]) for k in side}
        self.home = sum((names[a] * s for a, s in enumerate(strides)), 0)
        steps = self._strides(domain, lead)
        self.source = sum((coordinate(k, domain[k]) * s for k, s in enumerate(steps)), 0)

    def _strides(self, shape: Sequence[Dim], lead: int) -> list[Dim]:
        """Those of the first axes, in size arguments."""
        return [s * self.width for s in row_major(self.b.shape(shape[:lead]))]

    # ---- what both have in common

    def walk(self, scope: Scope, inside: Any) -> None:
        """`inside(scope)` for each update that is not outside, in order; its place is known."""
        self._nest(scope, list(self.walked), inside)

    def _nest(self, scope: Scope, axes: list[tuple[str, Dim]], inside: Any) -> None:
        if axes:
            (name, extent), *rest = axes
            with scope.loop(name, extent) as inner:
                self._nest(inner, rest, inside)
            return
        with when(scope, self.valid(scope)) as inner:
            inside(inner)

    def valid(self, scope: Scope) -> Dim:
        """Whether the update at hand is not outside; its place is known then."""
        valid: Dim = 1
        assert isinstance(self.indices, Buffer), "indices are in memory"
        steps = row_major(self.indices.shape)
        for name, at, (low, high) in zip(
            self.form.symbols, self.form.index_maps, self.form.bounds, strict=True
        ):
            offset = sum((c * s for c, s in zip(at.coords, steps, strict=True)), 0)
            given = self.b.let(scope, read(self.indices, offset), "r")
            kept = self.b.index(scope, between(given, low, self.b.size(high)), name)
            if not self.form.clip:
                valid = dims.logical_and(valid, dims.equal(given, kept))
        return valid

    def combined(self, old: Value, new: Value) -> Value:
        """An element after an update, as it is carried."""
        if self.form.op is None:
            return new
        return ApplyValue(self.form.op, (old, new), self.form.dtype)

    # ---- one after the other

    def in_order(self) -> None:
        """A copy of the array; then each job applies all updates of its part of it."""
        b, carried = self.b, self.form.dtype
        target = self.out
        if carried != self.out.dtype:
            target = b.workspace(self.out.shape, carried)
        at = dims.symbol("i", 0)
        with b.shares(self.total, 2, "i", LoopKind.VECTOR) as scope:
            store(scope, target, at, cast(read(self.x, at), carried))
        parts = volume(n for _, n in self.side)
        width = estimate(self.width_value)
        each = max(1, estimate(self.walks)) * width
        pieces = max(1, min(width // PIECE, each // WORK_PER_JOB))
        piece = b.amount(max(1, -(-width // pieces)))
        pieces = dims.ceiling_divide(self.width, piece)
        chunk = b.amount(max(1, WORK_PER_JOB // max(1, each)))
        total = parts * pieces
        with b.job(dims.ceiling_divide(total, chunk)) as (scope, job):
            last = dims.minimum((job + 1) * chunk, total)
            with scope.loop("share", last, begin=job * chunk) as inner:
                b.decode(inner, dims.symbol("share", 0), [*self.side, ("piece", pieces)])
                begin = dims.symbol("piece", 0) * piece
                end = dims.minimum(begin + piece, self.width)
                self.walk(inner, lambda s: self._apply(s, target, begin, end))
        if target is not self.out:
            with b.shares(self.total, 2, "i", LoopKind.VECTOR) as scope:
                store(scope, self.out, at, read(target, at))

    def _apply(self, scope: Scope, target: Buffer, begin: Dim, end: Dim) -> None:
        """One update of a part of a row."""
        if self.width == 1:
            self._element(scope, target, 0)
            return
        with scope.loop("c", end, LoopKind.VECTOR, begin) as inner:
            self._element(inner, target, dims.symbol("c", 0))

    def _element(self, scope: Scope, target: Buffer, column: Dim) -> None:
        at = self.where + column
        new = cast(read(self.updates, self.source + column), self.form.dtype)
        store(scope, target, at, self.combined(read(target, at), new))

    # ---- by destination

    def by_destination(self) -> None:
        """Updates counted and sorted by where they go; then rows in parallel."""
        b = self.b
        rows, walks = volume(n for _, n in self.placed), volume(n for _, n in self.walked)
        parts = volume(n for _, n in self.side)
        ends = b.workspace((parts, rows), _COUNT)
        order = b.workspace((parts, walks), _COUNT) if self.form.op is not None else None
        each = 4 * max(1, estimate(self.walks)) + estimate(rows_of(self))
        with b.shares(parts, each, "part") as scope:
            part = dims.symbol("part", 0)
            b.decode(scope, part, self.side)
            self._sort(scope, ends, order, part * rows, part * walks, rows, walks)
        each = estimate(self.width_value) * (
            2 + 2 * max(1, estimate(self.walks)) // max(1, estimate(rows_of(self)))
        )
        with b.shares(parts * rows, each, "row") as scope:
            self._row(scope, ends, order, walks)

    def _sort(
        self, scope: Scope, ends: Buffer, order: Buffer | None, first: Dim, base: Dim, rows: Dim,
        walks: Dim,
    ) -> None:  # fmt: skip
        """For each row, how many updates go to it or to those before, and the updates in that
        order; without `order`, one more than the offset of its last update.
        """
        b, zero, one = self.b, const(_COUNT, 0), const(_COUNT, 1)
        with scope.loop("z", rows, LoopKind.VECTOR) as inner:
            store(inner, ends, first + dims.symbol("z", 0), zero)
        at = first + self.place
        if order is None:
            self.walk(
                scope,
                lambda s: s.add(StoreStmt(ends, at, IndexValue(self.source + 1, dt.int64))),
            )
            return
        self.walk(scope, lambda s: store(s, ends, at, apply("add", read(ends, at), one)))
        total = b.fresh("total")
        scope.add(Accumulator(total, _COUNT, ReduceOp.SUM, zero))
        with scope.loop("z", rows) as inner:
            here = first + dims.symbol("z", 0)
            number = b.fresh("number")
            inner.add(Let(number, read(ends, here)))
            store(inner, ends, here, Ref(total, _COUNT))
            inner.add(Accumulate(total, Ref(number, _COUNT)))

        def put(s: Scope) -> None:
            next_one = b.let(s, read(ends, at), "next")
            free = between(next_one, 0, walks - 1)
            s.add(StoreStmt(order, base + free, IndexValue(self.source, dt.int64)))
            s.add(StoreStmt(ends, at, IndexValue(next_one + 1, dt.int64)))

        self.walk(scope, put)

    def _row(self, scope: Scope, ends: Buffer, order: Buffer | None, walks: Dim) -> None:
        """One row of the array, with its updates."""
        b, row, carried = self.b, dims.symbol("row", 0), self.form.dtype
        b.decode(scope, row, [*self.side, *self.placed])
        home = b.index(scope, self.home, "home")
        end = b.let(scope, read(ends, row), "end")
        column = dims.symbol("c", 0)
        most = self.count - self.width
        if order is None:
            source = b.index(scope, between(end - 1, 0, most), "source")
            for condition, value in (
                (dims.less(0, end), read(self.updates, source + column)),
                (dims.less_equal(end, 0), read(self.x, home + column)),
            ):
                with (
                    when(scope, condition) as branch,
                    branch.loop("c", self.width, LoopKind.VECTOR) as inner,
                ):
                    store(inner, self.out, home + column, value)
            return
        assert self.form.op is not None, "what overwrites has no order"
        rows = volume(n for _, n in self.placed)
        part = b.index(scope, dims.floor_divide(row, rows), "part") if self.side else 0
        first = row - part * rows if self.side else row
        before = b.let(scope, read(ends, dims.maximum(row - 1, 0), dims.less(0, first)), "begin")
        last = b.index(scope, between(end, 0, walks), "last")
        begin = b.index(scope, between(before, 0, walks), "first")
        total = b.fresh("total")
        monoid = _MONOIDS[self.form.op.name]
        with scope.loop("c", self.width, LoopKind.VECTOR) as inner:
            start = cast(read(self.x, home + column), carried)
            inner.add(Accumulator(total, carried, monoid, start))
            with inner.loop("u", last, begin=begin) as each:
                found = b.let(each, read(order, part * walks + dims.symbol("u", 0)), "from")
                source = between(found, 0, most)
                each.add(Accumulate(total, cast(read(self.updates, source + column), carried)))
            store(inner, self.out, home + column, Ref(total, carried))


class _Elements:
    """A thread for each element of the array, which applies its updates in order.

    Where there are few updates, it looks at all of them. Else they are sorted by destination first,
    equal ones in their order, and those of a row lie between two places.
    """

    def __init__(self, made: _Updates) -> None:
        self.made, self.b = made, made.b
        self.parts = volume(n for _, n in made.side)
        self.rows, self.walks = (volume(n for _, n in x) for x in (made.placed, made.walked))
        large = self.b.choices.choose(int(estimate(rows_of(made)) >= 1 << 31))
        self.kind = np.dtype(np.uint64 if large else np.uint32)
        few = isinstance(made.walks, int) and made.walks <= FEW
        self.few = bool(self.b.choices.choose(int(few)))

    def emit(self) -> None:
        """Append the phases."""
        b, made, walks = self.b, self.made, self.made.walks
        if isinstance(walks, int) and walks == 0:
            with pieces(b, 1, made.total, estimate(dims.substitute(made.total, b.sizes))) as found:
                each, _, i = found
                store(each, made.out, i, read(made.x, i))
            return
        shape = self.parts, self.walks
        self.rows_found = b.workspace(shape, self.kind)
        if self.few:
            with pieces(b, self.parts, self.walks, estimate(walks)) as (each, part, i):
                store(each, self.rows_found, part * self.walks + i, self._row(each, part, i))
            self._apply(self._all)
            return
        self.order = b.workspace(shape, np.dtype(np.int32))
        self.begins = b.workspace((self.parts, self.rows + 1), np.dtype(np.int32))

        def finish(scope: Scope, part: Dim, i: Dim, place: Dim, keys: Sequence[Value]) -> None:
            at = part * self.walks + i
            store(scope, self.rows_found, at, keys[0])
            store(scope, self.order, at, IndexValue(place, self.order.dtype))

        def keys(scope: Scope, part: Dim, at: Dim) -> list[Value]:
            return [self._row(scope, part, at)]

        sort_rows(b, self.parts, self.walks, self.walks, [self.kind], keys, finish)
        self._limits()
        self._apply(self._mine)

    def _row(self, scope: Scope, part: Dim, number: Dim) -> Value:
        """The row that an update goes to, the one behind the last if it goes nowhere."""
        self.b.decode(scope, part, self.made.side)
        self.b.decode(scope, number, self.made.walked)
        row = dims.select(self.made.valid(scope), self.made.place, self.rows)
        return IndexValue(row, self.kind)

    def _limits(self) -> None:
        """Where the updates of each row begin, among the sorted ones."""
        b, walks = self.b, self.walks
        longest = bounds(self.made.walks)[1] or 1 << 31
        power = 1 << self.b.choices.choose(max(0, longest - 1).bit_length())
        with pieces(b, self.parts, self.rows + 1, estimate(rows_of(self.made)) + 1) as found:
            each, part, row = found
            wanted = IndexValue(row, self.kind)

            def earlier(turn: Scope, number: Dim) -> Value:
                at = part * walks + between(number - 1, 0, walks - 1)
                return apply("lt", read(self.rows_found, at), wanted)

            count = count_before(b, each, power, walks, earlier)
            to = part * (self.rows + 1) + row
            store(each, self.begins, to, IndexValue(count, self.begins.dtype))

    def _apply(self, updates: Updates) -> None:
        b, made = self.b, self.made
        with b.job(self.parts * self.rows * made.width) as (scope, job):
            b.decode(scope, job, [*made.side, *made.placed, ("column", made.width)])
            line = b.index(scope, dims.floor_divide(job, made.width), "line")
            part = b.index(scope, dims.floor_divide(line, self.rows), "part")
            row = b.index(scope, line - part * self.rows, "row")
            home = b.index(scope, made.home + dims.symbol("column", 0), "home")
            old = cast(read(made.x, home), made.form.dtype)
            if made.form.op is None:
                self._last(scope, part, row, home, updates)
            elif made.form.op.name in _MONOIDS:
                total, monoid = b.fresh("total"), _MONOIDS[made.form.op.name]
                scope.add(Accumulator(total, made.form.dtype, monoid, old))
                with updates(scope, part, row) as (each, number):
                    each.add(Accumulate(total, self._update(each, number)))
                store(scope, made.out, home, Ref(total, made.form.dtype))
            else:
                self._in_memory(scope, part, row, home, old, updates)

    def _last(self, scope: Scope, part: Dim, row: Dim, home: Dim, updates: Updates) -> None:
        """What overwrites: the last one does."""
        b, made, last = self.b, self.made, self.b.fresh("last")
        scope.add(Accumulator(last, _COUNT, ReduceOp.MAX, const(_COUNT, 0)))
        with updates(scope, part, row) as (each, number):
            each.add(Accumulate(last, IndexValue(number + 1, _COUNT)))
        found = b.let(scope, Ref(last, _COUNT), "number")
        with when(scope, dims.less(0, found)) as inner:
            number = b.index(inner, between(found - 1, 0, self.walks - 1), "chosen")
            store(inner, made.out, home, self._update(inner, number))
        with when(scope, dims.less_equal(found, 0)) as inner:
            store(inner, made.out, home, read(made.x, home))

    def _in_memory(
        self, scope: Scope, part: Dim, row: Dim, home: Dim, old: Value, updates: Updates
    ) -> None:
        """Any operation: what it has come to is the element itself."""
        made, target = self.made, self.made.out
        if target.dtype != made.form.dtype:
            target = self.b.workspace(made.out.shape, made.form.dtype)
        store(scope, target, home, old)
        with updates(scope, part, row) as (each, number):
            new = self._update(each, number)
            store(each, target, home, made.combined(read(target, home), new))
        if target is not made.out:
            store(scope, made.out, home, read(target, home))

    def _update(self, scope: Scope, number: Dim) -> Value:
        """An update's element for this one."""
        made = self.made
        self.b.decode(scope, number, made.walked)
        source = between(made.source, 0, made.count - made.width)
        return cast(read(made.updates, source + dims.symbol("column", 0)), made.form.dtype)

    @contextmanager
    def _all(self, scope: Scope, part: Dim, row: Dim) -> Generator[tuple[Scope, Dim]]:
        """All updates, of which those of the row count."""
        u = dims.symbol("u", 0)
        with scope.loop("u", self.walks) as each:
            there = self.b.let(each, read(self.rows_found, part * self.walks + u), "there")
            with when(each, dims.equal(there, row)) as inner:
                yield inner, u

    @contextmanager
    def _mine(self, scope: Scope, part: Dim, row: Dim) -> Generator[tuple[Scope, Dim]]:
        """Those of the row."""
        b, walks, u = self.b, self.walks, dims.symbol("u", 0)
        at = part * (self.rows + 1) + row
        ends = [b.let(scope, read(self.begins, at + k), "limit") for k in range(2)]
        first, last = (b.index(scope, between(e, 0, walks), b.fresh("end")) for e in ends)
        with scope.loop("u", last, begin=first) as each:
            number = b.let(each, read(self.order, part * walks + u), "number")
            yield each, b.index(each, between(number, 0, walks - 1), "chosen")


def rows_of(made: _Updates) -> Dim:
    """The number of rows, in the traced program."""
    return volume(
        made.b.sizes[str(n.name)] if not isinstance(n, int) else n for _, n in made.placed
    )


def _independent(form: Update, shape: Sequence[Dim]) -> dict[int, int]:
    """Axes of the updates, with the array's axes that they are."""
    domain, coords = form.target.domain, form.target.coords
    found: dict[int, int] = {}
    for k, extent in enumerate(domain):
        if isinstance(extent, int) and extent <= 1:
            continue
        mine = coordinate(k, extent)
        users = [a for a, c in enumerate(coords) if f"d{k}" in dims.symbols(c)]
        if len(users) != 1 or not dims.same(coords[users[0]], mine):
            continue
        if dims.same(shape[users[0]], extent):
            found[k] = users[0]
    return found


def _row(form: Update, shape: Sequence[Dim], pairs: dict[int, int]) -> int:
    """How many axes, from the last, updates and array have in common, whatever the indices."""
    domain = form.target.domain
    chosen = {n for m in form.index_maps for n in dims.symbols(*m.coords)}
    row = 0
    while row < min(len(domain), len(shape)):
        k, a = len(domain) - 1 - row, len(shape) - 1 - row
        if pairs.get(k) != a or f"d{k}" in chosen:
            break
        row += 1
    return row
