"""Loops as one kernel whose blocks stay: equal to the interpreter, one launch each; what stands in
the way of it is told; a faulty kernel is refused.
"""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import nn
from lumjax.cuda import chosen, device, graph, nvrtc, persistent, ptx
from lumjax.cuda.emulated import Processor
from lumjax.cuda.header import HEADER, MEETING
from lumjax.cuda.occupancy import A100, CARDS, Card
from tests.cuda import standin
from tests.cuda.test_emulated import close

GOLDEN = Path(__file__).parent.parent / "golden" / "cuda_loop.cu"


def made(*shapes, scale=0.3, seed=5):
    rng = np.random.default_rng(seed)
    return [jnp.asarray((rng.normal(size=s) * scale).astype(np.float32)) for s in shapes]


def rnn(w, xs, h):
    return lumjax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum(1)), h, xs)


def lstm(w, u, b, xs, h, c):
    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=-1)
        c = jnp.tanh(g) * nn.sigmoid(i) + c * nn.sigmoid(f + 1)
        h = jnp.tanh(c) * nn.sigmoid(o)
        return (h, c), h

    return lumjax.lax.scan(cell, (h, c), xs)


def gru(w, u, xs, h):
    size = h.shape[-1]

    def step(h, x):
        a, b = x @ w, h @ u
        z = nn.sigmoid(a[:, :size] + b[:, :size])
        r = nn.sigmoid(a[:, size : 2 * size] + b[:, size : 2 * size])
        n = jnp.tanh(a[:, 2 * size :] + r * b[:, 2 * size :])
        return z * h + (1 - z) * n, n

    return lumjax.lax.scan(step, h, xs)


def mixed(w, x):
    """Integers, truth and a carry that never changes, from the last row on."""

    def step(c, row):
        k, on, h, fixed = c
        h = jnp.where(on, jnp.tanh(h @ w) + row + fixed, h * 0.5)
        return (k + 3, h.sum() > 0, h, fixed), (k, h.argmax())

    return lumjax.lax.scan(step, (jnp.int32(2), jnp.bool_(True), x[0], x[1]), x, reverse=True)


def inside(w, x):
    """A loop in a loop; copies of what goes on as it is."""

    def outer(c, row):
        h, last = c
        h, hs = lumjax.lax.scan(lambda h, k: (jnp.tanh(h @ w) + row * k, h), h, jnp.arange(9.0))
        return (h, row), (hs.sum(0), last)

    return lumjax.lax.scan(outer, (x[0], x[0]), x)


def rows(w, x):
    """Cumulative rows with a contraction for each step."""
    return lumjax.lax.scan(lambda c, r: (c + r, (c @ w).sum()), jnp.zeros(x.shape[1]), x)


def repeated(w, x):
    return lumjax.lax.fori_loop(0, 12, lambda k, h: jnp.tanh(h @ w) * (1 + k), x)


def half(w, xs, h):
    args = (a.astype(jnp.bfloat16) for a in (w, xs, h))
    return [a.astype(jnp.float32) for a in lumjax.tree.leaves(rnn(*args))]


def total(f, *numbers):
    """The gradient of all that a program gives."""
    return lumjax.grad(
        lambda *a: sum((v * v).sum() for v in lumjax.tree.leaves(f(*a))), argnums=numbers
    )


