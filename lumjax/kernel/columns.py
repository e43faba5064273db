"""Columns that two axes make together: a result [..., groups, features] has no rows of four where
what is made of its sums knows groups apart from features; its sums are as wide as both.
"""

from __future__ import annotations

from collections.abc import Sequence

from lumjax.kernel.emit import Emitter
from lumjax.kernel.rewrite import axis_symbol, index_pairs, rebuild, rewrite
from lumjax.kernel.term import Axis, Index, Load, Root, Term, subterms
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim


@record
class Joined:
    """Roots in which one axis stands for two neighbours, and how these are found from it."""

    roots: tuple[Root, ...]
    outer: Axis
    inner: Axis
    both: Axis

    def place(self, expr: Dim) -> Dim:
        """An index expression in terms of the axis of both."""
        whole = axis_symbol(self.both)
        if as_one(expr, self.outer, self.inner):
            return dims.substitute(expr, {self.outer.name: 0, self.inner.name: whole})
        quotient = dims.floor_divide(whole, self.inner.extent)
        rest = dims.remainder(whole, self.inner.extent)
        return dims.substitute(expr, {self.outer.name: quotient, self.inner.name: rest})


def as_one(expr: Dim, outer: Axis, inner: Axis) -> bool:
    """Whether an expression steps through both axes as through one."""
    far, near = dims.coefficient(expr, outer.name), dims.coefficient(expr, inner.name)
    return far is not None and near is not None and dims.same(far, near * inner.extent)


def _walked(body: Term, outer: Axis, inner: Axis) -> bool:
    """Whether all that products are made of does."""
    exprs: list[Dim] = []
    for t in subterms(body):
        if isinstance(t, Load):
            exprs += [*t.coords, t.valid]
        elif isinstance(t, Index):
            exprs.append(t.expr)
    return all(as_one(e, outer, inner) for e in exprs)


def join(
    emitter: Emitter, roots: Sequence[Root], body: Term, outer: Axis, inner: Axis
) -> Joined | None:
    """The roots with two axes as one, None unless they are neighbours in all of them and in `body`,
    the products that are summed: only what is made of the sums may know them apart.
    """
    if not isinstance(outer.extent, int) or not isinstance(inner.extent, int):
        return None
    if any(outer not in r.axes or r.axes[r.axes.index(outer) + 1 :][:1] != (inner,) for r in roots):
        return None
    if not _walked(body, outer, inner):
        return None
    both = Axis(emitter.fresh("col"), outer.extent * inner.extent)
    found = Joined((), outer, inner, both)

    def leaf(term: Term, kids: tuple[Term, ...]) -> Term:
        if isinstance(term, Load):
            coords = tuple(map(found.place, term.coords))
            pairs = index_pairs(term, kids)
            return Load(term.buffer, coords, found.place(term.valid), term.fill, pairs)
        if isinstance(term, Index):
            return Index(found.place(term.expr), term.dtype, index_pairs(term, kids))
        return rebuild(term, kids, {})

    memo: dict[Term, Term] = {}
    new = tuple(
        Root(
            r.buffer,
            tuple(both if a == inner else a for a in r.axes if a != outer),
            rewrite(r.term, leaf, memo),
        )
        for r in roots
    )
    return Joined(new, outer, inner, both)
