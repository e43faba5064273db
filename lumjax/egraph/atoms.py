"""Factor the dims of a region into atoms, so that reshapes neither divide nor multiply coordinates.

A reshape that splits a dim (or merges several) says that one dim is a section of another: its steps
are strides of the larger one. Such strides are cuts; they spread to every dim that is related to a
cut one, and dims between cuts become axes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from lumjax.kernel.region import Region
from lumjax.record import record
from lumjax.trace.core import Var
from lumjax.trace.dim import Dim, Expr, IndexOp, coefficient, same, symbols
from lumjax.trace.form import Contract, Gather, Map, Move, Reduce, Scatter
from lumjax.trace.view import IndexMap

# What has dims: a variable, or the k-th equation's domain (output dims, then reduced dims).
Holder: TypeAlias = Var | int
Place: TypeAlias = tuple[Holder, int]  # a dim


@record
class Section:
    """large = higher + stride * small + lower + offset, where higher is a multiple of stride *
    extent(small), and 0 <= lower < stride. `ends` says that the large dim may be cut above it.
    """

    large: Place
    small: Place
    stride: int = 1
    offset: int = 0
    ends: bool = True


def domain_position(coord: Dim) -> int | None:
    """The k for which the coordinate is exactly the domain symbol d<k>."""
    if not isinstance(coord, Expr) or coord.op is not IndexOp.SYMBOL or coord.name is None:
        return None
    letter, digits = coord.name[0], coord.name[1:]
    return int(digits) if letter == "d" and digits.isdigit() else None


def sections(region: Region) -> list[Section]:
    """How the region's dims are sections of each other: same dims first, then views."""
    plain: list[Section] = []
    views: list[Section] = []
    for k, (eqn, form) in enumerate(zip(region.eqns, region.forms, strict=True)):
        operands = [a if isinstance(a, Var) else None for a in eqn.inputs]
        out = eqn.outputs[0]
        match form:
            case Map() | Scatter():
                for v in operands[: 1 if isinstance(form, Scatter) else None]:
                    plain += [Section((out, d), (v, d)) for d in range(v.aval.ndim if v else 0)]  # type: ignore[arg-type]
            case Reduce(axes=axes):
                (v,) = operands
                kept = [d for d in range(v.aval.ndim if v else 0) if d not in axes]
                plain += [Section((out, d), (v, s)) for d, s in enumerate(kept)]  # type: ignore[arg-type]
            case Contract():
                plain += [Section((out, d), (k, d)) for d in range(out.aval.ndim)]
            case _:
                pass
        for holder, v, m in _maps(k, operands, form, out):
            if v is not None:
                views += _view(holder, v, m)
    return plain + views


def divided(region: Region) -> list[tuple[Place, int]]:
    """The dims that coordinates divide within sums (groups of a convolution), and by what."""
    found: dict[tuple[Place, int], None] = {}
    for k, (eqn, form) in enumerate(zip(region.eqns, region.forms, strict=True)):
        operands = [a if isinstance(a, Var) else None for a in eqn.inputs]
        for holder, _, m in _maps(k, operands, form, eqn.outputs[0]):
            for part in (p for c in m.coords for p in _parts(c)):
                split = _split(part)
                if split is not None and split[1] > 1:
                    found[(holder, split[0]), split[1]] = None
    return list(found)


def _parts(coord: Dim) -> Iterator[Expr]:
    """The coordinate and every expression in it."""
    if isinstance(coord, Expr):
        yield coord
        for a in coord.args:
            yield from _parts(a)


def _maps(
    k: int, operands: Sequence[Var | None], form: object, out: Var
) -> list[tuple[Holder, Var | None, IndexMap]]:
    """(what the domain's dims belong to, operand, map) of every view in a form."""
    match form:
        case Move(maps=maps):
            return [(out, v, m) for v, m in zip(operands, maps, strict=False)]
        case Contract(lhs=lhs, rhs=rhs):
            return [(k, operands[0], lhs), (k, operands[1], rhs)]
        case Gather(operand=operand, index_maps=index_maps):
            return [(out, operands[0], operand), *((out, operands[1], m) for m in index_maps)]
        case Scatter(update=update, index_maps=index_maps):
            return [(out, operands[2], update), *((out, operands[1], m) for m in index_maps)]
        case _:
            return []


def _view(domain: Holder, operand: Var, m: IndexMap) -> list[Section]:
    """The sections that a map's coordinates show."""
    found: list[Section] = []
    for k, coord in enumerate(m.coords):
        if isinstance(coord, int):
            continue
        position = domain_position(coord)
        if position is not None:
            found.append(Section((operand, k), (domain, position), ends=False))
            continue
        split = _split(coord)
        if split is not None:
            position, stride = split
            found.append(Section((domain, position), (operand, k), stride))
            continue
        found += _merged(domain, m.domain, (operand, k), coord)
    return found


