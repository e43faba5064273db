"""PTX functions to LLVM IR.

A kernel becomes `i32 NAME(ptr thread, ptr block)`, which runs one thread until it ends or has to
wait for others; called again it goes on where it was. Device functions take their parameters as
they are, kernels find theirs in the block. `bare` code, that of the executor itself, has neither
thread nor block and is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lumjax.cuda.arithmetic import RULES
from lumjax.cuda.code import LLVM
from lumjax.cuda.conversion import convert
from lumjax.cuda.hopper import HOPPER, check_settled, is_move, tracked
from lumjax.cuda.machine import (
    AT_BARRIER,
    DONE,
    FAULT,
    MACHINE,
    Flow,
    listens,
    orders_blocks,
)
from lumjax.cuda.support import BLOCK, HANG, THREAD, TRAP
from lumjax.cuda.syntax import Array, Function, Instruction, Label, Module, unknown
from lumjax.cuda.tensor import TENSOR
from lumjax.record import record

_REGISTER = re.compile(r"%?[\w$]+")
# Instructions whose first operand is not a result.
_NO_RESULT = {"st", "red", "bra", "brx", "bar", "barrier", "ret", "exit", "trap", "membar", "fence",
              "call", "cp", "wgmma"}  # fmt: skip
_WAIT = {"bar", "barrier", "shfl", "vote", "ldmatrix", "mma", "mbarrier", "wgmma"}
_ENDS = {"ret", "exit", "trap", "bra", "brx"}

assert AT_BARRIER not in (DONE, FAULT), "waiting is neither"


@record
class Translated:
    """A module's LLVM text. For each kernel the bytes that a thread's frame takes."""

    text: str
    frames: Mapping[str, int]
    imports: tuple[str, ...]


def translate(
    module: Module,
    arrays: Mapping[str, str],
    shared: Mapping[str, int],
    local: Mapping[str, int],
    bare: bool = False,
) -> Translated:
    """The LLVM text of all functions of a module.

    `arrays` are symbols of the module's arrays, to be given when it is loaded; `shared` offsets of
    shared ones in a block's memory, `local` offsets of local ones ("function name") in a thread's.
    Raises UnsupportedError for an instruction that is not known.
    """
    texts: list[str] = []
    declared: dict[str, str] = {}
    frames: dict[str, int] = {}
    for function in module.functions.values():
        if function.external:
            continue
        made = _Translation(module, function, bare)
        made.symbols.update({n: f"ptrtoint (ptr @{s} to i64)" for n, s in arrays.items()})
        made.symbols.update({n: str(a) for n, a in shared.items()})
        texts.append(made.text(local))
        declared.update(made.declared)
        frames[function.name] = 8 * len(made.frame)
    lines = [line for name, line in declared.items() if name not in module.functions]
    lines += [f"@{symbol} = external global i8" for symbol in arrays.values()]
    imports = tuple(n for n in declared if n not in module.functions and not n.startswith("llvm."))
    return Translated("\n".join((*lines, *texts)), frames, imports)


class _Translation(Flow):
    """One function."""

    def __init__(self, module: Module, function: Function, bare: bool) -> None:
        super().__init__(function, THREAD.fields, BLOCK.fields, not bare)
        self.module, self.bare = module, bare
        every = (x for f in module.functions.values() for x in f.body)
        self.meets = not bare and any(
            isinstance(x, Instruction) and orders_blocks(x) for x in every
        )
        self.ended = False  # whether the last line leaves the block
        self.seen: set[str] = set()

    # ---- the frame

    def signature(self, function: Function) -> tuple[str, list[str]]:
        """(result, kinds of parameters) of a function in LLVM."""
        if function.entry:
            return "i32", ["ptr", "ptr"]
        return _signature(function.returns, function.params, self.bare)

    def text(self, local: Mapping[str, int]) -> str:
        """The whole function."""
        f = self.function
        result, kinds = self.signature(f)
        names = [] if self.bare else ["%thread", "%block"]
        names += [f"%arg{k}" for k in range(len(kinds) - len(names))]
        head = [f'  %"{name}" = alloca {LLVM[self.register(name)]}' for name in f.registers]
        self._memory(result, names, local)
        prologue, self.lines = self.lines, []
        self.tracked = frozenset() if self.bare else tracked(f)
        live = live_after(f)
        for at, item in enumerate(f.body):
            self.live = live[at]
            self.item(item)
        if not self.ended:
            self.leave()
        self.label("fault")
        self.add("ret void" if result == "void" else f"ret {result} {_nothing(result)}")
        if self.carry:
            head += ["  %carry = alloca i1", "  store i1 false, ptr %carry"]
        args = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, names, strict=True))
        lines = [f"define {result} @{f.name}({args}) nounwind {{", "entry:", *head, *prologue]
        if self.resumes:
            resume = f"  %resume = {self._load_resume()}"
            lines += [*self._resume_address(), resume, "  switch i32 %resume, label %start ["]
            lines += [f"    i32 {k}, label %{n}" for k, n in enumerate(self.resumes, 1)] + ["  ]"]
        else:
            lines.append("  br label %start")
        return "\n".join([*lines, "start:", *self.lines, "}"])

    def _resume_address(self) -> list[str]:
        offset = THREAD.fields["resume"][0]
        return [f"  %resumed = getelementptr i8, ptr %thread, i64 {offset}"]

    def _load_resume(self) -> str:
        return "load i32, ptr %resumed"

    def _memory(self, result: str, names: Sequence[str], local: Mapping[str, int]) -> None:
        """Where parameters and arrays are."""
        f = self.function
        if f.entry:
            self._kernel_parameters()
        else:
            given = list(names[0 if self.bare else 2 :])
            for a in f.returns:
                self.params[a.name] = self._slot(a) if result != "void" else given.pop(0)
            for a, name in zip(f.params, given, strict=True):
                self.params[a.name] = name
                if a.scalar:
                    self.params[a.name] = self._slot(a)
                    self.add(f"store {LLVM[a.type]} {name}, ptr {self.params[a.name]}")
        for array in f.arrays:
            if array.space == "param":
                self.params[array.name] = self._slot(array)
            elif array.space == "local":
                self._local(array, local)

    def _slot(self, array: Array) -> str:
        return self.let(f"alloca [{max(1, array.size)} x i8], align 16")

    def _local(self, array: Array, local: Mapping[str, int]) -> None:
        if self.bare:
            slot = self._slot(array)
            self.symbols[array.name] = self.let(f"ptrtoint ptr {slot} to i64")
            return
        base = self.field("thread", "local")
        offset = local[f"{self.function.name} {array.name}"]
        self.symbols[array.name] = self.let(f"add i64 {base}, {offset}")

    def _kernel_parameters(self) -> None:
        base = self.let(f"inttoptr i64 {self.field('block', 'params')} to ptr")
        for array, offset in parameter_offsets(self.function):
            self.params[array.name] = self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    # ---- statements

    def item(self, item: Instruction | Label) -> None:
        """A label, or an instruction under its predicate."""
        if isinstance(item, Label):
            if not self.ended:
                self.add(f'br label %"{item.name}"')
            self.label(f'"{item.name}"')
            self.seen.add(item.name)
            self.ended = False
            return
        if self.ended:  # nothing leads here
            self.label(self.block_name())
            self.ended = False
        if not item.guard:
            self.instruction(item)
            return
        condition = self.read(item.guard, "pred")
        inside, after = self.block_name(), self.block_name()
        self.add(f"br i1 {condition}, label %{inside}, label %{after}")
        self.label(inside)
        self.instruction(item)
        if not self.ended:
            self.add(f"br label %{after}")
        self.label(after)
        self.ended = False

    def instruction(self, i: Instruction) -> None:
        """One instruction."""
        name = i.parts[0]
        if self.tracked and name != "wgmma" and not is_move(i):
            check_settled(self, i, _used(i))
        if name in _ENDS:
            self.end(i)
        elif name == "call":
            self.called(i)
        elif name == "cvt":
            convert(self, i)
        elif name in MACHINE:
            MACHINE[name](self, i)
        elif name in TENSOR:
            TENSOR[name](self, i)
        elif name in HOPPER:
            HOPPER[name](self, i)
        elif name in RULES:
            RULES[name](self, i)
        else:
            raise unknown(str(i))

    def end(self, i: Instruction) -> None:
        """ret, exit, trap, bra, brx: what leaves the block."""
        match i.parts[0]:
            case "bra":
                self.jump(i.operands[0], i)
            case "brx":
                self.jump_by_table(i)
            case "trap":
                self.fault(TRAP, i.line)
                self.add("br label %fault")
            case _:
                self.leave()
        self.ended = True

    def leave(self) -> None:
        """Return."""
        f = self.function
        result, _ = self.signature(f)
        if f.entry:
            self.add(f"ret i32 {DONE}")
        elif result == "void":
            self.add("ret void")
        else:
            pointer = self.params[f.returns[0].name]
            self.add(f"ret {result} {self.let(f'load {result}, ptr {pointer}')}")

    def fault(self, kind: int, line: int) -> None:
        """Say what is wrong."""
        if not self.bare:
            args = [("ptr", "%thread"), ("ptr", "%block"), ("i32", str(kind)), ("i64", "0"),
                    ("i32", "0"), ("i32", "0"), ("i32", str(line)), ("i32", "-1")]  # fmt: skip
            self.call("i32", "lumjax_fault", args)

    def jump(self, target: str, i: Instruction) -> None:
        """A jump; one backwards costs fuel, so that every program ends."""
        if target in self.seen and not self.bare:
            left = self.let(f"sub i64 {self.field('block', 'fuel')}, 1")
            self.set_field("block", "fuel", left)
            on, out = self.block_name(), self.block_name()
            fine = self.let(f"icmp sgt i64 {left}, 0")
            self.add(f"br i1 {fine}, label %{on}, label %{out}")
            self.label(out)
            self.fault(HANG, i.line)
            self.add("br label %fault")
            self.label(on)
        self.add(f'br label %"{target}"')

    def jump_by_table(self, i: Instruction) -> None:
        """brx.idx: to one of several labels."""
        table = self.function.tables[i.operands[1]]
        index = self.read(i.operands[0], "u32")
        cases = " ".join(f'i32 {k}, label %"{n}"' for k, n in enumerate(table))
        self.add(f"switch i32 {index}, label %fault [ {cases} ]")

    # ---- calls

    def called(self, i: Instruction) -> None:
        """A call: (results), function, (parameters), prototype."""
        operands = list(i.operands)
        returned = _listed(operands.pop(0) if operands[0].startswith("(") else "()")
        name = operands.pop(0)
        plain = not operands or not operands[0].startswith("(")
        given = _listed("()" if plain else operands.pop(0))
        if name in self.function.registers:
            returns, params = self.function.prototypes[operands[0]]
            target = self.let(f"inttoptr i64 {self.read(name, 'u64')} to ptr")
        else:
            callee = self.module.functions.get(name)
            if callee is None or callee.external:
                raise unknown(f"a call of {name}")
            returns, params, target = callee.returns, callee.params, f"@{name}"
        result, kinds = _signature(returns, params, self.bare)
        args = [] if self.bare else ["%thread", "%block"]
        if returns and result == "void":
            args += [self.params[n] for n in returned]
        for array, param in zip(params, given, strict=True):
            pointer = self.params[param]
            args.append(self.let(f"load {LLVM[array.type]}, ptr {pointer}") if array.scalar
                        else pointer)  # fmt: skip
        text = ", ".join(f"{k} {a}" for k, a in zip(kinds, args, strict=True))
        if result == "void":
            self.add(f"call void {target}({text})")
        else:
            value = self.let(f"call {result} {target}({text})")
            self.add(f"store {result} {value}, ptr {self.params[returned[0]]}")
        if not self.bare:
            self.fault_unless(self.let(f"icmp eq i32 {self.field('block', 'fault')}, 0"))


def _listed(operand: str) -> tuple[str, ...]:
    return tuple(p.strip() for p in operand.strip()[1:-1].split(",") if p.strip())


def _signature(
    returns: Sequence[Array], params: Sequence[Array], bare: bool
) -> tuple[str, list[str]]:
    kinds = [] if bare else ["ptr", "ptr"]
    result = LLVM[returns[0].type] if returns and returns[0].scalar else "void"
    if returns and result == "void":
        kinds.append("ptr")
    return result, kinds + [LLVM[a.type] if a.scalar else "ptr" for a in params]


def _nothing(result: str) -> str:
    if result == "i32":
        return str(FAULT)
    return "0.0" if result in ("float", "double") else "0"


def parameter_offsets(function: Function) -> list[tuple[Array, int]]:
    """Where a kernel's parameters are in their block, each aligned as it wants."""
    found: list[tuple[Array, int]] = []
    at = 0
    for array in function.params:
        at = -(-at // array.align) * array.align
        found.append((array, at))
        at += array.size
    return found


# ---- which registers are needed later


def live_after(function: Function) -> list[frozenset[str]]:
    """For each item of the body: the registers that it or what follows reads, waiting inside it."""
    if not any(_waits(item) for item in function.body):
        return [frozenset()] * len(function.body)
    names = {r: 1 << k for k, r in enumerate(function.registers)}
    places = {x.name: k for k, x in enumerate(function.body) if isinstance(x, Label)}
    uses = [_bits(_used(x), names) for x in function.body]
    kills = [_bits(_defined(x), names) for x in function.body]
    follow = [_followers(function, k, places) for k in range(len(function.body))]
    before = [0] * len(function.body)
    changed = True
    while changed:
        changed = False
        for k in range(len(function.body) - 1, -1, -1):
            after = 0
            for n in follow[k]:
                after |= before[n] if n < len(before) else 0
            now = uses[k] | (after & ~kills[k])
            changed |= now != before[k]
            before[k] = now
    result = [frozenset[str]()] * len(function.body)
    for k, item in enumerate(function.body):
        if _waits(item):
            needed = uses[k]
            for n in follow[k]:
                needed |= before[n] if n < len(before) else 0
            result[k] = frozenset(r for r, bit in names.items() if needed & bit)
    return result


def _waits(item: Instruction | Label) -> bool:
    return isinstance(item, Instruction) and (item.parts[0] in _WAIT or listens(item))


def _bits(found: Sequence[str], names: Mapping[str, int]) -> int:
    bits = 0
    for name in found:
        bits |= names.get(name, 0)
    return bits


def _used(item: Instruction | Label) -> list[str]:
    if isinstance(item, Label):
        return []
    begin = 0 if _no_result(item) else 1
    text = " ".join((item.guard, *item.operands[begin:]))
    return _REGISTER.findall(text)


def _defined(item: Instruction | Label) -> list[str]:
    """What an instruction always overwrites."""
    if isinstance(item, Label) or _no_result(item) or item.guard:
        return []
    return _REGISTER.findall(item.operands[0]) if item.operands else []


def _no_result(i: Instruction) -> bool:
    """Whether the first operand isn't a result: an address never is."""
    return i.parts[0] in _NO_RESULT or not i.operands or i.operands[0].startswith("[")


def _followers(function: Function, k: int, places: Mapping[str, int]) -> list[int]:
    item = function.body[k]
    if isinstance(item, Label) or item.parts[0] not in _ENDS:
        return [k + 1]
    found = [k + 1] if item.guard else []
    if item.parts[0] == "bra":
        found.append(places[item.operands[0]])
    elif item.parts[0] == "brx":
        found += [places[n] for n in function.tables[item.operands[1]]]
    return found
