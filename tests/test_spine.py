"""How many files a call crosses, and how many files a new primitive touches."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, ops
from lumjax.compile import compiler, recaller
from lumjax.grad.forward import jvp
from lumjax.ops.elementwise import unary
from lumjax.ops.record import FLOATS
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import vmap
from lumjax.trace.core import Sample
from lumjax.trace.form import Expand

PACKAGE = Path(lumjax.__file__).parent

# The files to read, in this order, to follow jit(grad(f)) from the call to the machine code.
SPINE = [
    "compile.py", "trace/stage.py", "grad/reverse.py", "grad/forward.py", "trace/core.py",
    "ops/elementwise.py", "egraph/search.py", "kernel/lower.py", "cpu/render.py", "cpu/runtime.py",
]  # fmt: skip

# Looked up, not passed through: words (floor 0, dims, views, avals, forms, arrays), and the rooms
# off the spine that the search, the simplifier, calls, reductions, views and public wrappers are.
WORDS = {
    "record.py", "errors.py", "config.py", "dtype.py", "aligned.py", "tree.py", "target.py",
    "trace/dim.py",
    "trace/expr.py", "trace/indexop.py", "trace/view.py", "trace/aval.py", "trace/form.py",
    "trace/array.py",
}  # fmt: skip
ROOMS = (
    "executable.py", "expansion.py", "native.py", "nested.py", "placement.py", "stages.py",
    "layout.py", "placed.py", "concrete.py", "timeline.py", "store.py", "workers.py", "misses.py",
    "options.py", "debugging/", "trace/batch.py", "fixed.py", "inplace.py", "dynamic.py",
    "sized.py", "lookup.py", "ownership.py", "decorator.py",
    "background.py", "ready.py", "recall.py", "signature.py", "encoding.py", "runner.py",
    "trace/simplify.py", "trace/check.py", "trace/show.py", "ops/",
    "numpy/",
    "lax.py", "grad/mask.py", "grad/linear.py", "kernel/", "egraph/", "cpu/", "control/call.py",
    "control/staging.py", "__init__.py",
)  # fmt: skip


def crossed(run) -> list[str]:
    """Files of the package entered while `run` runs, in order of first entry."""
    compiler(), recaller()  # so that running files are told from files being loaded
    files: dict[str, None] = {}

    def watch(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(PACKAGE)):
            files.setdefault(Path(name).relative_to(PACKAGE).as_posix())

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(files)


def test_jit_of_grad_crosses_ten_files(tmp_path):
    x = jnp.arange(8.0)

    def f(x):
        return lax.reduce_sum(ops.mul(ops.sin(x), x), (0,))

    with lumjax.config.scope(cache_dir=str(tmp_path)):
        files = crossed(lambda: lumjax.jit(lumjax.grad(f))(x))
    spine = [f for f in files if f in SPINE]
    rest = [f for f in files if f not in SPINE and f not in WORDS]
    strangers = [f for f in rest if not f.startswith(ROOMS)]
    assert set(spine) == set(SPINE), "a spine file was not needed, or the spine is another one"
    assert not strangers, f"files that are neither spine, words nor named rooms: {strangers}"


def test_a_second_call_crosses_few_files():
    step = lumjax.jit(lambda x: jnp.sin(x) * 2)
    x = jnp.ones(4)
    step(x)
    files = crossed(lambda: step(x))
    allowed = {
        "compile.py", "executable.py", "runner.py", "cpu/runtime.py", "cpu/pool.py", "cpu/arena.py",
        "cpu/objects.py", "trace/core.py", "trace/array.py", "config.py", "tree.py", "lookup.py",
        "aligned.py", "recall.py",
    }  # fmt: skip
    assert set(files) <= allowed, set(files) - allowed


def test_a_new_primitive_is_one_record():
    """Everything about a new operation fits in the record below; no other file knows of it."""
    softstep_p, softstep = unary(
        "softstep_of_this_test",
        lambda x: x / (1 + np.abs(x)),
        FLOATS,
        "x / (1 + |x|).",
        form=Expand(),
        tangent=lambda t, x, _: ops.div(t, ops.square(ops.add(1.0, ops.abs(x)))),
        expand=lambda x: ops.div(x, ops.add(1.0, ops.abs(x))),
    )
    x = jnp.linspace(-2.0, 2.0, 7)
    want = np.asarray(x) / (1 + np.abs(np.asarray(x)))
    slope = 1 / (1 + np.abs(np.asarray(x))) ** 2
    np.testing.assert_allclose(softstep(x), want, rtol=1e-6)
    np.testing.assert_allclose(lumjax.jit(softstep)(x), want, rtol=1e-6)
    np.testing.assert_allclose(vmap(softstep)(x), want, rtol=1e-6)
    np.testing.assert_allclose(vmap(lumjax.grad(softstep))(x), slope, rtol=1e-5)
    np.testing.assert_allclose(jvp(lumjax.jit(softstep), (x,), (jnp.ones(7),))[1], slope, rtol=1e-5)
    assert softstep_p.samples
    assert isinstance(softstep_p.samples[0], Sample)
    assert isinstance(softstep_p.samples[0].avals[0], ShapedArray)
