"""jit(f, dynamic=): one compilation for every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, ops, testing
from lumjax.concrete import concrete
from lumjax.testing.checks import assert_close
from lumjax.testing.programs import RandomChooser, build
from lumjax.trace.dim import Expr

SIZES = (1, 2, 7, 33, 100)


def drawn(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def attention(q, k, v):
    scores = q @ k.T / q.shape[-1] ** 0.5
    causal = jnp.arange(q.shape[0])[:, None] >= jnp.arange(k.shape[0])[None]
    return nn.softmax(jnp.where(causal, scores, -jnp.inf)) @ v


def loss(w, x, y):
    return jnp.mean((jnp.tanh(x @ w) - y) ** 2)


def cell(carry, x):
    carry = jnp.tanh(0.5 * carry + x)
    return carry, carry.sum()


def convolved(x, w):
    return lax.conv_general_dilated(x, w, (2, 2), "SAME")


A, D = {0: "n"}, {0: "n", 1: "m"}
# name -> function, spec, arguments of size n
PROGRAMS: dict[str, tuple[Callable[..., Any], Any, Callable[[int], tuple[Any, ...]]]] = {
    "map": (lambda x: jnp.exp(x) * 2 + x.shape[0], A, lambda n: (drawn(n, 3),)),
    "softmax": (nn.softmax, {1: "n"}, lambda n: (drawn(3, n),)),
    "normalised": (
        lambda x: (x - x.mean(-1, keepdims=True)) / jnp.std(x, -1, keepdims=True),
        D, lambda n: (drawn(n, n + 3),),
    ),
    "product": (lambda x, y: x @ y, (D, {0: "m"}), lambda n: (drawn(n, 2 * n), drawn(2 * n, 5))),
    "attention": (attention, (A, A, A), lambda n: tuple(drawn(n, 8, seed=s) for s in range(3))),
    "attention's gradient": (
        lumjax.grad(lambda *a: jnp.sum(attention(*a) ** 2), (0, 1, 2)),
        (A, A, A), lambda n: tuple(drawn(n, 8, seed=s) for s in range(3)),
    ),
    "gradient": (
        lumjax.value_and_grad(loss), (None, A, A),
        lambda n: (drawn(4, 2), drawn(n, 4, seed=1), drawn(n, 2, seed=2)),
    ),
    "scan over n": (lambda c, x: lax.scan(cell, c, x), (None, A),
                    lambda n: (drawn(4), drawn(n, 4))),
    "the scan's gradient": (
        lumjax.grad(lambda c, x: jnp.sum(lax.scan(cell, c, x)[1] ** 2), (0, 1)),
        (None, A), lambda n: (drawn(4), drawn(n, 4)),
    ),
    "while": (
        lambda x: lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: c * 2, jnp.abs(x) + 1),
        A, lambda n: (drawn(n),),
    ),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), A, lambda n: (drawn(n),)),
    "concatenated": (lambda x, y: jnp.concatenate([x, y, x]), (A, {0: "m"}),
                     lambda n: (drawn(n), drawn(n // 2 + 1))),
    "sliced": (lambda x: x[1:] - x[:-1], {0: lumjax.dim("n", min=2)}, lambda n: (drawn(n + 1),)),
    "reversed": (lambda x: x[::-1], A, lambda n: (drawn(n, 2),)),
    "every third from the end": (lambda x: x[::-3] + x.shape[0], A, lambda n: (drawn(n),)),
    "first, last": (lambda x: x[0] + x[-1] * x[x.shape[0] - 1], A, lambda n: (drawn(n, 2),)),
    "at most four": (lambda x: x[:4], A, lambda n: (drawn(n, 2),)),
    "set": (lambda x: x.at[-1].set(0).at[0].add(x[x.shape[0] - 1]), A, lambda n: (drawn(n, 2),)),
    "set where others say": (lambda x, i: x.at[i].add(1.0).at[i, 0].set(2.0), (A, None),
                             lambda n: (drawn(n, 2), jnp.zeros(3, jnp.int32))),
    "gathered": (lambda x: x[jnp.arange(x.shape[0]) // 2] + jnp.take(x, x.shape[0] - 1, 0), A,
                 lambda n: (drawn(n, 2),)),
    "ranges": (lambda x: jnp.arange(1, x.shape[0] + 1, 2).sum() + jnp.arange(x.shape[0], 0, -1), A,
               lambda n: (drawn(n),)),
    "counted": (lambda x: (jnp.argmax(x), x.size, jnp.var(x, ddof=1)), {0: lumjax.dim("n", min=2)},
                lambda n: (drawn(n + 1),)),
    "sorted": (lambda x: (jnp.sort(x), jnp.cumsum(x)), A, lambda n: (drawn(n),)),
    "nothing beside": (
        lambda x, i: (
            jnp.cumsum(x, 1), jnp.cumsum(x, 0), lax.cummax(x, 0), jnp.sort(x, 1), jnp.sort(x, 0),
            jnp.argsort(x, 0), x.at[i].add(1.0), x.at[i].set(x[i]), jnp.take(x, i, 0), x[::-1],
            jnp.concatenate([x, x]), x.sum(0), x.sum(1), x @ x.T, jnp.pad(x, ((1, 0), (0, 1))),
        ),
        (A, None), lambda n: (drawn(n, 0), jnp.zeros(2, jnp.int32)),
    ),
    "padded": (lambda x: jnp.pad(x, ((1, 2), (0, 1))), A, lambda n: (drawn(n, 2),)),
    "rolled": (lambda x: jnp.roll(x, 1, 0), A, lambda n: (drawn(n, 2),)),
    "stacked, tiled": (lambda x: jnp.stack([x, x]) + jnp.tile(x, (2, 1)).reshape(2, -1), A,
                       lambda n: (drawn(n),)),
    "triangle": (lambda x: jnp.tril(x) - jnp.eye(x.shape[0]), {0: "n", 1: "n"},
                 lambda n: (drawn(n, n),)),
    "one hot": (lambda x: nn.one_hot(jnp.argsort(x), 5) * jnp.ones(x.shape)[:, None], A,
                lambda n: (drawn(n),)),
    "a key": (lambda x: lumjax.random.normal(lumjax.random.key(0), x.shape) * x,
              {0: lumjax.dim("n", max=1 << 20)},
              lambda n: (drawn(n),)),
    "einsum": (lambda x: jnp.einsum("bid,bjd->bij", x, x), {0: "b", 1: "n"},
               lambda n: (drawn(2, n, 3),)),
    "flattened": (lambda x: x.reshape(-1) * 2, A, lambda n: (drawn(n, 3, 2),)),
    "split in heads": (lambda x: x.reshape(x.shape[0], 2, 3).swapaxes(0, 1), A,
                       lambda n: (drawn(n, 6),)),
    "outer": (lambda x: x[:, None] * x[None], A, lambda n: (drawn(n),)),
    "trace": (lambda x: jnp.trace(x) + jnp.diagonal(x), {0: "n", 1: "n"}, lambda n: (drawn(n, n),)),
    "convolution": (convolved, (A, None), lambda n: (drawn(n, 2, 9, 9), drawn(3, 2, 3, 3))),
    "its gradients": (
        lumjax.grad(lambda x, w: jnp.sum(convolved(x, w) ** 2), (0, 1)),
        (A, None), lambda n: (drawn(n, 2, 9, 9), drawn(3, 2, 3, 3)),
    ),
    "every size a value": (lambda x: (x.shape[0], x.sum() / x.shape[0], x * x.shape[0]), A,
                           lambda n: (drawn(n),)),
    "vmap": (lumjax.vmap(lambda x: x @ x), A, lambda n: (drawn(n, 4),)),
    "pytree": (lambda t: {"sum": t["a"].sum() + t["b"][0]}, ({"a": A, "b": None},),
               lambda n: ({"a": drawn(n), "b": drawn(3)},)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_serves_every_size(name):
    f, spec, made = PROGRAMS[name]
    jitted = lumjax.jit(f, dynamic=spec)
    for n in SIZES:
        args = made(n)
        got = jitted(*args)
        with lumjax.disable_jit():
            want = f(*args)
        assert_close(got, want, f"{name} of size {n}", 1e-3, 1e-4)
    assert len(jitted.explain()) == 1
    executable = jitted.program(*args).executable()
    assert all(k.everywhere and not k.rejected for k in executable.kernels())


def test_fifty_batches_of_a_training_step_are_one_compilation():
    @lumjax.jit(dynamic=(None, {0: "batch"}, {0: "batch"}))
    def step(w, x, y):
        return w - 0.1 * lumjax.grad(loss)(w, x, y)

    w = drawn(4, 2)
    for n in range(1, 51):
        x, y = drawn(n, 4, seed=n), drawn(n, 2, seed=n)
        want = w - 0.1 * lumjax.grad(loss)(w, x, y)
        w = step(w, x, y)
        np.testing.assert_allclose(w, want, rtol=1e-4, atol=1e-5)
    assert step._cache_size() == 1


def test_parameters_may_be_named():
    f = lumjax.jit(lambda x, y: x.sum() * y, dynamic={"y": {0: "n"}})
    for n in (2, 5):
        assert f(drawn(3), drawn(n)).shape == (n,)
        assert f(drawn(3), y=drawn(n)).shape == (n,)
    assert len(f.explain()) == 2  # by place and by name


def test_an_entry_is_a_prefix_of_its_argument():
    f = lumjax.jit(lambda t: t["a"] + t["b"], dynamic=({0: "n"},))
    for n in (2, 5):
        assert f({"a": drawn(n), "b": drawn(n)}).shape == (n,)
    assert len(f.explain()) == 1


def test_under_other_transformations_sizes_are_as_they_are():
    f = lumjax.jit(lambda x: jnp.sum(x**2), dynamic={0: "n"})
    for n in (2, 5):
        np.testing.assert_allclose(lumjax.grad(f)(drawn(n)), 2 * drawn(n), rtol=1e-6)
        np.testing.assert_allclose(
            lumjax.vmap(f)(drawn(3, n)), (drawn(3, n) ** 2).sum(1), rtol=1e-5
        )


def test_a_jitted_function_inside():
    inner = lumjax.jit(lambda x: jnp.cumsum(x) * 2)
    f = lumjax.jit(lambda x: inner(x).sum(), dynamic={0: "n"})
    for n in (2, 5):
        np.testing.assert_allclose(f(drawn(n)), 2 * np.cumsum(drawn(n)).sum(), rtol=1e-4)


def test_settings_that_look_at_values():
    f = lumjax.jit(lambda x: jnp.log(x), dynamic={0: "n"})
    with lumjax.debug_nans(True), pytest.raises(FloatingPointError):
        f(-jnp.ones(3))
    with lumjax.config.scope(interpret=True):
        assert f(jnp.ones(4)).shape == (4,)


def test_donation_follows_the_size():
    f = lumjax.jit(lambda x: x + 1, donate_argnums=0, dynamic={0: "n"})
    for n in (2, 5):
        x = drawn(n)
        assert f(x).shape == (n,)
        assert x.is_deleted()


# ---- dims


def test_dims_are_computed_with():
    n = lumjax.dim("n", min=2, max=64)
    assert isinstance(n, Expr)
    assert (n + n) // 2 is n
    assert n % 1 == 0
    assert n**2 is n * n
    assert n**0 == 1
    assert n >= 2
    assert not n > 64
    assert lumjax.dim("k", min=3, max=3) == 3


@pytest.mark.parametrize("name", ["n0", "a1", "g12", "x_3"])
def test_names_that_the_compiler_uses_itself(name):
    f = lumjax.jit(lambda x: (x * 2 + jnp.arange(x.shape[0])).sum(), dynamic={0: name})
    for n in (2, 5):
        np.testing.assert_allclose(f(jnp.ones(n)), 2 * n + n * (n - 1) / 2)
    assert len(f.explain()) == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_a_program_at_given_sizes(seed, n):
    """Sizes put in are sizes traced."""
    f = lumjax.vmap(build(RandomChooser(seed)).fn)
    args = build(RandomChooser(seed)).args
    batch = [jnp.stack([jnp.asarray(x)] * n) for x in args]
    opened = lumjax.jit(f, dynamic=({0: "n"},) * len(args)).program(*batch).jaxpr
    assert str(concrete(opened, {"n": n})) == str(lumjax.jit(f).program(*batch).jaxpr)


# ---- random programs


@pytest.mark.sampled(0.1)
@pytest.mark.parametrize("seed", range(200))
def test_random_programs_over_an_open_batch(seed):
    program = build(RandomChooser(seed), flow=seed % 3 == 0)
    half = any(x.dtype in (jnp.float16, jnp.bfloat16) for x in program.inputs)
    tolerance = {"rtol": 8e-2, "atol": 4e-2} if half else {"rtol": 1e-3, "atol": 1e-4}
    testing.check_dynamic(program.fn, program.args, **tolerance)


# ---- errors


def refused(f, *args, spec: Any = None, like: str, kind: type = lumjax.errors.ShapeError):
    with pytest.raises(kind, match=like):
        lumjax.jit(f, dynamic={0: "n"} if spec is None else spec)(*args)


def test_sizes_that_do_not_agree():
    refused(
        lambda x, y: x.sum() + y.sum(), drawn(3), drawn(4), spec=({0: "n"}, {0: "n"}),
        like=r"argument y: requires n = 3 on axis 0 of x; got 4 on axis 0",
    )  # fmt: skip


@pytest.mark.parametrize("n", [0, 9])
def test_sizes_out_of_range(n):
    refused(jnp.sum, jnp.ones(n), spec={0: lumjax.dim("n", max=8)}, like="requires n in 1..8")


def test_questions_without_an_answer():
    kind = lumjax.errors.InconclusiveDimError
    refused(lambda x: x if x.shape[0] > 3 else -x, drawn(5), like=r"n in \[1, inf\]", kind=kind)
    refused(lambda x: lax.slice(x, (0,), (4,)), drawn(5), like="n in", kind=kind)
    refused(lambda x: jnp.zeros(int(x.shape[0])), drawn(5), like=r"int\(n\)", kind=kind)
    refused(lambda x: x + jnp.ones(5), drawn(5), like="broadcast")
    refused(lambda x: x.reshape(2, 3), drawn(6), like="reshape")


def test_axes_that_are_not_there():
    refused(jnp.sum, drawn(3), spec={1: "n"}, like="an array with an axis 1")


@pytest.mark.parametrize("spec", [3, "n", ({0: 3},), ({"0": "n"}, None, None), ({0: "n"},) * 3])
def test_specs_that_are_none(spec):
    wrong = (lumjax.errors.ArgumentTypeError, lumjax.errors.TreeError)
    with pytest.raises(wrong, match="dynamic"):
        lumjax.jit(lambda x: x, dynamic=spec)(drawn(3))


def test_one_name_has_one_range():
    spec = {0: lumjax.dim("n", max=8), 1: "n"}
    refused(jnp.sum, drawn(3, 3), spec=spec, like="one range for n",
            kind=lumjax.errors.ArgumentTypeError)  # fmt: skip


@pytest.mark.parametrize("bad", [{"name": "a b"}, {"name": "n", "min": -1},
                                 {"name": "n", "min": 4, "max": 3}])  # fmt: skip
def test_dims_that_are_none(bad):
    with pytest.raises(lumjax.errors.ArgumentValueError, match="dim"):
        lumjax.dim(**bad)


def test_a_size_has_no_value_outside():
    with pytest.raises(lumjax.errors.InconclusiveDimError, match="dynamic"):
        ops.dim_value(lumjax.dim("n"))
