"""Dim: an integer or a bounded integer expression, and the functions that build and read them.

The same expressions (`trace/expr.py`) serve as symbolic sizes, strides, validity masks and kernel
indices. A comparison is a dim that is 0 or 1, folded where the bounds decide it. `==`, `<`, `bool`
of an Expr are for users: they raise when undecided. Internals use `same` and `same_shape`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from lumjax.trace import expr as ex
from lumjax.trace.expr import (
    Dim,
    Expr,
    bounds,
    floor_divide,
    remainder,
    same,
    symbol,
)
from lumjax.trace.indexop import IndexOp, compute

__all__ = [
    "Dim",
    "Expr",
    "IndexOp",
    "bounds",
    "ceiling_divide",
    "coefficient",
    "equal",
    "estimate",
    "evaluate",
    "floor_divide",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "rebuilt",
    "remainder",
    "same",
    "same_shape",
    "select",
    "substitute",
    "symbol",
    "symbols",
    "truth",
]


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are the same dim by dim."""
    return len(a) == len(b) and all(map(same, a, b))


def ceiling_divide(a: Dim, b: Dim) -> Dim:
    """The quotient a / b, rounded up."""
    return floor_divide(a + b - 1, b) if ex.proves(b - 1) else -floor_divide(-a, b)


# ---- truth


def truth(a: Dim) -> Dim:
    """1 where a != 0, else 0."""
    return ex.nonzero(a)


def less(a: Dim, b: Dim) -> Dim:
    """1 where a < b, else 0."""
    return ex.nonnegative(b - a - 1)


def less_equal(a: Dim, b: Dim) -> Dim:
    """1 where a <= b, else 0."""
    return ex.nonnegative(b - a)


def equal(a: Dim, b: Dim) -> Dim:
    """1 where a == b, else 0."""
    return logical_not(a - b)


def logical_not(a: Dim) -> Dim:
    """1 where a == 0, else 0."""
    if isinstance(a, Expr) and a.op is IndexOp.AND:
        return _connect(IndexOp.OR, *map(logical_not, a.args))
    if isinstance(a, Expr) and a.op is IndexOp.OR:
        return _connect(IndexOp.AND, *map(logical_not, a.args))
    return ex.zero(a)


def logical_and(a: Dim, b: Dim) -> Dim:
    """1 where both are nonzero, else 0."""
    return _connect(IndexOp.AND, truth(a), truth(b))


def logical_or(a: Dim, b: Dim) -> Dim:
    """1 where either is nonzero, else 0."""
    return _connect(IndexOp.OR, truth(a), truth(b))


@ex.remember
def _connect(op: IndexOp, *parts: Dim) -> Dim:
    """AND or OR of 0/1 dims; of comparisons that differ by a constant the deciding one is kept."""
    neutral = 1 if op is IndexOp.AND else 0
    kept: dict[str, Expr] = {}
    edges: dict[str, tuple[int, Expr]] = {}
    for part in parts:
        for d in part.args if isinstance(part, Expr) and part.op is op else (part,):
            if isinstance(d, int):
                if d != neutral:
                    return 1 - neutral
            elif d.op is IndexOp.NONNEGATIVE:
                slope, constant = _split_constant(d.args[0])
                old = edges.get(slope)
                if old is None or (constant < old[0]) == (op is IndexOp.AND):
                    edges[slope] = (constant, d)
            else:
                kept[d.key] = d
    kept.update((d.key, d) for _, d in edges.values())
    for d in kept.values():
        opposite = 0 if d.op in (IndexOp.AND, IndexOp.OR) else logical_not(d)
        if isinstance(opposite, Expr) and opposite.key in kept:
            return 1 - neutral
    for constant, d in edges.values():  # e + a >= 0 and -e + b >= 0 need a + b >= 0
        back = edges.get(_split_constant(ex.scale(d.args[0], -1))[0])
        if back and (constant + back[0] < 0 if op is IndexOp.AND else constant + back[0] >= -1):
            return 1 - neutral
    if len(kept) < 2:
        return next(iter(kept.values()), neutral)
    return ex.intern(op, tuple([kept[k] for k in sorted(kept)]), None, *ex.BOOLEAN)


def _split_constant(dim: Dim) -> tuple[str, int]:
    terms = ex.terms_of(dim)
    constant = terms.pop((), 0)
    rest = ex.from_terms(terms)
    return (rest.key if isinstance(rest, Expr) else ""), constant


# ---- choice


def _extreme(op: IndexOp, sign: int, a: Dim, b: Dim) -> Dim:
    args: list[Dim] = []
    for d in (a, b):
        args.extend(d.args if isinstance(d, Expr) and d.op is op else (d,))
    kept: list[Dim] = []
    for d in args:
        if not any(ex.proves(ex.scale(ex.subtract(d, k), sign)) for k in kept):
            kept = [k for k in kept if not ex.proves(ex.scale(ex.subtract(k, d), sign))] + [d]
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=lambda d: (isinstance(d, int), str(d) if isinstance(d, int) else d.key))
    los, his = zip(*map(bounds, kept), strict=True)
    if op is IndexOp.MIN:
        lo = None if None in los else min(los)
        hi = min((h for h in his if h is not None), default=None)
    else:
        lo = max((x for x in los if x is not None), default=None)
        hi = None if None in his else max(his)
    return ex.intern(op, tuple(kept), None, lo, hi)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two dims."""
    return _extreme(IndexOp.MIN, 1, a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two dims."""
    return _extreme(IndexOp.MAX, -1, a, b)


