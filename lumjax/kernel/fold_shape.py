"""Tile sizes and operands of loops over tiles: how large, and where each operand is read from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from lumjax import dtype as dt
from lumjax.kernel.contract import (
    Panels,
    Tiling,
    balanced,
    panel_offset,
    plain,
    stage_right,
    tile_shape,
    widened,
)
from lumjax.kernel.emit import Emitter, Scope, held, ordered_axes, unit_strides
from lumjax.kernel.ir import LoadValue, LoopKind, StoreStmt, Value
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.roles import Carry, Inner, Roles
from lumjax.kernel.share import extent
from lumjax.kernel.term import Axis, Buffer, Load, Reduction, Term, free_names
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

HEIGHT = 64  # rows of a job's tile, about
WIDTH = 128  # columns of a tile along the stream, at most
ENOUGH_UNITS = 16
FEW_ROWS = 4  # for so few, operands are not copied
FEW_WIDTH = 256
MOST_TURNED = 1 << 22  # bytes of an operand that is copied for vectors along its columns
FEW_VECTORS = 8  # of a register tile of one row
LONE_ROWS = 8  # rows side by side where nothing is contracted
LONE_BYTES = 1 << 16


@record
class Shape:
    """A job's tile: `block` rows (a size argument, at most `height`) by `panels` (likewise) panels
    of `cols` columns, at most `width` columns in all; `rows` are those of the register tile.
    """

    block: Dim
    height: int
    panels: Dim
    cols: int
    width: int
    rows: int

    @property
    def step(self) -> Dim:
        """The length of a stream tile."""
        return self.panels * self.cols


def shape(emitter: Emitter, roles: Roles, rows: Axis) -> Shape:
    """Tiles such that what lives from one to the next stays in the second-level cache."""
    assert emitter.target is not None, "tiles are shaped for a target"
    many, long = extent(emitter, [rows]), extent(emitter, [roles.along])
    tiled = [i.term for i in roles.inner] + [c.term for c in roles.carries if c.columns]
    if not tiled:
        lanes = emitter.target.lanes(max(c.term.dtype.itemsize for c in roles.carries))
        height = min(LONE_ROWS, many)
        each = LONE_BYTES // height // max(c.term.dtype.itemsize for c in roles.carries)
        return _shape(emitter, height, 1, lanes, min(each, _up(long, lanes)))
    size = max(held(t).itemsize for t in tiled)
    register, cols = _register(emitter, tiled[0], rows, long)
    kept = [extent(emitter, c.columns) for c in roles.carries if c.columns]
    kept += [extent(emitter, i.term.axes) for i in roles.inner]
    room = emitter.target.l2 // 2 // size // max(1, sum(kept))
    height = max(2 * register, min(emitter.schedule.height or HEIGHT, room))
    while height > 4 * register and _units(emitter, roles, many, height) < ENOUGH_UNITS:
        height //= 2
    height = min(_near(height, register), _up(many, register))
    tiles = max(1, len(roles.inner), sum(1 for c in roles.carries if c.columns))
    wide = emitter.schedule.width or (FEW_WIDTH if few(emitter, rows) else WIDTH)
    width = min(wide, emitter.target.l2 // 4 // size // tiles // height)
    width = max(cols, width // cols * cols)
    return _shape(
        emitter, height, balanced(register, min(many, height)), cols, min(width, _up(long, cols))
    )


def few(emitter: Emitter, rows: Axis) -> bool:
    """Whether there are too few rows to copy operands for them."""
    return extent(emitter, [rows]) <= FEW_ROWS


def _register(emitter: Emitter, term: Reduction, rows: Axis, columns: int) -> tuple[int, int]:
    """Rows and columns of the register tile."""
    assert emitter.target is not None, "tiles are shaped for a target"
    height, cols = tile_shape(term.dtype, emitter.target, columns, emitter.schedule)
    many = extent(emitter, [rows])
    if many > FEW_ROWS or emitter.schedule.vectors:
        return height, cols
    lanes = emitter.target.lanes(held(term).itemsize)
    vectors = min(-(-columns // lanes), max(cols // lanes, FEW_VECTORS // max(1, many)))
    return max(1, many), vectors * lanes


def _shape(emitter: Emitter, height: int, rows: int, cols: int, width: int) -> Shape:
    width = max(cols, width // cols * cols)
    block, panels = emitter.chunk(height), emitter.chunk(width // cols)
    return Shape(block, height, panels, cols, width, rows)


def _up(n: int, unit: int) -> int:
    return -(-max(n, 1) // unit) * unit


def _near(n: int, unit: int) -> int:
    return max(1, round(n / unit)) * unit


def _units(emitter: Emitter, roles: Roles, many: int, height: int) -> int:
    return extent(emitter, roles.grid) * -(-many // height)


# ---- operands


@record
class Left:
    """The row side of a contraction per tile, in scratch as [row][k...] or read in place."""

    term: Term
    k: tuple[Axis, ...]
    rows: Axis
    scratch: Buffer | None

    def at(self, first: Dim) -> Dim:
        """Where the element at the current row and k lies in scratch."""
        extents = (1, *(a.extent for a in self.k))
        return offset(extents, (axis_symbol(self.rows) - first, *map(axis_symbol, self.k)))

    def value(self, emitter: Emitter, scope: Scope, first: Dim) -> Value:
        """The operand at the current row and k."""
        if self.scratch is not None:
            return LoadValue(self.scratch, self.at(first))
        assert isinstance(self.term, Load), "what is not a load is staged"
        return emitter.node(self.term, scope)

    def stage(self, emitter: Emitter, scope: Scope, first: Dim) -> None:
        """Compute the block's rows into scratch."""
        scratch = self.scratch
        if scratch is None:
            return
        best = max(self.k, key=lambda a: (unit_strides([self.term], a), a is self.k[-1]))
        order = [self.rows, *(a for a in self.k if a is not best), best]

        def fill(inner: Scope) -> None:
            value = widened(emitter.value(self.term, inner), scratch.dtype)
            inner.add(StoreStmt(scratch, self.at(first), value))

        emitter.nest(order, scope, LoopKind.VECTOR, fill)