LSTM = (5, 32), (8, 32), (32,), (11, 4, 5), (4, 8), (4, 8)
WIDE = (20, 160), (40, 160), (160,), (9, 33, 20), (33, 40), (33, 40)
CASES = {
    "rnn": (rnn, made((8, 8), (20, 4, 8), (4, 8))),
    "lstm": (lstm, made(*LSTM)),
    "gru": (gru, made((5, 24), (8, 24), (11, 4, 5), (4, 8))),
    "mixed": (mixed, made((12, 12), (13, 12))),
    "loop in a loop": (inside, made((10, 10), (11, 10))),
    "rows": (rows, made((7, 9), (17, 7))),
    "fori": (repeated, made((6, 6), (5, 6))),
    "half": (half, made((16, 16), (12, 16, 16), (16, 16))),
    "wide": (lstm, made(*WIDE)),
    "gradient of rnn": (total(rnn, 0, 1, 2), made((8, 8), (20, 4, 8), (4, 8))),
    "gradient of lstm": (total(lstm, 0, 1, 2, 3, 4, 5), made(*LSTM)),
    "gradient of gru": (total(gru, 0, 1, 2, 3), made((5, 24), (8, 24), (11, 4, 5), (4, 8))),
    "gradient of wide": (total(lstm, 0, 1, 3), made(*WIDE)),
    "gradient of rows": (total(rows, 0, 1), made((7, 9), (17, 7))),
}


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that are launched."""
    names = []
    launch = Processor.launch

    def logged(self, function, blocks, table):
        names.append((function.name, blocks))
        launch(self, function, blocks, table)

    monkeypatch.setattr(Processor, "launch", logged)
    return names


@pytest.fixture
def choices(monkeypatch):
    """What became of each loop."""
    found = []

    def choose(*args):
        found.append(chosen.choose(*args))
        return found[-1]

    monkeypatch.setattr(graph, "choose", choose)
    return found


@pytest.fixture
def many(monkeypatch):
    """One block is never enough."""
    monkeypatch.setattr(chosen, "OF_ONE", 1.0)


def emulated(f, args, arch=""):
    return lumjax.jit(f, backend=f"cuda:emulated{arch}", search=0)(*args)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_a_loop_is_one_launch(name, launched, choices, many):
    f, args = CASES[name]
    close(emulated(f, args), f(*args), 3e-2 if name == "half" else 2e-5, 2e-5)
    assert choices
    assert [c.why for c in choices if c.kernel is None] == []
    loops = [n for n, _ in launched if n.startswith("loop_")]
    assert len(loops) == len(choices)
    if name not in ("half",):
        assert max(c.blocks for c in choices) > 1
    for c in choices:
        assert "ld.global.nc" not in nvrtc.ptx(c.kernel.text, options=("-lineinfo",))
        usage = nvrtc.cubin(c.kernel.text, "sm_80").usage[c.kernel.name]
        assert usage.spills == usage.local == 0


@pytest.mark.parametrize("name", ["lstm", "gradient of gru", "loop in a loop"])
def test_one_block_needs_no_counter(name, launched, choices):
    f, args = CASES[name]
    for arch in ("", ":sm_90a"):  # machine code for both
        close(emulated(f, args, arch), f(*args), 2e-5, 2e-5)
        for c in choices:
            usage = nvrtc.cubin(c.kernel.text, "sm_90a" if arch else "sm_80").usage[c.kernel.name]
            assert usage.spills == usage.local == 0
    assert {c.blocks for c in choices} == {1}
    assert len(launched) < 40


def test_explain_tells_why(many):
    f, args = CASES["lstm"]
    text = str(lumjax.explain(lumjax.jit(f, backend="cuda:emulated", search=0), *args))
    assert "11 steps; one kernel of " in text
    assert "us by the model, as launches " in text

    def until(w, x):
        return lumjax.lax.while_loop(lambda h: h.sum() < 9, lambda h: jnp.abs(h @ w) + 1, x)

    f = lumjax.jit(until, backend="cuda:emulated", search=0)
    text = str(lumjax.explain(f, *made((4, 4), (4, 4))))
    assert "holds; launches: how long it goes on is found out as it runs" in text
    assert "; launches" not in str(lumjax.explain(lumjax.jit(until), *made((4, 4), (4, 4))))


MEET = persistent.MEET
FAULTS = {
    "no barrier": (MEET, "__syncthreads();"),
    "a number that is not counted": (MEET, "lj_meet(lj_counter, lj_times);"),
    "a number too high": (MEET, "lj_meet(lj_counter, ++lj_times + 1);"),
    "carries that change places": ("& 1 ? ", "& 2 ? "),
    "the first carry for ever": ("== 0 ? ", ">= 0 ? "),
    "no last carry": (" + 1 == ", " == "),
    "rows from the wrong one": (") * lj_table", " + 1) * lj_table"),
    "jobs of another block": ("= lj_first, ", "= lj_first + 1, "),
    "a table that others have not filled": (
        "lj_times = 0;\n  __syncthreads();", "lj_times = 0;"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_kernel_is_refused(name, monkeypatch, choices, many):
    part, put = FAULTS[name]
    render = persistent.rendered

    def faulty(*args):
        found = render(*args)
        head, body = found.text.split(MEETING)
        assert part in body
        return replace(found, text=head + MEETING + body.replace(part, put))

    monkeypatch.setattr(chosen, "rendered", faulty)
    f, args = CASES["wide"]
    close(emulated(f, args), f(*args), 2e-5, 2e-5)
    assert [c.kernel for c in choices] == [None]


def loop_of(f, args, monkeypatch):
    """A program's loop, and the sizes of its table."""
    found = []

    def choose(*args):
        found.append(args[:2])
        return chosen.Chosen("launches: for a test")

    monkeypatch.setattr(graph, "choose", choose)
    close(emulated(f, args), f(*args), 2e-5, 2e-5)
    return found[0]


