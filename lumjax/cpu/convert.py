"""How dtypes are stored and computed in native code, and the casts between them.

A bool is stored as a byte and computed as i1. float16 and bfloat16 are computed in float32 and
rounded by a cast or a store. A complex number is a pair of floats. A PRNG key is an opaque 64-bit
integer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lumjax import dtype as dt
from lumjax.cpu.emit import Function, Reg, bits, constant, vector
from lumjax.record import record

SIXTEEN = (dt.float16, dt.bfloat16)


@record
class Lanes:
    """A value of a dtype: one register, or two for a complex number.

    `exact` says that a 16-bit float is representable in its dtype already; `paired` that an
    instruction which takes denormal numbers for zero has made the value, so that another may.
    """

    dtype: dt.DType
    regs: tuple[Reg, ...]
    exact: bool = False
    paired: bool = False

    @property
    def reg(self) -> Reg:
        """The register of a value that is not complex."""
        return self.regs[0]

    @property
    def lanes(self) -> int:
        """How many elements."""
        return self.regs[0].lanes


def compute_type(dtype: dt.DType) -> str:
    """The LLVM element type of a value in registers (of one part of a complex)."""
    if dtype == dt.bool_:
        return "i1"
    if dtype in (*SIXTEEN, dt.float32, dt.complex64):
        return "float"
    return storage_type(dtype)


def storage_type(dtype: dt.DType) -> str:
    """The LLVM element type in memory (of one part of a complex)."""
    if dtype in (dt.float32, dt.complex64):
        return "float"
    if dtype in (dt.float64, dt.complex128):
        return "double"
    return f"i{8 * dtype.itemsize}"


def parts(dtype: dt.DType) -> int:
    """The number of registers of a value."""
    return 2 if dtype in dt.COMPLEX else 1


def fill(dtype: dt.DType, value: complex, lanes: int = 1) -> Lanes:
    """A number that the dtype represents, in every lane."""
    kind = compute_type(dtype)
    if dtype in dt.COMPLEX:
        both = complex(value)
        pair = (constant(kind, both.real, lanes), constant(kind, both.imag, lanes))
        return Lanes(dtype, pair)
    real = value.real if isinstance(value, complex) else value
    return Lanes(dtype, (constant(kind, real, lanes),), exact=True)


def from_bits(dtype: dt.DType, data: bytes, lanes: int = 1) -> Lanes:
    """The constant with the given little-endian bytes."""
    item = np.frombuffer(data, dtype.newbyteorder("<") if dtype.kind != "V" else dtype)[0]
    if dtype == dt.key:
        return Lanes(dtype, (constant("i64", int.from_bytes(data, "little"), lanes),))
    if dtype in dt.FLOATING:
        return fill(dtype, float(item), lanes)
    return fill(dtype, item.item(), lanes)


def widen(f: Function, v: Lanes, lanes: int) -> Lanes:
    """The value in `lanes` lanes: a scalar is copied to each."""
    if v.lanes == lanes:
        return v
    return replace(v, regs=tuple(f.splat(r, lanes) for r in v.regs))


def select(f: Function, condition: Reg, a: Lanes, b: Lanes) -> Lanes:
    """Per lane: a where the condition holds, else b."""
    lanes = max(condition.lanes, a.lanes, b.lanes)
    a, b = widen(f, a, lanes), widen(f, b, lanes)
    chosen = tuple(f.select(condition, x, y) for x, y in zip(a.regs, b.regs, strict=True))
    return Lanes(a.dtype, chosen, a.exact and b.exact)


# ---- 16-bit floats


def _integer(f: Function, op: str, a: Reg, value: int) -> Reg:
    return f.binary(op, a, constant(a.type, value, a.lanes))


def _half_bits(f: Function, x: Reg) -> Reg:
    """float32 -> float16 bits in i32, round to nearest even, by integer arithmetic."""
    whole = f.convert("bitcast", x, "i32")
    size = _integer(f, "and", whole, 0x7FFFFFFF)
    sign = _integer(f, "and", _integer(f, "lshr", whole, 16), 0x8000)
    small = f.binary("fadd", f.convert("bitcast", size, "float"), constant("float", 0.5, x.lanes))
    denormal = _integer(f, "sub", f.convert("bitcast", small, "i32"), 0x3F000000)
    odd = _integer(f, "and", _integer(f, "lshr", size, 13), 1)
    rounded = f.binary("add", _integer(f, "add", size, (-112 << 23) + 0xFFF), odd)
    normal = _integer(f, "lshr", rounded, 13)

    def above(limit: int) -> Reg:
        return f.compare("icmp ugt", size, constant("i32", limit, x.lanes))

    result = f.select(above(0x387FFFFF), normal, denormal)
    result = f.select(above(0x477FFFFF), constant("i32", 0x7C00, x.lanes), result)
    result = f.select(above(0x7F800000), constant("i32", 0x7E00, x.lanes), result)
    return f.binary("or", result, sign)


def _half_value(f: Function, h: Reg) -> Reg:
    """float16 bits in i32 -> float32, by integer arithmetic."""
    size = _integer(f, "shl", _integer(f, "and", h, 0x7FFF), 13)
    sign = _integer(f, "shl", _integer(f, "and", h, 0x8000), 16)
    normal = _integer(f, "add", size, 112 << 23)
    special = _integer(f, "add", normal, 112 << 23)
    tiny = constant("float", 2.0**-14, h.lanes)
    grown = f.convert("bitcast", _integer(f, "add", normal, 1 << 23), "float")
    denormal = f.convert("bitcast", f.binary("fsub", grown, tiny), "i32")
    top = f.compare("icmp ugt", size, constant("i32", 0x0F7FFFFF, h.lanes))
    low = f.compare("icmp ult", size, constant("i32", 0x00800000, h.lanes))
    result = f.select(low, denormal, f.select(top, special, normal))
    return f.convert("bitcast", f.binary("or", result, sign), "float")


def _rounded(f: Function, x: Reg) -> Reg:
    """float32 -> bfloat16 bits by the instruction that comes with those on pairs."""
    kind, name = vector("bfloat", x.lanes), f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * x.lanes}"
    f.module.declare(name, kind, [x.full])
    found = f.pure(f"call {kind} @{name}({x})")
    return Reg(f.pure(f"bitcast {kind} {found} to {vector('i16', x.lanes)}"), "i16", x.lanes)


def to_storage(f: Function, v: Lanes) -> tuple[Reg, ...]:
    """The registers to store: bools as bytes, 16-bit floats rounded to their bits."""
    if v.dtype == dt.bool_:
        return (f.convert("zext", v.reg, "i8"),)
    if v.dtype == dt.float16:
        if f.module.half:
            return (f.convert("bitcast", f.convert("fptrunc", v.reg, "half"), "i16"),)
        return (f.convert("trunc", _half_bits(f, v.reg), "i16"),)
    if v.dtype == dt.bfloat16:
        whole = f.convert("bitcast", v.reg, "i32")
        if v.exact:
            return (f.convert("trunc", _integer(f, "lshr", whole, 16), "i16"),)
        if v.paired and v.lanes in (8, 16):
            return (_rounded(f, v.reg),)
        odd = _integer(f, "and", _integer(f, "lshr", whole, 16), 1)
        rounded = f.binary("add", _integer(f, "add", whole, 0x7FFF), odd)
        quiet = _integer(f, "or", whole, 0x400000)
        nan = f.compare("fcmp uno", v.reg, v.reg)
        chosen = f.select(nan, quiet, rounded)
        return (f.convert("trunc", _integer(f, "lshr", chosen, 16), "i16"),)
    return v.regs


def from_storage(f: Function, dtype: dt.DType, regs: tuple[Reg, ...]) -> Lanes:
    """The value of loaded registers."""
    reg = regs[0]
    if dtype == dt.bool_:
        zero = constant("i8", 0, reg.lanes)
        return Lanes(dtype, (f.compare("icmp ne", reg, zero),))
    if dtype == dt.float16 and f.module.half:
        half = f.convert("bitcast", reg, "half")
        return Lanes(dtype, (f.convert("fpext", half, "float"),), exact=True)
    if dtype == dt.float16:
        return Lanes(dtype, (_half_value(f, f.convert("zext", reg, "i32")),), exact=True)
    if dtype == dt.bfloat16:
        whole = _integer(f, "shl", f.convert("zext", reg, "i32"), 16)
        return Lanes(dtype, (f.convert("bitcast", whole, "float"),), exact=True)
    return Lanes(dtype, regs)


def round_to_dtype(f: Function, v: Lanes) -> Lanes:
    """A 16-bit float made representable in its dtype; anything else as it is."""
    if v.dtype not in SIXTEEN or v.exact:
        return v
    return from_storage(f, v.dtype, to_storage(f, v))


# ---- casts


def _narrow_to_odd(f: Function, x: Reg) -> Reg:
    """float64 -> float32 rounded to odd, so that a second rounding to 16 bits is correct."""
    near = f.convert("fptrunc", x, "float")
    back = f.convert("fpext", near, "double")
    low = f.compare("fcmp olt", f.intrinsic("llvm.fabs", back), f.intrinsic("llvm.fabs", x))
    high = f.compare("fcmp ogt", f.intrinsic("llvm.fabs", back), f.intrinsic("llvm.fabs", x))
    whole = f.convert("bitcast", near, "i32")
    down = _integer(f, "or", _integer(f, "sub", whole, 1), 1)
    up = _integer(f, "or", whole, 1)
    chosen = f.select(high, down, f.select(low, up, whole))
    return f.convert("bitcast", chosen, "float")


def _to_float(f: Function, v: Lanes, to: dt.DType) -> Reg:
    """A real value in the computing type of a float dtype (not yet rounded to 16 bits)."""
    kind, reg = compute_type(to), v.reg
    if v.dtype == dt.bool_ or v.dtype in dt.UNSIGNED:
        return f.convert("uitofp", reg, kind)
    if v.dtype in dt.SIGNED:
        return f.convert("sitofp", reg, kind)
    if reg.type == kind:
        return reg
    if kind == "double":
        return f.convert("fpext", reg, kind)
    if to == dt.float16:
        return _narrow_to_odd(f, reg)
    return f.convert("fptrunc", reg, kind)


def _saturate(f: Function, reg: Reg, to: dt.DType) -> Reg:
    """Float -> integer: towards zero, clamped to the range, NaN to 0."""
    kind, signed = storage_type(to), to in dt.SIGNED
    if reg.lanes > 1:
        return _saturate_lanes(f, reg, kind, signed)
    suffix = {"float": "f32", "double": "f64"}[reg.type]
    full = f"llvm.{'fptosi' if signed else 'fptoui'}.sat.{kind}.{suffix}"
    f.module.declare(full, kind, [reg.full])
    return Reg(f.pure(f"call {kind} @{full}({reg})"), kind)


def _saturate_lanes(f: Function, reg: Reg, kind: str, signed: bool) -> Reg:
    """The same for vectors, whose intrinsic LLVM takes apart into lanes with branches. What the
    conversion makes of a lane beyond the range is not defined, and not chosen.
    """
    width = bits(kind) - signed
    low, high = -(1 << width) if signed else 0, 1 << width

    def outside(predicate: str, bound: float, value: int, otherwise: Reg) -> Reg:
        test = f.compare(f"fcmp {predicate}", reg, constant(reg.type, bound, reg.lanes))
        return f.select(test, constant(kind, value, reg.lanes), otherwise)

    found = f.convert("fptosi" if signed else "fptoui", reg, kind)
    found = outside("oge", float(high), high - 1, found)
    found = outside("olt", float(low), low, found)
    return f.select(f.compare("fcmp uno", reg, reg), constant(kind, 0, reg.lanes), found)


def _to_integer(f: Function, v: Lanes, to: dt.DType) -> Reg:
    kind, reg = storage_type(to), v.reg
    if v.dtype in dt.FLOATING:
        return _saturate(f, reg, to)
    if reg.type == kind:
        return reg
    if reg.type != "i1" and v.dtype.itemsize > to.itemsize:
        return f.convert("trunc", reg, kind)
    return f.convert("sext" if v.dtype in dt.SIGNED else "zext", reg, kind)


def truth(f: Function, v: Lanes) -> Reg:
    """Whether each lane is nonzero (NaN is)."""
    if v.dtype == dt.bool_:
        return v.reg
    name = "fcmp une" if v.reg.type in ("float", "double") else "icmp ne"
    tests = [f.compare(name, r, constant(r.type, 0, r.lanes)) for r in v.regs]
    return tests[0] if len(tests) == 1 else f.binary("or", tests[0], tests[1])


def cast(f: Function, v: Lanes, to: dt.DType) -> Lanes:
    """The value in another dtype: saturating, NaN to 0, complex to its real part."""
    v = round_to_dtype(f, v)
    if v.dtype == to:
        return v
    if to == dt.bool_:
        return Lanes(to, (truth(f, v),))
    if to in dt.COMPLEX:
        base = dt.float32 if to == dt.complex64 else dt.float64
        if v.dtype in dt.COMPLEX:
            inner = dt.float32 if v.dtype == dt.complex64 else dt.float64
            regs = tuple(_to_float(f, Lanes(inner, (r,)), base) for r in v.regs)
            return Lanes(to, regs)
        real = _to_float(f, v, base)
        return Lanes(to, (real, constant(real.type, 0.0, real.lanes)))
    if v.dtype in dt.COMPLEX:
        inner = dt.float32 if v.dtype == dt.complex64 else dt.float64
        return cast(f, Lanes(inner, v.regs[:1]), to)
    if to in dt.FLOATING:
        return round_to_dtype(f, Lanes(to, (_to_float(f, v, to),), paired=v.paired))
    return Lanes(to, (_to_integer(f, v, to),))


def bitcast(f: Function, v: Lanes, to: dt.DType) -> Lanes:
    """The same bytes read as another dtype of the same size."""
    (reg,) = to_storage(f, v)
    kind = storage_type(to)
    return from_storage(f, to, (reg if reg.type == kind else f.convert("bitcast", reg, kind),))
