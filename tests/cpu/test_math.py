"""Scalar operations: accuracy, special values, the semantics table, and what is unsupported."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
import scipy.special

import lumjax.dtype as dt
from lumjax.cpu import math as cpu_math
from lumjax.cpu.objects import host_target
from lumjax.kernel.emit import CAST
from lumjax.kernel.evaluate import convert
from lumjax.kernel.ir import LoopKind
from lumjax.ops import numerics
from lumjax.trace.form import Trait
from tests.cpu.kernels import apply, const, op

pytestmark = pytest.mark.sampled(4)

RNG = np.random.default_rng(7)
EDGES = np.array(
    [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38,
     -3.4028235e38, 88.72, 88.73, -87.4, -103.97, -104, 0.5, -0.5, 2, 3, -3, 1e-8, -1e-8, 1e-4,
     -1e-4, 1e5, 1048577.0, 1e10, -1e20, 100, 200, 700, -745.2, 3.14159265, 1.5707964, 8.0],
    np.float32,
)  # fmt: skip
SAMPLE = np.concatenate(
    [
        EDGES,
        RNG.integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32).view(np.float32),
        *(RNG.uniform(-r, r, 4000).astype(np.float32) for r in (1e-3, 0.1, 1, 2, 10, 100, 1e3)),
    ]
)
UNARY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "logistic": scipy.special.expit, "cbrt": np.cbrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "erf": scipy.special.erf, "erfc": scipy.special.erfc, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "recip": lambda x: 1 / x, "neg": np.negative, "abs": np.abs,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "square": np.square,
    "sign": numerics.sign,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "atan2": np.arctan2, "rem": np.fmod, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


QUICK = ("exp", "exp2", "logistic", "rsqrt", "tanh")  # not rounded from float64


def check(got, exact, limit):
    """`got` is within `limit` units in the last place; specials and zeros' signs are equal."""
    with np.errstate(all="ignore"):
        want = exact.astype(got.dtype)
        unit = np.spacing(np.abs(want)).astype(np.float64)
        error = np.abs(got.astype(np.float64) - exact) / unit
    finite = np.isfinite(want)
    assert (np.isnan(got) == np.isnan(want)).all()
    np.testing.assert_array_equal(got[~finite], want[~finite])
    assert finite.any()
    assert error[finite].max() <= limit
    zero = (want == 0) & (exact == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_float32(name):
    with np.errstate(all="ignore"):
        exact = UNARY[name](SAMPLE.astype(np.float64))
    check(apply(op(name, 1), np.float32, SAMPLE), exact, 2.1 if name in QUICK else 0.51)


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_float64(name):
    more = [1e-310, 709.7, 710.5, -745.0, -708.5, -740.0, 5e-324]
    with np.errstate(all="ignore"):
        wide = np.concatenate([SAMPLE[:4000].astype(np.float64), more])
        exact = UNARY[name](wide)
    got = apply(op(name, 1), np.float64, wide)
    if name == "erfc":  # scipy flushes denormals
        keep = ~((np.abs(exact) < 1e-300) & (wide > 20))
        got, exact = got[keep], exact[keep]
    check(got, exact, 4)


@pytest.mark.parametrize("name", ["exp", "log", "logistic"])
def test_float64_polynomials_against_mpmath(name):
    low = 1e-300 if name == "log" else -700
    x = np.concatenate([RNG.uniform(low, 700, 300), RNG.uniform(0.5, 2, 300)])
    exact = {"exp": mpmath.exp, "log": mpmath.log, "logistic": lambda v: 1 / (1 + mpmath.exp(-v))}
    with mpmath.workprec(200):
        values = [exact[name](mpmath.mpf(float(v))) for v in x]
        got = apply(op(name, 1), np.float64, x)
        for v, want in zip(got, values, strict=True):
            unit = mpmath.mpf(float(np.spacing(abs(float(want)))))
            assert abs(mpmath.mpf(float(v)) - want) <= 3 * unit


@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_float32(name):
    pairs = np.array(list(itertools.product(EDGES, EDGES)), np.float32)
    x = np.concatenate([pairs[:, 0], RNG.uniform(0.9, 1.1, 3000), RNG.uniform(0, 10, 3000)])
    y = np.concatenate([pairs[:, 1], RNG.uniform(-900, 900, 3000), RNG.uniform(-30, 30, 3000)])
    x, y = x.astype(np.float32), y.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = BINARY[name](x.astype(np.float64), y.astype(np.float64))
        if name in ("max", "min"):  # IEEE 754-2019: -0 < +0
            tie = (x == 0) & (y == 0)
            both = np.signbit(x) & np.signbit(y) if name == "max" else np.signbit(x) | np.signbit(y)
            exact = np.where(tie, np.where(both, -0.0, 0.0), exact)
    check(apply(op(name, 2), np.float32, x, y), exact, 0.51)


def test_binary_float64():
    x, y = RNG.uniform(0.1, 10, 2000), RNG.uniform(-30, 30, 2000)
    for name, function in BINARY.items():
        check(apply(op(name, 2), np.float64, x, y), function(x, y), 1)


def test_lgamma():
    x = RNG.uniform(0.01, 50, 500).astype(np.float32)
    check(apply(op("lgamma", 1), np.float32, x), scipy.special.gammaln(x.astype(np.float64)), 0.51)


@pytest.mark.parametrize("kind", [LoopKind.VECTOR, LoopKind.SERIAL])
def test_scalars_and_lanes_agree(kind):
    x = SAMPLE[:300]
    for name in UNARY:
        np.testing.assert_array_equal(
            apply(op(name, 1), np.float32, x, kind=kind), apply(op(name, 1), np.float32, x)
        )


def test_nextafter():
    pairs = np.array(list(itertools.product(EDGES, EDGES)), np.float32)
    for dtype in (np.float32, np.float64):
        x, y = pairs[:, 0].astype(dtype), pairs[:, 1].astype(dtype)
        got = apply(op("nextafter", 2), dtype, x, y)
        np.testing.assert_array_equal(got, np.nextafter(x, y))
        np.testing.assert_array_equal(
            np.signbit(got[got == 0]), np.signbit(np.nextafter(x, y)[got == 0])
        )


def test_fma_rounds_once():
    x = np.float32([1 + 2**-12, 3.0])
    y = np.float32([1 - 2**-12, 7.0])
    z = np.float32([-1.0, 2.0])
    got = apply(op("fma", 3), np.float32, x, y, z)
    np.testing.assert_array_equal(got, np.float32([-(2.0**-24), 23.0]))


# ---- the semantics table


def edge_integers(dtype):
    info = np.iinfo(dtype)
    if info.bits == 8:
        return np.arange(info.min, info.max + 1).astype(dtype)
    middle = [-info.bits, -3, -2, -1, 0, 1, 2, 3, 5, 7, 31, 32, 63, 64, 127, 128]
    values = [info.min, info.min + 1, info.max, info.max - 1, *middle]
    return np.array([v for v in values if info.min <= v <= info.max], dtype)


INTEGER = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": numerics.divide,
    "idiv": numerics.divide, "rem": numerics.remainder, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shift_left": numerics.shift_left, "shift_right_logical": numerics.shift_right_logical,
    "shift_right_arithmetic": numerics.shift_right_arithmetic, "eq": np.equal, "lt": np.less,
    "ne": np.not_equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("dtype", dt.INTEGER, ids=str)
@pytest.mark.parametrize("name", sorted(INTEGER))
def test_integer_semantics(name, dtype):
    values = edge_integers(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    result = np.bool_ if name in cpu_math.COMPARISONS else dtype
    with np.errstate(all="ignore"):
        want = INTEGER[name](x, y)
    np.testing.assert_array_equal(apply(op(name, 2), result, x, y), want)


@pytest.mark.parametrize("dtype", dt.INTEGER, ids=str)
@pytest.mark.parametrize("name", ["idiv", "rem"])
def test_division_by_constants(name, dtype):
    x = np.tile(edge_integers(dtype), 5)  # vectors, and what is left
    info, kind = np.iinfo(dtype), np.dtype(dtype)
    for value in (0, 1, 2, 3, 7, 10, 28, -1, -3, info.max, info.min):
        if info.min <= value <= info.max:
            got = apply(op(name, 2), kind, x, last=[const(kind, value)])
            with np.errstate(all="ignore"):
                want = INTEGER[name](x, np.full_like(x, value))
            np.testing.assert_array_equal(got, want, err_msg=str(value))


@pytest.mark.parametrize("dtype", dt.INTEGER, ids=str)
def test_unary_integers(dtype):
    x = edge_integers(dtype)
    table = {
        "neg": np.negative, "abs": np.abs, "sign": np.sign, "not": np.bitwise_not,
        "square": np.square, "population_count": numerics.population_count,
        "clz": numerics.count_leading_zeros,
        "floor": lambda v: v,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        for name, function in table.items():
            np.testing.assert_array_equal(apply(op(name, 1), dtype, x), function(x), err_msg=name)


def test_bools():
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    table = {
        "and": x & y, "or": x | y, "xor": x ^ y, "eq": x == y, "ne": x != y, "lt": x < y,
        "ge": x >= y,
        "max": x | y, "min": x & y, "add": x | y, "mul": x & y,
    }  # fmt: skip
    for name, want in table.items():
        np.testing.assert_array_equal(apply(op(name, 2), np.bool_, x, y), want, err_msg=name)
    np.testing.assert_array_equal(apply(op("not", 1), np.bool_, x), ~x)


PLAIN = [d for d in dt.NUMERIC if d not in dt.COMPLEX]


def values_for_cast(dtype):
    if dtype == dt.bool_:
        return np.array([False, True])
    if dtype in dt.INTEGER:
        return edge_integers(dtype)
    ends = [
        s * 2.0**k + d
        for s in (1, -1)
        for k in (7, 8, 15, 16, 24, 31, 32, 63, 64)
        for d in (-1, 0, 1)
    ]
    halves = [
        65504.0,
        65519.0,
        65520.0,
        2.0**-24,
        2.0**-25,
        3 * 2.0**-25,
        6e-8,
        1.00390625,
        1.0119,
        0.1,
    ]
    odd = [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-15 + 2.0**-26]
    specials = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        0.5,
        -0.5,
        0.99,
        -0.99,
        1.5,
        2.5,
        300.7,
        1e30,
        -1e30,
    ]
    with np.errstate(all="ignore"):
        return np.array([*ends, *halves, *odd, *specials]).astype(dtype)


@pytest.mark.parametrize("source", PLAIN, ids=str)
def test_casts_follow_the_table(source):
    x = values_for_cast(source)
    for target in PLAIN:
        got, want = apply(CAST, target, x), convert(x, target)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(
            got.view(f"u{target.itemsize}"), _bits(want), err_msg=str(target)
        )


def _bits(x):
    """Bit patterns, with one NaN per dtype."""
    raw = x.view(f"u{x.dtype.itemsize}").copy()
    if x.dtype in dt.FLOATING:
        nan = apply(CAST, x.dtype, np.array([np.nan]))[0:1].view(raw.dtype)
        raw[np.isnan(x.astype(np.float64))] = nan[0]
    return raw


def test_sixteen_bit_floats_hold_float32_inside():
    for dtype in (dt.float16, dt.bfloat16):
        x = np.float32([1.0, 3.14159, -2.5, 1e-3, 60000.0, np.nan, np.inf]).astype(dtype)
        got = apply(op("mul", 2), dtype, x, x)
        want = (x.astype(np.float32) * x.astype(np.float32)).astype(dtype)
        np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))


