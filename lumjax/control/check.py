"""The record of a check: a bool that must hold, with values to mention if it does not.

Evaluated, a check that fails raises. `lumjax.experimental.checkify` turns checks into values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import tree
from lumjax.errors import FailedCheckError, Source
from lumjax.ops.layout import batch_first, broadcast_in_dim
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Effect, Primitive, Value, aval_of, current_source
from lumjax.trace.form import Opaque

NDArray = np.ndarray[Any, Any]


class Message(ABC):
    """What a failed check says, given its values."""

    @abstractmethod
    def text(self, values: Sequence[NDArray]) -> str:
        """The message."""


@record(eq=False)
class Format(Message):
    """A format string, its arguments a pytree of the values."""

    fmt: str
    arguments: tree.PyTreeDef

    def text(self, values: Sequence[NDArray]) -> str:
        """The string with the values put in."""
        given: Any = self.arguments.unflatten([v[()] if not v.ndim else v for v in values])
        args, kwargs = given
        return self.fmt.format(*args, **kwargs) + " (`check` failed)"


def check_value(holds: Value, message: Message, values: Sequence[Value]) -> None:
    """Check a bool scalar when the program runs."""
    check_p.bind(holds, *values, message=message, source=current_source(), mapped=0)


def failed(text: str, source: Source | None) -> FailedCheckError:
    """The error of a check that does not hold."""
    return FailedCheckError(
        operation="check",
        required="every check to hold",
        got=f"this one failing: {text}",
        fix="correct what leads there, or check less",
        source=source,
    )


def first_failure(holds: NDArray, values: Sequence[NDArray]) -> tuple[int, ...] | None:
    """Where a check over mapped axes fails first; None if it holds."""
    if holds.all():
        return None
    return tuple(int(k) for k in np.unravel_index(int(np.argmin(holds)), holds.shape))


def _aval(*avals: ShapedArray, **params: Any) -> tuple[ShapedArray, ...]:
    return ()


def _eval(
    holds: NDArray, *values: NDArray, message: Message, source: Source | None, mapped: int
) -> tuple[NDArray, ...]:
    place = first_failure(holds, values)
    if place is not None:
        raise failed(message.text([v[place] for v in map(np.asarray, values)]), source)
    return ()


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    return check_p.bind(*primals, **params), ()


def _batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Sequence[int | None],
    *,
    mapped: int,
    **params: Any,
) -> tuple[Sequence[Value], Sequence[int | None]]:
    """All operands get the mapped axis in front, so that they can be indexed alike."""
    size: Any = axis.size
    lead = [
        _repeated(a, size) if d is None else batch_first(a, d, size)
        for a, d in zip(args, dims, strict=True)
    ]
    return check_p.bind(*lead, mapped=mapped + 1, **params), ()


def _repeated(x: Value, size: Any) -> Value:
    shape = aval_of(x).shape
    return broadcast_in_dim(x, (size, *shape), range(1, 1 + len(shape)))


check_p = Primitive(
    "check",
    aval=_aval,
    eval=_eval,
    form=lambda *avals, **params: Opaque("a check raises"),
    jvp=_jvp,
    batch=_batch,
    effect=Effect.UNORDERED,
)
