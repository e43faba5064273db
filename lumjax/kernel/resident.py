"""Which roots one job computes at a point of the grid, with all that lies between in its scratch.

    residence(roots) -> Residence | None

Rows are walked in tiles: every reduction inside another has them free, and a root either has them
too or sums over them. All other axes are short enough to stay as a whole. Contractions go from
scratch to scratch, what is elementwise or one number per row is a sweep over what lies there;
nothing is computed twice, and no sum waits for a statistic under a provisional one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from lumjax import dtype as dt
from lumjax.kernel.evaluate import factors, literal
from lumjax.kernel.roles import TILED, direct, flat_factors, names, product_of
from lumjax.kernel.term import (
    Axis,
    Lit,
    Load,
    Reduction,
    Root,
    Term,
    children,
    free_names,
    subterms,
)
from lumjax.kernel.unify import unified
from lumjax.record import record
from lumjax.target import Backend, Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr
from lumjax.trace.form import ReduceOp

MOST = 1 << 19  # bytes of a job's scratch
HEIGHT = 64  # rows of a tile
LONGEST = 256  # of the axes that stay as a whole
PAD = 16  # elements: what rows in scratch are a multiple of
FEW_ROWS = 32  # that read in place what would have to be copied for vectors
DOTS = 32  # terms of a sum for which two sides that lie along it are read in place

Names: TypeAlias = frozenset[str]


@record
class Product:
    """A contraction: `left` has the rows `m` of register tiles, `right` their columns `n`."""

    term: Reduction
    left: Term
    right: Term
    m: Axis
    n: Axis
    others: tuple[Axis, ...]
    k: tuple[Axis, ...]
    dots: bool
    roots: tuple[Root, ...] = ()  # stored as its sums are complete


# What a job computes one after the other: contractions, values to be held, roots to be stored.
Step: TypeAlias = Product | Term | Root


@record
class Place:
    """Where a value lies: its axes, and one of the areas of scratch."""

    axes: tuple[Axis, ...]
    area: int


@record
class Residence:
    """A job's work: jobs walk the points of `grid`; there `before` comes once, then `body` for each
    tile of the last of `rows` at each point of the others, then `after`. `carries` sum over rows.
    """

    grid: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    before: tuple[Step, ...]
    body: tuple[Step, ...]
    after: tuple[Root, ...]
    carries: tuple[Reduction, ...]
    places: Mapping[Term, Place]
    areas: tuple[tuple[int, dt.DType], ...]
    copied: int  # elements that a job lays out anew for contractions

    @property
    def roots(self) -> tuple[Root, ...]:
        """All roots, as they are computed."""
        steps = (*self.before, *self.body)
        stored = [r for s in steps if isinstance(s, Product) for r in s.roots]
        return (*stored, *(s for s in steps if isinstance(s, Root)), *self.after)


def residence(
    roots: Sequence[Root], sizes: Mapping[str, Dim] | None = None, most: int = MOST
) -> Residence | None:
    """The job that computes the roots, None where they have no such shape or it takes more than
    `most` bytes of scratch. `sizes` are values of symbols in extents.
    """
    if not most or not all(direct([r.term]) for r in roots):
        return None
    seen = [
        Root(r.buffer, r.axes, t)
        for r, t in zip(roots, unified([r.term for r in roots]), strict=True)
    ]
    for in_place in (False, True):  # copies make it faster, if there is room for them
        found = _Finder(seen, sizes or {}, in_place).residence(most)
        if found is not None:
            return found
    return None


def may_stay(roots: Sequence[Root]) -> bool:
    """Whether there are contractions inside other reductions, of rows that are short enough."""
    for root in roots:
        found = [t for t in subterms(root.term) if isinstance(t, Reduction)]
        for outer in found:
            short = {a.name for a in outer.axes if (length(a, {}) or LONGEST + 1) <= LONGEST}
            if any(
                isinstance(t, Reduction) and short & free_names(t) and factors(t)
                for t in subterms(outer.body)
            ):
                return True
    return False


def most_resident(target: Target | None) -> int:
    """Bytes of scratch that a job on the target may fill; 0: there is no such job."""
    return MOST if target is not None and target.backend is Backend.CPU else 0


def length(axis: Axis, sizes: Mapping[str, Dim]) -> int | None:
    """The axis's extent, None where that is only known at run time."""
    found = dims.substitute(axis.extent, sizes)
    return found if isinstance(found, int) else None


