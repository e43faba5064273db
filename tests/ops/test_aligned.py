import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.ops.aligned import align
from lumjax.trace.aval import ShapedArray
from lumjax.trace.check import check
from lumjax.trace.core import eval_jaxpr
from lumjax.trace.stage import stage

N, V = 6, 9


def f32(*shape):
    return ShapedArray(shape, np.dtype(np.float32))


def i32(*shape):
    return ShapedArray(shape, np.dtype(np.int32))


def grad(f):
    return lumjax.grad(lambda x, *args: (f(x, *args) ** 2).sum())


def rows(x, labels):
    return x[jnp.arange(N), labels]


# name: function, avals, batching axes of what is left to look up (None: nothing is left)
CASES = {
    "rows": (rows, (f32(N, V), i32(N)), (0,)),
    "rows, transposed": (grad(rows), (f32(N, V), i32(N)), (0,)),
    "columns": (lambda x, at: x[at, jnp.arange(N)], (f32(V, N), i32(N)), (1,)),
    "grid": (
        lambda x, at: x[jnp.arange(4)[:, None], jnp.arange(5)[None], at],
        (f32(4, 5, V), i32(4, 5)),
        (0, 1),
    ),
    "several of a row": (
        lambda x, at: x[jnp.arange(N)[:, None], at],
        (f32(N, V), i32(N, 2)),
        (0,),
    ),
    "positions": (lambda x: x[jnp.arange(N)], (f32(N, V),), None),
    "positions, transposed": (grad(lambda x: x[jnp.arange(N)]), (f32(N, V),), None),
    "cast": (
        lambda x, at: x[jnp.arange(N, dtype=jnp.uint8).astype(jnp.int32), at],
        (f32(N, V), i32(N)),
        (0,),
    ),
}

# what does not count the whole axis stays as it is
OTHERS = {
    "a part": (lambda x: x[jnp.arange(N - 1)], (f32(N, V),)),
    "a part, transposed": (grad(lambda x: x[jnp.arange(N - 1)]), (f32(N, V),)),
    "twice": (lambda x: x[jnp.arange(N) * 2], (f32(N, V),)),
    "backwards": (lambda x: x[N - 1 - jnp.arange(N)], (f32(N, V),)),
    "repeated": (
        lambda x, at: x[jnp.broadcast_to(jnp.arange(1), (N,)), at],
        (f32(N, V), i32(N)),
    ),
    "given": (lambda x, i, at: x[i, at], (f32(N, V), i32(N), i32(N))),
}


def lookups(jaxpr):
    return [e for e in jaxpr.eqns if e.prim.name in ("gather", "scatter_add")]


def answers(f, avals):
    staged = stage(lambda *xs: [f(*xs)], avals)
    jaxpr = align(staged.jaxpr)
    check(jaxpr)
    rng = np.random.default_rng(0)
    values = [
        rng.integers(-2, V + 2, a.shape).astype(a.dtype)
        if a.dtype.kind == "i"
        else rng.standard_normal(a.shape).astype(a.dtype)
        for a in avals
    ]
    values = [jnp.asarray(v) for v in values]
    got, want = (eval_jaxpr(j, [*staged.consts, *values]) for j in (jaxpr, staged.jaxpr))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))
    return staged.jaxpr, jaxpr


@pytest.mark.parametrize("name", CASES)
def test_counting_indices_become_axes(name):
    f, avals, batching = CASES[name]
    before, after = answers(f, avals)
    assert lookups(before)
    found = lookups(after)
    if batching is None:
        assert not found
    for eqn in found:
        assert eqn.params["dimension_numbers"][3] == batching


@pytest.mark.parametrize("name", OTHERS)
def test_other_indices_stay(name):
    before, after = answers(*OTHERS[name])
    assert [e.params for e in lookups(after)] == [e.params for e in lookups(before)]


def test_programs_without_lookups_are_the_same_object():
    jaxpr = stage(lambda x: [x + x], [f32(3)]).jaxpr
    assert align(jaxpr) is jaxpr
