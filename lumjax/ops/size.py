"""dim_value: a size that is known only when a program runs, as a value."""

from __future__ import annotations

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import InconclusiveDimError
from lumjax.ops.checks import NDArray
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Primitive, Sample, Value
from lumjax.trace.dim import Dim
from lumjax.trace.form import Size


def dim_value(dim: Dim) -> Value:
    """A dim as an int32 value: a constant when the dim is a number, else weak as Python's are."""
    if isinstance(dim, int):
        return np.asarray(dim, dt.int32)
    return dim_value_p.bind(dim=dim)[0]


def _dim_value_eval(*, dim: Dim) -> tuple[NDArray]:
    if not isinstance(dim, int):
        raise InconclusiveDimError(
            operation="dim_value",
            required="a size that is known when the program runs",
            got=str(dim),
            fix="call the function through jit(..., dynamic=...), which binds the sizes",
        )
    return (np.asarray(dim, dt.int32),)


dim_value_p = Primitive(
    "dim_value",
    aval=lambda *, dim: (ShapedArray((), dt.int32, weak=not isinstance(dim, int)),),
    eval=_dim_value_eval,
    form=lambda *, dim: Size(dim),
    samples=(Sample((), {"dim": 3}),),
)
