"""Initialisers of parameters under jax.nn.initializers' names: functions (key, shape, dtype) ->
array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import random
from lumjax.errors import ArgumentValueError


@runtime_checkable
class Initializer(Protocol):
    """What makes parameters: a function of a key, a shape and a dtype."""

    def __call__(self, key: Any, shape: Any, dtype: Any = None) -> Any:
        """The parameters."""
        ...


def _dtype(dtype: Any, default: Any) -> Any:
    return dt.canonicalize(default if dtype is None else dtype)


def zeros(key: Any, shape: Sequence[int], dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Zeros; the key is not used."""
    del out_sharding
    del key
    return jnp.zeros(tuple(shape), _dtype(dtype, np.float64))


def ones(key: Any, shape: Sequence[int], dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Ones; the key is not used."""
    del out_sharding
    del key
    return jnp.ones(tuple(shape), _dtype(dtype, np.float64))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """One value everywhere."""

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        del key
        return jnp.full(tuple(shape), value, _dtype(dtype, np.float64))

    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform on [0, scale)."""

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        kind = _dtype(dtype, np.float64)
        return random.uniform(key, tuple(shape), kind) * jnp.asarray(scale, kind)

    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal with mean 0."""

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        kind = _dtype(dtype, np.float64)
        return random.normal(key, tuple(shape), kind) * jnp.asarray(stddev, kind)

    return init


def truncated_normal(
    stddev: Any = 1e-2, dtype: Any = None, lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """Normal, cut to [lower, upper] standard deviations."""

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        kind = _dtype(dtype, np.float64)
        draws = random.truncated_normal(key, lower, upper, tuple(shape), kind)
        return draws * jnp.asarray(stddev, kind)

    return init


def _fans(
    shape: Sequence[int], in_axis: Any, out_axis: Any, batch_axis: Any
) -> tuple[float, float]:
    """How many inputs reach an output and how many outputs an input reaches."""
    if len(shape) < 2:
        raise ArgumentValueError(
            operation="variance scaling",
            required="a shape with at least two axes",
            got=str(tuple(shape)),
            fix="use normal or zeros for vectors",
        )

    def total(axes: Any) -> int:
        return math.prod(shape[k] for k in ((axes,) if isinstance(axes, int) else axes))

    inputs, outputs, batch = total(in_axis), total(out_axis), total(batch_axis)
    field = math.prod(shape) / inputs / outputs / batch
    return inputs * field, outputs * field


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Any = -2,
    out_axis: Any = -1,
    batch_axis: Any = (),
    dtype: Any = None,
) -> Initializer:
    """Draws of variance scale / n, n being fan_in, fan_out, their mean or their geometric mean.

    `distribution` is "normal", "truncated_normal" or "uniform".
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        kind = _dtype(dtype, np.float64)
        inputs, outputs = _fans(shape, in_axis, out_axis, batch_axis)
        fans = {
            "fan_in": inputs,
            "fan_out": outputs,
            "fan_avg": (inputs + outputs) / 2,
            "fan_geo_avg": math.sqrt(inputs * outputs),
        }
        if mode not in fans:
            raise ArgumentValueError(
                operation="variance scaling",
                required=f"mode {', '.join(fans)}",
                got=repr(mode),
                fix="choose one of these",
            )
        variance = jnp.asarray(scale / fans[mode], kind)
        match distribution:
            case "normal":
                return random.normal(key, tuple(shape), kind) * jnp.sqrt(variance)
            case "uniform":
                return random.uniform(key, tuple(shape), kind, -1) * jnp.sqrt(3 * variance)
            case "truncated_normal":
                # The constant is the deviation of a standard normal cut to [-2, 2].
                width = jnp.sqrt(variance) / jnp.asarray(0.87962566103423978, kind)
                return random.truncated_normal(key, -2, 2, tuple(shape), kind) * width
            case _:
                raise ArgumentValueError(
                    operation="variance scaling",
                    required="distribution normal, truncated_normal or uniform",
                    got=repr(distribution),
                    fix="choose one of these",
                )

    return init


def _family(scale: float, mode: str, distribution: str, name: str, source: str) -> Any:
    def make(
        in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{distribution} draws of variance {scale:g} / {mode} ({source})."
    return make


_GLOROT, _LECUN, _HE = "Glorot and Bengio 2010", "LeCun et al. 1998", "He et al. 2015"
glorot_uniform = xavier_uniform = _family(1.0, "fan_avg", "uniform", "glorot_uniform", _GLOROT)
glorot_normal = xavier_normal = _family(
    1.0, "fan_avg", "truncated_normal", "glorot_normal", _GLOROT
)
lecun_uniform = _family(1.0, "fan_in", "uniform", "lecun_uniform", _LECUN)
lecun_normal = _family(1.0, "fan_in", "truncated_normal", "lecun_normal", _LECUN)
he_uniform = kaiming_uniform = _family(2.0, "fan_in", "uniform", "he_uniform", _HE)
he_normal = kaiming_normal = _family(2.0, "fan_in", "truncated_normal", "he_normal", _HE)


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Orthonormal columns along `column_axis`, the other axes taken together, times `scale`.

    >>> w = orthogonal()(random.key(0), (4, 2))
    >>> bool(jnp.allclose(w.T @ w, jnp.eye(2), atol=1e-5))
    True
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        kind = _dtype(dtype, np.float64)
        sizes = list(shape)
        if len(sizes) < 2:
            raise ArgumentValueError(
                operation="orthogonal initializer",
                required="a shape with at least two axes",
                got=str(tuple(sizes)),
                fix="choose another initializer for vectors",
            )
        if 0 in sizes:
            return jnp.zeros(tuple(sizes), kind)
        columns = sizes.pop(column_axis)
        draw = random.orthogonal(key, math.prod(sizes), (), kind, columns)
        draw = jnp.moveaxis(jnp.reshape(draw, (*sizes, columns)), -1, column_axis)
        return jnp.asarray(scale, kind) * draw

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """A convolution kernel (*positions, in, out) that is orthogonal at its centre and 0 elsewhere
    (Xiao et al. 2018); in <= out.
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        kind = _dtype(dtype, np.float64)
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise ArgumentValueError(
                operation="delta_orthogonal initializer",
                required="a shape of 3 to 5 axes with at least as many outputs as inputs",
                got=str(tuple(shape)),
                fix="exchange the last two sizes, or use orthogonal",
            )
        matrix = orthogonal(scale, column_axis, kind)(key, shape[-2:])
        centre = tuple((n - 1) // 2 for n in shape[:-2])
        return jnp.zeros(tuple(shape), kind).at[centre].set(matrix)

    return init
