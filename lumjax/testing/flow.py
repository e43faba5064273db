"""Words with functions inside: branches, loops, mapped, differentiated and recomputed functions.

Their functions are drawn like programs, and use values from outside besides what they are given.
What a loop carries is kept between -1 and 1; what decides is exact.
"""

from __future__ import annotations

from typing import Any

from lumjax import dtype as dt
from lumjax import ops
from lumjax.testing.steps import DEPTH, Body, Builder, Node, Word
from lumjax.trace.core import aval_of


def _float(b: Builder) -> int | None:
    """A float to work on; none where functions are nested deep enough."""
    return b.which(b.floating) if b.depth < DEPTH else None


def _rows(b: Builder) -> int | None:
    """A float with an axis to walk along."""
    if b.depth >= DEPTH:
        return None
    return b.which(lambda k: b.floating(k) and len(b.shape(k)) > 0 and b.shape(k)[0] <= 5)


def _given(b: Builder, *args: int) -> list[tuple[Any, bool]]:
    return [(b.values[k], b.exact[k]) for k in args]


def _row(b: Builder, k: int) -> tuple[Any, bool]:
    """One row of a value, of zeros if it has none; as exact as all of it."""
    aval = aval_of(b.values[k])
    row = b.values[k][0] if aval.shape[0] else ops.full(tuple(aval.shape[1:]), 0, aval.dtype)
    return row, b.exact[k]


def _inexact(b: Builder, k: int) -> tuple[Any, bool]:
    return b.values[k], False


def _branches(b: Builder, choice: int | None, count: int) -> Any:
    """Functions that give values of the same types, one or two."""
    one, two = _float(b), _float(b)
    if choice is None or one is None or two is None:
        return None
    given = _given(b, one, two)
    first = b.body(given, [None] * b.choose.integer(1, 2))
    if first is None:
        return None
    wants = _types(b, first, given)
    others = [b.body(given, wants) for _ in range(count - 1)]
    if None in others:
        return None
    return (choice, one, two), (), (first, *others), len(wants)


def _types(b: Builder, body: Body, given: Any) -> list[Any]:
    """The avals of what a function gives."""
    inner = Builder(b.choose, b.words, (), [*b.values, *(v for v, _ in given)])
    inner.exact = [False] * len(inner.values)
    for node in body.nodes:
        inner.add(node)
    return [aval_of(inner.values[k]) for k in body.outputs]


def _pick_if(b: Builder) -> Any:
    return _branches(b, b.which(lambda k: dt.is_bool(b.dtype(k)) or b.integral(k)), 2)


def _pick_switch(b: Builder) -> Any:
    return _branches(b, b.which(b.integral), b.choose.integer(2, 3))


def _pick_loop(b: Builder) -> Any:
    """A scan: a float carried, rows of another walked along, a value for each row."""
    carry, rows = _float(b), _rows(b)
    if carry is None or rows is None:
        return None
    given = [_inexact(b, carry), _row(b, rows)]
    body = b.body(given, [aval_of(b.values[carry]), None], bounded=1)
    if body is None:
        return None
    return (carry, rows), (bool(b.choose.integer(0, 1)), b.choose.integer(1, 2)), (body,), 2


def _pick_loop_of_two(b: Builder) -> Any:
    """A scan that carries two floats."""
    one, two, rows = _float(b), _float(b), _rows(b)
    if one is None or two is None or rows is None:
        return None
    given = [_inexact(b, one), _inexact(b, two), _row(b, rows)]
    avals = [aval_of(b.values[one]), aval_of(b.values[two])]
    body = b.body(given, [*avals, None], bounded=2)
    return None if body is None else ((one, two, rows), (), (body,), 3)


def _pick_repeat(b: Builder) -> Any:
    """A fori_loop whose number of turns is known."""
    carry = _float(b)
    if carry is None:
        return None
    turn = (ops.full((), 0, dt.int32), True)
    body = b.body([turn, _inexact(b, carry)], [aval_of(b.values[carry])], bounded=1)
    return None if body is None else ((carry,), (b.choose.integer(0, 4),), (body,), 1)


