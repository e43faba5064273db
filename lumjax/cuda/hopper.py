"""PTX of sm_90 as LLVM: barriers with phases, bulk copies, products of warpgroups.

What the instructions do is the executor's C (phases.py, bulk.py). A thread that finds a phase not
over returns to the scheduler and asks again. Accumulators of products that are under way hold a
pattern; registers that may hold it are `tracked`: they get their values where a warp waits, and
what else reads them asks first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from lumjax.cuda.bulk import POISON
from lumjax.cuda.code import only
from lumjax.cuda.machine import AT_PHASE, Flow, address_in, together, wait_once
from lumjax.cuda.support import UNFINISHED
from lumjax.cuda.syntax import Function, Instruction, unknown

ISSUE, FENCE, COMMIT, FINISH = 4, 5, 6, 7  # what a warp does together
_SCOPES = ("cta", "cluster", "release", "acquire", "relaxed", "shared", "shared::cta")
_PRODUCT = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(16|8)\.f32\.(bf16\.bf16|f16\.f16|tf32\.tf32)$"
)
_KINDS = {"bf16.bf16": 0, "f16.f16": 1, "tf32.tf32": 2}
_RANKS = ("2d", "3d", "4d", "5d")
_ENDS = "mbarrier::complete_tx::bytes"


def _checked(c: Flow, result: str, *args: tuple[str, str]) -> str:
    """A call of the executor on a thread and its block."""
    name, kind = result.split()
    return c.call(kind, name, [("ptr", "%thread"), ("ptr", "%block"), *args])


def _fine(c: Flow, name: str, *args: tuple[str, str]) -> None:
    bad = _checked(c, f"{name} i32", *args)
    c.fault_unless(c.let(f"icmp eq i32 {bad}, 0"))


def _line(i: Instruction) -> tuple[str, str]:
    return "i32", str(i.line)


# ---- barriers with phases


def phase(c: Flow, i: Instruction) -> None:
    """mbarrier: made and unmade, arrived at, waited for."""
    what = i.parts[1]
    if i.parts[-1] != "b64" or what not in _PHASES:
        raise unknown(str(i))
    _PHASES[what](c, i)


def _make(c: Flow, i: Instruction) -> None:
    only(i, ("init", *_SCOPES))
    address, count = address_in(c, i.operands[0], "shared"), c.read(i.operands[1], "u32")
    _fine(c, "lumjax_make", ("i64", address), ("i32", count), _line(i))


def _unmake(c: Flow, i: Instruction) -> None:
    only(i, ("inval", *_SCOPES))
    _fine(c, "lumjax_unmake", ("i64", address_in(c, i.operands[0], "shared")), _line(i))


def _arrive(c: Flow, i: Instruction) -> None:
    """arrive, arrive.expect_tx, expect_tx: the state that it returns is the phase's number."""
    only(i, ("arrive", "expect_tx", *_SCOPES))
    operands = list(i.operands)
    target = "_" if operands[0].startswith("[") else operands.pop(0)
    address = address_in(c, operands[0], "shared")
    given = c.read(operands[1], "u32") if len(operands) > 1 else "1"
    count, size = given, "0"
    if "expect_tx" in i.parts:
        count, size = "1" if "arrive" in i.parts else "0", given
    number = _checked(
        c, "lumjax_arrive i32", ("i64", address), ("i32", count), ("i32", size), _line(i)
    )
    c.fault_unless(c.let(f"icmp ne i32 {number}, -1"))
    c.write(target, number, "u32")


def _wait(c: Flow, i: Instruction) -> None:
    """test_wait, try_wait: the latter waits as long as it takes."""
    only(i, ("test_wait", "try_wait", "parity", *_SCOPES))
    by_number = "0" if "parity" in i.parts else "1"
    kind = "u32" if "parity" in i.parts else "u64"
    again, ready, late = c.block_name(), c.block_name(), c.block_name()

    def ask() -> str:
        address = address_in(c, i.operands[1], "shared")
        value = c.resized(c.read(i.operands[2], kind), kind, "u32")
        found = _checked(c, "lumjax_over i32", ("i64", address), ("i32", value),
                         ("i32", by_number), _line(i))  # fmt: skip
        c.fault_unless(c.let(f"icmp ne i32 {found}, 2"))
        return c.let(f"icmp eq i32 {found}, 1")

    c.add(f"br label %{again}")
    c.label(again)
    c.add(f"br i1 {ask()}, label %{ready}, label %{late}")
    c.label(late)
    if "test_wait" in i.parts:
        wait_once(c, i)
        found = ask()
        c.write(i.operands[0], found, "pred")
        after = c.block_name()
        c.add(f"br label %{after}")
        c.label(ready)
        c.write(i.operands[0], "true", "pred")
        c.add(f"br label %{after}")
        c.label(after)
        return
    c.wait(AT_PHASE)
    c.add(f"br label %{again}")
    c.label(ready)
    c.write(i.operands[0], "true", "pred")


_PHASES: dict[str, Callable[[Flow, Instruction], None]] = {
    "init": _make, "inval": _unmake, "arrive": _arrive, "expect_tx": _arrive, "test_wait": _wait,
    "try_wait": _wait,
}  # fmt: skip


# ---- bulk copies


