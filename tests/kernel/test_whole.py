"""Kernels of equations that are no terms: updates in order, scans, sorts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import lumjax
import lumjax.numpy as jnp
from lumjax import config, fixed, lax, tree
from lumjax import dtype as dt
from lumjax.fixed import drawn
from lumjax.kernel import order
from lumjax.kernel.ir import Kernel
from lumjax.stages import Native

NUMBERS = [
    dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int8, dt.int16, dt.int32, dt.int64,
    dt.uint8, dt.uint16, dt.uint32, dt.uint64,
]  # fmt: skip
THREADS = (1, 2, 4)
COMBINE = ("set", "add", "multiply", "min", "max")


def programs(made: Any) -> list[str]:
    """The programs of the kernels, none of which may be missing."""
    assert [s.why for s in made.evaluated()] == []
    kernels = [k for s in made.stages if isinstance(s, Native) for k in s.kernels]
    return [p for k in kernels for p in k.compiled.kernel.programs]


def same(f: Any, *args: Any, rtol: float = 0.0) -> list[str]:
    """The compiled results are the interpreter's, and the same for any number of threads."""
    jitted = lumjax.jit(f)
    found = programs(jitted.program(*args).executable())
    wants = tree.leaves(f(*map(jnp.asarray, args)))
    bits: list[bytes] = []
    for threads in THREADS:
        with config.scope(num_threads=threads):
            outs = tree.leaves(jitted(*args))
        bits.append(b"".join(np.asarray(o).tobytes() for o in outs))
        for out, want in zip(outs, wants, strict=True):
            alike(np.asarray(out), np.asarray(want), rtol)
    assert len(set(bits)) == 1
    return found


def alike(got: np.ndarray, want: np.ndarray, rtol: float) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if dt.is_floating(got.dtype):
        wide = np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=rtol)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.fixture(autouse=True)
def x64():
    with config.scope(enable_x64=True):
        yield


# ---- updates


