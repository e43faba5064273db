"""The gamma distribution and what is made of it: beta, chisquare, dirichlet, f, t.

Source: Marsaglia and Tsang 2000, "A simple method for generating gamma variables", with one key
for each element, as in JAX. Samples are differentiable in the parameters (implicit derivative).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.config import config
from lumjax.control.custom import custom_jvp
from lumjax.control.scan import while_loop
from lumjax.debugging.keys import unchecked
from lumjax.errors import ShapeError
from lumjax.random.core import (
    Key,
    drawn_shape,
    exponential,
    floating,
    key_data,
    normal,
    split,
    uniform,
)
from lumjax.trace.batch import vmap
from lumjax.trace.core import aval_of

Shape = Sequence[Any]


def common_shape(operation: str, shape: Any, *parameters: Any) -> tuple[Any, ...]:
    """The shape of a draw: the given one, to which the parameters must broadcast, or theirs."""
    shapes = [tuple(aval_of(jnp.asarray(p)).shape) for p in parameters]
    found = ops.broadcast_shapes(*shapes, operation=operation)
    if shape is None:
        return tuple(found)
    wanted = drawn_shape(operation, shape)
    if ops.broadcast_shapes(wanted, found, operation=operation) != wanted:
        raise ShapeError(
            operation=operation,
            required=f"a shape to which the parameters' {tuple(found)} broadcasts",
            got=str(wanted),
            fix="put the number of draws first",
        )
    return wanted


def spread(x: Any, shape: Shape, kind: dt.DType) -> Any:
    """A parameter in the shape and dtype of the draw."""
    return jnp.broadcast_to(jnp.asarray(x, kind), shape)


def _one(words: Any, alpha: Any, in_logs: bool) -> Any:
    """One sample, from one key. Below 1 the parameter is raised by 1 and the sample boosted."""
    kind = aval_of(alpha).dtype
    number = kind.type
    large = alpha >= number(1)
    raised = jnp.where(large, alpha, alpha + number(1))
    d = raised - number(1 / 3)
    c = number(1 / 3) / jnp.sqrt(d)

    def rejected(state: Any) -> Any:
        _, x, v, u = state
        inside = u >= number(1) - number(0.0331) * (x * x)
        return inside & (ops.log(u) >= x * number(0.5) + d * (number(1) - v + ops.log(v)))

    def again(state: Any) -> Any:
        key = split(state[0], 3)

        def positive(draw: Any) -> Any:
            pair = split(draw[0])
            x = normal(pair[1], (), kind)
            return pair[0], x, number(1) + x * c

        start = (key[1], jnp.asarray(number(0)), jnp.asarray(number(-1)))
        _, x, v = while_loop(lambda draw: draw[2] <= number(0), positive, start)
        return key[0], x * x, v * v * v, uniform(key[2], (), kind)

    pair = split(words)
    start = (pair[0], *(jnp.asarray(number(k)) for k in (0, 1, 2)))
    v = while_loop(rejected, again, start)[2]
    if in_logs:
        draw = -exponential(pair[1], (), kind)
        boost = jnp.where(large | (draw == 0), number(0), draw * (number(1) / alpha))
        return ops.log(d) + ops.log(v) + boost
    draw = number(1) - uniform(pair[1], (), kind)
    return d * v * jnp.where(large, number(1), jnp.power(draw, number(1) / alpha))


def _samples(words: Any, alpha: Any, in_logs: bool) -> Any:
    shape = tuple(aval_of(alpha).shape)
    count: Any = math.prod(shape)
    if not count:
        return alpha
    keys = split(words, count)
    # Few rounds of much work each: outside of jit it is not worth while to compile the loops.
    with unchecked(), config.scope(interpret=True):
        out = vmap(lambda k, a: _one(k, a, in_logs))(keys, jnp.reshape(alpha, (count,)))
    return jnp.reshape(out, shape)


@custom_jvp
def _gamma(words: Any, alpha: Any) -> Any:
    return _samples(words, alpha, in_logs=False)


@_gamma.defjvp
def _gamma_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    words, alpha = primals
    out = _gamma(words, alpha)
    return out, tangents[1] * ops.random_gamma_grad(alpha, out)


@custom_jvp
def _log_gamma(words: Any, alpha: Any) -> Any:
    return _samples(words, alpha, in_logs=True)


@_log_gamma.defjvp
def _log_gamma_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    words, alpha = primals
    out = _log_gamma(words, alpha)
    tiny = np.array(dt.finfo(aval_of(out).dtype).tiny, aval_of(out).dtype)
    sample = jnp.exp(out)
    sample = jnp.where(sample == 0, tiny, sample)
    return out, tangents[1] * (ops.random_gamma_grad(alpha, sample) / sample)


def _draw(name: str, f: Callable[..., Any], key: Key, a: Any, shape: Any, dtype: Any) -> Any:
    kind = floating(f"random.{name}", dtype)
    shape = common_shape(f"random.{name}", shape, a)
    return f(key_data(key), spread(a, shape, kind))


def gamma(
    key: Key, a: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Gamma with shape parameter a > 0 and scale 1; differentiable in a.

    Shapes: `shape` or that of a, which broadcasts to it.

    >>> from lumjax.random.core import key
    >>> bool((gamma(key(0), 2.0, (10,)) > 0).all())
    True
    """
    del out_sharding
    return _draw("gamma", _gamma, key, a, shape, dtype)


