"""Values as NumPy sees them, and how far apart equal ones may be."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.trace.array import Array
from lumjax.trace.core import aval_of

NDArray: TypeAlias = np.ndarray[Any, Any]

# (rtol, atol) by dtype of the values compared.
TOLERANCE = {
    dt.bfloat16: (5e-2, 5e-2), dt.float16: (5e-3, 5e-3), dt.float32: (2e-5, 2e-5),
    dt.float64: (1e-10, 1e-10), dt.complex64: (2e-5, 2e-5), dt.complex128: (1e-10, 1e-10),
}  # fmt: skip


def to_numpy(x: Any) -> NDArray:
    """A leaf as an ndarray, 16-bit floats widened so that NumPy can compare them."""
    data = x.data if isinstance(x, Array) else np.asarray(x)
    return data.astype(np.float32) if data.dtype in (dt.bfloat16, dt.float16) else data


def to_raw(x: Any) -> NDArray:
    """A leaf as an ndarray of its own dtype."""
    return x.data if isinstance(x, Array) else np.asarray(x, aval_of(x).dtype)
