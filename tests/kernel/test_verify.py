"""Verification accepts right kernels and catches planted bugs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.errors import VerificationError
from lumjax.kernel import ir, verify
from lumjax.kernel.bounds import prove_bounds
from lumjax.kernel.emit import MULTIPLY
from lumjax.kernel.emulate import emulate
from lumjax.kernel.evaluate import evaluate, strain
from lumjax.kernel.guard import Canaries, guarded
from lumjax.kernel.lower import lower
from lumjax.kernel.prepare import parametrise
from lumjax.kernel.term import Index, Load
from lumjax.kernel.verify import check_kernel
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.kernel.build import (
    SUM,
    TARGET,
    axis,
    buf,
    group,
    lit,
    load,
    op,
    reduce,
    root,
    sym,
)
from tests.kernel.mutate import once, rebuild
from tests.kernel.test_contract import matmul
from tests.kernel.test_row import layer_norm_backward, softmax_terms


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(verify, "REDUCED_WORK", 200)  # the interpreter is slow


def example(name):
    if name == "map":
        i, j = axis("i", 9), axis("j", 11)
        return group(
            root("o", (i, j), op("add", load("x", i, j), op("mul", load("y", j), lit(0.5))))
        )
    if name == "softmax":
        i, k = axis("i", 5), axis("k", 13)
        return group(root("o", (i, k), softmax_terms(i, k)))
    if name == "layer norm":
        return group(*layer_norm_backward(axis("i", 7), axis("k", 6)))
    m, n, k = axis("m", 9), axis("n", 10), axis("k", 7)
    return group(root("o", (m, n), op("add", matmul("NT", m, n, k), load("b", n))))


EXAMPLES = ["map", "softmax", "layer norm", "matmul"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_right_kernels_are_accepted(name):
    g = example(name)
    for seed in range(4):
        verdict = check_kernel(lower(g, TARGET), g, emulate, seed=seed)
        assert verdict.ok, verdict


def is_loop(node):
    return isinstance(node, ir.Loop)


def is_kind(kind):
    return lambda node: isinstance(node, kind)


def calls(name):
    return lambda node: isinstance(node, ir.ApplyValue) and node.op.name == name


def stores(node):
    return is_loop(node) and any(isinstance(s, ir.StoreStmt) for s in node.body)


def sums(node):
    return isinstance(node, ir.Accumulator) and node.op is ReduceOp.SUM


def other_operation(node):
    return isinstance(node, ir.ApplyValue) and node.op.arity == 2 and node.op.name != "mul"


MUTATIONS = {
    "loop ends early": (is_loop, lambda s: replace(s, end=s.end - 1)),
    "loop ends late": (is_loop, lambda s: replace(s, end=s.end + 1)),
    "storing loop starts late": (stores, lambda s: replace(s, begin=s.begin + 1)),
    "store one too far": (is_kind(ir.StoreStmt), lambda s: replace(s, offset=s.offset + 1)),
    "load one too far": (is_kind(ir.LoadValue), lambda s: replace(s, offset=s.offset + 1)),
    "load too near": (is_kind(ir.LoadValue), lambda s: replace(s, offset=s.offset - 1)),
    "load from the start": (is_kind(ir.LoadValue), lambda s: replace(s, offset=0)),
    "wrong operation": (other_operation, lambda v: replace(v, op=MULTIPLY)),
    "last job missing": (is_kind(ir.Phase), lambda p: replace(p, jobs=p.jobs - 1)),
    "nothing stored": (is_kind(ir.StoreStmt), lambda s: replace(s, mask=0)),
    "sum starts at one": (
        sums,
        lambda a: replace(a, init=ir.Const(a.dtype, np.ones((), a.dtype).tobytes())),
    ),
    "tile too small": (is_kind(ir.Tile), lambda t: replace(t, rows=t.rows - 1)),
    "k one short": (is_kind(ir.Tile), lambda t: replace(t, k=((t.k[0][0], t.k[0][1] - 1),))),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_planted_bugs_are_caught(name, mutation):
    g = example(name)
    kernel = lower(g, TARGET)
    bad = rebuild(kernel, once(*MUTATIONS[mutation]))
    if repr(bad) != repr(kernel):  # else there is nothing of the kind in this kernel
        assert not check_kernel(bad, g, careless).ok


def careless(kernel, buffers, sizes):
    """Run the kernel; an access out of range is not detected here."""
    with contextlib.suppress(VerificationError, KeyError):
        emulate(kernel, buffers, sizes)


def test_an_unprovable_gather_is_refused():
    i = axis("i", 5)
    rows = load("rows", i, dtype=np.int32)
    wild = Load(buf("table", 4), (dims.symbol("g", 0, 3),), indices=(("g", rows),))
    g = group(root("o", (i,), wild))
    kernel = lower(g, TARGET)
    (breach,) = prove_bounds(kernel, dict(zip(kernel.sizes, kernel.extents, strict=True)))
    assert breach.buffer == "table"


def test_overflow_is_judged_in_the_terms_own_dtype():
    i = axis("i", 5)
    x = load("x", i)
    e = op("exp", op("exp", op("mul", op("mul", x, x), lit(2.0))))
    g = group(root("o", (i,), op("div", lit(1.0), e)))
    assert check_kernel(lower(g, TARGET), g, emulate).ok


def test_a_jump_is_excused_where_rounding_decides():
    i, k = axis("i", 3), axis("k", 2)
    total = reduce(SUM, k, op("mul", load("x", i, k), load("y", k)))
    positive = op("select", op("lt", lit(0.0), total), lit(1.0), lit(-1.0))
    r = root("o", (i,), positive)
    x = np.array([[1, -1], [1, 1], [-1, -1]], np.float32)  # the first sum is 0 but for rounding
    arrays = {"x": x, "y": np.ones(2, np.float32)}
    kernel = lower(group(r), TARGET)
    check = verify._Check(kernel, parametrise(group(r)), emulate, 0)
    sizes = verify.traced_sizes(kernel, {})
    (root_,) = check.prepared.group.roots
    wide = evaluate(root_, arrays, sizes, wide=True)

    def again(wide, seed):
        return check.again(root_, arrays, sizes, None, wide, seed)

    assert verify.compare(root_, np.float32([1, 1, -1]), wide, again, "").ok
    assert not verify.compare(root_, np.float32([-1, 1, 1]), wide, again, "").ok


def test_an_infinity_whose_sign_is_rounding_is_accepted():
    """One over a sum that cancels: which infinity it is depends on the order of the sum."""
    root_ = root("o", (axis("i", 2),), load("x", axis("i", 2)))
    wide = np.array([np.inf, 1.0])

    def either(_, seed):
        return np.array([np.inf if (seed or 0) % 2 == 0 else -np.inf, 1.0])

    def always(_, seed):
        return wide

    assert verify.compare(root_, np.float32([-np.inf, 1]), wide, either, "").ok
    assert not verify.compare(root_, np.float32([-np.inf, 1]), wide, always, "").ok
    assert not verify.compare(root_, np.float32([3, 1]), wide, either, "").ok


def test_canaries_notice_writes_outside():
    canaries = Canaries()
    x = canaries.empty("x", (3, 5), np.dtype(np.float32))
    x[...] = 1
    assert canaries.broken() == []
    outside = np.lib.stride_tricks.as_strided(x, (16,), (4,))
    outside[15] = 0
    assert canaries.broken() == ["x"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect")
def test_a_guarded_array_faults_behind_its_end():
    x = guarded((3, 5), np.dtype(np.float32))
    x[...] = 2
    assert x.sum() == 30
    script = (
        "import numpy as np; from lumjax.kernel.guard import guarded; import ctypes;"
        "x = guarded((7,), np.dtype(np.float32));"
        "ctypes.c_float.from_address(x.ctypes.data + 28).value"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode < 0


def test_cancellation_is_judged_by_rounding_errors():
    x, y = load("x"), load("y")
    total = op("mul", op("add", x, y), lit(3.0))
    same = op("add", op("mul", x, lit(3.0)), op("mul", y, lit(3.0)))
    g = group(root("o", (), op("sub", total, same)))  # zero but for rounding
    for seed in range(8):
        assert check_kernel(lower(g, TARGET), g, emulate, seed=seed).ok
    bad = group(root("o", (), op("sub", total, op("mul", same, lit(1.001)))))
    assert not check_kernel(lower(bad, TARGET), g, emulate).ok


def test_masks_bound_quotients():
    i = axis("i", 9)
    odd = dims.equal(dims.remainder(sym(i), 2), 1)
    inside = dims.logical_and(odd, dims.less(sym(i), 6))
    spread = Load(buf("x", 3), (dims.floor_divide(sym(i), 2),), inside, lit(0.0))
    g = group(root("o", (i,), spread))
    kernel = lower(g, TARGET)
    assert prove_bounds(kernel, verify.traced_sizes(kernel, {})) == ()
    assert check_kernel(kernel, g, emulate).ok


def test_masks_bound_clamped_indices():
    """A gather from the second of two pieces of four: its index is clamped to both."""
    i = axis("i", 9)
    rows = load("rows", i, dtype=np.int32)
    place = dims.minimum(dims.maximum(dims.symbol("g", None, None), 0), 7)

    def breaches(least):
        second = Load(
            buf("x", 4), (place - 4,), dims.less_equal(least, place), lit(0.0), (("g", rows),)
        )
        g = group(root("o", (i,), second))
        kernel = lower(g, TARGET)
        if least == 4:
            assert check_kernel(kernel, g, emulate).ok
        return prove_bounds(kernel, verify.traced_sizes(kernel, {}))

    assert breaches(4) == ()
    assert breaches(3), "one element before the first"


LEFT = dims.minimum(8, 20 - 8 * dims.symbol("job"))  # of 20 rows of 4, eight by eight
FROM = dims.maximum(8 * dims.symbol("job") - 2, 0)  # two rows before them, where there are any
STRETCHES = {
    "rows": (0, 4 * LEFT, 32 * dims.symbol("job") + dims.symbol("x")),
    "from the end": (0, 4 * LEFT, 32 * dims.symbol("job") + 4 * LEFT - 1 - dims.symbol("x")),
    "from a maximum": (4 * FROM, 4 * FROM + 8, dims.symbol("x")),
    "a minimum and a maximum": (4 * FROM, 32 * dims.symbol("job") + 4 * LEFT, dims.symbol("x")),
}


@pytest.mark.parametrize("name", STRETCHES)
def test_multiples_of_minima_and_maxima_are_ends_of_loops(name):
    begin, end, offset = STRETCHES[name]
    touched = [
        dims.evaluate(offset, {"job": job, "x": x})
        for job in range(3)
        for x in range(dims.evaluate(begin, {"job": job}), dims.evaluate(end, {"job": job}))
    ]
    one = ir.Const(dt.float32, np.ones((), dt.float32).tobytes())

    def breaches(elements, shift=0):
        out = buf("o", elements)
        store = ir.StoreStmt(out, offset + shift, one)
        loop = ir.Loop("x", begin, end, 1, ir.LoopKind.SERIAL, (store,))
        phase = ir.Phase("job", 3, (loop,))
        return prove_bounds(ir.Kernel("k", (out,), (), (), (), (), (phase,), ()), {})

    assert breaches(max(touched) + 1) == ()
    assert breaches(max(touched)), "one element too few"
    assert breaches(max(touched) + 1, -1 - min(touched)), "one element before the first"


def test_inputs_are_scaled_down_where_exact_values_overflow():
    """A power of a row statistic that is an input here need not be small, as the program's is."""
    i, k = axis("i", 5), axis("k", 13)

    def powers(factor):
        grown = op("exp", op("mul", load("x", i, k), lit(factor)))
        return group(root("o", (i,), reduce(SUM, (k,), grown)))

    right, wrong = powers(100.0), powers(99.0)
    kernel = lower(right, TARGET)
    assert check_kernel(kernel, right, emulate).ok
    assert not check_kernel(kernel, wrong, emulate).ok


