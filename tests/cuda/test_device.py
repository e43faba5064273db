"""The host's side of a GPU: on a device that pretends to be one, with memory of its own, work that
is done only when somebody waits, and kernels run by the executor of their PTX. No GPU is asked.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import pickle
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.cuda import device, graph, maps, ptx
from lumjax.cuda.chosen import Chosen
from lumjax.cuda.device import DeviceError
from lumjax.cuda.graph import COPIED
from lumjax.cuda.occupancy import A100
from lumjax.cuda.runtime import emulated_target, load
from lumjax.errors import DonationError, UnsupportedError
from lumjax.trace.array import again, stored
from tests.cuda.test_emulated import LOOPS, arrays, close, loss


class Block:
    """Device memory, which holds nothing at first."""

    def __init__(self, size):
        self.array = np.full(max(size, 1) + 512, 0xA5, np.uint8)
        self.ptr = -(-self.array.ctypes.data // 256) * 256
        self.size = size


class Pretended:
    """A device. `log` tells what it was asked for."""

    def __init__(self, arch="sm_80"):
        self.arch = arch
        self.blocks, self.queue, self.log, self.kept = [], [], [], []
        self.recording = None

    def info(self):
        return emulated_target(self.arch)

    def card(self):
        return A100

    def load(self, text, names, together=False):
        made = load(text)
        self.log.append(("load", *names))
        return [made[n] for n in names]

    def alloc(self, size):
        if self.recording is not None:
            raise DeviceError(operation="alloc", required="none while recording", got="", fix="")
        self.blocks.append(Block(size))
        return self.blocks[-1]

    def holds(self, address, size=1):
        return any(b.ptr <= address and address + size <= b.ptr + b.size for b in self.blocks)

    def ask(self, kind, work):
        self.log.append((kind,))
        (self.queue if self.recording is None else self.recording).append(work)

    def copy(self, target, source, size):
        assert self.holds(target, size) or self.holds(source, size), "a copy within the host"
        if not self.holds(target, size):  # poisoned until somebody waits
            ctypes.memset(target, 0x5A, size)
        else:
            assert self.recording is None or self.holds(source, size), "a graph keeps no host data"
        self.ask("copy", lambda: ctypes.memmove(target, source, size))

    def fill(self, target, value, size):
        self.ask("fill", lambda: ctypes.memset(target, value, size))

    def tensor_map(self, of, address):
        self.log.append(("map",))
        return maps.emulated(of, address)

    def launch(self, function, blocks, table):
        assert self.holds(table), "the parameter block is on the device"

        def run():
            memory = ptx.Memory()
            for b in self.blocks:
                memory.add_bytes(b.ptr, b.size)
            function.handle.launch(
                memory, (blocks,), (function.threads,), [np.int64(table)], function.shared
            )

        self.ask("launch", run)

    def wait(self):
        assert self.recording is None, "nobody waits while a graph is recorded"
        self.log.append(("wait",))
        while self.queue:
            self.queue.pop(0)()
        self.kept.clear()

    def capture(self, work):
        self.log.append(("capture",))
        self.recording = recorded = []
        try:
            work()
        finally:
            self.recording = None
        return lambda: self.ask("graph", lambda: [step() for step in recorded])

    def memory(self):
        return 1 << 30, 1 << 31

    def place(self):
        return 1, 0

    def keep(self, held):
        self.kept.append(held)


@pytest.fixture
def pretended(monkeypatch):
    made = Pretended()
    monkeypatch.setattr(device, "current", lambda: made)
    return made


def count(device_, kind):
    return sum(entry[0] == kind for entry in device_.log)


def test_a_step_is_one_graph_that_is_captured_once(pretended):
    x, w = arrays((9, 12), (12, 7))
    labels = jnp.asarray(np.arange(9) % 7)
    step = lumjax.value_and_grad(loss)
    f = lumjax.jit(step, backend="cuda", search=0)
    want = lumjax.jit(step, search=0)(w, x, labels)
    close(f(w, x, labels), want)
    assert count(pretended, "capture") == count(pretended, "graph") == 1
    close(f(w * 2, x, labels), lumjax.jit(step, search=0)(w * 2, x, labels))
    loads, launches = count(pretended, "load"), count(pretended, "launch")
    close(f(w, x, labels), want)
    assert count(pretended, "graph") == 3
    assert count(pretended, "load") == loads
    assert count(pretended, "launch") == launches, "replayed, not launched again"


@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_choices(name, pretended):
    (x,) = arrays((7, 3))
    f = lumjax.jit(LOOPS[name], backend="cuda", search=0)
    for _ in range(2):
        close(f(x), lumjax.jit(LOOPS[name], search=0)(x))
    if name == "scan":  # its steps are known before: one graph
        assert count(pretended, "capture") >= 1
    if name == "while":  # the device is asked before each step
        assert count(pretended, "wait") > 8


@pytest.mark.parametrize("name", ["scan", "from the end", "a carry that stays", "gradient"])
def test_a_loop_of_known_length_is_unrolled_into_one_graph(name, pretended):
    (x,) = arrays((7, 3))
    f = lumjax.jit(LOOPS[name], backend="cuda", search=0)
    for k in (1, 2):
        close(f(x * k), lumjax.jit(LOOPS[name], search=0)(x * k))
        assert count(pretended, "capture") == 1
        assert count(pretended, "graph") == k


def test_a_long_loop_is_several_graphs(pretended, monkeypatch):
    monkeypatch.setattr(graph, "MOST", 4)
    monkeypatch.setattr(graph, "choose", lambda *_: Chosen("launches: for a test"))
    (x,) = arrays((30, 3))
    f = lumjax.jit(LOOPS["scan"], backend="cuda", search=0)
    for _ in range(2):
        close(f(x), lumjax.jit(LOOPS["scan"], search=0)(x))
    graphs = count(pretended, "graph")
    assert graphs >= 2 * 7
    assert count(pretended, "capture") < graphs / 2, "what is alike is captured once"


def test_the_steps_of_a_while_loop_replay_graphs(pretended):
    (x,) = arrays((7, 3))
    f = lumjax.jit(LOOPS["while"], backend="cuda", search=0)
    close(f(x), lumjax.jit(LOOPS["while"], search=0)(x))
    captured = count(pretended, "capture")
    close(f(x / 8), lumjax.jit(LOOPS["while"], search=0)(x / 8))
    assert captured <= 3, "the test alone, a step with the test, what follows"
    assert count(pretended, "capture") == captured
    assert count(pretended, "graph") > 8


def test_what_runs_through_eval_sees_what_kernels_wrote(pretended):
    def f(x):
        return jnp.linalg.cholesky(x * 2 + 60 * jnp.eye(9)) + 1

    (x,) = arrays((9, 9))
    close(lumjax.jit(f, backend="cuda", search=0)(x), f(x))
    assert count(pretended, "graph") == 2


def test_a_graph_outlives_the_block_of_memory(pretended):
    """Where arrays lie on the host decides how they are laid out on the device, and its size."""
    room = np.arange(4096, dtype=np.float32)
    f = lumjax.jit(lambda a, b: a * 2 + b, backend="cuda", search=0)
    for k in (0, 16, 700, 3):
        a, b = room[k : k + 500], room[k + 20 * k : k + 20 * k + 500][:500]
        if a.size == b.size:
            close(f(a, b), a * 2 + b)
    assert count(pretended, "capture") == 1
    assert count(pretended, "graph") >= 3


def test_parameters_go_by_one_copy(pretended):
    x, y = arrays((40, 50), (50, 33))
    f = lumjax.jit(lambda a, b: jnp.tanh(a @ b).sum(0), backend="cuda", search=0)
    f(x, y)
    pretended.log.clear()
    f(x, y)
    assert count(pretended, "copy") <= 2 + 1 + 3  # inputs, parameters, what was written


# ---- arrays that stay


def update(w, x):
    return w - 0.1 * jnp.tanh(x @ w), jnp.sum(w)


def test_a_step_that_is_fed_with_its_results_copies_nothing(pretended):
    w, x = arrays((5, 5), (7, 5))
    w = w[:5]
    x = x[:5]
    f, here = (lumjax.jit(update, backend=b, search=0) for b in ("cuda", None))
    ours, theirs = w, w
    for k in range(4):
        pretended.log.clear()
        ours, total = f(ours, x)
        theirs, _ = here(theirs, x)
        assert count(pretended, "copy") == 1 + (2 if k == 0 else 0), "the parameters, else nothing"
        assert count(pretended, "wait") == 0
        assert type(ours).__name__ == "Remote"
        assert (ours.shape, ours.dtype, ours.weak) == (theirs.shape, theirs.dtype, theirs.weak)
    pretended.log.clear()
    close(ours, theirs)
    first = float(total)
    assert count(pretended, "copy") == 2, "each was read"
    assert first == float(total)
    np.asarray(ours)
    assert count(pretended, "copy") == 2, "what was read is on the host too"


def test_an_array_of_the_host_is_copied_once_as_long_as_it_is_the_same(pretended):
    w, x, y = arrays((5, 5), (5, 5), (5, 5))
    f = lumjax.jit(update, backend="cuda", search=0)
    for args, copies in (((w, x), 2), ((w, x), 0), ((w, y), 1), ((w, np.asarray(y)), 1),
                         ((w, np.asarray(y)), 1)):  # fmt: skip
        pretended.log.clear()
        got = f(*args)
        assert count(pretended, "copy") == copies + 1
        close(got, update(*args))


def test_what_a_function_closes_over_is_copied_once(pretended):
    w, x = arrays((5, 5), (5, 5))
    f = lumjax.jit(lambda v: v @ w, backend="cuda", search=0)
    f(x)
    pretended.log.clear()
    f(x)
    assert count(pretended, "copy") == 1


def test_the_block_of_a_program_is_made_once(pretended):
    w, x = arrays((40, 40), (40, 40))
    f = lumjax.jit(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w).sum(), backend="cuda", search=0)
    f(w, x)
    known = len(pretended.blocks)
    f(w, x)
    assert len(pretended.blocks) == known + 1, "the result's"


def test_arrays_on_a_device_are_arrays(pretended):
    (x,) = arrays((3, 4))
    y = lumjax.jit(lambda x: x * 2, backend="cuda", search=0)(x)
    want = np.asarray(x) * 2
    assert isinstance(y, lumjax.Array)
    assert repr(y) == repr(jnp.asarray(want))
    for f in (
        lambda v: v + 1, lambda v: 1 - v, lambda v: -v, lambda v: v[1], lambda v: v[:, 1:2],
        lambda v: v.at[1].set(0.0), lambda v: v.at[0, 1].add(2.0), lambda v: v.sum(0), jnp.sin,
        lambda v: v @ v.T, lambda v: jnp.stack([v, v]), lambda v: v > 0, lumjax.jit(jnp.cos),
        lambda v: jnp.asarray([v[0, 0], v[1, 1]]), lambda v: v.reshape(-1), lambda v: v.T,
        lumjax.grad(lambda v: (v**2).sum()), lumjax.vmap(lambda r: r.sum()),
        lambda v: lumjax.lax.scan(lambda c, r: (c + r, c * r), v[0], v), pickled, copy.deepcopy,
        lambda v: lumjax.lax.fori_loop(0, 3, lambda k, c: c * v, v), jnp.array,
    ):  # fmt: skip
        close(f(y), f(jnp.asarray(want)))
    assert np.array_equal(np.asarray(y), want)
    assert [float(v) for v in y[0]] == want[0].tolist()
    assert y.block_until_ready() is y
    assert lumjax.block_until_ready([y])[0] is y


def pickled(value):
    return pickle.loads(pickle.dumps(value))


def test_results_of_a_device_within_eager_loops(pretended):
    """What a primitive's eval is given may come from a program on the device."""
    (x,) = arrays((5, 3))
    inner = lumjax.jit(lambda c, r: (jnp.tanh(c + r), c * r), backend="cuda", search=0)
    with lumjax.config.scope(backend="cuda", search_evaluations=0):
        close(lumjax.lax.scan(inner, x[0], x), lumjax.lax.scan(inner.fun, x[0], x))
        close(
            lumjax.lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: c * 1.5 + 1, jnp.abs(x)),
            lumjax.lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: c * 1.5 + 1, jnp.abs(x)),
        )
        close(lumjax.grad(lambda v: inner(v, v)[0].sum())(x[0]),
              lumjax.grad(lambda v: jnp.tanh(v + v).sum())(x[0]))  # fmt: skip


