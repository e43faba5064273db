"""Write a region as terms: pull-based, so that views vanish into the coordinates of loads.

`pull(value, coords)` is the term of a value at index expressions. A view substitutes coordinates,
an elementwise operation applies its scalar function, a reduction binds the operand's own axes. A
value that is pulled at several places, or whose recomputation there would cost more than reading
it, is stored under its own axes and loaded.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import TypeAlias, assert_never

import numpy as np

from lumjax import dtype as dt
from lumjax.egraph.axes import AxisNames, number
from lumjax.egraph.indices import bearing, index_of, reads_once
from lumjax.egraph.scalar import Operations, literal, zero
from lumjax.kernel.evaluate import identity
from lumjax.kernel.region import Region, volume
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Term,
    free_names,
)
from lumjax.record import record
from lumjax.trace.core import Atom, Eqn, Literal, Var
from lumjax.trace.dim import (
    Dim,
    Expr,
    IndexOp,
    bounds,
    coefficient,
    equal,
    less_equal,
    logical_and,
    maximum,
    minimum,
    same,
    substitute,
    symbol,
    symbols,
)
from lumjax.trace.expr import leaves
from lumjax.trace.form import (
    Barrier,
    Choose,
    Contract,
    Cumulate,
    Expand,
    Form,
    Gather,
    GatherMode,
    Iota,
    Map,
    Move,
    Opaque,
    Order,
    Patch,
    Reduce,
    ReduceOp,
    Repeat,
    Scatter,
    Size,
    Update,
)
from lumjax.trace.view import IndexMap

PUSHED = 64  # nodes of a cone that is recomputed through a view; larger ones are stored
_CHEAP = 3.0  # flops per element below which reading one element several times may recompute it


@record
class Encoded:
    """A region as terms. `outputs` come in the region's order; others load `stored` values."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Root, ...]
    stored: tuple[Root, ...]
    layout: Mapping[Term, tuple[Axis, ...]]  # the dims' order of the values that terms came from
    large: bool = False  # whether there are values that are too large to store for what they are

    @property
    def roots(self) -> tuple[Root, ...]:
        """All roots, outputs first."""
        return self.outputs + self.stored


@record
class _Pull:
    """A request: the value at `coords` where `valid` is nonzero (elsewhere nothing is read)."""

    atom: Atom
    coords: tuple[Dim, ...]
    valid: Dim = 1


_Job: TypeAlias = Generator[_Pull, Term, Term]


@record
class _Cone:
    """What recomputing a value takes, and whether the value itself is a reduction."""

    nodes: int
    flops: float
    reduces: bool


class _StoreError(Exception):
    """The value must be stored; encoding starts again."""

    def __init__(self, var: Var) -> None:
        self.var = var


def encode(region: Region, ops: Operations | None = None) -> Encoded:
    """The region's outputs (and the values that must be stored on the way) as roots."""
    ops = ops or Operations(region)
    stored: dict[Var, None] = {}
    while True:
        try:
            return _Encoder(region, ops, tuple(stored)).run()
        except _StoreError as need:
            stored[need.var] = None


