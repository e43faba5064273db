"""Every record obeys its laws: eval against aval, jvp against differences, transpose by the
dot-product identity, batch against a loop, the form and the expansion against eval.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax import ops
from lumjax.config import config
from lumjax.errors import GradientError
from lumjax.trace.array import Array
from lumjax.trace.core import EvalTrace, Linear, Primitive, Sample, aval_of
from lumjax.trace.form import Expand, Map, Opaque
from lumjax.trace.stage import stage
from tests.ops import laws

CASES = [
    pytest.param(prim, sample, id=f"{name}-{k}")
    for name, prim in sorted(ops.PRIMITIVES.items())
    for k, sample in enumerate(prim.samples)
]


def where(holds: Any) -> Any:
    """The cases for which `holds(prim, sample)`."""
    return pytest.mark.parametrize(("prim", "sample"), [c for c in CASES if holds(*c.values)])


def form_of(prim: Primitive, sample: Sample) -> Any:
    return prim.form(*sample.avals, **sample.params)


def moves(prim: Primitive, sample: Sample) -> bool:
    """Some operand and some result carry tangents."""
    outs = prim.aval(*sample.avals, **sample.params)
    return all(any(dt.is_inexact(a.dtype) for a in avals) for avals in (sample.avals, outs))


def expands(prim: Primitive, sample: Sample) -> bool:
    return prim.expand is not None and isinstance(form_of(prim, sample), Expand | Map | Opaque)


# Operands that no linear program passes a tangent to: products over repeated positions are not
# linear in the updates.
NOT_LINEAR = {"scatter_mul": (2,)}


# Matrices far from the singular ones, at which a derivative does not exist.
WELL_POSED = {"cholesky": 6.0, "triangular_solve": 3.0, "lu": 3.0}


def inputs(prim: Primitive, sample: Sample) -> tuple[list[np.ndarray], np.random.Generator]:
    rng = np.random.default_rng(zlib.crc32(f"{prim.name}{sample}".encode()))
    args = laws.draw_sample(sample, rng)
    if prim.name in WELL_POSED:
        args[0] += WELL_POSED[prim.name] * np.eye(*args[0].shape[-2:], dtype=args[0].dtype)
    if prim.name == "tridiagonal_solve":
        args[1] += 6
    return args, rng


def wide(params: Any) -> dict[str, Any]:
    """The params in double precision: a conversion to a narrow float looks like a staircase."""
    changed = laws.without_options(params)
    if "dtype" in params and dt.is_inexact(params["dtype"]):
        changed["dtype"] = dt.complex128 if dt.is_complex(params["dtype"]) else dt.float64
    return changed


def test_every_record_has_samples():
    from lumjax.ops import collective

    without = {n for n, p in ops.PRIMITIVES.items() if not p.samples}
    # A collective means something only under a vmap with its axis name.
    assert without <= {n for n, p in ops.PRIMITIVES.items() if p in vars(collective).values()}


@where(lambda prim, sample: True)
def test_eval_agrees_with_aval(prim: Primitive, sample: Sample):
    args, _ = inputs(prim, sample)
    laws.check_aval(prim, args, sample.params)
    for weak in (False, True):
        values = [Array(a, weak) for a in args]
        avals = prim.aval(*map(aval_of, values), **sample.params)
        outs = EvalTrace().process(prim, values, sample.params)
        assert [(o.aval.shape, o.aval.dtype) for o in outs] == [(a.shape, a.dtype) for a in avals]
        if values:
            assert [o.weak for o in outs] == [a.weak for a in avals]


@where(lambda prim, sample: prim.batch is not None and sample.avals)
def test_batch_agrees_with_a_loop(prim: Primitive, sample: Sample):
    args, rng = inputs(prim, sample)
    laws.check_batch(prim, args, sample.params, rng)


# Operands in which an operation refuses to be differentiated.
REFUSED = {
    "igamma_grad_a": (0, 1),
    "random_gamma_grad": (0, 1),
    "zeta": (0,),
    "expn": (0,),
    "regularized_incomplete_beta": (0, 1),
}


@where(
    lambda prim, sample: (
        prim.jvp is not None
        and any(
            dt.is_inexact(a.dtype) and k not in REFUSED.get(prim.name, ())
            for k, a in enumerate(sample.avals)
        )
    )
)
def test_jvp_agrees_with_differences(prim: Primitive, sample: Sample):
    args, rng = inputs(prim, sample)
    still = REFUSED.get(prim.name, ())
    laws.check_jvp(prim, args, wide(sample.params), rng, tol=2e-5, still=still)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_derivative_raises(name: str):
    prim = ops.PRIMITIVES[name]
    args, _ = inputs(prim, prim.samples[0])
    values = tuple(map(Array, args))
    for k in REFUSED[name]:
        tangents = tuple(v if j == k else None for j, v in enumerate(values))
        with pytest.raises(GradientError):
            prim.rule("jvp")(values, tangents)


@where(lambda prim, sample: prim.transpose is not None and moves(prim, sample))
def test_transpose_is_the_adjoint(prim: Primitive, sample: Sample):
    """<ct, f(x) - f(0)> == <f'(ct), x> in each operand in which the operation is affine."""
    args, rng = inputs(prim, sample)
    assert prim.transpose is not None
    params = wide(sample.params)
    with config.scope(enable_x64=True):
        args = laws.widened(args)
        tried = 0
        for k, a in enumerate(args):
            if not dt.is_inexact(a.dtype) or k in NOT_LINEAR.get(prim.name, ()):
                continue
            ins = [Linear(aval_of(x)) if j == k else Array(x) for j, x in enumerate(args)]
            outs = laws.run(prim, args, params)
            cts = [laws.draw(aval_of(o), rng) if dt.is_inexact(o.dtype) else None for o in outs]
            found = prim.transpose(
                tuple(c if c is None else Array(c) for c in cts), tuple(ins), **params
            )
            assert len(found) == len(args)
            assert all(c is None for j, c in enumerate(found) if j != k)
            nothing = prim.transpose((None,) * len(outs), tuple(ins), **params)
            assert all(c is None for c in nothing)
            if found[k] is None:
                continue  # not linear in this operand
            tried += 1
            assert aval_of(found[k]).strip_weak() == aval_of(a)
            rest = [np.zeros_like(x) if j == k else x for j, x in enumerate(args)]
            left = 0.0
            for out, zero, ct in zip(outs, laws.run(prim, rest, params), cts, strict=True):
                if ct is not None:
                    with np.errstate(invalid="ignore"):
                        left += laws.inner(ct, np.where(np.isfinite(out), out - zero, 0))
            right = laws.inner(found[k].data, a)
            np.testing.assert_allclose(np.real(left), np.real(right), rtol=1e-9, atol=1e-9)
    assert tried


