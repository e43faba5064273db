"""The native loop that runs a program, and the threads that share its jobs.

Workers are Python threads parked inside one native function (the GIL released), so that no thread
is created by native code. A job is claimed by compare-and-swap on (generation, index): a worker
that comes late finds nothing to claim, and the caller never waits for one that was descheduled.
Idle workers spin for a while, then sleep on a futex (on a short timer where there is none).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
from functools import cache
from typing import Any

import numpy as np

from lumjax.cpu import nest
from lumjax.cpu.objects import cpu_count, host_target, load, object_code

_SPINS = 4000
_FUTEX = {"x86_64": 202, "AMD64": 202, "aarch64": 98}

# The pool's memory, one cache line each: 0 ticket (generation << 32 | next job), 64 jobs done,
# 128 function, table, slots, jobs, scratch, stride; 192 generation; 256 sleepers, 260 stop.
_TEXT = r"""
declare void @lumjax_yield()
PAUSE_DECLARATION

define internal void @pause() nounwind alwaysinline {
  PAUSE
  ret void
}

define internal void @work(ptr %p, i32 %generation, i64 %thread) nounwind {
entry:
  %fp = getelementptr i8, ptr %p, i64 128
  %tp = getelementptr i8, ptr %p, i64 136
  %lp = getelementptr i8, ptr %p, i64 144
  %np = getelementptr i8, ptr %p, i64 152
  %cp = getelementptr i8, ptr %p, i64 160
  %rp = getelementptr i8, ptr %p, i64 168
  %dp = getelementptr i8, ptr %p, i64 64
  %fi = load atomic i64, ptr %fp monotonic, align 8
  %ti = load atomic i64, ptr %tp monotonic, align 8
  %li = load atomic i64, ptr %lp monotonic, align 8
  %n = load atomic i64, ptr %np monotonic, align 8
  %ci = load atomic i64, ptr %cp monotonic, align 8
  %stride = load atomic i64, ptr %rp monotonic, align 8
  fence acquire
  %f = inttoptr i64 %fi to ptr
  %table = inttoptr i64 %ti to ptr
  %slots = inttoptr i64 %li to ptr
  %shift = mul i64 %stride, %thread
  %own = add i64 %ci, %shift
  %scratch = inttoptr i64 %own to ptr
  %first = load atomic i64, ptr %p acquire, align 8
  br label %loop
loop:
  %ticket = phi i64 [%first, %entry], [%seen, %claim], [%later, %job]
  %high = lshr i64 %ticket, 32
  %whose = trunc i64 %high to i32
  %same = icmp eq i32 %whose, %generation
  %index = and i64 %ticket, 4294967295
  %left = icmp ult i64 %index, %n
  %ok = and i1 %same, %left
  br i1 %ok, label %claim, label %out
claim:
  %next = add i64 %ticket, 1
  %swap = cmpxchg ptr %p, i64 %ticket, i64 %next acq_rel acquire
  %won = extractvalue {i64, i1} %swap, 1
  %seen = extractvalue {i64, i1} %swap, 0
  br i1 %won, label %job, label %loop
job:
  call void %f(ptr %table, ptr %slots, i64 %index, ptr %scratch)
  %count = atomicrmw add ptr %dp, i64 1 acq_rel
  %later = load atomic i64, ptr %p acquire, align 8
  br label %loop
out:
  ret void
}

define internal void @serial(ptr %f, ptr %table, ptr %slots, i64 %n, ptr %scratch) nounwind {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  call void %f(ptr %table, ptr %slots, i64 %i, ptr %scratch)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}

