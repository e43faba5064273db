"""The rows of `python -m benchmarks gpu`: programs at a GPU's sizes and at toy sizes, and what
others make of them.

A peer is given NumPy arrays (bfloat16 of ml_dtypes) and gives back what runs the program once and
waits, and what brings a result to the host.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import lumjax
import lumjax.numpy as jnp

Program = Callable[..., Any]
Made = tuple[Callable[[], Any], Callable[[Any], np.ndarray]]


@dataclass(frozen=True)
class Row:
    """A program, of a module like NumPy (torch is one); shapes at a GPU's size and at toy size;
    the dtype; how far results may be from exact ones, relative to the largest.
    """

    name: str
    program: Program
    large: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, ...], ...]
    dtype: str
    limit: float


def product(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b)


def layer(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.tanh(xp.matmul(x, w) + b)


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.amax(x, -1)[:, None])
    return e / e.sum(-1)[:, None]


def norm(xp: Any, x: Any, scale: Any) -> Any:
    centred = x - x.mean(-1)[:, None]
    return centred / xp.sqrt((centred * centred).mean(-1)[:, None] + 1e-5) * scale


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    s = xp.matmul(q, xp.swapaxes(k, 0, 1)) * 0.125
    e = xp.exp(s - xp.amax(s, -1)[:, None])
    return xp.matmul(e / e.sum(-1)[:, None], v)


def elementwise(xp: Any, x: Any, y: Any) -> Any:
    return xp.tanh(x * y + 1.0) * x


def total(xp: Any, x: Any) -> Any:
    return (x * x).sum(0)


ROWS = (
    Row("product, bfloat16", product, ((8192, 8192), (8192, 8192)), ((72, 136), (136, 64)),
        "bfloat16", 2e-2),
    Row("product, float32", product, ((4096, 4096), (4096, 4096)), ((40, 50), (50, 33)),
        "float32", 1e-4),
    Row("layer, bfloat16", layer, ((8192, 4096), (4096, 4096), (4096,)),
        ((72, 64), (64, 64), (64,)), "bfloat16", 4e-2),
    Row("softmax", softmax, ((16384, 4096),), ((9, 70),), "float32", 1e-4),
    Row("norm", norm, ((16384, 4096), (4096,)), ((9, 70), (70,)), "float32", 1e-4),
    Row("attention", attention, ((8192, 64),) * 3, ((40, 16),) * 3, "float32", 1e-3),
    Row("map", elementwise, ((1 << 26,),) * 2, ((1000,),) * 2, "float32", 1e-5),
    Row("sum of squares by columns", total, ((65536, 1024),), ((300, 40),), "float32", 1e-4),
)  # fmt: skip


def arguments(row: Row, toy: bool) -> list[np.ndarray]:
    """The same inputs every time."""
    rng = np.random.default_rng(0)
    dtype = ml_dtypes.bfloat16 if row.dtype == "bfloat16" else np.dtype(row.dtype)
    shapes = row.small if toy else row.large
    return [rng.standard_normal(s, np.float32).astype(dtype) for s in shapes]


def exact(row: Row, args: list[np.ndarray]) -> np.ndarray:
    """The program in double precision, or in single precision where sides are large."""
    wide = np.float32 if max(a.size for a in args) > 1 << 20 else np.float64
    return row.program(np, *(a.astype(wide) for a in args))


# ---- peers


def _ours(row: Row, args: list[np.ndarray], backend: str) -> Made:
    f = lumjax.jit(lambda *xs: row.program(jnp, *xs), backend=backend)
    given = [jnp.asarray(a) for a in args]
    return lambda: lumjax.block_until_ready(f(*given)), np.asarray


def _jax(row: Row, args: list[np.ndarray], device: str) -> Made:
    import jax

    where = jax.devices(device)[0]
    given = [jax.device_put(a, where) for a in args]
    f = jax.jit(lambda *xs: row.program(jax.numpy, *xs))
    return lambda: jax.block_until_ready(f(*given)), np.asarray


def _torch(row: Row, args: list[np.ndarray], device: str) -> Made:
    import torch

    kind = getattr(torch, row.dtype)
    given = [torch.from_numpy(a.astype(np.float32)).to(device, kind) for a in args]
    f = torch.compile(lambda *xs: row.program(torch, *xs))

    def run() -> Any:
        out = f(*given)
        if device != "cpu":
            torch.cuda.synchronize()
        return out

    return run, lambda x: x.float().cpu().numpy()


def _cublas(row: Row, args: list[np.ndarray]) -> Made:
    """CuPy's matmul of float32; of bfloat16 it has none, so that float16 stands for it."""
    cupy = importlib.import_module("cupy")
    kind = np.float16 if row.dtype == "bfloat16" else np.float32
    a, b = (cupy.asarray(x.astype(kind)) for x in args)

    def run() -> Any:
        out = cupy.matmul(a, b)
        cupy.cuda.get_current_stream().synchronize()
        return out

    return run, cupy.asnumpy


def peers_of(row: Row, args: list[np.ndarray], backend: str) -> dict[str, Callable[[], Made]]:
    """How each that is installed makes the row: on the GPU, or at toy sizes on the CPU."""
    gpu = backend == "cuda"
    found: dict[str, Callable[[], Made]] = {"lumjax": lambda: _ours(row, args, backend)}
    if importlib.util.find_spec("jax"):
        found["jax"] = lambda: _jax(row, args, "gpu" if gpu else "cpu")
    if importlib.util.find_spec("torch"):
        found["torch.compile"] = lambda: _torch(row, args, "cuda" if gpu else "cpu")
    if gpu and row.program is product:
        found["cublas"] = lambda: _cublas(row, args)
    return found
