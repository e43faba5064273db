"""A GPU behind the seam, here by CuPy. Nothing else knows CuPy.

CuPy allocates, copies, launches and captures; the machine code is NVRTC's, by our own call of it,
loaded from a file. None of this has run on a GPU: its callers are tested on the CPU as a device
(`emulated.py`), and on one that does nothing until somebody waits.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lumjax.cuda import maps, nvrtc
from lumjax.cuda.blas import WORKSPACE, Blas, library
from lumjax.cuda.library import Call
from lumjax.cuda.occupancy import Card
from lumjax.cuda.persistent import Persistent
from lumjax.dtype import DType, canonicalize
from lumjax.errors import ArgumentTypeError, LumjaxError, UnsupportedError
from lumjax.kernel.ir import Kernel
from lumjax.record import record
from lumjax.target import Backend, Target

STATIC = 48 << 10  # bytes of shared memory that a launch may add without being allowed to
_NEWEST = {9: "sm_90a", 8: "sm_80"}  # by major compute capability: what kernels are compiled for
_MOST_KEPT = 256  # things held until somebody waits
_SHOWN = 12  # kernels that an error lists
_CUDA, _MANAGED = 2, 13  # DLPack's kinds of device


class DeviceError(LumjaxError, RuntimeError):
    """The device refused something. `step` is the number of the step that asked for it."""

    step: int = -1


@record(eq=False)
class Function:
    """A phase of a kernel on the device: a handle of its own, and how it is launched. `parameters`:
    bytes of the kernel's part of the parameter block. `loop`: the loop that it is, whose blocks
    must all be there at once.
    """

    handle: Any
    threads: int
    shared: int
    name: str
    kernel: Kernel
    phase: int
    parameters: int
    loop: Persistent | None = None


class Held(Protocol):
    """An array on a device."""

    ptr: int
    shape: tuple[int, ...]
    dtype: DType

    def host(self) -> Any:
        """Its elements."""
        ...


@record(eq=False)
class Lent:
    """Memory of another library: its address, what keeps it, the stream on which that works."""

    ptr: int
    owner: Any
    stream: int | None
    shape: tuple[int, ...]
    dtype: DType


class Device(Protocol):
    """What the runtime asks of a GPU. Work goes to one stream, in order; only `wait`, and a copy to
    the host, wait for it.
    """

    def info(self) -> Target:
        """The device as a target."""
        ...

    def card(self) -> Card | None:
        """What its units have; None if it can't start all blocks of a kernel at once."""
        ...

    def load(self, text: str, names: Sequence[str], together: bool = False) -> list[Any]:
        """Compile CUDA C and load it: a handle for each kernel, whose blocks start `together`."""
        ...

    def alloc(self, size: int) -> Any:
        """Memory, with its address as `ptr`; it is freed with the object, and given out again for
        what is asked for later.
        """
        ...

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes, either way between host and device or within it. What the host has may be
        used again when `wait` returns.
        """
        ...

    def fill(self, target: int, value: int, size: int) -> None:
        """Set bytes."""
        ...

    def tensor_map(self, of: maps.Numbers, address: int) -> bytes:
        """What kernels are told of a tensor in a buffer at an address."""
        ...

    def launch(self, function: Function, blocks: int, table: int) -> None:
        """Run a kernel on its part of the parameter block."""
        ...

    def multiplies(self) -> bool:
        """Whether it has a library for products."""
        ...

    def multiply(self, call: Call, addresses: Sequence[int]) -> None:
        """A product of the library's, on the buffers of its sides and of its result."""
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

    def keep(self, held: Any) -> None:
        """Hold something until all that was asked for is done."""
        ...

    # For other libraries:

    def place(self) -> tuple[int, int]:
        """DLPack's name of the device."""
        ...

    def interface(self, memory: Held) -> dict[str, Any]:
        """`__cuda_array_interface__`; AttributeError if it is no GPU."""
        ...

    def exported(self, memory: Held, stream: Any, max_version: Any) -> Any:
        """A capsule of DLPack that shares the memory, for work on that stream."""
        ...

    def adopted(self, value: Any) -> Lent:
        """The memory of another library's array, for work that is asked for from now on."""
        ...

    def returned(self, lent: Lent) -> None:
        """What was asked for is all that is done with another library's memory."""
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
        self._kept: list[Any] = []
        self._blas: Blas | None = None
        self._workspace: Any = None

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

    def card(self) -> Card | None:
        """The device as the driver describes it."""
        a = self._attributes
        if not a.get("CooperativeLaunch"):
            return None
        return Card(
            "the GPU", self.arch, int(a["MultiProcessorCount"]),
            int(a["MaxThreadsPerMultiProcessor"]), int(a.get("MaxBlocksPerMultiprocessor", 16)),
            int(a["MaxSharedMemoryPerMultiprocessor"]), int(a["MaxSharedMemoryPerBlockOptin"]),
            int(a["MaxRegistersPerMultiprocessor"]),
        )  # fmt: skip

    def load(self, text: str, names: Sequence[str], together: bool = False) -> list[Any]:
        """Compile CUDA C and load it. The driver refuses a launch whose blocks can't all be there
        if they are to start together.
        """
        made = nvrtc.cubin(text, self.arch)
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}.cubin"
        path.write_bytes(made.code)
        more = {"enable_cooperative_groups": True} if together else {}
        module = self._cupy.RawModule(path=str(path), **more)
        return [module.get_function(name) for name in names]

    def alloc(self, size: int) -> Any:
        """Memory of this stream: what is freed here is given out again here only, in order."""
        try:
            with self._stream:
                return self._cupy.cuda.alloc(max(1, size))
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            raise out_of_memory(size, self.memory()) from error

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes."""
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(target, source, size, runtime.memcpyDefault, self._stream.ptr)

    def fill(self, target: int, value: int, size: int) -> None:
        """Set bytes."""
        self._cupy.cuda.runtime.memsetAsync(target, value, size, self._stream.ptr)

    def tensor_map(self, of: maps.Numbers, address: int) -> bytes:
        """The driver's form."""
        return maps.driver(of, address)

    def launch(self, function: Function, blocks: int, table: int) -> None:
        """Run a kernel."""
        kernel = function.handle
        try:
            if function.shared > STATIC and id(kernel) not in self._allowed:
                kernel.max_dynamic_shared_size_bytes = function.shared
                self._allowed.add(id(kernel))
            kernel((blocks,), (function.threads,), (self._cupy.int64(table),),
                   shared_mem=function.shared, stream=self._stream)  # fmt: skip
        except Exception as error:  # CuPy's own kinds
            raise refused(function, blocks, error) from error

    def multiplies(self) -> bool:
        """Whether cuBLAS is there."""
        if self._blas is None:
            try:
                found = library()
            except UnsupportedError:
                return False
            self._workspace = self.alloc(WORKSPACE)
            self._blas = Blas(found, int(self._stream.ptr), int(self._workspace.ptr))
        return True

    def multiply(self, call: Call, addresses: Sequence[int]) -> None:
        """A product of cuBLAS's. It is told addresses: a graph holds for these alone."""
        assert self._blas is not None, "asked before"
        try:
            self._blas.multiply(call, addresses)
        except RuntimeError as error:
            raise DeviceError(
                operation="multiplying with cuBLAS", required="a product that it can do",
                got=f"{error} for {call}", fix="turn cuda_library_gemm off, and report it as a bug",
            ) from error  # fmt: skip

    def wait(self) -> None:
        """Wait until all is done."""
        try:
            self._stream.synchronize()
        except Exception as error:  # CuPy's own kinds
            raise failed(self._kept, error) from error
        self._kept.clear()

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work as a CUDA graph. An allocation while it is recorded is an error."""
        with self._stream:
            self._stream.begin_capture(self._cupy.cuda.runtime.streamCaptureModeThreadLocal)
            try:
                work()
            except BaseException:
                with suppress(Exception):  # the work's own error is the one to tell
                    self._stream.end_capture()
                raise
            graph = self._stream.end_capture()
        return lambda: graph.launch(self._stream)

    def keep(self, held: Any) -> None:
        """Hold something until somebody waits, which is now if much is held."""
        self._kept.append(held)
        if len(self._kept) > _MOST_KEPT:
            self.wait()

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and all bytes."""
        free, total = self._cupy.cuda.runtime.memGetInfo()
        return int(free), int(total)

    # ---- other libraries

    def place(self) -> tuple[int, int]:
        """A GPU: the first one."""
        return _CUDA, int(self._device.id)

    def interface(self, memory: Held) -> dict[str, Any]:
        """The memory, for work that waits for this stream."""
        return {
            "shape": memory.shape, "typestr": _typestr(memory.dtype), "data": (memory.ptr, False),
            "strides": None, "version": 3, "stream": int(self._stream.ptr),
        }  # fmt: skip

    def exported(self, memory: Held, stream: Any, max_version: Any) -> Any:
        """CuPy's capsule: it orders the streams."""
        del max_version  # CuPy's are of the first version, which everybody reads
        _typestr(memory.dtype)
        size = max(1, math.prod(memory.shape) * memory.dtype.itemsize)
        lent = self._cupy.cuda.UnownedMemory(memory.ptr, size, memory)
        with self._stream:
            array = self._cupy.ndarray(
                memory.shape, memory.dtype, self._cupy.cuda.MemoryPointer(lent, 0)
            )
            return array.__dlpack__(stream=stream)

    def adopted(self, value: Any) -> Lent:
        """The memory of another library's array on this GPU. What is not dense, or of a dtype that
        is narrowed, is copied on the GPU.

        Raises ArgumentTypeError for an array on another device, or with a mask.
        """
        self._check_place(value)
        if not hasattr(value, "__cuda_array_interface__"):
            with self._stream:
                value = self._cupy.from_dlpack(value)
        found = value.__cuda_array_interface__
        if found.get("mask") is not None:
            raise _foreign("an array without a mask", "one with a mask", "fill what is masked")
        stream = found.get("stream")
        if stream is not None:
            self.order(int(stream), int(self._stream.ptr))
        dtype = np.dtype(found["typestr"])
        wanted = canonicalize(dtype)
        if found.get("strides") is not None or wanted != dtype:
            with self._stream:
                value = self._cupy.ascontiguousarray(self._cupy.asarray(value), dtype=wanted)
            found, stream = value.__cuda_array_interface__, None
        return Lent(int(found["data"][0]), value, stream, tuple(found["shape"]), wanted)

    def _check_place(self, value: Any) -> None:
        if hasattr(value, "__dlpack_device__"):
            kind, number = map(int, value.__dlpack_device__())
            if (kind, number) not in (self.place(), (_MANAGED, number)):
                name = {_CUDA: f"GPU {number}"}.get(kind, f"DLPack's device {kind}, {number}")
                fix = f"copy it to GPU {self.place()[1]} first, or to the host"
                raise _foreign(f"an array on GPU {self.place()[1]}", f"one on {name}", fix)

    def order(self, first: int, then: int) -> None:
        """What is asked of one stream from now on waits for what was asked of another."""
        cuda = self._cupy.cuda
        event = cuda.Event(disable_timing=True)
        event.record(cuda.ExternalStream(first))
        cuda.ExternalStream(then).wait_event(event)

    def returned(self, lent: Lent) -> None:
        """Its owner may change the memory when what was asked for is done."""
        self.keep(lent)
        if lent.stream is not None:
            self.order(int(self._stream.ptr), lent.stream)


