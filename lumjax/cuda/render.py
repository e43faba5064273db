"""Kernel IR to CUDA C: one kernel for each phase.

    extern "C" __global__ void NAME_phaseN(const i64* table)

`table` holds the addresses of the kernel's buffers, then its sizes. A block runs jobs, striding
over them by the size of the grid. Its threads share out VECTOR loops and tiles; everything around
those they do together, each for itself, but for stores, which one of them does. Barriers stand
where what some threads wrote is read or overwritten by others. A phase without VECTOR loops and
tiles gives each thread a job of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from lumjax.cpu import analysis
from lumjax.cuda import blocks, header90, packs, tile
from lumjax.cuda.header import HEADER
from lumjax.cuda.header90 import HEADER_90
from lumjax.cuda.maps import BYTES, Chart
from lumjax.cuda.scalar import parts, storage_type, supported
from lumjax.cuda.warpgroup import Pipeline, Rendering, pipeline_of, place_of_maps
from lumjax.errors import UnsupportedError
from lumjax.kernel.ir import Kernel, Loop, Phase, Tile
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

WARP, MOST_THREADS = 32, 256
STATIC_SHARED, MOST_SHARED = 40 << 10, 200 << 10  # what a kernel's scratch may take of each
BLOCKS = 1056  # eight for each of the units of the largest machine


@record
class Launch:
    """How a phase is launched: threads of a block, whether each has a job of its own, bytes of
    shared memory that the launch adds; tensor maps that follow the kernel's addresses and sizes.
    """

    name: str
    threads: int
    each: bool
    shared: int
    maps: tuple[Chart, ...] = ()

    def blocks(self, jobs: int) -> int:
        """How many blocks run so many jobs."""
        return min(BLOCKS, -(-jobs // self.threads) if self.each else jobs)


@record
class Rendered:
    """A kernel's text, and how to launch each of its phases."""

    text: str
    launches: tuple[Launch, ...]

    @property
    def maps(self) -> tuple[Chart, ...]:
        """The tensor maps of all phases."""
        return tuple(m for x in self.launches for m in x.maps)


def unsupported(kernel: Kernel) -> str | None:
    """What of a kernel has no CUDA code, as text; None if all of it has."""
    if (operation := analysis.unsupported(kernel, supported)) is not None:
        return operation
    for phase in kernel.phases:
        try:
            size = _Phase(kernel, phase, "").shared
        except UnsupportedError as error:
            return str(error)
        if size > MOST_SHARED:
            return f"{size} bytes of shared memory for scratch and tiles, more than a block has"
    return None


