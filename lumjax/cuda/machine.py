"""PTX's memory, its jumps, and what threads of a block do together, as LLVM.

A thread that must wait returns from its function: it leaves where it goes on, and the registers it
needs there, in its frame, and says what it waits for. Checked code asks before every access
whether it is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lumjax.cuda.code import FLOATS, LLVM, Code, is_signed, only
from lumjax.cuda.syntax import SIZES, Function, Instruction, unknown

DONE, FAULT, AT_BARRIER, AT_WARP = 0, 1, 2, 3  # what a thread's function returns
AT_PHASE, ONCE, AT_NUMBER, AT_MEETING = 5, 6, 7, 8
EXCHANGE, SYNC, LOAD_MATRICES, MULTIPLY = range(4)  # what lanes wait for together
READ, WRITE, ATOMIC = 0, 1, 2
_SPACES = {"generic": 0, "global": 1, "shared": 2, "local": 3, "const": 4}
_HINTS = ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "gpu", "cta", "sys",
          "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::no_allocate", "L1::evict_last",
          "L1::evict_first", "L2::64B", "L2::128B", "L2::256B")  # fmt: skip
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


class Flow(Code):
    """Code with jumps, which may return in the middle and be called again.

    `frame` has a place for each register that must outlive a wait; `live` are those needed after
    the instruction at hand. A function that is called by others can't wait.
    """

    def __init__(
        self,
        function: Function,
        thread: Mapping[str, tuple[int, str]],
        block: Mapping[str, tuple[int, str]],
        checked: bool,
    ) -> None:
        super().__init__(function, thread, block)
        self.checked = checked
        self.meets = False  # whether blocks wait for each other
        self.frame: dict[str, int] = {}
        self.live: frozenset[str] = frozenset()
        self.tracked: frozenset[str] = frozenset()  # registers of products that may be under way
        self.resumes: list[str] = []

    def wait(self, code: int) -> None:
        """Return with a code; go on here when called again."""
        if not self.function.entry:
            raise unknown(f"a barrier inside the called function {self.function.name}")
        kept = sorted(self.live)
        self.set_field("thread", "resume", str(len(self.resumes) + 1))
        self._frame(kept, save=True)
        self.add(f"ret i32 {code}")
        name = f"resume{len(self.resumes) + 1}"
        self.resumes.append(name)
        self.label(name)
        self._frame(kept, save=False)

    def _frame(self, kept: Sequence[str], save: bool) -> None:
        if not kept:
            return
        base = self.let(f"inttoptr i64 {self.field('thread', 'frame')} to ptr")
        for register in kept:
            offset = self.frame.setdefault(register, 8 * len(self.frame))
            kind = LLVM[self.register(register)]
            at = self.let(f"getelementptr i8, ptr {base}, i64 {offset}")
            source, target = (f'%"{register}"', at) if save else (at, f'%"{register}"')
            self.add(f"store {kind} {self.let(f'load {kind}, ptr {source}')}, ptr {target}")

    def fault_unless(self, fine: str) -> None:
        """Return with FAULT where an i1 is false."""
        on = self.block_name()
        self.add(f"br i1 {fine}, label %{on}, label %fault")
        self.label(on)


# ---- addresses


def _space(i: Instruction) -> str:
    for part in i.parts[1:]:
        name = part.split("::")[0]
        if name in (*_SPACES, "param"):
            return name
    return "generic"


def address_in(c: Flow, operand: str, space: str) -> str:
    """An address in brackets as an address of this machine, i64."""
    inner = operand.strip()[1:-1].strip()
    base, sign, offset = inner.partition("+")
    base = base.strip()
    if base in c.function.registers:
        kind = c.register(base)
        value = c.resized(c.read(base, kind), f"u{8 * SIZES[kind]}", "u64")
    else:
        value = c.address_of(base)
    if sign:
        value = c.let(f"add i64 {value}, {int(offset.strip(), 0)}")
    if space == "shared":
        value = c.let(f"add i64 {c.field('block', 'shared')}, {value}")
    return value


def _pointer(c: Flow, i: Instruction, address: str, space: str, size: int, kind: int) -> str:
    """A pointer to what may be accessed."""
    if c.checked:
        args = [("ptr", "%thread"), ("ptr", "%block"), ("i64", address), ("i32", str(size)),
                ("i32", str(kind)), ("i32", str(_SPACES[space])), ("i32", str(i.line))]  # fmt: skip
        bad = c.call("i32", "lumjax_access", args)
        c.fault_unless(c.let(f"icmp eq i32 {bad}, 0"))
    return c.let(f"inttoptr i64 {address} to ptr")


def _parameter(c: Flow, operand: str) -> str | None:
    """A pointer into the param space, None if the operand isn't there."""
    base, _, offset = operand.strip()[1:-1].partition("+")
    base = base.strip()
    if base not in c.params:
        return None
    return c.let(f"getelementptr i8, ptr {c.params[base]}, i64 {int(offset or '0', 0)}")