def test_float16_without_the_instruction():
    from lumjax.config import config

    everything = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    sample = np.concatenate(
        [everything.astype(np.float32) * np.float32(s) for s in (1, 1.0002, 0.9997)]
    )
    name = host_target().arch
    with config.scope(cpu=f"{name}:-f16c"):
        assert "+f16c" not in host_target().features
        back = apply(CAST, np.float32, everything)
        got = apply(CAST, dt.float16, sample)
    np.testing.assert_array_equal(back, everything.astype(np.float32))
    with np.errstate(all="ignore"):
        want = sample.astype(np.float16)
    same = (got.view(np.uint16) == want.view(np.uint16)) | (np.isnan(got) & np.isnan(want))
    assert same.all()


def test_bitcast():
    traits = {"traits": frozenset({Trait.CAST})}
    x = SAMPLE[:100]
    np.testing.assert_array_equal(apply(op("bitcast", 1, **traits), np.int32, x), x.view(np.int32))
    y = x.view(np.uint32)
    got = apply(op("bitcast", 1, **traits), np.float32, y)
    np.testing.assert_array_equal(got.view(np.uint32), y)
    h = np.arange(0, 60000, 7, dtype=np.uint16)
    got = apply(
        op("bitcast", 1, **traits), dt.bfloat16, h[h.view(dt.bfloat16) == h.view(dt.bfloat16)]
    )
    np.testing.assert_array_equal(
        got.view(np.uint16), h[h.view(dt.bfloat16) == h.view(dt.bfloat16)]
    )


