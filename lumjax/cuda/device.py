"""A GPU behind the seam: nine methods, here by CuPy. Nothing else knows CuPy.

CuPy allocates, copies, launches and captures; the machine code is NVRTC's, by our own call of it,
loaded from a file. None of this has run on a GPU: its callers are tested on a device that only
pretends to be one.
"""

from __future__ import annotations

import hashlib
import importlib
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from lumjax.cuda import nvrtc
from lumjax.errors import LumjaxError, UnsupportedError
from lumjax.record import record
from lumjax.target import Backend, Target

STATIC = 48 << 10  # bytes of shared memory that a launch may add without being allowed to
_NEWEST = {9: "sm_90a", 8: "sm_80"}  # by major compute capability: what kernels are compiled for


class DeviceError(LumjaxError, RuntimeError):
    """The device refused something."""


@record
class Function:
    """A kernel on the device: a handle of its own, and how it is launched."""

    handle: Any
    threads: int
    shared: int


class Device(Protocol):
    """What the runtime asks of a GPU. Work goes to one stream, in order; only `wait`, and a copy to
    the host, wait for it.
    """

    def info(self) -> Target:
        """The device as a target."""
        ...

    def load(self, text: str, names: Sequence[str]) -> list[Any]:
        """Compile CUDA C and load it: a handle for each kernel."""
        ...

    def alloc(self, size: int) -> Any:
        """Memory, with its address as `ptr`; it is freed with the object."""
        ...

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes, either way between host and device or within it. What the host has may be
        used again when `wait` returns.
        """
        ...

    def fill(self, target: int, value: int, size: int) -> None:
        """Set bytes."""
        ...

    def launch(self, function: Function, blocks: int, table: int) -> None:
        """Run a kernel on its part of the parameter block."""
        ...

    def wait(self) -> None:
        """Wait until all is done."""
        ...

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record what `work` asks for and do not do it. What is returned does it, each time."""
        ...

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and all bytes."""
        ...


def cupy_package() -> Any:
    """The CuPy package.

    Raises UnsupportedError that says what to install.
    """
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise _lacking("CuPy", str(error), "run pip install 'lumjax[cuda]' (CUDA 13) or "
                       "'lumjax[cuda12]', or use backend='cuda:emulated'") from error  # fmt: skip


@cache
def cupy() -> Any:
    """CuPy, with a driver and a GPU.

    Raises UnsupportedError that says what is missing.
    """
    found = cupy_package()
    try:
        count = int(found.cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy's own kinds, which differ between versions
        raise _lacking("NVIDIA's driver and a GPU", f"{type(error).__name__}: {error}",
                       "install the driver, or use backend='cuda:emulated'") from error  # fmt: skip
    if count == 0:
        raise _lacking("a GPU", "a driver that finds none",
                       "look at CUDA_VISIBLE_DEVICES, or use backend='cuda:emulated'")  # fmt: skip
    return found


def _lacking(required: str, got: str, fix: str) -> UnsupportedError:
    return UnsupportedError(
        operation="compiling for backend 'cuda'", required=required, got=got, fix=fix
    )


class Cupy:
    """The first GPU that CuPy finds."""

    def __init__(self) -> None:
        self._cupy = cupy()
        self._device = self._cupy.cuda.Device(0)
        self._device.use()
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._attributes = self._device.attributes
        self._folder = Path(tempfile.mkdtemp(prefix="lumjax-"))
        self._allowed: set[int] = set()

    def info(self) -> Target:
        """The device as a target."""
        a = self._attributes
        shared, cache_ = a["MaxSharedMemoryPerMultiprocessor"], a["L2CacheSize"]
        units = int(a["MultiProcessorCount"])
        return Target(Backend.CUDA, self.arch, "", 64, 32, 2 * units, 32 << 10, shared, cache_)

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability."""
        major, minor = (self._attributes[f"ComputeCapability{p}"] for p in ("Major", "Minor"))
        return int(major), int(minor)

    @property
    def arch(self) -> str:
        """The architecture to compile for."""
        major, minor = self.capability
        if major < min(_NEWEST):
            raise _lacking("compute capability 8.0 or later", f"{major}.{minor}", "use another GPU")
        return _NEWEST.get(major, f"sm_{major}{minor}")

    def load(self, text: str, names: Sequence[str]) -> list[Any]:
        """Compile CUDA C and load it."""
        made = nvrtc.cubin(text, self.arch)
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}.cubin"
        path.write_bytes(made.code)
        module = self._cupy.RawModule(path=str(path))
        return [module.get_function(name) for name in names]

    def alloc(self, size: int) -> Any:
        """Memory."""
        try:
            return self._cupy.cuda.alloc(max(1, size))
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            free, total = self.memory()
            raise DeviceError(
                operation="allocating memory on the GPU",
                required=f"{size:,} bytes",
                got=f"{free:,} of {total:,} bytes free",
                fix="make the arrays smaller, wrap parts in lumjax.checkpoint, or give memory=",
            ) from error

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes."""
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(target, source, size, runtime.memcpyDefault, self._stream.ptr)

    def fill(self, target: int, value: int, size: int) -> None:
        """Set bytes."""
        self._cupy.cuda.runtime.memsetAsync(target, value, size, self._stream.ptr)

    def launch(self, function: Function, blocks: int, table: int) -> None:
        """Run a kernel."""
        kernel = function.handle
        if function.shared > STATIC and id(kernel) not in self._allowed:
            kernel.max_dynamic_shared_size_bytes = function.shared
            self._allowed.add(id(kernel))
        args = (self._cupy.int64(table),)
        kernel((blocks,), (function.threads,), args, shared_mem=function.shared,
               stream=self._stream)  # fmt: skip

    def wait(self) -> None:
        """Wait until all is done."""
        self._stream.synchronize()

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work as a CUDA graph. An allocation while it is recorded is an error."""
        with self._stream:
            self._stream.begin_capture(self._cupy.cuda.runtime.streamCaptureModeThreadLocal)
            try:
                work()
            finally:
                graph = self._stream.end_capture()
        return lambda: graph.launch(self._stream)

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and all bytes."""
        free, total = self._cupy.cuda.runtime.memGetInfo()
        return int(free), int(total)


@cache
def current() -> Device:
    """The device of this process.

    Raises UnsupportedError where CuPy, the driver or a GPU is missing.
    """
    return Cupy()
