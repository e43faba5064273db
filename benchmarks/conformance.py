"""Each function of the device header on random bits, through the device seam: on a GPU, or on the
executor of PTX.

What they gave, and where, is in tests/golden/cuda_conformance.json, to which the executor is held;
`python -m benchmarks.conformance` writes it anew from the executor. `python -m benchmarks gpu`
compares a GPU with it, and writes what that gave into the report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lumjax.cuda import emulated, maps
from lumjax.cuda.device import Device, Function
from lumjax.cuda.header import HEADER
from lumjax.cuda.header90 import HEADER_90, products
from lumjax.kernel.ir import Kernel, Phase
from lumjax.kernel.term import Buffer

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "cuda_conformance.json"
COUNT, THREADS = 64, 128
TYPES = {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
         "u16": "uint16", "u32": "uint32", "u64": "uint64", "float": "float32",
         "double": "float64"}  # fmt: skip
NEWEST = "sm_90a"


@dataclass(frozen=True)
class Case:
    """A kernel's body, which reads a, b, ... and writes y; C types of y and of those; how far
    floats may be from what was kept, in units in the last place; whether it takes sm_90a.
    """

    name: str
    body: str
    out: str
    inputs: tuple[str, ...]
    units: int = 0
    small: bool = False  # whole numbers as 16-bit floats or tf32 have them, not random bits
    newest: bool = False
    count: int = COUNT
    results: int = COUNT
    threads: int = THREADS
    shared: int = 0
    more: str = ""


def each(name: str, expression: str, out: str, *inputs: str, units: int = 0) -> Case:
    """An expression of each element."""
    body = f"for (int i = threadIdx.x; i < {COUNT}; i += {THREADS}) y[i] = {expression};"
    return Case(name, body, out, inputs, units)


def _integers() -> Iterator[Case]:
    for kind, bits in (("i32", "u32"), ("u32", "u32"), ("i64", "u64"), ("i8", "u8")):
        for f in ("add", "sub", "mul", "div", "rem", "max", "min", "shl", "ipow"):
            yield each(f"{f} {kind}", f"lj_{f}<{kind}>(a[i], b[i])", kind, kind, kind)
        for f in ("neg", "abs", "sign"):
            yield each(f"{f} {kind}", f"lj_{f}<{kind}>(a[i])", kind, kind)
        signed = bits.replace("u", "i")
        yield each(f"lshr {kind}", f"lj_lshr<{kind}>(a[i], b[i] & 63, ({bits})a[i])", kind, kind,
                   kind)  # fmt: skip
        yield each(f"ashr {kind}", f"lj_ashr<{kind}>(a[i], b[i] & 63, ({signed})a[i])", kind, kind,
                   kind)  # fmt: skip
        yield each(f"ones {kind}", f"lj_popc(({bits})a[i])", "i32", kind)
        yield each(f"zeros {kind}", f"lj_clz(({bits})a[i])", "i32", kind)
    for f in ("floor_div", "floor_mod"):
        yield each(f, f"lj_{f}(a[i], b[i] ? b[i] : 7)", "i64", "i64", "i64")
    yield each("index", "lj_index(a[i])", "i64", "u64")


def _floats() -> Iterator[Case]:
    for kind in ("float", "double"):
        for f in ("max", "min"):
            yield each(f"{f} {kind}", f"lj_{f}(a[i], b[i])", kind, kind, kind)
        yield each(f"sign {kind}", "lj_sign(a[i])", kind, kind)
        yield each(f"finite {kind}", "lj_finite(a[i])", "i32", kind)
        for whole in ("i8", "u8", "i32", "u32", "i64", "u64"):
            yield each(f"{kind} to {whole}", f"lj_whole<{whole}>(a[i])", whole, kind)
        yield each(f"half of {kind}", "lj_half_bits(a[i])", "u16", kind)
        suffix = "f" if kind == "float" else ""
        for f in ("exp", "log", "tanh", "sin", "erf", "log1p", "rsqrt"):
            yield each(f"{f} {kind}", f"{f}{suffix}(a[i])", kind, kind, units=2)
        yield each(f"logistic {kind}", "lj_logistic(a[i])", kind, kind, units=4)
        for f in ("lgamma", "digamma"):
            yield each(f"{f} {kind}", f"lj_{f}(a[i])", kind, kind, units=16)
        yield each(f"root {kind}", f"sqrt{suffix}(a[i])", kind, kind)
        yield each(f"quotient {kind}", "a[i] / b[i]", kind, kind, kind)
    yield each("bfloat16", "lj_brain_bits(a[i])", "u16", "float")
    yield each("from half", "lj_half(a[i])", "float", "u16")
    yield each("from bfloat16", "lj_brain(a[i])", "float", "u16")
    yield each("tf32", "lj_ten_bits(a[i])", "u32", "float")


_SHARED = "extern __shared__ __align__(1024) u8 s[]; int t = threadIdx.x, lane = t & 31;"


def _blocks() -> Iterator[Case]:
    for kind in ("i32", "u64", "i8"):
        add = f"[] ({kind} p, {kind} q) -> {kind} {{ return p + q; }}"
        total = f"y[threadIdx.x] = lj_block<4>(a[threadIdx.x], {add});"
        yield Case(f"sum over a block, {kind}", total, kind, (kind,), count=THREADS,
                   results=THREADS)  # fmt: skip
    for size in (16, 8, 4):
        copy = (f"lj_copy<{size}>(s + {size} * t, (const u8*)a + {size} * t, t % 5 ? {size} : "
                f"{size // 2}); lj_commit(); lj_wait<0>(); __syncthreads();")  # fmt: skip
        read = f"for (int i = t; i < {THREADS * size // 4}; i += {THREADS}) y[i] = ((u32*)s)[i];"
        yield Case(f"copies of {size} bytes", f"{_SHARED} {copy} {read}", "u32", ("u32",),
                   count=512, results=THREADS * size // 4, shared=4096)  # fmt: skip
    fill = f"{_SHARED} for (int i = t; i < 128; i += 32) ((u32*)s)[i] = a[i]; __syncwarp();"
    for count in (4, 2):
        for turned in ("true", "false"):
            load = (f"u32 r[{count}]; lj_matrices{count}<{turned}>(r, s + 16 * lane); "
                    f"for (int k = 0; k < {count}; k++) y[{count} * lane + k] = r[k];")  # fmt: skip
            yield Case(f"{count} matrices, {turned}", f"{fill} {load}", "u32", ("u32",), count=128,
                       results=32 * count, threads=32, shared=1024)  # fmt: skip
    for kind, word in (("bf16", "u16"), ("f16", "u16"), ("tf32", "float")):
        multiply = (
            "int lane = threadIdx.x; float d[4] = {1, 2, 3, 4}; "
            f"lj_mma_{kind}(d, (const u32*)a + 4 * lane, (const u32*)b + 2 * lane); "
            "for (int k = 0; k < 4; k++) y[4 * lane + k] = d[k];"
        )
        yield Case(f"products, {kind}", multiply, "float", (word, word), small=True, count=256,
                   results=128, threads=32)  # fmt: skip


_MADE = (
    "u64* const bar = (u64*)(s + 32768); if (!t) { lj_phases(bar, 1); lj_show_phases(); } "
    "__syncthreads();"
)


def _newest() -> Iterator[Case]:
    move = f"{_SHARED} {_MADE} if (!t) {{ lj_expect(bar, 1024); lj_move(s, a, 1024, bar); }}"
    read = "lj_wait_for(bar, 0); for (int i = t; i < 256; i += 128) y[i] = ((u32*)s)[i];"
    yield Case("a bulk copy", f"{move} {read}", "u32", ("u32",), newest=True, count=256,
               results=256, shared=33 << 10)  # fmt: skip
    box = (f"{_SHARED} {_MADE} if (!t) {{ lj_see_map(map); lj_expect(bar, 2048); "
           "lj_move_box(s, map, bar, 32, 4); } lj_wait_for(bar, 0);"
           "for (int i = t; i < 512; i += 128) y[i] = ((u32*)s)[i];")  # fmt: skip
    yield Case("a box of a tensor", box, "u32", ("u16",), newest=True, count=20 * 72, results=512,
               shared=33 << 10)  # fmt: skip
    for kind, depth in (("bf16", 64), ("f16", 64), ("tf32", 32)):
        turns = "" if kind == "tf32" else "<0, 0>"
        multiply = (
            f"{_SHARED} for (int i = t; i < 4096; i += 128) {{ int at = 4 * (i & 2047);"
            "at ^= (at >> 7 & 7) << 4; *(u32*)(s + at + (i >> 11) * 8192) = "
            "((const u32*)(i >> 11 ? b : a))[i & 2047]; } lj_show(); __syncthreads();"
            "float d[32]; for (int k = 0; k < 32; k++) d[k] = 0; lj_products_begin();"
            f"for (int k = 0; k < 4; k++) lj_products_{kind}_64{turns}(d, "
            "lj_matrix(s + 32 * k, 16, 1024, 1), lj_matrix(s + 8192 + 32 * k, 16, 1024, 1), 1);"
            "lj_products_close(); lj_products_wait<0>();"
            "for (int k = 0; k < 32; k++) { lj_settled(d[k]); y[32 * t + k] = (i16)d[k]; }"
        )
        word = "float" if kind == "tf32" else "u16"
        yield Case(f"products of a warpgroup, {kind}", multiply, "i16", (word, word), small=True,
                   newest=True, count=64 * depth, results=4096, shared=17 << 10,
                   more=products(kind, 64))  # fmt: skip


CASES = (*_integers(), *_floats(), *_blocks(), *_newest())


# ---- inputs


def given(case: Case) -> list[np.ndarray]:
    """The same inputs every time: random bits, half of them of moderate floats or small integers,
    or small whole numbers.
    """
    rng, found = np.random.default_rng(sum(case.name.encode())), []
    for kind in case.inputs:
        dtype = np.dtype(TYPES[kind])
        if case.small:
            whole = rng.integers(-4, 5, case.count).astype(np.float32)
            half = np.float16 if " f16" in case.name else np.float32
            bits = whole.astype(half).view(np.uint16 if half is np.float16 else np.uint32)
            short = (bits >> 16).astype(np.uint16) if half is np.float32 else bits
            found.append(whole if kind == "float" else short)
            continue
        made = np.frombuffer(rng.bytes(case.count * dtype.itemsize), dtype).copy()
        part = rng.normal(size=case.count // 2) * 8
        if dtype.kind == "f" or case.out != "u32":
            low = np.zeros_like(part) if dtype.kind == "u" else part
            made[: case.count // 2] = np.abs(part) if dtype.kind == "u" else low
        found.append(made)
    return found


# ---- running


def source(case: Case) -> str:
    """The kernel as CUDA C."""
    names = "ab"[: len(case.inputs)]
    head = f"{case.out}* const y = ({case.out}*)table[0];"
    for k, (name, kind) in enumerate(zip(names, case.inputs, strict=True), 1):
        head += f" const {kind}* const {name} = (const {kind}*)table[{k}];"
    if "lj_see_map" in case.body:
        head += " const u8* const map = (const u8*)table + 64;"
    header = HEADER + (HEADER_90 + case.more if case.newest else "")
    return (f'{header}\nextern "C" __global__ void k(const i64* table) {{\n{head}\n'
            f"{case.body}\n}}\n")  # fmt: skip


def kernel_of(case: Case) -> Kernel:
    """What the kernel touches."""
    inputs = tuple(Buffer(n, (case.count,), np.dtype(TYPES[t]))
                   for n, t in zip("ab", case.inputs, strict=False))  # fmt: skip
    out = Buffer("y", (case.results,), np.dtype(TYPES[case.out]))
    return Kernel("k", (out,), inputs, (), (), (), (Phase("job", 1, ()),))


def run(device: Device, case: Case) -> np.ndarray:
    """What a device gives."""
    (handle,) = device.load(source(case), ["k"])
    arrays = given(case)
    out = np.zeros(case.results, TYPES[case.out])
    blocks = [device.alloc(x.nbytes) for x in (out, *arrays)]
    mapped = "lj_see_map" in case.body
    words = np.zeros(24 if mapped else len(blocks), np.int64)
    words[: len(blocks)] = [b.ptr for b in blocks]
    if mapped:
        chart = maps.Chart(1, 2, 0, (70, 20), (72,), (64, 16))
        of = maps.numbers(chart, {})
        assert of is not None
        words[8:] = np.frombuffer(device.tensor_map(of, blocks[1].ptr), np.int64)
    table = device.alloc(words.nbytes)
    for block, data in ((table, words), *zip(blocks[1:], arrays, strict=True)):
        device.copy(block.ptr, data.ctypes.data, data.nbytes)
    function = Function(handle, case.threads, case.shared, "k", kernel_of(case), 0, words.nbytes)
    device.launch(function, 1, table.ptr)
    device.copy(out.ctypes.data, blocks[0].ptr, out.nbytes)
    device.wait()
    return out


# ---- comparing


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """How far floats are from others, in units in the last place at most; NaNs are alike. Others
    are alike or infinitely far.
    """
    if got.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    both = np.isnan(got) & np.isnan(want)
    same = both | (got == want)
    with np.errstate(all="ignore"):
        far = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want)).astype(np.float64)
    return float(np.where(same, 0.0, np.where(np.isfinite(far), far, np.inf)).max(initial=0.0))


def kept() -> dict[str, Any]:
    """The golden file."""
    return json.loads(GOLDEN.read_text())


def compared(device: Device, arch: str, golden: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each case: its name, what it gave as hexadecimal digits, how far that is from what was kept,
    and whether that is near enough.
    """
    for case in CASES:
        if case.newest and arch != NEWEST:
            continue
        row: dict[str, Any] = {"name": case.name}
        try:
            got = run(device, case)
            want = np.frombuffer(bytes.fromhex(golden["cases"][case.name]), got.dtype)
        except Exception as error:
            yield row | {"fine": False, "why": f"{type(error).__name__}: {error}"}
            continue
        far = distance(got, want)
        yield row | {"fine": far <= case.units, "units": far, "bits": got.tobytes().hex()}


def write() -> None:
    """The golden file, from the executor."""
    device = emulated.current(NEWEST)
    cases = {c.name: run(device, c).tobytes().hex() for c in CASES}
    text = json.dumps({"from": "cuda:emulated", "cases": cases}, indent=0)
    GOLDEN.write_text(text + "\n")


if __name__ == "__main__":
    write()
