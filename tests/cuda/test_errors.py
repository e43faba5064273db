"""What the device refuses is told with the kernel, the user's line, what is alive, and the plan's
peak: on devices that pretend, with little memory, or that launch nothing, or fail later.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.cuda import device, graph
from lumjax.cuda.chosen import Chosen
from lumjax.cuda.device import DeviceError
from tests.cuda.test_device import Pretended


class Poor(Pretended):
    """A device of `room` bytes that refuses kernels whose names have `odd` in them, and forgets
    what it was asked for when it `breaks`.
    """

    def __init__(self, room=1 << 40, odd=None, breaks=False):
        super().__init__()
        self.room, self.odd, self.breaks = room, odd, breaks

    def alloc(self, size):
        held = sum(b.size for b in self.blocks)
        if held + size > self.room:
            raise device.out_of_memory(size, (self.room - held, self.room))
        return super().alloc(size)

    def launch(self, function, blocks, table):
        if self.odd is not None and self.odd in function.name:
            raise device.refused(function, blocks, RuntimeError("CUDA_ERROR_INVALID_VALUE"))
        super().launch(function, blocks, table)

    def wait(self):
        if self.breaks and self.kept:
            raise device.failed(self.kept, RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS"))
        super().wait()


def told(monkeypatch, made, f, *args):
    """The message of the error that a program ends with on a device."""
    monkeypatch.setattr(device, "current", lambda: made)
    jitted = lumjax.jit(f, backend="cuda", search=0)
    with pytest.raises(DeviceError) as caught:
        jitted(*args)
    return str(caught.value)


def steps(x, w):
    y = jnp.tanh(x @ w)
    z = jnp.cumsum(y, axis=1)
    s = jnp.linalg.cholesky(z[:64] * 0.01 + 90 * jnp.eye(64))
    return jnp.sort(s * 3 - 1, axis=1), y


ARGS = np.ones((300, 40), np.float32), np.ones((40, 64), np.float32)
LINE = {"tanh": 0, "cumsum": 1, "cholesky": 2, "sort": 3}


def line(word):
    return f"test_errors.py:{steps.__code__.co_firstlineno + 1 + LINE[word]}"


def test_memory_that_is_not_there_names_the_step_and_what_is_alive(monkeypatch):
    whole = Poor()
    monkeypatch.setattr(device, "current", lambda: whole)
    lumjax.jit(steps, backend="cuda", search=0)(*ARGS)
    needed = sum(b.size for b in whole.blocks)
    seen = set()
    for room in range(60_000, needed, 10_000):
        text = told(monkeypatch, Poor(room), steps, *ARGS)
        assert re.search(r"requires [\d,]+ bytes", text)
        assert re.search(rf"got [\d,]+ of {room:,} bytes free", text)
        assert re.search(r"the plan's peak is [\d,]+ bytes, arguments not counted", text)
        assert "lumjax.checkpoint" in text
        seen |= {word for word in LINE if f"({line(word)}" in text}
    assert {"tanh", "sort"} <= seen, seen


@pytest.mark.parametrize("word", ["cumsum", "sort"])
def test_a_kernel_that_is_not_launched_is_told_with_its_line(word, monkeypatch):
    text = told(monkeypatch, Poor(odd=word), steps, *ARGS)
    assert re.search(rf"launching {word}_phase0 for \[\d\] kernel o0:f32\[\d+,64\] <- i0 \(", text)
    assert line(word) in text
    assert "CUDA_ERROR_INVALID_VALUE" in text
    assert "blocks of" in text
    assert "alive then: " in text
    assert re.search(r"the plan's peak is [\d,]+ bytes", text)
    if word == "sort":
        assert re.search(r"76,800 bytes of [\w ]+ \(test_errors", text), "y is alive"


@pytest.mark.parametrize("kept", [True, False])
def test_a_kernel_in_a_loop_that_is_not_launched(kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(graph, "choose", lambda *_: Chosen("launches: for a test"))
    word = "loop_" if kept else "sort_phase0"

    def loop(x):
        return lumjax.lax.scan(lambda c, y: (jnp.sort(c) + y, c), x[0], x)

    text = told(monkeypatch, Poor(odd=word), loop, np.ones((30, 50), np.float32))
    assert re.search(rf"launching {word}\w* for", text)
    assert f"test_errors.py:{loop.__code__.co_firstlineno + 1}" in text


def test_work_that_fails_later_names_what_ran(monkeypatch):
    text = told(monkeypatch, Poor(breaks=True), steps, *ARGS)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in text
    assert "since the last wait ran: " in text
    assert "cumsum" in text
    assert "CUDA_LAUNCH_BLOCKING=1" in text


def test_launches_that_block_name_the_kernel(monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    text = told(monkeypatch, Poor(breaks=True), steps, *ARGS)
    assert f"({line('tanh')}" in text


def test_a_program_goes_on_after_an_error(monkeypatch):
    made = Poor(odd="sort")
    monkeypatch.setattr(device, "current", lambda: made)
    f = lumjax.jit(steps, backend="cuda", search=0)
    with pytest.raises(DeviceError):
        f(*ARGS)
    made.odd = None
    for got, want in zip(f(*ARGS), lumjax.jit(steps)(*ARGS), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)