@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("how", COMBINE)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_updates_are_the_interpreters(how: str, mode: str, data: st.DataObject):
    """Rows of any length, indices that repeat and that are out of range, every dtype."""
    rows = data.draw(st.sampled_from([1, 2, 5, 40]))
    width = data.draw(st.sampled_from([(), (1,), (3,), (8,), (17,), (64,), (2, 9), (0,)]))
    count = data.draw(st.sampled_from([0, 1, 2, 7, 90]))
    dtype = data.draw(st.sampled_from(NUMBERS))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    kind = data.draw(st.sampled_from([np.int8, np.int32, np.int64, np.uint32, np.uint64]))
    x, u = drawn(rng, (rows, *width), dtype), drawn(rng, (count, *width), dtype)
    ids = drawn(rng, (count,), np.dtype(kind), (-3, rows + 2))
    same(lambda x, i, u: getattr(x.at[i], how)(u, mode=mode), x, ids, u)


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_windows_and_pairs_of_indices(data: st.DataObject):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.normal(size=(6, 7, 5)).astype(np.float32)
    n = data.draw(st.sampled_from([1, 4, 30]))
    i, j = (rng.integers(-2, k + 2, n).astype(np.int32) for k in (6, 5))
    how = data.draw(st.sampled_from(COMBINE))
    u = rng.normal(size=(n, 7)).astype(np.float32)
    same(lambda x, i, j, u: getattr(x.at[i, :, j], how)(u, mode="drop"), x, i, j, u)
    starts = np.stack([i, j], 1)
    numbers = lax.ScatterDimensionNumbers((1, 2), (1,), (0, 2))
    u = rng.normal(size=(n, 2, 3)).astype(np.float32)
    mode = data.draw(st.sampled_from(["drop", "clip"]))
    same(lambda x, s, u: lax.scatter_add(x, s, u, numbers, mode=mode), x, starts, u)


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("where", [(0, 0, 0), (None, 0, 0), (0, 0, None), (1, 1, 2), (0, None, 0)])
def test_updates_in_a_batch(where: tuple[int | None, ...], width: int):
    rng = np.random.default_rng(0)

    def lanes(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
        return shape if axis is None else (*shape[:axis], 4, *shape[axis:])

    x = rng.normal(size=lanes((9, width), where[0])).astype(np.float32)
    ids = rng.integers(-2, 11, lanes((13,), where[1])).astype(np.int32)
    u = rng.normal(size=lanes((13, width), where[2])).astype(np.float32)
    same(lumjax.vmap(lambda x, i, u: x.at[i].add(u, mode="drop"), where), x, ids, u)


def test_gradients_of_embeddings():
    rng = np.random.default_rng(1)
    table, ids = rng.normal(size=(50, 16)).astype(np.float32), rng.integers(0, 50, (6, 9))
    weight = rng.normal(size=(6, 9, 16)).astype(np.float32)
    loss = lambda t, i, w: jnp.sum(jnp.sin(t[i]) * w)
    assert "INDEXED" in same(lumjax.grad(loss), table, ids, weight, rtol=1e-5)
    wants = np.zeros_like(table)
    np.add.at(wants, ids, np.cos(table[ids]) * weight)
    np.testing.assert_allclose(lumjax.jit(lumjax.grad(loss))(table, ids, weight), wants, rtol=1e-5,
                               atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("how", COMBINE)
def test_updates_have_gradients(how: str):
    rng = np.random.default_rng(2)
    x, ids = rng.normal(size=(5, 8)).astype(np.float32), rng.integers(-2, 7, 12)
    u = rng.integers(-3, 4, (12, 8)).astype(np.float32)
    loss = lambda x, u: jnp.sum(jnp.sin(getattr(x.at[ids], how)(u, mode="drop")))
    same(lumjax.grad(loss, (0, 1)), x, u, rtol=1e-5)


def test_updates_inside_loops_and_choices():
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 6, (5, 11)).astype(np.int32)
    u = rng.normal(size=(5, 11, 8)).astype(np.float32)

    def steps(x, ids, u):
        def step(c, row):
            c = lax.cond(
                jnp.sum(c) > 0, lambda: c.at[row[0]].add(row[1]), lambda: c.at[row[0]].max(1)
            )
            return c, jnp.sort(jnp.cumsum(c, axis=0))[2]

        return lax.scan(step, x, (ids, u))

    assert same(steps, np.zeros((6, 8), np.float32), ids, u) == []  # all of it is in the loop


# ---- scans


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_scans_are_the_interpreters(name: str, data: st.DataObject):
    floats = name == "cumlogsumexp"
    dtype = data.draw(st.sampled_from(NUMBERS[:4] if floats else NUMBERS))
    sizes = st.sampled_from([0, 1, 2, 5, 9, 70, 600])
    shape = data.draw(st.lists(sizes, min_size=1, max_size=3))
    while np.prod(shape) > 20_000:
        shape[shape.index(max(shape))] = 3
    axis, reverse = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.booleans())
    x = drawn(np.random.default_rng(data.draw(st.integers(0, 99))), tuple(shape), dtype)
    rtol = 1e-12 * x.shape[axis] + float(dt.finfo(dtype).eps) if floats else 0.0
    found = same(lambda x: getattr(lax, name)(x, axis=axis, reverse=reverse), x, rtol=rtol)
    assert found == ["SCAN"]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cumlogsumexp"])
def test_scans_have_gradients(name: str):
    x = np.random.default_rng(4).normal(size=(5, 7)).astype(np.float32)
    f = lambda x: jnp.sum(jnp.sin(getattr(lax, name)(x, axis=1)))
    same(lumjax.grad(f), x, rtol=1e-5)
    same(lumjax.vmap(lambda x: getattr(lax, name)(x, axis=0), 1), x, rtol=1e-6)


