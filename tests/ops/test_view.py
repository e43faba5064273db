"""Movement against NumPy and jax.lax: numbers and keys, sizes 0 and 1, cotangents of padding."""

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConcretizationError,
    DTypeError,
    InconclusiveDimError,
    ShapeError,
)
from lumjax.ops import elementwise, layout, view
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, aval_of
from lumjax.trace.dim import symbol
from lumjax.trace.form import Move
from lumjax.trace.stage import stage
from tests.ops import laws
from tests.ops.forms import interpret

f32 = lambda *shape: ShapedArray(shape, dt.float32)
KEYS = np.arange(12, dtype=np.uint32).reshape(2, 3, 2).view(dt.key).reshape(2, 3)


def random_shape(rng, rank):
    return tuple(int(n) for n in rng.choice([0, 1, 1, 2, 3, 5], rank))


def check(prim, args, params, rng, linear):
    laws.check_aval(prim, args, params)
    assert laws.check_form(prim, args, params)
    laws.check_batch(prim, args, params, rng)
    laws.check_transpose(prim, args, params, linear, rng)


@pytest.mark.parametrize("seed", range(25))
def test_random_pads(seed):
    lax = pytest.importorskip("jax").lax
    rng = np.random.default_rng(seed)
    shape = random_shape(rng, int(rng.integers(0, 4)))
    config = []
    for n in shape:
        interior = int(rng.integers(3))
        spread = n + max(n - 1, 0) * interior
        low, high = (int(rng.integers(-3, 4)) for _ in range(2))
        while low + high + spread < 0:
            high += 1
        config.append((low, high, interior))
    args = [laws.draw(f32(*shape), rng), np.float32(rng.normal())]
    args[1] = np.asarray(args[1])
    params = {"padding_config": tuple(config)}
    check(view.pad_p, args, params, rng, (0, 1))
    laws.check_transpose(view.pad_p, [args[0], args[1] * 0], params, (0,), rng)
    laws.close(view.pad(*args, config), np.asarray(lax.pad(*args, config)))


def test_padding_cotangent_is_not_poisoned_by_infinite_elements():
    ct = np.asarray([1.0, np.inf, 2.0], np.float32)
    inputs = Linear(f32(1)), Linear(f32())
    x, value = view.pad_p.transpose((Array(ct),), inputs, padding_config=((1, 1, 0),))
    assert x.data.tolist() == [np.inf]
    assert value.data == 3.0


def test_pad_with_a_mapped_padding_value_only():
    x = np.arange(3, dtype=np.float32)
    values = np.asarray([7, 8], np.float32)
    (out,), (dim,) = view.pad_p.batch(
        MappedAxis(2), (x, values), (None, 0), padding_config=((1, -1, 1),)
    )
    assert dim == 0
    assert out.data.tolist() == [[7, 0, 7, 1, 7], [8, 0, 8, 1, 8]]


def test_python_padding_values_take_the_operands_dtype():
    assert view.pad(np.ones(2, np.int32), 5, [(1, 0, 0)]).data.tolist() == [5, 1, 1]


@pytest.mark.parametrize("seed", range(25))
def test_random_slices_and_concatenations(seed):
    rng = np.random.default_rng(100 + seed)
    shape = random_shape(rng, int(rng.integers(1, 4)))
    x = laws.draw(f32(*shape), rng)
    starts = tuple(int(rng.integers(n + 1)) for n in shape)
    limits = tuple(int(rng.integers(s, n + 1)) for s, n in zip(starts, shape, strict=True))
    strides = tuple(int(s) for s in rng.integers(1, 4, len(shape)))
    params = {"start_indices": starts, "limit_indices": limits, "strides": strides}
    check(view.slice_p, [x], params, rng, (0,))
    want = x[tuple(map(slice, starts, limits, strides))]
    laws.close(view.slice(x, starts, limits, strides), want)
    axis = int(rng.integers(len(shape)))
    parts = [x, *(np.repeat(np.take(x, [0] if shape[axis] else [], axis), k, axis) for k in (0, 2))]
    check(view.concatenate_p, parts, {"dimension": axis}, rng, (0, 1, 2))
    laws.close(view.concatenate(parts, axis - len(shape)), np.concatenate(parts, axis))


@pytest.mark.parametrize("seed", range(25))
def test_random_permutations_flips_broadcasts_and_sums(seed):
    rng = np.random.default_rng(200 + seed)
    rank = int(rng.integers(0, 4))
    shape = random_shape(rng, rank)
    x = laws.draw(f32(*shape), rng)
    perm = tuple(int(p) for p in rng.permutation(rank))
    check(layout.transpose_p, [x], {"permutation": perm}, rng, (0,))
    laws.close(layout.transpose(x, perm), x.transpose(perm))
    axes = tuple(k for k in range(rank) if rng.random() < 0.5)
    check(layout.rev_p, [x], {"dimensions": axes}, rng, (0,))
    laws.close(layout.rev(x, axes), np.flip(x, axes))
    check(layout.reduce_sum_p, [x], {"axes": axes}, rng, (0,))
    laws.close(layout.reduce_sum(x, axes), np.asarray(x.sum(axes), np.float32))
    out_rank = rank + int(rng.integers(3))
    dims = tuple(sorted(int(d) for d in rng.choice(out_rank, rank, replace=False)))
    sizes = [int(n) for n in rng.choice([0, 1, 2, 3], out_rank)]
    for n, d in zip(shape, dims, strict=True):
        sizes[d] = n if n != 1 else sizes[d]
    params = {"shape": tuple(sizes), "broadcast_dimensions": dims}
    check(layout.broadcast_in_dim_p, [x], params, rng, (0,))


