"""jax.dlpack: arrays from other libraries."""

from __future__ import annotations

from typing import Any

from lumjax.numpy import files


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
    """An array of another library that offers __dlpack__: a copy of it; of one on a GPU, unless
    `copy`, an array that shares its memory, which nobody may change any more.

    >>> import numpy as np
    >>> from_dlpack(np.array([1.0, 2.0], np.float32)).tolist()
    [1.0, 2.0]
    """
    return files.from_dlpack(external_array, device=device, copy=copy)
