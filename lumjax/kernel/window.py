"""Operands that windows read: copied once into memory in which the windows are plain strides.

A convolution reads x[2 * i + k] for many (i, k) with the same sum. The copy has one dim u = 2 * i +
k in place of both axes, so it is no larger than what is read; padding is written into it, and the
columns of the contraction lie side by side in it, where a stride is split by residue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product

from lumjax import dtype as dt
from lumjax.kernel.emit import CAST, Emitter, Scope, least_stride, unit_strides
from lumjax.kernel.ir import ApplyValue, LoopKind, StoreStmt
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol, rebuild, rewrite
from lumjax.kernel.share import extent
from lumjax.kernel.term import Axis, Buffer, Load, Reduction, Term, free_names, loads, subterms
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

_GAIN = 1.5  # a copy must be this much smaller than what the windows read
_SHARE = 1 << 15  # elements that a job copies


@record
class Window:
    """Axes that a term knows only through u = inner + step * outer + shift. `within` is the window
    that is the inner axis, if it is one.
    """

    u: Axis
    outer: Axis
    inner: Axis
    step: int
    shift: int
    within: Window | None = None

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All that u stands for."""
        return (self.outer, *(self.within.axes if self.within else (self.inner,)))

    @property
    def inside(self) -> Dim:
        """The coordinate along the inner axis."""
        return self.within.at if self.within else axis_symbol(self.inner)

    @property
    def at(self) -> Dim:
        """The coordinate u."""
        return self.inside + self.step * axis_symbol(self.outer) + self.shift


@record
class Dimension:
    """A dim of the copy: the axis along which it is filled, and where a load finds its element."""

    axis: Axis
    at: Dim


def windows(emitter: Emitter, term: Term, axes: Sequence[Axis]) -> tuple[Term, list[Window]]:
    """The term in the coordinates of its windows, and these; each axis is in one at most."""
    found: list[Window] = []
    taken: set[str] = set()
    for outer, inner in permutations(axes, 2):
        if {outer.name, inner.name} & taken:
            continue
        made = _through(emitter, term, outer, inner)
        if made is not None:
            term, window = made
            found.append(window)
            taken |= {outer.name, inner.name}
    # places that are pooled in turn are two axes: windows of these
    for k, outer in product(range(len(found)), axes):
        made = None if outer.name in taken else _through(emitter, term, outer, found[k].u)
        if made is not None:
            term, found[k] = made[0], replace(made[1], within=found[k])
            taken.add(outer.name)
    return term, found


def _through(emitter: Emitter, term: Term, outer: Axis, inner: Axis) -> tuple[Term, Window] | None:
    """The term in the coordinate of the window that two axes make, if that is all it knows."""
    window = _window(emitter, term, outer, inner)
    if window is None:
        return None
    back = axis_symbol(window.u) - window.step * axis_symbol(outer) - window.shift
    names: dict[str, Dim] = {inner.name: back}
    moved = rewrite(term, lambda t, kids: rebuild(t, kids, names), {})
    return None if outer.name in free_names(moved) else (moved, window)


def _window(emitter: Emitter, term: Term, outer: Axis, inner: Axis) -> Window | None:
    """The window that two axes would make, by the strides with which loads walk them."""
    many, few = outer.extent, inner.extent
    if not isinstance(many, int) or not isinstance(few, int):
        return None
    steps: set[int | None] = set()
    for t in loads(term):
        names = free_names(t)
        if outer.name in names or inner.name in names:
            steps.add(_ratio(emitter, t.coords[0], outer.name, inner.name))
    if len(steps) != 1:
        return None
    (step,) = steps
    if step is None or abs(step) >= few:  # they overlap
        return None
    shift = -step * (many - 1) if step < 0 else 0
    u = Axis(emitter.fresh("u"), few + abs(step) * (many - 1))
    return Window(u, outer, inner, step, shift)


