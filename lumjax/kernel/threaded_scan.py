"""SCAN for blocks of threads: short or many columns one to a thread, long ones in pieces.

A piece is staged in shared memory. Each thread folds the few elements that are its own in order,
the threads' results are combined in doubling distances, and each thread goes over its own again
from what came before. Rows longer than a piece take three phases: every piece's total, the totals'
own scan, every piece again from there. The order depends on the sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable

from lumjax.kernel.builder import Builder, Operand, apply, cast, const, read, store, volume
from lumjax.kernel.emit import Scope
from lumjax.kernel.ir import Accumulate, Accumulator, ApplyValue, LoopKind, Ref, Value
from lumjax.kernel.term import Buffer
from lumjax.kernel.threaded import named, truth
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, estimate
from lumjax.trace.form import Cumulate, ReduceOp

MONOIDS = {
    "add": ReduceOp.SUM,
    "mul": ReduceOp.PROD,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
}
THREADS, OWN = 256, 8  # threads of a block, and how many elements each has
PIECE = THREADS * OWN
SHORT = 32  # steps that a thread takes one after the other
MANY = 4096  # columns that are enough for all threads
BANKS = 32


def scan_blocks(b: Builder, form: Cumulate, x: Operand, out: Buffer) -> None:
    """Append the phases. `out` has its shape in size arguments."""
    made = _Scan(b, form, x, out)
    columns = estimate(dims.substitute(made.rows, b.sizes))
    steps = estimate(dims.substitute(made.steps, b.sizes))
    known = isinstance(dims.substitute(made.steps, b.sizes), int)
    number = 0 if steps <= SHORT or columns >= MANY else 1 if steps <= PIECE and known else 2
    (made.one_by_one, made.whole, made.long)[b.choices.choose(number)]()


class _Scan:
    def __init__(self, b: Builder, form: Cumulate, x: Operand, out: Buffer) -> None:
        self.b, self.form, self.x, self.out = b, form, x, out
        self.dtype = form.dtype
        self.outer, self.steps = volume(out.shape[: form.axis]), out.shape[form.axis]
        self.inner = volume(out.shape[form.axis + 1 :])
        self.rows = self.outer * self.inner

    def next(self, old: Value, new: Value) -> Value:
        """One step."""
        return ApplyValue(self.form.op, (old, new), self.dtype)

    def start(self) -> Value:
        """What comes before everything."""
        return const(self.dtype, self.form.start)

    def base(self, scope: Scope, row: Dim) -> Dim:
        """The offset of a row's first element."""
        if isinstance(self.inner, int) and self.inner == 1:
            return row * self.steps
        self.b.decode(scope, row, [("outer", self.outer), ("column", self.inner)])
        outer, column = dims.symbol("outer", 0), dims.symbol("column", 0)
        return outer * self.steps * self.inner + column

    def at(self, base: Dim, step: Dim) -> Dim:
        """The offset of a step's element."""
        place = self.steps - 1 - step if self.form.reverse else step
        return base + place * self.inner

    # ---- a thread for each row

    def one_by_one(self) -> None:
        """Each thread goes along a row; what it carries is a sum, or the element before."""
        b = self.b
        if (monoid := MONOIDS.get(self.form.op.name)) is not None:
            with b.job(self.rows) as (scope, job):
                base, total = self.base(scope, job), b.fresh("total")
                scope.add(Accumulator(total, self.dtype, monoid, self.start()))
                with scope.loop("i", self.steps) as each:
                    i = dims.symbol("i", 0)
                    each.add(Accumulate(total, self.element(base, i)))
                    store(each, self.out, self.at(base, i), Ref(total, self.dtype))
            return
        carried = self.out
        if carried.dtype != self.dtype:
            carried = b.workspace(self.out.shape, self.dtype)
        with b.job(self.rows) as (scope, job):
            base = self.base(scope, job)
            first = named(b, scope, self.element(base, 0), "first")
            begin = named(b, scope, self.next(self.start(), first), "begin")
            self.put(scope, self.at(base, 0), begin, carried)
            with scope.loop("i", self.steps, begin=1) as each:
                i = dims.symbol("i", 1)
                x = named(b, each, self.element(base, i), "x")
                old = read(carried, self.at(base, i - 1))
                self.put(each, self.at(base, i), named(b, each, self.next(old, x), "y"), carried)

    def element(self, base: Dim, step: Dim) -> Value:
        """An element, as it is carried."""
        return cast(read(self.x, self.at(base, step)), self.dtype)

    def put(self, scope: Scope, at: Dim, value: Value, carried: Buffer) -> None:
        """A result."""
        store(scope, carried, at, value)
        if carried is not self.out:
            store(scope, self.out, at, value)

    # ---- pieces

    def whole(self) -> None:
        """Rows that are one piece."""
        with self.b.job(self.rows) as (scope, job):
            base = self.base(scope, job)
            piece = _Piece(self, scope)
            piece.fill(lambda i: self.element(base, dims.minimum(i, self.steps - 1)), self.steps)
            piece.scan(None)
            piece.drain(self.steps, lambda each, i, y: store(each, self.out, self.at(base, i), y))

    def long(self) -> None:
        """Rows of several pieces."""
        b = self.b
        count = dims.ceiling_divide(self.steps, PIECE)
        totals = b.workspace((self.rows, count), self.dtype)
        self._pieces(count, lambda scope, piece, row, number: store(
            scope, totals, row * count + number, piece.total()))  # fmt: skip
        self._totals(totals, count)
        self._pieces(count, lambda scope, piece, row, number: None, totals)

    def _pieces(self, count: Dim, end: Callable[..., None], totals: Buffer | None = None) -> None:
        b = self.b
        with b.job(self.rows * count) as (scope, job):
            b.decode(scope, job, [("row", self.rows), ("piece", count)])
            row, number = dims.symbol("row", 0), dims.symbol("piece", 0)
            base = self.base(scope, row)
            first = b.index(scope, number * PIECE, "from")
            left = b.index(scope, dims.minimum(self.steps - first, PIECE), "left")
            piece = _Piece(self, scope)
            last = self.steps - 1
            piece.fill(lambda i: self.element(base, dims.minimum(first + i, last)), left)
            if totals is None:
                piece.fold()
                end(scope, piece, row, number)
                return
            before = read(totals, row * count + dims.maximum(number - 1, 0))
            begin = apply("select", truth(dims.less(0, number)), before, self.start())
            piece.scan(named(b, scope, begin, "begin"))
            piece.drain(left, lambda each, i, y: store(
                each, self.out, self.at(base, dims.minimum(first + i, last)), y))  # fmt: skip

    def _totals(self, totals: Buffer, count: Dim) -> None:
        """The scan of a row's totals, a piece of them after the other."""
        b = self.b
        with b.job(self.rows) as (scope, job):
            held = b.scratch(1, self.dtype)
            store(scope, held, 0, self.start())
            piece = _Piece(self, scope)
            with scope.loop("turn", dims.ceiling_divide(count, PIECE)) as turn:
                first = b.index(turn, dims.symbol("turn", 0) * PIECE, "from")
                left = b.index(turn, dims.minimum(count - first, PIECE), "left")
                at = job * count
                piece.scope = turn
                piece.fill(lambda i: read(totals, at + dims.minimum(first + i, count - 1)), left)
                piece.scan(named(b, turn, read(held, 0), "begin"))
                store(turn, held, 0, piece.last())
                piece.drain(left, lambda each, i, y: store(
                    each, totals, at + dims.minimum(first + i, count - 1), y))  # fmt: skip