def select(condition: Dim, on_true: Dim, on_false: Dim) -> Dim:
    """on_true where condition is nonzero, else on_false."""
    condition = truth(condition)
    if isinstance(condition, int):
        return on_true if condition else on_false
    if same(on_true, on_false):
        return on_true
    if isinstance(on_true, int) and isinstance(on_false, int):
        return ex.add(ex.scale(condition, on_true - on_false), on_false)
    (a, b), (c, d) = bounds(on_true), bounds(on_false)
    lo = None if a is None or c is None else min(a, c)
    hi = None if b is None or d is None else max(b, d)
    return ex.intern(IndexOp.SELECT, (condition, on_true, on_false), None, lo, hi)


# ---- reading


def symbols(*dims: Dim) -> frozenset[str]:
    """The names that any of the dims depends on."""
    return frozenset[str]().union(*(d.symbols() for d in dims if isinstance(d, Expr)))


def substitute(dim: Dim, values: Mapping[str, Dim], memo: dict[Expr, Dim] | None = None) -> Dim:
    """`dim` with symbols replaced by name; each value must lie within its symbol's bounds.

    `memo` keeps what was found for parts, for further calls with the same values.
    """
    return _substitute(dim, values, {} if memo is None else memo)


def _substitute(dim: Dim, values: Mapping[str, Dim], memo: dict[Expr, Dim]) -> Dim:
    if isinstance(dim, int):
        return dim
    if (found := memo.get(dim)) is not None:
        return found
    args = [_substitute(a, values, memo) for a in dim.args]
    if dim.op is IndexOp.SYMBOL and dim.name is not None:
        result = values.get(dim.name, dim)
        if result is dim and args:
            result = symbol(dim.name, dim.lo, args[0])
    elif all(a is b for a, b in zip(args, dim.args, strict=True)):
        result = dim
    else:
        result = _apply(dim.op, args)
    memo[dim] = result
    return result


def _apply(op: IndexOp, args: Sequence[Dim]) -> Dim:  # noqa: C901 - a case per operation
    """Rebuild a node from new arguments."""
    result = args[0]
    match op:
        case IndexOp.ADD:
            result = _total(args)
        case IndexOp.MUL:
            for a in args[1:]:
                result = ex.multiply(result, a)
        case IndexOp.FLOORDIV:
            result = floor_divide(*args)
        case IndexOp.MOD:
            result = remainder(*args)
        case IndexOp.MIN:
            for a in args[1:]:
                result = minimum(result, a)
        case IndexOp.MAX:
            for a in args[1:]:
                result = maximum(result, a)
        case IndexOp.NONNEGATIVE:
            result = ex.nonnegative(result)
        case IndexOp.ZERO:
            result = logical_not(result)
        case IndexOp.NONZERO:
            result = truth(result)
        case IndexOp.AND | IndexOp.OR:
            result = _connect(op, *map(truth, args))
        case IndexOp.SELECT:
            result = select(*args)
        case IndexOp.SYMBOL:
            raise AssertionError("a symbol has no arguments to rebuild from")
    return result


def rebuilt(op: IndexOp, args: Sequence[Dim]) -> Dim:
    """The result of an operation on dims, in normal form."""
    return _apply(op, args)


def _total(parts: Sequence[Dim]) -> Dim:
    """The sum of the parts, as adding them up one by one gives it."""
    terms: ex.Terms = {}
    for part in parts:
        for monomial, c in ex.terms_of(part).items():
            if any(a.op is IndexOp.MOD for a in monomial):  # may rejoin on the way
                return reduce(ex.add, parts)
            terms[monomial] = terms.get(monomial, 0) + c
    return ex.from_terms(terms)


def evaluate(dim: Dim, values: Mapping[str, Any]) -> Any:
    """The value at `values` (ints or NumPy integer arrays, broadcast together)."""
    return _evaluate(dim, values, {})


def _evaluate(dim: Dim, values: Mapping[str, Any], memo: dict[Expr, Any]) -> Any:
    if isinstance(dim, int):
        return dim
    if dim not in memo:
        if dim.op is IndexOp.SYMBOL and dim.name is not None:
            memo[dim] = values[dim.name]
        else:
            memo[dim] = compute(dim.op, [_evaluate(a, values, memo) for a in dim.args])
    return memo[dim]


def estimate(dim: Dim) -> int:
    """A value for weighing only: the dim itself, or the middle of its bounds."""
    if isinstance(dim, int):
        return dim
    low, high = bounds(dim)
    least = low or 1
    return max(least, 256) if high is None else (least + high + 1) // 2


def coefficient(dim: Dim, name: str) -> Dim | None:
    """The c of dim = c*name + rest, both free of `name`; None where dim is not linear in it."""
    result: Dim = 0
    for monomial, c in ex.terms_of(dim).items():
        holding = [k for k, a in enumerate(monomial) if name in a.symbols()]
        if not holding:
            continue
        k = holding[0]
        if len(holding) > 1 or monomial[k].op is not IndexOp.SYMBOL:
            return None
        result = ex.add(result, ex.from_terms({monomial[:k] + monomial[k + 1 :]: c}))
    return result
