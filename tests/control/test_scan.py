"""scan, map and fori_loop with static bounds."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax.ops as ops
from lumjax import tree
from lumjax.control.call import call_p
from lumjax.control.custom import custom_jvp
from lumjax.control.debug import callback
from lumjax.control.scan import fori_loop, map, scan
from lumjax.control.scanning import scan_p
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DTypeError,
    ShapeError,
    TreeError,
)
from lumjax.grad.linear import linear_transpose, linearize
from lumjax.grad.reverse import linearize_flat
from lumjax.trace import core
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Literal, active_traces, sub_jaxprs
from lumjax.trace.stage import stage
from tests.control.worlds import close, grad, jit, jvp, numbers, total, vmap

X = np.array([0.3, -0.7, 1.2], np.float32)
F32 = np.float32


def eqns(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for sub in sub_jaxprs(eqn.params):
            yield from eqns(sub)


# ---- values


def test_against_a_python_loop():
    xs = {"a": np.arange(6, dtype=np.float32).reshape(3, 2), "b": np.arange(3)}

    def body(carry, x):
        c, n = carry
        return (c * 0.5 + x["a"], n + x["b"]), {"out": c + x["b"], "none": None}

    (c, n), ys = scan(body, (np.ones(2, np.float32), 0), xs)
    expected, rows = np.ones(2, np.float32), []
    for k in range(3):
        rows.append(expected + k)
        expected = expected * F32(0.5) + xs["a"][k]
    close((c, n, ys["out"]), (expected, np.int32(3), np.stack(rows)), 1e-6)
    assert ys["none"] is None


def test_length_and_unroll():
    for unroll in (0, 1, 2, True, False):
        assert int(scan(lambda c, _: (c + 1, None), 0, None, length=5, unroll=unroll)[0]) == 5
    assert int(scan(lambda c, _: (c + 1, None), 7, None, length=0)[0]) == 7
    assert scan(lambda c, _: (c, c), 1.0, None, length=0)[1].shape == (0,)


def test_reverse_stores_rows_where_they_were_read():
    last, ys = scan(lambda c, x: (c + x, c), 0, np.array([1, 2, 4]), reverse=True)
    assert int(last) == 7
    assert numbers(ys).tolist() == [6, 4, 0]


def test_weak_carries_take_the_dtype_of_the_body():
    last, _ = scan(lambda c, x: (c + x, None), 0, np.ones(3, np.float32))
    assert last.dtype == np.float32
    assert scan(lambda c, _: (c * 2, None), 1.5, None, length=2)[0].weak
    last, _ = scan(lambda c, x: ((c[1] + x, c[0]), None), (0, 0), np.ones(3, np.float32))
    assert [v.dtype for v in last] == [np.float32, np.float32]


def test_keys_and_bools_are_carried_and_scanned():
    keys = ops.random_wrap(np.array([[1, 2], [3, 4]], np.uint32))
    first = ops.random_wrap(np.array([5, 6], np.uint32))
    for wrap in (lambda f: f, jit):
        last, seen = wrap(lambda k, ks: scan(lambda c, k: (k, c), k, ks))(first, keys)
        assert ops.random_unwrap(last).data.tolist() == [3, 4]
        assert ops.random_unwrap(seen).data.tolist() == [[5, 6], [1, 2]]

    def f(x):
        (y, flag, _), _ = scan(
            lambda c, k: ((c[0] * 2, ops.not_(c[1]), k), None), (x, True, first), keys
        )
        return ops.select(flag, y, 0.0)

    assert float(grad(f)(1.0)) == 4.0
    assert float(jvp(f, (1.0,), (1.0,))[1]) == 4.0
    close(vmap(grad(f))(X), np.full(3, 4.0, np.float32))


def test_map_with_and_without_blocks():
    xs = np.arange(5, dtype=np.float32)
    f = lambda x: {"y": x * x, "c": 1.0}
    for size in (None, 1, 2, 5, 7):
        found = map(f, xs, batch_size=size)
        close(found["y"], xs * xs)
        assert found["c"].shape == (5,)
    assert map(lambda x: x * 2, np.zeros((0, 2), np.float32), batch_size=3).shape == (0, 2)
    with pytest.raises(ArgumentValueError, match="batch_size"):
        map(f, xs, batch_size=0)
    with pytest.raises(ArgumentTypeError, match="function"):
        map(3, xs)


def test_fori_loop_with_static_bounds_is_a_scan():
    assert float(fori_loop(0, 3, lambda i, c: c + i, 1.0)) == 4.0
    assert fori_loop(0, 3, lambda i, c: c + i, np.int8(1)).dtype == np.int8
    assert int(fori_loop(3, 0, lambda i, c: c + i, 1)) == 1
    assert int(fori_loop(np.int32(1), ops.asvalue(4), lambda i, c: c + i, 0, unroll=2)) == 6
    jaxpr = stage(
        lambda x: (fori_loop(0, 3, lambda i, c: c * x, x),), (ShapedArray((), np.dtype(F32)),)
    ).jaxpr
    assert [e.prim for e in jaxpr.eqns] == [scan_p]
    assert float(grad(lambda x: fori_loop(0, 3, lambda i, c: c * x, x))(2.0)) == 32.0


# ---- errors


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: scan(3, 0, X), ArgumentTypeError, "function"),
        (lambda: scan(lambda c, x: c, 0, X), ArgumentTypeError, "pair"),
        (lambda: scan(lambda c, x: (c, x, x), 0, X), ArgumentTypeError, "pair"),
        (lambda: scan(lambda c, x: {"a": c, "b": x}, 0, X), ArgumentTypeError, "pair"),
        (lambda: scan(lambda c, x: ((c, c), None), 0, X), TreeError, "carry that keeps"),
        (lambda: scan(lambda c, x: ((c["a"],), None), {"a": 0}, X), TreeError, "structure"),
        (
            lambda: scan(lambda c, x: (c + x, None), np.int32(0), X),
            DTypeError,
            r"carry of .*i32\[\], out as f32\[\]",
        ),
        (
            lambda: scan(lambda c, x: ({"a": (c["a"][0], X)}, None), {"a": (1, F32(1))}, X),
            ShapeError,
            r"carry\['a'\]\[1\] of <lambda> coming in as f32\[\], out as f32\[3\]",
        ),
        (lambda: scan(lambda c, x: (X, None), 1.0, X), ShapeError, r"f32\[\], out as f32\[3\]"),
        (lambda: scan(lambda c, x: (c, x), 0, {"a": X, "b": X[:2]}), ShapeError, "3, 2"),
        (lambda: scan(lambda c, x: (c, x), 0, X, length=4), ShapeError, "4, 3"),
        (lambda: scan(lambda c, x: (c, x), 0, None), ArgumentValueError, "length"),
        (
            lambda: scan(lambda c, x: (c, x), 0, None, length=-1),
            ArgumentValueError,
            "negative; got -1",
        ),
        (
            lambda: scan(lambda c, x: (c, x), 0, None, length=2.0),
            ArgumentTypeError,
            "integer length",
        ),
        (lambda: scan(lambda c, x: (c, x), 0, 3.0), ShapeError, "first axis"),
        (lambda: scan(lambda c, x: (c, x), 0, X, unroll=-1), ArgumentValueError, "unroll"),
        (lambda: scan(lambda c, x: (c, x), 0, X, unroll=1.5), ArgumentValueError, "unroll"),
        (lambda: scan(lambda c, x: (c, x), "a", X), ArgumentTypeError, "str"),
        (lambda: fori_loop(0.0, 3, lambda i, c: c, 1), DTypeError, "integer bounds"),
        (lambda: fori_loop(np.int8(0), np.int32(3), lambda i, c: c, 1), DTypeError, "i8.*i32"),
        (lambda: fori_loop(np.zeros(2, np.int32), 3, lambda i, c: c, 1), ShapeError, "scalar"),
        (lambda: fori_loop(0, 3, None, 1), ArgumentTypeError, "function"),
    ],
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert caught.value.source.file == __file__
    assert len(active_traces()) == 1


# ---- closures


@pytest.mark.parametrize(
    "outer",
    [
        lambda g: grad(g)(0.7),
        lambda g: vmap(g)(X),
        lambda g: jit(g)(0.7),
        lambda g: jvp(g, (0.7,), (1.0,)),
        lambda g: jit(vmap(grad(g)))(X),
        lambda g: vmap(grad(jit(g)))(X),
        lambda g: grad(lambda x: total(vmap(g)(X * x)))(2.0),
    ],
    ids=["grad", "vmap", "jit", "jvp", "jit vmap grad", "vmap grad jit", "grad vmap"],
)
def test_closure_over_tracers_of_an_outer_transformation(outer):
    def with_scan(y):
        z = ops.sin(y)
        last, ys = scan(lambda c, x: (c * y + z * x, c * z), y, np.arange(1, 3, dtype=np.float32))
        return last + total(ys)

    def plain(y):
        z = ops.sin(y)
        first = y * y + z
        return first * y + z * 2.0 + y * z + first * z

    close(outer(with_scan), outer(plain), 1e-5)


def test_psum_inside_a_scan_inside_vmap():
    def f(x):
        return scan(lambda c, _: (c + ops.psum(x, "i"), ops.psum(1, "i")), 0.0, None, length=2)

    for lanes in (2, 3):
        last, counts = vmap(f, axis_name="i")(X[:lanes])
        close(last, np.full(lanes, 2 * X[:lanes].sum()), 1e-6)
        assert numbers(counts).tolist() == [[lanes] * 2] * lanes
    once = lambda x: scan(lambda c, _: (c, ops.psum(1, "i")), 0.0, None, length=1)[1]
    for lanes in (2, 3):
        assert numbers(vmap(once, axis_name="i")(X[:lanes])).tolist() == [[lanes]] * lanes


# ---- derivatives


def bytes_of(residuals):
    return sum(r.data.nbytes for r in residuals)


def test_an_rnn_keeps_its_weights_once():
    rng = np.random.default_rng(0)
    weights = ops.asvalue(rng.normal(size=(512, 512)).astype(np.float32) / 100)
    rows = ops.asvalue(rng.normal(size=(100, 512)).astype(np.float32))
    start = np.zeros(512, np.float32)

    def loss(weights, rows):
        step = lambda h, x: (ops.tanh(ops.dot(weights, h) + x), None)
        return (total(scan(step, start, rows)[0]),)

    for f in (loss, jit(loss)):
        _, _, residuals, _ = linearize_flat(f, [weights, rows])
        assert any(r is weights for r in residuals)
        assert bytes_of(residuals) < 1.75e6


def test_residuals_that_do_not_change_are_computed_once():
    w = ops.asvalue(np.eye(64, dtype=np.float32))

    def loss(w):
        return (total(scan(lambda c, _: (c * ops.exp(ops.sin(w)), None), w, None, length=50)[0]),)

    _, linear, residuals, _ = linearize_flat(loss, [w])
    changing = [r for r in residuals if r.shape[:1] == (50,)]
    assert len(changing) == 1  # the carry
    assert any(e.prim is scan_p for e in eqns(linear.jaxpr))


def test_rows_that_are_operands_are_not_stacked_again():
    rows = ops.asvalue(np.ones((20, 3), np.float32))
    loss = lambda c, rows: (total(scan(lambda c, x: (c * x, None), c, rows)[0]),)
    _, _, residuals, _ = linearize_flat(loss, [ops.asvalue(X), rows])
    assert any(r is rows for r in residuals)
    assert sum(r.shape == (20, 3) for r in residuals) == 2  # rows and carries


def test_the_known_loop_disappears_where_nothing_is_known():
    f = custom_jvp(lambda x: x * 1.0)
    f.defjvp(lambda p, t: (p[0], scan(lambda c, _: (c * 2.0, None), t[0], None, length=3)[0]))
    jaxpr = stage(
        lambda x: (grad(lambda x: total(f(x)))(x),), (ShapedArray((3,), np.dtype(F32)),)
    ).jaxpr
    assert [e.prim for e in jaxpr.eqns].count(scan_p) == 1
    close(grad(lambda x: total(f(x)))(X), np.full(3, 8.0, np.float32))


def test_linear_transpose_with_a_counter():
    def f(t):
        (_, out), ys = scan(
            lambda c, x: ((c[0] + 1, c[1] * (c[0] + 1)), c[1] * x),
            (0, t),
            np.arange(3, dtype=np.float32),
        )
        return out + total(ys)

    matrix = F32(6.0 + 0.0 + 1.0 + 2 * 2.0)
    close(f(F32(1.0)), matrix)
    for wrap in (lambda f: f, jit):
        close(linear_transpose(wrap(f), F32(1.0))(F32(1.0))[0], matrix)
        close(linear_transpose(wrap(f), F32(1.0))(F32(2.0))[0], 2 * matrix)


def test_linear_transpose_in_constants_and_rows():
    def f(a, xs):
        return scan(lambda c, x: (c + a * 2.0, c + x), a, xs)

    pull = linear_transpose(f, F32(0), X)
    ct_a, ct_xs = pull((F32(1.0), np.array([1.0, 10.0, 100.0], np.float32)))
    close(ct_a, F32(7 + 1 * 1 + 10 * 3 + 100 * 5))
    close(ct_xs, np.array([1.0, 10.0, 100.0], np.float32))
    only_ys = lambda a: scan(lambda c, x: (c, c * x), a, X)[1]
    close(linear_transpose(only_ys, F32(0))(np.ones(3, np.float32))[0], X.sum(), 1e-6)


def test_masks_cross_a_scan():
    def f(x):
        safe = scan(lambda c, _: (ops.sqrt(c), None), x, None, length=2)[0]
        return ops.select(x > 0, safe, 0.0)

    lanes = np.array([0.0, 16.0], np.float32)
    expected = np.array([0.0, 0.25 * 16.0**-0.75], np.float32)
    close(vmap(grad(f))(lanes), expected, 1e-6)
    close(jit(vmap(grad(jit(f))))(lanes), expected, 1e-6)
    inside = lambda x: scan(
        lambda c, _: (c + ops.select(x > 0, ops.sqrt(x), 0.0), c), 0.0, None, length=3
    )
    close(vmap(grad(lambda x: inside(x)[0]))(lanes), np.array([0.0, 3 / 8], np.float32), 1e-6)
    close(
        vmap(grad(lambda x: total(inside(x)[1])))(lanes), np.array([0.0, 3 / 8], np.float32), 1e-6
    )


def test_linearize_is_reusable():
    out, push = linearize(lambda x: scan(lambda c, _: (ops.sin(c), c), x, None, length=2), X)
    close(
        push(X),
        jvp(lambda x: scan(lambda c, _: (ops.sin(c), c), x, None, length=2), (X,), (X,))[1],
        1e-6,
    )
    close(push(2 * X)[0], 2 * push(X)[0], 1e-6)
    close(out[0], np.sin(np.sin(X)), 1e-6)


def test_rules_with_array_constants_in_a_body():
    table = np.array([1.0, 2.0, 3.0], np.float32)
    f = custom_jvp(ops.sin)
    f.defjvp(lambda p, t: (ops.sin(p[0]), t[0] * table))
    loss = lambda x: total(scan(lambda c, _: (f(c), None), x, None, length=2)[0])
    for wrap in (lambda f: f, jit):
        close(grad(wrap(loss))(X), table**2, 1e-6)
        close(jvp(wrap(loss), (X,), (X,))[1], F32((table**2 * X).sum()), 1e-6)
        close(vmap(grad(wrap(loss)))(np.stack([X, X])), np.stack([table**2] * 2), 1e-6)


def test_effects_run_once_per_step():
    seen = []

    def body(c, x):
        callback(lambda v: seen.append(float(v)), x)
        return c * x, None

    grad(lambda c: scan(body, c, np.arange(3, dtype=np.float32))[0])(1.0)
    assert seen == [0.0, 1.0, 2.0]


def test_an_unmapped_carry_stays_unmapped():
    def f(x):
        return scan(lambda c, r: ((c[0] + 1.0, c[1] * r), c[0]), (0.0, x), np.ones(2, np.float32))

    jaxpr = stage(lambda x: (vmap(f)(x)[0][1],), (ShapedArray((3,), np.dtype(F32)),)).jaxpr
    (loop,) = [e for e in jaxpr.eqns if e.prim is scan_p]
    assert [v.aval.shape for v in loop.outputs] == [(), (3,), (2,)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_short_loop_is_written_out_for_the_compiler(length, reverse):
    xs = np.arange(6, dtype=np.float32).reshape(3, 2)[:length]
    body = lambda c, x: ((c[0] * 0.5 + x, c[1] + 1), (c[0], c[1]))
    run = lambda c, xs: scan(body, (c, 0), xs, reverse=reverse)
    flat = lambda c, xs: tree.leaves(run(c, xs))
    avals = [ShapedArray((2,), np.dtype(F32)), ShapedArray((length, 2), np.dtype(F32))]
    (loop,) = stage(flat, avals).jaxpr.eqns
    assert type(scan_p.form(**loop.params)).__name__ == "Expand"
    start = np.ones(2, np.float32)
    args = [ops.asvalue(a) for a in (start, np.int32(0), xs)]
    close(list(scan_p.expand(*args, **loop.params)), tree.leaves(run(start, xs)), 1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("length", "unroll", "calls"), [(70, 1, 8 + 6), (7, 3, 2 + 1), (6, 3, 2), (5, 1, 5)]
)
def test_several_steps_run_as_one_program(length, unroll, calls, reverse, monkeypatch):
    seen, ran = [], []
    xs = np.linspace(-1, 1, length, dtype=np.float32)

    def body(c, x):
        callback(lambda v: seen.append(float(v)), x, ordered=True)
        return ops.sin(c) + x, (c * 2.0, x)

    def evaluate(jaxpr, args):
        ran.append(jaxpr)
        return core.eval_jaxpr(jaxpr, args)

    monkeypatch.setattr(core._hooks, "evaluate", evaluate)
    last, (doubles, rows) = scan(body, F32(0.5), xs, reverse=reverse, unroll=unroll)
    carry, expected = F32(0.5), []
    order = xs[::-1] if reverse else xs
    for x in order:
        expected.append(carry * 2)
        carry = np.sin(carry) + x
    close((last, doubles), (carry, np.array(expected[::-1] if reverse else expected, F32)), 1e-5)
    assert numbers(rows).tolist() == xs.tolist()
    assert seen == order.tolist()
    assert len(ran) == calls


def test_which_loops_are_written_out():
    def form(length, unroll):
        step = lambda c, _: (jit(lambda c: ops.sin(ops.sin(c)))(c), None)
        run = lambda c: (scan(step, c, None, length=length, unroll=unroll)[0],)
        (loop,) = stage(run, [ShapedArray((), np.dtype(F32))]).jaxpr.eqns
        return type(scan_p.form(**loop.params)).__name__

    assert form(10, 1) == "Expand"
    assert form(11, 1) == form(100, 2) == form(100, False) == "Repeat"
    assert form(100, 100) == form(100, True) == "Expand"


def test_the_record():
    aval = ShapedArray((3,), np.dtype(F32))
    jaxpr = stage(lambda x: scan(lambda c, r: (c + r, c), 0.0, x), (aval,)).jaxpr
    (loop,) = jaxpr.eqns
    assert isinstance(loop.inputs[0], Literal)
    assert loop.params["jaxpr"].consts == 0
    assert call_p.linearize is not None
