"""Backward programs of jaxprs, with the masks that cotangents carry (None, a value, or a value and
its mask).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.control.staging import Flags, concrete, remembered, select_where, zeros
from lumjax.grad.mask import Mask
from lumjax.grad.reverse import Cotangent, backward
from lumjax.ops.layout import full
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Jaxpr, Linear, Value
from lumjax.trace.stage import stage


class Kind(IntEnum):
    """What is known of a cotangent before it exists; the larger kind can represent the smaller."""

    ZERO = 0  # absent
    MASKED = 1  # a value and the mask of the places where it counts
    PLAIN = 2  # a value that counts everywhere


Kinds = tuple[Kind, ...]


def kind_of(ct: Cotangent | None) -> Kind:
    """The kind of one cotangent."""
    if ct is None:
        return Kind.ZERO
    return Kind.PLAIN if _mask(ct) is None else Kind.MASKED


def _mask(ct: Cotangent) -> Value | None:
    return None if ct.mask is None else ct.mask.get()


def pack(
    cts: Iterable[Cotangent | None], kinds: Iterable[Kind], avals: Iterable[ShapedArray]
) -> list[Value]:
    """Cotangents as flat values, converted to `kinds`. A mask that becomes PLAIN is dropped."""
    flat: list[Value] = []
    for ct, kind, aval in zip(cts, kinds, avals, strict=True):
        match kind:
            case Kind.ZERO:
                assert ct is None, "a cotangent was promised to be zero"
            case Kind.PLAIN:
                flat.append(zeros(aval.strip_weak()) if ct is None else ct.value)
            case Kind.MASKED:
                flat.append(zeros(aval.strip_weak()) if ct is None else ct.value)
                mask = None if ct is None else _mask(ct)
                flat.append(full(aval.shape, ct is not None, dt.bool_) if mask is None else mask)
    return flat


def unpack(flat: Iterable[Value], kinds: Iterable[Kind]) -> list[Cotangent | None]:
    """The inverse of `pack`."""
    values = iter(flat)
    cts: list[Cotangent | None] = []
    for kind in kinds:
        match kind:
            case Kind.ZERO:
                cts.append(None)
            case Kind.PLAIN:
                cts.append(Cotangent(next(values), None))
            case Kind.MASKED:
                value, mask = next(values), next(values)
                cts.append(Cotangent(value, Mask(lambda mask=mask: mask)))
    return cts


def packed_avals(kinds: Iterable[Kind], avals: Iterable[ShapedArray]) -> list[ShapedArray]:
    """The avals of packed cotangents."""
    flat: list[ShapedArray] = []
    for kind, aval in zip(kinds, avals, strict=True):
        pair = (aval.strip_weak(), aval.with_dtype(dt.bool_))
        flat.extend(() if kind is Kind.ZERO else pair[:1] if kind is Kind.PLAIN else pair)
    return flat


@record(eq=False)
class Backward:
    """jaxpr: (*consts, *known inputs, *packed cotangents of the outputs) -> packed cotangents
    of the linear inputs.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    kinds: Kinds


def backward_of(jaxpr: Jaxpr, linear: Flags, cts: Kinds, want: Kinds | None = None) -> Backward:
    """The backward program of a jaxpr that is linear where `linear`; results are converted to
    `want`. Remembered.
    """
    return remembered(
        jaxpr,
        ("backward", linear, cts, want),
        lambda: _backward(jaxpr, linear, cts, want),
        lambda b: concrete(b.consts),
    )


def _backward(jaxpr: Jaxpr, linear: Flags, cts: Kinds, want: Kinds | None) -> Backward:
    known_avals = select_where(linear, jaxpr.in_avals, keep=False)
    linear_avals = select_where(linear, jaxpr.in_avals)
    found: list[Kinds] = []

    def flat(*args: Value) -> list[Value]:
        known = iter(args[: len(known_avals)])
        inputs = [
            Linear(a) if flag else next(known)
            for a, flag in zip(jaxpr.in_avals, linear, strict=True)
        ]
        results = backward(jaxpr, inputs, unpack(args[len(known_avals) :], cts))
        results = select_where(linear, results)
        found.append(want or tuple(map(kind_of, results)))
        return pack(results, found[0], linear_avals)

    staged = stage(flat, [*known_avals, *packed_avals(cts, jaxpr.out_avals)])
    return Backward(replace(staged.jaxpr, consts=0), staged.consts, found[0])


def combined(kinds: Sequence[Kind]) -> Kind:
    """The kind that can represent any of several alternatives.

    Where they differ a mask says which one it was, unless JAX's gradients are asked for.
    """
    if config.grad_compat == "jax" or len(set(kinds)) == 1:
        return max(kinds)
    return Kind.MASKED
