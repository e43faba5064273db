"""dot_general and conv_general_dilated with random dimension numbers, against jax and the maps."""

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError, UnsupportedError
from lumjax.ops import contract, conv
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, aval_of
from lumjax.trace.dim import symbol
from lumjax.trace.form import Contract, Expand
from tests.ops import laws

f32 = lambda *shape: ShapedArray(shape, dt.float32)


def dot_params(numbers, preferred=None):
    return {"dimension_numbers": numbers, "precision": None, "preferred_element_type": preferred}


def random_dot(rng):
    """Shapes and dimension numbers, up to 2 axes of each kind in any order."""
    batch, terms, left, right = (
        [int(n) for n in rng.choice([0, 1, 2, 3], rng.integers(3))] for _ in range(4)
    )

    def place(free):
        names = [*(("b", k) for k in range(len(batch))), *(("k", k) for k in range(len(terms)))]
        names += [("f", k) for k in range(len(free))]
        order = [names[i] for i in rng.permutation(len(names))]
        sizes = {"b": batch, "k": terms, "f": free}
        shape = tuple(sizes[c][k] for c, k in order)
        return shape, *(tuple(order.index((c, k)) for k in range(len(sizes[c]))) for c in "kb")

    lhs, lc, lb = place(left)
    rhs, rc, rb = place(right)
    return lhs, rhs, ((lc, rc), (lb, rb))


@pytest.mark.parametrize("seed", range(40))
def test_random_contractions(seed):
    rng = np.random.default_rng(seed)
    lhs, rhs, numbers = random_dot(rng)
    args = [laws.draw(f32(*lhs), rng), laws.draw(f32(*rhs), rng)]
    params = dot_params(numbers)
    laws.check_aval(contract.dot_general_p, args, params)
    assert laws.check_form(contract.dot_general_p, args, params)
    laws.check_batch(contract.dot_general_p, args, params, rng)
    for k in range(2):
        laws.check_transpose(contract.dot_general_p, args, params, (k,), rng)
    letters = iter("abcdefghijklmnop")
    (lc, rc), (lb, rb) = numbers
    x, y = [next(letters) for _ in lhs], [next(letters) for _ in rhs]
    for a, b in zip((*lc, *lb), (*rc, *rb), strict=True):
        y[b] = x[a]
    kept = [x[a] for a in lb]
    kept += [c for k, c in enumerate(x) if k not in (*lc, *lb)]
    kept += [c for k, c in enumerate(y) if k not in (*rc, *rb)]
    want = np.einsum(
        f"{''.join(x)},{''.join(y)}->{''.join(kept)}", *(a.astype(np.float64) for a in args)
    )
    laws.close(contract.dot_general(*args, numbers), want.astype(np.float32))


@pytest.mark.parametrize("seed", range(6))
def test_random_contractions_against_jax(seed):
    lax = pytest.importorskip("jax").lax
    rng = np.random.default_rng(1000 + seed)
    lhs, rhs, numbers = random_dot(rng)
    args = [laws.draw(f32(*lhs), rng), laws.draw(f32(*rhs), rng)]
    laws.close(contract.dot_general(*args, numbers), np.asarray(lax.dot_general(*args, numbers)))


def test_narrow_operands_accumulate_wide():
    x = np.ones((1, 4096), dt.bfloat16)
    y = np.ones((4096, 1), dt.bfloat16)
    numbers = (((1,), (0,)), ((), ()))
    assert contract.dot_general(x, y, numbers).data == 4096
    out = contract.dot_general(x, y, numbers, preferred_element_type=np.float32)
    assert out.dtype == dt.float32
    halves = np.full((1, 3), 256, np.float16)
    assert contract.dot_general(halves, halves.T, numbers).data == np.float16(np.inf)
    assert contract.dot_general(halves, halves.T, numbers, None, np.float32).data == 3 * 65536
    bytes_ = np.full((1, 3), 100, np.int8)
    assert contract.dot_general(bytes_, bytes_.T, numbers).data == np.int64(30000).astype(np.int8)
    assert contract.dot_general(bytes_, bytes_.T, numbers, None, np.int32).data == 30000
    assert contract.dot_general(bytes_, bytes_.T, numbers, None, np.float32).dtype == dt.float32
    wide = np.ones((1, 2), np.float32)
    assert contract.dot_general(wide, wide.T, numbers, None, dt.bfloat16).dtype == dt.bfloat16


def test_transposes_return_the_operands_dtype():
    x = np.ones((2, 3), dt.bfloat16)
    y = np.ones((3, 2), dt.bfloat16)
    params = dot_params((((1,), (0,)), ((), ())), dt.float32)
    ct = Array(np.ones((2, 2), np.float32))
    found, _ = contract.dot_general_p.transpose((ct,), (Linear(aval_of(x)), y), **params)
    assert found.dtype == dt.bfloat16
    assert found.data.astype(float).tolist() == [[2.0] * 3] * 2


