"""Loops for users: `scan`, `map`, `while_loop` and `fori_loop`."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.check import Format, check_value
from lumjax.control.cond import cond
from lumjax.control.iteration import iterate
from lumjax.control.scanning import Loop, repeat
from lumjax.control.staging import (
    Callee,
    flatten_values,
    name_of,
    require_callable,
    same_type,
    stage_tree,
)
from lumjax.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError, TreeError
from lumjax.ops.compare import lt, not_
from lumjax.ops.elementwise import add, asvalue, cast
from lumjax.ops.layout import batch_first, reshape
from lumjax.ops.view import concatenate
from lumjax.ops.view import slice as slice_rows
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis, batch
from lumjax.trace.core import Tracer, Value, aval_of
from lumjax.trace.dim import Dim, Expr, same

# ---- scan


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,  # how XLA runs the backward pass: nothing here
) -> tuple[Any, Any]:
    """Thread a carry through the rows of `xs`: `carry, y = f(carry, x)` for each, stacking the ys.

    `init` and `xs` are pytrees; `xs` leaves share the size of their first axis, or `xs` is None and
    `length` says how often to run. The carry keeps its structure, shapes and dtypes, but a weakly
    typed one takes the dtype it gets. With `reverse` the rows are taken, and ys stored, from last
    to first. `unroll` is a hint for the compiler. Returns (last carry, stacked ys). Differentiable
    in both modes; residuals that do not change are not stacked. Raises TreeError, ShapeError or
    DTypeError where carries differ, ArgumentValueError for a bad length.

    >>> import numpy as np
    >>> total, sums = scan(lambda c, x: (c + x, c + x), 0, np.arange(1, 5))
    >>> int(total), [int(s) for s in sums.data]
    (10, [1, 3, 6, 10])
    """
    del _split_transpose
    require_callable("scan", f)
    init_values, init_tree = flatten_values(init)
    rows, xs_tree = flatten_values(xs)
    count = _length(rows, length)
    loop = Loop(count, bool(reverse), _unroll(unroll, count))
    row_avals = [a.with_shape(a.shape[1:]) for a in [aval_of(x) for x in rows]]
    in_tree = tree.structure(
        (tree.unflatten(init_tree, init_values), tree.unflatten(xs_tree, rows))
    )
    carry = len(init_values)

    def staged() -> tuple[Callee, Sequence[ShapedArray]]:
        callee = stage_tree(f, in_tree, [*[aval_of(x) for x in init_values], *row_avals])
        parts = callee.out_tree.children()
        if callee.out_tree.type not in (tuple, list) or len(parts) != 2:
            raise ArgumentTypeError(
                operation="scan",
                required="a body that returns a pair (carry, y)",
                got=f"{name_of(f)} returning {callee.out_tree}",
                fix="return a tuple of two; the second may be None",
            )
        _check_carry_tree("scan", f, init_tree, parts[0])
        return callee, callee.jaxpr.out_avals[:carry]

    callee, init_values = _settle("scan", f, init_tree, init_values, staged)
    last, ys = repeat(callee.jaxpr, loop, callee.consts, init_values, rows)
    carry_tree, y_tree = callee.out_tree.children()
    return tree.unflatten(carry_tree, last), tree.unflatten(y_tree, ys)


def _length(rows: Sequence[Value], length: int | None) -> Dim:
    """The number of steps: the common first size of the rows, which `length` must agree with."""
    sizes: list[Dim] = []
    for row in rows:
        aval = aval_of(row)
        if not aval.ndim:
            raise ShapeError(
                operation="scan",
                required="xs whose leaves have a first axis to scan over",
                got=str(aval),
                fix="close over values that are the same in every step",
            )
        sizes.append(aval.shape[0])
    if length is not None and not isinstance(length, Expr):
        try:
            length = operator.index(length)
        except TypeError:
            raise ArgumentTypeError(
                operation="scan",
                required="an integer length",
                got=f"{length!r} of type {type(length).__name__}",
                fix="pass a Python integer",
            ) from None
        if length < 0:
            raise ArgumentValueError(
                operation="scan",
                required="a length that is not negative",
                got=str(length),
                fix="pass 0 for no steps",
            )
    if length is not None:
        sizes.insert(0, length)
    if not sizes:
        raise ArgumentValueError(
            operation="scan",
            required="xs with at least one leaf, or a length",
            got="neither",
            fix="pass length=",
        )
    if not all(same(s, sizes[0]) for s in sizes):
        raise ShapeError(
            operation="scan",
            required="one common size of the first axes of xs, equal to length where it is given",
            got=", ".join([str(s) for s in sizes]),
            fix="slice xs to one length",
        )
    return sizes[0]


def _unroll(unroll: int | bool, length: Dim) -> int:
    if isinstance(unroll, bool):
        return int(length) if unroll and isinstance(length, int) else 1
    if type(unroll) is not int or unroll < 0:
        raise ArgumentValueError(
            operation="scan",
            required="unroll to be a bool or an integer that is not negative",
            got=repr(unroll),
            fix="pass how many steps to run per iteration",
        )
    return unroll or 1


def _check_carry_tree(
    operation: str, f: Any, expected: tree.PyTreeDef, found: tree.PyTreeDef
) -> None:
    if expected == found:
        return
    difference = tree.first_mismatch(
        tree.unflatten(expected, range(expected.num_leaves)),
        tree.unflatten(found, range(found.num_leaves)),
    )
    raise TreeError(
        operation=operation,
        required="a carry that keeps its pytree structure",
        got=f"{name_of(f)} taking {expected} and returning {found}: {difference}",
        fix="return the carry in the containers in which it came",
    )


def _settle(
    operation: str,
    f: Any,
    carry_tree: tree.PyTreeDef,
    init: list[Value],
    staged: Callable[[], tuple[Callee, Sequence[ShapedArray]]],
) -> tuple[Callee, list[Value]]:
    """Stage the body until the carry's types hold: a weak carry takes the dtype that the body
    returns.
    """
    while True:
        callee, outs = staged()
        changed = False
        for k, (x, out) in enumerate(zip(init, outs, strict=True)):
            aval = aval_of(x)
            if not aval.weak or same_type(aval, out):
                continue
            dtype, weak = dt.promote((aval.dtype, aval.weak), (out.dtype, out.weak))
            if dtype != aval.dtype:
                init[k] = cast(x, dtype, weak)
                changed = True
        if not changed:
            break
    paths = tree.leaves_with_path(tree.unflatten(carry_tree, range(carry_tree.num_leaves)))
    for (path, _), x, out in zip(paths, init, outs, strict=True):
        aval = aval_of(x)
        if not same_type(aval, out):
            kind = DTypeError if aval.dtype != out.dtype else ShapeError
            raise kind(
                operation=operation,
                required="a carry that keeps its shapes and dtypes",
                got=f"carry{tree.keystr(path)} of {name_of(f)} coming in as {aval}, out as {out}",
                fix="convert it with astype or reshape, in the initial value or in the body",
            )
    return callee, init


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`f` applied to each row of the pytree `xs`, one after the other, results stacked.

    With `batch_size`, that many rows at a time are handled as by `vmap`.

    >>> import numpy as np
    >>> [int(y) for y in map(lambda x: x * x, np.arange(4)).data]
    [0, 1, 4, 9]
    """
    require_callable("map", f)
    if batch_size is None:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]
    if type(batch_size) is not int or batch_size < 1:
        raise ArgumentValueError(
            operation="map",
            required="a positive integer batch_size",
            got=repr(batch_size),
            fix="pass how many rows to handle at once",
        )
    rows, xs_tree = flatten_values(xs)
    count = int(_length(rows, None))
    whole = count // batch_size * batch_size
    parts: list[Any] = []
    if whole:
        blocks = [
            reshape(_rows(x, 0, whole), (whole // batch_size, batch_size, *aval_of(x).shape[1:]))
            for x in rows
        ]
        stacked = scan(
            lambda _, x: (None, _vectorized(f, x, batch_size)),
            None,
            tree.unflatten(xs_tree, blocks),
        )[1]
        parts.append(tree.map(lambda y: reshape(y, (whole, *aval_of(y).shape[2:])), stacked))
    if whole < count or not whole:
        rest = tree.unflatten(xs_tree, [_rows(x, whole, count) for x in rows])
        parts.append(_vectorized(f, rest, count - whole))
    return parts[0] if len(parts) == 1 else tree.map(lambda *ys: concatenate(ys, 0), *parts)


def _rows(x: Value, start: int, stop: int) -> Value:
    shape = aval_of(x).shape
    return slice_rows(x, (start, *[0] * (len(shape) - 1)), (stop, *shape[1:]))


def _vectorized(f: Callable[[Any], Any], xs: Any, size: int) -> Any:
    """`f` over the first axis of every leaf at once."""
    from_rows, xs_tree = flatten_values(xs)
    trees: list[tree.PyTreeDef] = []

    def flat(*args: Value) -> list[Value]:
        leaves, out_tree = tree.flatten(f(tree.unflatten(xs_tree, args)))
        trees.append(out_tree)
        return leaves

    pairs = batch(flat, MappedAxis(size), from_rows, [0] * len(from_rows))
    return tree.unflatten(trees[0], [batch_first(y, d, size) for y, d in pairs])


# ---- while and for


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    max_steps: int | None = None,
) -> Any:
    """Repeat `val = body_fun(val)` as long as `cond_fun(val)`, a bool scalar, holds; returns the
    last `val`.

    `val` is a pytree that keeps its structure, shapes and dtypes. Differentiable in forward mode;
    reverse mode needs a bound on the number of steps: with `max_steps` the loop is a `scan` of that
    length whose steps do nothing once the condition fails (FailedCheckError when it runs, if it
    then still holds). `fori_loop` with static bounds and `scan` are differentiable too. Under
    `vmap` it runs until every lane has stopped. Raises TreeError, ShapeError or DTypeError for a
    carry that changes, DTypeError for a condition that is no bool.

    >>> int(while_loop(lambda x: x < 10, lambda x: 2 * x, 1))
    16
    >>> import lumjax
    >>> def doubled(x):
    ...     return while_loop(lambda x: x < 10, lambda x: 2 * x, x, max_steps=8)
    >>> float(lumjax.grad(doubled)(3.0))
    4.0
    """
    if max_steps is not None:
        return _bounded(cond_fun, body_fun, init_val, max_steps)
    require_callable("while_loop's cond_fun", cond_fun)
    require_callable("while_loop's body_fun", body_fun)
    init, init_tree = flatten_values(init_val)
    in_tree = tree.structure((tree.unflatten(init_tree, init),))

    def staged() -> tuple[Callee, Sequence[ShapedArray]]:
        callee = stage_tree(body_fun, in_tree, [aval_of(x) for x in init])
        _check_carry_tree("while_loop", body_fun, init_tree, callee.out_tree)
        return callee, callee.jaxpr.out_avals

    body, init = _settle("while_loop", body_fun, init_tree, init, staged)
    test = stage_tree(cond_fun, in_tree, [aval_of(x) for x in init])
    outs = test.jaxpr.out_avals
    if not test.out_tree.is_leaf() or outs[0].ndim or not dt.is_bool(outs[0].dtype):
        raise DTypeError(
            operation="while_loop",
            required="a condition that returns one bool scalar",
            got=f"{name_of(cond_fun)} returning {', '.join(str(a) for a in outs) or test.out_tree}",
            fix="compare, and reduce arrays with any or all",
        )
    last = iterate(test.jaxpr, body.jaxpr, test.consts, body.consts, init)
    return tree.unflatten(init_tree, last)


def _bounded(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any, max_steps: int
) -> Any:
    """A loop of at most `max_steps` steps, as a scan that can be differentiated in reverse."""
    if type(max_steps) is not int or max_steps < 0:
        raise ArgumentValueError(
            operation="while_loop",
            required="an integer max_steps that is not negative",
            got=repr(max_steps),
            fix="pass a bound on the number of steps",
        )

    def step(val: Any, _: None) -> tuple[Any, None]:
        return cond(cond_fun(val), body_fun, lambda v: v, val), None

    last, _ = scan(step, init_val, None, length=max_steps)
    values, arguments = flatten_values(((), {"steps": np.int32(max_steps)}))
    message = Format("while_loop needs more than max_steps = {steps} steps", arguments)
    check_value(not_(cond_fun(last)), message, values)
    return last


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """Run `val = body_fun(i, val)` for i from `lower` up to, but not including, `upper`; returns
    the last `val`.

    With bounds that are known when the loop is traced it is a `scan`, and so differentiable in
    reverse mode; otherwise a `while_loop`. Raises as those do, and DTypeError for bounds that are
    not integers of one dtype.

    >>> int(fori_loop(0, 5, lambda i, total: total + i, 0))
    10
    """
    require_callable("fori_loop", body_fun)
    low, high = asvalue(lower), asvalue(upper)
    first, last = aval_of(low), aval_of(high)
    agree = first.dtype == last.dtype or first.weak or last.weak
    if not (dt.is_integer(first.dtype) and dt.is_integer(last.dtype) and agree):
        raise DTypeError(
            operation="fori_loop",
            required="integer bounds of one dtype",
            got=f"{first} and {last}",
            fix="convert the bounds",
        )
    if first.ndim or last.ndim:
        raise ShapeError(
            operation="fori_loop",
            required="scalar bounds",
            got=f"{first} and {last}",
            fix="pass one lower and one upper bound",
        )
    dtype, weak = dt.promote((first.dtype, first.weak), (last.dtype, last.weak))
    low, high = cast(low, dtype, weak), cast(high, dtype, weak)
    if isinstance(low, Tracer) or isinstance(high, Tracer):
        if unroll is not None:
            raise ArgumentValueError(
                operation="fori_loop",
                required="static bounds where unroll is given",
                got=f"{first} and {last}, traced",
                fix="leave unroll out",
            )
        return while_loop(
            lambda state: lt(state[0], state[1]),
            lambda state: (add(state[0], 1), state[1], body_fun(state[0], state[2])),
            (low, high, init_val),
        )[2]
    steps = builtins.max(int(high.data) - int(low.data), 0)
    (_, val), _ = scan(
        lambda state, _: ((add(state[0], 1), body_fun(*state)), None),
        (low, init_val),
        None,
        length=steps,
        unroll=1 if unroll is None else unroll,
    )
    return val
