"""The records of callbacks: Python functions of NumPy arrays that a program calls while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.staging import name_of
from lumjax.errors import DTypeError, GradientError, ShapeError, TreeError, UnsupportedError
from lumjax.ops.layout import batch_first
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Effect, Primitive, Value
from lumjax.trace.form import Opaque

NDArray: TypeAlias = np.ndarray[Any, Any]
Dims: TypeAlias = Sequence[int | None]


class Host(ABC):
    """A function of flat NumPy arrays with flat NumPy results, called by the interpreter."""

    @abstractmethod
    def __call__(self, args: Sequence[NDArray], avals: Sequence[ShapedArray]) -> list[NDArray]:
        """The results, of the given avals."""


@record(eq=False)
class UserHost(Host):
    """A user's function. `holes` tells which leaves of its arguments are arrays; the others are
    fixed.
    """

    function: Callable[..., Any]
    in_tree: tree.PyTreeDef
    leaves: tuple[Any, ...]
    holes: tuple[bool, ...]
    out_tree: tree.PyTreeDef

    def __call__(self, args: Sequence[NDArray], avals: Sequence[ShapedArray]) -> list[NDArray]:
        """Call the function on its own arguments, and check what it returns."""
        values = iter(args)
        leaves = [
            Array(_read_only(next(values))) if hole else leaf
            for hole, leaf in zip(self.holes, self.leaves, strict=True)
        ]
        positional, keywords = tree.unflatten(self.in_tree, leaves)
        out = self.function(*positional, **keywords)
        results, out_tree = tree.flatten(out)
        if avals and out_tree != self.out_tree:
            raise TreeError(
                operation=f"callback {name_of(self.function)}",
                required=f"results of the announced structure {self.out_tree}",
                got=str(out_tree),
                fix="return what result_shape_dtypes announces",
            )
        return [self._checked(r, a) for r, a in zip(results, avals, strict=bool(avals))]

    def _checked(self, result: Any, aval: ShapedArray) -> NDArray:
        data: NDArray = np.asarray(result.data if isinstance(result, Array) else result)
        if data.shape != aval.shape:
            raise ShapeError(
                operation=f"callback {name_of(self.function)}",
                required=f"a result {aval}",
                got=f"an array of shape {data.shape}",
                fix="return what result_shape_dtypes announces",
            )
        if dt.canonicalize(data.dtype) != aval.dtype:
            raise DTypeError(
                operation=f"callback {name_of(self.function)}",
                required=f"a result {aval}",
                got=f"an array of dtype {data.dtype}",
                fix="convert it to the announced dtype",
            )
        return data.astype(aval.dtype)


def _read_only(x: NDArray) -> NDArray:
    view = x.view()
    view.flags.writeable = False
    return view


@record(eq=False)
class _PerLane(Host):
    """A host called once per lane, first lane first; mapped arguments lead with the lanes."""

    host: Host
    mapped: tuple[bool, ...]
    size: int

    def __call__(self, args: Sequence[NDArray], avals: Sequence[ShapedArray]) -> list[NDArray]:
        rows = [a.with_shape(a.shape[1:]) for a in avals]
        lanes = [
            self.host([a[i, ...] if m else a for a, m in zip(args, self.mapped, strict=True)], rows)
            for i in range(self.size)
        ]
        if not lanes:
            return [np.empty(tuple(map(int, a.shape)), a.dtype) for a in avals]
        return [np.stack(column) for column in zip(*lanes, strict=True)]


@record(eq=False)
class _Vectorized(Host):
    """A host that handles leading axes itself; unmapped arguments get one of size 1, or of all
    lanes.
    """

    host: Host
    mapped: tuple[bool, ...]
    size: int
    repeat: bool

    def __call__(self, args: Sequence[NDArray], avals: Sequence[ShapedArray]) -> list[NDArray]:
        lanes = self.size if self.repeat else 1
        full = [
            a if m else np.broadcast_to(a, (lanes, *a.shape))
            for a, m in zip(args, self.mapped, strict=True)
        ]
        return self.host(full, avals)


def _aval(
    *args: ShapedArray, host: Host, avals: tuple[ShapedArray, ...], vmap_method: str | None
) -> tuple[ShapedArray, ...]:
    return avals


def _eval(
    *args: NDArray, host: Host, avals: tuple[ShapedArray, ...], vmap_method: str | None
) -> tuple[Array, ...]:
    return tuple(map(Array, host(args, avals)))


def _silent_jvp(
    primals: Sequence[Value],
    tangents: Sequence[Value | None],
    bind: Callable[..., Any],
    **params: Any,
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    """Watching has no results, so there is nothing to differentiate: it sees the primals once."""
    return bind(*primals, **params), ()


def _no_jvp(*_: Any, **params: Any) -> Any:
    raise GradientError(
        operation="derivative of a callback",
        required="operations with a derivative",
        got="a Python callback on a differentiated value",
        fix="wrap it in a custom_jvp or custom_vjp function, or stop_gradient its arguments",
    )


def _batch(
    bind: Callable[..., tuple[Value, ...]],
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    host: Host,
    avals: tuple[ShapedArray, ...],
    vmap_method: str | None,
) -> tuple[Sequence[Value], Dims]:
    mapped = tuple(d is not None for d in dims)
    size = int(axis.size)
    over_lanes: Host
    match vmap_method:
        case "sequential" | "sequential_unrolled":
            over_lanes = _PerLane(host, mapped, size)
        case "expand_dims" | "broadcast_all":
            over_lanes = _Vectorized(host, mapped, size, vmap_method == "broadcast_all")
        case _:
            raise UnsupportedError(
                operation="vmap of pure_callback",
                required="a vmap_method that says how lanes are handled",
                got="none",
                fix='pass vmap_method="sequential", "expand_dims" or "broadcast_all"',
            )
    lead = [a if d is None else batch_first(a, d, size) for a, d in zip(args, dims, strict=True)]
    full = tuple(a.with_shape((size, *a.shape)) for a in avals)
    outs = bind(*lead, host=over_lanes, avals=full, vmap_method=vmap_method)
    return outs, [0] * len(outs)


def _no_batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **params: Any) -> Any:
    raise UnsupportedError(
        operation="vmap of an ordered callback",
        required="an order among the calls, which lanes do not have",
        got="ordered=True under vmap",
        fix="use ordered=False, or loop with lax.map in place of vmap",
    )


def _record(name: str, effect: Effect, watching: bool) -> Primitive:
    def bind(*args: Value, **params: Any) -> tuple[Value, ...]:
        return primitive.bind(*args, **params)

    def jvp(primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return (_silent_jvp if watching else _no_jvp)(primals, tangents, bind=bind, **params)

    def batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **params: Any) -> Any:
        return _batch(bind, axis, args, dims, **params)

    primitive = Primitive(
        name,
        aval=_aval,
        eval=_eval,
        form=lambda *avals, **params: Opaque("a Python callback", host=True),
        jvp=jvp,
        batch=_no_batch if effect is Effect.ORDERED else batch,
        effect=effect,
    )
    return primitive


debug_callback_p = _record("debug_callback", Effect.UNORDERED, watching=True)
ordered_debug_callback_p = _record("ordered_debug_callback", Effect.ORDERED, watching=True)
pure_callback_p = _record("pure_callback", Effect.NONE, watching=False)
io_callback_p = _record("io_callback", Effect.UNORDERED, watching=False)
ordered_io_callback_p = _record("ordered_io_callback", Effect.ORDERED, watching=False)
