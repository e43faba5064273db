"""Artefacts whose sizes come with each call."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lumjax
import lumjax.numpy as jnp
from lumjax import config, files, lax, nn, stages
from lumjax.egraph import search
from lumjax.errors import ArtefactError, DTypeError, LumjaxError, ShapeError
from lumjax.exporting.program import dim_from, dim_text
from lumjax.trace import dim as dims
from tests.exporting.test_artefact import changed, places, refuses, same

WEIGHTS = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
BATCH = lumjax.dim("batch", max=64)
SIZES = (1, 2, 5, 33, 64)


@lumjax.jit(dynamic={0: BATCH})
def model(x):
    """A product, a mean, a size as a value, a loop over the open axis, a shape computed from it."""
    last, sums = lax.scan(lambda c, row: (c + row, c.sum()), jnp.zeros(8), x)
    return {
        "p": nn.softmax(x @ WEIGHTS), "mean": x.mean(), "count": x.shape[0] * 2,
        "loop": (last, sums), "pairs": (x[:, None] * x[None]).reshape(x.shape[0] ** 2, 8)[1:],
    }  # fmt: skip


@pytest.fixture(scope="module")
def artefact():
    return lumjax.export(model, rows(5))


def rows(n):
    return jnp.asarray(np.random.default_rng(n).standard_normal((n, 8)), jnp.float32)


def test_one_artefact_for_every_size(artefact):
    loaded = lumjax.export.load(artefact)
    assert loaded.serialize() == artefact
    assert "f32[batch,8] -> " in repr(loaded)
    for n in SIZES:
        same(loaded(rows(n)), model(rows(n)))
        inside = lumjax.jit(loaded)(rows(n))  # at sizes that are known there
        for got, want in zip(*map(lumjax.tree.leaves, (inside, model(rows(n)))), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    loaded.warm()


def test_nothing_is_searched_where_it_is_loaded(artefact, monkeypatch):
    expected = [model(rows(n)) for n in SIZES]
    monkeypatch.setattr(search._Search, "run", refuses)
    with config.scope(cache=False):
        monkeypatch.setattr(stages, "_found", {})
        loaded = lumjax.export.load(artefact)
        for n, want in zip(SIZES, expected, strict=True):
            same(loaded(rows(n)), want)


def test_gradients_of_what_is_loaded(artefact):
    loaded = lumjax.export.load(artefact)
    for n in (2, 7):
        slope = lumjax.grad(lambda x: jnp.sum(loaded(x)["p"] ** 2))(rows(n))
        want = lumjax.grad(lambda x: jnp.sum(model(x)["p"] ** 2))(rows(n))
        np.testing.assert_allclose(slope, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "kind", "text"),
    [
        (rows(65), ShapeError, "batch in 1..64; got 65"),
        (jnp.ones((0, 8)), ShapeError, "batch in 1..64; got 0"),
        (jnp.ones((5, 7)), ShapeError, r"f32\[batch,8\]"),
        (jnp.ones(5), ShapeError, r"f32\[batch,8\]"),
        (jnp.ones((5, 8), jnp.int32), DTypeError, r"f32\[batch,8\]"),
    ],
)
def test_arguments_that_do_not_fit(artefact, x, kind, text):
    with pytest.raises(kind, match=text):
        lumjax.export.load(artefact)(x)


def sizes():
    """Sizes as programs compute them."""
    symbol = st.builds(
        lambda n, low, more: dims.symbol(n, low, None if more is None else low + more),
        st.sampled_from("ab"), st.integers(0, 2), st.none() | st.integers(1, 60),
    )  # fmt: skip
    return st.recursive(
        symbol | st.integers(0, 9),
        lambda d: (
            st.builds(lambda a, b: a + b, d, d)
            | st.builds(lambda a, b: a * b, d, d)
            | st.builds(lambda a, c: a // c, d, st.integers(1, 5))
            | st.builds(lambda a, c: a % c, d, st.integers(1, 5))
            | st.builds(dims.minimum, d, d)
            | st.builds(dims.maximum, d, d)
        ),
        max_leaves=6,
    )


@settings(max_examples=300, deadline=None)
@given(sizes())
def test_sizes_come_back(size):
    entry = json.loads(json.dumps(dim_text(size)))
    assert dims.same(dim_from(entry), size)


@pytest.mark.parametrize(
    "entry",
    [["symbol", "a"], ["symbol", 3, 0, 1], ["symbol", "a", None, 1], ["no", 1, 2], [], "a", 1.5,
     ["floordiv", 1], ["floordiv", 1, 0], ["symbol", "a", 0, "b"], None, True],
)  # fmt: skip
def test_what_is_no_size(entry):
    with pytest.raises((ValueError, TypeError, ArithmeticError, IndexError, AssertionError)):
        dim_from(entry)


STRANGE = (None, -1, 0, 3, 4097, "x", [], ["symbol", "x", 0, 9], ["add", 1, 2], 0.5, True)


@pytest.mark.parametrize("seed", range(4))
def test_contents_that_were_written_by_somebody_else(artefact, seed):
    """An error or a function, and neither a crash nor sizes that mean something else elsewhere."""
    rng = np.random.default_rng(seed)
    content = json.loads(files.unpacked(artefact)[1][f"{files.OWN}export"])
    del content["plans"]
    every = list(places({k: content[k] for k in ("program", "in_avals", "out_avals")}))
    for _ in range(40):
        path = every[int(rng.integers(1, len(every)))]
        value = STRANGE[int(rng.integers(len(STRANGE)))]

        def change(c, path=path, value=value):
            c["plans"] = {}
            at = c
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value

        try:
            found = lumjax.export.load(changed(artefact, change))
        except ArtefactError:
            continue
        try:
            with config.scope(search_evaluations=0):
                found(rows(3))
        except (LumjaxError, ValueError, TypeError, MemoryError, OverflowError):
            continue
    same(lumjax.export.load(artefact)(rows(5)), model(rows(5)))
