"""Collectives over the axis of a vmap: values, derivatives, nesting, unbound names."""

import numpy as np
import pytest

import lumjax
from lumjax import dtype as dt
from lumjax import lax
from lumjax import numpy as jnp
from lumjax.errors import ArgumentValueError, UnboundAxisError
from lumjax.grad.jacobian import jacrev
from lumjax.grad.reverse import grad
from lumjax.ops import collective, elementwise, layout
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis, vmap
from lumjax.trace.form import Opaque
from lumjax.trace.stage import stage
from tests.ops import laws

X = np.asarray([[1.0, 5.0], [4.0, 2.0], [3.0, 5.0]], np.float32)


def run(f, *args, **options):
    return vmap(f, axis_name="i", **options)(*args)


def values(x):
    return np.asarray(x.data if isinstance(x, Array) else x).tolist()


def test_reductions_over_lanes():
    for f, want in [
        (collective.psum, X.sum(0)),
        (collective.pmax, X.max(0)),
        (collective.pmin, X.min(0)),
        (collective.pmean, X.mean(0)),
    ]:
        laws.close(run(lambda x, f=f: f(x, "i"), X, out_axes=None), want)
        assert run(lambda x, f=f: f(x, "i"), X).shape == (3, 2)


def test_values_that_are_not_mapped_count_once_per_lane():
    shared = np.asarray([1.0, 2.0], np.float32)
    for f, want in [
        (collective.psum, [3, 6]),
        (collective.pmax, [1, 2]),
        (collective.pmean, [1, 2]),
    ]:
        assert values(run(lambda x, f=f: f(shared, "i"), X)) == [want] * 3


def test_numbers_and_pytrees():
    assert run(lambda x: collective.psum(1, "i") * x, X).data.tolist() == (3 * X).tolist()
    sizes = []
    run(lambda x: sizes.append((collective.psum(2, "i"), collective.axis_size("i"))), X)
    assert sizes == [(6, 3)]
    out = run(lambda x: collective.psum({"a": x, "b": (x, 1.5)}, "i"), X, out_axes=None)
    assert values(out["a"]) == X.sum(0).tolist()
    assert out["b"][1] == 4.5
    mean = run(lambda x: collective.pmean({"n": 3, "k": np.int32(2)}, "i"), X, out_axes=None)
    assert values(mean["n"]) == 3
    assert mean["k"].dtype == dt.float32


def test_lane_numbers():
    assert values(run(lambda x: collective.axis_index("i"), X)) == [0, 1, 2]
    assert run(lambda x: collective.axis_index("i"), X).dtype == dt.int32
    both = vmap(vmap(lambda x: collective.axis_index(("i", "j")), axis_name="j"), axis_name="i")(X)
    assert values(both) == [[0, 1], [2, 3], [4, 5]]
    assert values(collective.axis_index(())) == 0


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathers(axis):
    stacked = run(lambda x: collective.all_gather(x, "i", axis=axis), X, out_axes=None)
    laws.close(stacked, np.stack(list(X), axis))
    if axis != 1:
        tiled = run(
            lambda x: collective.all_gather(x, "i", axis=axis, tiled=True), X, out_axes=None
        )
        laws.close(tiled, np.concatenate(list(X), axis))
    shared = run(lambda x: collective.all_gather(X[0], "i", axis=axis), X, out_axes=None)
    laws.close(shared, np.stack([X[0]] * 3, axis))


def test_permutations():
    ring = [(0, 1), (1, 2), (2, 0)]
    laws.close(run(lambda x: collective.ppermute(x, "i", ring), X), X[[2, 0, 1]])
    laws.close(
        run(lambda x: collective.ppermute(x, "i", ring[:1]), X),
        np.stack([X[0] * 0, X[0], X[0] * 0]),
    )
    laws.close(
        run(lambda x: collective.ppermute(x, "i", ring), X.T.copy(), in_axes=1, out_axes=1),
        X[[2, 0, 1]].T,
    )
    laws.close(
        run(lambda x: collective.ppermute(X[0], "i", [(2, 0)]), X),
        np.stack([X[0], X[0] * 0, X[0] * 0]),
    )
    assert values(run(lambda x: collective.ppermute(x, "i", []), X)) == [[0, 0]] * 3


