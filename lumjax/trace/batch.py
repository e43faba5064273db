"""vmap: carries one mapped axis through each primitive."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lumjax import tree
from lumjax.config import config
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import (
    Params,
    Primitive,
    Trace,
    Tracer,
    Value,
    active_traces,
    aval_of,
    current,
    leaked,
    sub_jaxprs,
    using,
)
from lumjax.trace.dim import Dim, same
from lumjax.trace.leak import check_forgotten


@record
class MappedAxis:
    """The axis that a vmap adds: its size, and its name where it was given one."""

    size: Dim
    name: Any = None


class BatchTracer(Tracer):
    """A value with a mapped axis at position `dim` that the function does not see."""

    __slots__ = ("dim", "value")

    def __init__(self, trace: Trace, value: Value, dim: int) -> None:
        aval = aval_of(value)
        super().__init__(trace, aval.with_shape(aval.shape[:dim] + aval.shape[dim + 1 :]))
        self.value = value
        self.dim = dim

    def origin(self) -> str:
        """That of the full value where it is traced, else what is being mapped."""
        below = self.value.origin() if isinstance(self.value, Tracer) else ""
        return below or super().origin()


class BatchTrace(Trace):
    """Applies batch rules. Collectives over `axis_name` reach their rule even when no operand is
    mapped.
    """

    def __init__(self, axis: MappedAxis) -> None:
        self.axis = axis
        self.axis_size = axis.size
        self.axis_name = axis.name
        self.parent: Trace = current()

    def split(self, x: Value) -> tuple[Value, int | None]:
        """The full value and its mapped axis; None for a value that is not mapped here."""
        return (x.value, x.dim) if isinstance(x, BatchTracer) and x.owner is self else (x, None)

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Apply one primitive's batch rule under the parent trace."""
        pairs = [self.split(a) for a in args]
        values = tuple(v for v, _ in pairs)
        dims = tuple(d for _, d in pairs)
        collective = self.axis_name is not None and uses_axis(params, self.axis_name)
        with using(self.parent):
            if not collective and all(d is None for d in dims):
                return prim.bind(*values, **params)
            outs, out_dims = prim.rule("batch")(self.axis, values, dims, **params)
        return tuple(
            o if d is None else BatchTracer(self, o, d) for o, d in zip(outs, out_dims, strict=True)
        )


def uses_axis(params: Params, name: Any) -> bool:
    """Whether an equation with these params is, or carries, a collective over the axis `name`."""
    if params.get("axis_name") == name:
        return True
    return any(uses_axis(e.params, name) for j in sub_jaxprs(params) for e in j.eqns)


def batch(
    f: Callable[..., Sequence[Value]],
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Sequence[int | None],
    about: Callable[[], str] | None = None,
) -> list[tuple[Value, int | None]]:
    """Run `f` on flat args with axis `dims[k]` of each mapped; returns (value, mapped axis or None)
    pairs. `about` says what is mapped, should a message ask.
    """
    trace = BatchTrace(axis)
    trace.about = about
    with using(trace):
        outs = f(
            *[a if d is None else BatchTracer(trace, a, d) for a, d in zip(args, dims, strict=True)]
        )
        found = [trace.split(o) for o in outs]
    if config.check_tracer_leaks:
        reference = weakref.ref(trace)
        del trace, outs
        check_forgotten(reference)
    return found


def mapped_avals(avals: Sequence[ShapedArray], dims: Sequence[int | None]) -> list[ShapedArray]:
    """The avals as the mapped function sees them."""
    return [
        a if d is None else a.with_shape(a.shape[:d] + a.shape[d + 1 :])
        for a, d in zip(avals, dims, strict=True)
    ]


