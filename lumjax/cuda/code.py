"""The LLVM text of one PTX function as it is written: registers, operands, small helpers.

PTX registers are stack slots, which LLVM's passes turn into values. A register may be wider than
what an instruction reads or writes; a value written is extended by the instruction's type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lumjax.cuda.syntax import SIZES, Function, Instruction, unknown

LLVM = {
    "pred": "i1", "b8": "i8", "u8": "i8", "s8": "i8", "b16": "i16", "u16": "i16", "s16": "i16",
    "f16": "i16", "bf16": "i16", "b32": "i32", "u32": "i32", "s32": "i32", "f32": "float",
    "b64": "i64", "u64": "i64", "s64": "i64", "f64": "double",
}  # fmt: skip
FLOATS = ("f32", "f64")
_SPECIAL = re.compile(r"%(n?(?:tid|ctaid))\.([xyz])$")


def is_signed(kind: str) -> bool:
    """Whether values of a PTX type are signed integers."""
    return kind.startswith("s")


def width(kind: str) -> int:
    """The bits of a PTX type."""
    return 8 * SIZES[kind]


class Code:
    """Instructions of one function, and what its names mean.

    `thread` and `block` are offsets of the fields of the two structures that a thread runs with;
    `symbols` are addresses of arrays: LLVM values of type i64.
    """

    def __init__(
        self,
        function: Function,
        thread: Mapping[str, tuple[int, str]],
        block: Mapping[str, tuple[int, str]],
    ) -> None:
        self.function, self.thread, self.block = function, thread, block
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.symbols: dict[str, str] = {}
        self.params: dict[str, str] = {}  # arrays of the param space: pointers
        self.made = 0
        self.carry = False  # whether an instruction sets or reads the carry flag

    # ---- text

    def fresh(self) -> str:
        """A name that is new."""
        self.made += 1
        return f"%t{self.made}"

    def add(self, line: str) -> None:
        """A line without a result."""
        self.lines.append(f"  {line}")

    def let(self, line: str) -> str:
        """A line whose result is named: the name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {line}")
        return name

    def label(self, name: str) -> None:
        """A block begins."""
        self.lines.append(f"{name}:")

    def block_name(self) -> str:
        """A name for a block."""
        self.made += 1
        return f"b{self.made}"

    def call(self, result: str, name: str, args: Sequence[tuple[str, str]]) -> str:
        """A call of a function of LLVM or of the executor, which is declared."""
        kinds = ", ".join(kind for kind, _ in args)
        self.declared[name] = f"declare {result} @{name}({kinds})"
        text = f"call {result} @{name}({', '.join(f'{k} {v}' for k, v in args)})"
        if result == "void":
            self.add(text)
            return ""
        return self.let(text)

    def support(self, result: str, name: str, args: Sequence[tuple[str, str]]) -> str:
        """A call of the executor's own code, of values of PTX types: such code takes and gives the
        bits of floats as integers.
        """
        bits = [(f"i{width(k)}", self.fitted(v, k, f"b{width(k)}")) for k, v in args]
        return self.fitted(self.call(f"i{width(result)}", name, bits), f"b{width(result)}", result)

    # ---- fields of the thread and its block

    def field(self, owner: str, name: str) -> str:
        """The value of a field."""
        offset, kind = (self.thread if owner == "thread" else self.block)[name]
        at = self.let(f"getelementptr i8, ptr %{owner}, i64 {offset}")
        return self.let(f"load {kind}, ptr {at}")

    def set_field(self, owner: str, name: str, value: str) -> None:
        """Give a field a value."""
        offset, kind = (self.thread if owner == "thread" else self.block)[name]
        at = self.let(f"getelementptr i8, ptr %{owner}, i64 {offset}")
        self.add(f"store {kind} {value}, ptr {at}")

    # ---- operands

    def register(self, name: str) -> str:
        """The PTX type of a register."""
        kind = self.function.registers.get(name)
        if kind is None:
            raise unknown(f"the name {name} in {self.function.name}")
        if kind not in LLVM:
            raise unknown(f"a register of type {kind}")
        return kind

    def read(self, operand: str, kind: str) -> str:
        """An operand's value, of the LLVM type of a PTX type."""
        if operand in self.function.registers:
            own = self.register(operand)
            value = self.let(f'load {LLVM[own]}, ptr %"{operand}"')
            return self.fitted(value, own, kind)
        if operand.startswith("!"):
            return self.let(f"xor i1 {self.read(operand[1:], 'pred')}, true")
        if operand.startswith("%"):
            return self.resized(self.special(operand), "u32", kind)
        if operand[:2] in ("0f", "0F", "0d", "0D"):
            return _float(operand, kind)
        if operand[0].isdigit() or operand[0] == "-":
            return self.integer(operand, kind)
        return self.resized(self.address_of(operand), "u64", kind)

    def integer(self, operand: str, kind: str) -> str:
        """A constant."""
        if kind in FLOATS:
            raise unknown(f"the integer {operand} as {kind}")
        value = int(operand.rstrip("U"), 0)
        return str(value) if kind != "pred" else ("true" if value else "false")

    def special(self, name: str) -> str:
        """A special register, as 32 bits."""
        match = _SPECIAL.match(name)
        if match is not None:
            field = f"{match[1]}_{match[2]}"
            return self.field("thread" if match[1] == "tid" else "block", field)
        if name in ("%laneid", "%warpid"):
            return self.field("thread", {"%laneid": "lane", "%warpid": "warp"}[name])
        if name.startswith("%lanemask_"):
            return self.lane_mask(name.removeprefix("%lanemask_"))
        raise unknown(f"the special register {name}")

    def lane_mask(self, which: str) -> str:
        """The lanes that compare so with one's own."""
        lane = self.field("thread", "lane")
        one = self.let(f"shl i32 1, {lane}")
        below = self.let(f"sub i32 {one}, 1")
        upto = self.let(f"or i32 {one}, {below}")
        found = {"eq": one, "lt": below, "le": upto}
        if which in found:
            return found[which]
        return self.let(f"xor i32 {upto if which == 'gt' else below}, -1")

    def address_of(self, text: str) -> str:
        """The address of an array, or one so many bytes after it."""
        name, _, offset = text.partition("+")
        if name not in self.symbols:
            raise unknown(f"the name {name} in {self.function.name}")
        base = self.symbols[name]
        return self.let(f"add i64 {base}, {int(offset, 0)}") if offset else base

    def write(self, operand: str, value: str, kind: str) -> None:
        """Give a register a value of a PTX type."""
        if operand == "_":
            return
        own = self.register(operand)
        self.add(f'store {LLVM[own]} {self.fitted(value, kind, own)}, ptr %"{operand}"')

    def fitted(self, value: str, kind: str, to: str) -> str:
        """The same bits under another type; an integer is extended by its type, or cut off."""
        if LLVM[kind] == LLVM[to]:
            return value
        if "pred" in (kind, to):
            raise unknown(f"a value of type {kind} as {to}")
        if SIZES[kind] == SIZES[to]:
            return self.let(f"bitcast {LLVM[kind]} {value} to {LLVM[to]}")
        if kind in FLOATS:
            whole = f"b{width(kind)}"
            value, kind = self.fitted(value, kind, whole), whole
        if to in FLOATS:
            return self.fitted(self.resized(value, kind, f"b{width(to)}"), f"b{width(to)}", to)
        return self.resized(value, kind, to)

    def resized(self, value: str, kind: str, to: str) -> str:
        """An integer extended or cut off."""
        if SIZES[kind] == SIZES[to]:
            return value
        step = "trunc" if SIZES[kind] > SIZES[to] else "sext" if is_signed(kind) else "zext"
        return self.let(f"{step} i{width(kind)} {value} to i{width(to)}")

    # ---- arithmetic

    def binary(self, name: str, kind: str, a: str, b: str) -> str:
        """An LLVM instruction of two operands of a PTX type."""
        return self.let(f"{name} {LLVM[kind]} {a}, {b}")

    def intrinsic(self, name: str, kind: str, *args: str, flags: str = "") -> str:
        """An LLVM intrinsic on operands of a PTX type."""
        low = LLVM[kind]
        suffix = {"float": "f32", "double": "f64"}.get(low, low)
        given = [(low, a) for a in args] + ([("i1", flags)] if flags else [])
        return self.call(low, f"llvm.{name}.{suffix}", given)

    def choose(self, condition: str, kind: str, a: str, b: str) -> str:
        """A selection."""
        return self.let(f"select i1 {condition}, {LLVM[kind]} {a}, {LLVM[kind]} {b}")

    def test(self, name: str, kind: str, a: str, b: str) -> str:
        """A comparison: `name` is LLVM's, with icmp or fcmp before it."""
        return self.let(f"{name} {LLVM[kind]} {a}, {b}")

    def vector(self, operand: str) -> tuple[str, ...]:
        """The registers of an operand in braces; a single one otherwise."""
        if operand.startswith("{"):
            return tuple(part.strip() for part in operand[1:-1].split(","))
        return (operand,)


def only(instruction: Instruction, allowed: Sequence[str]) -> None:
    """Raise for a modifier that nobody thought of."""
    for part in instruction.parts[1:]:
        if part not in allowed and part not in SIZES:
            raise unknown(f"{instruction} (because of .{part})")


def _float(operand: str, kind: str) -> str:
    """A floating constant, as LLVM or an integer of its bits."""
    bits = int(operand[2:], 16)
    if kind not in FLOATS:
        return str(bits)
    if operand[1] in "dD":
        return f"0x{bits:016X}"
    return f"bitcast (i32 {bits} to float)"
