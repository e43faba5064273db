"""What control flow shares: staging callables on pytrees, remembering derived jaxprs, batching and
replumbing them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.config import config
from lumjax.errors import ArgumentTypeError, CheckError
from lumjax.grad.nested import JvpJaxpr, SplitJaxpr, jvp_jaxpr, split_jaxpr
from lumjax.ops.elementwise import asvalue
from lumjax.ops.layout import batch_first, broadcast_in_dim_p
from lumjax.ops.layout import zeros as layout_zeros
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis, argument_names, batch
from lumjax.trace.core import (
    Atom,
    Effect,
    Eqn,
    Jaxpr,
    Tracer,
    Value,
    Var,
    active_traces,
    aval_of,
    eval_jaxpr,
    evaluate,
)
from lumjax.trace.dim import same_shape
from lumjax.trace.simplify import dce
from lumjax.trace.stage import stage

T = TypeVar("T")
Flags: TypeAlias = tuple[bool, ...]

# ---- remembering what was derived from a function or a jaxpr

_lock = threading.Lock()
_memo: weakref.WeakKeyDictionary[Any, dict[Hashable, Any]] = weakref.WeakKeyDictionary()
_LIMIT = 256  # entries kept per owner


def _context() -> Hashable:
    """What staging depends on besides its arguments: semantic settings and the named axes in
    scope.
    """
    axes = tuple((t.axis_name, t.axis_size) for t in active_traces() if t.axis_name is not None)
    return config.semantic_key(), axes


def remembered(owner: Any, key: Hashable, make: Callable[[], T], keep: Callable[[T], bool]) -> T:
    """`make()`, kept as long as `owner` lives if `keep` allows it. Safe for threads; may run
    twice in a race.
    """
    full_key = (key, _context())
    with _lock:
        table = _memo.setdefault(owner, {})
        if full_key in table:
            return table[full_key]
    result = make()
    if keep(result):
        with _lock:
            if len(table) >= _LIMIT:
                table.clear()
            table[full_key] = result
    return result


def together(
    owners: Sequence[Any], key: Hashable, make: Callable[[], T], keep: Callable[[T], bool]
) -> T:
    """Like `remembered`, for what was derived from several jaxprs."""
    others = tuple(weakref.ref(o) for o in owners[1:])
    return remembered(owners[0], (key, others), make, keep)


def concrete(consts: Iterable[Value]) -> bool:
    """Whether none of the values belongs to a running transformation, so that a program may
    outlive it.
    """
    return not any(isinstance(c, Tracer) for c in consts)


# ---- staging a callable


@record(eq=False)
class Callee:
    """A staged callable: the jaxpr's first inputs are the closed-over `consts`; it has no
    consts of its own.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    out_tree: tree.PyTreeDef
    reads: tuple[Any, ...]


def require_callable(operation: str, f: Any) -> None:
    """Raise ArgumentTypeError unless `f` can be called."""
    if not callable(f):
        raise ArgumentTypeError(
            operation=operation,
            required="a function",
            got=f"{f!r} of type {type(f).__name__}",
            fix="pass a callable",
        )


def _reads(f: Any) -> tuple[Any, ...]:
    """The objects a Python function reads besides its arguments: defaults, closure and global
    names.
    """
    code = f.__code__
    cells: list[Any] = []
    for cell in f.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # a name that is not bound yet
            cells.append(None)
    names = [f.__globals__[n] for n in code.co_names if n in f.__globals__]
    return (f.__defaults__, f.__kwdefaults__, *cells, *names)


def _reference(x: Any) -> Any:
    try:
        return weakref.ref(x)
    except TypeError:
        return x


def _unchanged(reads: tuple[Any, ...], f: Any) -> bool:
    """Whether no name that `f` reads was rebound since `reads` was taken."""
    now = _reads(f)
    return len(now) == len(reads) and all(
        (r() if isinstance(r, weakref.ref) else r) is n for r, n in zip(reads, now, strict=True)
    )


