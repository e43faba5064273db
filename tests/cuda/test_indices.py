"""Index arithmetic of 32 bits: where bounds prove that it is enough, and only there."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import accelerated, nn
from lumjax.cuda import nvrtc, runtime
from lumjax.cuda.header import HEADER
from lumjax.cuda.render import render
from tests.cuda.test_emulated import arrays, close

IDS = jnp.asarray(np.asarray([3, 0, 29, 7, -1, 12], np.int32))
PROGRAMS = {
    "transposed": (lambda x: x.T * 2 + 1, [(30, 50)]),
    "rows": (lambda x: nn.softmax(x, axis=1), [(20, 70)]),
    "columns": (lambda x: x.sum(0) * 2, [(60, 9)]),
    "gather": (lambda x: x[IDS] * 2, [(30, 16)]),
    "broadcast": (lambda x, y: x[:, None] + y[None], [(5, 16), (6, 16)]),
    "reshaped": (lambda x: x.reshape(15, 40).T + 1, [(20, 30)]),
    "turned": (lambda x: jnp.roll(x, 3, 1) + jnp.flip(x, 0), [(12, 20)]),
    "scattered": (lambda x: x.at[IDS].add(2.0), [(30, 8)]),
}  # fmt: skip


def kernels_of(monkeypatch, f, args):
    found = []
    compiled = runtime.compiled
    accelerated._found.clear()

    def grab(kernel, arch="sm_80"):
        found.append(kernel)
        return compiled(kernel, arch)

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "compiled", grab)
        g = lumjax.jit(f, backend="cuda:emulated", search=0)
        close(g(*args), f(*args))
    return found


def short(kernel):
    """Whether index arithmetic is of 32 bits: in some phase, if not in all."""
    text = render(kernel).text.removeprefix(HEADER)
    return bool(re.search(r"for \(i32 \w+ = ", text))


def large(kernel, size=1 << 40):
    """The kernel as it is for a program with large extents."""
    return replace(kernel, extents=tuple(size for _ in kernel.extents))


@pytest.mark.parametrize("name", PROGRAMS)
def test_safe_indices_have_32_bits_and_others_64(name, monkeypatch):
    f, shapes = PROGRAMS[name]
    found = kernels_of(monkeypatch, f, arrays(*shapes))
    assert any(map(short, found))
    for kernel in found:
        if short(kernel) and "n0" in kernel.sizes:
            text = render(large(kernel)).text.removeprefix(HEADER)
            assert "i32 job" not in text
            assert re.search(r"const i64 n0 = table\[\d+\];", text)
            nvrtc.cubin(HEADER + text)


def test_the_limit_is_that_of_the_largest_index(monkeypatch):
    (kernel, *_) = kernels_of(monkeypatch, lambda x: x.T * 3, arrays((30, 50)))
    count = len(kernel.extents)
    for rows, wanted in ((1 << 15, True), ((1 << 15) + 1, False), (1 << 31, False)):
        extents = (rows,) * count
        assert short(replace(kernel, extents=extents)) == wanted, rows


def test_a_size_without_a_bound_keeps_64_bits(monkeypatch):
    (kernel, *_) = kernels_of(monkeypatch, lambda x: x.T * 5, arrays((30, 50)))
    assert short(kernel)
    assert not short(replace(kernel, extents=()))


def test_the_compiler_needs_no_more_registers(monkeypatch):
    """Together: one kernel may take a few more, for code that is shorter."""
    ours = theirs = 0
    for name in ("transposed", "rows", "gather", "reshaped"):
        f, shapes = PROGRAMS[name]
        for kernel in kernels_of(monkeypatch, f, arrays(*shapes)):
            first, second = (nvrtc.cubin(render(k).text).usage for k in (kernel, large(kernel)))
            ours += sum(u.registers for u in first.values())
            theirs += sum(u.registers for u in second.values())
            assert all(u.spills == 0 for u in first.values())
    assert ours < theirs
