"""IndexOp: the operations of index expressions, how they compute and how they print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from functools import reduce
from typing import Any


class IndexOp(Enum):
    """The operations of an Expr; the value is used in keys."""

    SYMBOL = "symbol"  # name; args = (symbolic upper bound,) or ()
    ADD = "add"  # args: products, then at most one int, last
    MUL = "mul"  # args: at most one int, first, then atoms
    FLOORDIV = "floordiv"
    MOD = "mod"
    MIN = "min"
    MAX = "max"
    NONNEGATIVE = "nonnegative"  # args[0] >= 0
    ZERO = "zero"  # args[0] == 0
    NONZERO = "nonzero"  # args[0] != 0
    AND = "and"  # args: two or more 0/1 expressions
    OR = "or"
    SELECT = "select"  # args[1] if args[0] else args[2]


def _smaller(a: Any, b: Any) -> Any:
    return (a < b) * a + (a >= b) * b


def compute(op: IndexOp, args: Sequence[Any]) -> Any:  # noqa: C901 - a case per operation
    """The operation on ints or NumPy integer arrays (comparisons give 0 or 1)."""
    first = args[0]
    match op:
        case IndexOp.ADD:
            return sum(args[1:], first)
        case IndexOp.MUL:
            return math.prod(args[1:], start=first)
        case IndexOp.FLOORDIV:
            return first // args[1]
        case IndexOp.MOD:
            return first % args[1]
        case IndexOp.MIN:
            return reduce(_smaller, args)
        case IndexOp.MAX:
            return reduce(lambda a, b: a + b - _smaller(a, b), args)
        case IndexOp.NONNEGATIVE:
            return (first >= 0) * 1
        case IndexOp.ZERO:
            return (first == 0) * 1
        case IndexOp.NONZERO:
            return (first != 0) * 1
        case IndexOp.AND:
            return math.prod(args)
        case IndexOp.OR:
            return (sum(args) > 0) * 1
        case IndexOp.SELECT:
            return (first != 0) * args[1] + (first == 0) * args[2]
        case IndexOp.SYMBOL:
            raise AssertionError("a symbol is looked up, not computed")


_FORMATS = {
    IndexOp.FLOORDIV: "({0}//{1})",
    IndexOp.MOD: "({0}%{1})",
    IndexOp.NONNEGATIVE: "({0} >= 0)",
    IndexOp.ZERO: "({0} == 0)",
    IndexOp.NONZERO: "({0} != 0)",
    IndexOp.SELECT: "({1} if {0} else {2})",
}


def text(op: IndexOp, name: str | None, args: Sequence[tuple[IndexOp | None, str]]) -> str:
    """Python source of the operation; each argument is its operation and its own text."""
    plain = [t for _, t in args]
    match op:
        case IndexOp.SYMBOL:
            return str(name)
        case IndexOp.ADD:
            return " + ".join(plain).replace("+ -", "- ")
        case IndexOp.MUL:
            sign = "-" if plain[0] == "-1" else ""
            return sign + "*".join(plain[len(sign) :])
        case IndexOp.MIN | IndexOp.MAX:
            return f"{op.value}({', '.join(plain)})"
        case IndexOp.AND | IndexOp.OR:
            return "(" + f" {op.value} ".join(plain) + ")"
        case _:
            loose = (IndexOp.ADD, IndexOp.MUL)
            return _FORMATS[op].format(*[f"({t})" if o in loose else t for o, t in args])


def written(dim: Any) -> str:
    """Python source of a dim: a number, or what has an operation, a name and arguments."""
    if isinstance(dim, int):
        return str(dim)
    return text(dim.op, dim.name, [(getattr(a, "op", None), written(a)) for a in dim.args])