def test_nested_names():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def both(f):
        return vmap(vmap(f, axis_name="j"), axis_name="i")(x)

    assert values(both(lambda v: collective.psum(v, "i"))) == [[3, 5, 7]] * 2
    assert values(both(lambda v: collective.psum(v, "j"))) == [[3] * 3, [12] * 3]
    assert values(both(lambda v: collective.psum(v, ("i", "j")))) == [[15] * 3] * 2
    assert values(both(lambda v: collective.pmax(v, "i"))) == [[3, 4, 5]] * 2
    laws.close(both(lambda v: collective.all_gather(v, "i")), np.stack([x.T, x.T]))
    ring = [(0, 1), (1, 0)]
    laws.close(both(lambda v: collective.ppermute(v, "i", ring)), x[::-1].copy())
    assert collective.psum_p.batch(MappedAxis(3, "j"), (x,), (1,), axis_name="j")[1] == (None,)


def jax_oracle():
    return pytest.importorskip("jax")


def test_derivatives_inside_agree_with_jax():
    jax = jax_oracle()
    w = np.asarray([[1.0, 2.0, 5.0], [3.0, 1.0, 1.0]], np.float32).T

    def pair(f):
        ours = run(grad(lambda x: layout.reduce_sum(f(collective, elementwise.mul, x), None)), X)
        loss = lambda x: f(jax.lax, jax.numpy.multiply, x).sum()
        theirs = jax.jit(jax.vmap(jax.grad(loss), axis_name="i"))(X)
        laws.close(ours, np.asarray(theirs))

    pair(lambda m, mul, x: m.psum(mul(x, x), "i"))
    pair(lambda m, mul, x: m.pmean(mul(x, x), "i"))
    pair(lambda m, mul, x: mul(m.all_gather(x, "i"), w))
    pair(lambda m, mul, x: mul(m.ppermute(mul(x, x), "i", [(0, 1), (1, 2), (2, 0)]), w[0]))
    pair(lambda m, mul, x: mul(x, m.psum(x, "i")))


def test_derivatives_outside_agree_with_differentiating_the_whole():
    f = lambda x: layout.reduce_sum(
        run(lambda v: elementwise.mul(v, collective.psum(v, "i")), x), None
    )
    want = 2 * np.broadcast_to(X.sum(0), X.shape)
    laws.close(grad(f)(X), want.copy())


def test_extrema_share_ties_over_lanes():
    f = lambda x: run(lambda v: collective.pmax(v, "i"), x, out_axes=None)
    rows = jacrev(f)(X).data
    np.testing.assert_allclose(rows[0], [[0, 0], [1, 0], [0, 0]])
    np.testing.assert_allclose(rows[1], [[0, 0.5], [0, 0], [0, 0.5]])
    g = lambda x: run(lambda v: collective.pmin(v, "i"), x, out_axes=None)
    np.testing.assert_allclose(jacrev(g)(X).data[0], [[1, 0], [0, 0], [0, 0]])


def test_extrema_inside_sum_the_derivatives_of_all_lanes():
    for f, sign in ((collective.pmax, 1), (collective.pmin, -1)):
        loss = lambda x, f=f: layout.reduce_sum(f(x, "i"), None)
        assert values(run(grad(loss), sign * X)) == [[0, 1.5], [3, 0], [0, 1.5]]


