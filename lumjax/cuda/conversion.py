"""PTX conversions (`cvt`) as LLVM: between widths, to and from floats, with every rounding."""

from __future__ import annotations

from lumjax.cuda.code import FLOATS, LLVM, Code, is_signed, only, width
from lumjax.cuda.syntax import Instruction, unknown

_HALVES = ("f16", "bf16")
_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_DIRECTED = {"rz": 1, "rm": 2, "rp": 3}


def convert(c: Code, i: Instruction) -> None:
    """One `cvt`."""
    only(i, (*_WHOLE, *_DIRECTED, "rn", "rna", "ftz", "sat", "relu"))
    if "relu" in i.parts or ("ftz" in i.parts and not {"f32"} & set(i.parts)):
        raise unknown(str(i))
    to, source = i.parts[-2], i.parts[-1]
    if ("rna" in i.parts) != (to == "tf32"):
        raise unknown(str(i))
    if to == "tf32":
        _to_ten_bits(c, i)
        return
    if to in ("f16x2", "bf16x2"):
        _pair(c, i, to)
        return
    value = c.read(i.operands[1], source)
    if source in _HALVES and to == source:
        raise unknown(str(i))
    if source in _HALVES:
        value, source = half_value(c, value, source), "f32"
    if to in _HALVES:
        _to_half(c, i, value, source, to)
    elif source in FLOATS and to in FLOATS:
        c.write(i.operands[0], _between_floats(c, i, value, source, to), to)
    elif source in FLOATS:
        c.write(i.operands[0], _to_integer(c, i, value, source, to), to)
    elif to in FLOATS:
        c.write(i.operands[0], _from_integer(c, i, value, source, to), to)
    else:
        _between_integers(c, i, value, source, to)


def _to_ten_bits(c: Code, i: Instruction) -> None:
    """cvt.rna.tf32.f32: to ten bits behind the point, to nearest, in the middle away from zero."""
    if i.parts[1:] != ("rna", "tf32", "f32"):
        raise unknown(str(i))
    bits = c.read(i.operands[1], "b32")
    size = c.let(f"and i32 {bits}, 2147483647")
    finite = c.let(f"icmp ult i32 {size}, {0x7F800000}")
    near = c.let(f"and i32 {c.let(f'add i32 {bits}, 4096')}, -8192")
    c.write(i.operands[0], c.choose(finite, "b32", near, bits), "b32")


def half_value(c: Code, value: str, kind: str) -> str:
    """A 16-bit float as a float32, which is exact."""
    if kind == "bf16":
        wide = c.let(f"shl i32 {c.let(f'zext i16 {value} to i32')}, 16")
        return c.let(f"bitcast i32 {wide} to float")
    return c.let(f"fpext half {c.let(f'bitcast i16 {value} to half')} to float")


def half_bits(c: Code, value: str, kind: str) -> str:
    """A float32 rounded to 16 bits, to nearest."""
    if kind == "f16":
        return c.let(f"bitcast half {c.let(f'fptrunc float {value} to half')} to i16")
    whole = c.let(f"bitcast float {value} to i32")
    odd = c.let(f"and i32 {c.let(f'lshr i32 {whole}, 16')}, 1")
    rounded = c.let(f"add i32 {c.let(f'add i32 {whole}, 32767')}, {odd}")
    short = c.let(f"trunc i32 {c.let(f'lshr i32 {rounded}, 16')} to i16")
    nan = c.let(f"fcmp uno float {value}, 0.0")
    return c.let(f"select i1 {nan}, i16 32767, i16 {short}")


def _to_half(c: Code, i: Instruction, value: str, source: str, to: str) -> None:
    if "rn" not in i.parts or "sat" in i.parts:
        raise unknown(str(i))
    if source == "f64":
        value = c.support("f32", "lumjax_narrow_odd", [("f64", value)])
    elif source != "f32":
        raise unknown(str(i))
    c.write(i.operands[0], half_bits(c, value, to), to)


def _pair(c: Code, i: Instruction, to: str) -> None:
    """Two floats to two halves: the first operand is the upper one."""
    if "rn" not in i.parts or i.parts[-1] != "f32":
        raise unknown(str(i))
    kind = to.removesuffix("x2")
    high, low = (half_bits(c, c.read(o, "f32"), kind) for o in i.operands[1:3])
    wide = [c.let(f"zext i16 {v} to i32") for v in (high, low)]
    both = c.let(f"or i32 {c.let(f'shl i32 {wide[0]}, 16')}, {wide[1]}")
    c.write(i.operands[0], both, "b32")


def _between_floats(c: Code, i: Instruction, value: str, source: str, to: str) -> str:
    mode = next((p for p in i.parts if p in _WHOLE), None)
    if mode is not None:
        value = c.intrinsic(_WHOLE[mode], source, value)
    if source == "f64" and to == "f32":
        directed = next((p for p in i.parts if p in _DIRECTED), None)
        if directed is None:
            value = c.let(f"fptrunc double {value} to float")
        else:
            args = [("f64", value), ("u32", str(_DIRECTED[directed]))]
            value = c.support("f32", "lumjax_narrow_directed", args)
    elif source == "f32" and to == "f64":
        value = c.let(f"fpext float {value} to double")
    if "ftz" in i.parts:
        raise unknown(str(i))
    if "sat" in i.parts:  # into 0..1, not a number to 0
        low = c.intrinsic("maximumnum", to, value, "0.0")
        value = c.intrinsic("minimumnum", to, low, "1.0")
    return value


def _to_integer(c: Code, i: Instruction, value: str, source: str, to: str) -> str:
    """Clamped into the range, as the machine does; not a number to 0."""
    if "ftz" in i.parts:
        small = c.test("fcmp olt", source, c.intrinsic("fabs", source, value), "0x3810000000000000")
        value = c.choose(small, source, "0.0", value)
    mode = next((p for p in i.parts if p in _WHOLE), None)
    if mode is None:
        raise unknown(str(i))
    whole = c.intrinsic(_WHOLE[mode], source, value)
    name = f"fpto{'s' if is_signed(to) else 'u'}i.sat"
    low, high = LLVM[source], LLVM[to]
    suffix = "f32" if source == "f32" else "f64"
    return c.call(high, f"llvm.{name}.{high}.{suffix}", [(low, whole)])


def _from_integer(c: Code, i: Instruction, value: str, source: str, to: str) -> str:
    letter = "s" if is_signed(source) else "u"
    directed = next((p for p in i.parts if p in _DIRECTED), None)
    if directed is None:
        return c.let(f"{letter}itofp {LLVM[source]} {value} to {LLVM[to]}")
    if to != "f32" or width(source) > 32:
        raise unknown(str(i))
    wide = c.let(f"{letter}itofp {LLVM[source]} {value} to double")  # exact
    args = [("f64", wide), ("u32", str(_DIRECTED[directed]))]
    return c.support("f32", "lumjax_narrow_directed", args)


def _between_integers(c: Code, i: Instruction, value: str, source: str, to: str) -> None:
    if "sat" in i.parts:
        value = _clamped(c, i, value, source, to)
    c.write(i.operands[0], c.resized(value, source, to), to)


def _clamped(c: Code, i: Instruction, value: str, source: str, to: str) -> str:
    if width(to) >= width(source) or not is_signed(source):
        raise unknown(str(i))
    bits = width(to)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(to) else (0, (1 << bits) - 1)
    return c.intrinsic("smin", source, c.intrinsic("smax", source, value, str(low)), str(high))
