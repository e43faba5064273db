"""Which terms are stored: every root must be something that one of the loop programs can compute.

Stores are forced where no program fits. Under a contraction that is everything but loads and
elementwise terms, and above it everything but an elementwise epilogue over the same axes; elsewhere
the reductions of a group must share their free axes (rows). Where folds are allowed, a loop may
also contract into tiles that its carries use at once: only what such a loop waits for is stored. A
job that may hold whole rows waits for nothing, nor does what is stored for a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from lumjax.egraph.cost import (
    Machine,
    blocked_time,
    blocks_of,
    extent_of,
    factors,
    kernel_time,
    resident_time,
    term_flops,
)
from lumjax.egraph.layout import BLOCKS, RESIDENT, Layout, Members, Names, names, over, rebuilt
from lumjax.egraph.walks import walk
from lumjax.egraph.workspace import held, workspace
from lumjax.kernel.blocked import Blocks, blocked
from lumjax.kernel.emit import Reject
from lumjax.kernel.resident import Residence, residence
from lumjax.kernel.roles import Roles, fold_roles
from lumjax.kernel.term import (
    Apply,
    Axis,
    Load,
    Reduction,
    Root,
    Term,
    children,
    free_names,
    loads,
    subterms,
)
from lumjax.kernel.unify import nameless, unified
from lumjax.record import record
from lumjax.trace.dim import symbols

__all__ = [
    "Check",
    "Layout",
    "Names",
    "check",
    "in_steps",
    "names",
    "over",
    "rebuilt",
    "store_forced",
]

_PARALLEL_ROWS = 8  # fewer rows than this over a long reduction run as two kernels
_LONG_ROW = 1 << 14
_ACROSS = 1 << 16  # elements of rows that lie across memory: more leave the nearest caches
_OPERAND_FLOPS = 64.0  # an elementwise contraction operand dearer than this per element is stored


def _reductions(terms: Iterable[Term]) -> list[Reduction]:
    return [t for t in terms if isinstance(t, Reduction)]


@record
class Summary:
    """The axis sets of a group's roots and of its reductions' results."""

    roots: frozenset[frozenset[str]]
    rows: frozenset[frozenset[str]]


class Check:
    """Whether one loop program computes a group, and if not, what to store."""

    def __init__(self, layout: Layout, roots: Sequence[Root]) -> None:
        self.roots, self.axes = roots, layout.axes
        self.terms = layout.cluster(roots)
        self.found = _reductions(self.terms)
        self._layout = layout
        self._position: dict[Term, int] = {t: 1 << k for k, t in enumerate(self.found)}
        below: dict[Term, int] = {}
        for t in self.terms:
            under = self._position.get(t, 0)
            for c in children(t):
                under |= below.get(c, 0)
            below[t] = under
        self._below = below
        self.inside = {r.term for r in roots}
        # The group as kernels see it and the roles of its axes, if it takes a loop over tiles.
        self.folded: tuple[list[Term], list[Root], Roles] | None = None
        self._seconds: float | None = None
        self._workspace: int | None = None

    def problem(self, fold: int) -> Term | None:
        """A term to store so that one loop program computes the group; None if one does."""
        if not self.found or self._plain is None:
            return None
        if not fold:
            return self._plain
        if self.stays(fold) is not None or self.blocks(fold) is not None:
            return None
        return self._folded

    def stays(self, fold: int) -> Residence | None:
        """The job that holds all rows of the group, where no other program computes it."""
        if fold < RESIDENT or not self.found or self._plain is None or self._folded is None:
            return None
        return self._residence

    @cached_property
    def _residence(self) -> Residence | None:
        return residence(self._finished[0])

    def blocks(self, fold: int) -> Blocks | None:
        """The blocks of rows that compute the group, where no other program does."""
        if fold < BLOCKS or not self.found or self._plain is None or self._folded is None:
            return None
        return None if self._residence is not None else self._blocks

    @cached_property
    def _blocks(self) -> Blocks | None:
        return blocked(self._finished[0])

    @cached_property
    def meanings(self) -> frozenset[Reduction]:
        """The group's reductions, without the names of their axes."""
        terms = unified([r.term for r in self._finished[0]])
        found = {t: None for term in terms for t in subterms(term)}
        return frozenset(nameless(t) for t in found if isinstance(t, Reduction))

    @cached_property
    def _plain(self) -> Term | None:
        contractions = [t for t in self.found if factors(t) is not None]
        if contractions:
            return self._contraction(contractions)
        return self._rows()

    @cached_property
    def _folded(self) -> Term | None:
        """The answer where a loop may contract into tiles."""
        roots, origin = self._finished
        roles = fold_roles(roots)
        if isinstance(roles, Roles):
            self.folded = list(origin), roots, roles
            return None
        if isinstance(roles, Reject):
            term = origin.get(roles.term)
            if isinstance(term, (Apply, Reduction)) and term not in self.inside:
                return term
        return self._plain

    @cached_property
    def _finished(self) -> tuple[list[Root], dict[Term, Term]]:
        """The roots as kernels see them, and for each of their terms the term it came from."""
        done: dict[Term, Term] = {}
        for t in self.terms:
            for c in children(t):
                if c not in done:  # stored
                    done[c] = self._layout.load(self._layout.holders[c])
            done[t] = rebuilt(t, done)
        roots = [Root(r.buffer, r.axes, done[r.term]) for r in self.roots]
        origin: dict[Term, Term] = {}
        for t in self.terms:
            origin.setdefault(done[t], t)
        return roots, origin

    def seconds(self, fold: int, machine: Machine) -> float:
        """Predicted seconds of the group as one kernel."""
        if self._seconds is None:
            stays, (terms, roots, roles) = self.stays(fold), self.kernel(fold)
            blocks = self.blocks(fold)
            if stays is not None:
                self._seconds = resident_time(stays, self._finished[0], self.axes, machine)
            elif blocks is not None:
                self._seconds = blocked_time(blocks, self._finished[0], self.axes, machine)
            else:
                self._seconds = kernel_time(terms, roots, self.axes, machine, roles)
        return self._seconds

    def workspace(self, fold: int) -> int:
        """Bytes that the group's kernel needs for itself."""
        if self._workspace is None:
            terms, roots, roles = self.kernel(fold)
            blocks = self.blocks(fold)
            if blocks is not None:
                self._workspace = held(blocks, blocks_of(blocks, self.axes), self.axes)
            else:
                stays = self.stays(fold) is not None
                self._workspace = 0 if stays else workspace(terms, roots, self.axes, roles)
        return self._workspace

    def kernel(self, fold: int) -> tuple[Sequence[Term], Sequence[Root], Roles | None]:
        """The group as a kernel sees it, and the roles of its axes if it is a loop over tiles."""
        self.problem(fold)
        return self.folded or (list(self.terms), self.roots, None)

    @cached_property
    def summary(self) -> Summary:
        """What tells quickly that groups cannot be one kernel."""
        return Summary(frozenset(map(over, self.roots)), frozenset(map(self.free, self.found)))

    def below(self, term: Term) -> list[Reduction]:
        """The reductions that computing a term takes, itself included."""
        mask = self._below.get(term, 0)
        return [t for t in self.found if mask & self._position[t]] if mask else []

    @cached_property
    def parents(self) -> dict[Term, list[Term]]:
        """The terms of the group that use a term directly."""
        found: dict[Term, list[Term]] = {}
        for t in self.terms:
            for c in dict.fromkeys(children(t)):
                found.setdefault(c, []).append(t)
        return found

    @property
    def walks(self) -> tuple[frozenset[Axis], frozenset[Axis]] | None:
        """The axes that a loop over tiles goes along, and those of its jobs."""
        if self.folded is None:
            return None
        roles = self.folded[2]
        rows = () if roles.rows is None else (roles.rows,)
        return roles.stream, frozenset((*roles.grid, *rows))

    def innermost(self) -> Term | None:
        """What to store of a group that no program computes, although one seems to: a reduction
        that takes no other.
        """
        found = (t for t in self.found if t not in self.inside)
        first = next(found, None)
        return None if first is None else self._lifted(first)

    def _contraction(self, contractions: Sequence[Reduction]) -> Term | None:
        for t in contractions:
            for factor in factors(t) or ():
                if self._below.get(factor):
                    return factor
        outer = contractions[-1]
        alone = len(self.found) == 1
        if alone and all(over(r) == self.free(outer) for r in self.roots):
            return self._dear_operand(outer)
        wrong = [t for t in contractions if t not in self.inside]
        if wrong:
            return self._lifted(wrong[-1])
        others = [t for t in self.found if t not in self.inside]
        return self._lifted(others[-1]) if others else None

    def _dear_operand(self, term: Reduction) -> Term | None:
        """An operand that many tiles would compute again, each time at a high price."""
        for factor in factors(term) or ():
            flops = sum(term_flops(t) for t in self._made(factor) if isinstance(t, Apply))
            others = self.free(term) - free_names(factor)
            repeats = extent_of(others, self.axes)
            dear = flops > _OPERAND_FLOPS and repeats > 16 and isinstance(factor, Apply)
            if dear and factor in self.terms:
                return factor
        return None

    def _made(self, term: Term) -> Iterator[Term]:
        """The terms that this group computes below one of its terms."""
        return (t for t in subterms(term) if t in self.terms)

    def _rows(self) -> Term | None:
        if not self.found:
            return None
        grid = self.grid()
        wrong = [t for t in self.found if self.free(t) != grid]
        if not wrong:
            return self._serial(grid)
        if self.splits():
            return None
        inner = {u for t in wrong for u in self.below(t) if u is not t}
        outermost = [t for t in reversed(wrong) if t not in inner and t not in self.inside]
        remaining = outermost or [t for t in reversed(wrong) if t not in self.inside]
        if not remaining:  # only roots are in each other's way: store what they are made from
            remaining = [u for t in wrong for u in self.below(t) if u not in self.inside]
        if remaining:
            return self._lifted(remaining[0])
        return wrong[0] if len(self.roots) > 1 else None

    def splits(self) -> bool:
        """Whether rows are reduced within, and some of the results across rows, in one pass.

        Reductions nested in others give one number per row; those next to the roots sum over all
        row axes, or are per row too; a root keeps every row axis, or is made from sums across.
        """
        top = {t for r in self.roots for t in self._nearest(r.term)}
        rows = {self.free(t) for t in self.found if t not in top}
        rows = rows or {self.free(t) for t in top if self.free(t)}
        for row in sorted(rows, key=sorted):
            across = {t for t in top if row <= {a.name for a in t.axes}}
            within = [t for t in self.found if t not in across]
            alike = row and across and within and all(self.free(t) == row for t in within)
            if not alike or self._waits(row, across, within) or self._steps(within):
                continue
            if all(self._follows(r, row, across) for r in self.roots):
                return True
        return False

    def _steps(self, within: Sequence[Reduction]) -> bool:
        """Whether rows lie across memory, and are too many to be walked in steps repeatedly."""
        for t in within:
            mine = {a.name for a in t.axes}
            large = extent_of(self.free(t) | mine, self.axes) >= _ACROSS
            again = any(u is not t for u in self.below(t))
            if large and again and any(in_steps(u, mine) for u in loads(t.body)):
                return True
        return False

    def _waits(
        self, row: frozenset[str], across: set[Reduction], within: Sequence[Reduction]
    ) -> bool:
        """Whether a row, or a share of the rows, needs a sum over all rows."""
        if any(u in across for t in within for u in self.below(t)):
            return True
        nested = (u for t in across for u in self.below(t) if u is not t)
        return any(a.name in row for u in nested for a in u.axes)

    def _follows(self, root: Root, row: frozenset[str], across: set[Reduction]) -> bool:
        """Whether a root is computed per row, or from sums across rows alone."""
        near = self._nearest(root.term)
        if not across.intersection(near):
            return row <= over(root)
        return across.issuperset(near) and not row & self.free(root.term) and not row & over(root)

    def _nearest(self, term: Term) -> list[Reduction]:
        """The reductions below a term that no other reduction hides."""
        found: dict[Reduction, None] = {}
        seen: set[Term] = set()
        stack = [term]
        while stack:
            t = stack.pop()
            if t in seen or t not in self.terms:
                continue
            seen.add(t)
            if isinstance(t, Reduction):
                found[t] = None
            else:
                stack.extend(children(t))
        return list(found)

    def grid(self) -> frozenset[str]:
        """The axes that every root and every reduction result have."""
        names = frozenset.intersection(*(over(r) for r in self.roots))
        return names.intersection(*(self.free(t) for t in self.found))

    def _serial(self, grid: frozenset[str]) -> Term | None:
        """A reduction that would keep all but one core idle while other work waits for it."""
        rows = extent_of(grid, self.axes)
        for t in self.found:
            if t in self.inside or rows >= _PARALLEL_ROWS:
                continue
            if extent_of([a.name for a in t.axes], self.axes) >= _LONG_ROW:
                return self._lifted(t)
        return None

    def free(self, term: Term) -> frozenset[str]:
        """The axes that a term depends on."""
        return frozenset(n for n in free_names(term) if n in self.axes)

    def _lifted(self, term: Term) -> Term:
        """The highest elementwise term over a reduction's axes that is the only way out of it."""
        current = term
        while current not in self.inside:
            above = self.parents.get(current, [])
            if len(above) != 1 or not isinstance(above[0], Apply) or above[0] in self.inside:
                break
            if (
                self.free(above[0]) != self.free(term)
                or above[0].dtype.itemsize > term.dtype.itemsize
            ):
                break
            current = above[0]
        return current


