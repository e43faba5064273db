"""Looking at functions without running them, and scopes around their parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import tree
from lumjax.closed import ClosedJaxpr as ClosedJaxpr
from lumjax.control.staging import name_of
from lumjax.errors import ArgumentTypeError, ArgumentValueError, UnsupportedError
from lumjax.grad.forward import as_output, check_callable
from lumjax.profiler import TraceAnnotation
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import (
    EvalTrace,
    Jaxpr,
    Params,
    Primitive,
    Trace,
    Tracer,
    Value,
    active_traces,
    aval_of,
    eval_jaxpr,
    using,
)
from lumjax.trace.dim import Dim
from lumjax.trace.form import Contract, Repeat
from lumjax.trace.stage import Staged, StageTrace, stage

P = ParamSpec("P")
R = TypeVar("R")
Axes: TypeAlias = int | Sequence[int]

# ---- shapes without data


class ShapeDtypeStruct:
    """A shape and a dtype: stands for an array where only those matter.

    >>> ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("dtype", "shape", "sharding", "weak_type")

    def __init__(
        self,
        shape: Sequence[Dim],
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
    ) -> None:
        self.shape: tuple[Dim, ...] = tuple(shape)
        self.dtype = dt.canonicalize(dtype)
        self.sharding = sharding
        self.weak_type = weak_type

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return ShapedArray(self.shape, self.dtype).size

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with some fields replaced."""
        fields = {n: getattr(self, n) for n in self.__slots__}
        return ShapeDtypeStruct(**{**fields, **changes})

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a shape without axes")
        return int(self.shape[0])  # type: ignore[arg-type]

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.weak_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{weak})"


def _struct(aval: ShapedArray) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak)


def _abstract(x: Any) -> ShapedArray:
    """The aval of an argument: an array, a number, or anything with a shape and a dtype."""
    if isinstance(x, ShapedArray):
        return x
    described = hasattr(x, "shape") and hasattr(x, "dtype")
    if described and not isinstance(x, (np.ndarray, np.generic, jnp.ndarray)):
        weak = bool(getattr(x, "weak_type", False))
        return ShapedArray(tuple(x.shape), dt.canonicalize(x.dtype), weak)
    return aval_of(x)


@record
class _Traced:
    staged: Staged
    out_tree: tree.PyTreeDef


def _trace(
    operation: str,
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    static: Sequence[int] = (),
) -> _Traced:
    check_callable(operation, fun)
    fixed = {k % len(args): args[k] for k in static if -len(args) <= k < len(args)}
    dynamic = [a for k, a in enumerate(args) if k not in fixed]
    leaves, in_tree = tree.flatten((dynamic, kwargs))
    out_trees: list[tree.PyTreeDef] = []

    def flat(*values: Value) -> list[Value]:
        given, keywords = in_tree.unflatten(values)
        rest = iter(given)
        full = [fixed[k] if k in fixed else next(rest) for k in range(len(args))]
        outs, out_tree = tree.flatten(fun(*full, **keywords))
        out_trees.append(out_tree)
        return [as_output(x) for x in outs]

    return _Traced(stage(flat, [_abstract(x) for x in leaves]), out_trees[0])


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of `fun(*args, **kwargs)`, without computing it.

    Arguments are arrays, numbers or anything with a shape and a dtype; the result is a pytree of
    ShapeDtypeStruct.

    >>> eval_shape(lambda x: x @ x.T, ShapeDtypeStruct((2, 3), "float32"))
    ShapeDtypeStruct(shape=(2, 2), dtype=float32)
    """
    traced = _trace("eval_shape", fun, args, kwargs)
    return traced.out_tree.unflatten([_struct(a) for a in traced.staged.jaxpr.out_avals])


# ---- programs as text


