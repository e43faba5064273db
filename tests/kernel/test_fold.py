"""Loops over tiles of a stream: values, tails, rows that are not finite, threads."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.cpu.runtime import Program, Step, compile_kernels
from lumjax.kernel import fold as folding
from lumjax.kernel import lower as lowering
from lumjax.kernel.bounds import prove_bounds
from lumjax.kernel.emulate import emulate
from lumjax.kernel.evaluate import bound_axes, evaluate_group
from lumjax.kernel.lower import Reject, lower
from lumjax.kernel.prepare import parametrise
from lumjax.kernel.roles import Roles, fold_roles
from lumjax.kernel.verify import check_kernel
from lumjax.trace import dim as dims
from tests.kernel import streams
from tests.kernel.build import (
    HOST,
    SUM,
    TARGET,
    axis,
    group,
    inputs,
    load,
    native,
    op,
    reduce,
    root,
    sym,
)
from tests.kernel.folds import (
    COARSE,
    LONE,
    PROGRAMS,
    TURNED,
    D,
    E,
    H,
    I,
    J,
    L,
    N,
    V,
    moments,
)
from tests.kernel.test_random import plan


class Compiled:
    """A program as a kernel, run at any sizes."""

    def __init__(self, roots, target=HOST):
        self.group = group(*roots)
        self.prepared = parametrise(self.group)
        kernel = lower(self.group, target)
        assert not isinstance(kernel, Reject), kernel
        self.kernel = kernel
        self.sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
        self.native = native(kernel)

    def at(self, chunks=None, **extents):
        """The sizes with the given extents (by axis, e.g. i=3) and shares of jobs."""
        traced = {a.name: a.extent for r in self.group.roots for a in self.axes(r)}
        change = {traced[n]: v for n, v in extents.items()}
        sizes = {n: change.get(v, v) if n[0] == "n" else v for n, v in self.sizes.items()}
        return sizes | (
            {n: min(chunks, v) for n, v in sizes.items() if n[0] == "c"} if chunks else {}
        )

    def axes(self, r):
        return (*r.axes, *bound_axes(r.term))

    def data(self, sizes, seed=0):
        rng = np.random.default_rng(seed)
        out = {}
        for b in self.kernel.buffers:
            shape = [int(dims.evaluate(n, sizes)) for n in b.shape]
            if dt.is_integer(b.dtype):
                out[b.name] = rng.integers(0, 5, shape).astype(b.dtype)
            else:
                out[b.name] = rng.standard_normal(shape).astype(b.dtype)
        return out

    def compare(self, sizes, arrays, tolerance=2e-5, execute=None):
        assert prove_bounds(self.kernel, sizes) == ()
        for b in self.kernel.outputs + self.kernel.workspace:
            arrays[b.name].reshape(-1).view(np.uint8)[...] = 77
        (execute or self.native)(self.kernel, arrays, sizes)
        for name, want in evaluate_group(self.prepared.group, arrays, sizes, wide=True).items():
            got = arrays[name].astype(want.dtype).reshape(want.shape)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def folds():
    """All programs, with row programs streamed whatever their length."""
    made = {}

    def get(name):
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("lumjax.kernel.fold.WHOLE_ROWS", 0)
                if name in TURNED:
                    patch.setattr("lumjax.kernel.fold_shape.MOST_TURNED", 0)
                patch.setattr("lumjax.kernel.fold_shape.WIDTH", 32)
                patch.setattr("lumjax.kernel.fold_shape.FEW_WIDTH", 32)
                patch.setattr("lumjax.kernel.fold_shape.HEIGHT", 16)
                used = []
                emit = lowering.emit_fold
                patch.setattr(lowering, "emit_fold", lambda *args: used.append(1) or emit(*args))
                made[name] = Compiled(PROGRAMS[name]())
                assert used, "the program is a loop over tiles"
        return made[name]

    return get


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(folds, name):
    """Whole, in one tile, and in tiles of one panel by few rows."""
    program = folds(name)
    for chunks in (None, 1, 2):
        sizes = program.at(chunks)
        program.compare(sizes, program.data(sizes), COARSE.get(name, 3e-5))


@pytest.mark.parametrize(
    "name",
    [
        *("causal", "columns", "classifier", "layers", "late", "moments", "moments of everything"),
        *("a row", "a row across", "three rows of computed operands", "values along the stream"),
    ],
)
def test_emulated(folds, name):
    """Every access written before it is read, in bounds, at small sizes."""
    program = folds(name)
    small = {a.name: 7 for r in program.group.roots for a in program.axes(r) if a.extent > 20}
    sizes = program.at(1, **small)
    program.compare(sizes, program.data(sizes), execute=emulate)


@pytest.mark.parametrize("name", [*LONE, *TURNED])
def test_no_operand_is_copied(folds, name):
    assert not folds(name).kernel.workspace


@pytest.mark.parametrize("rows", [1, 2, 5, 16, 66])
@pytest.mark.parametrize("stream", [1, 3, 16, 17, 100])
def test_tails(folds, rows, stream):
    for name in ("weighted", "guarded"):
        program = folds(name)
        for chunks in (None, 1):
            sizes = program.at(chunks, i=rows, j=stream)
            program.compare(sizes, program.data(sizes))
    program = folds("columns")
    sizes = program.at(2, i=stream, j=rows)
    program.compare(sizes, program.data(sizes))


@pytest.mark.parametrize("name", ["weighted", "causal", "guarded", "classifier", "stored"])
@pytest.mark.parametrize("chunks", [None, 1])
def test_large_scores(folds, name, chunks):
    program = folds(name)
    sizes = program.at(chunks)
    for scale in (1e4, -1e4):
        data = program.data(sizes)
        first = next(b.name for b in program.kernel.inputs if b.name in ("q", "x"))
        data[first] *= np.float32(scale)
        roots = evaluate_group(program.prepared.group, data, sizes)
        assert all(np.isfinite(r).all() or name == "guarded" for r in roots.values())
        program.compare(sizes, data, 0.02)


@pytest.mark.parametrize(
    "name",
    [
        "weighted",
        "guarded",
        "classifier",
        "table",
        "stored",
        "late",
        "a row",
        "three rows",
        *TURNED,
    ],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_specials_in_one_place(folds, name, value):
    program = folds(name)
    sizes = program.at(1)
    for buffer in program.kernel.inputs:
        if not dt.is_floating(buffer.dtype):
            continue
        for at in (0, -1, 137):
            data = program.data(sizes)
            data[buffer.name].reshape(-1)[at % data[buffer.name].size] = value
            program.compare(sizes, data)


TIES = ["ties", "masked ties", "window's ties", "low ties"]


@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.sampled(2)
def test_counts_begin_anew_where_a_maximum_rises(folds, split, name, parts):
    """Whole numbers: maxima occur several times, in one tile and in several."""
    program = (split if parts else folds)(name)
    for chunks in (None, 1, 2):
        sizes = program.at(chunks)
        for seed, special in enumerate((None, None, -math.inf, math.inf, math.nan)):
            data = program.data(sizes, seed)
            for b in program.kernel.inputs:
                data[b.name] = np.round(data[b.name]).astype(b.dtype)
            first = next(b.name for b in program.kernel.inputs if b.name in ("q", "x"))
            data[first][..., 31, :] = 0  # a row of one value
            if special is not None:
                data[first][..., 5, :] = special
                data[first][..., 7, 2] = special
            program.compare(sizes, data)
            assert np.nanmax(data["count"]) > 5


@pytest.mark.parametrize("guard", [False, True])
def test_rows_without_any_score(folds, guard):
    """Whole rows, and whole tiles before the first score, are -inf."""
    program = folds("stored") if not guard else folds("guarded")
    name = "x" if not guard else "k"
    sizes = program.at(1)
    data = program.data(sizes)
    rows = data[name].reshape(-1, data[name].shape[-1])
    rows[:3] = -math.inf
    if not guard:
        rows[5, :40] = -math.inf
        rows[6, 20:] = -math.inf
        rows[7, :40] = -math.inf
        rows[7, 40:] = -1e4  # far below the 0 that stood in for the statistic
    program.compare(sizes, data)


def test_an_infinite_value_under_a_zero_weight(folds):
    """0 * inf is nan in the traced program, whatever the running weight was."""
    program = folds("stored")
    sizes = program.at(1)
    data = program.data(sizes)
    data["x"][:, 50] = 5000.0
    data["v"][2, 3] = math.inf
    program.compare(sizes, data)
    data["v"][2, 3] = 3e38  # no partial sum may overflow the result
    data["v"][3, 3] = 3e38
    data["v"][4, 3] = 3e38
    program.compare(sizes, data)


def test_weights_that_a_masked_prefix_leaves(folds):
    """Where the maximum is masked but the sum is not, what came before the first score counts."""
    x = load("x", I, J)
    keep = op("ge", streams.index(sym(J)), streams.index(sym(I)), dtype=np.dtype(bool))
    peak = streams.masked(x, keep)
    stat = streams.statistic(peak, J, True)
    running = streams.Running(stat, frozenset({J}))
    body = op("exp2", op("sub", x, running))
    total = streams.scaled(peak, J, op("mul", body, load("v", J, E)), True, 1.0)
    program = Compiled([root("o", (I, E), total)])
    sizes = program.at(1)
    for low in (0.0, -90.0, -200.0):
        data = program.data(sizes)
        data["x"] += np.float32(low)
        wide = evaluate_group(program.prepared.group, data, sizes, wide=True)["o"]
        program.compare(sizes, data, 1e-4 * max(1.0, float(np.abs(wide).max())))


def test_empty_streams_and_rows():
    for i, j in ((0, 5), (5, 0), (0, 0), (1, 1)):
        roots = streams.weighted(axis("i", i), axis("j", j), D, E, (H,))
        g = group(*roots)
        kernel = lower(g, HOST)
        assert not isinstance(kernel, Reject)
        sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
        arrays = {
            b.name: np.ones([int(dims.evaluate(n, sizes)) for n in b.shape], b.dtype)
            for b in kernel.buffers
        }
        native(kernel)(kernel, arrays, sizes)
        given = {t.buffer.name: np.ones(t.buffer.shape, t.dtype) for t in streams.loads_of(g)}
        want = evaluate_group(g, given, wide=True)["o"]
        np.testing.assert_allclose(arrays["o"].reshape(want.shape), want, rtol=1e-5)


@pytest.mark.parametrize("name", ["weighted", "columns", "classifier"])
def test_equal_for_any_number_of_threads(folds, name):
    program = folds(name)
    sizes = program.at(2)
    data = program.data(sizes)
    (compiled,) = compile_kernels([program.kernel], HOST)
    results = []
    for threads in (1, 2, 4):
        table = [data[b.name].ctypes.data for b in program.kernel.buffers]
        table += [sizes[n] for n in program.kernel.sizes]
        with config.scope(num_threads=threads):
            Program([Step(compiled, range(len(table)), sizes)]).run(table)
        results.append([data[b.name].tobytes() for b in program.kernel.outputs])
    assert results[0] == results[1] == results[2]


SPLIT = [
    n
    for n in PROGRAMS
    if n not in ("table", "late", "rows", "double", "standardized", "half moments")
]


# Tiles of a few short vectors: the programs' streams are as long as several of them.
NARROW = replace(HOST, vector_bytes=min(32, HOST.vector_bytes), vector_registers=16)


@pytest.fixture(scope="module")
def split():
    """Programs whose stream is cut into parts of two tiles."""
    made = {}

    def get(name):
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("lumjax.kernel.fold.WHOLE_ROWS", 0)
                if name in TURNED:
                    patch.setattr("lumjax.kernel.fold_shape.MOST_TURNED", 0)
                patch.setattr("lumjax.kernel.fold.JOB_WORK", 1)
                patch.setattr("lumjax.kernel.fold.FEW_JOBS", 1000)
                patch.setattr("lumjax.kernel.fold.ENOUGH_JOBS", 1000)
                patch.setattr("lumjax.kernel.fold_shape.WIDTH", 16)
                patch.setattr("lumjax.kernel.fold_shape.FEW_WIDTH", 16)
                patch.setattr("lumjax.kernel.fold_shape.FEW_VECTORS", 2)
                patch.setattr("lumjax.kernel.fold_shape.LONE_BYTES", 1 << 9)
                cuts = []
                parts = folding.Parts
                patch.setattr(folding, "Parts", lambda *args: cuts.append(1) or parts(*args))
                made[name] = Compiled(PROGRAMS[name](), NARROW)
                assert cuts, "the stream is cut"
        return made[name]

    return get


@pytest.mark.parametrize("name", SPLIT)
def test_parts_of_a_stream(split, name):
    program = split(name)
    for chunks in (None, 1, 2):
        sizes = program.at(chunks)
        program.compare(sizes, program.data(sizes), COARSE.get(name, 3e-5))
    verdict = check_kernel(program.kernel, program.group, program.native)
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", ["causal", "classifier", "long", "stored", "ties", "moments"])
def test_parts_are_written_before_they_are_read(split, name):
    program = split(name)
    small = {a.name: 40 for r in program.group.roots for a in program.axes(r) if a.extent > 20}
    sizes = program.at(1, **small)
    program.compare(sizes, program.data(sizes), execute=emulate)


@pytest.mark.parametrize("name", ["guarded", "low", "stored"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e4, -1e4])
def test_specials_in_parts(split, name, value):
    program = split(name)
    sizes = program.at(None)
    for buffer in program.kernel.inputs:
        data = program.data(sizes)
        if abs(value) == 1e4:
            data[buffer.name] *= value
        else:
            data[buffer.name].reshape(-1)[137] = value
        narrow = abs(value) == 1e4 and buffer.name != "v"
        program.compare(sizes, data, 0.02 if narrow else 1e-4 * min(1e4, max(1, abs(value))))


@pytest.mark.parametrize("name", PROGRAMS)
def test_verified(folds, name):
    program = folds(name)
    verdict = check_kernel(program.kernel, program.group, program.native)
    assert verdict.ok, verdict


MOMENTS = ["moments", "products about an average", "moments of everything", "standardized"]


def rows_that_are_hard(shape, rng):
    """By name: a large mean, also with one value far off or one at first; trends; one value."""
    v = shape[1]
    noise = rng.standard_normal(shape)
    first = np.zeros(shape)
    first[:, 0] = 1e5
    yield "large mean", 1e4 + noise
    yield "first far off", 1e4 + noise + first
    yield "last far off", 1e4 + noise + first[:, ::-1]
    yield "trend", 1e4 + np.arange(v) + noise
    yield "step", np.where(np.arange(v) < v // 3, 1e4, -1e4) + noise
    yield "one value", np.full(shape, 1e4 + 1 / 3)


@pytest.mark.parametrize("name", [n for n in MOMENTS if n != "standardized"])
@pytest.mark.parametrize("parts", [False, True])
def test_moments_are_as_exact_as_in_two_passes(folds, split, name, parts):
    """About the average of what was seen, whatever came first; in tiles of any size."""
    program = (split if parts else folds)(name)
    fused = any(flag in HOST.features for flag in ("+fma", "+fp-armv8", "+neon"))
    for chunks in (None, 1, 2):
        sizes = program.at(chunks)
        for kind, x in rows_that_are_hard((N.extent, L.extent), np.random.default_rng(1)):
            data = program.data(sizes)
            for b in program.kernel.inputs:
                data[b.name] = x.astype(b.dtype)
            want = evaluate_group(program.prepared.group, data, sizes, wide=True)["spread"]
            plain = evaluate_group(program.prepared.group, data, sizes)["spread"]
            program.native(program.kernel, data, sizes)
            off = np.abs(data["spread"].reshape(want.shape) - want)
            eps = float(dt.finfo(dt.float32).eps)
            # one by one, n numbers round n times, by half a unit each; fused products hide most
            steps = max(64, x.size // 2) if chunks == 1 and not fused else 64
            about = steps * eps * np.abs(want) + (8 * eps * np.abs(x).max()) ** 2
            assert (off <= 2 * np.abs(plain - want) + about).all(), (kind, chunks, off.max())


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e17])
def test_moments_are_finite_where_the_program_is(folds, name, value):
    program = folds(name)
    sizes = program.at(1)
    for at in (0, -1, 137):
        data = program.data(sizes)
        data["x"].reshape(-1)[at] = value
        wanted = evaluate_group(program.prepared.group, data, sizes)
        program.native(program.kernel, data, sizes)
        for key, want in wanted.items():
            got = data[key].reshape(want.shape)
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want), err_msg=key)


def test_moments_of_columns_and_of_contractions_are_no_loops_over_tiles():
    """What does not lie along the stream is read by rows; what is contracted is stored first."""
    x = load("x", V, N)
    _, spread = streams.moments(x, V, V.extent)
    assert fold_roles([root("spread", (N,), spread)]) is None
    product = reduce(SUM, D, op("mul", load("x", N, D), load("w", D, V)))
    _, spread = streams.moments(product, V, V.extent)
    refused = fold_roles([root("spread", (N,), spread)])
    assert refused is None or isinstance(refused, Reject)
    both = streams.average(op("mul", load("x", N, V), load("y", N, V)), V, 71)
    twice = op("div", both, streams.average(load("x", N, V), V, 71))
    refused = fold_roles([root("spread", (N,), streams.moved(twice, V, load("x", N, V)))])
    assert isinstance(refused, Reject)
    assert "one sum" in refused.why
    assert isinstance(fold_roles(moments(True)), Roles)


def test_one_read_of_long_rows():
    """Rows that fit stay whole; longer ones are streamed."""
    for length, folded in ((100, False), (1 << 20, True)):
        n, v = axis("n", 4), axis("v", length)
        kernel = lower(group(root("y", (n,), streams.logsumexp(load("x", n, v), v))), TARGET)
        assert not isinstance(kernel, Reject)
        assert any(s.elements == 1 and s.buffer.dtype == dt.int64 for s in kernel.scratch) is folded


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("many", [None, 3])
def test_shares_of_rows_do_not_wait_for_each_other(scale, many):
    """A sum over part of a row cannot use the maximum of the whole row."""
    v = axis("v", 1 << 15)
    rows = () if many is None else (axis("n", many),)
    x = load("x", *rows, v)
    m = streams.statistic(x, v)
    total = reduce(SUM, v, op("exp", op("sub", x, m)))
    y = streams.logsumexp(x, v) if scale else op("add", m, op("log", total))
    made = plan(group(root("y", rows, y)))
    memory = inputs(group(root("y", rows, y)), np.random.default_rng(0))
    want = evaluate_group(group(root("y", rows, y)), memory, wide=True)["y"]
    for step, kernel in made:
        verdict = check_kernel(kernel, step, native(kernel))
        assert verdict.ok, verdict
        sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
        for b in kernel.outputs + kernel.workspace:
            memory[b.name] = np.zeros([int(dims.evaluate(n, sizes)) for n in b.shape], b.dtype)
        native(kernel)(kernel, memory, sizes)
    np.testing.assert_allclose(memory["y"].reshape(want.shape), want, rtol=1e-5)
