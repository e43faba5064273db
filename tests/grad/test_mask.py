"""Masks on cotangents: a predicate kills what it deselects, to any order, through any operation."""

import numpy as np
import pytest

from lumjax import ops
from lumjax.config import config
from lumjax.control.call import call_p
from lumjax.decorator import jit
from lumjax.grad import mask as masks
from lumjax.grad.forward import jvp
from lumjax.grad.jacobian import hessian
from lumjax.grad.linear import vjp
from lumjax.grad.mask import Mask
from lumjax.grad.reverse import grad
from lumjax.ops import (
    add,
    conv_general_dilated,
    cumsum,
    div,
    dot_general,
    exp,
    ge,
    gt,
    log,
    lt,
    mul,
    reduce_sum,
    select,
    sin,
    sqrt,
    square,
)  # fmt: skip
from lumjax.trace.array import Array
from lumjax.trace.batch import vmap
from lumjax.trace.core import active_traces
from lumjax.trace.stage import stage

ZERO = np.float32(0.0)
T, F = True, False


@pytest.fixture(autouse=True)
def clean_stack():
    yield
    assert len(active_traces()) == 1


def number(x):
    return float(x.data)


def total(x):
    return reduce_sum(x, None)


def never(x):
    """A residual that is infinite at 0, deselected."""
    return mul(sqrt(x), log(x))


