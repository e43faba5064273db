"""Products for sm_90a as they are rendered: bulk copies ahead of warpgroups, tensor maps beside the
addresses, another text where arrays lie otherwise; and faults planted into the text, which must be
found. What a GPU does is not asked here.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace

import numpy as np
import pytest

import lumjax
import lumjax.dtype as dt
import lumjax.numpy as jnp
from lumjax import accelerated
from lumjax.cuda import device, emulated, maps, nvrtc, ptx, runtime
from lumjax.cuda.occupancy import H200, resident, why_not
from lumjax.cuda.render import Launch, Rendered, render
from lumjax.cuda.runtime import Emulated, compiled, load, table_of
from lumjax.errors import UnsupportedError
from lumjax.kernel.ir import ApplyValue
from lumjax.trace.form import Rounding
from tests.cpu.kernels import op, sym
from tests.cuda.standin import installed
from tests.cuda.test_device import Pretended, count
from tests.cuda.test_render import data
from tests.cuda.test_rounded import product as rounded
from tests.cuda.test_tiles import product, products

RNG = np.random.default_rng(11)
ARCH = "sm_90a"
BACKEND = "cuda:emulated:sm_90a"
SIXTEEN = [dt.bfloat16, dt.float16]
TURNED = [(a, b) for a in (False, True) for b in (False, True)]


def aligned(kern):
    """Small whole numbers for every buffer, at addresses that are multiples of 64."""
    found = {}
    for name, x in data(kern).items():
        room = np.zeros(x.nbytes + 64, np.uint8)
        at = -room.ctypes.data % 64
        found[name] = room[at : at + x.nbytes].view(x.dtype).reshape(x.shape)
        found[name][...] = x
    return found


def check(kern, turned=(False, False), seeds=(0, 3)):
    """Run the second text in several orders of threads: exactly what NumPy finds, no complaint, and
    machine code that keeps everything in registers and waits only where it says so.
    """
    made, arrays = compiled(kern, ARCH), aligned(kern)
    table = table_of(kern, arrays, {})
    fast = made.fitting(table, {})
    assert fast is made.pipelined
    for seed in seeds:
        arrays["c"][...] = 0
        fast.run(table, {}, seed)
        got = arrays["c"].astype(np.float64)
        np.testing.assert_array_equal(got, products(arrays, turned))
    assert why_not(fast.rendered, ARCH) is None
    return fast


# ---- kernels


@pytest.mark.parametrize("turned", TURNED)
@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
@pytest.mark.sampled(4)
def test_sides_lie_along_the_sum_or_not(dtype, turned):
    made = check(product(72, 136, 200, 64, 128, dtype, turned), turned)
    text = nvrtc.ptx(made.rendered.text, "compute_90a")
    kind = dtype.name.replace("loat", "")
    assert f"wgmma.mma_async.sync.aligned.m64n128k16.f32.{kind}.{kind}" in text
    assert "cp.async.bulk.tensor.2d.shared::cluster.global" in text
    assert "ld.global.nc" not in text, "sides go by bulk copies alone"


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((1, 8, 8), (64, 64)),
        ((129, 200, 24), (128, 128)),
        ((63, 72, 16 * 31), (64, 64)),
        ((200, 56, 1000), (128, 64)),
        ((64, 64, 64 * 20), (64, 64)),
    ],
)
@pytest.mark.sampled(3)
def test_edges_and_slots_that_are_filled_again(shape, tile):
    made = check(product(*shape, *tile, dt.bfloat16, (False, True)), (False, True), (1,))
    (launch,) = made.rendered.launches
    assert launch.threads == 2 * tile[0] + 32


def cut(x):
    """Ten bits behind the point, in float64."""
    return (np.asarray(x).view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("tile", [(64, 64), (128, 128)])
def test_float32_that_may_be_rounded_is_cut_to_ten_bits(tile):
    kern = rounded(72, 136, 1000, *tile, Rounding.TF32, (False, True))
    made, arrays = compiled(kern, ARCH), aligned(kern)
    for name in "ab":
        arrays[name][...] = RNG.normal(size=arrays[name].shape)
    table = table_of(kern, arrays, {})
    fast = made.fitting(table, {})
    assert fast is made.pipelined
    want = cut(arrays["a"]) @ cut(arrays["b"]).T
    for seed in (0, 3):
        fast.run(table, {}, seed)
        np.testing.assert_allclose(arrays["c"], want, 1e-5, 1e-4)
    assert why_not(fast.rendered, ARCH) is None
    assert "m64n" in (text := nvrtc.ptx(fast.rendered.text, "compute_90a"))
    assert "k8.f32.tf32.tf32" in text


@pytest.mark.parametrize(("rows", "cols"), [(64, 64), (128, 128)])
@pytest.mark.parametrize("dtype", [*SIXTEEN, None], ids=str)
def test_a_unit_of_the_card_holds_the_kernel(rows, cols, dtype):
    shape = (512, 512, 512, rows, cols)
    kern = (
        rounded(*shape, Rounding.TF32, (False, True)) if dtype is None else product(*shape, dtype)
    )
    made = render(kern, True)
    taken = nvrtc.cubin(made.text, ARCH).usage
    (launch,) = made.launches
    assert resident(H200, taken[launch.name], launch.threads, launch.shared) >= 1
    assert taken[launch.name].spills == taken[launch.name].local == 0


def test_products_that_are_put_in_order_are_dropped():
    """The compiler says so: here, since nobody waits before sums are read."""
    made = render(product(64, 64, 128, 64, 64, dt.bfloat16), True)
    slow = re.sub(r"lj_products_wait<\d>\(\);", "", made.text)
    assert "put in order" in why_not(Rendered(slow, made.launches), ARCH)
    assert why_not(made, ARCH) is None


@pytest.mark.parametrize(
    ("dtype", "rows", "left"),
    [
        (dt.float32, 64, None),
        (dt.bfloat16, 32, None),
        (dt.bfloat16, 64, lambda v: ApplyValue(op("add", 2, np.add), (v, v), v.dtype)),
        (dt.bfloat16, 64, lambda v: replace(v, mask=sym("k"))),
    ],
)
def test_what_has_one_text(dtype, rows, left):
    kern = product(64, 64, 64, rows, 64, dtype, left=left)
    assert compiled(kern, ARCH).pipelined is None
    assert compiled(rounded(64, 64, 64, 64, 64, Rounding.TF32), ARCH).pipelined is None, "turned"
    assert compiled(product(64, 64, 64, 64, 64, dt.bfloat16)).pipelined is None, "only for sm_90a"


def test_sizes_and_addresses_choose_the_text():
    made = compiled(product(64, 64, 65, 64, 64, dt.bfloat16), ARCH)
    arrays = aligned(made.kernel)
    assert made.pipelined is not None
    assert made.fitting(table_of(made.kernel, arrays, {}), {}) is made, "rows of 130 bytes"
    made = compiled(product(64, 64, 64, 64, 64, dt.bfloat16), ARCH)
    arrays = aligned(made.kernel)
    table = table_of(made.kernel, arrays, {})
    assert made.fitting(table, {}) is made.pipelined
    for moved in (0, 1, 2):  # the result may lie anywhere
        odd = [a + 2 * (k == moved) for k, a in enumerate(table)]
        assert (made.fitting(odd, {}) is made.pipelined) == (moved == 0)


# ---- planted

PLANTED = {
    "more bytes expected than come": (r"(lj_expect\(.*?), 24576\)", r"\1, 24592)"),
    "fewer bytes expected than come": (r"(lj_expect\(.*?), 24576\)", r"\1, 16384)"),
    "nothing expected": (r"lj_expect\((.*?), 24576\)", r"lj_arrive(\1)"),
    "who copies begins with the other phase": (r"(lj_wait_for\(empty.*?) \^ 1\)", r"\1)"),
    "who multiplies begins with the other phase": (r"(lj_wait_for\(full_\d+ \+ at_\d+, parity_\d+)",
                                                   r"\1 ^ 1"),
    "phases that do not turn": (r"parity_\d+ \^= at_\d+ == 0;", ""),
    "phases that turn a slot early": (r"(parity_\d+ \^= at_\d+ ==) 0;", r"\1 1;"),
    "no wait for what is copied": (r"lj_wait_for\(full.*?\);", ""),
    "no wait for a free slot": (r"lj_wait_for\(empty.*?\);", ""),
    "no wait for products": (r"lj_products_wait<0>\(\);", ""),
    "a wait for products too few": (r"lj_products_wait<0>", "lj_products_wait<1>"),
    "a slot is free while products read it": (r"lj_products_wait<1>\(\);", ""),
    "the slot that is read is called free": (
        r"lj_arrive\((empty_\d+) \+ before_(\d+)\)(.*?before_\2 = (at_\d+))",
        r"lj_arrive(\1 + \4)\3"),
    "a slot is never free": (r"if \(before_\d+ >= 0 .*?;", ""),
    "one warp too few says that a slot is free": (r"lj_phases\((empty.*?), 4\)",
                                                  r"lj_phases(\1, 3)"),
    "one warp too many is expected": (r"lj_phases\((empty.*?), 4\)", r"lj_phases(\1, 5)"),
    "all lanes say that a slot is free": (r" && lane_\d+ == 0\)", ")"),
    "barriers that copies do not see": (r"lj_show_phases\(\);", ""),
    "barriers that other threads do not see": (
        r"(lj_show_phases\(\);\s*\}\s*)__syncthreads\(\);", r"\1"),
    "barriers that end while others wait": (r"__syncthreads\(\);(\s*if \(threadIdx.x == 0\) \{"
                                            r"\s*#pragma unroll\s*for \(int slot_\d+ = 0; slot_\d+ "
                                            r"< \d+; slot_\d+\+\+\) \{\s*lj_phases_end)", r"\1"),
    "barriers that never end": (r"lj_phases_end\(.*?\);", ""),
    "no fence before products": (r"lj_products_begin\(\);", ""),
    "products that nobody closes": (r"lj_products_close\(\);", ""),
    "steps of the sum too wide": (r"\* 32, 16", "* 64, 16"),
    "steps of a turned side too narrow": (r"\* 2048, 8192", "* 1024, 8192"),
    "rows too near": (r"16, 1024, 1\)", "16, 512, 1)"),
    "boxes of a turned side too near": (r"8192, 1024, 1\)", "4096, 1024, 1)"),
    "another swizzle": (r"16, 1024, 1\)", "16, 1024, 2)"),
    "a side turned": (r"<0, 1>", "<0, 0>"),
    "sums begun anew": (r", 1\);\n(\s*\}\s*lj_products_close)", r", 0);\n\1"),
    "a slab behind": (r"slab_(\d+) \* 64", r"(slab_\1 + 1) * 64"),
    "a box twice": (r"(\(int\)n_\d+) \+ 64", r"\1"),
    "the maps exchanged": (r"table \+ 64;", "table + 192;"),
    "a map that begins too late": (r"table \+ 64;", "table + 72;"),
    "a map that was not looked at": (r"lj_see_map\(.*?\);", ""),
    "a box to the next slot": (r"(lj_move_box\(lj_slots \+) (at_\d+)", r"\1 (\2 + 1) % 6"),
    "rows of the wrong half": (r"8 \* \((i_\d+) >> 1 & 1\)", r"8 * (\1 & 1)"),
    "columns by one": (r"2 \* \((lane_\d+) & 3\)", r"(\1 & 3)"),
    "the tile that was before": (r"\(int\)m_\d+\)", "0)"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.sampled(12)
def test_a_fault_in_what_is_rendered_is_found(name):
    """By a check, or by the comparison that every kernel has to pass; in whatever order."""
    kern = product(72, 128, 64 * 14, 64, 128, dt.bfloat16)
    rendered = render(kern, True)
    old, new = PLANTED[name]
    text = re.sub(old, new, rendered.text, flags=re.DOTALL if "before_" in old else 0)
    assert text != rendered.text, "nothing was planted"
    code = load(text)
    made = Emulated(kern, rendered, tuple(code[x.name] for x in rendered.launches), "")
    arrays = aligned(kern)
    want = products(arrays, (False, False))
    for seed in (0, 1, 7):
        arrays["c"][...] = 0
        try:
            made.run(table_of(kern, arrays, {}), {}, seed)
        except ptx.ExecutionError:
            continue
        assert np.abs(arrays["c"].astype(np.float64) - want).max() > 0.5


def test_a_second_text_that_is_wrong_is_dropped(monkeypatch):
    def wrong(kern, pipelines=False):
        made = render(kern, pipelines)
        return Rendered(re.sub(r"(slab_\d+) \* 64", r"\1 * 32", made.text), made.launches)

    monkeypatch.setattr(runtime, "render", wrong)
    a, b = (jnp.asarray(RNG.normal(size=s), "bfloat16") for s in ((64, 144), (144, 64)))
    f = lumjax.jit(lambda a, b: jnp.sin(a @ b), backend=BACKEND, search=0)
    near(f(a, b), lumjax.jit(lambda a, b: jnp.sin(a @ b), search=0)(a, b))
    assert pipelines_of(f, a, b) == [False]


def near(got, want):
    """As 16-bit floats are rounded."""
    for x, y in zip(lumjax.tree.leaves(got), lumjax.tree.leaves(want), strict=True):
        x, y = (np.asarray(v, np.float64) for v in (x, y))
        np.testing.assert_allclose(x, y, 1e-2, 1e-2 * np.abs(y).max())


# ---- programs


@pytest.fixture
def ran(monkeypatch):
    """Whether each kernel that ran on the executor was a second text."""
    found, before = [], emulated.Processor._run

    def run(self, function, *rest):
        found.append(function.parameters > 256)
        before(self, function, *rest)

    monkeypatch.setattr(emulated.Processor, "_run", run)
    return found


PROGRAMS = {
    "product": (lambda a, b: a @ b, (70, 136), (136, 72)),
    "an epilogue": (lambda a, b, c: jnp.tanh(a @ b.T + c) * 2, (72, 72), (136, 72), (136,)),
    "a residual": (lambda a, b, c: jnp.maximum(a @ b, 0) + c, (70, 40), (40, 72), (70, 72)),
    "left turned": (lambda a, b: a.T @ b, (50, 72), (50, 128)),
    "batches": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (3, 70, 40), (3, 40, 72)),
    "heads": (lambda a, b: jnp.einsum("bthd,bshd->bhts", a, b), (2, 64, 3, 16), (2, 72, 3, 16)),
    "a part": (lambda a, b: a[8:] @ b[:, 8:72], (80, 64), (64, 80)),
    "gradient": (lumjax.grad(lambda a, b: jnp.tanh(a @ b).sum(), (0, 1)), (72, 80), (80, 72)),
}


def pipelines_of(f, *args):
    """Whether each kernel of a program has a second text."""
    found = lumjax.explain(f, *args).executable
    kernels = [x for s in found.native() for x in s.kernels]
    assert [x.rejected for x in kernels if x.rejected] == []
    return [runtime.kernels[x.compiled.digest].pipelined is not None for x in kernels]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(6)
def test_programs(name, dtype, ran):
    f, *shapes = PROGRAMS[name]
    args = [jnp.asarray(RNG.normal(size=s) / 4, dtype) for s in shapes]
    made = lumjax.jit(f, backend=BACKEND, search=0)
    near(made(*args), f(*args))
    assert any(pipelines_of(made, *args))
    assert sum(ran) == sum(pipelines_of(made, *args))
    assert "lj_move_box" in lumjax.explain(made, *args).executable.as_text()


def test_a_program_of_tf32(ran):
    a, b = (jnp.asarray(RNG.normal(size=s), "float32") for s in ((70, 136), (72, 136)))
    for precision, second in (("high", True), (None, False)):
        f = lumjax.jit(
            lambda a, b, p=precision: jnp.tanh(jnp.matmul(a, b.T, precision=p)), backend=BACKEND
        )
        x, y = (cut(v) if second else np.asarray(v, np.float64) for v in (a, b))
        np.testing.assert_allclose(f(a, b), np.tanh(x @ y.T), 1e-4, 1e-5)
        assert ran.pop() == second


def test_what_does_not_lie_in_steps_of_sixteen_bytes_takes_the_other_text(ran):
    a, b = (jnp.asarray(RNG.normal(size=s), "bfloat16") for s in ((64, 65), (65, 64)))
    near(lumjax.jit(lambda a, b: a @ b, backend=BACKEND, search=0)(a, b), a @ b)
    assert ran == [False]


# ---- the host


@pytest.fixture
def pretended(monkeypatch):
    made = Pretended(ARCH)
    monkeypatch.setattr(device, "current", lambda: made)
    return made


def test_maps_are_written_where_arrays_lie(pretended):
    """A graph is captured once; a map is made for each address that is new."""
    a, b = (jnp.asarray(RNG.normal(size=s), "bfloat16") for s in ((64, 72), (72, 64)))
    f = lumjax.jit(lambda a, b: jnp.tanh(a @ b), backend="cuda", search=0)
    for made, x in ((2, a), (2, a), (3, a * 2), (4, a)):  # copied anew
        near(f(x, b), f.fun(x, b))
        assert count(pretended, "capture") == 1
        assert count(pretended, "map") == made


def test_the_products_of_a_loop_have_maps_of_their_own(pretended):
    xs = jnp.asarray(RNG.normal(size=(5, 64, 64)) / 8, "bfloat16")

    def f(xs):
        return lumjax.lax.scan(lambda c, x: (jnp.tanh(c @ x), ()), xs[0], xs)[0]

    made = lumjax.jit(f, backend="cuda", search=0)
    for k in (1, 2):
        near(made(xs * k), f(xs * k))
    assert any("lj_move_box" in t.text for x in runtime.kernels.values() for t in x.texts)
    assert count(pretended, "capture") == 1
    assert count(pretended, "map") >= 10


def test_arrays_that_lie_otherwise_take_the_other_text(monkeypatch, ran):
    with installed(monkeypatch) as cupy:
        f = lumjax.jit(lambda a, b: a @ b, backend="cuda", search=0)
        a = cupy.array(np.ones((65, 64), np.float16))
        b = np.asarray(RNG.normal(size=(64, 64)), np.float16)
        for offset in (0, 2, 0, 16):
            moved = cupy.array(np.ones((64, 64), np.float16))
            moved.memory = type(a.memory)(64 * 64 * 2 + 16)
            moved.memory.ptr += offset
            moved.numpy()[...] = RNG.normal(size=(64, 64))
            near(f(moved, b), moved.numpy() @ b)
        assert ran == [True, False, True, True]


def test_what_the_driver_is_asked(monkeypatch):
    """On a function of the driver's signature."""
    kinds = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, *[ctypes.c_void_p] * 5,
             *[ctypes.c_int] * 4]  # fmt: skip
    asked = []

    def encode(made, kind, rank, address, extents, steps, box, each, *rest):
        assert made % 64 == 0
        words = [list((ctypes.c_uint64 * n).from_address(p)) for p, n in ((extents, 3), (steps, 2))]
        parts = [list((ctypes.c_uint32 * 3).from_address(p)) for p in (box, each)]
        asked.append((kind, rank, address, *words, *parts, rest))
        ctypes.memset(made, 7, 128)
        return 0 if rank == 3 else 1

    function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(encode)
    monkeypatch.setattr(maps, "_encode", lambda: function)
    chart = maps.Chart(0, 2, 64, (64, 8, 3), (128, 1024), (64, 8, 2))
    assert maps.driver(maps.numbers(chart, {}), 4096) == b"\7" * 128
    assert asked == [(1, 3, 4224, [64, 8, 3], [256, 2048], [64, 8, 2], [1, 1, 1], (0, 3, 2, 0))]
    flat = maps.Chart(0, 2, 0, (64, 8), (128,), (64, 8))
    with pytest.raises(UnsupportedError, match="error 1"):
        maps.driver(maps.numbers(flat, {}), 4096)


def test_a_backend_that_is_not_known_is_named():
    with pytest.raises(UnsupportedError, match="sm_70"):
        accelerated.target_of("cuda:emulated:sm_70")
    assert Launch("k", 32, False, 0).maps == ()
