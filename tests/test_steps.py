"""The table of the examples' steps, and torch's twins of them."""

from __future__ import annotations

import importlib.util
import sys

import pytest

import lumjax
from benchmarks import steps_peer, steps_table

ROW = {
    "lumjax": {"cold": 2.0, "losses": [1.0], "seconds": [0.001, 0.002, 0.003]},
    "jax": {"cold": 1.0, "losses": [1.0], "seconds": [0.004, 0.004, 0.001]},
    "torch": {"why": "not written"},
}
PEERS = ("lumjax", "jax", "torch")


def test_a_row_has_medians_and_ratios():
    text = steps_table.table({"gpt": ROW}, PEERS)
    assert text.splitlines()[0] == (
        "| step | lumjax, ms | jax, ms | torch, ms "
        "| ratio to jax | ratio to torch | first steps, s |"
    )
    assert text.splitlines()[-1] == "| gpt | 2.00 | 4.00 |  | 0.50 |  | 2.0, 1.0, - |"
    assert len({line.count("|") for line in text.splitlines()}) == 1


def test_steps_of_carts_are_those_of_a_second():
    assert steps_table.played({"gpt": ROW}) == ""
    assert "lumjax 4,096,000, jax 2,048,000." in steps_table.played({"rl": ROW})


def test_the_gallery_has_one_table_at_a_time(tmp_path):
    page = tmp_path / "gallery.md"
    page.write_text(steps_table.GALLERY.read_text())
    before = page.read_text()
    for count in (2, 3, 2):
        rows = {f"step {k}": ROW for k in range(count)} | {"rl": ROW}
        text = "\n".join([steps_table.table(rows, PEERS), steps_table.played(rows)])
        steps_table.into_gallery(text, page)
        after = page.read_text()
        assert after.count("| step |") == after.count("Steps of the carts") == 1
        assert after.count("| step ") == count + 1
        assert after.split("| step |")[0] == before.split("| step |")[0]
        assert after.endswith(before.split("What is slower")[1])


class Seat:
    """A peer whose answers are given."""

    def __init__(self, losses, why=None):
        self.losses, self.why, self.asked = losses, why, []

    def ask(self, name, *arguments):
        self.asked.append(name)
        if name == "build":
            return (None, self.why) if self.why is not None else ((1.0, self.losses), None)
        return (0.5, None) if name == "sample" else (None, None)


def test_who_computes_something_else_is_not_measured(monkeypatch):
    monkeypatch.setattr(steps_table, "TURNS", 0.0)
    seats = {
        "lumjax": Seat([2.0, 1.0]),
        "jax": Seat([2.0, 1.0001]),
        "torch": Seat([2.0, 1.1]),
        "torch.compile": Seat([], why="failed: no compiler"),
    }
    found = steps_table.compete("gpt", seats, 60.0, "wall")
    assert [p for p, row in found.items() if "seconds" in row] == ["lumjax", "jax"]
    assert found["torch"]["why"].startswith("its losses are [2.0, 1.1]")
    assert found["torch.compile"]["why"] == "failed: no compiler"
    assert "sample" not in seats["torch"].asked
    assert all(seat.asked[-1] == "drop" for seat in seats.values())
    late = steps_table.compete("gpt", {"lumjax": Seat([1.0])}, -1.0, "wall")
    assert late == {"lumjax": {"why": "no time left"}}


def test_losses_that_are_no_numbers_differ():
    assert steps_table.difference([float("nan"), 1.0], [1.0, 1.0]) == float("inf")
    assert steps_table.difference([1.0, 1.5], [1.0, 1.0]) == 0.5


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("gpt", "rl")]


@pytest.mark.parametrize("name", ["lstm", "cnn", "diffusion", *SLOW])
def test_torchs_twins_have_the_same_losses(name, monkeypatch):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with lumjax.config.scope(interpret=True):
        _, want = steps_peer.Stand("lumjax", 1).build(name, 3)
    _, got = steps_peer.Stand("torch", 1).build(name, 3)
    assert steps_table.difference(got, want) < 1e-4
    assert len(set(want)) > 1
