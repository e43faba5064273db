"""What a kernel does, counted: operations, special functions, products, irregular reads, tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lumjax.egraph.walks import beside, together, walk
from lumjax.kernel.fold import ENOUGH_JOBS, FEW_JOBS
from lumjax.kernel.fold_shape import FEW_ROWS, LONE_ROWS
from lumjax.kernel.grouped import FEWEST
from lumjax.kernel.region import volume
from lumjax.kernel.roles import Roles
from lumjax.kernel.row import SHORT
from lumjax.kernel.skip import decide
from lumjax.kernel.term import (
    Apply,
    Axis,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    children,
    free_names,
)
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr, IndexOp, estimate, same
from lumjax.trace.form import ReduceOp

DEAR = 8.0  # operations from which on a scalar operation is a special function
LANES = 8  # columns that a contraction computes side by side: fewer waste some
KEPT = 16.0  # operations from which on a row program keeps a term for its later passes
_INDEX_OPERATIONS = 2.0  # for a division or a comparison in an index expression
_LINEAR = (IndexOp.SYMBOL, IndexOp.ADD, IndexOp.MUL)
_SAMPLES = 8  # tiles each way that are looked at to see how many a mask leaves idle


@record
class Features:
    """Counts of one kernel. `products` are multiply-adds in register tiles, `tiled` those into the
    tiles of a loop, of which there are `steps`; `finished` are contractions' results; `gathered`
    elements have neighbours at a constant distance, `irregular` ones need a division to be found;
    `staged` elements are copied for a contraction; `entries` are beginnings of innermost loops.
    """

    operations: float = 0.0
    special: float = 0.0
    gathered: float = 0.0
    irregular: float = 0.0
    staged: float = 0.0
    products: float = 0.0
    finished: float = 0.0
    entries: float = 0.0
    tiled: float = 0.0
    steps: float = 0.0
    jobs: int = 1 << 30


def extent_of(names: Iterable[str], axes: Mapping[str, Axis]) -> int:
    """The number of points over these axes; names that are no axes (sizes) do not count."""
    total = 1
    for name in names:
        if name in axes:
            total *= estimate(axes[name].extent)
    return total


def factors(term: Term) -> tuple[Term, Term] | None:
    """The operands of a contraction (a sum of products, free axes on both sides), else None."""
    if not isinstance(term, Reduction) or term.op is not ReduceOp.SUM:
        return None
    body = term.body
    if not isinstance(body, Apply) or body.op.name != "mul":
        return None
    x, y = body.args
    bound = {a.name for a in term.axes}
    left, right = free_names(x), free_names(y)
    if not (left & right & bound) or not (left - right - bound) or not (right - left - bound):
        return None
    return x, y


def term_flops(term: Term) -> float:
    """Operations for one value of the term, given its direct subterms."""
    match term:
        case Apply(op=op):
            return op.flops
        case Reduction():
            return 1.0
        case Load(coords=coords, valid=valid):
            return 0.5 + _index_work(*coords, valid)
        case Index(expr=expr):
            return 0.5 + _index_work(expr)
        case Lit() | Running():
            return 0.0


def _index_work(*exprs: Dim) -> float:
    """Operations for divisions and comparisons in index expressions."""
    return sum(_parts(e) for e in exprs if isinstance(e, Expr))


@lru_cache(maxsize=4096)
def _parts(expr: Expr) -> float:
    own = 0.0 if expr.op in _LINEAR else _INDEX_OPERATIONS
    return own + sum(_parts(a) for a in expr.args if isinstance(a, Expr))


def counted(
    terms: Iterable[Term],
    axes: Mapping[str, Axis],
    roots: Sequence[Root] = (),
    roles: Roles | None = None,
) -> Features:
    """The features of a kernel that computes these terms, each once over its own axes. Without
    `roots` nothing is known of how memory is walked.
    """
    return _Count(list(terms), axes, roots, roles).features()


class _Count:
    def __init__(
        self,
        terms: Sequence[Term],
        axes: Mapping[str, Axis],
        roots: Sequence[Root],
        roles: Roles | None,
    ) -> None:
        self.terms, self.axes, self.roots, self.roles = terms, axes, roots, roles
        self.sums = {
            t: pair
            for t in terms
            if isinstance(t, Reduction) and (pair := self._pair(t)) is not None
        }
        self.again = _late(roles)
        self.reads = [t for s in self.sums for t in _inside(s.body) if isinstance(t, Load)]

    def _pair(self, term: Reduction) -> tuple[Term, Term] | None:
        if self.roles is not None:
            for carry in self.roles.carries:
                if carry.term is term and carry.weights is not None and carry.values is not None:
                    return carry.weights, carry.values
        return factors(term)

    def points(self, term: Term) -> int:
        """How often a term is computed."""
        names = self._walked(free_names(term))
        if isinstance(term, Reduction):
            names = names | {a.name for a in term.axes}
        if isinstance(term, Load) and self.sums and spread([term], self.reads, self.axes):
            return most_read([term], extent_of(names, self.axes))
        return extent_of(names, self.axes) * (1 + (term in self.again))

    def _walked(self, names: frozenset[str]) -> frozenset[str]:
        """These axes, with those of the loops around: what varies along the innermost axis of the
        stream is computed at each of its points.
        """
        if self.roles is None or self.roles.along.name not in names:
            return names
        return names | {a.name for a in self.roles.stream}

    def features(self) -> Features:
        """All of it."""
        if self.roots and not self.sums and self.roles is None:
            return _Rows(self.terms, self.axes, self.roots).features()
        bodies = {t.body for t in self.sums}
        operations = special = 0.0
        for term in self.terms:
            if term in bodies or term in self.sums:
                continue
            flops = term_flops(term)
            if isinstance(term, Apply) and flops >= DEAR:
                special += flops * self.points(term)
            else:
                operations += flops * self.points(term)
        products = sum(self._products(t) for t in self.sums)
        live = _live(self.roles)
        if self.roles is not None:
            jobs, steps = _tiles(self.roles)
            return Features(
                operations * live,
                special * live,
                staged=self._streamed(self.roles) * live,
                tiled=products * live / _filled(self.roles),
                steps=jobs * steps * live,
                jobs=jobs,
            )
        gathered, irregular, staged = self._operands() if self.roots else (0.0, 0.0, 0.0)
        finished = float(sum(extent_of(free_names(t), self.axes) for t in self.sums))
        return Features(operations, special, gathered, irregular, staged, products, finished)

    def _products(self, term: Reduction) -> float:
        """Multiply-adds, with those of missing columns."""
        count = float(self.points(term))
        if not self.roots or self.roles is not None:
            return count
        columns = _columns(self.roots, term, self.axes)
        return count * (-(-columns // LANES) * LANES / columns)

    # ---- how memory is walked

    def _streamed(self, roles: Roles) -> float:
        """Elements of operands along the stream that are copied for every tile of rows, but for
        those that lie as they are needed: what copying these costs is part of a product's price.
        """
        if roles.rows is None or estimate(roles.rows.extent) <= FEW_ROWS:
            return 0.0
        stream = {a.name for a in roles.stream}
        rows = roles.rows.name
        sides = dict.fromkeys(side for pair in self.sums.values() for side in pair)
        copied = [t for t in sides if free_names(t) & stream and rows not in free_names(t)]
        count = sum(
            extent_of(self._walked(free_names(t)), self.axes) for t in copied if not _lies(t)
        )
        return float(count * _row_tiles(roles))

    def _operands(self) -> tuple[float, float, float]:
        gathered = irregular = staged = 0.0
        for term, (x, y) in self.sums.items():
            right, left, column = oriented(self.roots, term, x, y, self.axes)
            loads = [t for t in _inside(right) if isinstance(t, Load)]
            kinds = [walk(t, column) for t in loads]
            plain = isinstance(right, Load) and not isinstance(right.valid, Expr)
            if dot_products(left, right, term):
                continue
            if not plain or any(kinds):
                count = extent_of(free_names(right), self.axes)
                if max(kinds, default=0) < 2 or spread(loads, self.reads, self.axes):
                    count = min(count, most_read(loads, count))
                    gathered += count * any(kinds)
                else:
                    irregular += count
                staged += count
            if not isinstance(left, Load) or isinstance(left.valid, Expr):
                staged += self._left(left)
            elif _transposed(left, term):
                gathered += extent_of(free_names(left), self.axes)
        return gathered, irregular, staged

    def _left(self, left: Term) -> int:
        """Elements of a left side that are copied: what windows read once, other terms as often as
        they are used.
        """
        count = extent_of(free_names(left), self.axes)
        loads = [t for t in _inside(left) if isinstance(t, Load)]
        if windows(left) or spread(loads, self.reads, self.axes):
            return min(count, most_read(loads, count))
        return count


def most_read(loads: Sequence[Load], count: int) -> int:
    """The elements of the largest buffer that is read; `count` where none is."""
    return max(1, max((volume(t.buffer.shape) for t in loads), default=count))


def windows(term: Term) -> bool:
    """Whether a coordinate of a load moves along several axes."""
    return any(
        len(dims.symbols(c)) > 1
        for t in _inside(term)
        if isinstance(t, Load)
        for c in t.coords
        if isinstance(c, Expr)
    )


def spread(loads: Sequence[Load], every: Sequence[Load], axes: Mapping[str, Axis]) -> bool:
    """Whether quotients and remainders of single axes are all that keeps loads from being affine,
    and a contraction that reads `every` one of these goes by the remainders (kernel/residue.py):
    what is left is windows.
    """
    nodes = [n for t in loads for n in _divisions(t)]
    if not nodes or any(t.indices for t in every) or not all(_cut(n, axes) for n in nodes):
        return False
    return any(n.op is IndexOp.MOD and _cut(n, axes) for t in every for n in _divisions(t))


def _divisions(load: Load) -> list[Expr]:
    return [n for c in load.coords if isinstance(c, Expr) for n in _divided(c)]


@lru_cache(maxsize=4096)
def _divided(expr: Expr) -> tuple[Expr, ...]:
    below = tuple(n for a in expr.args if isinstance(a, Expr) for n in _divided(a))
    return (expr, *below) if expr.op in (IndexOp.MOD, IndexOp.FLOORDIV) else below


def _cut(node: Expr, axes: Mapping[str, Axis]) -> bool:
    inside, divisor = node.args
    names = dims.symbols(inside)
    if len(names) != 1 or not isinstance(divisor, int) or not names <= axes.keys():
        return False
    (name,) = names
    return estimate(axes[name].extent) >= divisor


def _lies(term: Term) -> bool:
    """Whether a term is read from memory, each of its axes along one of the buffer's."""
    if not isinstance(term, Load) or isinstance(term.valid, Expr) or term.indices:
        return False
    moving = [c for c in term.coords if isinstance(c, Expr)]
    return all(c.op is IndexOp.SYMBOL for c in moving)


