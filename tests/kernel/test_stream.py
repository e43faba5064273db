"""Contractions of few rows, whose right side is read row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumjax import dtype as dt
from lumjax.kernel import ir
from lumjax.kernel.lower import Reject, lower
from lumjax.kernel.schedule import PANELS, Schedule
from tests.kernel.build import SUM, TARGET, axis, check, group, lit, load, op, reduce, root
from tests.kernel.test_contract import matmul, tiles


@pytest.fixture(params=["", "+fma"])
def small(monkeypatch, request):
    """Sums are shared out at sizes that the interpreter can run, fused or not."""
    for name, value in {"LONG": 4, "BYTES": 1 << 8, "SHARE": 2}.items():
        monkeypatch.setattr(f"lumjax.kernel.stream.{name}", value)
    monkeypatch.setattr("lumjax.kernel.contract.LONG", 4)
    target = replace(TARGET, features=request.param, vector_registers=32, l1=64)
    monkeypatch.setattr("tests.kernel.build.TARGET", target)


def streamed(kernel):
    return kernel.programs == ("CONTRACT",) and not tiles(kernel) and len(kernel.phases) == 2


@pytest.mark.parametrize("layout", ["NN", "TN"])
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("depth", [19, 33])
@pytest.mark.usefixtures("small")
def test_an_epilogue_after_few_rows(layout, rows, depth):
    m, n, k = axis("m", rows), axis("n", 27), axis("k", depth)
    total = op("max", op("add", matmul(layout, m, n, k), load("b", n)), lit(0.0))
    g = group(root("o", (m, n), total))
    kernel = check(g)
    assert streamed(kernel)
    for chunk in (1, 3, 64):
        check(g, kernel=kernel, chunks=chunk)


@pytest.mark.parametrize("dtype", dt.FLOATING, ids=str)
@pytest.mark.usefixtures("small")
def test_dtypes_and_points_outside(dtype):
    b, m, n, k = axis("b", 3), axis("m", 2), axis("n", 9), axis("k", 21)
    x, y = load("x", b, k, m, dtype=dtype), load("y", b, k, n, dtype=dtype)
    g = group(root("o", (b, m, n), reduce(SUM, k, op("mul", x, y))))
    assert streamed(check(g, tolerance=5e-2))


@pytest.mark.usefixtures("small")
def test_a_vector_times_a_matrix():
    n, k = axis("n", 35), axis("k", 21)
    total = reduce(SUM, k, op("mul", load("x", k), load("y", k, n)))
    assert streamed(check(group(root("o", (n,), op("tanh", total)))))


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("rows", range(1, 12))
def test_what_is_streamed(registers, rows):
    target = replace(TARGET, vector_registers=registers)
    m, n, k = axis("m", rows), axis("n", 3072), axis("k", 768)
    kernel = lower(group(root("o", (m, n), matmul("NN", m, n, k))), target)
    assert not isinstance(kernel, Reject)
    assert streamed(kernel) == (rows <= (registers - 2) // 5)
    fewer = [(m, n, axis("k", 63)), (m, axis("n", 63), k), (m, axis("n", 64), axis("k", 64))]
    for axes in fewer:
        kernel = lower(group(root("o", axes[:2], matmul("NN", *axes))), target)
        assert not isinstance(kernel, Reject)
        assert not streamed(kernel)


def test_a_schedule_that_asks_for_tiles_has_them():
    m, n, k = axis("m", 2), axis("n", 3072), axis("k", 768)
    g = group(root("o", (m, n), matmul("NN", m, n, k)))
    for schedule in (Schedule(rows=2), Schedule(right=PANELS)):
        kernel = lower(g, TARGET, schedule=schedule)
        assert isinstance(kernel, ir.Kernel)
        assert tiles(kernel)