def stage_tree(
    f: Callable[..., Any],
    in_tree: tree.PyTreeDef,
    avals: Sequence[ShapedArray],
    reader: Callable[..., Any] | None = None,
) -> Callee:
    """Stage `f`, called with the positional arguments `in_tree`, a tuple, holds.

    A Python function is staged once per signature, and again when a name that it reads has been
    rebound. A program that closes over a tracer is never kept. `reader` is the function whose
    names count, if it is not `f`.
    """
    function: Any = reader or f
    cacheable = hasattr(function, "__code__") and hasattr(function, "__globals__")

    def make() -> Callee:
        out_trees: list[tree.PyTreeDef] = []

        def flat(*args: Value) -> list[Value]:
            leaves, out_tree = flatten_values(f(*tree.unflatten(in_tree, args)))
            out_trees.append(out_tree)
            return leaves

        staged = stage(flat, avals, lambda: name_of(function), named)
        reads = tuple(map(_reference, _reads(function))) if cacheable else ()
        return Callee(replace(staged.jaxpr, consts=0), staged.consts, out_trees[0], reads)

    def named() -> list[str]:
        leaves = tree.unflatten(in_tree, range(len(avals)))
        return argument_names(function, tuple(leaves), {})

    if not cacheable:
        return make()
    key = (in_tree, tuple(avals))
    found = remembered(f, key, make, lambda c: concrete(c.consts))
    if not _unchanged(found.reads, function):
        with _lock:
            _memo.pop(f, None)
        found = remembered(f, key, make, lambda c: concrete(c.consts))
    return found


# ---- values


def flatten_values(operands: Any) -> tuple[list[Value], tree.PyTreeDef]:
    """The leaves of a pytree as Arrays or Tracers; raises ArgumentTypeError for one that is no
    array.
    """
    leaves, treedef = tree.flatten(operands)
    return [asvalue(x) for x in leaves], treedef


def as_arrays(outs: Iterable[Value], avals: Iterable[ShapedArray]) -> tuple[Array, ...]:
    """Evaluated outputs as Arrays with the weakness of `avals`."""
    return tuple(
        [
            o if isinstance(o, Array) and o.weak == a.weak else Array(_data(o), a.weak)
            for o, a in zip(outs, avals, strict=True)
        ]
    )


def _data(x: Any) -> Any:
    return x.data if isinstance(x, Array) else x


def run(jaxpr: Jaxpr, args: Sequence[Value]) -> tuple[Array, ...]:
    """Evaluate a jaxpr on concrete values."""
    return as_arrays(evaluate(jaxpr, args), jaxpr.out_avals)


def zeros(aval: ShapedArray) -> Value:
    """Zeros of an aval: float0 ones where the dtype is float0."""
    if aval.dtype == dt.float0:
        return Array(np.zeros(tuple(map(int, aval.shape)), dt.float0))
    return layout_zeros(aval.shape, aval.dtype)


def select_where(flags: Sequence[bool], items: Iterable[T], keep: bool = True) -> list[T]:
    """The items whose flag equals `keep`."""
    return [x for x, flag in zip(items, flags, strict=True) if flag == keep]


def spread(flags: Sequence[bool], items: Iterable[T]) -> list[T | None]:
    """The items at the places where a flag is set, None elsewhere."""
    iterator = iter(items)
    return [next(iterator) if flag else None for flag in flags]


def merge(flags: Sequence[bool], where_set: Iterable[T], elsewhere: Iterable[T]) -> list[T]:
    """One list from two: the next of `where_set` where a flag is set, else the next of
    `elsewhere`.
    """
    first, second = iter(where_set), iter(elsewhere)
    return [next(first) if flag else next(second) for flag in flags]


# ---- derived jaxprs, remembered


def jvp_of(jaxpr: Jaxpr, nonzero: Flags, force: Flags | None = None) -> JvpJaxpr:
    """`nested.jvp_jaxpr`, remembered."""
    return remembered(
        jaxpr,
        ("jvp", nonzero, force),
        lambda: jvp_jaxpr(jaxpr, nonzero, force),
        lambda r: concrete(r.consts),
    )


