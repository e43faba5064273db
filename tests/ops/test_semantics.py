"""What numbers mean: exhaustively on 8-bit integers, on edge values of every dtype, against JAX."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lumjax
from lumjax import dtype as dt
from lumjax import ops
from lumjax.config import config
from lumjax.trace.array import Array

pytestmark = pytest.mark.sampled(4)

FLOATS = {d.name: d for d in dt.FLOATING}
INTEGERS = {d.name: d for d in dt.INTEGER}


@pytest.fixture(autouse=True)
def _wide_types():
    with config.scope(enable_x64=True):
        yield


def run(op: Any, *args: np.ndarray) -> np.ndarray:
    return np.asarray(op(*[Array(a) for a in args]).data)


def all_pairs(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of an 8-bit type, else every pair of its edge values."""
    info = np.iinfo(dtype)
    if dtype.itemsize == 1:
        values = list(range(info.min, info.max + 1))
    else:
        near = (0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, -1, -2, -3, -7)
        values = sorted(
            {v for b in (0, info.min, info.max, info.max // 2) for v in (b + n for n in near)
             if info.min <= v <= info.max}
        )  # fmt: skip
    x, y = zip(*itertools.product(values, values), strict=True)
    return np.array(x, dtype), np.array(y, dtype)


def wrap(value: int, dtype: np.dtype) -> int:
    """An exact integer modulo 2**bits."""
    info = np.iinfo(dtype)
    return (value - info.min) % 2**info.bits + info.min


def quotient(x: int, y: int, info: Any) -> int:
    if y == 0:
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def left(x: int, y: int, bits: int) -> int:
    return x << y if 0 <= y < bits else 0


def logical(x: int, y: int, bits: int) -> int:
    return (x % 2**bits) >> y if 0 <= y < bits else 0


def arithmetic(x: int, y: int, bits: int) -> int:
    signed = (x + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    return signed >> (y if 0 <= y < bits else bits - 1)


EXACT = {
    "add": lambda x, y, i: x + y,
    "sub": lambda x, y, i: x - y,
    "mul": lambda x, y, i: x * y,
    "idiv": quotient,
    "rem": lambda x, y, i: x - y * quotient(x, y, i) if y else x,
    "max": lambda x, y, i: max(x, y),
    "min": lambda x, y, i: min(x, y),
    "and": lambda x, y, i: x & y,
    "or": lambda x, y, i: x | y,
    "xor": lambda x, y, i: x ^ y,
    "shift_left": lambda x, y, i: left(x, y, i.bits),
    "shift_right_logical": lambda x, y, i: logical(x, y, i.bits),
    "shift_right_arithmetic": lambda x, y, i: arithmetic(x, y, i.bits),
    "lt": lambda x, y, i: x < y,
    "le": lambda x, y, i: x <= y,
    "gt": lambda x, y, i: x > y,
    "ge": lambda x, y, i: x >= y,
    "eq": lambda x, y, i: x == y,
    "ne": lambda x, y, i: x != y,
}


@pytest.mark.parametrize("dtype", INTEGERS.values(), ids=INTEGERS)
@pytest.mark.parametrize("name", EXACT)
def test_integers_are_exact_modulo_the_width(name: str, dtype: np.dtype):
    x, y = all_pairs(dtype)
    (found,) = ops.PRIMITIVES[name].eval(x, y)
    info = np.iinfo(dtype)
    want = [EXACT[name](int(a), int(b), info) for a, b in zip(x, y, strict=True)]
    if found.dtype != bool:
        assert found.dtype == dtype
        want = [wrap(w, dtype) for w in want]
    np.testing.assert_array_equal(found, np.array(want, found.dtype))


UNARY = {
    "neg": lambda x, i: -x,
    "abs": lambda x, i: abs(x),
    "sign": lambda x, i: (x > 0) - (x < 0),
    "not": lambda x, i: ~x,
    "square": lambda x, i: x * x,
    "population_count": lambda x, i: bin(x % 2**i.bits).count("1"),
    "clz": lambda x, i: i.bits - (x % 2**i.bits).bit_length(),
}


@pytest.mark.parametrize("dtype", INTEGERS.values(), ids=INTEGERS)
@pytest.mark.parametrize("name", UNARY)
def test_unary_integers(name: str, dtype: np.dtype):
    x = np.unique(all_pairs(dtype)[0])
    (found,) = ops.PRIMITIVES[name].eval(x)
    want = [wrap(int(UNARY[name](int(a), np.iinfo(dtype))), dtype) for a in x]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.array(want, dtype))


def test_division_in_numbers():
    x = np.array([7, -7, -128, 5, -5, 0], np.int8)
    y = np.array([2, 2, -1, 0, 0, 0], np.int8)
    assert run(ops.div, x, y).tolist() == [3, -3, -128, -1, -1, -1]
    assert run(ops.rem, x, y).tolist() == [1, -1, 0, 5, -5, 0]
    assert run(ops.div, np.array([9], np.uint8), np.array([0], np.uint8)).tolist() == [255]


@pytest.mark.parametrize("dtype", [dt.int8, dt.uint8, dt.int32, dt.int64], ids=str)
def test_floor_division_and_remainder(dtype: np.dtype):
    x, y = all_pairs(dtype)
    (q, r) = ops.divmod(Array(x), Array(y))
    for a, b, floor, rest in zip(
        x.tolist(), y.tolist(), q.data.tolist(), r.data.tolist(), strict=True
    ):
        want = (a // b, a % b) if b else (-1, 0)
        assert (floor, rest) == (wrap(want[0], dtype), want[1])


@pytest.mark.parametrize("dtype", [dt.int8, dt.uint8, dt.int32], ids=str)
def test_integer_powers(dtype: np.dtype):
    x, y = all_pairs(dtype)
    few = (y.astype(np.int64) < 70) & (y.astype(np.int64) > -70)
    x, y = x[few], y[few]
    found = run(ops.ipow, x, y)
    for a, b, got in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
        if b >= 0:
            assert got == wrap(a**b, dtype)
        elif a == 0:
            assert got == wrap(-1, dtype)  # 1 / 0
        else:
            assert got == (a if b % 2 else 1 if abs(a) == 1 else 0) * (abs(a) == 1)


# ---- conversions

EDGES = [
    0.0, -0.0, 0.4, 0.5, -0.5, 0.9, -0.9, 1.0, -1.0, 1.5, -1.5, 100.7, -100.7, 127.0, 127.9, 128.0,
    -128.0, -128.9, -129.0, 255.0, 255.9, 256.0, 32767.5, 32768.0, -32768.9, -32769.0, 65535.9,
    65536.0, 2.0**31 - 1, 2.0**31, -(2.0**31), -(2.0**31) - 1, 2.0**32, 2.0**53, 2.0**63,
    -(2.0**63), 2.0**63 - 1024, 2.0**64, 2.0**64 - 2048, 1e30, -1e30, 3e38, math.inf, -math.inf,
    math.nan, 5e-324, 1e-45, 1e-40, 1e-8,
]  # fmt: skip


def edges(dtype: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array(EDGES, np.float64).astype(dtype)


@pytest.mark.parametrize("source", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("target", INTEGERS.values(), ids=INTEGERS)
def test_floats_saturate(source: np.dtype, target: np.dtype):
    x = edges(source)
    info = np.iinfo(target)
    want = []
    for v in x.astype(np.float64).tolist():
        whole = (
            0
            if math.isnan(v)
            else info.max
            if v == math.inf
            else info.min
            if v == -math.inf
            else int(v)
        )
        want.append(min(max(whole, info.min), info.max))
    found = np.asarray(ops.cast(Array(x), target).data)
    assert found.dtype == target
    assert found.tolist() == want


@pytest.mark.parametrize("source", INTEGERS.values(), ids=INTEGERS)
@pytest.mark.parametrize("target", INTEGERS.values(), ids=INTEGERS)
def test_integers_wrap(source: np.dtype, target: np.dtype):
    x = np.unique(all_pairs(source)[0])
    found = np.asarray(ops.cast(Array(x), target).data)
    assert found.tolist() == [wrap(int(v), target) for v in x]


@pytest.mark.parametrize("source", [*FLOATS.values(), *INTEGERS.values(), dt.complex64], ids=str)
def test_anything_but_zero_is_true(source: np.dtype):
    x = edges(source) if dt.is_inexact(source) else np.unique(all_pairs(source)[0])
    found = np.asarray(ops.cast(Array(x), dt.bool_).data)
    assert found.tolist() == [bool(v != 0) for v in x.tolist()]


@pytest.mark.parametrize("target", FLOATS.values(), ids=FLOATS)
def test_floats_round_to_nearest_even_and_keep_denormals(target: np.dtype):
    x = edges(dt.float64)
    found = np.asarray(ops.cast(Array(x), target).data)
    with np.errstate(all="ignore"):
        want = x.astype(target)
    np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64))
    tiny = np.array([ml_dtypes.finfo(target).smallest_subnormal], target)
    assert run(ops.mul, tiny, np.ones(1, target))[0] == tiny[0] != 0


def test_complex_conversions():
    z = np.array([1 + 2j, -3.7 + 1j, complex(math.nan, 5)], np.complex64)
    assert np.asarray(ops.cast(Array(z), dt.int32).data).tolist() == [1, -3, 0]
    assert np.asarray(ops.cast(Array(z), dt.float32).data)[0] == 1
    assert np.asarray(ops.cast(Array(np.array([2], np.int8)), dt.complex64).data).tolist() == [
        2 + 0j
    ]


# ---- floats

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, math.inf, -math.inf, math.nan, 1e-3, 7.25]


def pairs(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    x, y = zip(*itertools.product(SPECIAL, SPECIAL), strict=True)
    return np.array(x, dtype), np.array(y, dtype)


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_extrema_propagate_nan(dtype: np.dtype):
    x, y = pairs(dtype)
    for name, pick in (("max", max), ("min", min)):
        (found,) = ops.PRIMITIVES[name].eval(x, y)
        for a, b, got in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
            if math.isnan(a) or math.isnan(b):
                assert math.isnan(got)
            else:
                assert got == pick(a, b)


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_comparisons_with_nan(dtype: np.dtype):
    x, y = (v.astype(np.float64) for v in pairs(dtype))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        (found,) = ops.PRIMITIVES[name].eval(*pairs(dtype))
        want = [EXACT[name](a, b, None) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        assert found.tolist() == want


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rem", "atan2", "pow"])
def test_binary_floats_follow_ieee(name: str, dtype: np.dtype):
    """Sixteen-bit floats compute in more precision and round once."""
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
                "rem": np.fmod, "atan2": np.arctan2, "pow": np.power}[name]  # fmt: skip
    x, y = pairs(dtype)
    (found,) = ops.PRIMITIVES[name].eval(x, y)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    assert found.dtype == dtype
    found, want = found.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(np.signbit(found)[want == 0], np.signbit(want)[want == 0])


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_sign_and_rounding_keep_zeros_and_nan(dtype: np.dtype):
    x = np.array([-0.0, 0.0, math.nan, -2.5, 2.5, 0.5, -0.5, 1.5, math.inf, -math.inf], dtype)
    sign = run(ops.sign, x)
    assert np.signbit(sign[0])
    assert not np.signbit(sign[1])
    assert math.isnan(sign[2])
    assert sign[3:].tolist() == [-1, 1, 1, -1, 1, 1, -1]
    for op, want in (
        (ops.round, [-0.0, 0.0, math.nan, -2, 2, 0, -0.0, 2, math.inf, -math.inf]),
        (ops.floor, [-0.0, 0.0, math.nan, -3, 2, 0, -1, 1, math.inf, -math.inf]),
        (ops.ceil, [-0.0, 0.0, math.nan, -2, 3, 1, -0.0, 2, math.inf, -math.inf]),
        (ops.trunc, [-0.0, 0.0, math.nan, -2, 2, 0, -0.0, 1, math.inf, -math.inf]),
    ):
        np.testing.assert_array_equal(run(op, x).astype(np.float64), want)


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_no_warning_reaches_the_user(dtype: np.dtype):
    x = np.array([math.inf, -1.0, 0.0, 3e38], np.float64)
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    for name, prim in ops.PRIMITIVES.items():
        if any(s.avals and s.avals[0].dtype == dt.float32 for s in prim.samples):
            form = prim.samples[0]
            if len(form.avals) == 1 and not form.params:
                prim.eval(np.resize(x, form.avals[0].shape))
    with np.errstate(all="raise"):  # and the user's own setting does not reach us
        run(ops.sub, x, x)
    assert name


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_select_ignores_what_it_does_not_choose(dtype: np.dtype):
    x = np.array([math.nan, 1.0], dtype)
    y = np.array([2.0, math.nan], dtype)
    assert run(ops.select, np.array([False, True]), x, y).tolist() == [2.0, 1.0]


# ---- compiled code means the same

FLOAT_PAIRS = ("add", "sub", "mul", "div", "rem", "max", "min", "nextafter",
               "lt", "le", "gt", "ge", "eq", "ne")  # fmt: skip
FLOAT_UNARY = ("neg", "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt", "recip", "square",
               "is_finite")  # fmt: skip
TARGETS = (*dt.INTEGER, *dt.FLOATING, dt.bool_)


def check_compiled(names: Any, args: tuple[np.ndarray, ...], targets: Any = ()) -> None:
    """Each primitive, and a cast to each target, in one compiled program against their eval."""
    prims = [ops.PRIMITIVES[n] for n in names]

    def program(*xs: Any) -> Any:
        outs = [p.bind(*xs)[0] for p in prims]
        return outs + [ops.cast_p.bind(xs[0], dtype=t, weak=False)[0] for t in targets]

    found = lumjax.jit(program)(*map(Array, args))
    wants = [p.eval(*args)[0] for p in prims]
    wants += [ops.cast_p.eval(args[0], dtype=t, weak=False)[0] for t in targets]
    for name, out, want in zip([*names, *targets], found, wants, strict=True):
        got = np.asarray(out)
        assert got.dtype == want.dtype, name
        if dt.is_floating(want.dtype):
            got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(got, want, err_msg=str(name))


@pytest.mark.parametrize("dtype", INTEGERS.values(), ids=INTEGERS)
def test_compiled_integers(dtype: np.dtype, tmp_path: Any):
    x, y = all_pairs(dtype)
    with config.scope(cache_dir=str(tmp_path)):
        check_compiled(EXACT, (x, y))
        check_compiled(UNARY, (np.unique(x),), TARGETS)


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_compiled_floats(dtype: np.dtype, tmp_path: Any):
    with config.scope(cache_dir=str(tmp_path)):
        check_compiled(FLOAT_PAIRS, pairs(dtype))
        check_compiled(FLOAT_UNARY, (edges(dtype),), TARGETS)


# ---- JAX as a second opinion


def jax_pairs() -> list[tuple[str, str, np.dtype]]:
    names = [
        ("idiv", "div"), ("rem", "rem"), ("shift_left", "shift_left"), ("max", "max"),
        ("shift_right_logical", "shift_right_logical"),
        ("shift_right_arithmetic", "shift_right_arithmetic"), ("mul", "mul"),
    ]  # fmt: skip
    return [(a, b, d) for a, b in names for d in (dt.int8, dt.uint8, dt.int32)]


@pytest.mark.parametrize(("name", "jax_name", "dtype"), jax_pairs())
def test_integers_agree_with_jax(name: str, jax_name: str, dtype: np.dtype):
    jax = pytest.importorskip("jax")
    x, y = all_pairs(dtype)
    (found,) = ops.PRIMITIVES[name].eval(x, y)
    np.testing.assert_array_equal(found, np.asarray(getattr(jax.lax, jax_name)(x, y)))


@pytest.mark.parametrize("target", [dt.int8, dt.uint8, dt.int32, dt.uint32], ids=str)
def test_casts_agree_with_jax(target: np.dtype):
    jax = pytest.importorskip("jax")
    x = edges(dt.float32)
    want = np.asarray(jax.lax.convert_element_type(x, target))
    np.testing.assert_array_equal(np.asarray(ops.cast(Array(x), target).data), want)


def test_clamp_agrees_with_jax():
    jax = pytest.importorskip("jax")
    low, x, high = (
        np.array(v, np.float32) for v in ([0, 0, 2, math.nan], [-1, 5, 3, 1], [1, 1, 1, 3])
    )
    np.testing.assert_array_equal(
        run(ops.clamp, low, x, high), np.asarray(jax.lax.clamp(low, x, high))
    )


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.float16], ids=str)
def test_erf_inv_agrees_with_jax(dtype: np.dtype):
    jax = pytest.importorskip("jax")
    x = np.concatenate([np.linspace(-1, 1, 4001), 1 - np.logspace(-7, -1, 100)]).astype(dtype)
    found = run(ops.erf_inv, x).astype(np.float64)
    want = np.asarray(jax.lax.erf_inv(x)).astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(found[~finite], want[~finite])
    expanded = np.asarray(ops.erf_inv_p.rule("expand")(Array(x))[0].data).astype(np.float64)
    np.testing.assert_allclose(expanded, found, rtol=1e-6 if dtype == dt.float32 else 1e-2)
    ulp = np.spacing(np.abs(want[finite]).astype(dtype)).astype(np.float64)
    assert (np.abs(found[finite] - want[finite]) <= 8 * ulp).all()


def test_keys_compare_and_select():
    words = np.array([[1, 2], [3, 4]], np.uint32).view(dt.key).reshape(2)
    other = np.array([[1, 2], [3, 5]], np.uint32).view(dt.key).reshape(2)
    assert run(ops.eq, words, other).tolist() == [True, False]
    assert run(ops.ne, words, other).tolist() == [False, True]
    chosen = run(ops.select, np.array([False, True]), words, other)
    assert chosen["fry"].tolist() == [[1, 2], [3, 4]]


def test_bitcast_between_widths():
    x = np.array([1.0, -0.0, math.nan], np.float32)
    assert run(lambda v: ops.bitcast(v, dt.uint32), x)[:2].tolist() == [0x3F800000, 0x80000000]
    halves = run(lambda v: ops.bitcast(v, dt.uint16), x)
    assert halves.shape == (3, 2)
    again = run(lambda v: ops.bitcast(v, dt.float32), halves)
    np.testing.assert_array_equal(again, x)
