"""Solutions whose derivatives are those of the equation, not of the solver: `custom_linear_solve`
and `custom_root`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.custom_rules import Body, ForwardRule, bind_forward
from lumjax.control.staging import (
    Callee,
    batch_of,
    check_operands,
    flatten_values,
    jvp_of,
    name_of,
    require_callable,
    run,
    spread,
    zeros,
)
from lumjax.errors import DTypeError, GradientError, TreeError
from lumjax.grad.linear import linear_transpose, linearize
from lumjax.ops.elementwise import neg, sub
from lumjax.ops.layout import batch_first, each_batch_first
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Jaxpr, Linear, Primitive, Value, aval_of, eval_jaxpr
from lumjax.trace.form import Expand
from lumjax.trace.stage import stage

Avals = Sequence[ShapedArray]

# ---- staging the functions that were given


def _staged(f: Callable[..., Any], treedef: tree.PyTreeDef, avals: Avals, count: int) -> Callee:
    """`f` of `count` arguments that all have the same structure and avals."""
    trees: list[tree.PyTreeDef] = []

    def flat(*leaves: Value) -> list[Value]:
        width = len(avals)
        parts = [leaves[k * width : (k + 1) * width] for k in range(count)]
        values, out_tree = flatten_values(f(*[tree.unflatten(treedef, p) for p in parts]))
        trees.append(out_tree)
        return values

    staged = stage(flat, [*avals] * count, lambda: name_of(f))
    return Callee(replace(staged.jaxpr, consts=0), staged.consts, trees[0], ())


def _check_like(
    operation: str, what: str, callee: Callee, treedef: tree.PyTreeDef, avals: Avals, aux: bool
) -> None:
    """Raise unless a function returns what has the structure and the shapes of its argument, or a
    pair of that and something else.
    """
    found = callee.out_tree
    if aux:
        pair = tree.unflatten(found, range(found.num_leaves))
        found = tree.structure(pair[0]) if isinstance(pair, tuple) and len(pair) == 2 else None
    outs = callee.jaxpr.out_avals[: len(avals)]
    if found == treedef and [a.shape for a in outs] == [a.shape for a in avals]:
        return
    like = f"{treedef} of {', '.join(map(str, avals))}"
    raise TreeError(
        operation=operation,
        required=f"{what} to return " + (f"a pair of {like}, and anything" if aux else like),
        got=f"{callee.out_tree} of {', '.join(map(str, callee.jaxpr.out_avals))}",
        fix="return the same structure and shapes that it is given",
    )


# ---- linear equations


@record
class _Equation:
    """The programs of a linear equation: each leads with `counts[k]` values of its own, then takes
    a vector. The adjoint two are None where there is no solver of the transposed equation.
    """

    matvec: Jaxpr
    solve: Jaxpr
    vecmat: Jaxpr | None
    transpose_solve: Jaxpr | None
    counts: tuple[int, int, int, int]

    @property
    def programs(self) -> tuple[Jaxpr | None, ...]:
        """All four, in the order of `counts`."""
        return self.matvec, self.solve, self.vecmat, self.transpose_solve

    def split(self, args: Sequence[Any]) -> tuple[list[list[Any]], list[Any]]:
        """The values of each program, and the vector."""
        parts: list[list[Any]] = []
        rest = list(args)
        for count in self.counts:
            parts.append(rest[:count])
            rest = rest[count:]
        return parts, rest


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    transpose_solve: Callable[[Callable[[Any], Any], Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """The x with `matvec(x)` = b that `solve(matvec, b)` finds, with the derivatives of the
    equation: the solver itself is not differentiated.

    Args:
        matvec: a linear function; b and its results have the same structure and shapes.
        b: a pytree of floating or complex arrays.
        solve: called with a linear function and a vector.
        transpose_solve: the same for the transposed function. Reverse mode needs it, unless
            `symmetric`.
        symmetric: whether `matvec` is its own transpose; then `solve` solves both equations.
        has_aux: whether the solvers return (x, aux); aux is not differentiated.

    Raises:
        TreeError: a function returns another structure or other shapes than b's.
        DTypeError: b has a leaf that is not floating or complex.
        GradientError: reverse mode without a solver of the transposed equation.

    >>> divide = lambda matvec, b: b / matvec(1.0)
    >>> solve = lambda a, b: custom_linear_solve(lambda x: a * x, b, divide, divide)
    >>> import lumjax
    >>> float(solve(2.0, 6.0)), float(lumjax.grad(solve)(2.0, 6.0))
    (3.0, -1.5)
    """
    name = "custom_linear_solve"
    for f in (matvec, solve) if transpose_solve is None else (matvec, solve, transpose_solve):
        require_callable(name, f)
    flat, treedef = flatten_values(b)
    avals = [aval_of(x).strip_weak() for x in flat]
    if not all(dt.is_inexact(a.dtype) for a in avals):
        raise DTypeError(
            operation=name, required="floating or complex b", got=", ".join(map(str, avals)),
            fix="cast it",
        )  # fmt: skip
    back = transpose_solve or (solve if symmetric else None)

    def vecmat(ct: Any) -> Any:
        return matvec(ct) if symmetric else linear_transpose(matvec, b)(ct)[0]

    parts = [_staged(matvec, treedef, avals, 1)]
    _check_like(name, "matvec", parts[0], treedef, avals, False)
    parts.append(_staged(lambda v: solve(matvec, v), treedef, avals, 1))
    _check_like(name, "solve", parts[1], treedef, avals, has_aux)
    if back is not None:
        parts.append(_staged(vecmat, treedef, avals, 1))
        parts.append(_staged(lambda v: back(vecmat, v), treedef, avals, 1))
        _check_like(name, "transpose_solve", parts[3], treedef, avals, has_aux)
    outs = _bind(parts, [[*p.consts] for p in parts], flat)
    return tree.unflatten(parts[1].out_tree, outs)


def _bind(
    parts: Sequence[Any], consts: Sequence[Sequence[Value]], b: Sequence[Value]
) -> tuple[Value, ...]:
    """Bind programs (in `jaxpr`) with the values that they lead with."""
    jaxprs = [p.jaxpr for p in parts]
    jaxprs += [None] * (4 - len(jaxprs))
    counts = [len(c) for c in consts]
    counts += [0] * (4 - len(counts))
    equation = _Equation(*jaxprs, counts=tuple(counts))  # pyright: ignore[reportArgumentType]
    return linear_solve_p.bind(*(v for c in consts for v in c), *b, equation=equation)


def _aval(*avals: ShapedArray, equation: _Equation) -> tuple[ShapedArray, ...]:
    parts, b = equation.split(avals)
    check_operands("custom_linear_solve", equation.solve, [*parts[1], *b])
    return equation.solve.out_avals


def _eval(*args: Any, equation: _Equation) -> tuple[Value, ...]:
    parts, b = equation.split(args)
    return run(equation.solve, [*parts[1], *b])


def _expand(*args: Value, equation: _Equation) -> tuple[Value, ...]:
    parts, b = equation.split(args)
    return tuple(eval_jaxpr(equation.solve, [*parts[1], *b]))


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Value | None], *, equation: _Equation
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    """A x = b: A x' = b' - A' x. What a solver closes over besides A has no say in x."""
    outs = linear_solve_p.bind(*primals, equation=equation)
    parts, _ = equation.split(primals)
    moved, right = equation.split(tangents)
    x = outs[: len(right)]
    if any(t is not None for t in moved[0]):
        nonzero = (*(t is not None for t in moved[0]), *[False] * len(x))
        derived = jvp_of(equation.matvec, nonzero)
        given = [t for t in moved[0] if t is not None]
        found = eval_jaxpr(derived.jaxpr, [*derived.consts, *parts[0], *x, *given])
        changes = spread(derived.nonzero, found[len(x) :])
        right = [_difference(t, c) for t, c in zip(right, changes, strict=True)]
    if all(t is None for t in right):
        return outs, [None] * len(outs)
    filled = [zeros(aval_of(v)) if t is None else t for t, v in zip(right, x, strict=True)]
    solved = linear_solve_p.bind(*primals[: -len(x)], *filled, equation=equation)
    return outs, [*solved[: len(x)], *[None] * (len(outs) - len(x))]


