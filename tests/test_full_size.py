"""Programs of the table at full size: what is held in memory, and results against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lumjax
from benchmarks import memory
from benchmarks.programs import PROGRAMS
from lumjax.config import config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not memory.measurable(), reason="tells no high-water mark of memory"),
]
ROWS = np.random.default_rng(3).integers(0, 2000, 64)


def near(got: Any, want: Any) -> None:
    """Equal but for rounding to float32."""
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3, atol=2e-5 * np.abs(want).max())


def doubles(name: str, size: int) -> list[Any]:
    """The program's arguments."""
    _, args = PROGRAMS[name].build(size)
    arrays = [np.asarray(a) for a in args]
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


@pytest.mark.parametrize("size", [512, 2000])
def test_labels_among_fifty_thousand(size: int) -> None:
    """No value of rows by classes, forward or backward."""
    name = "linear and labels"
    most, largest, (loss, (dx, dw)) = memory.compiled(name, size)
    x, w, labels = doubles(name, size)
    assert w.shape[1] == 25 * size
    assert largest < size * w.shape[1] / 8
    assert most <= 0.4 * memory.materialised(name, size)
    logits = x @ w
    top = logits.max(1, keepdims=True)
    e = np.exp(logits - top)
    total = e.sum(1, keepdims=True)
    every = np.arange(size)
    near(loss, np.mean(np.log(total[:, 0]) + top[:, 0] - logits[every, labels]))
    p = e / total
    p[every, labels] -= 1
    rows = ROWS % size
    near(dx[rows], p[rows] @ w.T / size)
    columns = np.concatenate([labels[rows], rows * 7])
    near(dw[:, columns], x.T @ p[:, columns] / size)


@pytest.mark.parametrize("size", [8192])
def test_pairs_of_eight_thousand(size: int) -> None:
    """No value of pairs, forward or backward."""
    name = "contrastive"
    most, largest, (loss, (da, db)) = memory.compiled(name, size)
    assert largest <= 64 * size
    assert most <= 0.05 * memory.materialised(name, size)
    a, b = doubles(name, size)
    long, wide = (np.linalg.norm(v, axis=1, keepdims=True) for v in (a, b))
    a, b = a / long, b / wide
    s = a @ b.T / 0.07
    mine = np.diag(s)
    e = np.exp(s)
    rows, columns = e.sum(1, keepdims=True), e.sum(0, keepdims=True)
    near(loss, np.mean(np.log(rows[:, 0]) + np.log(columns[0]) - 2 * mine) / 2)
    weights = (e / rows + e / columns - 2 * np.eye(size)) / (2 * size) / 0.07
    for got, unit, norm, slope in ((da, a, long, weights @ b), (db, b, wide, weights.T @ a)):
        want = (slope - unit * np.sum(unit * slope, 1, keepdims=True)) / norm
        near(got[ROWS], want[ROWS])


@pytest.mark.parametrize(
    ("name", "largest_size"), [("attention causal", 16384), ("attention causal backward", 8192)]
)
def test_memory_grows_with_rows_not_with_their_square(name: str, largest_size: int) -> None:
    """From 512 positions on; results of sampled rows at the largest size."""
    size = 512
    while size <= largest_size:
        held, largest, out = memory.compiled(name, size)
        assert largest <= 64 * size
        assert held <= 4096 * size + (1 << 20)
        size *= 2
    if name == "attention causal":
        q, k, v = doubles(name, 16384)
        rows = np.array([0, 1, 63, 64, 1000, 9999, 16383])
        s = np.einsum("hqd,hkd->hqk", q[:, rows], k) / np.sqrt(q.shape[-1])
        s = np.where(rows[:, None] >= np.arange(16384), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        near(out[:, rows], np.einsum("hqk,hkd->hqd", e / e.sum(-1, keepdims=True), v))


def test_interpreting_holds_what_compiling_does_not() -> None:
    """What the other tests rely on: the measure sees values as large as rows times rows."""
    f, args = PROGRAMS["attention"].build(2048)
    with config.scope(interpret=True):
        program = lumjax.jit(f)
        most, _ = memory.peak(lambda: np.asarray(program(*args)))
    assert most >= 2 * 2 * 2048 * 2048 * 4
