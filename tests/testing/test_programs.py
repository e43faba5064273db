"""Random programs: eager, jit, vmap, jvp and vjp agree, at first and second order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from lumjax.testing import check_program
from lumjax.testing.programs import VOCABULARY, RandomChooser, build, main
from lumjax.testing.strategies import programs

COUNT, SEED, CHUNK = 500, 2, 25  # CI's share; `python -m lumjax.testing --count 10000` is the whole


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
FOUND = [15, 25, 36, 39, 86, 89, 99, 331, 1329, 1795, 2553, 7177]
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


def test_every_word_occurs():
    seen = {n.name for k in range(600) for n in build(RandomChooser(k), max_nodes=14).nodes}
    assert seen == set(VOCABULARY)


def test_a_wrong_program_is_reported(monkeypatch, capsys):
    word = VOCABULARY["sin"]
    calls = iter(range(10**6))  # makes it no function of its input

    monkeypatch.setitem(
        VOCABULARY,
        "sin",
        type(word)(lambda xs, _: xs[0] * float(next(calls)), word.pick),
    )
    only = build(RandomChooser(0), 3, ["sin"])
    assert only.nodes
    with pytest.raises(AssertionError):
        check_program(only)
