"""Functions with derivatives of their own: custom_jvp, custom_vjp and custom_gradient.

>>> @custom_gradient
... def f(x):
...     return x**2, lambda g: (g * 10,)
>>> float(grad(f)(3.0))
10.0
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lumjax import tree
from lumjax.control.closure import closure_convert as closure_convert
from lumjax.control.custom import CustomVJPPrimal as CustomVJPPrimal
from lumjax.control.custom import SymbolicZero as SymbolicZero
from lumjax.control.custom import custom_jvp as custom_jvp
from lumjax.control.custom import custom_vjp as custom_vjp
from lumjax.control.custom_rules import custom_jvp_p as custom_jvp_call_p
from lumjax.control.custom_rules import custom_vjp_p as custom_vjp_call_p
from lumjax.grad.reverse import grad as grad
from lumjax.ops.layout import full
from lumjax.trace.core import aval_of, eval_jaxpr
from lumjax.trace.stage import stage

__all__ = [
    "CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp",
    "custom_jvp_call_p", "custom_vjp", "custom_vjp_call_p", "zero_from_primal",
]  # fmt: skip


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero cotangent of an argument.

    >>> float(zero_from_primal(2.0))
    0.0
    """
    aval = aval_of(val)
    return SymbolicZero(aval) if symbolic_zeros else full(aval.shape, 0, aval.dtype)


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose derivative is given beside its value.

    `fun(*args)` returns (value, rule); `rule(cotangent)` returns the cotangents of the arguments,
    a tuple if there are several. Only reverse mode is defined.
    """

    @custom_vjp
    def wrapped(*args: Any) -> Any:
        return fun(*args)[0]

    def forward(*args: Any) -> tuple[Any, Any]:
        value, rule = fun(*args)
        flat, treedef = tree.flatten(value)

        def rule_of_leaves(*leaves: Any) -> list[Any]:
            found = rule(treedef.unflatten(leaves))
            return tree.leaves(tuple(found) if isinstance(found, (tuple, list)) else (found,))

        staged = stage(rule_of_leaves, [aval_of(x).strip_weak() for x in flat])
        structure = tree.structure(args)

        def apply(consts: Sequence[Any], leaves: Sequence[Any]) -> Any:
            return tree.unflatten(structure, eval_jaxpr(staged.jaxpr, [*consts, *leaves]))

        return value, tree.Partial(apply, list(staged.consts))

    def backward(residual: Any, cotangent: Any) -> Any:
        return residual(tree.leaves(cotangent))

    wrapped.defvjp(forward, backward)

    @functools.wraps(fun)
    def run(*args: Any) -> Any:
        return wrapped(*args)

    return run
