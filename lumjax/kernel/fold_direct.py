"""Products of a tile with few rows: row by row, from operands where they lie.

With many rows the side along the stream is laid out in panels, which each row then reads. A few
rows would not earn that back: vectors run along the axis that lies together in memory, be it summed
over or kept, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lumjax.kernel.contract import widened
from lumjax.kernel.emit import MULTIPLY, Emitter, OpenLoop, Scope, held, walked_better
from lumjax.kernel.fold_state import State
from lumjax.kernel.fold_values import ADD, apply, constant, hold
from lumjax.kernel.ir import (
    Accumulate,
    LoadValue,
    LoopKind,
    Ref,
    StoreStmt,
    Value,
)
from lumjax.kernel.term import Axis, Buffer, Reduction, Term
from lumjax.record import record
from lumjax.trace.dim import Dim


@record
class Span:
    """A stretch of an axis."""

    axis: Axis
    begin: Dim
    end: Dim

    def loop(self, scope: Scope, kind: LoopKind) -> OpenLoop:
        """A loop over it."""
        return scope.loop(self.axis.name, self.end, kind, self.begin)


@record
class Product:
    """A sum of products over `k` for each row and each of `columns`, stored at `place` of `total`
    or added to what is carried there. `left` gives the left side's value in a scope.
    """

    term: Reduction
    left: Callable[[Scope], Value]
    right: Term
    columns: Span
    k: tuple[Span, ...]
    total: Buffer
    place: Dim


def emit_product(emitter: Emitter, state: State, scope: Scope, product: Product) -> None:
    """The product for the job's rows; vectors along the axis of the right side that lies together.
    A total that the loop does not carry is overwritten.
    """
    inmost = product.k[-1].axis
    if walked_better([product.right], product.columns.axis, [inmost]):
        _side_by_side(emitter, state, scope, product)
    else:
        _one_by_one(emitter, state, scope, product)


def _value(emitter: Emitter, product: Product, scope: Scope) -> Value:
    dtype = held(product.term)
    left = widened(product.left(scope), dtype)
    return apply(MULTIPLY, left, widened(emitter.value(product.right, scope), dtype))


def _one_by_one(emitter: Emitter, state: State, scope: Scope, product: Product) -> None:
    """Each sum by itself, along vectors of its products."""
    term = product.term
    with (
        product.columns.loop(scope, LoopKind.SERIAL) as column,
        state.over_rows(column, LoopKind.SERIAL) as row,
    ):
        name = emitter.accumulator(term, row)

        def add(inner: Scope) -> None:
            inner.add(Accumulate(name, _value(emitter, product, inner)))

        _nest(product.k, row, LoopKind.VECTOR, add)
        found: Value = Ref(name, held(term))
        if term in state.sums:
            before = state.rescaled(term, LoadValue(product.total, product.place))
            found = apply(ADD, before, found)
        row.add(StoreStmt(product.total, product.place, hold(found, product.total.dtype)))


def _side_by_side(emitter: Emitter, state: State, scope: Scope, product: Product) -> None:
    """Vectors of sums, one product of each after the other."""
    term, total = product.term, product.total
    before = LoadValue(total, product.place)
    begin: Value = constant(0.0, total.dtype)
    if term in state.sums:
        begin = state.rescaled(term, before)
    with (
        state.over_rows(scope, LoopKind.SERIAL) as row,
        product.columns.loop(row, LoopKind.VECTOR) as column,
    ):
        column.add(StoreStmt(total, product.place, begin))

    def add(inner: Scope) -> None:
        with (
            state.over_rows(inner, LoopKind.SERIAL) as row,
            product.columns.loop(row, LoopKind.VECTOR) as column,
        ):
            value = apply(ADD, before, _value(emitter, product, column))
            column.add(StoreStmt(total, product.place, value))

    _nest(product.k, scope, LoopKind.SERIAL, add)


def _nest(
    spans: Sequence[Span], scope: Scope, last: LoopKind, inside: Callable[[Scope], None]
) -> None:
    first, *others = spans
    with first.loop(scope, LoopKind.SERIAL if others else last) as inner:
        if others:
            _nest(others, inner, last, inside)
        else:
            inside(inner)