def test_large_broadcasts_are_views():
    out = layout.broadcast_in_dim(np.ones(3, np.float32), (5000, 3), (1,))
    assert out.data.strides[0] == 0
    assert layout.broadcast_in_dim(np.float32(2), (2, 2), ()).data.tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((6,), (2, 3)),
        ((2, 3, 4), (4, 6)),
        ((0, 3), (3, 0)),
        ((), (1, 1)),
        ((4, 1, 3), (2, 6)),
        ((6, 4), (8, 3)),
    ],
)
def test_reshapes(before, after):
    rng = np.random.default_rng(0)
    x = laws.draw(f32(*before), rng)
    check(layout.reshape_p, [x], {"new_sizes": after}, rng, (0,))
    laws.close(layout.reshape(x, after), x.reshape(after))


def test_reshape_fills_in_one_size():
    x = Array(np.arange(6, dtype=np.float32))
    assert layout.reshape(x, (-1, 3)).shape == (2, 3)
    assert layout.reshape(x, 6) is x
    for sizes in [(-1, -1), (4, -1), (0, -1), (4, 2), (-2, -3)]:
        with pytest.raises(ShapeError):
            layout.reshape(x, sizes)


def test_keys_move_like_numbers():
    rng = np.random.default_rng(0)
    for prim, params in [
        (layout.broadcast_in_dim_p, {"shape": (4, 2, 3), "broadcast_dimensions": (1, 2)}),
        (layout.reshape_p, {"new_sizes": (3, 2)}),
        (layout.transpose_p, {"permutation": (1, 0)}),
        (layout.rev_p, {"dimensions": (0,)}),
        (view.slice_p, {"start_indices": (0, 1), "limit_indices": (2, 3), "strides": (1, 2)}),
    ]:
        laws.check_aval(prim, [KEYS], params)
        assert laws.check_form(prim, [KEYS], params)
        laws.check_batch(prim, [KEYS], params, rng)
    padded = view.pad(KEYS, np.zeros((), dt.key), [(1, 0, 0), (0, 0, 0)])
    assert padded.data["fry"].tolist()[0] == [[0, 0]] * 3
    joined = view.concatenate([KEYS, KEYS], 0)
    assert (joined.data[2:] == KEYS).all()
    chosen = elementwise.select(np.ones((2, 3), bool), KEYS, KEYS)
    assert (chosen.data == KEYS).all()


def test_sums_of_narrow_dtypes_accumulate_wide_and_integers_wrap():
    ones = np.ones(70000, np.float16)
    assert layout.reduce_sum(ones, 0).data == np.float16(np.inf)  # 70000 is above float16's range
    assert layout.reduce_sum(np.full(4096, 1.0, dt.bfloat16), None).data == 4096
    assert layout.reduce_sum(np.full(3, 100, np.int8), 0).data == np.int8(300 - 256)
    assert layout.reduce_sum(np.full(3, 100, np.int8), 0).dtype == dt.int8


def test_index_constants():
    assert view.iota(dt.float32, 3).data.tolist() == [0, 1, 2]
    assert view.broadcasted_iota(dt.int32, (2, 3), -1).data.tolist() == [[0, 1, 2]] * 2
    assert view.iota(dt.uint8, 300).data[299] == 299 - 256
    assert view.iota(dt.bfloat16, 2).dtype == dt.bfloat16
    assert view.dim_value(7).dtype == dt.int32
    n = symbol("n", 1)
    staged = stage(lambda: [view.dim_value(n * 2)], [])
    assert staged.jaxpr.out_avals == (ShapedArray((), dt.int32, weak=True),)  # as Python's are
    with pytest.raises(InconclusiveDimError, match="dynamic="):
        view.dim_value(n)
    assert view.dim_value_p.eval(dim=4)[0] == 4
    with pytest.raises(DTypeError):
        view.iota(dt.bool_, 3)


def test_full_casts_constants_and_takes_traced_values():
    assert layout.full((2,), 3, dt.int8).dtype == dt.int8
    assert layout.full((2,), Array(np.float32(2.7)), dt.int32).data.tolist() == [2, 2]
    assert layout.full((), True).dtype == dt.bool_
    assert aval_of(layout.full((2,), 1.0)).weak
    jaxpr = stage(lambda x: [layout.full((2, 2), x)], [f32()]).jaxpr
    assert jaxpr.out_avals[0] == f32(2, 2)
    with pytest.raises(DTypeError, match="int32"):
        stage(lambda x: [layout.full((2,), x, dt.int32)], [f32()])
    with pytest.raises(ShapeError, match="rank-0"):
        layout.full((2,), np.ones(2, np.float32))


