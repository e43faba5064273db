"""Operations that look at an operand and pass it on, so that what uses it comes after the look; and
the first of them: debug_index, which looks at indices where the program runs, under jit too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax.config import config
from lumjax.errors import IndexRangeError, Source
from lumjax.ops.checks import Batched, Dims, Jvp, NDArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Effect, Primitive, Tracer, Value, current_source
from lumjax.trace.dim import Dim
from lumjax.trace.form import Opaque


def passing(name: str, look: Callable[..., None]) -> Primitive:
    """A primitive that calls `look(operand, **params)` and passes the operand on. A parameter
    `last` is the number of an axis of the operand, which mapped ones in front of it move.
    """

    def evaluate(x: NDArray, **params: Any) -> tuple[NDArray, ...]:
        look(x, **params)
        return (x,)

    def jvp(primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Jvp:
        return primitive.bind(*primals, **params), (None,)

    def batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **params: Any) -> Batched:
        (dim,) = dims
        if dim is not None and "last" in params:
            params["last"] += dim <= params["last"]
        return primitive.bind(*args, **params), dims

    primitive = Primitive(
        name,
        aval=lambda x, **params: (x,),
        eval=evaluate,
        form=lambda *avals, **params: Opaque(f"{name} looks at its operand"),
        jvp=jvp,
        batch=batch,
        effect=Effect.UNORDERED,
    )
    return primitive


def _look_at_index(
    x: NDArray, *, low: int, high: int, operation: str, source: Source | None
) -> None:
    bad = (x < low) | (x > high)
    if not bad.any():
        return
    index = tuple(int(k) for k in np.unravel_index(int(np.argmax(bad)), bad.shape))
    raise IndexRangeError(
        operation=operation,
        required=f"an index between {low} and {high} (debug_index)",
        got=f"{x[index]} at {index} of the indices" if x.ndim else str(x),
        fix="correct the index, or name what should happen with mode='clip' or 'fill'",
        source=source,
    )


check_index_p = passing("check_index", _look_at_index)


def checked_index(index: Value, length: Dim, operation: str, size: Dim = 1) -> Value:
    """The index, looked at when the program runs if debug_index is on: that a window of `size` that
    begins there ends within an axis of `length`.
    """
    known = isinstance(length, int) and isinstance(size, int)
    if not config.debug_index or not known or not isinstance(index, Tracer):
        return index
    where = {"low": -length, "high": length - size}
    return check_index_p.bind(index, **where, operation=operation, source=current_source())[0]