@record
class Right:
    """The stream side of a contraction, in panels of a workspace or read in place; `direct`: row by
    row, as it lies (see fold_direct); `turned`: the place of weights that it is swapped with (see
    fold_swap).
    """

    tiling: Tiling
    panels: Panels | None
    direct: bool = False
    turned: Buffer | None = None

    @property
    def count(self) -> Dim:
        """How many panels of columns there are."""
        return dims.ceiling_divide(self.tiling.n.extent, self.tiling.cols)

    def value(
        self, emitter: Emitter, scope: Scope, panel: Dim, shift: dict[str, Dim] | None = None
    ) -> Value:
        """The operand at the current k and column, in `panel`; `shift` replaces axis symbols."""
        if self.panels is not None:
            at = panel_offset(self.panels, panel, self.tiling, self.count)
            return LoadValue(self.panels.buffer, dims.substitute(at, shift or {}))
        assert isinstance(self.tiling.rhs, Load), "what is not a load is staged"
        node = emitter.node(self.tiling.rhs, scope)
        assert isinstance(node, LoadValue), "a load's value is one"
        return replace(node, offset=dims.substitute(node.offset, shift or {}))


def left_side(emitter: Emitter, inner: Inner, rows: Axis, tile: Shape) -> Left:
    """Where the row side is read: in scratch, unless it is a load that is too large for that."""
    assert emitter.target is not None, "tiles are shaped for a target"
    k = contracted(inner.term, inner.left)
    depth = emitter.size(math.prod((a.extent for a in k), start=1))
    dtype = held(inner.term)
    fits = depth is not None and depth * tile.height * dtype.itemsize <= emitter.target.l2 // 2
    if plain(inner.left, k) and not fits:
        return Left(inner.left, k, rows, None)
    assert depth is not None, "what is staged has a constant size"
    return Left(inner.left, k, rows, emitter.local(depth * tile.height, dtype))


def stageable(emitter: Emitter, inner: Inner) -> bool:
    """Whether the row side can be read in place or has a constant size."""
    k = contracted(inner.term, inner.left)
    depth = emitter.size(math.prod((a.extent for a in k), start=1))
    return depth is not None or plain(inner.left, k)


def contracted(term: Reduction, side: Term) -> tuple[Axis, ...]:
    """The contracted axes, innermost the one that the side walks with the smallest stride."""
    return tuple(ordered_axes([Reduction(term.op, term.axes, side, term.dtype)]))


def inner_right(
    emitter: Emitter, inner: Inner, outer: Sequence[Axis], rows: Axis, along: Axis, tile: Shape
) -> Right:
    """The stream side of a contraction per tile; appends the phase that stages it."""
    tiling = Tiling(
        (),
        inner.term,
        inner.left,
        inner.right,
        rows,
        along,
        _needed(inner.right, outer),
        contracted(inner.term, inner.left),
        tile.rows,
        tile.cols,
    )
    return _right(emitter, tiling)


def carry_right(
    emitter: Emitter, carry: Carry, outer: Sequence[Axis], rows: Axis, along: Axis, tile: Shape
) -> Right:
    """The values that a carry with columns contracts its weights with."""
    assert emitter.target is not None, "tiles are shaped for a target"
    assert carry.values is not None, "it has columns"
    assert carry.weights is not None, "it has columns"
    *others, last = carry.columns
    height, cols = _register(emitter, carry.term, rows, extent(emitter, [last]))
    tiling = Tiling(
        (),
        carry.term,
        carry.weights,
        carry.values,
        rows,
        last,
        (*_needed(carry.values, outer), *others),
        (along,),
        balanced(height, min(extent(emitter, [rows]), tile.height)),
        cols,
    )
    if few(emitter, rows) and extent(emitter, [last]) > cols:
        return Right(tiling, None, True)  # whole rows of values, each read once
    if _swaps(emitter, tiling, along):
        turned = emitter.local(tile.width * tile.height, held(carry.term))
        return Right(tiling, None, turned=turned)
    return _right(emitter, tiling, tile.width)


def _swaps(emitter: Emitter, tiling: Tiling, along: Axis) -> bool:
    """Whether the values of a carry are large and lie along the stream, not along the columns."""
    rhs, last = tiling.rhs, tiling.n
    if (
        few(emitter, tiling.m)
        or not plain(rhs, (along, last), along)
        or rhs.dtype != held(tiling.term)
    ):
        return False
    outer = [a for a in tiling.outer if a.name in free_names(rhs)]
    size = extent(emitter, (*outer, along, last)) * rhs.dtype.itemsize
    return size > MOST_TURNED and not plain(rhs, (along, last), last)


def _right(emitter: Emitter, tiling: Tiling, deep: int | None = None) -> Right:
    if few(emitter, tiling.m) and not plain(tiling.rhs, tiling.k, tiling.n):
        return Right(tiling, None, True)
    return Right(tiling, stage_right(emitter, tiling, deep))


def _needed(term: Term, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(a for a in axes if a.name in free_names(term))


def tile_dtype(term: Term) -> dt.DType:
    """The dtype in which a tile of the term is held."""
    return dt.accumulation_dtype(term.dtype)