@pytest.mark.parametrize("dtype", dt.FLOATING, ids=str)
def test_comparisons_and_predicates_of_floats(dtype):
    values = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1.5]).astype(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    for name in cpu_math.COMPARISONS:
        function = INTEGER.get(name, np.less)
        np.testing.assert_array_equal(
            apply(op(name, 2), np.bool_, x, y), function(x, y), err_msg=name
        )
    np.testing.assert_array_equal(
        apply(op("is_finite", 1), np.bool_, values), np.isfinite(values.astype(np.float64))
    )


def test_select_and_clamp():
    which = np.array([True, False, True, False] * 5)
    x, y = np.arange(20, dtype=np.float32), -np.arange(20, dtype=np.float32)
    np.testing.assert_array_equal(
        apply(op("select", 3), np.float32, which, x, y), np.where(which, x, y)
    )
    low, high = np.full(20, 3, np.float32), np.full(20, 8, np.float32)
    np.testing.assert_array_equal(apply(op("clamp", 3), np.float32, low, x, high), np.clip(x, 3, 8))


@pytest.mark.parametrize("dtype", dt.COMPLEX, ids=str)
def test_complex(dtype):
    z = (RNG.normal(size=37) + 1j * RNG.normal(size=37)).astype(dtype)
    w = (RNG.normal(size=37) + 1j * RNG.normal(size=37)).astype(dtype)
    real = np.float32 if dtype == dt.complex64 else np.float64
    table = {"add": z + w, "sub": z - w, "mul": z * w, "eq": z == w, "ne": z != w}
    for name, want in table.items():
        got = apply(op(name, 2), np.bool_ if want.dtype == bool else dtype, z, w)
        np.testing.assert_allclose(got, want, rtol=1e-5 if real is np.float32 else 1e-14)
    np.testing.assert_array_equal(apply(op("neg", 1), dtype, z), -z)
    np.testing.assert_array_equal(apply(op("conj", 1), dtype, z), z.conj())
    np.testing.assert_array_equal(apply(op("real", 1), real, z), z.real)
    np.testing.assert_array_equal(apply(op("imag", 1), real, z), z.imag)
    np.testing.assert_allclose(apply(op("abs", 1), real, z), np.abs(z), rtol=1e-6)
    x, y = z.real.copy(), z.imag.copy()
    np.testing.assert_array_equal(apply(op("complex", 2), dtype, x, y), z)
    edge = np.array([complex(np.inf, np.nan), complex(np.nan, 1), 0, 3 + 4j]).astype(dtype)
    np.testing.assert_array_equal(apply(op("abs", 1), real, edge), np.abs(edge))
    np.testing.assert_array_equal(apply(CAST, real, z), z.real)
    np.testing.assert_array_equal(apply(CAST, dtype, x), x.astype(dtype))
    np.testing.assert_array_equal(apply(CAST, np.bool_, edge), edge != 0)
    for other in dt.COMPLEX:
        np.testing.assert_array_equal(apply(CAST, other, z), z.astype(other))


# ---- what there is


def test_supported():
    assert cpu_math.supported(op("add", 2), (dt.float32, dt.float32), dt.float32)
    assert cpu_math.supported(CAST, (dt.bfloat16,), dt.int8)
    assert cpu_math.supported(op("select", 3), (dt.bool_, dt.key, dt.key), dt.key)
    assert not cpu_math.supported(op("digamma", 1), (dt.float32,), dt.float32)
    assert not cpu_math.supported(op("exp", 1), (dt.complex64,), dt.complex64)
    assert not cpu_math.supported(op("pow", 2), (dt.int32, dt.int32), dt.int32)
    assert not cpu_math.supported(op("nextafter", 2), (dt.float16, dt.float16), dt.float16)
    assert not cpu_math.supported(CAST, (dt.key,), dt.int32)
    assert not cpu_math.supported(op("bitcast", 1), (dt.float32,), dt.int64)


def test_an_operation_may_emit_itself():
    def emit(build, x, y):
        big = build.apply("gt", x, build.const(2.0, x))
        return build.apply("select", big, build.apply("mul", x, y), build.apply("exp", y))

    mine = op("mine", 2, emit=emit)
    x, y = SAMPLE[50:90], np.abs(SAMPLE[60:100])
    with np.errstate(all="ignore"):
        want = np.where(x > 2, x * y, np.exp(y.astype(np.float64)).astype(np.float32))
    np.testing.assert_array_equal(apply(mine, np.float32, x, y), want)
    assert cpu_math.supported(mine, (dt.float32, dt.float32), dt.float32)
    assert not cpu_math.supported(
        op("bad", 1, emit=lambda b, x: b.apply("digamma", x)), (dt.float32,), dt.float32
    )
