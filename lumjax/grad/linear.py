"""Functions that return linear functions: linearize, vjp, linear_transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lumjax import dtype as dt
from lumjax import tree
from lumjax.errors import ArgumentTypeError, GradientError, MissingRuleError
from lumjax.grad.forward import (
    FlatFunction,
    as_output,
    called,
    check_callable,
    check_same_tree,
    check_tangent,
)
from lumjax.grad.reverse import LinearMap, linearize_flat
from lumjax.ops.elementwise import asvalue
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Value, aval_of
from lumjax.trace.simplify import dce
from lumjax.trace.stage import stage


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The output of `fun` at `primals`, and its derivative there as a function of tangents.

    Args:
        fun: a function of arrays or pytrees of arrays.
        primals: its positional arguments.
        has_aux: whether `fun` returns a pair (output, aux) whose second part is not differentiated.

    Returns:
        (output, f_jvp), or (output, f_jvp, aux). `f_jvp` takes one tangent per argument and does
        not run `fun` again.

    >>> import lumjax
    >>> y, f_jvp = lumjax.linearize(lambda x: x * x, 3.0)
    >>> float(y), float(f_jvp(1.0))
    (9.0, 6.0)
    """
    check_callable("linearize", fun)
    outs, linear, consts, f, forward, treedef = _linearize("linearize", fun, primals, has_aux)
    linear = replace(linear, jaxpr=dce(linear.jaxpr))
    derivative = tree.Partial(_Derivative(linear, treedef, f.out_tree), consts)
    result = tree.unflatten(f.out_tree, outs), derivative
    return (*result, f.settled_aux(forward)) if has_aux else result


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The output of `fun` at `primals`, and a function from output cotangents to argument
    cotangents.

    Args:
        fun: a function of arrays or pytrees of arrays.
        primals: its positional arguments.
        has_aux: whether `fun` returns a pair (output, aux) whose second part is not differentiated.

    Returns:
        (output, f_vjp), or (output, f_vjp, aux). `f_vjp(ct)` takes a cotangent of the output's
        structure, shapes and dtypes (float0 for integers), and returns a tuple with one cotangent
        per argument.

    >>> import lumjax
    >>> y, f_vjp = lumjax.vjp(lambda x, y: x * y, 3.0, 4.0)
    >>> [float(ct) for ct in f_vjp(1.0)]
    [4.0, 3.0]
    """
    check_callable("vjp", fun)
    outs, linear, consts, f, forward, treedef = _linearize("vjp", fun, primals, has_aux)
    pullback = tree.Partial(_Pullback(linear, treedef, f.out_tree), consts)
    result = tree.unflatten(f.out_tree, outs), pullback
    return (*result, f.settled_aux(forward)) if has_aux else result


def _linearize(operation: str, fun: Callable[..., Any], primals: Any, has_aux: bool) -> Any:
    flat, treedef = tree.flatten(primals)

    def run(leaves: Sequence[Value]) -> Any:
        return fun(*tree.unflatten(treedef, leaves))

    f = FlatFunction(operation, run, has_aux, called(fun))
    outs, linear, consts, forward = linearize_flat(f, [asvalue(x, operation) for x in flat])
    return outs, linear, consts, f, forward, treedef


@record(eq=False)
class _Derivative:
    """What `linearize` returns: residuals and tangents to output tangents."""

    linear: LinearMap
    in_tree: tree.PyTreeDef
    out_tree: tree.PyTreeDef

    def __call__(self, consts: Sequence[Value], *tangents: Any) -> Any:
        """The output's tangent."""
        word = "tangent"
        leaves = _leaves_like("the derivative from linearize", word, self.in_tree, tangents)
        given = [
            check_tangent("the derivative from linearize", word, a, t)
            for a, t in zip(self.linear.in_avals, leaves, strict=True)
        ]
        return tree.unflatten(self.out_tree, self.linear.apply(consts, given))


@record(eq=False)
class _Pullback:
    """What `vjp` returns: residuals and an output cotangent to argument cotangents."""

    linear: LinearMap
    in_tree: tree.PyTreeDef
    out_tree: tree.PyTreeDef

    def __call__(self, consts: Sequence[Value], ct: Any) -> Any:
        """The arguments' cotangents."""
        leaves = _leaves_like("the pullback from vjp", "cotangent", self.out_tree, ct)
        cts = [
            check_tangent("the pullback from vjp", "cotangent", a, c)
            for a, c in zip(self.linear.out_avals, leaves, strict=True)
        ]
        return tree.unflatten(self.in_tree, self.linear.pull(consts, cts))


def _leaves_like(operation: str, word: str, treedef: tree.PyTreeDef, value: Any) -> list[Any]:
    """The leaves of `value`, which must have the given structure."""
    leaves, found = tree.flatten(value)
    if found != treedef:
        check_same_tree(
            operation, f"a {word}", tree.unflatten(treedef, range(treedef.num_leaves)), value
        )
    return leaves


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[..., Any]:
    """The transpose of a linear function, as a function of output cotangents.

    Args:
        fun: a function that is linear in all its arguments.
        primals: its arguments, or anything with `shape` and `dtype` in their place; values are not
            used.

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
    return tree.Partial(_Pullback(linear, in_tree, f.out_tree), staged.consts)


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
            got=f"{error.operation} applied to values that depend on them",
            fix="linearize it first: linearize(fun, *primals)[1] is linear",
        ) from error
