"""gather, scatters, dynamic slices: random numbers, bad indices, duplicates, derivatives."""

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError
from lumjax.grad.jacobian import hessian, jacfwd, jacrev
from lumjax.ops import dynamic, index, scatter_monoid, windows
from lumjax.ops.elementwise import mul
from lumjax.ops.layout import reduce_sum
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import aval_of
from lumjax.trace.dim import symbol
from lumjax.trace.form import GatherMode, Opaque, Scatter, Update
from lumjax.trace.stage import stage
from tests.ops import laws

pytestmark = pytest.mark.sampled(3)

f32 = lambda *shape: ShapedArray(shape, dt.float32)
KEYS = np.arange(8, dtype=np.uint32).reshape(4, 2).view(dt.key).reshape(4)
ROWS = windows.GatherDimensionNumbers((1,), (0,), (0,))
ITEMS = windows.GatherDimensionNumbers((), (0,), (0,))
PUT = windows.ScatterDimensionNumbers((), (0,), (0,))
MODES = [GatherMode.CLIP, GatherMode.FILL, GatherMode.PROMISE]
SCATTERS = {
    "scatter": (index.scatter_p, None),
    "scatter_add": (index.scatter_add_p, np.add),
    "scatter_mul": (scatter_monoid.scatter_mul_p, np.multiply),
    "scatter_min": (scatter_monoid.scatter_min_p, np.minimum),
    "scatter_max": (scatter_monoid.scatter_max_p, np.maximum),
}


def random_windows(rng):
    """An operand, indices and dimension numbers in lax's full generality."""
    rank = int(rng.integers(1, 4))
    shape = [int(n) for n in rng.integers(1, 5, rank)]
    kinds = [("window", "collapsed", "batch")[k] for k in rng.choice(3, rank, p=[0.5, 0.3, 0.2])]
    batching = [k for k in range(rank) if kinds[k] == "batch"]
    collapsed = tuple(k for k in range(rank) if kinds[k] == "collapsed")
    rest = [k for k in range(rank) if kinds[k] != "batch"]
    mapped = [k for k in rng.permutation(rest) if rng.random() < 0.7] if rest else []
    extra = [int(n) for n in rng.integers(0, 4, rng.integers(3))]
    rows = [*((("b", k)) for k in batching), *(("x", k) for k in range(len(extra)))]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    batch_shape = [shape[k] if c == "b" else extra[k] for c, k in rows]
    sizes = [
        1
        if kinds[k] != "window"
        else shape[k]
        if rng.random() < 0.4
        else int(rng.integers(0, shape[k] + 1))
        for k in range(rank)
    ]
    count = kinds.count("window")
    out_rank = len(rows) + count
    offset = tuple(sorted(int(k) for k in rng.choice(out_rank, count, replace=False)))
    numbers = windows.GatherDimensionNumbers(
        offset,
        collapsed,
        tuple(int(k) for k in mapped),
        tuple(batching),
        tuple(rows.index(("b", k)) for k in batching),
    )
    indices = rng.integers(-2, 6, (*batch_shape, len(mapped))).astype(np.int32)
    return tuple(shape), indices, numbers, tuple(sizes)


def gather_params(numbers, sizes, mode, fill=None):
    return {
        "dimension_numbers": numbers,
        "slice_sizes": sizes,
        "indices_are_sorted": False,
        "unique_indices": False,
        "mode": mode,
        "fill_value": fill,
    }


def scatter_params(numbers, mode, unique=False):
    return {
        "dimension_numbers": windows.gather_as_scatter(numbers),
        "indices_are_sorted": False,
        "unique_indices": unique,
        "mode": mode,
    }