class _CoreTrace(StageTrace):
    """Records like staging, but writes every operation that has a definition as its definition."""

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Record one operation, or what it stands for."""
        if prim.expand is not None:
            # a contraction has a definition for bools, a short loop is written out: others are core
            form = prim.form(*map(aval_of, args), **params)
            if not isinstance(form, (Contract, Repeat)):
                return tuple(prim.expand(*args, **params))
        inner = {k: _core_parameter(v) for k, v in params.items()}
        return super().process(prim, args, inner)


def _core_parameter(value: Any) -> Any:
    if isinstance(value, Jaxpr):
        return to_core(value)
    if isinstance(value, tuple) and any(isinstance(v, Jaxpr) for v in value):
        return tuple(to_core(v) if isinstance(v, Jaxpr) else v for v in value)
    return value


def _expanded(jaxpr: Jaxpr) -> tuple[Jaxpr, tuple[Value, ...]]:
    """The program in core primitives; array constants of definitions become its first inputs."""
    trace = _CoreTrace()
    inputs = [trace.new_input(a) for a in jaxpr.in_avals]
    with using(trace):
        outs = eval_jaxpr(jaxpr, inputs)
    atoms = tuple(map(trace.atom, outs))
    variables = (*trace.const_vars, *(i.var for i in inputs))
    count = len(trace.const_vars) + jaxpr.consts
    return Jaxpr(variables, tuple(trace.eqns), atoms, count), tuple(trace.const_values)


def to_core(jaxpr: Jaxpr) -> Jaxpr:
    """The program in core primitives alone: named functions replaced by their definitions."""
    expanded, consts = _expanded(jaxpr)
    if consts:
        raise UnsupportedError(
            operation="make_jaxpr with level 'core'",
            required="definitions without array constants inside loops and branches",
            got=f"{len(consts)} array constants",
            fix="print the program with level='named'",
        )
    return expanded


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: Axes = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
    *,
    level: str = "named",
) -> Callable[..., Any]:
    """A function that returns the traced program of `fun` for its arguments.

    With `level="core"` named functions (exp, tanh, a call) are replaced by their definitions in the
    core primitives. With `return_shape` the output shapes come too.

    >>> import lumjax.numpy as jnp
    >>> make_jaxpr(lambda x: jnp.sin(x) * 2.0)(1.0)
    { lambda ; a:~f32[]. let
       b:~f32[] = sin a
       c:~f32[] = mul b 2.0:~f32[]
     in (c,) }
    """
    check_callable("make_jaxpr", fun)
    if level not in ("named", "core"):
        raise ArgumentValueError(
            operation="make_jaxpr",
            required="level 'named' or 'core'",
            got=repr(level),
            fix="choose one of the two",
        )
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @functools.wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _axes_in_scope(axis_env or ()):
            traced = _trace("make_jaxpr", fun, args, kwargs, static)
        jaxpr, consts = traced.staged.jaxpr, traced.staged.consts
        shapes = [_struct(a) for a in jaxpr.out_avals]
        if level == "core":
            jaxpr, more = _expanded(jaxpr)
            consts = (*more, *consts)
        closed = ClosedJaxpr(jaxpr, consts)
        return (closed, traced.out_tree.unflatten(shapes)) if return_shape else closed

    return run


class _NamedAxis(Trace):
    """Stands for a vmap around the traced function, which only knows the axis's name and size."""

    def __init__(self, name: Any, size: int) -> None:
        self.axis_name = name
        self.axis_size = size


@contextmanager
def _axes_in_scope(axes: Sequence[tuple[Any, int]]) -> Generator[None]:
    with ExitStack() as stack:
        for name, size in axes:
            stack.enter_context(using(_NamedAxis(name, size)))
        yield


# ---- scopes


@contextmanager
def named_scope(name: str) -> Generator[None]:
    """Name a block; it is recorded as a span of `lumjax.profiler`. Also a decorator.

    >>> with named_scope("encoder"):
    ...     y = jnp.sin(1.0)
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentTypeError(
            operation="named_scope",
            required="a name, a string",
            got=f"{name!r} of type {type(name).__name__}",
            fix="pass a string",
        )
    with TraceAnnotation(name):
        yield


def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """`fun` in a `named_scope` of its own, or the given, name.

    >>> named_call(lambda x: x + 1, name="increment")(1)
    2
    """
    check_callable("named_call", fun)
    label = name or name_of(fun)

    @functools.wraps(fun)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with named_scope(label):
            return fun(*args, **kwargs)

    return run


class _Known(EvalTrace):
    """Computes with what is known; what is being traced goes on to the trace around the block."""

    def __init__(self, outer: Trace) -> None:
        self.outer = outer

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Evaluate now, unless an operand is a tracer."""
        if any(isinstance(a, Tracer) for a in args):
            with using(self.outer):
                return self.outer.process(prim, args, params)
        return super().process(prim, args, params)


@contextmanager
def ensure_compile_time_eval() -> Generator[None]:
    """Inside the block operations on known values compute now, even while a program is traced.
    Operations on traced values are traced as ever.

    >>> import lumjax
    >>> def f(x):
    ...     with ensure_compile_time_eval():
    ...         known = jnp.arange(3).sum()
    ...     return x * int(known)
    >>> lumjax.jit(f)(2.0)
    Array(6., dtype=float32, weak_type=True)
    """
    with using(_Known(active_traces()[-1])):
        yield
