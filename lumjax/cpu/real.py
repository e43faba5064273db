"""Functions of real numbers on float64 lanes.

The functions ending in `_wide` are accurate to about 1e-10, which makes a float32 result correct to
nearly half a unit in the last place after one rounding; the others are accurate in float64. The
polynomials interpolate at Chebyshev points; `libm` calls the C library lane by lane.
"""

# ruff: noqa: D403  (function names open many docstrings)
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lumjax.cpu.emit import Function, Reg, bits, constant, vector

LIBM = "lumjax_libm_"

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer, left in the low bits
_HALF_PI = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_EXP_WIDE = (
    0.00019907569310848288, 0.0013948578326459795, 0.008333283538708528, 0.041666218319291945,
    0.16666666786308587, 0.5000000107729166, 0.999999999995509, 0.9999999999595618,
)  # fmt: skip
_EXP_TAIL = (
    2.0914679376583935e-09, 2.510520637395701e-08, 2.7557273661348637e-07, 2.7557255425746435e-06,
    2.4801587325533363e-05, 0.00019841269874800493, 0.0013888888888883752, 0.008333333333326141,
    0.04166666666666667, 0.1666666666666667, 0.5,
)  # fmt: skip
_LOG_WIDE = (
    0.19362653714243294, 0.2219140083030577, 0.2857175453591455, 0.3999999879733758,
    0.6666666666737509,
)  # fmt: skip
_LOG = (
    0.13086626147887312, 0.13268773138651677, 0.15386239702814888, 0.181817956401329,
    0.22222222391713917, 0.28571428570803614, 0.4000000000000088, 0.6666666666666666,
)  # fmt: skip
_SIN = (2.724992580256319e-06, -0.00019840086735379485, 0.008333331874710193, -0.1666666666385529)
_COS = (
    -2.7237140417498923e-07, 2.479986219014122e-05, -0.0013888885091399164, 0.04166666663739607,
    -0.4999999999996389,
)  # fmt: skip
_ERF = (
    1.0589380636255612e-06, -1.3909340019823643e-05, 0.0001195656256784787, -0.0008542637997053792,
    0.005223783477187476, -0.02686613323509506, 0.11283791308604572, -0.3761263888963531,
    1.1283791670946768,
)  # fmt: skip
_ERFC = (  # exp(x*x) * erfc(x) * x in 1/x
    0.008945684141015096, 0.033518935793874376, -0.6394406534455982, 2.9400216586721037,
    -7.392247054888772, 11.974220545261094, -13.220205413079059, 9.942059045918624,
    -4.690314243414036, 0.9057858400322008, 0.2657931770573986, 0.0187419883397469,
    -0.2835502880506745, 6.609503095978162e-05, 0.5641882588188749,
)  # fmt: skip
_ATAN = (
    -0.04043224813928246, 0.07135325115644058, -0.090289834989117, 0.11107495135565765,
    -0.14285612511379536, 0.1999999891728842, -0.3333333333144073,
)  # fmt: skip
_ASIN = (
    0.02930523981215564, 0.005443185003014941, 0.01930626090659001, 0.02213244361635817,
    0.030397634131298815, 0.044642358484845795, 0.07500000598829135, 0.16666666665495086,
)  # fmt: skip


def number(x: Reg, value: float) -> Reg:
    """A constant of x's type and lanes."""
    return constant(x.type, value, x.lanes)


def add(f: Function, a: Reg, b: Reg) -> Reg:
    """The sum."""
    return f.binary("fadd", a, b)


def subtract(f: Function, a: Reg, b: Reg) -> Reg:
    """The difference."""
    return f.binary("fsub", a, b)


def multiply(f: Function, a: Reg, b: Reg) -> Reg:
    """The product."""
    return f.binary("fmul", a, b)


def divide(f: Function, a: Reg, b: Reg) -> Reg:
    """The quotient."""
    return f.binary("fdiv", a, b)


def scale(f: Function, a: Reg, value: float) -> Reg:
    """The product with a constant."""
    return f.binary("fmul", a, number(a, value))


def offset(f: Function, a: Reg, value: float) -> Reg:
    """The sum with a constant."""
    return f.binary("fadd", a, number(a, value))


