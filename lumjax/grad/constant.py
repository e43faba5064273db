"""What staged constants are: the value of a tracer that no input reaches, computed before anything
runs.

Masks ask: a mask that is true everywhere (the causal mask of attention, seen from its rows or its
columns) and a residual that is one finite number need no protection, so none is staged. Of a
constant that is too large to be computed single elements are, where it is made of maps, moves and
counting: as many as it takes to answer.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax.ops.layout import broadcast_in_dim_p
from lumjax.trace import dim as dm
from lumjax.trace.array import Array
from lumjax.trace.core import Atom, Effect, Eqn, Literal, Tracer, Value, Var, sub_jaxprs
from lumjax.trace.form import Iota, Map, Move
from lumjax.trace.stage import StageTrace, StageTracer

NDArray: TypeAlias = np.ndarray[Any, Any]
Places: TypeAlias = tuple[Any, ...]  # a coordinate per axis: integer arrays, broadcast together
Memo: TypeAlias = dict[tuple[Atom, tuple[int, ...]], tuple[Places, NDArray]]

_LIMIT = 1 << 26  # bytes of a constant that is computed; repeated ones do not count
_KEPT = 1 << 22  # bytes of one that is kept for later questions
_DEPTH = 64  # operations in a row
_PIECE = 1 << 20  # elements of a larger one that are computed together,
_LOOKED = 1 << 26  # and in all


class _Constants:
    """The constants of one trace. Follows the trace as it grows."""

    def __init__(self) -> None:
        self.depth: dict[Atom, int] = {}  # of the values that can be computed
        self.single: dict[Atom, int] = {}  # of those of which only single elements can
        self.producer: dict[Atom, tuple[Eqn, int]] = {}
        self.value: dict[Atom, NDArray] = {}
        self.seen = 0
        self.seen_consts = 0

    def update(self, trace: StageTrace) -> None:
        """Take note of the constants and equations that were added."""
        for var, x in zip(
            trace.const_vars[self.seen_consts :],
            trace.const_values[self.seen_consts :],
            strict=True,
        ):
            if isinstance(x, Array):
                self.depth[var] = 0
                self.value[var] = x.data
        self.seen_consts = len(trace.const_vars)
        for eqn in trace.eqns[self.seen :]:
            self._note(eqn)
        self.seen = len(trace.eqns)

    def _note(self, eqn: Eqn) -> None:
        """Take note of an equation that may be evaluated while tracing."""
        if eqn.prim.effect is not Effect.NONE or any(True for _ in sub_jaxprs(eqn.params)):
            return
        known, depth = self.depth, 1 + self._deepest(eqn, self.depth)
        if depth > _DEPTH or not all(_is_small(v, eqn) for v in eqn.outputs):
            known, depth = self.single, 1 + self._deepest(eqn, self.single)
            if depth > _DEPTH or not _by_elements(eqn):
                return
        for k, var in enumerate(eqn.outputs):
            known[var] = depth
            self.producer[var] = eqn, k

    def _deepest(self, eqn: Eqn, known: dict[Atom, int]) -> int:
        inputs = [a for a in eqn.inputs if not isinstance(a, Literal)]
        return max([known.get(a, self.depth.get(a, _DEPTH)) for a in inputs], default=0)

    def get(self, atom: Atom) -> NDArray | None:
        """The value of `atom`, or None where it depends on an input."""
        if isinstance(atom, Literal):
            return atom.value
        if atom not in self.depth:
            return None
        if atom not in self.value:
            eqn, k = self.producer[atom]
            outs = eqn.prim.eval(*[self.get(a) for a in eqn.inputs], **eqn.params)
            self.value[atom] = np.asarray(outs[k])
        return self.value[atom]

    def drop_large(self) -> None:
        """Forget large values; they are computed again when they are asked for."""
        for atom in [a for a, x in self.value.items() if x.nbytes > _KEPT and a in self.producer]:
            del self.value[atom]

    def at(self, atom: Atom, places: Places, memo: Memo) -> NDArray:
        """Elements of an atom of which `single` or `depth` knows."""
        key = (atom, tuple(map(id, places)))
        if key not in memo:  # with the places, lest another of them has the same id
            memo[key] = places, self._at(atom, places, memo)
        return memo[key][1]

    def _at(self, atom: Atom, places: Places, memo: Memo) -> NDArray:
        value = self.get(atom)
        if value is not None:
            return np.asarray(value)[places]
        eqn, k = self.producer[atom]
        form = _form(eqn)
        if isinstance(form, Iota):
            return np.asarray(places[form.axis]).astype(eqn.outputs[k].aval.dtype)
        if isinstance(form, Move):
            return self._moved(eqn, form, places, memo)
        operands = [self.at(a, places, memo) for a in eqn.inputs]
        return np.asarray(eqn.prim.eval(*operands, **eqn.params)[k])

    def _moved(self, eqn: Eqn, form: Move, places: Places, memo: Memo) -> NDArray:
        """Elements that come from the first operand whose map is valid there."""
        grid = {f"d{k}": place for k, place in enumerate(places)}
        found: NDArray | None = None
        for k, view in reversed(list(enumerate(form.maps))):
            shape = [int(n) for n in eqn.inputs[k].aval.shape]
            if 0 in shape:
                continue
            coords = zip(view.coords, shape, strict=True)
            inside = tuple([np.clip(dm.evaluate(c, grid), 0, n - 1) for c, n in coords])
            value = self.at(eqn.inputs[k], inside, memo)
            valid = dm.evaluate(view.valid, grid)
            found = value if found is None else np.where(np.asarray(valid) != 0, value, found)
        assert found is not None, "the maps of a move cover it"
        return found


def _form(eqn: Eqn) -> Any:
    return eqn.prim.form(*[a.aval for a in eqn.inputs], **eqn.params)


def _by_elements(eqn: Eqn) -> bool:
    """Whether single elements of the outputs can be computed from single ones of the inputs."""
    atoms = (*eqn.inputs, *eqn.outputs)
    if not all(isinstance(n, int) for a in atoms for n in a.aval.shape):
        return False
    form = _form(eqn)
    return isinstance(form, Map | Iota) or (isinstance(form, Move) and not form.scalars)


def _is_small(var: Var, eqn: Eqn) -> bool:
    if not all(isinstance(n, int) for n in var.aval.shape):
        return False
    size = int(var.aval.size) * var.aval.dtype.itemsize
    return eqn.prim is broadcast_in_dim_p or size <= _LIMIT


_constants: weakref.WeakKeyDictionary[StageTrace, _Constants] = weakref.WeakKeyDictionary()


def _constants_of(x: Value) -> _Constants | None:
    if not (isinstance(x, StageTracer) and isinstance(x.owner, StageTrace)):
        return None
    found = _constants.setdefault(x.owner, _Constants())
    found.update(x.owner)
    return found


def known_value(x: Value) -> NDArray | None:
    """The ndarray behind a concrete array or a staged constant, else None."""
    if isinstance(x, Array):
        return x.data
    found = _constants_of(x)
    if found is not None and isinstance(x, StageTracer):
        value = found.get(x.var)
        found.drop_large()
        return value
    return None if isinstance(x, Tracer) else np.asarray(x)


def holds_along(x: Value, axes: Sequence[int]) -> bool:
    """Whether `x` certainly has a True along `axes` at every place of its other axes."""
    value = known_value(x)
    if value is not None:
        return bool(distinct(value).any(axis=tuple(axes)).all())
    found = _constants_of(x)
    if found is None or not isinstance(x, StageTracer) or x.var not in found.single:
        return False
    holds = _holds_along(found, x.var, tuple(axes))
    found.drop_large()
    return holds


def _holds_along(known: _Constants, var: Var, axes: tuple[int, ...]) -> bool:
    """Look at few places of the longest of `axes`, then at those between, wherever along the
    longest of the others no True was seen yet.
    """
    shape = [int(n) for n in var.aval.shape]
    if not (axes and all(shape)):
        return False
    others = [k for k in range(len(shape)) if k not in axes]
    along, longest = (max(k, key=shape.__getitem__, default=None) for k in (axes, others))
    assert along is not None
    rest = tuple([k for k in others if k != longest])
    places = list(np.indices(shape, sparse=True))
    looked = 0
    for points in _spread(shape[along]):
        left = math.prod([p.size for k, p in enumerate(places) if k != along])
        for piece in np.array_split(points, -(-points.size * left // _PIECE)):
            places[along] = _along(piece, along, len(shape))
            value = known.at(var, tuple(places), {})
            value = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
            seen = np.logical_and.reduce(value.any(axis=axes, keepdims=True), rest, keepdims=True)
            looked += value.size
            if seen.all():
                return True
            if looked > _LOOKED:
                return False
            if longest is not None and seen.size > 1:
                places[longest] = _along(places[longest][~seen], longest, len(shape))
    return False


def _along(x: NDArray, axis: int, rank: int) -> NDArray:
    return x.reshape([-1 if k == axis else 1 for k in range(rank)])


def _spread(n: int) -> Iterator[NDArray]:
    """0 .. n - 1: the ends, then what halves the gaps, again and again."""
    yield np.unique([0, n - 1])
    step = 1 << (n - 1).bit_length()
    while step > 1:
        points = np.arange(step // 2, n - 1, step)
        if points.size:
            yield points
        step //= 2


def distinct(x: NDArray) -> NDArray:
    """`x` with size 1 along the axes on which it merely repeats itself."""
    if not x.size:
        return x
    return x[tuple([slice(0, 1) if stride == 0 else slice(None) for stride in x.strides])]