define internal void @parallel(ptr %p, ptr %f, ptr %table, ptr %slots, i64 %n, ptr %scratch,
                               i64 %stride) nounwind {
entry:
  %fp = getelementptr i8, ptr %p, i64 128
  %tp = getelementptr i8, ptr %p, i64 136
  %lp = getelementptr i8, ptr %p, i64 144
  %np = getelementptr i8, ptr %p, i64 152
  %cp = getelementptr i8, ptr %p, i64 160
  %rp = getelementptr i8, ptr %p, i64 168
  %dp = getelementptr i8, ptr %p, i64 64
  %gp = getelementptr i8, ptr %p, i64 192
  %sp = getelementptr i8, ptr %p, i64 256
  %fi = ptrtoint ptr %f to i64
  %ti = ptrtoint ptr %table to i64
  %li = ptrtoint ptr %slots to i64
  %ci = ptrtoint ptr %scratch to i64
  %old = load atomic i32, ptr %gp monotonic, align 4
  %generation = add i32 %old, 1
  %wide = zext i32 %generation to i64
  %ticket = shl i64 %wide, 32
  ; the ticket changes first: who reads the fields below and an old ticket claims nothing.
  ; Until they are written, the new ticket stays closed (its next job is 2**32 - 1).
  %closed = or i64 %ticket, 4294967295
  store atomic i64 %closed, ptr %p monotonic, align 8
  fence release
  store atomic i64 0, ptr %dp monotonic, align 8
  store atomic i64 %fi, ptr %fp monotonic, align 8
  store atomic i64 %ti, ptr %tp monotonic, align 8
  store atomic i64 %li, ptr %lp monotonic, align 8
  store atomic i64 %n, ptr %np monotonic, align 8
  store atomic i64 %ci, ptr %cp monotonic, align 8
  store atomic i64 %stride, ptr %rp monotonic, align 8
  store atomic i64 %ticket, ptr %p release, align 8
  store atomic i32 %generation, ptr %gp seq_cst, align 4
  %asleep = load atomic i32, ptr %sp seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %wake, label %go
wake:
  %others = add i64 %n, -1
  %few = call i64 @llvm.umin.i64(i64 %others, i64 65536)
  %count = trunc i64 %few to i32
  WAKE
  br label %go
go:
  call void @work(ptr %p, i32 %generation, i64 0)
  br label %wait
wait:
  %k = phi i32 [0, %go], [%k1, %again]
  %done = load atomic i64, ptr %dp acquire, align 8
  %finished = icmp eq i64 %done, %n
  br i1 %finished, label %out, label %spin
spin:
  call void @pause()
  %k1 = add i32 %k, 1
  %round = and i32 %k1, 1023
  %tired = icmp eq i32 %round, 0
  br i1 %tired, label %yield, label %again
yield:
  call void @lumjax_yield()
  br label %again
again:
  br label %wait
out:
  ret void
}
declare i64 @llvm.umin.i64(i64, i64)

; A job of several independent kernels that share one parallel_for. `wave` holds their number,
; then for each the end of its jobs among all, its function and its slots.
define void @lumjax_wave(ptr %table, ptr %wave, i64 %job, ptr %scratch) nounwind {
entry:
  %count = load i64, ptr %wave
  br label %look
look:
  %low = phi i64 [0, %entry], [%low1, %half]
  %high = phi i64 [%count, %entry], [%high1, %half]
  %more = icmp ult i64 %low, %high
  br i1 %more, label %half, label %found
half:
  %sum = add i64 %low, %high
  %mid = lshr i64 %sum, 1
  %mp = getelementptr [3 x i64], ptr %wave, i64 %mid
  %ep = getelementptr i64, ptr %mp, i64 1
  %end = load i64, ptr %ep
  %before = icmp ult i64 %job, %end
  %above = add i64 %mid, 1
  %low1 = select i1 %before, i64 %low, i64 %above
  %high1 = select i1 %before, i64 %mid, i64 %high
  br label %look
found:
  %row = getelementptr [3 x i64], ptr %wave, i64 %low
  %fp = getelementptr i64, ptr %row, i64 2
  %sp = getelementptr i64, ptr %row, i64 3
  %f = load ptr, ptr %fp
  %slots = load ptr, ptr %sp
  ; the row before ends where this one begins; before the first row lies the count
  %bp = getelementptr i64, ptr %row, i64 -2
  %first = icmp eq i64 %low, 0
  %from = select i1 %first, ptr %wave, ptr %bp
  %given = load i64, ptr %from
  %begin = select i1 %first, i64 0, i64 %given
  %own = sub i64 %job, %begin
  call void %f(ptr %table, ptr %slots, i64 %own, ptr %scratch)
  ret void
}