@where(lambda prim, sample: not isinstance(form_of(prim, sample), Expand | Opaque))
def test_form_agrees_with_eval(prim: Primitive, sample: Sample):
    args, _ = inputs(prim, sample)
    match form_of(prim, sample):
        case Map(op):
            assert op.arity == len(args)
            (want,) = laws.run(prim, args, sample.params)
            found = np.asarray(op.numpy(*args))
            assert found.dtype == want.dtype
            np.testing.assert_array_equal(found, want)
        case _:
            assert laws.check_form(prim, args, sample.params)


@where(expands)
def test_expansion_agrees_with_eval(prim: Primitive, sample: Sample):
    args, _ = inputs(prim, sample)
    params = wide(sample.params)
    with config.scope(enable_x64=True):
        args = laws.widened(args)
        wants = laws.run(prim, args, params)
        founds = prim.rule("expand")(*map(Array, args), **params)
        assert len(founds) == len(wants)
        for want, found in zip(wants, founds, strict=True):
            found = np.asarray(found.data)
            assert (found.shape, found.dtype) == (want.shape, want.dtype)
            if dt.is_inexact(want.dtype):
                np.testing.assert_allclose(found, want, rtol=3e-6, atol=1e-6)
            else:
                np.testing.assert_array_equal(found, want)


@where(expands)
def test_expansion_has_the_same_shapes_and_dtypes(prim: Primitive, sample: Sample):
    for weak in (False, True):
        avals = [aval_of(Array(a, weak)) for a in inputs(prim, sample)[0]]
        expanded = stage(lambda *xs: prim.rule("expand")(*xs, **sample.params), avals)
        want = prim.aval(*avals, **sample.params)
        assert [a.strip_weak() for a in expanded.jaxpr.out_avals] == [a.strip_weak() for a in want]


def test_compiled_by_expansion_means_that_there_is_one():
    for prim in ops.PRIMITIVES.values():
        for sample in prim.samples:
            if isinstance(prim.form(*sample.avals, **sample.params), Expand):
                assert prim.expand is not None, prim.name