def test_bool_contractions_ask_whether_any_product_is_true():
    rng = np.random.default_rng(0)
    x, y = rng.random((3, 4)) < 0.4, rng.random((4, 2)) < 0.4
    params = dot_params((((1,), (0,)), ((), ())))
    assert isinstance(contract.dot_general_p.form(aval_of(x), aval_of(y), **params), Expand)
    want = (x.astype(int) @ y.astype(int)) > 0
    laws.close(contract.dot_general(x, y, params["dimension_numbers"]), want)
    laws.close(contract.dot_general_p.expand(x, y, **params)[0], want)


def test_mixed_dtypes_are_promoted():
    out = contract.dot(np.ones(3, dt.bfloat16), np.ones(3, np.float32))
    assert out.dtype == dt.float32
    assert contract.dot(np.ones((2, 3), np.float32), np.ones(3, np.float32)).shape == (2,)


def test_negative_axes_count_from_the_end():
    x, y = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    assert contract.dot_general(x, y, (((-1,), (-2,)), ((), ()))).shape == (2, 4)


def test_symbolic_sizes_contract():
    n = symbol("n", 1)
    x, y = ShapedArray((n, 3), dt.float32), ShapedArray((3, n), dt.float32)
    (out,) = contract.dot_general_p.aval(x, y, **dot_params((((1,), (0,)), ((), ()))))
    assert out.shape == (n, n)
    form = contract.dot_general_p.form(x, y, **dot_params((((1,), (0,)), ((), ()))))
    assert isinstance(form, Contract)
    assert form.lhs.domain == (n, n, 3)


NUMBERS = (((1,), (0,)), ((), ()))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: contract.dot_general(x, x, NUMBERS), ShapeError, "contracting axes"),
        (
            lambda x: contract.dot_general(x, x, (((1,), (1,)), ((0,), (0, 1)))),
            ArgumentValueError,
            "distinct",
        ),
        (
            lambda x: contract.dot_general(x, x, (((1,), (1,)), ((0,), ()))),
            ShapeError,
            "batch axes",
        ),
        (
            lambda x: contract.dot_general(x, x, (((2,), (0,)), ((), ()))),
            ArgumentValueError,
            r"\[0, 2\)",
        ),
        (
            lambda x: contract.dot_general(x, x.T, NUMBERS, "sloppy"),
            ArgumentValueError,
            "precision|one of",
        ),
        (lambda x: contract.dot_general(x, x.T, NUMBERS, None, np.int32), DTypeError, "preferred"),
        (
            lambda x: contract.dot(x, np.ones((3, 3, 3), np.float32)),
            ShapeError,
            "vectors or matrices",
        ),
        (lambda x: conv.conv_general_dilated(x, x.T, (), "SAME"), ShapeError, "lhs features"),
        (lambda x: conv.conv_general_dilated(x, x[0], (), "SAME"), ShapeError, "one rank"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call(np.ones((2, 3), np.float32))
    assert caught.value.source.file == __file__


# ---- convolutions


def random_conv(rng):
    rank = int(rng.integers(0, 3))
    features, batches = ((1, 1), (2, 1), (1, 2))[rng.integers(3)]
    n, inner, per_group = (int(rng.integers(1, 3)) for _ in range(3))
    lhs = (n * batches, inner * features, *(int(s) for s in rng.integers(1, 6, rank)))
    rhs = (per_group * features * batches, inner, *(int(s) for s in rng.integers(1, 4, rank)))
    specs = [tuple(int(p) for p in rng.permutation(rank + 2)) for _ in range(3)]
    numbers = conv.ConvDimensionNumbers(*specs)

    def laid_out(shape, spec):
        return tuple(shape[spec.index(k)] for k in range(len(shape)))

    params = {
        "window_strides": tuple(int(s) for s in rng.integers(1, 4, rank)),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(-1, 4, (rank, 2))),
        "lhs_dilation": tuple(int(s) for s in rng.integers(1, 3, rank)),
        "rhs_dilation": tuple(int(s) for s in rng.integers(1, 3, rank)),
        "dimension_numbers": numbers,
        "feature_group_count": features,
        "batch_group_count": batches,
        "precision": None,
        "preferred_element_type": None,
    }
    return laid_out(lhs, specs[0]), laid_out(rhs, specs[1]), params


@pytest.mark.parametrize("seed", range(40))
def test_random_convolutions(seed):
    rng = np.random.default_rng(seed)
    lhs, rhs, params = random_conv(rng)
    args = [laws.draw(f32(*lhs), rng), laws.draw(f32(*rhs), rng)]
    laws.check_aval(conv.conv_general_dilated_p, args, params)
    assert laws.check_form(conv.conv_general_dilated_p, args, params)
    laws.check_batch(conv.conv_general_dilated_p, args, params, rng, size=2)
    for k in range(2):
        laws.check_transpose(conv.conv_general_dilated_p, args, params, (k,), rng)


