"""Quotients whose divisor many elements share, as products with its reciprocal.

A division takes a processor as long as ten products. Only a divisor that comes from a sum of floats
is inverted: it is rounded anyway, while quotients of what a program was given stay exact.
"""

from __future__ import annotations

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.term import Apply, Lit, Reduction, Term, subterms
from lumjax.trace.form import ReduceOp, ScalarOp

_DTYPES = (dt.float32, dt.float64)
_GROWTH = 2.0**64  # brings every denormal divisor to where its reciprocal is finite
_ABS = ScalarOp("abs", 1, np.abs)
_LESS = ScalarOp("lt", 2, np.less)
_SELECT = ScalarOp("select", 3, np.where)
_MULTIPLY = ScalarOp("mul", 2, np.multiply)
_DIVIDE = ScalarOp("div", 2, np.divide, flops=4.0)


def invertible(term: Term) -> bool:
    """Whether a term is a quotient by what comes from a sum of floats."""
    if not (isinstance(term, Apply) and term.op.name == "div" and term.dtype in _DTYPES):
        return False
    return any(
        isinstance(t, Reduction) and t.op is ReduceOp.SUM and t.dtype in _DTYPES
        for t in subterms(term.args[1])
    )


def by_reciprocal(term: Apply) -> Apply:
    """The quotient as a product, for every divisor: zero, denormal, infinite, NaN."""
    x, divisor = term.args
    dtype = term.dtype
    small = Apply(_ABS, (divisor,), dtype)
    tiny = Apply(_LESS, (small, _literal(float(dt.finfo(dtype).tiny), dtype)), dt.bool_)
    growth = Apply(_SELECT, (tiny, _literal(_GROWTH, dtype), _literal(1.0, dtype)), dtype)
    inverse = Apply(
        _DIVIDE, (_literal(1.0, dtype), Apply(_MULTIPLY, (divisor, growth), dtype)), dtype
    )
    return Apply(_MULTIPLY, (Apply(_MULTIPLY, (x, growth), dtype), inverse), dtype)


def _literal(value: float, dtype: dt.DType) -> Lit:
    return Lit(dtype, np.asarray(value, dtype).tobytes())