def _element(c: Flow, pointer: str, k: int, kind: str) -> str:
    return c.let(f"getelementptr i8, ptr {pointer}, i64 {k * SIZES[kind]}") if k else pointer


def _accessed(c: Flow, i: Instruction, operand: str, size: int, kind: int) -> str:
    """A pointer to the bytes that an instruction's operand names."""
    space = _space(i)
    if space != "param":
        return _pointer(c, i, address_in(c, operand, space), space, size, kind)
    pointer = _parameter(c, operand)
    if pointer is None:
        raise unknown(str(i))
    return pointer


def load(c: Flow, i: Instruction) -> None:
    """A load: one value, or as many as a vector has."""
    only(i, (*_SPACES, "param", "shared::cta", *_HINTS, *_VECTORS))
    kind = i.parts[-1]
    if c.meets and listens(i):
        _listen(c, i, kind)
        return
    targets = c.vector(i.operands[0])
    pointer = _accessed(c, i, i.operands[1], SIZES[kind] * len(targets), READ)
    values = [
        c.let(f"load {LLVM[kind]}, ptr {_element(c, pointer, k, kind)}, align 1")
        for k in range(len(targets))
    ]
    for target, value in zip(targets, values, strict=True):
        c.write(target, value, kind)


def store(c: Flow, i: Instruction) -> None:
    """A store: one value, or as many as a vector has."""
    only(i, (*_SPACES, "param", "shared::cta", *_HINTS, *_VECTORS))
    kind = i.parts[-1]
    sources = c.vector(i.operands[1])
    values = [c.read(s, kind) for s in sources]
    pointer = _accessed(c, i, i.operands[0], SIZES[kind] * len(sources), WRITE)
    for k, value in enumerate(values):
        c.add(f"store {LLVM[kind]} {value}, ptr {_element(c, pointer, k, kind)}, align 1")


_COMBINE = {"add": "add", "and": "and", "or": "or", "xor": "xor"}


def _combined(c: Flow, i: Instruction, name: str, kind: str, old: str, given: list[str]) -> str:
    """What an atomic operation leaves in memory."""
    if name == "exch":
        return given[0]
    if name == "cas":
        return c.choose(c.test("icmp eq", kind, old, given[0]), kind, given[1], old)
    if name == "add" and kind in FLOATS:
        return c.binary("fadd", kind, old, given[0])
    if name in ("min", "max") and kind not in FLOATS:
        return c.intrinsic(f"{'s' if is_signed(kind) else 'u'}{name}", kind, old, given[0])
    if name in _COMBINE and kind not in FLOATS:
        return c.binary(_COMBINE[name], kind, old, given[0])
    raise unknown(str(i))


def atomic(c: Flow, i: Instruction) -> None:
    """atom, red: threads take turns here, so that nothing comes between."""
    names = ("add", "min", "max", "exch", "cas", "and", "or", "xor")
    only(i, (*_SPACES, "shared::cta", *_HINTS, *names))
    kind, space = i.parts[-1], _space(i)
    (name,) = (p for p in i.parts[1:] if p in names)
    operands = i.operands if i.parts[0] == "red" else i.operands[1:]
    given = [c.read(o, kind) for o in operands[1:]]
    address = address_in(c, operands[0], space)
    told = c.meets and tells(i)
    if told:
        _ask(c, i, address, "lumjax_ask", SIZES[kind])
        pointer = c.let(f"inttoptr i64 {address} to ptr")
    else:
        pointer = _pointer(c, i, address, space, SIZES[kind], ATOMIC)
    old = c.let(f"load {LLVM[kind]}, ptr {pointer}, align 1")
    new = _combined(c, i, name, kind, old, given)
    c.add(f"store {LLVM[kind]} {new}, ptr {pointer}, align 1")
    if told:
        both = "acq_rel" in i.parts
        how = int(both or "release" in i.parts) + 2 * (both or "acquire" in i.parts)
        wide = ("i64", c.resized(new, kind, "u64")), ("i32", str(how))
        _ask(c, i, address, "lumjax_tell", SIZES[kind], *wide)
    if i.parts[0] == "atom":
        c.write(i.operands[0], old, kind)