def fused(f: Function, a: Reg, b: Reg, c: Reg) -> Reg:
    """a*b + c; one rounding where the machine has the instruction."""
    if f.module.fma:
        return f.intrinsic("llvm.fma", a, b, c)
    return add(f, multiply(f, a, b), c)


def paired(f: Function, a: Reg, b: Reg, c: Reg) -> Reg:
    """a0 * b0 + a1 * b1 + c on float32 lanes, where 32-bit lanes are pairs of bfloat16: one
    instruction of AVX-512, which takes denormal numbers for zero.
    """
    kind = vector("bfloat", 2 * c.lanes)
    x, y = (f.pure(f"bitcast {r} to {kind}") for r in (a, b))
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * c.lanes}"
    f.module.declare(name, c.full, [c.full, kind, kind])
    return Reg(f.pure(f"call {c.full} @{name}({c}, {kind} {x}, {kind} {y})"), c.type, c.lanes)


def polynomial(f: Function, x: Reg, coefficients: Sequence[float]) -> Reg:
    """Horner's rule, highest power first."""
    total = number(x, coefficients[0])
    for c in coefficients[1:]:
        total = fused(f, total, x, number(x, c))
    return total


def size(f: Function, x: Reg) -> Reg:
    """The absolute value."""
    return f.intrinsic("llvm.fabs", x)


def signed(f: Function, x: Reg, like: Reg) -> Reg:
    """x with the sign of `like`."""
    # by bits: LLVM moves a rounding to float16 past its own copysign, onto a float64 `like`, for
    # which x86 has no instruction
    kind = "i32" if x.type == "float" else "i64"
    low = (1 << (bits(x.type) - 1)) - 1
    magnitude = f.binary("and", f.convert("bitcast", x, kind), constant(kind, low, x.lanes))
    sign = f.binary("and", f.convert("bitcast", like, kind), constant(kind, ~low, x.lanes))
    return f.convert("bitcast", f.binary("or", magnitude, sign), x.type)


def test(f: Function, predicate: str, a: Reg, b: Reg | float) -> Reg:
    """A float comparison: olt, ogt, oeq, une, uno ..."""
    return f.compare(f"fcmp {predicate}", a, b if isinstance(b, Reg) else number(a, b))


def choose(f: Function, condition: Reg, a: Reg | float, b: Reg | float) -> Reg:
    """Per lane a or b; at least one is a register."""
    like = a if isinstance(a, Reg) else b
    assert isinstance(like, Reg)
    left = a if isinstance(a, Reg) else number(like, a)
    return f.select(condition, left, b if isinstance(b, Reg) else number(like, b))


def extreme(f: Function, predicate: str, a: Reg, b: Reg) -> Reg:
    """The larger (ogt) or smaller (olt) one, NaN if one is; either of zeros with two signs."""
    known = choose(f, test(f, predicate, a, b), a, b)
    return choose(f, test(f, "uno", a, a), a, known)


def clamp(f: Function, x: Reg, low: float, high: float) -> Reg:
    """x within [low, high]; NaN stays NaN."""
    x = choose(f, test(f, "olt", x, low), low, x)
    return choose(f, test(f, "ogt", x, high), high, x)


def libm(f: Function, name: str, *xs: Reg) -> Reg:
    """A float64 function of the C library, lane by lane."""
    full = LIBM + name
    f.module.imports.add(name)
    f.module.declare(full, "double", ["double"] * len(xs))
    lanes: list[Reg] = []
    for k in range(xs[0].lanes):
        values = ", ".join(str(f.lane(x, k)) for x in xs)
        lanes.append(Reg(f.pure(f"call double @{full}({values})"), "double"))
    return f.gather_lanes(lanes)


def helper(f: Function, name: str, x: Reg, build: Callable[[Function, Reg], Reg]) -> Reg:
    """A call of a function of the module, written on first use."""
    full = f"lumjax_{name}_{x.lanes}"
    if full not in f.module.helpers:
        f.module.helpers.add(full)
        parameter = Reg("%x", x.type, x.lanes)
        inner = Function(f.module, full, [parameter], x.full, internal=True)
        inner.finish(build(inner, parameter))
    return Reg(f.pure(f"call {x.full} @{full}({x})"), x.type, x.lanes)


