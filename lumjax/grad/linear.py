"""linear_transpose: the transpose of a function that is linear to begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


from lumjax import dtype as dt
from lumjax import tree
from lumjax.errors import ArgumentTypeError, GradientError, MissingRuleError
from lumjax.grad.forward import FlatFunction, as_output, check_callable, describe
from lumjax.grad.reverse import LinearMap, Pullback
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Value, aval_of
from lumjax.trace.stage import stage


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[..., Any]:
    """The transpose of a linear function, as a function of output cotangents.

    Args:
        fun: a function that is linear in all its arguments.
        primals: its arguments, or anything with `shape` and `dtype` in their place; values are not used.

    Returns:
        A function from a cotangent of `fun`'s output to a tuple with one cotangent per argument.

    Raises:
        GradientError: `fun` is not linear, or a cotangent does not fit its output.

    >>> import lumjax
    >>> [float(ct) for ct in lumjax.linear_transpose(lambda x: 3.0 * x, 1.0)(2.0)]
    [6.0]
    """
    check_callable("linear_transpose", fun)
    flat, in_tree = tree.flatten(primals)
    avals = tuple([_abstract(x) for x in flat])
    f = FlatFunction("linear_transpose", lambda leaves: fun(*tree.unflatten(in_tree, leaves)))
    staged = stage(lambda *leaves: [as_output(o) for o in f(*leaves)], avals)
    jaxpr = staged.jaxpr
    linear = LinearMap(jaxpr, avals, jaxpr.out_avals, (True,) * len(jaxpr.outputs))
    _check_linear(linear, staged.consts)
    return tree.Partial(Pullback(linear, in_tree, f.out_tree), staged.consts)


def _abstract(x: Any) -> ShapedArray:
    """The aval of an argument or of its description."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        weak = bool(getattr(x, "weak_type", getattr(x, "weak", False)))
        aval = ShapedArray(tuple(x.shape), dt.canonicalize(x.dtype), weak)
    else:
        aval = aval_of(x)
    if not dt.is_inexact(aval.dtype):
        raise GradientError(
            operation="linear_transpose",
            required="floating or complex arguments",
            got=str(aval),
            fix="close over integer arguments instead",
        )
    return aval


def _check_linear(linear: LinearMap, consts: tuple[Value, ...]) -> None:
    """Transpose once, abstractly: a rule that meets a product of two unknowns cannot go on."""

    def pull(*values: Value) -> list[Value]:
        return linear.pull(values[: len(consts)], values[len(consts) :])

    avals = [aval_of(c) for c in consts] + [a.tangent() for a in linear.out_avals]
    try:
        stage(pull, avals)
    except (ArgumentTypeError, MissingRuleError) as error:
        raise GradientError(
            operation="linear_transpose",
            required="a function that is linear in all its arguments",
            got=f"{describe(error.operation)} applied to values that depend on them",
            fix="linearize it first: linearize(fun, *primals)[1] is linear",
        ) from error
