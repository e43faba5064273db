"""Arithmetic beyond add, sub, mul and neg: division, rounding, extrema, powers and roots."""

from __future__ import annotations

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentValueError
from lumjax.ops import numerics
from lumjax.ops.checks import static_int
from lumjax.ops.compare import and_, eq, ge, gt, is_ordered, lt, not_, or_
from lumjax.ops.elementwise import (
    add,
    asvalue,
    binary,
    broadcast_values,
    cast,
    constant,
    elementwise,
    mul,
    neg,
    promote_values,
    select,
    sub,
    unary,
)
from lumjax.ops.parts import conj, imag, real
from lumjax.ops.record import (
    FLOATS,
    INEXACT,
    INTEGERS,
    NUMBERS,
    ORDERED,
    REALS,
    real_part,
    widened,
)
from lumjax.trace.array import Array
from lumjax.trace.core import Linear, Tracer, Value, aval_of
from lumjax.trace.form import Expand, Trait

# ---- division


def _is_integer(x: Value) -> bool:
    return dt.is_integer(aval_of(x).dtype)


div_p, _divide = binary(
    "div", np.divide, INEXACT, "x / y, elementwise.",
    tangents=(lambda t, x, y, _: div(t, y), lambda t, x, y, out: neg(mul(t, div(out, y)))),
    transpose=lambda ct, x, y: (div(ct, y) if isinstance(x, Linear) else None, None),
    expand=lambda x, y: mul(x, recip(y)), flops=4,
)  # fmt: skip
idiv_p, idiv = binary(
    "idiv", numerics.divide, INTEGERS,
    "x / y of integers, truncated towards zero; x / 0 is -1 and INT_MIN / -1 is INT_MIN.", flops=20,
)  # fmt: skip
rem_p, rem = binary(
    "rem", numerics.remainder, REALS,
    "The remainder of truncated division, with the sign of x; for integers, x where y is 0.",
    tangents=(lambda t, *_: t, lambda t, x, y, _: neg(mul(t, trunc(div(x, y))))), flops=20,
)  # fmt: skip


def div(x: Value, y: Value) -> Value:
    """X / y, elementwise: IEEE division of floats, truncated division of integers (see `idiv`)."""
    if isinstance(x, (Array, Tracer)) and x.aval.dtype in INEXACT.dtypes:
        return _divide(x, y)
    x, y = promote_values(x, y, operation="div")
    return idiv(x, y) if _is_integer(x) else _divide(x, y)


recip_p, recip = unary(
    "recip", lambda x: np.divide(np.ones((), x.dtype), x), INEXACT, "1 / x, elementwise.",
    tangent=lambda t, x, out: neg(mul(t, mul(out, out))), flops=4, domain=(0.2, 4.0),
)  # fmt: skip

# ---- sign and rounding


def _abs_tangent(t: Value, x: Value, out: Value) -> Value:
    """JAX's convention: the derivative at 0 is 1."""
    if dt.is_complex(aval_of(x).dtype):
        radius = cast(select(eq(out, 0.0), 1.0, out), aval_of(x).dtype)
        return real(mul(t, div(conj(x), radius)))
    return mul(t, select(ge(x, constant(0, x)), constant(1, x), constant(-1, x)))


def _expand_abs(x: Value) -> Value:
    if dt.is_complex(aval_of(x).dtype):
        return sqrt(add(mul(real(x), real(x)), mul(imag(x), imag(x))))
    zero = constant(0, x)
    return select(lt(zero, x), x, add(zero, mul(x, constant(-1, x))))


def _sign_tangent(t: Value, x: Value, out: Value) -> Value:
    """0 for real x; for complex x, whose sign is x / |x|, the part of t/|x| along the circle."""
    if not dt.is_complex(aval_of(x).dtype):
        return constant(0, t)
    along = mul(out, cast(real(mul(conj(out), t)), aval_of(x).dtype))
    return div(sub(t, along), cast(abs(x), aval_of(x).dtype))


def _expand_sign(x: Value) -> Value:
    if dt.is_complex(aval_of(x).dtype):
        return select(eq(x, constant(0, x)), x, div(x, cast(abs(x), aval_of(x).dtype)))
    zero = constant(0, x)
    return select(lt(zero, x), constant(1, x), select(lt(x, zero), constant(-1, x), x))


def _expand_round(x: Value) -> Value:
    """The nearest integer; ties to even: of floor(x + .5), the odd ones that were ties go down."""
    near = floor(add(x, 0.5))
    half = mul(near, 0.5)
    odd = lt(floor(half), half)
    tie = not_(or_(lt(sub(near, x), 0.5), lt(constant(0.5, x), sub(near, x))))
    return select(and_(odd, tie), sub(near, 1.0), near)


abs_p, abs = unary(
    "abs", np.abs, NUMBERS, "The absolute value; of a complex number, its modulus.",
    tangent=_abs_tangent, result=real_part, expand=_expand_abs,
)  # fmt: skip
sign_p, sign = unary(
    "sign", numerics.sign, NUMBERS, "-1, 0 or 1; NaN for NaN, and the sign of zeros is kept.",
    tangent=_sign_tangent, expand=_expand_sign,
)  # fmt: skip
floor_p, floor = unary("floor", np.floor, FLOATS, "The largest integer not above x.")
ceil_p, ceil = unary(
    "ceil",
    np.ceil,
    FLOATS,
    "The smallest integer not below x.",
    expand=lambda x: neg(floor(neg(x))),
)
trunc_p, trunc = unary(
    "trunc", np.trunc, FLOATS, "x without its fraction.",
    expand=lambda x: select(lt(x, constant(0, x)), ceil(x), floor(x)),
)  # fmt: skip
round_p, round = unary(
    "round",
    np.rint,
    FLOATS,
    "The nearest integer, ties to even.",
    expand=_expand_round,
    domain=(-4, 4),
)
nextafter_p, nextafter = binary(
    "nextafter",
    np.nextafter,
    FLOATS,
    "The next floating number after x in the direction of y.",
    tangents=(lambda t, *_: t, None),
    flops=4,
)

