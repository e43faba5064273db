"""Checks of every operation outside of jit.

While any thread asks for them, evaluation looks at the results of each operation. When none does,
evaluation is what it was: the method itself is put back, and nothing is asked on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax.config import config
from lumjax.debugging import overflow
from lumjax.debugging.values import non_finite, wanted
from lumjax.trace.array import Array
from lumjax.trace.core import EvalTrace, Params, Primitive, Value, current_source

_plain = EvalTrace.process


def _watched(
    self: EvalTrace, prim: Primitive, args: Sequence[Value], params: Params
) -> tuple[Value, ...]:
    outs = _plain(self, prim, args, params)
    looking = wanted()
    if looking is not None:
        for out in outs:
            where = looking.found(out.data)
            if where is not None:
                operands = [_raw(a) for a in args]
                raise non_finite(prim.name, operands, out.data, where, current_source(), looking)
    if config.debug_overflow:
        operands, results = [_raw(a) for a in args], [o.data for o in outs]
        error = overflow.find(prim, operands, results, params, current_source())
        if error is not None:
            raise error
    return outs


def _raw(x: Value) -> np.ndarray[Any, Any]:
    return x.data if type(x) is Array else np.asarray(x)


def switch(on: bool) -> None:
    """Look at every operation from now on, or no longer."""
    EvalTrace.process = _watched if on else _plain
