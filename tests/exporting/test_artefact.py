"""Artefacts: the same results elsewhere, no search there, no damage that goes unnoticed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import files, lax, nn, stages
from lumjax.config import config
from lumjax.egraph import search
from lumjax.errors import (
    ArgumentTypeError,
    ArtefactError,
    DTypeError,
    LumjaxError,
    ShapeError,
    TreeError,
    UnsupportedError,
)

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)


@lumjax.jit
def model(params, x, *, key):
    """Closed-over weights, a loop, a choice, keys in and out, nested structures."""

    def cell(c, a):
        return jnp.tanh(c @ WEIGHTS + a), c.sum()

    c, ys = lax.scan(cell, x, params["xs"])
    y = lax.cond(c.sum() > 0, lambda c: c, lambda c: -c, c)
    one, two = lumjax.random.split(key)
    return {"y": nn.softmax(y @ WEIGHTS), "more": [ys, (two, lumjax.random.normal(one, (3,)))]}


ARGS = ({"xs": jnp.arange(5.0)}, jnp.ones(8))


@pytest.fixture(scope="module")
def artefact():
    return lumjax.export(model, *ARGS, key=lumjax.random.key(1))


def same(a, b):
    assert lumjax.tree.structure(a) == lumjax.tree.structure(b)
    for x, y in zip(lumjax.tree.leaves(a), lumjax.tree.leaves(b), strict=True):
        assert (x.dtype, x.weak_type) == (y.dtype, y.weak_type)
        assert x.data.tobytes() == y.data.tobytes()


def test_the_same_results(artefact, tmp_path):
    key = lumjax.random.key(5)
    expected = model(*ARGS, key=key)
    same(lumjax.export.load(artefact)(*ARGS, key=key), expected)
    path = tmp_path / "model.lumjax"
    assert lumjax.export(model, *ARGS, key=key, path=path) == path.read_bytes() == artefact
    for found in (lumjax.export.load(path), lumjax.export.deserialize(bytearray(artefact))):
        same(found.call(*ARGS, key=key), expected)
        assert found.serialize() == artefact
        assert found.fun_name == "model"


def test_under_transformations(artefact):
    loaded, key = lumjax.export.load(artefact), lumjax.random.key(2)

    def first(f):
        return lambda x: f(ARGS[0], x, key=key)["y"][0]

    np.testing.assert_allclose(
        lumjax.grad(first(loaded))(ARGS[1]), lumjax.grad(first(model))(ARGS[1]), rtol=1e-5
    )
    xs = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    np.testing.assert_allclose(
        lumjax.jit(lumjax.vmap(first(loaded)))(xs), lumjax.vmap(first(model))(xs), rtol=1e-5
    )


def refuses(*_, **__):
    raise AssertionError("a search")


def test_nothing_is_searched_where_it_is_loaded(artefact, monkeypatch):
    key = lumjax.random.key(5)
    expected = model(*ARGS, key=key)
    monkeypatch.setattr(search._Search, "run", refuses)
    with config.scope(cache=False):
        monkeypatch.setattr(stages, "_found", {})
        loaded = lumjax.export.load(artefact)
        lumjax.eval_shape(loaded, *ARGS, key=key)  # which compiles nothing
        same(loaded(*ARGS, key=key), expected)
        monkeypatch.setattr(stages, "_found", {})
        bare = lumjax.export.load(changed(artefact, lambda c: c.update(plans={})))
        with pytest.raises(AssertionError, match="a search"):
            bare(*ARGS, key=key)


def test_plans_of_other_code_are_left_aside(artefact):
    def other(content):
        content["plans"]["planner"] = "other"
        content["plans"]["regions"] = {k: {} for k in content["plans"]["regions"]}

    key = lumjax.random.key(5)
    same(lumjax.export.load(changed(artefact, other))(*ARGS, key=key), model(*ARGS, key=key))


ELSEWHERE = """
import sys, lumjax, lumjax.numpy as jnp
found = lumjax.export.load(sys.argv[1])
out = found({"xs": jnp.arange(5.0)}, jnp.ones(8), key=lumjax.random.key(5))
print(out["y"].data.tobytes().hex())
"""


def test_another_process_with_nothing_on_its_disk(artefact, tmp_path, monkeypatch):
    monkeypatch.setenv("LUMJAX_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "a").write_bytes(artefact)
    command = [sys.executable, "-W", "error", "-c", ELSEWHERE, str(tmp_path / "a")]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    expected = model(*ARGS, key=lumjax.random.key(5))["y"]
    assert found.strip() == expected.data.tobytes().hex()


def test_constants_of_every_kind():
    held = [jnp.asarray(np.arange(3) + 1j), lumjax.random.key(3), jnp.ones(2, jnp.bfloat16)]
    f = lumjax.jit(lambda x: [x, *held, jnp.zeros((0, 3)), 1.5])
    same(lumjax.export.load(lumjax.export(f, 1))(1), f(1))


# ---- calls that do not fit


def test_arguments_that_do_not_fit(artefact):
    loaded, key = lumjax.export.load(artefact), lumjax.random.key(0)
    with pytest.raises(ShapeError, match=r"f32\[8\] at \[0\]\[1\]; got f32\[9\]"):
        loaded(ARGS[0], jnp.ones(9), key=key)
    with pytest.raises(DTypeError, match=r"got i32\[8\]"):
        loaded(ARGS[0], jnp.ones(8, np.int32), key=key)
    with pytest.raises(TreeError, match="structure"):
        loaded({"ys": ARGS[0]["xs"]}, ARGS[1], key=key)
    with pytest.raises(TreeError):
        loaded(*ARGS)


def test_numbers_become_arrays():
    loaded = lumjax.export.load(lumjax.export(lumjax.jit(lambda x, n: x * n), jnp.float32(1), 2))
    assert float(loaded(3, 4)) == 12
    assert float(loaded(np.float32(3), jnp.int32(4))) == 12
    with pytest.raises(DTypeError):
        loaded(3.0, jnp.float32(4))


# ---- what can't be exported


def test_what_is_not_exported():
    Pair = namedtuple("Pair", "a b")
    with pytest.raises(ArgumentTypeError, match="jit made"):
        lumjax.export(jnp.sin, 1.0)
    for f in (lambda x: Pair(x, x), lambda x: {"a": Pair(x, x)}):
        with pytest.raises(UnsupportedError, match="results in dicts"):
            lumjax.export(lumjax.jit(f), 1.0)
    with pytest.raises(UnsupportedError, match="arguments in dicts"):
        lumjax.export(lumjax.jit(lambda p: p.a), Pair(1.0, 2.0))

    def says(x):
        lumjax.debug.print("{}", x)
        return x

    with pytest.raises(UnsupportedError, match="calls Python"):
        lumjax.export(lumjax.jit(says), 1.0)


# ---- damage


def changed(artefact, change):
    """The artefact with another content, and a checksum that fits."""
    tensors, texts = files.unpacked(artefact)
    content = json.loads(texts["lumjax.export"])
    change(content)
    return files.packed(tensors, {"lumjax.export": json.dumps(content)})


def mutated(random, whole):
    data, place = bytearray(whole), int(random.integers(len(whole)))
    match int(random.integers(4)):
        case 0:
            data[place] ^= 1 << int(random.integers(8))
        case 1:
            del data[place:]
        case 2:
            del data[place : place + 1 + int(random.integers(40))]
        case 3:
            data[place:place] = random.bytes(1 + int(random.integers(40)))
    return bytes(data)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.sampled(10)
def test_no_damage_goes_unnoticed(artefact, seed):
    random = np.random.default_rng(seed)
    for _ in range(500):
        data = mutated(random, artefact)
        try:
            found = lumjax.export.load(data)
        except ArtefactError:
            continue
        assert found.serialize() == artefact


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*path, key))


STRANGE = (None, -1, 0, 2, 10**6, "", "f32", "sin", [], [[]], {}, {"dtype": "f16"}, True, 0.5)


def test_contents_that_were_written_by_somebody_else(artefact):
    """Only the checksum is right: it loads, or says that it can't, and is called all the same."""
    random = np.random.default_rng(0)
    content = json.loads(files.unpacked(artefact)[1]["lumjax.export"])
    del content["plans"]
    every = list(places(content))[1:]
    refused = 0
    for number in random.permutation(len(every))[:100]:
        path, strange = every[number], STRANGE[int(random.integers(len(STRANGE)))]

        def change(content, path=path, strange=strange):
            content["plans"] = {}
            for key in path[:-1]:
                content = content[key]
            content[path[-1]] = strange

        try:
            lumjax.export.load(changed(artefact, change))
        except ArtefactError:
            refused += 1
    assert refused > 50