# ---- sorts


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_sorts_are_the_interpreters(data: st.DataObject):
    """Equal keys stay in order (the positions tell), nan is last, zeros of both signs are equal."""
    dtype = data.draw(st.sampled_from([*NUMBERS, np.dtype(bool)]))
    shapes = [(0,), (1,), (2,), (48,), (49,), (700,), (6, 9), (3, 130), (60, 3), (0, 4), (2, 50, 3)]
    shape = data.draw(st.sampled_from(shapes))
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = drawn(rng, tuple(shape), dtype)
    second = drawn(rng, tuple(shape), data.draw(st.sampled_from(NUMBERS)))
    keys = data.draw(st.integers(1, 2))

    def f(x, second):
        place = lax.broadcasted_iota(jnp.int32, x.shape, axis)
        return lax.sort((x, second, place), dimension=axis, num_keys=keys)

    same(f, x, second)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16, dt.int16, dt.uint64])
@pytest.mark.parametrize("shape", [(200,), (2, 133), (129, 3), (128,)])
def test_long_rows_are_sorted_in_chunks(
    shape: tuple[int, ...], dtype: dt.DType, monkeypatch: pytest.MonkeyPatch
):
    for name, value in (("LONG", 100), ("CHUNK", 32)):
        monkeypatch.setattr(order, name, value)
    monkeypatch.setattr(fixed, "_found", {})
    axis = int(np.argmax(shape))
    rng = np.random.default_rng(6)
    x, second = drawn(rng, shape, dtype), rng.integers(0, 4, shape)

    def f(x: Any, second: Any):
        place = lax.broadcasted_iota(jnp.int32, x.shape, axis)
        return lax.sort((second, x, place), dimension=axis, num_keys=2)

    with config.scope(cache=False):
        same(f, x, second)
        made = lumjax.jit(f).program(x, second).executable()
        assert made.launches > 10


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_greatest_elements(data: st.DataObject):
    dtype = data.draw(st.sampled_from([*NUMBERS, np.dtype(bool)]))
    shape = data.draw(st.sampled_from([(1,), (9,), (64, 8), (3, 700), (2, 5000)]))
    k = data.draw(st.sampled_from([n for n in (0, 1, 2, 9, 300) if n <= shape[-1]]))
    x = drawn(np.random.default_rng(data.draw(st.integers(0, 99))), shape, dtype)
    same(lambda x: lax.top_k(x, k), x)


def test_sorts_have_gradients():
    rng = np.random.default_rng(5)
    x, w = (rng.normal(size=(6, 60)).astype(np.float32) for _ in range(2))
    same(lumjax.grad(lambda x: jnp.sum(jnp.sort(x) * w)), x, rtol=1e-6)
    same(lumjax.grad(lambda x: jnp.sum(jnp.sin(lax.top_k(x, 5)[0]))), x, rtol=1e-6)
    same(lumjax.vmap(jnp.argsort, 1), x)


# ---- checking


def test_constant_operands_are_not_made():
    """What is added to zeros takes one kernel, and no array of zeros."""
    ids = np.asarray([[1], [1], [0]])
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    f = lambda u: lax.scatter_add(jnp.zeros(4, np.float32), ids, u, numbers)
    assert same(f, np.ones(3, np.float32)) == ["INDEXED"]


def test_a_wrong_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch):
    """One that skips a step is found out, and the equation runs through eval."""
    lower = fixed.lower_whole

    def wrong(*args: Any) -> Kernel:
        kernel = lower(*args)
        return replace(kernel, phases=kernel.phases[:-1] or kernel.phases)

    monkeypatch.setattr(fixed, "lower_whole", wrong)
    x, ids = np.zeros((11, 12), np.float32), np.asarray([1, 1, 3, 7])
    f = lambda x, i: x.at[i].add(x[:4] + 2)
    monkeypatch.setattr(fixed, "_found", {})
    with config.scope(cache=False):
        made = lumjax.jit(f).program(x, ids).executable()
    (alone,) = made.evaluated()
    assert alone.eqn.prim.name == "scatter_add"
    assert "not" in alone.why
    np.testing.assert_array_equal(lumjax.jit(f)(x, ids), f(jnp.asarray(x), ids))


