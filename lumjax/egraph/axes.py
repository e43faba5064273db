"""Name the axes of a region: one name per class of dims that are one, so that values are shared.

Elementwise operations, reductions, views and contractions unify dims (union-find) wherever a dim of
an operand is read at exactly a dim of the result. A unification that would give two dims of one
array the same name is skipped; encoding then reads the array under other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from lumjax.kernel.region import Region
from lumjax.kernel.term import Axis
from lumjax.trace.core import Var
from lumjax.trace.dim import Dim, Expr, IndexOp, same, symbol
from lumjax.trace.form import Contract, Form, Gather, Map, Move, Reduce, Scatter
from lumjax.trace.view import IndexMap

# What has dims: a variable, or the k-th equation's domain (output dims, then reduced dims).
Holder: TypeAlias = Var | int


def axis_symbol(axis: Axis) -> Expr:
    """The symbol by which index expressions mention the axis."""
    return symbol(axis.name, 0, axis.extent - 1)


def domain_position(coord: Dim) -> int | None:
    """The k for which the coordinate is exactly the domain symbol d<k>."""
    if not isinstance(coord, Expr) or coord.op is not IndexOp.SYMBOL or coord.name is None:
        return None
    letter, digits = coord.name[0], coord.name[1:]
    return int(digits) if letter == "d" and digits.isdigit() else None


class AxisNames:
    """The axes of every variable's dims, and of every contraction's reduced dims."""

    def __init__(self, region: Region) -> None:
        self._parent: dict[tuple[Holder, int], tuple[Holder, int]] = {}
        self._members: dict[tuple[Holder, int], dict[Holder, int]] = {}
        self._extent: dict[tuple[Holder, int], Dim] = {}
        self._names: dict[tuple[Holder, int], Axis] = {}
        self._fresh = 0
        self.known: dict[str, Axis] = {}  # every axis so far, by name
        for v in (*region.inputs, *(o for e in region.eqns for o in e.outputs)):
            self._declare(v, v.aval.shape)
        steps = list(enumerate(zip(region.eqns, region.forms, strict=True)))
        for k, (eqn, form) in steps:
            self._unify_plain(
                k, [a if isinstance(a, Var) else None for a in eqn.inputs], form, eqn.outputs[0]
            )
        for k, (eqn, form) in steps:
            self._unify_maps(
                k, [a if isinstance(a, Var) else None for a in eqn.inputs], form, eqn.outputs[0]
            )

    def _declare(self, holder: Holder, extents: Sequence[Dim]) -> None:
        for k, extent in enumerate(extents):
            node = (holder, k)
            self._parent[node] = node
            self._members[node] = {holder: k}
            self._extent[node] = extent

    def _find(self, node: tuple[Holder, int]) -> tuple[Holder, int]:
        parent = self._parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def _union(self, a: tuple[Holder, int], b: tuple[Holder, int]) -> None:
        """Give both dims one name if their extents agree and no array gets one name twice."""
        a, b = self._find(a), self._find(b)
        if a == b or not same(self._extent[a], self._extent[b]):
            return
        small, large = sorted((a, b), key=lambda n: len(self._members[n]))
        into, moved = self._members[large], self._members[small]
        if any(into.get(h, k) != k for h, k in moved.items()):
            return
        into.update(moved)
        self._parent[small] = large

    def _unify_plain(self, k: int, operands: Sequence[Var | None], form: Form, out: Var) -> None:
        match form:
            case Map() | Scatter():
                for v in operands[: 1 if isinstance(form, Scatter) else None]:
                    for d in range(out.aval.ndim if v else 0):
                        self._union((out, d), (v, d))  # type: ignore[arg-type]
            case Reduce(axes=axes):
                (v,) = operands
                kept = [d for d in range(v.aval.ndim if v else 0) if d not in axes]
                for d, source in enumerate(kept):
                    self._union((out, d), (v, source))  # type: ignore[arg-type]
            case Contract(lhs=lhs):
                self._declare(k, lhs.domain)
                for d in range(out.aval.ndim):
                    self._union((out, d), (k, d))
            case _:
                pass

    def _unify_maps(self, k: int, operands: Sequence[Var | None], form: Form, out: Var) -> None:
        match form:
            case Move(maps=maps):
                for v, m in zip(operands, maps, strict=False):
                    self._follow(out, v, m)
            case Contract(lhs=lhs, rhs=rhs):
                self._follow(k, operands[0], lhs)
                self._follow(k, operands[1], rhs)
            case Gather(operand=operand, index_maps=index_maps):
                self._follow(out, operands[0], operand)
                for m in index_maps:
                    self._follow(out, operands[1], m)
            case Scatter(update=update, index_maps=index_maps):
                self._follow(out, operands[2], update)
                for m in index_maps:
                    self._follow(out, operands[1], m)
            case _:
                pass

    def _follow(self, domain: Holder, operand: Var | None, index_map: IndexMap) -> None:
        if operand is None:
            return
        for k, coord in enumerate(index_map.coords):
            position = domain_position(coord)
            if position is not None:
                self._union((domain, position), (operand, k))

    def axis(self, holder: Holder, k: int) -> Axis:
        """The axis of the k-th dim. Names follow the order of first use."""
        node = self._find((holder, k))
        if node not in self._names:
            axis = Axis(f"a{len(self._names)}", self._extent[node])
            self._names[node] = self.known[axis.name] = axis
        return self._names[node]

    def fresh(self, extent: Dim) -> Axis:
        """An axis that no dim has."""
        self._fresh += 1
        axis = self.known[f"b{self._fresh}"] = Axis(f"b{self._fresh}", extent)
        return axis
