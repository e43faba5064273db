"""Jobs that hold whole rows in scratch: values, tails, rows that are not finite, threads."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumjax.config import config
from lumjax.cpu.runtime import Program, Step, compile_kernels
from lumjax.kernel import resident
from lumjax.kernel.lower import Reject, lower
from lumjax.kernel.resident import HEIGHT, MOST, Product, may_stay, residence
from lumjax.kernel.term import Reduction, subterms
from lumjax.kernel.unify import unified
from lumjax.kernel.verify import check_kernel
from lumjax.target import Backend, Target
from tests.kernel import streams
from tests.kernel.build import HOST, SUM, axis, group, load, op, reduce, root
from tests.kernel.residents import PROGRAMS, D, E, H, I, J, across, gradients
from tests.kernel.test_fold import Compiled

COARSE = {"halves": 0.05, "doubles": 1e-10}
SMALL = {"a row", "a column"}  # other programs may compute these


@pytest.fixture(scope="module")
def jobs():
    """All programs, in tiles of few rows."""
    made = {}

    def get(name):
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("lumjax.kernel.resident.HEIGHT", 16)
                patch.setattr("lumjax.kernel.resident_emit.HEIGHT", 16)
                made[name] = Compiled(PROGRAMS[name]())
            assert made[name].kernel.programs == ("RESIDENT",)
        return made[name]

    return get


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in SMALL])
def test_values(jobs, name):
    """In tiles of a few rows, of one, of two."""
    program = jobs(name)
    for chunks in (None, 1, 2):
        sizes = program.at(chunks)
        program.compare(sizes, program.data(sizes), COARSE.get(name, 3e-5))


@pytest.mark.parametrize("name", ["rows", "groups", "causal", "window of groups", "across"])
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 33])
@pytest.mark.parametrize("points", [1, 16, 31])
@pytest.mark.sampled(10)
def test_tails(jobs, name, rows, points):
    program = jobs(name)
    sizes = program.at(None, i=rows, j=points)
    program.compare(sizes, program.data(sizes))


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in SMALL])
def test_verified(jobs, name):
    program = jobs(name)
    verdict = check_kernel(program.kernel, program.group, program.native)
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", ["rows", "causal", "anticausal", "causal, low"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("buffer", ["q", "k", "v", "do"])
@pytest.mark.sampled(16)
def test_specials(jobs, name, value, buffer):
    program = jobs(name)
    sizes = program.at()
    data = program.data(sizes)
    data[buffer].reshape(-1)[137] = value
    program.compare(sizes, data, 1e-4)


@pytest.mark.parametrize("points", [1, 5])
def test_rows_that_are_masked_as_a_whole(jobs, points):
    """Later rows than keys see nothing in a window."""
    program = jobs("window")
    sizes = program.at(None, j=points)
    program.compare(sizes, program.data(sizes))


@pytest.mark.parametrize("name", ["batches", "groups", "window", "across"])
def test_threads_agree(jobs, name):
    program = jobs(name)
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


# ---- what a job computes


def products(found):
    return [s for s in (*found.before, *found.body) if isinstance(s, Product)]


def test_nothing_is_computed_twice():
    """Six contractions; what has columns along memory is stored as its sums are complete."""
    found = residence(gradients())
    assert len(products(found)) == 6
    assert found.grid == (H,)
    assert found.rows == (I,)
    assert {t.buffer.name for t in found.after} == {"dk", "dv"}
    assert len(found.carries) == 2
    assert {r.buffer.name for s in products(found) for r in s.roots} == {"o", "dq"}


def test_rows_of_a_group_share_their_sums():
    found = residence(PROGRAMS["groups"]())
    assert [a.name for a in found.rows] == ["g", "i"]
    assert len(products(found)) == 6


def test_areas_are_used_again():
    """A change of the scores takes the place of the scores."""
    found = residence(gradients())
    tiles = [n for n, _ in found.areas if n >= HEIGHT * J.extent]
    assert len(tiles) == 3


def test_equal_reductions_are_one_whatever_their_axes_are_called():
    """The scores are summed over axes of two names; statistics are final."""
    other = axis("other", D.extent)
    s, again = streams.scores(I, J, D, (H,)), streams.scores(I, J, other, (H,))
    m, total, weight = streams.weights(s, J)
    out = streams.scaled(again, J, op("mul", weight(None), load("v", H, J, E)))
    terms = unified([total, m, again, out])
    found = {t for term in terms for t in subterms(term) if isinstance(t, Reduction)}
    assert len([t for t in found if t.axes in ({D}, {other})]) == 1
    assert not any(t.scale for t in found)
    assert len(found) == 4  # scores, their maximum, and two sums


def test_names_are_told_apart_where_values_differ():
    """Two sums that read one buffer along different dimensions are not one."""
    x = load("x", H, I, D)
    flipped = load("x", H, axis("i", I.extent), axis("d", D.extent))
    first, second = reduce(SUM, I, x), reduce(SUM, D, flipped)
    assert len(set(unified([first, second]))) == 2


def test_what_does_not_fit_is_refused():
    assert residence(gradients(), most=1 << 10) is None
    assert residence(gradients(), most=0) is None
    long = axis("j", resident.LONGEST + 1)
    assert residence(gradients(j=long)) is None
    assert residence(gradients(j=axis("j", 256), d=axis("d", 512), e=axis("e", 512))) is None


def test_scratch_is_what_kernels_take():
    kernel = lower(group(*gradients()), HOST)
    assert not isinstance(kernel, Reject)
    taken = sum(s.elements * s.buffer.dtype.itemsize for s in kernel.scratch)
    areas = residence(gradients()).areas
    expected = sum(n * d.itemsize for n, d in areas)
    assert 0.8 * taken <= expected <= 1.25 * taken
    assert expected <= MOST


def test_devices_without_such_scratch_refuse():
    other = Target(Backend.CUDA, "sm_90", "", 16, 255, 132)
    assert isinstance(lower(group(*gradients()), other), Reject)


def test_jobs_share_no_operand_of_a_contraction():
    """Rows of a matrix times weights that all points of the grid read are no such job."""
    hidden = reduce(SUM, D, op("mul", load("x", I, D), load("w", D, J)))
    y = reduce(SUM, J, op("mul", op("tanh", hidden), load("u", J, E)))
    assert residence([root("y", (I, E), y)]) is None


def test_few_programs_are_looked_at():
    assert may_stay(gradients())
    assert may_stay(across())
    assert not may_stay(gradients(i=axis("i", 1000), j=axis("j", 1000)))
    assert not may_stay([root("y", (I, E), load("x", I, E))])


def test_statistics_of_rows_are_exact():
    """Weights of each row add up to one whatever the scores are."""
    s = streams.scores(I, J, D, (H,))
    weight = op("exp", op("sub", s, streams.statistic(s, J)))
    total = reduce(SUM, J, weight)
    program = Compiled(
        [
            root("p", (H, I, J), op("div", weight, total)),
            root("o", (H, I, E), reduce(SUM, J, op("mul", weight, load("v", H, J, E)))),
        ]
    )
    assert program.kernel.programs == ("RESIDENT",)
    sizes = program.at()
    data = program.data(sizes)
    data["q"] *= 30
    program.native(program.kernel, data, sizes)
    np.testing.assert_allclose(data["p"].sum(-1), 1.0, rtol=1e-5)