class _Encoder:
    def __init__(self, region: Region, ops: Operations, stored: Sequence[Var]) -> None:
        self.region = region
        self.ops = ops
        self.names = AxisNames(region)
        self.own: dict[Var, tuple[Dim, ...]] = {}
        self.maker = {e.outputs[0]: k for k, e in enumerate(region.eqns)}
        self.buffers = {v: _buffer(f"i{k}", v) for k, v in enumerate(region.inputs)}
        outputs = frozenset(region.outputs)
        self.temporaries = {
            v: self._made(f"s{k}", v) for k, v in enumerate(stored) if v not in outputs
        }
        self.outputs = {v: self._made(f"o{k}", v) for k, v in enumerate(region.outputs)}
        self.loaded = {**self.buffers, **self.temporaries}
        self.loaded.update({v: self.outputs[v] for v in stored if v in self.outputs})
        self.memo: dict[_Pull, Term] = {}
        self.asked: dict[Var, tuple[Dim, ...]] = {}
        self.few: dict[Var, dict[tuple[Dim, ...], int]] = {}  # steps taken again for few elements
        self.bindings: dict[str, Term] = {}
        self.binding_names: dict[Term, str] = {}
        self.layout: dict[Term, tuple[Axis, ...]] = {}
        self.cones = self._cones()

    def _cones(self) -> dict[Var, _Cone]:
        """Every value's cone, down to loads and (below the value itself) reductions."""
        cones: dict[Var, _Cone] = {}
        for eqn, form in zip(self.region.eqns, self.region.forms, strict=True):
            nodes, flops = 1, form.op.flops if isinstance(form, Map) else 0.0
            for v in dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var)):
                below = cones.get(v)
                if below is not None and v not in self.loaded and not below.reduces:
                    nodes, flops = nodes + below.nodes, flops + below.flops
                else:
                    nodes += 1
            cones[eqn.outputs[0]] = _Cone(nodes, flops, isinstance(form, (Reduce, Contract)))
        return cones

    def run(self) -> Encoded:
        roots: list[Root] = []
        targets = {**self.outputs, **self.temporaries}
        for v, buffer in targets.items():
            axes = self._own_axes(v)
            root = Root(buffer, axes, self._root_term(v))
            self.layout.setdefault(root.term, tuple(a for a in axes if not _is(a.extent, 1)))
            roots.append(root)
        n = len(self.outputs)
        return Encoded(
            tuple(self.buffers.values()),
            tuple(roots[:n]),
            tuple(roots[n:]),
            self.layout,
            bool(self.region.inside),
        )

    def _root_term(self, v: Var) -> Term:
        if not volume(v.aval.shape):
            return zero(v.aval.dtype)
        return self._drive(_Pull(v, self._own_coords(v)))

    # ---- axes

    def _own_axes(self, v: Var) -> tuple[Axis, ...]:
        return tuple(a for d in range(v.aval.ndim) for a in self.names.axes(v, d))

    def _own_coords(self, v: Var) -> tuple[Dim, ...]:
        if v not in self.own:
            self.own[v] = tuple(number(self.names.axes(v, d)) for d in range(v.aval.ndim))
        return self.own[v]

    def _made(self, name: str, v: Var) -> Buffer:
        """A buffer for a value that the region makes: a dim for each axis."""
        return Buffer(name, tuple(a.extent for a in self._own_axes(v)), v.aval.dtype)

    def _binders(self, axes: Sequence[Axis], taken: frozenset[str]) -> tuple[Axis, ...]:
        """The axes a reduction binds: these, renamed where the surroundings mention them."""
        return tuple(self.names.fresh(a.extent) if a.name in taken else a for a in axes)

    # ---- pulling, without Python recursion

    def _drive(self, request: _Pull) -> Term:
        stack = [] if request in self.memo else [(request, self._job(request))]
        answer: Term | None = None
        while stack:
            asked, job = stack[-1]
            try:
                wanted = next(job) if answer is None else job.send(answer)
            except StopIteration as done:
                answer = self.memo[asked] = done.value
                self._note(asked, done.value)
                stack.pop()
                continue
            answer = self.memo.get(wanted)
            if answer is None:
                stack.append((wanted, self._job(wanted)))
        return self.memo[request]

    def _note(self, asked: _Pull, term: Term) -> None:
        """Remember in which order a value that is pulled at plain axes has them."""
        if term in self.layout:
            return
        axes: list[Axis] = []
        for coord, extent in zip(asked.coords, asked.atom.aval.shape, strict=True):
            found = self._axes_of(coord, extent)
            if found is None:
                return
            axes += found
        if len({a.name for a in axes}) == len(axes) and free_names(term) <= {a.name for a in axes}:
            self.layout[term] = tuple(axes)

    def _axes_of(self, coord: Dim, extent: Dim) -> list[Axis] | None:
        """The axes that a coordinate enumerates all elements with, outermost first."""
        if _is(extent, 1):
            return []
        if isinstance(coord, Expr) and coord.op is IndexOp.SYMBOL and coord.name is not None:
            axis = self.names.known.get(coord.name)
            if axis is None or not same(axis.extent, extent):
                return None  # a gather, or only a part of the dim
            return [axis]
        axes = [self.names.known[n] for n in symbols(coord) if n in self.names.known]
        strides = {a: coefficient(coord, a.name) for a in axes}
        axes.sort(key=lambda a: s if isinstance(s := strides[a], int) else 0, reverse=True)
        whole = math.prod((a.extent for a in axes), start=1)
        return axes if axes and same(whole, extent) and same(coord, number(axes)) else None

    def _job(self, request: _Pull) -> _Job:
        atom = request.atom
        if isinstance(atom, Literal):
            return _constant(Lit(atom.aval.dtype, atom.value.tobytes()))
        inside = atom in self.maker
        if atom in self.loaded and not (inside and self._at_home(atom, request)):
            coords = request.coords
            if atom not in self.buffers:
                coords = tuple(
                    p for d, c in enumerate(coords) for p in self.names.parts(atom, d, c)
                )
            return _constant(self._load(self.loaded[atom], coords, request.valid))
        if not inside:
            raise AssertionError("a region uses a value that it neither reads nor makes")
        if atom not in self.loaded:
            self._judge(atom, request)
            valid = bearing(request.valid, request.coords, self._axes_behind)
            if self.cones[atom].reduces and not same(valid, request.valid):
                return _asked(_Pull(atom, request.coords, valid))  # it is the same at all places
        k = self.maker[atom]
        return self._make(k, self.region.eqns[k], self.region.forms[k], request)

    def _axes_behind(self, name: str) -> frozenset[str]:
        """The axes that a name in coordinates stands for, or is computed from."""
        if name in self.bindings:
            return free_names(self.bindings[name])
        return frozenset({name} & self.names.known.keys())

    def _at_home(self, v: Var, request: _Pull) -> bool:
        return _is(request.valid, 1) and not _differ(self._own_coords(v), request.coords)

    def _judge(self, v: Var, request: _Pull) -> None:
        """Raise where loading `v` is better than recomputing it at these coordinates."""
        cone = self.cones[v]
        if cone.reduces and self._reads_few(v, request):
            return
        first = self.asked.setdefault(v, request.coords) if cone.reduces else request.coords
        elsewhere = v not in self.region.inside and (
            _differ(first, request.coords) or self._shares(v, request)
        )
        if not elsewhere and not _differ(self._own_coords(v), request.coords):
            return
        gathered = symbols(*request.coords) & self.bindings.keys()
        read = self._places(request)
        repeated = read > (0.5 if gathered else 1.5) * volume(v.aval.shape)
        masked = not (gathered or cone.reduces or _is(request.valid, 1))
        if masked and reads_once(request.coords, self.names.known):
            repeated = False  # a piece of a concatenation
        dear = cone.reduces or cone.flops > _CHEAP
        if cone.nodes > PUSHED and v not in self.region.inside:
            raise _StoreError(v)
        if elsewhere or (repeated and dear):
            raise _StoreError(v)

    def _places(self, request: _Pull) -> int:
        """How many points the axes behind the coordinates have."""
        names = frozenset[str]().union(*map(self._axes_behind, symbols(*request.coords)))
        return volume([self.names.known[n].extent for n in sorted(names) if n in self.names.known])

    def _shares(self, v: Var, request: _Pull) -> bool:
        """Whether a sum over what is too large to store is one piece of something: masks spare no
        work, and what it sums would be computed for every piece.
        """
        made = self.region.eqns[self.maker[v]].inputs
        pieces = symbols(request.valid) - symbols(*request.coords)
        return bool(pieces) and any(a in self.region.inside for a in made)

    def _reads_few(self, v: Var, request: _Pull) -> bool:
        """Whether so little of a reduction is read (a diagonal) that to compute it anew takes fewer
        steps than there are elements to store; an output is stored anyway.
        """
        if v in self.outputs or not _differ(self._own_coords(v), request.coords):
            return False
        k = self.maker[v]
        form, whole = self.region.forms[k], volume(v.aval.shape)
        if isinstance(form, Contract):
            steps = volume(form.lhs.domain[v.aval.ndim :])
        else:
            steps = volume(self.region.eqns[k].inputs[0].aval.shape) // max(1, whole)
        few = self.few.setdefault(v, {})
        few[request.coords] = self._places(request) * steps
        return sum(few.values()) <= whole

    def _load(self, buffer: Buffer, coords: tuple[Dim, ...], valid: Dim) -> Load:
        fill = None if _is(valid, 1) else zero(buffer.dtype)
        return Load(buffer, coords, valid, fill, self._indices(*coords, valid))

    def _indices(self, *dims: Dim) -> tuple[tuple[str, Term], ...]:
        names = sorted(symbols(*dims) & self.bindings.keys())
        return tuple((n, self.bindings[n]) for n in names)

    def _bind(self, term: Term) -> Dim:
        """What stands for an integer term in coordinates: an expression of axes, or a symbol."""
        known = index_of(term)
        if known is not None:
            return known
        name = self.binding_names.setdefault(term, f"g{len(self.binding_names)}")
        self.bindings[name] = term
        return symbol(name, None, None)

    # ---- the forms

    def _make(self, k: int, eqn: Eqn, form: Form, request: _Pull) -> _Job:
        match form:
            case Map():
                return self._map(eqn, form, request)
            case Reduce():
                return self._reduce(eqn, form, request)
            case Iota(axis=axis):
                coord = request.coords[axis]
                return _constant(Index(coord, eqn.outputs[0].aval.dtype, self._indices(coord)))
            case Size(dim=dim):
                return _constant(Index(dim, eqn.outputs[0].aval.dtype))
            case Move():
                return self._move(eqn, form, request)
            case Contract():
                return self._contract(k, eqn, form, request)
            case Gather():
                return self._gather(eqn, form, request)
            case Scatter():
                return self._scatter(eqn, form, request)
            case (
                Expand() | Opaque() | Barrier() | Repeat() | Choose()
                | Update() | Cumulate() | Order() | Patch()
            ):  # fmt: skip
                raise AssertionError(f"{eqn.prim.name} cannot be in a region")
        assert_never(form)

    def _map(self, eqn: Eqn, form: Map, request: _Pull) -> _Job:
        args: list[Term] = []
        for atom in eqn.inputs:
            coords = request.coords if atom.aval.ndim else ()
            args.append((yield _Pull(atom, coords, request.valid)))
        return Apply(self.ops.of(eqn, form), tuple(args), eqn.outputs[0].aval.dtype)

    def _reduce(self, eqn: Eqn, form: Reduce, request: _Pull) -> _Job:
        (atom,) = eqn.inputs
        dtype = eqn.outputs[0].aval.dtype
        shape = atom.aval.shape
        if not isinstance(atom, Var) or any(_is(shape[d], 0) for d in form.axes):
            return (yield from self._reduce_constant(atom, form, dtype))
        reduced = [d for d in form.axes if not _is(shape[d], 1)]
        taken = symbols(*request.coords, request.valid)
        bound = {d: self._binders(self.names.axes(atom, d), taken) for d in reduced}
        inner = {d: number(axes) for d, axes in bound.items()}
        binders = [a for axes in bound.values() for a in axes]
        given = iter(request.coords)
        coords = tuple(
            inner.get(d, 0) if d in form.axes else next(given) for d in range(atom.aval.ndim)
        )
        body = yield _Pull(atom, coords, request.valid)
        return Reduction(form.op, frozenset(binders), body, dtype) if binders else body

    def _reduce_constant(self, atom: Atom, form: Reduce, dtype: dt.DType) -> _Job:
        """A reduction over no elements, or (rank 0) over one."""
        if any(_is(atom.aval.shape[d], 0) for d in form.axes):
            return literal(identity(form.op, dtype), dtype)
        return (yield _Pull(atom, ()))

    def _move(self, eqn: Eqn, form: Move, request: _Pull) -> _Job:
        scalars: dict[str, Dim] = {}
        for name, position in form.scalars:
            scalars[name] = self._bind((yield _Pull(eqn.inputs[position], ())))
        alternatives: list[tuple[Dim, Atom, tuple[Dim, ...]]] = []
        for atom, m in zip(eqn.inputs, form.maps, strict=False):
            coords, valid = _through(m, request.coords, scalars)
            if _is(valid, 0) or not volume(atom.aval.shape):
                continue
            alternatives.append((valid, atom, coords))
            if _is(valid, 1):
                break
        if not alternatives:
            return zero(eqn.outputs[0].aval.dtype)
        result: Term | None = None
        for valid, atom, coords in reversed(alternatives):
            inside = logical_and(request.valid, valid)
            if (
                result is None
            ):  # the maps cover the output: where the others do not hold, the last does
                result = yield _Pull(
                    atom, coords, inside if len(alternatives) > 1 else request.valid
                )
                continue
            value = yield _Pull(atom, coords, inside)
            result = self._choose(valid, value, result)
        assert result is not None
        return result

    def _choose(self, valid: Dim, value: Term, other: Term) -> Term:
        """The value where valid, else `other`; a masked load carries a literal as its fill."""
        if _is(valid, 1):
            return value
        if isinstance(value, Load) and isinstance(other, Lit) and value.valid is valid:
            return Load(value.buffer, value.coords, valid, other, value.indices)
        return self.ops.select(Index(valid, dt.bool_, self._indices(valid)), value, other)

    def _contract(self, k: int, eqn: Eqn, form: Contract, request: _Pull) -> _Job:
        out = eqn.outputs[0].aval
        extents = form.lhs.domain[out.ndim :]
        if any(_is(n, 0) for n in extents):
            return zero(out.dtype)
        taken = symbols(*request.coords, request.valid)
        bound = [
            () if _is(n, 1) else self._binders(self.names.axes(k, out.ndim + d), taken)
            for d, n in enumerate(extents)
        ]
        binders = [a for axes in bound for a in axes]
        domain = (*request.coords, *map(number, bound))
        factors: list[Term] = []
        for atom, m in zip(eqn.inputs, (form.lhs, form.rhs), strict=True):
            coords, valid = _through(m, domain, {})
            value = yield _Pull(atom, coords, logical_and(request.valid, valid))
            value = self.ops.cast(self._masked(value, valid, request.valid), out.dtype)
            factors.append(self.ops.rounded(value, form.rounding))
        body = self.ops.mul(*factors)
        if not binders:
            return body
        return Reduction(ReduceOp.SUM, frozenset(binders), body, out.dtype)

    def _masked(self, value: Term, valid: Dim, outer: Dim) -> Term:
        """The value where valid, else 0 (a masked load already is)."""
        if _is(valid, 1) or (isinstance(value, Load) and value.valid is logical_and(outer, valid)):
            return value
        return self._choose(valid, value, zero(value.dtype))

    def _gather(self, eqn: Eqn, form: Gather, request: _Pull) -> _Job:
        out = eqn.outputs[0].aval
        values: dict[str, Dim] = {}
        inside: Dim = 1
        for m, name, (low, high) in zip(form.index_maps, form.symbols, form.bounds, strict=True):
            coords, _ = _through(m, request.coords, {})
            found = self._bind((yield _Pull(eqn.inputs[1], coords, request.valid)))
            if form.mode is GatherMode.FILL:
                within = logical_and(less_equal(low, found), less_equal(found, high))
                inside = logical_and(inside, within)
            values[name] = minimum(maximum(found, low), high)
        coords, valid = _through(form.operand, request.coords, values)
        inside = logical_and(inside, valid)
        fill = literal(0 if form.fill is None else form.fill, out.dtype)
        if not volume(eqn.inputs[0].aval.shape):
            return fill
        position = self._searched(eqn.inputs[0], coords)
        if position is not None:
            value = yield from self._search(eqn.inputs[0], position, coords, request.valid)
        else:
            value = yield _Pull(eqn.inputs[0], coords, logical_and(request.valid, inside))
        return self._choose(inside, value, fill)

    def _searched(self, atom: Atom, coords: Sequence[Dim]) -> int | None:
        """The dim in which one element of each row is read, of a value whose rows are computed."""
        if atom not in self.region.inside or dt.is_bool(atom.aval.dtype):
            return None
        assert isinstance(atom, Var)
        bound = [k for k, c in enumerate(coords) if symbols(c) & self.bindings.keys()]
        own = {a.name for a in self._own_axes(atom)}
        used = symbols(*coords)
        for name in sorted(used & self.bindings.keys()):
            used |= free_names(self.bindings[name])
        return bound[0] if len(bound) == 1 and used - self.bindings.keys() <= own else None

    def _search(self, atom: Atom, k: int, coords: Sequence[Dim], valid: Dim) -> _Job:
        """The element at coords[k] of each row as the sum of the row, masked by its place.

        One pass over the row then serves this and the row's statistics.
        """
        assert isinstance(atom, Var)
        axes = self._binders(self.names.axes(atom, k), symbols(*coords, valid))
        place = number(axes)
        row = yield _Pull(atom, (*coords[:k], place, *coords[k + 1 :]), valid)
        hit = equal(place, coords[k])
        body = self.ops.select(Index(hit, dt.bool_, self._indices(hit)), row, zero(atom.aval.dtype))
        return Reduction(ReduceOp.SUM, frozenset(axes), body, atom.aval.dtype)

    def _scatter(self, eqn: Eqn, form: Scatter, request: _Pull) -> _Job:
        operand, indices, updates = eqn.inputs
        kept = yield _Pull(operand, request.coords, request.valid)
        if not volume(updates.aval.shape):
            return kept
        moved = symbols(*form.update.coords)
        values: dict[str, Dim] = {}
        hit: Dim = 1
        for m, name, (low, high) in zip(form.index_maps, form.symbols, form.bounds, strict=True):
            coords, _ = _through(m, request.coords, {})
            found = self._bind((yield _Pull(indices, coords, request.valid)))
            if not form.clip and name in moved:
                hit = logical_and(hit, logical_and(less_equal(low, found), less_equal(found, high)))
            values[name] = minimum(maximum(found, low), high) if form.clip else found
        coords, valid = _through(form.update, request.coords, values)
        hit = logical_and(hit, valid)
        outside = request.valid if not moved & values.keys() else logical_and(request.valid, hit)
        new = yield _Pull(updates, coords, outside)
        nothing = isinstance(kept, Lit) and not np.frombuffer(kept.bits, np.uint8).any()
        if form.op is not None and not (nothing and form.op.name == "add"):
            new = Apply(self.ops.by_name.get(form.op.name, form.op), (kept, new), new.dtype)
        return self._choose(hit, new, kept)


