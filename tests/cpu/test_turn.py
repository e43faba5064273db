"""Copies between two orders of memory against the literal interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lumjax.dtype as dt
from lumjax.cpu.objects import host_target
from lumjax.cpu.turn import LEAST, MOST, turned
from lumjax.kernel.emit import CAST
from lumjax.kernel.ir import (
    ApplyValue,
    Const,
    IndexValue,
    Let,
    LoadValue,
    Loop,
    LoopKind,
    Ref,
    StoreStmt,
)
from lumjax.kernel.pairs import PAIR
from lumjax.kernel.term import Buffer
from lumjax.trace import dim as dims
from tests.cpu.kernels import compare, kernel, op, sym
from tests.cpu.random_kernels import array

RNG = np.random.default_rng(5)
MUL = op("mul", 2, np.multiply)
r, c = sym("r"), sym("c")


def nest(body, rows, columns, begin=(0, 0)):
    """A loop along columns, by vectors, in a loop along rows."""
    inner = Loop("c", begin[1], columns, 1, LoopKind.VECTOR, tuple(body))
    return Loop("r", begin[0], rows, 1, LoopKind.SERIAL, (inner,))


def copy(rows, columns, dtype, out=None, scaled=False):
    """out[r, c] = x[c, r], cast, times s[r] if it is `scaled`."""
    out = out or dtype
    x, s, o = (
        Buffer(n, shape, d)
        for n, shape, d in (
            ("x", (columns, rows), dtype),
            ("s", (1,), out),
            ("o", (rows, columns), out),
        )
    )
    value = LoadValue(x, c * rows + r)
    if out != dtype:
        value = ApplyValue(CAST, (value,), out)
    body = [Let("v", value)]
    value = ApplyValue(MUL, (Ref("v", out), LoadValue(s, 0)), out) if scaled else Ref("v", out)
    return nest([*body, StoreStmt(o, r * columns + c, value)], rows, columns), [o], [x, s]


def arrays(buffers):
    return {b.name: array(RNG, int(np.prod(b.shape)), b.dtype).reshape(b.shape) for b in buffers}


def machine(width):
    if width > host_target().vector_bytes:
        pytest.skip("this machine's vectors are shorter")
    return replace(host_target(), vector_bytes=width)


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("shape", [(16, 16), (35, 49), (16, 37), (64, 17)])
def test_shapes(shape, width):
    loop, out, inputs = copy(*shape, dt.float32)
    found = turned(loop, machine(width), {})
    assert found is not None
    assert found.lanes == width // 4
    compare(kernel([loop], out, inputs), arrays([*out, *inputs]), target=machine(width))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", [*dt.FLOATING, dt.int32, dt.uint32, dt.int64], ids=str)
def test_dtypes(dtype, scaled):
    loop, out, inputs = copy(18, 21, dtype, scaled=scaled)
    many = host_target().lanes(max(4, dtype.itemsize)) >= LEAST
    assert (turned(loop, host_target(), {}) is not None) == many
    compare(kernel([loop], out, inputs), arrays([*out, *inputs]), rtol=1e-2)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [(dt.bfloat16, dt.float32), (dt.float32, dt.bfloat16), (dt.int8, dt.float32)],
    ids=str,
)
def test_casts(dtype, out):
    loop, outputs, inputs = copy(18, 33, dtype, out)
    assert turned(loop, host_target(), {})
    compare(kernel([loop], outputs, inputs), arrays([*outputs, *inputs]), rtol=1e-2)


@pytest.mark.parametrize("odd", [0, 1])
def test_pairs_of_bfloat16(odd):
    rows, columns = 19, 35
    stride = 2 * rows + odd
    x, o = Buffer("x", (columns, stride), dt.bfloat16), Buffer("o", (rows, columns), dt.uint32)
    loads = [LoadValue(x, c * stride + 2 * r + k) for k in (0, 1)]
    pair = ApplyValue(PAIR, (Ref("a", dt.bfloat16), Ref("b", dt.bfloat16)), dt.uint32)
    lets = [Let(n, v) for n, v in zip("ab", loads, strict=True)]
    loop = nest([*lets, StoreStmt(o, r * columns + c, pair)], rows, columns)
    assert turned(loop, host_target(), {})
    compare(kernel([loop], [o], [x]), arrays([x, o]))


def test_a_factor_along_the_outer_loop():
    x, v, o = (
        Buffer(n, s, dt.float32) for n, s in (("x", (33, 19)), ("v", (19,)), ("o", (19, 33)))
    )
    scaled = ApplyValue(MUL, (LoadValue(x, c * 19 + r), LoadValue(v, r)), dt.float32)
    loop = nest([StoreStmt(o, r * 33 + c, scaled)], 19, 33)
    assert turned(loop, host_target(), {})
    compare(kernel([loop], [o], [x, v]), arrays([x, v, o]))


def test_an_open_size_and_a_part_of_the_rows():
    n = sym("N", 1)
    x, o = Buffer("x", (n, 40), dt.float32), Buffer("o", (40, n), dt.float32)
    store = StoreStmt(o, r * n + c, LoadValue(x, c * 40 + r))
    loop = nest([store], 37, n, (3, 1))
    kern = kernel([loop], [o], [x], sizes=("N",), extents=(n,))
    assert turned(loop, host_target(), {})
    for size in (1, 2, 17, 18, 50):
        given = {
            "x": RNG.standard_normal((size, 40)).astype(np.float32),
            "o": np.zeros((40, size), np.float32),
        }
        compare(kern, given, {"N": size})


def test_what_is_not_turned():
    x, o = Buffer("x", (40, 40), dt.float32), Buffer("o", (40, 40), dt.float32)
    there, here = LoadValue(x, c * 40 + r), LoadValue(x, r * 40 + c)
    at = r * 40 + c
    added = ApplyValue(op("add", 2, np.add), (there, here), dt.float32)
    masked = LoadValue(x, c * 40 + r, dims.less(c, r))
    own = LoadValue(o, c * 40 + r)
    index = Let("j", IndexValue(c * 40, dt.int64))
    named = LoadValue(x, sym("j") + r)
    bodies = [
        [StoreStmt(o, at, here)],  # lies along both
        [StoreStmt(o, at, LoadValue(x, r))],  # is the same along the inner one
        [StoreStmt(o, at, added)],
        [StoreStmt(o, c * 40 + r, there)],
        [StoreStmt(o, at, masked)],
        [StoreStmt(o, at, there, dims.less(c, r))],
        [StoreStmt(o, at, own)],
        [index, StoreStmt(o, at, named)],
    ]
    for body in bodies:
        assert turned(nest(body, 40, 40), host_target(), {}) is None
    assert turned(nest([StoreStmt(o, at, there)], 40, 40), host_target(), {})
    assert turned(nest([StoreStmt(o, at, there)], 40, 2), host_target(), {}) is None


@pytest.mark.parametrize("times", [20, 120])
def test_values_that_are_used_again_and_again(times):
    """There are 2^120 ways from the last to the one load."""
    x, o = Buffer("x", (40, 40), dt.float32), Buffer("o", (40, 40), dt.float32)
    least = Const(dt.float32, np.float32(2.0**-times).tobytes())
    value = ApplyValue(MUL, (LoadValue(x, c * 40 + r), least), dt.float32)
    body = []
    for k in range(times):
        body.append(Let(f"v{k}", value))
        again = Ref(f"v{k}", dt.float32)
        value = ApplyValue(op("add", 2, np.add), (again, again), dt.float32)
    loop = nest([*body, StoreStmt(o, r * 40 + c, value)], 40, 40)
    assert bool(turned(loop, host_target(), {})) == (times < MOST)
    compare(kernel([loop], [o], [x]), arrays([x, o]))
