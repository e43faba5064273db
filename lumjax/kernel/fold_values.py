"""Values and operations that loops over tiles introduce."""

from __future__ import annotations

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.contract import widened
from lumjax.kernel.emit import combine
from lumjax.kernel.evaluate import convert
from lumjax.kernel.ir import ApplyValue, Const, Value
from lumjax.trace.form import ReduceOp, ScalarOp

SUBTRACT = ScalarOp("sub", 2, np.subtract)
DIVIDE = ScalarOp("div", 2, np.divide, flops=4.0)
ADD = combine(ReduceOp.SUM)
LEAST = combine(ReduceOp.MIN)
EXP2 = ScalarOp("exp2", 1, np.exp2, flops=20.0)
SELECT = ScalarOp("select", 3, np.where)
FINITE = ScalarOp("is_finite", 1, np.isfinite)
ABOVE = ScalarOp("gt", 2, np.greater)
EQUAL = ScalarOp("eq", 2, np.equal)
UNEQUAL = ScalarOp("ne", 2, np.not_equal)
_HOLD = ScalarOp("hold", 1, np.asarray)


def apply(op: ScalarOp, *args: Value, dtype: dt.DType | None = None) -> ApplyValue:
    """The operation; its result has the dtype of the last operand unless given."""
    return ApplyValue(op, args, dtype or args[-1].dtype)


def constant(value: float, dtype: dt.DType) -> Const:
    """A constant."""
    return Const(dtype, convert(np.asarray(value, np.float64).reshape(1), dtype).tobytes())


def hold(value: Value, dtype: dt.DType) -> Value:
    """A value of a 16-bit dtype as one of the dtype that it is computed in, or the reverse: nothing
    is rounded.
    """
    return value if value.dtype == dtype else ApplyValue(_HOLD, (value,), dtype)


def unrounded(value: Value, dtype: dt.DType) -> Value:
    """A value in the dtype that it is computed in, or a wider one."""
    return widened(hold(value, dt.accumulation_dtype(value.dtype)), dtype)
