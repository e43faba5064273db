"""Products of arrays: dot, matmul, einsum and their relatives, all of them dot_general."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from lumjax.numpy.creation import asarray
from lumjax.numpy.manipulation import moveaxis
from lumjax.numpy.reductions import sum as _sum
from lumjax.trace.array import Array
from lumjax.trace.core import Tracer, aval_of

ArrayLike = Any


def _logical(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, a sum of products, made to take bools: "and" for products, "or" for sums."""

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        dtypes = [aval_of(v).dtype for v in args if isinstance(v, (Array, Tracer, np.ndarray))]
        if not dtypes or any(d != dt.bool_ for d in dtypes):
            return f(*args, **kwargs)
        given = kwargs.get("preferred_element_type")
        numbers = [
            ops.cast(asarray(v), np.int32 if given is None else given)
            if isinstance(v, (Array, Tracer, np.ndarray))
            else v
            for v in args
        ]
        out = f(*numbers, **kwargs)
        return ops.ne(out, 0) if given is None else out

    return run


def _pair(a: Any, b: Any, dtype: Any) -> tuple[Any, Any]:
    x, y = ops.promote_values(asarray(a), asarray(b), operation="product")
    if dtype is not None:
        x, y = ops.cast(x, dtype), ops.cast(y, dtype)
    if dt.is_bool(aval_of(x).dtype):
        raise ArgumentTypeError(
            operation="product",
            required="numeric operands",
            got="bool arrays",
            fix="cast them to int32 first",
        )
    return x, y


def _shapes(operation: str, x: Any, y: Any, ok: bool, required: str) -> None:
    if not ok:
        raise ShapeError(
            operation=operation,
            required=required,
            got=f"{aval_of(x)} and {aval_of(y)}",
            fix="transpose or reshape an operand",
        )


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


