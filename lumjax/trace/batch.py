"""vmap's interpreter: carries one mapped axis through each primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import (
    Params,
    Primitive,
    Trace,
    Tracer,
    Value,
    aval_of,
    current,
    sub_jaxprs,
    using,
)
from lumjax.trace.dim import Dim


@dataclass(frozen=True, slots=True)
class MappedAxis:
    """The axis that a vmap adds: its size, and its name where it was given one."""

    size: Dim
    name: Any = None


class BatchTracer(Tracer):
    """A value with a mapped axis at position `dim` that the function does not see."""

    __slots__ = ("dim", "value")

    def __init__(self, trace: Trace, value: Value, dim: int) -> None:
        aval = aval_of(value)
        super().__init__(trace, aval.with_shape(aval.shape[:dim] + aval.shape[dim + 1 :]))
        self.value = value
        self.dim = dim


class BatchTrace(Trace):
    """Applies batch rules. Collectives over `axis_name` reach their rule even when no operand is
    mapped.
    """

    def __init__(self, axis: MappedAxis) -> None:
        self.axis = axis
        self.axis_size = axis.size
        self.axis_name = axis.name
        self.parent = current()

    def split(self, x: Value) -> tuple[Value, int | None]:
        """The full value and its mapped axis; None for a value that is not mapped here."""
        return (x.value, x.dim) if isinstance(x, BatchTracer) and x.trace is self else (x, None)

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Apply one primitive's batch rule under the parent trace."""
        pairs = [self.split(a) for a in args]
        values = tuple(v for v, _ in pairs)
        dims = tuple(d for _, d in pairs)
        collective = self.axis_name is not None and uses_axis(params, self.axis_name)
        assert self.parent is not None
        with using(self.parent):
            if not collective and all(d is None for d in dims):
                return prim.bind(*values, **params)
            outs, out_dims = prim.rule("batch")(self.axis, values, dims, **params)
        return tuple(
            o if d is None else BatchTracer(self, o, d) for o, d in zip(outs, out_dims, strict=True)
        )


def uses_axis(params: Params, name: Any) -> bool:
    """Whether an equation with these params is, or carries, a collective over the axis `name`."""
    if params.get("axis_name") == name:
        return True
    return any(uses_axis(e.params, name) for j in sub_jaxprs(params) for e in j.eqns)


def batch(
    f: Callable[..., Sequence[Value]],
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Sequence[int | None],
) -> list[tuple[Value, int | None]]:
    """Run `f` on flat args with axis `dims[k]` of each mapped; returns (value, mapped axis or None)
    pairs.
    """
    trace = BatchTrace(axis)
    with using(trace):
        outs = f(
            *[a if d is None else BatchTracer(trace, a, d) for a, d in zip(args, dims, strict=True)]
        )
        return [trace.split(o) for o in outs]


def mapped_avals(avals: Sequence[ShapedArray], dims: Sequence[int | None]) -> list[ShapedArray]:
    """The avals as the mapped function sees them."""
    return [
        a if d is None else a.with_shape(a.shape[:d] + a.shape[d + 1 :])
        for a, d in zip(avals, dims, strict=True)
    ]