def test_keys_stay_on_the_device(pretended):
    @functools.partial(lumjax.jit, backend="cuda", search=0)
    def draw(key):
        key, use = lumjax.random.split(key)
        return key, lumjax.random.uniform(use, (3,))

    ours = theirs = lumjax.random.key(3)
    for k in range(3):
        pretended.log.clear()
        ours, a = draw(ours)
        if k:
            assert count(pretended, "copy") == 1
        theirs, b = draw.fun(theirs)
        close(a, b)
    assert (lumjax.random.key_data(ours) == lumjax.random.key_data(theirs)).all()


def test_donated_arrays_are_gone_and_their_memory_is_free(pretended):
    w, x = arrays((5, 5), (5, 5))
    f = lumjax.jit(update, backend="cuda", search=0, donate_argnums=0)
    first, _ = f(jnp.array(w), x)
    memory = weakref.ref(stored(first))
    second, _ = f(first, x)
    assert first.is_deleted()
    with pytest.raises(DonationError, match=r"donated|given"):
        first + 1
    pretended.wait()
    gc.collect()
    assert memory() is None
    close(second, update(update(w, x)[0], x)[0])


def test_strict_donation_of_what_is_shared(pretended):
    w, x = arrays((5, 5), (5, 5))
    f = lumjax.jit(update, backend="cuda", search=0, donate_argnums=0, donate="strict")
    first, _ = lumjax.jit(update, backend="cuda", search=0)(w, x)
    twin = again(first)
    with pytest.raises(DonationError, match="shares"):
        f(first, x)
    del twin
    f(first, x)
    assert first.is_deleted()