; steps: function, slots, jobs, kind (0 parallel, 1 serial, others see nest.py); 1 if interrupted
define i32 @lumjax_run(ptr %steps, i64 %n, ptr %table, ptr %p, ptr %scratch,
                       i64 %stride) nounwind {
entry:
  %alone = icmp eq ptr %p, null
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [0, %entry], [%next, %done]
  %step = getelementptr [4 x i64], ptr %steps, i64 %i
  %lp = getelementptr i64, ptr %step, i64 1
  %np = getelementptr i64, ptr %step, i64 2
  %kp = getelementptr i64, ptr %step, i64 3
  %f = load ptr, ptr %step
  %slots = load ptr, ptr %lp
  %jobs = load i64, ptr %np
  %kind = load i64, ptr %kp
  %inner = icmp ugt i64 %kind, 1
  br i1 %inner, label %nest, label %kernel
nest:
  %status = call i32 @nested(i64 %kind, ptr %f, ptr %table, ptr %p, ptr %scratch, i64 %stride)
  %stop = icmp ne i32 %status, 0
  br i1 %stop, label %stopped, label %done
kernel:
  %asked = icmp ne i64 %kind, 0
  %few = icmp sle i64 %jobs, 1
  %a = or i1 %asked, %few
  %b = or i1 %a, %alone
  br i1 %b, label %one, label %many
one:
  call void @serial(ptr %f, ptr %table, ptr %slots, i64 %jobs, ptr %scratch)
  br label %done
many:
  call void @parallel(ptr %p, ptr %f, ptr %table, ptr %slots, i64 %jobs, ptr %scratch,
                      i64 %stride)
  br label %done
done:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %out
out:
  ret i32 0
stopped:
  ret i32 1
}

define void @lumjax_worker(ptr %p, i64 %thread, i32 %spins) nounwind {
entry:
  %gp = getelementptr i8, ptr %p, i64 192
  %sp = getelementptr i8, ptr %p, i64 256
  %stop = getelementptr i8, ptr %p, i64 260
  br label %outer
outer:
  %last = phi i32 [0, %entry], [%now, %run]
  br label %look
look:
  %k = phi i32 [0, %outer], [%k1, %pause], [0, %sleep]
  %now = load atomic i32, ptr %gp acquire, align 4
  %new = icmp ne i32 %now, %last
  br i1 %new, label %woken, label %idle
idle:
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, %spins
  br i1 %more, label %pause, label %sleep
pause:
  call void @pause()
  br label %look
sleep:
  %s0 = atomicrmw add ptr %sp, i32 1 seq_cst
  SLEEP
  %s1 = atomicrmw sub ptr %sp, i32 1 seq_cst
  br label %look
woken:
  %flag = load atomic i32, ptr %stop acquire, align 4
  %over = icmp ne i32 %flag, 0
  br i1 %over, label %out, label %run
run:
  call void @work(ptr %p, i32 %now, i64 %thread)
  br label %outer
out:
  ret void
}

