"""Rebuild terms: bottom-up rewriting with sharing, substitution of index symbols, renaming of bound
axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lumjax.kernel.term import (
    Apply,
    Axis,
    Index,
    Lit,
    Load,
    Reduction,
    Running,
    Scale,
    Shift,
    Term,
    children,
    subterms,
)
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr

Rebuild: TypeAlias = Callable[[Term, tuple[Term, ...]], Term]


def axis_symbol(axis: Axis) -> Expr:
    """The symbol that stands for the axis in index expressions."""
    return dims.symbol(axis.name, 0, axis.extent - 1)


def rewrite(term: Term, leaf: Rebuild, memo: dict[Term, Term]) -> Term:
    """Rebuild a term bottom-up: `leaf(old, new children)` for every node, shared nodes once."""
    for t in subterms(term):
        if t not in memo:
            memo[t] = leaf(t, tuple(memo[c] for c in children(t)))
    return memo[term]


def rebuild(
    t: Term,
    kids: tuple[Term, ...],
    symbols: Mapping[str, Dim],
    axes: Mapping[Axis, Axis] | None = None,
) -> Term:
    """The node with new children, with index symbols substituted and reduced axes replaced."""
    if not symbols and axes is None and kids == children(t):
        return t
    match t:
        case Lit():
            return t
        case Index():
            return Index(dims.substitute(t.expr, symbols), t.dtype, index_pairs(t, kids))
        case Apply():
            return Apply(t.op, kids, t.dtype)
        case Load():
            coords = tuple(dims.substitute(c, symbols) for c in t.coords)
            valid = dims.substitute(t.valid, symbols)
            return Load(t.buffer, coords, valid, t.fill, index_pairs(t, kids))
        case Reduction():
            return Reduction(t.op, _renamed(t.axes, axes), kids[0], t.dtype, *followed(kids))
        case Running():
            return Running(kids[0], _renamed(t.axes, axes))


def _renamed(axes: frozenset[Axis], new: Mapping[Axis, Axis] | None) -> frozenset[Axis]:
    return axes if new is None else frozenset(new.get(a, a) for a in axes)


def followed(kids: tuple[Term, ...]) -> tuple[Scale | None, Shift | None]:
    """The scale and the shift of a reduction with these children."""
    match kids:
        case (_, statistic, factor):
            return Scale(statistic, factor), None
        case (_, statistic, slope, bend):
            return None, Shift(statistic, slope, bend)
        case _:
            return None, None


def index_pairs(t: Load | Index, kids: tuple[Term, ...]) -> tuple[tuple[str, Term], ...]:
    """The node's index symbols with new terms."""
    return tuple((n, k) for (n, _), k in zip(t.indices, kids, strict=True))


def rename(term: Term, axes: Mapping[Axis, Axis]) -> Term:
    """The term with axes renamed, free or bound alike."""
    symbols: dict[str, Dim] = {old.name: axis_symbol(new) for old, new in axes.items()}
    return rewrite(term, lambda t, kids: rebuild(t, kids, symbols, axes), {})


def separate(term: Term, names: frozenset[str]) -> Term:
    """The term with its bound axes renamed away from `names`, which occur free around it."""

    def leaf(t: Term, kids: tuple[Term, ...]) -> Term:
        if isinstance(t, Reduction):
            clash = {a: Axis(a.name + "'", a.extent) for a in t.axes if a.name in names}
            if clash:
                fresh = rebuild(t, (rename(t.body, clash),), {}, clash)
                assert isinstance(fresh, Reduction), "a renamed reduction is one"
                return rebuild(fresh, (separate(fresh.body, names),), {})
        return rebuild(t, kids, {})

    return rewrite(term, leaf, {})
