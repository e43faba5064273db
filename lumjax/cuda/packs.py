"""Which loops move several elements by one access, and what statements read."""

from __future__ import annotations

from collections.abc import Iterable

from lumjax import dtype as dt
from lumjax.cpu import analysis
from lumjax.kernel import ir
from lumjax.kernel.ir import Accumulate, Let, LoadValue, Loop, Stmt, StoreStmt
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

_WIDEST = 16  # bytes of one access
_PACKED_WORK = 48  # operations at most of a loop that is written out for several elements


def same(dim: Dim | None, number: int) -> bool:
    """Whether an index expression is this number, whatever its symbols are."""
    return isinstance(dim, int) and dim == number


def loaded_from(body: Iterable[Stmt]) -> frozenset[str]:
    """The names of the buffers that are read."""
    found: set[str] = set()
    for stmt in analysis.inside(body):
        for value in analysis.operands(stmt):
            found |= {n.buffer.name for n in analysis.nodes(value) if isinstance(n, LoadValue)}
    return frozenset(found)


def packing(stmt: Loop) -> tuple[int, list[LoadValue | StoreStmt]] | None:
    """How many elements one access moves, and the accesses along the loop; None if one by one."""
    plain = (Let, StoreStmt, Accumulate)
    if stmt.step != 1 or not all(isinstance(s, plain) for s in stmt.body):
        return None
    accesses: list[LoadValue | StoreStmt] = []
    inside = {s.name for s in stmt.body if isinstance(s, Let)}
    work = 0
    for s in stmt.body:
        found: list[LoadValue | StoreStmt] = [s] if isinstance(s, StoreStmt) else []
        for value in analysis.operands(s):
            every = list(analysis.nodes(value))
            work += sum(isinstance(n, ir.ApplyValue) for n in every)
            found += [n for n in every if isinstance(n, LoadValue)]
        for access in found:
            slope = dims.coefficient(access.offset, stmt.var)
            if same(slope, 0) and not isinstance(access, StoreStmt):
                continue
            whole = isinstance(access.mask, int) and access.mask
            if not same(slope, 1) or not whole or access.buffer.dtype in dt.COMPLEX:
                return None
            if inside & dims.symbols(access.offset):  # each element may lie elsewhere
                return None
            accesses.append(access)
    stores = {a.buffer.name for a in accesses if isinstance(a, StoreStmt)}
    if not accesses or work > _PACKED_WORK or stores & loaded_from(stmt.body):
        return None
    width = _WIDEST // max(a.buffer.dtype.itemsize for a in accesses)
    return (width, accesses) if width > 1 else None
