"""What notebooks show: arrays, traced programs, reports."""

from __future__ import annotations

from html.parser import HTMLParser

import ml_dtypes
import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import float0
from lumjax.trace.array import Array

EMPTY = {"meta", "br"}


class Cells(HTMLParser):
    """The texts of a table's cells by row; tags must match."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open, self.frames = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        if tag == "iframe":
            self.frames.append(dict(attrs)["srcdoc"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open:
            self.rows[-1][-1] += data


def test_small_arrays_are_shown_whole():
    html = jnp.arange(6).reshape(2, 3)._repr_html_()
    assert Cells(html).rows == [["0", "1", "2"], ["3", "4", "5"]]
    assert "i32[2,3]" in html
    assert "from 0 to 5, mean 2.5" in html


def test_long_axes_are_cut():
    value = np.arange(40.0, dtype=np.float32)
    (row,) = Cells(jnp.array(value)._repr_html_()).rows
    assert row == ["0", "1", "2", "3", "4", "…", "35", "36", "37", "38", "39"]
    rows = Cells(jnp.ones((100, 12))._repr_html_()).rows
    assert (len(rows), {len(r) for r in rows}) == (11, {11})
    assert rows[5] == ["…"] * 11
    assert [len(r) for r in Cells(jnp.ones((11, 3))._repr_html_()).rows] == [3] * 11


def test_numbers_that_are_not_finite_are_counted():
    html = jnp.array([1.0, np.nan, -np.inf])._repr_html_()
    assert "from 1 to 1, mean 1, 2 not finite" in html
    assert Cells(html).rows == [["1", "nan", "-inf"]]
    assert "2 not finite" in jnp.array([np.nan, np.nan])._repr_html_()


@pytest.mark.parametrize(
    "value",
    [
        np.float32(3), np.ones((2, 2, 2)), np.zeros((0, 3)), np.ones(3, bool), np.ones(2, complex),
        np.ones((2, 2), ml_dtypes.bfloat16), np.zeros(2, float0),
    ],
)  # fmt: skip
def test_every_kind_of_array(value):
    assert Cells(Array(value)._repr_html_()).rows or value.ndim != 1 or value.dtype == float0


def test_keys():
    html = lumjax.random.split(lumjax.random.key(0), 3)._repr_html_()
    assert "key&lt;fry&gt;[3]" in html
    assert Cells(html).rows == []


def test_traced_arrays():
    seen = []
    lumjax.make_jaxpr(lambda x: seen.append(x._repr_html_()) or x)(1.0)
    assert seen[0].startswith("<pre>")
    assert Cells(seen[0])


def test_programs_with_their_lines():
    html = lumjax.make_jaxpr(lambda x: jnp.where(x < 1, x, 2))(1.0)._repr_html_()
    assert "&lt;" in html or "lt" in html
    assert "test_display.py" in html
    assert Cells(html)


def test_reports_are_pages_of_their_own():
    report = lumjax.explain(lambda x: x < 1, jnp.ones(3))
    for shown, page in ((report, report.html()), (report.compare(report), None)):
        (frame,) = Cells(shown._repr_html_()).frames
        assert frame.startswith("<!doctype html>")
        assert page is None or frame == page
