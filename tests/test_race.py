"""The race: what its rows are, how results are judged, and one whole run of a small row."""

import math

import numpy as np
import pytest

from benchmarks.race import docs, on_numpy
from benchmarks.race.contest import Entry, Result, chosen_rows, difference, run
from benchmarks.race.peer import MissingError, Stand
from benchmarks.race.roofline import Roof
from benchmarks.race.rows import ROWS
from benchmarks.race.tables import line, markdown, ratio, summary


def result(**medians):
    entries = {p: Entry([m], [], 1.0, 1 << 20, e) for p, (m, e) in medians.items()}
    return Result("row", "group", 1, 1e-3, 0.5e-3, entries)


def test_rows_have_names_of_their_own():
    assert len({r.name for r in ROWS}) == len(ROWS)
    assert {r.group for r in ROWS} == {
        "products", "bfloat16", "rows", "attention", "models", "science", "dispatch"
    }  # fmt: skip
    assert chosen_rows(["MNIST"]) == chosen_rows(["MNIST MLP", "MNIST CNN"])
    assert len(chosen_rows([])) == len(ROWS)
    assert all(ROWS[k].group == "dispatch" for k in chosen_rows(["dispatch"]))


def test_inputs_are_the_same_every_time():
    row = ROWS[chosen_rows(["MNIST CNN"])[0]]
    for a, b in zip(row.arguments()[1:], row.arguments()[1:], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("got", "far"),
    [
        ([[np.array([1.0, 2.0])]], 0.0),
        ([[np.array([1.0, 2.2])]], 0.1),
        ([[np.array([np.nan, 2.0])]], math.inf),
        ([[np.array([1.0])]], math.inf),
        ([[np.array([1.0, 2.0]), np.array(1.0)]], math.inf),
    ],
)
def test_difference(got, far):
    assert difference(got, [[np.array([1.0, 2.0])]]) == pytest.approx(far)


def test_only_what_came_out_right_counts():
    assert ratio(result(lumjax=(1.0, 0.0), jax=(3.0, 0.0), torch=(0.1, 0.5))) == (3.0, "jax")
    assert ratio(result(lumjax=(1.0, 0.5), jax=(3.0, 0.0))) is None
    assert ratio(result(lumjax=(1.0, 0.0))) is None
    slow = result(lumjax=(2.0, 0.0), jax=(1.0, 0.0), torch=(0.5, 0.1))
    assert "= 0.50 x jax" in line(slow)
    assert "torch 500 ms!" in line(slow)
    assert "(wrong)" in markdown([slow], ["lumjax", "jax", "torch"])
    assert summary([slow])[0].endswith("below 1: row 0.50")


def test_peers_without_bfloat16_leave_its_rows_out():
    for number in chosen_rows(["bfloat16"]):
        with pytest.raises(MissingError):
            Stand("numpy", 1).build(number)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("word", ["conjugate", "k-means", "LSTM 512 steps", "bfloat16 4x"])
def test_a_program_is_the_same_everywhere(word):
    number = chosen_rows([word])[0]
    _, mine, _ = Stand("lumjax", 1).build(number)
    row = ROWS[number]
    if hasattr(on_numpy, row.program) and not row.peers:
        _, other, _ = Stand("numpy", 1).build(number)
    else:
        pytest.importorskip("jax")
        _, other, _ = Stand("jax", 1).build(number)
    assert difference(mine, other) <= row.limit


@pytest.mark.sampled(2)
@pytest.mark.parametrize("word", ["eager x + x", "jitted call, 3 arrays"])
def test_a_whole_run(word):
    pytest.importorskip("jax")
    ((found, top),) = run([word], ["lumjax", "numpy"], [1])
    assert found.right("lumjax")
    assert top.bandwidth > 1e8
    assert top.flops > 1e8
    assert (found.entries["numpy"].why == "not written") == (word != "eager x + x")


def test_results_replace_those_of_the_pages(tmp_path, monkeypatch):
    pages = {"PAGE": tmp_path / "race.md", "README": tmp_path / "README.md"}
    for name, path in pages.items():
        path.write_text("before\n<!-- race -->\nold\n<!-- /race -->\nafter\n")
        monkeypatch.setattr(docs, name, path)
    monkeypatch.setattr(docs, "CHARTS", tmp_path / "race")
    chart = tmp_path / "race_products_1.png"
    chart.write_bytes(b"a picture")
    slow = result(lumjax=(2.0, 0.0), jax=(1.0, 0.0))
    for _ in range(2):  # the second time there is something of ours to replace
        docs.into_docs([slow], {1: Roof(1e9, 1e9)}, "a table\n", [chart], "cpu")
    for path in pages.values():
        text = path.read_text()
        assert text.startswith("before\n<!-- race -->\n")
        assert text.endswith("\n<!-- /race -->\nafter\n")
        assert "old" not in text
    assert "a table" in pages["PAGE"].read_text()
    assert "(race/race_products_1.png)" in pages["PAGE"].read_text()
    assert (tmp_path / "race" / chart.name).read_bytes() == b"a picture"
    assert f"| {slow.group} | 1 | 0.50 | 0 of 1 | row: 0.50 (jax) |" in pages["README"].read_text()
    pages["PAGE"].write_text("no place")
    with pytest.raises(SystemExit, match="has no place"):
        docs.into_docs([slow], {1: Roof(1e9, 1e9)}, "", [], "wall")
