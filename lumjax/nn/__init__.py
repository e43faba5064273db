"""Activations, softmaxes and initialisers under jax.nn's names."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.config import config
from lumjax.control.custom import custom_jvp
from lumjax.errors import ArgumentValueError
from lumjax.grad.forward import stop_gradient
from lumjax.nn import initializers as initializers
from lumjax.numpy.elementwise import strong
from lumjax.trace.core import aval_of
from lumjax.trace.dim import same

ArrayLike = Any


def identity(x: ArrayLike) -> Any:
    """`x` as an array.

    >>> identity(2.5).tolist()
    2.5
    """
    return jnp.asarray(x)


@custom_jvp
def relu(x: ArrayLike) -> Any:
    """max(x, 0); its slope at 0 is 0.

    >>> relu(jnp.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return jnp.maximum(x, 0)


@relu.defjvp
def _relu_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    # A product with 0 or 1 rather than a select: the slope is finite, so no mask has to travel.
    return relu(x), ops.mul(t, ops.cast(ops.gt(x, 0), aval_of(t).dtype))


@custom_jvp
def relu6(x: ArrayLike) -> Any:
    """min(max(x, 0), 6); its slope is 0 at both corners."""
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


@relu6.defjvp
def _relu6_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    inside = ops.and_(ops.gt(x, 0), ops.lt(x, 6))
    return relu6(x), ops.mul(t, ops.cast(inside, aval_of(t).dtype))


def sigmoid(x: ArrayLike) -> Any:
    """1 / (1 + exp(-x)).

    >>> sigmoid(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return ops.logistic(_float(x))


def _float(x: Any) -> Any:
    value = jnp.asarray(x)
    aval = aval_of(value)
    return value if dt.is_inexact(aval.dtype) else ops.cast(value, np.float64, weak=aval.weak)


def softplus(x: ArrayLike) -> Any:
    """log(1 + exp(x)) without overflow."""
    return jnp.logaddexp(_float(x), 0.0)


def sparse_plus(x: ArrayLike) -> Any:
    """A softplus that is 0 below -1 and `x` above 1: (x + 1)^2 / 4 between.

    >>> sparse_plus(jnp.asarray([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    value = jnp.asarray(x)
    return jnp.where(value <= -1.0, 0.0, jnp.where(value >= 1.0, value, (value + 1.0) ** 2 / 4))


def sparse_sigmoid(x: ArrayLike) -> Any:
    """The derivative of `sparse_plus`: 0 below -1, 1 above 1, (x + 1) / 2 between.

    >>> sparse_sigmoid(jnp.asarray([-2.0, 0.0, 2.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return 0.5 * jnp.clip(jnp.asarray(x) + 1.0, 0.0, 2.0)


def log_sigmoid(x: ArrayLike) -> Any:
    """log(sigmoid(x)) without underflow."""
    return -softplus(-_float(x))


def soft_sign(x: ArrayLike) -> Any:
    """`x` / (1 + |x|)."""
    value = _float(x)
    return value / (jnp.abs(value) + 1)


def silu(x: ArrayLike) -> Any:
    """`x` * sigmoid(x)."""
    value = _float(x)
    return value * ops.logistic(value)


swish = silu


def mish(x: ArrayLike) -> Any:
    """`x` * tanh(softplus(x))."""
    value = _float(x)
    return value * jnp.tanh(softplus(value))


def tanh(x: ArrayLike) -> Any:
    """The hyperbolic tangent."""
    return jnp.tanh(x)


def hard_tanh(x: ArrayLike) -> Any:
    """`x` limited to [-1, 1]."""
    value = jnp.asarray(x)
    return jnp.where(value > 1, 1, jnp.where(value < -1, -1, value))


def hard_sigmoid(x: ArrayLike) -> Any:
    """relu6(x + 3) / 6."""
    return relu6(_float(x) + 3.0) / 6.0


def hard_silu(x: ArrayLike) -> Any:
    """`x` * hard_sigmoid(x)."""
    value = _float(x)
    return value * hard_sigmoid(value)


hard_swish = hard_silu


def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 1e-2) -> Any:
    """`x` where x >= 0, else negative_slope * x."""
    value = jnp.asarray(x)
    return jnp.where(value >= 0, value, negative_slope * value)


def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Any:
    """`x` where x > 0, else alpha * (exp(x) - 1)."""
    value = jnp.asarray(x)
    positive = value > 0
    return jnp.where(positive, value, alpha * jnp.expm1(jnp.where(positive, 0.0, value)))


def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Any:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    value = jnp.asarray(x)
    return jnp.maximum(value, 0.0) + alpha * jnp.expm1(jnp.minimum(value, 0.0) / alpha)


def selu(x: ArrayLike) -> Any:
    """Scaled elu with self-normalising constants (Klambauer et al. 2017)."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def gelu(x: ArrayLike, approximate: bool = True) -> Any:
    """`x` times the normal distribution function of x; by default its tanh approximation.

    Source: Hendrycks and Gimpel 2016.
    """
    value = _float(x)
    if approximate:
        inner = float(np.sqrt(2 / np.pi)) * (value + 0.044715 * value**3)
        return strong(value * (0.5 * (1.0 + jnp.tanh(inner))))
    return strong(0.5 * value * ops.erfc(-value * float(np.sqrt(0.5))))


def glu(x: ArrayLike, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second."""
    first, second = jnp.split(jnp.asarray(x), 2, axis)
    return first * sigmoid(second)


def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Any:
    """(x + sqrt(x**2 + b)) / 2."""
    value = _float(x)
    return (value + jnp.sqrt(value**2 + b)) / 2


# ---- softmaxes
#
# Their derivatives are written out: products with finite weights, where the chain rule through the
# formulas would give NaN in rows that are all -inf, or drag masks through the backward pass.


def _finite_max(x: Any, axis: Any, where: Any = None) -> Any:
    """The maximum, to be subtracted before exponentials; 0 in rows that are all -inf."""
    empty = any(same(aval_of(x).shape[k], 0) for k in axis)
    initial = -np.inf if empty or where is not None else None
    top = stop_gradient(jnp.max(x, axis, keepdims=True, where=where, initial=initial))
    return top if config.grad_compat == "jax" else jnp.where(jnp.isfinite(top), top, 0.0)


def _exponentials(x: Any, axis: Any) -> tuple[Any, Any, Any]:
    """`x` less its maximum, the exponentials of that, and their sum."""
    shifted = x - _finite_max(x, axis)
    terms = jnp.exp(shifted)
    return shifted, terms, jnp.sum(terms, axis, keepdims=True)


def _weights(x: Any, axis: Any) -> Any:
    """The softmax, but 0 in rows that are all -inf: what derivatives multiply by."""
    _, terms, total = _exponentials(x, axis)
    return terms / (total + ops.cast(total == 0, aval_of(total).dtype))


def _plain_softmax(x: Any, axis: Any) -> Any:
    _, terms, total = _exponentials(x, axis)
    return terms / total


def _plain_log_softmax(x: Any, axis: Any) -> Any:
    shifted, _, total = _exponentials(x, axis)
    return shifted - jnp.log(total)


def _plain_logsumexp(x: Any, axis: Any) -> Any:
    return jnp.log(_exponentials(x, axis)[2]) + _finite_max(x, axis)


_softmax = custom_jvp(_plain_softmax, nondiff_argnums=(1,))
_log_softmax = custom_jvp(_plain_log_softmax, nondiff_argnums=(1,))
_logsumexp = custom_jvp(_plain_logsumexp, nondiff_argnums=(1,))


@_softmax.defjvp
def _softmax_jvp(axis: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    weights = _weights(x, axis)
    return _softmax(x, axis), weights * (t - jnp.sum(weights * t, axis, keepdims=True))


@_log_softmax.defjvp
def _log_softmax_jvp(axis: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    weights = _weights(x, axis)
    top = jnp.max(x, axis, keepdims=True, initial=-np.inf)
    some = ops.cast(top > -np.inf, aval_of(t).dtype)
    return _log_softmax(x, axis), t * some - jnp.sum(weights * t, axis, keepdims=True)


@_logsumexp.defjvp
def _logsumexp_jvp(axis: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    return _logsumexp(x, axis), jnp.sum(_weights(x, axis) * t, axis, keepdims=True)


def _along(axis: Any, x: Any) -> tuple[int, ...]:
    """Axes as a tuple of non-negative positions: hashable, as a static argument must be."""
    rank = aval_of(x).ndim
    if axis is None:
        return tuple(range(rank))
    given = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    return ops.canonical_axes("softmax", given, rank)


def logsumexp(
    a: ArrayLike,
    axis: Any = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Any = None,
) -> Any:
    """log(sum(b * exp(a))) along axes without overflow. Where all are -inf the gradient is 0.

    >>> logsumexp(jnp.zeros(4))
    Array(1.3862944, dtype=float32)
    """
    value = _float(a)
    if where is not None:
        value = jnp.where(where, value, -jnp.inf)
    axes = _along(axis, value)
    sign = None
    if b is None and not return_sign:
        plain = config.grad_compat == "jax"
        out = (_plain_logsumexp if plain else _logsumexp)(value, axes)
    else:
        weights = jnp.ones_like(value) if b is None else jnp.asarray(b)
        value = jnp.where(weights != 0, value, -jnp.inf)
        top = _finite_max(value, axes)
        total = jnp.sum(jnp.exp(value - top) * weights, axes, keepdims=True)
        sign = jnp.sign(total)
        out = jnp.log(jnp.abs(total) if return_sign else total) + top
    if not keepdims:
        out = jnp.squeeze(out, axes)
        sign = None if sign is None else jnp.squeeze(sign, axes)
    return (out, sign) if return_sign else out


def softmax(x: ArrayLike, axis: Any = -1, where: Any = None, initial: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along an axis. A row that is all -inf gives NaN, with gradient 0.

    >>> softmax(jnp.zeros(2))
    Array([0.5, 0.5], dtype=float32)
    """
    del initial
    value = _float(x)
    if where is not None:
        value = jnp.where(where, value, -jnp.inf)
    plain = config.grad_compat == "jax"
    out = (_plain_softmax if plain else _softmax)(value, _along(axis, value))
    return out if where is None else jnp.where(where, out, 0.0)


def log_softmax(x: ArrayLike, axis: Any = -1, where: Any = None, initial: Any = None) -> Any:
    """log(softmax(x)) without underflow."""
    del initial
    value = _float(x)
    if where is not None:
        value = jnp.where(where, value, -jnp.inf)
    plain = config.grad_compat == "jax"
    out = (_plain_log_softmax if plain else _log_softmax)(value, _along(axis, value))
    return out if where is None else jnp.where(where, out, -jnp.inf)


def standardize(
    x: ArrayLike,
    axis: Any = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: ArrayLike = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) along axes, of x's shape; integers become float32.

    The variance is mean(x^2) - mean(x)^2 by the algorithm "fast", mean((x - mean(x))^2), which
    does not cancel, by "stable". `where` selects what is counted.

    >>> standardize(jnp.array([1.0, 3.0])).round(3)
    Array([-1.,  1.], dtype=float32)
    """
    if algorithm not in ("fast", "stable"):
        raise ArgumentValueError(
            operation="nn.standardize",
            required="the algorithm 'fast' or 'stable'",
            got=repr(algorithm),
            fix="choose one of the two",
        )
    value = _float(x)
    if mean is None:
        mean = jnp.mean(value, axis, keepdims=True, where=where)
    if variance is None:
        centred = value - mean if algorithm == "stable" else value
        variance = jnp.mean(jnp.square(centred), axis, keepdims=True, where=where)
        if algorithm == "fast":
            variance = jnp.clip(variance - jnp.square(mean), 0)
    return (value - mean) * ops.rsqrt(variance + epsilon)


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: Any = -1) -> Any:
    """Rows of the identity matrix picked by integer labels; a label out of range gives zeros.

    >>> one_hot(jnp.array([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    labels = jnp.asarray(x)
    place = ops.canonical_axis("nn.one_hot", axis, aval_of(labels).ndim + 1)
    spread = jnp.expand_dims(labels, place)
    shape = [1] * (aval_of(labels).ndim + 1)
    shape[place] = num_classes
    classes = jnp.reshape(jnp.arange(num_classes, dtype=aval_of(labels).dtype), tuple(shape))
    return ops.cast(jnp.equal(spread, classes), np.float64 if dtype is None else dtype)


def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
) -> Any:
    """softmax(query key^T * scale + bias) value over [batch, time, heads, depth] arrays.

    Key and value may have fewer heads than the query, which then share them. `mask` is bool and
    broadcasts to [batch, heads, query time, key time]; `scale` is 1 / sqrt(depth) by default.
    `local_window_size`: how many keys before and after a query's own it sees. `query_seq_lengths`
    and `key_value_seq_lengths`, one number for each of the batch, leave out what comes later;
    results of queries that are left out are zero.

    >>> x = jnp.ones((1, 3, 2, 4))
    >>> dot_product_attention(x, x, x, local_window_size=1).shape
    (1, 3, 2, 4)
    """
    q, k, v = (jnp.asarray(x) for x in (query, key, value))
    heads, shared = aval_of(q).shape[-2], aval_of(k).shape[-2]
    if heads != shared:
        k, v = (jnp.repeat(x, heads // shared, axis=-2) for x in (k, v))
    depth: Any = aval_of(q).shape[-1]
    factor = float(1 / np.sqrt(depth)) if scale is None else scale
    scores = jnp.einsum("...thd,...shd->...hts", q, k) * factor
    if bias is not None:
        scores = scores + bias
    rows, columns = aval_of(scores).shape[-2:]
    seen = [] if mask is None else [jnp.asarray(mask)]
    if is_causal:
        seen.append(jnp.tril(jnp.ones((rows, columns), dtype=bool)))
    if local_window_size is not None:
        seen.append(_window(rows, columns, local_window_size))
    if query_seq_lengths is not None:
        seen.append(_within(rows, query_seq_lengths)[:, None, :, None])
    if key_value_seq_lengths is not None:
        seen.append(_within(columns, key_value_seq_lengths)[:, None, None, :])
    if seen:
        low = float(jnp.finfo(aval_of(scores).dtype).min)
        scores = jnp.where(functools.reduce(jnp.logical_and, seen), scores, low)
    weights = ops.cast(softmax(ops.cast(scores, np.float32)), aval_of(v).dtype)
    out = jnp.einsum("...hts,...shd->...thd", weights, v)
    if query_seq_lengths is not None:
        out = jnp.where(_within(rows, query_seq_lengths)[:, :, None, None], out, 0)
    return jnp.reshape(out, (*aval_of(q).shape[:-1], aval_of(v).shape[-1]))


def _window(rows: Any, columns: Any, size: int | tuple[int, int]) -> Any:
    """Which keys are close enough to a query."""
    before, after = (size, size) if isinstance(size, int) else size
    offset = jnp.arange(columns) - jnp.arange(rows)[:, None]
    return jnp.logical_and(offset >= -before, offset <= after)


def _within(length: Any, lengths: ArrayLike) -> Any:
    """Which positions are part of each sequence: [batch, time]."""
    return jnp.arange(length) < jnp.asarray(lengths)[:, None]


def log1mexp(x: Any) -> Any:
    """log(1 - exp(-x)) for x > 0, accurate at both ends.

    >>> round(float(log1mexp(1.0)), 4)
    -0.4587
    """
    value = jnp.asarray(x)
    near = jnp.log(-jnp.expm1(-value))
    return jnp.where(value < jnp.log(2.0), near, jnp.log1p(-jnp.exp(-value)))
