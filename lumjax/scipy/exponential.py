"""The matrix exponential, by scaling, Pade approximants and squaring (Higham 2005)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import lax
from lumjax import numpy as jnp
from lumjax.errors import ShapeError
from lumjax.grad.forward import jvp
from lumjax.numpy.linalg import inexact
from lumjax.ops import triangular_solve
from lumjax.trace.batch import vmap
from lumjax.trace.core import aval_of
from lumjax.typing import ArrayLike

# Coefficients of the numerators, by degree, and the largest 1-norm up to which each degree is
# exact to rounding, in single and in double precision. The last degree has no such bound: larger
# matrices are scaled down to `_LARGEST`.
_PADE = {
    3: (120.0, 60.0, 12.0, 1.0),
    5: (30240.0, 15120.0, 3360.0, 420.0, 30.0, 1.0),
    7: (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0),
    9: (17643225600.0, 8821612800.0, 2075673600.0, 302702400.0, 30270240.0, 2162160.0, 110880.0,
        3960.0, 90.0, 1.0),
    13: (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
         129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0,
         40840800.0, 960960.0, 16380.0, 182.0, 1.0),
}  # fmt: skip
_SINGLE = {3: 0.4258730016922831, 5: 1.880152677804762, 7: np.inf}
_DOUBLE = {3: 0.01495585217958292, 5: 0.2539398330063230, 7: 0.9504178996162932,
           9: 2.097847961257068, 13: np.inf}  # fmt: skip
_LARGEST = {False: 3.925724783138660, True: 5.371920351148152}


def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """The exponential of square matrices.

    Shapes: (..., n, n) -> (..., n, n). NaN where more than `max_squarings` squarings are needed.
    `upper_triangular` says that A is. Raises ShapeError for matrices that are not square.

    >>> expm(jnp.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    (x,) = inexact(A)
    _check_square("scipy.linalg.expm", x)
    shape = aval_of(x).shape
    f = partial(_exponential, upper=upper_triangular, most=max_squarings)
    if len(shape) == 2:
        return f(x)
    count = math.prod(int(n) for n in shape[:-2])
    return jnp.reshape(vmap(f)(jnp.reshape(x, (count, *shape[-2:]))), shape)


def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Any:
    """The exponential of A and its derivative in the direction E, or the derivative alone.

    Shapes: (..., n, n) both. Raises ShapeError if they differ.

    >>> value, slope = expm_frechet(jnp.zeros((1, 1)), jnp.array([[3.0]]))
    >>> value.tolist(), slope.round(5).tolist()
    ([[1.0]], [[3.0]])
    """
    del method
    x, direction = inexact(A, E)
    _check_square("scipy.linalg.expm_frechet", x, direction)
    value, slope = jvp(expm, (x,), (direction,))
    return (value, slope) if compute_expm else slope


def _check_square(operation: str, *matrices: Any) -> None:
    shape = aval_of(matrices[0]).shape
    if len(shape) < 2 or shape[-1] != shape[-2] or any(m.shape != shape for m in matrices):
        raise ShapeError(
            operation=operation,
            required="square matrices (..., n, n)" + ", two of one shape" * (len(matrices) > 1),
            got=" and ".join(str(aval_of(m)) for m in matrices),
            fix="the last two axes are the matrix",
        )


def _exponential(x: Any, *, upper: bool, most: int) -> Any:
    """Of one matrix."""
    double = aval_of(x).dtype.itemsize == 8 << dt.is_complex(aval_of(x).dtype)
    bounds = _DOUBLE if double else _SINGLE
    size = jnp.max(jnp.sum(jnp.abs(x), axis=0), initial=0)
    squarings = jnp.maximum(0, jnp.floor(jnp.log2(size / _LARGEST[double])))
    scaled = x / jnp.astype(2**squarings, aval_of(x).dtype)
    limits = jnp.array([b for b in bounds.values() if b < np.inf], aval_of(size).dtype)
    choices = [partial(_numerators, coefficients=_PADE[m]) for m in bounds]
    odd, even = lax.switch(jnp.sum(size >= limits), choices, scaled)
    above, below = even + odd, even - odd
    if upper:
        whole = triangular_solve(below, above, left_side=True)
    else:
        whole = jnp.linalg.solve(below, above)

    def step(k: Any, y: Any) -> Any:
        return lax.cond(k < squarings, lambda y: y @ y, lambda y: y, y)

    whole = lax.fori_loop(0, most, step, whole)
    return jnp.where(squarings > most, jnp.nan, whole)


def _numerators(x: Any, coefficients: Sequence[float]) -> tuple[Any, Any]:
    """The odd and the even part of a polynomial of a matrix, in powers of its square."""
    one = jnp.eye(int(aval_of(x).shape[0]), dtype=aval_of(x).dtype)
    powers = [one, x @ x]
    degree = len(coefficients) - 1
    highest = 3 if degree == 13 else (degree - 1) // 2  # of the square
    while len(powers) <= highest:
        powers.append(powers[-1] @ powers[1])

    def polynomial(of: Callable[[int], float], low: int, high: int) -> Any:
        return sum((of(k) * powers[k - low] for k in range(low + 1, high + 1)), of(low) * one)

    odd, even = (lambda k: coefficients[2 * k + 1]), (lambda k: coefficients[2 * k])
    if degree != 13:
        return x @ polynomial(odd, 0, highest), polynomial(even, 0, highest)
    top = powers[3]
    upper_odd = sum(odd(k) * powers[k - 3] for k in (4, 5, 6))
    upper_even = sum(even(k) * powers[k - 3] for k in (4, 5, 6))
    return (
        x @ (top @ upper_odd + polynomial(odd, 0, 3)),
        top @ upper_even + polynomial(even, 0, 3),
    )
