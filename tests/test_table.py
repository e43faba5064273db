"""What the table of programs says besides numbers of kernels: reads of rows, movement, order of
products. The rest of it is asserted by tests/test_derivations.py, tests/test_full_size.py (memory),
tests/kernel/test_skip.py (tiles that masks leave idle) and tests/test_half.py (16-bit floats).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from benchmarks import programs
from benchmarks.programs import PROGRAMS
from lumjax import nn
from lumjax.kernel.emulate import emulate
from lumjax.kernel.guard import Canaries
from lumjax.kernel.prepare import parametrise
from lumjax.kernel.verify import Values, _Check
from lumjax.native import whole

LENGTH, NEAR = 700, 400  # of rows; reads between two of one element that is still in cache


class Watched(np.ndarray):
    """Counts what is read of it."""

    reads: list[np.ndarray]

    def __array_finalize__(self, source: object) -> None:
        self.reads = getattr(source, "reads", [])

    def __getitem__(self, at: Any) -> Any:
        self.reads.append(np.atleast_1d(np.asarray(at)))
        return np.asarray(self)[at]


def reads(f: Callable[..., Any], shape: tuple[int, int]) -> tuple[np.ndarray, bool]:
    """How many times each element of the argument comes from memory, and whether rows are streamed
    by the one kernel, at a size of its own: rows are 700 long, tiles as small as may be.
    """
    executable = lumjax.jit(f).lower(jnp.ones(shape)).compile().executable
    (item,) = (k for s in executable.native() for k in s.kernels)
    kernel = whole(item, executable.target)
    check = _Check(kernel, parametrise(item.group), emulate, 0)
    extents = dict(zip(kernel.sizes, map(int, kernel.extents), strict=True))
    sizes = {n: min(v, LENGTH) if n in check.prepared.sizes else 1 for n, v in extents.items()}
    arrays = check.buffers(sizes, Canaries())
    check.fill(arrays, sizes, Values.MODERATE, 0)
    (source,) = kernel.inputs
    watched = np.array(arrays[source.name]).view(Watched)
    watched.reads = found = []
    emulate(kernel, {**arrays, source.name: watched}, sizes)
    return fetched(np.concatenate(found), watched.size), kernel.programs == ("FOLD",)


def fetched(offsets: np.ndarray, size: int) -> np.ndarray:
    """How many times each element is read that was not read a short while before."""
    last, counts = np.full(size, -LENGTH), np.zeros(size, int)
    for now, at in enumerate(offsets):
        counts[at] += now - last[at] > NEAR
        last[at] = now
    return counts


def logsumexp_plain(x: Any) -> Any:
    top = jnp.max(x, -1, keepdims=True)
    return jnp.log(jnp.sum(jnp.exp(x - top), -1)) + top[..., 0]


ONCE = {"logsumexp": lambda x: nn.logsumexp(x, -1), "logsumexp, jnp alone": logsumexp_plain}
TWICE = {
    "softmax": lambda x: nn.softmax(x, -1),
    "log_softmax": lambda x: nn.log_softmax(x, -1),
    "softmax, jnp alone": programs.plain_softmax,
    "log_softmax, jnp alone": programs.log_softmax_plain(1)[0],
}


@pytest.mark.parametrize("name", [*ONCE, *TWICE])
@pytest.mark.sampled(3)
def test_rows_that_stay_are_walked_whole(name: str) -> None:
    """Rows that fit in cache come from memory once, however many loops walk them."""
    counts, streamed = reads({**ONCE, **TWICE}[name], (24, 1000))
    assert not streamed
    assert counts.min() >= 1


@pytest.mark.parametrize("name", [*ONCE, *TWICE])
@pytest.mark.sampled(3)
def test_rows_that_do_not_stay_are_read_once_or_twice(name: str) -> None:
    """Once if one number per row is wanted, twice if values along the row are."""
    counts, streamed = reads({**ONCE, **TWICE}[name], (4, 1 << 20))
    assert streamed
    assert set(counts) == {1 if name in ONCE else 2}


def test_walks_are_told_from_tiles() -> None:
    """What the test above relies on: reads of a tile again are not counted, of a row again are."""
    row = np.arange(LENGTH)
    tiles = np.concatenate([np.tile(t, 2) for t in np.split(row, 10)])
    assert set(fetched(tiles, LENGTH)) == {1}
    assert set(fetched(np.tile(row, 2), LENGTH)) == {2}


def kernels(name: str) -> list[Any]:
    """The kernels of a program of the table."""
    f, args = PROGRAMS[name].build(PROGRAMS[name].small)
    executable = lumjax.jit(f).lower(*args).compile().executable
    return [k.compiled.kernel for s in executable.native() for k in s.kernels]


def test_no_kernel_only_moves_heads() -> None:
    """Projection, split, heads, rows, merge and projection: three kernels that contract."""
    first, rows, last = kernels("projections and attention")
    assert first.programs == last.programs == ("CONTRACT",)
    assert rows.programs in {("FOLD",), ("RESIDENT",)}


def test_products_with_a_vector_come_first() -> None:
    """(A @ B) @ v: two sums along rows; no product of matrices is computed, stored or not."""
    made = kernels("(A@B)@v")
    assert [k.programs for k in made] == [("CONTRACT",), ("CONTRACT",)]
    assert [len(k.inputs) for k in made] == [2, 2]
    assert [len(b.shape) for k in made for b in k.outputs] == [1, 1]


@pytest.mark.parametrize("name", ["convolution", "convolution dX", "convolution dW"])
def test_convolutions_are_one_contraction(name: str) -> None:
    assert [k.programs for k in kernels(name)] == [("CONTRACT",)]


def test_all_leaves_are_one_launch() -> None:
    f, args = programs.adam(100)
    assert lumjax.jit(f).lower(*args).compile().executable.launches == 1
