"""SCAN: cumulative operations along an axis, step by step in the order that the interpreter has.

Rows are independent: jobs share them out. Along the last axis a job walks several rows side by
side, so that a step of one need not wait for the step before of another; along other axes it walks
a piece of the columns, in vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from lumjax.kernel.builder import Builder, Operand, cast, const, read, store, volume
from lumjax.kernel.emit import Scope
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    Let,
    LoopKind,
    Ref,
    Value,
)
from lumjax.kernel.share import WORK_PER_JOB
from lumjax.kernel.term import Buffer
from lumjax.kernel.threaded_scan import MONOIDS, scan_blocks
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, estimate
from lumjax.trace.form import Cumulate

SIDE_BY_SIDE = 4  # rows: with what they store, the lines that a set of the first cache has
PIECE = 512  # columns at most that a job carries


def emit_cumulate(
    b: Builder,
    form: Cumulate,
    operands: Sequence[Operand],
    results: Sequence[Buffer],
    blocks: bool = False,
) -> None:
    """Append the phases; `blocks`: for blocks of threads."""
    (out,) = results
    made = _Scan(b, form, operands[0], out)
    if any(isinstance(n, int) and n == 0 for n in out.shape):
        return
    if blocks:
        scan_blocks(b, form, made.x, made.out)
    elif isinstance(made.inner, int) and made.inner == 1 and form.op.name in MONOIDS:
        made.along_rows()
    else:
        made.along_columns()


class _Scan:
    def __init__(self, b: Builder, form: Cumulate, x: Operand, out: Buffer) -> None:
        self.b, self.form = b, form
        shape = out.shape
        self.x, self.out = b.sized(x), Buffer(out.name, b.shape(shape), out.dtype)
        b.outputs, b.inputs = (self.out,), (self.x,) if isinstance(self.x, Buffer) else ()
        self.outer = volume(self.out.shape[: form.axis])
        self.steps = self.out.shape[form.axis]
        self.inner = volume(self.out.shape[form.axis + 1 :])
        self.work = int(4 + 2 * form.op.flops)
        self.length = estimate(shape[form.axis])
        self.static = all(isinstance(n, int) for n in shape)
        self.columns = estimate(volume(shape[form.axis + 1 :]))

    def step(self, name: str) -> Dim:
        """The position of a loop's step."""
        at = dims.symbol(name, 0)
        return self.steps - 1 - at if self.form.reverse else at

    # ---- along the last axis

    def along_rows(self) -> None:
        """Rows side by side; where the last ones are fewer, one of them is computed again."""
        b, outer = self.b, self.outer
        known = estimate(dims.substitute(outer, b.sizes)) if self.static else SIDE_BY_SIDE
        side = min(SIDE_BY_SIDE, known)
        groups = dims.ceiling_divide(outer, side)
        with b.shares(groups, side * self.length * self.work // 2, "group") as scope:
            first = dims.symbol("group", 0) * side
            self._rows(scope, [dims.minimum(first + k, outer - 1) for k in range(side)])

    def _rows(self, scope: Scope, rows: Sequence[Dim]) -> None:
        dtype, monoid = self.form.dtype, MONOIDS[self.form.op.name]
        names = [self.b.fresh("carry") for _ in rows]
        for name in names:
            scope.add(Accumulator(name, dtype, monoid, const(dtype, self.form.start)))
        # All loads come before the stores: rows are often whole pages apart, and a load that comes
        # after a store to the same place of another page waits for it.
        places = [row * self.steps + self.step("i") for row in rows]
        with scope.loop("i", self.steps) as inner:
            given = [self.b.fresh("x") for _ in rows]
            for x, at in zip(given, places, strict=True):
                inner.add(Let(x, cast(read(self.x, at), dtype)))
            for name, x in zip(names, given, strict=True):
                inner.add(Accumulate(name, Ref(x, dtype)))
            for name, at in zip(names, places, strict=True):
                store(inner, self.out, at, Ref(name, dtype))

    # ---- along another axis

    def along_columns(self) -> None:
        """Pieces of columns, with what they carry in scratch."""
        b, dtype = self.b, self.form.dtype
        pieces = max(1, -(-self.columns // PIECE))
        wanted = self.outer_count() * self.columns * self.length * self.work // WORK_PER_JOB
        pieces = max(pieces, min(self.columns // 64, max(1, wanted // max(1, self.outer_count()))))
        width = max(1, -(-self.columns // pieces))
        carry = b.scratch(PIECE, dtype)
        piece = b.amount(min(width, PIECE))
        count = dims.ceiling_divide(self.inner, piece)
        with b.shares(self.outer * count, self.length * width * self.work, "share") as scope:
            b.decode(scope, dims.symbol("share", 0), [("row", self.outer), ("piece", count)])
            first = b.index(scope, dims.symbol("piece", 0) * piece, "start")
            left = dims.minimum(self.inner - first, dims.minimum(piece, PIECE))
            self._piece(scope, carry, first, left)

    def outer_count(self) -> int:
        """The number of rows in the traced program."""
        names = self.b.sizes
        return estimate(dims.substitute(self.outer, names))

    def _piece(self, scope: Scope, carry: Buffer, first: Dim, width: Dim) -> None:
        """All steps of some columns."""
        column = dims.symbol("j", 0)
        row = dims.symbol("row", 0) * self.steps
        with scope.loop("j", width, LoopKind.VECTOR) as inner:
            store(inner, carry, column, const(self.form.dtype, self.form.start))
        with scope.loop("i", self.steps) as step:
            at = (row + self.step("i")) * self.inner + first
            with step.loop("j", width, LoopKind.VECTOR) as inner:
                new = self._next(read(carry, column), read(self.x, at + column))
                name = self.b.fresh("new")
                inner.add(Let(name, new))
                value = Ref(name, self.form.dtype)
                store(inner, carry, column, value)
                store(inner, self.out, at + column, value)

    def _next(self, old: Value, new: Value) -> Value:
        return ApplyValue(self.form.op, (old, cast(new, self.form.dtype)), self.form.dtype)
