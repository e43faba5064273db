"""Whether a loop becomes one kernel (`persistent.py`): by what it costs, what the card holds, and
what verification says.

A launch in a graph costs more than a meeting of all blocks, but the kernel has no more blocks than
the card holds at once, as many threads in each as its widest phase, and the registers of its
hungriest. Figures are for weighing: no GPU has measured them here.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.cpu import analysis
from lumjax.cpu.runtime import Loop, Step
from lumjax.cuda import blocks, nvrtc, runtime
from lumjax.cuda.host import run_steps
from lumjax.cuda.occupancy import Card, resident
from lumjax.cuda.persistent import (
    Persistent,
    Region,
    UnfitError,
    Work,
    memory_of,
    rendered,
)
from lumjax.cuda.runtime import kernels
from lumjax.errors import LumjaxError
from lumjax.kernel.ir import ApplyValue, If, Kernel, Stmt, Tile
from lumjax.kernel.ir import Loop as Repeated
from lumjax.record import record
from lumjax.trace import dim as dims

NDArray: TypeAlias = np.ndarray[Any, Any]
LAUNCH, MEETING, OF_ONE = (
    2.5e-6,
    1.5e-6,
    0.1e-6,
)  # seconds: of a graph's kernel, of all blocks, of one
OPERATION = 4e-9  # seconds of a thread
MOST_CHECKED = 1 << 26  # operations of all threads that are run to verify a loop
STEPS = 3  # that are run: the first, one from each buffer, the last
_FLOATS = (
    1 << 8
)  # units in the last place, of the largest element: sums of blocks change their order
_lock = threading.RLock()


@record(eq=False)
class Chosen:
    """What became of a loop: one kernel with so many blocks, or launches. `why`, in words."""

    why: str
    kernel: Persistent | None = None
    blocks: int = 0


def kernel_of(step: Step) -> Kernel:
    """A step's kernel as it was rendered."""
    return kernels[step.compiled.digest].kernel


def choose(loop: Loop, values: Sequence[int], card: Card | None) -> Chosen:
    """How a loop is run. `values` has the sizes of the program's table; `card` is None where blocks
    can't wait for each other.
    """
    if card is None:
        return Chosen("launches: the device can't start all blocks at once")
    try:
        made = rendered(loop, kernel_of, values)
        most = _capacity(made, card)
    except UnfitError as error:
        return Chosen(f"launches: {error.why}")
    except LumjaxError as error:
        return Chosen(f"launches: {error}")
    launches = made.copies * LAUNCH + sum(_launched(w, made.threads, card) for w in made.work)
    stays, count = min((_stays(made, n), n) for n in {1, min(most, made.wanted)})
    figures = f"{1e6 * stays:,.1f} us by the model, as launches {1e6 * launches:,.1f}"
    if stays >= launches:
        return Chosen(f"launches: as one kernel {figures}")
    if (wrong := _wrong(loop, made, count, values)) is not None:
        return Chosen(f"launches: {wrong}")
    meet = f"of {count} blocks that meet {made.meetings} times" if count > 1 else "of one block"
    return Chosen(f"one kernel {meet}: {figures}", made, count)


# ---- what a card holds, what a loop costs


def _capacity(made: Persistent, card: Card) -> int:
    """How many blocks are there at once.

    Raises UnfitError where there are none, CompileError where the compiler refuses the text.
    """
    usage = nvrtc.cubin(made.text, card.arch).usage[made.name]
    if usage.spills:
        raise UnfitError(f"as one kernel it spills {usage.spills} bytes on {card.arch}")
    each = resident(card, usage, made.threads, made.shared)
    if not each:
        raise UnfitError(f"as one kernel it takes more than a block of {card.name} has")
    return each * card.units


def _stays(made: Persistent, count: int) -> float:
    """Seconds of a loop as one kernel of so many blocks."""
    meeting = MEETING if count > 1 else OF_ONE
    work = sum(_rounds(w, made.threads, count) for w in made.work)
    return LAUNCH + made.meetings * meeting + work


def _launched(work: Work, threads: int, card: Card) -> float:
    """Seconds of a phase as launches. Their occupancy is not asked for: four blocks of a unit."""
    return work.times * LAUNCH + _rounds(work, threads, 4 * card.units)


