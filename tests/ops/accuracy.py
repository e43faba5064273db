"""The accuracy table: the largest error of each float function, in units in the last place.

`accuracy_table(dtype, points, run)` measures `run(name, *arrays)`, by default the records' eval;
the reference is
NumPy's extended precision where it has the function (and the platform has the precision), else
mpmath.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from lumjax import ops
from lumjax.trace.array import Array

EXTENDED = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "cbrt": np.cbrt,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "recip": lambda x: 1 / x,
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "pow": np.power, "atan2": np.arctan2,
}  # fmt: skip
EXACT = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.mpf(2) ** x, "expm1": mpmath.expm1,
    "log": mpmath.log, "log2": lambda x: mpmath.log(x, 2), "log1p": mpmath.log1p,
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "asin": mpmath.asin,
    "acos": mpmath.acos, "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh,
    "tanh": mpmath.tanh, "asinh": mpmath.asinh, "acosh": mpmath.acosh, "atanh": mpmath.atanh,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x), "recip": lambda x: 1 / x,
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)), "erf": mpmath.erf, "erfc": mpmath.erfc,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))) if x > -170 else mpmath.loggamma(x).real,
    "digamma": mpmath.digamma, "pow": lambda x, y: x**y, "atan2": mpmath.atan2,
}  # fmt: skip
# The interval of finite results, in the argument's exponent or plainly, wherever it is not all of
# the reals.
DOMAIN = {
    "log": (0, np.inf), "log2": (0, np.inf), "log1p": (-1, np.inf), "sqrt": (0, np.inf),
    "rsqrt": (0, np.inf), "acosh": (1, np.inf), "asin": (-1, 1), "acos": (-1, 1),
    "atanh": (-1, 1), "sin": (-1e6, 1e6), "cos": (-1e6, 1e6), "tan": (-1e6, 1e6),
    "lgamma": (-30, 1e6), "digamma": (-30, 1e6), "pow": (0, np.inf),
    "erfc": (-10, 27),
}  # fmt: skip


def draw(name: str, dtype: np.dtype, points: int, seed: int = 0) -> list[np.ndarray]:
    """Operands: half spread over all exponents, half uniform near the origin, plus the domain's
    ends.
    """
    rng = np.random.default_rng(seed)
    low, high = DOMAIN.get(name, (-np.inf, np.inf))
    info = np.finfo(dtype)

    def operand() -> np.ndarray:
        half = points // 2
        exponent = rng.uniform(
            np.log2(float(info.smallest_subnormal)), np.log2(float(info.max)), half
        )
        spread = np.exp2(exponent) * rng.choice([-1.0, 1.0], half)
        near = rng.uniform(max(low, -100.0), min(high, 100.0), points - half)
        both = np.concatenate([spread, near, [low, high, 0.0, -0.0, 1.0, -1.0, 0.5, 1e6]])
        x = both.astype(dtype)
        return x[(x >= low) & (x <= high)]

    return [operand()] if name not in ("pow", "atan2") else _two(operand(), operand(), name)


def _two(x: np.ndarray, y: np.ndarray, name: str) -> list[np.ndarray]:
    size = min(len(x), len(y))
    x, y = x[:size], y[:size]
    if name == "pow":  # exponents for which the power is finite
        with np.errstate(all="ignore"):
            limit = 120 / np.maximum(np.abs(np.log2(x.astype(np.float64))), 1e-3)
        y = (limit * np.random.default_rng(1).uniform(-1, 1, size)).astype(x.dtype)
    return [x, y]


def reference(name: str, xs: list[np.ndarray]) -> np.ndarray:
    """The result in more precision than the operands have."""
    wide = np.finfo(np.longdouble).nmant > np.finfo(xs[0].dtype).nmant + 8
    if wide and name in EXTENDED:
        with np.errstate(all="ignore"):
            return EXTENDED[name](*[x.astype(np.longdouble) for x in xs])
    with mpmath.workdps(50):
        return np.array([_exact(name, *row) for row in zip(*[x.tolist() for x in xs], strict=True)])


def _exact(name: str, *row: float) -> Any:
    try:
        value = EXACT[name](*[mpmath.mpf(v) for v in row])
    except (ValueError, ZeroDivisionError):
        return np.longdouble(np.inf if name == "lgamma" else np.nan)  # a pole
    return np.longdouble(np.nan) if isinstance(value, mpmath.mpc) else _longdouble(value)


def _longdouble(value: Any) -> np.longdouble:
    """An mpmath number in two doubles, added in extended precision."""
    if not mpmath.isfinite(value):
        return np.longdouble(float(value))
    high = float(value)
    if not np.isfinite(high):
        return np.longdouble(high)
    return np.longdouble(high) + np.longdouble(float(value - mpmath.mpf(high)))


def ulp_error(found: np.ndarray, want: np.ndarray) -> np.ndarray:
    """|found - want| in units in the last place of `want` rounded to found's dtype; inf where one
    is not finite.
    """
    info = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        rounded = want.astype(found.dtype)
        unit = np.spacing(np.minimum(np.abs(rounded), info.max))
        error = np.abs((found.astype(np.longdouble) - want) / unit)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    odd = ~np.isfinite(found) | ~np.isfinite(rounded)
    return np.where(same & odd, 0, np.where(odd & ~same, np.inf, error)).astype(np.float64)


def evaluate(name: str, *xs: np.ndarray) -> np.ndarray:
    """The public wrapper, eagerly."""
    wrapper = getattr(ops, name)
    return np.asarray(wrapper(*[Array(x) for x in xs]).data)


def accuracy_table(
    dtype: Any = np.float32,
    points: int = 1_000_000,
    run: Callable[..., np.ndarray] = evaluate,
    names: tuple[str, ...] = tuple(EXACT),
    mp_points: int = 3000,
) -> dict[str, float]:
    """{function: largest error in ulp} over `points` operands (`mp_points` where only mpmath is a
    reference).
    """
    table: dict[str, float] = {}
    dtype = np.dtype(dtype)
    wide = np.finfo(np.longdouble).nmant > np.finfo(dtype).nmant + 8
    for name in names:
        xs = draw(name, dtype, points if wide and name in EXTENDED else mp_points)
        error = ulp_error(run(name, *xs), reference(name, xs))
        table[name] = float(error.max())
    return table
