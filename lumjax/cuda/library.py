"""Plain products as calls of cuBLAS (`gemmEx`): another candidate, off by default.

What cuBLAS is told is worked out here: which matrix comes first, what is transposed, how far
columns lie apart. Its matrices are laid out by columns: a result by rows is its own transposed
one, so that the sides change places. None of it has run on a GPU; tests hold the arguments to a
stand-in that does in NumPy what cuBLAS's documentation says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from lumjax import dtype as dt
from lumjax.kernel.evaluate import factors
from lumjax.kernel.ir import Kernel
from lumjax.kernel.prepare import offset, parametrise
from lumjax.kernel.rounded import rounding_of
from lumjax.kernel.term import Apply, Axis, Group, Load, Reduction, Term, free_names
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp, Rounding, Trait

# cuBLAS's numbers: of types, of how sums are computed, of what is done to a matrix.
TYPES = {
    dt.float32: 0, dt.float64: 1, dt.float16: 2, dt.complex64: 4, dt.complex128: 5, dt.bfloat16: 14,
}  # fmt: skip
EXACT, IN_BFLOAT16, IN_TF32, DOUBLE = 68, 75, 77, 70
PLAIN, TRANSPOSED = 0, 1
_SIXTEEN = (dt.float16, dt.bfloat16)
_MOST = (1 << 31) - 1  # of a number that cuBLAS takes

Extents: TypeAlias = "list[tuple[int, tuple[int, ...]]]"  # of axes, with their strides


@record
class Operand:
    """An array as a matrix: its buffer, where it begins, and by what its axes go, in elements."""

    buffer: str
    dtype: dt.DType
    base: Dim
    strides: tuple[tuple[str, Dim], ...]

    def at(self, axis: Axis, sizes: Mapping[str, int]) -> int:
        """The stride of an axis."""
        return int(dims.evaluate(dict(self.strides).get(axis.name, 0), sizes))


@record
class Gemm:
    """A product: its sides, its result, and the axes of rows, of columns, of the sum, of all."""

    left: Operand
    right: Operand
    result: Operand
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    compute: int


@record
class Matrix:
    """A side as cuBLAS takes it: the number of its buffer in the kernel's table, bytes to its first
    element, its type, the distance of columns, that of matrices.
    """

    buffer: int
    begin: int
    type: int
    operation: int
    leading: int
    stride: int


@record
class Call:
    """The arguments of gemmEx, or of gemmStridedBatchedEx where there are several."""

    first: Matrix
    second: Matrix
    result: Matrix
    m: int
    n: int
    k: int
    count: int
    compute: int
    complex: bool

    @property
    def double(self) -> bool:
        """Whether factors are float64."""
        return self.compute == DOUBLE


products: dict[str, Gemm] = {}  # that the library does, by digest of their kernels

# ---- what is a product


def gemm_of(group: Group) -> Gemm | None:
    """The product that a group is, and nothing else; None for another one."""
    prepared = parametrise(group).group
    if len(prepared.roots) != 1:
        return None
    (root,) = prepared.roots
    term = root.term
    if isinstance(term, Apply) and Trait.CAST in term.op.traits and term.dtype in _SIXTEEN:
        (term,) = term.args
    if not isinstance(term, Reduction) or term.op is not ReduceOp.SUM or term.scale or term.shift:
        return None
    sides = factors(term)
    if sides is None:
        return None
    allowed = [rounding_of(s) for s in sides]
    loads = [_bare(s) for s in sides]
    left, right = (x if isinstance(x, Load) else None for x in loads)
    if left is None or right is None or left.dtype != right.dtype or left.dtype not in TYPES:
        return None
    narrow = left.dtype in _SIXTEEN
    compute = DOUBLE if left.dtype in (dt.float64, dt.complex128) else EXACT
    if all(allowed) and left.dtype == dt.float32:
        compute = IN_BFLOAT16 if set(allowed) == {Rounding.BF16} else IN_TF32
    wanted = (left.dtype, dt.float32) if narrow else (left.dtype,)
    if root.buffer.dtype not in wanted or term.dtype not in wanted:
        return None
    order = [*root.axes, *sorted(term.axes, key=lambda a: a.name)]
    made = [_operand(x, order) for x in (left, right)]
    symbols = iter([dims.symbol(a.name) for a in root.axes])
    one = [isinstance(n, int) and n == 1 for n in root.buffer.shape]
    coords = tuple(0 if single else next(symbols) for single in one)
    result = _operand(Load(root.buffer, coords), order)
    if made[0] is None or made[1] is None or result is None:
        return None
    free = [free_names(x) for x in (left, right)]
    axes = {
        k: tuple(a for a in order if (a.name in free[0], a.name in free[1]) == k) for k in _KINDS
    }
    if any(a.name not in free[0] | free[1] for a in order):
        return None
    inner = tuple(a for a in axes[True, True] if a in term.axes)
    outer = tuple(a for a in axes[True, True] if a not in term.axes)
    rows, columns = axes[True, False], axes[False, True]
    if set(inner) != set(term.axes):  # a side that does not vary along the sum is no matrix
        return None
    return Gemm(made[0], made[1], result, rows, columns, inner, outer, compute)


_KINDS = ((True, True), (True, False), (False, True))


def _bare(side: Term) -> Term:
    """What is loaded, before it is rounded or made wider only to be multiplied."""
    if isinstance(side, Apply) and rounding_of(side):
        (side,) = side.args
    if isinstance(side, Apply) and Trait.CAST in side.op.traits and side.dtype == dt.float32:
        (inner,) = side.args
        return inner if inner.dtype in _SIXTEEN else side
    return side


def _operand(load: Load, axes: Sequence[Axis]) -> Operand | None:
    """An array whose elements lie at even distances."""
    if load.indices or not (isinstance(load.valid, int) and load.valid):
        return None
    place = offset(load.buffer.shape, load.coords)
    names = {a.name for a in axes}
    strides: list[tuple[str, Dim]] = []
    for axis in axes:
        slope = dims.coefficient(place, axis.name)
        if slope is None or dims.symbols(slope) & names:
            return None
        strides.append((axis.name, slope))
    base = dims.substitute(place, dict.fromkeys(names, 0))
    return Operand(load.buffer.name, load.dtype, base, tuple(strides))


# ---- what cuBLAS is told


def call_of(gemm: Gemm, kernel: Kernel, sizes: Mapping[str, int]) -> Call | None:
    """The arguments at sizes; None where cuBLAS can't be told so."""
    sides = gemm.left, gemm.right, gemm.result
    rows = _merged(gemm.rows, (gemm.left, gemm.result), sizes)
    columns = _merged(gemm.columns, (gemm.right, gemm.result), sizes)
    depth = _merged(gemm.depth, (gemm.left, gemm.right), sizes)
    outer = _merged(gemm.outer, sides, sizes)
    if rows is None or columns is None or depth is None or outer is None:
        return None
    (m, (left_m, out_m)), (n, (right_n, out_n)) = rows, columns
    (k, (left_k, right_k)), (count, steps) = depth, outer
    if 0 in (m, n, k, count):
        return None
    places = [_matrix(s, kernel, sizes, step) for s, step in zip(sides, steps, strict=True)]
    across = _columns(n, m, out_n, out_m)
    if across is not None:  # by rows: the sides change places
        first = _side(places[1], n, k, right_n, right_k)
        second = _side(places[0], m, k, left_m, left_k, turned=True)
    else:
        across = _columns(m, n, out_m, out_n)
        first = _side(places[0], m, k, left_m, left_k)
        second = _side(places[1], n, k, right_n, right_k, turned=True)
        m, n = n, m
    if first is None or second is None or across is None:
        return None
    result = replace(places[2], leading=across)
    numbers = (m, n, k, count, first.leading, second.leading, across)
    if max(numbers) > _MOST:
        return None
    return Call(first, second, result, n, m, k, count, gemm.compute,
                gemm.left.dtype in dt.COMPLEX)  # fmt: skip