def _through(
    m: IndexMap, coords: Sequence[Dim], scalars: Mapping[str, Dim]
) -> tuple[tuple[Dim, ...], Dim]:
    """The map's coordinates and validity at `coords` of its domain, with scalar symbols replaced.

    A scalar is clamped to the bounds that the map's expressions rely on.
    """
    values: dict[str, Dim] = {f"d{k}": c for k, c in enumerate(coords)}
    for s in _all_leaves((*m.coords, m.valid)):
        if s.name is not None and s.name in scalars:
            low, high = bounds(s)
            value = scalars[s.name]
            value = value if low is None else maximum(value, low)
            values[s.name] = value if high is None else minimum(value, high)
    return tuple(substitute(c, values) for c in m.coords), substitute(m.valid, values)


def _all_leaves(dims: Sequence[Dim]) -> list[Expr]:
    found = {s.key: s for d in dims if isinstance(d, Expr) for s in leaves(d)}
    return [found[k] for k in sorted(found)]


def _buffer(name: str, v: Var) -> Buffer:
    return Buffer(name, v.aval.shape, v.aval.dtype)


def _is(dim: Dim, value: int) -> bool:
    return isinstance(dim, int) and dim == value


def _differ(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return not all(same(x, y) for x, y in zip(a, b, strict=True))


def _constant(term: Term) -> _Job:
    return term
    yield


def _asked(request: _Pull) -> _Job:
    return (yield request)
