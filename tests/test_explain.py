"""explain: what the report says, as text and as HTML, and compared with another one."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import native, nn
from lumjax.config import config
from lumjax.errors import ArgumentTypeError
from lumjax.kernel.verify import Verdict
from lumjax.report import svg, units
from lumjax.timeline import Lifetime, Place, Timeline


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.scope(cache_dir=str(tmp_path)):
        yield tmp_path


def product(x, y):
    z = x @ y  # a product
    return jnp.linalg.eigvalsh(z @ y[:, :1] + z)


X, Y = np.ones((32, 32), np.float32), np.ones((32, 32), np.float32)
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


# ---- what it says


def test_the_program_with_its_lines():
    text = str(lumjax.explain(product, X, Y))
    for part in (
        "explain product on cpu", "dot_general", "test_explain.py:", "| z = x @ y  # a product",
        "regions: 1 (0 repeated), kernels:", "by eval: 1", "eval: eigh", "memory between kernels",
        "searched now", "e-graph: ", "e-nodes", "plans priced", "rules fired:", "time of rules:",
        "budget: 2000 plans", "memory: peak",
    ):  # fmt: skip
        assert part in text, part


def test_rules_that_the_plan_is_owed_to():
    """(x y) c becomes x (y c)."""
    report = lumjax.explain(lambda x, y: (x @ y) @ y[:, :1] * 1.5, X, Y)
    (region,) = report.insight.regions
    used = {r.name for r in region.rules if r.used}
    assert used == set(region.report.used)
    assert used
    assert used < {r.name for r in region.rules}
    assert all(r.kind for r in region.rules)
    assert f"owed to: {next(r.name for r in region.rules if r.used)}" in report.text
    assert len(region.before) > 0
    assert region.before != region.after


def test_what_another_process_found(folder):
    """The rules and sizes are kept with the plan; times are not."""
    f = lambda x: nn.softmax(x * 1.375) @ x.T
    first = lumjax.explain(f, X).insight.regions
    script = """
import numpy as np, lumjax
from lumjax import nn
report = lumjax.explain(lambda x: nn.softmax(x * 1.375) @ x.T, np.ones((32, 32), np.float32))
print([(r.report.cached, r.report.rules, r.report.sizes, r.report.used)
       for r in report.insight.regions])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"LUMJAX_CACHE_DIR": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    want = [(True, r.report.rules, r.report.sizes, r.report.used) for r in first]
    assert eval(done.stdout) == want


def test_shapes_and_jitted_functions_are_explained():
    shape = lumjax.ShapeDtypeStruct((2, 2), np.float32)
    report = lumjax.explain(lumjax.jit(lambda x: x + 1, search=0), shape)
    assert "kernels: 1" in str(report)
    assert "planned as traced" in str(report)
    assert "budget: 0 plans" in str(report)


def test_equal_regions_are_told_once():
    def f(x):
        for _ in range(3):
            x = jnp.sort(jnp.sin(x) * 2.125)
        return x

    report = lumjax.explain(f, jnp.ones(8))
    repeated = [r for r in report.insight.regions if r.same_as is not None]
    assert repeated
    assert f"({len(repeated)} repeated)" in str(report)
    assert str(report).count("the same program as region [") == len(repeated)
    assert report.html().count("The same program as region [") == len(repeated)


def test_loop_programs_and_terms():
    (region,) = lumjax.explain(lambda x: jnp.sum(jnp.sin(x), axis=1) * 1.25, X).insight.regions
    (kernel,) = region.after
    assert kernel.program == "ROW"
    assert kernel.reads == ("i0",)
    assert kernel.shapes == ("o0:f32[32]",)
    assert "sum" in kernel.terms[0]
    assert "sin(i0[" in " ".join(kernel.terms)
    assert kernel.predicted > 0
    (region,) = lumjax.explain(lambda x: jnp.tanh(x @ x) * 1.25, X).insight.regions
    assert region.after[0].program == "CONTRACT"


def test_rejected_kernels_are_named(monkeypatch):
    real = native.check_kernel
    calls = []

    def suspicious(kernel, group, run, *args, **kwargs):
        calls.append(kernel.name)
        verdict = real(kernel, group, run, *args, **kwargs)
        return Verdict(False, "<invented>") if len(calls) == 1 else verdict

    monkeypatch.setattr(native, "check_kernel", suspicious)
    report = lumjax.explain(lambda x: jnp.cos(x) * 0.223, X)
    assert "REJECTED by verification" in str(report)
    assert "&lt;invented&gt;" in report.html()
    assert "<invented>" not in report.html()