define void @lumjax_stop(ptr %p) nounwind {
  %gp = getelementptr i8, ptr %p, i64 192
  %stop = getelementptr i8, ptr %p, i64 260
  store atomic i32 1, ptr %stop seq_cst, align 4
  %old = atomicrmw add ptr %gp, i32 1 seq_cst
  %count = add i32 0, 65536
  WAKE
  ret void
}
"""

_WAIT_ON_FUTEX = "%w = call i64 (i64, ...) @syscall(i64 {n}, ptr %gp, i32 128, i32 %last, ptr null)"
_WAKE_FUTEX = (
    "%woke = call i64 (i64, ...) @syscall(i64 {n}, ptr %gp, i32 129, i32 %count, ptr null)"
)
_SLEEP_TIMER = "call void @lumjax_sleep(i32 {interval})"


def _text() -> str:
    """The module for this machine."""
    machine = platform.machine()
    if machine in ("x86_64", "AMD64"):
        pause, declaration = (
            "call void @llvm.x86.sse2.pause()",
            "declare void @llvm.x86.sse2.pause()",
        )
    elif machine in ("aarch64", "arm64", "ARM64"):
        pause, declaration = 'call void asm sideeffect "yield", "~{memory}"()', ""
    else:
        pause, declaration = 'call void asm sideeffect "", "~{memory}"()', ""
    number = _FUTEX.get(machine) if sys.platform == "linux" else None
    if number is not None:
        wait, wake = _WAIT_ON_FUTEX.format(n=number), _WAKE_FUTEX.format(n=number)
        extra = "declare i64 @syscall(i64, ...)\n"
    else:
        interval = 1 if sys.platform == "win32" else 100
        wait, wake = _SLEEP_TIMER.format(interval=interval), ""
        extra = "declare void @lumjax_sleep(i32)\n"
    text = _TEXT.replace("PAUSE_DECLARATION", declaration).replace("  PAUSE\n", f"  {pause}\n")
    text = text.replace("  WAKE\n", f"  {wake}\n").replace("  SLEEP\n", f"  {wait}\n")
    return extra + nest.TEXT + text


def _system(name: str) -> int:
    library = ctypes.CDLL("kernel32") if sys.platform == "win32" else ctypes.CDLL(None)
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None, "a function has an address"
    return address


class _Native:
    """The compiled functions."""

    def __init__(self) -> None:
        windows = sys.platform == "win32"
        code = object_code(_text(), host_target())
        symbols = {
            "lumjax_yield": _system("SwitchToThread" if windows else "sched_yield"),
            "lumjax_sleep": _system("Sleep" if windows else "usleep"),
        }
        if not windows:
            symbols["syscall"] = _system("syscall")
        symbols |= nest.symbols()
        names = ["run", "worker", "stop", "raise", "wave", "copy"]
        functions = load(code, [f"lumjax_{n}" for n in names], symbols)
        run, worker, stop, again, self.wave, self.copy = functions
        self.addresses = run, again  # for native code
        address, number = ctypes.c_void_p, ctypes.c_int64
        self.run: Any = ctypes.CFUNCTYPE(
            ctypes.c_int32, address, number, address, address, address, number
        )(run)
        self.worker: Any = ctypes.CFUNCTYPE(None, address, number, ctypes.c_int32)(worker)
        self.reraise: Any = ctypes.PYFUNCTYPE(None)(again)
        self.stop: Any = ctypes.CFUNCTYPE(None, address)(stop)


@cache
def native() -> _Native:
    """The native functions, compiled or loaded on first use."""
    return _Native()


class Pool:
    """Some threads, the caller's included; one program at a time."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._memory = np.zeros(512 + 64, np.uint8)
        self.address: int = (self._memory.ctypes.data + 63) & ~63
        self._workers = [
            threading.Thread(
                target=native().worker, args=(self.address, k, _SPINS), daemon=True,
                name=f"lumjax-{k}",
            )
            for k in range(1, threads)
        ]  # fmt: skip
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """End the workers; the pool can't be used any more."""
        native().stop(self.address)
        for worker in self._workers:
            worker.join(timeout=5.0)


class _Current:
    """The process's pool. A forked child has none of its parent's threads and makes its own."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.lock = threading.Lock()
        self.pool: Pool | None = None

    def stop(self) -> None:
        with self.lock:
            if self.pool is not None:
                self.pool.stop()
                self.pool = None


_current = _Current()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_current.forget)
atexit.register(_current.stop)


def run(steps: int, count: int, table: Any, scratch: int, stride: int, parallel: bool) -> None:
    """Run `count` steps (rows of function, slots, jobs, kind) on a table: its address, or bytes,
    or characters where loops write into it.

    `scratch` holds `stride` bytes for each of `cpu_count()` threads. While another thread has the
    pool, or if nothing is parallel, the steps run on the calling thread alone.
    """
    threads = cpu_count() if parallel else 1
    current = _current
    if threads < 2 or not current.lock.acquire(blocking=False):
        if native().run(steps, count, table, None, scratch, stride):
            native().reraise()
        return
    try:
        pool = current.pool
        if pool is None or pool.threads != threads:
            if pool is not None:
                pool.stop()
            pool = current.pool = Pool(threads)
        if native().run(steps, count, table, pool.address, scratch, stride):
            native().reraise()
    finally:
        current.lock.release()
