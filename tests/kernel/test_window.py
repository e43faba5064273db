"""Convolutions are contractions that copy what their windows read once, and nothing larger."""

import itertools

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.config import config
from lumjax.cpu.objects import host_target
from lumjax.kernel.ir import Let, LoadValue, Loop, LoopKind, StoreStmt, Tile
from lumjax.trace.dim import Expr, coefficient, evaluate, symbols


def convolve(stride, dilation, groups, padding):
    def f(x, w):
        return lumjax.lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            padding,
            rhs_dilation=(dilation, dilation),
            feature_group_count=groups,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )

    return f


def arrays(groups, height=20, width=27):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 8, height, width)).astype(np.float32)
    w = rng.standard_normal((12, 8 // groups, 3, 3)).astype(np.float32)
    return jnp.array(x), jnp.array(w)


def kernels(f, *args):
    compiled = lumjax.jit(f).lower(*args).compile()
    found = [k for s in compiled.executable.native() for k in s.kernels]
    assert not any(k.rejected for k in found)
    return compiled, found


def copies(kernel):
    """The elements of a kernel's workspace."""
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    return [int(evaluate(b.shape[0], sizes)) for b in kernel.workspace]


@pytest.mark.parametrize(
    ("stride", "dilation", "groups", "padding"),
    [
        (1, 1, 1, "SAME"),
        (1, 2, 2, "SAME"),
        (2, 1, 1, "SAME"),
        (2, 2, 2, ((2, 1), (0, 3))),
        (2, 1, 4, "VALID"),
    ],
)
def test_what_windows_read_is_copied_once(stride, dilation, groups, padding):
    f, (x, w) = convolve(stride, dilation, groups, padding), arrays(groups)
    compiled, (kernel,) = kernels(f, x, w)
    assert kernel.compiled.kernel.programs == ("CONTRACT",)
    assert sum(copies(kernel.compiled.kernel)) <= 1.4 * (x.size + w.size)
    with config.scope(interpret=True):
        want = lumjax.jit(f)(x, w)
    np.testing.assert_allclose(compiled(x, w), want, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("argument", [0, 1])
def test_gradients_copy_their_windows_once(argument):
    f, (x, w) = convolve(1, 1, 1, "SAME"), arrays(1)
    g = jnp.cos(f(x, w))

    def gradient(g, x, w):
        return lumjax.grad(lambda *a: jnp.sum(f(*a) * g), argument)(x, w)

    compiled, (kernel,) = kernels(gradient, g, x, w)
    assert kernel.compiled.kernel.programs == ("CONTRACT",)
    parts = 16 * w.size if argument else 0  # a long sum is split
    assert sum(copies(kernel.compiled.kernel)) <= 1.4 * (g.size + x.size + w.size) + parts
    with config.scope(interpret=True):
        want = lumjax.jit(gradient)(g, x, w)
    np.testing.assert_allclose(compiled(g, x, w), want, rtol=1e-3, atol=1e-3)


def test_padding_may_hold_any_value():
    x, w = arrays(1)

    def f(x, w):
        return convolve(1, 1, 1, "VALID")(
            jnp.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)), constant_values=3.0), w
        )

    compiled, (kernel,) = kernels(f, x, w)
    with config.scope(interpret=True):
        want = lumjax.jit(f)(x, w)
    np.testing.assert_allclose(compiled(x, w), want, rtol=2e-4, atol=2e-4)
    assert sum(copies(kernel.compiled.kernel)) <= 1.6 * (x.size + w.size)


# ---- forward and both gradients: every stride, dilation, grouping, padding and layout

MATRIX = list(
    itertools.product((1, 2, 3), (1, 2), (1, 2, 0), ("SAME", "VALID"), ("forward", "dX", "dW"))
)


