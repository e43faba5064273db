"""jax.sharding on one device: partition specs, meshes and shardings are data that change nothing.

>>> mesh = Mesh(np.array([HOST]), ("data",))
>>> NamedSharding(mesh, PartitionSpec("data")).spec
P('data',)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import numpy as np

from lumjax.errors import ArgumentValueError
from lumjax.record import record
from lumjax.target import HOST, Place

Device = Place


class AxisType(Enum):
    """Who decides how an axis is split: the compiler, the types, or the program."""

    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"


class _Unconstrained:
    def __repr__(self) -> str:
        return "UNCONSTRAINED"


class PartitionSpec(tuple[Any, ...]):
    """Which mesh axes split which axes of an array: a tuple of names, tuples of names, and None.

    >>> PartitionSpec("data", None)[0]
    'data'
    """

    UNCONSTRAINED = _Unconstrained()
    __slots__ = ()

    def __new__(
        cls, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset()
    ) -> PartitionSpec:
        """The spec with one entry for each leading axis of the array."""
        del unreduced, reduced
        return super().__new__(cls, partitions)

    def __repr__(self) -> str:
        return f"P{tuple(self)!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionSpec, tuple(self)


P = PartitionSpec


class AbstractMesh:
    """Sizes and names of mesh axes without devices."""

    def __init__(
        self, axis_sizes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None
    ) -> None:
        self.axis_sizes = tuple(axis_sizes)
        self.axis_names = tuple(axis_names)
        self.axis_types = axis_types or (AxisType.Auto,) * len(self.axis_names)

    @property
    def shape(self) -> OrderedDict[str, int]:
        """The size of each axis, by name."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def empty(self) -> bool:
        """Whether there is no axis."""
        return not self.axis_names

    @property
    def size(self) -> int:
        """The number of devices."""
        return int(np.prod(self.axis_sizes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractMesh) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.axis_sizes, self.axis_names))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.shape)})"


_entered: list[AbstractMesh] = []


class Mesh(AbstractMesh):
    """An array of devices with a name for each of its axes; a context manager.

    Raises ArgumentValueError for more than one device: this process has one.

    >>> Mesh(np.array([[HOST]]), ("data", "model")).shape["model"]
    1
    """

    def __init__(self, devices: Any, axis_names: Any = (), axis_types: Any = None) -> None:
        found = np.asarray(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if found.ndim != len(names) or found.size > 1:
            raise ArgumentValueError(
                operation="sharding.Mesh",
                required="one device, in an array with an axis for each name",
                got=f"devices of shape {found.shape} and names {names}",
                fix="use np.array(lumjax.devices()).reshape((1,) * len(names))",
            )
        super().__init__(found.shape, names, axis_types)
        self.devices = found

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    @property
    def device_ids(self) -> Any:
        """The devices' numbers, in their places."""
        return np.vectorize(lambda d: d.id, otypes=[int])(self.devices)

    @property
    def local_mesh(self) -> Mesh:
        """The part of the mesh in this process: all of it."""
        return self

    def __enter__(self) -> Mesh:
        _entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _entered.pop()


class Sharding:
    """How an array lies on devices: here always whole on one."""

    @property
    def device_set(self) -> set[Place]:
        """The devices that hold parts of the array."""
        return {HOST}

    @property
    def addressable_devices(self) -> set[Place]:
        """The devices of this process among them."""
        return {HOST}

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        return True

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process holds the whole array."""
        return True

    @property
    def memory_kind(self) -> str:
        """Where on the device it lies."""
        return "device"

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of one device's part: the whole."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Place, tuple[slice, ...]]:
        """The part of the array on each device."""
        return {HOST: (slice(None),) * len(global_shape)}

    addressable_devices_indices_map = devices_indices_map


@record
class NamedSharding(Sharding):
    """A mesh and a partition spec."""

    mesh: AbstractMesh
    spec: PartitionSpec = PartitionSpec()
    memory: str | None = None

    def __post_init__(self) -> None:
        names = {n for part in self.spec for n in (part if isinstance(part, tuple) else (part,))}
        strange = {n for n in names if isinstance(n, str)} - set(self.mesh.axis_names)
        if strange:
            raise ArgumentValueError(
                operation="NamedSharding",
                required=f"axes of the mesh, {self.mesh.axis_names}",
                got=f"the spec {self.spec!r}",
                fix="name axes of the mesh, or None",
            )

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """The same sharding in another memory."""
        return NamedSharding(self.mesh, self.spec, kind)

    def update(self, **changes: Any) -> NamedSharding:
        """The same sharding with another mesh or spec."""
        return NamedSharding(changes.get("mesh", self.mesh), changes.get("spec", self.spec))


@record
class SingleDeviceSharding(Sharding):
    """The whole array on one device."""

    device: Place = HOST
    memory: str | None = None


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[str],
    axis_types: Any = None,
    *,
    devices: Sequence[Place] | None = None,
) -> Mesh:
    """A mesh of the given sizes, which are 1.

    >>> make_mesh((1,), ("data",)).axis_names
    ('data',)
    """
    chosen = np.empty(1, dtype=object)
    chosen[0] = devices[0] if devices else HOST
    if int(np.prod(axis_shapes)) != 1:
        raise ArgumentValueError(
            operation="make_mesh", required="sizes whose product is 1, the number of devices",
            got=str(tuple(axis_shapes)), fix="use size 1 for every axis",
        )  # fmt: skip
    return Mesh(chosen.reshape(tuple(axis_shapes)), axis_names, axis_types)


@contextmanager
def set_mesh(mesh: AbstractMesh) -> Generator[AbstractMesh]:
    """Make a mesh the current one inside the block."""
    _entered.append(mesh)
    try:
        yield mesh
    finally:
        _entered.pop()


use_mesh = set_mesh


def get_abstract_mesh() -> AbstractMesh:
    """The current mesh without its devices; empty outside of any."""
    found = _entered[-1] if _entered else AbstractMesh((), ())
    return AbstractMesh(found.axis_sizes, found.axis_names, found.axis_types)


def get_mesh() -> AbstractMesh:
    """The current mesh; empty outside of any."""
    return _entered[-1] if _entered else AbstractMesh((), ())


def reshard(xs: Any, out_shardings: Any) -> Any:
    """`xs`: there is one device."""
    del out_shardings
    return xs


def auto_axes(f: Callable[..., Any] | None = None, **_: Any) -> Any:
    """`f`: nothing is split. Also a decorator with arguments."""
    return f if f is not None else (lambda g: g)


explicit_axes = auto_axes
