"""barrier: the identity that the compiler does not look through."""

from __future__ import annotations

from collections.abc import Sequence

from lumjax import dtype as dt
from lumjax.ops.checks import Batched, Dims, Jvp, NDArray
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value
from lumjax.trace.form import Barrier

_Tangents = Sequence[Value | None]


def barrier(*values: Value, id: int) -> tuple[Value, ...]:
    """The values unchanged; nothing is merged, moved or recomputed across.

    Barriers of different ids stay apart.
    """
    return barrier_p.bind(*values, id=id) if values else ()


def _aval(*avals: ShapedArray, id: int) -> tuple[ShapedArray, ...]:
    weak = bool(avals) and all(a.weak for a in avals)
    return tuple([ShapedArray(a.shape, a.dtype, weak) for a in avals])


def _some(values: _Tangents, id: int) -> list[Value | None]:
    """The values that are not symbolic zeros through a barrier of the same id."""
    outs = iter(barrier(*(v for v in values if v is not None), id=id))
    return [None if v is None else next(outs) for v in values]


def _eval(*xs: NDArray, id: int) -> tuple[NDArray, ...]:
    return xs


def _jvp(primals: Sequence[Value], tangents: _Tangents, *, id: int) -> Jvp:
    return barrier_p.bind(*primals, id=id), _some(tangents, id)


def _transpose(cts: _Tangents, inputs: Sequence[object], *, id: int) -> _Tangents:
    return _some(cts, id)


def _batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, *, id: int) -> Batched:
    return barrier_p.bind(*args, id=id), dims


def _form(*avals: ShapedArray, id: int) -> Barrier:
    return Barrier(id)


barrier_p = Primitive(
    "barrier",
    aval=_aval,
    eval=_eval,
    form=_form,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    samples=(
        Sample((ShapedArray((2, 3), dt.float32),), {"id": 1}),
        Sample((ShapedArray((2,), dt.float32), ShapedArray((), dt.int32)), {"id": 2}),
        Sample((ShapedArray((0,), dt.float32),), {"id": 3}),
    ),
)