def test_squeeze_and_expand_dims():
    x = np.ones((2, 1, 3, 1), np.float32)
    assert layout.squeeze(x, (1, -1)).shape == (2, 3)
    assert layout.expand_dims(np.ones((2, 3), np.float32), (0, 2)).shape == (1, 2, 1, 3)
    assert layout.expand_dims(np.ones(2, np.float32), (-1,)).shape == (2, 1)
    with pytest.raises(ShapeError, match="size 1"):
        layout.squeeze(x, (0,))
    with pytest.raises(ArgumentValueError, match="distinct"):
        layout.squeeze(x, (1, 1))


def test_symbolic_sizes_move():
    n = symbol("n", 1)
    x = ShapedArray((n, 3), dt.float32)
    (out,) = layout.broadcast_in_dim_p.aval(x, shape=(2, n, 3), broadcast_dimensions=(1, 2))
    assert out.shape == (2, n, 3)
    (out,) = view.pad_p.aval(x, f32(), padding_config=((1, 1, 0), (0, 0, 0)))
    assert str(out.shape[0]) == str(n + 2)
    (out,) = view.concatenate_p.aval(x, x, dimension=0)
    assert str(out.shape[0]) == str(2 * n)
    (out,) = view.slice_p.aval(x, start_indices=(0, 1), limit_indices=(n, 3), strides=(1, 1))
    assert out.shape == (n, 2)
    assert layout.reshape_p.aval(x, new_sizes=(3 * n,))[0].shape == (3 * n,)


def test_a_chain_of_moves_reads_the_right_elements():
    rng = np.random.default_rng(3)
    x = laws.draw(f32(4, 6), rng)
    form = layout.transpose_p.form(f32(4, 6), permutation=(1, 0))
    inner = layout.rev_p.form(f32(4, 6), dimensions=(1,))
    chained = Move((form.maps[0].compose(inner.maps[0]),))
    laws.close(interpret(chained, [x], f32(6, 4)), x[:, ::-1].T)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: layout.broadcast_in_dim(x, (2, 4), (0, 1)), ShapeError, "1 or equal"),
        (lambda x: layout.broadcast_in_dim(x, (2, 3), (1, 0)), ArgumentValueError, "increasing"),
        (lambda x: layout.broadcast_in_dim(x, (2, 3), (0,)), ShapeError, "one for each axis"),
        (lambda x: layout.broadcast_in_dim(x, (-2, 3), (0, 1)), ShapeError, "not negative"),
        (lambda x: layout.transpose(x, (0, 0)), ArgumentValueError, "permutation"),
        (lambda x: layout.rev(x, (2,)), ArgumentValueError, r"\[0, 2\)"),
        (lambda x: layout.reduce_sum(x, (0, 0)), ArgumentValueError, "distinct"),
        (lambda x: layout.reduce_sum(x, (5,)), ArgumentValueError, "axis in"),
        (lambda x: layout.reduce_sum_p.aval(aval_of(x), axes=(2,)), ArgumentValueError, "axes in"),
        (lambda x: layout.reduce_sum(x > 0, (0,)), DTypeError, "numeric"),
        (lambda x: view.slice(x, (0, 0), (3, 3)), ArgumentValueError, "start <= limit"),
        (lambda x: view.slice(x, (0, 0), (2, 3), (0, 1)), ArgumentValueError, "positive strides"),
        (lambda x: view.slice(x, (0,), (2,)), ShapeError, "start indices"),
        (lambda x: view.pad(x, np.int32(0), [(0, 0, 0)] * 2), DTypeError, "one dtype"),
        (lambda x: view.pad(x, 0.0, [(-3, 0, 0), (0, 0, 0)]), ShapeError, "sizes >= 0"),
        (lambda x: view.concatenate([], 0), ArgumentValueError, "at least one"),
        (lambda x: view.concatenate([x, x[:, :1]], 0), ShapeError, "every axis but 0"),
        (lambda x: view.concatenate([x, x], 2), ArgumentValueError, "axis in"),
        (lambda x: layout.reshape(x, (2.0, 3)), ArgumentTypeError, "an integer"),
        (lambda x: layout.reshape([1, 2], (2,)), ArgumentTypeError, "array"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call(np.ones((2, 3), np.float32))
    assert caught.value.source.file == __file__


def test_a_traced_size_says_what_to_do():
    with pytest.raises(ConcretizationError, match="static"):
        stage(lambda n: [layout.reshape(np.ones(2, np.float32), (n,))], [ShapedArray((), dt.int32)])


def test_mapped_operand_at_any_position():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert layout.batch_first(x, 1, 3).shape == (3, 2)
    assert layout.batch_first(x, None, 4).shape == (4, 2, 3)
    assert layout.moveaxis(x, 0, 0) is x
