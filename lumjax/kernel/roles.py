"""Which roots can be computed together in ordered loops over tiles, and the roles of their axes.

    fold_roles(roots) -> Roles | Reject | None

One loop over the `stream` axes carries all outer reductions of the roots. What is computed anew for
each tile of rows by stream is a contraction (`inner`); a carry that is a sum of products of such a
tile with values that vary along kept `columns` is accumulated as a contraction itself. A sum that
follows a statistic waits for it only as Running, every other carry waits for none. None: the roots
have no such shape. Reject names a term that keeps them from it and should be stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from lumjax import dtype as dt
from lumjax.kernel.emit import MULTIPLY, Reject
from lumjax.kernel.evaluate import factors
from lumjax.kernel.term import (
    Apply,
    Axis,
    Reduction,
    Root,
    Running,
    Term,
    children,
    free_names,
    loads,
    subterms,
)
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp

TILED = (dt.float16, dt.bfloat16, dt.float32, dt.float64)
UNKNOWN_EXTENT = 1024


@record
class Inner:
    """A contraction computed per tile: `left` varies along the rows, `right` along the stream. In
    loops without rows, a sum of products for each point of the stream.
    """

    term: Reduction
    left: Term
    right: Term


@record
class Carry:
    """A reduction over the stream: one number per row, or, where it has `columns`, the contraction
    of `weights` (rows by stream) with `values` (stream by columns).
    """

    term: Reduction
    weights: Term | None = None
    values: Term | None = None
    columns: tuple[Axis, ...] = ()


@record
class Roles:
    """The loops of a group.

    Jobs walk the points of `grid` and tiles of `rows`, which is not part of it (None: each point of
    the grid is a row that shares nothing with others). `along` is the axis of `stream` that is
    walked in tiles. `carries` are in an order in which each waits for the running values of earlier
    ones only; `late` roots vary along the stream and are computed in a second loop.
    """

    grid: tuple[Axis, ...]
    rows: Axis | None
    stream: frozenset[Axis]
    along: Axis
    inner: tuple[Inner, ...]
    carries: tuple[Carry, ...]
    late: tuple[Root, ...] = ()

    @property
    def columns(self) -> tuple[Axis, ...]:
        """The kept axes of all accumulated contractions."""
        return tuple(dict.fromkeys(a for c in self.carries for a in c.columns))


def fold_roles(
    roots: Sequence[Root], sizes: Mapping[str, Dim] | None = None
) -> Roles | Reject | None:
    """The roles of the roots' axes, the term to store first, or None where no loop over tiles is
    called for. Cheap; works on any terms over named axes. `sizes` are values of symbols in extents.
    """
    try:
        return _Assignment(roots, sizes or {}).roles()
    except _RefusedError as refused:
        return Reject(*refused.args)


class _RefusedError(Exception):
    """A term that should be stored, and why."""


Names: TypeAlias = frozenset[str]


def visible(terms: Iterable[Term], stream: frozenset[Axis] = frozenset()) -> list[Term]:
    """The distinct subterms, children first. Reductions, and statistics running over `stream`, are
    leaves.
    """
    order: list[Term] = []
    seen: set[Term] = set()
    stack = [(t, False) for t in reversed(list(terms))]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            leaf = isinstance(node, Reduction) or (
                isinstance(node, Running) and node.axes == stream
            )
            below = () if leaf else children(node)
            if below:
                stack.append((node, True))
                stack.extend([(c, False) for c in reversed(below)])
            else:
                order.append(node)
    return order


def direct(terms: Iterable[Term], stream: frozenset[Axis] = frozenset()) -> list[Reduction]:
    """The reductions that the terms mention outside any other reduction."""
    return [t for t in visible(terms, stream) if isinstance(t, Reduction)]


def sides(term: Reduction) -> tuple[Term, Term] | None:
    """The two sides of a contraction that register tiles can compute."""
    pair = factors(term)
    if pair is None or term.dtype not in TILED or any(t.dtype != term.dtype for t in pair):
        return None
    return pair


def statistic(term: Reduction) -> Reduction | None:
    """The maximum that a scaled sum's statistic is computed from."""
    if term.scale is None:
        return None
    found = [
        t
        for t in direct([term.scale.statistic])
        if t.axes == term.axes and t.op is ReduceOp.MAX and t.scale is None
    ]
    return found[0] if len(found) == 1 else None


