"""Machine code in artefacts: run where it is trusted, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import config, lax, nn, stages
from lumjax.cpu import objects
from tests.exporting.test_artefact import same


@lumjax.jit
def model(x):
    return nn.softmax(jnp.tanh(x) @ x.T), lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) * 2, x)


X = jnp.asarray(np.random.default_rng(0).standard_normal((6, 8)), jnp.float32)


@pytest.fixture(scope="module")
def artefact():
    return lumjax.export(model, X, native=("host",))


def refuses(*_):
    raise AssertionError("machine code is made")


@pytest.fixture
def nothing_is_compiled(monkeypatch):
    """As in a process with an empty cache that can't generate code for what it has not run."""
    monkeypatch.setattr(stages, "_found", {})
    monkeypatch.setattr(objects, "_trusted", {})
    monkeypatch.setattr(objects, "_generate", refuses)
    with config.scope(cache=False):
        yield


@pytest.mark.usefixtures("nothing_is_compiled")
def test_trusted_code_is_run(artefact):
    loaded = lumjax.export.load(artefact, trust_native=True)
    assert loaded.serialize() == artefact
    with config.scope(cache=True):
        expected = model(X)
    same(loaded(X), expected)


@pytest.mark.usefixtures("nothing_is_compiled")
def test_other_code_is_not(artefact):
    loaded = lumjax.export.load(artefact)
    assert not objects._trusted
    with pytest.raises(AssertionError, match="machine code is made"):
        loaded(X)


def test_without_a_name_there_is_none():
    plain = lumjax.export(model, X)
    assert lumjax.export.load(plain).native == {}
    same(lumjax.export.load(plain, trust_native=True)(X), model(X))


@pytest.mark.skipif(objects.host_target().arch in ("arm64", "aarch64"), reason="of x86-64")
def test_code_for_another_processor(tmp_path):
    path = tmp_path / "model.lumjax"
    lumjax.export(model, X, path=path, native=("host", "x86-64"))
    loaded = lumjax.export.load(path)
    assert set(loaded.native) == {"host", "x86-64"}
    assert not set(loaded.native["host"]) & set(loaded.native["x86-64"])
    np.save(tmp_path / "x.npy", np.asarray(X))
    program = (
        "import sys, numpy as np, lumjax\n"
        "from lumjax.cpu import objects\n"
        "f = lumjax.export.load(sys.argv[1], trust_native=True)\n"
        "made = objects._generate\n"
        "texts = []\n"
        "objects._generate = lambda text, target: texts.append(text) or made(text, target)\n"
        "out = f(np.load(sys.argv[2]))\n"
        "assert not any('_phase' in t for t in texts), 'a kernel was compiled'\n"
        "np.save(sys.argv[3], np.asarray(out[0]))\n"
    )
    out = tmp_path / "out.npy"
    subprocess.run(
        [sys.executable, "-c", program, str(path), str(tmp_path / "x.npy"), str(out)],
        check=True,
        env={"PATH": "", "LUMJAX_CPU": "x86-64", "LUMJAX_CACHE_DIR": str(tmp_path / "cache")},
    )
    np.testing.assert_allclose(np.load(out), model(X)[0], rtol=1e-5, atol=1e-6)