def in_steps(load: Load, reduced: set[str]) -> bool:
    """Whether a reduction reads in steps what lies together along another axis."""
    mentioned = symbols(*load.coords)
    apart = any(walk(load, n) for n in reduced & mentioned)
    return apart and any(not walk(load, n) for n in mentioned - reduced)


def check(layout: Layout, roots: Members) -> Check:
    """What is known of a group of the layout's roots."""
    key = names(roots)
    found: Check | None = layout.checks.get(key)
    if found is None:
        content = tuple([(r.term, r.axes) for r in roots]), tuple(layout.cluster(roots))
        found = layout.memo.get(content)
        if found is None:
            found = layout.memo[content] = Check(layout, roots)
        layout.checks[key] = found
    return found


def store_forced(layout: Layout) -> None:
    """Store terms until every root by itself is a group that some loop program computes."""
    todo = list(layout.roots)
    while todo:
        while todo:
            root = todo.pop()
            term = _wanted(layout, root)
            if term is not None:
                todo.append(root)
                todo.append(layout.store(term))
        # A store changes what the roots above it compute.
        todo = [root for root in layout.roots if _wanted(layout, root) is not None]


def _wanted(layout: Layout, root: Root) -> Term | None:
    term = check(layout, (root,)).problem(layout.fold)
    return None if term is None or term in layout.holders else term