def dot_products(left: Term, right: Term, term: Reduction) -> bool:
    """Whether both sides of a contraction lie along the sum: then neither is copied."""
    return any(_runs(left, a) and _runs(right, a) for a in term.axes)


def _runs(side: Term, axis: Axis) -> bool:
    """Whether a side is read from memory whose rows run along an axis long enough for vectors."""
    if not isinstance(side, Load) or isinstance(side.valid, Expr) or side.indices:
        return False
    inside = axis.name in dims.symbols(*side.coords) and walk(side, axis.name) == 0
    return inside and estimate(axis.extent) >= 2 * LANES


def _transposed(left: Load, term: Reduction) -> bool:
    """Whether no summed axis runs along the memory of a left side, but a free one does."""
    last = dims.symbols(left.coords[-1]) if left.coords else frozenset[str]()
    return bool(last) and not last & {a.name for a in term.axes}


def oriented(
    roots: Sequence[Root], term: Reduction, x: Term, y: Term, axes: Mapping[str, Axis]
) -> tuple[Term, Term, str]:
    """The operand that has the columns, the other one, and the columns' axis."""
    column = _column(roots, term, axes)
    return (x, y, column) if column in free_names(x) else (y, x, column)


def _column(roots: Sequence[Root], term: Reduction, axes: Mapping[str, Axis]) -> str:
    """The last axis of the result; a longer one where that is short and the sum is long."""
    free = [a for a in roots[0].axes if a.name in free_names(term) and not same(a.extent, 1)]
    if not free:
        return ""
    last = free[-1]
    if estimate(last.extent) < LANES and extent_of([a.name for a in term.axes], axes) >= 256:
        last = max(free, key=lambda a: min(LANES, estimate(a.extent)))
    return last.name