def test_what_stands_in_the_way_is_told(monkeypatch):
    f, args = CASES["wide"]
    loop = loop_of(f, args, monkeypatch)
    assert "can't start all blocks at once" in chosen.choose(*loop, None).why
    tiny = Card("tiny", "sm_80", 4, 64, 1, 8 << 10, 8 << 10)
    assert "takes more than a block of tiny has" in chosen.choose(*loop, tiny).why
    cubin = nvrtc.cubin

    def spilling(text, arch):
        usage = {n: replace(u, spills=8) for n, u in cubin(text, arch).usage.items()}
        return types.SimpleNamespace(usage=usage)

    with monkeypatch.context() as patch:
        patch.setattr(chosen.nvrtc, "cubin", spilling)
        assert "it spills 8 bytes on sm_80" in chosen.choose(*loop, A100).why
    with monkeypatch.context() as patch:
        patch.setattr(chosen, "LAUNCH", 1e-9)
        assert chosen.choose(*loop, A100).why.startswith("launches: as one kernel ")
    with monkeypatch.context() as patch:
        patch.setattr(chosen, "MOST_CHECKED", 10)
        patch.setattr(chosen, "_verdicts", {})
        assert "too large to be verified" in chosen.choose(*loop, A100).why
    with monkeypatch.context() as patch:
        patch.setattr(persistent, "MOST_PHASES", 1)
        assert "a step has " in chosen.choose(*loop, A100).why


@pytest.mark.parametrize("units", [1, 2, 5])
def test_there_are_no_more_blocks_than_the_card_holds(units, monkeypatch, many):
    """A small card: blocks do several jobs each, and still all of them are there."""
    card = replace(A100, units=units, blocks=1)
    monkeypatch.setattr(Processor, "card", lambda self: card)
    monkeypatch.setattr(chosen, "LAUNCH", 1.0)
    f, args = CASES["wide"]
    loop = loop_of(f, args, monkeypatch)
    found = chosen.choose(*loop, card)
    assert found.blocks == min(units, found.kernel.wanted)
    monkeypatch.setattr(graph, "choose", chosen.choose)
    close(emulated(f, args), f(*args), 2e-5, 2e-5)


def test_every_card_holds_the_blocks_of_the_examples(monkeypatch):
    f, args = CASES["gradient of wide"]
    loop = loop_of(f, args, monkeypatch)
    for card in CARDS:
        assert chosen.choose(*loop, card).kernel is not None


def test_memory_that_is_used_twice_is_one_region():
    regions = tuple(
        persistent.Region(k, size, grain, None, written)
        for k, (size, grain, written) in enumerate([(64, 4, True), (32, 8, True), (16, 4, False)])
    )
    kernel = persistent.Persistent("", "", 32, 1, 0, (), regions, (), 0, 0)
    room = np.zeros(64, np.int64)
    at = room.ctypes.data
    memory = persistent.memory_of(kernel, at + 384, [at, at + 48, at + 128])
    assert memory.where(at + 70) == "byte 70 of buffer 0 (80 bytes)"
    assert memory.where(at + 130) == "byte 2 of buffer 1 (16 bytes)"
    assert isinstance(memory, ptx.Memory)


def test_the_driver_is_asked_for_blocks_that_start_together(monkeypatch):
    with standin.installed(monkeypatch) as module:
        gpu = standin.Gpu()
        assert gpu.card() == replace(CARDS[0], name="the GPU")
        asked = []

        def raw(path, **more):
            asked.append(more)
            return types.SimpleNamespace(get_function=lambda name: name)

        module.RawModule = raw
        text = 'extern "C" __global__ void k(const long long* t) {}'
        assert device.Cupy.load(gpu, text, ["k"]) == ["k"]
        assert device.Cupy.load(gpu, text, ["k"], together=True) == ["k"]
        assert asked == [{}, {"enable_cooperative_groups": True}]
        gpu._attributes["CooperativeLaunch"] = 0
        assert gpu.card() is None


def golden(monkeypatch):
    f, args = CASES["rnn"]
    loop, values = loop_of(f, args, monkeypatch)
    text = persistent.rendered(loop, chosen.kernel_of, values).text
    return text.removeprefix(HEADER + MEETING).lstrip()


def test_the_golden_source(monkeypatch):
    assert golden(monkeypatch) == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(golden(pytest.MonkeyPatch()), encoding="utf-8")


EMPTY = {
    "all": lambda c, x: (c * 2, jnp.tanh(x)),
    "cumulative": lambda c, x: (c, jnp.cumsum(x)),
    "its sum": lambda c, x: (c * jnp.cos(jnp.sin(c).sum()), jnp.sin(x)),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("carry", [0, 3])
def test_steps_without_elements(name, carry):
    def f(c, xs):
        return lumjax.vjp(lambda c: lumjax.lax.scan(EMPTY[name], c, xs), c)[1]((c, xs))

    args = jnp.ones(carry), jnp.zeros((4, 0))
    close(lumjax.jit(f, backend="cuda:emulated")(*args), f(*args))
