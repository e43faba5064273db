"""debug_overflow: signed integers that wrap, integer division by zero, casts that lose the value.

Unsigned arithmetic wraps by definition (hashes and generators live on it) and is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.debugging.values import describe, first_index, kind
from lumjax.errors import OverflowedError, Source
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Effect, Eqn, Jaxpr, Params, Primitive, sub_jaxprs
from lumjax.trace.form import Opaque

NDArray = np.ndarray[Any, Any]
_WRAPPING = frozenset(
    {
        "add", "sub", "mul", "neg", "abs", "square", "integer_pow", "pow", "dot_general",
        "reduce_sum", "reduce_prod", "cumsum", "cumprod", "conv_general_dilated", "scatter_add",
        "scatter_mul",
    }
)  # fmt: skip
_WATCHED = _WRAPPING | {"div", "rem", "cast"}


def find(
    prim: Primitive,
    operands: Sequence[NDArray],
    results: Sequence[NDArray],
    params: Params,
    source: Source | None,
) -> OverflowedError | None:
    """The error for an evaluated operation that wrapped, divided by zero or lost a value."""
    if prim.name not in _WATCHED or len(results) != 1 or not results[0].size:
        return None
    (result,) = results
    if prim.name == "cast":
        lost = _lost(operands[0], result)
        what = f"the value of every element as {dt.short_name(result.dtype)}"
        fix = "use a dtype that holds the values, or clip them first"
    elif not dt.is_integer(result.dtype):
        return None
    elif prim.name in ("div", "rem"):
        lost = np.broadcast_to(operands[1] == 0, result.shape)
        what, fix = "divisors that are not zero", "mask the divisor with jnp.where first"
    elif dt.is_signed(result.dtype):
        with np.errstate(all="ignore"):
            lost = _wrapped(prim, operands, result, params)
        what = f"results that fit {dt.short_name(result.dtype)}"
        fix = "use a wider dtype (enable_x64 for int64) or floats"
    else:
        return None
    if not lost.any():
        return None
    index = first_index(lost)
    inputs = "; ".join(f"operand {k} is {describe(x)}" for k, x in enumerate(operands))
    at = f" at index {index}" if result.ndim else ""
    return OverflowedError(
        operation=f"'{prim.name}'",
        required=f"{what} (debug_overflow)",
        got=f"{result[index]}{at} of {kind(result)}, from {inputs}",
        fix=fix,
        source=source,
    )


def _lost(x: NDArray, y: NDArray) -> NDArray:
    """Where a cast to integers changed the value; fractions may be cut off."""
    if not dt.is_integer(y.dtype) or dt.is_bool(x.dtype) or dt.is_complex(x.dtype):
        return np.zeros(y.shape, bool)
    info = np.iinfo(y.dtype)
    if dt.is_integer(x.dtype):
        wide = x.astype(object) if x.dtype.itemsize == 8 else x.astype(np.int64)
        return np.asarray((wide < int(info.min)) | (wide > int(info.max)), bool)
    wide = x.astype(np.float64)
    return ~((wide > float(info.min) - 1) & (wide < float(info.max) + 1))


def _wrapped(
    prim: Primitive, operands: Sequence[NDArray], result: NDArray, params: Params
) -> NDArray:
    """Where the result is off by a multiple of the dtype's range, told by computing in float64."""
    wide = [x.astype(np.float64) if x.dtype == result.dtype else x for x in operands]
    if "preferred_element_type" in params:
        params = {**params, "preferred_element_type": None}
    (exact,) = prim.eval(*wide, **params)
    off = np.abs(np.asarray(exact, np.float64) - result.astype(np.float64))
    return off >= 2.0 ** (8 * result.dtype.itemsize - 1)


# ---- in compiled programs


def _aval(*avals: ShapedArray, **params: Any) -> tuple[ShapedArray, ...]:
    return ()


def _eval(
    *values: NDArray, prim: Primitive, inputs: int, given: Params, source: Source | None
) -> tuple[NDArray, ...]:
    error = find(prim, values[:inputs], values[inputs:], given, source)
    if error is not None:
        raise error
    return ()


check_overflow_p = Primitive(
    "check_overflow",
    aval=_aval,
    eval=_eval,
    form=lambda *avals, **params: Opaque("debug_overflow looks at operands and results"),
    effect=Effect.UNORDERED,
)


def with_checks(jaxpr: Jaxpr) -> Jaxpr:
    """The program with a check behind every operation that may wrap, in its jaxprs too."""
    if any(e.prim is check_overflow_p for e in jaxpr.eqns):
        return jaxpr
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if any(True for _ in sub_jaxprs(eqn.params)):
            eqn = replace(eqn, params={k: _checked(v) for k, v in eqn.params.items()})
        eqns.append(eqn)
        if eqn.prim.name in _WATCHED and _integral(eqn):
            check = {
                "prim": eqn.prim, "inputs": len(eqn.inputs), "given": eqn.params,
                "source": eqn.source,
            }  # fmt: skip
            operands = (*eqn.inputs, *eqn.outputs)
            eqns.append(Eqn(check_overflow_p, operands, (), check, eqn.source))
    return replace(jaxpr, eqns=tuple(eqns))


def _checked(value: Any) -> Any:
    if isinstance(value, Jaxpr):
        return with_checks(value)
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value
        changed = tuple(with_checks(v) if isinstance(v, Jaxpr) else v for v in items)
        return changed if any(isinstance(v, Jaxpr) for v in items) else items
    return value


def _integral(eqn: Eqn) -> bool:
    return len(eqn.outputs) == 1 and dt.is_integer(eqn.outputs[0].aval.dtype)
