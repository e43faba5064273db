"""What code is compiled for, and the nine-method seam behind which a device runs it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from lumjax.record import record


class Backend(Enum):
    """The kinds of device."""

    CPU = "cpu"
    CUDA = "cuda"


@record
class Target:
    """A machine as the compiler sees it. Sizes are bytes; `vector_bytes` is the widest vector
    register.
    """

    backend: Backend
    arch: str  # CPU name as LLVM spells it, or sm_XY
    features: str  # LLVM feature string
    vector_bytes: int
    vector_registers: int
    cores: int
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 16 << 20

    @property
    def key(self) -> str:
        """What a plan or object made for this target depends on."""
        return f"{self.backend.value}:{self.arch}:{self.features}:{self.vector_bytes}"

    def lanes(self, itemsize: int) -> int:
        """How many elements of `itemsize` bytes one vector register holds."""
        return max(1, self.vector_bytes // itemsize)


@record
class Place:
    """Where an array lives, as users see it; its attributes are those of jax.Device."""

    platform: str
    id: int = 0
    device_kind: str = "cpu"
    process_index: int = 0

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"


HOST = Place("cpu")


class Device(Protocol):
    """The seam: what the runtime asks of a CPU or a GPU."""

    def info(self) -> Target:
        """The device as a target."""
        ...

    def load(self, binary: bytes, names: Sequence[str]) -> dict[str, int]:
        """Load compiled code; the address of each named function."""
        ...

    def alloc(self, size: int) -> Any:
        """A buffer of `size` bytes."""
        ...

    def copy(self, destination: Any, source: Any, size: int) -> None:
        """Copy bytes, either way between host and device or within it."""
        ...

    def fill(self, destination: Any, value: int, size: int) -> None:
        """Set bytes."""
        ...

    def launch(self, program: Any, table: Any) -> None:
        """Run a prepared program on a table of addresses and sizes."""
        ...

    def stream(self) -> Any:
        """A queue of work in order."""
        ...

    def event(self) -> Any:
        """A point in a stream that can be waited for."""
        ...

    def capture(self, work: Any) -> Any:
        """Record work for replay."""
        ...
