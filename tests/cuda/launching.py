"""Kernels of one line, compiled and run on the executor."""

from __future__ import annotations

import numpy as np

from lumjax.cuda import nvrtc, ptx

TYPES = {
    "float32": "float", "float64": "double", "int32": "int", "uint32": "unsigned",
    "int64": "long long", "uint64": "unsigned long long", "uint8": "unsigned char",
    "int8": "signed char", "int16": "short", "uint16": "unsigned short",
}  # fmt: skip
SIGNATURE = 'extern "C" __global__ void k{}(const float* x, float* y, int n)'


def kernels_of(bodies, before="", arch="compute_80"):
    """Kernels of (x, y, n) with these bodies, by name, compiled together."""
    numbers = {name: k for k, name in enumerate(bodies)}
    text = "\n".join(f"{SIGNATURE.format(numbers[n])} {{ {b} }}" for n, b in bodies.items())
    text = f"{before}\n{text}" if before else text
    made = ptx.load(nvrtc.ptx(text, arch, ("-lineinfo",)))
    return {name: made[f"k{k}"] for name, k in numbers.items()}


def launch(kernel, seed=0, blocks=1, threads=256, inputs=260, outputs=256, fuel=1 << 16, n=5):
    """A kernel run on x = 0, 1, 2, ...; what it leaves in y."""
    x, y = np.arange(inputs, dtype=np.float32), np.zeros(outputs, np.float32)
    memory = ptx.Memory()
    memory.add(x, writable=False)
    memory.add(y, written=False)
    args = [x.ctypes.data, y.ctypes.data, np.int32(n)]
    kernel.launch(memory, (blocks,), (threads,), args, seed=seed, fuel=fuel)
    return y


def computed(rows, *arrays, before=""):
    """Several expressions of a, b, ...: (name, expression, dtype of the result), in one kernel; the
    results by name.
    """
    names = "abcdef"[: len(arrays)]
    kinds = [TYPES[x.dtype.name] for x in arrays]
    inputs = ", ".join(f"const {t}* p{n}" for n, t in zip(names, kinds, strict=True))
    outputs = ", ".join(f"{TYPES[np.dtype(d).name]}* o{k}" for k, (_, _, d) in enumerate(rows))
    loads = " ".join(f"{t} {n} = p{n}[i];" for n, t in zip(names, kinds, strict=True))
    stores = "\n".join(f"o{k}[i] = {e};" for k, (_, e, _) in enumerate(rows))
    source = (
        f'{before}\nextern "C" __global__ void k({inputs}, {outputs}, int n) {{ int i = blockIdx.x '
        f"* blockDim.x + threadIdx.x; if (i >= n) return; {loads}\n{stores} }}"
    )
    size = arrays[0].size
    results = {name: np.zeros(size, dtype) for name, _, dtype in rows}
    memory = ptx.Memory()
    for x in arrays:
        memory.add(x, writable=False)
    for y in results.values():
        memory.add(y, written=False)
    args = [*(x.ctypes.data for x in (*arrays, *results.values())), np.int32(size)]
    ptx.load(nvrtc.ptx(source))["k"].launch(memory, (-(-size // 128),), (128,), args)
    return results