def loggamma(
    key: Key, a: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """The logarithm of a gamma sample, accurate for small a."""
    del out_sharding
    return _draw("loggamma", _log_gamma, key, a, shape, dtype)


def beta(
    key: Key,
    a: Any,
    b: Any,
    shape: Shape | None = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Beta with parameters a, b > 0; differentiable in both.

    >>> from lumjax.random.core import key
    >>> x = beta(key(0), 2.0, 3.0, (10,))
    >>> bool(((x > 0) & (x < 1)).all())
    True
    """
    del out_sharding
    kind = floating("random.beta", dtype)
    shape = common_shape("random.beta", shape, a, b)
    keys = split(key)
    first = loggamma(keys[0], spread(a, shape, kind), shape, kind)
    second = loggamma(keys[1], spread(b, shape, kind), shape, kind)
    top = jnp.maximum(first, second)
    one, two = jnp.exp(first - top), jnp.exp(second - top)
    return one / (one + two)


def dirichlet(
    key: Key, alpha: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Dirichlet with parameters alpha (..., n): points (*shape, n) that sum to 1.

    >>> from lumjax.random.core import key
    >>> dirichlet(key(0), jnp.ones(3), (4,)).shape
    (4, 3)
    """
    del out_sharding
    kind = floating("random.dirichlet", dtype)
    value = jnp.asarray(alpha, kind)
    if not aval_of(value).ndim:
        raise ShapeError(
            operation="random.dirichlet", required="alpha with at least one axis",
            got=str(aval_of(value)), fix="pass one parameter for each category",
        )  # fmt: skip
    *batch, n = aval_of(value).shape
    lead = common_shape("random.dirichlet", shape, jnp.zeros(tuple(batch)))
    logs = loggamma(key, value, (*lead, n), kind)
    weights = jnp.exp(logs - jnp.max(logs, axis=-1, keepdims=True))
    return weights / jnp.sum(weights, axis=-1, keepdims=True)


def chisquare(
    key: Key, df: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Chi-square with `df` degrees of freedom."""
    del out_sharding
    kind = floating("random.chisquare", dtype)
    shape = common_shape("random.chisquare", shape, df)
    half = jnp.asarray(df, kind) / kind.type(2)
    return jnp.exp(loggamma(key, half, shape, kind)) * kind.type(2)


def f(
    key: Key,
    dfnum: Any,
    dfden: Any,
    shape: Shape | None = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Fisher's F with `dfnum` and `dfden` degrees of freedom."""
    del out_sharding
    kind = floating("random.f", dtype)
    shape = common_shape("random.f", shape, dfnum, dfden)
    keys = split(key)
    above, below = jnp.asarray(dfnum, kind), jnp.asarray(dfden, kind)
    top = chisquare(keys[1], above, shape, kind) / above
    return top / (chisquare(keys[0], below, shape, kind) / below)


def t(
    key: Key, df: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Student's t with `df` degrees of freedom."""
    del out_sharding
    kind = floating("random.t", dtype)
    shape = common_shape("random.t", shape, df)
    keys = split(key)
    half = jnp.asarray(df, kind) / kind.type(2)
    return normal(keys[0], shape, kind) * jnp.sqrt(half / gamma(keys[1], half, shape, kind))