@pytest.mark.parametrize("seed", range(60))
def test_random_gathers(seed):
    rng = np.random.default_rng(seed)
    shape, indices, numbers, sizes = random_windows(rng)
    mode = MODES[seed % 3]
    x = laws.draw(f32(*shape), rng)
    params = gather_params(numbers, sizes, mode, 7.5 if mode is GatherMode.FILL else None)
    laws.check_aval(index.gather_p, [x, indices], params)
    assert laws.check_form(index.gather_p, [x, indices], params)
    laws.check_batch(index.gather_p, [x, indices], params, rng)
    laws.check_transpose(index.gather_p, [x, indices], params, (0,), rng)
    laws.check_jvp(index.gather_p, [x, indices], params, rng)


def sequential(x, indices, updates, numbers, sizes, ufunc, clip):
    """The meaning of a scatter, one update element at a time."""
    out = np.array(x)
    places = windows.batch_places(numbers, updates.ndim)
    for at in np.ndindex(*updates.shape):
        row = tuple(at[k] for k in places)
        position = [0] * x.ndim
        for axis, k in zip(windows.window_axes(numbers, x.ndim), numbers.offset_dims, strict=True):
            position[axis] = at[k]
        for axis, b in zip(
            numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
        ):
            position[axis] = row[b]
        inside = True
        for j, axis in enumerate(numbers.start_index_map):
            start, limit = int(indices[(*row, j)]), x.shape[axis] - sizes[axis]
            inside = inside and 0 <= start <= limit
            position[axis] += min(max(start, 0), limit)
        if inside or clip:
            where = tuple(position)
            out[where] = updates[at] if ufunc is None else ufunc(out[where], updates[at])
    return out


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("seed", range(15))
def test_random_scatters(name, seed):
    prim, ufunc = SCATTERS[name]
    rng = np.random.default_rng(1000 + seed)
    shape, indices, numbers, sizes = random_windows(rng)
    mode = MODES[seed % 3]
    x = laws.draw(f32(*shape), rng)
    updates = laws.draw(f32(*windows.gathered_shape(indices.shape, numbers, sizes)), rng)
    args, params = [x, indices, updates], scatter_params(numbers, mode)
    laws.check_aval(prim, args, params)
    want = sequential(x, indices, updates, numbers, sizes, ufunc, mode is GatherMode.CLIP)
    laws.close(prim.eval(*args, **params)[0], want)
    laws.check_batch(prim, args, params, rng)
    laws.check_jvp(prim, args, params, rng)
    if prim.transpose is not None:
        laws.check_transpose(prim, args, params, (0,) if name == "scatter_mul" else (0, 2), rng)
    if name in ("scatter", "scatter_add"):
        nothing = [x * 0, indices, updates]
        laws.check_transpose(prim, nothing, params, (2,), rng)
    assert isinstance(prim.form(*map(aval_of, args), **params), (Update, Scatter))
    assert laws.check_form(prim, args, params)


_SEPARATE = [  # operand, indices, updates, numbers: at most one update for each element
    ((4, 7), (4, 1, 1), (4, 1), ((), (1,), (1,), (0,), (0,))),
    ((4, 7), (4, 1), (4,), ((), (1,), (1,), (0,), (0,))),
    ((2, 3, 5), (3, 2, 1), (3, 2), ((), (2,), (2,), (0, 1), (1, 0))),
    ((4, 7), (4, 1), (4, 3), ((1,), (), (1,), (0,), (0,))),
    ((4, 7), (1, 2), (1, 2, 3), ((1, 2), (), (0, 1))),
    ((4, 7), (2,), (7,), ((0,), (0,), (0, 1))),
    ((4, 7), (1,), (3, 7), ((0, 1), (), (0,))),
    ((4, 7), (4, 2, 1), (4, 2), ((), (1,), (1,), (0,), (0,))),  # two updates: not separate
]