# ---- where blocks wait for each other


def tells(i: Instruction) -> bool:
    """Whether an instruction adds to what blocks wait for, if they do."""
    return i.parts[0] in ("atom", "red") and _space(i) == "global" and i.parts[-1][0] in "ub"


def listens(i: Instruction) -> bool:
    """Whether an instruction looks at what blocks wait for, if they do."""
    looks = {"acquire", "relaxed", "volatile"} & set(i.parts)
    return i.parts[0] == "ld" and _space(i) == "global" and bool(looks)


def orders_blocks(i: Instruction) -> bool:
    """Whether an instruction orders what blocks do."""
    words = {"acquire", "release", "acq_rel"} & set(i.parts)
    return (tells(i) or listens(i)) and bool(words) and "gpu" in i.parts


def _ask(
    c: Flow, i: Instruction, address: str, name: str, size: int, *more: tuple[str, str]
) -> str:
    args = [("ptr", "%thread"), ("ptr", "%block"), ("i64", address), ("i32", str(size)), *more]
    found = c.call("i32", name, [*args, ("i32", str(i.line))])
    c.fault_unless(c.let(f"icmp ne i32 {found}, 1"))
    return found


def _listen(c: Flow, i: Instruction, kind: str) -> None:
    """A load of what others add to: when it was loaded before, others go first."""
    how = ("i32", str(int("acquire" in i.parts)))
    address = address_in(c, i.operands[1], "global")
    found = _ask(c, i, address, "lumjax_listen", SIZES[kind], how)
    c.write(i.operands[0], c.resized(c.field("thread", "value"), "u64", kind), kind)
    stale, on = c.block_name(), c.block_name()
    c.add(f"br i1 {c.let(f'icmp eq i32 {found}, 2')}, label %{stale}, label %{on}")
    c.label(stale)
    c.wait(AT_MEETING)
    c.add(f"br label %{on}")
    c.label(on)


def change_space(c: Flow, i: Instruction) -> None:
    """cvta: only shared memory has addresses of its own."""
    only(i, (*_SPACES, "to"))
    kind = i.parts[-1]
    value = c.resized(c.read(i.operands[1], kind), kind, "u64")
    if _space(i) == "shared":
        base = c.field("block", "shared")
        value = c.let(f"{'sub' if 'to' in i.parts else 'add'} i64 {value}, {base}")
    c.write(i.operands[0], c.resized(value, "u64", kind), kind)


def fence(c: Flow, i: Instruction) -> None:
    """membar, fence: one thread runs at a time, so that all see the same memory. What is ordered
    is a matter of barriers only, but for what asynchronous copies and products see.
    """
    match i.parts:
        case ("fence", "proxy", "async" | "async::shared::cta" | "async.shared::cta"):
            what = 0
        case ("fence", "proxy", "async", "global" | "shared::cta"):
            what = 0
        case ("fence", "mbarrier_init", "release", "cluster"):
            what = 1
        case ("fence", "proxy", "tensormap::generic", "acquire", _):
            address = address_in(c, i.operands[0], "global")
            c.call("void", "lumjax_acquired", [("ptr", "%thread"), ("i64", address)])
            return
        case _:
            only(i, ("gl", "cta", "sys", "sc", "acq_rel", "gpu"))
            return
    if c.checked:
        args = [("ptr", "%thread"), ("ptr", "%block"), ("i32", str(what))]
        c.call("void", "lumjax_fenced", args)


# ---- together


def site(c: Flow, i: Instruction) -> None:
    """Say where a thread is about to wait."""
    c.made += 1
    c.set_field("thread", "site", str(c.made))
    c.set_field("thread", "line", str(i.line))


