"""The oracle of terms: evaluate them with NumPy, in their own dtypes or widened to float64.

    evaluate(root, buffers)                    -> the root's array
    evaluate(root, buffers, sizes, wide=True)  -> the same in float64, at given size symbols
    evaluate_at(root, buffers, coords)         -> its values at sampled coordinates
    evaluate_group(group, buffers)             -> {buffer name: array}
    evaluate_term(term, axes, buffers)         -> the array over `axes`

`buffers` maps buffer names to arrays of the buffer's shape. Inside, every value is an array of
full rank in one common list of axes (extent 1 where it does not depend on an axis), so that
everything is plain broadcasting; a sum of products is contracted without materialising the
product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import product
from typing import Any, TypeAlias, assert_never

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.rewrite import separate
from lumjax.kernel.rounded import epsilon
from lumjax.kernel.term import (
    Apply,
    Axis,
    Group,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    children,
    free_names,
    subterms,
)
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp, ScalarOp, Trait

Array: TypeAlias = np.ndarray[Any, Any]
Buffers: TypeAlias = Mapping[str, Array]
Sizes: TypeAlias = Mapping[str, int]

ROUNDED = -1  # a `noise`
ROUNDING = 4  # units in the last place by which noise changes every intermediate result
ELEMENTS_AT_ONCE = 1 << 22  # a larger intermediate is computed piece by piece


def evaluate(
    root: Root,
    buffers: Buffers,
    sizes: Sizes | None = None,
    wide: bool = False,
    noise: int | None = None,
) -> Array:
    """The root's array: its buffer's dtype, or float64/complex128 for inexact dtypes if `wide`.

    `noise` seeds random rounding errors in every intermediate result, as its own dtype would make;
    below zero, results are rounded to their dtypes instead: all at ROUNDED, else about every other.
    """
    return _evaluate_together((root,), buffers, sizes or {}, wide, noise)[root.buffer.name]


def evaluate_at(
    root: Root,
    buffers: Buffers,
    coords: Array,
    sizes: Sizes | None = None,
    wide: bool = False,
    noise: int | None = None,
) -> Array:
    """The root's values at `coords`, an integer array [samples, rank], each computed by itself."""
    return evaluate_group_at(Group((root,)), buffers, coords, sizes, wide, noise)[root.buffer.name]


def evaluate_group(
    group: Group, buffers: Buffers, sizes: Sizes | None = None, wide: bool = False
) -> dict[str, Array]:
    """Every root's array by buffer name."""
    out: dict[str, Array] = {}
    for roots in by_axes(group.roots):
        out |= _evaluate_together(roots, buffers, sizes or {}, wide)
    return out


def evaluate_group_at(
    group: Group,
    buffers: Buffers,
    coords: Array,
    sizes: Sizes | None = None,
    wide: bool = False,
    noise: int | None = None,
) -> dict[str, Array]:
    """The values at `coords` of every root, by buffer name; the roots' axes agree."""
    roots = group.roots
    axes = {a.name: np.asarray(coords[:, k]) for k, a in enumerate(roots[0].axes)}
    terms = [_separate(r) for r in roots]
    run = _Run(terms, buffers, sizes or {}, wide, axes, dict.fromkeys(axes, 0), noise)
    out: dict[str, Array] = {}
    for root, term in zip(roots, terms, strict=True):
        value = run.value(term)
        flat = convert(value.reshape(value.shape[0] if value.ndim else 1), _outside(root, wide))
        out[root.buffer.name] = np.broadcast_to(flat, (len(coords),))
    return out


def by_axes(roots: Sequence[Root]) -> list[tuple[Root, ...]]:
    """The roots grouped by their axes, in order."""
    groups: dict[tuple[str, ...], list[Root]] = {}
    for root in roots:
        groups.setdefault(tuple(a.name for a in root.axes), []).append(root)
    return [tuple(g) for g in groups.values()]