@record(eq=False)
class Split:
    """A jaxpr cut at its linear inputs.

    known:   (*consts, *known inputs) -> (*outs where not `outputs[k]`, *residuals that are no
    inputs)
    linear:  (*residuals, *linear inputs) -> (*outs where `outputs[k]`)
    sources: per residual, the position among `known`'s inputs that it forwards, or None for a
    computed one
    """

    known: Jaxpr
    consts: tuple[Value, ...]
    linear: Jaxpr
    outputs: Flags
    sources: tuple[int | None, ...]

    @property
    def known_outs(self) -> int:
        """How many outputs do not depend on a linear input."""
        return len(self.outputs) - sum(self.outputs)

    @property
    def trivial(self) -> bool:
        """Whether the known part has nothing to do."""
        return not self.known.outputs and self.known.effect is Effect.NONE

    def residuals(self, known_args: Sequence[T], computed: Iterable[T]) -> list[T]:
        """The residuals, given the known part's arguments (consts first) and the residuals
        that it computed.
        """
        iterator = iter(computed)
        return [next(iterator) if s is None else known_args[s] for s in self.sources]


def split_of(jaxpr: Jaxpr, linear: Flags, force: Flags | None = None) -> Split:
    """`nested.split_jaxpr` without dead code and without forwarded residuals, remembered."""
    return remembered(
        jaxpr,
        ("split", linear, force),
        lambda: _split(split_jaxpr(jaxpr, linear, force)),
        lambda r: concrete(r.consts),
    )


def _split(cut: SplitJaxpr) -> Split:
    linear = dce(cut.linear)
    outs = len(cut.known.outputs) - cut.residuals
    used = set(_used(linear))
    wanted = [
        (var, atom)
        for var, atom in zip(linear.inputs, cut.known.outputs[outs:], strict=False)
        if var in used
    ]
    repeats, wanted = _repeat_late(cut.known, wanted)
    position = {v: k for k, v in enumerate(cut.known.inputs)}
    sources = tuple(position.get(a) if isinstance(a, Var) else None for _, a in wanted)
    computed = [a for (_, a), source in zip(wanted, sources, strict=True) if source is None]
    inputs = (*(v for v, _ in wanted), *linear.inputs[cut.residuals :])
    return Split(
        known=dce(replace(cut.known, outputs=(*cut.known.outputs[:outs], *computed))),
        consts=cut.consts,
        linear=replace(linear, inputs=inputs, eqns=(*repeats, *linear.eqns)),
        outputs=cut.outputs,
        sources=sources,
    )


def _repeat_late(
    known: Jaxpr, residuals: Sequence[tuple[Var, Atom]]
) -> tuple[list[Eqn], list[tuple[Var, Atom]]]:
    """Keep what a broadcast repeats in place of its result: the linear part repeats it again.

    Takes and returns pairs of the linear part's variable and the value it stands for.
    """
    broadcasts = [e for e in known.eqns if e.prim is broadcast_in_dim_p]
    order = {e.outputs[0]: k for k, e in enumerate(broadcasts)}
    names: dict[Atom, Atom] = {atom: var for var, atom in residuals}
    repeats: dict[int, Eqn] = {}
    kept: list[tuple[Var, Atom]] = []
    pending = list(residuals)
    for var, atom in pending:  # grows while it runs
        k = order.get(atom) if isinstance(atom, Var) else None
        if k is None:
            kept.append((var, atom))
            continue
        eqn = broadcasts[k]
        operand = eqn.inputs[0]
        if isinstance(operand, Var) and operand not in names:
            new = names[operand] = Var(operand.aval)
            pending.append((new, operand))
        repeats[k] = Eqn(eqn.prim, (names.get(operand, operand),), (var,), eqn.params, eqn.source)
    return [repeats[k] for k in sorted(repeats)], kept


def _used(jaxpr: Jaxpr) -> Iterable[Atom]:
    for eqn in jaxpr.eqns:
        yield from eqn.inputs
    yield from jaxpr.outputs


