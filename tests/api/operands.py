"""What the cases' expressions may name: operands by dtype letter and shape, and both libraries."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

# What both libraries load only when asked to.
SUBMODULES = (
    "experimental.pjit", "experimental.shard_map", "experimental.mesh_utils",
    "experimental.multihost_utils", "experimental", "extend.core", "flatten_util", "image", "ops",
    "ad_checkpoint", "monitoring", "distributed", "scipy.linalg", "scipy.special",
    "scipy.ndimage", "scipy.sparse.linalg",
    "scipy.stats.norm",
)  # fmt: skip


def operands() -> dict[str, np.ndarray[Any, Any]]:
    """The arrays, the same in both processes."""
    rng = np.random.default_rng(11)
    signed = rng.normal(size=(3, 4)) * 2
    square = rng.normal(size=(3, 3))
    return {
        "f34": signed.astype("f4"),
        "g34": (rng.normal(size=(3, 4)) + 0.5).astype("f4"),
        "p34": rng.uniform(0.1, 0.9, size=(3, 4)).astype("f4"),
        "f43": rng.normal(size=(4, 3)).astype("f4"),
        "f3": np.array([0.25, -1.0, 2.0], "f4"),
        "f4": np.array([0.5, -1.5, 2.5, -3.0], "f4"),
        "f5": np.array([3.0, -1.0, 2.0, 2.0, -0.5], "f4"),
        "f234": rng.normal(size=(2, 3, 4)).astype("f4"),
        "f245": rng.normal(size=(2, 4, 5)).astype("f4"),
        "f33": square.astype("f4"),
        "g33": rng.normal(size=(3, 3)).astype("f4"),
        "spd": (square @ square.T + 3 * np.eye(3)).astype("f4"),
        "f233": rng.normal(size=(2, 3, 3)).astype("f4"),
        "f31": rng.normal(size=(3, 1)).astype("f4"),
        "f14": np.array([[1.0, 2.0, -3.0, 4.0]], "f4"),
        "f1": np.array([1.5], "f4"),
        "s": np.array(1.25, "f4"),
        "f0": np.zeros((0,), "f4"),
        "f04": np.zeros((0, 4), "f4"),
        "f40": np.zeros((4, 0), "f4"),
        "f00": np.zeros((0, 0), "f4"),
        "e4": np.array([np.nan, np.inf, -np.inf, -0.0], "f4"),
        "n34": np.where(rng.uniform(size=(3, 4)) < 0.3, np.nan, signed).astype("f4"),
        "i34": rng.integers(-5, 6, size=(3, 4)).astype("i4"),
        "j34": rng.integers(1, 5, size=(3, 4)).astype("i4"),
        "i4": np.array([3, -7, 0, 7], "i4"),
        "i0": np.zeros((0,), "i4"),
        "k": np.array(2, "i4"),
        "t6": np.array([2, 1, 2, 0, 1, 2], "i4"),
        "x6": np.array([0.5, -1.0, 2.0, 3.5, -2.5, 1.0], "f4"),
        "i8": np.array([100, -128, 5, 127], "i1"),
        "i16": np.array([300, -2, 5, 0], "i2"),
        "u4": np.array([200, 0, 5, 255], "u1"),
        "u32": np.array([2**31, 0, 5, 2**32 - 1], "u4"),
        "b34": rng.integers(0, 2, size=(3, 4)).astype(bool),
        "b4": np.array([True, False, True, False]),
        "b3": np.array([True, False, True]),
        "b0": np.zeros((0,), bool),
        "h4": np.array([0.5, -1.5, 2.25, 3.0], "f2"),
        "h34": signed.astype("f2"),
        "bf4": np.array([0.5, -1.5, 2.25, 100.0], ml_dtypes.bfloat16),
        "bf34": signed.astype(ml_dtypes.bfloat16),
        "c4": np.array([1 + 2j, -0.5j, 3, -1 - 1j], "c8"),
        "c34": (signed + 1j * rng.normal(size=(3, 4))).astype("c8"),
        "img": rng.normal(size=(2, 5, 6, 3)).astype("f4"),
        "ker": rng.normal(size=(3, 2, 3, 4)).astype("f4"),
        "nchw": rng.normal(size=(2, 3, 7, 6)).astype("f4"),
        "oihw": rng.normal(size=(4, 3, 3, 2)).astype("f4"),
    }


def raised(f: Any, *kinds: type[BaseException]) -> bool:
    """Whether calling `f` raises one of `kinds`; anything else it raises comes through."""
    try:
        f()
    except kinds:
        return True
    return False


def about(x: Any) -> tuple[Any, ...]:
    """The shape, dtype and weak type of an array or of its description."""
    return tuple(x.shape), str(x.dtype), bool(getattr(x, "weak_type", False))


def recorded(f: Any) -> list[Any]:
    """What `f` passes to the function it gets, in order."""
    seen: list[Any] = []
    f(lambda *values: seen.append([np.asarray(v).tolist() for v in values]))
    return seen


def namespace(library: Any, numpy: Any) -> dict[str, Any]:
    """The names that expressions see; `library` is lumjax or jax."""
    for module in SUBMODULES:
        importlib.import_module(f"{library.__name__}.{module}")
    tools = {"raised": raised, "about": about, "recorded": recorded, "Space": SimpleNamespace}
    arrays = {k: numpy.asarray(v) for k, v in operands().items()}
    more = {"w": numpy.asarray(2.0), "wi": numpy.asarray(3), "key": library.random.PRNGKey(7)}
    return {"jax": library, "jnp": numpy, "lax": library.lax, "np": np, **tools, **arrays, **more}