# ---- the public function


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
) -> Callable[..., Any]:
    """A function that applies `fun` to every slice of its arguments along an axis, all at once.

    Args:
        fun: a function of arrays or pytrees of arrays, written for one example.
        in_axes: the axis of each argument to map over: an int (negative counts from the end), None
            for an argument that every example shares, or a tuple with one entry per positional
            argument, each an int, None or a pytree prefix of the argument. Keyword arguments are
            mapped over axis 0.
        out_axes: where the mapped axis goes in each output: an int, None for an output that does
            not depend on the mapped arguments, or a pytree prefix of the output.
        axis_name: a name by which collectives (`lax.psum`, ...) refer to the axis.
        axis_size: the size of the axis; needed where no argument is mapped.
        spmd_axis_name: accepted for JAX programs and ignored: there is one device.

    Raises:
        ShapeError: sizes that differ, or an axis that an argument lacks.
        TreeError: in_axes or out_axes that are not a prefix of the arguments or the output.
        ArgumentValueError: nothing is mapped, or an output that is mapped has out_axes None.

    >>> import lumjax
    >>> import lumjax.numpy as jnp
    >>> lumjax.vmap(lambda x, y: x * y, in_axes=(0, None))(jnp.arange(3), 2).tolist()
    [0, 2, 4]
    """
    del spmd_axis_name
    if not callable(fun):
        raise ArgumentTypeError(
            operation="vmap",
            required="a function as its first argument",
            got=f"{fun!r} of type {type(fun).__name__}",
            fix="pass the function itself, not its result",
        )
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    _check_axes("in_axes", axes)
    _check_axes("out_axes", out_axes)

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        flat, treedef = tree.flatten((args, kwargs))
        given = _given_dims(axes, args, len(flat))
        values = [_as_argument(x, d) for x, d in zip(flat, given, strict=True)]
        dims = [
            None if d is None else _axis_of(d, aval_of(v))
            for v, d in zip(values, given, strict=True)
        ]
        size = _mapped_size(fun, args, kwargs, values, dims, axis_size)
        out_tree: tree.PyTreeDef | None = None

        def run(*leaves: Value) -> list[Value]:
            nonlocal out_tree
            arguments, keywords = tree.unflatten(treedef, leaves)
            outs, out_tree = tree.flatten(fun(*arguments, **keywords))
            return outs

        def about() -> str:
            return f"vmap of {getattr(fun, '__name__', type(fun).__name__)}"

        pairs = batch(run, MappedAxis(size, axis_name), values, dims, about)
        assert out_tree is not None
        wanted = tree.flatten_axes("vmap out_axes", out_tree, out_axes)
        return tree.unflatten(
            out_tree, [_placed(o, d, w, size) for (o, d), w in zip(pairs, wanted, strict=True)]
        )

    return mapped


def _check_axes(name: str, axes: Any) -> None:
    entries = tree.leaves(axes)
    tops = (int, tuple, type(None)) if name == "in_axes" else object
    if not isinstance(axes, tops) or not all(isinstance(a, int) for a in entries):
        raise ArgumentTypeError(
            operation="vmap",
            required=f"{name} to be an int, None, or a tuple or pytree of those",
            got=repr(axes),
            fix="give the axis to map over, None for an argument that is shared",
        )


def _as_value(role: str, x: Any) -> Value:
    """A leaf as an Array or a living tracer."""
    if isinstance(x, Array):
        return x
    if isinstance(x, Tracer):
        if not any(t is x.owner for t in active_traces()):
            raise leaked(x)
        return x
    if not isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)):
        raise ArgumentTypeError(
            operation=f"{role} of a function under vmap",
            required="arrays or numbers, or pytrees of them",
            got=f"{x!r} of type {type(x).__name__}",
            fix="convert it to an array, or close over it if it isn't data",
        )
    aval = aval_of(x)
    return Array(np.array(x, aval.dtype), aval.weak)


def _as_argument(x: Any, dim: int | None) -> Value:
    """A leaf of the arguments; what is not mapped may be anything: a function, a name."""
    plain = (Array, Tracer, np.ndarray, np.generic, bool, int, float, complex)
    return x if dim is None and not isinstance(x, plain) else _as_value("argument", x)


