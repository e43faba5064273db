"""What the compiler's rules make of a function, on special values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lumjax.compile import Jitted, compiler
from lumjax.decorator import jit
from lumjax.testing.rewrites import refuse_rejected

if TYPE_CHECKING:
    from lumjax.judge import Judged


def check_plans(f: Callable[..., Any], args: Sequence[Any], *, seed: int = 0) -> Judged:
    """Equal programs that the compiler's rules find for `f` at `args`, and the plans that it made,
    against the traced program.

    Inputs of each compiled region are of moderate size, each with one NaN, infinity, negative zero
    or denormal, or a row of -inf. The programs are evaluated by NumPy. What follows by exact rules
    alone is equal bit for bit; all else is as near as rounding errors allow, and finite where the
    traced program is, unless an intermediate result comes near to overflow (which of infinity and
    NaN, and the sign of zero, is free there). Sums may be added up in any order, and half floats
    on the way to a result live in float32, rounded or not. No kernel may have been rejected by its
    verification. AssertionError says which region differs, and where.

    >>> import lumjax.numpy as jnp
    >>> check_plans(lambda x: jnp.sum((x - 0.0) * 2.0), (jnp.arange(4.0),)).regions
    1
    """
    jitted: Any = f if isinstance(f, Jitted) else jit(f)
    made = compiler().executable_of(jitted.program(*args).jaxpr)
    refuse_rejected(made, "the program")
    return compiler().judge(made.stages, made.target, seed)
