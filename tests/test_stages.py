"""Regions made ready while LLVM works: the same programs, whatever goes wrong in which thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import native, stages
from lumjax.config import config
from lumjax.cpu import objects
from lumjax.errors import CompileError

X, W = jnp.sin(jnp.arange(12.0)).reshape(4, 3), jnp.cos(jnp.arange(15.0)).reshape(3, 5)


def program(x, w):
    y = lumjax.lax.optimization_barrier(jnp.tanh(x @ w))
    z = lumjax.lax.optimization_barrier(y.sum(axis=1, keepdims=True) * y)
    return z @ w.T, z.max()


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(stages, "_found", {})
    monkeypatch.setattr(native, "_accepted", set())
    with config.scope(cache=False, compile_workers=1):
        yield


def run():
    return lumjax.jit(lambda x, w: program(x, w))(X, W)


def check(results):
    for got, want in zip(results, program(X, W), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_llvm_works_beside_the_search(monkeypatch):
    made, threads = objects._generate, []

    def generate(text, target):
        threads.append(threading.current_thread())
        return made(text, target)

    monkeypatch.setattr(objects, "_generate", generate)
    check(run())
    assert len(threads) >= 2
    assert threading.main_thread() not in threads
    assert not any(t.is_alive() for t in threads)


def test_a_failing_search_leaves_no_thread_and_nothing_half_made(monkeypatch):
    search, count = stages.search, []

    def failing(*args):
        count.append(1)
        if len(count) == 2:
            raise MemoryError("the second region")
        return search(*args)

    monkeypatch.setattr(stages, "search", failing)
    with pytest.raises(MemoryError, match="the second region"):
        run()
    assert not [t for t in threading.enumerate() if t.name.startswith("lumjax-llvm")]
    assert not stages._found
    check(run())


def test_an_error_of_llvm_reaches_the_caller(monkeypatch):
    def refuse(*_):
        raise RuntimeError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(objects, "_machine", refuse)
        with pytest.raises(CompileError, match="refused"):
            run()
    check(run())


def test_a_region_without_native_code_is_evaluated(monkeypatch):
    refused = []

    def unsupported(kernel):
        if not refused:
            refused.append(kernel.name)
        return "tanh" if kernel.name in refused else None

    monkeypatch.setattr(native, "unsupported", unsupported)
    check(run())
    assert len(refused) == 1
