"""What a primitive computes, as data: the closed set of forms that the compiler understands.

A primitive's record carries `form(*avals, **params) -> Form`. Operations never import the compiler
and the compiler never imports operations: this file is the whole contract between them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

from lumjax.record import record
from lumjax.trace.dim import Dim
from lumjax.trace.view import IndexMap


class Trait(Enum):
    """Algebraic facts about a scalar operation that rewrite rules may use."""

    COMMUTATIVE = auto()
    ASSOCIATIVE = auto()  # over the reals; floats only up to rounding
    IDEMPOTENT = auto()
    COMPARISON = auto()  # the result is bool whatever the operands
    CAST = auto()  # the result's dtype differs from the operand's and is part of the term


class Builder(Protocol):
    """What a backend offers to a scalar operation that emits itself."""

    def apply(self, op: str, *args: Any) -> Any:
        """Emit the named machine operation on operands of one dtype."""
        ...

    def const(self, value: float | int | bool, like: Any) -> Any:
        """Emit a constant of the dtype (and vector width) of `like`."""
        ...


@record
class ScalarOp:
    """A function of scalars: the innermost unit of every kernel.

    `numpy` evaluates it on arrays (exact dtype semantics, used by verification). `emit` renders it;
    None means that backends know the operation by its name. `flops` feeds the cost model.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    emit: Callable[..., Any] | None = None
    flops: float = 1.0
    traits: frozenset[Trait] = frozenset()
    identity: float | int | bool | None = None

    def __repr__(self) -> str:
        return f"ScalarOp({self.name})"


class ReduceOp(Enum):
    """The monoids that a reduction may use."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    AND = "and"
    OR = "or"
    XOR = "xor"


class GatherMode(Enum):
    """What an out-of-range index does."""

    CLIP = "clip"
    FILL = "fill"
    PROMISE = "promise_in_bounds"


@record
class Map:
    """out[i] = op(in_0[i], in_1[i], ...); every operand has the output's shape."""

    op: ScalarOp


@record
class Reduce:
    """The operand reduced over `axes` (positions in the operand's shape)."""

    op: ReduceOp
    axes: tuple[int, ...]


@record
class Iota:
    """out[i] = i[axis], in the output's dtype."""

    axis: int


@record
class Size:
    """out[] = dim: a size known only at run time, in the output's dtype."""

    dim: Dim


@record
class Move:
    """out[c] = operand_k[maps[k](c)] for the first k whose map is valid at c.

    The maps' domain is the output's shape and they cover it. `scalars` binds symbols that occur in
    the maps to rank-0 integer operands: pairs (symbol name, operand position). Operands
    0..len(maps)-1 are the moved ones.
    """

    maps: tuple[IndexMap, ...]
    scalars: tuple[tuple[str, int], ...] = ()


class Rounding(Enum):
    """What the float32 sides of a contraction may be rounded to before they are multiplied, where a
    machine is faster so.
    """

    TF32 = "tf32"  # ten bits behind the point
    BF16 = "bf16"  # seven


@record
class Contract:
    """out[o] = sum over k of lhs[lhs_map(o, k)] * rhs[rhs_map(o, k)].

    Both maps have the domain (*output dims, *reduced dims); `reduced` is the number of trailing
    reduced dims. An invalid coordinate reads as 0. Matrix products and convolutions are both this.
    Elements of both sides may be rounded as far as `rounding` says; nobody has to.
    """

    lhs: IndexMap
    rhs: IndexMap
    reduced: int
    rounding: Rounding | None = None


@record
class Gather:
    """out[c] = operand[map(c, g)], where g_j = indices[index_maps[j](c)] is read from operand 1.

    `operand` is a map over the output's shape whose coords mention the symbols in `symbols` (one
    per index map). `bounds[j]` is the inclusive (lo, hi) range of a legal g_j. CLIP clamps into it;
    FILL yields `fill` where any g_j is outside; PROMISE promises that none is (compiled code still
    clamps: bad input must not crash).
    """

    operand: IndexMap
    index_maps: tuple[IndexMap, ...]
    symbols: tuple[str, ...]
    bounds: tuple[tuple[Dim, Dim], ...]
    mode: GatherMode
    fill: float | int | bool | None = None


