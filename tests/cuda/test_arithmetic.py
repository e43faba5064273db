"""PTX arithmetic on the executor against NumPy, bit by bit where it is exact."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax.cuda.syntax import parse
from lumjax.cuda.translate import translate
from lumjax.errors import UnsupportedError
from tests.cuda.launching import computed

F32, F64, I32, U32, I64, U64 = np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64


def asm(text, constraint, kind, *given):
    """A device function of one instruction of PTX, on operands of the given (type, constraint)."""
    parameters = ", ".join(f"{t} x{k}" for k, (t, _) in enumerate(given))
    values = ", ".join(f'"{c}"(x{k})' for k, (_, c) in enumerate(given))
    return (
        f"({parameters}) {{ {kind} r; asm volatile({text!r} : {constraint!r}(r) : {values});"
        " return r; }"
    ).replace("'", '"')


def device(name, kind, body):
    return f"static __device__ {kind} {name}{body}\n"


def integers(size=512, seed=0):
    rng = np.random.default_rng(seed)
    edges = np.array([0, 1, 2, 31, 32, 33, -1, -2, 1 << 31, (1 << 31) - 1, 0x01020304], np.int64)
    a, b = (rng.integers(-(1 << 31), 1 << 31, size) for _ in range(2))
    a[: edges.size**2] = np.repeat(edges, edges.size)
    b[: edges.size**2] = np.tile(edges, edges.size)
    return a.astype(np.uint32).view(I32), b.astype(np.uint32).view(I32)


def test_integers_of_32_bits():
    a, b = integers()
    x, y = a.astype(I64), b.astype(I64)
    u, v = a.view(U32).astype(U64), b.view(U32).astype(U64)
    safe = np.where(y == 0, 7, y)
    amount = (v & np.uint64(63)).astype(I64)
    with np.errstate(all="ignore"):
        quotient = np.trunc(x / safe.astype(F64)).astype(I64)
    want = {
        "sum": ("a + b", I32, x + y),
        "product": ("a * b", I32, (u * v)),
        "high": ("__mulhi(a, b)", I32, (x * y) >> 32),
        "unsigned high": ("__umulhi(a, b)", U32, (u * v) >> np.uint64(32)),
        "wide": ("(long long)a * b", I64, x * y),
        "quotient": ("a / (b ? b : 7)", I32, quotient),
        "remainder": ("a % (b ? b : 7)", I32, x - quotient * safe),
        "unsigned quotient": ("(unsigned)a / (b ? b : 7)", U32, u // np.where(v == 0, 7, v)),
        "least": ("min(a, b)", I32, np.minimum(x, y)),
        "unsigned most": ("max((unsigned)a, (unsigned)b)", U32, np.maximum(u, v)),
        "size": ("abs(a)", I32, np.abs(x)),
        "ones": ("__popc(a)", I32, [int(k).bit_count() for k in u]),
        "zeros": ("__clz(a)", I32, [32 - int(k).bit_length() for k in u]),
        "first": ("__ffs(a)", I32, [(int(k) & -int(k)).bit_length() for k in u]),
        "reversed": ("__brev(a)", U32, [int(f"{int(k):032b}"[::-1], 2) for k in u]),
        "bytes": ("__byte_perm(a, b, 0x5140)", U32, bytes_of(u, v, (0, 4, 1, 5))),
        "rolled": ("__funnelshift_l(a, a, b)", U32, rolled(u, v)),
        "mixed": ("(a & b) ^ (~a | b) ^ 12345", I32, (x & y) ^ (~x | y) ^ 12345),
        "left": ("shl(a, b & 63)", I32, np.where(amount > 31, 0, u << (amount & 31).astype(U64))),
        "right": ("shr(a, b & 63)", I32, x >> np.minimum(amount, 31)),
        "right unsigned": ("shru(a, b & 63)", U32,
                           np.where(amount > 31, 0, u >> (amount & 31).astype(U64))),
        "chosen": ("a < b ? a : b + 1", I32, np.where(x < y, x, y + 1)),
        "below": ("(unsigned)a < (unsigned)b", I32, u < v),
        "field": ("bfe(a, b & 31, 9)", I32, field(x, v & np.uint64(31), 9)),
        "bytes multiplied": ("__dp4a(a, b, 7)", I32, 7 + dots(a, b, np.int8, np.int8, 0)),
        "halves by bytes": ("__dp2a_lo(a, b, 7)", I32, 7 + dots(a, b, np.int16, np.int8, 0)),
        "by upper bytes": ("__dp2a_hi((unsigned)a, (unsigned)b, 7u)", U32,
                           7 + dots(a, b, np.uint16, np.uint8, 2)),
        "set": ("bfi(a, b, 5, 11)", I32, (x & 2047) << 5 | (y & ~np.int64(2047 << 5))),
    }  # fmt: skip
    pair = (("int", "r"), ("int", "r"))
    before = "".join([
        device("shl", "int", asm("shl.b32 %0, %1, %2;", "=r", "int", *pair)),
        device("shr", "int", asm("shr.s32 %0, %1, %2;", "=r", "int", *pair)),
        device("shru", "int", asm("shr.u32 %0, %1, %2;", "=r", "int", *pair)),
        device("bfe", "int", asm("bfe.s32 %0, %1, %2, %3;", "=r", "int", *pair, ("int", "r"))),
        device("bfi", "int", asm("bfi.b32 %0, %1, %2, %3, %4;", "=r", "int", *pair,
                                 ("int", "r"), ("int", "r"))),
    ])  # fmt: skip
    got = computed([(n, e, d) for n, (e, d, _) in want.items()], a, b, before=before)
    for name, (_, dtype, value) in want.items():
        expected = (np.asarray(value).astype(np.uint64) & np.uint64((1 << 64) - 1)).astype(dtype)
        np.testing.assert_array_equal(got[name], expected, name)


def bytes_of(u, v, chosen):
    parts = [(u >> np.uint64(8 * k)) & np.uint64(255) for k in range(4)]
    parts += [(v >> np.uint64(8 * k)) & np.uint64(255) for k in range(4)]
    return sum(parts[c] << np.uint64(8 * k) for k, c in enumerate(chosen))


def rolled(u, v):
    by = v & np.uint64(31)
    return (u << by | u >> (np.uint64(32) - by) * (by > 0)) & np.uint64(0xFFFFFFFF)


def dots(a, b, left, right, first):
    x = a.view(left).reshape(a.size, -1).astype(I64)
    y = b.view(right).reshape(b.size, -1).astype(I64)[:, first:]
    return (x * y[:, : x.shape[1]]).sum(1)


def field(x, at, length):
    bits = (x >> at.astype(I64)) & ((1 << length) - 1)
    return np.where(bits >> (length - 1) & 1, bits - (1 << length), bits)


def test_integers_of_64_bits():
    a, b = (np.repeat(v.astype(I64), 1) * 0x100000001 + 3 for v in integers())
    want = {
        "product": ("a * b", I64, a * b),
        "high": ("__mul64hi(a, b)", I64, [
            int(p) * int(q) >> 64 for p, q in zip(a, b, strict=True)]),
        "unsigned high": ("__umul64hi(a, b)", U64, [
            int(p) * int(q) >> 64 for p, q in zip(a.view(U64), b.view(U64), strict=True)]),
        "carried": ("carried(a, b)", U64, [
            int(p) + int(q) >> 64 for p, q in zip(a.view(U64), b.view(U64), strict=True)]),
        "quotient": ("a / (b | 1)", I64, [
            int(abs(int(p)) // abs(int(q) | 1)) * (1 if (p < 0) == ((q | 1) < 0) else -1)
            for p, q in zip(a, b, strict=True)]),
        "ones": ("__popcll(a)", I32, [int(k).bit_count() for k in a.view(U64)]),
        "narrow": ("(short)a", I32, a.astype(np.int16)),
        "wide": ("(long long)(unsigned char)a", I64, a.astype(np.uint8)),
    }  # fmt: skip
    pair = (("unsigned long long", "l"), ("unsigned long long", "l"))
    text = "{ .reg .u64 t; add.cc.u64 t, %1, %2; addc.u64 %0, 0, 0; }"
    before = device("carried", "unsigned long long", asm(text, "=l", "unsigned long long", *pair))
    got = computed([(n, e, d) for n, (e, d, _) in want.items()], a, b, before=before)
    for name, (_, dtype, value) in want.items():
        expected = value if isinstance(value, np.ndarray) else np.array(value, dtype)
        np.testing.assert_array_equal(got[name], expected.astype(dtype), name)


def floats(size=512, seed=1):
    rng = np.random.default_rng(seed)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e-40, 3e38, 0.1, 2.0**31])
    a, b = (rng.standard_normal(size) * 10.0 ** rng.integers(-8, 9, size) for _ in range(2))
    a[: edges.size**2] = np.repeat(edges, edges.size)
    b[: edges.size**2] = np.tile(edges, edges.size)
    return a, b


@pytest.mark.parametrize("dtype", [F32, F64])
def test_floats(dtype):
    a, b = (v.astype(dtype) for v in floats())
    f = "f" if dtype == F32 else ""
    with np.errstate(all="ignore"):
        clipped = np.where(np.isnan(a), 0, np.clip(a.astype(F64), -(2.0**31), 2.0**31 - 1))
        want = {
            "sum": ("a + b", dtype, a + b),
            "product": ("a * b", dtype, a * b),
            "quotient": ("a / b", dtype, a / b),
            "root": (f"sqrt{f}(a)", dtype, np.sqrt(a)),
            "size": (f"fabs{f}(a)", dtype, np.abs(a)),
            "negative": ("-a", dtype, -a),
            "least": (f"fmin{f}(a, b)", dtype, np.fmin(a, b)),
            "most": (f"fmax{f}(a, b)", dtype, np.fmax(a, b)),
            "signed": (f"copysign{f}(a, b)", dtype, np.copysign(a, b)),
            "even": (f"rint{f}(a)", dtype, np.rint(a)),
            "floor": (f"floor{f}(a)", dtype, np.floor(a)),
            "ceil": (f"ceil{f}(a)", dtype, np.ceil(a)),
            "less": ("a < b", I32, a < b),
            "unlike": ("a != b", I32, a != b),
            "not above": ("!(a > b)", I32, ~(a > b)),
            "whole": ("(int)a", I32, np.trunc(clipped.astype(F64)).astype(I64)),
            "positive": ("(unsigned)(a < 0 ? 0 : a > 4e9 ? 4e9 : a)", U32, np.trunc(
                np.where(np.isnan(a), 0, np.clip(a.astype(F64), 0, 4e9)))),
            "from whole": (f"({'float' if f else 'double'})(int)a", dtype, np.trunc(
                clipped.astype(F64)).astype(I64).astype(I32)),
        }  # fmt: skip
    got = computed([(n, e, d) for n, (e, d, _) in want.items()], a, b)
    for name, (_, kind, value) in want.items():
        np.testing.assert_array_equal(got[name], np.asarray(value).astype(kind), name)


def test_directed_rounding_brackets_the_exact_value():
    a, b = (v.astype(F32) for v in floats(seed=2))
    rows = [(m, f"__fmaf_{m}(a, b, 0.1f)", F32) for m in ("rd", "rn", "ru", "rz")]
    got = computed(rows, a, b)
    with np.errstate(all="ignore"):
        exact = a.astype(np.longdouble) * b.astype(np.longdouble) + np.longdouble(F32(0.1))
    fine = np.isfinite(exact) & (np.abs(exact) < 1e38)
    low, near, high, zero = (got[m][fine] for m, _, _ in rows)
    assert np.all(low <= exact[fine])
    assert np.all(exact[fine] <= high)
    assert np.all((near == low) | (near == high))
    assert np.all(np.nextafter(low, F32(np.inf)) >= high)
    np.testing.assert_array_equal(zero, np.where(exact[fine] > 0, low, high))


def test_halves_are_rounded_once():
    import ml_dtypes

    a, _ = floats(seed=3)
    a = np.concatenate([a, np.float64([1 + 2.0**-11 + 2.0**-40, 65519.9999999, 2.0**-25])])
    a[5] = 1e-7
    before = "".join([
        device("half", "unsigned short", asm("cvt.rn.f16.f32 %0, %1;", "=h", "unsigned short",
                                             ("float", "f"))),
        device("brain", "unsigned short", asm("cvt.rn.bf16.f32 %0, %1;", "=h", "unsigned short",
                                              ("float", "f"))),
        device("wide", "float", asm("cvt.f32.f16 %0, %1;", "=f", "float",
                                    ("unsigned short", "h"))),
        device("halved", "unsigned short", asm("cvt.rn.f16.f64 %0, %1;", "=h", "unsigned short",
                                               ("double", "d"))),
    ])  # fmt: skip
    rows = [("half", "half((float)a)", np.uint16), ("brain", "brain((float)a)", np.uint16),
            ("wide", "wide(half((float)a))", F32), ("halved", "halved(a)", np.uint16)]  # fmt: skip
    got = computed(rows, a, before=before)
    with np.errstate(all="ignore"):
        single = a.astype(F32)
        np.testing.assert_array_equal(got["half"].view(np.float16), single.astype(np.float16))
        np.testing.assert_array_equal(got["halved"].view(np.float16), a.astype(np.float16))
        np.testing.assert_array_equal(got["wide"], single.astype(np.float16).astype(F32))
        brain = got["brain"].view(ml_dtypes.bfloat16).astype(F32)
        np.testing.assert_array_equal(brain, single.astype(ml_dtypes.bfloat16).astype(F32))


FUNCTIONS = {
    "exp": "expf", "log": "logf", "sin": "sinf", "cos": "cosf", "tanh": "tanhf", "log1p": "log1pf",
    "expm1": "expm1f", "arcsinh": "asinhf", "arctan": "atanf", "cbrt": "cbrtf", "exp2": "exp2f",
}  # fmt: skip


def test_functions_of_the_cuda_library():
    """A sum of instructions that each are right: within 2 units in the last place."""
    a = np.concatenate([floats(seed=4)[0], np.linspace(-20, 20, 500)]).astype(F32)
    got = computed([(n, f"{f}(a)", F32) for n, f in FUNCTIONS.items()], a)
    for name in FUNCTIONS:
        with np.errstate(all="ignore"):
            want = getattr(np, name)(a.astype(np.longdouble))
            unit = np.spacing(np.maximum(np.abs(want.astype(F32)), F32(2.0**-126)))
            far = np.abs(got[name] - want) / unit
            exact = np.isnan(want) | (got[name] == want.astype(F32))
        assert np.array_equal(np.isnan(got[name]), np.isnan(want)), name
        assert np.where(exact, 0, far).max() <= 2, name


@pytest.mark.parametrize(
    "text",
    ["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%f1}, {%f1}, {%f1};",
     "add.sat.s32 %r1, %r1, %r1;", "mov.u32 %r1, %clock;", "bar.red.popc.u32 %r1, 1, 64, %p1;",
     "cp.async.bulk.commit_group;",
     "ld.global.L7::never.u32 %r1, [%rd1];", "mov.b32 %r1, nowhere;"],
)  # fmt: skip
def test_what_is_not_known_raises_by_name(text):
    module = parse(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n"
        f".reg .b32 %r<2>;\n.reg .f32 %f<2>;\n.reg .b64 %rd<2>;\n{text}\nret;\n}}\n"
    )
    name = text.split()[0].rstrip(";") if "nowhere" not in text else "nowhere"
    with pytest.raises(UnsupportedError) as caught:
        translate(module, {}, {}, {})
    assert name in str(caught.value) or "%clock" in str(caught.value)