def _merged(
    axes: Sequence[Axis], operands: Sequence[Operand], sizes: Mapping[str, int]
) -> tuple[int, tuple[int, ...]] | None:
    """Axes as one: its extent, and its stride in each operand; None if they don't follow on."""
    found: Extents = []
    for axis in axes:
        extent = int(dims.evaluate(axis.extent, sizes))
        if extent != 1:
            found.append((extent, tuple(o.at(axis, sizes) for o in operands)))
    if not found:
        return 1, (0,) * len(operands)
    found.sort(key=lambda x: x[1], reverse=True)
    extent, strides = found.pop()
    while found:
        before, wider = found.pop()
        if wider != tuple(extent * s for s in strides):
            return None
        extent *= before
    return extent, strides


def _matrix(side: Operand, kernel: Kernel, sizes: Mapping[str, int], step: int) -> Matrix:
    number = [b.name for b in kernel.buffers].index(side.buffer)
    begin = int(dims.evaluate(side.base, sizes)) * side.dtype.itemsize
    return Matrix(number, begin, TYPES[side.dtype], PLAIN, 0, step)


def _columns(rows: int, columns: int, down: int, across: int) -> int | None:
    """The distance of the columns of a matrix whose columns are dense; None if it is no such."""
    if rows > 1 and down != 1:
        return None
    if columns <= 1:
        return max(1, rows)
    return across if across >= max(1, rows) else None


def _side(
    matrix: Matrix, free: int, depth: int, along: int, inward: int, turned: bool = False
) -> Matrix | None:
    """A side with an axis of the result and the sum's; `turned`: the sum's is down columns."""
    plain = _columns(free, depth, along, inward)
    other = _columns(depth, free, inward, along)
    order = (other, plain) if turned else (plain, other)
    for operation, leading in zip((PLAIN, TRANSPOSED), order, strict=True):
        if leading is not None:
            return replace(matrix, operation=operation, leading=leading)
    return None
