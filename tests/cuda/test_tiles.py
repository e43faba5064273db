"""Tiles of contractions: copies ahead of products, tensor cores for 16-bit floats, and faults in
either that are planted into what is rendered and must be found.
"""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.dtype as dt
import lumjax.numpy as jnp
from lumjax.cuda import nvrtc, ptx, tile
from lumjax.cuda.header import HEADER
from lumjax.cuda.render import render
from lumjax.cuda.runtime import Emulated, compiled
from lumjax.kernel.emit import CAST
from lumjax.kernel.ir import ApplyValue, LoadValue, Loop, LoopKind, Ref, StoreStmt, Tile
from lumjax.kernel.term import Buffer
from tests.cpu.kernels import kernel, op, sym
from tests.cuda.test_render import data

RNG = np.random.default_rng(8)
F32 = dt.float32
m, n, k, mt, nt = (sym(name) for name in ("m", "n", "k", "mt", "nt"))
SIXTEEN = [dt.bfloat16, dt.float16]


def product(M, N, K, rows, cols, dtype=F32, turned=(False, False), left=None, name="product"):
    """C = A @ B in tiles; `turned` sides are stored the other way around. `left` makes a term of
    the left side.
    """
    A = Buffer("a", (K, M) if turned[0] else (M, K), dtype)
    B = Buffer("b", (N, K) if turned[1] else (K, N), dtype)
    C, held = Buffer("c", (M, N), dtype), dt.accumulation_dtype(dtype)
    lhs = LoadValue(A, k * M + m if turned[0] else m * K + k)
    rhs = LoadValue(B, n * K + k if turned[1] else k * N + n)
    lhs = left(lhs) if left else lhs
    if held != dtype:
        lhs, rhs = (ApplyValue(CAST, (v,), held) for v in (lhs, rhs))
    total = Ref("acc", held)
    value = total if held == dtype else ApplyValue(CAST, (total,), dtype)
    made = Tile("acc", held, "m", mt, M, rows, "n", nt, N, cols, (("k", K),), lhs, rhs,
                (StoreStmt(C, m * N + n, value),))  # fmt: skip
    inner = Loop("mt", 0, M, rows, LoopKind.SERIAL, (made,))
    return kernel([Loop("nt", 0, N, cols, LoopKind.SERIAL, (inner,))], [C], [A, B], name=name)


def products(arrays, turned=(False, False)):
    """What the kernel should find: small whole numbers, whose sums are exact."""
    sides = (arrays["a"], turned[0]), (arrays["b"], turned[1])
    a, b = (x.astype(np.float64).T if t else x.astype(np.float64) for x, t in sides)
    return (a @ b).astype(arrays["c"].dtype).astype(np.float64)


def check(kern, turned=(False, False), seeds=(0,), times=1):
    """Run on the executor, in several orders of threads, against NumPy in float64: exactly equal,
    and without a complaint.
    """
    made, arrays = compiled(kern), data(kern)
    want = products(arrays | {"a": arrays["a"] * times}, turned)
    for seed in seeds:
        made.run([arrays[b.name].ctypes.data for b in kern.buffers], {}, seed)
        np.testing.assert_array_equal(arrays["c"].astype(np.float64), want)
    return made


@pytest.mark.parametrize("turned", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_sixteen_bit_floats_go_to_tensor_cores(dtype, turned):
    kern = product(40, 48, 72, 32, 32, dtype, turned)
    made = check(kern, turned, (0, 3))
    text = nvrtc.ptx(made.rendered.text)
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype.name.replace('loat', '')}" in text
    assert "cp.async.cg.shared.global" in text
    assert ("ldmatrix.sync.aligned.m8n8.x4.trans" in text) == turned[0]
    assert ("ldmatrix.sync.aligned.m8n8.x2.trans" in text) != turned[1]


@pytest.mark.parametrize("turned", [(False, False), (True, True)])
@pytest.mark.parametrize("dtype", [F32, dt.float64, dt.int32], ids=str)
def test_others_are_copied_ahead_and_multiplied_by_threads(dtype, turned):
    kern = product(40, 48, 72, 32, 32, dtype, turned)
    made = check(kern, turned, (0, 3))
    text = nvrtc.ptx(made.rendered.text)
    assert "mma.sync" not in text
    assert "cp.async.c" in text


@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 9, 33), (5, 70, 3), (33, 31, 65)])
@pytest.mark.parametrize("dtype", [dt.bfloat16, F32], ids=str)
@pytest.mark.sampled(4)
def test_edges_and_places_that_are_not_aligned(shape, dtype):
    for turned in ((False, False), (True, True)):
        kern = product(*shape, 16, 24, dtype, turned)
        check(kern, turned, (1,))


def test_an_array_from_an_odd_address_is_not_copied_by_sixteen_bytes():
    kern = product(16, 16, 32, 16, 16)
    made, arrays = compiled(kern), data(kern)
    room = np.zeros(16 * 32 + 1, np.float32)
    odd = room[1:].reshape(16, 32)
    odd[:] = arrays["a"]
    assert odd.ctypes.data % 16 == 4
    made.run([arrays["c"].ctypes.data, odd.ctypes.data, arrays["b"].ctypes.data], {})
    np.testing.assert_array_equal(arrays["c"], arrays["a"] @ arrays["b"])


def test_a_side_that_is_a_term_is_evaluated_on_its_way():
    double = op("add", 2, np.add)
    kern = product(20, 24, 40, 16, 16, dt.bfloat16,
                   left=lambda v: ApplyValue(double, (v, v), v.dtype))  # fmt: skip
    made = check(kern, times=2)
    assert "mma.sync" in nvrtc.ptx(made.rendered.text)


