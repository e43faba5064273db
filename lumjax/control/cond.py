"""`cond` and `switch`: choose a function by a value that is known only when the program runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.branch import branch
from lumjax.control.staging import (
    Callee,
    flatten_values,
    name_of,
    require_callable,
    same_type,
    share_consts,
    stage_tree,
)
from lumjax.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError, TreeError
from lumjax.ops.arithmetic import clamp
from lumjax.ops.compare import ne
from lumjax.ops.elementwise import cast
from lumjax.trace.core import Value, aval_of

_MISSING: Any = object()


def cond(
    pred: Value,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _MISSING,
) -> Any:
    """`true_fun(*operands)` if the scalar `pred` holds, else `false_fun(*operands)`; only one runs.

    Both are staged, and must return pytrees of one structure with leaves of the same shapes and
    dtypes. `pred` is a bool, or a number that is compared with 0. Under `vmap` with a mapped `pred`
    both run and each lane selects. Raises ShapeError for a `pred` that is no scalar, TreeError or
    ShapeError where the two results differ.

    >>> int(cond(True, lambda x: x + 1, lambda x: x - 1, 3))
    4
    """
    operands = _operands("cond", operands, operand)
    require_callable("cond's true_fun", true_fun)
    require_callable("cond's false_fun", false_fun)
    flag = _scalar("cond", "pred", pred)
    if not dt.is_numeric(flag.dtype) or dt.is_complex(flag.dtype):
        raise DTypeError(
            operation="cond",
            required="a predicate that is a bool or a real number",
            got=str(flag),
            fix="compare to get a bool",
        )
    if not dt.is_bool(flag.dtype):
        pred = ne(pred, 0)
    index = cast(pred, dt.int32)
    return _choose("cond", index, (false_fun, true_fun), operands)


def switch(
    index: Value,
    branches: Sequence[Callable[..., Any]],
    *operands: Any,
    operand: Any = _MISSING,
) -> Any:
    """`branches[index](*operands)`, with the integer scalar `index` clamped into range; only one
    runs.

    The results must agree in structure, shapes and dtypes, as for `cond`. Raises ArgumentValueError
    when there are no branches, DTypeError when `index` is no integer.

    >>> int(switch(2, [lambda x: x, lambda x: 2 * x, lambda x: 3 * x], 5))
    15
    """
    operands = _operands("switch", operands, operand)
    functions = tuple(branches)
    for f in functions:
        require_callable("switch", f)
    if not functions:
        raise ArgumentValueError(
            operation="switch",
            required="at least one branch",
            got="an empty sequence",
            fix="pass a branch",
        )
    aval = _scalar("switch", "index", index)
    if not dt.is_integer(aval.dtype):
        raise DTypeError(
            operation="switch",
            required="an integer index",
            got=str(aval),
            fix="convert it to an integer, or use cond for a bool",
        )
    if len(functions) == 1:
        return functions[0](*operands)
    last = np.asarray(len(functions) - 1, dt.int32)
    clamped = clamp(np.int32(0), cast(index, dt.int32), last)
    return _choose("switch", clamped, functions, operands)


def _operands(operation: str, operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    if operand is _MISSING:
        return operands
    if operands:
        raise ArgumentTypeError(
            operation=operation,
            required="operands by position or one by the keyword `operand`",
            got="both",
            fix="pass all of them by position",
        )
    return (operand,)


def _scalar(operation: str, what: str, x: Any) -> Any:
    aval = aval_of(x)
    if aval.ndim:
        raise ShapeError(
            operation=operation,
            required=f"`{what}` to be a scalar",
            got=str(aval),
            fix="reduce it with any or all, or use where to choose elementwise",
        )
    return aval


def _choose(
    operation: str,
    index: Value,
    functions: Sequence[Callable[..., Any]],
    operands: tuple[Any, ...],
) -> Any:
    leaves, in_tree = flatten_values(operands)
    avals = [aval_of(x) for x in leaves]
    callees = [stage_tree(f, in_tree, avals) for f in functions]
    for callee, f in zip(callees[1:], functions[1:], strict=True):
        _check_same(operation, callees[0], functions[0], callee, f)
    jaxprs, consts = share_consts([(c.jaxpr, c.consts) for c in callees])
    return tree.unflatten(callees[0].out_tree, branch(index, jaxprs, (*consts, *leaves)))


def _check_same(operation: str, a: Callee, f: Any, b: Callee, g: Any) -> None:
    if a.out_tree != b.out_tree:
        raise TreeError(
            operation=operation,
            required="branches that return pytrees of one structure",
            got=f"{name_of(f)} returning {a.out_tree} and {name_of(g)} returning {b.out_tree}",
            fix="return the same containers from every branch",
        )
    paths = tree.leaves_with_path(tree.unflatten(a.out_tree, range(a.out_tree.num_leaves)))
    for (path, _), x, y in zip(paths, a.jaxpr.out_avals, b.jaxpr.out_avals, strict=True):
        if not same_type(x, y):
            where = tree.keystr(path) or "the result"
            raise ShapeError(
                operation=operation,
                required="branches that return the same shapes and dtypes",
                got=f"at {where}: {x} from {name_of(f)} and {y} from {name_of(g)}",
                fix="convert one of the results with astype, broadcast_to or reshape",
            )
