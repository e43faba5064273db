"""Kernels that another process left on disk: no search, no lowering, no LLVM."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import native, ready, recall, stages
from lumjax.config import config
from lumjax.cpu import objects
from lumjax.errors import CacheWarning
from lumjax.kernel.verify import Verdict


def program(x, y):
    scores = jnp.tanh(x @ y)
    return scores - jnp.max(scores, axis=1, keepdims=True), jnp.sum(x * 2.5)


X, Y = jnp.arange(35.0).reshape(5, 7) / 35, jnp.arange(28.0).reshape(7, 4) / 28


@pytest.fixture
def cache(tmp_path):
    with config.scope(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path


def compiled(monkeypatch, f=program, *args):
    """The program compiled as by a process that has compiled nothing yet, region by region."""
    shutil.rmtree(f"{config.cache_dir}/{recall.PROGRAMS.folder}", ignore_errors=True)
    monkeypatch.setattr(stages, "_found", {})
    monkeypatch.setattr(native, "_accepted", set())
    return lumjax.jit(lambda *a: f(*a)).lower(*(args or (X, Y))).compile()


def check(made, f=program, *args):
    args = args or (X, Y)
    want = lumjax.tree.leaves(f(*args))
    for a, b in zip(lumjax.tree.leaves(made(*args)), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def entries(cache):
    return sorted((cache / "ready").rglob("*.json"))


def forbid(monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("this was to come from the disk")

    monkeypatch.setattr(stages, "search", never)
    monkeypatch.setattr(native, "compile_kernels", never)
    monkeypatch.setattr(native, "check_kernel", never)
    monkeypatch.setattr(objects, "_generate", never)


def test_another_process_only_loads(cache, monkeypatch):
    first = compiled(monkeypatch)
    text = first.as_text()
    with monkeypatch.context() as patch:
        forbid(patch)
        second = compiled(patch)
        check(second)
    assert second.as_text() == text
    assert second.cost_analysis()["kernels"] == first.cost_analysis()["kernels"]
    reports = [s.found.report for s in second.executable.native()]
    assert reports
    assert all(r.cached for r in reports)


def test_a_rejected_kernel_stays_rejected(cache, monkeypatch):
    real = native.check_kernel
    answers = [Verdict(False, "invented")]

    def once(*args, **kwargs):
        return answers.pop() if answers else real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(native, "check_kernel", once)
        compiled(patch)
    with monkeypatch.context() as patch:
        forbid(patch)
        again = compiled(patch)
    kernels = [k for s in again.executable.native() for k in s.kernels]
    assert any("invented" in k.rejected for k in kernels)
    check(again)
    assert "define" in again.as_text()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        lambda data: b"lumjax-ready 0\n[]",
        lambda data: data.split(b"\n")[0] + b"\n[{}]",
    ],
)
def test_a_damaged_entry_is_replaced(cache, monkeypatch, damage):
    compiled(monkeypatch)
    before = {path: path.read_bytes() for path in entries(cache)}
    for path, data in before.items():
        path.write_bytes(damage(data))
    with pytest.warns(CacheWarning, match="unusable"):
        check(compiled(monkeypatch))
    assert {path: path.read_bytes() for path in entries(cache)} == before


def test_an_entry_of_another_plan_is_not_taken(cache, monkeypatch):
    compiled(monkeypatch)
    for path in entries(cache):
        value = json.loads(path.read_bytes().partition(b"\n")[2])
        value["plan"][0] = (1.5).hex()
        ready.READY.write(path.stem, json.dumps(value).encode())
    with monkeypatch.context() as patch:
        forbid(patch)
        with pytest.raises(AssertionError, match="from the disk"):
            compiled(patch)
    check(compiled(monkeypatch))


def test_objects_that_are_gone_are_made_again(cache, monkeypatch):
    compiled(monkeypatch)
    for path in (cache / "objects").rglob("*.o"):
        path.unlink()
    check(compiled(monkeypatch))
    assert list((cache / "objects").rglob("*.o"))


def test_unverified_kernels_are_not_taken_for_verified(cache, monkeypatch):
    with config.scope(verify=False):
        compiled(monkeypatch)
    count = len(entries(cache))
    with config.scope(verify=True):
        check(compiled(monkeypatch))
    assert len(entries(cache)) == 2 * count


def test_nothing_is_kept_without_a_cache(tmp_path, monkeypatch):
    with config.scope(cache=False, cache_dir=str(tmp_path)):
        check(compiled(monkeypatch))
    assert not entries(tmp_path)


def test_a_read_only_cache_costs_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with config.scope(cache=True, cache_dir=str(tmp_path / "file")), pytest.warns(CacheWarning):
        check(compiled(monkeypatch))


def test_loops_over_tiles_come_back_from_the_disk(cache, monkeypatch):
    def f(q, k, v):
        return lumjax.nn.softmax(q @ k.T, axis=-1) @ v

    q, k, v = (jnp.sin(jnp.arange(n * 16.0)).reshape(n, 16) for n in (70, 90, 90))
    compiled(monkeypatch, f, q, k, v)
    with monkeypatch.context() as patch:
        forbid(patch)
        again = compiled(patch, f, q, k, v)
    check(again, f, q, k, v)
    assert [k.compiled.kernel.programs for s in again.executable.native() for k in s.kernels] == [
        ("FOLD",)
    ]
