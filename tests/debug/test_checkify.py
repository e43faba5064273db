"""checkify, program by program as JAX's: what is found first, and in what words."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import ConcretizationError, FailedCheckError
from lumjax.experimental import checkify

X = np.array([2.0, 1.0, -3.0, -4.0], np.float32)


def programs(jax, checkify):
    """name: (function, arguments, kinds of checks), in terms of a library."""
    jnp, lax = jax.numpy, jax.lax

    def positive(x):
        checkify.check(x > 0, "bad {x} {}", x * 2, x=x)
        return jnp.sin(x)

    def going(v):
        checkify.check(v[1] > 0, "cond {v}", v=v[1])
        return v[0] < 5

    def rethrowing(x):
        error, out = checkify.checkify(positive)(x)
        checkify.check_error(error)
        return out

    minus = np.float32(-1.0)
    index, user = checkify.index_checks, checkify.user_checks
    return {
        "index": (lambda x, i: x[i], (X, 5), index),
        "index within": (lambda x, i: x[i], (X, 2), index),
        "negative index": (lambda x, i: x[i], (X, -6), index),
        "two axes": (lambda x, i: x[1, i], (np.ones((2, 3)), np.array([0, 7])), index),
        "update": (lambda x, i: x.at[i].set(1.0), (X, 5), index),
        "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i,), (2,)), (X, 3), index),
        "nan": (jnp.sin, (np.float32(np.inf),), checkify.nan_checks),
        "no nan": (jnp.sin, (minus,), checkify.all_checks),
        "div": (lambda x: 1 / x, (X * 0,), checkify.div_checks),
        "float": (lambda x: x / x, (X * 0,), checkify.float_checks),
        "user": (positive, (jnp.asarray(minus),), user),
        "user, holds": (positive, (jnp.asarray(-minus),), user),
        "user, not asked for": (positive, (jnp.asarray(minus),), checkify.nan_checks),
        "cond": (lambda x: lax.cond(x < 0, positive, lambda x: x, x), (minus,), user),
        "other branch": (lambda x: lax.cond(x > 0, positive, lambda x: x, x), (minus,), user),
        "scan": (lambda x: lax.scan(lambda s, a: (s + positive(a), a), 0.0, x), (X,), user),
        "while": (
            lambda x: lax.while_loop(
                lambda v: v[0] < 5, lambda v: (v[0] + 1, v[1] - positive(v[1]) * 0 - 1), (0, x)
            ),
            (np.float32(2.5),), user,
        ),
        "condition of while": (
            lambda x: lax.while_loop(going, lambda v: (v[0] + 1, v[1] - 1), (0, x)),
            (np.float32(2.5),), user,
        ),
        "fori_loop": (
            lambda x: lax.fori_loop(0, 4, lambda i, v: v + positive(x[i]), 0.0), (X,), user,
        ),
        "jit": (jax.jit(positive), (minus,), user),
        "grad": (jax.grad(positive), (minus,), user),
        "nan of a derivative": (
            jax.grad(lambda x: jnp.sum(jnp.sqrt(x) ** 2)), (np.zeros(2, np.float32),),
            checkify.nan_checks,
        ),
        "checkpoint": (jax.checkpoint(positive), (minus,), user),
        "custom rule": (lambda x: jax.nn.relu(jnp.log(x)), (minus,), checkify.float_checks),
        "softmax": (jax.nn.softmax, (X,), checkify.all_checks),
        "rethrown": (jax.jit(rethrowing), (minus,), user),
    }  # fmt: skip


OURS = programs(lumjax, checkify)


@pytest.fixture(scope="module")
def theirs():
    jax = pytest.importorskip("jax")
    module = pytest.importorskip("jax.experimental.checkify")
    return jax, programs(jax, module), module


def words(error):
    """A message without its place; JAX ends sentences with and without a dot."""
    return error and error.split(" At ")[0].split("\n")[0].strip().rstrip(".")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OURS)
def test_the_first_failure_is_jaxs(name, theirs):
    jax, others, module = theirs
    f, args, kinds = others[name]
    arrays = [jax.numpy.asarray(a) for a in args]
    expected = words(module.checkify(f, errors=kinds)(*arrays)[0].get())
    f, args, kinds = OURS[name]
    checked = checkify.checkify(f, errors=kinds)
    for run in (checked, lumjax.jit(checked)):
        assert words(run(*args)[0].get()) == expected


@pytest.mark.parametrize("name", [n for n in OURS if OURS[n][2] == checkify.user_checks])
def test_results_are_those_of_the_function(name):
    f, args, _ = OURS[name]
    error, out = checkify.checkify(f)(*args)
    if error.get() is None:
        expected = lumjax.tree.leaves(f(*args))
        for a, b in zip(lumjax.tree.leaves(out), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    else:  # a check that nobody turned into a value raises, under jit too
        with pytest.raises(FailedCheckError):
            lumjax.jit(f)(*args)


def positive(x):
    checkify.check(x > 0, "bad {x}", x=x)
    return jnp.sin(x)


def test_lanes_of_vmap():
    x = jnp.array([1.0, -2.0, -3.0])
    error, _ = lumjax.jit(lumjax.vmap(checkify.checkify(positive)))(x)
    assert error.get() == (
        "at mapped index 1: bad -2.0 (`check` failed)\nat mapped index 2: bad -3.0 (`check` failed)"
    )
    error, _ = checkify.checkify(lumjax.vmap(positive))(x)
    assert error.get() == "bad -2.0 (`check` failed)"


def test_derivatives_of_a_checked_function():
    checked = checkify.checkify(positive)
    assert float(lumjax.grad(lambda x: checked(x)[1])(1.0)) == pytest.approx(np.cos(1.0))
    slope, error = lumjax.grad(lambda x: checked(x)[::-1], has_aux=True)(-1.0)
    assert float(slope) == pytest.approx(np.cos(1.0))
    assert "bad" in error.get()


def test_throw_names_the_line():
    error, _ = checkify.checkify(positive)(-1.0)
    with pytest.raises(checkify.JaxRuntimeError, match=r"bad -1\.0") as caught:
        error.throw()
    assert caught.value.source.function == "positive"
    checkify.checkify(positive)(1.0)[0].throw()
    checkify.init_error.throw()


def test_an_error_has_no_text_while_it_is_traced():
    with pytest.raises(ConcretizationError):
        lumjax.jit(lambda x: checkify.checkify(positive)(x)[0].get())(1.0)
