"""threefry2x32 is JAX's, bit for bit; keys are their words; barriers are the identity."""

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.errors import DTypeError, ShapeError
from lumjax.ops import rng
from lumjax.ops.barrier import barrier, barrier_p
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.form import Barrier, Expand
from lumjax.trace.stage import stage
from tests.ops import laws

U32 = np.uint32


@pytest.mark.parametrize(
    ("words", "want"),
    [  # the known answers of the Random123 library
        ([0, 0, 0, 0], [0x6B200159, 0x99BA4EFE]),
        ([0xFFFFFFFF] * 4, [0x1CB996FC, 0xBB002BE7]),
        ([0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3], [0xC4923A9C, 0x483DF7A0]),
    ],
)
def test_known_answers(words, want):
    outs = rng.threefry2x32(*(np.asarray(w, U32) for w in words))
    assert [int(o.data) for o in outs] == want
    assert [o.dtype for o in outs] == [dt.uint32] * 2


def test_against_jax_and_its_expansion():
    prng = pytest.importorskip("jax.extend.random")
    g = np.random.default_rng(0)
    args = [g.integers(0, 2**32, 64, U32) for _ in range(4)]
    outs = rng.threefry2x32(*args)
    expanded = rng.threefry2x32_p.expand(*map(Array, args))
    assert isinstance(rng.threefry2x32_p.form(), Expand)
    for a, b in zip(outs, expanded, strict=True):
        laws.close(a, b)
    key = np.asarray([args[0][0], args[1][0]])
    counters = np.concatenate(args[2:])
    want = np.asarray(prng.threefry_2x32(key, counters))
    ours = rng.threefry2x32(key[0], key[1], *args[2:])
    np.testing.assert_array_equal(np.concatenate([o.data for o in ours]), want)


def test_key_words_and_keys():
    words = np.arange(12, dtype=U32).reshape(3, 2, 2)
    keys = rng.random_wrap(words)
    assert keys.dtype == dt.key
    assert keys.shape == (3, 2)
    laws.close(rng.random_unwrap(keys), words)
    turned = words.transpose(1, 0, 2)  # not contiguous
    laws.close(rng.random_unwrap(rng.random_wrap(turned)), turned)
    assert rng.random_wrap(words[0, 0]).shape == ()


def test_words_mapped_over_any_axis():
    g = np.random.default_rng(0)
    words = g.integers(0, 2**32, (3, 2), U32)
    laws.check_batch(rng.random_wrap_p, [words], {}, g)
    laws.check_batch(rng.random_unwrap_p, [rng.random_wrap(words).data], {}, g)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: rng.threefry2x32(x, x, x, x.astype(np.int32)), DTypeError, "uint32"),
        (lambda x: rng.random_wrap(x[:1]), ShapeError, "size 2"),
        (lambda x: rng.random_wrap(x.astype(np.int32)), DTypeError, "uint32"),
        (rng.random_unwrap, DTypeError, "typed keys"),
        (
            lambda x: rng.threefry2x32_p.aval(
                *(ShapedArray((n,), dt.uint32) for n in (1, 2, 2, 2))
            ),
            ShapeError,
            "one shape",
        ),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call(np.ones(2, U32))
    assert caught.value.source.file == __file__


def test_random_bits_are_inert_to_differentiation():
    x = np.ones(2, U32)
    assert rng.threefry2x32_p.jvp((x,) * 4, (None,) * 4)[1] == (None, None)
    assert rng.random_wrap_p.jvp((x,), (None,))[1] == (None,)
    keys = rng.random_wrap(x)
    assert rng.random_unwrap_p.jvp((keys,), (None,))[1] == (None,)


# ---- barriers


def test_a_barrier_keeps_its_id_in_every_direction():
    f32 = ShapedArray((2,), dt.float32)

    def derivative(x, t):
        outs, tangents = barrier_p.jvp((x, x), (t, None), id=7)
        assert tangents[1] is None
        cts = barrier_p.transpose((None, t), (x, x), id=7)
        assert cts[0] is None
        return [*outs, tangents[0], cts[1]]

    eqns = stage(derivative, [f32, f32]).jaxpr.eqns
    assert [e.prim for e in eqns] == [barrier_p] * 3
    assert {e.params["id"] for e in eqns} == {7}
    assert barrier_p.form(f32, id=7) == Barrier(7)


def test_a_barrier_of_nothing_is_nothing():
    assert barrier(id=1) == ()
    x = Array(np.ones(2, np.float32))
    (out,) = barrier(x, id=1)
    assert out.data is x.data
    weak = Array(np.float32(1), True)
    outs = barrier_p.aval(weak.aval, ShapedArray((), dt.float32), id=1)
    assert [a.weak for a in outs] == [False, False]
