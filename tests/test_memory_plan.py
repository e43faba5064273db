"""What a program holds is known before it runs, and is what it then holds."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from benchmarks.peers import load
from lumjax import lax, nn
from lumjax.cpu import arena

TRANSFORMER = Path(__file__).parent.parent / "benchmarks" / "transformer.py"


def drawn(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)


@contextmanager
def counted(monkeypatch):
    """Bytes alive of what running allocates: its arena and its results."""
    alive, most = [0], [0]

    def add(size):
        alive[0] += size
        most[0] = max(most[0], alive[0])

    runner = importlib.import_module("lumjax.runner")
    maker, checkout = arena.maker, arena.checkout

    def counting(shape, dtype):
        make = maker(shape, dtype)

        def made():
            array = make()
            add(array.nbytes)
            return array

        return made

    @contextmanager
    def block(size):
        add(size)
        with checkout(size) as base:
            yield base
        alive[0] -= size

    monkeypatch.setattr(runner.arena, "maker", counting)
    monkeypatch.setattr(runner.arena, "checkout", block)
    yield alive, most
    monkeypatch.undo()


def perceptron(w, v, x):
    return jnp.sum((jnp.tanh(x @ w) @ v) ** 2)


PROGRAMS = {
    "gradients": (lumjax.grad(perceptron, (0, 1)), ((64, 96), (96, 8), (256, 64))),
    "softmax of a product": (lambda x, y: nn.softmax(x @ y), ((64, 32), (32, 500))),
    "a loop": (lambda x: lax.fori_loop(0, 4, lambda _, y: jnp.sin(y) @ y, x), ((64, 64),)),
    "several results": (lambda x: (x.T @ x, x @ x.T, jnp.sort(x)), ((48, 70),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_planned_is_what_is_held(name, monkeypatch):
    f, shapes = PROGRAMS[name]
    args = [drawn(*s) for s in shapes]
    with counted(monkeypatch) as (alive, most):
        executable = lumjax.jit(f).program(*args).executable()
        planned = lumjax.jit(f).memory_plan(*args).allocated()
        alive[0] = most[0] = 0
        executable.run(args)
    assert abs(most[0] - planned) <= 0.01 * planned


def test_shapes_will_do():
    shape = lumjax.ShapeDtypeStruct((64, 64), np.float32)
    plan = lumjax.jit(lambda x: jnp.sin(x) @ x).memory_plan(shape)
    assert plan.peak() == plan.live(len(plan.steps) - 1)[0].size == 64 * 64 * 4
    assert "test_memory_plan.py" in str(plan)
    assert "peak 16,384 bytes" in str(plan)


@pytest.mark.parametrize("n", [1, 5, 100, 1000])
def test_open_sizes_are_those_of_the_arguments(n):
    f = lumjax.jit(lambda x: jnp.cumsum(jnp.sin(x) @ jnp.ones((8, 8)), 0), dynamic={0: "n"})
    assert f.memory_plan(drawn(n, 8)).totals().output_size_in_bytes == n * 32
    f(drawn(n, 8))
    assert len(f.explain()) == 1


def test_what_is_updated_in_place_is_not_held_twice():
    def f(x, row):
        return lax.dynamic_update_slice(x, row, (3, 0))

    args = drawn(600, 8), drawn(1, 8)
    assert lumjax.jit(f).memory_plan(*args).peak() == 600 * 32
    assert lumjax.jit(f, donate_argnums=0).memory_plan(*args).peak() == 0


def test_the_arena_is_hardly_larger_than_what_it_holds():
    """A transformer's training step: a hundred temporaries."""
    step, args = load(TRANSFORMER, {}).build(2, 2, 64, 64, 4, 256)
    executable = lumjax.jit(step).program(*args).executable()
    assert executable.arena_bytes <= 1.05 * executable.peak_bytes