@_logical
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The last axis of `a` times the last but one of `b`, as numpy.dot.

    >>> dot(asarray([1, 2]), asarray([3, 4]))
    Array(11, dtype=int32)
    """
    del out_sharding
    x, y = _pair(a, b, None)
    left, right = aval_of(x).ndim, aval_of(y).ndim
    if not left or not right:
        return ops.mul(x, y)
    axis = max(right - 2, 0)
    sizes = aval_of(x).shape[-1], aval_of(y).shape[axis]
    _shapes("jnp.dot", x, y, _same(*sizes), "equal sizes of the contracted axes")
    dims = (((left - 1,), (axis,)), ((), ()))
    return ops.dot_general(
        x, y, dims, precision=precision, preferred_element_type=preferred_element_type
    )


@_logical
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The matrix product over the last two axes; the axes before broadcast, vectors count as
    matrices.

    >>> matmul(asarray([[1, 2]]), asarray([[3], [4]]))
    Array([[11]], dtype=int32)
    """
    del out_sharding
    x, y = _pair(a, b, None)
    left: tuple[Any, ...] = aval_of(x).shape
    right: tuple[Any, ...] = aval_of(y).shape
    _shapes("jnp.matmul", x, y, bool(left) and bool(right), "operands with at least one axis")
    inner = left[-1], right[-2:][0]
    required = "the last axis of the first operand to equal the last but one of the second"
    _shapes("jnp.matmul", x, y, _same(*inner), required)
    lead = ops.broadcast_shapes(left[:-2], right[:-2], operation="jnp.matmul")
    # An operand without leading axes multiplies all the other's rows at once: no batch is needed.
    kept = [k for k in range(len(lead)) if not _is_one(left[:-2], k, len(lead))]
    shared = [k for k in kept if not _is_one(right[:-2], k, len(lead))]
    x, left_axes = _without_ones(x, left, lead, 2)
    y, right_axes = _without_ones(y, right, lead, 2)
    batch = ([left_axes[k] for k in shared], [right_axes[k] for k in shared])
    contract = (
        [aval_of(x).ndim - 1],
        [max(aval_of(y).ndim - 2, 0) if len(right) > 1 else aval_of(y).ndim - 1],
    )
    out = ops.dot_general(
        x,
        y,
        ((tuple(contract[0]), tuple(contract[1])), (tuple(batch[0]), tuple(batch[1]))),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    return _restore(out, shared, sorted(left_axes), sorted(right_axes), lead, left, right)


def _is_one(lead: tuple[Any, ...], k: int, rank: int) -> bool:
    """Whether position k of the broadcast leading shape is missing or 1 in this operand."""
    place = k - (rank - len(lead))
    return place < 0 or _same(lead[place], 1)


def _without_ones(
    x: Any, shape: tuple[Any, ...], lead: tuple[Any, ...], core: int
) -> tuple[Any, dict[int, int]]:
    """Drop leading axes of size 1; where each remaining broadcast axis went."""
    own = shape[:-core] if len(shape) >= core else ()
    offset = len(lead) - len(own)
    keep = [k for k in range(len(own)) if not _same(own[k], 1)]
    if len(keep) < len(own):
        x = ops.reshape(x, tuple(own[k] for k in keep) + shape[len(own) :])
    return x, {k + offset: n for n, k in enumerate(keep)}


def _restore(
    out: Any,
    shared: list[int],
    left: list[int],
    right: list[int],
    lead: tuple[Any, ...],
    x: tuple[Any, ...],
    y: tuple[Any, ...],
) -> Any:
    """dot_general gives (shared, left only, rows, right only, columns): put the axes in matmul's
    order.
    """
    left_only = [k for k in left if k not in shared]
    right_only = [k for k in right if k not in shared]
    rows = ["row"] if len(x) > 1 else []
    columns = ["column"] if len(y) > 1 else []
    have: list[Any] = [*shared, *left_only, *rows, *right_only, *columns]
    want: list[Any] = [*sorted(k for k in have if isinstance(k, int)), *rows, *columns]
    if have != want:
        out = ops.transpose(out, [have.index(k) for k in want])
    tail = tuple(aval_of(out).shape)[len(want) - len(rows) - len(columns) :]
    full = (*lead, *tail)
    return out if tuple(aval_of(out).shape) == full else ops.reshape(out, full)


def vdot(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """The inner product of the flattened operands, the first conjugated."""
    x, y = asarray(a), asarray(b)
    if dt.is_complex(aval_of(x).dtype):
        x = ops.conj(x)
    x, y = (ops.reshape(v, (aval_of(v).size,)) for v in (x, y))
    return dot(x, y, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Inner products along an axis, the first operand conjugated."""
    x, y = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    x = ops.conj(x) if dt.is_complex(aval_of(x).dtype) else x
    return einsum(
        "...i,...i->...", x, y, precision=precision, preferred_element_type=preferred_element_type
    )


@_logical
def inner(
    a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """Sums of products over the last axes."""
    x, y = _pair(a, b, None)
    if not aval_of(x).ndim or not aval_of(y).ndim:
        return ops.mul(x, y)
    return tensordot(
        x, y, (-1, -1), precision=precision, preferred_element_type=preferred_element_type
    )


def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Any:
    """All products of an element of `a` and an element of `b`, both flattened.

    >>> outer(asarray([1, 2]), asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    del out
    x, y = asarray(a), asarray(b)
    return ops.mul(ops.reshape(x, (aval_of(x).size, 1)), ops.reshape(y, (1, aval_of(y).size)))


@_logical
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: Any = 2,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Sums of products over pairs of axes: a count of trailing/leading ones, or two lists."""
    del out_sharding
    x, y = _pair(a, b, None)
    left, right = aval_of(x).ndim, aval_of(y).ndim
    if isinstance(axes, (int, np.integer)):
        if axes > min(left, right):
            raise ArgumentValueError(
                operation="jnp.tensordot",
                required=f"at most {min(left, right)} axes",
                got=str(axes),
                fix="contract fewer axes",
            )
        one, two = range(left - int(axes), left), range(int(axes))
    else:
        one, two = ([k] if isinstance(k, (int, np.integer)) else list(k) for k in axes)
    ones = tuple(ops.canonical_axis("jnp.tensordot", k, left) for k in one)
    twos = tuple(ops.canonical_axis("jnp.tensordot", k, right) for k in two)
    return ops.dot_general(
        x,
        y,
        ((ones, twos), ((), ())),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Any:
    """The vector product of 3-vectors (or the scalar one of 2-vectors) along an axis."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    sizes = aval_of(x).shape[-1], aval_of(y).shape[-1]
    _shapes("jnp.cross", x, y, all(n in (2, 3) for n in sizes), "vectors of 2 or 3 elements")
    u, v = ([_component(w, k) for k in range(n)] for w, n in zip((x, y), sizes, strict=True))
    plane = ops.sub(ops.mul(u[0], v[1]), ops.mul(u[1], v[0]))
    if sizes == (2, 2):
        return plane
    zero = ops.mul(plane, 0)
    u, v = ([*w, ops.mul(w[0], 0)] if len(w) == 2 else w for w in (u, v))
    parts = [
        ops.sub(ops.mul(u[1], v[2]), ops.mul(u[2], v[1])),
        ops.sub(ops.mul(u[2], v[0]), ops.mul(u[0], v[2])),
        plane,
    ]
    parts = [ops.add(p, zero) for p in parts]
    rank = aval_of(parts[0]).ndim
    return moveaxis(ops.concatenate([ops.expand_dims(p, (rank,)) for p in parts], rank), -1, axisc)


def _component(x: Any, k: int) -> Any:
    shape = tuple(aval_of(x).shape)
    low = (*[0] * (len(shape) - 1), k)
    return ops.squeeze(ops.slice(x, low, (*shape[:-1], k + 1)), (len(shape) - 1,))


def kron(a: ArrayLike, b: ArrayLike) -> Any:
    """The Kronecker product."""
    x, y = _pair(a, b, None)
    rank = max(aval_of(x).ndim, aval_of(y).ndim)
    left, right = ((1,) * (rank - aval_of(v).ndim) + tuple(aval_of(v).shape) for v in (x, y))
    x = ops.reshape(x, tuple(n for k in left for n in (k, 1)))
    y = ops.reshape(y, tuple(n for k in right for n in (1, k)))
    return ops.reshape(ops.mul(x, y), tuple(m * n for m, n in zip(left, right, strict=True)))


def trace(
    a: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: None = None,
) -> Any:
    """The sum along a diagonal of two axes."""
    del out
    return _sum(diagonal(a, offset, axis1, axis2), -1, dtype)


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements on a diagonal of two axes, as a last axis."""
    value = asarray(a)
    rank = aval_of(value).ndim
    _shapes("jnp.diagonal", value, value, rank >= 2, "an array with at least 2 axes")
    value = moveaxis(value, (axis1, axis2), (-2, -1))
    shape = tuple(aval_of(value).shape)
    rows, columns = shape[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    start = max(-offset, 0) * columns + max(offset, 0)
    if not isinstance(columns, int):
        return _masked_diagonal(value, offset, max(-offset, 0), count)
    flat = ops.reshape(value, (*shape[:-2], rows * columns))
    if not count:
        return ops.slice(flat, (0,) * (rank - 1), (*shape[:-2], 0))
    low, high = (0,) * (rank - 2) + (start,), (*shape[:-2], start + (count - 1) * (columns + 1) + 1)
    return ops.slice(flat, low, high, (1,) * (rank - 2) + (columns + 1,))


def _masked_diagonal(value: Any, offset: int, start: Any, count: Any) -> Any:
    """The diagonal as sums of rows in which nothing else is left: for sizes that are not known, of
    which no strides are made.
    """
    aval = aval_of(value)
    rank = aval.ndim
    row, column = (ops.broadcasted_iota(np.int32, aval.shape, rank - k) for k in (2, 1))
    nothing = np.asarray(-0.0 if dt.is_inexact(aval.dtype) else 0, aval.dtype)  # x + -0.0 is x
    alone = ops.select(ops.eq(column, ops.add(row, offset)), value, nothing)
    if dt.is_bool(aval.dtype):
        every = ops.reduce_or(alone, (rank - 1,))
    else:
        every = ops.reduce_sum(alone, (rank - 1,))
    low = (0,) * (rank - 2)
    return ops.slice(every, (*low, start), (*aval.shape[:-2], start + count))


def diag(v: ArrayLike, k: int = 0) -> Any:
    """The k-th diagonal of a matrix, or the matrix with this k-th diagonal.

    >>> diag(asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    value = asarray(v)
    match aval_of(value).ndim:
        case 2:
            return diagonal(value, k)
        case 1:
            return _diagonal_matrix(value, k)
        case _:
            raise ShapeError(
                operation="jnp.diag",
                required="a vector or a matrix",
                got=str(aval_of(value)),
                fix="use diagonal for more axes",
            )


def _diagonal_matrix(v: Any, k: int) -> Any:
    n = aval_of(v).shape[0]
    size = n + abs(k)
    zero = ops.full((), 0, aval_of(v).dtype)
    rows, columns = (ops.broadcasted_iota(np.int32, (size, size), axis) for axis in (0, 1))
    padded = ops.pad(v, zero, ((max(k, 0), max(-k, 0), 0),))
    across = ops.broadcast_in_dim(padded, (size, size), (1,))
    return ops.select(ops.eq(ops.add(rows, k), columns), across, zero)


def diagflat(v: ArrayLike, k: int = 0) -> Any:
    """The matrix whose k-th diagonal is the flattened input."""
    value = asarray(v)
    return _diagonal_matrix(ops.reshape(value, (aval_of(value).size,)), k)


# ---- einsum

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@_logical
def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "optimal",
    precision: Any = None,
    preferred_element_type: Any = None,
    _dot_general: Callable[..., Any] = ops.dot_general,
    out_sharding: Any = None,
) -> Any:
    """Einstein summation, contracted pairwise in a good order, each pair by one `_dot_general`.

    >>> einsum("ij,j->i", asarray([[1, 2], [3, 4]]), asarray([1, 1]))
    Array([3, 7], dtype=int32)
    """
    del out, optimize, out_sharding
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists(subscripts, operands)
    values = [asarray(x) for x in operands]
    inputs, output = _subscripts(subscripts, [aval_of(v).ndim for v in values])
    values = ops.promote_values(*values, operation="jnp.einsum")
    sizes = _sizes(inputs, values)
    terms = [_own(v, names, sizes) for v, names in zip(values, inputs, strict=True)]
    for pair in _order(terms, output, sizes):
        chosen = [terms[k] for k in pair]
        terms = [t for k, t in enumerate(terms) if k not in pair]
        left = set(output).union(*(names for _, names in terms))
        if len(chosen) == 1:
            terms.append(_reduce(chosen[0], left))
        else:
            options = (precision, preferred_element_type, _dot_general)
            terms.append(_contract(chosen[0], chosen[1], left, *options))
    value, names = _reduce(terms[0], set(output))
    return ops.transpose(value, [names.index(c) for c in output]) if names != output else value


def _from_lists(first: Any, rest: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """einsum(x, [0, 1], y, [1, 2], [0, 2]) as a subscripts string and operands."""
    given = (first, *rest)
    operands, lists = given[: len(given) // 2 * 2 : 2], given[1::2]
    output = given[-1] if len(given) % 2 else None

    def letters(axes: Any) -> str:
        return "".join("..." if k is Ellipsis else _LETTERS[int(k)] for k in axes)

    try:
        text = ",".join(letters(axes) for axes in lists)
        return text if output is None else f"{text}->{letters(output)}", operands
    except (TypeError, IndexError, ValueError):
        raise ArgumentTypeError(
            operation="jnp.einsum",
            required="a subscripts string such as 'ij,jk->ik', or each operand with its axes",
            got=f"{first!r}",
            fix="write the subscripts as a string",
        ) from None


def _subscripts(text: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The axis names of each operand and of the result, ellipses replaced by capital digits."""
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    bad = len(parts) != len(ranks) or "-" in left or ">" in left
    inputs: list[str] = []
    rest = [chr(0x3B1 + k) for k in range(24)]  # letters that no user writes
    widest = max(
        (r - len(p.replace("...", "")) for p, r in zip(parts, ranks, strict=False)), default=0
    )
    for part, rank in zip(parts, ranks, strict=False):
        missing = rank - len(part.replace("...", ""))
        bad = bad or missing < 0 or (missing > 0 and "..." not in part)
        inputs.append(part.replace("...", "".join(rest[widest - max(missing, 0) : widest])))
    every = "".join(inputs)
    spread = "".join(c for c in rest[:widest] if c in every)
    if arrow:
        output = right.replace("...", spread)
    else:
        output = spread + "".join(
            sorted(c for c in set(every) if every.count(c) == 1 and c not in rest)
        )
    if bad or any(c not in every for c in output) or len(set(output)) != len(output):
        raise ArgumentValueError(
            operation="jnp.einsum",
            required="one subscript per axis of each operand, and output subscripts among them",
            got=f"{text!r} for operands with {', '.join(map(str, ranks))} axes",
            fix="correct the subscripts",
        )
    return inputs, output


def _sizes(inputs: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for names, value in zip(inputs, values, strict=True):
        for name, n in zip(names, aval_of(value).shape, strict=True):
            have = sizes.get(name, 1)
            if not _same(have, n) and not _same(have, 1) and not _same(n, 1):
                raise ShapeError(
                    operation="jnp.einsum",
                    required=f"one size for subscript {name!r}",
                    got=f"{have} and {n}",
                    fix="check the operands' shapes",
                )
            sizes[name] = n if _same(have, 1) else have
    return sizes


def _own(value: Any, names: str, sizes: dict[str, Any]) -> tuple[Any, str]:
    """The operand without repeated names (their diagonal) and without axes of 1 that broadcast."""
    while len(set(names)) < len(names):
        name = next(c for c in names if names.count(c) > 1)
        first = names.index(name)
        second = names.index(name, first + 1)
        value = diagonal(value, 0, first, second)
        names = "".join(c for k, c in enumerate(names) if k not in (first, second)) + name
    shape = aval_of(value).shape
    drop = [k for k, c in enumerate(names) if _same(shape[k], 1) and not _same(sizes[c], 1)]
    if drop:
        value = ops.squeeze(value, drop)
        names = "".join(c for k, c in enumerate(names) if k not in drop)
    return value, names


def _order(
    terms: Sequence[tuple[Any, str]], output: str, sizes: dict[str, Any]
) -> list[tuple[int, ...]]:
    """Which operands to contract, step by step: the pair with the smallest result first."""
    names = [set(n) for _, n in terms]
    steps: list[tuple[int, ...]] = []

    def result(pair: tuple[int, int]) -> set[str]:
        others = [n for k, n in enumerate(names) if k not in pair]
        return (names[pair[0]] | names[pair[1]]) & set(output).union(*others)

    def growth(pair: tuple[int, int]) -> tuple[float, float]:
        def volume(axes: set[str]) -> float:
            return math.prod(n if isinstance(n := sizes[c], int) else 256 for c in axes)

        inputs = volume(names[pair[0]]) + volume(names[pair[1]])
        return volume(result(pair)) - inputs, volume(names[pair[0]] | names[pair[1]])

    while len(names) > 1:
        pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
        best = min(pairs, key=growth)
        steps.append(best)
        merged = result(best)
        names = [n for k, n in enumerate(names) if k not in best] + [merged]
    return steps


def _reduce(term: tuple[Any, str], keep: set[str]) -> tuple[Any, str]:
    value, names = term
    axes = [k for k, c in enumerate(names) if c not in keep]
    if not axes:
        return term
    return ops.reduce_sum(value, axes), "".join(c for c in names if c in keep)


def _contract(
    x: tuple[Any, str],
    y: tuple[Any, str],
    keep: set[str],
    precision: Any,
    preferred: Any,
    dot_general: Callable[..., Any],
) -> tuple[Any, str]:
    """One dot_general; axes that only one operand has and nobody needs are summed first."""
    (a, left), (b, right) = _reduce(x, keep | set(y[1])), _reduce(y, keep | set(x[1]))
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in keep]
    summed = [c for c in shared if c not in keep]
    dims = (
        (tuple(left.index(c) for c in summed), tuple(right.index(c) for c in summed)),
        (tuple(left.index(c) for c in batch), tuple(right.index(c) for c in batch)),
    )
    out = dot_general(a, b, dims, precision=precision, preferred_element_type=preferred)
    names = batch + [c for c in left if c not in shared] + [c for c in right if c not in shared]
    return out, "".join(names)
