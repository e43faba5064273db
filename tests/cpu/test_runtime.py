"""The object cache, programs, the thread pool, the arena, and the host as a target."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lumjax
import lumjax.dtype as dt
from lumjax.aligned import address_of
from lumjax.config import config
from lumjax.cpu import arena, objects, pool
from lumjax.cpu.objects import begin_object, host_target, object_code
from lumjax.cpu.runtime import Program, Step, compile_kernels
from lumjax.errors import CacheWarning, CompileError
from lumjax.kernel.ir import (
    ApplyValue,
    IndexValue,
    Kernel,
    LoadValue,
    Loop,
    LoopKind,
    Phase,
    Scratch,
    StoreStmt,
)
from lumjax.kernel.term import Buffer
from tests.cpu.kernels import const, kernel, map_kernel, op, sym

F32, I64 = dt.float32, dt.int64
ADD = op("add", 2, np.add)
TEXT = "define i64 @answer(i64 %x) {\n  ret i64 %x\n}\n"


@pytest.fixture
def cache(tmp_path):
    with config.scope(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path / "objects"


def files(cache):
    return [p for p in cache.rglob("*") if p.is_file()]


def only_file(cache):
    (found,) = files(cache)
    return found


# ---- the object cache


def test_an_object_is_stored_once_and_read_back(cache, monkeypatch):
    code = object_code(TEXT, host_target())
    assert only_file(cache).read_bytes().endswith(code)
    monkeypatch.setattr(objects, "_generate", None)
    assert object_code(TEXT, host_target()) == code


def damage(kind, data):
    match kind:
        case "empty":
            return b""
        case "truncated":
            return data[: len(data) // 2]
        case "header":
            return data[:40]
        case "flipped":
            return data[:-10] + bytes([data[-10] ^ 1]) + data[-9:]
        case "foreign":
            return b"\x7fELF" + bytes(500)
        case _:
            return data[:16] + bytes(32) + data[48:]


@pytest.mark.parametrize(
    "kind", ["empty", "truncated", "header", "flipped", "foreign", "other key"]
)
def test_a_bad_file_is_ignored_with_one_warning_and_replaced(cache, kind):
    code = object_code(TEXT, host_target())
    path = only_file(cache)
    path.write_bytes(damage(kind, path.read_bytes()))
    with pytest.warns(CacheWarning, match="corrupt or foreign") as seen:
        assert object_code(TEXT, host_target()) == code
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert object_code(TEXT, host_target()) == code
    assert files(cache) == [path]


def test_a_cache_that_cannot_be_written_only_warns(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    with (
        config.scope(cache=True, cache_dir=str(blocker)),
        pytest.warns(CacheWarning, match="could not"),
    ):
        assert object_code(TEXT, host_target())


def test_a_file_per_machine_and_none_without_cache(cache):
    object_code(TEXT, host_target())
    with config.scope(cache=False):
        object_code(TEXT + "; other\n", host_target())
    assert len(files(cache)) == 1
    arch = host_target().arch
    with config.scope(cpu=f"{arch}:-avx2"):
        object_code(TEXT, host_target())
    assert len(files(cache)) == 2


def _compile_many(directory, results):
    with config.scope(cache=True, cache_dir=directory):
        warnings.simplefilter("error")
        for k in range(6):
            code = object_code(TEXT.replace("answer", f"answer{k}"), host_target())
            results.put((k, code))


def test_processes_share_a_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=_compile_many, args=(str(tmp_path), results)) for _ in range(3)
    ]
    for w in workers:
        w.start()
    found = [results.get(timeout=120) for _ in range(18)]
    for w in workers:
        w.join()
        assert w.exitcode == 0
    assert sorted(k for k, _ in found) == sorted(list(range(6)) * 3)
    assert len(set(found)) == 6
    assert len(list((tmp_path / "objects").rglob("*.o"))) == 6


def test_text_that_llvm_refuses():
    with pytest.raises(CompileError, match="LLVM IR that LLVM accepts"), config.scope(cache=False):
        object_code("define nonsense", host_target())


def test_code_made_by_another_thread(cache):
    with ThreadPoolExecutor(1) as thread:
        good, bad = (begin_object(t, host_target(), thread) for t in (TEXT, "define nonsense"))
        assert not files(cache)  # what is left on disk is left by this thread, with its settings
        code = good()
        with pytest.raises(CompileError, match="LLVM IR that LLVM accepts"):
            bad()
    assert len(files(cache)) == 1
    assert object_code(TEXT, host_target()) == begin_object(TEXT, host_target(), thread)() == code


# ---- the machine


def test_the_host():
    target = host_target()
    assert target.vector_bytes in (16, 32, 64)
    assert target.cores == objects.cpu_count() >= 1
    assert min(target.l1, target.l2, target.l3) > 0


def test_features_can_be_overridden():
    arch = host_target().arch
    if "+avx2" in host_target().features:
        with config.scope(cpu=f"{arch}:-avx,-avx2"):
            target = host_target()
            assert target.vector_bytes == 16
            assert "-avx2" in target.features
            assert "+avx2" not in target.features
    with config.scope(num_threads=3):
        assert host_target().cores == 3


# ---- programs


def count_jobs(jobs, size=None):
    """Each job adds 1 to its own cell (its job number, spread over a cache line)."""
    job = sym("job", 0)
    cells = Buffer("cells", (jobs * 8,), I64)
    value = ApplyValue(ADD, (LoadValue(cells, job * 8), const(I64, 1)), I64)
    return kernel([StoreStmt(cells, job * 8, value)], [cells], jobs=jobs, name=f"count{jobs}")


def program_of(kern, slots=None, sizes=None, serial=False):
    (compiled,) = compile_kernels([kern], host_target())
    slots = slots or range(len(kern.buffers) + len(kern.sizes))
    return Program([Step(compiled, tuple(slots), sizes or {}, serial)])


def test_steps_share_one_table():
    double = map_kernel(ADD, [F32, F32], F32, 40)
    (compiled,) = compile_kernels([double], host_target())
    x, y, z = (arena.empty((40,), F32) for _ in range(3))
    x[:] = np.arange(40)
    program = Program([Step(compiled, (1, 0, 0), {}), Step(compiled, (2, 1, 0), {})])
    program.run([a.ctypes.data for a in (x, y, z)])
    np.testing.assert_array_equal(z, 3 * x)
    Program([]).run([])


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("sizes", [[3], [0, 1], [5, 0, 0, 7, 1], [1] * 40, [300, 2, 0, 64, 3, 9]])
def test_steps_of_a_wave_share_one_launch(threads, sizes):
    with config.scope(num_threads=threads):
        kernels = [count_jobs(n) for n in sizes]
        steps = [
            Step(compiled, (k,), {}, serial=k == 1)
            for k, compiled in enumerate(compile_kernels(kernels, host_target()))
        ]
        last = len(sizes)
        steps.append(Step(steps[0].compiled, (0,), {}))
        program = Program(steps, [0] * last + [1])
        assert program.launches == 2
        cells = [arena.empty((n * 8,), I64) for n in sizes]
        for c in cells:
            c[:] = 0
        for _ in range(100):
            program.run([c.ctypes.data for c in cells])
        for k, (n, c) in enumerate(zip(sizes, cells, strict=True)):
            expected = np.zeros(n * 8, np.int64)
            expected[::8] = 200 if k == 0 else 100
            np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_job_runs_exactly_once(threads):
    with config.scope(num_threads=threads):
        sizes = [1, 2, 3, 7, 64, 300]
        programs = [(n, program_of(count_jobs(n)), arena.empty((n * 8,), I64)) for n in sizes]
        for _, _, cells in programs:
            cells[:] = 0
        for _ in range(300):
            for _, program, cells in programs:
                program.run([cells.ctypes.data])
        for n, _, cells in programs:
            np.testing.assert_array_equal(cells.reshape(n, 8)[:, 0], 300)


def test_phases_wait_for_each_other():
    jobs = 50
    job = sym("job", 0)
    a, b = Buffer("a", (jobs,), I64), Buffer("b", (jobs,), I64)
    first = Phase("job", jobs, (StoreStmt(a, job, IndexValue(job * 3, I64)),))
    second = Phase("job", jobs, (StoreStmt(b, job, LoadValue(a, jobs - 1 - job)),))
    kern = Kernel("two", (b,), (), (a,), (), (), (first, second))
    with config.scope(num_threads=4):
        program = program_of(kern)
        x, y = arena.empty((jobs,), I64), arena.empty((jobs,), I64)
        for _ in range(200):
            x[:] = -1
            program.run([y.ctypes.data, x.ctypes.data])
            np.testing.assert_array_equal(y, 3 * np.arange(jobs)[::-1])


def test_each_thread_has_its_own_scratch():
    jobs, size = 64, 500
    job, i = sym("job", 0), sym("i")
    tmp, out = Buffer("tmp", (size,), I64), Buffer("out", (jobs * size,), I64)
    body = [
        Loop(
            "i", 0, size, 1, LoopKind.VECTOR, (StoreStmt(tmp, i, IndexValue(job * size + i, I64)),)
        ),
        Loop(
            "i", 0, size, 1, LoopKind.VECTOR, (StoreStmt(out, job * size + i, LoadValue(tmp, i)),)
        ),
    ]
    kern = kernel(body, [out], scratch=[Scratch(tmp, size)], jobs=jobs)
    with config.scope(num_threads=4):
        program = program_of(kern)
        got = arena.empty((jobs * size,), I64)
        for _ in range(20):
            got[:] = 0
            program.run([got.ctypes.data])
            np.testing.assert_array_equal(got, np.arange(jobs * size))


def test_jobs_follow_the_sizes_and_small_steps_may_stay_serial():
    n, job = sym("n", 0), sym("job", 0)
    out = Buffer("out", (n,), I64)
    kern = kernel([StoreStmt(out, job, IndexValue(job, I64))], [out], sizes=("n",), jobs=n)
    for size in (0, 1, 9):
        got = np.full(10, -1, np.int64)
        program_of(kern, sizes={"n": size}, serial=True).run([got.ctypes.data, size])
        np.testing.assert_array_equal(got, [*range(size), *[-1] * (10 - size)])


def test_many_python_threads_at_once():
    program = program_of(count_jobs(16))
    rows = [arena.empty((16 * 8,), I64) for _ in range(5)]
    for row in rows:
        row[:] = 0

    def work(row):
        for _ in range(200):
            program.run([row.ctypes.data])

    with config.scope(num_threads=2):
        threads = [threading.Thread(target=work, args=(row,)) for row in rows]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for row in rows:
        np.testing.assert_array_equal(row.reshape(16, 8)[:, 0], 200)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_makes_its_own_pool():
    config.update("num_threads", 2)
    try:
        program = program_of(count_jobs(32))
        cells = arena.empty((32 * 8,), I64)
        cells[:] = 0
        program.run([cells.ctypes.data])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of fork with threads
            child = os.fork()
        if not child:
            program.run([cells.ctypes.data])
            right = bool((cells.reshape(32, 8)[:, 0] == 2).all())
            os._exit(0 if right and pool._current.pool is not None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        program.run([cells.ctypes.data])
        assert (cells.reshape(32, 8)[:, 0] == 2).all()
    finally:
        config.update("num_threads", 0)


def test_a_stopped_pool_is_replaced():
    with config.scope(num_threads=2):
        program = program_of(count_jobs(8))
        cells = arena.empty((64,), I64)
        cells[:] = 0
        program.run([cells.ctypes.data])
        workers = pool._current.pool._workers
        pool._current.stop()
        assert not any(w.is_alive() for w in workers)
        program.run([cells.ctypes.data])
    np.testing.assert_array_equal(cells.reshape(8, 8)[:, 0], 2)


@pytest.mark.parametrize("machine", ["aarch64", "riscv64"])
def test_the_pool_is_valid_llvm_elsewhere(machine, monkeypatch):
    monkeypatch.setattr(pool.platform, "machine", lambda: machine)
    text = pool._text()
    assert ("@syscall" in text) == (machine == "aarch64")
    objects.library().parse_assembly(text).verify()


# ---- the arena


def test_arrays_made_from_numpy_start_at_a_line():
    for dtype in (np.float32, np.float64, np.int64, bool):
        for given in (
            np.ones((40, 50), dtype),
            np.ones((40, 50), dtype).T,
            np.ones(4000, dtype)[1::2],
        ):
            made = lumjax.numpy.asarray(given).data
            assert made.ctypes.data % 64 == 0
            assert made.flags.c_contiguous
            np.testing.assert_array_equal(made, given)


def test_arrays_are_aligned_and_blocks_come_back():
    for shape in ((), (0,), (3,), (5, 7), (50, 70), (1000, 1000)):
        for dtype in (dt.bool_, F32, dt.complex128, dt.bfloat16, dt.key):
            a = arena.empty(shape, dtype)
            assert a.shape == shape
            assert a.dtype == dtype
            assert a.flags.c_contiguous
            assert a.flags.writeable
            assert a.ctypes.data % 64 == 0 or a.nbytes < arena.SMALL
    a = arena.empty((1 << 20,), F32)
    a[:] = 1
    address, view = a.ctypes.data, a[10:20]
    del a
    gc.collect()
    other = arena.empty((1 << 20,), F32)
    assert other.ctypes.data != address  # the view still holds the block
    np.testing.assert_array_equal(view, 1)
    del view
    gc.collect()
    assert arena.empty((1 << 20,), F32).ctypes.data == address


def test_checkouts_are_apart():
    with arena.checkout(1 << 20) as x, arena.checkout(1 << 20) as y:
        assert abs(x - y) >= 1 << 20
        assert x % 64 == 0
    with arena.checkout(0) as z:
        assert z


def test_the_arena_keeps_no_more_than_its_limit(monkeypatch):
    monkeypatch.setattr(arena, "KEPT", 0)
    with arena.checkout(123 << 20):
        pass
    assert not arena._arena.idle.get(arena.size_class(123 << 20))


def test_what_was_idle_for_longest_goes_first(monkeypatch):
    monkeypatch.setattr(arena, "_arena", arena._Arena())
    monkeypatch.setattr(arena, "KEPT", 8 << 20)
    sizes = (1 << 20, 2 << 20, 3 << 20, 1 << 20)
    blocks = [arena._arena.take(n) for n in sizes]
    addresses = [b.address for b in blocks]
    while blocks:
        del blocks[0]
    assert arena._arena.kept == 7 << 20
    with arena.checkout(4 << 20):  # all blocks are of other sizes
        pass
    assert arena._arena.kept == 8 << 20  # the first two went
    with arena.checkout(1 << 20) as a, arena.checkout(3 << 20) as b:
        assert (a, b) == (addresses[3], addresses[2])
    with arena.checkout(9 << 20):
        pass
    assert not arena._arena.idle.get(arena.size_class(9 << 20))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_to_memory_of_its_own():
    cells = arena.empty((1 << 18,), I64)
    cells[:] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        cells[:] = 2
        os._exit(0)
    os.waitpid(child, 0)
    assert (cells == 1).all()


def test_size_classes_waste_little():
    for size in (1, 4096, 4097, 10**6, 12345678, 1 << 30):
        assert size <= arena.size_class(size) <= max(8192, size * 9 // 8)


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
def test_addresses_are_those_that_numpy_states(dtype):
    whole = np.zeros((4, 6), dtype)
    locked = whole.copy()
    locked.flags.writeable = False
    views = (whole, whole[1:, 2:], whole.T, whole[::-1], whole[:0], locked, np.zeros((), dtype))
    for view in views:
        assert address_of(view) == view.__array_interface__["data"][0]
