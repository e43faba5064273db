"""SORT: rows in a stable order, by keys turned into unsigned integers of the same order.

Short rows are ordered by counting, for each element, those that come before it. Longer ones are
sorted by their keys' bytes from the last to the first; a byte that is the same everywhere moves
nothing. Few very long rows are sorted in the same way by several jobs each. All of these give the
one stable order, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.builder import (
    BITCAST,
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
    Loop,
    LoopKind,
    Ref,
    StoreStmt,
    Value,
)
from lumjax.kernel.share import WORK_PER_JOB
from lumjax.kernel.term import Buffer
from lumjax.kernel.threaded_sort import sort_rows
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, estimate
from lumjax.trace.form import Order, ReduceOp

SHORT = 48  # elements of a row that is ordered by counting
JOBS = 64  # rows that are sorted at once at most: each has memory of its own
LONG, FEW_ROWS = 1 << 17, 4  # rows so long, and so few, are sorted by several jobs each
CHUNK = 1 << 16  # elements of a row that are one job's
FEW = 4  # times as many elements as are wanted make it worth while to look for them first
_DIGITS = 256
_BYTE, _PLACE, _COUNT = np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int32)
_LONG = np.dtype(np.int64)
_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)


def emit_order(
    b: Builder,
    form: Order,
    operands: Sequence[Operand],
    results: Sequence[Buffer],
    blocks: bool = False,
) -> None:
    """Append the phases; `blocks`: for blocks of threads."""
    if any(isinstance(n, int) and n == 0 for r in results for n in r.shape):
        Sort(b, form, operands, results)
        return
    made = Sort(b, form, operands, results)
    if blocks:
        made.by_blocks()
    elif isinstance(made.extent, int) and made.extent <= SHORT:
        made.by_rank(made.extent)
    elif estimate(made.extent) >= LONG and made.count <= FEW_ROWS and not made.selects():
        _Chunks(made).emit()
    else:
        made.by_digits()


def key_of(value: Value, descending: bool) -> tuple[Value, int]:
    """An unsigned integer in the order of the value, nan last and zeros equal, and how many bytes
    of it may differ.
    """
    dtype = value.dtype
    if dt.is_floating(dtype):
        value = cast(value, dt.accumulation_dtype(dtype))
        key, size = _float_key(value), value.dtype.itemsize
    elif dtype == np.dtype(bool):
        key, size = cast(value, _U32), 1
    else:
        size = dtype.itemsize
        kind = _U64 if size == 8 else _U32
        if dt.is_signed(dtype):
            signed = cast(value, np.dtype(np.int64 if size == 8 else np.int32))
            whole = ApplyValue(BITCAST, (signed,), kind)
            key = apply("add", whole, const(kind, 1 << (8 * size - 1)))
            key = apply("and", key, const(kind, (1 << 8 * size) - 1))
        else:
            key = cast(value, kind)
    if descending:
        key = apply("xor", key, const(key.dtype, (1 << 8 * size) - 1))
    return key, size


def _float_key(value: Value) -> Value:
    dtype = value.dtype
    kind = _U64 if dtype.itemsize == 8 else _U32
    bits = 8 * kind.itemsize
    top, every = const(kind, 1 << (bits - 1)), const(kind, (1 << bits) - 1)
    zero = const(dtype, 0)
    value = apply("select", apply("eq", value, zero), zero, value)
    whole = ApplyValue(BITCAST, (value,), kind)
    negative = apply("lt", value, zero)
    key = apply("xor", whole, apply("select", negative, every, top))
    return apply("select", apply("ne", value, value), every, key)


class Sort:
    """Rows to be sorted, and where their elements lie."""

    def __init__(
        self, b: Builder, form: Order, operands: Sequence[Operand], results: Sequence[Buffer]
    ) -> None:
        self.b, self.form = b, form
        self.xs = [b.sized(x) for x in operands]
        self.outs = [Buffer(r.name, b.shape(r.shape), r.dtype) for r in results]
        b.outputs = tuple(self.outs)
        b.inputs = tuple(dict.fromkeys(x for x in self.xs if isinstance(x, Buffer)))
        shape = list(results[0].shape)
        buffers = [x for x in operands if isinstance(x, Buffer)]
        self.extent = buffers[0].shape[form.axis] if buffers else shape[form.axis]
        self.length = b.size(self.extent, form.axis)
        self.take = self.outs[0].shape[form.axis]
        self.rows = volume(self.outs[0].shape[: form.axis])
        self.inner = volume(self.outs[0].shape[form.axis + 1 :])
        self.total = self.rows * self.inner
        del shape[form.axis]
        self.count = estimate(volume(shape))

    def selects(self) -> bool:
        """Whether so few elements are wanted that they are looked for first."""
        take = self.form.take
        few = take is not None and FEW * estimate(take) <= estimate(self.extent)
        return few and self.form.keys == 1

    def keys(self) -> list[Operand]:
        """The operands that tell the order, first ones first."""
        return self.xs[: self.form.keys]

    def start(self, scope: Scope, row: Dim) -> tuple[Dim, Dim]:
        """Offsets of a row's first element, in operands and in results."""
        b = self.b
        if isinstance(self.inner, int) and self.inner == 1:
            return row * self.length, row * self.take
        b.decode(scope, row, [("outer", self.rows), ("column", self.inner)])
        outer, column = dims.symbol("outer", 0), dims.symbol("column", 0)
        return (
            outer * self.length * self.inner + column,
            outer * self.take * self.inner + column,
        )

    def put(self, scope: Scope, source: Dim, target: Dim, place: Dim) -> None:
        """One element of every result."""
        for x, out in zip(self.xs, self.outs, strict=False):
            store(scope, out, target, read(x, source))
        if self.form.places:
            at = IndexValue(place, np.dtype(np.int64))
            store(scope, self.outs[-1], target, at)

    # ---- for blocks of threads

    def by_blocks(self) -> None:
        """Pieces sorted, and merged."""
        kinds = [key_of(read(x, 0), False)[0].dtype for x in self.keys()]

        def keys(scope: Scope, row: Dim, at: Dim) -> list[Value]:
            first, _ = self.start(scope, row)
            return [self.key(x, first + at * self.inner)[0] for x in self.keys()]

        def finish(scope: Scope, row: Dim, i: Dim, place: Dim, values: Sequence[Value]) -> None:
            del values
            first, target = self.start(scope, row)
            self.put(scope, first + place * self.inner, target + i * self.inner, place)

        sort_rows(self.b, self.total, self.length, self.take, kinds, keys, finish)

    # ---- short rows

    def by_rank(self, extent: int) -> None:
        """Each element's place is how many come before it."""
        b, n = self.b, self.length
        kinds = [key_of(read(x, 0), False)[0].dtype for x in self.keys()]
        kept = [b.scratch(extent, kind) for kind in kinds]
        with b.shares(self.total, extent * extent // 4 + 8 * extent, "row") as row:
            first, target = self.start(row, dims.symbol("row", 0))
            i, j = dims.symbol("i", 0), dims.symbol("j", 0)
            with row.loop("i", n, LoopKind.VECTOR) as inner:
                for x, buffer in zip(self.keys(), kept, strict=True):
                    key, _ = self.key(x, first + i * self.inner)
                    store(inner, buffer, i, key)
            with row.loop("i", n) as each:
                rank = b.fresh("rank")
                each.add(Accumulator(rank, _COUNT, ReduceOp.SUM, const(_COUNT, 0)))
                with each.loop("j", n, LoopKind.VECTOR) as inner:
                    earlier = IndexValue(dims.less(j, i), np.dtype(bool))
                    inner.add(Accumulate(rank, cast(_before(kept, i, j, earlier), _COUNT)))
                place = b.let(each, Ref(rank, _COUNT), "place")
                with when(each, dims.less(place, self.take)) as inside:
                    to = target + between(place, 0, self.take - 1) * self.inner
                    self.put(inside, first + i * self.inner, to, i)

    # ---- long rows

    def by_digits(self) -> None:
        """Byte by byte, in two pairs of arrays that alternate."""
        b, n = self.b, self.length
        length = estimate(self.extent)
        chunk = max(1, WORK_PER_JOB // max(1, 16 * length), -(-self.count // JOBS))
        share = b.amount(chunk)
        jobs = dims.ceiling_divide(self.total, share)
        places = [b.workspace((jobs, n), _PLACE) for _ in range(2)]
        kinds = [key_of(read(x, 0), False)[0].dtype for x in self.keys()]
        keys = {kind: [b.workspace((jobs, n), kind) for _ in range(2)] for kind in set(kinds)}
        counts = b.scratch(8 * _DIGITS, _COUNT)
        wanted = self.take if self.selects() else None
        with b.job(jobs) as (scope, job):
            last = dims.minimum((job + 1) * share, self.total)
            with scope.loop("row", last, begin=job * share) as row:
                first, target = self.start(row, dims.symbol("row", 0))
                mine = b.index(row, job * n, "mine")
                passes = _Passes(self, row, first, mine, places, counts)
                for x, kind in reversed(list(zip(self.keys(), kinds, strict=True))):
                    passes.by(x, keys[kind], wanted)
                i = dims.symbol("i", 0)
                with row.loop("i", self.take) as each:
                    found = dims.minimum(i, n - 1)  # no more are wanted than there are
                    place = b.let(each, read(passes.current, mine + found), "place")
                    place = between(place, 0, n - 1)
                    at = first + place * self.inner
                    self.put(each, at, target + i * self.inner, place)

    def key(self, x: Operand, at: Dim) -> tuple[Value, int]:
        """An element's key."""
        return key_of(read(x, at), self.form.descending)


def _before(kept: Sequence[Buffer], i: Dim, j: Dim, otherwise: Value) -> Value:
    """Whether j comes before i by some keys; `otherwise` where they are equal."""
    if not kept:
        return otherwise
    mine, other = read(kept[0], i), read(kept[0], j)
    rest = _before(kept[1:], i, j, otherwise)
    return apply("or", apply("lt", other, mine), apply("and", apply("eq", other, mine), rest))


def _digit(b: Builder, scope: Scope, keys: Buffer, at: Dim, number: int) -> tuple[Value, Dim]:
    """A key and one of its bytes."""
    name = b.fresh("key")
    scope.add(Let(name, read(keys, at)))
    key = Ref(name, keys.dtype)
    shifted: Value = key
    if number:
        shifted = apply("shift_right_logical", key, const(keys.dtype, 8 * number))
    masked = apply("and", shifted, const(keys.dtype, _DIGITS - 1))
    return key, b.let(scope, cast(masked, _BYTE), "digit")


class _Passes:
    """The passes over one row. `current` has the places in the order found so far, once there is
    one.
    """

    def __init__(
        self, sort: Sort, scope: Scope, first: Dim, mine: Dim, places: Sequence[Buffer],
        counts: Buffer,
    ) -> None:  # fmt: skip
        self.sort, self.scope, self.first, self.mine = sort, scope, first, mine
        self.places, self.counts = list(places), counts
        self.b, self.n = sort.b, sort.length
        self.most = self.n
        self.started = False

    @property
    def current(self) -> Buffer:
        """Where the places are."""
        return self.places[0]

    def by(self, x: Operand, keys: Sequence[Buffer], wanted: Dim | None = None) -> None:
        """Sort by one more key, which counts for more than those before. Where no more than the
        first `wanted` places are, elements that can't be among them are left aside.
        """
        scope, i, mine, inner = self.scope, dims.symbol("i", 0), self.mine, self.sort.inner
        size = 0
        if self.started:
            with scope.loop("i", self.n) as each:
                place = self.b.let(each, read(self.current, mine + i), "place")
                place = between(place, 0, self.most - 1)
                key, size = self.sort.key(x, self.first + place * inner)
                store(each, keys[0], mine + i, key)
        else:
            with scope.loop("i", self.n, LoopKind.VECTOR) as each:
                key, size = self.sort.key(x, self.first + i * inner)
                store(each, keys[0], mine + i, key)
        pair = list(keys)
        if wanted is not None:
            self._select(pair[0], pair[1], size - 1, wanted)
            pair.reverse()
        self._count(pair[0], size)
        for number in range(size):
            self._move(pair[0], pair[1], number)
            pair.reverse()
            self.places.reverse()
            self.started = True

    def _select(self, keys: Buffer, to: Buffer, number: int, wanted: Dim) -> None:
        """Keep the elements whose first byte may be among the `wanted` least, in order."""
        b, scope, mine, counts = self.b, self.scope, self.mine, self.counts
        i, one, zero = dims.symbol("i", 0), const(_COUNT, 1), const(_COUNT, 0)
        with scope.loop("i", _DIGITS, LoopKind.VECTOR) as each:
            store(each, counts, i, zero)
        with scope.loop("i", self.n) as each:
            _, digit = _digit(b, each, keys, mine + i, number)
            store(each, counts, digit, apply("add", read(counts, digit), one))
        total, kept, found = b.fresh("total"), b.fresh("kept"), b.fresh("found")
        scope.add(*(Accumulator(n, _COUNT, ReduceOp.SUM, zero) for n in (total, kept, found)))
        with scope.loop("i", _DIGITS) as each:
            needed = apply("lt", Ref(total, _COUNT), cast(IndexValue(wanted, _LONG), _COUNT))
            each.add(Accumulate(kept, cast(needed, _COUNT)))
            each.add(Accumulate(total, read(counts, i)))
        limit = b.let(scope, Ref(kept, _COUNT), "limit")
        with scope.loop("i", self.n) as each:
            key, digit = _digit(b, each, keys, mine + i, number)
            with when(each, dims.less(digit, limit)) as inside:
                place = b.let(inside, Ref(found, _COUNT), "free")
                at = mine + between(place, 0, self.n - 1)
                store(inside, to, at, key)
                store(inside, self.places[1], at, IndexValue(i, _PLACE))
                inside.add(Accumulate(found, one))
        number_kept = b.let(scope, Ref(found, _COUNT), "number")
        self.n = b.index(scope, between(number_kept, 0, self.most), b.fresh("left"))
        self.places.reverse()
        self.started = True

    def _count(self, keys: Buffer, size: int) -> None:
        """How often each digit occurs, for every byte."""
        b, scope, i, one = self.b, self.scope, dims.symbol("i", 0), const(_COUNT, 1)
        with scope.loop("i", size * _DIGITS, LoopKind.VECTOR) as each:
            store(each, self.counts, i, const(_COUNT, 0))
        with scope.loop("i", self.n) as each:
            for number in range(size):
                _, digit = _digit(b, each, keys, self.mine + i, number)
                at = number * _DIGITS + digit
                store(each, self.counts, at, apply("add", read(self.counts, at), one))

    def _move(self, keys: Buffer, to: Buffer, number: int) -> None:
        """One pass."""
        b, scope, mine, counts = self.b, self.scope, self.mine, self.counts
        i, base = dims.symbol("i", 0), number * _DIGITS
        source, target = self.places
        _, digit = _digit(b, scope, keys, mine, number)
        same = b.let(scope, read(counts, base + digit), "same")
        alike = b.index(scope, dims.equal(same, self.n), b.fresh("alike"))
        with (
            when(scope, dims.less(0, alike)) as same_all,
            same_all.loop("i", self.n, LoopKind.VECTOR) as each,
        ):
            store(each, to, mine + i, read(keys, mine + i))
            store(each, target, mine + i, self._place(source, i))
        with when(scope, dims.less_equal(alike, 0)) as differing:
            total = b.fresh("total")
            differing.add(Accumulator(total, _COUNT, ReduceOp.SUM, const(_COUNT, 0)))
            with differing.loop("i", _DIGITS) as each:
                here = b.fresh("here")
                each.add(Let(here, read(counts, base + i)))
                store(each, counts, base + i, Ref(total, _COUNT))
                each.add(Accumulate(total, Ref(here, _COUNT)))
            with differing.loop("i", self.n) as each:
                key, digit = _digit(b, each, keys, mine + i, number)
                free = b.let(each, read(counts, base + digit), "free")
                at = mine + between(free, 0, self.most - 1)
                store(each, to, at, key)
                store(each, target, at, self._place(source, i))
                each.add(StoreStmt(counts, base + digit, IndexValue(free + 1, _COUNT)))

    def _place(self, source: Buffer, i: Dim) -> Value:
        """The place that is i-th so far."""
        if not self.started:
            return IndexValue(i, _PLACE)
        return read(source, self.mine + i)


class _Chunks:
    """Long rows in chunks: each job counts the bytes of its chunk, then moves its elements to where
    they belong after those of the chunks before.
    """

    def __init__(self, sort: Sort) -> None:
        self.sort, self.b, self.n = sort, sort.b, sort.length
        self.chunk = self.b.amount(CHUNK)
        self.chunks = dims.ceiling_divide(self.n, self.chunk)
        self.places = [self.b.workspace((sort.total, self.n), _PLACE) for _ in range(2)]
        self.counts = self.b.workspace((sort.total, self.chunks, _DIGITS), _COUNT)
        self.started = False

    @contextmanager
    def _each(self, kind: LoopKind = LoopKind.SERIAL) -> Generator[tuple[Scope, Scope, Dim, Dim]]:
        """A phase with a job for each chunk: its scope, that of an element, the offset of the row
        and that of the chunk's counts.
        """
        b = self.b
        with b.job(self.sort.total * self.chunks) as (scope, job):
            b.decode(scope, job, [("row", self.sort.total), ("chunk", self.chunks)])
            row, chunk = dims.symbol("row", 0), dims.symbol("chunk", 0)
            begin = chunk * self.chunk
            end = dims.minimum(begin + self.chunk, self.n)
            inner = Scope(scope, {"i"})
            yield scope, inner, row * self.n, (row * self.chunks + chunk) * _DIGITS
            scope.add(Loop("i", begin, end, 1, kind, tuple(inner.stmts)))

    def emit(self) -> None:
        """Append the phases."""
        b, sort, n, i = self.b, self.sort, self.n, dims.symbol("i", 0)
        for x in reversed(sort.keys()):
            kind = key_of(read(x, 0), False)[0].dtype
            keys = [b.workspace((sort.total, n), kind) for _ in range(2)]
            for number in range(self._keys(x, keys[0])):
                self._count(keys[0], number)
                self._add_up()
                self._move(keys[0], keys[1], number)
                keys.reverse()
                self.places.reverse()
                self.started = True
        with self._each() as (scope, each, mine, _):
            first, target = sort.start(scope, dims.symbol("row", 0))
            with when(each, dims.less(i, sort.take)) as inside:
                place = self._place(inside, mine)
                kept = between(i, 0, sort.take - 1) * sort.inner
                sort.put(inside, first + place * sort.inner, target + kept, place)

    def _place(self, scope: Scope, mine: Dim) -> Dim:
        """The place that is i-th so far."""
        i = dims.symbol("i", 0)
        if not self.started:
            return i
        return between(self.b.let(scope, read(self.places[0], mine + i), "place"), 0, self.n - 1)

    def _keys(self, x: Operand, to: Buffer) -> int:
        """The keys in the order so far; how many bytes of them may differ."""
        kind = LoopKind.SERIAL if self.started else LoopKind.VECTOR
        with self._each(kind) as (scope, each, mine, _):
            first, _ = self.sort.start(scope, dims.symbol("row", 0))
            place = self._place(each, mine)
            key, size = self.sort.key(x, first + place * self.sort.inner)
            store(each, to, mine + dims.symbol("i", 0), key)
        return size

    def _count(self, keys: Buffer, number: int) -> None:
        z = dims.symbol("z", 0)
        with self._each() as (scope, each, mine, counts):
            with scope.loop("z", _DIGITS, LoopKind.VECTOR) as inner:
                store(inner, self.counts, counts + z, const(_COUNT, 0))
            _, digit = _digit(self.b, each, keys, mine + dims.symbol("i", 0), number)
            more = apply("add", read(self.counts, counts + digit), const(_COUNT, 1))
            store(each, self.counts, counts + digit, more)

    def _add_up(self) -> None:
        """Where each chunk's elements with each digit begin."""
        b, d, c = self.b, dims.symbol("d", 0), dims.symbol("c", 0)
        with b.job(self.sort.total) as (scope, job):
            total = b.fresh("total")
            scope.add(Accumulator(total, _COUNT, ReduceOp.SUM, const(_COUNT, 0)))
            with scope.loop("d", _DIGITS) as outer, outer.loop("c", self.chunks) as inner:
                at, here = (job * self.chunks + c) * _DIGITS + d, b.fresh("here")
                inner.add(Let(here, read(self.counts, at)))
                store(inner, self.counts, at, Ref(total, _COUNT))
                inner.add(Accumulate(total, Ref(here, _COUNT)))

    def _move(self, keys: Buffer, to: Buffer, number: int) -> None:
        b, i = self.b, dims.symbol("i", 0)
        with self._each() as (_, each, mine, counts):
            key, digit = _digit(b, each, keys, mine + i, number)
            free = b.let(each, read(self.counts, counts + digit), "free")
            at = mine + between(free, 0, self.n - 1)
            store(each, to, at, key)
            store(each, self.places[1], at, IndexValue(self._place(each, mine), _PLACE))
            each.add(StoreStmt(self.counts, counts + digit, IndexValue(free + 1, _COUNT)))