def _difference(x: Value | None, y: Value | None) -> Value | None:
    if y is None:
        return x
    return neg(y) if x is None else sub(x, y)


def _transpose(
    cts: Sequence[Value | None], inputs: Sequence[Any], *, equation: _Equation
) -> Sequence[Value | None]:
    parts, b = equation.split(inputs)
    nothing: list[Value | None] = [None] * (len(inputs) - len(b))
    cts = cts[: len(b)]
    if all(ct is None for ct in cts):
        return [*nothing, *[None] * len(b)]
    if equation.vecmat is None or equation.transpose_solve is None:
        raise GradientError(
            operation="reverse-mode derivative of custom_linear_solve",
            required="a solver of the transposed equation",
            got="neither transpose_solve nor symmetric=True",
            fix="pass transpose_solve, or symmetric=True if the function is its own transpose",
        )
    avals = [v.aval if isinstance(v, Linear) else aval_of(v) for v in b]
    filled = [zeros(a) if ct is None else ct for ct, a in zip(cts, avals, strict=True)]
    first, second, third, fourth = equation.counts
    turned = _Equation(
        equation.vecmat, equation.transpose_solve, equation.matvec, equation.solve,
        (third, fourth, first, second),
    )  # fmt: skip
    operands = [*parts[2], *parts[3], *parts[0], *parts[1]]
    found = linear_solve_p.bind(*operands, *filled, equation=turned)
    linear = [isinstance(v, Linear) for v in b]
    return [*nothing, *(f if own else None for f, own in zip(found, linear, strict=False))]


@record
class _Part:
    """A program over a mapped axis."""

    jaxpr: Jaxpr