def _foreign(required: str, got: str, fix: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        operation="taking an array of another library", required=required, got=got, fix=fix
    )


def _typestr(dtype: DType) -> str:
    """A dtype as interfaces spell it.

    Raises AttributeError, as for an array without the interface, where they have no word for it.
    """
    if dtype.isbuiltin != 1:
        raise AttributeError(f"the interface knows no {dtype}: view it as uint16 or uint8")
    return dtype.str


def out_of_memory(size: int, memory: tuple[int, int]) -> DeviceError:
    """The error for memory that is not there."""
    free, total = memory
    return DeviceError(
        operation="allocating memory on the GPU",
        required=f"{size:,} bytes",
        got=f"{free:,} of {total:,} bytes free",
        fix="make the arrays smaller, wrap parts in lumjax.checkpoint, or give memory=",
    )


def refused(function: Function, blocks: int, error: Exception) -> DeviceError:
    """The error for a kernel that could not be launched."""
    return DeviceError(
        operation=f"launching {function.name}",
        required=f"{blocks} blocks of {function.threads} threads with {function.shared:,} more "
        "bytes of shared memory",
        got=f"{type(error).__name__}: {error}",
        fix="please report this as a bug, with the program and the GPU",
    )


def failed(running: Sequence[Any], error: Exception) -> DeviceError:
    """The error for work that went wrong while nobody looked; rows of launches tell what ran."""
    rows = [x for x in running if isinstance(x, tuple)]
    names = list(dict.fromkeys(str(launched.function.name) for row in rows for launched in row))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return DeviceError(
        operation="waiting for the GPU",
        required="kernels that end well",
        got=f"{type(error).__name__}: {error}; since the last wait ran: "
        + (", ".join(names[:_SHOWN]) + more or "nothing of lumjax"),
        fix="set CUDA_LAUNCH_BLOCKING=1 to learn which kernel it was, and report it as a bug; the "
        "GPU's context is lost: begin a new process",
    )


@cache
def current() -> Device:
    """The device of this process.

    Raises UnsupportedError where CuPy, the driver or a GPU is missing.
    """
    return Cupy()