def _evaluate_together(
    roots: Sequence[Root], buffers: Buffers, sizes: Sizes, wide: bool, noise: int | None = None
) -> dict[str, Array]:
    """Roots over the same axes, sharing what they have in common."""
    shape = tuple(extent(a, sizes) for a in roots[0].axes)
    out = {r.buffer.name: np.empty(shape, _outside(r, wide)) for r in roots}
    terms = [_separate(r) for r in roots]
    labels = {a.name: k for k, a in enumerate(roots[0].axes)}
    for box in _boxes(roots[0].axes, terms, sizes):
        axes = {a.name: np.arange(*r) for a, r in zip(roots[0].axes, box, strict=True)}
        run = _Run(terms, buffers, sizes, wide, axes, labels, noise)
        for root, term in zip(roots, terms, strict=True):
            value = run.value(term)
            target = out[root.buffer.name]
            part = convert(value.reshape(value.shape[: len(shape)]), target.dtype)
            target[tuple(slice(*r) for r in box)] = part
    return out


def evaluate_term(
    term: Term,
    axes: Sequence[Axis],
    buffers: Buffers,
    sizes: Sizes | None = None,
    wide: bool = False,
) -> Array:
    """The term's array over `axes`, which must include its free axes."""
    ranges = {a.name: np.arange(extent(a, sizes or {})) for a in axes}
    labels = {a.name: k for k, a in enumerate(axes)}
    term = separate(term, frozenset(labels))
    value = _Run([term], buffers, sizes or {}, wide, ranges, labels).value(term)
    return np.broadcast_to(
        value.reshape(value.shape[: len(axes)]), [len(r) for r in ranges.values()]
    )


def strain(
    root: Root, buffers: Buffers, sizes: Sizes | None = None, coords: Array | None = None
) -> Array:
    """How near each element's intermediates come to overflow: 1 is the largest finite value.

    Each counts in its own dtype, terms of sums by their absolute values, so that the order in which
    they are added does not matter; constants do not count. inf where finite values make one. At
    `coords`, if given.
    """
    term = _separate(root)
    if coords is None:
        axes = {a.name: np.arange(extent(a, sizes or {})) for a in root.axes}
        labels = {a: k for k, a in enumerate(axes)}
    else:
        axes = {a.name: np.asarray(coords[:, k]) for k, a in enumerate(root.axes)}
        labels = dict.fromkeys(axes, 0)
    run = _Run([term], buffers, sizes or {}, True, axes, labels)
    run.value(term)
    shape = [len(r) for r in axes.values()] if coords is None else [len(coords)]
    found = run.strains()[term]
    return np.broadcast_to(found.reshape(found.shape[: len(shape)]), shape)


@lru_cache(maxsize=256)
def _separate(root: Root) -> Term:
    return separate(root.term, frozenset(a.name for a in root.axes))


def extent(axis: Axis, sizes: Sizes) -> int:
    """The axis's extent at the given size symbols."""
    return int(dims.evaluate(axis.extent, sizes))


def literal(lit: Lit) -> Array:
    """The literal as a rank-0 array of its dtype."""
    return np.frombuffer(lit.bits, lit.dtype)[0].reshape(())


def identity(op: ReduceOp, dtype: dt.DType) -> Any:
    """The monoid's neutral element in `dtype`, a NumPy scalar."""
    match op:
        case ReduceOp.SUM | ReduceOp.OR | ReduceOp.XOR:
            return dtype.type(0)
        case ReduceOp.PROD:
            return dtype.type(1)
        case ReduceOp.AND:
            return dtype.type(True) if dt.is_bool(dtype) else ~np.zeros((), dtype)[()]
        case ReduceOp.MAX | ReduceOp.MIN:
            low = op is ReduceOp.MAX
            if dt.is_bool(dtype):
                return dtype.type(not low)
            if dt.is_integer(dtype):
                info = np.iinfo(dtype)
                return dtype.type(info.min if low else info.max)
            return dtype.type(-np.inf if low else np.inf)
    assert_never(op)


def convert(x: Array, dtype: dt.DType) -> Array:
    """Cast as every backend does: floats truncate and saturate, nan becomes 0, integers wrap."""
    if x.dtype == dtype:
        return x
    with np.errstate(all="ignore"):
        if dt.is_complex(x.dtype) and not dt.is_complex(dtype):
            x = x != 0 if dt.is_bool(dtype) else x.real
        if dt.is_bool(dtype):
            return x != 0
        if dt.is_floating(x.dtype) and dt.is_integer(dtype):
            return _saturate(x, dtype)
        return x.astype(dtype)


def _saturate(x: Array, dtype: dt.DType) -> Array:
    info = np.iinfo(dtype)
    wide = x.astype(np.float64)
    high, low = wide >= float(info.max), wide <= float(info.min)
    inside = np.where(high | low | np.isnan(wide), 0.0, wide)
    out = np.where(high, info.max, np.where(low, info.min, np.trunc(inside).astype(dtype)))
    return out.astype(dtype)


