"""One expression, two libraries: evaluate text with lumjax and with JAX and compare everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, tree

jax = pytest.importorskip("jax")

TOLERANCE = {"float32": 2e-6, "complex64": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def sample_arrays() -> dict[str, np.ndarray[Any, Any]]:
    """The operands that expressions may name, by dtype letter and shape."""
    rng = np.random.default_rng(7)
    signed = rng.normal(size=(3, 4)) * 2
    return {
        "f34": signed.astype("f4"),
        "g34": (rng.normal(size=(3, 4)) + 0.5).astype("f4"),
        "p34": rng.uniform(0.1, 0.9, size=(3, 4)).astype("f4"),
        "f43": rng.normal(size=(4, 3)).astype("f4"),
        "f4": np.array([0.5, -1.5, 2.5, -3.0], "f4"),
        "f234": rng.normal(size=(2, 3, 4)).astype("f4"),
        "f245": rng.normal(size=(2, 4, 5)).astype("f4"),
        "f33": rng.normal(size=(3, 3)).astype("f4"),
        "i34": rng.integers(-5, 6, size=(3, 4)).astype("i4"),
        "j34": rng.integers(1, 5, size=(3, 4)).astype("i4"),
        "i4": np.array([3, -7, 0, 7], "i4"),
        "i8": np.array([100, -128, 5, 127], "i1"),
        "u8": np.array([200, 0, 5, 255], "u1"),
        "u32": np.array([2**31, 0, 5, 2**32 - 1], "u4"),
        "b34": rng.integers(0, 2, size=(3, 4)).astype(bool),
        "b4": np.array([True, False, True, False]),
        "h4": np.array([0.5, -1.5, 2.25, 100.0], "f2"),
        "bf4": np.array([0.5, -1.5, 2.25, 100.0], ml_dtypes.bfloat16),
        "c4": np.array([1 + 2j, -0.5j, 3, -1 - 1j], "c8"),
        "e4": np.array([np.nan, np.inf, -np.inf, -0.0], "f4"),
        "n34": np.where(rng.uniform(size=(3, 4)) < 0.3, np.nan, signed).astype("f4"),
        "f0": np.zeros((0,), "f4"),
        "f04": np.zeros((0, 4), "f4"),
        "i0": np.zeros((0,), "i4"),
        "f1": np.array([1.5], "f4"),
        "f14": np.array([[1.0, 2.0, -3.0, 4.0]], "f4"),
        "s": np.array(1.25, "f4"),
        "k": np.array(2, "i4"),
        "t6": np.array([2, 1, 2, 0, 1, 2], "i4"),
        "img": rng.normal(size=(2, 5, 6, 3)).astype("f4"),
        "ker": rng.normal(size=(3, 2, 3, 4)).astype("f4"),
        "nchw": rng.normal(size=(2, 3, 7, 6)).astype("f4"),
        "oihw": rng.normal(size=(4, 3, 3, 2)).astype("f4"),
    }


def _names(numpy: Any, extra: dict[str, Any]) -> dict[str, Any]:
    arrays = {k: numpy.asarray(v) for k, v in sample_arrays().items()}
    return {
        "np": np,
        **extra,
        "jnp": numpy,
        "w": numpy.asarray(2.0),
        "wi": numpy.asarray(3),
        **arrays,
    }


OURS = _names(jnp, {"lax": lax, "nn": nn, "jax": lumjax})
THEIRS = _names(jax.numpy, {"lax": jax.lax, "nn": jax.nn, "jax": jax})


@dataclass(frozen=True)
class Leaf:
    """One array of a result, and what must agree besides the numbers."""

    value: np.ndarray[Any, Any]
    about: tuple[Any, ...]  # shape, dtype (or Python type), weak type


def leaves(tree_leaves: Any) -> list[Leaf]:
    out: list[Leaf] = []
    for x in tree_leaves:
        weak = bool(x.weak_type) if hasattr(x, "weak_type") else None
        about = (tuple(np.shape(x)), str(getattr(x, "dtype", type(x).__name__)), weak)
        out.append(Leaf(np.asarray(x), about))
    return out


def theirs(expression: str) -> list[Leaf]:
    """What JAX says."""
    return leaves(jax.tree.leaves(eval(expression, THEIRS)))


def assert_same(
    got: list[Leaf], want: list[Leaf], tolerance: float | None = None, signs: bool = True
) -> None:
    assert [a.about for a in got] == [b.about for b in want]
    for a, b in zip(got, want, strict=True):
        x, y = a.value, b.value
        rtol = TOLERANCE.get(str(y.dtype), 0) if tolerance is None else tolerance
        if y.dtype.kind not in "fcV":
            np.testing.assert_array_equal(x, y)
            continue
        wide = np.complex128 if y.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(x.astype(wide), y.astype(wide), rtol=rtol, atol=rtol)
        if y.dtype.kind != "c" and signs:
            zeros = (y == 0) & (x == 0)
            np.testing.assert_array_equal(np.signbit(x[zeros]), np.signbit(y[zeros]))


def check(expression: str, tolerance: float | None = None, signs: bool = True) -> None:
    """`expression` means the same in both libraries: values, dtypes, shapes and weak types; the
    signs of zeros too unless `signs` is False.
    """
    ours = leaves(tree.leaves(eval(expression, OURS)))
    assert_same(ours, theirs(expression), tolerance, signs)


def lines(text: str) -> list[str]:
    """The expressions of a table, one per line."""
    return [line.strip() for line in text.splitlines() if line.strip()]