# ---- exponentials


def _reduce(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """(k, r): x = k*log(2) + r with k whole, still offset by the magic constant."""
    shifted = offset(f, scale(f, x, 1 / math.log(2)), _MAGIC)
    whole = offset(f, shifted, -_MAGIC)
    r = fused(f, whole, number(x, -_LN2_HIGH), x)
    return shifted, fused(f, whole, number(x, -_LN2_LOW), r)


def _power_of_two(f: Function, y: Reg, shifted: Reg) -> Reg:
    """y * 2**k for a result that is a normal number; k as `_reduce` gives it."""
    exponent = f.convert("bitcast", shifted, "i64")
    exponent = f.binary("shl", exponent, constant("i64", 52, y.lanes))
    scaled = f.binary("add", f.convert("bitcast", y, "i64"), exponent)
    return f.convert("bitcast", scaled, "double")


def exp_wide(f: Function, x: Reg) -> Reg:
    """e**x for float32: beyond +-150 it stays beyond float32's range."""
    shifted, r = _reduce(f, clamp(f, x, -150.0, 150.0))
    return _power_of_two(f, polynomial(f, r, _EXP_WIDE), shifted)


def _exp_core(f: Function, r: Reg) -> Reg:
    """e**r for |r| <= log(2)/2, in float64."""
    tail = polynomial(f, r, _EXP_TAIL)
    return offset(f, fused(f, multiply(f, r, r), tail, r), 1.0)


def exp(f: Function, x: Reg) -> Reg:
    """e**x in float64, denormal results included."""
    shifted, r = _reduce(f, clamp(f, x, -750.0, 710.0))
    y = _exp_core(f, r)
    # the scale is applied in two halves, so that neither overflows and a denormal is rounded once
    whole = offset(f, shifted, -_MAGIC)
    first = offset(f, scale(f, whole, 0.5), _MAGIC)
    second = offset(f, subtract(f, whole, offset(f, first, -_MAGIC)), _MAGIC)
    for part in (first, second):
        biased = f.binary("add", f.convert("bitcast", part, "i64"), constant("i64", 1023, x.lanes))
        power = f.binary("shl", biased, constant("i64", 52, x.lanes))
        y = multiply(f, y, f.convert("bitcast", power, "double"))
    return choose(f, test(f, "uno", x, x), x, y)


def expm1_wide(f: Function, x: Reg) -> Reg:
    """e**x - 1 for float32."""
    shifted, r = _reduce(f, clamp(f, x, -150.0, 150.0))
    large = offset(f, _power_of_two(f, _exp_core(f, r), shifted), -1.0)
    small = multiply(f, x, polynomial(f, x, (1 / 24, 1 / 6, 0.5, 1.0)))
    return choose(f, test(f, "olt", size(f, x), 2.0**-8), small, large)


def sinh_wide(f: Function, x: Reg) -> Reg:
    """sinh x for float32."""
    e = expm1_wide(f, size(f, x))
    return signed(f, scale(f, add(f, e, divide(f, e, offset(f, e, 1.0))), 0.5), x)


def cosh_wide(f: Function, x: Reg) -> Reg:
    """cosh x for float32."""
    e = exp_wide(f, size(f, x))
    return scale(f, add(f, e, divide(f, number(e, 1.0), e)), 0.5)


def logistic(f: Function, x: Reg) -> Reg:
    """1 / (1 + e**-x) in float64."""
    return divide(f, number(x, 1.0), offset(f, exp(f, f.negate(x)), 1.0))


# ---- logarithms


def _split(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """(k, m - 1): x = 2**k * m with sqrt(1/2) <= m < sqrt(2), for positive normal x; k a float."""
    whole = f.convert("bitcast", x, "i64")
    root = 0x3FE6A09E667F3BCD  # sqrt(1/2)
    moved = f.binary("sub", whole, constant("i64", root, x.lanes))
    exponent = f.binary("ashr", moved, constant("i64", 52, x.lanes))
    mantissa = f.binary("sub", whole, f.binary("shl", exponent, constant("i64", 52, x.lanes)))
    magic = 0x4338000000000000  # the bits of _MAGIC
    k = f.convert("bitcast", f.binary("add", exponent, constant("i64", magic, x.lanes)), "double")
    return offset(f, k, -_MAGIC), offset(f, f.convert("bitcast", mantissa, "double"), -1.0)


def _log_edges(f: Function, x: Reg, y: Reg) -> Reg:
    """The logarithm y of x with its special values put in: -inf at 0, NaN below, inf at inf."""
    y = choose(f, test(f, "oeq", x, 0.0), -math.inf, y)
    y = choose(f, test(f, "ult", x, 0.0), math.nan, y)
    return choose(f, test(f, "oeq", x, math.inf), x, y)


def _log_wide_parts(f: Function, x: Reg) -> tuple[Reg, Reg]:
    k, m = _split(f, x)
    s = divide(f, m, offset(f, m, 2.0))
    z = multiply(f, s, s)
    series = offset(f, multiply(f, z, polynomial(f, z, _LOG_WIDE)), 2.0)
    return k, multiply(f, s, series)


def log_wide(f: Function, x: Reg) -> Reg:
    """log x for float32 (whose denormals are normal float64 numbers)."""
    k, m = _log_wide_parts(f, x)
    return _log_edges(f, x, fused(f, k, number(x, math.log(2)), m))


def log2_wide(f: Function, x: Reg) -> Reg:
    """The logarithm to base 2 for float32; exact at powers of two."""
    k, m = _log_wide_parts(f, x)
    return _log_edges(f, x, fused(f, m, number(x, 1 / math.log(2)), k))


def log(f: Function, x: Reg) -> Reg:
    """log x in float64, denormals included."""
    tiny = test(f, "olt", x, 2.0**-1022)
    k, m = _split(f, choose(f, tiny, scale(f, x, 2.0**54), x))
    k = add(f, k, choose(f, tiny, number(k, -54.0), 0.0))
    s = divide(f, m, offset(f, m, 2.0))
    z = multiply(f, s, s)
    rest = multiply(f, z, polynomial(f, z, _LOG))
    half = scale(f, multiply(f, m, m), 0.5)
    low = fused(f, k, number(x, _LN2_LOW), multiply(f, s, add(f, half, rest)))
    y = subtract(f, scale(f, k, _LN2_HIGH), subtract(f, subtract(f, half, low), m))
    return _log_edges(f, x, y)


def log1p_wide(f: Function, x: Reg) -> Reg:
    """log(1 + x) for float32."""
    large = log_wide(f, offset(f, x, 1.0))
    small = multiply(f, x, polynomial(f, x, (-0.25, 1 / 3, -0.5, 1.0)))
    return choose(f, test(f, "olt", size(f, x), 2.0**-10), small, large)


def asinh_wide(f: Function, x: Reg) -> Reg:
    """asinh x for float32."""
    a = size(f, x)
    square = multiply(f, a, a)
    root = offset(f, f.intrinsic("llvm.sqrt", offset(f, square, 1.0)), 1.0)
    y = log1p_wide(f, add(f, a, divide(f, square, root)))
    return signed(f, choose(f, test(f, "oeq", a, math.inf), a, y), x)


def acosh_wide(f: Function, x: Reg) -> Reg:
    """acosh x for float32."""
    t = offset(f, x, -1.0)
    root = f.intrinsic("llvm.sqrt", multiply(f, t, offset(f, t, 2.0)))
    return choose(f, test(f, "ult", x, 1.0), math.nan, log1p_wide(f, add(f, t, root)))


def atanh_wide(f: Function, x: Reg) -> Reg:
    """atanh x for float32."""
    ratio = divide(f, scale(f, x, 2.0), subtract(f, number(x, 1.0), x))
    return scale(f, log1p_wide(f, ratio), 0.5)


def pow_wide(f: Function, x: Reg, y: Reg) -> Reg:
    """x**y for float32, special cases as in C."""
    a = size(f, x)
    result = exp_wide(f, multiply(f, y, log_wide(f, a)))
    whole = test(f, "oeq", f.intrinsic("llvm.rint", y), y)
    half = scale(f, y, 0.5)
    odd = f.binary("and", whole, test(f, "une", f.intrinsic("llvm.rint", half), half))
    result = choose(f, odd, signed(f, result, x), result)
    bad = f.binary("and", test(f, "olt", x, 0.0), test(f, "ogt", x, -math.inf))
    fraction = f.binary("and", bad, test(f, "une", f.intrinsic("llvm.rint", y), y))
    result = choose(f, fraction, math.nan, result)
    steady = f.binary("and", test(f, "oeq", a, 1.0), test(f, "oeq", size(f, y), math.inf))
    one = f.binary("or", test(f, "oeq", x, 1.0), test(f, "oeq", y, 0.0))
    return choose(f, f.binary("or", one, steady), 1.0, result)


def cbrt_wide(f: Function, x: Reg) -> Reg:
    """The cube root for float32."""
    return signed(f, exp_wide(f, scale(f, log_wide(f, size(f, x)), 1 / 3)), x)


# ---- circular functions


def _quadrant(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """(q, r): x = q*pi/2 + r, |r| <= pi/4, the whole q in the low bits of an i64."""
    shifted = offset(f, scale(f, x, 2 / math.pi), _MAGIC)
    whole = offset(f, shifted, -_MAGIC)
    r = x
    for part in _HALF_PI:
        r = fused(f, whole, number(x, -part), r)
    return f.convert("bitcast", shifted, "i64"), r


def _sin_core(f: Function, r: Reg) -> Reg:
    z = multiply(f, r, r)
    return fused(f, multiply(f, z, r), polynomial(f, z, _SIN), r)


def _cos_core(f: Function, r: Reg) -> Reg:
    z = multiply(f, r, r)
    return fused(f, z, polynomial(f, z, _COS), number(r, 1.0))


def _bit(f: Function, q: Reg, k: int) -> Reg:
    masked = f.binary("and", q, constant("i64", 1 << k, q.lanes))
    return f.compare("icmp ne", masked, constant("i64", 0, q.lanes))


def _sine(f: Function, x: Reg, ahead: int) -> Reg:
    q, r = _quadrant(f, x)
    if ahead:
        q = f.binary("add", q, constant("i64", ahead, q.lanes))
    y = choose(f, _bit(f, q, 0), _cos_core(f, r), _sin_core(f, r))
    return choose(f, _bit(f, q, 1), f.negate(y), y)


def _tangent(f: Function, x: Reg) -> Reg:
    q, r = _quadrant(f, x)
    s, c, odd = _sin_core(f, r), _cos_core(f, r), _bit(f, q, 0)
    return divide(f, choose(f, odd, f.negate(c), s), choose(f, odd, s, c))


def _circular(f: Function, name: str, x: Reg, near: Callable[[Function, Reg], Reg]) -> Reg:
    """A periodic function: `near` below 2**20, where the reduction is exact enough, else libm."""

    def build(g: Function, value: Reg) -> Reg:
        fast = near(g, value)
        far = test(g, "ogt", size(g, value), 2.0**20)
        if value.lanes > 1:
            packed = Reg(g.pure(f"bitcast {far} to i{value.lanes}"), f"i{value.lanes}")
            far = g.compare("icmp ne", packed, Reg("0", packed.type))
        with g.branch(far, [fast]) as frame:
            frame.carried = [libm(g, name, value)]
        return frame.results[0]

    return helper(f, name, x, build)


def sin_wide(f: Function, x: Reg) -> Reg:
    """sin x for float32."""
    return _circular(f, "sin", x, lambda g, v: _keep_zero(g, v, _sine(g, v, 0)))


def cos_wide(f: Function, x: Reg) -> Reg:
    """cos x for float32."""
    return _circular(f, "cos", x, lambda g, v: _sine(g, v, 1))


def tan_wide(f: Function, x: Reg) -> Reg:
    """tan x for float32."""
    return _circular(f, "tan", x, lambda g, v: _keep_zero(g, v, _tangent(g, v)))


def _keep_zero(f: Function, x: Reg, y: Reg) -> Reg:
    """y, but x itself where x is a zero (whose sign the reduction loses)."""
    return choose(f, test(f, "oeq", x, 0.0), x, y)


def _atan_core(f: Function, t: Reg) -> Reg:
    """atan t for 0 <= t <= 1."""
    high = test(f, "ogt", t, math.tan(math.pi / 8))
    moved = divide(f, offset(f, t, -1.0), offset(f, t, 1.0))
    u = choose(f, high, moved, t)
    z = multiply(f, u, u)
    y = fused(f, multiply(f, u, z), polynomial(f, z, _ATAN), u)
    return add(f, y, choose(f, high, number(t, math.pi / 4), 0.0))


def atan_wide(f: Function, x: Reg) -> Reg:
    """atan x for float32."""
    a = size(f, x)
    steep = test(f, "ogt", a, 1.0)
    y = _atan_core(f, choose(f, steep, divide(f, number(x, 1.0), a), a))
    return signed(f, choose(f, steep, subtract(f, number(x, math.pi / 2), y), y), x)


def atan2_wide(f: Function, y: Reg, x: Reg) -> Reg:
    """The angle of (x, y) for float32, special cases as in C."""
    a, b = size(f, y), size(f, x)
    steep = test(f, "ogt", a, b)
    small, large = choose(f, steep, b, a), choose(f, steep, a, b)
    t = choose(f, test(f, "oeq", small, large), 1.0, divide(f, small, large))
    angle = _atan_core(f, choose(f, test(f, "oeq", large, 0.0), 0.0, t))
    angle = choose(f, steep, subtract(f, number(x, math.pi / 2), angle), angle)
    sign = f.compare("icmp slt", f.convert("bitcast", x, "i64"), constant("i64", 0, x.lanes))
    angle = choose(f, sign, subtract(f, number(x, math.pi), angle), angle)
    return choose(f, test(f, "uno", x, y), math.nan, signed(f, angle, y))


def _arc(f: Function, x: Reg) -> tuple[Reg, Reg, Reg]:
    """(|x| > 1/2, asin(s), s) with s = sqrt((1-|x|)/2) there and |x| elsewhere."""
    a = size(f, x)
    high = test(f, "ogt", a, 0.5)
    rest = scale(f, subtract(f, number(x, 1.0), a), 0.5)
    s = choose(f, high, f.intrinsic("llvm.sqrt", rest), a)
    z = multiply(f, s, s)
    return high, fused(f, multiply(f, s, z), polynomial(f, z, _ASIN), s), a


def asin_wide(f: Function, x: Reg) -> Reg:
    """asin x for float32."""
    high, y, _ = _arc(f, x)
    far = subtract(f, number(x, math.pi / 2), scale(f, y, 2.0))
    return signed(f, choose(f, high, far, y), x)


def acos_wide(f: Function, x: Reg) -> Reg:
    """acos x for float32."""
    high, y, _ = _arc(f, x)
    negative = test(f, "olt", x, 0.0)
    double = scale(f, y, 2.0)
    far = choose(f, negative, subtract(f, number(x, math.pi), double), double)
    y = choose(f, negative, f.negate(y), y)
    return choose(f, high, far, subtract(f, number(x, math.pi / 2), y))


# ---- the error function


def erfc_wide(f: Function, x: Reg) -> Reg:
    """1 - erf x for float32."""
    a = size(f, x)
    far = _erfc_far(f, a)
    far = choose(f, test(f, "olt", x, 0.0), subtract(f, number(x, 2.0), far), far)
    near = subtract(f, number(x, 1.0), multiply(f, x, polynomial(f, multiply(f, x, x), _ERF)))
    return choose(f, test(f, "olt", a, 1.0), near, far)


def _erfc_far(f: Function, a: Reg) -> Reg:
    """erfc a for a >= 1."""
    a = clamp(f, a, 1.0, 10.6)
    u = divide(f, number(a, 1.0), a)
    tail = multiply(f, u, polynomial(f, u, _ERFC))
    return multiply(f, exp_wide(f, f.negate(multiply(f, a, a))), tail)