@record
class Scatter:
    """out[c] = op(operand[c], updates[update(c, g)]) where an update hits c, else operand[c].

    g_j = indices[index_maps[j](c)] is read from operand 1, the updates are operand 2. `update` is a
    map over the output's shape whose coords and `valid` mention the symbols in `symbols` (one per
    index map); an update hits c where it is valid, so at most one does. Without `op` it overwrites.
    `bounds[j]` is the inclusive (lo, hi) range of a legal g_j: with `clip` g_j is moved into it,
    else no update hits where any g_j is outside.
    """

    update: IndexMap
    index_maps: tuple[IndexMap, ...]
    symbols: tuple[str, ...]
    bounds: tuple[tuple[Dim, Dim], ...]
    clip: bool
    op: ScalarOp | None = None


@record
class Update:
    """out = operand, then for each c in row-major order of the updates that is not outside:
    out[target(c, g)] = op(out[target(c, g)], updates[c]); without `op` the update overwrites.

    g_j = indices[index_maps[j](c)] is read from operand 1, the updates are operand 2. `target` is a
    map over the updates' shape whose coords mention the symbols in `symbols` (one per index map).
    `bounds[j]` is the inclusive (lo, hi) range of a legal g_j: with `clip` g_j is moved into it,
    else an update with a g_j outside is left out. Elements are kept in `dtype` meanwhile.
    """

    target: IndexMap
    index_maps: tuple[IndexMap, ...]
    symbols: tuple[str, ...]
    bounds: tuple[tuple[Dim, Dim], ...]
    clip: bool
    op: ScalarOp | None
    dtype: Any


@record
class Cumulate:
    """out[.., i, ..] = op(out[.., i - 1, ..], in[.., i, ..]) along `axis`, from i = 0 or, if
    `reverse`, from the last i. What is carried is of `dtype`; `op` is neutral on `start`.
    """

    op: ScalarOp
    axis: int
    reverse: bool
    dtype: Any
    start: float | int | bool


@record
class Order:
    """The operands along `axis` in the stable order of the first `keys` of them, nan last, zeros
    equal; backwards, but equals still in the order that they had, if `descending`. With `places`
    the last result has the positions; all results are cut off after `take` elements, unless None.
    """

    axis: int
    keys: int
    descending: bool = False
    take: Dim | None = None
    places: bool = False


@record
class Expand:
    """Compiled through the record's `expand`: its definition in other primitives."""


@record
class Repeat:
    """A sub-program run many times: (consts, carry, a row of each stack) -> (carry, a row of each
    stacked result).

    With a `length` it runs that often, over the rows of the stacks in order or, if `reverse`, from
    the last. Without, there are no stacks and it runs as long as the sub-program `test`, (consts of
    its own, carry) -> bool scalar, says so. Operands: the test's consts, the body's, the first
    carry, the stacks. Results: the last carry and the stacked results.
    """

    body: Any  # Jaxpr
    consts: int
    carry: int
    length: Dim | None = None
    reverse: bool = False
    test: Any = None  # Jaxpr or None
    test_consts: int = 0


@record
class Choose:
    """One of several sub-programs with the same operands and results, chosen by operand 0: an int32
    scalar within range. The other operands are theirs.
    """

    branches: tuple[Any, ...]  # Jaxprs


@record
class Opaque:
    """Run by the primitive's `eval` between kernels; `why` is printed by explain. `host`: it calls
    Python of the user's, which must not happen while a program is compiled.
    """

    why: str
    host: bool = False


@record
class Barrier:
    """The identity, across which nothing is merged, moved or recomputed; distinct per id."""

    id: int


Nest = Repeat | Choose  # runs sub-programs


@record
class Patch:
    """Operand 0, with operand 1 put in where operands 2, 3, ... say, its first element along each
    axis: they are moved so that it lies inside. The result has the memory of operand 0, of which
    only what changes is written.
    """


Whole = Update | Cumulate | Order | Patch  # a kernel of its own
Single = Opaque | Barrier | Nest | Whole  # no part of a region's kernels
Form = Map | Reduce | Iota | Size | Move | Contract | Gather | Scatter | Expand | Single