def case(stride, dilation, groups, padding, part, layout="NCHW"):
    """The program, its arguments, and how many elements it reads and writes; groups 0: each feature
    by itself.
    """
    channels, features = (8, 12) if groups else (8, 8)
    groups = groups or channels
    last = layout == "NHWC"
    numbers = ("NHWC", "HWIO", "NHWC") if last else ("NCHW", "OIHW", "NCHW")

    def f(x, w):
        return lumjax.lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            padding,
            rhs_dilation=(dilation, dilation),
            feature_group_count=groups,
            dimension_numbers=numbers,
        )

    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, channels, 32, 29)).astype(np.float32)
    w = rng.standard_normal((features, channels // groups, 3, 3)).astype(np.float32)
    x, w = (x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)) if last else (x, w)
    x, w = jnp.array(x), jnp.array(w)
    y = jnp.cos(f(x, w))
    if part == "forward":
        return f, (x, w), x.size + w.size + y.size
    argument = int(part == "dW")

    def gradient(y, x, w):
        return lumjax.grad(lambda *a: jnp.sum(f(*a) * y), argument)(x, w)

    return gradient, (y, x, w), x.size + w.size + y.size


def check_case(stride, dilation, groups, padding, part, layout="NCHW"):
    f, args, size = case(stride, dilation, groups, padding, part, layout)
    compiled, found = kernels(f, *args)
    (kernel,) = (k.compiled.kernel for k in found)
    if groups:
        assert kernel.programs == ("CONTRACT",)
    else:
        assert kernel.programs[0] in ("CONTRACT", "ROW", "SPLIT", "MAP"), "no scalar code"
    splits = 16 * 12 * 8 * 9 if part == "dW" else 0  # a long sum is split
    wider = max(1, host_target().lanes(4) // 8)  # few features fill less of wider vectors
    assert sum(copies(kernel)) <= (2 * size + splits) * (wider if part == "dW" else 1)
    with config.scope(interpret=True):
        want = lumjax.jit(f)(*args)
    np.testing.assert_allclose(compiled(*args), want, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize(("stride", "dilation", "groups", "padding", "part"), MATRIX)
@pytest.mark.sampled(9)
def test_every_convolution_is_one_kernel_that_copies_little(
    stride, dilation, groups, padding, part
):
    check_case(stride, dilation, groups, padding, part)


@pytest.mark.parametrize(
    ("stride", "dilation", "groups", "padding", "part"), [m for m in MATRIX if m[0] > 1]
)
@pytest.mark.sampled(4)
def test_layouts_with_features_last(stride, dilation, groups, padding, part):
    check_case(stride, dilation, groups, padding, part, "NHWC")


@pytest.mark.parametrize("part", ["forward", "dX", "dW"])
@pytest.mark.parametrize("groups", [1, 2])
def test_padding_is_written_once_where_features_are_last_too(groups, part):
    """The left side is read through windows there: no job lays it out anew."""
    f, args, size = case(1, 1, groups, "SAME", part, "NHWC")
    _, (kernel,) = kernels(f, *args)
    assert not kernel.compiled.kernel.scratch
    parts = 16 * 12 * 8 * 9 if part == "dW" else 0
    assert 0 < sum(copies(kernel.compiled.kernel)) <= size + parts


@pytest.mark.parametrize("part", ["forward", "dX", "dW"])
@pytest.mark.parametrize("stride", [1, 2])
def test_what_windows_read_is_copied_along_memory(part, stride):
    """Features that are last stay so: nothing is turned."""
    f, args, _ = case(stride, 1, 1, "SAME", part, "NHWC")
    _, (kernel,) = kernels(f, *args)
    (row,) = kernel.compiled.kernel.phases[0].body
    (columns,) = (s for s in row.body if isinstance(s, Loop))
    assert columns.kind is LoopKind.VECTOR
    lets = [s.value for s in columns.body if isinstance(s, Let)]
    (load,) = (v for v in lets if isinstance(v, LoadValue))
    (store,) = (s for s in columns.body if isinstance(s, StoreStmt))
    assert [coefficient(v.offset, columns.var) for v in (load, store)] == [1, 1]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_windows_of_places_that_are_pooled_are_copied_once_too(layout, stride, dilation):
    """Places are two axes there, of squares and within one."""
    last = layout == "NHWC"
    rng = np.random.default_rng(5)
    x = jnp.array(rng.standard_normal((2, 24, 24, 8) if last else (2, 8, 24, 24), np.float32))
    w = jnp.array(rng.standard_normal((3, 3, 8, 16) if last else (16, 8, 3, 3), np.float32))
    numbers = (layout, "HWIO" if last else "OIHW", layout)

    def f(x, w):
        y = lumjax.lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", rhs_dilation=(dilation,) * 2, dimension_numbers=numbers
        )
        half = 12 // stride
        places = (half, 2, half, 2)
        y = y.reshape((2, *places, 16) if last else (2, 16, *places))
        return y.max((2, 4) if last else (3, 5)), jnp.tanh(y)

    compiled, found = kernels(f, x, w)
    (conv,) = (k.compiled.kernel for k in found if "CONTRACT" in k.compiled.kernel.programs)
    assert sum(copies(conv)) <= 1.6 * (x.size + w.size)
    with config.scope(interpret=True):
        want = lumjax.jit(f)(x, w)
    for got, wanted in zip(compiled(x, w), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)


def test_a_transposed_convolution_multiplies_no_holes():
    """Of nine taps a stride of two meets a quarter; at each place their number is its own."""
    f, args, _ = case(2, 1, 1, "SAME", "dX")
    _, (kernel,) = kernels(f, *args)
    ends = [t.k for p in kernel.compiled.kernel.phases for t in tiles(p.body)]
    assert ends
    for k in ends:
        varying = [e for _, e in k if isinstance(e, Expr) and any(s[0] == "t" for s in symbols(e))]
        assert len(varying) == 2, "the taps along each axis depend on the remainder"


def tiles(stmts):
    for s in stmts:
        if isinstance(s, Tile):
            yield s
        else:
            yield from tiles(getattr(s, "body", ()))


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("operand", [0, 2])
def test_holes_take_no_part(special, operand):
    """An infinite weight meets no hole: what it does not reach is finite, as in JAX."""
    f, args, _ = case(2, 1, 1, "VALID", "dX")
    arrays = [np.array(a) for a in args]
    place = (0, 0, 1, 1)
    arrays[operand][place] = special
    args = tuple(map(jnp.array, arrays))
    compiled, _ = kernels(f, *args)
    got = np.asarray(compiled(*args))
    with config.scope(interpret=True):
        want = np.asarray(lumjax.jit(f)(*args))
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    assert 0 < np.sum(~np.isfinite(want)) < want.size / 2


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("second", [0, 1, 2])
def test_axes_that_are_spread_out_again(first, second, twice):
    """An axis is cut by a remainder, and what is left of it by another."""

    def f(x, y):
        x = lumjax.lax.pad(x, jnp.float32(0.5), ((0, 1, first), (0, 0, 0)))
        x = jnp.concatenate([x, x], 0) if twice else x
        x = lumjax.lax.pad(x, jnp.float32(0.25), ((1, 0, second), (0, 0, 0)))
        return jnp.flip(x @ y, 0)

    x, y = (jnp.array(np.random.default_rng(k).random((7, 7), np.float32)) for k in range(2))
    compiled = lumjax.jit(f).lower(x, y).compile()
    np.testing.assert_allclose(compiled(x, y), f(x, y), rtol=1e-5)
    assert not list(compiled.executable.evaluated())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("batch", [1, 32])
def test_the_weights_of_a_first_layer(layout, batch):
    """One channel, and a sum over the batch that is cut in shares, the last one shorter."""
    rng = np.random.default_rng(0)
    x, y = (
        rng.standard_normal(s).astype(np.float32) for s in ((batch, 28, 28), (batch, 28, 28, 32))
    )
    x = x[:, None] if layout == "NCHW" else x[..., None]
    y = y.transpose(0, 3, 1, 2) if layout == "NCHW" else y
    spec = ("NCHW", "OIHW", "NCHW") if layout == "NCHW" else ("NHWC", "HWIO", "NHWC")
    w = jnp.zeros((32, 1, 3, 3) if layout == "NCHW" else (3, 3, 1, 32))

    def gradient(x, y):
        def f(w):
            return lumjax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=spec)

        return lumjax.vjp(f, w)[1](y)[0]

    compiled, (kernel,) = kernels(gradient, jnp.array(x), jnp.array(y))
    assert kernel.compiled.kernel.programs == ("CONTRACT",)
    with config.scope(interpret=True):
        want = lumjax.jit(gradient)(x, y)
    np.testing.assert_allclose(compiled(x, y), want, rtol=1e-3, atol=2e-3)
