"""PTX of sm_80 as LLVM: asynchronous copies into shared memory, matrices in registers, and their
products on tensor cores.

What a whole warp does as one, the scheduler does when all its lanes have come; a copy is made when
its thread waits for it, and what touches its place before that is reported.
"""

from __future__ import annotations

from collections.abc import Callable

from lumjax.cuda.code import only
from lumjax.cuda.hopper import move
from lumjax.cuda.machine import LOAD_MATRICES, MULTIPLY, Flow, address_in, together
from lumjax.cuda.syntax import Instruction, unknown

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_PRODUCTS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": 0,
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 1,
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": 2,
}
_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def copy(c: Flow, i: Instruction) -> None:
    """cp.async: a copy begins, a group of copies is closed, or is waited for."""
    if i.parts[:2] != ("cp", "async"):
        raise unknown(str(i))
    if i.parts[2] == "bulk":
        move(c, i)
        return
    thread, block = ("ptr", "%thread"), ("ptr", "%block")
    match i.parts[2:]:
        case ("commit_group",):
            _close(c)
        case ("wait_group",):
            bad = c.call("i32", "lumjax_copied", [thread, block, ("i32", i.operands[0])])
            c.fault_unless(c.let(f"icmp eq i32 {bad}, 0"))
        case ("wait_all",):
            _close(c)
            bad = c.call("i32", "lumjax_copied", [thread, block, ("i32", "0")])
            c.fault_unless(c.let(f"icmp eq i32 {bad}, 0"))
        case (("ca" | "cg") as how, "shared" | "shared::cta", "global"):
            size = i.operands[2]
            if not size.isdigit() or int(size) not in _SIZES[how]:
                raise unknown(str(i))
            to = address_in(c, i.operands[0], "shared")
            source = address_in(c, i.operands[1], "global")
            given = c.read(i.operands[3], "u32") if len(i.operands) > 3 else size
            bad = c.call("i32", "lumjax_copy", [
                thread, block, ("i64", to), ("i64", source), ("i32", size), ("i32", given),
                ("i32", str(i.line)),
            ])  # fmt: skip
            c.fault_unless(c.let(f"icmp eq i32 {bad}, 0"))
        case _:
            raise unknown(str(i))


def _close(c: Flow) -> None:
    following = c.let(f"add i32 {c.field('thread', 'group')}, 1")
    c.set_field("thread", "group", following)


def load_matrices(c: Flow, i: Instruction) -> None:
    """ldmatrix: up to four matrices of 8 by 8 elements of 16 bits, each row from an address that
    one lane gives.
    """
    only(i, ("sync", "aligned", "m8n8", "trans", "shared", "shared::cta", *_COUNTS))
    (count,) = (_COUNTS[p] for p in i.parts if p in _COUNTS)
    targets = c.vector(i.operands[0])
    if "m8n8" not in i.parts or i.parts[-1] != "b16" or len(targets) != count:
        raise unknown(str(i))
    address = address_in(c, i.operands[1], "shared")
    bad = c.call("i32", "lumjax_row", [
        ("ptr", "%thread"), ("ptr", "%block"), ("i64", address), ("i32", str(count)),
        ("i32", str(i.line)),
    ])  # fmt: skip
    c.fault_unless(c.let(f"icmp eq i32 {bad}, 0"))
    c.set_field("thread", "value", address)
    together(c, i, LOAD_MATRICES, count | ("trans" in i.parts) << 8)
    for k, target in enumerate(targets):
        c.write(target, c.field("thread", f"result{k}"), "b32")


def multiply(c: Flow, i: Instruction) -> None:
    """mma.sync: a product of 16 rows and 8 columns is added to what is held."""
    what = _PRODUCTS.get(i.name)
    if what is None:
        raise unknown(str(i))
    held, left, right, added = map(c.vector, i.operands)
    if (len(held), len(left), len(right), len(added)) != (4, 4, 2, 4):
        raise unknown(str(i))
    for k, operand in enumerate((*left, *right)):
        c.set_field("thread", f"given{k}", c.read(operand, "b32"))
    for k, operand in enumerate(added, 6):
        value = c.fitted(c.read(operand, "f32"), "f32", "b32")
        c.set_field("thread", f"given{k}", value)
    together(c, i, MULTIPLY, what)
    for k, target in enumerate(held):
        c.write(target, c.fitted(c.field("thread", f"result{k}"), "b32", "f32"), "f32")


TENSOR: dict[str, Callable[[Flow, Instruction], None]] = {
    "cp": copy, "ldmatrix": load_matrices, "mma": multiply,
}  # fmt: skip
