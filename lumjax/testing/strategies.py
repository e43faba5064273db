"""Hypothesis strategies: shapes, arrays, pytrees, whole programs. Needs hypothesis (the `test`
extra).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lumjax import dtype as dt
from lumjax.testing.checks import check_adjoint, check_grads
from lumjax.testing.programs import Program, build
from lumjax.trace.array import Array

# 0 and 1 often; primes; around powers of two, where blocked loops have their remainders.
SIZES = (1, 2, 3, 0, 4, 5, 7, 8, 15, 16, 17, 31, 33)
LARGE_SIZES = (127, 128, 129, 1023, 1024, 1025)
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e30, -1e30)


def shapes(
    max_rank: int = 3, *, min_rank: int = 0, sizes: Sequence[int] = SIZES
) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes in which 0 and 1 are common.

    >>> len(shapes(2).example()) <= 2
    True
    """
    return st.lists(st.sampled_from(sizes), min_size=min_rank, max_size=max_rank).map(tuple)


@st.composite
def broadcastable(draw: Any, n: int, max_rank: int = 3) -> tuple[tuple[int, ...], ...]:
    """`n` shapes that broadcast together."""
    full = draw(shapes(max_rank))
    out: list[tuple[int, ...]] = []
    for _ in range(n):
        start = draw(st.integers(0, len(full)))
        out.append(tuple(1 if draw(st.booleans()) else k for k in full[start:]))
    return tuple(out)


@st.composite
def arrays(
    draw: Any,
    dtype: Any = np.float32,
    shape: tuple[int, ...] | st.SearchStrategy[tuple[int, ...]] | None = None,
    *,
    profile: str = "smooth",
) -> Array:
    """Arrays of a dtype. Profile "smooth" is moderate and finite; "edge" plants infinities, NaN,
    signed zeros, denormals and extremes.
    """
    kind = dt.canonicalize(dtype)
    if shape is None:
        shape = shapes()
    size = shape if isinstance(shape, tuple) else draw(shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if dt.is_bool(kind):
        return Array(rng.integers(0, 2, size).astype(bool))
    if dt.is_integer(kind):
        info = np.iinfo(kind)
        low, high = (info.min, info.max) if profile == "edge" else (max(-5, info.min), 5)
        return Array(rng.integers(low, high, size, dtype=kind.type, endpoint=True))
    data = np.asarray(rng.uniform(-2, 2, size))
    if dt.is_complex(kind):
        data = data + 1j * np.asarray(rng.uniform(-2, 2, size))
    elif profile == "edge" and data.size:
        count = draw(st.integers(1, min(4, data.size)))
        places = rng.choice(data.size, count, replace=False)
        data.flat[places] = [draw(st.sampled_from(SPECIAL)) for _ in range(count)]
    with np.errstate(all="ignore"):
        return Array(np.asarray(data).astype(kind))


def pytrees(leaf: st.SearchStrategy[Any], max_leaves: int = 6) -> st.SearchStrategy[Any]:
    """Nested lists, tuples, dicts and None with leaves from `leaf`."""
    return st.recursive(
        st.one_of(leaf, st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.tuples(inner, inner),
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        ),
        max_leaves=max_leaves,
    )


class _Draws:
    """Decisions by Hypothesis, which shrinks them."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return int(self._draw(st.integers(low, high)))


@st.composite
def programs(
    draw: Any, ops: Sequence[str] | None = None, max_nodes: int = 12, flow: bool = False
) -> Program:
    """Random programs over the vocabulary (`ops` restricts it): `.fn`, `.args`, `.source()`.

    `flow`: with functions inside: branches, loops, mapped, differentiated, recomputed ones.
    """
    return build(_Draws(draw), max_nodes, ops, flow)


def gradient_property(*strategies: Any, order: int = 1) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: a test that `f`'s derivatives are right where the strategies put arguments.

    >>> import lumjax.numpy as jnp
    >>> @gradient_property(arrays(shape=(2,)), order=2)
    ... def test_sines(x):
    ...     return jnp.sin(x)
    >>> test_sines()
    """

    def decorate(f: Callable[..., Any]) -> Any:
        @given(st.tuples(*strategies))
        def check(args: tuple[Any, ...]) -> None:
            check_grads(f, args, order)
            check_adjoint(f, args)

        check.__name__ = f.__name__
        check.__doc__ = f.__doc__
        return check

    return decorate


@st.composite
def indices(draw: Any, shape: tuple[int, ...], *, advanced: bool = True) -> Any:
    """Index expressions that are legal for an array of this shape: integers, slices with any step,
    None, Ellipsis and, unless `advanced` is False, integer lists and arrays and bool masks.
    """
    items: list[Any] = []
    axis, used_ellipsis, width = 0, False, None
    while axis < len(shape):
        n = shape[axis]
        kinds = ["slice", "slice", "new"] + ["int"] * (n > 0) + ["ellipsis"] * (not used_ellipsis)
        kinds += (["array", "mask"] if n else ["mask"]) if advanced else []
        stop = [] if used_ellipsis else ["stop"]  # what follows an Ellipsis must reach the end
        kind = draw(st.sampled_from([*kinds, *stop]))
        if kind == "stop":
            break
        if kind == "new":
            items.append(None)
            continue
        if kind == "ellipsis":
            used_ellipsis = True
            items.append(Ellipsis)
            axis += draw(st.integers(0, len(shape) - axis))
            continue
        if kind == "slice":
            items.append(draw(st.slices(n)))
        elif kind == "int":
            items.append(draw(st.integers(-n, n - 1)))
        else:  # masks and arrays of one index broadcast together: all get one length
            width = draw(st.integers(0, 3)) if width is None else width
            if kind == "mask" and (n < width or n == 0):
                items.append(slice(None))
            elif kind == "mask":
                chosen = draw(st.permutations(range(n)))[:width]
                items.append(np.isin(np.arange(n), chosen))
            else:
                picks = draw(st.lists(st.integers(-n, n - 1), min_size=width, max_size=width))
                tall = draw(st.booleans())
                items.append(np.asarray(picks, np.int32).reshape((-1, 1) if tall else (-1,)))
        axis += 1
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)
