"""A transformer writes token by token: two compilations, whatever the length."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import lumjax
from benchmarks.peers import load
from benchmarks.transformer import build

DECODER = load(Path(__file__).parent.parent / "benchmarks" / "decoder.py", {})
LAYERS, WIDTH, HEADS, WORDS, ROOM = 2, 32, 4, 50, 48


@pytest.fixture(scope="module")
def params():
    return build(LAYERS, 1, ROOM, WIDTH, HEADS, WORDS)[1][0]


@pytest.fixture(scope="module")
def functions():
    length = lumjax.dim("T", max=ROOM)
    prefill = lumjax.jit(
        partial(DECODER.prefill, room=ROOM, heads=HEADS), dynamic=(None, {0: length})
    )
    step = lumjax.jit(
        partial(DECODER.step, heads=HEADS),
        donate_argnums=1,
        dynamic=(None, None, None, {0: length}),
    )
    return prefill, step


@pytest.mark.parametrize("count", [1, 5, 20])
def test_tokens_are_those_of_whole_texts(params, functions, count):
    prefill, step = functions
    text = list(np.random.default_rng(count).integers(0, WORDS, count))
    scores, caches = prefill(params, np.asarray(text, np.int32))
    places = [np.asarray(x).ctypes.data for x in lumjax.tree.leaves(caches)]
    while len(text) < ROOM:
        text.append(int(np.argmax(scores)))
        scores, caches = step(params, caches, np.int32(text[-1]), np.zeros(len(text), np.int8))
        whole, _ = prefill(params, np.asarray(text, np.int32))
        np.testing.assert_allclose(scores, whole, rtol=2e-4, atol=2e-5)
    assert [np.asarray(x).ctypes.data for x in lumjax.tree.leaves(caches)] == places


def test_two_compilations(params, functions):
    prefill, step = functions
    assert (len(prefill.explain()), len(step.explain())) == (1, 1)
    for f, *args in (
        (prefill, params, np.zeros(3, np.int32)),
        (
            step,
            params,
            prefill(params, np.zeros(3, np.int32))[1],
            np.int32(0),
            np.zeros(4, np.int8),
        ),
    ):
        executable = f.program(*args).executable()
        assert not list(executable.evaluated())
        assert all(k.everywhere and not k.rejected for k in executable.kernels())
