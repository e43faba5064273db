"""The text emitter: LLVM IR with hoisting and value numbering done as it is written.

No optimisation pass runs afterwards, so `Function` itself keeps pure instructions unique and places
each in the outermost open scope where its operands exist. A loop's body is a scope; a loop that may
run zero times has a second one, its guarded preheader, so that hoisted loads only run when the body
does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache

from lumjax.record import record

_NAME = re.compile(r"%[\w.]+")
_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64, "half": 16}
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


@record
class Reg:
    """A value: an SSA name or a constant, of an LLVM element type and a number of lanes."""

    text: str
    type: str
    lanes: int = 1

    @property
    def full(self) -> str:
        """The LLVM type."""
        return vector(self.type, self.lanes)

    def __str__(self) -> str:
        return f"{self.full} {self.text}"


def vector(type: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements; one lane is a scalar."""
    return f"<{lanes} x {type}>" if lanes > 1 else type


def bits(type: str) -> int:
    """The width of an element type."""
    return _BITS[type]


def literal(type: str, value: float | int) -> str:
    """A constant of an element type. Floats are written as bits, which is exact."""
    if type == "float":
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if type == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return _whole(type, int(value)) if type != "i1" else "true" if value else "false"


@lru_cache(maxsize=4096)
def _whole(type: str, value: int) -> str:
    width = bits(type)
    number = value & ((1 << width) - 1)
    return str(number - (1 << width) if number >> (width - 1) else number)


def constant(type: str, value: float | int, lanes: int = 1) -> Reg:
    """A constant with the same value in every lane."""
    text = literal(type, value)
    return Reg(f"splat ({type} {text})" if lanes > 1 else text, type, lanes)


def listed(type: str, values: Sequence[float | int]) -> Reg:
    """A constant vector."""
    inner = ", ".join(f"{type} {literal(type, v)}" for v in values)
    return Reg(f"<{inner}>" if len(values) > 1 else literal(type, values[0]), type, len(values))


def number(reg: Reg) -> int | None:
    """The value of a constant scalar integer, else None."""
    if reg.type == "i1" and reg.text in ("true", "false"):
        return int(reg.text == "true")
    text = reg.text
    return int(text) if reg.lanes == 1 and text.lstrip("-").isdigit() else None


def everywhere(reg: Reg) -> int | None:
    """The value that a constant integer has in every lane, else None."""
    if reg.lanes == 1:
        return number(reg)
    _, _, text = reg.text.removesuffix(")").rpartition(f"splat ({reg.type} ")
    return int(text) if text.lstrip("-").isdigit() else None


def is_zero(reg: Reg) -> bool:
    """Whether a constant has no bit set."""
    return reg.text in ("0", "false", "0x0000000000000000")


@dataclass(slots=True, eq=False)
class Scope:
    """Straight-line code under construction, its current block, and the values it has computed."""

    depth: int
    label: str
    conditional: bool = False  # nothing may be hoisted out of it
    guarded: bool = False  # no load may be hoisted out of it
    lines: list[str] = field(default_factory=list[str])
    memo: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class LoopFrame:
    """What `Function.loop` yields: the variable and the carried values, to replace in `carried`."""

    index: Reg
    carried: list[Reg]
    results: list[Reg] = field(default_factory=list[Reg])


