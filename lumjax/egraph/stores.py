"""Which terms are stored: every root must be something that one of the loop programs can compute.

A term that is stored (made a root) is loaded by every other group; everything else is recomputed
inside the groups that use it. Stores are forced where no program fits: under a contraction
everything but loads and elementwise terms, above it everything but an elementwise epilogue over the
same axes; elsewhere the reductions of a group must share their free axes (rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lumjax.egraph.axes import axis_symbol
from lumjax.egraph.cost import (
    extent_of,
    factors,
    term_flops,
)
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Group,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Running,
    Scale,
    Term,
    children,
    free_names,
    subterms,
)
from lumjax.trace.dim import Expr, IndexOp, same

Names: TypeAlias = "tuple[str, ...]"

_PARALLEL_ROWS = 8  # fewer rows than this over a long reduction run as two kernels
_LONG_ROW = 1 << 14
_OPERAND_FLOPS = 64.0  # an elementwise contraction operand dearer than this per element is stored


@dataclass(slots=True)
class Layout:
    """Which roots exist, and which terms they hold."""

    roots: list[Root]
    axes: dict[str, Axis]
    order: Mapping[Term, tuple[Axis, ...]]
    holders: dict[Term, Root] = field(default_factory=dict[Term, Root])
    made: int = 0
    _loads: dict[str, Load] = field(default_factory=dict[str, Load])
    _clusters: dict[Names, list[Term]] = field(default_factory=dict["Names", list[Term]])

    @staticmethod
    def of(roots: Sequence[Root], order: Mapping[Term, tuple[Axis, ...]]) -> Layout:
        """The roots as given."""
        layout = Layout([], {}, order)
        for root in roots:
            layout.add(root)
        return layout

    def copy(self) -> Layout:
        """An independent copy."""
        holders = dict(self.holders)
        return Layout(list(self.roots), dict(self.axes), self.order, holders, self.made)

    def add(self, root: Root) -> None:
        """One more root."""
        self.roots.append(root)
        self._clusters.clear()
        if isinstance(root.term, (Apply, Reduction)):
            self.holders.setdefault(root.term, root)
        self.axes.update((a.name, a) for a in root.axes)
        for t in subterms(root.term):
            if isinstance(t, Reduction):
                self.axes.update((a.name, a) for a in t.axes)

    def store(self, term: Term) -> Root:
        """Store a term in a new temporary."""
        axes = self._dims(term)
        buffer = Buffer(f"t{self.made}", tuple(a.extent for a in axes), term.dtype)
        self.made += 1
        root = Root(buffer, axes, term)
        self.add(root)
        return root

    @property
    def temporary(self) -> list[str]:
        """The buffers that `store` made."""
        return [r.buffer.name for r in self.roots if r.buffer.name.startswith("t")]

    def without(self, names: set[str]) -> Layout:
        """The layout without these temporaries: their terms are recomputed where they are used."""
        kept = [r for r in self.roots if r.buffer.name not in names]
        holders = {t: r for t, r in self.holders.items() if r.buffer.name not in names}
        return Layout(kept, self.axes, self.order, holders, self.made)

    def _dims(self, term: Term) -> tuple[Axis, ...]:
        """The order of a temporary's dims: the traced one, else as loads walk, innermost last."""
        names = [n for n in free_names(term) if n in self.axes]
        if term in self.order and {a.name for a in self.order[term]} == set(names):
            return self.order[term]
        score = dict.fromkeys(names, 0)
        for t in subterms(term):
            if isinstance(t, Load) and t.coords:
                last = t.coords[-1]
                if isinstance(last, Expr) and last.op is IndexOp.SYMBOL and last.name in score:
                    score[last.name] += 1
        rank = {n: k for k, n in enumerate(self.axes)}
        return tuple(self.axes[n] for n in sorted(names, key=lambda n: (score[n], rank[n])))

    def load(self, root: Root) -> Load:
        """The load that reads a stored term at its own axes."""
        name = root.buffer.name
        if name not in self._loads:
            free = free_names(root.term)  # a root may repeat its term along further axes
            coords = tuple(
                axis_symbol(a) if a.name in free and not same(a.extent, 1) else 0 for a in root.axes
            )
            self._loads[name] = Load(root.buffer, coords)
        return self._loads[name]

    def cluster(self, roots: Sequence[Root]) -> list[Term]:
        """What a group computes: subterms, children first, down to loads and stored terms."""
        key = tuple(r.buffer.name for r in roots)
        if key not in self._clusters:
            self._clusters[key] = self._below([r.term for r in roots])
        return self._clusters[key]

    def cluster_of(self, term: Term) -> list[Term]:
        """What computing one term takes."""
        return self._below([term])

    def _below(self, terms: Sequence[Term]) -> list[Term]:
        inside = set(terms)
        done: dict[Term, None] = {}
        stack: list[tuple[Term, bool]] = [(t, False) for t in reversed(terms)]
        while stack:
            term, ready = stack.pop()
            if term in done:
                continue
            if ready:
                done[term] = None
            elif term in self.holders and term not in inside:
                done[self.load(self.holders[term])] = None
            else:
                stack.append((term, True))
                stack.extend((c, False) for c in children(term))
        return list(done)

    def finished(self, roots: Sequence[Root]) -> Group:
        """The group with loads in place of what other groups store."""
        done = self._replaced(roots)
        return Group(tuple(Root(r.buffer, r.axes, done[r.term]) for r in roots))

    def finished_from(self, roots: Sequence[Root]) -> dict[Term, Term]:
        """For each term of the finished group the term of the layout that it came from."""
        return {new: old for old, new in self._replaced(roots).items()}

    def _replaced(self, roots: Sequence[Root]) -> dict[Term, Term]:
        inside = {r.term for r in roots}
        done: dict[Term, Term] = {}
        stack: list[tuple[Term, bool]] = [(r.term, False) for r in roots]
        while stack:
            term, ready = stack.pop()
            if term in done:
                continue
            if ready:
                done[term] = rebuilt(term, done)
            elif term in self.holders and term not in inside:
                done[term] = self.load(self.holders[term])
            else:
                stack.append((term, True))
                stack.extend((c, False) for c in children(term))
        return done


