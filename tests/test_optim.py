"""Optimizers and schedules against optax, step by step."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import optim, tree
from lumjax.errors import ArgumentTypeError, ArgumentValueError

optax = pytest.importorskip("optax")
jax = pytest.importorskip("jax")

PARAMS = {
    "w": np.array([[1.0, -2.0, 0.5], [0.0, 3.0, -0.25]], "f4"),
    "b": (np.array([0.1, -0.2], "f4"), np.array(2.0, "f4")),
}


def gradients(step):
    rng = np.random.default_rng(step)
    return jax.tree.map(lambda p: rng.normal(size=np.shape(p)).astype("f4"), PARAMS)


def run(library, make, steps=5, tree_map=None):
    params = PARAMS
    tx = make(library)
    state = tx.init(params)
    trail = []
    for k in range(steps):
        updates, state = tx.update(gradients(k), state, params)
        params = library.apply_updates(params, updates)
        trail.append(params)
    return trail, state


def fields(state):
    """The class names and field names of a state, as a nested list."""
    if hasattr(state, "_fields"):
        return [
            type(state).__name__,
            {
                f: fields(getattr(state, f))
                for f in state._fields
                if f in ("inner_state", "count", "mu", "nu", "trace")
            },
        ]
    return [fields(s) for s in state] if isinstance(state, tuple) else None


OPTIMIZERS = {
    "sgd": lambda o: o.sgd(0.1),
    "momentum": lambda o: o.sgd(0.1, momentum=0.9),
    "nesterov": lambda o: o.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda o: o.adam(1e-2),
    "adam options": lambda o: o.adam(1e-2, b1=0.8, b2=0.95, eps=1e-5, eps_root=1e-6),
    "nadam": lambda o: o.adam(1e-2, nesterov=True),
    "adamw": lambda o: o.adamw(1e-2, weight_decay=0.1),
    "adamw mask": lambda o: o.adamw(1e-2, weight_decay=0.1, mask={"w": True, "b": False}),
    "adamw mask function": lambda o: o.adamw(
        1e-2, weight_decay=0.1,
        mask=lambda p: {"w": True, "b": (False, True)},
    ),
    "lion": lambda o: o.lion(1e-2),
    "lion decay": lambda o: o.lion(1e-2, b1=0.8, weight_decay=0.1),
    "rmsprop": lambda o: o.rmsprop(1e-2),
    "rmsprop centered": lambda o: o.rmsprop(1e-2, centered=True, momentum=0.9),
    "rmsprop eps outside": lambda o: o.rmsprop(1e-2, eps=1e-3, eps_in_sqrt=False),
    "rmsprop unbiased": lambda o: o.rmsprop(
        1e-2, bias_correction=True, nesterov=True, momentum=0.5
    ),
    "rmsprop initial": lambda o: o.rmsprop(1e-2, initial_scale=1.0, decay=0.5),
    "rmsprop centered unbiased": lambda o: o.rmsprop(1e-2, centered=True, bias_correction=True),
    "clipped": lambda o: o.chain(o.clip_by_global_norm(0.5), o.adam(1e-2)),
    "clipped elementwise": lambda o: o.chain(o.clip(0.3), o.sgd(1.0)),
    "decayed": lambda o: o.chain(o.add_decayed_weights(0.1), o.sgd(0.1)),
    "scheduled": lambda o: o.sgd(o.linear_schedule(1.0, 0.1, 3)),
    "scaled": lambda o: o.chain(o.scale(2.0), o.scale_by_learning_rate(0.1, flip_sign=False)),
    "by schedule": lambda o: o.chain(o.trace(0.9), o.scale_by_schedule(lambda c: 1.0 / (c + 1))),
    "identity": lambda o: o.identity(),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_optaxs(name):
    ours, our_state = run(optim, OPTIMIZERS[name])
    theirs, their_state = run(optax, OPTIMIZERS[name])
    for a, b in zip(ours, theirs, strict=True):
        for x, y in zip(tree.leaves(a), jax.tree.leaves(b), strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-6)
    ours_flat, theirs_flat = tree.leaves(our_state), jax.tree.leaves(their_state)
    assert len(ours_flat) == len(theirs_flat)
    for x, y in zip(ours_flat, theirs_flat, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["adam", "momentum", "rmsprop", "rmsprop centered", "lion", "scheduled"]
)
def test_states_have_optaxs_names(name):
    ours, theirs = (OPTIMIZERS[name](o).init(PARAMS) for o in (optim, optax))
    assert fields(ours) == fields(theirs)


SCHEDULES = {
    "constant": lambda o: o.constant_schedule(0.3),
    "linear": lambda o: o.linear_schedule(1.0, 0.1, 10),
    "linear late": lambda o: o.linear_schedule(1.0, 0.1, 10, transition_begin=3),
    "polynomial": lambda o: o.polynomial_schedule(1.0, 0.1, 2.0, 10),
    "cosine": lambda o: o.cosine_decay_schedule(1.0, 10, alpha=0.1),
    "cosine power": lambda o: o.cosine_decay_schedule(1.0, 10, exponent=2.0),
    "warmup": lambda o: o.warmup_cosine_decay_schedule(0.0, 1.0, 5, 20, 0.1),
    "join": lambda o: o.join_schedules(
        [o.constant_schedule(1.0), o.linear_schedule(2.0, 0.0, 4)], [3]
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_optaxs(name):
    ours, theirs = SCHEDULES[name](optim), SCHEDULES[name](optax)
    for step in (0, 1, 2, 3, 4, 5, 9, 10, 15, 25):
        assert float(ours(step)) == pytest.approx(float(theirs(step)), rel=1e-5, abs=1e-7)
    traced = lumjax.jit(ours)(jnp.int32(4))
    assert float(traced) == pytest.approx(float(theirs(4)), rel=1e-5)


def test_low_precision_moments():
    for make in (
        lambda o: o.adam(0.1, mu_dtype="bfloat16"),
        lambda o: o.lion(0.1, mu_dtype="bfloat16"),
        lambda o: o.sgd(0.1, momentum=0.9, accumulator_dtype="bfloat16"),
    ):
        ours, theirs = (run(o, make)[1] for o in (optim, optax))
        assert [str(x.dtype) for x in tree.leaves(ours)] == [
            str(x.dtype) for x in jax.tree.leaves(theirs)
        ]


def test_updates_keep_the_parameters_dtype():
    out = optim.apply_updates(
        {"w": jnp.ones(2, jnp.bfloat16), "k": jnp.ones(2)}, {"w": jnp.ones(2), "k": None}
    )
    assert out["w"].dtype == jnp.bfloat16
    assert out["k"].tolist() == [1.0, 1.0]


def test_global_norm():
    assert float(optim.global_norm(PARAMS)) == pytest.approx(float(optax.tree.norm(PARAMS)))


def test_a_jitted_step_learns():
    tx = optim.adam(0.1)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(32, 3)).astype("f4"))
    y = x @ jnp.array([1.0, -2.0, 0.5])

    @lumjax.jit
    def step(w, state):
        loss, g = lumjax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        updates, state = tx.update(g, state, w)
        return optim.apply_updates(w, updates), state, loss

    w = jnp.zeros(3)
    state = tx.init(w)
    losses = []
    for _ in range(60):
        w, state, loss = step(w, state)
        losses.append(float(loss))
    assert losses[-1] < 0.05 * losses[0]


def test_errors():
    with pytest.raises(ArgumentTypeError, match="params"):
        optim.add_decayed_weights(0.1).update(PARAMS, optim.EmptyState())
    with pytest.raises(ArgumentValueError):
        optim.chain(optim.scale(1.0)).update(PARAMS, ())
    with pytest.raises(ArgumentValueError):
        optim.cosine_decay_schedule(1.0, 0)
    with pytest.raises(ArgumentValueError):
        optim.join_schedules([optim.constant_schedule(1.0)], [1])
