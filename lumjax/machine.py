"""Where arrays live: this process's one CPU, under JAX's names for devices and processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax import tree
from lumjax.errors import ArgumentValueError
from lumjax.target import HOST, Place
from lumjax.trace.array import Array, Remote, stored


def devices(backend: str | None = None) -> list[Place]:
    """The devices that programs run on.

    >>> devices()
    [CpuDevice(id=0)]
    """
    if backend not in (None, "cpu"):
        raise ArgumentValueError(
            operation="devices",
            required="backend 'cpu'",
            got=repr(backend),
            fix="leave the backend out",
        )
    return [HOST]


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Place]:
    """The devices of this process."""
    del process_index, host_id
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """The number of devices: 1."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """The number of this process's devices: 1."""
    return len(devices(backend))


def process_index(backend: str | None = None) -> int:
    """The number of this process among those that compute together: 0."""
    del backend
    return 0


def process_count(backend: str | None = None) -> int:
    """How many processes compute together: 1."""
    del backend
    return 1


def default_backend() -> str:
    """The kind of device that programs run on by default."""
    return "cpu"


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """The leaves of `x` as arrays on the device.

    >>> import numpy as np
    >>> device_put({"a": np.ones(2, np.float32)})["a"]
    Array([1., 1.], dtype=float32)
    """
    del device, src, donate, may_alias
    return tree.map(jnp.asarray, x)


def device_get(x: Any) -> Any:
    """The leaves of `x` as NumPy arrays; traced values and other leaves as they are.

    >>> device_get([jnp.arange(2)])
    [array([0, 1], dtype=int32)]
    """
    return tree.map(lambda v: np.asarray(v) if isinstance(v, Array) else v, x)


def effects_barrier() -> None:
    """Wait for callbacks and prints: they have run by the time a function returns.

    >>> effects_barrier()
    """


def block_until_ready(x: Any) -> Any:
    """`x`, every array of it computed.

    >>> block_until_ready([jnp.arange(2)])
    [Array([0, 1], dtype=int32)]
    """
    for leaf in tree.leaves(x):
        if isinstance(leaf, Remote):
            stored(leaf).ready()
    return x
