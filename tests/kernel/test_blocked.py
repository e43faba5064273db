"""Blocks of rows: values, tails, rows that are not finite, threads, and what is stored."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from lumjax.config import config
from lumjax.cpu.render import render
from lumjax.cpu.runtime import Program, Step, compile_kernels
from lumjax.kernel.blocked import blocked, may_block, rounds
from lumjax.kernel.lower import Reject, lower
from lumjax.kernel.verify import check_kernel
from lumjax.trace import dim as dims
from tests.kernel.blocks import PROGRAMS, V, classes, i_of, tiles
from tests.kernel.build import HOST, axis, group, root
from tests.kernel.residents import gradients
from tests.kernel.test_fold import Compiled

HUGE = classes(i_of(512), axis("v", 50_000), axis("d", 384))


@pytest.fixture(scope="module")
def jobs():
    made = {}

    def get(name):
        if name not in made:
            made[name] = Compiled(PROGRAMS[name]())
            assert made[name].kernel.programs == ("BLOCKS",)
        return made[name]

    return get


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(jobs, name):
    program = jobs(name)
    for chunks in (None, 1, 2):
        sizes = program.at(chunks)
        program.compare(sizes, program.data(sizes), 1e-10 if name == "doubles" else 3e-5)


@pytest.mark.parametrize("name", ["classes", "pairs", "tiles"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 66])
@pytest.mark.sampled(8)
def test_rows_that_run_out(jobs, name, rows):
    """The last blocks have rows in common with others, or none of their own."""
    program = jobs(name)
    sizes = program.at(None, i=rows)
    program.compare(sizes, program.data(sizes), 1e-4 if name == "tiles" else 2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_verified(jobs, name):
    program = jobs(name)
    verdict = check_kernel(program.kernel, program.group, program.native)
    assert verdict.ok, verdict


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("buffer", ["x", "w"])
def test_specials(jobs, value, buffer):
    program = jobs("classes")
    sizes = program.at()
    data = program.data(sizes)
    data[buffer].reshape(-1)[137] = value
    program.compare(sizes, data, 1e-4)


def test_threads_agree(jobs):
    program = jobs("many")
    sizes = program.at(1)
    (compiled,) = compile_kernels([program.kernel], HOST)
    results = []
    for threads in (1, 2, 4):
        data = program.data(sizes)
        with config.scope(num_threads=threads):
            table = [data[b.name].ctypes.data for b in program.kernel.buffers]
            table += [sizes[n] for n in program.kernel.sizes]
            Program([Step(compiled, range(len(table)), sizes)]).run(table)
        results.append([data[b.name].tobytes() for b in program.kernel.outputs])
    assert results[0] == results[1] == results[2]


# ---- what is computed, and stored


def test_each_contraction_is_computed_once_for_each_block():
    """One product for the rows, one for each gradient; code is written once."""
    kernel = lower(group(*HUGE), HOST)
    assert not isinstance(kernel, Reject)
    times = Counter(p.job for p in kernel.phases)
    blocks = rounds(512)
    assert set(times.values()) == {1, blocks - 1, blocks}  # the first counts up from zero
    text = render(kernel, HOST)
    assert text.count("define void @kernel_phase") == len(times)
    assert text.count("= alias") == len(kernel.phases) - len(times)


def test_a_block_is_all_that_is_stored():
    """The weights take the place of the contraction that they are made of."""
    kernel = lower(group(*HUGE), HOST)
    assert not isinstance(kernel, Reject)
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    held = [math.prod(int(dims.evaluate(n, sizes)) for n in b.shape) for b in kernel.workspace]
    block = 512 // rounds(512) * 50_000
    assert [n for n in held if n > block // 2] == [block]


def test_what_others_read_is_not_overwritten():
    """A contraction's result that is a side itself, beside what is made of it."""
    found = blocked(tiles())
    assert found is not None
    assert len(found.tiles) == 1
    assert len(found.sides) == 2


@pytest.mark.parametrize(
    ("rows", "count"), [(1, 1), (3, 3), (4, 4), (512, 4), (2048, 8), (1 << 20, 64)]
)
def test_how_many_blocks(rows, count):
    assert rounds(rows) == count


def test_batches_and_rows_across_are_none():
    assert blocked(gradients()) is None  # a batch of heads
    across = classes()
    both = [*across, root("cols", (V,), across[-2].term)]
    assert blocked(both) is not None
    assert blocked(classes()[-1:]) is None  # nothing is contracted with what is made of rows


def test_only_large_results_are_worth_blocks():
    assert may_block(HUGE)
    assert not may_block(classes())
    assert not may_block(HUGE[:1])  # a loss alone: loops over tiles store nothing