def _outside(root: Root, wide: bool) -> dt.DType:
    return _inside(root.buffer.dtype, wide) if wide else root.buffer.dtype


def _inside(dtype: dt.DType, wide: bool) -> dt.DType:
    """The dtype in which values are held: half floats as float32, or all at their widest."""
    if dt.is_complex(dtype):
        return dt.complex128 if wide else dtype
    if dt.is_floating(dtype):
        return dt.float64 if wide else dt.accumulation_dtype(dtype)
    return dtype


def _intermediates(term: Term) -> Iterator[frozenset[str]]:
    """The names of the axes of what a reduction reads as a whole: products under a sum apart."""
    for t in subterms(term):
        if isinstance(t, Reduction) and factors(t) is None:
            yield free_names(t.body)


def _boxes(
    axes: Sequence[Axis], terms: Sequence[Term], sizes: Sizes
) -> list[tuple[tuple[int, int], ...]]:
    """The index space of roots cut so that no piece needs more than ELEMENTS_AT_ONCE elements;
    what doesn't vary along an axis is no reason to cut it.
    """
    steps = {a.name: extent(a, sizes) for t in terms for a in bound_axes(t)}
    steps |= {a.name: extent(a, sizes) for a in axes}
    whole = frozenset(a.name for a in axes)
    for names in dict.fromkeys([whole, *(n for t in terms for n in _intermediates(t))]):
        pieces = -(-math.prod(steps.get(n, 1) for n in names) // ELEMENTS_AT_ONCE)
        for a in axes:
            if a.name in names and steps[a.name]:
                count = min(max(pieces, 1), steps[a.name])
                pieces = -(-pieces // count)
                steps[a.name] = -(-steps[a.name] // count)
    ranges: list[list[tuple[int, int]]] = []
    for a in axes:
        n, step = extent(a, sizes), max(1, steps[a.name])
        ranges.append([(b, min(b + step, n)) for b in range(0, n, step)])
    return [tuple(box) for box in product(*ranges)]


def bound_axes(term: Term) -> list[Axis]:
    """Every axis that some reduction in the term binds."""
    found = {a.name: a for t in subterms(term) if isinstance(t, Reduction) for a in t.axes}
    return [found[n] for n in sorted(found)]


def factors(term: Reduction) -> tuple[Term, Term] | None:
    """The operands of a sum of products, else None."""
    body = term.body
    if term.op is ReduceOp.SUM and isinstance(body, Apply) and body.op.name == "mul":
        x, y = body.args
        return x, y
    return None


@lru_cache(maxsize=256)
def _layout(
    terms: tuple[Term, ...], labels: tuple[tuple[str, int], ...]
) -> tuple[list[Axis], dict[str, int]]:
    """The axes that the terms bind, and a dimension for each axis."""
    bound = list({a.name: a for t in terms for a in bound_axes(t)}.values())
    return bound, _colours(terms, dict(labels), bound)


def _colours(terms: Sequence[Term], labels: dict[str, int], axes: Sequence[Axis]) -> dict[str, int]:
    """A dimension for every bound axis such that axes that occur together have different ones."""
    clash: dict[str, set[str]] = {a.name: set() for a in axes}
    for t in {t: None for term in terms for t in subterms(term)}:
        names = free_names(t)
        if isinstance(t, Reduction):
            names = names | {a.name for a in t.axes}
        for name in names & clash.keys():
            clash[name] |= names
    first = 1 + max(labels.values(), default=-1)
    out = dict(labels)
    for axis in axes:
        taken = {out[n] for n in clash[axis.name] if n in out and n != axis.name}
        out[axis.name] = next(k for k in range(first, first + 64) if k not in taken)
    return out


def _relative(value: Array, dtype: dt.DType) -> Array:
    """Finite magnitudes in units of the dtype's largest value."""
    return np.where(np.isfinite(value), np.abs(value), 0.0) / float(dt.finfo(dtype).max)


class _Run:
    """One evaluation: the values of all index symbols, and a memo over terms."""

    def __init__(
        self,
        terms: Sequence[Term],
        buffers: Buffers,
        sizes: Sizes,
        wide: bool,
        ranges: dict[str, Array],
        labels: dict[str, int],
        noise: int | None = None,
    ) -> None:
        self.noise = None if noise is None else np.random.default_rng(abs(noise))
        self.grid = noise or 0  # below zero: values are rounded to their dtypes
        bound, self.labels = _layout(tuple(terms), tuple(labels.items()))
        self.buffers = buffers
        self.sizes = sizes
        self.wide = wide
        self.rank = 1 + max(self.labels.values(), default=-1)
        self.lengths = {n: len(r) for n, r in ranges.items()}
        self.symbols: dict[str, Any] = dict(sizes)
        for axis in bound:
            self.lengths[axis.name] = extent(axis, sizes)
            ranges = {**ranges, axis.name: np.arange(self.lengths[axis.name])}
        for name, values in ranges.items():
            shape = [1] * self.rank
            shape[self.labels[name]] = len(values)
            self.symbols[name] = values.astype(np.int64).reshape(shape)
        self.memo: dict[Term, Array] = {}

    def value(self, term: Term) -> Array:
        """The term's value, of full rank; the body of a contraction is not computed for itself."""
        stack = [term]
        while stack:
            node = stack[-1]
            missing = [c for c in self._needs(node) if c not in self.memo]
            if missing:
                stack += missing
                continue
            stack.pop()
            if node not in self.memo:
                value = self._compute(node)
                noisy = self.noise is not None and dt.is_inexact(node.dtype)
                self.memo[node] = self._blurred(value, node) if noisy else value
        return self.memo[term]

    def _blurred(self, value: Array, term: Term) -> Array:
        """The value as rounding to the term's dtype may leave it."""
        assert self.noise is not None, "only called with noise"
        if self.grid < 0:
            rounded = self.grid == ROUNDED or self.noise.random() < 0.5
            return convert(convert(value, term.dtype), value.dtype) if rounded else value
        unit = ROUNDING * epsilon(term)
        with np.errstate(all="ignore"):
            return value * (1 + unit * self.noise.uniform(-1, 1, value.shape))

    def strains(self) -> dict[Term, Array]:
        """Of everything computed: how near it, or what it is computed from, is to overflow."""
        found: dict[Term, Array] = {}
        for term in self.memo:  # children first
            below = [found[t] for t in self._needs(term)]
            if isinstance(term, Reduction):
                where = tuple(self.labels[a.name] for a in term.axes)
                below = [np.max(b, axis=where, keepdims=True, initial=0.0) for b in below]
            elif isinstance(term, Apply) and term.op.name == "select":
                chosen, *values = below
                below = [chosen, np.where(self.memo[term.args[0]], *values)]
            with np.errstate(all="ignore"):
                found[term] = reduce(np.maximum, below, self._strain(term))
        return found

    def _strain(self, term: Term) -> Array:
        """Of a value by itself."""
        value = self.memo[term]
        if isinstance(term, Lit) or not dt.is_inexact(term.dtype):
            return np.zeros([1] * self.rank)
        found = _relative(value, term.dtype)
        if isinstance(term, Reduction) and term.op is ReduceOp.SUM:
            total = self._reduce(term, absolute=True)
            found = np.maximum(found, _relative(total, dt.accumulation_dtype(term.dtype)))
        infinite = np.isinf(value)
        if isinstance(term, Load | Index | Running) or not infinite.any():
            return found
        finite = [np.isfinite(self.memo[t]) for t in self._needs(term)]
        if isinstance(term, Reduction):
            where = tuple(self.labels[a.name] for a in term.axes)
            finite = [np.all(f, axis=where, keepdims=True) for f in finite]
        return np.where(reduce(np.logical_and, finite, infinite), np.inf, found)

    def _needs(self, term: Term) -> tuple[Term, ...]:
        pair = self._contraction(term) if isinstance(term, Reduction) else None
        return self._read(term) if pair is None else pair

    def _read(self, term: Term) -> tuple[Term, ...]:
        return (term.body,) if isinstance(term, Reduction) else children(term)

    def _contraction(self, term: Reduction) -> tuple[Term, Term] | None:
        pair = factors(term)
        return pair if all(a.name in free_names(term.body) for a in term.axes) else None

    def _compute(self, term: Term) -> Array:
        match term:
            case Lit():
                return convert(literal(term), _inside(term.dtype, self.wide)).reshape(
                    [1] * self.rank
                )
            case Load():
                return self._load(term)
            case Index():
                value = dims.evaluate(term.expr, self._environment(term.indices))
                return convert(self._full(value), _inside(term.dtype, self.wide))
            case Apply():
                return self._apply(term.op, term.args, term.dtype)
            case Reduction():
                return self._reduce(term)
            case Running(of=of):
                return self.memo[of]
        assert_never(term)

    def _full(self, value: Any) -> Array:
        array = np.asarray(value, np.int64)
        return array if array.ndim == self.rank else array.reshape([1] * self.rank)

    def _environment(self, indices: tuple[tuple[str, Term], ...]) -> dict[str, Any]:
        if not indices:
            return self.symbols
        return {**self.symbols, **{n: self.memo[t].astype(np.int64) for n, t in indices}}

    def _load(self, term: Load) -> Array:
        env = self._environment(term.indices)
        data = self.buffers[term.buffer.name]
        coords = [self._full(dims.evaluate(c, env)) for c in term.coords]
        inner = _inside(term.dtype, self.wide)
        if term.fill is None or (isinstance(term.valid, int) and term.valid):
            return convert(data[tuple(coords)] if coords else self._scalar(data), inner)
        valid = self._full(dims.evaluate(term.valid, env)) != 0
        fill = convert(literal(term.fill), inner)
        if 0 in data.shape:
            return np.where(valid & False, fill, fill)
        coords = [np.where(valid, c, 0) for c in coords]
        loaded = data[tuple(coords)] if coords else self._scalar(data)
        return np.where(valid, convert(loaded, inner), fill)

    def _scalar(self, data: Array) -> Array:
        return data.reshape([1] * self.rank)

    def _apply(self, op: ScalarOp, args: tuple[Term, ...], dtype: dt.DType) -> Array:
        inner = _inside(dtype, self.wide)
        values = [self.memo[a] for a in args]
        if op.name in _BITWISE_OF_FLOATS:
            values = [convert(v, a.dtype) for v, a in zip(values, args, strict=True)]
        elif Trait.CAST in op.traits or op.name == "cast":
            rounded = values[0] if self.wide else convert(values[0], dtype)
            return convert(rounded, inner)
        with np.errstate(all="ignore"):
            return convert(np.asarray(op.numpy(*values)), inner)

    def _reduce(self, term: Reduction, absolute: bool = False) -> Array:
        inner = _inside(term.dtype, self.wide)
        pair = self._contraction(term)
        values = [convert(self.memo[t], inner) for t in pair or (term.body,)]
        if absolute:
            values = [np.abs(v) for v in values]
        if pair is not None:
            return self._contract(term, values, inner)
        (body,) = values
        shape = list(body.shape)
        for axis in term.axes:
            shape[self.labels[axis.name]] = self.lengths[axis.name]
        where = tuple(self.labels[a.name] for a in term.axes)
        with np.errstate(all="ignore"):
            return _MONOIDS[term.op].reduce(
                np.broadcast_to(body, shape),
                axis=where,
                keepdims=True,
                dtype=inner,
                initial=identity(term.op, inner),
            )

    def _contract(self, term: Reduction, values: Sequence[Array], inner: dt.DType) -> Array:
        """Sum of x*y over axes without the product in memory."""
        x, y = values
        reduced = [self.labels[a.name] for a in term.axes]
        shape = [max(a, b) if min(a, b) else 0 for a, b in zip(x.shape, y.shape, strict=True)]
        keep = [k for k in range(self.rank) if shape[k] != 1 and k not in reduced]
        operands: list[Any] = []
        for v in (x, y):
            # both sides get the reduced axes, lest a sum is taken out of the product (0 * inf)
            v = np.broadcast_to(
                v, [shape[k] if k in reduced else v.shape[k] for k in range(self.rank)]
            )
            used = [k for k in range(self.rank) if v.shape[k] != 1]
            operands += [v.reshape([v.shape[k] for k in used]), used]
        with np.errstate(all="ignore"):
            total = np.einsum(*operands, keep, optimize=True)
        for k in reduced:
            shape[k] = 1
        return np.asarray(total, inner).reshape(shape)


_BITWISE_OF_FLOATS = frozenset({"bitcast", "bitcast_convert_type", "nextafter"})
_MONOIDS: dict[ReduceOp, Any] = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MIN: np.minimum,
    ReduceOp.AND: np.bitwise_and,
    ReduceOp.OR: np.bitwise_or,
    ReduceOp.XOR: np.bitwise_xor,
}
