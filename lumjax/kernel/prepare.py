"""Bring a group into the form that lowering works on: extents as size symbols, flat offsets, few
axes.

`parametrise` gives axes canonical names a0, a1, ... and replaces every extent that may vary by a
size symbol n0, n1, ...; an extent that also occurs inside a coordinate (windows, reshapes,
slices) keeps its value. Equal programs at different sizes thereby become one kernel, and
verification can run the kernel at reduced sizes. `flatten` turns coordinates into row-major
offsets, and `collapse` merges axes that every access walks contiguously.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise, permutations

import numpy as np

from lumjax.kernel.evaluate import identity
from lumjax.kernel.rewrite import axis_symbol, followed, index_pairs, rebuild, rewrite
from lumjax.kernel.rounded import exact, may_round, rounding_of
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Group,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    subterms,
)
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr, IndexOp


@record
class Prepared:
    """A group in lowering's form.

    `sizes` maps each size symbol to its value in the traced program, `origin` each rewritten term
    to the term of the given group that it stands for, `buffers` each name to the buffer with its
    symbolic shape.
    """

    group: Group
    sizes: Mapping[str, Dim]
    origin: Mapping[Term, Term]
    buffers: Mapping[str, Buffer]

    def live(self) -> tuple[Root, ...]:
        """The roots that have elements."""
        return tuple(r for r in self.group.roots if not any(_is(a.extent, 0) for a in r.axes))


def prepare(group: Group, rounded: bool = False) -> Prepared:
    """All three steps. Unless `rounded`, nothing may be rounded further than dtypes say."""
    prepared = flatten(parametrise(group))
    if not rounded and may_round(prepared.group):
        prepared = _exact(prepared)
    return collapse(prepared)


def offset(shape: tuple[Dim, ...], coords: Iterable[Dim]) -> Dim:
    """The row-major offset of `coords` in a dense array of `shape`."""
    total: Dim = 0
    for extent, coordinate in zip(shape, coords, strict=True):
        total = total * extent + coordinate
    return total


def group_axes(group: Group) -> list[Axis]:
    """Every axis of the group: the roots' first, then the reductions'."""
    found: dict[str, Axis] = {a.name: a for r in group.roots for a in r.axes}
    for root in group.roots:
        for t in subterms(root.term):
            if isinstance(t, Reduction):
                for a in sorted(t.axes, key=lambda a: a.name):
                    found.setdefault(a.name, a)
    return list(found.values())


# ---- extents as arguments


class _Classes:
    """Union-find over axes and buffer dimensions that must have one extent."""

    def __init__(self) -> None:
        self.parent: dict[object, object] = {}
        self.pinned: set[object] = set()

    def find(self, key: object) -> object:
        root = key
        while (up := self.parent.get(root, root)) is not root:
            root = up
        self.parent[key] = root
        return root

    def join(self, a: object, b: object) -> None:
        a, b = self.find(a), self.find(b)
        if a is not b:
            self.parent[b] = a
            if b in self.pinned:
                self.pinned.add(a)

    def pin(self, key: object) -> None:
        self.pinned.add(self.find(key))

    def free(self, key: object) -> bool:
        return self.find(key) not in self.pinned


def parametrise(group: Group) -> Prepared:
    """Canonical axis names and size symbols; coordinates stay coordinates."""
    axes = group_axes(group)
    sizes = _Sizes(_classify(group, axes))
    renamed = {a.name: Axis(f"a{k}", sizes.of(a.name, a.extent)) for k, a in enumerate(axes)}
    symbols = {n: 0 if _is(a.extent, 1) else axis_symbol(a) for n, a in renamed.items()}

    def leaf(t: Term, kids: tuple[Term, ...]) -> Term:
        if isinstance(t, Load):
            coords = tuple(dims.substitute(c, symbols) for c in t.coords)
            valid = dims.substitute(t.valid, symbols)
            return Load(sizes.buffer(t.buffer), coords, valid, t.fill, index_pairs(t, kids))
        if isinstance(t, Reduction):
            kept = frozenset(renamed[a.name] for a in t.axes if not _is(a.extent, 1))
            return _reduction(t, kept, kids)
        if isinstance(t, Running):
            kept = frozenset(renamed[a.name] for a in t.axes if not _is(a.extent, 1))
            return Running(kids[0], kept)
        return rebuild(t, kids, symbols)

    memo: dict[Term, Term] = {}
    roots = tuple(
        Root(
            sizes.buffer(r.buffer),
            tuple(renamed[a.name] for a in r.axes if not _is(a.extent, 1)),
            rewrite(r.term, leaf, memo),
        )
        for r in group.roots
    )
    return Prepared(Group(roots), sizes.values, {v: k for k, v in memo.items()}, sizes.buffers)


class _Sizes:
    """Names the classes of extents that may vary, in the order of first use."""

    def __init__(self, classes: _Classes) -> None:
        self.classes = classes
        self.values: dict[str, Dim] = {}
        self.buffers: dict[str, Buffer] = {}
        self.named: dict[object, Expr] = {}

    def of(self, key: object, extent: Dim) -> Dim:
        """The extent of an axis or of a buffer's dimension: its size symbol, or itself if fixed."""
        if not self.classes.free(key) or (isinstance(extent, int) and extent <= 1):
            return extent
        root = self.classes.find(key)
        if root not in self.named:
            name, low = f"n{len(self.named)}", dims.bounds(extent)[0]
            self.named[root] = dims.symbol(name, min(1, low) if low is not None else 0)
            self.values[name] = extent
        return self.named[root]

    def buffer(self, given: Buffer) -> Buffer:
        """The buffer with its symbolic shape."""
        if given.name not in self.buffers:
            shape = tuple(self.of((given.name, k), n) for k, n in enumerate(given.shape))
            self.buffers[given.name] = Buffer(given.name, shape, given.dtype)
        return self.buffers[given.name]


