"""docs/reference is what the docstrings and the examples give; nothing public is without them."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re

import pytest

from tests.api.pages import FOLDER, earlier, entries, extras, page, pages, user_names

FIRST = [e for e in entries() if not earlier(e)]


def has_example(entry):
    return ">>>" in (entry.value.__doc__ or "") or entry.full in extras()


def test_every_public_function_has_a_docstring_and_an_example():
    assert not [e.full for e in FIRST if not inspect.getdoc(e.value)]
    assert not [e.full for e in FIRST if not inspect.isclass(e.value) and not has_example(e)]


def test_every_note_is_used():
    assert not sorted(set(extras()) - {e.full for e in FIRST})


def rounded(text):
    """Floats to four digits: the last ones are a matter of the machine's mathematics."""
    return re.sub(r"-?\d+\.\d*(?:e[+-]?\d+)?", lambda m: f"{float(m[0]):.4g}", text)


def squeezed(text):
    return re.sub(r"\s+", " ", rounded(text))


def test_pages_are_current():
    written = {p.name for p in FOLDER.glob("*.md")}
    made = dict(pages())
    assert written == {p.name for p in made}
    for path, text in made.items():
        old = path.read_text(encoding="utf-8")
        assert squeezed(old) == squeezed(text), f"run scripts/reference.py: {path.name}"


def test_an_example_that_lies_is_found(monkeypatch):
    """The page shows what a statement gives now, not what somebody wrote."""
    before = squeezed(page("lumjax.image"))
    extra = next(iter(extras().values()))
    monkeypatch.setitem(extras(), "lumjax.image.resize", type(extra)("", ("1 + 1",)))
    assert squeezed(page("lumjax.image")) != before


@pytest.mark.parametrize(
    "entry",
    [e for e in FIRST if ">>>" in (e.value.__doc__ or "") and not inspect.isfunction(e.value)],
    ids=lambda e: e.full,
)
def test_examples_of_what_doctest_does_not_find(entry):
    """Functions with rules of their own and classes are objects, which doctest passes over."""
    module = importlib.import_module(entry.value.__module__)
    names = {**user_names(), **vars(module)}
    test = doctest.DocTestParser().get_doctest(entry.value.__doc__, names, entry.full, None, 0)
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert result.failed == 0
