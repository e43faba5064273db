"""A function of a large batch, computed from parts of it one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import tree
from lumjax.api import ShapeDtypeStruct, eval_shape
from lumjax.control.scan import scan
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError


def accumulate(fun: Callable[..., Any], steps: int) -> Callable[..., Any]:
    """`fun(params, *batch)` as the mean of its results on `steps` equal parts of the batch, which
    are computed one after the other: the memory is that of one part.

    Every array of `batch` (n, ...) is cut along its first axis into parts (n / steps, ...); `fun`
    gives a pytree of floating or complex arrays, such as `value_and_grad` of a mean over the batch
    does, whose accumulated value and gradients are those of the whole batch. Sums are in float32
    where results are half floats. Raises ShapeError where `steps` does not divide n,
    ArgumentValueError for steps below 1, DTypeError where a result is no mean of numbers.

    >>> import lumjax
    >>> loss = lambda w, x: jnp.mean((x @ w) ** 2)
    >>> w, x = jnp.ones(3), jnp.arange(24.0).reshape(8, 3)
    >>> value, slope = accumulate(lumjax.value_and_grad(loss), 4)(w, x)
    >>> bool(jnp.allclose(slope, lumjax.grad(loss)(w, x)))
    True
    """
    if steps < 1:
        raise ArgumentValueError(
            operation="train.accumulate", required="at least 1 step", got=str(steps),
            fix="give the number of parts of a batch",
        )  # fmt: skip

    @functools.wraps(fun)
    def accumulated(params: Any, *batch: Any) -> Any:
        parts = tree.map(lambda x: _cut(jnp.asarray(x), steps), batch)
        one = tree.map(lambda x: ShapeDtypeStruct(x.shape[1:], x.dtype), parts)
        results = eval_shape(fun, params, *one)
        for keys, result in tree.leaves_with_path(results):
            _check(tree.keystr(keys), result)
        sums = tree.map(lambda r: jnp.zeros(r.shape, dt.accumulation_dtype(r.dtype)), results)

        def add(sums: Any, part: Any) -> tuple[Any, None]:
            return tree.map(lambda s, r: s + r.astype(s.dtype), sums, fun(params, *part)), None

        sums, _ = scan(add, sums, parts)
        return tree.map(lambda s, r: (s / steps).astype(r.dtype), sums, results)

    return accumulated


def _cut(x: Any, steps: int) -> Any:
    if x.ndim == 0 or x.shape[0] % steps:
        raise ShapeError(
            operation="train.accumulate", required=f"arrays (n, ...) with n a multiple of {steps}",
            got=f"shape {x.shape}", fix="choose another number of steps, or pad the batch",
        )  # fmt: skip
    return x.reshape(steps, x.shape[0] // steps, *x.shape[1:])


def _check(name: str, result: Any) -> None:
    if not dt.is_inexact(result.dtype):
        raise DTypeError(
            operation="train.accumulate", required="results that are floating or complex",
            got=f"{dt.short_name(result.dtype)} at {name or 'the result'}",
            fix="return it as a float, whose mean over the parts is taken",
        )  # fmt: skip
