"""How much memory a kernel needs for itself: copies of operands, partial results.

What kernel/contract.py, kernel/fold_shape.py and kernel/window.py will take is told from the terms
alone, before a kernel is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lumjax import dtype as dt
from lumjax.egraph.features import (
    dot_products,
    extent_of,
    factors,
    most_read,
    oriented,
    spread,
    windows,
)
from lumjax.egraph.walks import walk
from lumjax.kernel.blocked import Blocks
from lumjax.kernel.contract import DEEP, MOST_PARTS, REUSED, SHALLOW, TILE_WORK, WIDE
from lumjax.kernel.fold_shape import FEW_ROWS, MOST_TURNED
from lumjax.kernel.region import volume
from lumjax.kernel.roles import Roles
from lumjax.kernel.term import Axis, Load, Reduction, Root, Term, free_names, subterms
from lumjax.trace.dim import Expr

_TILE = 128  # of the stream
_OVERLAP = 1.5  # what windows read must be this much more than there is
_IN_PLACE = 1 << 18  # bytes of a right side that stays in the second-level cache


def workspace(
    terms: Iterable[Term], roots: Sequence[Root], axes: Mapping[str, Axis], roles: Roles | None
) -> int:
    """Bytes of the buffers that a kernel computing these terms keeps between its phases."""
    if roles is not None:
        return _loop(roles, axes)
    total = 0
    for term in terms:
        pair = factors(term)
        if isinstance(term, Reduction) and pair is not None:
            right, left, column = oriented(roots, term, *pair, axes)
            total += _contraction(term, left, right, column, axes)
    return total


def held(found: Blocks, count: int, axes: Mapping[str, Axis]) -> int:
    """Bytes of what one of `count` blocks stores for itself, and of sums that are no roots."""
    bare = {r.term for r in found.after}
    sums = [t for t in found.sums if t not in bare]
    whole = sum(extent_of(free_names(t), axes) * _size(t) for t in sums)
    return whole + sum(extent_of(free_names(t), axes) * _size(t) for t in found.held) // count


def _contraction(
    term: Reduction, left: Term, right: Term, column: str, axes: Mapping[str, Axis]
) -> int:
    """The right side's copy, the left side's in the order of that copy, and partial sums."""
    free = free_names(term)
    size = _size(term)
    copy = 0
    if not (dot_products(left, right, term) or _as_they_lie(left, right, column)):
        copy = _copy(term, left, right, column, axes)
    uses = extent_of(free - free_names(left), axes)
    if windows(right) and uses >= REUSED and isinstance(left, Load):
        copy += extent_of(free_names(left), axes) * size
    results = extent_of(free, axes)
    depth = extent_of([a.name for a in term.axes], axes)
    longest = max((extent_of([a.name], axes) for a in term.axes), default=1)
    copy += _copied_left(term, left, right, axes)
    parts = min(results * depth // TILE_WORK, MOST_PARTS, depth // SHALLOW, longest)
    return copy + (parts * results * size if parts > 1 and depth >= DEEP else 0)


def _as_they_lie(left: Term, right: Term, column: str) -> bool:
    """Whether both sides are read where they lie: parts are copied, for as long as a job runs."""
    plain = isinstance(left, Load) and not isinstance(left.valid, Expr) and not left.indices
    return plain and _plain(right, column)


def _loop(roles: Roles, axes: Mapping[str, Axis]) -> int:
    """Copies of what a loop over tiles contracts with: sides along the stream."""
    rows = [] if roles.rows is None else [roles.rows.name]
    if extent_of(rows, axes) <= FEW_ROWS:
        return 0
    total = 0
    for inner in roles.inner:
        total += _copy(inner.term, inner.left, inner.right, roles.along.name, axes)
    for carry in roles.carries:
        if carry.weights is not None and carry.values is not None:
            column = carry.columns[-1].name
            at_once = _TILE * extent_of([column], axes) * _size(carry.term)
            if _turned(carry.values, roles.along.name, column, axes):
                continue
            if not _plain(carry.values, column) or at_once > _IN_PLACE:
                total += _copy(carry.term, carry.weights, carry.values, column, axes)
    return total


def _turned(values: Term, along: str, column: str, axes: Mapping[str, Axis]) -> bool:
    """Whether large values that lie along the stream are read in place."""
    size = extent_of(free_names(values), axes) * values.dtype.itemsize
    lies = _plain(values, along) and not _plain(values, column)
    return lies and size > MOST_TURNED and values.dtype == dt.accumulation_dtype(values.dtype)


def _copy(term: Reduction, left: Term, right: Term, column: str, axes: Mapping[str, Axis]) -> int:
    """Bytes of the right side if it is laid out anew, 0 if it is read where it lies."""
    names = free_names(right)
    total = extent_of(names, axes) * _size(term)
    if not _plain(right, column):
        if windows(right):
            read = sum(volume(t.buffer.shape) for t in subterms(right) if isinstance(t, Load))
            return min(total, read * _size(term))
        return total
    uses = extent_of(free_names(left) - names, axes)
    wide = extent_of([column], axes) >= WIDE
    return total if wide and total > _IN_PLACE and uses >= REUSED else 0


def _copied_left(term: Reduction, left: Term, right: Term, axes: Mapping[str, Axis]) -> int:
    """Bytes of a left side's copy: it is read through windows that overlap or meet padding."""
    if isinstance(left, Load) and not isinstance(left.valid, Expr):
        return 0
    loads, others = ([t for t in subterms(s) if isinstance(t, Load)] for s in (left, right))
    total, read = extent_of(free_names(left), axes), most_read(loads, 0)
    seen = windows(left) or spread(loads, [*loads, *others], axes)
    overlap = seen and total >= _OVERLAP * read
    return read * _size(term) if overlap else 0


def _size(term: Term) -> int:
    return dt.accumulation_dtype(term.dtype).itemsize


def _plain(right: Term, column: str) -> bool:
    """Whether the right side is read from memory whose rows run along the columns."""
    return (
        isinstance(right, Load)
        and not isinstance(right.valid, Expr)
        and not right.indices
        and column in free_names(right)
        and walk(right, column) == 0
    )
