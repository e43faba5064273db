"""Terms: programs as scalar functions of named axes ("index terms").

A tensor is a scalar term of its free axes: `O[i,e] = Sum_j(P[i,j] * V[j,e])`. Broadcast and
transpose vanish (an axis that is not free is broadcast); every other movement lives in the
coordinates of a Load. Axis names are unique within a region, so that no rewrite needs substitution.
Terms are interned: equality is identity. The e-graph chooses among equal terms, the planner decides
which are materialised into buffers, and `lower` turns a group of them into one kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import field
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from lumjax import dtype as dt
from lumjax.record import record
from lumjax.trace.dim import Dim, Expr
from lumjax.trace.form import ReduceOp, ScalarOp


@record
class Axis:
    """A named axis; index expressions mention it as the symbol `name`, 0 <= name < extent."""

    name: str
    extent: Dim


@record
class Buffer:
    """A dense row-major array in memory, named uniquely within a region."""

    name: str
    shape: tuple[Dim, ...]
    dtype: dt.DType


_T = TypeVar("_T")
_terms: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
_lock = threading.Lock()
_REMEMBERED = 512  # subterms at most of a term that remembers them: else chains are quadratic


class _Interning(type):
    """Equal terms are one object: equality is identity, and a shared DAG costs its size, not its
    unfolding.
    """

    def __call__(cls: type[_T], *args: Any, **kwargs: Any) -> _T:
        if kwargs:
            fresh: Any = type.__call__(cls, *args, **kwargs)
            key = (cls, *[getattr(fresh, name) for name in fresh.__match_args__])
        else:  # most calls: no object is made of a term that is known
            fresh = None
            defaults: Any = cls.__init__.__defaults__ or ()  # type: ignore[attr-defined]
            missing = len(cls.__match_args__) - len(args)  # type: ignore[attr-defined]
            key = (cls, *args, *(defaults[-missing:] if missing > 0 else ()))
        known = _terms.get(key)
        if known is not None:
            return known
        if fresh is None:
            fresh = type.__call__(cls, *args)
        object.__setattr__(fresh, "_below", _below(fresh))
        object.__setattr__(fresh, "_free", _free(fresh))
        object.__setattr__(fresh, "_inner", None)
        with _lock:
            return _terms.setdefault(key, fresh)


def _derived() -> Any:
    return field(init=False, repr=False)


@record(eq=False, weakref_slot=True)
class Lit(metaclass=_Interning):
    """A constant. `bits` is the little-endian byte string, so that 0.0 and -0.0 (and NaNs) stay
    apart.
    """

    dtype: dt.DType
    bits: bytes
    _free: frozenset[str] = _derived()
    _below: tuple[Term, ...] = _derived()
    _inner: tuple[Term, ...] | None = _derived()


@record(eq=False, weakref_slot=True)
class Load(metaclass=_Interning):
    """buffer[coords] where `valid` is nonzero, else `fill` (which may be None only if valid is
    always 1).

    Coordinates are expressions over axis symbols and over the symbols bound in `indices`, pairs
    (symbol, integer term) read first (a gather). Coordinates are in bounds wherever `valid` holds.
    """

    buffer: Buffer
    coords: tuple[Dim, ...]
    valid: Dim = 1
    fill: Lit | None = None
    indices: tuple[tuple[str, Term], ...] = ()
    _free: frozenset[str] = _derived()
    _below: tuple[Term, ...] = _derived()
    _inner: tuple[Term, ...] | None = _derived()

    @property
    def dtype(self) -> dt.DType:
        """The element type."""
        return self.buffer.dtype


@record(eq=False, weakref_slot=True)
class Index(metaclass=_Interning):
    """An index expression as a value (iota, masks): `expr` over axis symbols and `indices`, cast to
    `dtype`.
    """

    expr: Dim
    dtype: dt.DType
    indices: tuple[tuple[str, Term], ...] = ()
    _free: frozenset[str] = _derived()
    _below: tuple[Term, ...] = _derived()
    _inner: tuple[Term, ...] | None = _derived()


@record(eq=False, weakref_slot=True)
class Apply(metaclass=_Interning):
    """op(args): a scalar operation; `dtype` is the result's."""

    op: ScalarOp
    args: tuple[Term, ...]
    dtype: dt.DType
    _free: frozenset[str] = _derived()
    _below: tuple[Term, ...] = _derived()
    _inner: tuple[Term, ...] | None = _derived()


@record(eq=False, weakref_slot=True)
class Reduction(metaclass=_Interning):
    """op over all values of `axes` of the body. `dtype` is the result's; sums below float32
    accumulate in float32.

    A sum with a `scale` or a `shift` may also be accumulated before its statistic is known (see
    `Scale`, `Shift`).
    """

    op: ReduceOp
    axes: frozenset[Axis]
    body: Term
    dtype: dt.DType
    scale: Scale | None = None
    shift: Shift | None = None
    _free: frozenset[str] = _derived()
    _below: tuple[Term, ...] = _derived()
    _inner: tuple[Term, ...] | None = _derived()


