"""Values that never leave their regions: too large to store for what they are.

A contraction may make an array far larger than its operands, whose rows are rescaled by statistics
of their own and then contracted away: only a pass that holds it tile by tile keeps memory linear.
Such an array, and everything elementwise around it (a family), is computed again in every region
that reads it, from the operands and the row statistics, which are small and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from lumjax.trace.core import Atom, Eqn, Var
from lumjax.trace.dim import Dim, Expr, IndexOp, same, symbols
from lumjax.trace.form import Contract, Form, Gather, Map, Move, Reduce, Scatter
from lumjax.trace.view import IndexMap

_SHORT = 256  # a reduced extent up to which computing an element again is cheap
_LONGER = 2  # how many times longer than that extent the rows must be; more where it is not short
_MUCH_LONGER = 8
_SHORT_ROWS = 256  # rows that one job holds whole: see resident.py
_HELD = 1 << 15  # such a row by that extent, at most
_SMALLER = 4  # how many times smaller than what it becomes in a contraction a family may be
_SMALLER_HELD = 16  # the same of rows that are held
_FAMILIES = 8  # a statistic of more families than this is one of the whole program


@dataclass(slots=True)
class _Family:
    """Elementwise related values of one size, some of them made by contractions."""

    reduced: int = 0  # the longest reduced extent of its contractions
    apart: bool = True  # each contraction is many, of operands that share nothing
    rows: int = 0  # the longest row with a statistic that comes back to it
    rescaled: bool = False  # such a statistic is known, of all of it perhaps
    stays: bool = True
    members: list[int] = field(default_factory=list[int])


class Inside:
    """Finds the equations whose values stay inside.

    `below[k]` are the equations that make what equation k reads, `users[v]` those that read v;
    equations in `alone` are not compiled; `size` counts elements of a value, `volume` of a shape.
    """

    def __init__(
        self,
        eqns: Sequence[Eqn],
        forms: Sequence[Form],
        alone: Sequence[bool],
        below: Sequence[Sequence[int]],
        users: Mapping[Var, Sequence[int]],
        size: Callable[[Atom], int],
        volume: Callable[[Sequence[Dim]], int],
    ) -> None:
        self.eqns, self.forms, self.alone = eqns, forms, alone
        self.below, self.users, self.size, self.volume = below, users, size, volume
        self.parent = list(range(len(eqns)))
        self.families: dict[int, _Family] = {}

    def rescaled(self) -> list[bool]:
        """After `find`: for each equation whether its value is of a family to which statistics of
        its own come back.
        """
        known = {f for f, family in self.families.items() if family.rescaled}
        return [self._root(k) in known for k in range(len(self.eqns))]

    def find(self, outputs: Set[Var]) -> list[int | None]:
        """For each equation whose value stays inside the number of its family, None for others;
        `outputs` are wanted by the program.
        """
        self._gather_families()
        if self.families:
            self._find_statistics()
        for family in self.families.values():
            longer = _LONGER if family.reduced <= _SHORT else _MUCH_LONGER
            long = family.rows >= longer * family.reduced
            short = 0 < family.rows <= _SHORT_ROWS and family.rows * family.reduced <= _HELD
            held = not long and short and family.apart
            smaller = _SMALLER_HELD if held else _SMALLER
            family.stays = (long or held) and all(
                self._may_stay(k, outputs, smaller) for k in family.members
            )
        roots = map(self._root, range(len(self.eqns)))
        return [r if r in self.families and self.families[r].stays else None for r in roots]

    # ---- families

    def _root(self, k: int) -> int:
        parent = self.parent
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    def _gather_families(self) -> None:
        for k, eqn in enumerate(self.eqns):
            if self.alone[k] or not isinstance(self.forms[k], (Map, Move, Scatter)):
                continue
            own = self.size(eqn.outputs[0])
            for made in self.below[k]:
                other = self.size(self.eqns[made].outputs[0])
                if not self.alone[made] and own <= 2 * other and other <= 2 * own:
                    self.parent[self._root(made)] = self._root(k)
        for k, form in enumerate(self.forms):
            if isinstance(form, Contract) and not self.alone[k]:
                family = self.families.setdefault(self._root(k), _Family())
                extents = form.lhs.domain[len(form.lhs.domain) - form.reduced :]
                family.reduced = max(family.reduced, self.volume(extents))
                family.apart &= _apart(form)
        for k in range(len(self.eqns)):
            family = self.families.get(self._root(k))
            if family is not None:
                family.members.append(k)

    # ---- statistics

    def _find_statistics(self) -> None:
        """Follow reductions of families through small values back into the same family."""
        # By equation: families and the rows' lengths, 0 for statistics of all of a family.
        origins: dict[int, dict[int, int]] = {}
        for k in range(len(self.eqns)):
            if self.alone[k] or isinstance(self.forms[k], (Contract, Gather)):
                continue
            found: dict[int, int] = {}
            for made in self.below[k]:
                for f, rows in origins.get(made, {}).items():
                    found[f] = max(rows, found.get(f, 0))
            own = self._root(k)
            family = self.families.get(own)
            if family is not None:
                family.rows = max(family.rows, found.get(own, 0))
                family.rescaled |= own in found
                continue
            if isinstance(self.forms[k], Reduce):
                self._start(k, found)
            if len(found) > _FAMILIES:
                found = {f: rows for f, rows in found.items() if rows}
            if found and len(found) <= _FAMILIES:
                origins[k] = found

    def _start(self, k: int, found: dict[int, int]) -> None:
        (out,) = self.eqns[k].outputs
        for made in self.below[k]:
            f = self._root(made)
            if f in self.families:
                whole = self.size(self.eqns[made].outputs[0])
                rows = whole // self.size(out) if self.size(out) > 1 else 0
                found[f] = max(rows, found.get(f, 0))

    # ---- who reads them

    def _may_stay(self, k: int, outputs: Set[Var], smaller: int) -> bool:
        (v,) = self.eqns[k].outputs
        if v in outputs:
            return False
        return all(self._reads_tiles(v, u, smaller) for u in self.users.get(v, ()))

    def _reads_tiles(self, v: Var, user: int, smaller: int) -> bool:
        """Whether the user takes the value piece by piece."""
        if self.alone[user]:
            return False
        eqn, form = self.eqns[user], self.forms[user]
        if not isinstance(form, Contract):
            return True
        others = sum(self.size(a) for a in (*eqn.inputs, *eqn.outputs) if a is not v)
        maps = [m for a, m in zip(eqn.inputs, (form.lhs, form.rhs), strict=True) if a is v]
        return smaller * self.size(v) >= others and all(map(_is_plain, maps))


def _apart(form: Contract) -> bool:
    """Whether a contraction is many, of operands that share nothing."""
    kept = form.lhs.domain[: len(form.lhs.domain) - form.reduced]
    both = symbols(*form.lhs.coords) & symbols(*form.rhs.coords)
    return any(f"d{d}" in both for d, n in enumerate(kept) if not same(n, 1))


def _is_plain(m: IndexMap) -> bool:
    """Whether every coordinate is one of the domain's, or constant."""
    return all(isinstance(c, int) or _is_symbol(c) for c in m.coords)


def _is_symbol(coord: Expr) -> bool:
    return coord.op is IndexOp.SYMBOL
