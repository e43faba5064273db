"""Sorts, cumulative operations, updates in order and random numbers as CUDA kernels: those of the
interpreter's results that depend on an order have the same bits here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import config, fixed, lax, random, stages
from lumjax import dtype as dt
from lumjax.cuda import blocks, nvrtc
from lumjax.cuda.occupancy import why_not
from lumjax.cuda.runtime import compiled
from lumjax.executable import Executable
from lumjax.fixed import drawn
from lumjax.trace.stage import stage
from tests.test_compiled import CASES

NUMBERS = [
    dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int8, dt.int16, dt.int32, dt.int64,
    dt.uint8, dt.uint16, dt.uint32, dt.uint64,
]  # fmt: skip
COMBINE = ("set", "add", "multiply", "min", "max")


@pytest.fixture(autouse=True)
def x64():
    with config.scope(enable_x64=True):
        yield


def made(f, *args):
    """The results on CUDA, and the kernels: everything is one."""
    jitted = lumjax.jit(f, backend="cuda:emulated", search=0)
    outs = lumjax.tree.leaves(jitted(*args))
    found = jitted.lower(*args).compile().executable
    assert [(s.eqn.prim.name, s.why) for s in found.evaluated()] == []
    kernels = [k for s in found.native() for k in s.kernels]
    assert [k.rejected for k in kernels if k.rejected] == []
    return [np.asarray(x) for x in outs], [k.compiled.kernel for k in kernels]


def bits(x):
    """The bits, one sort of nan aside."""
    if dt.is_inexact(x.dtype):
        x = np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x)
    return x.tobytes()


def same(f, *args):
    """The results have the interpreter's bits; how many phases the largest kernel has."""
    outs, kernels = made(f, *args)
    with config.scope(interpret=True):
        wants = lumjax.tree.leaves(lumjax.jit(f)(*args))
    for got, want in zip(outs, wants, strict=True):
        assert got.dtype == np.asarray(want).dtype
        assert bits(got) == bits(np.asarray(want))
    return max((len(k.phases) for k in kernels), default=0)


# ---- sorts


@pytest.mark.sampled(16)
@pytest.mark.parametrize("length", [1, 2, 5, 63, 64, 65, 300, 2048, 2049])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_sorts(dtype, length):
    """Stable, not a number last, zeros equal, along any axis, either way."""
    rng = np.random.default_rng(length)
    x = drawn(rng, (2, length), dtype)
    phases = same(lambda x: (jnp.sort(x), jnp.argsort(x, descending=True)), x)
    assert phases == (3 if length == 2049 else 1)
    same(lambda x: jnp.argsort(x, axis=0), x.T.copy())


@pytest.mark.parametrize("length", [9, 2500])
def test_sorts_by_several_keys(length):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 5, (2, length)).astype(np.int32) for _ in range(2))
    c = rng.normal(size=(2, length))
    for keys in (1, 2, 3):
        same(lambda a, b, c, keys=keys: lax.sort((a, b, c), num_keys=keys), a, b, c)


@pytest.mark.parametrize("k", [1, 3, 700])
def test_the_largest(k):
    rng = np.random.default_rng(1)
    for shape in ((3, 700), (1, 5000)):
        same(lambda x: lax.top_k(x, k), drawn(rng, shape, dt.float32))


def test_a_row_of_many_pieces():
    x = np.random.default_rng(2).integers(0, 999, 20_001).astype(np.int32)
    assert same(jnp.argsort, x) == 6  # 10 pieces, merged four times


# ---- cumulative operations


@pytest.mark.sampled(12)
@pytest.mark.parametrize("length", [1, 31, 33, 256, 2048, 2049, 4097])
@pytest.mark.parametrize("dtype", [d for d in NUMBERS if d in dt.INTEGER], ids=str)
def test_cumulative_operations_of_integers(dtype, length):
    x = drawn(np.random.default_rng(length), (2, length), dtype)
    same(lambda x: [lax.cumsum(x, 1), lax.cumprod(x, 1, True), lax.cummax(x, 1)], x)
    same(lambda x: [lax.cummin(x, 0), lax.cumsum(x, 0, True)], x.T.copy())


