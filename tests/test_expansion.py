"""Typed keys in compiled programs: no operation on them waits for Python."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, random

KEY = random.key(3)
KEYS = random.split(KEY, 6)


def step(key, _):
    return random.split(key)[0], random.normal(key, (3,))


CASES = {
    "split": (lambda k: random.split(k, 3), KEY),
    "normal": (lambda k: random.normal(k, (3,)), KEY),
    "index": (lambda k: k[2], KEYS),
    "reshape, reverse, slice, and the operand": (lambda k: (k.reshape(2, 3)[::-1, 1:], k), KEYS),
    "gather": (lambda k, i: k[i], KEYS, jnp.asarray([3, 1])),
    "dynamic index": (lambda k, i: k[i], KEYS, jnp.int32(4)),
    "where": (lambda k, p: jnp.where(p, k[0], k[1]), KEYS, jnp.asarray(True)),
    "stack": (lambda k: jnp.stack([k[0], k[3]]), KEYS),
    "update": (lambda k, j: lax.dynamic_update_slice(k, j[None], (2,)), KEYS, KEY),
    "words": (lambda k: (random.key_data(k), k), KEYS),
    "words and back": (lambda w: random.wrap_key_data(w), random.key_data(KEYS)),
    "a scan's carry": (lambda k: lax.scan(step, k, None, length=40), KEY),
    "a scan's rows": (
        lambda k: lax.scan(lambda c, k: (c + random.uniform(k), k), 0.0, k),
        random.split(KEY, 50),
    ),
    "a while's carry": (
        lambda k: lax.while_loop(
            lambda c: c[1] < 20, lambda c: (random.split(c[0])[1], c[1] + 1), (k, 0)
        ),
        KEY,
    ),
    "branches": (
        lambda k: lax.cond(random.uniform(k) > 0.5, lambda k: random.split(k)[0], lambda k: k, k),
        KEY,
    ),
    "lanes": (lumjax.vmap(lambda k: random.normal(k, (3,))), KEYS),
    "closed over": (lambda x: random.normal(KEY, (3,)) + x, jnp.ones(3)),
}


def plain(x):
    return np.asarray(random.key_data(x) if jnp.issubdtype(x.dtype, lumjax.dtypes.prng_key) else x)


@pytest.mark.parametrize("name", CASES)
def test_keys_are_words_to_kernels(name):
    f, *args = CASES[name]
    jitted = lumjax.jit(f)
    assert [(s.eqn.prim.name, s.why) for s in jitted.program(*args).executable().evaluated()] == []
    with lumjax.disable_jit():
        want = lumjax.tree.leaves(f(*args))
    got = lumjax.tree.leaves(jitted(*args))
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(plain(a), plain(b), rtol=1e-5)


def test_what_needs_real_keys_gets_them():
    seen = []

    def look(k):
        seen.append(k.dtype)
        return np.float32(len(k.shape))

    shape = lumjax.ShapeDtypeStruct((), jnp.float32)
    assert lumjax.jit(lambda k: lumjax.pure_callback(look, shape, k[1:]) + 1)(KEYS) == 2
    assert all(jnp.issubdtype(d, lumjax.dtypes.prng_key) for d in seen)
    assert seen
