"""Iterative solvers of linear equations, on pytrees; their derivatives are those of the equation.

>>> x, _ = cg(jnp.array([[4.0, 0.0], [0.0, 2.0]]), jnp.array([8.0, 2.0]))
>>> x.tolist()
[2.0, 1.0]
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from lumjax import lax, tree
from lumjax import numpy as jnp
from lumjax.errors import ArgumentTypeError, ShapeError, TreeError
from lumjax.trace.core import aval_of

__all__ = ["bicgstab", "cg"]

_add = partial(tree.map, operator.add)
_sub = partial(tree.map, operator.sub)


def _scaled(factor: Any, x: Any) -> Any:
    return tree.map(lambda leaf: factor * leaf, x)


def _inner(x: Any, y: Any) -> Any:
    """The inner product of two vectors, conjugate in the first."""
    return sum(jnp.vdot(a, b) for a, b in zip(tree.leaves(x), tree.leaves(y), strict=True))


def _real_inner(x: Any, y: Any) -> Any:
    """Its real part."""
    return jnp.real(_inner(x, y))


def _operator(operation: str, a: Any) -> Callable[[Any], Any]:
    """A matrix as a function; functions as they are."""
    if callable(a):
        return a
    if not hasattr(a, "__matmul__"):
        raise ArgumentTypeError(
            operation=operation, required="a function or a square matrix",
            got=f"{a!r} of type {type(a).__name__}", fix="pass a function of a vector",
        )  # fmt: skip
    shape = getattr(a, "shape", (1, 1))
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ShapeError(
            operation=operation, required="a square matrix", got=f"shape {shape}",
            fix="pass a function for a linear map of other vectors",
        )  # fmt: skip
    return lambda x: a @ x


def _identity(x: Any) -> Any:
    return x


def _solved(
    method: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any,
    tol: Any,
    atol: Any,
    maxiter: Any,
    M: Any,
    symmetric: bool,
) -> tuple[Any, None]:
    """Check and fill in the arguments; solve A x = b with the derivatives of the equation."""
    name = f"scipy.sparse.linalg.{method.__name__.strip('_')}"
    b = tree.map(jnp.asarray, b)
    start = tree.map(jnp.zeros_like, b) if x0 is None else tree.map(jnp.asarray, x0)
    if tree.structure(start) != tree.structure(b):
        raise TreeError(
            operation=name, required=f"x0 of b's structure, {tree.structure(b)}",
            got=str(tree.structure(start)), fix="give x0 the structure of b",
        )  # fmt: skip
    shapes = [[aval_of(x).shape for x in tree.leaves(side)] for side in (start, b)]
    if shapes[0] != shapes[1]:
        raise ShapeError(
            operation=name, required=f"x0 of b's shapes, {shapes[1]}", got=str(shapes[0]),
            fix="give x0 the shapes of b",
        )  # fmt: skip
    most = 10 * sum(x.size for x in tree.leaves(b)) if maxiter is None else maxiter
    precondition = _identity if M is None else _operator(name, M)
    solve = partial(method, start=start, tol=tol, atol=atol, most=most, precondition=precondition)
    real = not any(jnp.iscomplexobj(x) for x in tree.leaves(b))
    x = lax.custom_linear_solve(
        _operator(name, A), b, solve=solve, transpose_solve=solve, symmetric=symmetric and real
    )
    return x, None


def _limit(b: Any, tol: Any, atol: Any) -> Any:
    """The squared length of a residual that is small enough."""
    return jnp.maximum(jnp.square(tol) * _real_inner(b, b), jnp.square(atol))


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: Any = 1e-5,
    atol: Any = 0.0,
    maxiter: Any = None,
    M: Any = None,
) -> tuple[Any, None]:
    """The x with A x = b for a Hermitian positive definite A, by conjugate gradients.

    Args:
        A: a square matrix, or a function of a vector.
        b: the right side, a pytree of arrays that is one vector.
        x0: where to start (0), of b's structure and shapes.
        tol: done when |b - A x| <= tol * |b|.
        atol: done when |b - A x| <= atol.
        maxiter: the most steps, by default 10 for each element.
        M: a matrix or function near the inverse of A.

    Returns:
        (x, None). Derivatives solve the equation once more, by the same method.

    >>> x, _ = cg(lambda v: {"a": 2.0 * v["a"]}, {"a": jnp.array([4.0])})
    >>> x["a"].tolist()
    [2.0]
    """
    return _solved(_cg, A, b, x0, tol, atol, maxiter, M, symmetric=True)


def _cg(matvec: Any, b: Any, *, start: Any, tol: Any, atol: Any, most: Any, precondition: Any):
    limit = _limit(b, tol, atol)

    def going(state: Any) -> Any:
        _, residual, gamma, _, k = state
        length = gamma if precondition is _identity else _real_inner(residual, residual)
        return (length > limit) & (k < most)

    def step(state: Any) -> Any:
        x, residual, gamma, direction, k = state
        image = matvec(direction)
        alpha = gamma / _real_inner(direction, image)
        x = _add(x, _like(x, _scaled(alpha, direction)))
        residual = _sub(residual, _like(residual, _scaled(alpha, image)))
        z = precondition(residual)
        after = _real_inner(residual, z)
        direction = _add(z, _like(z, _scaled(after / gamma, direction)))
        return x, residual, after, direction, k + 1

    residual = _sub(b, matvec(start))
    z = precondition(residual)
    first = (start, residual, _real_inner(residual, z), z, 0)
    return lax.while_loop(going, step, first)[0]


def _like(pattern: Any, x: Any) -> Any:
    """`x` in the dtypes of `pattern`: a scalar of a wider leaf does not widen the others."""
    return tree.map(lambda p, leaf: jnp.astype(leaf, aval_of(p).dtype), pattern, x)


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: Any = 1e-5,
    atol: Any = 0.0,
    maxiter: Any = None,
    M: Any = None,
) -> tuple[Any, None]:
    """The x with A x = b for a general A, by the stabilised biconjugate gradient method.

    Arguments and result are those of `cg`; A need not be Hermitian.

    >>> x, _ = bicgstab(jnp.array([[2.0, 1.0], [0.0, 2.0]]), jnp.array([3.0, 2.0]))
    >>> bool(jnp.allclose(x, 1.0, atol=1e-5))
    True
    """
    return _solved(_bicgstab, A, b, x0, tol, atol, maxiter, M, symmetric=False)


def _bicgstab(
    matvec: Any, b: Any, *, start: Any, tol: Any, atol: Any, most: Any, precondition: Any
) -> Any:
    limit = _limit(b, tol, atol)

    def going(state: Any) -> Any:
        _, residual, *_, k = state
        return (_real_inner(residual, residual) > limit) & (k < most) & (k >= 0)

    def step(state: Any) -> Any:
        x, residual, shadow, alpha, omega, rho, direction, image, k = state
        after = _inner(shadow, residual)
        beta = after / rho * alpha / omega
        moved = _sub(direction, _like(direction, _scaled(omega, image)))
        direction = _add(residual, _like(residual, _scaled(beta, moved)))
        ahead = precondition(direction)
        image = matvec(ahead)
        alpha = after / _inner(shadow, image)
        halfway = _sub(residual, _like(residual, _scaled(alpha, image)))
        done = _real_inner(halfway, halfway) < limit
        aside = precondition(halfway)
        turned = matvec(aside)
        omega = _inner(turned, halfway) / _inner(turned, turned)
        near = _add(x, _like(x, _scaled(alpha, ahead)))
        far = _add(near, _like(x, _scaled(omega, aside)))
        x = tree.map(partial(jnp.where, done), near, far)
        rest = _sub(halfway, _like(halfway, _scaled(omega, turned)))
        residual = tree.map(partial(jnp.where, done), halfway, rest)
        k = jnp.where((omega == 0) | (alpha == 0), -11, k + 1)  # it has broken down
        k = jnp.where(after == 0, -10, k)
        return x, residual, shadow, alpha, omega, after, direction, image, k

    residual = _sub(b, matvec(start))
    one = jnp.ones((), aval_of(_inner(b, b)).dtype)
    first = (start, residual, residual, one, one, one, residual, residual, 0)
    return lax.while_loop(going, step, first)[0]
