"""Contractions of bfloat16 two terms at a time."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.cpu.render import render
from lumjax.kernel import pairs
from lumjax.kernel.emulate import emulate
from lumjax.kernel.lower import Reject, lower
from lumjax.target import Backend
from tests.kernel import build
from tests.kernel.build import SUM, axis, cast, check, group, lit, load, op, reduce, root
from tests.kernel.test_contract import matmul, tiles

BF16 = dt.bfloat16
ZEN = replace(
    build.TARGET, arch="znver4", features="+avx512bf16", vector_bytes=64, vector_registers=32
)
HERE = pairs.fast_pairs(build.HOST)


@pytest.fixture(autouse=True)
def target(monkeypatch):
    """A machine that multiplies pairs; where this one can't, kernels are only emulated."""
    monkeypatch.setattr(build, "TARGET", ZEN)
    if not HERE:
        monkeypatch.setattr(build, "native", lambda kernel: emulate)


def in_pairs(kernel):
    return [t.pairs for t in tiles(kernel)] == [True]


def product(layout, m, n, k, dtype=BF16):
    m, n, k = axis("m", m), axis("n", n), axis("k", k)
    return group(root("o", (m, n), matmul(layout, m, n, k, dtype)))


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("shape", [(13, 35, 34), (16, 48, 64), (12, 4, 70)])
def test_layouts(layout, shape):
    kernel = check(product(layout, *shape), tolerance=5e-2)
    assert in_pairs(kernel)
    check(product(layout, *shape), kernel=kernel, chunks=1 + shape[0] % 3, tolerance=5e-2)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_sums_of_what_is_cast_are_as_exact_as_float32(layout):
    m, n, k = axis("m", 13), axis("n", 35), axis("k", 34)
    sides = matmul(layout, m, n, k, BF16).body.args
    body = op("mul", *(cast(s, dt.float32) for s in sides))
    assert in_pairs(check(group(root("o", (m, n), reduce(SUM, k, body)))))


def test_a_sum_that_is_cut_and_a_side_that_is_a_term(monkeypatch):
    monkeypatch.setattr("lumjax.kernel.contract.LONG", 4)
    monkeypatch.setattr("lumjax.kernel.contract.DEPTH_PACKED", 10)
    monkeypatch.setattr(build, "TARGET", replace(ZEN, l1=64))
    monkeypatch.setattr("lumjax.kernel.contract.ROWS_FOR_COPY", 50)
    for layout in ("NN", "NT"):
        kernel = check(product(layout, 50, 35, 66), tolerance=5e-2)
        assert in_pairs(kernel)
        assert {s.buffer.dtype for s in kernel.scratch} == {dt.float32, dt.uint32}
    m, n, k = axis("m", 13), axis("n", 35), axis("k", 66)
    left = op("max", load("x", m, k, dtype=BF16), lit(0.0, BF16))
    right = op("mul", load("y", k, n, dtype=BF16), load("s", k, dtype=BF16))
    for sides in ((left, load("y", k, n, dtype=BF16)), (left, right)):
        total = reduce(SUM, k, op("mul", *sides))
        assert in_pairs(check(group(root("o", (m, n), total)), tolerance=5e-2))


def test_heads_and_an_epilogue():
    b, h, t, s, d = (axis(*a) for a in (("b", 2), ("h", 3), ("t", 17), ("s", 19), ("d", 64)))
    q, k = load("q", b, t, h, d, dtype=BF16), load("k", b, s, h, d, dtype=BF16)
    scores = op("mul", reduce(SUM, d, op("mul", q, k)), lit(0.5, BF16))
    assert in_pairs(check(group(root("o", (b, h, t, s), scores)), tolerance=1e-1))


@pytest.mark.parametrize(
    ("changes", "paired"),
    [
        ({}, True),
        ({"arch": "znver5"}, True),
        ({"arch": "cooperlake"}, False),  # half as fast there
        ({"features": ""}, False),
        ({"features": "-avx512bf16"}, False),
        ({"vector_bytes": 32}, False),
        ({"backend": Backend.CUDA}, False),
    ],
    ids=str,
)
def test_machines(changes, paired):
    assert pairs.fast_pairs(replace(ZEN, **changes)) == paired


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize(
    ("shape", "dtype", "paired"),
    [
        ((12, 32, 64), BF16, ("NN", "NT")),
        ((12, 32, 65), BF16, ()),  # the last term has no other
        ((12, 32, 64), dt.float16, ()),
        ((12, 32, 64), dt.float32, ()),
        ((11, 32, 64), BF16, ("NT",)),  # a copy is not worth it
        ((12, 32, 2), BF16, ("NN", "NT")),
    ],
    ids=str,
)
def test_what_is_taken_in_pairs(layout, shape, dtype, paired):
    kernel = lower(product(layout, *shape, dtype), ZEN)
    assert not isinstance(kernel, Reject)
    assert in_pairs(kernel) == (layout in paired)


@pytest.mark.parametrize(("layout", "rounds"), [("NN", True), ("NT", False)])
def test_the_instructions_and_how_pairs_are_read(layout, rounds):
    """What the instruction has added up another may round; what is added up after it may be
    denormal, which only the first takes for zero.
    """
    kernel = lower(product(layout, 16, 48, 64), ZEN)
    text = render(kernel, replace(build.HOST, **{
        n: getattr(ZEN, n) for n in ("arch", "features", "vector_bytes", "vector_registers")
    }))  # fmt: skip
    assert "@llvm.x86.avx512bf16.dpbf16ps.512(" in text
    assert ("@llvm.x86.avx512bf16.cvtneps2bf16.512(" in text) == rounds
    single = re.search(r"load i32, ptr \S+, align 2\b", text)
    assert bool(single) == rounds  # two of the left side, for all columns


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("value", [1e-40, 2e-20, float("inf"), float("nan"), 3e38])
def test_values_at_the_ends(layout, value):
    """Denormal numbers count as zero, which changes a sum by less than the least normal number
    times the other side; what overflows and what is not a number is as in float32.
    """
    kernel = check(product(layout, 13, 35, 34), tolerance=5e-2)
    x = np.ones((13, 34), BF16)
    y = np.ones((34, 35) if layout == "NN" else (35, 34), BF16)
    x[3, 5], x[4] = value, value
    out = np.zeros((13, 35), BF16)
    buffers = {"x": x, "y": y, "o": out}
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    for b in kernel.workspace:
        buffers[b.name] = np.empty(build.elements(b, sizes), b.dtype)
    with np.errstate(all="ignore"):
        want = x.astype(np.float64) @ (y if layout == "NN" else y.T).astype(np.float64)
        want = want.astype(BF16).astype(np.float64)
    for execute in (emulate, build.native(kernel)):
        execute(kernel, buffers, sizes)
        np.testing.assert_allclose(out.astype(np.float64), want, rtol=2e-2, atol=34 * 1.2e-38)
