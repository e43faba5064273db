"""Loads and stores: contiguous, reversed, gathered, masked.

Masked-off lanes touch no memory: a load that is off as a whole, or one lane of a gather, reads
zeros of the module instead, a vector access uses the machine's masked form, a scattered store
writes to a scrap of stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lumjax import dtype as dt
from lumjax.cpu.convert import (
    Lanes,
    from_storage,
    parts,
    select,
    storage_type,
    to_storage,
    widen,
)
from lumjax.cpu.emit import Function, Reg, Scope, bits, constant, is_zero, listed, vector
from lumjax.cpu.index import Index, Indexer
from lumjax.kernel.term import Buffer
from lumjax.trace.dim import Dim

ZEROS = "@lumjax_zeros"
_ZERO_BYTES = 256
ZEROS_TEXT = f"{ZEROS} = internal constant [{_ZERO_BYTES} x i8] zeroinitializer, align 64\n"


class Memory:
    """The buffers of one function, and which open scope last wrote to each."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.pointers: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._floors: dict[str, list[Scope]] = {}
        self._sink: str | None = None

    # ---- what may have changed

    def enter(self, names: Iterable[str]) -> None:
        """A scope begins that stores to the named buffers: their loads stay inside it."""
        for name in names:
            self._floors.setdefault(name, []).append(self.f.scope)
            self.touch(name)

    def leave(self, names: Iterable[str]) -> None:
        """The scope has ended."""
        for name in names:
            self._floors[name].pop()
            self.touch(name)

    def touch(self, name: str) -> None:
        """Values loaded so far from the buffer may be stale."""
        self._versions[name] = self._versions.get(name, 0) + 1

    def _read(self, text: str, buffer: Buffer) -> str:
        floors = self._floors.get(buffer.name)
        floor = self.f.guard
        if floors and floors[-1].depth > floor.depth:
            floor = floors[-1]
        return self.f.pure(text, floor, self._versions.get(buffer.name, 0))

    # ---- addresses

    def _address(self, buffer: Buffer, terms: Sequence[Index]) -> tuple[str, Reg | None, int]:
        """(address of lane 0 but for the per-lane part, that part, stride in elements)."""
        size = parts(buffer.dtype)
        kind = storage_type(buffer.dtype)
        element = f"[{size} x {kind}]" if size > 1 else kind
        pointer = self.pointers[buffer.name]
        scalars = sorted((t.base for t in terms if t.base.lanes == 1), key=self.f.depth)
        for s in scalars:
            pointer = self.f.element(element, pointer, s)
        pointer = self.f.element(element, pointer, constant("i64", sum(t.offset for t in terms)))
        spread: Reg | None = None
        for t in terms:
            if t.base.lanes > 1:
                spread = t.base if spread is None else self.f.binary("add", spread, t.base)
        return pointer, spread, sum(t.stride for t in terms)

    def _lane_pointers(
        self, pointer: str, spread: Reg | None, stride: int, ix: Indexer, size: int
    ) -> Reg:
        """The lanes' addresses as integers."""
        base = Reg(self.f.pure(f"ptrtoint ptr {pointer} to i64"), "i64")
        if spread is None:
            steps = listed("i64", [stride * size * k for k in range(ix.lanes)])
        else:
            if stride:
                steps = listed("i64", [stride * k for k in range(ix.lanes)])
                spread = self.f.binary("add", spread, steps)
            steps = self._scaled(spread, size)
        return self.f.binary("add", self.f.splat(base, ix.lanes), steps)

    def _scaled(self, spread: Reg, size: int) -> Reg:
        shift = constant("i64", size.bit_length() - 1, spread.lanes)
        return self.f.binary("shl", spread, shift) if size > 1 else spread

    # ---- loads

    def load(
        self,
        buffer: Buffer,
        offset: Dim,
        ix: Indexer,
        condition: Reg | None,
        otherwise: Lanes | None,
    ) -> Lanes:
        """buffer[offset] where the condition holds (None: everywhere), else `otherwise`.

        The result has one lane if its address is the same in all.
        """
        pointer, spread, stride = self._address(buffer, ix.terms(offset))
        if spread is None and stride == 0:
            return self._load_uniform(buffer, pointer, condition, otherwise)
        if spread is None and abs(stride) == 1:
            regs = self._load_run(buffer, pointer, stride, ix.lanes, condition)
        else:
            regs = self._load_lanes(buffer, pointer, spread, stride, ix, condition)
        value = from_storage(self.f, buffer.dtype, regs)
        if otherwise is not None and all(
            map(is_zero, otherwise.regs)
        ):  # as masked-off lanes are already
            return value
        return self._otherwise(value, condition, otherwise)

    def _otherwise(self, value: Lanes, condition: Reg | None, otherwise: Lanes | None) -> Lanes:
        if condition is None or otherwise is None:
            return value
        lanes = max(condition.lanes, value.lanes)
        return select(self.f, self.f.splat(condition, lanes), value, otherwise)

    def _plain(self, buffer: Buffer, pointer: str) -> tuple[Reg, ...]:
        """The scalars at an address that is safe to read."""
        kind = storage_type(buffer.dtype)
        align = bits(kind) // 8
        regs: list[Reg] = []
        for k in range(parts(buffer.dtype)):
            at = self.f.element(kind, pointer, constant("i64", k))
            regs.append(Reg(self._read(f"load {kind}, ptr {at}, align {align}", buffer), kind))
        return tuple(regs)

    def _load_uniform(
        self, buffer: Buffer, pointer: str, condition: Reg | None, otherwise: Lanes | None
    ) -> Lanes:
        if condition is not None:
            safe = self.any(condition)
            pointer = self.f.pure(f"select {safe}, ptr {pointer}, ptr {ZEROS}")
        value = from_storage(self.f, buffer.dtype, self._plain(buffer, pointer))
        if (
            condition is not None
            and condition.lanes == 1
            and otherwise
            and all(map(is_zero, otherwise.regs))
        ):
            return value
        return self._otherwise(value, condition, otherwise)

    def any(self, condition: Reg) -> Reg:
        """Whether the condition holds in any lane."""
        if condition.lanes == 1:
            return condition
        kind = f"i{condition.lanes}"
        packed = self.f.pure(f"bitcast {condition} to {kind}")
        return Reg(self.f.pure(f"icmp ne {kind} {packed}, 0"), "i1")

    def _load_run(
        self, buffer: Buffer, pointer: str, stride: int, lanes: int, condition: Reg | None
    ) -> tuple[Reg, ...]:
        """Neighbouring elements, in falling order for stride -1."""
        size, kind = parts(buffer.dtype), storage_type(buffer.dtype)
        if stride < 0:
            back = constant("i64", -(lanes - 1) * size)
            pointer = self.f.element(kind, pointer, back)
        fits = lanes * buffer.dtype.itemsize <= _ZERO_BYTES
        if condition is not None and condition.lanes == 1 and fits:
            pointer = self.f.pure(f"select {condition}, ptr {pointer}, ptr {ZEROS}")
            condition = None
        mask = self._run_mask(condition, stride, lanes, size)
        whole = self._load_vector(buffer, pointer, kind, lanes * size, mask)
        order = list(range(lanes)) if stride > 0 else list(reversed(range(lanes)))
        if size == 1:
            return (whole if stride > 0 else self.f.shuffle(whole, None, order),)
        return tuple(
            self.f.shuffle(whole, None, [size * k + p for k in order]) for p in range(size)
        )

    def _run_mask(self, condition: Reg | None, stride: int, lanes: int, size: int) -> Reg | None:
        """The condition as a mask over the elements in memory order."""
        if condition is None:
            return None
        mask = self.f.splat(condition, lanes)
        if condition.lanes == 1:
            return self.f.splat(condition, lanes * size)
        order = list(range(lanes)) if stride > 0 else list(reversed(range(lanes)))
        if stride < 0 or size > 1:
            mask = self.f.shuffle(mask, None, [k for k in order for _ in range(size)])
        return mask

    def words(
        self, buffer: Buffer, offset: Dim, ix: Indexer, condition: Reg | None
    ) -> Lanes | None:
        """buffer[offset] and the element behind it, of 16 bits each, as one word; None where lanes
        are neither the same nor side by side.
        """
        pointer, spread, stride = self._address(buffer, ix.terms(offset))
        if spread is not None or stride not in (0, 2):
            return None
        if stride and condition is not None:
            condition = self.f.splat(condition, ix.lanes)
        elif condition is not None:
            pointer = self.f.pure(f"select {self.any(condition)}, ptr {pointer}, ptr {ZEROS}")
            condition = None
        lanes, align = ix.lanes if stride else 1, buffer.dtype.itemsize
        word = self._load_vector(buffer, pointer, "i32", lanes, condition, align)
        return Lanes(dt.uint32, (word,))

    def _load_vector(
        self,
        buffer: Buffer,
        pointer: str,
        kind: str,
        lanes: int,
        mask: Reg | None,
        align: int = 0,
    ) -> Reg:
        full, align = vector(kind, lanes), align or bits(kind) // 8
        if mask is None:
            return Reg(
                self._read(f"load {full}, ptr {pointer}, align {align}", buffer), kind, lanes
            )
        name = f"llvm.masked.load.{_suffix(kind, lanes)}.p0"
        self.f.module.declare(name, full, ["ptr", "i32", f"<{lanes} x i1>", full])
        call = f"call {full} @{name}(ptr {pointer}, i32 {align}, {mask}, {full} zeroinitializer)"
        return Reg(self._read(call, buffer), kind, lanes)

    def _load_lanes(
        self,
        buffer: Buffer,
        pointer: str,
        spread: Reg | None,
        stride: int,
        ix: Indexer,
        condition: Reg | None,
    ) -> tuple[Reg, ...]:
        """Elements at unrelated addresses, one by one."""
        where = self._lane_pointers(pointer, spread, stride, ix, buffer.dtype.itemsize)
        if condition is not None:
            zeros = Reg(self.f.pure(f"ptrtoint ptr {ZEROS} to i64"), "i64")
            mask = self.f.splat(condition, ix.lanes)
            where = self.f.select(mask, where, self.f.splat(zeros, ix.lanes))
        columns: list[tuple[Reg, ...]] = []
        for k in range(ix.lanes):
            at = self.f.pure(f"inttoptr {self.f.lane(where, k)} to ptr")
            columns.append(self._plain(buffer, at))
        return tuple(self.f.gather_lanes(part) for part in zip(*columns, strict=True))

    # ---- stores

    def store(
        self, buffer: Buffer, offset: Dim, ix: Indexer, value: Lanes, condition: Reg | None
    ) -> None:
        """buffer[offset] = value where the condition holds (None: everywhere)."""
        pointer, spread, stride = self._address(buffer, ix.terms(offset))
        uniform = spread is None and stride == 0 and value.lanes == 1
        if uniform and (condition is None or condition.lanes == 1):
            if condition is not None:
                pointer = self.f.pure(f"select {condition}, ptr {pointer}, ptr {self._scrap()}")
            self._put(buffer, pointer, to_storage(self.f, value))
        elif spread is None and abs(stride) == 1:
            regs = to_storage(self.f, widen(self.f, value, ix.lanes))
            self._store_run(buffer, pointer, stride, regs, condition)
        else:
            where = self._lane_pointers(pointer, spread, stride, ix, buffer.dtype.itemsize)
            if condition is not None:
                scrap = Reg(self.f.pure(f"ptrtoint ptr {self._scrap()} to i64"), "i64")
                mask = self.f.splat(condition, ix.lanes)
                where = self.f.select(mask, where, self.f.splat(scrap, ix.lanes))
            regs = to_storage(self.f, widen(self.f, value, ix.lanes))
            for k in range(ix.lanes):
                at = self.f.pure(f"inttoptr {self.f.lane(where, k)} to ptr")
                self._put(buffer, at, [self.f.lane(r, k) for r in regs])
        self.touch(buffer.name)

    def fetch(self, buffer: Buffer, offset: Dim, ix: Indexer, write: bool = False) -> None:
        """Ask for the line of lane 0 of buffer[offset]."""
        pointer, spread, _ = self._address(buffer, ix.terms(offset))
        if spread is None:
            name = "llvm.prefetch.p0"
            self.f.module.declare(name, "void", ["ptr", "i32", "i32", "i32"])
            self.f.effect(f"call void @{name}(ptr {pointer}, i32 {int(write)}, i32 3, i32 1)")

    def _scrap(self) -> str:
        if self._sink is None:
            self._sink = self.f.first("alloca [16 x i8], align 16")
        return self._sink

    def _put(self, buffer: Buffer, pointer: str, regs: Sequence[Reg]) -> None:
        kind = storage_type(buffer.dtype)
        for k, reg in enumerate(regs):
            at = self.f.element(kind, pointer, constant("i64", k))
            self.f.effect(f"store {reg}, ptr {at}, align {bits(kind) // 8}")

    def _store_run(
        self, buffer: Buffer, pointer: str, stride: int, regs: Sequence[Reg], condition: Reg | None
    ) -> None:
        size, kind, lanes = len(regs), regs[0].type, regs[0].lanes
        order = list(range(lanes)) if stride > 0 else list(reversed(range(lanes)))
        whole = regs[0]
        if size > 1 or stride < 0:
            picks = [k + p * lanes for k in order for p in range(size)]
            whole = self.f.shuffle(whole, regs[1] if size > 1 else None, picks)
        if stride < 0:
            pointer = self.f.element(kind, pointer, constant("i64", -(lanes - 1) * size))
        mask, align = self._run_mask(condition, stride, lanes, size), bits(kind) // 8
        if mask is None:
            self.f.effect(f"store {whole}, ptr {pointer}, align {align}")
            return
        name = f"llvm.masked.store.{_suffix(kind, lanes * size)}.p0"
        self.f.module.declare(name, "void", [whole.full, "ptr", "i32", mask.full])
        self.f.effect(f"call void @{name}({whole}, ptr {pointer}, i32 {align}, {mask})")


def _suffix(kind: str, lanes: int) -> str:
    return f"v{lanes}" + {"float": "f32", "double": "f64"}.get(kind, kind)
