"""Facts about statements that the renderer needs before it emits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from lumjax import dtype as dt
from lumjax.cpu.convert import SIXTEEN
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    Const,
    If,
    IndexValue,
    Kernel,
    Let,
    LoadValue,
    Loop,
    LoopKind,
    Ref,
    Stmt,
    StoreStmt,
    Tile,
    Value,
    behind,
)
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ScalarOp, Trait

LIGHT = frozenset({
    "add", "sub", "mul", "neg", "abs", "max", "min", "fma", "square", "and", "or", "xor", "not",
    "eq", "ne", "lt", "le", "gt", "ge", "select", "cast", "hold",
})  # fmt: skip


def inside(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer ones first."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop | If | Tile):
            yield from inside(stmt.body)


def operands(stmt: Stmt) -> tuple[Value, ...]:
    """The values a statement evaluates itself."""
    match stmt:
        case Let(value=value) | Accumulate(value=value) | StoreStmt(value=value):
            return (value,)
        case Accumulator(init=init):
            return (init,)
        case Tile(lhs=lhs, rhs=rhs):
            return (lhs, rhs)
        case Loop() | If():
            return ()
    assert_never(stmt)


def unsupported(
    kernel: Kernel, supported: Callable[[ScalarOp, tuple[dt.DType, ...], dt.DType], bool]
) -> str | None:
    """The first operation of a kernel that a target doesn't support, as text; None if there is
    none.
    """
    for phase in kernel.phases:
        for stmt in inside(phase.body):
            for value in operands(stmt):
                for node in nodes(value):
                    if isinstance(node, ApplyValue):
                        kinds = tuple(a.dtype for a in node.args)
                        if not supported(node.op, kinds, node.dtype):
                            listing = ", ".join(map(dt.short_name, kinds))
                            return f"{node.op.name}({listing}) -> {dt.short_name(node.dtype)}"
    return None


def index_expressions(stmt: Stmt) -> tuple[Dim, ...]:
    """The index expressions a statement evaluates itself, apart from those of its values."""
    match stmt:
        case StoreStmt(offset=offset, mask=mask):
            return (offset, mask)
        case Loop(begin=begin, end=end):
            return (begin, end)
        case If(condition=condition):
            return (condition,)
        case Tile(m0=m0, m_end=m_end, n0=n0, n_end=n_end, k=k):
            return (m0, m_end, n0, n_end, *(extent for _, extent in k))
        case Let() | Accumulator() | Accumulate():
            return ()
    assert_never(stmt)


def nodes(value: Value) -> Iterator[Value]:
    """Every distinct value in a value."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            if isinstance(node, ApplyValue):
                stack.extend(node.args)


def mentions(value: Value) -> frozenset[str]:
    """The names of Lets, accumulators and index symbols in a value."""
    found: set[str] = set()
    for node in nodes(value):
        match node:
            case Ref(name=name):
                found.add(name)
            case LoadValue(offset=offset, mask=mask):
                found |= dims.symbols(offset, mask)
            case IndexValue(expr=expr):
                found |= dims.symbols(expr)
            case Const() | ApplyValue():
                pass
    return frozenset(found)


def stored(body: Iterable[Stmt]) -> frozenset[str]:
    """The names of the buffers that are stored to."""
    return frozenset(s.buffer.name for s in inside(body) if isinstance(s, StoreStmt))


def accumulated(body: Sequence[Stmt]) -> list[str]:
    """The accumulators declared outside that the body accumulates into, in order."""
    declared = {s.name for s in inside(body) if isinstance(s, Accumulator)}
    found = (s.name for s in inside(body) if isinstance(s, Accumulate))
    return [n for n in dict.fromkeys(found) if n not in declared]


def read(body: Iterable[Stmt]) -> frozenset[str]:
    """Every name that the body's values or index expressions mention."""
    found: set[str] = set()
    for stmt in inside(body):
        for value in operands(stmt):
            found |= mentions(value)
        found |= dims.symbols(*index_expressions(stmt))
    return frozenset(found)


def vectorizable(loop: Loop) -> bool:
    """Whether the iterations may run in lanes: uniform inner bounds, no partial sum read."""
    if any(isinstance(s, Tile) for s in inside(loop.body)):
        return False
    if set(accumulated(loop.body)) & read(loop.body):
        return False
    varying = {loop.var}
    for stmt in inside(loop.body):
        match stmt:
            case Let(name=name, value=value):
                if mentions(value) & varying:
                    varying.add(name)
            case Accumulator(name=name):
                varying.add(name)
            case Loop(begin=begin, end=end):
                if dims.symbols(begin, end) & varying:
                    return False
            case _:
                pass
    return True


def feeding(stmt: Stmt, name: str) -> list[Loop]:
    """The outermost loops, from `stmt` inwards, that run in lanes and accumulate into `name`."""
    if not isinstance(stmt, Loop | If) or name not in accumulated(stmt.body):
        return []
    if isinstance(stmt, Loop) and stmt.kind is LoopKind.VECTOR and vectorizable(stmt):
        return [stmt]
    return [found for inner in stmt.body for found in feeding(inner, name)]


def _width(dtype: dt.DType) -> int:
    if dtype in SIXTEEN:
        return 4
    return dtype.itemsize // 2 if dtype in dt.COMPLEX else dtype.itemsize


@record
class Weight:
    """What a loop body costs: bytes of its widest element, operations, costly ones, inner loops."""

    widest: int
    operations: int
    heavy: int
    nested: bool


def weigh(body: Sequence[Stmt]) -> Weight:
    """The weight of a body that is to run in lanes."""
    widest, operations, heavy = 1, 0, 0
    for stmt in inside(body):
        if isinstance(stmt, Accumulator):
            widest = max(widest, _width(stmt.dtype))
        for value in operands(stmt):
            for node in nodes(value):
                if isinstance(node, LoadValue | ApplyValue | Ref):
                    widest = max(widest, _width(node.dtype))
                if isinstance(node, ApplyValue):
                    operations += 1
                    heavy += node.op.name not in LIGHT and Trait.CAST not in node.op.traits
        if isinstance(stmt, StoreStmt):
            widest = max(widest, _width(stmt.buffer.dtype))
    nested = any(isinstance(s, Loop | If | Tile) for s in inside(body))
    return Weight(widest, operations, heavy, nested)


def trips(loop: Loop, hints: Mapping[str, Dim]) -> int | None:
    """How often a loop runs at the traced program's sizes, None where that varies."""
    count = dims.substitute(loop.end - loop.begin, hints)
    return max(0, -(-count // loop.step)) if isinstance(count, int) else None


def adjacent(value: ApplyValue) -> LoadValue | None:
    """The first of two elements that are made a word, if they lie side by side."""
    if value.op.name != "pair":
        return None
    low, high = value.args
    if not isinstance(low, LoadValue) or not isinstance(high, LoadValue):
        return None
    plain = dims.same(low.mask, 1) and dims.same(high.mask, 1) and high.buffer == low.buffer
    return low if plain and dims.same(high.offset, behind(low).offset) else None
