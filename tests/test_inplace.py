"""Windows of donated arguments are changed where they lie."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.trace.array import Array


def drawn(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


def put(x, window, *starts):
    return lax.dynamic_update_slice(x, window, starts)


def address(x) -> int:
    return np.asarray(x).ctypes.data


def patches(f, *args) -> int:
    stages = f.program(*args).executable().stages
    return sum("PATCH" in k.compiled.kernel.programs for s in stages for k in s.kernels)


def donating(f, *nums: int):
    return lumjax.jit(f, donate_argnums=nums)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_windows_anywhere(data):
    rank = data.draw(st.integers(1, 3))
    shape = [data.draw(st.integers(1, 40)) for _ in range(rank)]
    small = [data.draw(st.integers(0, n)) for n in shape]
    starts = [jnp.int32(data.draw(st.integers(-3, n + 3))) for n in shape]
    dtype = data.draw(st.sampled_from([np.float32, np.int8, np.float64, np.uint16, bool]))
    with lumjax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).integers(0, 2, shape).astype(dtype))
        window = jnp.asarray(np.random.default_rng(1).integers(0, 2, small).astype(dtype))
        want = np.asarray(put(x, window, *starts))
        f = donating(put, 0)
        where = address(x)
        got = f(x, window, *starts)
    np.testing.assert_array_equal(got, want)
    assert x.is_deleted()
    assert address(got) == where


def test_a_view_of_the_argument_keeps_its_values():
    f = donating(put, 0)
    x, row = drawn(600, 8), drawn(1, 8)
    view, before = np.asarray(x)[3:], np.array(x)
    got = f(x, row, jnp.int32(5), jnp.int32(0))
    np.testing.assert_array_equal(view, before[3:])
    np.testing.assert_array_equal(got[5], row[0])


def test_another_array_of_the_same_memory_keeps_its_values():
    f = donating(put, 0)
    x = drawn(600, 8)
    other, before = Array(x.data), np.array(x)
    f(x, drawn(1, 8), jnp.int32(5), jnp.int32(0))
    np.testing.assert_array_equal(other, before)


def test_numpy_arrays_are_never_written():
    f = donating(put, 0)
    x = np.zeros((600, 8), np.float32)
    f(x, drawn(1, 8), jnp.int32(5), jnp.int32(0))
    assert not x.any()


def strict(f):
    return lumjax.jit(f, donate_argnums=0, donate="strict")


def test_strictly_a_shared_array_is_refused():
    x, row = drawn(600, 8), drawn(1, 8)
    view = np.asarray(x)
    with pytest.raises(lumjax.errors.DonationError, match="as x, which a NumPy view"):
        strict(put)(x, row, jnp.int32(5), jnp.int32(0))
    del view
    where = address(x)
    got = strict(put)(x, row, jnp.int32(5), jnp.int32(0))
    assert address(got) == where
    assert x.is_deleted()


def test_strictly_what_is_of_no_use_is_refused():
    with pytest.raises(lumjax.errors.DonationError, match="shape and dtype"):
        strict(lambda x: x.sum())(drawn(600, 8))


def test_donation_is_strict_or_not():
    with pytest.raises(lumjax.errors.ArgumentValueError, match="strict"):
        lumjax.jit(lambda x: x, donate_argnums=0, donate="always")


def test_what_is_not_donated_is_copied():
    f = lumjax.jit(put)
    x = drawn(600, 8)
    before = np.array(x)
    f(x, drawn(1, 8), jnp.int32(5), jnp.int32(0))
    np.testing.assert_array_equal(x, before)
    assert patches(f, x, drawn(1, 8), jnp.int32(5), jnp.int32(0)) == 0


def reads_before(x, window, k):
    total = x @ jnp.ones(8)
    return put(x, window + total[0], k, 0), total


def reads_after(x, window, k):
    new = put(x, window, k, 0)
    return new, jnp.sum(new * 2, 1)


def twice(x, window, k):
    first = put(x, window, k, 0)
    return put(first, window + first[0, 0], k + 1, 0)


def needs_the_old(x, window, k):
    """What was there is read by something that may run later."""
    return put(x, window, k, 0), jnp.exp(x).sum(0)


def needs_it_after(x, window, k):
    new = put(x, window, k, 0)
    return new, x[0] + new[1] @ jnp.ones((8, 8))


def returned_too(x, window, k):
    return put(x, window, k, 0), x


def behind_a_barrier(x, window, k):
    old = lax.optimization_barrier(x)
    return put(x, window, k, 0), jnp.exp(old).sum(0), old


def a_barrier_after(x, window, k):
    new = lax.optimization_barrier(put(x, window, k, 0))
    return put(new, window + new[0], k + 1, 0)


def both(x, window, k):
    return put(x, window, k, 0), put(x, window, k + 1, 0)


def in_a_loop(x, window, k):
    return lax.fori_loop(0, 3, lambda i, x: put(x, window * i, k + i, 0), put(x, window, k, 0))


PROGRAMS = {f.__name__: f for f in (reads_before, reads_after, twice, needs_the_old,
                                    needs_it_after, returned_too, both, in_a_loop,
                                    behind_a_barrier, a_barrier_after)}  # fmt: skip
IN_PLACE = {
    "reads_before": 1,
    "reads_after": 1,
    "twice": 2,
    "returned_too": 0,
    "both": 0,
    "behind_a_barrier": 0,
    "a_barrier_after": 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_reads_the_argument_sees_what_it_should(name):
    f = PROGRAMS[name]
    args = drawn(64, 8), drawn(1, 8), jnp.int32(5)
    with lumjax.disable_jit():
        want = lumjax.tree.map(np.array, f(*args))
    jitted = donating(f, 0)
    got = jitted(*args)
    for a, b in zip(lumjax.tree.leaves(got), lumjax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    if name in IN_PLACE:
        args = drawn(64, 8), drawn(1, 8), jnp.int32(5)
        assert patches(jitted, *args) == IN_PLACE[name]


def test_a_chain_of_layers_has_one_memory():
    """Each layer reads what it put in, then the next one is put in."""

    def step(cache, x, k):
        for layer in range(3):
            cache = put(cache, (x * (layer + 1))[None, None], layer, k, 0)
            x = jnp.tanh(cache[layer].sum(0))
        return cache, x

    f = donating(step, 0)
    cache, x = drawn(3, 50, 16), drawn(16)
    want = step(cache, x, jnp.int32(7))
    where = address(cache)
    got = f(cache, x, jnp.int32(7))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-5)
    assert address(got[0]) == where
    assert patches(f, drawn(3, 50, 16), x, jnp.int32(7)) == 3


def test_a_growing_cache():
    """The length is an argument's: one compilation, and the cache stays where it is."""

    @partial(lumjax.jit, donate_argnums=0, dynamic=(None, None, {0: lumjax.dim("T", max=32)}))
    def step(cache, x, seen):
        length = seen.shape[0]
        cache = cache.at[length - 1].set(x)
        return cache, cache[:length].sum(0)

    cache = jnp.zeros((32, 8))
    where, rows = address(cache), drawn(32, 8)
    for k in range(32):
        cache, total = step(cache, rows[k], jnp.zeros(k + 1, jnp.int8))
        np.testing.assert_allclose(total, rows[: k + 1].sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(cache, rows)
    assert address(cache) == where
    assert step._cache_size() == 1


def test_another_process_does_the_same(tmp_path):
    """A program from the disk knows what it may write."""
    args = drawn(64, 8), drawn(1, 8), jnp.int32(5), jnp.int32(0)
    with lumjax.config.scope(cache_dir=str(tmp_path)):
        first = donating(put, 0)(*args)
        lumjax.clear_caches()
        args = drawn(64, 8), *args[1:]
        where, before = address(args[0]), np.array(args[0])
        keep = np.asarray(args[0])
        second = donating(put, 0)(*args)
        np.testing.assert_array_equal(keep, before)
        assert address(second) != where
    np.testing.assert_array_equal(first, second)