def test_symbolic_zeros_stay_symbolic():
    name = {"axis_name": "i"}
    x = np.ones(2, np.float32)
    calls = [
        lambda x: collective.psum_p.jvp((x,), (None,), **name)[1],
        lambda x: collective.pmax_p.jvp((x,), (None,), **name)[1],
        lambda x: collective.psum_p.transpose((None,), (x,), **name),
        lambda x: collective.ppermute_p.jvp((x,), (None,), perm=((0, 1),), **name)[1],
        lambda x: collective.ppermute_p.transpose((None,), (x,), perm=((0, 1),), **name),
        lambda x: collective.all_gather_p.jvp(
            (x,), (None,), axis_size=2, all_gather_dimension=0, **name
        )[1],
        lambda x: collective.all_gather_p.transpose(
            (None,), (x,), axis_size=2, all_gather_dimension=0, **name
        ),
        lambda x: collective.axis_index_p.jvp((), (), **name)[1],
    ]
    found = []

    def f(v):
        found.extend(tuple(call(v)) for call in calls)
        return v

    run(f, np.stack([x, x]))
    assert found == [(None,)] * len(calls)


@pytest.mark.parametrize(
    "call",
    [
        lambda: collective.psum(X, "i"),
        lambda: collective.pmean(X, "i"),
        lambda: collective.pmax(X, ("i", "k")),
        lambda: collective.axis_index("i"),
        lambda: collective.all_gather(X, "i"),
        lambda: collective.ppermute(X, "i", []),
        lambda: collective.axis_size("i"),
        lambda: collective.psum_p.bind(X, axis_name="i"),
        lambda: collective.axis_index_p.bind(axis_name="i"),
    ],
)
def test_unbound_names_say_which_are_bound(call):
    with pytest.raises(UnboundAxisError, match="'i'; the names in scope are none") as caught:
        call()
    assert caught.value.source.file == __file__
    with pytest.raises(UnboundAxisError, match=r"in scope are \('rows'\)"):
        vmap(lambda x: call(), axis_name="rows")(X)


def test_names_are_checked_while_staging():
    aval = ShapedArray((2,), dt.float32)
    with pytest.raises(UnboundAxisError):
        stage(lambda x: [collective.psum(x, "i")], [aval])

    def f(x):
        staged = stage(lambda v: [collective.psum(v, "i"), collective.axis_index("i")], [aval])
        assert [e.prim.name for e in staged.jaxpr.eqns] == ["psum", "axis_index"]
        assert staged.jaxpr.out_avals == (aval, ShapedArray((), dt.int32))
        gathered = stage(lambda v: [collective.all_gather(v, "i", axis=1)], [aval])
        assert gathered.jaxpr.out_avals[0].shape == (2, 3)
        form = collective.psum_p.form(aval, axis_name="i")
        assert isinstance(form, Opaque)
        return x

    run(f, X)


@pytest.mark.parametrize("perm", [[(0, 1), (0, 2)], [(0, 1), (2, 1)], [(0, 3)], [(-1, 0)]])
def test_bad_permutations(perm):
    with pytest.raises(ArgumentValueError, match="distinct"):
        run(lambda x: collective.ppermute(x, "i", perm), X)


def test_bools_are_counted():
    got = run(lambda x: collective.psum(elementwise.cast(x, np.bool_), "i"), X)
    assert got.dtype == np.int32


def test_weak_types_stay():
    """As JAX's: of a weak operand and of a Python number, mapped or not, compiled or not."""
    weak = jnp.broadcast_to(jnp.asarray(2.0), (3,))

    def f(x):
        return lax.psum(x, "i"), lax.pmax(x, "i"), lax.pmean(x, "i"), lax.pmean(1, "i")

    mapped = lumjax.vmap(f, axis_name="i")
    for run in (mapped, lumjax.jit(mapped)):
        assert [v.weak_type for v in run(weak)] == [True] * 4
        assert [v.weak_type for v in run(jnp.arange(3.0))] == [False] * 3 + [True]
        assert [v.dtype.name for v in run(jnp.arange(3))] == ["int32"] * 2 + ["float32"] * 2