def test_interpreted_programs_are_explained():
    with config.scope(interpret=True):
        text = str(lumjax.explain(lambda x: jnp.sin(x) + 1, X))
    assert "config.interpret" in text
    assert "by eval:" in text


def test_explaining_does_not_run_the_function():
    ran = []
    lumjax.explain(lambda x: lumjax.pure_callback(lambda v: ran.append(1) or v, x, x), X)
    assert ran == []


# ---- HTML


def test_one_page_that_needs_nothing_else(tmp_path):
    path = tmp_path / "report.html"
    report = lumjax.explain(product, X, Y)
    page = report.html(path)
    assert path.read_text(encoding="utf-8") == page
    read = Page(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(read.tags)
    assert not {"src", "href", "onclick", "onload"} & {name for name, _ in read.attributes}
    assert "url(" not in page
    assert "@import" not in page
    assert {"details", "summary", "svg", "table"} <= set(read.tags)
    words = " ".join(read.words)
    for part in (
        "z = x @ y  # a product",
        "E-graph:",
        "Plan as chosen",
        "Memory",
        "Traced program",
    ):
        assert part in words


def test_pictures_are_well_formed():
    page = lumjax.explain(product, X, Y).html()
    pictures = page.split("<svg")[1:]
    assert len(pictures) >= 3  # memory, plan, e-graph
    for piece in pictures:
        root = ET.fromstring("<svg" + piece.split("</svg>")[0] + "</svg>")
        assert root.find("title") is not None


def test_what_users_write_is_escaped(tmp_path):
    source = 'def f(x):\n    return x * 2.5 + (3 if "</pre><script>alert(1)</script>" else 0)\n'
    path = tmp_path / "a<b>.py"
    path.write_text(source)
    names: dict = {}
    exec(compile(source, str(path), "exec"), names)
    f = names["f"]
    f.__name__ = "<script>f</script>"
    report = lumjax.explain(f, X)
    assert "<script>alert(1)" in str(report)
    page = report.html()
    Page(page)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "a&lt;b&gt;.py:2" in page
    assert "<script" not in report.compare(report).html()


def test_save_by_the_name_of_the_file(tmp_path):
    report = lumjax.explain(product, X, Y)
    report.save(tmp_path / "a.txt")
    report.save(str(tmp_path / "a.HTML"))
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == str(report) + "\n"
    assert (tmp_path / "a.HTML").read_text(encoding="utf-8") == report.html()


def test_memory_picture_marks_the_peak():
    line = Timeline(("a", "b"), (Lifetime("t", 8, 1, 1, Place.TEMPORARY, "f.py:1"),))
    root = ET.fromstring(svg.memory(line))
    bars = list(root.iter("rect"))
    assert [b.get("class") for b in bars] == ["bar", "peak"]
    assert float(bars[0].get("height")) == 0 < float(bars[1].get("height"))
    assert "f.py:1" in bars[1].find("title").text


# ---- comparison


def test_comparison_counts_and_shows_kernels(tmp_path):
    f = lambda x, y: (x @ y) @ y[:, :1] * 1.625
    plain = lumjax.explain(lumjax.jit(f, search=0), X, Y)
    best = lumjax.explain(f, X, Y)
    compared = plain.compare(best)
    text = str(compared)
    kernels = next(r for r in compared.rows() if r.what == "kernels")
    assert kernels.first == str(plain.insight.kernels)
    assert kernels.second == str(best.insight.kernels)
    assert "<lambda> (2)" in text
    assert "rules" in text
    assert any(line.startswith("-") for line in compared.difference())
    page = compared.html(tmp_path / "c.html")
    Page(page)
    assert 'class="new"' in page
    compared.save(tmp_path / "c.txt")
    assert (tmp_path / "c.txt").read_text(encoding="utf-8") == text + "\n"
    compared.save(tmp_path / "d.html")
    assert (tmp_path / "d.html").read_text(encoding="utf-8") == page


def test_a_report_compared_with_itself_is_the_same():
    report = lumjax.explain(product, X, Y)
    compared = report.compare(report)
    assert {r.ratio for r in compared.rows()} == {"same"}
    assert compared.rules() == ([], [])
    assert compared.difference() == []
    assert "the kernels are the same" in str(compared)


def test_only_reports_are_compared():
    with pytest.raises(ArgumentTypeError, match=r"compare: requires another report"):
        lumjax.explain(product, X, Y).compare("report")


# ---- numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (2.5, "2.5 s"), (0.0123, "12.3 ms"), (4e-6, "4 us"), (5e-9, "5 ns")],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes(value, text):
    assert units.size(value) == text


def test_changes():
    assert units.change(2, 2) == "same"
    assert units.change(2, 1) == "0.50x"
    assert units.change(0, 1) == "new"
