"""Name the axes of a region: one name per class of dims that are one, so that values are shared.

Elementwise operations, reductions, views and contractions unify dims (union-find) wherever a dim of
an operand is read at exactly a dim of the result; dims that reshapes split or merge consist of
several axes (`atoms.py`). A unification that would give two dims of one array the same name is
skipped; encoding then reads the array under other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from lumjax.egraph.atoms import Cuts, Holder, Place, aligned, divided, sections
from lumjax.kernel.region import Region
from lumjax.kernel.term import Axis
from lumjax.trace.dim import Dim, Expr, floor_divide, remainder, same, symbol
from lumjax.trace.form import Contract

_Node: TypeAlias = tuple[Holder, int, int]  # an atom: a dim's holder, its number, the stride


def axis_symbol(axis: Axis) -> Expr:
    """The symbol by which index expressions mention the axis."""
    return symbol(axis.name, 0, axis.extent - 1)


class AxisNames:
    """The axes of every variable's dims, and of every contraction's reduced dims."""

    def __init__(self, region: Region) -> None:
        self._parent: dict[_Node, _Node] = {}
        self._members: dict[_Node, dict[Holder, tuple[int, int]]] = {}
        self._extent: dict[_Node, Dim] = {}
        self._names: dict[_Node, Axis] = {}
        self._fresh = 0
        self.known: dict[str, Axis] = {}  # every axis so far, by name
        extents: dict[Place, Dim] = {}
        for v in (*region.inputs, *(o for e in region.eqns for o in e.outputs)):
            extents.update({(v, d): n for d, n in enumerate(v.aval.shape)})
        for k, form in enumerate(region.forms):
            if isinstance(form, Contract):
                extents.update({(k, d): n for d, n in enumerate(form.lhs.domain)})
        related = sections(region)
        self._cuts = Cuts(extents, related, divided(region))
        for holder, d in extents:
            for stride, extent in self._cuts.of((holder, d)):
                node = holder, d, stride
                self._parent[node] = node
                self._members[node] = {holder: (d, stride)}
                self._extent[node] = extent
        for s in related:
            for large, small in aligned(s, self._cuts):
                self._union((*s.large, large), (*s.small, small))

    def _find(self, node: _Node) -> _Node:
        parent = self._parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def _union(self, a: _Node, b: _Node) -> None:
        """Give both atoms one name if their extents agree and no array gets one name twice."""
        a, b = self._find(a), self._find(b)
        if a == b or not same(self._extent[a], self._extent[b]):
            return
        small, large = sorted((a, b), key=lambda n: len(self._members[n]))
        into, moved = self._members[large], self._members[small]
        if any(into.get(h, k) != k for h, k in moved.items()):
            return
        into.update(moved)
        self._parent[small] = large

    def axes(self, holder: Holder, d: int) -> tuple[Axis, ...]:
        """The axes of a dim, outermost first. Names follow the order of first use."""
        return tuple([self._axis((holder, d, s)) for s, _ in self._cuts.of((holder, d))])

    def _axis(self, node: _Node) -> Axis:
        node = self._find(node)
        if node not in self._names:
            axis = Axis(f"a{len(self._names)}", self._extent[node])
            self._names[node] = self.known[axis.name] = axis
        return self._names[node]

    def parts(self, holder: Holder, d: int, coord: Dim) -> tuple[Dim, ...]:
        """The coordinate in a dim as coordinates in its axes."""
        atoms = self._cuts.of((holder, d))
        if len(atoms) == 1:
            return (coord,)
        outer = floor_divide(coord, atoms[0][0])
        inner = [remainder(floor_divide(coord, s), n) for s, n in atoms[1:]]
        return (outer, *inner)

    def fresh(self, extent: Dim) -> Axis:
        """An axis that no dim has."""
        self._fresh += 1
        axis = self.known[f"b{self._fresh}"] = Axis(f"b{self._fresh}", extent)
        return axis


def number(axes: Sequence[Axis]) -> Dim:
    """The coordinate of a dim that consists of these axes; 0 for an axis with one element."""
    total: Dim = 0
    for a in axes:
        step = 0 if isinstance(a.extent, int) and a.extent == 1 else axis_symbol(a)
        total = total * a.extent + step
    return total
