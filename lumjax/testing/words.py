"""The straight-line words of random programs: operations in JAX's names, and operands for them.

Values are kept moderate; what jumps (comparisons, sorting, rounding) reads only values that are
exact, so that rounding cannot flip it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.testing.steps import Builder, Word


def _float(b: Builder) -> int | None:
    return b.which(b.floating)


def _unary(text: str, exact: bool = False) -> Word:
    def pick(b: Builder) -> Any:
        k = _float(b)
        return None if k is None else ((k,), ())

    return Word(text, pick, exact=exact)


def _fits(a: Sequence[int], b: Sequence[int]) -> bool:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    return all(m == n or 1 in (m, n) for m, n in pairs)


def _binary(
    text: str, *, reads_exact: bool = False, integers: bool = False, exact: bool = False
) -> Word:
    def ok(b: Builder, k: int) -> bool:
        kind = b.integral(k) if integers else b.floating(k)
        return kind and (b.exact[k] or not reads_exact)

    def pick(b: Builder) -> Any:
        one = b.which(lambda k: ok(b, k))
        if one is None:
            return None
        dtype = b.dtype(one)
        two = b.which(
            lambda k: ok(b, k) and _fits(b.shape(k), b.shape(one)) and b.dtype(k) == dtype
        )
        return None if two is None else ((one, two), ())

    return Word(text, pick, exact=exact)


def _axis_word(text: str, need: int = 0, *, reads_exact: bool = False, exact: bool = False) -> Word:
    """An operation along one axis of length at least `need`."""

    def pick(b: Builder) -> Any:
        k = b.which(
            lambda k: (
                b.floating(k)
                and any(n >= need for n in b.shape(k))
                and (b.exact[k] or not reads_exact)
            )
        )
        if k is None:
            return None
        axes = [a for a, n in enumerate(b.shape(k)) if n >= need]
        return (k,), (b.one_of(axes),)

    return Word(text, pick, exact=exact)


def _any(b: Builder) -> int | None:
    return b.which(lambda k: True)


def _pick_transpose(b: Builder) -> Any:
    k = _any(b)
    if k is None:
        return None
    rest, order = list(range(len(b.shape(k)))), list[int]()
    while rest:
        order.append(rest.pop(b.choose.integer(0, len(rest) - 1)))
    return (k,), (tuple(order),)


def _pick_reshape(b: Builder) -> Any:
    k = _any(b)
    if k is None:
        return None
    shape = b.shape(k)
    size = int(np.prod(shape))
    choices: list[tuple[int, ...]] = [(size,), (1, *shape), (*shape, 1)]
    choices += [(d, size // d) for d in (2, 3, 4) if size and size % d == 0]
    if len(shape) > 1:
        choices.append((shape[0] * shape[1], *shape[2:]))
    return (k,), (b.one_of(choices),)


def _pick_slice(b: Builder) -> Any:
    k = b.which(lambda k: len(b.shape(k)) > 0)
    if k is None:
        return None
    low, high, by = list[int](), list[int](), list[int]()
    for n in b.shape(k):
        start = b.choose.integer(0, n)
        low.append(start)
        high.append(b.choose.integer(start, n))
        by.append(b.choose.integer(1, 3))
    return (k,), (tuple(low), tuple(high), tuple(by))


def _pick_pad(b: Builder) -> Any:
    k = b.which(lambda k: b.floating(k) and len(b.shape(k)) > 0)
    if k is None:
        return None
    edges = tuple(
        (
            b.choose.integer(0, 2) - (1 if n > 2 else 0),
            b.choose.integer(0, 2),
            b.choose.integer(0, 1),
        )
        for n in b.shape(k)
    )
    return (k,), (edges,)


def _pick_concatenate(b: Builder) -> Any:
    one = b.which(lambda k: len(b.shape(k)) > 0)
    if one is None:
        return None
    axis = b.choose.integer(0, len(b.shape(one)) - 1)

    def joins(k: int) -> bool:
        a, c = b.shape(k), b.shape(one)
        same = len(a) == len(c) and all(
            m == n for j, (m, n) in enumerate(zip(a, c, strict=True)) if j != axis
        )
        return same and b.dtype(k) == b.dtype(one)

    two = b.which(joins)
    return None if two is None else ((one, two), (axis,))


def _pick_broadcast(b: Builder) -> Any:
    k = b.which(lambda k: len(b.shape(k)) < 4)
    if k is None:
        return None
    return (k,), (b.one_of([2, 1, 0, 3]),)


def _pick_dot(b: Builder) -> Any:
    one = b.which(lambda k: b.floating(k) and len(b.shape(k)) >= 1)
    if one is None:
        return None
    n = b.shape(one)[-1]
    dtype = b.dtype(one)
    two = b.which(
        lambda k: b.floating(k) and 1 <= len(b.shape(k)) <= 2 and b.shape(k)[0] == n
        and b.dtype(k) == dtype
    )  # fmt: skip
    return None if two is None else ((one, two), ())


def _pick_take(b: Builder) -> Any:
    k = b.which(lambda k: b.floating(k) and len(b.shape(k)) > 0 and b.shape(k)[0] > 0)
    i = b.which(b.integral)
    return None if k is None or i is None else ((k, i), ())


def _pick_select(b: Builder) -> Any:
    test = b.which(lambda k: dt.is_bool(b.dtype(k)))
    if test is None:
        return None
    one = b.which(lambda k: b.floating(k) and _fits(b.shape(k), b.shape(test)))
    if one is None:
        return None
    common = np.broadcast_shapes(b.shape(test), b.shape(one))
    dtype = b.dtype(one)
    two = b.which(lambda k: b.floating(k) and _fits(b.shape(k), common) and b.dtype(k) == dtype)
    return None if two is None else ((test, one, two), ())


def _pick_iota(b: Builder) -> Any:
    return (), (b.choose.integer(0, 4),)


def _pick_scatter(b: Builder) -> Any:
    k = b.which(lambda k: b.floating(k) and len(b.shape(k)) > 0 and b.shape(k)[0] > 0)
    i = b.which(lambda j: b.integral(j) and len(b.shape(j)) == 1)
    u = None
    if k is not None and i is not None:
        want = (b.shape(i)[0], *b.shape(k)[1:])
        dtype = b.dtype(k)
        u = b.which(lambda j: b.shape(j) == want and b.dtype(j) == dtype)
    return None if u is None else ((k, i, u), ())


def _pick_cond(b: Builder) -> Any:
    test = b.which(lambda k: dt.is_bool(b.dtype(k)))
    pair = b.words["add"].pick(b)
    return None if test is None or pair is None else ((test, *pair[0]), ())


_BOUNDED = "jnp.exp(jnp.tanh({0}))"
_RECURRENCE = (
    "lax.scan(lambda c, x: (jnp.tanh(c * 0.5 + x),) * 2, "
    "jnp.zeros({0}.shape[1:], {0}.dtype), {0})[1]"
)

WORDS: dict[str, Word] = {
    "add": _binary("jnp.add({0}, {1})"),
    "mul": _binary("jnp.multiply({0}, {1})"),
    "sub": _binary("jnp.subtract({0}, {1})"),
    "sin": _unary("jnp.sin({0})"),
    "tanh": _unary("jnp.tanh({0})"),
    "exp": _unary(_BOUNDED),
    "log": _unary("jnp.log(jnp.square({0}) + 0.5)"),
    "sqrt": _unary("jnp.sqrt(jnp.square({0}) + 0.25)"),
    "logistic": _unary("lax.logistic({0})"),
    "erf": _unary("lax.erf({0})"),
    "neg": _unary("-{0}", exact=True),
    "square": _unary("jnp.square({0})"),
    "div": _binary("{0} / (jnp.square({1}) + 1.0)"),
    "max": _binary("jnp.maximum({0}, {1})", reads_exact=True, exact=True),
    "min": _binary("jnp.minimum({0}, {1})", reads_exact=True, exact=True),
    "abs": _axis_word("jnp.abs({0})", reads_exact=True, exact=True),
    "less": _binary("jnp.less({0}, {1})", reads_exact=True, exact=True),
    "select": Word("jnp.where({0}, {1}, {2})", _pick_select, exact=True),
    "iota": Word("lax.iota(np.int32, {p[0]})", _pick_iota, exact=True),
    "int_add": _binary("jnp.add({0}, {1})", integers=True, exact=True),
    "int_mul": _binary("jnp.fmod(jnp.multiply({0}, {1}), 7)", integers=True, exact=True),
    "sum": _axis_word("jnp.sum({0}, {p[0]})"),
    "mean": _axis_word("jnp.mean({0}, {p[0]})", 1),
    "reduce_max": _axis_word("jnp.max({0}, {p[0]})", 1, reads_exact=True, exact=True),
    "prod": _axis_word("jnp.prod(jnp.tanh({0}), {p[0]})"),
    "cumsum": _axis_word("jnp.cumsum({0}, {p[0]})"),
    "sort": _axis_word("jnp.sort({0}, {p[0]})", 1, reads_exact=True, exact=True),
    "argmax": _axis_word("jnp.argmax({0}, {p[0]})", 1, reads_exact=True, exact=True),
    "softmax": _axis_word(f"{_BOUNDED} / jnp.sum({_BOUNDED}, {{p[0]}}, keepdims=True)", 1),
    "rev": _axis_word("jnp.flip({0}, {p[0]})", exact=True),
    "transpose": Word("jnp.transpose({0}, {p[0]})", _pick_transpose, exact=True),
    "reshape": Word("jnp.reshape({0}, {p[0]})", _pick_reshape, exact=True),
    "slice": Word("lax.slice({0}, {p[0]}, {p[1]}, {p[2]})", _pick_slice, exact=True),
    "pad": Word("lax.pad({0}, jnp.array(0.5, {0}.dtype), {p[0]})", _pick_pad, exact=True),
    "concatenate": Word("jnp.concatenate([{0}, {1}], {p[0]})", _pick_concatenate, exact=True),
    "broadcast": Word("jnp.broadcast_to({0}, ({p[0]}, *{0}.shape))", _pick_broadcast, exact=True),
    "dot": Word("jnp.dot({0}, {1})", _pick_dot),
    "take": Word("jnp.take({0}, {1}, axis=0, mode='clip')", _pick_take, exact=True),
    "scatter_add": Word("{0}.at[jnp.fmod({1}, {0}.shape[0])].add({2})", _pick_scatter),
    "scan": _axis_word(_RECURRENCE),
    "cond": Word("lax.cond(jnp.any({0}), jnp.add, jnp.subtract, {1}, {2})", _pick_cond),
    "nested_jit": _unary("jax.jit(lambda x: jnp.sin(x) * jnp.cos(jnp.square(x)))({0})"),
}