def _batch(
    axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None], *, equation: _Equation
) -> tuple[Sequence[Value], Sequence[int | None]]:
    """One equation per lane: the vectors and every result have the axis."""
    values, b = equation.split(args)
    places, b_dims = equation.split(dims)
    vectors = each_batch_first(b, b_dims, axis.size)
    parts: list[_Part] = []
    consts: list[list[Value]] = []
    for jaxpr, own, own_dims in zip(equation.programs, values, places, strict=True):
        if jaxpr is None:
            break
        mapped = (*(d is not None for d in own_dims), *[True] * len(b))
        derived = batch_of(jaxpr, axis, mapped, (True,) * len(jaxpr.outputs))
        parts.append(_Part(derived.jaxpr))
        led = [
            x if d is None else batch_first(x, d, axis.size)
            for x, d in zip(own, own_dims, strict=True)
        ]
        consts.append([*derived.consts, *led])
    outs = _bind(parts, consts, vectors)
    return outs, [0] * len(outs)


linear_solve_p = Primitive(
    "custom_linear_solve",
    aval=_aval,
    eval=_eval,
    form=lambda *avals, **params: Expand(),
    expand=_expand,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
)


# ---- roots


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    tangent_solve: Callable[[Callable[[Any], Any], Any], Any],
    has_aux: bool = False,
) -> Any:
    """The x with `f(x)` = 0 that `solve(f, initial_guess)` finds, with the derivatives of the
    equation: the solver itself is not differentiated, and the guess has none.

    Args:
        f: a function whose argument and result have the same structure and shapes.
        initial_guess: where the solver starts: a pytree of arrays.
        solve: called with f and the guess; returns x, or (x, aux) if `has_aux`.
        tangent_solve: called with a linear function g and y; returns the x with g(x) = y.
            Reverse mode transposes it: a division, or `custom_linear_solve`.
        has_aux: see `solve`; aux is not differentiated.

    Raises:
        TreeError: a function returns another structure or other shapes than the guess's.

    >>> import lumjax
    >>> def root(a):
    ...     f = lambda x: x * x - a
    ...     return custom_root(f, 1.0, lambda f, x: a**0.5, lambda g, y: y / g(1.0))
    >>> float(root(4.0)), float(lumjax.grad(root)(4.0))
    (2.0, 0.25)
    """
    name = "custom_root"
    for function in (f, solve, tangent_solve):
        require_callable(name, function)
    flat, treedef = flatten_values(initial_guess)
    avals = [aval_of(x).strip_weak() for x in flat]
    equation = _staged(f, treedef, avals, 1)
    _check_like(name, "f", equation, treedef, avals, False)
    solver = _staged(lambda x: solve(f, x), treedef, avals, 1)
    _check_like(name, "solve", solver, treedef, avals, has_aux)

    def step(x: Any, right: Any) -> Any:
        return tangent_solve(linearize(f, x)[1], right)

    tangent = _staged(step, treedef, avals, 2)
    _check_like(name, "tangent_solve", tangent, treedef, avals, False)
    counts = len(equation.consts), len(solver.consts), len(tangent.consts)
    operands = [*equation.consts, *solver.consts, *tangent.consts, *flat]
    rule = _RootRule(equation.jaxpr, solver.jaxpr, tangent.jaxpr, counts)
    body = _solving(rule, [aval_of(x) for x in operands], solver.out_tree)
    return tree.unflatten(solver.out_tree, bind_forward(body, operands, rule))


@record(eq=False)
class _RootRule(ForwardRule):
    """f(p, x(p)) = 0: x' solves (df/dx) x' = -(df/dp) p'. Operands: what f, the solver and the
    tangent's solver close over, then the guess.
    """

    equation: Jaxpr
    solver: Jaxpr
    tangent: Jaxpr
    counts: tuple[int, int, int]

    def __call__(
        self, primals: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[Sequence[Value], Sequence[Value | None]]:
        first, second, third = self.counts
        body = _solving(self, [aval_of(x) for x in primals], None)
        outs = bind_forward(body, primals, self)
        given = tangents[:first]
        x = outs[: len(self.equation.outputs)]
        if all(t is None for t in given):
            return outs, [None] * len(outs)
        nonzero = (*(t is not None for t in given), *[False] * len(x))
        derived = jvp_of(self.equation, nonzero, (True,) * len(x))
        moved = [t for t in given if t is not None]
        found = eval_jaxpr(derived.jaxpr, [*derived.consts, *primals[:first], *x, *moved])
        change = spread(derived.nonzero, found[len(x) :])
        right = [zeros(aval_of(v)) if t is None else neg(t) for t, v in zip(change, x, strict=True)]
        consts = primals[first + second : first + second + third]
        solved = eval_jaxpr(self.tangent, [*consts, *x, *right])
        return outs, [*solved, *[None] * (len(outs) - len(x))]


def _solving(rule: _RootRule, avals: Avals, out_tree: tree.PyTreeDef | None) -> Body:
    """The solver as the function of a record, of all operands."""
    first, second, third = rule.counts

    def flat(*args: Value) -> list[Value]:
        return eval_jaxpr(
            rule.solver, [*args[first : first + second], *args[first + second + third :]]
        )

    staged = stage(flat, avals)
    trees = [] if out_tree is None else [out_tree]
    return Body(tuple(avals), replace(staged.jaxpr, consts=0), staged.consts, None, trees)
