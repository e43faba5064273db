"""Functions with derivatives of their own: custom_jvp, custom_vjp and custom_gradient.

>>> @custom_gradient
... def f(x):
...     return x**2, lambda g: (g * 10,)
>>> float(grad(f)(3.0))
10.0
"""

from __future__ import annotations

from typing import Any

from lumjax.control.closure import closure_convert as closure_convert
from lumjax.control.closure import custom_gradient as custom_gradient
from lumjax.control.custom import CustomVJPPrimal as CustomVJPPrimal
from lumjax.control.custom import SymbolicZero as SymbolicZero
from lumjax.control.custom import custom_jvp as custom_jvp
from lumjax.control.custom import custom_vjp as custom_vjp
from lumjax.control.custom_rules import custom_jvp_p as custom_jvp_call_p
from lumjax.control.custom_rules import custom_vjp_p as custom_vjp_call_p
from lumjax.grad.reverse import grad as grad
from lumjax.ops.layout import full
from lumjax.trace.core import aval_of

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
