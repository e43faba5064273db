"""Arrays of devices for meshes; there is one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax.errors import ArgumentValueError
from lumjax.target import HOST


def create_device_mesh(mesh_shape: Sequence[int], devices: Any = None, **options: Any) -> Any:
    """The one device in an array of `mesh_shape`, whose sizes are 1.

    >>> create_device_mesh((1, 1)).shape
    (1, 1)
    """
    del options
    if int(np.prod(mesh_shape)) != 1:
        raise ArgumentValueError(
            operation="create_device_mesh",
            required="sizes whose product is 1, the number of devices",
            got=str(tuple(mesh_shape)),
            fix="use size 1 for every axis",
        )
    out = np.empty(tuple(mesh_shape), dtype=object)
    out.fill(devices[0] if devices is not None and len(devices) else HOST)
    return out


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int], devices: Any = None, **options: Any
) -> Any:
    """As create_device_mesh, for networks of hosts."""
    sizes = [a * b for a, b in zip(mesh_shape, dcn_mesh_shape, strict=True)]
    return create_device_mesh(sizes, devices, **options)
