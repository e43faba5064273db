"""Products whose sides may be rounded: tiles on tensor cores, whole programs, plans, and faults
that are planted into a tile of tf32 and must be found.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import lumjax
import lumjax.dtype as dt
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.cuda import nvrtc, ptx
from lumjax.cuda.header import HEADER
from lumjax.cuda.occupancy import CARDS
from lumjax.cuda.render import render
from lumjax.cuda.runtime import Emulated, compiled
from lumjax.egraph.search import search
from lumjax.kernel.ir import ApplyValue, LoadValue, Loop, LoopKind, Ref, StoreStmt, Tile
from lumjax.kernel.rounded import MAY, exact, may_round
from lumjax.kernel.term import Buffer
from lumjax.target import Backend, Target
from lumjax.trace.form import Rounding
from tests.cpu.kernels import kernel, op, sym
from tests.egraph.planning import TARGET, regions
from tests.kernel.test_rounded import thin

RNG = np.random.default_rng(9)
F32 = dt.float32
CARD = Target(Backend.CUDA, "sm_80", "", 16, 255, 108)
BITS = {Rounding.TF32: 10, Rounding.BF16: 7}
m, n, k, mt, nt = (sym(name) for name in ("m", "n", "k", "mt", "nt"))


def product(M, N, K, rows, cols, rounding, turned=(False, False), left=None):
    """C = A @ B in tiles; both sides may be rounded. `left` makes a term of the left side."""
    A, B = Buffer("a", (K, M) if turned[0] else (M, K), F32), Buffer("b", (K, N), F32)
    B = Buffer("b", (N, K), F32) if turned[1] else B
    C = Buffer("c", (M, N), F32)
    lhs = LoadValue(A, k * M + m if turned[0] else m * K + k)
    rhs = LoadValue(B, n * K + k if turned[1] else k * N + n)
    sides = (left(lhs) if left else lhs, rhs)
    sides = (ApplyValue(MAY[rounding], (v,), F32) for v in sides)
    made = Tile("acc", F32, "m", mt, M, rows, "n", nt, N, cols, (("k", K),), *sides,
                (StoreStmt(C, m * N + n, Ref("acc", F32)),))  # fmt: skip
    inner = Loop("mt", 0, M, rows, LoopKind.SERIAL, (made,))
    return kernel([Loop("nt", 0, N, cols, LoopKind.SERIAL, (inner,))], [C], [A, B], name="product")


def filled(kern):
    return {
        b.name: RNG.normal(size=b.shape).astype(np.float32)
        if b in kern.inputs
        else np.zeros(b.shape, np.float32)
        for b in kern.buffers
    }


def rounded_product(arrays, rounding, turned, times=1.0):
    """Sides rounded, and float64 from there on; and how far float32 sums may be from it."""
    sides = thin(np.float32(times) * arrays["a"], BITS[rounding]), thin(arrays["b"], BITS[rounding])
    wide = (x.astype(np.float64).T if t else x.astype(np.float64) for x, t in zip(sides, turned))
    a, b = wide
    return a @ b, 1e-6 * (np.abs(a) @ np.abs(b))


def check(kern, rounding, turned=(False, False), seed=0, times=1.0):
    made, arrays = compiled(kern), filled(kern)
    want, near = rounded_product(arrays, rounding, turned, times)
    made.run([arrays[b.name].ctypes.data for b in kern.buffers], {}, seed)
    assert (np.abs(arrays["c"] - want) <= near).all()
    sides = (x.T if t else x for x, t in zip((arrays["a"], arrays["b"]), turned))
    full = np.matmul(*(s.astype(np.float64) for s in sides)) * times
    if want.size > 100:
        assert np.abs(arrays["c"] - full).max() > 30 * near.max()
    return made


INSTRUCTIONS = {
    Rounding.TF32: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    Rounding.BF16: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
}


@pytest.mark.parametrize("turned", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize("rounding", Rounding)
def test_a_product_is_that_of_rounded_sides_summed_in_float32(rounding, turned):
    kern = product(40, 48, 72, 32, 32, rounding, turned)
    made = check(kern, rounding, turned, 3)
    text = nvrtc.ptx(made.rendered.text)
    assert INSTRUCTIONS[rounding] in text
    assert ("cp.async.cg.shared.global" in text) == (rounding is Rounding.TF32)
    assert ("cvt.rna.tf32.f32" in text) == (rounding is Rounding.TF32)


@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 9, 33), (5, 70, 3), (33, 31, 65)])
@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.sampled(4)
def test_edges(shape, rounding):
    for turned in ((False, False), (True, True)):
        check(product(*shape, 16, 24, rounding, turned), rounding, turned, 1)


@pytest.mark.parametrize("rounding", Rounding)
def test_a_side_that_is_a_term_is_rounded_as_a_whole(rounding):
    double = op("add", 2, np.add)
    kern = product(20, 24, 40, 16, 16, rounding, left=lambda v: ApplyValue(double, (v, v), F32))
    made = check(kern, rounding, times=2.0)
    assert INSTRUCTIONS[rounding] in nvrtc.ptx(made.rendered.text)


def test_one_side_that_may_be_rounded_is_not():
    kern = product(20, 24, 40, 16, 16, Rounding.TF32)
    (loop,) = kern.phases[0].body
    text = str(loop)
    assert text.count("may_tf32") == 2
    A, B, C = (Buffer(b, s, F32) for b, s in (("a", (20, 40)), ("b", (40, 24)), ("c", (20, 24))))
    lhs = ApplyValue(MAY[Rounding.TF32], (LoadValue(A, m * 40 + k),), F32)
    made = Tile("acc", F32, "m", mt, 20, 32, "n", nt, 24, 32, (("k", 40),), lhs,
                LoadValue(B, k * 24 + n), (StoreStmt(C, m * 24 + n, Ref("acc", F32)),))  # fmt: skip
    inner = Loop("mt", 0, 20, 32, LoopKind.SERIAL, (made,))
    kern = kernel([Loop("nt", 0, 24, 32, LoopKind.SERIAL, (inner,))], [C], [A, B], name="half")
    made, arrays = compiled(kern), filled(kern)
    made.run([arrays[b.name].ctypes.data for b in kern.buffers], {}, 0)
    assert "mma.sync" not in nvrtc.ptx(made.rendered.text)
    np.testing.assert_allclose(arrays["c"], arrays["a"] @ arrays["b"], 1e-5, 1e-5)


@pytest.mark.parametrize("arch", [c.arch for c in CARDS])
@pytest.mark.parametrize("rounding", Rounding)
def test_the_largest_tiles_spill_nothing(rounding, arch):
    made = render(product(256, 256, 256, 128, 128, rounding))
    for usage in nvrtc.cubin(made.text, arch).usage.values():
        assert usage.spills == usage.local == 0


# ---- planted into the text

PLANTED = {
    "two parts of the left side swapped": (r"\{%4, %5, %6, %7\}", "{%4, %6, %5, %7}"),
    "two parts of the right side swapped": (r"\{%8, %9\}", "{%9, %8}"),
    "rows of the left side by one": (r"8 \* \((e_\d+) & 1\)", r"7 * (\1 & 1)"),
    "depths of the left side": (r"4 \* \((e_\d+) >> 1\)", r"2 * (\1 >> 1)"),
    "depths of the right side": (r"\+ 4 \* (e_\d+)\]", r"+ 3 * \1]"),
    "depths that lie side by side": (r"8 \* (d_\d+) \+ \((lane_\d+) & 3\)",
                                     r"8 * \1 + 2 * (\2 & 3)"),
    "columns of a fragment": (r"2 \* \((lane_\d+) & 3\)", r"(\1 & 3)"),
    "half of the steps": (r"(d_\d+) < 2; ", r"\1 < 1; "),
    "a wait too few": (r"lj_wait<1>", "lj_wait<2>"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_in_a_tile_of_tf32_is_found(name):
    """By a check, or by the comparison with float64 that every kernel has to pass."""
    kern = product(36, 40, 104, 32, 32, Rounding.TF32, (False, True))
    rendered = render(kern)
    text = re.sub(*PLANTED[name], rendered.text)
    assert text != rendered.text, "nothing was planted"
    code = ptx.load(nvrtc.ptx(text))
    made = Emulated(kern, rendered, tuple(code[x.name] for x in rendered.launches), "")
    ours = filled(kern)
    want, _ = rounded_product(ours, Rounding.TF32, (False, True))
    try:
        made.on_arrays(kern, ours, {})
    except ptx.ExecutionError:
        return
    assert np.abs(ours["c"] - want).max() > 0.5


# ---- programs


def matrices(*shapes):
    return [jnp.asarray(RNG.normal(size=s), "float32") for s in shapes]


def run(f, *args):
    """What a program gives on cuda:emulated, and its CUDA C."""
    made = lumjax.jit(f, backend="cuda:emulated")
    out = made(*args)
    found = lumjax.explain(made, *args).executable
    assert [x.rejected for s in found.native() for x in s.kernels if x.rejected] == []
    return out, found.as_text().replace(HEADER, "")


ASKED = {
    None: "", "highest": "", "float32": "", "high": "lj_mma_tf32", "default": "lj_mma_tf32",
    "tensorfloat32": "lj_mma_tf32", "bfloat16": "lj_mma_bf16",
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_a_program_is_rounded_as_it_asks(name):
    a, b = matrices((40, 50), (50, 33))
    out, text = run(lambda a, b: jnp.tanh(jnp.matmul(a, b, precision=name)), a, b)
    assert set(re.findall(r"lj_mma_\w+", text)) == ({ASKED[name]} - {""})
    want = np.tanh(np.asarray(a, np.float64) @ np.asarray(b, np.float64))
    unit = {"": 1e-6, "lj_mma_tf32": 2**-10, "lj_mma_bf16": 2**-7}[ASKED[name]]
    assert np.abs(np.asarray(out) - want).max() < 16 * unit


def test_one_program_asks_for_several():
    """Equal products of different precision are no one product, and none changes another."""
    a, b = matrices((24, 40), (40, 16))

    def f(a, b):
        return [jnp.matmul(a, b, precision=p) for p in ("highest", "high", "bfloat16")]

    out, text = run(f, a, b)
    assert text.count("lj_mma_tf32(") == text.count("lj_mma_bf16(") == 1
    exact = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    far = [float(np.abs(np.asarray(y) - exact).max()) for y in out]
    assert far[0] < 1e-4 < far[1] < far[2] / 2


def test_gradients_and_batches_and_convolutions_are_rounded_too():
    def loss(x, w):
        return (jnp.tanh(x @ w) ** 2).sum()

    x, w = matrices((12, 20), (20, 24))
    with lumjax.default_matmul_precision("tensorfloat32"):
        (dx, dw), text = run(lumjax.grad(loss, (0, 1)), x, w)
    assert text.count("lj_mma_tf32(") == 3
    wide = lumjax.grad(loss, (0, 1))(x, w)
    np.testing.assert_allclose(dx, wide[0], 2e-2, 2e-2)
    np.testing.assert_allclose(dw, wide[1], 2e-2, 2e-2)
    y, v = matrices((3, 20, 30), (3, 30, 17))
    _, text = run(lumjax.vmap(lambda a, b: jnp.dot(a, b, precision="high")), y, v)
    assert text.count("lj_mma_tf32(") == 1
    y, v = matrices((2, 4, 9, 9), (8, 4, 3, 3))
    out, text = run(lambda y, v: lax.conv(y, v, (1, 1), "SAME", precision="bfloat16"), y, v)
    assert text.count("lj_mma_bf16(") == 1
    np.testing.assert_allclose(out, lax.conv(y, v, (1, 1), "SAME"), 0.05, 0.1)


# ---- plans

NETWORK = [(16, 32), (32, 48), (48, 8)]


def network(x, w, v):
    h = jnp.maximum(x @ w, 0.0)
    return (jnp.tanh(h @ v) * 3.0).sum(0)


def groups(f, target, *args):
    return [search(r, target).plan.groups for r in regions(f, *args)]


def test_a_plan_for_a_card_differs_in_what_may_be_rounded_only():
    args = matrices(*NETWORK)
    plain = groups(network, CARD, *args)
    with lumjax.default_matmul_precision("tensorfloat32"):
        rounded = groups(network, CARD, *args)
    assert not any(may_round(g) for plan in plain for g in plan)
    assert any(may_round(g) for plan in rounded for g in plan)
    assert [tuple(exact(g, {}) for g in plan) for plan in rounded] == plain


def test_a_plan_for_a_cpu_is_the_one_without():
    args = matrices(*NETWORK)
    plain = groups(network, TARGET, *args)
    with lumjax.default_matmul_precision("bfloat16"):
        assert groups(network, TARGET, *args) == plain


def test_where_exact_sides_allow_more_they_are_taken():
    """A softmax's sum leaves the product with the values only where nothing rounds it."""
    from benchmarks import programs

    f, args = programs.attention(64)
    plain = groups(f, CARD, *args)
    with lumjax.default_matmul_precision("tensorfloat32"):
        rounded = groups(f, CARD, *args)
    assert list(map(len, rounded)) == list(map(len, plain))
