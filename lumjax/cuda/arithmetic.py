"""PTX arithmetic as LLVM: one rule for each instruction, by the first part of its name.

Instructions that a GPU approximates (`ex2.approx`) are computed as exactly as the C library does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lumjax.cpu.real import LIBM
from lumjax.cuda.code import FLOATS, LLVM, Code, is_signed, only, width
from lumjax.cuda.syntax import SIZES, Instruction, unknown

Rule: TypeAlias = Callable[[Code, Instruction], None]

_ROUNDINGS = ("rn", "rz", "rm", "rp")
_DIRECTED = {"rz": 1, "rm": 2, "rp": 3}  # as the support code numbers them


def _kind(i: Instruction) -> str:
    return i.parts[-1]


def _reads(c: Code, i: Instruction, kind: str, count: int) -> list[str]:
    return [c.read(operand, kind) for operand in i.operands[1 : 1 + count]]


def _write(c: Code, i: Instruction, value: str, kind: str | None = None) -> None:
    c.write(i.operands[0], value, kind or _kind(i))


def _directed(c: Code, i: Instruction, a: str, b: str, x: str) -> str:
    """The sum a * b + x, rounded another way than to nearest."""
    (mode,) = (_DIRECTED[p] for p in i.parts if p in _DIRECTED)
    if _kind(i) != "f32":
        raise unknown(str(i))
    args = [("f32", a), ("f32", b), ("f32", x), ("u32", str(mode))]
    return c.support("f32", "lumjax_fma_directed", args)


def _flushed(c: Code, i: Instruction, value: str) -> str:
    """A denormal as 0, if the instruction says ftz."""
    if "ftz" not in i.parts or _kind(i) != "f32":
        return value
    size = c.intrinsic("fabs", "f32", value)
    small = c.test("fcmp olt", "f32", size, "0x3810000000000000")
    zero = c.intrinsic("copysign", "f32", "0.0", value)
    return c.choose(small, "f32", zero, value)


# ---- sums, products, quotients


def _sum(c: Code, i: Instruction) -> None:
    kind, name = _kind(i), i.parts[0]
    only(i, (*_ROUNDINGS, "cc", "ftz"))
    a, b = _reads(c, i, kind, 2)
    if kind in FLOATS:
        a, b = _flushed(c, i, a), _flushed(c, i, b)
        if any(p in _DIRECTED for p in i.parts):
            b = c.let(f"fneg {LLVM[kind]} {b}") if name == "sub" else b
            _write(c, i, _directed(c, i, a, "1.0", b))
            return
        _write(c, i, _flushed(c, i, c.binary(f"f{name}", kind, a, b)))
        return
    if "cc" in i.parts:
        _carrying(c, i, a, b, "0")
        return
    _write(c, i, c.binary(name, kind, a, b))


def _sum_with_carry(c: Code, i: Instruction) -> None:
    only(i, ("cc",))
    a, b = _reads(c, i, _kind(i), 2)
    _carrying(c, i, a, b, _carry(c))


def _carry(c: Code) -> str:
    c.carry = True
    return c.let("load i1, ptr %carry")


def _carrying(c: Code, i: Instruction, a: str, b: str, carry: str) -> None:
    """A sum or difference of three numbers, whose carry is kept if the instruction says cc."""
    kind, low = _kind(i), LLVM[_kind(i)]
    wide = f"i{2 * width(kind)}"
    c.carry = True
    big = [c.let(f"zext {low} {v} to {wide}") for v in (a, b)]
    third = c.let(f"zext i1 {carry if carry != '0' else 'false'} to {wide}")
    name = "sub" if i.parts[0].startswith("sub") else "add"
    total = c.let(f"{name} {wide} {c.let(f'{name} {wide} {big[0]}, {big[1]}')}, {third}")
    if "cc" in i.parts:
        over = c.let(f"lshr {wide} {total}, {width(kind)}")
        c.add(f"store i1 {c.let(f'trunc {wide} {over} to i1')}, ptr %carry")
    _write(c, i, c.let(f"trunc {wide} {total} to {low}"))


def _wider(kind: str) -> str:
    return f"{kind[0]}{2 * width(kind)}"


def _product(c: Code, i: Instruction, a: str, b: str) -> tuple[str, str]:
    """The product of integers, in the part that the instruction names; and its type."""
    kind = _kind(i)
    if "wide" not in i.parts and "hi" not in i.parts:
        return c.binary("mul", kind, a, b), kind
    extend = "sext" if is_signed(kind) else "zext"
    wide = f"i{2 * width(kind)}"
    x, y = (c.let(f"{extend} {LLVM[kind]} {v} to {wide}") for v in (a, b))
    full = c.let(f"mul {wide} {x}, {y}")
    if "wide" in i.parts:
        return full, _wider(kind)
    high = c.let(f"lshr {wide} {full}, {width(kind)}")
    return c.let(f"trunc {wide} {high} to {LLVM[kind]}"), kind


def _multiply(c: Code, i: Instruction) -> None:
    kind = _kind(i)
    only(i, (*_ROUNDINGS, "lo", "hi", "wide", "ftz"))
    a, b = _reads(c, i, kind, 2)
    if kind not in FLOATS:
        _write(c, i, *_product(c, i, a, b))
    elif any(p in _DIRECTED for p in i.parts):
        _write(c, i, _directed(c, i, a, b, "-0.0"))
    else:
        a, b = _flushed(c, i, a), _flushed(c, i, b)
        _write(c, i, _flushed(c, i, c.binary("fmul", kind, a, b)))


def _multiply_add(c: Code, i: Instruction) -> None:
    kind = _kind(i)
    only(i, (*_ROUNDINGS, "lo", "hi", "wide", "cc"))
    if kind in FLOATS:
        a, b, x = _reads(c, i, kind, 3)
        directed = any(p in _DIRECTED for p in i.parts)
        _write(c, i, _directed(c, i, a, b, x) if directed else c.intrinsic("fma", kind, a, b, x))
        return
    product, result = _product(c, i, *_reads(c, i, kind, 2))
    third = c.read(i.operands[3], result)
    if "cc" in i.parts or i.parts[0] == "madc":
        _carrying(c, i, product, third, _carry(c) if i.parts[0] == "madc" else "0")
        return
    _write(c, i, c.binary("add", result, product, third), result)


def _divide(c: Code, i: Instruction) -> None:
    kind, name = _kind(i), i.parts[0]
    only(i, ("rn", "approx", "full", "ftz"))
    a, b = _reads(c, i, kind, 2)
    if kind in FLOATS:
        _write(c, i, _flushed(c, i, c.binary("fdiv", kind, _flushed(c, i, a), _flushed(c, i, b))))
        return
    letter = "s" if is_signed(kind) else "u"
    nothing = c.test("icmp eq", kind, b, "0")
    if letter == "u":
        safe = c.choose(nothing, kind, "1", b)
        _write(c, i, c.binary(f"u{name}", kind, a, safe))
        return
    minus = c.test("icmp eq", kind, b, "-1")  # the least number by it is a trap here
    safe = c.choose(c.let(f"or i1 {nothing}, {minus}"), kind, "1", b)
    normal = c.binary(f"s{name}", kind, a, safe)
    other = c.binary("sub", kind, "0", a) if name == "div" else "0"
    _write(c, i, c.choose(minus, kind, other, normal))


# ---- one operand


def _negate(c: Code, i: Instruction) -> None:
    only(i, ("ftz",))
    (a,) = _reads(c, i, _kind(i), 1)
    if _kind(i) in FLOATS:
        _write(c, i, _flushed(c, i, c.let(f"fneg {LLVM[_kind(i)]} {a}")))
    else:
        _write(c, i, c.binary("sub", _kind(i), "0", a))


def _absolute(c: Code, i: Instruction) -> None:
    only(i, ("ftz",))
    (a,) = _reads(c, i, _kind(i), 1)
    if _kind(i) in FLOATS:
        _write(c, i, _flushed(c, i, c.intrinsic("fabs", _kind(i), a)))
    else:
        _write(c, i, c.intrinsic("abs", _kind(i), a, flags="false"))


def _extreme(c: Code, i: Instruction) -> None:
    kind, name = _kind(i), i.parts[0]
    only(i, ("ftz", "NaN"))
    a, b = _reads(c, i, kind, 2)
    if kind in FLOATS:
        long = {"min": "minimum", "max": "maximum"}[name] + ("" if "NaN" in i.parts else "num")
        a, b = _flushed(c, i, a), _flushed(c, i, b)
        _write(c, i, c.intrinsic(long, kind, a, b))
    else:
        _write(c, i, c.intrinsic(f"{'s' if is_signed(kind) else 'u'}{name}", kind, a, b))


def _libm(name: str) -> Callable[[Code, str], str]:
    return lambda c, x: c.call("double", f"{LIBM}{name}", [("double", x)])


def _reciprocal(c: Code, x: str) -> str:
    return c.let(f"fdiv double 1.0, {x}")


def _root(c: Code, x: str) -> str:
    return c.intrinsic("sqrt", "f64", x)


_APPROXIMATED: dict[str, Callable[[Code, str], str]] = {
    "ex2": _libm("exp2"), "lg2": _libm("log2"), "sin": _libm("sin"), "cos": _libm("cos"),
    "tanh": _libm("tanh"), "rcp": _reciprocal, "sqrt": _root,
    "rsqrt": lambda c, x: _reciprocal(c, _root(c, x)),
}  # fmt: skip


def _function(c: Code, i: Instruction) -> None:
    """A function of one number, computed in float64 and rounded once."""
    kind = _kind(i)
    only(i, ("rn", "approx", "ftz"))
    (x,) = _reads(c, i, kind, 1)
    rule = _APPROXIMATED[i.parts[0]]
    if kind == "f64":
        if "approx" in i.parts:
            _write(c, i, _upper_half(c, rule(c, _upper_half(c, x))))
            return
        _write(c, i, rule(c, x))
        return
    wide = rule(c, c.let(f"fpext float {_flushed(c, i, x)} to double"))
    _write(c, i, _flushed(c, i, c.let(f"fptrunc double {wide} to float")))


def _upper_half(c: Code, x: str) -> str:
    """A float64 without its lower 32 bits: approximations in float64 know no more."""
    whole = c.let(f"bitcast double {x} to i64")
    return c.let(f"bitcast i64 {c.let(f'and i64 {whole}, -4294967296')} to double")


def _copysign(c: Code, i: Instruction) -> None:
    only(i, ())
    a, b = _reads(c, i, _kind(i), 2)
    _write(c, i, c.intrinsic("copysign", _kind(i), b, a))


def _property(c: Code, i: Instruction) -> None:
    kind, what = _kind(i), i.parts[1]
    (x,) = _reads(c, i, kind, 1)
    infinity = "0x7FF0000000000000"
    if what in ("number", "notanumber"):
        _write(c, i, c.test(f"fcmp {'ord' if what == 'number' else 'uno'}", kind, x, "0.0"), "pred")
        return
    name = {"finite": "olt", "infinite": "oeq"}.get(what)
    if name is None:
        raise unknown(str(i))
    size = c.intrinsic("fabs", kind, x)
    _write(c, i, c.test(f"fcmp {name}", kind, size, infinity), "pred")


# ---- bits


def _bitwise(c: Code, i: Instruction) -> None:
    only(i, ())
    kind = _kind(i)
    a, b = _reads(c, i, kind, 2)
    _write(c, i, c.binary(i.parts[0], kind, a, b))


def _invert(c: Code, i: Instruction) -> None:
    only(i, ())
    (a,) = _reads(c, i, _kind(i), 1)
    _write(c, i, c.binary("xor", _kind(i), a, "true" if _kind(i) == "pred" else "-1"))


def _shift(c: Code, i: Instruction) -> None:
    """Shifts by more than there are bits leave nothing, or the sign."""
    only(i, ())
    kind, bits = _kind(i), width(_kind(i))
    a, amount = c.read(i.operands[1], kind), c.read(i.operands[2], "u32")
    signed = i.parts[0] == "shr" and is_signed(kind)
    name = "shl" if i.parts[0] == "shl" else "ashr" if signed else "lshr"
    most = c.intrinsic("umin", "u32", amount, str(bits - 1))
    shifted = c.binary(name, kind, a, c.resized(most, "u32", f"b{bits}"))
    if not signed:
        over = c.test("icmp uge", "u32", amount, str(bits))
        shifted = c.choose(over, kind, "0", shifted)
    _write(c, i, shifted)


def _funnel(c: Code, i: Instruction) -> None:
    only(i, ("l", "r", "wrap", "clamp"))
    low, high, amount = _reads(c, i, "b32", 3)
    if "wrap" in i.parts:
        amount = c.binary("and", "b32", amount, "31")
    else:
        amount = c.intrinsic("umin", "b32", amount, "32")
    wide = [c.let(f"zext i32 {v} to i64") for v in (low, high, amount)]
    both = c.let(f"or i64 {c.let(f'shl i64 {wide[1]}, 32')}, {wide[0]}")
    if "l" in i.parts:
        both = c.let(f"lshr i64 {c.let(f'shl i64 {both}, {wide[2]}')}, 32")
    else:
        both = c.let(f"lshr i64 {both}, {wide[2]}")
    _write(c, i, c.let(f"trunc i64 {both} to i32"))


def _permute(c: Code, i: Instruction) -> None:
    """Four of eight bytes, each as chosen by four bits: the fourth asks for its sign."""
    only(i, ())
    low, high, chosen = _reads(c, i, "b32", 3)
    wide = [c.let(f"zext i32 {v} to i64") for v in (low, high)]
    both = c.let(f"or i64 {c.let(f'shl i64 {wide[1]}, 32')}, {wide[0]}")
    result = "0"
    for k in range(4):
        nibble = c.let(f"lshr i32 {chosen}, {4 * k}")
        bits = c.let(f"shl i32 {c.let(f'and i32 {nibble}, 7')}, 3")
        byte = c.let(f"lshr i64 {both}, {c.let(f'zext i32 {bits} to i64')}")
        narrow = c.let(f"trunc i64 {byte} to i8")
        sign = c.let(f"ashr i8 {narrow}, 7")
        asked = c.let(f"icmp ne i32 {c.let(f'and i32 {nibble}, 8')}, 0")
        final = c.let(f"zext i8 {c.choose(asked, 'b8', sign, narrow)} to i32")
        result = c.let(f"or i32 {result}, {c.let(f'shl i32 {final}, {8 * k}')}")
    _write(c, i, result)


def _mask(c: Code, kind: str, length: str) -> str:
    """As many ones as `length` says, at most all."""
    bits = width(kind)
    least = c.intrinsic("umin", "u32", length, str(bits))
    wide = c.resized(least, "u32", "u64")
    one = c.let(f"zext i64 {wide} to i128")
    ones = c.let(f"sub i128 {c.let(f'shl i128 1, {one}')}, 1")
    return c.let(f"trunc i128 {ones} to {LLVM[kind]}")


def _insert(c: Code, i: Instruction) -> None:
    """bfi: the low bits of a, in the place of bits of b."""
    only(i, ())
    kind = _kind(i)
    a, b = _reads(c, i, kind, 2)
    at, length = c.read(i.operands[3], "u32"), c.read(i.operands[4], "u32")
    at = c.resized(c.binary("and", "u32", at, str(width(kind) - 1)), "u32", kind)
    field = c.binary("shl", kind, _mask(c, kind, length), at)
    placed = c.binary("and", kind, c.binary("shl", kind, a, at), field)
    rest = c.binary("and", kind, b, c.binary("xor", kind, field, "-1"))
    _write(c, i, c.binary("or", kind, placed, rest))


def _extract(c: Code, i: Instruction) -> None:
    """bfe: some bits of a number, of which the highest may be a sign."""
    only(i, ())
    kind, bits = _kind(i), width(_kind(i))
    (a,) = _reads(c, i, kind, 1)
    at, length = (c.binary("and", "u32", c.read(o, "u32"), "255") for o in i.operands[2:4])
    big = c.let(f"{'sext' if is_signed(kind) else 'zext'} {LLVM[kind]} {a} to i128")
    start = c.intrinsic("umin", "u32", at, str(bits))
    moved = c.let(f"ashr i128 {big}, {c.let(f'zext i32 {start} to i128')}")
    if not is_signed(kind):
        field = c.let(f"trunc i128 {moved} to {LLVM[kind]}")
        _write(c, i, c.binary("and", kind, field, _mask(c, kind, length)))
        return
    room = c.let(f"sub i32 128, {c.intrinsic('umin', 'u32', length, str(bits))}")
    wide = c.let(f"zext i32 {room} to i128")
    nothing = c.test("icmp eq", "u32", length, "0")
    safe = c.let(f"select i1 {nothing}, i128 0, i128 {wide}")
    high = c.let(f"ashr i128 {c.let(f'shl i128 {moved}, {safe}')}, {safe}")
    field = c.let(f"trunc i128 {high} to {LLVM[kind]}")
    _write(c, i, c.choose(nothing, kind, "0", field))


def _count(c: Code, i: Instruction) -> None:
    """popc, clz: 32-bit results of any width."""
    only(i, ())
    kind = _kind(i)
    (a,) = _reads(c, i, kind, 1)
    if i.parts[0] == "popc":
        found = c.intrinsic("ctpop", kind, a)
    else:
        found = c.intrinsic("ctlz", kind, a, flags="false")
    _write(c, i, c.resized(found, f"u{width(kind)}", "u32"), "u32")


def _find(c: Code, i: Instruction) -> None:
    """bfind: the place of the highest one (of a negative number: the highest zero), else -1."""
    only(i, ("shiftamt",))
    kind, bits = _kind(i), width(_kind(i))
    (a,) = _reads(c, i, kind, 1)
    if is_signed(kind):
        a = c.binary("xor", kind, a, c.binary("ashr", kind, a, str(bits - 1)))
    zeros = c.resized(c.intrinsic("ctlz", kind, a, flags="false"), f"u{bits}", "u32")
    nothing = c.test("icmp eq", kind, a, "0")
    if "shiftamt" not in i.parts:
        zeros = c.binary("sub", "u32", str(bits - 1), zeros)
    _write(c, i, c.choose(nothing, "u32", "-1", zeros), "u32")


def _reverse(c: Code, i: Instruction) -> None:
    only(i, ())
    (a,) = _reads(c, i, _kind(i), 1)
    _write(c, i, c.intrinsic("bitreverse", _kind(i), a))


def _table(c: Code, i: Instruction) -> None:
    """lop3: any function of three bits, by its table of truth."""
    only(i, ())
    values = _reads(c, i, "b32", 3)
    table = int(i.operands[4], 0)
    not_values = [c.binary("xor", "b32", v, "-1") for v in values]
    result = "0"
    for row in range(8):
        if table >> row & 1:
            bits = [row >> 2 & 1, row >> 1 & 1, row & 1]
            picked = [v if b else n for v, n, b in zip(values, not_values, bits, strict=True)]
            both = c.binary("and", "b32", picked[0], picked[1])
            result = c.binary("or", "b32", result, c.binary("and", "b32", both, picked[2]))
    _write(c, i, result)


def _dot(c: Code, i: Instruction) -> None:
    """Products added up (dp4a): of the bytes of two words; (dp2a) of a word's halves with its
    lower or upper two bytes of another.
    """
    only(i, ("lo", "hi"))
    pairs = i.parts[0] == "dp2a"
    kinds, words = i.parts[-2:], _reads(c, i, "b32", 2)
    first = 16 if "hi" in i.parts else 0
    total = c.read(i.operands[3], "b32")
    for k in range(2 if pairs else 4):
        places = (16 * k, first + 8 * k) if pairs else (8 * k, 8 * k)
        wide: list[str] = []
        for word, at, kind, bits in zip(words, places, kinds, (16 if pairs else 8, 8), strict=True):
            part = c.let(f"trunc i32 {c.binary('lshr', 'b32', word, str(at))} to i{bits}")
            wide.append(c.resized(part, f"{kind[0]}{bits}", f"{kind[0]}32"))
        total = c.binary("add", "b32", total, c.binary("mul", "b32", *wide))
    _write(c, i, total, "b32")


# ---- comparing and choosing

_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
            "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
            "num": "ord", "nan": "uno"}  # fmt: skip


def _compared(c: Code, i: Instruction) -> str:
    kind, name = _kind(i), i.parts[1]
    a, b = _reads(c, i, kind, 2)
    if kind in FLOATS:
        if "ftz" in i.parts:
            a, b = _flushed(c, i, a), _flushed(c, i, b)
        return c.test(f"fcmp {_ORDERED[name]}", kind, a, b)
    if name in ("eq", "ne"):
        return c.test(f"icmp {name}", kind, a, b)
    full = _UNSIGNED.get(name) or f"{'s' if is_signed(kind) else 'u'}{name}"
    return c.test(f"icmp {full}", kind, a, b)


def _set_predicate(c: Code, i: Instruction) -> None:
    only(i, (*_ORDERED, *_UNSIGNED, "and", "or", "xor", "ftz"))
    both = i.operands[0].split("|")
    found = _compared(c, i)
    connect = [p for p in i.parts[2:] if p in ("and", "or", "xor")]
    results = [found, c.let(f"xor i1 {found}, true")]
    if connect:
        other = c.read(i.operands[3], "pred")
        results = [c.let(f"{connect[0]} i1 {r}, {other}") for r in results]
    for register, value in zip(both, results, strict=False):
        c.write(register.strip(), value, "pred")


def _select(c: Code, i: Instruction) -> None:
    only(i, ())
    a, b = _reads(c, i, _kind(i), 2)
    _write(c, i, c.choose(c.read(i.operands[3], "pred"), _kind(i), a, b))


def _select_by_sign(c: Code, i: Instruction) -> None:
    only(i, ())
    kind = i.parts[-2]
    a, b = _reads(c, i, kind, 2)
    x = c.read(i.operands[3], _kind(i))
    name = "fcmp oge" if _kind(i) == "f32" else "icmp sge"
    zero = "0.0" if _kind(i) == "f32" else "0"
    _write(c, i, c.choose(c.test(name, _kind(i), x, zero), kind, a, b), kind)


# ---- moving


def _move(c: Code, i: Instruction) -> None:
    only(i, ())
    kind = _kind(i)
    target, source = i.operands[0], i.operands[1]
    if target.startswith("{"):
        whole, parts = c.read(source, kind), c.vector(target)
        bits = width(kind) // len(parts)
        for k, part in enumerate(parts):
            moved = c.binary("lshr", kind, whole, str(k * bits))
            c.write(part, c.resized(moved, kind, f"b{bits}"), f"b{bits}")
    elif source.startswith("{"):
        parts = c.vector(source)
        bits = width(kind) // len(parts)
        whole = "0"
        for k, part in enumerate(parts):
            wide = c.resized(c.read(part, f"b{bits}"), f"b{bits}", kind)
            moved = c.binary("shl", kind, wide, str(k * bits))
            whole = c.binary("or", kind, whole, moved)
        c.write(target, whole, kind)
    else:
        c.write(target, c.read(source, kind), kind)


RULES: dict[str, Rule] = {
    "add": _sum, "sub": _sum, "addc": _sum_with_carry, "subc": _sum_with_carry,
    "mul": _multiply, "mad": _multiply_add, "fma": _multiply_add, "madc": _multiply_add,
    "div": _divide, "rem": _divide, "neg": _negate, "abs": _absolute, "min": _extreme,
    "max": _extreme, **dict.fromkeys(_APPROXIMATED, _function), "copysign": _copysign,
    "testp": _property, "and": _bitwise, "or": _bitwise, "xor": _bitwise, "not": _invert,
    "shl": _shift, "shr": _shift, "shf": _funnel, "prmt": _permute, "bfi": _insert,
    "bfe": _extract, "dp4a": _dot, "dp2a": _dot, "popc": _count, "clz": _count, "bfind": _find,
    "brev": _reverse,
    "lop3": _table, "setp": _set_predicate, "selp": _select, "slct": _select_by_sign, "mov": _move,
}  # fmt: skip

assert all(kind in SIZES for kind in LLVM), "every type has a size"
