"""Loop programs written by hand: kernels of equations that are no terms.

A `Builder` collects the phases, size arguments and workspace of one kernel. Statements go into
`Scope`s; values are made by the functions below.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.emit import CAST, Scope
from lumjax.kernel.evaluate import convert
from lumjax.kernel.ir import (
    ApplyValue,
    Const,
    If,
    IndexValue,
    Kernel,
    Let,
    LoadValue,
    LoopKind,
    Phase,
    Scratch,
    StoreStmt,
    Value,
)
from lumjax.kernel.share import WORK_PER_JOB
from lumjax.kernel.term import Buffer
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ScalarOp

BITCAST = ScalarOp("bitcast", 1, convert)
_OPERATIONS = {
    name: ScalarOp(name, arity, function)
    for name, arity, function in (
        ("add", 2, np.add),
        ("and", 2, np.bitwise_and),
        ("or", 2, np.bitwise_or),
        ("xor", 2, np.bitwise_xor),
        ("shift_right_logical", 2, np.right_shift),
        ("eq", 2, np.equal),
        ("ne", 2, np.not_equal),
        ("lt", 2, np.less),
        ("select", 3, np.where),
    )
}


@record
class Uniform:
    """An operand that has one value everywhere."""

    value: Const


Operand: TypeAlias = Buffer | Uniform


def dtype_of(operand: Operand) -> dt.DType:
    """The element type."""
    return operand.value.dtype if isinstance(operand, Uniform) else operand.dtype


def const(dtype: dt.DType, value: Any) -> Const:
    """A constant."""
    return Const(dtype, np.asarray(value).astype(dtype).tobytes())


def read(operand: Operand, offset: Dim, mask: Dim = 1) -> Value:
    """An element; where the mask is zero no memory is read."""
    if isinstance(operand, Uniform):
        return operand.value
    fill = const(operand.dtype, 0) if not isinstance(mask, int) else None
    return LoadValue(operand, offset, mask, fill)


def apply(name: str, *args: Value) -> Value:
    """An operation on operands of one dtype."""
    dtype = args[-1].dtype if name not in ("eq", "ne", "lt") else np.dtype(bool)
    return ApplyValue(_OPERATIONS[name], args, dtype)


def cast(value: Value, dtype: dt.DType) -> Value:
    """The value in another dtype."""
    return value if value.dtype == dtype else ApplyValue(CAST, (value,), dtype)


def between(value: Dim, low: Dim, high: Dim) -> Dim:
    """The value moved into [low, high]; low where there is nothing between."""
    return dims.maximum(dims.minimum(value, high), low)


def volume(shape: Iterable[Dim]) -> Dim:
    """The number of elements."""
    return math.prod(shape, start=1)


@contextmanager
def when(scope: Scope, condition: Dim) -> Generator[Scope]:
    """A scope whose statements run where the condition is nonzero."""
    inner = Scope(scope)
    yield inner
    if not isinstance(condition, int):
        scope.add(If(condition, tuple(inner.stmts)))
    elif condition:
        scope.add(*inner.stmts)


@dataclass(slots=True)
class Choices:
    """What a program for blocks of threads chose by its sizes. Lowered again with them, an
    equation of other sizes gets the same text.
    """

    made: list[int] = field(default_factory=list[int])
    given: Iterator[int] | None = None

    def choose(self, value: int) -> int:
        """The value, or what was chosen in its place before."""
        if self.given is not None:
            return next(self.given)
        self.made.append(value)
        return value

    def again(self) -> Choices:
        """The same choices, for other sizes."""
        return Choices(given=iter(self.made))


class Builder:
    """Builds one kernel."""

    def __init__(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], choices: Choices | None = None
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.choices = Choices() if choices is None else choices
        self.sizes: dict[str, Dim] = {}
        self.apart = False  # whether axes have arguments of their own, even if they are as long
        self._names: dict[tuple[Dim, int], Dim] = {}
        self.workspaces: list[Buffer] = []
        self.scratches: list[Scratch] = []
        self.phases: list[Phase] = []
        self._count = 0

    def fresh(self, prefix: str) -> str:
        """A new name."""
        self._count += 1
        return f"{prefix}_{self._count}"

    def size(self, value: Dim, axis: int = 0) -> Dim:
        """A size as an argument of the kernel; equal ones share it. 0 and 1 stay what they are."""
        if isinstance(value, int) and value in (0, 1):
            return value
        key = value, axis if self.apart else 0
        if key not in self._names:
            name = f"n{len(self.sizes)}"
            self.sizes[name] = value
            self._names[key] = dims.symbol(name, dims.bounds(value)[0] or 0)
        return self._names[key]

    def amount(self, value: int) -> Dim:
        """A positive number that a kernel's author chose, as an argument of its own."""
        name = f"n{len(self.sizes)}"
        self.sizes[name] = value
        return dims.symbol(name, 1)

    def shape(self, shape: Iterable[Dim]) -> tuple[Dim, ...]:
        """A shape in size arguments."""
        return tuple([self.size(n, k) for k, n in enumerate(shape)])

    def sized(self, operand: Operand) -> Operand:
        """The operand with its shape in size arguments."""
        if isinstance(operand, Uniform):
            return operand
        return Buffer(operand.name, self.shape(operand.shape), operand.dtype)

    def workspace(self, shape: Sequence[Dim], dtype: dt.DType) -> Buffer:
        """Memory of the kernel's own."""
        made = Buffer(f"w{len(self.workspaces)}", tuple(shape), dtype)
        self.workspaces.append(made)
        return made

    def scratch(self, elements: int, dtype: dt.DType) -> Buffer:
        """Memory of a job's own."""
        made = Buffer(f"s{len(self.scratches)}", (elements,), dtype)
        self.scratches.append(Scratch(made, elements))
        return made

    def let(self, scope: Scope, value: Value, prefix: str = "v") -> Dim:
        """Name an integer value; the name, as a symbol of index expressions."""
        name = self.fresh(prefix)
        scope.add(Let(name, value))
        scope.bound.add(name)
        return dims.symbol(name, None)

    def index(self, scope: Scope, expr: Dim, name: str) -> Dim:
        """Bind an index expression to a name."""
        scope.add(Let(name, IndexValue(expr, dt.int64)))
        scope.bound.add(name)
        return dims.symbol(name, dims.bounds(expr)[0], dims.bounds(expr)[1])

    @contextmanager
    def job(self, jobs: Dim) -> Generator[tuple[Scope, Dim]]:
        """A phase: the scope of one job, and its number."""
        name = self.fresh("job")
        scope = Scope(bound={name})
        yield scope, dims.symbol(name, 0)
        self.phases.append(Phase(name, jobs, tuple(scope.stmts)))

    @contextmanager
    def shares(
        self, total: Dim, each: int, var: str, kind: LoopKind = LoopKind.SERIAL
    ) -> Generator[Scope]:
        """A phase whose jobs walk shares of range(total), items that cost `each`: the scope of one
        item, which binds `var`.
        """
        chunk = self.amount(max(1, WORK_PER_JOB // max(1, each)))
        with self.job(dims.ceiling_divide(total, chunk)) as (scope, job):
            begin = job * chunk
            end = dims.minimum(begin + chunk, total)
            with scope.loop(var, end, kind, begin) as inner:
                yield inner

    def decode(self, scope: Scope, flat: Dim, parts: Sequence[tuple[str, Dim]]) -> None:
        """Bind the names so that their row-major index in their extents is `flat`."""
        for k in reversed(range(len(parts))):
            name, extent = parts[k]
            here = dims.remainder(flat, extent) if k else flat
            flat = dims.floor_divide(flat, extent)
            self.index(scope, here, name)

    def idle(self) -> None:
        """Nothing to compute: of the buffers the shapes alone."""
        inputs, outputs = self.inputs, self.outputs
        self.inputs, self.outputs = (
            tuple(Buffer(b.name, self.shape(b.shape), b.dtype) for b in buffers)
            for buffers in (inputs, outputs)
        )

    def kernel(self, name: str, program: str) -> Kernel:
        """The kernel."""
        if not self.phases:  # nothing to compute
            with self.job(0):
                pass
        return Kernel(
            name, self.outputs, self.inputs, tuple(self.workspaces), tuple(self.scratches),
            tuple(self.sizes), tuple(self.phases), tuple(self.sizes.values()), (program,),
        )  # fmt: skip


def store(scope: Scope, buffer: Buffer, offset: Dim, value: Value) -> None:
    """buffer[offset] = value, rounded to the buffer's dtype."""
    scope.add(StoreStmt(buffer, offset, cast(value, buffer.dtype)))