def pitch(place: Place, sizes: Mapping[str, Dim], row: Axis, height: int) -> list[int]:
    """The extents of a value in scratch."""
    found: list[int] = []
    for axis in place.axes:
        whole = length(axis, sizes)
        assert whole is not None, "what stays has a constant size"
        found.append(min(height, whole) if axis == row else whole)
    if len(found) > 1:
        found[-1] = -(-found[-1] // PAD) * PAD
    return found


def steps_along(load: Load, axis: Axis) -> bool:
    """Whether neighbours along an axis lie side by side."""
    *outer, last = [dims.coefficient(c, axis.name) for c in load.coords] or [0]
    beside = all(c is not None and dims.same(c, 0) for c in outer)
    return beside and last is not None and dims.same(last, 1)


def lies(term: Term, axes: Iterable[Axis]) -> bool:
    """Whether a term is read from memory, evenly spaced along these axes."""
    if not isinstance(term, Load) or term.indices or isinstance(term.valid, Expr):
        return False
    return all(dims.coefficient(c, a.name) is not None for c in term.coords for a in axes)


class _Finder:
    def __init__(self, roots: Sequence[Root], sizes: Mapping[str, Dim], in_place: bool) -> None:
        self.sizes, self.in_place = sizes, in_place
        self.roots = list(roots)
        found = dict.fromkeys(t for r in self.roots for t in subterms(r.term))
        self.reductions = [t for t in found if isinstance(t, Reduction)]
        self.axes = {a.name: a for t in self.reductions for a in t.axes}
        self.axes |= {a.name: a for r in self.roots for a in r.axes}
        self.fixed = frozenset(n for n, a in self.axes.items() if dims.same(a.extent, 1))
        self.inner = {
            u for t in self.reductions for u in subterms(t.body) if isinstance(u, Reduction)
        }
        self.grid = frozenset[str]()
        self.rows: tuple[Axis, ...] = ()
        self.layouts: dict[Term, tuple[Axis, ...]] = {}  # of what is held
        self.copied: list[Term] = []

    def free(self, *terms: Term) -> Names:
        found = frozenset[str]().union(*map(free_names, terms))
        return frozenset(found & self.axes.keys()) - self.fixed

    def over(self, root: Root) -> Names:
        return names(root.axes) - self.fixed

    def top(self, root: Root) -> list[Reduction]:
        return direct([root.term])

    # ---- axes

    def residence(self, most: int) -> Residence | None:
        if not any(self.sides(t) for t in self.inner):
            return None
        kept, results = map(self.over, self.roots), map(self.free, self.reductions)
        paired = [self.free(s) for t in self.reductions for s in self.sides(t) or ()]
        self.grid = frozenset.intersection(*kept, *results, *paired)
        if not self.grid or not self._choose_rows():
            return None
        for axis in self.axes.values():
            whole = length(axis, self.sizes)
            if axis.name not in self.grid and (
                whole is None or (axis not in self.rows and whole > LONGEST)
            ):
                return None
        return self._arranged(most)

    def _choose_rows(self) -> bool:
        inside = frozenset.intersection(*map(self.free, self.inner)) - self.grid
        order = [a for a in self.axes.values() if a.name in inside]
        order.sort(key=lambda a: length(a, self.sizes) or 0)
        for rows in (tuple(order), *((a,) for a in reversed(order))):
            if rows and all(self._keeps(r, rows) or self._sums(r, rows) for r in self.roots):
                self.rows = rows
                return True
        return False

    def _keeps(self, root: Root, rows: Sequence[Axis]) -> bool:
        wanted = names(rows)
        return wanted <= self.over(root) and all(wanted <= self.free(t) for t in self.top(root))

    def _sums(self, root: Root, rows: Sequence[Axis]) -> bool:
        wanted = names(rows)
        return not wanted & self.over(root) and all(
            wanted <= names(t.axes) and t not in self.inner for t in self.top(root)
        )

    # ---- contractions

    def sides(self, term: Reduction) -> tuple[Term, Term] | None:
        """Two factors of a sum's body such that each has an axis of its own."""
        if term.op is not ReduceOp.SUM or term.dtype not in TILED:
            return None
        parts = [t for t in flat_factors(term.body) if not _is_one(t)]
        if len(parts) < 2 or any(t.dtype != term.dtype for t in parts):
            return None
        for name in sorted(self.free(term)):
            right = [t for t in parts if name in free_names(t)]
            left = [t for t in parts if name not in free_names(t)]
            if right and left and (self.free(*left) & self.free(term)) - self.free(*right):
                return product_of(left), product_of(right)
        return None

    def product(self, term: Reduction, pair: tuple[Term, Term]) -> Product | None:
        """How the contraction is tiled: such that little is copied, and what is stored lies along
        the columns.
        """
        outside = self.grid | names(self.rows[:-1])
        order = [a for a in self.axes.values() if a.name in self.free(term) - outside]
        roots = [r for r in self.roots if self.top(r) == [term] and self.over(r) == self.free(term)]
        last = roots[0].axes[-1] if roots else None
        best: tuple[tuple[bool, bool, bool, int], Product] | None = None
        for left, right in (pair, pair[::-1]):
            left_only, right_only = (
                [a for a in order if a.name in self.free(s) - self.free(o)]
                for s, o in ((left, right), (right, left))
            )
            for n in right_only if left_only else ():
                m = max(left_only, key=lambda a: (a in self.rows, length(a, self.sizes) or 0))
                others = tuple(a for a in order if a not in (m, n))
                k = self.summed(term, left, right)
                direct_, dots = self._readable(left, right, n, k)
                if direct_ is None:
                    continue
                score = (n == last, n not in self.rows, direct_, length(n, self.sizes) or 0)
                if best is None or score > best[0]:
                    stored = tuple(roots) if names(self.rows) <= self.free(term) else ()
                    best = score, Product(term, left, right, m, n, others, k, dots, stored)
        return None if best is None else best[1]

    def summed(self, term: Reduction, left: Term, right: Term) -> tuple[Axis, ...]:
        """The contracted axes, innermost the one along which most lies; rows are walked outside."""
        axes = [a for a in self.axes.values() if a in term.axes and a not in self.rows[:-1]]
        sides = [t for t in (left, right) if isinstance(t, Load)]
        inner = max(
            axes,
            key=lambda a: (sum(steps_along(t, a) for t in sides), length(a, self.sizes) or 0),
            default=None,
        )
        return (*(a for a in axes if a != inner), *([] if inner is None else [inner]))

    def _readable(
        self, left: Term, right: Term, n: Axis, k: Sequence[Axis]
    ) -> tuple[bool | None, bool]:
        """Whether the right side is read where it lies (None: nor can it be copied), and whether
        both are, along the sum.
        """
        if not k:
            return None, False
        known = self.layouts.get(right)
        if known is not None:
            return (True if known[-1] == n else None), False
        if isinstance(right, Reduction):
            return None, False
        if lies(right, [*k, n]) and isinstance(right, Load):
            if steps_along(right, n):
                return True, False
            along = isinstance(left, Load) and lies(left, k) and steps_along(left, k[-1])
            long = (length(k[-1], self.sizes) or 0) >= DOTS
            few = (length(self.rows[-1], self.sizes) or 0) <= FEW_ROWS
            if along and long and (few or self.in_place) and steps_along(right, k[-1]):
                return True, True
        return False, False

    # ---- what is held

    def hold(self, term: Term, last: Axis | None = None) -> None:
        """Give a value a place in scratch: rows first, then other axes, `last` last."""
        if term in self.layouts:
            return
        outside = self.grid | names(self.rows[:-1])
        row = self.rows[-1]
        mine = [a for a in self.axes.values() if a.name in self.free(term) - outside]
        first = [a for a in mine if a == row != last]
        rest = [a for a in mine if a != last and a not in first]
        if last is None:
            loads = [t for t in subterms(term) if isinstance(t, Load)]
            rest.sort(key=lambda a: sum(steps_along(t, a) for t in loads))
        self.layouts[term] = (*first, *rest, *([] if last is None else [last]))

    def steps(self) -> list[Step] | None:
        """All steps, none in a particular order but that sums come after what they are made of."""
        found: list[Step] = []
        done: set[Root] = set()
        for term in self.reductions:
            pair = self.sides(term)
            made = None if pair is None else self.product(term, pair)
            if made is None:
                if pair is not None and term in self.inner:
                    return None
                found.append(term)
                self.hold(term)
                continue
            for side, last in ((made.right, made.n), (made.left, None)):
                if self.copies(side, made, last):
                    self.hold(side, last)
                    found.append(side)
                    self.copied += [side] if isinstance(side, Load) else []
            found.append(made)
            done.update(made.roots)
            if term in self.inner or any(
                term in self.top(r) for r in self.roots if r not in made.roots
            ):
                self.hold(term, made.n)
        kept = (r for r in self.roots if r not in done and names(self.rows) <= self.over(r))
        return [*found, *kept]

    def copies(self, side: Term, made: Product, last: Axis | None) -> bool:
        """Whether a side of a contraction is to be computed into scratch first."""
        if side in self.layouts or isinstance(side, Reduction):
            return False
        if last is not None:
            return not self._readable(made.left, side, last, made.k)[0]
        return not lies(side, [*made.k, made.m])

    # ---- the order

    def reads(self, step: Step) -> set[Term]:
        """The held values that a step needs."""
        match step:
            case Product(term=term, left=left, right=right, roots=roots):
                found = {t for s in (left, right) for t in self._held(s, True)}
                return found | {t for r in roots for t in self._held(r.term, True)} - {term}
            case Root(term=term):
                return set(self._held(term, True))
            case Reduction(body=body):
                return set(self._held(body, True))
            case _:
                return set(self._held(step, False))

    def _held(self, term: Term, itself: bool) -> Iterator[Term]:
        seen: set[Term] = set()
        stack = [term] if itself else list(children(term))
        while stack:
            t = stack.pop()
            if t in seen:
                continue
            seen.add(t)
            if t in self.layouts or isinstance(t, Reduction):
                yield t
            else:
                stack.extend(children(t))

    def _arranged(self, most: int) -> Residence | None:
        steps = self.steps()
        if steps is None:
            return None
        kept = [r for r in self.roots if names(self.rows) <= self.over(r)]
        after = tuple(r for r in self.roots if r not in kept)
        carries = tuple(dict.fromkeys(t for r in after for t in self.top(r)))
        varying = [s for s in steps if self._varies(s)]
        before = self.ordered([s for s in steps if s not in varying], set())
        if before is None:
            return None
        body = self.ordered(varying, {t for s in before if (t := made_by(s)) is not None})
        if body is None:
            return None
        places, areas = self.placed(before, body, carries)
        if sum(n * d.itemsize for n, d in areas) > most:
            return None
        grid = tuple(a for a in self.roots[0].axes if a.name in self.grid)
        copied = sum(self._points(t) for t in self.copied)
        return Residence(grid, self.rows, before, body, after, carries, places, areas, copied)

    def _points(self, term: Term) -> int:
        total = 1
        for name in self.free(term) - self.grid:
            total *= length(self.axes[name], self.sizes) or 1
        return total

    def _varies(self, step: Step) -> bool:
        """Whether a step belongs to a tile of rows."""
        if isinstance(step, Root):
            return True
        term = step.term if isinstance(step, Product) else step
        mine = self.free(term)
        if isinstance(term, Reduction):
            mine |= names(term.axes)
        return bool(mine & names(self.rows))

    def ordered(self, steps: Sequence[Step], known: set[Term]) -> tuple[Step, ...] | None:
        """Contractions as soon as may be, then all sweeps that are possible, and so on."""
        waiting, done = list(steps), set(known)
        found: list[Step] = []
        while waiting:
            ready = [s for s in waiting if isinstance(s, Product) and self.reads(s) <= done]
            ready = ready or [s for s in waiting if self.reads(s) <= done]
            if not ready:
                return None
            for step in ready:
                waiting.remove(step)
                found.append(step)
                made = made_by(step)
                if made is not None:
                    done.add(made)
        return tuple(found)

    # ---- scratch

    def placed(
        self, before: Sequence[Step], body: Sequence[Step], carries: Sequence[Reduction]
    ) -> tuple[dict[Term, Place], tuple[tuple[int, dt.DType], ...]]:
        """Areas for all that is held. Those of a tile are used again when nothing reads them."""
        places: dict[Term, Place] = {}
        areas: list[tuple[int, dt.DType]] = []
        last = {t: k for k, s in enumerate(body) for t in self.reads(s)}
        lasting = {*carries, *(t for s in before if (t := made_by(s)) is not None)}
        free: list[Place] = []
        for term in carries:
            self.hold(term)
        made = [*carries, *(t for s in before if (t := made_by(s)) is not None)]
        for term in made:
            self._place(term, places, areas, [])
        for k, step in enumerate(body):
            term = made_by(step)
            read = self.reads(step)  # a set, whose order is no order
            over = [t for t in self.layouts if t in read and t not in lasting]
            gone = [places[t] for t in over if last[t] == k]
            sweep = term is not None and not isinstance(step, (Product, Reduction))
            free += gone if sweep else []  # element by element, one may take the other's place
            if term is not None and term in self.layouts and term not in places:
                self._place(term, places, areas, free)
            free += [] if sweep else gone
        return places, tuple(areas)

    def _place(
        self,
        term: Term,
        places: dict[Term, Place],
        areas: list[tuple[int, dt.DType]],
        free: list[Place],
    ) -> None:
        size = 1
        for n in pitch(Place(self.layouts[term], 0), self.sizes, self.rows[-1], HEIGHT):
            size *= n
        wanted = size, dt.accumulation_dtype(term.dtype)
        axes = self.layouts[term]
        taken = next((p for p in free if p.axes == axes and areas[p.area] == wanted), None)
        if taken is None:
            taken = Place(axes, len(areas))
            areas.append(wanted)
        else:
            free.remove(taken)
        places[term] = taken


def _is_one(term: Term) -> bool:
    return isinstance(term, Lit) and term.dtype != dt.bool_ and float(literal(term)) == 1.0


def made_by(step: Step) -> Term | None:
    """The value that a step leaves in scratch."""
    if isinstance(step, Root):
        return None
    return step.term if isinstance(step, Product) else step
