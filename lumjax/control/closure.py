"""Functions that return their own backward rule, and closures turned into arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.custom import custom_vjp
from lumjax.control.staging import flatten_values, name_of, require_callable
from lumjax.errors import ArgumentTypeError
from lumjax.record import record
from lumjax.trace.core import Jaxpr, Value, aval_of, eval_jaxpr
from lumjax.trace.stage import stage


@tree.register_static
@record(eq=False)
class _Rule:
    """A staged backward rule: (*values it closes over, *cotangents of the output) -> cotangents."""

    jaxpr: Jaxpr
    out_tree: tree.PyTreeDef


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that defines its own reverse-mode derivative, as in TensorFlow.

    `fun(*args)` returns `(output, rule)`, where `rule(ct)` gives the cotangents of the arguments:
    one value (or a tuple of one) for one argument, a tuple for several. Raises ArgumentTypeError
    if it does not.

    >>> f = custom_gradient(lambda x: (x * x, lambda ct: ct * x))
    >>> float(f(3.0))
    9.0
    """
    require_callable("custom_gradient", fun)

    def call(*args: Any) -> tuple[Any, Callable[..., Any]]:
        out = fun(*args)
        if not isinstance(out, tuple) or len(out) != 2 or not callable(out[1]):
            raise ArgumentTypeError(
                operation=f"custom_gradient of {name_of(fun)}",
                required="a function that returns (output, rule)",
                got=f"a result of type {type(out).__name__}",
                fix="return the output and a function of its cotangent",
            )
        return out

    def primal(*args: Any) -> Any:
        return call(*args)[0]

    def fwd(*args: Any) -> tuple[Any, Any]:
        out, rule = call(*args)
        leaves, out_tree = flatten_values(out)
        trees: list[tree.PyTreeDef] = []

        def flat(*cts: Value) -> list[Value]:
            found = rule(tree.unflatten(out_tree, cts))
            single = len(args) == 1 and tree.structure(found) == tree.structure(args[0])
            many = isinstance(found, tuple | list) and not single
            values, found_tree = flatten_values(tuple(found) if many else (found,))
            trees.append(found_tree)
            return values

        staged = stage(flat, [aval_of(x).tangent().strip_weak() for x in leaves])
        jaxpr = replace(staged.jaxpr, consts=0)
        return out, (_Rule(jaxpr, trees[0]), staged.consts)

    def bwd(residuals: Any, ct: Any) -> Any:
        rule, consts = residuals
        outs = eval_jaxpr(rule.jaxpr, (*consts, *tree.leaves(ct)))
        return tree.unflatten(rule.out_tree, outs)

    primal.__name__ = name_of(fun)
    wrapped = custom_vjp(primal)
    wrapped.defvjp(fwd, bwd)
    return wrapped


def closure_convert(
    fun: Callable[..., Any], *example_args: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """`fun` with the inexact values that it closes over as further arguments, and those values.

    The new function is called as `converted(*args, *values)`. For custom rules, which cannot
    differentiate what a function closes over.

    >>> converted, values = closure_convert(lambda x: x * 2.0, 1.0)
    >>> float(converted(3.0, *values))
    6.0
    """
    require_callable("closure_convert", fun)
    examples, in_tree = flatten_values(example_args)
    trees: list[tree.PyTreeDef] = []

    def flat(*args: Value) -> list[Value]:
        leaves, out_tree = flatten_values(fun(*tree.unflatten(in_tree, args)))
        trees.append(out_tree)
        return leaves

    staged = stage(flat, [aval_of(x) for x in examples])
    moves = [dt.is_inexact(aval_of(c).dtype) for c in staged.consts]
    hoisted = [c for c, m in zip(staged.consts, moves, strict=True) if m]
    jaxpr = replace(staged.jaxpr, consts=0)

    def converted(*args: Any) -> Any:
        count = len(args) - len(hoisted)
        values = iter(args[count:])
        consts = [next(values) if m else c for c, m in zip(staged.consts, moves, strict=True)]
        leaves, found_tree = flatten_values(args[:count])
        if found_tree != in_tree:
            raise ArgumentTypeError(
                operation=f"converted {name_of(fun)}",
                required=f"arguments of the structure {in_tree}, then {len(hoisted)} values",
                got=str(found_tree),
                fix="pass arguments like the example ones, then the hoisted values",
            )
        return tree.unflatten(trees[0], eval_jaxpr(jaxpr, (*consts, *leaves)))

    return converted, hoisted
