"""IndexMap: for each output coordinate, the operand's coordinate that it reads, if any.

Every movement (reshape, transpose, broadcast, slice, pad, flip, concatenate) is such a map; chains
of them compose into one before anything is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lumjax.record import record
from lumjax.trace import dim as dm
from lumjax.trace.dim import Dim, Expr, less, less_equal, logical_and, same, symbol

Shape = tuple[Dim, ...]


def coordinate(k: int, extent: Dim) -> Dim:
    """The k-th domain coordinate: the symbol `d<k>` in [0, extent), or 0 where extent is 1."""
    if isinstance(extent, int):
        return symbol(f"d{k}", 0, extent - 1) if extent > 1 else 0
    return symbol(f"d{k}", 0, extent - 1)


def coordinates(shape: Sequence[Dim]) -> Shape:
    """The domain coordinates of a shape."""
    return tuple([coordinate(k, n) for k, n in enumerate(shape)])


def row_major(shape: Sequence[Dim]) -> Shape:
    """The strides, in elements, of a dense row-major array."""
    strides: list[Dim] = []
    step: Dim = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * n
    return tuple(reversed(strides))


@record
class IndexMap:
    """out[d0, .., dn] = operand[coords] where `valid` is nonzero; d<k> ranges over [0, domain[k]).

    Coordinates are in bounds wherever `valid` holds, and arbitrary elsewhere.
    """

    domain: Shape
    coords: Shape
    valid: Dim = 1

    def compose(self, inner: IndexMap) -> IndexMap:
        """First `inner` (middle to operand), then self (output to middle): output to operand."""
        values = {f"d{k}": c for k, c in enumerate(self.coords)}
        coords = tuple([dm.substitute(c, values) for c in inner.coords])
        valid = logical_and(self.valid, dm.substitute(inner.valid, values))
        return IndexMap(self.domain, coords, valid)

    def substitute(self, values: Mapping[str, Dim]) -> IndexMap:
        """The map with symbols (not domain coordinates) replaced by name."""
        domain, coords = (
            tuple([dm.substitute(c, values) for c in part]) for part in (self.domain, self.coords)
        )
        # An axis that became a single point is written as the constant 0.
        points = {f"d{k}": 0 for k, n in enumerate(domain) if isinstance(n, int) and n <= 1}
        coords = tuple([dm.substitute(c, points) for c in coords])
        valid = dm.substitute(dm.substitute(self.valid, values), points)
        return IndexMap(domain, coords, valid)

    def offset(self, in_shape: Sequence[Dim]) -> Dim:
        """The element read, counted in row-major order of the operand."""
        total: Dim = 0
        for c, s in zip(self.coords, row_major(in_shape), strict=True):
            total = total + c * s
        return total

    def strides(self, in_shape: Sequence[Dim]) -> tuple[Dim | None, ...]:
        """How far one step along each domain axis moves in the operand; None where that varies."""
        offset = self.offset(in_shape)
        return tuple([dm.coefficient(offset, f"d{k}") for k in range(len(self.domain))])

    def symbols(self) -> frozenset[str]:
        """The names, other than the domain's coordinates, that the map depends on."""
        own = {f"d{k}" for k in range(len(self.domain))}
        return dm.symbols(*self.coords, self.valid) - own

    def is_identity(self, in_shape: Sequence[Dim]) -> bool:
        """Whether the output is the operand, unmoved."""
        return (
            dm.same_shape(self.domain, in_shape)
            and same(self.valid, 1)
            and all(map(same, self.coords, coordinates(self.domain)))
        )

    def is_reshape(self, in_shape: Sequence[Dim]) -> bool:
        """Whether the output's elements are the operand's in the same row-major order; not where
        sizes are unknown.
        """
        own = identity(self.domain).offset(self.domain)
        known = all(isinstance(n, int) for n in (*self.domain, *in_shape))
        alike = known and math.prod(map(int, self.domain)) == math.prod(map(int, in_shape))
        return alike and same(self.valid, 1) and same(self.offset(in_shape), own)

    def permutation(self, in_shape: Sequence[Dim]) -> tuple[int, ...] | None:
        """The perm for which the map is `transpose(in_shape, perm)`, or None."""
        if len(self.domain) != len(in_shape) or not same(self.valid, 1):
            return None
        free = list(range(len(in_shape)))
        perm: list[int] = []
        for d, n in zip(coordinates(self.domain), self.domain, strict=True):
            matching = (a for a in free if same(self.coords[a], d) and same(in_shape[a], n))
            found = next(matching, None)
            if found is None:
                return None
            free.remove(found)
            perm.append(found)
        return tuple(perm)

    def is_permutation(self, in_shape: Sequence[Dim]) -> bool:
        """Whether the output is the operand with its axes in some order."""
        return self.permutation(in_shape) is not None

    def contiguous_run(self, in_shape: Sequence[Dim]) -> Dim:
        """How many consecutive outputs always read consecutive elements of the operand."""
        run: Dim = 1
        names = dm.symbols(self.valid)
        strides = self.strides(in_shape)
        for k in reversed(range(len(self.domain))):
            if same(self.domain[k], 1):
                continue
            stride = strides[k]
            if f"d{k}" in names or stride is None or not same(stride, run):
                break
            run = run * self.domain[k]
        return run

    def evaluate(
        self, in_shape: Sequence[Dim], values: Mapping[str, int] | None = None
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(flat index into the operand, mask) in the domain's shape; the index is 0 if masked.

        `values` gives the integers of the symbols that the map and its shapes mention.
        """
        values = values or {}
        shape = tuple([int(dm.evaluate(n, values)) for n in self.domain])
        grid: dict[str, Any] = dict(values)
        for k, axis in enumerate(np.indices(shape, sparse=True)):
            grid[f"d{k}"] = axis
        mask = np.broadcast_to(np.asarray(dm.evaluate(self.valid, grid)) != 0, shape)
        flat = np.broadcast_to(dm.evaluate(self.offset(in_shape), grid), shape)
        return np.where(mask, flat, 0), mask


# ---- constructors: each returns the map of one movement of an operand of shape `in_shape`


def identity(shape: Sequence[Dim]) -> IndexMap:
    """The map that moves nothing."""
    return IndexMap(tuple(shape), coordinates(shape))


def broadcast(in_shape: Sequence[Dim], out_shape: Sequence[Dim], dims: Sequence[int]) -> IndexMap:
    """Operand axis j becomes output axis dims[j]; axes of extent 1 are repeated."""
    coords = tuple(
        [
            0 if same(n, 1) else coordinate(d, out_shape[d])
            for n, d in zip(in_shape, dims, strict=True)
        ]
    )
    return IndexMap(tuple(out_shape), coords)


def transpose(in_shape: Sequence[Dim], perm: Sequence[int]) -> IndexMap:
    """Output axis k is operand axis perm[k]."""
    domain = tuple([in_shape[p] for p in perm])
    coords: list[Dim] = [0] * len(domain)
    for k, p in enumerate(perm):
        coords[p] = coordinate(k, domain[k])
    return IndexMap(domain, tuple(coords))


def slice(
    in_shape: Sequence[Dim],
    starts: Sequence[Dim],
    limits: Sequence[Dim],
    strides: Sequence[int] | None = None,
) -> IndexMap:
    """Elements starts[k], starts[k] + strides[k], ... below limits[k]; strides are positive."""
    steps = strides or [1] * len(in_shape)
    domain = tuple(
        [dm.ceiling_divide(e - s, t) for s, e, t in zip(starts, limits, steps, strict=True)]
    )
    moved = zip(starts, coordinates(domain), steps, strict=True)
    return IndexMap(domain, tuple([s + d * t for s, d, t in moved]))


def dynamic_slice(
    in_shape: Sequence[Dim], starts: Sequence[str | Dim], sizes: Sequence[Dim]
) -> IndexMap:
    """`sizes[k]` elements from a start that is a dim or the name of a run-time symbol.

    Starts are clamped so that the slice lies inside the operand, as XLA does.
    """
    coords: list[Dim] = []
    for k, (n, start, size) in enumerate(zip(in_shape, starts, sizes, strict=True)):
        first = symbol(start, None, None) if isinstance(start, str) else start
        clamped = dm.minimum(dm.maximum(first, 0), n - size)
        coords.append(clamped + coordinate(k, size))
    return IndexMap(tuple(sizes), tuple(coords))


def flip(shape: Sequence[Dim], axes: Sequence[int]) -> IndexMap:
    """The operand with the given axes reversed."""
    coords = [
        n - 1 - d if k in axes and not same(n, 0) else d
        for k, (n, d) in enumerate(zip(shape, coordinates(shape), strict=True))
    ]
    return IndexMap(tuple(shape), tuple(coords))


def pad(
    in_shape: Sequence[Dim],
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
) -> IndexMap:
    """The operand with low[k] and high[k] (may be negative) places around it, interior[k] between.

    The places are where the map is not valid.
    """
    between = interior or [0] * len(in_shape)
    spans = [  # from the first element to the last, inclusive; 0 for an empty axis
        0 if same(n, 0) else (n - 1) * (b + 1) + 1 for n, b in zip(in_shape, between, strict=True)
    ]
    domain = tuple([x + s + y for x, s, y in zip(low, spans, high, strict=True)])
    coords: list[Dim] = []
    valid: Dim = 1
    for k, (d, n) in enumerate(zip(coordinates(domain), in_shape, strict=True)):
        coord, inside = window(d, 0, n, low=low[k], base_dilation=between[k] + 1)
        coords.append(coord)
        valid = logical_and(valid, inside)
    return IndexMap(domain, tuple(coords), valid)


def window(
    place: Dim,
    tap: Dim,
    extent: Dim,
    *,
    stride: int = 1,
    low: Dim = 0,
    dilation: int = 1,
    base_dilation: int = 1,
) -> tuple[Dim, Dim]:
    """(coordinate, valid) that a sliding window reads along one axis of the given extent.

    The window at `place` has its `tap`-th element at place*stride + tap*dilation - low of the
    operand spread out so that its elements are base_dilation apart.
    """
    position = place * stride + tap * dilation - low
    coord = position // base_dilation
    valid = logical_and(less_equal(0, position), less(coord, extent))
    if base_dilation != 1:
        valid = logical_and(valid, dm.equal(position % base_dilation, 0))
    return (coord, valid) if not same(valid, 0) else (0, 0)


def concatenate(shapes: Sequence[Sequence[Dim]], axis: int) -> tuple[IndexMap, ...]:
    """One map per operand, each valid on its own stretch of the axis."""
    total: Dim = 0
    starts: list[Dim] = []
    for shape in shapes:
        starts.append(total)
        total = total + shape[axis]
    domain = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    maps: list[IndexMap] = []
    for shape, start in zip(shapes, starts, strict=True):
        coords = list(coordinates(domain))
        place = coords[axis]
        coords[axis] = place - start
        valid = logical_and(less_equal(start, place), less(place, start + shape[axis]))
        maps.append(IndexMap(domain, tuple(coords), valid))
    return tuple(maps)


# ---- reshape


def reshape(in_shape: Sequence[Dim], out_shape: Sequence[Dim]) -> IndexMap:
    """The operand in row-major order under another shape of the same size.

    Axes are matched in the smallest groups of equal size, so that only axes which really mix are
    divided; within a group the element's number is split in the mixed radix of the operand.
    """
    domain = tuple(out_shape)
    coords: list[Dim] = [0] * len(in_shape)
    if any(same(n, 0) for n in (*in_shape, *out_shape)):
        return IndexMap(domain, tuple(coords))
    sources = [k for k, n in enumerate(in_shape) if not same(n, 1)]
    targets = [k for k, n in enumerate(out_shape) if not same(n, 1)]
    for inner, outer in _matched(in_shape, sources, out_shape, targets):
        number: Dim = 0
        for k in outer:
            number = number * out_shape[k] + coordinate(k, out_shape[k])
        for k in reversed(inner[1:]):
            coords[k] = number % in_shape[k]
            number = number // in_shape[k]
        if inner:
            coords[inner[0]] = number
    return IndexMap(domain, tuple(coords))


def _matched(
    in_shape: Sequence[Dim], sources: list[int], out_shape: Sequence[Dim], targets: list[int]
) -> list[tuple[list[int], list[int]]]:
    """Runs of operand axes and of output axes of equal size, outermost first."""
    groups: list[tuple[list[int], list[int]]] = []
    inner: list[int] = []
    outer: list[int] = []
    left, right = list(sources), list(targets)
    size: Dim = 1  # of inner
    wanted: Dim = 1  # of outer
    while left or right:
        if left and (not right or _takes_operand_axis(size, wanted)):
            inner.append(left.pop(0))
            size = size * in_shape[inner[-1]]
        else:
            outer.append(right.pop(0))
            wanted = wanted * out_shape[outer[-1]]
        if same(size, wanted):
            groups.append((inner, outer))
            inner, outer, size, wanted = [], [], 1, 1
    assert not inner + outer, f"sizes of {tuple(in_shape)} and {tuple(out_shape)} differ"
    return groups


def _takes_operand_axis(size: Dim, wanted: Dim) -> bool:
    """Which side of an unfinished group grows: the operand's while its size may be the smaller."""
    if isinstance(size, Expr) and isinstance(wanted, Expr):
        return same(wanted % size, 0)
    if isinstance(size, int) and isinstance(wanted, int):
        return size <= wanted
    return isinstance(size, int)


def in_bounds(coords: Sequence[Dim], in_shape: Sequence[Dim]) -> bool:
    """Whether every coordinate provably lies inside the shape (masks not considered)."""
    return all(
        same(logical_and(less_equal(0, c), less(c, n)), 1)
        for c, n in zip(coords, in_shape, strict=True)
    )