# ---- extrema: at a tie each operand gets half of the derivative, as in JAX


def _wins(x: Value, y: Value) -> Value:
    """1 where x > y, .5 where they are equal, else 0."""
    zero, half, one = (constant(c, x) for c in (0, 0.5, 1))
    return select(gt(x, y), one, select(eq(x, y), half, zero))


def _expand_max(x: Value, y: Value) -> Value:
    return select(or_(lt(x, y), not_(is_ordered(y))), y, x)


def _expand_min(x: Value, y: Value) -> Value:
    return select(or_(lt(y, x), not_(is_ordered(y))), y, x)


max_p, max = binary(
    "max", np.maximum, ORDERED, "The larger of x and y; NaN where either is NaN.",
    tangents=(lambda t, x, y, _: mul(t, _wins(x, y)), lambda t, x, y, _: mul(t, _wins(y, x))),
    expand=_expand_max, identity=-np.inf,
    traits=(Trait.COMMUTATIVE, Trait.ASSOCIATIVE, Trait.IDEMPOTENT),
)  # fmt: skip
min_p, min = binary(
    "min", np.minimum, ORDERED, "The smaller of x and y; NaN where either is NaN.",
    tangents=(lambda t, x, y, _: mul(t, _wins(y, x)), lambda t, x, y, _: mul(t, _wins(x, y))),
    expand=_expand_min, identity=np.inf,
    traits=(Trait.COMMUTATIVE, Trait.ASSOCIATIVE, Trait.IDEMPOTENT),
)  # fmt: skip


def _inside(which: Value, t: Value) -> Value:
    return mul(t, select(which, constant(1, t), constant(0, t)))


clamp_p = elementwise(
    "clamp", 3, lambda low, x, high: np.minimum(np.maximum(low, x), high), ORDERED,
    tangents=(
        lambda t, low, x, high, _: _inside(and_(gt(low, x), lt(low, high)), t),
        lambda t, low, x, high, _: _inside(and_(gt(x, low), lt(x, high)), t),
        lambda t, low, x, high, _: _inside(lt(high, max(low, x)), t),
    ),
    expand=lambda low, x, high: min(max(low, x), high), form=Expand(),
)  # fmt: skip


def clamp(low: Value, x: Value, high: Value) -> Value:
    """min(max(low, x), high); the derivative is 0 at the bounds (that of `minimum` and `maximum` is
    .5).
    """
    operands = promote_values(low, x, high, operation="clamp")
    ORDERED.check("clamp", aval_of(operands[0]))
    return clamp_p.bind(*broadcast_values(*operands, operation="clamp"))[0]


# ---- powers and roots


def _integer_pow_tangent(t: Value, x: Value, _: Value, *, y: int) -> Value:
    if y == 0:
        return constant(0, t)
    return mul(t, mul(constant(y, x), integer_pow(x, y - 1)))


def _expand_integer_pow(x: Value, *, y: int) -> Value:
    """Repeated squaring, as `numerics.integer_power` does it."""
    if y < 0:
        return recip(_expand_integer_pow(x, y=-y))
    result = None
    while y:
        if y & 1:
            result = x if result is None else mul(result, x)
        y >>= 1
        if y:
            x = mul(x, x)
    return constant(1, x) if result is None else result


integer_pow_p = elementwise(
    "integer_pow", 1, numerics.integer_power, NUMBERS,
    tangents=(_integer_pow_tangent,), expand=_expand_integer_pow, form=Expand(), domain=(0.3, 2.0),
    settings=lambda d: [{"y": y} for y in (0, 1, 2, 3, 7, -1, -2) if y >= 0 or dt.is_inexact(d)],
)  # fmt: skip


def integer_pow(x: Value, y: int) -> Value:
    """x**y for a Python integer y. Integers cannot be raised to negative powers."""
    x = asvalue(x, "integer_pow")
    aval = aval_of(x)
    NUMBERS.check("integer_pow", aval)
    exponent = static_int("integer_pow", "exponent", y)
    if exponent < 0 and not dt.is_inexact(aval.dtype):
        raise ArgumentValueError(
            operation="integer_pow",
            required="a nonnegative exponent for an integer base",
            got=f"{aval} ** {exponent}",
            fix="convert the base to a float first",
        )
    return integer_pow_p.bind(x, y=exponent)[0]


square_p, square = unary(
    "square", np.square, NUMBERS, "x * x, elementwise.",
    tangent=lambda t, x, _: mul(t, mul(constant(2, x), x)),
    expand=lambda x: mul(x, x), form=Expand(),
)  # fmt: skip
sqrt_p, sqrt = unary(
    "sqrt", np.sqrt, INEXACT, "The square root.",
    tangent=lambda t, x, out: mul(t, div(constant(0.5, x), out)), flops=8, domain=(0.1, 4.0),
)  # fmt: skip
rsqrt_p, rsqrt = unary(
    "rsqrt", widened(lambda x: 1.0 / np.sqrt(x)), INEXACT, "1 / sqrt(x), elementwise.",
    tangent=lambda t, x, out: mul(t, mul(constant(-0.5, x), div(out, x))),
    expand=lambda x: recip(sqrt(x)), flops=10, domain=(0.1, 4.0),
)  # fmt: skip
