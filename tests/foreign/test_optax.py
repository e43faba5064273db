"""A sample of optax's own tests, as they are installed with it, run on lumjax in a process of their
own; `python -m tests.foreign.run optax` runs them all.
"""

from __future__ import annotations

import pytest

from tests.foreign import run

SUITE = run.SUITES["optax"]


def test_a_sample_passes_as_recorded():
    names = run.sample(SUITE, 90)
    assert len(names) >= 8
    found = run.run(SUITE, names)
    assert sorted(found) == names
    assert run.judge(SUITE, found, names) == []


def test_records_are_whole():
    passing, reasons = SUITE.passing(), SUITE.reasons()
    assert passing == sorted(set(passing))
    assert len(passing) >= 956
    assert not set(passing) & set(reasons)
    assert all(reasons.values())


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"a": ("passed", ""), "b": ("skipped", "why")}, []),
        ({"a": ("failed", "E")}, ["failed, but recorded as passing: a E"]),
        ({}, ["not run, but recorded as passing: a "]),
        (
            {"a": ("passed", ""), "b": ("failed", "E")},
            ["failed, and no reason is recorded: b E"],
        ),
    ],
)
def test_what_is_wrong(found, wrong):
    assert run.judge(SUITE, found, ["a"]) == wrong


def test_another_version_is_refused():
    other = run.Suite("optax", "0.0.1", "optax")
    with pytest.raises(SystemExit, match=r"is installed: pip install optax==0\.0\.1"):
        other.site()
    with pytest.raises(SystemExit, match="nonsense is not installed: pip install nonsense==1"):
        run.Suite("nonsense", "1", "nonsense").site()