def test_more_than_static_memory_holds_is_added_by_the_launch():
    kern = product(130, 130, 40, 128, 128, dt.bfloat16)
    made = check(kern)
    (launch,) = made.rendered.launches
    assert launch.shared > 48 << 10


# ---- planted into the text

BARRIER = "__syncthreads();\n"
PLANTED = {
    "a wait too few": ("lj_wait<1>", "lj_wait<2>"),
    "groups that are never closed": ("            lj_commit();\n", ""),
    "a barrier too few": (BARRIER + "              }", "              }"),
    "a slot too few": (" == 2 ? 0 :", " == 1 ? 0 :"),
    "a slot behind": ("multiplied", ""),
    "two parts of the left side swapped": (
        "{%4, %5, %6, %7}", "{%4, %6, %5, %7}"),
    "the right side turned": ("lj_matrices2<true>", "lj_matrices2<false>"),
    "the left side not turned": ("lj_matrices4<true>", "lj_matrices4<false>"),
    "rows of the wrong half": ("(lane_{} >> 4) * 8", "(lane_{} >> 3) * 8"),
    "columns of a fragment by one": ("2 * (lane_{} & 3)", "(lane_{} & 3)"),
    "rows of a fragment by one": ("8 * (e_", "1 * (e_"),
    "copies one element on": ("2 * count_", "2 * 8 + 0 * count_"),
    "no room between rows": ("[3][64][40]", "[3][64][36]"),
}  # fmt: skip


def planted(text, name):
    """The text with one fault; most are told by a pattern."""
    import re

    old, new = PLANTED[name]
    if name == "a slot behind":
        return re.sub(r"(lj_matrices4<\w+>\(a_\d+\[i_\d+\], &lhs_\d+\[)(at_\d+)\]",
                      r"\g<1>(\g<2> + 1) % 3]", text)  # fmt: skip
    if name == "a barrier too few":
        return re.sub(r"(lj_wait<1>\(\);\n\s*)__syncthreads\(\);", r"\1", text)
    if name == "groups that are never closed":
        return re.sub(r"\n\s*lj_commit\(\);", "", text)
    if name == "no room between rows":
        return re.sub(r"lhs_(\d+)\[3\]\[(\d+)\]\[(\d+)\];",
                      lambda f: f"lhs_{f[1]}[3][{f[2]}][{int(f[3]) - 4}];", text)  # fmt: skip
    pattern = re.escape(old).replace(r"\{\}", r"(\d+)")
    return re.sub(pattern, new.replace("{}", r"\1"), text)


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_in_what_is_rendered_is_found(name):
    """By a check, or by the comparison with the interpreter that every kernel has to pass."""
    turned = (name == "the left side not turned", False)
    kern = product(36, 40, 104, 32, 32, dt.bfloat16, turned)
    rendered = render(kern)
    text = planted(rendered.text, name)
    assert text != rendered.text, "nothing was planted"
    code = ptx.load(nvrtc.ptx(text))
    made = Emulated(kern, rendered, tuple(code[x.name] for x in rendered.launches), "")
    ours = data(kern)
    want = products(ours, turned)
    try:
        made.on_arrays(kern, ours, {})
    except ptx.ExecutionError:
        return
    assert np.abs(ours["c"].astype(np.float64) - want).max() > 0.5


# ---- the loop program

PROGRAMS = {
    "product": (lambda a, b: a @ b, (40, 50), (50, 33)),
    "right turned": (lambda a, b: jnp.tanh(a @ b.T), (40, 50), (33, 50)),
    "left turned": (lambda a, b: a.T @ b, (50, 40), (50, 33)),
    "batches": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (3, 20, 30), (3, 30, 17)),
    "terms": (lambda a, b: jnp.maximum(a, 0) @ jnp.exp(b * 0.1), (40, 50), (50, 33)),
    "many tiles": (lambda a, b: a @ b, (256, 64), (64, 192)),
    "a long sum": (lambda a, b: a @ b, (8, 2000), (2000, 16)),
    "one row": (lambda a, b: a @ b, (1, 200), (200, 130)),
    "heads": (lambda a, b: jnp.einsum("bthd,bshd->bhts", a, b), (2, 20, 3, 16), (2, 24, 3, 16)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(9)
def test_contractions_are_programs_of_their_own(name, dtype):
    f, *shapes = PROGRAMS[name]
    a, b = (jnp.asarray(RNG.normal(size=s), dtype) for s in shapes)
    made = lumjax.jit(f, backend="cuda:emulated", search=0)
    got, want = made(a, b), lumjax.jit(f, search=0)(a, b)
    unit = 1e-5 if dtype == "float32" else 1e-2
    scale = np.abs(np.asarray(want, np.float64)).max()
    np.testing.assert_allclose(
        np.asarray(got, np.float64), np.asarray(want, np.float64), unit, unit * scale
    )
    found = lumjax.explain(made, a, b).executable
    kernels = [x for s in found.native() for x in s.kernels]
    assert [x.rejected for x in kernels if x.rejected] == []
    assert any(x.compiled.kernel.programs == ("CONTRACT",) for x in kernels)
    text = found.as_text().replace(HEADER, "")
    assert ("lj_mma_" in text) == (dtype != "float32")


def test_warps_share_a_tile_evenly():
    made, idle = tile.fragments_of(128, 128, 8)
    assert (made.rows * made.cols, made.down * made.across, idle) == (8, 16, False)
    assert tile.fragments_of(16, 8, 8)[1]
    assert tile.fragments_of(512, 512, 8) is None
