"""The PTX executor: kernels as NVRTC made them, run on the CPU, every access checked.

    kernels = load(nvrtc.ptx(source))
    memory = Memory()
    memory.add(x), memory.add(y, written=False)
    kernels["f"].launch(memory, grid=(4,), block=(256,), args=[y.ctypes.data, x.ctypes.data])

Raises ExecutionError for a race, a missing barrier, an access outside of all buffers, a read of
what nothing has written, a misaligned access, threads that wait forever or at different places;
UnsupportedError, by name, for PTX that it does not know. It is no GPU: approximate instructions are
computed exactly, and what was never tried on one is not tested on one.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from lumjax.cpu import objects
from lumjax.cpu.real import LIBM
from lumjax.cuda import nvrtc
from lumjax.cuda.bulk import ISSUED, MOST_MOVES, MOVE, PRODUCTS
from lumjax.cuda.machine import orders_blocks, whole_block
from lumjax.cuda.meeting import readers_of, room_of
from lumjax.cuda.phases import MOST_BARRIERS, NAMED
from lumjax.cuda.support import (
    ALONE,
    BLOCK,
    CELL,
    COPY,
    DEADLOCK,
    DIVERGED,
    EARLY,
    EXPORTS,
    FAULTS,
    HANG,
    HOST,
    LANE,
    LAYOUT,
    MOST_COPIES,
    RACE,
    READERS,
    SOURCE,
    STUCK,
    THREAD,
    THREADS,
    TRAP,
    UNFENCED,
    UNFINISHED,
)
from lumjax.cuda.syntax import Array, Function, Instruction, Module, parse
from lumjax.cuda.translate import parameter_offsets, translate
from lumjax.errors import CompileError, LumjaxError
from lumjax.record import record
from lumjax.store import Store

NDArray: TypeAlias = np.ndarray[Any, Any]

FUEL = 1 << 32  # jumps back that one launch may take
MOST_THREADS, MOST_SHARED = 1024, 227 << 10
_GAP = 32  # bytes between shared arrays that belong to none
_OBJECTS = Store("ptx", 1, ".o")
_lock = threading.RLock()


class ExecutionError(LumjaxError, RuntimeError):
    """A kernel did what it must not do. `kind` is the reason in a few words."""

    kind: str = ""


# ---- memory


class Memory:
    """The buffers that launches may touch, and who touched them. Launches follow one another."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._kept: list[NDArray] = []
        self.serial = HOST + 1

    def add(self, array: NDArray, written: bool = True, writable: bool = True) -> None:
        """Let kernels touch an array: it holds something already if `written`."""
        grain = array.dtype.itemsize if array.dtype.itemsize in (1, 2, 4, 8) else 4
        self.add_bytes(array.ctypes.data, array.nbytes, grain, written, writable)
        self._kept.append(array)

    def add_bytes(
        self, address: int, size: int, grain: int = 1, written: bool = True, writable: bool = True
    ) -> None:
        """Let kernels touch bytes whose owner keeps them; elements have `grain` bytes."""
        cells = 0
        if writable and size:
            shadow = np.zeros((-(-size // grain), CELL // 4), np.uint32)
            if written:
                shadow[:, 0] = HOST
            self._kept.append(shadow)
            cells = shadow.ctypes.data
        shift = grain.bit_length() - 1
        self._rows.append((address, address + size, cells, shift, int(writable)))

    def table(
        self, more: Sequence[tuple[int, int]], blocks: int = 0
    ) -> tuple[ctypes.Array[Any], int, Any]:
        """The regions as the checks read them, with more that are only read; with what is known of
        so many blocks that wait for each other, which the last result keeps.
        """
        rows = self._rows + [(a, a + size, 0, 0, 0) for a, size in more]
        readers, kept = readers_of(rows, blocks) if blocks else ([0] * len(rows), {})
        data = b"".join(
            struct.pack("<QQQIIQ", *row, r) for row, r in zip(rows, readers, strict=True)
        )
        return ctypes.create_string_buffer(data, max(8, len(data))), len(rows), kept

    def where(self, address: int) -> str:
        """An address for people."""
        for k, (begin, end, *_) in enumerate(self._rows):
            if begin <= address < end:
                return f"byte {address - begin} of buffer {k} ({end - begin} bytes)"
        near = [(address - end, k) for k, (_, end, *_) in enumerate(self._rows) if address >= end]
        if near and min(near)[0] < 1 << 12:
            past, k = min(near)
            return f"{past} bytes behind buffer {k}"
        return f"address {address:#x}"


# ---- code


def _passes(module: Any, machine: Any, llvm: Any) -> None:
    """Registers become values, and what is computed twice is computed once."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    manager = llvm.create_new_module_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    manager.run(module, builder)


@cache
def _machine(arch: str, features: str, effort: int) -> Any:
    llvm = objects.library()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=arch, features=features, opt=effort, codemodel="jitdefault", jit=True
    )


def _object(text: str, effort: int) -> bytes:
    """Native code for a module's text, from the disk if it has been made before. Little `effort`
    is right for kernels: most of their time goes into checks, and their compilation.
    """
    target = objects.host_target()
    parts = (target.arch, target.features, objects.version(), str(effort), text)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    kept = _OBJECTS.read(key)
    if kept is not None:
        return kept
    llvm = objects.library()
    machine = _machine(target.arch, target.features, effort)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
        _passes(module, machine, llvm)
        made = bytes(machine.emit_object(module))
    except RuntimeError as error:
        raise CompileError(
            operation="translating PTX",
            required="LLVM IR that LLVM accepts",
            got=str(error).strip()[:400],
            fix="please report this as a bug, with the kernel",
        ) from error
    _OBJECTS.write(key, made)
    return made


@cache
def _support() -> dict[str, int]:
    """The scheduler's and the checks' addresses: C that went the way of every kernel."""
    text = nvrtc.ptx(SOURCE, options=("-rdc=true",))
    made = translate(parse(text), {}, {}, {}, bare=True)
    found = objects.load(_object(made.text, 2), EXPORTS, _libm(made.imports))
    return dict(zip(EXPORTS, found, strict=True))


def _libm(names: Sequence[str]) -> dict[str, int]:
    plain = [n.removeprefix(LIBM) for n in names if n.startswith(LIBM)]
    return objects.libm_symbols(plain)


@record
class _Layout:
    """Where the arrays of one kernel are: offsets in shared memory, which array each byte of that
    belongs to, offsets in a thread's local memory.
    """

    shared: Mapping[str, int]
    shared_map: bytes
    dynamic: int  # the offset of what the launch adds, -1 if it may not
    local: Mapping[str, int]
    local_bytes: int


def _layout(module: Module, kernel: Function) -> _Layout:
    """What a kernel has: its own arrays, the module's, those of all functions that it may call."""
    functions = [f for f in module.functions.values() if not f.entry]
    shared: dict[str, int] = {}
    chart = bytearray()
    arrays = module.arrays + [a for f in (*functions, kernel) for a in f.arrays]
    fixed = [a for a in arrays if a.space == "shared" and a.size]
    for number, array in enumerate(fixed):
        at = _up(len(chart), array.align)
        chart += bytes(at - len(chart)) + bytes([1 + number % 254]) * array.size
        chart += bytes(_GAP)
        shared[array.name] = at
    dynamic = -1
    for array in arrays:
        if array.space == "shared" and not array.size:
            dynamic = shared[array.name] = _up(len(chart), max(128, array.align))
    local: dict[str, int] = {}
    size = 0
    for function in (*functions, kernel):
        for array in function.arrays:
            if array.space == "local":
                size = _up(size, array.align)
                local[f"{function.name} {array.name}"] = size
                size += array.size
    return _Layout(shared, bytes(chart), dynamic, local, size)


def _up(size: int, align: int) -> int:
    return -(-size // align) * align


_loaded: dict[str, dict[str, Kernel]] = {}


def load(text: str) -> dict[str, Kernel]:
    """The kernels of a PTX text, by name. Equal texts are loaded once.

    Raises UnsupportedError, with its name, for an instruction that the executor doesn't know;
    CompileError where NVRTC, which makes the executor itself, is missing.
    """
    with _lock:
        if text not in _loaded:
            _loaded[text] = _load(text)
        return _loaded[text]


def _load(text: str) -> dict[str, Kernel]:
    module = parse(text)
    kernels = [f for f in module.functions.values() if f.entry]
    layouts = [_layout(module, f) for f in kernels]
    arrays = [a for a in module.arrays if a.space in ("global", "const")]
    symbols = {a.name: f"lumjax_array_{k}" for k, a in enumerate(arrays)}
    shared = {n: at for layout in layouts for n, at in layout.shared.items()}
    local = {n: at for layout in layouts for n, at in layout.local.items()}
    made = translate(module, symbols, shared, local)
    imports = {n: a for n, a in _support().items() if n in made.imports} | _libm(made.imports)
    memory = [_aligned(array) for array in arrays]
    for array, held in zip(arrays, memory, strict=True):
        imports[symbols[array.name]] = held.ctypes.data
    data = tuple((held.ctypes.data, held.size) for held in memory)
    names = [f.name for f in kernels]
    addresses = objects.load(_object(made.text, 0), names, imports)
    return {
        f.name: Kernel(
            f.name,
            address,
            tuple((a.size, at) for a, at in parameter_offsets(f)),
            made.frames[f.name],
            layout,
            data,
            tuple(memory),
            COPY * MOST_COPIES * _has(module, f, _copies),
            _has(module, f, _orders),
            _has(module, f, _multiplies),
            _has(module, f, orders_blocks),
        )
        for f, address, layout in zip(kernels, addresses, layouts, strict=True)
    }


def _has(module: Module, kernel: Function, what: Callable[[Instruction], bool]) -> bool:
    """Whether a kernel, or a function that it may call, has such an instruction."""
    functions = [kernel, *(f for f in module.functions.values() if not f.entry)]
    return any(isinstance(item, Instruction) and what(item) for f in functions for item in f.body)


def _copies(i: Instruction) -> bool:
    return i.parts[:2] == ("cp", "async") and i.parts[2] != "bulk"


def _orders(i: Instruction) -> bool:
    """Whether more is ordered than whole blocks and warps."""
    parts = i.parts[0] in ("bar", "barrier") and "warp" not in i.parts and not whole_block(i)
    return parts or i.parts[0] in ("mbarrier", "wgmma")


def _multiplies(i: Instruction) -> bool:
    return i.parts[0] == "wgmma"


def _aligned(array: Array) -> NDArray:
    room = np.zeros(array.size + 64, np.uint8)
    begin = -room.ctypes.data % 64
    view = room[begin : begin + array.size]
    if array.data is not None:
        view[:] = np.frombuffer(array.data, np.uint8)
    return view


# ---- launches

_RUN = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)


@record(eq=False)
class Kernel:
    """A kernel in memory."""

    name: str
    address: int
    params: tuple[tuple[int, int], ...]  # (bytes, offset) of each
    frame: int
    layout: _Layout
    data: tuple[tuple[int, int], ...]
    kept: tuple[Any, ...]
    copies: int  # bytes for the copies that a thread has begun
    ordered: bool  # whether it has barriers of parts of a block
    products: bool  # whether warpgroups multiply
    meets: bool  # whether blocks wait for each other

    def launch(
        self,
        memory: Memory,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[int | float | np.generic],
        shared: int = 0,
        seed: int = 0,
        fuel: int = FUEL,
    ) -> None:
        """Run all blocks one after the other, or together if they wait for each other. `args`:
        addresses, or NumPy scalars of the parameters' types. `shared`: bytes of memory that the
        launch adds. The seed chooses the order of blocks, warps and lanes: 0 is theirs, 1 the
        reverse.

        Raises ExecutionError at the first thing that is wrong.
        """
        grid, block = ((*s, 1, 1)[:3] for s in (grid, block))
        count, blocks = math.prod(block), math.prod(grid)
        self._check(count, blocks, shared)
        chart = self.layout.shared_map
        if shared:
            chart = chart.ljust(self.layout.dynamic, b"\0") + b"\xff" * shared
        chart_bytes = ctypes.create_string_buffer(chart, max(1, len(chart)))
        table, regions, _kept = memory.table(self.data, blocks * self.meets)
        params = self._packed(args)
        meetings = room_of(blocks) if self.meets else None
        common = {
            "params": ctypes.addressof(params), "step": self.address,
            "regions": ctypes.addressof(table), "shared_map": ctypes.addressof(chart_bytes),
            "fuel": fuel, "first": memory.serial, "count": count,
            "local_bytes": self.layout.local_bytes, "shared_bytes": len(chart),
            "region_count": regions, "seed": seed, "blocks": blocks,
            "grid": 0 if meetings is None else meetings.ctypes.data,
            **{f"ntid_{c}": n for c, n in zip("xyz", block, strict=True)},
            **{f"nctaid_{c}": n for c, n in zip("xyz", grid, strict=True)},
        }  # fmt: skip
        own = [_Block(self, count, len(chart), blocks) for _ in range(blocks if self.meets else 1)]
        state = _Fields([common | b.fields for b in own])
        memory.serial += blocks
        run = _support()["lumjax_run_grid" if self.meets else "lumjax_run"]
        if _RUN(run)(ctypes.addressof(state.data)):
            raise self._error(state, memory)

    def _check(self, count: int, blocks: int, shared: int) -> None:
        static = len(self.layout.shared_map)
        got = None
        if not 1 <= count <= MOST_THREADS:
            got = f"{count} threads in a block"
        elif blocks < 1:
            got = f"{blocks} blocks"
        elif static + shared > MOST_SHARED or static > 48 << 10:
            got = f"{static} + {shared} bytes of shared memory"
        elif shared and self.layout.dynamic < 0:
            got = f"{shared} bytes of shared memory for a kernel that declares none"
        if got is not None:
            raise ExecutionError(
                operation=f"launching {self.name}",
                required="1 to 1024 threads, at least a block, at most 48 KiB of static and 227 KiB"
                " of all shared memory",
                got=got,
                fix="launch it as its template says",
            )

    def _packed(self, args: Sequence[int | float | np.generic]) -> ctypes.Array[Any]:
        """The parameters as a kernel finds them."""
        if len(args) != len(self.params):
            raise ExecutionError(
                operation=f"launching {self.name}",
                required=f"{len(self.params)} arguments",
                got=f"{len(args)}",
                fix="give one for each parameter",
            )
        size = max([at + n for n, at in self.params], default=0)
        data = bytearray(size)
        for value, (room, at) in zip(args, self.params, strict=True):
            scalar = value if isinstance(value, np.generic) else np.asarray(value)[()]
            raw = scalar.tobytes()
            if len(raw) != room:
                raise ExecutionError(
                    operation=f"launching {self.name}",
                    required=f"an argument of {room} bytes",
                    got=f"{value!r} of {len(raw)}",
                    fix="give NumPy scalars of the parameters' types",
                )
            data[at : at + room] = raw
        return ctypes.create_string_buffer(bytes(data), max(8, size))

    def _error(self, state: _Fields, memory: Memory) -> ExecutionError:
        fault, line = state["fault"], state["fault_line"]
        thread, block, other = state["fault_thread"], state["fault_block"], state["fault_other"]
        where = f"thread {thread} of block {block}" + (f", line {line}" if line else "")
        got = FAULTS[fault]
        if fault not in _OF_NO_PLACE:
            kind, space = state["fault_kind"] & 255, state["fault_kind"] >> 8
            verb = ("reads", "writes", "updates")[kind]
            address = state["fault_address"]
            places = {2: f"byte {address} of shared memory", 3: "local memory"}
            place = places.get(space) or memory.where(address)
            got = f"{verb} {state['fault_size']} bytes at {place}, which {got}"
        if fault == RACE:
            another = f"block {other & 0x7FFFFFFF}" if other >> 31 else f"thread {other}"
            got += " (others read it)" if other == READERS else f" (last written by {another})"
        error = ExecutionError(
            operation=f"kernel {self.name}, {where}",
            required="accesses inside of buffers, of what was written, ordered by barriers",
            got=got,
            fix="this is a fault of the kernel, not of what was computed with it",
        )
        error.kind = FAULTS[fault]
        return error


_OF_NO_PLACE = (ALONE, DEADLOCK, DIVERGED, LANE, HANG, TRAP, STUCK, UNFINISHED, UNFENCED, LAYOUT,
                THREADS, EARLY)  # fmt: skip


class _Orders:
    """What an ordered kernel's block keeps: who reads each byte of shared memory, barriers, copies
    that are under way, what its warpgroups have asked for.
    """

    def __init__(self, count: int, shared: int, kernel: Kernel) -> None:
        warps = -(-count // 32)
        each = 40 + 16 * vector_length(count, True)
        rooms = {
            "reads": 12 * warps * shared + 8, "barriers": each * (MOST_BARRIERS + NAMED),
            "moves": MOVE * MOST_MOVES, "issued": ISSUED * kernel.products,
        }  # fmt: skip
        self._kept = {name: np.zeros(size // 8 + 1, np.uint64) for name, size in rooms.items()}
        self.fields = {n: x.ctypes.data for n, x in self._kept.items() if rooms[n]}
        self.fields["warps"] = warps


def vector_length(count: int, ordered: bool) -> int:
    """The clocks that a thread keeps: of its warp; or of all threads, of copies by their barriers,
    of the products of warps.
    """
    return _up(count, 32) + MOST_BARRIERS + 32 if ordered else 32


class _Block:
    """What a block has of its own: shared memory with marks, threads, what orders them."""

    def __init__(self, kernel: Kernel, count: int, shared: int, blocks: int) -> None:
        room = np.zeros(_up(shared, 8) + 128, np.uint8)
        cells = np.zeros((shared, CELL // 4), np.uint32)
        threads = _Threads(count, kernel, blocks * kernel.meets)
        orders = _Orders(count, shared, kernel) if kernel.ordered else None
        self._kept = room, cells, threads, orders
        self.fields = {
            "shared": _up(room.ctypes.data, 128), "shared_cells": cells.ctypes.data,
            "threads": threads.address, "stride": threads.stride, "length": threads.length,
            **(orders.fields if orders else {}),
        }  # fmt: skip


class _Threads:
    """What the threads of a block know of themselves, what they keep while they wait, the copies
    they have begun, and their local memory with marks of what is written.
    """

    def __init__(self, count: int, kernel: Kernel, blocks: int) -> None:
        local = _up(kernel.layout.local_bytes, 16)
        self.length = vector_length(count, kernel.ordered)
        rooms = {
            "frame": _up(THREAD.size + kernel.frame, 16) - THREAD.size, "copies": kernel.copies,
            "known": 4 * self.length, "seen": 4 * self.length * kernel.ordered,
            "products": PRODUCTS * kernel.products, "local": 2 * local,
            "met": _up(4 * blocks, 8),
        }  # fmt: skip
        self.stride = THREAD.size + sum(rooms.values())
        self._room = np.zeros(self.stride * count + 16, np.uint8)
        self._values = np.zeros((-(-count // 32), 32), np.uint64)  # shown to the other lanes
        self.address = _up(self._room.ctypes.data, 16)
        numbers = np.arange(count, dtype=np.uint64)
        rows = np.uint64(self.address) + np.uint64(self.stride) * numbers
        fields = np.zeros((count, self.stride // 8), np.uint64)
        places = {"values": np.uint64(self._values.ctypes.data) + 256 * (numbers // 32)}
        begins = accumulate(rooms.values(), initial=THREAD.size)
        for (name, size), begin in zip(rooms.items(), begins, strict=False):
            if size or name == "local":
                places[name] = rows + np.uint64(begin)
        for name, value in places.items():
            fields[:, THREAD.fields[name][0] // 8] = value
        begin = self.address - self._room.ctypes.data
        self._room[begin : begin + self.stride * count] = fields.view(np.uint8).reshape(-1)


class _Fields:
    """The structures of blocks, by names of fields; what is read is the first one's."""

    def __init__(self, blocks: Sequence[Mapping[str, int]]) -> None:
        self.data = ctypes.create_string_buffer(BLOCK.size * len(blocks))
        for k, values in enumerate(blocks):
            for name, value in values.items():
                offset, kind = BLOCK.fields[name]
                form = "<Q" if kind == "i64" else "<I"
                struct.pack_into(form, self.data, BLOCK.size * k + offset, value)

    def __getitem__(self, name: str) -> int:
        offset, kind = BLOCK.fields[name]
        (value,) = struct.unpack_from("<Q" if kind == "i64" else "<I", self.data, offset)
        return int(value)