def _columns(roots: Sequence[Root], term: Reduction, axes: Mapping[str, Axis]) -> int:
    return max(1, extent_of([_column(roots, term, axes)], axes))


def _inside(term: Term) -> list[Term]:
    found: dict[Term, None] = {}
    stack = [term]
    while stack:
        t = stack.pop()
        if t not in found:
            found[t] = None
            stack.extend(children(t))
    return list(found)


class _Rows:
    """Kernels without contractions: passes over rows, or one pass where nothing is reduced."""

    def __init__(
        self, terms: Sequence[Term], axes: Mapping[str, Axis], roots: Sequence[Root]
    ) -> None:
        self.terms, self.axes, self.roots = terms, axes, roots
        self.reductions = [t for t in terms if isinstance(t, Reduction)]
        self.reduced = {a.name for t in self.reductions for a in t.axes if not same(a.extent, 1)}
        kept = list(dict.fromkeys(a.name for r in roots for a in r.axes if not same(a.extent, 1)))
        common = set(kept).intersection(*({a.name for a in r.axes} for r in roots))
        self.grid = [n for n in kept if all(n in free_names(t) for t in self.reductions)]
        self.grid = [n for n in self.grid if n in common]
        self.vector = self._vector_axis(kept)
        self.rows = self.grid if self._alike() else self._split_rows(kept)
        self.order = self._order(kept)

    def _alike(self) -> bool:
        """Whether all reductions give one number per row of the grid."""
        grid = set(self.grid)
        return all(set(free_names(t) & self.axes.keys()) == grid for t in self.reductions)

    def _split_rows(self, kept: Sequence[str]) -> list[str]:
        """The axes of rows that some reductions go across: those that nested ones keep."""
        nested = self._nested()
        names = sorted(set[str]().union(*(free_names(t) & self.axes.keys() for t in nested)))
        return names or [n for n in sorted(self.reduced) if n not in kept]

    def _nested(self) -> set[Reduction]:
        """The reductions whose results are reduced."""
        mine = set(self.reductions)
        every = (u for t in self.reductions for u in _inside(t.body))
        return {u for u in every if isinstance(u, Reduction) and u in mine}

    def _inner_vectors(self) -> dict[Term, str]:
        """What is read within a reduction whose results are reduced, and along which of its axes:
        one number after the other is finished.
        """
        found: dict[Term, str] = {}
        for term in self._nested() if self.reduced.difference(self.grid) else ():
            names = sorted(a.name for a in term.axes)
            loads = [t for t in _inside(term.body) if isinstance(t, Load)]
            along = max(names, key=lambda n: sum(beside(t, n) for t in loads), default="")
            if along and self.vector not in self.grid:
                found.update(dict.fromkeys(loads, along))
        return found

    def _vector_axis(self, kept: Sequence[str]) -> str:
        """The axis along which vectors run: as kernel/map.py and kernel/row.py choose it."""
        if not self.reduced:
            return kept[-1] if kept else ""
        loads = [t for t in self.terms if isinstance(t, Load)]
        sides = {n: sum(beside(t, n) for t in loads) for n in (*self.reduced, *self.grid)}
        inside = max(sorted(self.reduced), key=lambda n: sides[n])
        best = max(self.grid, key=lambda n: (sides[n], n == kept[-1]), default=inside)
        if self._grouped(loads, inside):
            return inside
        if extent_of([inside], self.axes) < SHORT <= extent_of([best], self.axes):
            return best
        return best if sides[best] > sides[inside] else inside

    def _grouped(self, loads: Sequence[Load], inside: str) -> bool:
        """Whether vectors run across groups of few neighbours: see kernel/grouped.py."""
        few = extent_of([inside], self.axes)
        places = extent_of(sorted(self.reduced - {inside}), self.axes)
        if not 1 < few < SHORT or places < FEWEST or not self._alike():
            return False
        mine = [t for t in loads if inside in free_names(t)]
        return any(
            few * extent_of([g], self.axes) >= LANES and all(together(t, g, inside) for t in mine)
            for g in self.grid
        )

    def _order(self, kept: Sequence[str]) -> list[str]:
        """The loops, outermost first; the vector loop last but for loops inside of its columns."""
        if not self.reduced:
            return list(kept)
        outer = [n for n in self.rows if n != self.vector]
        inner = [n for n in (*kept, *sorted(self.reduced)) if n not in self.rows]
        inner = [n for n in dict.fromkeys(inner) if n != self.vector]
        if self.vector in self.rows:
            return [*outer, self.vector, *inner]
        return [*outer, *inner, self.vector]

    def points(self, term: Term) -> int:
        """How often a term is computed: in the innermost loop that it varies in."""
        names = free_names(term)
        if isinstance(term, Reduction):
            names = names | {a.name for a in term.axes}
        last = max((k for k, n in enumerate(self.order) if n in names), default=-1)
        around = self.order[: last + 1]
        if self.reduced:  # one loop after the other goes over the points of a row
            around = [n for n in around if n in self.rows]
        return extent_of(sorted(names.union(around)), self.axes)

    def features(self) -> Features:
        operations = special = gathered = irregular = 0.0
        columns = bool(self.reduced) and self.vector in self.rows
        inner = self._inner_vectors()
        for term, passes in self._passes().items():
            flops, points = term_flops(term), self.points(term)
            if flops >= KEPT and not columns:
                passes = 1
            if isinstance(term, Apply) and flops >= DEAR:
                special += flops * points * passes
            else:
                operations += flops * points * passes
            if isinstance(term, Load) and self.vector:
                kind = walk(term, inner.get(term, self.vector))
                gathered += points * passes * (kind == 1)
                irregular += points * passes * (kind == 2)
        loops = self.rows if self.reduced else self.order[:-1]
        entries = extent_of(loops, self.axes) / (LANES if columns else 1)
        return Features(operations, special, gathered, irregular, entries=entries)

    def _passes(self) -> dict[Term, int]:
        """The terms, and how many passes over the rows compute them."""
        level: dict[Term, int] = {}
        known = set(self.terms)
        for t in self.terms:  # children come first
            below = max((level.get(c, 0) for c in children(t)), default=0)
            level[t] = below + isinstance(t, Reduction)
        tops: dict[int, list[Term]] = {}
        for t in self.reductions:
            tops.setdefault(level[t], []).append(t)
        cones = [[c for t in ts for c in children(t)] for ts in tops.values()]
        cones.append([r.term for r in self.roots])
        found: dict[Term, int] = dict.fromkeys(self.reductions, 1)
        for cone in cones:
            seen: set[Term] = set()
            stack = list(cone)
            while stack:
                t = stack.pop()
                if t in seen or t not in known or isinstance(t, Reduction):
                    continue
                seen.add(t)
                found[t] = found.get(t, 0) + 1
                stack.extend(children(t))
        return found


