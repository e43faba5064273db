"""Recompute rather than store: which cheap values other regions compute again for themselves.

A value that crosses regions is written once and read by each user. Where its cone of elementwise
equations starts from values that cross anyway (or are small, or inputs of the program), computing
it again moves fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lumjax.record import record
from lumjax.trace.core import Atom, Eqn, Var
from lumjax.trace.form import Contract, Form, Iota, Map, Move, Size

_CONE = 24  # equations in a cone that is recomputed
_BYTES_PER_FLOP = 0.2  # what computing costs, in bytes moved
_WORTH = 0.9  # recompute if it costs less than this part of what storing costs


@dataclass(slots=True)
class Parts:
    """Equations by region: `members[n]` are region n's own and its clones; `alone` ones stay, and
    values `inside` are never stored.
    """

    eqns: Sequence[Eqn]
    forms: Sequence[Form]
    maker: Mapping[Var, int]
    outputs: frozenset[Var]
    members: list[set[int]]
    alone: Sequence[bool]
    inside: Sequence[bool]
    size: Callable[[Atom], int]  # bytes


@record
class _Cone:
    """Equations to clone, what they start from, and flops per element of the result."""

    eqns: frozenset[int]
    leaves: tuple[Var, ...]
    flops: float


def recompute(parts: Parts) -> None:
    """Add clones to `members` where that moves fewer bytes."""
    _Recompute(parts).run()


class _Recompute:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.users: dict[Var, set[int]] = {}  # regions that read a value from outside
        self.fixed: set[Var] = set(parts.outputs)  # values that must be stored whatever we do
        for n, members in enumerate(parts.members):
            for k in members:
                self._read(n, k)

    def _read(self, n: int, k: int) -> None:
        """Region n reads what its equation k takes from outside."""
        inside = self.parts.members[n]
        for v in self._inputs(k):
            if self.parts.maker.get(v) in inside:
                continue
            self.users.setdefault(v, set()).add(n)
            if self.parts.alone[k] or isinstance(self.parts.forms[k], Contract):
                self.fixed.add(v)

    def _inputs(self, k: int) -> list[Var]:
        return [a for a in self.parts.eqns[k].inputs if isinstance(a, Var)]

    def run(self) -> None:
        """Later values first: what they start from may be recomputed in turn."""
        for k in reversed(range(len(self.parts.eqns))):
            if self.parts.alone[k] or not isinstance(self.parts.forms[k], Map):
                continue
            (v,) = self.parts.eqns[k].outputs
            users = self.users.get(v)
            if users and v not in self.fixed:
                cone = self._cone(k)
                if cone is not None and self._pays(v, users, cone):
                    self._clone(v, sorted(users), cone)

    def _stored(self, v: Var) -> bool:
        return v in self.fixed or bool(self.users.get(v))

    def _cone(self, k: int) -> _Cone | None:
        """The elementwise cone of equation k down to stored values."""
        eqns: set[int] = set()
        leaves: dict[Var, None] = {}
        flops = 0.0
        stack = [k]
        while stack:
            k = stack.pop()
            if k in eqns:
                continue
            eqns.add(k)
            form = self.parts.forms[k]
            flops += form.op.flops if isinstance(form, Map) else 0.0
            if len(eqns) > _CONE:
                return None
            for v in self._inputs(k):
                made = self.parts.maker.get(v)
                if made is None or self._stored(v) or not self._cloneable(made):
                    leaves[v] = None
                else:
                    stack.append(made)
        return _Cone(frozenset(eqns), tuple(leaves), flops)

    def _cloneable(self, k: int) -> bool:
        match self.parts.forms[k]:
            case Map() | Iota() | Size() | Move(maps=(_,)):
                return not self.parts.alone[k]
            case _:
                return False

    def _pays(self, v: Var, users: set[int], cone: _Cone) -> bool:
        size = self.parts.size
        elements = size(v) // v.aval.dtype.itemsize
        cost = len(users) * elements * cone.flops * _BYTES_PER_FLOP
        for leaf in cone.leaves:
            made = self.parts.maker.get(leaf)
            if made is not None and self.parts.inside[made]:
                return False
            if made is not None and not self._stored(leaf):
                cost += size(leaf)
            readers = self.users.get(leaf, set())
            missing = [n for n in users if n not in readers and made not in self.parts.members[n]]
            cost += len(missing) * size(leaf)
        return cost < _WORTH * size(v) * (1 + len(users))

    def _clone(self, v: Var, users: Sequence[int], cone: _Cone) -> None:
        del self.users[v]
        for n in users:
            self.parts.members[n] |= cone.eqns
            for k in cone.eqns:
                self._read(n, k)