@pytest.mark.parametrize("length", [3, 700, 5000])
def test_cumulative_operations_of_floats(length):
    """Extremes are exact, not a number stays; sums and products are near those in float64."""
    rng = np.random.default_rng(length)
    x = drawn(rng, (2, length), dt.float32)
    same(lambda x: [lax.cummax(x, 1), lax.cummin(x, 1, True)], x)
    y = rng.normal(size=(2, length)).astype(np.float32)
    z = np.exp(0.03 * y)
    (total, product, logs), _ = made(
        lambda y, z: [lax.cumsum(y, 1, True), lax.cumprod(z, 1), lax.cumlogsumexp(y, 1)], y, z
    )
    wide = y.astype(np.float64)
    size = np.cumsum(np.abs(wide)[:, ::-1], 1)[:, ::-1]
    wants = np.cumsum(wide[:, ::-1], 1)[:, ::-1]
    assert np.all(np.abs(total - wants) <= 4e-6 * size)
    np.testing.assert_allclose(product, np.cumprod(z.astype(np.float64), 1), 2e-5)
    np.testing.assert_allclose(logs, np.log(np.cumsum(np.exp(wide), 1)), 2e-6, 2e-6)


def test_sums_of_16_bits_are_carried_in_more():
    x = np.full((1, 3000), 1.0, np.float16)
    (got,), _ = made(lambda x: lax.cumsum(x, 1), x)
    np.testing.assert_array_equal(got[0], np.arange(1, 3001).astype(np.float16))


def test_many_columns_go_in_the_interpreters_order():
    x = np.random.default_rng(3).normal(size=(5, 70, 900)).astype(np.float32)
    assert same(lambda x: lax.cumsum(x, 1), x) == 1


# ---- updates in order


@pytest.mark.sampled(30)
@pytest.mark.parametrize("how", COMBINE)
@pytest.mark.parametrize("count", [0, 1, 40, 90, 2500])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_updates(dtype, count, how):
    """Indices repeat and are out of range; rows of one element and of several."""
    rng = np.random.default_rng(count)
    ids = drawn(rng, (count,), np.dtype(np.int32), (-3, 9))
    mode = ("drop", "clip")[count % 2]
    for width in ((), (3,)):
        x, u = drawn(rng, (7, *width), dtype), drawn(rng, (count, *width), dtype)
        same(lambda x, i, u: getattr(x.at[i], how)(u, mode=mode), x, ids, u)


@pytest.mark.parametrize("count", [13, 130])
def test_updates_in_a_batch_and_of_windows(count):
    rng = np.random.default_rng(4)
    x, u = (rng.normal(size=(4, n, 5)).astype(np.float32) for n in (9, count))
    ids = rng.integers(-2, 11, (4, count)).astype(np.int32)
    same(lumjax.vmap(lambda x, i, u: x.at[i].add(u, mode="drop")), x, ids, u)
    x = rng.normal(size=(6, 7, 5)).astype(np.float32)
    i, j = (rng.integers(-2, k + 2, count).astype(np.int32) for k in (6, 5))
    u = rng.normal(size=(count, 7)).astype(np.float32)
    same(lambda x, i, j, u: x.at[i, :, j].add(u, mode="drop"), x, i, j, u)


def test_the_gradient_of_an_embedding():
    rng = np.random.default_rng(5)
    table, ids = rng.normal(size=(50, 16)).astype(np.float32), rng.integers(0, 50, (6, 19))
    weight = rng.normal(size=(6, 19, 16)).astype(np.float32)
    same(lumjax.grad(lambda t, i, w: jnp.sum(t[i] * w)), table, ids, weight)


# ---- sizes


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_arrays_without_elements(shape):
    x, ids = np.zeros(shape, np.float32), np.zeros(4, np.int32)
    same(lambda x: [jnp.sort(x, axis=0), jnp.argsort(x, axis=-1), lax.cumsum(x, 0)], x)
    if shape != (0,):
        same(lambda x, i: x.at[:, i[:0]].add(1), x, ids)
        same(lambda x, i: x.at[i[:0]].set(1), x, ids)


