"""jit(f).trace, .lower and .compile: what they tell, as JAX does, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.errors import ArgumentTypeError, ShapeError, TreeError
from lumjax.lowered import ArgInfo

jax = pytest.importorskip("jax")


def scaled(pair, n, *, power=2):
    return {"out": pair["x"] @ pair["y"] * n, "square": pair["x"] ** power}


def given(numpy):
    return {"x": numpy.ones((2, 3)), "y": numpy.ones((3, 4))}


def stages(library, numpy):
    f = library.jit(scaled, static_argnums=1, static_argnames="power", donate_argnums=0)
    return f.trace(given(numpy), 5, power=3)


@pytest.mark.filterwarnings("ignore:.*donated.*")
def test_what_the_stages_tell_is_what_jax_tells():
    ours, theirs = stages(lumjax, jnp), stages(jax, jax.numpy)
    for mine, want in ((ours, theirs), (ours.lower(), theirs.lower())):
        assert [i.shape for i in lumjax.tree.leaves(mine.out_info)] == [
            i.shape for i in jax.tree.leaves(want.out_info)
        ]
        infos, wanted = (t.leaves(x.args_info) for t, x in ((lumjax.tree, mine), (jax.tree, want)))
        assert [(i.shape, str(i.dtype), i.donated) for i in infos] == [
            (i.shape, str(i.dtype), i.donated) for i in wanted
        ]
        assert (mine.in_tree.num_leaves, mine.out_tree.num_leaves) == (2, 2)
    assert ours.fun_name == theirs.fun_name == "scaled"
    assert ours.jaxpr.in_avals[0].shape == theirs.jaxpr.in_avals[0].shape == (2, 3)


@pytest.mark.filterwarnings("ignore:.*donated.*")
def test_static_arguments_are_not_passed_again():
    for library, numpy in ((lumjax, jnp), (jax, jax.numpy)):
        compiled = stages(library, numpy).lower().compile()
        assert float(np.asarray(compiled(given(numpy))["out"])[0, 0]) == 15.0


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda f, n: f(n.ones((4,))), ShapeError),
        (lambda f, n: f(n.ones((3,), "int32")), ArgumentTypeError),
        (lambda f, n: f(n.ones((3,)), n.ones((3,))), TreeError),
        (lambda f, n: f([n.ones((3,))]), TreeError),
        (lambda f, n: f(x=n.ones((3,))), TreeError),
        (lambda f, n: f(), TreeError),
    ],
)
def test_other_arguments_are_refused(call, kind):
    """They never run a program that was compiled for something else."""
    compiled = lumjax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile()
    with pytest.raises(kind, match="a compiled <lambda>"):
        call(compiled, jnp)
    with pytest.raises(TypeError):
        call(jax.jit(lambda x: x + 1).lower(jax.numpy.ones(3)).compile(), jax.numpy)


def test_numbers_and_numpy_arrays_are_taken():
    compiled = lumjax.jit(lambda x, y: x * y).lower(jnp.ones(3), 2.0).compile()
    np.testing.assert_array_equal(compiled(np.arange(3, dtype="f4"), 3.0), [0, 3, 6])


def test_operations_are_counted_as_jax_counts_products():
    def f(x, y):
        return jnp.tanh(x @ y)

    found = lumjax.jit(f).lower(jnp.ones((8, 16)), jnp.ones((16, 4))).compile().cost_analysis()
    product = jax.jit(lambda x, y: x @ y).lower(jax.numpy.ones((8, 16)), jax.numpy.ones((16, 4)))
    assert found["flops"] == product.compile().cost_analysis()["flops"] == 2 * 8 * 16 * 4
    assert found["transcendentals"] == 32
    assert found["bytes accessed"] >= 4 * (8 * 16 + 16 * 4 + 32)


def test_loops_and_branches_are_counted():
    def cost(f, *args):
        return lumjax.jit(f).lower(*args).compile().cost_analysis()

    x = jnp.ones(10)
    loop = cost(lambda x: lax.fori_loop(0, 7, lambda _, v: v + x, x), x)
    assert 70 <= loop["flops"] <= 70 + 7 + 1  # the counter counts besides
    branch = cost(lambda p, x: lax.cond(p, lambda v: v + 1, lambda v: v, x), True, x)
    assert 10 <= branch["flops"] <= 12  # and the choice
    assert cost(lambda x: jnp.sum(x), x)["flops"] == 10


def test_argument_info_is_of_one_kind():
    info = lumjax.jit(jnp.sin).lower(jnp.ones((2, 3))).args_info
    assert info == ((ArgInfo((2, 3), np.dtype("float32")),), {})


def test_clearing_all_caches_traces_anew():
    traced = []

    def f(x):
        traced.append(x.shape)
        return x + 1

    first, second = lumjax.jit(f), lumjax.jit(lambda x: f(x) * 2)
    for _ in range(2):
        first(1.0), second(1.0)
    assert len(traced) == 2
    lumjax.clear_caches()
    assert float(first(1.0)) == 2.0
    assert float(second(1.0)) == 4.0
    assert len(traced) == 4