def test_threads_that_call_one_program(pretended):
    w, x = arrays((9, 9), (9, 9))
    f = lumjax.jit(lambda w, x: jnp.sort(jnp.tanh(x @ w) @ w, 0) @ w, backend="cuda", search=0)
    f(w, x)
    scales = range(1, 9)
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda k: f(w / k, x), scales))
    for k, y in zip(scales, got, strict=True):
        close(y, f.fun(w / k, x))


def test_open_sizes(pretended):
    f = lumjax.jit(lambda v: jnp.tanh(v).sum(0) * 2, backend="cuda", search=0, dynamic={0: "n"})
    for n in (5, 7, 30, 6):
        (x,) = arrays((n, 3))
        close(f(x), f.fun(x))
    assert len(f.explain()) == 1


# ---- CuPy


def test_without_cupy_it_is_said_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(device, "importlib", types.SimpleNamespace(import_module=missing))
    device.cupy.cache_clear()
    with pytest.raises(UnsupportedError, match=r"No module named 'cupy'(.|\n)*pip install"):
        lumjax.jit(lambda x: x + 1, backend="cuda")(jnp.ones(2))
    device.cupy.cache_clear()


class Runtime:
    memcpyDefault, streamCaptureModeThreadLocal = 4, 1

    def __init__(self, log, devices=1):
        self.log, self.devices = log, devices

    def getDeviceCount(self):
        if self.devices is None:
            raise RuntimeError("cudaErrorInsufficientDriver")
        return self.devices

    def memGetInfo(self):
        return 7, 11

    def __getattr__(self, name):
        return lambda *args: self.log.append((name, *args))


