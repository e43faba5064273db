"""CONTRACT for a GPU: a block computes one tile of the result, and evaluates both sides as it goes.

The loop program of the CPU (kernel/contract.py) copies panels so that caches hold them, and cuts
work into jobs for a few cores. Here a job is a tile, there are as many as the result has, and what
would be copied is computed on its way into shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lumjax.kernel.contract import contraction
from lumjax.kernel.emit import Emitter, Scope
from lumjax.kernel.ir import ApplyValue, IndexValue, Kernel, Let, LoadValue, Ref, Value
from lumjax.kernel.prepare import prepare
from lumjax.kernel.rewrite import rebuild, rewrite
from lumjax.kernel.row import reductions
from lumjax.kernel.share import extent
from lumjax.kernel.term import Axis, Group, Term
from lumjax.kernel.tiles import Area, Blocks, Tiles, Tiling
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

MANY = 132  # tiles that keep a large GPU busy
SIDES = (128, 64, 32, 16, 8, 4, 2, 1)  # of tiles
LARGEST = (128, 64, 32)  # sides that are tried, as far as registers go
DEEP, MOST_PARTS = 512, 64  # terms of a part of a long sum, and how many parts there may be


def candidates(group: Group, target: Target, name: str) -> Iterator[Kernel]:
    """Kernels of a group that is one contraction with an epilogue, that with the largest tiles
    first; none for anything else, or where a side cannot be evaluated within a tile.
    """
    before: tuple[int, int] | None = None
    for most in LARGEST:
        found = _lowered(group, target, name, most)
        if found is None:
            return
        kernel, shape = found
        if kernel is not None and shape != before:
            before = shape
            yield kernel


def _lowered(
    group: Group, target: Target, name: str, most: int
) -> tuple[Kernel | None, tuple[int, int]] | None:
    """The kernel with tiles of at most so many rows and columns, and their shape; without a kernel
    if there would be too few of such tiles.
    """
    prepared = prepare(group, rounded=True)
    emitter = Emitter(prepared, target)
    roots = prepared.live()
    tiling = contraction(emitter, roots, reductions(r.term for r in roots))
    if tiling is None or tiling.places or tiling.ends:
        return None
    rows, cols = _shape(emitter, tiling, most)
    if most > LARGEST[1] and _tiles(emitter, tiling, rows, cols) < MANY:
        return None, (rows, cols)
    tiling = replace(tiling, rows=rows, cols=cols, dots=False)
    panels = dims.ceiling_divide(tiling.n.extent, cols)
    units = (
        *tiling.outer,
        Axis(emitter.fresh("mb"), dims.ceiling_divide(tiling.m.extent, rows)),
        Axis(emitter.fresh("nb"), panels),
    )
    tiles = _Tiles(emitter, tiling, Blocks(rows, 1, panels, units, 1), None)
    parts = _parts(emitter, tiling, extent(emitter, units))
    if parts > 1:
        tiles.emit_split(parts)
    else:
        tiles.emit()
    if not tiles.fine:
        return None
    return replace(emitter.kernel(name), programs=("CONTRACT",)), (rows, cols)


def _shape(emitter: Emitter, tiling: Tiling, most: int) -> tuple[int, int]:
    """Rows and columns of a tile: no more than the result has."""
    m, n = (min(extent(emitter, [a]), most) for a in (tiling.m, tiling.n))
    rows, cols = (next(s for s in reversed(SIDES) if s >= side) for side in (m, n))
    return rows, cols


def _tiles(emitter: Emitter, tiling: Tiling, rows: int, cols: int) -> int:
    """How many tiles there are."""
    points, m, n = (extent(emitter, a) for a in (tiling.outer, [tiling.m], [tiling.n]))
    return points * -(-m // rows) * -(-n // cols)


def _parts(emitter: Emitter, tiling: Tiling, tiles: int) -> int:
    """Into how many parts the sum is cut: where there are few tiles of long sums."""
    if tiles * 2 > MANY:
        return 1
    depth, first = extent(emitter, tiling.k), extent(emitter, tiling.k[:1])
    return max(1, min(MANY // tiles, MOST_PARTS, depth // DEEP, first))


class _Tiles(Tiles):
    """Tiles whose sides are evaluated where they are staged."""

    fine = True  # whether that was possible

    def _allocate(self, depth: Dim) -> None:
        """Nothing is copied."""

    def _left(self, scope: Scope, first: Dim) -> Value:
        return self._inline(scope, self.lhs)

    def _right(self, scope: Scope, panel: Dim, area: Area) -> Value:
        right = rewrite(self.tiling.rhs, lambda t, kids: rebuild(t, kids, self.shift), {})
        return self._inline(scope, right)

    def _inline(self, scope: Scope, side: Term) -> Value:
        """A side as one value; names that it needs are replaced by what they stand for."""
        inner = Scope(scope, closed=True)
        value = self.emitter.value(side, inner)
        lets = {s.name: s.value for s in inner.stmts if isinstance(s, Let)}
        made = _replaced(value, lets, {})
        if len(lets) < len(inner.stmts) or made is None:
            self.fine = False
            return value
        return made


def _replaced(
    value: Value, lets: Mapping[str, Value], memo: dict[int, Value | None]
) -> Value | None:
    """A value without names that are bound; None where an index expression mentions one."""
    if id(value) in memo:
        return memo[id(value)]
    found: Value | None = value
    match value:
        case Ref(name=name) if name in lets:
            found = _replaced(lets[name], lets, memo)
        case ApplyValue():
            args = [_replaced(a, lets, memo) for a in value.args]
            whole = tuple(a for a in args if a is not None)
            same = len(whole) == len(args)
            found = ApplyValue(value.op, whole, value.dtype) if same else None
        case LoadValue() if lets.keys() & dims.symbols(value.offset, value.mask):
            found = None
        case IndexValue() if lets.keys() & dims.symbols(value.expr):
            found = None
        case _:
            pass
    memo[id(value)] = found
    return found
