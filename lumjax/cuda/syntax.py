"""PTX text as NVRTC writes it -> functions, arrays and instructions. Nothing is interpreted here.

A scope in braces (inline assembly, a call's parameters) is dissolved: what it declares gets names
of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lumjax.errors import UnsupportedError
from lumjax.record import record

SIZES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8,
}  # fmt: skip

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LABEL = re.compile(r"([\w$]+)\s*:(?!:)")
_ARRAY = re.compile(
    r"(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?P<name>[\w$]+)"
    r"(?P<sized>\[(?P<count>\d*)\])?\s*(?:=\s*(?P<data>.*))?$",
    re.DOTALL,
)
_FUNCTION = re.compile(
    r"(?P<links>(?:\.(?:visible|weak|extern)\s+)*)\.(?P<kind>entry|func)\s*"
    r"(?:\((?P<returns>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*(?:\((?P<params>[^)]*)\))?(?P<rest>[^;{]*)",
    re.DOTALL,
)
_WORD = re.compile(r"%?[\w$]+")


@record
class Array:
    """Named memory: of a module, a block (shared), a thread (local), or one parameter (param).

    A `size` of 0 is as much shared memory as the launch gives. `data`: what it holds at first.
    """

    name: str
    space: str
    align: int
    size: int
    type: str
    data: bytes | None = None
    scalar: bool = False


@record
class Label:
    """A place to jump to."""

    name: str


@record
class Instruction:
    """One instruction: its name in parts, its operands as they are written, the predicate it runs
    under ("%p1", "!%p1" or ""), and the line of the CUDA source, 0 if that is not known.
    """

    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str
    line: int

    @property
    def name(self) -> str:
        """The whole name."""
        return ".".join(self.parts)

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.name} {', '.join(self.operands)}"


@dataclass(slots=True)
class Function:
    """A kernel (`entry`) or a device function; without a body if it is defined elsewhere."""

    name: str
    entry: bool
    returns: tuple[Array, ...]
    params: tuple[Array, ...]
    external: bool = False
    registers: dict[str, str] = field(default_factory=dict[str, str])
    arrays: list[Array] = field(default_factory=list[Array])
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    prototypes: dict[str, tuple[tuple[Array, ...], tuple[Array, ...]]] = field(
        default_factory=dict[str, tuple[tuple[Array, ...], tuple[Array, ...]]]
    )
    body: list[Instruction | Label] = field(default_factory=list[Instruction | Label])


@dataclass(slots=True)
class Module:
    """A whole text: its functions by name, and the arrays outside of them."""

    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    arrays: list[Array] = field(default_factory=list[Array])


def unknown(what: str) -> UnsupportedError:
    """The error for PTX that the executor doesn't know."""
    return UnsupportedError(
        operation="executing PTX on the CPU",
        required="instructions and directives that the executor knows",
        got=what,
        fix="add it to lumjax/cuda, or leave it out of what is rendered",
    )


def parse(text: str) -> Module:
    """A module's text taken apart.

    Raises UnsupportedError for a directive that is not known.
    """
    return _Parser(_COMMENT.sub(" ", text)).module()