@pytest.mark.parametrize("case", range(len(_SEPARATE)))
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("mode", MODES)
def test_separate_updates_are_a_choice_for_each_element(case, name, mode):
    shape, index_shape, update_shape, numbers = _SEPARATE[case]
    prim, _ = SCATTERS[name]
    rng = np.random.default_rng(case)
    params = scatter_params(windows.ScatterDimensionNumbers(*numbers), mode)
    for dtype in (np.int32, np.int8, np.uint64):
        low = 0 if dtype is np.uint64 else -3
        indices = rng.integers(low, 9, index_shape).astype(dtype)
        args = [laws.draw(f32(*shape), rng), indices, laws.draw(f32(*update_shape), rng)]
        separate = isinstance(prim.form(*map(aval_of, args), **params), Scatter)
        assert separate == (case != len(_SEPARATE) - 1)
        assert laws.check_form(prim, args, params)


@pytest.mark.parametrize("seed", range(8))
def test_random_gathers_and_scatters_against_jax(seed):
    lax = pytest.importorskip("jax").lax
    rng = np.random.default_rng(2000 + seed)
    shape, indices, numbers, sizes = random_windows(rng)
    x = laws.draw(f32(*shape), rng)
    mode = ("clip", "fill")[seed % 2]
    theirs = lax.GatherDimensionNumbers(*numbers)
    want = np.asarray(lax.gather(x, indices, theirs, sizes, mode=mode))
    laws.close(index.gather(x, indices, theirs, sizes, mode=mode), want)
    updates = laws.draw(f32(*want.shape), rng)
    put = lax.ScatterDimensionNumbers(*numbers)
    for ours, oracle in [
        (index.scatter_add, lax.scatter_add),
        (scatter_monoid.scatter_mul, lax.scatter_mul),
        (scatter_monoid.scatter_min, lax.scatter_min),
        (scatter_monoid.scatter_max, lax.scatter_max),
    ]:
        laws.close(
            ours(x, indices, updates, put, mode=mode),
            np.asarray(oracle(x, indices, updates, put, mode=mode)),
        )


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        (dt.float32, np.nan),
        (dt.int8, -128),
        (dt.uint16, 65535),
        (dt.bool_, True),
        (dt.complex64, np.nan),
    ],
)
def test_default_fill_values(dtype, fill):
    x = np.ones(3).astype(dtype)
    out = index.gather(x, np.asarray([[5], [1]]), ITEMS, (1,), mode="fill")
    assert out.dtype == dtype
    np.testing.assert_array_equal(out.data, np.asarray([fill, 1]).astype(dtype))
    out = index.gather(x, np.asarray([[5]]), ITEMS, (1,), mode="fill", fill_value=0)
    assert out.data[0] == 0


def test_keys_are_gathered_and_scattered():
    at = np.asarray([[3], [9], [0]])
    out = index.gather(KEYS, at, ITEMS, (1,), mode="fill").data
    assert out["fry"].tolist() == [[6, 7], [2**32 - 1] * 2, [0, 1]]
    params = gather_params(ITEMS, (1,), GatherMode.FILL, 2**32 - 1)
    assert isinstance(index.gather_p.form(aval_of(KEYS), aval_of(at), **params), Opaque)
    assert laws.check_form(index.gather_p, [KEYS, at], gather_params(ITEMS, (1,), GatherMode.CLIP))
    put = index.scatter(KEYS, at, KEYS[:3], PUT).data
    assert put["fry"].tolist() == [[4, 5], [2, 3], [4, 5], [0, 1]]


def test_modes_of_indices_out_of_range():
    x = np.asarray([10, 20, 30], np.float32)
    at = np.asarray([[-1], [1], [7]])
    for mode, want in [
        ("clip", [10, 20, 30]),
        ("promise_in_bounds", [10, 20, 30]),
        (None, [10, 20, 30]),
    ]:
        assert index.gather(x, at, ITEMS, (1,), mode=mode).data.tolist() == want
    ones = np.ones(3, np.float32)
    assert index.scatter_add(x, at, ones, PUT, mode="clip").data.tolist() == [11, 21, 31]
    for mode in ("drop", "fill", "promise_in_bounds", None, GatherMode.FILL):
        assert index.scatter_add(x, at, ones, PUT, mode=mode).data.tolist() == [10, 21, 30]
    huge = np.asarray([[2**64 - 1]], np.uint64)
    with config.scope(enable_x64=True):
        assert index.gather(x, huge, ITEMS, (1,), mode="fill").data.tolist() == pytest.approx(
            [np.nan], nan_ok=True
        )
        assert index.gather(x, huge, ITEMS, (1,), mode="clip").data.tolist() == [30]


