"""What the Array API standard lets programs ask of the namespace."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.numpy.standard import isdtype
from lumjax.target import HOST, Place

__array_api_version__ = "2024.12"

_NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_DEFAULTS = {
    "real floating": np.float64,
    "complex floating": np.complex128,
    "integral": np.int64,
    "indexing": np.int64,
}


class ArrayNamespaceInfo:
    """What `__array_namespace_info__()` returns."""

    def capabilities(self) -> dict[str, Any]:
        """What depends on values: nothing, so that it holds inside of jit too."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> Place | None:
        """None: where arrays lie is for JAX's settings to say, which have one answer here."""
        return None

    def devices(self) -> list[Place | None]:
        """The devices that arrays can be on."""
        return [None, HOST]

    def default_dtypes(self, *, device: Any = None) -> dict[str, dt.DType]:
        """The dtypes that creation functions choose.

        >>> ArrayNamespaceInfo().default_dtypes()["integral"]
        dtype('int32')
        """
        del device
        return {kind: dt.canonicalize(dtype) for kind, dtype in _DEFAULTS.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, dt.DType]:
        """The standard's dtypes that exist now (64-bit ones under x64), of a kind as in isdtype.

        >>> list(ArrayNamespaceInfo().dtypes(kind="real floating"))
        ['float32']
        """
        del device
        found = {n: np.dtype(n) for n in _NAMES if dt.canonicalize(n) == np.dtype(n)}
        return found if kind is None else {n: d for n, d in found.items() if isdtype(d, kind)}


def __array_namespace_info__() -> ArrayNamespaceInfo:  # noqa: N807
    """The standard's inspection of this namespace."""
    return ArrayNamespaceInfo()
