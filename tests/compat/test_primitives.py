"""Primitives made the way JAX's are made: rules in tables. Each rule against plain functions, eager
and compiled, and what is said where one is missing.
"""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.compat.interpreters import ad, batching, mlir
from lumjax.config import config
from lumjax.core import ShapedArray
from lumjax.errors import MissingRuleError, UnsupportedError
from lumjax.extend.core import Primitive, jaxpr_as_fun, mapped_aval, unmapped_aval

X = np.array([0.5, -1.0, 2.0], np.float32)


@pytest.fixture(autouse=True)
def _unsearched():
    with config.scope(search_evaluations=0):
        yield


def scaled_primitive(lowered):
    """x, w -> (w * x, sum of w * x): linear in x, with all rules."""
    scaled_p = Primitive("scaled")
    scaled_p.multiple_results = True

    def compute(x, w, *, power):
        y = x * w**power
        return [y, jnp.sum(y)]

    def jvp(primals, tangents, *, power):
        (x, w), (t, s) = primals, tangents
        outs = scaled_p.bind(x, w, power=power)
        moved = scaled_p.bind(ad.instantiate_zeros(t), w, power=power)
        if isinstance(s, ad.Zero):
            return outs, moved
        change = power * x * w ** (power - 1) * s
        return outs, [moved[0] + change, moved[1] + jnp.sum(change)]

    def transpose(cts, x, w, *, power):
        assert ad.is_undefined_primal(x)
        first, total = map(ad.instantiate_zeros, cts)
        return [(first + total) * w**power, None]

    def batch(args, dims, *, power):
        size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
        x, w = (batching.bdim_at_front(a, d, size) for a, d in zip(args, dims, strict=True))
        outs = lumjax.vmap(lambda x, w: compute(x, w, power=power))(x, w)
        return outs, [0, 0]

    scaled_p.def_impl(compute)
    scaled_p.def_abstract_eval(lambda x, w, *, power: [x.strip_weak(), ShapedArray((), x.dtype)])
    ad.primitive_jvps[scaled_p] = jvp
    ad.primitive_transposes[scaled_p] = transpose
    batching.primitive_batchers[scaled_p] = batch
    if lowered:
        mlir.register_lowering(scaled_p, mlir.lower_fun(compute, multiple_results=True))
    else:
        mlir.register_lowering(scaled_p, lambda ctx, *args: mlir.emit_python_callback(ctx, *args))
    return lambda x, w: scaled_p.bind(x, w, power=3)


def plain(x, w):
    y = x * w**3
    return [y, jnp.sum(y)]


def total(f):
    return lambda x, w: sum(jnp.sum(jnp.sin(y)) for y in f(x, w))


DERIVED = {
    "value": lambda f: f,
    "jvp": lambda f: lambda x, w: lumjax.jvp(f, (x, w), (x + 1, w)),
    "grad": lambda f: lumjax.grad(total(f), (0, 1)),
    "second": lambda f: lumjax.hessian(lambda x, w: total(f)(x, w)),
    "grad of one output": lambda f: lumjax.grad(lambda x, w: jnp.sum(f(x, w)[0])),
    "vmap": lambda f: lambda x, w: lumjax.vmap(f, (0, None))(jnp.stack([x, 2 * x, -x]), w),
    "scan": lambda f: lumjax.grad(
        lambda x, w: jnp.sum(lax.scan(lambda c, _: (f(c, w)[0], None), x, length=3)[0])
    ),
    "jaxpr": lambda f: lambda x, w: jaxpr_as_fun(lumjax.make_jaxpr(f)(x, w))(x, w),
}


@pytest.mark.parametrize("lowered", [True, False], ids=["lowered", "called"])
@pytest.mark.parametrize("name", DERIVED)
def test_a_primitive_of_another_library_is_like_any_function(name, lowered):
    wanted = lumjax.tree.leaves(DERIVED[name](plain)(X, X + 3))
    program = DERIVED[name](scaled_primitive(lowered))
    for run in (program, lumjax.jit(program)):
        found = lumjax.tree.leaves(run(X, X + 3))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5)


def test_one_result_and_rules_by_operand():
    cube_p = Primitive("cube")
    cube_p.def_impl(lambda x: x**3)
    cube_p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(cube_p, mlir.lower_fun(lambda x: x**3, multiple_results=False))
    ad.defjvp(cube_p, lambda t, x: 3 * x**2 * t)
    batching.defvectorized(cube_p)
    for wrap in (lambda f: f, lumjax.jit):
        assert float(wrap(cube_p.bind)(2.0)) == 8.0
        assert float(wrap(lumjax.grad(lumjax.grad(cube_p.bind)))(2.0)) == 12.0
        np.testing.assert_allclose(wrap(lumjax.vmap(cube_p.bind))(X), X**3)
    assert isinstance(lax.stop_gradient_p, Primitive)
    assert not isinstance(3, Primitive)

    half_p = Primitive("half")
    half_p.def_impl(lambda x: x / 2)
    half_p.def_abstract_eval(lambda x: x)
    ad.deflinear2(half_p, lambda ct, x: [half_p.bind(ct)])
    assert float(lumjax.jit(lumjax.grad(lambda x: half_p.bind(x) ** 2))(3.0)) == 1.5


def test_named_axes_reach_the_rule():
    seen = []
    named_p = Primitive("named")
    named_p.def_impl(lambda x: x)
    named_p.def_abstract_eval(lambda x: x)

    def batch(size, name, kind, args, dims):
        seen.append((size, name))
        return args[0], dims[0]

    batching.axis_primitive_batchers[named_p] = batch
    lumjax.vmap(named_p.bind, axis_name="rows")(X)
    assert seen == [(3, "rows")]


def test_a_rule_that_is_not_there():
    bare_p = Primitive("bare")
    with pytest.raises(MissingRuleError, match="def_impl"):
        bare_p.bind(1.0)
    with pytest.raises(MissingRuleError, match="def_abstract_eval"):
        lumjax.make_jaxpr(bare_p.bind)(1.0)
    bare_p.def_abstract_eval(lambda x: x)
    with pytest.raises(MissingRuleError, match="primitive_jvps"):
        lumjax.grad(bare_p.bind)(1.0)
    with pytest.raises(MissingRuleError, match="primitive_batchers"):
        lumjax.vmap(bare_p.bind)(X)
    ad.primitive_jvps[bare_p] = lambda primals, tangents: (primals[0], bare_p.bind(tangents[0]))
    with pytest.raises(MissingRuleError, match="primitive_transposes"):
        lumjax.grad(bare_p.bind)(1.0)
    with pytest.raises(UnsupportedError, match="pure_callback"):
        mlir.emit_python_callback()


def test_types_with_and_without_a_mapped_axis():
    aval = ShapedArray((4, 3), "float32")
    assert mapped_aval(4, 0, aval).shape == (3,)
    assert mapped_aval(4, None, aval) is aval
    assert unmapped_aval(2, 1, aval).shape == (4, 2, 3)
    assert unmapped_aval(2, None, aval) is aval
