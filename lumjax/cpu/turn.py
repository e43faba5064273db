"""Copies between two orders of memory: squares of vectors, turned in registers.

A loop along one axis around a vector loop along another, whose stores lie along the second and
whose loads lie along the first, would take its elements one by one. Here a square is read by
vectors along the first axis, transposed by shuffles and stored by vectors along the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lumjax import dtype as dt
from lumjax.cpu import analysis
from lumjax.cpu.convert import compute_type
from lumjax.cpu.emit import Function, Reg, bits
from lumjax.kernel.ir import (
    ApplyValue,
    IndexValue,
    Let,
    LoadValue,
    Loop,
    LoopKind,
    Ref,
    Stmt,
    StoreStmt,
    Value,
)
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

LEAST = 4  # lanes of a square
MOST = 48  # operations: their code is written as often as a vector has lanes


@record
class Square:
    """What is stored of the elements of a square, and how many lanes it has."""

    stores: tuple[StoreStmt, ...]
    lanes: int


def turned(loop: Loop, target: Target, hints: Mapping[str, Dim]) -> Square | None:
    """The squares in which a loop is done; None where it isn't one for that."""
    if loop.kind is not LoopKind.SERIAL or len(loop.body) != 1 or loop.step != 1:
        return None
    (inner,) = loop.body
    if not isinstance(inner, Loop) or inner.kind is not LoopKind.VECTOR or inner.step != 1:
        return None
    if loop.var in dims.symbols(inner.begin, inner.end):
        return None
    stores = _alone(inner.body)
    widths = {bits(compute_type(s.value.dtype)) // 8 for s in stores}
    if len(widths) != 1 or not widths <= {4, 8}:
        return None
    lanes = target.lanes(*widths)
    trips = [analysis.trips(each, hints) for each in (loop, inner)]
    if lanes < LEAST or any(n is not None and n < lanes for n in trips):
        return None
    made = [v for s in stores for v in analysis.nodes(s.value) if isinstance(v, ApplyValue)]
    if len(made) > MOST:
        return None
    steps = [_steps(s.value, loop, inner) for s in stores]
    if None in steps or not any(True in s for s in steps if s):
        return None
    return Square(stores, lanes) if all(_stored(s, loop, inner) for s in stores) else None


def _alone(body: Sequence[Stmt]) -> tuple[StoreStmt, ...]:
    """The stores of a body with what its Lets name in place of the names; none where there is more
    to it, or where it reads what it stores.
    """
    named: dict[str, Value] = {}
    memo: dict[int, Value] = {}
    found: list[StoreStmt] = []
    for stmt in body:
        if isinstance(stmt, Let) and not isinstance(stmt.value, IndexValue):
            named[stmt.name] = _named(stmt.value, named, memo)
        elif isinstance(stmt, StoreStmt):
            found.append(replace(stmt, value=_named(stmt.value, named, memo)))
        else:
            return ()
    stored = analysis.stored(body)
    nodes = [v for s in found for v in analysis.nodes(s.value)]
    again = any(isinstance(v, LoadValue) and v.buffer.name in stored for v in nodes)
    return () if again or named.keys() & analysis.read(found) else tuple(found)


def _named(value: Value, named: Mapping[str, Value], memo: dict[int, Value]) -> Value:
    """The value with what is named in it; what is shared stays so."""
    if isinstance(value, Ref):
        return named.get(value.name, value)
    if not isinstance(value, ApplyValue):
        return value
    if id(value) not in memo:
        args = tuple(_named(a, named, memo) for a in value.args)
        memo[id(value)] = replace(value, args=args)
    return memo[id(value)]


def _stored(store: StoreStmt, loop: Loop, inner: Loop) -> bool:
    """Whether a store lies along the inner loop."""
    if not dims.same(store.mask, 1) or store.value.dtype in (dt.bool_, *dt.COMPLEX):
        return False
    along = dims.same(dims.coefficient(store.offset, inner.var) or 0, 1)
    return along and dims.coefficient(store.offset, loop.var) is not None


def _steps(value: Value, loop: Loop, inner: Loop) -> list[bool] | None:
    """For each load whether it lies along the outer loop; None where one is not for this."""
    found: list[bool] = []
    seen: set[int] = set()  # values are shared: there may be far more ways to one than values
    stack = [value]
    while stack:
        v = stack.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        first = analysis.adjacent(v) if isinstance(v, ApplyValue) else None
        if first is None and isinstance(v, ApplyValue):
            stack.extend(reversed(v.args))
            continue
        load = first or v
        if isinstance(load, LoadValue):
            steps = _load(load, loop, inner, 1 if first is None else 2)
            if steps is None:
                return None
            found += steps
    return found


def _load(load: LoadValue, loop: Loop, inner: Loop, step: int) -> list[bool] | None:
    here, there = (dims.coefficient(load.offset, s.var) for s in (loop, inner))
    if here is None or there is None or not dims.same(load.mask, 1):
        return None
    if dims.same(there, 0):  # the same for all that the inner loop walks
        return [False] if dims.same(here, 0) or dims.same(here, step) else None
    return None if dims.same(there, step) or not dims.same(here, step) else [True]


def transpose(f: Function, rows: Sequence[Reg]) -> list[Reg]:
    """A square of lanes, transposed. First within each 128 bits, then these among themselves:
    shuffles that every width of x86 has.
    """
    lanes, size = len(rows), 128 // bits(rows[0].type)
    parts = [_inside(f, rows[k : k + size], size) for k in range(0, lanes, size)]
    result: list[Reg] = []
    columns = [_among(f, [p[j] for p in parts], size) for j in range(size)]
    for block in range(lanes // size):
        result += [c[block] for c in columns]
    return result


def _inside(f: Function, rows: Sequence[Reg], size: int) -> list[Reg]:
    """Columns of `size` rows: in each 128 bits one column of the square that these are."""
    lanes = rows[0].lanes
    blocks = range(0, lanes, size)
    if size == 2:
        picks = [[at + k + x for at in blocks for x in (0, lanes)] for k in (0, 1)]
        return [f.shuffle(rows[0], rows[1], p) for p in picks]
    halves: list[list[Reg]] = []
    for a, b in (rows[:2], rows[2:]):
        low = [at + k + x for at in blocks for k in (0, 1) for x in (0, lanes)]
        halves.append([f.shuffle(a, b, low), f.shuffle(a, b, [p + 2 for p in low])])
    result: list[Reg] = []
    for a, b in zip(*halves, strict=True):
        first = [at + k for at in blocks for k in (0, 1, lanes, lanes + 1)]
        result += [f.shuffle(a, b, first), f.shuffle(a, b, [p + 2 for p in first])]
    return result


def _among(f: Function, rows: Sequence[Reg], size: int) -> list[Reg]:
    """Rows of blocks of 128 bits, transposed by blocks."""
    if len(rows) == 1:
        return list(rows)
    blocks = rows[0].lanes // size
    pairs = [(rows[k], rows[k + 1]) for k in range(0, len(rows), 2)]
    halves: list[list[Reg]] = []
    for start in (0, 1):
        picks = [b * size + k for b in range(start, 2 * blocks, 2) for k in range(size)]
        halves.append(_among(f, [f.shuffle(a, b, picks) for a, b in pairs], size))
    return [row for both in zip(*halves, strict=True) for row in both]