def _is(extent: Dim, value: int) -> bool:
    return isinstance(extent, int) and extent == value


def _reduction(t: Reduction, axes: frozenset[Axis], kids: tuple[Term, ...]) -> Term:
    body = kids[0]
    if any(_is(a.extent, 0) for a in axes):
        return Lit(t.dtype, np.asarray(identity(t.op, t.dtype), t.dtype).tobytes())
    if not axes and body.dtype == t.dtype:
        return body
    return Reduction(t.op, axes, body, t.dtype, *followed(kids))


def _classify(group: Group, axes: list[Axis]) -> _Classes:
    classes = _Classes()
    extents = {a.name: a.extent for a in axes}

    def plain(b: Buffer, k: int, coordinate: Dim) -> None:
        if (
            isinstance(coordinate, Expr)
            and coordinate.op is IndexOp.SYMBOL
            and coordinate.name in extents
            and dims.same(extents[coordinate.name], b.shape[k])
        ):
            classes.join(coordinate.name, (b.name, k))
            return
        classes.pin((b.name, k))
        for name in dims.symbols(coordinate) & extents.keys():
            classes.pin(name)

    for root in group.roots:
        for k, a in enumerate(root.axes):
            classes.join(a.name, (root.buffer.name, k))
        for t in subterms(root.term):
            if isinstance(t, Load):
                for k, c in enumerate(t.coords):
                    plain(t.buffer, k, c)
    return classes


# ---- offsets and fewer axes


def flatten(prepared: Prepared) -> Prepared:
    """Replace the coordinates of every load by one row-major offset."""

    def leaf(t: Term, kids: tuple[Term, ...]) -> Term:
        if isinstance(t, Load):
            return Load(
                _flat(t.buffer),
                (offset(t.buffer.shape, t.coords),),
                t.valid,
                t.fill,
                index_pairs(t, kids),
            )
        return rebuild(t, kids, {})

    memo: dict[Term, Term] = {}
    roots = tuple(
        Root(_flat(r.buffer), r.axes, rewrite(r.term, leaf, memo)) for r in prepared.group.roots
    )
    return _replaced(prepared, roots, memo)