def _padded(size: int) -> int:
    return -(-size // 16) * 16


def parameters(kernel: Kernel, rendered: Rendered) -> int:
    """The bytes of a kernel's table, with its tensor maps."""
    if not rendered.maps:
        return 8 * (len(kernel.buffers) + len(kernel.sizes))
    return place_of_maps(kernel) + BYTES * len(rendered.maps)


def render(kernel: Kernel, pipelines: bool = False) -> Rendered:
    """The text of a kernel for which `unsupported` finds nothing. With `pipelines`, which are for
    sm_90a, bulk copies and warpgroups where they can go.
    """
    made: list[_Phase] = []
    before = place_of_maps(kernel)
    for k, phase in enumerate(kernel.phases):
        made.append(_Phase(kernel, phase, f"{kernel.name}_phase{k}", before if pipelines else None))
        before += BYTES * len(made[-1].launch.maps)
    products = sorted({p.pipeline.product for p in made if p.pipeline is not None})
    more = HEADER_90 + "".join(header90.products(*p) for p in products) if products else ""
    text = "\n".join([HEADER + more, *(p.text() for p in made)])
    return Rendered(text, tuple(p.launch for p in made))


@record
class Part:
    """A phase as a function of the device: for kernels that do several, one after the other. How
    many bytes of shared memory it takes; whether each thread has a job of its own.
    """

    text: str
    shared: int
    each: bool


def threads_of(kernel: Kernel) -> int:
    """The threads of a block that goes with all of a kernel's phases."""
    return max((_Phase(kernel, phase, "").launch.threads for phase in kernel.phases), default=0)


def part(kernel: Kernel, phase: Phase, name: str, threads: int) -> Part:
    """A phase as `void NAME(const i64* table, u8* lj_scratch, i64 lj_first)`, called by all threads
    of a block of so many. Jobs go to blocks from `lj_first` on. Nothing that it reads is taken to
    stay what it is.
    """
    made = _Phase(kernel, phase, name, None, threads)
    return Part(made.text(), made.shared, made.launch.each)


class _Phase:
    """One phase's function; `inside` is how many threads a kernel has that it is a part of."""

    def __init__(
        self, kernel: Kernel, phase: Phase, name: str, maps: int | None = None, inside: int = 0
    ) -> None:
        self.kernel, self.phase, self.maps, self.inside = kernel, phase, maps, inside
        hints = dict(zip(kernel.sizes, kernel.extents, strict=False))
        shared = [s for s in kernel.scratch if s.buffer.name in self._mentioned()]
        self.scratch = shared
        work = list(_parallel(phase.body))
        each = not work and not shared
        threads = inside or (WARP if each else _threads(work, hints))
        self.held = sum(_padded(s.elements * s.buffer.dtype.itemsize) for s in shared)
        slice_ = sum(tile.shared_bytes(s, threads) for s in _tiles(phase.body))
        room = self.held + tile.SLICES * slice_ <= MOST_SHARED
        self.slices = tile.SLICES if room else tile.SLICES - 1
        self.shared = self.held + self.slices * slice_
        self.dynamic = self.shared if self.shared > STATIC_SHARED or inside else 0
        self.launch = Launch(name, threads, each, self.dynamic)
        self.pipeline: Pipeline | None = None
        if maps is not None and not shared and len(work) == 1 and isinstance(work[0], Tile):
            self.pipeline = plan = pipeline_of(kernel, work[0])
            if plan is not None:
                charts = tuple(s.chart for s in plan.sides)
                self.launch = Launch(name, plan.threads, False, plan.shared, charts)
                self.dynamic = 0
        self.hints: Mapping[str, Dim] = hints

    def _mentioned(self) -> frozenset[str]:
        body = self.phase.body
        return analysis.stored(body) | packs.loaded_from(body)

    def text(self) -> str:
        """The whole function: with index arithmetic of 32 bits where bounds prove that nothing
        leaves them, there are no tiles, extents are arguments, and indices are more than counted.
        By the compiler's figures it is no gain elsewhere.
        """
        plain = self.kernel.sizes and not any(_tiles(self.phase.body))
        return (self._text(True) if plain else None) or self._text(False) or ""

    def _text(self, short: bool) -> str | None:
        launch = self.launch
        head = (
            f'extern "C" __global__ void __launch_bounds__({launch.threads}, 1)\n'
            f"{launch.name}(const i64* __restrict__ table) {{"
        )
        if self.inside:
            head = (f"LJ void {launch.name}(const i64* const table, u8* const lj_scratch, "
                    "const i64 lj_first) {")  # fmt: skip
        tiles = tile.render_tile
        if self.pipeline is not None and self.maps is not None:
            tiles = Rendering(self.pipeline, self.maps)
        body = blocks.Body(launch.threads, launch.each, self.hints, tiles, short)
        body.lines += [f"  {line}" for line in self._declarations(body)]
        body.depth = 1
        body.local = frozenset(s.buffer.name for s in self.kernel.scratch)
        body.slices, body.offset = self.slices, self.held if self.dynamic else None
        job = blocks.name_of(self.phase.job)
        jobs = body.index(self.phase.jobs)
        first, step = ("lj_first" if self.inside else "blockIdx.x", "gridDim.x")
        if launch.each:
            first = f"({body.ix}){first} * {launch.threads} + threadIdx.x"
            step = f"({body.ix})gridDim.x * {launch.threads}"
        with body.scope(f"for ({body.ix} {job} = {first}, lj_jobs = {jobs}; {job} < lj_jobs; "
                        f"{job} += {step})"):  # fmt: skip
            body.ranged(self.phase.job, 0, self.phase.jobs)
            body.enter(self.phase.body)
            body.statements(self.phase.body)
            body.leave(self.phase.body)
        if short and not (body.fits and body.counts):
            return None
        return "\n".join([head, *body.lines, "}\n"])

    def _declarations(self, body: blocks.Body) -> Iterable[str]:
        kernel, mentioned = self.kernel, self._mentioned()
        inputs = {b.name for b in kernel.inputs}
        for k, buffer in enumerate(kernel.buffers):
            if buffer.name in mentioned:
                kind = storage_type(buffer.dtype)
                only = buffer.name in inputs
                full = f"const {kind}* __restrict__" if only else f"{kind}*"
                full = full.removesuffix(" __restrict__") if self.inside else full
                name = blocks.name_of(buffer.name)
                yield f"{full} const {name} = ({'const ' if only else ''}{kind}*)table[{k}];"
                yield f"__builtin_assume(__isGlobal({name}));"
        for k, name in enumerate(kernel.sizes, len(kernel.buffers)):
            short = "(i32)" if body.short else ""
            yield f"const {body.ix} {blocks.name_of(name)} = {short}table[{k}];"
        if self.dynamic and not self.inside:
            yield "extern __shared__ __align__(16) u8 lj_scratch[];"
        offset = 0
        for s in self.scratch:
            kind, name = storage_type(s.buffer.dtype), blocks.name_of(s.buffer.name)
            count = s.elements * parts(s.buffer.dtype)
            if self.dynamic:
                yield f"{kind}* const {name} = ({kind}*)(lj_scratch + {offset});"
            else:
                yield f"__shared__ __align__(16) {kind} {name}[{count}];"
            offset += _padded(s.elements * s.buffer.dtype.itemsize)


def _parallel(body: Iterable[object]) -> Iterable[Loop | Tile]:
    """The loops and tiles that threads share out, outermost first."""
    for stmt in body:
        if isinstance(stmt, Tile) or blocks.shared_out(stmt):
            assert isinstance(stmt, Loop | Tile), "what is shared out repeats something"
            yield stmt
        else:
            yield from _parallel(getattr(stmt, "body", ()))


def _tiles(body: Iterable[object]) -> Iterable[Tile]:
    """All tiles."""
    for stmt in body:
        if isinstance(stmt, Tile):
            yield stmt
        else:
            yield from _tiles(getattr(stmt, "body", ()))


def _threads(work: Sequence[Loop | Tile], hints: Mapping[str, Dim]) -> int:
    """The threads of a block: enough for the widest loop or tile."""
    most = WARP
    for stmt in work:
        if isinstance(stmt, Tile):
            wide: int | None = stmt.rows * stmt.cols // 2
        else:
            span = dims.substitute(stmt.end - stmt.begin, hints)
            bound = dims.bounds(span)[1]
            wide = span if isinstance(span, int) else bound
        most = max(most, MOST_THREADS if wide is None else min(MOST_THREADS, wide))
    return WARP << max(0, math.ceil(math.log2(most / WARP)))
