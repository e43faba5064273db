"""checkpoint and its policies."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax.ops as ops
from lumjax.config import config
from lumjax.control.call import call_p
from lumjax.control.checkpoint import checkpoint, checkpoint_p, remat
from lumjax.control.custom import custom_jvp
from lumjax.control.debug import callback
from lumjax.control.policies import checkpoint_name, checkpoint_policies, name_p
from lumjax.control.scan import scan
from lumjax.decorator import jit as compiled_jit
from lumjax.errors import ArgumentTypeError
from lumjax.grad.linear import linearize
from lumjax.grad.reverse import linearize_flat
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import sub_jaxprs
from lumjax.trace.simplify import simplify
from lumjax.trace.stage import stage
from lumjax.tree import leaves
from tests.control.worlds import close, grad, jit, jvp, total, vmap

X = np.array([0.3, -0.7, 1.2], np.float32)
W = np.array([[0.5, -0.2, 0.1], [0.3, 0.8, -0.6], [-0.4, 0.2, 0.7]], np.float32)
VECTOR = ShapedArray((3,), np.dtype(np.float32))
policies = checkpoint_policies


def chain(x):
    y = checkpoint_name(ops.sin(x), "first")
    z = checkpoint_name(ops.sin(ops.dot(W, y)), "second")
    return ops.sin(jit(lambda a: ops.dot(W, a))(z))


ALL = {
    "none": None,
    "nothing": policies.nothing_saveable,
    "everything": policies.everything_saveable,
    "dots": policies.dots_saveable,
    "plain dots": policies.dots_with_no_batch_dims_saveable,
    "first": policies.save_only_these_names("first"),
    "not first": policies.save_any_names_but_these("first"),
    "all but second": policies.save_anything_except_these_names("second"),
    "offload": policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["first"],
        names_which_can_be_offloaded=["second"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
    "offload dots": policies.offload_dot_with_no_batch_dims("device", "pinned_host"),
    "both": policies.save_from_both_policies(
        policies.save_only_these_names("first"), policies.dots_saveable
    ),
}


def primitives(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.prim.name
        for sub in sub_jaxprs(eqn.params):
            yield from primitives(sub)


def residuals_of(f):
    """The residuals of one vector argument, but for that argument itself."""
    x = ops.asvalue(X)
    _, linear, consts, _ = linearize_flat(lambda x: (f(x),), [x])
    return [c for c in consts if c is not x and c.shape == (3,)], linear.jaxpr


@pytest.mark.sampled(3)
@pytest.mark.parametrize("policy", ALL.values(), ids=ALL)
@pytest.mark.parametrize("prevent_cse", [True, False])
def test_values_and_derivatives_do_not_change(policy, prevent_cse):
    f = checkpoint(chain, policy=policy, prevent_cse=prevent_cse)
    loss, plain = (lambda x: total(f(x))), (lambda x: total(chain(x)))
    close(f(X), chain(X), 1e-6)
    for transform in (
        lambda g: grad(g)(X),
        lambda g: jit(grad(g))(X),
        lambda g: grad(jit(g))(X),
        lambda g: vmap(grad(g))(np.stack([X, -X])),
        lambda g: grad(lambda x: total(vmap(g)(x)))(np.stack([X, -X])),
        lambda g: jvp(g, (X,), (X,)),
        lambda g: grad(lambda x: total(grad(g)(x) * X))(X),
        lambda g: linearize(g, X)[1](X),
    ):
        close(transform(loss), transform(plain), 1e-5)


def test_only_what_the_policy_saves_is_kept():
    kept = {name: len(residuals_of(checkpoint(chain, policy=p))[0]) for name, p in ALL.items()}
    assert kept["none"] == kept["nothing"] == 0
    assert kept["first"] == 1
    assert kept["dots"] == kept["plain dots"] == 2
    assert kept["both"] == 2  # the first name is not needed where the dots are kept
    assert kept["not first"] == 1
    assert kept["offload"] == 2
    assert kept["offload dots"] == 2
    assert kept["everything"] >= kept["all but second"] >= 3
    assert len(residuals_of(chain)[0]) >= 3


def test_saved_values_are_not_recomputed():
    def dots(policy):
        return list(primitives(residuals_of(checkpoint(chain, policy=policy))[1])).count(
            "dot_general"
        )

    plain = 2  # two contractions of tangents
    assert dots(None) == plain + 2
    assert dots(policies.dots_saveable) == plain
    assert dots(policies.everything_saveable) == plain
    assert dots(policies.save_any_names_but_these("first")) == plain + 2  # their cosines are needed


def test_batched_dots_are_told_apart():
    def f(x):
        pairs = ops.dot_general(x, x, (((1,), (1,)), ((0,), (0,))))
        return ops.reduce_sum(ops.sin(pairs), (0, 1, 2))

    x = ops.asvalue(np.ones((2, 3, 3), np.float32))

    def kept(policy):
        _, _, consts, _ = linearize_flat(lambda x: (checkpoint(f, policy=policy)(x),), [x])
        return len([c for c in consts if c is not x and c.ndim == 3])

    assert kept(policies.dots_saveable) == 1
    assert kept(policies.dots_with_no_batch_dims_saveable) == 0
    assert policies.checkpoint_dots is policies.dots_saveable
    assert not policies.dots_with_no_batch_dims_saveable(name_p, name="x")


def test_recomputation_stands_behind_a_barrier_that_simplification_respects():
    def step(x):
        return total(checkpoint(lambda x: ops.sin(ops.exp(x)))(x))

    jaxpr = simplify(stage(lambda x: (grad(step)(x), step(x)), (VECTOR,)).jaxpr)
    assert list(primitives(jaxpr)).count("barrier") == 1
    found = [e for e in jaxpr.eqns if "transpose(recomputed" in e.params.get("name", "")]
    assert {"exp", "barrier"} <= set(primitives(found[0].params["jaxpr"]))
    twice = lambda x: total(checkpoint(ops.sin)(checkpoint(ops.cos)(x)))
    jaxpr = stage(lambda x: (grad(twice)(x),), (VECTOR,)).jaxpr
    ids = [e.params["id"] for j in sub_all(jaxpr) for e in j.eqns if e.prim.name == "barrier"]
    assert len(ids) == len(set(ids)) == 2
    free = lambda x: total(checkpoint(chain, prevent_cse=False)(x))
    assert "barrier" not in primitives(stage(lambda x: (grad(free)(x),), (VECTOR,)).jaxpr)


def sub_all(jaxpr):
    yield jaxpr
    for eqn in jaxpr.eqns:
        for sub in sub_jaxprs(eqn.params):
            yield from sub_all(sub)


def test_a_scan_of_checkpointed_steps_keeps_one_carry_per_step():
    def loss(body):
        return lambda x: (total(scan(lambda c, _: (body(c), None), x, None, length=20)[0]),)

    def stacked(body):
        _, _, consts, _ = linearize_flat(loss(body), [ops.asvalue(X)])
        return sum(c.shape == (20, 3) for c in consts)

    assert stacked(checkpoint(chain)) == 1
    assert stacked(checkpoint(chain, policy=policies.save_only_these_names("first"))) == 2
    assert stacked(chain) >= 3


def test_effects_run_again_in_the_recomputation():
    seen = []

    def f(x):
        callback(lambda v: seen.append(float(v)), x)
        return ops.sin(ops.sin(x))

    checkpoint(f)(1.0)
    assert seen == [1.0]
    seen.clear()
    grad(checkpoint(f))(1.0)
    assert seen == [1.0, 1.0]
    seen.clear()
    jvp(checkpoint(f), (1.0,), (1.0,))
    assert seen == [1.0]


def test_static_arguments_and_keywords():
    seen = []

    def f(x, mode, *, scale):
        seen.append(mode)
        return ops.sin(x) * scale if mode == "sin" else ops.cos(x) * scale

    g = checkpoint(f, static_argnums=1)
    assert f.__name__ == g.__name__
    close(grad(lambda x: g(x, "sin", scale=2.0))(0.5), np.float32(2 * np.cos(0.5)), 1e-6)
    close(
        grad(lambda x: g(x, "cos", scale=x))(0.5), np.float32(np.cos(0.5) - 0.5 * np.sin(0.5)), 1e-6
    )
    seen.clear()
    grad(lambda x: g(x, "sin", scale=2.0))(0.5)
    assert seen == []  # remembered
    h = checkpoint(lambda mode, x: x * mode, static_argnums=(-2, 5))
    assert float(grad(lambda x: h(3, x))(2.0)) == 3.0
    named = checkpoint(f, static_argnames=("mode", "absent"))
    close(grad(lambda x: named(x, "sin", scale=2.0))(0.5), np.float32(2 * np.cos(0.5)), 1e-6)
    close(grad(lambda x: named(x, mode="cos", scale=1.0))(0.5), np.float32(-np.sin(0.5)), 1e-6)
    kind = checkpoint(lambda x, n: x * (2.0 if n is True else 3.0), static_argnames="n")
    assert [float(grad(lambda x, n=n: kind(x, n))(1.0)) for n in (True, 1)] == [2.0, 3.0]
    listed = checkpoint(lambda x, names: x * len(names), static_argnums=1)
    assert [float(grad(lambda x, n=n: listed(x, ["a"] * n))(1.0)) for n in (2, 3)] == [2.0, 3.0]
    with pytest.raises(ArgumentTypeError, match="function"):
        checkpoint(3)


def test_a_rebound_name_is_seen_through_the_wrapper():
    factor = 2.0
    f = checkpoint(lambda x: x * factor)
    assert float(grad(f)(1.0)) == 2.0
    factor = 3.0
    assert float(grad(f)(1.0)) == 3.0


def test_closure_over_tracers_of_an_outer_transformation():
    def outer(y):
        return checkpoint(lambda x: ops.sin(x * y) * y)(y)

    plain = lambda y: ops.sin(y * y) * y
    for transform in (
        grad,
        jit,
        lambda g: lambda x: vmap(grad(g))(X),
        lambda g: jit(grad(grad(g))),
    ):
        close(transform(outer)(0.7), transform(plain)(0.7), 1e-5)


def test_masks_cross_a_checkpoint():
    f = lambda x: ops.select(x > 0, checkpoint(ops.sqrt)(x), 0.0)
    close(vmap(grad(f))(np.array([0.0, 4.0], np.float32)), np.array([0.0, 0.25], np.float32), 1e-6)


def test_several_results_and_linear_functions():
    f = checkpoint(lambda x: (x * 2.0, 3.0, ops.cast(x, np.int32)))
    close(grad(lambda x: f(x)[0] * f(x)[1])(1.5), np.float32(6.0))
    g = custom_jvp(ops.sin)
    g.defjvp(lambda p, t: (ops.sin(p[0]), checkpoint(lambda a: a * 2.0)(t[0])))
    assert float(grad(g)(0.5)) == 2.0


def test_rules_with_array_constants():
    table = np.array([1.0, 2.0, 3.0], np.float32)
    g = custom_jvp(ops.sin)
    g.defjvp(lambda p, t: (ops.sin(p[0]), t[0] * table))
    f = checkpoint(lambda x: total(g(ops.sin(x))))
    close(grad(f)(X), table * np.cos(X), 1e-6)
    close(vmap(grad(f))(X[None]), (table * np.cos(X))[None], 1e-6)
    close(jvp(f, (X,), (X,))[1], np.float32((table * np.cos(X) * X).sum()), 1e-6)


def test_the_records():
    assert remat is checkpoint
    jaxpr = stage(lambda x: (checkpoint(ops.sin)(x),), (VECTOR,)).jaxpr
    (eqn,) = jaxpr.eqns
    assert eqn.prim is checkpoint_p
    close(checkpoint_p.expand(ops.asvalue(X), **eqn.params)[0], np.sin(X), 1e-6)
    assert type(checkpoint_p.form(VECTOR, **eqn.params)).__name__ == "Expand"
    named = stage(lambda x: (checkpoint_name({"a": x}, "n")["a"],), (VECTOR,)).jaxpr
    assert named.eqns[0].params == {"name": "n"}
    assert type(name_p.form(VECTOR, name="n")).__name__ == "Move"
    close(grad(lambda x: total(checkpoint_name(x, "n")))(X), np.ones(3, np.float32))
    close(vmap(lambda x: checkpoint_name(x, "n"))(X), X)
    assert call_p is not checkpoint_p


def test_the_planned_peak_of_a_compiled_gradient_falls():
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(16, 16)).astype(np.float32) / 4 for _ in range(6)]
    x = rng.normal(size=(16, 16)).astype(np.float32)

    def loss(layer):
        def f(weights, x):
            for w in weights:
                x = layer(w, x)
            return total(x)

        return f

    def layer(w, x):
        y = ops.tanh(ops.dot(x, w))
        return ops.sin(ops.dot(y, w)) + y

    plain, saving = (compiled_jit(grad(loss(f))) for f in (layer, checkpoint(layer)))
    close(saving(weights, x), plain(weights, x), 1e-4)
    peaks = [f.program(weights, x).executable().peak_bytes for f in (plain, saving)]
    assert peaks[1] < 0.6 * peaks[0]


def behind_a_barrier(x):
    """Two literals and an operand behind one barrier, and a literal that is a result."""
    one, half, y = ops.barrier(np.float32(1.0), np.float32(0.5), x, id=99)
    return ops.add(ops.mul(ops.sin(one), y), half), one


LITERALS = {
    "second derivative": lambda x: jvp(
        grad(lambda x: ops.sin(checkpoint(ops.tanh)(x))), (x,), (1.0,)
    ),
    "third derivative": lambda x: grad(grad(grad(checkpoint(ops.tanh))))(x),
    "a barrier's literals": behind_a_barrier,
    "in a loop": lambda x: scan(lambda c, _: (behind_a_barrier(c)[0], c), x, None, length=3),
}


@pytest.mark.parametrize("name", LITERALS)
@pytest.mark.parametrize("backend", ["cpu", "cuda:emulated"])
def test_literals_behind_barriers_when_compiled(name, backend):
    f, x = LITERALS[name], np.float32(0.3)
    with config.scope(backend=backend):
        found = leaves(compiled_jit(f)(x))
    for got, wanted in zip(found, leaves(f(x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