DYNAMIC = {
    "scans": lambda x: (jnp.cumsum(x), lax.cummax(x[:, None] * jnp.arange(5.0), axis=0)),
    "sorts": lambda x: (jnp.sort(x), jnp.argsort(x[:, None] * jnp.arange(70.0), axis=1)),
    "greatest": lambda x: lax.top_k(x, 2),
    "rows": lambda x: jnp.zeros((9, 16)).at[(x * 3).astype(int)].add(x[:, None], mode="drop"),
    "elements": lambda x: x.at[(x * 9).astype(int)].max(x, mode="drop"),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_that_come_with_the_call(name: str):
    jitted = lumjax.jit(DYNAMIC[name], dynamic={0: lumjax.dim("n", min=2)})
    for n in (2, 3, 60, 700):
        x = np.random.default_rng(n).normal(size=n)
        outs, wants = (tree.leaves(f(x)) for f in (jitted, lumjax.jit(DYNAMIC[name])))
        for out, want in zip(outs, wants, strict=True):
            alike(np.asarray(out), np.asarray(want), 0.0)
    assert "by eval: 0" in str(lumjax.explain(jitted, x))


LARGE = {
    "sort": (jnp.sort, lambda n: (np.zeros((2, n), np.float32),)),
    "scan": (lambda x: jnp.cumsum(x, 1), lambda n: (np.zeros((6, n), np.float32),)),
    "updates": (
        lambda x, i: x.at[i].add(x[:5], mode="drop"),
        lambda n: (np.zeros((n, 8), np.float32), np.arange(5)),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_arrays_are_checked_with_shorter_axes(name: str, monkeypatch: pytest.MonkeyPatch):
    """It is the same code: sizes are arguments."""
    f, made = LARGE[name]
    shapes: list[Any] = []
    compare = fixed._compare

    def watched(compiled: Any, region: Any, *rest: Any) -> None:
        shapes.extend(v.aval.shape for v in region.inputs)
        compare(compiled, region, *rest)

    monkeypatch.setattr(fixed, "_compare", watched)
    with config.scope(cache=False):
        found = programs(lumjax.jit(f).program(*made(700_000)).executable())
    assert {"SORT", "SCAN", "INDEXED"} & set(found)
    assert shapes
    longest = order.LONG + fixed.LENGTH if name == "sort" else 2 * fixed.LENGTH
    assert all(n < longest for shape in shapes for n in shape)


def test_explain_names_the_kernels():
    f = lambda x, i: jnp.sort(jnp.cumsum(x).at[i].add(x[0]))
    text = str(lumjax.explain(f, np.ones(9), np.asarray([0, 0])))
    for word in ("SCAN: cumsum", "INDEXED: scatter_add", "SORT: sort", "by eval: 0"):
        assert word in text, word


EMPTY = {
    "scatters": lambda x, i: x.at[i].add(1.0),
    "of rows": lambda x, i: jnp.take(x, i, 0, mode="clip"),
    "its gradient": lambda x, i: lumjax.grad(lambda x: jnp.sum(jnp.take(x, i, 0, mode="clip")))(x),
    "cumulative": lambda x, i: jnp.cumsum(x, 1),
    "sorted": lambda x, i: (jnp.sort(x, 0), jnp.argsort(x, 1)),
    "put": lambda x, i: lax.dynamic_update_slice(x, x[:0], (0,) * x.ndim),
}


SHAPES = [(0, 9), (3, 0), (3, 0, 20), (3, 9, 0), (0, 0), (4, 9)]
CASES = [
    (name, shape, count)
    for name in EMPTY
    for shape in SHAPES
    for count in (0, 5)
    if shape[0] or not count or name not in ("of rows", "its gradient")  # there is no row to take
]


@pytest.mark.parametrize(("name", "shape", "count"), CASES)
def test_arrays_without_elements(name, shape, count):
    f, x, i = EMPTY[name], jnp.ones(shape), jnp.zeros(count, jnp.int32)
    with config.scope(interpret=True):
        want = lumjax.jit(f)(x, i)
    for a, b in zip(*map(lumjax.tree.leaves, (lumjax.jit(f)(x, i), want)), strict=True):
        np.testing.assert_array_equal(a, b)
