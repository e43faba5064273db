"""Views vanish into coordinates: what programs that move values are written as."""

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn
from lumjax.egraph.axes import AxisNames
from lumjax.egraph.encode import encode
from lumjax.egraph.indices import index_of
from lumjax.egraph.scalar import literal
from lumjax.kernel.region import volume
from lumjax.kernel.term import Apply, Index, Load, Reduction, free_names, loads, subterms
from lumjax.trace.dim import bounds, same, symbol
from lumjax.trace.form import ScalarOp
from tests.egraph import programs as pr
from tests.kernel import models as md
from tests.kernel.models import aval, i32

X = aval(12, 16)

MOVEMENTS = {
    "slice": lambda x, y: jnp.exp(x)[2:9:2, 3:] * 2,
    "flip": lambda x, y: jnp.exp(x)[::-1] * y,
    "roll": lambda x, y: jnp.roll(jnp.exp(x), 3, 1) * y,
    "pad": lambda x, y: jnp.pad(jnp.exp(x), ((1, 2), (0, 3))) * 2,
    "concatenate": lambda x, y: jnp.concatenate([jnp.exp(x), jnp.sin(y)], 1) * 2,
    "stack": lambda x, y: jnp.stack([jnp.exp(x), jnp.sin(y)], 1) * 2,
    "tile": lambda x, y: jnp.tile(x * y, (2, 3)) + 1,
    "repeat": lambda x, y: jnp.repeat(x * y, 3, 0) + 1,
    "transpose": lambda x, y: jnp.exp(x).T * y.T,
    "split an axis": lambda x, y: jnp.exp(x).reshape(2, 6, 16).transpose(1, 0, 2) * 2,
    "upsample": lambda x, y: x[jnp.arange(24) // 2] + 1,
    "windows": lambda x, y: x[:, jnp.arange(10)[:, None] + jnp.arange(5)[None]].max(-1),
    "wrap around": lambda x, y: jnp.exp(x)[(jnp.arange(12) + 3) % 12],
    "rotate halves": lambda x, y: x * y + jnp.concatenate([-x[:, 8:], x[:, :8]], -1) * y,
    "interleave": lambda x, y: jnp.stack([x, y], -1).reshape(12, 32) * 2,
    "blocks": lambda x, y: x.reshape(3, 4, 4, 4).transpose(0, 2, 1, 3).reshape(12, 16) + y,
    "pool": lambda x, y: jnp.exp(x).reshape(6, 2, 8, 2).max((1, 3)),
    "triangle": lambda x, y: jnp.tril(x * y),
    "one hot": lambda x, y: nn.one_hot(jnp.argmax(x, -1), 16) * y,
    "rows of an input": lambda x, y: x[jnp.argmax(y, 0) % 12] * 2,
    "pieces of rows": lambda x, y: jnp.concatenate([nn.softmax(x, -1), nn.softmax(y, -1)], 1),
    "pad, transposed": lumjax.grad(lambda x, y: (jnp.pad(x * y, ((1, 2), (0, 3))) ** 2).sum()),
    "slice, transposed": lumjax.grad(lambda x, y: (x[2:9:2, 3:] ** 2).sum()),
    "concatenate, transposed": lumjax.grad(
        lambda x, y: (jnp.concatenate([x * y, y], 1) ** 3).sum(), argnums=(0, 1)
    ),
}


def check(f, *avals):
    """The regions of a program, whose terms must mean what eval says."""
    jaxpr = md.jaxpr_of(f, *avals)
    rng = np.random.default_rng(0)
    args = [
        rng.integers(-3, 20, v.aval.shape).astype(v.aval.dtype)
        if v.aval.dtype.kind == "i"
        else rng.standard_normal(v.aval.shape).astype(v.aval.dtype)
        for v in jaxpr.inputs
    ]
    seen = []

    def run(region, values):
        seen.append(region)
        return pr.evaluate_encoded(encode(region), values)

    pr.assert_close(pr.run_steps(jaxpr, args, run), pr.answer(jaxpr, args))
    return seen


@pytest.mark.parametrize("name", MOVEMENTS)
def test_nothing_is_stored_to_be_moved(name):
    for region in check(MOVEMENTS[name], X, X):
        assert not [r for r in encode(region).stored if volume(r.buffer.shape) > 16]


SUMMARIES = {  # programs that move what a few numbers were subtracted from or divided by
    "pad": lambda x: jnp.pad(x - jnp.min(x), 3),
    "reflect": lambda x: jnp.pad(x / jnp.sum(x), 3, mode="reflect"),
    "slice": lambda x: (x - jnp.min(x))[1:-1, 2:],
    "concatenate": lambda x: jnp.concatenate([x, x / jnp.sum(x), x - jnp.max(x)]),
    "concatenate the number": lambda x: jnp.concatenate([jnp.min(x)[None], x[0]]),
    "pad the number": lambda x: jnp.pad(jnp.sqrt(jnp.sum(x * x))[None], (2, 9)),
    "roll": lambda x: jnp.roll(jnp.exp(x - jnp.max(x)), 1, 0),
    "write": lambda x: x.at[3:10].set(jnp.sum(x)),
    "write at a place": lambda x: lax.dynamic_update_slice(x, x[:2] - jnp.min(x), (x.size, 0)),
    "pad rows": lambda x: jnp.pad(x - jnp.min(x, 1, keepdims=True), ((0, 0), (2, 3))),
    "pad columns": lambda x: jnp.pad(x / jnp.max(x, 0), ((2, 3), (0, 0))),
    "derivatives": lumjax.grad(lambda x: jnp.sum(jnp.pad(x / jnp.sqrt(jnp.sum(x * x)), 3) ** 3)),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_what_is_moved_computes_its_summaries_once(name):
    size = volume(X.shape)
    for region in check(SUMMARIES[name], X):
        for root in encode(region).roots:
            for t in subterms(root.term):
                names = free_names(t) if isinstance(t, Reduction) else ()
                rows = [a.extent for a in root.axes if a.name in names]
                own = [a.extent for a in t.axes] if names else []
                assert volume(rows) * volume(own) <= 2 * size, t


@pytest.mark.parametrize("name", ["upsample", "windows", "wrap around"])
def test_indices_of_axes_are_coordinates(name):
    (region,) = check(MOVEMENTS[name], X, X)
    assert all(not t.indices for r in encode(region).roots for t in loads(r.term))


def test_a_product_is_split_after_it_is_stored():
    (region,) = check(
        lambda x, w: tuple(jnp.exp(p) for p in jnp.split(x @ w, 3, 1)), X, aval(16, 24)
    )
    encoded = encode(region)
    assert [r.buffer.shape for r in encoded.stored] == [(12, 24)]


# ---- axes


def heads(x):
    return x.reshape(2, 8, 4, 6).transpose(0, 2, 1, 3)


def test_heads_are_axes():
    def f(x, y):
        s = jnp.einsum("bhqd,bhkd->bhqk", heads(x), heads(y))
        return jnp.einsum("bhqk,bhkd->bqhd", s, heads(y)).reshape(2, 8, 24)

    for region in check(f, aval(2, 8, 24), aval(2, 8, 24)):
        for root in encode(region).roots:
            for load in loads(root.term):
                assert not any("//" in str(c) or "%" in str(c) for c in load.coords)


def test_merged_heads_are_written_in_place():
    def f(q, v):
        return (q @ v).transpose(0, 2, 1, 3).reshape(2, 8, 24)

    (region,) = check(f, aval(2, 4, 8, 8), aval(2, 4, 8, 6))
    encoded = encode(region)
    assert not encoded.stored
    assert [r.buffer.shape for r in encoded.outputs] == [(2, 8, 4, 6)]


@pytest.mark.parametrize("repeat", [True, False])
def test_shared_heads_are_not_copied(repeat):
    def f(q, k):
        if repeat:
            k = jnp.repeat(k, 3, axis=1)
        else:
            k = jnp.broadcast_to(k[:, :, None], (2, 2, 3, 8, 4)).reshape(2, 6, 8, 4)
        return jnp.einsum("bhqd,bhkd->bhqk", q, k)

    (region,) = check(f, aval(2, 6, 8, 4), aval(2, 2, 8, 4))
    (root,) = encode(region).roots
    (body,) = [t.body for t in subterms(root.term) if isinstance(t, Reduction)]
    assert sorted(t.buffer.shape for t in loads(body)) == [(2, 2, 8, 4), (2, 6, 8, 4)]
    assert all("//" not in str(c) for t in loads(body) for c in t.coords)


def test_factors_of_no_common_refinement_stay_divided():
    check(lambda x: (x.reshape(6, 4) * 2).reshape(4, 6).sum(0), aval(24))
    check(lambda x: jnp.exp(x.reshape(6, 4).sum(0)), aval(24))
    check(lambda x: x.reshape(3, 8).T.reshape(6, 4).sum(1) * 2, aval(24))
    check(lambda x: (x.reshape(2, 3, 4).sum(1), x.reshape(4, 6).sum(1)), aval(24))


def test_cuts_spread_through_slices():
    """A third of an axis is cut where its heads are, so the whole axis is."""

    def f(x):
        parts = jnp.split(x * 2, 3, axis=1)
        return [heads(p.reshape(2, 8, 24)) for p in parts]

    (region,) = check(f, aval(16, 72))
    names = AxisNames(region)
    assert {len(names.axes(v, 1)) for v in region.outputs} == {1}
    assert not encode(region).stored


# ---- one element of each row


def logits_of(f):
    def g(h, w, labels):
        return f(h @ w, labels)

    return g


def picked(logits, labels):
    z = logits - logits.max(-1, keepdims=True)
    return jnp.log(jnp.exp(z).sum(-1)) - jnp.take_along_axis(z, labels[:, None], -1)[:, 0]


def advanced(logits, labels):
    z = nn.log_softmax(logits)
    return z[jnp.arange(logits.shape[0]), labels]


@pytest.mark.parametrize("f", [picked, advanced])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_label_is_a_mask_of_its_row(f, transposed):
    f = logits_of(f)
    if transposed:
        f = lumjax.grad(lambda h, w, labels, g=f: g(h, w, labels).sum(), argnums=(0, 1))
    n, k, v = 10, 4, 64
    for region in check(f, aval(n, k), aval(k, v), aval(n, dtype=i32)):
        encoded = encode(region)
        assert region.inside
        assert all(volume(r.buffer.shape) < n * v for r in encoded.roots if r in encoded.stored)
        for root in encoded.roots:
            for t in subterms(root.term):  # nothing is gathered from what is computed
                assert not isinstance(t, Load) or not t.indices or t.buffer.shape != (k, v)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_labels_out_of_range(mode):
    def f(h, w, labels):
        z = jnp.exp(h @ w)
        z = z / z.sum(-1, keepdims=True)
        return jnp.take_along_axis(z, labels[:, None], -1, mode=mode)

    check(f, aval(40, 2), aval(2, 16), aval(40, dtype=i32))
    check(lumjax.grad(lambda *a: (f(*a) ** 2).sum()), aval(40, 2), aval(2, 16), aval(40, dtype=i32))


# ---- index algebra

I32, U8, B1 = (np.dtype(t) for t in (np.int32, np.uint8, np.bool_))
A = Index(symbol("a", 0, 9), I32)


def apply(name, *args, dtype=I32):
    return Apply(ScalarOp(name, len(args), np.add), tuple(args), dtype)


def lit(value, dtype=I32):
    return literal(value, dtype)


def test_index_algebra():
    three = lit(3)
    shifted = index_of(apply("sub", apply("add", A, three), apply("mul", A, lit(2))))
    assert bounds(shifted) == (-6, 3)
    never = apply("lt", A, lit(0), dtype=B1)
    assert same(index_of(apply("select", never, three, A)), A.expr)
    both = apply("and", apply("ge", A, three, dtype=B1), apply("not", never, dtype=B1), dtype=B1)
    assert str(index_of(both)) == "((a - 3) >= 0)"
    assert index_of(apply("eq", A, lit(20), dtype=B1)) == 0


def test_what_may_wrap_is_no_index():
    large = Index(symbol("a", 0, 200), U8)
    assert index_of(apply("add", large, large, dtype=U8)) is None
    assert index_of(apply("cast", apply("add", A, lit(300)), dtype=U8)) is None
    assert index_of(apply("exp", Index(symbol("a", 0, 9), pr.f32), dtype=pr.f32)) is None
    unknown = Index(symbol("g", None, None), I32, (("g", A),))
    assert index_of(apply("add", unknown, lit(1))) is None