def _pick_while(b: Builder) -> Any:
    """A loop whose number of turns depends on integers."""
    carry, count = _float(b), b.which(b.integral)
    if carry is None or count is None:
        return None
    turn = (ops.full((), 0, dt.int32), True)
    body = b.body([turn, _inexact(b, carry)], [aval_of(b.values[carry])], bounded=1)
    if body is None:
        return None
    first = len(b.values)  # the turn: counted by a step of its own, whose value comes first
    at = first + body.arity + sum(n.results for n in body.nodes)
    counted = (*body.nodes, Node("next", (first,)))
    return (carry, count), (), (Body(2, counted, (at, *body.outputs)),), 2


def _pick_map(b: Builder) -> Any:
    rows = _rows(b)
    if rows is None:
        return None
    body = b.body([_row(b, rows)], [None])
    return None if body is None else ((rows,), (), (body,), 1)


def _pick_vmap(b: Builder) -> Any:
    rows, whole = _rows(b), _float(b)
    if rows is None or whole is None or b.shape(rows)[0] == 0:
        return None
    body = b.body([_row(b, rows), *_given(b, whole)], [None])
    return None if body is None else ((rows, whole), (), (body,), 1)


def _pick_call(b: Builder) -> Any:
    one, two = _float(b), _float(b)
    if one is None or two is None:
        return None
    body = b.body(_given(b, one, two), [None])
    return None if body is None else ((one, two), (), (body,), 1)


def _pick_slope(b: Builder) -> Any:
    """A derivative, by reverse or forward mode, of a function within."""
    one = _float(b)
    if one is None:
        return None
    body = b.body(_given(b, one), [None], reverse=True)
    return None if body is None else ((one,), (), (body,), 1)


_SUM = "lambda *xs: jnp.sum(jnp.sin({f[0]}(*xs)))"

FLOW: dict[str, Word] = {
    "if": Word("lax.cond(jnp.any({0}), {fs}, {rest})", _pick_if),
    "switch": Word("lax.switch(jnp.sum({0}), [{fs}], {rest})", _pick_switch),
    "loop": Word(
        "lax.scan({f[0]}, {0}, {1}, reverse={p[0]}, unroll={p[1]})", _pick_loop,
        takes="carry", gives="carry",
    ),
    "loop_of_two": Word(
        "lax.scan({f[0]}, ({0}, {1}), {2})", _pick_loop_of_two, takes="carry", gives="carry"
    ),
    "repeat": Word("lax.fori_loop(0, {p[0]}, {f[0]}, {0})", _pick_repeat),
    "while": Word(
        "lax.while_loop(lambda c: c[0] < jnp.abs(jnp.sum({1})) % 5, {f[0]}, (0, {0}))",
        _pick_while, takes="all", reverse=False,
    ),
    "map": Word("lax.map({f[0]}, {0})", _pick_map),
    "vmap": Word("jax.vmap({f[0]}, in_axes=(0, None))({0}, {1})", _pick_vmap),
    "jit": Word("jax.jit({f[0]})({0}, {1})", _pick_call),
    "checkpoint": Word("jax.checkpoint({f[0]})({0}, {1})", _pick_call),
    "grad": Word(f"jax.grad({_SUM})({{0}})", _pick_slope),
    "jvp": Word(f"{{0}} * jax.jvp({_SUM}, ({{0}},), (jnp.ones_like({{0}}),))[1]", _pick_slope),
}  # fmt: skip


def _nothing(b: Builder) -> None:
    """For words that are put in where they are needed, not drawn."""


HELPERS: dict[str, Word] = {
    "fit": Word("jnp.broadcast_to(jnp.tanh(jnp.sum({0})), {p[0]})", _nothing),
    "next": Word("{0} + 1", _nothing, exact=True),
}
