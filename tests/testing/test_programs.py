"""Random programs: eager, jit, vmap, jvp and vjp agree, at first and second order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import ArgumentValueError
from lumjax.testing import check_jax, check_program
from lumjax.testing.oracle import on_jax
from lumjax.testing.programs import FLOW, VOCABULARY, WORDS, RandomChooser, build
from lumjax.testing.steps import library
from lumjax.testing.strategies import programs
from lumjax.testing.sweep import main

# CI's share; `python -m lumjax.testing --count 10000`, with --jax too, is the whole.
COUNT, SEED, CHUNK = 500, 2, 25
WITH_JAX = 8


@pytest.mark.parametrize("chunk", range(COUNT // CHUNK))
def test_seeded_programs(chunk):
    for index in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        program = build(RandomChooser(SEED * 1_000_003 + index))
        try:
            check_program(program, second_order=index % 4 == 0)
        except Exception as e:
            raise AssertionError(f"program {index} of seed {SEED}:\n{program.source()}\n{e}") from e


# Programs of seed 1 that once found a fault: in the gradient of sort on empty arrays, in comparing
# symbolic coordinates, in infinities whose sign is rounding, in rows kept for passes of other axes,
# in rows that wait for a sum over all rows.
FOUND = [15, 25, 36, 39, 86, 89, 99, 331, 1329, 1795, 2553, 6565, 7177]
CIRCLES = [(2, 393), (77, 86), (4321, 32)]  # regions that waited for each other


@pytest.mark.parametrize("index", FOUND)
def test_programs_that_found_faults(index):
    check_program(build(RandomChooser(1_000_003 + index)))


@pytest.mark.parametrize(("seed", "index"), CIRCLES)
def test_programs_whose_regions_made_a_circle(seed, index):
    check_program(build(RandomChooser(1_000_003 * seed + index)))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(programs(max_nodes=6))
def test_drawn_programs(program):
    check_program(program)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(40))
def test_ten_thousand_programs(chunk):
    assert main(["--count", "250", "--first", str(250 * chunk), "--seed", "1"]) == 0


def test_programs_are_deterministic():
    assert build(RandomChooser(5)).source() == build(RandomChooser(5)).source()


def names(nodes):
    for node in nodes:
        yield node.name
        for body in node.bodies:
            yield from names(body.nodes)


@pytest.mark.parametrize(("flow", "words"), [(False, WORDS), (True, FLOW)])
def test_every_word_occurs(flow, words):
    missing = set(words)
    for k in range(600):
        missing -= set(names(build(RandomChooser(k), 14, flow=flow).nodes))
        if not missing:
            return
    raise AssertionError(missing)


@pytest.mark.parametrize("index", range(WITH_JAX))
def test_programs_with_functions_inside_agree_with_jax(index):
    pytest.importorskip("jax")
    check_program(build(RandomChooser(SEED * 1_000_003 + index), flow=True), jax=True)


# Programs of seed 5 that found faults: branches whose residuals are bfloat16.
FOUND_WITH_JAX = [44]


@pytest.mark.parametrize("index", FOUND_WITH_JAX)
def test_programs_that_found_faults_with_jax(index):
    pytest.importorskip("jax")
    check_program(build(RandomChooser(5 * 1_000_003 + index), flow=True), jax=True)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(40))
def test_ten_thousand_programs_with_jax(chunk):
    pytest.importorskip("jax")
    assert main(["--jax", "--count", "250", "--first", str(250 * chunk), "--seed", "1"]) == 0


def test_the_text_is_the_program():
    """The text that is run is the text that is shown."""
    program = build(RandomChooser(3), flow=True)
    names = dict(library("lumjax"))
    exec(program.source(), names)
    for a, b in zip(names["f"](*program.args), program.fn(*program.args), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_wrong_program_is_reported(monkeypatch, capsys):
    calls = iter(range(10**6))  # makes it no function of its input
    monkeypatch.setitem(library("lumjax"), "drift", lambda: float(next(calls)))
    monkeypatch.setitem(VOCABULARY, "sin", replace(VOCABULARY["sin"], text="{0} * drift()"))
    only = build(RandomChooser(0), 3, ["sin"])
    assert only.nodes
    with pytest.raises(AssertionError):
        check_program(only)


# ---- JAX as second opinion


def double(x):
    return x * 2


def through_a_helper(x, n):
    return (jnp.sin(double(x)) * n, jnp.cumsum(n))


def test_a_function_on_jax():
    jax = pytest.importorskip("jax")
    check_jax(through_a_helper, (jnp.arange(3.0), jnp.arange(3)))
    made = on_jax(through_a_helper)
    assert made.__globals__["jnp"] is jax.numpy
    assert made.__globals__["double"].__globals__ is made.__globals__
    assert through_a_helper.__globals__["jnp"] is jnp


def wrong(x):
    return (jnp.sin(x) if jnp.__name__ == "lumjax.numpy" else jnp.cos(x),)


def wrong_type(x):
    return (x if jnp.__name__ == "lumjax.numpy" else x * jnp.float32(1),)


@lumjax.custom_jvp
def bent(x):
    return jnp.square(x)


bent.defjvp(lambda primals, tangents: (bent(*primals), 3 * primals[0] * tangents[0]))


def wrong_slope(x):
    return (bent(x) if jnp.__name__ == "lumjax.numpy" else jnp.square(x),)


@pytest.mark.parametrize("forward", [False, True])
def test_what_differs_from_jax_is_found(forward):
    pytest.importorskip("jax")
    x = jnp.arange(1.0, 3.0)
    with pytest.raises(AssertionError, match=r"lumjax against JAX\[0\]\[0\]"):
        check_jax(wrong, (x,), forward=forward)
    with pytest.raises(AssertionError, match="output 0"):
        check_jax(wrong_type, (1.0,), forward=forward)
    with pytest.raises(AssertionError, match=r"lumjax against JAX\[1\]\[0\]"):
        check_jax(wrong_slope, (x,), forward=forward)


def test_what_cannot_be_run_on_jax():
    pytest.importorskip("jax")
    with pytest.raises(ArgumentValueError, match="a Python function"):
        check_jax(lumjax.jit(double), (1.0,))
