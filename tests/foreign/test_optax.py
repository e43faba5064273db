"""A sample of optax's own tests, as they are installed with it, run on lumjax in a process of their
own; `python -m tests.foreign.run optax` runs them all.
"""

from __future__ import annotations

import re

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


def test_files_that_need_more_are_known():
    """The sample must run where only optax is: by imports, one's own or a neighbour's."""
    site = SUITE.site()
    needs = re.compile(r"^(from|import) (sklearn|flax)|import alias_test", re.MULTILINE)
    files = {p.relative_to(site).as_posix(): p for p in (site / SUITE.folder).rglob("*_test.py")}
    found = {n for n, p in files.items() if needs.search(p.read_text(encoding="utf-8"))}
    assert found == set(SUITE.needing)


def test_what_is_run():
    line = run.arguments(SUITE, None, jax=True, workers=2, only="optax/contrib")
    assert "optax/contrib" in line
    assert "lumjax.compat" not in line
    assert line[-2:] == ["-n", "2"]
    line = run.arguments(SUITE, ["optax/a_test.py::A::b", "optax/a_test.py::c"], False, 1)
    assert [x for x in line if x.startswith("optax/")] == ["optax/a_test.py"]
    assert "lumjax.compat" in line


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
