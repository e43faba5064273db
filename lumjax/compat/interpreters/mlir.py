"""jax.interpreters.mlir: how primitives that libraries make are compiled. A lowering that
`lower_fun` made is traced by the compiler; one that writes MLIR by hand is not used: such a
primitive is computed by its implementation, between kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lumjax.errors import UnsupportedError
from lumjax.extend.primitives import Primitive, Traced, lowerings

__all__ = ["emit_python_callback", "lower_fun", "register_lowering"]


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Traced:
    """The lowering that is a function of values."""
    return Traced(fun, multiple_results)


def register_lowering(
    primitive: Primitive, rule: Any, platform: str | None = None, **options: Any
) -> Any:
    """Enter a lowering; those for other platforms than the CPU are not."""
    del options
    if platform in (None, "cpu"):
        lowerings[primitive] = rule
    return rule


def emit_python_callback(*args: Any, **options: Any) -> Any:
    """Raise: there is no MLIR here to put a call into."""
    del args, options
    raise UnsupportedError(
        operation="mlir.emit_python_callback",
        required="a compiler that reads MLIR",
        got="lumjax's",
        fix="use jax.pure_callback",
    )