def _flat(buffer: Buffer) -> Buffer:
    total: Dim = 1
    for n in buffer.shape:
        total = total * n
    return Buffer(buffer.name, (total,), buffer.dtype)


def _replaced(prepared: Prepared, roots: tuple[Root, ...], memo: dict[Term, Term]) -> Prepared:
    origin = {new: prepared.origin[old] for old, new in memo.items() if old in prepared.origin}
    return Prepared(Group(roots), prepared.sizes, origin, prepared.buffers)


def _exact(prepared: Prepared) -> Prepared:
    """All sides of contractions as they are; each stands for itself, not for what it may become."""
    memo: dict[Term, Term] = {}
    roots = exact(prepared.group, memo).roots
    kept = {old: new for old, new in memo.items() if not rounding_of(old)}
    return _replaced(prepared, roots, kept)


def collapse(prepared: Prepared) -> Prepared:
    """Merge pairs of axes that every access walks as one contiguous run."""
    while True:
        for outer, inner in _candidates(prepared.group):
            if _mergeable(prepared.group, outer, inner):
                prepared = _merge(prepared, outer, inner)
                break
        else:
            return prepared


def _candidates(group: Group) -> dict[tuple[Axis, Axis], None]:
    found: dict[tuple[Axis, Axis], None] = {}
    for root in group.roots:
        found.update(dict.fromkeys(pairwise(root.axes)))
        for t in subterms(root.term):
            if isinstance(t, Reduction):
                ordered = sorted(t.axes, key=lambda a: a.name)
                found.update(dict.fromkeys(permutations(ordered, 2)))
    return found


def _mergeable(group: Group, outer: Axis, inner: Axis) -> bool:
    for root in group.roots:
        position = {a.name: k for k, a in enumerate(root.axes)}
        at = position.get(outer.name), position.get(inner.name)
        if at != (None, None) and (at[0] is None or at[1] != at[0] + 1):
            return False
        if not all(_contiguous(t, outer, inner) for t in subterms(root.term)):
            return False
    return True


def _contiguous(term: Term, outer: Axis, inner: Axis) -> bool:
    match term:
        case Load():
            if {outer.name, inner.name} & dims.symbols(term.valid):
                return False
            return _linear(term.coords[0], outer, inner)
        case Index():
            return _linear(term.expr, outer, inner)
        case Reduction():
            names = {a.name for a in term.axes}
            return (outer.name in names) == (inner.name in names)
        case Running():
            names = {a.name for a in term.axes}
            return (outer.name in names) == (inner.name in names)
        case Apply() | Lit():
            return True


def _linear(expr: Dim, outer: Axis, inner: Axis) -> bool:
    far, near = dims.coefficient(expr, outer.name), dims.coefficient(expr, inner.name)
    if far is None or near is None:
        return False
    return dims.same(far, near * inner.extent)


def _merge(prepared: Prepared, outer: Axis, inner: Axis) -> Prepared:
    merged = Axis(inner.name, outer.extent * inner.extent)
    symbols: dict[str, Dim] = {outer.name: 0, inner.name: axis_symbol(merged)}

    def leaf(t: Term, kids: tuple[Term, ...]) -> Term:
        if isinstance(t, Reduction) and inner in t.axes:
            return _reduction(t, (t.axes - {outer, inner}) | {merged}, kids)
        if isinstance(t, Running) and inner in t.axes:
            return Running(kids[0], (t.axes - {outer, inner}) | {merged})
        return rebuild(t, kids, symbols)

    memo: dict[Term, Term] = {}
    roots = tuple(
        Root(
            r.buffer,
            tuple(merged if a == inner else a for a in r.axes if a != outer),
            rewrite(r.term, leaf, memo),
        )
        for r in prepared.group.roots
    )
    return _replaced(prepared, roots, memo)
