"""Integer terms that are functions of axes alone, as index expressions.

Index algebra has a normal form (`trace/dim.py`) and never needs a search: `i + 3` as an index is a
coordinate like any other, and its load no gather. A term is converted only where its dtype provably
holds every value on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import reduce

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.evaluate import literal
from lumjax.kernel.term import Apply, Axis, Index, Lit, Term, children
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr, bounds

_LARGEST = 64  # terms in an index that is converted

_COMPARISONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "lt": dims.less,
    "le": dims.less_equal,
    "gt": lambda a, b: dims.less(b, a),
    "ge": lambda a, b: dims.less_equal(b, a),
    "eq": dims.equal,
    "ne": lambda a, b: dims.logical_not(dims.equal(a, b)),
}
_ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": dims.minimum,
    "max": dims.maximum,
}


def index_of(term: Term) -> Dim | None:
    """The integer or bool (0 or 1) term as an expression of axes, else None."""
    values: dict[Term, Dim] = {}
    stack = [term]
    while stack:
        node = stack[-1]
        missing = [c for c in children(node) if c not in values]
        if missing:
            stack += missing
        else:
            value = _value(stack.pop(), values)
            if value is None or not _holds(node.dtype, value):
                return None
            values[node] = value
        if len(values) + len(stack) > _LARGEST:
            return None
    return values[term]


def _holds(dtype: dt.DType, value: Dim) -> bool:
    """Whether the dtype provably holds the value."""
    low, high = bounds(value)
    if dt.is_bool(dtype):
        least, most = 0, 1
    elif dt.is_integer(dtype):
        info = np.iinfo(dtype)
        least, most = int(info.min), int(info.max)
    else:
        return False
    return low is not None and high is not None and least <= low and high <= most


def _value(term: Term, values: dict[Term, Dim]) -> Dim | None:
    match term:
        case Lit(dtype=dtype):
            return int(literal(term)) if dt.is_bool(dtype) or dt.is_integer(dtype) else None
        case Index(expr=expr, indices=()):
            return expr
        case Apply(op=op, args=args, dtype=dtype):
            if dt.is_bool(dtype):
                return _condition(op.name, args, [values[a] for a in args])
            return _integer(op.name, [values[a] for a in args])
        case _:
            return None


def _condition(name: str, terms: Sequence[Term], args: Sequence[Dim]) -> Dim | None:
    match name, args:
        case ("and", [a, b]) if dt.is_bool(terms[0].dtype):
            return dims.logical_and(a, b)
        case ("or", [a, b]) if dt.is_bool(terms[0].dtype):
            return dims.logical_or(a, b)
        case "not", [a]:
            return dims.logical_not(a)
        case "cast", [a]:
            return dims.truth(a)
        case "select", [which, a, b]:
            return dims.select(which, a, b)
        case _:
            compare = _COMPARISONS.get(name)
            return None if compare is None else compare(*args)


def _integer(name: str, args: Sequence[Dim]) -> Dim | None:
    match name, args:
        case "neg", [a]:
            return -a
        case "cast", [a]:
            return a
        case "select", [which, a, b]:
            return dims.select(which, a, b)
        case (("idiv" | "rem"), [a, int(b)]) if b > 0 and dims.same(dims.less_equal(0, a), 1):
            # both round to zero, which is down where nothing is negative
            return dims.floor_divide(a, b) if name == "idiv" else dims.remainder(a, b)
        case _:
            operation = _ARITHMETIC.get(name)
            return None if operation is None else operation(*args)


def bearing(valid: Dim, coords: Sequence[Dim], axes: Callable[[str], Set[str]]) -> Dim:
    """Those conditions of `valid` that may bound the coordinates: they share axes with them, or
    with other such conditions. `axes` are those behind a name, none behind a size's.
    """
    if not isinstance(valid, Expr):
        return valid
    parts = valid.args if valid.op is dims.IndexOp.AND else (valid,)
    behind = [set[str]().union(*map(axes, dims.symbols(p))) for p in parts]
    reached = set[str]().union(*map(axes, dims.symbols(*coords)))
    kept = {k for k, own in enumerate(behind) if not own}
    while more := {k for k, own in enumerate(behind) if k not in kept and own & reached}:
        kept |= more
        reached = reached.union(*(behind[k] for k in more))
    return reduce(dims.logical_and, (parts[k] for k in sorted(kept)), 1)


def reads_once(coords: Sequence[Dim], axes: Mapping[str, Axis]) -> bool:
    """Whether no element is read twice: different places read at different coordinates."""
    seen: set[str] = set()
    for c in coords:
        reach = 0  # of the symbols with smaller strides
        strides: list[tuple[int, int]] = []
        for name in sorted(dims.symbols(c)):
            stride = dims.coefficient(c, name)
            extent = axes[name].extent if name in axes else None
            if name in seen or not isinstance(stride, int) or not isinstance(extent, int):
                return False
            strides.append((abs(stride), extent))
            seen.add(name)
        for stride, extent in sorted(strides):
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
    return True