# ---- loops over tiles

TILE = 64  # rows that a loop over tiles holds at once
_ONE_BY_ONE = 0.45  # of the speed of full tiles, where there are few rows
LONE_TILE = 2048  # points of a row that it holds where nothing is contracted


def _filled(roles: Roles) -> float:
    """The part of a tile that is used where there are few rows or columns."""
    full = min(1.0, estimate(roles.along.extent) / TILE)
    rows = 1 if roles.rows is None else estimate(roles.rows.extent)
    if rows <= FEW_ROWS:  # they are computed one by one
        return _ONE_BY_ONE if roles.inner or roles.columns else full
    return full * min(1.0, 4 * rows / TILE)


def _row_tiles(roles: Roles) -> int:
    return 1 if roles.rows is None else -(-estimate(roles.rows.extent) // TILE)


def _tiles(roles: Roles) -> tuple[int, int]:
    """The jobs of a loop over tiles, and the tiles that each walks over."""
    grid = volume([a.extent for a in roles.grid])
    others = volume([a.extent for a in roles.stream if a is not roles.along])
    if roles.inner or roles.columns:
        tiles = -(-estimate(roles.along.extent) // (2 * TILE))
        return _row_tiles(roles) * grid, others * tiles
    rows = 1 if roles.rows is None else estimate(roles.rows.extent)
    jobs, tiles = -(-rows // LONE_ROWS) * grid, -(-estimate(roles.along.extent) // LONE_TILE)
    if jobs < FEW_JOBS and not roles.late:  # then parts of the stream are jobs too
        parts = max(1, min(ENOUGH_JOBS, others * tiles) // jobs)
        return jobs * parts, max(1, others * tiles // parts)
    return jobs, others * tiles


def _live(roles: Roles | None) -> float:
    """The part of the tiles that masks do not make idle, by a sample of them."""
    if roles is None or roles.rows is None:
        return 1.0
    decision = decide(roles)
    if decision is None:
        return 1.0
    rows, length = estimate(roles.rows.extent), estimate(roles.along.extent)
    ends = [dims.symbol(f"_{k}") for k in range(4)]
    ranges = {roles.rows.name: (ends[0], ends[1]), roles.along.name: (ends[2], ends[3])}
    idle = decision.idle(ranges)
    names = {f"_{k}" for k in range(4)}
    if not isinstance(idle, Expr) or not dims.symbols(idle) <= names:
        return 1.0
    down = _parts_of(rows, max(1, min(_SAMPLES, rows // TILE)))
    across = _parts_of(length, max(1, min(_SAMPLES, length // (2 * TILE))))
    i, j = np.meshgrid(np.arange(len(down)), np.arange(len(across)), indexing="ij")
    points = {f"_{k}": down[i, k] if k < 2 else across[j, k - 2] for k in range(4)}
    return 1.0 - float(np.mean(dims.evaluate(idle, points) != 0))


def _parts_of(length: int, parts: int) -> np.ndarray[Any, Any]:
    """The first and the last point of each of some parts of an axis."""
    cuts = np.arange(parts + 1) * length // parts
    return np.stack([cuts[:-1], np.maximum(cuts[:-1], cuts[1:] - 1)], axis=1)


def _late(roles: Roles | None) -> set[Term]:
    """What varies along the stream and is needed after it, and also in a carry."""
    if roles is None or not roles.late:
        return set()
    after = _varying([r.term for r in roles.late], roles)
    return after & _varying([c.term.body for c in roles.carries], roles)


def _varying(terms: Iterable[Term], roles: Roles) -> set[Term]:
    stream = {a.name for a in roles.stream}
    carries = {c.term for c in roles.carries}
    found: set[Term] = set()
    stack = list(terms)
    while stack:
        term = stack.pop()
        if term not in found and term not in carries and free_names(term) & stream:
            found.add(term)
            stack.extend(children(term))
    return found
