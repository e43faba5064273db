"""The scalar operations as machine code on vectors: which there are, and for which dtypes.

16-bit floats are computed in float32. A transcendental function of float32 is computed on float64
lanes and rounded once (`real.py`), the commonest directly (`single.py`); in float64 it is a
polynomial or a call of the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from lumjax import dtype as dt
from lumjax.cpu import integer, real, single
from lumjax.cpu.convert import (
    Lanes,
    bitcast,
    cast,
    compute_type,
    fill,
    round_to_dtype,
    select,
    widen,
)
from lumjax.cpu.emit import Function, Module, Reg, constant
from lumjax.errors import UnsupportedError
from lumjax.trace.form import ScalarOp

Rule: TypeAlias = Callable[[Function, Sequence[Lanes], dt.DType], Lanes]
RealRule: TypeAlias = Callable[..., Reg]


def unsupported(name: str, dtypes: Sequence[dt.DType]) -> UnsupportedError:
    """The error for an operation that the backend leaves to the primitive's `eval`."""
    return UnsupportedError(
        operation=f"native code for '{name}'",
        required="an operation and dtype that the CPU backend knows",
        got=", ".join(map(dt.short_name, dtypes)),
        fix="let the primitive's eval compute it",
    )


def apply(f: Function, op: ScalarOp, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    """Emit an operation; scalars among the operands are copied to every lane.

    Raises UnsupportedError where `supported` says no.
    """
    lanes = max((a.lanes for a in args), default=1)
    args = [widen(f, a, lanes) for a in args]
    if op.emit is not None:
        return op.emit(Emission(f), *args)
    rule = RULES.get(op.name)
    if rule is None:
        raise unsupported(op.name, [a.dtype for a in args])
    return rule(f, args, result)


@lru_cache(maxsize=4096)
def supported(op: ScalarOp, operands: tuple[dt.DType, ...], result: dt.DType) -> bool:
    """Whether native code exists for an operation on these dtypes with a result of that dtype."""
    f = Function(Module(), "probe", [])
    args = [
        Lanes(d, tuple(Reg(f"%p{k}", compute_type(d)) for k in range(1 + (d in dt.COMPLEX))))
        for d in operands
    ]
    try:
        return apply(f, op, args, result).dtype == result
    except UnsupportedError:
        return False


class Emission:
    """What an operation that emits itself builds with (`form.Builder`)."""

    def __init__(self, f: Function) -> None:
        self._f = f

    def apply(self, op: str, *args: Lanes) -> Lanes:
        """The named operation on operands of one dtype."""
        rule = RULES.get(op)
        if rule is None:
            raise unsupported(op, [a.dtype for a in args])
        lanes = max(a.lanes for a in args)
        wide = [widen(self._f, a, lanes) for a in args]
        return rule(self._f, wide, dt.bool_ if op in COMPARISONS else args[-1].dtype)

    def const(self, value: float | int | bool, like: Lanes) -> Lanes:
        """A constant with the dtype and lanes of `like`."""
        return fill(like.dtype, value, like.lanes)


# ---- making rules


def _one(dtype: dt.DType, reg: Reg) -> Lanes:
    return Lanes(dtype, (reg,))


def _is_real(dtype: dt.DType) -> bool:
    return dtype in dt.FLOATING


def _pick(
    name: str,
    floats: Callable[..., Reg] | None = None,
    integers: Callable[..., Reg] | None = None,
    bools: Callable[..., Reg] | None = None,
    complexes: Rule | None = None,
) -> Rule:
    """A rule by kind of dtype. Integer functions take a final argument: is the dtype signed?"""

    def rule(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
        dtype = args[0].dtype
        regs = [a.reg for a in args]
        if dtype in dt.COMPLEX and complexes is not None:
            return complexes(f, args, result)
        if dtype in dt.FLOATING and floats is not None:
            return _one(result, floats(f, *regs))
        if dtype in dt.INTEGER and integers is not None:
            return _one(result, integers(f, *regs, dtype in dt.SIGNED))
        if dtype == dt.bool_ and bools is not None:
            return _one(result, bools(f, *regs))
        raise unsupported(name, [a.dtype for a in args])

    return rule


def _binary(operation: str) -> Callable[..., Reg]:
    return lambda f, x, y, *_: f.binary(operation, x, y)


def _by_sign(name: str) -> Callable[..., Reg]:
    def build(f: Function, x: Reg, y: Reg, is_signed: bool) -> Reg:
        return f.intrinsic(f"llvm.{'s' if is_signed else 'u'}{name}", x, y)

    return build


def _intrinsic(name: str) -> Callable[..., Reg]:
    return lambda f, *xs: f.intrinsic(name, *xs)


def _libm(name: str) -> RealRule:
    return lambda f, *xs: real.libm(f, name, *xs)


def _wide(rule: RealRule) -> RealRule:
    """A function of float32 computed on float64 lanes and rounded once."""

    def narrow(f: Function, *xs: Reg) -> Reg:
        y = rule(f, *(f.convert("fpext", x, "double") for x in xs))
        return f.convert("fptrunc", y, "float")

    return narrow


def _real_function(name: str, single_form: RealRule, double_form: RealRule) -> Rule:
    """A real function from its float32 form (the 16-bit floats' too) and its float64 form."""
    return _pick(
        name, lambda f, *xs: (double_form if xs[0].type == "double" else single_form)(f, *xs)
    )


# ---- comparisons and selection


def _compare(name: str, ordered: str, integers: str) -> Rule:
    def complexes(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
        pairs = zip(args[0].regs, args[1].regs, strict=True)
        tests = [f.compare(f"fcmp {ordered}", x, y) for x, y in pairs]
        if name not in ("eq", "ne"):
            raise unsupported(name, [a.dtype for a in args])
        return _one(result, f.binary("and" if name == "eq" else "or", *tests))

    def compare(f: Function, x: Reg, y: Reg, is_signed: bool = False) -> Reg:
        if integers in ("eq", "ne"):
            return f.compare(f"icmp {integers}", x, y)
        return f.compare(f"icmp {'s' if is_signed else 'u'}{integers}", x, y)

    inner = _pick(
        name, lambda f, x, y: f.compare(f"fcmp {ordered}", x, y), compare, compare, complexes
    )

    def rule(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
        if args[0].dtype == dt.key and name in ("eq", "ne"):
            return _one(result, compare(f, args[0].reg, args[1].reg))
        return inner(f, [round_to_dtype(f, a) for a in args], result)

    return rule


def _select(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    return select(f, args[0].reg, args[1], args[2])


def _cast(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    if dt.key in (args[0].dtype, result):
        raise unsupported("cast", [args[0].dtype, result])
    return cast(f, args[0], result)


def _bitcast(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    x = args[0]
    plain = (*dt.INTEGER, *dt.FLOATING)
    if x.dtype not in plain or result not in plain or x.dtype.itemsize != result.itemsize:
        raise unsupported("bitcast", [x.dtype, result])
    return bitcast(f, x, result)


def _pair(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    """Two bfloat16 as one word."""
    if any(a.dtype != dt.bfloat16 for a in args) or result != dt.uint32:
        raise unsupported("pair", [a.dtype for a in args])
    low, high = (f.convert("bitcast", round_to_dtype(f, a).reg, "i32") for a in args)
    sixteen = constant("i32", 16, low.lanes)
    return Lanes(result, (f.binary("or", f.binary("lshr", low, sixteen), high),))


# ---- real numbers


def _sign(f: Function, x: Reg) -> Reg:
    below = real.choose(f, real.test(f, "olt", x, 0.0), -1.0, x)
    return real.choose(f, real.test(f, "ogt", x, 0.0), 1.0, below)


def _square(f: Function, x: Reg, *_: Any) -> Reg:
    return f.binary("fmul" if x.type in ("float", "double") else "mul", x, x)


def _recip(f: Function, x: Reg) -> Reg:
    return real.divide(f, real.number(x, 1.0), x)


def _rsqrt(f: Function, x: Reg) -> Reg:
    return _recip(f, f.intrinsic("llvm.sqrt", x))


def _is_finite(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    x = round_to_dtype(f, args[0])
    if not _is_real(x.dtype):
        raise unsupported("is_finite", [x.dtype])
    return _one(result, real.test(f, "olt", real.size(f, x.reg), math.inf))


def _nextafter(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    """One step in the integers that float bits are, away from or towards zero."""
    x, y = (a.reg for a in args)
    if result not in (dt.float32, dt.float64):
        raise unsupported("nextafter", [result])
    kind = "i32" if x.type == "float" else "i64"
    whole = f.convert("bitcast", x, kind)
    outward = f.compare("icmp eq", real.test(f, "ogt", y, x), real.test(f, "ogt", x, 0.0))
    one, minus = constant(kind, 1, x.lanes), constant(kind, -1, x.lanes)
    moved = f.convert("bitcast", f.binary("add", whole, f.select(outward, one, minus)), x.type)
    least = real.signed(f, f.convert("bitcast", one, x.type), y)
    moved = real.choose(f, real.test(f, "oeq", x, 0.0), least, moved)
    moved = real.choose(f, real.test(f, "oeq", x, y), y, moved)
    return _one(result, real.choose(f, real.test(f, "uno", x, y), real.add(f, x, y), moved))


def _remainder(f: Function, x: Reg, y: Reg) -> Reg:
    """C's fmod, which is exact, so that float32 may go through float64."""
    if x.type == "double":
        return real.libm(f, "fmod", x, y)
    wide = [f.convert("fpext", v, "double") for v in (x, y)]
    return f.convert("fptrunc", real.libm(f, "fmod", *wide), "float")


def _fma(f: Function, x: Reg, y: Reg, z: Reg) -> Reg:
    return f.intrinsic("llvm.fma", x, y, z)


def _clamp(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    low, x, high = args
    return RULES["min"](f, [RULES["max"](f, [low, x], result), high], result)


def _hold(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    """The same value under another dtype that is held in the same registers: nothing is rounded."""
    return Lanes(result, args[0].regs)


# ---- complex numbers


def _each(operation: str) -> Rule:
    def rule(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
        pairs = zip(args[0].regs, args[1].regs, strict=True)
        return Lanes(result, tuple(f.binary(operation, x, y) for x, y in pairs))

    return rule


def _complex_multiply(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    (a, b), (c, d) = args[0].regs, args[-1].regs
    re = real.subtract(f, real.multiply(f, a, c), real.multiply(f, b, d))
    return Lanes(result, (re, real.add(f, real.multiply(f, a, d), real.multiply(f, b, c))))


def _complex_abs(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    re, im = args[0].regs
    if re.type == "double":
        return _one(result, real.libm(f, "hypot", re, im))
    a, b = (f.convert("fpext", r, "double") for r in (re, im))
    root = f.intrinsic("llvm.sqrt", real.add(f, real.multiply(f, a, a), real.multiply(f, b, b)))
    infinite = f.binary(
        "or",
        real.test(f, "oeq", real.size(f, a), math.inf),
        real.test(f, "oeq", real.size(f, b), math.inf),
    )
    return _one(result, f.convert("fptrunc", real.choose(f, infinite, math.inf, root), "float"))


def _complex_negate(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    return Lanes(result, tuple(f.negate(r) for r in args[0].regs))


def _conj(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    re, im = args[0].regs
    return Lanes(result, (re, f.negate(im)))


def _real_part(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    return args[0] if args[0].dtype not in dt.COMPLEX else _one(result, args[0].regs[0])


def _imag_part(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    return _one(result, args[0].regs[1])


def _make_complex(f: Function, args: Sequence[Lanes], result: dt.DType) -> Lanes:
    if args[0].dtype not in (dt.float32, dt.float64):
        raise unsupported("complex", [a.dtype for a in args])
    return Lanes(result, (args[0].reg, args[1].reg))


def _only_complex(name: str, rule: Rule) -> Rule:
    return _pick(name, complexes=rule)


# ---- the table


def _integer_negate(f: Function, x: Reg, _: bool) -> Reg:
    return f.binary("sub", constant(x.type, 0, x.lanes), x)


def _invert(f: Function, x: Reg, *_: Any) -> Reg:
    return f.binary("xor", x, constant(x.type, 1 if x.type == "i1" else -1, x.lanes))


def _shift(operation: str) -> Rule:
    return _pick(operation, None, lambda f, x, y, _: integer.shift(f, operation, x, y))


def _same(f: Function, x: Reg, *_: Any) -> Reg:
    return x


def _erfc(f: Function, x: Reg) -> Reg:
    """Directly where the rounding of x*x is known, which only fused multiply-add tells."""
    return single.erfc(f, x) if f.module.fma else _wide(real.erfc_wide)(f, x)


_TRANSCENDENTAL: dict[str, tuple[RealRule, RealRule]] = {
    "exp": (single.exp, real.exp),
    "exp2": (single.exp2, _libm("exp2")),
    "expm1": (_wide(real.expm1_wide), _libm("expm1")),
    "log": (_wide(real.log_wide), real.log),
    "log2": (_wide(real.log2_wide), _libm("log2")),
    "log1p": (_wide(real.log1p_wide), _libm("log1p")),
    "tanh": (single.tanh, _libm("tanh")),
    "sinh": (_wide(real.sinh_wide), _libm("sinh")),
    "cosh": (_wide(real.cosh_wide), _libm("cosh")),
    "asinh": (_wide(real.asinh_wide), _libm("asinh")),
    "acosh": (_wide(real.acosh_wide), _libm("acosh")),
    "atanh": (_wide(real.atanh_wide), _libm("atanh")),
    "logistic": (single.logistic, real.logistic),
    "pow": (_wide(real.pow_wide), _libm("pow")),
    "cbrt": (_wide(real.cbrt_wide), _libm("cbrt")),
    "sin": (_wide(real.sin_wide), _libm("sin")),
    "cos": (_wide(real.cos_wide), _libm("cos")),
    "tan": (_wide(real.tan_wide), _libm("tan")),
    "asin": (_wide(real.asin_wide), _libm("asin")),
    "acos": (_wide(real.acos_wide), _libm("acos")),
    "atan": (_wide(real.atan_wide), _libm("atan")),
    "atan2": (_wide(real.atan2_wide), _libm("atan2")),
    "erf": (single.erf, _libm("erf")),
    "erfc": (_erfc, _libm("erfc")),
    "lgamma": (_wide(_libm("lgamma")), _libm("lgamma")),
}

COMPARISONS = {
    "eq": ("oeq", "eq"),
    "ne": ("une", "ne"),
    "lt": ("olt", "lt"),
    "le": ("ole", "le"),
    "gt": ("ogt", "gt"),
    "ge": ("oge", "ge"),
    "less_than": ("olt", "lt"),
}

RULES: dict[str, Rule] = {
    "add": _pick("add", real.add, _binary("add"), _binary("or"), _each("fadd")),
    "sub": _pick("sub", real.subtract, _binary("sub"), None, _each("fsub")),
    "mul": _pick("mul", real.multiply, _binary("mul"), _binary("and"), _complex_multiply),
    "div": _pick("div", real.divide, integer.divide),
    "idiv": _pick("idiv", None, integer.divide),
    "rem": _pick("rem", _remainder, integer.remainder),
    "neg": _pick("neg", lambda f, x: f.negate(x), _integer_negate, None, _complex_negate),
    "abs": _pick("abs", real.size, integer.absolute, None, _complex_abs),
    "sign": _pick("sign", _sign, integer.sign),
    "square": _pick("square", _square, _square, None, _complex_multiply),
    "floor": _pick("floor", _intrinsic("llvm.floor"), _same),
    "ceil": _pick("ceil", _intrinsic("llvm.ceil"), _same),
    "round": _pick("round", _intrinsic("llvm.rint"), _same),
    "trunc": _pick("trunc", _intrinsic("llvm.trunc"), _same),
    "sqrt": _pick("sqrt", _intrinsic("llvm.sqrt")),
    "rsqrt": _pick("rsqrt", _rsqrt),
    "recip": _pick("recip", _recip),
    "max": _pick("max", _intrinsic("llvm.maximum"), _by_sign("max"), _binary("or")),
    "min": _pick("min", _intrinsic("llvm.minimum"), _by_sign("min"), _binary("and")),
    "clamp": _clamp,
    "fma": _pick("fma", _fma),
    "nextafter": _nextafter,
    "is_finite": _is_finite,
    "and": _pick("and", None, _binary("and"), _binary("and")),
    "or": _pick("or", None, _binary("or"), _binary("or")),
    "xor": _pick("xor", None, _binary("xor"), _binary("xor")),
    "not": _pick("not", None, _invert, _invert),
    "shift_left": _shift("shl"),
    "shift_right_logical": _shift("lshr"),
    "shift_right_arithmetic": _shift("ashr"),
    "population_count": _pick("population_count", None, integer.count_ones),
    "clz": _pick("clz", None, integer.leading_zeros),
    "select": _select,
    "cast": _cast,
    "hold": _hold,
    "bitcast": _bitcast,
    "pair": _pair,
    "complex": _make_complex,
    "real": _pick("real", _same, None, None, _real_part),
    "imag": _only_complex("imag", _imag_part),
    "conj": _pick("conj", _same, None, None, _conj),
    **{name: _real_function(name, *both) for name, both in _TRANSCENDENTAL.items()},
    **{name: _compare(name, *both) for name, both in COMPARISONS.items()},
}  # fmt: skip
