"""Programs in 16-bit floats, and in both widths: compiled whole, as exact as their dtype allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from benchmarks import programs
from lumjax import nn
from lumjax.config import config

ROWS = 260


def _values(seed: int, *shape: int, scale: float = 1.0) -> Any:
    return scale * np.random.default_rng(seed).standard_normal(shape)


def _mixed_norm(x: Any, scale: Any, bias: Any) -> Any:
    wide = (a.astype(jnp.promote_types(a.dtype, jnp.float32)) for a in (x, scale, bias))
    return programs.layer_norm(*wide).astype(x.dtype)


def _scores(q: Any, k: Any, **kwargs: Any) -> Any:
    s = jnp.einsum("hqd,hkd->hqk", q, k, **kwargs) * q.shape[-1] ** -0.5
    at = jnp.arange(q.shape[1])
    return jnp.where(at[:, None] >= at[None, :], s, -jnp.inf)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", nn.softmax(_scores(q, k), -1), v)


def _wide(x: Any) -> Any:
    return jnp.promote_types(x.dtype, jnp.float32)


def _mixed_attention(q: Any, k: Any, v: Any) -> Any:
    """Operands of products are narrow, all else is wide."""
    s = _scores(q, k, preferred_element_type=_wide(q))
    p = nn.softmax(s, -1).astype(v.dtype)
    o = jnp.einsum("hqk,hkd->hqd", p, v, preferred_element_type=_wide(v))
    return o.astype(q.dtype)


LABELS = np.random.default_rng(7).integers(0, 700, ROWS).astype(np.int32)


def _linear(x: Any, w: Any) -> Any:
    return programs.label_loss(x @ w, jnp.array(LABELS))


def _mixed_linear(x: Any, w: Any) -> Any:
    logits = jnp.einsum("nd,dv->nv", x, w, preferred_element_type=_wide(x))
    return programs.label_loss(logits, jnp.array(LABELS))


HEADS = tuple(_values(k, 2, ROWS, 32) for k in range(3))
NORM = _values(0, 64, 256), _values(1, 256), _values(2, 256)
LINEAR = _values(0, ROWS, 64), _values(1, 64, 700, scale=0.1)
MLP = (
    _values(0, ROWS, 64),
    _values(1, 64, 256, scale=0.1),
    _values(2, 256),
    _values(3, 256, 64, scale=0.1),
)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (lambda x: nn.softmax(x, -1), (_values(0, 64, 300),)),
    "log_softmax": (lambda x: nn.log_softmax(x, -1), (_values(0, 64, 300),)),
    "layer norm": (programs.layer_norm, NORM),
    "layer norm, mixed": (_mixed_norm, NORM),
    "attention": (_attention, HEADS),
    "attention, mixed": (_mixed_attention, HEADS),
    "linear and labels": (_linear, LINEAR),
    "linear and labels, mixed": (_mixed_linear, LINEAR),
    "mlp": (lambda x, w, b, u: nn.gelu(x @ w + b) @ u, MLP),
}


def _backward(f: Callable[..., Any], count: int) -> Callable[..., Any]:
    def weighted(*args: Any) -> Any:
        out = f(*args)
        weights = jnp.cos(jnp.arange(float(out.size))).reshape(out.shape).astype(out.dtype)
        return jnp.sum(out * weights)

    return lumjax.grad(weighted, tuple(range(count)))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(9)
def test_all_is_compiled_and_as_exact_as_the_dtype(name: str, dtype: str, backward: bool) -> None:
    f, values = PROGRAMS[name]
    if backward:
        f = _backward(f, len(values))
    args = [jnp.array(v).astype(dtype) for v in values]
    compiled = lumjax.jit(f).lower(*args).compile()
    assert [e.why for e in compiled.executable.evaluated()] == []
    assert not any(k.rejected for s in compiled.executable.native() for k in s.kernels)
    got = lumjax.tree.leaves(compiled(*args))
    with config.scope(interpret=True):
        traced = lumjax.tree.leaves(lumjax.jit(f)(*args))
    with config.scope(interpret=True, enable_x64=True):
        exact = lumjax.tree.leaves(lumjax.jit(f)(*(jnp.asarray(np.float64(a)) for a in args)))
    for x, y, z in zip(got, traced, exact, strict=True):
        assert x.dtype == y.dtype
        want = np.asarray(z)
        scale = np.abs(want).max()
        error, allowed = (np.abs(np.float64(np.asarray(a)) - want).max() for a in (x, y))
        assert error <= 2 * allowed + 4 * float(jnp.finfo(dtype).eps) * scale


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["attention", "attention, mixed"])
@pytest.mark.sampled(2)
def test_rows_are_streamed_whatever_is_rounded(name: str, dtype: str) -> None:
    f, values = PROGRAMS[name]
    args = [jnp.array(v).astype(dtype) for v in values]
    for program, most in ((f, 1), (_backward(f, 3), 4)):
        executable = lumjax.jit(program).lower(*args).compile().executable
        kept = [b for s in executable.native() for b in s.found.plan.temporaries]
        assert sum(len(s.kernels) for s in executable.native()) <= most
        assert max((int(np.prod(b.shape)) for b in kept), default=0) < 2 * ROWS * ROWS
