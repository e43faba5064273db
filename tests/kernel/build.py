"""Short-hand for writing groups by hand, and for running kernels in every way there is."""

from __future__ import annotations

import itertools
import math

import numpy as np

from lumjax import dtype as dt
from lumjax.cpu.objects import host_target
from lumjax.cpu.runtime import Program, Step, compile_kernels
from lumjax.kernel.bounds import prove_bounds
from lumjax.kernel.emit import CAST
from lumjax.kernel.emulate import emulate
from lumjax.kernel.evaluate import evaluate_group
from lumjax.kernel.lower import Reject, lower
from lumjax.kernel.term import Apply, Axis, Buffer, Group, Index, Lit, Load, Reduction, Root
from lumjax.target import Backend, Target
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp, ScalarOp

f32 = dt.float32
SUM, MAX = ReduceOp.SUM, ReduceOp.MAX
OPS = {
    name: ScalarOp(name, arity, f, None, flops)
    for name, arity, f, flops in [
        ("add", 2, np.add, 1),
        ("sub", 2, np.subtract, 1),
        ("mul", 2, np.multiply, 1),
        ("div", 2, np.divide, 4),
        ("neg", 1, np.negative, 1),
        ("exp", 1, np.exp, 20),
        ("tanh", 1, np.tanh, 20),
        ("sqrt", 1, np.sqrt, 6),
        ("max", 2, np.maximum, 1),
        ("lt", 2, np.less, 1),
        ("eq", 2, np.equal, 1),
        ("select", 3, np.where, 1),
    ]
}


def op(name, *args, dtype=None):
    dtype = dtype or (np.dtype(bool) if name in ("lt", "eq") else args[-1].dtype)
    return Apply(OPS[name], args, dtype)


def cast(x, dtype):
    return Apply(CAST, (x,), np.dtype(dtype))


def lit(value, dtype=f32):
    return Lit(np.dtype(dtype), np.asarray(value, dtype).tobytes())


def axis(name, extent):
    return Axis(name, extent)


def sym(a):
    return dims.symbol(a.name, 0, a.extent - 1)


def buf(name, *shape, dtype=f32):
    return Buffer(name, shape, np.dtype(dtype))


def load(name, *axes, dtype=f32):
    """The buffer whose shape is the axes' extents, at the axes."""
    return Load(buf(name, *(a.extent for a in axes), dtype=dtype), tuple(map(sym, axes)))


def reduce(kind, axes, body, dtype=None):
    axes = (axes,) if isinstance(axes, Axis) else axes
    return Reduction(kind, frozenset(axes), body, np.dtype(dtype or body.dtype))


def index(expr, dtype=dt.int32):
    return Index(expr, np.dtype(dtype))


def root(name, axes, term):
    return Root(Buffer(name, tuple(a.extent for a in axes), term.dtype), tuple(axes), term)


def group(*roots):
    return Group(tuple(roots))


def inputs(kernel_or_group, rng, **given):
    """Random arrays for every buffer that the group loads, zeros for its roots."""
    from lumjax.kernel.term import loads

    out = {}
    for r in kernel_or_group.roots:
        for t in loads(r.term):
            b = t.buffer
            if b.name not in out:
                out[b.name] = random(rng, b.shape, b.dtype)
    for r in kernel_or_group.roots:
        out[r.buffer.name] = np.full(r.buffer.shape, 77, np.float32).astype(r.buffer.dtype)
    return out | given


def random(rng, shape, dtype):
    if dt.is_bool(dtype):
        return rng.integers(0, 2, shape).astype(bool)
    if dt.is_integer(dtype):
        return rng.integers(0, 5, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def run(kernel, buffers, **overrides):
    """Emulate the kernel at its traced (or overridden) sizes; returns the outputs by name."""
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True)) | overrides
    emulate(kernel, buffers, sizes)
    return {b.name: buffers[b.name] for b in kernel.outputs}


def shapes(*extents):
    return itertools.product(*extents)


HOST = host_target()
TARGET = Target(Backend.CPU, "test", "", 32, 16, 2)


def check(g, kernel=None, tolerance=1e-5, chunks=None, seed=0, **given):
    """Lower, run and compare with float64; returns the kernel."""
    kernel = kernel or lower(g, TARGET)
    assert not isinstance(kernel, Reject), kernel
    rng = np.random.default_rng(seed)
    buffers = inputs(g, rng, **given)
    want = evaluate_group(g, buffers, wide=True)
    values = dict(zip(kernel.sizes, kernel.extents, strict=True))
    assert prove_bounds(kernel, values) == ()
    overrides = {} if chunks is None else {n: chunks for n in kernel.sizes if n[0] == "c"}
    assert prove_bounds(kernel, values | overrides) == ()
    for execute in (emulate, native(kernel)):
        for r in g.roots:
            buffers[r.buffer.name].reshape(-1).view(np.uint8)[...] = 1
        spare = {
            b.name: np.empty(elements(b, values | overrides), b.dtype) for b in kernel.workspace
        }
        execute(kernel, buffers | spare, values | overrides)
        for name, w in want.items():
            got = buffers[name].astype(w.dtype)
            np.testing.assert_allclose(got, w, rtol=tolerance, atol=tolerance)
    return kernel


def elements(buffer, sizes):
    return int(dims.evaluate(math.prod(buffer.shape), sizes))


def native(kernel):
    """The kernel compiled, as a function like `interpret`."""
    (compiled,) = compile_kernels([kernel], HOST)

    def execute(kernel, buffers, sizes):
        table = [buffers[b.name].ctypes.data for b in kernel.buffers]
        table += [sizes[n] for n in kernel.sizes]
        Program([Step(compiled, range(len(table)), sizes)]).run(table)

    return execute