def move(c: Flow, i: Instruction) -> None:
    """cp.async.bulk: from global into shared memory; it ends with a phase of a barrier."""
    match i.parts[3:]:
        case ("shared::cluster" | "shared::cta", "global", _ends) if _ends == _ENDS:
            to, barrier = (address_in(c, i.operands[k], "shared") for k in (0, 3))
            source, size = address_in(c, i.operands[1], "global"), c.read(i.operands[2], "u32")
            _fine(c, "lumjax_move", ("i64", to), ("i64", source), ("i32", size), ("i64", barrier),
                  _line(i))  # fmt: skip
        case ("tensor", rank, "shared::cluster" | "shared::cta", "global", *rest) if (
            rank in _RANKS and [r for r in rest if r != "tile"] == [_ENDS]
        ):
            _move_tensor(c, i, int(rank[0]))
        case _:
            raise unknown(str(i))


def _move_tensor(c: Flow, i: Instruction, rank: int) -> None:
    to, barrier = (address_in(c, i.operands[k], "shared") for k in (0, 2))
    chart, _, where = i.operands[1].strip()[1:-1].partition(",")
    places = c.vector(where.strip())
    if len(places) != rank or len(i.operands) != 3:
        raise unknown(str(i))
    for k, place in enumerate(places):
        c.set_field("thread", f"given{k}", c.read(place, "u32"))
    address = address_in(c, f"[{chart}]", "global")
    _fine(c, "lumjax_move_tensor", ("i64", to), ("i64", address), ("i64", barrier),
          ("i32", str(rank)), _line(i))  # fmt: skip


# ---- products


def group(c: Flow, i: Instruction) -> None:
    """wgmma: a product of a warpgroup, and what orders them."""
    match i.parts[1:]:
        case ("fence", "sync", "aligned"):
            together(c, i, FENCE, 0)
        case ("commit_group", "sync", "aligned"):
            together(c, i, COMMIT, 0)
        case ("wait_group", "sync", "aligned"):
            together(c, i, FINISH, int(i.operands[0], 0))
            for register in sorted(c.live & c.tracked):
                bits = c.fitted(c.read(register, c.register(register)), c.register(register), "b32")
                value = _checked(c, "lumjax_settled i32", ("i32", bits))
                c.write(register, value, "b32")
        case _:
            _multiply(c, i)


def _multiply(c: Flow, i: Instruction) -> None:
    found = _PRODUCT.match(i.name)
    if found is None:
        raise unknown(str(i))
    cols, kind = int(found[1]), _KINDS[found[3]]
    sums = c.vector(i.operands[0])
    signs = [int(o, 0) for o in i.operands[4:6]]
    turned = [int(o, 0) for o in i.operands[6:8]]
    wrong = (
        cols % 8 or not 8 <= cols <= 256 or len(sums) != cols // 2
        or (found[2] == "8") != (kind == 2) or i.operands[1].startswith("{")
        or len(signs) != 2 or len(turned) != (0 if kind == 2 else 2)
    )  # fmt: skip
    if wrong:
        raise unknown(str(i))
    what = kind | cols // 8 << 8
    for k, (sign, turn) in enumerate(zip(signs, turned or (0, 0), strict=True)):
        what |= turn << (16 + k) | (sign < 0) << (19 + k)
    held = c.let(f"inttoptr i64 {c.field('thread', 'products')} to ptr")
    for k, name in enumerate(sums):
        bits = c.fitted(c.read(name, "f32"), "f32", "b32")
        c.add(f"store i32 {bits}, ptr {c.let(f'getelementptr i32, ptr {held}, i64 {k}')}")
    for field, operand in zip(("value", "other"), i.operands[1:3], strict=True):
        c.set_field("thread", field, c.read(operand, "u64"))
    added = c.let(f"zext i1 {c.read(i.operands[3], 'pred')} to i32")
    flag = c.let(f"shl i32 {added}, 18")
    together(c, i, ISSUE, c.let(f"or i32 {flag}, {what}"))
    held = c.let(f"inttoptr i64 {c.field('thread', 'products')} to ptr")
    for k, name in enumerate(sums):
        at = c.let(f"getelementptr i32, ptr {held}, i64 {k}")
        c.write(name, c.let(f"load i32, ptr {at}"), "b32")


HOPPER: dict[str, Callable[[Flow, Instruction], None]] = {"mbarrier": phase, "wgmma": group}


def tracked(function: Function) -> frozenset[str]:
    """The registers that may hold an accumulator under way: those of products, and where they are
    moved to.
    """
    found: set[str] = set()
    moves: list[tuple[str, str]] = []
    for i in function.body:
        if not isinstance(i, Instruction):
            continue
        if i.parts[:2] == ("wgmma", "mma_async"):
            found |= {r.strip() for r in i.operands[0].strip("{} ").split(",")}
        elif is_move(i):
            moves.append((i.operands[1], i.operands[0]))
    while found and (more := {b for a, b in moves if a in found} - found):
        found |= more
    return frozenset(found)


def is_move(i: Instruction) -> bool:
    """Whether an instruction only moves a register."""
    return i.parts[0] == "mov" and i.parts[-1] in ("f32", "b32")


def check_settled(c: Flow, i: Instruction, used: Sequence[str]) -> None:
    """Before anything else reads an accumulator: a fault if it is under way."""
    for register in dict.fromkeys(r for r in used if r in c.tracked):
        bits = c.fitted(c.read(register, c.register(register)), c.register(register), "b32")
        mark = c.let(f"lshr i32 {bits}, 16")
        on, out = c.block_name(), c.block_name()
        c.add(f"br i1 {c.let(f'icmp eq i32 {mark}, {POISON}')}, label %{out}, label %{on}")
        c.label(out)
        _checked(c, "lumjax_fault i32", ("i32", str(UNFINISHED)), ("i64", "0"), ("i32", "0"),
                 ("i32", "0"), _line(i), ("i32", "-1"))  # fmt: skip
        c.add("br label %fault")
        c.label(on)
