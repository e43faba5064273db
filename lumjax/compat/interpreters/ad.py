"""jax.interpreters.ad: the tables of derivative rules of primitives that libraries make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lumjax.errors import ArgumentTypeError
from lumjax.extend.primitives import Primitive
from lumjax.extend.primitives import UndefinedPrimal as UndefinedPrimal
from lumjax.extend.primitives import Zero as Zero
from lumjax.extend.primitives import instantiate_zeros as instantiate_zeros
from lumjax.extend.primitives import primitive_jvps as primitive_jvps
from lumjax.extend.primitives import primitive_transposes as primitive_transposes
from lumjax.grad.forward import JVPTrace as JVPTrace
from lumjax.grad.forward import JVPTracer as JVPTracer
from lumjax.grad.forward import zeros as zeros_like_aval
from lumjax.ops.elementwise import add

__all__ = [
    "JVPTrace", "JVPTracer", "UndefinedPrimal", "Zero", "add_tangents", "defjvp", "deflinear2",
    "instantiate_zeros",
    "is_undefined_primal", "primitive_jvps", "primitive_transposes", "zeros_like_aval",
]  # fmt: skip


def is_undefined_primal(x: Any) -> bool:
    """Whether an operand of a transpose rule is one in which the operation is linear."""
    return isinstance(x, UndefinedPrimal)


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents, either of which may be a symbolic zero."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else add(x, y)


def defjvp(primitive: Primitive, *rules: Callable[..., Any] | None) -> None:
    """Define the derivative of a primitive with one result, operand by operand:
    `rule(tangent, *primals, **params)`; None where it has none.
    """
    if primitive.multiple_results:
        raise ArgumentTypeError(
            operation="ad.defjvp", required="a primitive with one result", got=primitive.name,
            fix="enter a rule in primitive_jvps",
        )  # fmt: skip

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        total: Any = Zero.from_primal_value(out)
        for rule, t in zip(rules, tangents, strict=True):
            if rule is not None and not isinstance(t, Zero):
                total = add_tangents(total, rule(t, *primals, **params))
        return out, total

    primitive_jvps[primitive] = jvp


def deflinear2(primitive: Primitive, transpose: Callable[..., Any]) -> None:
    """Define a primitive to be linear in all its operands, with its transpose rule."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        moved = primitive.bind(*map(instantiate_zeros, tangents), **params)
        return primitive.bind(*primals, **params), moved

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose
