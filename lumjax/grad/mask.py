"""Masks on cotangents: how they travel backwards, and where they make a product exactly zero.

A cotangent that leaves `select` carries the predicate. Where its mask is False the cotangent is
zero whatever it is multiplied with, so a residual that is infinite there does no harm; at second
order the `select` that does this is itself masked. A mask is computed when it is first needed: at a
product with a residual that may not be finite.

How a mask passes an operation follows from the operation's form: `Map` keeps it; `Move`, sums and
`Gather` transpose it (counted as integers, then != 0), and so do cumulative sums and scatters;
`Contract` takes `any` over the axes that the operand lacks; others lose it, and with it only the
protection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.grad.constant import distinct, holds_along, known_value
from lumjax.grad.forward import zeros
from lumjax.ops.compare import and_, ne, not_, or_
from lumjax.ops.elementwise import cast, select
from lumjax.ops.layout import broadcast_in_dim, transpose
from lumjax.ops.reduce import reduce_or
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Eqn, Linear, Value, aval_of
from lumjax.trace.form import Barrier, Contract, Form, Gather, Map, Move, Reduce, ReduceOp
from lumjax.trace.view import IndexMap, coordinate


class Mask:
    """Where a cotangent is live, computed at first use; None if that turns out not to be known.

    False means: exactly zero, whatever it is multiplied with.
    """

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], Value | None]) -> None:
        self._make: Callable[[], Value | None] | None = make
        self._value: Value | None = None

    def get(self) -> Value | None:
        """The mask, a bool array of the cotangent's shape, or None."""
        if self._make is not None:
            self._value, self._make = self._make(), None
        return self._value


def either(a: Mask, b: Mask) -> Mask:
    """The mask of a sum of cotangents."""

    def make() -> Value | None:
        x, y = a.get(), b.get()
        return None if x is None or y is None else or_(x, y)

    return Mask(make)


def select_masks(which: Value, mask: Mask | None) -> tuple[Mask | None, ...]:
    """The masks of select's operands: the predicate, and where the cotangent was live."""

    def narrowed(predicate: Callable[[], Value]) -> Mask:
        def make() -> Value:
            before = None if mask is None else mask.get()
            return predicate() if before is None else and_(predicate(), before)

        return Mask(make)

    return None, narrowed(lambda: which), narrowed(lambda: not_(which))


def masked_transpose(
    eqn: Eqn, rule: Callable[..., Any], cts: Sequence[Value | None], inputs: list[Any], mask: Mask
) -> tuple[Sequence[Value | None], Sequence[Mask | None]]:
    """The cotangents and masks of the inputs of an equation whose output's cotangent is masked.

    In a product with a residual that may be infinite, the mask makes the result exactly zero.
    """
    if all(_is_harmless(x) for x in inputs):
        found = rule(cts, inputs, **eqn.params)
        return found, _flow(eqn, rule, inputs, mask)
    live = mask.get()
    form = _form(eqn)
    if live is None or not isinstance(form, (Map, Contract)):
        found = rule(cts, inputs, **eqn.params)
        return found, (None,) * len(inputs) if live is None else _flow(eqn, rule, inputs, mask)
    in_masks: list[Mask | None] = [mask] * len(inputs)
    if isinstance(form, Contract):
        sides = [
            _touched(live, form, side, eqn.inputs[k].aval)
            for k, side in enumerate((form.lhs, form.rhs))
        ]
        inputs = [
            x if side is None or isinstance(x, Linear) else _cleared(side, x)
            for x, side in zip(inputs, sides, strict=True)
        ]
        in_masks = [None if side is None else _known(side) for side in sides]
    found = rule(cts, inputs, **eqn.params)
    cleared: list[Value | None] = []
    for value, m in zip(found, in_masks, strict=True):
        where = None if value is None or m is None else m.get()
        cleared.append(value if where is None else _cleared(where, value))
    return cleared, in_masks


def _form(eqn: Eqn) -> Form:
    return eqn.prim.form(*[a.aval for a in eqn.inputs], **eqn.params)


def _known(mask: Value) -> Mask:
    return Mask(lambda: mask)


def _cleared(mask: Value, value: Value) -> Value:
    """`value` with exact zeros where the mask is False."""
    return select(mask, value, zeros(aval_of(value)))


def _is_harmless(x: Any) -> bool:
    """Whether zero times `x`, and zero over `x`, is certainly zero.

    True of linear operands, integers, and nonzero finite scalars, repeated or not.
    """
    if isinstance(x, Linear) or not dt.is_inexact(aval_of(x).dtype):
        return True
    value = known_value(x)
    if value is None or (few := distinct(value)).size != 1:
        return False
    return bool(np.isfinite(few).all() and (few != 0).all())


def _flow(
    eqn: Eqn, rule: Callable[..., Any], inputs: Sequence[Any], mask: Mask
) -> list[Mask | None]:
    """The masks of the inputs of an equation that multiplies with nothing that may be infinite."""
    moved: list[Sequence[Value | None]] = []

    def move() -> Sequence[Value | None]:
        live = mask.get()
        if live is None:
            return [None] * len(inputs)
        form = _form(eqn)
        if isinstance(form, (Map, Barrier)):
            return [live] * len(inputs)
        sums = eqn.prim.sums or (isinstance(form, Reduce) and form.op is ReduceOp.SUM)
        if not (sums or isinstance(form, (Move, Gather))):
            return [None] * len(inputs)
        counting = [
            Linear(x.aval.with_dtype(dt.int32)) if isinstance(x, Linear) else x for x in inputs
        ]
        counts = rule([cast(live, dt.int32)], counting, **eqn.params)
        return [None if n is None else ne(n, zeros(aval_of(n))) for n in counts]

    def make(k: int) -> Callable[[], Value | None]:
        def get() -> Value | None:
            if not moved:
                moved.append(move())
            return moved[0][k]

        return get

    return [Mask(make(k)) for k in range(len(inputs))]


def _touched(mask: Value, form: Contract, side: IndexMap, aval: ShapedArray) -> Value | None:
    """Which elements of an operand meet a live element of the output; None if certainly all.

    Exact for matrix products; a superset where a coordinate mixes axes, as in convolutions.
    """
    shape = aval_of(mask).shape
    kept: dict[int, int] = {}  # output axis -> operand axis
    for axis, coordinate_of_operand in enumerate(side.coords):
        for k, size in enumerate(shape):
            if k not in kept and coordinate_of_operand is coordinate(k, size):
                kept[k] = axis
    others = tuple([k for k in range(len(shape)) if k not in kept])
    if holds_along(mask, others):
        return None
    reduced = reduce_or(mask, others)
    axes = [kept[k] for k in sorted(kept)]
    if axes != sorted(axes):
        reduced = transpose(reduced, sorted(range(len(axes)), key=axes.__getitem__))
    return broadcast_in_dim(reduced, aval.shape, sorted(axes))
