"""64-bit input while x64 is off: integers that do not fit raise; floats are rounded, and that is
said.

A request for a 64-bit dtype that gives a 32-bit one warns at its line. Input that is rounded warns
once per process: most data are float64 arrays, and rounding is what programs in float32 want.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.aligned import copied
from lumjax.config import config
from lumjax.errors import PrecisionWarning, ScalarRangeError, user_source

NDArray = np.ndarray[Any, Any]
_said = threading.Event()
_REMEDY = 'config.update("enable_x64", True) keeps 64 bits'


def _warn(message: str) -> None:
    source = user_source()
    if source is None:
        warnings.warn(message, PrecisionWarning, stacklevel=3)
    else:
        warnings.warn_explicit(message, PrecisionWarning, source.file, source.line)


def requested(dtype: Any, operation: str) -> dt.DType:
    """The dtype that a user's request gives; warns where a 64-bit one gives a 32-bit one. Python's
    own types ask for no width.
    """
    found = dt.canonicalize(dtype)
    python = any(dtype is t for t in (float, int, complex, bool))
    if not python and np.dtype(dtype).itemsize > found.itemsize:
        _warn(f"{operation}: {np.dtype(dtype)} was asked for, {found} is made; {_REMEDY}")
    return found


def narrowed(x: NDArray, operation: str) -> NDArray:
    """A NumPy array in the dtype that lumjax gives it, as a copy. Raises ScalarRangeError for
    integers that do not fit.
    """
    dtype = dt.canonicalize(x.dtype)
    if dtype.itemsize == x.dtype.itemsize or not x.size:
        return copied(x, dtype)
    if dt.is_integer(dtype):
        info = np.iinfo(dtype)
        if x.min() < info.min or x.max() > info.max:
            raise ScalarRangeError(
                operation=operation,
                required=f"values that fit {dtype}",
                got=f"{x.dtype} values between {x.min()} and {x.max()}",
                fix='enable 64-bit types with config.update("enable_x64", True)',
            )
        return copied(x, dtype)
    with np.errstate(all="ignore"):
        out = copied(x, dtype)
    if config.warn_narrowing and not _said.is_set():
        _complain(x, out, operation)
    return out


def _complain(x: NDArray, out: NDArray, operation: str) -> None:
    lossy = (out.astype(x.dtype) != x) & ~np.isnan(x)
    if lossy.any():
        _said.set()
        value = x[tuple(np.argwhere(lossy)[0])] if x.ndim else x[()]
        _warn(
            f"{operation}: {x.dtype} input is rounded to {out.dtype}, {value!r} for one; {_REMEDY},"
            " and .astype(np.float32) says that this is meant. This is said once per process."
        )
