"""The scalar operations as CUDA C expressions: which there are, and for which dtypes.

16-bit floats are computed as float32. Functions are the CUDA library's, whose errors are at most
4 units in the last place (its logarithm of the gamma function in float64 only).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import UnsupportedError
from lumjax.kernel.rounded import MAY
from lumjax.record import record
from lumjax.trace.form import ReduceOp, ScalarOp

SIXTEEN = (dt.float16, dt.bfloat16)


@record
class Value:
    """A value of a dtype: a C expression without side effects, two for a complex number.

    `exact`: a 16-bit float is representable in its dtype already.
    """

    dtype: dt.DType
    parts: tuple[str, ...]
    exact: bool = False

    @property
    def text(self) -> str:
        """The expression of a value that is not complex."""
        return self.parts[0]


Rule: TypeAlias = Callable[[Sequence[Value], dt.DType], Value]


def unsupported(name: str, dtypes: Sequence[dt.DType]) -> UnsupportedError:
    """The error for an operation that the backend leaves to the primitive's `eval`."""
    return UnsupportedError(
        operation=f"CUDA code for '{name}'",
        required="an operation and dtype that the CUDA backend knows",
        got=", ".join(map(dt.short_name, dtypes)),
        fix="let the primitive's eval compute it",
    )


# ---- types


def storage_type(dtype: dt.DType) -> str:
    """The C type of an element in memory (of one part of a complex)."""
    if dtype == dt.bool_:
        return "u8"
    if dtype in SIXTEEN:
        return "u16"
    if dtype == dt.key:
        return "u64"
    return value_type(dtype)


def value_type(dtype: dt.DType) -> str:
    """The C type of a value (of one part of a complex)."""
    if dtype == dt.bool_:
        return "bool"
    if dtype in SIXTEEN or dtype in (dt.float32, dt.complex64):
        return "float"
    if dtype in (dt.float64, dt.complex128):
        return "double"
    if dtype == dt.key:
        return "u64"
    return f"{'u' if dtype in dt.UNSIGNED else 'i'}{8 * dtype.itemsize}"


_SIZES = {"float": 4, "double": 8, "bool": 1}


def size_of(kind: str) -> int:
    """The bytes of a C type."""
    return _SIZES.get(kind) or int(kind.lstrip("iu")) // 8


def parts(dtype: dt.DType) -> int:
    """How many C values a value is."""
    return 2 if dtype in dt.COMPLEX else 1


def _suffix(dtype: dt.DType) -> str:
    return "f" if value_type(dtype) == "float" else ""


def number(dtype: dt.DType, value: complex) -> str:
    """A real constant of a value's type."""
    kind = value_type(dtype)
    if kind in ("float", "double"):
        real = value.real if isinstance(value, complex) else float(value)
        exact = np.float32(real) if kind == "float" else np.float64(real)
        if not np.isfinite(exact):
            bits = exact.view(np.uint32 if kind == "float" else np.uint64)
            name = "__uint_as_float" if kind == "float" else "__longlong_as_double"
            return f"{name}({bits:#x}{'u' if kind == 'float' else 'll'})"
        return f"{exact!s}{_suffix(dtype)}"
    if kind == "bool":
        return "true" if value else "false"
    whole = int(value.real)
    if whole == -(1 << 63):
        return "(-0x7fffffffffffffffll - 1)"
    return f"({kind}){whole}{'ull' if whole >> 63 > 0 else 'll'}"


def constant(dtype: dt.DType, value: complex) -> Value:
    """A constant of a dtype."""
    if dtype in dt.COMPLEX:
        both = complex(value)
        return Value(dtype, (number(dtype, both.real), number(dtype, both.imag)))
    return Value(dtype, (number(dtype, value),), exact=True)


def from_bits(dtype: dt.DType, data: bytes) -> Value:
    """The constant with the given little-endian bytes."""
    if dtype == dt.key:
        return Value(dtype, (f"{int.from_bytes(data, 'little')}ull",))
    item = np.frombuffer(data, dtype)[0]
    if dtype in dt.COMPLEX:
        return constant(dtype, complex(item))
    return constant(dtype, float(item) if dtype in dt.FLOATING else int(item))


# ---- memory


def loaded(dtype: dt.DType, cells: Sequence[str]) -> Value:
    """The value of what was read from memory."""
    if dtype == dt.bool_:
        return Value(dtype, (f"({cells[0]} != 0)",))
    if dtype in SIXTEEN:
        name = "lj_half" if dtype == dt.float16 else "lj_brain"
        return Value(dtype, (f"{name}({cells[0]})",), exact=True)
    return Value(dtype, tuple(cells))