def test_plans_that_were_written_by_somebody_else(artefact, monkeypatch):
    """A plan that is none is searched for instead; one that is wrong is found out."""
    random, key = np.random.default_rng(0), lumjax.random.key(5)
    expected = model(*ARGS, key=key)
    plans = json.loads(files.unpacked(artefact)[1]["lumjax.export"])["plans"]["regions"]
    every = list(places(plans))[1:]
    for number in random.permutation(len(every))[:6]:
        path, strange = every[number], STRANGE[int(random.integers(len(STRANGE)))]

        def change(content, path=path, strange=strange):
            content = content["plans"]["regions"]
            for k in path[:-1]:
                content = content[k]
            content[path[-1]] = strange

        loaded = lumjax.export.load(changed(artefact, change))
        monkeypatch.setattr(stages, "_found", {})
        try:
            found = loaded(*ARGS, key=key)
        except LumjaxError:
            continue
        for x, y in zip(lumjax.tree.leaves(found), lumjax.tree.leaves(expected), strict=True):
            if x.dtype == np.float32:
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("data", [b"", b"12345678", files.packed({}, {"a": "b"})])
def test_what_is_no_artefact(data, tmp_path):
    with pytest.raises(ArtefactError, match=r"lumjax\.export"):
        lumjax.export.load(data)
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ArtefactError):
        lumjax.export.load(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        lumjax.export.load(tmp_path / "none")


def test_formats_to_come(artefact):
    with pytest.raises(ArtefactError, match="format 2, of which this version reads 1"):
        lumjax.export.load(changed(artefact, lambda c: c.update(format=2)))