@record(eq=False)
class Batched:
    """A jaxpr with one more leading axis on some inputs; `mapped` tells which outputs have it."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    mapped: Flags


def batch_of(jaxpr: Jaxpr, axis: MappedAxis, mapped: Flags, force: Flags | None = None) -> Batched:
    """`jaxpr` over a mapped axis that leads where `mapped`; outputs where `force` get the axis
    in any case.
    """
    return remembered(
        jaxpr,
        ("batch", axis, mapped, force),
        lambda: _batch(jaxpr, axis, mapped, force or (False,) * len(jaxpr.outputs)),
        lambda r: concrete(r.consts),
    )


def _batch(jaxpr: Jaxpr, axis: MappedAxis, mapped: Flags, force: Flags) -> Batched:
    out_mapped: list[bool] = []

    def flat(*args: Value) -> list[Value]:
        dims = [0 if m else None for m in mapped]
        pairs = batch(lambda *xs: eval_jaxpr(jaxpr, xs), axis, args, dims)
        out_mapped.extend(d is not None or f for (_, d), f in zip(pairs, force, strict=True))
        return [
            batch_first(v, d, axis.size) if m else v
            for (v, d), m in zip(pairs, out_mapped, strict=True)
        ]

    avals = [
        a.with_shape((axis.size, *a.shape)) if m else a
        for a, m in zip(jaxpr.in_avals, mapped, strict=True)
    ]
    staged = stage(flat, avals)
    return Batched(replace(staged.jaxpr, consts=0), staged.consts, tuple(out_mapped))


# ---- replumbing


def share_consts(
    parts: Sequence[tuple[Jaxpr, Sequence[Value]]],
) -> tuple[tuple[Jaxpr, ...], tuple[Value, ...]]:
    """Give jaxprs that lead with consts of their own one common list of leading consts."""
    values = {id(c): c for _, consts in parts for c in consts}
    order = {i: k for k, i in enumerate(values)}
    places = tuple(tuple(order[id(c)] for c in consts) for _, consts in parts)
    jaxprs = tuple(j for j, _ in parts)
    if not values:
        return jaxprs, ()
    avals = [aval_of(c) for c in values.values()]

    def make() -> tuple[Jaxpr, ...]:
        return tuple(_widen(j, p, avals) for j, p in zip(jaxprs, places, strict=True))

    return together(jaxprs, ("share", places), make, lambda _: True), tuple(values.values())


def _widen(jaxpr: Jaxpr, places: tuple[int, ...], avals: Sequence[ShapedArray]) -> Jaxpr:
    """Move the first inputs of `jaxpr` to `places` in a longer list of first inputs."""
    lead = [Var(a) for a in avals]
    for place, var in zip(places, jaxpr.inputs, strict=False):
        lead[place] = var
    return replace(jaxpr, inputs=(*lead, *jaxpr.inputs[len(places) :]))


def rearranged(jaxpr: Jaxpr, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Jaxpr:
    """The jaxpr with its inputs and outputs in another order, remembered."""

    def make() -> Jaxpr:
        return replace(
            jaxpr,
            inputs=tuple(jaxpr.inputs[k] for k in inputs),
            outputs=tuple(jaxpr.outputs[k] for k in outputs),
        )

    return remembered(jaxpr, ("rearranged", inputs, outputs), make, lambda _: True)


def name_of(f: Any) -> str:
    """A callable's name, for messages."""
    return getattr(f, "__name__", type(f).__name__)


def check_operands(operation: str, jaxpr: Jaxpr, avals: Sequence[ShapedArray]) -> None:
    """Raise CheckError unless a jaxpr takes operands of these avals, weak or not."""
    expected = jaxpr.in_avals
    if len(avals) != len(expected) or not all(map(same_type, avals, expected)):
        raise CheckError(
            operation=operation,
            required=f"operands ({', '.join(map(str, expected))})",
            got=f"({', '.join(map(str, avals))})",
            fix="this is a fault of lumjax; please report it",
        )


def same_type(a: ShapedArray, b: ShapedArray) -> bool:
    """Whether two avals have the same shape and dtype, weak or not."""
    return a.dtype == b.dtype and same_shape(a.shape, b.shape)