def fake_cupy(log, devices=1, full=False):
    """As much of CuPy as is used, under its own names."""

    class OutOfMemoryError(Exception):
        pass

    class Stream:
        ptr = 77

        def __init__(self, non_blocking):
            assert non_blocking

        def __enter__(self):
            return self

        def __exit__(self, *args):
            return None

        def begin_capture(self, mode):
            log.append(("begin", mode))

        def end_capture(self):
            return types.SimpleNamespace(launch=lambda s: log.append(("graph", s.ptr)))

        def synchronize(self):
            log.append(("synchronize",))

    def kernel(grid, block, args, **more):
        log.append(("kernel", grid, block, args, more["shared_mem"]))

    def alloc(size):
        if full:
            raise OutOfMemoryError
        return types.SimpleNamespace(ptr=4096)

    attributes = {"ComputeCapabilityMajor": 9, "ComputeCapabilityMinor": 0, "L2CacheSize": 60 << 20,
                  "MultiProcessorCount": 132,
                  "MaxSharedMemoryPerMultiprocessor": 228 << 10}  # fmt: skip
    cuda = types.SimpleNamespace(
        runtime=Runtime(log, devices), Stream=Stream, alloc=alloc,
        Device=lambda k: types.SimpleNamespace(use=lambda: None, attributes=attributes),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    )  # fmt: skip
    module = types.SimpleNamespace(get_function=lambda name: kernel)

    def raw(path):
        log.append(("module", Path(path).read_bytes()[:4]))
        return module

    return types.SimpleNamespace(cuda=cuda, RawModule=raw, int64=np.int64, __version__="14.2.0")