def stored(value: Value) -> tuple[str, ...]:
    """What is written to memory."""
    if value.dtype == dt.bool_:
        return (f"(u8){value.text}",)
    if value.dtype in SIXTEEN:
        return (
            f"{'lj_half_bits' if value.dtype == dt.float16 else 'lj_brain_bits'}({value.text})",
        )
    return value.parts


def rounded(value: Value) -> Value:
    """A 16-bit float made representable in its dtype; anything else as it is."""
    if value.dtype not in SIXTEEN or value.exact:
        return value
    return loaded(value.dtype, stored(value))


# ---- casts


def cast(value: Value, to: dt.DType) -> Value:
    """The value in another dtype: saturating, NaN to 0, complex to its real part."""
    value = rounded(value)
    if value.dtype == to:
        return value
    if to == dt.bool_:
        tests = [f"({p} != 0)" for p in value.parts]
        return Value(to, (" || ".join(tests) if len(tests) == 1 else f"({' || '.join(tests)})",))
    if to in dt.COMPLEX:
        base = dt.float32 if to == dt.complex64 else dt.float64
        if value.dtype in dt.COMPLEX:
            kind = value_type(to)
            return Value(to, tuple(f"({kind}){p}" for p in value.parts))
        return Value(to, (cast(value, base).text, number(base, 0.0)))
    if value.dtype in dt.COMPLEX:
        inner = dt.float32 if value.dtype == dt.complex64 else dt.float64
        return cast(Value(inner, value.parts[:1]), to)
    if to == dt.float16 and value.dtype == dt.float64:
        return loaded(to, (f"lj_half_bits({value.text})",))
    if to in dt.FLOATING:
        return rounded(Value(to, (f"({value_type(to)})({value.text})",)))
    if value.dtype in dt.FLOATING:
        return Value(to, (f"lj_whole<{value_type(to)}>({value.text})",))
    return Value(to, (f"({value_type(to)})({value.text})",))


# ---- rules by kind of dtype: {0}, {1}, ... are the operands, {t} their C type, {f} its suffix,
# {u} and {s} the unsigned and the signed integer of its width, {one} the number one

_CALLS = ("exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
          "atanh erf erfc cbrt sqrt floor ceil trunc")  # fmt: skip
FLOATS = {
    **{name: f"{name}{{f}}({{0}})" for name in _CALLS.split()},
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "({0} / {1})",
    "neg": "(-{0})", "abs": "fabs{f}({0})", "square": "({0} * {0})", "round": "rint{f}({0})",
    "recip": "({one} / {0})", "rsqrt": "({one} / sqrt{f}({0}))", "sign": "lj_sign({0})",
    "max": "lj_max({0}, {1})", "min": "lj_min({0}, {1})", "rem": "fmod{f}({0}, {1})",
    "clamp": "lj_min(lj_max({0}, {1}), {2})", "fma": "fma{f}({0}, {1}, {2})",
    "pow": "pow{f}({0}, {1})", "atan2": "atan2{f}({0}, {1})", "lgamma": "lj_lgamma({0})",
    "digamma": "lj_digamma({0})",
    "logistic": "lj_logistic({0})", "real": "{0}", "conj": "{0}",
}  # fmt: skip
_OF_TWO = ("add", "sub", "mul", "div", "rem", "max", "min")
INTEGERS = {
    **{name: f"lj_{name}<{{t}}>({{0}}, {{1}})" for name in _OF_TWO},
    "ipow": "lj_ipow<{t}>({0}, {1})",
    "idiv": "lj_div<{t}>({0}, {1})", "neg": "lj_neg<{t}>({0})", "abs": "lj_abs<{t}>({0})",
    "sign": "lj_sign<{t}>({0})", "square": "lj_mul<{t}>({0}, {0})", "floor": "{0}", "ceil": "{0}",
    "round": "{0}", "trunc": "{0}", "real": "{0}", "conj": "{0}",
    "clamp": "lj_min<{t}>(lj_max<{t}>({0}, {1}), {2})", "and": "({t})({0} & {1})",
    "or": "({t})({0} | {1})", "xor": "({t})({0} ^ {1})", "not": "({t})~{0}",
    "shift_left": "lj_shl<{t}>({0}, {1})",
    "shift_right_logical": "lj_lshr<{t}>({0}, {1}, ({u}){0})",
    "shift_right_arithmetic": "lj_ashr<{t}>({0}, {1}, ({s}){0})",
    "population_count": "({t})lj_popc(({u}){0})", "clz": "({t})lj_clz(({u}){0})",
}  # fmt: skip
BOOLS = {
    "add": "({0} | {1})", "mul": "({0} & {1})", "max": "({0} | {1})", "min": "({0} & {1})",
    "and": "({0} & {1})", "or": "({0} | {1})", "xor": "({0} ^ {1})", "not": "(!{0})",
    "clamp": "(({0} | {1}) & {2})",
}  # fmt: skip
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
               "less_than": "<"}  # fmt: skip