def test_the_last_of_several_writes_wins():
    at = np.asarray([[1], [0], [1]])
    u = np.asarray([5, 6, 7], np.float32)
    assert index.scatter(np.zeros(3, np.float32), at, u, PUT).data.tolist() == [6, 7, 0]
    assert index.scatter_sub(np.zeros(3, np.float32), at, u, PUT).data.tolist() == [-6, -12, 0]
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    put = windows.ScatterDimensionNumbers((1,), (0,), (0,))
    assert index.scatter_add(np.zeros((2, 2), np.float32), at, rows, put).data.tolist() == [
        [2, 3],
        [4, 6],
    ]


def test_sums_of_narrow_dtypes_accumulate_wide():
    at = np.zeros((4096, 1), np.int32)
    out = index.scatter_add(np.zeros(1, dt.bfloat16), at, np.ones(4096, dt.bfloat16), PUT)
    assert out.data[0] == 4096
    assert out.dtype == dt.bfloat16


@pytest.mark.parametrize("factors", [[2.0, 3.0, 5.0], [0.0, 3.0, 5.0], [0.0, 0.0, 5.0]])
def test_products_with_duplicates_differentiate_to_second_order(factors):
    at = np.asarray([[0], [0], [1]])
    ours = lambda u: scatter_monoid.scatter_mul(np.asarray([2.0, 7.0]), at, u, PUT)
    a, b, _ = factors
    with config.scope(enable_x64=True):
        u = np.asarray(factors)
        want = [[2 * b, 2 * a, 0], [0, 0, 7]]
        np.testing.assert_allclose(jacrev(ours)(u).data, want)
        np.testing.assert_allclose(jacfwd(ours)(u).data, want)
        second = hessian(lambda u: reduce_sum(ours(u), (0,)))(u).data
        np.testing.assert_allclose(second, [[0, 2, 0], [2, 0, 0], [0, 0, 0]])
        unique = lambda u: scatter_monoid.scatter_mul(
            np.asarray([2.0, 7.0, 1.0]), np.asarray([[0], [2], [1]]), u, PUT, unique_indices=True
        )
        np.testing.assert_allclose(jacrev(unique)(u).data, [[2, 0, 0], [0, 0, 7], [0, 1, 0]])


def test_ties_of_extrema_share_evenly():
    at = np.asarray([[0], [0], [1]])
    f = lambda x, u: scatter_monoid.scatter_max(x, at, u, PUT)
    with config.scope(enable_x64=True):
        x, u = np.asarray([2.0, 1.0]), np.asarray([2.0, 2.0, 3.0])
        dx, du = jacrev(f, argnums=(0, 1))(x, u)
        np.testing.assert_allclose(dx.data, [[1 / 3, 0], [0, 0]])
        np.testing.assert_allclose(du.data, [[1 / 3, 1 / 3, 0], [0, 0, 1]])


def test_overwritten_updates_get_no_cotangent():
    at = np.asarray([[1], [0], [1], [9]])
    for unique in (False, True):
        f = lambda u, unique=unique: index.scatter(np.zeros(2), at, u, PUT, unique_indices=unique)
        with config.scope(enable_x64=True):
            rows = jacrev(f)(np.ones(4)).data
        assert rows.tolist() == (
            [[0, 1, 0, 0], [0, 0, 1, 0]] if not unique else [[0, 1, 0, 0], [1, 0, 1, 0]]
        )


