"""Terms as a job sees them that holds whole rows: statistics are final, and what differs by names
of reduced axes alone is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from lumjax.kernel.rewrite import axis_symbol, rebuild, rewrite
from lumjax.kernel.term import (
    Axis,
    Index,
    Load,
    Reduction,
    Running,
    Term,
    children,
    free_names,
    subterms,
)
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

_nameless: WeakKeyDictionary[Reduction, Reduction] = WeakKeyDictionary()


def unified(terms: Sequence[Term]) -> list[Term]:
    """The terms with every Running as what it stands for, sums without what they follow, and one
    reduction for all that are equal up to names.
    """
    known: dict[Term, Term] = {}
    memo: dict[Term, Term] = {}

    def leaf(term: Term, kids: tuple[Term, ...]) -> Term:
        if isinstance(term, Running):
            return kids[0]
        if not isinstance(term, Reduction):
            return rebuild(term, kids, {})
        final = Reduction(term.op, term.axes, kids[0], term.dtype)
        return known.setdefault(nameless(final), final)

    return [rewrite(t, leaf, memo) for t in terms]


def nameless(term: Reduction) -> Reduction:
    """The reduction with names for its axes that depend on what it reads alone."""
    known = _nameless.get(term)
    if known is None:
        known = _nameless[term] = _without_names(term)
    return known


def _without_names(term: Reduction) -> Reduction:
    order = {n: None for t in subterms(term.body) for n in _names(t)}
    ranked = sorted(term.axes, key=lambda a: list(order).index(a.name) if a.name in order else -1)
    new = {a: Axis(f"_{k}", a.extent) for k, a in enumerate(ranked)}
    body = replaced(term.body, new)
    return Reduction(term.op, frozenset(new.values()), body, term.dtype)


def _names(term: Term) -> Iterable[str]:
    match term:
        case Load(coords=coords):
            return [n for c in coords for n in sorted(dims.symbols(c))]
        case Index(expr=expr):
            return sorted(dims.symbols(expr))
        case _:
            return ()


def replaced(term: Term, axes: Mapping[Axis, Axis]) -> Term:
    """The term with axes replaced where they are free in it."""
    gone = frozenset(a.name for a in axes)
    symbols: dict[str, Dim] = {old.name: axis_symbol(new) for old, new in axes.items()}
    done: dict[Term, Term] = {}
    stack = [term]
    while stack:
        t = stack[-1]
        waiting = [c for c in children(t) if c not in done] if gone & free_names(t) else []
        if t in done or waiting:
            stack.pop() if t in done else stack.extend(waiting)
            continue
        kids = tuple(done[c] for c in children(t)) if gone & free_names(t) else ()
        done[t] = rebuild(t, kids, symbols) if kids or gone & free_names(t) else t
        stack.pop()
    return done[term]
