"""Kernel IR: what `lower` produces and the renderers consume.

Scalar semantics throughout. A VECTOR loop promises that its iterations are independent except for
`Accumulate` (an associative monoid), so that a renderer may run them W at a time and keep partial
accumulators.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TypeAlias

from lumjax import dtype as dt
from lumjax.kernel.term import Buffer
from lumjax.record import record
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp, ScalarOp


class LoopKind(Enum):
    """How a loop may run."""

    SERIAL = auto()
    UNROLL = auto()
    VECTOR = auto()


# ---- values: pure expressions; sharing is by identity of the Let that names them


@record
class Const:
    """A constant; `bits` little-endian."""

    dtype: dt.DType
    bits: bytes


@record
class Ref:
    """The value of a Let, or the current value of an accumulator."""

    name: str
    dtype: dt.DType


@record
class IndexValue:
    """An index expression (over loop variables, integer Lets and size parameters) as a value of
    `dtype`.
    """

    expr: Dim
    dtype: dt.DType


@record
class LoadValue:
    """buffer[offset] where `mask` is nonzero, else `fill`; masked-off lanes touch no memory.

    `offset` is in elements: an expression over loop variables, integer Lets and size parameters.
    """

    buffer: Buffer
    offset: Dim
    mask: Dim = 1
    fill: Const | None = None

    @property
    def dtype(self) -> dt.DType:
        """The element type."""
        return self.buffer.dtype


@record
class ApplyValue:
    """A scalar operation; `dtype` is the result's."""

    op: ScalarOp
    args: tuple[Value, ...]
    dtype: dt.DType


Value: TypeAlias = Const | Ref | IndexValue | LoadValue | ApplyValue

# ---- statements


@record
class Let:
    """Name a value. An integer Let may be mentioned by index expressions as the symbol `name`."""

    name: str
    value: Value


@record
class Accumulator:
    """Declare an accumulator holding `init`; `op` is the monoid its Accumulates use."""

    name: str
    dtype: dt.DType
    op: ReduceOp
    init: Value


@record
class Accumulate:
    """accumulator = op(accumulator, value)."""

    name: str
    value: Value


@record
class StoreStmt:
    """buffer[offset] = value where `mask` is nonzero."""

    buffer: Buffer
    offset: Dim
    value: Value
    mask: Dim = 1


@record
class Loop:
    """for var in range(begin, end, step): body. The last trip may be partial only if step is 1."""

    var: str
    begin: Dim
    end: Dim
    step: int
    kind: LoopKind
    body: tuple[Stmt, ...]


@record
class Tile:
    """A register-tiled contraction over rows m0 <= m < min(m0+rows, m_end) and columns n0 <= n <
    min(n0+cols, n_end).

    acc[m, n] = sum over the `k` loops (variable, extent), outermost first, of lhs * rhs; then
    `body` runs once per (m, n) with the finished sum as `Ref(acc)`. `lhs` mentions the m and k
    variables, `rhs` n and k; `body` mentions m and n. Columns are the vector axis. `dtype` is the
    accumulator's. `ahead`: the tile of the next columns comes soon after, and its `rhs` may be
    fetched from memory meanwhile. `long`: so may what `body` stores to, while the sum is computed.
    `pairs`: both sides are two bfloat16 each, whose two products are added: a uint32 with the first
    in its low bits, or a load of bfloat16, which stands for its element and the one behind it.
    """

    acc: str
    dtype: dt.DType
    m: str
    m0: Dim
    m_end: Dim
    rows: int
    n: str
    n0: Dim
    n_end: Dim
    cols: int
    k: tuple[tuple[str, Dim], ...]
    lhs: Value
    rhs: Value
    body: tuple[Stmt, ...]
    ahead: bool = False
    long: bool = False
    pairs: bool = False


def behind(load: LoadValue) -> LoadValue:
    """The element behind a load's."""
    return LoadValue(load.buffer, load.offset + 1, load.mask, load.fill)


@record
class If:
    """Run `body` where `condition` (an index expression) is nonzero."""

    condition: Dim
    body: tuple[Stmt, ...]


Stmt: TypeAlias = Let | Accumulator | Accumulate | StoreStmt | Loop | Tile | If


@record
class Scratch:
    """A job-local dense buffer in L1/L2, addressed like any buffer; `elements` is constant."""

    buffer: Buffer
    elements: int


@record
class Phase:
    """One parallel_for: `body` runs once for each value of `job` in range(jobs), in any order, on
    any thread.
    """

    job: str
    jobs: Dim
    body: tuple[Stmt, ...]


@record
class Kernel:
    """Phases run one after the other. ABI: a table of i64: buffer addresses in order of `buffers`,
    then `sizes`.

    `sizes` names the symbols passed as arguments (extents and chunk lengths are arguments; register
    tiles are constants), and `extents` their values in the traced program, one by one. Shapes
    mention `sizes`. `workspace` buffers hold partial results between phases; the caller provides
    them. Buffers that are stored to come first in `outputs` order and never alias another.
    `programs` names the loop programs that it consists of, for people.
    """

    name: str
    outputs: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    workspace: tuple[Buffer, ...]
    scratch: tuple[Scratch, ...]
    sizes: tuple[str, ...]
    phases: tuple[Phase, ...]
    extents: tuple[Dim, ...] = ()
    programs: tuple[str, ...] = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The table's buffers: outputs, inputs, workspace."""
        return self.outputs + self.inputs + self.workspace