def _template(name: str, dtype: dt.DType) -> str | None:
    if dtype in dt.FLOATING:
        return FLOATS.get(name)
    if dtype in dt.INTEGER:
        return INTEGERS.get(name)
    return BOOLS.get(name) if dtype == dt.bool_ else None


def _filled(template: str, args: Sequence[Value]) -> str:
    dtype = args[0].dtype
    bits = 8 * dtype.itemsize
    one = number(dtype, 1) if dtype in dt.FLOATING else ""
    names = {"t": value_type(dtype), "f": _suffix(dtype), "u": f"u{bits}", "s": f"i{bits}"}
    return template.format(*(a.text for a in args), one=one, **names)


# ---- rules of their own


def _select(args: Sequence[Value], result: dt.DType) -> Value:
    test, a, b = args
    chosen = [f"({test.text} ? {x} : {y})" for x, y in zip(a.parts, b.parts, strict=True)]
    return Value(a.dtype, tuple(chosen), a.exact and b.exact)


def _cast(args: Sequence[Value], result: dt.DType) -> Value:
    if dt.key in (args[0].dtype, result):
        raise unsupported("cast", [args[0].dtype, result])
    return cast(args[0], result)


def _hold(args: Sequence[Value], result: dt.DType) -> Value:
    return Value(result, args[0].parts)


def _bitcast(args: Sequence[Value], result: dt.DType) -> Value:
    x = args[0]
    plain = (*dt.INTEGER, *dt.FLOATING)
    if x.dtype not in plain or result not in plain or x.dtype.itemsize != result.itemsize:
        raise unsupported("bitcast", [x.dtype, result])
    bits = _as_bits(x)
    back = {dt.float32: "__uint_as_float((u32)({}))", dt.float64: "__longlong_as_double((i64)({}))"}
    if result in SIXTEEN:
        return loaded(result, (f"(u16)({bits})",))
    return Value(result, (back.get(result, f"({value_type(result)})({{}})").format(bits),))


def _as_bits(x: Value) -> str:
    """A number's bits as an unsigned integer of its width."""
    if x.dtype == dt.bfloat16 and x.exact:  # as they were, those of nan too
        return f"(u16)(__float_as_uint({x.text}) >> 16)"
    if x.dtype in SIXTEEN:
        return stored(x)[0]
    if x.dtype == dt.float32:
        return f"__float_as_uint({x.text})"
    if x.dtype == dt.float64:
        return f"(u64)__double_as_longlong({x.text})"
    return x.text


def _nextafter(args: Sequence[Value], result: dt.DType) -> Value:
    if result not in (dt.float32, dt.float64):
        raise unsupported("nextafter", [result])
    return Value(result, (f"nextafter{_suffix(result)}({args[0].text}, {args[1].text})",))


def _is_finite(args: Sequence[Value], result: dt.DType) -> Value:
    x = rounded(args[0])
    if x.dtype not in dt.FLOATING:
        raise unsupported("is_finite", [x.dtype])
    return Value(result, (f"lj_finite({x.text})",))


def _compare(name: str) -> Rule:
    def rule(args: Sequence[Value], result: dt.DType) -> Value:
        a, b = map(rounded, args)
        if (a.dtype in dt.COMPLEX or a.dtype == dt.key) and name not in ("eq", "ne"):
            raise unsupported(name, [a.dtype, b.dtype])
        sign = COMPARISONS[name]
        tests = [f"({x} {sign} {y})" for x, y in zip(a.parts, b.parts, strict=True)]
        joined = (" && " if name == "eq" else " || ").join(tests)
        return Value(dt.bool_, (joined if len(tests) == 1 else f"({joined})",))

    return rule


# ---- complex numbers


def _complex_each(sign: str) -> Rule:
    def rule(args: Sequence[Value], result: dt.DType) -> Value:
        pairs = zip(args[0].parts, args[1].parts, strict=True)
        return Value(result, tuple(f"({x} {sign} {y})" for x, y in pairs))

    return rule