def test_batched_over_nothing():
    params = gather_params(ROWS, (1, 3), GatherMode.CLIP)
    x, at = np.ones((0, 4, 3), np.float32), np.zeros((0, 2, 1), np.int32)
    (out,), (dim,) = index.gather_p.batch(MappedAxis(0), (x, at), (0, 0), **params)
    assert (out.shape, dim) == ((0, 2, 3), 0)
    u = np.ones((0, 2, 3), np.float32)
    (out,), (dim,) = index.scatter_p.batch(
        MappedAxis(0), (x, at, u), (0, 0, 0), **scatter_params(ROWS, GatherMode.CLIP)
    )
    assert (out.shape, dim) == ((0, 4, 3), 0)


@pytest.mark.parametrize(
    ("numbers", "sizes", "words"),
    [
        (ROWS, (1,), "slice sizes"),
        (ROWS, (1, 4), "between 0"),
        (ROWS, (2, 3), "slice sizes of 1"),
        (windows.GatherDimensionNumbers((1,), (0,), (0, 1)), (1, 3), "index vectors"),
        (windows.GatherDimensionNumbers((1,), (2,), (0,)), (1, 3), r"\[0, 2\)"),
        (windows.GatherDimensionNumbers((2,), (0,), (0,)), (1, 3), "increasing window"),
        (windows.GatherDimensionNumbers((0, 1), (0,), (0,)), (1, 3), "one window axis"),
        (windows.GatherDimensionNumbers((), (1, 0), (0,)), (1, 1), "increasing collapsed"),
        (windows.GatherDimensionNumbers((1,), (), (1,), (0,), (0,)), (1, 3), "batching axes"),
    ],
)
def test_bad_dimension_numbers(numbers, sizes, words):
    with pytest.raises(ShapeError, match=words) as caught:
        index.gather(np.ones((4, 3), np.float32), np.zeros((5, 1), np.int32), numbers, sizes)
    assert caught.value.source.file == __file__


def test_bad_operands():
    x, at = np.ones(3, np.float32), np.zeros((2, 1), np.int32)
    with pytest.raises(DTypeError, match="integer indices"):
        index.gather(x, at.astype(np.float32), ITEMS, (1,))
    with pytest.raises(ArgumentValueError, match="distinct"):
        index.gather(x, at, windows.GatherDimensionNumbers((), (0,), (0, 0)), (1,))
    with pytest.raises(ArgumentValueError, match="mode"):
        index.gather(x, at, ITEMS, (1,), mode="wrap around")
    with pytest.raises(ShapeError, match=r"updates of shape \(2\)"):
        index.scatter(x, at, np.ones(3, np.float32), PUT)
    with pytest.raises(DTypeError, match="one dtype"):
        index.scatter(x, at, np.ones(2, np.int32), PUT)
    with pytest.raises(DTypeError, match="suitable"):
        index.scatter_add(x > 0, at, np.ones(2, bool), PUT)


def test_symbolic_sizes_gather():
    n = symbol("n", 1)
    params = gather_params(ROWS, (1, 3), GatherMode.CLIP)
    x, at = ShapedArray((n, 3), dt.float32), ShapedArray((5, 1), dt.int32)
    assert index.gather_p.aval(x, at, **params)[0].shape == (5, 3)
    assert str(index.gather_p.form(x, at, **params).bounds[0][1]) == str(n - 1)


# ---- dynamic slices


@pytest.mark.parametrize("seed", range(20))
def test_random_dynamic_slices(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 4)))
    sizes = tuple(int(rng.integers(0, n + 1)) for n in shape)
    starts = [np.asarray(rng.integers(-3, 7), np.int32) for _ in shape]
    x, update = laws.draw(f32(*shape), rng), laws.draw(f32(*sizes), rng)
    for prim, args, params, linear in [
        (dynamic.dynamic_slice_p, [x, *starts], {"slice_sizes": sizes}, (0,)),
        (dynamic.dynamic_update_slice_p, [x, update, *starts], {}, (0, 1)),
    ]:
        laws.check_aval(prim, args, params)
        assert laws.check_form(prim, args, params)
        laws.check_batch(prim, args, params, rng)
        laws.check_transpose(prim, args, params, linear, rng)
        laws.check_jvp(prim, args, params, rng)


