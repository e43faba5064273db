"""Which terms are stored: roots, their buffers, and what a group of roots computes.

A term that is stored (made a root) is loaded by every other group; everything else is recomputed
inside the groups that use it. What is known about a group is kept, also in copies of the layout,
until a store changes what the group computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from lumjax.egraph.axes import axis_symbol
from lumjax.kernel.region import volume
from lumjax.kernel.rewrite import followed
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
    Term,
    children,
    free_names,
    loads,
    subterms,
)
from lumjax.trace.dim import Expr, IndexOp, same

LOOPS, RESIDENT, BLOCKS = 1, 2, 3  # what may hold contractions in tiles, see Layout

Names: TypeAlias = "tuple[str, ...]"
Members: TypeAlias = "tuple[Root, ...]"
# What is known of groups (see stores.py: Check), by what they compute.
Memo: TypeAlias = "dict[tuple[Any, ...], Any]"


def names(members: Sequence[Root]) -> Names:
    """The buffers that a group writes."""
    return tuple([r.buffer.name for r in members])


def over(root: Root) -> frozenset[str]:
    """The axes of a root that have more than one point."""
    return frozenset([a.name for a in root.axes if not same(a.extent, 1)])


def bytes_of(buffer: Buffer) -> int:
    """The size of a buffer, estimated where it is dynamic."""
    return volume(buffer.shape) * buffer.dtype.itemsize


class Layout:
    """Which roots exist, and which terms they hold. `fold` lets a loop program contract into
    tiles that it uses at once (LOOPS), or hold whole short rows in scratch as well (RESIDENT), or
    store them for a block of rows at a time (BLOCKS), where otherwise (0) these contractions are
    stored.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        order: Mapping[Term, tuple[Axis, ...]],
        fold: int = 0,
        memo: Memo | None = None,
    ) -> None:
        self.roots: list[Root] = []
        self.axes: dict[str, Axis] = {}
        self.order = order
        self.fold = fold
        self.memo: Memo = {} if memo is None else memo
        self.holders: dict[Term, Root] = {}
        self.made = 0
        self.room = 0  # bytes of temporaries that are no excess
        self.limit = 0  # bytes of temporaries that there is memory for; 0: any
        self.widest = 0  # bytes beyond which one temporary is too large to store; 0: none is
        self.checks: dict[Names, Any] = {}
        self._loads: dict[str, Load] = {}
        self._clusters: dict[Names, dict[Term, None]] = {}
        for root in roots:
            self.add(root)

    def _like(self) -> Layout:
        other = Layout((), self.order, self.fold, self.memo)
        other.axes, other.made = dict(self.axes), self.made
        other.room, other.limit, other.widest = self.room, self.limit, self.widest
        return other

    def copy(self) -> Layout:
        """An independent copy."""
        other = self._like()
        other.roots, other.holders = list(self.roots), dict(self.holders)
        other.checks, other._clusters = dict(self.checks), dict(self._clusters)
        other._loads = dict(self._loads)
        return other

    def add(self, root: Root) -> None:
        """One more root."""
        self.roots.append(root)
        if isinstance(root.term, (Apply, Reduction)) and root.term not in self.holders:
            self.holders[root.term] = root
            for key in [k for k, terms in self._clusters.items() if root.term in terms]:
                del self._clusters[key]
                self.checks.pop(key, None)
        self.axes.update((a.name, a) for a in root.axes)
        for t in subterms(root.term):
            if isinstance(t, Reduction):
                self.axes.update((a.name, a) for a in sorted(t.axes, key=lambda a: a.name))

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

    def without(self, gone: set[str]) -> Layout:
        """The layout without these temporaries: their terms are recomputed where they are used."""
        other = self._like()
        other.roots = [r for r in self.roots if r.buffer.name not in gone]
        other.holders = {t: r for t, r in self.holders.items() if r.buffer.name not in gone}
        other._loads = {n: load for n, load in self._loads.items() if n not in gone}
        lost = {self._loads[n] for n in sorted(gone) if n in self._loads}
        for key, terms in self._clusters.items():
            if gone.isdisjoint(key) and lost.isdisjoint(terms):
                other._clusters[key] = terms
                if key in self.checks:
                    other.checks[key] = self.checks[key]
        return other

    def _dims(self, term: Term) -> tuple[Axis, ...]:
        """The order of a temporary's dims: the traced one, else as loads walk, innermost last:
        those that it is made of or, if they say nothing, what is read and written beside it.
        """
        free = [n for n in free_names(term) if n in self.axes]
        if term in self.order and {a.name for a in self.order[term]} == set(free):
            return self.order[term]
        score = dict.fromkeys(free, 0)
        for t in loads(term):
            if t.coords:
                last = t.coords[-1]
                if isinstance(last, Expr) and last.op is IndexOp.SYMBOL and last.name in score:
                    score[last.name] += 1
        beside = self._beside(frozenset(free)) if not any(score.values()) else score
        rank = {n: k for k, n in enumerate(self.axes)}
        key = {n: (score[n], beside[n], rank[n]) for n in free}
        return tuple(self.axes[n] for n in sorted(free, key=key.__getitem__))

    def _beside(self, free: frozenset[str]) -> dict[str, int]:
        """How often each of these axes is innermost in loads and roots that have all of them."""
        found = dict.fromkeys(sorted(free), 0)
        read = {t: None for r in self.roots for t in loads(r.term) if free <= free_names(t)}
        last = [t.coords[-1] for t in read if t.coords]
        last += [axis_symbol(r.axes[-1]) for r in self.roots if r.axes and free <= over(r)]
        for c in last:
            if isinstance(c, Expr) and c.op is IndexOp.SYMBOL and c.name in found:
                found[c.name] += 1
        return found

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

    def cluster(self, roots: Sequence[Root]) -> dict[Term, None]:
        """What a group computes: subterms, children first, down to loads and stored terms."""
        key = names(roots)
        if key not in self._clusters:
            self._clusters[key] = self._below([r.term for r in roots])
        return self._clusters[key]

    def join(self, a: Members, b: Members) -> Members:
        """Both groups as one, where neither reads what the other stores."""
        both = (*a, *b)
        if names(both) not in self._clusters:
            self._clusters[names(both)] = {**self.cluster(a), **self.cluster(b)}
        return both

    def cluster_of(self, term: Term) -> dict[Term, None]:
        """What computing one term takes."""
        return self._below([term])

    def _below(self, terms: Sequence[Term]) -> dict[Term, None]:
        if len(terms) == 1:  # quick where nothing below it is stored
            found = dict.fromkeys(subterms(terms[0]))
            if not any(t in found and t is not terms[0] for t in self.holders):
                return found
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
                below = children(term)
                if below:
                    stack.append((term, True))
                    stack.extend([(c, False) for c in below])
                else:
                    done[term] = None
        return done

    def finished(self, roots: Sequence[Root]) -> Group:
        """The group with loads in place of what other groups store."""
        done = self.replaced(roots)
        return Group(tuple(Root(r.buffer, r.axes, done[r.term]) for r in roots))

    def replaced(self, roots: Sequence[Root]) -> dict[Term, Term]:
        """For each term of a group the term of the finished group."""
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
                stack.extend([(c, False) for c in children(term)])
        return done


def rebuilt(term: Term, done: Mapping[Term, Term]) -> Term:
    """The term with its direct subterms replaced."""
    if all(done[c] is c for c in children(term)):
        return term
    match term:
        case Lit():
            return term
        case Load(indices=indices):
            new = tuple((n, done[t]) for n, t in indices)
            return Load(term.buffer, term.coords, term.valid, term.fill, new)
        case Index(indices=indices):
            return Index(term.expr, term.dtype, tuple((n, done[t]) for n, t in indices))
        case Apply(args=args):
            return Apply(term.op, tuple([done[a] for a in args]), term.dtype)
        case Reduction(body=body):
            kids = tuple([done[c] for c in children(term)])
            if len(kids) > 1 and _known(kids[1], term.axes):
                kids = kids[:1]
            return Reduction(term.op, term.axes, done[body], term.dtype, *followed(kids))
        case Running(of=of):
            known = _known(done[of], term.axes)
            return done[of] if known else Running(done[of], term.axes)


def _known(statistic: Term, axes: frozenset[Axis]) -> bool:
    """Whether a statistic is final before the loop over these axes begins."""
    return not any(isinstance(t, Reduction) and t.axes == axes for t in subterms(statistic))
