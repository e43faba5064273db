"""CONTRACT: sums of products with free axes on both sides, in register tiles with an epilogue.

`acc[m, n] = sum_k lhs[m, k] * rhs[k, n]` where m, n are one axis of each side and every other
free axis is walked outside. The columns n are the vector axis and the root's last axis, so
operands swap sides if need be. An operand that is not a plain load (a term, a window with
padding, a transposed or a large right side) is staged: the right side once, into column panels
in a workspace; the left side per job, into scratch. A long sum with a small result is split into
partial sums (see split.py). Convolutions and their gradients are all this; what a stride spreads
out is cut by remainders first (see residue.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lumjax import dtype as dt
from lumjax.kernel.columns import Joined, join
from lumjax.kernel.emit import (
    Emitter,
    Scope,
    held,
    ordered_axes,
    unit_strides,
)
from lumjax.kernel.evaluate import factors
from lumjax.kernel.ir import LoopKind, StoreStmt
from lumjax.kernel.pairs import in_pairs
from lumjax.kernel.prepare import group_axes
from lumjax.kernel.residue import by_remainders
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.row import cone, reductions
from lumjax.kernel.schedule import PANELS
from lumjax.kernel.share import extent
from lumjax.kernel.stream import emit_stream, terms_at_once
from lumjax.kernel.term import Apply, Axis, Load, Reduction, Root, Term, free_names
from lumjax.kernel.tiles import (
    MANY_ROWS,
    Blocks,
    Panels,
    Tiles,
    Tiling,
    balanced,
    dot_shape,
    lie_along,
    panel_offset,
    plain,
    staged_dtype,
    tile_shape,
    widened,
)
from lumjax.kernel.window import copied, relaid
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

TILE_WORK = 1 << 20  # multiply-adds per job: tens of microseconds
FEW_JOBS = 8
MOST_PARTS = 64
DEEP = 4096  # a sum this long is split although there are jobs enough: its panels leave the cache
SHALLOW = 256  # no part is shorter than this: storing it would cost too much
TINY = 1 << 14  # multiply-adds: less may be summed any way
WIDE = 256  # rows of the right side shorter than this are read in place
LONG = 64  # results, and terms of their sums, for which one row is worth tiles
NARROW = 8  # fewer columns than this do not fill a vector
ROOM = 1 << 17  # bytes of a copied part of the right side
FEW_ROWS = 8  # rows for which the right side is read by far the most
HEIGHT = 384  # rows of a block whose sum is cut
DEPTH_OF_DOTS = 1024  # of the sum, walked at once
DEPTH_PACKED = 512
DEPTH_ACROSS = 256  # where the left side lies along its rows
DEPTH_IN_PLACE = 64
DEPTH_OF_ROWS = 16
PAGE = 1 << 12  # bytes: what steps as far in every term of a sum is copied
ROWS_FOR_COPY = 96  # for which a right side that lies along the sum is copied
REUSED = 64  # columns for which a left side is copied in the order of the sum
TILED = (dt.float16, dt.bfloat16, dt.float32, dt.float64)


def contraction(
    emitter: Emitter, roots: Sequence[Root], found: Sequence[Reduction]
) -> Tiling | None:
    """The tiling that computes `roots`, if they are one contraction with an epilogue."""
    if len(found) != 1 or emitter.target is None or operands(found[0]) is None:
        return None
    split = by_remainders(emitter, roots)
    if split is not None:
        new = reductions(r.term for r in split.roots)
        tiling = _tiling(emitter, split.roots, new, split.remainders)
        if tiling is None:
            return None
        places = [(b, (_among(tiling, at), _among(tiling, mask))) for b, (at, mask) in split.places]
        return replace(tiling, places=tuple(places), ends=split.ends)
    return _tiling(emitter, roots, found)


def _tiling(
    emitter: Emitter,
    roots: Sequence[Root],
    found: Sequence[Reduction],
    outside: frozenset[str] = frozenset(),
) -> Tiling | None:
    """The tiling; the axes `outside` are no rows or columns of tiles."""
    assert emitter.target is not None, "tiles are shaped for a target"
    (term,) = found
    sides = operands(term)
    if sides is None or not all(_epilogue(r, term) for r in roots):
        return None
    order = roots[0].axes
    mine = _free(sides[0], term, order), _free(sides[1], term, order)
    if set(order) != set(mine[0]) | set(mine[1]) or any(set(r.axes) != set(order) for r in roots):
        return None
    left, right = (
        [a for a in s if a not in o and a.name not in outside] for s, o in (mine, mine[::-1])
    )
    if not left or not right:
        lone = Axis(emitter.fresh("one"), 1)
        left, right = left or [lone], right or [lone]
        if left == right or not _matrix(emitter, term, sides[left == [lone]], order[-1]):
            return None
    if order[-1] in left or (order[-1] not in right and _strided(sides, left[-1], right[-1])):
        sides, left, right = (sides[1], sides[0]), right, left
    wider = _joined(emitter, roots, term, right)
    if wider is not None:
        new = reductions(r.term for r in wider.roots)
        tiling = _tiling(emitter, wider.roots, new, outside)
        return None if tiling is None else replace(tiling, joined=(wider, *tiling.joined))
    m, n = max(left, key=lambda a: (extent(emitter, [a]) >= 4, left.index(a))), right[-1]
    if extent(emitter, [n]) < NARROW and extent(emitter, term.axes) >= SHALLOW:
        n = max(right, key=lambda a: (min(NARROW, extent(emitter, [a])), right.index(a)))
    outer = tuple(a for a in order if a is not m and a is not n)
    k = tuple(ordered_axes([replace_body(term, sides[0])]))
    asked = emitter.schedule.rows or emitter.schedule.right
    dots = not asked and lie_along(emitter, term, sides, k, n)
    columns, count = (extent(emitter, [a]) for a in (n, m))
    if dots:
        rows, cols = dot_shape(term.dtype, emitter.target, count)
    else:
        few = count if plain(sides[1], k, n) else MANY_ROWS
        rows, cols = tile_shape(term.dtype, emitter.target, columns, emitter.schedule, few)
        rows = balanced(rows, count)
    depth = math.prod((a.extent for a in k), start=1)
    if emitter.size(depth) is None and not plain(sides[0], k):
        return None  # the left side would be staged in scratch, which must have a constant size
    tiling = Tiling(tuple(roots), term, sides[0], sides[1], m, n, outer, k, rows, cols)
    return replace(tiling, dots=dots)


def _among(tiling: Tiling, at: Dim) -> Dim:
    """An offset among the axes of a tiling that joined some."""
    for joined in tiling.joined:
        at = joined.place(at)
    return at


def _joined(
    emitter: Emitter, roots: Sequence[Root], term: Reduction, right: Sequence[Axis]
) -> Joined | None:
    """The roots with the last two axes of the right side as one, where the last alone leaves much
    of a vector empty.
    """
    assert emitter.target is not None, "tiles are shaped for a target"
    lanes = emitter.target.lanes(dt.accumulation_dtype(term.dtype).itemsize)
    if len(right) < 2 or extent(emitter, right[-1:]) >= lanes or emitter.schedule.right:
        return None
    return join(emitter, roots, term.body, right[-2], right[-1])


def _matrix(emitter: Emitter, term: Reduction, side: Term, last: Axis) -> bool:
    """Whether a side is worth tiles of one row: a matrix, read along the result or the sum."""
    axes = list(term.axes)
    if extent(emitter, [last]) < LONG or extent(emitter, axes) < LONG or not plain(side, axes):
        return False
    return any(plain(side, axes, a) for a in (last, *axes))


def worth_tiling(emitter: Emitter, term: Reduction) -> bool:
    """Whether a reduction should be a contraction of its own rather than part of a row program."""
    sides = operands(term)
    if sides is None:
        return False
    left, right = (free_names(s) - {a.name for a in term.axes} for s in sides)
    axes = {a.name: a for a in group_axes(emitter.prepared.group)}
    points = extent(emitter, (axes[n] for n in sorted((left | right) & axes.keys())))
    return bool(left - right and right - left) and points * extent(emitter, term.axes) >= TINY


def replace_body(term: Reduction, body: Term) -> Reduction:
    """The same reduction of another body."""
    return Reduction(term.op, term.axes, body, term.dtype)


def operands(term: Reduction) -> tuple[Term, Term] | None:
    """The two sides of a contraction that tiles can compute."""
    pair = factors(term)
    if pair is None or term.dtype not in TILED or any(t.dtype != term.dtype for t in pair):
        return None
    return pair


def _epilogue(root: Root, term: Reduction) -> bool:
    return term in cone([root.term])


def _free(side: Term, term: Reduction, order: Sequence[Axis]) -> list[Axis]:
    names = free_names(side) - {a.name for a in term.axes}
    return [a for a in order if a.name in names]


def _strided(sides: tuple[Term, Term], left: Axis, right: Axis) -> bool:
    return not unit_strides([sides[1]], right) and bool(unit_strides([sides[0]], left))


# ---- blocks and jobs


def emit_contract(emitter: Emitter, tiling: Tiling) -> None:
    """Append the phases: the right side's panels, the tiles, the sum of parts where split."""
    work = extent(emitter, (*tiling.outer, tiling.m, tiling.n, *tiling.k))
    emitter.places.update(tiling.places)
    step = terms_at_once(emitter, tiling)
    if step:
        emit_stream(emitter, tiling, step)
        return
    given, tiling = tiling, without_windows(emitter, tiling)
    blocks = None
    for way in _ways(emitter, tiling) if tiling is given else ():
        tiling = in_pairs(emitter, way) or way
        blocks = cut_deep(emitter, tiling, work)
        if blocks is not None or _small_copy(emitter, given, tiling):
            break
    if blocks is not None:
        Tiles(emitter, tiling, blocks, None).emit()
        return
    rhs = None if tiling.laid else stage_right(emitter, tiling)
    blocks = cut(emitter, tiling, work)
    units = math.prod(emitter.size(a.extent) or 1 for a in blocks.units)
    jobs = -(-units // (emitter.size(blocks.chunk) or 1))
    depth = extent(emitter, tiling.k)
    parts = min(work // TILE_WORK, MOST_PARTS, depth // SHALLOW, extent(emitter, tiling.k[:1]))
    whole = tiling.k[0].name not in dict(tiling.ends)
    if parts > 1 and whole and (jobs < FEW_JOBS or depth >= DEEP):
        Tiles(emitter, tiling, blocks, rhs).emit_split(parts)
    else:
        Tiles(emitter, tiling, blocks, rhs).emit()


def _ways(emitter: Emitter, tiling: Tiling) -> Iterator[Tiling]:
    """The tilings to try. Dot products load a vector for each of few sums: where many rows share
    it, a copy of the right side across its order is worth it.
    """
    rows, columns = (extent(emitter, [a]) for a in (tiling.m, tiling.n))
    if tiling.dots and rows >= ROWS_FOR_COPY:
        assert emitter.target is not None, "tiles are shaped for a target"
        shape = tile_shape(tiling.term.dtype, emitter.target, columns)
        yield replace(tiling, rows=balanced(shape[0], rows), cols=shape[1], dots=False)
    yield tiling


def _small_copy(emitter: Emitter, given: Tiling, tiling: Tiling) -> bool:
    """Whether many rows share a right side that lies along the sum and, copied across it, stays in
    the nearest cache.
    """
    assert emitter.target is not None, "tiles are shaped for a target"
    size = extent(emitter, (tiling.n, *tiling.k)) * held(tiling.term).itemsize
    return given.dots and not (tiling.dots or tiling.pairs) and size <= 2 * emitter.target.l1


def cut_deep(emitter: Emitter, tiling: Tiling, work: int) -> Blocks | None:
    """Blocks that cut the sum too, where both sides are read as they lie: what is read at once then
    stays in the caches, and with many rows the right side's part is copied.
    """
    assert emitter.target is not None, "tiles are shaped for a target"
    m, n = extent(emitter, [tiling.m]), extent(emitter, [tiling.n])
    depth = extent(emitter, tiling.k)
    if tiling.ends or emitter.schedule.right or not _as_it_lies(tiling.lhs, tiling):
        return None
    target, itemsize = emitter.target, held(tiling.term).itemsize
    packed = not tiling.dots and (m >= MANY_ROWS or tiling.pairs)
    along = _as_it_lies(tiling.rhs, tiling, tiling.n) or (packed and _lies_along(tiling))
    if not (tiling.dots or along):
        return None
    if tiling.dots and m * depth * itemsize <= target.l2 // 2:
        return None  # the left side stays in the cache while the right one streams by
    if depth < LONG or depth * n * itemsize <= 2 * target.l1:
        return None
    rest = extent(emitter, tiling.k[1:])
    parts = -(-depth // _at_once(emitter, tiling, packed))
    share = max(1, -(-depth // (parts * rest)))
    if tiling.dots and rest == 1:
        share = -(-share // 16) * 16
    points = extent(emitter, tiling.outer)
    across, down = -(-n // tiling.cols), -(-m // tiling.rows)
    tall = max(1, min(down, -(-(emitter.schedule.height or HEIGHT) // tiling.rows)))
    tall = -(-down // -(-down // tall))
    room = ROOM if packed else target.l2 // 8
    held_rows = share * rest if packed else tall * tiling.rows
    wide = max(1, min(across, room // (held_rows * tiling.cols * itemsize)))
    blocks = points * -(-down // tall)
    if work > 2 * TILE_WORK:  # few rows are read like long ones
        jobs = FEW_JOBS if m > 1 else FEW_JOBS // 2
        wide = max(1, min(wide, across * blocks // jobs))
    wide = -(-across // -(-across // wide))
    if blocks * -(-across // wide) < FEW_JOBS // 2 < work // TILE_WORK:
        return None
    part = None if share * rest >= depth else share
    blocks = _blocks(emitter, tiling, tall * tiling.rows, wide, depth, part)
    left = not plain(tiling.lhs, tiling.k) if tiling.pairs else _far_apart(emitter, tiling)
    return replace(blocks, right=packed, left=packed and left)


def _as_it_lies(side: Term, tiling: Tiling, unit: Axis | None = None) -> bool:
    """Whether a side is read from memory as it is, or in pairs."""
    parts = side.args if tiling.pairs and isinstance(side, Apply) else (side,)
    return all(plain(p, tiling.k, unit) for p in parts)


def _lies_along(tiling: Tiling) -> bool:
    """Whether the right side lies along the sum, from which it is turned as it is copied."""
    if not _as_it_lies(tiling.rhs, tiling):
        return False
    first = tiling.rhs.args[0] if isinstance(tiling.rhs, Apply) else tiling.rhs
    assert isinstance(first, Load), "the right side is read as it lies"
    step = dims.coefficient(first.coords[0], tiling.k[-1].name) or 0
    return dims.same(step, 2 if tiling.pairs else 1)


def _at_once(emitter: Emitter, tiling: Tiling, packed: bool) -> int:
    """How much of the sum is walked at once, at most."""
    if tiling.dots:
        return DEPTH_OF_DOTS
    if packed:
        return DEPTH_ACROSS if unit_strides([tiling.lhs], tiling.m) else DEPTH_PACKED
    return DEPTH_IN_PLACE if extent(emitter, [tiling.m]) > FEW_ROWS else DEPTH_OF_ROWS


def _far_apart(emitter: Emitter, tiling: Tiling) -> bool:
    """Whether each term of the sum takes the left side's rows from another page."""
    left = tiling.lhs
    assert isinstance(left, Load), "the left side is read as it lies"
    step = emitter.size(dims.coefficient(left.coords[0], tiling.k[-1].name) or 0)
    far = step is None or abs(step) * left.dtype.itemsize >= PAGE
    return far and bool(unit_strides([left], tiling.m))


def cut(emitter: Emitter, tiling: Tiling, work: int) -> Blocks:
    """Blocks whose left side stays in the second-level cache, and enough of them to share out."""
    assert emitter.target is not None, "tiles are shaped for a target"
    m, n = extent(emitter, [tiling.m]), extent(emitter, [tiling.n])
    depth = extent(emitter, tiling.k)
    itemsize = held(tiling.term).itemsize
    fitting = max(1, emitter.target.l2 // 2 // max(1, depth * itemsize * tiling.rows))
    most = -(-emitter.schedule.height // tiling.rows) or 32
    tall = tiling.rows * min(fitting, most, -(-m // tiling.rows))
    across = -(-n // tiling.cols)
    points = extent(emitter, tiling.outer)
    if not plain(tiling.lhs, tiling.k):  # every block of columns would stage it again
        tall = min(tall, tiling.rows * max(1, -(-m // tiling.rows) * points // (2 * FEW_JOBS)))
    blocks = points * -(-m // tall)
    wide = across
    if blocks < 2 * FEW_JOBS and work > 2 * TILE_WORK:
        wide = max(1, across // max(1, 2 * FEW_JOBS // blocks))
    return _blocks(emitter, tiling, tall, wide, depth)


def _blocks(
    emitter: Emitter,
    tiling: Tiling,
    tall: int,
    wide: int,
    depth: int,
    share: int | None = None,
) -> Blocks:
    """Blocks of `tall` rows and `wide` panels, some to a job."""
    block_rows, block_panels = emitter.chunk(tall), emitter.chunk(wide)
    panels = dims.ceiling_divide(tiling.n.extent, tiling.cols)
    units = (
        *tiling.outer,
        Axis(emitter.fresh("mb"), dims.ceiling_divide(tiling.m.extent, block_rows)),
        Axis(emitter.fresh("nb"), dims.ceiling_divide(panels, block_panels)),
    )
    m, n = extent(emitter, [tiling.m]), extent(emitter, [tiling.n])
    per_unit = max(1, min(tall, m) * min(wide * tiling.cols, n) * depth)
    chunk = emitter.chunk(max(1, TILE_WORK // per_unit))
    part = None if share is None else emitter.chunk(share)
    return Blocks(block_rows, block_panels, panels, units, chunk, part)


# ---- the right side


def stage_right(emitter: Emitter, tiling: Tiling, deep: int | None = None) -> Panels | None:
    """Append the phase that lays out the right side in panels; None where it is read in place.

    `deep` is how much of the sum is walked at once: all of it unless given.
    """
    assert emitter.target is not None, "tiles are shaped for a target"
    outer = tuple(a for a in tiling.outer if a.name in free_names(tiling.rhs))
    walked = extent(emitter, (*outer, *tiling.k)) if deep is None else deep
    total = walked * extent(emitter, [tiling.n]) * held(tiling.term).itemsize
    uses = extent(emitter, [tiling.m, *(a for a in tiling.outer if a not in outer)])
    wide = extent(emitter, [tiling.n]) >= WIDE
    large = wide and total > emitter.target.l2 // 2 and uses >= 64
    if emitter.schedule.right:
        large = emitter.schedule.right == PANELS
    if tiling.dots or (plain(tiling.rhs, tiling.k, tiling.n) and not large):
        return None
    panels = dims.ceiling_divide(tiling.n.extent, tiling.cols)
    space = math.prod((a.extent for a in (*outer, *tiling.k)), start=panels * tiling.cols)
    staged = Panels(emitter.temporary(space, staged_dtype(tiling)), outer, tiling.k)
    panel = Axis(emitter.fresh("nb"), panels)
    each = extent(emitter, tiling.k) * tiling.cols
    top = Scope(bound={job := emitter.fresh("job")})
    chunk = emitter.chunk(max(1, (1 << 16) // each))
    points = math.prod((a.extent for a in outer), start=panels)
    begin = dims.symbol(job) * chunk
    with top.loop(
        flat := emitter.fresh("p"), dims.minimum(begin + chunk, points), begin=begin
    ) as unit:
        emitter.decode((*outer, panel), dims.symbol(flat, 0, points - 1), unit)
        q = axis_symbol(panel)
        emitter.ranges[tiling.n.name] = (
            q * tiling.cols,
            dims.minimum(q * tiling.cols + tiling.cols, tiling.n.extent),
        )

        def fill(scope: Scope) -> None:
            at = panel_offset(staged, q, tiling, panels)
            value = widened(emitter.value(tiling.rhs, scope), staged.buffer.dtype)
            scope.add(StoreStmt(staged.buffer, at, value))

        emitter.nest((*tiling.k, tiling.n), unit, LoopKind.VECTOR, fill)
        del emitter.ranges[tiling.n.name]
    emitter.phase(job, dims.ceiling_divide(points, chunk), top)
    return staged


def without_windows(emitter: Emitter, tiling: Tiling) -> Tiling:
    """The tiling with sides that are read through windows copied, and a left side copied in the
    order in which such a right side is walked.
    """
    dtype = held(tiling.term)
    if not plain(tiling.lhs, tiling.k):
        outer = [a for a in (*tiling.outer, tiling.m) if a.name in free_names(tiling.lhs)]
        *rest, last = tiling.k
        if unit_strides([tiling.lhs], tiling.m):  # rows that lie side by side stay so
            outer, rest, last = outer[:-1], list(tiling.k), tiling.m
        left = copied(emitter, tiling.lhs, dtype, outer, rest, last)
        tiling = tiling if left is None else replace(tiling, lhs=left)
    outer = [a for a in tiling.outer if a.name in free_names(tiling.rhs)]
    right = copied(emitter, tiling.rhs, dtype, outer, tiling.k, tiling.n)
    if right is None:
        return tiling
    inmost = max(tiling.k, key=lambda a: (_affine(right, a), extent(emitter, [a])))
    k = (*(a for a in tiling.k if a is not inmost), inmost)
    outer = [a for a in tiling.outer if a.name in free_names(tiling.lhs)]
    left = tiling.lhs
    uses = extent(emitter, [tiling.n, *(a for a in tiling.outer if a not in outer)])
    if uses >= REUSED and plain(left, k) and not plain(left, k, inmost):
        left = relaid(emitter, left, dtype, (*outer, tiling.m, *k))
    return replace(tiling, lhs=left, rhs=right, k=k, laid=True)


def _affine(load: Load, axis: Axis) -> bool:
    return dims.coefficient(load.coords[0], axis.name) is not None