def test_sizes_of_calls():
    """One compilation for every size: pieces are merged and carried as often as they need be."""
    f = lumjax.jit(
        lambda x, i, u: (jnp.argsort(x), lax.cumsum(x, 0, True), x.at[i].add(u)),
        backend="cuda:emulated", search=0, dynamic=({0: "n"}, {0: "m"}, {0: "m"}),
    )  # fmt: skip
    for n, m in ((5, 3), (1, 1), (7000, 90), (2048, 2050)):
        rng = np.random.default_rng(n)
        x, i, u = rng.integers(-9, 9, n), rng.integers(0, n, m), rng.integers(-9, 9, m)
        wants = np.argsort(x, kind="stable"), np.cumsum(x[::-1])[::-1], x.copy()
        np.add.at(wants[2], i, u)
        for got, want in zip(f(x, i, u), wants, strict=True):
            np.testing.assert_array_equal(got, want)
    found = f.lower(x, i, u).compile().executable
    assert list(found.evaluated()) == []


LARGE = {
    "sort": (lambda x: jnp.sort(x), [(3_000_000,)]),
    "sort of a square": (lambda x: jnp.sort(x), [(5000, 5000)]),
    "largest": (lambda x: lax.top_k(x, 5000), [(64, 50_000)]),
    "sum": (lambda x: lax.cumsum(x, 0), [(40_000_000,)]),
    "sum of columns": (lambda x: lax.cumsum(x, 0), [(9000, 9000)]),
    "updates": (lambda x, i, u: x.at[i[:, 0]].add(u), [(50_000, 768), (8192, 1), (8192, 768)]),
    "updates of a square": (lambda x, i, u: x.at[i].add(u), [(5000, 5000), (5000,), (5000, 5000)]),
    "few updates": (lambda x, i, u: x.at[i].set(u), [(900_000, 5), (3,), (3, 5)]),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LARGE)
def test_kernels_for_large_arrays_are_checked_on_smaller_ones(name, monkeypatch):
    """Such have the same text, whatever was chosen by the sizes; pieces are merged and carried."""
    f, shapes = LARGE[name]
    dtypes = [np.int32 if k == 1 else np.float32 for k in range(3)]
    args = [lumjax.ShapeDtypeStruct(s, d) for s, d in zip(shapes, dtypes, strict=False)]
    seen = []
    compare = fixed._compare

    def counted(made, region, *rest):
        seen.append(sum(np.prod(v.aval.shape) for v in region.inputs))
        return compare(made, region, *rest)

    monkeypatch.setattr(fixed, "_compare", counted)
    with config.scope(cache=False):
        fixed._found.clear()
        found = lumjax.jit(f, backend="cuda:emulated", search=0).lower(*args).compile().executable
    assert [s.why for s in found.evaluated()] == []
    assert seen
    assert 30 <= min(seen) <= max(seen) < 2 * fixed.SOME


# ---- with the rest


def test_random_numbers_are_kernels():
    key = random.key(3)
    drawers = [
        lambda k: random.bits(k, (70,)), lambda k: random.uniform(k, (70,)),
        lambda k: random.normal(k, (70,)), lambda k: random.randint(k, (70,), -5, 9),
        lambda k: random.permutation(k, 70), lambda k: random.bernoulli(k, 0.3, (70,)),
        lambda k: random.categorical(k, jnp.zeros((9, 4))),
    ]  # fmt: skip
    for draw in drawers:
        outs, _ = made(draw, key)
        (want,) = lumjax.tree.leaves(draw(key))
        np.testing.assert_allclose(outs[0], np.asarray(want), 1e-6, 1e-6)


def test_inside_of_loops():
    rng = np.random.default_rng(6)
    ids = rng.integers(0, 6, (5, 11)).astype(np.int32)
    u = rng.integers(-9, 9, (5, 11, 8)).astype(np.float32)  # sums that are exact

    def steps(x, ids, u):
        def step(c, row):
            c = c.at[row[0]].add(row[1])
            return c, jnp.sort(jnp.cumsum(c, axis=0))[2]

        return lax.scan(step, x, (ids, u))

    same(steps, np.zeros((6, 8), np.float32), ids, u)


@pytest.mark.sampled(60)
@pytest.mark.parametrize(("prim", "sample"), CASES)
def test_what_is_native_on_the_cpu_is_native_here(prim, sample):
    staged = stage(lambda *xs: prim.bind(*xs, **sample.params), sample.avals)
    with config.scope(search_evaluations=0):
        there = {s.eqn.prim.name for s in Executable(staged.jaxpr).evaluated()}
        with config.scope(backend="cuda:emulated"):
            here = {s.eqn.prim.name: s.why for s in Executable(staged.jaxpr).evaluated()}
    assert here.keys() <= there, here


