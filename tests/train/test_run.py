"""Runs: metrics, checkpoints that continue them, early ends and traces."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import ArgumentValueError, CheckpointError, TreeError
from lumjax.profiler import TraceAnnotation
from lumjax.train import EarlyStop, Run


@lumjax.jit
def step(state, number):
    key, x = state
    noise = lumjax.random.normal(lumjax.random.fold_in(key, number), x.shape)
    return key, jnp.sin(x) + noise


def walk(folder, steps, last=None, **options):
    """A random walk that is interrupted before it logs its step `last`."""
    start = lumjax.random.key(0), jnp.zeros(3)
    run = Run("walk", start, steps=steps, out=folder, progress=False, **options)
    for number in run:
        run.state = step(run.state, np.int32(number))
        if number == last:
            break
        run.log(loss=run.state[1].sum(), **({"even": number} if number % 2 == 0 else {}))
    return run


def test_metrics(tmp_path):
    run = walk(tmp_path, 5)
    lines = [json.loads(line) for line in (tmp_path / "walk.jsonl").read_text().splitlines()]
    assert lines == run.lines
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(run.column("even"), [0, np.nan, 2, np.nan, 4])
    assert run.tail("even", 2) == 3
    assert np.isnan(run.tail("nothing"))


@pytest.mark.parametrize("last", [0, 1, 3, 4, 6])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, last):
    whole = walk(tmp_path / "whole", 7, save_every=3)
    walk(tmp_path / "part", 7, last, save_every=3)
    part = walk(tmp_path / "part", 7, save_every=3, resume=True)
    assert part.first == last // 3 * 3
    assert part.lines == whole.lines
    assert (tmp_path / "part" / "walk.jsonl").read_text() == (
        tmp_path / "whole" / "walk.jsonl"
    ).read_text()
    np.testing.assert_array_equal(part.state[1], whole.state[1])
    assert list(walk(tmp_path / "part", 7, resume=True)) == []


def test_without_resume_it_begins_anew(tmp_path):
    walk(tmp_path, 4)
    assert walk(tmp_path, 2).lines == walk(tmp_path, 4).lines[:2]


def test_a_checkpoint_of_something_else(tmp_path):
    walk(tmp_path, 2)
    with pytest.raises(TreeError):
        Run("walk", jnp.zeros(3), steps=3, out=tmp_path, resume=True)
    (tmp_path / "walk.jsonl").write_text("")
    with pytest.raises(CheckpointError, match="after 2 steps"):
        walk(tmp_path, 3, resume=True)


def test_an_early_end(tmp_path):
    def run(**options):
        made = Run("x", jnp.zeros(()), steps=9, out=tmp_path, progress=False,
                   stop=EarlyStop("loss", 2), **options)  # fmt: skip
        for number in made:
            made.log(loss=abs(number - 3))
        return made

    made = run()
    assert (made.stopped, [line["loss"] for line in made.lines]) == (True, [3, 2, 1, 0, 1, 2])
    assert run(resume=True).lines == made.lines  # also where it goes on


def test_a_trace_of_some_steps(tmp_path):
    run = Run("x", 0, steps=6, out=tmp_path, progress=False, trace=range(2, 4))
    for _ in run:
        with TraceAnnotation("work"):
            run.log()
    (path,) = (tmp_path / "x.trace").rglob("perfetto_trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    assert [e["args"]["step_num"] for e in events if e["name"] == "x"] == ["2", "3"]
    assert [e["name"] for e in events].count("work") == 2


def test_a_trace_has_the_kernels_of_its_steps(tmp_path):
    state = lumjax.random.key(0), jnp.zeros(3)
    run = Run("x", state, steps=4, out=tmp_path, progress=False, trace=range(1, 3))
    for number in run:
        run.state = step(run.state, np.int32(number))
        run.log()
    (path,) = (tmp_path / "x.trace").rglob("perfetto_trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    spans = {e["args"]["step_num"]: e for e in events if e["name"] == "x"}
    assert sorted(spans) == ["1", "2"]
    for span in spans.values():
        begin, end = span["ts"], span["ts"] + span["dur"]
        inside = [e for e in events if begin <= e["ts"] and e["ts"] + e["dur"] <= end]
        kernels = [e for e in inside if " kernel " in e["name"]]
        assert kernels
        assert "test_run.py:" in " ".join(" ".join(e["args"].values()) for e in kernels)


def test_the_bar_shows_the_metrics(tmp_path, capsys):
    run = Run("walk", 0, steps=3, out=tmp_path)
    for number in run:
        run.log(loss=number + 0.25)
    shown = capsys.readouterr().err
    assert "walk: loss 2.25" in shown
    assert "3/3" in shown


def test_misuse(tmp_path):
    with pytest.raises(ArgumentValueError, match="save_every 0"):
        Run("x", 0, steps=1, out=tmp_path, save_every=0)
    run = Run("x", 0, steps=2, out=tmp_path, progress=False)
    with pytest.raises(ArgumentValueError, match="none in step 0"):
        list(run)
