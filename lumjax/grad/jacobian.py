"""Whole Jacobians: forward or reverse mode mapped over the standard basis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lumjax import dtype as dt
from lumjax import tree
from lumjax.errors import GradientError
from lumjax.grad.forward import FlatFunction, check_callable, jvp_flat, zeros
from lumjax.grad.reverse import (
    check_argnums,
    linearize_flat,
    pick_arguments,
    put_arguments,
    renamed,
)
from lumjax.ops.compare import eq
from lumjax.ops.elementwise import add, asvalue, cast
from lumjax.ops.view import broadcasted_iota, reshape, slice
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import vmap
from lumjax.trace.core import Value, aval_of

_Argnums = int | Sequence[int]


def jacfwd(
    fun: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `fun`, column by column in forward mode: best for few
    inputs.

    Args:
        fun: a function of arrays or pytrees of arrays.
        argnums: which positional arguments to differentiate; a sequence gives a tuple per output.
        has_aux: whether `fun` returns a pair (output, aux); then so does the result, as (Jacobian,
            aux).
        holomorphic: promise that `fun` is holomorphic; inputs and outputs are complex.

    Returns:
        A function whose output has `fun`'s output structure; each leaf is a tree like the
        differentiated argument, of arrays of shape (*output shape, *input shape).

    Raises:
        GradientError: an input or output that isn't a real float (complex, with holomorphic).

    >>> import lumjax
    >>> import lumjax.numpy as jnp
    >>> lumjax.jacfwd(lambda x: x * x)(jnp.array([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    check_callable("jacfwd", fun)
    positions = check_argnums("jacfwd", argnums)

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        f, values, in_tree = _flatten("jacfwd", fun, args, kwargs, positions, has_aux)
        in_avals = [aval_of(v) for v in values]
        _check_dtypes("jacfwd", "inputs", in_avals, holomorphic)
        out_avals: list[ShapedArray] = []
        aux: Any = None

        def push(*tangents: Value) -> list[Value]:
            nonlocal aux, out_avals
            outs, out_tangents, trace = jvp_flat(f, values, tangents)
            aux = f.settled_aux(trace)
            out_avals = [aval_of(o) for o in outs]
            _check_dtypes("jacfwd", "outputs", out_avals, holomorphic)
            pairs = zip(out_avals, out_tangents, strict=True)
            return [zeros(a.tangent()) if t is None else t for a, t in pairs]

        columns = vmap(push, out_axes=-1)(*_standard_basis(in_avals))
        rows = [_split(c, a.ndim, in_avals) for c, a in zip(columns, out_avals, strict=True)]
        found = [_argument_tree(in_tree, r, argnums) for r in rows]
        result = tree.unflatten(f.out_tree, found)
        return (result, aux) if has_aux else result

    return renamed(jacobian, fun, "jacfwd")


def jacrev(
    fun: Callable[..., Any],
    argnums: _Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `fun`, row by row in reverse mode: best for few
    outputs.

    Arguments, results and errors are those of `jacfwd`. With `allow_int`, integer arguments are
    accepted and their Jacobian is a zero of dtype float0.

    >>> import lumjax
    >>> import lumjax.numpy as jnp
    >>> lumjax.jacrev(lambda x: x * x)(jnp.array([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    check_callable("jacrev", fun)
    positions = check_argnums("jacrev", argnums)

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        f, values, in_tree = _flatten("jacrev", fun, args, kwargs, positions, has_aux)
        in_avals = [aval_of(v) for v in values]
        if not allow_int:
            _check_dtypes("jacrev", "inputs", in_avals, holomorphic, complex_inputs=True)
        outs, linear, consts, trace = linearize_flat(f, values)
        out_avals = [aval_of(o) for o in outs]
        _check_dtypes("jacrev", "outputs", out_avals, holomorphic)
        rows = vmap(lambda *cts: linear.pull(consts, cts))(*_standard_basis(out_avals))
        columns = [_split(r, 0, out_avals) for r in rows]
        found = [_argument_tree(in_tree, list(row), argnums) for row in zip(*columns, strict=True)]
        result = tree.unflatten(f.out_tree, found)
        return (result, f.settled_aux(trace)) if has_aux else result

    return renamed(jacobian, fun, "jacrev")


def hessian(
    fun: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """A function that returns the matrix of second derivatives of `fun`: forward over reverse mode.

    Arguments and errors are those of `jacfwd`; the result is the Jacobian of the Jacobian.

    >>> import lumjax
    >>> import lumjax.numpy as jnp
    >>> lumjax.hessian(lambda x: x[0] * x[1])(jnp.array([1.0, 2.0])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    inner = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return renamed(jacfwd(inner, argnums, has_aux=has_aux, holomorphic=holomorphic), fun, "hessian")


def _flatten(
    operation: str,
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    positions: Sequence[int],
    has_aux: bool,
) -> tuple[FlatFunction, list[Value], tree.PyTreeDef]:
    """`fun` as a function of leaves of the chosen arguments, those leaves, their structure."""
    flat, treedef = tree.flatten(pick_arguments(operation, args, positions))

    def run(leaves: Sequence[Value]) -> Any:
        return fun(*put_arguments(args, positions, tree.unflatten(treedef, leaves)), **kwargs)

    values = [asvalue(x, operation) for x in flat]
    return FlatFunction(operation, run, has_aux), values, treedef


def _argument_tree(in_tree: tree.PyTreeDef, leaves: Sequence[Value], argnums: _Argnums) -> Any:
    found = tree.unflatten(in_tree, leaves)
    return found[0] if isinstance(argnums, int) else found


def _check_dtypes(
    operation: str,
    what: str,
    avals: Sequence[ShapedArray],
    holomorphic: bool,
    complex_inputs: bool = False,
) -> None:
    for aval in avals:
        fine = dt.is_complex(aval.dtype) if holomorphic else dt.is_floating(aval.dtype)
        if not fine and not (complex_inputs and not holomorphic and dt.is_complex(aval.dtype)):
            raise GradientError(
                operation=operation + (" with holomorphic=True" if holomorphic else ""),
                required=f"{'complex' if holomorphic else 'real floating'} {what}",
                got=str(aval),
                fix="drop holomorphic=True"
                if holomorphic
                else "convert them to a float, choose other argnums, or use jvp or vjp",
            )


def _standard_basis(avals: Sequence[ShapedArray]) -> list[Value]:
    """Per aval an array (total size, *shape): row k has a one at the k-th element of all avals, in
    order.
    """
    sizes = [a.size for a in avals]
    total = sum(sizes)
    basis: list[Value] = []
    start = 0
    for aval, size in zip(avals, sizes, strict=True):
        row = broadcasted_iota(dt.int32, (total, size), 0)
        column = broadcasted_iota(dt.int32, (total, size), 1)
        ones = cast(eq(row, add(column, start)), aval.dtype, weak=aval.weak)
        basis.append(reshape(ones, (total, *aval.shape)))
        start = start + size
    return basis


def _split(x: Value, axis: int, avals: Sequence[ShapedArray]) -> list[Value]:
    """`x` cut along `axis`, the basis's, into one array (*before, *aval.shape, *after) per aval."""
    shape = aval_of(x).shape
    before, after = shape[:axis], shape[axis + 1 :]
    pieces: list[Value] = []
    start = 0
    for aval in avals:
        stop = start + aval.size
        if aval_of(x).dtype == dt.float0:
            pieces.append(zeros(aval_of(x).with_shape((*before, *aval.shape, *after))))
        else:
            lead, rest = (0,) * len(before), (0,) * len(after)
            piece = slice(x, (*lead, start, *rest), (*before, stop, *after))
            pieces.append(reshape(piece, (*before, *aval.shape, *after)))
        start = stop
    return pieces


jacobian = jacrev