@pytest.fixture
def cupy_of(monkeypatch):
    def install(fake):
        modules = types.SimpleNamespace(import_module=lambda name: fake)
        monkeypatch.setattr(device, "importlib", modules)
        device.cupy.cache_clear()

    yield install
    device.cupy.cache_clear()


def test_the_calls_of_cupy(cupy_of):
    log = []
    cupy_of(fake_cupy(log))
    gpu = device.Cupy()
    assert gpu.info().arch == "sm_90a"
    assert gpu.info().cores == 264
    (handle,) = gpu.load('extern "C" __global__ void k(const long long* t) {}', ["k"])
    assert log.pop() == ("module", b"\x7fELF")
    wide = device.Function(handle, 128, 60 << 10, "k", COPIED, 0, 24)
    gpu.launch(wide, 5, 4096)
    assert log.pop() == ("kernel", (5,), (128,), (4096,), 60 << 10)
    assert handle.max_dynamic_shared_size_bytes == 60 << 10
    gpu.copy(1, 2, 3)
    assert log.pop() == ("memcpyAsync", 1, 2, 3, 4, 77)
    gpu.fill(1, 2, 3)
    assert log.pop() == ("memsetAsync", 1, 2, 3, 77)
    small = device.Function(handle, 32, 0, "k", COPIED, 0, 24)
    gpu.capture(lambda: gpu.launch(small, 1, 8))()
    assert [entry[0] for entry in log] == ["begin", "kernel", "graph"]
    gpu.wait()
    assert log.pop() == ("synchronize",)


def test_memory_that_is_not_there_is_told(cupy_of):
    cupy_of(fake_cupy([], full=True))
    with pytest.raises(DeviceError, match="7 of 11 bytes free"):
        device.Cupy().alloc(100)


@pytest.mark.parametrize(("devices", "why"), [(None, "InsufficientDriver"), (0, "finds none")])
def test_without_a_driver_or_a_gpu_it_is_said(devices, why, cupy_of):
    cupy_of(fake_cupy([], devices))
    with pytest.raises(UnsupportedError, match=why):
        device.Cupy()
