"""Top-level names that concern devices and settings: pmap, default_device, arrays from shards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from lumjax import numpy as jnp
from lumjax.config import config
from lumjax.decorator import jit
from lumjax.errors import ArgumentValueError
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import vmap
from lumjax.trace.core import aval_of


@contextmanager
def default_device(new_val: Any = None) -> Generator[None]:
    """Put new arrays on a device inside the block: there is one, so nothing changes."""
    del new_val
    yield


@contextmanager
def default_matmul_precision(new_val: str | None = None) -> Generator[None]:
    """The precision of float32 products inside the block that are given none: a name that
    `precision=` takes, or None for float32. It counts where a function is traced.
    """
    with config.scope(default_matmul_precision=new_val):
        yield


def _only(operation: str, allowed: tuple[str, ...], given: str) -> None:
    if given not in allowed:
        raise ArgumentValueError(
            operation=operation, required=" or ".join(map(repr, allowed)), got=repr(given),
            fix="broadcasting and promotion are not restricted here",
        )  # fmt: skip


@contextmanager
def numpy_rank_promotion(new_val: str = "allow") -> Generator[None]:
    """Arrays of different rank broadcast: "allow" is the one choice."""
    _only("numpy_rank_promotion", ("allow",), new_val)
    yield


@contextmanager
def numpy_dtype_promotion(new_val: str = "standard") -> Generator[None]:
    """Arrays of different dtype promote: "standard" is the one choice."""
    _only("numpy_dtype_promotion", ("standard",), new_val)
    yield


@contextmanager
def disable_jit(disable: bool = True) -> Generator[None]:
    """Run compiled functions by the interpreter, one operation after the other, inside the block.

    Functions are still traced: Python sees traced values, not arrays.
    """
    with config.scope(interpret=bool(disable)):
        yield


def _mode(name: str, doc: str) -> Callable[..., AbstractContextManager[None]]:
    """A scope of this thread in which one setting is on, or off."""

    @contextmanager
    def mode(new_val: bool = True) -> Generator[None]:
        with config.scope(**{name: bool(new_val)}):
            yield

    mode.__name__ = mode.__qualname__ = name
    mode.__doc__ = doc
    return mode


check_tracer_leaks = _mode(
    "check_tracer_leaks", "Look for tracers that outlive their transformation, inside the block."
)
checking_leaks = check_tracer_leaks
debug_nans = _mode("debug_nans", "Raise where a NaN comes up, inside the block.")
debug_infs = _mode("debug_infs", "Raise where an infinity comes up, inside the block.")
debug_key_reuse = _mode("debug_key_reuse", "Raise where a random key is used twice.")
explain_cache_misses = _mode(
    "explain_cache_misses", "Log why jitted functions are traced again, inside the block."
)
log_compiles = _mode(
    "log_compiles", "Log what is traced and compiled, and for how long, inside the block."
)


@contextmanager
def transfer_guard(new_val: str = "allow") -> Generator[None]:
    """Watch transfers between host and device: there are none."""
    del new_val
    yield


def pmap(
    fun: Callable[..., Any],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Any = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: Any = (),
    global_arg_shapes: Any = None,
) -> Callable[..., Any]:
    """`fun` mapped over a leading axis and compiled; all lanes run on the one device.

    >>> pmap(lambda x: x * 2)(jnp.array([1, 2])).tolist()
    [2, 4]
    """
    del devices, backend, donate_argnums, global_arg_shapes
    numbers = static_broadcasted_argnums
    statics = (numbers,) if isinstance(numbers, int) else tuple(numbers)

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        axes = tuple(None if k in statics else a for k, a in enumerate(axes))
        moving = [k for k in range(len(args)) if k not in statics]

        def call(*values: Any) -> Any:
            full = list(args)
            for k, v in zip(moving, values, strict=True):
                full[k] = v
            return fun(*full, **kwargs)

        inner = vmap(
            call, tuple(axes[k] for k in moving), out_axes, axis_name=axis_name,
            axis_size=axis_size,
        )  # fmt: skip
        return inner(*[args[k] for k in moving])

    return jit(mapped, static_argnums=statics) if statics else jit(mapped)


def typeof(x: Any) -> ShapedArray:
    """The abstract value of an array: its shape, dtype and weak type."""
    return aval_of(x)


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable[[Any], Any], dtype: Any = None
) -> Any:
    """The array whose one shard is data_callback(index of everything).

    >>> make_array_from_callback((2,), None, lambda index: jnp.arange(4)[index][:2]).tolist()
    [0, 1]
    """
    del sharding
    return jnp.asarray(data_callback((slice(None),) * len(shape)), dtype)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Any, arrays: Sequence[Any], *, dtype: Any = None
) -> Any:
    """The one array."""
    del shape, sharding
    return jnp.asarray(arrays[0], dtype)


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None, *, dtype: Any = None
) -> Any:
    """The data as an array."""
    del sharding, global_shape
    return jnp.asarray(local_data, dtype)


__all__ = [
    "check_tracer_leaks",
    "checking_leaks",
    "debug_infs",
    "debug_key_reuse",
    "debug_nans",
    "default_device",
    "default_matmul_precision",
    "disable_jit",
    "explain_cache_misses",
    "log_compiles",
    "make_array_from_callback",
    "make_array_from_process_local_data",
    "make_array_from_single_device_arrays",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "pmap",
    "transfer_guard",
    "typeof",
]