KERNELS = {
    "sorts": lambda x, i: (jnp.sort(x), jnp.argsort(x, axis=0), lax.top_k(x, 2)[1]),
    "sorts by two": lambda x, i: lax.sort((x, x * 2, x + 1), num_keys=2),
    "sums": lambda x, i: (lax.cumsum(x, 1), lax.cumsum(x, 0, True), lax.cumprod(x, 1)),
    "extremes": lambda x, i: (lax.cummax(x, 1), lax.cummin(x, 1, True)),
    "logs": lambda x, i: (lax.cumlogsumexp(x, 1), lax.cumlogsumexp(x.T, 1)),
    "updates": lambda x, i: [x.at[i].add(x[: i.size] + k) for k in range(2)],
    "others": lambda x, i: [getattr(x.T.at[i], how)(x[0, 0]) for how in COMBINE[2:]],
    "last": lambda x, i: x.at[:, i].set(x[:, : i.size] * 2),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16, dt.int8, dt.int64], ids=str)
def test_kernels_compile_for_each_architecture_and_spill_nothing(dtype, name):
    if name == "logs" and dtype in dt.INTEGER:
        pytest.skip("logarithms are of floats")
    for shape, count in (((90, 2500), 90), ((30, 70), 9)):
        args = lumjax.ShapeDtypeStruct(shape, dtype), lumjax.ShapeDtypeStruct((count,), np.int32)
        with config.scope(verify=False):
            made = lumjax.jit(KERNELS[name], backend="cuda:emulated", search=0)
            found = made.lower(*args).compile().executable
        for kernel in (k.compiled.kernel for s in found.native() for k in s.kernels):
            rendered = compiled(kernel).rendered
            for arch in ("sm_80", "sm_90a"):
                usage = nvrtc.cubin(rendered.text, arch).usage
                for launch in rendered.launches:
                    assert usage[launch.name].spills == usage[launch.name].local == 0
                assert why_not(rendered, arch) is None


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", KERNELS)
def test_one_thread_gets_the_same(name, monkeypatch):
    """The programs are Kernel IR like any other: the CPU runs them too."""
    maker = replace(fixed.NATIVE, blocks=True)
    alone = fixed.compiled_alone
    used = []

    def for_blocks(step, target):
        used.append(step)
        return alone(step, target, maker)

    monkeypatch.setattr(stages, "compiled_alone", for_blocks)
    rng = np.random.default_rng(8)
    x, i = rng.normal(size=(20, 2500)).astype(np.float32), rng.integers(-90, 2500, 20)
    with config.scope(cache=False):
        fixed._found.clear()
        outs = lumjax.tree.leaves(lumjax.jit(KERNELS[name], search=0)(x, i))
        fixed._found.clear()
    assert used
    gpu, _ = made(KERNELS[name], x, i)
    for a, b in zip(outs, gpu, strict=True):
        np.testing.assert_allclose(a, b, 1e-6, 1e-6)


FAULTS = {
    "sort": lambda x: jnp.sort(x),
    "sum": lambda x: lax.cumsum(x, 1),
    "updates": lambda x: x.at[jnp.arange(90) % 2].add(jnp.ones((90, 300))),
}


@pytest.mark.parametrize("name", FAULTS)
def test_kernels_without_barriers_are_refused(name, monkeypatch):
    """Threads exchange what they compute: verification sees where they don't wait."""
    x = np.random.default_rng(7).normal(size=(2, 300)).astype(np.float32)
    monkeypatch.setattr(
        blocks.Body, "barrier", lambda self: (self.read.clear(), self.written.clear())
    )
    fixed._found.clear()
    with config.scope(cache=False):
        jitted = lumjax.jit(FAULTS[name], backend="cuda:emulated", search=0)
        found = jitted.lower(x).compile().executable
        why = [s.why for s in found.evaluated()]
        assert len(why) == 1
        assert "races" in why[0] or "nothing has written" in why[0]
        np.testing.assert_allclose(jitted(x), FAULTS[name](jnp.asarray(x)), 1e-5, 1e-5)
