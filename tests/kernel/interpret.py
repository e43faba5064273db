"""A scalar interpreter of Kernel IR, as slow and as plain as can be: the tests' second opinion on the IR."""

from __future__ import annotations

import math

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel import ir
from lumjax.kernel.emit import combine
from lumjax.kernel.evaluate import convert
from lumjax.trace import dim as dims
from lumjax.trace.form import Trait


def inner(dtype):
    return dt.accumulation_dtype(dtype) if dt.is_floating(dtype) else dtype


def interpret(kernel: ir.Kernel, buffers: dict, sizes: dict, jobs_order=lambda n: range(n)) -> None:
    """Run the kernel on flat views of `buffers`; workspace is allocated here, full of garbage."""
    memory = {n: b.reshape(-1) for n, b in buffers.items()}
    for b in kernel.workspace:
        if b.name not in memory:
            memory[b.name] = garbage(int(dims.evaluate(math.prod(b.shape), sizes)), b.dtype)
    for phase in kernel.phases:
        for job in jobs_order(int(dims.evaluate(phase.jobs, sizes))):
            local = dict(memory)
            for s in kernel.scratch:
                local[s.buffer.name] = garbage(s.elements, inner(s.buffer.dtype))
            with np.errstate(all="ignore"):
                _Run(local, {**sizes, phase.job: job}).block(phase.body)


def garbage(n, dtype):
    return np.full(n, 99, np.float32).astype(dtype) if dtype != bool else np.ones(n, bool)


class _Run:
    def __init__(self, memory, env):
        self.memory, self.env, self.acc = memory, env, {}

    def dim(self, d):
        return int(dims.evaluate(d, self.env))

    def block(self, stmts):
        for s in stmts:
            self.stmt(s)

    def stmt(self, s):
        match s:
            case ir.Let():
                self.env[s.name] = self.value(s.value)
            case ir.Accumulator():
                self.acc[s.name] = s
                self.env[s.name] = self.value(s.init)
                assert self.env[s.name].dtype == s.dtype
            case ir.Accumulate():
                acc = self.acc[s.name]
                value = self.value(s.value)
                assert s.value.dtype == acc.dtype
                self.env[s.name] = np.asarray(
                    combine(acc.op).numpy(self.env[s.name], value), acc.dtype
                )
            case ir.StoreStmt():
                if self.dim(s.mask):
                    target = self.memory[s.buffer.name]
                    at = self.dim(s.offset)
                    assert 0 <= at < target.size, (s, at, target.size)
                    target[at] = convert(np.asarray(self.value(s.value)), target.dtype)
            case ir.Loop():
                for i in range(self.dim(s.begin), self.dim(s.end), s.step):
                    self.env[s.var] = i
                    self.block(s.body)
            case ir.If():
                if self.dim(s.condition):
                    self.block(s.body)
            case ir.Tile():
                m0, n0 = self.dim(s.m0), self.dim(s.n0)
                for m in range(m0, min(m0 + s.rows, self.dim(s.m_end))):
                    for n in range(n0, min(n0 + s.cols, self.dim(s.n_end))):
                        self.env |= {s.m: m, s.n: n}
                        self.env[s.acc] = np.asarray(0, s.dtype)
                        self.tile(s, s.k)
                        self.env |= {s.m: m, s.n: n}
                        self.block(s.body)

    def tile(self, s, ks):
        if not ks:
            product = self.value(s.lhs).astype(s.dtype) * self.value(s.rhs).astype(s.dtype)
            self.env[s.acc] = np.asarray(self.env[s.acc] + product, s.dtype)
            return
        for k in range(self.dim(ks[0][1])):
            self.env[ks[0][0]] = k
            self.tile(s, ks[1:])

    def value(self, v):
        match v:
            case ir.Const():
                return convert(np.frombuffer(v.bits, v.dtype)[0].reshape(()), inner(v.dtype))
            case ir.Ref():
                found = np.asarray(self.env[v.name])
                assert found.dtype == inner(v.dtype), (v, found.dtype)
                return found
            case ir.IndexValue():
                return convert(np.asarray(self.dim(v.expr), np.int64), inner(v.dtype))
            case ir.LoadValue():
                source = self.memory[v.buffer.name]
                if not self.dim(v.mask):
                    return self.value(v.fill)
                at = self.dim(v.offset)
                assert 0 <= at < source.size, (v, at, source.size)
                return convert(source[at].reshape(()), inner(v.dtype))
            case ir.ApplyValue():
                args = [self.value(a) for a in v.args]
                if Trait.CAST in v.op.traits:
                    return convert(convert(args[0], v.dtype), inner(v.dtype))
                return convert(np.asarray(v.op.numpy(*args)), inner(v.dtype))