def _ratio(emitter: Emitter, at: Dim, outer: str, inner: str) -> int | None:
    """How many steps of one axis a step of the other one is."""
    far, near = dims.coefficient(at, outer), dims.coefficient(at, inner)
    if far is None or near is None:
        return None
    many, one = emitter.size(far), emitter.size(near)
    if not many or not one or many % one or not dims.same(far, near * (many // one)):
        return None
    return many // one


def copied(
    emitter: Emitter,
    term: Term,
    dtype: dt.DType,
    outside: Sequence[Axis],
    inside: Sequence[Axis],
    column: Axis,
) -> Load | None:
    """Append a phase that copies an operand with windows, and load it from there.

    The dims are the axes `outside`, the windows, the axes `inside`, then `column`; in the order
    that they have in memory if `column` lies there without gaps. None where there are no windows,
    or they hardly overlap.
    """
    names = free_names(term)
    if column.name not in names or any(_special(t) for t in subterms(term)):
        return None
    axes = [a for a in (*outside, *inside, column) if a.name in names]
    moved, found = windows(emitter, term, axes)
    of = {a.name: w for w in found for a in w.axes}
    single = [a for a in axes if a.name not in of]
    if extent(emitter, axes) < _GAIN * extent(emitter, (*single, *(w.u for w in found))):
        return None
    last = of.get(column.name)
    if last is None and unit_strides([moved], column):
        between = [Dimension(a, axis_symbol(a)) for a in single if a is not column]
        between += [Dimension(w.u, w.at) for w in found]
        between.sort(key=lambda d: least_stride([moved], d.axis), reverse=True)
        return _copy(emitter, moved, dtype, [*between, Dimension(column, axis_symbol(column))])
    kept = [Dimension(a, axis_symbol(a)) for a in outside if a in single]
    kept += [Dimension(w.u, w.at) for w in found if w is not last]
    kept += [Dimension(a, axis_symbol(a)) for a in inside if a in single]
    if last is None:
        kept.append(Dimension(column, axis_symbol(column)))
    elif last.outer is column and abs(last.step) > 1:
        moved, split = _by_residue(emitter, moved, last)
        kept += split
    else:
        kept.append(Dimension(last.u, last.at))
    return _copy(emitter, moved, dtype, kept)


def _copy(emitter: Emitter, moved: Term, dtype: dt.DType, kept: Sequence[Dimension]) -> Load:
    """Append a phase that fills a buffer with these dims, and load the operand from there."""
    shape = tuple(d.axis.extent for d in kept)
    buffer = emitter.temporary(math.prod(shape, start=1), dtype)
    _fill(emitter, moved, buffer, [d.axis for d in kept])
    return Load(buffer, (offset(shape, [d.at for d in kept]),))


def relaid(emitter: Emitter, term: Term, dtype: dt.DType, order: Sequence[Axis]) -> Load:
    """Append a phase that copies an operand in the order of these axes, and load it from there."""
    buffer = emitter.temporary(math.prod(_shape(order), start=1), dtype)
    _fill(emitter, term, buffer, order)
    return Load(buffer, (offset(_shape(order), map(axis_symbol, order)),))


def _special(term: Term) -> bool:
    return isinstance(term, Reduction) or (isinstance(term, Load) and bool(term.indices))


def _by_residue(emitter: Emitter, term: Term, window: Window) -> tuple[Term, list[Dimension]]:
    """The column's window in two dims, such that neighbouring columns are neighbours."""
    stride, long = abs(window.step), window.u.extent
    assert isinstance(long, int), "windows have constant extents"
    inner, outer = window.inside, axis_symbol(window.outer)
    forward = outer if window.step > 0 else _last(window.outer) - outer
    rest = Axis(emitter.fresh("u"), stride)
    quotient = Axis(emitter.fresh("u"), -(-long // stride))
    end = dims.floor_divide(long - 1 - axis_symbol(rest), stride) + 1
    emitter.ranges[quotient.name] = (0, end)
    place = stride * axis_symbol(quotient) + axis_symbol(rest)
    names: dict[str, Dim] = {window.u.name: place}
    moved = rewrite(term, lambda t, kids: rebuild(t, kids, names), {})
    at = forward + dims.floor_divide(inner, stride)
    return moved, [Dimension(rest, dims.remainder(inner, stride)), Dimension(quotient, at)]


def _last(axis: Axis) -> int:
    assert isinstance(axis.extent, int), "windows have constant extents"
    return axis.extent - 1


def _fill(emitter: Emitter, term: Term, buffer: Buffer, order: Sequence[Axis]) -> None:
    """The phase that fills a copy, its rows shared out to jobs."""
    *outer, last = order
    top = Scope(bound={job := emitter.fresh("job")})
    points = math.prod((a.extent for a in outer), start=1)
    chunk = emitter.chunk(max(1, _SHARE // max(1, extent(emitter, [last]))))
    begin = dims.symbol(job) * chunk
    end = dims.minimum(begin + chunk, points)
    with top.loop(flat := emitter.fresh("p"), end, begin=begin) as row:
        emitter.decode(outer, dims.symbol(flat, 0, points - 1), row)

        def fill(scope: Scope) -> None:
            value = emitter.value(term, scope)
            if value.dtype != buffer.dtype:
                value = ApplyValue(CAST, (value,), buffer.dtype)
            scope.add(StoreStmt(buffer, offset(_shape(order), map(axis_symbol, order)), value))

        emitter.nest([last], row, LoopKind.VECTOR, fill)
    emitter.phase(job, dims.ceiling_divide(points, chunk), top)
    emitter.ranges.pop(last.name, None)


def _shape(order: Sequence[Axis]) -> tuple[Dim, ...]:
    return tuple(a.extent for a in order)