def _given_dims(axes: Any, args: tuple[Any, ...], leaves: int) -> list[int | None]:
    """What in_axes says of each leaf; keyword arguments are mapped along axis 0."""
    if isinstance(axes, tuple) and len(axes) != len(args):
        raise ArgumentValueError(
            operation="vmap",
            required=f"one entry of in_axes for each of the {len(args)} positional arguments",
            got=f"{len(axes)} entries: {axes!r}",
            fix="use None for an argument that is shared; keyword arguments take no entry",
        )
    dims = tree.flatten_axes("vmap in_axes", tree.structure(args), axes)
    return dims + [0] * (leaves - len(dims))


def _axis_of(axis: int, aval: ShapedArray) -> int:
    if not -aval.ndim <= axis < aval.ndim:
        raise ShapeError(
            operation="vmap",
            required=f"an argument with an axis {axis}, as in_axes says",
            got=f"an argument {aval} with {aval.ndim} axes",
            fix="give it the axis, or use None in in_axes to share it",
        )
    return axis % aval.ndim


def _mapped_size(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    values: Sequence[Value],
    dims: Sequence[int | None],
    axis_size: int | None,
) -> Dim:
    """The size of the mapped axis, on which all mapped arguments must agree."""
    shapes = [() if d is None else aval_of(v).shape for v, d in zip(values, dims, strict=True)]
    sizes = [s[d] for s, d in zip(shapes, dims, strict=True) if d is not None]
    if axis_size is not None:
        sizes.insert(0, axis_size)
    if not sizes:
        raise ArgumentValueError(
            operation="vmap",
            required="at least one mapped argument, or axis_size",
            got=f"{len(values)} arguments, none of them mapped",
            fix="pass axis_size=, or give in_axes an axis",
        )
    if all(same(s, sizes[0]) for s in sizes):
        return sizes[0]
    found = [] if axis_size is None else [f"axis_size is {axis_size}"]
    for name, v, d in zip(argument_names(fun, args, kwargs), values, dims, strict=True):
        if d is not None:
            aval = aval_of(v)
            found.append(f"axis {d} of argument {name}, {aval}, has size {aval.shape[d]}")
    raise ShapeError(
        operation="vmap",
        required="mapped axes of one size",
        got="; ".join(found),
        fix="make the sizes agree, or use None in in_axes for arguments that are shared",
    )


def argument_names(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[str]:
    """What to call each leaf of the arguments: the parameter's name and the path inside it."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):  # a builtin
        parameters = []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [p.name for p in parameters if p.kind in plain]
    names = [known[k] if k < len(known) else f"args[{k}]" for k in range(len(args))]
    positional = [
        f"{name}{tree.keystr(path)}"
        for name, arg in zip(names, args, strict=True)
        for path, _ in tree.leaves_with_path(arg)
    ]
    keyword = [
        tree.keystr(path)[2:].replace("']", "", 1) for path, _ in tree.leaves_with_path(kwargs)
    ]
    return positional + keyword


def _placed(out: Any, dim: int | None, wanted: int | None, size: Dim) -> Value:
    """An output with its mapped axis where out_axes wants it."""
    out = _as_value("output", out)
    if wanted is None:
        if dim is not None:
            raise ArgumentValueError(
                operation="vmap",
                required="an output that no mapped argument reaches, since out_axes is None for it",
                got=f"an output {aval_of(out)} mapped over axis {dim}",
                fix="give out_axes an axis, or reduce over the mapped axis with a collective",
            )
        return out
    rank = aval_of(out).ndim + (dim is None)
    if not -rank <= wanted < rank:
        raise ShapeError(
            operation="vmap",
            required=f"out_axes in [{-rank}, {rank}) for an output {aval_of(out)}",
            got=str(wanted),
            fix="put the mapped axis where the output has room for it",
        )
    return out._place_axis(dim, wanted % rank, size)
