"""The sides of a contraction on their way into shared memory, slice by slice of the sum.

Elements that are copied as they lie go by asynchronous copies, 16 bytes at a time where they are
aligned, while slices before them are multiplied. Others, which may be any terms, are evaluated and
stored by threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from lumjax.cuda.blocks import Body, name_of
from lumjax.cuda.packs import same
from lumjax.cuda.scalar import cast, rounded, size_of, storage_type, stored
from lumjax.kernel import ir
from lumjax.kernel.ir import LoadValue, Tile
from lumjax.record import record
from lumjax.trace import dim as dims

WIDE = 16  # bytes of one copy


@record
class Side:
    """One side: its elements `value` along `var` from `first` to below `end`, of which `count` are
    in shared memory. `deep`: there, terms of the sum lie side by side.
    """

    value: ir.Value
    var: str
    first: str
    end: str
    count: int
    kind: str  # C type of an element in shared memory
    deep: bool
    name: str

    def extents(self, depth: int) -> tuple[int, int]:
        """The shape of a slice in shared memory. Rows begin 16 bytes apart from where they would:
        then those side by side lie in different banks.
        """
        outer, inner = (self.count, depth) if self.deep else (depth, self.count)
        unit = WIDE // size_of(self.kind)
        return outer, -(-inner // unit) * unit + unit

    def size(self, depth: int) -> int:
        """The bytes of a slice."""
        return math.prod(self.extents(depth)) * size_of(self.kind)

    def cell(self, slot: str, at: str, place: str) -> str:
        """The element of a slice at a depth and a place along `var`."""
        inner = f"[{place}][{at}]" if self.deep else f"[{at}][{place}]"
        return f"{self.name}[{slot}]{inner}"


class Staging:
    """The lines that bring slices of `depth` terms of a tile's sum into shared memory."""

    def __init__(self, body: Body, stmt: Tile, sides: Sequence[Side], depth: int) -> None:
        self.body, self.stmt, self.sides, self.depth = body, stmt, sides, depth
        self.extent = math.prod((e for _, e in stmt.k), start=1)
        self.total = body.fresh("depth")
        self.wide: dict[str, tuple[str, str]] = {}  # by side: a condition, an aligned address
        self.asynchronous = any(_copied(body, s) is not None for s in sides)

    def prepare(self) -> None:
        """What is known before the first slice."""
        body = self.body
        body.add(f"const i64 {self.total} = {body.index(self.extent)};")
        for side in self.sides:
            load = _copied(body, side)
            if load is not None and self._run(side, load):
                self._wide(side, load)

    def stage(self, slot: str, begin: str) -> None:
        """One slice of all sides."""
        for side in self.sides:
            load = _copied(self.body, side)
            if load is None:
                self._evaluated(side, slot, begin)
            elif side.name not in self.wide:
                self._one_by_one(side, load, slot, begin)
            else:
                with self.body.scope(f"if ({self.wide[side.name][0]})"):
                    self._by_sixteen(side, load, slot, begin)
                with self.body.scope("else"):
                    self._one_by_one(side, load, slot, begin)

    # ---- the three ways

    def _evaluated(self, side: Side, slot: str, begin: str) -> None:
        """Elements computed by threads; zeros outside."""
        body = self.body
        for at, place in self._cells(side):
            held = body.fresh("held")
            body.add(f"{side.kind} {held} = 0;")
            with body.scope(f"if ({self._inside(side, begin, at)})"):
                self.positions(f"{begin} + {at}")
                value = body.value(side.value)
                if side.kind == "u16":
                    found = stored(value)[0]
                else:
                    found = cast(rounded(value), self.stmt.dtype).text
                body.add(f"{held} = {found};")
            body.add(f"{side.cell(slot, at, place)} = {held};")

    def _one_by_one(self, side: Side, load: LoadValue, slot: str, begin: str) -> None:
        """A copy of each element; 16-bit floats are too small for it."""
        size = size_of(side.kind)
        if size < 4:
            self._evaluated(side, slot, begin)
            return
        body, buffer = self.body, name_of(load.buffer.name)
        for at, place in self._cells(side):
            inside = body.fresh("inside")
            body.add(f"const bool {inside} = {self._inside(side, begin, at)};")
            self.positions(f"{begin} + {at}")
            place_of = f"&{side.cell(slot, at, place)}"
            source = f"{buffer} + ({inside} ? {body.index(load.offset)} : 0)"
            body.add(f"lj_copy<{size}>({place_of}, {source}, {inside} ? {size} : 0);")

    def _by_sixteen(self, side: Side, load: LoadValue, slot: str, begin: str) -> None:
        """Copies of 16 bytes, of which those outside are zero."""
        body, size = self.body, size_of(side.kind)
        unit, buffer = WIDE // size, name_of(load.buffer.name)
        for at, place in self._cells(side, unit):
            left, count = body.fresh("left"), body.fresh("count")
            name = name_of(side.var)
            rest = f"{self.total} - ({begin} + {at})", f"{side.end} - {name}"
            test = f"{name} < {side.end}", f"{begin} + {at} < {self.total}"
            body.add(f"const i64 {left} = {test[not side.deep]} ? {rest[not side.deep]} : 0;")
            body.add(
                f"const int {count} = {left} < 0 ? 0 : {left} < {unit} ? (int){left} : {unit};"
            )
            self.positions(f"{begin} + {at}")
            source = f"{count} ? {buffer} + {body.index(load.offset)} : {self.wide[side.name][1]}"
            place_of = f"&{side.cell(slot, at, place)}"
            body.add(f"lj_copy<{WIDE}>({place_of}, {source}, {size} * {count});")

    # ---- places

    def _cells(self, side: Side, unit: int = 1) -> Iterator[tuple[str, str]]:
        """A loop over a slice, `unit` elements at a time: the C names of a depth and a place. What
        lies side by side in memory goes to threads side by side.
        """
        body, cell = self.body, self.body.fresh("cell")
        at, place = body.fresh("at"), body.fresh("place")
        deep = side.deep or (unit == 1 and self._read_deep(side))
        inner = (self.depth if deep else side.count) // unit
        total = inner * (side.count if deep else self.depth)
        fast, slow = f"{cell} % {inner}", f"{cell} / {inner}"
        if unit > 1:
            fast = f"{fast} * {unit}"
        bounds(body, self.stmt)
        body.add("#pragma unroll 1")  # copies go on by themselves; addresses would take registers
        with body.scope(f"for (int {cell} = threadIdx.x; {cell} < {total}; "
                        f"{cell} += {body.threads})"):  # fmt: skip
            names = (at, place) if deep else (place, at)
            body.add(f"const int {names[0]} = {fast}, {names[1]} = {slow};")
            forget(body, side.var)
            body.add(f"const i64 {name_of(side.var)} = {side.first} + {place};")
            yield at, place

    def _inside(self, side: Side, begin: str, at: str) -> str:
        return f"{name_of(side.var)} < {side.end} && {begin} + {at} < {self.total}"

    def _read_deep(self, side: Side) -> bool:
        """Whether a side is read along the sum."""
        return bool(self.stmt.k) and any(
            same(dims.coefficient(n.offset, self.stmt.k[-1][0]), 1) for n in loads_of(side.value)
        )

    def positions(self, flat: str) -> None:
        """The variables of the sum, from their number."""
        body, rest = self.body, self.body.fresh("k")
        body.add(f"i64 {rest} = {flat};")
        for number_, (var, extent) in reversed(list(enumerate(self.stmt.k))):
            forget(body, var)
            name = name_of(var)
            if number_ == 0:
                body.add(f"const i64 {name} = {rest};")
            else:
                bound, short = body.index(extent), body.interval(self.extent)[1]
                if short is not None and short < 1 << 31:
                    body.add(f"const i64 {name} = (u32){rest} % (u32){bound};")
                    body.add(f"{rest} = (u32){rest} / (u32){bound};")
                else:
                    body.add(f"const i64 {name} = lj_floor_mod({rest}, {bound});")
                    body.add(f"{rest} = lj_floor_div({rest}, {bound});")

    # ---- copies of 16 bytes

    def _run(self, side: Side, load: LoadValue) -> bool:
        """Whether elements that are side by side in shared memory are so where they come from."""
        unit = WIDE // size_of(side.kind)
        if not side.deep:
            return same(dims.coefficient(load.offset, side.var), 1) and side.count % unit == 0
        if not self.stmt.k or not same(dims.coefficient(load.offset, self.stmt.k[-1][0]), 1):
            return False
        last = self.stmt.k[-1][1]
        return len(self.stmt.k) == 1 or (isinstance(last, int) and last % unit == 0)

    def _wide(self, side: Side, load: LoadValue) -> None:
        """When all copies are aligned: the first one is, and all steps are multiples."""
        body, unit = self.body, WIDE // size_of(side.kind)
        run = self.stmt.k[-1][0] if side.deep else side.var
        steps = [
            dims.coefficient(load.offset, v) for v in (side.var, *(k for k, _ in self.stmt.k))
            if v != run
        ]  # fmt: skip
        if any(s is None or (isinstance(s, int) and s % unit) for s in steps):
            return
        saved = body.symbols.copy()
        body.symbols |= {side.var: side.first, **{k: "0" for k, _ in self.stmt.k}}
        base, test = body.fresh("base"), body.fresh("wide")
        buffer = name_of(load.buffer.name)
        body.add(f"const {side.kind}* const {base} = {buffer} + {body.index(load.offset)};")
        body.symbols = saved
        odd = [f"{body.index(s)} % {unit} == 0" for s in steps if not isinstance(s, int | None)]
        tests = [f"lj_aligned<{side.kind}, {unit}>({base})", *dict.fromkeys(odd)]
        body.add(f"const bool {test} = {' && '.join(tests)};")
        self.wide[side.name] = test, base


def bounds(body: Body, stmt: Tile) -> None:
    """What the variables of a tile are bounded by."""
    body.ranged(stmt.m, stmt.m0, stmt.m_end)
    body.ranged(stmt.n, stmt.n0, stmt.n_end)
    for var, extent in stmt.k:
        body.ranged(var, 0, extent)


def forget(body: Body, name: str) -> None:
    """A name is about to be declared anew."""
    body.symbols.pop(name, None)
    body.values.pop(name, None)


def loads_of(value: ir.Value) -> list[LoadValue]:
    """What a value reads."""
    found: list[LoadValue] = []
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, LoadValue):
            found.append(node)
        stack += getattr(node, "args", ())
    return found


def _copied(body: Body, side: Side) -> LoadValue | None:
    """The load whose elements are copied as they are; None if there is something to compute."""
    value = side.value
    if not isinstance(value, LoadValue) or not isinstance(value.mask, int) or not value.mask:
        return None
    if value.buffer.name in body.local or storage_type(value.buffer.dtype) != side.kind:
        return None
    return value if size_of(side.kind) in (2, 4, 8) and side.kind != "bool" else None
