"""The batching trace itself: rules, unmapped operands, nesting, collectives, the parent trace."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax.errors import MissingRuleError
from lumjax.trace.batch import BatchTrace, MappedAxis, batch, mapped_avals, uses_axis
from lumjax.trace.core import active_traces, aval_of
from lumjax.trace.stage import stage
from tests.trace.prims import add, call, f32, iota_p, mul, psum_p, scale_p, sin

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_operands_are_seen_without_the_axis():
    def f(a, b):
        assert aval_of(a) == f32(4)
        assert aval_of(b) == f32(4)
        return [mul(sin(a), b), b, 2.0]

    shared = np.ones(4, np.float32)
    (out, d), (same, e), (two, g) = batch(f, MappedAxis(3), [X, shared], [0, None])
    assert (d, e, g) == (0, None, None)
    np.testing.assert_allclose(out.data, np.sin(X), rtol=1e-6)
    assert same is shared
    assert two == 2.0


def test_an_axis_in_the_middle():
    ((out, d),) = batch(lambda a: [add(a, a)], MappedAxis(4), [X], [1])
    np.testing.assert_array_equal(np.moveaxis(out.data, d, 1), 2 * X)


def test_unmapped_work_is_done_once_by_the_parent():
    def f(a):
        return [*iota_p.bind(n=4), sin(0.5), a]

    staged = stage(lambda x: [v for v, _ in batch(f, MappedAxis(3), [x], [0])], [f32(3, 4)])
    assert [e.prim.name for e in staged.jaxpr.eqns] == ["iota", "sin"]
    assert staged.jaxpr.out_avals[:2] == (f32(4), f32(weak=True))


def test_nested_axes():
    def outer(a):
        def inner(b):
            return [mul(a, b)]

        ((v, d),) = batch(inner, MappedAxis(4), [np.arange(4, dtype=np.float32)], [0])
        assert d == 0
        return [v]

    ((out, d),) = batch(outer, MappedAxis(3), [np.arange(3, dtype=np.float32)], [0])
    table = np.multiply.outer(np.arange(3), np.arange(4))
    np.testing.assert_array_equal(np.moveaxis(out.data, d, 0), table)


def test_a_missing_batch_rule():
    with pytest.raises(MissingRuleError, match=r"batch.*'scale'"):
        batch(lambda a: scale_p.bind(a, factor=2), MappedAxis(3), [X], [0])
    assert len(active_traces()) == 1


def test_collectives_reach_their_axis():
    f = lambda a: psum_p.bind(a, axis_name="i")
    ((out, d),) = batch(f, MappedAxis(3, "i"), [np.arange(3, dtype=np.float32)], [0])
    assert d is None
    assert out.data == 3


@pytest.mark.parametrize("size", [2, 4])
def test_a_collective_of_an_unmapped_value_counts_the_axis(size):
    x = np.zeros(size, np.float32)
    f = lambda a: psum_p.bind(np.float32(1), axis_name="i")
    ((out, d),) = batch(f, MappedAxis(size, "i"), [x], [0])
    assert d is None
    assert out.data == size


def test_a_collective_passes_other_axes_by():
    def outer(a):
        f = lambda b: psum_p.bind(a, axis_name="i")
        ((v, d),) = batch(f, MappedAxis(5, "j"), [np.zeros(5, np.float32)], [0])
        assert d is None
        return [v]

    ((out, d),) = batch(outer, MappedAxis(3, "i"), [np.arange(3, dtype=np.float32)], [0])
    assert d is None
    assert out.data == 3


def test_collectives_are_found_in_nested_jaxprs():
    inner = stage(lambda a: psum_p.bind(a, axis_name="i"), [f32()])
    jaxpr = stage(lambda a: call(inner, a), [f32()]).jaxpr
    params = jaxpr.eqns[0].params
    assert uses_axis(params, "i")
    assert not uses_axis(params, "j")


def test_a_foreign_batch_tracer_is_a_constant():
    def outer(a):
        trace = BatchTrace(MappedAxis(2))
        assert trace.split(a) == (a, None)
        return [a]

    batch(outer, MappedAxis(3), [X], [0])


def test_mapped_avals():
    assert mapped_avals([f32(3, 4), f32(2)], [1, None]) == [f32(3), f32(2)]