def _split(coord: Expr) -> tuple[int, int] | None:
    """(k, s) for d<k> // s, d<k> % n and (d<k> // s) % n."""
    if coord.op is IndexOp.MOD and isinstance(coord.args[1], int):
        inner = coord.args[0]
        position = domain_position(inner)
        if position is not None:
            return position, 1
        coord = inner if isinstance(inner, Expr) else coord
    if coord.op is IndexOp.FLOORDIV and isinstance(coord.args[1], int):
        position = domain_position(coord.args[0])
        return None if position is None else (position, coord.args[1])
    return None


def _merged(domain: Holder, extents: Sequence[Dim], large: Place, coord: Expr) -> list[Section]:
    """Sections of a coordinate that is a mixed radix number of the domain's symbols."""
    parts: list[tuple[int, int, int]] = []  # stride, extent, position
    rest: Dim = coord
    for name in sorted(symbols(coord)):
        k = int(name[1:]) if name[0] == "d" and name[1:].isdigit() else -1
        stride = coefficient(coord, name) if 0 <= k < len(extents) else None
        extent = extents[k] if k >= 0 and k < len(extents) else 0
        if not isinstance(stride, int) or not isinstance(extent, int) or stride < 1:
            return []
        parts.append((stride, extent, k))
    parts.sort()
    step = 1
    for stride, extent, k in parts:
        if stride != step:
            return []
        step = stride * extent
        rest = rest - stride * _domain_symbol(coord, k)
    if not isinstance(rest, int):
        return []
    return [Section(large, (domain, k), stride, rest) for stride, _, k in parts]


def _domain_symbol(coord: Expr, k: int) -> Dim:
    """The symbol d<k> as it occurs in the coordinate."""
    stack = [coord]
    while stack:
        e = stack.pop()
        if e.op is IndexOp.SYMBOL and e.name == f"d{k}":
            return e
        stack += [a for a in e.args if isinstance(a, Expr)]
    raise AssertionError("the coordinate mentions the symbol")


class Cuts:
    """The strides at which each dim is cut; every one divides the next, and the last the extent."""

    def __init__(
        self,
        extents: dict[Place, Dim],
        related: Sequence[Section],
        divided: Sequence[tuple[Place, int]] = (),
    ) -> None:
        self.extents = extents
        self.cuts: dict[Place, set[int]] = {}
        self._atoms: dict[Place, list[tuple[int, Dim]]] = {}
        by_place: dict[Place, list[Section]] = {}
        for s in related:
            by_place.setdefault(s.large, []).append(s)
            by_place.setdefault(s.small, []).append(s)
        waiting = [p for s in related for p in self._first(s)]
        waiting += [p for place, cut in divided for p in self._add(place, cut)]
        while waiting:
            place = waiting.pop()
            for s in by_place.get(place, ()):
                waiting += self._spread(s, place)

    def _add(self, place: Place, cut: int) -> list[Place]:
        extent = self.extents[place]
        if not isinstance(extent, int) or cut <= 1 or cut >= extent or extent % cut:
            return []
        known = self.cuts.setdefault(place, set())
        if cut in known or any(cut % c and c % cut for c in known):
            return []
        known.add(cut)
        return [place]

    def _first(self, s: Section) -> list[Place]:
        """Cut where the section begins and ends."""
        extent = self.extents[s.small]
        found = self._add(s.large, s.stride) if s.offset % s.stride == 0 else []
        if isinstance(extent, int) and s.ends and s.offset == 0:
            found += self._add(s.large, s.stride * extent)
        return found

    def _spread(self, s: Section, place: Place) -> list[Place]:
        found: list[Place] = []
        extent = self.extents[s.small]
        if place == s.small:
            for cut in sorted(self.cuts.get(place, ())):
                if s.offset % (cut * s.stride) == 0:
                    found += self._add(s.large, cut * s.stride)
        if place == s.large and isinstance(extent, int):
            for cut in sorted(self.cuts.get(place, ())):
                if s.stride < cut < s.stride * extent and s.offset % cut == 0:
                    found += self._add(s.small, cut // s.stride)
        return found

    def of(self, place: Place) -> list[tuple[int, Dim]]:
        """(stride, extent) of the dim's atoms, outermost first."""
        if place not in self._atoms:
            extent = self.extents[place]
            atoms: list[tuple[int, Dim]] = [(1, extent)]
            if place in self.cuts and isinstance(extent, int):
                strides = [1, *sorted(self.cuts[place])]
                atoms = [(s, e // s) for s, e in zip(strides, [*strides[1:], extent], strict=True)]
            self._atoms[place] = atoms[::-1]
        return self._atoms[place]


def aligned(s: Section, cuts: Cuts) -> list[tuple[int, int]]:
    """The strides (in the large, in the small dim) of atoms that are one."""
    if s.offset or (s.stride == 1 and not _fits(s, cuts)):
        return []
    large = dict(cuts.of(s.large))
    return [
        (stride * s.stride, stride)
        for stride, extent in cuts.of(s.small)
        if stride * s.stride in large and same(large[stride * s.stride], extent)
    ]


def _fits(s: Section, cuts: Cuts) -> bool:
    """Whether a section of stride 1 is the whole dim, or ends at a cut."""
    large, small = cuts.extents[s.large], cuts.extents[s.small]
    return same(large, small) or small in cuts.cuts.get(s.large, ())
