"""Kernel IR run literally, one scalar at a time, in Python: the oracle of the renderers.

Every access is checked: an offset outside its buffer, or a read of an element that nothing has
written, raises. 16-bit floats are held in float32 and rounded by casts and stores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, assert_never

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import VerificationError
from lumjax.kernel.evaluate import convert
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
    Ref,
    Stmt,
    StoreStmt,
    Tile,
    Value,
    behind,
)
from lumjax.kernel.term import Buffer
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp, Trait

Array: TypeAlias = np.ndarray[Any, Any]

_STEP: dict[ReduceOp, Any] = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MIN: np.minimum,
    ReduceOp.AND: np.bitwise_and,
    ReduceOp.OR: np.bitwise_or,
    ReduceOp.XOR: np.bitwise_xor,
}
_BITWISE = frozenset({"bitcast", "nextafter"})


def emulate(kernel: Kernel, buffers: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
    """Run a kernel on arrays by buffer name; outputs and workspace are written in place.

    Outputs and workspace count as unwritten at the start. Raises VerificationError at the first
    access that is out of bounds or reads what was not written.
    """
    machine = _Machine(kernel, buffers, sizes)
    for phase in kernel.phases:
        for job in range(int(dims.evaluate(phase.jobs, sizes))):
            machine.job(phase.body, {**sizes, phase.job: job})


def held(dtype: dt.DType) -> dt.DType:
    """The dtype in which values of `dtype` are computed."""
    return dt.accumulation_dtype(dtype)


class _Machine:
    """Memory and names while a kernel runs."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Array], sizes: Mapping[str, int]
    ) -> None:
        self.kernel = kernel
        self.memory: dict[str, Array] = {}
        self.written: dict[str, Array | None] = {}
        for buffer in kernel.buffers:
            shape = tuple(int(dims.evaluate(n, sizes)) for n in buffer.shape)
            data = buffers[buffer.name]
            if data.size != math.prod(shape) or data.dtype != buffer.dtype:
                self.fault(
                    f"buffer {buffer.name}", f"{buffer.dtype}{shape}", f"{data.dtype}{data.shape}"
                )
            flat = data.reshape(-1)
            assert np.shares_memory(flat, data) or not data.size, "buffers are contiguous"
            self.memory[buffer.name] = flat
            self.written[buffer.name] = None
        for buffer in kernel.outputs + kernel.workspace:
            self.written[buffer.name] = np.zeros(self.memory[buffer.name].size, bool)
        self.symbols: dict[str, int] = {}
        self.values: dict[str, Array] = {}
        self.sums: dict[str, ReduceOp] = {}

    def job(self, body: Sequence[Stmt], symbols: dict[str, int]) -> None:
        """One job, with scratch of its own."""
        for scratch in self.kernel.scratch:
            name = scratch.buffer.name
            self.memory[name] = np.zeros(scratch.elements, scratch.buffer.dtype)
            self.written[name] = np.zeros(scratch.elements, bool)
        self.symbols, self.values, self.sums = symbols, {}, {}
        self.body(body)

    def fault(self, operation: str, required: str, got: str) -> NoReturn:
        """Report a bad access."""
        raise VerificationError(
            operation=f"kernel {self.kernel.name}, {operation}",
            required=required,
            got=got,
            fix="report this as a bug in the lowering of kernels",
        )

    def dim(self, dim: Dim) -> int:
        """The value of an index expression."""
        return int(dims.evaluate(dim, self.symbols))

    # ---- statements

    def body(self, body: Sequence[Stmt]) -> None:
        """Statements in order; names bound inside end with them."""
        saved = self.symbols.copy(), set(self.values)
        for stmt in body:
            self.statement(stmt)
        self.symbols = saved[0]
        self.values = {n: v for n, v in self.values.items() if n in saved[1]}

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        match stmt:
            case Let(name=name, value=value):
                self.bind(name, self.value(value), value.dtype)
            case Accumulator(name=name, op=op, init=init):
                self.values[name], self.sums[name] = self.value(init), op
            case Accumulate(name=name, value=value):
                with np.errstate(all="ignore"):
                    new = _STEP[self.sums[name]](self.values[name], self.value(value))
                self.values[name] = new.astype(self.values[name].dtype)
            case StoreStmt():
                self.store(stmt)
            case Loop():
                for k in range(self.dim(stmt.begin), self.dim(stmt.end), stmt.step):
                    self.symbols[stmt.var] = k
                    self.body(stmt.body)
            case Tile():
                self.tile(stmt)
            case If(condition=condition, body=body):
                if self.dim(condition):
                    self.body(body)
            case _:
                assert_never(stmt)

    def bind(self, name: str, value: Array, dtype: dt.DType) -> None:
        """Give a Let its value; an integer is a symbol too."""
        self.values[name] = value
        if dt.is_integer(dtype):
            self.symbols[name] = int(value)

    def store(self, stmt: StoreStmt) -> None:
        """A checked store."""
        if not self.dim(stmt.mask):
            return
        at = self.checked(stmt.buffer, stmt.offset, "store")
        name = stmt.buffer.name
        written = self.written[name]
        if written is None:
            self.fault(f"store to {name}", "an output, workspace or scratch", "an input")
        written[at] = True
        self.memory[name][at] = convert(self.value(stmt.value), stmt.buffer.dtype)

    def checked(self, buffer: Buffer, offset: Dim, what: str) -> int:
        """An offset that is in its buffer."""
        at, size = self.dim(offset), self.memory[buffer.name].size
        if not 0 <= at < size:
            where = f"{what} {buffer.name}[{offset}]"
            self.fault(where, f"an offset in 0..{size - 1}", f"{at} at {self.symbols}")
        return at

    def tile(self, stmt: Tile) -> None:
        """A contraction, element by element."""
        m0, n0 = self.dim(stmt.m0), self.dim(stmt.n0)
        for m in range(m0, min(m0 + stmt.rows, self.dim(stmt.m_end))):
            for n in range(n0, min(n0 + stmt.cols, self.dim(stmt.n_end))):
                self.symbols[stmt.m], self.symbols[stmt.n] = m, n
                total = np.zeros((), held(stmt.dtype))
                ranges = [range(self.dim(extent)) for _, extent in stmt.k]
                for index in np.ndindex(*map(len, ranges)):
                    self.symbols.update(zip((name for name, _ in stmt.k), index, strict=True))
                    with np.errstate(all="ignore"):
                        for x, y in self.factors(stmt):
                            total = (total + x * y).astype(total.dtype)
                self.values[stmt.acc] = total
                self.body(stmt.body)

    def factors(self, stmt: Tile) -> list[tuple[Array, Array]]:
        """What is multiplied in one step of a contraction."""
        if not stmt.pairs:
            return [(self.operand(stmt.lhs, stmt.dtype), self.operand(stmt.rhs, stmt.dtype))]
        left, right = (self.pair(v) for v in (stmt.lhs, stmt.rhs))
        return list(zip(left, right, strict=True))

    def pair(self, value: Value) -> list[Array]:
        """Two bfloat16 that are one operand."""
        if isinstance(value, LoadValue) and value.dtype == dt.bfloat16:
            return [self.load(value), self.load(behind(value))]
        word = np.asarray(self.value(value), np.uint32).reshape(1)
        both: Array = word.view(np.uint16).view(dt.bfloat16).astype(np.float32)
        return [np.asarray(x) for x in both]

    def operand(self, value: Value, dtype: dt.DType) -> Array:
        """An operand of a contraction: rounded to its dtype, then in the accumulator's."""
        return convert(convert(self.value(value), value.dtype), held(dtype))

    # ---- values

    def value(self, value: Value) -> Array:
        """A value as a rank-0 array of the dtype it is held in."""
        match value:
            case Const():
                data = np.frombuffer(value.bits, value.dtype)[0].reshape(())
                return convert(data, held(value.dtype))
            case Ref(name=name):
                return self.values[name]
            case IndexValue(expr=expr, dtype=dtype):
                return convert(convert(np.asarray(self.dim(expr), np.int64), dtype), held(dtype))
            case LoadValue():
                return self.load(value)
            case ApplyValue():
                return self.apply(value)
        assert_never(value)

    def load(self, value: LoadValue) -> Array:
        """A checked load."""
        buffer = value.buffer
        if not self.dim(value.mask):
            if value.fill is None:
                return np.zeros((), held(buffer.dtype))
            return self.value(value.fill)
        at = self.checked(buffer, value.offset, "load")
        written = self.written[buffer.name]
        if written is not None and not written[at]:
            self.fault(f"load {buffer.name}[{value.offset}]", "an element written before", f"{at}")
        return convert(self.memory[buffer.name][at].reshape(()), held(buffer.dtype))

    def apply(self, value: ApplyValue) -> Array:
        """A scalar operation."""
        args = [self.value(a) for a in value.args]
        cast = value.op.name == "cast"
        if cast or value.op.name in _BITWISE:
            args = [convert(x, a.dtype) for x, a in zip(args, value.args, strict=True)]
        if cast or (Trait.CAST in value.op.traits and value.op.name not in _BITWISE):
            result = convert(args[0], value.dtype)
        else:
            with np.errstate(all="ignore"):
                result = np.asarray(value.op.numpy(*[a.reshape(1) for a in args])).reshape(())
        return convert(result, held(value.dtype))
