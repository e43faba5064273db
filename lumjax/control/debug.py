"""Python inside programs: print and callback watch, pure_callback and io_callback compute."""

from __future__ import annotations

import builtins
import string
from collections.abc import Callable
from typing import Any

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.callback import (
    UserHost,
    debug_callback_p,
    io_callback_p,
    ordered_debug_callback_p,
    ordered_io_callback_p,
    pure_callback_p,
)
from lumjax.control.staging import require_callable
from lumjax.errors import ArgumentTypeError, ArgumentValueError
from lumjax.grad.forward import is_array
from lumjax.ops.elementwise import asvalue
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Primitive

_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all")


def callback(
    callback: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any
) -> None:
    """Call `callback(*args, **kwargs)` with arrays that have values, each time the program runs.

    For watching: its result is ignored. Under `jvp` and `grad` it sees the primal values once,
    under `vmap` it is called per lane, and a checkpointed function calls it again where it is
    recomputed. With `ordered` calls happen in program order; ordered calls cannot be mapped
    (UnsupportedError).

    >>> seen = []
    >>> callback(lambda x: seen.append(float(x)), 1.5)
    >>> seen
    [1.5]
    """
    require_callable("debug.callback", callback)

    def watch(*args: Any, **kwargs: Any) -> None:
        callback(*args, **kwargs)

    watch.__name__ = getattr(callback, "__name__", "callback")
    primitive = ordered_debug_callback_p if ordered else debug_callback_p
    _bind(primitive, watch, args, kwargs, (), "sequential")


class _Format(string.Formatter):
    """A formatter that insists that every argument is used."""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [repr(k) for k in (*range(len(args)), *kwargs) if k not in used_args]
        if unused:
            raise ArgumentValueError(
                operation="debug.print",
                required="a format string that mentions every argument",
                got=f"unused {', '.join(unused)}",
                fix="add {} or {name} to the string, or drop the argument",
            )


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print `fmt.format(*args, **kwargs)` each time the program runs, with the values that arrays
    have then.

    See `callback` for when that is, and for `ordered`. Raises ArgumentTypeError if `fmt` is no
    string, and ArgumentValueError if it does not mention every argument.

    >>> print("x = {x:.1f}", x=0.25)
    x = 0.2
    """
    if not isinstance(fmt, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentTypeError(
            operation="debug.print",
            required="a format string as first argument",
            got=f"{fmt!r} of type {type(fmt).__name__}",
            fix='write debug.print("{}", x)',
        )
    _Format().vformat(
        fmt, tuple(map(_Anything, args)), {k: _Anything(v) for k, v in kwargs.items()}
    )

    def show(*args: Any, **kwargs: Any) -> None:
        builtins.print(fmt.format(*args, **kwargs))

    callback(show, *args, ordered=ordered, **kwargs)


class _Anything:
    """Stands for an argument whose value is not known while the format string is checked."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __format__(self, spec: str) -> str:
        return ""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, key: Any) -> _Anything:
        return self


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """The result of `callback(*args, **kwargs)`, a function of NumPy arrays without side effects.

    `result_shape_dtypes` is a pytree of objects with `shape` and `dtype` that says what it returns.
    The call may be repeated, or dropped when the result is not used. Not differentiable
    (GradientError). Under `vmap`, `vmap_method` says how: "sequential" calls per lane;
    "expand_dims" and "broadcast_all" call once, with a leading axis of the lanes on mapped
    arguments and one of size 1, or of all lanes, on the others. Raises ShapeError, DTypeError or
    TreeError when the result is not what was announced.

    >>> import numpy as np
    >>> float(pure_callback(np.sum, np.zeros((), np.float32), np.ones(3, np.float32)))
    3.0
    """
    if vmap_method is not None and vmap_method not in _METHODS:
        raise ArgumentValueError(
            operation="pure_callback",
            required=f"a vmap_method among {', '.join(_METHODS)}",
            got=repr(vmap_method),
            fix="use one of them, or None to forbid vmap",
        )
    require_callable("pure_callback", callback)
    return _bind(pure_callback_p, callback, args, kwargs, result_shape_dtypes, vmap_method)


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """The result of `callback(*args, **kwargs)`, called exactly once each time the program runs.

    Like `pure_callback`, for functions with side effects. Under `vmap` it is called per lane,
    unless `ordered`, which keeps the calls in program order and cannot be mapped
    (UnsupportedError).

    >>> import numpy as np
    >>> int(io_callback(lambda: np.int32(3), np.zeros((), np.int32)))
    3
    """
    require_callable("io_callback", callback)
    primitive = ordered_io_callback_p if ordered else io_callback_p
    return _bind(primitive, callback, args, kwargs, result_shape_dtypes, "sequential")


def _bind(
    primitive: Primitive,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    results: Any,
    vmap_method: str | None,
) -> Any:
    announced, out_tree = tree.flatten(results)
    avals = tuple(_announced(r) for r in announced)
    leaves, in_tree = tree.flatten((args, kwargs))
    holes = tuple(is_array(x) for x in leaves)
    fixed = tuple(None if hole else x for hole, x in zip(holes, leaves, strict=True))
    host = UserHost(function, in_tree, fixed, holes, out_tree)
    values = [asvalue(x) for hole, x in zip(holes, leaves, strict=True) if hole]
    outs = primitive.bind(*values, host=host, avals=avals, vmap_method=vmap_method)
    return tree.unflatten(out_tree, outs)


def _announced(result: Any) -> ShapedArray:
    if not hasattr(result, "shape") or not hasattr(result, "dtype"):
        raise ArgumentTypeError(
            operation="callback",
            required="result_shape_dtypes made of objects with a shape and a dtype",
            got=f"{result!r} of type {type(result).__name__}",
            fix="use ShapeDtypeStruct(shape, dtype)",
        )
    return ShapedArray(tuple(result.shape), dt.canonicalize(result.dtype))