def barrier(c: Flow, i: Instruction) -> None:
    """bar.sync 0 of the whole block; barriers with numbers; bar.warp.sync of some lanes."""
    only(i, ("sync", "arrive", "warp", "cta", "aligned"))
    site(c, i)
    if "warp" in i.parts:
        c.set_field("thread", "mask", c.read(i.operands[0], "u32"))
        c.set_field("thread", "reason", str(SYNC))
        c.wait(AT_WARP)
        return
    if whole_block(i):
        c.wait(AT_BARRIER)
        return
    if len(i.operands) > 2 or ("arrive" in i.parts) == ("sync" in i.parts):
        raise unknown(str(i))
    number, count = (c.read(o, "u32") for o in (*i.operands, "0")[:2])
    bad = c.call("i32", "lumjax_meet", [
        ("ptr", "%thread"), ("ptr", "%block"), ("i32", number), ("i32", count),
        ("i32", str(int("sync" in i.parts))), ("i32", str(i.line)),
    ])  # fmt: skip
    c.fault_unless(c.let(f"icmp eq i32 {bad}, 0"))
    if "sync" in i.parts:
        c.wait(AT_NUMBER)


def whole_block(i: Instruction) -> bool:
    """Whether a barrier is the one of all threads of a block."""
    return "sync" in i.parts and i.operands == ("0",)


def wait_once(c: Flow, i: Instruction) -> None:
    """Let others go first."""
    site(c, i)
    c.wait(ONCE)


def together(c: Flow, i: Instruction, reason: int, what: int | str) -> None:
    """Wait until the warp has done what all its lanes ask for."""
    site(c, i)
    c.set_field("thread", "mask", str(0xFFFFFFFF))
    c.set_field("thread", "reason", str(reason))
    c.set_field("thread", "what", str(what))
    c.wait(AT_WARP)


_SHUFFLES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}


def shuffle(c: Flow, i: Instruction) -> None:
    """shfl.sync: a value of another lane."""
    only(i, ("sync", *_SHUFFLES))
    (mode,) = (_SHUFFLES[p] for p in i.parts if p in _SHUFFLES)
    mask = c.read(i.operands[4], "u32")
    value = c.let(f"zext i32 {c.read(i.operands[1], 'u32')} to i64")
    _exchange(c, i, mask, value)
    lane, clamp = c.read(i.operands[2], "u32"), c.read(i.operands[3], "u32")
    args = [("ptr", "%thread"), ("ptr", "%block"), ("i32", lane), ("i32", clamp),
            ("i32", str(mode)), ("i32", str(i.line))]  # fmt: skip
    found = c.call("i32", "lumjax_source", args)  # lane, 256 if it is one's own by default
    c.fault_unless(c.let(f"icmp sge i32 {found}, 0"))
    source = c.let(f"zext i32 {c.let(f'and i32 {found}, 31')} to i64")
    values = c.let(f"inttoptr i64 {c.field('thread', 'values')} to ptr")
    at = c.let(f"getelementptr i64, ptr {values}, i64 {source}")
    got = c.let(f"trunc i64 {c.let(f'load i64, ptr {at}')} to i32")
    target, _, valid = i.operands[0].partition("|")
    c.write(target.strip(), got, "b32")
    if valid:
        c.write(valid.strip(), c.let(f"icmp ult i32 {found}, 256"), "pred")


def _exchange(c: Flow, i: Instruction, mask: str, value: str) -> None:
    """Show a value to the lanes of a mask, when all are here."""
    site(c, i)
    c.set_field("thread", "mask", mask)
    c.set_field("thread", "value", value)
    c.set_field("thread", "reason", str(EXCHANGE))
    c.wait(AT_WARP)


def vote(c: Flow, i: Instruction) -> None:
    """vote.sync: of which lanes is it true?"""
    only(i, ("sync", "ballot", "all", "any", "uni"))
    given, mask = c.read(i.operands[1], "pred"), c.read(i.operands[2], "u32")
    _exchange(c, i, mask, c.let(f"zext i1 {given} to i64"))
    ballot = c.call("i32", "lumjax_ballot", [("ptr", "%thread")])
    mask = c.field("thread", "mask")
    every = c.let(f"icmp eq i32 {ballot}, {mask}")
    none = c.let(f"icmp eq i32 {ballot}, 0")
    if "ballot" in i.parts:
        c.write(i.operands[0], ballot, "b32")
    elif "all" in i.parts:
        c.write(i.operands[0], every, "pred")
    elif "any" in i.parts:
        c.write(i.operands[0], c.let(f"xor i1 {none}, true"), "pred")
    else:
        c.write(i.operands[0], c.let(f"or i1 {every}, {none}"), "pred")


MACHINE: dict[str, Callable[[Flow, Instruction], None]] = {
    "ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic, "cvta": change_space,
    "membar": fence, "fence": fence, "bar": barrier, "barrier": barrier, "shfl": shuffle,
    "vote": vote,
}  # fmt: skip
