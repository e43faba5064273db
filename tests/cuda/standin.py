"""As much of CuPy as is used, under its own names, with memory of the host: for tests of what is
copied, and where arrays lie. Kernels are run by the executor of their PTX. No GPU is asked.
"""

from __future__ import annotations

import contextlib
import ctypes
import types

import numpy as np

from lumjax.cuda import device
from lumjax.cuda.emulated import Processor
from lumjax.cuda.runtime import load


class Memory:
    """Memory of the pretended GPU."""

    def __init__(self, size):
        self.room = np.full(size + 512, 0xA5, np.uint8)
        self.ptr = -(-self.room.ctypes.data // 256) * 256


class Array:
    """cupy.ndarray."""

    def __init__(self, shape, dtype, memory, strides=None, stream=1, gpu=0, mask=None):
        self.shape, self.dtype, self.memory = tuple(shape), np.dtype(dtype), memory
        self.strides, self.stream, self.gpu, self.mask = strides, stream, gpu, mask

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.memory.ptr, False),
                "strides": self.strides, "version": 3, "stream": self.stream,
                **({"mask": self.mask} if self.mask else {})}  # fmt: skip

    def __dlpack_device__(self):
        return 2, self.gpu

    def __dlpack__(self, stream=None):
        return types.SimpleNamespace(array=self, stream=stream)

    def numpy(self):
        """Its elements."""
        view = (ctypes.c_char * max(1, np.empty(self.shape, self.dtype).nbytes)).from_address(
            self.memory.ptr
        )
        return np.ndarray(self.shape, self.dtype, view, 0, self.strides)


class OnlyDLPack:
    """An array of a library that has no other interface."""

    def __init__(self, array, kind=2):
        self.array, self.kind = array, kind

    def __dlpack_device__(self):
        return self.kind, self.array.gpu

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream)


class Stream:
    """cupy.cuda.Stream."""

    def __init__(self, log, ptr):
        self.log, self.ptr = log, ptr

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None

    def begin_capture(self, mode):
        self.log.append(("begin", mode))

    def end_capture(self):
        self.log.append(("end",))

    def synchronize(self):
        self.log.append(("synchronize",))

    def wait_event(self, event):
        self.log.append(("order", event.stream, self.ptr))


class Event:
    """cupy.cuda.Event."""

    def __init__(self, disable_timing):
        assert disable_timing

    def record(self, stream):
        self.stream = stream.ptr


class Module(types.SimpleNamespace):
    """The package."""

    def __init__(self):
        self.log = log = []
        attributes = {"ComputeCapabilityMajor": 9, "ComputeCapabilityMinor": 0,
                      "L2CacheSize": 60 << 20, "MultiProcessorCount": 132,
                      "MaxSharedMemoryPerMultiprocessor": 228 << 10,
                      "MaxThreadsPerMultiProcessor": 2048, "MaxBlocksPerMultiprocessor": 32,
                      "MaxSharedMemoryPerBlockOptin": 227 << 10,
                      "MaxRegistersPerMultiprocessor": 1 << 16, "CooperativeLaunch": 1}  # fmt: skip
        runtime = types.SimpleNamespace(
            memcpyDefault=4, streamCaptureModeThreadLocal=1, getDeviceCount=lambda: 2,
            memGetInfo=lambda: (7, 11), memcpyAsync=self.copy,
            memsetAsync=lambda target, value, size, stream: ctypes.memset(target, value, size),
        )  # fmt: skip
        cuda = types.SimpleNamespace(
            runtime=runtime, Stream=lambda non_blocking: Stream(log, 77), Event=Event,
            ExternalStream=lambda ptr: Stream(log, ptr), alloc=Memory,
            UnownedMemory=lambda ptr, size, owner: types.SimpleNamespace(ptr=ptr, owner=owner),
            MemoryPointer=lambda memory, offset: memory,
            Device=lambda k: types.SimpleNamespace(use=lambda: None, attributes=attributes, id=k),
            memory=types.SimpleNamespace(OutOfMemoryError=MemoryError),
        )  # fmt: skip
        super().__init__(
            log=log, cuda=cuda, ndarray=Array, int64=np.int64, __version__="14.2.0",
            asarray=lambda x: x, from_dlpack=self.from_dlpack,
            ascontiguousarray=self.dense,
        )  # fmt: skip

    def copy(self, target, source, size, kind, stream):
        self.log.append(("copy", target, source, size))
        ctypes.memmove(target, source, size)

    def from_dlpack(self, value):
        capsule = value.__dlpack__(stream=77)
        assert capsule.stream == 77
        return capsule.array

    def dense(self, value, dtype):
        self.log.append(("dense",))
        return self.array(np.ascontiguousarray(value.numpy(), dtype))

    def array(self, values, **more):
        """What the user has on the GPU."""
        values = np.ascontiguousarray(values)
        memory = Memory(values.nbytes)
        ctypes.memmove(memory.ptr, values.ctypes.data, values.nbytes)
        return Array(values.shape, values.dtype, memory, **more)


class Gpu(device.Cupy):
    """The device that drives CuPy, but for machine code, which the CPU can't run; graphs are lists
    of what was asked for.
    """

    def __init__(self):
        super().__init__()
        self.processor = Processor()

    def load(self, text, names, together=False):
        made = load(text)
        return [made[n] for n in names]

    def tensor_map(self, of, address):
        return self.processor.tensor_map(of, address)

    def launch(self, function, blocks, table):
        self.processor.launch(function, blocks, table)

    def multiply(self, call, addresses):
        self.processor._do(lambda: device.Cupy.multiply(self, call, addresses))

    def capture(self, work):
        return self.processor.capture(work)


@contextlib.contextmanager
def installed(monkeypatch):
    """The package in CuPy's place, and the device that drives it."""
    module = Module()
    found = types.SimpleNamespace(import_module=lambda name: module)
    monkeypatch.setattr(device, "importlib", found)
    device.cupy.cache_clear()
    gpu = Gpu()
    monkeypatch.setattr(device, "current", lambda: gpu)
    yield module
    device.cupy.cache_clear()