def _complex_product(args: Sequence[Value], result: dt.DType) -> Value:
    (a, b), (c, d) = args[0].parts, args[-1].parts
    return Value(result, (f"({a} * {c} - {b} * {d})", f"({a} * {d} + {b} * {c})"))


def _complex_size(args: Sequence[Value], result: dt.DType) -> Value:
    name = "hypotf" if value_type(result) == "float" else "hypot"
    return Value(result, (f"{name}({args[0].parts[0]}, {args[0].parts[1]})",))


def _make_complex(args: Sequence[Value], result: dt.DType) -> Value:
    if args[0].dtype not in (dt.float32, dt.float64):
        raise unsupported("complex", [a.dtype for a in args])
    return Value(result, (args[0].text, args[1].text))


_COMPLEX: dict[str, Rule] = {
    "add": _complex_each("+"), "sub": _complex_each("-"), "mul": _complex_product,
    "square": _complex_product, "abs": _complex_size,
    "neg": lambda a, r: Value(r, tuple(f"(-{p})" for p in a[0].parts)),
    "conj": lambda a, r: Value(r, (a[0].parts[0], f"(-{a[0].parts[1]})")),
    "real": lambda a, r: Value(r, a[0].parts[:1]), "imag": lambda a, r: Value(r, a[0].parts[1:]),
}  # fmt: skip
_OWN: dict[str, Rule] = {
    "select": _select, "cast": _cast, "hold": _hold, "bitcast": _bitcast,
    **{op.name: _hold for op in MAY.values()},
    "nextafter": _nextafter, "is_finite": _is_finite, "complex": _make_complex,
    **{name: _compare(name) for name in COMPARISONS},
}  # fmt: skip


# ---- applying


def named(name: str, args: Sequence[Value], result: dt.DType) -> Value:
    """The named operation on values."""
    if name in _OWN:
        return _OWN[name](args, result)
    if args[0].dtype in dt.COMPLEX and name in _COMPLEX:
        return _COMPLEX[name](args, result)
    template = _template(name, args[0].dtype)
    if template is None:
        raise unsupported(name, [a.dtype for a in args])
    return Value(result, (_filled(template, args),))


def apply(op: ScalarOp, args: Sequence[Value], result: dt.DType) -> Value:
    """An operation on values.

    Raises UnsupportedError where `supported` says no.
    """
    return op.emit(Emission(), *args) if op.emit is not None else named(op.name, args, result)


class Emission:
    """What an operation that emits itself builds with (`form.Builder`)."""

    def apply(self, op: str, *args: Value) -> Value:
        """The named operation on operands of one dtype."""
        return named(op, args, dt.bool_ if op in COMPARISONS else args[-1].dtype)

    def const(self, value: float | int | bool, like: Value) -> Value:
        """A constant with the dtype of `like`."""
        return constant(like.dtype, value)


@lru_cache(maxsize=4096)
def supported(op: ScalarOp, operands: tuple[dt.DType, ...], result: dt.DType) -> bool:
    """Whether CUDA code exists for an operation on these dtypes with a result of that dtype."""
    args = [Value(d, tuple(f"p{k}" for k in range(parts(d)))) for d in operands]
    try:
        return apply(op, args, result).dtype == result
    except UnsupportedError:
        return False


# ---- monoids

COMBINE = {
    ReduceOp.SUM: "add", ReduceOp.PROD: "mul", ReduceOp.MAX: "max", ReduceOp.MIN: "min",
    ReduceOp.AND: "and", ReduceOp.OR: "or", ReduceOp.XOR: "xor",
}  # fmt: skip


def identity(op: ReduceOp, dtype: dt.DType) -> Value:
    """The monoid's neutral element (-0.0 for float sums, which keeps a sum of -0.0)."""
    if op in (ReduceOp.MAX, ReduceOp.MIN):
        low = op is ReduceOp.MAX
        if dtype in dt.INTEGER:
            info: Any = dt.iinfo(dtype)
            return constant(dtype, int(info.min if low else info.max))
        if dtype == dt.bool_:
            return constant(dtype, not low)
        return constant(dtype, -math.inf if low else math.inf)
    if op is ReduceOp.SUM and dtype in dt.INEXACT:
        return constant(dtype, complex(-0.0, -0.0) if dtype in dt.COMPLEX else -0.0)
    ones = op is ReduceOp.AND and dtype != dt.bool_
    return constant(dtype, -1 if ones else int(op in (ReduceOp.PROD, ReduceOp.AND)))
