"""Building and running small kernels."""

from __future__ import annotations

import numpy as np

import lumjax.dtype as dt
from lumjax.cpu import arena
from lumjax.cpu.objects import host_target
from lumjax.cpu.runtime import Program, Step, compile_kernels
from lumjax.kernel.emulate import emulate
from lumjax.kernel.ir import (
    ApplyValue,
    Const,
    Kernel,
    LoadValue,
    Loop,
    LoopKind,
    Phase,
    StoreStmt,
)
from lumjax.kernel.term import Buffer
from lumjax.trace import dim as dims
from lumjax.trace.form import ScalarOp


def op(name, arity, numpy=None, **more):
    return ScalarOp(name, arity, numpy, **more)


def const(dtype, value):
    return Const(dtype, np.asarray(value).astype(dtype).tobytes())


def sym(name, lo=0, hi=None):
    return dims.symbol(name, lo, hi)


def kernel(
    body, outputs, inputs=(), workspace=(), scratch=(), sizes=(), extents=(), name="k", jobs=1
):
    """A kernel with one phase; `body` may mention the symbol "job"."""
    phase = Phase("job", jobs, tuple(body))
    return Kernel(
        name, tuple(outputs), tuple(inputs), tuple(workspace), tuple(scratch), tuple(sizes),
        (phase,), tuple(extents),
    )  # fmt: skip


def run(kern, arrays, sizes=None, target=None):
    """Run natively; `arrays` by buffer name, outputs and workspace included."""
    sizes = sizes or {}
    (compiled,) = compile_kernels([kern], target or host_target())
    names = [b.name for b in kern.buffers]
    slots = list(range(len(names) + len(kern.sizes)))
    program = Program([Step(compiled, slots, sizes)])
    program.run([*(arrays[n].ctypes.data for n in names), *(sizes[s] for s in kern.sizes)])


def compare(kern, arrays, sizes=None, rtol=1e-5, atol=1e-5, target=None):
    """Run natively and emulated: the outputs must agree, and nothing around the buffers change."""
    sizes = sizes or {}
    ours, theirs = {}, {}
    guards = []
    for buffer in kern.buffers:
        data = arrays[buffer.name]
        room = arena.empty((data.nbytes + 256,), np.dtype(np.uint8))
        room[:] = 0xA5
        view = room[128 : 128 + data.nbytes].view(data.dtype).reshape(data.shape)
        view[...] = data
        guards.append((buffer.name, room, data.nbytes))
        ours[buffer.name], theirs[buffer.name] = view, data.copy()
    run(kern, ours, sizes, target)
    emulate(kern, theirs, sizes)
    for name, room, size in guards:
        assert (room[:128] == 0xA5).all(), name
        assert (room[128 + size :] == 0xA5).all(), name
    for buffer in kern.outputs:
        a, b = ours[buffer.name], theirs[buffer.name]
        if buffer.dtype in dt.INEXACT:
            wide = np.complex128 if buffer.dtype in dt.COMPLEX else np.float64
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(a, b)
    return ours


def map_kernel(scalar, dtypes, result, n, kind=LoopKind.VECTOR, last=()):
    """out[i] = scalar(in_0[i], ..., last)."""
    i = sym("i", 0, n - 1)
    inputs = [Buffer(f"x{k}", (n,), d) for k, d in enumerate(dtypes)]
    out = Buffer("out", (n,), result)
    value = ApplyValue(scalar, (*(LoadValue(b, i) for b in inputs), *last), result)
    return kernel([Loop("i", 0, n, 1, kind, (StoreStmt(out, i, value),))], [out], inputs)


def apply(scalar, result, *xs, kind=LoopKind.VECTOR, last=()):
    """The operation on arrays, and constants after them, natively."""
    n = len(xs[0])
    out = np.zeros(n, result)
    arrays = {f"x{k}": np.ascontiguousarray(x) for k, x in enumerate(xs)} | {"out": out}
    run(map_kernel(scalar, [x.dtype for x in xs], np.dtype(result), n, kind, last), arrays)
    return out
