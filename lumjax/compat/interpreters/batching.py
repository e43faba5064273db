"""jax.interpreters.batching: the tables of vmap rules of primitives that libraries make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lumjax.extend.primitives import Primitive
from lumjax.extend.primitives import axis_primitive_batchers as axis_primitive_batchers
from lumjax.extend.primitives import primitive_batchers as primitive_batchers
from lumjax.ops.layout import batch_first

__all__ = [
    "axis_primitive_batchers", "bdim_at_front", "defvectorized", "not_mapped", "primitive_batchers",
]  # fmt: skip

not_mapped = None


def bdim_at_front(x: Any, axis: int | None, size: int) -> Any:
    """`x` with its mapped axis in front, or repeated along a new one."""
    return batch_first(x, axis, size)


def defvectorized(primitive: Primitive) -> None:
    """Define a primitive of one operand to be the same function of every element."""

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        return primitive.bind(*args, **params), dims[0]

    primitive_batchers[primitive] = batch
