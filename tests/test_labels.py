"""Spans of kernels in traces: what each is called, whose lines it computes, when there is none."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import profiler
from lumjax.recall import Recalled


def apart(x, w, key):
    """Two products that need nothing of each other, a loop, a factorisation, what joins them."""
    a, b = jnp.tanh(x @ w), jnp.cos(x.T @ w)
    c = lumjax.lax.fori_loop(0, 40, lambda k, c: jnp.sin(c) + a[0], b[0])
    noise = lumjax.random.normal(key, (4,))
    factor = jnp.linalg.cholesky(a @ a.T + 8 * jnp.eye(4))
    return (c + b + noise) @ factor, a


ARGS = (
    np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4),
    np.linspace(1, 2, 16, dtype=np.float32).reshape(4, 4) ** 2,
)


def events(folder, call, **options):
    with profiler.trace(folder, **options):
        out = call()
    (path,) = folder.rglob("perfetto_trace.json")
    return out, json.loads(path.read_text())["traceEvents"]


def names(event):
    """What a span is of: its own name, and those of the kernels of the same launch."""
    more = [v for k, v in event["args"].items() if k.startswith("kernel ")]
    return [event["name"].split(", and ")[0] if more else event["name"], *more]


@pytest.fixture
def run():
    jitted, args = lumjax.jit(apart), (*map(jnp.asarray, ARGS), lumjax.random.key(3))
    jitted(*args)
    return lambda: jitted(*args), str(lumjax.explain(jitted, *args)), jitted.program(*args)


def test_every_launch_has_a_span_that_says_what_explain_says(run, tmp_path):
    call, report, program = run
    plain = call()
    (first, rows), found = events(tmp_path, call)
    assert found.pop(0)["name"] == "what kernels are called"
    np.testing.assert_array_equal(first, plain[0])
    np.testing.assert_array_equal(rows, plain[1])
    insight = program.executable().insight()
    called = [n.split(" (test_labels.py")[0] for e in found for n in names(e)]
    kinds = [n.split()[1] for n in called]
    inside = sum(len(numbers) for stage in insight.loops for _, numbers in stage.parts)
    top = [r for r in insight.regions if r.number < len(insight.stages) - inside]
    assert kinds.count("kernel") == sum(len(r.after) for r in top)
    assert kinds.count(insight.loops[0].primitive) == len(insight.loops) == 1
    assert kinds.count("eval:") == len(insight.alone) == 1
    for name in called:
        number, words = name.split(" ", 1)
        told = report.split(f"\n{number} ")[1].split("\n[")[0]
        assert words in told or "the same program as region" in told
    assert all(e["ph"] == "X" and e["dur"] > 0 for e in found)
    ends = [e["ts"] + e["dur"] for e in found]
    assert all(a <= b["ts"] for a, b in zip(ends, found[1:], strict=False)), "one after the other"


def test_kernels_of_one_launch_share_a_span(tmp_path):
    both = lumjax.jit(lambda x, y: (jnp.sin(x).sum(0), jnp.cos(y).sum(1)))
    args = jnp.ones((64, 32)), jnp.ones((16, 128))
    both(*args)
    _, (_, *found) = events(tmp_path, lambda: both(*args))
    kernels = int(both.lower(*args).compile().cost_analysis()["kernels"])
    assert sum(map(len, map(names, found))) == kernels > len(found)


def test_spans_have_the_users_lines(run, tmp_path):
    call, _, _ = run
    _, (_, *found) = events(tmp_path, call)
    first = apart.__code__.co_firstlineno
    lines = {e["name"].split()[1]: e["args"]["lines"] for e in found}
    assert lines["scan"] == f"test_labels.py:{first + 3}"
    assert lines["eval:"] == f"test_labels.py:{first + 5}"
    text = " ".join(" ".join(e["args"].values()) for e in found)
    assert all(f"test_labels.py:{first + k}" in text for k in (2, 3, 4, 5, 6))


def test_a_program_that_was_kept_has_the_same_names(run, tmp_path):
    call, _, _ = run
    _, (_, *want) = events(tmp_path / "first", call)
    again, args = lumjax.jit(apart), (*map(jnp.asarray, ARGS), lumjax.random.key(3))
    again(*args)
    if not isinstance(again.program(*args).executable(), Recalled):
        pytest.skip("programs are not kept in these settings")
    _, (_, *got) = events(tmp_path / "second", lambda: again(*args))
    assert [(e["name"], e["args"]) for e in got] == [(e["name"], e["args"]) for e in want]


def test_sizes_that_come_with_a_call_go_by_their_names(tmp_path):
    def f(x):
        _, rows = lumjax.lax.scan(lambda c, r: (jnp.sin(c) + r, c), x[0], x)
        return rows.sum(0)

    jitted = lumjax.jit(f, dynamic=({0: "n"},))
    for n in (40, 60):
        plain = jitted(jnp.ones((n, 4)))
        out, found = events(tmp_path / str(n), lambda n=n: jitted(jnp.ones((n, 4))))
        np.testing.assert_array_equal(out, plain)
        assert any(e["name"].endswith("scan within the native call: n steps") for e in found)
    assert "n steps" in str(lumjax.explain(jitted, jnp.ones((50, 4))))


def test_there_are_none_outside_of_a_trace(run, tmp_path):
    call, _, _ = run
    events(tmp_path / "on", call)
    before = len(profiler.spans())
    call()
    assert len(profiler.spans()) == before
    options = profiler.ProfileOptions()
    options.device_tracer_level = 0
    _, found = events(tmp_path / "off", call, profiler_options=options)
    assert found == []
    assert not profiler.launches


def test_a_trace_that_is_ended_by_an_error_is_over(tmp_path):
    with pytest.raises(KeyError), profiler.trace(tmp_path):
        raise KeyError
    assert not profiler.launches