@record(eq=False, weakref_slot=True)
class Running(metaclass=_Interning):
    """The value of `of`, or what a loop over `axes` knows of it so far.

    `of` is computed pointwise from one maximum (or, of a `Shift`, from one sum) over `axes`, and
    from what does not vary along them.
    Everything but such a loop may take this node for `of` itself. It counts as varying along
    `axes`, so that it is never moved out of a sum over them.
    """

    of: Term
    axes: frozenset[Axis]
    _free: frozenset[str] = _derived()
    _below: tuple[Term, ...] = _derived()
    _inner: tuple[Term, ...] | None = _derived()

    @property
    def dtype(self) -> dt.DType:
        """The element type."""
        return self.of.dtype


@record
class Scale:
    """How partial sums follow a running statistic: b(s') = b(s) * exp2(factor * (s' - s)).

    The sum's body mentions its statistic only as Running(statistic, axes of the sum), and is equal
    at any value of it up to that factor. `factor` does not vary along the axes and is never
    positive, and the statistic never falls as the loop proceeds: rescaling cannot overflow. It may
    be the literal -inf: then the sum begins anew where the statistic rises.
    """

    statistic: Term
    factor: Term


@record
class Shift:
    """How partial sums follow an average: b(s') = b(s) + slope(s) (s' - s) + bend (s' - s)^2.

    The sum's body and `slope` mention the statistic only as Running(statistic, axes of the sum);
    `bend` does not vary along the axes. That holds at any two numbers, so that any guess may stand
    for the statistic: the nearer it is, the less is lost to rounding.
    """

    statistic: Term
    slope: Term
    bend: Term


Term: TypeAlias = Load | Lit | Index | Apply | Reduction | Running


@record
class Root:
    """A term to be stored densely: buffer[axes in order] = term."""

    buffer: Buffer
    axes: tuple[Axis, ...]
    term: Term


@record
class Group:
    """What one kernel computes. Loads of other buffers are its inputs; no root reads another root's
    buffer.
    """

    roots: tuple[Root, ...]


def children(term: Term) -> tuple[Term, ...]:
    """The direct subterms, index terms included."""
    return term._below  # pyright: ignore[reportPrivateUsage]


def _below(term: Term) -> tuple[Term, ...]:
    match term:
        case Load(indices=indices) | Index(indices=indices):
            return tuple(t for _, t in indices)
        case Apply(args=args):
            return args
        case Reduction(body=body, scale=scale, shift=shift):
            if shift is not None:
                return body, shift.statistic, shift.slope, shift.bend
            return (body,) if scale is None else (body, scale.statistic, scale.factor)
        case Running(of=of):
            return (of,)
        case Lit():
            return ()


def _symbols(*dims: Dim) -> frozenset[str]:
    return frozenset().union(*(d.symbols() for d in dims if isinstance(d, Expr)))


def free_names(term: Term) -> frozenset[str]:
    """The names of axes (and size symbols) that the term's value depends on."""
    return term._free  # pyright: ignore[reportPrivateUsage]


def _free(term: Term) -> frozenset[str]:
    below = frozenset[str]().union(*map(free_names, children(term)))
    match term:
        case Load(coords=coords, valid=valid, indices=indices):
            return (_symbols(*coords, valid) - {n for n, _ in indices}) | below
        case Index(expr=expr, indices=indices):
            return (_symbols(expr) - {n for n, _ in indices}) | below
        case Reduction(axes=axes):
            return below - {a.name for a in axes}
        case Running(axes=axes):
            return below | {a.name for a in axes}
        case Apply() | Lit():
            return below


def subterms(term: Term) -> Iterator[Term]:
    """Every distinct subterm, children first."""
    inner = term._inner  # pyright: ignore[reportPrivateUsage]
    if inner is None:
        inner = tuple(_inner(term))
        if len(inner) <= _REMEMBERED:
            object.__setattr__(term, "_inner", inner)
    return iter((*inner, term))


def _inner(term: Term) -> list[Term]:
    """The subterms without the term itself: that it remembers them makes no cycle."""
    found: list[Term] = []
    seen: set[Term] = set()
    stack = [term]
    while stack:
        node = stack[-1]
        if node in seen:
            stack.pop()
            continue
        waiting = [c for c in children(node) if c not in seen]
        if waiting:
            stack.extend(waiting)
        else:
            stack.pop()
            seen.add(node)
            found.append(node)
    found.pop()
    return found


def loads(term: Term) -> Iterator[Load]:
    """Every distinct load in the term."""
    return (t for t in subterms(term) if isinstance(t, Load))