def rebuilt(term: Term, done: Mapping[Term, Term]) -> Term:
    """The term with its direct subterms replaced."""
    match term:
        case Lit():
            return term
        case Load(indices=indices):
            new = tuple((n, done[t]) for n, t in indices)
            return Load(term.buffer, term.coords, term.valid, term.fill, new) if new else term
        case Index(indices=indices):
            new = tuple((n, done[t]) for n, t in indices)
            return Index(term.expr, term.dtype, new) if new else term
        case Apply(args=args):
            return Apply(term.op, tuple(done[a] for a in args), term.dtype)
        case Reduction(body=body):
            scale = term.scale
            if scale is not None:
                scale = Scale(done[scale.statistic], done[scale.factor])
            return Reduction(term.op, term.axes, done[body], term.dtype, scale)
        case Running(of=of):
            return Running(done[of], term.axes)


def _reductions(terms: Iterable[Term]) -> list[Reduction]:
    return [t for t in terms if isinstance(t, Reduction)]


def over(root: Root) -> frozenset[str]:
    """The axes of a root that have more than one point."""
    return frozenset(a.name for a in root.axes if not same(a.extent, 1))


class Check:
    """Whether one loop program computes a group, and if not, what to store."""

    def __init__(self, layout: Layout, roots: Sequence[Root]) -> None:
        self.layout, self.roots = layout, roots
        self.terms = layout.cluster(roots)
        self.found = _reductions(self.terms)
        self.parents: dict[Term, list[Term]] = {}
        for t in self.terms:
            for c in dict.fromkeys(children(t)):
                self.parents.setdefault(c, []).append(t)
        self.below: dict[Term, frozenset[Reduction]] = {}
        for t in self.terms:
            under = frozenset[Reduction]().union(
                *(self.below.get(c, frozenset()) for c in children(t))
            )
            self.below[t] = under | {t} if isinstance(t, Reduction) else under
        self.inside = {r.term for r in roots}

    def problem(self) -> Term | None:
        """A term to store so that reductions fit one program; None if they do."""
        contractions = [t for t in self.found if factors(t) is not None]
        if contractions:
            return self._contraction(contractions)
        return self._rows()

    def _contraction(self, contractions: Sequence[Reduction]) -> Term | None:
        for t in contractions:
            for factor in factors(t) or ():
                if self.below.get(factor):
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
            flops = sum(term_flops(t) for t in subterms(factor) if isinstance(t, Apply))
            others = self.free(term) - free_names(factor)
            repeats = extent_of(others, self.layout.axes)
            dear = flops > _OPERAND_FLOPS and repeats > 16 and isinstance(factor, Apply)
            if dear and factor not in self.layout.holders:
                return factor
        return None

    def _rows(self) -> Term | None:
        if not self.found:
            return None
        grid = self.grid()
        wrong = [t for t in self.found if self.free(t) != grid]
        if not wrong:
            return self._serial(grid)
        if self.splits():
            return None
        inner = {u for t in wrong for c in children(t) for u in self.below.get(c, ())}
        outermost = [t for t in reversed(wrong) if t not in inner and t not in self.inside]
        remaining = outermost or [t for t in reversed(wrong) if t not in self.inside]
        if not remaining:  # only roots are in each other's way: store what they are made from
            remaining = [u for t in wrong for u in self.below[t] if u not in self.inside]
        return self._lifted(remaining[0]) if remaining else None

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
            if alike and all(self._follows(r, row, across) for r in self.roots):
                return True
        return False

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
            if t in seen or (t in self.layout.holders and t not in self.inside):
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
        rows = extent_of(grid, self.layout.axes)
        for t in self.found:
            if t in self.inside or rows >= _PARALLEL_ROWS:
                continue
            if extent_of([a.name for a in t.axes], self.layout.axes) >= _LONG_ROW:
                return self._lifted(t)
        return None

    def free(self, term: Term) -> frozenset[str]:
        """The axes that a term depends on."""
        return frozenset(n for n in free_names(term) if n in self.layout.axes)

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


def store_forced(layout: Layout) -> None:
    """Store terms until every root by itself is a group that some loop program computes."""
    todo = list(layout.roots)
    while todo:
        root = todo.pop()
        term = Check(layout, [root]).problem()
        if term is not None and term not in layout.holders:
            todo.append(root)
            todo.append(layout.store(term))