def split(text: str) -> tuple[str, ...]:
    """The parts of a list, brackets of any kind kept whole."""
    parts, depth, begin = list[str](), 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    return (*parts, last) if last else tuple(parts)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.line = 0
        self.scopes: list[dict[str, str]] = []
        self.made = 0

    # ---- characters

    def skip(self) -> bool:
        """Go to what is not white; whether there is anything."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at < len(self.text)

    def until(self, end: str) -> str:
        """The text up to an end outside of brackets, which is passed."""
        begin, depth = self.at, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == end and depth == 0:
                break
            depth += (char in "([{") - (char in ")]}")
            self.at += 1
        self.at += 1
        return self.text[begin : self.at - 1].strip()

    def braces(self) -> None:
        """Pass a block in braces."""
        self.at = self.text.index("{", self.at) + 1
        self.until("}")

    # ---- a module

    def module(self) -> Module:
        module = Module()
        while self.skip():
            head = self.text[self.at :].split(None, 1)[0]
            if head in (".version", ".target", ".address_size", ".file"):
                self.until("\n")
            elif head == ".section":
                self.braces()
            elif head.startswith(".") and _FUNCTION.match(self.text, self.at):
                function = self.function()
                known = module.functions.get(function.name)
                if known is None or known.external:
                    module.functions[function.name] = function
            else:
                statement = self.until(";")
                array = self.array(statement)
                if array is None:
                    raise unknown(statement.split("\n")[0])
                module.arrays.append(array)
        return module

    def function(self) -> Function:
        match = _FUNCTION.match(self.text, self.at)
        assert match is not None, "looked at before"
        returns = self.parameters(match["returns"])
        params = self.parameters(match["params"])
        made = Function(match["name"], match["kind"] == "entry", returns, params)
        self.at = match.end()
        if self.text[self.at] == ";":
            self.at += 1
            made.external = True
            return made
        self.at += 1
        self.scopes = [{}]
        self.line = 0
        while self.scopes:
            self.skip()
            self.statement(made)
        return made

    def parameters(self, text: str | None) -> tuple[Array, ...]:
        found = [self.array(part) for part in split(text or "")]
        return tuple(a for a in found if a is not None)

    def array(self, statement: str) -> Array | None:
        """A declaration of memory; None for anything else."""
        words = statement.split(None, 1)
        while len(words) == 2 and words[0] in (".visible", ".extern", ".weak", ".common"):
            words = words[1].split(None, 1)
        if len(words) < 2 or words[0][1:] not in ("global", "const", "shared", "local", "param"):
            return None
        match = _ARRAY.match(words[1].replace(".ptr", ""))
        if match is None or match["type"] not in SIZES:
            return self.pointer(words[0][1:], words[1])
        width = SIZES[match["type"]]
        count = int(match["count"] or 0) if match["sized"] else 1
        data = None if match["data"] is None else _data(match["data"], match["type"], width * count)
        align = int(match["align"] or width)
        scalar = not match["sized"]
        return Array(match["name"], words[0][1:], align, width * count, match["type"], data, scalar)

    def pointer(self, space: str, text: str) -> Array | None:
        """A parameter that is declared as a pointer (`.u64 .ptr .global .align 16 name`)."""
        words = text.split()
        kind = words[0][1:]
        if space != "param" or kind not in SIZES:
            return None
        return Array(words[-1], space, SIZES[kind], SIZES[kind], kind, None, True)

    # ---- a function's body

    def statement(self, made: Function) -> None:
        char = self.text[self.at]
        if char == "{":
            self.at += 1
            self.scopes.append({})
            return
        if char == "}":
            self.at += 1
            self.scopes.pop()
            return
        label = _LABEL.match(self.text, self.at)
        if label is not None:
            self.at = label.end()
            self.labelled(made, label[1])
            return
        if re.compile(r"\.loc\s").match(self.text, self.at):
            words = self.until("\n").replace(",", " ").split()
            self.line = int(words[2])
            return
        self.plain(made, self.until(";"))

    def labelled(self, made: Function, name: str) -> None:
        self.skip()
        if self.text.startswith(".branchtargets", self.at):
            made.tables[name] = split(self.until(";").removeprefix(".branchtargets"))
        elif self.text.startswith(".callprototype", self.at):
            text = self.until(";").removeprefix(".callprototype").strip()
            match = re.match(r"(?:\(([^)]*)\)\s*)?_\s*\(([^)]*)\)", text, re.DOTALL)
            if match is None:
                raise unknown(text)
            made.prototypes[name] = self.parameters(match[1]), self.parameters(match[2])
        else:
            made.body.append(Label(self.renamed(name, declare=len(self.scopes) > 1)))

    def plain(self, made: Function, statement: str) -> None:
        if statement.startswith(".reg"):
            self.registers(made, statement)
            return
        if statement.startswith((".pragma", ".maxntid", ".minnctapersm")):
            return
        if statement.startswith("."):
            array = self.array(statement)
            if array is None:
                raise unknown(statement)
            name = self.renamed(array.name, declare=len(self.scopes) > 1)
            made.arrays.append(
                Array(name, array.space, array.align, array.size, array.type, array.data,
                      array.scalar)
            )  # fmt: skip
            return
        made.body.append(self.instruction(statement))

    def registers(self, made: Function, statement: str) -> None:
        kind, names = re.sub(r"\s+", " ", statement).removeprefix(".reg .").split(" ", 1)
        if kind not in SIZES:
            raise unknown(statement)
        for name in split(names):
            many = re.match(r"(%?[\w$]+)<(\d+)>$", name)
            each = [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [name]
            for register in each:
                made.registers[self.renamed(register, declare=len(self.scopes) > 1)] = kind

    def instruction(self, statement: str) -> Instruction:
        guard = ""
        if statement.startswith("@"):
            guard, statement = re.split(r"\s+", statement[1:], maxsplit=1)
        words = re.split(r"\s+", statement, maxsplit=1)
        operands = split(words[1]) if len(words) > 1 else ()
        if len(self.scopes) > 1 and any(self.scopes[1:]):
            guard = self.resolved(guard)
            operands = tuple(map(self.resolved, operands))
        return Instruction(tuple(words[0].split(".")), operands, guard, self.line)

    def renamed(self, name: str, declare: bool) -> str:
        """The name that stands for one declared in an inner scope."""
        if not declare:
            return name
        if name not in self.scopes[-1]:
            self.made += 1
            self.scopes[-1][name] = f"{name}$$s{self.made}"
        return self.scopes[-1][name]

    def resolved(self, text: str) -> str:
        """An operand with the names of the innermost scopes that declare them."""

        def one(match: re.Match[str]) -> str:
            for scope in reversed(self.scopes):
                if match[0] in scope:
                    return scope[match[0]]
            return match[0]

        return _WORD.sub(one, text)


def _data(text: str, kind: str, size: int) -> bytes:
    """What an array holds at first."""
    width = SIZES[kind]
    items = _numbers(split(text.strip().strip("{}")))
    data = b"".join((n % (1 << 8 * width)).to_bytes(width, "little") for n in items)
    return data.ljust(size, b"\0")


def _numbers(items: Sequence[str]) -> Iterator[int]:
    for item in items:
        if item[:2] in ("0f", "0F", "0d", "0D"):
            yield int(item[2:], 16)
        else:
            yield int(item.rstrip("U"), 0)
