"""What programs for blocks of threads have in common: statements that many threads share out.

Such programs are for machines with many threads (`lower_whole(blocks=...)`): a job is a block's,
its VECTOR loops are shared out to threads, scratch is what they exchange. They are Kernel IR like
any other: one thread that runs them gets the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.builder import Builder, apply, cast, const
from lumjax.kernel.emit import Scope
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    IndexValue,
    Let,
    LoopKind,
    Ref,
    Value,
)
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp

BOOL, U32 = np.dtype(bool), np.dtype(np.uint32)
PIECE = 1024  # elements of a row that are one job's


def truth(condition: Dim) -> Value:
    """A condition as a value."""
    return IndexValue(condition, BOOL)


def named(b: Builder, scope: Scope, value: Value, prefix: str = "x") -> Ref:
    """A value that is computed once."""
    name = b.fresh(prefix)
    scope.add(Let(name, value))
    return Ref(name, value.dtype)


def before(mine: Sequence[Value], other: Sequence[Value], otherwise: Value) -> Value:
    """Whether the first keys come before the others; `otherwise` where they are equal."""
    if not mine:
        return otherwise
    rest = before(mine[1:], other[1:], otherwise)
    alike = apply("and", apply("eq", mine[0], other[0]), rest)
    return apply("or", apply("lt", mine[0], other[0]), alike)


def most(dtype: dt.DType) -> Value:
    """The largest key."""
    return const(dtype, (1 << (8 * dtype.itemsize)) - 1)


@contextmanager
def pieces(b: Builder, rows: Dim, length: Dim, extent: int) -> Generator[tuple[Scope, Dim, Dim]]:
    """A phase over all elements of rows: the scope of one, which threads share out, its row and its
    position in that. Rows are `length` long, in the traced program `extent`.
    """
    piece = b.amount(min(PIECE, max(1, extent)))
    count = dims.ceiling_divide(length, piece)
    with b.job(rows * count) as (scope, job):
        b.decode(scope, job, [("row", rows), ("piece", count)])
        begin = b.index(scope, dims.symbol("piece", 0) * piece, "begin")
        end = dims.minimum(begin + piece, length)
        with scope.loop("i", end, LoopKind.VECTOR, begin) as inner:
            yield inner, dims.symbol("row", 0), dims.symbol("i", 0)


def count_before(
    b: Builder, scope: Scope, longest: int, end: Dim, earlier: Callable[[Scope, Dim], Value]
) -> Dim:
    """How many of `end` ordered elements, at most `longest` (a power of two), come before
    something, by bisection. `earlier` says whether the n-th does, counted from 1; it is asked
    behind `end` too.
    """
    found, zero = b.fresh("found"), const(U32, 0)
    scope.add(Accumulator(found, U32, ReduceOp.SUM, zero))
    with scope.loop("turn", longest.bit_length()) as turn:
        shift = cast(IndexValue(dims.symbol("turn", 0), dt.int64), U32)
        step = named(b, turn, apply("shift_right_logical", const(U32, longest), shift), "step")
        sofar = named(b, turn, Ref(found, U32), "sofar")
        wanted = b.let(turn, apply("add", sofar, step), "wanted")
        inside = truth(dims.less_equal(wanted, end))
        more = apply("and", inside, earlier(turn, wanted))
        turn.add(Accumulate(found, apply("select", more, step, zero)))
    return b.let(scope, Ref(found, U32), "fewer")