@pytest.mark.parametrize("seed", range(10))
def test_random_convolutions_against_jax(seed):
    lax = pytest.importorskip("jax").lax
    rng = np.random.default_rng(500 + seed)
    lhs, rhs, params = random_conv(rng)
    if params["window_strides"] == ():
        return
    params["padding"] = tuple((max(a, 0), max(b, 0)) for a, b in params["padding"])
    args = [laws.draw(f32(*lhs), rng), laws.draw(f32(*rhs), rng)]
    options = {
        **params,
        "dimension_numbers": lax.ConvDimensionNumbers(*params["dimension_numbers"]),
    }
    laws.close(
        conv.conv_general_dilated(*args, **params),
        np.asarray(lax.conv_general_dilated(*args, **options)),
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER", [(1, 2), (0, 1)]])
def test_padding_names_against_jax(padding):
    lax = pytest.importorskip("jax").lax
    rng = np.random.default_rng(0)
    x, w = laws.draw(f32(2, 7, 6, 3), rng), laws.draw(f32(3, 2, 3, 4), rng)
    options = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "rhs_dilation": (1, 2)}
    ours = conv.conv_general_dilated(x, w, (2, 1), padding, **options)
    laws.close(
        ours, np.asarray(lax.conv_general_dilated(x, w, (2, 1), padding, **options)), scale=4.0
    )


def test_large_batches_are_unfolded_in_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    x, w = laws.draw(f32(5, 2, 6), rng), laws.draw(f32(3, 2, 3), rng)
    whole = conv.conv_general_dilated(x, w, (1,), "SAME")
    monkeypatch.setattr(conv, "_CHUNK", 300)
    laws.close(conv.conv_general_dilated(x, w, (1,), "SAME"), whole)


def test_layouts():
    shape = (1, 2, 3, 4)
    numbers = conv.conv_dimension_numbers(shape, shape, ("NHWC", "HWIO", "NCHW"))
    assert numbers == ((0, 3, 1, 2), (3, 2, 0, 1), (0, 1, 2, 3))
    assert conv.conv_dimension_numbers(shape, shape, None).rhs_spec == (0, 1, 2, 3)
    assert conv.conv_dimension_numbers(shape, shape, numbers) == numbers
    for bad in [("NHWC", "HWIO", "NHCX"), ("NHHC", "HHIO", "NHHC"), ((0, 1, 2, 2),) * 3]:
        with pytest.raises(ArgumentValueError, match="each of 4 axes once"):
            conv.conv_dimension_numbers(shape, shape, bad)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"padding": "WIDE"}, ArgumentValueError, "'SAME'"),
        ({"padding": "SAME", "lhs_dilation": (2,)}, UnsupportedError, "explicit padding"),
        ({"padding": [(0, 0)] * 2}, ShapeError, "pairs"),
        ({"padding": [(0, 0, 0)]}, ArgumentValueError, "pairs"),
        ({"window_strides": (0,)}, ArgumentValueError, "positive strides"),
        ({"window_strides": (1, 1)}, ShapeError, "strides"),
        ({"feature_group_count": 3}, ShapeError, "feature_group_count"),
        ({"batch_group_count": 2, "feature_group_count": 2}, ShapeError, "one kind of group"),
    ],
)
def test_bad_convolutions(options, error, words):
    options = {"window_strides": (1,), "padding": [(0, 0)], **options}
    x, w = np.ones((2, 2, 5), np.float32), np.ones((4, 2, 3), np.float32)
    with pytest.raises(error, match=words):
        conv.conv_general_dilated(x, w, **options)
    with pytest.raises(DTypeError, match="numeric"):
        conv.conv_general_dilated(x > 0, w > 0, (1,), "SAME")


def test_empty_results_have_zero_cotangents():
    x, w = np.ones((1, 1, 2), np.float32), np.ones((1, 1, 4), np.float32)
    params = {
        **random_conv(np.random.default_rng(0))[2],
        "dimension_numbers": conv.conv_dimension_numbers(x.shape, w.shape, None),
    }
    params |= dict.fromkeys(("window_strides", "lhs_dilation", "rhs_dilation"), (1,))
    params |= {"padding": ((0, 0),), "feature_group_count": 1, "batch_group_count": 1}
    (out,) = conv.conv_general_dilated_p.eval(x, w, **params)
    assert out.shape == (1, 1, 0)
    _, found = conv.conv_general_dilated_p.transpose((out,), (x, Linear(aval_of(w))), **params)
    assert found.data.tolist() == [[[0, 0, 0, 0]]]
    (empty,), _ = conv.conv_general_dilated_p.batch(
        MappedAxis(0), (np.ones((0, *x.shape), np.float32), w), (0, None), **params
    )
    assert empty.shape == (0, 1, 1, 0)


def test_convolutions_of_doubles_stay_double():
    with config.scope(enable_x64=True):
        x = np.ones((1, 1, 3))
        assert conv.conv_general_dilated(x, x, (1,), "VALID").dtype == dt.float64
    out = conv.conv_general_dilated(
        np.ones((1, 1, 3), dt.bfloat16), np.ones((1, 1, 3), np.float32), (1,), "SAME"
    )
    assert out.dtype == dt.float32
    narrow = np.ones((1, 1, 3), dt.bfloat16)
    wide = conv.conv_general_dilated(
        narrow, narrow, (1,), "VALID", preferred_element_type=np.float32
    )
    assert wide.dtype == dt.float32