class _Piece:
    """A piece in shared memory: a thread's elements lie together, as the row has them."""

    def __init__(self, made: _Scan, scope: Scope) -> None:
        b = made.b
        self.made, self.b, self.scope = made, b, scope
        self.held = b.scratch(PIECE + PIECE // BANKS, made.dtype)
        self.parts = [b.scratch(THREADS, made.dtype) for _ in range(2)]

    def place(self, i: Dim) -> Dim:
        """Where an element is: threads that reach for theirs at once meet in no bank."""
        return i + dims.floor_divide(i, BANKS)

    def fill(self, element: Callable[[Dim], Value], count: Dim) -> None:
        """Take `count` elements; behind them is what changes nothing."""
        i = dims.symbol("i", 0, PIECE - 1)
        with self.scope.loop("i", PIECE, LoopKind.VECTOR) as each:
            inside = truth(dims.less(i, count))
            value = apply("select", inside, element(i), self.made.start())
            store(each, self.held, self.place(i), value)

    def _own(self, each: Scope, k: int) -> Value:
        t = dims.symbol("t", 0, THREADS - 1)
        return named(self.b, each, read(self.held, self.place(t * OWN + k)), "x")

    def fold(self) -> None:
        """Each thread's total, and those of all threads up to it."""
        t, made = dims.symbol("t", 0, THREADS - 1), self.made
        with self.scope.loop("t", THREADS, LoopKind.VECTOR) as each:
            total = self._own(each, 0)
            for k in range(1, OWN):
                total = named(self.b, each, made.next(total, self._own(each, k)), "sum")
            store(each, self.parts[0], t, total)
        apart = 1
        while apart < THREADS:
            source, target = self.parts
            with self.scope.loop("t", THREADS, LoopKind.VECTOR) as each:
                mine = named(self.b, each, read(source, t), "mine")
                there = named(self.b, each, read(source, dims.maximum(t - apart, 0)), "there")
                both = made.next(there, mine)
                near = truth(dims.less(t, apart))
                store(each, target, t, apply("select", near, mine, both))
            self.parts.reverse()
            apart *= 2

    def total(self) -> Value:
        """What all elements come to."""
        return read(self.parts[0], THREADS - 1)

    def scan(self, begin: Value | None) -> None:
        """Every element with all before it, and with `begin` before those."""
        self.fold()
        t, made = dims.symbol("t", 0, THREADS - 1), self.made
        with self.scope.loop("t", THREADS, LoopKind.VECTOR) as each:
            before = read(self.parts[0], dims.maximum(t - 1, 0))
            chosen = apply("select", truth(dims.less(0, t)), before, made.start())
            value: Value = named(self.b, each, chosen, "before")
            if begin is not None:
                value = named(self.b, each, made.next(begin, value), "before")
            for k in range(OWN):
                x = self._own(each, k)
                value = named(self.b, each, made.next(value, x), "y")
                store(each, self.held, self.place(t * OWN + k), value)

    def last(self) -> Value:
        """The last element, which those behind the end don't change."""
        return read(self.held, self.place(PIECE - 1))

    def drain(self, count: Dim, put: Callable[[Scope, Dim, Value], None]) -> None:
        """Give the first `count` elements."""
        with self.scope.loop("i", dims.minimum(count, PIECE), LoopKind.VECTOR) as each:
            i = dims.symbol("i", 0, PIECE - 1)
            put(each, i, read(self.held, self.place(i)))