def _rounds(work: Work, threads: int, count: int) -> float:
    """Seconds that so many blocks work on a phase."""
    jobs = -(-work.jobs // threads) if work.each else work.jobs
    return work.times * -(-jobs // count) * _job(work, threads) * OPERATION


def _job(work: Work, threads: int) -> int:
    """Operations of one thread for a job."""
    return _operations(work.phase.body, work.sizes, 1 if work.each else threads)


def _operations(body: Iterable[Stmt], sizes: Mapping[str, int], threads: int) -> int:
    total = 0
    for stmt in body:
        match stmt:
            case Tile():
                depth = 1
                for _, extent in stmt.k:
                    depth *= _known(extent, sizes)
                cells = -(-stmt.rows * stmt.cols // threads)
                total += 2 * cells * depth + cells * _operations(stmt.body, sizes, 1)
            case Repeated():
                trips = -(-_known(stmt.end - stmt.begin, sizes) // stmt.step)
                shared = threads > 1 and blocks.shared_out(stmt)
                inner = _operations(stmt.body, sizes, 1 if shared else threads)
                total += inner * (-(-trips // threads) if shared else trips)
            case If():
                total += _operations(stmt.body, sizes, threads)
            case _:
                values = (n for v in analysis.operands(stmt) for n in analysis.nodes(v))
                total += 1 + sum(isinstance(n, ApplyValue) for n in values)
    return total


def _known(dim: dims.Dim, sizes: Mapping[str, int]) -> int:
    """An extent, or the most that it can be."""
    found = dims.substitute(dim, sizes)
    if isinstance(found, int):
        return max(0, found)
    high = dims.bounds(found)[1]
    return max(1, dims.estimate(found) if high is None else high)


# ---- verification

_verdicts: dict[str, str | None] = {}


def _wrong(loop: Loop, made: Persistent, count: int, values: Sequence[int]) -> str | None:
    """What is wrong with a loop's kernel: it does not give what its kernels give that were verified
    one by one. None if nothing is.
    """
    if not config.verify:
        return None
    parts = (made.text, count, made.words, made.regions, [w.jobs for w in made.work])
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    with _lock:
        if key not in _verdicts:
            try:
                _verdicts[key] = _compared(loop, count, values)
            except LumjaxError as error:
                _verdicts[key] = str(error)
        return _verdicts[key]


def _compared(loop: Loop, count: int, values: Sequence[int]) -> str | None:
    short = shortened(loop)
    made = rendered(short, kernel_of, values)
    work = sum(w.times * w.jobs * _job(w, made.threads) * (1 if w.each else made.threads)
               for w in made.work)  # fmt: skip
    if work > MOST_CHECKED:
        return f"as one kernel it is too large to be verified ({work:,} operations of 3 steps)"
    given = _arrays(made)
    ours, theirs = ({k: x.copy() for k, x in given.items()} for _ in range(2))
    table = _table(made, ours, values)
    held = made.held([table[w.place] if w.place is not None else w.number for w in made.words])
    code = runtime.load(made.text)[made.name]
    at = held.ctypes.data
    memory, block = memory_of(made, at, held.tolist()), (made.threads,)
    code.launch(memory, (count,), block, [np.int64(at)], made.shared, count % 5)
    run_steps(_Executor(), [short], _table(made, theirs, values))
    for region in made.regions:
        place = made.words[region.word].place or 0
        where = _differs(made, region, ours[place], theirs[place]) if region.written else None
        if where is not None:
            return f"as one kernel it is wrong: {where}"
    return None


def shortened(loop: Loop) -> Loop:
    """The loop with a few steps; those in it stay whole: what follows reads all of their rows."""
    return replace(loop, length=None if loop.length is None else min(loop.length, STEPS))


def _arrays(made: Persistent) -> dict[int, NDArray]:
    """Memory for each place that is an address: what is only read holds numbers."""
    rng = np.random.default_rng(0)
    found: dict[int, NDArray] = {}
    for region in made.regions:
        size = max(region.size, 1)
        room = np.full(-(-size // 16) * 16, 0xFF, np.uint8)
        place = made.words[region.word].place
        assert place is not None, "a region begins where a place says"
        if not region.written:
            data = _drawn(rng, region)
            room[: len(data)] = data
        found[place] = room
    return found


def _drawn(rng: np.random.Generator, region: Region) -> NDArray:
    dtype = region.dtype or np.dtype(np.uint8)
    count = region.size // dtype.itemsize
    if dtype in dt.INEXACT:
        values = rng.uniform(-1, 1, count).astype(dtype)
    elif dtype == dt.key:
        return rng.integers(0, 256, 8 * count, np.uint8)
    else:
        values = rng.integers(0, 2 if dtype == dt.bool_ else 4, count).astype(dtype)
    return np.ascontiguousarray(values).view(np.uint8)


def _table(made: Persistent, arrays: Mapping[int, NDArray], values: Sequence[int]) -> list[int]:
    return [arrays[k].ctypes.data if k in arrays else v for k, v in enumerate(values)]


def _differs(made: Persistent, region: Region, ours: NDArray, theirs: NDArray) -> str | None:
    dtype = np.dtype(np.uint8) if region.dtype in (None, dt.key) else region.dtype
    got, want = (x[: region.size].view(dtype) for x in (ours, theirs))
    if dtype in dt.COMPLEX:
        got, want = (
            x.view(np.float32 if dtype == dt.complex64 else np.float64) for x in (got, want)
        )
        dtype = got.dtype
    if dtype not in dt.INEXACT:
        bad = got != want
    else:
        got, want = got.astype(np.float64), want.astype(np.float64)
        scale = np.abs(want, where=np.isfinite(want), out=np.zeros_like(want)).max(initial=0.0)
        near = np.abs(got - want) <= _FLOATS * float(dt.finfo(dtype).eps) * scale
        bad = ~(near | (got == want) | (np.isnan(got) & np.isnan(want)))
    if not bad.any():
        return None
    k = int(np.argmax(bad))
    place = made.words[region.word].place
    return f"element {k} at place {place}: got {got[k]}, want {want[k]}"


class _Executor:
    """Steps on the executor, one kernel after the other."""

    def launch(self, step: Step, table: Sequence[int]) -> None:
        """A kernel."""
        kernels[step.compiled.digest].run([table[p] for p in step.slots], step.sizes)

    def copy(self, target: int, source: int, size: int) -> None:
        """A copy."""
        ctypes.memmove(target, source, size)

    def read(self, address: int, size: int) -> bytes:
        """What is there."""
        return ctypes.string_at(address, size)

    def repeat(self, loop: Loop, table: Sequence[int]) -> bool:
        """Loops are kernels one after the other."""
        return False