def average(term: Reduction) -> Reduction | None:
    """The sum that a moving sum's statistic is computed from."""
    if term.shift is None:
        return None
    found = [t for t in direct([term.shift.statistic]) if t.axes == term.axes]
    plain = [t for t in found if t.op is ReduceOp.SUM and t.scale is None and t.shift is None]
    return plain[0] if len(found) == len(plain) == 1 else None


def names(axes: Iterable[Axis]) -> Names:
    """The axes' names."""
    return frozenset(a.name for a in axes)


class _Assignment:
    def __init__(self, roots: Sequence[Root], sizes: Mapping[str, Dim]) -> None:
        self.roots = roots
        self.sizes = sizes
        self.axes = {a.name: a for r in roots for a in r.axes}
        for root in roots:
            for t in subterms(root.term):
                if isinstance(t, Reduction):
                    self.axes |= {a.name: a for a in t.axes}
        self.alone: list[Reduction] = []  # sums of products inside whose rows share nothing
        self.fixed = frozenset(n for n, a in self.axes.items() if dims.same(a.extent, 1))

    # ---- shapes

    def extent(self, axis: Axis) -> int:
        """The axis's extent, guessed where that is only known at run time."""
        found = dims.substitute(axis.extent, self.sizes)
        return found if isinstance(found, int) else UNKNOWN_EXTENT

    def free(self, *terms: Term) -> Names:
        """The free axes of the terms that have more than one point."""
        found = frozenset[str]().union(*map(free_names, terms))
        return (found & self.axes.keys()) - self.fixed

    def tile(self, term: Reduction, stream: Names) -> tuple[Term, Term] | None:
        """The sides of a contraction that has free axes on both and varies along the stream on one
        only, the other side first.
        """
        pair = sides(term)
        if pair is None:
            return None
        first, second = (self.free(t) - names(term.axes) for t in pair)
        if not first - second or not second - first:
            return None
        if second & stream and not first & stream:
            return pair
        return (pair[1], pair[0]) if first & stream and not second & stream else None

    def products(self, term: Reduction, stream: Names) -> tuple[Term, Term] | None:
        """The sides of a sum of products that varies along the stream on one only, the other first:
        no rows share what is read along the stream.
        """
        pair = sides(term)
        if pair is None:
            return None
        first, second = (bool(self.free(t) & stream) for t in pair)
        if first == second:
            return None
        return pair if second else (pair[1], pair[0])

    def shared(self, grid: Names, products: Sequence[tuple[Term, Term]]) -> bool:
        """Whether points of the grid share the right side of some product."""
        return any((self.free(left) & grid) - self.free(right) for left, right in products)

    def contracts(self, term: Reduction) -> bool:
        """Whether a reduction's body contracts anew for each tile of its axes."""
        stream = names(term.axes)
        inside = [t for t in direct([term.body], term.axes) if self.free(t) & stream]
        return any(self.tile(t, stream) is not None or self.contracts(t) for t in inside)

    def stream(self) -> frozenset[Axis] | None:
        """The axes of the outer reductions, some of which are scaled or contract inside; None where
        there are none such, or the roots do not agree.
        """
        outer = [direct([r.term]) for r in self.roots]
        shaped = [[t for t in mine if t.scale or t.shift or self.contracts(t)] for mine in outer]
        found = next((mine[0].axes for mine in shaped if mine), None)
        for all_, mine in zip(outer, shaped, strict=True):
            if not (mine or all_) or (mine or all_)[0].axes != found:
                return None
            for t in mine:
                if t.axes != found:
                    raise _RefusedError(t, "it is a loop over other axes")
        return found

    # ---- the assignment

    def roles(self) -> Roles | None:
        """The roles, None, or _RefusedError."""
        stream = self.stream()
        if stream is None:
            return None
        found = self.assigned(stream)
        if found is None and self.alone:
            raise _RefusedError(self.alone[0], "it is not a contraction")
        return found

    def assigned(self, stream: frozenset[Axis]) -> Roles | None:
        """The roles in a loop over these axes."""
        late = tuple(r for r in self.roots if names(r.axes) & names(stream))
        if any(not names(r.axes) >= names(stream) for r in late):
            return None
        carries = self.outer(stream, late)
        inner = self.inner(stream, carries, late)
        grid = self.grid([*carries, *(i.term for i in inner)])
        split = {t: self.split(t, grid) for t in carries if self.free(t) - grid}
        if any(parts is None for parts in split.values()):
            return None
        products = [p for p in split.values() if p is not None]
        rows = self.rows(grid, inner, products)
        if rows is None and self.shared(grid, [*((i.left, i.right) for i in inner), *products]):
            return None
        along = self.along(stream, inner)
        if any(t.shift for t in carries) and (inner or split or not self.lies(along, carries)):
            return None
        found = tuple(self.carry(t, split.get(t), grid) for t in carries)
        kept = grid | names(stream)
        if any(not names(r.axes) - self.fixed <= kept for r in late) or any(
            t in split for r in late for t in direct([r.term])
        ):
            return None
        batch = grid if rows is None else grid - {rows.name}
        axes = tuple(a for a in self.roots[0].axes if a.name in batch)
        return Roles(axes, rows, stream, along, inner, found, late)

    def outer(self, stream: frozenset[Axis], late: Sequence[Root]) -> list[Reduction]:
        """All carries: the outer reductions, after the maxima of their statistics."""
        found: dict[Reduction, None] = {}
        top = direct(r.term for r in self.roots if r not in late)
        top += [t for t in direct(r.term for r in late) if t.axes == stream and t not in top]
        for t in top:
            if t.axes != stream:
                raise _RefusedError(t, "it does not go over the axes of the loop")
        for t in top:
            maximum = statistic(t)
            if t.scale is not None and maximum is None:
                raise _RefusedError(t, "its statistic is not made of one maximum")
            if maximum is not None:
                found.setdefault(maximum)
            if t.shift is not None:
                base = average(t)
                if base is None:
                    raise _RefusedError(t, "its statistic is not made of one sum")
                found.setdefault(base)
        found.update(dict.fromkeys(top))
        return list(found)

    def grid(self, results: Sequence[Reduction]) -> Names:
        """The axes that every root and every reduction's result has free."""
        found = frozenset.intersection(*(names(r.axes) for r in self.roots)) - self.fixed
        for t in results:
            found &= self.free(t)
        return found

    def inner(
        self, stream: frozenset[Axis], carries: Sequence[Reduction], late: Sequence[Root]
    ) -> tuple[Inner, ...]:
        """The contractions per tile. Refuses what would have to be known before the loop."""
        found: dict[Reduction, Inner] = {}
        for carry in carries:
            slopes = [] if carry.shift is None else [carry.shift.slope]
            for t in visible([carry.body, *slopes], stream):
                if isinstance(t, Running) and t.axes == stream:
                    self.waits(carry, t)
                elif isinstance(t, Reduction):
                    if t in carries:
                        raise _RefusedError(t, "its final value is needed inside the loop")
                    found.setdefault(t, self.made(t, stream))
        for root in late:
            for t in direct([root.term]):
                if t not in carries:
                    found.setdefault(t, self.made(t, stream))
        return tuple(found.values())

    def waits(self, carry: Reduction, running: Running) -> None:
        """Refuse a running statistic that the carry does not follow."""
        known = carry.scale or carry.shift
        if known is None or running.of is not known.statistic:
            wanted = next(iter(direct([running.of])), carry)
            raise _RefusedError(wanted, "its final value is needed inside the loop")

    def made(self, term: Reduction, stream: frozenset[Axis]) -> Inner:
        """A reduction inside the loop as a contraction per tile."""
        if not self.free(term) & names(stream):
            raise _RefusedError(term, "it is the same for all tiles of the loop")
        if names(term.axes) & names(stream):
            raise _RefusedError(term, "it sums over an axis of the loop around it")
        pair = self.tile(term, names(stream))
        if pair is None:
            pair = self.products(term, names(stream))
            self.alone.append(term)
        if pair is None or direct(pair):
            raise _RefusedError(term, "it is not a contraction of stored or pointwise operands")
        return Inner(term, *pair)

    def split(self, term: Reduction, grid: Names) -> tuple[Term, Term] | None:
        """Weights and values of a carry with columns; None if it is no such product."""
        columns = self.free(term) - grid
        if term.op is not ReduceOp.SUM or term.dtype not in TILED:
            return None
        pair = factors(term)
        parts = [] if pair is None else list(pair)
        if len({bool(self.free(t) & columns) for t in parts}) != 2:
            parts = list(flat_factors(term.body))
        weights = [t for t in parts if not self.free(t) & columns]
        values = [t for t in parts if t not in weights]
        if not values or not weights or any(t.dtype != term.dtype for t in parts):
            return None
        right = product_of(values)
        if any(isinstance(t, Reduction | Running) for t in visible([right], term.axes)):
            return None
        return product_of(weights), right

    def rows(
        self, grid: Names, inner: Sequence[Inner], split: Sequence[tuple[Term, Term]]
    ) -> Axis | None:
        """The axis of the grid along which the tiles' left sides vary and their right do not."""
        found = grid
        for i in inner:
            found = (found & self.free(i.left)) - self.free(i.right)
        for weights, values in split:
            found = (found & self.free(weights)) - self.free(values)
        candidates = [a for a in self.roots[0].axes if a.name in found]
        return max(reversed(candidates), key=self.extent, default=None)

    def along(self, stream: frozenset[Axis], inner: Sequence[Inner]) -> Axis:
        """The axis of the stream that is walked in tiles: the longest of those that serve."""
        return max(
            sorted(stream, key=lambda a: (len(a.name), a.name), reverse=True),
            key=lambda a: (all(a.name in self.free(i.right) for i in inner), self.extent(a)),
        )

    def lies(self, along: Axis, carries: Sequence[Reduction]) -> bool:
        """Whether what is read along an axis lies side by side."""
        read = {t for c in carries for t in loads(c.body) if along.name in free_names(t)}
        steps = [dims.coefficient(t.coords[-1], along.name) for t in read]
        return all(s is not None and dims.same(s, 1) for s in steps)

    def carry(self, term: Reduction, split: tuple[Term, Term] | None, grid: Names) -> Carry:
        """The carry with its columns in the order of the roots."""
        if split is None:
            return Carry(term)
        kept = self.free(term) - grid
        order = {a.name: a for r in self.roots for a in r.axes} | self.axes
        return Carry(term, *split, tuple(a for n, a in order.items() if n in kept))


def flat_factors(term: Term) -> Iterator[Term]:
    """The factors of a product of products."""
    stack = [term]
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.op.name == "mul" and node.dtype == term.dtype:
            stack.extend(reversed(node.args))
        else:
            yield node


def product_of(parts: Sequence[Term]) -> Term:
    """The product of some factors."""
    result = parts[0]
    for part in parts[1:]:
        result = Apply(MULTIPLY, (result, part), part.dtype)
    return result
