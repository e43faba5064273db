"""What kernels take of a card: from the compiler, for each declared architecture, without a GPU."""

from __future__ import annotations

import pytest

import lumjax.dtype as dt
from lumjax import accelerated
from lumjax.config import config
from lumjax.cuda import nvrtc
from lumjax.cuda.nvrtc import Usage
from lumjax.cuda.occupancy import A100, CARDS, H200, SMALL, resident, why_not
from lumjax.cuda.render import Launch, Rendered, render
from lumjax.cuda.runtime import compiled
from lumjax.executable import Executable
from lumjax.trace.stage import stage
from tests.cuda.test_nvrtc import SPILLING
from tests.cuda.test_tiles import product
from tests.test_compiled import CASES

ARCHITECTURES = ("sm_80", "sm_90a")
# Kernels that may keep something in memory on an architecture, and why.
EXCEPTIONS = {}


@pytest.mark.parametrize(
    ("card", "taken", "threads", "added", "want"),
    [
        (A100, Usage(32, 0, 0, 0), 256, 0, 8),  # all 2048 threads
        (A100, Usage(33, 0, 0, 0), 256, 0, 6),  # 40 registers for each: 48 warps
        (H200, Usage(128, 0, 0, 0), 256, 0, 2),
        (H200, Usage(255, 0, 0, 0), 256, 0, 1),
        (A100, Usage(32, 0, 40 << 10, 0), 256, 0, 4),  # 41 of 164 KiB
        (A100, Usage(32, 0, 0, 0), 256, 160 << 10, 1),
        (SMALL, Usage(32, 0, 0, 0), 256, 160 << 10, 0),  # more than a block has
        (SMALL, Usage(16, 0, 0, 0), 32, 0, 16),  # no more blocks than 16
        (SMALL, Usage(16, 0, 0, 0), 1024, 0, 1),  # 1536 threads
    ],
)
def test_resident_blocks(card, taken, threads, added, want):
    assert resident(card, taken, threads, added) == want


def test_what_spills_or_does_not_fit_is_dropped():
    spilling = Rendered(SPILLING, (Launch("many", 1024, True, 0),))
    assert "many spills" in why_not(spilling, "sm_80")
    kern = product(64, 64, 64, 64, 64)
    made = render(kern)
    assert why_not(made, "sm_80") is None
    (launch,) = made.launches
    large = Rendered(made.text, (Launch(launch.name, launch.threads, False, 200 << 10),))
    assert "more than a block of A100 has" in why_not(large, "sm_80")


def test_the_next_smaller_tiles_are_taken_where_large_ones_spill(monkeypatch):
    """Contractions choose among tiles; here every kernel of more than 64 rows is said to spill."""
    seen = []

    def judged(rendered, arch):
        seen.append(rendered.launches[0].shared)
        return "it spills" if len(seen) == 1 else None

    import lumjax
    import lumjax.numpy as jnp

    monkeypatch.setattr(accelerated, "why_not", judged)
    a, b = jnp.ones((5, 1024, 24), jnp.bfloat16), jnp.ones((24, 1024), jnp.bfloat16)
    with config.scope(backend="cuda:emulated", cache=False, verify=False):
        f = lumjax.jit(lambda a, b: a @ b, search=0)
        found = f.lower(a, b).compile().executable
    assert len(seen) == 2
    assert seen[1] < seen[0]
    (kernel,) = (k for s in found.native() for k in s.kernels)
    text = compiled(kernel.compiled.kernel).rendered.text
    assert "[3][64][40]" in text


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16], ids=str)
def test_the_largest_tiles_take_registers_and_spill_nothing(dtype, arch):
    side = 128 if dtype != dt.float64 else 64
    made = render(product(256, 256, 256, side, side, dtype))
    usage = nvrtc.cubin(made.text, arch).usage
    for launch in made.launches:
        taken = usage[launch.name]
        assert taken.spills == taken.local == 0
        card = next(c for c in CARDS if c.arch == arch)
        assert resident(card, taken, launch.threads, launch.shared) >= 1


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("prim", "sample"), CASES)
def test_kernels_of_records_compile_for_each_architecture(prim, sample):
    """To machine code that spills nothing, without a remark that anything was put in order."""
    staged = stage(lambda *xs: prim.bind(*xs, **sample.params), sample.avals)
    with config.scope(backend="cuda:emulated", search_evaluations=0):
        made = Executable(staged.jaxpr)
    for kernel in made.kernels():
        rendered = compiled(kernel.compiled.kernel).rendered
        for arch in ARCHITECTURES:
            if (prim.name, arch) in EXCEPTIONS:
                continue
            code = nvrtc.cubin(rendered.text, arch)
            assert "C75" not in code.log
            assert why_not(rendered, arch) is None
