"""Arrays that lie on a device."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax.aligned import address_of
from lumjax.cpu import arena
from lumjax.cuda.device import Device, Lent
from lumjax.dtype import DType
from lumjax.trace.array import Array, remote, stored
from lumjax.trace.aval import ShapedArray

NDArray: TypeAlias = np.ndarray[Any, Any]
lock = threading.RLock()  # one stream: what belongs together is asked for together


class Buffer:
    """The elements of an array on a device; `owner` keeps their memory."""

    __slots__ = ("__weakref__", "_host", "base", "device", "dtype", "owner", "ptr", "shape")

    def __init__(
        self,
        device: Device,
        owner: Any,
        shape: Sequence[int],
        dtype: DType,
        host: NDArray | None = None,
    ) -> None:
        self.device, self.owner, self.ptr = device, owner, int(owner.ptr)
        self.shape, self.dtype = tuple(shape), dtype
        self.base = owner.owner if isinstance(owner, Lent) else None  # as of a NumPy array
        self._host = host

    def host(self) -> NDArray:
        """The elements, copied when they are first asked for."""
        if self._host is None:
            found = arena.empty(self.shape, self.dtype)
            with lock:
                if found.nbytes:
                    self.device.copy(address_of(found), self.ptr, found.nbytes)
                self.device.wait()
            self._host = found
        return self._host

    def ready(self) -> None:
        """Wait until they are computed."""
        with lock:
            self.device.wait()

    def interface(self) -> dict[str, Any]:
        """Where they are, for other libraries."""
        return self.device.interface(self)

    def exported(self, stream: Any, max_version: Any) -> Any:
        """A capsule of DLPack that shares the memory."""
        return self.device.exported(self, stream, max_version)

    def place(self) -> tuple[int, int]:
        """DLPack's name of the device."""
        return self.device.place()

    def viewed(self, shape: Sequence[int], dtype: DType) -> Buffer:
        """The same memory as elements of another dtype."""
        host = None if self._host is None else self._host.view(dtype).reshape(shape)
        return Buffer(self.device, self.owner, shape, dtype, host)

    def array(self, weak: bool = False) -> Array:
        """An array of these elements."""
        return remote(self, ShapedArray(self.shape, self.dtype, weak))


def fresh(device: Device, shape: Sequence[int], dtype: DType) -> Buffer:
    """Room for an array."""
    size = dtype.itemsize * math.prod(shape)
    return Buffer(device, device.alloc(size), shape, dtype)


def upload(device: Device, data: NDArray) -> Buffer:
    """A copy of a dense array of the host."""
    made = Buffer(device, device.alloc(data.nbytes), data.shape, data.dtype, data)
    if data.nbytes:
        with lock:
            device.keep(data)
            device.copy(made.ptr, address_of(data), data.nbytes)
    return made


def copied(buffer: Buffer) -> Buffer:
    """A copy on the device."""
    made = fresh(buffer.device, buffer.shape, buffer.dtype)
    size = buffer.dtype.itemsize * math.prod(buffer.shape)
    if size:
        with lock:
            buffer.device.copy(made.ptr, buffer.ptr, size)
    return made


def buffer_of(value: Any, device: Device) -> Buffer | None:
    """What a value has on the device; None if it isn't there."""
    if isinstance(value, Array):
        found = stored(value)
        if isinstance(found, Buffer) and found.device is device:
            return found
    return None
