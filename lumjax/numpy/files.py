"""Arrays from and to files, buffers and text; how arrays are printed."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax.compile import from_gpu
from lumjax.errors import ArgumentTypeError, ConcretizationError
from lumjax.lookup import on_gpu
from lumjax.numpy.creation import array, asarray
from lumjax.numpy.scalars import ScalarType
from lumjax.trace.array import Array
from lumjax.trace.core import Tracer

ArrayLike = Any

get_printoptions, set_printoptions = np.get_printoptions, np.set_printoptions
printoptions = np.printoptions


def _dtype(dtype: Any) -> Any:
    return dtype.dtype if isinstance(dtype, ScalarType) else dtype


def _numpy(operation: str, x: Any) -> Any:
    if isinstance(x, Tracer):
        raise ConcretizationError(
            operation=operation, required="values that are known now", got=str(x.aval),
            fix="call it outside of jit, or through lumjax.debug.callback",
        )  # fmt: skip
    return x.data if isinstance(x, Array) else np.asarray(x)


def save(file: Any, arr: ArrayLike, allow_pickle: bool = True, fix_imports: Any = None) -> None:
    """Write one array as a .npy file."""
    del fix_imports
    np.save(file, _numpy("jnp.save", arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: ArrayLike, **kwds: ArrayLike) -> None:
    """Write several arrays, by position or name, as an uncompressed .npz file."""
    np.savez(
        file, *[_numpy("jnp.savez", a) for a in args],
        **{k: _numpy("jnp.savez", v) for k, v in kwds.items()},
    )  # fmt: skip


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Read a .npy file as an array, or a .npz file as NumPy's mapping of names to arrays.

    >>> import io
    >>> buffer = io.BytesIO()
    >>> save(buffer, asarray([1, 2]))
    >>> _ = buffer.seek(0)
    >>> load(buffer)
    Array([1, 2], dtype=int32)
    """
    found = np.load(file, *args, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype == np.dtype("V2"):  # NumPy forgets the name of bfloat16
        found = found.view(_bfloat16)
    return asarray(found)


_bfloat16 = np.dtype(asarray(0, "bfloat16").dtype)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    r"""A vector from the bytes of a buffer.

    >>> frombuffer(b"\x01\x02", dtype=np.uint8).tolist()
    [1, 2]
    """
    return asarray(np.frombuffer(buffer, _dtype(dtype), count, offset).copy())


def fromfile(*args: Any, **kwargs: Any) -> Any:
    """Not offered, as in JAX: read with numpy.fromfile and convert."""
    raise ArgumentTypeError(
        operation="jnp.fromfile", required="nothing: it is not offered, as in JAX",
        got=f"{args}, {kwargs}", fix="use jnp.asarray(numpy.fromfile(...))",
    )  # fmt: skip


def fromiter(*args: Any, **kwargs: Any) -> Any:
    """Not offered, as in JAX: read with numpy.fromiter and convert."""
    raise ArgumentTypeError(
        operation="jnp.fromiter", required="nothing: it is not offered, as in JAX",
        got=f"{args}, {kwargs}", fix="use jnp.asarray(numpy.fromiter(...))",
    )  # fmt: skip


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """A vector from numbers in text.

    >>> fromstring("1 2 3", dtype=int, sep=" ").tolist()
    [1, 2, 3]
    """
    return asarray(np.fromstring(string, _dtype(dtype), count, sep=sep))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array of another library that offers __dlpack__: a copy of it; of one on a GPU, unless
    `copy`, an array that shares its memory, which nobody may change any more.

    >>> from_dlpack(np.array([1.0, 2.0], np.float32)).tolist()
    [1.0, 2.0]
    """
    del device
    if isinstance(x, Array):
        return array(x)
    if on_gpu(x):
        return from_gpu(x, bool(copy))
    return asarray(np.from_dlpack(x))


# ---- text


def array_repr(
    arr: ArrayLike,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The text that repr() prints."""
    return np.array_repr(
        _numpy("jnp.array_repr", arr), max_line_width, precision, suppress_small
    ).replace("array(", "Array(", 1)


def array_str(
    a: ArrayLike,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The text that str() prints.

    >>> array_str(asarray([1, 2]))
    '[1 2]'
    """
    return np.array_str(_numpy("jnp.array_str", a), max_line_width, precision, suppress_small)