def test_results_that_are_large_for_all_inputs_are_checked_as_they_are():
    i, k = axis("i", 5), axis("k", 13)

    def masked(factor):
        value = op("mul", load("x", i, k), lit(factor))
        positive = op("lt", lit(0.0), load("y", i, k))
        return group(root("o", (i, k), op("select", positive, value, lit(-3e38))))

    kernel = lower(masked(2.0), TARGET)
    check = verify._Check(kernel, parametrise(masked(2.0)), emulate, 0)
    sizes = verify.traced_sizes(kernel, {})
    assert check.at(sizes, verify.Values.MODERATE, "", 0).ok
    assert (check.factor, check.scales) == (1.0, False)


@pytest.mark.parametrize("dtype", [dt.bfloat16, dt.float16, dt.float32])
def test_a_sum_that_is_zero_once_rounded_may_be_zero(dtype):
    """The traced program rounds it; a kernel need not."""
    half = float(dt.finfo(dtype).eps) / 4
    i = axis("i", 2)
    total = op("add", load("x", i, dtype=dtype), load("y", i, dtype=dtype))
    difference = op("sub", total, load("x", i, dtype=dtype))
    root_ = root("o", (i,), op("mul", difference, lit(np.inf, dtype)))
    arrays = {"x": np.array([1, 1], dtype), "y": np.array([half, 1], dtype)}
    wide = evaluate(root_, arrays, wide=True)
    assert np.all(wide == np.inf)

    def again(wide, seed):
        return evaluate(root_, arrays, None, wide, seed)

    assert verify.compare(root_, np.array([np.nan, np.inf], dtype), wide, again, "").ok
    assert not verify.compare(root_, np.array([np.inf, np.nan], dtype), wide, again, "").ok


def test_what_may_overflow_is_not_judged_but_all_else_is():
    """Sums of 16-bit numbers: some elements are beyond the largest, whatever the inputs are."""
    i = axis("i", 8)
    grown = op("mul", load("x", i, dtype=dt.float16), Index(sym(i) * 20000, dt.float16))
    small = op("div", grown, lit(1e4, dt.float16))
    root_ = root("o", (i,), small)
    arrays = {"x": np.ones(8, np.float16)}
    wide = evaluate(root_, arrays, wide=True)
    again = partial(evaluate, root_, arrays, None)

    def outside():
        return strain(root_, arrays) >= verify.STRAIN

    got = wide.astype(np.float16)
    got[4:] = 1
    verdict = verify.compare(root_, got, wide, again, "", outside)
    assert verdict.ok
    assert verdict.unjudged == 7 / 8
    assert not verify.compare(root_, got, wide, again, "").ok
    got[0] = 1
    assert not verify.compare(root_, got, wide, again, "", outside).ok
