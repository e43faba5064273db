"""Which roots are computed for one block of rows after the other, with all that lies between stored
for a block alone.

    blocked(roots) -> Blocks | None

Contractions that others wait for (`tiles`) are stored for the block, then one number for each row,
then what later contractions multiply (`sides`). A root either has the rows, and each block stores
its own, or is made from sums over all rows, to which each block adds. Nothing is computed twice,
and no more is held than a block's share of what the program as traced would store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from lumjax import dtype as dt
from lumjax.kernel.roles import direct, flat_factors, names, product_of
from lumjax.kernel.term import Axis, Reduction, Root, Term, children, free_names, subterms
from lumjax.kernel.unify import unified
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp

FEWEST = 4  # blocks
MOST = 64
HEIGHT = 256  # rows of a block
LARGE = 1 << 22  # elements of a contraction's result that is worth blocks
WIDE = 1 << 10  # columns: shorter rows stay in the caches
NARROW = 16  # elements of rows that may be joined with others

KINDS = (dt.float32, dt.float64)
Names: TypeAlias = frozenset[str]
Pair: TypeAlias = tuple[Term, Term]


@record
class Blocks:
    """What is computed for each block of `rows`, in this order; then what is made `after` all. The
    terms are unified: see unify.py. `pairs` are the sides of contractions; `over` is a tile that
    nothing but the only side reads, which takes its place.
    """

    rows: Axis
    tiles: tuple[Reduction, ...]
    numbers: tuple[Reduction, ...]
    sides: tuple[Term, ...]
    kept: tuple[Root, ...]
    sums: tuple[Reduction, ...]
    after: tuple[Root, ...]
    pairs: Mapping[Reduction, Pair]
    over: Reduction | None

    @property
    def held(self) -> tuple[Term, ...]:
        """What a block stores for itself, but for one number a row."""
        return (*(t for t in self.tiles if t is not self.over), *self.sides)

    @property
    def roots(self) -> tuple[Root, ...]:
        """All roots, as they are computed."""
        return (*self.kept, *self.after)


def may_block(roots: Sequence[Root]) -> bool:
    """Whether some reduction over wide rows takes a large contraction's result, and some
    contraction what is made of it.
    """
    axes = {a.name: a for r in roots for a in r.axes}
    found = dict.fromkeys(t for r in roots for t in subterms(r.term) if isinstance(t, Reduction))
    axes |= {a.name: a for t in found for a in t.axes}
    inner = {u for t in found for u in subterms(t.body) if isinstance(u, Reduction)}
    tiles = [t for t in inner if _large(t, axes) and pair(t, axes)]
    return any(pair(t, axes) and any(u in tiles for u in subterms(t.body)) for t in found)


def blocked(roots: Sequence[Root], sizes: Mapping[str, Dim] | None = None) -> Blocks | None:
    """The blocks that compute the roots; None where they have no such shape. `sizes` are values of
    symbols in extents.
    """
    return _Finder(roots, sizes or {}).blocks()


def rounds(rows: int) -> int:
    """How many blocks so many rows have."""
    return max(1, min(rows, MOST, max(FEWEST, -(-rows // HEIGHT))))


def pair(term: Reduction, axes: Iterable[str]) -> Pair | None:
    """The sides of a sum of products such that each has an axis of its own."""
    if term.op is not ReduceOp.SUM:
        return None
    parts = list(flat_factors(term.body))
    if len(parts) < 2 or any(t.dtype != term.dtype for t in parts):
        return None
    free = free_names(term).intersection(axes)
    for name in sorted(free):
        right = [t for t in parts if name in free_names(t)]
        left = [t for t in parts if name not in free_names(t)]
        if not right or not left or not (_free(left) & free) - _free(right):
            continue
        if any(map(computed, left)) != any(map(computed, right)):
            made, given = (left, right) if any(map(computed, left)) else (right, left)
            given = [t for t in given if not _free([t]).intersection(axes) <= _free(made)]
            left, right = given, [t for t in parts if t not in given]
        return product_of(left), product_of(right)
    return None


def _free(terms: Iterable[Term]) -> Names:
    return frozenset[str]().union(*map(free_names, terms))


def _large(term: Reduction, axes: Mapping[str, Axis]) -> bool:
    free = [axes[n].extent for n in free_names(term) if n in axes]
    known = [n for n in free if isinstance(n, int)]
    points = 1
    for n in known:
        points *= n
    return len(known) == len(free) and points >= LARGE and max(known, default=0) >= WIDE


def computed(term: Term) -> bool:
    """Whether a term is made from reductions."""
    return any(isinstance(t, Reduction) for t in subterms(term))


class _Finder:
    def __init__(self, roots: Sequence[Root], sizes: Mapping[str, Dim]) -> None:
        self.sizes = sizes
        terms = unified([r.term for r in roots])
        self.roots = [Root(r.buffer, r.axes, t) for r, t in zip(roots, terms, strict=True)]
        found = dict.fromkeys(t for r in self.roots for t in subterms(r.term))
        self.reductions = [t for t in found if isinstance(t, Reduction)]
        self.inner = {
            u for t in self.reductions for u in subterms(t.body) if isinstance(u, Reduction)
        }
        self.axes = {a.name: a for r in self.roots for a in r.axes}
        self.axes |= {a.name: a for t in self.reductions for a in t.axes}
        self.pairs = {t: p for t in self.reductions if (p := pair(t, self.axes)) is not None}

    def length(self, name: str) -> int | None:
        found = dims.substitute(self.axes[name].extent, self.sizes)
        return found if isinstance(found, int) else None

    def free(self, term: Term) -> Names:
        return frozenset(free_names(term) & self.axes.keys())

    def blocks(self) -> Blocks | None:
        tiles = [t for t in self.reductions if t in self.inner and t in self.pairs]
        if not tiles or any(computed(t.body) for t in tiles):
            return None
        if any(t.dtype not in KINDS for t in self.reductions):
            return None
        inside = frozenset.intersection(*map(self.free, self.inner))
        kept = frozenset.intersection(inside, *(names(r.axes) for r in self.roots))
        if kept or not inside:  # a batch: its points are blocks already
            return None
        numbers = [t for t in self.reductions if self.free(t) == inside]
        if any(t not in tiles and t not in numbers for t in self.inner):
            return None
        order = [n for n in self.axes if n in inside]
        long = [n for n in order if (self.length(n) or 0) >= FEWEST]
        rows = self.axes[(long or order)[0]]
        return self.arranged(rows, inside, tiles, numbers)

    def arranged(
        self, rows: Axis, inside: Names, tiles: Sequence[Reduction], numbers: Sequence[Reduction]
    ) -> Blocks | None:
        kept = [r for r in self.roots if rows in r.axes]
        after = [r for r in self.roots if rows not in r.axes]
        done = {*tiles, *numbers}
        products = [t for r in kept for t in direct([r.term]) if t not in done]
        sums = list(dict.fromkeys(t for r in after for t in direct([r.term])))
        if any(not self.keeps(r, rows, tiles) for r in kept):
            return None
        if any(t in done or not self.across(t, inside) for t in sums):
            return None
        if any(inside & self.free(r.term) for r in after):
            return None
        later = [
            s for t in products for s in self.pairs.get(t, ()) if computed(s) and s not in done
        ]
        later += [s for t in sums for s in self.pairs.get(t, ()) if computed(s)]
        if not later:
            return None  # loops over tiles store nothing
        return Blocks(
            rows,
            tuple(tiles),
            tuple(numbers),
            tuple(dict.fromkeys(later)),
            tuple(kept),
            tuple(sums),
            tuple(after),
            self.pairs,
            self.over(tiles, numbers, list(dict.fromkeys(later))),
        )

    def over(
        self, tiles: Sequence[Reduction], numbers: Sequence[Reduction], sides: Sequence[Term]
    ) -> Reduction | None:
        """A tile that is read by the only side alone, once the numbers are known."""
        stack: list[Term] = [r.term for r in self.roots]
        seen: set[Term] = {*sides, *numbers}
        while stack:
            t = stack.pop()
            if t not in seen:
                seen.add(t)
                both = self.pairs.get(t) if isinstance(t, Reduction) else None
                stack.extend(children(t) if both is None else both)
        alike = [t for t in tiles if t not in seen and len(sides) == 1]
        alike = [t for t in alike if self.free(t) == self.free(sides[0])]
        return next((t for t in alike if t.dtype == sides[0].dtype), None)

    def keeps(self, root: Root, rows: Axis, tiles: Sequence[Reduction]) -> bool:
        """Whether a block stores its own rows of a root."""
        found = direct([root.term])
        short = (self.length(root.axes[-1].name) or 0) < NARROW
        if len(root.axes) > 2 and short and root.axes[-1] != rows:
            return False
        return (
            bool(found)
            and all(rows.name in self.free(t) for t in found)
            and not (set(found) & set(tiles))
        )

    def across(self, term: Reduction, inside: Names) -> bool:
        """Whether each block adds its share to a sum."""
        mine = {a.name for a in term.axes}
        return term.op is ReduceOp.SUM and inside <= mine and computed(term.body)
