"""A rule's witness: an instance of both sides, and how far apart their values may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.egraph.axes import axis_symbol
from lumjax.egraph.scalar import OPS, literal
from lumjax.kernel.evaluate import evaluate_term
from lumjax.kernel.term import Apply, Axis, Buffer, Load, Reduction, Term, loads
from lumjax.record import record
from lumjax.trace.form import ReduceOp

Array: TypeAlias = np.ndarray[Any, Any]

I, J, K = Axis("i", 5), Axis("j", 7), Axis("k", 3)  # noqa: E741
_AXES = {a.name: a for a in (I, J, K)}


@record
class Witness:
    """Both sides agree on inputs in [low, high] within `tolerance` (relative; None: bit for bit).

    `specials` says that nan, infinities, signed zeros and denormals are among the inputs too.
    """

    left: Term
    right: Term
    tolerance: float | None = None
    low: float = -2.0
    high: float = 2.0
    specials: bool = True

    def inputs(self, seed: int) -> dict[str, Array]:
        """Random values for every buffer that either side reads."""
        rng = np.random.default_rng(seed)
        buffers = {x.buffer.name: x.buffer for t in (self.left, self.right) for x in loads(t)}
        return {n: self._draw(rng, buffers[n]) for n in sorted(buffers)}

    def _draw(self, rng: np.random.Generator, buffer: Buffer) -> Array:
        shape = tuple(int(n) for n in buffer.shape)
        if dt.is_bool(buffer.dtype):
            return rng.random(shape) < 0.5
        if dt.is_integer(buffer.dtype):
            info = np.iinfo(buffer.dtype)
            return rng.integers(info.min, info.max, shape, buffer.dtype, endpoint=True)
        values = rng.uniform(self.low, self.high, shape)
        if self.specials and self.tolerance is None:
            chosen = rng.choice(_SPECIALS, shape)
            values = np.where(rng.random(shape) < 0.3, chosen, values)
        return values.astype(buffer.dtype)

    def values(self, inputs: Mapping[str, Array]) -> tuple[Array, Array]:
        """Both sides over all axes."""
        axes = tuple(_AXES.values())
        left = evaluate_term(self.left, axes, inputs)
        return left, evaluate_term(self.right, axes, inputs)

    def agree(self, left: Array, right: Array) -> bool:
        """Whether two values are as equal as promised; all nans are one value."""
        if left.dtype != right.dtype:
            return False
        if self.tolerance is None:
            signs = np.signbit(left) == np.signbit(right) if left.dtype.kind == "f" else True
            same = (left == right) & signs
            return (
                bool(np.all(same | (np.isnan(left) & np.isnan(right))))
                if left.dtype.kind == "f"
                else bool(np.all(same))
            )
        scale = np.maximum(np.max(np.abs(right), initial=0.0), 1e-30)
        return bool(np.all(np.abs(left - right) <= self.tolerance * scale))


_SPECIALS = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310, -1e-310, 1.0, -1.0])


def load(name: str, *axes: Axis, dtype: dt.DType = dt.float64) -> Load:
    """A load of the buffer `name` at these axes."""
    shape = tuple(a.extent for a in axes)
    return Load(Buffer(name, shape, dtype), tuple(axis_symbol(a) for a in axes))


def lit(value: float, dtype: dt.DType = dt.float64) -> Term:
    """A literal."""
    return literal(value, dtype)


def op(name: str, *args: Term, dtype: dt.DType | None = None) -> Apply:
    """A scalar operation by name."""
    return Apply(OPS[name], args, dtype or args[-1].dtype)


def reduction(kind: ReduceOp, axes: tuple[Axis, ...], body: Term) -> Reduction:
    """A reduction in the body's dtype."""
    return Reduction(kind, frozenset(axes), body, body.dtype)


def total(axes: tuple[Axis, ...], body: Term) -> Reduction:
    """A sum."""
    return reduction(ReduceOp.SUM, axes, body)