# name, function, first and second derivative at 0
CASES = [
    ("unmasked residual 0", lambda x: mul(0.5, square(select(gt(x, -5.0), sin(x), 0.0))), 0.0, 1.0),
    ("sqrt", lambda x: select(lt(x, 1.0), x, sqrt(x)), 1.0, 0.0),
    ("log", lambda x: select(gt(x, 0.0), log(x), 0.0), 0.0, 0.0),
    ("under exp", lambda x: exp(select(lt(x, 1.0), x, sqrt(x))), 1.0, 1.0),
    ("two products", lambda x: select(lt(x, 1.0), mul(x, x), never(x)), 0.0, 2.0),
    ("constant predicate", lambda x: select(np.array(True), mul(x, x), 0.0), 0.0, 2.0),
    ("times x", lambda x: mul(x, select(lt(x, 1.0), x, sqrt(x))), 0.0, 2.0),
    ("quotient", lambda x: select(gt(x, 0.0), div(sin(x), x), x), 1.0, 0.0),
    (
        "nested selects",
        lambda x: select(gt(x, -1.0), select(lt(x, 1.0), x, never(x)), log(x)), 1.0, 0.0,
    ),
    (
        "selected twice",
        lambda x: add(select(lt(x, 1.0), x, never(x)), select(gt(x, 0.0), never(x), x)), 2.0, 0.0,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("f", "first", "second"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_derivatives_at_zero(f, first, second):
    assert number(grad(f)(ZERO)) == first
    assert number(grad(grad(f))(ZERO)) == second
    assert number(jvp(grad(f), (ZERO,), (np.float32(1.0),))[1]) == second
    assert number(grad(lambda x: jvp(f, (x,), (np.float32(1.0),))[1])(ZERO)) == second
    assert number(hessian(f)(ZERO)) == second
    assert vmap(grad(grad(f)))(np.zeros(2, np.float32)).data.tolist() == [second] * 2


@pytest.mark.parametrize(
    ("f", "first", "second"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_derivatives_at_zero_through_staging(f, first, second):
    with config.scope(interpret=True):
        assert number(jit(grad(f))(ZERO)) == first
        assert number(grad(jit(f))(ZERO)) == first
        assert number(jit(grad(grad(f)))(ZERO)) == second
        assert number(grad(jit(grad(jit(f))))(ZERO)) == second


def test_a_selected_infinity_is_reported():
    f = lambda x: square(select(ge(x, 0.0), sqrt(x), 0.0))
    assert np.isnan(number(grad(f)(ZERO)))


def test_grad_compat_restores_jax():
    f = lambda x: select(lt(x, 1.0), x, sqrt(x))
    with config.scope(grad_compat="jax"):
        assert np.isnan(number(grad(f)(ZERO)))
        assert np.isnan(number(jit(grad(f))(ZERO)))
    assert number(jit(grad(f))(ZERO)) == 1.0


# ---- every way a mask travels: sqrt has an infinite slope at x = 0, which the predicate deselects

X = np.array([[0.0, 1.0, 4.0], [9.0, 0.0, 16.0]], np.float32)
KEEP = X > 0
HALF = np.where(KEEP, 0.5 / np.sqrt(np.where(KEEP, X, 1)), 0).astype(np.float32)


def masked_loss(move, keep, weight=1.0):
    """Sum of the kept elements of move(sqrt(x))."""
    return lambda x: total(select(keep, mul(move(sqrt(x)), weight), 0.0))


MOVES = [
    ("reshape", lambda y: ops.reshape(y, (6,)), KEEP.reshape(6)),
    ("transpose", lambda y: ops.transpose(y, (1, 0)), KEEP.T),
    ("rev", lambda y: ops.rev(y, (0, 1)), KEEP[::-1, ::-1]),
    ("slice", lambda y: ops.slice(y, (0, 1), (2, 3)), KEEP[:, 1:]),
    ("pad", lambda y: ops.pad(y, ZERO, [(1, 0, 0), (0, 2, 1)]), None),
    ("broadcast", lambda y: ops.broadcast_in_dim(y, (2, 2, 3), (1, 2)), np.stack([KEEP, KEEP])),
    ("concatenate", lambda y: ops.concatenate([y, y], 0), np.concatenate([KEEP, KEEP])),
    ("dynamic_slice", lambda y: ops.dynamic_slice(y, (0, 1), (2, 2)), KEEP[:, 1:]),
    ("neg", ops.neg, KEEP),
    ("cast", lambda y: ops.cast(y, np.float16), KEEP),
    ("barrier", lambda y: ops.barrier(y, id=1)[0], KEEP),
]


@pytest.mark.parametrize(("move", "keep"), [m[1:] for m in MOVES], ids=[m[0] for m in MOVES])
def test_moves(move, keep):
    if keep is None:  # where a move adds elements, those are kept too
        keep = np.asarray(move(Array(X)).data > 0)
    g = grad(masked_loss(move, keep))(X)
    reference = grad(masked_loss(move, keep))(np.where(KEEP, X, 1).astype(np.float32))
    np.testing.assert_allclose(g.data, np.where(KEEP, reference.data, 0), rtol=1e-3)
    assert np.isfinite(g.data).all()
    assert (g.data != 0).sum() >= 3


def test_sums_broadcast_the_mask():
    rows = np.array([[0.0, 0.0], [1.0, 4.0]], np.float32)
    f = lambda x: total(select(np.array([F, T]), reduce_sum(sqrt(x), (1,)), 0.0))
    np.testing.assert_array_equal(grad(f)(rows).data, [[0, 0], [0.5, 0.25]])


def test_cumulative_sums():
    x = np.array([1.0, 4.0, 0.0, 0.0], np.float32)
    f = lambda x: total(select(np.array([T, T, F, F]), cumsum(sqrt(x), 0), 0.0))
    np.testing.assert_array_equal(grad(f)(x).data, [1.0, 0.25, 0.0, 0.0])


def test_gather_and_scatter():
    x = np.array([0.0, 1.0, 4.0], np.float32)
    index = np.array([[1], [2], [0]], np.int32)
    keep = np.array([T, T, F])
    rows = ops.index._ROWS.__class__((), (0,), (0,))
    f = lambda x: total(select(keep, ops.gather(sqrt(x), index, rows, (1,)), 0.0))
    np.testing.assert_array_equal(grad(f)(x).data, [0.0, 0.5, 0.25])
    onto = np.zeros(3, np.float32)
    numbers = ops.index.ScatterDimensionNumbers((), (0,), (0,))
    for scatter in (ops.scatter, ops.scatter_add):
        h = lambda x: total(select(keep, scatter(onto, index, sqrt(x), numbers), 0.0))
        np.testing.assert_array_equal(grad(h)(x[[2, 0, 1]]).data, [0.25, 0.0, 0.5])


def test_a_barrier_keeps_each_operands_mask():
    def f(x):
        y, z = ops.barrier(sqrt(x), mul(x, 2.0), id=1)
        return add(select(gt(x, 0.0), y, x), z)

    assert number(grad(f)(ZERO)) == 3.0


def test_an_operation_of_unknown_form_only_loses_the_protection():
    keep = np.array([T, F])
    f = lambda x: total(select(keep, ops.cumlogsumexp(sqrt(x), 0), 0.0))
    assert grad(f)(np.array([1.0, 0.0], np.float32)).data[0] == 0.5
    f = lambda z: total(select(keep, ops.real(ops.neg(mul(z, z))), 0.0))
    z = np.array([1 + 2j, 3.0], np.complex64)
    np.testing.assert_array_equal(grad(f)(z).data, [-2 - 4j, 0])


def test_an_unmasked_cotangent_removes_the_mask():
    f = lambda x: (lambda y: add(y, select(np.array(False), y, 0.0)))(sqrt(x))
    assert number(grad(f)(np.float32(4.0))) == 0.25
    assert np.isinf(number(grad(f)(ZERO)))
    both = lambda x: (
        lambda y: add(select(np.array(False), y, 0.0), select(np.array(False), y, 1.0))
    )(sqrt(x))
    assert number(grad(both)(ZERO)) == 0.0


# ---- contractions

NUMBERS = [
    ((((1,), (0,)), ((), ())), (2, 3), (3, 4)),
    ((((0,), (1,)), ((), ())), (3, 2), (4, 3)),
    ((((2,), (1,)), ((0,), (0,))), (2, 3, 4), (2, 4, 5)),
    ((((1,), (2,)), ((2,), (1,))), (3, 4, 2), (5, 2, 4)),
    ((((), ()), ((), ())), (2,), (3,)),
    ((((0,), (0,)), ((), ())), (3,), (3,)),
    ((((0, 1), (1, 0)), ((), ())), (3, 2), (2, 3)),
]


def _rand(shape, seed):
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape).astype(np.float32)


def _expected_dot(keep, other, numbers, which, like):
    """The gradient of the sum of the kept outputs, element by element."""
    result = np.zeros(like.shape, np.float64)
    for k in np.ndindex(like.shape):
        unit = np.zeros(like.shape, np.float32)
        unit[k] = 1
        pair = (unit, other) if which == 0 else (other, unit)
        out = np.asarray(dot_general(*pair, numbers).data)
        result[k] = np.where(keep, np.where(np.isfinite(out), out, 0), 0).sum()
    return result


@pytest.mark.parametrize(("numbers", "left", "right"), NUMBERS)
@pytest.mark.parametrize("which", [0, 1])
def test_contractions_with_all_kept_or_none(numbers, left, right, which):
    x, w = _rand(left, 0), _rand(right, 1)
    args = [x, w]
    out = np.asarray(dot_general(x, w, numbers).data)
    for keep in (np.ones(out.shape, bool), np.zeros(out.shape, bool)):
        f = lambda *xs: total(select(keep, dot_general(*xs, numbers), 0.0))
        g = grad(f, which)(*args)
        expected = _expected_dot(keep, args[1 - which], numbers, which, args[which])
        np.testing.assert_allclose(g.data, expected, rtol=1e-5)
    infinite = [x, w]
    infinite[1 - which] = np.full_like(args[1 - which], np.inf)
    none = grad(lambda *xs: total(select(keep, dot_general(*xs, numbers), 0.0)), which)(*infinite)
    np.testing.assert_array_equal(none.data, np.zeros_like(args[which]))


def test_a_masked_column_of_a_matrix_product_may_be_infinite():
    w = np.array([[1.0, np.inf], [2.0, -np.inf]], np.float32)
    x = _rand((3, 2), 0)
    keep = np.array([[T, F], [T, F], [F, F]])
    f = lambda x, w: total(select(keep, dot_general(x, w, (((1,), (0,)), ((), ()))), 0.0))
    to_x, to_w = grad(f, (0, 1))(x, w)
    np.testing.assert_array_equal(to_x.data, [[1, 2], [1, 2], [0, 0]])
    expected = np.stack([x[:2].sum(0), np.zeros(2)], 1)
    np.testing.assert_allclose(to_w.data, expected, rtol=1e-6)


def test_a_masked_row_stays_zero_even_if_another_row_needs_the_infinity():
    w = np.array([[np.inf], [1.0]], np.float32)
    f = lambda x: total(
        select(np.array([[T], [F]]), dot_general(x, w, (((1,), (0,)), ((), ()))), 0.0)
    )
    g = grad(f)(_rand((2, 2), 0)).data
    np.testing.assert_array_equal(g, [[np.inf, 1.0], [0.0, 0.0]])


def test_the_mask_goes_on_beyond_a_contraction():
    x = np.array([[0.0, 0.0], [1.0, 4.0]], np.float32)
    w = _rand((2, 3), 1)
    keep = np.array([[F] * 3, [T] * 3])
    f = lambda x: total(select(keep, dot_general(sqrt(x), w, (((1,), (0,)), ((), ()))), 0.0))
    g = grad(f)(x).data
    np.testing.assert_allclose(g, [[0, 0], w.sum(1) * [0.5, 0.25]], rtol=1e-6)


def test_convolutions():
    x = np.zeros((2, 1, 4, 4), np.float32)
    x[1] = 4.0
    kernel = _rand((3, 1, 2, 2), 1)
    keep = np.zeros((2, 3, 3, 3), bool)
    keep[1] = True

    def f(x, kernel):
        out = conv_general_dilated(sqrt(x), kernel, (1, 1), "VALID")
        return total(select(keep, out, 0.0))

    to_x, to_kernel = grad(f, (0, 1))(x, kernel)
    assert (to_x.data[0] == 0).all()
    plain = grad(lambda x: total(conv_general_dilated(sqrt(x), kernel, (1, 1), "VALID")))(x[1:])
    np.testing.assert_allclose(to_x.data[1:], plain.data, rtol=1e-5)
    np.testing.assert_allclose(to_kernel.data, np.full_like(kernel, 18.0), rtol=1e-5)


# ---- programs inside programs


def test_through_a_call():
    f = lambda x: select(gt(x, 0.0), jit(lambda y: mul(sqrt(y), log(y)))(x), x)
    assert number(grad(f)(ZERO)) == 1.0
    assert number(grad(grad(f))(ZERO)) == 0.0
    # The mask comes out of the call again.
    outer = lambda x: select(gt(x, 0.0), jit(lambda y: mul(y, 2.0))(sqrt(x)), x)
    assert number(grad(outer)(ZERO)) == 1.0
    assert number(jit(grad(outer))(ZERO)) == 1.0


def test_a_call_takes_no_mask_that_it_does_not_use():
    def backward_call(f):
        staged = stage(
            lambda x, ct: vjp(lambda y: select(gt(y, 0.0), jit(f)(y), 0.0), x)[1](ct),
            [_aval(), _aval()],
        )
        return next(
            e for e in staged.jaxpr.eqns if e.prim is call_p and "transpose" in e.params["name"]
        )

    def _aval():
        from lumjax.trace.core import aval_of

        return aval_of(np.float32(1.0))

    assert len(backward_call(lambda y: mul(y, 2.0)).inputs) < len(backward_call(sqrt).inputs)


def test_a_mask_that_turns_out_to_be_unknown():
    unknown = Mask(lambda: None)
    assert unknown.get() is None
    known = Mask(lambda: Array(np.array([True])))
    assert masks.either(unknown, known).get() is None
    assert masks.either(known, known).get().data.tolist() == [True]
    f = lambda x: total(select(np.array([F, T]), ops.cumprod(jit(sqrt)(x), 0), 0.0))
    assert np.isfinite(grad(f)(np.array([1.0, 4.0], np.float32)).data).all()


def test_masks_cost_nothing_where_residuals_are_finite_scalars():
    staged = stage(
        lambda x: [grad(lambda y: total(mul(select(np.array([T, F]), mul(y, 2.0), 0.0), 3.0)))(x)],
        [Array(np.zeros(2, np.float32)).aval],
    )
    assert [e.prim.name for e in staged.jaxpr.eqns].count("select") <= 3
