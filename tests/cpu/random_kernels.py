"""Random kernels whose accesses are in bounds by construction or masked."""

from __future__ import annotations

import random

import numpy as np

import lumjax.dtype as dt
from lumjax.kernel.emit import CAST
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    If,
    IndexValue,
    Let,
    LoadValue,
    Loop,
    LoopKind,
    Ref,
    Scratch,
    StoreStmt,
)
from lumjax.kernel.term import Buffer
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.cpu.kernels import const, kernel, op, sym

DTYPES = [
    dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.bool_, dt.int8, dt.uint8, dt.int16,
    dt.uint16, dt.int32, dt.uint32, dt.int64, dt.uint64,
]  # fmt: skip
FLOAT_OPS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
INT_OPS = {**FLOAT_OPS, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
BOOL_OPS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
FLOAT_SUMS = [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN]
INT_SUMS = [*FLOAT_SUMS, ReduceOp.PROD, ReduceOp.AND, ReduceOp.OR, ReduceOp.XOR]
BOOL_SUMS = [ReduceOp.AND, ReduceOp.OR, ReduceOp.XOR, ReduceOp.MAX, ReduceOp.MIN]


def array(rng, size, dtype):
    """Small whole numbers, so that float sums are exact in any order."""
    if dtype == dt.bool_:
        return rng.integers(0, 2, size).astype(bool)
    low = 0 if dtype in dt.UNSIGNED else -4
    return rng.integers(low, 5, size).astype(dtype)


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.inputs, self.scratch, self.arrays = [], [], {}
        self.names = 0
        self.dtype = self.r.choice(DTYPES)
        self.symbolic = self.r.random() < 0.5
        self.sizes = {}

    def fresh(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def extent(self):
        n = self.r.choice([0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40, 70])
        if not self.symbolic:
            return n, n
        name = self.fresh("n")
        self.sizes[name] = n
        return sym(name), n

    def buffer(self, size, dtype, data=None):
        b = Buffer(self.fresh("x"), (size,), dtype)
        self.inputs.append(b)
        self.arrays[b.name] = array(self.rng, size, dtype) if data is None else data
        return b

    def index(self, loops, size):
        """An affine or messier index, and the mask that keeps it in 0..size-1."""
        at = self.r.choice([0, 0, 1, -2, 5])
        for var, n, _ in loops:
            c = self.r.choice([0, 1, 1, 1, -1, 2, 7])
            at = at + c * var + (n - 1 if c == -1 else 0)
        if self.r.random() < 0.2:
            at = dims.floor_divide(at, self.r.choice([2, 3, 8]))
        if self.r.random() < 0.2:
            at = dims.remainder(at, self.r.choice([3, 4, 10]))
        if self.r.random() < 0.1:
            at = dims.minimum(at, self.r.choice([4, 9]))
        mask = dims.logical_and(dims.less_equal(0, at), dims.less(at, size))
        return at, mask

    def load(self, loops, dtype):
        size = self.r.choice([1, 6, 64, 300])
        b = self.buffer(size, dtype)
        at, mask = self.index(loops, size)
        fill = None if isinstance(mask, int) and mask else const(dtype, self.r.choice([0, 1, 3]))
        return LoadValue(b, at, mask, fill)

    def gather(self, loops, dtype, body):
        """x[idx[...]] through an integer Let."""
        which = self.r.choice([dt.int32, dt.int64, dt.uint8, dt.uint32])
        n = self.r.choice([1, 20])
        data = self.rng.integers(0, 25, 64).astype(which)
        name = self.fresh("g")
        idx = self.buffer(64, which, data)
        at, mask = self.index(loops, 64)
        body.append(Let(name, LoadValue(idx, at, mask, const(which, 0))))
        g = sym(name, None)
        inside = dims.less(g, n)
        if self.r.random() < 0.5:
            g, inside = dims.minimum(dims.maximum(g, 0), n - 1), 1
        return LoadValue(self.buffer(n, dtype), g, inside, const(dtype, 2))

    def value(self, loops, dtype, body, depth=2):
        r = self.r.random()
        if depth == 0 or r < 0.2:
            return self.load(loops, dtype)
        if r < 0.3:
            return self.gather(loops, dtype, body)
        if r < 0.4 and loops:
            at = dims.remainder(self.index(loops, 1)[0], 5)
            return IndexValue(at, dtype)
        if r < 0.5:
            other = self.r.choice([dt.int32, dt.float32, dt.bool_, dt.uint8, dt.int64])
            if other != dtype:
                return ApplyValue(CAST, (self.value(loops, other, body, depth - 1),), dtype)
        if r < 0.6:
            which = self.value(loops, dt.bool_, body, depth - 1)
            a, b = (self.value(loops, dtype, body, depth - 1) for _ in range(2))
            return ApplyValue(op("select", 3, np.where), (which, a, b), dtype)
        ops = BOOL_OPS if dtype == dt.bool_ else INT_OPS if dtype in dt.INTEGER else FLOAT_OPS
        name = self.r.choice(sorted(ops))
        a, b = (self.value(loops, dtype, body, depth - 1) for _ in range(2))
        return ApplyValue(op(name, 2, ops[name]), (a, b), dtype)

    def named(self, value, body):
        if self.r.random() < 0.5:
            name = self.fresh("v")
            body.append(Let(name, value))
            return Ref(name, value.dtype)
        return value

    def reduction(self, loops, body):
        """An accumulator fed by a loop over a new variable; its value."""
        dtype = dt.accumulation_dtype(self.dtype)
        kinds = BOOL_SUMS if dtype == dt.bool_ else INT_SUMS if dtype in dt.INTEGER else FLOAT_SUMS
        kind, name = self.r.choice(kinds), self.fresh("s")
        body.append(Accumulator(name, dtype, kind, const(dtype, self.r.choice([0, 1]))))
        inner, leaf = [], [Accumulate(name, self.value(loops, dtype, []))]
        extent, n = self.extent()
        var = sym(self.fresh("k"), 0)
        below = [*loops, (var, n, extent)]
        lets = []
        leaf = [Accumulate(name, self.value(below, dtype, lets))]
        inner = [*lets, *leaf]
        if self.r.random() < 0.3:
            inner = [If(dims.less(dims.remainder(var, 3), 2), tuple(inner))]
        loop = Loop(var.name, 0, extent, 1, self.r.choice(list(LoopKind)), tuple(inner))
        if self.r.random() < 0.4:
            outer, _ = self.extent()
            loop = Loop(self.fresh("k"), 0, outer, 1, LoopKind.SERIAL, (loop,))
        body.append(loop)
        value = Ref(name, dtype)
        return value if dtype == self.dtype else ApplyValue(CAST, (value,), self.dtype)

    def parked(self, value, body):
        """The value added to itself by way of scratch memory, over a loop that rewrites it."""
        size = self.r.choice([3, 8, 19])
        b = Buffer(self.fresh("tmp"), (size,), self.dtype)
        self.scratch.append(Scratch(b, size))
        name, i, k = self.fresh("v"), sym(self.fresh("p")), sym(self.fresh("q"))
        body.append(Let(name, value))
        body.append(
            Loop(i.name, 0, size, 1, LoopKind.VECTOR, (StoreStmt(b, i, Ref(name, value.dtype)),))
        )
        fold = "or" if self.dtype == dt.bool_ else "max"
        back = LoadValue(b, self.r.choice([i, size - 1 - i]))
        step = ApplyValue(op(fold, 2, np.bitwise_or if fold == "or" else np.maximum), (
            back, IndexValue(k, self.dtype),
        ), self.dtype)  # fmt: skip
        again = Loop(i.name, 0, size, 1, self.r.choice(list(LoopKind)), (StoreStmt(b, i, step),))
        body.append(
            Loop(k.name, 0, 3, 1, LoopKind.SERIAL, (again, StoreStmt(b, 0, LoadValue(b, 1))))
        )
        return LoadValue(b, self.r.choice([0, 1, size - 1]))

    def build(self):
        loops, extents = [], []
        for _ in range(self.r.choice([1, 1, 2])):
            extent, n = self.extent()
            loops.append((sym(self.fresh("i"), 0), n, extent))
            extents.append(n)
        total = int(np.prod(extents))
        body = []
        if self.r.random() < 0.5:
            value = self.reduction(loops, body)
        else:
            value = self.value(loops, self.dtype, body)
        if self.r.random() < 0.3:
            value = self.parked(value, body)
        value = self.named(value, body)
        at, step = 0, self.r.choice([1, 1, 1, 2, -1])
        for var, n, _ in loops:
            at = at * n + var
        at = at * step if step > 0 else total - 1 - at
        size = max(1, total) * abs(step)
        out = Buffer("out", (size,), self.dtype)
        self.arrays["out"] = np.zeros(size, self.dtype)
        body.append(StoreStmt(out, at, value, self.r.choice([1, dims.less(loops[-1][0], 9)])))
        kinds = [LoopKind.VECTOR, LoopKind.SERIAL, LoopKind.UNROLL]
        for depth, (var, _, extent) in enumerate(reversed(loops)):
            kind = self.r.choice(kinds if depth else [LoopKind.VECTOR] * 3 + kinds)
            if self.scratch:  # iterations that share scratch do not run side by side
                kind = LoopKind.SERIAL
            body = [Loop(var.name, 0, extent, 1, kind, tuple(body))]
        return kernel(
            body,
            [out],
            self.inputs,
            scratch=self.scratch,
            sizes=tuple(self.sizes),
            extents=tuple(self.sizes.values()),
        )