@pytest.mark.parametrize("start", [-1, -4, -9, 0, 1, 3, 9])
def test_starts_agree_with_jax(start):
    lax = pytest.importorskip("jax").lax
    x, u = np.arange(4, dtype=np.float32), np.asarray([7, 8], np.float32)
    forms = [
        (start,),
        (Array(np.asarray(start, np.int32)),),
        np.asarray([start]),
        Array(np.asarray([start], np.int32)),
    ]
    for given in forms:
        laws.close(
            dynamic.dynamic_slice(x, given, (2,)), np.asarray(lax.dynamic_slice(x, (start,), (2,)))
        )
    jaxpr = stage(lambda s: [dynamic.dynamic_slice(x, (s,), (2,))], [ShapedArray((), dt.int32)])
    from lumjax.trace.core import eval_jaxpr

    (out,) = eval_jaxpr(jaxpr.jaxpr, [*jaxpr.consts, np.int32(start)])
    laws.close(out, np.asarray(lax.dynamic_slice(x, (start,), (2,))))
    want = np.asarray(lax.dynamic_update_slice(x, u, (start,)))
    laws.close(dynamic.dynamic_update_slice(x, u, (start,)), want)


def test_slices_along_one_axis():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    laws.close(dynamic.dynamic_slice_in_dim(x, 1, 2, -1), x[:, 1:3])
    laws.close(dynamic.dynamic_index_in_dim(x, -1), x[2:])
    laws.close(dynamic.dynamic_index_in_dim(x, 2, 1, keepdims=False), x[:, 2])
    u = np.zeros((3, 1), np.float32)
    want = x.copy()
    want[:, 3:] = 0
    laws.close(dynamic.dynamic_update_slice_in_dim(x, u, 3, 1), want)
    laws.close(dynamic.dynamic_update_index_in_dim(x, u[:, 0], 3, 1), want)
    laws.close(dynamic.dynamic_update_index_in_dim(x, u, 3, 1), want)
    assert dynamic.dynamic_slice(x, np.asarray([1, 1], np.uint8), (1, 1)).data.item() == 5


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: dynamic.dynamic_slice(x, (0,), (1, 1)), ShapeError, "start indices"),
        (lambda x: dynamic.dynamic_slice(x, (0, 0), (1,)), ShapeError, "sizes"),
        (lambda x: dynamic.dynamic_slice(x, (0, 0), (3, 1)), ShapeError, "window"),
        (lambda x: dynamic.dynamic_slice(x, (0, 0.5), (1, 1)), DTypeError, "integer indices"),
        (
            lambda x: dynamic.dynamic_slice(x, (0, np.zeros(2, np.int32)), (1, 1)),
            ShapeError,
            "scalar",
        ),
        (
            lambda x: dynamic.dynamic_update_slice(x, np.ones((1, 1), np.int32), (0, 0)),
            DTypeError,
            "one dtype",
        ),
        (
            lambda x: dynamic.dynamic_update_slice(x, np.ones((1,), np.float32), (0, 0)),
            ShapeError,
            "sizes",
        ),
    ],
)
def test_bad_dynamic_slices(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call(np.ones((2, 3), np.float32))
    assert caught.value.source.file == __file__


def test_a_scatter_of_keys_has_no_tangent():
    _, (tangent,) = index.scatter_p.jvp(
        (KEYS, np.asarray([[0]]), KEYS[:1]), (None,) * 3, **scatter_params(ITEMS, GatherMode.CLIP)
    )
    assert tangent is None


def test_gathers_weigh_rows():
    """The derivative of an embedding look-up counts how often each row was read."""
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    at = np.asarray([[2], [0], [2]])
    with config.scope(enable_x64=True):
        rows = jacrev(lambda t: reduce_sum(mul(index.gather(t, at, ROWS, (1, 2)), 1.0), (0, 1)))(
            table.astype(float)
        )
    assert rows.data.tolist() == [[1, 1], [0, 0], [2, 2]]
