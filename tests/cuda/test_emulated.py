"""Whole programs on `cuda:emulated`, against the CPU backend and the records' own evaluation."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import accelerated, nn
from lumjax import dtype as dt
from lumjax.config import config
from lumjax.cuda import ptx, render
from lumjax.errors import UnsupportedError
from lumjax.executable import Executable
from lumjax.testing.claims import check_program, checks
from lumjax.testing.programs import RandomChooser, build
from lumjax.trace.stage import stage
from tests.test_compiled import CASES, draw, tolerance

RNG = np.random.default_rng(2)


def arrays(*shapes):
    return [jnp.asarray(RNG.normal(size=s).astype(np.float32)) for s in shapes]


def close(a, b, rtol=1e-5, atol=1e-5):
    for x, y in zip(lumjax.tree.leaves(a), lumjax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol, atol)


@pytest.mark.sampled(60)
@pytest.mark.parametrize(("prim", "sample"), CASES)
def test_records(prim, sample):
    rng = np.random.default_rng(0)
    args = [draw(rng, a, sample.low, sample.high) for a in sample.avals]
    staged = stage(lambda *xs: prim.bind(*xs, **sample.params), sample.avals)
    with config.scope(backend="cuda:emulated"):
        made = Executable(staged.jaxpr)
        got = made.run([*staged.consts, *args])
    assert [k.rejected for s in made.native() for k in s.kernels if k.rejected] == []
    want = prim.eval(*args, **sample.params)
    for g, w in zip(got, want, strict=True):
        data, w = g.data, np.asarray(w)
        assert data.shape == w.shape
        assert data.dtype == w.dtype
        if limits := tolerance(w.dtype):
            wide = np.complex128 if dt.is_complex(w.dtype) else np.float64
            np.testing.assert_allclose(data.astype(wide), w.astype(wide), **limits)
        else:
            np.testing.assert_array_equal(data, w)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("index", range(100))
def test_random_programs_are_the_interpreters(index):
    """`python -m lumjax.testing --backend cuda:emulated` runs them by the thousand."""
    program = build(RandomChooser(3 * 1_000_003 + index), flow=index % 4 == 0)
    check_program(program, backend="cuda:emulated")


def test_a_program_that_another_backend_gets_wrong_is_found(monkeypatch):
    program = build(RandomChooser(3 * 1_000_003 + 1))
    text = checks(program, backend="cuda:emulated")[0].text
    assert "backends=['cuda:emulated'], interpret=True" in text
    monkeypatch.setattr(accelerated, "target_of", lambda name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        check_program(program, backend="cuda:emulated")


def loss(w, x, labels):
    """The cross entropy of a layer with labels."""
    logits = nn.log_softmax(jnp.tanh(x @ w))
    return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1))


def test_a_training_step_equals_the_cpus():
    x, w = arrays((9, 12), (12, 7))
    labels = jnp.asarray(RNG.integers(0, 7, 9))
    step = lumjax.value_and_grad(loss)
    emulated = lumjax.jit(step, backend="cuda:emulated", search=0)
    first = emulated(w, x, labels)
    close(first, lumjax.jit(step, search=0)(w, x, labels))
    again = emulated(w, x, labels)
    for p, q in zip(lumjax.tree.leaves(first), lumjax.tree.leaves(again), strict=True):
        assert np.asarray(p).tobytes() == np.asarray(q).tobytes()


def test_explain_tells_of_the_target_and_of_what_has_no_kernel():
    def f(x):
        total, rows = lumjax.lax.scan(
            lambda c, y: (c + jnp.linalg.cholesky(y), c), jnp.zeros((3, 3)), x
        )
        return rows, total * 2

    x = jnp.arange(5.0, 35)[:, None, None] * jnp.eye(3)
    g = lumjax.jit(f, backend="cuda:emulated", search=0)
    close(g(x), lumjax.jit(f)(x))
    report = lumjax.explain(g, x)
    text = str(report)
    assert "on cuda (sm_80" in text
    assert "eval: scan: cholesky in it runs through eval: " in text
    assert "__global__" in report.executable.as_text()


LOOPS = {
    "scan": lambda x: lumjax.lax.scan(lambda c, y: (c * 0.5 + jnp.sin(y), c), jnp.zeros(3), x),
    "from the end": lambda x: lumjax.lax.scan(
        lambda c, y: (jnp.tanh(c) + y, c * y), x[0], x, reverse=True),
    "no step": lambda x: lumjax.lax.scan(lambda c, y: (c + y, c), jnp.ones(3), x[:0])[0],
    "a carry that stays": lambda x: lumjax.lax.scan(
        lambda c, y: ((c[0] + y, c[1]), c[1] * y), (x[0], x[1]), x),
    "while": lambda x: lumjax.lax.while_loop(
        lambda c: jnp.sum(c[1]) < 100, lambda c: (c[0] + 1, c[1] * 1.5 + 1), (0, jnp.abs(x[0]))),
    "while that does nothing": lambda x: lumjax.lax.while_loop(
        lambda c: jnp.sum(c) > 1e9, lambda c: c * 2, x),
    "choice": lambda x: [
        lumjax.lax.switch(k, [jnp.sin, jnp.cos, lambda v: v * 2 + 1], x) for k in (
            jnp.argmax(x[0]), jnp.argmin(x[0]))],
    "choice in a loop": lambda x: lumjax.lax.scan(
        lambda c, y: (lumjax.lax.cond(y[0] > 0, lambda: c + y, lambda: c * 0.5), c), x[0], x),
    "loop in a loop": lambda x: lumjax.lax.fori_loop(
        0, 3, lambda k, c: lumjax.lax.scan(lambda d, y: (d + y * k, None), c, x)[0], x[0]),
    "gradient": lumjax.grad(lambda x: lumjax.lax.scan(
        lambda c, y: (jnp.tanh(c + y), c), jnp.zeros(3), x)[0].sum()),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_choices_are_launches(name):
    (x,) = arrays((7, 3))
    f = lumjax.jit(LOOPS[name], backend="cuda:emulated", search=0)
    close(f(x), lumjax.jit(LOOPS[name], search=0)(x))
    close(f(x), LOOPS[name](x))
    assert list(lumjax.explain(f, x).executable.evaluated()) == []


def test_a_backend_that_is_not_known_is_refused():
    with pytest.raises(UnsupportedError, match="'cuda:emulated', which runs CUDA kernels"):
        accelerated.target_of("cuda:odd")


def test_a_kernel_without_its_barriers_is_refused(monkeypatch):
    """What verification sees of a faulty renderer: the kernel is not used, one without sums of
    blocks is in its place.
    """
    monkeypatch.setattr(render, "HEADER", render.HEADER.replace("__syncthreads();", ""))
    with config.scope(backend="cuda:emulated", cache=False):
        (x,) = arrays((3, 300))
        made = lumjax.jit(lambda x: x.sum(1) * 1.5, search=0)
        got = made(x)
        stages = lumjax.explain(made, x).executable.native()
    (kernel,) = (k for s in stages for k in s.kernels)
    assert "races" in kernel.rejected or "nothing has written" in kernel.rejected
    close(got, np.asarray(x).sum(1) * 1.5)


def test_what_a_kernel_does_wrong_ends_the_call(monkeypatch):
    """Without verification, the checks of each launch still stand."""
    (x,) = arrays((300,))
    f = lumjax.jit(lambda x: x * 3.25 + 1, backend="cuda:emulated")
    f(x)
    table = ptx.Memory.add_bytes
    monkeypatch.setattr(
        ptx.Memory, "add_bytes", lambda self, address, size, *more: table(self, address, 16, *more)
    )
    with pytest.raises(ptx.ExecutionError, match="out of bounds"):
        f(x)


def test_the_cpu_never_loads_the_cuda_backend(tmp_path):
    import subprocess
    import sys

    script = (
        "import sys, lumjax, lumjax.numpy as jnp\n"
        "lumjax.jit(lambda x: x + 1)(jnp.ones(3))\n"
        "print([m for m in sys.modules if 'lumjax.cuda' in m or 'accelerated' in m])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
    assert accelerated.target_of("cuda:emulated").arch == "sm_80"