@dataclass(slots=True)
class Module:
    """Functions, helper functions written once, and declarations."""

    functions: list[str] = field(default_factory=list[str])
    helpers: set[str] = field(default_factory=set[str])
    declarations: dict[str, str] = field(default_factory=dict[str, str])
    imports: set[str] = field(default_factory=set[str])  # C library functions
    half: bool = False  # whether the machine converts float16
    fma: bool = True  # whether it has fused multiply-add
    scalef: bool = False  # whether it scales floats by powers of two

    def declare(self, name: str, result: str, arguments: Iterable[str]) -> None:
        """Note that `name` is called."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"

    def text(self) -> str:
        """The whole module."""
        return "\n".join(
            [*self.functions, *(self.declarations[n] for n in sorted(self.declarations)), ""]
        )


class Function:
    """One function of a module."""

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[Reg],
        result: str = "void",
        internal: bool = False,
    ) -> None:
        self.module = module
        self.name = name
        linkage = "internal " if internal else ""
        listing = ", ".join(map(str, parameters))
        self._head = f"define {linkage}{result} @{name}({listing}) nounwind"
        self._count = 0
        self._scopes = [Scope(0, "entry")]
        self._home: dict[str, Scope] = {}

    @property
    def scope(self) -> Scope:
        """The innermost open scope."""
        return self._scopes[-1]

    @property
    def guard(self) -> Scope:
        """The outermost open scope that runs only if the current one does."""
        return next((s for s in reversed(self._scopes) if s.guarded), self._scopes[0])

    def fresh(self, prefix: str = "t") -> str:
        """A new name, without a sigil."""
        self._count += 1
        return f"{prefix}{self._count}"

    def effect(self, text: str) -> None:
        """An instruction with a side effect, here."""
        self.scope.lines.append("  " + text)

    def depth(self, reg: Reg) -> int:
        """How deep the scope that holds a register is."""
        found = self._home.get(reg.text)
        return found.depth if found is not None else 0

    def _place(self, text: str, floor: Scope | None) -> Scope:
        home = self._scopes[0]
        if len(self._scopes) == 1:
            return home
        for operand in _NAME.findall(text):
            found = self._home.get(operand)
            if found is not None and found.depth > home.depth:
                home = found
        if floor is not None and floor.depth > home.depth:
            home = floor
        for scope in reversed(self._scopes):
            if scope.depth <= home.depth:
                break
            if scope.conditional:
                return scope
        return home

    def pure(self, text: str, floor: Scope | None = None, version: int = 0) -> str:
        """The result of a pure instruction, not placed above `floor`; equal ones are shared.

        `version` tells apart loads that may see different memory.
        """
        home = self._place(text, floor)
        key = f"{version} {text}" if version else text
        for scope in self._scopes[: home.depth + 1]:
            found = scope.memo.get(key)
            if found is not None:
                return found
        name = "%" + self.fresh()
        home.lines.append(f"  {name} = {text}")
        home.memo[key] = name
        self._home[name] = home
        return name

    def here(self, text: str) -> str:
        """The result of an instruction that must stay in the current scope and is not shared."""
        name = "%" + self.fresh()
        self.scope.lines.append(f"  {name} = {text}")
        self._home[name] = self.scope
        return name

    def first(self, text: str) -> str:
        """The result of an instruction at the function's very start (an alloca)."""
        name = "%" + self.fresh()
        self._scopes[0].lines.insert(0, f"  {name} = {text}")
        return name

    # ---- arithmetic on registers

    def binary(self, operation: str, a: Reg, b: Reg) -> Reg:
        """A two-operand instruction whose result has the operands' type."""
        return Reg(self.pure(f"{operation} {a}, {b.text}"), a.type, a.lanes)

    def compare(self, predicate: str, a: Reg, b: Reg) -> Reg:
        """`icmp` or `fcmp` with a predicate."""
        return Reg(self.pure(f"{predicate} {a}, {b.text}"), "i1", a.lanes)

    def convert(self, operation: str, a: Reg, type: str) -> Reg:
        """A conversion instruction to another element type with the same number of lanes."""
        return Reg(self.pure(f"{operation} {a} to {vector(type, a.lanes)}"), type, a.lanes)

    def select(self, condition: Reg, a: Reg, b: Reg) -> Reg:
        """Per lane: a where the condition holds, else b."""
        if a.text == b.text:
            return a
        return Reg(self.pure(f"select {condition}, {a}, {b}"), a.type, a.lanes)

    def negate(self, a: Reg) -> Reg:
        """The float with its sign flipped."""
        return Reg(self.pure(f"fneg {a}"), a.type, a.lanes)

    def intrinsic(self, name: str, *operands: Reg, extra: str = "") -> Reg:
        """An overloaded intrinsic whose result has the first operand's type; `extra` comes last."""
        a = operands[0]
        suffix = _SUFFIX.get(a.type, a.type)
        full = f"{name}.{f'v{a.lanes}' if a.lanes > 1 else ''}{suffix}"
        kinds = [o.full for o in operands] + ([extra.split()[0]] if extra else [])
        self.module.declare(full, a.full, kinds)
        values = ", ".join([*map(str, operands), *([extra] if extra else [])])
        return Reg(self.pure(f"call {a.full} @{full}({values})"), a.type, a.lanes)

    def splat(self, a: Reg, lanes: int) -> Reg:
        """A scalar in every lane; registers of the right width pass through."""
        if a.lanes == lanes:
            return a
        if not a.text.startswith("%"):
            return Reg(f"splat ({a.type} {a.text})", a.type, lanes)
        kind = vector(a.type, lanes)
        one = self.pure(f"insertelement {kind} poison, {a}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return Reg(self.pure(f"shufflevector {kind} {one}, {kind} poison, {zeros}"), a.type, lanes)

    def lane(self, a: Reg, k: int) -> Reg:
        """One lane of a vector."""
        return a if a.lanes == 1 else Reg(self.pure(f"extractelement {a}, i64 {k}"), a.type)

    def gather_lanes(self, scalars: Sequence[Reg]) -> Reg:
        """The vector of some scalars."""
        if len(scalars) == 1:
            return scalars[0]
        kind = vector(scalars[0].type, len(scalars))
        text = "poison"
        for k, one in enumerate(scalars):
            text = self.pure(f"insertelement {kind} {text}, {one}, i64 {k}")
        return Reg(text, scalars[0].type, len(scalars))

    def shuffle(self, a: Reg, b: Reg | None, picks: Sequence[int]) -> Reg:
        """Lanes picked from a, then b."""
        mask = ", ".join(f"i32 {p}" for p in picks)
        second = b.text if b is not None else "poison"
        text = self.pure(f"shufflevector {a}, {a.full} {second}, <{len(picks)} x i32> <{mask}>")
        return Reg(text, a.type, len(picks))

    # ---- 64-bit index arithmetic with folding

    def add(self, a: Reg, b: Reg) -> Reg:
        """The sum."""
        x, y = number(a), number(b)
        if x is not None and y is not None:
            return constant("i64", x + y, max(a.lanes, b.lanes))
        if y == 0 or x == 0:
            return a if y == 0 else b
        return self.binary("add", a, b)

    def multiply(self, a: Reg, b: Reg) -> Reg:
        """The product."""
        x, y = number(a), number(b)
        if x is not None and y is not None:
            return constant("i64", x * y, max(a.lanes, b.lanes))
        if y == 1 or x == 1:
            return a if y == 1 else b
        if x == 0 or y == 0:
            return constant("i64", 0, a.lanes)
        return self.binary("mul", a, b)

    def element(self, type: str, pointer: str, index: Reg) -> str:
        """The address of an element."""
        if index.text == "0":
            return pointer
        return self.pure(f"getelementptr {type}, ptr {pointer}, {index}")

    # ---- control flow

    def label(self, name: str) -> None:
        """Start a block in the current scope."""
        self.scope.lines.append(f"{name}:")
        self.scope.label = name

    def _open(self, label: str, conditional: bool = False, guarded: bool = False) -> Scope:
        scope = Scope(len(self._scopes), label, conditional, guarded)
        self._scopes.append(scope)
        return scope

    @contextmanager
    def loop(self, begin: Reg, end: Reg, step: int, carried: Sequence[Reg]) -> Generator[LoopFrame]:
        """The block for index in range(begin, end, step); `results` are the values after it."""
        first, last = number(begin), number(end)
        runs = first is not None and last is not None and first < last
        parent, header, after = self.scope, self.fresh("L"), self.fresh("X")
        before = self.fresh("P")
        enters = "true" if runs else self.compare("icmp slt", begin, end).text
        pre = parent if runs else self._open(before, guarded=True)
        body = self._open(header)
        index = Reg("%" + self.fresh("i"), "i64")
        names = [Reg("%" + self.fresh("c"), c.type, c.lanes) for c in carried]
        for reg in (index, *names):
            self._home[reg.text] = body
        frame = LoopFrame(index, list(names))
        yield frame
        following = self.here(f"add nsw {index}, {step}")
        again = self.here(f"icmp slt i64 {following}, {end.text}")
        self.effect(f"br i1 {again}, label %{header}, label %{after}")
        self._scopes.pop()
        phis: list[str] = []
        triples = [(index, begin.text, following)]
        triples += [
            (n, c.text, v.text) for n, c, v in zip(names, carried, frame.carried, strict=True)
        ]
        for name, start, value in triples:
            arms = f"[{start}, %{pre.label}], [{value}, %{body.label}]"
            phis.append(f"  {name.text} = phi {name.full} {arms}")
        pre.lines += [f"  br label %{header}", f"{header}:", *phis, *body.lines]
        skipped = parent.label
        if not runs:
            self._scopes.pop()
            parent.lines += [
                f"  br i1 {enters}, label %{before}, label %{after}",
                f"{before}:",
                *pre.lines,
            ]
        self.label(after)
        for start, value in zip(carried, frame.carried, strict=True):
            arms = f"[{value.text}, %{body.label}]"
            if not runs:
                arms = f"[{start.text}, %{skipped}], " + arms
            frame.results.append(replace(start, text=self.here(f"phi {start.full} {arms}")))

    @contextmanager
    def branch(self, condition: Reg, before: Sequence[Reg]) -> Generator[LoopFrame]:
        """The block where condition holds; it may replace the `before` values through `carried`."""
        frame = LoopFrame(condition, list(before))
        if number(condition) == 1:
            yield frame
            frame.results = frame.carried
            return
        parent, then, join = self.scope, self.fresh("T"), self.fresh("J")
        body = self._open(then, conditional=True, guarded=True)
        yield frame
        self.effect(f"br label %{join}")
        self._scopes.pop()
        skipped = parent.label
        parent.lines += [f"  br {condition}, label %{then}, label %{join}", f"{then}:", *body.lines]
        self.label(join)
        for old, new in zip(before, frame.carried, strict=True):
            if old.text == new.text:
                frame.results.append(old)
            else:
                arms = f"[{old.text}, %{skipped}], [{new.text}, %{body.label}]"
                frame.results.append(replace(old, text=self.here(f"phi {old.full} {arms}")))

    def finish(self, result: Reg | None = None) -> None:
        """Return, and add the function to its module."""
        self.effect(f"ret {result}" if result is not None else "ret void")
        body = "\n".join(self.scope.lines)
        self.module.functions.append(f"{self._head} {{\nentry:\n{body}\n}}\n")
