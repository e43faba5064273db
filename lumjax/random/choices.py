"""Draws from what is given: categories, permutations, elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from lumjax.random.core import (
    Key,
    Shape,
    bits_of,
    drawn_shape,
    gumbel,
    randint,
    split,
    uniform,
)
from lumjax.trace.core import aval_of


def categorical(
    key: Key,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Indices drawn with probabilities softmax(logits) along an axis (the Gumbel-max trick)."""
    del out_sharding
    values = jnp.asarray(logits)
    if not dt.is_floating(aval_of(values).dtype):
        values = ops.cast(values, np.float64)
    lengths = tuple(aval_of(values).shape)
    axis = ops.canonical_axis("random.categorical", axis, len(lengths))
    batch = lengths[:axis] + lengths[axis + 1 :]
    shape = batch if shape is None else drawn_shape("random.categorical", shape)
    lead = len(shape) - len(batch)
    if lead < 0 or tuple(shape[lead:]) != batch:
        raise ShapeError(
            operation="random.categorical",
            required=f"a shape that ends in the batch shape {batch}",
            got=str(shape),
            fix="put the number of draws first",
        )
    prefix = tuple(shape[:lead])
    kind = aval_of(values).dtype
    if replace:
        full = (*prefix, *lengths[:axis], lengths[axis], *lengths[axis + 1 :])
        noise = gumbel(key, full, kind, mode)
        spread = jnp.broadcast_to(values, full)
        return jnp.argmax(ops.add(noise, spread), axis=axis + lead)
    count = math.prod(prefix)
    noisy = ops.add(gumbel(key, lengths, kind, mode), values)
    _, picked = ops.top_k(jnp.moveaxis(noisy, axis, -1), count)
    return jnp.reshape(jnp.moveaxis(picked, -1, 0), shape)


def _shuffle(key: Key, x: Any, axis: int) -> Any:
    """Sort by random bits; as many rounds as make a collision unlikely."""
    size: Any = max(1, aval_of(x).size)
    rounds = int(np.ceil(3 * np.log(size) / np.log(np.iinfo(np.uint32).max)))
    for _ in range(rounds):
        pair = split(key)
        key, fresh = pair[0], pair[1]
        marks = bits_of(fresh, 32, tuple(aval_of(x).shape))
        _, x = ops.sort([marks, x], axis, True, 1)
    return x


def permutation(
    key: Key, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Any:
    """A random permutation of range(x), or of an array along an axis.

    >>> sorted(lumjax.random.permutation(lumjax.random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    del out_sharding
    value = jnp.asarray(x)
    aval = aval_of(value)
    if not aval.ndim:
        if not dt.is_integer(aval.dtype):
            raise ArgumentTypeError(
                operation="random.permutation",
                required="an integer or an array with axes",
                got=str(aval),
                fix="pass a count, or the array to permute",
            )
        return _shuffle(key, jnp.arange(x), 0)
    axis = ops.canonical_axis("random.permutation", axis, aval.ndim)
    if independent or aval.ndim == 1:
        return _shuffle(key, value, axis)
    order = _shuffle(key, jnp.arange(aval.shape[axis]), 0)
    return value[(*[slice(None)] * axis, order)]


shuffle = permutation


def choice(
    key: Key,
    a: Any,
    shape: Shape = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Any:
    """Draws from range(a), or from an array along an axis, with probabilities `p` where given."""
    shape = drawn_shape("random.choice", shape)
    values = jnp.asarray(a)
    aval = aval_of(values)
    if aval.ndim:
        axis = ops.canonical_axis("random.choice", axis, aval.ndim)
    count = int(aval.shape[axis]) if aval.ndim else int(values)
    draws = math.prod(shape)
    if count <= 0 or (not replace and draws > count):
        raise ArgumentValueError(
            operation="random.choice",
            required="something to choose from, and no more draws than that without replacement",
            got=f"{draws} draws from {count}",
            fix="draw with replace=True, or fewer",
        )
    if p is None and not replace:
        mixed = permutation(key, count if not aval.ndim else values, axis)
        picked = mixed[(*[slice(None)] * (axis if aval.ndim else 0), slice(0, draws))]
        rest = tuple(aval.shape)
        return jnp.reshape(picked, (*rest[:axis], *shape, *rest[axis + 1 :]) if rest else shape)
    order = _chosen(key, count, draws, shape, replace, p, mode)
    return order if not aval.ndim else jnp.take(values, order, axis=axis)


def _chosen(
    key: Key, count: int, draws: int, shape: Any, replace: bool, p: Any, mode: str | None
) -> Any:
    if p is None:
        return randint(key, shape, 0, count)
    chances = jnp.asarray(p)
    if not dt.is_floating(aval_of(chances).dtype):
        chances = ops.cast(chances, np.float64)
    if tuple(aval_of(chances).shape) != (count,):
        raise ShapeError(
            operation="random.choice",
            required=f"{count} probabilities",
            got=str(aval_of(chances)),
            fix="give one probability for each choice",
        )
    if replace:
        sums = jnp.cumsum(chances)
        level = sums[-1] * (1 - uniform(key, shape, aval_of(sums).dtype))
        return jnp.searchsorted(sums, level)
    noisy = ops.add(gumbel(key, (count,), aval_of(chances).dtype, mode), ops.log(chances))
    return jnp.reshape(ops.top_k(noisy, draws)[1], shape)
